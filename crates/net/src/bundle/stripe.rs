//! One connection of a bundle: the chunk that comes on it, and what it has not taken of the one that leaves by it.

use crate::byte_stream::{ByteStream, Carrier};
use crate::faults::{Fault, planted};
use crate::readiness::{Notify, Readiness, SourceReady};
use bytes::Bytes;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::RawFd;
use wire::chunk::{CHUNK_END, CHUNK_HEADER_BYTES, CHUNK_LIMITED, CHUNKS_AHEAD_MAX, ChunkHeader};

/// The most pieces of the caller's that one call of the system is given.
const SLICES_MAX: usize = 128;
/// As many of the memory that is read to.
const READ_SLICES_MAX: usize = 8;

/// What came of a look at a stripe's next header.
pub(super) enum Came {
    Nothing,
    Chunk,
    /// As a chunk, and its sender had more than its connections took.
    Limited,
    /// The connection is at its end, which was not said.
    Cut,
}

/// What came of a chunk that was to leave by a stripe.
pub(super) enum Began {
    /// All of it is the stripe's.
    Taken,
    /// There is no space, or nobody takes anything now.
    Refused,
}

/// How far the reading of a chunk went.
pub(super) struct Read {
    pub bytes: usize,
    /// The chunk is read to its end.
    pub is_whole: bool,
}

/// A chunk whose header has come.
struct Pending {
    sequence: u64,
    left: usize,
}

/// See the module.
pub(super) struct Stripe {
    stream: Box<dyn ByteStream>,
    /// Nothing reports what is ready: it is looked at each time.
    is_polled: bool,
    is_connected: bool,
    /// What came before this was a stripe: `ahead[ahead_at..]`.
    ahead: Vec<u8>,
    ahead_at: usize,
    header: [u8; CHUNK_HEADER_BYTES],
    header_filled: usize,
    pending: Option<Pending>,
    /// The number that its next chunk has at least.
    least: u64,
    /// Behind which chunk the other side ends.
    ends_at: Option<u64>,
    /// Whether a read, or a write, may move something.
    readable: bool,
    writable: bool,
    /// The other side writes no more: the end is seen by a read of its own.
    is_closed: bool,
    is_reset: bool,
    /// It is known to be gone, and is not read any more.
    is_gone: bool,
    /// What was begun and not taken: `hold[hold_at..]`, at most one chunk.
    hold: Vec<u8>,
    hold_at: usize,
}

impl Stripe {
    pub(super) fn new(carrier: Carrier) -> Self {
        let mut stream = carrier.stream;
        stream.bundled();
        let is_polled = matches!(stream.readiness(), Readiness::Notify);
        Self {
            stream,
            is_polled,
            is_connected: false,
            ahead: carrier.ahead,
            ahead_at: 0,
            header: [0; CHUNK_HEADER_BYTES],
            header_filled: 0,
            pending: None,
            least: 0,
            ends_at: None,
            readable: true,
            writable: true,
            is_closed: false,
            is_reset: false,
            is_gone: false,
            hold: carrier.held,
            hold_at: 0,
        }
    }

    /// Reads once; `WouldBlock` without a call of the system that is known to move nothing.
    fn read_some(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let ahead = &self.ahead[self.ahead_at..];
        if !ahead.is_empty() {
            let mut copied = 0;
            for slice in into {
                let step = slice.len().min(ahead.len() - copied);
                slice[..step].copy_from_slice(&ahead[copied..copied + step]);
                copied += step;
            }
            self.ahead_at += copied;
            if self.ahead_at == self.ahead.len() {
                (self.ahead, self.ahead_at) = (Vec::new(), 0);
            }
            return Ok(copied);
        }
        if !self.readable {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let asked: usize = into.iter().map(|slice| slice.len()).sum();
        loop {
            match self.stream.read_vectored(into) {
                Ok(bytes) => {
                    self.readable = bytes == asked || self.is_closed || self.stream.has_more();
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.readable = error.kind() != io::ErrorKind::WouldBlock;
                    return Err(error);
                }
            }
        }
    }

    /// Reads the header of the next chunk, if it has come and none waits. `due` is the chunk that is read next.
    pub(super) fn read_header(&mut self, due: u64) -> io::Result<Came> {
        if self.pending.is_some() || self.ends_at.is_some() || self.is_gone {
            return Ok(Came::Nothing);
        }
        while self.header_filled < CHUNK_HEADER_BYTES {
            let mut header = self.header;
            let space = &mut header[self.header_filled..];
            let read = match self.read_some(&mut [IoSliceMut::new(space)]) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Came::Nothing);
                }
                Err(error) => return Err(error),
            };
            self.header = header;
            if read == 0 {
                return Ok(Came::Cut);
            }
            self.header_filled += read;
        }
        self.take_header(due)
    }

    /// A header is complete.
    fn take_header(&mut self, due: u64) -> io::Result<Came> {
        let nonsense = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        self.header_filled = 0;
        let header = ChunkHeader::read(&self.header).map_err(nonsense)?;
        let sequence = header.sequence;
        let least = self.least.max(due);
        let is_known = planted(Fault::AnyNumber) || planted(Fault::OutOfTurn);
        if (sequence < least || sequence - due > CHUNKS_AHEAD_MAX) && !is_known {
            return Err(nonsense(format!(
                "it sent chunk {sequence}; it may be {least} to {}",
                due.saturating_add(CHUNKS_AHEAD_MAX)
            )));
        }
        if header.flags & CHUNK_END != 0 {
            self.ends_at = Some(sequence);
            return Ok(Came::Chunk);
        }
        self.least = sequence.saturating_add(1);
        self.pending = Some(Pending {
            sequence,
            left: header.bytes as usize,
        });
        Ok(match header.flags & CHUNK_LIMITED != 0 {
            true => Came::Limited,
            false => Came::Chunk,
        })
    }

    /// Reads of the chunk that waits, and the header behind it with its last byte.
    pub(super) fn read_chunk(&mut self, into: &mut [IoSliceMut<'_>], at: At) -> io::Result<Read> {
        let Some(Pending { sequence, left }) = self.pending else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let mut header = self.header;
        let mut slices: [IoSliceMut<'_>; READ_SLICES_MAX + 1] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut asked = 0;
        let mut count = 0;
        let mut offset = at.offset;
        for slice in into.iter_mut().skip(at.index) {
            if asked == left || count == READ_SLICES_MAX {
                break;
            }
            let from = std::mem::take(&mut offset);
            let step = (slice.len() - from).min(left - asked);
            slices[count] = IoSliceMut::new(&mut slice[from..from + step]);
            (asked, count) = (asked + step, count + 1);
        }
        if asked == left {
            slices[count] = IoSliceMut::new(&mut header);
            count += 1;
        }
        let read = self.read_some(&mut slices[..count])?;
        if read == 0 {
            let text = "it was cut within a chunk";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        let bytes = read.min(asked);
        let is_whole = bytes == left;
        self.pending = (!is_whole).then_some(Pending {
            sequence,
            left: left - bytes,
        });
        if read > asked {
            self.header = header;
            self.header_filled = read - asked;
        }
        Ok(Read { bytes, is_whole })
    }

    /// The number of the chunk whose header has come.
    pub(super) fn pending_sequence(&self) -> Option<u64> {
        self.pending.as_ref().map(|pending| pending.sequence)
    }

    pub(super) fn ends_at(&self) -> Option<u64> {
        self.ends_at
    }

    pub(super) fn ends_before(&self, due: u64) -> bool {
        self.ends_at.is_some_and(|end| end < due)
    }

    /// Whether the end of the stream, or of this connection, is to be seen by a read.
    pub(super) fn has_end(&self) -> bool {
        self.ends_at.is_some() || self.is_closed || self.stream.has_more()
    }

    /// Whether the system says that it is gone, and the other side had not ended it.
    pub(super) fn is_lost(&self) -> bool {
        self.is_reset && !self.is_gone && self.ends_at.is_none()
    }

    /// It is gone: nothing more is read of it.
    pub(super) fn give_up(&mut self) {
        self.is_gone = true;
    }

    /// Whether it takes a chunk.
    pub(super) fn is_free(&self) -> bool {
        self.writable && self.hold.is_empty()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.hold.len() - self.hold_at + self.stream.held_bytes()
    }

    /// Has the system take what is held, as far as that goes.
    pub(super) fn send_held(&mut self) -> io::Result<()> {
        while self.held_bytes() > 0 && self.writable {
            let held = [IoSlice::new(&self.hold[self.hold_at..])];
            let from = if self.hold.is_empty() { &[][..] } else { &held };
            match self.stream.write_vectored(from) {
                Ok(sent) => self.hold_at += sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            if self.hold_at == self.hold.len() {
                // A stripe that holds nothing has no memory for that.
                (self.hold, self.hold_at) = (Vec::new(), 0);
            }
        }
        Ok(())
    }

    /// Writes a chunk of the bytes that begin at `at`, and holds what the system does not take of it.
    pub(super) fn begin_chunk(
        &mut self,
        header: &ChunkHeader,
        (from, at): (&[IoSlice<'_>], At),
    ) -> io::Result<Began> {
        let bytes = header.to_bytes();
        let mut slices = [IoSlice::new(&[]); SLICES_MAX + 1];
        slices[0] = IoSlice::new(&bytes);
        let mut left = header.bytes as usize;
        let mut count = 1;
        let mut pieces = pieces(from, at);
        while left > 0
            && count <= SLICES_MAX
            && let Some(piece) = pieces.next()
        {
            let step = piece.len().min(left);
            slices[count] = IoSlice::new(&piece[..step]);
            (left, count) = (left - step, count + 1);
        }
        let sent = loop {
            match self.stream.write_vectored(&slices[..count]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    return Ok(Began::Refused);
                }
                sent => break sent?,
            }
        };
        let whole = CHUNK_HEADER_BYTES + header.bytes as usize;
        if sent < whole {
            self.writable = false;
            if !planted(Fault::HoldDropped) {
                self.keep(whole - sent, sent, &bytes, self::pieces(from, at));
            }
        }
        Ok(Began::Taken)
    }

    /// Holds `bytes` bytes, from the one at `skip` on, of a chunk's header and its pieces.
    fn keep<'a>(
        &mut self,
        bytes: usize,
        mut skip: usize,
        header: &'a [u8],
        pieces: impl Iterator<Item = &'a [u8]>,
    ) {
        self.hold.reserve_exact(bytes);
        for piece in std::iter::once(header).chain(pieces) {
            let from = skip.min(piece.len());
            skip -= from;
            let step = (piece.len() - from).min(bytes - self.hold.len());
            self.hold.extend_from_slice(&piece[from..from + step]);
        }
    }

    /// Says the end, and ends the writing half.
    pub(super) fn finish(&mut self, end: &ChunkHeader) {
        // It may have space since it was last asked, and more of it than is good while others carry chunks.
        self.note_all();
        self.stream.unbundled();
        self.hold.extend_from_slice(&end.to_bytes());
        // A connection that is gone already needs no end.
        let _ = self.send_held();
        self.stream.finish();
    }

    pub(super) fn note(&mut self, ready: SourceReady, is_reset: bool) {
        self.readable |= ready.readable || ready.read_closed;
        self.writable |= ready.writable;
        self.is_closed |= ready.read_closed;
        self.is_reset |= is_reset;
    }

    /// Where nothing reports what is ready, anything may be.
    pub(super) fn look_again(&mut self) {
        if self.is_polled {
            self.note_all();
        }
    }

    pub(super) fn note_all(&mut self) {
        (self.readable, self.writable) = (true, true);
    }

    pub(super) fn is_connected(&mut self) -> io::Result<bool> {
        if !self.is_connected {
            self.is_connected = self.stream.is_connected()?;
        }
        Ok(self.is_connected)
    }

    pub(super) fn is_polled(&self) -> bool {
        self.is_polled
    }

    pub(super) fn readiness(&mut self) -> Readiness<'_> {
        self.stream.readiness()
    }

    pub(super) fn attach(&mut self, notify: Notify) {
        if self.is_polled {
            self.stream.attach(notify);
        }
    }

    pub(super) fn certificates(&self) -> Vec<Bytes> {
        self.stream.certificates()
    }

    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        self.stream.descriptors()
    }
}

/// A place in slices.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct At {
    pub index: usize,
    pub offset: usize,
}

impl At {
    /// Moves on by `step` bytes, in slices of these lengths.
    pub fn advance(&mut self, step: usize, length: impl Fn(usize) -> Option<usize>) {
        self.offset += step;
        while let Some(length) = length(self.index)
            && self.offset >= length
        {
            self.offset -= length;
            self.index += 1;
        }
    }
}

/// What is left of slices from a place on.
fn pieces<'a>(from: &'a [IoSlice<'_>], at: At) -> impl Iterator<Item = &'a [u8]> {
    let mut offset = at.offset;
    from.iter()
        .skip(at.index)
        .map(move |slice| &slice[std::mem::take(&mut offset)..])
        .filter(|piece| !piece.is_empty())
}
