//! Memory of the operating system, in large pieces that are cut once.
//!
//! A piece is mapped, advised to be of huge pages where it is large, and cut
//! into blocks of one size. The blocks' addresses stay what they are until
//! the last of them is gone; what a block holds can be given back to the
//! system while it lies idle.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Blocks begin at a multiple of this, as O_DIRECT wants it.
pub(crate) const PAGE_BYTES: usize = 4096;
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Arenas of blocks from this size on are of huge pages.
const HUGE_BLOCK_BYTES: usize = 256 << 10;
/// What is mapped at once.
const SMALL_ARENA_BYTES: usize = 2 << 20;
const LARGE_ARENA_BYTES: usize = 32 << 20;

/// A mapping; unmapped when the last block of it is dropped.
pub(crate) struct Arena {
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    /// Where the first block begins.
    base: NonNull<u8>,
}

// SAFETY: an arena is an address range; its memory is reached through blocks
// and pieces alone, which are disjoint.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub fn map(bytes: usize, huge: bool) -> Option<Self> {
        let slack = if huge { HUGE_PAGE_BYTES } else { 0 };
        let mapped_bytes = bytes.checked_add(slack)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: asks for fresh memory at an address of the kernel's choice.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), mapped_bytes, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return None;
        }
        let mapped = NonNull::new(mapped.cast::<u8>())?;
        let skip = match huge {
            true => mapped.align_offset(HUGE_PAGE_BYTES).min(slack),
            false => 0,
        };
        // SAFETY: `skip` is at most `slack`, by which more was mapped.
        let base = unsafe { mapped.add(skip) };
        if huge {
            // SAFETY: advice about memory that was just mapped; a kernel
            // without huge pages says no, which changes nothing.
            unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Some(Self {
            mapped,
            mapped_bytes,
            base,
        })
    }

    /// Where its memory begins; at least as much as was asked for is behind.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and no block is left.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// A range of an arena that nobody else has. Its bytes are zeros or what its
/// last user left.
pub(crate) struct Block {
    arena: Arc<Arena>,
    at: usize,
    bytes: usize,
}

impl Block {
    /// Gives the memory back to the system; the next use finds zeros.
    pub fn cool(&mut self) {
        // SAFETY: the range is this block's, page by page, and nobody else
        // reads it; private anonymous pages read as zeros afterwards.
        unsafe { libc::madvise(self.start().cast(), self.bytes, libc::MADV_DONTNEED) };
    }

    /// The same for what is behind the first `bytes`, as far as these are whole pages.
    pub fn cool_behind(&mut self, bytes: usize) {
        let from = bytes.next_multiple_of(PAGE_BYTES);
        if from >= self.bytes {
            return;
        }
        // SAFETY: `from` is within the block, which begins at a page.
        let start = unsafe { self.start().add(from) };
        // SAFETY: as in `cool`, of the rest of the block.
        unsafe { libc::madvise(start.cast(), self.bytes - from, libc::MADV_DONTNEED) };
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: `at` is within the arena, where `Cutter::cut` put it.
        unsafe { self.arena.base.as_ptr().add(self.at) }
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in the mapping, which `arena` keeps; anonymous
        // memory is initialized; the block owns it, and `&self` is shared.
        unsafe { std::slice::from_raw_parts(self.start(), self.bytes) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.bytes) }
    }
}

/// Cuts blocks of one size.
#[derive(Default)]
pub(crate) struct Cutter {
    arena: Option<Arc<Arena>>,
    next: usize,
    end: usize,
}

impl Cutter {
    /// A block of `bytes`, a multiple of [`PAGE_BYTES`]; `None` if the system
    /// has no more.
    pub fn cut(&mut self, bytes: usize) -> Option<Block> {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(PAGE_BYTES));
        if self.arena.is_none() || self.end - self.next < bytes {
            let huge = bytes >= HUGE_BLOCK_BYTES;
            let at_once = if huge {
                LARGE_ARENA_BYTES
            } else {
                SMALL_ARENA_BYTES
            };
            let count = (at_once / bytes).max(1);
            self.arena = Some(Arc::new(Arena::map(count * bytes, huge)?));
            (self.next, self.end) = (0, count * bytes);
        }
        let arena = self.arena.clone()?;
        let at = self.next;
        self.next += bytes;
        if self.next == self.end {
            // The blocks keep it from now on.
            self.arena = None;
        }
        Some(Block { arena, at, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_disjoint_aligned_and_zero_at_first() {
        for bytes in [PAGE_BYTES, 12 << 10, 300 << 10, 40 << 20] {
            let mut cutter = Cutter::default();
            let mut blocks: Vec<Block> = (0..5).map(|_| cutter.cut(bytes).unwrap()).collect();
            for (value, block) in blocks.iter_mut().enumerate() {
                assert_eq!(block.len(), bytes);
                assert_eq!(block.as_ptr() as usize % PAGE_BYTES, 0);
                assert!(block.iter().step_by(997).all(|byte| *byte == 0));
                block.fill(value as u8 + 1);
            }
            drop(cutter);
            for (value, block) in blocks.iter().enumerate() {
                assert!(block.iter().all(|byte| *byte == value as u8 + 1));
            }
            blocks[1].cool();
            assert!(blocks[1].iter().all(|byte| *byte == 0));
            assert!(blocks[0].iter().all(|byte| *byte == 1));
        }
    }
}
