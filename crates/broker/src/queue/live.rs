//! A queue that serves: its partitions, what each has read, and when it is to
//! be looked at again.

use super::dead_letter::Letter;
use super::pace::Pace;
use super::partition::{Loads, QueuePartition, Rules};
use super::settle::{Answers, UnderWay};
use super::staging::Staging;
use super::unreported::UnreportedGaps;
use crate::controller::Controller;
use crate::faults::Fault;
use crate::ids::{Asker, PartitionKey, SharedId, StorageId};
use crate::membership::SharedKind;
use crate::node::Node;
use crate::served_topic::Slot;
use crate::timers::Timer;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use topic::QueueOptions;
use wire::record::{Gap, GapReason};
use wire::{Incarnation, LeaseId, MemberId, Offset, PartitionIndex, TopicId};

/// How long what has failed is not tried again: a reading, a record, a dead letter.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// One queue of this run of the server.
pub(crate) struct Queue {
    pub topic: TopicId,
    pub consumer: String,
    pub options: QueueOptions,
    pub partitions: BTreeMap<PartitionIndex, Shelf>,
    /// What members have unsettled.
    pub loads: Loads,
    /// How fast members work.
    pub paces: BTreeMap<MemberId, Pace>,
    /// Answers to settlements, given and to be given, by member.
    pub answers: BTreeMap<MemberId, Answers>,
    /// Settlements whose records are gathered for the next command.
    pub gathered: Vec<(MemberId, u64)>,
    /// The command that is under way.
    pub under_way: Option<UnderWay>,
    /// When a command may be tried again, after one was refused.
    pub record_at: Duration,
    /// Until when what was settled waits for more, for nobody hurries for it.
    pub quiet_until: Duration,
    /// Members of before the start that have not come back yet. Nothing is
    /// given out while there are any: they may hold what looks free.
    pub awaited: BTreeSet<MemberId>,
    /// Who was told, by its answer, that there are some.
    pub told_recovering: BTreeMap<MemberId, Asker>,
    /// Those who have room. One that cannot be sent anything now may be among
    /// them, until it is found out.
    pub hungry: BTreeSet<MemberId>,
    /// Whether somebody has come, or is there no more.
    pub members_changed: bool,
    /// Members of before the start. What they settled then and had no answer
    /// to may be durable all the same.
    pub from_before: BTreeSet<MemberId>,
    /// Who is there and has his turn next is behind this one.
    pub last_served: MemberId,
    /// The partition that is looked at first.
    pub first: PartitionIndex,
    /// Whether somebody is there, and whether somebody wants inline data.
    pub is_attended: bool,
    pub inline_data: bool,
    /// Whether the operator was told that dead letters can't be written.
    pub letters_failed: bool,
    /// What was lost before it was settled, of which no member was notified yet.
    pub unreported: UnreportedGaps,
    /// The timer that is armed.
    timer_at: Option<Duration>,
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

impl Queue {
    fn new(topic: TopicId, consumer: String, options: QueueOptions) -> Self {
        Self {
            topic,
            consumer,
            options,
            partitions: BTreeMap::new(),
            loads: Loads::default(),
            paces: BTreeMap::new(),
            answers: BTreeMap::new(),
            gathered: Vec::new(),
            under_way: None,
            record_at: Duration::ZERO,
            quiet_until: Duration::ZERO,
            awaited: BTreeSet::new(),
            told_recovering: BTreeMap::new(),
            hungry: BTreeSet::new(),
            members_changed: true,
            from_before: BTreeSet::new(),
            last_served: MemberId(0),
            first: PartitionIndex(0),
            is_attended: false,
            inline_data: false,
            letters_failed: false,
            unreported: UnreportedGaps::default(),
            timer_at: None,
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
}

impl Node {
    /// There is a queue: it was made, or is known from before the start.
    pub(super) fn begin_queue(&mut self, id: SharedId) {
        let Some(shared) = self.shared.get(id) else {
            return;
        };
        let SharedKind::Queue(options) = &shared.kind else {
            return;
        };
        let record = &shared.record;
        let mut queue = Queue::new(record.topic, record.consumer.clone(), options.clone());
        queue.awaited = shared.members.keys().copied().collect();
        queue.from_before = queue.awaited.clone();
        self.queues.insert(id, queue);
        // What came to nothing before the start goes on by itself.
        self.ctx
            .timers
            .insert(self.ctx.now.monotonic, Timer::Queue(id));
    }

    /// Has the queue looked at when the input that is being handled is done.
    pub(crate) fn touch_queue(&mut self, id: SharedId) {
        self.ctx.dirty.queues.insert(id);
    }

    /// Something has happened to a partition of the topic.
    pub(crate) fn touch_queues(&mut self, topic: TopicId) {
        for id in self.shared.of(topic) {
            if self.queues.contains_key(&id) {
                self.ctx.dirty.queues.insert(id);
            }
        }
    }

    pub(crate) fn queue_timer(&mut self, id: SharedId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.timer_at = None;
            self.ctx.dirty.queues.insert(id);
        }
    }

    /// The time, and a queue's rules.
    pub(super) fn rules(&self, queue: &Queue) -> Rules {
        Rules {
            now: self.ctx.now.monotonic,
            unix_ns: self.ctx.now.unix_ns,
            deliveries_max: queue.options.deliveries_max,
            expired_too: self.ctx.planted(Fault::ExpiredLease),
        }
    }

    /// Lets everything take effect that has happened to a queue.
    pub(crate) fn settle_queue(&mut self, id: SharedId) {
        // At the end nothing changes any more; the next run goes on from here.
        if self.refuse_if_closing().is_err() {
            return;
        }
        self.open_queue_partitions(id);
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        let rules = Rules {
            now: self.ctx.now.monotonic,
            unix_ns: self.ctx.now.unix_ns,
            deliveries_max: queue.options.deliveries_max,
            expired_too: false,
        };
        for shelf in queue.partitions.values_mut() {
            shelf.state.expire(&rules, &mut queue.loads);
            if queue.awaited.is_empty() && !std::mem::replace(&mut shelf.is_swept, true) {
                shelf.state.bury_spent(&rules);
            }
        }
        let lapsed = queue.loads.take_lapsed();
        self.leases_lapsed(id, lapsed);
        self.serve_queue(id);
        // Behind the first events, if they are cached.
        self.tell_recovered(id);
        self.write_dead_letters(id);
        self.record_queue(id);
        self.arm_queue(id);
    }

    /// Takes up partitions that serve and are not known yet, as the table
    /// has them.
    fn open_queue_partitions(&mut self, id: SharedId) {
        let out_of_turn = self.ctx.planted(Fault::KeysOutOfTurn);
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        let Some(topic) = self.topics.get(&queue.topic) else {
            return;
        };
        if queue.partitions.len() == topic.partitions.len() {
            return;
        }
        let table = self.controller.table().topic(queue.topic);
        // Its record is not durable yet.
        let Some((table, entry)) =
            table.and_then(|table| Some((table, table.shared(&queue.consumer)?)))
        else {
            return;
        };
        for (index, slot) in topic.partitions.iter().enumerate() {
            let index = PartitionIndex(index as u32);
            let Slot::Open(storage) = slot else {
                continue;
            };
            let Some(partition) = self.partitions.get(storage) else {
                continue;
            };
            if queue.partitions.contains_key(&index) {
                continue;
            }
            let present = partition.store.state();
            let known = entry.queue.get(&index).cloned().unwrap_or_default();
            let ended = partition.store.ended.iter();
            let ended = ended.filter(|(life, _)| *life >= known.incarnation);
            let kept = ended.map(|(_, end)| *end).min();
            let kept = kept.unwrap_or(Offset(u64::MAX));
            let mut state = QueuePartition::new(&known, present.incarnation, kept);
            if queue.options.ordered_by_key && !out_of_turn {
                state.order_by_key();
            }
            let missing = state.lost(Offset(0), present.first, &mut queue.loads);
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
                        time: self.ctx.now.unix_ns,
                    };
                    queue.unreported.add(index, gap);
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
            queue.partitions.insert(index, shelf);
        }
    }

    /// Events of a partition are lost: for its queues they count as settled.
    pub(crate) fn lost_of_queues(&mut self, key: PartitionKey, present: Incarnation, gap: Gap) {
        let ids: Vec<SharedId> = self.shared.of(key.topic).collect();
        for id in ids {
            let Some(queue) = self.queues.get_mut(&id) else {
                continue;
            };
            if let Some(shelf) = queue.partitions.get_mut(&key.partition)
                && shelf.state.incarnation() == present
            {
                let missing = shelf.state.lost(gap.first, gap.end, &mut queue.loads);
                for (first, end) in missing {
                    queue
                        .unreported
                        .add(key.partition, Gap { first, end, ..gap });
                }
                self.ctx.dirty.queues.insert(id);
            }
        }
    }

    /// When the queue is to be looked at again.
    fn arm_queue(&mut self, id: SharedId) {
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        let now = self.ctx.now;
        let draining = self.drain.is_begun();
        let later = |unix_ns: u64| {
            now.monotonic + Duration::from_nanos(unix_ns.saturating_sub(now.unix_ns))
        };
        let shelves = queue.partitions.values().flat_map(|shelf| {
            let (lease, due) = shelf.state.next_expiry();
            let letter = shelf.state.next_dead_letter();
            let letter = letter.filter(|_| shelf.letter.is_none() && !draining);
            let again = shelf.staging.retry_at.filter(|at| *at > now.monotonic);
            [
                lease,
                due.map(later),
                letter.map(|_| shelf.letter_at),
                again,
            ]
        });
        let record_at = queue.record_at.max(queue.quiet_until);
        let record = queue.under_way.is_none() && record_at > now.monotonic;
        let record = record.then_some(record_at);
        let report = queue.unreported.due().filter(|_| queue.is_attended);
        let report = report.filter(|at| *at > now.monotonic);
        let Some(at) = shelves.flatten().chain(record).chain(report).min() else {
            return;
        };
        let at = at.max(now.monotonic);
        match queue.timer_at {
            // It comes early at worst, and then is armed again.
            Some(armed) if armed <= at && armed > now.monotonic => return,
            Some(armed) => self.ctx.timers.remove(armed, Timer::Queue(id)),
            None => {}
        }
        queue.timer_at = Some(at);
        self.ctx.timers.insert(at, Timer::Queue(id));
    }

    /// A lease that was never given before: the upper half is random in each
    /// run of the server, the lower half counts.
    pub(super) fn next_lease(&mut self) -> LeaseId {
        if self.last_lease == 0 {
            self.last_lease = (self.ctx.random.id() as u64) & !u64::from(u32::MAX);
        }
        self.last_lease = self.last_lease.wrapping_add(1).max(1);
        LeaseId(self.last_lease)
    }
}
