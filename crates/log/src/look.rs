//! Looking at bytes of a log: is there a batch, and whose.

use crate::blocking::Window;
use crate::disk::DiskError;
use wire::batch::{Header, LocalStamp, SECTIONS_START, STAMP_BYTES, STAMP_MAGIC, Stamp};
use wire::codec::{DecodeError, Problem};

/// Headers of this version and some room for those of later ones.
pub(crate) const LOOK_BYTES: usize = SECTIONS_START;
/// Where a stamp keeps its segment's salt.
const SALT_AT: usize = 88;

/// Both halves of the stamp of a batch in a segment's log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskStamp {
    pub shared: Stamp,
    pub local: LocalStamp,
}

impl DiskStamp {
    /// The stamp of the batch in a file that `bytes` begins with.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (shared, local) = (Stamp::read(bytes).ok()?, LocalStamp::read(bytes).ok()??);
        Some(Self { shared, local })
    }

    /// Reads the stamp at the start of `bytes`, if it is one of a segment of this salt. An error
    /// is another version's stamp of this segment.
    fn read(bytes: &[u8], salt: u64) -> Result<Option<Self>, DecodeError> {
        // Where a look for stamps ends, one is cut off anywhere.
        if bytes.len() < STAMP_BYTES {
            return Ok(None);
        }
        let halves = Stamp::read(bytes).and_then(|shared| Ok((shared, LocalStamp::read(bytes)?)));
        match halves {
            Ok((shared, Some(local))) if local.segment_salt == salt => {
                Ok(Some(Self { shared, local }))
            }
            Err(error)
                if error.is_of_another_version()
                    && crate::fixed::u64_at(bytes, SALT_AT) == salt =>
            {
                Err(error)
            }
            // Also one that was never written to a file: bytes of something else.
            Ok(_) | Err(_) => Ok(None),
        }
    }
}

/// What lies at a place of a segment's log.
#[derive(Debug)]
pub(crate) enum Look {
    /// A batch of this segment; stamp and header verify and belong together.
    Batch(DiskStamp, Header),
    /// The bytes end too early to tell; so many are needed.
    Short(usize),
    /// One of this segment that another version wrote.
    OtherVersion(DecodeError),
    /// None. If a checksummed length is there, it says where to look next.
    Bad { batch_bytes: Option<u64> },
}

/// Looks at the start of `bytes`, in a segment of this salt.
pub(crate) fn look(bytes: &[u8], salt: u64) -> Look {
    if bytes.len() < LOOK_BYTES {
        return Look::Short(LOOK_BYTES);
    }
    let stamp = match DiskStamp::read(bytes, salt) {
        Ok(stamp) => stamp,
        Err(error) => return Look::OtherVersion(error),
    };
    match (stamp, Header::read(&bytes[STAMP_BYTES..])) {
        (Some(stamp), Err(error))
            if error.is_of_another_version()
                && stamp.shared.header_crc == crate::fixed::u32_at(bytes, STAMP_BYTES + 4) =>
        {
            Look::OtherVersion(error)
        }
        (Some(stamp), Ok((header, crc)))
            if stamp.shared.header_crc == crc
                && stamp.shared.batch_bytes == header.batch_bytes() =>
        {
            Look::Batch(stamp, header)
        }
        (Some(_), Err(error)) if matches!(error.problem, Problem::Short { .. }) => {
            match error.problem {
                // The length field is not verified yet; it is at most 64 KiB.
                Problem::Short { needed, .. } => Look::Short(STAMP_BYTES + needed as usize),
                _ => unreachable!("just matched"),
            }
        }
        (Some(stamp), _) => Look::Bad {
            batch_bytes: Some(stamp.shared.batch_bytes),
        },
        (None, _) => Look::Bad { batch_bytes: None },
    }
}

/// Looks at the batch at `position` of a segment of this salt.
pub(crate) fn look_at(
    window: &mut Window<'_>,
    position: u64,
    salt: u64,
) -> Result<Look, DiskError> {
    match look(window.bytes(position, LOOK_BYTES)?, salt) {
        Look::Short(needed) if needed > LOOK_BYTES => {
            Ok(look(window.bytes(position, needed)?, salt))
        }
        seen => Ok(seen),
    }
}

/// Where in `bytes` stamps of a segment of this salt begin whose checksum is
/// right. Stamps that `bytes` cuts off are not found.
pub(crate) fn stamps(bytes: &[u8], salt: u64) -> impl Iterator<Item = (usize, DiskStamp)> + '_ {
    let magic = STAMP_MAGIC.to_le_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(found) = bytes.get(at..)?.iter().position(|byte| *byte == magic[0]) {
            let start = at + found;
            at = start + 1;
            if !bytes[start..].starts_with(&magic) {
                continue;
            }
            if let Ok(Some(stamp)) = DiskStamp::read(&bytes[start..], salt) {
                return Some((start, stamp));
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: u64 = 7;

    fn stamped(raft_term: u64) -> Vec<u8> {
        let mut bytes = vec![0; STAMP_BYTES];
        let shared = Stamp {
            batch_bytes: 500,
            raft_term,
            ..Stamp::default()
        };
        shared.write(&mut bytes);
        let local = LocalStamp {
            segment_salt: SALT,
            ..LocalStamp::default()
        };
        local.write(&mut bytes);
        bytes
    }

    /// Of this version, and of a later one that uses what is reserved.
    #[test]
    fn a_stamp_that_is_cut_off_anywhere_is_none() {
        for raft_term in [0, 1] {
            let bytes = stamped(raft_term);
            for length in 0..STAMP_BYTES {
                assert_eq!(stamps(&bytes[..length], SALT).count(), 0, "{length}");
            }
        }
        assert_eq!(stamps(&stamped(0), SALT).count(), 1);
        assert_eq!(stamps(&stamped(0), SALT + 1).count(), 0);
    }
}
