//! Messages of connections: what is not the session's own business goes to the object that it
//! is about.

use crate::ids::{LinkId, RequestId};
use crate::node::Node;
use crate::refusal::{Refused, malformed, refuse};
use crate::session::{Deferred, Membership, Request, Work, error_message};
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
        let head = message.head.clone();
        let mut from = Reader::new("request", &head);
        let code = from.clone().u16().map_err(malformed)?;
        if !Method::ALL.iter().any(|method| *method as u16 == code) {
            let error = refuse(
                ErrorCode::Unsupported,
                format!("method {code} is not known"),
            );
            let message = error_message(message.id, &error);
            self.send(link, message);
            return Ok(());
        }
        let request = RequestHead::decode(&mut from).map_err(malformed)?;
        let caller = RequestId {
            link,
            id: message.id,
        };
        let (sessions, ctx) = (&mut self.sessions, &mut self.ctx);
        if let Err(error) = sessions.begin_request(caller, &request, &message, ctx) {
            if error.code == ErrorCode::Malformed {
                return Err(error);
            }
            self.send(link, error_message(caller.id, &error));
            return Ok(());
        }
        match self.dispatch(caller, &request, &mut from, message) {
            Ok(()) => Ok(()),
            Err(error) if error.code == ErrorCode::Malformed => Err(error),
            Err(error) => {
                self.refuse_request(caller, error);
                Ok(())
            }
        }
    }

    fn dispatch(
        &mut self,
        caller: RequestId,
        request: &RequestHead,
        from: &mut Reader<'_>,
        message: Received,
    ) -> Result<(), Refused> {
        match request.method {
            Method::Produce => self.produce(caller, request, from, message.payload),
            Method::CreateTopic => self.create_topic(caller, from),
            Method::DeleteTopic => self.delete_topic(caller, from),
            Method::ListTopics => self.list_topics(caller),
            Method::DescribeTopic => self.describe_topic(caller, from),
            Method::AddPartitions => self.add_partitions(caller, request, from),
            Method::OpenProducer => self.open_producer(caller, request, from),
            Method::Subscribe => self.subscribe(caller, request, from),
            Method::SubscribeScoped => self.subscribe_scoped(caller, request, from),
            Method::Unsubscribe => self.unsubscribe(caller, from),
            Method::Fetch => self.fetch(caller, request, from),
            Method::ReadData => self.read_data(caller, request, from),
            Method::MoveCursors => self.move_cursors(caller, request, from),
            Method::MoveMemberCursors => self.move_member_cursors(caller, request, from),
            Method::ReadCursors => self.read_cursors(caller, request, from),
            Method::DeleteConsumer => self.delete_consumer(caller, request, from),
            Method::DescribeConsumers => self.describe_consumers(caller, request, from),
            Method::Status => self.status_reply(caller),
            Method::ListGaps => self.list_gaps(caller, from),
            Method::Join => self.join(caller, request, from),
            Method::Leave => self.leave(caller, request, from),
            Method::Release => self.release(caller, request, from),
            Method::AlterTopic => self.alter_topic(caller, request, from),
            Method::Settle => self.settle_leases(caller, request, from),
            Method::ExtendLeases => self.extend_leases(caller, request, from),
            Method::Shutdown => {
                self.reply(caller, Vec::new());
                self.drain();
                Ok(())
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
    fn drop_work(&mut self, caller: RequestId, request: Request) {
        match request.method {
            Method::ReadData => self
                .reads
                .cancel(caller, &mut self.partitions, &mut self.ctx),
            _ => self.forget_work(caller, request),
        }
        self.route();
    }

    /// A partition forgets what it keeps of a request.
    fn forget_work(&mut self, caller: RequestId, request: Request) {
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
