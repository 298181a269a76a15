//! A virtual host that is served: its state, its queues, its records, and what is under way.

use super::calls::{Calls, ClientId};
use super::publish::Publisher;
use super::queue::{Engine, Held};
use amqp::{ChannelKey, Request};
use broker::node::LinkId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use vhost::{ActId, Limits, Plan, QueueId, Record, Removal, Vhost};
use wire::TopicId;

/// The topic of a virtual host's records.
pub(super) const RECORDS: &str = "amqp.vhost";

/// How far a virtual host has come.
///
/// ```text
///   Listing ──► Reading ──► Ready
/// ```
#[derive(Debug)]
pub(super) enum Stage {
    /// The topics of its namespace are asked for.
    Listing,
    /// Its records are read; these topics of queues there are.
    Reading {
        topics: BTreeMap<String, TopicId>,
        records: Vec<Record>,
    },
    Ready,
}

/// Who asked for an act.
#[derive(Debug)]
pub(super) struct Asker {
    pub client: ClientId,
    pub channel: ChannelKey,
    pub request: Request,
    /// Messages that its queue has, for the answer.
    pub count: u64,
}

/// An act under way.
#[derive(Debug)]
pub(super) struct Act {
    pub plan: Plan,
    /// Nobody, of an act of the server's own.
    pub asker: Option<Asker>,
}

/// Who claims again when an act is settled.
#[derive(Debug)]
pub(super) enum Waiter {
    Client(ClientId),
    Removal(QueueId, Removal),
}

/// A dead letter on its way.
#[derive(Debug)]
pub(super) struct Letter {
    /// Of which queue it comes, if it was in one.
    pub from: Option<(QueueId, Held)>,
    /// Queues that have not answered.
    pub left: usize,
    /// One of them could not take it.
    pub is_refused: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Host {
    pub session: LinkId,
    pub stage: Stage,
    pub vhost: Vhost,
    pub queues: BTreeMap<QueueId, Engine>,
    /// Queues by the calls by which they have joined.
    pub joins: BTreeMap<u64, QueueId>,
    pub publisher: Publisher,
    /// The topic of its records, if there is one.
    pub records: Option<TopicId>,
    /// Acts that wait for that topic.
    pub unrecorded: Vec<ActId>,
    pub is_making_records: bool,
    pub acts: BTreeMap<ActId, Act>,
    pub waiters: BTreeMap<ActId, Vec<Waiter>>,
    /// Clients that wait until it is ready.
    pub openers: Vec<ClientId>,
    pub clients: BTreeSet<ClientId>,
    /// Removals that failed, to be tried again.
    pub later: Vec<(QueueId, Removal)>,
    pub letters: BTreeMap<u64, Letter>,
    pub letters_begun: u64,
    /// Consumers of direct replies, by their addresses.
    pub replies: HashMap<Arc<str>, (ClientId, ChannelKey)>,
    pub timer_at: Option<Duration>,
}

/// What a virtual host is called: that of the default namespace as RabbitMQ has it.
pub(super) fn name_of(namespace: &str) -> &str {
    match namespace {
        "" => "/",
        namespace => namespace,
    }
}

impl Host {
    pub fn new(namespace: &Arc<str>, calls: &mut Calls) -> Self {
        let session = calls.host(namespace);
        Self {
            session,
            stage: Stage::Listing,
            vhost: Vhost::new(name_of(namespace), Limits::default()),
            queues: BTreeMap::new(),
            joins: BTreeMap::new(),
            // Its credit is not known: one batch at a time is always taken.
            publisher: Publisher::new(session, 0),
            records: None,
            unrecorded: Vec::new(),
            is_making_records: false,
            acts: BTreeMap::new(),
            waiters: BTreeMap::new(),
            openers: Vec::new(),
            clients: BTreeSet::new(),
            later: Vec::new(),
            letters: BTreeMap::new(),
            letters_begun: 0,
            replies: HashMap::new(),
            timer_at: None,
        }
    }

    /// A queue serves from now on.
    pub fn insert(&mut self, engine: Engine) {
        let id = engine.queue.id;
        self.joins.insert(engine.join, id);
        self.queues.insert(id, engine);
    }

    /// A queue is gone.
    pub fn remove(&mut self, id: QueueId) -> Option<Engine> {
        let engine = self.queues.remove(&id)?;
        self.joins.remove(&engine.join);
        Some(engine)
    }

    pub const fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready)
    }
}
