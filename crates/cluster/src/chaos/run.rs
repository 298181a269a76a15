//! Runs of seeds, and how their failures are told.

use super::plan::Plan;
use super::trace::{Trace, Violation};
use super::world::{Counts, World};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many lines of a failed run's trace are shown.
const LINES_SHOWN: usize = 60;

/// A run, in which a panic is a violation too.
pub(super) fn attempt(plan: &Plan, trace: Trace) -> (Result<Counts, Violation>, Vec<String>) {
    let mut lines = Vec::new();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(plan.clone(), trace)?;
        let result = catch_unwind(AssertUnwindSafe(|| world.run()));
        lines = std::mem::take(&mut world.trace).lines();
        result.unwrap_or_else(|panic| Err(Violation(panicked(&*panic))))
    }));
    let result = result.unwrap_or_else(|panic| Err(Violation(panicked(&*panic))));
    (result, lines)
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    format!("it panicked: {}", text.unwrap_or_default())
}

/// Runs a seed; after a failure once more, for its trace.
pub(super) fn run_seed(seed: u64) -> Result<Counts, String> {
    let plan = Plan::of(seed);
    let violation = match attempt(&plan, Trace::default()).0 {
        Ok(counts) => return Ok(counts),
        Err(violation) => violation,
    };
    let (again, mut lines) = attempt(&plan, Trace::kept());
    if again.as_ref().err() != Some(&violation) {
        lines.push(format!("the same seed gave another run: {again:?}"));
    }
    if std::env::var_os("QUORUM_SEED").is_none() {
        lines.drain(..lines.len().saturating_sub(LINES_SHOWN));
    }
    Err(format!(
        "{}\nseed {seed}: {}\nagain, with its trace: QUORUM_SEED={seed} cargo test -p \
         thalweg-cluster --lib chaos -- --nocapture",
        lines.join("\n"),
        violation.0
    ))
}

/// The seeds that are asked for: `QUORUM_SEED=n`, `QUORUM_SEEDS=a..b`, or these.
pub(super) fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let number = |text: &str| text.trim().parse::<u64>().expect("a seed is a number");
    if let Ok(seed) = std::env::var("QUORUM_SEED") {
        let seed = number(&seed);
        return seed..seed + 1;
    }
    match std::env::var("QUORUM_SEEDS") {
        Ok(range) => {
            let (from, to) = range.split_once("..").expect("QUORUM_SEEDS=a..b");
            number(from)..number(to)
        }
        Err(_) => usual,
    }
}
