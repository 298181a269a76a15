//! What is remembered of groups and queues.

use crate::queue::{OffsetSet, RangeMap};
use std::collections::BTreeMap;
use wire::record::*;
use wire::{Incarnation, MemberId, Offset, PartitionIndex, Sequence};

/// Ranges of one record of a snapshot: so many fit in a batch at any time.
const RANGES_PER_RECORD: usize = 4096;

/// What is remembered of one group or queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedEntry {
    /// Its name, kind and options.
    pub record: ConsumerRecord,
    /// Its members, present or away.
    pub members: BTreeMap<MemberId, MemberRecord>,
    /// Of a group: who owns each partition that somebody owns.
    pub owners: BTreeMap<PartitionIndex, MemberId>,
    /// Of a queue: what became of each partition's events.
    pub queue: BTreeMap<PartitionIndex, QueueEntry>,
}

/// What became of a partition's events in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueEntry {
    /// The partition's life in which the offsets count.
    pub incarnation: Incarnation,
    /// What is settled.
    pub settled: OffsetSet,
    /// Everything before was delivered once at least, as far as was noted.
    pub delivered: Offset,
    /// What was delivered and came back. Settled events may lie in a range,
    /// and are not meant: one with every second event settled is one entry.
    pub returned: RangeMap<Returned>,
    /// What is to become a dead letter.
    pub rejected: BTreeMap<Offset, RejectedRecord>,
    /// The sequence number of the next dead letter.
    pub next_rejected: Sequence,
}

/// How an event came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Returned {
    /// How often it was delivered.
    pub deliveries: u32,
    /// Not to be delivered before, nanoseconds since 1970.
    pub not_before: u64,
}

impl QueueEntry {
    /// Takes what was settled.
    pub fn apply_settled(&mut self, record: SettledRecord) {
        for (first, end) in record.ranges {
            self.settled.insert(first, end);
            self.trim(first, end);
            if first < end {
                let gone: Vec<_> = self.rejected.range(first..end).map(|(at, _)| *at).collect();
                gone.iter().for_each(|at| {
                    self.rejected.remove(at);
                });
            }
        }
        self.delivered = self.delivered.max(record.delivered);
        self.next_rejected = self.next_rejected.max(record.next_rejected);
    }

    /// Takes what came back, as far as it is neither settled nor rejected.
    pub fn apply_returned(&mut self, record: &ReturnedRecord) {
        let value = Returned {
            deliveries: record.deliveries,
            not_before: record.not_before,
        };
        let (first, end) = (self.settled.next_missing(record.first), record.end);
        if first >= end {
            return;
        }
        self.returned.insert(first, end, value);
        let rejected: Vec<_> = self.rejected.range(first..end).map(|(at, _)| *at).collect();
        for at in rejected {
            self.returned.remove(at, at.plus(1));
        }
    }

    /// What came back begins, range by range, with an event that is not
    /// settled.
    fn trim(&mut self, first: Offset, end: Offset) {
        let parts: Vec<_> = self.returned.within(first, end).map(|(a, ..)| a).collect();
        for at in parts {
            if let Some((first, end, _)) = self.returned.around(at) {
                let start = self.settled.next_missing(first).min(end);
                self.returned.remove(first, start);
            }
        }
    }

    /// Takes an event that is to be a dead letter.
    pub fn apply_rejected(&mut self, record: RejectedRecord) {
        let next = Sequence(record.sequence.0 + 1);
        self.next_rejected = self.next_rejected.max(next);
        if !self.settled.contains(record.offset) {
            self.returned.remove(record.offset, record.offset.plus(1));
            self.rejected.insert(record.offset, record);
        }
    }
}

impl SharedEntry {
    /// Where a group begins, as the table says. `None` of a queue, which has no cursors.
    pub fn begins(&self) -> Option<BTreeMap<PartitionIndex, Position>> {
        let starts = self.record.starts.iter().copied().collect();
        (self.record.kind != ConsumerKind::Queue).then_some(starts)
    }

    /// A group or queue that has just begun.
    pub(super) fn new(record: ConsumerRecord) -> Self {
        let starts = record.starts.iter();
        let starts = starts.filter(|_| record.kind == ConsumerKind::Queue);
        let begun = starts.map(|(partition, start)| {
            let mut entry = QueueEntry {
                incarnation: start.incarnation,
                delivered: start.offset,
                ..QueueEntry::default()
            };
            entry.settled.insert(Offset(0), start.offset);
            (*partition, entry)
        });
        Self {
            queue: begun.collect(),
            members: BTreeMap::new(),
            owners: BTreeMap::new(),
            record,
        }
    }

    /// Who is no member any more in a later state, and what nobody owns there.
    pub(super) fn endings_until(&self, later: &Self, records: &mut Vec<Record>) {
        let gone = self.members.iter();
        let gone = gone.filter(|(member, _)| !later.members.contains_key(member));
        records.extend(gone.map(|(_, member)| {
            Record::Member(MemberRecord {
                is_member: false,
                ..member.clone()
            })
        }));
        let free = self.owners.keys();
        let free = free.filter(|partition| !later.owners.contains_key(partition));
        records.extend(free.map(|partition| {
            Record::Assignment(AssignmentRecord {
                topic: self.record.topic,
                consumer: self.record.consumer.clone(),
                partition: *partition,
                owner: MemberId(0),
            })
        }));
    }

    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let ConsumerRecord {
            topic, consumer, ..
        } = &self.record;
        let owners = self.owners.iter().map(move |(partition, owner)| {
            Record::Assignment(AssignmentRecord {
                topic: *topic,
                consumer: consumer.clone(),
                partition: *partition,
                owner: *owner,
            })
        });
        let queue = self
            .queue
            .iter()
            .flat_map(|(partition, entry)| self.queue_records(*partition, entry));
        std::iter::once(Record::Consumer(self.record.clone()))
            .chain(self.members.values().cloned().map(Record::Member))
            .chain(owners)
            .chain(queue)
    }

    fn queue_records(
        &self,
        partition: PartitionIndex,
        entry: &QueueEntry,
    ) -> impl Iterator<Item = Record> {
        let ConsumerRecord {
            topic,
            consumer,
            id,
            ..
        } = &self.record;
        let below = (Offset(0), entry.settled.first_missing());
        let ranges: Vec<_> = std::iter::once(below)
            .chain(entry.settled.ranges_above())
            .collect();
        let settled = ranges.chunks(RANGES_PER_RECORD).map(|ranges| {
            Record::Settled(SettledRecord {
                topic: *topic,
                consumer: consumer.clone(),
                partition,
                incarnation: entry.incarnation,
                ranges: ranges.to_vec(),
                delivered: entry.delivered,
                next_rejected: entry.next_rejected,
                consumer_id: *id,
            })
        });
        let settled: Vec<_> = settled.collect();
        let returned = entry.returned.iter().map(move |(first, end, returned)| {
            Record::Returned(ReturnedRecord {
                topic: *topic,
                consumer: consumer.clone(),
                partition,
                incarnation: entry.incarnation,
                first,
                end,
                deliveries: returned.deliveries,
                not_before: returned.not_before,
                consumer_id: *id,
            })
        });
        let rejected = entry.rejected.values().cloned().map(Record::Rejected);
        settled.into_iter().chain(returned).chain(rejected)
    }
}
