//! Compares what programs were told with what is stored at the end, and with what readers were given.

use super::StepsSummary;
use super::ledger::{Entry, Role, Said, Who};
use super::plan::StepsPlan;
use super::ranks::steps_of;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use step::WhenFull;

/// A step as it is read at the end.
struct Stored<'a> {
    offset: u64,
    lives: &'a [u64],
}

struct Check<'a> {
    plan: &'a StepsPlan,
    entries: &'a [Entry],
    stored: BTreeMap<(u64, u64), Stored<'a>>,
    /// Runs that are over: whether they were broken, and where that is said.
    over: BTreeMap<u64, (bool, u64)>,
    summary: StepsSummary,
}

/// What a rank of a group was told while it was attached once: entries with their places.
struct Attached<'a> {
    who: Who,
    attached: usize,
    entries: Vec<(usize, &'a Entry)>,
}

type Checked = Result<(), String>;

/// What a run came to, or what is wrong with it.
pub fn check(
    plan: &StepsPlan,
    entries: &[Entry],
    is_calm: bool,
    summary: StepsSummary,
) -> Result<StepsSummary, String> {
    let mut check = Check {
        plan,
        entries,
        stored: BTreeMap::new(),
        over: BTreeMap::new(),
        summary,
    };
    check.replay()?;
    check.seen()?;
    check.writers()?;
    check.rendezvous()?;
    for group in 0..plan.groups.len() {
        check.readers(group)?;
    }
    check.shared(is_calm)?;
    if is_calm {
        check.queue()?;
    }
    Ok(check.summary)
}

fn refuse<T>(text: String) -> Result<T, String> {
    Err(text)
}

impl<'a> Check<'a> {
    fn discards(&self) -> bool {
        let plan = self.plan;
        plan.when_full == WhenFull::Discard && (plan.queue_steps > 0 || plan.queue_bytes > 0)
    }

    fn of_run(&self, run: u64) -> impl Iterator<Item = (u64, &Stored<'a>)> {
        let steps = self.stored.range((run, 0)..(run + 1, 0));
        steps.map(|((_, step), stored)| (*step, stored))
    }

    /// What is stored: steps of a run in their order, all of them but those that were dropped, and then its end.
    fn replay(&mut self) -> Checked {
        let of_replay = self
            .entries
            .iter()
            .filter(|entry| entry.who.role == Role::Replay);
        let life = of_replay.clone().map(|entry| entry.who.life).max();
        let mut last: Option<(u64, u64, Option<u64>)> = None;
        for entry in of_replay.filter(|entry| Some(entry.who.life) == life) {
            let (at, run, step) = match &entry.said {
                Said::Seen {
                    run,
                    step,
                    offset,
                    lives,
                } => {
                    let offset = *offset;
                    self.stored.insert((*run, *step), Stored { offset, lives });
                    (offset, *run, Some(*step))
                }
                Said::RunOver {
                    run,
                    broken,
                    offset,
                } => {
                    self.over.insert(*run, (*broken, *offset));
                    (*offset, *run, None)
                }
                _ => continue,
            };
            let is_next = match (last, step) {
                (None, Some(_)) => true,
                (Some((_, before, Some(done))), Some(step)) => run == before && step > done,
                (Some((_, before, None)), Some(_)) => run > before,
                (Some((_, before, Some(_))), None) => run == before,
                (Some((_, before, None)), None) => run > before,
                (None, None) => true,
            };
            if !is_next || last.is_some_and(|(before, _, _)| at <= before) {
                return refuse(format!("out of order: {:?} follows {last:?}", entry.said));
            }
            last = Some((at, run, step));
        }
        for (run, (broken, _)) in &self.over {
            let (steps, wanted) = (
                self.of_run(*run).count() as u64,
                steps_of(self.plan.seed, *run),
            );
            let last = self.of_run(*run).last().map_or(0, |(step, _)| step + 1);
            let is_dense = last == steps || self.discards();
            if last > wanted || !is_dense || (!broken && steps != wanted && !self.discards()) {
                return refuse(format!(
                    "run {run}, broken: {broken}, has {steps} steps of {wanted}: they are {:?}",
                    self.of_run(*run).map(|(step, _)| step).collect::<Vec<_>>()
                ));
            }
            if self.discards() && !broken {
                self.summary.discarded += wanted - steps;
            }
        }
        self.summary.steps = self.stored.len() as u64;
        self.summary.runs = self.over.len() as u64;
        self.summary.broken = self.over.values().filter(|(broken, _)| *broken).count() as u64;
        Ok(())
    }

    /// What anybody saw is stored, and was written by who is named.
    fn seen(&self) -> Checked {
        let written = self.entries.iter().filter_map(|entry| match entry.said {
            Said::Ending { run, step } => Some((entry.who.rank, entry.who.life, run, step)),
            _ => None,
        });
        let written: BTreeSet<_> = written.collect();
        for entry in self.entries {
            let Said::Seen {
                run,
                step,
                offset,
                lives,
            } = &entry.said
            else {
                continue;
            };
            let stored = self.stored.get(&(*run, *step));
            if stored.is_none_or(|stored| stored.offset != *offset || stored.lives != lives) {
                let stored = stored.map(|stored| (stored.offset, stored.lives));
                return refuse(format!("{entry:?}: what is stored is {stored:?}"));
            }
            for (rank, life) in (0..).zip(lives) {
                if !written.contains(&(rank, *life, *run, *step)) {
                    return refuse(format!("{entry:?}: life {life} has not ended that step"));
                }
            }
        }
        Ok(())
    }

    /// What writers were told is so.
    fn writers(&self) -> Checked {
        let is_writer = |entry: &&Entry| entry.who.role == Role::Write;
        let mut opened: BTreeMap<(u32, u64), Vec<(u64, u64)>> = BTreeMap::new();
        for entry in self.entries.iter().filter(is_writer) {
            if let Said::Opened { run, next } = entry.said {
                let lives = opened.entry((entry.who.rank, run)).or_default();
                lives.push((next, entry.who.life));
            }
        }
        for entry in self.entries.iter().filter(is_writer) {
            let Who { rank, life, .. } = entry.who;
            let written_by = |run, step| {
                let stored = self.stored.get(&(run, step));
                stored.map(|stored| stored.lives[rank as usize])
            };
            let lives = |run| opened.get(&(rank, run)).map_or(&[][..], Vec::as_slice);
            // A step that is not there was dropped, where that may be.
            let is_there =
                |run, step| written_by(run, step).map_or(self.discards(), |by| by == life);
            let begun = |run| {
                let own = lives(run).iter().find(|(_, other)| *other == life);
                own.map_or(0, |(next, _)| *next)
            };
            let is_wrong = match entry.said {
                Said::Opened { run, next } => {
                    let is_lost =
                        |step| written_by(run, step).map_or(!self.discards(), |by| by > life);
                    (0..next).any(is_lost)
                        || self.of_run(run).any(|(step, stored)| {
                            step >= next && stored.lives[rank as usize] < life
                        })
                }
                Said::Committed {
                    run,
                    step,
                    discarded,
                    offset,
                } => {
                    let stored = self.stored.get(&(run, step));
                    let is_lost = match (discarded, stored) {
                        (true, stored) => stored.is_some() || !self.discards(),
                        (false, None) => true,
                        (false, Some(stored)) => {
                            stored.offset != offset || stored.lives[rank as usize] != life
                        }
                    };
                    is_lost || !(begun(run)..step).all(|step| is_there(run, step))
                }
                Said::Accepted { run, step, .. } => {
                    let is_over = self.over.get(&run).is_some_and(|(broken, _)| !broken);
                    // A later life drops what was not committed before it.
                    let mut later = lives(run).iter();
                    let is_dropped = later.any(|(next, other)| *other > life && *next <= step);
                    is_over && !is_dropped && !is_there(run, step)
                }
                Said::Closed { run } => {
                    let mut steps = begun(run)..steps_of(self.plan.seed, run);
                    !steps.all(|step| is_there(run, step))
                }
                _ => false,
            };
            if is_wrong {
                return refuse(format!(
                    "{entry:?}: it is lost, or is another one: {}",
                    self.told(entry)
                ));
            }
        }
        Ok(())
    }

    /// What is stored of the run that an entry is about.
    fn told(&self, entry: &Entry) -> String {
        let run = match entry.said {
            Said::Opened { run, .. } | Said::Committed { run, .. } => run,
            Said::Accepted { run, .. } | Said::Closed { run } => run,
            _ => return String::new(),
        };
        let steps: Vec<_> = self
            .of_run(run)
            .map(|(step, stored)| (step, stored.offset, stored.lives))
            .collect();
        format!("steps, offsets and lives of the run are {steps:?}")
    }

    /// The first step waits for as many groups as it is to.
    fn rendezvous(&self) -> Checked {
        let is_first =
            |entry: &Entry| matches!(entry.said, Said::Committed { .. } | Said::Given { .. });
        let first = self.entries.iter().position(is_first);
        let before = &self.entries[..first.unwrap_or(self.entries.len())];
        let groups = self.plan.groups.iter().enumerate();
        let came = groups.filter(|(group, plan)| {
            (0..plan.ranks).all(|rank| {
                before.iter().any(|entry| {
                    let is_rank = (entry.who.role, entry.who.rank) == (Role::Read(*group), rank);
                    is_rank && entry.said == Said::Attaching
                })
            })
        });
        let (came, wanted) = (came.count(), self.plan.readers_min as usize);
        match came >= wanted {
            true => Ok(()),
            false => refuse(format!(
                "a step was committed with {came} groups of readers; {wanted} were waited for"
            )),
        }
    }

    /// What a group was given.
    fn readers(&mut self, group: usize) -> Checked {
        let attached = self.attached(group);
        let latest = self.plan.groups[group].latest;
        let shares = self.plan.groups[group].shares.is_some();
        if !shares {
            for own in &attached {
                self.order(own, latest)?;
            }
            for rank in 0..self.plan.groups[group].ranks {
                self.coverage(rank, latest, &attached)?;
            }
        }
        for (index, one) in attached.iter().enumerate() {
            for other in &attached[index + 1..] {
                if one.who.rank != other.who.rank && one.was_with(other) && other.was_with(one) {
                    self.summary.pairs += 1;
                    one.agrees(other, shares)?;
                }
            }
        }
        match shares {
            true => Ok(()),
            false => self.released_by_all(group, &attached),
        }
    }

    /// What each rank of a group was told while it was attached once.
    fn attached(&self, group: usize) -> Vec<Attached<'a>> {
        let role = Role::Read(group);
        let mut attached: Vec<Attached<'a>> = Vec::new();
        let entries = self.entries.iter().enumerate();
        for (place, entry) in entries.filter(|(_, entry)| entry.who.role == role) {
            match entry.said {
                Said::Attached => attached.push(Attached {
                    who: entry.who,
                    attached: place,
                    entries: Vec::new(),
                }),
                _ => {
                    let own = attached.iter_mut().rev().find(|own| own.who == entry.who);
                    own.into_iter()
                        .for_each(|own| own.entries.push((place, entry)));
                }
            }
        }
        attached
    }

    /// Steps that groups share are each done with by all ranks of one of them, before anybody is told of their run's
    /// end; where nothing goes wrong no other group is given them.
    fn shared(&mut self, is_calm: bool) -> Checked {
        let groups = self.plan.groups.iter().enumerate();
        let sharers: Vec<usize> = groups
            .filter(|(_, group)| group.shares.is_some())
            .map(|(index, _)| index)
            .collect();
        if sharers.is_empty() {
            return Ok(());
        }
        // Of each step, by group, the ranks that have done with it.
        let mut done: BTreeMap<u64, BTreeMap<usize, BTreeSet<u32>>> = BTreeMap::new();
        let mut given: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        for entry in self.entries {
            let Role::Read(group) = entry.who.role else {
                continue;
            };
            if !sharers.contains(&group) {
                continue;
            }
            match entry.said {
                Said::Given { offset, .. } => {
                    self.summary.shared += 1;
                    given.entry(offset).or_default().insert(group);
                }
                Said::Releasing { offset } => {
                    let of_it = done.entry(offset).or_default();
                    of_it.entry(group).or_default().insert(entry.who.rank);
                }
                Said::RunOver { run, .. } => {
                    let is_done = |offset: u64| {
                        done.get(&offset).is_some_and(|groups| {
                            groups.iter().any(|(group, ranks)| {
                                ranks.len() == self.plan.groups[*group].ranks as usize
                            })
                        })
                    };
                    let missed = self.of_run(run).find(|(_, stored)| !is_done(stored.offset));
                    if let Some((step, stored)) = missed {
                        return refuse(format!(
                            "{entry:?}: step {step} at {} was not done with by a group of those that share: {:?}",
                            stored.offset,
                            done.get(&stored.offset)
                        ));
                    }
                }
                _ => {}
            }
        }
        let twice = given.iter().find(|(_, groups)| groups.len() > 1);
        match twice {
            Some((offset, groups)) if is_calm => refuse(format!(
                "the step at {offset} was given to groups {groups:?}"
            )),
            _ => Ok(()),
        }
    }

    fn kill_in(&self, range: Range<usize>) -> Option<usize> {
        let kill = self.entries[range.clone()]
            .iter()
            .position(|entry| entry.said == Said::ServerKilled);
        kill.map(|place| range.start + place)
    }

    /// Within a life: each record behind the one before, and as many passed over as it says.
    fn order(&self, own: &Attached<'_>, latest: bool) -> Checked {
        let mut last: Option<u64> = None;
        for (_, entry) in &own.entries {
            let (offset, skipped) = match entry.said {
                Said::Given {
                    offset, skipped, ..
                } => (offset, Some(skipped)),
                Said::RunOver {
                    run,
                    offset,
                    broken,
                } => {
                    if self.over.get(&run) != Some(&(broken, offset)) {
                        return refuse(format!(
                            "{entry:?}: runs that are over are {:?}",
                            self.over
                        ));
                    }
                    (offset, None)
                }
                _ => continue,
            };
            if let Some(last) = last {
                if offset <= last {
                    return refuse(format!("{entry:?}: the turn before was at {last}"));
                }
                let between = self
                    .stored
                    .values()
                    .filter(|one| one.offset > last && one.offset < offset);
                let between = between.count() as u64;
                let is_told = latest && skipped.is_none_or(|said| said == between);
                if between > 0 && !is_told {
                    return refuse(format!(
                        "{entry:?}: {between} steps behind {last} were not given"
                    ));
                }
            }
            last = Some(offset);
        }
        Ok(())
    }

    /// All lives of a rank together have done with all steps, and were given them before the run's end.
    fn coverage(&mut self, rank: u32, latest: bool, attached: &[Attached<'a>]) -> Checked {
        let (mut given, mut done) = (BTreeSet::new(), BTreeSet::new());
        let lives = attached.iter().filter(|own| own.who.rank == rank);
        for (_, entry) in lives.flat_map(|own| &own.entries) {
            match entry.said {
                Said::Given {
                    offset, skipped, ..
                } => {
                    self.summary.given += 1;
                    self.summary.skipped += skipped;
                    given.insert(offset);
                }
                Said::Releasing { offset } => {
                    done.insert(offset);
                }
                Said::RunOver { run, .. } if !latest => {
                    let missed = self
                        .of_run(run)
                        .find(|(_, stored)| !given.contains(&stored.offset));
                    if let Some((step, _)) = missed {
                        return refuse(format!("{entry:?}: step {step} was not given before"));
                    }
                }
                _ => {}
            }
        }
        let lost = self
            .stored
            .iter()
            .find(|(_, stored)| !done.contains(&stored.offset));
        match lost {
            Some((place, stored)) if !latest => refuse(format!(
                "no life of rank {rank} has done with run and step {place:?} at {}: {:?}",
                stored.offset,
                attached.first().map(|own| own.who.role)
            )),
            _ => Ok(()),
        }
    }

    /// What all ranks have released, and were told so, is given to nobody again. A release that others have not
    /// made yet may be undone by a crash.
    fn released_by_all(&mut self, group: usize, attached: &[Attached<'a>]) -> Checked {
        let ranks = self.plan.groups[group].ranks;
        for one in attached.iter().filter(|own| own.who.rank == 0) {
            let together: Vec<&Attached<'_>> = attached
                .iter()
                .filter(|other| other.who.rank > 0 && one.was_with(other) && other.was_with(one))
                .collect();
            for (offset, (began, confirmed)) in one.released() {
                let mut places = vec![(began, confirmed)];
                for rank in 1..ranks {
                    let others = together.iter().filter(|other| other.who.rank == rank);
                    places
                        .extend(others.filter_map(|other| other.released().get(&offset).copied()));
                }
                // The answer to the first may be on its way when the server is killed.
                let first = places.iter().map(|(began, _)| *began).min().unwrap_or(0);
                let last = places
                    .iter()
                    .map(|(_, confirmed)| *confirmed)
                    .max()
                    .unwrap_or(0);
                let joined = together
                    .iter()
                    .map(|other| other.attached)
                    .max()
                    .unwrap_or(0);
                let is_together = places
                    .iter()
                    .all(|(began, _)| *began > joined.max(one.attached));
                if places.len() < ranks as usize
                    || !is_together
                    || self.kill_in(first..last).is_some()
                {
                    continue;
                }
                self.summary.released += 1;
                for (_, entry) in attached.iter().flat_map(|own| &own.entries) {
                    if let Said::Given {
                        asked,
                        offset: given,
                        ..
                    } = entry.said
                        && given == offset
                        && asked > last
                    {
                        return refuse(format!(
                            "{entry:?}: given again, after all ranks have released it"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Where nothing goes wrong and all groups were waited for: the queue has no more steps than it may.
    fn queue(&self) -> Checked {
        let plan = self.plan;
        let limit = plan.queue_steps as usize;
        if limit == 0 || plan.readers_min as usize != plan.groups.len() {
            return Ok(());
        }
        for (place, entry) in self.entries.iter().enumerate() {
            let Said::Committed {
                offset,
                discarded: false,
                ..
            } = entry.said
            else {
                continue;
            };
            let groups = plan
                .groups
                .iter()
                .enumerate()
                .filter(|(_, group)| !group.latest);
            for (group, of) in groups {
                let done = (0..of.ranks).map(|rank| {
                    let own = self.entries[..place].iter().rev();
                    let mut own = own.filter(|entry| {
                        (entry.who.role, entry.who.rank) == (Role::Read(group), rank)
                    });
                    own.find_map(|entry| match entry.said {
                        Said::Releasing { offset } => Some(offset + 1),
                        _ => None,
                    })
                    .unwrap_or(0)
                });
                let slowest = done.min().unwrap_or(0);
                let waiting = self
                    .stored
                    .values()
                    .filter(|one| (slowest..=offset).contains(&one.offset));
                let waiting = waiting.count();
                if waiting > limit {
                    return refuse(format!(
                        "{entry:?}: {waiting} steps wait for group {group}, and {limit} are the most"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Attached<'_> {
    /// Whether a call that it began after the other one had attached was answered as to a member.
    fn was_with(&self, other: &Self) -> bool {
        self.entries.iter().any(|(_, entry)| match entry.said {
            Said::Given { asked, .. } => asked > other.attached,
            Said::Released { began, .. } => began > other.attached,
            _ => false,
        })
    }

    /// Records of its turns, in their order.
    fn turns(&self) -> Vec<u64> {
        let turns = self
            .entries
            .iter()
            .filter_map(|(_, entry)| match entry.said {
                Said::Given { offset, .. } | Said::RunOver { offset, .. } => Some(offset),
                _ => None,
            });
        turns.collect()
    }

    /// Where both were given turns they were given the same.
    fn agrees(&self, other: &Self, shares: bool) -> Checked {
        let (own, others) = (self.turns(), other.turns());
        let is_same = if shares {
            // Those of both begin at the first that both had, and go on together.
            let first = own.iter().position(|at| others.contains(at));
            first.is_none_or(|first| {
                let begin = others.iter().position(|at| *at == own[first]);
                let others = &others[begin.unwrap_or(0)..];
                own[first..]
                    .iter()
                    .zip(others)
                    .all(|(one, other)| one == other)
            })
        } else {
            let own: BTreeSet<u64> = own.iter().copied().collect();
            let others: BTreeSet<u64> = others.iter().copied().collect();
            let first = own.first().max(others.first()).copied();
            let range = first.zip(own.last().min(others.last()).copied());
            range.is_none_or(|(first, last)| {
                first > last || own.range(first..=last).eq(others.range(first..=last))
            })
        };
        match is_same {
            true => Ok(()),
            false => refuse(format!(
                "{:?} and {:?} were given other turns: {own:?}, {others:?}",
                self.who, other.who
            )),
        }
    }

    /// Which records it has released: where it began to say so, and where it was told.
    fn released(&self) -> BTreeMap<u64, (usize, usize)> {
        let released = self
            .entries
            .iter()
            .filter_map(|(place, entry)| match entry.said {
                Said::Released { began, offset } => Some((offset, (began, *place))),
                _ => None,
            });
        released.collect()
    }
}
