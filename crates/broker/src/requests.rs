//! Messages of connections: what is not the session's own business goes to the object that it
//! is about.

use crate::ids::{LinkId, RequestId};
use crate::node::Node;
use crate::refusal::{Refused, malformed, refuse};
use crate::request::{CoordinatorRequest, QueueRequest, Request};
use crate::session::{Deferred, HeadError, Membership, OpenRequest, Work, error_message};
use crate::session::{decode_request, request_head};
use net::Received;
use wire::codec::Reader;
use wire::frame::FrameKind;
use wire::message::*;
use wire::{Codec, ErrorCode, ErrorReply};

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
        for (id, Membership { shared, member, .. }) in session.memberships {
            self.membership_lost(RequestId { link, id }, shared, member);
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
            self.queue_member_has_room(shared, member);
        }
    }

    pub(crate) fn message(&mut self, link: LinkId, message: Received) {
        let Some(heard) = self.sessions.heard(link, &message, &self.ctx) else {
            return;
        };
        if heard.silent_members {
            self.members_heard(link);
        }
        let id = message.id;
        if heard.is_open {
            if self.deferred.takes(&message) && !self.drain.is_begun() {
                self.deferred.push(link, message, &self.ctx);
                return;
            }
            if !Deferred::may_be_overtaken_by(&message) {
                self.catch_up();
            }
        }
        let caller = RequestId { link, id };
        let result = match (message.kind, heard.is_open) {
            (FrameKind::Hello, false) => self.sessions.hello(link, &message, &mut self.ctx),
            (FrameKind::Request, true) => self.request(link, message),
            (FrameKind::Cancel, true) => {
                self.cancel(caller);
                Ok(())
            }
            (FrameKind::Credit, true) => Credit::from_bytes("credit", &message.head)
                .map(|credit| self.more_credit(caller, credit.bytes))
                .map_err(malformed),
            (FrameKind::Heartbeat, true) => {
                self.sessions.heartbeat(link, message.flags, &mut self.ctx);
                Ok(())
            }
            (FrameKind::GoAway, true) => Ok(()),
            (kind, open) => Err(refuse(
                ErrorCode::Malformed,
                format!(
                    "a {kind:?} frame is not expected {} the Hello",
                    if open { "after" } else { "before" }
                ),
            )),
        };
        if let Err(error) = result {
            self.sessions.end(link, id, error, &mut self.ctx);
        }
    }

    /// Lets settlements take effect that were deferred.
    pub(crate) fn catch_up(&mut self) {
        while let Some((link, message)) = self.deferred.pop() {
            let id = message.id;
            if self.sessions.takes_requests(link)
                && let Err(error) = self.request(link, message)
            {
                self.sessions.end(link, id, error, &mut self.ctx);
            }
        }
    }

    fn request(&mut self, link: LinkId, message: Received) -> Result<(), Refused> {
        let bytes = message.head.clone();
        let mut from = Reader::new("request", &bytes);
        let head = match request_head(&mut from) {
            Ok(head) => head,
            Err(HeadError::Malformed(error)) => return Err(malformed(error)),
            Err(HeadError::Unknown(error)) => {
                self.send(link, error_message(message.id, &error));
                return Ok(());
            }
        };
        let caller = RequestId {
            link,
            id: message.id,
        };
        let (sessions, ctx) = (&mut self.sessions, &mut self.ctx);
        if let Err(error) = sessions.begin_request(caller, &head, &message, ctx) {
            if error.code == ErrorCode::Malformed {
                return Err(error);
            }
            self.send(link, error_message(caller.id, &error));
            return Ok(());
        }
        let request = decode_request(&head, &mut from, message.payload);
        match request.and_then(|request| self.dispatch(caller, request)) {
            Ok(()) => Ok(()),
            Err(error) if error.code == ErrorCode::Malformed => Err(error),
            Err(error) => {
                self.refuse_request(caller, error);
                Ok(())
            }
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
            Request::Status => self.status_reply(caller),
            Request::Shutdown => {
                self.reply(caller, Vec::new());
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
            Request::CreateTopic(create) => self.create_topic(caller, create),
            Request::DeleteTopic(name) => self.delete_topic(caller, name),
            Request::ListTopics => self.list_topics(caller),
            Request::DescribeTopic(name) => self.describe_topic(caller, name),
            Request::ListGaps(name) => self.list_gaps(caller, name),
            Request::AddPartitions(topic, add) => self.add_partitions(caller, topic, add),
            Request::AlterTopic(topic, alter) => self.alter_topic(caller, topic, alter),
            Request::OpenProducer(topic, open) => self.open_producer(caller, topic, open),
            Request::MoveCursors(topic, moves) => self.move_cursors(caller, topic, moves),
            Request::MoveMemberCursors(topic, moves) => {
                self.move_member_cursors(caller, topic, moves)
            }
            Request::ReadCursors(topic, read) => self.read_cursors(caller, topic, read),
            Request::DeleteConsumer(topic, name) => self.delete_consumer(caller, topic, name),
            Request::DescribeConsumers(topic, name) => self.describe_consumers(caller, topic, name),
            Request::Join(topic, join) => self.join(caller, topic, join),
            Request::Leave(topic, leave) => self.leave(caller, topic, leave),
            Request::Release(topic, release) => self.release(caller, topic, release),
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
    pub(crate) fn reply(&mut self, caller: RequestId, head: Vec<u8>) {
        self.ctx.reply(caller, head);
        self.route();
    }

    /// Answers a request, behind whatever was sent in the bulk lane before.
    pub(crate) fn reply_in_bulk(
        &mut self,
        caller: RequestId,
        head: Vec<u8>,
        payload: Vec<bytes::Bytes>,
    ) {
        self.ctx.reply_in_bulk(caller, head, payload);
        self.route();
    }

    /// Answers with a head; if that is too long for one, with a payload.
    pub(crate) fn reply_long(&mut self, caller: RequestId, head: Vec<u8>) {
        self.ctx.reply_long(caller, head);
        self.route();
    }

    /// Answers a request with an error.
    pub(crate) fn refuse_request(&mut self, caller: RequestId, error: ErrorReply) {
        self.ctx.refuse(caller, error);
        self.route();
    }

    pub(crate) fn send(&mut self, link: LinkId, message: net::Message) {
        self.ctx.send(link, message);
        self.route();
    }
}
