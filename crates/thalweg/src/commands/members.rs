//! The servers of a cluster as processes: where each is, and whether it runs. By the protocol, from a group file.

use crate::connection::Connection;
use crate::failure::{About, Failure};
use client::group_file::{GroupFile, Host};
use client::{Driver, NodeDescription, NodeState};
use std::io::{self, ErrorKind, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a server is waited for of which it is not known whether it runs.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long an address of another host may take to answer.
const KNOCK_WITHIN: Duration = Duration::from_secs(2);

/// A server of the cluster.
#[derive(Debug, Clone)]
pub struct Member {
    /// Which of those that were started with it.
    pub rank: Option<u32>,
    /// The name of its host.
    pub host: String,
    /// Its process there.
    pub pid: Option<u32>,
    description: NodeDescription,
}

impl Member {
    fn of(description: NodeDescription) -> Self {
        let label = |key: &str| description.labels.0.get(key);
        let number = |key: &str| label(key).and_then(|text| text.parse().ok());
        Self {
            rank: number("rank"),
            host: label("host").cloned().unwrap_or_default(),
            pid: number("pid"),
            description,
        }
    }

    /// Where clients reach it.
    pub fn endpoints(&self) -> &[String] {
        &self.description.endpoints.0
    }

    /// What messages call it.
    pub fn name(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank {rank} on {}", self.host),
            None => format!("node {} on {}", self.description.node, self.host),
        }
    }
}

/// The servers of a cluster, and what one of them has to be shown.
pub struct Members {
    connection: Connection,
    file: GroupFile,
    own: Host,
    /// All that the cluster's table has.
    pub list: Vec<Member>,
}

impl Members {
    /// Asks the servers that the connection's group file names.
    ///
    /// # Errors
    /// If none of them answers, or that which does is alone.
    pub fn find(connection: &Connection) -> Result<Self, Failure> {
        let subject = connection.subject();
        let Some(path) = connection.group_file() else {
            let why = "the servers of a cluster are found by their group file";
            return Err(Failure::usage(subject, why));
        };
        let driver = connection.driver()?;
        let file = GroupFile::read(&path).map_err(|why| Failure::usage(&subject, why))?;
        let nodes = driver.list_nodes().about(&subject)?;
        if nodes.is_empty() {
            let why = "this server is no part of a cluster (thalweg up, thalweg serve --cluster)";
            return Err(Failure::usage(subject, why));
        }
        // The first shard speaks for its server.
        let first = |node: &NodeDescription| node.shard == 0 && node.state != NodeState::Removed;
        let list = nodes.into_iter().filter(first).map(Member::of);
        Ok(Self {
            connection: connection.clone(),
            file,
            own: Host::this(),
            list: list.collect(),
        })
    }

    /// Connects to a server, and to no other.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn connect(&self, member: &Member) -> Result<Driver, Failure> {
        let is_here = member.host == self.own.name;
        let file = GroupFile {
            directory: member.description.directory,
            host: member.host.clone(),
            boot_id: match is_here {
                true => self.own.boot_id.clone(),
                false => String::new(),
            },
            endpoints: member.endpoints().to_vec(),
            others: Vec::new(),
            ..self.file.clone()
        };
        let name = member.name();
        // Its mode is 0600.
        let mut written = tempfile::NamedTempFile::new().about(&name)?;
        written.write_all(file.to_json().as_bytes()).about(&name)?;
        let path = written.path().to_owned();
        let driver = self.connection.at_group_file(path, CONNECT_WITHIN).driver();
        driver.map_err(|failure| Failure::new(failure.exit_code(), name, what_of(failure)))
    }

    /// Whether a server has ended, as far as that can be seen from here: its process is gone, if that was on this host,
    /// and nobody is at its addresses. One that may be cut off has not.
    pub fn is_gone(&self, member: &Member) -> bool {
        is_gone(member, &self.own)
    }
}

/// As [`Members::is_gone`], of a node's server.
pub fn has_ended(node: &NodeDescription) -> bool {
    is_gone(&Member::of(node.clone()), &Host::this())
}

fn is_gone(member: &Member, own: &Host) -> bool {
    let is_here = member.host == own.name;
    let process = member.pid.filter(|_| is_here).map(|pid| match runs(pid) {
        true => Knocked::Answered,
        false => Knocked::Nobody,
    });
    let addresses = knock_at(member.endpoints(), is_here);
    process.into_iter().chain(addresses).max() == Some(Knocked::Nobody)
}

/// A failure without its subject.
fn what_of(failure: Failure) -> String {
    match failure {
        Failure::Told { what, .. } => what,
        Failure::OutputClosed => failure.to_string(),
    }
}

/// What an address says of who is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knocked {
    /// Its host says that nobody is.
    Nobody,
    /// Nothing says it.
    Unknown,
    /// It takes a connection.
    Answered,
}

/// Whether somebody is at an address of a group file, as far as addresses mean something on this host.
pub fn knock(path: &Path) -> Knocked {
    let Ok(file) = GroupFile::read(path) else {
        return Knocked::Unknown;
    };
    let own = Host::this().name;
    let others = file.others.iter();
    let others = others.map(|other| (&other.host, &other.endpoints));
    let all = others.chain([(&file.host, &file.endpoints)]);
    let knocked = all.flat_map(|(host, endpoints)| knock_at(endpoints, *host == own));
    knocked.max().unwrap_or(Knocked::Unknown)
}

/// What each of these addresses says that means something on this host; `is_here`: they are of a server on it.
fn knock_at(endpoints: &[String], is_here: bool) -> Vec<Knocked> {
    let each = endpoints.iter().flat_map(|address| {
        let (scheme, place) = address.split_once("://").unwrap_or_default();
        let place = place.split('?').next().unwrap_or(place);
        match scheme {
            "unix" if is_here => vec![knocked(UnixStream::connect(place))],
            "tcp" | "tls" => match place.to_socket_addrs() {
                Ok(found) => found
                    .filter(|at| is_here || !at.ip().is_loopback())
                    .map(|at| knocked(TcpStream::connect_timeout(&at, KNOCK_WITHIN)))
                    .collect(),
                Err(_) => vec![Knocked::Unknown],
            },
            _ => Vec::new(),
        }
    });
    each.collect()
}

fn knocked<T>(connected: io::Result<T>) -> Knocked {
    match connected.map_err(|error| error.kind()) {
        Ok(_) => Knocked::Answered,
        Err(ErrorKind::ConnectionRefused | ErrorKind::NotFound) => Knocked::Nobody,
        Err(_) => Knocked::Unknown,
    }
}

/// Whether a process of this host runs. One that has ended and is not waited for does not.
fn runs(pid: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = text
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::process::Command;

    #[test]
    fn a_process_that_has_ended_does_not_run_even_if_nobody_waits_for_it() {
        assert!(runs(std::process::id()));
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        while runs(pid) {
            std::thread::yield_now();
        }
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        child.wait().unwrap();
        assert!(!runs(pid));
    }

    #[test]
    fn an_address_says_whether_somebody_is_there_and_one_of_a_host_alone_nothing_elsewhere() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = [format!(
            "tls://{}?sha256=00",
            listener.local_addr().unwrap()
        )];
        assert_eq!(knock_at(&address, true), [Knocked::Answered]);
        assert_eq!(knock_at(&address, false), []);
        drop(listener);
        assert_eq!(knock_at(&address, true), [Knocked::Nobody]);
        let nowhere = ["unix:///nowhere".to_owned()];
        assert_eq!(knock_at(&nowhere, true), [Knocked::Nobody]);
        assert_eq!(knock_at(&nowhere, false), []);
        let unknown = [
            "tcp://no.such.host.invalid:1".to_owned(),
            "tcp://".to_owned(),
        ];
        assert_eq!(knock_at(&unknown, true), [Knocked::Unknown; 2]);
        let nothing = [String::new(), "shm:///nowhere".to_owned()];
        assert_eq!(knock_at(&nothing, true), []);
    }
}
