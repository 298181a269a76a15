//! `thalweg workload`: the published streaming experiments, run from their scenarios.
//!
//! ```text
//!  runner ── stdin: ToProcess ──► clients, processes of this program ──► backend
//!     ▲                               │
//!     └────── stdout: FromProcess ────┘
//! ```
//!
//! What is run, counted and computed is in the crate `workload`; here are processes, clocks and connections.

mod amqp;
mod args;
mod backend;
mod choose;
mod client;
mod connect;
mod cpu;
mod cut;
mod interrupted;
mod json_file;
#[cfg(feature = "kafka")]
mod kafka;
mod kafka_url;
mod means;
mod members;
mod native;
mod own;
mod page;
mod processes;
mod redis;
mod report;
mod route;
mod runner;
mod server_url;
mod streamsim;
mod tls;
mod tokens;

pub use args::WorkloadCommand;

use crate::failure::{Code, Failure};
use crate::interrupt::on_interrupt;
use crate::output::{Output, table};
use args::{ConvertArgs, PlanArgs, RunArgs};
use choose::Chosen;
use json_file::JsonFile;
use means::Means;
use own::Own;
use report::Found;
use route::Route;
use runner::Course;
use std::cell::RefCell;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use workload::{
    Architecture, EXPERIMENTS, Observed, Pace, Plan, Run, RunResult, Scenario, Text, Url,
};

pub fn run(command: WorkloadCommand) -> Result<ExitCode, Failure> {
    match command {
        WorkloadCommand::Run(args) => run_all(&args),
        WorkloadCommand::Convert(args) => convert(&args).map(|()| ExitCode::SUCCESS),
        WorkloadCommand::List => list().map(|()| ExitCode::SUCCESS),
        WorkloadCommand::Page(args) => page::run(&args).map(|()| ExitCode::SUCCESS),
        WorkloadCommand::Plan(args) => plan(&args).map(|()| ExitCode::SUCCESS),
        WorkloadCommand::Client(args) => client::run(&args).map(|()| ExitCode::SUCCESS),
        WorkloadCommand::Launch(args) => Err(route::launch::run(&args)),
    }
}

/// Prints a scenario of ours from published files. Its URL, which may hold a password, is left out.
fn convert(args: &ConvertArgs) -> Result<(), Failure> {
    let mut published = streamsim::read(&args.files)?;
    published.scenario.url = None;
    let mut output = Output::new(false);
    for note in streamsim::notes(&published) {
        // What a file has may have lines of its own.
        output.line(&format!("# {}", note.replace(['\n', '\r'], " ")))?;
    }
    output.line("# amqpsUrl is left out, for it may hold a password")?;
    output.line(published.scenario.to_toml().trim_end())?;
    output.flush()
}

/// The published experiments, each with what it sends.
fn list() -> Result<(), Failure> {
    let rows: Result<Vec<Vec<String>>, Failure> = EXPERIMENTS
        .iter()
        .map(|experiment| {
            let scenario = Scenario::from_toml(Text {
                file: experiment.name,
                text: experiment.toml,
            });
            let scenario = scenario.map_err(|error| Failure::usage("workload", error))?;
            let counts = scenario.consumers.iter().map(u64::to_string);
            let counts: Vec<String> = counts.collect();
            let mut messages: Vec<String> = scenario
                .consumers
                .iter()
                .filter_map(|consumers| scenario.messages_of(*consumers))
                .map(|messages| messages.to_string())
                .collect();
            messages.dedup();
            Ok(vec![
                experiment.name.to_owned(),
                page::word(&scenario.pattern),
                scenario.shape.message_bytes.to_string(),
                messages.join(", "),
                counts.join(","),
            ])
        })
        .collect();
    let mut output = Output::new(false);
    output.line(&table(
        &["experiment", "pattern", "bytes", "messages", "consumers"],
        &rows?,
    ))?;
    output.flush()
}

fn plan_of(
    scenario: &Scenario,
    run: Run,
    number: u64,
    measured: Option<f64>,
) -> Result<Plan, Failure> {
    let plan = Plan::new(scenario, run, number, measured);
    plan.map_err(|error| Failure::usage("--measured", error))
}

fn plan(args: &PlanArgs) -> Result<(), Failure> {
    let Chosen { scenario, .. } = choose::scenario(&args.what)?;
    let mut output = Output::new(false);
    output.line(&format!(
        "{}: {} bytes a message, each run {} times",
        scenario.name, scenario.shape.message_bytes, scenario.repeat
    ))?;
    for run in scenario.runs().iter().filter(|run| run.repetition == 0) {
        let plan = plan_of(&scenario, *run, 0, args.what.measured)?;
        output.line(&format!(
            "\n{} producers, {} consumers, {}",
            run.producers,
            run.consumers,
            match (plan.deliveries, plan.seconds) {
                (Some(deliveries), _) => format!("{deliveries} deliveries"),
                (None, seconds) => format!("{} s", seconds.unwrap_or(0)),
            }
        ))?;
        let rows: Vec<Vec<String>> = plan
            .assignments
            .iter()
            .flat_map(|work| work.tasks.iter().map(move |task| (work.process, task)))
            .map(|(process, task)| {
                let number =
                    |number: Option<u64>| number.map_or("-".to_owned(), |one| one.to_string());
                let pace = task.pace.map_or("-".to_owned(), pace);
                vec![
                    process.to_string(),
                    task.member.to_string(),
                    number(task.queue),
                    number(task.messages),
                    pace,
                ]
            })
            .collect();
        output.line(&table(
            &["process", "who", "queue", "messages", "pace"],
            &rows,
        ))?;
    }
    output.flush()
}

fn pace(pace: Pace) -> String {
    match pace {
        Pace::Window(count) => format!("up to {count} unconfirmed"),
        Pace::Batches(count) => format!("batches of {count}"),
        Pace::OneByOne => "one at a time".to_owned(),
        Pace::Due(schedule) => {
            let second = schedule.due_ns(1) - schedule.due_ns(0);
            format!("one each {second} ns")
        }
    }
}

/// A number that no other run has.
fn run_number() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(u64::from_le_bytes(bytes)),
        Err(error) => Err(Failure::new(Code::Failure, "a random number", error)),
    }
}

/// The server that runs already.
fn running(args: &RunArgs, scenario: &mut Scenario) -> Result<(), Failure> {
    if let Some(kind) = connect::kind_of(scenario.backend) {
        let known = scenario.url.take();
        let url = kind.find(args.url.as_deref(), known.as_ref().map(|url| &*url.0))?;
        scenario.url = url.map(Url);
    } else if let Some(url) = &args.url {
        if url.starts_with(client_url_scheme()) {
            let what = "a thalweg:// URL has a token, and a command line shows it to everybody on this host. \
                        Put it into a file that only you can read, and give that";
            return Err(Failure::usage("--url", what));
        }
        scenario.url = Some(Url(url.clone()));
    }
    connect::check_url(scenario)?;
    match &scenario.url {
        Some(_) => Ok(()),
        None => {
            let what = "there is no server: give --url, or --serve for one of its own";
            Err(Failure::usage("workload", what))
        }
    }
}

fn client_url_scheme() -> &'static str {
    ::client::url::SCHEME
}

fn run_all(args: &RunArgs) -> Result<ExitCode, Failure> {
    let Chosen {
        scenario,
        table,
        architectures,
    } = choose::scenario(&args.what)?;
    if !args.serve && architectures.iter().any(|one| route::makes_server(*one)) {
        let what = "thalweg gateway makes its server itself: it needs --serve, and no --url";
        return Err(Failure::usage("architecture", what));
    }
    choose::check_served(&scenario, args.serve)?;
    let file = args.json.as_deref().map(JsonFile::at).transpose()?;
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let flag = is_interrupted.clone();
    on_interrupt(move || flag.store(true, Ordering::Relaxed))?;
    let mut all = All {
        measured: args.what.measured,
        circumstances: json_file::circumstances(&table),
        file,
        results: Vec::new(),
        found: Vec::new(),
    };
    let done = architectures.into_iter().try_for_each(|architecture| {
        let mut scenario = scenario.clone();
        scenario.architecture = architecture;
        all.run_over(args, scenario, &is_interrupted)
    });
    // What was measured is shown, whatever came after it.
    let told = all.tell();
    done?;
    told?;
    match all.found.iter().all(|found| found.findings.is_empty()) {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(Code::Findings.into()),
    }
}

/// All runs, as far as they were made.
struct All {
    measured: Option<f64>,
    circumstances: serde_json::Value,
    file: Option<JsonFile>,
    results: Vec<RunResult>,
    /// Of each result.
    found: Vec<Found>,
}

impl All {
    /// All runs over one architecture: its server, if there is to be one, and what stands before it, are there for as
    /// long.
    fn run_over(
        &mut self,
        args: &RunArgs,
        mut scenario: Scenario,
        is_interrupted: &AtomicBool,
    ) -> Result<(), Failure> {
        let own = match args.serve {
            true if route::makes_server(scenario.architecture) => None,
            true => Some(Own::start(&mut scenario)?),
            false => {
                running(args, &mut scenario)?;
                None
            }
        };
        let route = Route::start(&scenario, is_interrupted)?;
        scenario.url = Some(route.clients().clone());
        let means = RefCell::new(Means::new(&scenario, own, &route)?);
        let disruptions = scenario.disruptions.clone();
        let course = Course {
            idle_seconds: scenario.idle_seconds,
            disruptions: &disruptions,
            is_interrupted,
            means: &means,
            route: &route,
        };
        let done = self.run(&scenario, &course);
        let is_ended = course.is_interrupted();
        let between = route.check();
        let mut means = means.into_inner();
        let ended = means.ended();
        let closed = route.stop();
        let stopped = means.stop();
        if !is_ended {
            // They explain what else went wrong.
            ended?;
            between?;
        }
        done?;
        closed?;
        stopped
    }

    fn run(&mut self, scenario: &Scenario, course: &Course<'_>) -> Result<(), Failure> {
        let measured = self.measured;
        for run in scenario.runs() {
            if course.is_interrupted() {
                return Err(interrupted::interrupted());
            }
            let number = run_number()?;
            let plan = plan_of(scenario, run, number, measured)?;
            let ran = runner::run(&plan, course)?;
            let observed = Observed {
                number,
                transport: ran.transport,
                measured,
                cpu: ran.cpu,
                done: ran.done,
                refusals: ran.refusals,
            };
            let result = RunResult::new(scenario, run, &ran.reports, &ran.missing, observed);
            let mut found = report::found(&result);
            let left_behind = ran.left_behind.iter();
            found.findings.extend(
                left_behind.map(|why| format!("what was made for it was not removed: {why}")),
            );
            self.found.push(found);
            self.results.push(result);
            // After each run, so that a later one that fails takes nothing away.
            if let Some(file) = &self.file {
                let runs = report::json(&self.results, &self.found);
                file.write(&report::document(&self.circumstances, runs))?;
            }
        }
        Ok(())
    }

    fn tell(&self) -> Result<(), Failure> {
        if self.results.is_empty() {
            return Ok(());
        }
        let mut output = Output::new(false);
        output.line(&report::text(&self.results, &self.found))?;
        for (result, found) in self.results.iter().zip(&self.found) {
            for finding in found.notes.iter().chain(&found.findings) {
                let (producers, consumers) = (result.producers, result.consumers);
                let over = match result.architecture {
                    Architecture::Direct => String::new(),
                    other => format!("{}, ", other.label()),
                };
                let which = format!(
                    "{over}{producers} producers, {consumers} consumers, run {}",
                    result.repetition + 1
                );
                output.line(&format!("{which}: {finding}"))?;
            }
        }
        output.flush()
    }
}
