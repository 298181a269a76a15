//! Members of before the server's start, who may hold what looks free.

use super::RangeMap;
use super::core::{Lent, QueueCore};
use super::partition::{Doing, Rules, Waiting};
use super::serve::send_news;
use crate::coordinator::table::QueueEntry;
use crate::ids::RequestId;
use std::collections::{BTreeMap, BTreeSet};
use wire::message::{Lease, SettleAs};
use wire::{MemberId, Offset, PartitionIndex};

/// See the module.
#[derive(Debug)]
pub(super) struct Awaited {
    /// Those that have not come back yet. Nothing is given out while there are any.
    members: BTreeSet<MemberId>,
    /// Who was told, by its answer, that there are some.
    told_recovering: BTreeMap<MemberId, RequestId>,
    /// All of them that are members still. What they settled then and had no answer
    /// to may be durable all the same.
    from_before: BTreeSet<MemberId>,
}

impl Awaited {
    pub fn new(members: BTreeSet<MemberId>) -> Self {
        Self {
            from_before: members.clone(),
            members,
            told_recovering: BTreeMap::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn members(&self) -> &BTreeSet<MemberId> {
        &self.members
    }

    /// A member is gone.
    pub fn forget(&mut self, member: MemberId) {
        self.members.remove(&member);
        self.told_recovering.remove(&member);
        self.from_before.remove(&member);
    }

    /// A member has joined, durably, and names the leases that it holds: which
    /// of them are settled, and which are not its any more. It is present when
    /// [`Queue::member_present`](super::Queue::member_present) follows, behind the answer.
    pub fn joined(
        &mut self,
        member: MemberId,
        held: &[Lease],
        queue: &mut QueueCore,
        lent: &mut Lent<'_>,
    ) -> (Vec<Lease>, Vec<Lease>) {
        // Of those from before the start only: nothing was given out since.
        let adopt = self.members.remove(&member);
        let rules = queue.rules(lent.ctx);
        let joined = self.sort_held(member, held, adopt, &rules, queue, lent);
        queue.touch(lent.ctx);
        joined
    }

    fn sort_held(
        &mut self,
        member: MemberId,
        held: &[Lease],
        adopt: bool,
        rules: &Rules,
        queue: &mut QueueCore,
        lent: &Lent<'_>,
    ) -> (Vec<Lease>, Vec<Lease>) {
        let (partitions, table) = (&*lent.partitions, lent.commands.table());
        let deadline = adopt.then(|| queue.deadline(rules.now));
        let (mut settled, mut expired) = (Vec::new(), Vec::new());
        let nothing = QueueEntry::default();
        let mut named: BTreeMap<PartitionIndex, RangeMap<()>> = BTreeMap::new();
        let table = table.topic(queue.topic);
        let table = table.and_then(|entry| entry.shared(&queue.consumer));
        for lease in held {
            let shelf = queue.partitions.get_mut(&lease.partition);
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
                    .joined(waiting, &doing, deadline, entry, rules, &mut queue.loads);
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
        for (index, shelf) in &mut queue.partitions {
            let known = named.remove(index).unwrap_or_default();
            let loads = &mut queue.loads;
            shelf.state.give_back_unnamed(member, &known, rules, loads);
        }
        (settled, expired)
    }

    /// How long members of before the start are awaited at most, for the answer to a member that
    /// joins by this request; 0 if none are. It is notified of the end, too.
    pub fn tell_recovering(&mut self, member: MemberId, caller: RequestId, lent: &Lent<'_>) -> u32 {
        let now = lent.ctx.now.monotonic;
        let recovering_ms = lent.shared.recovering_ms(&self.members, now);
        if recovering_ms > 0 {
            self.told_recovering.insert(member, caller);
        }
        recovering_ms
    }

    /// A queue gives out events again: members whose answer said otherwise are notified.
    pub fn tell_recovered(&mut self, queue: &QueueCore, lent: &mut Lent<'_>) {
        if !self.members.is_empty() || self.told_recovering.is_empty() {
            return;
        }
        let told = std::mem::take(&mut self.told_recovering);
        // The answer to one that has joined anew since said so.
        let stands = |(member, caller): (MemberId, RequestId)| {
            let state = lent.shared.members.get(&member)?;
            (state.presence.caller() == Some(caller)).then_some(caller)
        };
        let members = told.into_iter().filter_map(stands).collect();
        send_news(queue, members, Vec::new(), lent.ctx);
    }
}
