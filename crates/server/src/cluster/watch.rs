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

    /// Gives whether the file was written anew.
    fn take(&mut self, found: Self) -> Result<bool, ServerError> {
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
            return Ok(false);
        }
        self.servers = servers.clone();
        match &self.file {
            Some(file) => file.write_others(servers).map(|()| true),
            None => Ok(false),
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
    looks: Arc<(Mutex<Looks>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread was asked for, and what it has done.
#[derive(Debug, Default)]
struct Looks {
    begun: u64,
    ended: u64,
    /// It is to look now.
    is_asked: bool,
    /// It is to end, or has.
    is_over: bool,
}

impl Watcher {
    /// Has `look` called at once, every two seconds, and whenever it is asked for.
    pub fn start(mut look: impl FnMut() + Send + 'static) -> Result<Self, ServerError> {
        let looks = Arc::new((Mutex::new(Looks::default()), Condvar::new()));
        let shared = looks.clone();
        let run = move || {
            let _over = Over(shared.clone());
            let (looks, changed) = &*shared;
            let mut now = looks.lock().expect("no holder panics here");
            while !now.is_over {
                now.begun += 1;
                now.is_asked = false;
                drop(now);
                look();
                now = looks.lock().expect("no holder panics here");
                now.ended = now.begun;
                changed.notify_all();
                let waits = |now: &mut Looks| !now.is_over && !now.is_asked;
                let waited = changed.wait_timeout_while(now, EVERY, waits);
                now = waited.expect("no holder panics here").0;
            }
        };
        let thread = std::thread::Builder::new().name("thalweg-watch".to_owned());
        let thread = thread.spawn(run).map_err(ServerError::System)?;
        Ok(Self {
            looks,
            thread: Some(thread),
        })
    }

    /// Has it look, and waits until a look is over that began after this call, or the thread has ended.
    pub fn look(&self) {
        let (looks, changed) = &*self.looks;
        let mut now = looks.lock().expect("no holder panics here");
        let awaited = now.begun + 1;
        now.is_asked = true;
        changed.notify_all();
        let waits = |now: &mut Looks| !now.is_over && now.ended < awaited;
        drop(changed.wait_while(now, waits));
    }
}

/// Says that the thread has ended, however it does.
struct Over(Arc<(Mutex<Looks>, Condvar)>);

impl Drop for Over {
    fn drop(&mut self) {
        let (looks, changed) = &*self.0;
        looks.lock().expect("no holder panics here").is_over = true;
        changed.notify_all();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(Over(self.looks.clone()));
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so, and watches no more.
            let _ = thread.join();
        }
    }
}

impl Watched {
    /// Looks once, and again after it has written the group file: of several servers that write it, the last one has
    /// then seen all that had. `said` is what the operator has heard and holds still: it is said once.
    pub fn look(&mut self, said: &mut BTreeSet<String>) {
        let mut wrong = BTreeSet::new();
        if let Err(refused) = self.rendezvous.check(&mut self.shared) {
            wrong.insert(format!(
                "others do not find this server of the cluster any more: {refused}"
            ));
        }
        while self.find_others(&mut wrong) {}
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

    /// Finds out where the others are. Gives whether the group file was written anew for it. `wrong`: what the operator is to know.
    fn find_others(&mut self, wrong: &mut BTreeSet<String>) -> bool {
        let contacts = match self.rendezvous.contacts(&mut self.shared) {
            Ok(contacts) => contacts,
            Err(refused) => {
                let path = self.shared.path("");
                wrong.insert(format!("{}: {refused}", path.display()));
                return false;
            }
        };
        self.take(&contacts);
        let found = Others::of(&contacts, self.cluster, self.own);
        let mut others = self.others.lock().expect("no holder panics here");
        others.take(found).unwrap_or_else(|error| {
            wrong.insert(format!("the group file does not name all servers: {error}"));
            false
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_look_that_is_asked_for_begins_after_it_was() {
        let (begins, begun) = mpsc::channel();
        let (goes_on, waits) = mpsc::channel::<()>();
        let mut watcher = Watcher::start(move || {
            begins.send(()).unwrap();
            let _ = waits.recv();
        })
        .unwrap();
        begun.recv().unwrap();
        let asked = |watcher: &Watcher| watcher.looks.0.lock().unwrap().is_asked;
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| watcher.look());
            while !asked(&watcher) {
                std::thread::yield_now();
            }
            // The one that was under way does not count.
            goes_on.send(()).unwrap();
            begun.recv().unwrap();
            assert!(!asks.is_finished());
            goes_on.send(()).unwrap();
            asks.join().unwrap();
        });
        drop(goes_on);
        let thread = watcher.thread.take().unwrap();
        drop(begun);
        // It panics at its next look, and nobody waits for it then.
        watcher.look();
        assert!(thread.join().is_err());
    }
}
