//! What an address of TLS says: where, and whom to trust there.

use super::certificate::Fingerprint;
use super::trust::Trust;
use crate::address;
use crate::contract::NetError;
use std::path::PathBuf;

pub(super) const SCHEME: &str = "tls";

/// An address, taken apart: `tls://HOST:PORT?sha256=HEX,…&ca=FILE&name=HOST`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TlsAddress<'a> {
    /// Host and port.
    pub authority: &'a str,
    /// Whom the address itself says to trust.
    pub trust: Option<Trust>,
    /// The name that the certificate is to have, if it is not the host's.
    name: Option<&'a str>,
}

impl<'a> TlsAddress<'a> {
    /// Takes `address` apart.
    pub(super) fn parse(address: &'a str) -> Result<Self, NetError> {
        let rest = address::rest(SCHEME, address)?;
        let (authority, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
        let refuse = |why: &str| Err(NetError::Address(format!("{address} {why}")));
        if host.is_empty() || port.parse::<u16>().is_err() {
            return refuse("is no address of TLS: it is a host and a port, as in tls://HOST:7000");
        }
        let mut parsed = Self {
            authority,
            trust: None,
            name: None,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let trust = match option.split_once('=') {
                Some(("sha256", list)) => Trust::Certificates(Fingerprint::parse_list(list)?),
                Some(("ca", path)) if !path.is_empty() => Trust::Authorities(PathBuf::from(path)),
                Some(("name", name)) if !name.is_empty() => {
                    parsed.name = Some(name);
                    continue;
                }
                _ => {
                    return refuse(
                        "has an option that is none of sha256=HEX, ca=FILE and name=HOST",
                    );
                }
            };
            if parsed.trust.replace(trust).is_some() {
                return refuse("says twice which certificate to trust");
            }
        }
        Ok(parsed)
    }

    /// The name that the server's certificate is to have.
    pub(super) fn name(&self) -> &'a str {
        self.name.unwrap_or(self.host())
    }

    /// The host: a name, or an address without its brackets.
    pub(super) fn host(&self) -> &'a str {
        let host = self.authority.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// The port.
    pub(super) fn port(&self) -> &'a str {
        self.authority.rsplit_once(':').map_or("", |(_, port)| port)
    }

    /// The address for people: without what it says of trust.
    pub(super) fn for_people(&self) -> String {
        format!("{SCHEME}://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_and_whom_to_trust() {
        let plain = TlsAddress::parse("tls://node7:443").unwrap();
        assert_eq!((plain.authority, plain.name()), ("node7:443", "node7"));
        assert_eq!(plain.trust, None);
        let text = format!("tls://[::1]:443?sha256={}&name=node7", "ab".repeat(32));
        let pinned = TlsAddress::parse(&text).unwrap();
        assert_eq!((pinned.authority, pinned.name()), ("[::1]:443", "node7"));
        assert_eq!(pinned.for_people(), "tls://[::1]:443");
        let hash = Fingerprint([0xab; 32]);
        assert_eq!(pinned.trust, Some(Trust::Certificates(vec![hash])));
        let path = TlsAddress::parse("tls://[::1]:443?ca=/etc/site.pem").unwrap();
        assert_eq!(path.name(), "::1");
        assert_eq!(path.trust, Some(Trust::Authorities("/etc/site.pem".into())));
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (address, reason) in [
            ("tls://node7", "a host and a port"),
            ("tls://:443", "a host and a port"),
            ("tls://node7:x", "a host and a port"),
            ("tls://node7:1?trust=all", "none of sha256=HEX"),
            ("tls://node7:1?sha256=12", "64 hexadecimal digits"),
            ("tls://node7:1?ca=", "none of sha256=HEX"),
            ("tls://node7:1?ca=a&ca=b", "says twice"),
            ("tcp://node7:1", "no address of tls://"),
        ] {
            let error = TlsAddress::parse(address).unwrap_err().to_string();
            assert!(error.contains(reason), "{address}: {error}");
        }
    }
}
