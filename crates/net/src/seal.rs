//! What memory was before it is sent, to notice that it was changed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::checksum::{combine_blocks, crc32c, crc32c_combine};

/// The checksum of memory at one moment, for [`crate::Link::expose_sealed`].
#[derive(Debug)]
pub struct Seal {
    bytes: u64,
    crc: u32,
    /// Guards how much of the memory was read since it was exposed, in order, and
    /// the checksum of that.
    read: Mutex<(u64, u32)>,
    /// Only ever set; nothing is ordered by it.
    is_broken: AtomicBool,
}

impl Seal {
    /// Of `bytes`, as they are now.
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.len() as u64,
            crc: crc32c(bytes),
            read: Mutex::default(),
            is_broken: AtomicBool::new(false),
        }
    }

    /// Whether memory was found to be changed since.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// `part` of the memory, from `offset` on, is about to be sent, with the
    /// `checksums` of its blocks, if the other side wants them. False once it is
    /// known that the memory was changed: at the last part, which is not sent then.
    /// Of parts that are not read one behind the other, from 0 on, nothing is known.
    pub(crate) fn holds(
        &self,
        offset: u64,
        part: &[u8],
        checksums: &[u32],
        block_bytes: u32,
    ) -> bool {
        let bytes = part.len() as u64;
        let crc = match checksums.is_empty() {
            true => crc32c(part),
            false => combine_blocks(checksums, block_bytes, bytes),
        };
        let mut read = self.read.lock().expect("no holder panics here");
        if offset == 0 {
            *read = (0, 0);
        }
        if offset == read.0 {
            *read = (offset + bytes, crc32c_combine(read.1, crc, bytes));
            if read.0 == self.bytes && read.1 != self.crc {
                self.is_broken.store(true, Ordering::Relaxed);
            }
        }
        !self.is_broken()
    }
}

/// What is sent to the other side.
pub(crate) const CHANGED: &str = "the memory was changed since it was lent";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_noticed_at_the_last_part() {
        let memory: Vec<u8> = (0..10_000u32).map(|at| (at * 7) as u8).collect();
        let mut changed = memory.clone();
        changed[100] ^= 1;
        for block_bytes in [0, 512] {
            let send = |seal: &Seal, memory: &[u8]| -> Vec<bool> {
                let parts = memory.chunks(4096).scan(0, |offset, part| {
                    let at = *offset;
                    *offset += part.len() as u64;
                    let checksums: Vec<u32> = match block_bytes {
                        0 => Vec::new(),
                        bytes => wire::checksum::block_checksums(part, bytes).collect(),
                    };
                    Some(seal.holds(at, part, &checksums, block_bytes))
                });
                parts.collect()
            };
            let seal = Seal::of(&memory);
            assert_eq!(send(&seal, &memory), [true, true, true]);
            assert_eq!(send(&seal, &changed), [true, true, false], "a second time");
            assert!(seal.is_broken());
            assert_eq!(send(&seal, &memory), [false, false, false], "once broken");
        }
    }
}
