//! What a stream link has to send: frames in two lanes, written from where
//! their bytes lie.

use crate::contract::{BulkToken, Lane};
use crate::regions::Exposed;
use crate::seal::CHANGED;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use wire::checksum::block_checksums;
use wire::codec::Codec;
use wire::frame::{BULK_CHUNK_BYTES, FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use wire::message::{BulkData, BulkStatus};
use wire::{ErrorCode, ErrorReply};

use crate::byte_stream::ByteStream;

/// The most pieces of memory that one system call is given.
const SLICES_MAX: usize = 128;

/// As many where no more are queued, in up to so many frames: space for the most
/// takes longer to make than it takes to write a few short frames.
const SLICES_FEW: usize = 16;
const FRAMES_FEW: usize = 4;

/// Whole frames are gathered into one write up to about this many bytes:
/// enough that the call's cost vanishes. A control frame that is queued
/// meanwhile waits for no more than the frame that was begun.
const GATHER_BYTES: u64 = BULK_CHUNK_BYTES as u64;

/// Shorter pieces of memory are always copied when they are written.
pub const KEPT_BYTES_MIN: usize = 4096;

/// A frame to be sent.
#[derive(Debug)]
pub(super) struct Frame {
    header: [u8; FRAME_HEADER_BYTES],
    head: Bytes,
    payload: Vec<Bytes>,
    /// Bytes not yet written.
    left: u64,
    /// The first piece that is not written completely: 0 is the header, 1 the
    /// head, then the payload's pieces.
    piece: usize,
    /// How much of that piece is written.
    piece_written: usize,
    /// The region write that this frame is, to be reported when it is out.
    write: Option<BulkToken>,
    /// Whether this answers a read of the other side.
    answer: bool,
}

/// What a frame says of itself besides its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameLabel {
    pub kind: FrameKind,
    pub flags: u8,
    pub id: u64,
}

impl Frame {
    pub(super) fn new(label: FrameLabel, head: Bytes, payload: Vec<Bytes>) -> Self {
        let payload_bytes = payload.iter().map(|piece| piece.len() as u64).sum();
        let header = FrameHeader {
            kind: label.kind,
            flags: label.flags,
            head_bytes: u32::try_from(head.len()).expect("heads are at most HEAD_BYTES_MAX"),
            payload_bytes,
            id: label.id,
        };
        Self {
            header: header.to_bytes(&head),
            left: FRAME_HEADER_BYTES as u64 + head.len() as u64 + payload_bytes,
            head,
            payload,
            piece: 0,
            piece_written: 0,
            write: None,
            answer: false,
        }
    }

    /// The answer to a read that cannot be done.
    pub(super) fn refusing(id: u64, problem: String) -> Self {
        let error = Some(ErrorReply::fatal(ErrorCode::InvalidSelection, problem));
        let label = FrameLabel {
            kind: FrameKind::BulkStatus,
            flags: 0,
            id,
        };
        let head = BulkStatus { error }.to_bytes();
        Self::new(label, head.into(), Vec::new()).answering()
    }

    pub(super) fn answering(mut self) -> Self {
        self.answer = true;
        self
    }

    pub(super) fn of_write(mut self, token: BulkToken) -> Self {
        self.write = Some(token);
        self
    }

    /// Whether any memory of it may have been referred to.
    fn is_kept(&self) -> bool {
        let mut pieces = self.payload.iter().chain([&self.head]);
        pieces.any(|piece| piece.len() >= KEPT_BYTES_MIN)
    }

    /// Pieces of it, written ones included.
    fn piece_count(&self) -> usize {
        2 + self.payload.len()
    }

    fn piece(&self, index: usize) -> Option<&[u8]> {
        match index {
            0 => Some(&self.header),
            1 => Some(&self.head),
            _ => self.payload.get(index - 2).map(|piece| &piece[..]),
        }
    }

    /// What is left to write, in order.
    fn rest(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.piece_written;
        (self.piece..)
            .map_while(|index| self.piece(index))
            .map(move |piece| &piece[std::mem::take(&mut skip)..])
            .filter(|piece| !piece.is_empty())
    }

    /// Counts `bytes` as written, at most what is left.
    fn advance(&mut self, bytes: u64) {
        self.left -= bytes;
        let mut bytes = bytes as usize;
        while bytes > 0 {
            let piece = self.piece(self.piece).expect("no more than what is left");
            let left = piece.len() - self.piece_written;
            if bytes < left {
                self.piece_written += bytes;
                return;
            }
            bytes -= left;
            self.piece += 1;
            self.piece_written = 0;
        }
    }
}

/// An entry of the bulk lane.
#[derive(Debug)]
enum Entry {
    Frame(Frame),
    /// The answer to a read. Becomes a frame just before it is written, so
    /// that its bytes are in the cache when they are checked and then sent.
    Data {
        id: u64,
        exposed: Exposed,
        block_bytes: u32,
    },
}

impl Entry {
    fn bytes(&self) -> u64 {
        match self {
            Self::Frame(frame) => frame.left,
            Self::Data { exposed, .. } => exposed.bytes.len() as u64,
        }
    }

    fn piece_count(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.piece_count(),
            Self::Data { .. } => 3,
        }
    }

    fn frame(&mut self) -> &Frame {
        if let Self::Data {
            id,
            exposed,
            block_bytes,
        } = self
        {
            let checksums = match *block_bytes {
                0 => Vec::new(),
                block_bytes => block_checksums(&exposed.bytes, block_bytes).collect(),
            };
            if !exposed.holds(&checksums, *block_bytes) {
                *self = Self::Frame(Frame::refusing(*id, CHANGED.to_owned()));
                return self.frame();
            }
            let head = BulkData { checksums }.to_bytes();
            let label = FrameLabel {
                kind: FrameKind::BulkData,
                flags: 0,
                id: *id,
            };
            let payload = vec![std::mem::take(&mut exposed.bytes)];
            *self = Self::Frame(Frame::new(label, head.into(), payload).answering());
        }
        match self {
            Self::Frame(frame) => frame,
            Self::Data { .. } => unreachable!("became a frame above"),
        }
    }
}

/// How far one write went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub bytes: u64,
    /// The stream took less than it was offered: it is full.
    pub full: bool,
}

/// The queues of a stream link.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// The frame of which some bytes are out: it has to be finished first.
    begun: Option<Frame>,
    control: VecDeque<Frame>,
    bulk: VecDeque<Entry>,
    queued_bytes: u64,
    /// Region writes whose frames are out.
    written: VecDeque<BulkToken>,
    /// Answers to reads that are out.
    answered: usize,
    /// Bytes that are out.
    written_bytes: u64,
    /// Frames that are out and whose memory may still be needed, each with
    /// where it ends in the stream.
    unsettled: VecDeque<(u64, Frame)>,
}

impl Outbox {
    pub(super) fn push(&mut self, frame: Frame, lane: Lane) {
        self.queued_bytes += frame.left;
        match lane {
            Lane::Control => self.control.push_back(frame),
            Lane::Bulk => self.bulk.push_back(Entry::Frame(frame)),
        }
    }

    pub(super) fn push_data(&mut self, id: u64, exposed: Exposed, block_bytes: u32) {
        self.queued_bytes += exposed.bytes.len() as u64;
        self.bulk.push_back(Entry::Data {
            id,
            exposed,
            block_bytes,
        });
    }

    /// Whether a frame is out in part.
    pub(super) fn is_within_frame(&self) -> bool {
        self.begun.is_some()
    }

    /// Gives away the bytes of all that waits, if that is of the control lane.
    pub(super) fn take_control(&mut self) -> Option<Vec<u8>> {
        if !self.bulk.is_empty() {
            return None;
        }
        let control = std::mem::take(&mut self.control);
        let frames = self.begun.take().into_iter().chain(control);
        let mut bytes = Vec::new();
        for frame in frames {
            frame
                .rest()
                .for_each(|piece| bytes.extend_from_slice(piece));
        }
        self.queued_bytes = 0;
        Some(bytes)
    }

    /// Whether no memory of anything that is out is kept.
    pub(super) fn is_settled(&self) -> bool {
        self.unsettled.is_empty()
    }

    /// The memory of the first `bytes` bytes of the stream is needed no more.
    pub(super) fn settle(&mut self, bytes: u64) {
        while self.unsettled.front().is_some_and(|(end, _)| *end <= bytes) {
            let settled = self.unsettled.pop_front();
            self.written
                .extend(settled.and_then(|(_, frame)| frame.write));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued_bytes == 0 && self.bulk.is_empty()
    }

    pub(super) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// A region write that is out since this was last asked.
    pub(super) fn next_written(&mut self) -> Option<BulkToken> {
        self.written.pop_front()
    }

    /// How many answers to reads are out since this was last asked.
    pub(super) fn take_answered(&mut self) -> usize {
        std::mem::take(&mut self.answered)
    }

    /// Takes a region write that was not begun out of the queue.
    pub(super) fn cancel(&mut self, token: BulkToken) -> bool {
        let found = self
            .bulk
            .iter()
            .position(|entry| matches!(entry, Entry::Frame(frame) if frame.write == Some(token)));
        if let Some(entry) = found.and_then(|index| self.bulk.remove(index)) {
            self.queued_bytes -= entry.bytes();
        }
        found.is_some()
    }

    /// Forgets everything. Returns the region writes that were queued.
    pub(super) fn clear(&mut self) -> Vec<BulkToken> {
        let begun = self.begun.take().and_then(|frame| frame.write);
        let unsettled = std::mem::take(&mut self.unsettled);
        let unsettled = unsettled.into_iter().filter_map(|(_, frame)| frame.write);
        let bulk = std::mem::take(&mut self.bulk);
        let queued = bulk.into_iter().filter_map(|entry| match entry {
            Entry::Frame(frame) => frame.write,
            Entry::Data { .. } => None,
        });
        let writes = unsettled.chain(begun).chain(queued).collect();
        self.control.clear();
        self.queued_bytes = 0;
        writes
    }

    /// Keeps only what is begun and the control lane; as [`Outbox::clear`].
    pub(super) fn clear_bulk(&mut self) -> Vec<BulkToken> {
        let begun = self.begun.take();
        let control = std::mem::take(&mut self.control);
        let unsettled = std::mem::take(&mut self.unsettled);
        let writes = self.clear();
        let kept = begun.iter().chain(&control).map(|frame| frame.left);
        self.queued_bytes = kept.sum();
        self.begun = begun;
        self.control = control;
        self.unsettled = unsettled;
        writes
    }

    /// Offers the stream what is to be sent next, in one call: the frame that
    /// is begun, then the control lane, then the bulk lane.
    pub(super) fn write(&mut self, stream: &mut impl ByteStream) -> io::Result<Written> {
        match self.is_short() {
            true => self.write_slices::<SLICES_FEW>(stream),
            false => self.write_slices::<SLICES_MAX>(stream),
        }
    }

    fn is_short(&self) -> bool {
        if self.control.len() + self.bulk.len() >= FRAMES_FEW {
            return false;
        }
        let frames = self.begun.iter().chain(&self.control);
        let pieces = frames.map(Frame::piece_count);
        let bulk = self.bulk.iter().map(Entry::piece_count);
        pieces.chain(bulk).sum::<usize>() <= SLICES_FEW
    }

    fn write_slices<const MAX: usize>(
        &mut self,
        stream: &mut impl ByteStream,
    ) -> io::Result<Written> {
        let mut slices = [IoSlice::new(&[]); MAX];
        let mut count = 0;
        let mut offered = 0;
        for frame in self.begun.iter().chain(&self.control) {
            gather(frame, &mut slices, &mut count, &mut offered);
        }
        for entry in &mut self.bulk {
            if offered >= GATHER_BYTES || count == MAX {
                break;
            }
            let counted = entry.bytes();
            let frame = Entry::frame(entry);
            // It may have become a refusal, which is shorter.
            self.queued_bytes = self.queued_bytes - counted + frame.left;
            gather(frame, &mut slices, &mut count, &mut offered);
        }
        let bytes = stream.write_vectored(&slices[..count])? as u64;
        let keeps = bytes > 0 && stream.settled_bytes().is_some();
        self.count_written(bytes, keeps);
        Ok(Written {
            bytes,
            full: bytes < offered,
        })
    }

    fn count_written(&mut self, mut bytes: u64, keeps: bool) {
        trace::passes!("written to the socket");
        while bytes > 0 {
            let mut frame = self
                .begun
                .take()
                .or_else(|| self.control.pop_front())
                .or_else(|| match self.bulk.pop_front() {
                    Some(Entry::Frame(frame)) => Some(frame),
                    _ => None,
                })
                .expect("no more was written than was offered");
            let step = bytes.min(frame.left);
            frame.advance(step);
            bytes -= step;
            self.queued_bytes -= step;
            self.written_bytes += step;
            if frame.left > 0 {
                self.begun = Some(frame);
                continue;
            }
            self.answered += usize::from(frame.answer);
            match keeps && frame.is_kept() {
                true => self.unsettled.push_back((self.written_bytes, frame)),
                false => self.written.extend(frame.write),
            }
        }
    }
}

fn gather<'a>(frame: &'a Frame, slices: &mut [IoSlice<'a>], count: &mut usize, offered: &mut u64) {
    for piece in frame.rest() {
        if *count == slices.len() {
            return;
        }
        slices[*count] = IoSlice::new(piece);
        *count += 1;
        *offered += piece.len() as u64;
    }
}
