//! Why a function fails, as C sees it.

use client::ClientError;
use std::ffi::{CStr, c_char};
use step::StepError;
use wire::ErrorCode;

/// Space for a message with the zero behind it.
pub const MESSAGE_BYTES: usize = 1008;

/// What the server's codes begin behind: 100 and the code's number.
pub const SERVER_CODES: i32 = 100;

/// `thalweg_error`.
#[repr(C)]
pub struct ThalwegError {
    pub code: i32,
    pub retryable: i32,
    pub retry_after_ms: u32,
    pub reserved: u32,
    pub message: [c_char; MESSAGE_BYTES],
}

macro_rules! codes {
    ($($(#[$meta:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// The codes that are the client's own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Code { $($(#[$meta])* $name = $code,)* }

        #[cfg(test)]
        impl Code {
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }

        /// The client's codes in words, with the zero behind them.
        const NAMES: &[(i32, &CStr)] = &[$(($code, $text),)*];
    };
}

codes! {
    Ok = 0, c"ok";
    Timeout = 1, c"timeout";
    Closed = 2, c"closed";
    InvalidArgument = 3, c"invalid argument";
    Budget = 4, c"budget exceeded";
    WrongServer = 5, c"wrong server";
    Unreachable = 6, c"unreachable";
    Damaged = 7, c"damaged";
    Forked = 8, c"forked";
    Io = 9, c"input/output error";
    Cancelled = 10, c"cancelled";
    Internal = 11, c"internal error";
    NotEmbedded = 12, c"the embedded server cannot start";
    PluginUnusable = 13, c"plugin cannot be used";
    DataChanged = 14, c"borrowed data was changed";
    Recovering = 15, c"recovering";
}

/// A code in words.
pub fn name(code: i32) -> &'static CStr {
    if let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == code) {
        return name;
    }
    let number = code.checked_sub(SERVER_CODES);
    let server = number
        .and_then(|number| u16::try_from(number).ok())
        .and_then(ErrorCode::from_u16);
    match server {
        Some(_) => SERVER_NAMES
            .iter()
            .find(|(known, _)| *known == code)
            .map_or(c"unknown", |(_, name)| name),
        None => c"unknown",
    }
}

/// The server's codes in words. That it has all of them, with `wire`'s words,
/// is tested.
const SERVER_NAMES: &[(i32, &CStr)] = &[
    (101, c"internal error"),
    (102, c"malformed message"),
    (103, c"not supported"),
    (104, c"not authenticated"),
    (105, c"not authorized"),
    (106, c"wrong server"),
    (107, c"deadline passed"),
    (108, c"limit exceeded"),
    (109, c"server is draining"),
    (110, c"cancelled"),
    (111, c"credential expired"),
    (120, c"unknown topic"),
    (121, c"topic exists"),
    (122, c"invalid topic definition"),
    (123, c"unknown partition"),
    (124, c"topic has no partitions"),
    (125, c"invalid storage"),
    (126, c"not leader"),
    (140, c"invalid event"),
    (141, c"checksum mismatch"),
    (142, c"out of sequence"),
    (143, c"producer fenced"),
    (144, c"producer state expired"),
    (145, c"invalid durability"),
    (146, c"topic is full"),
    (147, c"events dropped"),
    (160, c"offset out of range"),
    (161, c"wrong incarnation"),
    (162, c"damaged"),
    (163, c"invalid selection"),
    (164, c"cursor would move back"),
    (165, c"unknown consumer"),
    (166, c"invalid consumer"),
    (167, c"member fenced"),
    (168, c"lease expired"),
    (170, c"run has ended"),
    (171, c"group is incomplete"),
    (180, c"storage is full"),
    (181, c"storage failed"),
];

/// Text in an array, with zeros behind it.
pub fn cut(text: &str) -> [c_char; MESSAGE_BYTES] {
    let mut end = text.len().min(MESSAGE_BYTES - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut message = [0; MESSAGE_BYTES];
    for (place, byte) in message.iter_mut().zip(&text.as_bytes()[..end]) {
        *place = *byte as c_char;
    }
    message
}

/// Why a function fails.
#[derive(Debug, Clone)]
pub struct Failure {
    pub code: i32,
    retryable: bool,
    retry_after_ms: u32,
    message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code: code as i32,
            // What was waited for may still come, and space may come free.
            retryable: matches!(
                code,
                Code::Timeout | Code::Budget | Code::Unreachable | Code::Recovering
            ),
            retry_after_ms: 0,
            message: message.into(),
        }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// As the server would say it.
    pub fn server(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: SERVER_CODES + i32::from(code as u16),
            retryable: false,
            retry_after_ms: 0,
            message: message.into(),
        }
    }

    /// Writes it to where the caller wants it. A message that is too long is
    /// cut between two characters.
    pub fn write(&self, error: &mut std::mem::MaybeUninit<ThalwegError>) {
        let message = cut(&self.message);
        error.write(ThalwegError {
            code: self.code,
            retryable: i32::from(self.retryable),
            retry_after_ms: self.retry_after_ms,
            reserved: 0,
            message,
        });
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        let code = match error {
            ClientError::Server(reply) => {
                return Self {
                    code: SERVER_CODES + i32::from(reply.code as u16),
                    retryable: reply.retryable,
                    retry_after_ms: reply.retry_after_ms,
                    message,
                };
            }
            ClientError::Timeout { .. } => Code::Timeout,
            ClientError::Closed => Code::Closed,
            ClientError::Invalid(_) => Code::InvalidArgument,
            // The client knows first what the server would say.
            ClientError::UnknownPartition(_) => {
                return Self::server(ErrorCode::UnknownPartition, message);
            }
            ClientError::Plugin(_) => Code::PluginUnusable,
            ClientError::Budget(_) => Code::Budget,
            ClientError::WrongServer { .. } => Code::WrongServer,
            ClientError::Unreachable { .. } => Code::Unreachable,
            ClientError::Recovering { left, .. } => {
                return Self {
                    retry_after_ms: left.as_millis().clamp(1, u128::from(u32::MAX)) as u32,
                    ..Self::new(Code::Recovering, message)
                };
            }
            ClientError::Damaged { .. } => Code::Damaged,
            ClientError::DataChanged { .. } => Code::DataChanged,
            ClientError::Forked => Code::Forked,
            ClientError::Cancelled => Code::Cancelled,
            ClientError::Io { .. } => Code::Io,
        };
        Self::new(code, message)
    }
}

impl From<StepError> for Failure {
    fn from(error: StepError) -> Self {
        let message = error.to_string();
        match error {
            StepError::Client(error) => error.into(),
            StepError::RunEnded { .. } => Self::server(ErrorCode::RunEnded, message),
            StepError::Replaced(_) => Self::server(ErrorCode::MemberFenced, message),
            StepError::Incomplete(_) => Self::server(ErrorCode::GroupIncomplete, message),
            StepError::Gone(_) => Self::server(ErrorCode::OffsetOutOfRange, message),
            StepError::Invalid(_) => Self::new(Code::InvalidArgument, message),
            StepError::Damaged(_) => Self::new(Code::Damaged, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_server_has_its_name() {
        for code in ErrorCode::ALL {
            let number = SERVER_CODES + i32::from(*code as u16);
            assert_eq!(name(number).to_str(), Ok(code.name()), "code {number}");
        }
        assert_eq!(SERVER_NAMES.len(), ErrorCode::ALL.len());
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failure = Failure::invalid("ä".repeat(MESSAGE_BYTES));
        let mut error = std::mem::MaybeUninit::uninit();
        failure.write(&mut error);
        // SAFETY: written by the line before.
        let error = unsafe { error.assume_init() };
        let bytes: Vec<u8> = error.message.iter().map(|byte| *byte as u8).collect();
        let text = CStr::from_bytes_until_nul(&bytes).unwrap();
        assert_eq!(
            text.to_str().unwrap().chars().count(),
            (MESSAGE_BYTES - 1) / 2
        );
    }
}
