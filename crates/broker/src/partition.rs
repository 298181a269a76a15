//! One partition: its storage, batches on their way into it, and who reads it.
//!
//! A partition knows nothing of sessions, topics or queues. What an act asks of them goes out
//! as [`Effect`]s; [`Partition::advance`] is called before the node waits for its next input.

pub(crate) mod acks;
pub(crate) mod appends;
pub(crate) mod capacity;
pub(crate) mod fetch;
pub(crate) mod incoming;
pub(crate) mod scope;
pub(crate) mod space;
pub(crate) mod store;
pub(crate) mod subscription;
mod time_search;
pub(crate) mod transfer;
pub(crate) mod wait_queue;

use crate::coordinator::served_topic::partition_directory;
use crate::ctx::Ctx;
use crate::effects::{Copied, Effect, Keep, NewPartition, PartitionAct, WasRead};
use crate::faults::Fault;
use crate::ids::{Opening, PartitionKey, RequestId, StorageId, TransferId};
use crate::io::Job;
use crate::refusal::{Refused, refuse};
use crate::timers::Timer;
use appends::{Appends, Writer};
use fetch::Fetches;
use incoming::{ProduceCall, ValidBatch};
use log::{DataPlace, OperationToken, Outcome, ReadToken, StorageEvent, StorageKind, StorageState};
use log::{DiskError, Found, StorageError};
use memory::Buffer;
use net::{BulkToken, NetError};
use scope::Scope;
use space::PartitionSpace;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{Reading, Store};
use subscription::Subscriptions;
use topic::{Definition, Retention, TopicKind};
use wire::batch::Header;
use wire::frame::BULK_CHUNK_BYTES;
use wire::message::{Fetch, Subscribe};
use wire::record::{GapReason, Position};
use wire::{Durability, ErrorCode, ErrorReply, Offset, ProducerEpoch, ProducerId};

/// How long after an append retention is applied at the latest.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// How soon a storage is ticked again.
const TICK_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Who writes the partitions of a topic; a link is not open yet.
fn writer_of(definition: &Definition) -> Writer {
    match definition.mirror_of() {
        None => Writer::Anybody,
        Some(_) => Writer::Link(None),
    }
}

/// The partitions of a node.
pub(crate) type Partitions = BTreeMap<StorageId, Partition>;

/// A partition whose storage is open.
pub(crate) struct Partition {
    pub store: Store,
    pub appends: Appends,
    pub subscriptions: Subscriptions,
    fetches: Fetches,
    /// Whether the storage takes events for now.
    pub space: PartitionSpace,
    kind: Arc<dyn StorageKind>,
    directory: PathBuf,
    tick: Tick,
    leaving: Option<Leaving>,
}

/// When a storage is looked at for its retention and background syncs.
#[derive(Debug)]
struct Tick {
    armed: Option<Duration>,
    /// Where the partition ended at its last tick, and when that was.
    end: Offset,
    at: Duration,
}

/// How a partition ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Leaving {
    /// Whether what it stored goes too.
    remove: bool,
    /// Whether its storage has closed.
    closed: bool,
}

/// Epoch of the leader of a partition that was just made. See "Leader epochs" in the README.
pub(crate) const LEADER_EPOCH_FIRST: u32 = 1;

/// What is left to do of a partition that has ended.
pub(crate) struct Ended {
    /// Which it was.
    pub key: PartitionKey,
    /// Why it was not closed cleanly, if it was not.
    pub unclean: Option<String>,
    /// What removes its files, if they go, and what these are for people.
    pub remove: Option<(Job, String)>,
}

impl Partition {
    /// A partition whose storage was opened. `None` if its kind of storage is not known.
    pub fn new(id: StorageId, new: NewPartition, ctx: &Ctx) -> Option<Self> {
        let NewPartition {
            topic_name,
            definition,
            storage,
            record,
        } = new;
        let kind = ctx.kind(&record.storage)?;
        let max = kind.durability_max();
        // A storage with files may find no space for what it has in memory.
        // Waiting until it is written costs little, and nothing that was
        // acknowledged or seen is ever taken back.
        let least = Durability::Written.min(max);
        let durability = definition.durability().unwrap_or(max).max(least);
        let state = storage.state();
        let visible_at = match ctx.planted(Fault::VisibleEarly) {
            true => Durability::Memory,
            false => durability,
        };
        Some(Self {
            store: Store {
                id,
                key: PartitionKey {
                    topic: record.topic,
                    partition: record.partition,
                },
                name: topic::part_name(topic::spread_name(&topic_name), record.partition.0),
                storage,
                durability,
                visible_at,
                visible: state.reached(durability),
                ends: BTreeMap::new(),
                failure: None,
                readings: BTreeMap::new(),
                operations_under_way: 0,
                leader_epoch: record.leader_epoch,
                ended: record.ended.clone(),
            },
            appends: Appends::new(writer_of(&definition)),
            subscriptions: Subscriptions::default(),
            fetches: Fetches::default(),
            space: PartitionSpace::default(),
            directory: partition_directory(&ctx.options.directory, &record),
            kind,
            tick: Tick {
                armed: None,
                end: state.end,
                at: Duration::ZERO,
            },
            leaving: None,
        })
    }

    pub fn produce(&mut self, call: ProduceCall, ctx: &mut Ctx) -> Result<(), Refused> {
        trace::passes!("handed to its partition");
        self.appends.produce(call, &mut self.store, ctx)
    }

    /// Whether a producer's batch is here already, be it that it waits for room.
    pub fn has_already(&self, header: &Header) -> bool {
        self.appends.has_already(header, &self.store)
    }

    /// A mirror's link begins on a connection.
    pub fn open_for_link(&mut self, opening: Opening, ctx: &mut Ctx) {
        self.appends.open_for_link(opening, &mut self.store, ctx);
    }

    /// Appends a batch of the server itself.
    pub fn append(
        &mut self,
        caller: RequestId,
        batch: ValidBatch,
        place: Option<DataPlace>,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let store = &mut self.store;
        self.appends.append(caller, batch, place, store, ctx)
    }

    /// Acknowledges a batch of the server itself that was appended before.
    pub fn acknowledge_duplicate(
        &mut self,
        caller: RequestId,
        batch: &ValidBatch,
        base_offset: Offset,
        ctx: &mut Ctx,
    ) {
        let store = &self.store;
        self.appends
            .acknowledge_duplicate(caller, batch, base_offset, store, ctx);
    }

    /// Nobody waits for a produce call any more.
    pub fn forget_produce(&mut self, caller: RequestId, producer: ProducerId, ctx: &mut Ctx) {
        self.appends.forget(caller, producer, &mut self.store, ctx);
    }

    /// A producer has a new epoch: batches of an older one do not wait any more.
    pub fn fence(&mut self, producer: ProducerId, epoch: ProducerEpoch, ctx: &mut Ctx) {
        self.appends.fence(producer, epoch, &mut self.store, ctx);
    }

    pub fn chunk_arrived(
        &mut self,
        transfer: TransferId,
        token: BulkToken,
        result: Result<(Buffer, Vec<u32>), NetError>,
        ctx: &mut Ctx,
    ) {
        let store = &mut self.store;
        self.appends
            .chunk_arrived(transfer, token, result, store, ctx);
    }

    /// Lets a transfer go on that waited for the budget. Says whether it did.
    pub fn feed_transfer(&mut self, transfer: TransferId, ctx: &mut Ctx) -> bool {
        self.appends.feed_transfer(transfer, &mut self.store, ctx)
    }

    /// Batches may have waited for room for too long.
    pub fn report_waiting(&mut self, ctx: &mut Ctx) {
        self.appends.report_waiting(&mut self.store, ctx);
    }

    /// Nothing that waits for room is admitted any more.
    pub fn end_waiting(&mut self, error: &ErrorReply, ctx: &mut Ctx) {
        self.appends.end_waiting(error, &mut self.store, ctx);
    }

    pub fn subscribe(
        &mut self,
        caller: RequestId,
        (subscribe, scope): (Subscribe, Scope),
        position: Position,
        ctx: &mut Ctx,
    ) {
        let store = &mut self.store;
        self.subscriptions
            .open(caller, (subscribe, scope), position, store, ctx);
    }

    pub fn more_credit(&mut self, caller: RequestId, bytes: u64, ctx: &mut Ctx) {
        let store = &mut self.store;
        self.subscriptions.more_credit(caller, bytes, store, ctx);
    }

    /// The connection of a subscription takes deliveries again.
    pub fn advance_subscription(&mut self, caller: RequestId, ctx: &mut Ctx) {
        self.subscriptions.advance(caller, &mut self.store, ctx);
    }

    pub fn fetch(
        &mut self,
        caller: RequestId,
        fetch: &Fetch,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        self.fetches.begin(caller, fetch, &mut self.store, ctx)
    }

    /// A fetch may have waited for long enough.
    pub fn advance_fetch(&mut self, caller: RequestId, ctx: &mut Ctx) {
        self.fetches.advance(caller, &mut self.store, ctx);
    }

    pub fn forget_fetch(&mut self, caller: RequestId, ctx: &mut Ctx) {
        self.fetches.forget(caller, &self.store, ctx);
    }

    /// Ends everything that reads the partition.
    pub fn end_readers(&mut self, error: &ErrorReply, ctx: &mut Ctx) {
        self.subscriptions.end_all(error, ctx);
        self.fetches.end_all(error, &self.store, ctx);
    }

    /// Answers everything that waits for the partition to take events.
    pub fn fail(&mut self, error: &ErrorReply, ctx: &mut Ctx) {
        self.appends.fail(error, &mut self.store, ctx);
    }

    /// Does what those ask for who decide of its topic.
    pub fn act(&mut self, act: PartitionAct, ctx: &mut Ctx) {
        match act {
            PartitionAct::Keep(keep) => self.keep(&keep, ctx),
            PartitionAct::Remove(why) => {
                ctx.dirty.streams.insert(self.store.key.topic);
                if let Some(error) = why {
                    self.end_readers(&error, ctx);
                    self.fail(&error, ctx);
                }
                self.leave(true, ctx);
            }
            PartitionAct::Fence(producer, epoch) => self.fence(producer, epoch, ctx),
            PartitionAct::OpenForLink(opening) => self.open_for_link(opening, ctx),
            PartitionAct::Adopt(producers) => self.store.storage.adopt_producers(producers),
            PartitionAct::Yield(error) => {
                self.end_readers(&error, ctx);
                self.fail(&error, ctx);
                self.appends.writer = Writer::Nobody;
            }
            PartitionAct::Lead {
                definition,
                leader_epoch,
                ended,
                ends,
            } => {
                self.appends.writer = writer_of(&definition);
                let store = &mut self.store;
                (store.leader_epoch, store.ended, store.ends) = (leader_epoch, ended, ends);
                store.touch(ctx);
            }
        }
    }

    /// A disk operation was carried out, and takes effect.
    pub fn operation_done(
        &mut self,
        token: OperationToken,
        result: Result<Outcome, DiskError>,
        ctx: &mut Ctx,
    ) {
        trace::passes!("the disk has done what was asked: what waited for it goes on");
        self.store.operations_under_way -= 1;
        self.store.storage.complete(token, result);
        self.advance(ctx);
    }

    /// What the partition keeps: by its topic's definition, within `bound`, and whatever one of
    /// the consumers has not acknowledged whose positions are given.
    pub fn keep(&mut self, keep: &Keep, ctx: &mut Ctx) {
        let Keep {
            definition,
            bound,
            acknowledged,
        } = keep;
        let bound = *bound;
        let store = &mut self.store;
        let offset_now = |position: Option<Position>| {
            let present = store.state().incarnation;
            match position {
                None => Offset(0),
                Some(position) if position.incarnation == present => position.offset,
                Some(position) => store.translate(position, present).offset,
            }
        };
        let keep_from = acknowledged.iter().copied().map(offset_now).min();
        let keep_from = if ctx.planted(Fault::DropUnacknowledged) {
            keep_from.map(|_| store.state().end)
        } else if ctx.planted(Fault::KeepAcknowledged) {
            keep_from.map(|_| Offset(0))
        } else {
            keep_from
        };
        let state = store.state();
        let policy = definition.overflow();
        if writer_of(definition) == Writer::Anybody {
            self.appends.writer = Writer::Anybody;
        }
        self.appends.capacity.set(policy, bound, keep_from, &state);
        let from = keep_from.unwrap_or(Offset(u64::MAX));
        let retention = storage_retention(definition, bound);
        store.storage.set_retention(retention, from);
        // Without a limit nobody wants more than what is not acknowledged.
        if let Some(offset) = keep_from
            && definition.retention().keeps_all()
            && offset > store.state().first
        {
            store.storage.remove_before(offset, GapReason::Retention);
        }
        store.touch(ctx);
    }

    /// Lets everything take effect that was done with the storage: operations
    /// go out, events come in, answers that waited are given.
    pub fn advance(&mut self, ctx: &mut Ctx) {
        self.appends.advance_waiting(&mut self.store, ctx);
        loop {
            self.store.hand_out(ctx);
            match self.store.storage.poll_event() {
                Some(event) => self.storage_event(event, ctx),
                None => break,
            }
        }
        // What has become durable is acknowledged and shown.
        self.appends.acknowledge(&self.store, ctx);
        let state = self.store.state();
        self.advance_visible(&state, ctx);
        if let Some(failure) = state.failure {
            self.note_failure(&failure, ctx);
        }
        self.arm_tick(ctx);
    }

    fn storage_event(&mut self, event: StorageEvent, ctx: &mut Ctx) {
        let store = &mut self.store;
        match event {
            // Watermarks are looked at when all events are in.
            StorageEvent::Progress => {}
            StorageEvent::DataWritten { place, bytes } if self.appends.fills(place) => {
                self.appends.chunk_written(place, bytes, store, ctx);
            }
            StorageEvent::DataWritten { place, .. } => self.copied(place, Copied::Written, ctx),
            StorageEvent::DataReady { place } if self.appends.fills(place) => {
                self.appends.data_ready(place, store, ctx);
            }
            StorageEvent::DataReady { place } => self.copied(place, Copied::Ready, ctx),
            StorageEvent::DataFailed { place, error } if self.appends.fills(place) => {
                self.appends.data_failed(place, &error, store, ctx);
            }
            StorageEvent::DataFailed { place, error } => {
                let refusal = store.refusal(&error);
                self.copied(place, Copied::Failed(refusal), ctx);
            }
            StorageEvent::Read { token, found } => self.batches_read(token, found, ctx),
            StorageEvent::EventOpened { token, data } => {
                self.was_read(token, WasRead::Event(data), ctx);
            }
            StorageEvent::DataRead { token, pieces } => {
                self.was_read(token, WasRead::Data(pieces), ctx);
            }
            StorageEvent::Refused { from, error } => {
                self.appends.undone(from, &error, store, ctx);
            }
            StorageEvent::Full(why) => {
                self.space.full(why, ctx);
                self.space.report(&store.name, ctx);
            }
            StorageEvent::HasSpace => {
                self.space.has_space();
                self.space.report(&store.name, ctx);
            }
            StorageEvent::Lost(gap) => {
                // A batch that waits may have room now.
                store.touch(ctx);
                if gap.reason == GapReason::Discarded {
                    self.appends.capacity.drops.discarded += gap.end.0 - gap.first.0;
                }
                let present = store.state().incarnation;
                ctx.effects.push_back(Effect::Lost(store.key, present, gap));
            }
            StorageEvent::Closed => {
                if let Some(leaving) = &mut self.leaving {
                    leaving.closed = true;
                }
            }
        }
    }

    /// Data was stored in a place that another object has reserved.
    fn copied(&self, place: DataPlace, how: Copied, ctx: &mut Ctx) {
        let effect = Effect::Copy(self.store.id, place, how);
        ctx.effects.push_back(effect);
    }

    fn batches_read(
        &mut self,
        token: ReadToken,
        found: Result<Found, StorageError>,
        ctx: &mut Ctx,
    ) {
        let store = &mut self.store;
        match store.readings.remove(&token) {
            Some(Reading::Subscription(caller, end)) => {
                let subscriptions = &mut self.subscriptions;
                subscriptions.was_read(caller, end, found, store, ctx);
            }
            Some(Reading::Fetch(caller, end)) => {
                self.fetches.was_read(caller, end, found, store, ctx);
            }
            Some(Reading::For(reader)) => {
                let effect = Effect::Read(reader, WasRead::Batches(found));
                ctx.effects.push_back(effect);
            }
            None => {}
        }
    }

    /// Something else than batches was read, which only other objects do.
    fn was_read(&mut self, token: ReadToken, found: WasRead, ctx: &mut Ctx) {
        if let Some(Reading::For(reader)) = self.store.readings.remove(&token) {
            ctx.effects.push_back(Effect::Read(reader, found));
        }
    }

    fn advance_visible(&mut self, state: &StorageState, ctx: &mut Ctx) {
        let store = &mut self.store;
        let visible = state.reached(store.visible_at);
        if visible <= store.visible {
            return;
        }
        store.visible = visible;
        self.subscriptions.advance_all(store, ctx);
        self.fetches.advance_all(store, ctx);
        ctx.effects.push_back(Effect::Visible(store.key.topic));
    }

    /// A storage that has failed answers nothing any more: nobody is left waiting.
    fn note_failure(&mut self, failure: &str, ctx: &mut Ctx) {
        let key = self.store.key;
        if self.store.failure.is_none() {
            self.store.failure = Some(failure.to_owned());
            ctx.report(format!(
                "partition {} of topic {} takes nothing more: {failure}",
                key.partition, key.topic
            ));
        }
        let error = refuse(
            ErrorCode::StorageFailed,
            format!("partition {} failed: {failure}", key.partition),
        );
        self.fail(&error, ctx);
    }

    /// Arms the storage's timer: when it asks for it, and within
    /// [`TICK_INTERVAL`] of an append, for retention by bytes and count.
    fn arm_tick(&mut self, ctx: &mut Ctx) {
        if ctx.planted(Fault::NoRetentionTimer) {
            return;
        }
        let now = ctx.now;
        let storage = &self.store.storage;
        // A storage that cannot yet do what it wants to is not asked without end.
        let soonest = self.tick.at + TICK_INTERVAL_MIN;
        let asked = storage.next_tick().map(|next| {
            let wait = Duration::from_nanos(next.saturating_sub(now.unix_ns));
            (now.monotonic + wait).max(soonest)
        });
        let grown = storage.state().end != self.tick.end;
        let grown = grown.then(|| now.monotonic + TICK_INTERVAL);
        let Some(at) = asked.into_iter().chain(grown).min() else {
            return;
        };
        // Timers come early at worst; one that is earlier stays.
        if self.tick.armed.is_none_or(|armed| at < armed) {
            self.tick.armed = Some(at);
            ctx.timers.insert(at, Timer::Storage(self.store.id));
        }
    }

    /// Applies retention, and whatever else the storage does by time.
    pub fn tick(&mut self, ctx: &mut Ctx) {
        self.tick = Tick {
            armed: None,
            end: self.store.state().end,
            at: ctx.now.monotonic,
        };
        self.store.storage.tick(ctx.now.unix_ns);
        self.store.touch(ctx);
        self.space.report(&self.store.name, ctx);
    }

    /// Begins to close; with `remove` what is stored goes too.
    pub fn leave(&mut self, remove: bool, ctx: &mut Ctx) {
        if self.leaving.is_none() {
            self.store.storage.close();
            self.leaving = Some(Leaving {
                remove,
                closed: false,
            });
        }
        self.store.touch(ctx);
    }

    /// What is left to do, once the partition has closed.
    pub fn ended(&self) -> Option<Ended> {
        let leaving = self.leaving?;
        let failure = self.store.state().failure;
        // A failed storage may never say that it has closed.
        if !(leaving.closed || failure.is_some()) || self.store.operations_under_way > 0 {
            return None;
        }
        let key = self.store.key;
        let what = format!("partition {} of topic {}", key.partition, key.topic);
        let unclean = failure.filter(|_| !leaving.remove);
        Some(Ended {
            key,
            unclean: unclean.map(|failure| format!("{what} failed: {failure}")),
            remove: leaving.remove.then(|| {
                let job = Job::Remove {
                    kind: self.kind.clone(),
                    directory: self.directory.clone(),
                };
                (job, what)
            }),
        })
    }
}

/// What a record of what was done with events is to survive: what the
/// events do, for without these it means nothing.
pub(crate) fn durability_about(partitions: &Partitions, storages: &[StorageId]) -> Durability {
    let partitions = storages.iter().map(|id| partitions.get(id));
    let levels = partitions.map(|one| one.map_or(Durability::Synced, |one| one.store.durability));
    // The log of records is on disk: less than written there is not.
    levels.fold(Durability::Written, Durability::max)
}

/// What a topic's retention is to the storage of one of its partitions.
pub(crate) fn storage_retention(definition: &Definition, bound: Retention) -> log::Retention {
    // A step leaves whole: the stream lets go of its record and its parts.
    let bound = match definition.kind() {
        TopicKind::Steps => Retention::default(),
        TopicKind::Events => bound,
    };
    log::Retention {
        bytes: bound.bytes,
        age_ns: bound.age_ms.map(|ms| ms.saturating_mul(1_000_000)),
        count: bound.count,
        discards: definition.overflow().drops_oldest(),
    }
}

/// Lets transfers go on that waited for the budget, in turn. Says whether any did.
pub(crate) fn feed_starved(partitions: &mut Partitions, ctx: &mut Ctx) -> bool {
    let most = BULK_CHUNK_BYTES as u64;
    while ctx.data.may_fetch(most) {
        let Some((transfer, storage)) = ctx.incoming.next(most) else {
            return false;
        };
        // Otherwise it has nothing more to ask for.
        let partition = partitions.get_mut(&storage);
        if partition.is_some_and(|partition| partition.feed_transfer(transfer, ctx)) {
            return true;
        }
    }
    false
}
