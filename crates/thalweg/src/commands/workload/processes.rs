//! The processes of a run: started, spoken to, heard, and ended whatever happens.

use crate::failure::{About, Failure};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use workload::{Assignment, FromProcess, LINE_BYTES_MAX, Member, ToProcess, from_line, to_line};

/// How long a process may take to end after its report.
const END: Duration = Duration::from_secs(10);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(2);

/// What the runner hears.
#[derive(Debug)]
pub enum Heard {
    /// A process says something.
    Said {
        /// Which.
        process: usize,
        /// What.
        what: FromProcess,
    },
    /// A process says something that is nothing, or cannot be heard.
    Garbled {
        /// Which.
        process: usize,
        /// Why.
        why: String,
    },
    /// A process has closed its output: it has ended, or will.
    Ended {
        /// Which.
        process: usize,
    },
}

/// One of them.
struct Process {
    child: Child,
    /// Gone once it could not be written to.
    input: Option<ChildStdin>,
    members: Vec<Member>,
}

/// All processes of a run. They are killed when this is dropped.
#[derive(Default)]
pub struct Processes {
    all: Vec<Option<Process>>,
}

const SUBJECT: &str = "a client of the workload";

impl Processes {
    /// Starts one. What it says comes to `heard`.
    pub fn start(&mut self, work: &Assignment, heard: &Sender<Heard>) -> Result<(), Failure> {
        let index = work.process as usize;
        let mut child = Command::new(std::env::current_exe().about(SUBJECT)?)
            .args(["workload", "client", &work.process.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .about(SUBJECT)?;
        let output = child.stdout.take().expect("its output is piped");
        let input = child.stdin.take();
        if self.all.len() <= index {
            self.all.resize_with(index + 1, || None);
        }
        self.all[index] = Some(Process {
            child,
            input,
            members: work.tasks.iter().map(|task| task.member).collect(),
        });
        let heard = heard.clone();
        let listener = std::thread::Builder::new().name(format!("client {index}"));
        let listening = listener.spawn(move || listen(index, output, &heard));
        listening.about("a thread")?;
        self.say(index, &ToProcess::Assign(work.clone()));
        Ok(())
    }

    /// Says something to one. One that is gone is heard to be.
    fn say(&mut self, index: usize, what: &ToProcess) {
        let Some(Some(process)) = self.all.get_mut(index) else {
            return;
        };
        let line = to_line(what);
        if let Some(input) = &mut process.input
            && input.write_all(line.as_bytes()).is_err()
        {
            process.input = None;
        }
    }

    /// Says something to all.
    pub fn say_to_all(&mut self, what: &ToProcess) {
        for index in 0..self.all.len() {
            self.say(index, what);
        }
    }

    /// The members of one.
    pub fn members(&self, index: usize) -> &[Member] {
        match self.all.get(index) {
            Some(Some(process)) => &process.members,
            _ => &[],
        }
    }

    /// How one has ended that has closed its output.
    pub fn end_of(&mut self, index: usize) -> String {
        let Some(Some(process)) = self.all.get_mut(index) else {
            return "it was never started".to_owned();
        };
        match wait(&mut process.child) {
            Some(status) => format!("its process has ended: {status}"),
            None => "its process has closed its output and does not end".to_owned(),
        }
    }

    /// Lets all end that have reported, and kills those that do not.
    pub fn end(mut self) {
        for process in self.all.iter_mut().flatten() {
            process.input = None;
        }
        for process in self.all.iter_mut().flatten() {
            wait(&mut process.child);
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in self.all.iter_mut().flatten() {
            // One that has ended is none the worse for it.
            let _ = process.child.kill();
        }
        for process in self.all.iter_mut().flatten() {
            let _ = process.child.wait();
        }
    }
}

/// The status of a process that is about to end.
fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let until = Instant::now() + END;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Hands on what a process says until it says no more.
fn listen(process: usize, output: impl Read, heard: &Sender<Heard>) {
    let mut output = BufReader::new(output);
    loop {
        let next = match read(&mut output) {
            Ok(None) => Heard::Ended { process },
            Ok(Some(line)) => match from_line(&line) {
                Ok(what) => Heard::Said { process, what },
                Err(error) => Heard::Garbled {
                    process,
                    why: error.to_string(),
                },
            },
            Err(error) => Heard::Garbled {
                process,
                why: error.to_string(),
            },
        };
        let is_last = !matches!(next, Heard::Said { .. });
        if heard.send(next).is_err() || is_last {
            return;
        }
    }
}

/// A line, or none at the end. One that is too long is cut, and so is none.
fn read(output: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let most = LINE_BYTES_MAX as u64 + 1;
    let bytes = output.take(most).read_line(&mut line)?;
    Ok((bytes > 0).then_some(line))
}
