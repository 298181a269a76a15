//! Messages of connections: what is not the session's own business goes to the object that it
//! is about.

use crate::ids::{Asker, LinkId};
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
                self.forget_work(Asker { link, id }, *request);
            }
        }
        for (id, storage) in session.subscriptions {
            self.forget_subscription(Asker { link, id }, storage);
        }
        for (id, Membership { shared, member, .. }) in session.memberships {
            self.membership_lost(Asker { link, id }, shared, member);
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
                partition.advance_subscription(Asker { link, id }, ctx);
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
        let asker = Asker { link, id };
        let result = match (message.kind, heard.is_open) {
            (FrameKind::Hello, false) => self.sessions.hello(link, &message, &mut self.ctx),
            (FrameKind::Request, true) => self.request(link, message),
            (FrameKind::Cancel, true) => {
                self.cancel(asker);
                Ok(())
            }
            (FrameKind::Credit, true) => Credit::from_bytes("credit", &message.head)
                .map(|credit| self.more_credit(asker, credit.bytes))
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
        let asker = Asker {
            link,
            id: message.id,
        };
        let (sessions, ctx) = (&mut self.sessions, &mut self.ctx);
        if let Err(error) = sessions.begin_request(asker, &request, &message, ctx) {
            if error.code == ErrorCode::Malformed {
                return Err(error);
            }
            self.send(link, error_message(asker.id, &error));
            return Ok(());
        }
        match self.dispatch(asker, &request, &mut from, message) {
            Ok(()) => Ok(()),
            Err(error) if error.code == ErrorCode::Malformed => Err(error),
            Err(error) => {
                self.refuse_request(asker, error);
                Ok(())
            }
        }
    }

    fn dispatch(
        &mut self,
        asker: Asker,
        request: &RequestHead,
        from: &mut Reader<'_>,
        message: Received,
    ) -> Result<(), Refused> {
        match request.method {
            Method::Produce => self.produce(asker, request, from, message.payload),
            Method::CreateTopic => self.create_topic(asker, from),
            Method::DeleteTopic => self.delete_topic(asker, from),
            Method::ListTopics => self.list_topics(asker),
            Method::DescribeTopic => self.describe_topic(asker, from),
            Method::AddPartitions => self.add_partitions(asker, request, from),
            Method::OpenProducer => self.open_producer(asker, request, from),
            Method::Subscribe => self.subscribe(asker, request, from),
            Method::SubscribeScoped => self.subscribe_scoped(asker, request, from),
            Method::Unsubscribe => self.unsubscribe(asker, from),
            Method::Fetch => self.fetch(asker, request, from),
            Method::ReadData => self.read_data(asker, request, from),
            Method::MoveCursors => self.move_cursors(asker, request, from),
            Method::MoveMemberCursors => self.move_member_cursors(asker, request, from),
            Method::ReadCursors => self.read_cursors(asker, request, from),
            Method::DeleteConsumer => self.delete_consumer(asker, request, from),
            Method::DescribeConsumers => self.describe_consumers(asker, request, from),
            Method::Status => self.status_reply(asker),
            Method::ListGaps => self.list_gaps(asker, from),
            Method::Join => self.join(asker, request, from),
            Method::Leave => self.leave(asker, request, from),
            Method::Release => self.release(asker, request, from),
            Method::AlterTopic => self.alter_topic(asker, request, from),
            Method::Settle => self.settle_leases(asker, request, from),
            Method::ExtendLeases => self.extend_leases(asker, request, from),
            Method::Shutdown => {
                self.reply(asker, Vec::new());
                self.drain();
                Ok(())
            }
        }
    }

    /// The first deadline of a connection's requests may have passed.
    pub(crate) fn look_at_deadlines(&mut self, link: LinkId) {
        for (asker, request) in self.sessions.late_requests(link, &self.ctx) {
            // One that was given up with another one before it has its answer.
            if !self.sessions.waits(asker) {
                continue;
            }
            let error = ErrorReply::retryable(
                ErrorCode::DeadlinePassed,
                0,
                format!("{:?} was not done in the time given", request.method),
            );
            self.refuse_request(asker, error);
            self.drop_work(asker, request);
        }
        self.sessions.watch_deadlines(link, &mut self.ctx);
    }

    fn cancel(&mut self, asker: Asker) {
        if let Some(request) = self.sessions.end_request(asker, &mut self.ctx) {
            self.drop_work(asker, request);
        }
    }

    /// Nobody waits for the answer any more: what can be left undone is.
    fn drop_work(&mut self, asker: Asker, request: Request) {
        match request.method {
            Method::ReadData => self
                .reads
                .cancel(asker, &mut self.partitions, &mut self.ctx),
            _ => self.forget_work(asker, request),
        }
        self.route();
    }

    /// A partition forgets what it keeps of a request.
    fn forget_work(&mut self, asker: Asker, request: Request) {
        match request.work {
            None => {}
            Some(Work::Produce(storage, producer)) => {
                self.at(storage, |partition, ctx| {
                    partition.forget_produce(asker, producer, ctx);
                });
            }
            Some(Work::Fetch(storage)) => {
                self.at(storage, |partition, ctx| partition.forget_fetch(asker, ctx));
            }
            Some(Work::Subscribe(storage)) => {
                let forgotten = self.at(storage, |partition, _| {
                    partition.subscriptions.forget_search(asker)
                });
                if forgotten == Some(true)
                    && let Some(session) = self.sessions.get_mut(asker.link)
                {
                    session.subscriptions.remove(&asker.id);
                }
            }
        }
    }

    /// Answers a request.
    pub(crate) fn reply(&mut self, asker: Asker, head: Vec<u8>) {
        self.ctx.reply(asker, head);
        self.route();
    }

    /// Answers a request, behind whatever was sent in the bulk lane before.
    pub(crate) fn reply_in_bulk(
        &mut self,
        asker: Asker,
        head: Vec<u8>,
        payload: Vec<bytes::Bytes>,
    ) {
        self.ctx.reply_in_bulk(asker, head, payload);
        self.route();
    }

    /// Answers with a head; if that is too long for one, with a payload.
    pub(crate) fn reply_long(&mut self, asker: Asker, head: Vec<u8>) {
        self.ctx.reply_long(asker, head);
        self.route();
    }

    /// Answers a request with an error.
    pub(crate) fn refuse_request(&mut self, asker: Asker, error: ErrorReply) {
        self.ctx.refuse(asker, error);
        self.route();
    }

    pub(crate) fn send(&mut self, link: LinkId, message: net::Message) {
        self.ctx.send(link, message);
        self.route();
    }
}
