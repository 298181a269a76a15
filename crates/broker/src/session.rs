//! Connections: who is there, what was asked and is not answered, signs of life.
//!
//! The one place that knows credit, ids and deadlines of requests, heartbeats and delayed
//! answers, and the only one that knows frames: it decodes a message into a [`Request`], and
//! encodes an [`Answer`] or a [`Delivery`]. Of a client of another protocol these come and go as
//! they are. What a request does is another object's; its answer comes back as an
//! [`Effect`](crate::effects::Effect).

mod admission;
mod answers;
mod audited;
mod certificate;
mod connection;
mod credential;
mod decode;
mod deferred;
mod examined;
mod hello;
mod names;
mod offers;
mod origin;
mod pairing;
mod quotas;
mod request;
mod stripes;
mod used;
mod waiting;

pub(crate) use connection::{Session, Stage};
pub(crate) use request::{OpenRequest, Work};
pub(crate) use used::Used;

use crate::answer::{Answer, ClientOutput, Delivery};
use crate::audit::{self, Audited};
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::identity::Identity;
use crate::ids::{LinkId, Membership, RequestId};
use crate::io::{LINK_QUEUED_BYTES_HIGH, LINK_QUEUED_BYTES_LOW, Output};
use crate::pace::Direction;
use crate::paused::Pause;
use crate::refusal::{Refused, draining, malformed, refuse};
use crate::request::{Call, ClientInput, Prefetch, Request};
use crate::timers::Timer;
use access::Trust;
use answers::Delayed;
use connection::Language;
use credential::{Expiry, Next, Said, Trusted, rates, said_of};
use deferred::Deferred;
use names::check_names;
use net::{Capabilities, Message, Peer, Received};
use offers::Offers;
use request::Begin;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use waiting::{UnderWay, Waiting};
use wire::batch::Verify;
use wire::codec::Reader;
use wire::frame::{FrameKind, HEARTBEAT_ANSWER, REQUEST_QUIET};
use wire::message::*;
use wire::{Codec, ErrorCode, ErrorReply, SessionId};

/// What is to be known of a message before it is looked at.
pub(crate) struct Heard {
    /// Whether its client has said who it is.
    pub is_open: bool,
    /// Whether members of its connection had fallen silent.
    pub silent_members: bool,
}

/// What somebody other than the session has to do for a client.
#[allow(
    clippy::large_enum_variant,
    reason = "a batch goes by value: in a box it would cost each produce request an allocation"
)]
pub(crate) enum Asked {
    Request(Request),
    /// Nobody waits for the answer any more.
    Cancel,
    /// A subscription may be delivered so many bytes more.
    Credit(u64),
    /// A member of a queue may have so much unsettled.
    Prefetch(Prefetch),
    /// The connection takes deliveries again.
    Deliveries,
}

/// All connections.
#[derive(Default)]
pub(crate) struct Sessions {
    links: BTreeMap<LinkId, Session>,
    /// The latest connection of each client that names its session.
    latest: BTreeMap<SessionId, LinkId>,
    /// Settlements that have come and have no effect yet.
    deferred: Deferred,
    delayed: Delayed,
    is_draining: bool,
    trusted: Trusted,
    /// Codes for pairing that nobody has used yet.
    offers: Offers,
    /// Clients that have said who they are, and wait to be let in.
    admissions: BTreeMap<LinkId, Waiting>,
    under_way: UnderWay,
}

impl Sessions {
    pub fn new(used: Used, ctx: &Ctx) -> Self {
        Self {
            trusted: Trusted::new(used, ctx),
            ..Self::default()
        }
    }

    pub fn get(&self, link: LinkId) -> Option<&Session> {
        self.links.get(&link)
    }

    pub fn get_mut(&mut self, link: LinkId) -> Option<&mut Session> {
        self.links.get_mut(&link)
    }

    pub fn iter(&self) -> impl Iterator<Item = (LinkId, &Session)> {
        self.links.iter().map(|(link, session)| (*link, session))
    }

    /// The first connection, or the one behind this one.
    pub fn behind(&self, after: Option<LinkId>) -> Option<(LinkId, &Session)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut left = self.links.range((from, Bound::Unbounded));
        left.next().map(|(link, session)| (*link, session))
    }

    /// Whether requests of a connection are taken: its client has said who it is.
    pub fn takes_requests(&self, link: LinkId) -> bool {
        self.links.get(&link).is_some_and(Session::is_open)
    }

    /// Who the client of a connection is.
    pub fn identity(&self, link: LinkId) -> Option<&Identity> {
        self.links.get(&link)?.identity()
    }

    /// The session that a connection is of; 0 is none.
    pub fn id(&self, link: LinkId) -> SessionId {
        let identity = self.identity(link);
        identity.map_or(SessionId(0), |identity| identity.session)
    }

    /// What the client of a connection calls itself.
    pub fn client_name(&self, link: LinkId) -> &str {
        let identity = self.identity(link);
        identity.map_or("", |identity| identity.client_name.as_str())
    }

    /// The namespace that a connection's names are in.
    pub fn namespace(&self, link: LinkId) -> &str {
        let identity = self.identity(link);
        identity.map_or("", |identity| identity.namespace.as_str())
    }

    /// When something was last heard on a connection.
    pub fn last_heard(&self, link: LinkId) -> Option<Duration> {
        let session = self.links.get(&link)?;
        Some(session.last_heard)
    }

    /// Subscriptions and memberships of one connection are bounded together.
    pub fn refuse_too_many(&self, caller: RequestId, ctx: &Ctx) -> Result<(), Refused> {
        let limit = ctx.options.limits.subscriptions_max;
        let session = self.links.get(&caller.link);
        if session.is_some_and(|s| s.subscriptions.len() + s.memberships.len() >= limit) {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!("{limit} subscriptions and memberships stand already (subscriptions_max)"),
            ));
        }
        Ok(())
    }

    /// A member joins on a connection, by this request.
    pub fn begin_membership(&mut self, caller: RequestId, membership: Membership, ctx: &mut Ctx) {
        if let Some(session) = self.links.get_mut(&caller.link) {
            session.memberships.insert(caller.id, membership);
            self.arm(caller.link, ctx);
        }
    }

    /// What has joined by this request.
    pub fn membership(&self, caller: RequestId) -> Option<Membership> {
        let session = self.links.get(&caller.link)?;
        session.memberships.get(&caller.id).copied()
    }

    /// A membership has ended. With an error the client is notified, unless it waits for the
    /// answer to the request that was to begin it.
    pub fn end_membership(&mut self, caller: RequestId, error: Option<ErrorReply>, ctx: &mut Ctx) {
        let Some(session) = self.links.get_mut(&caller.link) else {
            return;
        };
        let known = session.memberships.remove(&caller.id).is_some();
        if known
            && !session.requests.is_open(caller.id)
            && let Some(error) = error
        {
            self.deliver(caller, Delivery::Ended(error), ctx);
        }
    }

    /// A member of a connection has fallen silent.
    pub fn member_silent(&mut self, link: LinkId) {
        if let Some(session) = self.links.get_mut(&link) {
            session.silent_members = true;
        }
    }

    /// Something was heard on a connection on which members had fallen silent. Returns all that
    /// have joined on it.
    pub fn members_heard(&mut self, link: LinkId) -> Vec<Membership> {
        let Some(session) = self.links.get_mut(&link) else {
            return Vec::new();
        };
        session.silent_members = false;
        session.memberships.values().copied().collect()
    }

    pub fn link_up(&mut self, link: LinkId, (peer, can): (Peer, &Capabilities), ctx: &mut Ctx) {
        if self.add(link, peer, Language::Frames, ctx) {
            self.arm(link, ctx);
        }
        if let Some(session) = self.links.get_mut(&link) {
            session.carries = can.stripes;
        }
    }

    /// A connection stands whose listener speaks another protocol, and knows its client.
    pub fn client_up(&mut self, link: LinkId, peer: Peer, identity: Identity, ctx: &mut Ctx) {
        if !self.add(link, peer, Language::Foreign, ctx) {
            return;
        }
        match check_names(&identity.namespace, &identity.client_name) {
            Ok(()) => {
                self.open(link, identity, ctx);
                self.audit_connect(link, ctx);
                if self.is_draining {
                    self.say_go_away(link, ctx);
                }
            }
            Err(error) => self.end(link, 0, error, ctx),
        }
    }

    /// A connection stands whose listener speaks another protocol, and whose client presents something.
    pub fn client_hello(&mut self, link: LinkId, peer: Peer, hello: Hello, ctx: &mut Ctx) {
        if self.add(link, peer, Language::Foreign, ctx)
            && let Err(error) = self.foreign_hello(link, hello, ctx)
        {
            self.audit_stranger(link, &error, ctx);
            self.end(link, 0, error, ctx);
        }
    }

    /// Takes a connection up. Returns whether there is room for it; if not, it is closed.
    fn add(&mut self, link: LinkId, peer: Peer, language: Language, ctx: &mut Ctx) -> bool {
        let limit = ctx.options.limits.sessions_max;
        let too_many = self.links.len() >= limit;
        let session = Session::new(peer, language, ctx.now.monotonic);
        self.links.insert(link, session);
        if too_many {
            let error = ErrorReply::retryable(
                ErrorCode::LimitExceeded,
                1000,
                format!("{limit} connections stand already (sessions_max)"),
            );
            self.end(link, 0, error, ctx);
        }
        !too_many
    }

    /// The client of a connection is let in. Returns the credit that it is granted.
    fn open(&mut self, link: LinkId, identity: Identity, ctx: &mut Ctx) -> u64 {
        let rates = rates(&identity, ctx);
        ctx.paces.bind(link, rates, ctx.now.monotonic);
        let most = ctx.options.limits.produce_credit_bytes_max;
        let credit = ctx.data.grant(most.min(ctx.paces.window(link)));
        self.supersede(identity.session, link, ctx);
        if let Some(session) = self.links.get_mut(&link) {
            session.credit = credit;
            session.stage = Stage::Open(Box::new(identity));
        }
        // Who comes again owes what was owed.
        let now = ctx.now.monotonic;
        if let Some(at) = ctx.paces.paid_at(link, Direction::Out, now) {
            ctx.paused.begin(link, Pause::Rate);
            ctx.timers.insert(at, Timer::Pace(link));
        }
        self.arm(link, ctx);
        credit
    }

    /// A connection is gone. What other objects keep for it is theirs to forget.
    pub fn link_down(&mut self, link: LinkId, ctx: &mut Ctx) -> Option<Session> {
        self.wait_no_more(link, ctx);
        let session = self.links.remove(&link)?;
        if let Some(identity) = session.identity()
            && self.latest.get(&identity.session) == Some(&link)
        {
            self.latest.remove(&identity.session);
        }
        for (_, request) in session.requests.iter() {
            ctx.data.give_back(request.held_bytes);
        }
        if session.credit > 0 {
            ctx.data.revoke(session.credit);
        }
        ctx.paused.forget(link);
        ctx.paces.forget(link);
        self.delayed.forget(link, ctx);
        Some(session)
    }

    /// So many bytes wait to be handed to the network. Returns whether the connection takes
    /// deliveries again, after so many waited that it took none.
    pub fn link_queued(&mut self, link: LinkId, bytes: u64, ctx: &mut Ctx) -> bool {
        if bytes > LINK_QUEUED_BYTES_HIGH && self.links.contains_key(&link) {
            ctx.paused.begin(link, Pause::Queued);
        }
        bytes <= LINK_QUEUED_BYTES_LOW && ctx.paused.end(link, Pause::Queued)
    }

    /// Something has come on a connection; a heartbeat is no answer to one. `None` if the
    /// connection is to end, and nobody looks at it.
    pub fn heard(&mut self, link: LinkId, is_heartbeat: bool, ctx: &Ctx) -> Option<Heard> {
        let session = self.links.get_mut(&link)?;
        session.last_heard = ctx.now.monotonic;
        session.asked &= is_heartbeat;
        if let Stage::Closing = session.stage {
            return None;
        }
        Some(Heard {
            is_open: session.is_open(),
            silent_members: session.silent_members,
        })
    }

    /// Puts a message off that may wait until nothing else is to be done, or gives it back.
    pub fn defer(&mut self, link: LinkId, message: Received, ctx: &Ctx) -> Option<Received> {
        if self.is_draining || !self.deferred.takes(&message) {
            return Some(message);
        }
        self.deferred.push(link, message, ctx);
        None
    }

    /// Whether a message takes effect behind those that are deferred.
    pub fn waits_for_deferred(&self, message: &Received) -> bool {
        !self.deferred.is_empty() && !Deferred::may_be_overtaken_by(message)
    }

    /// Whether messages are deferred.
    pub fn is_behind(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Whether the first deferred message has waited for long enough.
    pub fn is_late(&self, ctx: &Ctx) -> bool {
        self.deferred.is_due(ctx)
    }

    /// The message that was deferred first.
    pub fn pop_deferred(&mut self) -> Option<(LinkId, Received)> {
        self.deferred.pop()
    }

    /// Takes a message. What is the session's own business is done, the rest is returned.
    pub fn take(&mut self, link: LinkId, message: Received, ctx: &mut Ctx) -> Option<Asked> {
        trace::passes!("taken by its connection's session");
        let id = message.id;
        let asked = match self.links.get(&link)?.stage {
            // Who waits to be let in has said all there is to say.
            Stage::New if self.admissions.contains_key(&link) => {
                Err(unexpected(message.kind, "before"))
            }
            Stage::New => self.take_first(link, &message, ctx),
            Stage::Open(_) => self.take_next(link, message, ctx),
            Stage::Closing => Ok(None),
        };
        match asked {
            Ok(asked) => asked,
            Err(error) => {
                self.audit_stranger(link, &error, ctx);
                self.end(link, id, error, ctx);
                None
            }
        }
    }

    fn take_first(
        &mut self,
        link: LinkId,
        message: &Received,
        ctx: &mut Ctx,
    ) -> Result<Option<Asked>, Refused> {
        match message.kind {
            FrameKind::Hello => self.hello(link, message, ctx).map(|()| None),
            kind => Err(unexpected(kind, "before")),
        }
    }

    fn take_next(
        &mut self,
        link: LinkId,
        message: Received,
        ctx: &mut Ctx,
    ) -> Result<Option<Asked>, Refused> {
        match message.kind {
            FrameKind::Request => self.take_request(link, message, ctx),
            FrameKind::Cancel => Ok(Some(Asked::Cancel)),
            FrameKind::Credit => {
                let credit = Credit::from_bytes("credit", &message.head).map_err(malformed)?;
                Ok(Some(Asked::Credit(credit.bytes)))
            }
            FrameKind::Heartbeat => {
                self.heartbeat(link, message.flags, ctx);
                Ok(None)
            }
            FrameKind::Authenticate => {
                let asked = Authenticate::from_bytes("authenticate", &message.head);
                Ok(self.renew(link, asked.map_err(malformed)?, ctx))
            }
            FrameKind::GoAway => Ok(None),
            kind => Err(unexpected(kind, "after")),
        }
    }

    /// Decodes a request, and takes note of it. One that is refused already has its answer.
    fn take_request(
        &mut self,
        link: LinkId,
        message: Received,
        ctx: &mut Ctx,
    ) -> Result<Option<Asked>, Refused> {
        let caller = RequestId {
            link,
            id: message.id,
        };
        let bytes = message.head.clone();
        let mut from = Reader::new("request", &bytes);
        let head = decode::request_head(&mut from);
        let begun = head.and_then(|head| {
            let begin = Begin {
                method: head.method,
                patience: (head.remaining_ms > 0)
                    .then(|| Duration::from_millis(head.remaining_ms.into())),
                payload_bytes: message.payload.len() as u64,
                is_quiet: message.flags & REQUEST_QUIET != 0,
            };
            self.begin_request(caller, begin, ctx).map(|()| head)
        });
        let head = match begun {
            Ok(head) => head,
            Err(error) if error.code == ErrorCode::Malformed => return Err(error),
            Err(error) => {
                self.send(link, answers::error(caller.id, &error), ctx);
                return Ok(None);
            }
        };
        let verify = match ctx.planted(Fault::NoChecksum) {
            true => Verify::Headers,
            false => Verify::Sections,
        };
        match decode::request(&head, &mut from, message.payload, verify) {
            Ok(request) => Ok(Some(Asked::Request(request))),
            Err(error) if error.code == ErrorCode::Malformed => Err(error),
            Err(error) => {
                self.refuse(caller, error, ctx);
                Ok(None)
            }
        }
    }

    /// Takes what the listener of another protocol has decoded. What is the session's own
    /// business is done, the rest is returned.
    pub fn take_decoded(
        &mut self,
        link: LinkId,
        input: ClientInput,
        ctx: &mut Ctx,
    ) -> Option<(RequestId, Asked)> {
        let (id, asked) = match input {
            ClientInput::Call(call) => {
                let Call {
                    id,
                    request,
                    patience,
                    is_quiet,
                } = *call;
                let begin = Begin {
                    method: request.method(),
                    patience,
                    payload_bytes: request.payload_bytes(),
                    is_quiet,
                };
                let caller = RequestId { link, id };
                if let Err(error) = self.begin_request(caller, begin, ctx) {
                    self.send_answer(caller, Err(error), ctx);
                    return None;
                }
                (id, Asked::Request(request))
            }
            ClientInput::Cancel { id } => (id, Asked::Cancel),
            ClientInput::Credit { id, bytes } => (id, Asked::Credit(bytes)),
            ClientInput::Prefetch { id, prefetch } => (id, Asked::Prefetch(prefetch)),
            ClientInput::Authenticate(asked) => (0, self.renew(link, asked, ctx)?),
            ClientInput::Alive => return None,
        };
        Some((RequestId { link, id }, asked))
    }

    /// Why somebody who has proved who they are is not let in all the same.
    fn refuse_admission(&self, identity: &Identity, ctx: &Ctx) -> Result<(), Refused> {
        self.refuse_stranger(identity, ctx)?;
        self.refuse_connection(identity, ctx)
    }

    /// A session belongs to those it was begun by: its id is in what a client asks others, and is no
    /// secret. Another's connection would end it, and have its replies.
    fn refuse_stranger(&self, identity: &Identity, ctx: &Ctx) -> Result<(), Refused> {
        let older = self.latest.get(&identity.session);
        let older = older.and_then(|link| self.links.get(link)?.identity());
        let holder = |one: &Identity| {
            let name = one.access.certificate_name().map(str::to_owned);
            let issued = one.access.issued().cloned();
            let subject = one.access.subject.clone();
            (subject, one.namespace.clone(), name, issued)
        };
        let is_stranger = older.is_some_and(|older| holder(older) != holder(identity));
        if !is_stranger || ctx.planted(Fault::SessionTaken) {
            return Ok(());
        }
        Err(ErrorReply::retryable(
            ErrorCode::NotAuthorized,
            1000,
            "a connection with this session's id stands, and is another's".to_owned(),
        ))
    }

    /// Ends the older connection of a session. Its client has given it up and
    /// asks again what was not answered: what it still holds, a seek perhaps,
    /// must not be done behind what the client asks on the new one.
    fn supersede(&mut self, id: SessionId, link: LinkId, ctx: &mut Ctx) {
        if id == SessionId(0) {
            return;
        }
        if let Some(older) = self.latest.insert(id, link)
            && self.takes_requests(older)
        {
            let error = refuse(ErrorCode::Cancelled, "the client has connected anew");
            self.end(older, 0, error, ctx);
        }
    }

    /// Whom the server believes has changed: connections whose credential was revoked end.
    pub fn set_trust(&mut self, trust: Arc<Trust>, ctx: &mut Ctx) {
        for (what, fields) in audit::trust(self.trusted.trust(), &trust) {
            ctx.audit(what, fields);
        }
        self.trusted.set_trust(trust);
        let revoked = |session: &Session| self.trusted.revoked(&session.identity()?.access);
        let ended = self.links.iter();
        let ended = ended.filter_map(|(link, session)| Some((*link, revoked(session)?)));
        for (link, why) in ended.collect::<Vec<(LinkId, String)>>() {
            ctx.report(format!("ending a connection: {why}"));
            self.audit_of(link, Audited::Revoke, &why, ctx);
            self.end(link, 0, refuse(ErrorCode::NotAuthenticated, why), ctx);
        }
    }

    /// A client presents another credential. One that does not count leaves the present one.
    fn renew(&mut self, link: LinkId, asked: Authenticate, ctx: &mut Ctx) -> Option<Asked> {
        let session = self.links.get_mut(&link)?;
        let Stage::Open(identity) = &mut session.stage else {
            return None;
        };
        let renewed = match asked.mechanism == ISSUED {
            true => match self.examine_renewal(link, asked.proof, ctx) {
                // Its answer comes later.
                Ok(()) => return None,
                Err(error) => return self.renewed_by_others(link, Err(error), ctx),
            },
            false => self.trusted.renew(identity, &asked, &session.peer, ctx),
        };
        self.renewed(link, renewed, ctx)
    }

    /// Says how long the credential of a connection is good.
    fn say_how_long(&mut self, link: LinkId, said: Said, ctx: &mut Ctx) {
        if let Some(identity) = self.identity(link) {
            let said = said_of(&identity.access, said, ctx);
            if self.language(link) == Language::Foreign {
                return send_decoded(link, ClientOutput::Credential(said), ctx);
            }
            let message = Message::control(FrameKind::Authenticate, 0, said.to_bytes());
            self.send(link, message, ctx);
        }
    }

    /// Looks at the credential of a connection: warns of its end, says that it has come, ends the
    /// connection. True if that was done.
    fn look_at_credential(&mut self, link: LinkId, ctx: &mut Ctx) -> bool {
        let Some(session) = self.links.get_mut(&link) else {
            return true;
        };
        let Stage::Open(identity) = &session.stage else {
            return false;
        };
        let next = session.expiry.look(&identity.access, ctx);
        if session.expiry == Expiry::Come && !ctx.planted(Fault::GraceServes) {
            ctx.paused.begin(link, Pause::Expired);
        }
        match next {
            Next::Nothing => false,
            Next::Say if session.language == Language::Foreign => false,
            Next::Say => {
                self.say_how_long(link, Said::default(), ctx);
                false
            }
            Next::End(error) => {
                ctx.report(format!("ending a connection: {}", error.message));
                self.audit_of(link, Audited::Expire, &error.message, ctx);
                self.end(link, 0, error, ctx);
                true
            }
        }
    }

    /// Takes a request note of which its answer ends.
    fn begin_request(
        &mut self,
        caller: RequestId,
        begin: Begin,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let Some(session) = self.links.get_mut(&caller.link) else {
            return Ok(());
        };
        let id = caller.id;
        if session.requests.is_open(id)
            || session.subscriptions.contains_key(&id)
            || session.memberships.contains_key(&id)
        {
            return Err(refuse(
                ErrorCode::Malformed,
                format!("request id {id} is in use"),
            ));
        }
        let credit = session.credit;
        session.requests.begin(caller, begin, credit, ctx)
    }

    /// Ends a request. `None` if it has ended before: its caller is gone, did
    /// not wait, or has had its answer.
    pub fn end_request(&mut self, caller: RequestId, ctx: &mut Ctx) -> Option<OpenRequest> {
        let session = self.links.get_mut(&caller.link)?;
        session.requests.end(caller.id, ctx)
    }

    /// Whether a request waits for its answer.
    pub fn waits(&self, caller: RequestId) -> bool {
        let session = self.links.get(&caller.link);
        session.is_some_and(|session| session.requests.is_open(caller.id))
    }

    /// Whether nobody hurries for the answer to a request.
    pub fn is_quiet(&self, caller: RequestId) -> bool {
        let session = self.links.get(&caller.link);
        let request = session.and_then(|session| session.requests.get(caller.id));
        request.is_some_and(|request| request.is_quiet)
    }

    /// Answers a request, once what it moved is paid for.
    pub fn answer(&mut self, caller: RequestId, answer: Answer, ctx: &mut Ctx) {
        let (link, now) = (caller.link, ctx.now.monotonic);
        if !ctx.paces.binds(link) {
            return self.answer_now(caller, answer, ctx);
        }
        let bytes = answer.events_bytes();
        let paid_at = ctx.paces.charge(link, Direction::Out, bytes, now);
        if let Some(session) = self.links.get_mut(&link)
            && let Some(at) = session.requests.done(caller.id, paid_at, ctx)
        {
            session.unpaid_bytes += bytes;
            // A request that was given up may have had the same id.
            let other = session.unpaid.insert((at, caller.id), answer);
            session.unpaid_bytes -= other.map_or(0, |other| other.events_bytes());
            ctx.timers.insert(at, Timer::Pace(link));
            return;
        }
        self.answer_now(caller, answer, ctx);
    }

    fn answer_now(&mut self, caller: RequestId, answer: Answer, ctx: &mut Ctx) {
        let Some(session) = self.links.get_mut(&caller.link) else {
            return;
        };
        let language = session.language;
        match session.requests.end(caller.id, ctx) {
            // At the end there may be no next message, and no while.
            Some(request)
                if request.is_quiet && language == Language::Frames && !self.is_draining =>
            {
                let message = answers::answer(caller.id, answer);
                self.delayed.hold(caller.link, message, ctx);
            }
            Some(_) => self.send_answer(caller, Ok(answer), ctx),
            None => {}
        }
    }

    /// Answers a request with an error.
    pub fn refuse(&mut self, caller: RequestId, error: ErrorReply, ctx: &mut Ctx) {
        if let Some(request) = self.end_request(caller, ctx) {
            // What was not done moves nothing.
            if let Some((direction, bytes)) = request.charged {
                ctx.paces.give_back(caller.link, direction, bytes);
            }
            self.send_answer(caller, Err(error), ctx);
        }
    }

    fn send_answer(
        &mut self,
        RequestId { link, id }: RequestId,
        answer: Result<Answer, ErrorReply>,
        ctx: &mut Ctx,
    ) {
        match (self.language(link), answer) {
            (Language::Frames, Ok(answer)) => self.send(link, answers::answer(id, answer), ctx),
            (Language::Frames, Err(error)) => self.send(link, answers::error(id, &error), ctx),
            (Language::Foreign, answer) => {
                send_decoded(link, ClientOutput::Answer { id, answer }, ctx);
            }
        }
    }

    /// Delivers something to a subscription or a membership.
    pub fn deliver(
        &mut self,
        RequestId { link, id }: RequestId,
        delivery: Delivery,
        ctx: &mut Ctx,
    ) {
        let (bytes, now) = (delivery.events_bytes(), ctx.now.monotonic);
        if let Some(at) = ctx.paces.charge(link, Direction::Out, bytes, now) {
            ctx.paused.begin(link, Pause::Rate);
            ctx.timers.insert(at, Timer::Pace(link));
        }
        match self.language(link) {
            Language::Frames => self.send(link, answers::delivery(id, delivery), ctx),
            Language::Foreign => {
                send_decoded(link, ClientOutput::Delivery { id, delivery }, ctx);
            }
        }
    }

    /// Whether a client speaks another protocol, which knows no other nodes.
    pub fn is_foreign(&self, link: LinkId) -> bool {
        self.language(link) == Language::Foreign
    }

    fn language(&self, link: LinkId) -> Language {
        let session = self.links.get(&link);
        session.map_or(Language::Frames, |session| session.language)
    }

    /// Sends a message, behind what waits for company on its connection; events
    /// are ahead of it, for somebody waits for them.
    pub fn send(&mut self, link: LinkId, message: Message, ctx: &mut Ctx) {
        self.delayed.send(link, message, ctx);
    }

    /// Sends the answers that wait for company on a connection.
    pub fn send_delayed(&mut self, link: LinkId, ctx: &mut Ctx) {
        self.delayed.release(link, ctx);
    }

    /// The requests of a connection whose deadlines have passed.
    pub fn late_requests(&mut self, link: LinkId, ctx: &Ctx) -> Vec<(RequestId, OpenRequest)> {
        let session = self.links.get_mut(&link);
        session.map_or_else(Vec::new, |session| session.requests.late(link, ctx))
    }

    /// Has the deadlines of a connection's requests looked at again.
    pub fn watch_deadlines(&mut self, link: LinkId, ctx: &mut Ctx) {
        if let Some(session) = self.links.get_mut(&link) {
            session.requests.watch_deadlines(link, ctx);
        }
    }

    /// Sends an error and closes.
    pub fn end(&mut self, link: LinkId, id: u64, error: ErrorReply, ctx: &mut Ctx) {
        let reason = error.to_string();
        // The listener of another protocol is given the reason alone, with the end.
        if self.language(link) == Language::Frames {
            self.send(link, answers::error(id, &error), ctx);
        }
        self.close(link, reason, ctx);
    }

    /// Of how many clients the latest connection is known.
    #[cfg(test)]
    pub fn latest_count(&self) -> usize {
        self.latest.len()
    }

    pub fn close(&mut self, link: LinkId, reason: String, ctx: &mut Ctx) {
        self.wait_no_more(link, ctx);
        if let Some(session) = self.links.get_mut(&link) {
            // Who it was is not known any more when the connection is gone.
            if let Some(identity) = session.identity()
                && self.latest.get(&identity.session) == Some(&link)
            {
                self.latest.remove(&identity.session);
            }
            session.stage = Stage::Closing;
        }
        ctx.outputs.push_back(Output::Close { link, reason });
    }

    /// The node is to end: clients are told.
    pub fn drain(&mut self, ctx: &mut Ctx) {
        self.is_draining = true;
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        for link in links {
            self.say_go_away(link, ctx);
        }
    }

    /// The node has ended.
    pub fn close_all(&mut self, ctx: &mut Ctx) {
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        for link in links {
            self.close(link, draining().to_string(), ctx);
        }
    }

    fn say_go_away(&mut self, link: LinkId, ctx: &mut Ctx) {
        if !self.takes_requests(link) {
            return;
        }
        match self.language(link) {
            Language::Frames => {
                let message = Message::control(FrameKind::GoAway, 0, draining().to_bytes());
                self.send(link, message, ctx);
            }
            Language::Foreign => send_decoded(link, ClientOutput::GoAway(draining()), ctx),
        }
    }

    fn heartbeat(&mut self, link: LinkId, flags: u8, ctx: &mut Ctx) {
        let Some(session) = self.links.get_mut(&link) else {
            return;
        };
        // What comes while an answer is owed to us is the answer.
        if std::mem::take(&mut session.asked) || flags & HEARTBEAT_ANSWER != 0 {
            return;
        }
        let message = Message {
            flags: HEARTBEAT_ANSWER,
            ..Message::control(FrameKind::Heartbeat, 0, Vec::new())
        };
        self.send(link, message, ctx);
    }

    /// Arms the timer of a connection: when it is to be looked at.
    pub fn arm(&mut self, link: LinkId, ctx: &mut Ctx) {
        let Some(session) = self.links.get_mut(&link) else {
            return;
        };
        let limits = &ctx.options.limits;
        let patience = session.patience(limits.heartbeat);
        let identity = session.identity();
        let credential = identity.and_then(|one| session.expiry.timer(&one.access, ctx));
        let at = match session.stage {
            // Whether its client is there, the listener of another protocol finds out; its members are to be heard of.
            _ if session.language == Language::Foreign => match session.memberships.is_empty() {
                true => Duration::MAX,
                false if session.asked => ctx.now.monotonic + patience,
                false => session.last_heard + patience,
            },
            Stage::Closing => return,
            Stage::New => session.since + limits.hello_timeout,
            Stage::Open(_) if session.asked => {
                let again = ctx.now.monotonic + patience;
                again.min(session.last_heard + limits.heartbeat * 2)
            }
            Stage::Open(_) => session.last_heard + patience,
        };
        let at = credential.map_or(at, |credential| at.min(credential));
        if at == Duration::MAX {
            return;
        }
        match session.timer_at {
            // It comes early at worst, and then is armed again.
            Some(armed) if armed <= at => return,
            Some(armed) => ctx.timers.remove(armed, Timer::Session(link)),
            None => {}
        }
        session.timer_at = Some(at);
        ctx.timers.insert(at, Timer::Session(link));
    }

    /// Looks at a connection of which nothing may have been heard for long.
    pub fn timer_came(&mut self, link: LinkId, ctx: &mut Ctx) {
        let Some(session) = self.links.get_mut(&link) else {
            return;
        };
        session.timer_at = None;
        if self.look_at_credential(link, ctx) {
            return;
        }
        let Some(session) = self.links.get(&link) else {
            return;
        };
        let limits = &ctx.options.limits;
        let now = ctx.now.monotonic;
        let silence = now.saturating_sub(session.last_heard);
        if session.language == Language::Foreign {
            if !session.memberships.is_empty() && silence >= session.patience(limits.heartbeat) {
                self.ask_for_life(link, ctx);
            }
            return self.arm(link, ctx);
        }
        match session.stage {
            Stage::Closing => return,
            Stage::New if now >= session.since + limits.hello_timeout => {
                let why = match self.admissions.contains_key(&link) {
                    true => "what it presents could not be looked at in time",
                    false => "no Hello came in time",
                };
                let error = ErrorReply {
                    retryable: true,
                    ..refuse(ErrorCode::DeadlinePassed, why)
                };
                self.end(link, 0, error, ctx);
                return;
            }
            Stage::New => {}
            Stage::Open(_) if silence >= limits.heartbeat * 2 => {
                let name = &session.peer.address;
                let reason = format!("nothing was heard from {name} for {silence:?}");
                ctx.report(format!("closing a connection: {reason}"));
                self.close(link, reason, ctx);
                return;
            }
            Stage::Open(_) if silence >= session.patience(limits.heartbeat) => {
                self.ask_for_life(link, ctx);
            }
            Stage::Open(_) => {}
        }
        self.arm(link, ctx);
    }

    /// Asks for a sign of life, unless one was asked for and has not come.
    pub fn ask_for_life(&mut self, link: LinkId, ctx: &mut Ctx) {
        let Some(session) = self.links.get_mut(&link) else {
            return;
        };
        if std::mem::replace(&mut session.asked, true) {
            return;
        }
        match session.language {
            Language::Frames => {
                let message = Message::control(FrameKind::Heartbeat, 0, Vec::new());
                self.send(link, message, ctx);
            }
            Language::Foreign => send_decoded(link, ClientOutput::Probe, ctx),
        }
    }
}

fn unexpected(kind: FrameKind, when: &str) -> Refused {
    refuse(
        ErrorCode::Malformed,
        format!("a {kind:?} frame is not expected {when} the Hello"),
    )
}

/// Gives something that is to be said to a client to the listener of its protocol.
pub(super) fn send_decoded(link: LinkId, output: ClientOutput, ctx: &mut Ctx) {
    let output = Box::new(output);
    ctx.outputs.push_back(Output::Client { link, output });
}
