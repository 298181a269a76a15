//! `tls://host:port`: TCP whose bytes are encrypted and whose server is verified.
//!
//! The states of a connection and its bounds are in the crate's README.

mod address;
mod authorities;
mod certificate;
mod identity;
mod primitives;
mod proxy;
mod records;
mod session;
mod stream;
mod trust;

pub use authorities::{Authorities, Untrusted};
pub use certificate::{Fingerprint, certificates_in, certificates_pem, is_for_name};
pub use identity::{Identities, Identity};
pub use primitives::{CRYPTO_PROVIDER, crypto_provider};
pub use proxy::{Proxies, Proxy};
pub use trust::Trust;

use crate::bytes_link::link_over;
use crate::contract::*;
use crate::options::LinkOptions;
use crate::socket::next_connection;
use crate::tcp::resolve;
use address::{SCHEME, TlsAddress};
use proxy::Proxied;
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use session::Session;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use stream::{Expected, TlsBytes};

/// TLS 1.3 over TCP. Addresses are `tls://host:port`, and of a client
/// `tls://host:port?sha256=HEX` or `?ca=FILE`, which say whom it trusts there; `name=HOST` names
/// the host that the certificate is to be for, where that is not the one of the address.
#[derive(Debug, Default)]
pub struct Tls {
    options: LinkOptions,
    trust: Option<Trust>,
    identities: Option<Identities>,
    authorities: Option<Authorities>,
    proxies: Proxies,
}

impl Tls {
    /// TLS whose links have these options. It listens nowhere, and connects where the address
    /// says whom to trust.
    pub fn new(options: LinkOptions) -> Self {
        Self {
            options,
            trust: None,
            identities: None,
            authorities: None,
            proxies: Proxies::default(),
        }
    }

    /// The same, which trusts so where the address does not say.
    pub fn trusting(mut self, trust: Trust) -> Self {
        self.trust = Some(trust);
        self
    }

    /// The same, which connects through these proxies.
    pub fn through(mut self, proxies: Proxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// The same, which listens as the current one of `identities`.
    pub fn listening_as(mut self, identities: Identities) -> Self {
        self.identities = Some(identities);
        self
    }

    /// The same, which asks clients for a certificate. One that shows none is served, and so is one
    /// that shows another authority's: whether it counts is for [`Authorities::verify`].
    pub fn asking(mut self, authorities: Authorities) -> Self {
        self.authorities = Some(authorities);
        self
    }
}

impl Transport for Tls {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Listener>, NetError> {
        let parsed = TlsAddress::parse(address)?;
        let identities = self.identities.as_ref().ok_or_else(|| {
            NetError::Address(format!("listening at {address}: there is no certificate"))
        })?;
        let listener = mio::net::TcpListener::bind(resolve(address, parsed.authority)?)
            .map_err(|error| NetError::Address(format!("listening at {address}: {error}")))?;
        let bound = listener
            .local_addr()
            .map_err(|error| NetError::System(format!("listening at {address}: {error}")))?;
        Ok(Box::new(TlsListening {
            listener,
            address: format!("{SCHEME}://{bound}"),
            config: identities.config(self.authorities.as_ref())?,
            options: self.options.clone(),
        }))
    }

    fn check(&self, address: &str) -> Result<(), NetError> {
        let parsed = TlsAddress::parse(address)?;
        self.trust_at(&parsed)?.config(None)?;
        self.proxies.to(parsed.host(), parsed.port())?;
        server_name(&parsed).map(drop)
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        self.connect_as(address, None)
    }

    fn connect_as(
        &self,
        address: &str,
        certificate: Option<&[u8]>,
    ) -> Result<Box<dyn Link>, NetError> {
        let parsed = TlsAddress::parse(address)?;
        let identity = certificate.map(|text| Identity::from_pem(text, text));
        let identity = identity.transpose()?;
        let identity = identity.as_ref();
        let name = server_name(&parsed)?;
        let trust = self.trust_at(&parsed)?;
        let session = Session::client(trust.config(identity)?, name)
            .map_err(|error| NetError::System(format!("connecting to {address}: {error}")))?;
        // The proxy looks the name up.
        let proxy = self.proxies.to(parsed.host(), parsed.port())?;
        let first = match &proxy {
            Some(proxy) => resolve("HTTPS_PROXY", &proxy.authority)?,
            None => resolve(address, parsed.authority)?,
        };
        let stream = mio::net::TcpStream::connect(first)
            .map_err(|error| NetError::Refused(format!("connecting to {address}: {error}")))?;
        let stream = match &proxy {
            Some(proxy) => Proxied::through(stream, proxy, parsed.authority),
            None => Proxied::directly(stream),
        };
        let expected = Expected {
            trust,
            name: parsed.name().to_owned(),
        };
        let stream = TlsBytes::new(stream, session, Some(expected));
        Ok(link(stream, parsed.for_people(), &self.options))
    }
}

impl Tls {
    fn trust_at(&self, address: &TlsAddress<'_>) -> Result<Trust, NetError> {
        let trust = address.trust.as_ref().or(self.trust.as_ref());
        trust.cloned().ok_or_else(|| {
            let address = address.for_people();
            NetError::Address(format!(
                "{address}: nothing says which certificate to trust there. The server's group file \
                 does; or name the file of the authority that signed it (--tls-ca, THALWEG_TLS_CA, \
                 {address}?ca=FILE), or its SHA-256 ({address}?sha256=HEX)"
            ))
        })
    }
}

fn server_name(address: &TlsAddress<'_>) -> Result<ServerName<'static>, NetError> {
    let name = address.name();
    ServerName::try_from(name.to_owned()).map_err(|_| {
        NetError::Address(format!(
            "{}: {name:?} is no name of a host",
            address.for_people()
        ))
    })
}

fn link(
    stream: TlsBytes<Proxied<mio::net::TcpStream>>,
    address: String,
    options: &LinkOptions,
) -> Box<dyn Link> {
    let peer = Peer {
        address,
        ..Peer::default()
    };
    link_over(stream, peer, options)
}

struct TlsListening {
    listener: mio::net::TcpListener,
    address: String,
    config: Arc<ServerConfig>,
    options: LinkOptions,
}

impl Listener for TlsListening {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        let failed = |error: &dyn std::fmt::Display| {
            NetError::System(format!("accepting at {}: {error}", self.address))
        };
        let accepted = next_connection(|| self.listener.accept()).map_err(|e| failed(&e))?;
        let Some((stream, from)) = accepted else {
            return Ok(None);
        };
        let session = Session::server(self.config.clone()).map_err(|e| failed(&e))?;
        let stream = TlsBytes::new(Proxied::directly(stream), session, None);
        let address = format!("{SCHEME}://{from}");
        Ok(Some(link(stream, address, &self.options)))
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Source(&mut self.listener)
    }

    fn attach(&mut self, _notify: Notify) {}

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.listener.as_raw_fd())
    }
}
