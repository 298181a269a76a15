//! The run that is open: its ranks, the steps that are not complete, who waits for what.
//!
//! ```text
//!  a rank:  Never --opened--> Away --attends--> Present --connection lost--> Away --timeout--> the run is broken
//!             |                 ^                  |                           |
//!             |                 +------------------+---- opened again ---------+
//!             +--- the same; it is waited for as long as any other rank is there
//!
//!  a step:  nothing --a part comes--> open --parts of all ranks--> complete --all before it--> its record
//! ```

use super::ranks::{Presence, WriterRanks};
use crate::ids::RequestId;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::message::{Distribution, OpenRun as OpenRequest, WhenFull};
use wire::step::{Attribute, CheckedPart, PartPlace};
use wire::{ProducerEpoch, Rank, Run, Step};

/// How far a rank may be ahead of the last complete step before the run is taken for broken:
/// clients wait long before.
pub(super) const STEPS_AHEAD_MAX: u64 = 64;
/// How much of the metadata of parts may be held for steps that are not complete, ...
pub(super) const HELD_BYTES_MAX: u64 = 256 << 20;
/// ... where each part counts as so much more.
const PART_BYTES: u64 = 512;
/// How long a run's attributes may be, with their names.
const ATTRIBUTES_BYTES_MAX: usize = 16 << 20;

/// What the ranks want of their run: all say the same, and the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunOptions {
    /// How long a rank may be away.
    pub session_timeout_ms: u32,
    /// How many groups of readers the first step waits for.
    pub readers_min: u32,
    /// What the queue may hold, and what happens then.
    pub queue_steps: u32,
    pub queue_bytes: u64,
    pub when_full: WhenFull,
    /// How readers are asked to be given steps: for them to see.
    pub distribution: Distribution,
}

impl RunOptions {
    pub fn of(open: &OpenRequest) -> Self {
        Self {
            session_timeout_ms: open.session_timeout_ms,
            readers_min: open.readers_min,
            queue_steps: open.queue_steps,
            queue_bytes: open.queue_bytes,
            when_full: open.when_full,
            distribution: open.distribution,
        }
    }

    /// As a record has it.
    pub fn to_json(self) -> Value {
        json!({
            "session_timeout_ms": self.session_timeout_ms,
            "readers_min": self.readers_min,
            "queue_steps": self.queue_steps,
            "queue_bytes": self.queue_bytes,
            "when_full": match self.when_full {
                WhenFull::Block => "block",
                WhenFull::Discard => "discard",
            },
            "distribution": match self.distribution {
                Distribution::All => "all",
                Distribution::RoundRobin => "round robin",
                Distribution::OnDemand => "on demand",
            },
        })
    }

    /// What a record has; `None` if it has none.
    pub fn from_json(said: &Value) -> Option<Self> {
        let short = |key: &str| u32::try_from(said[key].as_u64()?).ok();
        Some(Self {
            session_timeout_ms: short("session_timeout_ms")?,
            readers_min: short("readers_min")?,
            queue_steps: short("queue_steps")?,
            queue_bytes: said["queue_bytes"].as_u64()?,
            when_full: match said["when_full"].as_str()? {
                "block" => WhenFull::Block,
                "discard" => WhenFull::Discard,
                _ => return None,
            },
            distribution: match said["distribution"].as_str()? {
                "all" => Distribution::All,
                "round robin" => Distribution::RoundRobin,
                "on demand" => Distribution::OnDemand,
                _ => return None,
            },
        })
    }

    pub fn session_timeout(&self) -> Duration {
        Duration::from_millis(self.session_timeout_ms.into())
    }
}

/// A part whose step is not complete.
#[derive(Debug)]
struct HeldPart {
    part: CheckedPart,
    place: PartPlace,
    epoch: ProducerEpoch,
    bytes: u64,
}

/// A step of which parts have come.
#[derive(Debug)]
struct OpenStep {
    since: Duration,
    /// By rank.
    parts: BTreeMap<u32, HeldPart>,
}

/// A step of which all parts have come, and that is the next.
pub(super) struct CompleteStep {
    pub step: Step,
    pub parts: Vec<CheckedPart>,
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
    pub ranks: WriterRanks,
    pub options: RunOptions,
    /// Whether the options are in a record.
    pub are_options_said: bool,
    /// When the run last changed: a step was complete, a rank came, left or closed.
    moved_at: Duration,
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
    /// Steps that were let in as pinned ones, for all of their ranks.
    pub pinned: BTreeSet<Step>,
    /// Who waits for steps of which not all parts have come.
    pub awaited: Vec<(RequestId, Step)>,
    /// All attributes so far, by name.
    pub attributes: BTreeMap<String, Attribute>,
    /// Of their names and values.
    attributes_bytes: usize,
}

impl OpenRun {
    /// A run that a rank opens, or that a start found.
    pub fn new(
        (run, next): (Run, Step),
        writer: String,
        ranks: u32,
        options: RunOptions,
        now: Duration,
    ) -> Self {
        Self {
            run,
            writer,
            ranks: WriterRanks::new(ranks),
            options,
            are_options_said: false,
            moved_at: now,
            is_renewing: false,
            next,
            open: BTreeMap::new(),
            held_bytes: 0,
            admitted: BTreeMap::new(),
            admissions: Vec::new(),
            pinned: BTreeSet::new(),
            awaited: Vec::new(),
            attributes: BTreeMap::new(),
            attributes_bytes: 0,
        }
    }

    /// A rank says what it wants: it is in the next record, if it is new.
    pub fn set_options(&mut self, options: RunOptions) {
        self.are_options_said &= self.options == options;
        self.options = options;
    }

    /// A rank begins anew, by a producer of this epoch: parts of its earlier life whose steps are
    /// not complete are of no use any more.
    pub fn reopened(&mut self, rank: Rank, epoch: ProducerEpoch, now: Duration) {
        for open in self.open.values_mut() {
            if let std::collections::btree_map::Entry::Occupied(held) = open.parts.entry(rank.0)
                && held.get().epoch != epoch
            {
                self.held_bytes -= held.remove().bytes;
            }
        }
        self.open.retain(|_, open| !open.parts.is_empty());
        self.moved_at = now;
        let Some((presence, known)) = self.ranks.get(rank) else {
            return;
        };
        self.is_renewing |= known != ProducerEpoch(0) && known != epoch;
        self.ranks.set_closed(rank, None);
        self.ranks.set_epoch(rank, epoch);
        if !matches!(presence, Presence::Present(_)) {
            self.ranks.set_presence(rank, Presence::Away(now));
        }
    }

    /// A rank has written its last step.
    pub fn close(&mut self, rank: Rank, steps: u64, now: Duration) {
        self.ranks.set_closed(rank, Some(steps));
        self.moved_at = now;
    }

    /// A part has come that is as durable as its topic promises.
    ///
    /// # Errors
    /// It is so far ahead that the run is broken.
    pub fn part(
        &mut self,
        part: CheckedPart,
        place: PartPlace,
        (epoch, bytes): (ProducerEpoch, u64),
        now: Duration,
    ) -> Result<(), String> {
        let (step, rank) = (part.head.step, part.head.rank);
        if step < self.next || rank.0 as usize >= self.ranks.len() {
            return Ok(());
        }
        if step.0 - self.next.0 > STEPS_AHEAD_MAX || self.held_bytes + bytes > HELD_BYTES_MAX {
            let next = match self.missing_count(self.next) {
                0 => format!("the record of step {} can't be written", self.next),
                _ => format!(
                    "step {} has not come of {}",
                    self.next,
                    self.missing(self.next)
                ),
            };
            return Err(format!("rank {rank} is at step {step}, and {next}"));
        }
        let bytes = bytes + PART_BYTES;
        let open = self.open.entry(step).or_insert_with(|| OpenStep {
            since: now,
            parts: BTreeMap::new(),
        });
        let held = HeldPart {
            part,
            place,
            epoch,
            bytes,
        };
        match open.parts.get(&rank.0) {
            // A life of the rank has one part of a step: the first that came.
            Some(known) if known.epoch >= epoch => {}
            _ => {
                self.held_bytes += bytes;
                if let Some(old) = open.parts.insert(rank.0, held) {
                    self.held_bytes -= old.bytes;
                }
            }
        }
        Ok(())
    }

    /// The next step, if all of its parts have come; `short` of them for a planted fault.
    pub fn take_complete(&mut self, short: usize, now: Duration) -> Option<CompleteStep> {
        let open = self.open.get(&self.next)?;
        if open.parts.len() + short < self.ranks.len() {
            return None;
        }
        // Of a program that comes back rank by rank, those that are away are of its earlier life,
        // most likely: what they wrote counts when they attend again, or is dropped when they open.
        self.is_renewing &= self.ranks.away().next().is_some();
        if self.is_renewing {
            return None;
        }
        let step = self.next;
        let open = self.open.remove(&step)?;
        self.next = Step(step.0 + 1);
        self.moved_at = now;
        let held: Vec<HeldPart> = open.parts.into_values().collect();
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
        let parts = self.open.values().flat_map(|open| open.parts.values());
        parts.map(|held| &held.place)
    }

    /// Parts that have no record are of no use any more.
    pub fn forget_parts(&mut self) {
        self.open.clear();
        self.held_bytes = 0;
    }

    /// Attributes that parts bring. Gives those that are new or have changed.
    ///
    /// # Errors
    /// All together are too long.
    pub fn learn(&mut self, parts: &[CheckedPart]) -> Result<Vec<Attribute>, String> {
        let mut changed: BTreeMap<&str, &Attribute> = BTreeMap::new();
        // Of several ranks the lowest one's counts.
        for attribute in parts.iter().rev().flat_map(|part| &part.head.attributes) {
            changed.insert(&attribute.name, attribute);
        }
        let changed: Vec<Attribute> = changed
            .into_values()
            .filter(|one| self.attributes.get(&one.name) != Some(*one))
            .cloned()
            .collect();
        for attribute in &changed {
            self.keep(attribute.clone());
        }
        match self.attributes_bytes <= ATTRIBUTES_BYTES_MAX {
            true => Ok(changed),
            false => Err(format!(
                "its {} attributes have {} bytes; {ATTRIBUTES_BYTES_MAX} are the most",
                self.attributes.len(),
                self.attributes_bytes
            )),
        }
    }

    /// Keeps an attribute in place of what it was before.
    pub fn keep(&mut self, attribute: Attribute) {
        let length = |one: &Attribute| one.name.len() + one.value.len();
        self.attributes_bytes += length(&attribute);
        let before = self.attributes.insert(attribute.name.clone(), attribute);
        self.attributes_bytes -= before.as_ref().map_or(0, length);
    }

    /// Which ranks have not written a step, for people.
    pub fn missing(&self, step: Step) -> String {
        let open = self.open.get(&step);
        let has = |rank: u32| open.is_some_and(|open| open.parts.contains_key(&rank));
        let missing = (0..self.ranks.len() as u32).filter(|rank| !has(*rank));
        let named = missing.take(8).map(|rank| rank.to_string());
        let named = named.collect::<Vec<_>>().join(", ");
        let count = self.missing_count(step);
        let more = match count {
            0..=8 => String::new(),
            all => format!(" and {} more", all - 8),
        };
        let what = if count == 1 { "rank" } else { "ranks" };
        format!("{what} {named}{more} of {}", self.ranks.len())
    }

    fn missing_count(&self, step: Step) -> usize {
        let has = self.open.get(&step).map_or(0, |open| open.parts.len());
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
        let away = self.ranks.open().filter_map(|(rank, state)| match state {
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

    /// How many steps all ranks have written, once all have closed.
    pub fn steps_of_all(&self) -> Option<u64> {
        let closed = self.ranks.closed().map(|(steps, _)| steps);
        closed.min().filter(|_| self.ranks.are_closed())
    }

    /// How many steps each has, where they differ: a sentence, or empty.
    pub fn uneven(&self) -> String {
        let closed: Vec<(u64, Rank)> = self.ranks.closed().collect();
        match (closed.iter().min(), closed.iter().max()) {
            (Some((least, few)), Some((most, many))) if least != most => {
                format!("rank {few} has written {least} steps, rank {many} {most}")
            }
            _ => String::new(),
        }
    }

    /// Why nobody is left who could go on with the run, and since when: those who were there have
    /// closed it, and others never came, or what was closed is not all there.
    fn stalled(&self) -> Option<(&'static str, Duration)> {
        let why = match self.ranks.are_closed() {
            true => "all ranks have closed it",
            false => "the ranks that had opened it have closed it",
        };
        self.ranks.are_left().then_some((why, self.moved_at))
    }

    /// Why the run is broken, if ranks have been away for too long, or nobody can go on with it.
    pub fn broken_by(&self, now: Duration) -> Option<String> {
        let timeout = self.options.session_timeout();
        let gone = self.ranks.away();
        let gone = gone.take_while(|(since, _)| *since + timeout <= now);
        let gone: Vec<Rank> = gone.map(|(_, rank)| rank).collect();
        if let Some((why, since)) = self.stalled()
            && since + timeout <= now
        {
            return Some(format!(
                "{why}, and for {} s {}",
                timeout.as_secs_f64(),
                self.why(self.next, now)
            ));
        }
        if gone.is_empty() {
            return None;
        }
        let named = gone.iter().take(8).map(Rank::to_string);
        let named = named.collect::<Vec<_>>().join(", ");
        let (what, are) = match gone.len() {
            1 => ("rank", "is"),
            _ => ("ranks", "are"),
        };
        Some(format!(
            "{what} {named} of {} {are} gone for {} s; {}",
            self.ranks.len(),
            timeout.as_secs_f64(),
            self.why(self.next, now)
        ))
    }

    /// When the run will be broken, if nothing happens until then.
    pub fn next_overdue(&self) -> Option<Duration> {
        let away = self.ranks.away().next().map(|(since, _)| since);
        let stalled = self.stalled().map(|(_, since)| since);
        let since = away.into_iter().chain(stalled).min()?;
        Some(since + self.options.session_timeout())
    }

    /// A caller is gone, or waits no more.
    pub fn forget(&mut self, caller: RequestId, now: Duration) {
        self.admissions
            .retain(|admission| admission.caller != caller);
        self.awaited.retain(|(one, _)| *one != caller);
        if let Some(rank) = self.ranks.attended_by(caller) {
            self.ranks.set_presence(rank, Presence::Away(now));
            self.moved_at = now;
        }
    }

    /// Everybody who waits for something of the run, and those who attend it.
    pub fn take_callers(&mut self) -> (Vec<RequestId>, Vec<RequestId>) {
        let attending = self.ranks.callers().collect();
        let waiting = self.admissions.drain(..).map(|one| one.caller);
        let waiting = waiting.chain(self.awaited.drain(..).map(|(caller, _)| caller));
        (attending, waiting.collect())
    }
}
