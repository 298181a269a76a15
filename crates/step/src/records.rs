//! Records of a stream, as they are read.

use crate::attributes::Attributes;
use crate::error::StepError;
use crate::waiting::words;
use client::{ClientError, ConsumedEvent, FetchRequest, Position, TopicHandle};
use std::time::Duration;
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

/// Which part of partition 0 is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// 0 is the present one.
    pub incarnation: Incarnation,
    pub from: Offset,
    /// Behind the last one.
    pub end: Offset,
}

/// Calls `each` with every record of a span that is there. Gives where the reading ended; nothing
/// is waited for.
pub(crate) fn for_each_record(
    topic: &TopicHandle,
    span: Span,
    with_tables: bool,
    mut each: impl FnMut(ConsumedEvent) -> Result<(), StepError>,
) -> Result<Position, StepError> {
    let mut at = Position {
        incarnation: span.incarnation,
        offset: span.from,
    };
    while at.offset < span.end {
        let fetched = topic.begin_fetch(FetchRequest {
            partition: RECORDS,
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
    Ok(at)
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
