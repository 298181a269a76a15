//! Who the server is to clients of TLS: a certificate of an authority of its own, or the site's.
//!
//! The authority is made once and lies in the data directory; its hash is in the group file. What it
//! signs for the server is made anew by each start, for the names that the host has then, and never written. A site's
//! certificate is read again when its files change.
//!
//! The authority signs for clients, too, whichever certificate the server shows: see `thalweg pair`.

use crate::config::Config;
use crate::durable_file;
use crate::error::{ConfigError, ServerError};
use crate::group_file::GroupFile;
use crate::host::{self, Host};
use crate::issuing::{self, DAY, RENEWED_AFTER, Subject, failed, not_made};
use access::{CERTIFICATE_EARLY, CODE_BYTES, Code, Holder, UnixTime};
use broker::{Certified, Certifier, ClientCertificates};
use bytes::Bytes;
use net::{Authorities, Fingerprint, Identities, Identity};
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
    SerialNumber, SubjectPublicKeyInfo,
};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use wire::DirectoryId;

/// The folder of the authority in the data directory, and its files.
const FOLDER: &str = "tls";
const AUTHORITY_FILE: &str = "authority.pem";
const KEY_FILE: &str = "authority.key";

/// The certificate that a server shows, and where the next one comes from.
#[derive(Debug)]
pub struct Certificates {
    identities: Identities,
    source: Source,
    /// Of clients.
    clients: ClientCertificates,
    /// Where clients read which certificate to trust.
    group_file: Option<GroupFile>,
}

#[derive(Debug)]
enum Source {
    /// The directory's authority.
    Own {
        authority: Arc<Authority>,
        names: Vec<String>,
        renew_at: SystemTime,
    },
    /// The site's files.
    Site { files: SiteFiles, seen: Stamps },
}

/// The files of a site's certificate.
#[derive(Debug, Clone)]
struct SiteFiles {
    certificate: PathBuf,
    key: PathBuf,
}

/// What tells one state of two files from another: inode and time of change.
type Stamps = [Option<(u64, i64, i64)>; 2];

impl Certificates {
    /// Those of the settings, or of an authority that is made if there is none.
    ///
    /// The authority lies in `folder`, and is that of `id`: of the data directory, or of the cluster.
    pub fn open(
        config: &Config,
        (folder, id): (&Path, DirectoryId),
        host: &Host,
        now: SystemTime,
    ) -> Result<Self, ServerError> {
        let authority = Authority::open(folder, id, now)?;
        let authority = Arc::new(authority);
        let (source, identity) = match SiteFiles::of(config) {
            Some(files) => {
                let seen = files.stamps();
                let identity = files.read()?;
                (Source::Site { files, seen }, identity)
            }
            None => {
                let listened: Vec<String> =
                    config.listen.iter().chain(&config.amqp).cloned().collect();
                let names = host::names(host, &listened, &config.tls_names);
                let identity = authority.sign(&names, now)?;
                let source = Source::Own {
                    authority: authority.clone(),
                    names,
                    renew_at: now + RENEWED_AFTER,
                };
                (source, identity)
            }
        };
        let identities = Identities::new(identity);
        let clients = authority.of_clients(config, id, identities.clone())?;
        Ok(Self {
            identities,
            source,
            clients,
            group_file: None,
        })
    }

    /// By which certificates clients are let in.
    pub fn of_clients(&self) -> &ClientCertificates {
        &self.clients
    }

    /// What listeners show.
    pub fn identities(&self) -> Identities {
        self.identities.clone()
    }

    /// The hashes by which clients know the server: of its own authority, which signs for it
    /// alone, or of the site's certificate, whose authority signs for others too.
    pub fn trusted(&self) -> Vec<Fingerprint> {
        let hashes = self.identities.current().fingerprints();
        match self.source {
            Source::Own { .. } => hashes.last().copied().into_iter().collect(),
            Source::Site { .. } => hashes.first().copied().into_iter().collect(),
        }
    }

    /// Writes `file` anew when the hashes change.
    pub fn publish_in(&mut self, file: GroupFile) {
        self.group_file = Some(file);
    }

    /// Takes a new certificate if it is time or if the site's files have changed; says so.
    ///
    /// # Errors
    /// In words, once for each state of the files. The old certificate is kept.
    pub fn refresh(&mut self, now: SystemTime) -> Result<Option<String>, String> {
        match &mut self.source {
            Source::Own {
                authority,
                names,
                renew_at,
            } => {
                if now < *renew_at {
                    return Ok(None);
                }
                // Where it fails it is tried again, long before the old one ends.
                *renew_at = now + DAY;
                let signed = authority.sign(names, now);
                self.identities.replace(signed.map_err(|e| e.to_string())?);
                *renew_at = now + RENEWED_AFTER;
                Ok(Some("the certificate was renewed".to_owned()))
            }
            Source::Site { files, seen } => {
                let stamps = files.stamps();
                if stamps == *seen {
                    return Ok(None);
                }
                *seen = stamps;
                let identity = files.read().map_err(|error| {
                    format!("the certificate is not read again, and the old one kept: {error}")
                })?;
                self.identities.replace(identity);
                let hashes = self.trusted();
                if let Some(file) = &mut self.group_file {
                    file.write_certificates(hashes)
                        .map_err(|error| error.to_string())?;
                }
                Ok(Some("the certificate was read again".to_owned()))
            }
        }
    }
}

/// Makes the authority of this id in a folder, if there is none.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn make_authority(
    folder: &Path,
    id: DirectoryId,
    now: SystemTime,
) -> Result<(), ServerError> {
    Authority::open(folder, id, now).map(drop)
}

/// Whether any of the addresses is one of TLS.
pub fn are_needed(config: &Config) -> bool {
    let mut addresses = config.listen.iter().chain(&config.amqp);
    addresses.any(|address| address.starts_with("tls://"))
}

/// Whether the site's files are a certificate and its key, if there are any.
pub fn check(config: &Config) -> Result<Option<&Path>, ServerError> {
    let Some(files) = SiteFiles::of(config) else {
        return Ok(None);
    };
    files.read().map(|_| config.tls_cert.as_deref())
}

impl SiteFiles {
    fn of(config: &Config) -> Option<Self> {
        Some(Self {
            certificate: config.tls_cert.clone()?,
            key: config.tls_key.clone()?,
        })
    }

    fn stamps(&self) -> Stamps {
        [&self.certificate, &self.key].map(|path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.ino(), found.mtime(), found.mtime_nsec()))
        })
    }

    fn read(&self) -> Result<Identity, ServerError> {
        let refuse = |key: &str, path: &Path, why: String| ConfigError::Value {
            key: key.to_owned(),
            why: format!("{}: {why}", path.display()),
        };
        let chain = std::fs::read(&self.certificate)
            .map_err(|error| refuse("tls_cert", &self.certificate, error.to_string()))?;
        let key = std::fs::read(&self.key)
            .map_err(|error| refuse("tls_key", &self.key, error.to_string()))?;
        let identity = Identity::from_pem(&chain, &key);
        Ok(identity.map_err(|error| refuse("tls_cert", &self.certificate, error.to_string()))?)
    }
}

/// The authority of one data directory or cluster, which signs for its servers and for their clients.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: Bytes,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    fn open(path: &Path, id: DirectoryId, now: SystemTime) -> Result<Self, ServerError> {
        let folder = path.join(FOLDER);
        let [certificate, key] = [AUTHORITY_FILE, KEY_FILE].map(|name| folder.join(name));
        let name = format!("Thalweg data directory {id}");
        let params = issuing::authority(&name, now);
        let pair = (
            durable_file::read_if_there(&certificate)?,
            durable_file::read_if_there(&key)?,
        );
        if let (Some(pem), Some(key)) = pair {
            let key = KeyPair::from_pem(&key).map_err(|error| ServerError::Directory {
                directory: path.to_owned(),
                why: format!("{FOLDER}/{KEY_FILE} is no private key: {error}"),
            })?;
            return Self::of(params, key, pem);
        }
        let pair = KeyPair::generate().map_err(failed)?;
        let pem = params.self_signed(&pair).map_err(failed)?.pem();
        durable_file::make_private(&folder)?;
        // The certificate last: without it both are made again.
        durable_file::write(&key, pair.serialize_pem().as_bytes())?;
        durable_file::write(&certificate, pem.as_bytes())?;
        Self::of(params, pair, pem)
    }

    fn of(params: CertificateParams, key: KeyPair, pem: String) -> Result<Self, ServerError> {
        let chain = Identity::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes());
        let der = chain.map_err(not_made)?.certificates().swap_remove(0);
        let issuer = Issuer::new(params, key);
        Ok(Self { issuer, pem, der })
    }

    /// By which certificates clients are let in: those of this one, and of the site's.
    fn of_clients(
        self: Arc<Self>,
        config: &Config,
        id: DirectoryId,
        shown: Identities,
    ) -> Result<ClientCertificates, ServerError> {
        let own = Authorities::from_pem(self.pem.as_bytes()).map_err(not_made)?;
        let authorities = match &config.tls_client_ca {
            None => own.clone(),
            Some(path) => {
                let refuse = |why: String| ConfigError::Value {
                    key: "tls_client_ca".to_owned(),
                    why: format!("{}: {why}", path.display()),
                };
                let mut text = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
                // The file by itself, for what is wrong with it.
                Authorities::from_pem(&text).map_err(|error| refuse(error.to_string()))?;
                text.push(b'\n');
                text.extend_from_slice(self.pem.as_bytes());
                Authorities::from_pem(&text).map_err(not_made)?
            }
        };
        let site = match config.site.as_str() {
            "" => id.to_string(),
            site => site.to_owned(),
        };
        Ok(ClientCertificates {
            authorities,
            own,
            site,
            shown,
            certifier: self,
        })
    }

    /// A certificate of the server, for these names, and the authority's behind it.
    fn sign(&self, names: &[String], now: SystemTime) -> Result<Identity, ServerError> {
        let mut name = DistinguishedName::new();
        let first = names.first().map_or("thalweg", String::as_str);
        name.push(DnType::CommonName, first);
        let subject = Subject {
            name,
            hosts: names,
            usages: vec![ExtendedKeyUsagePurpose::ServerAuth],
        };
        issuing::sign(&self.issuer, &self.pem, subject, now)?.identity()
    }
}

impl Certifier for Authority {
    fn certify(
        &self,
        what: Certified<'_>,
        holder: &Holder,
        now: UnixTime,
        life: Duration,
    ) -> Result<Vec<Bytes>, String> {
        let said = |error: rcgen::Error| error.to_string();
        let signed = match what {
            Certified::Request(der) => {
                // It verifies that who asks has the key. Of the rest the key alone is taken.
                let request = CertificateSigningRequestParams::from_der(&der.into());
                self.sign_for(holder, &request.map_err(said)?.public_key, now, life)
            }
            Certified::Key(der) => {
                let key = SubjectPublicKeyInfo::from_der(der).map_err(said)?;
                self.sign_for(holder, &key, now, life)
            }
        };
        let own = Bytes::copy_from_slice(signed.map_err(said)?.der());
        Ok(vec![own, self.der.clone()])
    }

    fn new_code(&self) -> Result<Code, String> {
        let mut bytes = [0; CODE_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| format!("no random bytes: {error}"))?;
        Ok(Code::new(bytes))
    }
}

impl Authority {
    fn sign_for(
        &self,
        holder: &Holder,
        key: &impl PublicKeyData,
        now: UnixTime,
        life: Duration,
    ) -> Result<rcgen::Certificate, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let name = format!("{}/{}", holder.project(), holder.name());
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = vec![SanType::URI(holder.uri().try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let mut serial = crate::host::random_u128().to_be_bytes();
        // Positive, and never short.
        serial[0] = serial[0] & 0x3f | 0x40;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        // Whole seconds, as certificates have them.
        let since = Duration::from_secs(now.0 / 1_000_000_000);
        params.not_before = epoch + since.saturating_sub(CERTIFICATE_EARLY);
        // The last second is the one before its end.
        params.not_after = epoch + (since + life).saturating_sub(Duration::from_secs(1));
        params.signed_by(key, &self.issuer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn open(path: &Path, config: &Config, now: SystemTime) -> Result<Certificates, ServerError> {
        let host = Host::this();
        let directory = crate::DataDirectory::open(path, &host, false).unwrap();
        let opened = Certificates::open(config, (directory.path(), directory.id()), &host, now);
        directory.give_back().unwrap();
        opened
    }

    fn leaf(certificates: &Certificates) -> Fingerprint {
        certificates.identities().current().fingerprints()[0]
    }

    #[test]
    fn the_authority_stays_and_what_it_signs_is_renewed_at_two_thirds_of_its_life() {
        let parent = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let mut first = open(parent.path(), &Config::default(), now).unwrap();
        for file in [AUTHORITY_FILE, KEY_FILE] {
            let path = parent.path().join(FOLDER).join(file);
            let mode = std::fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        let second = open(parent.path(), &Config::default(), now).unwrap();
        assert_eq!(first.trusted(), second.trusted());
        assert_ne!(leaf(&first), leaf(&second));
        let (old, trusted) = (leaf(&first), first.trusted());
        assert_eq!(first.refresh(now + DAY * 19), Ok(None));
        assert_eq!(leaf(&first), old);
        assert!(first.refresh(now + DAY * 20).unwrap().is_some());
        assert_ne!(leaf(&first), old);
        assert_eq!(first.trusted(), trusted);
        assert_eq!(first.refresh(now + DAY * 21), Ok(None));
    }

    #[test]
    fn a_damaged_authority_is_refused_and_half_of_one_made_again() {
        let parent = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let first = open(parent.path(), &Config::default(), now).unwrap();
        let folder = parent.path().join(FOLDER);
        std::fs::remove_file(folder.join(AUTHORITY_FILE)).unwrap();
        let second = open(parent.path(), &Config::default(), now).unwrap();
        assert_ne!(first.trusted(), second.trusted());
        std::fs::write(folder.join(KEY_FILE), "nonsense").unwrap();
        let error = open(parent.path(), &Config::default(), now).unwrap_err();
        assert!(error.to_string().contains("tls/authority.key"), "{error}");
    }

    #[test]
    fn the_sites_files_are_read_again_when_they_change() {
        let parent = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let [certificate, key] = ["site.pem", "site.key"].map(|name| parent.path().join(name));
        let site = || {
            let made = rcgen::generate_simple_self_signed(vec!["node7".to_owned()]).unwrap();
            [made.cert.pem(), made.signing_key.serialize_pem()]
        };
        let config = Config {
            tls_cert: Some(certificate.clone()),
            tls_key: Some(key.clone()),
            ..Config::default()
        };
        let data = parent.path().join("data");
        let error = open(&data, &config, now).unwrap_err().to_string();
        assert!(
            error.contains("tls_cert") && error.contains("site.pem"),
            "{error}"
        );
        let [old, new] = [site(), site()];
        std::fs::write(&certificate, &old[0]).unwrap();
        std::fs::write(&key, &old[1]).unwrap();
        let mut certificates = open(&data, &config, now).unwrap();
        let before = certificates.trusted();
        assert_eq!(certificates.refresh(now), Ok(None));
        // Between two writes certificate and key do not belong together.
        durable_file::write(&certificate, new[0].as_bytes()).unwrap();
        let error = certificates.refresh(now).unwrap_err();
        assert!(
            error.contains("it is not that of the certificate"),
            "{error}"
        );
        assert_eq!(certificates.refresh(now), Ok(None));
        assert_eq!(certificates.trusted(), before);
        durable_file::write(&key, new[1].as_bytes()).unwrap();
        assert!(certificates.refresh(now).unwrap().is_some());
        assert_ne!(certificates.trusted(), before);
    }
}
