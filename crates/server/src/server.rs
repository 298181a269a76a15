//! A running server: one node, or several that share a table.

use crate::cluster::{self, ClusterPart, Seat};
use crate::config::Config;
use crate::error::{ConfigError, ServerError};
use crate::exchange::Exchange;
use crate::fate::Fate;
use crate::group_file::GroupFile;
use crate::interruption::Interruption;
use crate::nic;
use crate::running::{Ended, Part, Place, Running, place};
use crate::server_log::ServerLog;
use crate::shards;
use crate::storages::Storages;
use broker::{Counters, Nodes, TableRole};
use std::sync::Arc;
use std::time::Duration;
use wire::{DirectoryId, NodeId, ServerInstance};

/// A server that runs on threads of its own, one for each of its shards, until it is drained, killed or
/// dropped; dropping it drains it. When one of its shards ends, all do.
#[derive(Debug)]
pub struct Server {
    first: Box<Running>,
    /// Its other shards, in their order.
    others: Vec<Running>,
    group_file: Option<Box<GroupFile>>,
    drain_timeout: Duration,
    fate: Arc<Fate>,
    /// Its part in a cluster, if it has one, which ends when all its shards have.
    cluster: Option<Box<ClusterPart>>,
}

/// Asks a server to drain, from any thread.
#[derive(Debug, Clone)]
pub struct DrainHandle(Arc<Fate>);

impl DrainHandle {
    /// Finish what was taken, within `timeout`, and end. Does not wait.
    pub fn drain(&self, timeout: Duration) {
        self.0.drain(timeout);
    }
}

impl Server {
    /// Starts a server that listens, and writes its group file. What it has to say to an
    /// operator goes to `log`, from any thread: a function of lines, or a subscriber of
    /// `tracing`.
    pub fn start(config: Config, log: impl Into<ServerLog>) -> Result<Self, ServerError> {
        Self::start_until(config, log, &Interruption::default())
    }

    /// [`Server::start`], which `interruption` ends while it waits for other servers of its cluster.
    ///
    /// # Errors
    /// Then [`ServerError::Interrupted`]. Nothing of the server runs.
    pub fn start_until(
        config: Config,
        log: impl Into<ServerLog>,
        interruption: &Interruption,
    ) -> Result<Self, ServerError> {
        let storages = Storages::new();
        Self::launch(&config, &storages, &log.into(), Some(interruption))
    }

    /// Starts a server within this program: it listens at an `inproc://`
    /// address only, that [`Server::endpoints`] has, and writes no group file.
    pub fn embedded(config: Config, log: impl Into<ServerLog>) -> Result<Self, ServerError> {
        Self::launch(&config, &Storages::new(), &log.into(), None)
    }

    /// [`Server::start`] with kinds of storage of the caller's.
    pub fn start_with(
        config: Config,
        storages: Storages,
        log: impl Into<ServerLog>,
    ) -> Result<Self, ServerError> {
        let interruption = Interruption::default();
        Self::launch(&config, &storages, &log.into(), Some(&interruption))
    }

    /// [`Server::embedded`] with kinds of storage of the caller's.
    pub fn embedded_with(
        config: Config,
        storages: Storages,
        log: impl Into<ServerLog>,
    ) -> Result<Self, ServerError> {
        Self::launch(&config, &storages, &log.into(), None)
    }

    /// `interruption`: what ends its waiting for other servers; `None` of one within another program, which has no others.
    fn launch(
        config: &Config,
        storages: &Storages,
        log: &ServerLog,
        interruption: Option<&Interruption>,
    ) -> Result<Self, ServerError> {
        config.validate()?;
        let mut config = config.clone();
        nic::settle(&mut config)?;
        let is_embedded = interruption.is_none();
        let mut cluster = match interruption {
            Some(interruption) => ClusterPart::open(&mut config, log, interruption)?.map(Box::new),
            None if config.cluster.is_some() => {
                return Err(ServerError::Config(ConfigError::Value {
                    key: "cluster".to_owned(),
                    why: "a server within another program is alone".to_owned(),
                }));
            }
            None => None,
        };
        let config = &config;
        cluster::refuse_without(config)?;
        for (key, cores) in [("cores", &config.cores), ("disk_cores", &config.disk_cores)] {
            place(key, cores, || Ok(()))?;
        }
        let count = shards::count(config)?;
        // Before the first directory is made.
        let owns = shards::configs_of(config, count)?;
        let drain_timeout = Duration::from_millis(config.drain_timeout_ms.into());
        let fate = Fate::new(drain_timeout);
        let nodes = Arc::new(Nodes::new(count as usize));
        let exchange = Exchange::new(count);
        let seat = |shard: u32| Seat {
            role: match shard {
                0 if count == 1 => TableRole::Alone,
                0 => TableRole::Leads,
                shard => TableRole::Follows(NodeId(shard)),
            },
            nodes: nodes.clone(),
            peers: (count > 1).then(|| exchange.of(NodeId(shard))),
        };
        let mut owns = owns.into_iter();
        let own = owns.next().expect("there is a first shard");
        let part = Part {
            place: place_of(cluster.as_deref_mut(), 0, seat),
            count,
            first: None,
            fate: fate.clone(),
            is_embedded,
        };
        let first = Box::new(Running::launch(own, storages.clone(), log, part)?);
        let mut server = Self {
            first,
            others: Vec::new(),
            group_file: None,
            drain_timeout,
            fate: fate.clone(),
            cluster,
        };
        for (shard, own) in (1..).zip(owns) {
            let part = Part {
                place: place_of(server.cluster.as_deref_mut(), shard, seat),
                count,
                first: Some(&server.first),
                fate: fate.clone(),
                is_embedded,
            };
            match Running::launch(own, storages.clone(), log, part) {
                Ok(other) => server.others.push(other),
                Err(error) => {
                    // The others end with it. One that had ended already is why it failed.
                    server.fate.drain(drain_timeout);
                    server.join()?;
                    return Err(error);
                }
            }
        }
        // Who finds the server finds all of it.
        if let Some(path) = config.group_file.as_ref().filter(|_| !is_embedded) {
            let file = match &server.cluster {
                Some(cluster) => {
                    cluster.publish(|id, others| server.first.publish(path, Some((id, others))))?
                }
                None => server.first.publish(path, None)?,
            };
            server.group_file = Some(Box::new(file));
        }
        Ok(server)
    }

    /// Where it listens, complete with ports; the first is the preferred one. Clients find its other shards by
    /// themselves.
    pub fn endpoints(&self) -> &[String] {
        &self.first.endpoints
    }

    /// Where it listens for clients of AMQP, complete with ports.
    pub fn amqp_endpoints(&self) -> &[String] {
        &self.first.amqp_endpoints
    }

    /// Where each of its shards listens, the first one before the others.
    pub fn shards(&self) -> impl Iterator<Item = &[String]> {
        let shards = std::iter::once(&*self.first).chain(&self.others);
        shards.map(|shard| shard.endpoints.as_slice())
    }

    /// The permanent id of its data directory.
    pub fn directory(&self) -> DirectoryId {
        self.first.directory
    }

    /// This run of a server.
    pub fn instance(&self) -> ServerInstance {
        self.first.instance
    }

    /// What clients present where the transport does not prove who they are.
    pub fn token(&self) -> &[u8; 32] {
        &self.first.token
    }

    /// What its first shard counts, as in the status; to be read at any time, without asking the server.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.first.counters
    }

    /// What asks it to drain.
    pub fn drain_handle(&self) -> DrainHandle {
        DrainHandle(self.fate.clone())
    }

    /// Finishes what was taken, refuses the rest, closes the data and ends.
    ///
    /// # Errors
    /// [`ServerError::DrainTimeout`] if that took longer than `timeout`, and
    /// what made the server end on its own.
    pub fn drain(mut self, timeout: Duration) -> Result<(), ServerError> {
        self.fate.drain(timeout);
        self.join()
    }

    /// Waits until it has begun to end: somebody asked for a drain, by a [`DrainHandle`] or as a
    /// client, or it ended on its own. [`Server::wait`] waits for the rest.
    pub fn wait_for_drain(&self) {
        self.fate.wait();
    }

    /// Waits until it has ended: drained by a [`DrainHandle`] or a client.
    pub fn wait(mut self) -> Result<(), ServerError> {
        self.join()
    }

    /// Ends at once, closing nothing, as if the process had died: for tests.
    pub fn kill(mut self) {
        self.fate.kill();
        // However it ended, it was to be killed.
        let _ = self.join();
    }

    /// Waits for all shards. What went wrong first is what is said.
    fn join(&mut self) -> Result<(), ServerError> {
        let mut ended: Vec<_> = self.others.iter_mut().map(Running::join).collect();
        ended.insert(0, self.first.join());
        // After a death it stays behind, and so it does here.
        let is_as_dead = ended.iter().any(|ended| match ended {
            Ok(ended) => *ended == Ended::Killed,
            Err(error) => !matches!(
                error,
                ServerError::Unclean(_) | ServerError::DrainTimeout { .. }
            ),
        });
        let ended = ended.into_iter().try_for_each(|ended| ended.map(drop));
        self.cluster = None;
        let removed = match self.group_file.take().filter(|_| !is_as_dead) {
            Some(file) => file.remove(),
            None => Ok(()),
        };
        ended.and(removed)
    }
}

/// The table that a shard's node is of: the cluster's, or the server's own.
fn place_of(cluster: Option<&mut ClusterPart>, shard: u32, own: impl Fn(u32) -> Seat) -> Place<'_> {
    match cluster {
        Some(cluster) => Place::Cluster(cluster, shard),
        None => Place::Own(own(shard)),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.first.may_run() {
            self.fate.drain(self.drain_timeout);
            // A program that wants to know how it went calls `drain`.
            let _ = self.join();
        }
    }
}
