//! Selected data goes out: gathered from storage, written into the asker's
//! memory, answered when all of it is there.

use crate::effects::ReadFor;
use crate::flow::Asks;
use crate::ids::{Asker, Bulk, StorageId};
use crate::io::Output;
use crate::node::Node;
use crate::partition::store::{Reading, storage_error};
use crate::refusal::{Refused, malformed, refuse};
use crate::selection::{Place, ReadDataCall, SelectedEvent};
use bytes::Bytes;
use log::{EventData, StorageError};
use memory::copies;
use net::{BulkToken, NetError, RegionWrite};
use std::collections::BTreeMap;
use wire::checksum::crc32c_append;
use wire::codec::Reader;
use wire::frame::BULK_CHUNK_BYTES;
use wire::message::{DataRead, DataWanted, ReadData, RequestHead};
use wire::view::{SEGMENTS_MAX, Segment};
use wire::{Codec, ErrorCode, ErrorReply};

/// Pieces shorter than this on average are gathered by a copy: below it,
/// handing over many small pieces costs more than the copy.
const PIECE_BYTES_MIN: usize = 16 * 1024;

impl Node {
    pub(crate) fn read_data(
        &mut self,
        asker: Asker,
        head: &RequestHead,
        from: &mut Reader<'_>,
    ) -> Result<(), Refused> {
        let read = ReadData::decode(from).map_err(malformed)?;
        self.refuse_if_closing()?;
        if let Some(region) = read.into.iter().find(|region| region.memory_kind != 0) {
            let kind = region.memory_kind;
            return Err(refuse(
                ErrorCode::Unsupported,
                format!("memory of kind {kind} is not supported"),
            ));
        }
        let mut events = Vec::with_capacity(read.events.len());
        let mut selected = 0u64;
        let mut segment_count = 0;
        for wanted in read.events {
            let storage = self.check_wanted(asker, head, &wanted)?;
            let bytes = wanted
                .segments
                .iter()
                .try_fold(0u64, |sum, segment| sum.checked_add(segment.bytes));
            let bytes = bytes.ok_or_else(|| outside(&wanted, u64::MAX))?;
            selected = selected.saturating_add(bytes);
            segment_count += wanted.segments.len();
            events.push(SelectedEvent {
                wanted,
                storage,
                data: None,
                is_whole: false,
                parts: Vec::new(),
            });
        }
        let room = read
            .into
            .iter()
            .fold(0u64, |sum, region| sum.saturating_add(region.bytes));
        if selected != room || segment_count > SEGMENTS_MAX {
            return Err(refuse(
                ErrorCode::InvalidSelection,
                format!(
                    "{segment_count} segments of {selected} bytes are selected for a region of {room} bytes"
                ),
            ));
        }
        let id = self.ctx.next_id();
        let call = ReadDataCall {
            asker,
            unopened: events.len(),
            into: read.into,
            next: Place::default(),
            chunks: BTreeMap::new(),
            next_chunk: 0,
            bytes_under_way: 0,
            starved: false,
            events,
        };
        let opens: Vec<_> = call
            .events
            .iter()
            .map(|event| (event.storage, event.wanted.offset))
            .collect();
        self.reads.insert(id, call);
        if let Some(session) = self.sessions.get_mut(&asker.link) {
            session.reads.insert(id);
        }
        for (event, (storage, offset)) in opens.into_iter().enumerate() {
            if let Some(partition) = self.partitions.get_mut(&storage) {
                let reading = Reading::For(ReadFor::Open { call: id, event });
                partition.store.open_event(reading, offset, &mut self.ctx);
            }
        }
        self.advance_read_data(id);
        Ok(())
    }

    fn check_wanted(
        &self,
        asker: Asker,
        head: &RequestHead,
        wanted: &DataWanted,
    ) -> Result<StorageId, Refused> {
        let storage = self.storage_of(asker, head.topic, wanted.partition)?;
        let Some(partition) = self.partitions.get(&storage) else {
            return Err(self.closed(head.topic, wanted.partition));
        };
        let position = wire::record::Position {
            incarnation: wanted.incarnation,
            offset: wanted.offset,
        };
        partition.store.check_event(position).map(|()| storage)
    }

    pub(crate) fn event_opened(
        &mut self,
        id: u64,
        event: usize,
        data: Result<EventData, StorageError>,
    ) {
        let Some(call) = self.reads.get_mut(&id) else {
            return;
        };
        call.unopened -= 1;
        let Some(selected) = call.events.get_mut(event) else {
            return;
        };
        match data {
            Ok(data) => {
                let fits = |segment: &Segment| {
                    segment
                        .offset
                        .checked_add(segment.bytes)
                        .is_some_and(|end| end <= data.bytes)
                };
                if !selected.wanted.segments.iter().all(fits) {
                    let error = outside(&selected.wanted, data.bytes);
                    self.end_read_data(id, Err(error));
                    return;
                }
                selected.opened(data);
            }
            Err(error) => {
                self.end_read_data(id, Err(storage_error(&error)));
                return;
            }
        }
        self.advance_read_data(id);
    }

    /// Cuts and reads chunks as far as bounds allow, or ends the call.
    fn advance_read_data(&mut self, id: u64) {
        self.advance_read_data_if(id, Asks::Now);
    }

    /// Lets calls go on that waited for others of all connections, in turn.
    /// Says whether any did.
    pub(crate) fn advance_waiting_reads(&mut self) -> bool {
        let next = self.ctx.outgoing.next(BULK_CHUNK_BYTES as u64);
        if let Some(id) = next {
            self.advance_read_data_if(id, Asks::InTurn);
        }
        next.is_some()
    }

    fn advance_read_data_if(&mut self, id: u64, asks: Asks) {
        loop {
            let Some(call) = self.reads.get_mut(&id) else {
                return;
            };
            if call.unopened > 0 {
                return;
            }
            let Some(session) = self.sessions.get_mut(&call.asker.link) else {
                return;
            };
            let limit = self.ctx.options.limits.read_data_bytes_max;
            // One chunk may pass, so that every call comes to its end.
            if session.read_bytes > 0 && session.read_bytes + BULK_CHUNK_BYTES as u64 > limit {
                call.starved = true;
                return;
            }
            call.starved = false;
            let link = call.asker.link;
            // A call that only comes to its end takes nobody's turn.
            if !call.is_cut()
                && !self
                    .ctx
                    .outgoing
                    .admits(link, BULK_CHUNK_BYTES as u64, asks)
            {
                self.ctx.outgoing.wait(link, id);
                return;
            }
            let Some(chunk) = call.cut() else {
                if call.chunks.is_empty() {
                    let checksums = call.events.iter().map(SelectedEvent::checksum).collect();
                    self.end_read_data(id, Ok(checksums));
                }
                return;
            };
            session.read_bytes += chunk.bytes;
            call.bytes_under_way += chunk.bytes;
            self.ctx.outgoing.take(link, chunk.bytes);
            let number = call.next_chunk;
            call.next_chunk += 1;
            for (index, part) in chunk.parts.iter().enumerate() {
                let event = &call.events[part.event];
                let (Some(data), Some(partition)) =
                    (&event.data, self.partitions.get_mut(&event.storage))
                else {
                    continue;
                };
                let reading = Reading::For(ReadFor::Data {
                    call: id,
                    chunk: number,
                    part: index,
                });
                let segments = part.segments.clone();
                let (store, ctx) = (&mut partition.store, &mut self.ctx);
                match event.is_whole {
                    // The asker gets the checksum of the whole with it.
                    true => store.read_data_to_compare(reading, data, segments, ctx),
                    false => store.read_data(reading, data, segments, ctx),
                }
            }
            call.chunks.insert(number, chunk);
        }
    }

    pub(crate) fn selection_read(
        &mut self,
        id: u64,
        number: usize,
        part: usize,
        pieces: Result<Vec<Bytes>, StorageError>,
    ) {
        let Some(call) = self.reads.get_mut(&id) else {
            return;
        };
        let pieces = match pieces {
            Ok(pieces) => pieces,
            Err(error) => {
                self.end_read_data(id, Err(storage_error(&error)));
                return;
            }
        };
        let Some(chunk) = call.chunks.get_mut(&number) else {
            return;
        };
        let Some(part) = chunk.parts.get_mut(part) else {
            return;
        };
        let event = &mut call.events[part.event];
        if !event.is_whole {
            let crc = pieces
                .iter()
                .fold(0, |crc, piece| crc32c_append(crc, piece));
            let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
            event.parts[part.index] = (crc, bytes);
        }
        part.pieces = pieces;
        chunk.unread -= 1;
        if chunk.unread > 0 {
            return;
        }
        let pieces: Vec<Bytes> = chunk
            .parts
            .iter_mut()
            .flat_map(|part| std::mem::take(&mut part.pieces))
            .collect();
        let pieces = if pieces.len() > 1 && chunk.bytes as usize / pieces.len() < PIECE_BYTES_MIN {
            vec![gather(
                &self.ctx.options.pool,
                &pieces,
                chunk.bytes as usize,
            )]
        } else {
            pieces
        };
        let token = BulkToken(self.ctx.next_id());
        chunk.token = Some(token);
        self.ctx.bulk.insert(token, Bulk::ReadData(id));
        self.ctx.outputs.push_back(Output::Write {
            link: call.asker.link,
            token,
            write: RegionWrite {
                region: call.into[chunk.region].clone(),
                offset: chunk.region_offset,
                pieces,
            },
        });
    }

    pub(crate) fn selection_written(
        &mut self,
        id: u64,
        token: BulkToken,
        result: Result<(), NetError>,
    ) {
        let Some(call) = self.reads.get_mut(&id) else {
            return;
        };
        if let Err(error) = result {
            let error = ErrorReply::retryable(
                ErrorCode::Cancelled,
                0,
                format!("writing selected data: {error}"),
            );
            self.end_read_data(id, Err(error));
            return;
        }
        let chunk = call
            .chunks
            .iter()
            .find(|(_, chunk)| chunk.token == Some(token));
        let number = chunk.map(|(number, _)| *number);
        let link = call.asker.link;
        if let Some(chunk) = number.and_then(|number| call.chunks.remove(&number)) {
            call.bytes_under_way -= chunk.bytes;
            self.ctx.outgoing.give_back(link, chunk.bytes);
            if let Some(session) = self.sessions.get_mut(&link) {
                session.read_bytes -= chunk.bytes;
            }
        }
        self.advance_read_data(id);
        self.advance_starved_reads(link);
    }

    /// Calls that waited for others of their connection go on.
    fn advance_starved_reads(&mut self, link: crate::ids::LinkId) {
        let Some(session) = self.sessions.get(&link) else {
            return;
        };
        let starved = session
            .reads
            .iter()
            .filter(|id| self.reads.get(id).is_some_and(|call| call.starved));
        let starved: Vec<u64> = starved.copied().collect();
        for id in starved {
            self.advance_read_data(id);
        }
    }

    fn end_read_data(&mut self, id: u64, result: Result<Vec<u32>, ErrorReply>) {
        let Some(call) = self.drop_read_data(id) else {
            return;
        };
        let asker = call.asker;
        if let Some(session) = self.sessions.get_mut(&asker.link) {
            session.reads.remove(&id);
            session.read_bytes -= call.bytes_under_way;
        }
        match result {
            Ok(checksums) => {
                // Behind the writes, where the transport keeps their order.
                self.reply_in_bulk(asker, DataRead { checksums }.to_bytes(), Vec::new());
            }
            Err(error) => self.refuse_request(asker, error),
        }
        self.advance_starved_reads(asker.link);
    }

    /// Forgets a call and the writes of it that are under way.
    pub(crate) fn drop_read_data(&mut self, id: u64) -> Option<ReadDataCall> {
        let call = self.reads.remove(&id)?;
        let link = call.asker.link;
        self.ctx.outgoing.give_back(link, call.bytes_under_way);
        self.ctx.outgoing.leave(link, id);
        for token in call.chunks.values().filter_map(|chunk| chunk.token) {
            self.ctx.bulk.remove(&token);
        }
        Some(call)
    }

    /// Nobody waits for a call any more.
    pub(crate) fn forget_read_data(&mut self, asker: Asker) {
        let call = self.reads.iter().find(|(_, call)| call.asker == asker);
        if let Some(id) = call.map(|(id, _)| *id) {
            let error = refuse(ErrorCode::Cancelled, "cancelled");
            self.end_read_data(id, Err(error));
        }
    }
}

/// One piece with the bytes of many.
fn gather(pool: &memory::Pool, pieces: &[Bytes], bytes: usize) -> Bytes {
    let mut buffer = pool.take(bytes);
    let mut at = 0;
    for piece in pieces {
        copies::copy(piece, &mut buffer[at..at + piece.len()]);
        at += piece.len();
    }
    buffer.truncate(at);
    buffer.freeze()
}

fn outside(wanted: &DataWanted, bytes: u64) -> ErrorReply {
    refuse(
        ErrorCode::InvalidSelection,
        format!(
            "the selection of event {} of partition {} leaves its {bytes} bytes of data",
            wanted.offset, wanted.partition
        ),
    )
}
