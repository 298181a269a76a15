//! Connections: who is there, what was asked, signs of life.

use crate::ids::{Asker, LinkId, SharedId, StorageId};
use crate::io::{LINK_QUEUED_BYTES_HIGH, LINK_QUEUED_BYTES_LOW, Output};
use crate::node::Node;
use crate::refusal::{Refused, malformed, refuse};
use crate::requests::{Request, Work, error_message};
use crate::timers::{Timer, Timers};
use net::{Message, Peer, Received};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::*;
use wire::{Codec, DirectoryId, ErrorCode, ErrorReply, MemberId, SessionId};

/// Set in the flags of a heartbeat that answers one.
pub const HEARTBEAT_ANSWER: u8 = 1;

/// One connection.
pub(crate) struct Session {
    pub peer: Peer,
    pub stage: Stage,
    pub since: Duration,
    pub last_heard: Duration,
    /// Whether a sign of life was asked for since something was heard.
    pub asked: bool,
    pub requests: BTreeMap<u64, Request>,
    /// When their deadlines are looked at: no later than the first of them.
    /// Most requests are over long before, and cost no timer each.
    pub deadline_at: Option<Duration>,
    /// Subscriptions, and where each reads.
    pub subscriptions: BTreeMap<u64, StorageId>,
    /// By the ids of the requests that began them.
    pub memberships: BTreeMap<u64, (SharedId, MemberId)>,
    /// Whether members of this connection have fallen silent.
    pub silent_members: bool,
    /// The timer that is armed.
    pub timer_at: Option<Duration>,
    /// Produce payload that may be unanswered, and that is.
    pub credit: u64,
    pub unanswered_bytes: u64,
    /// `ReadData` calls, in turn, and their bytes under way.
    pub reads: BTreeSet<u64>,
    pub read_bytes: u64,
}

impl Session {
    /// A partition takes a request on. Returns what the connection was granted of unanswered
    /// bytes.
    pub fn begin_work(&mut self, id: u64, work: Work) -> u64 {
        if let Some(request) = self.requests.get_mut(&id) {
            request.work = Some(work);
        }
        self.credit
    }

    /// Sees that deadlines are looked at by then.
    pub fn watch_deadline(&mut self, at: Duration, link: LinkId, timers: &mut Timers) {
        if self.deadline_at.is_some_and(|armed| armed <= at) {
            return;
        }
        if let Some(armed) = self.deadline_at.replace(at) {
            timers.remove(armed, Timer::Requests(link));
        }
        timers.insert(at, Timer::Requests(link));
    }
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

impl Node {
    pub(crate) fn link_up(&mut self, link: LinkId, peer: Peer) {
        let too_many = self.sessions.len() >= self.ctx.options.limits.sessions_max;
        let now = self.ctx.now.monotonic;
        let session = Session {
            peer,
            stage: Stage::New,
            since: now,
            last_heard: now,
            asked: false,
            requests: BTreeMap::new(),
            deadline_at: None,
            subscriptions: BTreeMap::new(),
            memberships: BTreeMap::new(),
            silent_members: false,
            timer_at: None,
            credit: 0,
            unanswered_bytes: 0,
            reads: BTreeSet::new(),
            read_bytes: 0,
        };
        self.sessions.insert(link, session);
        if too_many {
            let limit = self.ctx.options.limits.sessions_max;
            let error = ErrorReply::retryable(
                ErrorCode::LimitExceeded,
                1000,
                format!("{limit} connections stand already (sessions_max)"),
            );
            self.end_session(link, 0, error);
            return;
        }
        self.arm_session(link);
    }

    pub(crate) fn link_down(&mut self, link: LinkId) {
        let Some(mut session) = self.sessions.remove(&link) else {
            return;
        };
        for (id, request) in std::mem::take(&mut session.requests) {
            self.forget_request(Asker { link, id }, request);
        }
        for (id, storage) in std::mem::take(&mut session.subscriptions) {
            self.forget_subscription(Asker { link, id }, storage);
        }
        for (id, (shared, member)) in std::mem::take(&mut session.memberships) {
            self.membership_lost(Asker { link, id }, shared, member);
        }
        for call in std::mem::take(&mut session.reads) {
            self.drop_read_data(call);
        }
        // A transfer belongs to a batch, and a batch to a request.
        let mut partitions = self.partitions.values();
        debug_assert!(!partitions.any(|partition| partition.appends.fetches_from(link)));
        self.drop_held(link);
        self.ctx.crowded.remove(&link);
        if session.credit > 0 {
            self.ctx.data.revoke(session.credit);
        }
    }

    pub(crate) fn link_queued(&mut self, link: LinkId, bytes: u64) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        if bytes > LINK_QUEUED_BYTES_HIGH {
            self.ctx.crowded.insert(link);
        } else if bytes <= LINK_QUEUED_BYTES_LOW && self.ctx.crowded.remove(&link) {
            let subscriptions: Vec<_> = session.subscriptions.clone().into_iter().collect();
            let memberships: Vec<_> = session.memberships.values().copied().collect();
            for (id, storage) in subscriptions {
                self.at(storage, |partition, ctx| {
                    partition.advance_subscription(Asker { link, id }, ctx);
                });
            }
            for (id, member) in memberships {
                self.queue_member_has_room(id, member);
            }
        }
    }

    pub(crate) fn message(&mut self, link: LinkId, message: Received) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        session.last_heard = self.ctx.now.monotonic;
        session.asked &= message.kind == FrameKind::Heartbeat;
        let silent = session.silent_members;
        let open = match session.stage {
            Stage::Closing => return,
            Stage::New => false,
            Stage::Open { .. } => true,
        };
        if silent {
            self.members_heard(link);
        }
        let id = message.id;
        let message = match open {
            true => self.put_off(link, message),
            false => Some(message),
        };
        let Some(message) = message else {
            return;
        };
        let result = match (message.kind, open) {
            (FrameKind::Hello, false) => self.hello(link, &message),
            (FrameKind::Request, true) => self.request(link, message),
            (FrameKind::Cancel, true) => {
                self.cancel(Asker { link, id });
                Ok(())
            }
            (FrameKind::Credit, true) => Credit::from_bytes("credit", &message.head)
                .map(|credit| self.more_credit(Asker { link, id }, credit.bytes))
                .map_err(malformed),
            (FrameKind::Heartbeat, true) => {
                self.heartbeat(link, message.flags);
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
            self.end_session(link, id, error);
        }
    }

    /// Whether the client of a connection has said who it is, and was let in.
    pub fn knows_client(&self, link: LinkId) -> bool {
        self.takes_requests(link)
    }

    /// Whether requests of a connection are taken.
    pub(crate) fn takes_requests(&self, link: LinkId) -> bool {
        let session = self.sessions.get(&link);
        session.is_some_and(|session| matches!(session.stage, Stage::Open { .. }))
    }

    /// Sends an error and closes.
    pub(crate) fn end_session(&mut self, link: LinkId, id: u64, error: ErrorReply) {
        let reason = error.to_string();
        let message = error_message(id, &error);
        self.send(link, message);
        self.close_session(link, reason);
    }

    pub(crate) fn close_session(&mut self, link: LinkId, reason: String) {
        if let Some(session) = self.sessions.get_mut(&link) {
            session.stage = Stage::Closing;
        }
        self.ctx.outputs.push_back(Output::Close { link, reason });
    }

    fn hello(&mut self, link: LinkId, message: &Received) -> Result<(), Refused> {
        let hello = Hello::from_bytes("hello", &message.head).map_err(malformed)?;
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
        let own = self.ctx.options.directory_id;
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
        self.authenticate(link, &hello)?;
        self.supersede(hello.session);
        let limits = &self.ctx.options.limits;
        let credit = self.ctx.data.grant(limits.produce_credit_bytes_max);
        let welcome = Welcome {
            version: PROTOCOL_VERSION,
            features: 0,
            directory: own,
            instance: self.ctx.options.instance,
            produce_credit: credit,
            payload_bytes_max: limits.payload_bytes_max,
            heartbeat_ms: limits.heartbeat.as_millis() as u32,
            server_version: self.ctx.options.server_version.clone(),
        };
        if let Some(session) = self.sessions.get_mut(&link) {
            session.credit = credit;
            session.stage = Stage::Open {
                namespace: hello.namespace,
                client_name: hello.client_name,
                id: hello.session,
            };
        }
        self.arm_session(link);
        let message = Message::control(FrameKind::Welcome, message.id, welcome.to_bytes());
        self.send(link, message);
        if self.drain.is_begun() {
            self.say_go_away(link);
        }
        Ok(())
    }

    /// Ends the older connection of a session. Its client has given it up and
    /// asks again what was not answered: what it still holds, a seek perhaps,
    /// must not be done behind what the client asks on the new one.
    fn supersede(&mut self, id: SessionId) {
        let is_older = |session: &Session| match session.stage {
            Stage::Open { id: other, .. } => other == id && id != SessionId(0),
            Stage::New | Stage::Closing => false,
        };
        let older: Vec<LinkId> = self
            .sessions
            .iter()
            .filter(|(_, session)| is_older(session))
            .map(|(link, _)| *link)
            .collect();
        for link in older {
            let error = refuse(ErrorCode::Cancelled, "the client has connected anew");
            self.end_session(link, 0, error);
        }
    }

    /// Lets in this process itself, the owner's processes where the kernel
    /// vouches for them, and whoever shows the token.
    fn authenticate(&self, link: LinkId, hello: &Hello) -> Result<(), Refused> {
        let peer = self.sessions.get(&link).map(|session| &session.peer);
        let proved = peer.is_some_and(|peer| {
            peer.in_process || (peer.uid.is_some() && peer.uid == self.ctx.options.owner_uid)
        });
        if proved || (hello.mechanism == "token" && same(&hello.proof, &self.ctx.options.token)) {
            return Ok(());
        }
        let reason = match hello.mechanism.as_str() {
            "token" => "the token is not this server's: its present group file has it".into(),
            "" => "the server asks for a token: give its group file, or the token in it".into(),
            other => format!("mechanism {other:?} is not known; token is"),
        };
        Err(refuse(ErrorCode::NotAuthenticated, reason))
    }

    fn heartbeat(&mut self, link: LinkId, flags: u8) {
        let Some(session) = self.sessions.get_mut(&link) else {
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
        self.send(link, message);
    }

    /// Silence after which a sign of life is asked for: early enough for a
    /// member that has less time than its connection.
    fn patience(&self, session: &Session) -> Duration {
        let members = session.memberships.values();
        let members = members
            .filter_map(|(id, member)| self.shared.member(*id, *member))
            .map(|member| member.session_timeout() / 3);
        let heartbeat = self.ctx.options.limits.heartbeat;
        members.fold(heartbeat, Duration::min)
    }

    /// When the connection is to be looked at.
    pub(crate) fn arm_session(&mut self, link: LinkId) {
        let Some(session) = self.sessions.get(&link) else {
            return;
        };
        let heartbeat = self.ctx.options.limits.heartbeat;
        let at = match session.stage {
            Stage::Closing => return,
            Stage::New => session.since + self.ctx.options.limits.hello_timeout,
            Stage::Open { .. } if session.asked => {
                let again = self.ctx.now.monotonic + self.patience(session);
                again.min(session.last_heard + heartbeat * 2)
            }
            Stage::Open { .. } => session.last_heard + self.patience(session),
        };
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        match session.timer_at {
            // It comes early at worst, and then is armed again.
            Some(armed) if armed <= at => return,
            Some(armed) => self.ctx.timers.remove(armed, Timer::Session(link)),
            None => {}
        }
        session.timer_at = Some(at);
        self.ctx.timers.insert(at, Timer::Session(link));
    }

    pub(crate) fn session_timer(&mut self, link: LinkId) {
        let heartbeat = self.ctx.options.limits.heartbeat;
        let now = self.ctx.now.monotonic;
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        session.timer_at = None;
        let silence = now.saturating_sub(session.last_heard);
        match session.stage {
            Stage::Closing => return,
            Stage::New if now >= session.since + self.ctx.options.limits.hello_timeout => {
                let error = refuse(ErrorCode::DeadlinePassed, "no Hello came in time");
                self.end_session(link, 0, error);
                return;
            }
            Stage::New => {}
            Stage::Open { .. } if silence >= heartbeat * 2 => {
                let name = session.peer.address.clone();
                let reason = format!("nothing was heard from {name} for {silence:?}");
                self.ctx.report(format!("closing a connection: {reason}"));
                self.close_session(link, reason);
                return;
            }
            Stage::Open { .. } => self.ask_for_life(link, silence),
        }
        self.arm_session(link);
    }

    /// Asks for a sign of life, if nothing was heard for long enough.
    fn ask_for_life(&mut self, link: LinkId, silence: Duration) {
        let Some(session) = self.sessions.get(&link) else {
            return;
        };
        if silence >= self.patience(session) {
            self.ask_for_life_now(link);
        }
    }

    /// Asks for a sign of life, unless one was asked for and has not come.
    pub(crate) fn ask_for_life_now(&mut self, link: LinkId) {
        let Some(session) = self.sessions.get_mut(&link) else {
            return;
        };
        if std::mem::replace(&mut session.asked, true) {
            return;
        }
        let message = Message::control(FrameKind::Heartbeat, 0, Vec::new());
        self.send(link, message);
    }

    /// The namespace that a connection's names are in.
    pub(crate) fn namespace(&self, link: LinkId) -> &str {
        match self.sessions.get(&link).map(|session| &session.stage) {
            Some(Stage::Open { namespace, .. }) => namespace,
            _ => "",
        }
    }
}

/// Compares in a time that does not depend on where the bytes differ.
fn same(given: &[u8], token: &[u8; 32]) -> bool {
    if given.len() != token.len() {
        return false;
    }
    let differing = given.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differing) == 0
}
