//! The checkpoint: what is known to be durable, so that recovery starts
//! there. The layout is `docs/format/log.md`.

use crate::fixed::{VERSION, checked, u16_at, u64_at, zero};
use wire::checksum::crc32c;
use wire::codec::DecodeError;
use wire::record::GapReason;
use wire::{Durability, Incarnation, Offset};

/// The file's name in the partition's directory.
pub const CHECKPOINT_NAME: &str = "checkpoint";
/// Bytes of one slot's content.
pub const SLOT_BYTES: usize = 256;
/// The two slots lie this far apart, so that no sector and no page is part of both.
pub const SLOT_DISTANCE: u64 = 4096;
const MAGIC: u32 = u32::from_le_bytes(*b"TWcp");
const BOOT_ID: usize = 128;

/// What a partition knew of itself at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Counts checkpoints; the greater of two valid slots counts.
    pub sequence: u64,
    /// Whether the partition was closed cleanly: nothing lies behind the
    /// durable end.
    pub clean: bool,
    /// What the topic promised when this was written.
    pub durability: Durability,
    pub incarnation: Incarnation,
    /// The first offset that is kept.
    pub first: Offset,
    /// The first offset before the last removal.
    pub removed_from: Offset,
    /// Why what lay below `first` was removed, if anything was.
    pub removed_reason: Option<GapReason>,
    /// Base offset of the segment up to which all is durable.
    pub segment: Offset,
    /// That segment's salt.
    pub salt: u64,
    /// Up to where its log is durable, in bytes.
    pub position: u64,
    /// The offset of the next event there.
    pub end: Offset,
    /// When this was written, nanoseconds since 1970.
    pub time: u64,
    /// The machine's boot then.
    pub boot_id: String,
}

impl Checkpoint {
    /// Where this checkpoint is to be written: the slot not used last.
    pub fn slot_position(&self) -> u64 {
        (self.sequence % 2) * SLOT_DISTANCE
    }

    /// One slot's bytes.
    pub fn to_bytes(&self) -> [u8; SLOT_BYTES] {
        let mut out = [0; SLOT_BYTES];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&(SLOT_BYTES as u16).to_le_bytes());
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[24] = u8::from(self.clean);
        out[25] = self.durability as u8;
        out[26] = self.removed_reason.map_or(0, |reason| reason as u8);
        // 27..30 are reserved and zero.
        let boot_id = boot_id_bytes(&self.boot_id);
        out[30..32].copy_from_slice(&(boot_id.len() as u16).to_le_bytes());
        out[32..40].copy_from_slice(&self.incarnation.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.first.0.to_le_bytes());
        out[48..56].copy_from_slice(&self.removed_from.0.to_le_bytes());
        out[56..64].copy_from_slice(&self.segment.0.to_le_bytes());
        out[64..72].copy_from_slice(&self.salt.to_le_bytes());
        out[72..80].copy_from_slice(&self.position.to_le_bytes());
        out[80..88].copy_from_slice(&self.end.0.to_le_bytes());
        out[88..96].copy_from_slice(&self.time.to_le_bytes());
        // 96..128 are reserved and zero.
        out[BOOT_ID..BOOT_ID + boot_id.len()].copy_from_slice(boot_id);
        let crc = crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads and checks one slot.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "checkpoint";
        let bytes = checked(WHAT, bytes, SLOT_BYTES, MAGIC)?;
        zero(WHAT, bytes, 27..30)?;
        zero(WHAT, bytes, 96..BOOT_ID)?;
        let refuse = |at: usize, field| {
            let found = u64::from(bytes[at]);
            Err(DecodeError::value(WHAT, at, field, found))
        };
        let boot_bytes = usize::from(u16_at(bytes, 30));
        let Some(boot_id) = bytes[BOOT_ID..]
            .get(..boot_bytes)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
        else {
            return refuse(30, "boot id");
        };
        let one = |at: usize| &bytes[at..at + 1];
        let removed_reason = match bytes[26] {
            0 => None,
            _ => Some(wire::Codec::from_bytes(WHAT, one(26))?),
        };
        Ok(Self {
            sequence: u64_at(bytes, 16),
            clean: wire::Codec::from_bytes(WHAT, one(24))?,
            durability: wire::Codec::from_bytes(WHAT, one(25))?,
            incarnation: Incarnation(u64_at(bytes, 32)),
            first: Offset(u64_at(bytes, 40)),
            removed_from: Offset(u64_at(bytes, 48)),
            removed_reason,
            segment: Offset(u64_at(bytes, 56)),
            salt: u64_at(bytes, 64),
            position: u64_at(bytes, 72),
            end: Offset(u64_at(bytes, 80)),
            time: u64_at(bytes, 88),
            boot_id: boot_id.to_owned(),
        })
    }

    /// Whether both slots of a checkpoint file are valid or were never written.
    pub fn is_whole(file: &[u8]) -> bool {
        [0, SLOT_DISTANCE as usize].into_iter().all(|start| {
            let slot = file.get(start..).unwrap_or_default();
            let written = slot.iter().take(SLOT_BYTES).any(|byte| *byte != 0);
            !written || Self::read(slot).is_ok()
        })
    }

    /// Why a checkpoint file is not to be touched: another version wrote one of its slots.
    pub fn of_another_version(file: &[u8]) -> Option<DecodeError> {
        let slots = [0, SLOT_DISTANCE as usize].into_iter();
        let errors = slots.filter_map(|start| Self::read(file.get(start..)?).err());
        errors.into_iter().find(DecodeError::is_of_another_version)
    }

    /// The newer of the two slots in a checkpoint file's bytes, if one is valid.
    pub fn newest(file: &[u8]) -> Option<Self> {
        let slot = |start: u64| Self::read(file.get(start as usize..)?).ok();
        [slot(0), slot(SLOT_DISTANCE)]
            .into_iter()
            .flatten()
            .max_by_key(|checkpoint| checkpoint.sequence)
    }
}

/// What is kept of a boot id: Linux' has 36 bytes.
pub(crate) fn boot_id_bytes(boot_id: &str) -> &[u8] {
    let mut end = boot_id.len().min(SLOT_BYTES - BOOT_ID);
    while !boot_id.is_char_boundary(end) {
        end -= 1;
    }
    &boot_id.as_bytes()[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(sequence: u64) -> Checkpoint {
        Checkpoint {
            sequence,
            clean: true,
            durability: Durability::Written,
            incarnation: Incarnation(1),
            first: Offset(5),
            removed_from: Offset(2),
            removed_reason: Some(GapReason::Retention),
            segment: Offset(7),
            salt: 8,
            position: 9,
            end: Offset(10),
            time: 11,
            boot_id: "3c8cd1a0-97d5-4b5c-8f6a-0ce5b8bf4c11".into(),
        }
    }

    #[test]
    fn a_slot_is_read_back_and_every_flipped_bit_is_noticed() {
        let bytes = checkpoint(3).to_bytes();
        assert_eq!(Checkpoint::read(&bytes), Ok(checkpoint(3)));
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Checkpoint::read(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn the_newer_valid_slot_counts() {
        let mut file = vec![0; SLOT_DISTANCE as usize + SLOT_BYTES];
        assert_eq!(Checkpoint::newest(&file), None);
        for sequence in [4, 5] {
            let slot = checkpoint(sequence);
            let at = slot.slot_position() as usize;
            file[at..at + SLOT_BYTES].copy_from_slice(&slot.to_bytes());
            assert_eq!(Checkpoint::newest(&file), Some(slot));
        }
        file[SLOT_DISTANCE as usize + 100] ^= 1;
        assert_eq!(Checkpoint::newest(&file), Some(checkpoint(4)));
        assert_eq!(Checkpoint::newest(&file[..100]), None);
    }
}
