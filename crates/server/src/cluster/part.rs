//! A server's part in a cluster, from its start to its end: how it comes in, the service that links it with the others, and
//! which nodes of the table its shards are.
//!
//! ```text
//!   open ──► join ──► register, each shard ──► (the nodes are opened, run and end) ──► dropped
//!             │  rendezvous, voter's log, service, watcher
//! ```

use super::authority::{ClusterAuthority, PeerCertificates};
use super::client_files::ClientFiles;
use super::local_nodes::{Mailboxes, Reached};
use super::rank_file::{Membership, RECORD_FILE, Record};
use super::ranks::{Given, Ranks};
use super::refused::Refused;
use super::rendezvous::{Arrival, Decision, Founder, Rendezvous};
use super::shared::{Shared, SharedDirectory};
use super::watch::{Others, Voters, Watched, Watcher, peers_of, voters};
use crate::address;
use crate::config::Config;
use crate::directory::DataDirectory;
use crate::durable_file::make_private;
use crate::error::{ConfigError, ServerError};
use crate::exchange::Peers;
use crate::group_file::{GroupFile, OtherServer};
use crate::host::{self, Host, random_u128};
use crate::interruption::{Interruption, Patience};
use crate::member_file::MemberFile;
use crate::server_log::ServerLog;
use crate::shards::LOOK;
use broker::{Nodes, TableRole};
use cluster::links::{LinkSettings, LinksConfig, PeerId, PeerLinks, Security};
use cluster::member::Member;
use cluster::quorum::{Identity, RecoveryError, Settings, found, recover};
use cluster::service::{Remark, Service, ServiceHandle, ServiceParts};
use cluster::table::TableVoter;
use cluster::{ClusterId, VoterId};
use log::{Disk, OsDisk};
use memory::LockedFile;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use wire::record::{Endpoints, Labels};
use wire::table::Register;
use wire::{DirectoryId, NodeId};

/// The voter's log, in the data directory of the server's first shard.
const QUORUM: &str = "quorum";
/// How often an operator hears whom a start waits for.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// In a path: the rank.
const RANK: &str = "{rank}";
/// Voters of a new cluster, where nobody says how many.
const VOTERS: u32 = 3;

/// A server's part in a cluster. Dropped, it ends: to be done when its nodes have.
pub(crate) struct ClusterPart {
    ranks: Ranks,
    voters: u32,
    host: Host,
    listen: String,
    /// What the operator calls it.
    labels: BTreeMap<String, String>,
    patience: Duration,
    interruption: Interruption,
    log: ServerLog,
    shared: Option<SharedDirectory>,
    clients: ClientFiles,
    mailboxes: Arc<Mailboxes>,
    running: Option<Running>,
}

impl std::fmt::Debug for ClusterPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterPart")
            .field("ranks", &self.ranks)
            .finish_non_exhaustive()
    }
}

/// What runs from [`ClusterPart::join`] on. In the order in which it ends.
struct Running {
    /// Ended when this is dropped.
    watcher: Watcher,
    service: Service,
    cluster: ClusterId,
    others: Arc<Mutex<Others>>,
    /// Nobody else has the voter's log before the service has ended, whenever the shard gives its directory back.
    _lock: Arc<LockedFile>,
}

/// Which node of its table a shard is, and its way to the others.
pub(crate) struct Seat {
    pub role: TableRole,
    pub nodes: Arc<Nodes>,
    pub peers: Option<Peers>,
}

/// What a server does about its voter.
struct Vote {
    voter: VoterId,
    /// If it founds with it: all who do.
    founders: Option<Vec<Founder>>,
}

impl ClusterPart {
    /// Finds out which server this is, and what the cluster is to clients; and what of the settings follows from that.
    /// Nobody hears of it yet. `interruption` ends what waits for other servers later.
    ///
    /// # Errors
    /// If the launcher says nothing, or the shared directory cannot be used.
    pub fn open(
        config: &mut Config,
        log: &ServerLog,
        interruption: &Interruption,
    ) -> Result<Option<Self>, ServerError> {
        let (Some(path), Some(ranks)) = (config.cluster.clone(), placed(config)?) else {
            return Ok(None);
        };
        let host = Host::this();
        let mut shared = SharedDirectory::open(&path, &host)?.until(interruption);
        let clients = ClientFiles::open(&shared.path(""), &host)?;
        let voters = match config.voters {
            Some(voters) => voters,
            None => voters_of(&mut shared, ranks.size)?,
        };
        Ok(Some(Self {
            voters,
            host,
            listen: config.cluster_listen.clone(),
            // They were checked with all settings.
            labels: labels_of(config),
            patience: Duration::from_millis(config.cluster_wait_ms.into()),
            interruption: interruption.clone(),
            log: log.clone(),
            shared: Some(shared),
            clients,
            mailboxes: Arc::default(),
            running: None,
            ranks,
        }))
    }

    /// What the cluster's servers are to clients.
    pub fn clients(&self) -> &ClientFiles {
        &self.clients
    }

    /// Becomes one of the cluster's servers, with the data directory of the first shard: founds the cluster together with others,
    /// joins it, or goes on. Waits for those others as long as the settings say.
    ///
    /// # Errors
    /// Who has not come, or what cannot be right together.
    pub fn join(
        &mut self,
        directory: &DataDirectory,
        endpoints: &[String],
    ) -> Result<(), ServerError> {
        let own = directory.id();
        let before = MemberFile::read(directory.path())?;
        if before.is_none() {
            refuse_used(directory.path())?;
        }
        let mut shared = self.shared.take().expect("a server joins once");
        let (security, certificates) = self.security(own, &mut shared)?;
        let mut links = self.listen(own, security)?;
        let arrival = Arrival {
            rank: self.ranks.rank,
            size: self.ranks.size,
            voters: self.voters,
            settings: Vec::new(),
            directory: own,
            peers: vec![self.host.named(links.address())],
            endpoints: vec![endpoints.to_vec()],
            member: before.map(|file| file.member),
        };
        let path: PathBuf = shared.path("").components().collect();
        let refused = |refused: Refused| match refused {
            Refused::File(error) => error,
            Refused::Interrupted(waiting) => ServerError::Interrupted(waiting.to_string()),
            other => ServerError::Directory {
                directory: path.clone(),
                why: other.to_string(),
            },
        };
        let mut rendezvous =
            Rendezvous::enter(arrival, &self.host, &mut shared).map_err(refused)?;
        let decision = self.meet(&mut rendezvous, &mut shared).map_err(refused)?;
        let contacts = rendezvous.contacts(&mut shared).map_err(refused)?;
        let (cluster, vote, mut known) = match decision {
            Decision::Found {
                cluster,
                voter,
                founders,
            } => {
                let known = founders.iter();
                let known = known
                    .map(|one| (one.directory, one.peers.clone()))
                    .collect();
                let founders = Some(founders);
                (cluster, Some(Vote { voter, founders }), known)
            }
            Decision::Join { cluster, through } => (cluster, None, voters(&through, cluster)),
            Decision::GoOn(Membership { cluster, voter }) => {
                let vote = voter.map(|voter| Vote {
                    voter,
                    founders: None,
                });
                (cluster, vote, Voters::new())
            }
        };
        known.extend(voters(&contacts, cluster));
        known.remove(&own);
        let member = Membership {
            cluster,
            voter: vote.as_ref().map(|vote| vote.voter),
        };
        // The log stays open: who goes on with it has the same disk.
        let disk = Arc::new(OsDisk::new());
        let voter = vote.map(|vote| open_voter(disk.as_ref(), directory, (cluster, vote)));
        let voter = voter.transpose()?;
        // The log is durable before others may count on it, and no message has left.
        let file = MemberFile {
            member,
            shared: path.clone(),
        };
        file.write(directory.path())?;
        rendezvous.announce(member, &mut shared).map_err(refused)?;
        self.log.info(format!(
            "server {} of {} of cluster {:032x}, in {}{}",
            self.ranks.rank,
            self.ranks.size,
            cluster.0,
            path.display(),
            match member.voter {
                Some(voter) => format!(", with voter {}", voter.0),
                None => String::new(),
            }
        ));
        links.set_cluster(cluster);
        let service = self.serve(own, (voter, disk), links, &known)?;
        let others = Others::of(&contacts, cluster, own);
        let others = Arc::new(Mutex::new(others));
        let mut watched = Watched {
            others: others.clone(),
            rendezvous,
            shared,
            cluster,
            own,
            voters: known,
            certificates,
            service: service.handle(),
            log: self.log.clone(),
        };
        let mut said = BTreeSet::new();
        let watcher = Watcher::start(move || watched.look(&mut said))?;
        self.running = Some(Running {
            watcher,
            service,
            cluster,
            others,
            _lock: directory.lock(),
        });
        Ok(())
    }

    /// What links are protected by.
    fn security(
        &self,
        own: DirectoryId,
        shared: &mut SharedDirectory,
    ) -> Result<(Security, Option<PeerCertificates>), ServerError> {
        if !address::is_encrypted(&self.listen) {
            return Ok((Security::Plain, None));
        }
        let now = SystemTime::now();
        let authority = ClusterAuthority::open(shared, now, self.patience)?;
        let hosts = host::names(&self.host, std::slice::from_ref(&self.listen), &[]);
        let (certificates, issued) = PeerCertificates::new(authority, own, hosts, now)?;
        let security = Security::Tls {
            authority: issued.authority.into_bytes(),
            chain: issued.chain.into_bytes(),
            key: issued.key.into_bytes(),
        };
        Ok((security, Some(certificates)))
    }

    fn listen(&self, own: DirectoryId, security: Security) -> Result<PeerLinks, ServerError> {
        let links = PeerLinks::open(&LinksConfig {
            // It is not known yet.
            cluster: ClusterId(0),
            own: PeerId::from(own),
            listen: self.listen.clone(),
            security,
            settings: LinkSettings::default(),
            seed: random_u128() as u64,
        });
        links.map_err(|source| ServerError::Listen {
            address: self.listen.clone(),
            source,
        })
    }

    /// Waits for the others, and says for whom.
    fn meet(
        &self,
        rendezvous: &mut Rendezvous,
        shared: &mut SharedDirectory,
    ) -> Result<Decision, Refused> {
        let began = Instant::now();
        loop {
            let left = self.patience.saturating_sub(began.elapsed());
            let mut met = rendezvous.meet(left.min(SAID_EVERY), shared);
            if let Err(Refused::Waiting(waiting) | Refused::Interrupted(waiting)) = &mut met {
                waiting.waited = began.elapsed();
            }
            match met {
                Err(Refused::Waiting(waiting)) if left > SAID_EVERY => {
                    self.log.info(format!(
                        "waiting for other servers of the cluster: {waiting}"
                    ));
                }
                other => return other,
            }
        }
    }

    fn serve(
        &self,
        own: DirectoryId,
        (voter, disk): (Option<TableVoter>, Arc<dyn Disk>),
        links: PeerLinks,
        voters: &Voters,
    ) -> Result<Service, ServerError> {
        let began = Instant::now();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let first_number = since.unwrap_or_default().as_nanos() as u64;
        let log = self.log.clone();
        let parts = ServiceParts {
            member: Member::new(own, voter, first_number, Duration::ZERO),
            links,
            peers: peers_of(voters),
            voters: voters.keys().copied().collect(),
            disk,
            nodes: Box::new(Reached(self.mailboxes.clone())),
            log: Box::new(move |remark| match remark {
                Remark::Warning(line) => log.warn(line),
                Remark::Detail(line) => log.debug(&line),
            }),
        };
        Service::start(parts, began).map_err(ServerError::System)
    }

    /// Asks which node of the table a shard is, which the table has from then on. Waits for an answer as long as the settings
    /// say.
    ///
    /// # Errors
    /// If most of the voters are not there, or it is refused.
    pub fn register(
        &self,
        directory: DirectoryId,
        endpoints: Vec<String>,
        shard: u32,
    ) -> Result<Seat, ServerError> {
        let running = self
            .running
            .as_ref()
            .expect("a server joins before its shards register");
        let service = running.service.handle();
        let own = [
            ("host".to_owned(), self.host.name.clone()),
            ("rank".to_owned(), self.ranks.rank.to_string()),
            ("pid".to_owned(), std::process::id().to_string()),
        ];
        let labels = self.labels.clone().into_iter().chain(own).collect();
        service.register(Register {
            directory,
            endpoints: Endpoints(endpoints),
            labels: Labels(labels),
            shard,
        });
        let node = self.wait_for_node(directory)?;
        Ok(self.seat(node, service))
    }

    /// Has the group file written, with the cluster's id and the other servers; and again whenever these are elsewhere. Once
    /// this has returned on several servers, the file names all of them, whichever wrote it last.
    ///
    /// # Errors
    /// As `write`.
    pub fn publish(
        &self,
        write: impl FnOnce(u128, Vec<OtherServer>) -> Result<GroupFile, ServerError>,
    ) -> Result<GroupFile, ServerError> {
        let running = self
            .running
            .as_ref()
            .expect("a server joins before clients find it");
        let mut others = running.others.lock().expect("no holder panics here");
        let file = others.publish(|others| write(running.cluster.0, others))?;
        drop(others);
        // Those that have come since this one looked.
        running.watcher.look();
        Ok(file)
    }

    fn wait_for_node(&self, directory: DirectoryId) -> Result<NodeId, ServerError> {
        let began = Instant::now();
        let mut said = Duration::ZERO;
        loop {
            let waited = began.elapsed();
            let left = self.patience.saturating_sub(waited);
            match self.mailboxes.wait_for(directory, left.min(LOOK)) {
                Some(Ok(registered)) => return Ok(registered.node),
                None if self.interruption.wait(Duration::ZERO) => {
                    return Err(ServerError::Interrupted(format!(
                        "after {} s no server led the cluster's table: more than half of its {} voters have to run",
                        waited.as_secs(),
                        self.voters
                    )));
                }
                Some(Err(error)) => {
                    return Err(ServerError::Node(format!(
                        "the cluster does not take this data directory: {}",
                        error.message
                    )));
                }
                None if left <= LOOK => {
                    return Err(ServerError::Node(format!(
                        "no server has led the cluster's table for {} s: more than half of its {} voters have to run and \
                         to reach each other",
                        self.patience.as_secs(),
                        self.voters
                    )));
                }
                None if waited >= said + SAID_EVERY => {
                    said = waited;
                    let text = "waiting for more than half of the cluster's voters";
                    self.log.info(text.to_owned());
                }
                None => {}
            }
        }
    }

    fn seat(&self, node: NodeId, service: ServiceHandle) -> Seat {
        let patience = Patience {
            time: self.patience,
            interruption: self.interruption.clone(),
        };
        let own = self.mailboxes.of(node);
        Seat {
            role: TableRole::Follows(node),
            nodes: Arc::new(Nodes::of_table()),
            peers: Some(Peers::of_cluster(node, own, service, patience)),
        }
    }
}

/// Which of the servers of a cluster this one is, and what of its settings follows from that; `None` if it is alone.
///
/// # Errors
/// If neither the settings nor a launcher say it.
pub(crate) fn placed(config: &mut Config) -> Result<Option<Ranks>, ConfigError> {
    if config.cluster.is_none() {
        return Ok(None);
    }
    let given = Given {
        rank: config.rank,
        size: config.size,
    };
    let ranks = Ranks::find(given, |name| std::env::var(name).ok());
    let ranks = ranks.map_err(|error| ConfigError::Value {
        key: "cluster".to_owned(),
        why: error.to_string(),
    })?;
    place_by_rank(config, ranks.rank);
    Ok(Some(ranks))
}

/// What the operator calls a server, and its interface.
fn labels_of(config: &Config) -> BTreeMap<String, String> {
    let nic = Some(&config.nic).filter(|nic| !nic.is_empty());
    let nic = nic.map(|nic| ("nic".to_owned(), nic.clone()));
    let labels = config.labels().unwrap_or_default();
    labels.into_iter().chain(nic).collect()
}

/// Refuses a data directory of a cluster where no cluster is said.
pub(crate) fn refuse_without(config: &Config) -> Result<(), ServerError> {
    if config.cluster.is_some() {
        return Ok(());
    }
    match MemberFile::read(&config.directory)? {
        None => Ok(()),
        Some(file) => Err(ServerError::Directory {
            directory: config.directory.clone(),
            why: format!(
                "it is a part of cluster {:032x}: start it with --cluster {}",
                file.member.cluster.0,
                file.shared.display()
            ),
        }),
    }
}

/// A path of the settings may name the rank; the data directory's does so where nothing else was said.
fn place_by_rank(config: &mut Config, rank: u32) {
    let place = |path: &mut PathBuf| {
        let text = path.to_string_lossy();
        if text.contains(RANK) {
            *path = text.replace(RANK, &rank.to_string()).into();
        }
    };
    if config.directory == Config::default().directory {
        config.directory.as_mut_os_string().push(format!("-{RANK}"));
    }
    place(&mut config.directory);
    if let Some(path) = &mut config.group_file {
        place(path);
    }
}

/// As many voters as the cluster was founded with; of a new one of so many servers as is usual.
fn voters_of(shared: &mut SharedDirectory, size: u32) -> Result<u32, ServerError> {
    let record = shared.read(RECORD_FILE)?;
    // One that cannot be read is refused at the rendezvous, with its name.
    let record = record.and_then(|text| Record::read(&text).ok());
    let founders = record.map_or(0, |record| record.founders.len() as u32);
    Ok(match founders {
        0 if size < VOTERS => 1,
        0 => VOTERS,
        founders => founders,
    })
}

/// Refuses a data directory with topics of a server that was alone: the cluster's table does not have them.
fn refuse_used(directory: &Path) -> Result<(), ServerError> {
    match ["internal", "shards"].into_iter().find(|name| directory.join(name).exists()) {
        None => Ok(()),
        Some(_) => Err(ServerError::Directory {
            directory: directory.to_owned(),
            why: "a server that was alone has used it, and the cluster does not know its topics: begin with an empty data \
                  directory, and have the topics copied by `thalweg relay mirror`"
                .to_owned(),
        }),
    }
}

/// Finds the voter's log, or begins it.
fn open_voter(
    disk: &dyn Disk,
    directory: &DataDirectory,
    (cluster, vote): (ClusterId, Vote),
) -> Result<TableVoter, ServerError> {
    let path = directory.path().join(QUORUM);
    let identity = Identity {
        cluster,
        voter: vote.voter,
        directory: directory.id(),
    };
    let failed = |error: RecoveryError| ServerError::Directory {
        directory: path.clone(),
        why: error.to_string(),
    };
    if let Some(founders) = vote.founders {
        make_private(&path)?;
        let founders: Vec<_> = founders
            .iter()
            .map(|one| (one.voter, one.directory))
            .collect();
        match found(disk, &path, identity, &founders, random_u128() as u64) {
            // A start before this one died when it had begun it.
            Ok(()) | Err(RecoveryError::Exists(_)) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let recovered = recover(disk, &path, identity).map_err(failed)?;
    let voter = TableVoter::open(
        recovered,
        Settings::default(),
        Duration::ZERO,
        random_u128() as u64,
    );
    voter.map_err(ServerError::Node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_the_rank_where_they_say_so_and_the_data_directory_where_nothing_is_said() {
        let mut config = Config::default();
        place_by_rank(&mut config, 2);
        assert_eq!(config.directory, PathBuf::from("thalweg-data-2"));
        assert_eq!(config.group_file, Some(PathBuf::from("thalweg.json")));
        config.directory = PathBuf::from("/local/{rank}/data");
        config.group_file = Some(PathBuf::from("/home/g-{rank}.json"));
        place_by_rank(&mut config, 11);
        assert_eq!(config.directory, PathBuf::from("/local/11/data"));
        assert_eq!(config.group_file, Some(PathBuf::from("/home/g-11.json")));
    }
}
