//! Runs the real binary: servers that can be killed, commands with their output.

#![allow(dead_code, reason = "every test file uses a part of it")]

pub mod hosts;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

/// After this long a process that was waited for is taken to hang. No test
/// depends on how fast anything is.
pub const WATCHDOG: Duration = Duration::from_secs(120);

/// A directory in which servers and commands run.
#[derive(Clone)]
pub struct Rig {
    directory: Arc<tempfile::TempDir>,
}

impl Default for Rig {
    fn default() -> Self {
        Self {
            directory: Arc::new(tempfile::tempdir().expect("a temporary directory can be made")),
        }
    }
}

impl Rig {
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn group_file(&self) -> PathBuf {
        self.path("thalweg.json")
    }

    /// The binary, in this directory, without settings from the environment.
    pub fn thalweg(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("THALWEG_") {
                command.env_remove(name);
            }
        }
        command.args(args).current_dir(self.directory.path());
        command
    }

    /// Runs a command to its end, with `input` as standard input.
    pub fn run_with(&self, args: &[&str], input: impl AsRef<[u8]>) -> Ran {
        let mut child = self
            .thalweg(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut stdin = child.stdin.take().expect("it was asked for");
        let input = input.as_ref().to_vec();
        // A command that fails early does not read its input.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().expect("it is our child");
        writer.join().expect("writing does not panic");
        Ran::of(args, output)
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    /// Starts a server on `data` and waits until it is ready.
    pub fn serve(&self, args: &[&str]) -> ServerProcess {
        self.until_ready(self.serve_unready(args))
    }

    /// As [`Rig::serve`], with a standard error that nobody reads: writing
    /// there fails.
    pub fn serve_without_log(&self, args: &[&str]) -> ServerProcess {
        let mut server = spawn(self.thalweg(&serve_args(args)));
        drop(server.child.as_mut().expect("it runs").stderr.take());
        self.until_ready(server)
    }

    /// As [`Rig::serve`], where the process may have so many files open.
    pub fn serve_with_files(&self, files: u32, args: &[&str]) -> ServerProcess {
        self.serve_by_shell(&format!("ulimit -n {files}"), args)
    }

    /// As [`Rig::serve_with_files`], of a limit that the process may raise.
    pub fn serve_with_soft_files(&self, files: u32, args: &[&str]) -> ServerProcess {
        self.serve_by_shell(&format!("ulimit -Sn {files}"), args)
    }

    /// A server of a shell that has done something first.
    fn serve_by_shell(&self, first: &str, args: &[&str]) -> ServerProcess {
        let shell = ["sh", "-c", &format!("{first}; exec \"$0\" \"$@\"")];
        let shell = shell.map(str::to_owned);
        self.until_ready(self.serve_by(&shell, "data", args))
    }

    /// Starts a server on a directory of this name; it may not get far.
    pub fn serve_on(&self, directory: &str, args: &[&str]) -> ServerProcess {
        let args = [&["serve", directory, "--json"], args].concat();
        with_log(spawn(self.thalweg(&args)))
    }

    /// As [`Rig::serve_on`], by what runs a command somewhere else.
    pub fn serve_by(&self, launcher: &[String], directory: &str, args: &[&str]) -> ServerProcess {
        let Some((program, rest)) = launcher.split_first() else {
            return self.serve_on(directory, args);
        };
        let server = self.thalweg(&[&["serve", directory, "--json"], args].concat());
        let mut command = Command::new(program);
        command
            .args(rest)
            .arg(server.get_program())
            .args(server.get_args())
            .current_dir(self.directory.path());
        for (name, _) in server.get_envs() {
            command.env_remove(name);
        }
        with_log(spawn(command))
    }

    /// Waits until a server is ready.
    pub fn until_ready(&self, mut server: ServerProcess) -> ServerProcess {
        let stdout = server.child.as_mut().expect("it runs").stdout.take();
        let stdout = BufReader::new(stdout.expect("it was asked for"));
        let line = in_time(&server.log, move || {
            let mut stdout = stdout;
            let mut line = String::new();
            stdout.read_line(&mut line).expect("output is text");
            line
        });
        let Ok(ready) = serde_json::from_str::<Value>(&line) else {
            let status = server
                .child
                .as_mut()
                .expect("it runs")
                .wait()
                .expect("it is our child");
            panic!(
                "the server ended with {status} instead of being ready: {}",
                server.log()
            );
        };
        server.ready = ready;
        server
    }

    /// Starts a server on `data`; it may not get far.
    pub fn serve_unready(&self, args: &[&str]) -> ServerProcess {
        with_log(spawn(self.thalweg(&serve_args(args))))
    }
}

fn serve_args<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["serve", "data", "--json"], args].concat()
}

fn spawn(mut command: Command) -> ServerProcess {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    ServerProcess {
        child: Some(child),
        ready: Value::Null,
        log: Log::of_nobody(),
    }
}

fn with_log(mut server: ServerProcess) -> ServerProcess {
    let stderr = server.child.as_mut().expect("it runs").stderr.take();
    server.log = collect(stderr.expect("it was asked for"));
    server
}

/// What `wait` returns, or a failure with what the server said if it does not return.
#[track_caller]
fn in_time<T: Send + 'static>(log: &Log, wait: impl FnOnce() -> T + Send + 'static) -> T {
    before_watchdog(wait)
        .unwrap_or_else(|| panic!("the server neither gets ready nor ends: {}", log.text()))
}

/// What `wait` returns; `None` if it does not return.
fn before_watchdog<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (send, receive) = mpsc::channel();
    // A test that no longer receives has failed already.
    std::thread::spawn(move || drop(send.send(wait())));
    receive.recv_timeout(WATCHDOG).ok()
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    what: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Of a command that was run with these arguments.
    pub fn of(args: &[&str], output: Output) -> Self {
        Self {
            what: format!("thalweg {}", args.join(" ")),
            status: output.status,
            stdout: String::from_utf8(output.stdout).expect("output is text"),
            stderr: String::from_utf8(output.stderr).expect("errors are text"),
        }
    }

    /// Its output, if it succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        self.exits(0).stdout
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "{}: {}{}",
            self.what,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Its output as lines of JSON, if it succeeded.
    #[track_caller]
    pub fn json(self) -> Vec<Value> {
        json_lines(&self.ok())
    }
}

#[track_caller]
pub fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// A running server; killed when dropped.
pub struct ServerProcess {
    child: Option<Child>,
    ready: Value,
    log: Log,
}

impl ServerProcess {
    pub fn endpoints(&self) -> Vec<String> {
        let endpoints = self.ready["endpoints"].as_array().expect("a list");
        endpoints
            .iter()
            .map(|endpoint| endpoint.as_str().expect("a text").to_owned())
            .collect()
    }

    /// Where it listens for clients of AMQP.
    pub fn amqp_endpoints(&self) -> Vec<String> {
        let endpoints = self.ready["amqp"].as_array().expect("a list");
        let endpoints = endpoints.iter().filter_map(Value::as_str);
        endpoints.map(str::to_owned).collect()
    }

    pub fn instance(&self) -> &str {
        self.ready["instance"].as_str().expect("a text")
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until it has said anything to its operator, which is before it
    /// opens its data, or has ended.
    pub fn wait_for_a_sign(&self) {
        let log = self.log.clone();
        in_time(&self.log, move || log.wait_for_text());
    }

    /// Waits until it has said this to its operator, or has ended.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        self.log.until(text);
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.end();
    }

    /// SIGTERM, and waits for the end.
    pub fn terminate(mut self) -> (ExitStatus, String) {
        let mut child = self.child.take().expect("it runs");
        signal(child.id(), rustix::process::Signal::TERM);
        let status = wait(&mut child);
        (status, self.log.whole())
    }

    /// Waits for an end that somebody else asked for.
    pub fn wait(mut self) -> ExitStatus {
        wait(&mut self.child.take().expect("it runs"))
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.end();
    }
}

pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a child has a pid");
    rustix::process::kill_process(pid, signal).expect("it is our child");
}

/// Waits for a child's end; kills it and fails if that does not come.
pub fn wait(child: &mut Child) -> ExitStatus {
    let deadline = std::time::Instant::now() + WATCHDOG;
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return status;
        }
        if std::time::Instant::now() > deadline {
            child.kill().expect("it is our child");
            panic!("process {} does not end", child.id());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a process writes, as far as it has come.
#[derive(Clone, Default)]
pub struct Log {
    shared: Arc<(Mutex<Written>, Condvar)>,
}

#[derive(Default)]
struct Written {
    text: String,
    ended: bool,
}

impl Log {
    /// Of a process that nobody listens to: it has ended.
    fn of_nobody() -> Self {
        let log = Self::default();
        log.note(|written| written.ended = true);
        log
    }

    pub fn text(&self) -> String {
        self.shared.0.lock().expect("no holder panics").text.clone()
    }

    /// Waits until it has this in it, or its process has ended.
    #[track_caller]
    pub fn until(&self, text: &str) {
        let (log, wanted) = (self.clone(), text.to_owned());
        let found = before_watchdog(move || log.wait_for(&wanted)).unwrap_or(false);
        assert!(found, "{text:?} is missing in: {}", self.text());
    }

    /// All of it: the process has ended, and its last lines may still be on their way.
    pub fn whole(&self) -> String {
        let (written, moved) = &*self.shared;
        let written = written.lock().expect("no holder panics");
        let written = moved.wait_while(written, |written| !written.ended);
        written.expect("no holder panics").text.clone()
    }

    fn wait_for_text(&self) {
        let (written, moved) = &*self.shared;
        let written = written.lock().expect("no holder panics");
        let nothing = |written: &mut Written| written.text.is_empty() && !written.ended;
        drop(
            moved
                .wait_while(written, nothing)
                .expect("no holder panics"),
        );
    }

    /// Whether the text came before the end.
    fn wait_for(&self, text: &str) -> bool {
        let (written, moved) = &*self.shared;
        let written = written.lock().expect("no holder panics");
        let missing = |written: &mut Written| !written.text.contains(text) && !written.ended;
        let written = moved.wait_while(written, missing);
        written.expect("no holder panics").text.contains(text)
    }

    fn note(&self, change: impl FnOnce(&mut Written)) {
        change(&mut self.shared.0.lock().expect("no holder panics"));
        self.shared.1.notify_all();
    }
}

/// Reads what a process writes, on a thread of its own.
pub fn collect(from: impl Read + Send + 'static) -> Log {
    let log = Log::default();
    let collected = log.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            collected.note(|written| {
                written.text.push_str(&line);
                written.text.push('\n');
            });
        }
        collected.note(|written| written.ended = true);
    });
    log
}

/// All files below a directory.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("it is there") {
            let path = entry.expect("it can be read").path();
            match path.is_dir() {
                true => directories.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}
