//! Topics, partitions, consumers and producers as plain state machines, and
//! the [`node`] that ties them to links and disks.
//!
//! Knows no sockets, threads, clocks or files: see [`node::Input`] and
//! [`node::Output`].

#![forbid(unsafe_code)]

pub mod answer;
mod audit;
mod blocking;
mod budget;
mod certificates;
mod coordinator;
mod counters;
mod ctx;
mod drain;
mod drain_stage;
mod effects;
mod elsewhere;
mod examine;
mod faults;
mod flow;
mod identity;
mod ids;
#[cfg(feature = "testing")]
mod inspect;
mod io;
mod metadata_check;
pub mod node;
mod nodes;
mod options;
mod pace;
mod partition;
mod partition_requests;
mod paused;
pub mod queue;
mod quota;
mod random;
mod read_data;
mod refusal;
mod report;
pub mod request;
mod selection;
mod session;
mod small_file;
mod space;
mod start;
mod status;
mod steps;
mod stored;
mod timers;
mod verified;
mod view;

pub use answer::{Answer, Delivery};
pub use audit::{AuditRecord, Audited};
pub use certificates::{Certified, Certifier, ClientCertificates};
pub use coordinator::{controller, table};
pub use counters::{Counter, Counters, Histogram};
pub use examine::{Awaited, Examiner, Look, NoOthers, Presented};
#[cfg(any(test, feature = "testing"))]
pub use faults::Fault;
pub use identity::{Identity, Proof};
#[cfg(feature = "testing")]
pub use inspect::Inspected;
pub use io::{AccessChange, Examined, FileSystemSpace, IssuersChange, PeerInput};
pub use node::Node;
pub use nodes::Nodes;
pub use options::open_in_turn;
pub use options::{
    Limits, NodeError, NodeOptions, OpenPartitions, OpenedPartition, StartReport, TableRole,
};
pub use report::{Line, Severity};
pub use request::Request;
pub use start::{FromLeader, Upstream, look};
pub use verified::Verified;

#[cfg(test)]
mod tests;

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.ctx.options.directory.display())
    }
}
