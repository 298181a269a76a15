//! Making batches.

use super::columns::NULL;
use super::*;
use crate::codec::{Codec, Write};
use crate::record::Gap;
use bytes::Bytes;
use std::ops::Range;

/// One event as it is added to a batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct EventParts<'a> {
    /// The metadata, serialized.
    pub metadata: &'a [u8],
    /// Data that goes into the batch, as the pieces that it was given in.
    pub inline: &'a [&'a [u8]],
    /// Data that goes into the batch without being copied: its memory becomes
    /// a part of the batch's. `inline` is empty then.
    pub shared: &'a [Bytes],
    /// Length of data that stays outside; `inline` and `shared` are empty then.
    pub external_bytes: Option<u64>,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The headers, encoded; `None` is null.
    pub headers: Option<&'a [u8]>,
    /// Nanoseconds since 1970; 0 is none.
    pub producer_time: u64,
    /// Whether the event deletes its key.
    pub tombstone: bool,
}

/// Gathers events until they are sealed into a batch.
///
/// Columns cost nothing until an event uses them.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    event_count: u32,
    metadata: Vec<u8>,
    inline: Inline,
    metadata_lengths: Vec<u8>,
    data_lengths: Vec<u8>,
    producer_times: Vec<u8>,
    key_lengths: Vec<u8>,
    keys: Vec<u8>,
    header_lengths: Vec<u8>,
    headers: Vec<u8>,
    tombstones: Vec<u8>,
    external_bytes: u64,
    metadata_crc: RunningCrc,
}

/// The checksum of a section that grows. Taken piece by piece, while a piece
/// is still in the first cache: three times faster than over a whole batch.
#[derive(Debug, Clone, Copy, Default)]
struct RunningCrc {
    crc: u32,
    covered: usize,
}

impl RunningCrc {
    /// Bytes that are worth a look.
    const PIECE_BYTES: usize = 16 << 10;

    #[inline]
    fn follow(&mut self, section: &[u8]) {
        if section.len() - self.covered >= Self::PIECE_BYTES {
            *self = self.whole(section);
        }
    }

    fn whole(self, section: &[u8]) -> Self {
        Self {
            crc: crc32c_append(self.crc, &section[self.covered..]),
            covered: section.len(),
        }
    }
}

/// The section of inline data: what was copied, and between it what is shared.
#[derive(Debug, Default)]
struct Inline {
    /// What comes before `open`.
    pieces: Vec<Bytes>,
    /// Copied since the last piece that is shared.
    open: Vec<u8>,
    /// Length of the pieces, and their checksum.
    closed_bytes: usize,
    closed_crc: u32,
}

impl Inline {
    fn len(&self) -> usize {
        self.closed_bytes + self.open.len()
    }

    fn share(&mut self, piece: &Bytes) {
        if !self.open.is_empty() {
            let copied = std::mem::take(&mut self.open);
            self.close(copied.into());
        }
        self.close(piece.clone());
    }

    /// Its bytes were just written, most likely: they are in the cache.
    fn close(&mut self, piece: Bytes) {
        self.closed_bytes += piece.len();
        self.closed_crc = crc32c_append(self.closed_crc, &piece);
        self.pieces.push(piece);
    }

    fn crc(&self) -> u32 {
        crc32c_append(self.closed_crc, &self.open)
    }

    /// The bytes from `start` to before `end`, piece by piece.
    fn range(&self, start: usize, end: usize) -> (Vec<Bytes>, &[u8]) {
        let mut at = 0;
        let mut within = Vec::new();
        for piece in &self.pieces {
            let (from, to) = (start.max(at), end.min(at + piece.len()));
            if from < to {
                within.push(piece.slice(from - at..to - at));
            }
            at += piece.len();
        }
        let (from, to) = (start.max(at), end.max(at));
        (within, &self.open[from - at..to - at])
    }
}

/// Whose batch it is, for [`BatchBuilder::seal`].
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// The topic that the batch is for.
    pub topic: TopicId,
    /// Who pushed the events.
    pub producer: ProducerId,
    /// The producer's epoch, by which a predecessor of its name is fenced.
    pub epoch: ProducerEpoch,
    /// The sequence number of the batch's first event.
    pub first_sequence: Sequence,
}

/// A batch ready to be sent: its bytes are `head`, `metadata`, `shared` and `inline` in this order.
#[derive(Debug, Default)]
pub struct SealedBatch {
    /// Space for the stamp, the header and the columns.
    pub head: Vec<u8>,
    /// The section of metadata.
    pub metadata: Vec<u8>,
    /// The section of inline data begins with these pieces.
    pub shared: Vec<Bytes>,
    /// The rest of it.
    pub inline: Vec<u8>,
    /// How many events.
    pub event_count: u32,
}

impl SealedBatch {
    /// The batch in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = [self.head.as_slice(), &self.metadata].concat();
        self.shared.iter().for_each(|piece| bytes.put(piece));
        bytes.put(&self.inline);
        bytes
    }

    /// Length of the batch.
    pub fn bytes(&self) -> usize {
        let shared: usize = self.shared.iter().map(Bytes::len).sum();
        self.head.len() + self.metadata.len() + shared + self.inline.len()
    }
}

impl BatchBuilder {
    /// A builder that gathers into `metadata` and `inline`, whose space it
    /// reuses and whose content it drops.
    pub fn with_buffers(mut metadata: Vec<u8>, mut inline: Vec<u8>) -> Self {
        metadata.clear();
        inline.clear();
        Self {
            metadata,
            inline: Inline {
                open: inline,
                ..Inline::default()
            },
            ..Self::default()
        }
    }

    /// How many events have been added.
    pub fn event_count(&self) -> u32 {
        self.event_count
    }

    /// Bytes gathered so far, metadata and inline data.
    pub fn bytes(&self) -> usize {
        self.metadata.len() + self.inline.len() + self.keys.len() + self.headers.len()
    }

    /// Bytes of external data that the events so far refer to.
    pub fn external_bytes(&self) -> u64 {
        self.external_bytes
    }

    /// Adds an event.
    ///
    /// # Panics
    /// If a section would reach 4 GiB: the caller seals long before.
    #[inline]
    pub fn push(&mut self, event: EventParts<'_>) {
        self.metadata_lengths.put_u32(event.metadata.len() as u32);
        self.metadata.extend_from_slice(event.metadata);
        self.metadata_crc.follow(&self.metadata);
        let plain = event.inline.is_empty()
            && event.shared.is_empty()
            && event.external_bytes.is_none()
            && event.key.is_none()
            && event.headers.is_none()
            && event.producer_time == 0
            && !event.tombstone;
        if !plain || self.has_columns() {
            self.push_columns(&event);
        }
        self.event_count += 1;
        assert!(self.metadata.len() < NULL as usize && self.inline.len() < NULL as usize);
    }

    fn has_columns(&self) -> bool {
        !(self.data_lengths.is_empty()
            && self.producer_times.is_empty()
            && self.key_lengths.is_empty()
            && self.header_lengths.is_empty()
            && self.tombstones.is_empty())
    }

    fn push_columns(&mut self, event: &EventParts<'_>) {
        let before = self.event_count as usize;
        if !event.inline.is_empty()
            || !event.shared.is_empty()
            || event.external_bytes.is_some()
            || !self.data_lengths.is_empty()
        {
            self.data_lengths.resize(before * 8, 0);
            let word = match event.external_bytes {
                Some(bytes) => {
                    self.external_bytes += bytes;
                    bytes | EXTERNAL_DATA
                }
                None => {
                    let copied = event.inline.iter().map(|piece| piece.len() as u64);
                    let shared = event.shared.iter().map(|piece| piece.len() as u64);
                    copied.chain(shared).sum()
                }
            };
            self.data_lengths.put_u64(word);
            for piece in event.inline {
                self.inline.open.extend_from_slice(piece);
            }
            event
                .shared
                .iter()
                .for_each(|piece| self.inline.share(piece));
        }
        if event.producer_time != 0 || !self.producer_times.is_empty() {
            self.producer_times.resize(before * 8, 0);
            self.producer_times.put_u64(event.producer_time);
        }
        push_blob(&mut self.key_lengths, &mut self.keys, event.key, before);
        push_blob(
            &mut self.header_lengths,
            &mut self.headers,
            event.headers,
            before,
        );
        if event.tombstone || !self.tombstones.is_empty() {
            self.tombstones.resize(before, 0);
            self.tombstones.push(u8::from(event.tombstone));
        }
    }

    /// The same without event `index`, and where that event's external data
    /// lay among that of all events. Takes as long as adding the others again.
    ///
    /// # Panics
    /// If there is no such event.
    pub fn without(self, index: u32) -> (Self, Range<u64>) {
        assert!(index < self.event_count, "{index} of {}", self.event_count);
        let mut rest = Self::default();
        let mut removed = 0..0;
        let (mut metadata_at, mut inline_at, mut key_at, mut headers_at) = (0, 0, 0, 0);
        let mut external_at = 0;
        for at in 0..self.event_count as usize {
            let word = |column: &[u8]| {
                let place = column.get(at * 4..at * 4 + 4)?;
                Some(u32::from_le_bytes(place.try_into().ok()?))
            };
            let long = |column: &[u8]| {
                let place = column.get(at * 8..at * 8 + 8)?;
                Some(u64::from_le_bytes(place.try_into().ok()?))
            };
            let metadata = cut(
                &self.metadata,
                &mut metadata_at,
                word(&self.metadata_lengths),
            );
            let data = long(&self.data_lengths).unwrap_or(0);
            let external = (data & EXTERNAL_DATA != 0).then_some(data & !EXTERNAL_DATA);
            let inline_end = inline_at + external.map_or(data as usize, |_| 0);
            let (shared, inline) = self.inline.range(inline_at, inline_end);
            inline_at = inline_end;
            let external_before = external_at;
            external_at += external.unwrap_or(0);
            let not_null = |length: &u32| *length != NULL;
            let key = word(&self.key_lengths).filter(not_null);
            let headers = word(&self.header_lengths).filter(not_null);
            let key_bytes = cut(&self.keys, &mut key_at, key);
            let header_bytes = cut(&self.headers, &mut headers_at, headers);
            if at == index as usize {
                removed = external_before..external_at;
                continue;
            }
            let pieces = [inline];
            rest.push(EventParts {
                metadata,
                inline: if inline.is_empty() { &[] } else { &pieces },
                shared: &shared,
                external_bytes: external,
                key: key.map(|_| key_bytes),
                headers: headers.map(|_| header_bytes),
                producer_time: long(&self.producer_times).unwrap_or(0),
                tombstone: self.tombstones.get(at).is_some_and(|byte| *byte != 0),
            });
        }
        (rest, removed)
    }

    /// Makes the batch of what was added.
    ///
    /// # Panics
    /// If nothing was added, or `block_bytes` is no power of two.
    pub fn seal(self, origin: Origin, block_bytes: u32) -> SealedBatch {
        assert!(self.event_count > 0, "a batch has at least one event");
        self.seal_kind(BatchKind::Events, origin, block_bytes)
    }

    pub(super) fn seal_kind(
        self,
        kind: BatchKind,
        origin: Origin,
        block_bytes: u32,
    ) -> SealedBatch {
        assert!(
            block_bytes.is_power_of_two(),
            "block length {block_bytes} is no power of two"
        );
        let blobs = [
            &self.metadata_lengths,
            &self.data_lengths,
            &self.producer_times,
            &self.key_lengths,
            &self.keys,
            &self.header_lengths,
            &self.headers,
            &self.tombstones,
        ];
        let head_bytes = blobs.iter().map(|blob| blob.len()).sum::<usize>();
        let mut head = Vec::with_capacity(SECTIONS_START + head_bytes);
        head.resize(SECTIONS_START, 0);
        let mut columns = column::METADATA_BYTES;
        head.extend_from_slice(&self.metadata_lengths);
        for (bit, lengths, blobs) in [
            (column::DATA_BYTES, &self.data_lengths, &Vec::new()),
            (column::PRODUCER_TIME, &self.producer_times, &Vec::new()),
            (column::KEY, &self.key_lengths, &self.keys),
            (column::HEADERS, &self.header_lengths, &self.headers),
            (column::TOMBSTONE, &self.tombstones, &Vec::new()),
        ] {
            if !lengths.is_empty() {
                columns |= bit;
                head.extend_from_slice(lengths);
                head.extend_from_slice(blobs);
            }
        }
        let columns_section = &head[SECTIONS_START..];
        let header = Header {
            kind,
            header_bytes: HEADER_BYTES as u16,
            features_incompatible: 0,
            features_compatible: 0,
            columns,
            event_count: self.event_count,
            last_offset_delta: self.event_count.saturating_sub(1),
            topic: origin.topic,
            producer: origin.producer,
            epoch: origin.epoch,
            first_sequence: origin.first_sequence,
            group: GroupId(0),
            block_bytes_log2: block_bytes.trailing_zeros() as u8,
            columns_bytes: columns_section.len() as u32,
            metadata_bytes: self.metadata.len() as u32,
            inline_bytes: self.inline.len() as u32,
            columns_crc: crc32c(columns_section),
            metadata_crc: self.metadata_crc.whole(&self.metadata).crc,
            inline_crc: self.inline.crc(),
        };
        header.write(&mut head[STAMP_BYTES..]);
        let event_count = self.event_count;
        SealedBatch {
            head,
            metadata: self.metadata,
            shared: self.inline.pieces,
            inline: self.inline.open,
            event_count,
        }
    }
}

/// The next `length` bytes of a section, of which `at` were cut before.
fn cut<'a>(section: &'a [u8], at: &mut usize, length: Option<u32>) -> &'a [u8] {
    let start = *at;
    *at += length.unwrap_or(0) as usize;
    &section[start..*at]
}

fn push_blob(lengths: &mut Vec<u8>, blobs: &mut Vec<u8>, blob: Option<&[u8]>, before: usize) {
    if blob.is_none() && lengths.is_empty() {
        return;
    }
    // Events before the first with a blob have none: NULL is all ones.
    lengths.resize(before * 4, 0xff);
    lengths.put_u32(blob.map_or(NULL, |bytes| bytes.len() as u32));
    blobs.extend_from_slice(blob.unwrap_or_default());
}

/// A batch without offsets whose one record is `body`: state for what
/// reads the log, of kind [`BatchKind::Snapshot`] or [`BatchKind::NoOp`].
pub fn state_batch(kind: BatchKind, topic: TopicId, body: &[u8]) -> SealedBatch {
    let mut builder = BatchBuilder::default();
    builder.push(EventParts {
        metadata: body,
        ..EventParts::default()
    });
    let origin = Origin {
        topic,
        producer: ProducerId(0),
        epoch: ProducerEpoch(0),
        first_sequence: Sequence(0),
    };
    builder.seal_kind(kind, origin, BLOCK_BYTES_DEFAULT)
}

/// The batch that notifies consumers of a [`Gap`]; its one record is the gap.
pub fn gap_batch(topic: TopicId, gap: &Gap) -> SealedBatch {
    state_batch(BatchKind::Gap, topic, &gap.to_bytes())
}

/// The most offsets that one batch of kind [`BatchKind::Skipped`] stands for.
pub const SKIPPED_OFFSETS_MAX: u64 = 1 << 31;

/// The batch that a mirror has in place of events that its source has lost; its one record is the
/// gap.
///
/// # Panics
/// If the gap is empty, or longer than [`SKIPPED_OFFSETS_MAX`].
pub fn skipped_batch(topic: TopicId, gap: &Gap) -> SealedBatch {
    let count = gap.end.0.saturating_sub(gap.first.0);
    assert!(
        (1..=SKIPPED_OFFSETS_MAX).contains(&count),
        "a batch of {count} skipped offsets"
    );
    let mut batch = state_batch(BatchKind::Skipped, topic, &gap.to_bytes());
    let (header, _) = Header::read(&batch.head[STAMP_BYTES..]).expect("it was written just now");
    let header = Header {
        last_offset_delta: (count - 1) as u32,
        ..header
    };
    header.write(&mut batch.head[STAMP_BYTES..]);
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_event_is_as_if_it_had_never_been_added() {
        let inline: [&[u8]; 2] = [b"in", b"line"];
        let shared = [Bytes::from_static(b"sha"), Bytes::from_static(b"red")];
        let plain = |metadata| EventParts {
            metadata,
            ..EventParts::default()
        };
        let events = [
            plain(b"first"),
            EventParts {
                inline: &inline,
                key: Some(b"key"),
                ..plain(b"second")
            },
            plain(b""),
            EventParts {
                shared: &shared,
                ..plain(b"third")
            },
            EventParts {
                external_bytes: Some(1 << 20),
                headers: Some(b"headers"),
                producer_time: 7,
                ..plain(b"fourth")
            },
            EventParts {
                external_bytes: Some(5),
                key: Some(b""),
                tombstone: true,
                ..plain(b"fifth")
            },
        ];
        let build = |without: Option<usize>| {
            let mut builder = BatchBuilder::default();
            for (index, event) in events.iter().enumerate() {
                if Some(index) != without {
                    builder.push(*event);
                }
            }
            builder
        };
        let sealed = |builder: BatchBuilder| {
            let origin = Origin {
                topic: TopicId(1),
                producer: ProducerId(2),
                epoch: ProducerEpoch(3),
                first_sequence: Sequence(4),
            };
            builder.seal(origin, 4096).to_vec()
        };
        let large = 1 << 20;
        let external = [0..0, 0..0, 0..0, 0..0, 0..large, large..large + 5];
        for (index, expected) in external.into_iter().enumerate() {
            let (rest, range) = build(None).without(index as u32);
            assert_eq!(rest.external_bytes(), build(Some(index)).external_bytes());
            assert_eq!(sealed(rest), sealed(build(Some(index))), "event {index}");
            if expected.is_empty() {
                assert!(range.is_empty(), "event {index}");
            } else {
                assert_eq!(range, expected, "event {index}");
            }
        }
    }
}
