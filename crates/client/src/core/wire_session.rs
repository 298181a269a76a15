//! What all parts of the core share: the time, timers, and the standing
//! connection: who waits for which answer, credit, heartbeats.

use super::elsewhere::{Elsewhere, Hint, What};
use crate::mailbox::{Counters, Liveness, Mailbox};
use crate::standing::Hindrance;
use bytes::Bytes;
use net::{Lane, Link, Message};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use wire::codec::Codec;
use wire::frame::{FrameKind, REQUEST_QUIET};
use wire::message::{Method, RequestHead, Welcome};
use wire::{ErrorCode, ErrorReply, TopicId};

/// Set in the flags of a heartbeat that answers one.
const HEARTBEAT_ANSWER: u8 = 1;

/// What becomes due, and of whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Connection,
    Heartbeat,
    /// Topics in use are looked at: they may have got partitions.
    Refresh,
    Call(u64),
    /// A producer's acks, retries or lingering batches.
    Producer(u64),
    /// A consumer's acknowledgements or subscriptions to be opened again.
    Consumer(u64),
    /// Somebody is to be notified that it is this late.
    Alarm(u64),
    /// A queue's membership, its leases, or what is to be sent again.
    Queue(u64),
    /// Whether the session is to have one more connection.
    Stripes,
}

/// What all parts of the core share.
pub(super) struct Context {
    pub now: Duration,
    pub mailbox: Arc<Mailbox>,
    /// What is known of the node.
    pub liveness: Arc<Liveness>,
    pub timers: BTreeSet<(Duration, Timer)>,
    /// The standing connection, welcomed.
    pub session: Option<WireSession>,
    /// More can be done at once, after the link has moved bytes.
    pub again: bool,
    /// Something was sent since somebody looked.
    pub has_sent: bool,
    /// Something has arrived that is taken once what is sent now is on its way.
    pub is_behind: bool,
    /// A request was refused because its leader epoch is over: the topics are to be looked up.
    pub is_stale: bool,
    /// What the node has said of things that are at others.
    pub elsewhere: Vec<Elsewhere>,
    /// Topics that the node has described, for that they are there.
    pub described: Vec<TopicId>,
}

impl Context {
    pub fn new(mailbox: Arc<Mailbox>, liveness: Arc<Liveness>) -> Self {
        Self {
            now: Duration::ZERO,
            mailbox,
            liveness,
            timers: BTreeSet::new(),
            session: None,
            again: false,
            has_sent: false,
            is_behind: false,
            is_stale: false,
            elsewhere: Vec::new(),
            described: Vec::new(),
        }
    }

    /// What says where topics of this node are; nothing of those at the first one.
    pub fn place(&self) -> Option<Arc<Liveness>> {
        let is_first = Arc::ptr_eq(&self.liveness, &self.mailbox.liveness);
        (!is_first).then(|| self.liveness.clone())
    }

    pub fn arm(&mut self, at: Duration, timer: Timer) {
        self.timers.insert((at, timer));
    }
}

/// Whom an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Call,
    OpenProducer {
        producer: u64,
    },
    Produce {
        producer: u64,
        partition: u32,
    },
    /// Stays for as long as the subscription.
    Subscription {
        consumer: u64,
        partition: u32,
    },
    Cursors {
        consumer: u64,
    },
    /// Stays for as long as the membership.
    Membership {
        consumer: u64,
    },
    Settle {
        queue: u64,
        sequence: u64,
    },
    Extend {
        queue: u64,
    },
    /// A queue's member has left.
    Left {
        queue: u64,
    },
    /// How a topic is now.
    Topic {
        topic: TopicId,
    },
    Ignored,
}

impl Route {
    /// The key of the producer, consumer or queue that the answer is for.
    pub fn key(self) -> Option<u64> {
        match self {
            Self::OpenProducer { producer: key }
            | Self::Produce { producer: key, .. }
            | Self::Subscription { consumer: key, .. }
            | Self::Cursors { consumer: key }
            | Self::Membership { consumer: key }
            | Self::Settle { queue: key, .. }
            | Self::Extend { queue: key }
            | Self::Left { queue: key } => Some(key),
            Self::Call | Self::Topic { .. } | Self::Ignored => None,
        }
    }
}

/// A connection after its welcome.
pub(super) struct WireSession {
    routes: BTreeMap<u64, Route>,
    last_id: u64,
    produce_credit: u64,
    produce_used: u64,
    payload_bytes_max: u64,
    heartbeat: Duration,
    last_heard: Duration,
    asked: bool,
    /// The server has said that it ends.
    is_ending: bool,
}

impl WireSession {
    pub fn new(now: Duration, welcome: &Welcome) -> Self {
        Self {
            routes: BTreeMap::new(),
            last_id: 0,
            produce_credit: welcome.produce_credit,
            produce_used: 0,
            payload_bytes_max: welcome.payload_bytes_max,
            heartbeat: Duration::from_millis(u64::from(welcome.heartbeat_ms.max(1))),
            last_heard: now,
            asked: false,
            is_ending: false,
        }
    }
}

/// What a part of the core needs to act: the shared state and the link.
pub(super) struct Wire<'a> {
    pub context: &'a mut Context,
    /// The link, which may be dead already; see [`Wire::is_up`].
    pub link: Option<&'a mut dyn Link>,
    /// Whether it is used to leave alone: what is done with it goes on at another node.
    is_leaving: bool,
}

/// A request, apart from its route.
pub(super) struct Request<'a> {
    pub method: Method,
    pub topic: TopicId,
    /// Epoch of the partition's leader; 0 if that is not known, or it is not about one partition.
    pub leader_epoch: u32,
    pub remaining: Duration,
    pub body: &'a [u8],
    pub payload: Vec<Bytes>,
    /// Whether its answer may wait for what else comes.
    pub is_quiet: bool,
}

impl<'a> Wire<'a> {
    pub fn new(context: &'a mut Context, link: Option<&'a mut dyn Link>) -> Self {
        Self {
            context,
            link,
            is_leaving: false,
        }
    }

    /// For what leaves this node: memory is taken back and credit given back, and nothing is asked for any more.
    pub fn leaving(context: &'a mut Context, link: Option<&'a mut dyn Link>) -> Self {
        Self {
            context,
            link,
            is_leaving: true,
        }
    }

    /// The node says that it does not have this. True if it says who does.
    pub fn is_elsewhere(&mut self, what: What, error: &ErrorReply) -> bool {
        let hint = Hint::of(error);
        let found = hint.map(|hint| Elsewhere { what, hint });
        let is_known = found.is_some();
        self.context.elsewhere.extend(found);
        is_known
    }

    pub fn now(&self) -> Duration {
        self.context.now
    }

    /// Whether requests can be sent.
    pub fn is_up(&self) -> bool {
        !self.is_leaving && self.context.session.is_some() && self.link.is_some()
    }

    /// The link, for regions; also when the connection is being taken down.
    pub fn link(&mut self) -> Option<&mut dyn Link> {
        match &mut self.link {
            Some(link) => Some(&mut **link),
            None => None,
        }
    }

    /// Whether the server gives out nothing new: there is no connection, or it
    /// has said that it ends.
    pub fn hindrance(&self) -> Option<Hindrance> {
        match &self.context.session {
            Some(session) if session.is_ending => Some(Hindrance::Ending),
            Some(_) if self.link.is_some() => None,
            _ => Some(Hindrance::Away),
        }
    }

    /// The server says that it ends.
    pub fn goes_away(&mut self) {
        self.session().is_ending = true;
    }

    fn session(&mut self) -> &mut WireSession {
        self.context
            .session
            .as_mut()
            .expect("requests are sent on a standing connection")
    }

    pub fn send(&mut self, message: Message) {
        let Some(link) = &mut self.link else {
            return;
        };
        Counters::add(&self.context.mailbox.counters.frames_sent);
        self.context.has_sent = true;
        link.send(message);
    }

    /// Sends a request; its answer goes to `route`. Only while [`Wire::is_up`].
    pub fn request(&mut self, route: Route, request: Request<'_>) -> u64 {
        trace::passes!("a request, which has an id");
        let session = self.session();
        session.last_id += 1;
        let id = session.last_id;
        session.routes.insert(id, route);
        let head = RequestHead {
            method: request.method,
            remaining_ms: request.remaining.as_millis().clamp(1, u128::from(u32::MAX)) as u32,
            topic: request.topic,
            leader_epoch: request.leader_epoch,
            trace: 0,
        };
        let mut bytes = Vec::with_capacity(64 + request.body.len());
        head.encode(&mut bytes);
        bytes.extend_from_slice(request.body);
        let lane = match request.payload.is_empty() {
            true => Lane::Control,
            false => Lane::Bulk,
        };
        self.send(Message {
            payload: request.payload,
            lane,
            flags: if request.is_quiet { REQUEST_QUIET } else { 0 },
            ..Message::control(FrameKind::Request, id, bytes)
        });
        id
    }

    pub fn route(&mut self, id: u64) -> Option<Route> {
        self.context.session.as_ref()?.routes.get(&id).copied()
    }

    pub fn end_route(&mut self, id: u64) -> Option<Route> {
        self.context.session.as_mut()?.routes.remove(&id)
    }

    /// Answers that still come by these routes are of no interest.
    pub fn end_routes(&mut self, is_over: impl Fn(Route) -> bool) {
        if let Some(session) = &mut self.context.session {
            session.routes.retain(|_, route| !is_over(*route));
        }
    }

    /// Nobody wants the answer any more; the server is notified.
    pub fn cancel(&mut self, id: u64) {
        if self.end_route(id).is_some() {
            self.send(Message::control(FrameKind::Cancel, id, Bytes::new()));
        }
    }

    /// The longest payload that the server takes, if this one is longer.
    pub fn exceeds_payload_max(&mut self, bytes: u64) -> Option<u64> {
        let max = self.session().payload_bytes_max;
        (bytes > max).then_some(max)
    }

    /// Takes space for a payload of this length; one larger than all space
    /// goes alone.
    pub fn take_produce_credit(&mut self, bytes: u64) -> bool {
        let session = self.session();
        let used = session.produce_used;
        if used != 0 && used + bytes > session.produce_credit {
            return false;
        }
        session.produce_used += bytes;
        true
    }

    pub fn return_produce_credit(&mut self, bytes: u64) {
        if let Some(session) = &mut self.context.session {
            session.produce_used = session.produce_used.saturating_sub(bytes);
        }
    }

    /// A message arrived.
    pub fn heard(&mut self) {
        let now = self.context.now;
        if let Some(session) = &mut self.context.session {
            session.last_heard = now;
        }
    }

    pub fn heartbeat(&mut self, flags: u8) {
        let asked = std::mem::take(&mut self.session().asked);
        if asked || flags & HEARTBEAT_ANSWER != 0 {
            return;
        }
        self.send_heartbeat(HEARTBEAT_ANSWER);
    }

    fn send_heartbeat(&mut self, flags: u8) {
        Counters::add(&self.context.mailbox.counters.heartbeats_sent);
        self.send(Message {
            flags,
            ..Message::control(FrameKind::Heartbeat, 0, Bytes::new())
        });
    }

    /// Begins to watch the silence of a new connection.
    pub fn watch(&mut self) {
        let at = self.context.now + self.session().heartbeat;
        self.context.arm(at, Timer::Heartbeat);
    }

    /// Time to look at the silence of the other side.
    pub fn look_at_silence(&mut self) -> Silence {
        let now = self.context.now;
        let Some(session) = &mut self.context.session else {
            return Silence::Short;
        };
        let silence = now.saturating_sub(session.last_heard);
        let heartbeat = session.heartbeat;
        if silence >= heartbeat * 2 {
            return Silence::Dead(format!(
                "nothing was heard from the server for {:.1} s",
                silence.as_secs_f64()
            ));
        }
        let is_long = silence >= heartbeat;
        let after = if is_long { heartbeat * 2 } else { heartbeat };
        let at = session.last_heard + after;
        self.context.arm(at, Timer::Heartbeat);
        match is_long {
            true => Silence::Long,
            false => Silence::Short,
        }
    }

    /// Asks for a sign of life.
    pub fn ask_for_life(&mut self) {
        if !std::mem::replace(&mut self.session().asked, true) {
            self.send_heartbeat(0);
        }
    }

    /// Whether nothing was heard for so long that the connection counts as idle.
    pub fn is_idle(&self) -> bool {
        let now = self.context.now;
        let session = self.context.session.as_ref();
        session.is_none_or(|session| now >= session.last_heard + session.heartbeat / 2)
    }
}

/// How long nothing was heard.
pub(super) enum Silence {
    Short,
    /// So long that a sign of life is to be asked for.
    Long,
    /// The other side is taken for dead, and why.
    Dead(String),
}

/// The error that a frame's head holds.
pub(super) fn error_of(head: &[u8]) -> ErrorReply {
    ErrorReply::from_bytes("error reply", head)
        .unwrap_or_else(|error| ErrorReply::fatal(ErrorCode::Malformed, error.to_string()))
}
