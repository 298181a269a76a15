//! Some of a batch's events as a batch of their own.

use super::columns::NULL;
use super::*;
use crate::codec::Write;

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

        let sum: usize = events
            .iter()
            .map(|event| event.metadata_bytes as usize)
            .sum();
        let mut out = Vec::with_capacity(SECTIONS_START + events.len() * 32 + sum);
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
        let columns_end = out.len();
        header.columns_bytes = (columns_end - SECTIONS_START) as u32;
        header.columns_crc = crc32c(&out[SECTIONS_START..]);

        let metadata = self.metadata_section();
        for event in &events {
            let start = event.metadata_start as usize;
            out.put(&metadata[start..start + event.metadata_bytes as usize]);
        }
        let metadata_end = out.len();
        header.metadata_bytes = (metadata_end - columns_end) as u32;
        header.metadata_crc = crc32c(&out[columns_end..]);

        let inline = self.inline_section();
        let mut inline_bytes = 0;
        for event in events.iter().filter(|event| !event.external) {
            inline_bytes += event.data_bytes as u32;
            if let Some(inline) = inline {
                let start = event.data_start as usize;
                out.put(&inline[start..start + event.data_bytes as usize]);
            }
        }
        header.inline_bytes = inline_bytes;
        header.inline_crc = crc32c(&out[metadata_end..]);
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
        out
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
            data_position: 8192,
            data_bytes: 4096,
            header_crc,
            ..Stamp::default()
        };
        stamp.write(&mut bytes);
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
            let columns = batch.columns().unwrap();
            let all = events(&bytes);
            for kept in 1u32..1 << 6 {
                let keep: Vec<u32> = (0..6).filter(|index| kept & 1 << index != 0).collect();
                let cut = batch.cut(&columns, &keep);
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
