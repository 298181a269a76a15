//! A stream of bytes through shared memory: a ring that one side writes and
//! the other reads. The layout is `docs/format/shm.md`.
//!
//! Either side keeps its own position to itself and only publishes it; the
//! other side's is read once, checked, and then used. So whatever the other
//! side writes, and when, the worst it can do is to end the stream.

use crate::segment::Mapping;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where the words and the ring are in a segment.
pub(crate) mod place {
    /// Random bytes by which the mapping is proven.
    pub(crate) const NONCE: usize = 0x10;
    /// How far the segment's owner has written its ring.
    pub(crate) const TAIL: usize = 0x80;
    /// How far the segment's owner has read the other ring.
    pub(crate) const HEAD: usize = 0x100;
    /// Whether the segment's owner sleeps, and for what.
    pub(crate) const DOZE: usize = 0x180;
    /// Not zero when memory that the ring refers to is not to be read any more.
    pub(crate) const CLOSING: usize = 0x200;
    /// The ring itself, up to the end.
    pub(crate) const RING: usize = 0x1000;
}

/// A record's bytes are at most this many, so that the other side can begin
/// to copy while the next ones are written.
pub(crate) const RECORD_BYTES_MAX: usize = 64 * 1024;

const HEADER_BYTES: u64 = 8;

/// No more is referred to while the other side has as much as this to read:
/// what comes behind it waits for that.
const REFERRED_BYTES_MAX: u64 = 1 << 20;

/// Kinds of records.
const INLINE: u64 = 1;
const FOREIGN: u64 = 2;
const POOLED: u64 = 3;

/// Bytes that are not in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference {
    /// In the memory of the process that wrote the record.
    Foreign { address: u64 },
    /// In a segment of that process's pool.
    Pooled {
        /// Which, in the order in which they were handed over.
        segment: u32,
        /// Where in it.
        offset: u64,
    },
}

/// What no sane peer does.
pub(crate) fn insane(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(8)
}

/// The writing side.
#[derive(Debug)]
pub(crate) struct Writer {
    ours: Arc<Mapping>,
    theirs: Arc<Mapping>,
    capacity: u64,
    tail: u64,
    /// How far the other side has read, as far as we know.
    head: u64,
    /// Bytes of the stream that were written.
    written: u64,
    /// References that the other side may still follow.
    referred: VecDeque<Referred>,
    referred_bytes: u64,
}

/// Memory that the other side may still read.
#[derive(Debug, Clone, Copy)]
struct Referred {
    /// Where the record ends in the ring.
    record_end: u64,
    /// Where its bytes begin in the stream.
    begin: u64,
    bytes: u64,
}

impl Writer {
    pub(crate) fn new(ours: Arc<Mapping>, theirs: Arc<Mapping>) -> Self {
        let capacity = (ours.bytes() - place::RING) as u64;
        Self {
            ours,
            theirs,
            capacity,
            tail: 0,
            head: 0,
            written: 0,
            referred: VecDeque::new(),
            referred_bytes: 0,
        }
    }

    /// Learns how far the other side has read.
    fn look(&mut self) -> io::Result<()> {
        // Acquire: what it has read, it has copied before it said so.
        let head = self.theirs.word(place::HEAD).load(Ordering::Acquire);
        if head < self.head || head > self.tail {
            return Err(insane(format!(
                "says it has read {head} bytes of the ring, after {} and of {} that were written",
                self.head, self.tail
            )));
        }
        self.head = head;
        while let Some(first) = self.referred.front().copied()
            && first.record_end <= head
        {
            self.referred_bytes -= first.bytes;
            self.referred.pop_front();
        }
        Ok(())
    }

    fn space(&self) -> u64 {
        (self.capacity - (self.tail - self.head)) & !7
    }

    /// Whether it is worth going on where there was no space: as much as half
    /// of the ring is free, and something can be referred to.
    pub(crate) fn has_much_space(&mut self) -> io::Result<bool> {
        self.look()?;
        Ok(self.space() >= self.capacity / 2 && self.referred_bytes < REFERRED_BYTES_MAX)
    }

    /// Bytes of the stream whose memory is needed no more.
    pub(crate) fn settled(&mut self) -> u64 {
        if !self.referred.is_empty() {
            // What is wrong with it, the next write says.
            let _ = self.look();
        }
        self.referred
            .front()
            .map_or(self.written, |first| first.begin)
    }

    /// Writes what there is space for, as inline bytes or, where `refer` knows
    /// how, as references. Returns how many bytes of the stream that was.
    pub(crate) fn write(
        &mut self,
        from: &[IoSlice<'_>],
        mut refer: impl FnMut(&[u8]) -> Option<Reference>,
    ) -> io::Result<usize> {
        self.look()?;
        let mut total = 0;
        let mut open = Open::default();
        for slice in from {
            if slice.is_empty() {
                continue;
            }
            if let Some(reference) = refer(slice) {
                self.close(&mut open);
                if !self.refer(reference, slice.len())? {
                    break;
                }
                total += slice.len();
                continue;
            }
            let mut rest = &slice[..];
            while !rest.is_empty() {
                let step = self.append(&mut open, rest)?;
                if step == 0 {
                    break;
                }
                rest = &rest[step..];
                total += step;
            }
            if !rest.is_empty() {
                break;
            }
        }
        self.close(&mut open);
        Ok(total)
    }

    /// Adds bytes to the open record, opening one if there is none. Returns
    /// how many; 0 if the ring is full.
    fn append(&mut self, open: &mut Open, bytes: &[u8]) -> io::Result<usize> {
        if open.bytes as usize == RECORD_BYTES_MAX {
            self.close(open);
        }
        if self.space() < HEADER_BYTES + padded(open.bytes + 1) {
            self.look()?;
        }
        let free = self.space().saturating_sub(HEADER_BYTES + open.bytes);
        let step = bytes
            .len()
            .min(RECORD_BYTES_MAX - open.bytes as usize)
            .min(usize::try_from(free).unwrap_or(usize::MAX));
        self.put(self.tail + HEADER_BYTES + open.bytes, &bytes[..step]);
        open.bytes += step as u64;
        Ok(step)
    }

    /// Publishes the open record, if there is one.
    fn close(&mut self, open: &mut Open) {
        let bytes = std::mem::take(&mut open.bytes);
        if bytes == 0 {
            return;
        }
        self.put(self.tail, &(INLINE << 32 | bytes).to_le_bytes());
        self.publish(HEADER_BYTES + padded(bytes), bytes);
    }

    /// Writes a reference to `bytes` bytes; false if there is no space for it.
    fn refer(&mut self, reference: Reference, bytes: usize) -> io::Result<bool> {
        let length = u64::from(u32::try_from(bytes).expect("pieces are shorter than 4 GiB"));
        let words = match reference {
            Reference::Foreign { address } => [FOREIGN << 32 | length, address, 0],
            Reference::Pooled { segment, offset } => {
                [POOLED << 32 | length, offset, u64::from(segment)]
            }
        };
        let record_bytes = words.len() as u64 * 8;
        let refuses = |writer: &Self| {
            writer.space() < record_bytes || writer.referred_bytes >= REFERRED_BYTES_MAX
        };
        if refuses(self) {
            self.look()?;
            if refuses(self) {
                return Ok(false);
            }
        }
        for (at, word) in (self.tail..).step_by(8).zip(words) {
            self.put(at, &word.to_le_bytes());
        }
        self.referred_bytes += length;
        self.referred.push_back(Referred {
            record_end: self.tail + record_bytes,
            begin: self.written,
            bytes: length,
        });
        self.publish(record_bytes, length);
        Ok(true)
    }

    fn put(&self, position: u64, bytes: &[u8]) {
        let at = (position % self.capacity) as usize;
        let first = bytes.len().min(self.capacity as usize - at);
        self.ours.copy_in(&bytes[..first], place::RING + at);
        self.ours.copy_in(&bytes[first..], place::RING);
    }

    fn publish(&mut self, ring_bytes: u64, stream_bytes: u64) {
        self.tail += ring_bytes;
        self.written += stream_bytes;
        // Release: the bytes are there before the tail says so.
        self.ours
            .word(place::TAIL)
            .store(self.tail, Ordering::Release);
    }

    /// Says that memory which was referred to will be used again: from now on
    /// what the other side has read of it counts for nothing.
    pub(crate) fn revoke(&mut self) {
        if self.settled() < self.written {
            self.ours.word(place::CLOSING).store(1, Ordering::SeqCst);
            // Nothing that is written to that memory from here on comes before.
            std::sync::atomic::fence(Ordering::SeqCst);
        }
    }
}

/// An inline record that is being written.
#[derive(Debug, Default)]
struct Open {
    bytes: u64,
}

/// What the reader is in the middle of.
#[derive(Debug, Clone, Copy)]
enum Current {
    Nothing,
    Inline {
        left: u64,
        padding: u64,
    },
    Referred {
        what: Reference,
        done: u64,
        bytes: u64,
    },
}

/// The reading side.
#[derive(Debug)]
pub(crate) struct Reader {
    ours: Arc<Mapping>,
    theirs: Arc<Mapping>,
    capacity: u64,
    head: u64,
    /// What we said of `head` last.
    published: u64,
    /// How far the other side has written, as far as we know.
    tail: u64,
    current: Current,
}

impl Reader {
    pub(crate) fn new(ours: Arc<Mapping>, theirs: Arc<Mapping>) -> Self {
        let capacity = (theirs.bytes() - place::RING) as u64;
        Self {
            ours,
            theirs,
            capacity,
            head: 0,
            published: 0,
            tail: 0,
            current: Current::Nothing,
        }
    }

    /// Learns how far the other side has written.
    fn look(&mut self) -> io::Result<()> {
        // Acquire: the bytes up to there are there.
        let tail = self.theirs.word(place::TAIL).load(Ordering::Acquire);
        if tail < self.tail || tail - self.head > self.capacity || !tail.is_multiple_of(8) {
            return Err(insane(format!(
                "says it has written {tail} bytes of the ring, after {}; {} of them were read, \
                 and it has space for {}",
                self.tail, self.head, self.capacity
            )));
        }
        self.tail = tail;
        Ok(())
    }

    /// Whether there is something to read, or something wrong.
    pub(crate) fn has_some(&mut self) -> bool {
        !matches!(self.current, Current::Nothing)
            || self.head < self.tail
            || self.theirs.word(place::TAIL).load(Ordering::Acquire) != self.tail
    }

    /// Whether the other side, should it wait for space, has enough by now.
    pub(crate) fn gives_much_space(&self) -> bool {
        let tail = self.theirs.word(place::TAIL).load(Ordering::Acquire);
        tail.wrapping_sub(self.published) <= self.capacity / 2
    }

    /// Reads what is there, up to the length of `into`; 0 is nothing now.
    /// `follow` brings bytes that a reference names, from an offset on.
    pub(crate) fn read(
        &mut self,
        into: &mut [IoSliceMut<'_>],
        mut follow: impl FnMut(Reference, u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<usize> {
        let mut total = 0;
        for slice in into {
            let mut done = 0;
            while done < slice.len() {
                if matches!(self.current, Current::Nothing) && !self.begin()? {
                    self.publish();
                    return Ok(total);
                }
                let step = self.advance(&mut slice[done..], &mut follow)?;
                done += step;
                total += step;
            }
        }
        self.publish();
        Ok(total)
    }

    /// Begins with the next record; false if there is none.
    fn begin(&mut self) -> io::Result<bool> {
        if self.head == self.tail {
            self.publish();
            self.look()?;
            if self.head == self.tail {
                return Ok(false);
            }
        }
        let had = self.tail - self.head;
        // The one look at this word: from here on it is ours.
        let word = self.take_word();
        let (kind, bytes) = (word >> 32, word & 0xffff_ffff);
        let record_bytes = match kind {
            INLINE => HEADER_BYTES + padded(bytes),
            FOREIGN | POOLED => 3 * 8,
            _ => return Err(insane(format!("wrote a record of kind {kind}"))),
        };
        let too_long = kind == INLINE && bytes > RECORD_BYTES_MAX as u64;
        if bytes == 0 || too_long || record_bytes > had {
            return Err(insane(format!(
                "wrote a record of kind {kind} and {bytes} bytes where {had} bytes of the ring \
                 were written"
            )));
        }
        self.current = match kind {
            INLINE => Current::Inline {
                left: bytes,
                padding: padded(bytes) - bytes,
            },
            _ => {
                let (first, second) = (self.take_word(), self.take_word());
                let what = match (kind, u32::try_from(second)) {
                    (FOREIGN, Ok(0)) => Reference::Foreign { address: first },
                    (POOLED, Ok(segment)) => Reference::Pooled {
                        segment,
                        offset: first,
                    },
                    _ => return Err(insane(format!("referred to segment {second}"))),
                };
                Current::Referred {
                    what,
                    done: 0,
                    bytes,
                }
            }
        };
        Ok(true)
    }

    fn take_word(&mut self) -> u64 {
        let mut word = [0; 8];
        self.copy(&mut word);
        u64::from_le_bytes(word)
    }

    /// Copies from the ring; the caller has seen that as much was written.
    fn copy(&mut self, into: &mut [u8]) {
        let at = (self.head % self.capacity) as usize;
        let first = into.len().min(self.capacity as usize - at);
        let (front, back) = into.split_at_mut(first);
        self.theirs.copy_out(place::RING + at, front);
        self.theirs.copy_out(place::RING, back);
        self.head += into.len() as u64;
    }

    /// Reads on in the current record.
    fn advance(
        &mut self,
        into: &mut [u8],
        follow: &mut impl FnMut(Reference, u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<usize> {
        match self.current {
            Current::Nothing => Ok(0),
            Current::Inline { left, padding } => {
                let step = into.len().min(left as usize);
                self.copy(&mut into[..step]);
                let left = left - step as u64;
                self.current = Current::Inline { left, padding };
                if left == 0 {
                    self.head += padding;
                    self.current = Current::Nothing;
                }
                if self.head - self.published >= self.capacity / 8 {
                    self.publish();
                }
                Ok(step)
            }
            Current::Referred { what, done, bytes } => {
                let step = into.len().min((bytes - done) as usize);
                let followed = follow(what, done, &mut into[..step]);
                // Looked at after the bytes were copied: if it was not set by
                // then, the memory was still what it was when it was referred to.
                std::sync::atomic::fence(Ordering::SeqCst);
                if self.theirs.word(place::CLOSING).load(Ordering::SeqCst) != 0 {
                    return Err(io::Error::new(
                        io::ErrorKind::ConnectionReset,
                        "it ended the connection while its memory was read",
                    ));
                }
                followed?;
                let done = done + step as u64;
                self.current = Current::Referred { what, done, bytes };
                if done == bytes {
                    self.current = Current::Nothing;
                    self.publish();
                }
                Ok(step)
            }
        }
    }

    /// Gives the space back that was read; not that of a reference which is
    /// still being followed, for with it goes the memory.
    fn publish(&mut self) {
        if matches!(self.current, Current::Referred { .. }) || self.published == self.head {
            return;
        }
        self.published = self.head;
        // Release: what was read has been copied before.
        self.ours
            .word(place::HEAD)
            .store(self.head, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
