//! Requests of the API: sent when there is a connection, sent again after a
//! reconnect where that is harmless, and ended at their deadline.

use super::elsewhere::{HOPS_MAX, What};
use super::retry;
use super::wire_session::{Request, Route, Timer, Wire};
use crate::error::ClientError;
use crate::faults::{Fault, panic_if_planted, planted};
use crate::mailbox::{CallRequest, Seek};
use crate::promise::{Reply, Slot};
use memory::Target;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::codec::Codec;
use wire::message::{Method, Region, TopicDescription};
use wire::{ErrorCode, ErrorReply, TopicId};

/// The calls of the API that are not answered.
#[derive(Default)]
pub(super) struct Calls {
    last_key: u64,
    calls: BTreeMap<u64, Call>,
    /// From the id of a request to the call's key.
    sent: BTreeMap<u64, u64>,
}

/// A call of the API that is not answered.
pub(super) struct Call {
    request: CallRequest,
    /// If it is a seek: it is sent when the one before it is answered.
    seek: Option<Seek>,
    deadline: Duration,
    /// Memory that is lent while the request is under way, in order.
    lent: Vec<Region>,
    /// Memory that the server may read while the request is under way, likewise.
    exposed: Vec<Region>,
    /// Payload of a request that is under way, which counts against the connection's credit.
    payload_bytes: u64,
    /// The request's id on the present connection.
    id: Option<u64>,
    /// Not before this: the server asked for it.
    retry_at: Option<Duration>,
    /// Why it was refused last, if that was for the credential: another one may come up to the
    /// deadline, however short.
    expired: Option<ErrorReply>,
    /// What the last node said that did not have it.
    not_here: Option<ErrorReply>,
    /// How often it was sent on to another node since it was refused for now.
    hops: u8,
}

/// Whether asking twice does the same as asking once, so that a request whose
/// answer was lost with its connection may be sent again.
fn is_repeatable(method: Method) -> bool {
    match method {
        Method::ListTopics
        | Method::DescribeTopic
        | Method::OpenProducer
        | Method::Produce
        | Method::Subscribe
        | Method::Unsubscribe
        | Method::Fetch
        | Method::ReadData
        | Method::MoveCursors
        | Method::ReadCursors
        | Method::DeleteConsumer
        | Method::AlterTopic
        | Method::SubscribeScoped
        | Method::Join
        | Method::Leave
        | Method::Release
        | Method::MoveMemberCursors
        | Method::Settle
        | Method::ExtendLeases
        | Method::DescribeConsumers
        | Method::Status
        | Method::OpenRun
        | Method::AttendRun
        | Method::AdmitStep
        | Method::AwaitStep
        | Method::CloseRun
        | Method::JoinReaders
        | Method::AttendReaders
        | Method::NextStep
        | Method::ReleaseStep
        | Method::AwaitReaders
        | Method::CheckAccess
        | Method::ListNodes
        | Method::SetNode
        | Method::MoveTopic
        | Method::ReceiveTopic
        | Method::YieldTopic
        | Method::AdoptLedger
        | Method::LeaveReaders
        | Method::HoldParts
        | Method::ListGaps => true,
        // A link asks where the mirror is, on each connection, before it goes on.
        Method::OpenMirror
        | Method::AppendMirrored
        | Method::CreateTopic
        | Method::DeleteTopic
        | Method::AddPartitions
        | Method::AddPlacedPartitions
        | Method::Shutdown
        | Method::HandOverTopic
        | Method::OfferPairing => false,
    }
}

/// Whether a rank asks for something of a stream of steps.
fn is_of_steps(method: Method) -> bool {
    matches!(
        method,
        Method::OpenRun
            | Method::AttendRun
            | Method::AdmitStep
            | Method::AwaitStep
            | Method::CloseRun
            | Method::JoinReaders
            | Method::AttendReaders
            | Method::NextStep
            | Method::ReleaseStep
            | Method::AwaitReaders
            | Method::LeaveReaders
            | Method::HoldParts
    )
}

/// Whether the answer describes a topic, which is at the node that gives it.
fn gives_description(method: Method) -> bool {
    matches!(
        method,
        Method::CreateTopic
            | Method::DescribeTopic
            | Method::AddPartitions
            | Method::AddPlacedPartitions
            | Method::AlterTopic
    )
}

impl Calls {
    pub fn begin(&mut self, wire: &mut Wire<'_>, request: CallRequest, seek: Option<Seek>) {
        panic_if_planted();
        self.last_key += 1;
        let key = self.last_key;
        let deadline = wire.now().saturating_add(request.timeout);
        wire.context.arm(deadline, Timer::Call(key));
        let call = Call {
            request,
            seek,
            deadline,
            lent: Vec::new(),
            exposed: Vec::new(),
            payload_bytes: 0,
            id: None,
            retry_at: None,
            expired: None,
            not_here: None,
            hops: 0,
        };
        self.calls.insert(key, call);
        self.send(wire, key);
    }

    /// Takes over a call of another node's.
    pub fn adopt(&mut self, wire: &mut Wire<'_>, call: Call) {
        self.last_key += 1;
        let key = self.last_key;
        wire.context.arm(call.deadline, Timer::Call(key));
        self.calls.insert(key, call);
        self.send(wire, key);
    }

    /// Takes out a call, to be done at another node. `None` if it is over.
    pub fn leave(&mut self, wire: &mut Wire<'_>, key: u64) -> Option<Call> {
        self.calls.get(&key)?;
        let mut call = self.give_up(wire, key);
        call.id = None;
        call.retry_at = None;
        Some(call)
    }

    /// Takes out the calls about a topic, in order, but for those that are under way and must not be asked twice.
    pub fn leave_topic(&mut self, wire: &mut Wire<'_>, topic: TopicId) -> Vec<Call> {
        let leaves = |call: &Call| {
            let request = &call.request;
            let is_free = call.id.is_none() || is_repeatable(request.method);
            // Another server is not the one that is to end.
            let is_of_node = matches!(request.method, Method::Shutdown | Method::OfferPairing);
            request.topic == topic && is_free && !is_of_node && !call.is_in_order()
        };
        let calls = self.calls.iter().filter(|(_, call)| leaves(call));
        let keys: Vec<u64> = calls.map(|(key, _)| *key).collect();
        keys.into_iter()
            .filter_map(|key| self.leave(wire, key))
            .collect()
    }

    fn send(&mut self, wire: &mut Wire<'_>, key: u64) {
        if self.is_behind_a_seek(key) {
            return;
        }
        let Some(call) = self.calls.get_mut(&key) else {
            return;
        };
        if !wire.is_up() || call.id.is_some() {
            return;
        }
        let payload_bytes = call.request.payload.iter().map(|piece| piece.len() as u64);
        let payload_bytes: u64 = payload_bytes.sum();
        if payload_bytes > 0 && self.is_behind_a_payload(key) {
            return;
        }
        if let Some(max) = wire.exceeds_payload_max(payload_bytes) {
            // The server would end the connection for it, again and again.
            let call = self.remove(wire, key);
            let what = &call.request.what;
            let text = format!("{what} has {payload_bytes} bytes: the server takes {max} at once");
            return call.end(Err(ClientError::Invalid(text)));
        }
        let Some(call) = self.calls.get_mut(&key) else {
            return;
        };
        if payload_bytes > 0 && !wire.take_produce_credit(payload_bytes) {
            // It is sent when credit comes back.
            return;
        }
        call.payload_bytes = payload_bytes;
        let mut body = std::borrow::Cow::Borrowed(call.request.body.as_slice());
        if call.request.method == Method::ReadData {
            let link = wire.link().expect("a connection that is up has a link");
            for target in call.request.targets.drain(..) {
                call.lent.push(link.lend(target));
            }
            call.lent.encode(body.to_mut());
            body.to_mut().extend_from_slice(&call.request.behind);
        }
        if call.request.method == Method::AppendMirrored {
            let link = wire.link().expect("a connection that is up has a link");
            let pieces = call.request.exposed.iter();
            call.exposed = pieces.map(|piece| link.expose(piece.clone())).collect();
            call.exposed.encode(body.to_mut());
        }
        let id = wire.request(
            Route::Call,
            Request {
                method: call.request.method,
                topic: call.request.topic,
                leader_epoch: 0,
                remaining: call
                    .deadline
                    .saturating_sub(call.request.grace)
                    .saturating_sub(wire.now()),
                body: &body,
                payload: call.request.payload.clone(),
                is_quiet: false,
            },
        );
        call.id = Some(id);
        call.expired = None;
        self.sent.insert(id, key);
    }

    /// Whether one before it waits for credit: payloads go out in the order in which they began.
    fn is_behind_a_payload(&self, key: u64) -> bool {
        self.calls
            .range(..key)
            .any(|(_, call)| call.waits_for_credit())
    }

    /// Credit has come back: sends what has waited for it, in order.
    fn send_waiting(&mut self, wire: &mut Wire<'_>) {
        let waiting = self
            .calls
            .iter()
            .filter(|(_, call)| call.waits_for_credit());
        let keys: Vec<u64> = waiting.map(|(key, _)| *key).collect();
        for key in keys {
            self.send(wire, key);
            if self.calls.get(&key).is_some_and(|call| call.id.is_none()) {
                return;
            }
        }
    }

    /// Whether the call is a seek, and one before it is not answered.
    fn is_behind_a_seek(&self, key: u64) -> bool {
        let seek = self.calls.get(&key).and_then(|call| call.seek);
        seek.is_some() && self.calls.range(..key).any(|(_, call)| call.seek == seek)
    }

    /// A call is over. If it was a seek, the next one of its partition goes out.
    fn over(&mut self, wire: &mut Wire<'_>, call: &Call) -> Option<Seek> {
        let seek = call.seek?;
        let next = self.calls.iter().find(|(_, call)| call.seek == Some(seek));
        if let Some((key, _)) = next {
            self.send(wire, *key);
        }
        Some(seek)
    }

    /// The answer to a request. Says which seek is over by it, if one is.
    pub fn answer(
        &mut self,
        wire: &mut Wire<'_>,
        id: u64,
        outcome: Result<Reply, ErrorReply>,
    ) -> Option<Seek> {
        let key = self.sent.remove(&id)?;
        let call = self.calls.get_mut(&key)?;
        call.id = None;
        let had_payload = call.payload_bytes > 0;
        call.take_back(wire);
        let seek = self.settle(wire, key, outcome);
        // Not before: it would be sent again itself.
        if had_payload {
            self.send_waiting(wire);
        }
        seek
    }

    /// What an answer makes of its call.
    fn settle(
        &mut self,
        wire: &mut Wire<'_>,
        key: u64,
        outcome: Result<Reply, ErrorReply>,
    ) -> Option<Seek> {
        let call = self.calls.get_mut(&key)?;
        match outcome {
            Err(error) if call.is_in_order() => {
                // Those behind it are refused as well: their link has to begin anew.
                let call = self.remove(wire, key);
                call.end(Err(ClientError::Server(error)));
                None
            }
            Err(error) if error.code == ErrorCode::CredentialExpired && error.retryable => {
                if call.may_retry(wire.now(), &error) {
                    let at = call.retry_at.expect("set where a retry is allowed");
                    wire.context.arm(at, Timer::Call(key));
                }
                call.expired = Some(error);
                None
            }
            Err(error) if call.goes_on(wire, key, &error) => None,
            Err(error) if call.is_for_now(&error) && call.may_retry(wire.now(), &error) => {
                let at = call.retry_at.expect("set where a retry is allowed");
                wire.context.arm(at, Timer::Call(key));
                None
            }
            outcome => {
                let call = self.remove(wire, key);
                if let Ok(reply) = &outcome
                    && gives_description(call.request.method)
                    && let Ok(topic) =
                        TopicDescription::from_bytes("topic description", &reply.head)
                {
                    wire.context.described.push(topic.topic);
                }
                let seek = self.over(wire, &call);
                let outcome = outcome.map_err(|error| call.refused(error));
                call.end(outcome);
                seek
            }
        }
    }

    /// A call's deadline has passed, or it may be tried again. Says which seek
    /// is over by it, if one is.
    pub fn expired(&mut self, wire: &mut Wire<'_>, key: u64) -> Option<Seek> {
        let call = self.calls.get_mut(&key)?;
        if call.deadline > wire.now() {
            if call.retry_at.is_some_and(|at| at <= wire.now()) {
                call.retry_at = None;
                self.send(wire, key);
            }
            return None;
        }
        let mut call = self.give_up(wire, key);
        let liveness = wire.context.liveness.describe(wire.now());
        let why = match call.expired.take() {
            None => match call.not_here.take() {
                None => liveness,
                Some(error) => format!("{liveness}; it was refused last with: {error}"),
            },
            Some(error) if is_of_steps(call.request.method) => {
                format!("the server refuses for now: {error}")
            }
            Some(error) => {
                let seek = self.over(wire, &call);
                call.end(Err(ClientError::Server(error)));
                return seek;
            }
        };
        let what = format!(
            "{} ({:.1} s); {why}",
            call.request.what,
            call.request.timeout.as_secs_f64(),
        );
        let seek = self.over(wire, &call);
        call.end(Err(ClientError::Timeout { what }));
        seek
    }

    /// Nobody wants the answer any more. A seek stays, for acknowledgements
    /// wait for its answer.
    pub fn cancel(&mut self, wire: &mut Wire<'_>, slot: &Arc<Slot>) {
        let is_it =
            |call: &Call| call.seek.is_none() && Arc::ptr_eq(call.request.promise.slot(), slot);
        let key = self.calls.iter().find(|(_, call)| is_it(call));
        if let Some((&key, _)) = key {
            let call = self.give_up(wire, key);
            call.end(Err(ClientError::Cancelled));
        }
    }

    /// Waits for a call no more; the memory that it lent is its own again.
    fn give_up(&mut self, wire: &mut Wire<'_>, key: u64) -> Call {
        let mut call = self.remove(wire, key);
        if let Some(id) = call.id {
            self.sent.remove(&id);
            wire.cancel(id);
        }
        let had_payload = !call.request.payload.is_empty();
        call.take_back(wire);
        if had_payload {
            self.send_waiting(wire);
        }
        call
    }

    /// Takes out a call that is there, with its deadline.
    fn remove(&mut self, wire: &mut Wire<'_>, key: u64) -> Call {
        let call = self.calls.remove(&key).expect("found by the caller");
        wire.context
            .timers
            .remove(&(call.deadline, Timer::Call(key)));
        call
    }

    /// There is a connection: whatever waits is sent.
    pub fn connected(&mut self, wire: &mut Wire<'_>) {
        let keys: Vec<u64> = self.calls.keys().copied().collect();
        for key in keys {
            self.send(wire, key);
        }
    }

    /// The connection is lost. What must not be asked twice has failed.
    pub fn disconnected(&mut self, wire: &mut Wire<'_>, reason: &str) {
        for (_, key) in std::mem::take(&mut self.sent) {
            let Some(call) = self.calls.get_mut(&key) else {
                continue;
            };
            call.id = None;
            call.take_back(wire);
            if is_repeatable(call.request.method) {
                continue;
            }
            let call = self.remove(wire, key);
            let error = ClientError::Unreachable {
                address: wire.context.liveness.describe(wire.now()),
                reason: format!(
                    "{reason}; whether {} was done is not known",
                    call.request.what
                ),
            };
            call.end(Err(error));
        }
    }

    pub fn fail_all(&mut self, wire: &mut Wire<'_>, error: &ClientError) {
        self.sent.clear();
        for (_, mut call) in std::mem::take(&mut self.calls) {
            call.take_back(wire);
            call.end(Err(error.clone()));
        }
    }
}

impl Call {
    /// Ends the lending of memory; the targets are the call's again.
    fn take_back(&mut self, wire: &mut Wire<'_>) {
        wire.return_produce_credit(std::mem::take(&mut self.payload_bytes));
        let Some(link) = wire.link() else {
            return;
        };
        for region in self.exposed.drain(..) {
            link.withdraw(&region);
        }
        for region in self.lent.drain(..) {
            // A link always gives back what it was lent.
            self.request.targets.extend(link.reclaim(&region));
        }
    }

    /// Whether the node says that another one does it: then it waits to be taken there.
    fn goes_on(&mut self, wire: &mut Wire<'_>, key: u64, error: &ErrorReply) -> bool {
        if error.code == ErrorCode::NotLeader {
            self.not_here = Some(error.clone());
        }
        if self.hops >= HOPS_MAX && !planted(Fault::EndlessHops) {
            self.hops = 0;
            return false;
        }
        let what = match self.request.topic {
            TopicId(0) => What::Call(key),
            topic => What::Topic(topic),
        };
        let goes_on = wire.is_elsewhere(what, error);
        self.hops = self.hops.saturating_add(u8::from(goes_on));
        // It is taken there at once; if it is not, for the other node is not known, it is asked again here.
        if goes_on && self.may_retry(wire.now(), error) {
            let at = self.retry_at.expect("set where a retry is allowed");
            wire.context.arm(at, Timer::Call(key));
        }
        goes_on
    }

    /// Whether it is to be sent, as soon as there is credit for its payload.
    fn waits_for_credit(&self) -> bool {
        self.id.is_none() && self.retry_at.is_none() && !self.request.payload.is_empty()
    }

    /// Whether others are sent behind it that make no sense without it.
    fn is_in_order(&self) -> bool {
        matches!(
            self.request.method,
            Method::OpenMirror | Method::AppendMirrored
        )
    }

    /// Whether the server refuses for now. A server that ends is followed by another one: who
    /// waits for steps waits for that.
    fn is_for_now(&self, error: &ErrorReply) -> bool {
        match is_of_steps(self.request.method) {
            true => retry::is_for_now(error) && !self.is_out_of_time(error),
            false => error.retryable,
        }
    }

    fn is_out_of_time(&self, error: &ErrorReply) -> bool {
        !self.request.grace.is_zero() && error.code == ErrorCode::DeadlinePassed
    }

    /// A server that was to answer at a deadline, and says what keeps it, is no other than one that
    /// did not answer.
    fn refused(&self, error: ErrorReply) -> ClientError {
        if !self.is_out_of_time(&error) {
            return ClientError::Server(error);
        }
        let seconds = self.request.timeout.saturating_sub(self.request.grace);
        let seconds = seconds.as_secs_f64();
        // The server names the request first, as those see it who do not know what it is for.
        let why = match error.message.split_once(" in the time given: ") {
            Some((_, why)) => why,
            None => &error.message,
        };
        ClientError::Timeout {
            what: format!("{} ({seconds:.1} s): {why}", self.request.what),
        }
    }

    fn may_retry(&mut self, now: Duration, error: &ErrorReply) -> bool {
        let wait = retry::CALL.after(error);
        self.retry_at = Some(now + wait);
        now + wait < self.deadline
    }

    fn end(self, outcome: Result<Reply, ClientError>) {
        let targets: Vec<Target> = self.request.targets;
        self.request
            .promise
            .resolve(outcome.map(|reply| Reply { targets, ..reply }));
    }
}
