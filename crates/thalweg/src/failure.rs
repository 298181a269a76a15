//! How a command fails: what it says, and with which code it exits.

use client::ClientError;
use server::ServerError;
use std::fmt;
use std::io;
use std::process::ExitCode;
use step::StepError;

/// The exit codes, which scripts may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The server or the operating system refused, or something broke.
    Failure = 1,
    /// The arguments or settings cannot be right.
    Usage = 2,
    /// `audit` found something that is lost, doubled or unexplained; or `backup` or `workload run` did; or `doctor` a server that cannot be reached.
    Findings = 3,
    /// A deadline passed.
    Timeout = 4,
    /// No server answers, or another one than was expected.
    NoServer = 5,
    /// Another server has the data directory.
    Locked = 6,
}

impl Code {
    /// For the reference page.
    #[cfg(test)]
    pub const TABLE: &[(u8, &str)] = &[
        (
            0,
            "done; or, for a server, for `consume`, `steps tail` and `view`, ended by SIGINT or SIGTERM and closed cleanly",
        ),
        (
            Self::Failure as u8,
            "the server or the operating system refused, or something broke",
        ),
        (
            Self::Usage as u8,
            "the arguments, the settings or the input cannot be right",
        ),
        (
            Self::Findings as u8,
            "`audit` found something that is lost, doubled or unexplained; `backup` copied what lacks events, or cannot be opened; in a `workload run` something was lost, doubled, damaged or out of order, or somebody's figures are missing; `doctor` found that a server which it was given cannot be used",
        ),
        (
            Self::Timeout as u8,
            "a deadline passed; the message says what was waited for",
        ),
        (
            Self::NoServer as u8,
            "no server answers, or another one than the group file names",
        ),
        (Self::Locked as u8, "another server has the data directory"),
        (130, "ended at once by a second SIGINT"),
        (143, "ended at once by a second SIGTERM"),
    ];
}

impl Code {
    /// With which a server ends that does not start, or did not end well.
    pub fn of(error: &ServerError) -> Self {
        match error {
            ServerError::Config(_) => Self::Usage,
            ServerError::Locked { .. } | ServerError::LockedElsewhere { .. } => Self::Locked,
            ServerError::DrainTimeout { .. } => Self::Timeout,
            _ => Self::Failure,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// Why a command fails.
#[derive(Debug)]
pub enum Failure {
    /// Nobody reads the output any more: that is no failure of ours.
    OutputClosed,
    /// Something to tell the user.
    Told {
        /// What it is about: a topic, a file, an address.
        subject: String,
        /// What is wrong.
        what: String,
        /// The exit code.
        code: Code,
    },
}

impl Failure {
    /// A failure with a code of its own.
    pub fn new(code: Code, subject: impl Into<String>, what: impl fmt::Display) -> Self {
        Self::Told {
            subject: subject.into(),
            what: what.to_string(),
            code,
        }
    }

    /// The user gave something that cannot be right.
    pub fn usage(subject: impl Into<String>, what: impl fmt::Display) -> Self {
        Self::new(Code::Usage, subject, what)
    }

    /// The exit code.
    pub fn exit_code(&self) -> Code {
        match self {
            Self::OutputClosed => Code::Failure,
            Self::Told { code, .. } => *code,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutputClosed => f.write_str("output: closed by its reader"),
            Self::Told { subject, what, .. } => write!(f, "{subject}: {what}"),
        }
    }
}

/// Says what an error is about.
pub trait About<T> {
    /// Makes it a [`Failure`] about `subject`.
    fn about(self, subject: impl Into<String>) -> Result<T, Failure>;
}

impl<T> About<T> for Result<T, ClientError> {
    fn about(self, subject: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| {
            let code = match &error {
                ClientError::Timeout { .. } => Code::Timeout,
                ClientError::Unreachable { .. }
                | ClientError::Recovering { .. }
                | ClientError::WrongServer { .. } => Code::NoServer,
                ClientError::Invalid(_) | ClientError::UnknownPartition(_) => Code::Usage,
                _ => Code::Failure,
            };
            Failure::new(code, subject, error)
        })
    }
}

impl<T> About<T> for Result<T, StepError> {
    fn about(self, subject: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| match error {
            StepError::Client(error) => {
                About::<()>::about(Err(error), subject).expect_err("it is an error")
            }
            StepError::Invalid(_) => Failure::usage(subject, error),
            _ => Failure::new(Code::Failure, subject, error),
        })
    }
}

impl<T> About<T> for Result<T, ServerError> {
    fn about(self, subject: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(Code::of(&error), subject, error))
    }
}

impl<T> About<T> for io::Result<T> {
    fn about(self, subject: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(Code::Failure, subject, error))
    }
}
