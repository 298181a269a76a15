//! External data comes in: fetched from its owner's memory in chunks, checked
//! while it is in cache, written to its place.

use crate::flow::Asks;
use crate::ids::{Asker, Bulk, LinkId, StorageId, TransferId};
use crate::io::Output;
use crate::node::Node;
use crate::partition::appends::ArrivalStage;
use crate::partition::incoming::Incoming;
use crate::refusal::{Refused, refuse};
use log::{DataPlace, StorageError};
use memory::Buffer;
use net::{BulkToken, NetError, RegionRead};
use std::collections::BTreeMap;
use wire::batch::ExternalLayout;
use wire::checksum::{block_checksums, crc32c_combine};
use wire::frame::BULK_CHUNK_BYTES;
use wire::message::Region;
use wire::{Durability, ErrorCode, ErrorReply, ProducerId};

/// The fetching of one batch's external data.
pub(crate) struct Transfer {
    link: LinkId,
    storage: StorageId,
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

impl Node {
    /// Reserves a place and begins to fetch.
    pub(crate) fn begin_transfer(
        &mut self,
        link: LinkId,
        storage: StorageId,
        incoming: &Incoming,
        layout: ExternalLayout,
        regions: Vec<Region>,
    ) -> Result<TransferId, Refused> {
        if let Some(region) = regions.iter().find(|region| region.memory_kind != 0) {
            let kind = region.memory_kind;
            return Err(refuse(
                ErrorCode::Unsupported,
                format!("memory of kind {kind} is not supported"),
            ));
        }
        let id = TransferId(self.ctx.next_id());
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return Err(refuse(ErrorCode::UnknownPartition, "the partition is gone"));
        };
        self.ctx.dirty.partitions.insert(storage);
        let place = match partition.storage.reserve(&layout) {
            Ok(place) => place,
            Err(error) => return Err(self.refusal(storage, &error)),
        };
        partition.places.insert(place, id);
        let transfer = Transfer {
            link,
            storage,
            producer: incoming.header.producer,
            place,
            durability: incoming.durability,
            block_bytes: incoming.header.block_bytes(),
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
            writing_bytes: 0,
            sealed: false,
        };
        self.transfers.insert(id, transfer);
        self.feed_transfer(id, Asks::Now);
        Ok(id)
    }

    /// Asks for chunks as far as bounds allow. Says whether any was asked for.
    fn feed_transfer(&mut self, id: TransferId, asks: Asks) -> bool {
        let mut fed = false;
        loop {
            let chunks_max = self.ctx.options.limits.transfer_chunks_max;
            let Some(transfer) = self.transfers.get_mut(&id) else {
                return fed;
            };
            let under_way = transfer.chunks.len() as u64
                + transfer.writing_bytes.div_ceil(BULK_CHUNK_BYTES as u64);
            if under_way >= chunks_max as u64 {
                return fed;
            }
            if transfer.is_fetched() {
                self.seal_transfer(id);
                return fed;
            }
            // Whatever the chunk's length turns out to be, a whole one is taken first.
            let most = BULK_CHUNK_BYTES as u64;
            let link = transfer.link;
            if !self.ctx.incoming.admits(link, most, asks) || !self.ctx.data.try_fetch(most) {
                self.ctx.incoming.wait(link, id.0);
                return fed;
            }
            let Some((chunk, region, offset)) = transfer.next_chunk() else {
                self.ctx.data.give_back_fetched(most);
                if transfer.chunks.is_empty() {
                    self.seal_transfer(id);
                }
                return fed;
            };
            self.ctx.data.give_back_fetched(most - chunk.bytes);
            self.ctx.incoming.take(link, chunk.bytes);
            let token = BulkToken(self.ctx.next_id());
            transfer.chunks.insert(token, chunk);
            self.ctx.bulk.insert(token, Bulk::Transfer(id));
            self.ctx.outputs.push_back(Output::Read {
                link: transfer.link,
                token,
                read: RegionRead {
                    region,
                    offset,
                    into: self.ctx.options.pool.take(chunk.bytes as usize),
                    block_bytes: transfer.block_bytes,
                },
            });
            fed = true;
        }
    }

    /// Lets transfers go on that waited for the budget, in turn. Says
    /// whether any did.
    pub(crate) fn feed_starved_transfers(&mut self) -> bool {
        let most = BULK_CHUNK_BYTES as u64;
        while self.ctx.data.may_fetch(most) {
            let Some(id) = self.ctx.incoming.next(most) else {
                return false;
            };
            // Otherwise it has nothing more to ask for.
            if self.feed_transfer(TransferId(id), Asks::InTurn) {
                return true;
            }
        }
        false
    }

    pub(crate) fn chunk_arrived(
        &mut self,
        id: TransferId,
        token: BulkToken,
        result: Result<(Buffer, Vec<u32>), NetError>,
    ) {
        let Some(transfer) = self.transfers.get_mut(&id) else {
            return;
        };
        let Some(chunk) = transfer.chunks.remove(&token) else {
            return;
        };
        let checked = check_chunk(result, chunk, transfer.block_bytes);
        match checked {
            Ok((bytes, checksums)) => {
                transfer.note(chunk, &checksums);
                transfer.writing_bytes += chunk.bytes;
                let (storage, place) = (transfer.storage, transfer.place);
                if let Some(partition) = self.partitions.get_mut(&storage) {
                    partition
                        .storage
                        .write_data(place, chunk.position, bytes.freeze());
                    self.ctx.dirty.partitions.insert(storage);
                }
                self.feed_transfer(id, Asks::Now);
            }
            Err(error) => {
                self.ctx.data.give_back_fetched(chunk.bytes);
                self.ctx.incoming.give_back(transfer.link, chunk.bytes);
                self.fail_transfer(id, error);
            }
        }
    }

    pub(crate) fn chunk_written(&mut self, storage: StorageId, place: DataPlace, bytes: u64) {
        let id = self
            .partitions
            .get(&storage)
            .and_then(|partition| partition.places.get(&place));
        let Some(id) = id.copied() else {
            return;
        };
        if let Some(transfer) = self.transfers.get_mut(&id) {
            let bytes = bytes.min(transfer.writing_bytes);
            transfer.writing_bytes -= bytes;
            self.ctx.data.give_back_fetched(bytes);
            self.ctx.incoming.give_back(transfer.link, bytes);
            self.feed_transfer(id, Asks::Now);
        }
    }

    /// Everything was given to the storage.
    fn seal_transfer(&mut self, id: TransferId) {
        let Some(transfer) = self.transfers.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut transfer.sealed, true) {
            return;
        }
        transfer.join_parts();
        let checksums = std::mem::take(&mut transfer.checksums);
        if let Some(partition) = self.partitions.get_mut(&transfer.storage) {
            partition
                .storage
                .seal_data(transfer.place, checksums, transfer.durability);
            self.ctx.dirty.partitions.insert(transfer.storage);
        }
    }

    /// The data is in its place: the batch may follow when it has its turn.
    pub(crate) fn data_ready(&mut self, storage: StorageId, place: DataPlace) {
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return;
        };
        let Some(id) = partition.places.remove(&place) else {
            return;
        };
        let Some(transfer) = self.transfers.remove(&id) else {
            return;
        };
        self.ctx.data.give_back_fetched(transfer.writing_bytes);
        self.ctx
            .incoming
            .give_back(transfer.link, transfer.writing_bytes);
        self.ctx.incoming.leave(transfer.link, id.0);
        let queue = partition.arrivals.get_mut(&transfer.producer);
        let arrival = queue.and_then(|queue| {
            queue
                .iter_mut()
                .find(|arrival| arrival.stage == ArrivalStage::Transferring(id))
        });
        match arrival {
            Some(arrival) => {
                arrival.stage = ArrivalStage::Ready(Some(place));
                self.append_arrivals(storage, transfer.producer);
            }
            None => partition.storage.abandon(place),
        }
    }

    pub(crate) fn data_failed(
        &mut self,
        storage: StorageId,
        place: DataPlace,
        error: &StorageError,
    ) {
        let partition = self.partitions.get_mut(&storage);
        let Some(id) = partition.and_then(|partition| partition.places.remove(&place)) else {
            return;
        };
        self.fail_transfer(id, self.refusal(storage, error));
    }

    /// Gives up a transfer, its batch, and those that wait behind it.
    fn fail_transfer(&mut self, id: TransferId, error: ErrorReply) {
        let Some(transfer) = self.transfers.get(&id) else {
            return;
        };
        let (storage, producer) = (transfer.storage, transfer.producer);
        let queue = self
            .partitions
            .get(&storage)
            .and_then(|partition| partition.arrivals.get(&producer));
        let index = queue.and_then(|queue| {
            let stage = ArrivalStage::Transferring(id);
            queue.iter().position(|arrival| arrival.stage == stage)
        });
        let asker: Option<Asker> = index.zip(queue).map(|(index, queue)| queue[index].asker);
        if let Some(asker) = asker {
            self.refuse_request(asker, error);
        }
        match index {
            Some(index) => self.give_up_arrivals_from(storage, producer, index),
            None => self.abandon_transfer(id),
        }
    }

    /// Ends a transfer whose batch is not wanted any more.
    pub(crate) fn abandon_transfer(&mut self, id: TransferId) {
        let Some(transfer) = self.transfers.remove(&id) else {
            return;
        };
        let fetching: u64 = transfer.chunks.values().map(|chunk| chunk.bytes).sum();
        let under_way = fetching + transfer.writing_bytes;
        self.ctx.data.give_back_fetched(under_way);
        self.ctx.incoming.give_back(transfer.link, under_way);
        self.ctx.incoming.leave(transfer.link, id.0);
        for token in transfer.chunks.keys() {
            self.ctx.bulk.remove(token);
        }
        if let Some(partition) = self.partitions.get_mut(&transfer.storage)
            && partition.places.remove(&transfer.place).is_some()
        {
            partition.storage.abandon(transfer.place);
            self.ctx.dirty.partitions.insert(transfer.storage);
        }
    }

    /// A client is gone, and with it the memory that was to be read.
    pub(crate) fn abandon_transfers(&mut self, link: LinkId) {
        let gone = self
            .transfers
            .iter()
            .filter(|(_, transfer)| transfer.link == link);
        let gone: Vec<TransferId> = gone.map(|(id, _)| *id).collect();
        for id in gone {
            let error = refuse(ErrorCode::Cancelled, "the connection has ended");
            self.fail_transfer(id, error);
        }
    }
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
