//! One run: everything under one clock, and what is asked of it at the end.

use crate::answerer::AnswererActor;
use crate::asked::Asked;
use crate::consumer::ConsumerActor;
use crate::machine::Machine;
use crate::member::MemberActor;
use crate::model::Model;
use crate::plan::{ConsumerPlan, Mishap, Plan, TOPIC};
use crate::producer::ProducerActor;
use crate::program::Program;
use crate::random::Random;
use crate::requester::RequesterActor;
use crate::trace::{Trace, Violation};
use crate::worker::WorkerActor;
use client::{Position, Start, TopicDescription};
use log::testing::{Fault, Survival};
use net::testing::sim::{SimFaults, SimNet};
use std::cell::RefCell;
use std::rc::Rc;
use topic::Retention;

pub(crate) const SECOND: u64 = 1_000_000_000;
/// How often somebody looks at the server.
const LOOK_NS: u64 = 3 * SECOND;
/// How long draining may take once nothing goes wrong any more.
pub(crate) const DRAIN_NS_MAX: u64 = 240 * SECOND;
/// Turns without the time moving after which nothing will ever move it.
const TURNS_MAX: u32 = 100_000;

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Events that were pushed.
    pub pushed: u64,
    /// Acks.
    pub acked: u64,
    /// Deliveries.
    pub delivered: u64,
    /// How often the time moved.
    pub steps: u64,
    /// Restarts of the server.
    pub restarts: u64,
    /// Events that queues gave out.
    pub leased: u64,
    /// Those of them that were given out before.
    pub leased_again: u64,
    /// Settlements, and acknowledgements of groups, that were refused.
    pub refused: u64,
    /// Dead letters.
    pub dead: u64,
    /// Partitions of groups that changed hands.
    pub moved: u64,
    /// Requests that had their replies.
    pub replied: u64,
    /// Requests that had none by their deadline.
    pub late: u64,
    /// Broadcasts that had their answers.
    pub gathered: u64,
    /// Who was missing in them.
    pub missing: u64,
    /// Virtual time, nanoseconds.
    pub ns: u64,
}

/// Everything.
pub struct World {
    pub(crate) plan: Plan,
    pub(crate) net: SimNet,
    pub(crate) machine: Machine,
    pub(crate) model: Model,
    pub(crate) producers: Vec<ProducerActor>,
    pub(crate) consumers: Vec<ConsumerActor>,
    pub(crate) workers: Vec<WorkerActor>,
    pub(crate) members: Vec<MemberActor>,
    pub(crate) requesters: Vec<RequesterActor>,
    pub(crate) answerers: Vec<AnswererActor>,
    pub(crate) asked: Asked,
    /// A client that looks at things at the end.
    pub(crate) observer: Option<Program>,
    /// Who is cut off until when.
    pub(crate) cut_off: Vec<(u64, String)>,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) now: u64,
    /// When the server is to be started.
    start_at: Option<u64>,
    /// When somebody looks whether the server needs to be started anew.
    look_at: u64,
    space_at: Option<u64>,
    pub(crate) summary: Summary,
}

impl World {
    /// The world of a plan, at its beginning.
    pub fn new(plan: Plan, trace: Trace) -> Self {
        let mut random = Random::new(plan.seed ^ 0x51a0);
        let net = SimNet::new(random.number(), plan.faults.clone());
        let machine = Machine::new(&net, plan.machine.clone(), random.fork(), trace.clone());
        let retention =
            plan.definition.retention() != Retention::default() || !plan.kept_for.is_empty();
        let levels = plan.levels.iter().map(|level| (*level, retention));
        let mut model = Model::new(levels.collect());
        model.kept_for = plan.kept_for.clone();
        let producers = plan.producers.iter().enumerate().map(|(index, producer)| {
            let name = format!("producer-{index}");
            ProducerActor::new(&net, name, producer.clone(), random.fork(), trace.clone())
        });
        let producers = producers.collect();
        let consumers = plan.consumers.iter().map(|consumer| {
            let random = random.fork();
            ConsumerActor::new(&net, consumer.clone(), Start::Cursor, random, trace.clone())
        });
        let consumers = consumers.collect();
        let workers = plan.workers.iter().map(|worker| {
            let random = random.fork();
            WorkerActor::new(&net, worker.clone(), random, trace.clone())
        });
        let workers = workers.collect();
        let members = plan.members.iter().map(|member| {
            let random = random.fork();
            MemberActor::new(&net, member.clone(), random, trace.clone())
        });
        let members = members.collect();
        let requesters = plan.requesters.iter().map(|requester| {
            let random = random.fork();
            RequesterActor::new(&net, requester.clone(), random, trace.clone())
        });
        let requesters = requesters.collect();
        let answerers = plan.answerers.iter().map(|answerer| {
            let random = random.fork();
            AnswererActor::new(&net, answerer.clone(), random, trace.clone())
        });
        let answerers = answerers.collect();
        let mut asked = Asked::default();
        asked.is_calm = plan.is_calm;
        let mut machine = machine;
        machine.witness = Rc::new(RefCell::new(plan.witness(&trace)));
        Self {
            plan,
            machine,
            model,
            producers,
            consumers,
            workers,
            members,
            requesters,
            answerers,
            asked,
            observer: None,
            cut_off: Vec::new(),
            random,
            trace,
            net,
            now: 0,
            start_at: Some(0),
            look_at: 0,
            space_at: None,
            summary: Summary::default(),
        }
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Result<Summary, Violation> {
        for (at, mishap) in std::mem::take(&mut self.plan.mishaps) {
            self.run_to(at)?;
            self.mishap(mishap);
        }
        let heals_at = self.plan.heals_at;
        self.run_to(heals_at)?;
        self.heal();
        self.run_until("the producers", |world| {
            world.producers.iter().find_map(ProducerActor::unfinished)
        })?;
        self.run_until("the requests", |world| {
            world.requesters.iter().find_map(RequesterActor::unfinished)
        })?;
        self.end_asking();
        let ends = self.scan("scan")?;
        self.share_out(&ends)?;
        self.run_until("the consumers", |world| {
            let mut consumers = world.consumers.iter();
            consumers.find_map(|consumer| consumer.unfinished(&ends))
        })?;
        self.last_crash()?;
        let ends = self.scan("scan-again")?;
        self.share_out(&ends)?;
        self.check_sharing(&ends)?;
        self.run_until("the consumers, after a last crash", |world| {
            let mut consumers = world.consumers.iter();
            consumers.find_map(|consumer| consumer.unfinished(&ends))
        })?;
        self.check_dropped(&ends)?;
        self.summary.pushed = self.model.events.len() as u64;
        self.summary.acked = self.model.acked_count;
        self.summary.delivered = self.model.delivered_count;
        self.summary.ns = self.now;
        Ok(self.summary)
    }

    /// Does everything that is due now.
    fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..TURNS_MAX {
            if self.start_at.is_some_and(|at| at <= self.now) {
                self.start();
            }
            if self.look_at <= self.now {
                self.look_at = self.now + LOOK_NS;
                self.look();
            }
            if self.space_at.is_some_and(|at| at <= self.now) {
                self.space_at = None;
                self.machine.disk.set_space(None);
            }
            let mut moved = self.machine.turn(self.now)?;
            for producer in &mut self.producers {
                moved |= producer.program.turn(self.now);
                producer.observe(self.now, &mut self.model)?;
                let is_stopped = producer.program.is_stopped(self.now);
                if producer.wake_at <= self.now && !is_stopped {
                    moved = true;
                    let topic = (&self.plan.definition, &self.plan.partitions[..]);
                    producer.act(self.now, &mut self.model, topic)?;
                }
            }
            for consumer in &mut self.consumers {
                moved |= consumer.program.turn(self.now);
                consumer.observe(self.now, &mut self.model)?;
                if consumer.wake_at <= self.now {
                    moved = true;
                    consumer.act(self.now, &mut self.model)?;
                }
            }
            moved |= self.settle_sharing()?;
            moved |= self.settle_asking()?;
            if !moved {
                return self.check_budgets();
            }
        }
        Violation::because(format!("{TURNS_MAX} turns, and the time stands still"))
    }

    fn check_budgets(&self) -> Result<(), Violation> {
        let Some(node) = self.machine.node() else {
            return Ok(());
        };
        let (held, limit) = node.data_bytes();
        // One that is larger than all of it is let in alone.
        let largest = self.plan.producers.iter().map(|one| one.data_bytes_max);
        let largest = largest.max().unwrap_or(0) * 12 + 10_000;
        if held > limit.max(largest) {
            return Violation::because(format!(
                "the node holds {held} bytes of data, its budget is {limit}"
            ));
        }
        Ok(())
    }

    fn next_event(&self) -> u64 {
        let producers = self.producers.iter();
        let consumers = self.consumers.iter();
        let programs = producers
            .clone()
            .filter_map(|producer| producer.program.next_event())
            .chain(consumers.clone().filter_map(|one| one.program.next_event()));
        let awake = producers.filter(|producer| !producer.program.is_stopped(self.now));
        let wakes = awake
            .map(|producer| producer.wake_at)
            .chain(consumers.map(|consumer| consumer.wake_at))
            .chain(self.next_sharing())
            .chain(self.next_asking());
        let own = [self.start_at, Some(self.look_at), self.space_at];
        let others = [self.net.next_event(), self.machine.next_event(self.now)];
        let all = own.into_iter().chain(others).flatten();
        all.chain(programs).chain(wakes).min().unwrap_or(u64::MAX)
    }

    /// Lets one thing happen, no later than `until`. False when that time has come.
    pub(crate) fn step(&mut self, until: u64) -> Result<bool, Violation> {
        self.settle()?;
        let next = self.next_event().max(self.now);
        if next > until {
            self.now = until;
            self.net.advance(until);
            return Ok(false);
        }
        self.summary.steps += 1;
        self.now = next;
        self.net.advance(next);
        Ok(true)
    }

    fn run_to(&mut self, until: u64) -> Result<(), Violation> {
        while self.step(until)? {}
        Ok(())
    }

    /// Runs until nobody says any more what it waits for.
    fn run_until(
        &mut self,
        what: &str,
        waits: impl Fn(&Self) -> Option<String>,
    ) -> Result<(), Violation> {
        let deadline = self.now + DRAIN_NS_MAX;
        while let Some(reason) = waits(self) {
            if !self.step(deadline)? {
                let seconds = DRAIN_NS_MAX / SECOND;
                return Violation::because(format!(
                    "{what} have not ended {seconds} s after everything was well: {reason}"
                ));
            }
        }
        Ok(())
    }

    fn start(&mut self) {
        self.start_at = None;
        if !self.machine.start(self.now) {
            // The disk failed it; the next try has another disk.
            self.machine.kill(self.now);
            self.start_at = Some(self.now + SECOND / 2);
        }
    }

    fn crash(&mut self, power: Option<Survival>, down_ns: u64) {
        self.summary.restarts += 1;
        match power {
            None => self.machine.kill(self.now),
            Some(survival) => {
                // Nobody is told: packets go nowhere until the network heals.
                if self.random.one_in(2) {
                    self.net.silence_all();
                }
                self.machine.lose_power(self.now, survival);
            }
        }
        self.model.crashed(power.is_some());
        self.start_at = Some(self.now + down_ns);
    }

    /// Somebody looks at the server's status now and then, and starts it anew
    /// where a partition has failed.
    fn look(&mut self) {
        let Some(failure) = self.machine.failure() else {
            return;
        };
        self.trace
            .say(self.now, || format!("-- somebody sees that {failure}"));
        self.crash(None, SECOND / 10);
    }

    fn mishap(&mut self, mishap: Mishap) {
        self.trace.say(self.now, || format!("-- {mishap:?}"));
        let down_ns = self.random.within(SECOND / 100..2 * SECOND);
        match mishap {
            Mishap::Cut => self.net.cut_all(),
            Mishap::Silence => self.net.silence_all(),
            Mishap::Kill => self.crash(None, down_ns),
            Mishap::PowerLoss(survival) => self.crash(Some(survival), down_ns),
            Mishap::DiskFull => {
                self.machine.disk.set_space(Some(0));
                self.space_at = Some(self.now + down_ns);
            }
            Mishap::DiskError(after) => {
                let operation = self.machine.disk.operation_count() + after;
                self.machine.disk.fail_at(operation, Fault::Error);
            }
            Mishap::ProducerDies(who) => self.producers[who].die(self.now),
            Mishap::ProducerFenced(who) => {
                let successor = self.producers[who].successor();
                self.producers.extend(successor);
            }
            Mishap::ConsumerDies(who) => self.consumers[who].die(self.now, &mut self.model),
            Mishap::Seek(who) => self.consumers[who].seek(self.now, &mut self.model),
            Mishap::Stop(time) => self.machine.stop(self.now + time),
            Mishap::Trouble(who, trouble) => self.trouble(who, trouble),
        }
    }

    /// Whether the server runs and nobody will start it anew, which may lose
    /// what memory partitions hold.
    pub(crate) fn is_served(&self) -> bool {
        let node = self.machine.node();
        node.is_some_and(|node| node.failure().is_none())
    }

    /// Nothing goes wrong from now on.
    fn heal(&mut self) {
        self.trace.say(self.now, || "-- all is well".to_owned());
        self.net.set_faults(SimFaults::none());
        self.net.heal();
        self.machine.disk.set_space(None);
        self.space_at = None;
        // A fault that has not come yet does not come any more.
        self.machine.disk.clear_faults();
        self.machine.stop(self.now);
        self.heal_sharing();
        self.heal_asking();
    }

    /// The power goes once more, or the server is ended as it should be; who
    /// consumes begins anew, at its cursors.
    fn last_crash(&mut self) -> Result<(), Violation> {
        self.trace.say(self.now, || "-- a last crash".to_owned());
        match self.random.below(4) {
            0 => self.crash(Some(Survival::Nothing), SECOND / 10),
            1 => {
                let survival = Survival::Some(self.random.number());
                self.crash(Some(survival), SECOND / 10);
            }
            2 => self.crash(Some(Survival::All), SECOND / 10),
            _ => {
                self.machine.drain(self.now);
                let deadline = self.now + DRAIN_NS_MAX;
                while !self.machine.is_drained(self.now) {
                    if !self.step(deadline)? {
                        return Violation::because("the server does not drain");
                    }
                }
                self.model.crashed(false);
                self.start_at = Some(self.now);
            }
        }
        self.net.heal();
        for consumer in &mut self.consumers {
            consumer.die(self.now, &mut self.model);
        }
        Ok(())
    }

    /// Reads everything from the beginning, and compares it with what must be
    /// there. Returns where the partitions end.
    fn scan(&mut self, name: &str) -> Result<Vec<Position>, Violation> {
        let plan = ConsumerPlan {
            topic: TOPIC.to_owned(),
            name: name.to_owned(),
            credit_bytes: 1 << 20,
            selects: false,
            disk_fails: false,
            pause_ns: 1..5_000_000,
            looks_one_in: 0,
        };
        let scanner = ConsumerActor::new(
            &self.net,
            plan,
            Start::Beginning,
            self.random.fork(),
            self.trace.clone(),
        );
        let driver = scanner.program.driver.clone();
        self.consumers.push(scanner);
        let ends = self.ends(&driver)?;
        let place = self.consumers.len() - 1;
        self.run_until(name, |world| world.consumers[place].unfinished(&ends))?;
        let mut scanner = self.consumers.pop().expect("pushed above");
        scanner.program.kill(self.now);
        self.model.check_scan(&scanner.reader, &ends)?;
        Ok(ends)
    }

    /// Where the partitions end.
    fn ends(&mut self, driver: &client::Driver) -> Result<Vec<Position>, Violation> {
        let deadline = self.now + DRAIN_NS_MAX;
        let is_well = |description: &TopicDescription| {
            let mut partitions = description.partitions.iter();
            partitions.all(|partition| partition.failure.is_empty())
        };
        let description = 'described: loop {
            let mut pending = driver.begin_describe_topic(TOPIC);
            let scanner = self.consumers.last_mut().expect("pushed by the caller");
            scanner.program.wake();
            loop {
                match pending.try_get() {
                    Some(Ok(description)) if is_well(&description) && self.is_served() => {
                        break 'described description;
                    }
                    // Somebody looks after it soon.
                    Some(Ok(_)) => break,
                    Some(Err(error)) => {
                        self.trace.say(self.now, || format!("describing: {error}"));
                        break;
                    }
                    None => {}
                }
                if !self.step(deadline)? {
                    return Violation::because("the topic is not described");
                }
            }
        };
        let partitions = description.partitions.iter();
        let ends = partitions.map(|partition| Position {
            incarnation: partition.incarnation,
            offset: partition.watermarks.committed,
        });
        Ok(ends.collect())
    }
}
