//! A program that does one thing and ends, on a thread that the simulation runs in turn: it moves a topic, adds partitions, removes a node.

use crate::fiber::{self, Fiber, FiberWait};
use crate::program::{Entrance, Program};
use crate::random::Random;
use crate::trace::Trace;
use client::Driver;
use std::sync::{Arc, Mutex};

/// After so long who was refused for now tries again.
const AGAIN_NS: u64 = 500_000_000;

/// What an errand came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// A topic has moved.
    Moved,
    /// Partitions were added.
    Added,
    /// The node of this server was removed.
    Removed(usize),
    /// The node of this server has topics, and stays.
    Stays(usize),
}

/// What it came to, or why to nothing.
pub type Outcome = Result<Done, String>;

/// See the module.
pub struct Errand {
    name: String,
    programs: Vec<Program>,
    fiber: Fiber,
    outcome: Arc<Mutex<Option<Outcome>>>,
    trace: Trace,
}

/// Waits before something is tried again. False if the program was killed.
pub fn again() -> bool {
    fiber::sleep(AGAIN_NS)
}

impl Errand {
    /// Starts a program that has a driver for each of these, and does this with them.
    pub fn start(
        (name, drivers): (String, &[&str]),
        entrance: &Entrance,
        random: &mut Random,
        trace: Trace,
        run: impl FnOnce(&[Driver]) -> Outcome + Send + 'static,
    ) -> Self {
        let programs = drivers.iter().map(|end| {
            let session = u128::from(random.number());
            let name = format!("{name}-{end}");
            Program::waiting(entrance, name, session, trace.clone(), Arc::new(FiberWait))
        });
        let programs: Vec<_> = programs.collect();
        let outcome = Arc::<Mutex<Option<Outcome>>>::default();
        let drivers: Vec<_> = programs.iter().map(|one| one.driver.clone()).collect();
        let result = outcome.clone();
        let fiber = Fiber::start(move || {
            let done = run(&drivers);
            *result.lock().expect("no holder panics") = Some(done);
        });
        Self {
            name,
            programs,
            fiber,
            outcome,
            trace,
        }
    }

    /// When it does something by itself.
    pub fn next_event(&self) -> Option<u64> {
        let programs = self.programs.iter().filter_map(Program::next_event);
        programs.chain(self.fiber.wake_at()).min()
    }

    /// Does what is due. True if there was something.
    pub fn turn(&mut self, now: u64) -> bool {
        let mut moved = false;
        for program in &mut self.programs {
            moved |= program.turn(now);
        }
        let is_due = self.fiber.wake_at().is_some_and(|at| at <= now);
        if is_due || (moved && self.fiber.waits()) {
            moved = true;
            self.fiber.resume(now);
            self.programs.iter_mut().for_each(Program::may_have_called);
        }
        moved
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.fiber.has_ended()
    }

    /// What it waits for, if it has not ended.
    pub fn unfinished(&self) -> Option<String> {
        let standing = self.programs.iter().map(|it| it.driver.liveness());
        let standing = standing.collect::<Vec<_>>().join("; ");
        (!self.has_ended()).then(|| format!("{} is at work; {standing}", self.name))
    }

    /// It is killed, or what is left of it is put away. What it has done, if it has.
    pub fn end(mut self, now: u64) -> Option<Done> {
        for program in &mut self.programs {
            if !program.ended {
                program.kill(now);
            }
        }
        self.fiber.kill();
        if let Some(panic) = self.fiber.panic() {
            panic!("{}: {panic}", self.name);
        }
        let outcome = self.outcome.lock().expect("no holder panics").take();
        let name = &self.name;
        self.trace.say(now, || format!("{name}: {outcome:?}"));
        outcome?.ok()
    }
}
