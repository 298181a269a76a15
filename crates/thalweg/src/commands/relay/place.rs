//! Where an offer is, as people write it: `HOST` or `HOST:PORT`.

use std::fmt;
use std::str::FromStr;

/// The port of what passes every firewall.
const USUAL: u16 = 443;

/// A host, and a port if one was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub host: String,
    pub port: Option<u16>,
}

impl Place {
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(USUAL)
    }
}

impl Place {
    /// With its port, whichever that is.
    pub fn with_port(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port()),
            false => format!("{}:{}", self.host, self.port()),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is no HOST or HOST:PORT");
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(refuse)?;
                (host, port.strip_prefix(':'))
            }
            // An address of IPv6 has several.
            None => match text.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') => (host, Some(port)),
                _ => (text, None),
            },
        };
        let port = port.map(str::parse).transpose().map_err(|_| refuse())?;
        match host.is_empty() || host.contains(char::is_whitespace) {
            true => Err(refuse()),
            false => Ok(Self {
                host: host.to_owned(),
                port,
            }),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        match self.port() {
            USUAL => Ok(()),
            port => write!(f, ":{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_host_and_perhaps_a_port() {
        let shown = |text: &str| text.parse::<Place>().map(|place| place.to_string());
        for text in [
            "relay.b.org",
            "relay.b.org:8443",
            "[fd00::1]:8443",
            "10.0.0.1",
        ] {
            assert_eq!(shown(text).unwrap(), text);
        }
        assert_eq!(shown("relay.b.org:443").unwrap(), "relay.b.org");
        assert_eq!(shown("fd00::1").unwrap(), "[fd00::1]");
        for text in ["", ":443", "a:b", "a b", "[fd00::1", "host:99999"] {
            assert!(shown(text).is_err(), "{text}");
        }
    }
}
