//! A group of readers: its ranks, and which step each turn is given.
//!
//! ```text
//!  turn:  (none) --a rank asks, and there is a step--> decided --asked by the others--> the same --released by all--> gone
//!                                                                                                    the cursor moves
//! ```
//!
//! A rank that comes anew, under another number of its own, is another life of the program: the
//! group is made anew from the cursor, and what is left of the old one is refused.

use super::records::{Entry, Records};
use crate::ids::RequestId;
use std::collections::VecDeque;
use std::time::Duration;
use wire::step::RecordKind;
use wire::{MemberId, Offset, Rank};

/// A rank may be so many turns ahead of the slowest one of its group.
pub(super) const TURNS_AHEAD_MAX: u64 = 64;
/// A turn brings no more records than this of those before its own: a rank that wants more reads them.
const RECORDS_AT_ONCE: u64 = 64;

/// Where a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Present(RequestId),
    Away(Duration),
}

/// A rank that has attached.
#[derive(Debug)]
struct ReaderRank {
    member: MemberId,
    presence: Presence,
    /// Whether it has ever been present.
    has_attended: bool,
    /// The last turn that it has released.
    released: u64,
}

/// What a turn is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub turn: u64,
    /// The first record that is sent with it.
    pub from: Offset,
    /// Its own.
    pub at: Offset,
    pub skipped: u64,
    /// Records before it that retention had taken.
    pub lost: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Group {
    pub id: u64,
    pub latest: bool,
    pub session_timeout: Duration,
    ranks: Vec<Option<ReaderRank>>,
    /// Turns that are decided and not released by all, in order.
    turns: VecDeque<Turn>,
    /// The last turn that is decided.
    last: u64,
    /// Behind the record of the last turn.
    pub next_from: Offset,
    /// Records behind that one that were lost, and told of by no turn yet.
    lost: u64,
    /// Whether it goes on from before a start: others may have had turns that this server does not
    /// know, so all have to be there first.
    is_resumed: bool,
    /// Whether it was begun by a new life of its program: ranks of the one before are no part of it.
    is_anew: bool,
    pub waiting: Vec<(RequestId, u64)>,
}

impl Group {
    pub fn new(
        id: u64,
        ranks: u32,
        latest: bool,
        from: Offset,
        (first_turn, is_anew): (u64, bool),
    ) -> Self {
        Self {
            id,
            latest,
            session_timeout: Duration::ZERO,
            ranks: std::iter::repeat_with(|| None)
                .take(ranks as usize)
                .collect(),
            turns: VecDeque::new(),
            last: first_turn - 1,
            next_from: from,
            lost: 0,
            is_resumed: first_turn > 1,
            is_anew,
            waiting: Vec::new(),
        }
    }

    pub fn rank_count(&self) -> usize {
        self.ranks.len()
    }

    /// Whether all ranks have attached.
    pub fn is_complete(&self) -> bool {
        self.ranks.iter().all(Option::is_some)
    }

    /// Whether a rank's place is somebody else's than this member's.
    pub fn is_taken(&self, rank: Rank, member: MemberId) -> bool {
        let known = self.ranks.get(rank.0 as usize).and_then(Option::as_ref);
        known.is_some_and(|known| known.member != member)
    }

    /// Whether a rank that has been in a turn and has no place here is of an earlier life.
    pub fn is_of_others(&self, rank: Rank) -> bool {
        let known = self.ranks.get(rank.0 as usize);
        self.is_anew && known.is_none_or(Option::is_none)
    }

    /// Whether it goes on from before a start, and this rank is not there yet.
    pub fn is_resumed_without(&self, rank: Rank) -> bool {
        let known = self.ranks.get(rank.0 as usize);
        self.is_resumed && known.is_none_or(Option::is_none)
    }

    /// Whether everybody who has attached was there, and is not any more.
    pub fn is_left(&self) -> bool {
        let is_gone =
            |rank: &ReaderRank| rank.has_attended && matches!(rank.presence, Presence::Away(_));
        self.ranks.iter().flatten().all(is_gone)
    }

    /// Whether anybody attends.
    pub fn is_attended(&self) -> bool {
        let there = |rank: &ReaderRank| matches!(rank.presence, Presence::Present(_));
        self.ranks.iter().flatten().any(there)
    }

    /// A rank attaches, be it again; `turn` is the one that it is in, 0 if it has had none. Gives
    /// the turn that it may ask for next.
    pub fn attach(&mut self, rank: Rank, member: MemberId, turn: u64, now: Duration) -> u64 {
        let first = self.turns.front().map_or(self.last + 1, |turn| turn.turn);
        let slot = &mut self.ranks[rank.0 as usize];
        let known = slot.get_or_insert_with(|| ReaderRank {
            member,
            presence: Presence::Away(now),
            has_attended: false,
            released: if turn > 0 { turn - 1 } else { first - 1 },
        });
        known.presence = Presence::Away(now);
        if turn > 0 { turn } else { known.released + 1 }
    }

    /// Whether what a rank says of its turn can be of the group whose turns others have told of: between two turns are
    /// as many records. Each life of a program counts its turns by itself.
    pub fn can_recall(
        &self,
        turn: u64,
        seen: Option<Offset>,
        from: Offset,
        records: &Records,
    ) -> bool {
        let (Some(front), Some(back)) = (self.turns.front(), self.turns.back()) else {
            return true;
        };
        // Of what retention took it is not known what it was.
        let oldest = records.entries.front().map(|entry| entry.offset);
        if !self.is_resumed || oldest.is_none_or(|oldest| oldest > from.min(front.at)) {
            return true;
        }
        let fits = |(from, end): (Offset, Offset), turns: u64| {
            let all = between(records, (from, end), (0, u64::MAX)).len() as u64;
            all == turns || (self.latest && all > turns)
        };
        if turn <= front.turn {
            return fits((from, front.at), front.turn - turn);
        }
        let Some(seen) = seen else {
            return true;
        };
        match self.turns.iter().find(|known| known.turn == turn - 1) {
            Some(known) => known.at == seen,
            None => {
                turn <= back.turn || fits((back.at.plus(1), seen.plus(1)), turn - 1 - back.turn)
            }
        }
    }

    /// After a start, a rank says what was decided before: that the record of turn `turn` - 1 is at
    /// `seen`, or, of the first turn, that it is looked for from `from` on. Turns between that one
    /// and those that are known were given what lies between.
    pub fn recall(&mut self, turn: u64, seen: Option<Offset>, from: Offset, records: &Records) {
        if !self.is_resumed {
            return;
        }
        let own = seen.map(|at| Turn {
            turn: turn - 1,
            from: at,
            at,
            skipped: 0,
            lost: 0,
        });
        let known = |wanted: u64| self.turns.iter().any(|known| known.turn == wanted);
        let own = own.filter(|own| !known(own.turn));
        // What is known is one piece; this lies before it or behind it.
        let before = self
            .turns
            .front()
            .copied()
            .filter(|front| turn <= front.turn);
        if let Some(front) = before {
            let between = between(records, (from, front.at), (turn, front.turn));
            between
                .into_iter()
                .rev()
                .for_each(|turn| self.turns.push_front(turn));
            own.into_iter().for_each(|own| self.turns.push_front(own));
        } else if let Some(own) = own {
            if let Some(back) = self.turns.back().copied() {
                let range = (back.at.plus(1), own.at);
                self.turns
                    .extend(between(records, range, (back.turn + 1, own.turn)));
            }
            self.turns.push_back(own);
            self.last = own.turn;
            self.next_from = own.at.plus(1);
        }
    }

    /// A rank attends. Says who did so before in its place.
    pub fn attend(&mut self, rank: Rank, member: MemberId, caller: RequestId) -> Option<RequestId> {
        let known = self.rank(rank, member)?;
        known.has_attended = true;
        match std::mem::replace(&mut known.presence, Presence::Present(caller)) {
            Presence::Present(before) if before != caller => Some(before),
            _ => None,
        }
    }

    fn rank(&mut self, rank: Rank, member: MemberId) -> Option<&mut ReaderRank> {
        let known = self.ranks.get_mut(rank.0 as usize)?.as_mut()?;
        (known.member == member).then_some(known)
    }

    pub fn is_member(&self, rank: Rank, member: MemberId) -> bool {
        let known = self.ranks.get(rank.0 as usize).and_then(Option::as_ref);
        known.is_some_and(|known| known.member == member)
    }

    /// The last turn that all ranks have released.
    fn released_by_all(&self) -> u64 {
        let released = self.ranks.iter().map(|rank| match rank {
            Some(rank) => rank.released,
            // Who has not come yet has the first turn before it.
            None => self.turns.front().map_or(self.last, |turn| turn.turn - 1),
        });
        released.min().unwrap_or(0)
    }

    /// A turn that is decided, or is now, if there is a step for it.
    pub fn turn(&mut self, turn: u64, records: &Records, visible: Offset) -> Option<Turn> {
        if let Some(known) = self.turns.iter().find(|known| known.turn == turn) {
            return Some(*known);
        }
        let is_next = turn.checked_sub(1) == Some(self.last);
        let is_near = turn <= self.released_by_all().saturating_add(TURNS_AHEAD_MAX);
        if !is_next || !is_near || (self.is_resumed && !self.is_complete()) {
            return None;
        }
        let entries = &records.entries;
        // What retention took is not waited for.
        let oldest = entries.front().map_or(self.next_from, |entry| entry.offset);
        let lost = oldest.0.saturating_sub(self.next_from.0);
        let next_from = self.next_from.max(oldest);
        let first = entries.partition_point(|entry| entry.offset < next_from);
        let end = entries.partition_point(|entry| entry.offset < visible);
        if first >= end {
            return None;
        }
        let ahead = entries.range(first..end);
        let is_turn = |entry: &&Entry| {
            matches!(
                entry.kind,
                RecordKind::Step | RecordKind::Closed | RecordKind::Broken
            )
        };
        let is_step = |entry: &&Entry| entry.kind == RecordKind::Step;
        let chosen = match self.latest {
            true => ahead
                .clone()
                .rev()
                .find(is_step)
                .or_else(|| ahead.clone().rev().find(is_turn)),
            false => ahead.clone().find(is_turn),
        }?;
        let before = ahead
            .clone()
            .take_while(|entry| entry.offset < chosen.offset);
        let skipped = before.filter(is_step).count() as u64;
        let is_short = skipped == 0 && chosen.offset.0 - next_from.0 < RECORDS_AT_ONCE;
        let decided = Turn {
            turn,
            from: if is_short { next_from } else { chosen.offset },
            at: chosen.offset,
            skipped,
            lost: lost + std::mem::take(&mut self.lost),
        };
        self.turns.push_back(decided);
        self.last = turn;
        self.next_from = chosen.offset.plus(1);
        Some(decided)
    }

    /// What a turn is given cannot be read before `next`. The turn is decided again, behind what is
    /// lost, or is given its own record alone. Says whether it can be: not if its record is lost and
    /// others have had later turns.
    pub fn lost(&mut self, turn: u64, next: Offset) -> bool {
        let Some(known) = self.turns.iter_mut().find(|known| known.turn == turn) else {
            return false;
        };
        if next <= known.at {
            known.from = known.at;
            return true;
        }
        if turn != self.last {
            return false;
        }
        self.lost += known.lost + (next.0 - known.from.0);
        self.turns.pop_back();
        self.last = turn - 1;
        self.next_from = self.next_from.max(next);
        true
    }

    /// A rank has done with a turn. Gives where the cursor is to be, if all have done with more
    /// than before.
    pub fn release(&mut self, rank: Rank, turn: u64, at_first: bool) -> Option<Offset> {
        let known = self.ranks.get_mut(rank.0 as usize)?.as_mut()?;
        known.released = known.released.max(turn.min(self.last));
        let released = match at_first {
            true => known.released,
            false => self.released_by_all(),
        };
        self.let_go(released)
    }

    /// After a start, ranks that have attached say which turns they have released. The cursor moves with the next
    /// release.
    pub fn let_go_of_released(&mut self) {
        if self.is_resumed && self.is_complete() {
            self.let_go(self.released_by_all());
        }
    }

    /// Forgets the turns up to this one, and gives what is behind their records.
    fn let_go(&mut self, released: u64) -> Option<Offset> {
        let mut moved = None;
        while let Some(front) = self
            .turns
            .front()
            .copied()
            .filter(|front| front.turn <= released)
        {
            moved = Some(front.at.plus(1));
            self.turns.pop_front();
        }
        moved
    }

    /// Steps that are there and that not all ranks have released, and their bytes.
    pub fn backlog(&self, records: &Records) -> (u64, u64) {
        let from = self
            .turns
            .front()
            .map_or(self.next_from, |turn| turn.at.min(self.next_from));
        let first = records.entries.partition_point(|entry| entry.offset < from);
        let steps = records
            .entries
            .range(first..)
            .filter(|entry| entry.kind == RecordKind::Step);
        steps.fold((0, 0), |(steps, bytes), entry| {
            (steps + 1, bytes + entry.bytes)
        })
    }

    /// The step that the slowest rank is in, for people.
    pub fn place(&self, records: &Records) -> String {
        let at = self.turns.front().map_or(self.next_from, |turn| turn.at);
        let index = records.entries.partition_point(|entry| entry.offset < at);
        match records.entries.get(index) {
            Some(entry) => format!("step {} of run {}", entry.step, entry.run),
            None => "the end".to_owned(),
        }
    }

    /// Which ranks have been away for too long, and when the next one will have been.
    pub fn overdue(&self, now: Duration) -> (Vec<usize>, Option<Duration>) {
        let mut gone = Vec::new();
        let mut next: Option<Duration> = None;
        for (index, rank) in self.ranks.iter().enumerate() {
            let Some(Presence::Away(since)) = rank.as_ref().map(|rank| rank.presence) else {
                continue;
            };
            match since + self.session_timeout {
                at if at <= now => gone.push(index),
                at => next = Some(next.map_or(at, |next| next.min(at))),
            }
        }
        (gone, next)
    }

    /// A caller is gone, or waits no more.
    pub fn forget(&mut self, caller: RequestId, now: Duration) {
        self.waiting.retain(|(one, _)| *one != caller);
        for rank in self.ranks.iter_mut().flatten() {
            if rank.presence == Presence::Present(caller) {
                rank.presence = Presence::Away(now);
            }
        }
    }

    /// Everybody who waits for a turn or attends.
    pub fn take_callers(&mut self) -> Vec<RequestId> {
        let attending = self
            .ranks
            .iter()
            .flatten()
            .filter_map(|rank| match rank.presence {
                Presence::Present(caller) => Some(caller),
                Presence::Away(_) => None,
            });
        let attending: Vec<RequestId> = attending.collect();
        let waiting = self.waiting.drain(..).map(|(caller, _)| caller);
        waiting.chain(attending).collect()
    }
}

/// Records that are turns, from and to before these offsets, and the turns that they are.
fn between(
    records: &Records,
    (from, end): (Offset, Offset),
    (first, before): (u64, u64),
) -> Vec<Turn> {
    let start = records.entries.partition_point(|entry| entry.offset < from);
    let entries = records
        .entries
        .range(start..)
        .take_while(|entry| entry.offset < end);
    let is_turn = |entry: &&Entry| {
        matches!(
            entry.kind,
            RecordKind::Step | RecordKind::Closed | RecordKind::Broken
        )
    };
    let turns = entries.filter(is_turn).zip(first..before);
    let turns = turns.map(|(entry, turn)| Turn {
        turn,
        from: entry.offset,
        at: entry.offset,
        skipped: 0,
        lost: 0,
    });
    turns.collect()
}
