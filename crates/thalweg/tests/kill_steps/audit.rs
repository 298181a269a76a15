//! Compares what processes were told with what is stored, and with what readers were given.

use crate::content::{self, Block, RANKS};
use crate::journal::{Content, Entry, Role, Said, Who};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// What an audit has looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub runs: usize,
    pub broken: usize,
    pub steps: usize,
    /// Calls of writers that said that a step was committed.
    pub committed: usize,
    /// Steps that readers' ranks were given.
    pub given: usize,
    /// Those of them that the same rank was given before.
    pub again: usize,
    /// Pairs of readers' ranks that were in one group, and so were given the same.
    pub pairs: usize,
    /// Steps that all ranks of a group were known to have released.
    pub released: usize,
}

/// A step as the test's own reader finds it at the end.
struct Stored<'a> {
    offset: u64,
    content: &'a Content,
}

/// What one process of a reader was given while it was attached once.
struct Attached<'a> {
    who: Who,
    attached: u64,
    entries: Vec<&'a Entry>,
}

struct Audit<'a> {
    entries: &'a [Entry],
    stored: BTreeMap<(u64, u64), Stored<'a>>,
    /// Runs that are over, in their order; whether they were broken, and where that is said.
    over: BTreeMap<u64, (bool, u64)>,
    findings: Vec<String>,
    summary: Summary,
}

/// What must not be in the entries of a whole test, each finding as a sentence.
pub fn audit(entries: &[Entry]) -> Result<Summary, Vec<String>> {
    let mut audit = Audit {
        entries,
        stored: BTreeMap::new(),
        over: BTreeMap::new(),
        findings: Vec::new(),
        summary: Summary::default(),
    };
    audit.replay();
    audit.bytes();
    audit.writers();
    for role in [Role::Read, Role::Live] {
        audit.readers(role);
    }
    match audit.findings.is_empty() {
        true => Ok(audit.summary),
        false => Err(audit.findings),
    }
}

impl<'a> Audit<'a> {
    fn find(&mut self, finding: impl Display) {
        self.findings.push(finding.to_string());
    }

    /// What is stored: steps of a run from 0 on, each behind the one before, and then its end.
    fn replay(&mut self) {
        let mut last = None;
        for entry in self
            .entries
            .iter()
            .filter(|entry| entry.who.role == Role::Audit)
        {
            let (at, run, step) = match &entry.said {
                Said::Seen {
                    run,
                    step,
                    offset,
                    content,
                } => {
                    let offset = *offset;
                    self.stored
                        .insert((*run, *step), Stored { offset, content });
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
                (None, Some(step)) => step == 0,
                (None, None) => true,
                (Some((_, before, Some(done))), Some(step)) => (run, step) == (before, done + 1),
                (Some((_, before, None)), Some(step)) => run > before && step == 0,
                (Some((_, before, Some(_))), None) => run == before,
                (Some((_, before, None)), None) => run > before,
            };
            let is_behind = last.is_none_or(|(before, _, _)| before < at);
            if !is_next || !is_behind {
                self.find(format_args!("run {run} step {step:?} at {at} follows {last:?}: out of order, doubled or lost"));
            }
            last = Some((at, run, step));
        }
        self.summary.steps = self.stored.len();
        self.summary.runs = self.over.len();
        self.summary.broken = self.over.values().filter(|(broken, _)| *broken).count();
        for (run, (broken, _)) in self.over.clone() {
            let (steps, wanted) = (self.count(run), content::steps_of(run));
            if steps > wanted || (!broken && steps != wanted) {
                self.find(format_args!(
                    "run {run} has {steps} steps of {wanted}, broken: {broken}"
                ));
            }
        }
    }

    fn count(&self, run: u64) -> u64 {
        self.stored.range((run, 0)..(run + 1, 0)).count() as u64
    }

    /// Each step that anybody saw is whole, and as it is stored.
    fn bytes(&mut self) {
        let ending = |entry: &Entry| match entry.said {
            Said::Ending { run, step } => Some((entry.who.rank, entry.who.life, run, step)),
            _ => None,
        };
        let written: BTreeSet<_> = self.entries.iter().filter_map(ending).collect();
        // Of the same bytes the same digests: computed once.
        let mut known = BTreeMap::new();
        let mut find = Vec::new();
        for entry in self.entries {
            let Said::Seen {
                run,
                step,
                offset,
                content,
            } = &entry.said
            else {
                continue;
            };
            let (run, step) = (*run, *step);
            let seen = format!("{:?} saw step {step} of run {run} at {offset}", entry.who);
            let counts = (content.lives.len(), content.digests.len());
            if counts != (RANKS as usize, RANKS as usize) {
                find.push(format!("{seen}: torn: it has {counts:?} ranks"));
                continue;
            }
            for (rank, (life, digest)) in (0..).zip(content.lives.iter().zip(&content.digests)) {
                let life = *life;
                let block = Block {
                    run,
                    step,
                    rank,
                    life,
                };
                let wanted = *known
                    .entry((run, step, rank, life))
                    .or_insert_with(|| block.digest());
                if *digest != wanted {
                    find.push(format!("{seen}: torn: {block:?} has other bytes"));
                }
                if !written.contains(&(rank, life, run, step)) {
                    find.push(format!("{seen}: nobody has written {block:?}"));
                }
            }
            if content.last != content::attribute(step) {
                find.push(format!("{seen}: its attribute is {}", content.last));
            }
            match self.stored.get(&(run, step)) {
                None => find.push(format!("{seen}: lost: it is not stored")),
                Some(stored) if stored.offset != *offset || stored.content != content => {
                    find.push(format!(
                        "{seen}: stored at {} is another one: {:?}, {content:?}",
                        stored.offset, stored.content
                    ))
                }
                Some(_) => {}
            }
        }
        self.findings.extend(find);
    }

    /// What writers were told is so.
    fn writers(&mut self) {
        let mut find = Vec::new();
        // Where each life of a rank came into its runs.
        let mut opened: BTreeMap<(u32, u64), Vec<(u64, u64)>> = BTreeMap::new();
        let is_writer = |entry: &&Entry| entry.who.role == Role::Write;
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
                stored.map(|stored| {
                    stored
                        .content
                        .lives
                        .get(rank as usize)
                        .copied()
                        .unwrap_or(0)
                })
            };
            let lives = |run| opened.get(&(rank, run)).map_or(&[][..], Vec::as_slice);
            let begun = |run| {
                let own = lives(run).iter().find(|(_, other)| *other == life);
                own.map_or(0, |(next, _)| *next)
            };
            match entry.said {
                Said::Opened { run, next } => {
                    for step in 0..next {
                        if written_by(run, step).is_none_or(|by| by > life) {
                            find.push(format!("{:?} was told to go on at step {next} of run {run}: step {step} is lost, or of a later life", entry.who));
                        }
                    }
                    for step in next..self.count(run) {
                        if written_by(run, step).is_some_and(|by| by < life) {
                            find.push(format!("{:?} was told to go on at step {next} of run {run}: step {step} is of an earlier life", entry.who));
                        }
                    }
                }
                Said::Committed { run, step, offset } => {
                    self.summary.committed += 1;
                    // Steps are committed in order: those before are, too.
                    for before in begun(run)..=step {
                        if written_by(run, before) != Some(life) {
                            find.push(format!("{:?} was told that step {step} of run {run} is committed: step {before} is lost, or another life's", entry.who));
                        }
                    }
                    let stored = self.stored.get(&(run, step));
                    if stored.is_some_and(|stored| stored.offset != offset) {
                        find.push(format!(
                            "{:?} was told that step {step} of run {run} is at {offset}: it is not",
                            entry.who
                        ));
                    }
                }
                Said::Accepted { run, step } => {
                    let is_over = self.over.get(&run).is_some_and(|(broken, _)| !broken);
                    // A later life drops what was not committed before it.
                    let is_dropped = lives(run)
                        .iter()
                        .any(|(next, other)| *other > life && *next <= step);
                    if is_over && !is_dropped && written_by(run, step) != Some(life) {
                        find.push(format!("{:?} was told that its part of step {step} of run {run} is accepted: it is lost", entry.who));
                    }
                }
                // Its run may be broken yet, by a rank that dies before it closes; its steps are committed.
                Said::Closed { run } => {
                    let mut steps = begun(run)..content::steps_of(run);
                    if let Some(step) = steps.find(|step| written_by(run, *step) != Some(life)) {
                        find.push(format!(
                            "{:?} was told that it has closed run {run}: step {step} is lost, or another life's",
                            entry.who
                        ));
                    }
                }
                _ => {}
            }
        }
        self.findings.extend(find);
    }

    /// What a group was given.
    fn readers(&mut self, role: Role) {
        let mut attached: Vec<Attached<'a>> = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.who.role == role) {
            match entry.said {
                Said::Attached => attached.push(Attached {
                    who: entry.who,
                    attached: entry.at,
                    entries: Vec::new(),
                }),
                _ => {
                    let own = attached.iter_mut().rev().find(|own| own.who == entry.who);
                    own.into_iter().for_each(|own| own.entries.push(entry));
                }
            }
        }
        let mut find = Vec::new();
        for own in &attached {
            self.order(own, &mut find);
        }
        let ranks: BTreeSet<u32> = attached.iter().map(|own| own.who.rank).collect();
        for rank in ranks {
            let of_rank = attached.iter().filter(|own| own.who.rank == rank);
            self.coverage(role, of_rank, &mut find);
        }
        for one in attached.iter().filter(|one| one.who.rank == 0) {
            for other in attached.iter().filter(|other| other.who.rank > 0) {
                if one.was_with(other) && other.was_with(one) {
                    self.summary.pairs += 1;
                    one.agrees(other, self.kill_behind(one, other), &mut find);
                    self.released_by_all([one, other], &attached, &mut find);
                }
            }
        }
        self.findings.extend(find);
    }

    /// When turns of ranks that are not in step may have been forgotten: a server that was started anew is told by each
    /// rank of its last turn alone. What others of these were, it knows of groups that are given every step.
    fn kill_behind(&self, one: &Attached<'_>, other: &Attached<'_>) -> u64 {
        let both = one.attached.max(other.attached);
        let is_kill = |entry: &&Entry| entry.said == Said::ServerKilled && entry.at > both;
        let kill = self.entries.iter().find(is_kill);
        match one.who.role {
            Role::Live => kill.map_or(u64::MAX, |kill| kill.at),
            _ => u64::MAX,
        }
    }

    /// Within a life: each record behind the one before, of every step if that was asked for.
    fn order(&mut self, own: &Attached<'_>, find: &mut Vec<String>) {
        let mut last: Option<u64> = None;
        for entry in &own.entries {
            let (offset, what) = match entry.said {
                Said::Given {
                    run, step, offset, ..
                } => (offset, format!("step {step} of run {run}")),
                Said::RunOver {
                    run,
                    offset,
                    broken,
                } => {
                    if self.over.get(&run) != Some(&(broken, offset)) {
                        find.push(format!("{:?} was told that run {run} is over, at {offset}, broken: {broken}: it is not", own.who));
                    }
                    (offset, format!("the end of run {run}"))
                }
                _ => continue,
            };
            if last.is_some_and(|last| offset <= last) {
                find.push(format!(
                    "{:?}: {what} at {offset} follows {last:?}: doubled",
                    own.who
                ));
            }
            if let (Role::Read, Some(last)) = (own.who.role, last) {
                let between = self
                    .stored
                    .iter()
                    .find(|(_, stored)| stored.offset > last && stored.offset < offset);
                if let Some(((run, step), _)) = between {
                    find.push(format!("{:?}: {what} at {offset} follows {last}: step {step} of run {run} was not given", own.who));
                }
            }
            last = Some(offset);
        }
    }

    /// All lives of a rank together were given all steps, and a run's end behind them.
    fn coverage<'b>(
        &mut self,
        role: Role,
        lives: impl Iterator<Item = &'b Attached<'a>>,
        find: &mut Vec<String>,
    ) where
        'a: 'b,
    {
        let (mut given, mut done) = (BTreeSet::new(), BTreeSet::new());
        let mut who = None;
        for entry in lives.flat_map(|own| &own.entries) {
            who = Some(entry.who.rank);
            match entry.said {
                Said::Given { offset, .. } => {
                    self.summary.given += 1;
                    self.summary.again += usize::from(!given.insert(offset));
                }
                Said::Releasing { offset } => {
                    done.insert(offset);
                }
                Said::RunOver { run, .. } if role == Role::Read => {
                    let steps = self.stored.range((run, 0)..(run + 1, 0));
                    for ((run, step), _) in
                        steps.filter(|(_, stored)| !given.contains(&stored.offset))
                    {
                        find.push(format!(
                            "{:?} was told that run {run} is over before it was given step {step}",
                            entry.who
                        ));
                    }
                }
                _ => {}
            }
        }
        if role == Role::Read {
            for ((run, step), _) in self
                .stored
                .iter()
                .filter(|(_, stored)| !done.contains(&stored.offset))
            {
                find.push(format!("rank {who:?} of {role:?}: lost: no life of it was done with step {step} of run {run}"));
            }
        }
    }

    /// What all ranks have released, and were told so, is not given again. A rank's release that others have not
    /// made yet is not durable: a kill of the server between them may undo it.
    fn released_by_all(
        &mut self,
        pair: [&Attached<'a>; 2],
        all: &[Attached<'a>],
        find: &mut Vec<String>,
    ) {
        let [ones, others] = pair.map(Attached::released);
        for (offset, (began, confirmed)) in ones {
            let Some((other_began, other_confirmed)) = others.get(&offset) else {
                continue;
            };
            let [one, other] = pair;
            if began < other.attached || *other_began < one.attached {
                continue;
            }
            let between = confirmed.min(*other_confirmed)..=confirmed.max(*other_confirmed);
            let was_killed =
                |entry: &Entry| entry.said == Said::ServerKilled && between.contains(&entry.at);
            if self.entries.iter().any(was_killed) {
                continue;
            }
            self.summary.released += 1;
            for entry in all.iter().flat_map(|own| &own.entries) {
                let Said::Given {
                    asked,
                    run,
                    step,
                    offset: given,
                    ..
                } = entry.said
                else {
                    continue;
                };
                if given == offset && asked > *between.end() {
                    find.push(format!(
                        "{:?} was given step {step} of run {run} again, which {:?} and {:?} have released",
                        entry.who, one.who, other.who
                    ));
                }
            }
        }
    }
}

impl Attached<'_> {
    /// Whether a call that it began after the other one had attached was answered: only those who are in the group
    /// are given turns, and who attaches anew makes another group of it unless its place was free.
    fn was_with(&self, other: &Self) -> bool {
        self.entries.iter().any(|entry| match entry.said {
            Said::Given { asked, .. } => asked > other.attached,
            Said::Released { began, .. } => began > other.attached,
            _ => false,
        })
    }

    /// Records of its turns, up to a time.
    fn turns(&self, before: u64) -> BTreeSet<u64> {
        let entries = self.entries.iter().filter(|entry| entry.at < before);
        let turns = entries.filter_map(|entry| match entry.said {
            Said::Given { offset, .. } | Said::RunOver { offset, .. } => Some(offset),
            _ => None,
        });
        turns.collect()
    }

    /// Where both were given turns they were given the same.
    fn agrees(&self, other: &Self, before: u64, find: &mut Vec<String>) {
        let (own, others) = (self.turns(before), other.turns(before));
        let (Some(first), Some(last)) = (
            own.first().max(others.first()),
            own.last().min(others.last()),
        ) else {
            return;
        };
        if first > last {
            return;
        }
        let range = *first..=*last;
        if !own.range(range.clone()).eq(others.range(range.clone())) {
            let differ: Vec<_> = own
                .symmetric_difference(&others)
                .filter(|offset| range.contains(offset))
                .collect();
            find.push(format!(
                "{:?} and {:?} were given other turns of {range:?}: {differ:?}",
                self.who, other.who
            ));
        }
    }

    /// Which records it was told that it has released; when it began to say so, and when it was told.
    fn released(&self) -> BTreeMap<u64, (u64, u64)> {
        let released = self.entries.iter().filter_map(|entry| match entry.said {
            Said::Released { began, offset } => Some((offset, (began, entry.at))),
            _ => None,
        });
        released.collect()
    }
}
