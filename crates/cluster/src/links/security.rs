//! Where servers may be reached, and which certificates count.

use super::hello::{Goodbye, Reason};
use super::interface::Security;
use super::settings::{PeerId, certificate_name};
use crate::faults::{Fault, planted};
use bytes::Bytes;
use net::{
    Authorities, Carries, Identities, Identity, Link, LinkOptions, Listener, NetError, Tcp, Tls,
    Transport, Trust, is_for_name,
};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::SystemTime;

/// Makes connections that are protected as they are to be.
pub(super) struct Protected {
    transport: Box<dyn Transport>,
    certificates: Option<Certificates>,
}

struct Certificates {
    authorities: Authorities,
    /// What those are shown that dial this server.
    identities: Identities,
    /// Chain and key of this server, for those that it dials.
    shown: Vec<u8>,
}

impl Certificates {
    fn verify(&self, chain: &[Bytes]) -> Result<(), String> {
        if chain.is_empty() {
            return Err(
                "it shows no certificate, and peers have one of the cluster's authority".to_owned(),
            );
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let verified = self.authorities.verify(chain, now.unwrap_or_default());
        verified.map_err(|untrusted| format!("its certificate: {untrusted}"))
    }
}

impl Certificates {
    /// Refuses what peers would.
    fn check(&self, identity: &Identity, own: PeerId) -> Result<(), NetError> {
        let shown = identity.certificates();
        let verified = self.verify(&shown).and_then(|()| verify_name(&shown, own));
        verified.map_err(|why| {
            NetError::Address(format!("this server would not count as a peer: {why}"))
        })
    }
}

/// Chain and key as a connection takes them.
fn shown(chain: &[u8], key: &[u8]) -> Vec<u8> {
    [chain, &b"\n"[..], key].concat()
}

/// Whether a certificate is this server's.
fn verify_name(chain: &[Bytes], of: PeerId) -> Result<(), String> {
    let name = certificate_name(of);
    let is_of_it = chain.first().is_some_and(|own| is_for_name(own, &name));
    match is_of_it || planted(Fault::NameNotChecked) {
        true => Ok(()),
        false => Err(format!(
            "its certificate is not that of {of}: it does not have the name {name}"
        )),
    }
}

impl Protected {
    /// Another certificate of this server, for connections from now on.
    pub(super) fn renew(&mut self, chain: &[u8], key: &[u8], own: PeerId) -> Result<(), NetError> {
        let Some(certificates) = &mut self.certificates else {
            return Ok(());
        };
        let identity = Identity::from_pem(chain, key)?;
        certificates.check(&identity, own)?;
        certificates.shown = shown(chain, key);
        certificates.identities.replace(identity);
        Ok(())
    }

    /// For this server.
    pub(super) fn new(security: &Security, own: PeerId) -> Result<Self, NetError> {
        let options = LinkOptions {
            carries: Carries::Bytes,
            ..LinkOptions::default()
        };
        let Security::Tls {
            authority,
            chain,
            key,
        } = security
        else {
            return Ok(Self {
                transport: Box::new(Tcp::new(options)),
                certificates: None,
            });
        };
        let identity = Identity::from_pem(chain, key)?;
        let certificates = Certificates {
            authorities: Authorities::from_pem(authority)
                .map_err(|error| NetError::Address(format!("the cluster's authority: {error}")))?,
            identities: Identities::new(identity.clone()),
            shown: shown(chain, key),
        };
        certificates.check(&identity, own)?;
        // The handshake takes any certificate whose key signs it, at both ends. Whether it counts is asked at
        // both ends before a byte goes through, by `refuse`: so each can tell the other in words.
        let tls = Tls::new(options)
            .trusting(Trust::ByOtherProof)
            .listening_as(certificates.identities.clone())
            .asking(certificates.authorities.clone());
        Ok(Self {
            transport: Box::new(tls),
            certificates: Some(certificates),
        })
    }

    /// Listens at an address of this security. Looks a name up, which may take its time.
    pub(super) fn listen(&self, address: &str) -> Result<Box<dyn Listener>, NetError> {
        let found = resolve(self.host_and_port(address)?).map_err(NetError::Address)?;
        self.transport.listen(&self.address_of(found)?)
    }

    /// Begins a connection. Never waits.
    pub(super) fn connect(&self, to: SocketAddr) -> Result<Box<dyn Link>, NetError> {
        let shown = self.certificates.as_ref().map(|one| &one.shown[..]);
        self.transport.connect_as(&self.address_of(to)?, shown)
    }

    /// Host and port of an address of this security.
    pub(super) fn host_and_port<'a>(&self, address: &'a str) -> Result<&'a str, NetError> {
        let refuse = |why: String| Err(NetError::Address(format!("{address}: {why}")));
        let scheme = self.transport.scheme();
        let Some((found, rest)) = address.split_once("://") else {
            return refuse(format!("an address of a peer is {scheme}://HOST:PORT here"));
        };
        if found != scheme {
            return refuse(match &self.certificates {
                Some(_) => "peers are reached by TLS, so it is to begin with tls://".to_owned(),
                None => "there is no certificate, so it is to begin with tcp://".to_owned(),
            });
        }
        match rest.rsplit_once(':') {
            Some((host, port))
                if !host.is_empty()
                    && !rest.contains(['?', '/'])
                    && port.parse::<u16>().is_ok() =>
            {
                Ok(rest)
            }
            _ => refuse(format!(
                "it is to be {scheme}://HOST:PORT, and nothing else"
            )),
        }
    }

    fn address_of(&self, resolved: SocketAddr) -> Result<String, NetError> {
        if self.certificates.is_none() && !resolved.ip().is_loopback() {
            return Err(NetError::Address(format!(
                "{resolved} can be reached by other hosts: peers are linked without TLS on loopback addresses \
                 alone, so give this cluster an authority and its servers certificates"
            )));
        }
        Ok(format!("{}://{resolved}", self.transport.scheme()))
    }

    /// Why the other end of a connection does not count, by what it has shown.
    pub(super) fn refuse(&self, shown: &[Bytes]) -> Option<Goodbye> {
        let verified = self.certificates.as_ref()?.verify(shown);
        verified
            .err()
            .map(|why| Goodbye::of(Reason::Certificate, why))
    }

    /// Why the other end of a connection is not the server that it says it is.
    pub(super) fn refuse_as(&self, shown: &[Bytes], peer: PeerId) -> Option<Goodbye> {
        self.certificates.as_ref()?;
        let verified = verify_name(shown, peer);
        verified
            .err()
            .map(|why| Goodbye::of(Reason::Certificate, why))
    }
}

/// The address of a host and a port; IPv4 before IPv6. Asks the system, which may take its time.
pub(super) fn resolve(host_and_port: &str) -> Result<SocketAddr, String> {
    let found = host_and_port
        .to_socket_addrs()
        .map_err(|error| format!("looking up {host_and_port}: {error}"))?;
    found
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| format!("looking up {host_and_port}: the name has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tls_only_loopback_addresses_are_listened_at_and_dialled() {
        let plain = Protected::new(&Security::Plain, PeerId(1)).unwrap();
        for address in ["tcp://0.0.0.0:0", "tcp://[::]:0"] {
            let error = plain.listen(address).map(drop).unwrap_err().to_string();
            assert!(error.contains("loopback addresses"), "{error}");
        }
        let far = "192.0.2.1:9".parse().unwrap();
        let error = plain.connect(far).map(drop).unwrap_err().to_string();
        assert!(error.contains("loopback addresses"), "{error}");
        let listener = plain.listen("tcp://localhost:0").unwrap();
        let (_, port) = listener
            .address()
            .rsplit_once(':')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        assert_ne!(port, "0");
    }

    #[test]
    fn an_address_that_is_none_of_this_security_is_refused_with_the_reason() {
        let plain = Protected::new(&Security::Plain, PeerId(1)).unwrap();
        for (address, words) in [
            ("127.0.0.1:1", "tcp://HOST:PORT"),
            ("tls://127.0.0.1:1", "no certificate"),
            ("tcp://127.0.0.1", "HOST:PORT"),
            ("tcp://:1", "HOST:PORT"),
            ("tcp://a:1?x=y", "HOST:PORT"),
            ("tcp://a:70000", "HOST:PORT"),
        ] {
            let error = plain.host_and_port(address).unwrap_err().to_string();
            assert!(error.contains(words), "{address}: {error}");
        }
        assert_eq!(plain.host_and_port("tcp://[::1]:7").unwrap(), "[::1]:7");
    }
}
