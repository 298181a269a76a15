//! Places that come from outside, and which of them an operator lets be dialled.

use crate::faults::{Fault, planted};
use access::Network;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The longest name of a host.
const HOST_BYTES_MAX: usize = 253;

/// A host and a port, as it came: nothing was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A name, or an address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{} is no HOST:PORT", quoted(text));
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(refuse)?;
        let host = host_of(host).ok_or_else(refuse)?;
        match port.parse() {
            Ok(port) if port > 0 => Ok(Self { host, port }),
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// A name or an address, without the brackets of IPv6.
fn host_of(text: &str) -> Option<String> {
    let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match text.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(inner) => {
            let address: std::net::Ipv6Addr = inner?.parse().ok()?;
            Some(address.to_string())
        }
        None if text.is_empty() || text.len() > HOST_BYTES_MAX => None,
        None => text
            .bytes()
            .all(is_right)
            .then(|| text.to_ascii_lowercase()),
    }
}

/// A text of strangers, for a message: bounded, and without control characters.
pub fn quoted(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    format!("{short:?}")
}

/// Where a connection may go: `HOST:PORT`, with a network in place of the host, and `*` or a range in place of the
/// port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    hosts: Hosts,
    ports: RangeInclusive<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    /// Only this name, as it is written. What it leads to is looked up when it is dialled.
    Name(String),
    /// Addresses; a name never is one.
    Network(Network),
}

impl Allowed {
    /// Whether a place is one of these.
    pub fn has(&self, place: &Place) -> bool {
        let is_host = match (&self.hosts, place.host.parse::<IpAddr>()) {
            (Hosts::Name(name), Err(_)) => *name == place.host,
            (Hosts::Network(network), Ok(address)) => network.has(address),
            (Hosts::Name(_), Ok(_)) | (Hosts::Network(_), Err(_)) => false,
        };
        (is_host && self.ports.contains(&place.port)) || planted(Fault::AnyPlace)
    }
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "{} is no HOST:PORT, as 10.1.1.100:5672, 10.1.0.0/16:5672, relay.a.org:443 or host:5100-5200",
                quoted(text)
            )
        };
        let (hosts, ports) = text.rsplit_once(':').ok_or_else(refuse)?;
        let inner = hosts
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let hosts = match inner.unwrap_or(hosts).parse() {
            Ok(network) => Hosts::Network(network),
            Err(_) => Hosts::Name(host_of(hosts).ok_or_else(refuse)?),
        };
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let ports = match ports.split_once('-') {
            _ if ports == "*" => 1..=u16::MAX,
            Some((first, last)) => {
                port(first).ok_or_else(refuse)?..=port(last).ok_or_else(refuse)?
            }
            None => {
                let only = port(ports).ok_or_else(refuse)?;
                only..=only
            }
        };
        match ports.is_empty() {
            true => Err(refuse()),
            false => Ok(Self { hosts, ports }),
        }
    }
}

/// The place, if one of these has it.
///
/// # Errors
/// Says which place has to be allowed.
pub fn check(place: Place, allowed: &[Allowed]) -> Result<Place, String> {
    match allowed.iter().any(|one| one.has(&place)) {
        true => Ok(place),
        false => Err(format!(
            "{place} is no place that may be dialled from here; its operator can allow it (--allow {place})"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;

    fn place(text: &str) -> Place {
        text.parse().unwrap()
    }

    fn is_allowed(allowed: &str, asked: &str) -> bool {
        check(place(asked), &[allowed.parse().unwrap()]).is_ok()
    }

    #[test]
    fn only_what_is_named_may_be_dialled() {
        for (allowed, asked) in [
            ("10.1.1.100:5672", "10.1.1.100:5672"),
            ("10.1.0.0/16:5672", "10.1.255.1:5672"),
            ("Relay.A.org:443", "relay.a.org:443"),
            ("relay.a.org:443", "RELAY.a.org:443"),
            ("10.1.1.1:5100-5200", "10.1.1.1:5200"),
            ("10.1.1.1:*", "10.1.1.1:1"),
            ("[fd00::/8]:5672", "[fd12::1]:5672"),
            ("[fd00::1]:5672", "[fd00:0::1]:5672"),
        ] {
            assert!(is_allowed(allowed, asked), "{allowed} {asked}");
        }
        let others = [
            ("10.1.1.100:5672", "10.1.1.100:5673"),
            ("10.1.1.100:5672", "10.1.1.10:5672"),
            ("10.1.0.0/16:5672", "10.2.0.1:5672"),
            ("localhost:80", "127.0.0.1:80"),
            ("127.0.0.0/8:80", "localhost:80"),
            ("relay.a.org:443", "relay.a.org.evil.org:443"),
            ("relay.a.org:443", "xrelay.a.org:443"),
            ("10.1.1.1:5100-5200", "10.1.1.1:5099"),
        ];
        for (allowed, asked) in others {
            assert!(!is_allowed(allowed, asked), "{allowed} {asked}");
        }
        assert!(check(place("10.1.1.1:1"), &[]).is_err());
        let (allowed, asked) = others[0];
        assert!(faults::with(Fault::AnyPlace, || is_allowed(allowed, asked)));
    }

    #[test]
    fn what_is_no_place_is_refused() {
        let long = format!("{}:1", "a".repeat(HOST_BYTES_MAX + 1));
        let bad = [
            "",
            ":",
            ":80",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "a b:1",
            "a@b:1",
            "a/b:1",
            "::1:80",
            "[::1:80",
            "[host]:80",
            "h\n:1",
            "unix:/tmp/x:1",
            &long,
        ];
        for text in bad {
            let refused = text.parse::<Place>().unwrap_err();
            assert!(refused.len() < 500 && !refused.contains('\n'), "{refused}");
        }
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.0/33:1",
            "a:2-1",
            "a:0",
            "a:1-",
            "*:1",
        ] {
            assert!(text.parse::<Allowed>().is_err(), "{text}");
        }
        assert_eq!(place("[FD00::1]:5").to_string(), "[fd00::1]:5");
    }
}
