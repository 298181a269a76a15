//! What was lost, on its way into the ledger.

use crate::coordinator::commands::{Commands, Decided};
use crate::coordinator::controller::ControlError;
use crate::coordinator::table::Table;
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::PartitionKey;
use std::collections::BTreeMap;
use wire::record::{Gap, GapReason, GapRecord, Record};
use wire::{Durability, Offset};

/// Gaps that are being recorded. A partition has one record under way; what
/// it loses meanwhile is joined, so that a stream whose retention drops a
/// little with every batch does not write a record for each.
#[derive(Debug, Default)]
pub(crate) struct GapRecords {
    /// By partition, what waits for the record under way.
    waiting: BTreeMap<PartitionKey, Vec<Gap>>,
}

impl GapRecords {
    /// The gap, if it can be recorded at once; else it waits.
    fn begin(&mut self, lost: PartitionKey, gap: Gap) -> Option<Gap> {
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
    fn end(&mut self, lost: PartitionKey) -> Vec<Gap> {
        match self.waiting.get_mut(&lost) {
            Some(waiting) if !waiting.is_empty() => std::mem::take(waiting),
            _ => {
                self.waiting.remove(&lost);
                Vec::new()
            }
        }
    }

    /// Records what a partition has lost.
    pub fn record(&mut self, lost: PartitionKey, gap: Gap, commands: &mut Commands, ctx: &mut Ctx) {
        if !ctx.planted(Fault::NoGap)
            && let Some(gap) = self.begin(lost, gap)
        {
            submit(lost, vec![gap], commands, ctx);
        }
    }

    /// A record is decided: what was lost meanwhile follows.
    pub fn recorded(
        &mut self,
        lost: PartitionKey,
        result: Result<(), ControlError>,
        commands: &mut Commands,
        ctx: &mut Ctx,
    ) {
        if let Err(error) = result {
            ctx.report(format!("a gap is not recorded: {error}"));
        }
        let waited = self.end(lost);
        if !waited.is_empty() {
            submit(lost, waited, commands, ctx);
        }
    }
}

fn submit(lost: PartitionKey, gaps: Vec<Gap>, commands: &mut Commands, ctx: &mut Ctx) {
    let record = |gap| {
        Record::Gap(GapRecord {
            topic: lost.topic,
            partition: lost.partition,
            gap,
        })
    };
    let records = gaps.into_iter().map(record).collect();
    commands.record(
        Durability::Synced,
        records,
        Decided::GapsRecorded(lost),
        ctx,
    );
}

/// Where a reader begins that asks for a partition's beginning: its first event, or before it
/// the loss of what should have been there. What retention has dropped is no loss.
pub(crate) fn beginning(lost: PartitionKey, first: Offset, table: &Table) -> Offset {
    let entry = table.topic(lost.topic);
    let gaps = entry.iter().flat_map(|entry| &entry.gaps);
    let damaged: Vec<Gap> = gaps
        .filter(|((of, _, _), _)| *of == lost.partition)
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

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Incarnation, PartitionIndex, TopicId};

    fn partition(index: u32) -> PartitionKey {
        PartitionKey {
            topic: TopicId(1),
            partition: PartitionIndex(index),
        }
    }

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
        let lost = partition(0);
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
        let other = partition(1);
        assert_eq!(records.begin(other, first), Some(first));
        assert!(records.end(lost).is_empty());
        assert_eq!(records.begin(lost, first), Some(first));
    }
}
