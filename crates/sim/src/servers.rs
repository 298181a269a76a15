//! Several servers that act as one, with clients at work: the data plane of each node, and the table that all have in common.

mod admin;
mod errand;
mod judge;
mod mover;
mod plan;
mod site;
mod unnamed;
mod wires;
mod world;

use crate::planted::Planted;
use crate::run::{Failure, attempt, with_trace};
use crate::trace::{Trace, Violation};
use plan::ClusterPlan;
use world::ClusterWorld;

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterSummary {
    /// Events that were pushed.
    pub pushed: u64,
    /// Acks.
    pub acked: u64,
    /// Deliveries.
    pub delivered: u64,
    /// How often the time moved.
    pub steps: u64,
    /// Restarts of servers.
    pub restarts: u64,
    /// Topics that movers have moved.
    pub moved: u64,
    /// Nodes that were removed.
    pub removed: u64,
    /// Partitions that were added.
    pub added: u64,
    /// In how many terms a voter led the table.
    pub leaders: u64,
    /// Virtual time, nanoseconds.
    pub ns: u64,
}

/// Runs a seed of a cluster; after a failure once more, for its trace.
///
/// # Errors
/// The promise that the run broke.
pub fn run_cluster(seed: u64, planted: Option<Planted>) -> Result<ClusterSummary, Box<Failure>> {
    let run = |trace| {
        attempt(planted, || {
            ClusterWorld::new(ClusterPlan::of(seed, planted), trace).run()
        })
    };
    with_trace(seed, "cluster", run)
}

/// The first of some seeds whose run of a cluster notices a planted fault, and as what.
pub fn find_cluster(planted: Planted, seeds: std::ops::Range<u64>) -> Option<(u64, Violation)> {
    seeds.into_iter().find_map(|seed| {
        let plan = ClusterPlan::of(seed, Some(planted));
        let run = || ClusterWorld::new(plan, Trace::default()).run();
        let found = attempt(Some(planted), run).err();
        found.map(|violation| (seed, violation))
    })
}
