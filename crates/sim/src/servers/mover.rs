//! A mover: the program that has a topic go to another node, on a thread that the simulation runs in turn. Whatever happens to it, the topic is
//! on one of the two nodes.

use crate::fiber::{self, Fiber, FiberWait};
use crate::program::{Entrance, Program};
use crate::random::Random;
use crate::trace::Trace;
use client::{NodeId, SimulatedWait};
use mirror::{LinkError, Moved, Stop, Time, move_topic_by};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often it looks whether there are news.
const LOOK: Duration = Duration::from_millis(5);
/// After so much time nothing is waited for any more.
const LATER: Duration = Duration::from_secs(1 << 20);

type Outcome = Result<Moved, LinkError>;

/// See the module.
pub struct Mover {
    name: String,
    /// The drivers of the node that has the topic, and of the one that it goes to.
    programs: [Program; 2],
    fiber: Fiber,
    outcome: Arc<Mutex<Option<Outcome>>>,
    trace: Trace,
}

/// The time of the simulation.
struct Simulated(Instant);

impl Time for Simulated {
    fn now(&self) -> Instant {
        let passed = fiber::now().map_or(LATER, Duration::from_nanos);
        self.0 + passed
    }

    fn wait(&self, _: &Stop, longest: Duration) {
        FiberWait.go_on(longest.min(LOOK));
    }
}

impl Mover {
    /// Starts to move a topic.
    pub fn start(
        name: String,
        entrance: &Entrance,
        topic: String,
        to: NodeId,
        random: &mut Random,
        trace: Trace,
    ) -> Self {
        let programs = ["source", "target"].map(|end| {
            let session = u128::from(random.number());
            let name = format!("{name}-{end}");
            let wait = Arc::new(FiberWait);
            Program::waiting(entrance, name, session, trace.clone(), wait)
        });
        let outcome = Arc::<Mutex<Option<Outcome>>>::default();
        let [source, target] = programs.each_ref().map(|program| program.driver.clone());
        let result = outcome.clone();
        let fiber = Fiber::start(move || {
            let time = Simulated(Instant::now());
            let moved = move_topic_by(&time, (&source, &target), &topic, to);
            *result.lock().expect("no holder panics") = Some(moved);
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
        let [source, target] = self.programs.each_ref().map(|it| it.driver.liveness());
        (!self.has_ended()).then(|| format!("{} is at work; {source}; {target}", self.name))
    }

    /// It is killed, or what is left of it is put away. Whether it has moved its topic.
    pub fn end(mut self, now: u64) -> bool {
        for program in &mut self.programs {
            if !program.ended {
                program.kill(now);
            }
        }
        self.fiber.kill();
        if let Some(panic) = self.fiber.panic() {
            panic!("a mover: {panic}");
        }
        let outcome = self.outcome.lock().expect("no holder panics").take();
        let name = &self.name;
        self.trace.say(now, || format!("{name}: {outcome:?}"));
        matches!(outcome, Some(Ok(_)))
    }
}
