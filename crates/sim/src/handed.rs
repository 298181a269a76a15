//! What a frame of leases hands out, by the batches that are in it.

use crate::trace::Violation;
use bytes::Bytes;
use wire::batch::{Batch, Verify};
use wire::message::{Lease, Leased};
use wire::{EventId, Offset};

/// An event that is handed out.
#[derive(Debug, Clone)]
pub struct Handed {
    pub id: EventId,
    /// Under which lease; it names a range of events.
    pub lease: Lease,
    pub key: Option<Vec<u8>>,
    /// Of its metadata and data.
    pub bytes: u64,
}

/// The events of a frame. Each is under a lease of the frame, and nothing is
/// under a lease that is not there.
pub fn handed(head: &Leased, payload: &[Bytes]) -> Result<Vec<Handed>, Violation> {
    let payload = payload.concat();
    let malformed =
        |error: wire::DecodeError| Violation(format!("the server sends malformed events: {error}"));
    let mut leased = head.leases.iter().flat_map(|lease| {
        let offsets = (lease.first.0..lease.end.0).map(Offset);
        offsets.map(move |offset| (*lease, offset))
    });
    let mut found = Vec::new();
    let mut at = 0usize;
    for bytes in &head.batch_bytes {
        let end = at + *bytes as usize;
        let Some(bytes) = payload.get(at..end) else {
            return Violation::because("the server sends shorter batches than it says");
        };
        at = end;
        // Of large data the frame has a reference, be the batch whole or not.
        let batch = Batch::read(bytes, Verify::Headers).map_err(malformed)?;
        let columns = batch.columns().map_err(malformed)?;
        let base = batch.stamp.map_or(Offset(0), |stamp| stamp.base_offset);
        for event in &columns.events {
            let offset = base.plus(u64::from(event.offset_delta));
            let Some((lease, _)) = leased.next().filter(|(_, at)| *at == offset) else {
                return Violation::because(format!("event {offset} is sent and not leased"));
            };
            let key = event.key.map(|(start, bytes)| {
                let section = batch.columns_section();
                section[start as usize..(start + bytes) as usize].to_vec()
            });
            found.push(Handed {
                id: EventId {
                    partition: lease.partition,
                    incarnation: lease.incarnation,
                    offset,
                },
                lease,
                key,
                bytes: u64::from(event.metadata_bytes) + event.data_bytes,
            });
        }
    }
    match leased.next() {
        None => Ok(found),
        Some((lease, offset)) => Violation::because(format!(
            "event {offset} is leased under {lease:?}, and not sent"
        )),
    }
}
