//! What memberships tell the queues. Nobody is given anything before it is
//! said to be present.

use super::RangeMap;
use super::live::Queue;
use super::partition::{Doing, Rules, Waiting};
use crate::controller::Controller;
use crate::ids::SharedId;
use crate::node::Node;
use crate::refusal::refuse;
use crate::table::QueueEntry;
use std::collections::BTreeMap;
use wire::message::{ConsumerPartition, Lease, SettleAs};
use wire::record::Position;
use wire::{ErrorCode, Incarnation, MemberId, Offset, PartitionIndex};

impl Node {
    /// There is a queue: it was made, or is known from before the start. Its
    /// record may not be durable yet.
    pub(crate) fn queue_made(&mut self, id: SharedId) {
        self.begin_queue(id);
    }

    /// The queue was deleted, or its topic, or its record was refused.
    pub(crate) fn queue_deleted(&mut self, id: SharedId) {
        self.ctx.dirty.queues.remove(&id);
        let Some(queue) = self.queues.remove(&id) else {
            return;
        };
        let error = refuse(
            ErrorCode::UnknownConsumer,
            format!("queue {:?} was deleted", queue.consumer),
        );
        for answers in queue.answers.into_values() {
            for asker in answers.askers() {
                self.refuse_request(asker, error.clone());
            }
        }
    }

    /// A member has joined, durably, and names the leases that it holds: which
    /// of them are settled, and which are not its any more. It is present when
    /// [`Node::queue_member_present`] follows, behind the answer.
    pub(crate) fn queue_joined(
        &mut self,
        id: SharedId,
        member: MemberId,
        held: &[Lease],
    ) -> (Vec<Lease>, Vec<Lease>) {
        self.settle_queue(id);
        let Some(mut queue) = self.queues.remove(&id) else {
            return (Vec::new(), held.to_vec());
        };
        let rules = self.rules(&queue);
        // Of those from before the start only: nothing was given out since.
        let adopt = queue.awaited.remove(&member);
        let joined = self.sort_held(&mut queue, member, held, adopt, &rules);
        self.queues.insert(id, queue);
        self.touch_queue(id);
        joined
    }

    fn sort_held(
        &self,
        queue: &mut Queue,
        member: MemberId,
        held: &[Lease],
        adopt: bool,
        rules: &Rules,
    ) -> (Vec<Lease>, Vec<Lease>) {
        let deadline = adopt.then(|| queue.deadline(rules.now));
        let (mut settled, mut expired) = (Vec::new(), Vec::new());
        let nothing = QueueEntry::default();
        let mut named: BTreeMap<PartitionIndex, RangeMap<()>> = BTreeMap::new();
        let table = self.controller.table().topic(queue.topic);
        let table = table.and_then(|entry| entry.shared(&queue.consumer));
        for lease in held {
            let shelf = queue.partitions.get_mut(&lease.partition);
            let shelf = shelf.filter(|shelf| shelf.state.incarnation() == lease.incarnation);
            let Some(shelf) = shelf else {
                expired.push(*lease);
                continue;
            };
            let storage = self.partitions.get(&shelf.storage);
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
            match queue.from_before.contains(&member) {
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

    /// A member is there to be given events: it has joined, or was heard of again.
    pub(crate) fn queue_member_present(&mut self, id: SharedId, member: MemberId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.members_changed = true;
        }
        self.queue_member_has_room(id, member);
    }

    /// A member may have room for events, or its connection has.
    pub(crate) fn queue_member_has_room(&mut self, id: SharedId, member: MemberId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.hungry.insert(member);
            self.touch_queue(id);
        }
    }

    /// A member is not there to be given anything, but keeps what it has.
    pub(crate) fn queue_member_away(&mut self, id: SharedId, member: MemberId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.members_changed = true;
            queue.hungry.remove(&member);
        }
        self.touch_queue(id);
    }

    /// A member is gone: what it had waits again. `counted` says whether that
    /// counts as a delivery.
    pub(crate) fn queue_member_gone(&mut self, id: SharedId, member: MemberId, counted: bool) {
        let Some(queue) = self.queues.get(&id) else {
            return;
        };
        let rules = self.rules(queue);
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        queue.awaited.remove(&member);
        queue.told_recovering.remove(&member);
        queue.members_changed = true;
        queue.from_before.remove(&member);
        queue.paces.remove(&member);
        for shelf in queue.partitions.values_mut() {
            let loads = &mut queue.loads;
            shelf.state.member_gone(member, counted, &rules, loads);
        }
        let answers = queue.answers.remove(&member);
        let error = self.fenced(id, member);
        for asker in answers.into_iter().flat_map(|answers| answers.askers()) {
            self.refuse_request(asker, error.clone());
        }
        self.touch_queue(id);
    }

    /// More partitions of the queue's topic serve.
    pub(crate) fn queue_partitions_added(&mut self, id: SharedId) {
        self.touch_queue(id);
    }

    /// Where a queue stands in a partition.
    pub(crate) fn queue_partition(
        &self,
        id: SharedId,
        partition: PartitionIndex,
    ) -> ConsumerPartition {
        let queue = self.queues.get(&id);
        let shelf = queue.and_then(|queue| queue.partitions.get(&partition));
        let state = shelf.map(|shelf| &shelf.state);
        let counts = state.map(|state| state.counts()).unwrap_or_default();
        let storage = shelf.and_then(|shelf| self.partitions.get(&shelf.storage));
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

    /// Events that a member of a queue has unsettled, and their bytes.
    pub(crate) fn queue_leased(&self, id: SharedId, member: MemberId) -> (u64, u64) {
        let load = self.queues.get(&id).map(|queue| queue.loads.of(member));
        let load = load.unwrap_or_default();
        (load.events, load.bytes)
    }
}
