//! How a command finds its server.

use crate::failure::{About, Failure};
use bytes::Bytes;
use clap::Args;
use client::{Driver, DriverOptions, Endpoint};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where the server is, and how long to wait for it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// The group file that the server wrote
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "THALWEG_GROUP_FILE",
        hide_env_values = true,
        default_value = "thalweg.json"
    )]
    group_file: PathBuf,
    /// The server's address, instead of a group file: unix:///run/thalweg.sock, tcp://127.0.0.1:7000
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// A file with the server's token in hexadecimal digits, for use with --address
    #[arg(long, value_name = "FILE", requires = "address")]
    token_file: Option<PathBuf>,
    /// The namespace of topics, consumers and producers
    #[arg(
        long,
        value_name = "NAME",
        env = "THALWEG_NAMESPACE",
        hide_env_values = true,
        default_value = ""
    )]
    namespace: String,
    /// How long to wait for a connection, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    connect_timeout: f64,
    /// How long to wait for an answer, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = seconds)]
    timeout: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        // Beyond this no Duration can be made of it.
        Ok(seconds) if (0.0..1e9).contains(&seconds) => Ok(seconds),
        _ => Err("must be a number of seconds from 0 on".to_owned()),
    }
}

impl Connection {
    /// How long to wait for an answer.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout)
    }

    /// What error messages call the server.
    pub fn subject(&self) -> String {
        match &self.address {
            Some(address) => address.clone(),
            None => self.group_file.display().to_string(),
        }
    }

    /// Connects.
    pub fn driver(&self) -> Result<Driver, Failure> {
        let endpoint = match &self.address {
            None => Endpoint::GroupFile(self.group_file.clone()),
            Some(address) => Endpoint::Address {
                address: address.clone(),
                token: self.token_file.as_deref().map(read_token).transpose()?,
                directory: None,
            },
        };
        let options = DriverOptions {
            client_name: format!("thalweg {}", std::process::id()),
            namespace: self.namespace.clone(),
            connect_timeout: Duration::from_secs_f64(self.connect_timeout),
            request_timeout: self.timeout(),
            plugins: Arc::new(plugin::Loader::from_environment()),
            ..DriverOptions::default()
        };
        Driver::connect(endpoint, options).about(self.subject())
    }
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
