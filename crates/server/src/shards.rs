//! Several nodes in one process: how many, what each of them has of the settings, and how they talk.
//!
//! ```text
//!   DIRECTORY            node 0, which leads the table; token, access and certificates are everybody's
//!   DIRECTORY/shards/K   node K, which follows: its own partitions, ledger, lock and audit trail
//!
//!   node 0's thread ── Exchange: a mailbox for each node, and its waker ── node K's thread
//! ```

use crate::address;
use crate::config::Config;
use crate::error::{ConfigError, ServerError};
use crate::exchange::Peers;
use crate::shard_count::{SHARDS_MAX, Shards};
use crate::system;
use broker::controller::LEADER;
use broker::node::Now;
use broker::{FromLeader, PeerInput, Upstream};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wire::table::TableMessage;

/// Processors for one shard, of those that `auto` looks at: its thread, and its disk threads and clients.
const PROCESSORS_EACH: usize = 2;
/// Where the shards behind the first are, in the data directory.
const FOLDER: &str = "shards";
/// How often it is looked whether a start that waits for the cluster's table is to end.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// How many shards a start with these settings has.
///
/// # Errors
/// If the directory has more: their topics would not be served.
pub(crate) fn count(config: &Config) -> Result<u32, ConfigError> {
    let refuse = |why: String| ConfigError::Value {
        key: "shards".to_owned(),
        why,
    };
    let directory = &config.directory;
    let there = shards_of(directory).map_err(refuse)?;
    let count = match config.shards {
        Shards::Kept => there,
        Shards::Auto => {
            let processors = match config.cores.count() {
                0 => std::thread::available_parallelism().map_or(1, usize::from),
                chosen => chosen,
            };
            let fit = (processors / PROCESSORS_EACH) as u64;
            // A payload has to fit into the memory of one.
            let fit = fit.min(config.memory_bytes_max / config.payload_bytes_max.max(1));
            (fit as u32).clamp(1, SHARDS_MAX).max(there)
        }
        Shards::Count(count) => count,
    };
    if count < there {
        return Err(refuse(format!(
            "{} has {there} shards, and with {count} the topics of the others would not be served",
            directory.display()
        )));
    }
    Ok(count)
}

/// How many shards a data directory has.
fn shards_of(directory: &Path) -> Result<u32, String> {
    let folder = directory.join(FOLDER);
    let failed = |error: std::io::Error| format!("listing {}: {error}", folder.display());
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(1),
        other => other.map_err(failed)?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    match numbers.iter().zip(1..).find(|(there, due)| *there != due) {
        Some((_, due)) => Err(format!(
            "{} is missing, where one behind it is there: its topics would not be served",
            directory_of(directory, due).display()
        )),
        None => Ok(1 + numbers.len() as u32),
    }
}

/// Whether a data directory has several shards.
pub(crate) fn has_several(directory: &Path) -> bool {
    shards_of(directory) != Ok(1)
}

/// The directory of a shard.
pub(crate) fn directory_of(directory: &Path, shard: u32) -> PathBuf {
    match shard {
        0 => directory.to_owned(),
        other => directory.join(FOLDER).join(other.to_string()),
    }
}

/// The settings of all of so many shards.
///
/// # Errors
/// If one is not valid, or two of them would listen at one address.
pub(crate) fn configs_of(config: &Config, count: u32) -> Result<Vec<Config>, ConfigError> {
    let owns: Result<Vec<_>, _> = (0..count)
        .map(|shard| config_of(config, shard, count))
        .collect();
    let owns = owns?;
    let mut seen = BTreeMap::new();
    for (shard, own) in owns.iter().enumerate() {
        let fixed = own.listen.iter().chain(own.amqp_alone());
        for address in fixed.filter(|address| !address.ends_with(":0")) {
            if let Some(other) = seen.insert(address, shard).filter(|other| *other != shard) {
                return Err(ConfigError::Value {
                    key: "listen".to_owned(),
                    why: format!("shards {other} and {shard} would both listen at {address}"),
                });
            }
        }
    }
    Ok(owns)
}

/// The settings of one of so many shards: its own directory and addresses, and its part of memory and threads.
fn config_of(config: &Config, shard: u32, count: u32) -> Result<Config, ConfigError> {
    let listen = config.listen.iter();
    let listen: Result<Vec<String>, ConfigError> = listen
        .map(|address| {
            address_of(address, shard).map_err(|why| ConfigError::Value {
                key: "listen".to_owned(),
                why,
            })
        })
        .collect();
    let own = Config {
        directory: directory_of(&config.directory, shard),
        listen: listen?,
        memory_bytes_max: config.memory_bytes_max / u64::from(count),
        disk_threads: (config.disk_threads / count).max(1),
        // Clients of AMQP know no other nodes: what they make and use is on the first.
        amqp: match shard {
            0 => config.amqp.clone(),
            _ => Vec::new(),
        },
        group_file: None,
        ..config.clone()
    };
    own.validate()?;
    Ok(own)
}

/// Where a shard listens if the first does so at `address`: at the port that is so many higher, unless the system
/// chooses; at a socket whose name ends with its number.
fn address_of(address: &str, shard: u32) -> Result<String, String> {
    if shard == 0 {
        return Ok(address.to_owned());
    }
    if address::socket_path(address).is_some() {
        return Ok(format!("{address}.{shard}"));
    }
    let Some((host, port)) = address.rsplit_once(':') else {
        return Err(format!("{address}: the port is missing"));
    };
    match port.parse::<u16>() {
        Ok(0) => Ok(address.to_owned()),
        Ok(port) => match u32::from(port) + shard {
            port if port <= u16::MAX.into() => Ok(format!("{host}:{port}")),
            port => Err(format!(
                "{address}: shard {shard} would listen at port {port}"
            )),
        },
        Err(_) => Err(format!("{address}: {port:?} is no port")),
    }
}

/// The way to the leader of a node that is being opened.
pub(crate) struct Joining<'a> {
    peers: &'a Peers,
    started: Instant,
}

impl<'a> Joining<'a> {
    /// The leader hears that the link stands, or is sought.
    pub fn new(peers: &'a Peers, started: Instant) -> Self {
        peers.follow();
        Self { peers, started }
    }
}

impl Upstream for Joining<'_> {
    fn now(&mut self) -> Now {
        system::now(self.started)
    }

    fn send(&mut self, message: TableMessage) {
        self.peers.send(LEADER, message);
    }

    fn receive(&mut self, within: Duration) -> FromLeader {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let time = match self.peers.patience() {
                Some(patience) if patience.interruption.wait(Duration::ZERO) => {
                    return FromLeader::Interrupted;
                }
                Some(_) => left.min(LOOK),
                None => left,
            };
            match self.peers.wait_for_next(time) {
                Some(PeerInput::Message(LEADER, message)) => return FromLeader::Message(message),
                Some(PeerInput::Down(LEADER)) if self.peers.is_fixed() => return FromLeader::Gone,
                Some(PeerInput::Down(LEADER)) => return FromLeader::Cut,
                Some(PeerInput::Up(LEADER)) => return FromLeader::Linked,
                // Of a node that matters to the leader alone.
                Some(_) => {}
                None if time < left => {}
                None => return FromLeader::Nothing,
            }
        }
    }

    fn is_linked(&self) -> bool {
        self.peers.is_fixed()
    }

    fn patience(&self) -> Option<Duration> {
        self.peers.patience().map(|patience| patience.time)
    }
}

/// Refuses what is done to the files of one data directory alone.
pub(crate) fn refuse_several(directory: &Path, what: &str) -> Result<(), ServerError> {
    match has_several(directory) {
        false => Ok(()),
        true => Err(ServerError::Directory {
            directory: directory.to_owned(),
            why: format!(
                "it has several shards, of which {what} takes the first alone: end the server, and copy \
                 the directory as a whole"
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Exchange;
    use broker::node::Input;
    use wire::NodeId;

    fn count_of(config: &mut Config, shards: Shards) -> Result<u32, ConfigError> {
        config.shards = shards;
        count(config)
    }

    #[test]
    fn a_directory_keeps_its_shards_and_refuses_fewer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut config = Config {
            directory: path.to_owned(),
            ..Config::default()
        };
        assert_eq!(count_of(&mut config, Shards::Kept).unwrap(), 1);
        assert_eq!(count_of(&mut config, Shards::Count(3)).unwrap(), 3);
        for shard in [1, 2] {
            std::fs::create_dir_all(directory_of(path, shard)).unwrap();
        }
        assert_eq!(count_of(&mut config, Shards::Kept).unwrap(), 3);
        assert!(count_of(&mut config, Shards::Auto).unwrap() >= 3);
        assert_eq!(count_of(&mut config, Shards::Count(4)).unwrap(), 4);
        let error = count_of(&mut config, Shards::Count(2))
            .unwrap_err()
            .to_string();
        assert!(error.contains("has 3 shards"), "{error}");
        // One whose disk is not there is not overlooked.
        std::fs::remove_dir(directory_of(path, 1)).unwrap();
        for shards in [Shards::Kept, Shards::Auto, Shards::Count(3)] {
            let error = count_of(&mut config, shards).unwrap_err().to_string();
            assert!(error.contains("shards/1 is missing"), "{error}");
        }
        // Not more than have memory for a payload.
        std::fs::remove_dir(directory_of(path, 2)).unwrap();
        config.memory_bytes_max = config.payload_bytes_max;
        assert_eq!(count_of(&mut config, Shards::Auto).unwrap(), 1);
    }

    #[test]
    fn each_shard_has_its_addresses_and_its_part() {
        let config = Config {
            directory: PathBuf::from("/d"),
            listen: ["tcp://127.0.0.1:9000", "tls://[::1]:0", "unix:///s"]
                .map(str::to_owned)
                .to_vec(),
            amqp: vec!["tcp://127.0.0.1:0".to_owned()],
            memory_bytes_max: 1 << 30,
            disk_threads: 5,
            ..Config::default()
        };
        let first = config_of(&config, 0, 4).unwrap();
        assert_eq!(
            (first.listen, first.amqp),
            (config.listen.clone(), config.amqp.clone())
        );
        assert_eq!((first.memory_bytes_max, first.disk_threads), (1 << 28, 1));
        assert_eq!(first.directory, Path::new("/d"));
        let third = config_of(&config, 2, 4).unwrap();
        let listen = ["tcp://127.0.0.1:9002", "tls://[::1]:0", "unix:///s.2"];
        assert_eq!(third.listen, listen);
        assert_eq!(third.directory, Path::new("/d/shards/2"));
        assert_eq!((third.amqp, third.group_file), (Vec::new(), None));
        let beyond = Config {
            listen: vec!["tcp://127.0.0.1:65535".to_owned()],
            ..config.clone()
        };
        let error = config_of(&beyond, 1, 2).unwrap_err().to_string();
        assert!(error.contains("65536"), "{error}");
        // Each port is one shard's.
        let beside = Config {
            listen: ["tcp://127.0.0.1:9000", "tcp://127.0.0.1:9001"]
                .map(str::to_owned)
                .to_vec(),
            ..config.clone()
        };
        let error = configs_of(&beside, 2).unwrap_err().to_string();
        assert!(
            error.contains("shards 0 and 1 would both listen"),
            "{error}"
        );
        assert_eq!(configs_of(&config, 3).unwrap().len(), 3);
        // A payload has to fit into the memory of one.
        let error = config_of(&config, 0, 64).unwrap_err().to_string();
        assert!(error.contains("payload_bytes_max"), "{error}");
    }

    #[test]
    fn what_nodes_say_arrives_in_order_and_an_end_is_heard() {
        let exchange = Exchange::new(2);
        let (leader, follower) = (exchange.of(LEADER), exchange.of(NodeId(1)));
        let started = Instant::now();
        let took = |count| TableMessage::Took(wire::table::Took { count });
        leader.send(NodeId(1), took(1));
        leader.send(NodeId(1), took(2));
        let mut joining = Joining::new(&follower, started);
        let patience = Duration::from_secs(60);
        assert_eq!(joining.receive(patience), FromLeader::Message(took(1)));
        joining.send(took(3));
        // What comes while it waits.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut joining = Joining::new(&follower, started);
                (joining.receive(patience), joining.receive(patience))
            });
            leader.send(NodeId(1), took(4));
            let came = [took(2), took(4)].map(FromLeader::Message);
            assert_eq!(<[_; 2]>::from(waiting.join().unwrap()), came);
        });
        assert_eq!(joining.receive(Duration::ZERO), FromLeader::Nothing);
        // A new link begins a new turn.
        let mut inputs = Vec::new();
        leader.take(&mut inputs);
        assert_eq!(inputs.len(), 2);
        leader.take(&mut inputs);
        assert!(matches!(
            inputs[..],
            [
                Input::Peer(PeerInput::Up(NodeId(1))),
                Input::Peer(PeerInput::Message(NodeId(1), TableMessage::Took(_))),
                Input::Peer(PeerInput::Up(NodeId(1))),
            ]
        ));
        drop(leader);
        let mut joining = Joining::new(&follower, started);
        assert_eq!(joining.receive(patience), FromLeader::Gone);
    }
}
