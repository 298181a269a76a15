//! Memory for the blocks of a step, which is used again for the next ones.

use bytes::Bytes;
use client::Driver;
use memory::{Allocation, Buffer, Pool};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use wire::step::BLOCK_ALIGNMENT;

/// Blocks shorter than this lie together in memory of [`CHUNK_BYTES`].
const ALONE_BYTES_MIN: usize = 256 << 10;
const CHUNK_BYTES: usize = 1 << 20;
/// A pool of buffers does not use longer ones again; they are kept here.
const POOLED_BYTES_MAX: usize = 64 << 20;

/// Where blocks are copied to, or made in: memory of the connection's transport, if the server
/// reads it where it lies, and otherwise memory that is kept from step to step.
pub(crate) struct BlockMemory {
    driver: Driver,
    pool: Pool,
    large: Arc<Mutex<Large>>,
}

/// Long buffers that are not in use; the one that was used last is behind.
struct Large {
    free: VecDeque<Buffer>,
    bytes: usize,
    bytes_max: usize,
}

/// A buffer, which goes back when nobody reads it any more.
pub(crate) struct KeptBlock {
    buffer: Option<Buffer>,
    /// Of a long one; a shorter one finds its pool by itself.
    home: Weak<Mutex<Large>>,
}

impl BlockMemory {
    pub fn new(driver: &Driver, kept_bytes_max: usize) -> Self {
        Self {
            driver: driver.clone(),
            pool: Pool::new(kept_bytes_max),
            large: Arc::new(Mutex::new(Large {
                free: VecDeque::new(),
                bytes: 0,
                bytes_max: kept_bytes_max,
            })),
        }
    }

    /// So many bytes, whose content is undefined.
    pub fn take(&self, bytes: usize) -> Allocation {
        if let Some(memory) = self.driver.try_alloc_buffer(bytes) {
            return memory;
        }
        Allocation::new(self.take_kept(bytes))
    }

    /// So many bytes of memory that is kept from step to step.
    pub fn take_kept(&self, bytes: usize) -> KeptBlock {
        if bytes <= POOLED_BYTES_MAX {
            return KeptBlock {
                buffer: Some(self.pool.take(bytes)),
                home: Weak::new(),
            };
        }
        let known = self
            .large
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(bytes);
        KeptBlock {
            buffer: Some(known.unwrap_or_else(|| self.pool.take(bytes))),
            home: Arc::downgrade(&self.large),
        }
    }

    /// The pool of its shorter buffers.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Gives the system what was not needed since the last call.
    pub fn give_back_idle(&self) {
        self.pool.give_back_idle();
    }
}

impl Large {
    /// One of just this length: steps of a program have the same blocks again and again.
    fn take(&mut self, bytes: usize) -> Option<Buffer> {
        let index = self.free.iter().rposition(|buffer| buffer.len() == bytes)?;
        self.bytes -= bytes;
        self.free.remove(index)
    }

    fn give_back(&mut self, buffer: Buffer) {
        self.bytes += buffer.len();
        self.free.push_back(buffer);
        while self.bytes > self.bytes_max {
            let oldest = self.free.pop_front();
            self.bytes -= oldest.map_or(0, |buffer| buffer.len());
        }
    }
}

impl Drop for KeptBlock {
    fn drop(&mut self) {
        if let (Some(buffer), Some(home)) = (self.buffer.take(), self.home.upgrade()) {
            home.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .give_back(buffer);
        }
    }
}

impl AsRef<[u8]> for KeptBlock {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl AsMut<[u8]> for KeptBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }
}

/// The blocks of one step that are in [`BlockMemory`].
#[derive(Default)]
pub(crate) struct BlockSpace {
    pieces: Vec<Allocation>,
    /// Which piece is shared by short blocks, and how much of it is used.
    chunk: Option<(usize, usize)>,
}

/// Where a block is in a [`BlockSpace`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockPlace {
    piece: usize,
    start: usize,
    bytes: usize,
}

impl BlockSpace {
    /// Space for a block, aligned as it is in its part. Its content is undefined.
    pub fn reserve(&mut self, memory: &BlockMemory, bytes: usize) -> BlockPlace {
        if bytes >= ALONE_BYTES_MIN {
            self.pieces.push(memory.take(bytes));
            return BlockPlace {
                piece: self.pieces.len() - 1,
                start: 0,
                bytes,
            };
        }
        let (piece, start) = match self.chunk {
            Some((piece, used)) if used + bytes <= CHUNK_BYTES => (piece, used),
            _ => {
                self.pieces.push(memory.take(CHUNK_BYTES));
                (self.pieces.len() - 1, 0)
            }
        };
        let used = (start + bytes).next_multiple_of(BLOCK_ALIGNMENT as usize);
        self.chunk = Some((piece, used));
        BlockPlace {
            piece,
            start,
            bytes,
        }
    }

    pub fn block(&mut self, place: BlockPlace) -> &mut [u8] {
        &mut self.pieces[place.piece][place.start..place.start + place.bytes]
    }

    /// All memory, shared from now on.
    pub fn freeze(self) -> FrozenSpace {
        FrozenSpace(self.pieces.into_iter().map(Allocation::freeze).collect())
    }
}

/// Blocks that do not change any more.
pub(crate) struct FrozenSpace(Vec<Bytes>);

impl FrozenSpace {
    pub fn block(&self, place: BlockPlace) -> Bytes {
        self.0[place.piece].slice(place.start..place.start + place.bytes)
    }
}
