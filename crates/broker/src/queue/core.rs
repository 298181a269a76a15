//! What the parts of a queue have in common: its name and rules, and its partitions' events.

use super::letter_data::{Letter, Letters};
use super::partition::{Loads, QueuePartition, Rules};
use super::staging::Staging;
use super::unreported::UnreportedGaps;
use crate::coordinator::commands::Commands;
use crate::coordinator::members::shared::Shared;
use crate::coordinator::served_topic::{Slot, Topics};
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::{SharedId, StorageId};
use crate::partition::Partitions;
use std::collections::BTreeMap;
use std::time::Duration;
use topic::QueueOptions;
use wire::message::ConsumerPartition;
use wire::record::{Gap, GapReason, Position};
use wire::{ConsumerId, Incarnation, LeaseId, MemberId, Offset, PartitionIndex, TopicId};

/// How long what has failed is not tried again: a reading, a record, a dead letter.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a queue is lent of the node for an act.
pub(crate) struct Lent<'a> {
    pub ctx: &'a mut Ctx,
    pub partitions: &'a mut Partitions,
    pub commands: &'a mut Commands,
    pub topics: &'a Topics,
    /// Who is a member.
    pub shared: &'a Shared,
    pub leases: &'a mut Leases,
    pub letters: &'a mut Letters,
    /// Whether the node is to end: nothing more is given out.
    pub is_draining: bool,
}

impl Lent<'_> {
    /// The visible end of a partition.
    pub fn visible(&self, storage: StorageId) -> Offset {
        let partition = self.partitions.get(&storage);
        partition.map_or(Offset(0), |partition| {
            match self.ctx.planted(Fault::PastVisibleEnd) {
                true => partition.store.state().end,
                false => partition.store.visible,
            }
        })
    }
}

/// The leases of this run of the server: the upper half of each is random in each run, the
/// lower half counts.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// The one that was given last; 0 is none yet.
    last: u64,
}

impl Leases {
    /// A lease that was never given before.
    pub fn next(&mut self, ctx: &mut Ctx) -> LeaseId {
        if self.last == 0 {
            self.last = (ctx.random.id() as u64) & !u64::from(u32::MAX);
        }
        self.last = self.last.wrapping_add(1).max(1);
        LeaseId(self.last)
    }
}

/// See the module. A part of the queue is lent it for an act.
pub(crate) struct QueueCore {
    pub id: SharedId,
    pub topic: TopicId,
    pub consumer: String,
    /// Which queue of that name.
    pub consumer_id: ConsumerId,
    pub options: QueueOptions,
    pub partitions: BTreeMap<PartitionIndex, Shelf>,
    /// What members have unsettled.
    pub loads: Loads,
    /// What was lost before it was settled, of which no member was notified yet.
    pub unreported: UnreportedGaps,
}

/// One partition of a queue.
pub(crate) struct Shelf {
    pub storage: StorageId,
    pub state: QueuePartition,
    pub staging: Staging,
    /// Whether it was looked at since all from before the start are back or gone.
    pub is_swept: bool,
    /// The dead letter that is being written.
    pub letter: Option<Letter>,
    /// When the next one may be tried.
    pub letter_at: Duration,
    /// An event that is dead and whose data cannot be read, and why: its dead letter goes without.
    pub data_lost: Option<(Offset, String)>,
}

/// Where a queue stands in a partition of which it does not know yet.
pub(crate) fn nowhere(partition: PartitionIndex) -> ConsumerPartition {
    ConsumerPartition {
        partition,
        position: Position {
            incarnation: Incarnation(0),
            offset: Offset(0),
        },
        end: Offset(0),
        settled: 0,
        leased: 0,
        returned: 0,
        delayed: 0,
        dead: 0,
    }
}

impl QueueCore {
    pub fn new(id: SharedId, shared: &Shared, options: QueueOptions) -> Self {
        Self {
            id,
            topic: shared.record.topic,
            consumer: shared.record.consumer.clone(),
            consumer_id: shared.record.id,
            options,
            partitions: BTreeMap::new(),
            loads: Loads::default(),
            unreported: UnreportedGaps::default(),
        }
    }

    /// When leases end that are given or extended now. They end together, a
    /// little late, so that what is over is looked for a few times only.
    pub fn deadline(&self, now: Duration) -> Duration {
        let lease = Duration::from_millis(self.options.lease_ms);
        let step = (lease / 32).max(Duration::from_millis(1)).as_nanos();
        let at = (now + lease).as_nanos().div_ceil(step) * step;
        Duration::from_nanos(u64::try_from(at).unwrap_or(u64::MAX))
    }

    /// What members hear of how long a lease is.
    pub fn lease_ms(&self) -> u32 {
        u32::try_from(self.options.lease_ms).unwrap_or(u32::MAX)
    }

    /// Has the queue looked at when the input that is being handled is done.
    pub fn touch(&self, ctx: &mut Ctx) {
        ctx.dirty.queues.insert(self.id);
    }

    /// The time, and the queue's rules.
    pub fn rules(&self, ctx: &Ctx) -> Rules {
        Rules {
            now: ctx.now.monotonic,
            unix_ns: ctx.now.unix_ns,
            deliveries_max: self.options.deliveries_max,
            expired_too: ctx.planted(Fault::ExpiredLease),
        }
    }

    /// Takes up partitions that serve and are not known yet, as the table
    /// has them.
    pub(super) fn open_partitions(&mut self, lent: &Lent<'_>) {
        let out_of_turn = lent.ctx.planted(Fault::KeysOutOfTurn);
        let Some(topic) = lent.topics.get(self.topic) else {
            return;
        };
        if self.partitions.len() == topic.partitions.len() {
            return;
        }
        let table = lent.commands.table().topic(self.topic);
        // Its record is not durable yet.
        let Some((table, entry)) =
            table.and_then(|table| Some((table, table.shared(&self.consumer)?)))
        else {
            return;
        };
        for (index, slot) in topic.slots() {
            let Slot::Open(storage) = slot else {
                continue;
            };
            let Some(partition) = lent.partitions.get(storage) else {
                continue;
            };
            if self.partitions.contains_key(&index) {
                continue;
            }
            let present = partition.store.state();
            let known = entry.queue.get(&index).cloned().unwrap_or_default();
            let ended = partition.store.ended.iter();
            let ended = ended.filter(|(life, _)| *life >= known.incarnation);
            let kept = ended.map(|(_, end)| *end).min();
            let kept = kept.unwrap_or(Offset(u64::MAX));
            let mut state = QueuePartition::new(&known, present.incarnation, kept);
            if self.options.ordered_by_key && !out_of_turn {
                state.order_by_key();
            }
            let missing = state.lost(Offset(0), present.first, &mut self.loads);
            if entry.queue.contains_key(&index) {
                // While no server was there, or nobody had joined since.
                let recorded = table.gaps.iter().filter(|((of, _, _), _)| *of == index);
                for (first, end) in missing {
                    let mut recorded = recorded.clone().map(|(_, gap)| gap);
                    let known = recorded.find(|gap| gap.first <= first && first < gap.end);
                    let gap = Gap {
                        incarnation: present.incarnation,
                        first,
                        end,
                        reason: known.map_or(GapReason::Retention, |gap| gap.reason),
                        time: lent.ctx.now.unix_ns,
                    };
                    self.unreported.add(index, gap);
                }
            }
            let shelf = Shelf {
                storage: *storage,
                state,
                staging: Staging::default(),
                is_swept: false,
                letter: None,
                letter_at: Duration::ZERO,
                data_lost: None,
            };
            self.partitions.insert(index, shelf);
        }
    }

    /// Events of a partition, now in this incarnation, are lost: they count as settled.
    pub fn lose(&mut self, index: PartitionIndex, present: Incarnation, gap: Gap, ctx: &mut Ctx) {
        let shelf = self.partitions.get_mut(&index);
        let Some(shelf) = shelf.filter(|shelf| shelf.state.incarnation() == present) else {
            return;
        };
        let missing = shelf.state.lost(gap.first, gap.end, &mut self.loads);
        for (first, end) in missing {
            self.unreported.add(index, Gap { first, end, ..gap });
        }
        self.touch(ctx);
    }

    /// Where the queue stands in a partition.
    pub fn describe(
        &self,
        partition: PartitionIndex,
        partitions: &Partitions,
    ) -> ConsumerPartition {
        let shelf = self.partitions.get(&partition);
        let state = shelf.map(|shelf| &shelf.state);
        let counts = state.map(|state| state.counts()).unwrap_or_default();
        let storage = shelf.and_then(|shelf| partitions.get(&shelf.storage));
        ConsumerPartition {
            partition,
            position: Position {
                incarnation: state.map_or(Incarnation(0), |state| state.incarnation()),
                offset: state.map_or(Offset(0), |state| state.position()),
            },
            end: storage.map_or(Offset(0), |partition| partition.store.visible),
            settled: counts.settled,
            leased: counts.leased,
            returned: counts.returned,
            delayed: counts.delayed,
            dead: counts.dead,
        }
    }

    /// Events that a member of the queue has unsettled, and their bytes.
    pub fn leased(&self, member: MemberId) -> (u64, u64) {
        let load = self.loads.of(member);
        (load.events, load.bytes)
    }
}
