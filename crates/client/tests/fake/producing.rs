//! Producers of the fake server: their ids, their batches, and large data
//! that is read from them.

use super::{Asked, Conn, FakeServer, reply, send_error, unknown};
use memory::Buffer;
use net::{BulkToken, RegionRead};
use wire::checksum::crc32c;
use wire::codec::Reader;
use wire::frame::BULK_CHUNK_BYTES;
use wire::message::*;
use wire::*;

/// A produce whose large data is being read.
pub(super) struct Transfer {
    pub(super) id: u64,
    topic: String,
    produce: Produce,
    batch: Vec<u8>,
    region: usize,
    at: u64,
    data: Vec<u8>,
}

impl FakeServer {
    pub(super) fn answer_producer(&mut self, conn: &mut Conn, asked: Asked, from: &mut Reader<'_>) {
        let Asked {
            id,
            method,
            by_id,
            payload,
        } = asked;
        match method {
            Method::OpenProducer => {
                let open = OpenProducer::decode(from).unwrap();
                let Some(name) = by_id else {
                    return send_error(conn, id, unknown("by id"));
                };
                self.last_id += 1;
                let fresh = ProducerId(self.last_id);
                let topic = self.topics.get_mut(&name).unwrap();
                let (producer, epoch) = if open.resume != ProducerId(0) {
                    if let Some((_, epoch)) = topic.names.get(&open.name)
                        && *epoch > open.resume_epoch.0
                    {
                        let error = ErrorReply::fatal(ErrorCode::ProducerFenced, "newer");
                        return send_error(conn, id, error);
                    }
                    (open.resume, open.resume_epoch)
                } else if open.name.is_empty() {
                    (fresh, ProducerEpoch(1))
                } else {
                    let entry = topic.names.entry(open.name).or_insert((fresh, 0));
                    entry.1 += 1;
                    (entry.0, ProducerEpoch(entry.1))
                };
                let partitions = topic.partitions.iter().enumerate();
                let opened = ProducerOpened {
                    producer,
                    epoch,
                    next: partitions
                        .filter_map(|(index, partition)| {
                            let (next, _) = partition.producers.get(&producer)?;
                            Some((PartitionIndex(index as u32), Sequence(*next)))
                        })
                        .collect(),
                };
                reply(conn, id, opened.to_bytes());
            }
            Method::Produce => {
                let produce = Produce::decode(from).unwrap();
                let transfer = Transfer {
                    id,
                    topic: by_id.unwrap(),
                    produce,
                    batch: payload.to_vec(),
                    region: 0,
                    at: 0,
                    data: Vec::new(),
                };
                self.advance(conn, transfer);
            }
            other => unreachable!("{other:?} is somebody else's"),
        }
    }

    /// Reads large data of a produce, a chunk at a time, and appends.
    fn advance(&mut self, conn: &mut Conn, mut transfer: Transfer) {
        while let Some(region) = transfer.produce.regions.get(transfer.region) {
            if transfer.at == region.bytes {
                transfer.region += 1;
                transfer.at = 0;
                continue;
            }
            let bytes = (region.bytes - transfer.at).min(BULK_CHUNK_BYTES as u64);
            conn.last_token += 1;
            let token = conn.last_token;
            conn.link.read(
                BulkToken(token),
                RegionRead {
                    region: region.clone(),
                    offset: transfer.at,
                    into: Buffer::zeroed(bytes as usize),
                    block_bytes: 4096,
                },
            );
            conn.transfers.insert(token, transfer);
            return;
        }
        let at = transfer.produce.partition.0 as usize;
        // A clock that goes on with every message.
        let append_time = self.messages;
        let partition = self.partition(&transfer.topic, at);
        match partition.append(&transfer.batch, &transfer.data, append_time) {
            Ok(produced) => reply(conn, transfer.id, produced.to_bytes()),
            Err(error) => send_error(conn, transfer.id, error),
        }
    }

    pub(super) fn read_done(
        &mut self,
        conn: &mut Conn,
        token: BulkToken,
        result: Result<(Buffer, Vec<u32>), net::NetError>,
    ) {
        let Some(mut transfer) = conn.transfers.remove(&token.0) else {
            return;
        };
        match result {
            Ok((buffer, checksums)) => {
                let computed: Vec<u32> = buffer.chunks(4096).map(crc32c).collect();
                assert_eq!(computed, checksums);
                transfer.at += buffer.len() as u64;
                transfer.data.extend_from_slice(&buffer);
                self.advance(conn, transfer);
            }
            Err(error) => {
                let error = ErrorReply::retryable(ErrorCode::Cancelled, 0, error.to_string());
                send_error(conn, transfer.id, error);
            }
        }
    }
}
