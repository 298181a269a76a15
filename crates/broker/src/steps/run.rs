//! The run that is open: its ranks, the steps that are not complete, who waits for what.
//!
//! ```text
//!  a rank:  Never --opened--> Away --attends--> Present --connection lost--> Away --timeout--> the run is broken
//!             |                 ^                  |                           |
//!             |                 +------------------+---- opened again ---------+
//!             +--- the same, but that it is waited for without end: it may come yet
//!
//!  a step:  nothing --a part comes--> open --parts of all ranks--> complete --all before it--> its record
//! ```

use crate::ids::RequestId;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::message::{OpenRun as OpenRequest, WhenFull};
use wire::step::{Attribute, Part, PartPlace};
use wire::{ProducerEpoch, Rank, Run, Step};

/// How far a rank may be ahead of the last complete step before the run is taken for broken:
/// clients wait long before.
pub(super) const STEPS_AHEAD_MAX: u64 = 64;
/// How much of the metadata of parts may be held for steps that are not complete.
pub(super) const HELD_BYTES_MAX: u64 = 256 << 20;

/// Where a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It has not opened the run yet.
    Never,
    /// It attends by this request.
    Present(RequestId),
    /// Since then nothing is known of it.
    Away(Duration),
}

/// A rank of the run's writers.
#[derive(Debug)]
pub(super) struct WriterRank {
    pub presence: Presence,
    /// Of the producer by which it opened the run last; 0 is not known.
    pub epoch: ProducerEpoch,
    /// How many steps it has written, once it has closed.
    pub closed: Option<u64>,
}

/// A part whose step is not complete.
#[derive(Debug)]
struct HeldPart {
    part: Part,
    place: PartPlace,
    epoch: ProducerEpoch,
    bytes: u64,
}

/// A step of which parts have come.
#[derive(Debug)]
struct OpenStep {
    since: Duration,
    parts: Vec<Option<HeldPart>>,
}

/// A step of which all parts have come, and that is the next.
pub(super) struct CompleteStep {
    pub step: Step,
    pub parts: Vec<Part>,
    pub places: Vec<PartPlace>,
}

/// What is to be decided of a step before it is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admission {
    pub caller: RequestId,
    pub step: Step,
}

/// See the module.
#[derive(Debug)]
pub(super) struct OpenRun {
    pub run: Run,
    pub writer: String,
    pub ranks: Vec<WriterRank>,
    pub session_timeout: Duration,
    /// What the queue may hold, and what happens then.
    pub queue_steps: u64,
    pub queue_bytes: u64,
    pub when_full: WhenFull,
    /// How many groups of readers the first step waits for.
    pub readers_min: u32,
    /// Whether a rank was opened by another life, and since then not all have been there.
    is_renewing: bool,
    /// The next step to be complete.
    pub next: Step,
    open: BTreeMap<Step, OpenStep>,
    /// Of the metadata of parts in `open`.
    pub held_bytes: u64,
    /// Steps that are decided and have no record yet; those that are discarded, and why.
    pub admitted: BTreeMap<Step, Option<String>>,
    pub admissions: Vec<Admission>,
    /// Who waits for steps of which not all parts have come.
    pub awaited: Vec<(RequestId, Step)>,
    /// All attributes so far, by name.
    pub attributes: BTreeMap<String, Attribute>,
}

impl OpenRun {
    /// A run that this rank opens, or that a start found.
    pub fn new(
        run: Run,
        writer: String,
        ranks: u32,
        next: Step,
        session_timeout: Duration,
    ) -> Self {
        let rank = |_| WriterRank {
            presence: Presence::Never,
            epoch: ProducerEpoch(0),
            closed: None,
        };
        Self {
            run,
            writer,
            ranks: (0..ranks).map(rank).collect(),
            session_timeout,
            queue_steps: 0,
            queue_bytes: 0,
            when_full: WhenFull::Block,
            readers_min: 0,
            is_renewing: false,
            next,
            open: BTreeMap::new(),
            held_bytes: 0,
            admitted: BTreeMap::new(),
            admissions: Vec::new(),
            awaited: Vec::new(),
            attributes: BTreeMap::new(),
        }
    }

    /// What the ranks want of the queue: all say the same, and the last one counts.
    pub fn set_options(&mut self, open: &OpenRequest) {
        self.session_timeout = Duration::from_millis(open.session_timeout_ms.into());
        self.queue_steps = open.queue_steps.into();
        self.queue_bytes = open.queue_bytes;
        self.when_full = open.when_full;
        self.readers_min = open.readers_min;
    }

    pub fn rank(&mut self, rank: Rank) -> Option<&mut WriterRank> {
        self.ranks.get_mut(rank.0 as usize)
    }

    /// A rank begins anew, by a producer of this epoch: parts of its earlier life whose steps are
    /// not complete are of no use any more.
    pub fn reopened(&mut self, rank: Rank, epoch: ProducerEpoch, now: Duration) {
        for open in self.open.values_mut() {
            let slot = &mut open.parts[rank.0 as usize];
            if let Some(held) = slot.take_if(|held| held.epoch != epoch) {
                self.held_bytes -= held.bytes;
            }
        }
        self.open
            .retain(|_, open| open.parts.iter().any(Option::is_some));
        if let Some(rank) = self.rank(rank) {
            let is_anew = rank.epoch != ProducerEpoch(0) && rank.epoch != epoch;
            rank.closed = None;
            rank.epoch = epoch;
            if !matches!(rank.presence, Presence::Present(_)) {
                rank.presence = Presence::Away(now);
            }
            self.is_renewing |= is_anew;
        }
    }

    /// A part has come that is as durable as its topic promises.
    ///
    /// # Errors
    /// It is so far ahead that the run is broken.
    pub fn part(
        &mut self,
        part: Part,
        place: PartPlace,
        (epoch, bytes): (ProducerEpoch, u64),
        now: Duration,
    ) -> Result<(), String> {
        let (step, rank) = (part.step, part.rank);
        if step < self.next || rank.0 as usize >= self.ranks.len() {
            return Ok(());
        }
        if step.0 - self.next.0 > STEPS_AHEAD_MAX || self.held_bytes + bytes > HELD_BYTES_MAX {
            return Err(format!(
                "rank {rank} is at step {step}, and step {} has not come of {}",
                self.next,
                self.missing(self.next)
            ));
        }
        let count = self.ranks.len();
        let open = self.open.entry(step).or_insert_with(|| OpenStep {
            since: now,
            parts: std::iter::repeat_with(|| None).take(count).collect(),
        });
        let held = HeldPart {
            part,
            place,
            epoch,
            bytes,
        };
        let slot = &mut open.parts[rank.0 as usize];
        match slot {
            // A life of the rank has one part of a step: the first that came.
            Some(known) if known.epoch >= epoch => {}
            _ => {
                self.held_bytes += bytes;
                if let Some(old) = slot.replace(held) {
                    self.held_bytes -= old.bytes;
                }
            }
        }
        Ok(())
    }

    /// The next step, if all of its parts have come; `short` of them for a planted fault.
    pub fn take_complete(&mut self, short: usize) -> Option<CompleteStep> {
        let open = self.open.get(&self.next)?;
        let come = open.parts.iter().flatten().count();
        if come + short < open.parts.len() {
            return None;
        }
        // Of a program that comes back rank by rank, those that are away are of its earlier life,
        // most likely: what they wrote counts when they attend again, or is dropped when they open.
        let is_away =
            |rank: &WriterRank| matches!(rank.presence, Presence::Away(_)) && rank.closed.is_none();
        self.is_renewing &= self.ranks.iter().any(is_away);
        if self.is_renewing {
            return None;
        }
        let step = self.next;
        let open = self.open.remove(&step)?;
        self.next = Step(step.0 + 1);
        let held: Vec<HeldPart> = open.parts.into_iter().flatten().collect();
        self.held_bytes -= held.iter().map(|held| held.bytes).sum::<u64>();
        let places = held.iter().map(|held| held.place.clone()).collect();
        let parts = held.into_iter().map(|held| held.part).collect();
        Some(CompleteStep {
            step,
            parts,
            places,
        })
    }

    /// Parts that are held, and so have no record yet.
    pub fn held(&self) -> impl Iterator<Item = &PartPlace> {
        let parts = self
            .open
            .values()
            .flat_map(|open| open.parts.iter().flatten());
        parts.map(|held| &held.place)
    }

    /// Parts that have no record are of no use any more.
    pub fn forget_parts(&mut self) {
        self.open.clear();
        self.held_bytes = 0;
    }

    /// Attributes that parts bring. Gives those that are new or have changed.
    pub fn learn(&mut self, parts: &[Part]) -> Vec<Attribute> {
        let mut changed: BTreeMap<&str, &Attribute> = BTreeMap::new();
        // Of several ranks the lowest one's counts.
        for attribute in parts.iter().rev().flat_map(|part| &part.attributes) {
            changed.insert(&attribute.name, attribute);
        }
        let changed: Vec<Attribute> = changed
            .into_values()
            .filter(|one| self.attributes.get(&one.name) != Some(*one))
            .cloned()
            .collect();
        for attribute in &changed {
            self.attributes
                .insert(attribute.name.clone(), attribute.clone());
        }
        changed
    }

    /// Which ranks have not written a step, for people.
    pub fn missing(&self, step: Step) -> String {
        let open = self.open.get(&step);
        let has = |rank: usize| open.is_some_and(|open| open.parts[rank].is_some());
        let missing: Vec<usize> = (0..self.ranks.len()).filter(|rank| !has(*rank)).collect();
        let named = missing.iter().take(8).map(usize::to_string);
        let named = named.collect::<Vec<_>>().join(", ");
        let more = match missing.len() {
            0..=8 => String::new(),
            all => format!(" and {} more", all - 8),
        };
        let what = if missing.len() == 1 { "rank" } else { "ranks" };
        format!("{what} {named}{more} of {}", self.ranks.len())
    }

    fn missing_count(&self, step: Step) -> usize {
        let has = self
            .open
            .get(&step)
            .map_or(0, |open| open.parts.iter().flatten().count());
        self.ranks.len() - has
    }

    /// What a step waits for, for people.
    pub fn why(&self, step: Step, now: Duration) -> String {
        let since = self
            .open
            .get(&self.next)
            .map(|open| now.saturating_sub(open.since));
        let since = since.map_or(String::new(), |since| {
            format!(", of which a part came {} s ago", since.as_secs())
        });
        let mut why = format!(
            "{} {} not ended step {}{since}",
            self.missing(self.next),
            if self.missing_count(self.next) == 1 {
                "has"
            } else {
                "have"
            },
            self.next
        );
        let away = self
            .ranks
            .iter()
            .enumerate()
            .filter_map(|(rank, state)| match state.presence {
                Presence::Away(at) => Some(format!(
                    "rank {rank} is away for {} s",
                    now.saturating_sub(at).as_secs()
                )),
                Presence::Never => Some(format!("rank {rank} has not opened the run")),
                Presence::Present(_) => None,
            });
        let away: Vec<String> = away.take(4).collect();
        if !away.is_empty() {
            why = format!("{why}; {}", away.join(", "));
        }
        match step > self.next {
            true => format!("step {step} is behind step {}: {why}", self.next),
            false => why,
        }
    }

    /// Whether every rank has closed.
    pub fn is_closing(&self) -> bool {
        self.ranks.iter().all(|rank| rank.closed.is_some())
    }

    /// How many steps all ranks have written, once all have closed.
    pub fn steps_of_all(&self) -> Option<u64> {
        let closed = self.ranks.iter().map(|rank| rank.closed);
        closed.min().flatten().filter(|_| self.is_closing())
    }

    /// How many steps each has, where they differ: a sentence, or empty.
    pub fn uneven(&self) -> String {
        let closed = self
            .ranks
            .iter()
            .zip(0..)
            .filter_map(|(rank, index)| Some((rank.closed?, index)));
        let closed: Vec<(u64, u32)> = closed.collect();
        match (closed.iter().min(), closed.iter().max()) {
            (Some((least, few)), Some((most, many))) if least != most => {
                format!("rank {few} has written {least} steps, rank {many} {most}")
            }
            _ => String::new(),
        }
    }

    /// Which ranks have been away for too long, and when the next one will have been.
    pub fn overdue(&self, now: Duration) -> (Vec<u32>, Option<Duration>) {
        let mut gone = Vec::new();
        let mut next: Option<Duration> = None;
        for (rank, index) in self.ranks.iter().zip(0..) {
            let Presence::Away(since) = rank.presence else {
                continue;
            };
            if rank.closed.is_some() {
                continue;
            }
            match since + self.session_timeout {
                at if at <= now => gone.push(index),
                at => next = Some(next.map_or(at, |next| next.min(at))),
            }
        }
        (gone, next)
    }

    /// Whether nobody is there who writes: another program may take its place.
    pub fn is_deserted(&self) -> bool {
        let there = |rank: &WriterRank| matches!(rank.presence, Presence::Present(_));
        !self.ranks.iter().any(there)
    }

    /// A caller is gone, or waits no more.
    pub fn forget(&mut self, caller: RequestId, now: Duration) {
        self.admissions
            .retain(|admission| admission.caller != caller);
        self.awaited.retain(|(one, _)| *one != caller);
        for rank in &mut self.ranks {
            if rank.presence == Presence::Present(caller) {
                rank.presence = Presence::Away(now);
            }
        }
    }

    /// Everybody who waits for something of the run, and those who attend it.
    pub fn take_callers(&mut self) -> (Vec<RequestId>, Vec<RequestId>) {
        let attending = self.ranks.iter().filter_map(|rank| match rank.presence {
            Presence::Present(caller) => Some(caller),
            _ => None,
        });
        let attending = attending.collect();
        let waiting = self.admissions.drain(..).map(|one| one.caller);
        let waiting = waiting.chain(self.awaited.drain(..).map(|(caller, _)| caller));
        (attending, waiting.collect())
    }
}
