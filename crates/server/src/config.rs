//! The server's settings: one struct, from which the configuration file, the
//! environment, the flags of `thalweg serve` and their documentation come.
//!
//! Later sources win: defaults, file, environment, flags.

pub use crate::value::Value;

use crate::address::{self, Reach};
use crate::error::ConfigError;
use crate::placement::Cores;
use crate::shard_count::Shards;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wire::record::{LABELS_MAX, NODE_TEXT_BYTES_MAX};

/// What is to be known of one setting, for files, flags and documentation.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its key in a configuration file.
    pub key: &'static str,
    /// What it does. The first line stands alone.
    pub help: &'static str,
    /// What kind of value it takes, for documentation: `bytes`, `address`.
    pub kind: &'static str,
    /// Whether it is a yes or no, so that its flag needs no value.
    pub is_switch: bool,
    /// Whether it takes a list.
    pub is_list: bool,
    /// What it is if nobody says otherwise, as text.
    pub default: fn() -> String,
}

impl Setting {
    /// The name of its environment variable.
    pub fn environment(&self) -> String {
        format!("THALWEG_{}", self.key.to_ascii_uppercase())
    }

    /// The name of its flag, without `--`.
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }
}

macro_rules! settings {
    ($($(#[doc = $help:literal])+ $key:ident: $type:ty = $default:expr, $kind:literal;)*) => {
        /// The settings of a server.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Config { $($(#[doc = $help])+ pub $key: $type,)* }

        impl Default for Config {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl Config {
            /// Every setting, in the order of the documentation.
            pub const SETTINGS: &[Setting] = &[$(Setting {
                key: stringify!($key),
                help: concat!($($help, "\n"),+),
                kind: $kind,
                is_switch: <$type as Value>::IS_SWITCH,
                is_list: <$type as Value>::IS_LIST,
                default: || { let default: $type = $default; default.to_text() },
            },)*];

            /// Sets `key` from text; a list takes one entry of `texts` for each.
            pub fn set(&mut self, key: &str, texts: &[String]) -> Result<(), ConfigError> {
                match key {
                    $(stringify!($key) => {
                        self.$key = <$type as Value>::from_texts(texts).map_err(|why| {
                            ConfigError::Value { key: key.to_owned(), why }
                        })?;
                    })*
                    _ => return Err(ConfigError::unknown_key(key, Self::keys())),
                }
                Ok(())
            }

            /// The present value of `key` as text, if there is such a setting.
            pub fn get(&self, key: &str) -> Option<String> {
                match key {
                    $(stringify!($key) => Some(self.$key.to_text()),)*
                    _ => None,
                }
            }
        }
    };
}

settings! {
    /// The data directory, which the server makes if it is not there.
    ///
    /// One server owns it at a time. It must be on a local disk for `synced` to mean what it says.
    directory: PathBuf = PathBuf::from("thalweg-data"), "path";
    /// How many shards the server has, each with a thread that serves the network and the topics that are on it: a
    /// number, or `auto`.
    ///
    /// One for each two processors is `auto`, of `cores` if that names some. None is as many as the data directory has, and one for a new one; fewer
    /// than it has are refused. Shard K listens at the ports of `listen` plus K, and clients find it by themselves;
    /// those of AMQP use the first one alone. Memory and disk threads are divided.
    shards: Shards = Shards::default(), "count";
    /// Addresses to listen at, for example `tcp://127.0.0.1:0` (port 0: the system chooses one).
    ///
    /// `tls://HOST:PORT` is encrypted, and may be reached from other hosts: `tls://0.0.0.0:443`.
    /// Where no address is of a unix socket, there is one besides, inside the data directory (see
    /// `no_unix_socket`). `unix:///path` and `shm:///path` are the same: who connects chooses
    /// between the socket and shared memory.
    listen: Vec<String> = Vec::new(), "address";
    /// The network interface that the server uses, for example `ib0`; or its number among those of the host, from 0.
    ///
    /// What listens at every interface, `0.0.0.0` or `[::]`, listens at this one then, be it for clients or for other
    /// servers of the cluster; the server runs on the processors near it, unless `cores` says where; and it has the
    /// label `nic` in its cluster. Numbers count the interfaces that are of hardware, are up and have an address, by
    /// name. `each` has the servers of a cluster take those of their hosts in turn, by their ranks.
    nic: String = String::new(), "interface";
    /// The directory by which the servers of a cluster find each other, on a file system that they share.
    ///
    /// Each server of the cluster is started with the same one, and has a data directory of its own. It is made if it is not
    /// there. None is a server that is alone.
    cluster: Option<PathBuf> = None, "path";
    /// Which of the servers that are started together this one is, from 0.
    ///
    /// None is as the launcher says: Slurm, Open MPI, PMI, PALS or Flux.
    rank: Option<u32> = None, "count";
    /// How many servers are started together.
    ///
    /// None is as the launcher says.
    size: Option<u32> = None, "count";
    /// How many servers decide where everything of the cluster is, when it is founded: 1, 3 or 5.
    ///
    /// They are the first ranks. The cluster does without one of three, and without two of five. None is 3, or 1 where fewer
    /// are started; a cluster that is there keeps what it has.
    voters: Option<u32> = None, "count";
    /// Where the other servers of the cluster reach this one.
    ///
    /// `tls://HOST:PORT`: both ends know each other by certificates of the cluster's own authority. On one host
    /// `tcp://127.0.0.1:0` does without. Port 0 lets the system choose.
    cluster_listen: String = "tls://0.0.0.0:0".to_owned(), "address";
    /// What this server is known by in the cluster, as `disk=fast`: topics can be made where a label is.
    ///
    /// A list. `rank`, `host` and `pid` are there by themselves, and `nic` where that is set.
    cluster_labels: Vec<String> = Vec::new(), "label=value";
    /// How long a start waits for the other servers of the cluster, milliseconds.
    cluster_wait_ms: u32 = 120_000, "milliseconds";
    /// Addresses to listen at for clients of AMQP 0-9-1, for example `tcp://127.0.0.1:5672`.
    ///
    /// `tls://HOST:PORT` is encrypted, and may be reached from other hosts: `tls://0.0.0.0:5671`. The word `listen`
    /// has clients of AMQP come to the addresses of `listen` that are of TCP and TLS too: what they say first tells
    /// the two apart. Programs for RabbitMQ give a token of Thalweg as their password.
    amqp: Vec<String> = Vec::new(), "address";
    /// Take the user `guest` with the password `guest` for the server's owner, as RabbitMQ does on its own host.
    ///
    /// Every user of this host can then read and write everything. It is refused where an address of `amqp`, or of
    /// `listen` if they share it, can be reached from other hosts.
    amqp_guest: bool = false, "yes or no";
    /// Listen at the addresses of `listen` alone, without a unix socket of the data directory's own.
    ///
    /// Clients of this host then take TCP, and have no shared memory.
    no_unix_socket: bool = false, "yes or no";
    /// Where the group file is written, by which clients find the server.
    ///
    /// Empty writes none.
    group_file: Option<PathBuf> = Some(PathBuf::from("thalweg.json")), "path";
    /// The most memory for events under way, bytes.
    ///
    /// A share is kept for control: acknowledgements, cursors and calls work while it is full.
    memory_bytes_max: u64 = 1 << 30, "bytes";
    /// The longest payload of one message, bytes: a batch cannot be larger.
    payload_bytes_max: u64 = 64 << 20, "bytes";
    /// Bytes that one connection may have under way before the server has taken them.
    produce_credit_bytes: u64 = 16 << 20, "bytes";
    /// Members that one group or queue has at most, present or away.
    members_max: u32 = 4096, "count";
    /// Connections at one address whose clients have not said who they are.
    ///
    /// Anybody who reaches a port can open connections and say nothing. Where one more comes, the
    /// oldest of them is dropped; a client says who it is at once, and connects again if it was dropped.
    pending_connections_max: u32 = 256, "count";
    /// Threads for disk operations that wait: syncs, opening and removing files, cold reads.
    disk_threads: u32 = 4, "count";
    /// Silence after which a sign of life is asked for; twice this is taken for death, milliseconds.
    heartbeat_ms: u32 = 10_000, "milliseconds";
    /// Serve clients of this host over the unix socket alone, not over shared memory.
    no_shared_memory: bool = false, "yes or no";
    /// How long the server looks for what clients sent, over whichever transport, before it sleeps, microseconds.
    ///
    /// 0 does not. A sleep and a wake-up take longer than most clients take to answer. Where looking
    /// finds nothing, or others want the processor, it is done more and more rarely: an idle server
    /// takes none. 50 is a good value where a processor is to spare.
    spin_us: u32 = 20, "microseconds";
    /// How long the thread that serves the network and all partitions runs at a time where others
    /// want its processor, microseconds: 100 to 100,000.
    ///
    /// Where programs compute on the server's processors, a shorter slice lets the server react sooner;
    /// its total share is unchanged. 0 leaves the slice to the system, which gives some milliseconds.
    /// Linux before 6.12 ignores the setting. Where the system refuses it, the server says so in a line
    /// and goes on without.
    slice_us: u32 = 100, "microseconds";
    /// Processors for the thread that serves the network and all partitions, for example `2`.
    ///
    /// Numbers and ranges, `0,4-7`; none is wherever the system puts it. On a machine with several
    /// memories, one that is near the network card is best, for it is this thread that touches
    /// what passes.
    cores: Cores = Cores::default(), "processors";
    /// Processors for the disk threads, as `cores`.
    disk_cores: Cores = Cores::default(), "processors";
    /// How long a draining server waits for what it has taken, milliseconds.
    drain_timeout_ms: u32 = 30_000, "milliseconds";
    /// The certificate of this server for `tls://`, and those that it was signed with, in a file (PEM).
    ///
    /// With `tls_key`. None is a certificate of the data directory's own authority, which clients know
    /// by the group file. The files are read again when they change.
    tls_cert: Option<PathBuf> = None, "path";
    /// The private key of `tls_cert`, in a file (PEM).
    tls_key: Option<PathBuf> = None, "path";
    /// Names of this server that its own certificate is to have besides those that are found.
    ///
    /// Found are the name and the addresses of the host, and the hosts of `listen`.
    tls_names: Vec<String> = Vec::new(), "name";
    /// Authorities whose certificates of clients count besides those that the server makes itself, in a
    /// file (PEM).
    ///
    /// A client's certificate has one URI among its alternative names, `thalweg://SITE/PROJECT/NAME`. The
    /// file is read at the start.
    tls_client_ca: Option<PathBuf> = None, "path";
    /// The site that certificates of clients are to be for: letters, digits, `.`, `_` and `-`.
    ///
    /// Empty is the id of the data directory. Where it changes, all clients have to be paired anew.
    site: String = String::new(), "name";
    /// Allow addresses that other hosts can reach, although nothing is encrypted.
    insecure_listen: bool = false, "yes or no";
    /// Take a data directory over although a server on another host has it locked.
    ///
    /// Make sure that the other server is dead: two servers destroy each other's data.
    take_over: bool = false, "yes or no";
    /// Accept what the data directory has lost, and start in spite of it.
    ///
    /// Without it a start is refused where the records of topics and cursors do not know what lies beside them.
    /// With it the server goes on with what can be rebuilt, moves what no record names to
    /// `lost+found`, and no longer reports the losses that it remembered. To be given once.
    accept_loss: bool = false, "yes or no";
}

/// Bounds of settings, and why.
mod bounds {
    /// Below this one batch of the default size does not fit several times.
    pub const MEMORY_BYTES_MIN: u64 = 16 << 20;
    /// The largest metadata of one event is to fit: 1 MiB by default.
    pub const PAYLOAD_BYTES_MIN: u64 = 2 << 20;
    /// A batch's sections count in 32 bits.
    pub const PAYLOAD_BYTES_MAX: u64 = 1 << 31;
    /// More threads than this only wait for the same device.
    pub const DISK_THREADS_MAX: u32 = 256;
    /// Below this a busy machine looks dead.
    pub const HEARTBEAT_MS_MIN: u32 = 100;
    /// What the system takes; 0 besides.
    pub const SLICE_US_MIN: u32 = 100;
    pub const SLICE_US_MAX: u32 = 100_000;
}

/// What follows `THALWEG_` in variables that commands and plugins read, and that are no settings.
const OTHER_VARIABLES: &[&str] = &[
    "amqp_url",
    "config",
    "log_format",
    "log_level",
    "namespace",
    "plugin_path",
    "tls_ca",
];

impl Config {
    fn keys() -> Vec<&'static str> {
        Self::SETTINGS.iter().map(|setting| setting.key).collect()
    }

    fn setting(key: &str) -> Option<&'static Setting> {
        Self::SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Takes settings from the text of a TOML file. Gives the keys that it has.
    pub fn read_toml(&mut self, text: &str) -> Result<Vec<&'static str>, ConfigError> {
        let table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| ConfigError::Syntax(error.to_string()))?;
        let mut keys = Vec::with_capacity(table.len());
        for (key, value) in &table {
            let Some(setting) = Self::setting(key) else {
                return Err(ConfigError::unknown_key(key, Self::keys()));
            };
            keys.push(setting.key);
            let texts = crate::value::texts_of_toml(value).map_err(|why| ConfigError::Value {
                key: key.clone(),
                why,
            })?;
            self.set(key, &texts)?;
        }
        Ok(keys)
    }

    /// Takes settings from a TOML file. Gives the keys that it has.
    pub fn read_file(&mut self, path: &Path) -> Result<Vec<&'static str>, ConfigError> {
        let in_file = |error: ConfigError| ConfigError::File {
            path: path.to_owned(),
            why: Box::new(error),
        };
        let text =
            std::fs::read_to_string(path).map_err(|error| in_file(ConfigError::Read(error)))?;
        self.read_toml(&text).map_err(in_file)
    }

    /// Says of each of these variables of the environment that is no setting, and is written nearly
    /// as one: it is left alone, which its author may not know.
    pub fn misspelt_environment(names: impl Iterator<Item = String>) -> Vec<String> {
        let said = names.filter_map(|name| {
            let key = name.strip_prefix("THALWEG_")?.to_ascii_lowercase();
            let is_known = Self::setting(&key).is_some() || OTHER_VARIABLES.contains(&&*key);
            match ConfigError::unknown_key(&key, Self::keys()) {
                ConfigError::UnknownKey {
                    nearest: Some(nearest),
                    ..
                } if !is_known => {
                    let meant = Self::setting(nearest)?.environment();
                    Some(format!("{name} is no setting; did you mean {meant}?"))
                }
                _ => None,
            }
        });
        said.collect()
    }

    /// Takes settings from environment variables; `lookup` gives the value of one. Gives the
    /// keys that were set.
    pub fn read_environment(
        &mut self,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<&'static str>, ConfigError> {
        let mut keys = Vec::new();
        for setting in Self::SETTINGS {
            let name = setting.environment();
            let Some(text) = lookup(&name) else { continue };
            let texts = match setting.is_list {
                true => text
                    .split(',')
                    .filter(|part| !part.is_empty())
                    .map(str::to_owned)
                    .collect(),
                false => vec![text],
            };
            self.set(setting.key, &texts)
                .map_err(|why| ConfigError::Environment {
                    name,
                    why: Box::new(why),
                })?;
            keys.push(setting.key);
        }
        Ok(keys)
    }

    /// Checks what each value alone cannot say. To be called once, before the start.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let refuse = |key: &str, why: String| {
            Err(ConfigError::Value {
                key: key.to_owned(),
                why,
            })
        };
        if self.directory.as_os_str().is_empty() {
            return refuse("directory", "must not be empty".to_owned());
        }
        let least = [
            (
                "memory_bytes_max",
                self.memory_bytes_max,
                bounds::MEMORY_BYTES_MIN,
            ),
            (
                "payload_bytes_max",
                self.payload_bytes_max,
                bounds::PAYLOAD_BYTES_MIN,
            ),
            ("produce_credit_bytes", self.produce_credit_bytes, 1),
            ("members_max", self.members_max.into(), 1),
            (
                "pending_connections_max",
                self.pending_connections_max.into(),
                1,
            ),
            ("disk_threads", self.disk_threads.into(), 1),
            (
                "heartbeat_ms",
                self.heartbeat_ms.into(),
                bounds::HEARTBEAT_MS_MIN.into(),
            ),
        ];
        for (key, value, min) in least {
            if value < min {
                return refuse(key, format!("{value} is below the least, {min}"));
            }
        }
        let most = [
            (
                "payload_bytes_max",
                self.payload_bytes_max,
                bounds::PAYLOAD_BYTES_MAX,
            ),
            (
                "disk_threads",
                self.disk_threads.into(),
                bounds::DISK_THREADS_MAX.into(),
            ),
        ];
        for (key, value, max) in most {
            if value > max {
                return refuse(key, format!("{value} is above the most, {max}"));
            }
        }
        let slices = bounds::SLICE_US_MIN..=bounds::SLICE_US_MAX;
        if self.slice_us != 0 && !slices.contains(&self.slice_us) {
            let (least, most) = slices.into_inner();
            let why = format!("{} is neither 0 nor from {least} to {most}", self.slice_us);
            return refuse("slice_us", why);
        }
        if self.payload_bytes_max > self.memory_bytes_max {
            return refuse(
                "payload_bytes_max",
                format!(
                    "{} does not fit into memory_bytes_max, {}",
                    self.payload_bytes_max, self.memory_bytes_max
                ),
            );
        }
        self.check_cluster()?;
        if self.no_unix_socket && self.listen.is_empty() {
            let why = "leaves no address to listen at: give one with --listen".to_owned();
            return refuse("no_unix_socket", why);
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            let (key, other) = match self.tls_cert {
                Some(_) => ("tls_cert", "tls_key"),
                None => ("tls_key", "tls_cert"),
            };
            return refuse(key, format!("is of no use without {other}"));
        }
        if !self.site.is_empty()
            && let Err(why) = access::check_part("site", &self.site)
        {
            return refuse("site", why);
        }
        if self.shares_ports()
            && !self
                .listen
                .iter()
                .any(|one| address::authority(one).is_some())
        {
            let why = "listen: no address of `listen` is of TCP or TLS".to_owned();
            return refuse("amqp", why);
        }
        let amqp = self.amqp_addresses().map(|address| ("amqp", address));
        for (key, address) in self.listen.iter().map(|one| ("listen", one)).chain(amqp) {
            match address::reach(address) {
                Ok(Reach::Beyond) if key == "amqp" && self.amqp_guest => {
                    let why = format!(
                        "{address} can be reached from other hosts: everybody there would be the owner"
                    );
                    return refuse("amqp_guest", why);
                }
                Ok(_) if key == "amqp" && address::authority(address).is_none() => {
                    let why = format!("{address}: AMQP is spoken at tcp:// and tls://");
                    return refuse(key, why);
                }
                Err(_) if key == "amqp" && !address.contains("://") => {
                    let why = format!(
                        "{address}: it is tcp://HOST:PORT, tls://HOST:PORT, or the word listen"
                    );
                    return refuse(key, why);
                }
                Ok(Reach::Host) => {}
                Ok(Reach::Beyond) if self.insecure_listen || address::is_encrypted(address) => {}
                Ok(Reach::Beyond) => {
                    let why = format!(
                        "{address} can be reached from other hosts, and nothing is encrypted there: \
                         listen at tls://; --insecure-listen allows it"
                    );
                    return refuse(key, why);
                }
                Err(why) => return refuse(key, why),
            }
        }
        Ok(())
    }

    /// What there is of a cluster, and whether it can be.
    fn check_cluster(&self) -> Result<(), ConfigError> {
        let refuse = |key: &str, why: &str| {
            Err(ConfigError::Value {
                key: key.to_owned(),
                why: why.to_owned(),
            })
        };
        if self.cluster.is_none() {
            let given = [
                ("rank", self.rank),
                ("size", self.size),
                ("voters", self.voters),
            ];
            return match given.iter().find(|(_, number)| number.is_some()) {
                Some((key, _)) => refuse(key, "is of no use without cluster"),
                None if self.cluster_labels.is_empty() => Ok(()),
                None => refuse("cluster_labels", "is of no use without cluster"),
            };
        }
        self.labels()
            .map_err(|why| refuse("cluster_labels", &why).unwrap_err())?;
        if self
            .voters
            .is_some_and(|voters| ![1, 3, 5].contains(&voters))
        {
            return refuse("voters", "is to be 1, 3 or 5");
        }
        if !self.amqp.is_empty() {
            return refuse("amqp", "servers of a cluster have no clients of AMQP yet");
        }
        let listen = &self.cluster_listen;
        let reach = match address::authority(listen) {
            Some(_) => address::reach(listen),
            None => Err(format!(
                "{listen}: it is tls://HOST:PORT, or tcp://127.0.0.1:PORT"
            )),
        };
        match reach {
            Err(why) => refuse("cluster_listen", &why),
            Ok(Reach::Beyond) if !address::is_encrypted(listen) => {
                let why = format!(
                    "{listen} can be reached from other hosts: servers are linked by tls:// there"
                );
                refuse("cluster_listen", &why)
            }
            Ok(_) => Ok(()),
        }
    }

    /// What this server is known by in the cluster, besides what it says by itself.
    ///
    /// # Errors
    /// What is no label, is named twice, or is said by the server itself.
    pub fn labels(&self) -> Result<BTreeMap<String, String>, String> {
        let mut labels = BTreeMap::new();
        for text in &self.cluster_labels {
            let (label, value) = text
                .split_once('=')
                .filter(|(label, _)| !label.is_empty())
                .ok_or_else(|| format!("{text:?} is not LABEL=VALUE"))?;
            if OWN_LABELS.contains(&label) {
                return Err(format!("{label} is said by the server itself"));
            }
            if label.len().max(value.len()) > NODE_TEXT_BYTES_MAX {
                return Err(format!(
                    "{text:?} is longer than {NODE_TEXT_BYTES_MAX} bytes"
                ));
            }
            if labels.insert(label.to_owned(), value.to_owned()).is_some() {
                return Err(format!("{label} is named twice"));
            }
        }
        let count = labels.len() + OWN_LABELS.len();
        match count > LABELS_MAX {
            true => Err(format!("{count} labels, at most {LABELS_MAX}")),
            false => Ok(labels),
        }
    }

    /// Whether clients of AMQP come to the addresses of `listen` too.
    pub fn shares_ports(&self) -> bool {
        self.amqp.iter().any(|address| address == AT_LISTEN)
    }

    /// Where clients of AMQP come to.
    fn amqp_addresses(&self) -> impl Iterator<Item = &String> {
        let shared = self.listen.iter();
        let shared = shared.filter(|one| self.shares_ports() && address::authority(one).is_some());
        shared.chain(self.amqp_alone())
    }

    /// Where clients of AMQP come to and nobody else.
    pub fn amqp_alone(&self) -> impl Iterator<Item = &String> {
        self.amqp.iter().filter(|address| *address != AT_LISTEN)
    }
}

/// The labels that a server of a cluster has by itself.
const OWN_LABELS: [&str; 4] = ["host", "rank", "pid", "nic"];

/// In place of an address of AMQP: those of `listen`.
const AT_LISTEN: &str = "listen";

/// The reference page of the settings, as Markdown.
pub fn reference() -> String {
    let mut page = String::from(REFERENCE_HEAD);
    for setting in Config::SETTINGS {
        let default = match (setting.default)() {
            text if text.is_empty() => "none".to_owned(),
            text => format!("`{text}`"),
        };
        let help: Vec<&str> = setting.help.lines().map(str::trim).collect();
        page.push_str(&format!(
            "\n## `{}`\n\n{}\n\n{}; default {default}; flag `--{}`; environment `{}`\n",
            setting.key,
            help.join("\n"),
            match setting.is_list {
                true => format!("list of {}", setting.kind),
                false => setting.kind.to_owned(),
            },
            setting.flag(),
            setting.environment(),
        ));
    }
    page
}

const REFERENCE_HEAD: &str = "\
# Settings of a server

<!-- Made from crates/server/src/config.rs by `UPDATE_DOCS=1 cargo test -p thalweg-server`. -->

`thalweg serve` takes each setting from, in this order, its flag, its environment variable, the
TOML file named by `--config`, and its default. A key that is not listed here is refused. Bytes
may be written as a number or with a unit: `67108864` or `\"64MiB\"`. In the environment the
entries of a list are separated by commas.

`thalweg config show` prints each setting with its value and its source, `thalweg config example` a
file with all of them (it is `packaging/thalweg.toml` in the repository), and `thalweg serve --check`
says what a start would meet.
";

/// A configuration file that sets nothing: every setting with its help and its default, commented
/// out.
pub fn example() -> String {
    let mut file = String::from(EXAMPLE_HEAD);
    for setting in Config::SETTINGS {
        file.push('\n');
        for line in setting.help.trim_end().lines() {
            file.push_str(format!("# {}", line.trim()).trim_end());
            file.push('\n');
        }
        file.push_str(&format!("#{} = {}\n", setting.key, toml_default(setting)));
    }
    file
}

/// The default as a TOML value.
fn toml_default(setting: &Setting) -> String {
    let text = (setting.default)();
    match (setting.is_list, setting.is_switch, text.parse::<u64>()) {
        (true, ..) if text.is_empty() => "[]".to_owned(),
        (true, ..) => format!("{:?}", text.split(',').collect::<Vec<_>>()),
        (_, true, _) | (_, _, Ok(_)) => text,
        _ => format!("{text:?}"),
    }
}

const EXAMPLE_HEAD: &str = "\
# Settings of `thalweg serve --config FILE`, each with its default. A flag or an environment variable
# wins over the file. `thalweg serve --check --config FILE` says what is wrong with it, `thalweg config
# show --config FILE` what holds, and where it comes from.
#
# Made from crates/server/src/config.rs by `UPDATE_DOCS=1 cargo test -p thalweg-server`.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        config.read_toml(text)?;
        config.validate()?;
        Ok(config)
    }

    #[test]
    fn defaults_are_valid_and_every_setting_round_trips_as_text() {
        let defaults = Config::default();
        defaults.validate().unwrap();
        let mut copy = Config::default();
        for setting in Config::SETTINGS {
            let text = defaults.get(setting.key).unwrap();
            assert_eq!(text, (setting.default)());
            if !setting.is_list {
                copy.set(setting.key, &[text]).unwrap();
            }
        }
        assert_eq!(copy, defaults);
    }

    #[test]
    fn a_file_is_read_and_units_are_understood() {
        let config = config(
            "directory = \"/data\"\nlisten = [\"tcp://127.0.0.1:0\", \"tcp://[::1]:7\"]\n\
             memory_bytes_max = \"512MiB\"\ndisk_threads = 2\ngroup_file = \"\"\n",
        )
        .unwrap();
        assert_eq!(config.directory, PathBuf::from("/data"));
        assert_eq!(config.listen.len(), 2);
        assert_eq!(config.memory_bytes_max, 512 << 20);
        assert_eq!(config.disk_threads, 2);
        assert_eq!(config.group_file, None);
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let error = config("disk_thread = 2\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown key `disk_thread`; did you mean `disk_threads`?"
        );
        let error = config("zzz = 2\n").unwrap_err().to_string();
        assert!(
            error.starts_with("unknown key `zzz`; the keys are `directory`"),
            "{error}"
        );
    }

    #[test]
    fn bad_values_are_refused_with_key_and_reason() {
        for (text, expected) in [
            ("disk_threads = 0", "disk_threads: 0 is below the least, 1"),
            (
                "slice_us = 99",
                "slice_us: 99 is neither 0 nor from 100 to 100000",
            ),
            (
                "disk_threads = -1",
                "disk_threads: -1 is no whole number from 0 on",
            ),
            (
                "disk_threads = 1.5",
                "disk_threads: takes text, a whole number, yes or no, or a list of these",
            ),
            (
                "memory_bytes_max = \"5 parsecs\"",
                "memory_bytes_max: \"5 parsecs\" is no number of bytes",
            ),
            (
                "payload_bytes_max = \"2GiB\"",
                "payload_bytes_max: 2147483648 does not fit into memory_bytes_max, 1073741824",
            ),
            (
                "insecure_listen = \"maybe\"",
                "insecure_listen: \"maybe\" is neither true nor false",
            ),
            (
                "listen = [\"carrier-pigeon://x\"]",
                "listen: carrier-pigeon://x: the schemes are tcp://, tls://, unix:// and shm://",
            ),
            (
                "tls_cert = \"/etc/site.pem\"",
                "tls_cert: is of no use without tls_key",
            ),
            (
                "site = \"a/b\"",
                "site: \"a/b\" is no site of a certificate: one is 1 to 64 letters, digits, '.', '_' \
                 and '-', and does not begin with '.'",
            ),
            (
                "directory = [\"a\", \"b\"]",
                "directory: takes one value, not 2",
            ),
            (
                "no_unix_socket = true",
                "no_unix_socket: leaves no address to listen at: give one with --listen",
            ),
        ] {
            assert_eq!(config(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn only_the_host_itself_is_listened_to_unless_allowed() {
        for address in [
            "tcp://0.0.0.0:0",
            "tcp://[::]:0",
            "tcp://192.0.2.1:7000",
            "tcp://localhost:0",
            "tls://0.0.0.0:443",
            "tls://node7:443",
        ] {
            let text = format!("listen = [\"{address}\"]\n");
            let refused = config(&text);
            match address {
                "tcp://localhost:0" | "tls://0.0.0.0:443" | "tls://node7:443" => {
                    assert!(refused.is_ok());
                }
                _ => {
                    assert!(
                        refused
                            .unwrap_err()
                            .to_string()
                            .contains("--insecure-listen")
                    );
                    config(&format!("{text}insecure_listen = true\n")).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_guest_of_amqp_is_of_this_host() {
        let with = |address: &str| config(&format!("amqp_guest = true\namqp = [\"{address}\"]\n"));
        with("tcp://127.0.0.1:5672").unwrap();
        for address in ["tls://0.0.0.0:5671", "tls://node7:5671"] {
            let refused = with(address).unwrap_err().to_string();
            assert!(refused.contains("amqp_guest"), "{refused}");
        }
    }

    #[test]
    fn clients_of_amqp_come_to_the_addresses_of_listen_where_they_may() {
        let with = |listen: &str, more: &str| {
            config(&format!("listen = [{listen}]\namqp = [\"listen\"]\n{more}"))
        };
        assert!(
            with("\"unix:///a\", \"tcp://127.0.0.1:0\"", "")
                .unwrap()
                .shares_ports()
        );
        for (listen, more, named) in [
            ("\"unix:///a\"", "", "amqp"),
            ("", "", "amqp"),
            ("\"tls://0.0.0.0:443\"", "amqp_guest = true\n", "amqp_guest"),
        ] {
            let refused = with(listen, more).unwrap_err().to_string();
            assert!(refused.contains(named), "{refused}");
        }
        let refused = config("amqp = [\"listn\"]\n").unwrap_err().to_string();
        assert!(refused.contains("or the word listen"), "{refused}");
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let mut config = config("disk_threads = 2\nheartbeat_ms = 500\n").unwrap();
        config
            .read_environment(|name| match name {
                "THALWEG_DISK_THREADS" => Some("3".to_owned()),
                "THALWEG_LISTEN" => Some("unix:///a,tcp://127.0.0.1:0".to_owned()),
                _ => None,
            })
            .unwrap();
        assert_eq!((config.disk_threads, config.heartbeat_ms), (3, 500));
        assert_eq!(config.listen, ["unix:///a", "tcp://127.0.0.1:0"]);
        let error = config
            .read_environment(|name| (name == "THALWEG_DISK_THREADS").then(|| "x".to_owned()))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "THALWEG_DISK_THREADS: disk_threads: x is no whole number from 0 on"
        );
    }

    #[test]
    fn a_variable_that_is_nearly_a_setting_is_named() {
        let names = [
            "THALWEG_DISK_THREAD",
            "THALWEG_DISK_THREADS",
            "THALWEG_LOG_LEVEL",
            "THALWEG_SOMETHING_ELSE",
            "PATH",
        ];
        assert_eq!(
            Config::misspelt_environment(names.map(str::to_owned).into_iter()),
            ["THALWEG_DISK_THREAD is no setting; did you mean THALWEG_DISK_THREADS?"]
        );
    }

    #[test]
    fn the_example_says_every_default_as_it_is() {
        let text: String = example()
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
            .map(|line| format!("{line}\n"))
            .collect();
        let mut read = Config::default();
        let keys = read.read_toml(&text).unwrap();
        assert_eq!(keys.len(), Config::SETTINGS.len(), "{text}");
        assert_eq!(read, Config::default());
        // As it stands it sets nothing.
        assert!(read.read_toml(&example()).unwrap().is_empty());
    }

    #[test]
    fn the_reference_page_and_the_example_are_up_to_date() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (name, text) in [
            ("docs/reference/configuration.md", reference()),
            ("packaging/thalweg.toml", example()),
        ] {
            let path = root.join(name);
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &text).unwrap();
            }
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                written == text,
                "{name} is out of date: run UPDATE_DOCS=1 cargo test -p thalweg-server"
            );
        }
    }
}
