//! One partition: a storage, what waits for it, and who reads it.

pub(crate) mod acks;
pub(crate) mod appends;
pub(crate) mod capacity;
pub(crate) mod fetch;
pub(crate) mod incoming;
pub(crate) mod scope;
pub(crate) mod subscription;
mod time_search;
pub(crate) mod transfer;
pub(crate) mod wait_queue;

use crate::controller::Controller;
use crate::faults::Fault;
use crate::ids::{Asker, JobId, PartitionKey, SharedId, StorageId, TransferId};
use crate::io::{Job, Output};
use crate::node::{Node, Purpose};
use crate::partition::acks::Acks;
use crate::partition::appends::Arrival;
use crate::partition::capacity::Room;
use crate::refusal::refuse;
use crate::space::PartitionSpace;
use crate::timers::Timer;
use log::producers::Verdict;
use log::{DataPlace, ReadToken, Storage, StorageError, StorageEvent, StorageKind, StorageState};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wire::batch::Header;
use wire::message::Watermarks;
use wire::record::{GapReason, Position};
use wire::{Durability, ErrorCode, ErrorReply, Incarnation, Offset, PartitionIndex, ProducerId};

/// How long after an append retention is applied at the latest.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// How soon a storage is ticked again.
const TICK_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// A partition whose storage is open.
pub(crate) struct Partition {
    pub key: PartitionKey,
    pub storage: Box<dyn Storage>,
    pub kind: Arc<dyn StorageKind>,
    pub directory: PathBuf,
    /// What an ack means, at least.
    pub durability: Durability,
    /// What makes an event visible: `durability`, unless a test planted a fault.
    pub visible_at: Durability,
    /// Lives that ended, oldest first, and where each ended.
    pub ended: Vec<(Incarnation, Offset)>,
    /// The visible end, as readers were last told.
    pub visible: Offset,
    pub acks: Acks,
    /// Batches that wait for external data, or behind one that does.
    pub arrivals: BTreeMap<ProducerId, VecDeque<Arrival>>,
    /// The transfer that fills each reserved place.
    pub places: BTreeMap<DataPlace, TransferId>,
    pub readings: BTreeMap<ReadToken, Reading>,
    pub subscriptions: BTreeSet<Asker>,
    pub fetches: BTreeSet<Asker>,
    /// Disk operations that were given out and not yet answered.
    pub operations_under_way: usize,
    /// Why the storage takes nothing more, once that was noticed.
    pub failure: Option<String>,
    pub tick_at: Option<Duration>,
    /// Where the partition ended at its last tick, and when that was.
    pub ticked_end: Offset,
    pub ticked_at: Duration,
    pub leaving: Option<Leaving>,
    /// What becomes of batches for which there is no room.
    pub room: Room,
    /// Whether the storage takes events for now.
    pub space: PartitionSpace,
}

/// How a partition ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leaving {
    /// Whether what it stored goes too.
    pub remove: bool,
    /// Whether its storage has closed.
    pub closed: bool,
}

/// Who a reading of the storage is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reading {
    /// A subscription; with the visible end that the reading was given.
    Subscription(Asker, Offset),
    /// A fetch, likewise.
    Fetch(Asker, Offset),
    /// A queue, from where on and up to where.
    Queue {
        id: SharedId,
        partition: PartitionIndex,
        from: Offset,
        end: Offset,
    },
    /// A queue's dead letter.
    DeadLetter {
        id: SharedId,
        partition: PartitionIndex,
    },
    /// A dead letter's data is looked up.
    LetterOpen { append: u64 },
    /// A chunk of a dead letter's data.
    LetterData { append: u64 },
    /// An event of a `ReadData` call is looked up.
    Open { call: u64, event: usize },
    /// A part of a chunk of a `ReadData` call.
    Data {
        call: u64,
        chunk: usize,
        part: usize,
    },
}

impl Partition {
    pub fn new(
        key: PartitionKey,
        storage: Box<dyn Storage>,
        kind: Arc<dyn StorageKind>,
        durability: Durability,
        directory: PathBuf,
    ) -> Self {
        let state = storage.state();
        Self {
            key,
            storage,
            kind,
            directory,
            durability,
            visible_at: durability,
            ended: Vec::new(),
            visible: state.reached(durability),
            acks: Acks::default(),
            arrivals: BTreeMap::new(),
            places: BTreeMap::new(),
            readings: BTreeMap::new(),
            subscriptions: BTreeSet::new(),
            fetches: BTreeSet::new(),
            operations_under_way: 0,
            failure: None,
            tick_at: None,
            ticked_end: state.end,
            ticked_at: Duration::ZERO,
            leaving: None,
            room: Room::default(),
            space: PartitionSpace::default(),
        }
    }

    pub fn watermarks(&self, state: &StorageState) -> Watermarks {
        Watermarks {
            end: state.end,
            durable: state.reached(self.durability),
            committed: self.visible,
        }
    }

    /// Where a position of an earlier life goes on in the present one: events
    /// that survived a life's end keep their offsets, the rest are gone.
    pub fn translate(&self, position: Position, present: Incarnation) -> Position {
        let ends = self
            .ended
            .iter()
            .filter(|(life, _)| *life >= position.incarnation);
        let offset = ends.fold(position.offset, |offset, (_, end)| offset.min(*end));
        Position {
            incarnation: present,
            offset,
        }
    }

    /// Whether a batch may be appended, as far as its sequence numbers go.
    pub fn check(&self, header: &Header) -> Verdict {
        self.room.verdict(header, self.storage.check(header))
    }

    /// Begins to close.
    pub fn leave(&mut self, remove: bool) {
        if self.leaving.is_none() {
            self.storage.close();
            self.leaving = Some(Leaving {
                remove,
                closed: false,
            });
        }
    }
}

impl Node {
    /// Lets everything take effect that was done with a storage: operations
    /// go out, events come in, answers that waited are given.
    pub(crate) fn settle_partition(&mut self, id: StorageId) {
        self.advance_line(id);
        loop {
            let Some(partition) = self.partitions.get_mut(&id) else {
                return;
            };
            while let Some((token, operation)) = partition.storage.poll_operation() {
                partition.operations_under_way += 1;
                self.ctx.outputs.push_back(Output::Disk {
                    storage: id,
                    token,
                    operation,
                });
            }
            match partition.storage.poll_event() {
                Some(event) => self.storage_event(id, event),
                None => break,
            }
        }
        self.settle_watermarks(id);
        self.settle_end(id);
    }

    fn storage_event(&mut self, id: StorageId, event: StorageEvent) {
        match event {
            // Watermarks are looked at when all events are in.
            StorageEvent::Progress => {}
            StorageEvent::DataWritten { place, bytes } => {
                if !self.letter_chunk_written(id, place) {
                    self.chunk_written(id, place, bytes);
                }
            }
            StorageEvent::DataReady { place } => {
                if !self.letter_data_ready(id, place) {
                    self.data_ready(id, place);
                }
            }
            StorageEvent::DataFailed { place, error } => {
                if !self.letter_data_failed(id, place, &error) {
                    self.data_failed(id, place, &error);
                }
            }
            StorageEvent::Read { token, found } => match self.take_reading(id, token) {
                Some(Reading::Subscription(asker, end)) => {
                    self.subscription_read(id, asker, end, found);
                }
                Some(Reading::Fetch(asker, end)) => self.fetch_read(id, asker, end, found),
                Some(Reading::Queue {
                    id,
                    partition,
                    from,
                    end,
                }) => self.queue_read(id, partition, (from, end), found),
                Some(Reading::DeadLetter { id, partition }) => {
                    self.dead_letter_read(id, partition, found);
                }
                _ => {}
            },
            StorageEvent::EventOpened { token, data } => match self.take_reading(id, token) {
                Some(Reading::Open { call, event }) => self.event_opened(call, event, data),
                Some(Reading::LetterOpen { append }) => self.letter_opened(append, data),
                _ => {}
            },
            StorageEvent::DataRead { token, pieces } => match self.take_reading(id, token) {
                Some(Reading::Data { call, chunk, part }) => {
                    self.selection_read(call, chunk, part, pieces);
                }
                Some(Reading::LetterData { append }) => self.letter_read(append, pieces),
                _ => {}
            },
            StorageEvent::Refused { from, error } => {
                let partition = self.partitions.get_mut(&id);
                let undone = partition.map(|partition| {
                    partition.room.retract(from);
                    partition.acks.take_from(from)
                });
                let refusal = self.refusal(id, &error);
                for ack in undone.into_iter().flatten() {
                    self.refuse_request(ack.asker, refusal.clone());
                }
                self.give_up_misplaced(id);
                self.ctx.dirty.partitions.insert(id);
            }
            StorageEvent::Full(why) => self.storage_is_full(id, why),
            StorageEvent::HasSpace => self.storage_has_space(id),
            StorageEvent::Lost(gap) => {
                // It made room.
                self.ctx.dirty.partitions.insert(id);
                if gap.reason == GapReason::Discarded
                    && let Some(partition) = self.partitions.get_mut(&id)
                {
                    partition.room.drops.discarded += gap.end.0 - gap.first.0;
                }
                self.lost_of_queues(id, gap);
                self.record_gap(id, gap);
            }
            StorageEvent::Closed => {
                if let Some(partition) = self.partitions.get_mut(&id)
                    && let Some(leaving) = &mut partition.leaving
                {
                    leaving.closed = true;
                }
            }
        }
    }

    fn take_reading(&mut self, id: StorageId, token: ReadToken) -> Option<Reading> {
        self.partitions.get_mut(&id)?.readings.remove(&token)
    }

    /// What has become durable is answered and shown.
    fn settle_watermarks(&mut self, id: StorageId) {
        let early = self.ctx.planted(Fault::AckEarly);
        let Some(partition) = self.partitions.get(&id) else {
            return;
        };
        let state = partition.storage.state();
        let mut reached = state.clone();
        if early {
            (reached.synced, reached.written) = (state.end, state.end);
        }
        while let Some(partition) = self.partitions.get_mut(&id)
            && let Some(ack) = partition.acks.pop_reached(&reached)
        {
            self.acknowledge(&ack, state.incarnation);
        }
        self.settle_visible(id, &state);
        self.settle_failure(id, state.failure);
        self.settle_tick(id);
    }

    fn settle_visible(&mut self, id: StorageId, state: &StorageState) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let visible = state.reached(partition.visible_at);
        if visible <= partition.visible {
            return;
        }
        partition.visible = visible;
        let topic = partition.key.topic;
        let subscriptions: Vec<Asker> = partition.subscriptions.iter().copied().collect();
        let fetches: Vec<Asker> = partition.fetches.iter().copied().collect();
        for asker in subscriptions {
            self.advance_subscription(asker);
        }
        for asker in fetches {
            self.advance_fetch(asker);
        }
        self.touch_queues(topic);
    }

    /// A storage that has failed answers nothing any more: nobody is left waiting.
    fn settle_failure(&mut self, id: StorageId, failure: Option<String>) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let Some(failure) = failure else {
            return;
        };
        let key = partition.key;
        if partition.failure.is_none() {
            partition.failure = Some(failure.clone());
            self.ctx.report(format!(
                "partition {} of topic {} takes nothing more: {failure}",
                key.partition, key.topic
            ));
        }
        let error = refuse(
            ErrorCode::StorageFailed,
            format!("partition {} failed: {failure}", key.partition),
        );
        self.fail_partition(id, &error);
    }

    /// Answers everything that waits for the partition to take events.
    pub(crate) fn fail_partition(&mut self, id: StorageId, error: &ErrorReply) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let acks = partition.acks.take_all();
        let arrivals = std::mem::take(&mut partition.arrivals);
        for ack in acks {
            self.refuse_request(ack.asker, error.clone());
        }
        self.fail_letters(id, error);
        for arrival in arrivals.into_values().flatten() {
            self.give_up_arrival(id, arrival, Some(error.clone()));
        }
    }

    /// Arms the storage's timer: when it asks for it, and within
    /// [`TICK_INTERVAL`] of an append, for retention by bytes and count.
    fn settle_tick(&mut self, id: StorageId) {
        if self.ctx.planted(Fault::NoRetentionTimer) {
            return;
        }
        let now = self.ctx.now;
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        // A storage that cannot yet do what it wants to is not asked without end.
        let soonest = partition.ticked_at + TICK_INTERVAL_MIN;
        let asked = partition.storage.next_tick().map(|next| {
            let wait = Duration::from_nanos(next.saturating_sub(now.unix_ns));
            (now.monotonic + wait).max(soonest)
        });
        let grown = partition.storage.state().end != partition.ticked_end;
        let grown = grown.then(|| now.monotonic + TICK_INTERVAL);
        let Some(at) = asked.into_iter().chain(grown).min() else {
            return;
        };
        // Timers come early at worst; one that is earlier stays.
        if partition.tick_at.is_none_or(|armed| at < armed) {
            partition.tick_at = Some(at);
            self.ctx.timers.insert(at, Timer::Storage(id));
        }
    }

    pub(crate) fn tick_storage(&mut self, id: StorageId) {
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.tick_at = None;
            partition.ticked_end = partition.storage.state().end;
            partition.ticked_at = self.ctx.now.monotonic;
            partition.storage.tick(self.ctx.now.unix_ns);
            self.ctx.dirty.partitions.insert(id);
            self.report_space(id);
        }
    }

    fn settle_end(&mut self, id: StorageId) {
        let Some(partition) = self.partitions.get(&id) else {
            return;
        };
        let Some(leaving) = partition.leaving else {
            return;
        };
        // A failed storage may never say that it has closed.
        let closed = leaving.closed || partition.storage.state().failure.is_some();
        if !closed || partition.operations_under_way > 0 {
            return;
        }
        let Some(partition) = self.partitions.remove(&id) else {
            return;
        };
        if let Some(failure) = partition.storage.state().failure
            && !leaving.remove
        {
            let key = partition.key;
            self.unclean.get_or_insert(format!(
                "partition {} of topic {} failed: {failure}",
                key.partition, key.topic
            ));
        }
        if leaving.remove {
            let key = partition.key;
            let job = JobId(self.ctx.next_id());
            let what = format!("partition {} of topic {}", key.partition, key.topic);
            self.jobs.insert(job, Purpose::Remove(what));
            self.ctx.outputs.push_back(Output::Job {
                job,
                work: Job::Remove {
                    kind: partition.kind.clone(),
                    directory: partition.directory.clone(),
                },
            });
        }
    }
}

impl Node {
    /// What a storage's refusal of a batch is to its producer: with the
    /// partition's name, which the storage does not know.
    pub(crate) fn refusal(&self, id: StorageId, error: &StorageError) -> ErrorReply {
        let reply = storage_error(error);
        let Some(partition) = self.partitions.get(&id) else {
            return reply;
        };
        let key = partition.key;
        match self.controller.table().topic(key.topic) {
            None => reply,
            Some(entry) => ErrorReply {
                message: format!("{}/{}: {}", entry.record.name, key.partition, reply.message),
                ..reply
            },
        }
    }
}

/// What a storage's error is to whoever asked.
pub(crate) fn storage_error(error: &StorageError) -> ErrorReply {
    let message = error.to_string();
    match error {
        StorageError::Full(_) => ErrorReply::retryable(ErrorCode::StorageFull, 1000, message),
        StorageError::Exhausted(_) => refuse(ErrorCode::StorageFull, message),
        StorageError::Failed(_) | StorageError::Refused(_) => {
            refuse(ErrorCode::StorageFailed, message)
        }
        StorageError::OutOfRange { .. } => refuse(ErrorCode::OffsetOutOfRange, message),
        StorageError::Damaged(_) => refuse(ErrorCode::Damaged, message),
        StorageError::Invalid(_) => refuse(ErrorCode::Internal, message),
    }
}
