//! One run of steps: the server and all programs under one clock.

use super::StepsSummary;
use super::check::check;
use super::ledger::{Ledger, Role, Said, Who};
use super::plan::{StepsMishap, StepsPlan};
use super::ranks::Process;
use crate::fiber::{Fiber, FiberWait};
use crate::machine::Machine;
use crate::program::Program;
use crate::random::Random;
use crate::trace::{Trace, Violation};
use crate::world::{DRAIN_NS_MAX, SECOND};
use log::testing::Survival;
use net::testing::sim::{SimFaults, SimNet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Turns without the time moving after which nothing will ever move it.
const TURNS_MAX: u32 = 20_000;
/// How often somebody looks at the server.
const LOOK_NS: u64 = 3 * SECOND;

/// A program, and the life of it that runs.
struct Actor {
    role: Role,
    rank: u32,
    running: Option<(Program, Fiber)>,
    start_at: Option<u64>,
    is_done: bool,
}

impl Actor {
    fn name(&self) -> String {
        format!("{:?}-{}", self.role, self.rank)
    }
}

/// Everything.
pub struct StepsWorld {
    plan: Arc<StepsPlan>,
    net: SimNet,
    machine: Machine,
    actors: Vec<Actor>,
    ledger: Ledger,
    /// Up to where the ledger was traced.
    traced: usize,
    last_run: Arc<AtomicU64>,
    lives: u64,
    cut_off: Vec<(u64, String)>,
    random: Random,
    trace: Trace,
    now: u64,
    start_at: Option<u64>,
    look_at: u64,
    summary: StepsSummary,
}

impl StepsWorld {
    pub fn new(plan: StepsPlan, trace: Trace) -> Self {
        let mut random = Random::new(plan.seed ^ 0x571a);
        let net = SimNet::new(random.number(), plan.faults.clone());
        let machine = Machine::new(&net, plan.machine.clone(), random.fork(), trace.clone());
        let groups = plan.groups.iter().enumerate();
        let readers =
            groups.flat_map(|(group, of)| (0..of.ranks).map(move |rank| (Role::Read(group), rank)));
        let writers = (0..plan.ranks).map(|rank| (Role::Write, rank));
        let roles: Vec<_> = writers.chain(readers).collect();
        let actors = roles.into_iter().map(|(role, rank)| Actor {
            role,
            rank,
            running: None,
            start_at: Some(random.below(SECOND / 5)),
            is_done: false,
        });
        let actors = actors.collect();
        trace.say(0, || format!("{plan:?}"));
        Self {
            plan: Arc::new(plan),
            net,
            machine,
            actors,
            ledger: Ledger::default(),
            traced: 0,
            last_run: Arc::new(AtomicU64::new(u64::MAX)),
            lives: 0,
            cut_off: Vec::new(),
            random,
            trace,
            now: 0,
            start_at: Some(0),
            look_at: 0,
            summary: StepsSummary::default(),
        }
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Result<StepsSummary, Violation> {
        for (at, mishap) in self.plan.mishaps.clone() {
            while self.step(at)? {}
            self.mishap(mishap);
        }
        let heals_at = self.plan.heals_at;
        while self.step(heals_at)? {}
        self.heal();
        // One that nothing disturbs.
        let opened = self
            .ledger
            .entries()
            .into_iter()
            .filter_map(|entry| match entry.said {
                Said::Opened { run, .. } => Some(run),
                _ => None,
            });
        let last = opened.max().unwrap_or(0) + 2;
        self.last_run.store(last, Ordering::Relaxed);
        self.finish()?;
        self.actors.push(Actor {
            role: Role::Replay,
            rank: 0,
            running: None,
            start_at: Some(self.now),
            is_done: false,
        });
        // What was told to be there is there after one more crash, too.
        if self.random.one_in(2) {
            let survival = Survival::Nothing;
            let power = self.plan.has_power_losses.then_some(survival);
            self.crash(power, SECOND / 10);
            self.net.heal();
        }
        self.finish()?;
        self.summary.ns = self.now;
        let is_calm = self.plan.mishaps.is_empty();
        check(&self.plan, &self.ledger.entries(), is_calm, self.summary).or_else(Violation::because)
    }

    /// Runs until all programs have come to their ends.
    fn finish(&mut self) -> Result<(), Violation> {
        let deadline = self.now + DRAIN_NS_MAX;
        while let Some(actor) = self.actors.iter().find(|actor| !actor.is_done) {
            let name = actor.name();
            if !self.step(deadline)? {
                let seconds = DRAIN_NS_MAX / SECOND;
                let entries = self.ledger.entries();
                let last = entries
                    .iter()
                    .rev()
                    .find(|entry| format!("{:?}-{}", entry.who.role, entry.who.rank) == name);
                return Violation::because(format!(
                    "{name} has not ended {seconds} s after everything was well; it said last {last:?}"
                ));
            }
        }
        Ok(())
    }

    /// Does everything that is due now.
    fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..TURNS_MAX {
            if self.start_at.is_some_and(|at| at <= self.now) {
                self.start_at = None;
                if !self.machine.start(self.now) {
                    self.machine.kill(self.now);
                    self.start_at = Some(self.now + SECOND / 2);
                }
            }
            if self.look_at <= self.now {
                self.look_at = self.now + LOOK_NS;
                if let Some(failure) = self.machine.failure() {
                    self.trace
                        .say(self.now, || format!("-- somebody sees that {failure}"));
                    self.crash(None, SECOND / 10);
                }
            }
            while let Some(index) = self
                .cut_off
                .iter()
                .position(|(until, _)| *until <= self.now)
            {
                let (_, name) = self.cut_off.remove(index);
                self.net.reconnect(&name);
            }
            let mut moved = self.machine.turn(self.now)?;
            for index in 0..self.actors.len() {
                moved |= self.turn(index)?;
            }
            let said = self.ledger.trace(self.traced, &self.trace);
            self.traced = self.ledger.len();
            if let Some(wrong) = said {
                return Violation::because(wrong);
            }
            if !moved {
                return Ok(());
            }
        }
        Violation::because(format!("{TURNS_MAX} turns, and the time stands still"))
    }

    /// A program's turn. True if it did something.
    fn turn(&mut self, index: usize) -> Result<bool, Violation> {
        if self.actors[index].start_at.is_some_and(|at| at <= self.now) {
            self.start(index);
            return Ok(true);
        }
        let actor = &mut self.actors[index];
        let Some((program, fiber)) = &mut actor.running else {
            return Ok(false);
        };
        let mut moved = program.turn(self.now);
        let is_due = fiber.wake_at().is_some_and(|at| at <= self.now);
        if is_due || (moved && fiber.waits()) {
            moved = true;
            fiber.resume(self.now);
            program.may_have_called();
        }
        if fiber.has_ended() {
            if let Some(panic) = fiber.panic() {
                return Violation::because(format!("{}: it panicked: {panic}", actor.name()));
            }
            let entries = self.ledger.entries();
            let life = self.lives_of(index);
            let is_done = |said: &Said| *said == Said::Done;
            let done = entries
                .iter()
                .rev()
                .any(|entry| Some(entry.who.life) == life && is_done(&entry.said));
            self.end(index);
            let actor = &mut self.actors[index];
            match done {
                true => actor.is_done = true,
                false => actor.start_at = Some(self.now + SECOND / 10),
            }
            return Ok(true);
        }
        if program.ended {
            // Its driver has given up.
            self.end(index);
            self.actors[index].start_at = Some(self.now + SECOND / 10);
        }
        Ok(moved)
    }

    /// The life of a program that began last.
    fn lives_of(&self, index: usize) -> Option<u64> {
        let actor = &self.actors[index];
        let (program, _) = actor.running.as_ref()?;
        program.name.rsplit('#').next()?.parse().ok()
    }

    fn start(&mut self, index: usize) {
        self.lives += 1;
        let actor = &mut self.actors[index];
        actor.start_at = None;
        let who = Who {
            role: actor.role,
            rank: actor.rank,
            life: self.lives,
        };
        let session = u128::from(self.random.number());
        let name = format!("{}#{}", actor.name(), self.lives);
        let wait = Arc::new(FiberWait);
        let program = Program::waiting(&self.net, name, session, self.trace.clone(), wait);
        let process = Process {
            who,
            plan: self.plan.clone(),
            driver: program.driver.clone(),
            ledger: self.ledger.clone(),
            last_run: self.last_run.clone(),
            random: self.random.fork(),
        };
        let fiber = Fiber::start(move || process.run());
        actor.running = Some((program, fiber));
    }

    /// The process is killed, or what is left of it is put away.
    fn end(&mut self, index: usize) {
        if let Some((mut program, mut fiber)) = self.actors[index].running.take() {
            if !program.ended {
                program.kill(self.now);
            }
            fiber.kill();
        }
    }

    fn die(&mut self, index: usize, away: u64) {
        let actor = &self.actors[index];
        if actor.is_done || actor.running.is_none() {
            return;
        }
        self.summary.killed += 1;
        self.end(index);
        self.actors[index].start_at = Some(self.now + away);
    }

    /// When something happens by itself, if nothing else does.
    fn next_event(&self) -> u64 {
        let actors = self.actors.iter().flat_map(|actor| {
            let running = actor.running.as_ref();
            let program = running.and_then(|(program, _)| program.next_event());
            let fiber = running.and_then(|(_, fiber)| fiber.wake_at());
            [actor.start_at, program, fiber]
        });
        let own = [self.start_at, Some(self.look_at)];
        let others = [self.net.next_event(), self.machine.next_event(self.now)];
        let cut_off = self.cut_off.iter().map(|(until, _)| Some(*until));
        let all = own.into_iter().chain(others).chain(actors).chain(cut_off);
        all.flatten().min().unwrap_or(u64::MAX)
    }

    /// Lets one thing happen, no later than `until`. False when that time has come.
    fn step(&mut self, until: u64) -> Result<bool, Violation> {
        self.settle()?;
        let next = self.next_event().max(self.now);
        if next > until {
            self.now = until;
            self.net.advance(until);
            return Ok(false);
        }
        self.now = next;
        self.net.advance(next);
        Ok(true)
    }

    fn crash(&mut self, power: Option<Survival>, down_ns: u64) {
        self.summary.restarts += 1;
        match power {
            None => self.machine.kill(self.now),
            Some(survival) => {
                if self.random.one_in(2) {
                    self.net.silence_all();
                }
                self.machine.lose_power(self.now, survival);
            }
        }
        let nobody = Who {
            role: Role::Replay,
            rank: 0,
            life: 0,
        };
        self.ledger.note(self.now, nobody, Said::ServerKilled);
        self.start_at = Some(self.now + down_ns);
    }

    fn mishap(&mut self, mishap: StepsMishap) {
        self.trace.say(self.now, || format!("-- {mishap:?}"));
        let down_ns = self.random.within(SECOND / 100..2 * SECOND);
        let count = self.actors.len() as u64;
        match mishap {
            StepsMishap::Cut => self.net.cut_all(),
            StepsMishap::Silence => self.net.silence_all(),
            StepsMishap::Kill => self.crash(None, down_ns),
            StepsMishap::PowerLoss(survival) => self.crash(Some(survival), down_ns),
            StepsMishap::Dies(who, away) => self.die((who % count) as usize, away),
            StepsMishap::AllDie { writers, away } => {
                for index in 0..self.actors.len() {
                    if (self.actors[index].role == Role::Write) == writers {
                        let away = away.min(SECOND) + self.random.below(SECOND / 10);
                        self.die(index, away);
                    }
                }
            }
            StepsMishap::CutOff(who, time) => {
                let actor = &self.actors[(who % count) as usize];
                if let Some((program, _)) = &actor.running {
                    self.net.cut_off(&program.name);
                    self.cut_off.push((self.now + time, program.name.clone()));
                }
            }
            StepsMishap::Stop(time) => self.machine.stop(self.now + time),
        }
    }

    /// Nothing goes wrong from now on.
    fn heal(&mut self) {
        self.trace.say(self.now, || "-- all is well".to_owned());
        self.cut_off.clear();
        self.net.set_faults(SimFaults::none());
        self.net.heal();
        self.machine.stop(self.now);
    }
}
