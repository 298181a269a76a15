//! Whether a server would start with its settings, without one being started.

use crate::address;
use crate::certificates;
use crate::cluster;
use crate::config::Config;
use crate::descriptors;
use crate::directory::{self, DataDirectory, Looked};
use crate::error::{ConfigError, ServerError};
use crate::file_system::{self, FileSystem};
use crate::host::Host;
use crate::nic;
use crate::running::SOCKET_PATH_BYTES_MAX;
use crate::shards;
use crate::storages::Storages;
use crate::system;
use broker::NodeOptions;
use log::{Disk, OsDisk};
use net::{NetError, UnixSocket};
use rustix::fs::{Access, access};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The share of a file system that may be in use without a word about it, of 100.
const FULL_PERCENT: u64 = 90;
/// Fewer open files than this are soon used up by connections and segments.
const FILES_FEW: u64 = 4096;

/// What was found of one thing that a start needs.
#[derive(Debug)]
pub struct Finding {
    /// What was looked at: the key of a setting, or `memory`, `files`, `environment`.
    pub subject: &'static str,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of a look.
#[derive(Debug)]
pub enum Verdict {
    /// Nothing is in the way; what was found.
    Fine(String),
    /// A start goes on, and an operator should know this.
    Caution(String),
    /// A start fails.
    Wrong(ServerError),
}

/// Says what a start with these settings would meet. Changes nothing: no file is made. Of the data the
/// records of topics and consumers are read; what events are lost a start alone can tell. A port is bound
/// for a moment, and the lock of the directory, if there is one, is held shared for a moment.
pub fn check(config: &Config) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    if let Err(error) = config.validate() {
        findings.wrong("settings", error.into());
        return findings.0;
    }
    let mut config = config.clone();
    match nic::settle(&mut config) {
        Ok(()) if config.nic.is_empty() => {}
        Ok(()) => {
            let (nic, cores) = (&config.nic, config.cores.to_string());
            let cores = if cores.is_empty() { "all" } else { &cores };
            let what = format!("{nic}; processors for the server: {cores}");
            findings.fine("nic", what);
        }
        Err(error) => findings.wrong("nic", error.into()),
    }
    match cluster::placed(&mut config) {
        Ok(Some(ranks)) => findings.fine(
            "cluster",
            format!(
                "server {} of {}, as {} says; whether the others come is not known before the start",
                ranks.rank, ranks.size, ranks.source
            ),
        ),
        Ok(None) => {}
        Err(error) => findings.wrong("cluster", error.into()),
    }
    let config = &config;
    if let Err(error) = cluster::refuse_without(config) {
        findings.wrong("cluster", error);
    }
    for (key, cores) in [("cores", &config.cores), ("disk_cores", &config.disk_cores)] {
        if let Err(error) = cores.place(|| ()) {
            let why = error.to_string();
            let key_text = key.to_owned();
            findings.wrong(key, ConfigError::Value { key: key_text, why }.into());
        }
    }
    let count = shards::count(config);
    let owns = count.and_then(|count| shards::configs_of(config, count));
    let owns = match owns {
        Ok(owns) => {
            if owns.len() > 1 {
                findings.fine("shards", format!("{} shards", owns.len()));
            }
            owns
        }
        Err(error) => {
            findings.wrong("shards", error.into());
            vec![config.clone()]
        }
    };
    let mut is_free = true;
    for own in &owns {
        is_free &= findings.directory(own);
    }
    match is_free {
        true => owns.iter().for_each(|own| findings.addresses(own)),
        false => findings.caution(
            "listen",
            "not tried: the server that has the directory may listen there".to_owned(),
        ),
    }
    match certificates::check(config) {
        Ok(None) => {}
        Ok(Some(path)) => findings.fine("tls_cert", format!("{} is a certificate", path.display())),
        Err(error) => findings.wrong("tls_cert", error),
    }
    if let Some(path) = &config.group_file {
        findings.group_file(path);
    }
    findings.memory(config.memory_bytes_max, memory_bytes());
    findings.files(descriptors::most());
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, subject: &'static str, verdict: Verdict) {
        self.0.push(Finding { subject, verdict });
    }

    fn fine(&mut self, subject: &'static str, what: String) {
        self.add(subject, Verdict::Fine(what));
    }

    fn caution(&mut self, subject: &'static str, what: String) {
        self.add(subject, Verdict::Caution(what));
    }

    fn wrong(&mut self, subject: &'static str, error: ServerError) {
        self.add(subject, Verdict::Wrong(error));
    }

    /// Whether nobody has it.
    fn directory(&mut self, config: &Config) -> bool {
        const SUBJECT: &str = "directory";
        let path = &config.directory;
        let host = Host::this();
        let looked = DataDirectory::look(path, &host, config.take_over);
        let is_free = !matches!(looked, Err(ServerError::Locked { .. }));
        let lies_in = match looked {
            Ok(Looked::Absent) => match to_be_made_in(path) {
                Ok(there) => {
                    self.fine(SUBJECT, format!("{} is made by the start", path.display()));
                    there
                }
                Err(error) => {
                    self.wrong(SUBJECT, error);
                    return is_free;
                }
            },
            Ok(Looked::Empty) => {
                self.fine(SUBJECT, format!("{} is empty", path.display()));
                path.clone()
            }
            Ok(Looked::Known { id, cautions }) => {
                self.fine(SUBJECT, format!("{} has the id {id}", path.display()));
                for caution in cautions {
                    self.caution(SUBJECT, caution);
                }
                self.records(config, &host);
                path.clone()
            }
            Err(error) => {
                self.wrong(SUBJECT, error);
                path.clone()
            }
        };
        let Ok(file_system) = FileSystem::of(&lies_in) else {
            return is_free;
        };
        if let Some(caution) = file_system.warning() {
            self.caution(SUBJECT, caution);
        }
        if let Some(space) = file_system::space(&lies_in) {
            let used = space.total_bytes - space.free_bytes;
            let what = format!(
                "{} of {} bytes are free on {}",
                space.free_bytes, space.total_bytes, file_system.name
            );
            match used.saturating_mul(100) >= space.total_bytes.saturating_mul(FULL_PERCENT) {
                true => self.caution(SUBJECT, what),
                false => self.fine(SUBJECT, what),
            }
        }
        is_free
    }

    /// What the directory knows of topics and consumers, of which a start is refused that would lose it.
    fn records(&mut self, config: &Config, host: &Host) {
        const SUBJECT: &str = "directory";
        let directory = canonical(&config.directory);
        let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
        let kinds = match Storages::new().into_kinds(&disk) {
            Ok(kinds) => kinds,
            Err(error) => return self.wrong(SUBJECT, error),
        };
        let mut options = NodeOptions::new(directory, disk, kinds);
        options.boot_id = host.boot_id.clone();
        options.accept_loss = config.accept_loss;
        match broker::look(&options, system::now(Instant::now())) {
            Ok(lines) => lines
                .into_iter()
                .for_each(|line| self.caution(SUBJECT, line)),
            Err(error) => self.wrong(SUBJECT, ServerError::Node(error.to_string())),
        }
    }

    fn addresses(&mut self, config: &Config) {
        let amqp = config.amqp_alone().map(|address| ("amqp", address));
        let listen = config.listen.iter().map(|address| ("listen", address));
        for (key, address) in listen.chain(amqp) {
            let tried = match address::socket_path(address) {
                Some(path) => try_socket(Path::new(path)),
                None => try_tcp(address),
            };
            match tried {
                Ok(()) => self.fine(key, format!("{address} is free")),
                Err(source) => {
                    let address = address.clone();
                    self.wrong(key, ServerError::Listen { address, source });
                }
            }
        }
        let is_socket = |address: &String| address::socket_path(address).is_some();
        if config.no_unix_socket || config.listen.iter().any(is_socket) {
            return;
        }
        // One whose path is too long, or that a shared file system does not take, lies elsewhere.
        let path = canonical(&config.directory).join("thalweg.sock");
        if !config.directory.is_dir() || path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return;
        }
        let address = format!("unix://{}", path.display());
        match try_socket(&path) {
            Ok(()) => self.fine("listen", format!("{address} is free")),
            Err(source) if config.listen.is_empty() => {
                self.wrong("listen", ServerError::Listen { address, source });
            }
            Err(source) => self.caution("listen", format!("{address}: {source}")),
        }
    }

    fn group_file(&mut self, path: &Path) {
        const SUBJECT: &str = "group_file";
        let failed = |source| ServerError::File {
            attempt: format!("writing {}", path.display()),
            source,
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let is_other = std::fs::symlink_metadata(path).is_ok_and(|found| {
            let kind = found.file_type();
            !kind.is_file() && !kind.is_symlink()
        });
        match writable(parent) {
            Err(error) => self.wrong(SUBJECT, failed(error)),
            Ok(()) if is_other => {
                self.wrong(
                    SUBJECT,
                    failed(io::Error::other("what is there is no file")),
                );
            }
            Ok(()) => self.fine(SUBJECT, format!("{} can be written", path.display())),
        }
    }

    fn memory(&mut self, wanted: u64, there: Option<u64>) {
        let Some(there) = there else { return };
        let what =
            format!("memory_bytes_max is {wanted} of {there} bytes of this host or its group");
        match wanted > there {
            true => self.caution(
                "memory",
                format!("{what}: the system may end the server when it is used"),
            ),
            false => self.fine("memory", what),
        }
    }

    fn files(&mut self, most: Option<u64>) {
        match most {
            Some(most) if most < FILES_FEW => self.caution(
                "files",
                format!(
                    "this process may have {most} files open: connections are dropped beyond that"
                ),
            ),
            Some(most) => self.fine("files", format!("this process may have {most} files open")),
            None => self.fine("files", "no limit of open files".to_owned()),
        }
    }
}

/// A directory as the start has it, whose messages and addresses have this path.
fn canonical(directory: &Path) -> PathBuf {
    let path = directory.canonicalize();
    path.unwrap_or_else(|_| directory.to_owned())
}

/// The directory in which one is made that is not there, if it can be made.
fn to_be_made_in(path: &Path) -> Result<PathBuf, ServerError> {
    let failed = |source| ServerError::File {
        attempt: format!("making {}", path.display()),
        source,
    };
    let there = directory::nearest(path).map_err(failed)?;
    writable(&there).map_err(failed)?;
    Ok(there)
}

fn writable(directory: &Path) -> io::Result<()> {
    if !std::fs::metadata(directory)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from)
}

fn try_tcp(address: &str) -> Result<(), NetError> {
    let authority = address::authority(address).unwrap_or(address);
    match TcpListener::bind(authority) {
        Ok(_) => Ok(()),
        Err(error) => Err(NetError::Address(format!("{address}: {error}"))),
    }
}

/// As the start does: a socket that a dead server left is replaced, nothing else is.
fn try_socket(path: &Path) -> Result<(), NetError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    writable(parent).map_err(|error| NetError::Address(format!("{}: {error}", path.display())))?;
    UnixSocket::probe(path)
}

/// How much memory this process can have: what the host has, or less, where its control groups say so.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.split_whitespace().next()?.parse().ok()?;
    let mut least = kib << 10;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let root = Path::new("/sys/fs/cgroup");
    for group in Path::new(group.unwrap_or_default()).ancestors() {
        let text = std::fs::read_to_string(root.join(group).join("memory.max"));
        // `max` is no limit.
        if let Some(limit) = text.ok().and_then(|text| text.trim().parse().ok()) {
            least = least.min(limit);
        }
    }
    Some(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_files_are_cautions_when_there_is_too_little() {
        let mut findings = Findings(Vec::new());
        findings.memory(10, Some(9));
        findings.memory(9, Some(9));
        findings.memory(9, None);
        findings.files(Some(100));
        findings.files(None);
        let cautions: Vec<bool> = findings
            .0
            .iter()
            .map(|finding| matches!(finding.verdict, Verdict::Caution(_)))
            .collect();
        assert_eq!(cautions, [true, false, true, false]);
        assert!(memory_bytes() > Some(0));
    }
}
