//! A queue's consumer: its membership, what arrives under leases, settlements
//! that are sent, sent again and answered, leases that are extended.

mod delivery;
mod sent;

use super::membership::{End, Membership, Terms};
use super::retry;
use super::wire_session::{Request, Route, Timer, Wire};
use crate::error::ClientError;
use crate::mailbox::Counters;
use crate::promise::{Promise, Reply};
use crate::queue::QueueFeed;
use crate::standing::Hindrance;
use crate::topic_state::TopicState;
use delivery::of_batch;
use net::Received;
use sent::{Extension, SentSettle, resolve_with};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use topic::QueueOptions;
use wire::batch::{Batch, BatchKind, Verify};
use wire::codec::Codec;
use wire::message::{ExtendLeases, Joined, Lease, Leased, LeasesExtended, Method, Settle, Settled};
use wire::record::ConsumerKind;
use wire::{ErrorCode, ErrorReply};

/// Requests of settlements that are not answered, at most: the server keeps as
/// many answers.
const SETTLES_MAX: usize = 8;
/// So many leases one request names, which is to fit in a head.
const LEASES_PER_REQUEST: usize = 20_000;
const _: () = assert!(LEASES_PER_REQUEST * 48 < wire::frame::HEAD_BYTES_MAX as usize);
/// How long settlements that nobody hurries for wait for something to go with:
/// so often they are looked at.
const QUIET_WAIT: Duration = Duration::from_millis(1);

/// The consumer's handle is gone, or it is closed.
struct Closing {
    /// Of all who wait for it.
    promises: Vec<Promise>,
    deadline: Duration,
    has_left: bool,
}

pub(super) struct QueueCore {
    feed: Arc<QueueFeed>,
    membership: Membership,
    /// Resolved when it is a member for the first time.
    promise: Option<Promise>,
    open_deadline: Duration,
    sent: BTreeMap<u64, SentSettle>,
    last_sequence: u64,
    extensions: Vec<Extension>,
    /// How long leases last.
    lease: Duration,
    /// Until when the queue waits for members of before the server's start, at most.
    recovers_until: Option<Duration>,
    /// When leases are looked after.
    look_at: Option<Duration>,
    /// When settlements that nobody hurries for are looked at, as long as there are some.
    watch_at: Option<Duration>,
    closing: Option<Closing>,
    /// Resolved when everything that was settled is durable.
    flushes: Vec<Promise>,
    /// When nothing new is taken any more, and when it leaves.
    stop_at: Option<Duration>,
    leave_at: Option<Duration>,
    is_over: bool,
}

impl QueueCore {
    pub fn new(
        wire: &mut Wire<'_>,
        feed: Arc<QueueFeed>,
        seed: u128,
        timeout: Duration,
        promise: Promise,
    ) -> Self {
        let options = &feed.options;
        let terms = Terms {
            topic: feed.topic.id,
            consumer: feed.name.clone(),
            kind: ConsumerKind::Queue,
            options: options.queue.to_json(),
            start: options.start,
            instance: options.instance.clone().unwrap_or_default(),
            session_timeout: options.session_timeout,
            processing_timeout: options.processing_timeout,
            prefetch_events: options.prefetch_events,
            prefetch_bytes: feed.prefetch_bytes(),
            inline_data: feed.wants_inline_data,
            seed,
        };
        let timer = Timer::Queue(feed.key);
        let open_deadline = wire.now().saturating_add(timeout);
        wire.context.arm(open_deadline, timer);
        let mut core = Self {
            membership: Membership::new(wire, terms, feed.key, timer),
            feed,
            promise: Some(promise),
            open_deadline,
            sent: BTreeMap::new(),
            last_sequence: 0,
            extensions: Vec::new(),
            lease: Duration::ZERO,
            recovers_until: None,
            look_at: None,
            watch_at: None,
            closing: None,
            flushes: Vec::new(),
            stop_at: None,
            leave_at: None,
            is_over: false,
        };
        core.join(wire);
        core
    }

    /// Whether nothing is left to be done for it.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The topic that it is of.
    pub fn topic(&self) -> &TopicState {
        &self.feed.topic
    }

    pub fn notify(&self) {
        self.feed.notify();
    }

    /// Notes what keeps events from the consumer, for those who pull.
    pub fn note(&self, wire: &Wire<'_>) {
        let recovers = self.recovers_until;
        let recovers = recovers.map(|until| Hindrance::Recovering { until });
        let hindrance = self.membership.hindrance(wire).or(recovers);
        self.feed.note(wire.now(), hindrance);
    }

    fn arm(&self, wire: &mut Wire<'_>, at: Duration) {
        wire.context.arm(at, Timer::Queue(self.feed.key));
    }

    fn join(&mut self, wire: &mut Wire<'_>) {
        let (feed, sent) = (&self.feed, &self.sent);
        self.membership.join(wire, || {
            let unanswered = sent.values().flat_map(|sent| &sent.request.settlements);
            let mut held: Vec<Lease> = unanswered.map(|settlement| settlement.lease).collect();
            held.extend(feed.held());
            // What does not fit was never seen, as far as the server knows.
            let unnamed = held.split_off(held.len().min(LEASES_PER_REQUEST));
            feed.forget(&unnamed);
            held
        });
    }

    /// The answer to Join.
    pub fn joined(&mut self, wire: &mut Wire<'_>, id: u64, outcome: Result<Reply, ErrorReply>) {
        let outcome = outcome.map(|reply| reply.head);
        let head = outcome.as_ref().ok().cloned();
        match self.membership.answered(wire, id, outcome) {
            Err(end) => self.over(wire, end),
            Ok(None) => {}
            Ok(Some(joined)) => {
                self.feed.set_ordered(is_ordered(&joined));
                let recovering = Duration::from_millis(joined.recovering_ms.0.into());
                self.recovers_until = (!recovering.is_zero()).then(|| wire.now() + recovering);
                self.come_back(&joined);
                if let Some(promise) = self.promise.take() {
                    let head = head.expect("it was read from it");
                    promise.resolve(Ok(Reply {
                        head,
                        ..Reply::default()
                    }));
                }
                self.send_all(wire);
                self.end_in_time(wire);
            }
        }
        self.note(wire);
    }

    /// What the server knows of the leases that were named.
    fn come_back(&mut self, joined: &Joined) {
        self.feed.forget(&joined.settled);
        for sent in self.sent.values_mut() {
            sent.settled.extend(&joined.settled);
        }
        self.feed.forget(&joined.expired);
    }

    /// The membership was ended by the server.
    pub fn ended(&mut self, wire: &mut Wire<'_>, id: u64, error: ErrorReply) {
        if self.membership.is_its(id) {
            let end = self.membership.ended(wire, error);
            self.over(wire, end);
            self.note(wire);
        }
    }

    fn over(&mut self, wire: &mut Wire<'_>, end: End) {
        match end {
            End::Interrupted => {}
            End::Expelled => {
                self.lose_all(wire);
                self.join(wire);
            }
            End::Refused(error) => self.fail(wire, &ClientError::Server(error)),
        }
    }

    /// What it held is not its any more.
    fn lose_all(&mut self, wire: &mut Wire<'_>) {
        self.feed.lose_all();
        for (_, sent) in std::mem::take(&mut self.sent) {
            if let Some(id) = sent.id {
                wire.end_route(id);
            }
            sent.end_as_expired();
        }
        for extension in std::mem::take(&mut self.extensions) {
            if let Some(id) = extension.id {
                wire.end_route(id);
            }
            extension.end_as_expired();
        }
        self.last_sequence = 0;
        self.go_on(wire);
    }

    /// Events have arrived. An error is the other side's: the connection is of no use.
    pub fn leased(&mut self, wire: &mut Wire<'_>, message: Received) -> Result<(), String> {
        if !self.membership.is_its(message.id) {
            return Ok(());
        }
        let place =
            |reason: &dyn std::fmt::Display| format!("a delivery to {}: {reason}", self.feed.title);
        let leased = Leased::from_bytes("leased", &message.head).map_err(|error| place(&error))?;
        let payload = message.payload.freeze();
        let mut leases = leased.leases.iter().copied().peekable();
        let mut batches = Vec::new();
        let mut at = 0usize;
        for bytes in leased.batch_bytes {
            let end = usize::try_from(bytes)
                .ok()
                .and_then(|bytes| at.checked_add(bytes))
                .filter(|end| *end <= payload.len())
                .ok_or_else(|| place(&"its batches are longer than its payload"))?;
            let bytes = payload.slice(at..end);
            at = end;
            let batch =
                Batch::read(bytes.clone(), Verify::Headers).map_err(|error| place(&error))?;
            // Batches of other kinds are of a later version, and mean nothing here.
            if batch.header.kind == BatchKind::Events {
                let batch = of_batch(bytes, &batch, &mut leases)
                    .ok_or_else(|| place(&"its leases are not those of its batches"))?;
                Counters::add(&wire.context.mailbox.counters.batches_delivered);
                batches.push(batch);
            }
        }
        self.lease = Duration::from_millis(u64::from(leased.lease_ms));
        // A queue that gives out events, or says that it could, has recovered.
        if self.recovers_until.take().is_some() {
            self.note(wire);
        }
        self.feed
            .arrive(batches, leased.gaps.0, wire.now() + self.lease);
        self.look_later(wire);
        Ok(())
    }

    fn look_later(&mut self, wire: &mut Wire<'_>) {
        if self.look_at.is_none() {
            let at = wire.now() + (self.lease / 3).max(Duration::from_millis(1));
            self.look_at = Some(at);
            self.arm(wire, at);
        }
    }

    /// There are settlements to be sent, or none to be waited for any more.
    pub fn news(&mut self, wire: &mut Wire<'_>) {
        self.settle(wire);
        self.go_on(wire);
    }

    /// There are settlements that may go with whatever is sent next, if that is soon.
    pub fn watch(&mut self, wire: &mut Wire<'_>) {
        if self.watch_at.is_none() {
            let at = wire.now() + QUIET_WAIT;
            self.watch_at = Some(at);
            self.arm(wire, at);
        }
    }

    /// Whether it looks at such settlements now and then.
    pub fn is_watching(&self) -> bool {
        self.watch_at.is_some()
    }

    /// Something is sent: with it go settlements, if it is time for them. Each by
    /// itself, with every reply, would cost both sides as much as the reply.
    pub fn settle_along(&mut self, wire: &mut Wire<'_>) {
        if self.feed.goes_along() {
            self.settle(wire);
        }
    }

    /// Sends settlements that wait for it, as many as may be under way.
    pub fn settle(&mut self, wire: &mut Wire<'_>) {
        while self.sent.len() < SETTLES_MAX
            && self.membership.is_present()
            && wire.is_up()
            && let Some(gathered) = self.feed.take_gathered(wire.now())
        {
            self.last_sequence += 1;
            let sequence = self.last_sequence;
            let is_quiet = gathered.is_quiet;
            let request = Settle {
                consumer: self.feed.name.clone(),
                member: self.membership.member,
                sequence,
                worked_us: gathered.worked_us,
                settlements: gathered.settlements,
            };
            let sent = SentSettle {
                id: None,
                request,
                is_quiet,
                batch: gathered.batch,
                settled: Vec::new(),
                retry_at: None,
            };
            self.sent.insert(sequence, sent);
            self.send(wire, sequence);
        }
    }

    fn send(&mut self, wire: &mut Wire<'_>, sequence: u64) {
        let Some(sent) = self.sent.get_mut(&sequence) else {
            return;
        };
        if sent.id.is_some() || sent.retry_at.is_some() {
            return;
        }
        let route = Route::Settle {
            queue: self.feed.key,
            sequence,
        };
        let body = sent.request.to_bytes();
        let request = Request {
            is_quiet: sent.is_quiet,
            ..self.membership.about(Method::Settle, &body)
        };
        sent.id = Some(wire.request(route, request));
    }

    /// The member is one again: what was not answered is sent again, unchanged.
    fn send_all(&mut self, wire: &mut Wire<'_>) {
        let sequences: Vec<u64> = self.sent.keys().copied().collect();
        for sequence in sequences {
            self.send(wire, sequence);
        }
        for index in 0..self.extensions.len() {
            self.send_extension(wire, index);
        }
        self.settle(wire);
        self.go_on(wire);
    }

    /// The answer to Settle.
    pub fn settled(
        &mut self,
        wire: &mut Wire<'_>,
        sequence: u64,
        outcome: Result<Reply, ErrorReply>,
    ) {
        let Some(sent) = self.sent.get_mut(&sequence) else {
            return;
        };
        sent.id = None;
        let malformed =
            |error: wire::DecodeError| ErrorReply::fatal(ErrorCode::Malformed, error.to_string());
        let settled = outcome
            .and_then(|reply| Settled::from_bytes("settled", &reply.head).map_err(malformed));
        match settled {
            Err(error) if retry::is_for_now(&error) => {
                let at = wire.now() + retry::STANDING.after(&error);
                sent.retry_at = Some(at);
                return self.arm(wire, at);
            }
            Err(error) if error.code == ErrorCode::MemberFenced => {
                let end = self.membership.ended(wire, error);
                self.over(wire, end);
                return self.note(wire);
            }
            outcome => {
                let sent = self.sent.remove(&sequence).expect("found above");
                sent.end(outcome);
            }
        }
        self.settle(wire);
        self.go_on(wire);
    }

    /// The program wants a lease extended.
    pub fn extend(&mut self, wire: &mut Wire<'_>, leases: Vec<Lease>, promise: Option<Promise>) {
        self.extensions.push(Extension {
            id: None,
            leases,
            sent_at: wire.now(),
            promise,
        });
        self.send_extension(wire, self.extensions.len() - 1);
    }

    fn send_extension(&mut self, wire: &mut Wire<'_>, index: usize) {
        let extension = &mut self.extensions[index];
        if extension.id.is_some() || !self.membership.is_present() || !wire.is_up() {
            return;
        }
        let request = ExtendLeases {
            consumer: self.feed.name.clone(),
            member: self.membership.member,
            leases: extension.leases.clone(),
        };
        let route = Route::Extend {
            queue: self.feed.key,
        };
        extension.sent_at = wire.now();
        let body = request.to_bytes();
        let id = self
            .membership
            .request(wire, route, Method::ExtendLeases, &body);
        extension.id = Some(id);
    }

    /// The answer to ExtendLeases.
    pub fn extended(&mut self, id: u64, outcome: Result<Reply, ErrorReply>) {
        let Some(index) = self.extensions.iter().position(|one| one.id == Some(id)) else {
            return;
        };
        let extension = self.extensions.swap_remove(index);
        let outcome = outcome.map_err(ClientError::Server).and_then(|reply| {
            let extended = LeasesExtended::from_bytes("leases extended", &reply.head)
                .map_err(ClientError::damaged)?;
            let lasts = Duration::from_millis(u64::from(extended.lease_ms));
            self.feed
                .extended(&extension.leases, extension.sent_at + lasts);
            self.feed.forget(&extended.expired);
            Ok(reply)
        });
        if let Some(promise) = extension.promise {
            promise.resolve(outcome);
        }
    }

    /// There is a connection.
    pub fn connected(&mut self, wire: &mut Wire<'_>) {
        self.join(wire);
        self.note(wire);
    }

    /// The connection is lost: [`Wire::is_up`] says so already.
    pub fn disconnected(&mut self, wire: &mut Wire<'_>) {
        self.membership.disconnected(wire.now());
        self.recovers_until = None;
        self.note(wire);
        for sent in self.sent.values_mut() {
            sent.id = None;
            sent.retry_at = None;
        }
        for extension in &mut self.extensions {
            extension.id = None;
        }
        if let Some(closing) = self.closing.take_if(|closing| closing.has_left) {
            // It was on its way; whether it arrived, the session timeout decides.
            resolve_all(closing.promises, &Ok(()));
            self.is_over = true;
            // Nobody is left to settle what the program still has.
            self.feed.lose_all();
            for extension in std::mem::take(&mut self.extensions) {
                extension.end_as_expired();
            }
        }
    }

    /// Time has passed.
    pub fn timer(&mut self, wire: &mut Wire<'_>) {
        let now = wire.now();
        if now >= self.open_deadline
            && let Some(promise) = self.promise.take()
        {
            let what = format!(
                "the membership of {}; {}",
                self.feed.title,
                wire.context.liveness.describe(now)
            );
            promise.resolve(Err(ClientError::Timeout { what }));
        }
        if let Some(reason) = self.membership.timer(wire, self.feed.processing.count()) {
            self.leave_absent(wire, reason);
        }
        self.join(wire);
        for sent in self.sent.values_mut() {
            sent.retry_at = sent.retry_at.filter(|at| *at > now);
        }
        if self.membership.is_present() && wire.is_up() {
            let sequences: Vec<u64> = self.sent.keys().copied().collect();
            for sequence in sequences {
                self.send(wire, sequence);
            }
        }
        if self.watch_at.take_if(|at| *at <= now).is_some() {
            self.settle(wire);
            if self.feed.is_watched() {
                self.watch(wire);
            }
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            let due = self.feed.look_after(now, self.lease);
            // One at a time: while the member is away, or the server is slow,
            // they would be gathered without end.
            let is_extending = self.extensions.iter().any(|one| one.promise.is_none());
            if !due.extend.is_empty() && !is_extending {
                for leases in due.extend.chunks(LEASES_PER_REQUEST) {
                    self.extend(wire, leases.to_vec(), None);
                }
            }
            self.settle(wire);
            if due.is_busy {
                self.look_later(wire);
            }
        }
        self.end_in_time(wire);
        if let Some(closing) = self.closing.take_if(|closing| closing.deadline <= now) {
            let what = format!(
                "{} to leave; {}",
                self.feed.title,
                wire.context.liveness.describe(now)
            );
            resolve_all(closing.promises, &Err(ClientError::Timeout { what }));
            self.membership.leave(wire, Route::Ignored);
            self.left(wire);
        }
    }

    /// The program will end: nothing new is taken after a while, and after
    /// another it leaves. An earlier end counts.
    pub fn wind_down(&mut self, wire: &mut Wire<'_>, stop_after: Duration, leave_after: Duration) {
        let earlier = |at: &mut Option<Duration>, after: Duration| {
            let given = wire.now().saturating_add(after);
            *at = Some(at.map_or(given, |known| known.min(given)));
        };
        earlier(&mut self.stop_at, stop_after);
        earlier(&mut self.leave_at, leave_after);
        for at in [self.stop_at, self.leave_at].into_iter().flatten() {
            self.arm(wire, at);
        }
        self.end_in_time(wire);
    }

    fn end_in_time(&mut self, wire: &mut Wire<'_>) {
        let now = wire.now();
        if self.stop_at.take_if(|at| *at <= now).is_some() {
            self.stop(wire);
        }
        // Not while somebody waits to be let in: an end that is past already is no
        // reason to refuse him.
        if self.promise.is_none() && self.leave_at.take_if(|at| *at <= now).is_some() {
            // Whatever is unsettled goes back with it, and does not count.
            self.feed.close();
            self.close(wire, self.feed.options.session_timeout, None);
        }
    }

    /// Nothing new is taken, and what was not handed out goes back.
    fn stop(&mut self, wire: &mut Wire<'_>) {
        self.feed.stop();
        if self.closing.is_none() {
            self.settle(wire);
            self.membership.want_nothing(wire);
            self.join(wire);
        }
    }

    /// The program stayed away: what it was sent goes to others now.
    fn leave_absent(&mut self, wire: &mut Wire<'_>, reason: ErrorReply) {
        self.membership.leave(wire, Route::Ignored);
        self.lose_all(wire);
        self.note(wire);
        self.feed.absent(ClientError::Server(reason));
    }

    /// The program is back, and was notified.
    pub fn rejoin(&mut self, wire: &mut Wire<'_>) {
        if self.closing.is_none() && !self.is_over && self.membership.is_over() {
            self.membership.begin_anew(wire);
            self.join(wire);
            self.note(wire);
        }
    }

    /// The consumer is closed: it leaves when everything that was settled is durable.
    pub fn close(&mut self, wire: &mut Wire<'_>, timeout: Duration, promise: Option<Promise>) {
        if self.is_over {
            return resolve(promise, Ok(()));
        }
        let deadline = wire.now().saturating_add(timeout);
        self.arm(wire, deadline);
        match &mut self.closing {
            // A caller that asks again waits for the same; a drop waits for nothing.
            Some(closing) => {
                if promise.is_some() {
                    closing.promises.extend(promise);
                    closing.deadline = closing.deadline.max(deadline);
                }
            }
            None => {
                self.closing = Some(Closing {
                    promises: promise.into_iter().collect(),
                    deadline,
                    has_left: false,
                });
            }
        }
        if self.membership.is_over() {
            return self.left(wire);
        }
        self.settle(wire);
        self.go_on(wire);
    }

    /// Somebody waits for everything that was settled by now.
    pub fn flush(&mut self, wire: &mut Wire<'_>, promise: Promise) {
        self.flushes.push(promise);
        self.feed.set_awaited(true);
        if self.is_over || self.membership.is_over() {
            return self.end_flushes(&Ok(()));
        }
        self.news(wire);
    }

    fn end_flushes(&mut self, outcome: &Result<(), ClientError>) {
        if !self.flushes.is_empty() {
            self.feed.set_awaited(false);
        }
        resolve_all(std::mem::take(&mut self.flushes), outcome);
    }

    /// Leaves, if it is to and everything is settled.
    fn go_on(&mut self, wire: &mut Wire<'_>) {
        if self.sent.is_empty() && !self.feed.is_settling() {
            self.end_flushes(&Ok(()));
        }
        let Some(closing) = &mut self.closing else {
            return;
        };
        if closing.has_left || !self.sent.is_empty() || self.feed.is_settling() {
            return;
        }
        let route = Route::Left {
            queue: self.feed.key,
        };
        closing.has_left = true;
        if !self.membership.leave(wire, route) {
            self.left(wire);
        }
    }

    /// The answer to Leave, or none is waited for.
    pub fn left(&mut self, wire: &mut Wire<'_>) {
        self.is_over = true;
        self.end_flushes(&Ok(()));
        let closing = self.closing.take();
        self.lose_all(wire);
        resolve(self.promise.take(), Err(ClientError::Closed));
        if let Some(closing) = closing {
            resolve_all(closing.promises, &Ok(()));
        }
    }

    /// The client ends: what is settled goes out, though nobody hears the answer.
    pub fn end(&mut self, wire: &mut Wire<'_>, error: &ClientError) {
        self.feed.close();
        self.settle(wire);
        self.membership.leave(wire, Route::Ignored);
        let closing = self.closing.take();
        self.fail(wire, error);
        if let Some(closing) = closing {
            resolve_all(closing.promises, &Err(error.clone()));
        }
        self.is_over = true;
    }

    /// It is no member any more, and will not be.
    pub fn fail(&mut self, wire: &mut Wire<'_>, error: &ClientError) {
        resolve(self.promise.take(), Err(error.clone()));
        self.end_flushes(&Err(error.clone()));
        self.feed.fail(error.clone());
        self.lose_all(wire);
        if self.closing.is_some() {
            self.left(wire);
        }
    }
}

fn resolve(promise: Option<Promise>, outcome: Result<(), ClientError>) {
    resolve_with(promise, outcome.map(|()| Reply::default()));
}

fn resolve_all(promises: Vec<Promise>, outcome: &Result<(), ClientError>) {
    for promise in promises {
        promise.resolve(outcome.clone().map(|()| Reply::default()));
    }
}

/// Whether an event may have to be settled before another is given out.
fn is_ordered(joined: &Joined) -> bool {
    QueueOptions::from_json(&joined.options).is_ok_and(|options| options.ordered_by_key)
}
