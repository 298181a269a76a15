//! A running server: one node, or several that share a table.

use crate::config::Config;
use crate::error::ServerError;
use crate::exchange::Exchange;
use crate::fate::Fate;
use crate::group_file::GroupFile;
use crate::running::{Ended, Part, Running, place};
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
        Self::launch(&config, &Storages::new(), &log.into(), false)
    }

    /// Starts a server within this program: it listens at an `inproc://`
    /// address only, that [`Server::endpoints`] has, and writes no group file.
    pub fn embedded(config: Config, log: impl Into<ServerLog>) -> Result<Self, ServerError> {
        Self::launch(&config, &Storages::new(), &log.into(), true)
    }

    /// [`Server::start`] with kinds of storage of the caller's.
    pub fn start_with(
        config: Config,
        storages: Storages,
        log: impl Into<ServerLog>,
    ) -> Result<Self, ServerError> {
        Self::launch(&config, &storages, &log.into(), false)
    }

    /// [`Server::embedded`] with kinds of storage of the caller's.
    pub fn embedded_with(
        config: Config,
        storages: Storages,
        log: impl Into<ServerLog>,
    ) -> Result<Self, ServerError> {
        Self::launch(&config, &storages, &log.into(), true)
    }

    fn launch(
        config: &Config,
        storages: &Storages,
        log: &ServerLog,
        is_embedded: bool,
    ) -> Result<Self, ServerError> {
        config.validate()?;
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
        let part = |shard: u32| Part {
            role: match shard {
                0 if count == 1 => TableRole::Alone,
                0 => TableRole::Leads,
                shard => TableRole::Follows(NodeId(shard)),
            },
            nodes: nodes.clone(),
            peers: (count > 1).then(|| exchange.of(NodeId(shard))),
            first: None,
            fate: fate.clone(),
            is_embedded,
        };
        let mut owns = owns.into_iter();
        let own = owns.next().expect("there is a first shard");
        let first = Box::new(Running::launch(own, storages.clone(), log, part(0))?);
        let mut server = Self {
            first,
            others: Vec::new(),
            group_file: None,
            drain_timeout,
            fate: fate.clone(),
        };
        for (shard, own) in (1..).zip(owns) {
            let part = Part {
                first: Some(&server.first),
                ..part(shard)
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
            server.group_file = Some(Box::new(server.first.publish(path)?));
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
        let removed = match self.group_file.take().filter(|_| !is_as_dead) {
            Some(file) => file.remove(),
            None => Ok(()),
        };
        ended.and(removed)
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
