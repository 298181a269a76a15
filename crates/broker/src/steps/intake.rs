//! How far the parts of a stream were looked at, by partition.

use super::core::Core;
use super::core::{READ_BYTES_MAX, RECORDS};
use super::event::{Event, events_of};
use super::lent::Lent;
use super::records::forgets_done;
use super::run::OpenRun;
use crate::effects::StepsRead;
use crate::ids::StorageId;
use log::{Found, ReadBatches, StorageError};
use std::collections::BTreeMap;
use wire::{Incarnation, Offset, PartitionIndex};

/// How far one partition's parts were looked at.
#[derive(Debug, Clone, Copy)]
struct Intake {
    storage: StorageId,
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
    pub fn done(&self, run: &OpenRun) -> Vec<(PartitionIndex, Offset)> {
        let done = self.all.iter().map(|(index, intake)| {
            let held = run.held().filter(|place| place.partition == *index);
            let first = held.map(|place| place.offset).min();
            (
                *index,
                first.map_or(intake.next, |first| first.min(intake.next)),
            )
        });
        done.collect()
    }

    /// Looks at parts that have become visible and are cached; others are read.
    pub fn look(&mut self, core: &mut Core, lent: &mut Lent<'_>) -> Vec<FoundParts> {
        let last = core.records.entries.back();
        let done = last.map(|entry| entry.done.clone()).unwrap_or_default();
        let mut found = Vec::new();
        for (index, storage) in lent.topics.storages(core.topic) {
            if index == RECORDS {
                continue;
            }
            let forgets = forgets_done(lent.ctx);
            let known = self.all.entry(index).or_insert_with(|| {
                let done = done.iter().find(|(known, _)| *known == index);
                Intake {
                    storage,
                    next: done
                        .filter(|_| !forgets)
                        .map_or(Offset(0), |(_, offset)| *offset),
                    is_reading: false,
                }
            });
            known.storage = storage;
            while let Some(one) = self.look_at(index, core, lent) {
                found.extend(one);
            }
        }
        found
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
                let partition = lent.partitions.get(&intake.storage);
                let incarnation = partition.map(|one| one.store.state().incarnation);
                let incarnation = incarnation.unwrap_or_default();
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
