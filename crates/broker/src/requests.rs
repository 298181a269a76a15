//! Messages of connections: what is not the session's own business goes to the object that it
//! is about.

use crate::answer::Answer;
use crate::ids::{LinkId, Membership, RequestId};
use crate::node::Node;
use crate::refusal::Refused;
use crate::request::{ClientInput, CoordinatorRequest, QueueRequest, Request};
use crate::session::{Asked, OpenRequest, Work};
use net::Received;
use wire::frame::FrameKind;
use wire::message::*;
use wire::{ErrorCode, ErrorReply};

impl Node {
    pub(crate) fn link_down(&mut self, link: LinkId) {
        let Some(session) = self.sessions.link_down(link, &mut self.ctx) else {
            return;
        };
        for (id, request) in session.requests.iter() {
            if !matches!(request.work, Some(Work::Subscribe(_))) {
                self.forget_work(RequestId { link, id }, *request);
            }
        }
        for (id, storage) in session.subscriptions {
            self.forget_subscription(RequestId { link, id }, storage);
        }
        for (id, membership) in session.memberships {
            let caller = RequestId { link, id };
            self.at_members(|members, lent| members.membership_lost(caller, membership, lent));
        }
        self.reads.link_down(link, &mut self.ctx);
        // A transfer belongs to a batch, and a batch to a request.
        let mut partitions = self.partitions.values();
        debug_assert!(!partitions.any(|partition| partition.appends.fetches_from(link)));
    }

    pub(crate) fn link_queued(&mut self, link: LinkId, bytes: u64) {
        if !self.sessions.link_queued(link, bytes, &mut self.ctx) {
            return;
        }
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

    pub(crate) fn message(&mut self, link: LinkId, message: Received) {
        let is_heartbeat = message.kind == FrameKind::Heartbeat;
        let Some(heard) = self.sessions.heard(link, is_heartbeat, &self.ctx) else {
            return;
        };
        if heard.silent_members {
            let memberships = self.sessions.members_heard(link);
            self.at_members(|members, lent| members.heard(link, &memberships, lent));
        }
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

    /// Something has come of a client of another protocol.
    pub(crate) fn client(&mut self, link: LinkId, input: ClientInput) {
        let Some(heard) = self.sessions.heard(link, false, &self.ctx) else {
            return;
        };
        if heard.silent_members {
            let memberships = self.sessions.members_heard(link);
            self.at_members(|members, lent| members.heard(link, &memberships, lent));
        }
        self.catch_up();
        if let Some((caller, asked)) = self.sessions.take_decoded(link, input, &mut self.ctx) {
            self.ask(caller, asked);
        }
    }

    /// Lets messages take effect that were put off.
    pub(crate) fn catch_up(&mut self) {
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
            Asked::Request(request) => {
                let allowed = self.sessions.authorize(caller.link, &request);
                let done = allowed.and_then(|()| self.dispatch(caller, request));
                if let Err(error) = done {
                    self.refuse_request(caller, error);
                }
            }
            Asked::Cancel => self.cancel(caller),
            Asked::Credit(bytes) => self.more_credit(caller, bytes),
        }
    }

    fn dispatch(&mut self, caller: RequestId, request: Request) -> Result<(), Refused> {
        match request {
            Request::Partition(target, request) => self.ask_partition(caller, target, request),
            Request::Coordinator(request) => self.ask_coordinator(caller, request),
            Request::Queue(topic, QueueRequest::Settle(settle)) => {
                self.settle_leases(caller, topic, settle)
            }
            Request::Queue(topic, QueueRequest::ExtendLeases(extend)) => {
                self.extend_leases(caller, topic, &extend)
            }
            Request::Status => {
                self.statuses.ask(caller);
                self.advance_status();
                Ok(())
            }
            Request::Shutdown => {
                self.answer(caller, Answer::Done);
                self.drain();
                Ok(())
            }
        }
    }

    fn ask_coordinator(
        &mut self,
        caller: RequestId,
        request: CoordinatorRequest,
    ) -> Result<(), Refused> {
        use CoordinatorRequest as Request;
        match request {
            Request::CreateTopic(create) => self
                .coordinate(|coordinator, around| coordinator.create_topic(caller, create, around)),
            Request::DeleteTopic(topic) => self.coordinate(|coordinator, around| {
                coordinator.delete_topic(caller, &topic.name, around)
            }),
            Request::ListTopics => {
                let list = self.view().topic_list(self.sessions.namespace(caller.link));
                // A list of topics may be longer than a head; then it is the payload.
                self.answer(caller, Answer::Topics(list));
                Ok(())
            }
            Request::DescribeTopic(topic) => {
                let namespace = self.sessions.namespace(caller.link);
                let description = self.view().topic_description(namespace, &topic.name)?;
                self.answer(caller, Answer::Topic(description));
                Ok(())
            }
            Request::ListGaps(topic) => {
                let namespace = self.sessions.namespace(caller.link);
                let list = self.view().gap_list(namespace, &topic.name)?;
                self.answer(caller, Answer::Gaps(list));
                Ok(())
            }
            Request::AddPartitions(topic, add) => self.coordinate(|coordinator, around| {
                coordinator.add_partitions(caller, topic, add, around)
            }),
            Request::AlterTopic(topic, alter) => self.coordinate(|coordinator, around| {
                coordinator.alter_topic(caller, topic, &alter, around)
            }),
            Request::OpenProducer(topic, open) => self.coordinate(|coordinator, around| {
                coordinator.open_producer(caller, topic, open, around)
            }),
            Request::MoveCursors(topic, moves) => self.coordinate(|coordinator, around| {
                coordinator.move_cursors(caller, topic, moves, around)
            }),
            Request::MoveMemberCursors(topic, moves) => self.coordinate(|coordinator, around| {
                coordinator.move_member_cursors(caller, topic, moves, around)
            }),
            Request::ReadCursors(topic, read) => self.coordinate(|coordinator, around| {
                coordinator.read_cursors(caller, topic, &read, around)
            }),
            Request::DeleteConsumer(topic, name) => self.coordinate(|coordinator, around| {
                coordinator.delete_consumer(caller, topic, name, around)
            }),
            Request::DescribeConsumers(topic, name) => {
                let namespace = self.sessions.namespace(caller.link);
                let list = self
                    .view()
                    .consumer_list(namespace, topic, &name.consumer)?;
                self.answer(caller, Answer::Consumers(list));
                Ok(())
            }
            Request::Join(topic, join) => {
                self.at_members(|members, lent| members.join(caller, topic, join, lent))
            }
            Request::Leave(topic, leave) => {
                self.at_members(|members, lent| members.leave(caller, topic, &leave, lent))
            }
            Request::Release(topic, release) => {
                self.at_members(|members, lent| members.release(caller, topic, &release, lent))
            }
        }
    }

    /// The first deadline of a connection's requests may have passed.
    pub(crate) fn look_at_deadlines(&mut self, link: LinkId) {
        for (caller, request) in self.sessions.late_requests(link, &self.ctx) {
            // One that was given up with another one before it has its answer.
            if !self.sessions.waits(caller) {
                continue;
            }
            let error = ErrorReply::retryable(
                ErrorCode::DeadlinePassed,
                0,
                format!("{:?} was not done in the time given", request.method),
            );
            self.refuse_request(caller, error);
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
        match request.method {
            Method::ReadData => self
                .reads
                .cancel(caller, &mut self.partitions, &mut self.ctx),
            _ => self.forget_work(caller, request),
        }
        self.route();
    }

    /// A partition forgets what it keeps of a request.
    fn forget_work(&mut self, caller: RequestId, request: OpenRequest) {
        match request.work {
            None => {}
            Some(Work::Produce(storage, producer)) => {
                self.at(storage, |partition, ctx| {
                    partition.forget_produce(caller, producer, ctx);
                });
            }
            Some(Work::Fetch(storage)) => {
                self.at(storage, |partition, ctx| {
                    partition.forget_fetch(caller, ctx)
                });
            }
            Some(Work::Subscribe(storage)) => {
                let forgotten = self.at(storage, |partition, _| {
                    partition.subscriptions.forget_search(caller)
                });
                if forgotten == Some(true)
                    && let Some(session) = self.sessions.get_mut(caller.link)
                {
                    session.subscriptions.remove(&caller.id);
                }
            }
        }
    }

    /// Answers a request.
    pub(crate) fn answer(&mut self, caller: RequestId, answer: Answer) {
        self.ctx.answer(caller, answer);
        self.route();
    }

    /// Answers a request with an error.
    pub(crate) fn refuse_request(&mut self, caller: RequestId, error: ErrorReply) {
        self.ctx.refuse(caller, error);
        self.route();
    }
}
