//! Settlements: applied when they come, recorded together, answered when
//! that is durable.

use super::live::{Queue, RETRY_AFTER};
use super::pace::Pace;
use super::partition::{Changes, Doing, Rules, Whose};
use crate::controller::{ControlError, Controller};
use crate::faults::Fault;
use crate::ids::{Asker, SharedId, StorageId};
use crate::node::{Decided, Node};
use crate::refusal::{Refused, malformed};
use crate::topics::undecided;
use std::collections::VecDeque;
use std::time::Duration;
use wire::codec::Reader;
use wire::message::*;
use wire::record::{ConsumerKind, Record};
use wire::{Codec, Durability, ErrorCode, ErrorReply, MemberId, PartitionIndex};

/// So many answers of a member are remembered, for settlements that are sent
/// again: as many as may be unanswered.
const ANSWERS_MAX: usize = 8;
/// How long settlements that nobody hurries for are gathered before they are recorded.
const QUIET_WAIT: Duration = Duration::from_millis(1);

/// A member's last answers, by the sequence number of the settlement.
#[derive(Debug, Default)]
pub(crate) struct Answers(VecDeque<(u64, Answer)>);

#[derive(Debug)]
struct Answer {
    expired: Vec<Lease>,
    /// Who waits for it; `None` if it was given.
    asker: Option<Asker>,
}

impl Answers {
    /// Who waits for an answer.
    pub fn askers(&self) -> impl Iterator<Item = Asker> + use<> {
        let askers = self.0.iter().filter_map(|(_, answer)| answer.asker);
        askers.collect::<Vec<_>>().into_iter()
    }

    fn get_mut(&mut self, sequence: u64) -> Option<&mut Answer> {
        let found = self.0.iter_mut().find(|(known, _)| *known == sequence);
        found.map(|(_, answer)| answer)
    }

    /// Whether so many are unanswered that another one is too many.
    fn is_full(&self) -> bool {
        let unanswered = self.0.iter().filter(|(_, answer)| answer.asker.is_some());
        unanswered.count() >= ANSWERS_MAX
    }

    fn remember(&mut self, sequence: u64, answer: Answer) {
        let oldest = self.0.iter().position(|(_, answer)| answer.asker.is_none());
        if self.0.len() >= ANSWERS_MAX
            && let Some(oldest) = oldest
        {
            self.0.remove(oldest);
        }
        self.0.push_back((sequence, answer));
    }

    fn forget(&mut self, sequence: u64) -> Option<Answer> {
        let at = self.0.iter().position(|(known, _)| *known == sequence)?;
        self.0.remove(at).map(|(_, answer)| answer)
    }
}

/// A queue's command on its way into the table.
pub(crate) struct UnderWay {
    changes: Vec<(PartitionIndex, Changes)>,
    /// Settlements that are answered when it is durable.
    settlements: Vec<(MemberId, u64)>,
    /// How many of those that are gathered are in it with a part only: they
    /// are answered with the rest, but refused with this one.
    begun: usize,
}

impl Node {
    pub(crate) fn settle_leases(
        &mut self,
        asker: Asker,
        head: &RequestHead,
        from: &mut Reader<'_>,
    ) -> Result<(), Refused> {
        let mut settle = Settle::decode(from).map_err(malformed)?;
        if self.ctx.planted(Fault::NoDelay) {
            settle
                .settlements
                .iter_mut()
                .for_each(|one| one.delay_ms = 0);
        }
        self.refuse_if_closing()?;
        let is_quiet = self.sessions.is_quiet(asker) && !self.drain.is_begun();
        let id = self.check_settler(asker, head, &settle.consumer, settle.member)?;
        let Some(queue) = self.queues.get_mut(&id) else {
            return Err(self.fenced(id, settle.member));
        };
        let answers = queue.answers.entry(settle.member).or_default();
        if let Some(answer) = answers.get_mut(settle.sequence) {
            // It was sent again, on a new connection.
            if let Some(waiting) = &mut answer.asker {
                *waiting = asker;
            } else {
                let expired = answer.expired.clone();
                self.reply_long(asker, Settled { expired }.to_bytes());
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
        let Some(queue) = self.queues.get(&id) else {
            return Ok(());
        };
        let rules = self.rules(queue);
        let Some(queue) = self.queues.get_mut(&id) else {
            return Ok(());
        };
        let worked = Pace::of(&settle);
        let pace = queue.paces.get(&settle.member).copied();
        if let Some(pace) = worked.map(|worked| worked.after(pace)) {
            queue.paces.insert(settle.member, pace);
        }
        let (expired, recorded) = queue.settle(&settle, &rules);
        let answer = Answer {
            expired: expired.clone(),
            asker: recorded.then_some(asker),
        };
        let answers = queue.answers.entry(settle.member).or_default();
        answers.remember(settle.sequence, answer);
        if recorded {
            // Many go into one command if nobody hurries for any of them.
            queue.quiet_until = match is_quiet {
                true if queue.gathered.is_empty() => rules.now + QUIET_WAIT,
                true => queue.quiet_until,
                false => Duration::ZERO,
            };
            queue.gathered.push((settle.member, settle.sequence));
        } else {
            self.reply_long(asker, Settled { expired }.to_bytes());
        }
        self.touch_queue(id);
        Ok(())
    }

    pub(crate) fn extend_leases(
        &mut self,
        asker: Asker,
        head: &RequestHead,
        from: &mut Reader<'_>,
    ) -> Result<(), Refused> {
        let extend = ExtendLeases::decode(from).map_err(malformed)?;
        let id = self.check_settler(asker, head, &extend.consumer, extend.member)?;
        let Some(queue) = self.queues.get(&id) else {
            return Err(self.fenced(id, extend.member));
        };
        let rules = self.rules(queue);
        let Some(queue) = self.queues.get_mut(&id) else {
            return Ok(());
        };
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
            lease_ms: u32::try_from(queue.options.lease_ms).unwrap_or(u32::MAX),
            expired,
        };
        self.reply_long(asker, extended.to_bytes());
        self.touch_queue(id);
        Ok(())
    }

    /// The queue, if the asker is the member that he says he is.
    fn check_settler(
        &self,
        asker: Asker,
        head: &RequestHead,
        consumer: &str,
        member: MemberId,
    ) -> Result<SharedId, Refused> {
        let id = self.shared_named(asker, head.topic, consumer, ConsumerKind::Queue)?;
        let state = self.shared.member(id, member);
        let own = state.and_then(|state| state.presence.asker());
        match own {
            Some(own) if own.link == asker.link => Ok(id),
            _ => Err(self.fenced(id, member)),
        }
    }

    /// Submits what is to be recorded of a queue, if no command of it is
    /// under way: what comes meanwhile is joined.
    pub(super) fn record_queue(&mut self, id: SharedId) {
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        let record_at = queue.record_at.max(queue.quiet_until);
        if queue.under_way.is_some() || self.ctx.now.monotonic < record_at {
            return;
        }
        let mut records = Vec::new();
        let mut changes = Vec::new();
        let mut storages = Vec::new();
        for (index, shelf) in &mut queue.partitions {
            let whose = Whose {
                topic: queue.topic,
                consumer: &queue.consumer,
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
            true => (Vec::new(), queue.gathered.len()),
            false => (std::mem::take(&mut queue.gathered), 0),
        };
        if records.is_empty() && settlements.is_empty() {
            return;
        }
        queue.under_way = Some(UnderWay {
            changes,
            settlements,
            begun,
        });
        let durability = self.durability_of(&records, &storages);
        self.submit_at(durability, records, Decided::QueueRecorded(id));
    }

    /// What a queue's records are to survive: what the events do that they are
    /// about. That an event is dead is recorded for good, for its letter may
    /// outlive it.
    fn durability_of(&self, records: &[Record], storages: &[StorageId]) -> Durability {
        let is_dead = |record: &Record| matches!(record, Record::Rejected(_));
        match records.iter().any(is_dead) {
            true => Durability::Synced,
            false => self.durability_about(storages),
        }
    }

    /// A queue's command is durable, or was refused.
    pub(crate) fn queue_recorded(&mut self, id: SharedId, result: Result<(), ControlError>) {
        let Some(queue) = self.queues.get(&id) else {
            return;
        };
        let rules = self.rules(queue);
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        let Some(under_way) = queue.under_way.take() else {
            return;
        };
        let table = self.controller.table().topic(queue.topic);
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
        let (topic, consumer) = (queue.topic, queue.consumer.clone());
        let mut settlements = under_way.settlements;
        if result.is_err() {
            queue.record_at = rules.now + RETRY_AFTER;
            settlements.extend(queue.gathered.drain(..under_way.begun));
        }
        let mut answers = Vec::new();
        for (member, sequence) in settlements {
            let Some(known) = queue.answers.get_mut(&member) else {
                continue;
            };
            if result.is_ok() {
                if let Some(answer) = known.get_mut(sequence)
                    && let Some(asker) = answer.asker.take()
                {
                    let expired = answer.expired.clone();
                    answers.push((asker, Ok(Settled { expired })));
                }
            // It is not done: sent again, it is done anew.
            } else if let Some(answer) = known.forget(sequence)
                && let Some(asker) = answer.asker
            {
                answers.push((asker, Err(())));
            }
        }
        for (asker, answer) in answers {
            match (answer, &result) {
                (Ok(settled), _) => self.reply_long(asker, settled.to_bytes()),
                (Err(()), Err(error)) => self.refuse_request(asker, undecided(error)),
                (Err(()), Ok(())) => {}
            }
        }
        self.consumer_moved(topic, &consumer, moved);
        self.touch_queue(id);
    }
}

impl Queue {
    /// Applies settlements. Returns what is refused, and whether anything is
    /// to be recorded.
    fn settle(&mut self, settle: &Settle, rules: &Rules) -> (Vec<Lease>, bool) {
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
            let shelf = self.partitions.get_mut(&lease.partition);
            let shelf = shelf.filter(|shelf| shelf.state.incarnation() == lease.incarnation);
            let Some(shelf) = shelf else {
                expired.push(lease);
                continue;
            };
            let loads = &mut self.loads;
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
}
