//! Messages on their way into topics: a producer for each topic that a session writes to, and batches within its credit.

use super::batch::{Batch, Done};
use super::calls::{Calls, Then};
use super::message::Encoded;
use broker::Verified;
use broker::node::LinkId;
use broker::request::{CoordinatorRequest, PartitionRequest, Request, Target};
use memory::Pool;
use std::collections::{BTreeMap, VecDeque};
use vhost::{ActId, QueueId};
use wire::batch::{BLOCK_BYTES_DEFAULT, BatchBuilder, EventParts, Origin};
use wire::message::{OpenProducer, Produce, ProducerOpened};
use wire::{Durability, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TopicId};

/// Messages of one batch.
const BATCH_EVENTS_MAX: usize = 4096;
/// Bytes from which a batch is sent.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Bytes that wait or are unanswered while a session is still read, whatever credit it has.
const UNANSWERED_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, Default)]
struct Building {
    builder: BatchBuilder,
    batch: Batch,
}

#[derive(Debug)]
enum State {
    /// Its identity is asked for.
    Opening,
    Open {
        producer: ProducerId,
        epoch: ProducerEpoch,
        next: u64,
    },
}

#[derive(Debug)]
struct Producer {
    state: State,
    building: Building,
    /// Sealed ones that wait for credit.
    full: VecDeque<Building>,
}

/// What a session publishes.
#[derive(Debug)]
pub(super) struct Publisher {
    session: LinkId,
    credit: u64,
    unanswered: u64,
    /// Bytes in batches that are not sent.
    gathered: u64,
    producers: BTreeMap<TopicId, Producer>,
}

impl Publisher {
    pub fn new(session: LinkId, credit: u64) -> Self {
        Self {
            session,
            credit,
            unanswered: 0,
            gathered: 0,
            producers: BTreeMap::new(),
        }
    }

    /// Whether so much is on its way that its client is read no further.
    pub fn is_full(&self) -> bool {
        self.unanswered + self.gathered > UNANSWERED_BYTES_MAX.min(self.credit.max(1))
    }

    /// Whether nothing of it is on its way.
    pub const fn is_idle(&self) -> bool {
        self.unanswered == 0 && self.gathered == 0
    }

    /// Whether so much is on its way that nothing more is to be added.
    pub const fn is_overfull(&self) -> bool {
        self.unanswered + self.gathered > UNANSWERED_BYTES_MAX
    }

    fn producer(&mut self, topic: TopicId, calls: &mut Calls) -> &mut Producer {
        let session = self.session;
        self.producers.entry(topic).or_insert_with(|| {
            let open = OpenProducer {
                name: String::new(),
                resume: ProducerId(0),
                resume_epoch: ProducerEpoch(0),
            };
            let request = CoordinatorRequest::OpenProducer(topic, open);
            calls.call(session, request, Then::ProducerOpened(topic));
            Producer {
                state: State::Opening,
                building: Building::default(),
                full: VecDeque::new(),
            }
        })
    }

    /// Has a message stored in a queue's topic.
    pub fn push(
        &mut self,
        (topic, queue): (TopicId, QueueId),
        message: &Encoded,
        done: Done,
        calls: &mut Calls,
    ) {
        let building = &mut self.producer(topic, calls).building;
        let before = building.builder.bytes();
        message.push(&mut building.builder);
        let bytes = (building.builder.bytes() - before) as u64;
        building.batch.done.push(done);
        building.batch.queue = Some(queue);
        let is_full = building.batch.done.len() >= BATCH_EVENTS_MAX
            || building.builder.bytes() >= BATCH_BYTES_MAX;
        self.gathered += bytes;
        if is_full {
            self.close_batch(topic);
        }
    }

    /// Has records stored together.
    pub fn push_records(
        &mut self,
        topic: TopicId,
        records: &[vhost::Record],
        act: ActId,
        calls: &mut Calls,
    ) {
        let building = &mut self.producer(topic, calls).building;
        for record in records {
            let bytes = record.encode();
            building.builder.push(EventParts {
                metadata: b"{}",
                inline: &[&bytes],
                ..EventParts::default()
            });
        }
        building.batch.done.push(Done::Records(act));
        self.gathered += building.builder.bytes() as u64;
        self.close_batch(topic);
    }

    fn close_batch(&mut self, topic: TopicId) {
        if let Some(producer) = self.producers.get_mut(&topic) {
            let building = std::mem::take(&mut producer.building);
            producer.full.push_back(building);
        }
    }

    /// Sends what has been gathered, as far as its credit goes.
    pub fn flush(&mut self, pool: &Pool, calls: &mut Calls) {
        if self.gathered == 0 {
            return;
        }
        for (topic, producer) in &mut self.producers {
            let State::Open {
                producer: id,
                epoch,
                next,
            } = &mut producer.state
            else {
                continue;
            };
            if !producer.building.batch.done.is_empty() {
                let building = std::mem::take(&mut producer.building);
                producer.full.push_back(building);
            }
            while let Some(first) = producer.full.front() {
                let gathered = first.builder.bytes() as u64;
                if self.unanswered > 0 && self.unanswered + gathered + 4096 > self.credit {
                    return;
                }
                let Some(Building { builder, mut batch }) = producer.full.pop_front() else {
                    break;
                };
                let origin = Origin {
                    topic: *topic,
                    producer: *id,
                    epoch: *epoch,
                    first_sequence: Sequence(*next),
                };
                *next += u64::from(builder.event_count());
                self.gathered = self.gathered.saturating_sub(gathered);
                let sealed = builder.seal(origin, BLOCK_BYTES_DEFAULT);
                let mut bytes = pool.take(sealed.bytes());
                let mut at = 0;
                let pieces = [&sealed.head[..], &sealed.metadata];
                let shared = sealed.shared.iter().map(|piece| &piece[..]);
                for piece in pieces.into_iter().chain(shared).chain([&sealed.inline[..]]) {
                    bytes[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
                bytes.truncate(at);
                batch.bytes = at as u64;
                self.unanswered += batch.bytes;
                let verified = Verified::just_sealed(bytes);
                let produce = Produce {
                    partition: PartitionIndex(0),
                    durability: Durability::Memory,
                    regions: Vec::new(),
                };
                let target = Target {
                    topic: *topic,
                    leader_epoch: 0,
                };
                let request = PartitionRequest::Produce(produce, verified);
                let request = Request::Partition(target, request);
                calls.call(self.session, request, Then::Produced(*topic, batch));
            }
        }
    }

    /// A producer has its identity.
    pub fn opened(&mut self, topic: TopicId, opened: &ProducerOpened) {
        if let Some(producer) = self.producers.get_mut(&topic) {
            producer.state = State::Open {
                producer: opened.producer,
                epoch: opened.epoch,
                next: 0,
            };
        }
    }

    /// A topic is gone.
    pub fn forget(&mut self, topic: TopicId) {
        let is_idle = |producer: &Producer| {
            producer.full.is_empty() && producer.building.batch.done.is_empty()
        };
        if self.producers.get(&topic).is_some_and(is_idle) {
            self.producers.remove(&topic);
        }
    }

    /// What was gathered and is not sent.
    pub fn into_batches(mut self) -> Vec<Batch> {
        let topics: Vec<_> = self.producers.keys().copied().collect();
        let batches = topics.into_iter().flat_map(|topic| self.refused(topic));
        batches.collect()
    }

    /// A batch is answered. Gives all batches of which the answer is: what follows a refused one would be out of order,
    /// is refused too, and a producer is opened anew.
    pub fn answered(&mut self, topic: TopicId, batch: Batch, is_stored: bool) -> Vec<Batch> {
        self.unanswered = self.unanswered.saturating_sub(batch.bytes);
        let mut batches = vec![batch];
        if !is_stored {
            batches.extend(self.refused(topic));
        }
        batches
    }

    /// A topic takes nothing more. Gives all that was gathered for it.
    pub fn refused(&mut self, topic: TopicId) -> Vec<Batch> {
        let Some(mut producer) = self.producers.remove(&topic) else {
            return Vec::new();
        };
        producer.full.push_back(producer.building);
        let batches = producer.full.into_iter().filter_map(|building| {
            let bytes = building.builder.bytes() as u64;
            self.gathered = self.gathered.saturating_sub(bytes);
            (!building.batch.done.is_empty()).then_some(building.batch)
        });
        batches.collect()
    }
}
