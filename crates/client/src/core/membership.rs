//! One membership of a group or queue, kept through lost connections.
//!
//! ```text
//!           join                answered
//!  apart ─────────► joining ─────────────► present
//!    ▲                 │                      │
//!    └─────────────────┴──────────────────────┘ the connection is lost, or the
//!                                               server says to come back later
//! ```
//!
//! From everywhere it may be *over*: the program left, was away for too long,
//! or the server has ended it for good. A member that was expelled begins anew
//! as another one, apart.

use super::retry;
use super::wire_session::{Request, Route, Timer, Wire};
use crate::standing::Hindrance;
use bytes::Bytes;
use std::time::Duration;
use wire::codec::Codec;
use wire::message::{Join, Joined, Lease, Leave, Method, Start};
use wire::record::ConsumerKind;
use wire::{ErrorCode, ErrorReply, MemberId, TopicId};

/// So many signs of life are given in a session timeout.
const SIGNS_PER_TIMEOUT: u32 = 4;
/// So often in a processing timeout it is looked whether the program came.
const LOOKS_PER_TIMEOUT: u32 = 4;

/// What a member says of itself when it joins.
pub(super) struct Terms {
    pub topic: TopicId,
    pub consumer: String,
    pub kind: ConsumerKind,
    pub options: String,
    pub start: Start,
    pub instance: String,
    pub session_timeout: Duration,
    pub processing_timeout: Option<Duration>,
    pub prefetch_events: u32,
    pub prefetch_bytes: u64,
    pub inline_data: bool,
    /// What its ids are made from: chance.
    pub seed: u128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not before this, if the server asked for it.
    Apart(Option<Duration>),
    Joining(u64),
    Present(u64),
    Over,
}

/// What is to be done about the end of a membership.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It joins again by itself, and holds what it held.
    Interrupted,
    /// What it held is not its any more; it is to begin anew.
    Expelled,
    /// It is over for good.
    Refused(ErrorReply),
}

pub(super) struct Membership {
    terms: Terms,
    /// The consumer, in routes and timers.
    key: u64,
    timer: Timer,
    pub member: MemberId,
    /// Who it was when it joined last.
    before: MemberId,
    /// How many members it has been.
    lives: u64,
    phase: Phase,
    /// Since when it is apart, after it was present.
    away_since: Option<Duration>,
    /// Why the server did not let it in, when it was to come back later.
    refusal: Option<ErrorReply>,
    /// When the next sign of life is due, and the next look for the program.
    sign_at: Duration,
    look_at: Duration,
    /// Visits of the program at the last look, and looks since one.
    visits: u64,
    quiet_looks: u32,
}

impl Membership {
    pub fn new(wire: &mut Wire<'_>, terms: Terms, key: u64, timer: Timer) -> Self {
        let now = wire.now();
        let mut membership = Self {
            member: member_id(terms.seed, 0),
            terms,
            key,
            timer,
            before: MemberId(0),
            lives: 0,
            phase: Phase::Apart(None),
            away_since: None,
            refusal: None,
            sign_at: now,
            look_at: now,
            visits: 0,
            quiet_looks: 0,
        };
        membership.sign_later(wire);
        membership.look_later(wire);
        membership
    }

    pub fn is_present(&self) -> bool {
        matches!(self.phase, Phase::Present(_))
    }

    /// What keeps it from being a member now, if something does.
    pub fn hindrance(&self, wire: &Wire<'_>) -> Option<Hindrance> {
        wire.hindrance().or_else(|| match &self.refusal {
            _ if self.is_present() => None,
            Some(refusal) => Some(Hindrance::of_refusal(refusal)),
            None => Some(Hindrance::Unanswered),
        })
    }

    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether a message of this id is of this membership.
    pub fn is_its(&self, id: u64) -> bool {
        matches!(self.phase, Phase::Joining(its) | Phase::Present(its) if its == id)
    }

    /// Joins, if that can be now. `held` is what it has from before.
    pub fn join(&mut self, wire: &mut Wire<'_>, held: impl FnOnce() -> Vec<Lease>) {
        let Phase::Apart(not_before) = self.phase else {
            return;
        };
        if !wire.is_up() || not_before.is_some_and(|at| at > wire.now()) {
            return;
        }
        let millis = |time: Duration| time.as_millis().min(u128::from(u32::MAX)) as u32;
        let terms = &self.terms;
        let join = Join {
            consumer: terms.consumer.clone(),
            kind: terms.kind,
            options: terms.options.clone(),
            start: terms.start,
            member: self.member,
            before: self.before,
            instance: terms.instance.clone(),
            session_timeout_ms: millis(terms.session_timeout),
            prefetch_events: terms.prefetch_events,
            prefetch_bytes: terms.prefetch_bytes,
            inline_data: terms.inline_data,
            held: held(),
        };
        let route = Route::Membership { consumer: self.key };
        let id = self.request(wire, route, Method::Join, &join.to_bytes());
        self.phase = Phase::Joining(id);
    }

    /// A request about the consumer.
    pub fn request(&self, wire: &mut Wire<'_>, route: Route, method: Method, body: &[u8]) -> u64 {
        wire.request(route, self.about(method, body))
    }

    /// [`Membership::request`], not sent.
    pub fn about<'a>(&self, method: Method, body: &'a [u8]) -> Request<'a> {
        Request {
            method,
            topic: self.terms.topic,
            leader_epoch: 0,
            remaining: retry::REQUEST_TIMEOUT,
            body,
            payload: Vec::new(),
            is_quiet: false,
        }
    }

    /// The answer to Join.
    pub fn answered(
        &mut self,
        wire: &mut Wire<'_>,
        id: u64,
        outcome: Result<Bytes, ErrorReply>,
    ) -> Result<Option<Joined>, End> {
        if self.phase != Phase::Joining(id) {
            return Ok(None);
        }
        let malformed =
            |error: wire::DecodeError| ErrorReply::fatal(ErrorCode::Malformed, error.to_string());
        let joined =
            outcome.and_then(|head| Joined::from_bytes("joined", &head).map_err(malformed));
        match joined {
            Ok(joined) => {
                self.phase = Phase::Present(id);
                self.away_since = None;
                self.refusal = None;
                self.before = self.member;
                Ok(Some(joined))
            }
            Err(error) => Err(self.ended(wire, error)),
        }
    }

    /// The membership was ended, or refused.
    pub fn ended(&mut self, wire: &mut Wire<'_>, error: ErrorReply) -> End {
        if self.is_over() {
            return End::Interrupted;
        }
        if retry::is_for_now(&error) {
            let at = wire.now() + retry::STANDING.after(&error);
            self.phase = Phase::Apart(Some(at));
            self.arm(wire, at);
            self.refusal = Some(error);
            return End::Interrupted;
        }
        // One whose instance name a successor has is refused when it joins.
        let is_static = !self.terms.instance.is_empty();
        if error.code == ErrorCode::MemberFenced && (self.is_present() || !is_static) {
            self.begin_anew(wire);
            return End::Expelled;
        }
        self.phase = Phase::Over;
        End::Refused(error)
    }

    /// Asks for nothing more: it joins anew, as the member that it is, with a
    /// prefetch of nothing. What it holds stays its own.
    pub fn want_nothing(&mut self, wire: &mut Wire<'_>) {
        self.terms.prefetch_events = 0;
        if let Phase::Joining(id) | Phase::Present(id) = self.phase {
            wire.end_route(id);
            self.phase = Phase::Apart(None);
        }
    }

    /// From now on it is another member, which has not joined.
    pub fn begin_anew(&mut self, wire: &mut Wire<'_>) {
        // They may have passed while it was over.
        self.sign_later(wire);
        self.look_later(wire);
        self.quiet_looks = 0;
        self.lives += 1;
        self.member = member_id(self.terms.seed, self.lives);
        self.phase = Phase::Apart(None);
        self.away_since = None;
    }

    pub fn disconnected(&mut self, now: Duration) {
        if self.is_present() {
            self.away_since = Some(now);
        }
        if matches!(self.phase, Phase::Joining(_) | Phase::Present(_)) {
            self.phase = Phase::Apart(None);
        }
    }

    /// Whether it was away for so long that it counts as expelled.
    pub fn is_forgotten(&self, now: Duration) -> bool {
        let timeout = self.terms.session_timeout;
        let since = self.away_since;
        since.is_some_and(|since| now >= since + timeout)
    }

    /// Ends the membership by itself. Says whether an answer will come, to `route`.
    pub fn leave(&mut self, wire: &mut Wire<'_>, route: Route) -> bool {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let (Phase::Joining(id) | Phase::Present(id)) = phase else {
            return false;
        };
        wire.end_route(id);
        if !wire.is_up() {
            return false;
        }
        let leave = Leave {
            consumer: self.terms.consumer.clone(),
            member: self.member,
        };
        self.request(wire, route, Method::Leave, &leave.to_bytes());
        true
    }

    fn arm(&self, wire: &mut Wire<'_>, at: Duration) {
        wire.context.arm(at, self.timer);
    }

    fn sign_later(&mut self, wire: &mut Wire<'_>) {
        self.sign_at = wire.now() + self.terms.session_timeout / SIGNS_PER_TIMEOUT;
        self.arm(wire, self.sign_at);
    }

    fn look_later(&mut self, wire: &mut Wire<'_>) {
        if let Some(timeout) = self.terms.processing_timeout {
            self.look_at = wire.now().saturating_add(timeout / LOOKS_PER_TIMEOUT);
            self.arm(wire, self.look_at);
        }
    }

    /// Time has passed: signs of life are given, and the program is looked
    /// for: `visits` says how often it came, and whether it is there now.
    /// Says why the member is to leave, if it stayed away for too long.
    pub fn timer(&mut self, wire: &mut Wire<'_>, visits: (u64, bool)) -> Option<ErrorReply> {
        let now = wire.now();
        if now >= self.sign_at && !self.is_over() {
            // Half of the timeout without a sign, and the server holds back
            // what is for this member.
            if self.is_present() && wire.is_up() {
                wire.ask_for_life();
            }
            self.sign_later(wire);
        }
        let timeout = self.terms.processing_timeout?;
        if now < self.look_at || self.is_over() {
            return None;
        }
        self.look_later(wire);
        let (count, is_there) = visits;
        let is_quiet = count == self.visits && !is_there && self.is_present();
        self.visits = count;
        self.quiet_looks = if is_quiet { self.quiet_looks + 1 } else { 0 };
        if self.quiet_looks < LOOKS_PER_TIMEOUT {
            return None;
        }
        self.quiet_looks = 0;
        Some(ErrorReply::fatal(
            ErrorCode::MemberFenced,
            format!(
                "the program stayed away from consumer {} for longer than its processing \
                 timeout ({:.1} s), and so it has left; what it held goes to others",
                self.terms.consumer,
                timeout.as_secs_f64()
            ),
        ))
    }
}

/// The id of a member in its `life`, as good as chance. In all lives it begins alike: members that share several topics one by one
/// are so in one order everywhere, whichever of them has begun anew where.
fn member_id(seed: u128, life: u64) -> MemberId {
    let high = mix((seed >> 64) as u64 ^ mix(seed as u64));
    let low = mix(seed as u64 ^ mix(life));
    MemberId((u128::from(high) << 64 | u128::from(low)).max(1))
}

/// The finalizer of splitmix64: every bit depends on every bit.
fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
