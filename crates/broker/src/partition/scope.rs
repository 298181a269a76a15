//! Subscriptions that are more than a consumer's name: of a group's member,
//! or of one key.

use crate::ids::SharedId;
use bytes::Bytes;
use wire::MemberId;
use wire::batch::{Batch, Verify};

/// How many events of other keys are passed before the reader is told how far
/// that was: so many it looks through again after a lost connection.
pub(super) const PASSED_EVENTS_MAX: u64 = 1024;

/// Who reads, and what of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    /// The group's member who reads, if one does.
    pub member: Option<(SharedId, MemberId)>,
    /// Only events with this key.
    pub key: Option<Bytes>,
}

/// Those events of some batches that have the key, in batches of their own
/// where others are with them.
pub(super) fn of_key(batches: Vec<Bytes>, key: &[u8]) -> Vec<Bytes> {
    let batches = batches.into_iter();
    batches.filter_map(|batch| cut_to_key(batch, key)).collect()
}

fn cut_to_key(bytes: Bytes, key: &[u8]) -> Option<Bytes> {
    // What cannot be read although it was stored is for the consumer to judge.
    let Ok(batch) = Batch::read(bytes.clone(), Verify::Headers) else {
        return Some(bytes);
    };
    let Ok(columns) = batch.columns() else {
        return Some(bytes);
    };
    let section = batch.columns_section();
    let is_wanted = |place: Option<(u32, u32)>| {
        place.is_some_and(|(start, bytes)| section[start as usize..][..bytes as usize] == *key)
    };
    let wanted = columns.events.iter().zip(0u32..);
    let wanted: Vec<u32> = wanted
        .filter(|(event, _)| is_wanted(event.key))
        .map(|(_, index)| index)
        .collect();
    match wanted.len() {
        0 => None,
        all if all == columns.events.len() => Some(bytes),
        _ => Some(batch.cut(&columns, &wanted).into()),
    }
}
