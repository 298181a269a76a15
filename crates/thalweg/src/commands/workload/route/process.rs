//! The process of a proxy: started, waited for, looked at, and ended whatever happens.
//!
//! ```text
//!  started ──► ready ──► ended by us
//!     │          │
//!     └──────────┴─────► ended by itself: a failure, with the last lines of its log
//! ```
//!
//! It has a group of its own, so that Ctrl-C does not end it before those who need it, and so that all of its processes
//! end with it. It is a child that has become the program ([`super::launch`]), and ends when the command is killed.

use super::super::cpu;
use super::super::interrupted::interrupted;
use super::quota::Quota;
use crate::failure::{About, Code, Failure};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long one may take to be ready.
const READY: Duration = Duration::from_secs(20);
/// How long one may take to end.
const END: Duration = Duration::from_secs(5);
/// How often it is looked whether it is ready, or has ended.
const LOOK: Duration = Duration::from_millis(5);
/// How often another port is chosen, where somebody else has taken the one that was free.
const PORTS_MAX: usize = 5;
/// The last lines of a log that an error has, and bytes that are looked at for them.
const LINES_MAX: usize = 6;
const LINES_BYTES_MAX: u64 = 4 << 10;

/// What all proxies of a route are started with.
pub struct Starter<'a> {
    /// Where their files are.
    pub folder: &'a Path,
    /// Thousandths of a core that each has.
    pub cores_thousandths: Option<u64>,
    /// Whether their logs go into pipes that nobody reads.
    pub is_unread: bool,
    /// Whether the user wants an end.
    pub is_interrupted: &'a AtomicBool,
}

/// What is started.
pub struct Start<'a> {
    /// For people, and for names of files: `near-haproxy`.
    pub name: &'a str,
    pub program: &'a Path,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(&'static str, String)>,
    /// Whether its standard output is for us, and no log.
    pub has_output: bool,
}

/// A proxy that runs. It ends when this is dropped.
pub struct Process {
    pub name: String,
    child: Child,
    folder: PathBuf,
    is_unread: bool,
    /// How long it may take to end.
    end: Duration,
    /// After the child: a group with processes cannot be removed.
    _quota: Option<Quota>,
}

impl Starter<'_> {
    /// A file of the route.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts one.
    pub fn start(&self, start: Start<'_>) -> Result<Process, Failure> {
        let name = start.name;
        let quota = self.cores_thousandths.map(|cores| Quota::new(name, cores));
        let quota = quota.transpose()?;
        let file = |end: &str| File::create(self.path(&format!("{name}.{end}"))).about(name);
        let (out, log): (Stdio, Stdio) = match (self.is_unread, start.has_output) {
            (true, true) => (file("out")?.into(), Stdio::piped()),
            (true, false) => (Stdio::piped(), Stdio::piped()),
            (false, true) => (file("out")?.into(), file("log")?.into()),
            (false, false) => {
                let log = file("log")?;
                (log.try_clone().about(name)?.into(), log.into())
            }
        };
        let mut command = Command::new(std::env::current_exe().about(name)?);
        command.args(["workload", "launch"]);
        command.args(["--end-with", &std::process::id().to_string()]);
        if let Some(quota) = &quota {
            command.arg("--within").arg(quota.processes());
        }
        command.arg("--").arg(start.program).args(&start.arguments);
        command.envs(start.environment);
        command.stdin(Stdio::null()).stdout(out).stderr(log);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(Process {
            name: name.to_owned(),
            child: command.spawn().about(name)?,
            folder: self.folder.to_owned(),
            is_unread: self.is_unread,
            end: END,
            _quota: quota,
        })
    }

    /// Starts one of others that listens at a port of 127.0.0.1, which it is given, and waits until it does.
    pub fn listening(
        &self,
        name: &str,
        program: &Path,
        configure: impl Fn(u16) -> Result<Vec<OsString>, Failure>,
    ) -> Result<(Process, u16), Failure> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let port = free_port().about(name)?;
            let process = self.start(Start {
                name,
                program,
                arguments: configure(port)?,
                environment: Vec::new(),
                has_output: false,
            })?;
            let listens = || Ok(listens(process.id(), port).then_some(()));
            match self.until(&process, listens) {
                Ok(()) => return Ok((process, port)),
                Err(failure) if attempts >= PORTS_MAX || is_free(port) => return Err(failure),
                Err(_) => {}
            }
        }
    }

    /// Waits until one that was started gives what is to be known of it.
    pub fn until<T>(
        &self,
        process: &Process,
        mut found: impl FnMut() -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + READY;
        loop {
            if let Some(found) = found()? {
                return Ok(found);
            }
            process.check()?;
            // Relaxed: it guards nothing.
            if self.is_interrupted.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            if Instant::now() >= until {
                let seconds = READY.as_secs();
                let what = format!("is not ready after {seconds} s{}", process.last_lines());
                return Err(Failure::new(Code::Timeout, &process.name, what));
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Process {
    /// Its number in the operating system, which is that of its group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The same, which may take longer to end.
    pub fn ending_within(mut self, end: Duration) -> Self {
        self.end = end;
        self
    }

    /// What it has written to its standard output.
    pub fn output(&self) -> Result<String, Failure> {
        let path = self.folder.join(format!("{}.out", self.name));
        std::fs::read_to_string(path).about(&self.name)
    }

    /// Fails if it has ended by itself.
    pub fn check(&self) -> Result<(), Failure> {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = waitid(WaitId::Pid(Pid::from_child(&self.child)), how);
        let ended = ended.map_err(io::Error::from).about(&self.name)?;
        let Some(status) = ended else {
            return Ok(());
        };
        let how = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "in another way".to_owned(),
        };
        let what = format!(
            "process {} has ended by itself: {how}{}",
            self.id(),
            self.last_lines()
        );
        Err(Failure::new(Code::Failure, &self.name, what))
    }

    /// The last lines of its log, for an error.
    fn last_lines(&self) -> String {
        if self.is_unread {
            return "; its log is in a pipe that nobody reads".to_owned();
        }
        let text = self.tail().unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        match lines.len() {
            0 => "; it has said nothing".to_owned(),
            count => {
                let last = &lines[count.saturating_sub(LINES_MAX)..];
                format!("; the last lines of its log:\n{}", last.join("\n"))
            }
        }
    }

    fn tail(&self) -> io::Result<String> {
        let mut file = File::open(self.folder.join(format!("{}.log", self.name)))?;
        let bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(LINES_BYTES_MAX)))?;
        let mut text = Vec::new();
        file.take(LINES_BYTES_MAX).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn signal(&self, signal: Signal) {
        // A group that is gone has ended, which is what was wanted.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Waits until it has ended, and all of its group.
    fn wait(&mut self, until: Instant) -> Option<ExitStatus> {
        let group = Pid::from_child(&self.child);
        let mut status = None;
        loop {
            // A group is there for as long as its child is not waited for.
            if status.is_none() {
                status = self.child.try_wait().ok().flatten();
            }
            if status.is_some() && test_kill_process_group(group).is_err() {
                return status;
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        if self.wait(Instant::now() + self.end).is_none() {
            self.signal(Signal::KILL);
            self.wait(Instant::now() + END);
        }
    }
}

/// A port of 127.0.0.1 that nobody has at the moment.
fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// Whether this process listens at a port. Nothing is asked of it: a connection would be one to the server.
fn listens(process: u32, port: u16) -> bool {
    let text = std::fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    let address = format!("0100007F:{port:04X}");
    let mut rows = text.lines().map(|line| line.split_whitespace());
    let socket = rows.find_map(|mut fields| {
        let is_it = fields.nth(1)? == address && fields.nth(1)? == "0A";
        is_it.then(|| fields.nth(5))?
    });
    let Some(inode) = socket else {
        return false;
    };
    let wanted = format!("socket:[{inode}]");
    let files = std::fs::read_dir(cpu::directory(process).join("fd"));
    let mut files = files.into_iter().flatten().flatten();
    files.any(|file| std::fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == &*wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_known_without_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(std::process::id(), port));
        assert!(!listens(1, port), "another process has it");
        assert!(!is_free(port));
    }
}
