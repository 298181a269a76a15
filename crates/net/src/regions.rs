//! The memory that one side of a link lets the other side read or write.

use crate::seal::Seal;
use bytes::Bytes;
use memory::Target;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use wire::frame::BULK_CHUNK_BYTES;
use wire::message::Region;

/// Exposed and lent memory, by key. Keys count up and are never used again,
/// so that a key that was withdrawn is distinguished from one that never was.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    keys_given: u64,
    exposed: BTreeMap<u64, Exposed>,
    lent: BTreeMap<u64, Target>,
}

/// Memory that the other side may read, or a part of it.
#[derive(Debug, Clone)]
pub(crate) struct Exposed {
    pub bytes: Bytes,
    /// Where it begins in the region.
    pub offset: u64,
    /// What all of the region was.
    pub seal: Option<Arc<Seal>>,
}

impl Exposed {
    /// Whether it may be sent, with the checksums that were just made of it: see
    /// [`Seal::holds`].
    pub(crate) fn holds(&self, checksums: &[u32], block_bytes: u32) -> bool {
        self.seal
            .as_ref()
            .is_none_or(|seal| seal.holds(self.offset, &self.bytes, checksums, block_bytes))
    }
}

/// Why a range cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RegionError {
    /// It was there, and is not any more: a race that no side can avoid.
    Gone,
    /// It never was there, or the range is outside: no sane peer asks for it.
    Invalid(String),
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the region is not exposed any more",
            Self::Invalid(problem) => problem,
        })
    }
}

/// A range of a region, as asked for by a peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range<'a> {
    pub key: &'a [u8],
    pub offset: u64,
    pub bytes: u64,
}

impl Regions {
    pub(crate) fn expose(&mut self, bytes: Bytes, seal: Option<Arc<Seal>>) -> Region {
        let region = self.region(bytes.len());
        let offset = 0;
        let exposed = Exposed {
            bytes,
            offset,
            seal,
        };
        self.exposed.insert(self.keys_given, exposed);
        region
    }

    pub(crate) fn withdraw(&mut self, region: &Region) {
        if let Some(key) = number(&region.key) {
            self.exposed.remove(&key);
        }
    }

    pub(crate) fn lend(&mut self, target: Target) -> Region {
        let region = self.region(target.len());
        self.lent.insert(self.keys_given, target);
        region
    }

    pub(crate) fn reclaim(&mut self, region: &Region) -> Option<Target> {
        self.lent.remove(&number(&region.key)?)
    }

    fn region(&mut self, bytes: usize) -> Region {
        self.keys_given += 1;
        Region {
            key: Bytes::copy_from_slice(&self.keys_given.to_le_bytes()),
            base: 0,
            bytes: bytes as u64,
            memory_kind: 0,
            rails: 0,
        }
    }

    /// The exposed bytes of `range`.
    pub(crate) fn exposed(&self, range: Range<'_>) -> Result<Exposed, RegionError> {
        let key = self.key(range.key)?;
        let Some(whole) = self.exposed.get(&key) else {
            return Err(RegionError::Gone);
        };
        let within = within(range, whole.bytes.len())?;
        Ok(Exposed {
            bytes: whole.bytes.slice(within),
            offset: range.offset,
            seal: whole.seal.clone(),
        })
    }

    /// Whether `range` may be written; its key if so.
    pub(crate) fn check_lent(&self, range: Range<'_>) -> Result<u64, RegionError> {
        let key = self.key(range.key)?;
        let Some(target) = self.lent.get(&key) else {
            return Err(RegionError::Gone);
        };
        within(range, target.len())?;
        Ok(key)
    }

    /// The memory of a range that [`Regions::check_lent`] has found good,
    /// unless it was reclaimed since.
    pub(crate) fn lent(&mut self, key: u64, range: std::ops::Range<usize>) -> Option<&mut [u8]> {
        Some(&mut self.lent.get_mut(&key)?.as_mut()[range])
    }

    /// Bytes were written to memory that [`Regions::lent`] gave.
    pub(crate) fn received(&mut self, key: u64, range: std::ops::Range<usize>) {
        if let Some(target) = self.lent.get_mut(&key) {
            target.received(range);
        }
    }

    fn key(&self, key: &[u8]) -> Result<u64, RegionError> {
        number(key)
            .filter(|key| (1..=self.keys_given).contains(key))
            .ok_or_else(|| RegionError::Invalid(format!("no region has the key {key:02x?}")))
    }
}

fn number(key: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(key.try_into().ok()?))
}

fn within(range: Range<'_>, had: usize) -> Result<std::ops::Range<usize>, RegionError> {
    let end = range.offset.checked_add(range.bytes);
    match end {
        Some(end) if end <= had as u64 => Ok(range.offset as usize..end as usize),
        _ => Err(RegionError::Invalid(format!(
            "{} bytes at {} are outside a region of {had} bytes",
            range.bytes, range.offset
        ))),
    }
}

/// Whether `bytes` bytes may be read, or written, at once; the caller asks.
pub(crate) fn check_chunk(what: &str, bytes: u64) -> Result<(), String> {
    match bytes <= BULK_CHUNK_BYTES as u64 {
        true => Ok(()),
        false => Err(format!(
            "a {what} of {bytes} bytes; the limit is {BULK_CHUNK_BYTES}"
        )),
    }
}

/// Where `bytes` bytes at `offset` of `region` begin in what its key opens,
/// checked on the side that asks.
pub(crate) fn place_in(region: &Region, offset: u64, bytes: usize) -> Result<u64, String> {
    let inside = offset
        .checked_add(bytes as u64)
        .is_some_and(|end| end <= region.bytes);
    region
        .base
        .checked_add(offset)
        .filter(|_| inside)
        .ok_or_else(|| {
            format!(
                "{bytes} bytes at {offset} are outside a region of {} bytes",
                region.bytes
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gone_differs_from_never_there() {
        let mut regions = Regions::default();
        let region = regions.expose(Bytes::from_static(b"0123456789"), None);
        let range = |offset, bytes| Range {
            key: &region.key,
            offset,
            bytes,
        };
        assert_eq!(regions.exposed(range(2, 3)).unwrap().bytes, b"234"[..]);
        assert_eq!(regions.exposed(range(10, 0)).unwrap().bytes, b""[..]);
        for (offset, bytes) in [(8, 3), (u64::MAX, 2), (0, u64::MAX)] {
            let error = regions.exposed(range(offset, bytes)).unwrap_err();
            assert!(matches!(error, RegionError::Invalid(_)));
        }
        regions.withdraw(&region);
        assert!(matches!(
            regions.exposed(range(0, 1)),
            Err(RegionError::Gone)
        ));
        let never = Range {
            key: &99u64.to_le_bytes(),
            offset: 0,
            bytes: 0,
        };
        assert!(matches!(
            regions.check_lent(never),
            Err(RegionError::Invalid(_))
        ));
        assert!(place_in(&region, u64::MAX, 1).is_err());
        assert!(place_in(&region, 9, 2).is_err());
        assert_eq!(place_in(&region, 8, 2), Ok(8));
    }
}
