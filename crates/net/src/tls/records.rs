//! The memory of a connection: records as they came, records to be sent, and bytes that were
//! decrypted before anybody asked for them.

use std::io::{self, IoSliceMut};

/// The longest record: five bytes of header, 16 KiB, and what a cipher may add.
const RECORD_BYTES_MAX: usize = 5 + (16 << 10) + 256;
/// What a handshake may need of the other side: a flight of certificates. A peer that is not
/// verified costs no more than this.
pub(super) const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// What is kept once the other side is known, of a connection that brings much.
pub(super) const READ_BYTES_MAX: usize = 128 << 10;
/// What a connection begins with.
const READ_BYTES_MIN: usize = 4 << 10;

// A record that has begun always has space for its end.
const _: () = assert!(RECORD_BYTES_MAX < HANDSHAKE_BYTES_MAX && RECORD_BYTES_MAX < READ_BYTES_MAX);

/// Records as they came, of which the last may not be whole.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// What the next read should find room for.
    wanted: usize,
}

impl Incoming {
    /// What has come and was not used.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// The first byte that has come.
    pub(super) fn first(&self) -> Option<u8> {
        self.buffer[self.start..self.end].first().copied()
    }

    /// So many bytes were used.
    pub(super) fn discard(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads once, by `read`; no more than `bytes_max` are kept. 0 is the end of the stream.
    pub(super) fn fill(
        &mut self,
        bytes_max: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let kept = self.end - self.start;
        if kept >= bytes_max {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("sent {kept} bytes of which no message of TLS came"),
            ));
        }
        // A record that has begun has to fit, and behind it what is likely to follow.
        let wanted = self.wanted.max(READ_BYTES_MIN).max(kept * 2).min(bytes_max);
        if self.buffer.len() - self.start < wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, kept);
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
        }
        let space = &mut self.buffer[self.end..];
        let offered = space.len();
        let bytes = read(space)?;
        self.end += bytes;
        if bytes == offered {
            self.wanted = (self.buffer.len() * 2).min(READ_BYTES_MAX);
        }
        Ok(bytes)
    }
}

/// Records that the system has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Outgoing {
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Space for `bytes` more, behind what is there.
    pub(super) fn space(&mut self, bytes: usize) -> &mut [u8] {
        let needed = self.end + bytes;
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes of the space were written.
    pub(super) fn add(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// So many bytes were taken by the system.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }
}

/// Bytes that were decrypted before anybody asked for them.
#[derive(Debug, Default)]
pub(super) struct Plain {
    bytes: Vec<u8>,
    start: usize,
}

impl Plain {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn take(&mut self, into: &mut Places<'_, '_>) {
        self.start += into.put(&self.bytes[self.start..]);
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }
}

/// Where decrypted bytes are to go, filled from the front.
pub(super) struct Places<'a, 'b> {
    slices: &'a mut [IoSliceMut<'b>],
    index: usize,
    /// Filled of the slice at `index`.
    offset: usize,
    /// Filled of all.
    pub filled: usize,
}

impl<'a, 'b> Places<'a, 'b> {
    pub(super) fn new(slices: &'a mut [IoSliceMut<'b>]) -> Self {
        Self {
            slices,
            index: 0,
            offset: 0,
            filled: 0,
        }
    }

    /// Copies as much of `bytes` as there is space for, and says how much that was.
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> usize {
        let before = self.filled;
        while let Some(slice) = self.slices.get_mut(self.index) {
            let step = bytes.len().min(slice.len() - self.offset);
            slice[self.offset..self.offset + step].copy_from_slice(&bytes[..step]);
            bytes = &bytes[step..];
            self.offset += step;
            self.filled += step;
            if self.offset < slice.len() {
                break;
            }
            self.index += 1;
            self.offset = 0;
        }
        self.filled - before
    }

    pub(super) fn are_full(&self) -> bool {
        self.slices[self.index..]
            .iter()
            .all(|slice| slice.is_empty())
    }
}
