//! Certificates of clients: who is asked for one, and whether it counts.
//!
//! A handshake takes any certificate whose key signs it, for who is refused in the handshake gets
//! no more than the number of an alert. Whether an authority of ours has signed it is asked when the
//! client says that it is known by it, and answered in words; until then it counts for nothing.

use super::certificate::authorities_in;
use super::primitives::crypto_provider as provider;
use crate::contract::NetError;
use bytes::Bytes;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The authorities whose certificates of clients count.
#[derive(Clone)]
pub struct Authorities {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").finish_non_exhaustive()
    }
}

/// Why a certificate does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Untrusted {
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYet,
    /// None of the authorities has signed it.
    Stranger,
    /// It is not as it has to be; how.
    Wrong(String),
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("it has expired"),
            Self::NotYet => f.write_str("it is not valid yet: is the clock of this host right?"),
            Self::Stranger => f.write_str("no authority that is known here has signed it"),
            Self::Wrong(why) => write!(f, "it does not count here: {why}"),
        }
    }
}

impl Authorities {
    /// Those of a text in PEM.
    ///
    /// # Errors
    /// [`NetError::Address`] that says what is wrong with it.
    pub fn from_pem(text: &[u8]) -> Result<Self, NetError> {
        let roots = authorities_in(text).map_err(NetError::Address)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .allow_unauthenticated()
            .build();
        let verifier = verifier.map_err(|error| NetError::Address(error.to_string()))?;
        Ok(Self { verifier })
    }

    /// Whether a chain in DER, as a client has shown it, is signed by one of them, for clients, and
    /// good at this time: since 1970.
    ///
    /// # Errors
    /// Why it is not.
    pub fn verify(&self, chain: &[Bytes], since_1970: Duration) -> Result<(), Untrusted> {
        let chain: Vec<CertificateDer<'_>> = chain
            .iter()
            .map(|one| CertificateDer::from(&one[..]))
            .collect();
        let Some((own, others)) = chain.split_first() else {
            return Err(Untrusted::Wrong("there is none".to_owned()));
        };
        let now = UnixTime::since_unix_epoch(since_1970);
        let verified = self.verifier.verify_client_cert(own, others, now);
        verified.map(drop).map_err(|error| match error {
            Error::InvalidCertificate(error) => match error {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    Untrusted::Expired
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    Untrusted::NotYet
                }
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    Untrusted::Stranger
                }
                other => Untrusted::Wrong(other.to_string()),
            },
            other => Untrusted::Wrong(other.to_string()),
        })
    }
}

/// What asks clients for a certificate in the handshake, and takes any whose key they have.
#[derive(Debug)]
pub(super) struct Asks {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Asks {
    pub(super) fn of(authorities: &Authorities) -> Self {
        Self {
            verifier: authorities.verifier.clone(),
        }
    }
}

impl ClientCertVerifier for Asks {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // See the module: it is only what the client says of itself.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
