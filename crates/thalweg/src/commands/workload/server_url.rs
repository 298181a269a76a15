//! `SCHEME://USER:PASSWORD@HOST:PORT/PATH`: where the servers of others are, and where a user may keep what says so.

use crate::failure::{About, Failure};
use std::fs::File;
use std::io::{self, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Instant;

/// A longer file holds something else.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A kind of URL.
pub struct Kind {
    /// Whose it is, in messages.
    pub name: &'static str,
    /// What it begins with: the usual one first.
    pub schemes: &'static [&'static str],
    /// The variable that has one, where no option and no scenario does.
    pub variable: &'static str,
    /// Whether others must not see this one, or why it is none. That has no part of the text: there may be a password in it.
    pub is_secret: fn(&str) -> Result<bool, String>,
}

impl Kind {
    /// The server of a run: that of the option, of the scenario, or of the environment. Each is a URL, or a file with one.
    pub fn find(
        &self,
        option: Option<&str>,
        scenario: Option<&str>,
    ) -> Result<Option<String>, Failure> {
        if let Some(option) = option {
            return self.of_option(option).map(Some);
        }
        if let Some(text) = scenario {
            return self.of_text("url", text).map(Some);
        }
        match std::env::var(self.variable) {
            Ok(text) if !text.trim().is_empty() => {
                self.of_text(self.variable, text.trim()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What everybody on the host can see has no password.
    fn of_option(&self, option: &str) -> Result<String, Failure> {
        let text = self.of_text("--url", option)?;
        if (self.is_secret)(option) == Ok(true) {
            let what = format!(
                "this URL has a password, and a command line shows it to everybody on this host. Put it into a file that \
                 only you can read, and give that; or into the environment variable {}",
                self.variable
            );
            return Err(Failure::usage("--url", what));
        }
        Ok(text)
    }

    fn of_text(&self, subject: &str, text: &str) -> Result<String, Failure> {
        if !text.contains("://") {
            return self.of_file(Path::new(text));
        }
        (self.is_secret)(text).map_err(|why| Failure::usage(subject, why))?;
        Ok(text.to_owned())
    }

    /// The first line of a file that is not blank and does not begin with `#`.
    fn of_file(&self, path: &Path) -> Result<String, Failure> {
        let name = path.display().to_string();
        let mut text = String::new();
        let file = File::open(path).about(&name)?;
        file.take(FILE_BYTES_MAX)
            .read_to_string(&mut text)
            .about(&name)?;
        let line = ::client::url::first_line(&text);
        let what = || format!("has no line with a URL of {}", self.name);
        let line = line.ok_or_else(|| Failure::usage(&name, what()))?;
        (self.is_secret)(line).map_err(|why| Failure::usage(&name, why))?;
        Ok(line.to_owned())
    }
}

/// Bytes for `%XX`.
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(match byte {
            b'%' => (digit(rest.next()?)? * 16 + digit(rest.next()?)?) as u8,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// A host and its port.
pub type Place = (String, u16);

/// Takes `HOST:PORT` or `[ADDRESS]:PORT` apart.
pub fn place(text: &str, usual: u16) -> Result<Place, &'static str> {
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, ""))) => (host, None),
        Some(Some((host, rest))) => match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None => return Err("has something between its address and its port"),
        },
        Some(None) => return Err("has no end of its address"),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_clean = |one: char| !one.is_control() && !one.is_whitespace();
    if host.is_empty() || !host.chars().all(is_clean) {
        return Err("names no host");
    }
    match port.map_or(Ok(usual), str::parse::<u16>) {
        Ok(port) => Ok((host.to_owned(), port)),
        Err(_) => Err("has a port that is none"),
    }
}

/// A place as a URL has it.
pub fn written((host, port): &Place) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Connects to the first address of a host that answers.
pub fn reach((host, port): &Place, until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in (&**host, *port).to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_host_and_a_port() {
        for (text, host, port) in [
            ("host.org", "host.org", 7),
            ("host:9", "host", 9),
            ("[::1]", "::1", 7),
            ("[::1]:9", "::1", 9),
        ] {
            let found = place(text, 7).unwrap();
            assert_eq!(found, (host.to_owned(), port));
            assert_eq!(place(&written(&found), 1), Ok(found));
        }
        for text in ["", ":9", "host:x", "host:70000", "[::1", "[::1]9", "a b"] {
            assert!(place(text, 7).is_err(), "{text}");
        }
    }

    const KIND: Kind = Kind {
        name: "Redis",
        schemes: &["redis://"],
        variable: "THALWEG_REDIS_URL",
        is_secret: |text| match text.strip_prefix("redis://") {
            Some(rest) => Ok(rest.contains('@')),
            None => Err("is none".to_owned()),
        },
    };

    #[test]
    fn a_file_has_a_url_in_its_first_line_that_says_something() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("url");
        std::fs::write(&path, "# of the lab\n\n redis://:secret@host/ \n").unwrap();
        let option = path.display().to_string();
        assert_eq!(KIND.of_option(&option).unwrap(), "redis://:secret@host/");
        std::fs::write(&path, "amqp://u:secret@host").unwrap();
        let refused = KIND.of_option(&option).unwrap_err().to_string();
        assert!(!refused.contains("secret"), "{refused}");
        let refused = KIND.of_option("redis://:secret@host").unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("THALWEG_REDIS_URL") && !refused.contains("secret"),
            "{refused}"
        );
    }
}
