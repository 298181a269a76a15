//! Streams of steps: ranks that write and ranks that read, as they are in the crate `step`, each on a thread that the
//! simulation runs in turn.

mod check;
mod ledger;
mod plan;
mod ranks;
mod script;
mod world;

use crate::planted::Planted;
use crate::run::{Failure, attempt, with_trace};
use crate::trace::{Trace, Violation};
use plan::StepsPlan;
use world::StepsWorld;

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepsSummary {
    /// Runs of the stream.
    pub runs: u64,
    /// Those of them that were broken.
    pub broken: u64,
    /// Steps that are stored.
    pub steps: u64,
    /// Steps that were dropped because the queue was full.
    pub discarded: u64,
    /// Steps that ranks were given.
    pub given: u64,
    /// Steps that were passed over.
    pub skipped: u64,
    /// Steps that were known to be released by all of a group.
    pub released: u64,
    /// Steps that ranks of groups that share them were given.
    pub shared: u64,
    /// Pairs of ranks that were in one group.
    pub pairs: u64,
    /// Restarts of the server.
    pub restarts: u64,
    /// Programs that were killed.
    pub killed: u64,
    /// Virtual time, nanoseconds.
    pub ns: u64,
}

/// Runs a seed of steps; after a failure once more, for its trace.
///
/// # Errors
/// The promise that the run broke.
pub fn run_steps(seed: u64, planted: Option<Planted>) -> Result<StepsSummary, Box<Failure>> {
    let run = |trace| {
        attempt(planted, || {
            StepsWorld::new(StepsPlan::of(seed, planted), trace).run()
        })
    };
    with_trace(seed, "steps", run)
}

/// The first of some seeds whose run of steps notices a planted fault, and as what.
pub fn find_steps(planted: Planted, seeds: std::ops::Range<u64>) -> Option<(u64, Violation)> {
    seeds.into_iter().find_map(|seed| {
        let plan = StepsPlan::of(seed, Some(planted));
        let run = || StepsWorld::new(plan, Trace::default()).run();
        let found = attempt(Some(planted), run).err();
        found.map(|violation| (seed, violation))
    })
}
