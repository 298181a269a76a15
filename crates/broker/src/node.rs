//! The node itself: what it holds, and where each input goes.
//!
//! A node is a plain state machine. An executor (the server's, or the simulator's) feeds it [`Input`]s with the time, then takes [`Output`]s until there is none, and calls again no later
//! than [`Now::monotonic`] reaches [`Node::next_timer`].

pub use crate::ids::{JobId, LinkId, Now, StorageId};
pub use crate::io::{Input, Job, JobResult, LINK_QUEUED_BYTES_HIGH, LINK_QUEUED_BYTES_LOW, Output};

use crate::answer::Answer;
use crate::coordinator::Coordinator;
use crate::coordinator::behind::Behind;
use crate::coordinator::controller::{ControlError, Home};
use crate::coordinator::lent::{Around, Lent};
use crate::coordinator::members::Members;
use crate::ctx::Ctx;
use crate::drain::Draining;
use crate::drain_stage::Drain;
use crate::effects::{Effect, QueueNotice, ReadFor, WasRead};
use crate::elsewhere::{About, status_is_here};
use crate::ids::{Bulk, Membership, Purpose, RequestId, SharedId};
use crate::options::{NodeError, NodeOptions, StartReport, TableRole};
use crate::partition::{Partition, Partitions, feed_starved};
use crate::partition_requests::{Forgotten, PartitionRequests, end_reading, forget};
use crate::queue::{self, Leases, Letters, Queue};
use crate::quota::InUse;
use crate::read_data::Reads;
use crate::refusal::{Refused, unknown_topic};
use crate::request::{ClientInput, QueueRequest, Request};
use crate::session::{Asked, Heard, OpenRequest, Sessions, Work};
use crate::space::Below;
use crate::start::{self, Remembered, Upstream};
use crate::status::{NodeStatus, StatusAnswers, StatusText};
use crate::steps::{self, Streams};
use crate::timers::Timer;
use crate::view::View;
use bytes::Bytes;
use net::Received;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::Method;
use wire::{ErrorReply, TopicId};

/// One server's topics, partitions, consumers and producers, as a plain state machine. See [`crate::node`] for how it is driven.
pub struct Node {
    pub(crate) ctx: Ctx,
    pub(crate) sessions: Sessions,
    pub(crate) coordinator: Coordinator,
    /// What became of the events of each queue.
    pub(crate) queues: BTreeMap<SharedId, Queue>,
    pub(crate) leases: Leases,
    pub(crate) letters: Letters,
    streams: Streams,
    pub(crate) partitions: Partitions,
    pub(crate) reads: Reads,
    pub(crate) drain: Drain,
    pub(crate) statuses: StatusAnswers,
    pub(crate) start: Remembered,
    /// What lay in `lost+found` when the node was opened. Only a start puts something there.
    pub(crate) set_aside: Vec<String>,
    /// The first storage that had failed when the drain was to close it.
    pub(crate) unclean: Option<String>,
    /// What the data directory lies on, as far as the executor told.
    pub(crate) below: Below,
}

impl Node {
    /// Opens a node on its data directory. Blocks.
    ///
    /// # Errors
    /// If the table's log or the ledger cannot be read. A partition that cannot be opened is no error: it is described as failed, and the rest serves.
    pub fn open(options: NodeOptions, now: Now) -> Result<(Self, StartReport), NodeError> {
        start::open(options, now, None).map(Self::opened)
    }

    /// [`Node::open`] of a node that follows, which takes over first what its leader has decided. Its link stands from then on: the leader has been given [`crate::PeerInput::Up`], the node needs none.
    ///
    /// # Errors
    /// As [`Node::open`]; and if the leader sends nothing for `leader_timeout`, or has another table.
    pub fn open_led(
        options: NodeOptions,
        now: Now,
        upstream: &mut dyn Upstream,
    ) -> Result<(Self, StartReport), NodeError> {
        start::open(options, now, Some(upstream)).map(Self::opened)
    }

    fn opened((opened, report): (start::Opened, StartReport)) -> (Self, StartReport) {
        let mut node = Self {
            sessions: Sessions::new(opened.used, &opened.ctx),
            ctx: opened.ctx,
            coordinator: opened.coordinator,
            queues: BTreeMap::new(),
            leases: Leases::default(),
            letters: Letters::default(),
            streams: Streams::default(),
            partitions: opened.partitions,
            reads: Reads::default(),
            drain: Drain::default(),
            start: opened.remembered,
            set_aside: opened.set_aside,
            unclean: None,
            statuses: StatusAnswers::default(),
            below: Below::default(),
        };
        node.at_members(|members, lent| members.open(lent));
        let of_steps = node.coordinator.topics.of_steps();
        node.ctx.dirty.streams.extend(of_steps);
        (node, report)
    }

    /// Takes one input. Outputs are to be taken afterwards.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.ctx.now = now;
        self.coordinator.commands.controller().set_time(now);
        match input {
            Input::LinkUp {
                link,
                peer,
                capabilities,
            } => self
                .sessions
                .link_up(link, (peer, &capabilities), &mut self.ctx),
            Input::LinkDown { link, .. } => {
                self.catch_up();
                self.link_down(link);
            }
            Input::LinkQueued { link, bytes } => self.link_queued(link, bytes),
            Input::Message { link, message } => self.message(link, message),
            Input::ClientUp {
                link,
                peer,
                identity,
            } => self.sessions.client_up(link, peer, identity, &mut self.ctx),
            Input::ClientHello { link, peer, hello } => {
                let sessions = &mut self.sessions;
                sessions.client_hello(link, peer, *hello, &mut self.ctx);
            }
            Input::Client { link, input } => self.client(link, input),
            Input::ReadDone { token, result, .. } => match self.ctx.bulk.remove(&token) {
                Some(Bulk::Transfer(storage, transfer)) => {
                    self.at(storage, |partition, ctx| {
                        partition.chunk_arrived(transfer, token, result, ctx);
                    });
                }
                Some(Bulk::ReadData(_)) | None => {} // The transfer was given up meanwhile.
            },
            Input::WriteDone { token, result, .. } => {
                if let Some(Bulk::ReadData(call)) = self.ctx.bulk.remove(&token) {
                    let (partitions, ctx) = (&mut self.partitions, &mut self.ctx);
                    let reads = &mut self.reads;
                    reads.chunk_written(call, token, result, partitions, ctx);
                    self.route();
                }
            }
            Input::DiskDone {
                storage,
                token,
                result,
            } => {
                if Home::of_storage(storage).is_some() {
                    let controller = self.coordinator.commands.controller();
                    controller.complete(storage, token, result);
                    self.ctx.dirty.controller = true;
                } else {
                    self.advance_partition(storage, |partition, ctx| {
                        partition.operation_done(token, result, ctx);
                    });
                }
            }
            Input::JobDone { job, result } => self.job_done(job, result),
            Input::FileSystem(space) => {
                if let Some(line) = self.below.seen(space) {
                    self.ctx.report(line);
                }
            }
            Input::Access(change) => self.sessions.access_changed(change, &mut self.ctx),
            Input::Peer(input) => self.coordinator.commands.peer(input, &mut self.ctx),
            Input::Timer => {
                self.catch_up();
                self.advance_status();
                self.route();
            }
            Input::Drain => {
                self.catch_up();
                self.drain();
            }
        }
        if self.sessions.is_late(&self.ctx) {
            self.catch_up();
        }
        while let Some(timer) = self.ctx.timers.pop(now.monotonic) {
            self.timer(timer);
        }
        self.run_to_fixpoint();
    }

    /// The next thing to do for the executor.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.ctx.outputs.pop_front()
    }

    /// When [`Node::handle`] is to be called at the latest: at once with [`Input::Timer`] while a status is being made.
    pub fn next_timer(&self) -> Option<Duration> {
        match self.is_behind() || self.statuses.is_under_way() {
            true => Some(self.ctx.now.monotonic),
            false => self.ctx.timers.next(),
        }
    }

    /// Whether settlements were deferred: the node is to be handed [`Input::Timer`] when nothing else is to be done.
    pub fn is_behind(&self) -> bool {
        self.sessions.is_behind()
    }

    /// Whether the client of a connection has said who it is, and was let in.
    pub fn knows_client(&self, link: LinkId) -> bool {
        self.sessions.takes_requests(link)
    }

    fn link_down(&mut self, link: LinkId) {
        let Some(session) = self.sessions.link_down(link, &mut self.ctx) else {
            return;
        };
        for (id, request) in session.requests.iter() {
            if !matches!(request.work, Some(Work::Subscribe(_))) {
                self.forget_work(RequestId { link, id }, *request);
            }
        }
        for (id, storage) in session.subscriptions {
            self.at(storage, |partition, _| {
                partition.subscriptions.forget(RequestId { link, id });
            });
        }
        for (id, membership) in session.memberships {
            let caller = RequestId { link, id };
            self.at_members(|members, lent| members.membership_lost(caller, membership, lent));
        }
        self.reads.link_down(link, &mut self.ctx);
        self.coordinate(|coordinator, around| coordinator.link_down(link, around));
        // A transfer belongs to a batch, and a batch to a request.
        let mut partitions = self.partitions.values();
        debug_assert!(!partitions.any(|partition| partition.appends.fetches_from(link)));
    }

    fn link_queued(&mut self, link: LinkId, bytes: u64) {
        if self.sessions.link_queued(link, bytes, &mut self.ctx) {
            self.deliver_again(link);
        }
    }

    /// A connection takes deliveries again.
    fn deliver_again(&mut self, link: LinkId) {
        let Some(session) = self.sessions.get(link) else {
            return;
        };
        let subscriptions = session.subscriptions.clone();
        let memberships: Vec<Membership> = session.memberships.values().copied().collect();
        for (id, storage) in subscriptions {
            self.at(storage, |partition, ctx| {
                partition.advance_subscription(RequestId { link, id }, ctx);
            });
        }
        for Membership { shared, member, .. } in memberships {
            self.at_queue(shared, |queue, lent| {
                queue.member_has_room(member, lent.ctx)
            });
        }
    }

    fn message(&mut self, link: LinkId, message: Received) {
        trace::passes!("routed to what it is about");
        let is_heartbeat = message.kind == FrameKind::Heartbeat;
        let Some(heard) = self.hear(link, is_heartbeat) else {
            return;
        };
        let message = match heard.is_open {
            true => match self.sessions.defer(link, message, &self.ctx) {
                Some(message) => message,
                None => return,
            },
            false => message,
        };
        if heard.is_open && self.sessions.waits_for_deferred(&message) {
            self.catch_up();
        }
        self.take(link, message);
    }

    /// A client was heard of, whose members may have been taken for silent.
    fn hear(&mut self, link: LinkId, is_heartbeat: bool) -> Option<Heard> {
        let heard = self.sessions.heard(link, is_heartbeat, &self.ctx)?;
        if heard.silent_members {
            let memberships = self.sessions.members_heard(link);
            self.at_members(|members, lent| members.heard(link, &memberships, lent));
        }
        Some(heard)
    }

    fn client(&mut self, link: LinkId, input: ClientInput) {
        if self.hear(link, false).is_none() {
            return;
        }
        self.catch_up();
        if let Some((caller, asked)) = self.sessions.take_decoded(link, input, &mut self.ctx) {
            self.ask(caller, asked);
        }
    }

    /// Lets deferred messages take effect.
    fn catch_up(&mut self) {
        while let Some((link, message)) = self.sessions.pop_deferred() {
            self.take(link, message);
        }
    }

    fn take(&mut self, link: LinkId, message: Received) {
        let id = message.id;
        if let Some(asked) = self.sessions.take(link, message, &mut self.ctx) {
            self.ask(RequestId { link, id }, asked);
        }
    }

    /// Does what a client asks for, in whatever protocol.
    fn ask(&mut self, caller: RequestId, asked: Asked) {
        match asked {
            Asked::Request(request) => self.ask_of(caller, request, true),
            Asked::Cancel => self.cancel(caller),
            Asked::Deliveries => self.deliver_again(caller.link),
            Asked::Prefetch(prefetch) => {
                self.at_members(|members, lent| members.set_prefetch(caller, &prefetch, lent));
            }
            Asked::Credit(bytes) => {
                let session = self.sessions.get(caller.link);
                let storage = session.and_then(|session| session.subscriptions.get(&caller.id));
                if let Some(storage) = storage.copied() {
                    self.at(storage, |partition, ctx| {
                        partition.more_credit(caller, bytes, ctx);
                    });
                }
            }
        }
    }

    /// Does what a request asks for. A new one may be about what is decided and not known here yet: then it waits.
    fn ask_of(&mut self, caller: RequestId, request: Request, is_new: bool) {
        let is_led = matches!(self.ctx.options.role, TableRole::Follows(_));
        let may_be_behind = is_new && is_led && self.ctx.options.nodes.are_of_table();
        if may_be_behind && Behind::is_list(&request) {
            return self.wait_for_table(caller, request, None);
        }
        let (coordinator, partitions) = (&self.coordinator, &self.partitions);
        let in_use = InUse::new(&coordinator.topics, &coordinator.commands, partitions);
        let about = About::of(&request, &self.ctx);
        let again = may_be_behind.then(|| Behind::copy_of(&request)).flatten();
        let sessions = &mut self.sessions;
        let allowed = sessions.authorize(caller, &request, in_use, &mut self.ctx);
        let allowed = allowed.and_then(|()| match coordinator.has_moves {
            true => coordinator.allow(caller, &about, &request),
            false => Ok(()),
        });
        if let Err(error) = allowed.and_then(|()| self.request(caller, request)) {
            let table = self.coordinator.commands.table();
            let error = about.elsewhere(error, caller, (&self.sessions, table), &self.ctx);
            match again.filter(|_| Behind::may_be_wrong(&error)) {
                Some(again) => self.wait_for_table(caller, again, Some(error)),
                None => self.ctx.refuse(caller, error),
            }
        }
        self.route();
    }

    fn wait_for_table(&mut self, caller: RequestId, request: Request, refused: Option<Refused>) {
        self.coordinate(|it, around| it.wait_for_table(caller, request, refused, around.ctx));
    }

    /// Has a request done by the object that it is about.
    fn request(&mut self, caller: RequestId, request: Request) -> Result<(), Refused> {
        match request {
            Request::Partition(target, request) => {
                let mut requests = PartitionRequests {
                    ctx: &mut self.ctx,
                    sessions: &mut self.sessions,
                    coordinator: &self.coordinator,
                    partitions: &mut self.partitions,
                    reads: &mut self.reads,
                    streams: &mut self.streams,
                    drain: self.drain,
                };
                requests.ask(caller, target, request)
            }
            Request::Coordinator(request) => {
                self.coordinate(|coordinator, around| coordinator.ask(caller, request, around))
            }
            Request::Queue(topic, request) => self.queue_request(caller, topic, request),
            Request::Steps(topic, request) => {
                self.at_streams(|streams, around| streams.ask(caller, topic, request, around))
            }
            Request::Describe(request) => {
                let Some(identity) = self.sessions.identity(caller.link) else {
                    return Ok(());
                };
                let answer = self.view().answer(identity, self.ctx.now, &request)?;
                self.ctx.answer(caller, answer);
                Ok(())
            }
            Request::Status(of) => {
                status_is_here(of, caller, &self.sessions, &self.ctx)?;
                self.statuses.ask(caller);
                self.advance_status();
                Ok(())
            }
            Request::OfferPairing(asked) => self.sessions.offer(caller, &asked, &mut self.ctx),
            Request::Move(topic, request) => {
                self.coordinate(|it, around| it.ask_to_move(caller, topic, request, around))
            }
            Request::Shutdown => {
                self.ctx.answer(caller, Answer::Done);
                self.route();
                self.drain();
                Ok(())
            }
        }
    }

    fn queue_request(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        request: QueueRequest,
    ) -> Result<(), Refused> {
        if let QueueRequest::Settle(_) = &request {
            self.drain.refuse_closing()?;
        }
        let topics = (
            &self.coordinator.topics,
            self.sessions.namespace(caller.link),
        );
        let members = &self.coordinator.members;
        let id = members.settler(caller, topic, &request, topics)?;
        let is_quiet = self.sessions.is_quiet(caller) && !self.drain.is_begun();
        let done = self.at_queue(id, |queue, lent| {
            queue.ask(caller, request, is_quiet, lent.ctx)
        });
        done.unwrap_or(Ok(()))
    }

    /// The first deadline of a connection's requests may have passed.
    fn look_at_deadlines(&mut self, link: LinkId) {
        for (caller, request) in self.sessions.late_requests(link, &self.ctx) {
            // One that was given up with another one before it has its answer.
            if !self.sessions.waits(caller) {
                continue;
            }
            let why = match request.work {
                Some(Work::Steps(topic)) => self.streams.why(topic, caller, self.ctx.now.monotonic),
                _ => None,
            };
            let error = request.too_late(why);
            self.ctx.refuse(caller, error);
            self.route();
            self.drop_work(caller, request);
        }
        self.sessions.watch_deadlines(link, &mut self.ctx);
    }

    fn cancel(&mut self, caller: RequestId) {
        if let Some(request) = self.sessions.end_request(caller, &mut self.ctx) {
            self.drop_work(caller, request);
        }
    }

    /// Nobody waits for the answer any more: what can be left undone is.
    fn drop_work(&mut self, caller: RequestId, request: OpenRequest) {
        self.coordinator.forget_waiting(caller);
        if request.method == Method::ReadData {
            let (partitions, ctx) = (&mut self.partitions, &mut self.ctx);
            self.reads.cancel(caller, partitions, ctx);
        }
        self.forget_work(caller, request);
        self.route();
    }

    /// A partition forgets what it keeps of a request.
    fn forget_work(&mut self, caller: RequestId, request: OpenRequest) {
        let Some(work) = request.work else {
            return;
        };
        if let Work::Steps(topic) = work {
            self.at_streams(|streams, around| streams.forget(topic, caller, around));
        }
        let Some(storage) = work.storage() else {
            return;
        };
        let forgotten = self.at(storage, |partition, ctx| {
            forget(work, caller, partition, ctx)
        });
        if forgotten == Some(Forgotten::Subscription)
            && let Some(session) = self.sessions.get_mut(caller.link)
        {
            session.subscriptions.remove(&caller.id);
        }
    }

    /// Calls a partition, and routes what the act asks of others. `None` if the partition is not there any more.
    fn at<R>(
        &mut self,
        storage: StorageId,
        act: impl FnOnce(&mut Partition, &mut Ctx) -> R,
    ) -> Option<R> {
        let done = act(self.partitions.get_mut(&storage)?, &mut self.ctx);
        self.route();
        Some(done)
    }

    /// Calls a queue, and routes what the act asks of others. `None` if it is not there.
    fn at_queue<R>(
        &mut self,
        id: SharedId,
        act: impl FnOnce(&mut Queue, &mut queue::Lent<'_>) -> R,
    ) -> Option<R> {
        let queue = self.queues.get_mut(&id)?;
        let mut lent = queue::Lent {
            ctx: &mut self.ctx,
            partitions: &mut self.partitions,
            commands: &mut self.coordinator.commands,
            topics: &self.coordinator.topics,
            shared: self.coordinator.members.get(id)?,
            leases: &mut self.leases,
            letters: &mut self.letters,
            is_draining: self.drain.is_begun(),
        };
        let done = act(queue, &mut lent);
        self.route();
        Some(done)
    }

    /// Calls the streams of steps, and routes what the act asks of others.
    fn at_streams<R>(&mut self, act: impl FnOnce(&mut Streams, steps::Around<'_>) -> R) -> R {
        let around = steps::Around {
            ctx: &mut self.ctx,
            sessions: &mut self.sessions,
            partitions: &mut self.partitions,
            commands: &self.coordinator.commands,
            topics: &self.coordinator.topics,
            drain: self.drain,
        };
        let done = act(&mut self.streams, around);
        self.route();
        done
    }

    /// Lets everything take effect that has happened to a queue.
    fn advance_queue(&mut self, id: SharedId) {
        // At the end nothing changes any more; the next run goes on from here.
        if self.drain.refuse_closing().is_err() {
            return;
        }
        if let Some(lapsed) = self.at_queue(id, Queue::expire) {
            if !lapsed.is_empty() {
                self.at_members(|members, lent| members.leases_lapsed(id, lapsed, lent));
            }
            self.at_queue(id, Queue::advance);
        }
    }

    /// A queue's command is durable, or was refused.
    fn queue_recorded(&mut self, id: SharedId, result: Result<(), ControlError>) {
        let moved = self.at_queue(id, |queue, lent| {
            let moved = queue.recorded(result, lent.commands.table(), lent.ctx);
            (queue.core.topic, queue.core.consumer.clone(), moved)
        });
        if let Some((topic, consumer, moved)) = moved {
            self.coordinate(|coordinator, around| {
                coordinator.consumer_moved(topic, &consumer, moved, around);
            });
        }
    }

    fn timer(&mut self, timer: Timer) {
        match timer {
            Timer::Session(link) => self.sessions.timer_came(link, &mut self.ctx),
            Timer::Requests(link) => self.look_at_deadlines(link),
            Timer::Delayed(link) => self.sessions.send_delayed(link, &mut self.ctx),
            Timer::Pace(link) => {
                if self.sessions.paid(link, &mut self.ctx) {
                    self.deliver_again(link);
                }
            }
            Timer::Fetch(storage, caller) => {
                self.at(storage, |partition, ctx| {
                    partition.advance_fetch(caller, ctx);
                });
            }
            Timer::Storage(storage) => {
                self.at(storage, Partition::tick);
            }
            Timer::Waiting(storage) => {
                self.at(storage, Partition::report_waiting);
            }
            Timer::Shared(id) => self.at_members(|members, lent| members.timer_came(id, lent)),
            Timer::Queue(id) => {
                self.at_queue(id, |queue, lent| queue.timer_came(lent.ctx));
            }
            Timer::Steps(topic) => self.at_streams(|it, around| it.timer_came(topic, around)),
            Timer::Controller => self.ctx.dirty.controller = true,
            Timer::Found => self.coordinator.record_found(&mut self.ctx),
            Timer::Drain => self.drain_impatiently(),
        }
    }

    fn job_done(&mut self, job: JobId, result: JobResult) {
        match (self.ctx.jobs.remove(&job), result) {
            (Some(Purpose::Open(making, storage)), JobResult::Opened(result)) => {
                self.coordinate(|coordinator, around| {
                    coordinator.partition_opened(making, storage, result, around);
                });
            }
            (Some(Purpose::Remove(key, what)), JobResult::Removed(result)) => {
                self.coordinator.moves.removed(key);
                if let Err(error) = result {
                    self.ctx.report(format!("removing {what}: {error}"));
                }
            }
            (Some(Purpose::KeepTopic(topic)), JobResult::Kept(result)) => {
                self.coordinate(|coordinator, around| {
                    coordinator.topic_file_kept(topic, result, around);
                });
            }
            (Some(Purpose::Session(what)), result) => {
                let again = self.sessions.job_done(what, job, result, &mut self.ctx);
                again.into_iter().for_each(|link| self.deliver_again(link));
            }
            (Some(Purpose::KeepStart), JobResult::Kept(Err(error))) => {
                self.ctx
                    .report(format!("what the next start compares is not kept: {error}"));
            }
            _ => {}
        }
    }

    /// Lets what was touched take effect, until nothing moves any more.
    fn run_to_fixpoint(&mut self) {
        self.advance_dirty();
        while self.draining().further() {
            self.advance_dirty();
        }
    }

    pub(crate) fn advance_dirty(&mut self) {
        loop {
            if let Some(storage) = self.ctx.dirty.partitions.pop_first() {
                self.advance_partition(storage, Partition::advance);
            } else if std::mem::take(&mut self.ctx.dirty.controller) {
                self.advance_commands();
            } else if let Some(id) = self.ctx.dirty.queues.pop_first() {
                self.advance_queue(id);
            } else if let Some(topic) = self.ctx.dirty.streams.pop_first() {
                self.at_streams(|streams, around| streams.advance(topic, around));
            } else if !self.advance_starved() {
                break;
            }
        }
    }

    /// Routes what the last act asked of other objects, in order.
    pub(crate) fn route(&mut self) {
        while let Some(effect) = self.ctx.effects.pop() {
            let outer = self.ctx.effects.enter();
            self.carry_out(effect);
            self.route();
            self.ctx.effects.leave(outer);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Answer(caller, answer) => self.sessions.answer(caller, answer, &mut self.ctx),
            Effect::Refuse(caller, error) => self.sessions.refuse(caller, error, &mut self.ctx),
            Effect::Deliver(caller, delivery) => {
                self.sessions.deliver(caller, delivery, &mut self.ctx);
            }
            Effect::SubscriptionEnded(RequestId { link, id }) => {
                if let Some(session) = self.sessions.get_mut(link) {
                    session.subscriptions.remove(&id);
                }
            }
            Effect::OwnAppend(append, result) => self.own_append_done(append, &result),
            Effect::LetterDataLost(append, why) => {
                if let Some((id, index)) = self.letters.end(append) {
                    self.at_queue(id, |queue, lent| {
                        queue.letter_data_lost(index, &why, lent.ctx);
                    });
                }
            }
            Effect::Visible(topic) => {
                let queues = self.coordinator.members.queues_of(topic);
                self.ctx.dirty.queues.extend(queues);
                if self.coordinator.topics.is_of_steps(topic) {
                    self.ctx.dirty.streams.insert(topic);
                }
            }
            Effect::Lost(key, present, gap) => {
                let queues = self.coordinator.members.queues_of(key.topic);
                for id in queues.collect::<Vec<_>>() {
                    self.at_queue(id, |queue, lent| {
                        queue.core.lose(key.partition, present, gap, lent.ctx);
                    });
                }
                self.coordinate(|coordinator, around| coordinator.record_gap(key, gap, around));
            }
            Effect::Read(reader, found) => self.was_read(reader, found),
            Effect::Copy(storage, place, how) => {
                let (letters, partitions, ctx) = self.letters();
                letters.copied(storage, place, how, partitions, ctx);
            }
            Effect::Failed(storage, error) => {
                let (letters, partitions, ctx) = self.letters();
                letters.fail(storage, &error, partitions, ctx);
            }
            Effect::MembershipBegun(caller, membership) => {
                self.sessions
                    .begin_membership(caller, membership, &mut self.ctx);
            }
            Effect::MembershipEnded(caller, error) => {
                self.sessions.end_membership(caller, error, &mut self.ctx);
            }
            Effect::MemberSilent(link) => self.sessions.member_silent(link),
            Effect::AskForLife(link) => self.sessions.ask_for_life(link, &mut self.ctx),
            Effect::EndReading { link, of, error } => {
                let open = (&self.sessions, &mut self.partitions);
                end_reading(open, link, of, &error, &mut self.ctx);
            }
            Effect::Queue(id, notice) => self.queue_notice(id, notice),
            Effect::Install(storage, new) => {
                if let Some(partition) = Partition::new(storage, *new, &self.ctx) {
                    self.partitions.insert(storage, partition);
                }
            }
            Effect::Partition(storage, act) => {
                self.at(storage, |partition, ctx| partition.act(act, ctx));
            }
            Effect::ProducerOpened(caller, topic, producer, epoch) => {
                let opened = self.view().producer_opened(topic, producer, epoch);
                self.ctx.answer(caller, Answer::ProducerOpened(opened));
            }
            Effect::Ask(caller, request) => self.ask_of(caller, *request, false),
            Effect::Describe(caller, topic) => match self.view().description(topic) {
                Some(description) => self.ctx.answer(caller, Answer::Topic(description)),
                None => self.ctx.refuse(caller, unknown_topic(topic)),
            },
        }
    }

    fn queue_notice(&mut self, id: SharedId, notice: QueueNotice) {
        match notice {
            QueueNotice::Made { options, awaited } => {
                if let Some(shared) = self.coordinator.members.get(id) {
                    let queue = Queue::new(id, shared, options, awaited, &mut self.ctx);
                    self.queues.insert(id, queue);
                }
            }
            QueueNotice::Ended(error) => {
                if let Some(queue) = self.queues.remove(&id) {
                    queue.end(&error, &mut self.ctx);
                    self.route();
                }
            }
            QueueNotice::Joined {
                member,
                caller,
                held,
            } => {
                self.advance_queue(id);
                let joined = self.at_queue(id, |queue, lent| {
                    queue.member_joined(member, caller, &held, lent)
                });
                let (leases, recovering_ms) = joined.unwrap_or(((Vec::new(), held), 0));
                self.at_members(|members, lent| {
                    members.queue_joined(id, (caller, member), leases, recovering_ms, lent);
                });
            }
            notice
            @ (QueueNotice::Present(_) | QueueNotice::Away(_) | QueueNotice::Gone { .. }) => {
                self.at_queue(id, |queue, lent| queue.hear_of_member(&notice, lent.ctx));
            }
            QueueNotice::Recorded(result) => self.queue_recorded(id, result),
        }
    }

    /// The node, as it is described.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            ctx: &self.ctx,
            sessions: &self.sessions,
            commands: &self.coordinator.commands,
            topics: &self.coordinator.topics,
            members: &self.coordinator.members,
            queues: &self.queues,
            partitions: &self.partitions,
        }
    }

    /// Writes a slice of the status that is being made, and answers those who asked for it when it is complete.
    pub(crate) fn advance_status(&mut self) {
        let mut statuses = std::mem::take(&mut self.statuses);
        let complete = statuses.advance(self.view(), || self.own_status());
        self.statuses = statuses;
        let Some((callers, json)) = complete else {
            return;
        };
        let json = Bytes::from(json);
        for caller in callers {
            self.ctx.answer(caller, Answer::Status(json.clone()));
        }
    }

    /// The status of the node itself, without its lists.
    fn own_status(&self) -> Value {
        let status = NodeStatus {
            view: self.view(),
            is_draining: self.drain.is_begun(),
            start: &self.start,
            set_aside: &self.set_aside,
            below: &self.below,
        };
        status.json()
    }

    /// The node's state, for people and monitors: all of it at once, which takes long on a large node. A client's request has it made in slices.
    pub fn status(&self) -> Value {
        let text = StatusText::whole(self.view(), &self.own_status());
        serde_json::from_str(&text).expect("the status is JSON")
    }

    /// For a simulation.
    #[cfg(feature = "testing")]
    pub fn inspect(&self) -> crate::Inspected<'_> {
        crate::Inspected(&self.coordinator)
    }

    /// Which partition, the internal one first, serves no more until the node is opened again, and why.
    pub fn failure(&self) -> Option<String> {
        self.view().failure()
    }

    /// Bytes that are on their way to storage, and how many there may be.
    pub fn data_bytes(&self) -> (u64, u64) {
        (self.ctx.data.held(), self.ctx.data.limit())
    }

    /// What had failed and so was not closed cleanly, once the node is drained: the internal partition, or else the first partition.
    pub fn unclean(&self) -> Option<&str> {
        self.unclean.as_deref()
    }

    fn draining(&mut self) -> Draining<'_> {
        Draining {
            stage: &mut self.drain,
            ctx: &mut self.ctx,
            sessions: &mut self.sessions,
            coordinator: &mut self.coordinator,
            queues: &mut self.queues,
            partitions: &mut self.partitions,
            reads: &mut self.reads,
            start: &mut self.start,
            unclean: &mut self.unclean,
        }
    }

    pub(crate) fn drain(&mut self) {
        self.draining().begin();
        self.route();
    }

    /// What is not finished by now is given up.
    fn drain_impatiently(&mut self) {
        if self.drain == Drain::Finishing {
            self.draining().give_up();
            self.route();
            self.draining().close_partitions();
        }
    }

    /// Calls the coordinator, and routes what the act asks of others.
    pub(crate) fn coordinate<R>(
        &mut self,
        act: impl FnOnce(&mut Coordinator, &mut Around<'_>) -> R,
    ) -> R {
        let mut around = Around {
            ctx: &mut self.ctx,
            sessions: &self.sessions,
            partitions: &self.partitions,
            drain: self.drain,
        };
        let done = act(&mut self.coordinator, &mut around);
        self.route();
        done
    }

    /// Calls the groups and queues, and routes what the act asks of others.
    pub(crate) fn at_members<R>(
        &mut self,
        act: impl FnOnce(&mut Members, &mut Lent<'_>) -> R,
    ) -> R {
        self.coordinate(|coordinator, around| {
            let (members, mut lent) = coordinator.members(around);
            act(members, &mut lent)
        })
    }

    fn was_read(&mut self, reader: ReadFor, found: WasRead) {
        match (reader, found) {
            (ReadFor::Queue { id, partition, at }, WasRead::Batches(found)) => {
                self.at_queue(id, |it, lent| it.was_read(partition, at, found, lent.ctx));
            }
            (ReadFor::DeadLetter { id, partition }, WasRead::Batches(found)) => {
                self.at_queue(id, |queue, lent| queue.letter_read(partition, found, lent));
            }
            (ReadFor::LetterOpen { append }, WasRead::Event(data)) => {
                let (letters, partitions, ctx) = self.letters();
                letters.data_opened(append, data, partitions, ctx);
            }
            (ReadFor::LetterData { append }, WasRead::Data(pieces)) => {
                let (letters, partitions, ctx) = self.letters();
                letters.data_read(append, pieces, partitions, ctx);
            }
            (ReadFor::Open { .. } | ReadFor::Data { .. }, found) => {
                let (partitions, ctx) = (&mut self.partitions, &mut self.ctx);
                self.reads.was_read(reader, found, partitions, ctx);
            }
            (ReadFor::Steps { topic, what }, found) => {
                self.at_streams(|streams, around| streams.was_read(topic, what, found, around));
            }
            // A storage gives what it was asked for.
            _ => {}
        }
    }

    fn letters(&mut self) -> (&mut Letters, &mut Partitions, &mut Ctx) {
        (&mut self.letters, &mut self.partitions, &mut self.ctx)
    }

    /// An append of the server itself, a dead letter or a record of steps, is stored or was refused.
    fn own_append_done(&mut self, append: u64, result: &Result<(), ErrorReply>) {
        if self.at_streams(|streams, around| streams.appended(append, result, around)) {
            return;
        }
        let Some((id, index)) = self.letters.end(append) else {
            return;
        };
        self.at_queue(id, |queue, lent| {
            queue.letter_ended(index, append, result, lent.ctx)
        });
    }

    /// Advances a partition, by `act`; one that has closed is forgotten.
    fn advance_partition(
        &mut self,
        storage: StorageId,
        act: impl FnOnce(&mut Partition, &mut Ctx),
    ) {
        let ended = self.at(storage, |partition, ctx| {
            act(partition, ctx);
            partition.ended()
        });
        let Some(ended) = ended.flatten() else {
            return;
        };
        self.partitions.remove(&storage);
        if let Some(failure) = ended.unclean {
            self.unclean.get_or_insert(failure);
        }
        if let Some((work, what)) = ended.remove {
            self.ctx.start_job(Purpose::Remove(ended.key, what), work);
        }
    }

    /// Lets transfers go on that waited for the budget, or `ReadData` calls that waited for others, in turn. Says
    /// whether any did.
    fn advance_starved(&mut self) -> bool {
        let (partitions, ctx) = (&mut self.partitions, &mut self.ctx);
        let moved = feed_starved(partitions, ctx) || self.reads.advance_waiting(partitions, ctx);
        self.route();
        moved
    }

    fn advance_commands(&mut self) {
        self.coordinator.commands.advance(&mut self.ctx);
        while let Some(outcome) = self.coordinator.commands.poll_decided(&mut self.ctx) {
            self.coordinate(|coordinator, around| coordinator.decided(outcome, around));
        }
        if self.coordinator.has_moves {
            self.coordinate(Coordinator::table_changed);
        }
    }
}
