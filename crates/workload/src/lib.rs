//! The published streaming experiments as data: what is run, who does what, and what the figures are.
//!
//! Plain values: no files, no clock, no connections. The caller brings texts, times and messages. The way of a run
//!
//! 1. [`Scenario::from_toml`], or [`Published::read`] for the files of the published simulator: what is run;
//! 2. [`Plan::new`] for each of [`Scenario::runs`]: what each process does;
//! 3. [`Barrier`] in the runner: who is ready, when all go, when it is over. What the runner and its processes say to
//!    each other are [`ToProcess`] and [`FromProcess`], as lines of JSON;
//! 4. [`Pacer`], [`Payload`] and [`Stamp`] in the processes: when what is sent, and what came; [`ProducerReport`] and
//!    [`ConsumerReport`] count it;
//! 5. [`RunResult::new`]: the result of all reports together; [`Summary::of`]: of all repetitions.

#![forbid(unsafe_code)]

mod account;
mod architecture;
mod barrier;
mod chance;
mod disruption;
mod document;
mod experiments;
mod faults;
mod intervals;
mod journal;
mod latency;
mod message;
mod pace;
mod pacer;
mod pattern;
mod payload;
mod plan;
mod published;
mod report;
mod result;
mod scenario;
mod settings;
mod shape;
mod summary;
mod window;
mod written;

pub use account::{ATTEMPTS_MAX, Account, Counts, INTERVALS_MAX, SentBy, Taken};
pub use architecture::{Architecture, Entrance, Proxy, ProxyLog};
pub use barrier::{Absent, Barrier, Ending, Input, Output, QUIET_MS, READY_MS_MAX, REPORTS_MS_MAX};
pub use disruption::{Act, Disruption, Moment, SLOW_PAUSE_MS, Target};
pub use document::{ScenarioError, Text};
pub use experiments::{EXPERIMENTS, Experiment};
pub use intervals::{Inserted, Intervals};
pub use journal::{Came, Did, Had, Journal};
pub use latency::{DIGITS, LATENCY_NS_MAX, Latency, Percentiles};
pub use message::{FromProcess, LINE_BYTES_MAX, LineError, ToProcess, from_line, to_line};
pub use pace::{Loop, Rate, Schedule, Share};
pub use pacer::{ANSWER_NS_MAX, DUE_UNCONFIRMED_MAX, Next, Pacer};
pub use pattern::Pattern;
pub use payload::{Damaged, Payload, STAMP_BYTES, Stamp};
pub use plan::{Assignment, Common, Member, Pace, Plan, PlanError, Replies, Task, member_of};
pub use published::{Files, Ignored, Published, ROLES, Role};
pub use report::{ConsumerReport, ProducerReport, Report};
pub use result::{Cpu, Done, FORMAT, Observed, RunResult};
pub use scenario::{
    Amount, Backend, MEMBERS_MAX, MESSAGES_MAX, Producers, Run, Scenario, UpTo, Url,
};
pub use settings::{Acks, Confirms, Overflow, QueueKind, Settings, queue_of};
pub use shape::{MESSAGE_BYTES_MAX, Shape};
pub use summary::Summary;
pub use window::{Spread, Throughput, Window};

#[cfg(test)]
mod tests;
