//! Settlements: applied when they come, recorded together, answered when
//! that is durable.

use super::answers::{ANSWERS_MAX, Answers, SettleAnswer, UnderWay};
use super::core::{Lent, QueueCore, RETRY_AFTER};
use super::partition::{Doing, Rules, Whose};
use super::service_rate::ServiceRate;
use crate::answer::Answer;
use crate::coordinator::commands::Decided;
use crate::coordinator::controller::{ControlError, undecided};
use crate::coordinator::table::Table;
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::{RequestId, StorageId};
use crate::partition::{Partitions, durability_about};
use crate::refusal::Refused;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::message::*;
use wire::record::Record;
use wire::{Durability, ErrorCode, ErrorReply, MemberId, PartitionIndex};

/// How long settlements that nobody hurries for are gathered before they are recorded.
const QUIET_WAIT: Duration = Duration::from_millis(1);

/// Settlements, from when they come until they are answered, and the command that they wait for.
#[derive(Default)]
pub(super) struct Settling {
    /// Answers to settlements, given and to be given, by member.
    pub answers: BTreeMap<MemberId, Answers>,
    /// Settlements whose records are gathered for the next command.
    gathered: Vec<(MemberId, u64)>,
    /// The command that is under way.
    under_way: Option<UnderWay>,
    /// When a command may be tried again, after one was refused.
    record_at: Duration,
    /// Until when what was settled waits for more, for nobody hurries for it.
    pub quiet_until: Duration,
}

impl Settling {
    /// When the next command is submitted, if that is later than now.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        let record_at = self.record_at.max(self.quiet_until);
        (self.under_way.is_none() && record_at > now).then_some(record_at)
    }

    /// Settles leases of a member; answered when that is durable. `is_quiet` says that nobody
    /// hurries for the answer.
    pub fn settle_leases(
        &mut self,
        caller: RequestId,
        mut settle: Settle,
        is_quiet: bool,
        service_rates: &mut BTreeMap<MemberId, ServiceRate>,
        queue: &mut QueueCore,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        if ctx.planted(Fault::NoDelay) {
            settle
                .settlements
                .iter_mut()
                .for_each(|one| one.delay_ms = 0);
        }
        let answers = self.answers.entry(settle.member).or_default();
        if let Some(answer) = answers.get_mut(settle.sequence) {
            // It was sent again, on a new connection.
            if let Some(waiting) = &mut answer.caller {
                *waiting = caller;
            } else {
                let expired = answer.expired.clone();
                ctx.answer(caller, Answer::Settled(Settled { expired }));
            }
            return Ok(());
        }
        if answers.is_full() {
            return Err(ErrorReply::retryable(
                ErrorCode::LimitExceeded,
                100,
                format!("{ANSWERS_MAX} settlements of the member are unanswered"),
            ));
        }
        let rules = queue.rules(ctx);
        let service_rate = service_rates.get(&settle.member).copied();
        if let Some(service_rate) =
            ServiceRate::of(&settle).map(|worked| worked.after(service_rate))
        {
            service_rates.insert(settle.member, service_rate);
        }
        let (expired, recorded) = apply(&settle, &rules, queue);
        let answer = SettleAnswer {
            expired: expired.clone(),
            caller: recorded.then_some(caller),
        };
        let answers = self.answers.entry(settle.member).or_default();
        answers.remember(settle.sequence, answer);
        if recorded {
            // Many go into one command if nobody hurries for any of them.
            self.quiet_until = match is_quiet {
                true if self.gathered.is_empty() => rules.now + QUIET_WAIT,
                true => self.quiet_until,
                false => Duration::ZERO,
            };
            self.gathered.push((settle.member, settle.sequence));
        } else {
            ctx.answer(caller, Answer::Settled(Settled { expired }));
        }
        queue.touch(ctx);
        Ok(())
    }

    /// Submits what is to be recorded of a queue, if no command of it is
    /// under way: what comes meanwhile is joined.
    pub fn record(&mut self, queue: &mut QueueCore, lent: &mut Lent<'_>) {
        let record_at = self.record_at.max(self.quiet_until);
        if self.under_way.is_some() || lent.ctx.now.monotonic < record_at {
            return;
        }
        let mut records = Vec::new();
        let mut changes = Vec::new();
        let mut storages = Vec::new();
        for (index, shelf) in &mut queue.partitions {
            let whose = Whose {
                topic: queue.topic,
                consumer: &queue.consumer,
                consumer_id: queue.consumer_id,
                partition: *index,
            };
            if let Some((more, change)) = shelf.state.take_changes(whose) {
                records.extend(more);
                changes.push((*index, change));
                storages.push(shelf.storage);
            }
        }
        // Answered when all of what they did is durable.
        let mut rest = queue.partitions.values();
        let (settlements, begun) = match rest.any(|shelf| shelf.state.has_changes()) {
            true => (Vec::new(), self.gathered.len()),
            false => (std::mem::take(&mut self.gathered), 0),
        };
        if records.is_empty() && settlements.is_empty() {
            return;
        }
        self.under_way = Some(UnderWay {
            changes,
            settlements,
            begun,
        });
        let durability = durability_of(&records, &storages, lent.partitions);
        let decided = Decided::QueueRecorded(queue.id);
        lent.commands.record(durability, records, decided, lent.ctx);
    }

    /// A command of the queue is durable, or was refused. Returns the partitions in which the
    /// queue may have moved.
    pub fn recorded(
        &mut self,
        result: Result<(), ControlError>,
        table: &Table,
        queue: &mut QueueCore,
        ctx: &mut Ctx,
    ) -> Vec<PartitionIndex> {
        let rules = queue.rules(ctx);
        let Some(under_way) = self.under_way.take() else {
            return Vec::new();
        };
        let table = table.topic(queue.topic);
        let table = table.and_then(|entry| entry.shared(&queue.consumer));
        let moved: Vec<_> = under_way.changes.iter().map(|(index, _)| *index).collect();
        for (index, changes) in under_way.changes {
            let Some(shelf) = queue.partitions.get_mut(&index) else {
                continue;
            };
            if result.is_ok() {
                shelf.state.recorded(changes);
                continue;
            }
            let durable = table.and_then(|entry| entry.queue.get(&index));
            let same = durable.filter(|entry| entry.incarnation == shelf.state.incarnation());
            let durable = same.map(|entry| entry.settled.clone()).unwrap_or_default();
            shelf
                .state
                .not_recorded(changes, &durable, &rules, &mut queue.loads);
        }
        let mut settlements = under_way.settlements;
        if result.is_err() {
            self.record_at = rules.now + RETRY_AFTER;
            settlements.extend(self.gathered.drain(..under_way.begun));
        }
        let mut answers = Vec::new();
        for (member, sequence) in settlements {
            let Some(known) = self.answers.get_mut(&member) else {
                continue;
            };
            if result.is_ok() {
                if let Some(answer) = known.get_mut(sequence)
                    && let Some(caller) = answer.caller.take()
                {
                    let expired = answer.expired.clone();
                    answers.push((caller, Ok(Settled { expired })));
                }
            // It is not done: sent again, it is done anew.
            } else if let Some(answer) = known.forget(sequence)
                && let Some(caller) = answer.caller
            {
                answers.push((caller, Err(())));
            }
        }
        for (caller, answer) in answers {
            match (answer, &result) {
                (Ok(settled), _) => ctx.answer(caller, Answer::Settled(settled)),
                (Err(()), Err(error)) => ctx.refuse(caller, undecided(error)),
                (Err(()), Ok(())) => {}
            }
        }
        queue.touch(ctx);
        moved
    }
}

/// Extends leases of a member.
pub(super) fn extend_leases(
    caller: RequestId,
    extend: &ExtendLeases,
    queue: &mut QueueCore,
    ctx: &mut Ctx,
) {
    let rules = queue.rules(ctx);
    let deadline = queue.deadline(rules.now);
    let mut expired = Vec::new();
    for lease in &extend.leases {
        let doing = Doing {
            member: extend.member,
            lease: lease.lease,
            how: SettleAs::Acknowledge,
            not_before: 0,
            reason: "",
        };
        let shelf = queue.partitions.get_mut(&lease.partition);
        let shelf = shelf.filter(|shelf| shelf.state.incarnation() == lease.incarnation);
        let Some(shelf) = shelf else {
            expired.push(*lease);
            continue;
        };
        let state = &mut shelf.state;
        let rest = state.extend(lease.first, lease.end, &doing, deadline, &rules);
        expired.extend(rest.into_iter().map(|(first, end)| Lease {
            first,
            end,
            ..*lease
        }));
    }
    let extended = LeasesExtended {
        lease_ms: queue.lease_ms(),
        expired,
    };
    ctx.answer(caller, Answer::LeasesExtended(extended));
    queue.touch(ctx);
}

/// Applies settlements. Returns what is refused, and whether anything is
/// to be recorded.
fn apply(settle: &Settle, rules: &Rules, queue: &mut QueueCore) -> (Vec<Lease>, bool) {
    let mut expired = Vec::new();
    let mut recorded = false;
    for settlement in &settle.settlements {
        let lease = settlement.lease;
        let delay = u64::from(settlement.delay_ms) * 1_000_000;
        let doing = Doing {
            member: settle.member,
            lease: lease.lease,
            how: settlement.how,
            not_before: match delay {
                0 => 0,
                delay => rules.unix_ns.saturating_add(delay),
            },
            reason: &settlement.reason,
        };
        let shelf = queue.partitions.get_mut(&lease.partition);
        let shelf = shelf.filter(|shelf| shelf.state.incarnation() == lease.incarnation);
        let Some(shelf) = shelf else {
            expired.push(lease);
            continue;
        };
        let loads = &mut queue.loads;
        let rest = shelf
            .state
            .settle(lease.first, lease.end, &doing, rules, loads);
        let all = rest == [(lease.first, lease.end)];
        recorded |= !all && settlement.how != SettleAs::GiveBack;
        expired.extend(rest.into_iter().map(|(first, end)| Lease {
            first,
            end,
            ..lease
        }));
    }
    (expired, recorded)
}

/// What a queue's records are to survive: what the events do that they are
/// about. That an event is dead is recorded for good, for its letter may
/// outlive it.
fn durability_of(
    records: &[Record],
    storages: &[StorageId],
    partitions: &Partitions,
) -> Durability {
    let is_dead = |record: &Record| matches!(record, Record::Rejected(_));
    match records.iter().any(is_dead) {
        true => Durability::Synced,
        false => durability_about(partitions, storages),
    }
}
