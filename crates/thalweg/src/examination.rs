//! Compares what independent sources say of one partition: its stored
//! batches, its gap records, its producers' journals, its consumers' cursors.
//!
//! Knows no server: it is given everything.

use client::journal::JournalRecord;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use wire::message::Cursor;
use wire::record::{Gap, GapReason};
use wire::{Incarnation, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence};

/// A batch that a scan found and verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredBatch {
    /// The offset of its first event.
    pub base: Offset,
    /// How many offsets it takes.
    pub count: u64,
    /// Who produced it.
    pub producer: ProducerId,
    /// In which life.
    pub epoch: ProducerEpoch,
    /// Its first event's sequence number.
    pub first_sequence: Sequence,
    /// Checksum of metadata and data, as in a journal; `None` if some of the
    /// data is damaged.
    pub checksum: Option<u32>,
}

impl StoredBatch {
    fn range(&self) -> Range<u64> {
        self.base.0..self.base.0 + self.count
    }
}

/// Everything that is known of one partition.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The partition.
    pub partition: PartitionIndex,
    /// The life it is in.
    pub incarnation: Incarnation,
    /// The first offset that is said to be there.
    pub first: Offset,
    /// The end of what was visible when the scan began.
    pub end: Offset,
    /// Its batches, in the order in which they were read.
    pub batches: Vec<StoredBatch>,
    /// Its gaps.
    pub gaps: Vec<Gap>,
    /// What producers were acknowledged.
    pub journal: Vec<JournalRecord>,
    /// Where consumers stand.
    pub cursors: Vec<Cursor>,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Acknowledged events are not there, and nothing says why; or the reason
    /// is one that no durability allows.
    Lost,
    /// Events are there twice.
    Doubled,
    /// Events are not what was acknowledged.
    Altered,
    /// A producer's events are not in the order in which it sent them.
    Disordered,
    /// Offsets hold nothing and no gap says why, or a gap covers what is there.
    Unexplained,
    /// A cursor stands where no event can be.
    Astray,
}

impl FindingKind {
    /// The word for it, as used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Doubled => "doubled",
            Self::Altered => "altered",
            Self::Disordered => "disordered",
            Self::Unexplained => "unexplained",
            Self::Astray => "astray",
        }
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// The partition.
    pub partition: PartitionIndex,
    /// The life in which the offsets count.
    pub incarnation: Incarnation,
    /// The first offset that it is about.
    pub first: u64,
    /// The offset behind the last.
    pub end: u64,
    /// One sentence.
    pub what: String,
}

impl Finding {
    /// As documented JSON.
    pub fn to_json(&self, topic: &str) -> Value {
        json!({
            "type": "finding",
            "kind": self.kind.name(),
            "topic": topic,
            "partition": self.partition.0,
            "incarnation": self.incarnation.0,
            "first": self.first,
            "end": self.end,
            "what": self.what,
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            partition,
            incarnation,
            first,
            end,
            what,
        } = self;
        let kind = kind.name();
        write!(
            f,
            "{kind}: partition {partition}, incarnation {incarnation}, offsets {first} to {end}: {what}"
        )
    }
}

/// What an examination says.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Acknowledged events that are gone for a reason that their topic allows.
    pub explained: BTreeMap<&'static str, u64>,
}

/// Examines a partition.
pub fn examine(facts: &Facts) -> Verdict {
    let mut examination = Examination {
        facts,
        verdict: Verdict::default(),
    };
    examination.coverage();
    examination.order();
    examination.acknowledged_once();
    examination.journal();
    examination.cursors();
    examination.verdict
}

struct Examination<'a> {
    facts: &'a Facts,
    verdict: Verdict,
}

impl<'a> Examination<'a> {
    fn find(
        &mut self,
        kind: FindingKind,
        incarnation: Incarnation,
        range: Range<u64>,
        what: String,
    ) {
        self.verdict.findings.push(Finding {
            kind,
            partition: self.facts.partition,
            incarnation,
            first: range.start,
            end: range.end,
            what,
        });
    }

    /// Every offset up to the end holds an event or is in a gap, and not both.
    fn coverage(&mut self) {
        let facts = self.facts;
        let now = facts.incarnation;
        let mut stored: Vec<Range<u64>> = facts.batches.iter().map(StoredBatch::range).collect();
        stored.sort_by_key(|range| range.start);
        for pair in stored.windows(2) {
            if pair[1].start < pair[0].end {
                let both = pair[1].start..pair[0].end.min(pair[1].end);
                self.find(
                    FindingKind::Doubled,
                    now,
                    both,
                    "two batches hold these offsets".to_owned(),
                );
            }
        }
        let gaps = self.gaps();
        for gap in &gaps {
            let range = gap.first.0..gap.end.0;
            if gap.reason == GapReason::Damaged {
                let what = "stored bytes are damaged; a gap records it".to_owned();
                self.find(FindingKind::Lost, gap.incarnation, range.clone(), what);
            }
            for batch in stored.iter().filter(|batch| overlap(batch, &range)) {
                let both = batch.start.max(range.start)..batch.end.min(range.end);
                let what = format!("a gap ({}) covers events that are there", gap.reason);
                self.find(FindingKind::Unexplained, now, both, what);
            }
        }
        for batch in facts
            .batches
            .iter()
            .filter(|batch| batch.checksum.is_none())
        {
            let what = "stored data of at least one of these events is damaged".to_owned();
            self.find(FindingKind::Lost, now, batch.range(), what);
        }
        let mut covered = stored;
        covered.extend(gaps.iter().map(|gap| gap.first.0..gap.end.0));
        for hole in holes(covered, 0..facts.end.0) {
            let what = "no event is there, and no gap says why".to_owned();
            self.find(FindingKind::Unexplained, now, hole, what);
        }
        let below_first = 0..facts.first.0;
        if let Some(batch) = facts
            .batches
            .iter()
            .find(|batch| overlap(&batch.range(), &below_first))
        {
            let what = format!("events are there below the first offset, {}", facts.first);
            self.find(FindingKind::Unexplained, now, batch.range(), what);
        }
    }

    /// A producer's sequence numbers rise with the offsets, without holes
    /// other than gaps, and none comes twice.
    fn order(&mut self) {
        let facts = self.facts;
        let mut batches: Vec<&StoredBatch> = facts.batches.iter().collect();
        batches.sort_by_key(|batch| batch.base);
        let mut last: BTreeMap<(ProducerId, ProducerEpoch), &StoredBatch> = BTreeMap::new();
        for batch in batches {
            // Records without a producer carry no sequence.
            if batch.producer == ProducerId(0) {
                continue;
            }
            let Some(before) = last.insert((batch.producer, batch.epoch), batch) else {
                continue;
            };
            let expected = before.first_sequence.0 + before.count;
            let found = batch.first_sequence.0;
            if found == expected {
                continue;
            }
            let between = before.range().end..batch.base.0;
            let what = format!(
                "producer {}: sequence {found} follows, {expected} was to",
                batch.producer
            );
            if found < expected {
                let kind = match found >= before.first_sequence.0 || self.is_stored(batch) {
                    true => FindingKind::Doubled,
                    false => FindingKind::Disordered,
                };
                self.find(kind, facts.incarnation, batch.range(), what);
            } else if !self.has_gap(&between) {
                self.find(FindingKind::Lost, facts.incarnation, between, what);
            }
        }
    }

    /// Whether another batch carries the same events.
    fn is_stored(&self, batch: &StoredBatch) -> bool {
        let same = |other: &&StoredBatch| {
            (other.producer, other.epoch, other.first_sequence)
                == (batch.producer, batch.epoch, batch.first_sequence)
        };
        self.facts.batches.iter().filter(same).count() > 1
    }

    /// The gaps of the life, and those of earlier lives whose offsets it kept: what was lost or
    /// dropped there stays away.
    fn gaps(&self) -> Vec<&'a Gap> {
        let holds = |gap: &&Gap| {
            gap.incarnation == self.facts.incarnation
                || self.is_kept(gap.incarnation, &(gap.first.0..gap.end.0))
        };
        self.facts.gaps.iter().filter(holds).collect()
    }

    /// Whether a gap lies in `range`, be it one of unknown length.
    fn has_gap(&self, range: &Range<u64>) -> bool {
        let mut gaps = self.gaps().into_iter();
        gaps.any(|gap| gap.first.0 <= range.end && range.start <= gap.end.0)
    }

    /// No event was acknowledged at two places, no place for two events.
    fn acknowledged_once(&mut self) {
        let mut of_events: BTreeMap<_, &JournalRecord> = BTreeMap::new();
        let mut of_places: BTreeMap<_, &JournalRecord> = BTreeMap::new();
        for record in &self.facts.journal {
            let range = record.first.0..record.first.0 + u64::from(record.count);
            let events = (
                record.producer,
                record.epoch,
                record.first_sequence,
                record.incarnation,
            );
            if let Some(other) = of_events.insert(events, record)
                && other.first != record.first
            {
                let what = format!(
                    "the same events were acknowledged at offset {} too",
                    other.first
                );
                self.find(
                    FindingKind::Doubled,
                    record.incarnation,
                    range.clone(),
                    what,
                );
            }
            let place = (record.incarnation, record.first);
            if let Some(other) = of_places.insert(place, record)
                && (other.producer, other.first_sequence)
                    != (record.producer, record.first_sequence)
            {
                let what = format!(
                    "events of producer {} were acknowledged there too",
                    other.producer
                );
                self.find(FindingKind::Altered, record.incarnation, range, what);
            }
        }
    }

    /// What was acknowledged is there, and is what it was.
    fn journal(&mut self) {
        let stored: BTreeMap<Offset, &StoredBatch> = self
            .facts
            .batches
            .iter()
            .map(|batch| (batch.base, batch))
            .collect();
        let now = self.facts.incarnation;
        let mut examined = BTreeMap::new();
        for record in &self.facts.journal {
            // A retry's ack tells of the same events again.
            if examined
                .insert(
                    (record.incarnation, record.first, record.first_sequence),
                    (),
                )
                .is_some()
            {
                continue;
            }
            let range = record.first.0..record.first.0 + u64::from(record.count);
            let batch = match record.incarnation == now || self.is_kept(record.incarnation, &range)
            {
                true => stored.get(&record.first).copied(),
                false => None,
            };
            match batch {
                Some(batch) => self.compare(record, batch, range),
                None => self.missing(record, range),
            }
        }
    }

    fn compare(&mut self, record: &JournalRecord, batch: &StoredBatch, range: Range<u64>) {
        let promised = (
            record.producer,
            record.first_sequence,
            u64::from(record.count),
        );
        let found = (batch.producer, batch.first_sequence, batch.count);
        let what = match batch.checksum {
            _ if promised != found => {
                format!(
                    "{} events of producer {} from sequence {} were acknowledged, \
                     {} of {} from {} are there",
                    promised.2, promised.0, promised.1.0, found.2, found.0, found.1.0
                )
            }
            Some(checksum) if checksum != record.checksum => {
                format!(
                    "their checksum is {checksum:08x}, the producer's was {:08x}",
                    record.checksum
                )
            }
            // What cannot be read was found before, journal or not.
            Some(_) | None => return,
        };
        self.find(FindingKind::Altered, record.incarnation, range, what);
    }

    /// Whether the next life kept these offsets: after a power loss it goes on
    /// where what was recovered ends.
    fn is_kept(&self, incarnation: Incarnation, range: &Range<u64>) -> bool {
        // Lives are counted; only the last ones are listed.
        incarnation < self.facts.incarnation
            && self.facts.gaps.iter().any(|gap| {
                gap.incarnation == incarnation
                    && gap.keeps_what_came_before()
                    && range.end <= gap.first.0
            })
    }

    fn missing(&mut self, record: &JournalRecord, range: Range<u64>) {
        let incarnation = record.incarnation;
        let is_kept = self.is_kept(incarnation, &range);
        let reason = self.facts.gaps.iter().find_map(|gap| {
            let is_of_its_life =
                gap.incarnation == incarnation || is_kept && gap.incarnation > incarnation;
            // How many a lost life had may be unknown: all from `first` on.
            let covers = is_of_its_life
                && gap.first.0 <= range.start
                && (gap.ends_life() || range.end <= gap.end.0);
            covers.then_some(gap.reason)
        });
        let events = range.end - range.start;
        match reason {
            Some(
                reason @ (GapReason::Retention
                | GapReason::MemoryLost
                | GapReason::PowerLoss
                | GapReason::Discarded),
            ) => *self.verdict.explained.entry(reason.name()).or_default() += events,
            Some(GapReason::Damaged) => {
                let what = "acknowledged events are damaged; a gap records it".to_owned();
                self.find(FindingKind::Lost, incarnation, range, what);
            }
            None => {
                let what = format!(
                    "{events} events of producer {} were acknowledged, are not there, and no gap says why",
                    record.producer
                );
                self.find(FindingKind::Lost, incarnation, range, what);
            }
        }
    }

    /// A cursor stands in a life that there is or was, not behind its end.
    fn cursors(&mut self) {
        for cursor in &self.facts.cursors {
            let incarnation = cursor.position.incarnation;
            // Where a life that is over ended may not be known.
            if incarnation < self.facts.incarnation {
                continue;
            }
            if incarnation != self.facts.incarnation {
                let at = cursor.position.offset.0;
                let what = format!("cursor of {} is in a life that never was", cursor.consumer);
                self.find(FindingKind::Astray, incarnation, at..at, what);
                continue;
            }
            let end = self.facts.end;
            let at = cursor.position.offset;
            if at > end {
                let what = format!(
                    "cursor of {} is at {at}, behind the end, {end}",
                    cursor.consumer
                );
                self.find(FindingKind::Astray, incarnation, end.0..at.0, what);
            }
        }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The parts of `whole` that no range covers.
fn holes(mut ranges: Vec<Range<u64>>, whole: Range<u64>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut holes = Vec::new();
    let mut at = whole.start;
    for range in ranges {
        if range.start > at && at < whole.end {
            holes.push(at..range.start.min(whole.end));
        }
        at = at.max(range.end);
    }
    if at < whole.end {
        holes.push(at..whole.end);
    }
    holes
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::record::Position;

    const NOW: Incarnation = Incarnation(1);

    fn batch(base: u64, sequence: u64) -> StoredBatch {
        StoredBatch {
            base: Offset(base),
            count: 10,
            producer: ProducerId(7),
            epoch: ProducerEpoch(1),
            first_sequence: Sequence(sequence),
            checksum: Some(base as u32),
        }
    }

    fn record(base: u64, sequence: u64) -> JournalRecord {
        JournalRecord {
            topic: wire::TopicId(1),
            partition: PartitionIndex(0),
            incarnation: NOW,
            first: Offset(base),
            count: 10,
            checksum: base as u32,
            producer: ProducerId(7),
            epoch: ProducerEpoch(1),
            first_sequence: Sequence(sequence),
            append_time: 0,
            duplicate: false,
        }
    }

    fn gap(first: u64, end: u64, reason: GapReason) -> Gap {
        Gap {
            incarnation: NOW,
            first: Offset(first),
            end: Offset(end),
            reason,
            time: 0,
        }
    }

    fn cursor(incarnation: Incarnation, offset: u64) -> Cursor {
        Cursor {
            consumer: "c".to_owned(),
            partition: PartitionIndex(0),
            position: Position {
                incarnation,
                offset: Offset(offset),
            },
        }
    }

    /// Three batches, all acknowledged, one consumer.
    fn sound() -> Facts {
        Facts {
            incarnation: NOW,
            end: Offset(30),
            batches: vec![batch(0, 0), batch(10, 10), batch(20, 20)],
            journal: vec![record(0, 0), record(10, 10), record(20, 20)],
            cursors: vec![cursor(NOW, 30)],
            ..Facts::default()
        }
    }

    fn kinds(facts: &Facts) -> Vec<FindingKind> {
        let mut kinds: Vec<_> = examine(facts)
            .findings
            .iter()
            .map(|finding| finding.kind)
            .collect();
        kinds.dedup();
        kinds
    }

    #[test]
    fn a_sound_partition_has_no_findings() {
        assert_eq!(examine(&sound()).findings, []);
        assert_eq!(
            examine(&Facts {
                incarnation: NOW,
                ..Facts::default()
            })
            .findings,
            []
        );
    }

    #[test]
    fn a_retrys_second_ack_is_no_double() {
        let mut facts = sound();
        facts.journal.push(JournalRecord {
            duplicate: true,
            ..record(10, 10)
        });
        assert_eq!(kinds(&facts), []);
    }

    #[test]
    fn a_deleted_segment_is_found() {
        let mut facts = sound();
        facts.batches.remove(1);
        assert_eq!(kinds(&facts), [FindingKind::Unexplained, FindingKind::Lost]);
        // Without a journal too.
        facts.journal.clear();
        assert_eq!(kinds(&facts), [FindingKind::Unexplained, FindingKind::Lost]);
    }

    #[test]
    fn a_cut_tail_is_found_by_the_journal() {
        let mut facts = sound();
        facts.batches.pop();
        facts.end = Offset(20);
        facts.cursors.clear();
        assert_eq!(kinds(&facts), [FindingKind::Lost]);
    }

    #[test]
    fn a_cut_tail_is_found_by_a_cursor() {
        let mut facts = sound();
        facts.batches.pop();
        facts.end = Offset(20);
        facts.journal.clear();
        assert_eq!(kinds(&facts), [FindingKind::Astray]);
    }

    #[test]
    fn a_doubled_batch_is_found() {
        let mut facts = sound();
        facts.batches.push(batch(30, 20));
        facts.end = Offset(40);
        assert_eq!(kinds(&facts), [FindingKind::Doubled]);
        let mut facts = sound();
        facts.batches.push(batch(20, 20));
        assert!(kinds(&facts).contains(&FindingKind::Doubled));
        let mut facts = sound();
        facts.journal.push(record(30, 20));
        assert!(kinds(&facts).contains(&FindingKind::Doubled));
    }

    #[test]
    fn swapped_batches_are_found() {
        let mut facts = sound();
        facts.batches = vec![batch(0, 0), batch(10, 20), batch(20, 10)];
        facts.journal.clear();
        assert_eq!(kinds(&facts), [FindingKind::Lost, FindingKind::Disordered]);
    }

    #[test]
    fn other_bytes_than_the_acknowledged_are_found() {
        let mut facts = sound();
        facts.batches[1].checksum = Some(999);
        assert_eq!(kinds(&facts), [FindingKind::Altered]);
        facts.batches[1] = StoredBatch {
            producer: ProducerId(8),
            ..batch(10, 0)
        };
        assert!(kinds(&facts).contains(&FindingKind::Altered));
    }

    #[test]
    fn damaged_data_is_found_with_and_without_a_journal() {
        let mut facts = sound();
        facts.batches[1].checksum = None;
        assert_eq!(kinds(&facts), [FindingKind::Lost]);
        facts.journal.clear();
        assert_eq!(kinds(&facts), [FindingKind::Lost]);
    }

    #[test]
    fn a_forged_gap_is_found() {
        let mut facts = sound();
        facts.gaps.push(gap(10, 20, GapReason::Retention));
        assert_eq!(kinds(&facts), [FindingKind::Unexplained]);
    }

    #[test]
    fn what_retention_dropped_is_explained_and_damage_is_a_loss() {
        let mut facts = sound();
        facts.batches.remove(0);
        facts.first = Offset(10);
        facts.gaps.push(gap(0, 10, GapReason::Retention));
        let verdict = examine(&facts);
        assert_eq!(verdict.findings, []);
        assert_eq!(verdict.explained, BTreeMap::from([("retention", 10)]));
        facts.gaps[0].reason = GapReason::Damaged;
        assert_eq!(kinds(&facts), [FindingKind::Lost]);
    }

    #[test]
    fn a_lost_life_of_a_memory_partition_is_explained_by_its_gap_alone() {
        let mut facts = Facts {
            incarnation: Incarnation(2),
            journal: vec![record(0, 0), record(10, 10)],
            gaps: vec![gap(0, 0, GapReason::MemoryLost)],
            ..Facts::default()
        };
        let verdict = examine(&facts);
        assert_eq!(verdict.findings, []);
        assert_eq!(verdict.explained, BTreeMap::from([("memory lost", 20)]));
        facts.gaps.clear();
        assert_eq!(kinds(&facts), [FindingKind::Lost]);
    }

    #[test]
    fn what_a_power_loss_left_is_compared_in_the_next_life() {
        let mut facts = sound();
        facts.incarnation = Incarnation(2);
        facts.cursors.clear();
        facts.batches.pop();
        facts.end = Offset(20);
        facts.gaps.push(gap(20, 20, GapReason::PowerLoss));
        let verdict = examine(&facts);
        assert_eq!(verdict.findings, []);
        assert_eq!(verdict.explained, BTreeMap::from([("power loss", 10)]));
        facts.batches[0].checksum = Some(999);
        assert_eq!(kinds(&facts), [FindingKind::Altered]);
        // What was kept is not excused by the loss of the rest.
        facts.batches.remove(0);
        assert!(kinds(&facts).contains(&FindingKind::Lost));
    }

    #[test]
    fn what_retention_dropped_before_a_power_loss_stays_explained() {
        let mut facts = sound();
        facts.incarnation = Incarnation(2);
        facts.cursors.clear();
        facts.batches.remove(0);
        facts.first = Offset(10);
        facts.gaps = vec![
            gap(0, 10, GapReason::Retention),
            gap(30, 30, GapReason::PowerLoss),
        ];
        assert_eq!(examine(&facts).findings, []);
        // It is not where the life took its offsets with it, nor without its gap.
        facts.gaps[1].reason = GapReason::MemoryLost;
        assert!(kinds(&facts).contains(&FindingKind::Unexplained));
        facts.gaps = vec![gap(30, 30, GapReason::PowerLoss)];
        assert!(kinds(&facts).contains(&FindingKind::Unexplained));
    }

    #[test]
    fn what_is_damaged_of_an_earlier_life_is_a_loss_in_the_next() {
        let mut facts = sound();
        facts.incarnation = Incarnation(2);
        facts.cursors.clear();
        facts.journal.clear();
        facts.batches.remove(1);
        facts.gaps = vec![
            gap(10, 20, GapReason::Damaged),
            gap(30, 30, GapReason::PowerLoss),
        ];
        // Once, with the life and the offsets of the gap: that explains the sequence numbers.
        let damaged = Finding {
            kind: FindingKind::Lost,
            partition: PartitionIndex(0),
            incarnation: NOW,
            first: 10,
            end: 20,
            what: "stored bytes are damaged; a gap records it".to_owned(),
        };
        assert_eq!(examine(&facts).findings, [damaged]);
        // At the end no sequence number tells of it.
        facts.gaps[0] = gap(20, 30, GapReason::Damaged);
        facts.batches = vec![batch(0, 0), batch(10, 10)];
        assert_eq!(kinds(&facts), [FindingKind::Lost]);
        // Nor does one of a life that damage ended.
        facts.end = Offset(20);
        facts.gaps = vec![gap(20, 20, GapReason::Damaged)];
        assert_eq!(kinds(&facts), [FindingKind::Lost]);
        // What is not stored under the offsets of the next life is no damage of that.
        facts.batches.clear();
        facts.end = Offset(0);
        facts.gaps = vec![
            gap(0, 10, GapReason::Damaged),
            gap(20, 20, GapReason::MemoryLost),
        ];
        assert_eq!(examine(&facts).findings, []);
    }

    #[test]
    fn a_cursor_in_no_life_is_found() {
        let mut facts = sound();
        facts.cursors = vec![cursor(Incarnation(9), 0)];
        assert_eq!(kinds(&facts), [FindingKind::Astray]);
    }
}
