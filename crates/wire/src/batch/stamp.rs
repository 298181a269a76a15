//! The stamp: what the broker adds to a batch, in two halves.
//!
//! The *shared* half is the same on every copy of the batch. A copy takes it
//! over byte for byte, and checks it with nothing but these bytes. The *local*
//! half says where this copy lies and what was known of this disk when it was
//! written; each copy has its own. It repeats the shared half's checksum, so that
//! halves of two batches are never taken for one stamp.

use super::{need, u32_at, u64_at};
use crate::checksum::crc32c;
use crate::codec::DecodeError;
use crate::id::Offset;

/// Bytes of the stamp, both halves.
pub const STAMP_BYTES: usize = 128;
/// Bytes of the shared half, which comes first.
pub const SHARED_STAMP_BYTES: usize = 80;
/// The first four bytes of a stamp.
pub const STAMP_MAGIC: u32 = u32::from_le_bytes(*b"TWst");
/// Where the shared half keeps the header's checksum.
pub(super) const HEADER_CRC_AT: usize = 68;

/// The shared half of a stamp: the same on every copy of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Length of the whole batch: stamp, header and sections.
    pub batch_bytes: u64,
    /// Offset of the batch's first event; for a batch without events, of the next one.
    pub base_offset: Offset,
    /// When the broker took the batch, nanoseconds since 1970.
    pub append_time: u64,
    /// How much of a data file the batch's external data takes: data, padding and block checksums.
    pub data_bytes: u64,
    /// Consensus: term of the leader. Reserved.
    pub raft_term: u64,
    /// Consensus: node id of the leader. Reserved.
    pub raft_node: u64,
    /// Consensus: index in the replicated log. Reserved.
    pub raft_index: u64,
    /// Epoch of the leader that took the batch.
    pub leader_epoch: u32,
    /// The header's checksum, which ties the stamp to its header.
    pub header_crc: u32,
    /// Checksum over the block checksums of all external data of the batch.
    pub data_crc: u32,
}

/// The local half of a stamp: what is true of this copy on this disk only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalStamp {
    /// The salt of the segment that the batch was written for: a batch with
    /// another one is left over from a recycled file.
    pub segment_salt: u64,
    /// Up to where the segment's log was known to be synced when this batch
    /// was written, in bytes: what lies before cannot be a torn tail.
    pub synced_bytes: u64,
    /// Base offset of the segment whose data file holds the batch's external
    /// data: the batch's own, or an earlier one if the log has rolled between
    /// reservation and append. 0 without external data.
    pub data_segment: Offset,
    /// Where the batch's external data begins in that data file.
    pub data_position: u64,
}

fn reserved(what: &'static str, bytes: &[u8], at: std::ops::Range<usize>) -> DecodeError {
    let at = { at }.find(|at| bytes[*at] != 0);
    let at = at.expect("one of the words is not 0");
    DecodeError::newer(what, at, "reserved", u64::from(bytes[at]))
}

impl Stamp {
    /// Writes the shared half with its checksum at the start of `batch`. The
    /// local half becomes zero: the batch is in no file.
    ///
    /// # Panics
    /// If `batch` is shorter than a stamp.
    pub fn write(&self, batch: &mut [u8]) {
        let out = &mut batch[..STAMP_BYTES];
        out.fill(0);
        out[0..4].copy_from_slice(&STAMP_MAGIC.to_le_bytes());
        out[8..16].copy_from_slice(&self.batch_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.base_offset.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.append_time.to_le_bytes());
        out[32..40].copy_from_slice(&self.data_bytes.to_le_bytes());
        out[40..48].copy_from_slice(&self.raft_term.to_le_bytes());
        out[48..56].copy_from_slice(&self.raft_node.to_le_bytes());
        out[56..64].copy_from_slice(&self.raft_index.to_le_bytes());
        out[64..68].copy_from_slice(&self.leader_epoch.to_le_bytes());
        out[68..72].copy_from_slice(&self.header_crc.to_le_bytes());
        out[72..76].copy_from_slice(&self.data_crc.to_le_bytes());
        // 76..80 is reserved and zero.
        let crc = crc32c(&out[8..SHARED_STAMP_BYTES]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads and checks the shared half at the start of `batch`; the local
    /// half is not looked at.
    pub fn read(batch: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "batch stamp";
        need(WHAT, batch, SHARED_STAMP_BYTES)?;
        let bytes = &batch[..SHARED_STAMP_BYTES];
        if u32_at(bytes, 0) != STAMP_MAGIC {
            return Err(DecodeError::value(
                WHAT,
                0,
                "magic",
                u64::from(u32_at(bytes, 0)),
            ));
        }
        let (computed, stored) = (crc32c(&bytes[8..]), u32_at(bytes, 4));
        if computed != stored {
            return Err(DecodeError::checksum(WHAT, 4, computed, stored));
        }
        // A word at a time: every batch that is read passes here.
        let consensus = u64_at(bytes, 40) | u64_at(bytes, 48) | u64_at(bytes, 56);
        if consensus != 0 {
            return Err(reserved(WHAT, bytes, 40..64));
        }
        if u32_at(bytes, 76) != 0 {
            return Err(reserved(WHAT, bytes, 76..80));
        }
        Ok(Self {
            batch_bytes: u64_at(bytes, 8),
            base_offset: Offset(u64_at(bytes, 16)),
            append_time: u64_at(bytes, 24),
            data_bytes: u64_at(bytes, 32),
            raft_term: 0,
            raft_node: 0,
            raft_index: 0,
            leader_epoch: u32_at(bytes, 64),
            header_crc: u32_at(bytes, HEADER_CRC_AT),
            data_crc: u32_at(bytes, 72),
        })
    }
}

impl LocalStamp {
    /// Writes the local half with its checksum into `batch`, behind a shared
    /// half that is there already.
    ///
    /// # Panics
    /// If `batch` is shorter than a stamp.
    pub fn write(&self, batch: &mut [u8]) {
        let (shared, out) = batch[..STAMP_BYTES].split_at_mut(SHARED_STAMP_BYTES);
        out[4..8].copy_from_slice(&shared[4..8]);
        out[8..16].copy_from_slice(&self.segment_salt.to_le_bytes());
        out[16..24].copy_from_slice(&self.synced_bytes.to_le_bytes());
        out[24..32].copy_from_slice(&self.data_segment.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.data_position.to_le_bytes());
        // 40..48 is reserved.
        out[40..48].fill(0);
        let crc = crc32c(&out[4..]);
        out[0..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads and checks the local half of the stamp at the start of `batch`,
    /// whose shared half was checked before. `None` if it is zero: this copy
    /// of the batch was never written to a file.
    pub fn read(batch: &[u8]) -> Result<Option<Self>, DecodeError> {
        const WHAT: &str = "batch stamp, local half";
        const START: usize = SHARED_STAMP_BYTES;
        need(WHAT, batch, STAMP_BYTES)?;
        let (shared, bytes) = batch[..STAMP_BYTES].split_at(SHARED_STAMP_BYTES);
        let (computed, stored) = (crc32c(&bytes[4..]), u32_at(bytes, 0));
        if computed != stored {
            return match bytes.iter().all(|byte| *byte == 0) {
                true => Ok(None),
                false => Err(DecodeError::checksum(WHAT, START, computed, stored)),
            };
        }
        // Half a stamp of another batch, of which a crash left the rest unwritten.
        let (computed, stored) = (u32_at(shared, 4), u32_at(bytes, 4));
        if computed != stored {
            return Err(DecodeError::checksum(WHAT, START + 4, computed, stored));
        }
        if u64_at(bytes, 40) != 0 {
            return Err(reserved(WHAT, batch, START + 40..STAMP_BYTES));
        }
        Ok(Some(Self {
            segment_salt: u64_at(bytes, 8),
            synced_bytes: u64_at(bytes, 16),
            data_segment: Offset(u64_at(bytes, 24)),
            data_position: u64_at(bytes, 32),
        }))
    }
}
