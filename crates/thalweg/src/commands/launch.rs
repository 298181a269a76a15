//! `thalweg launch`, which `thalweg up` runs beside each server: it starts the server with its log in a file, and says in
//! lines of JSON on standard output when the server is ready, or how it ended before.
//!
//! ```text
//!   starting ──ready line──► ready ──"stay"──► (this process ends, the server lives on)
//!      │  end of standard input, SIGTERM │
//!      └───────────► ending ◄────────────┘──► (this process ends after the server)
//! ```
//!
//! Where srun or mpiexec gives the rank nobody says "stay": this process ends when the server has, and the other way round.

use crate::failure::{About, Code, Failure};
use crate::interrupt;
use crate::output::Output;
use clap::{Args, Subcommand};
use rustix::process::{Pid, Signal, kill_process, setsid};
use serde_json::{Value, json};
use server::Host;
use server::cluster::{Given, Ranks};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, stdin};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// What a line of standard input says to let the server live on.
pub const STAY: &str = "stay";
/// How long a server that is not ready may take to end. It has promised nothing to anybody.
const UNREADY_ENDS_WITHIN: Duration = Duration::from_secs(2);
/// How many of the log's last lines are said of a server that has ended.
const LAST_LINES: usize = 12;
/// Those are looked for in so many of the log's last bytes.
const LAST_BYTES: u64 = 16 << 10;

#[derive(Debug, Subcommand)]
pub enum LaunchCommand {
    /// Start a server of a cluster, and say when it is ready
    Server(ServerArgs),
    /// Become a program, in a session of its own
    Session(SessionArgs),
}

#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Which server it is [default: as srun or mpiexec says]
    #[arg(long, requires = "size")]
    rank: Option<u32>,
    /// How many there are
    #[arg(long, requires = "rank")]
    size: Option<u32>,
    /// Where its log goes
    #[arg(long)]
    log: String,
    /// What `thalweg serve` takes
    #[arg(last = true)]
    serve: Vec<String>,
}

#[derive(Debug, Args)]
pub struct SessionArgs {
    /// The program, and its arguments
    #[arg(required = true, last = true)]
    words: Vec<String>,
}

pub fn run(command: &LaunchCommand) -> Result<ExitCode, Failure> {
    match command {
        LaunchCommand::Server(args) => server(args),
        LaunchCommand::Session(args) => Err(session(args)),
    }
}

/// Becomes the program. Returns only why it does not.
fn session(args: &SessionArgs) -> Failure {
    let (program, rest) = args.words.split_first().expect("there is a program");
    own_session();
    let error = Command::new(program).args(rest).exec();
    Failure::new(Code::Failure, program, error)
}

/// A terminal that is closed, or its Ctrl-C, is none of this process's and of those that it starts.
fn own_session() {
    // One that leads a session has its own already, as what sshd starts.
    let _ = setsid();
}

/// What happens to a launch.
enum Event {
    /// The server has printed a line.
    Line(String),
    /// The server's standard output has ended, and with it the server.
    Ended,
    /// It is to live on.
    Stay,
    /// It is to end.
    End,
}

fn server(args: &ServerArgs) -> Result<ExitCode, Failure> {
    let given = Given {
        rank: args.rank,
        size: args.size,
    };
    let ranks = Ranks::find(given, |name| std::env::var(name).ok());
    let ranks = ranks.map_err(|error| Failure::usage("thalweg launch", error))?;
    let is_launchers = args.rank.is_none();
    let (send, events) = mpsc::channel();
    let asked = send.clone();
    interrupt::on_every_interrupt(move || drop(asked.send(Event::End)))?;
    let log = PathBuf::from(args.log.replace("{rank}", &ranks.rank.to_string()));
    let subject = log.display().to_string();
    let mut file = OpenOptions::new();
    let file = file.create(true).append(true).mode(0o600).open(&log);
    let file = file.about(&subject)?;
    let began = file.metadata().about(&subject)?.len();
    let (rank, size) = (ranks.rank.to_string(), ranks.size.to_string());
    let mut command = Command::new(std::env::current_exe().about("this program")?);
    command
        .arg("serve")
        .args(&args.serve)
        .args(["--json", "--rank", &rank, "--size", &size])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file);
    if is_launchers {
        // A SIGTERM that this process passes on, and that the launcher sends to both, is one to the server then.
        command.args(["--end-with", &std::process::id().to_string()]);
    } else {
        own_session();
    }
    let mut child = command.spawn().about("this program")?;
    let said = child.stdout.take().expect("it was asked for");
    listen(said, send.clone());
    if !is_launchers {
        obey(send);
    }
    let server = Launched {
        child,
        rank: ranks.rank,
        host: Host::this().name,
        log,
        began,
    };
    server.attend(&events)
}

/// Hears what the server prints, until its end.
fn listen(from: ChildStdout, send: Sender<Event>) {
    std::thread::spawn(move || {
        let lines = BufReader::new(from).lines().map_while(Result::ok);
        let mut events = lines.map(Event::Line).chain([Event::Ended]);
        // Without a receiver this process ends.
        let _ = events.try_for_each(|event| send.send(event));
    });
}

/// Hears from `thalweg up` what is to be. One that has ended wants an end.
fn obey(send: Sender<Event>) {
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = stdin().lock().read_line(&mut line);
        let stays = read.is_ok() && line.trim_end() == STAY;
        let _ = send.send(if stays { Event::Stay } else { Event::End });
    });
}

/// A server that was started.
struct Launched {
    child: Child,
    rank: u32,
    host: String,
    log: PathBuf,
    /// How long the log was before.
    began: u64,
}

/// How far a launch has come: the drawing is at the head.
enum Stage {
    Starting,
    Ready,
    /// It is killed then, if it has not ended; one that was ready takes the time that it needs.
    Ending(Option<Instant>),
}

impl Launched {
    fn attend(self, events: &Receiver<Event>) -> Result<ExitCode, Failure> {
        let mut stage = Stage::Starting;
        loop {
            let event = match stage {
                Stage::Ending(Some(at)) => {
                    events.recv_timeout(at.saturating_duration_since(Instant::now()))
                }
                _ => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            stage = match (stage, event) {
                (_, Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected)) => return self.end(),
                (Stage::Starting, Ok(Event::Line(line))) => {
                    self.say(serde_json::from_str(&line).unwrap_or_default());
                    Stage::Ready
                }
                (Stage::Ready, Ok(Event::Stay)) => return Ok(ExitCode::SUCCESS),
                (Stage::Starting, Ok(Event::Stay | Event::End)) => {
                    self.signal(Signal::TERM);
                    Stage::Ending(Some(Instant::now() + UNREADY_ENDS_WITHIN))
                }
                (Stage::Ready, Ok(Event::End)) => {
                    self.signal(Signal::TERM);
                    Stage::Ending(None)
                }
                (_, Err(RecvTimeoutError::Timeout)) => {
                    self.signal(Signal::KILL);
                    Stage::Ending(None)
                }
                // A launcher may say twice that it is to end: to all of a host, and to this process.
                (stage, Ok(_)) => stage,
            };
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32);
        // It is not waited for yet, so that its number is nobody else's.
        let _ = pid.map(|pid| kill_process(pid, signal));
    }

    /// Says how it ended, with the code that it ended with.
    fn end(mut self) -> Result<ExitCode, Failure> {
        let status = self.child.wait().about("the server")?;
        let code = code_of(status);
        let lines = last_lines(&self.log, self.began);
        self.say(json!({"ended": code, "lines": lines}));
        Ok(ExitCode::from(code))
    }

    fn say(&self, mut value: Value) {
        value["rank"] = json!(self.rank);
        value["host"] = json!(self.host);
        value["log"] = json!(self.log.display().to_string());
        let mut output = Output::new(true);
        // Where nobody listens any more, standard input has ended as well.
        let _ = output.json(&value).and_then(|()| output.flush());
    }
}

/// The code that a shell would say.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(Code::Failure as u8)
}

/// The last lines of a log, from this byte on.
fn last_lines(path: &Path, began: u64) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(began.max(end.saturating_sub(LAST_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(LAST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let left_out = lines.len().saturating_sub(LAST_LINES);
    let lines = lines.into_iter().skip(left_out);
    lines.map(str::to_owned).collect()
}
