//! A queue that serves: its partitions, what each has read, and when it is to
//! be looked at again.

use super::answers::{Answers, UnderWay};
use super::letter_data::{Letter, Letters};
use super::partition::{Loads, QueuePartition, Rules};
use super::service_rate::ServiceRate;
use super::staging::Staging;
use super::unreported::UnreportedGaps;
use crate::coordinator::commands::Commands;
use crate::coordinator::members::shared::Shared;
use crate::coordinator::served_topic::{Slot, Topics};
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::{RequestId, SharedId, StorageId};
use crate::partition::Partitions;
use crate::timers::Timer;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use topic::QueueOptions;
use wire::record::{Gap, GapReason};
use wire::{Incarnation, LeaseId, MemberId, Offset, PartitionIndex, TopicId};

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
        partition.map_or(Offset(0), |partition| partition.store.visible)
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

/// One queue of this run of the server.
pub(crate) struct Queue {
    pub id: SharedId,
    pub topic: TopicId,
    pub consumer: String,
    pub options: QueueOptions,
    pub partitions: BTreeMap<PartitionIndex, Shelf>,
    /// What members have unsettled.
    pub loads: Loads,
    /// How fast members work.
    pub service_rates: BTreeMap<MemberId, ServiceRate>,
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
    pub told_recovering: BTreeMap<MemberId, RequestId>,
    /// Those who have room. One that cannot be sent anything now may be among
    /// them, until it is found out.
    pub ready: BTreeSet<MemberId>,
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
    /// There is a queue: it was made, or is known from before the start, when these members are
    /// awaited. Its record may not be durable yet.
    pub fn new(
        id: SharedId,
        shared: &Shared,
        options: QueueOptions,
        awaited: BTreeSet<MemberId>,
        ctx: &mut Ctx,
    ) -> Self {
        // What came to nothing before the start goes on by itself.
        ctx.timers.insert(ctx.now.monotonic, Timer::Queue(id));
        let topic = shared.record.topic;
        let consumer = shared.record.consumer.clone();
        Self {
            id,
            topic,
            consumer,
            options,
            partitions: BTreeMap::new(),
            loads: Loads::default(),
            service_rates: BTreeMap::new(),
            answers: BTreeMap::new(),
            gathered: Vec::new(),
            under_way: None,
            record_at: Duration::ZERO,
            quiet_until: Duration::ZERO,
            from_before: awaited.clone(),
            awaited,
            told_recovering: BTreeMap::new(),
            ready: BTreeSet::new(),
            members_changed: true,
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

    /// What members hear of how long a lease is.
    pub fn lease_ms(&self) -> u32 {
        u32::try_from(self.options.lease_ms).unwrap_or(u32::MAX)
    }

    /// Has the queue looked at when the input that is being handled is done.
    pub fn touch(&self, ctx: &mut Ctx) {
        ctx.dirty.queues.insert(self.id);
    }

    pub fn timer_came(&mut self, ctx: &mut Ctx) {
        self.timer_at = None;
        self.touch(ctx);
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

    /// Ends leases whose time has passed. Returns whose, and when the last one of each ended.
    pub fn expire(&mut self, lent: &mut Lent<'_>) -> BTreeMap<MemberId, Duration> {
        self.open_partitions(lent);
        let rules = Rules {
            expired_too: false,
            ..self.rules(lent.ctx)
        };
        for shelf in self.partitions.values_mut() {
            shelf.state.expire(&rules, &mut self.loads);
            if self.awaited.is_empty() && !std::mem::replace(&mut shelf.is_swept, true) {
                shelf.state.bury_spent(&rules);
            }
        }
        self.loads.take_lapsed()
    }

    /// Lets everything take effect that has happened to the queue.
    pub fn advance(&mut self, lent: &mut Lent<'_>) {
        self.serve(lent);
        // Behind the first events, if they are cached.
        self.tell_recovered(lent);
        self.write_dead_letters(lent);
        self.record(lent);
        self.arm(lent);
    }

    /// A queue gives out events again: members whose answer said otherwise are notified.
    fn tell_recovered(&mut self, lent: &mut Lent<'_>) {
        if !self.awaited.is_empty() || self.told_recovering.is_empty() {
            return;
        }
        let told = std::mem::take(&mut self.told_recovering);
        // The answer to one that has joined anew since said so.
        let stands = |(member, caller): (MemberId, RequestId)| {
            let state = lent.shared.members.get(&member)?;
            (state.presence.caller() == Some(caller)).then_some(caller)
        };
        let members = told.into_iter().filter_map(stands).collect();
        self.send_news(members, Vec::new(), lent.ctx);
    }

    /// Takes up partitions that serve and are not known yet, as the table
    /// has them.
    fn open_partitions(&mut self, lent: &Lent<'_>) {
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
        for (index, slot) in topic.partitions.iter().enumerate() {
            let index = PartitionIndex(index as u32);
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

    /// When the queue is to be looked at again.
    fn arm(&mut self, lent: &mut Lent<'_>) {
        let now = lent.ctx.now;
        let draining = lent.is_draining;
        let later = |unix_ns: u64| {
            now.monotonic + Duration::from_nanos(unix_ns.saturating_sub(now.unix_ns))
        };
        let shelves = self.partitions.values().flat_map(|shelf| {
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
        let record_at = self.record_at.max(self.quiet_until);
        let record = self.under_way.is_none() && record_at > now.monotonic;
        let record = record.then_some(record_at);
        let report = self.unreported.due().filter(|_| self.is_attended);
        let report = report.filter(|at| *at > now.monotonic);
        let Some(at) = shelves.flatten().chain(record).chain(report).min() else {
            return;
        };
        let at = at.max(now.monotonic);
        match self.timer_at {
            // It comes early at worst, and then is armed again.
            Some(armed) if armed <= at && armed > now.monotonic => return,
            Some(armed) => lent.ctx.timers.remove(armed, Timer::Queue(self.id)),
            None => {}
        }
        self.timer_at = Some(at);
        lent.ctx.timers.insert(at, Timer::Queue(self.id));
    }
}
