//! A command of the site that says who the holder of a token is.

use crate::answers::{Answers, hash};
use crate::faults::{Fault, planted};
use crate::json;
use crate::jwt::JWT_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::Value;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

/// The most commands at once, those included that hang before they begin.
const RUNNING_MAX: usize = 32;
/// The longest answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long a command may take, with the wait for its turn. A connection has 10 s to say who it is.
pub const TIMEOUT: Duration = Duration::from_secs(8);
/// How often it is looked whether a command that has said all has ended.
const ENDED: Duration = Duration::from_millis(5);
/// How long is waited for the end of one that was killed.
const KILLED: Duration = Duration::from_secs(1);

/// Why none begins any more.
const OVER: &str = "its command is replaced, or the server ends";

/// What was said of somebody, by name.
pub type Claims = serde_json::Map<String, Value>;

/// Why a command has no answer. Never has a part of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The command, and what it has said.
pub struct Introspection {
    command: Vec<String>,
    /// Locked for a look.
    known: Mutex<Answers>,
    asking: Mutex<HashSet<[u8; 32]>>,
    /// Somebody has asked to the end.
    asked: Condvar,
    running: Arc<RunningAll>,
}

/// A turn to ask about a token; ends when it is dropped.
struct Turn<'a>([u8; 32], &'a Introspection);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut asking = self.1.asking.lock().expect("no holder panics here");
        asking.remove(&self.0);
        self.1.asked.notify_all();
    }
}

/// Commands that run.
#[derive(Default)]
struct RunningAll {
    state: Mutex<Groups>,
    /// A thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Groups {
    /// The process groups of those that have begun, until they are waited for.
    begun: HashSet<u32>,
    /// Threads that run one, those included that nobody waits for any more.
    count: usize,
    /// Whether none is to begin any more.
    is_over: bool,
}

impl RunningAll {
    fn state(&self) -> MutexGuard<'_, Groups> {
        self.state.lock().expect("no holder panics here")
    }
}

impl fmt::Debug for Introspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Introspection").field(&self.command).finish()
    }
}

impl Introspection {
    /// By this command, which is not empty: it reads the token on its standard input, and prints JSON: `{"active":
    /// true, …}`, as RFC 7662 has it, or what S3M answers, `{"token": {"project": …, "username": …}}`. In both,
    /// `active` that is not `true` says that the token is none.
    pub fn new(command: Vec<String>) -> Self {
        assert!(!command.is_empty(), "a command has a program");
        Self {
            command,
            known: Mutex::default(),
            asking: Mutex::default(),
            asked: Condvar::new(),
            running: Arc::default(),
        }
    }

    /// Ends what runs, and lets nothing more begin. Does not wait.
    pub fn stop(&self) {
        let mut state = self.running.state();
        state.is_over = true;
        // They are not waited for yet, so that the numbers are their own.
        state.begun.iter().for_each(|id| kill_group(*id));
    }

    /// [`Introspection::stop`], and waits a second at most for what runs.
    pub fn end(&self) {
        self.stop();
        let mut state = self.running.state();
        let until = Instant::now() + KILLED;
        // One that begins at this moment sees that by itself.
        while state.count > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.running.ended.wait_timeout(state, left);
            state = waited.expect("no holder panics here").0;
        }
    }

    fn turn(&self, hash: [u8; 32], deadline: Instant) -> Result<Turn<'_>, Failure> {
        let mut asking = self.asking.lock().expect("no holder panics here");
        while asking.contains(&hash) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            let waited = self.asked.wait_timeout(asking, left);
            asking = waited.expect("no holder panics here").0;
        }
        asking.insert(hash);
        Ok(Turn(hash, self))
    }

    /// The command.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// What is so of the holder of a token; `None` if it is not active. An answer counts for a minute. Blocks until
    /// `deadline` and a second at most, and leaves nothing behind of the command's process group.
    ///
    /// # Errors
    /// If the command has no answer: that is not remembered.
    pub fn ask(&self, token: &str, deadline: Instant) -> Result<Option<Claims>, Failure> {
        if token.len() > JWT_BYTES_MAX {
            return Ok(None);
        }
        if let Some(claims) = self.answered(token) {
            return Ok(claims);
        }
        let hash = hash(token);
        // Of several who ask about the same, one asks.
        let _turn = self.turn(hash, deadline)?;
        if let Some(claims) = self.answered(token) {
            return Ok(claims);
        }
        let now = Instant::now();
        let text = self.run(token, deadline)?;
        let claims = parse(&text)?;
        self.known().keep(hash, claims.clone(), now);
        Ok(claims)
    }

    /// What was said of a token, while that counts. Does not block.
    pub fn answered(&self, token: &str) -> Option<Option<Claims>> {
        self.known().get(&hash(token), Instant::now())
    }

    /// Forgets what was said of a token.
    pub fn forget(&self, token: &str) {
        self.known().forget(&hash(token));
    }

    fn known(&self) -> MutexGuard<'_, Answers> {
        self.known.lock().expect("no holder panics here")
    }

    /// On a thread of its own, which is left behind if the command cannot even begin: the file system that it is on may
    /// hang.
    fn run(&self, token: &str, deadline: Instant) -> Result<String, Failure> {
        let mut state = self.running.state();
        if state.is_over || state.count >= RUNNING_MAX {
            let why = match state.is_over {
                true => OVER.to_owned(),
                false => format!("{RUNNING_MAX} of its command run already, or do not even begin"),
            };
            return Err(Failure(why));
        }
        state.count += 1;
        drop(state);
        let (result, came) = mpsc::sync_channel(1);
        let (command, token) = (self.command.clone(), token.to_owned());
        let counted = Counted(self.running.clone());
        let leaves = planted(Fault::LeftBehind);
        let main = move || {
            let ran = run(&command, &token, deadline, &counted.0, leaves);
            let _ = result.send(ran);
        };
        let thread = memory::thread::spawn("thalweg-whois", main);
        thread.map_err(|error| Failure(format!("there is no thread for it: {error}")))?;
        let left = deadline.saturating_duration_since(Instant::now()) + KILLED;
        let (text, status) = came.recv_timeout(left).map_err(|_| late())??;
        match status.success() || planted(Fault::FailedAnswer) {
            true => String::from_utf8(text).map_err(|_| Failure("it prints no text".to_owned())),
            false => Err(Failure(format!("its command failed: {status}"))),
        }
    }
}

/// A thread that counts until it ends.
struct Counted(Arc<RunningAll>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.state().count -= 1;
        self.0.ended.notify_all();
    }
}

type Ran = Result<(Vec<u8>, ExitStatus), Failure>;

fn run(words: &[String], token: &str, deadline: Instant, all: &RunningAll, leaves: bool) -> Ran {
    let failed = |what: &str, error: &dyn fmt::Display| Failure(format!("{what}: {error}"));
    let token = in_memory(&format!("{token}\n"));
    let token = token.map_err(|error| failed("the token cannot be handed on", &error))?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    // Credentials and URLs of the program that a server may be part of are none of its business.
    let own = std::env::vars_os().filter(|(name, _)| is_own(name));
    own.for_each(|(name, _)| {
        command.env_remove(name);
    });
    // What it says on standard error might have the token.
    command
        .stdin(token)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command.process_group(0);
    let child = command.spawn();
    let child = child.map_err(|error| failed("it cannot be started", &error))?;
    let mut child = Running::new(child, all, leaves);
    if all.state().is_over {
        return Err(Failure(OVER.to_owned()));
    }
    let stdout = child.child.stdout.take().expect("it was asked for");
    let text = read(stdout, deadline)?;
    Ok((text, child.wait(deadline)?))
}

/// Whether a variable of the environment is of this product.
fn is_own(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"THALWEG_")
}

/// A file in memory that has this text. No pipe is: that may be full, and whoever writes to one that nobody reads any
/// more gets a signal, by which a process of Python or C may end.
fn in_memory(text: &str) -> io::Result<File> {
    let file = memfd_create("thalweg-token", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// A command, which is ended with all of its process group when nobody waits for it any more.
struct Running<'a> {
    child: Child,
    all: &'a RunningAll,
    leaves: bool,
    is_over: bool,
}

impl<'a> Running<'a> {
    fn new(child: Child, all: &'a RunningAll, leaves: bool) -> Self {
        all.state().begun.insert(child.id());
        Self {
            child,
            all,
            leaves,
            is_over: false,
        }
    }

    fn wait(&mut self, deadline: Instant) -> Result<ExitStatus, Failure> {
        while !self.has_ended() {
            if Instant::now() >= deadline {
                return Err(late());
            }
            std::thread::sleep(ENDED);
        }
        self.end().map_err(|error| Failure(error.to_string()))
    }

    fn id(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Whether it has ended. It is left to be waited for: until then its number, which is that of its group, is nobody
    /// else's.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = self.id().map(|id| waitid(WaitId::Pid(id), options));
        !matches!(ended, Some(Ok(None) | Err(Errno::INTR)))
    }

    /// Ends what there is of it, and of what it has started.
    fn end(&mut self) -> io::Result<ExitStatus> {
        self.is_over = true;
        if !self.leaves {
            kill_group(self.child.id());
        }
        // Whoever ends all of them must not take a number for its own that is not any more.
        let mut state = self.all.state();
        let status = self.child.wait();
        state.begun.remove(&self.child.id());
        status
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        kill_group(self.child.id());
        let until = Instant::now() + KILLED;
        while !self.has_ended() && Instant::now() < until {
            std::thread::sleep(ENDED);
        }
        // One that waits for a file system that hangs does not end, and is left to itself.
        if self.has_ended() {
            let _ = self.end();
        }
    }
}

fn kill_group(id: u32) {
    if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(id, Signal::KILL);
    }
}

fn late() -> Failure {
    Failure("its command has not answered in time".to_owned())
}

/// All that a command prints, within a time.
fn read(mut stdout: ChildStdout, deadline: Instant) -> Result<Vec<u8>, Failure> {
    let failed = |error: io::Error| Failure(error.to_string());
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        let timeout = Timespec::try_from(left).map_err(|_| late())?;
        let ready = poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&timeout));
        match ready {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(failed(error.into())),
        }
        let count = stdout.read(&mut piece).map_err(failed)?;
        if count == 0 {
            return Ok(text);
        }
        text.extend_from_slice(&piece[..count]);
        if text.len() > ANSWER_BYTES_MAX {
            return Err(Failure(format!(
                "its command prints more than {ANSWER_BYTES_MAX} bytes"
            )));
        }
    }
}

/// What is so of somebody, as an answer has it; none if it says that the token is none.
fn parse(text: &str) -> Result<Option<Claims>, Failure> {
    let garbage = || Failure("its command prints no object of JSON".to_owned());
    let value = json::parse(text.as_bytes()).map_err(|_| garbage())?;
    let Value::Object(mut answer) = value else {
        return Err(garbage());
    };
    let Some(inner) = answer.remove("token") else {
        // RFC 7662, 2.2: it is required.
        let is_active = is_active(&answer).or(planted(Fault::ActiveUnsaid).then_some(true));
        let unsaid = || Failure("its command does not say whether the token is active".to_owned());
        return Ok(is_active.ok_or_else(unsaid)?.then_some(answer));
    };
    let Value::Object(inner) = inner else {
        return Err(garbage());
    };
    let is_outer = is_active(&answer).unwrap_or(true) || planted(Fault::InnerActive);
    Ok((is_outer && is_active(&inner).unwrap_or(true)).then_some(inner))
}

/// What an answer says of it; whatever is not `true` is no.
fn is_active(answer: &Claims) -> Option<bool> {
    let said = answer.get("active")?;
    Some(*said == Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_no_variable_of_ours() {
        assert!(is_own(OsStr::new("THALWEG_CREDENTIAL")));
        assert!(!is_own(OsStr::new("PATH")) && !is_own(OsStr::new("thalweg_url")));
    }
}
