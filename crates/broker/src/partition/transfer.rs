//! External data comes in: fetched from its owner's memory in chunks, checked
//! while it is in cache, written to its place.

use super::incoming::ValidBatch;
use super::store::Store;
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::flow::Asks;
use crate::ids::{Bulk, LinkId, TransferId};
use crate::io::Output;
use crate::refusal::{Refused, refuse};
use log::DataPlace;
use memory::Buffer;
use net::{BulkToken, NetError, RegionRead};
use std::collections::BTreeMap;
use wire::batch::ExternalLayout;
use wire::checksum::{block_checksums, crc32c_append, crc32c_combine};
use wire::frame::BULK_CHUNK_BYTES;
use wire::message::Region;
use wire::{Durability, ErrorCode, ErrorReply, ProducerId};

/// The fetching of one batch's external data.
pub(crate) struct Transfer {
    link: LinkId,
    producer: ProducerId,
    place: DataPlace,
    durability: Durability,
    block_bytes: u32,
    layout: ExternalLayout,
    regions: Vec<Region>,
    /// Where the next chunk begins: in which event, and in which region.
    event: usize,
    event_offset: u64,
    /// Blocks of the events before that one.
    block: usize,
    region: usize,
    region_offset: u64,
    /// The checksum of every block, as far as it arrived; a block that came
    /// in several chunks is put together in `parts` first.
    checksums: Vec<u32>,
    parts: BTreeMap<usize, Vec<(u64, u64, u32)>>,
    chunks: BTreeMap<BulkToken, Chunk>,
    /// What the checksum of all checksums is to be, of a mirror's batch; then, what it is.
    data_crc: Option<u32>,
    sealed_crc: u32,
    /// Chunks given to the storage, and their bytes, that it has not written.
    writing_bytes: u64,
    sealed: bool,
}

/// A piece that is being fetched.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    /// Where it goes within the place.
    position: u64,
    /// The first block that it belongs to.
    block: usize,
    /// Where it begins within that block.
    block_offset: u64,
    bytes: u64,
}

impl Transfer {
    /// The next chunk: within one event and one region, and such that every
    /// block that it begins at its start it also ends, or ends with the region.
    fn next_chunk(&mut self) -> Option<(Chunk, Region, u64)> {
        let (_, position, bytes) = loop {
            let event = *self.layout.events.get(self.event)?;
            if self.event_offset < event.2 {
                break event;
            }
            self.block += event.2.div_ceil(u64::from(self.block_bytes)) as usize;
            self.event += 1;
            self.event_offset = 0;
        };
        while self.region_offset >= self.regions.get(self.region)?.bytes {
            self.region += 1;
            self.region_offset = 0;
        }
        let region = self.regions.get(self.region)?;
        let block_bytes = u64::from(self.block_bytes);
        let block_offset = self.event_offset % block_bytes;
        // The owner's checksums count blocks from where the chunk begins.
        let most = match block_offset {
            0 => BULK_CHUNK_BYTES as u64,
            offset => block_bytes - offset,
        };
        let take = most
            .min(bytes - self.event_offset)
            .min(region.bytes - self.region_offset);
        let chunk = Chunk {
            position: position + self.event_offset,
            block: self.block + (self.event_offset / block_bytes) as usize,
            block_offset,
            bytes: take,
        };
        let (region, region_offset) = (region.clone(), self.region_offset);
        self.event_offset += take;
        self.region_offset += take;
        Some((chunk, region, region_offset))
    }

    /// Notes the checksums of a chunk's blocks.
    fn note(&mut self, chunk: Chunk, checksums: &[u32]) {
        let block_bytes = u64::from(self.block_bytes);
        let mut offset = chunk.block_offset;
        let mut left = chunk.bytes;
        for (index, crc) in checksums.iter().enumerate() {
            let bytes = left.min(block_bytes - offset);
            let block = chunk.block + index;
            if bytes == block_bytes {
                self.checksums[block] = *crc;
            } else {
                self.parts
                    .entry(block)
                    .or_default()
                    .push((offset, bytes, *crc));
            }
            left -= bytes;
            offset = 0;
        }
    }

    /// Puts the blocks together that came in several chunks.
    fn join_parts(&mut self) {
        for (block, mut parts) in std::mem::take(&mut self.parts) {
            parts.sort_unstable();
            let crc = parts.iter().fold(0, |crc, (_, bytes, part)| {
                crc32c_combine(crc, *part, *bytes)
            });
            self.checksums[block] = crc;
        }
    }

    /// Asks for chunks as far as bounds allow. Says whether any was asked for.
    fn feed(&mut self, id: TransferId, asks: Asks, store: &mut Store, ctx: &mut Ctx) -> bool {
        let chunks_max = ctx.options.limits.transfer_chunks_max as u64;
        let mut fed = false;
        loop {
            let writing = self.writing_bytes.div_ceil(BULK_CHUNK_BYTES as u64);
            if self.chunks.len() as u64 + writing >= chunks_max {
                return fed;
            }
            if self.is_fetched() {
                self.seal(store, ctx);
                return fed;
            }
            // Whatever the chunk's length turns out to be, a whole one is taken first.
            let most = BULK_CHUNK_BYTES as u64;
            let link = self.link;
            if !ctx.incoming.admits(link, most, asks) || !ctx.data.try_fetch(most) {
                ctx.incoming.wait(link, (id, store.id));
                return fed;
            }
            let Some((chunk, region, offset)) = self.next_chunk() else {
                ctx.data.give_back_fetched(most);
                if self.chunks.is_empty() {
                    self.seal(store, ctx);
                }
                return fed;
            };
            ctx.data.give_back_fetched(most - chunk.bytes);
            ctx.incoming.take(link, chunk.bytes);
            let token = BulkToken(ctx.next_id());
            self.chunks.insert(token, chunk);
            ctx.bulk.insert(token, Bulk::Transfer(store.id, id));
            ctx.outputs.push_back(Output::Read {
                link,
                token,
                read: RegionRead {
                    region,
                    offset,
                    into: ctx.options.pool.take(chunk.bytes as usize),
                    block_bytes: self.block_bytes,
                },
            });
            fed = true;
        }
    }

    /// Everything was given to the storage.
    fn seal(&mut self, store: &mut Store, ctx: &mut Ctx) {
        if std::mem::replace(&mut self.sealed, true) {
            return;
        }
        self.join_parts();
        let checksums = std::mem::take(&mut self.checksums);
        self.sealed_crc = table_crc(&checksums);
        let storage = &mut store.storage;
        storage.seal_data(self.place, checksums, self.durability);
        store.touch(ctx);
    }

    fn is_fetched(&self) -> bool {
        self.chunks.is_empty()
            && self
                .layout
                .events
                .get(self.event)
                .is_none_or(|(_, _, bytes)| {
                    self.event + 1 == self.layout.events.len() && self.event_offset >= *bytes
                })
    }
}

/// The transfers of one partition.
#[derive(Default)]
pub(crate) struct Transfers {
    all: BTreeMap<TransferId, Transfer>,
    /// The transfer that fills each reserved place.
    places: BTreeMap<DataPlace, TransferId>,
}

impl Transfers {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn fetch_from(&self, link: LinkId) -> bool {
        self.all.values().any(|transfer| transfer.link == link)
    }

    pub fn producer(&self, id: TransferId) -> Option<ProducerId> {
        self.all.get(&id).map(|transfer| transfer.producer)
    }

    /// Whether a place was reserved here, and not for another object.
    pub fn fills(&self, place: DataPlace) -> bool {
        self.places.contains_key(&place)
    }

    /// Reserves a place and begins to fetch.
    pub fn begin(
        &mut self,
        link: LinkId,
        batch: &ValidBatch,
        layout: ExternalLayout,
        regions: Vec<Region>,
        store: &mut Store,
        ctx: &mut Ctx,
    ) -> Result<TransferId, Refused> {
        if let Some(region) = regions.iter().find(|region| region.memory_kind != 0) {
            let kind = region.memory_kind;
            return Err(refuse(
                ErrorCode::Unsupported,
                format!("memory of kind {kind} is not supported"),
            ));
        }
        let id = TransferId(ctx.next_id());
        store.touch(ctx);
        let reserved = store.storage.reserve(&layout);
        let place = reserved.map_err(|error| store.refusal(&error))?;
        self.places.insert(place, id);
        let transfer = Transfer {
            link,
            producer: batch.header.producer,
            place,
            durability: batch.durability,
            block_bytes: batch.header.block_bytes(),
            checksums: vec![0; layout.block_count as usize],
            layout,
            regions,
            event: 0,
            event_offset: 0,
            block: 0,
            region: 0,
            region_offset: 0,
            parts: BTreeMap::new(),
            chunks: BTreeMap::new(),
            data_crc: batch.copied.as_ref().map(|copied| copied.data_crc),
            sealed_crc: 0,
            writing_bytes: 0,
            sealed: false,
        };
        self.all.insert(id, transfer);
        self.feed(id, Asks::Now, store, ctx);
        Ok(id)
    }

    /// Asks for chunks as far as bounds allow. Says whether any was asked for.
    pub fn feed(&mut self, id: TransferId, asks: Asks, store: &mut Store, ctx: &mut Ctx) -> bool {
        self.all
            .get_mut(&id)
            .is_some_and(|transfer| transfer.feed(id, asks, store, ctx))
    }

    /// A chunk has come. An error is the end of the transfer, which the caller abandons.
    pub fn chunk_arrived(
        &mut self,
        id: TransferId,
        token: BulkToken,
        result: Result<(Buffer, Vec<u32>), NetError>,
        store: &mut Store,
        ctx: &mut Ctx,
    ) -> Result<(), ErrorReply> {
        let Some(transfer) = self.all.get_mut(&id) else {
            return Ok(());
        };
        let Some(chunk) = transfer.chunks.remove(&token) else {
            return Ok(());
        };
        match check_chunk(result, chunk, transfer.block_bytes) {
            Ok((bytes, checksums)) => {
                transfer.note(chunk, &checksums);
                transfer.writing_bytes += chunk.bytes;
                let (place, position) = (transfer.place, chunk.position);
                store.storage.write_data(place, position, bytes.freeze());
                store.touch(ctx);
                transfer.feed(id, Asks::Now, store, ctx);
                Ok(())
            }
            Err(error) => {
                ctx.data.give_back_fetched(chunk.bytes);
                ctx.incoming.give_back(transfer.link, chunk.bytes);
                Err(error)
            }
        }
    }

    pub fn chunk_written(
        &mut self,
        place: DataPlace,
        bytes: u64,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        let Some(id) = self.places.get(&place).copied() else {
            return;
        };
        if let Some(transfer) = self.all.get_mut(&id) {
            let bytes = bytes.min(transfer.writing_bytes);
            transfer.writing_bytes -= bytes;
            ctx.data.give_back_fetched(bytes);
            ctx.incoming.give_back(transfer.link, bytes);
            transfer.feed(id, Asks::Now, store, ctx);
        }
    }

    /// The data is in its place: the transfer is over. With it comes what is wrong with the data,
    /// if it is not what the source of a mirror has stamped.
    pub fn ready(
        &mut self,
        place: DataPlace,
        store: &Store,
        ctx: &mut Ctx,
    ) -> Option<(TransferId, ProducerId, Result<(), ErrorReply>)> {
        let id = self.places.remove(&place)?;
        let transfer = self.all.remove(&id)?;
        ctx.data.give_back_fetched(transfer.writing_bytes);
        ctx.incoming
            .give_back(transfer.link, transfer.writing_bytes);
        ctx.incoming.leave(transfer.link, (id, store.id));
        let same = match transfer.data_crc {
            Some(stamped) if stamped != transfer.sealed_crc => Err(ErrorReply::retryable(
                ErrorCode::ChecksumMismatch,
                0,
                format!(
                    "{}: external data that came has checksum {:08x} of its blocks, the source has stamped {stamped:08x}",
                    store.name, transfer.sealed_crc
                ),
            )),
            _ => Ok(()),
        };
        let same = match ctx.planted(Fault::MirroredUnchecked) {
            true => Ok(()),
            false => same,
        };
        Some((id, transfer.producer, same))
    }

    /// The storage gave a place up by itself: which transfer has failed.
    pub fn lose_place(&mut self, place: DataPlace) -> Option<TransferId> {
        self.places.remove(&place)
    }

    /// Ends a transfer whose batch is not wanted any more.
    pub fn abandon(&mut self, id: TransferId, store: &mut Store, ctx: &mut Ctx) {
        let Some(transfer) = self.all.remove(&id) else {
            return;
        };
        let fetching: u64 = transfer.chunks.values().map(|chunk| chunk.bytes).sum();
        let under_way = fetching + transfer.writing_bytes;
        ctx.data.give_back_fetched(under_way);
        ctx.incoming.give_back(transfer.link, under_way);
        ctx.incoming.leave(transfer.link, (id, store.id));
        for token in transfer.chunks.keys() {
            ctx.bulk.remove(token);
        }
        if self.places.remove(&transfer.place).is_some() {
            store.storage.abandon(transfer.place);
            store.touch(ctx);
        }
    }
}

/// The checksum of block checksums, as a stamp has it.
fn table_crc(checksums: &[u32]) -> u32 {
    let blocks = checksums.iter();
    blocks.fold(0, |crc, block| crc32c_append(crc, &block.to_le_bytes()))
}

/// Compares a chunk with its owner's checksums, while it is in cache.
fn check_chunk(
    result: Result<(Buffer, Vec<u32>), NetError>,
    chunk: Chunk,
    block_bytes: u32,
) -> Result<(Buffer, Vec<u32>), ErrorReply> {
    let (bytes, checksums) = result.map_err(|error| {
        ErrorReply::retryable(
            ErrorCode::Cancelled,
            0,
            format!("fetching external data: {error}"),
        )
    })?;
    let at = chunk.position;
    if bytes.len() as u64 != chunk.bytes
        || checksums.len() as u64 != chunk.bytes.div_ceil(u64::from(block_bytes))
    {
        return Err(refuse(
            ErrorCode::Malformed,
            format!(
                "{} bytes with {} checksums came for {} bytes of external data at {at}",
                bytes.len(),
                checksums.len(),
                chunk.bytes
            ),
        ));
    }
    for (index, (computed, given)) in block_checksums(&bytes, block_bytes)
        .zip(&checksums)
        .enumerate()
    {
        if computed != *given {
            let at = at + index as u64 * u64::from(block_bytes);
            return Err(ErrorReply::retryable(
                ErrorCode::ChecksumMismatch,
                0,
                format!("external data at {at}: crc {computed:08x}, its owner says {given:08x}"),
            ));
        }
    }
    Ok((bytes, checksums))
}
