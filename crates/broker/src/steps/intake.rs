//! How far the parts of a stream were looked at, by partition.

use super::core::Core;
use super::core::READ_BYTES_MAX;
use super::event::{Event, events_of};
use super::lent::Lent;
use super::records::{Done, forgets_done};
use super::run::OpenRun;
use crate::effects::StepsRead;
use crate::faults::Fault;
use crate::ids::StorageId;
use log::{Found, ReadBatches, StorageError};
use std::collections::BTreeMap;
use wire::record::Position;
use wire::{Incarnation, Offset, PartitionIndex};

/// How far one partition's parts were looked at.
#[derive(Debug, Clone, Copy)]
struct Intake {
    storage: StorageId,
    /// The life in which its offsets count; 0 is not known.
    incarnation: Incarnation,
    next: Offset,
    is_reading: bool,
}

/// What was found in a partition of parts.
pub(super) enum FoundParts {
    /// Parts, and the life in which their offsets count.
    Events(PartitionIndex, Incarnation, Vec<Event>),
    /// Some are gone: a sentence.
    Lost(String),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Intakes {
    all: BTreeMap<PartitionIndex, Intake>,
}

impl Intakes {
    /// For each partition, before where every part has a record, or is of no use to this run.
    pub fn done(&self, run: &OpenRun) -> Vec<Done> {
        let mut done: BTreeMap<PartitionIndex, Done> = BTreeMap::new();
        for (index, intake) in &self.all {
            let all_of_it = Done {
                partition: *index,
                incarnation: intake.incarnation,
                offset: intake.next,
            };
            done.insert(*index, all_of_it);
        }
        for place in run.held() {
            if let Some(done) = done.get_mut(&place.partition) {
                done.offset = done.offset.min(place.offset);
            }
        }
        done.into_values().collect()
    }

    /// Looks at parts that have become visible and are cached; others are read.
    pub fn look(&mut self, core: &mut Core, lent: &mut Lent<'_>) -> Vec<FoundParts> {
        let last = core.records.entries.back();
        let done = last.map(|entry| entry.done.clone()).unwrap_or_default();
        let mut found = Vec::new();
        for (index, storage) in lent.topics.storages(core.topic) {
            if !core.has_parts(index) {
                continue;
            }
            let forgets = forgets_done(lent.ctx);
            let known = self.all.entry(index).or_insert_with(|| {
                let done = done.iter().find(|known| known.partition == index);
                let done = done.filter(|_| !forgets);
                Intake {
                    storage,
                    incarnation: done.map_or(Incarnation(0), |done| done.incarnation),
                    next: done.map_or(Offset(0), |done| done.offset),
                    is_reading: false,
                }
            });
            known.storage = storage;
            found.extend(self.check_life(index, lent));
            while let Some(one) = self.look_at(index, core, lent) {
                found.extend(one);
            }
        }
        found
    }

    /// Parts of a life that has ended may be lost, though they were acknowledged.
    fn check_life(&mut self, index: PartitionIndex, lent: &Lent<'_>) -> Option<FoundParts> {
        let intake = self.all.get_mut(&index)?;
        let store = &lent.partitions.get(&intake.storage)?.store;
        let present = store.state().incarnation;
        let known = std::mem::replace(&mut intake.incarnation, present);
        if known == present || known == Incarnation(0) {
            return None;
        }
        let position = Position {
            incarnation: known,
            offset: intake.next,
        };
        intake.next = store.translate(position, present).offset;
        (!lent.ctx.planted(Fault::LostParts)).then(|| {
            FoundParts::Lost(format!(
                "parts of partition {index} may be lost that were acknowledged: its memory, or a power loss, took the end of it"
            ))
        })
    }

    /// Looks at parts of one partition. `None` if nothing more is cached.
    fn look_at(
        &mut self,
        index: PartitionIndex,
        core: &mut Core,
        lent: &mut Lent<'_>,
    ) -> Option<Vec<FoundParts>> {
        let intake = self.all.get_mut(&index)?;
        let end = lent.visible(intake.storage);
        if intake.is_reading || core.retry_at.is_some() {
            return None;
        }
        let partition = lent.partitions.get_mut(&intake.storage)?;
        let first = partition.store.state().first;
        // What a power loss has taken is gone; what comes instead is looked at.
        intake.next = intake.next.max(first).min(end);
        if intake.next >= end {
            return None;
        }
        let read = ReadBatches {
            from: intake.next,
            end,
            bytes_max: READ_BYTES_MAX,
            inline_data: false,
        };
        if let Some(found) = partition.store.storage.read_at_hand(&read) {
            let had = intake.next;
            let parts = self.found(index, Ok(found), core, lent);
            let has_moved = self.all.get(&index).is_some_and(|intake| intake.next > had);
            return has_moved.then_some(parts);
        }
        intake.is_reading = true;
        let storage = intake.storage;
        lent.read(storage, core.topic, StepsRead::Parts(index), read);
        None
    }

    /// Parts were read.
    pub fn was_read(
        &mut self,
        index: PartitionIndex,
        found: Result<Found, StorageError>,
        core: &mut Core,
        lent: &mut Lent<'_>,
    ) -> Vec<FoundParts> {
        if let Some(intake) = self.all.get_mut(&index) {
            intake.is_reading = false;
        }
        // What is not there yet is looked for when it is said to be.
        if !matches!(found, Ok(Found::Nothing)) {
            core.touch(lent);
        }
        self.found(index, found, core, lent)
    }

    fn found(
        &mut self,
        index: PartitionIndex,
        found: Result<Found, StorageError>,
        core: &mut Core,
        lent: &mut Lent<'_>,
    ) -> Vec<FoundParts> {
        let Some(intake) = self.all.get_mut(&index) else {
            return Vec::new();
        };
        let mut parts = Vec::new();
        let next = match found {
            Ok(Found::Batches { batches, next }) => {
                let incarnation = intake.incarnation;
                for bytes in batches {
                    match events_of(bytes) {
                        Ok(mut events) => {
                            events.retain(|event| event.offset >= intake.next);
                            parts.push(FoundParts::Events(index, incarnation, events));
                        }
                        Err(error) => lent.ctx.report(format!(
                            "{}/{index}: parts cannot be read: {error}",
                            core.name
                        )),
                    }
                }
                next
            }
            Ok(Found::Gap(gap)) => {
                parts.push(FoundParts::Lost(format!(
                    "parts {} to {} of partition {index} are lost: {:?}",
                    gap.first, gap.end, gap.reason
                )));
                gap.end
            }
            Ok(Found::Nothing) => return parts,
            Err(error) => {
                core.retry(&error.to_string(), lent);
                return parts;
            }
        };
        intake.next = intake.next.max(next);
        parts
    }
}
