//! The processes of a benchmark, and where they run.

use super::meter::Usage;
use crate::failure::{About, Code, Failure};
use clap::ValueEnum;
use client::group_file::GroupFile;
use client::{Driver, Endpoint};
use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How clients and server reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// TCP over the loopback interface
    Tcp,
    /// A unix socket
    Unix,
    /// Shared memory
    Shm,
    /// No process border: the server is embedded, clients are threads
    Inproc,
}

impl Way {
    /// For people and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::Shm => "shm",
            Self::Inproc => "inproc",
        }
    }
}

/// Which cores clients and server run on.
#[derive(Debug)]
pub struct Cores {
    /// The server's, if processes are pinned.
    server: Option<usize>,
    /// The clients', in turn.
    clients: Vec<usize>,
}

impl Cores {
    /// The first core that this process may use for the server, the others
    /// for the clients in turn; this process goes where the first client is.
    /// Unpinned if there is only one core, and when asked to.
    pub fn choose(no_pin: bool) -> Result<Self, Failure> {
        let allowed = sched_getaffinity(None)
            .map_err(io::Error::from)
            .about("cores")?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|core| allowed.is_set(*core))
            .collect();
        let cores = match all.as_slice() {
            [server, clients @ ..] if !no_pin && !clients.is_empty() => Self {
                server: Some(*server),
                clients: clients.to_vec(),
            },
            _ => Self {
                server: None,
                clients: Vec::new(),
            },
        };
        cores.move_to_client(0).about("cores")?;
        Ok(cores)
    }

    fn move_to_client(&self, index: usize) -> io::Result<()> {
        match self.clients.len() {
            0 => Ok(()),
            count => move_to(self.clients[index % count]),
        }
    }

    /// Starts a process on the server's core, which its threads inherit.
    pub fn spawn_server(&self, command: &mut Command) -> io::Result<Child> {
        if let Some(core) = self.server {
            move_to(core)?;
        }
        let child = command.spawn();
        self.move_to_client(0)?;
        child
    }

    /// Starts a process on the core of client `index`.
    pub fn spawn_client(&self, command: &mut Command, index: usize) -> io::Result<Child> {
        self.move_to_client(index)?;
        let child = command.spawn();
        self.move_to_client(0)?;
        child
    }

    /// Runs `work` on the server's core.
    pub fn on_server<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        if let Some(core) = self.server {
            move_to(core)?;
        }
        let value = work();
        self.move_to_client(0)?;
        Ok(value)
    }

    /// For the report.
    pub fn describe(&self) -> String {
        match self.server {
            Some(server) => {
                let clients: Vec<String> = self.clients.iter().map(usize::to_string).collect();
                let clients = clients.join(", ");
                format!("clients on core {clients}, server on core {server}")
            }
            None => "cores chosen by the kernel".to_owned(),
        }
    }
}

fn move_to(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

const SUBJECT: &str = "the server";
/// How long a server may take to end, which drains for 30 s at most.
const END: Duration = Duration::from_secs(60);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(2);

/// The server that is measured.
pub enum Server {
    /// A process of the benchmark's own. Killed if it is not stopped.
    Process(ServerProcess),
    /// A thread of this process.
    Embedded(server::Server),
    /// Somebody else's.
    Running(PathBuf),
}

impl Server {
    /// Starts one.
    pub fn start(
        directory: &Path,
        scratch: &Path,
        way: Way,
        cores: &Cores,
    ) -> Result<Self, Failure> {
        if way == Way::Inproc {
            let config = server::Config {
                directory: directory.to_owned(),
                ..server::Config::default()
            };
            let report = Arc::new(|_: &str| {});
            let started = cores
                .on_server(|| server::Server::embedded(config, report))
                .about(SUBJECT)?;
            return Ok(Self::Embedded(started.about(SUBJECT)?));
        }
        ServerProcess::start(directory, scratch, way, cores, &[]).map(Self::Process)
    }

    /// Where a client finds it.
    pub fn endpoint(&self) -> Endpoint {
        match self {
            Self::Process(process) => Endpoint::GroupFile(process.group_file.clone()),
            Self::Running(path) => Endpoint::GroupFile(path.clone()),
            Self::Embedded(server) => Endpoint::Address {
                address: server.endpoints()[0].clone(),
                token: None,
                directory: Some(server.directory()),
            },
        }
    }

    /// Its group file; none if only this process reaches it.
    pub fn group_file(&self) -> Option<&Path> {
        match self {
            Self::Process(process) => Some(&process.group_file),
            Self::Running(path) => Some(path),
            Self::Embedded(_) => None,
        }
    }

    /// Its process, if it is one of the benchmark's own.
    pub fn process(&self) -> Option<u32> {
        match self {
            Self::Process(process) => Some(process.child.id()),
            _ => None,
        }
    }

    /// What it has used, if it is a process of the benchmark's own.
    pub fn usage(&self, driver: &Driver) -> Result<Option<Usage>, Failure> {
        let Self::Process(process) = self else {
            return Ok(None);
        };
        let status = driver.status().about(SUBJECT)?;
        let status: Value = serde_json::from_str(&status)
            .map_err(|error| Failure::new(Code::Failure, SUBJECT, error))?;
        Ok(Some(Usage {
            copied_bytes: status["copied_bytes"].as_u64().unwrap_or(0),
            ..Usage::of_process(process.child.id()).about(SUBJECT)?
        }))
    }

    /// Ends what the benchmark started.
    pub fn stop(self) -> Result<(), Failure> {
        match self {
            Self::Process(process) => process.stop(),
            Self::Embedded(server) => server
                .drain(Duration::from_secs(30))
                .about(SUBJECT)
                .map(|_| ()),
            Self::Running(_) => Ok(()),
        }
    }
}

/// A server in a process of its own.
pub struct ServerProcess {
    child: Child,
    group_file: PathBuf,
    /// What it said when it was ready.
    ready: Value,
    /// Those of its group file then.
    endpoints: Vec<String>,
}

impl ServerProcess {
    /// Starts `thalweg serve`, with more arguments of its own, and waits until it is ready.
    pub fn start(
        directory: &Path,
        scratch: &Path,
        way: Way,
        cores: &Cores,
        more: &[&str],
    ) -> Result<Self, Failure> {
        let listen = match way {
            Way::Unix | Way::Shm => format!("unix://{}", scratch.join("socket").display()),
            Way::Tcp | Way::Inproc => "tcp://127.0.0.1:0".to_owned(),
        };
        Self::start_at(directory, scratch, (way, &listen), cores, more)
    }

    /// The same, where it is said at which address.
    pub fn start_at(
        directory: &Path,
        scratch: &Path,
        (way, listen): (Way, &str),
        cores: &Cores,
        more: &[&str],
    ) -> Result<Self, Failure> {
        let group_file = scratch.join("thalweg.json");
        let mut command = Command::new(std::env::current_exe().about(SUBJECT)?);
        command
            .arg("serve")
            .arg(directory)
            .arg("--json")
            .arg("--group-file")
            .arg(&group_file)
            .args(more);
        command
            .args(["--listen", listen, "--no-unix-socket"])
            .args(["--end-with", &std::process::id().to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = cores.spawn_server(&mut command).about(SUBJECT)?;
        let stdout = child.stdout.take().expect("its output is piped");
        let mut server = Self {
            child,
            group_file,
            ready: Value::Null,
            endpoints: Vec::new(),
        };
        let mut ready = String::new();
        BufReader::new(stdout)
            .read_line(&mut ready)
            .about(SUBJECT)?;
        if ready.is_empty() {
            let what = "ended before it was ready";
            return Err(Failure::new(Code::Failure, SUBJECT, what));
        }
        server.ready = serde_json::from_str(&ready)
            .map_err(|error| Failure::new(Code::Failure, SUBJECT, error))?;
        let group = GroupFile::read(&server.group_file);
        server.endpoints = group
            .map_err(|why| Failure::new(Code::Failure, SUBJECT, why))?
            .endpoints;
        server.offer_only(way.name())?;
        Ok(server)
    }

    /// The first address at which it listens.
    pub fn address(&self) -> &str {
        self.endpoints.first().map_or("", String::as_str)
    }

    /// Host and port at which it listens for AMQP, if it does.
    pub fn amqp_authority(&self) -> Option<&str> {
        let address = self.ready["amqp"][0].as_str()?;
        address.split_once("://").map(|(_, authority)| authority)
    }

    /// Leaves in the group file what is to be measured: a server of this host
    /// can be reached in several ways.
    pub fn offer_only(&self, scheme: &str) -> Result<(), Failure> {
        let failed = |why| Failure::new(Code::Failure, SUBJECT, why);
        let mut group = GroupFile::read(&self.group_file).map_err(failed)?;
        let scheme = format!("{scheme}://");
        let wanted = self.endpoints.iter();
        let wanted = wanted.filter(|address| address.starts_with(&scheme));
        group.endpoints = wanted.cloned().collect();
        std::fs::write(&self.group_file, group.to_json()).about(SUBJECT)
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// Its number in the operating system.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it cleanly, or, if it does not end, by force.
    pub fn stop(mut self) -> Result<(), Failure> {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, Signal::TERM)
            .map_err(io::Error::from)
            .about(SUBJECT)?;
        let until = Instant::now() + END;
        while self.child.try_wait().about(SUBJECT)?.is_none() {
            if Instant::now() >= until {
                let seconds = END.as_secs();
                let what = format!("did not end within {seconds} s after SIGTERM, and was killed");
                return Err(Failure::new(Code::Failure, SUBJECT, what));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // After `stop` it is gone, and there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
