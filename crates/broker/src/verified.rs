//! A batch that was checked by itself: what its bytes say of themselves is true.
//!
//! The objects that take it further ask only what these checks cannot say: whether it fits the topic, and
//! whether it is the next one of its producer.

use crate::refusal::{Refused, refuse};
use memory::Buffer;
use wire::batch::{Batch, BatchKind, HEADER_BYTES, SKIPPED_OFFSETS_MAX, Stamp, Survey, Verify};
use wire::{DecodeError, ErrorCode, ErrorReply};

/// No partition ever comes so far; what is to be there is no offset that somebody gave.
const OFFSET_MAX: u64 = 1 << 62;

/// A batch of a mirror's source, stamped there, whose checksums and lengths were checked, once.
pub struct VerifiedCopy {
    pub(crate) batch: Batch<Buffer>,
    pub(crate) stamp: Stamp,
    /// What its columns say, if it has events.
    pub(crate) survey: Option<Survey>,
}

impl VerifiedCopy {
    /// Checks a batch as its source has it.
    pub(crate) fn read_as(bytes: Buffer, verify: Verify) -> Result<Self, Refused> {
        let had = bytes.len() as u64;
        let batch = Batch::read(bytes, verify).map_err(|error| damaged(&error))?;
        let header = &batch.header;
        let is_whole = match header.kind {
            BatchKind::Events => header.offset_count() == u64::from(header.event_count),
            // The one record says why.
            _ => header.event_count == 1,
        };
        let stamp = batch.stamp.filter(|stamp| {
            let count = header.offset_count();
            let end = stamp.base_offset.0.checked_add(count);
            is_whole
                && header.group.0 == 0
                && (1..=SKIPPED_OFFSETS_MAX).contains(&count)
                && header.batch_bytes() == had
                && usize::from(header.header_bytes) == HEADER_BYTES
                && end.is_some_and(|end| end <= OFFSET_MAX)
        });
        let Some(stamp) = stamp else {
            return Err(refuse(
                ErrorCode::InvalidEvent,
                format!("the payload of {had} bytes is no stamped batch that takes offsets"),
            ));
        };
        let survey = match header.has_events() {
            true => {
                let survey = Survey::read(header, batch.columns_section());
                Some(survey.map_err(|error| damaged(&error))?)
            }
            false => None,
        };
        Ok(Self {
            batch,
            stamp,
            survey,
        })
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.batch.bytes().len() as u64
    }
}

impl std::fmt::Debug for VerifiedCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifiedCopy")
            .field("header", &self.batch.header)
            .field("stamp", &self.stamp)
            .finish_non_exhaustive()
    }
}

/// An unstamped batch of events whose checksums, lengths and columns were checked, once.
pub struct Verified {
    pub(crate) batch: Batch<Buffer>,
    /// What its columns say.
    pub(crate) survey: Survey,
}

impl Verified {
    /// Checks a producer's batch; the broker will write into its memory.
    ///
    /// # Errors
    /// `ChecksumMismatch` for damaged bytes, `InvalidEvent` for what is no batch of events, and
    /// `Unsupported` for kinds of batches that nobody takes yet.
    pub fn read(bytes: Buffer) -> Result<Self, ErrorReply> {
        Self::read_as(bytes, Verify::Sections)
    }

    /// Takes a batch that this process has sealed just now, from the bytes that were sealed: its sections' checksums were
    /// computed from them and are not computed again.
    ///
    /// # Panics
    /// If it is no unstamped batch of events.
    pub fn just_sealed(bytes: Buffer) -> Self {
        Self::read_as(bytes, Verify::Headers).expect("it was sealed just now")
    }

    pub(crate) fn read_as(bytes: Buffer, verify: Verify) -> Result<Self, Refused> {
        trace::passes!("its checksums are verified");
        let had = bytes.len() as u64;
        let batch = Batch::read(bytes, verify).map_err(|error| damaged(&error))?;
        let header = &batch.header;
        if batch.stamp.is_some() || header.kind != BatchKind::Events || header.batch_bytes() != had
        {
            return Err(refuse(
                ErrorCode::InvalidEvent,
                format!(
                    "the payload of {had} bytes is no unstamped batch of events of {} bytes",
                    header.batch_bytes()
                ),
            ));
        }
        if header.offset_count() != u64::from(header.event_count) || header.group.0 != 0 {
            return Err(refuse(
                ErrorCode::Unsupported,
                "batches with holes and transactions are not supported",
            ));
        }
        let survey =
            Survey::read(header, batch.columns_section()).map_err(|error| damaged(&error))?;
        Ok(Self { batch, survey })
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.batch.bytes().len() as u64
    }
}

impl std::fmt::Debug for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verified")
            .field("header", &self.batch.header)
            .finish_non_exhaustive()
    }
}

pub(crate) fn damaged(error: &DecodeError) -> ErrorReply {
    let code = match error.problem {
        wire::codec::Problem::Checksum { .. } => ErrorCode::ChecksumMismatch,
        _ => ErrorCode::InvalidEvent,
    };
    refuse(code, error.to_string())
}
