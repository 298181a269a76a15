//! What is read from the fake server without a subscription.

use super::partition::marks;
use super::{Asked, Conn, FakeServer, send_error};
use bytes::Bytes;
use net::{BulkToken, Lane, Message, RegionWrite};
use wire::batch::{Batch, Verify};
use wire::checksum::crc32c;
use wire::codec::Reader;
use wire::frame::{BULK_CHUNK_BYTES, FrameKind};
use wire::message::*;
use wire::*;

impl FakeServer {
    pub(super) fn answer_read(&mut self, conn: &mut Conn, asked: Asked, from: &mut Reader<'_>) {
        let Asked {
            id, method, by_id, ..
        } = asked;
        match method {
            Method::Fetch => {
                let fetch = Fetch::decode(from).unwrap();
                let partition = self.partition(&by_id.unwrap(), fetch.partition.0 as usize);
                let end_of = |base: u64, batch: &Bytes| {
                    base + Batch::read(batch.clone(), Verify::Headers)
                        .unwrap()
                        .header
                        .offset_count()
                };
                let batches: Vec<Bytes> = partition
                    .batches
                    .iter()
                    .filter(|(base, batch)| end_of(*base, batch) > fetch.from.offset.0)
                    .map(|(_, batch)| batch.clone())
                    .collect();
                let fetched = Fetched {
                    incarnation: Incarnation(partition.incarnation),
                    batch_bytes: batches.iter().map(|batch| batch.len() as u64).collect(),
                    watermarks: marks(partition),
                };
                conn.link.send(Message {
                    payload: batches,
                    lane: Lane::Bulk,
                    ..Message::control(FrameKind::Reply, id, fetched.to_bytes())
                });
            }
            Method::ReadData => self.read_data(conn, id, &by_id.unwrap(), from),
            other => unreachable!("{other:?} is somebody else's"),
        }
    }

    fn read_data(&mut self, conn: &mut Conn, id: u64, topic: &str, from: &mut Reader<'_>) {
        let read = ReadData::decode(from).unwrap();
        let damaged = |wanted: &&DataWanted| self.damaged_data.contains(&wanted.offset.0);
        if let Some(wanted) = read.events.iter().find(damaged) {
            let message = format!("data of event {}: crc 1a2b, expected 3c4d", wanted.offset);
            return send_error(conn, id, ErrorReply::fatal(ErrorCode::Damaged, message));
        }
        let mut gathered = Vec::new();
        let mut checksums = Vec::new();
        for wanted in &read.events {
            self.segment_reads
                .push((wanted.offset, wanted.segments.clone()));
            let partition = &self.topics[topic].partitions[wanted.partition.0 as usize];
            let event = &partition.events[wanted.offset.0 as usize];
            let start = gathered.len();
            for segment in &wanted.segments {
                let end = segment.offset + segment.bytes;
                gathered.extend_from_slice(&event.data[segment.offset as usize..end as usize]);
            }
            checksums.push(crc32c(&gathered[start..]));
        }
        if std::mem::take(&mut self.damage_next) {
            gathered[0] ^= 1;
        }
        let mut at = 0;
        for region in read.into {
            let mut offset = 0;
            while offset < region.bytes {
                let bytes = (region.bytes - offset).min(BULK_CHUNK_BYTES as u64);
                conn.last_token += 1;
                let piece = Bytes::copy_from_slice(&gathered[at..at + bytes as usize]);
                at += bytes as usize;
                conn.link.write(
                    BulkToken(conn.last_token),
                    RegionWrite {
                        region: region.clone(),
                        offset,
                        pieces: vec![piece],
                    },
                );
                offset += bytes;
            }
        }
        assert_eq!(at, gathered.len());
        conn.link.send(Message {
            lane: Lane::Bulk,
            ..Message::control(FrameKind::Reply, id, DataRead { checksums }.to_bytes())
        });
    }
}
