//! How a command finds its server.

use crate::failure::{About, Failure};
use bytes::Bytes;
use clap::Args;
use client::{CredentialEnds, Driver, DriverOptions, Endpoint, Waiting};
use fabric::{Shm, ShmOptions};
use net::{Proxies, Tls, Transports, Trust};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for an answer where nothing is said, seconds.
const DEFAULT_TIMEOUT: f64 = 120.0;

/// Where the server is, and how long to wait for it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// The group file that the server wrote, or a file with a thalweg:// URL [default: the URL of the
    /// environment variable THALWEG_URL, or thalweg.json]
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "THALWEG_GROUP_FILE",
        hide_env_values = true
    )]
    group_file: Option<PathBuf>,
    /// The server's address, instead of a group file: unix:///run/thalweg.sock, tcp://127.0.0.1:7000,
    /// tls://host:7000
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// A file with the server's token in hexadecimal digits, for use with --address
    #[arg(long, value_name = "FILE", requires = "address")]
    token_file: Option<PathBuf>,
    /// A file with the authorities (PEM) that are trusted for tls://, where neither the group file
    /// nor the address (`?sha256=HEX`, `?ca=FILE`) says which certificate is
    #[arg(
        long,
        value_name = "FILE",
        env = "THALWEG_TLS_CA",
        hide_env_values = true
    )]
    tls_ca: Option<PathBuf>,
    /// A file with a token, a certificate or a JWT of a project [env: THALWEG_CREDENTIAL]
    #[arg(
        long,
        value_name = "FILE",
        env = "THALWEG_CREDENTIAL",
        hide_env = true,
        conflicts_with = "token_file"
    )]
    credential: Option<PathBuf>,
    /// The namespace of topics, consumers and producers
    #[arg(
        long,
        value_name = "NAME",
        env = "THALWEG_NAMESPACE",
        hide_env_values = true,
        default_value = ""
    )]
    namespace: String,
    /// How long to wait for a connection, and for the group file, seconds [default: 10, and not for
    /// the group file]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    connect_timeout: Option<f64>,
    /// How long to wait for an answer, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_TIMEOUT, value_parser = seconds)]
    timeout: f64,
}

/// Whether a text is a URL with a token in it.
fn has_token(text: impl AsRef<std::ffi::OsStr>) -> bool {
    let text = text.as_ref().as_encoded_bytes();
    text.starts_with(client::url::SCHEME.as_bytes())
}

pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds >= 0.0 => Ok(seconds),
        _ => Err("must be a number of seconds from 0 on".to_owned()),
    }
}

/// Of a number of seconds that was checked: what is too much is for ever.
pub fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl Connection {
    /// How long to wait for an answer.
    pub fn timeout(&self) -> Duration {
        duration(self.timeout)
    }

    /// What error messages call the server.
    pub fn subject(&self) -> String {
        match (&self.address, &self.group_file) {
            (Some(address), _) if has_token(address) => "--address".to_owned(),
            (Some(address), _) => address.clone(),
            (None, Some(path)) if has_token(path) => "--group-file".to_owned(),
            (None, Some(path)) => path.display().to_string(),
            (None, None) => match client::url::usual_endpoint() {
                Endpoint::GroupFile(path) => path.display().to_string(),
                Endpoint::Address { .. } => client::url::VARIABLE.to_owned(),
            },
        }
    }

    /// Host and port at which the server is reached with TLS, as far as is known without asking it.
    pub fn tls_authority(&self) -> Option<String> {
        let of_address = |address: &str| {
            let rest = address.strip_prefix("tls://")?;
            let authority = rest
                .split_once('?')
                .map_or(rest, |(authority, _)| authority);
            Some(authority.to_owned())
        };
        match self.endpoint().ok()? {
            Endpoint::Address { address, .. } => of_address(&address),
            Endpoint::GroupFile(path) => {
                let file = client::group_file::GroupFile::read(&path).ok()?;
                file.endpoints
                    .iter()
                    .find_map(|address| of_address(address))
            }
        }
    }

    fn endpoint(&self) -> Result<Endpoint, Failure> {
        let shows = |what: &str| {
            Err(Failure::usage(
                self.subject(),
                format!(
                    "a thalweg:// URL has a token, and {what} shows it to everybody on this host. Put it into a file \
                     that only you can read, and give that as --group-file; or into the environment variable {}",
                    client::url::VARIABLE
                ),
            ))
        };
        match (&self.address, &self.group_file) {
            (Some(address), _) if has_token(address) => shows("a command line"),
            (Some(address), _) => Ok(Endpoint::Address {
                address: address.clone(),
                token: self.token_file.as_deref().map(read_token).transpose()?,
                directory: None,
            }),
            // What the environment has is seen by this user alone.
            (None, Some(path)) if has_token(path) => match std::env::var_os("THALWEG_GROUP_FILE") {
                Some(named) if named.as_os_str() == path.as_os_str() => {
                    Ok(Endpoint::GroupFile(path.clone()))
                }
                _ => shows("a command line"),
            },
            (None, Some(path)) => Ok(Endpoint::GroupFile(path.clone())),
            (None, None) => Ok(client::url::usual_endpoint()),
        }
    }

    /// The same with a credential from this file.
    pub fn with_credential(mut self, file: PathBuf) -> Self {
        self.credential = Some(file);
        self
    }

    /// The servers of a group file that is there, which are waited for no longer than so.
    pub fn of_group_file(path: PathBuf, longest: Duration) -> Self {
        Self {
            group_file: Some(path),
            address: None,
            token_file: None,
            tls_ca: None,
            credential: None,
            namespace: String::new(),
            connect_timeout: Some(longest.as_secs_f64()),
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// The same with another group file, whose server is waited for no longer than so.
    pub fn at_group_file(&self, path: PathBuf, longest: Duration) -> Self {
        let longest = longest.as_secs_f64();
        Self {
            group_file: Some(path),
            address: None,
            token_file: None,
            connect_timeout: Some(self.connect_timeout.map_or(longest, |own| own.min(longest))),
            ..self.clone()
        }
    }

    /// The group file that leads to the server, if it is one.
    pub fn group_file(&self) -> Option<PathBuf> {
        match self.endpoint() {
            Ok(Endpoint::GroupFile(path)) => Some(path),
            _ => None,
        }
    }

    /// The same in another namespace.
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    /// The namespace of its names, as the user has given it.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Connects.
    pub fn driver(&self) -> Result<Driver, Failure> {
        self.driver_that_waits(None)
    }

    /// Connects, for a command that waits for events: as long as the server is
    /// away, but no longer than so many seconds, if that is given.
    pub fn driver_that_waits(&self, reconnect_timeout: Option<f64>) -> Result<Driver, Failure> {
        self.connect(reconnect_timeout, self.timeout())
    }

    /// Connects, for a command that waits no longer than so for an answer, even
    /// if it may.
    pub fn driver_answered_within(&self, longest: Duration) -> Result<Driver, Failure> {
        self.connect(None, self.timeout().min(longest))
    }

    fn connect(
        &self,
        reconnect_timeout: Option<f64>,
        request_timeout: Duration,
    ) -> Result<Driver, Failure> {
        let endpoint = self.endpoint()?;
        let mut options = driver_options();
        if let Some(path) = &self.tls_ca {
            let tls = Tls::default().through(Proxies::from_environment());
            let tls = tls.trusting(Trust::Authorities(path.clone()));
            options.transports = Arc::new((*options.transports).clone().with(tls));
        }
        let options = DriverOptions {
            client_name: format!("thalweg {}", std::process::id()),
            namespace: self.namespace.clone(),
            credential: self.credential.clone(),
            connect_timeout: self.connect_timeout.map(duration),
            request_timeout,
            reconnect_timeout: reconnect_timeout.map(duration),
            on_waiting: Some(Arc::new(|waiting: &Waiting| eprintln!("note: {waiting}"))),
            on_credential: Some(Arc::new(|ends: &CredentialEnds| eprintln!("note: {ends}"))),
            plugins: Arc::new(plugin::Loader::from_environment()),
            ..options
        };
        Driver::connect(endpoint, options).about(self.subject())
    }
}

/// What every driver of a command has: shared memory among its transports,
/// and the spinning that the environment asks for (THALWEG_SPIN_US).
pub fn driver_options() -> DriverOptions {
    let options = DriverOptions::default();
    DriverOptions {
        // Those that take one have an argument for it; others talk to a server of their own.
        credential: None,
        transports: Arc::new(with_shared_memory(&options.transports)),
        spin: spin(),
        ..options
    }
}

/// `transports`, and shared memory with them.
pub fn with_shared_memory(transports: &Transports) -> Transports {
    transports.clone().with(Shm::new(ShmOptions {
        report: Arc::new(|line| eprintln!("note: {line}")),
        ..ShmOptions::default()
    }))
}

/// The variable that says how long to look before sleeping, microseconds; a
/// server has it as a setting.
pub const SPIN_VARIABLE: &str = "THALWEG_SPIN_US";

/// How long to look before sleeping, as the environment has it.
pub fn spin() -> Duration {
    let text = std::env::var(SPIN_VARIABLE);
    let spin_us = text.ok().and_then(|text| text.parse().ok());
    Duration::from_micros(spin_us.unwrap_or(0))
}

fn read_token(path: &std::path::Path) -> Result<Bytes, Failure> {
    let subject = path.display().to_string();
    let text = std::fs::read_to_string(path).about(&subject)?;
    let digits = text.trim();
    let byte = |at: usize| {
        digits
            .get(at..at + 2)
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    let token: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    match token {
        Some(token) if !token.is_empty() => Ok(token.into()),
        _ => Err(Failure::usage(subject, "is no token in hexadecimal digits")),
    }
}
