//! Point reads of batches, without a subscription.

use super::store::{Reading, Store, storage_error};
use super::subscription::{gap_for_reader, stamped_gap};
use crate::answer::{Answer, Batches};
use crate::ctx::Ctx;
use crate::ids::RequestId;
use crate::refusal::Refused;
use crate::timers::Timer;
use bytes::Bytes;
use log::{Found, ReadBatches, StorageError};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::message::Fetch;
use wire::record::Position;
use wire::{ErrorReply, Incarnation, Offset};

/// A fetch that is not answered yet.
struct Fetching {
    position: Position,
    bytes_max: u64,
    inline_data: bool,
    /// Until when it waits for a first event.
    until: Duration,
    reading: bool,
}

/// The fetches of one partition, by their requests.
#[derive(Default)]
pub(crate) struct Fetches(BTreeMap<RequestId, Fetching>);

impl Fetches {
    pub fn begin(
        &mut self,
        caller: RequestId,
        fetch: &Fetch,
        store: &mut Store,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let position = store.check_position(fetch.from)?;
        let until = ctx.now.monotonic + Duration::from_millis(fetch.wait_max_ms.into());
        let fetching = Fetching {
            position,
            bytes_max: fetch.bytes_max.min(ctx.options.limits.fetch_bytes_max),
            inline_data: fetch.inline_data,
            until,
            reading: false,
        };
        self.0.insert(caller, fetching);
        ctx.timers.insert(until, Timer::Fetch(store.id, caller));
        self.advance(caller, store, ctx);
        Ok(())
    }

    /// More of the partition is visible.
    pub fn advance_all(&mut self, store: &mut Store, ctx: &mut Ctx) {
        self.0.retain(|caller, fetching| {
            let is_open = fetching.advance(*caller, store, ctx);
            if !is_open {
                fetching.disarm(*caller, store, ctx);
            }
            is_open
        });
    }

    /// Answers a fetch, or reads for it, if that can be done now; its time may have passed.
    pub fn advance(&mut self, caller: RequestId, store: &mut Store, ctx: &mut Ctx) {
        if let Some(fetching) = self.0.get_mut(&caller)
            && !fetching.advance(caller, store, ctx)
        {
            self.forget(caller, store, ctx);
        }
    }

    /// What a fetch's reading up to `end` found.
    pub fn was_read(
        &mut self,
        caller: RequestId,
        end: Offset,
        found: Result<Found, StorageError>,
        store: &mut Store,
        ctx: &mut Ctx,
    ) {
        let Some(fetching) = self.0.get_mut(&caller) else {
            return;
        };
        fetching.reading = false;
        let present = store.state().incarnation;
        match found {
            Ok(Found::Batches { batches, .. }) => fetched(caller, present, batches, store, ctx),
            Ok(Found::Gap(gap)) => {
                let read = Position {
                    incarnation: present,
                    ..fetching.position
                };
                let gap = gap_for_reader(gap, read);
                let batch = stamped_gap(store, &gap, gap.end);
                fetched(caller, gap.incarnation, vec![batch], store, ctx);
            }
            Ok(Found::Nothing) => {
                fetching.position.offset = end;
                return self.advance(caller, store, ctx);
            }
            Err(error) => ctx.refuse(caller, storage_error(&error)),
        }
        self.forget(caller, store, ctx);
    }

    pub fn end_all(&mut self, error: &ErrorReply, store: &Store, ctx: &mut Ctx) {
        while let Some((caller, _)) = self.0.first_key_value() {
            let caller = *caller;
            self.forget(caller, store, ctx);
            ctx.refuse(caller, error.clone());
        }
    }

    /// A fetch is answered, or nobody waits for its answer any more.
    pub fn forget(&mut self, caller: RequestId, store: &Store, ctx: &mut Ctx) {
        if let Some(fetching) = self.0.remove(&caller) {
            fetching.disarm(caller, store, ctx);
        }
    }
}

impl Fetching {
    /// Answers or reads. Returns whether the fetch is not answered yet.
    fn advance(&mut self, caller: RequestId, store: &mut Store, ctx: &mut Ctx) -> bool {
        if self.reading {
            return true;
        }
        let present = store.state().incarnation;
        if self.position.incarnation < present {
            let (gap, next) = store.lost_with_life(self.position);
            let batch = stamped_gap(store, &gap, next.offset);
            fetched(caller, next.incarnation, vec![batch], store, ctx);
            return false;
        }
        if self.position.offset < store.visible {
            let end = store.visible;
            let read = ReadBatches {
                from: self.position.offset,
                end,
                bytes_max: self.bytes_max.max(1),
                inline_data: self.inline_data,
            };
            self.reading = true;
            store.read_batches(Reading::Fetch(caller, end), read, ctx);
            return true;
        }
        let waits = self.until > ctx.now.monotonic;
        if !waits {
            fetched(caller, present, Vec::new(), store, ctx);
        }
        waits
    }

    fn disarm(&self, caller: RequestId, store: &Store, ctx: &mut Ctx) {
        ctx.timers
            .remove(self.until, Timer::Fetch(store.id, caller));
    }
}

fn fetched(
    caller: RequestId,
    incarnation: Incarnation,
    batches: Vec<Bytes>,
    store: &Store,
    ctx: &mut Ctx,
) {
    let fetched = Batches {
        incarnation,
        batches,
        watermarks: store.watermarks(),
    };
    ctx.answer(caller, Answer::Fetched(fetched));
}
