//! `thalweg up`: all servers of a cluster are started, and run on when it ends.
//!
//! ```text
//!   plan ──► who runs already ──► start the others ──► all are ready ──► they are left running
//!                                        │ one ends, time is over, Ctrl-C
//!                                        └──► all that were started end
//! ```

mod args;
mod hosts;
mod plan;
mod starts;

pub use args::{UpArgs, Via};

use crate::commands::members::{self, Knocked, Member, Members};
use crate::connection::Connection;
use crate::failure::{About, Code, Failure};
use crate::interrupt;
use crate::output::Output;
use plan::{Plan, shell_line};
use serde_json::{Value, json};
use starts::{Each, Event, Launcher, Starts};
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often it is looked whether the user wants an end.
const LOOK: Duration = Duration::from_millis(100);
/// The subject of what is said of all servers.
const SUBJECT: &str = "thalweg up";
/// In the shared directory: which cluster it is for.
const RECORD: &str = "cluster.json";

pub fn run(args: &UpArgs) -> Result<ExitCode, Failure> {
    let plan = Plan::of(args)?;
    let mut output = Output::new(args.json);
    if args.dry_run {
        show(&plan, &mut output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let running = running(&plan)?;
    let ranks = 0..plan.size;
    let missing: Vec<u32> = ranks
        .clone()
        .filter(|rank| !running.contains_key(rank))
        .collect();
    let ready = match missing.is_empty() {
        true => BTreeMap::new(),
        false => start(&plan, &missing)?,
    };
    for rank in ranks {
        let member = running.get(&rank).map(|member| {
            json!({
                "rank": rank,
                "host": member.host,
                "pid": member.pid,
                "endpoints": member.endpoints(),
            })
        });
        say(&mut output, ready.get(&rank), member)?;
    }
    let group_file = plan.group_file.display().to_string();
    let value = json!({"group_file": group_file, "servers": plan.size, "started": ready.len()});
    let text = format!("{} servers, which clients find by {group_file}", plan.size);
    output.either(&value, &text)?;
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Says of a server that it was started, or that it runs.
fn say(output: &mut Output, ready: Option<&Value>, member: Option<Value>) -> Result<(), Failure> {
    let (mut value, what) = match (ready, member) {
        (Some(ready), _) => {
            let keys = ["rank", "host", "pid", "endpoints", "log"];
            let fields = keys.map(|key| (key.to_owned(), ready[key].clone()));
            (Value::Object(fields.into_iter().collect()), "is ready")
        }
        (None, Some(member)) => (member, "ran already"),
        (None, None) => return Ok(()),
    };
    value["started"] = json!(ready.is_some());
    let text = |key: &str| match &value[key] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let line = format!(
        "rank {} on {} {what}, process {}",
        text("rank"),
        text("host"),
        text("pid")
    );
    output.either(&value, &line)
}

fn show(plan: &Plan, output: &mut Output) -> Result<(), Failure> {
    let commands = match plan.via {
        Via::Local | Via::Ssh => (0..plan.size).map(|rank| plan.command_of(rank)).collect(),
        Via::Srun | Via::Mpiexec => vec![plan.command_of_all()],
    };
    for command in commands {
        output.either(&json!({"command": command}), &shell_line(&command))?;
    }
    output.flush()
}

/// The servers of the cluster that run, by rank.
///
/// # Errors
/// If those that the group file leads to are of another cluster.
fn running(plan: &Plan) -> Result<BTreeMap<u32, Member>, Failure> {
    let path = &plan.group_file;
    if !path.exists() || members::knock(path) != Knocked::Answered {
        return Ok(BTreeMap::new());
    }
    let cluster_in = |path: &Path| {
        let text = std::fs::read_to_string(path).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        value["cluster"].as_str().map(str::to_owned)
    };
    let there = cluster_in(path);
    if there.is_none() || there != cluster_in(&plan.directory.join(RECORD)) {
        let directory = plan.directory.display();
        let why = format!(
            "a server runs that has written it, and that is none of {directory}: end it, or give another --group-file"
        );
        return Err(Failure::new(Code::Failure, path.display().to_string(), why));
    }
    let members = match Members::find(&Connection::of_group_file(
        path.clone(),
        members::CONNECT_WITHIN,
    )) {
        // Those that are there wait for others themselves, and are not ready.
        Err(failure) if failure.exit_code() == Code::NoServer => return Ok(BTreeMap::new()),
        found => found?,
    };
    let runs = |member: &&Member| !members.is_gone(member) && members.connect(member).is_ok();
    let running = members.list.iter().filter(runs);
    Ok(running
        .filter_map(|member| Some((member.rank?, member.clone())))
        .collect())
}

/// Starts the servers that are missing. Returns what each says of itself when it is ready.
fn start(plan: &Plan, missing: &[u32]) -> Result<BTreeMap<u32, Value>, Failure> {
    let is_each = matches!(plan.via, Via::Local | Via::Ssh);
    if !is_each && missing.len() < plan.size as usize {
        let why = format!(
            "{} of {} servers run, and a launcher starts all of them or none: thalweg down first",
            plan.size as usize - missing.len(),
            plan.size
        );
        return Err(Failure::new(Code::Failure, SUBJECT, why));
    }
    let logs = plan.logs();
    // What is in the directory is its owner's alone.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&logs);
    made.about(logs.display().to_string())?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let asked = interrupted.clone();
    interrupt::on_interrupt(move || asked.store(true, Ordering::Relaxed))?;
    let mut starts: Box<dyn Starts> = match is_each {
        true => Box::new(Each::start(plan, missing)?),
        false => Box::new(Launcher::start(plan)?),
    };
    match wait(plan, missing, starts.as_mut(), &interrupted) {
        Ok(ready) => {
            starts.leave();
            Ok(ready)
        }
        Err(failure) => {
            starts.end();
            Err(failure)
        }
    }
}

fn wait(
    plan: &Plan,
    missing: &[u32],
    starts: &mut dyn Starts,
    interrupted: &AtomicBool,
) -> Result<BTreeMap<u32, Value>, Failure> {
    let deadline = Instant::now().checked_add(plan.timeout);
    let mut ready = BTreeMap::new();
    while ready.len() < missing.len() {
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::new(
                Code::Failure,
                SUBJECT,
                "interrupted: what was started has ended again",
            ));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(late(plan, missing, &ready));
        }
        match starts.next(LOOK) {
            None => {}
            Some(Event::Said(value)) if value["ready"] == true => {
                let rank = value["rank"]
                    .as_u64()
                    .and_then(|rank| u32::try_from(rank).ok());
                // A rank that nobody asked for is not counted.
                if let Some(rank) = rank.filter(|rank| missing.contains(rank)) {
                    ready.insert(rank, value);
                }
            }
            Some(Event::Said(value)) if !value["ended"].is_null() => return Err(ended(&value)),
            Some(Event::Said(_)) => {}
            Some(Event::Ended { rank, what }) => {
                let subject = match rank {
                    Some(rank) => format!(
                        "rank {rank} on {}",
                        plan.host_of(rank).unwrap_or("this host")
                    ),
                    None => plan.command_of_all()[0].clone(),
                };
                return Err(Failure::new(Code::Failure, subject, what));
            }
        }
    }
    Ok(ready)
}

/// Of a server that has ended before it was ready.
fn ended(value: &Value) -> Failure {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let lines = value["lines"].as_array().cloned().unwrap_or_default();
    let lines: Vec<_> = lines.iter().filter_map(Value::as_str).collect();
    let what = format!(
        "it ended with exit code {} before all servers were ready; what was started has ended again. The end of its log, {}:\n  {}",
        value["ended"],
        text("log"),
        lines.join("\n  ")
    );
    Failure::new(
        Code::Failure,
        format!("rank {} on {}", value["rank"], text("host")),
        what,
    )
}

fn late(plan: &Plan, missing: &[u32], ready: &BTreeMap<u32, Value>) -> Failure {
    let late = missing.iter().filter(|rank| !ready.contains_key(rank));
    let late: Vec<_> = late.map(u32::to_string).collect();
    let what = format!(
        "not ready after {} s: rank {}; what was started has ended again. Logs are in {}",
        plan.timeout.as_secs_f64(),
        late.join(", "),
        plan.logs().display()
    );
    Failure::new(Code::Timeout, SUBJECT, what)
}
