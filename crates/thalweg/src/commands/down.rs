//! `thalweg down`: all servers of a cluster are drained and end.

use crate::cli::DownArgs;
use crate::commands::members::{self, Knocked, Member, Members};
use crate::failure::{About, Code, Failure};
use crate::output::{Output, report};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How many servers are asked at once.
const THREADS_MAX: usize = 32;
/// How often it is looked whether a server has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What has become of a server.
enum Outcome {
    Ended,
    /// It had ended before.
    Absent,
    Unreached(Failure),
    /// It has been asked to end, and has not until the deadline.
    Late,
}

pub fn run(args: &DownArgs) -> Result<ExitCode, Failure> {
    let connection = &args.client.connection;
    if let Some(path) = connection.group_file()
        && members::knock(&path) == Knocked::Nobody
    {
        let why = "none of the servers that it names runs";
        return Err(Failure::new(Code::NoServer, connection.subject(), why));
    }
    let members = &Members::find(connection)?;
    let now = Instant::now();
    let deadline = now.checked_add(connection.timeout());
    let mut output = Output::new(args.client.json);
    let mut code = None;
    let (send, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || end_all(members, deadline, send));
        for (at, outcome) in outcomes {
            let member = &members.list[at];
            let (word, text) = match outcome {
                Outcome::Ended => ("ended", "has ended".to_owned()),
                Outcome::Absent => ("absent", "did not run".to_owned()),
                Outcome::Unreached(failure) => {
                    report(&format!("{failure}{}", remedy(member)));
                    code = Some(Code::Failure);
                    ("unreached", "was not reached".to_owned())
                }
                Outcome::Late => {
                    let seconds = connection.timeout().as_secs_f64();
                    report(&format!(
                        "{}: it was asked to end, and runs after {seconds} s",
                        member.name()
                    ));
                    code = code.or(Some(Code::Timeout));
                    ("late", "ends, but has not".to_owned())
                }
            };
            let value = json!({
                "rank": member.rank,
                "host": member.host,
                "pid": member.pid,
                "state": word,
            });
            output.either(&value, &format!("{} {text}", member.name()))?;
            output.flush()?;
        }
        Ok(())
    })?;
    Ok(code.map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// What ends a server that does not answer, as one whose start waits for other servers does.
fn remedy(member: &Member) -> String {
    match member.pid {
        Some(pid) => format!(
            ". It may wait for servers of the cluster that have not come: `kill {pid}` on {} ends it then",
            member.host
        ),
        None => String::new(),
    }
}

/// Ends all servers, many at once: one that is not reached holds up no other.
fn end_all(members: &Members, deadline: Option<Instant>, send: Sender<(usize, Outcome)>) {
    let next = AtomicUsize::new(0);
    let send = Mutex::new(send);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(member) = members.list.get(at) else {
                return;
            };
            let outcome = end(members, member, deadline);
            // Without a receiver nobody reads the output.
            let _ = send.lock().expect("no holder panics").send((at, outcome));
        }
    };
    thread::scope(|scope| {
        for _ in 0..members.list.len().min(THREADS_MAX) {
            scope.spawn(work);
        }
    });
}

fn end(members: &Members, member: &Member, deadline: Option<Instant>) -> Outcome {
    if members.is_gone(member) {
        return Outcome::Absent;
    }
    let asked = members.connect(member).and_then(|driver| {
        let asked = driver.shutdown_server().about(member.name());
        // One that ends at once may do so before its answer has arrived.
        asked.or_else(|failure| {
            if members.is_gone(member) {
                Ok(())
            } else {
                Err(failure)
            }
        })
    });
    if let Err(failure) = asked {
        return Outcome::Unreached(failure);
    }
    while !members.is_gone(member) {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Outcome::Late;
        }
        thread::sleep(LOOK);
    }
    Outcome::Ended
}
