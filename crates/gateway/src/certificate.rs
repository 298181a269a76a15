//! Who the gateway is over TLS: a certificate of its own authority, or the site's, read again when its files
//! change.

use crate::error::GatewayError;
use crate::files;
use net::crypto_provider as provider;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use ring::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const FOLDER: &str = "tls";
const AUTHORITY: &str = "authority.pem";
const KEY: &str = "authority.key";
const PEM_BYTES_MAX: u64 = 1 << 20;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// A clock may be behind the gateway's.
const BEFORE: Duration = DAY;
const AUTHORITY_LIFE: Duration = DAY.saturating_mul(20 * 365);
const LIFE: Duration = DAY.saturating_mul(30);
const RENEWED_AFTER: Duration = DAY.saturating_mul(20);

/// The files of a site's certificate, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteFiles {
    /// The certificate, and those that it was signed with.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The gateway's certificate, shared with its listeners: a new one counts for connections that come from
/// then on.
#[derive(Debug)]
pub struct Certificate {
    current: Arc<Current>,
    source: Source,
}

#[derive(Debug)]
struct Current {
    /// Written by who renews it, read once a handshake.
    key: RwLock<Arc<CertifiedKey>>,
    /// The hash by which clients may know it.
    hash: RwLock<String>,
}

#[derive(Debug)]
enum Source {
    Own {
        folder: PathBuf,
        names: Vec<String>,
        renew_at: SystemTime,
    },
    Site {
        files: SiteFiles,
        seen: Vec<Stamp>,
    },
}

/// What tells one state of a file from another: inode and time of change.
type Stamp = Option<(u64, i64, i64)>;

impl Certificate {
    /// The site's, or one of the directory's own authority for these names, which is made if there is none.
    ///
    /// # Errors
    /// Says which file is not what it should be.
    pub fn open(
        directory: &Path,
        names: Vec<String>,
        site: Option<SiteFiles>,
        now: SystemTime,
    ) -> Result<Self, GatewayError> {
        let (source, (key, hash)) = match site {
            Some(files) => {
                let seen = files.stamps();
                let made = files.read()?;
                (Source::Site { files, seen }, made)
            }
            None => {
                let folder = directory.join(FOLDER);
                let made = sign(&folder, &names, now)?;
                let renew_at = now + RENEWED_AFTER;
                let source = Source::Own {
                    folder,
                    names,
                    renew_at,
                };
                (source, made)
            }
        };
        let current = Arc::new(Current {
            key: RwLock::new(key),
            hash: RwLock::new(hash),
        });
        Ok(Self { current, source })
    }

    /// The SHA-256 by which clients may know it: of its own authority, or of the site's certificate.
    pub fn hash(&self) -> String {
        self.current.hash.read().expect("no holder panics").clone()
    }

    /// What a listener needs that speaks these protocols.
    ///
    /// # Errors
    /// If the library refuses.
    pub fn config(&self, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, GatewayError> {
        let builder =
            ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| failed("TLS", &error))?;
        let resolver = self.current.clone();
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(config))
    }

    /// Takes a new one if it is time, or if the site's files have changed; says so. An error keeps the old one.
    ///
    /// # Errors
    /// Once for each state of the files.
    pub fn refresh(&mut self, now: SystemTime) -> Result<Option<&'static str>, GatewayError> {
        let (made, said) = match &mut self.source {
            Source::Own { renew_at, .. } if now < *renew_at => return Ok(None),
            Source::Own {
                folder,
                names,
                renew_at,
            } => {
                // Where it fails it is tried again, long before the old one ends.
                *renew_at = now + DAY;
                let made = sign(folder, names, now)?;
                *renew_at = now + RENEWED_AFTER;
                (made, "the certificate was renewed")
            }
            Source::Site { files, seen } => {
                let stamps = files.stamps();
                if stamps == *seen {
                    return Ok(None);
                }
                *seen = stamps;
                (files.read()?, "the certificate was read again")
            }
        };
        let (key, hash) = made;
        *self.current.key.write().expect("no holder panics") = key;
        *self.current.hash.write().expect("no holder panics") = hash;
        Ok(Some(said))
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.key.read().expect("no holder panics").clone())
    }
}

impl SiteFiles {
    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |path| -> Stamp {
            let found = std::fs::metadata(path).ok()?;
            Some((found.ino(), found.mtime(), found.mtime_nsec()))
        };
        [&self.certificate, &self.key].map(stamp).to_vec()
    }

    fn read(&self) -> Result<(Arc<CertifiedKey>, String), GatewayError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(GatewayError::file(format!("reading {}", path.display())))
        };
        let (chain, key) = (read(&self.certificate)?, read(&self.key)?);
        let key = certified(&chain, &key);
        let key = key.map_err(|why| GatewayError::Content(self.certificate.clone(), why))?;
        let hash = hash(&key.cert[0]);
        Ok((key, hash))
    }
}

fn hash(certificate: &CertificateDer<'_>) -> String {
    let hash = digest(&SHA256, certificate);
    hash.as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn certified(chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    if chain.is_empty() {
        return Err("there is no certificate in it".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("its key: {error}"))?;
    let key = CertifiedKey::from_der(chain, key, &provider());
    key.map(Arc::new).map_err(|error| error.to_string())
}

/// A new certificate of the directory's own authority, and the hash of that.
fn sign(
    folder: &Path,
    names: &[String],
    now: SystemTime,
) -> Result<(Arc<CertifiedKey>, String), GatewayError> {
    let (issuer, authority) = open_authority(folder, now)?;
    let key = KeyPair::generate().map_err(|error| failed("a key", &error))?;
    let params = CertificateParams::new(names.to_vec());
    let mut params = params.map_err(|error| failed("a certificate", &error))?;
    params.distinguished_name = DistinguishedName::new();
    let name = names.first().map_or("thalweg gateway", String::as_str);
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    live(&mut params, now, LIFE);
    let signed = params.signed_by(&key, &issuer);
    let signed = signed.map_err(|error| failed("a certificate", &error))?;
    let chain = format!("{}{authority}", signed.pem());
    let content = |why| GatewayError::Content(folder.join(AUTHORITY), why);
    let key = certified(chain.as_bytes(), key.serialize_pem().as_bytes()).map_err(content)?;
    let last = key.cert.last().expect("the authority is in the chain");
    let hash = hash(last);
    Ok((key, hash))
}

fn open_authority(
    folder: &Path,
    now: SystemTime,
) -> Result<(Issuer<'static, KeyPair>, String), GatewayError> {
    let [certificate, key] = [AUTHORITY, KEY].map(|name| folder.join(name));
    let params = authority_params(now);
    let pem = files::read_if_there(&certificate, PEM_BYTES_MAX)?;
    let pair = files::read_if_there(&key, PEM_BYTES_MAX)?;
    if let (Some(pem), Some(pair)) = (pem, pair) {
        let pair = KeyPair::from_pem(&pair);
        let pair = pair.map_err(|error| GatewayError::Content(key, error.to_string()))?;
        return Ok((Issuer::new(params, pair), pem));
    }
    let pair = KeyPair::generate().map_err(|error| failed("a key", &error))?;
    let signed = params.self_signed(&pair);
    let pem = signed
        .map_err(|error| failed("an authority", &error))?
        .pem();
    files::make_private(folder)?;
    // The certificate last: without it both are made again.
    files::write(&key, pair.serialize_pem().as_bytes())?;
    files::write(&certificate, pem.as_bytes())?;
    Ok((Issuer::new(params, pair), pem))
}

fn authority_params(now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "Thalweg gateway");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    live(&mut params, now, AUTHORITY_LIFE);
    params
}

fn live(params: &mut CertificateParams, now: SystemTime, life: Duration) {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since.saturating_sub(BEFORE);
    params.not_after = epoch + since + life;
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> GatewayError {
    GatewayError::System(
        format!("making {what}"),
        std::io::Error::other(error.to_string()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_is_renewed_in_time_and_known_by_the_same_hash() {
        let parent = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let names = || vec!["api.site.org".to_owned(), "*.stream.site.org".to_owned()];
        let open = || Certificate::open(parent.path(), names(), None, now).unwrap();
        let mut first = open();
        assert_eq!(first.hash(), open().hash());
        assert_eq!(first.refresh(now + DAY).unwrap(), None);
        let before = first.hash();
        assert!(first.refresh(now + RENEWED_AFTER).unwrap().is_some());
        assert_eq!(first.hash(), before);
    }

    #[test]
    fn the_sites_is_read_again_when_it_changes_and_kept_when_the_new_one_is_none() {
        let parent = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let files = SiteFiles {
            certificate: parent.path().join("site.pem"),
            key: parent.path().join("site.key"),
        };
        let put = || {
            let made = rcgen::generate_simple_self_signed(vec!["api.site.org".to_owned()]).unwrap();
            files::write(&files.certificate, made.cert.pem().as_bytes()).unwrap();
            files::write(&files.key, made.signing_key.serialize_pem().as_bytes()).unwrap();
        };
        let open = || Certificate::open(parent.path(), Vec::new(), Some(files.clone()), now);
        assert!(open().unwrap_err().to_string().contains("site.pem"));
        put();
        let mut certificate = open().unwrap();
        let before = certificate.hash();
        assert_eq!(certificate.refresh(now).unwrap(), None);
        files::write(&files.key, b"nonsense").unwrap();
        assert!(certificate.refresh(now).is_err());
        assert_eq!(certificate.refresh(now).unwrap(), None);
        assert_eq!(certificate.hash(), before);
        put();
        assert!(certificate.refresh(now).unwrap().is_some());
        assert_ne!(certificate.hash(), before);
    }
}
