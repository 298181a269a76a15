//! What was lost, on its way into the table.

use crate::controller::{ControlError, Controller};
use crate::faults::Fault;
use crate::ids::PartitionKey;
use crate::node::{Decided, Node};
use std::collections::BTreeMap;
use wire::record::{Gap, GapReason, GapRecord, Record};
use wire::{Offset, PartitionIndex, TopicId};

/// Gaps that are being recorded. A partition has one record under way; what
/// it loses meanwhile is joined, so that a stream whose retention drops a
/// little with every batch does not write a record for each.
#[derive(Debug, Default)]
pub(crate) struct GapRecords {
    /// By partition, what waits for the record under way.
    waiting: BTreeMap<Lost, Vec<Gap>>,
}

/// Of which partition events were lost.
pub(crate) type Lost = (TopicId, PartitionIndex);

impl GapRecords {
    /// The gap, if it can be recorded at once; else it waits.
    fn begin(&mut self, lost: Lost, gap: Gap) -> Option<Gap> {
        let Some(waiting) = self.waiting.get_mut(&lost) else {
            self.waiting.insert(lost, Vec::new());
            return Some(gap);
        };
        if !waiting.last_mut().is_some_and(|last| last.join(&gap)) {
            waiting.push(gap);
        }
        None
    }

    /// A record is done: what follows it.
    fn end(&mut self, lost: Lost) -> Vec<Gap> {
        match self.waiting.get_mut(&lost) {
            Some(waiting) if !waiting.is_empty() => std::mem::take(waiting),
            _ => {
                self.waiting.remove(&lost);
                Vec::new()
            }
        }
    }
}

impl Node {
    /// Records what a partition has lost.
    pub(crate) fn record_gap(&mut self, key: PartitionKey, gap: Gap) {
        if self.ctx.planted(Fault::NoGap) {
            return;
        }
        let lost = (key.topic, key.partition);
        if let Some(gap) = self.gap_records.begin(lost, gap) {
            self.submit_gaps(lost, vec![gap]);
        }
    }

    /// Where somebody begins who asks for a partition's beginning: its first event, or before it
    /// the loss of what should have been there. What retention has dropped is no loss.
    pub(crate) fn beginning(&self, lost: Lost, first: Offset) -> Offset {
        let (topic, partition) = lost;
        let entry = self.controller.table().topic(topic);
        let gaps = entry.iter().flat_map(|entry| &entry.gaps);
        let damaged: Vec<Gap> = gaps
            .filter(|((of, _, _), _)| *of == partition)
            .map(|(_, gap)| *gap)
            .filter(|gap| gap.reason == GapReason::Damaged && gap.first < gap.end)
            .collect();
        let mut begin = first;
        while let Some(gap) = damaged
            .iter()
            .find(|gap| gap.end >= begin && gap.first < begin)
        {
            begin = gap.first;
        }
        begin
    }

    pub(crate) fn gaps_recorded(&mut self, lost: Lost, result: Result<(), ControlError>) {
        if let Err(error) = result {
            self.ctx.report(format!("a gap is not recorded: {error}"));
        }
        let waited = self.gap_records.end(lost);
        if !waited.is_empty() {
            self.submit_gaps(lost, waited);
        }
    }

    fn submit_gaps(&mut self, lost: Lost, gaps: Vec<Gap>) {
        let (topic, partition) = lost;
        let record = |gap| {
            Record::Gap(GapRecord {
                topic,
                partition,
                gap,
            })
        };
        let records = gaps.into_iter().map(record).collect();
        self.submit(records, Decided::GapsRecorded(lost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Incarnation;

    fn gap(first: u64, end: u64, reason: GapReason) -> Gap {
        Gap {
            incarnation: Incarnation(1),
            first: Offset(first),
            end: Offset(end),
            reason,
            time: end,
        }
    }

    #[test]
    fn one_record_is_under_way_and_the_rest_is_joined() {
        let mut records = GapRecords::default();
        let lost = (TopicId(1), PartitionIndex(0));
        let first = gap(0, 10, GapReason::Retention);
        assert_eq!(records.begin(lost, first), Some(first));
        for at in 1..100 {
            let next = gap(at * 10, at * 10 + 10, GapReason::Retention);
            assert_eq!(records.begin(lost, next), None);
        }
        let damaged = gap(1000, 1001, GapReason::Damaged);
        assert_eq!(records.begin(lost, damaged), None);
        let joined = gap(10, 1000, GapReason::Retention);
        assert_eq!(records.end(lost), [joined, damaged]);
        // Another partition's does not wait for them.
        let other = (TopicId(1), PartitionIndex(1));
        assert_eq!(records.begin(other, first), Some(first));
        assert!(records.end(lost).is_empty());
        assert_eq!(records.begin(lost, first), Some(first));
    }
}
