//! A group or queue, and its members.
//!
//! What is here runs ahead of the table, as an answer of the overlay does: a member counts as
//! one, or as gone, from the moment that its record is submitted, and no client hears of it
//! before it is durable. When the overlay is rolled back, the table says how things are
//! ([`Shared::return_to_table`]).

use super::group::{Group, NOBODY, Portion};
use super::presence::{Member, Prefetch, Presence};
use crate::answer::{Answer, Delivery};
use crate::coordinator::commands::{Decided, JoinUnderWay};
use crate::coordinator::controller::ControlError;
use crate::coordinator::lent::Lent;
use crate::coordinator::table::SharedEntry;
use crate::ctx::Ctx;
use crate::effects::{Effect, QueueNotice};
use crate::faults::Fault;
use crate::ids::{LinkId, Membership, RequestId, SharedId};
use crate::refusal::{Refused, refuse};
use crate::request;
use crate::timers::Timer;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use topic::{GroupOptions, QueueOptions};
use wire::codec::Appended;
use wire::message::{Join, Joined, Lease, Release};
use wire::record::{
    AssignmentRecord, ConsumerDeletedRecord, ConsumerKind, ConsumerRecord, MemberRecord, Record,
};
use wire::{ErrorCode, ErrorReply, MemberId, PartitionIndex};

/// How long a command that was refused is not tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A timer that comes so late says that the server itself did not run: signs
/// of life may wait to be read.
const LATE: Duration = Duration::from_millis(200);

/// How soon a group or queue is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A group or queue.
#[derive(Debug)]
pub(crate) struct Shared {
    pub id: SharedId,
    /// Its name, topic, kind and options.
    pub record: ConsumerRecord,
    /// Who is present or away.
    pub members: BTreeMap<MemberId, Member>,
    /// What it shares out.
    kind: SharedKind,
    /// Whether its end is being recorded.
    pub deleting: bool,
    /// When a command may be tried again, after one was refused.
    retry_at: Option<Duration>,
    /// The timer that is armed.
    timer_at: Option<Duration>,
    /// Whether nobody was judged the last time, for the server itself had not run.
    spared: bool,
}

/// What a group or queue is, besides its members. What became of a queue's
/// events is with the queue itself.
#[derive(Debug)]
enum SharedKind {
    Group(Group),
    Queue(QueueOptions),
}

impl Shared {
    /// A group or queue without members. Options that this version does not
    /// know are taken for the default ones: what is recorded is served.
    pub fn new(id: SharedId, record: ConsumerRecord) -> Self {
        let kind = match record.kind {
            ConsumerKind::Queue => {
                SharedKind::Queue(QueueOptions::from_json(&record.options).unwrap_or_default())
            }
            ConsumerKind::Group | ConsumerKind::Independent => SharedKind::Group(Group::new(
                GroupOptions::from_json(&record.options).unwrap_or_default(),
            )),
        };
        Self {
            id,
            record,
            members: BTreeMap::new(),
            kind,
            deleting: false,
            retry_at: None,
            timer_at: None,
            spared: false,
        }
    }

    /// A group or queue as it was recorded before the start. Each member is away, and has
    /// its session timeout to come back.
    pub fn restored(id: SharedId, entry: &SharedEntry, ctx: &Ctx) -> Self {
        let mut shared = Self::new(id, entry.record.clone());
        for (member, record) in &entry.members {
            let timeout = Duration::from_millis(record.session_timeout_ms.into());
            let until = ctx.now.monotonic + timeout;
            let away = Member::away(record.clone(), until);
            shared.members.insert(*member, away);
        }
        if let SharedKind::Group(group) = &mut shared.kind {
            group.restore(&entry.owners);
            group.await_owners();
        }
        shared
    }

    pub fn is_queue(&self) -> bool {
        matches!(self.kind, SharedKind::Queue(_))
    }

    pub fn group(&self) -> Option<&Group> {
        match &self.kind {
            SharedKind::Group(group) => Some(group),
            SharedKind::Queue(_) => None,
        }
    }

    /// What a queue hears of its members; a group has none of it.
    fn notify_queue(&self, notice: QueueNotice, ctx: &mut Ctx) {
        if self.is_queue() {
            ctx.effects.push_back(Effect::Queue(self.id, notice));
        }
    }

    /// There is a queue: it was made, or is known from before the start. `awaited` are members
    /// of before, who may hold what looks free.
    pub fn queue_made(&self, awaited: BTreeSet<MemberId>, ctx: &mut Ctx) {
        if let SharedKind::Queue(options) = &self.kind {
            let options = options.clone();
            let made = QueueNotice::Made { options, awaited };
            self.notify_queue(made, ctx);
        }
    }

    /// It is here no more, for this reason. Memberships are for the caller to end.
    pub fn queue_ended(&self, error: ErrorReply, ctx: &mut Ctx) {
        self.notify_queue(QueueNotice::Ended(error), ctx);
    }

    /// Refuses a client that is no member, or none any more.
    pub fn check_member(&self, member: MemberId) -> Result<(), Refused> {
        match self.members.contains_key(&member) {
            true => Ok(()),
            false => Err(self.fenced(member)),
        }
    }

    /// What a caller is refused with that is no member.
    pub fn fenced(&self, member: MemberId) -> Refused {
        let (kind, consumer) = (self.record.kind, &self.record.consumer);
        refuse(
            ErrorCode::MemberFenced,
            format!("{member} is no member of {kind} {consumer:?} any more"),
        )
    }

    /// Refuses a member that does not own a partition of a group.
    pub fn check_owner(&self, member: MemberId, partition: PartitionIndex) -> Result<(), Refused> {
        let group = self.group();
        if group.is_some_and(|group| group.owns(member, partition)) {
            return Ok(());
        }
        let consumer = &self.record.consumer;
        Err(refuse(
            ErrorCode::MemberFenced,
            format!("{member} does not own partition {partition} in group {consumer:?}"),
        ))
    }

    /// How long those of the members that are awaited may take at most; 0 if none are.
    pub fn recovering_ms(&self, awaited: &BTreeSet<MemberId>, now: Duration) -> u32 {
        let members = awaited.iter().filter_map(|one| self.members.get(one));
        let left = members.map(|member| match member.presence {
            Presence::Away { until } => until.saturating_sub(now),
            // It comes back now; if that fails, it has its time once more.
            _ => member.session_timeout(),
        });
        let millis = |left: Duration| left.as_millis().clamp(1, u128::from(u32::MAX)) as u32;
        left.max().map_or(0, millis)
    }

    /// The same of a group, whose members hear of it with what they own.
    fn group_recovering_ms(&self, now: Duration) -> u32 {
        let group = self.group();
        group.map_or(0, |group| self.recovering_ms(group.awaited(), now))
    }

    /// A member of a queue may have so much unsettled from now on.
    pub fn set_prefetch(&mut self, member: MemberId, asked: &request::Prefetch, ctx: &mut Ctx) {
        let Some(state) = self.members.get_mut(&member) else {
            return;
        };
        state.prefetch = Prefetch {
            events: asked.events,
            bytes: asked.bytes,
            step_events: asked.step_events.into(),
            step_bytes: asked.step_bytes,
            inline_data: state.prefetch.inline_data,
        };
        if state.present().is_some() {
            self.notify_queue(QueueNotice::Present(member), ctx);
        }
    }

    /// Submits a change that no caller waits for.
    fn submit(&self, records: Vec<Record>, lent: &mut Lent<'_>) {
        if !records.is_empty() {
            lent.commands
                .submit(records, Decided::SharedChanged, lent.ctx);
        }
    }

    /// The records of partitions that have a new owner.
    fn record_owners(
        &self,
        partitions: Vec<PartitionIndex>,
        owner: MemberId,
        records: &mut Vec<Record>,
    ) {
        let record = |partition| {
            Record::Assignment(AssignmentRecord {
                topic: self.record.topic,
                consumer: self.record.consumer.clone(),
                partition,
                owner,
            })
        };
        records.extend(partitions.into_iter().map(record));
    }
}

/// Becoming a member.
impl Shared {
    /// Whether a group or queue that there is can have this member.
    pub fn check_join(&self, join: &Join, members_max: usize) -> Result<(), Refused> {
        let consumer = &join.consumer;
        let known = self.record.kind;
        if known != join.kind {
            return Err(refuse(
                ErrorCode::InvalidConsumer,
                format!("consumer {consumer:?} is a {known}, not a {}", join.kind),
            ));
        }
        if self.deleting {
            return Err(ErrorReply::retryable(
                ErrorCode::UnknownConsumer,
                50,
                format!("{known} {consumer:?} is being deleted"),
            ));
        }
        let holder = self.instance(&join.instance, join.member);
        if join.before != MemberId(0) && holder.is_some_and(|holder| holder != join.before) {
            return Err(refuse(
                ErrorCode::MemberFenced,
                format!(
                    "another member of {known} {consumer:?} has the instance name {:?} now",
                    join.instance
                ),
            ));
        }
        let is_known = self.members.contains_key(&join.member) || holder.is_some();
        if !is_known && self.members.len() >= members_max {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!("{known} {consumer:?} has {members_max} members (members_max)"),
            ));
        }
        Ok(())
    }

    /// Another member of this instance name.
    fn instance(&self, instance: &str, but: MemberId) -> Option<MemberId> {
        let mut members = self.members.iter();
        members
            .find(|(id, member)| {
                **id != but && !instance.is_empty() && member.record.instance == instance
            })
            .map(|(id, _)| *id)
    }

    /// Takes a member in, in the place of one of the same instance name; answered when that is
    /// durable. `records` are what made the group or queue, if it is new.
    pub fn join(
        &mut self,
        caller: RequestId,
        join: Join,
        mut records: Vec<Record>,
        lent: &mut Lent<'_>,
    ) {
        let grant = lent.ctx.next_id();
        self.replace_instance(&join, grant, &mut records, lent.ctx);
        self.admit(caller, &join, &mut records, lent);
        let under_way = JoinUnderWay {
            topic: self.record.topic,
            caller,
            id: self.id,
            member: join.member,
            held: join.held,
            grant,
        };
        // Even if nothing changes, the answer comes after what is under way.
        let decided = Decided::MemberJoined(under_way);
        lent.commands.submit(records, decided, lent.ctx);
        self.arm(lent);
    }

    /// A static member has come back as another: what its predecessor held is
    /// its own, in the same command.
    fn replace_instance(
        &mut self,
        join: &Join,
        grant: u64,
        records: &mut Vec<Record>,
        ctx: &mut Ctx,
    ) {
        let Some(old) = self.instance(&join.instance, join.member) else {
            return;
        };
        let Some(member) = self.members.remove(&old) else {
            return;
        };
        records.push(Record::Member(MemberRecord {
            is_member: false,
            ..member.record
        }));
        let instance = &join.instance;
        let error = refuse(
            ErrorCode::MemberFenced,
            format!("another member of the instance name {instance:?} has joined"),
        );
        match &mut self.kind {
            SharedKind::Queue(_) => self.queue_member_gone(old, true, ctx),
            SharedKind::Group(group) => {
                let inherited = group.inherit(old, join.member, grant);
                self.end_reading(member.presence, old, None, &error, ctx);
                self.record_owners(inherited, join.member, records);
            }
        }
        member.presence.end(&error, ctx);
    }

    /// Notes the member: from now on it is one, unless its record is refused.
    fn admit(
        &mut self,
        caller: RequestId,
        join: &Join,
        records: &mut Vec<Record>,
        lent: &mut Lent<'_>,
    ) {
        let record = MemberRecord {
            topic: self.record.topic,
            consumer: self.record.consumer.clone(),
            member: join.member,
            instance: join.instance.clone(),
            client_name: lent.sessions.client_name(caller.link).to_owned(),
            session_timeout_ms: join.session_timeout_ms,
            is_member: true,
        };
        let member = Member {
            record: record.clone(),
            presence: Presence::Joining(caller),
            prefetch: Prefetch::of(join),
        };
        let session_timeout = member.session_timeout();
        let before = self.members.insert(join.member, member);
        if before.as_ref().is_none_or(|before| before.record != record) {
            records.push(Record::Member(record));
        }
        let membership = Membership {
            shared: self.id,
            member: join.member,
            session_timeout,
        };
        let begun = Effect::MembershipBegun(caller, membership);
        lent.ctx.effects.push_back(begun);
        let Some(before) = before else {
            return;
        };
        let error = refuse(ErrorCode::Cancelled, "the member has joined anew");
        if before
            .presence
            .caller()
            .is_some_and(|before| before.link != caller.link)
        {
            self.end_reading(before.presence, join.member, None, &error, lent.ctx);
        }
        before.presence.end(&error, lent.ctx);
        if before.present().is_some() {
            self.notify_away(join.member, lent.ctx);
        }
    }

    /// A member's records are durable.
    pub fn joined(&mut self, under_way: JoinUnderWay, lent: &mut Lent<'_>) {
        let JoinUnderWay {
            caller,
            member,
            held,
            grant,
            ..
        } = under_way;
        if let SharedKind::Group(group) = &mut self.kind {
            group.grant_is_durable(grant);
        }
        let waits = lent.sessions.waits(caller);
        match self.members.get(&member).map(|state| state.presence) {
            Some(presence) if presence == Presence::Joining(caller) && waits => {}
            // Nobody waits for the answer: it has its time to ask again.
            Some(presence) if presence == Presence::Joining(caller) => {
                presence.forget(lent.ctx);
                self.member_away(member, lent);
                return;
            }
            // It left meanwhile, was replaced, or has joined once more.
            _ => {
                lent.ctx.refuse(caller, self.fenced(member));
                return;
            }
        }
        match self.is_queue() {
            // The queue says which of the leases are still the member's; then it is present.
            true => {
                let joined = QueueNotice::Joined {
                    member,
                    caller,
                    held,
                };
                self.notify_queue(joined, lent.ctx);
            }
            false => {
                let recovering_ms = self.group_recovering_ms(lent.ctx.now.monotonic);
                self.answer_join(caller, member, (Vec::new(), held), recovering_ms, lent);
            }
        }
    }

    /// Answers a member that has joined: which leases that it named are settled, and which are
    /// not its any more. From now on it is present.
    pub fn answer_join(
        &mut self,
        caller: RequestId,
        member: MemberId,
        (settled, expired): (Vec<Lease>, Vec<Lease>),
        recovering_ms: u32,
        lent: &mut Lent<'_>,
    ) {
        let joined = Joined {
            options: self.record.options.clone(),
            settled,
            expired,
            recovering_ms: Appended(recovering_ms),
        };
        lent.ctx.answer(caller, Answer::Joined(joined));
        // Not before its leases are sorted: what it does not name is given back.
        if let Some(state) = self.members.get_mut(&member) {
            state.presence = Presence::Present(caller);
        }
        self.member_is_present(member, lent);
    }

    /// A member's records were refused.
    pub fn join_refused(&mut self, caller: RequestId, member: MemberId, lent: &mut Lent<'_>) {
        let state = self.members.get(&member);
        if state.is_some_and(|state| state.presence.caller() == Some(caller)) {
            // It was one before; this try to come back has failed.
            self.member_away(member, lent);
        }
    }

    /// A command was refused, and with it whatever was under way: members and
    /// owners are again those of the table, but for partitions whose change of
    /// hands may be recorded after all. Nothing is submitted now: what the
    /// table lacks is tried again after a while.
    pub fn return_to_table(&mut self, entry: &SharedEntry, error: &ControlError, ctx: &mut Ctx) {
        self.deleting = false;
        let retry_at = ctx.now.monotonic + RETRY_AFTER;
        self.retry_at = Some(retry_at);
        let mut unknown = Vec::new();
        self.members.retain(|member, state| {
            let known = entry.members.contains_key(member);
            if !known {
                unknown.push((*member, state.presence));
            }
            known
        });
        for (member, record) in &entry.members {
            let away = || Member::away(record.clone(), retry_at);
            let state = self.members.entry(*member).or_insert_with(away);
            // One that joined anew with other options is known by its former ones: it has not
            // been recorded with those, and joins by the same again.
            state.record = record.clone();
        }
        if let SharedKind::Group(group) = &mut self.kind {
            match error {
                ControlError::Failed(..) | ControlError::Unknown(_) => {
                    group.restore_certain(&entry.owners);
                }
                ControlError::Full(..)
                | ControlError::NotLeader { .. }
                | ControlError::Apart(_)
                | ControlError::Refused(_) => {
                    group.restore(&entry.owners);
                }
            }
        }
        for (member, presence) in unknown {
            presence.forget(ctx);
            self.queue_member_gone(member, false, ctx);
        }
    }

    /// Submits the end of a group or queue that has no member.
    pub fn delete(&mut self, caller: RequestId, lent: &mut Lent<'_>) -> Result<(), Refused> {
        let (kind, consumer) = (self.record.kind, &self.record.consumer);
        let count = self.members.len();
        if count > 0 {
            return Err(refuse(
                ErrorCode::InvalidConsumer,
                format!("{kind} {consumer:?} has {count} members, present or away"),
            ));
        }
        if self.deleting {
            return Err(ErrorReply::retryable(
                ErrorCode::UnknownConsumer,
                50,
                format!("{kind} {consumer:?} is being deleted"),
            ));
        }
        // The ledger does not wait for the table: a cursor that is on its way there would be
        // answered as moved, of a consumer that is gone.
        let ahead = &lent.commands.ahead;
        if !ahead
            .cursor_partitions(self.record.topic, consumer)
            .is_empty()
        {
            return Err(ErrorReply::retryable(
                ErrorCode::InvalidConsumer,
                50,
                format!("a cursor of {kind} {consumer:?} is being moved"),
            ));
        }
        self.deleting = true;
        let record = ConsumerDeletedRecord {
            topic: self.record.topic,
            consumer: self.record.consumer.clone(),
        };
        let records = vec![Record::ConsumerDeleted(record)];
        let decided = Decided::ConsumerDeleted(caller, self.id);
        lent.commands.submit(records, decided, lent.ctx);
        Ok(())
    }
}

/// Members come back, fall silent, leave, and are gone.
impl Shared {
    /// A member leaves, or is made to.
    pub fn leave(&mut self, caller: RequestId, member: MemberId, lent: &mut Lent<'_>) {
        let error = refuse(ErrorCode::MemberFenced, "the member was made to leave");
        let state = self.members.get(&member);
        let presence = state.map(|state| state.presence);
        // One that leaves by itself does not hear that its membership has ended.
        if let Some(presence) = presence
            && let Some(own) = presence.caller()
            && own.link == caller.link
        {
            presence.forget(lent.ctx);
        }
        let records = self.remove_member(member, false, &error, lent.ctx);
        // One that is gone already has its answer when that is durable.
        let decided = Decided::Answered(caller);
        lent.commands.submit(records, decided, lent.ctx);
        self.share_out(lent);
    }

    /// Takes a member out; the records say so, when they are submitted.
    fn remove_member(
        &mut self,
        member: MemberId,
        counted: bool,
        error: &ErrorReply,
        ctx: &mut Ctx,
    ) -> Vec<Record> {
        let Some(state) = self.members.remove(&member) else {
            return Vec::new();
        };
        let mut records = vec![Record::Member(MemberRecord {
            is_member: false,
            ..state.record
        })];
        match &mut self.kind {
            SharedKind::Queue(_) => self.queue_member_gone(member, counted, ctx),
            SharedKind::Group(group) => {
                let freed = group.disown(member);
                self.end_reading(state.presence, member, None, error, ctx);
                self.record_owners(freed, NOBODY, &mut records);
            }
        }
        state.presence.end(error, ctx);
        records
    }

    fn queue_member_gone(&self, member: MemberId, counted: bool, ctx: &mut Ctx) {
        if self.is_queue() {
            let error = self.fenced(member);
            let gone = QueueNotice::Gone {
                member,
                counted,
                error,
            };
            self.notify_queue(gone, ctx);
        }
    }

    /// Ends what a member reads: all, or one partition.
    fn end_reading(
        &self,
        presence: Presence,
        member: MemberId,
        partition: Option<PartitionIndex>,
        error: &ErrorReply,
        ctx: &mut Ctx,
    ) {
        if let Some(caller) = presence.caller() {
            ctx.effects.push_back(Effect::EndReading {
                link: caller.link,
                of: ((self.id, member), partition),
                error: error.clone(),
            });
        }
    }

    /// A connection is gone, and with it a membership.
    pub fn membership_lost(&mut self, caller: RequestId, member: MemberId, lent: &mut Lent<'_>) {
        let state = self.members.get(&member);
        if state.is_some_and(|state| state.presence.caller() == Some(caller)) {
            self.member_away(member, lent);
        }
    }

    /// From now on the member has its session timeout to come back.
    fn member_away(&mut self, member: MemberId, lent: &mut Lent<'_>) {
        let now = lent.ctx.now.monotonic;
        let Some(state) = self.members.get_mut(&member) else {
            return;
        };
        let was_present = state.present().is_some();
        state.presence = Presence::Away {
            until: now + state.session_timeout(),
        };
        if was_present {
            self.notify_away(member, lent.ctx);
        }
        self.arm(lent);
    }

    /// Leases of these members have expired, the last one of each at that time. A member of which nothing was heard
    /// since may be suspended: it is given nothing more until it is heard of, or each event would be delivered to
    /// it again and again, until it is a dead letter that nobody has handled. It is asked for a sign of life at once:
    /// a client whose program is merely slow answers by itself.
    pub fn leases_lapsed(&mut self, lapsed: BTreeMap<MemberId, Duration>, lent: &mut Lent<'_>) {
        for (member, at) in lapsed {
            if lent.ctx.planted(Fault::ServeSuspended) {
                continue;
            }
            let Some(state) = self.members.get_mut(&member) else {
                continue;
            };
            let Presence::Present(caller) = state.presence else {
                continue;
            };
            let heard = lent.sessions.last_heard(caller.link);
            if heard.is_none_or(|heard| heard >= at) {
                continue;
            }
            state.presence = Presence::Silent(caller);
            let silent = Effect::MemberSilent(caller.link);
            lent.ctx.effects.push_back(silent);
            self.notify_away(member, lent.ctx);
            let ask = Effect::AskForLife(caller.link);
            lent.ctx.effects.push_back(ask);
        }
        self.arm(lent);
    }

    /// A member is not there any more to be given anything.
    fn notify_away(&self, member: MemberId, ctx: &mut Ctx) {
        self.notify_queue(QueueNotice::Away(member), ctx);
    }

    /// A member is there, anew or again.
    fn member_is_present(&mut self, member: MemberId, lent: &mut Lent<'_>) {
        match &mut self.kind {
            SharedKind::Queue(_) => {
                self.notify_queue(QueueNotice::Present(member), lent.ctx);
            }
            // It hears what it owns, whether anything is new or not.
            SharedKind::Group(group) => {
                group.member_present(member);
                self.balance(lent);
            }
        }
        self.arm(lent);
    }

    /// Something was heard on a connection on which a member may have fallen silent.
    pub fn member_heard(&mut self, link: LinkId, member: MemberId, lent: &mut Lent<'_>) {
        let Some(state) = self.members.get_mut(&member) else {
            return;
        };
        if let Presence::Silent(caller) = state.presence
            && caller.link == link
        {
            state.presence = Presence::Present(caller);
            self.member_is_present(member, lent);
        }
    }

    /// When one of the members is to be looked at.
    pub fn arm(&mut self, lent: &mut Lent<'_>) {
        let sessions = lent.sessions;
        let members = self.members.values().map(|member| {
            let timeout = member.session_timeout();
            let heard =
                |caller: RequestId| sessions.last_heard(caller.link).unwrap_or(Duration::ZERO);
            match member.presence {
                Presence::Joining(caller) | Presence::Silent(caller) => heard(caller) + timeout,
                Presence::Present(caller) => heard(caller) + timeout / 2,
                Presence::Away { until } => until,
            }
        });
        let revoked = self.group().and_then(Group::next_revoked);
        let Some(at) = members.chain(revoked).chain(self.retry_at).min() else {
            return;
        };
        // A little late is early enough, and spares looking at everybody for each.
        let at = at.max(lent.ctx.now.monotonic + LOOK_AGAIN);
        let at = self.retry_at.map_or(at, |retry_at| at.max(retry_at));
        let timer = Timer::Shared(self.id);
        match self.timer_at {
            // It comes early at worst, and then is armed again.
            Some(armed) if armed <= at => return,
            Some(armed) => lent.ctx.timers.remove(armed, timer),
            None => {}
        }
        self.timer_at = Some(at);
        lent.ctx.timers.insert(at, timer);
    }

    pub fn timer_came(&mut self, lent: &mut Lent<'_>) {
        let now = lent.ctx.now.monotonic;
        // At the end nothing changes any more; the next run goes on from here.
        if lent.drain.refuse_closing().is_err() {
            return;
        }
        let late = self
            .timer_at
            .take()
            .map_or(Duration::ZERO, |at| now.saturating_sub(at));
        // Once, so that one that is late all the time judges all the same.
        self.spared = late >= LATE && !self.spared;
        if self.spared {
            let at = now + LATE;
            self.timer_at = Some(at);
            lent.ctx.timers.insert(at, Timer::Shared(self.id));
            return;
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
        }
        let mut silent = Vec::new();
        let mut gone = Vec::new();
        for (member, state) in &mut self.members {
            let timeout = state.session_timeout();
            let silence = |caller: RequestId| {
                let heard = lent.sessions.last_heard(caller.link);
                heard.map_or(Duration::MAX, |heard| now - heard)
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
            lent.ctx.effects.push_back(Effect::MemberSilent(link));
            self.notify_away(member, lent.ctx);
        }
        for member in gone {
            self.member_gone(member, lent);
        }
        self.share_out(lent);
    }

    /// A member's session timeout has passed.
    fn member_gone(&mut self, member: MemberId, lent: &mut Lent<'_>) {
        let timeout = self.members.get(&member);
        let timeout = timeout.map_or(0, |state| state.record.session_timeout_ms);
        let error = refuse(
            ErrorCode::MemberFenced,
            format!("nothing was heard of the member for its session timeout ({timeout} ms)"),
        );
        let records = self.remove_member(member, true, &error, lent.ctx);
        self.submit(records, lent);
    }
}

/// Partitions of a group are granted, revoked and released.
impl Shared {
    /// A member gives partitions back.
    pub fn release(
        &mut self,
        caller: RequestId,
        release: &Release,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        self.check_member(release.member)?;
        let mut records = Vec::new();
        for partition in &release.partitions {
            // One that it does not own is released already: it asks again.
            let owner = self.group().and_then(|group| group.owner(*partition));
            if owner == Some(release.member) {
                let why = "the partition was released";
                self.take_away(*partition, why, &mut records, lent.ctx);
            }
        }
        let decided = Decided::Answered(caller);
        lent.commands.submit(records, decided, lent.ctx);
        self.share_out(lent);
        Ok(())
    }

    /// A partition is free; its owner reads it no more.
    fn take_away(
        &mut self,
        partition: PartitionIndex,
        why: &str,
        records: &mut Vec<Record>,
        ctx: &mut Ctx,
    ) {
        let SharedKind::Group(group) = &mut self.kind else {
            return;
        };
        let Some(owner) = group.free(partition) else {
            return;
        };
        self.record_owners(vec![partition], NOBODY, records);
        if let Some(member) = self.members.get(&owner) {
            let error = refuse(ErrorCode::MemberFenced, why);
            self.end_reading(member.presence, owner, Some(partition), &error, ctx);
        }
    }

    /// Who is there has changed, a time has passed, or there are more partitions: shares out anew.
    pub fn share_out(&mut self, lent: &mut Lent<'_>) {
        self.balance(lent);
        self.arm(lent);
    }

    /// Free partitions are granted, those that are to be
    /// elsewhere are revoked, those that were not released in time are lost.
    pub fn balance(&mut self, lent: &mut Lent<'_>) {
        if lent.drain.refuse_closing().is_err() {
            return;
        }
        let mut records = self.lose_overdue(lent.ctx);
        let grant = lent.ctx.next_id();
        let twice = lent.ctx.planted(Fault::GrantTwice);
        let topic = lent.topics.get(self.record.topic);
        let partitions = match topic {
            None => Portion::All(0),
            Some(topic) if topic.definition.part_of().is_some() && !topic.partitions.is_empty() => {
                Portion::OneOfMany(PartitionIndex(topic.first))
            }
            Some(topic) => Portion::All(topic.partitions.len() as u32),
        };
        let members: BTreeMap<MemberId, bool> = self
            .members
            .iter()
            .map(|(member, state)| (*member, state.present().is_some()))
            .collect();
        let SharedKind::Group(group) = &mut self.kind else {
            return;
        };
        let now = lent.ctx.now.monotonic;
        let granted = group.share_out(&members, partitions, grant, now, twice);
        let is_granted = !granted.is_empty();
        for (partition, member) in granted {
            self.record_owners(vec![partition], member, &mut records);
        }
        if is_granted {
            let decided = Decided::Granted(self.id, grant);
            lent.commands.submit(records, decided, lent.ctx);
        } else {
            self.submit(records, lent);
        }
        self.notify_assigned(lent.ctx);
        self.arm(lent);
    }

    /// Takes away what was not released in time.
    fn lose_overdue(&mut self, ctx: &mut Ctx) -> Vec<Record> {
        let Some(group) = self.group() else {
            return Vec::new();
        };
        let timeout = group.options.revoke_timeout_ms;
        let lost = group.overdue(ctx.now.monotonic);
        let mut records = Vec::new();
        let why =
            format!("the partition was not released within the revoke timeout ({timeout} ms)");
        for partition in lost {
            self.take_away(partition, &why, &mut records, ctx);
        }
        records
    }

    /// A grant is durable.
    pub fn granted(&mut self, grant: u64, lent: &mut Lent<'_>) {
        if let SharedKind::Group(group) = &mut self.kind {
            group.grant_is_durable(grant);
        }
        // Members that joined meanwhile may be meant to have some of it.
        self.balance(lent);
    }

    /// Notifies each member whose connection stands of what it owns, if that has changed.
    pub fn notify_assigned(&mut self, ctx: &mut Ctx) {
        let twice = ctx.planted(Fault::GrantTwice);
        let recovering_ms = self.group_recovering_ms(ctx.now.monotonic);
        let SharedKind::Group(group) = &mut self.kind else {
            return;
        };
        let members = self.members.iter();
        let standing = members.filter_map(|(member, state)| match state.presence {
            Presence::Present(caller) | Presence::Silent(caller) => Some((*member, caller)),
            Presence::Joining(_) | Presence::Away { .. } => None,
        });
        for (caller, assigned) in group.news(standing, recovering_ms, twice) {
            ctx.deliver(caller, Delivery::Assigned(assigned));
        }
    }
}
