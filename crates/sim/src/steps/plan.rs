//! What a seed chooses of a run of steps.

use super::script::mix;
use crate::machine::MachinePlan;
use crate::plan::machine;
use crate::planted::Planted;
use crate::random::Random;
use log::testing::Survival;
use net::testing::sim::SimFaults;
use std::ops::Range;
use std::time::Duration;
use step::{Distribution, WhenFull};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;
/// Partitions whose segments are full after a few parts.
const SMALL_SEGMENTS: &str = r#"{"segment_bytes":20000,"checkpoint_bytes":8000,"allocate_bytes_min":4096,"allocate_bytes_max":8192,"index_bytes":2000,"direct_bytes_min":4096,"background_sync_bytes":6000}"#;

/// A group of readers.
#[derive(Debug, Clone)]
pub struct GroupPlan {
    pub ranks: u32,
    pub latest: bool,
    /// How it shares steps with the other groups that do, if it does.
    pub shares: Option<Distribution>,
}

/// Something that goes wrong.
#[derive(Debug, Clone, Copy)]
pub enum StepsMishap {
    Cut,
    Silence,
    Kill,
    PowerLoss(Survival),
    /// A program of this number is killed, and comes back after so long.
    Dies(u64, u64),
    /// All that write are, or all that read.
    AllDie {
        writers: bool,
        away: u64,
    },
    /// Nothing gets from it or to it for so long.
    CutOff(u64, u64),
    /// The server's process is stopped for so long.
    Stop(u64),
}

/// A run of steps, as its seed wants it.
#[derive(Debug, Clone)]
pub struct StepsPlan {
    pub seed: u64,
    pub machine: MachinePlan,
    pub storage_config: String,
    pub parts: u32,
    /// Whether the stream is synced, and power losses happen.
    pub has_power_losses: bool,
    pub faults: SimFaults,
    pub mishaps: Vec<(u64, StepsMishap)>,
    /// When the chaos ends.
    pub heals_at: u64,
    pub ranks: u32,
    pub groups: Vec<GroupPlan>,
    pub queue_steps: u32,
    pub queue_bytes: u64,
    pub when_full: WhenFull,
    pub readers_min: u32,
    /// Whether some steps are pinned.
    pub pins: bool,
    pub session_timeout: Duration,
    /// How long programs think.
    pub pause_ns: Range<u64>,
    pub planted: Option<Planted>,
}

impl StepsPlan {
    pub fn of(seed: u64, planted: Option<Planted>) -> Self {
        let random = &mut Random::new(seed ^ 0x57e9);
        let has_power_losses = random.one_in(2);
        let heals_at = random.within(2 * SECOND..8 * SECOND);
        let is_calm = random.one_in(8);
        let session = random.within(SECOND..5 * SECOND);
        let groups: Vec<GroupPlan> = (0..random.within(1..4))
            .map(|_| GroupPlan {
                ranks: random.pick(&[1, 1, 2, 2, 3, 4, 5]),
                latest: random.one_in(3),
                shares: None,
            })
            .collect();
        let is_bounded = random.one_in(2);
        let mut plan = Self {
            seed,
            machine: machine(random, planted),
            storage_config: random.pick(&["", SMALL_SEGMENTS]).to_owned(),
            parts: random.within(1..4) as u32,
            has_power_losses,
            faults: match random.below(3) {
                _ if is_calm => SimFaults::none(),
                0 => SimFaults::none(),
                _ => SimFaults::chaos(),
            },
            mishaps: Vec::new(),
            heals_at,
            ranks: random.within(1..6) as u32,
            queue_steps: if is_bounded {
                random.below(4) as u32
            } else {
                0
            },
            queue_bytes: match random.below(3) {
                0 if is_bounded => random.within(1..8_000),
                _ => 0,
            },
            when_full: random.pick(&[WhenFull::Block, WhenFull::Discard]),
            readers_min: random.below(groups.len() as u64 + 1) as u32,
            groups,
            pins: Random::new(seed ^ 0x9195).one_in(3),
            session_timeout: Duration::from_nanos(session / MILLISECOND * MILLISECOND),
            pause_ns: 0..random.pick(&[MILLISECOND, 20 * MILLISECOND, 80 * MILLISECOND]),
            planted,
        };
        if !is_calm {
            plan.add_mishaps(random, session);
        }
        plan.add_sharers(&mut Random::new(seed ^ 0x5a4e));
        plan
    }

    /// Whether all ranks pin this step. A stream may have 1,024 that are: behind so many runs of at most nine steps no more are.
    pub fn pins_step(&self, run: u64, step: u64) -> bool {
        self.pins && run <= 113 && mix(self.seed ^ run << 32 ^ step).is_multiple_of(3)
    }

    /// Groups that share steps, beside those that are given all.
    fn add_sharers(&mut self, random: &mut Random) {
        if random.one_in(2) {
            return;
        }
        let shares = Some(random.pick(&[Distribution::RoundRobin, Distribution::OnDemand]));
        for _ in 0..random.within(1..4) {
            self.groups.push(GroupPlan {
                ranks: random.pick(&[1, 1, 2, 3]),
                latest: false,
                shares,
            });
        }
    }

    fn add_mishaps(&mut self, random: &mut Random, session: u64) {
        for _ in 0..random.within(1..12) {
            let at = random.below(self.heals_at);
            let long = random.within(SECOND / 20..3 * SECOND);
            let who = random.number();
            // Now and then for longer than its session lasts.
            let away = random.within(MILLISECOND..session * 2);
            let survival = match random.below(4) {
                0 => Survival::Nothing,
                1 => Survival::All,
                _ => Survival::Some(random.number()),
            };
            let mishap = match random.below(16) {
                0 => StepsMishap::Cut,
                1 => StepsMishap::Silence,
                2 | 3 => StepsMishap::Kill,
                4..=6 if self.has_power_losses => StepsMishap::PowerLoss(survival),
                4..=6 => StepsMishap::Kill,
                7..=11 => StepsMishap::Dies(who, away),
                12 => StepsMishap::AllDie {
                    writers: random.one_in(2),
                    away,
                },
                13 | 14 => StepsMishap::CutOff(who, long),
                _ => StepsMishap::Stop(long),
            };
            self.mishaps.push((at, mishap));
            // What dies together, or while others recover.
            if random.one_in(3) {
                let soon = at + random.below(SECOND / 10);
                self.mishaps
                    .push((soon, StepsMishap::Dies(random.number(), away)));
            }
        }
        self.mishaps.sort_by_key(|(at, _)| *at);
    }
}
