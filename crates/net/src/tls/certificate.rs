//! Certificates as they are: in DER, in PEM, and their hashes.

use super::primitives::sha256;
use crate::contract::NetError;
use base64::Engine;
use bytes::Bytes;
use rustls::RootCertStore;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use std::fmt;
use std::sync::Arc;

/// The SHA-256 of a certificate, in DER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint that 64 hexadecimal digits say.
    ///
    /// # Errors
    /// [`NetError::Address`] for any other text.
    pub fn parse(text: &str) -> Result<Self, NetError> {
        let mut bytes = [0; 32];
        let is_hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex {
            return Err(NetError::Address(format!(
                "{text:?} is no SHA-256 of a certificate: it has 64 hexadecimal digits"
            )));
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).expect("digits are ASCII");
            *byte = u8::from_str_radix(digits, 16).expect("checked above");
        }
        Ok(Self(bytes))
    }

    /// Fingerprints with commas between them.
    pub(super) fn parse_list(text: &str) -> Result<Vec<Self>, NetError> {
        text.split(',').map(Self::parse).collect()
    }

    /// That of a certificate in DER.
    pub fn of_der(der: &[u8]) -> Self {
        Self::of(&CertificateDer::from(der))
    }

    /// That of a certificate.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        let hash = sha256(certificate);
        Self(hash.try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Whether a certificate in DER is for this name of a host. Whether it counts is another question.
pub fn is_for_name(der: &[u8], name: &str) -> bool {
    let der = CertificateDer::from(der);
    let (Ok(certificate), Ok(name)) = (
        ParsedCertificate::try_from(&der),
        ServerName::try_from(name),
    ) else {
        return false;
    };
    verify_server_name(&certificate, &name).is_ok()
}

/// The certificates of authorities in a text in PEM.
pub(super) fn authorities_in(text: &[u8]) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots
            .add(certificate)
            .map_err(|error| format!("a certificate in it: {error}"))?;
    }
    match roots.is_empty() {
        true => Err("there is no certificate in it".to_owned()),
        false => Ok(Arc::new(roots)),
    }
}

pub(super) fn chain_of(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, NetError> {
    let refuse = |why: String| NetError::Address(format!("the certificate: {why}"));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|error| refuse(error.to_string()))?;
    match chain.is_empty() {
        true => Err(refuse(
            "there is none in PEM (-----BEGIN CERTIFICATE-----)".to_owned(),
        )),
        false => Ok(chain),
    }
}

/// The certificates of a text in PEM, in DER, whatever else is in it.
///
/// # Errors
/// [`NetError::Address`] if there is none, or it is damaged.
pub fn certificates_in(text: &[u8]) -> Result<Vec<Bytes>, NetError> {
    let chain = chain_of(text)?;
    Ok(chain
        .iter()
        .map(|one| Bytes::copy_from_slice(one))
        .collect())
}

/// Certificates in DER as a text in PEM.
pub fn certificates_pem(chain: &[Bytes]) -> String {
    let mut text = String::new();
    for one in chain {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = base64::engine::general_purpose::STANDARD.encode(one);
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}
