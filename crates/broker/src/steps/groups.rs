//! The groups that read a stream.

use super::core::Core;
use super::core::{RANKS_MAX, RECORDS};
use super::lent::Lent;
use super::readers::Group;
use crate::answer::Answer;
use crate::effects::{Effect, StepsRead};
use crate::faults::Fault;
use crate::ids::RequestId;
use crate::refusal::{Refused, refuse};
use log::{Found, ReadBatches, StorageError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::message::{
    AttendReaders, CursorMove, JoinReaders, MoveCursors, NextStep, ReadersJoined, ReleaseStep,
    StepGiven, StepStart,
};
use wire::record::Position;
use wire::step::RecordKind;
use wire::{ErrorCode, MemberId, Offset, Rank, Run};

/// The most groups that read a stream at once, ...
const GROUPS_MAX: usize = 1024;
/// ... and their ranks, all together.
const GROUP_RANKS_MAX: usize = 1 << 18;

/// See the module.
#[derive(Default)]
pub(super) struct Groups {
    pub all: BTreeMap<String, Group>,
    /// The id of the last one that was made.
    last: u64,
    /// Turns whose records are being read, by group.
    giving: BTreeSet<(u64, u64)>,
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
        topic::check_consumer_name(&join.reader)
            .map_err(|error| refuse(ErrorCode::InvalidConsumer, error.to_string()))?;
        let entry = lent.commands.table().topic(core.topic);
        if entry.is_some_and(|entry| entry.shared(&join.reader).is_some()) {
            return Err(refuse(
                ErrorCode::InvalidConsumer,
                format!("{:?} is a group or queue of events", join.reader),
            ));
        }
        if join.ranks == 0 || join.ranks > RANKS_MAX || join.rank.0 >= join.ranks {
            return Err(refuse(
                ErrorCode::InvalidConsumer,
                format!(
                    "rank {} of {}; a program has 1 to {RANKS_MAX} ranks",
                    join.rank, join.ranks
                ),
            ));
        }
        if let Some(group) = self.all.get(&join.reader) {
            let is_same = group.rank_count() == join.ranks as usize && group.latest == join.latest;
            if !is_same && group.is_attended() {
                return Err(refuse(
                    ErrorCode::InvalidConsumer,
                    format!(
                        "readers {:?} of {} are {} ranks, not {} of their kind: another program has that name",
                        join.reader,
                        core.name,
                        group.rank_count(),
                        join.ranks
                    ),
                ));
            }
            let is_taken = group.is_taken(join.rank, join.member);
            // Who says which turn it is in is no new life of its program.
            if join.turn > 0 && (!is_same || is_taken || group.is_of_others(join.rank)) {
                return Err(refuse(
                    ErrorCode::MemberFenced,
                    format!(
                        "another life of readers {:?} of {} has attached",
                        join.reader, core.name
                    ),
                ));
            }
            // Nor is who comes when all have left one of them.
            let is_left = join.turn == 0 && group.is_left();
            // Others go on in it behind turns that he has not had.
            let is_behind = join.turn == 0 && group.is_resumed_without(join.rank);
            if !is_same || is_taken || is_left || is_behind {
                let why = format!(
                    "rank {} of readers {:?} was opened again",
                    join.rank, join.reader
                );
                self.end(&join.reader, &why, core, lent);
            }
        }
        let now = lent.ctx.now.monotonic;
        let seen = join.seen.filter(|_| join.turn > 1);
        let present = lent.incarnation(core.topic);
        if let Some(seen) = seen
            && (seen.incarnation > present
                || seen.incarnation == present && seen.offset >= core.records.end())
        {
            let end = core.records.end();
            return Err(refuse(
                ErrorCode::OffsetOutOfRange,
                format!(
                    "no record is at the offset that was seen: {} ends at {end}",
                    core.name
                ),
            ));
        }
        let from = match seen {
            Some(seen) => behind(seen, core, lent),
            None => start_of(&join, (open_run, core), lent)?,
        };
        let is_first = seen.is_none();
        // A record that was lost since then is no turn any more; what came instead is given.
        let seen = seen.filter(|seen| from == seen.offset.plus(1));
        let seen = seen.map(|seen| seen.offset);
        if !self.all.contains_key(&join.reader) {
            let ranks: usize = self.all.values().map(Group::rank_count).sum();
            if self.all.len() >= GROUPS_MAX || ranks + join.ranks as usize > GROUP_RANKS_MAX {
                return Err(refuse(
                    ErrorCode::LimitExceeded,
                    format!(
                        "{} groups of {ranks} ranks read {}; {GROUPS_MAX} groups and {GROUP_RANKS_MAX} ranks are the most",
                        self.all.len(),
                        core.name
                    ),
                ));
            }
            self.last += 1;
            let first = if is_first { 1 } else { join.turn };
            let is_anew = join.turn == 0;
            let group = Group::new(self.last, join.ranks, join.latest, from, (first, is_anew));
            self.all.insert(join.reader.clone(), group);
        }
        let records = &core.records;
        let Some(group) = self.all.get_mut(&join.reader) else {
            return Ok(());
        };
        if join.turn > 0 && !group.can_recall(join.turn, seen, from, records) {
            return Err(refuse(
                ErrorCode::MemberFenced,
                format!(
                    "ranks of another life of readers {:?} of {} have attached",
                    join.reader, core.name
                ),
            ));
        }
        group.session_timeout = Duration::from_millis(join.session_timeout_ms.into());
        if join.turn > 0 {
            group.recall(join.turn, seen, from, records);
        }
        let turn = group.attach(join.rank, join.member, join.turn, now);
        group.let_go_of_released();
        lent.ctx
            .answer(caller, Answer::ReadersJoined(ReadersJoined { turn }));
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
        let group = self.group(&attend.reader, attend.rank, attend.member, core)?;
        if let Some(before) = group.attend(attend.rank, attend.member, caller) {
            lent.ctx.answer(before, Answer::Done);
        }
        Ok(())
    }

    /// The group of a member.
    fn group(
        &mut self,
        reader: &str,
        rank: Rank,
        member: MemberId,
        core: &Core,
    ) -> Result<&mut Group, Refused> {
        let name = &core.name;
        let group = self.all.get_mut(reader);
        group.filter(|group| group.is_member(rank, member)).ok_or_else(|| {
            refuse(
                ErrorCode::MemberFenced,
                format!("rank {rank} of readers {reader:?} of {name} is not attached, or another life of it is"),
            )
        })
    }

    /// A rank asks for the step of a turn.
    pub fn next_step(
        &mut self,
        caller: RequestId,
        next: &NextStep,
        core: &Core,
    ) -> Result<(), Refused> {
        let group = self.group(&next.reader, next.rank, next.member, core)?;
        group.waiting.push((caller, next.turn));
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
        let at_first = lent.ctx.planted(Fault::CursorAtFirstRelease);
        let group = self.group(&release.reader, release.rank, release.member, core)?;
        let Some(offset) = group.release(release.rank, release.turn, at_first) else {
            lent.ctx.answer(caller, Answer::Done);
            return Ok(());
        };
        let position = Position {
            incarnation: lent.incarnation(core.topic),
            offset,
        };
        let moves = MoveCursors {
            consumer: release.reader.clone(),
            how: CursorMove::Acknowledge,
            positions: vec![(RECORDS, position)],
        };
        let moved = Effect::MoveCursors(caller, core.topic, moves);
        lent.ctx.effects.push_back(moved);
        Ok(())
    }

    /// A group is no more: those who wait or attend are told why.
    fn end(&mut self, name: &str, why: &str, core: &Core, lent: &mut Lent<'_>) {
        let Some(mut group) = self.all.remove(name) else {
            return;
        };
        let error = refuse(ErrorCode::MemberFenced, format!("{}: {why}", core.name));
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
        let visible = lent.visible(storage);
        for group in self.all.values_mut() {
            let asked: BTreeSet<u64> = group.waiting.iter().map(|(_, turn)| *turn).collect();
            for turn in asked {
                if self.giving.contains(&(group.id, turn)) {
                    continue;
                }
                let Some(decided) = group.turn(turn, &core.records, visible) else {
                    continue;
                };
                self.giving.insert((group.id, turn));
                let read = ReadBatches {
                    from: decided.from,
                    end: decided.at.plus(1),
                    bytes_max: u64::MAX,
                    inline_data: true,
                };
                let what = StepsRead::Turn {
                    group: group.id,
                    turn,
                };
                lent.read(storage, core.topic, what, read);
            }
        }
    }

    /// The records of a turn were read.
    pub fn turn_read(
        &mut self,
        (id, turn): (u64, u64),
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
                if !group.lost(turn, gap.end) {
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
        let Some(decided) = group.turn(turn, &core.records, next) else {
            return;
        };
        // A reading may end early: then the turn is given its own record alone.
        if next <= decided.at {
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
                batch_bytes: batches.iter().map(|batch| batch.len() as u64).collect(),
            };
            lent.ctx
                .answer(caller, Answer::StepGiven(given, batches.clone()));
        }
    }

    /// Ends groups whose ranks have been away for too long.
    pub fn end_overdue(&mut self, core: &Core, lent: &mut Lent<'_>) {
        let now = lent.ctx.now.monotonic;
        let gone = self.all.iter().filter_map(|(name, group)| {
            let (gone, _) = group.overdue(now);
            let first = gone.first()?;
            let why = format!(
                "rank {first} of {} of readers {name:?} is gone for {} s",
                group.rank_count(),
                group.session_timeout.as_secs_f64()
            );
            Some((name.clone(), why))
        });
        for (name, why) in gone.collect::<Vec<_>>() {
            self.end(&name, &why, core, lent);
        }
    }

    /// How many groups have all of their ranks.
    pub fn complete_count(&self) -> usize {
        let complete = self.all.values().filter(|group| group.is_complete());
        complete.count()
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
        let groups = std::mem::take(&mut self.all).into_values();
        groups.flat_map(|mut group| group.take_callers()).collect()
    }
}

/// Where a group goes on that has seen a record.
fn behind(seen: Position, core: &Core, lent: &Lent<'_>) -> Offset {
    let next = Position {
        offset: seen.offset.plus(1),
        ..seen
    };
    lent.behind(core.topic, next)
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
        StepStart::Cursor => {
            let cursor = lent
                .commands
                .cursor(&(core.topic, join.reader.clone(), RECORDS));
            cursor.map_or(oldest, |cursor| lent.behind(core.topic, cursor))
        }
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
