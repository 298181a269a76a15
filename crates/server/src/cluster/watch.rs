//! A thread that looks at the shared directory now and then: where the other servers are today, and whether this one's
//! file is its own still. It renews the certificate, too.

use super::authority::PeerCertificates;
use super::rendezvous::{Contact, Rendezvous, TAKEN_BACK_WITHIN};
use super::shared::{Shared, SharedDirectory};
use crate::error::ServerError;
use crate::group_file::{GroupFile, OtherServer};
use crate::server_log::ServerLog;
use cluster::ClusterId;
use cluster::links::PeerId;
use cluster::service::ServiceHandle;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use wire::DirectoryId;

/// Others that the group file names: one that is there will do.
const OTHERS_MAX: usize = 8;
/// How often it looks. A file may be seen a minute late on NFS all the same.
const EVERY: Duration = Duration::from_secs(2);

// A server that was started with this one's rank sees within that time that this one runs.
const _: () = assert!(2 * EVERY.as_millis() < TAKEN_BACK_WITHIN.as_millis());

/// The servers that vote, and where each was reached last.
pub(super) type Voters = BTreeMap<DirectoryId, Vec<String>>;

/// The voters of a cluster among those who have a file.
pub(super) fn voters(contacts: &[Contact], cluster: ClusterId) -> Voters {
    let votes = |contact: &&Contact| {
        let member = contact.member.filter(|member| member.cluster == cluster);
        member.is_some_and(|member| member.voter.is_some())
    };
    let voters = contacts.iter().filter(votes);
    voters
        .map(|contact| (contact.directory, contact.peers.clone()))
        .collect()
}

/// Voters as those whom links are to dial.
pub(super) fn peers_of(voters: &Voters) -> BTreeMap<PeerId, Vec<String>> {
    let peers = voters.iter();
    peers
        .map(|(voter, addresses)| (PeerId::from(*voter), addresses.clone()))
        .collect()
}

/// The other servers, as the group file names them.
#[derive(Debug, Default)]
pub(super) struct Others {
    servers: Vec<OtherServer>,
    /// Where that is written.
    file: Option<GroupFile>,
}

impl Others {
    /// Those of a cluster among those who have a file, but for this one.
    pub fn of(contacts: &[Contact], cluster: ClusterId, own: DirectoryId) -> Self {
        let is_other = |contact: &&Contact| {
            let member = contact.member.filter(|member| member.cluster == cluster);
            member.is_some() && contact.directory != own
        };
        let others = contacts.iter().filter(is_other).take(OTHERS_MAX);
        let servers = others.map(|contact| OtherServer {
            directory: contact.directory.to_string(),
            host: contact.host.clone(),
            endpoints: contact.endpoints.clone(),
        });
        Self {
            servers: servers.collect(),
            file: None,
        }
    }

    /// Has the group file written by `write`, and again whenever others come, or go elsewhere.
    pub fn publish(
        &mut self,
        write: impl FnOnce(Vec<OtherServer>) -> Result<GroupFile, ServerError>,
    ) -> Result<GroupFile, ServerError> {
        let file = write(self.servers.clone())?;
        self.file = Some(file.clone());
        Ok(file)
    }

    fn take(&mut self, found: Self) -> Result<(), ServerError> {
        // One whose file is not seen for a moment is where it was.
        let is_gone = |before: &&OtherServer| {
            let mut now = found.servers.iter();
            !now.any(|now| now.directory == before.directory)
        };
        let gone: Vec<_> = self.servers.iter().filter(is_gone).cloned().collect();
        let mut servers = found.servers;
        servers.extend(gone);
        servers.truncate(OTHERS_MAX);
        if servers == self.servers {
            return Ok(());
        }
        self.servers = servers.clone();
        match &self.file {
            Some(file) => file.write_others(servers),
            None => Ok(()),
        }
    }
}

/// What the thread has.
pub(super) struct Watched {
    pub rendezvous: Rendezvous,
    pub shared: SharedDirectory,
    pub cluster: ClusterId,
    pub own: DirectoryId,
    /// Those that the service knows, but for this server.
    pub voters: Voters,
    pub others: Arc<Mutex<Others>>,
    pub certificates: Option<PeerCertificates>,
    pub service: ServiceHandle,
    pub log: ServerLog,
}

/// The running thread. Dropped, it ends, and is waited for.
#[derive(Debug)]
pub(super) struct Watcher {
    ends: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub fn start(mut watched: Watched) -> Result<Self, ServerError> {
        let ends = Arc::new((Mutex::new(false), Condvar::new()));
        let shared = ends.clone();
        let run = move || {
            let (ended, changed) = &*shared;
            let mut said = BTreeSet::new();
            let mut over = ended.lock().expect("no holder panics here");
            while !*over {
                drop(over);
                watched.look(&mut said);
                over = ended.lock().expect("no holder panics here");
                let waited = changed.wait_timeout_while(over, EVERY, |over| !*over);
                over = waited.expect("no holder panics here").0;
            }
        };
        let thread = std::thread::Builder::new().name("thalweg-watch".to_owned());
        let thread = thread.spawn(run).map_err(ServerError::System)?;
        Ok(Self {
            ends,
            thread: Some(thread),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let (ended, changed) = &*self.ends;
        *ended.lock().expect("no holder panics here") = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so, and watches no more.
            let _ = thread.join();
        }
    }
}

impl Watched {
    /// Looks once. `said` is what the operator has heard and holds still: it is said once.
    fn look(&mut self, said: &mut BTreeSet<String>) {
        let mut wrong = BTreeSet::new();
        if let Err(refused) = self.rendezvous.check(&mut self.shared) {
            wrong.insert(format!(
                "others do not find this server of the cluster any more: {refused}"
            ));
        }
        match self.rendezvous.contacts(&mut self.shared) {
            Ok(contacts) => {
                self.take(&contacts);
                let found = Others::of(&contacts, self.cluster, self.own);
                let mut others = self.others.lock().expect("no holder panics here");
                if let Err(error) = others.take(found) {
                    wrong.insert(format!("the group file does not name all servers: {error}"));
                }
            }
            Err(refused) => {
                let path = self.shared.path("");
                wrong.insert(format!("{}: {refused}", path.display()));
            }
        }
        let renewed = self
            .certificates
            .as_mut()
            .map(|one| one.refresh(SystemTime::now()));
        match renewed {
            Some(Ok(Some(issued))) => {
                let (chain, key) = (issued.chain.into_bytes(), issued.key.into_bytes());
                self.service.renew(chain, key);
            }
            Some(Err(error)) => {
                wrong.insert(format!(
                    "the certificate for other servers is not renewed: {error}"
                ));
            }
            Some(Ok(None)) | None => {}
        }
        for line in wrong.difference(said) {
            self.log.warn(line.clone());
        }
        *said = wrong;
    }

    /// Has the service know where voters are today. One whose file is not seen is where it was.
    fn take(&mut self, contacts: &[Contact]) {
        let mut known = self.voters.clone();
        known.extend(voters(contacts, self.cluster));
        known.remove(&self.own);
        if known != self.voters {
            self.service.set_peers(peers_of(&known));
            self.service.set_voters(known.keys().copied().collect());
            self.voters = known;
        }
    }
}
