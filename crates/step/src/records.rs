//! Records of a stream, as they are read.

use crate::attributes::Attributes;
use crate::error::StepError;
use crate::waiting::words;
use client::{ClientError, ConsumedEvent, FetchRequest, Position, TopicHandle};
use serde_json::Value;
use std::time::Duration;
use wire::record::GapReason;
use wire::step::StepTable;
use wire::{ErrorCode, Incarnation, Offset, PartitionIndex};

/// The partition of records.
pub(crate) const RECORDS: PartitionIndex = PartitionIndex(0);
/// So many bytes of records are asked for at once.
const FETCH_BYTES: u64 = 4 << 20;

/// What a record says.
pub(crate) fn table_of(event: &mut ConsumedEvent) -> Result<StepTable, StepError> {
    let data = event.take_data();
    StepTable::read(&data)
        .map_err(|error| StepError::Damaged(format!("record {}: {error}", event.id())))
}

/// The partition of copies of pinned ones.
pub(crate) const PINNED_RECORDS: PartitionIndex = PartitionIndex(topic::PINNED_RECORDS);
/// When the record was appended that an event is a copy of.
pub(crate) fn time_of_copy(event: &ConsumedEvent) -> Option<u64> {
    let said: Value = serde_json::from_slice(event.metadata()).ok()?;
    said["time"].as_u64()
}

/// Which part of a partition of records is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub partition: PartitionIndex,
    /// 0 is the present one.
    pub incarnation: Incarnation,
    pub from: Offset,
    /// Behind the last one.
    pub end: Offset,
}

/// What came of reading a span.
#[derive(Debug)]
pub(crate) struct Reached {
    /// Where it ended.
    pub at: Position,
    /// Records before this were found to be taken by retention.
    pub first: Offset,
}

/// Calls `each` with every record of a span that is there. Nothing is waited for.
pub(crate) fn for_each_record(
    topic: &TopicHandle,
    span: Span,
    with_tables: bool,
    mut each: impl FnMut(ConsumedEvent) -> Result<(), StepError>,
) -> Result<Reached, StepError> {
    let mut at = Position {
        incarnation: span.incarnation,
        offset: span.from,
    };
    let mut first = Offset(0);
    while at.offset < span.end {
        let fetched = topic.begin_fetch(FetchRequest {
            partition: span.partition,
            from: at,
            bytes_max: FETCH_BYTES,
            wait_max: Duration::ZERO,
            inline_data: with_tables,
        });
        let fetched = match fetched.wait() {
            Ok(fetched) => fetched.starting_at(at.offset),
            Err(error) if error.code() == Some(ErrorCode::OffsetOutOfRange) => break,
            Err(error) => return Err(error.into()),
        };
        let is_of_retention = |gap: &&wire::record::Gap| {
            matches!(gap.reason, GapReason::Retention | GapReason::Discarded)
        };
        let taken = fetched.gaps.iter().filter(is_of_retention);
        first = taken.map(|gap| gap.end).fold(first, Offset::max);
        for event in fetched.events() {
            if event.id().offset < span.end {
                each(event)?;
            }
        }
        match fetched.next {
            // Behind the end of one life there may be another, from 0 on.
            Some(next) if next != at => at = next,
            _ => break,
        }
    }
    Ok(Reached { at, first })
}

/// All attributes of a run as they are at a record: those of records before it that are there.
pub(crate) fn attributes_at(
    topic: &TopicHandle,
    table: &StepTable,
    at: Position,
) -> Result<Attributes, StepError> {
    let mut attributes = Attributes::default();
    if !table.is_full {
        let span = Span {
            partition: RECORDS,
            incarnation: at.incarnation,
            from: table.full_at,
            end: at.offset,
        };
        for_each_record(topic, span, true, |mut event| {
            let before = table_of(&mut event)?;
            match before.run == table.run {
                true => attributes.apply(&before.attributes, before.is_full),
                false => Ok(()),
            }
        })?;
    }
    attributes.apply(&table.attributes, table.is_full)?;
    Ok(attributes)
}

/// What a call has failed with that reads what retention may take meanwhile.
pub(crate) fn gone(error: ClientError, what: impl FnOnce() -> String) -> StepError {
    match error.code() {
        Some(ErrorCode::OffsetOutOfRange | ErrorCode::WrongIncarnation) => {
            StepError::Gone(format!(
                "{} is there no more: retention has taken it, or the memory that it was in is lost ({})",
                what(),
                words(&error)
            ))
        }
        _ => error.into(),
    }
}
