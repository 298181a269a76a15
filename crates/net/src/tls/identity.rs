//! Who one side of TLS is: a chain of certificates and the key of the first.

use super::authorities::Asks;
use super::authorities::Authorities;
use super::certificate::{Fingerprint, chain_of};
use super::primitives::crypto_provider as provider;
use super::session::ALPN;
use crate::contract::NetError;
use bytes::Bytes;
use rustls::ServerConfig;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::fmt;
use std::sync::{Arc, RwLock};

/// A chain of certificates, and the private key of the first.
#[derive(Debug, Clone)]
pub struct Identity {
    key: Arc<CertifiedKey>,
}

impl Identity {
    /// That of a chain, its own certificate first, and a key; both in PEM, and in one text perhaps.
    ///
    /// # Errors
    /// [`NetError::Address`] that says what is wrong with which of them.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, NetError> {
        let refuse = |what: &str, why: String| NetError::Address(format!("{what}: {why}"));
        let chain = chain_of(chain)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| refuse("the private key", error.to_string()))?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => refuse(
                "the private key",
                "it is not that of the certificate".to_owned(),
            ),
            other => refuse("certificate and key", other.to_string()),
        })?;
        Ok(Self { key: Arc::new(key) })
    }

    /// The hashes of the certificates, its own first.
    pub fn fingerprints(&self) -> Vec<Fingerprint> {
        self.key.cert.iter().map(Fingerprint::of).collect()
    }

    /// The certificates in DER, its own first.
    pub fn certificates(&self) -> Vec<Bytes> {
        let chain = self.key.cert.iter();
        chain.map(|one| Bytes::copy_from_slice(one)).collect()
    }

    /// What shows it to a server that asks.
    pub(super) fn shown(&self) -> Arc<dyn ResolvesClientCert> {
        Arc::new(SingleCertAndKey::from(self.key.clone()))
    }
}

/// The identity that a server has now, shared with its listeners: a new one counts for
/// connections that come from then on.
#[derive(Clone)]
pub struct Identities {
    /// Written by who renews a certificate, read once a handshake.
    current: Arc<RwLock<Identity>>,
}

impl Identities {
    /// Begins with `identity`.
    pub fn new(identity: Identity) -> Self {
        Self {
            current: Arc::new(RwLock::new(identity)),
        }
    }

    /// Takes `identity` from now on.
    pub fn replace(&self, identity: Identity) {
        *self.current.write().expect("no holder panics here") = identity;
    }

    /// The one that counts now.
    pub fn current(&self) -> Identity {
        self.current.read().expect("no holder panics here").clone()
    }

    /// What connections that are accepted need; with authorities, clients are asked for a certificate,
    /// and may show none.
    pub(super) fn config(
        &self,
        authorities: Option<&Authorities>,
    ) -> Result<Arc<ServerConfig>, NetError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| NetError::System(format!("TLS: {error}")))?;
        let builder = match authorities {
            Some(authorities) => builder.with_client_cert_verifier(Arc::new(Asks::of(authorities))),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A connection lasts; a session to come back to would be state of everybody who came.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Identities {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current().key)
    }
}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identities").finish_non_exhaustive()
    }
}
