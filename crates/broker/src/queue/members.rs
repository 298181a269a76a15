//! What memberships tell the queues. Nobody is given anything before it is
//! said to be present.

use super::RangeMap;
use super::live::{Lent, Queue};
use super::partition::{Doing, Rules, Waiting};
use crate::coordinator::table::QueueEntry;
use crate::ctx::Ctx;
use crate::ids::RequestId;
use crate::partition::Partitions;
use crate::refusal::refuse;
use std::collections::BTreeMap;
use wire::message::{ConsumerPartition, Lease, SettleAs};
use wire::record::Position;
use wire::{ErrorCode, ErrorReply, Incarnation, MemberId, Offset, PartitionIndex};

/// Where a queue stands in a partition of which it does not know yet.
pub(crate) fn nowhere(partition: PartitionIndex) -> ConsumerPartition {
    ConsumerPartition {
        partition,
        position: Position {
            incarnation: Incarnation(0),
            offset: Offset(0),
        },
        end: Offset(0),
        settled: 0,
        leased: 0,
        returned: 0,
        delayed: 0,
        dead: 0,
    }
}

impl Queue {
    /// The queue was deleted, or its topic, or its record was refused.
    pub fn delete(self, ctx: &mut Ctx) {
        ctx.dirty.queues.remove(&self.id);
        let error = refuse(
            ErrorCode::UnknownConsumer,
            format!("queue {:?} was deleted", self.consumer),
        );
        for answers in self.answers.into_values() {
            for caller in answers.callers() {
                ctx.refuse(caller, error.clone());
            }
        }
    }

    /// A member has joined, durably, and names the leases that it holds: which
    /// of them are settled, and which are not its any more. It is present when
    /// [`Queue::member_present`] follows, behind the answer.
    pub fn member_joined(
        &mut self,
        member: MemberId,
        held: &[Lease],
        lent: &mut Lent<'_>,
    ) -> (Vec<Lease>, Vec<Lease>) {
        // Of those from before the start only: nothing was given out since.
        let adopt = self.awaited.remove(&member);
        let rules = self.rules(lent.ctx);
        let joined = self.sort_held(member, held, adopt, &rules, lent);
        self.touch(lent.ctx);
        joined
    }

    fn sort_held(
        &mut self,
        member: MemberId,
        held: &[Lease],
        adopt: bool,
        rules: &Rules,
        lent: &Lent<'_>,
    ) -> (Vec<Lease>, Vec<Lease>) {
        let (partitions, table) = (&*lent.partitions, lent.commands.table());
        let deadline = adopt.then(|| self.deadline(rules.now));
        let (mut settled, mut expired) = (Vec::new(), Vec::new());
        let nothing = QueueEntry::default();
        let mut named: BTreeMap<PartitionIndex, RangeMap<()>> = BTreeMap::new();
        let table = table.topic(self.topic);
        let table = table.and_then(|entry| entry.shared(&self.consumer));
        for lease in held {
            let shelf = self.partitions.get_mut(&lease.partition);
            let shelf = shelf.filter(|shelf| shelf.state.incarnation() == lease.incarnation);
            let Some(shelf) = shelf else {
                expired.push(*lease);
                continue;
            };
            let storage = partitions.get(&shelf.storage);
            let visible = storage.map_or(Offset(0), |partition| partition.store.visible);
            let waiting = Waiting {
                first: lease.first,
                end: lease.end.min(visible),
                deliveries: lease.deliveries,
            };
            let doing = Doing {
                member,
                lease: lease.lease,
                how: SettleAs::Acknowledge,
                not_before: 0,
                reason: "",
            };
            let entry = table.and_then(|entry| entry.queue.get(&lease.partition));
            let entry = entry.filter(|entry| entry.incarnation == lease.incarnation);
            let entry = entry.unwrap_or(&nothing);
            let found =
                shelf
                    .state
                    .joined(waiting, &doing, deadline, entry, rules, &mut self.loads);
            // What it has under another lease is not what it names.
            let known = named.entry(lease.partition).or_default();
            let held = found.held.iter();
            held.for_each(|(first, end)| known.insert(*first, *end, ()));
            let part = |(first, end)| Lease {
                first,
                end,
                ..*lease
            };
            // Of what it settled in this run the answers are remembered, and
            // somebody else may have settled it since.
            match self.from_before.contains(&member) {
                true => settled.extend(found.settled.into_iter().map(part)),
                false => expired.extend(found.settled.into_iter().map(part)),
            }
            expired.extend(found.expired.into_iter().map(part));
            if lease.end > visible {
                expired.push(part((lease.first.max(visible), lease.end)));
            }
        }
        for (index, shelf) in &mut self.partitions {
            let known = named.remove(index).unwrap_or_default();
            let loads = &mut self.loads;
            shelf.state.give_back_unnamed(member, &known, rules, loads);
        }
        (settled, expired)
    }

    /// How long members of before the start are awaited at most, for the answer to a member that
    /// joins by this request; 0 if none are. It is notified of the end, too.
    pub fn tell_recovering(&mut self, member: MemberId, caller: RequestId, lent: &Lent<'_>) -> u32 {
        let now = lent.ctx.now.monotonic;
        let recovering_ms = lent.shared.recovering_ms(&self.awaited, now);
        if recovering_ms > 0 {
            self.told_recovering.insert(member, caller);
        }
        recovering_ms
    }

    /// A member is there to be given events: it has joined, or was heard of again.
    pub fn member_present(&mut self, member: MemberId, ctx: &mut Ctx) {
        self.members_changed = true;
        self.member_has_room(member, ctx);
    }

    /// A member may have room for events, or its connection has.
    pub fn member_has_room(&mut self, member: MemberId, ctx: &mut Ctx) {
        self.ready.insert(member);
        self.touch(ctx);
    }

    /// A member is not there to be given anything, but keeps what it has.
    pub fn member_away(&mut self, member: MemberId, ctx: &mut Ctx) {
        self.members_changed = true;
        self.ready.remove(&member);
        self.touch(ctx);
    }

    /// A member is gone: what it had waits again. `counted` says whether that
    /// counts as a delivery; `error` is for those of its settlements that are not answered.
    pub fn member_gone(
        &mut self,
        member: MemberId,
        counted: bool,
        error: &ErrorReply,
        ctx: &mut Ctx,
    ) {
        let rules = self.rules(ctx);
        self.awaited.remove(&member);
        self.told_recovering.remove(&member);
        self.members_changed = true;
        self.from_before.remove(&member);
        self.service_rates.remove(&member);
        for shelf in self.partitions.values_mut() {
            let loads = &mut self.loads;
            shelf.state.member_gone(member, counted, &rules, loads);
        }
        let answers = self.answers.remove(&member);
        for caller in answers.into_iter().flat_map(|answers| answers.callers()) {
            ctx.refuse(caller, error.clone());
        }
        self.touch(ctx);
    }

    /// Where the queue stands in a partition.
    pub fn describe(
        &self,
        partition: PartitionIndex,
        partitions: &Partitions,
    ) -> ConsumerPartition {
        let shelf = self.partitions.get(&partition);
        let state = shelf.map(|shelf| &shelf.state);
        let counts = state.map(|state| state.counts()).unwrap_or_default();
        let storage = shelf.and_then(|shelf| partitions.get(&shelf.storage));
        ConsumerPartition {
            partition,
            position: Position {
                incarnation: state.map_or(Incarnation(0), |state| state.incarnation()),
                offset: state.map_or(Offset(0), |state| state.position()),
            },
            end: storage.map_or(Offset(0), |partition| partition.store.visible),
            settled: counts.settled,
            leased: counts.leased,
            returned: counts.returned,
            delayed: counts.delayed,
            dead: counts.dead,
        }
    }

    /// Events that a member of the queue has unsettled, and their bytes.
    pub fn leased(&self, member: MemberId) -> (u64, u64) {
        let load = self.loads.of(member);
        (load.events, load.bytes)
    }
}
