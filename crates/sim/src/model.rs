//! What must be true: events that were pushed, where they were said to be,
//! what was delivered, and what may be lost.

mod reader;

use crate::trace::Violation;
use bytes::Bytes;
use client::{ConsumedEvent, EventDataRef, Gap, GapReason, Position};
pub use reader::Reader;
use std::collections::{BTreeMap, BTreeSet};
use wire::view::DataView;
use wire::{Durability, EventId, Incarnation, Offset, PartitionIndex};

/// An event, as its producer knows it.
#[derive(Debug, Clone)]
pub struct Pushed {
    /// Which life of which producer.
    pub life: usize,
    /// Where it was to go.
    pub partition: u32,
    /// How many that life had pushed there before.
    pub index: u64,
    /// Its key, if it has one.
    pub key: Option<u64>,
    /// What its ack was to mean.
    pub level: Durability,
    /// In which life of the partition, if its ack has come.
    pub acked: Option<Incarnation>,
    metadata_bytes: usize,
    data_bytes: usize,
}

/// One life of a producer.
#[derive(Debug, Clone)]
pub struct Life {
    /// Its name; lives of one name fence each other, in the order of their epochs.
    pub name: Option<String>,
    /// Which life of the name.
    pub epoch: u32,
    /// How many events had been pushed by anybody when it began.
    begun_at: usize,
    /// Which lives it fences, if it fences each as a whole: the first ones, which had begun before it was asked for. Of a spread topic each
    /// partition has its own order of those that are opened at once.
    fences: Option<usize>,
    counts: BTreeMap<u32, u64>,
}

/// What is known of a partition.
#[derive(Debug, Clone)]
pub struct PartitionModel {
    /// What the topic promises there.
    pub level: Durability,
    /// Whether old events may be dropped.
    pub retention: bool,
    /// Events that were acknowledged or delivered: life, offset, event.
    at: BTreeMap<Incarnation, BTreeMap<u64, usize>>,
    /// Gaps that anybody was told.
    gaps: Vec<Gap>,
    restarts: u64,
    power_losses: u64,
}

/// Between what a cursor may be.
#[derive(Debug, Clone, Copy, Default)]
struct CursorBounds {
    low: Option<Position>,
    high: Option<Position>,
    /// Acknowledged since the last seek was asked for.
    since_seek: Option<Position>,
    /// Where the last seek that was confirmed went.
    sought: Option<Position>,
    /// What was acknowledged up to here a power loss may have undone, though
    /// it was confirmed, or a flush that finds nothing left to do confirms it.
    forgotten: Option<Position>,
    seeks: u64,
    /// The most that was ever acknowledged.
    most: Option<Position>,
    /// A seek may take effect any time, for whoever asked is gone.
    is_loose: bool,
    /// Seeks that were asked for and not answered.
    seeking: u64,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Model {
    pub events: Vec<Pushed>,
    pub lives: Vec<Life>,
    pub partitions: Vec<PartitionModel>,
    cursors: BTreeMap<(String, u32), CursorBounds>,
    /// For whom is kept what they have not acknowledged.
    pub kept_for: BTreeSet<String>,
    /// Where each event was seen.
    places: BTreeMap<usize, BTreeSet<(Incarnation, u64)>>,
    pub acked_count: u64,
    pub delivered_count: u64,
}

/// The metadata of an event.
pub fn metadata_of(event: usize, bytes: usize) -> Vec<u8> {
    let mut metadata = format!("event {event} ").into_bytes();
    while metadata.len() < bytes {
        metadata.push(b'a' + ((event + metadata.len()) % 26) as u8);
    }
    metadata
}

/// A key, as events have it.
pub fn key_of(key: u64) -> Vec<u8> {
    format!("key {key}").into_bytes()
}

/// The data of an event.
pub fn data_of(event: usize, bytes: usize) -> Vec<u8> {
    let mut word = (event as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut data = Vec::with_capacity(bytes + 8);
    while data.len() < bytes {
        data.extend_from_slice(&word.to_le_bytes());
        word = word.rotate_left(7).wrapping_add(data.len() as u64);
    }
    data.truncate(bytes);
    data
}

fn event_of(metadata: &[u8]) -> Option<usize> {
    let text = metadata.strip_prefix(b"event ")?;
    let end = text.iter().position(|byte| *byte == b' ')?;
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

impl Pushed {
    /// Bytes of its metadata and data.
    pub fn bytes(&self) -> u64 {
        (self.metadata_bytes + self.data_bytes) as u64
    }
}

impl Model {
    /// A model of empty partitions.
    pub fn new(partitions: Vec<(Durability, bool)>) -> Self {
        let partition = |(level, retention)| PartitionModel {
            level,
            retention,
            at: BTreeMap::new(),
            gaps: Vec::new(),
            restarts: 0,
            power_losses: 0,
        };
        Self {
            events: Vec::new(),
            lives: Vec::new(),
            partitions: partitions.into_iter().map(partition).collect(),
            cursors: BTreeMap::new(),
            kept_for: BTreeSet::new(),
            places: BTreeMap::new(),
            acked_count: 0,
            delivered_count: 0,
        }
    }

    /// There is one partition more, as the first one is.
    pub fn grow(&mut self) {
        let first = &self.partitions[0];
        self.partitions.push(PartitionModel {
            level: first.level,
            retention: first.retention,
            at: BTreeMap::new(),
            gaps: Vec::new(),
            restarts: 0,
            power_losses: 0,
        });
    }

    /// Somebody knows of this partition: one that was asked for twice may have been added twice.
    pub fn reaches(&mut self, partition: u32) {
        while self.partitions.len() <= partition as usize {
            self.grow();
        }
    }

    /// How many lives have begun.
    pub fn life_count(&self) -> usize {
        self.lives.len()
    }

    /// A producer begins a life, which fences these of its name; all that are of an earlier epoch, if it does not say.
    pub fn begin_life(&mut self, name: Option<String>, epoch: u32, fences: Option<usize>) -> usize {
        self.lives.push(Life {
            name,
            epoch,
            begun_at: self.events.len(),
            fences,
            counts: BTreeMap::new(),
        });
        self.lives.len() - 1
    }

    /// An event that is about to be pushed; its number, metadata and data.
    pub fn draft(
        &self,
        life: usize,
        to: (u32, Option<u64>),
        sizes: (usize, usize),
        level: Option<Durability>,
    ) -> (Pushed, Vec<u8>, Bytes) {
        let id = self.events.len();
        let (partition, key) = to;
        let (metadata_bytes, data_bytes) = sizes;
        let level = level.unwrap_or(self.partitions[partition as usize].level);
        let index = self.lives[life].counts.get(&partition).copied();
        let pushed = Pushed {
            life,
            partition,
            index: index.unwrap_or(0),
            key,
            level,
            acked: None,
            metadata_bytes,
            data_bytes,
        };
        let data = Bytes::from(data_of(id, data_bytes));
        (pushed, metadata_of(id, metadata_bytes), data)
    }

    /// The push was taken.
    pub fn pushed(&mut self, event: Pushed) -> usize {
        let counts = &mut self.lives[event.life].counts;
        *counts.entry(event.partition).or_default() += 1;
        self.events.push(event);
        self.events.len() - 1
    }

    /// The server's process ended; with the power, perhaps.
    pub fn crashed(&mut self, power: bool) {
        self.crashed_with(power, |_| true);
    }

    /// The process of a server that has some of the partitions ended.
    pub fn crashed_with(&mut self, power: bool, has: impl Fn(u32) -> bool) {
        let partitions = (0..).zip(&mut self.partitions);
        for (_, partition) in partitions.filter(|(index, _)| has(*index)) {
            partition.restarts += 1;
            partition.power_losses += u64::from(power);
        }
        if power {
            // An acknowledgement survives what the events do; a seek survives it.
            for ((_, partition), bounds) in &mut self.cursors {
                let level = self.partitions[*partition as usize].level;
                if has(*partition) && level != Durability::Synced {
                    bounds.low = bounds.low.min(bounds.sought);
                    bounds.forgotten = bounds.high;
                }
            }
        }
    }

    /// An event was acknowledged.
    pub fn acked(&mut self, event: usize, id: EventId) -> Result<(), Violation> {
        self.acked_count += 1;
        self.events[event].acked = Some(id.incarnation);
        let own = self.events[event].life;
        let life = &self.lives[own];
        let successor = self.lives.iter().find(|other| {
            let is_later = other.name == life.name && other.epoch > life.epoch;
            is_later && other.begun_at <= event && other.fences.is_none_or(|first| own < first)
        });
        if let (Some(name), Some(successor)) = (&life.name, successor) {
            return Violation::because(format!(
                "event {event} of epoch {} of {name} is acknowledged, and was pushed after epoch \
                 {} had begun",
                life.epoch, successor.epoch
            ));
        }
        let what = format!("the ack of event {event} as {id}");
        if self.events[event].partition != id.partition.0 {
            return Violation::because(format!("{what}: it was pushed elsewhere"));
        }
        self.place(&what, event, id)
    }

    /// An event is said to be there: nobody else may be, nor it elsewhere.
    fn place(&mut self, what: &str, event: usize, id: EventId) -> Result<(), Violation> {
        let partition = &mut self.partitions[id.partition.0 as usize];
        let lives = 1 + match partition.level {
            Durability::Memory => partition.restarts,
            Durability::Written => partition.power_losses,
            Durability::Synced => 0,
        };
        if id.incarnation.0 == 0 || id.incarnation.0 > lives {
            return Violation::because(format!(
                "{what}: a partition of level {} is in life {} after {} restarts and {} power losses",
                partition.level, id.incarnation, partition.restarts, partition.power_losses
            ));
        }
        let at = partition.at.entry(id.incarnation).or_default();
        let there = *at.entry(id.offset.0).or_insert(event);
        if there != event {
            return Violation::because(format!("{what}: event {there} is there"));
        }
        let places = self.places.entry(event).or_default();
        places.insert((id.incarnation, id.offset.0));
        let elsewhere = places
            .iter()
            .find(|(life, offset)| *life == id.incarnation && *offset != id.offset.0);
        if let Some((_, offset)) = elsewhere {
            return Violation::because(format!("{what}: doubled, it is at offset {offset} too"));
        }
        Ok(())
    }

    /// Bytes of metadata of the events from `first` to `end`.
    pub fn log_bytes(&self, partition: u32, first: Offset, end: Position) -> u64 {
        let life = self.partitions[partition as usize].at.get(&end.incarnation);
        let events = life
            .into_iter()
            .flat_map(|life| life.range(first.0..end.offset.0.max(first.0)));
        events
            .map(|(_, event)| self.events[*event].metadata_bytes as u64)
            .sum()
    }

    /// Somebody says where an event is. That may be all that is known of it:
    /// whoever pushed it was killed, and who it was given to did not look.
    pub fn is_from(&mut self, what: &str, event: usize, id: EventId) -> Result<(), Violation> {
        let pushed_to = self.events[event].partition;
        if pushed_to != id.partition.0 {
            return Violation::because(format!("{what}: it was pushed to {pushed_to}"));
        }
        self.place(what, event, id)
    }

    /// A reader was told of a gap.
    pub fn gap(
        &mut self,
        reader: &mut Reader,
        partition: PartitionIndex,
        gap: Gap,
    ) -> Result<(), Violation> {
        self.check_spared(&reader.consumer, partition, gap)?;
        let name = &reader.name;
        let model = &mut self.partitions[partition.0 as usize];
        let what = format!("{name} is told of {gap:?} in partition {partition}");
        let is_allowed = match gap.reason {
            GapReason::Retention => model.retention,
            GapReason::MemoryLost => {
                model.level == Durability::Memory && gap.incarnation.0 <= model.restarts
            }
            GapReason::PowerLoss => {
                model.level == Durability::Written && gap.incarnation.0 <= model.power_losses
            }
            GapReason::Damaged | GapReason::Discarded => false,
        };
        if !is_allowed {
            return Violation::because(format!("{what}: nothing has happened that explains it"));
        }
        if gap.end < gap.first {
            return Violation::because(format!("{what}: it ends before it begins"));
        }
        reader.gaps.entry(partition.0).or_default().push(gap);
        if !model.gaps.contains(&gap) {
            model.gaps.push(gap);
        }
        Ok(())
    }

    /// Retention spares what a consumer that the topic names has not acknowledged.
    fn check_spared(
        &mut self,
        consumer: &str,
        partition: PartitionIndex,
        gap: Gap,
    ) -> Result<(), Violation> {
        if gap.reason != GapReason::Retention || !self.kept_for.contains(consumer) {
            return Ok(());
        }
        let most = self.bounds(consumer, partition.0).most;
        let most = most.filter(|most| most.incarnation == gap.incarnation);
        if most.is_some_and(|most| gap.end <= most.offset) {
            return Ok(());
        }
        Violation::because(format!(
            "{consumer} is told of {gap:?} in partition {partition}: it has acknowledged up to \
             {most:?}, and the rest was to be kept for it"
        ))
    }

    /// A reader was given an event. `view` is what it wanted of the data.
    pub fn delivered(
        &mut self,
        reader: &mut Reader,
        consumed: &ConsumedEvent,
        view: impl Fn(u64) -> Option<DataView>,
    ) -> Result<usize, Violation> {
        let event = self.recognised(&reader.name, consumed, view)?;
        let id = consumed.id();
        let partition = id.partition.0;
        let what = format!("{} is given {id}, event {event}", reader.name);
        let position = Position {
            incarnation: id.incarnation,
            offset: id.offset,
        };
        if let Some(expected) = reader.next(partition) {
            self.check_next(&what, reader, partition, expected, position)?;
        }
        let next = Position {
            offset: id.offset.plus(1),
            ..position
        };
        reader.goes_to(partition, next);
        reader
            .seen
            .entry(partition)
            .or_default()
            .insert(position, event);
        Ok(event)
    }

    /// Somebody was given an event: it is one that was pushed, where it is.
    pub fn recognised(
        &mut self,
        who: &str,
        consumed: &ConsumedEvent,
        view: impl Fn(u64) -> Option<DataView>,
    ) -> Result<usize, Violation> {
        self.delivered_count += 1;
        let id = consumed.id();
        let what = format!("{who} is given {id}");
        let event = self.content(&what, consumed, view)?;
        self.is_from(&format!("{what}, event {event}"), event, id)?;
        Ok(event)
    }

    /// Which event this is, by what is in it.
    pub fn content(
        &self,
        what: &str,
        consumed: &ConsumedEvent,
        view: impl Fn(u64) -> Option<DataView>,
    ) -> Result<usize, Violation> {
        let Some(event) = event_of(consumed.metadata()) else {
            return Violation::because(format!("{what}: nobody pushed that"));
        };
        let Some(pushed) = self.events.get(event) else {
            return Violation::because(format!("{what}: event {event} was never pushed"));
        };
        let what = format!("{what}, event {event}");
        if consumed.metadata() != metadata_of(event, pushed.metadata_bytes) {
            return Violation::because(format!("{what}: its metadata is not what was pushed"));
        }
        if consumed.key() != pushed.key.map(key_of).as_deref() {
            return Violation::because(format!("{what}: its key is not what was pushed"));
        }
        self.check_data(&what, event, pushed, consumed, view)?;
        Ok(event)
    }

    fn check_data(
        &self,
        what: &str,
        event: usize,
        pushed: &Pushed,
        consumed: &ConsumedEvent,
        view: impl Fn(u64) -> Option<DataView>,
    ) -> Result<(), Violation> {
        if consumed.data_bytes_total() != pushed.data_bytes as u64 {
            return Violation::because(format!(
                "{what}: it has {} bytes of data, {} were pushed",
                consumed.data_bytes_total(),
                pushed.data_bytes
            ));
        }
        let whole = data_of(event, pushed.data_bytes);
        let wanted: Vec<u8> = match view(pushed.data_bytes as u64) {
            Some(view) => view.gather(&whole).flatten().copied().collect(),
            None => whole,
        };
        let found = match consumed.data() {
            EventDataRef::None => Bytes::new(),
            EventDataRef::Inline(bytes) => bytes,
            EventDataRef::Allocated(_) => {
                return Violation::because(format!("{what}: nobody gave memory for it"));
            }
        };
        if found[..] != wanted[..] {
            return Violation::because(format!(
                "{what}: {} bytes of data came, not the {} that were wanted",
                found.len(),
                wanted.len()
            ));
        }
        Ok(())
    }

    /// Whether going from `expected` to `found` is explained by gaps.
    fn check_next(
        &self,
        what: &str,
        reader: &Reader,
        partition: u32,
        expected: Position,
        found: Position,
    ) -> Result<(), Violation> {
        let Some(position) = reader.led_to(partition, expected, found.incarnation) else {
            return Violation::because(format!(
                "{what}: {expected:?} was next, and no gap ends that life"
            ));
        };
        if position != found {
            return Violation::because(format!(
                "{what}: {expected:?} was next; by the gaps told, {position:?}"
            ));
        }
        Ok(())
    }

    /// A consumer was opened at its cursor and stands there.
    pub fn opened(
        &mut self,
        consumer: &str,
        partition: u32,
        position: Position,
    ) -> Result<(), Violation> {
        let model = &self.partitions[partition as usize];
        let bounds = self
            .cursors
            .get(&(consumer.to_owned(), partition))
            .copied()
            .unwrap_or_default();
        let beginning = Position {
            incarnation: Incarnation(1),
            offset: Offset(0),
        };
        let low = bounds.low.unwrap_or(beginning);
        let high = bounds.high.unwrap_or(beginning).max(low);
        let what = format!("cursor of {consumer} in partition {partition}");
        let text = format!("{what} is at {position:?}, between {low:?} and {high:?} it must be");
        // Who begins in a later life than the cursor's stands in what that
        // life kept. What retention dropped is passed over.
        if position < low && position.incarnation >= low.incarnation {
            return Violation::because(text);
        }
        if position.incarnation < low.incarnation {
            return Violation::because(text);
        }
        let is_beyond = position.incarnation == high.incarnation && position > high;
        if is_beyond && !model.retention && model.level == Durability::Synced {
            return Violation::because(text);
        }
        Ok(())
    }

    fn bounds(&mut self, consumer: &str, partition: u32) -> &mut CursorBounds {
        self.cursors
            .entry((consumer.to_owned(), partition))
            .or_default()
    }

    /// A consumer acknowledged everything below `position`.
    pub fn acknowledges(&mut self, consumer: &str, partition: u32, position: Position) {
        let bounds = self.bounds(consumer, partition);
        bounds.high = bounds.high.max(Some(position));
        bounds.most = bounds.most.max(Some(position));
        bounds.since_seek = bounds.since_seek.max(Some(position));
    }

    /// How often a consumer has gone elsewhere: to be given to
    /// [`Model::acknowledged`] with what was acknowledged at that time.
    pub fn seek_count(&mut self, consumer: &str, partition: u32) -> u64 {
        self.bounds(consumer, partition).seeks
    }

    /// The server has said that an acknowledgement is durable.
    pub fn acknowledged(&mut self, consumer: &str, partition: u32, position: Position, seeks: u64) {
        let bounds = self.bounds(consumer, partition);
        if bounds.seeks == seeks && !bounds.is_loose && Some(position) > bounds.forgotten {
            bounds.low = bounds.low.max(Some(position));
        }
    }

    /// A consumer wants to go there.
    pub fn seeks(&mut self, consumer: &str, partition: u32, position: Position) {
        let bounds = self.bounds(consumer, partition);
        // None, which is the beginning, is less than any.
        bounds.low = bounds.low.min(Some(position));
        bounds.sought = bounds.sought.min(Some(position));
        bounds.high = bounds.high.max(Some(position));
        bounds.since_seek = None;
        bounds.seeks += 1;
        bounds.seeking += 1;
    }

    /// The server has said that a seek is durable; or nobody will ever know.
    pub fn sought(&mut self, consumer: &str, partition: u32, position: Option<Position>) {
        let bounds = self.bounds(consumer, partition);
        bounds.seeking -= 1;
        match position {
            None => bounds.is_loose = true,
            // Another one is to follow.
            Some(_) if bounds.is_loose || bounds.seeking > 0 => {}
            Some(position) => {
                bounds.low = Some(position);
                bounds.sought = Some(position);
                // What was acknowledged before is not to follow it.
                bounds.high = bounds.since_seek.max(Some(position));
            }
        }
    }

    /// At the end: everything that was promised is among what `scan` has read
    /// from the beginning, in order, once.
    pub fn check_scan(&self, scan: &Reader, ends: &[Position]) -> Result<(), Violation> {
        for (index, model) in self.partitions.iter().enumerate() {
            let partition = index as u32;
            let empty = BTreeMap::new();
            let seen = scan.seen.get(&partition).unwrap_or(&empty);
            let end = ends[index];
            self.check_kept(partition, model, seen, end)?;
            self.check_order(partition, seen, end)?;
            self.check_carried(partition, model)?;
        }
        Ok(())
    }

    /// From where on a scan that began at `first` must have found everything:
    /// retention may have caught up with it.
    fn kept_from(&self, partition: u32, first: Offset, end: Position) -> Offset {
        let model = &self.partitions[partition as usize];
        if !model.retention {
            return Offset(0);
        }
        let gaps = model
            .gaps
            .iter()
            .filter(|gap| gap.reason == GapReason::Retention && gap.incarnation == end.incarnation);
        gaps.fold(first, |kept, gap| kept.max(gap.end))
    }

    /// Nothing that was acknowledged or delivered is missing.
    fn check_kept(
        &self,
        partition: u32,
        model: &PartitionModel,
        seen: &BTreeMap<Position, usize>,
        end: Position,
    ) -> Result<(), Violation> {
        let first = seen.keys().next().map_or(end.offset, |first| first.offset);
        let kept = self.kept_from(partition, first, end);
        for (life, events) in &model.at {
            for (offset, event) in events {
                let pushed = &self.events[*event];
                let survives = *life == end.incarnation
                    || (pushed.acked == Some(*life) && pushed.level == Durability::Synced)
                    || self.is_carried(model, *life, *offset, end.incarnation);
                if !survives || *offset < kept.0 {
                    continue;
                }
                let position = Position {
                    incarnation: end.incarnation,
                    offset: Offset(*offset),
                };
                let found = seen.get(&position);
                if found != Some(event) {
                    return Violation::because(format!(
                        "partition {partition} lost event {event} (level {}): it was acknowledged or \
                         delivered at {offset} of life {life}, now {found:?} is there; the end is \
                         {end:?}, gaps {:?}",
                        pushed.level, model.gaps
                    ));
                }
            }
        }
        if !model.retention && first != Offset(0) {
            return Violation::because(format!(
                "partition {partition} begins at {first}, and nothing was to be dropped"
            ));
        }
        Ok(())
    }

    /// Whether an offset of an earlier life is in the last one.
    fn is_carried(
        &self,
        model: &PartitionModel,
        life: Incarnation,
        offset: u64,
        last: Incarnation,
    ) -> bool {
        (life.0..last.0).all(|life| {
            model.gaps.iter().any(|gap| {
                gap.incarnation.0 == life
                    && gap.reason == GapReason::PowerLoss
                    && offset < gap.first.0
            })
        })
    }

    /// Events of one life of a producer are stored in the order of their
    /// pushes, without holes; and those of a later life of a name behind.
    fn check_order(
        &self,
        partition: u32,
        seen: &BTreeMap<Position, usize>,
        end: Position,
    ) -> Result<(), Violation> {
        let first = seen.keys().next().map_or(end.offset, |first| first.offset);
        let kept = self.kept_from(partition, first, end);
        let begins = kept == Offset(0) && first == Offset(0);
        let mut last: BTreeMap<usize, u64> = BTreeMap::new();
        let mut newest: BTreeMap<&str, u32> = BTreeMap::new();
        let kept = |position: &Position| position.offset >= kept;
        for (position, event) in seen.iter().filter(|(position, _)| kept(position)) {
            let pushed = &self.events[*event];
            let what = format!("event {event} at {position:?} of partition {partition}");
            let before = last.insert(pushed.life, pushed.index);
            let is_next = match before {
                None => pushed.index == 0 || !begins || position.incarnation.0 > 1,
                // Later lives of the partition have lost some.
                Some(before) if position.incarnation.0 > 1 => pushed.index > before,
                Some(before) => pushed.index == before + 1,
            };
            if !is_next {
                return Violation::because(format!(
                    "{what} is number {} of its producer there, after {before:?}",
                    pushed.index
                ));
            }
            let life = &self.lives[pushed.life];
            if let Some(name) = &life.name {
                let newest = newest.entry(name).or_insert(life.epoch);
                if life.epoch < *newest {
                    return Violation::because(format!(
                        "{what} is of epoch {} of {name}, fenced by epoch {newest}",
                        life.epoch
                    ));
                }
                *newest = life.epoch;
            }
        }
        Ok(())
    }

    /// No event is in a life both as one that was kept and as a new one.
    fn check_carried(&self, partition: u32, model: &PartitionModel) -> Result<(), Violation> {
        for (event, places) in &self.places {
            if self.events[*event].partition != partition {
                continue;
            }
            for (life, offset) in places {
                let doubled = places.iter().find(|(other, place)| {
                    other > life
                        && place != offset
                        && self.is_carried(model, *life, *offset, *other)
                });
                if let Some((other, place)) = doubled {
                    return Violation::because(format!(
                        "event {event} is in partition {partition} at {offset} since life {life} \
                         and again at {place} of life {other}"
                    ));
                }
            }
        }
        Ok(())
    }
}
