//! Certificates of a run: an authority that signs once, and what it has signed.

use crate::failure::{About, Code, Failure};
use net::Fingerprint;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The name of a server that has none of its own.
pub const NAME: &str = "workload.localhost";
/// Longer than any run.
const LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// A clock may have been put back.
const BEFORE: Duration = Duration::from_secs(24 * 3600);

/// The files of a certificate for [`NAME`], `localhost` and `127.0.0.1`.
pub struct Certificate {
    /// Of the authority.
    pub authority: PathBuf,
    /// The certificate, and the authority's.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Chain and key.
    pub both: PathBuf,
    /// By which the authority is known.
    pub fingerprint: Fingerprint,
}

/// A file that only this user can read.
pub fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    let name = path.display().to_string();
    let mut options = std::fs::OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    let mut file = file.about(&name)?;
    file.write_all(text.as_bytes()).about(&name)
}

impl Certificate {
    /// Makes one, in this folder.
    pub fn make(folder: &Path) -> Result<Self, Failure> {
        let made = signed().map_err(|error| Failure::new(Code::Failure, "a certificate", error))?;
        let path = |name: &str| folder.join(name);
        let certificate = Self {
            authority: path("authority.pem"),
            chain: path("certificate.pem"),
            key: path("key.pem"),
            both: path("both.pem"),
            fingerprint: made.fingerprint,
        };
        let chain = format!("{}{}", made.certificate, made.authority);
        write_private(&certificate.authority, &made.authority)?;
        write_private(&certificate.chain, &chain)?;
        write_private(&certificate.key, &made.key)?;
        write_private(&certificate.both, &format!("{chain}{}", made.key))?;
        Ok(certificate)
    }
}

struct Signed {
    authority: String,
    certificate: String,
    key: String,
    fingerprint: Fingerprint,
}

fn signed() -> Result<Signed, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("thalweg workload");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    live(&mut params);
    let pair = KeyPair::generate()?;
    let authority = params.self_signed(&pair)?;
    let issuer = Issuer::new(params, pair);
    let names = [NAME, "localhost", "127.0.0.1"].map(str::to_owned);
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = named(NAME);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    live(&mut params);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Signed {
        fingerprint: Fingerprint::of_der(authority.der()),
        authority: authority.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn live(params: &mut CertificateParams) {
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since.saturating_sub(BEFORE);
    params.not_after = epoch + since + LIFE;
}
