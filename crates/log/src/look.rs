//! Looking at bytes of a log: is there a batch, and whose.

use wire::batch::{Header, SECTIONS_START, STAMP_BYTES, STAMP_MAGIC, Stamp};
use wire::codec::{DecodeError, Problem};

/// Headers of this version and some room for those of later ones.
pub(crate) const LOOK_BYTES: usize = SECTIONS_START;

/// What lies at a place of a segment's log.
#[derive(Debug)]
pub(crate) enum Look {
    /// A batch of this segment; stamp and header verify and belong together.
    Batch(Stamp, Header),
    /// The bytes end too early to tell; so many are needed.
    Short(usize),
    /// One of this segment that a later version wrote.
    Newer(DecodeError),
    /// None. If a checksummed length is there, it says where to look next.
    Bad { batch_bytes: Option<u64> },
}

/// Looks at the start of `bytes`, in a segment of this salt.
pub(crate) fn look(bytes: &[u8], salt: u64) -> Look {
    if bytes.len() < LOOK_BYTES {
        return Look::Short(LOOK_BYTES);
    }
    let stamp = match Stamp::read(bytes) {
        Ok(stamp) => Some(stamp).filter(|stamp| stamp.segment_salt == salt),
        Err(error) if error.is_newer() && crate::fixed::u64_at(bytes, 32) == salt => {
            return Look::Newer(error);
        }
        Err(_) => None,
    };
    match (stamp, Header::read(&bytes[STAMP_BYTES..])) {
        (Some(stamp), Err(error))
            if error.is_newer()
                && stamp.header_crc == crate::fixed::u32_at(bytes, STAMP_BYTES + 4) =>
        {
            Look::Newer(error)
        }
        (Some(stamp), Ok((header, crc)))
            if stamp.header_crc == crc && stamp.batch_bytes == header.batch_bytes() =>
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
            batch_bytes: Some(stamp.batch_bytes),
        },
        (None, _) => Look::Bad { batch_bytes: None },
    }
}

/// Where in `bytes` stamps of a segment of this salt begin whose checksum is
/// right. Stamps that `bytes` cuts off are not found.
pub(crate) fn stamps(bytes: &[u8], salt: u64) -> impl Iterator<Item = (usize, Stamp)> + '_ {
    let magic = STAMP_MAGIC.to_le_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(found) = bytes.get(at..)?.iter().position(|byte| *byte == magic[0]) {
            let start = at + found;
            at = start + 1;
            if !bytes[start..].starts_with(&magic) {
                continue;
            }
            if let Ok(stamp) = Stamp::read(&bytes[start..])
                && stamp.segment_salt == salt
            {
                return Some((start, stamp));
            }
        }
        None
    })
}
