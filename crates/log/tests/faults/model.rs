//! What a partition must hold, told by what was asked of it and what it said.

use log::testing::{Contents, EventSpec, make_batch};
use log::{Recovery, StorageState};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use wire::batch::{Header, Origin, STAMP_BYTES};
use wire::record::Gap;
use wire::record::{CursorRecord, GapReason, Position, Record};
use wire::*;

pub const TOPIC: TopicId = TopicId(0xabc);
pub const BLOCK_BYTES: u32 = 512;
/// Producers 0 and 1 send events, producer 2 writes records without sequence.
pub const PRODUCERS: u8 = 3;
pub const RECORDS: u8 = 2;
const EVENTS_MAX: u64 = 3;

/// Which event: its producer and its number there. All that it holds follows
/// from this, so that whatever is read can be told to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub producer: u8,
    pub sequence: u64,
}

fn hash(key: Key) -> u64 {
    let mut z = (u64::from(key.producer) << 40 | key.sequence).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 29)
}

impl Key {
    /// What the event holds.
    pub fn event(self) -> Arc<EventSpec> {
        thread_local! {
            static KNOWN: RefCell<HashMap<Key, Arc<EventSpec>>> = RefCell::default();
        }
        KNOWN.with_borrow_mut(|known| {
            let made = known
                .entry(self)
                .or_insert_with(|| Arc::new(self.make_event()));
            made.clone()
        })
    }

    fn make_event(self) -> EventSpec {
        let hash = hash(self);
        if self.producer == RECORDS {
            let cursor = CursorRecord {
                namespace: String::new(),
                consumer: "reader".into(),
                topic: TOPIC,
                partition: PartitionIndex(0),
                position: Some(Position {
                    incarnation: Incarnation(1),
                    offset: Offset(self.sequence),
                }),
                consumer_id: ConsumerId(0),
            };
            return EventSpec {
                metadata: Record::Cursor(cursor).to_bytes(),
                ..EventSpec::default()
            };
        }
        let mut metadata =
            format!("producer {} event {} ", self.producer, self.sequence).into_bytes();
        let filler = match hash % 23 {
            0 => 3000,
            _ => hash % 100,
        };
        metadata.extend((0..filler).map(|i| (i ^ hash) as u8));
        let external = hash.is_multiple_of(5);
        let data_bytes = match hash % 7 {
            _ if external => 300 + hash % 1500,
            0 | 1 => 0,
            _ => hash % 150,
        };
        let data = (0..data_bytes).map(|i| (i * 31 + hash) as u8).collect();
        EventSpec {
            metadata,
            data,
            external,
        }
    }

    /// The keys of the batch that begins with this event.
    pub fn batch(self) -> Vec<Key> {
        let count = match self.producer {
            RECORDS => 1,
            _ => 1 + hash(self) / 64 % EVENTS_MAX,
        };
        let key = |i| Key {
            sequence: self.sequence + i,
            ..self
        };
        (0..count).map(key).collect()
    }

    pub fn batch_events(self) -> Vec<EventSpec> {
        self.batch()
            .into_iter()
            .map(|key| (*key.event()).clone())
            .collect()
    }

    pub fn batch_bytes(self) -> (Vec<u8>, Header, u32) {
        let origin = Origin {
            topic: TOPIC,
            producer: ProducerId(match self.producer {
                RECORDS => 0,
                producer => 100 + u128::from(producer),
            }),
            epoch: ProducerEpoch(0),
            first_sequence: Sequence(self.sequence),
        };
        let bytes = make_batch(origin, &self.batch_events(), BLOCK_BYTES);
        let (header, crc) = Header::read(&bytes[STAMP_BYTES..]).unwrap();
        (bytes, header, crc)
    }

    /// Which event this is, if it is whole.
    fn of(event: &EventSpec) -> Result<Key, String> {
        let text = String::from_utf8_lossy(&event.metadata);
        let mut words = text.split(' ');
        let key = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("producer"), Some(producer), Some("event"), Some(sequence)) => {
                let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
                Key {
                    producer: number(producer)? as u8,
                    sequence: number(sequence)?,
                }
            }
            _ => match Record::from_bytes("record", &event.metadata) {
                Ok(Record::Cursor(cursor)) => Key {
                    producer: RECORDS,
                    sequence: cursor.position.map_or(0, |position| position.offset.0),
                },
                _ => return Err(format!("an event that nobody sent: {text:.60}")),
            },
        };
        let expected = key.event();
        // External data may not have been asked for.
        let data = event.external && event.data.is_empty() || event.data == expected.data;
        if !data || (&event.metadata, event.external) != (&expected.metadata, expected.external) {
            return Err(format!("{key:?} is served with other bytes than were sent"));
        }
        Ok(key)
    }
}

/// What a crash may have done besides losing what was not promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allow {
    /// Nothing.
    Nothing,
    /// A bit was flipped: one batch may be lost, if that is said.
    Flip,
    /// A sync lied: the end may be missing, holes must be named.
    Lie,
}

/// What happened before a partition is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    Closed,
    Killed,
    PowerLoss,
}

#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Whether making the partition was completed.
    pub created: bool,
    /// What is at each offset, as far as it is known.
    pub log: Vec<Option<Key>>,
    /// Whatever was ever appended at an offset.
    candidates: Vec<BTreeSet<Key>>,
    /// Below these offsets, what is in the log was promised to stay.
    pub written: u64,
    pub synced: u64,
    /// Events below may be removed.
    pub removed_max: u64,
    /// The next event that each producer sends.
    pub next: BTreeMap<u8, u64>,
    /// Whether the topic promises no more than `written`.
    pub written_only: bool,
    pub incarnation: u64,
    /// The machine's boot.
    pub boot: u64,
    /// How often the power was lost since the partition was last opened.
    pub power_losses: u64,
    /// Whether it is being closed: then all is durable at some time, and says so.
    pub closing: bool,
}

impl Model {
    pub fn appended(&mut self, first: Key, offset: Offset) {
        let keys = first.batch();
        assert_eq!(offset.0, self.log.len() as u64, "offsets are dense");
        for key in &keys {
            if self.candidates.len() == self.log.len() {
                self.candidates.push(BTreeSet::new());
            }
            self.candidates[self.log.len()].insert(*key);
            self.log.push(Some(*key));
        }
        let next = first.sequence + keys.len() as u64;
        self.next.insert(first.producer, next);
    }

    pub fn refused(&mut self, from: Offset) -> Result<(), String> {
        if from.0 < self.written {
            return Err(format!("{from} is refused, {} was written", self.written));
        }
        for key in self.log.drain(from.0 as usize..).flatten() {
            let next = self.next.entry(key.producer).or_default();
            if key.producer != RECORDS {
                *next = (*next).min(key.sequence);
            }
        }
        Ok(())
    }

    pub fn progressed(&mut self, state: &StorageState) -> Result<(), String> {
        if state.end.0 != self.log.len() as u64 {
            return Err(format!(
                "end is {}, {} were appended",
                state.end,
                self.log.len()
            ));
        }
        if state.synced > state.written || state.written > state.end || state.synced.0 < self.synced
        {
            return Err(format!("levels out of order: {state:?}"));
        }
        self.written = state.written.0;
        self.synced = state.synced.0;
        Ok(())
    }

    /// Compares what a reopened partition holds with what it must hold.
    /// `from` is where `contents` begin.
    pub fn check(
        &self,
        crash: Crash,
        allow: Allow,
        (state, report): (&StorageState, &Recovery),
        contents: &Contents,
    ) -> Result<Vec<Option<Key>>, String> {
        let promised = match crash {
            Crash::PowerLoss => self.synced,
            Crash::Killed => self.written,
            Crash::Closed => self.log.len() as u64,
        };
        let (first, end) = (state.first.0, state.end.0);
        if state.synced.0 != end || state.written.0 != end || state.failure.is_some() {
            return Err(format!("after recovery not all is durable: {state:?}"));
        }
        if first > self.removed_max && allow == Allow::Nothing {
            return Err(format!(
                "first is {first}, removed was {}",
                self.removed_max
            ));
        }
        if end > self.candidates.len() as u64 {
            return Err(format!(
                "end is {end}, only {} were appended",
                self.candidates.len()
            ));
        }
        let power_loss = crash == Crash::PowerLoss || self.power_losses > 0;
        // Flipped bits may leave nothing to tell how much is gone behind them.
        let is_uncounted = |gap: &Gap| gap.reason == GapReason::Damaged && gap.ends_life();
        let damaged = allow != Allow::Nothing && report.gaps.iter().any(is_uncounted);
        let ends = power_loss && self.written_only || damaged;
        // Whoever makes a partition and dies has nothing to lose yet.
        let ends = ends && (self.created && !self.closing || report.ended.is_some());
        if ends != report.ended.is_some() {
            return Err(format!(
                "a life ended: {:?}, should it: {ends}",
                report.ended
            ));
        }
        // A life that was begun while recovery met its end is passed over, once
        // for each attempt.
        let losses = self.power_losses + u64::from(crash == Crash::PowerLoss);
        let most = self.incarnation + if ends { 2 * losses + 1 } else { 0 };
        let least = self.incarnation + u64::from(ends);
        if !(least..=most).contains(&state.incarnation.0) {
            return Err(format!(
                "incarnation {}, not {least} to {most}",
                state.incarnation
            ));
        }
        let mut found: Vec<Option<Key>> = vec![None; end as usize];
        for (offset, event) in &contents.events {
            let key = Key::of(event).map_err(|error| format!("at {offset}: {error}"))?;
            if !self.candidates[offset.0 as usize].contains(&key) {
                return Err(format!(
                    "{key:?} is at {offset}, where it was never appended"
                ));
            }
            found[offset.0 as usize] = Some(key);
        }
        let named = self.named(report, contents)?;
        let mut lost = Vec::new();
        for offset in first..end.max(promised) {
            let must = (offset < promised)
                .then(|| self.log[offset as usize])
                .flatten();
            let is = found.get(offset as usize).copied().flatten();
            match (must, is) {
                (Some(must), Some(is)) if must != is => {
                    return Err(format!("{is:?} is at {offset} instead of {must:?}"));
                }
                (_, Some(_)) if named.contains(&offset) => {
                    return Err(format!("{offset} is named as lost, and there"));
                }
                (_, Some(_)) => {}
                // A tail that fails its checksum looks like one that was
                // being written: it is cut, and counted.
                (_, None) if offset >= end && allow == Allow::Flip && report.cut_bytes > 0 => {
                    lost.push(offset);
                }
                (_, None) if offset >= end && damaged => lost.push(offset),
                (_, None) if offset >= end && allow == Allow::Lie => {}
                (_, None) if named.contains(&offset) && allow != Allow::Nothing => {
                    lost.push(offset)
                }
                (None, None) if offset < promised => {}
                (_, None) => {
                    return Err(format!(
                        "{must:?} at {offset} is missing, {promised} were promised, {report:?}, {state:?}"
                    ));
                }
            }
        }
        let past = |offset: &&u64| **offset < end;
        if allow == Allow::Flip && lost.iter().filter(past).count() as u64 > EVENTS_MAX {
            return Err(format!("one flipped bit cost {lost:?}"));
        }
        self.check_order(&found, allow)?;
        Ok(found)
    }

    /// Offsets that recovery or reading named as lost.
    fn named(&self, report: &Recovery, contents: &Contents) -> Result<BTreeSet<u64>, String> {
        let mut named: BTreeSet<u64> = contents.damaged.iter().map(|offset| offset.0).collect();
        for (first, end) in &contents.gaps {
            named.extend(first.0..end.0);
        }
        for gap in &report.gaps {
            match gap.reason {
                GapReason::Damaged => named.extend(gap.first.0..gap.end.0),
                GapReason::Retention if gap.end.0 <= self.removed_max => {}
                GapReason::PowerLoss if self.written_only && report.ended.is_some() => {}
                _ => return Err(format!("a gap that nothing explains: {gap:?}")),
            }
        }
        Ok(named)
    }

    /// Nothing twice, and each producer's events in order and without holes.
    fn check_order(&self, found: &[Option<Key>], allow: Allow) -> Result<(), String> {
        let mut last: BTreeMap<u8, u64> = BTreeMap::new();
        for (offset, key) in found.iter().enumerate() {
            let Some(key) = key else {
                continue;
            };
            if let Some(before) = last.insert(key.producer, key.sequence) {
                let holes = allow != Allow::Nothing || key.producer == RECORDS;
                let next = key.sequence == before + 1 || holes && key.sequence > before;
                if !next {
                    return Err(format!("at {offset} {key:?} follows event {before}"));
                }
            }
        }
        Ok(())
    }

    /// Takes over what was found: from here on it is what must stay.
    pub fn adopt(&mut self, found: Vec<Option<Key>>, state: &StorageState) {
        self.log = found;
        self.written = state.written.0;
        self.synced = state.synced.0;
        self.incarnation = state.incarnation.0;
        self.power_losses = 0;
        // A lost offset may be used again only if it is beyond the end.
        self.candidates.truncate(self.log.len());
        self.removed_max = self.removed_max.max(state.first.0);
        for producer in 0..RECORDS {
            let of = |key: &&Key| key.producer == producer;
            if let Some(last) = self.log.iter().flatten().rfind(of) {
                self.next.insert(producer, last.sequence + 1);
            } else if state.first == Offset(0) {
                self.next.insert(producer, 0);
            }
        }
    }
}
