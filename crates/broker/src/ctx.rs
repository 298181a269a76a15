//! What every part of a node needs beside its own state: the time, timers, ids, budgets, a way
//! out, and a note of what is to be looked at again.

use crate::answer::{Answer, Delivery};
use crate::audit::{Audit, AuditRecord, Audited};
use crate::budget::DataBudget;
use crate::effects::{Effect, Effects};
use crate::faults::Fault;
use crate::flow::Flow;
use crate::ids::{
    Bulk, JobId, LinkId, Now, OWN_LINK, Purpose, RequestId, SessionJob, SharedId, StorageId,
    TransferId,
};
use crate::io::{Job, Output};
use crate::options::NodeOptions;
use crate::pace::Paces;
use crate::paused::Paused;
use crate::random::Random;
use crate::report::Line;
use crate::stored::StoredBytes;
use crate::timers::Timers;
use net::BulkToken;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use wire::{ErrorReply, NodeId, TopicId};

/// See the module. An object of the node is handed `&mut Ctx` beside `&mut self`, so that its
/// methods reach nothing else.
pub(crate) struct Ctx {
    pub options: NodeOptions,
    /// When the input came that is being handled.
    pub now: Now,
    pub random: Random,
    pub outputs: VecDeque<Output>,
    /// What acts ask of other objects, in order. Empty between two acts.
    pub effects: Effects,
    pub timers: Timers,
    /// Bulk operations that were asked for, and what each is for.
    pub bulk: BTreeMap<BulkToken, Bulk>,
    /// Blocking jobs that were asked for, and what each is for.
    pub jobs: BTreeMap<JobId, Purpose>,
    pub data: DataBudget,
    /// External data on its way to storage, and transfers that wait.
    pub incoming: Flow<(TransferId, StorageId)>,
    /// Selected data on its way to its readers, and calls that wait.
    pub outgoing: Flow<u64>,
    /// Bytes of batches that wait for room, by connection.
    pub waiting_bytes: BTreeMap<LinkId, u64>,
    /// Connections on which nothing is delivered for now.
    pub paused: Paused,
    /// What projects and the holders of tokens are held to.
    pub rules: Arc<access::Rules>,
    pub paces: Paces,
    pub stored: StoredBytes,
    audit: Audit,
    pub dirty: Dirty,
    last_id: u64,
}

/// What was called, and is to be advanced before the node waits for its next input.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    pub partitions: BTreeSet<StorageId>,
    pub controller: bool,
    pub queues: BTreeSet<SharedId>,
    pub streams: BTreeSet<TopicId>,
}

impl Ctx {
    pub fn new(options: NodeOptions, now: Now) -> Self {
        let flow_bytes_max = options.limits.flow_bytes_max;
        let rules = options.rules.clone();
        Self {
            random: Random::new(options.seed),
            data: DataBudget::new(options.limits.data_bytes_max),
            incoming: Flow::new(flow_bytes_max),
            outgoing: Flow::new(flow_bytes_max),
            options,
            now,
            outputs: VecDeque::new(),
            effects: Effects::default(),
            timers: Timers::default(),
            bulk: BTreeMap::new(),
            jobs: BTreeMap::new(),
            waiting_bytes: BTreeMap::new(),
            paused: Paused::default(),
            rules,
            paces: Paces::default(),
            stored: StoredBytes::default(),
            audit: Audit::default(),
            dirty: Dirty::default(),
            last_id: 0,
        }
    }

    /// A number that was never given before: for tokens of all kinds.
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Has a blocking job done elsewhere.
    pub fn start_job(&mut self, purpose: Purpose, work: Job) -> JobId {
        let job = JobId(self.next_id());
        self.jobs.insert(job, purpose);
        self.outputs.push_back(Output::Job { job, work });
        job
    }

    /// Whether something is still done that a node that ends waits for: a look at a stranger is not.
    pub fn has_jobs(&self) -> bool {
        let is_look =
            |purpose: &Purpose| matches!(purpose, Purpose::Session(SessionJob::Examine(_)));
        !self.jobs.values().all(is_look)
    }

    /// A warning for the operator. The caller's place in the code is the kind of line that it is.
    #[track_caller]
    pub fn report(&mut self, text: String) {
        self.outputs.push_back(Output::Report(Line::warning(text)));
    }

    /// Good news for the operator.
    #[track_caller]
    pub fn inform(&mut self, text: String) {
        self.outputs.push_back(Output::Report(Line::info(text)));
    }

    /// Leaves a record in the audit trail.
    pub fn audit(&mut self, what: Audited, fields: Map<String, Value>) {
        let record = self.audit.record(what, fields, self.now);
        let output = |record: AuditRecord| Output::Audit(Box::new(record));
        self.outputs.extend(record.map(output));
    }

    /// Answers a request.
    pub fn answer(&mut self, caller: RequestId, answer: Answer) {
        self.effects.push_back(Effect::Answer(caller, answer));
    }

    /// Delivers something to a subscription or a membership, which this request began.
    pub fn deliver(&mut self, caller: RequestId, delivery: Delivery) {
        self.effects.push_back(Effect::Deliver(caller, delivery));
    }

    /// Answers a request, or an append of the server itself, with an error.
    pub fn refuse(&mut self, caller: RequestId, error: ErrorReply) {
        self.effects.push_back(match caller.link {
            OWN_LINK => Effect::OwnAppend(caller.id, Err(error)),
            _ => Effect::Refuse(caller, error),
        });
    }

    /// An append of the server itself is stored.
    pub fn stored(&mut self, append: u64) {
        self.effects.push_back(Effect::OwnAppend(append, Ok(())));
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

    /// Which node of its table it is.
    pub fn node(&self) -> NodeId {
        self.options.role.node()
    }

    /// The kind of storage of this name.
    pub fn kind(&self, name: &str) -> Option<Arc<dyn log::StorageKind>> {
        let mut kinds = self.options.kinds.iter();
        kinds.find(|kind| kind.name() == name).cloned()
    }
}
