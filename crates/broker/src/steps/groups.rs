//! The groups that read a stream.

use super::core::Core;
use super::core::{PINNED_RECORDS, RANKS_MAX, RECORDS};
use super::lent::Lent;
use super::readers::{CursorMoved, Group, Had, Turn};
use super::records::Records;
use super::share::{Share, UnderWay};
use crate::answer::Answer;
use crate::effects::{Effect, StepsRead};
use crate::faults::Fault;
use crate::ids::RequestId;
use crate::refusal::{Refused, refuse};
use crate::request::CoordinatorRequest;
use log::{Found, ReadBatches, StorageError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::message::{
    AttendReaders, CursorMove, Distribution, JoinReaders, LeaveReaders, MoveCursors, NextStep,
    ReaderMember, ReadersJoined, ReleaseStep, StepGiven, StepStart, TURNS_MAX,
};
use wire::record::Position;
use wire::step::RecordKind;
use wire::{ErrorCode, MemberId, Offset, Run};

/// The most groups that read a stream at once, ...
const GROUPS_MAX: usize = 1024;
/// ... and their ranks, all together.
const GROUP_RANKS_MAX: usize = 1 << 18;

/// The name of a reading program, and which of the groups that share its steps.
type Key = (String, String);

/// See the module.
#[derive(Default)]
pub(super) struct Groups {
    all: BTreeMap<Key, Group>,
    /// By the name that its groups share.
    shares: BTreeMap<String, Share>,
    /// The id of the last group that was made.
    last: u64,
    /// Turns whose records are being read, by group.
    giving: BTreeSet<(u64, u64)>,
}

/// What readers of a name have not released.
pub(super) struct Backlog<'a> {
    pub reader: &'a str,
    pub steps: u64,
    pub bytes: u64,
    /// The first of it.
    pub first: Offset,
}

impl Backlog<'_> {
    /// The first step of it, for people.
    pub fn place(&self, records: &Records) -> String {
        records.place(self.first)
    }

    /// For people.
    pub fn describe(&self, steps: u64, records: &Records) -> String {
        let Self { reader, bytes, .. } = self;
        let place = self.place(records);
        format!(
            "{steps} steps of {bytes} bytes are queued: readers {reader:?} have not released {place}"
        )
    }
}

impl Groups {
    /// A rank attaches to its group.
    pub fn join(
        &mut self,
        caller: RequestId,
        join: JoinReaders,
        (open_run, core): (Option<Run>, &mut Core),
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        check(&join, core, lent)?;
        self.check_others(&join, core)?;
        let key = key(&join.who);
        let (rank, member) = (join.who.rank, join.who.member);
        let is_anew = join.life == MemberId(0);
        if let Some(group) = self.all.get(&key) {
            let is_same = is_same(group, &join);
            if !is_anew && (!is_same || group.life != join.life) {
                return Err(fenced(&join.who, core));
            }
            if is_anew && (!is_same || group.is_over_for(rank)) {
                let why = format!("rank {rank} of readers {} was opened again", named(&key));
                self.end(&key, ErrorCode::MemberFenced, &why, core, lent);
            }
        }
        let start = || start_of(&join, (open_run, core), lent);
        let had = match is_anew {
            true => None,
            false => Some(had(&join, start, core, lent)?),
        };
        if !self.all.contains_key(&key) {
            let from = match &had {
                Some(had) => had.behind,
                None => start()?,
            };
            self.make(&key, &join, from, (had.as_ref(), core), lent)?;
        }
        let (now, is_sharing) = (lent.ctx.now.monotonic, is_sharing(&join));
        let Some(group) = self.all.get_mut(&key) else {
            return Ok(());
        };
        group.session_timeout = Duration::from_millis(join.session_timeout_ms.into());
        if is_sharing && let Some(share) = self.shares.get_mut(&key.0) {
            share.join(group.id, had.as_ref(), &core.records);
        }
        let turn = match had {
            None => group.attach(rank, member, now),
            Some(had) => {
                if !group.attach_again((rank, member), had, join.released, now) {
                    return Err(fenced(&join.who, core));
                }
                join.turn
            }
        };
        let share = self.shares.get(&key.0).filter(|_| is_sharing);
        let told = share.and_then(|share| share.told(group.id));
        let joined = ReadersJoined {
            turn,
            life: group.life,
            began: Position {
                incarnation: lent.incarnation(core.topic),
                offset: told.unwrap_or_else(|| group.place_of(turn)),
            },
        };
        lent.ctx.answer(caller, Answer::ReadersJoined(joined));
        Ok(())
    }

    /// Whether readers that are there go with one that attaches.
    fn check_others(&mut self, join: &JoinReaders, core: &Core) -> Result<(), Refused> {
        let key = key(&join.who);
        let (reader, name) = (&key.0, &core.name);
        if let Some(group) = self.all.get(&key)
            && !is_same(group, join)
            && group.is_attended()
        {
            return Err(refuse(
                ErrorCode::InvalidConsumer,
                format!(
                    "readers {} of {name} are {} ranks, not {} of their kind: another program has that name",
                    named(&key),
                    group.rank_count(),
                    join.ranks
                ),
            ));
        }
        let is_other = |group: &Group| group.is_sharing != is_sharing(join);
        let is_otherwise = self
            .shares
            .get(reader)
            .is_some_and(|share| share.distribution != join.distribution);
        let mut others = self.of(reader);
        if others.any(|(_, group)| (is_other(group) || is_otherwise) && group.is_attended()) {
            return Err(refuse(
                ErrorCode::InvalidConsumer,
                format!("steps of {name} are given to readers {reader:?} in another way"),
            ));
        }
        Ok(())
    }

    /// The groups of a name.
    fn of(&self, reader: &str) -> impl Iterator<Item = (&Key, &Group)> {
        let from = (reader.to_owned(), String::new());
        let of_it = self.all.range(from..);
        of_it.take_while(move |(key, _)| key.0 == reader)
    }

    /// Makes a group that is not there.
    fn make(
        &mut self,
        key: &Key,
        join: &JoinReaders,
        from: Offset,
        (had, core): (Option<&Had>, &Core),
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let ranks: usize = self.all.values().map(Group::rank_count).sum();
        let groups = self.all.len().max(self.shares.len());
        if groups >= GROUPS_MAX || ranks + join.ranks as usize > GROUP_RANKS_MAX {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!(
                    "{groups} groups of {ranks} ranks read {}; {GROUPS_MAX} groups and {GROUP_RANKS_MAX} ranks are the most",
                    core.name
                ),
            ));
        }
        // Those that are there in another way have gone: it was checked.
        let others = self.of(&key.0);
        let others = others.filter(|(_, group)| group.is_sharing != is_sharing(join));
        for other in others.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let why = format!("readers {} are others now", named(&other));
            self.end(&other, ErrorCode::MemberFenced, &why, core, lent);
        }
        let is_otherwise = |share: &Share| share.distribution != join.distribution;
        if self.shares.get(&key.0).is_some_and(is_otherwise) {
            self.shares.remove(&key.0);
        }
        self.last += 1;
        let life = match had {
            None => join.who.member,
            Some(_) => join.life,
        };
        let mut group = Group::new(self.last, life, join.ranks, join.latest, from);
        group.is_sharing = is_sharing(join);
        if let Some(had) = had {
            group = group.resume(lent.ctx.now.monotonic);
            if group.is_sharing {
                let held = had.turns.iter().map(|turn| turn.at).min();
                let cursor = cursor_of(&key.0, core, lent);
                let from = cursor.or(held).unwrap_or(from);
                let share = || Share::new(join.distribution, from);
                self.shares.entry(key.0.clone()).or_insert_with(share);
            }
        } else if group.is_sharing {
            let share = || Share::new(join.distribution, from);
            self.shares.entry(key.0.clone()).or_insert_with(share);
        }
        self.all.insert(key.clone(), group);
        Ok(())
    }

    /// A rank says that it is there.
    pub fn attend(
        &mut self,
        caller: RequestId,
        attend: &AttendReaders,
        core: &Core,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let who = &attend.who;
        let group = self.group(who, core)?;
        if let Some(before) = group.attend(who.rank, who.member, caller) {
            lent.ctx.answer(before, Answer::Done);
        }
        Ok(())
    }

    /// The group of a member.
    fn group(&mut self, who: &ReaderMember, core: &Core) -> Result<&mut Group, Refused> {
        let (key, name) = (key(who), &core.name);
        let group = self.all.get_mut(&key);
        group
            .filter(|group| group.is_member(who.rank, who.member))
            .ok_or_else(|| {
                refuse(
                    ErrorCode::MemberFenced,
                    format!(
                        "rank {} of readers {} of {name} is not attached, or another life of it is",
                        who.rank,
                        named(&key)
                    ),
                )
            })
    }

    /// A rank asks for the step of a turn, and may have done with the one before.
    pub fn next_step(
        &mut self,
        caller: RequestId,
        next: &NextStep,
        core: &Core,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let NextStep { who, .. } = next;
        let group = self.group(who, core)?;
        group.waiting.push((caller, next.turn));
        if next.released > 0 && !lent.ctx.planted(Fault::ForgetReleaseWithNext) {
            group.release(who.rank, who.member, next.released);
            // The caller is answered with its step, and nobody waits for the cursor. If it can't be
            // moved, the next release moves it, or is told why not.
            self.let_go(RequestId::unasked(caller.link), &key(who), core, lent);
        }
        Ok(())
    }

    /// A rank has done with a turn.
    pub fn release(
        &mut self,
        caller: RequestId,
        release: &ReleaseStep,
        core: &Core,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let who = &release.who;
        let group = self.group(who, core)?;
        group.release(who.rank, who.member, release.turn);
        self.let_go(caller, &key(who), core, lent);
        Ok(())
    }

    /// A rank has done with all turns.
    pub fn leave(
        &mut self,
        caller: RequestId,
        leave: &LeaveReaders,
        core: &Core,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let who = &leave.who;
        let group = self.group(who, core)?;
        if let Some(attending) = group.leave(who.rank, who.member) {
            lent.ctx.answer(attending, Answer::Done);
        }
        let key = key(who);
        self.let_go(caller, &key, core, lent);
        if self.all.get(&key).is_some_and(Group::is_left) {
            let why = "all ranks have left";
            self.end(&key, ErrorCode::MemberFenced, why, core, lent);
        }
        Ok(())
    }

    /// What all ranks of a group have released is forgotten; the cursor moves, if it is to. If it
    /// was refused before, it is tried again: who was told so comes again, or nobody was.
    fn let_go(&mut self, caller: RequestId, key: &Key, core: &Core, lent: &mut Lent<'_>) {
        let at_first = lent.ctx.planted(Fault::CursorAtFirstRelease);
        let Some(group) = self.all.get_mut(key) else {
            return;
        };
        let mut moved = group.let_go(at_first);
        if group.is_sharing {
            let under_way = self.under_way(&key.0);
            let share = self.shares.get_mut(&key.0);
            moved = share.and_then(|share| share.cursor_moved(under_way));
            // Others may be given the end of the run now.
            core.touch(lent);
        }
        let from = cursor_of(&key.0, core, lent);
        // A group of a share that is no more has nothing to move.
        let due = self.last_move(key).and_then(|last| {
            let refused = last.filter(|last| last.from == from).map(|last| last.to);
            let to = moved.or(refused)?;
            *last = Some(CursorMoved { from, to });
            Some(to)
        });
        let Some(offset) = due else {
            lent.ctx.answer(caller, Answer::Done);
            return;
        };
        let position = Position {
            incarnation: lent.incarnation(core.topic),
            offset,
        };
        let moves = MoveCursors {
            consumer: key.0.clone(),
            how: CursorMove::Acknowledge,
            positions: vec![(RECORDS, position)],
        };
        let request = CoordinatorRequest::MoveCursors(core.topic, moves);
        let moved = Effect::Ask(caller, Box::new(request.into()));
        lent.ctx.effects.push_back(moved);
    }

    /// What a group, or those that it shares with, last moved the cursor by.
    fn last_move(&mut self, key: &Key) -> Option<&mut Option<CursorMoved>> {
        let group = self.all.get_mut(key)?;
        match group.is_sharing {
            true => self.shares.get_mut(&key.0).map(|share| &mut share.moved),
            false => Some(&mut group.moved),
        }
    }

    /// What the groups of a share have been given and not released.
    fn under_way(&self, reader: &str) -> UnderWay {
        self.of(reader)
            .fold(UnderWay::default(), |all, (_, group)| UnderWay {
                is_open: all.is_open || group.open_steps().next().is_some(),
                first: all.first.into_iter().chain(group.first_open()).min(),
            })
    }

    /// A group is no more: those who wait or attend are told why.
    fn end(&mut self, key: &Key, code: ErrorCode, why: &str, core: &Core, lent: &mut Lent<'_>) {
        let Some(mut group) = self.all.remove(key) else {
            return;
        };
        if let Some(share) = self.shares.get_mut(&key.0).filter(|_| group.is_sharing) {
            share.leave(group.id, group.unread_steps());
            if share.is_idle() {
                self.shares.remove(&key.0);
            }
        }
        let error = refuse(code, format!("{}: {why}", core.name));
        for caller in group.take_callers() {
            lent.ctx.refuse(caller, error.clone());
        }
        core.touch(lent);
    }

    /// Gives turns to those who asked for them, as far as there are steps.
    pub fn give_turns(&mut self, core: &Core, lent: &mut Lent<'_>) {
        let Ok(storage) = lent.storage(core.topic, RECORDS) else {
            return;
        };
        if core.retry_at.is_some() {
            return;
        }
        let seen = (&core.records, lent.visible(storage));
        let asking = self
            .all
            .iter()
            .filter(|(_, group)| !group.waiting.is_empty());
        let asking: Vec<Key> = asking.map(|(key, _)| key.clone()).collect();
        let mut forgotten = Vec::new();
        for key in asking {
            let Some(group) = self.all.get(&key) else {
                continue;
            };
            let asked: BTreeSet<u64> = group.waiting.iter().map(|(_, turn)| *turn).collect();
            let id = group.id;
            for turn in asked {
                if self.giving.contains(&(id, turn)) {
                    continue;
                }
                let Some(decided) = self.turn(&key, turn, seen) else {
                    let group = self.all.get(&key);
                    if group.is_some_and(|group| group.is_forgotten(turn)) {
                        forgotten.push((key.clone(), turn));
                    }
                    continue;
                };
                let copy = core.records.copy_of(decided.at);
                let pinned = copy.and_then(|copy| {
                    let pinned = lent.storage(core.topic, PINNED_RECORDS).ok()?;
                    Some((pinned, copy, copy))
                });
                let (storage, from, at) = pinned.unwrap_or((storage, decided.from, decided.at));
                self.giving.insert((id, turn));
                let read = ReadBatches {
                    from,
                    end: at.plus(1),
                    bytes_max: u64::MAX,
                    inline_data: true,
                };
                let what = StepsRead::Turn {
                    group: id,
                    turn,
                    is_pinned: copy.is_some(),
                };
                lent.read(storage, core.topic, what, read);
            }
        }
        for (key, turn) in forgotten {
            let why = format!(
                "readers {} had step {turn} of theirs before the server was started, and its record is lost: not all of them can have it",
                named(&key)
            );
            self.end(&key, ErrorCode::GroupIncomplete, &why, core, lent);
        }
    }

    /// A turn that is decided, or is now, if there is a step for it.
    fn turn(&mut self, key: &Key, turn: u64, seen: (&Records, Offset)) -> Option<Turn> {
        let group = self.all.get_mut(key)?;
        if let Some(decided) = group.decided(turn) {
            return Some(decided);
        }
        if !group.is_next(turn) {
            return None;
        }
        if !group.is_sharing {
            return group.decide(seen.0, seen.1);
        }
        let id = group.id;
        let under_way = self.under_way(&key.0);
        let ready = self.of(&key.0).filter(|(_, group)| group.is_complete());
        let ready: BTreeSet<u64> = ready.map(|(_, group)| group.id).collect();
        let share = self.shares.get_mut(&key.0)?;
        share.deal(&ready, seen, under_way);
        let next = share.next(id, seen, under_way)?;
        Some(self.all.get_mut(key)?.give(next))
    }

    /// The records of a turn were read.
    pub fn turn_read(
        &mut self,
        (id, turn, is_pinned): (u64, u64, bool),
        found: Result<Found, StorageError>,
        core: &mut Core,
        lent: &mut Lent<'_>,
    ) {
        self.giving.remove(&(id, turn));
        core.touch(lent);
        let incarnation = lent.incarnation(core.topic);
        let Some(group) = self.all.values_mut().find(|group| group.id == id) else {
            return;
        };
        let (batches, next) = match found {
            Ok(Found::Batches { batches, next }) => (batches, next),
            // Retention or damage was faster.
            Ok(Found::Gap(gap)) => {
                let decided = group.decided(turn);
                let at = decided.map_or(gap.end, |decided| decided.at);
                // What retention has passed meanwhile and is pinned has a copy, which is read next.
                if !is_pinned && core.records.copy_of(at).is_some() {
                    return;
                }
                let end = if is_pinned { at.plus(1) } else { gap.end };
                if !group.lost(turn, end) {
                    let error = refuse(
                        ErrorCode::OffsetOutOfRange,
                        format!("the step of turn {turn} is gone: {:?}", gap.reason),
                    );
                    let gone = group.waiting.extract_if(.., |(_, wanted)| *wanted == turn);
                    gone.for_each(|(caller, _)| lent.ctx.refuse(caller, error.clone()));
                }
                return;
            }
            // It is there, so it is read again, but not at once.
            Ok(Found::Nothing) => return core.retry("a record that is there was not found", lent),
            Err(error) => return core.retry(&error.to_string(), lent),
        };
        let Some(decided) = group.decided(turn) else {
            return;
        };
        // A reading may end early: then the turn is given its own record alone.
        if next <= decided.at && !is_pinned {
            group.lost(turn, next);
            return;
        }
        let (callers, waiting) = group
            .waiting
            .drain(..)
            .partition::<Vec<_>, _>(|(_, wanted)| *wanted == turn);
        group.waiting = waiting;
        for (caller, _) in callers {
            let given = StepGiven {
                turn,
                position: Position {
                    incarnation,
                    offset: decided.at,
                },
                skipped: decided.skipped,
                lost: decided.lost,
                pinned: is_pinned,
                batch_bytes: batches.iter().map(|batch| batch.len() as u64).collect(),
            };
            lent.ctx
                .answer(caller, Answer::StepGiven(given, batches.clone()));
        }
    }

    /// Ends groups whose ranks have been away for too long.
    pub fn end_overdue(&mut self, core: &Core, lent: &mut Lent<'_>) {
        let now = lent.ctx.now.monotonic;
        let gone = self.all.iter().filter_map(|(key, group)| {
            let first = group.overdue(now).0?;
            let why = format!(
                "rank {first} of {} of readers {} is gone for {} s",
                group.rank_count(),
                named(key),
                group.session_timeout.as_secs_f64()
            );
            Some((key.clone(), why))
        });
        for (key, why) in gone.collect::<Vec<_>>() {
            self.end(&key, ErrorCode::GroupIncomplete, &why, core, lent);
        }
    }

    /// How many groups have all of their ranks.
    pub fn complete_count(&self) -> usize {
        let complete = self.all.values().filter(|group| group.is_complete());
        complete.count()
    }

    /// What readers have not released, by their names: writers wait for it.
    pub fn backlogs<'a>(&'a self, records: &Records, now: Duration) -> Vec<Backlog<'a>> {
        let counted = |group: &&Group| group.counts(now);
        let alone = self.all.iter().filter(|(_, group)| !group.is_sharing);
        let alone = alone
            .filter(|(_, group)| counted(group))
            .map(|(key, group)| {
                let (steps, bytes) = group.backlog(records);
                Backlog {
                    reader: &key.0,
                    steps,
                    bytes,
                    first: group.first_unreleased(),
                }
            });
        let shared = self.shares.iter().filter_map(|(reader, share)| {
            let mut groups = self.of(reader).map(|(_, group)| group);
            groups.find(counted)?;
            let groups = self.of(reader).map(|(_, group)| group);
            let open = groups.flat_map(|group| group.open_steps().collect::<Vec<_>>());
            let (steps, bytes) = share.backlog(open, records);
            Some(Backlog {
                reader,
                steps,
                bytes,
                first: share.first_unreleased(self.under_way(reader)),
            })
        });
        alone.chain(shared).collect()
    }

    /// What a request for a turn waits for, for people, if that is more than a step.
    pub fn why(&self, caller: RequestId) -> Option<String> {
        let waits = |group: &Group| group.waiting.iter().any(|(one, _)| *one == caller);
        let (key, group) = self.all.iter().find(|(_, group)| waits(group))?;
        let missing = group.missing()?;
        Some(format!("of readers {} {missing}", named(key)))
    }

    /// When a rank will have been away for too long.
    pub fn next_overdue(&self, now: Duration) -> Option<Duration> {
        let times = self.all.values().filter_map(|group| group.overdue(now).1);
        times.min()
    }

    /// A caller is gone, or waits no more.
    pub fn forget(&mut self, caller: RequestId, now: Duration) {
        for group in self.all.values_mut() {
            group.forget(caller, now);
        }
    }

    /// Everybody who waits or attends; no group is left.
    pub fn take_callers(&mut self) -> Vec<RequestId> {
        self.shares.clear();
        let groups = std::mem::take(&mut self.all).into_values();
        groups.flat_map(|mut group| group.take_callers()).collect()
    }
}

fn key(who: &ReaderMember) -> Key {
    (who.reader.clone(), who.group.clone())
}

/// For people.
fn named((reader, group): &Key) -> String {
    match group.is_empty() {
        true => format!("{reader:?}"),
        false => format!("{reader:?} (group {group:?})"),
    }
}

fn is_sharing(join: &JoinReaders) -> bool {
    join.distribution != Distribution::All
}

fn is_same(group: &Group, join: &JoinReaders) -> bool {
    group.rank_count() == join.ranks as usize && group.latest == join.latest
}

fn fenced(who: &ReaderMember, core: &Core) -> Refused {
    refuse(
        ErrorCode::MemberFenced,
        format!(
            "another life of readers {} of {} has attached",
            named(&key(who)),
            core.name
        ),
    )
}

/// Whether a rank may attach as it says.
fn check(join: &JoinReaders, core: &Core, lent: &Lent<'_>) -> Result<(), Refused> {
    let who = &join.who;
    let invalid = |why: String| refuse(ErrorCode::InvalidConsumer, why);
    topic::check_consumer_name(&who.reader).map_err(|error| invalid(error.to_string()))?;
    if is_sharing(join) {
        topic::check_consumer_name(&who.group).map_err(|error| invalid(error.to_string()))?;
    }
    if is_sharing(join) == who.group.is_empty() {
        return Err(invalid(
            "a group has a name of its own if it shares steps with others, and none if not".into(),
        ));
    }
    if is_sharing(join) && join.latest {
        return Err(invalid(
            "readers that share steps are given each of them: the newest alone is for readers that share none".into(),
        ));
    }
    let entry = lent.commands.table().topic(core.topic);
    if entry.is_some_and(|entry| entry.shared(&who.reader).is_some()) {
        return Err(invalid(format!(
            "{:?} is a group or queue of events",
            who.reader
        )));
    }
    if join.ranks == 0 || join.ranks > RANKS_MAX || who.rank.0 >= join.ranks {
        return Err(invalid(format!(
            "rank {} of {}; a program has 1 to {RANKS_MAX} ranks",
            who.rank, join.ranks
        )));
    }
    let named = join.turns.len() as u64;
    let all = join.turn.saturating_sub(1);
    if join.turns.len() > TURNS_MAX || named != all.min(TURNS_MAX as u64) {
        return Err(invalid(format!(
            "a rank that has had {all} turns names the last {} of them, not {named}",
            all.min(TURNS_MAX as u64)
        )));
    }
    if (join.life == MemberId(0)) != (join.turn == 0) {
        return Err(invalid(
            "a rank that attaches again says in which life of its group it was, and in which turn"
                .into(),
        ));
    }
    Ok(())
}

/// What a rank has had that attaches again.
fn had(
    join: &JoinReaders,
    start: impl FnOnce() -> Result<Offset, Refused>,
    core: &Core,
    lent: &Lent<'_>,
) -> Result<Had, Refused> {
    let present = lent.incarnation(core.topic);
    let end = core.records.end();
    let is_ahead = |seen: &Position| {
        seen.incarnation > present || seen.incarnation == present && seen.offset >= end
    };
    if join.turns.iter().any(is_ahead) {
        return Err(refuse(
            ErrorCode::OffsetOutOfRange,
            format!(
                "no record is at an offset that was seen: {} ends at {end}",
                core.name
            ),
        ));
    }
    let behind = match join.turns.last() {
        Some(last) => behind(*last, core, lent),
        None => start()?,
    };
    let first = join.turn - join.turns.len() as u64;
    let turns = join.turns.iter().zip(first..);
    // A record that was lost since then is no turn any more; what came instead is given.
    let turns = turns.filter(|(seen, _)| behind_is_next(**seen, core, lent));
    let turns = turns.map(|(seen, turn)| {
        let gone = Turn::gone(turn, seen.offset);
        let entry = core.records.at(seen.offset);
        entry.map_or(gone, |entry| Turn::alone(turn, entry))
    });
    let mut turns: Vec<Turn> = turns.collect();
    if join.latest {
        let mut before: Option<Turn> = None;
        for turn in &mut turns {
            if let Some(before) = before.filter(|before| before.turn + 1 == turn.turn) {
                let passed = core.records.steps_between(before.at.plus(1), turn.at);
                turn.skipped = passed.0;
            }
            before = Some(*turn);
        }
    }
    Ok(Had {
        last: join.turn - 1,
        behind,
        turns,
    })
}

fn behind_is_next(seen: Position, core: &Core, lent: &Lent<'_>) -> bool {
    behind(seen, core, lent) == seen.offset.plus(1)
}

/// Where a group goes on that has seen a record.
fn behind(seen: Position, core: &Core, lent: &Lent<'_>) -> Offset {
    let next = Position {
        offset: seen.offset.plus(1),
        ..seen
    };
    lent.behind(core.topic, next)
}

/// The cursor of a name, in the present life of the stream.
fn cursor_of(reader: &str, core: &Core, lent: &Lent<'_>) -> Option<Offset> {
    let cursor = (core.topic, reader.to_owned(), RECORDS);
    let cursor = lent.commands.cursor(&cursor)?;
    Some(lent.behind(core.topic, cursor))
}

/// Where a group begins.
fn start_of(
    join: &JoinReaders,
    (open, core): (Option<Run>, &Core),
    lent: &Lent<'_>,
) -> Result<Offset, Refused> {
    let entries = &core.records.entries;
    let oldest = entries.front().map_or(Offset(0), |entry| entry.offset);
    let end = core.records.end();
    Ok(match join.start {
        StepStart::Cursor => cursor_of(&join.who.reader, core, lent).unwrap_or(oldest),
        StepStart::Oldest => oldest,
        StepStart::Next => end,
        StepStart::Newest => {
            let newest = entries
                .iter()
                .rev()
                .find(|entry| entry.kind == RecordKind::Step);
            newest.map_or(end, |entry| entry.offset)
        }
        StepStart::OpenRun => {
            let first = entries.iter().find(|entry| Some(entry.run) == open);
            first.map_or(end, |entry| entry.offset)
        }
        StepStart::Run(run) => match entries.iter().find(|entry| entry.run == run) {
            Some(entry) => entry.offset,
            None => {
                let known = match (entries.front(), entries.back()) {
                    (Some(first), Some(last)) => {
                        format!("runs {} to {} are", first.run, last.run)
                    }
                    _ => "no run is".to_owned(),
                };
                return Err(refuse(
                    ErrorCode::OffsetOutOfRange,
                    format!("run {run} of {} is not there: {known}", core.name),
                ));
            }
        },
        StepStart::At(position) => lent.behind(core.topic, position),
    })
}
