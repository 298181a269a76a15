//! What every part of a node needs beside its own state: the time, timers, ids, budgets, a way
//! out, and a note of what is to be looked at again.

use crate::budget::DataBudget;
use crate::faults::Fault;
use crate::flow::Flow;
use crate::ids::{Bulk, LinkId, Now, SharedId, StorageId};
use crate::io::Output;
use crate::options::NodeOptions;
use crate::random::Random;
use crate::timers::Timers;
use net::BulkToken;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// See the module. An object of the node is handed `&mut Ctx` beside `&mut self`, so that its
/// methods reach nothing else.
pub(crate) struct Ctx {
    pub options: NodeOptions,
    /// When the input came that is being handled.
    pub now: Now,
    pub random: Random,
    pub outputs: VecDeque<Output>,
    pub timers: Timers,
    /// Bulk operations that were asked for, and what each is for.
    pub bulk: BTreeMap<BulkToken, Bulk>,
    pub data: DataBudget,
    /// External data on its way to storage, and transfers that wait.
    pub incoming: Flow,
    /// Selected data on its way to its readers, and calls that wait.
    pub outgoing: Flow,
    /// Bytes of batches that wait for room, by connection.
    pub in_line: BTreeMap<LinkId, u64>,
    pub dirty: Dirty,
    last_id: u64,
}

/// What was called since it was last settled.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    pub partitions: BTreeSet<StorageId>,
    pub controller: bool,
    pub queues: BTreeSet<SharedId>,
}

impl Ctx {
    pub fn new(options: NodeOptions, now: Now) -> Self {
        let flow_bytes_max = options.limits.flow_bytes_max;
        Self {
            random: Random::new(options.seed),
            data: DataBudget::new(options.limits.data_bytes_max),
            incoming: Flow::new(flow_bytes_max),
            outgoing: Flow::new(flow_bytes_max),
            options,
            now,
            outputs: VecDeque::new(),
            timers: Timers::default(),
            bulk: BTreeMap::new(),
            in_line: BTreeMap::new(),
            dirty: Dirty::default(),
            last_id: 0,
        }
    }

    /// A number that was never given before: for tokens of all kinds.
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// A line for the operator.
    pub fn report(&mut self, line: String) {
        self.outputs.push_back(Output::Report(line));
    }

    /// Whether this fault was planted. Never outside of tests.
    #[inline]
    pub fn planted(&self, fault: Fault) -> bool {
        #[cfg(any(test, feature = "testing"))]
        return self.options.fault == Some(fault);
        #[cfg(not(any(test, feature = "testing")))]
        {
            let _ = fault;
            false
        }
    }

    /// The kind of storage of this name.
    pub fn kind(&self, name: &str) -> Option<Arc<dyn log::StorageKind>> {
        let mut kinds = self.options.kinds.iter();
        kinds.find(|kind| kind.name() == name).cloned()
    }
}
