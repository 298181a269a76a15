//! A queue that serves: its parts, and when it is to be looked at again.

use super::awaited::Awaited;
use super::core::{Lent, QueueCore};
use super::dead_letter::DeadLetters;
use super::partition::Rules;
use super::serve::Serving;
use super::settle::{self, Settling};
use crate::coordinator::controller::ControlError;
use crate::coordinator::members::shared::Shared;
use crate::coordinator::table::Table;
use crate::ctx::Ctx;
use crate::effects::QueueNotice;
use crate::ids::{RequestId, SharedId};
use crate::refusal::Refused;
use crate::request::QueueRequest;
use crate::timers::Timer;
use log::{Found, StorageError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use topic::QueueOptions;
use wire::message::{ExtendLeases, Lease, Settle};
use wire::{ErrorReply, MemberId, Offset, PartitionIndex};

/// One queue of this run of the server. Its parts are lent its core for an act.
pub(crate) struct Queue {
    pub core: QueueCore,
    awaited: Awaited,
    serving: Serving,
    settling: Settling,
    letters: DeadLetters,
    /// The timer that is armed.
    timer_at: Option<Duration>,
}

impl Queue {
    /// There is a queue: it was made, or is known from before the start, when these members are
    /// awaited. Its record may not be durable yet.
    pub fn new(
        id: SharedId,
        shared: &Shared,
        options: QueueOptions,
        awaited: BTreeSet<MemberId>,
        ctx: &mut Ctx,
    ) -> Self {
        // What came to nothing before the start goes on by itself.
        ctx.timers.insert(ctx.now.monotonic, Timer::Queue(id));
        Self {
            core: QueueCore::new(id, shared, options),
            awaited: Awaited::new(awaited),
            serving: Serving::new(),
            settling: Settling::default(),
            letters: DeadLetters::default(),
            timer_at: None,
        }
    }

    pub fn timer_came(&mut self, ctx: &mut Ctx) {
        self.timer_at = None;
        self.core.touch(ctx);
    }

    /// Ends leases whose time has passed. Returns whose, and when the last one of each ended.
    pub fn expire(&mut self, lent: &mut Lent<'_>) -> BTreeMap<MemberId, Duration> {
        let queue = &mut self.core;
        queue.open_partitions(lent);
        let rules = Rules {
            expired_too: false,
            ..queue.rules(lent.ctx)
        };
        for shelf in queue.partitions.values_mut() {
            shelf.state.expire(&rules, &mut queue.loads);
            if self.awaited.is_empty() && !std::mem::replace(&mut shelf.is_swept, true) {
                shelf.state.bury_spent(&rules);
            }
        }
        queue.loads.take_lapsed()
    }

    /// Lets everything take effect that has happened to the queue.
    pub fn advance(&mut self, lent: &mut Lent<'_>) {
        let queue = &mut self.core;
        self.serving.serve(!self.awaited.is_empty(), queue, lent);
        // Behind the first events, if they are cached.
        self.awaited.tell_recovered(queue, lent);
        DeadLetters::write(queue, lent);
        self.settling.record(queue, lent);
        self.arm(lent);
    }

    /// It is here no more: those who wait hear why.
    pub fn end(self, error: &ErrorReply, ctx: &mut Ctx) {
        ctx.dirty.queues.remove(&self.core.id);
        for answers in self.settling.answers.into_values() {
            for caller in answers.callers() {
                ctx.refuse(caller, error.clone());
            }
        }
    }

    /// Settlements wait for others no more.
    pub fn hurry(&mut self, ctx: &mut Ctx) {
        self.settling.quiet_until = Duration::ZERO;
        self.core.touch(ctx);
    }

    /// Does what a member asks for. `is_quiet` says that nobody hurries for the answer.
    pub fn ask(
        &mut self,
        caller: RequestId,
        request: QueueRequest,
        is_quiet: bool,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        match request {
            QueueRequest::Settle(settle) => self.settle_leases(caller, settle, is_quiet, ctx),
            QueueRequest::ExtendLeases(extend) => {
                self.extend_leases(caller, &extend, ctx);
                Ok(())
            }
        }
    }

    /// Settles leases of a member; answered when that is durable.
    fn settle_leases(
        &mut self,
        caller: RequestId,
        settle: Settle,
        is_quiet: bool,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let rates = &mut self.serving.service_rates;
        self.settling
            .settle_leases(caller, settle, is_quiet, rates, &mut self.core, ctx)
    }

    /// Extends leases of a member.
    pub fn extend_leases(&mut self, caller: RequestId, extend: &ExtendLeases, ctx: &mut Ctx) {
        settle::extend_leases(caller, extend, &mut self.core, ctx);
    }

    /// A command of the queue is durable, or was refused. Returns the partitions in which the
    /// queue may have moved.
    pub fn recorded(
        &mut self,
        result: Result<(), ControlError>,
        table: &Table,
        ctx: &mut Ctx,
    ) -> Vec<PartitionIndex> {
        self.settling.recorded(result, table, &mut self.core, ctx)
    }

    /// What was read for a queue has come.
    pub fn was_read(
        &mut self,
        index: PartitionIndex,
        range: (Offset, Offset),
        found: Result<Found, StorageError>,
        ctx: &mut Ctx,
    ) {
        self.serving
            .was_read(index, range, found, &mut self.core, ctx);
    }

    /// The event of a dead letter was read.
    pub fn letter_read(
        &mut self,
        index: PartitionIndex,
        found: Result<Found, StorageError>,
        lent: &mut Lent<'_>,
    ) {
        self.letters.letter_read(index, found, &mut self.core, lent);
    }

    /// A dead letter is as durable as its topic promises, or can't be written.
    pub fn letter_ended(
        &mut self,
        index: PartitionIndex,
        append: u64,
        result: &Result<(), ErrorReply>,
        ctx: &mut Ctx,
    ) {
        match result {
            Ok(()) => self.letter_stored(index, append, ctx),
            Err(error) => self.letter_failed(index, &error.message, ctx),
        }
    }

    /// A dead letter is as durable as its topic promises.
    fn letter_stored(&mut self, index: PartitionIndex, append: u64, ctx: &mut Ctx) {
        self.letters
            .letter_stored(index, append, &mut self.core, ctx);
    }

    /// The data of a dead letter's event is damaged where it is stored.
    pub fn letter_data_lost(&mut self, index: PartitionIndex, why: &str, ctx: &mut Ctx) {
        DeadLetters::letter_data_lost(index, why, &mut self.core, ctx);
    }

    /// A dead letter can't be written now.
    fn letter_failed(&mut self, index: PartitionIndex, error: &str, ctx: &mut Ctx) {
        self.letters
            .letter_failed(index, error, &mut self.core, ctx);
    }

    /// A member has joined, durably, and names the leases that it holds: which
    /// of them are settled, and which are not its any more; and how long members of before the
    /// start are awaited at most, 0 if none are. It is present when
    /// [`Queue::member_present`] follows, behind the answer.
    pub fn member_joined(
        &mut self,
        member: MemberId,
        caller: RequestId,
        held: &[Lease],
        lent: &mut Lent<'_>,
    ) -> ((Vec<Lease>, Vec<Lease>), u32) {
        let leases = self.awaited.joined(member, held, &mut self.core, lent);
        (leases, self.awaited.tell_recovering(member, caller, lent))
    }

    /// Members of before the start that have not come back yet: nothing is given out while there
    /// are any.
    pub fn awaited(&self) -> &BTreeSet<MemberId> {
        self.awaited.members()
    }

    /// A member is there to be given events: it has joined, or was heard of again.
    fn member_present(&mut self, member: MemberId, ctx: &mut Ctx) {
        self.serving.members_changed = true;
        self.member_has_room(member, ctx);
    }

    /// A member may have room for events, or its connection has.
    pub fn member_has_room(&mut self, member: MemberId, ctx: &mut Ctx) {
        self.serving.ready.insert(member);
        self.core.touch(ctx);
    }

    /// A member is not there to be given anything, but keeps what it has.
    fn member_away(&mut self, member: MemberId, ctx: &mut Ctx) {
        self.serving.members_changed = true;
        self.serving.ready.remove(&member);
        self.serving.little.remove(&member);
        self.core.touch(ctx);
    }

    /// A member is gone: what it had waits again. `counted` says whether that
    /// counts as a delivery; `error` is for those of its settlements that are not answered.
    fn member_gone(&mut self, member: MemberId, counted: bool, error: &ErrorReply, ctx: &mut Ctx) {
        self.awaited.forget(member);
        self.serving.members_changed = true;
        self.serving.service_rates.remove(&member);
        self.serving.little.remove(&member);
        let queue = &mut self.core;
        let rules = queue.rules(ctx);
        for shelf in queue.partitions.values_mut() {
            let loads = &mut queue.loads;
            shelf.state.member_gone(member, counted, &rules, loads);
        }
        let answers = self.settling.answers.remove(&member);
        for caller in answers.into_iter().flat_map(|answers| answers.callers()) {
            ctx.refuse(caller, error.clone());
        }
        queue.touch(ctx);
    }

    /// Something has happened to a member.
    pub fn hear_of_member(&mut self, notice: &QueueNotice, ctx: &mut Ctx) {
        match notice {
            QueueNotice::Present(member) => self.member_present(*member, ctx),
            QueueNotice::Away(member) => self.member_away(*member, ctx),
            QueueNotice::Gone {
                member,
                counted,
                error,
            } => self.member_gone(*member, *counted, error, ctx),
            QueueNotice::Made { .. }
            | QueueNotice::Ended(_)
            | QueueNotice::Joined { .. }
            | QueueNotice::Recorded(_) => {}
        }
    }

    /// When the queue is to be looked at again.
    fn arm(&mut self, lent: &mut Lent<'_>) {
        let now = lent.ctx.now;
        let draining = lent.is_draining;
        let later = |unix_ns: u64| {
            now.monotonic + Duration::from_nanos(unix_ns.saturating_sub(now.unix_ns))
        };
        let shelves = self.core.partitions.values().flat_map(|shelf| {
            let (lease, due) = shelf.state.next_expiry();
            let letter = shelf.state.next_dead_letter();
            let letter = letter.filter(|_| shelf.letter.is_none() && !draining);
            let again = shelf.staging.retry_at.filter(|at| *at > now.monotonic);
            [
                lease,
                due.map(later),
                letter.map(|_| shelf.letter_at),
                again,
            ]
        });
        let record = self.settling.due(now.monotonic);
        let report = self
            .core
            .unreported
            .due()
            .filter(|_| self.serving.is_attended);
        let report = report.filter(|at| *at > now.monotonic);
        let top_up = self.serving.next_top_up(now.monotonic);
        let others = record.into_iter().chain(report).chain(top_up);
        let Some(at) = shelves.flatten().chain(others).min() else {
            return;
        };
        let at = at.max(now.monotonic);
        match self.timer_at {
            // It comes early at worst, and then is armed again.
            Some(armed) if armed <= at && armed > now.monotonic => return,
            Some(armed) => lent.ctx.timers.remove(armed, Timer::Queue(self.core.id)),
            None => {}
        }
        self.timer_at = Some(at);
        lent.ctx.timers.insert(at, Timer::Queue(self.core.id));
    }
}
