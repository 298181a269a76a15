//! Certificates that authorities of ours sign: how long they are valid, and what they say.

use crate::error::ServerError;
use net::{Identity, NetError};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A clock may be behind the one of this host.
const BEFORE: Duration = DAY;
/// An authority is valid as long as its directory.
const AUTHORITY_LIFE: Duration = DAY.saturating_mul(20 * 365);
/// What an authority signs is valid so long, and is made anew at two thirds of it.
const LIFE: Duration = DAY.saturating_mul(30);
pub(crate) const RENEWED_AFTER: Duration = DAY.saturating_mul(20);

/// The certificate of an authority that signs for others, and for no further authority.
pub(crate) fn authority(name: &str, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    live(&mut params, now, AUTHORITY_LIFE);
    params
}

/// Whom a certificate is for.
pub(crate) struct Subject<'a> {
    pub name: DistinguishedName,
    /// Host names and addresses.
    pub hosts: &'a [String],
    pub usages: Vec<ExtendedKeyUsagePurpose>,
}

/// A certificate with its authority's behind it, and its key. In PEM.
pub(crate) struct Signed {
    pub chain: String,
    pub key: String,
}

impl Signed {
    pub(crate) fn identity(&self) -> Result<Identity, ServerError> {
        Identity::from_pem(self.chain.as_bytes(), self.key.as_bytes()).map_err(not_made)
    }
}

/// Signs for `subject`, with a key made for it. `authority` is the issuer's certificate, in PEM.
pub(crate) fn sign(
    issuer: &Issuer<'_, KeyPair>,
    authority: &str,
    subject: Subject<'_>,
    now: SystemTime,
) -> Result<Signed, ServerError> {
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(subject.hosts.to_vec()).map_err(failed)?;
    params.distinguished_name = subject.name;
    params.extended_key_usages = subject.usages;
    params.use_authority_key_identifier_extension = true;
    live(&mut params, now, LIFE);
    let certificate = params.signed_by(&key, issuer).map_err(failed)?;
    Ok(Signed {
        chain: format!("{}{authority}", certificate.pem()),
        key: key.serialize_pem(),
    })
}

fn live(params: &mut CertificateParams, now: SystemTime, life: Duration) {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since.saturating_sub(BEFORE);
    params.not_after = epoch + since + life;
}

pub(crate) fn failed(error: rcgen::Error) -> ServerError {
    not_made(NetError::System(error.to_string()))
}

pub(crate) fn not_made(error: NetError) -> ServerError {
    ServerError::System(std::io::Error::other(format!(
        "making a certificate: {error}"
    )))
}
