//! The server that a run has for itself: started on a temporary directory, killed and started again if a fault says so.

use super::amqp;
use super::connect;
use super::route;
use crate::commands::bench::peer::{Cores, ServerProcess, Way};
use crate::failure::{About, Code, Failure};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::path::PathBuf;
use workload::{Backend, Scenario, Url};

const SUBJECT: &str = "the server";

/// The server, and its temporary directory.
pub struct Own {
    server: ServerProcess,
    scratch: tempfile::TempDir,
    cores: Cores,
    /// What it is started with.
    more: &'static [&'static str],
    /// It was killed on purpose, and none is started in its place yet.
    is_killed: bool,
}

impl Own {
    /// Starts one, whose URL the scenario has from now on.
    pub fn start(scenario: &mut Scenario) -> Result<Self, Failure> {
        connect::check_serve(scenario.backend)?;
        let scratch = tempfile::tempdir().about("a temporary directory")?;
        let cores = Cores::choose(true)?;
        let is_amqp = scenario.backend == Backend::Amqp;
        let is_encrypted = scenario.tls || route::wants_tls(scenario.architecture);
        let more: &[&str] = match (is_amqp, is_encrypted) {
            (true, false) => &["--amqp", "tcp://127.0.0.1:0", "--amqp-guest"],
            (true, true) => &["--amqp", "tls://127.0.0.1:0", "--amqp-guest"],
            (false, false) => &[],
            (false, true) => &["--listen", "tls://127.0.0.1:0"],
        };
        let data = scratch.path().join("data");
        let server = ServerProcess::start(&data, scratch.path(), Way::Tcp, &cores, more)?;
        let own = Self {
            server,
            scratch,
            cores,
            more,
            is_killed: false,
        };
        let url = match is_amqp {
            true => {
                let address = own.server.amqp_authority();
                let address = address.ok_or_else(|| {
                    let what = "does not say where it listens for AMQP";
                    Failure::new(Code::Failure, SUBJECT, what)
                })?;
                let authorities = is_encrypted.then(|| data.join("tls/authority.pem"));
                amqp::url::of_guest(address, authorities)
            }
            false => {
                if is_encrypted {
                    own.server.offer_only("tls")?;
                }
                own.file("thalweg.json").display().to_string()
            }
        };
        scenario.url = Some(Url(url));
        Ok(own)
    }

    /// Where its data is.
    pub fn data(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// A file beside its data, which goes with it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Its number in the operating system.
    pub fn id(&self) -> u32 {
        self.server.id()
    }

    /// Kills it, and starts it again on the same directory and port.
    pub fn kill_and_start(&mut self) -> Result<(), Failure> {
        let listen = self.server.address().to_owned();
        self.is_killed = true;
        self.server.kill().about(SUBJECT)?;
        let (data, scratch) = (self.data(), self.scratch.path());
        self.server =
            ServerProcess::start_at(&data, scratch, (Way::Tcp, &listen), &self.cores, self.more)?;
        self.is_killed = false;
        Ok(())
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: Signal) -> Result<(), Failure> {
        // The number of one that has ended may be another's by now.
        if self.server.ended().about(SUBJECT)?.is_some() {
            return Ok(());
        }
        let pid = Pid::from_raw(self.server.id() as i32).expect("a process has a number");
        let sent = kill_process(pid, signal);
        sent.map_err(io::Error::from).about(SUBJECT)
    }

    /// Fails if it has ended by itself.
    pub fn ended(&mut self) -> Result<(), Failure> {
        match self.server.ended().about(SUBJECT)? {
            None => Ok(()),
            // Why none came in its place is another failure.
            Some(_) if self.is_killed => Ok(()),
            Some(status) => {
                let what = format!("has ended by itself: {status}");
                Err(Failure::new(Code::Failure, SUBJECT, what))
            }
        }
    }

    /// Ends it, and removes its directory.
    pub fn stop(self) -> Result<(), Failure> {
        self.server.stop()?;
        self.scratch.close().about("a temporary directory")
    }
}
