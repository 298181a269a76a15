//! The course of a run: with everybody, without some, and with what is done on purpose.

use super::scenario;
use crate::chance::{Chance, seeds};
use crate::faults::{self, Fault};
use crate::*;
use std::collections::{BTreeMap, BTreeSet};

fn text(lines: &str) -> String {
    format!(
        "workload = 'dstream'\npattern = 'work sharing'\nconsumers = 3\nrate = 'unlimited'\n{lines}\n"
    )
}

/// A runner with members that do what they are told, each after some time.
struct World {
    barrier: Barrier,
    chance: Chance,
    now_ms: u64,
    /// What comes, and when.
    coming: BTreeMap<(u64, u64), Input>,
    serial: u64,
    messages: u64,
    each: u64,
    killed: BTreeSet<Member>,
    outputs: Vec<Output>,
    ready: BTreeSet<Member>,
    members: Vec<Member>,
}

impl World {
    fn new(seed: u64, lines: &str) -> Self {
        let scenario = scenario(&text(lines));
        let plan = Plan::new(&scenario, scenario.runs()[0], 1, None).unwrap();
        let barrier = Barrier::new(&plan, &scenario.disruptions, scenario.idle_seconds);
        Self {
            barrier,
            chance: Chance(seed),
            now_ms: seed * 1000,
            coming: BTreeMap::new(),
            serial: 0,
            messages: scenario.messages_of(3).unwrap_or(3000),
            each: scenario.messages_of(3).unwrap_or(3000) / 3,
            killed: BTreeSet::new(),
            outputs: Vec::new(),
            ready: BTreeSet::new(),
            members: plan.members().collect(),
        }
    }

    fn later(&mut self, input: Input) {
        let at = self.now_ms + self.chance.below(500);
        self.after(at - self.now_ms, input);
    }

    fn after(&mut self, ms: u64, input: Input) {
        self.serial += 1;
        self.coming.insert((self.now_ms + ms, self.serial), input);
    }

    fn obey(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match &output {
                Output::StartConsumers => (0..3).for_each(|index| {
                    self.later(Input::Ready(Member::Consumer(index)));
                }),
                Output::StartProducers => (0..3).for_each(|index| {
                    self.later(Input::Ready(Member::Producer(index)));
                }),
                Output::Go => {
                    assert_eq!(
                        self.ready.len(),
                        self.members.len(),
                        "all are ready before go"
                    );
                    self.flow();
                }
                Output::Disrupt(disruption) => {
                    if let Target::Consumer(index) = disruption.target {
                        self.killed.insert(Member::Consumer(index));
                        self.later(Input::Left(Member::Consumer(index)));
                    }
                }
                Output::StopProducers => self.send(),
                Output::Finish => {
                    for member in self.members.clone() {
                        if !self.killed.contains(&member) {
                            self.later(Input::Reported(member));
                        }
                    }
                }
                Output::Over(_) => {}
            }
            self.outputs.push(output);
        }
    }

    /// What messages do: consumers receive, producers are done.
    fn flow(&mut self) {
        for part in 1..=10 {
            for consumer in 0..3 {
                let messages = self.each * part / 10;
                let ms = part * 100 + self.chance.below(90);
                let received = Input::Received {
                    consumer,
                    messages,
                    repeats: 0,
                };
                self.after(ms, received);
            }
        }
        if self.barrier_counts() {
            self.send();
        }
    }

    fn barrier_counts(&self) -> bool {
        self.messages != 3000
    }

    fn send(&mut self) {
        for producer in 0..3 {
            let messages = self.each;
            self.later(Input::Sent { producer, messages });
        }
    }

    /// Runs to the end, with a tick now and then.
    fn run(mut self) -> Self {
        let outputs = self.barrier.start(self.now_ms);
        self.obey(outputs);
        for _ in 0..20_000 {
            if let Some(Output::Over(_)) = self.outputs.last() {
                return self;
            }
            let tick = self.now_ms + 100;
            let input = match self.coming.first_key_value() {
                Some((&(at, serial), _)) if at <= tick => {
                    self.now_ms = self.now_ms.max(at);
                    self.coming.remove(&(at, serial)).unwrap()
                }
                _ => {
                    self.now_ms = tick;
                    Input::Tick
                }
            };
            let of_killed = match &input {
                Input::Received { consumer, .. } => {
                    self.killed.contains(&Member::Consumer(*consumer))
                }
                Input::Ready(member) => {
                    self.ready.insert(*member);
                    false
                }
                _ => false,
            };
            if !of_killed {
                let outputs = self.barrier.handle(self.now_ms, input);
                self.obey(outputs);
            }
        }
        panic!("no end: {:?}", self.barrier);
    }

    fn missing(&self) -> Vec<Absent> {
        match self.outputs.last() {
            Some(Output::Over(Ending::Ended(missing))) => missing.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn failure(&self) -> String {
        match self.outputs.last() {
            Some(Output::Over(Ending::Failed(why))) => why.clone(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_run_goes_its_course() {
    for seed in seeds(100) {
        let world = World::new(seed, "messages = 900").run();
        assert_eq!(
            world.outputs,
            [
                Output::StartConsumers,
                Output::StartProducers,
                Output::Go,
                Output::Finish,
                Output::Over(Ending::Ended(Vec::new()))
            ],
            "seed {seed}"
        );
        // All has come after about a second: nobody waited for the idle time.
        assert!(world.now_ms < seed * 1000 + 10_000, "seed {seed}");
    }
}

#[test]
fn going_before_producers_are_ready_is_noticed() {
    let run = || {
        faults::with(Fault::GoEarly, || {
            std::panic::catch_unwind(|| World::new(1, "messages = 900").run().outputs)
        })
    };
    assert!(run().is_err());
}

#[test]
fn seconds_are_counted_and_producers_told_to_stop() {
    let world = World::new(4, "seconds = 2\nidle_seconds = 3").run();
    let is_there = |output| world.outputs.contains(&output);
    assert!(is_there(Output::StopProducers));
    assert_eq!(world.missing(), []);
}

#[test]
fn a_killed_consumer_is_missing_and_not_waited_for() {
    let kill = "messages = 900\nidle_seconds = 5\nfaults = ['kill consumer 1@30%']";
    let missing_of = |seed| {
        let world = World::new(seed, kill).run();
        (world.missing(), world.now_ms - seed * 1000)
    };
    let expected = [Absent {
        member: Member::Consumer(1),
        why: "kill consumer 1@30%".to_owned(),
    }];
    for seed in seeds(50) {
        let (missing, took_ms) = missing_of(seed);
        assert_eq!(missing, expected, "seed {seed}");
        // Its part never comes: the idle time ends the run, and no wait for a report is added.
        assert!((5_000..20_000).contains(&took_ms), "seed {seed}: {took_ms}");
    }
    let (missing, _) = faults::with(Fault::WaitForKilled, || missing_of(1));
    assert_ne!(missing, expected);
}

#[test]
fn disruptions_come_when_they_are_due() {
    let lines = "messages = 900\nfaults = ['cut@50% for 1s', 'expire token@0ms']";
    let world = World::new(3, lines).run();
    let texts: Vec<String> = world
        .outputs
        .iter()
        .filter_map(|output| match output {
            Output::Disrupt(one) => Some(one.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(texts, ["expire token@0ms", "cut@50% for 1000ms"]);
    assert_eq!(world.missing(), []);
}

#[test]
fn who_is_not_ready_in_time_is_named() {
    let mut world = World::new(1, "messages = 900");
    let outputs = world.barrier.start(0);
    assert_eq!(outputs, [Output::StartConsumers]);
    world.barrier.handle(5, Input::Ready(Member::Consumer(1)));
    assert_eq!(world.barrier.handle(READY_MS_MAX - 1, Input::Tick), []);
    world.outputs = world.barrier.handle(READY_MS_MAX, Input::Tick);
    assert_eq!(
        world.failure(),
        "not ready within 120 s: consumer 0, consumer 2"
    );
    assert_eq!(world.barrier.handle(READY_MS_MAX, Input::Tick), []);
}

#[test]
fn who_leaves_before_go_ends_the_run() {
    let mut world = World::new(1, "messages = 900");
    world.barrier.start(0);
    let why = "connection refused".to_owned();
    world.outputs = world
        .barrier
        .handle(5, Input::Failed(Member::Consumer(2), why));
    assert_eq!(
        world.failure(),
        "consumer 2 is gone before all were ready: connection refused"
    );
}

#[test]
fn a_report_that_does_not_come_is_said() {
    let mut world = World::new(1, "messages = 900\nidle_seconds = 1");
    world.barrier.start(0);
    for member in world.members.clone() {
        world.barrier.handle(1, Input::Ready(member));
    }
    assert_eq!(world.barrier.handle(1001, Input::Tick), [Output::Finish]);
    for member in world.members.clone() {
        if member != Member::Producer(2) {
            world.barrier.handle(1002, Input::Reported(member));
        }
    }
    world.outputs = world.barrier.handle(1001 + REPORTS_MS_MAX, Input::Tick);
    assert_eq!(
        world.missing(),
        [Absent {
            member: Member::Producer(2),
            why: "no report within 60 s".to_owned()
        }]
    );
}

#[test]
fn a_broadcast_is_over_when_those_who_are_left_have_all() {
    let scenario = scenario(&text("messages = 100").replace("work sharing", "broadcast"));
    let plan = Plan::new(&scenario, scenario.runs()[0], 1, None).unwrap();
    let mut barrier = Barrier::new(&plan, &[], 30);
    barrier.start(0);
    for member in plan.members() {
        barrier.handle(1, Input::Ready(member));
    }
    let received = |consumer| Input::Received {
        consumer,
        messages: 100,
        repeats: 0,
    };
    barrier.handle(2, received(0));
    barrier.handle(3, Input::Left(Member::Consumer(2)));
    let sent = Input::Sent {
        producer: 0,
        messages: 100,
    };
    assert_eq!(barrier.handle(4, sent), []);
    assert_eq!(barrier.handle(5, received(1)), []);
    assert_eq!(barrier.handle(5 + QUIET_MS, Input::Tick), [Output::Finish]);
}

/// A consumer that stood still for long has its messages delivered to another, and counts them when it goes on: the sum
/// of both is that of a run in which all has come, while one more message is on the way.
fn what_is_delivered_again_is_waited_for() -> bool {
    let world = World::new(1, "messages = 300");
    let mut barrier = world.barrier;
    barrier.start(0);
    for &member in &world.members {
        barrier.handle(1, Input::Ready(member));
    }
    for producer in 0..3 {
        let messages = 100;
        barrier.handle(2, Input::Sent { producer, messages });
    }
    let received = |consumer, messages, repeats| Input::Received {
        consumer,
        messages,
        repeats,
    };
    barrier.handle(3, received(0, 150, 0));
    let early = barrier.handle(4, received(1, 150, 1));
    let last = barrier.handle(5, received(2, 1, 0));
    let end = barrier.handle(5 + QUIET_MS, Input::Tick);
    early.is_empty() && last.is_empty() && end == [Output::Finish]
}

#[test]
fn a_sum_with_repeats_in_it_is_no_end() {
    assert!(what_is_delivered_again_is_waited_for());
    let is_missed = faults::with(Fault::RepeatsAreNews, what_is_delivered_again_is_waited_for);
    assert!(!is_missed);
}
