//! Point reads of batches, without a subscription.

use crate::ids::{Asker, StorageId};
use crate::node::Node;
use crate::partition::subscription::{gap_for_reader, stamped_gap};
use crate::partition::{Reading, storage_error};
use crate::refusal::{Refused, malformed};
use crate::timers::Timer;
use bytes::Bytes;
use log::{Found, ReadBatches, StorageError};
use std::time::Duration;
use wire::codec::Reader;
use wire::message::{Fetch, Fetched, RequestHead};
use wire::record::Position;
use wire::{Codec, ErrorReply, Incarnation, Offset, TopicId};

/// A fetch that is not answered yet.
pub(crate) struct Fetching {
    storage: StorageId,
    topic: TopicId,
    position: Position,
    bytes_max: u64,
    inline_data: bool,
    /// Until when it waits for a first event.
    until: Duration,
    reading: bool,
}

impl Node {
    pub(crate) fn fetch(
        &mut self,
        asker: Asker,
        head: &RequestHead,
        from: &mut Reader<'_>,
    ) -> Result<(), Refused> {
        let fetch = Fetch::decode(from).map_err(malformed)?;
        self.refuse_if_closing()?;
        let storage = self.storage_of(asker, head.topic, fetch.partition)?;
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return Ok(());
        };
        let position = partition.check_position(fetch.from)?;
        partition.fetches.insert(asker);
        let until = self.ctx.now.monotonic + Duration::from_millis(fetch.wait_max_ms.into());
        let fetching = Fetching {
            storage,
            topic: head.topic,
            position,
            bytes_max: fetch.bytes_max.min(self.ctx.options.limits.fetch_bytes_max),
            inline_data: fetch.inline_data,
            until,
            reading: false,
        };
        self.fetches.insert(asker, fetching);
        self.ctx
            .timers
            .insert(until, Timer::Fetch(asker.link, asker.id));
        self.advance_fetch(asker);
        Ok(())
    }

    pub(crate) fn advance_fetch(&mut self, asker: Asker) {
        let Some(fetching) = self.fetches.get(&asker) else {
            return;
        };
        let Some(partition) = self.partitions.get(&fetching.storage) else {
            return;
        };
        if fetching.reading {
            return;
        }
        let present = partition.storage.state().incarnation;
        let (position, topic, storage) = (fetching.position, fetching.topic, fetching.storage);
        if position.incarnation < present {
            let index = partition.key.partition;
            let (gap, next) = self.lost_with_life(partition, topic, index, position, present);
            let batch = stamped_gap(topic, &gap, next.offset);
            self.fetched(asker, next.incarnation, vec![batch]);
        } else if position.offset < partition.visible {
            let end = partition.visible;
            let read = ReadBatches {
                from: position.offset,
                end,
                bytes_max: fetching.bytes_max.max(1),
                inline_data: fetching.inline_data,
            };
            if let Some(fetching) = self.fetches.get_mut(&asker) {
                fetching.reading = true;
            }
            self.read_batches(storage, Reading::Fetch(asker, end), read);
        } else if fetching.until <= self.ctx.now.monotonic {
            self.fetched(asker, present, Vec::new());
        }
    }

    pub(crate) fn fetch_read(
        &mut self,
        storage: StorageId,
        asker: Asker,
        end: Offset,
        found: Result<Found, StorageError>,
    ) {
        let present = self
            .partitions
            .get(&storage)
            .map_or(Incarnation(0), |partition| {
                partition.storage.state().incarnation
            });
        let Some(fetching) = self.fetches.get_mut(&asker) else {
            return;
        };
        fetching.reading = false;
        match found {
            Ok(Found::Batches { batches, .. }) => self.fetched(asker, present, batches),
            Ok(Found::Gap(gap)) => {
                let read = Position {
                    incarnation: present,
                    ..fetching.position
                };
                let gap = gap_for_reader(gap, read);
                let batch = stamped_gap(fetching.topic, &gap, gap.end);
                self.fetched(asker, gap.incarnation, vec![batch]);
            }
            Ok(Found::Nothing) => {
                fetching.position.offset = end;
                self.advance_fetch(asker);
            }
            Err(error) => self.end_fetch(asker, storage_error(&error)),
        }
    }

    fn fetched(&mut self, asker: Asker, incarnation: Incarnation, batches: Vec<Bytes>) {
        let Some(fetching) = self.fetches.get(&asker) else {
            return;
        };
        let Some(partition) = self.partitions.get(&fetching.storage) else {
            return;
        };
        let fetched = Fetched {
            incarnation,
            batch_bytes: batches.iter().map(|batch| batch.len() as u64).collect(),
            watermarks: partition.watermarks(&partition.storage.state()),
        };
        self.forget_fetch(asker);
        self.reply_in_bulk(asker, fetched.to_bytes(), batches);
    }

    pub(crate) fn fetch_waited(&mut self, asker: Asker) {
        self.advance_fetch(asker);
    }

    pub(crate) fn end_fetch(&mut self, asker: Asker, error: ErrorReply) {
        self.forget_fetch(asker);
        self.refuse_request(asker, error);
    }

    pub(crate) fn forget_fetch(&mut self, asker: Asker) {
        let Some(fetching) = self.fetches.remove(&asker) else {
            return;
        };
        self.ctx
            .timers
            .remove(fetching.until, Timer::Fetch(asker.link, asker.id));
        if let Some(partition) = self.partitions.get_mut(&fetching.storage) {
            partition.fetches.remove(&asker);
        }
    }
}
