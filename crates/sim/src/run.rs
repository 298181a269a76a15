//! Runs of seeds, and how their failures are told.

use crate::plan::{Plan, Weather};
use crate::planted::Planted;
use crate::trace::{Trace, Violation};
use crate::world::{Summary, World};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many lines of a failed run's trace are shown.
const LINES_SHOWN: usize = 60;

/// A seed whose run broke a promise.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What happened that must not.
    pub violation: Violation,
    /// The end of what happened before.
    pub trace: Vec<String>,
    /// Which program of tests runs the seed.
    pub(crate) program: &'static str,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "seed {}: {}", self.seed, self.violation.0)?;
        write!(
            f,
            "again, with a trace: SIM_SEED={} cargo test -p thalweg-sim --test {} -- --nocapture",
            self.seed, self.program
        )
    }
}

/// Runs a seed; after a failure once more, for its trace.
///
/// # Errors
/// The promise that the run broke.
pub fn run_seed(
    seed: u64,
    weather: Weather,
    planted: Option<Planted>,
) -> Result<Summary, Box<Failure>> {
    let plan = || Plan::of(seed, weather, planted);
    let run = |trace| attempt(planted, || World::new(plan(), trace).run());
    with_trace(seed, "seeds", run)
}

/// Runs a seed; after a failure once more, for its trace.
pub(crate) fn with_trace<T: fmt::Debug>(
    seed: u64,
    program: &'static str,
    run: impl Fn(Trace) -> Result<T, Violation>,
) -> Result<T, Box<Failure>> {
    let violation = match run(Trace::default()) {
        Ok(summary) => return Ok(summary),
        Err(violation) => violation,
    };
    let trace = Trace::kept();
    let again = run(trace.clone());
    let mut trace = trace.lines();
    if again.as_ref().err() != Some(&violation) {
        trace.push(format!("the same seed gave another run: {again:?}"));
    }
    if std::env::var_os("SIM_SEED").is_none() {
        trace.drain(..trace.len().saturating_sub(LINES_SHOWN));
    }
    Err(Box::new(Failure {
        seed,
        violation,
        trace,
        program,
    }))
}

/// The first of some seeds whose run notices a planted fault, and as what.
pub fn find(
    planted: Planted,
    weather: Weather,
    seeds: std::ops::Range<u64>,
) -> Option<(u64, Violation)> {
    seeds.into_iter().find_map(|seed| {
        let plan = Plan::of(seed, weather, Some(planted));
        let run = || World::new(plan, Trace::default()).run();
        let found = attempt(Some(planted), run).err();
        found.map(|violation| (seed, violation))
    })
}

/// A run, with a fault planted into what this thread runs of clients and of servers' parts in a cluster.
pub(crate) fn attempt<T>(
    planted: Option<Planted>,
    run: impl FnOnce() -> Result<T, Violation>,
) -> Result<T, Violation> {
    client::plant(planted.and_then(Planted::client));
    cluster::plant(planted.and_then(Planted::cluster));
    let result = catch_unwind(AssertUnwindSafe(run));
    client::plant(None);
    cluster::plant(None);
    result.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        Violation::because(format!("it panicked: {text}"))
    })
}
