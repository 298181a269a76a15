//! What became of events, on its way into records, and back at a start.

use super::changes::{Changes, Whose};
use super::{Dead, EXPIRED, Loads, QueuePartition, Rules};
use crate::coordinator::table::{QueueEntry, Returned};
use crate::queue::{OffsetSet, RANGES_PER_RECORD, RangeMap};
use std::collections::{BTreeMap, BTreeSet};
use wire::record::{Record, RejectedRecord, ReturnedRecord, SettledRecord};
use wire::{Incarnation, Offset, Sequence};

/// So many dead events of a partition go into one command: each has a record.
const REJECTED_PER_COMMAND: usize = 4096;

impl QueuePartition {
    /// The partition as the records left it, in the life `incarnation`. Of
    /// what was recorded in an earlier life, only events before `kept` are
    /// still there.
    pub fn new(entry: &QueueEntry, incarnation: Incarnation, kept: Offset) -> Self {
        let same = entry.incarnation == incarnation;
        let clip = |offset: Offset| if same { offset } else { offset.min(kept) };
        let below = clip(entry.settled.first_missing());
        let mut settled = OffsetSet::until(below);
        let mut changes = Changes {
            first_rejected: entry.next_rejected,
            ..Changes::default()
        };
        if !same && below > Offset(0) {
            changes.closed.push((Offset(0), below));
        }
        for (first, end) in entry.settled.ranges_above() {
            let (first, end) = (clip(first), clip(end));
            settled.insert(first, end);
            if !same && first < end {
                changes.closed.push((first, end));
            }
        }
        let next = clip(entry.delivered).max(below);
        let mut partition = Self {
            incarnation,
            settled,
            next,
            leases: RangeMap::default(),
            returned: RangeMap::default(),
            passed: RangeMap::default(),
            delayed: RangeMap::default(),
            dead: BTreeMap::new(),
            letters: BTreeMap::new(),
            next_rejected: entry.next_rejected,
            deadlines: BTreeSet::new(),
            due: BTreeSet::new(),
            changes,
            keys: None,
        };
        // What is before the mark was delivered once, and came back by the restart.
        partition.returned.insert(below, next, 1);
        for (first, end, returned) in entry.returned.iter() {
            let (first, end) = (clip(first), clip(end));
            partition.skip_to(first);
            partition.next = partition.next.max(end);
            partition.returned.remove(first, end);
            partition.wait(first, end, *returned);
            if !same && first < end {
                partition.changes.returned.insert(first, end, *returned);
            }
        }
        for (at, record) in &entry.rejected {
            if !same && *at >= kept {
                continue;
            }
            let end = at.plus(1);
            partition.skip_to(*at);
            partition.next = partition.next.max(end);
            partition.returned.remove(*at, end);
            partition.delayed.remove(*at, end);
            let dead = Dead {
                deliveries: record.deliveries,
                reason: record.reason.clone(),
                time: record.time,
                sequence: Some(record.sequence),
                recorded: same,
                rejected_by: None,
            };
            partition.dead.insert(*at, dead);
            match same {
                true => drop(partition.letters.insert(record.sequence, *at)),
                false => drop(partition.changes.unrecorded.insert(*at)),
            }
        }
        partition.trim();
        partition
    }

    /// Whether not everything went into the changes that were taken last.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Takes what is to be recorded, if anything is: the records, and
    /// what to hand to [`QueuePartition::recorded`] or
    /// [`QueuePartition::not_recorded`] afterwards. One is under way at a
    /// time; dead events beyond a bound are left for the next.
    pub fn take_changes(&mut self, whose: Whose<'_>) -> Option<(Vec<Record>, Changes)> {
        if self.changes.is_empty() {
            return None;
        }
        let mut changes = std::mem::take(&mut self.changes);
        let mut records = Vec::new();
        let mut ranges: RangeMap<()> = RangeMap::default();
        let settled = changes.settled.iter().map(|(a, b, _)| (*a, *b));
        for (first, end) in settled.chain(changes.closed.iter().copied()) {
            ranges.insert(first, end, ());
        }
        changes.first_rejected = self.next_rejected;
        while changes.rejected.len() < REJECTED_PER_COMMAND
            && let Some(at) = changes.unrecorded.pop_first()
        {
            if let Some(dead) = self.dead.get_mut(&at) {
                // One of an earlier life keeps its place.
                let sequence = *dead.sequence.get_or_insert_with(|| {
                    let sequence = self.next_rejected;
                    self.next_rejected = Sequence(sequence.0 + 1);
                    sequence
                });
                let record = RejectedRecord {
                    topic: whose.topic,
                    consumer: whose.consumer.to_owned(),
                    partition: whose.partition,
                    incarnation: self.incarnation,
                    offset: at,
                    deliveries: dead.deliveries,
                    reason: dead.reason.clone(),
                    time: dead.time,
                    sequence,
                    consumer_id: whose.consumer_id,
                };
                changes.rejected.push((at, record));
            }
        }
        self.changes.unrecorded = std::mem::take(&mut changes.unrecorded);
        if !ranges.is_empty() {
            let ranges: Vec<_> = ranges.iter().map(|(a, b, ())| (a, b)).collect();
            let chunks = ranges.chunks(RANGES_PER_RECORD);
            let delivered = self.delivered();
            records.extend(chunks.map(|ranges| {
                Record::Settled(SettledRecord {
                    topic: whose.topic,
                    consumer: whose.consumer.to_owned(),
                    partition: whose.partition,
                    incarnation: self.incarnation,
                    ranges: ranges.to_vec(),
                    delivered,
                    next_rejected: changes.first_rejected,
                    consumer_id: whose.consumer_id,
                })
            }));
        }
        let returned = changes.returned.iter().map(|(first, end, returned)| {
            Record::Returned(ReturnedRecord {
                topic: whose.topic,
                consumer: whose.consumer.to_owned(),
                partition: whose.partition,
                incarnation: self.incarnation,
                first,
                end,
                deliveries: returned.deliveries,
                not_before: returned.not_before,
                consumer_id: whose.consumer_id,
            })
        });
        records.extend(returned);
        let rejected = changes.rejected.iter();
        records.extend(rejected.map(|(_, record)| Record::Rejected(record.clone())));
        Some((records, changes))
    }

    /// The changes are durable.
    pub fn recorded(&mut self, changes: Changes) {
        for (at, _) in changes.rejected {
            if let Some(dead) = self.dead.get_mut(&at) {
                dead.recorded = true;
                dead.rejected_by = None;
                self.letters.extend(dead.sequence.map(|place| (place, at)));
            }
        }
    }

    /// The changes are not durable, and perhaps never will be: whoever had
    /// the events has them again, as long as the lease lasts. `durable` is
    /// what is settled in the records.
    pub fn not_recorded(
        &mut self,
        changes: Changes,
        durable: &OffsetSet,
        rules: &Rules,
        loads: &mut Loads,
    ) {
        // What was settled meanwhile is on its way into the next record.
        self.changes.closed.extend(changes.closed);
        // What came back since is newer.
        let newer = std::mem::replace(&mut self.changes.returned, changes.returned);
        for (first, end, returned) in newer.iter() {
            self.changes.returned.insert(first, end, *returned);
        }
        let mut settled = durable.clone();
        for (first, end, _) in &self.changes.settled {
            settled.insert(*first, *end);
        }
        for (first, end) in &self.changes.closed {
            settled.insert(*first, *end);
        }
        self.settled = settled;
        self.next_rejected = changes.first_rejected;
        let mut undone = changes.settled;
        for (at, _) in changes.rejected {
            if let Some(dead) = self.dead.get_mut(&at) {
                match dead.rejected_by.take() {
                    Some(leased) => {
                        undone.push((at, at.plus(1), leased));
                        self.dead.remove(&at);
                    }
                    None => {
                        // One of an earlier life keeps its place.
                        let own = |sequence: &Sequence| *sequence < changes.first_rejected;
                        dead.sequence = dead.sequence.filter(own);
                        self.changes.unrecorded.insert(at);
                    }
                }
            }
        }
        for (first, end, leased) in undone {
            // It may be lost meanwhile.
            let parts: Vec<_> = self.settled.missing(first, end).collect();
            for (first, end) in parts {
                if let Some(keys) = &mut self.keys {
                    keys.unknown(first, end);
                }
                // While they were settled, entries of others may have been
                // joined over them, or their own is there still.
                self.leases.remove(first, end);
                self.returned.remove(first, end);
                if rules.now < leased.deadline {
                    loads.add(&leased, end.0 - first.0);
                    self.deadlines.insert(leased.deadline);
                    self.leases.insert(first, end, leased);
                } else {
                    let returned = Returned {
                        deliveries: leased.deliveries,
                        not_before: 0,
                    };
                    self.come_back(first, end, returned, rules, EXPIRED);
                }
            }
        }
    }

    /// Drops what is settled from the beginnings of ranges.
    fn trim(&mut self) {
        let entries: Vec<_> = self.returned.iter().map(|(a, b, _)| (a, b)).collect();
        for (first, end) in entries {
            let start = self.settled.next_missing(first).min(end);
            self.returned.remove(first, start);
        }
    }
}
