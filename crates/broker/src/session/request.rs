//! Unanswered requests of a connection: begun, answered once, ended by their deadlines.

use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::{LinkId, RequestId, StorageId};
use crate::pace::{Charge, Direction};
use crate::refusal::{Refused, refuse};
use crate::timers::Timer;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::message::Method;
use wire::{ErrorCode, ErrorReply, ProducerId, TopicId};

/// What a partition keeps of a request that is not answered, and which one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    Produce(StorageId, ProducerId),
    /// A subscription whose beginning may have to be looked for.
    Subscribe(StorageId),
    Fetch(StorageId),
    /// What a rank waits for of a stream of steps.
    Steps(TopicId),
}

impl Work {
    /// Of which partition that is, if of one.
    pub fn storage(self) -> Option<StorageId> {
        match self {
            Self::Produce(storage, _) | Self::Subscribe(storage) | Self::Fetch(storage) => {
                Some(storage)
            }
            Self::Steps(_) => None,
        }
    }
}

/// An unanswered request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenRequest {
    deadline: Option<Duration>,
    pub method: Method,
    pub work: Option<Work>,
    /// Payload that it holds of its connection's credit.
    payload_bytes: u64,
    /// Payload that it holds of the data budget.
    pub held_bytes: u64,
    /// Whether nobody hurries for the answer, if it is a good one.
    pub is_quiet: bool,
    /// When what it moved is paid for, if that is known and later than now.
    paid_at: Option<Duration>,
    /// What it moves, as far as somebody pays for it.
    pub charged: Option<(Direction, u64)>,
    /// Whether it is done, and its answer waits for that.
    is_done: bool,
}

/// What is to be known of a request before it is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin {
    pub method: Method,
    /// How long its caller waits.
    pub patience: Option<Duration>,
    /// Bytes of events that it brings.
    pub payload_bytes: u64,
    pub is_quiet: bool,
}

impl OpenRequest {
    /// What it is refused with when its caller has waited for long enough, and what it waited for.
    pub fn too_late(&self, why: Option<String>) -> Refused {
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        ErrorReply::retryable(
            ErrorCode::DeadlinePassed,
            0,
            format!("{:?} was not done in the time given{why}", self.method),
        )
    }
}

/// The unanswered requests of one connection.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: BTreeMap<u64, OpenRequest>,
    /// When their deadlines are looked at: no later than the first of them.
    /// Most requests are over long before, and cost no timer each.
    deadline_at: Option<Duration>,
    /// Payload of those that are open.
    pub unanswered_bytes: u64,
}

impl Requests {
    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn is_open(&self, id: u64) -> bool {
        self.open.contains_key(&id)
    }

    pub fn get(&self, id: u64) -> Option<&OpenRequest> {
        self.open.get(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &OpenRequest)> {
        self.open.iter().map(|(id, request)| (*id, request))
    }

    /// Takes a request note of, if the connection may have one more, within `credit` bytes.
    pub(super) fn begin(
        &mut self,
        caller: RequestId,
        begin: Begin,
        credit: u64,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let limit = ctx.options.limits.requests_max;
        if self.open.len() >= limit {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!("{limit} requests are unanswered already (requests_max)"),
            ));
        }
        let payload_bytes = begin.payload_bytes;
        if payload_bytes > 0 {
            let unanswered = self.unanswered_bytes;
            // One call larger than the credit is let in alone.
            if unanswered > 0 && unanswered + payload_bytes > credit {
                return Err(refuse(
                    ErrorCode::LimitExceeded,
                    format!(
                        "{payload_bytes} bytes of payload, {unanswered} are unanswered, the credit is {credit}"
                    ),
                ));
            }
            self.unanswered_bytes += payload_bytes;
            ctx.data.take(payload_bytes);
        }
        let deadline = begin.patience.map(|patience| ctx.now.monotonic + patience);
        if let Some(deadline) = deadline {
            self.watch_deadline(deadline, caller.link, ctx);
        }
        let request = OpenRequest {
            deadline,
            method: begin.method,
            work: None,
            payload_bytes,
            held_bytes: payload_bytes,
            is_quiet: begin.is_quiet,
            paid_at: None,
            charged: None,
            is_done: false,
        };
        self.open.insert(caller.id, request);
        Ok(())
    }

    /// It moves so much, and is answered no earlier than that is paid for.
    pub fn pay(&mut self, id: u64, charge: Charge) {
        if let Some(request) = self.open.get_mut(&id) {
            request.paid_at = charge.paid_at;
            request.charged = Some((charge.direction, charge.bytes));
        }
    }

    /// It is done. Returns until when its answer waits, if it does: no longer than its caller. What it
    /// brought is in memory no more, and holds nothing that others need; it counts for the credit of
    /// its connection until it is answered.
    pub fn done(&mut self, id: u64, paid_at: Option<Duration>, ctx: &mut Ctx) -> Option<Duration> {
        let request = self.open.get_mut(&id)?;
        let paid_at = paid_at.max(request.paid_at)?;
        let at = request.deadline.map_or(paid_at, |until| until.min(paid_at));
        request.is_done = at > ctx.now.monotonic;
        if !request.is_done {
            return None;
        }
        if !ctx.planted(Fault::PacedHolds) {
            ctx.data.give_back(std::mem::take(&mut request.held_bytes));
        }
        Some(at)
    }

    pub fn begin_work(&mut self, id: u64, work: Work) {
        if let Some(request) = self.open.get_mut(&id) {
            request.work = Some(work);
        }
    }

    pub fn end(&mut self, id: u64, ctx: &mut Ctx) -> Option<OpenRequest> {
        let request = self.open.remove(&id)?;
        self.unanswered_bytes -= request.payload_bytes;
        ctx.data.give_back(request.held_bytes);
        Some(request)
    }

    /// Those whose deadlines have passed.
    pub fn late(&mut self, link: LinkId, ctx: &Ctx) -> Vec<(RequestId, OpenRequest)> {
        let now = ctx.now.monotonic;
        self.deadline_at = None;
        let is_late = |request: &OpenRequest| {
            !request.is_done && request.deadline.is_some_and(|at| at <= now)
        };
        let late = self.open.iter().filter(|(_, request)| is_late(request));
        late.map(|(id, request)| (RequestId { link, id: *id }, *request))
            .collect()
    }

    /// Sees that the first deadline is looked at.
    pub fn watch_deadlines(&mut self, link: LinkId, ctx: &mut Ctx) {
        let waiting = self.open.values().filter(|request| !request.is_done);
        let deadlines = waiting.filter_map(|request| request.deadline);
        if let Some(next) = deadlines.min() {
            self.watch_deadline(next, link, ctx);
        }
    }

    /// Sees that deadlines are looked at by then.
    fn watch_deadline(&mut self, at: Duration, link: LinkId, ctx: &mut Ctx) {
        if self.deadline_at.is_some_and(|armed| armed <= at) {
            return;
        }
        if let Some(armed) = self.deadline_at.replace(at) {
            ctx.timers.remove(armed, Timer::Requests(link));
        }
        ctx.timers.insert(at, Timer::Requests(link));
    }
}
