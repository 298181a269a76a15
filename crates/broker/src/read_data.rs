//! Selected data goes out: gathered from storage, written into the caller's
//! memory, answered when all of it is there.

use crate::answer::Answer;
use crate::ctx::Ctx;
use crate::effects::{ReadFor, WasRead};
use crate::faults::Fault;
use crate::flow::Asks;
use crate::ids::{Bulk, LinkId, RequestId};
use crate::io::Output;
use crate::partition::Partitions;
use crate::partition::store::{Reading, storage_error};
use crate::refusal::{Refused, refuse};
use crate::selection::{Place, ReadDataCall, SelectedEvent};
use bytes::Bytes;
use log::{EventData, StorageError};
use memory::copies;
use net::{BulkToken, NetError, RegionWrite};
use std::collections::{BTreeMap, BTreeSet};
use wire::checksum::crc32c_append;
use wire::frame::BULK_CHUNK_BYTES;
use wire::message::{DataRead, DataWanted, Region};
use wire::view::{REPEATS_MAX, SEGMENTS_MAX};
use wire::{ErrorCode, ErrorReply};

/// Pieces shorter than this on average are gathered by a copy: below it,
/// handing over many small pieces costs more than the copy.
const PIECE_BYTES_MIN: usize = 16 * 1024;

/// All `ReadData` calls. One may read several partitions, so that it is none's.
#[derive(Default)]
pub(crate) struct Reads {
    calls: BTreeMap<u64, ReadDataCall>,
    links: BTreeMap<LinkId, LinkReads>,
}

/// The calls of one connection, in turn.
#[derive(Default)]
struct LinkReads {
    calls: BTreeSet<u64>,
    /// Their bytes under way.
    bytes: u64,
}

impl Reads {
    /// Begins a call that selects these events.
    pub fn begin(
        &mut self,
        caller: RequestId,
        events: Vec<SelectedEvent>,
        into: Vec<Region>,
        partitions: &mut Partitions,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        check_selection(&events, &into)?;
        let id = ctx.next_id();
        for (event, selected) in events.iter().enumerate() {
            if let Some(partition) = partitions.get_mut(&selected.storage) {
                let reading = Reading::For(ReadFor::Open { call: id, event });
                let offset = selected.wanted.offset;
                partition.store.open_event(reading, offset, ctx);
            }
        }
        let call = ReadDataCall {
            caller,
            unopened: events.len(),
            into,
            next: Place::default(),
            chunks: BTreeMap::new(),
            next_chunk: 0,
            bytes_under_way: 0,
            starved: false,
            events,
        };
        self.calls.insert(id, call);
        self.links.entry(caller.link).or_default().calls.insert(id);
        self.advance(id, Asks::Now, partitions, ctx);
        Ok(())
    }

    /// What was read for a call has come.
    pub fn was_read(
        &mut self,
        reader: ReadFor,
        found: WasRead,
        partitions: &mut Partitions,
        ctx: &mut Ctx,
    ) {
        match (reader, found) {
            (ReadFor::Open { call, event }, WasRead::Event(data)) => {
                self.event_opened(call, event, data, partitions, ctx);
            }
            (ReadFor::Data { call, chunk, part }, WasRead::Data(pieces)) => {
                self.part_read(call, chunk, part, pieces, partitions, ctx);
            }
            // A storage gives what it was asked for.
            _ => {}
        }
    }

    /// It is known where the data of an event is.
    fn event_opened(
        &mut self,
        id: u64,
        event: usize,
        data: Result<EventData, StorageError>,
        partitions: &mut Partitions,
        ctx: &mut Ctx,
    ) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        call.unopened -= 1;
        let selected = &mut call.events[event];
        let opened = match data {
            Ok(data) => match selected.fits(data.bytes) {
                true => {
                    selected.opened(data);
                    Ok(())
                }
                false => Err(outside(&selected.wanted, data.bytes)),
            },
            Err(error) => Err(storage_error(&error)),
        };
        match opened {
            Ok(()) => self.advance(id, Asks::Now, partitions, ctx),
            Err(error) => self.end(id, Err(error), partitions, ctx),
        }
    }

    /// Lets calls go on that waited for others of all connections, in turn.
    /// Says whether any did.
    pub fn advance_waiting(&mut self, partitions: &mut Partitions, ctx: &mut Ctx) -> bool {
        let next = ctx.outgoing.next(BULK_CHUNK_BYTES as u64);
        if let Some(id) = next {
            self.advance(id, Asks::InTurn, partitions, ctx);
        }
        next.is_some()
    }

    /// Cuts and reads chunks as far as bounds allow, or ends the call.
    fn advance(&mut self, id: u64, asks: Asks, partitions: &mut Partitions, ctx: &mut Ctx) {
        let most = BULK_CHUNK_BYTES as u64;
        let limit = ctx.options.limits.read_data_bytes_max;
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        if call.unopened > 0 {
            return;
        }
        let link = call.caller.link;
        let under_way = &mut self.links.entry(link).or_default().bytes;
        loop {
            // One chunk may pass, so that every call comes to its end.
            call.starved = *under_way > 0 && *under_way + most > limit;
            if call.starved {
                return;
            }
            // A call that only comes to its end takes nobody's turn.
            if !call.is_cut() && !ctx.outgoing.admits(link, most, asks) {
                ctx.outgoing.wait(link, id);
                return;
            }
            let Some(mut chunk) = call.cut() else {
                break;
            };
            if ctx.planted(Fault::LastPiece) && call.is_cut() {
                chunk.spoil();
            }
            *under_way += chunk.bytes;
            call.bytes_under_way += chunk.bytes;
            ctx.outgoing.take(link, chunk.bytes);
            let number = call.next_chunk;
            call.next_chunk += 1;
            for (index, part) in chunk.parts.iter().enumerate() {
                let event = &call.events[part.event];
                let (Some(data), Some(partition)) =
                    (&event.data, partitions.get_mut(&event.storage))
                else {
                    continue;
                };
                let reading = Reading::For(ReadFor::Data {
                    call: id,
                    chunk: number,
                    part: index,
                });
                let segments = part.segments.clone();
                let store = &mut partition.store;
                match event.is_whole {
                    // The caller gets the checksum of the whole with it.
                    true => store.read_data_to_compare(reading, data, segments, ctx),
                    false => store.read_data(reading, data, segments, ctx),
                }
            }
            call.chunks.insert(number, chunk);
        }
        if call.chunks.is_empty() {
            let checksums = call.events.iter().map(SelectedEvent::checksum).collect();
            self.end(id, Ok(checksums), partitions, ctx);
        }
    }

    /// A part of a chunk was read. The last one sends the chunk on its way.
    fn part_read(
        &mut self,
        id: u64,
        number: usize,
        part: usize,
        pieces: Result<Vec<Bytes>, StorageError>,
        partitions: &mut Partitions,
        ctx: &mut Ctx,
    ) {
        match pieces {
            Ok(pieces) => self.take_part(id, number, part, pieces, ctx),
            Err(error) => self.end(id, Err(storage_error(&error)), partitions, ctx),
        }
    }

    fn take_part(
        &mut self,
        id: u64,
        number: usize,
        part: usize,
        pieces: Vec<Bytes>,
        ctx: &mut Ctx,
    ) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let Some(chunk) = call.chunks.get_mut(&number) else {
            return;
        };
        let part = &mut chunk.parts[part];
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
        let parts = chunk.parts.iter_mut();
        let pieces: Vec<Bytes> = parts
            .flat_map(|part| std::mem::take(&mut part.pieces))
            .collect();
        let bytes = chunk.bytes as usize;
        let pieces = match pieces.len() > 1 && bytes / pieces.len() < PIECE_BYTES_MIN {
            true => vec![gather(&ctx.options.pool, &pieces, bytes)],
            false => pieces,
        };
        let token = BulkToken(ctx.next_id());
        chunk.token = Some(token);
        ctx.bulk.insert(token, Bulk::ReadData(id));
        ctx.outputs.push_back(Output::Write {
            link: call.caller.link,
            token,
            write: RegionWrite {
                region: call.into[chunk.region].clone(),
                offset: chunk.region_offset,
                pieces,
            },
        });
    }

    /// A chunk was handed to the network, or could not be.
    pub fn chunk_written(
        &mut self,
        id: u64,
        token: BulkToken,
        result: Result<(), NetError>,
        partitions: &mut Partitions,
        ctx: &mut Ctx,
    ) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        if let Err(error) = result {
            let error = ErrorReply::retryable(
                ErrorCode::Cancelled,
                0,
                format!("writing selected data: {error}"),
            );
            self.end(id, Err(error), partitions, ctx);
            return;
        }
        let mut chunks = call.chunks.iter();
        let chunk = chunks.find(|(_, chunk)| chunk.token == Some(token));
        let number = chunk.map(|(number, _)| *number);
        let link = call.caller.link;
        if let Some(chunk) = number.and_then(|number| call.chunks.remove(&number)) {
            call.bytes_under_way -= chunk.bytes;
            ctx.outgoing.give_back(link, chunk.bytes);
            if let Some(reads) = self.links.get_mut(&link) {
                reads.bytes -= chunk.bytes;
            }
        }
        self.advance(id, Asks::Now, partitions, ctx);
        self.advance_starved(link, partitions, ctx);
    }

    /// Calls that waited for others of their connection go on.
    fn advance_starved(&mut self, link: LinkId, partitions: &mut Partitions, ctx: &mut Ctx) {
        let ids = self.links.get(&link).into_iter();
        let ids = ids.flat_map(|reads| &reads.calls);
        let starved = ids.filter(|id| self.calls.get(id).is_some_and(|call| call.starved));
        let starved: Vec<u64> = starved.copied().collect();
        for id in starved {
            self.advance(id, Asks::Now, partitions, ctx);
        }
    }

    fn end(
        &mut self,
        id: u64,
        result: Result<Vec<u32>, ErrorReply>,
        partitions: &mut Partitions,
        ctx: &mut Ctx,
    ) {
        let Some(call) = self.forget(id, ctx) else {
            return;
        };
        let caller = call.caller;
        match result {
            Ok(checksums) => {
                // Behind the writes, where the transport keeps their order.
                ctx.answer(caller, Answer::DataRead(DataRead { checksums }));
            }
            Err(error) => ctx.refuse(caller, error),
        }
        self.advance_starved(caller.link, partitions, ctx);
    }

    /// Forgets a call and the writes of it that are under way.
    fn forget(&mut self, id: u64, ctx: &mut Ctx) -> Option<ReadDataCall> {
        let call = self.calls.remove(&id)?;
        let link = call.caller.link;
        ctx.outgoing.give_back(link, call.bytes_under_way);
        ctx.outgoing.leave(link, id);
        for token in call.chunks.values().filter_map(|chunk| chunk.token) {
            ctx.bulk.remove(&token);
        }
        if let Some(reads) = self.links.get_mut(&link) {
            reads.calls.remove(&id);
            reads.bytes -= call.bytes_under_way;
            if reads.calls.is_empty() {
                self.links.remove(&link);
            }
        }
        Some(call)
    }

    /// A connection is gone.
    pub fn link_down(&mut self, link: LinkId, ctx: &mut Ctx) {
        let calls = self.links.get(&link).map(|reads| reads.calls.clone());
        for id in calls.into_iter().flatten() {
            self.forget(id, ctx);
        }
    }

    /// Nobody waits for a call any more.
    pub fn cancel(&mut self, caller: RequestId, partitions: &mut Partitions, ctx: &mut Ctx) {
        let reads = self.links.get(&caller.link).into_iter();
        let mut ids = reads.flat_map(|reads| &reads.calls);
        let id = ids.find(|id| self.calls[*id].caller == caller).copied();
        if let Some(id) = id {
            let error = refuse(ErrorCode::Cancelled, "cancelled");
            self.end(id, Err(error), partitions, ctx);
        }
    }

    pub fn cancel_all(&mut self, partitions: &mut Partitions, ctx: &mut Ctx) {
        let callers: Vec<RequestId> = self.calls.values().map(|call| call.caller).collect();
        for caller in callers {
            self.cancel(caller, partitions, ctx);
        }
    }
}

/// Refuses a selection that does not fill its region, or is cut into too many segments.
fn check_selection(events: &[SelectedEvent], into: &[Region]) -> Result<(), Refused> {
    if let Some(region) = into.iter().find(|region| region.memory_kind != 0) {
        let kind = region.memory_kind;
        return Err(refuse(
            ErrorCode::Unsupported,
            format!("memory of kind {kind} is not supported"),
        ));
    }
    let (mut selected, mut pieces) = (0u64, 0u64);
    for event in events {
        let most = event.strided.iter().map(|segment| segment.repeats.len());
        if let Some(repeats) = most.max().filter(|most| *most > REPEATS_MAX) {
            return Err(refuse(
                ErrorCode::InvalidSelection,
                format!("a segment has {repeats} repeats; {REPEATS_MAX} at most"),
            ));
        }
        let extent = event.extent();
        let (bytes, its) = extent.ok_or_else(|| outside(&event.wanted, u64::MAX))?;
        selected = selected.saturating_add(bytes);
        pieces = pieces.saturating_add(its);
    }
    let room = into
        .iter()
        .fold(0u64, |sum, region| sum.saturating_add(region.bytes));
    if selected != room || pieces > SEGMENTS_MAX as u64 {
        return Err(refuse(
            ErrorCode::InvalidSelection,
            format!(
                "{pieces} segments of {selected} bytes are selected for a region of {room} bytes"
            ),
        ));
    }
    Ok(())
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
