//! Development only: a server, producers and consumers in one thread, over a
//! faulty network and a faulty disk, under a virtual clock and one seed.
//!
//! The node and the clients are the real ones; what executes them here is
//! small. Chaos comes first, then all is well and everything must drain in
//! bounded time. All along, and at the end, what was acknowledged and what was
//! delivered is compared with a model of what was pushed. A run follows from
//! its seed, so that a failure is told by a number.

#![forbid(unsafe_code)]

mod answerer;
mod asked;
mod asking;
mod asking_costs;
mod campaign;
mod consumer;
mod costs;
mod counted;
mod fiber;
mod ground;
mod handed;
mod leaders;
mod leases;
mod looks;
mod machine;
mod mailbox;
mod member;
mod model;
mod plan;
mod planted;
mod producer;
mod program;
mod random;
mod requester;
mod run;
mod servers;
mod shares;
mod sharing;
mod steps;
mod trace;
mod wired;
mod witness;
mod worker;
mod world;

pub use asking_costs::Asking;
pub use campaign::{is_noticed, run_all, seeds};
pub use costs::{Cost, Costs, memory_of_copied_data};
pub use counted::{Consuming, Copied, Counted, Moving};
pub use plan::Weather;
pub use planted::Planted;
pub use run::{Failure, find, run_seed};
pub use servers::{ClusterSummary, find_cluster, run_cluster};
pub use steps::{StepsSummary, find_steps, run_steps};
pub use trace::Violation;
pub use world::Summary;
