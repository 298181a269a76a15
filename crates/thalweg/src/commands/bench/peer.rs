//! The processes of a benchmark, and where they run.

use super::Way;
use crate::failure::{About, Code, Failure};
use client::{Driver, DriverOptions, Endpoint};
use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Which cores client and server run on.
#[derive(Debug)]
pub struct Cores {
    /// (client, server), if they are pinned.
    pinned: Option<(usize, usize)>,
}

impl Cores {
    /// The first two cores that this process may use, one for each side.
    pub fn choose(no_pin: bool) -> Result<Self, Failure> {
        let allowed = sched_getaffinity(None)
            .map_err(io::Error::from)
            .about("cores")?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let pinned = match (no_pin, cores.next(), cores.next()) {
            (false, Some(server), Some(client)) => Some((client, server)),
            _ => None,
        };
        let cores = Self { pinned };
        cores.move_to(|(client, _)| client).about("cores")?;
        Ok(cores)
    }

    fn move_to(&self, side: impl Fn((usize, usize)) -> usize) -> io::Result<()> {
        if let Some(pinned) = self.pinned {
            let mut set = CpuSet::new();
            set.set(side(pinned));
            sched_setaffinity(None, &set)?;
        }
        Ok(())
    }

    /// Starts a process on the server's core, which its threads inherit.
    pub fn spawn_server(&self, command: &mut Command) -> io::Result<Child> {
        self.move_to(|(_, server)| server)?;
        let child = command.spawn();
        self.move_to(|(client, _)| client)?;
        child
    }

    /// For the report.
    pub fn describe(&self) -> String {
        match self.pinned {
            Some((client, server)) => format!("client on core {client}, server on core {server}"),
            None => "cores chosen by the kernel".to_owned(),
        }
    }
}

/// A server of the benchmark's own. Killed if it is not stopped.
pub struct ServerProcess {
    child: Child,
    group_file: PathBuf,
}

impl ServerProcess {
    /// Starts `thalweg serve` and waits until it is ready.
    pub fn start(
        directory: &Path,
        scratch: &Path,
        way: Way,
        cores: &Cores,
    ) -> Result<Self, Failure> {
        const SUBJECT: &str = "the server";
        let group_file = scratch.join("thalweg.json");
        let listen = match way {
            Way::Tcp => "tcp://127.0.0.1:0".to_owned(),
            Way::Unix => format!("unix://{}", scratch.join("socket").display()),
        };
        let mut command = Command::new(std::env::current_exe().about(SUBJECT)?);
        command
            .arg("serve")
            .arg(directory)
            .arg("--group-file")
            .arg(&group_file);
        command
            .args(["--listen", &listen])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = cores.spawn_server(&mut command).about(SUBJECT)?;
        let stdout = child.stdout.take().expect("its output is piped");
        let server = Self { child, group_file };
        let mut ready = String::new();
        BufReader::new(stdout)
            .read_line(&mut ready)
            .about(SUBJECT)?;
        if ready.is_empty() {
            return Err(Failure::new(
                Code::Failure,
                SUBJECT,
                "ended before it was ready",
            ));
        }
        Ok(server)
    }

    /// Connects to it.
    pub fn connect(&self) -> Result<Driver, Failure> {
        let options = DriverOptions {
            client_name: "thalweg bench".to_owned(),
            ..Default::default()
        };
        Driver::connect(Endpoint::GroupFile(self.group_file.clone()), options).about("the server")
    }

    /// Its process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends it cleanly.
    pub fn stop(mut self) -> Result<(), Failure> {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, Signal::TERM)
            .map_err(io::Error::from)
            .about("the server")?;
        self.child.wait().about("the server").map(|_| ())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // After `stop` it is gone, and there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nanoseconds that all threads of a process have spent on a core.
pub fn cpu_ns(process: u32) -> io::Result<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end meanwhile; its time is lost to the sum.
        if let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) {
            sum += text
                .split(' ')
                .next()
                .and_then(|word| word.parse::<u64>().ok())
                .unwrap_or(0);
        }
    }
    Ok(sum)
}
