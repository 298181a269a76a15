//! A batch: the unit that is sent, stored and delivered, one byte form for
//! all three. The layout is `docs/format/log.md`.
//!
//! A batch is a *stamp* (written by the broker, zero before that), a *header*
//! (written by the producer) and three *sections*: columns, metadata, inline
//! data. Each has a checksum of its own. The stamp has two halves: one is the
//! same on every copy of the batch, one is true of this disk only. Large data
//! is not in the batch: it lies in a data file, at the position that the local
//! half says.

mod build;
mod columns;
mod cut;
mod stamp;

pub use build::{
    BatchBuilder, EventParts, Origin, SKIPPED_OFFSETS_MAX, SealedBatch, gap_batch, skipped_batch,
    state_batch,
};
pub use columns::{Columns, EventRef, Headers, Survey};
pub use stamp::{LocalStamp, SHARED_STAMP_BYTES, STAMP_BYTES, STAMP_MAGIC, Stamp};

use crate::checksum::{crc32c, crc32c_append};
use crate::codec::{DecodeError, Problem};
use crate::id::{GroupId, ProducerEpoch, ProducerId, Sequence, TopicId};

/// Bytes of the producer's header in this version.
pub const HEADER_BYTES: usize = 128;
/// Where the sections begin in a batch of this version.
pub const SECTIONS_START: usize = STAMP_BYTES + HEADER_BYTES;
/// The first four bytes of a header.
pub const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"TWbh");
/// The version of the log format, and with it of batches, that this code reads and writes.
pub const FORMAT_VERSION: u8 = 2;
/// Large data of each event starts at a multiple of this in a data file.
pub const DATA_ALIGNMENT: u64 = 4096;
/// Bytes that one data checksum covers unless the topic says otherwise.
pub const BLOCK_BYTES_DEFAULT: u32 = 4096;
/// In the column of data lengths: this event's data is external.
pub const EXTERNAL_DATA: u64 = 1 << 63;

const _: () = assert!(SECTIONS_START == 256);
const _: () = assert!(BLOCK_BYTES_DEFAULT as u64 <= DATA_ALIGNMENT);

/// What a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BatchKind {
    /// A producer's events, or typed records in the table's log or a ledger.
    Events = 1,
    /// Offsets that hold no event any more, and why.
    Gap = 2,
    // 3 to 5 (commit, abort, membership) are of later versions.
    /// Nothing; takes no offset.
    NoOp = 6,
    /// State that replaces the replay of what came before; takes no offset.
    Snapshot = 7,
    /// Offsets of a mirror that its source has no events of, and why. Unlike a [`Self::Gap`] it
    /// is stored, in their place.
    Skipped = 8,
}

impl BatchKind {
    fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::Events,
            2 => Self::Gap,
            6 => Self::NoOp,
            7 => Self::Snapshot,
            8 => Self::Skipped,
            _ => return None,
        })
    }
}

/// The columns that a batch may have, as bits of the header's bitmap.
pub mod column {
    /// Length of each event's metadata, `u32`. Always present.
    pub const METADATA_BYTES: u32 = 1 << 0;
    /// Length of each event's data, `u64`, with [`super::EXTERNAL_DATA`].
    pub const DATA_BYTES: u32 = 1 << 1;
    /// The producer's time of each event, `u64`, nanoseconds since 1970.
    pub const PRODUCER_TIME: u32 = 1 << 2;
    /// Length of each event's key, `u32`, then the keys.
    pub const KEY: u32 = 1 << 3;
    /// Length of each event's headers, `u32`, then the headers.
    pub const HEADERS: u32 = 1 << 4;
    /// Whether each event is a tombstone, `u8`.
    pub const TOMBSTONE: u32 = 1 << 5;
    /// Each event's offset less the base offset, `u32`; absent: 0, 1, 2, …
    pub const OFFSET_DELTA: u32 = 1 << 6;
    /// All bits that this version knows.
    pub const KNOWN: u32 = (1 << 7) - 1;
}

/// How a section's bytes are encoded. Only `Plain` is written by this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SectionCodec {
    /// As they are.
    Plain = 0,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

fn need(what: &'static str, bytes: &[u8], needed: usize) -> Result<(), DecodeError> {
    if bytes.len() < needed {
        let problem = Problem::Short {
            needed: needed as u64,
            had: bytes.len() as u64,
        };
        return Err(DecodeError {
            what,
            offset: 0,
            problem,
        });
    }
    Ok(())
}

/// What the producer says of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the batch holds.
    pub kind: BatchKind,
    /// Length of this header; a later version's may be longer.
    pub header_bytes: u16,
    /// Features without which the batch cannot be read.
    pub features_incompatible: u32,
    /// Features that a reader may ignore.
    pub features_compatible: u32,
    /// Which columns there are: bits of [`mod@column`].
    pub columns: u32,
    /// How many events.
    pub event_count: u32,
    /// How many offsets the batch takes, less one; 0 for a batch without events.
    pub last_offset_delta: u32,
    /// The topic that it was made for; the broker refuses it for another one.
    pub topic: TopicId,
    /// Who produced it.
    pub producer: ProducerId,
    /// The epoch of the producer that made it: a fenced one has a lower one.
    pub epoch: ProducerEpoch,
    /// The producer's sequence number of the first event.
    pub first_sequence: Sequence,
    /// Transaction or step; 0 is none.
    pub group: GroupId,
    /// Log2 of the bytes that one checksum of external data covers.
    pub block_bytes_log2: u8,
    /// Length of the section of columns.
    pub columns_bytes: u32,
    /// Length of the section of metadata.
    pub metadata_bytes: u32,
    /// Length of the section of inline data.
    pub inline_bytes: u32,
    /// Checksum of the section of columns.
    pub columns_crc: u32,
    /// Checksum of the section of metadata.
    pub metadata_crc: u32,
    /// Checksum of the section of inline data.
    pub inline_crc: u32,
}

impl Header {
    /// Writes the header with its checksum over the first [`HEADER_BYTES`] of `out`.
    ///
    /// # Panics
    /// If `out` is shorter.
    pub fn write(&self, out: &mut [u8]) {
        let out = &mut out[..HEADER_BYTES];
        out.fill(0);
        out[0..4].copy_from_slice(&HEADER_MAGIC.to_le_bytes());
        out[8] = FORMAT_VERSION;
        out[9] = self.kind as u8;
        out[10..12].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
        out[12..16].copy_from_slice(&self.features_incompatible.to_le_bytes());
        out[16..20].copy_from_slice(&self.features_compatible.to_le_bytes());
        out[20..24].copy_from_slice(&self.columns.to_le_bytes());
        out[24..28].copy_from_slice(&self.event_count.to_le_bytes());
        out[28..32].copy_from_slice(&self.last_offset_delta.to_le_bytes());
        out[32..48].copy_from_slice(&self.topic.0.to_le_bytes());
        out[48..64].copy_from_slice(&self.producer.0.to_le_bytes());
        out[64..72].copy_from_slice(&self.first_sequence.0.to_le_bytes());
        out[72..76].copy_from_slice(&self.epoch.0.to_le_bytes());
        // 76..79 are the sections' codecs: plain.
        out[79] = self.block_bytes_log2;
        out[80..96].copy_from_slice(&self.group.0.to_le_bytes());
        out[96..100].copy_from_slice(&self.columns_bytes.to_le_bytes());
        out[100..104].copy_from_slice(&self.metadata_bytes.to_le_bytes());
        out[104..108].copy_from_slice(&self.inline_bytes.to_le_bytes());
        out[108..112].copy_from_slice(&self.columns_crc.to_le_bytes());
        out[112..116].copy_from_slice(&self.metadata_crc.to_le_bytes());
        out[116..120].copy_from_slice(&self.inline_crc.to_le_bytes());
        // 120..128 are reserved and zero.
        let crc = crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads and checks the header at the start of `bytes`, which is a batch
    /// from [`STAMP_BYTES`] on. Returns it with its checksum.
    pub fn read(bytes: &[u8]) -> Result<(Self, u32), DecodeError> {
        const WHAT: &str = "batch header";
        need(WHAT, bytes, HEADER_BYTES)?;
        if u32_at(bytes, 0) != HEADER_MAGIC {
            return Err(DecodeError::value(
                WHAT,
                0,
                "magic",
                u64::from(u32_at(bytes, 0)),
            ));
        }
        let header_bytes = u16::from_le_bytes([bytes[10], bytes[11]]);
        if usize::from(header_bytes) < HEADER_BYTES {
            return Err(DecodeError::value(
                WHAT,
                10,
                "header length",
                u64::from(header_bytes),
            ));
        }
        need(WHAT, bytes, usize::from(header_bytes))?;
        let bytes = &bytes[..usize::from(header_bytes)];
        let (computed, stored) = (crc32c(&bytes[8..]), u32_at(bytes, 4));
        if computed != stored {
            return Err(DecodeError::checksum(WHAT, 4, computed, stored));
        }
        let refuse = |at: usize, field, found: u64| Err(DecodeError::newer(WHAT, at, field, found));
        if bytes[8] != FORMAT_VERSION {
            let (found, own) = (u64::from(bytes[8]), u64::from(FORMAT_VERSION));
            return Err(DecodeError::version(WHAT, 8, "format version", found, own));
        }
        let Some(kind) = BatchKind::from_u8(bytes[9]) else {
            return refuse(9, "kind", u64::from(bytes[9]));
        };
        if u32_at(bytes, 12) != 0 {
            return refuse(12, "incompatible features", u64::from(u32_at(bytes, 12)));
        }
        let columns = u32_at(bytes, 20);
        if columns & !column::KNOWN != 0 {
            return refuse(20, "columns", u64::from(columns));
        }
        if columns & column::METADATA_BYTES == 0 {
            return Err(DecodeError::value(WHAT, 20, "columns", u64::from(columns)));
        }
        if bytes[76..79] != [0; 3] {
            return refuse(
                76,
                "section codec",
                u64::from(u32_at(bytes, 76) & 0xff_ffff),
            );
        }
        if !(9..=30).contains(&bytes[79]) {
            let found = u64::from(bytes[79]);
            return Err(DecodeError::value(
                WHAT,
                79,
                "log2 of the block length",
                found,
            ));
        }
        if u64_at(bytes, 120) != 0 {
            return refuse(120, "reserved", u64_at(bytes, 120));
        }
        let header = Self {
            kind,
            header_bytes,
            features_incompatible: 0,
            features_compatible: u32_at(bytes, 16),
            columns,
            event_count: u32_at(bytes, 24),
            last_offset_delta: u32_at(bytes, 28),
            topic: TopicId(u128_at(bytes, 32)),
            producer: ProducerId(u128_at(bytes, 48)),
            first_sequence: Sequence(u64_at(bytes, 64)),
            epoch: ProducerEpoch(u32_at(bytes, 72)),
            block_bytes_log2: bytes[79],
            group: GroupId(u128_at(bytes, 80)),
            columns_bytes: u32_at(bytes, 96),
            metadata_bytes: u32_at(bytes, 100),
            inline_bytes: u32_at(bytes, 104),
            columns_crc: u32_at(bytes, 108),
            metadata_crc: u32_at(bytes, 112),
            inline_crc: u32_at(bytes, 116),
        };
        if header.kind == BatchKind::Events
            && (header.event_count == 0 || header.last_offset_delta < header.event_count - 1)
        {
            let found = u64::from(header.last_offset_delta);
            return Err(DecodeError::value(WHAT, 28, "last offset delta", found));
        }
        Ok((header, stored))
    }

    /// Whether readers get it; its offsets, if it takes any, hold no event otherwise.
    pub fn has_events(&self) -> bool {
        self.kind == BatchKind::Events
    }

    /// Bytes of one block of external data.
    pub fn block_bytes(&self) -> u32 {
        1 << self.block_bytes_log2
    }

    /// How many offsets the batch takes.
    pub fn offset_count(&self) -> u64 {
        match self.kind {
            BatchKind::Events | BatchKind::Skipped => u64::from(self.last_offset_delta) + 1,
            BatchKind::Gap | BatchKind::NoOp | BatchKind::Snapshot => 0,
        }
    }

    /// Length of the whole batch, stamp included.
    pub fn batch_bytes(&self) -> u64 {
        self.prefix_bytes() + u64::from(self.inline_bytes)
    }

    /// Length of the batch without its inline data, which comes last: what a
    /// consumer gets that wants metadata only.
    pub fn prefix_bytes(&self) -> u64 {
        STAMP_BYTES as u64
            + u64::from(self.header_bytes)
            + u64::from(self.columns_bytes)
            + u64::from(self.metadata_bytes)
    }
}

/// A batch in memory, checked as far as [`Batch::read`] was asked.
///
/// The bytes may lack the inline data (see [`Header::prefix_bytes`]).
#[derive(Debug, Clone)]
pub struct Batch<B = bytes::Bytes> {
    /// The stamp's shared half; `None` on the way to the broker.
    pub stamp: Option<Stamp>,
    /// What the producer said.
    pub header: Header,
    /// The header's checksum.
    pub header_crc: u32,
    bytes: B,
}

/// How much of a batch to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Stamp and header only.
    Headers,
    /// Every section present.
    Sections,
}

impl<B: AsRef<[u8]>> Batch<B> {
    /// Reads the batch that `bytes` starts with. A stamp of zeros is no stamp.
    ///
    /// # Errors
    /// Anything that is not a batch, with the place. Inline data may be
    /// absent as a whole, never in part.
    pub fn read(bytes: B, verify: Verify) -> Result<Self, DecodeError> {
        const WHAT: &str = "batch";
        let all = bytes.as_ref();
        need(WHAT, all, SECTIONS_START)?;
        let stamp = match u32_at(all, 0) {
            0 => None,
            _ => Some(Stamp::read(all)?),
        };
        let (header, header_crc) = Header::read(&all[STAMP_BYTES..])?;
        if let Some(stamp) = &stamp {
            // Nobody above the storage has a use for it, but no flipped bit passes here.
            LocalStamp::read(all)?;
            if stamp.header_crc != header_crc {
                return Err(DecodeError::checksum(
                    WHAT,
                    stamp::HEADER_CRC_AT,
                    header_crc,
                    stamp.header_crc,
                ));
            }
            if stamp.batch_bytes != header.batch_bytes() {
                return Err(DecodeError::value(
                    WHAT,
                    8,
                    "batch length",
                    stamp.batch_bytes,
                ));
            }
        }
        let had = all.len() as u64;
        let whole = had >= header.batch_bytes();
        if !whole && had != header.prefix_bytes() {
            let problem = Problem::Short {
                needed: header.batch_bytes(),
                had,
            };
            return Err(DecodeError {
                what: WHAT,
                offset: 0,
                problem,
            });
        }
        let batch = Self {
            stamp,
            header,
            header_crc,
            bytes,
        };
        if verify == Verify::Sections {
            batch.verify_sections()?;
        }
        Ok(batch)
    }

    fn verify_sections(&self) -> Result<(), DecodeError> {
        let check = |what, section: &[u8], stored| {
            let computed = crc32c(section);
            if computed == stored {
                return Ok(());
            }
            Err(DecodeError::checksum(what, 0, computed, stored))
        };
        check(
            "batch columns",
            self.columns_section(),
            self.header.columns_crc,
        )?;
        check(
            "batch metadata",
            self.metadata_section(),
            self.header.metadata_crc,
        )?;
        match self.inline_section() {
            Some(inline) => check("batch inline data", inline, self.header.inline_crc),
            None => Ok(()),
        }
    }

    fn columns_start(&self) -> usize {
        STAMP_BYTES + usize::from(self.header.header_bytes)
    }

    fn metadata_start(&self) -> usize {
        self.columns_start() + self.header.columns_bytes as usize
    }

    fn inline_start(&self) -> usize {
        self.metadata_start() + self.header.metadata_bytes as usize
    }

    /// The section of columns.
    pub fn columns_section(&self) -> &[u8] {
        &self.bytes.as_ref()[self.columns_start()..self.metadata_start()]
    }

    /// The section of metadata.
    pub fn metadata_section(&self) -> &[u8] {
        &self.bytes.as_ref()[self.metadata_start()..self.inline_start()]
    }

    /// Where [`Batch::metadata_section`] lies in the batch's bytes.
    pub fn metadata_range(&self) -> std::ops::Range<usize> {
        self.metadata_start()..self.inline_start()
    }

    /// Where [`Batch::inline_section`] lies in the batch's bytes, if it is there.
    pub fn inline_range(&self) -> Option<std::ops::Range<usize>> {
        let end = self.inline_start() + self.header.inline_bytes as usize;
        (end <= self.bytes.as_ref().len()).then(|| self.inline_start()..end)
    }

    /// The section of inline data, if it was sent along.
    pub fn inline_section(&self) -> Option<&[u8]> {
        Some(&self.bytes.as_ref()[self.inline_range()?])
    }

    /// The batch's bytes, and whatever follows them.
    pub fn bytes(&self) -> &B {
        &self.bytes
    }

    /// Gives the bytes back.
    pub fn into_bytes(self) -> B {
        self.bytes
    }

    /// Decodes the columns: one look at each event's lengths.
    pub fn columns(&self) -> Result<Columns, DecodeError> {
        Columns::read(&self.header, self.columns_section())
    }
}

/// Where each event's external data lies within the batch's part of the data
/// file, and where the table of block checksums follows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExternalLayout {
    /// For each external event: (event index, position, length).
    pub events: Vec<(u32, u64, u64)>,
    /// Where the table of block checksums begins: a `u32` a block, event by event.
    pub table_position: u64,
    /// Number of block checksums.
    pub block_count: u64,
    /// Length of the whole part: data, padding and table, aligned.
    pub total_bytes: u64,
}

impl ExternalLayout {
    /// Lays out the given (event index, data length) pairs in order.
    ///
    /// `None` if lengths overflow 64 bits.
    pub fn new(events: impl Iterator<Item = (u32, u64)>, block_bytes: u32) -> Option<Self> {
        let align = |n: u64| n.checked_next_multiple_of(DATA_ALIGNMENT);
        let mut layout = Self {
            events: Vec::new(),
            table_position: 0,
            block_count: 0,
            total_bytes: 0,
        };
        for (index, bytes) in events {
            layout.events.push((index, layout.table_position, bytes));
            layout.table_position = align(layout.table_position.checked_add(bytes)?)?;
            layout.block_count += bytes.div_ceil(u64::from(block_bytes));
        }
        layout.total_bytes = align(
            layout
                .table_position
                .checked_add(layout.block_count.checked_mul(4)?)?,
        )?;
        Some(layout)
    }
}
