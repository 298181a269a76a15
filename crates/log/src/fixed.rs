//! Records of a fixed layout: magic (4 bytes), checksum of all that follows
//! (4), version (2), length (2), feature bits (4), then the record's own fields.

use std::ops::Range;
use wire::batch::FORMAT_VERSION;
use wire::checksum::crc32c;
use wire::codec::{DecodeError, Problem};

/// The version of all files of a partition.
pub(crate) const VERSION: u16 = FORMAT_VERSION as u16;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The first `length` bytes of `bytes`, if they are a record of this magic
/// and this version with the right checksum.
pub(crate) fn checked<'a>(
    what: &'static str,
    bytes: &'a [u8],
    length: usize,
    magic: u32,
) -> Result<&'a [u8], DecodeError> {
    checked_header(what, bytes, length, magic, |_| Some(length))
}

/// Like [`checked`], of a record whose header of `length` bytes is followed by
/// more: `all` says how long it is as a whole.
pub(crate) fn checked_header<'a>(
    what: &'static str,
    bytes: &'a [u8],
    length: usize,
    magic: u32,
    all: impl Fn(&[u8]) -> Option<usize>,
) -> Result<&'a [u8], DecodeError> {
    let short = |needed: usize| DecodeError {
        what,
        offset: 0,
        problem: Problem::Short {
            needed: needed as u64,
            had: bytes.len() as u64,
        },
    };
    let header = bytes.get(..length).ok_or_else(|| short(length))?;
    let refuse = |at, field, found: u64| Err(DecodeError::value(what, at, field, found));
    if u32_at(header, 0) != magic {
        return refuse(0, "magic", u64::from(u32_at(header, 0)));
    }
    let newer = |at, field, found: u64| Err(DecodeError::newer(what, at, field, found));
    // A later version's may have another length, which its checksum covers.
    let stated = usize::from(u16_at(header, 10));
    if stated != length
        && let Some(stated) = bytes.get(8..stated)
        && crc32c(stated) == u32_at(header, 4)
    {
        return newer(10, "length", u64::from(u16_at(header, 10)));
    }
    let needed = all(header).unwrap_or(usize::MAX);
    let bytes = bytes.get(..needed).ok_or_else(|| short(needed))?;
    let (computed, stored) = (crc32c(&bytes[8..]), u32_at(bytes, 4));
    if computed != stored {
        return Err(DecodeError::checksum(what, 4, computed, stored));
    }
    let found = u16_at(bytes, 8);
    if found != VERSION {
        let (found, own) = (found.into(), VERSION.into());
        return Err(DecodeError::version(what, 8, "version", found, own));
    }
    if usize::from(u16_at(bytes, 10)) != length {
        return newer(10, "length", u64::from(u16_at(bytes, 10)));
    }
    if u32_at(bytes, 12) != 0 {
        return newer(12, "features", u64::from(u32_at(bytes, 12)));
    }
    Ok(bytes)
}

/// Checks that reserved bytes of a verified record are zero.
pub(crate) fn zero(
    what: &'static str,
    bytes: &[u8],
    range: Range<usize>,
) -> Result<(), DecodeError> {
    match range.clone().find(|at| bytes[*at] != 0) {
        Some(at) => Err(DecodeError::newer(
            what,
            at,
            "reserved",
            u64::from(bytes[at]),
        )),
        None => Ok(()),
    }
}
