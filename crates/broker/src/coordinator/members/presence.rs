//! Members come back, fall silent, leave, and are gone.

use crate::coordinator::commands::Decided;
use crate::coordinator::members::shared::{Presence, Shared};
use crate::faults::Fault;
use crate::ids::SharedId;
use crate::ids::{LinkId, RequestId};
use crate::node::Node;
use crate::refusal::{Refused, refuse};
use crate::session::Membership;
use crate::timers::Timer;
use net::{Lane, Message};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::{ConsumerKind, MemberRecord, Record};
use wire::{Codec, ErrorCode, ErrorReply, MemberId, TopicId};

/// A timer that comes so late says that the server itself did not run: signs
/// of life may wait to be read.
const LATE: Duration = Duration::from_millis(200);

/// How soon a group or queue is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Node {
    pub(crate) fn leave(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        Leave { consumer, member }: Leave,
    ) -> Result<(), Refused> {
        self.drain.refuse_closing()?;
        self.topics
            .of(self.sessions.namespace(caller.link), topic)?;
        let kind = match self.shared.named(topic, &consumer) {
            Some(id) => self.shared.get(id).map(|shared| shared.record.kind),
            None => None,
        };
        let kind = kind.unwrap_or(ConsumerKind::Group);
        let id = self.shared_named(caller, topic, &consumer, kind)?;
        let error = refuse(ErrorCode::MemberFenced, "the member was made to leave");
        let own = self.shared.member(id, member).and_then(|state| {
            let membership = state.presence.caller()?;
            (membership.link == caller.link).then_some(state.presence)
        });
        // Whoever leaves by himself is not told that his membership has ended.
        if let Some(presence) = own {
            self.forget_membership(presence);
        }
        let records = self.remove_member(id, member, false, &error);
        // One that is gone already has its answer when that is durable.
        self.submit(records, Decided::SharedAnswer(caller, id));
        self.after_members(id);
        Ok(())
    }

    /// Takes a member out; the records say so, when they are submitted.
    fn remove_member(
        &mut self,
        id: SharedId,
        member: MemberId,
        counted: bool,
        error: &ErrorReply,
    ) -> Vec<Record> {
        let Some(shared) = self.shared.get_mut(id) else {
            return Vec::new();
        };
        let Some(state) = shared.members.remove(&member) else {
            return Vec::new();
        };
        let mut records = vec![Record::Member(MemberRecord {
            is_member: false,
            ..state.record
        })];
        if shared.is_queue() {
            self.queue_member_gone(id, member, counted);
        } else {
            self.end_reading(state.presence, (id, member), error);
            self.disown(id, member, &mut records);
        }
        self.end_membership(state.presence, error);
        records
    }

    /// Ends a membership on its connection, which is told.
    pub(crate) fn end_membership(&mut self, presence: Presence, error: &ErrorReply) {
        let Some(caller) = presence.caller() else {
            return;
        };
        let Some(session) = self.sessions.get_mut(caller.link) else {
            return;
        };
        if session.memberships.remove(&caller.id).is_none() {
            return;
        }
        // One that waits for its answer is told by that.
        if session.requests.is_open(caller.id) {
            return;
        }
        let message = Message {
            lane: Lane::Bulk,
            ..Message::control(FrameKind::Ended, caller.id, error.to_bytes())
        };
        self.send(caller.link, message);
    }

    /// Ends what a member reads.
    pub(super) fn end_reading(
        &mut self,
        presence: Presence,
        member: (SharedId, MemberId),
        error: &ErrorReply,
    ) {
        if let Some(caller) = presence.caller() {
            self.end_scoped(caller.link, member, None, error);
        }
    }

    /// A connection is gone, and with it a membership.
    pub(crate) fn membership_lost(&mut self, caller: RequestId, id: SharedId, member: MemberId) {
        let state = self.shared.member(id, member);
        if state.is_some_and(|state| state.presence.caller() == Some(caller)) {
            self.member_away(id, member);
        }
    }

    /// From now on the member has its session timeout to come back.
    pub(super) fn member_away(&mut self, id: SharedId, member: MemberId) {
        let now = self.ctx.now.monotonic;
        let Some(state) = self.shared.member_mut(id, member) else {
            return;
        };
        let was_present = state.present().is_some();
        state.presence = Presence::Away {
            until: now + state.session_timeout(),
        };
        if was_present {
            self.tell_away(id, member);
        }
        self.arm_shared(id);
    }

    /// Leases of these members have expired, the last one of each at that time. A member of which nothing was heard
    /// since may be suspended: it is given nothing more until it is heard of, or each event would be delivered to
    /// it again and again, until it is a dead letter that nobody has handled. It is asked for a sign of life at once:
    /// a client whose program is merely slow answers by itself.
    pub(crate) fn leases_lapsed(&mut self, id: SharedId, lapsed: BTreeMap<MemberId, Duration>) {
        for (member, at) in lapsed {
            if self.ctx.planted(Fault::ServeSuspended) {
                continue;
            }
            let Some(state) = self.shared.member_mut(id, member) else {
                continue;
            };
            let Presence::Present(caller) = state.presence else {
                continue;
            };
            let Some(session) = self.sessions.get_mut(caller.link) else {
                continue;
            };
            if session.last_heard >= at {
                continue;
            }
            state.presence = Presence::Silent(caller);
            session.silent_members = true;
            self.tell_away(id, member);
            self.arm_shared(id);
            self.sessions.ask_for_life(caller.link, &mut self.ctx);
        }
    }

    /// A member is not there any more to be given anything.
    pub(super) fn tell_away(&mut self, id: SharedId, member: MemberId) {
        if self.shared.get(id).is_some_and(Shared::is_queue) {
            self.queue_member_away(id, member);
        }
    }

    /// A member is there, anew or again.
    pub(super) fn member_is_present(&mut self, id: SharedId, member: MemberId) {
        match self.shared.get(id).map(Shared::is_queue) {
            Some(true) => self.queue_member_present(id, member),
            Some(false) => self.group_member_present(id, member),
            None => {}
        }
        self.arm_shared(id);
    }

    /// Something was heard on a connection on which members had fallen silent.
    pub(crate) fn members_heard(&mut self, link: LinkId) {
        let Some(session) = self.sessions.get_mut(link) else {
            return;
        };
        session.silent_members = false;
        let memberships: Vec<_> = session.memberships.values().copied().collect();
        for Membership {
            shared: id, member, ..
        } in memberships
        {
            let Some(state) = self.shared.member_mut(id, member) else {
                continue;
            };
            if let Presence::Silent(caller) = state.presence
                && caller.link == link
            {
                state.presence = Presence::Present(caller);
                self.member_is_present(id, member);
            }
        }
    }

    /// When somebody of a group or queue is to be looked at.
    pub(crate) fn arm_shared(&mut self, id: SharedId) {
        let Some(shared) = self.shared.get(id) else {
            return;
        };
        let sessions = &self.sessions;
        let members = shared.members.values().map(|member| {
            let timeout = member.session_timeout();
            let heard = |caller: RequestId| {
                let session = sessions.get(caller.link);
                session.map_or(Duration::ZERO, |session| session.last_heard)
            };
            match member.presence {
                Presence::Joining(caller) | Presence::Silent(caller) => heard(caller) + timeout,
                Presence::Present(caller) => heard(caller) + timeout / 2,
                Presence::Away { until } => until,
            }
        });
        let revoked = shared
            .group()
            .and_then(crate::coordinator::members::group::Group::next_revoked);
        let Some(at) = members.chain(revoked).chain(shared.retry_at).min() else {
            return;
        };
        // A little late is early enough, and spares looking at everybody for each.
        let at = at.max(self.ctx.now.monotonic + LOOK_AGAIN);
        let at = shared.retry_at.map_or(at, |retry_at| at.max(retry_at));
        let Some(shared) = self.shared.get_mut(id) else {
            return;
        };
        match shared.timer_at {
            // It comes early at worst, and then is armed again.
            Some(armed) if armed <= at => return,
            Some(armed) => self.ctx.timers.remove(armed, Timer::Shared(id)),
            None => {}
        }
        shared.timer_at = Some(at);
        self.ctx.timers.insert(at, Timer::Shared(id));
    }

    pub(crate) fn shared_timer(&mut self, id: SharedId) {
        let now = self.ctx.now.monotonic;
        // At the end nothing changes any more; the next run goes on from here.
        if self.drain.refuse_closing().is_err() {
            return;
        }
        let Some(shared) = self.shared.get_mut(id) else {
            return;
        };
        let late = shared
            .timer_at
            .take()
            .map_or(Duration::ZERO, |at| now.saturating_sub(at));
        // Once, so that one that is late all the time judges all the same.
        shared.spared = late >= LATE && !shared.spared;
        if shared.spared {
            let at = now + LATE;
            shared.timer_at = Some(at);
            self.ctx.timers.insert(at, Timer::Shared(id));
            return;
        }
        if shared.retry_at.is_some_and(|at| at <= now) {
            shared.retry_at = None;
        }
        let mut silent = Vec::new();
        let mut gone = Vec::new();
        for (member, state) in &mut shared.members {
            let timeout = state.session_timeout();
            let silence = |caller: RequestId| {
                let session = self.sessions.get(caller.link);
                session.map_or(Duration::MAX, |session| now - session.last_heard)
            };
            match state.presence {
                Presence::Away { until } if until <= now => gone.push(*member),
                Presence::Away { .. } => {}
                Presence::Joining(caller)
                | Presence::Present(caller)
                | Presence::Silent(caller)
                    if silence(caller) >= timeout =>
                {
                    gone.push(*member);
                }
                Presence::Present(caller) if silence(caller) >= timeout / 2 => {
                    state.presence = Presence::Silent(caller);
                    silent.push((*member, caller.link));
                }
                _ => {}
            }
        }
        for (member, link) in silent {
            if let Some(session) = self.sessions.get_mut(link) {
                session.silent_members = true;
            }
            self.tell_away(id, member);
        }
        for member in gone {
            self.member_gone(id, member);
        }
        self.after_members(id);
    }

    /// A member's session timeout has passed.
    fn member_gone(&mut self, id: SharedId, member: MemberId) {
        let timeout = self.shared.member(id, member);
        let timeout = timeout.map_or(0, |state| state.record.session_timeout_ms);
        let error = refuse(
            ErrorCode::MemberFenced,
            format!("nothing was heard of the member for its session timeout ({timeout} ms)"),
        );
        let records = self.remove_member(id, member, true, &error);
        self.submit_shared(id, records);
    }

    /// Who is there has changed, or a time has passed: shares out anew.
    pub(super) fn after_members(&mut self, id: SharedId) {
        self.balance_group(id);
        self.arm_shared(id);
    }
}
