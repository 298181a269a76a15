//! Pinned steps: retention leaves them.
//!
//! ```text
//!  parts in the partition of pinned parts --committed--> a record as any --at once--> it is read, its copy
//!     appended to the partition of pinned records --synced--> retention may take it; then its copy is read
//! ```
//!
//! A copy names the place of its record, which is what readers know the step by. A record may be
//! there twice: a start that finds both has the copy already. It is made as soon as there is a
//! record, and not when retention is to take that: retention is what makes space on a full disk, so
//! it must not need any. Parts of pinned steps stay from the first one on.

use super::core::{Core, PINNED_PARTS, PINNED_RECORDS, RECORDS};
use super::event::{Event, events_of};
use super::lent::Lent;
use super::records::{Entry, Pin, RETRY_AFTER, producer_of, recalled};
use crate::ctx::Ctx;
use crate::effects::StepsRead;
use crate::faults::Fault;
use crate::ids::{OWN_LINK, RequestId};
use crate::partition::incoming::ValidBatch;
use crate::refusal::{Refused, refuse};
use log::{Found, ReadBatches, StorageError};
use serde_json::{Value, json};
use std::time::Duration;
use wire::batch::{BatchBuilder, EventParts, Origin};
use wire::record::Position;
use wire::step::PartPlace;
use wire::{ErrorCode, ErrorReply, Incarnation, Offset, PartitionIndex, ProducerEpoch};

/// The most steps of a stream that are pinned.
const PINNED_STEPS_MAX: usize = 1024;

/// Which record is being copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Copying {
    #[default]
    Nothing,
    /// It is being read.
    Reading(Offset),
    /// It is being written.
    Appending {
        record: Offset,
        copy: Offset,
        append: u64,
    },
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pins {
    copying: Copying,
    /// When a copy is tried again that could not be written.
    pub retry_at: Option<Duration>,
    /// Whether the operator was told of that.
    is_failing: bool,
}

impl Pins {
    /// Begins to copy a record of which there is no copy.
    pub fn copy(&mut self, core: &mut Core, lent: &mut Lent<'_>) {
        let uncopied = core.records.first_uncopied();
        let Some(record) = uncopied.filter(|_| self.copying == Copying::Nothing) else {
            return;
        };
        if lent.ctx.planted(Fault::PinUncopied) {
            core.records.copied(record, Offset(0));
            return core.touch(lent);
        }
        let now = lent.ctx.now.monotonic;
        self.retry_at = self.retry_at.filter(|at| *at > now);
        let is_late = self.retry_at.is_some() || core.retry_at.is_some();
        let Some(storage) = lent.storage(core.topic, RECORDS).ok().filter(|_| !is_late) else {
            return;
        };
        let read = ReadBatches {
            from: record,
            end: record.plus(1),
            bytes_max: u64::MAX,
            inline_data: true,
        };
        self.copying = Copying::Reading(record);
        lent.read(storage, core.topic, StepsRead::Pin, read);
    }

    /// The record was read.
    pub fn was_read(
        &mut self,
        found: Result<Found, StorageError>,
        core: &mut Core,
        lent: &mut Lent<'_>,
    ) {
        let Copying::Reading(record) = std::mem::take(&mut self.copying) else {
            return;
        };
        core.touch(lent);
        let batches = match found {
            Ok(Found::Batches { batches, .. }) => batches,
            // It is there, so it is read again, but not at once.
            Ok(Found::Nothing) => return core.retry("a pinned record was not found", lent),
            Ok(Found::Gap(_)) => Vec::new(),
            Err(error) => return core.retry(&error.to_string(), lent),
        };
        let events = batches.into_iter().filter_map(|one| events_of(one).ok());
        let Some(event) = events.flatten().find(|event| event.offset == record) else {
            lent.ctx.report(format!(
                "{}: the record of a pinned step at offset {record} is damaged: it is not pinned any more",
                core.name
            ));
            return core.records.unpin(record);
        };
        if let Err(error) = self.append(&event, core, lent) {
            self.failed(&core.name, &error.message, lent.ctx);
        }
    }

    /// A copy can't be written, and is tried again.
    fn failed(&mut self, name: &str, error: &str, ctx: &mut Ctx) {
        self.retry_at = Some(ctx.now.monotonic + RETRY_AFTER);
        if !std::mem::replace(&mut self.is_failing, true) {
            ctx.report(format!(
                "{name}: the record of a pinned step cannot be copied, which is tried again; \
                 retention leaves it and what is behind it until then: {error}"
            ));
        }
    }

    fn append(&mut self, event: &Event, core: &Core, lent: &mut Lent<'_>) -> Result<(), Refused> {
        let incarnation = lent.incarnation(core.topic);
        let metadata = copied_metadata(event, incarnation);
        let storage = lent.storage(core.topic, PINNED_RECORDS)?;
        let Some(partition) = lent.partitions.get_mut(&storage) else {
            return Ok(());
        };
        let (producer, epoch) = (producer_of(core.topic), ProducerEpoch(0));
        let first_sequence = partition.store.storage.next_sequence(producer, epoch);
        let origin = Origin {
            topic: core.topic,
            producer,
            epoch,
            first_sequence: first_sequence.unwrap_or_default(),
        };
        let mut builder = BatchBuilder::default();
        builder.push(EventParts {
            metadata: metadata.as_bytes(),
            inline: &[&event.inline],
            ..EventParts::default()
        });
        let sealed = builder.seal(origin, wire::batch::BLOCK_BYTES_DEFAULT);
        // What it is a copy of leaves for good, so it is to survive as much as it can.
        let durability = partition.store.storage.durability_max();
        let (batch, _) = ValidBatch::own(&sealed.to_vec(), durability);
        let append = lent.ctx.next_id();
        let caller = RequestId {
            link: OWN_LINK,
            id: append,
        };
        let copy = partition.store.state().end;
        partition.append(caller, batch, None, lent.ctx)?;
        lent.appends.insert(append, core.topic);
        self.copying = Copying::Appending {
            record: event.offset,
            copy,
            append,
        };
        Ok(())
    }

    /// A batch is stored, or was refused. Says whether it was a copy.
    pub fn appended(
        &mut self,
        done: u64,
        result: &Result<(), ErrorReply>,
        core: &mut Core,
        lent: &mut Lent<'_>,
    ) -> bool {
        let Copying::Appending {
            record,
            copy,
            append,
        } = self.copying
        else {
            return false;
        };
        if append != done {
            return false;
        }
        self.copying = Copying::Nothing;
        match result {
            Ok(()) => {
                self.is_failing = false;
                core.records.copied(record, copy);
            }
            Err(error) => self.failed(&core.name, &error.message, lent.ctx),
        }
        true
    }
}

/// A copy's metadata: the record's, and where that is and when it was appended.
fn copied_metadata(event: &Event, incarnation: Incarnation) -> String {
    let mut said: Value = serde_json::from_slice(&event.metadata).unwrap_or_default();
    said["at"] = json!((event.offset.0, incarnation.0));
    said["time"] = event.time.into();
    said.to_string()
}

/// A start has found a copy.
pub(super) fn recall(event: &Event, core: &mut Core, lent: &Lent<'_>) {
    if lent.ctx.planted(Fault::PinsForgotten) {
        return;
    }
    if let Some(entry) = recalled_copy(event)
        // Not of a record that a power loss took, and in whose place another one may be.
        .filter(|(entry, at)| lent.behind(core.topic, *at) == entry.offset.plus(1))
    {
        core.records.found_pinned(entry.0);
    }
}

/// The record of which an event is a copy, and where the one behind it is.
fn recalled_copy(event: &Event) -> Option<(Entry, Position)> {
    let said: Value = serde_json::from_slice(&event.metadata).ok()?;
    let (offset, time) = (Offset(said["at"][0].as_u64()?), said["time"].as_u64()?);
    let own_bytes = event.metadata.len() as u64 + event.data_bytes;
    let mut entry = recalled(&event.metadata, (offset, time, own_bytes))?.entry;
    entry.pin = Some(Pin {
        copy: Some(event.offset),
        ..entry.pin?
    });
    let behind = Position {
        incarnation: Incarnation(said["at"][1].as_u64()?),
        offset: offset.plus(1),
    };
    Some((entry, behind))
}

/// Before what parts of a partition may go, of those that have done their service.
pub(super) fn spare(index: PartitionIndex, before: Offset, core: &Core, ctx: &Ctx) -> Offset {
    if !core.has_pins || index != PINNED_PARTS || ctx.planted(Fault::PinnedParts) {
        return before;
    }
    let pinned = core.records.pinned().map(|(_, pin)| pin.parts_from);
    pinned.fold(before, Offset::min)
}

/// Refuses one more pinned step where there is no place for any, or too much is pinned; so many
/// have been let in and have no record yet.
pub(super) fn check_room(core: &Core, let_in: usize, lent: &Lent<'_>) -> Result<(), Refused> {
    let name = &core.name;
    if !core.has_pins {
        return Err(refuse(
            ErrorCode::InvalidTopic,
            format!("{name} was made without a place for pinned steps"),
        ));
    }
    let (steps, bytes) = core
        .records
        .pinned()
        .fold((let_in, 0), |(steps, bytes), (entry, _)| {
            (steps + 1, bytes + entry.bytes)
        });
    let served = lent.topics.get(core.topic);
    let keep = served.map(|served| served.definition.retention());
    let most = keep.and_then(|keep| keep.bytes.into_iter().chain(keep.total_bytes).min());
    if steps < PINNED_STEPS_MAX && most.is_none_or(|most| bytes < most) {
        return Ok(());
    }
    let limit = match most {
        Some(most) => format!("{PINNED_STEPS_MAX} steps, or the {most} bytes of its retention"),
        None => format!("{PINNED_STEPS_MAX} steps"),
    };
    Err(refuse(
        ErrorCode::LimitExceeded,
        format!("{steps} steps of {bytes} bytes are pinned in {name}; {limit}, are the most"),
    ))
}

/// Before the first part of a step, if all of its ranks have pinned it.
///
/// # Errors
/// Some have, and some have not.
pub(super) fn pinned_from(core: &Core, places: &[PartPlace]) -> Result<Option<Offset>, String> {
    let is_pinned = |place: &PartPlace| core.has_pins && place.partition == PINNED_PARTS;
    let pinned = places.iter().filter(|place| is_pinned(place));
    let first = pinned.clone().map(|place| place.offset).min();
    match pinned.count() {
        0 => Ok(None),
        all if all == places.len() => Ok(first),
        some => {
            let rank = places.iter().position(|place| !is_pinned(place));
            Err(format!(
                "{some} of {} ranks have pinned it, and rank {} has not",
                places.len(),
                rank.unwrap_or_default()
            ))
        }
    }
}
