//! What a delivery's batches and leases have to do with each other.

use crate::queue::LeasedBatch;
use wire::Offset;
use wire::batch::Batch;
use wire::message::Lease;

/// A batch with its leases, which are the next ones. `None` if they are not:
/// a batch ends with an event that is leased.
pub(super) fn of_batch(
    bytes: bytes::Bytes,
    batch: &Batch<bytes::Bytes>,
    leases: &mut std::iter::Peekable<impl Iterator<Item = Lease>>,
) -> Option<LeasedBatch> {
    let base = batch.stamp?.base_offset;
    let end = Offset(base.0.checked_add(batch.header.offset_count())?);
    let first = *leases.peek()?;
    let mut own = Vec::new();
    // No more events can be leased than there are.
    let mut space = u64::from(batch.header.event_count);
    loop {
        let lease = leases.peek_mut()?;
        let is_its = (lease.partition, lease.incarnation) == (first.partition, first.incarnation)
            && lease.first >= base
            && lease.first < lease.end
            && lease.first < end;
        if !is_its {
            return None;
        }
        let own_end = lease.end.min(end);
        space = space.checked_sub(own_end.0 - lease.first.0)?;
        own.push(Lease {
            end: own_end,
            ..*lease
        });
        // It may go on in the next batch.
        match lease.end > end {
            true => lease.first = end,
            false => {
                leases.next();
            }
        }
        if own_end == end {
            break;
        }
    }
    Some(LeasedBatch {
        partition: first.partition,
        incarnation: first.incarnation,
        bytes,
        leases: own,
    })
}
