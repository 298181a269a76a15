//! Who the servers of a cluster are to each other: certificates of an authority of the cluster's own, which lies in
//! the directory that they share.
//!
//! One file has the authority's private key and its certificate, so that they belong together, whichever server publishes it.

use super::shared::{Published, Shared};
use crate::error::ServerError;
use crate::host::random_u128;
use crate::issuing::{self, DAY, RENEWED_AFTER, Signed, Subject, failed, not_made};
use cluster::links::certificate_name;
use net::{Authorities, Identity, certificates_in, certificates_pem};
use rcgen::{DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use std::fmt;
use std::time::{Duration, SystemTime};
use wire::DirectoryId;

/// The name of the authority's file: its key, then its certificate, in PEM.
pub const AUTHORITY_FILE: &str = "authority.pem";

/// How long is waited between two looks at a file that another server has published.
const INTERVAL: Duration = Duration::from_millis(200);
/// What certificates of servers say of their use.
const USE: &str = "Thalweg cluster";

/// The authority of a cluster.
pub struct ClusterAuthority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pem: String,
}

impl fmt::Debug for ClusterAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterAuthority").finish_non_exhaustive()
    }
}

/// A certificate that a server shows to others, whether it connects to them or they connect to it.
pub struct PeerIdentity {
    /// The certificate of the cluster's authority, in PEM: whose certificates count.
    pub authority: String,
    /// The server's certificate and the authority's, in PEM.
    pub chain: String,
    /// The private key of the server's certificate, in PEM.
    pub key: String,
}

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerIdentity").finish_non_exhaustive()
    }
}

impl PeerIdentity {
    /// As TLS takes it.
    ///
    /// # Errors
    /// [`ServerError::System`] if TLS does not take it, which is a mistake of this program.
    pub fn identity(&self) -> Result<Identity, ServerError> {
        Identity::from_pem(self.chain.as_bytes(), self.key.as_bytes()).map_err(not_made)
    }

    /// By which certificates other servers are known.
    ///
    /// # Errors
    /// As [`PeerIdentity::identity`].
    pub fn authorities(&self) -> Result<Authorities, ServerError> {
        Authorities::from_pem(self.authority.as_bytes()).map_err(not_made)
    }
}

impl ClusterAuthority {
    /// Reads the authority's file, or makes it. Where several servers make one at once, one of theirs is taken by all;
    /// a file that another one has made is waited for, for `patience` at most.
    ///
    /// # Errors
    /// [`ServerError::Directory`] if the file is not what was written, or does not come.
    pub fn open(
        shared: &mut impl Shared,
        now: SystemTime,
        patience: Duration,
    ) -> Result<Self, ServerError> {
        if let Some(text) = shared.read(AUTHORITY_FILE)? {
            return Self::read(&text, shared);
        }
        let made = Self::make(now)?;
        let began = shared.now();
        loop {
            let published = shared.publish(AUTHORITY_FILE, &made)?;
            if published == Published::Made {
                return Self::read(&made, shared);
            }
            if let Some(text) = shared.read(AUTHORITY_FILE)? {
                return Self::read(&text, shared);
            }
            let waited = shared.now().saturating_sub(began);
            if waited >= patience {
                return Err(late(&published, waited, shared));
            }
            if !shared.wait(INTERVAL.min(patience - waited)) {
                let late = late(&published, waited, shared);
                return Err(ServerError::Interrupted(late.to_string()));
            }
        }
    }

    /// The text of a file for a new authority.
    fn make(now: SystemTime) -> Result<String, ServerError> {
        let key = KeyPair::generate().map_err(failed)?;
        // Two authorities of one name would be hard to tell apart where both are known.
        let name = format!("{USE} authority {:032x}", random_u128());
        let certificate = issuing::authority(&name, now).self_signed(&key);
        let certificate = certificate.map_err(failed)?.pem();
        Ok(format!("{}{certificate}", key.serialize_pem()))
    }

    fn read(text: &str, shared: &impl Shared) -> Result<Self, ServerError> {
        let path = shared.path(AUTHORITY_FILE);
        let refuse = |why: String| ServerError::Directory {
            directory: path.clone(),
            why: format!(
                "it is not the key and the certificate of an authority: {why}. If no server of the cluster runs, \
                 remove it, and another one is made"
            ),
        };
        let bytes = text.as_bytes();
        // It says whether the key is that of the certificate.
        Identity::from_pem(bytes, bytes).map_err(|error| refuse(error.to_string()))?;
        let chain = certificates_in(bytes).map_err(|error| refuse(error.to_string()))?;
        // The key comes first.
        let key = KeyPair::from_pem(text).map_err(|error| refuse(error.to_string()))?;
        let der = chain[0].to_vec().into();
        let issuer = Issuer::from_ca_cert_der(&der, key);
        let issuer = issuer.map_err(|error| refuse(error.to_string()))?;
        let pem = certificates_pem(&chain[..1]);
        Ok(Self { issuer, pem })
    }

    /// A certificate of a server, with a key that is made for it: valid for 30 days, from a day ago on.
    ///
    /// Its subject is organization `Thalweg cluster` and, as common name, the 32 digits of the data directory; its
    /// alternative names are `hosts`, names and addresses, and [`certificate_name`]. It is for both ends of a connection.
    ///
    /// # Errors
    /// [`ServerError::System`] if a host cannot be the name of one.
    pub fn issue(
        &self,
        directory: DirectoryId,
        hosts: &[String],
        now: SystemTime,
    ) -> Result<PeerIdentity, ServerError> {
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, USE);
        name.push(DnType::CommonName, directory.to_string());
        let mut hosts = hosts.to_vec();
        hosts.push(certificate_name(directory.into()));
        let subject = Subject {
            name,
            hosts: &hosts,
            usages: vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
        };
        let Signed { chain, key } = issuing::sign(&self.issuer, &self.pem, subject, now)?;
        Ok(PeerIdentity {
            authority: self.pem.clone(),
            chain,
            key,
        })
    }
}

fn late(published: &Published, waited: Duration, shared: &impl Shared) -> ServerError {
    let seconds = waited.as_secs();
    let why = match published {
        Published::Begun { marker, by } => format!(
            "process {by} has not written it for {seconds} s: if that process is dead, remove {}",
            marker.display()
        ),
        _ => format!(
            "another server has written it, and it has not been seen here for {seconds} s: the file system shows it late, \
             so wait longer"
        ),
    };
    ServerError::Directory {
        directory: shared.path(AUTHORITY_FILE),
        why,
    }
}

/// The certificates that a server shows to others: a new one at two thirds of the life of the one before.
#[derive(Debug)]
pub struct PeerCertificates {
    authority: ClusterAuthority,
    directory: DirectoryId,
    hosts: Vec<String>,
    renew_at: SystemTime,
}

impl PeerCertificates {
    /// Has the first one made.
    ///
    /// # Errors
    /// As [`ClusterAuthority::issue`].
    pub fn new(
        authority: ClusterAuthority,
        directory: DirectoryId,
        hosts: Vec<String>,
        now: SystemTime,
    ) -> Result<(Self, PeerIdentity), ServerError> {
        let issued = authority.issue(directory, &hosts, now)?;
        let certificates = Self {
            authority,
            directory,
            hosts,
            renew_at: now + RENEWED_AFTER,
        };
        Ok((certificates, issued))
    }

    /// Has a new certificate made if it is time.
    ///
    /// # Errors
    /// As [`ClusterAuthority::issue`]. It is tried again a day later.
    pub fn refresh(&mut self, now: SystemTime) -> Result<Option<PeerIdentity>, ServerError> {
        if now < self.renew_at {
            return Ok(None);
        }
        self.renew_at = now + DAY;
        let issued = self.authority.issue(self.directory, &self.hosts, now)?;
        self.renew_at = now + RENEWED_AFTER;
        Ok(Some(issued))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake_share::Share;
    use crate::cluster::faults::{Fault, with};
    use crate::cluster::shared::SharedDirectory;
    use crate::host::Host;
    use net::{
        Fingerprint, Identities, LinkEvent, Reactor, ReactorEvent, Tls, Transport, Trust, Untrusted,
    };
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::sync::Barrier;
    use std::time::UNIX_EPOCH;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn open(path: &Path) -> ClusterAuthority {
        let mut shared = SharedDirectory::open(path, &Host::this()).unwrap();
        ClusterAuthority::open(&mut shared, SystemTime::now(), PATIENCE).unwrap()
    }

    fn issue(authority: &ClusterAuthority, now: SystemTime) -> PeerIdentity {
        let hosts = ["node7", "127.0.0.1"].map(str::to_owned);
        let directory = DirectoryId(0xabc);
        authority.issue(directory, &hosts, now).unwrap()
    }

    /// The authorities of eight servers that start at once.
    fn open_at_once(path: &Path, fault: Option<Fault>) -> Vec<ClusterAuthority> {
        let together = Barrier::new(8);
        std::thread::scope(|scope| {
            let start = || {
                scope.spawn(|| {
                    together.wait();
                    match fault {
                        Some(fault) => with(fault, || open(path)),
                        None => open(path),
                    }
                })
            };
            let threads: Vec<_> = (0..8).map(|_| start()).collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        })
    }

    /// Whether each believes what each other has had signed.
    fn believe_each_other(authorities: &[ClusterAuthority]) -> bool {
        let now = SystemTime::now();
        let since = now.duration_since(UNIX_EPOCH).unwrap();
        let issued: Vec<_> = authorities.iter().map(|one| issue(one, now)).collect();
        issued.iter().all(|one| {
            let known = one.authorities().unwrap();
            issued.iter().all(|other| {
                let chain = other.identity().unwrap().certificates();
                known.verify(&chain, since).is_ok()
            })
        })
    }

    #[test]
    fn servers_that_start_at_once_and_later_have_one_authority() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("shared");
        let mut authorities = open_at_once(&path, None);
        authorities.push(open(&path));
        assert!(believe_each_other(&authorities));
        let file = path.join(AUTHORITY_FILE);
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
    }

    #[test]
    fn two_authorities_are_noticed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("shared");
        // Whether eight threads meet is chance, so all of them have read before one writes.
        let mut first = SharedDirectory::open(&path, &Host::this()).unwrap();
        let made = ClusterAuthority::make(SystemTime::now()).unwrap();
        let other = ClusterAuthority::make(SystemTime::now()).unwrap();
        let authorities = with(Fault::PublishedTwice, || {
            [made, other].map(|text| {
                assert_eq!(
                    first.publish(AUTHORITY_FILE, &text).unwrap(),
                    Published::Made
                );
                ClusterAuthority::read(&text, &first).unwrap()
            })
        });
        assert!(!believe_each_other(&authorities));
    }

    #[test]
    fn a_server_that_sees_the_file_late_takes_it_and_waits_no_longer_than_it_may() {
        let now = SystemTime::now();
        for seed in 0..50 {
            let share = Share::default();
            let first = ClusterAuthority::open(&mut share.view(), now, PATIENCE).unwrap();
            let mut late = share.late_view(seed);
            let second = ClusterAuthority::open(&mut late, now, PATIENCE).unwrap();
            assert!(believe_each_other(&[first, second]), "seed {seed}");
        }
        let mut shared = NeverSeen(Published::Exists, Duration::ZERO);
        let error = ClusterAuthority::open(&mut shared, now, PATIENCE).unwrap_err();
        assert!(error.to_string().contains("wait longer"), "{error}");
        assert_eq!(shared.1, PATIENCE);
        let marker = shared.path("marker");
        let by = "node3.5".to_owned();
        let mut shared = NeverSeen(Published::Begun { marker, by }, Duration::ZERO);
        let error = ClusterAuthority::open(&mut shared, now, PATIENCE).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("node3.5") && said.contains("remove /shared/marker"),
            "{said}"
        );
    }

    /// What came of a file that is never seen, and the time.
    struct NeverSeen(Published, Duration);

    impl Shared for NeverSeen {
        fn path(&self, name: &str) -> std::path::PathBuf {
            Path::new("/shared").join(name)
        }

        fn read(&mut self, _: &str) -> Result<Option<String>, ServerError> {
            Ok(None)
        }

        fn replace(&mut self, _: &str, _: &str) -> Result<(), ServerError> {
            unreachable!("an authority is published")
        }

        fn publish(&mut self, _: &str, _: &str) -> Result<Published, ServerError> {
            Ok(self.0.clone())
        }

        fn now(&mut self) -> Duration {
            self.1
        }

        fn wait(&mut self, time: Duration) -> bool {
            self.1 += time;
            true
        }
    }

    #[test]
    fn certificates_are_valid_for_30_days_to_clocks_that_are_a_day_behind() {
        let parent = tempfile::tempdir().unwrap();
        let authority = open(&parent.path().join("shared"));
        let now = SystemTime::now();
        let issued = issue(&authority, now);
        let (known, chain) = (issued.authorities(), issued.identity());
        let (known, chain) = (known.unwrap(), chain.unwrap().certificates());
        let verified = |at: SystemTime| {
            let since = at.duration_since(UNIX_EPOCH).unwrap();
            known.verify(&chain, since)
        };
        assert_eq!(verified(now), Ok(()));
        let minute = Duration::from_secs(60);
        assert_eq!(verified(now - DAY + minute), Ok(()));
        assert_eq!(verified(now - DAY - minute), Err(Untrusted::NotYet));
        assert_eq!(verified(now + DAY * 30 - minute), Ok(()));
        assert_eq!(verified(now + DAY * 30 + minute), Err(Untrusted::Expired));
        assert_eq!(chain.len(), 2);
        let has = |text: &str| chain[0].windows(text.len()).any(|at| at == text.as_bytes());
        assert!(has("Thalweg cluster") && has("00000000000000000000000000000abc") && has("node7"));
        // The authority's key stays where it is.
        assert!(!issued.authority.contains("PRIVATE") && !issued.chain.contains("PRIVATE"));
        let other = parent.path().join("other");
        let foreign = issue(&open(&other), now).authorities().unwrap();
        let since = now.duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(foreign.verify(&chain, since), Err(Untrusted::Stranger));
    }

    #[test]
    fn a_server_is_known_by_the_names_of_its_host_and_by_no_other() {
        let parent = tempfile::tempdir().unwrap();
        let authority = open(&parent.path().join("shared"));
        let own = parent.path().join("known.pem");
        for (hosts, is_known) in [
            (["node7", "127.0.0.1"], true),
            (["node7", "127.0.0.2"], false),
        ] {
            let hosts = hosts.map(str::to_owned);
            let issued = authority.issue(DirectoryId(1), &hosts, SystemTime::now());
            let issued = issued.unwrap();
            std::fs::write(&own, &issued.authority).unwrap();
            let identities = Identities::new(issued.identity().unwrap());
            let listener = Tls::default().listening_as(identities);
            let listener = listener.listen("tls://127.0.0.1:0").unwrap();
            let address = listener.address();
            let mut reactor = Reactor::new().unwrap();
            reactor.add_listener(listener).unwrap();
            let client = Tls::default().trusting(Trust::Authorities(own.clone()));
            let client = client.connect(&address).unwrap();
            let client = reactor.add_link(client).unwrap();
            let is_up = loop {
                match reactor.next() {
                    Some(ReactorEvent::Link { link, event }) if link == client => match event {
                        LinkEvent::Up => break true,
                        LinkEvent::Down(_) => break false,
                        _ => {}
                    },
                    Some(_) => {}
                    None => reactor.wait(None).unwrap(),
                }
            };
            assert_eq!(is_up, is_known, "{hosts:?}");
        }
    }

    #[test]
    fn certificates_are_renewed_after_20_days_by_the_same_authority() {
        let parent = tempfile::tempdir().unwrap();
        let authority = open(&parent.path().join("shared"));
        let now = SystemTime::now();
        let hosts = vec!["node7".to_owned()];
        let certificates = PeerCertificates::new(authority, DirectoryId(1), hosts, now);
        let (mut certificates, first) = certificates.unwrap();
        let hashes = |identity: &PeerIdentity| -> Vec<Fingerprint> {
            identity.identity().unwrap().fingerprints()
        };
        let early = certificates.refresh(now + DAY * 20 - Duration::from_secs(1));
        assert!(early.unwrap().is_none());
        let later = now + DAY * 20;
        let second = certificates.refresh(later).unwrap().unwrap();
        assert_ne!(hashes(&second)[0], hashes(&first)[0]);
        assert_eq!(hashes(&second)[1], hashes(&first)[1]);
        assert!(certificates.refresh(later + DAY).unwrap().is_none());
        let since = (now + DAY * 45).duration_since(UNIX_EPOCH).unwrap();
        let chain = second.identity().unwrap().certificates();
        assert_eq!(first.authorities().unwrap().verify(&chain, since), Ok(()));
    }

    #[test]
    fn a_file_that_is_none_of_an_authority_is_refused_by_its_name() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("shared");
        let texts = ["shared", "other"].map(|name| {
            let path = parent.path().join(name);
            open(&path);
            std::fs::read_to_string(path.join(AUTHORITY_FILE)).unwrap()
        });
        let [one, other] = texts.map(|text| {
            let at = text.find("-----BEGIN CERTIFICATE").unwrap();
            let (key, certificate) = text.split_at(at);
            [key.to_owned(), certificate.to_owned()]
        });
        let mixed = format!("{}{}", one[0], other[1]);
        for text in ["", "nonsense", &one[0], &one[1], &mixed] {
            std::fs::write(path.join(AUTHORITY_FILE), text).unwrap();
            let mut shared = SharedDirectory::open(&path, &Host::this()).unwrap();
            let opened = ClusterAuthority::open(&mut shared, SystemTime::now(), PATIENCE);
            let said = opened.unwrap_err().to_string();
            assert!(
                said.contains("shared/authority.pem: it is not the key"),
                "{said}"
            );
        }
    }
}
