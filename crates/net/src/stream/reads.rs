//! Reads of the other side's memory, emulated by a request and its answer.

use crate::contract::{BulkToken, RegionRead};
use crate::regions::check_chunk;
use memory::Buffer;
use std::collections::{BTreeMap, VecDeque};
use wire::codec::Codec;
use wire::frame::{BULK_CHUNK_BYTES, FrameKind};
use wire::message::BulkRead;

use super::send::{Frame, FrameLabel};

/// The most reads of one link that may be unanswered: more wait at the
/// asker, so that what the answerer has to remember is bounded.
pub(super) const UNANSWERED_MAX: usize = 1024;

/// The smallest block that has a checksum of its own. With it the checksums
/// of a chunk fit in a head.
pub(super) const BLOCK_BYTES_MIN: u32 = 512;

const _: () = assert!(
    BULK_CHUNK_BYTES / BLOCK_BYTES_MIN as usize * 4 + 4 <= wire::frame::HEAD_BYTES_MAX as usize
);

/// The reads of one link, both ways.
#[derive(Debug, Default)]
pub(super) struct Reads {
    last_id: u64,
    /// Asked and not answered, by the id in the frame. A read that was
    /// cancelled has no memory any more; its answer is thrown away.
    unanswered: BTreeMap<u64, Unanswered>,
    /// Not yet asked.
    waiting: VecDeque<(BulkToken, BulkRead, Buffer)>,
    /// Reads of the other side that we have not answered.
    serving: usize,
}

#[derive(Debug)]
struct Unanswered {
    bytes: usize,
    checksums: usize,
    wanted: Option<(BulkToken, Buffer)>,
}

/// How many checksums `bytes` bytes have.
pub(super) fn checksum_count(bytes: usize, block_bytes: u32) -> usize {
    match block_bytes {
        0 => 0,
        block_bytes => bytes.div_ceil(block_bytes as usize),
    }
}

/// What is wrong with a read, by whichever side.
fn check(bytes: usize, block_bytes: u32) -> Result<(), String> {
    check_chunk("read", bytes as u64)?;
    if block_bytes != 0 && block_bytes < BLOCK_BYTES_MIN {
        return Err(format!(
            "a read with blocks of {block_bytes} bytes; the least is {BLOCK_BYTES_MIN}"
        ));
    }
    Ok(())
}

impl Reads {
    /// Takes up a read of ours, asked in what the region's key opens.
    pub(super) fn start(
        &mut self,
        token: BulkToken,
        offset: u64,
        read: RegionRead,
    ) -> Result<(), String> {
        check(read.into.len(), read.block_bytes)?;
        let request = BulkRead {
            key: read.region.key,
            offset,
            bytes: read.into.len() as u32,
            block_bytes: read.block_bytes,
        };
        self.waiting.push_back((token, request, read.into));
        Ok(())
    }

    /// The next request that may be sent now.
    pub(super) fn next_request(&mut self) -> Option<Frame> {
        if self.unanswered.len() >= UNANSWERED_MAX {
            return None;
        }
        let (token, request, into) = self.waiting.pop_front()?;
        self.last_id += 1;
        let unanswered = Unanswered {
            bytes: into.len(),
            checksums: checksum_count(into.len(), request.block_bytes),
            wanted: Some((token, into)),
        };
        self.unanswered.insert(self.last_id, unanswered);
        let label = FrameLabel {
            kind: FrameKind::BulkRead,
            flags: 0,
            id: self.last_id,
        };
        Some(Frame::new(label, request.to_bytes().into(), Vec::new()))
    }

    /// Gives a read up; false if there is none.
    pub(super) fn cancel(&mut self, token: BulkToken) -> bool {
        let waiting = self.waiting.iter().position(|(other, ..)| *other == token);
        if let Some(index) = waiting {
            self.waiting.remove(index);
            return true;
        }
        let asked = self
            .unanswered
            .values_mut()
            .find(|read| matches!(read.wanted, Some((other, _)) if other == token));
        asked.and_then(|read| read.wanted.take()).is_some()
    }

    /// Forgets everything. Returns the reads of ours that were not answered.
    pub(super) fn clear(&mut self) -> Vec<BulkToken> {
        let asked = std::mem::take(&mut self.unanswered);
        let asked = asked.into_values().filter_map(|read| read.wanted);
        let waiting = std::mem::take(&mut self.waiting);
        let asked = asked.map(|(token, _)| token);
        asked
            .chain(waiting.into_iter().map(|(token, ..)| token))
            .collect()
    }

    /// Checks an answer's lengths.
    pub(super) fn check_answer(&self, id: u64, bytes: u64, checksums: usize) -> Result<(), String> {
        let Some(read) = self.unanswered.get(&id) else {
            return Err(format!("data for read {id}, which was not asked"));
        };
        if bytes != read.bytes as u64 || checksums != read.checksums {
            return Err(format!(
                "data for read {id}: {bytes} bytes and {checksums} checksums, \
                 asked were {} and {}",
                read.bytes, read.checksums
            ));
        }
        Ok(())
    }

    /// The memory of a read that is being answered, if it is still wanted.
    pub(super) fn memory(&mut self, id: u64) -> Option<&mut [u8]> {
        let (_, buffer) = self.unanswered.get_mut(&id)?.wanted.as_mut()?;
        Some(buffer)
    }

    /// A read was answered. `None` if it was cancelled or never asked.
    pub(super) fn finish(&mut self, id: u64) -> Option<(BulkToken, Buffer)> {
        self.unanswered.remove(&id)?.wanted
    }

    /// Checks a read of the other side.
    pub(super) fn check_request(&mut self, read: &BulkRead) -> Result<(), String> {
        check(read.bytes as usize, read.block_bytes)?;
        if self.serving >= UNANSWERED_MAX {
            return Err(format!(
                "a read beyond the {UNANSWERED_MAX} that are not answered yet"
            ));
        }
        self.serving += 1;
        Ok(())
    }

    /// A read of the other side was answered.
    pub(super) fn served(&mut self, count: usize) {
        self.serving -= count;
    }
}
