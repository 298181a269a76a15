//! Events are given out: read in time, shared among the members with room.

use super::QueuePartition;
use super::core::{Lent, QueueCore, RETRY_AFTER, Shelf};
use super::partition::{Leased, Load, Waiting};
use super::service_rate::ServiceRate;
use super::staging::Staged;
use crate::answer::Delivery;
use crate::coordinator::members::presence::Member;
use crate::ctx::Ctx;
use crate::effects::ReadFor;
use crate::faults::Fault;
use crate::ids::RequestId;
use crate::partition::store::Reading;
use bytes::Bytes;
use log::{Found, ReadBatches, StorageError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;
use wire::codec::Appended;
use wire::message::{Lease, Leased as LeasedHead};
use wire::record::Gap;
use wire::{MemberId, Offset, PartitionIndex};

/// A member is given something when its step is free, or when less has been free for so long: it may settle
/// nothing before it has all that it may have.
const TOP_UP: Duration = Duration::from_millis(5);

/// A member is given at once what it works off within this time, going by
/// what it did before, also where an even share is less: an event a frame, to
/// each in turn, would cost more than the work. Nobody waits longer for it
/// than this.
const GRANT_TIME: Duration = Duration::from_millis(1);

/// Beyond an even share a member is given no more bytes at once than these: that
/// it worked its events off says nothing of the time that they took to get there,
/// in which others would have nothing to do.
const GRANT_BYTES_MAX: u64 = 256 << 10;

/// So many times on end a partition is read from what is at hand.
const READINGS_AT_ONCE: usize = 64;

/// Leases, and batches, of one frame: its head says where each is, and a head
/// has its bound.
const FRAME_PARTS_MAX: usize = 4096;
const _: () = assert!(FRAME_PARTS_MAX * (40 + 8) < wire::frame::HEAD_BYTES_MAX as usize / 2);

/// A member that can be given events.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    member: MemberId,
    caller: RequestId,
    /// What is free of its prefetch.
    events: u64,
    bytes: u64,
    inline_data: bool,
    /// How many it works off within [`GRANT_TIME`].
    service_rate: u64,
    /// How many are its even share.
    share: u64,
    /// Whether it has nothing unsettled: then an event of any size is let in.
    has_nothing: bool,
}

/// What room a member has.
enum Room {
    /// So much that it is given something.
    Enough(Candidate),
    /// Some.
    Little(Candidate),
    None,
}

/// What one member is given at once.
#[derive(Default)]
struct Grant {
    /// Batches, one behind the other, each in one piece or several.
    payload: Vec<Bytes>,
    /// How long each is.
    batch_bytes: Vec<u64>,
    /// What of them is given, without gaps.
    pieces: Vec<Waiting>,
    events: u64,
    bytes: u64,
    payload_bytes: u64,
    /// How many of each staged batch.
    from: Vec<(Offset, u64)>,
}

/// Who is given events, and in which turn.
#[derive(Debug)]
pub(super) struct Serving {
    /// How fast members work.
    pub service_rates: BTreeMap<MemberId, ServiceRate>,
    /// Those who have room. One that cannot be sent anything now may be among
    /// them, until it is found out.
    pub ready: BTreeSet<MemberId>,
    /// Those who have a little room, and since when.
    pub little: BTreeMap<MemberId, Duration>,
    /// Whether a member has come, or is there no more.
    pub members_changed: bool,
    /// The member that has its turn next is behind this one.
    last_served: MemberId,
    /// The partition that is looked at first.
    first: PartitionIndex,
    /// Whether a member is there, and whether one wants inline data.
    pub is_attended: bool,
    inline_data: bool,
}

impl Serving {
    pub fn new() -> Self {
        Self {
            service_rates: BTreeMap::new(),
            ready: BTreeSet::new(),
            little: BTreeMap::new(),
            members_changed: true,
            last_served: MemberId(0),
            first: PartitionIndex(0),
            is_attended: false,
            inline_data: false,
        }
    }

    /// Gives out what can be given out now.
    pub fn serve(&mut self, is_awaiting: bool, queue: &mut QueueCore, lent: &mut Lent<'_>) {
        self.note_members(queue, lent);
        self.top_up(lent);
        if !self.is_attended || is_awaiting || lent.is_draining {
            let shelves = queue.partitions.values_mut();
            shelves.for_each(|shelf| shelf.staging.clear());
            return;
        }
        // Each time another partition comes first.
        let first = self.first;
        let behind = queue.partitions.range(first..);
        let before = queue.partitions.range(..first);
        let order: Vec<PartitionIndex> = behind.chain(before).map(|(index, _)| *index).collect();
        if let Some(second) = order.get(1) {
            self.first = *second;
        }
        for index in order {
            self.serve_partition(index, queue, lent);
        }
        self.notify_of_gaps(queue, lent);
    }

    /// Members are notified of what was lost before it was settled.
    fn notify_of_gaps(&mut self, queue: &mut QueueCore, lent: &mut Lent<'_>) {
        let now = lent.ctx.now.monotonic;
        let members = lent.shared.members.values();
        let there: Vec<_> = members.filter_map(Member::present).collect();
        let is_due = queue.unreported.due().is_some_and(|at| at <= now);
        if is_due && !there.is_empty() && !lent.ctx.planted(Fault::NoQueueGap) {
            let gaps = queue.unreported.take(now);
            send_news(queue, there, gaps, lent.ctx);
        }
    }

    /// Takes note of who has room again, and, if that has changed, of what
    /// those who are there want.
    fn note_members(&mut self, queue: &mut QueueCore, lent: &Lent<'_>) {
        let mut freed = queue.loads.take_freed();
        if !freed.is_empty() && unsettled_max(queue, lent).is_some() {
            // There is room for the others, too.
            freed = lent.shared.members.keys().copied().collect();
        }
        for member in freed {
            self.look_for_room(member, queue, lent);
        }
        if !std::mem::take(&mut self.members_changed) {
            return;
        }
        let there = |member: &&Member| member.present().is_some();
        let mut there = lent.shared.members.values().filter(there).peekable();
        self.is_attended = there.peek().is_some();
        let inline_data = there.any(|member| member.prefetch.inline_data);
        if inline_data != self.inline_data {
            self.inline_data = inline_data;
            let shelves = queue.partitions.values_mut();
            shelves.for_each(|shelf| shelf.staging.clear());
        }
    }

    /// What room a member has, if it is there and can be sent something.
    fn room(&self, member: MemberId, queue: &QueueCore, lent: &Lent<'_>) -> Room {
        let Some(state) = lent.shared.members.get(&member) else {
            return Room::None;
        };
        let Some(caller) = state.present() else {
            return Room::None;
        };
        let prefetch = state.prefetch;
        let mut load = queue.loads.of(member);
        if lent.ctx.planted(Fault::NoPrefetch) {
            load = Load::default();
        }
        let service_rate = self.service_rates.get(&member);
        let mut candidate = Candidate {
            member,
            caller,
            events: u64::from(prefetch.events).saturating_sub(load.events),
            bytes: prefetch.bytes.saturating_sub(load.bytes),
            inline_data: prefetch.inline_data,
            service_rate: service_rate
                .map_or(0, |service_rate| service_rate.events_within(GRANT_TIME)),
            share: 1,
            has_nothing: load.events == 0,
        };
        let mut step_bytes = prefetch.step_bytes;
        if let Some(most) = unsettled_max(queue, lent) {
            let unsettled = queue.loads.bytes();
            step_bytes = step_bytes.min(most / 8);
            candidate.bytes = candidate.bytes.min(most.saturating_sub(unsettled));
            candidate.has_nothing &= unsettled < most;
        }
        let enough =
            candidate.events >= prefetch.step_events.max(1) && candidate.bytes >= step_bytes.max(1);
        // One without a prefetch finishes what it has.
        if prefetch.events == 0 || lent.ctx.paused.contains(caller.link) {
            return Room::None;
        }
        // One that has nothing gets an event of any size.
        match enough || candidate.has_nothing {
            true => Room::Enough(candidate),
            false if candidate.events > 0 && candidate.bytes > 0 => Room::Little(candidate),
            false => Room::None,
        }
    }

    /// A member that is to be given something now.
    fn candidate(&self, member: MemberId, queue: &QueueCore, lent: &Lent<'_>) -> Option<Candidate> {
        match self.room(member, queue, lent) {
            Room::Enough(candidate) => Some(candidate),
            Room::Little(candidate) => {
                let since = self.little.get(&member);
                let is_due = |since: &Duration| *since + TOP_UP <= lent.ctx.now.monotonic;
                since.is_some_and(is_due).then_some(candidate)
            }
            Room::None => None,
        }
    }

    /// When somebody has had a little room for long, if nobody has yet.
    pub fn next_top_up(&self, now: Duration) -> Option<Duration> {
        let due = self.little.values().map(|since| *since + TOP_UP);
        due.filter(|at| *at > now).min()
    }

    /// Those who have had a little room for long are among those who have room.
    fn top_up(&mut self, lent: &Lent<'_>) {
        let now = lent.ctx.now.monotonic;
        if lent.ctx.planted(Fault::NoTopUp) {
            return;
        }
        let due = self
            .little
            .iter()
            .filter(|(_, since)| **since + TOP_UP <= now);
        self.ready.extend(due.map(|(member, _)| *member));
    }

    /// Whether a member is among those that have room.
    fn look_for_room(&mut self, member: MemberId, queue: &QueueCore, lent: &Lent<'_>) {
        match self.room(member, queue, lent) {
            Room::Enough(_) => {
                self.little.remove(&member);
                self.ready.insert(member);
            }
            Room::Little(_) => {
                let now = lent.ctx.now.monotonic;
                self.little.entry(member).or_insert(now);
                if self.candidate(member, queue, lent).is_none() {
                    self.ready.remove(&member);
                }
            }
            Room::None => {
                self.little.remove(&member);
                self.ready.remove(&member);
            }
        }
    }

    /// Whose turn it is behind the member `last`, of those that have room.
    fn next_candidate(
        &mut self,
        last: MemberId,
        queue: &QueueCore,
        lent: &Lent<'_>,
    ) -> Option<Candidate> {
        loop {
            let behind = (Bound::Excluded(last), Bound::Unbounded);
            let mut behind = self.ready.range(behind);
            let member = *behind.next().or_else(|| self.ready.first())?;
            let candidate = self.candidate(member, queue, lent);
            if candidate.is_some() {
                return candidate;
            }
            self.look_for_room(member, queue, lent);
        }
    }

    fn serve_partition(
        &mut self,
        index: PartitionIndex,
        queue: &mut QueueCore,
        lent: &mut Lent<'_>,
    ) {
        for _ in 0..READINGS_AT_ONCE {
            self.give_staged(index, queue, lent);
            if !self.read_ahead(index, queue, lent) {
                return;
            }
        }
        // The others' turn; then on from here.
        queue.touch(lent.ctx);
    }

    /// Shares out what was read.
    fn give_staged(&mut self, index: PartitionIndex, queue: &mut QueueCore, lent: &mut Lent<'_>) {
        let mut last = self.last_served;
        // What is there is shared out evenly among those with room, round by
        // round; a round in which nobody takes anything is the last.
        let (mut share, mut turns, mut gave) = (0, 0, true);
        while self.has_staged(index, queue, lent) {
            let Some(candidate) = self.next_candidate(last, queue, lent) else {
                break;
            };
            if turns == 0 {
                if !std::mem::take(&mut gave) {
                    break;
                }
                turns = self.ready.len().max(1);
                let staged = queue.partitions[&index].staging.events;
                share = (staged / turns as u64).max(1);
            }
            turns -= 1;
            last = candidate.member;
            if self.give(index, candidate, share, queue, lent) {
                gave = true;
                self.little.remove(&candidate.member);
                self.look_for_room(candidate.member, queue, lent);
            }
        }
    }

    fn has_staged(
        &mut self,
        index: PartitionIndex,
        queue: &mut QueueCore,
        lent: &Lent<'_>,
    ) -> bool {
        queue.partitions.get_mut(&index).is_some_and(|shelf| {
            let waiting = shelf.state.waiting(lent.visible(shelf.storage));
            waiting.is_some_and(|waiting| shelf.staging.covering(waiting.first).is_some())
        })
    }

    /// Gives a member at most `share` of what was read, or what it soon works
    /// off. Returns whether it was given anything.
    fn give(
        &mut self,
        index: PartitionIndex,
        candidate: Candidate,
        share: u64,
        queue: &mut QueueCore,
        lent: &mut Lent<'_>,
    ) -> bool {
        let rules = queue.rules(lent.ctx);
        let (deadline, lease_ms) = (queue.deadline(rules.now), queue.lease_ms());
        let Some(shelf) = queue.partitions.get_mut(&index) else {
            return false;
        };
        let candidate = Candidate {
            events: candidate
                .events
                .min(share.max(candidate.service_rate))
                .max(1),
            share,
            ..candidate
        };
        let payload_max = lent.ctx.options.limits.read_bytes_max;
        let grant = shelf.grant(lent.visible(shelf.storage), &candidate, payload_max);
        if grant.events == 0 {
            return false;
        }
        let lease = lent.leases.next(lent.ctx);
        let twice = lent.ctx.planted(Fault::LeaseTwice) && lease.0 as u32 == 1;
        let leased = Leased {
            member: candidate.member,
            lease,
            deadline,
            deliveries: 0,
            bytes: grant.bytes.div_ceil(grant.events),
        };
        let incarnation = shelf.state.incarnation();
        let leases = grant.pieces.iter().map(|piece| Lease {
            partition: index,
            incarnation,
            first: piece.first,
            end: piece.end,
            lease,
            deliveries: piece.deliveries.saturating_add(1),
        });
        let head = LeasedHead {
            batch_bytes: grant.batch_bytes,
            leases: leases.collect(),
            lease_ms,
            gaps: Appended::default(),
        };
        for piece in shelf.state.joined_pieces(&grant.pieces) {
            let deliveries = piece.deliveries.saturating_add(1);
            let leased = Leased {
                deliveries,
                ..leased
            };
            shelf.state.lease(piece, leased, &mut queue.loads);
        }
        for (base, events) in &grant.from {
            shelf.staging.given(*base, *events);
        }
        let end = grant.pieces.last().map_or(Offset(0), |piece| piece.end);
        shelf.staging.drop_done(&shelf.state, end);
        self.last_served = candidate.member;
        if twice {
            let (member, loads) = (candidate.member, &mut queue.loads);
            shelf.state.member_gone(member, false, &rules, loads);
        }
        let leased = Delivery::Leased(head, grant.payload);
        lent.ctx.deliver(candidate.caller, leased);
        true
    }

    /// Reads what is to be given out next, if it is not there. True if it is now:
    /// what was just appended is at hand.
    fn read_ahead(
        &mut self,
        index: PartitionIndex,
        queue: &mut QueueCore,
        lent: &mut Lent<'_>,
    ) -> bool {
        let bytes_max = lent.ctx.options.limits.read_bytes_max;
        let now = lent.ctx.now.monotonic;
        let Some(shelf) = queue.partitions.get_mut(&index) else {
            return false;
        };
        let visible = lent.visible(shelf.storage);
        let Some(partition) = lent.partitions.get_mut(&shelf.storage) else {
            return false;
        };
        let store = &mut partition.store;
        let staging = &mut shelf.staging;
        if staging.reading || staging.retry_at.is_some_and(|at| at > now) {
            return false;
        }
        let Some(waiting) = shelf.state.waiting(visible) else {
            return false;
        };
        let is_next = staging.covering(waiting.first).is_none();
        let (from, end) = if is_next {
            (waiting.first, waiting.end)
        } else {
            // One reading ahead of those that take.
            let next = staging.end().max(shelf.state.next());
            // What is settled there would be read again and again.
            let next = shelf.state.next_unsettled(next);
            if staging.is_full || staging.bytes >= bytes_max / 2 || next >= visible {
                return false;
            }
            (next, visible)
        };
        let read = ReadBatches {
            from,
            end,
            bytes_max,
            inline_data: self.inline_data,
        };
        if is_next && let Some(found) = store.storage.read_at_hand(&read) {
            self.take_read(index, (from, end), Ok(found), queue, lent.ctx);
            return true;
        }
        (staging.reading, staging.outdated) = (true, false);
        let reading = Reading::For(ReadFor::Queue {
            id: queue.id,
            partition: index,
            at: (from, end),
        });
        store.read_batches(reading, read, lent.ctx);
        false
    }

    /// What was read for a queue has come.
    pub fn was_read(
        &mut self,
        index: PartitionIndex,
        range: (Offset, Offset),
        found: Result<Found, StorageError>,
        queue: &mut QueueCore,
        ctx: &mut Ctx,
    ) {
        self.take_read(index, range, found, queue, ctx);
        queue.touch(ctx);
    }

    fn take_read(
        &mut self,
        index: PartitionIndex,
        range: (Offset, Offset),
        found: Result<Found, StorageError>,
        queue: &mut QueueCore,
        ctx: &mut Ctx,
    ) {
        let bytes_max = ctx.options.limits.read_bytes_max;
        let now = ctx.now.monotonic;
        let Some(shelf) = queue.partitions.get_mut(&index) else {
            return;
        };
        let staging = &mut shelf.staging;
        staging.reading = false;
        let (from, end) = range;
        let mut report = None;
        match found {
            Ok(_) if std::mem::take(&mut staging.outdated) => {}
            Ok(Found::Batches { batches, next }) => {
                let mut at = from;
                for bytes in batches {
                    match Staged::read(bytes) {
                        Ok(staged) => {
                            // What lies between is no event.
                            shelf.state.lost(at, staged.base, &mut queue.loads);
                            for (first, end) in staged.holes() {
                                shelf.state.lost(first, end, &mut queue.loads);
                            }
                            at = staged.end;
                            if shelf.state.waits_within(staged.base, staged.end) {
                                staging.insert(staged);
                            }
                        }
                        Err(error) => report = Some(error.to_string()),
                    }
                }
                if report.is_none() {
                    shelf.state.lost(at, next.min(end), &mut queue.loads);
                }
                staging.bound(&shelf.state, bytes_max * 2);
            }
            Ok(Found::Gap(gap)) => {
                let first = gap.first.min(from);
                for (first, end) in shelf.state.lost(first, gap.end, &mut queue.loads) {
                    queue.unreported.add(index, Gap { first, end, ..gap });
                }
            }
            // Only batches without events are there.
            Ok(Found::Nothing) => {
                shelf.state.lost(from, end, &mut queue.loads);
            }
            Err(error) => report = Some(error.to_string()),
        }
        let before = staging.retry_at.take();
        if let Some(error) = report {
            staging.retry_at = Some(now + RETRY_AFTER);
            let line = format!(
                "queue {:?} cannot read partition {index} from {from} and tries again: {error}",
                queue.consumer
            );
            // The next reading that fails is no news, until one has succeeded.
            if before.is_none() {
                ctx.report(line);
            }
        }
    }
}

/// Sends members a frame without events: the queue gives out events, and lost these.
pub(super) fn send_news(
    queue: &QueueCore,
    members: Vec<RequestId>,
    gaps: Vec<(PartitionIndex, Gap)>,
    ctx: &mut Ctx,
) {
    let leased = LeasedHead {
        batch_bytes: Vec::new(),
        leases: Vec::new(),
        lease_ms: queue.lease_ms(),
        gaps: Appended(gaps),
    };
    for caller in members {
        ctx.deliver(caller, Delivery::Leased(leased.clone(), Vec::new()));
    }
}

impl Shelf {
    /// What a member is given of what was read, in the order of the offsets.
    fn grant(&mut self, visible: Offset, candidate: &Candidate, payload_max: u64) -> Grant {
        let mut grant = Grant::default();
        let Some(waiting) = self.state.waiting(visible) else {
            return grant;
        };
        let mut at = waiting.first;
        for staged in self.staging.behind(at) {
            let full = grant.events >= candidate.events
                || grant.payload_bytes >= payload_max
                || grant.batch_bytes.len() >= FRAME_PARTS_MAX;
            // What was not read yet has its turn first.
            if full || (at < staged.base && self.state.waits_within(at, staged.base)) {
                break;
            }
            let mut keep = Vec::new();
            let room = grant.take(&mut self.state, staged, (at, visible), candidate, &mut keep);
            if !keep.is_empty() {
                let pieces = staged.cut(&keep, candidate.inline_data);
                let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
                grant.payload_bytes += bytes;
                grant.batch_bytes.push(bytes);
                grant.payload.extend(pieces);
                grant.from.push((staged.base, keep.len() as u64));
            }
            if !room {
                break;
            }
            at = staged.end;
        }
        grant
    }
}

impl Grant {
    /// Takes what waits of a batch, as far as the member has room. Returns
    /// whether there may be room for more.
    fn take(
        &mut self,
        state: &mut QueuePartition,
        staged: &Staged,
        range: (Offset, Offset),
        candidate: &Candidate,
        keep: &mut Vec<u32>,
    ) -> bool {
        let (first, visible) = range;
        let parts = state.waiting_within(first.max(staged.base), staged.end.min(visible));
        for part in parts {
            let from = staged.index_from(part.first);
            for index in from..staged.columns.events.len() {
                let offset = staged.offset(index);
                if offset >= part.end {
                    break;
                }
                let bytes = staged.event_bytes(index);
                let alone = candidate.has_nothing && self.events == 0;
                let bytes_max = match self.events < candidate.share {
                    true => candidate.bytes,
                    false => candidate.bytes.min(GRANT_BYTES_MAX),
                };
                let fits = self.bytes + bytes <= bytes_max || alone;
                let parts = self.pieces.len();
                if self.events >= candidate.events || parts >= FRAME_PARTS_MAX || !fits {
                    return false;
                }
                if state.is_ordered() && !state.has_turn(offset, part.deliveries, staged.key(index))
                {
                    if state.waits_within(offset, offset.plus(1)) {
                        return false;
                    }
                    continue;
                }
                self.events += 1;
                self.bytes += bytes;
                keep.push(index as u32);
                let end = offset.plus(1);
                match self.pieces.last_mut() {
                    Some(last) if last.end == offset && last.deliveries == part.deliveries => {
                        last.end = end;
                    }
                    _ => self.pieces.push(Waiting {
                        first: offset,
                        end,
                        deliveries: part.deliveries,
                    }),
                }
            }
        }
        true
    }
}

/// The most bytes that members of a queue may have unsettled together, by its project's quota.
fn unsettled_max(queue: &QueueCore, lent: &Lent<'_>) -> Option<u64> {
    let quotas = &lent.ctx.rules.quotas;
    let topic = lent.topics.get(queue.topic)?;
    let most = quotas
        .of(&topic.namespace)
        .most(access::Bound::UnsettledBytes);
    most.filter(|_| !lent.ctx.planted(Fault::NoQuota))
}
