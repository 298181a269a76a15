//! Requests: begun, answered once, ended by their deadlines.

use crate::ids::{Asker, LinkId, OWN_LINK, StorageId};
use crate::node::Node;
use crate::refusal::{Refused, malformed, refuse};
use net::{Lane, Message, Received};
use std::time::Duration;
use wire::codec::Reader;
use wire::frame::FrameKind;
use wire::message::*;
use wire::{Codec, ErrorCode, ErrorReply, ProducerId};

/// How long the text of an error may be.
const ERROR_BYTES_MAX: usize = 4096;

/// What a partition keeps of a request that is not answered, and which one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    Produce(StorageId, ProducerId),
    /// A subscription whose beginning may have to be looked for.
    Subscribe(StorageId),
    Fetch(StorageId),
}

/// An unanswered request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub deadline: Option<Duration>,
    pub method: Method,
    pub work: Option<Work>,
    /// Payload that it holds of the data budget.
    pub payload_bytes: u64,
    /// Whether nobody hurries for the answer, if it is a good one.
    pub is_quiet: bool,
}

impl Node {
    /// What the node keeps of a request outside of its session goes.
    pub(crate) fn forget_request(&mut self, asker: Asker, request: Request) {
        self.ctx.data.give_back(request.payload_bytes);
        if !matches!(request.work, Some(Work::Subscribe(_))) {
            self.forget_work(asker, request);
        }
    }

    pub(crate) fn request(&mut self, link: LinkId, message: Received) -> Result<(), Refused> {
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
        let payload_bytes = message.payload.len() as u64;
        let is_quiet = message.flags & wire::frame::REQUEST_QUIET != 0;
        if let Err(error) = self.begin_request(asker, &request, payload_bytes, is_quiet) {
            if error.code == ErrorCode::Malformed {
                return Err(error);
            }
            let message = error_message(asker.id, &error);
            self.send(link, message);
            return Ok(());
        }
        let result = match request.method {
            Method::Produce => self.produce(asker, &request, &mut from, message.payload),
            Method::CreateTopic => self.create_topic(asker, &mut from),
            Method::DeleteTopic => self.delete_topic(asker, &mut from),
            Method::ListTopics => self.list_topics(asker),
            Method::DescribeTopic => self.describe_topic(asker, &mut from),
            Method::AddPartitions => self.add_partitions(asker, &request, &mut from),
            Method::OpenProducer => self.open_producer(asker, &request, &mut from),
            Method::Subscribe => self.subscribe(asker, &request, &mut from),
            Method::SubscribeScoped => self.subscribe_scoped(asker, &request, &mut from),
            Method::Unsubscribe => self.unsubscribe(asker, &mut from),
            Method::Fetch => self.fetch(asker, &request, &mut from),
            Method::ReadData => self.read_data(asker, &request, &mut from),
            Method::MoveCursors => self.move_cursors(asker, &request, &mut from),
            Method::MoveMemberCursors => self.move_member_cursors(asker, &request, &mut from),
            Method::ReadCursors => self.read_cursors(asker, &request, &mut from),
            Method::DeleteConsumer => self.delete_consumer(asker, &request, &mut from),
            Method::DescribeConsumers => self.describe_consumers(asker, &request, &mut from),
            Method::Status => self.status_reply(asker),
            Method::ListGaps => self.list_gaps(asker, &mut from),
            Method::Join => self.join(asker, &request, &mut from),
            Method::Leave => self.leave(asker, &request, &mut from),
            Method::Release => self.release(asker, &request, &mut from),
            Method::AlterTopic => self.alter_topic(asker, &request, &mut from),
            Method::Settle => self.settle_leases(asker, &request, &mut from),
            Method::ExtendLeases => self.extend_leases(asker, &request, &mut from),
            Method::Shutdown => {
                self.reply(asker, Vec::new());
                self.drain();
                Ok(())
            }
        };
        match result {
            Ok(()) => Ok(()),
            Err(error) if error.code == ErrorCode::Malformed => Err(error),
            Err(error) => {
                self.refuse_request(asker, error);
                Ok(())
            }
        }
    }

    fn begin_request(
        &mut self,
        asker: Asker,
        head: &RequestHead,
        payload_bytes: u64,
        is_quiet: bool,
    ) -> Result<(), Refused> {
        let limit = self.ctx.options.limits.requests_max;
        let Some(session) = self.sessions.get_mut(&asker.link) else {
            return Ok(());
        };
        if session.requests.contains_key(&asker.id)
            || session.subscriptions.contains_key(&asker.id)
            || session.memberships.contains_key(&asker.id)
        {
            return Err(refuse(
                ErrorCode::Malformed,
                format!("request id {} is in use", asker.id),
            ));
        }
        if session.requests.len() >= limit {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!("{limit} requests are unanswered already (requests_max)"),
            ));
        }
        if payload_bytes > 0 {
            let unanswered = session.unanswered_bytes;
            // One call larger than the credit is let in alone.
            if unanswered > 0 && unanswered + payload_bytes > session.credit {
                return Err(refuse(
                    ErrorCode::LimitExceeded,
                    format!(
                        "{payload_bytes} bytes of payload, {unanswered} are unanswered, the credit is {}",
                        session.credit
                    ),
                ));
            }
            session.unanswered_bytes += payload_bytes;
            self.ctx.data.take(payload_bytes);
        }
        let deadline = (head.remaining_ms > 0)
            .then(|| self.ctx.now.monotonic + Duration::from_millis(head.remaining_ms.into()));
        if let Some(deadline) = deadline {
            session.watch_deadline(deadline, asker.link, &mut self.ctx.timers);
        }
        let request = Request {
            deadline,
            method: head.method,
            work: None,
            payload_bytes,
            is_quiet,
        };
        session.requests.insert(asker.id, request);
        Ok(())
    }

    /// Whether nobody hurries for the answer to a request.
    pub(crate) fn is_quiet(&self, asker: Asker) -> bool {
        let session = self.sessions.get(&asker.link);
        let request = session.and_then(|session| session.requests.get(&asker.id));
        request.is_some_and(|request| request.is_quiet)
    }

    /// Ends a request. `None` if it has ended before: its asker is gone, did
    /// not wait, or has had its answer.
    fn end_request(&mut self, asker: Asker) -> Option<Request> {
        let session = self.sessions.get_mut(&asker.link)?;
        let request = session.requests.remove(&asker.id)?;
        session.unanswered_bytes -= request.payload_bytes;
        self.ctx.data.give_back(request.payload_bytes);
        Some(request)
    }

    /// Answers a request.
    pub(crate) fn reply(&mut self, asker: Asker, head: Vec<u8>) {
        let message = Message::control(FrameKind::Reply, asker.id, head);
        self.reply_message(asker, message);
    }

    /// Answers a request with a message of its own.
    pub(crate) fn reply_message(&mut self, asker: Asker, message: Message) {
        match self.end_request(asker) {
            Some(request) if request.is_quiet && message.kind == FrameKind::Reply => {
                self.send_quietly(asker.link, message);
            }
            Some(_) => self.send(asker.link, message),
            None => {}
        }
    }

    /// Answers a request, behind whatever was sent in the bulk lane before.
    pub(crate) fn reply_in_bulk(
        &mut self,
        asker: Asker,
        head: Vec<u8>,
        payload: Vec<bytes::Bytes>,
    ) {
        let message = Message {
            payload,
            lane: Lane::Bulk,
            ..Message::control(FrameKind::Reply, asker.id, head)
        };
        self.reply_message(asker, message);
    }

    /// Answers a request with an error.
    pub(crate) fn refuse_request(&mut self, asker: Asker, error: ErrorReply) {
        if asker.link == OWN_LINK {
            self.own_append_refused(asker.id, &error);
            return;
        }
        let message = error_message(asker.id, &error);
        self.reply_message(asker, message);
    }

    /// The first deadline of a connection's requests may have passed.
    pub(crate) fn look_at_deadlines(&mut self, link: LinkId) {
        let now = self.ctx.now.monotonic;
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        session.deadline_at = None;
        let is_late = |request: &Request| request.deadline.is_some_and(|at| at <= now);
        let requests = session.requests.iter();
        let late = requests.filter(|(_, request)| is_late(request));
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.deadline_passed(Asker { link, id });
        }
        if let Some(session) = self.sessions.get_mut(&link) {
            let deadlines = session.requests.values().filter_map(|one| one.deadline);
            if let Some(next) = deadlines.min() {
                session.watch_deadline(next, link, &mut self.ctx.timers);
            }
        }
    }

    /// The time that a request gave has passed.
    pub(crate) fn deadline_passed(&mut self, asker: Asker) {
        let request = self
            .sessions
            .get(&asker.link)
            .and_then(|session| session.requests.get(&asker.id).copied());
        let Some(request) = request else {
            return;
        };
        let error = ErrorReply::retryable(
            ErrorCode::DeadlinePassed,
            0,
            format!("{:?} was not done in the time given", request.method),
        );
        self.refuse_request(asker, error);
        self.drop_work(asker, request);
    }

    pub(crate) fn cancel(&mut self, asker: Asker) {
        if let Some(request) = self.end_request(asker) {
            self.drop_work(asker, request);
        }
    }

    /// Nobody waits for the answer any more: what can be left undone is.
    fn drop_work(&mut self, asker: Asker, request: Request) {
        match request.method {
            Method::ReadData => self.forget_read_data(asker),
            _ => self.forget_work(asker, request),
        }
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
                    && let Some(session) = self.sessions.get_mut(&asker.link)
                {
                    session.subscriptions.remove(&asker.id);
                }
            }
        }
    }

    /// Answers with a head; if that is too long for one, with a payload.
    pub(crate) fn reply_long(&mut self, asker: Asker, head: Vec<u8>) {
        if head.len() <= wire::frame::HEAD_BYTES_MAX as usize {
            self.reply(asker, head);
        } else {
            self.reply_in_bulk(asker, Vec::new(), vec![head.into()]);
        }
    }
}

/// An error as a message. Its text may quote what the client sent: a name of
/// any length would not fit a head.
pub(crate) fn error_message(id: u64, error: &ErrorReply) -> Message {
    let mut error = error.clone();
    if error.message.len() > ERROR_BYTES_MAX {
        let whole = (0..=ERROR_BYTES_MAX).rev();
        let end = whole
            .into_iter()
            .find(|end| error.message.is_char_boundary(*end));
        error.message.truncate(end.unwrap_or(0));
        error.message.push('…');
    }
    Message::control(FrameKind::ErrorReply, id, error.to_bytes())
}
