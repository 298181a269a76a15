//! Memory that the other sides of connections can read: what lies in it is
//! sent without being copied here.

use crate::segment::{self, Mapping};
use memory::fork::{self, ForkSlot};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

/// Buffers begin and end at multiples of this.
const PAGE_BYTES: usize = 4096;
/// The first segment; later ones are as large as all before them together.
const SEGMENT_BYTES_MIN: usize = 16 << 20;
const SEGMENT_BYTES_MAX: usize = 1 << 30;
/// Segments of one pool, and those that one connection takes.
pub(crate) const SEGMENTS_MAX: usize = 64;

/// Segments from which buffers are cut. Grows up to its bound and gives
/// nothing back before it goes itself.
///
/// A forked child begins with an empty one: the segments are its parent's.
#[derive(Debug)]
pub(crate) struct Pool {
    slot: ForkSlotDebug,
    bytes_max: usize,
}

/// What one process has of a pool.
#[derive(Debug, Default)]
struct Segments {
    /// Only ever appended to. Held for a look-up, or while memory is made.
    all: Mutex<Vec<Arc<Segment>>>,
}

/// One sealed piece of memory, written by this process alone.
#[derive(Debug)]
pub(crate) struct Segment {
    mapping: Mapping,
    memory: OwnedFd,
    /// What is free, by where it begins; neighbours are joined.
    free: Mutex<BTreeMap<usize, usize>>,
}

/// A piece of a segment, of one owner until it is dropped.
#[derive(Debug)]
struct Piece {
    segment: Arc<Segment>,
    at: usize,
    bytes: usize,
    generation: u64,
}

#[derive(Default)]
struct ForkSlotDebug(ForkSlot<Segments>);

impl std::fmt::Debug for ForkSlotDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForkSlot")
    }
}

fn reserved(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(PAGE_BYTES)
}

impl Pool {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            slot: ForkSlotDebug::default(),
            bytes_max,
        }
    }

    fn segments(&self) -> Arc<Segments> {
        let Ok(segments) = self
            .slot
            .0
            .get_or_make(|| Ok::<_, Infallible>(Segments::default()));
        segments
    }

    /// A buffer of `bytes` bytes; `None` if there is no space for it.
    pub(crate) fn take(&self, bytes: usize) -> Option<memory::Allocation> {
        let wanted = reserved(bytes);
        let segments = self.segments();
        let mut all = segments.lock();
        let found = all
            .iter()
            .find_map(|segment| Some((segment.clone(), segment.cut(wanted)?)));
        let (segment, at) = match found {
            Some(found) => found,
            None => {
                let held: usize = all.iter().map(|segment| segment.mapping.bytes()).sum();
                let size = held
                    .clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
                    .min(self.bytes_max.saturating_sub(held))
                    .max(wanted);
                if held + size > self.bytes_max || all.len() == SEGMENTS_MAX {
                    return None;
                }
                // Without memory for it there is ordinary memory.
                let segment = Arc::new(Segment::make(size).ok()?);
                let at = segment.cut(wanted)?;
                all.push(segment.clone());
                (segment, at)
            }
        };
        Some(memory::Allocation::new(Piece {
            segment,
            at,
            bytes,
            generation: fork::generation(),
        }))
    }

    /// In which segment, and where in it, `bytes` lie, if they are the pool's.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<(u32, u64)> {
        let segments = self.slot.0.get()?;
        let all = segments.lock();
        let begin = bytes.as_ptr().addr();
        all.iter().enumerate().find_map(|(index, segment)| {
            let at = begin.checked_sub(segment.mapping.base().addr())?;
            let inside = at + bytes.len() <= segment.mapping.bytes();
            inside.then_some((index as u32, at as u64))
        })
    }

    /// A segment, to hand it to another process.
    pub(crate) fn segment(&self, index: u32) -> Option<Arc<Segment>> {
        let segments = self.slot.0.get()?;
        segments.lock().get(index as usize).cloned()
    }
}

impl Segments {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Segment>>> {
        self.all.lock().expect("no holder panics here")
    }
}

impl Segment {
    fn make(bytes: usize) -> std::io::Result<Self> {
        let (mapping, memory) = segment::make_cold("thalweg-pool", bytes)?;
        Ok(Self {
            free: Mutex::new(BTreeMap::from([(0, mapping.bytes())])),
            mapping,
            memory,
        })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    fn free(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.free.lock().expect("no holder panics here")
    }

    /// The first free piece that is long enough.
    fn cut(&self, bytes: usize) -> Option<usize> {
        let mut free = self.free();
        let (at, had) = free
            .iter()
            .map(|(at, had)| (*at, *had))
            .find(|(_, had)| *had >= bytes)?;
        free.remove(&at);
        if had > bytes {
            free.insert(at + bytes, had - bytes);
        }
        Some(at)
    }

    fn give_back(&self, mut at: usize, mut bytes: usize) {
        let mut free = self.free();
        if let Some(next) = free.remove(&(at + bytes)) {
            bytes += next;
        }
        if let Some((before, had)) = free.range(..at).next_back().map(|(at, had)| (*at, *had))
            && before + had == at
        {
            free.remove(&before);
            at = before;
            bytes += had;
        }
        free.insert(at, bytes);
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        let begin = self.segment.mapping.base().wrapping_add(self.at);
        // SAFETY: the piece is inside the mapping, which lives as long as
        // `segment`, and was cut for this owner alone. Other processes can
        // only read it: the memory is sealed.
        unsafe { std::slice::from_raw_parts(begin, self.bytes) }
    }
}

impl AsMut<[u8]> for Piece {
    fn as_mut(&mut self) -> &mut [u8] {
        let begin = self.segment.mapping.base().wrapping_add(self.at);
        // SAFETY: as above, and `&mut self` says that nobody here reads it.
        unsafe { std::slice::from_raw_parts_mut(begin, self.bytes) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // In a forked child the piece is still its parent's.
        if self.generation == fork::generation() {
            self.segment.give_back(self.at, reserved(self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_and_are_joined() {
        let pool = Pool::new(SEGMENT_BYTES_MIN);
        let whole = pool.take(SEGMENT_BYTES_MIN).unwrap();
        assert!(pool.take(1).is_none(), "it is bounded");
        drop(whole);
        let pieces: Vec<_> = (0..5).map(|_| pool.take(3_000_000).unwrap()).collect();
        assert_eq!(pool.find(&pieces[1][10..20]), Some((0, 3_002_368 + 10)));
        assert_eq!(pool.find(&[1, 2, 3]), None);
        for index in [1, 3, 0, 2, 4] {
            assert_eq!(pieces[index].len(), 3_000_000);
        }
        drop(pieces);
        assert!(pool.take(SEGMENT_BYTES_MIN).is_some(), "in one piece again");
    }

    #[test]
    fn a_pool_grows_up_to_its_bound() {
        let pool = Pool::new(3 * SEGMENT_BYTES_MIN);
        let taken: Vec<_> = (0..3).map(|_| pool.take(SEGMENT_BYTES_MIN)).collect();
        assert!(taken.iter().all(Option::is_some));
        assert!(pool.take(1).is_none());
        assert_eq!(pool.find(taken[2].as_ref().unwrap()).unwrap().0, 2);
    }
}
