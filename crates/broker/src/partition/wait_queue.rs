//! Batches for which there is no room wait in line, where the topic says that
//! producers are to wait: each goes in as soon as there is room, a batch of
//! each producer in turn. Their large data is not fetched before that.

use crate::ids::{Asker, LinkId, StorageId};
use crate::node::Node;
use crate::partition::appends::{Arrival, ArrivalStage, Turn, out_of_sequence};
use crate::partition::incoming::Incoming;
use crate::refusal::Refused;
use crate::timers::Timer;
use std::collections::VecDeque;
use std::time::Duration;
use topic::Overflow;
use wire::batch::ExternalLayout;
use wire::message::Region;
use wire::{ErrorReply, ProducerId};

/// A batch waits for so long at most, then its producer is told why, and asks
/// again: it can say so should its patience end.
const TELL_AFTER: Duration = Duration::from_secs(5);
/// How soon it asks again: it has waited already.
const TOLD_RETRY_MS: u32 = 1;
/// What waits in line may be this part of a connection's credit: the rest is
/// for producers of other topics.
const CREDIT_SHARE: u64 = 2;

/// A batch in line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InLine {
    wanted: Wanted,
    /// When its producer is told that it still waits.
    tell_at: Duration,
}

/// Large data of a batch, which has not been asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub layout: Option<ExternalLayout>,
    pub regions: Vec<Region>,
}

/// Who has batches in line, in the order in which they are let in.
#[derive(Debug, Default)]
pub(crate) struct Line {
    producers: VecDeque<ProducerId>,
    timer_at: Option<Duration>,
}

impl Line {
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }
}

fn is_in_line(arrival: &Arrival) -> bool {
    matches!(arrival.stage, ArrivalStage::InLine(_))
}

/// Where a producer's first batch in line is among those that wait.
fn first_in_line(queue: Option<&VecDeque<Arrival>>) -> Option<usize> {
    queue?.iter().position(is_in_line)
}

impl Node {
    /// Whether anybody waits for room.
    pub(crate) fn has_line(&self, storage: StorageId) -> bool {
        let partition = self.partitions.get(&storage);
        partition.is_some_and(|partition| !partition.room.line.is_empty())
    }

    /// Whether a batch has to stay behind one that is in line: an earlier one
    /// of its producer, or itself, sent before.
    pub(crate) fn is_behind_line(&self, storage: StorageId, turn: Turn, of: ProducerId) -> bool {
        let partition = self.partitions.get(&storage);
        let queue = partition.and_then(|partition| partition.arrivals.get(&of));
        let Some(first) = first_in_line(queue) else {
            return false;
        };
        match turn {
            Turn::InPlaceOf(index) => first <= index,
            Turn::Now | Turn::Later | Turn::Duplicate(_) => true,
        }
    }

    /// A batch gets into line, unless too much is there of its connection.
    pub(crate) fn wait_in_line(
        &mut self,
        asker: Asker,
        storage: StorageId,
        turn: Turn,
        incoming: Incoming,
        wanted: Wanted,
    ) -> Result<(), Refused> {
        let header = incoming.header;
        let credit = self.sessions.get(&asker.link).map_or(0, |one| one.credit);
        let held = self.ctx.in_line.get(&asker.link).copied().unwrap_or(0);
        let (bytes, most) = (header.batch_bytes(), credit / CREDIT_SHARE);
        let is_new = !matches!(turn, Turn::InPlaceOf(_));
        if is_new && held > 0 && held.saturating_add(bytes) > most {
            if self.is_behind_line(storage, turn, header.producer) {
                return Err(out_of_sequence(&header, header.first_sequence));
            }
            let refusal = self.no_room(storage, super::capacity::BLOCKED_RETRY_MS);
            return Err(refusal);
        }
        let tell_at = self.ctx.now.monotonic + TELL_AFTER;
        let is_first = !self.is_behind_line(storage, turn, header.producer);
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return Ok(());
        };
        if is_first {
            partition.room.line.producers.push_back(header.producer);
        }
        *self.ctx.in_line.entry(asker.link).or_default() += bytes;
        self.arm_line(storage, tell_at);
        let stage = ArrivalStage::InLine(InLine { wanted, tell_at });
        self.queue_arrival(asker, storage, turn, incoming, stage);
        Ok(())
    }

    /// A batch is not in line any more.
    pub(crate) fn left_line(&mut self, storage: StorageId, link: LinkId, batch: &Incoming) {
        let bytes = batch.header.batch_bytes();
        if let Some(held) = self.ctx.in_line.get_mut(&link) {
            *held = held.saturating_sub(bytes);
            if *held == 0 {
                self.ctx.in_line.remove(&link);
            }
        }
        self.ctx.dirty.partitions.insert(storage);
    }

    /// Lets in for whom there is room by now.
    pub(crate) fn advance_line(&mut self, storage: StorageId) {
        while let Some(partition) = self.partitions.get_mut(&storage)
            && let Some(producer) = partition.room.line.producers.front().copied()
        {
            let queue = partition.arrivals.get(&producer);
            let Some(index) = first_in_line(queue) else {
                partition.room.line.producers.pop_front();
                continue;
            };
            let batch = &partition.arrivals[&producer][index].batch;
            let (header, bytes) = (batch.header, batch.bytes_stored());
            let state = partition.storage.state();
            let is_waiting = partition.room.policy() == Overflow::Block;
            if is_waiting && !partition.room.has_room(&header, bytes, &state) {
                return;
            }
            // It may have been told to do something else meanwhile.
            match self.check_room(storage, &header, bytes) {
                Ok(_) => self.let_in(storage, producer, index),
                Err(error) => {
                    self.refuse_arrival(storage, producer, index, error);
                }
            }
        }
    }

    /// Begins what a batch in line has waited for.
    fn let_in(&mut self, storage: StorageId, producer: ProducerId, index: usize) {
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return;
        };
        let queue = partition.arrivals.get_mut(&producer);
        let Some(arrival) = queue.and_then(|queue| queue.remove(index)) else {
            return;
        };
        partition.room.line.producers.pop_front();
        let Arrival {
            asker,
            batch,
            stage: ArrivalStage::InLine(InLine { wanted, .. }),
        } = arrival
        else {
            return;
        };
        self.left_line(storage, asker.link, &batch);
        let begun = self.begin_arrival(asker, storage, &batch, wanted.layout, wanted.regions);
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return;
        };
        let queue = partition.arrivals.entry(producer).or_default();
        match begun {
            Ok(stage) => {
                partition.room.coming(batch.size());
                let arrival = Arrival {
                    asker,
                    batch,
                    stage,
                };
                queue.insert(index, arrival);
                if queue.iter().any(is_in_line) {
                    partition.room.line.producers.push_back(producer);
                }
                self.append_arrivals(storage, producer);
            }
            Err(error) => {
                self.refuse_request(asker, error);
                self.give_up_arrivals_from(storage, producer, index);
            }
        }
    }

    /// Refuses a batch that waits, and those behind it.
    fn refuse_arrival(
        &mut self,
        storage: StorageId,
        producer: ProducerId,
        index: usize,
        error: ErrorReply,
    ) {
        let partition = self.partitions.get(&storage);
        let queue = partition.and_then(|partition| partition.arrivals.get(&producer));
        if let Some(arrival) = queue.and_then(|queue| queue.get(index)) {
            let asker = arrival.asker;
            self.refuse_request(asker, error);
            self.give_up_arrivals_from(storage, producer, index);
        }
    }

    /// Tells those who have waited long that there is still no room.
    pub(crate) fn tell_line(&mut self, storage: StorageId) {
        let now = self.ctx.now.monotonic;
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return;
        };
        partition.room.line.timer_at = None;
        let told_at = |queue: &VecDeque<Arrival>| {
            let times = queue.iter().filter_map(|arrival| match &arrival.stage {
                ArrivalStage::InLine(in_line) => Some(in_line.tell_at),
                _ => None,
            });
            times.min()
        };
        let queues = partition.arrivals.iter();
        let times = queues.filter_map(|(producer, queue)| Some((*producer, told_at(queue)?)));
        let (due, later): (Vec<_>, Vec<_>) = times.partition(|(_, at)| *at <= now);
        for (producer, _) in due {
            let refusal = self.no_room(storage, TOLD_RETRY_MS);
            let partition = self.partitions.get(&storage);
            let queue = partition.and_then(|partition| partition.arrivals.get(&producer));
            if let Some(index) = first_in_line(queue) {
                self.refuse_arrival(storage, producer, index, refusal);
            }
        }
        if let Some(at) = later.into_iter().map(|(_, at)| at).min() {
            self.arm_line(storage, at);
        }
    }

    fn arm_line(&mut self, storage: StorageId, at: Duration) {
        if let Some(partition) = self.partitions.get_mut(&storage) {
            let line = &mut partition.room.line;
            if line.timer_at.is_none_or(|armed| at < armed) {
                line.timer_at = Some(at);
                self.ctx.timers.insert(at, Timer::Line(storage));
            }
        }
    }

    /// Nobody is let in any more.
    pub(crate) fn end_lines(&mut self, error: &ErrorReply) {
        let lines = self.partitions.iter();
        let lines = lines.filter(|(_, partition)| !partition.room.line.is_empty());
        let lines: Vec<StorageId> = lines.map(|(id, _)| *id).collect();
        for storage in lines {
            while let Some(partition) = self.partitions.get_mut(&storage)
                && let Some(producer) = partition.room.line.producers.pop_front()
            {
                if let Some(index) = first_in_line(partition.arrivals.get(&producer)) {
                    self.refuse_arrival(storage, producer, index, error.clone());
                }
            }
        }
    }
}
