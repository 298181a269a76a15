//! Many small pieces of memory, side by side.
//!
//! A piece of its own is a whole page of a pool, or what an allocator keeps after it
//! is freed. Here pieces lie one behind the other in a chunk of the operating system's,
//! which has it back when the last of them is dropped.

use crate::arena::Arena;
use bytes::Bytes;
use std::sync::Arc;

/// Copies small pieces to where they take what they are long. They are best dropped in
/// the order in which they came: a chunk goes with its last piece.
pub struct Packer {
    chunk: Option<Arc<Chunk>>,
    /// How much of the chunk is taken.
    used: usize,
    chunk_bytes: usize,
}

/// Memory of pieces; each byte of it is written once, before its piece is handed out.
struct Chunk {
    arena: Arena,
    bytes: usize,
}

/// A piece: a range of a chunk that was written and never is again.
struct Piece {
    chunk: Arc<Chunk>,
    at: usize,
    bytes: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        let start = self.chunk.arena.base().as_ptr();
        // SAFETY: `Packer::pack` wrote this range, which lies in the mapping that the
        // chunk keeps, before the piece was there, and nobody writes it afterwards.
        unsafe { std::slice::from_raw_parts(start.add(self.at), self.bytes) }
    }
}

impl Packer {
    /// What the owner of a piece takes beside its bytes, with the allocator's part.
    pub const PIECE_BYTES: usize = 80;

    /// A packer whose chunks are so long. A piece may keep one of them.
    pub fn new(chunk_bytes: usize) -> Self {
        Self {
            chunk: None,
            used: 0,
            chunk_bytes,
        }
    }

    /// A copy of `bytes`. One that is long for a chunk is an allocation of its own.
    pub fn pack(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() > self.chunk_bytes / 4 {
            return Bytes::copy_from_slice(bytes);
        }
        let fits = |chunk: &Arc<Chunk>| bytes.len() <= chunk.bytes - self.used;
        if !self.chunk.as_ref().is_some_and(fits) {
            let arena = Arena::map(self.chunk_bytes, false);
            let bytes = self.chunk_bytes;
            self.chunk = arena.map(|arena| Arc::new(Chunk { arena, bytes }));
            self.used = 0;
        }
        let Some(chunk) = &self.chunk else {
            // The system maps no more; the allocator may still have some.
            return Bytes::copy_from_slice(bytes);
        };
        let at = self.used;
        self.used += bytes.len();
        // SAFETY: the range from `at` fits into the mapping and belongs to no piece:
        // `used` only grows while the chunk is this one, which this packer alone fills,
        // through `&mut self`.
        unsafe {
            let to = chunk.arena.base().as_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        Bytes::from_owner(Piece {
            chunk: chunk.clone(),
            at,
            bytes: bytes.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_their_bytes_whatever_comes_and_goes() {
        let mut packer = Packer::new(64 << 10);
        let piece = |number: usize| vec![number as u8; number * 37 % 20_000];
        let mut pieces = Vec::new();
        for number in 0..500 {
            pieces.push((number, packer.pack(&piece(number))));
            if number % 3 == 0 {
                pieces.swap_remove(number % 7 % pieces.len());
            }
        }
        drop(packer);
        for (number, bytes) in pieces {
            assert!(bytes == piece(number), "piece {number}");
        }
    }

    #[test]
    fn small_pieces_share_a_chunk_and_long_ones_do_not() {
        let mut packer = Packer::new(64 << 10);
        let [first, second] = [packer.pack(b"first"), packer.pack(b"second")];
        assert_eq!(first.as_ptr().wrapping_add(5), second.as_ptr());
        let long = packer.pack(&[1; 20_000]);
        let third = packer.pack(b"third");
        assert_eq!(second.as_ptr().wrapping_add(6), third.as_ptr());
        drop((first, second));
        assert_eq!((&third[..], long.len()), (&b"third"[..], 20_000));
        assert_eq!(packer.pack(b"").len(), 0);
    }
}
