//! Reusable buffers.
//!
//! Fresh pages cost more than the bytes that are put into them (2.7 GB/s into
//! fresh pages against 17 GB/s into used ones), so buffers go back to a pool,
//! and nothing is zeroed for them.

use crate::arena::{Block, Cutter, PAGE_BYTES};
use crate::fork::{self, ForkSlot};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Buffers above this are mapped for one use.
const CLASS_BYTES_MAX: usize = 64 << 20;
/// Sizes of buffers between a power of two and the next: an eighth of a fresh
/// buffer is unused at most, but for the smallest, which are whole pages.
const CLASSES_PER_DOUBLING: usize = 8;

/// A buffer may have memory that lies ready and is as many times as large as it
/// needs, rather than fresh pages.
const WARM_TIMES_MAX: usize = 2;

/// Owned, writable, aligned bytes, which return to their pool when dropped.
///
/// The content of a new buffer is whatever its last user left there.
pub struct Buffer {
    memory: Memory,
    bytes: usize,
}

enum Memory {
    /// Of the allocator; the bytes begin at `start`, which is aligned.
    Own { memory: Vec<u8>, start: usize },
    /// Of a pool, which may be gone; `None` once it was given back.
    Pooled {
        block: Option<Block>,
        pool: Weak<Shelves>,
    },
}

/// A pool of [`Buffer`]s, in classes of size. Cloning shares it.
///
/// It never refuses: what is in use is bounded by the budgets of those that
/// takes. What it holds back for reuse is bounded together with that: by what
/// the bound leaves beside what is in use, or by a quarter of it. Buffers
/// beyond what is kept give their pages to the system.
///
/// A forked child begins with an empty one: the parent's lock may be held for
/// ever there.
#[derive(Clone)]
pub struct Pool {
    slot: Arc<ForkSlot<Shelves>>,
    kept_bytes_max: usize,
}

struct Shelves {
    /// Guards the free memory; held for a push or a pop only.
    free: Mutex<Free>,
    kept_bytes_max: usize,
    /// The process that it is of.
    generation: u64,
}

#[derive(Default)]
struct Free {
    classes: BTreeMap<usize, Class>,
    kept_bytes: usize,
    /// Taken and not yet back.
    used_bytes: usize,
}

/// Blocks of one size.
#[derive(Default)]
struct Class {
    /// The last one that came back is the first that is taken: it may still
    /// be in the cache.
    warm: VecDeque<Block>,
    /// Without pages.
    cold: Vec<Block>,
    /// The fewest warm ones since the last look at what is idle.
    idle: usize,
    cutter: Cutter,
}

impl Shelves {
    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().expect("no user of the pool panics in it")
    }

    fn take(&self, class_bytes: usize) -> Option<Block> {
        let mut free = self.lock();
        if let Some(block) = free.take_warm(class_bytes) {
            free.kept_bytes -= block.bytes();
            free.used_bytes += block.bytes();
            return Some(block);
        }
        let class = free.class(class_bytes);
        let cold = class.cold.pop();
        let block = cold.or_else(|| class.cutter.cut(class_bytes))?;
        free.used_bytes += class_bytes;
        self.cool_excess(free);
        Some(block)
    }

    fn put(&self, block: Block) {
        let mut free = self.lock();
        free.used_bytes -= block.bytes();
        free.kept_bytes += block.bytes();
        free.class(block.bytes()).warm.push_back(block);
        self.cool_excess(free);
    }

    /// Gives the system the pages of what is beyond the bound.
    fn cool_excess<'a>(&'a self, mut free: MutexGuard<'a, Free>) {
        let kept_max = |used| {
            let left = self.kept_bytes_max.saturating_sub(used);
            left.max(self.kept_bytes_max / 4)
        };
        while free.kept_bytes > kept_max(free.used_bytes) {
            let Some(mut block) = free.take_excess() else {
                return;
            };
            drop(free);
            block.cool();
            free = self.lock();
            free.class(block.bytes()).cold.push(block);
        }
    }
}

impl Free {
    fn class(&mut self, bytes: usize) -> &mut Class {
        self.classes.entry(bytes).or_default()
    }

    /// A block with pages, of this size or up to twice as large: payloads come
    /// in many sizes, and what lies ready for one serves the next.
    fn take_warm(&mut self, bytes: usize) -> Option<Block> {
        let fitting = self.classes.range_mut(bytes..=WARM_TIMES_MAX * bytes);
        let mut warm = fitting
            .map(|(_, class)| class)
            .filter(|class| !class.warm.is_empty());
        let class = warm.next()?;
        let block = class.warm.pop_back();
        class.idle = class.idle.min(class.warm.len());
        block
    }

    /// The oldest warm block of the class that has most: sizes that are used
    /// no more make space for those that are.
    fn take_excess(&mut self) -> Option<Block> {
        let most = self
            .classes
            .iter_mut()
            .max_by_key(|(bytes, class)| *bytes * class.warm.len());
        let block = most.and_then(|(_, class)| class.warm.pop_front())?;
        self.kept_bytes -= block.bytes();
        Some(block)
    }

    /// A warm block that was not needed since the last look.
    fn take_idle(&mut self) -> Option<Block> {
        for class in self.classes.values_mut() {
            if class.idle > 0
                && let Some(block) = class.warm.pop_front()
            {
                class.idle -= 1;
                self.kept_bytes -= block.bytes();
                return Some(block);
            }
        }
        None
    }
}

impl Pool {
    /// A pool that keeps at most `kept_bytes_max` bytes for reuse: fewer,
    /// down to a quarter, while others are in use.
    pub fn new(kept_bytes_max: usize) -> Self {
        Self {
            slot: Arc::default(),
            kept_bytes_max,
        }
    }

    fn shelves(&self) -> Arc<Shelves> {
        let make = || {
            Ok::<_, Infallible>(Shelves {
                free: Mutex::default(),
                kept_bytes_max: self.kept_bytes_max,
                generation: fork::generation(),
            })
        };
        let Ok(shelves) = self.slot.get_or_make(make);
        shelves
    }

    /// A buffer of `bytes` bytes.
    pub fn take(&self, bytes: usize) -> Buffer {
        let class_bytes = class_bytes(bytes);
        let (block, pool) = if class_bytes <= CLASS_BYTES_MAX {
            let shelves = self.shelves();
            (shelves.take(class_bytes), Arc::downgrade(&shelves))
        } else {
            (Cutter::default().cut(class_bytes), Weak::new())
        };
        match block {
            // The system maps no more; the allocator may still have some.
            None => Buffer::zeroed(bytes),
            block => Buffer {
                memory: Memory::Pooled { block, pool },
                bytes,
            },
        }
    }

    /// Gives the system what was not needed since the last call. Called now
    /// and then, it leaves about what the load needs.
    pub fn give_back_idle(&self) {
        let shelves = self.shelves();
        let mut free = shelves.lock();
        while let Some(mut block) = free.take_idle() {
            drop(free);
            block.cool();
            free = shelves.lock();
            free.class(block.bytes()).cold.push(block);
        }
        for class in free.classes.values_mut() {
            class.idle = class.warm.len();
        }
    }

    /// Bytes that lie ready for reuse.
    pub fn kept_bytes(&self) -> usize {
        self.shelves().lock().kept_bytes
    }

    /// Bytes that are taken and not yet back.
    pub fn used_bytes(&self) -> usize {
        self.shelves().lock().used_bytes
    }
}

/// The memory that a buffer of `bytes` takes.
fn class_bytes(bytes: usize) -> usize {
    let bytes = bytes.max(1);
    let step = (bytes.next_power_of_two() / 2 / CLASSES_PER_DOUBLING).max(PAGE_BYTES);
    bytes.next_multiple_of(step)
}

impl Buffer {
    /// A buffer without bytes or memory.
    pub const fn empty() -> Self {
        Self {
            memory: Memory::Own {
                memory: Vec::new(),
                start: 0,
            },
            bytes: 0,
        }
    }

    /// A buffer of zeros that belongs to no pool.
    pub fn zeroed(bytes: usize) -> Self {
        let memory = vec![0; bytes + PAGE_BYTES];
        let start = memory.as_ptr().align_offset(PAGE_BYTES);
        // `align_offset` may say "impossible"; then alignment is forgone.
        let start = if start <= PAGE_BYTES { start } else { 0 };
        Self {
            memory: Memory::Own { memory, start },
            bytes,
        }
    }

    /// A buffer of its own with a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Forgets the bytes from `bytes` on. Longer than now is ignored.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    /// How much memory it takes, which is more than it has bytes.
    pub fn memory_bytes(&self) -> usize {
        match &self.memory {
            Memory::Own { memory, .. } => memory.len(),
            Memory::Pooled { block, .. } => block.as_ref().map_or(0, Block::bytes),
        }
    }

    /// Gives the system what the buffer takes beyond its bytes, for somebody who keeps it
    /// for long. Does nothing if that is less than a quarter of them, as it mostly is.
    pub fn give_back_unused(&mut self) {
        let bytes = self.bytes;
        if let Memory::Pooled {
            block: Some(block), ..
        } = &mut self.memory
            && block.bytes() - bytes > bytes / 4
        {
            block.cool_behind(bytes);
        }
    }

    /// The bytes, shared from now on; the memory returns to its pool when
    /// the last share is dropped.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Memory::Pooled { block, pool } = &mut self.memory else {
            return;
        };
        if let Some(block) = block.take()
            && let Some(pool) = pool.upgrade()
            && pool.generation == fork::generation()
        {
            pool.put(block);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Own { memory, start } => &memory[*start..*start + self.bytes],
            Memory::Pooled { block, .. } => {
                let block = block.as_ref().expect("it is given back by drop alone");
                &block[..self.bytes]
            }
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Own { memory, start } => &mut memory[*start..*start + self.bytes],
            Memory::Pooled { block, .. } => {
                let block = block.as_mut().expect("it is given back by drop alone");
                &mut block[..self.bytes]
            }
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} bytes kept)", self.kept_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_and_aligned() {
        let pool = Pool::new(1 << 20);
        let buffer = pool.take(100_000);
        assert_eq!(buffer.len(), 100_000);
        assert_eq!(buffer.as_ptr() as usize % PAGE_BYTES, 0);
        let place = buffer.as_ptr();
        drop(buffer.freeze());
        assert_eq!(pool.take(99_000).as_ptr(), place);
    }

    #[test]
    fn what_lies_ready_serves_smaller_buffers_too() {
        let pool = Pool::new(1 << 20);
        let buffers = [pool.take(100_000), pool.take(70_000)];
        let [large, small] = buffers.each_ref().map(|buffer| buffer.as_ptr());
        drop(buffers);
        let buffer = pool.take(70_000);
        assert_eq!(
            buffer.as_ptr(),
            small,
            "the one that is no larger than needed"
        );
        let smaller = pool.take(60_000);
        assert_eq!((smaller.as_ptr(), smaller.len()), (large, 60_000));
        assert_eq!(pool.kept_bytes(), 0);
        drop(smaller);
        assert_ne!(
            pool.take(40_000).as_ptr(),
            large,
            "more than twice as large"
        );
        let both = [pool.take(100_000), buffer];
        assert_eq!(both[0].as_ptr(), large, "it is back where it was");
    }

    #[test]
    fn little_of_a_buffer_is_unused() {
        for bytes in [1, 4096, 4097, 40_000, (1 << 20) + 4096, 5_000_000, 1 << 30] {
            let class = class_bytes(bytes);
            assert!(class >= bytes && class - bytes < PAGE_BYTES.max(bytes / 8 + 1));
        }
        assert_eq!(class_bytes(1 << 20), 1 << 20);
        assert_eq!(class_bytes((1 << 20) + 1), (1 << 20) + (1 << 17));
    }

    #[test]
    fn what_is_not_needed_is_given_back_at_the_second_look() {
        let pool = Pool::new(1 << 20);
        drop((0..10).map(|_| pool.take(4096)).collect::<Vec<_>>());
        pool.give_back_idle();
        assert_eq!(pool.kept_bytes(), 10 * 4096);
        drop((0..3).map(|_| pool.take(4096)).collect::<Vec<_>>());
        pool.give_back_idle();
        assert_eq!(pool.kept_bytes(), 3 * 4096);
        pool.give_back_idle();
        assert_eq!(pool.kept_bytes(), 0);
    }

    #[test]
    fn what_is_kept_leaves_space_for_what_is_in_use() {
        let most = 64 * 4096;
        let pool = Pool::new(most);
        let of = |bytes: usize, count: usize| -> Vec<Buffer> {
            (0..count).map(|_| pool.take(bytes)).collect()
        };
        drop(of(4096, 64));
        assert_eq!(pool.kept_bytes(), most);
        // Others are taken, of another size: no more than the bound is held.
        let taken = of(8192, 16);
        assert_eq!(pool.kept_bytes(), most / 2);
        let more = of(8192, 32);
        assert_eq!(pool.kept_bytes(), most / 4, "a quarter is kept at least");
        drop(taken);
        assert_eq!(pool.kept_bytes(), most / 4);
        drop(more);
        assert!(pool.kept_bytes() > most / 2 && pool.kept_bytes() <= most);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let pool = Pool::new(20_000);
        let filled = |_| {
            let mut buffer = pool.take(4096);
            buffer.fill(1);
            buffer
        };
        drop((0..10).map(filled).collect::<Vec<_>>());
        assert!(pool.kept_bytes() <= 20_000 && pool.kept_bytes() > 0);
        // Some come from memory that was given back meanwhile.
        let again: Vec<Buffer> = (0..10).map(filled).collect();
        assert!(again.iter().all(|buffer| buffer[..] == [1; 4096]));
        drop(again);
        drop(pool.take(1 << 30));
        assert!(Buffer::empty().freeze().is_empty());
        assert!(pool.kept_bytes() <= 20_000);
    }
}
