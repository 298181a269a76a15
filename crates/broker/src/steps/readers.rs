//! A group of readers: its ranks, and which step each turn is given.
//!
//! ```text
//!  turn:  (none) --a rank asks, and there is a step--> decided --asked by the others--> the same --released by all--> gone
//!                                                                                                    the cursor moves
//!
//!  group: Running <--all of its ranks have attached again-- Resuming <--a rank of it attaches after a start-- (none)
//!           ^                                                                                                    |
//!           +------------------------------------ a rank attaches anew -------------------------------------------+
//! ```
//!
//! A rank that comes anew, under another number of its own, is another life of the program: the
//! group is made anew from the cursor, and what is left of the old one is refused. A group that
//! loses a rank is no more; the others hear of it, and their program begins anew.

use super::records::{Entry, Records};
use crate::ids::RequestId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use wire::message::TURNS_MAX;
use wire::step::RecordKind;
use wire::{MemberId, Offset, Rank};

/// A rank may be so many turns ahead of the slowest one of its group.
pub(super) const TURNS_AHEAD_MAX: u64 = TURNS_MAX as u64;
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

/// The place of a rank.
#[derive(Debug)]
enum Place {
    /// Nobody has attached yet.
    Free,
    Taken(ReaderRank),
    /// Who was there has done with all turns.
    Left,
}

/// What a turn is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub turn: u64,
    /// The first record that is sent with it.
    pub from: Offset,
    /// Its own.
    pub at: Offset,
    pub is_step: bool,
    pub skipped: u64,
    /// Records before it that retention had taken.
    pub lost: u64,
}

impl Turn {
    /// One that is given its own record alone.
    pub fn alone(turn: u64, entry: &Entry) -> Self {
        Self {
            turn,
            from: entry.offset,
            at: entry.offset,
            is_step: entry.kind == RecordKind::Step,
            skipped: 0,
            lost: 0,
        }
    }

    /// One whose record retention has taken.
    pub fn gone(turn: u64, at: Offset) -> Self {
        Self {
            turn,
            from: at,
            at,
            is_step: true,
            skipped: 0,
            lost: 0,
        }
    }
}

/// How far a group is in its life.
#[derive(Debug)]
enum Phase {
    /// All of its turns are known here.
    Running,
    /// It was there before a start. Its ranks say which turns they have had, and nothing is decided
    /// before all are back.
    Resuming {
        since: Duration,
        known: BTreeMap<u64, Turn>,
        /// Behind the record of the last turn of all.
        last: (u64, Offset),
    },
}

/// What a cursor was to be moved from and to. Where it still is there, that was refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct CursorMoved {
    pub from: Option<Offset>,
    pub to: Offset,
}

/// What a rank says of the turns that it has had, for a server that was restarted.
#[derive(Debug)]
pub(super) struct Had {
    /// The last one; 0 is none.
    pub last: u64,
    /// Behind its record, in the present life of the stream; where it began, if it had none.
    pub behind: Offset,
    /// Those whose records are there.
    pub turns: Vec<Turn>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Group {
    pub id: u64,
    /// The member that began it.
    pub life: MemberId,
    pub latest: bool,
    /// Whether a share says which step a turn is given.
    pub is_sharing: bool,
    pub session_timeout: Duration,
    phase: Phase,
    places: Vec<Place>,
    /// Turns that are decided and not released by all, in order.
    turns: VecDeque<Turn>,
    /// Steps that a rank had not released when it left: the cursor stays before them.
    unread: BTreeSet<Offset>,
    /// What the cursor was moved from and to the last time.
    pub moved: Option<CursorMoved>,
    /// The last turn that is decided.
    last: u64,
    /// Behind the record of the last turn.
    pub next_from: Offset,
    /// Records behind that one that were lost, and told of by no turn yet.
    lost: u64,
    pub waiting: Vec<(RequestId, u64)>,
}

impl Group {
    pub fn new(id: u64, life: MemberId, ranks: u32, latest: bool, from: Offset) -> Self {
        Self {
            id,
            life,
            latest,
            is_sharing: false,
            session_timeout: Duration::ZERO,
            phase: Phase::Running,
            places: std::iter::repeat_with(|| Place::Free)
                .take(ranks as usize)
                .collect(),
            turns: VecDeque::new(),
            unread: BTreeSet::new(),
            moved: None,
            last: 0,
            next_from: from,
            lost: 0,
            waiting: Vec::new(),
        }
    }

    /// One that was there before a start.
    pub fn resume(mut self, now: Duration) -> Self {
        self.phase = Phase::Resuming {
            since: now,
            known: BTreeMap::new(),
            last: (0, self.next_from),
        };
        self
    }

    pub fn rank_count(&self) -> usize {
        self.places.len()
    }

    fn ranks(&self) -> impl Iterator<Item = &ReaderRank> {
        self.places.iter().filter_map(|place| match place {
            Place::Taken(rank) => Some(rank),
            Place::Free | Place::Left => None,
        })
    }

    fn known(&self, rank: Rank) -> Option<&ReaderRank> {
        match self.places.get(rank.0 as usize)? {
            Place::Taken(known) => Some(known),
            Place::Free | Place::Left => None,
        }
    }

    fn rank(&mut self, rank: Rank, member: MemberId) -> Option<&mut ReaderRank> {
        match self.places.get_mut(rank.0 as usize)? {
            Place::Taken(known) => (known.member == member).then_some(known),
            Place::Free | Place::Left => None,
        }
    }

    /// Whether all ranks have attached.
    pub fn is_complete(&self) -> bool {
        !self.places.iter().any(|place| matches!(place, Place::Free))
    }

    /// Whether writers wait for it. Not for one of which ranks never came; of one that was there
    /// before a start they have as long to come back as any that are away.
    pub fn counts(&self, now: Duration) -> bool {
        match &self.phase {
            Phase::Running => self.is_complete(),
            Phase::Resuming { since, .. } => now < *since + self.session_timeout,
        }
    }

    /// When it will not count any more, if nobody comes.
    fn counts_until(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Running => None,
            Phase::Resuming { since, .. } => Some(*since + self.session_timeout),
        }
    }

    /// Ranks that have not attached, for people.
    pub fn missing(&self) -> Option<String> {
        let free = self.places.iter().zip(0..);
        let mut free = free.filter(|(place, _)| matches!(place, Place::Free));
        let (_, first) = free.next()?;
        let more = match free.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let what = match &self.phase {
            Phase::Running => "has not attached",
            Phase::Resuming { .. } => "has not come back since the server was started",
        };
        Some(format!(
            "rank {first}{more} of {} {what}",
            self.places.len()
        ))
    }

    /// Whether a rank that comes anew begins another life of the group: its place was somebody
    /// else's, or others go on behind turns that it has not had.
    pub fn is_over_for(&self, rank: Rank) -> bool {
        match self.places.get(rank.0 as usize) {
            Some(Place::Free) | None => {
                let has_turns = matches!(&self.phase, Phase::Resuming { last, .. } if last.0 > 0);
                has_turns || self.is_deserted()
            }
            Some(Place::Taken(_) | Place::Left) => true,
        }
    }

    /// Whether everybody who has attached was there, and is not any more.
    fn is_deserted(&self) -> bool {
        let is_gone =
            |rank: &ReaderRank| rank.has_attended && matches!(rank.presence, Presence::Away(_));
        let is_begun = self
            .places
            .iter()
            .any(|place| !matches!(place, Place::Free));
        is_begun && self.ranks().all(is_gone)
    }

    /// Whether all ranks have left, or nobody was ever there.
    pub fn is_left(&self) -> bool {
        self.ranks().next().is_none()
    }

    /// Whether anybody attends.
    pub fn is_attended(&self) -> bool {
        let there = |rank: &ReaderRank| matches!(rank.presence, Presence::Present(_));
        self.ranks().any(there)
    }

    /// A rank attaches anew. Gives the turn that it may ask for.
    pub fn attach(&mut self, rank: Rank, member: MemberId, now: Duration) -> u64 {
        let first = match &self.phase {
            Phase::Running => self.turns.front().map_or(self.last + 1, |turn| turn.turn),
            Phase::Resuming { .. } => 1,
        };
        self.places[rank.0 as usize] = Place::Taken(ReaderRank {
            member,
            presence: Presence::Away(now),
            has_attended: false,
            released: first - 1,
        });
        self.resume_complete();
        first
    }

    /// A rank attaches again, and says what it has had. `false` if its place is somebody else's.
    pub fn attach_again(
        &mut self,
        (rank, member): (Rank, MemberId),
        had: Had,
        released: u64,
        now: Duration,
    ) -> bool {
        let place = &mut self.places[rank.0 as usize];
        match place {
            Place::Taken(known) if known.member != member => return false,
            Place::Left => return false,
            Place::Taken(known) => {
                known.released = known.released.max(released.min(had.last));
                known.presence = Presence::Away(now);
            }
            // It was away for so long that it was given up, or never came to this group.
            Place::Free if matches!(self.phase, Phase::Running) => return false,
            Place::Free => {
                *place = Place::Taken(ReaderRank {
                    member,
                    presence: Presence::Away(now),
                    has_attended: false,
                    released: released.min(had.last),
                });
            }
        }
        if let Phase::Resuming { known, last, .. } = &mut self.phase {
            for turn in had.turns {
                // Of the first one that a rank names it is not known what was passed over before it.
                let known = known.entry(turn.turn).or_insert(turn);
                known.skipped = known.skipped.max(turn.skipped);
            }
            if had.last >= last.0 {
                // Of several that have had the same turn one may know less of it.
                let behind = match had.last == last.0 {
                    true => last.1.max(had.behind),
                    false => had.behind,
                };
                *last = (had.last, behind);
            }
        }
        self.resume_complete();
        true
    }

    /// Goes on, if all ranks are back: turns that not all have released are what they say.
    fn resume_complete(&mut self) {
        if !self.is_complete() {
            return;
        }
        let Phase::Resuming { known, last, .. } =
            std::mem::replace(&mut self.phase, Phase::Running)
        else {
            return;
        };
        (self.last, self.next_from) = last;
        let released = self.ranks().map(|rank| rank.released).min();
        let released = released.unwrap_or(self.last);
        self.turns = known.into_values().collect();
        self.turns.retain(|turn| turn.turn > released);
    }

    /// Whether a turn was decided, and nobody knows any more what it was given: a power loss took
    /// its record, or the memory that it was in.
    pub fn is_forgotten(&self, turn: u64) -> bool {
        matches!(self.phase, Phase::Running)
            && turn <= self.last
            && !self.turns.iter().any(|known| known.turn == turn)
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

    /// A rank leaves. Says by which request it attended, if it did.
    pub fn leave(&mut self, rank: Rank, member: MemberId) -> Option<RequestId> {
        let known = self.rank(rank, member)?;
        let (presence, released) = (known.presence, known.released);
        let unread = self.turns.iter();
        let unread = unread.filter(|turn| turn.is_step && turn.turn > released);
        self.unread.extend(unread.map(|turn| turn.at));
        self.places[rank.0 as usize] = Place::Left;
        self.resume_complete();
        match presence {
            Presence::Present(caller) => Some(caller),
            Presence::Away(_) => None,
        }
    }

    pub fn is_member(&self, rank: Rank, member: MemberId) -> bool {
        self.known(rank).is_some_and(|known| known.member == member)
    }

    /// The last turn that all ranks have released.
    fn released_by_all(&self) -> u64 {
        let released = self.places.iter().filter_map(|place| match place {
            Place::Taken(rank) => Some(rank.released),
            // Who has not come yet has the first turn before it.
            Place::Free => Some(self.turns.front().map_or(self.last, |turn| turn.turn - 1)),
            Place::Left => None,
        });
        released.min().unwrap_or(self.last)
    }

    /// A turn that is decided.
    pub fn decided(&self, turn: u64) -> Option<Turn> {
        self.turns.iter().find(|known| known.turn == turn).copied()
    }

    /// Whether a turn is the next to be decided, and may be.
    pub fn is_next(&self, turn: u64) -> bool {
        let is_near = turn <= self.released_by_all().saturating_add(TURNS_AHEAD_MAX);
        turn.checked_sub(1) == Some(self.last) && is_near && matches!(self.phase, Phase::Running)
    }

    /// Decides the next turn of a group that shares with none, if there is a step for it.
    pub fn decide(&mut self, records: &Records, visible: Offset) -> Option<Turn> {
        let ahead = records.between(self.next_from, visible);
        let is_turn = |entry: &&Entry| entry.kind == RecordKind::Step || entry.kind.is_end();
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
        // What retention took is not waited for.
        let kept = records.oldest_kept().map(|entry| entry.offset);
        let from = self.next_from.max(kept.unwrap_or_default());
        let is_short =
            skipped == 0 && from <= chosen.offset && chosen.offset.0 - from.0 < RECORDS_AT_ONCE;
        let alone = Turn::alone(self.last + 1, chosen);
        let decided = Turn {
            from: if is_short { from } else { alone.at },
            skipped,
            lost: records.lost_between(self.next_from, chosen.offset),
            ..alone
        };
        self.next_from = chosen.offset.plus(1);
        Some(self.give(decided))
    }

    /// The next turn is this one.
    pub fn give(&mut self, turn: Turn) -> Turn {
        let decided = Turn {
            turn: self.last + 1,
            lost: turn.lost + std::mem::take(&mut self.lost),
            ..turn
        };
        self.turns.push_back(decided);
        self.last = decided.turn;
        decided
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
        self.lost += match self.is_sharing {
            // Of the records between others may have had some.
            true => known.lost + 1,
            false => known.lost + (next.0 - known.from.0),
        };
        self.turns.pop_back();
        self.last = turn - 1;
        self.next_from = self.next_from.max(next);
        true
    }

    /// A rank has done with a turn.
    pub fn release(&mut self, rank: Rank, member: MemberId, turn: u64) {
        let last = self.last;
        if let Some(known) = self.rank(rank, member) {
            known.released = known.released.max(turn.min(last));
        }
    }

    /// Forgets the turns that all ranks have released, and gives what is behind their records;
    /// `at_first` that one has, for a planted fault.
    pub fn let_go(&mut self, at_first: bool) -> Option<Offset> {
        if matches!(self.phase, Phase::Resuming { .. }) {
            return None;
        }
        let released = match at_first {
            true => self.ranks().map(|rank| rank.released).max().unwrap_or(0),
            false => self.released_by_all(),
        };
        let mut moved = None;
        while let Some(front) = self.turns.front().filter(|front| front.turn <= released) {
            moved = Some(front.at.plus(1));
            self.turns.pop_front();
        }
        let unread = self.unread.first();
        moved.map(|at| unread.map_or(at, |unread| at.min(*unread)))
    }

    /// Where the record of a turn is, or the next one begins.
    pub fn place_of(&self, turn: u64) -> Offset {
        let mut turns = self.turns.iter();
        let known = turns.find(|known| known.turn >= turn);
        known.map_or(self.next_from, |known| known.at)
    }

    /// Records of steps that it was given and that not all ranks have released.
    pub fn open_steps(&self) -> impl Iterator<Item = Offset> {
        self.open().filter(|turn| turn.is_step).map(|turn| turn.at)
    }

    /// The same, and those that ranks had not released that have left.
    pub fn unread_steps(&self) -> impl Iterator<Item = Offset> {
        self.open_steps().chain(self.unread.iter().copied())
    }

    /// Turns that not all ranks have released.
    fn open(&self) -> impl Iterator<Item = &Turn> {
        let known = match &self.phase {
            Phase::Running => None,
            Phase::Resuming { known, .. } => Some(known.values()),
        };
        let released = self.released_by_all();
        let open = known.into_iter().flatten().chain(&self.turns);
        open.filter(move |turn| turn.turn > released)
    }

    /// The first record that not all ranks have released, of those that they were given.
    pub fn first_open(&self) -> Option<Offset> {
        let open = self.open().map(|turn| turn.at);
        open.chain(self.unread.first().copied()).min()
    }

    /// The first record that not all ranks have released.
    pub fn first_unreleased(&self) -> Offset {
        let first = self.open().map(|turn| turn.at).min();
        first.map_or(self.next_from, |at| at.min(self.next_from))
    }

    /// Steps that are there and that not all ranks have released, and their bytes.
    pub fn backlog(&self, records: &Records) -> (u64, u64) {
        records.steps_between(self.first_unreleased(), records.end())
    }

    /// Which ranks have been away for too long, and when the next one will have been.
    pub fn overdue(&self, now: Duration) -> (Option<usize>, Option<Duration>) {
        let mut gone = None;
        let mut next = self.counts_until().filter(|at| *at > now);
        for (index, place) in self.places.iter().enumerate() {
            let Place::Taken(rank) = place else {
                continue;
            };
            let Presence::Away(since) = rank.presence else {
                continue;
            };
            match since + self.session_timeout {
                at if at <= now => gone = gone.or(Some(index)),
                at => next = Some(next.map_or(at, |next| next.min(at))),
            }
        }
        (gone, next)
    }

    /// A caller is gone, or waits no more.
    pub fn forget(&mut self, caller: RequestId, now: Duration) {
        self.waiting.retain(|(one, _)| *one != caller);
        for place in &mut self.places {
            if let Place::Taken(rank) = place
                && rank.presence == Presence::Present(caller)
            {
                rank.presence = Presence::Away(now);
            }
        }
    }

    /// Everybody who waits for a turn or attends.
    pub fn take_callers(&mut self) -> Vec<RequestId> {
        let attending = self.ranks().filter_map(|rank| match rank.presence {
            Presence::Present(caller) => Some(caller),
            Presence::Away(_) => None,
        });
        let attending: Vec<RequestId> = attending.collect();
        let waiting = self.waiting.drain(..).map(|(caller, _)| caller);
        waiting.chain(attending).collect()
    }
}
