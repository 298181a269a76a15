//! Some of a batch's events as a batch of their own.

use super::columns::NULL;
use super::*;
use crate::codec::Write;
use bytes::Bytes;
use std::ops::Range;

/// Parts of a batch that are sent from where they lie, at most: more of them
/// are copied together.
const PARTS_MAX: usize = 8;

/// A batch that was cut: new columns, and parts of the old one.
struct Cut {
    /// Stamp, header and columns.
    head: Vec<u8>,
    /// Where metadata, then inline data lie in the old batch's bytes.
    parts: Vec<Range<usize>>,
}

impl<B: AsRef<[u8]>> Batch<B> {
    /// The batch of those events of this one whose indices are in `keep`, for
    /// a reader that is to have no others. They keep their offsets, and the
    /// stamp its times; where external data lies in files is left out. If
    /// this batch lacks its inline data, so does the new one.
    ///
    /// The metadata and inline data of the events are copied, once.
    ///
    /// # Panics
    /// If `keep` is empty, not in ascending order, or names an event that is
    /// not there; or if `columns` are not this batch's.
    pub fn cut(&self, columns: &Columns, keep: &[u32]) -> Vec<u8> {
        let Cut { mut head, parts } = self.cut_out(columns, keep);
        let bytes = self.bytes.as_ref();
        head.reserve_exact(parts.iter().map(Range::len).sum());
        parts.into_iter().for_each(|part| head.put(&bytes[part]));
        head
    }

    fn cut_out(&self, columns: &Columns, keep: &[u32]) -> Cut {
        let events: Vec<_> = keep
            .iter()
            .map(|index| &columns.events[*index as usize])
            .collect();
        let (first, last) = (events[0], events[events.len() - 1]);
        let last_delta = last.offset_delta - first.offset_delta;
        let dense = last_delta as usize + 1 == events.len();
        let section = self.columns_section();
        let blob = |place: Option<(u32, u32)>| {
            place.map(|(start, bytes)| &section[start as usize..(start + bytes) as usize])
        };

        let mut out = Vec::with_capacity(SECTIONS_START + events.len() * 32);
        out.resize(SECTIONS_START, 0);
        let has = |bit| self.header.columns & bit != 0;
        events
            .iter()
            .for_each(|event| out.put_u32(event.metadata_bytes));
        if has(column::DATA_BYTES) {
            events.iter().for_each(|event| {
                let external = if event.external { EXTERNAL_DATA } else { 0 };
                out.put_u64(event.data_bytes | external);
            });
        }
        if has(column::PRODUCER_TIME) {
            let times = events.iter().map(|event| event.producer_time.unwrap_or(0));
            times.for_each(|time| out.put_u64(time));
        }
        if has(column::KEY) {
            put_blobs(&mut out, events.iter().map(|event| blob(event.key)));
        }
        if has(column::HEADERS) {
            put_blobs(&mut out, events.iter().map(|event| blob(event.headers)));
        }
        if has(column::TOMBSTONE) {
            events
                .iter()
                .for_each(|event| out.put_u8(u8::from(event.tombstone)));
        }
        let mut header = Header {
            header_bytes: HEADER_BYTES as u16,
            columns: self.header.columns & !column::OFFSET_DELTA,
            event_count: events.len() as u32,
            last_offset_delta: last_delta,
            first_sequence: Sequence(self.header.first_sequence.0.wrapping_add(keep[0].into())),
            ..self.header
        };
        if !dense {
            header.columns |= column::OFFSET_DELTA;
            let deltas = events
                .iter()
                .map(|event| event.offset_delta - first.offset_delta);
            deltas.for_each(|delta| out.put_u32(delta));
        }
        header.columns_bytes = (out.len() - SECTIONS_START) as u32;
        header.columns_crc = crc32c(&out[SECTIONS_START..]);

        let mut parts = Vec::new();
        let start = self.metadata_range().start;
        let metadata = events.iter().map(|event| {
            let at = start + event.metadata_start as usize;
            at..at + event.metadata_bytes as usize
        });
        (header.metadata_bytes, header.metadata_crc) = self.take_parts(metadata, &mut parts);

        let inline = events.iter().filter(|event| !event.external);
        let inline_bytes = inline.clone().map(|event| event.data_bytes as u32);
        header.inline_bytes = inline_bytes.sum();
        header.inline_crc = crc32c(&[]);
        if let Some(section) = self.inline_range() {
            let inline = inline.map(|event| {
                let at = section.start + event.data_start as usize;
                at..at + event.data_bytes as usize
            });
            (_, header.inline_crc) = self.take_parts(inline, &mut parts);
        }
        header.write(&mut out[STAMP_BYTES..]);
        if let Some(stamp) = self.stamp {
            let (_, header_crc) = Header::read(&out[STAMP_BYTES..]).expect("it was just written");
            let stamp = Stamp {
                batch_bytes: header.batch_bytes(),
                base_offset: stamp.base_offset.plus(first.offset_delta.into()),
                append_time: stamp.append_time,
                leader_epoch: stamp.leader_epoch,
                header_crc,
                ..Stamp::default()
            };
            stamp.write(&mut out);
        }
        Cut { head: out, parts }
    }

    /// Adds a section of these pieces of the batch's bytes to `parts`,
    /// neighbours as one. Returns its length and checksum.
    fn take_parts(
        &self,
        pieces: impl Iterator<Item = Range<usize>>,
        parts: &mut Vec<Range<usize>>,
    ) -> (u32, u32) {
        let first = parts.len();
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            match parts[first..].last_mut() {
                Some(last) if last.end == piece.start => last.end = piece.end,
                _ => parts.push(piece),
            }
        }
        let bytes = self.bytes.as_ref();
        parts[first..].iter().fold((0, 0), |(length, crc), part| {
            let part = &bytes[part.clone()];
            (length + part.len() as u32, crc32c_append(crc, part))
        })
    }
}

impl Batch<Bytes> {
    /// [`Batch::cut`] in pieces, which are parts of this batch's memory, not
    /// copied, where the events lie one behind the other.
    ///
    /// # Panics
    /// As [`Batch::cut`].
    pub fn cut_pieces(&self, columns: &Columns, keep: &[u32]) -> Vec<Bytes> {
        let Cut { mut head, parts } = self.cut_out(columns, keep);
        let mut pieces = Vec::with_capacity(1 + parts.len().min(PARTS_MAX));
        if parts.len() > PARTS_MAX {
            head.reserve_exact(parts.iter().map(Range::len).sum());
            parts
                .into_iter()
                .for_each(|part| head.put(&self.bytes[part]));
            pieces.push(head.into());
        } else {
            pieces.push(head.into());
            pieces.extend(parts.into_iter().map(|part| self.bytes.slice(part)));
        }
        pieces
    }
}

fn put_blobs<'a>(out: &mut Vec<u8>, blobs: impl Iterator<Item = Option<&'a [u8]>> + Clone) {
    for blob in blobs.clone() {
        out.put_u32(blob.map_or(NULL, |bytes| bytes.len() as u32));
    }
    blobs.flatten().for_each(|bytes| out.put(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Offset;

    fn whole(inline_data: bool) -> Vec<u8> {
        let mut builder = BatchBuilder::default();
        for index in 0u32..6 {
            let metadata = vec![b'a' + index as u8; index as usize];
            let data = vec![index as u8; 10 * index as usize];
            let pieces = [data.as_slice()];
            let key = format!("key {index}");
            builder.push(EventParts {
                metadata: &metadata,
                inline: if index % 3 == 1 { &[] } else { &pieces },
                shared: &[],
                external_bytes: (index % 3 == 1).then_some(1 << 20),
                key: (index != 2).then_some(key.as_bytes()),
                headers: (index == 4).then_some(b"headers"),
                producer_time: u64::from(index),
                tombstone: index == 5,
            });
        }
        let origin = Origin {
            topic: TopicId(1),
            producer: ProducerId(2),
            epoch: ProducerEpoch(3),
            first_sequence: Sequence(40),
        };
        let mut bytes = builder.seal(origin, 4096).to_vec();
        let batch = Batch::read(bytes.as_slice(), Verify::Sections).unwrap();
        let (header, header_crc) = (batch.header, batch.header_crc);
        let stamp = Stamp {
            batch_bytes: header.batch_bytes(),
            base_offset: Offset(100),
            append_time: 7,
            data_bytes: 4096,
            header_crc,
            ..Stamp::default()
        };
        stamp.write(&mut bytes);
        let local = LocalStamp {
            data_position: 8192,
            ..LocalStamp::default()
        };
        local.write(&mut bytes);
        if !inline_data {
            bytes.truncate(header.prefix_bytes() as usize);
        }
        bytes
    }

    /// All that a reader sees of each event.
    fn events(bytes: &[u8]) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
        let batch = Batch::read(bytes, Verify::Sections).unwrap();
        let columns = batch.columns().unwrap();
        let section = batch.columns_section();
        let base = batch.stamp.unwrap().base_offset;
        let blob = |place: Option<(u32, u32)>| {
            place.map(|(start, bytes)| section[start as usize..][..bytes as usize].to_vec())
        };
        let seen = columns.events.iter().map(|event| {
            let metadata = &batch.metadata_section()[event.metadata_start as usize..];
            // No bytes are not absent.
            let present = !event.external && event.data_bytes > 0;
            let inline = batch.inline_section().filter(|_| present);
            let inline = inline.map(|inline| {
                inline[event.data_start as usize..][..event.data_bytes as usize].to_vec()
            });
            (
                base.plus(event.offset_delta.into()),
                metadata[..event.metadata_bytes as usize].to_vec(),
                (event.external, event.data_bytes, inline),
                (blob(event.key), blob(event.headers)),
                (event.producer_time, event.tombstone),
                batch.stamp.unwrap().append_time,
            )
        });
        seen.collect()
    }

    #[test]
    fn a_cut_has_the_kept_events_as_they_were() {
        for inline_data in [true, false] {
            let bytes = whole(inline_data);
            let batch = Batch::read(bytes.as_slice(), Verify::Sections).unwrap();
            let shared = Bytes::from(bytes.clone());
            let shared = Batch::read(shared, Verify::Sections).unwrap();
            let columns = batch.columns().unwrap();
            let all = events(&bytes);
            for kept in 1u32..1 << 6 {
                let keep: Vec<u32> = (0..6).filter(|index| kept & 1 << index != 0).collect();
                let cut = batch.cut(&columns, &keep);
                let pieces = shared.cut_pieces(&columns, &keep);
                assert_eq!(pieces.concat(), cut, "{keep:?}");
                let seen = events(&cut);
                assert_eq!(seen.len(), keep.len());
                for (seen, index) in seen.iter().zip(&keep) {
                    assert_eq!(seen, &all[*index as usize], "{keep:?}");
                }
                // It can be cut again.
                let again = Batch::read(cut.as_slice(), Verify::Sections).unwrap();
                let last = again.cut(&again.columns().unwrap(), &[keep.len() as u32 - 1]);
                assert_eq!(events(&last)[0], all[*keep.last().unwrap() as usize]);
            }
        }
    }
}
