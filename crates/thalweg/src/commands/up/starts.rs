//! What runs while `thalweg up` waits: a process beside each server, or one srun or mpiexec for all.

use super::plan::{Plan, shell_line};
use crate::commands::launch::STAY;
use crate::failure::{About, Failure};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often it is looked what a launcher has printed, and whether it runs.
const LOOK: Duration = Duration::from_millis(20);
/// How long what was started may take to end, or to go on alone: longer than a server drains.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// Of what a process says on standard error so much is kept.
const SAID_BYTES_MAX: u64 = 16 << 10;
/// So much is read of what it says on standard output, where a server takes some hundred bytes: a shell at the other end of ssh may say
/// more.
const PRINTED_BYTES_MAX: u64 = 1 << 20;

/// What is heard of a server.
pub enum Event {
    /// What `thalweg launch` says.
    Said(Value),
    /// A process has ended: of one server, or of all.
    Ended {
        rank: Option<u32>,
        /// What it was, and what it said of its own.
        what: String,
    },
}

/// What was started.
pub trait Starts {
    /// The next that is heard, if it comes in this time.
    fn next(&mut self, within: Duration) -> Option<Event>;

    /// Leaves the servers running.
    fn leave(self: Box<Self>);

    /// Ends the servers, and waits for that.
    fn end(self: Box<Self>);
}

/// A process beside each server.
pub struct Each {
    started: BTreeMap<u32, Started>,
    events: Receiver<(u32, Option<Value>)>,
}

struct Started {
    child: Child,
    /// Dropped, the server ends.
    stdin: Option<ChildStdin>,
    said: Option<JoinHandle<String>>,
}

impl Each {
    /// Starts these servers.
    ///
    /// # Errors
    /// If the program cannot be run that starts one. None is left then.
    pub fn start(plan: &Plan, ranks: &[u32]) -> Result<Self, Failure> {
        let (send, events) = mpsc::channel();
        let mut each = Self {
            started: BTreeMap::new(),
            events,
        };
        for rank in ranks {
            match begin(&plan.command_of(*rank), *rank, send.clone()) {
                Ok(started) => each.started.insert(*rank, started),
                Err(failure) => {
                    Box::new(each).end();
                    return Err(failure);
                }
            };
        }
        Ok(each)
    }

    /// Waits until all processes have ended; kills those that have not in time.
    fn wait(mut self) {
        let deadline = Instant::now() + ENDS_WITHIN;
        for one in self.started.values_mut() {
            while !matches!(one.child.try_wait(), Ok(Some(_)) | Err(_)) {
                if Instant::now() >= deadline {
                    // Of ssh, this is what is here; the server ends as soon as its host notices.
                    let _ = one.child.kill();
                }
                thread::sleep(LOOK);
            }
        }
    }
}

fn begin(
    words: &[String],
    rank: u32,
    send: Sender<(u32, Option<Value>)>,
) -> Result<Started, Failure> {
    let (program, arguments) = words.split_first().expect("there is a program");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .about(program)?;
    let stdout = child.stdout.take().expect("it was asked for");
    let mut stderr = child.stderr.take().expect("it was asked for");
    thread::spawn(move || {
        let printed = BufReader::new(stdout.take(PRINTED_BYTES_MAX));
        let lines = printed.lines().map_while(Result::ok);
        let values = lines.filter_map(|line| serde_json::from_str(&line).ok());
        let mut events = values.map(Some).chain([None]);
        // Without a receiver nobody waits any more.
        let _ = events.try_for_each(|event| send.send((rank, event)));
    });
    let said = thread::spawn(move || {
        let mut said = Vec::new();
        let _ = Read::take(&mut stderr, SAID_BYTES_MAX).read_to_end(&mut said);
        String::from_utf8_lossy(&said).trim().to_owned()
    });
    Ok(Started {
        stdin: child.stdin.take(),
        child,
        said: Some(said),
    })
}

impl Starts for Each {
    fn next(&mut self, within: Duration) -> Option<Event> {
        // It waits as long where nothing can come any more.
        let Ok((rank, event)) = self.events.recv_timeout(within) else {
            return None;
        };
        Some(match event {
            Some(value) => Event::Said(value),
            None => {
                let one = self.started.get_mut(&rank).expect("it was started");
                let ended = one.child.wait();
                let said = one.said.take().and_then(|said| said.join().ok());
                let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                Event::Ended {
                    rank: Some(rank),
                    what: format!("{how}: {}", said.unwrap_or_default()),
                }
            }
        })
    }

    fn leave(mut self: Box<Self>) {
        for one in self.started.values_mut() {
            if let Some(mut stdin) = one.stdin.take() {
                // One that has ended since has nobody to be told.
                let _ = stdin.write_all(format!("{STAY}\n").as_bytes());
            }
        }
        self.wait();
    }

    fn end(mut self: Box<Self>) {
        self.started.values_mut().for_each(|one| one.stdin = None);
        self.wait();
    }
}

/// One srun or mpiexec, which runs as long as its servers do.
pub struct Launcher {
    child: Child,
    log: PathBuf,
    said: BufReader<File>,
    /// What was read of a line.
    line: Vec<u8>,
    has_ended: bool,
}

impl Launcher {
    /// Starts all servers.
    ///
    /// # Errors
    /// If it cannot be run.
    pub fn start(plan: &Plan) -> Result<Self, Failure> {
        let words = plan.command_of_all();
        let log = plan.logs().join(format!("{}.log", words[0]));
        let subject = log.display().to_string();
        let mut file = OpenOptions::new();
        let file = file.create(true).write(true).truncate(true).mode(0o600);
        let mut file = file.open(&log).about(&subject)?;
        writeln!(file, "{}", shell_line(&words)).about(&subject)?;
        let errors = file.try_clone().about(&subject)?;
        let said = BufReader::new(File::open(&log).about(&subject)?);
        let words = plan.in_session(words);
        let (program, arguments) = words.split_first().expect("there is a program");
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .about(program)?;
        Ok(Self {
            child,
            log,
            said,
            line: Vec::new(),
            has_ended: false,
        })
    }

    /// The next whole line that it has printed.
    fn read_line(&mut self) -> Option<String> {
        self.said.read_until(b'\n', &mut self.line).ok()?;
        if self.line.last() != Some(&b'\n') {
            return None;
        }
        let line = std::mem::take(&mut self.line);
        Some(String::from_utf8_lossy(&line).into_owned())
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32);
        // Its number is nobody else's: it leads its session, and is not waited for yet.
        let _ = pid.map(|pid| kill_process_group(pid, signal));
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }
}

impl Starts for Launcher {
    fn next(&mut self, within: Duration) -> Option<Event> {
        let began = Instant::now();
        loop {
            // What it printed before its end is read after that.
            let is_over = self.has_ended();
            while let Some(line) = self.read_line() {
                if let Ok(value @ Value::Object(_)) = serde_json::from_str(&line) {
                    return Some(Event::Said(value));
                }
            }
            if is_over && !std::mem::replace(&mut self.has_ended, true) {
                let what = format!("it has ended:\n{}", text_of(&self.log));
                return Some(Event::Ended { rank: None, what });
            }
            if began.elapsed() >= within {
                return None;
            }
            thread::sleep(LOOK.min(within));
        }
    }

    fn leave(self: Box<Self>) {}

    fn end(mut self: Box<Self>) {
        if self.has_ended() {
            return;
        }
        self.signal(Signal::TERM);
        let deadline = Instant::now() + ENDS_WITHIN;
        while !self.has_ended() {
            if Instant::now() >= deadline {
                self.signal(Signal::KILL);
            }
            thread::sleep(LOOK);
        }
    }
}

/// What the launcher printed, for a message.
fn text_of(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().skip(1).filter(|line| !line.starts_with('{'));
    let lines: Vec<&str> = lines.take(20).collect();
    lines.join("\n")
}
