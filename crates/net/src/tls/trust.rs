//! Which certificate of a server a client takes, and why not another one.

use super::certificate::{Fingerprint, authorities_in};
use super::identity::Identity;
use super::primitives::crypto_provider as provider;
use super::session::ALPN;
use crate::contract::NetError;
use rustls::SignatureScheme;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which server a client takes for the right one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The one whose certificate, or an authority of its chain, has one of these hashes. The hash
    /// names the server, so that the name in the certificate does not matter.
    Certificates(Vec<Fingerprint>),
    /// One with a certificate for the host of the address, of an authority in this file (PEM).
    Authorities(PathBuf),
    /// Any whose key signs the handshake, for who makes it prove itself otherwise before anything is said that is
    /// for it alone, as by a code that both have. No address and no setting says so.
    ByOtherProof,
}

impl Trust {
    /// What a connection needs to verify its server, and to show itself where the server asks.
    pub(super) fn config(&self, shown: Option<&Identity>) -> Result<Arc<ClientConfig>, NetError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| NetError::System(format!("TLS: {error}")))?;
        let verifier: Arc<dyn ServerCertVerifier> = match self {
            Self::Certificates(pins) => Arc::new(Pinned::By(pins.clone())),
            Self::ByOtherProof => Arc::new(Pinned::Otherwise),
            Self::Authorities(path) => {
                WebPkiServerVerifier::builder_with_provider(read_authorities(path)?, provider())
                    .build()
                    .map_err(|error| NetError::System(format!("{}: {error}", path.display())))?
            }
        };
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match shown {
            Some(identity) => builder.with_client_cert_resolver(identity.shown()),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A connection lasts, and a full handshake costs a millisecond.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// What is wrong, in words of who has to set it right.
    pub(super) fn explain(&self, error: &CertificateError, expected: &str) -> String {
        match error {
            CertificateError::ExpiredContext { not_after, .. } => format!(
                "its certificate expired {}",
                ago(UnixTime::now()
                    .as_secs()
                    .saturating_sub(not_after.as_secs()))
            ),
            CertificateError::Expired => "its certificate has expired".to_owned(),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet: is the clock of this host right?".to_owned()
            }
            CertificateError::NotValidForName => {
                format!("its certificate is not for {expected}")
            }
            CertificateError::NotValidForNameContext { presented, .. } => format!(
                "its certificate is not for {expected}, but for {}; `?name=HOST` behind the \
                 address names another one",
                presented.join(", ")
            ),
            CertificateError::UnknownIssuer => match self {
                Self::Certificates(_) | Self::ByOtherProof => {
                    "its certificate is not the one that is expected (by its SHA-256): it is \
                     another server, or one whose group file has changed"
                        .to_owned()
                }
                Self::Authorities(path) => {
                    format!("its certificate is of no authority in {}", path.display())
                }
            },
            other => format!("its certificate is not accepted: {other}"),
        }
    }
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..=7_199 => format!("{} minutes ago", seconds / 60),
        7_200..=172_799 => format!("{} hours ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// The certificates in a file of authorities.
fn read_authorities(path: &Path) -> Result<Arc<RootCertStore>, NetError> {
    let refuse = |why: String| NetError::Address(format!("{}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    authorities_in(&text).map_err(refuse)
}

/// Takes a certificate that is known by its hash, or one that an authority of its chain signed
/// which is.
#[derive(Debug)]
enum Pinned {
    /// By these hashes.
    By(Vec<Fingerprint>),
    /// Nobody by the handshake: see [`Trust::ByOtherProof`].
    Otherwise,
}

impl Pinned {
    fn has(&self, certificate: &CertificateDer<'_>) -> bool {
        match self {
            Self::By(pins) => pins.contains(&Fingerprint::of(certificate)),
            Self::Otherwise => true,
        }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.has(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        let mut roots = RootCertStore::empty();
        for authority in intermediates.iter().filter(|one| self.has(one)) {
            roots.add(authority.clone().into_owned())?;
        }
        if roots.is_empty() {
            return Err(CertificateError::UnknownIssuer.into());
        }
        let algorithms = provider().signature_verification_algorithms;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &roots,
            intermediates,
            now,
            algorithms.all,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
