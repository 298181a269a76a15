//! The processes of a run: started, spoken to, heard, and ended whatever happens.

use crate::failure::{About, Failure};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use workload::{Assignment, FromProcess, LINE_BYTES_MAX, Member, ToProcess, from_line, to_line};

/// How long processes may take to end after their reports.
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
    /// To the thread that writes: a process that does not read holds nobody else up. Gone once there is no more to say.
    input: Option<Sender<String>>,
    members: Vec<Member>,
}

/// All processes of a run. They are killed when this is dropped.
#[derive(Default)]
pub struct Processes {
    all: Vec<Option<Process>>,
    user_ended: bool,
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
        let input = child.stdin.take().expect("its input is piped");
        let (say, lines) = channel();
        if self.all.len() <= index {
            self.all.resize_with(index + 1, || None);
        }
        self.all[index] = Some(Process {
            child,
            input: Some(say),
            members: work.tasks.iter().map(|task| task.member).collect(),
        });
        let heard = heard.clone();
        let listener = std::thread::Builder::new().name(format!("client {index}"));
        let listening = listener.spawn(move || listen(index, output, &heard));
        listening.about("a thread")?;
        let writer = std::thread::Builder::new().name(format!("to client {index}"));
        let writing = writer.spawn(move || write(input, &lines));
        writing.about("a thread")?;
        self.say(index, &ToProcess::Assign(work.clone()));
        Ok(())
    }

    /// Says something to one. One that is gone is heard to be.
    fn say(&mut self, index: usize, what: &ToProcess) {
        let Some(Some(process)) = self.all.get_mut(index) else {
            return;
        };
        if let Some(input) = &process.input
            && input.send(to_line(what)).is_err()
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

    /// Says something to the process of a member.
    pub fn say_to(&mut self, member: Member, what: &ToProcess) {
        for index in 0..self.all.len() {
            if self.members(index).contains(&member) {
                self.say(index, what);
            }
        }
    }

    /// Sends a signal to the process of a member, if it is there.
    pub fn signal(&mut self, member: Member, signal: Signal) -> Result<(), Failure> {
        let mut processes = self.all.iter_mut().flatten();
        let Some(process) = processes.find(|process| process.members.contains(&member)) else {
            return Ok(());
        };
        // The number of one that has ended may be another's by now.
        if process
            .child
            .try_wait()
            .about(member.to_string())?
            .is_some()
        {
            return Ok(());
        }
        let sent = kill_process(Pid::from_child(&process.child), signal);
        sent.map_err(io::Error::from).about(member.to_string())
    }

    /// How one has ended that has closed its output.
    pub fn end_of(&mut self, index: usize) -> String {
        let Some(Some(process)) = self.all.get_mut(index) else {
            return "it was never started".to_owned();
        };
        match wait(&mut process.child, Instant::now() + END) {
            Some(status) => {
                let signal = status.signal().and_then(Signal::from_named_raw);
                self.user_ended |= matches!(signal, Some(Signal::INT | Signal::TERM));
                format!("its process has ended: {status}")
            }
            None => "its process has closed its output and does not end".to_owned(),
        }
    }

    /// Whether one has ended by Ctrl-C, which comes to all of a group at once, or by SIGTERM: a run sends neither.
    pub fn user_ended(&self) -> bool {
        self.user_ended
    }

    /// Lets all end that have reported, and kills those that do not soon.
    pub fn end(mut self) {
        for process in self.all.iter_mut().flatten() {
            process.input = None;
        }
        let until = Instant::now() + END;
        for process in self.all.iter_mut().flatten() {
            wait(&mut process.child, until);
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
fn wait(child: &mut Child, until: Instant) -> Option<std::process::ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Writes what is said to a process, until there is no more, which closes its input, or it is gone, which is heard.
fn write(mut input: ChildStdin, lines: &Receiver<String>) {
    for line in lines {
        if input.write_all(line.as_bytes()).is_err() {
            return;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ended_by(signal: &str) -> Processes {
        // A shell that was begun in the background ignores some, as all that it starts does.
        let kill = format!("kill -{signal} $$");
        let child = Command::new("env")
            .args(["--default-signal", "sh", "-c", &kill])
            .spawn()
            .unwrap();
        let process = Process {
            child,
            input: None,
            members: Vec::new(),
        };
        let mut processes = Processes {
            all: vec![Some(process)],
            user_ended: false,
        };
        let why = processes.end_of(0);
        assert!(why.contains("signal"), "{why}");
        processes
    }

    /// It may be heard before the signal that this command gets itself.
    #[test]
    fn a_client_that_ctrl_c_has_ended_is_ended_by_the_user() {
        assert!(ended_by("INT").user_ended());
        assert!(ended_by("TERM").user_ended());
        assert!(!ended_by("KILL").user_ended());
    }
}
