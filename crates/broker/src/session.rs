//! Connections: who is there, what was asked and is not answered, signs of life.
//!
//! The one place that knows credit, ids and deadlines of requests, heartbeats and delayed
//! answers. What a request does is another object's; its answer comes back as an
//! [`Effect`](crate::effects::Effect).

mod decode;
mod deferred;
mod delayed;
mod request;

pub(crate) use decode::{HeadError, request as decode_request, request_head};
pub(crate) use deferred::Deferred;
pub(crate) use request::{OpenRequest, Work, error_message};

use crate::ctx::Ctx;
use crate::ids::{LinkId, RequestId, SharedId, StorageId};
use crate::io::{LINK_QUEUED_BYTES_HIGH, LINK_QUEUED_BYTES_LOW, Output};
use crate::refusal::{Refused, draining, malformed, refuse};
use crate::timers::Timer;
use delayed::Delayed;
use net::{Message, Peer, Received};
use request::Requests;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;
use wire::frame::{FrameKind, HEARTBEAT_ANSWER};
use wire::message::*;
use wire::{Codec, DirectoryId, ErrorCode, ErrorReply, MemberId, SessionId};

/// One connection.
pub(crate) struct Session {
    pub peer: Peer,
    pub stage: Stage,
    since: Duration,
    pub last_heard: Duration,
    /// Whether a sign of life was asked for since something was heard.
    asked: bool,
    pub requests: Requests,
    /// Subscriptions, and where each reads.
    pub subscriptions: BTreeMap<u64, StorageId>,
    /// By the ids of the requests that began them.
    pub memberships: BTreeMap<u64, Membership>,
    /// Whether members of this connection have fallen silent.
    pub silent_members: bool,
    /// The timer that is armed.
    timer_at: Option<Duration>,
    /// Produce payload that may be unanswered.
    pub credit: u64,
}

/// A member of a group or queue that has joined on a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Membership {
    pub shared: SharedId,
    pub member: MemberId,
    pub session_timeout: Duration,
}

/// How far a connection has come.
pub(crate) enum Stage {
    /// Nothing was said yet.
    New,
    /// The client is known.
    Open {
        namespace: String,
        client_name: String,
        /// The same on all connections of a client; 0 is none.
        id: SessionId,
    },
    /// An error was sent and the connection is to end.
    Closing,
}

impl Session {
    fn new(peer: Peer, now: Duration) -> Self {
        Self {
            peer,
            stage: Stage::New,
            since: now,
            last_heard: now,
            asked: false,
            requests: Requests::default(),
            subscriptions: BTreeMap::new(),
            memberships: BTreeMap::new(),
            silent_members: false,
            timer_at: None,
            credit: 0,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open { .. })
    }

    /// A partition takes a request on. Returns what the connection was granted of unanswered
    /// bytes.
    pub fn begin_work(&mut self, id: u64, work: Work) -> u64 {
        self.requests.begin_work(id, work);
        self.credit
    }

    /// Silence after which a sign of life is asked for: early enough for a
    /// member that has less time than its connection.
    fn patience(&self, heartbeat: Duration) -> Duration {
        let members = self.memberships.values();
        let members = members.map(|membership| membership.session_timeout / 3);
        members.fold(heartbeat, Duration::min)
    }
}

/// What is to be known of a message before it is looked at.
pub(crate) struct Heard {
    /// Whether its client has said who it is.
    pub is_open: bool,
    /// Whether members of its connection had fallen silent.
    pub silent_members: bool,
}

/// All connections.
#[derive(Default)]
pub(crate) struct Sessions {
    links: BTreeMap<LinkId, Session>,
    /// The latest connection of each client that names its session.
    latest: BTreeMap<SessionId, LinkId>,
    delayed: Delayed,
    is_draining: bool,
}

impl Sessions {
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

    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether requests of a connection are taken: its client has said who it is.
    pub fn takes_requests(&self, link: LinkId) -> bool {
        self.links.get(&link).is_some_and(Session::is_open)
    }

    /// The session that a connection is of; 0 is none.
    pub fn id(&self, link: LinkId) -> SessionId {
        match self.links.get(&link).map(|session| &session.stage) {
            Some(Stage::Open { id, .. }) => *id,
            _ => SessionId(0),
        }
    }

    /// The namespace that a connection's names are in.
    pub fn namespace(&self, link: LinkId) -> &str {
        match self.links.get(&link).map(|session| &session.stage) {
            Some(Stage::Open { namespace, .. }) => namespace,
            _ => "",
        }
    }

    pub fn link_up(&mut self, link: LinkId, peer: Peer, ctx: &mut Ctx) {
        let limit = ctx.options.limits.sessions_max;
        let too_many = self.links.len() >= limit;
        self.links
            .insert(link, Session::new(peer, ctx.now.monotonic));
        if too_many {
            let error = ErrorReply::retryable(
                ErrorCode::LimitExceeded,
                1000,
                format!("{limit} connections stand already (sessions_max)"),
            );
            self.end(link, 0, error, ctx);
            return;
        }
        self.arm(link, ctx);
    }

    /// A connection is gone. What other objects keep for it is theirs to forget.
    pub fn link_down(&mut self, link: LinkId, ctx: &mut Ctx) -> Option<Session> {
        let session = self.links.remove(&link)?;
        if let Stage::Open { id, .. } = session.stage
            && self.latest.get(&id) == Some(&link)
        {
            self.latest.remove(&id);
        }
        for (_, request) in session.requests.iter() {
            ctx.data.give_back(request.payload_bytes);
        }
        if session.credit > 0 {
            ctx.data.revoke(session.credit);
        }
        ctx.backpressured.remove(&link);
        self.delayed.forget(link, ctx);
        Some(session)
    }

    /// So many bytes wait to be handed to the network. Returns whether the connection takes
    /// deliveries again, after so many waited that it took none.
    pub fn link_queued(&mut self, link: LinkId, bytes: u64, ctx: &mut Ctx) -> bool {
        if bytes > LINK_QUEUED_BYTES_HIGH && self.links.contains_key(&link) {
            ctx.backpressured.insert(link);
        }
        bytes <= LINK_QUEUED_BYTES_LOW && ctx.backpressured.remove(&link)
    }

    /// A message has come. `None` if the connection is to end, and nobody looks at it.
    pub fn heard(&mut self, link: LinkId, message: &Received, ctx: &Ctx) -> Option<Heard> {
        let session = self.links.get_mut(&link)?;
        session.last_heard = ctx.now.monotonic;
        session.asked &= message.kind == FrameKind::Heartbeat;
        if let Stage::Closing = session.stage {
            return None;
        }
        Some(Heard {
            is_open: session.is_open(),
            silent_members: session.silent_members,
        })
    }

    /// A client says who it is.
    pub fn hello(
        &mut self,
        link: LinkId,
        message: &Received,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let hello = Hello::from_bytes("hello", &message.head).map_err(malformed)?;
        check_hello(&hello, ctx)?;
        self.authenticate(link, &hello, ctx)?;
        let limits = &ctx.options.limits;
        let credit = ctx.data.grant(limits.produce_credit_bytes_max);
        let welcome = Welcome {
            version: PROTOCOL_VERSION,
            features: 0,
            directory: ctx.options.directory_id,
            instance: ctx.options.instance,
            produce_credit: credit,
            payload_bytes_max: limits.payload_bytes_max,
            heartbeat_ms: limits.heartbeat.as_millis() as u32,
            server_version: ctx.options.server_version.clone(),
        };
        self.supersede(hello.session, link, ctx);
        if let Some(session) = self.links.get_mut(&link) {
            session.credit = credit;
            session.stage = Stage::Open {
                namespace: hello.namespace,
                client_name: hello.client_name,
                id: hello.session,
            };
        }
        self.arm(link, ctx);
        let message = Message::control(FrameKind::Welcome, message.id, welcome.to_bytes());
        self.send(link, message, ctx);
        if self.is_draining {
            self.say_go_away(link, ctx);
        }
        Ok(())
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

    /// Lets in this process itself, the owner's processes where the kernel
    /// vouches for them, and whoever shows the token.
    fn authenticate(&self, link: LinkId, hello: &Hello, ctx: &Ctx) -> Result<(), Refused> {
        let peer = self.links.get(&link).map(|session| &session.peer);
        let options = &ctx.options;
        let proved = peer.is_some_and(|peer| {
            peer.in_process || (peer.uid.is_some() && peer.uid == options.owner_uid)
        });
        if proved || (hello.mechanism == "token" && same(&hello.proof, &options.token)) {
            return Ok(());
        }
        let reason = match hello.mechanism.as_str() {
            "token" => "the token is not this server's: its present group file has it".into(),
            "" => "the server asks for a token: give its group file, or the token in it".into(),
            other => format!("mechanism {other:?} is not known; token is"),
        };
        Err(refuse(ErrorCode::NotAuthenticated, reason))
    }

    /// Takes a request note of which its answer ends.
    pub fn begin_request(
        &mut self,
        caller: RequestId,
        head: &RequestHead,
        message: &Received,
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
        session.requests.begin(caller, head, message, credit, ctx)
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

    /// Answers a request.
    pub fn reply(&mut self, caller: RequestId, message: Message, ctx: &mut Ctx) {
        match self.end_request(caller, ctx) {
            Some(request) if request.is_quiet && message.kind == FrameKind::Reply => {
                // At the end there may be no next message, and no while.
                match self.is_draining {
                    true => self.send(caller.link, message, ctx),
                    false => self.delayed.hold(caller.link, message, ctx),
                }
            }
            Some(_) => self.send(caller.link, message, ctx),
            None => {}
        }
    }

    /// Answers a request with an error.
    pub fn refuse(&mut self, caller: RequestId, error: &ErrorReply, ctx: &mut Ctx) {
        self.reply(caller, error_message(caller.id, error), ctx);
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
        self.send(link, error_message(id, &error), ctx);
        self.close(link, reason, ctx);
    }

    pub fn close(&mut self, link: LinkId, reason: String, ctx: &mut Ctx) {
        if let Some(session) = self.links.get_mut(&link) {
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
        if self.takes_requests(link) {
            let message = Message::control(FrameKind::GoAway, 0, draining().to_bytes());
            self.send(link, message, ctx);
        }
    }

    pub fn heartbeat(&mut self, link: LinkId, flags: u8, ctx: &mut Ctx) {
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
        let at = match session.stage {
            Stage::Closing => return,
            Stage::New => session.since + limits.hello_timeout,
            Stage::Open { .. } if session.asked => {
                let again = ctx.now.monotonic + patience;
                again.min(session.last_heard + limits.heartbeat * 2)
            }
            Stage::Open { .. } => session.last_heard + patience,
        };
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
        let limits = &ctx.options.limits;
        let now = ctx.now.monotonic;
        let silence = now.saturating_sub(session.last_heard);
        match session.stage {
            Stage::Closing => return,
            Stage::New if now >= session.since + limits.hello_timeout => {
                let error = refuse(ErrorCode::DeadlinePassed, "no Hello came in time");
                self.end(link, 0, error, ctx);
                return;
            }
            Stage::New => {}
            Stage::Open { .. } if silence >= limits.heartbeat * 2 => {
                let name = &session.peer.address;
                let reason = format!("nothing was heard from {name} for {silence:?}");
                ctx.report(format!("closing a connection: {reason}"));
                self.close(link, reason, ctx);
                return;
            }
            Stage::Open { .. } if silence >= session.patience(limits.heartbeat) => {
                self.ask_for_life(link, ctx);
            }
            Stage::Open { .. } => {}
        }
        self.arm(link, ctx);
    }

    /// Asks for a sign of life, unless one was asked for and has not come.
    pub fn ask_for_life(&mut self, link: LinkId, ctx: &mut Ctx) {
        let Some(session) = self.links.get_mut(&link) else {
            return;
        };
        if !std::mem::replace(&mut session.asked, true) {
            let message = Message::control(FrameKind::Heartbeat, 0, Vec::new());
            self.send(link, message, ctx);
        }
    }
}

/// Refuses a client that this server cannot serve.
fn check_hello(hello: &Hello, ctx: &Ctx) -> Result<(), Refused> {
    let (least, greatest) = (hello.version_min, hello.version_max);
    if !(least..=greatest).contains(&PROTOCOL_VERSION) {
        return Err(refuse(
            ErrorCode::Unsupported,
            format!(
                "the client speaks versions {least} to {greatest}, this server {PROTOCOL_VERSION}"
            ),
        ));
    }
    if hello.features_required != 0 {
        let features = hello.features_required;
        return Err(refuse(
            ErrorCode::Unsupported,
            format!("required features {features:#x} are not known to this server"),
        ));
    }
    let own = ctx.options.directory_id;
    if hello.directory != DirectoryId(0) && hello.directory != own {
        let expected = hello.directory;
        return Err(refuse(
            ErrorCode::WrongServer,
            format!("the client expects data directory {expected}, this server owns {own}"),
        ));
    }
    let names = topic::check_namespace(&hello.namespace)
        .and_then(|()| topic::check_client_name(&hello.client_name));
    names.map_err(|error| refuse(ErrorCode::Malformed, error.to_string()))?;
    if hello.role != Role::Control {
        return Err(refuse(
            ErrorCode::Unsupported,
            "bulk stripes are not supported",
        ));
    }
    Ok(())
}

/// Compares in a time that does not depend on where the bytes differ.
fn same(given: &[u8], token: &[u8; 32]) -> bool {
    if given.len() != token.len() {
        return false;
    }
    let differing = given.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differing) == 0
}
