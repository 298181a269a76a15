//! One run of a cluster: all servers and all clients under one clock, and what is asked of it at the end.

use super::ClusterSummary;
use super::admin::{self, Chore};
use super::errand::{Done, Errand, Outcome};
use super::judge::Judge;
use super::mover::{move_early, move_to};
use super::plan::{ClusterMishap, ClusterPlan, ClusterTopic, Failing};
use super::site::{Founding, Site, address_of, directory_of};
use super::unnamed;
use super::wires::Wires;
use crate::consumer::ConsumerActor;
use crate::model::Model;
use crate::plan::ConsumerPlan;
use crate::producer::ProducerActor;
use crate::program::Entrance;
use crate::random::Random;
use crate::trace::{Trace, Violation};
use crate::world::{DRAIN_NS_MAX, SECOND};
use client::{Definition, Driver, PartitionStorage, Position, Start, TopicDescription};
use log::testing::{Fault, Survival};
use net::testing::sim::{SimFaults, SimNet};
use std::collections::BTreeSet;
use topic::{Retention, part_name, spread_name};

/// How often somebody looks at the servers.
const LOOK_NS: u64 = 3 * SECOND;
/// Turns without the time moving after which nothing will ever move it.
const TURNS_MAX: u32 = 100_000;

/// A topic, and what must hold of it.
struct Topic {
    plan: ClusterTopic,
    /// What it is made with.
    made_with: (Definition, Vec<PartitionStorage>),
    model: Model,
    /// The machines that have had each partition, or a copy that was to take its place: what they lose it may lose.
    machines: BTreeSet<(u32, usize)>,
}

/// A client's program, and the topic that it uses.
struct Actor<A> {
    topic: usize,
    is: A,
}

/// Everything.
pub struct ClusterWorld {
    plan: ClusterPlan,
    net: SimNet,
    wires: Wires,
    sites: Vec<Site>,
    judge: Judge,
    topics: Vec<Topic>,
    producers: Vec<Actor<ProducerActor>>,
    consumers: Vec<Actor<ConsumerActor>>,
    movers: Vec<Errand>,
    chores: Vec<(Chore, Errand)>,
    /// How many movers and administrators there were.
    errand_count: u64,
    /// Servers that have not joined yet, or have ended for good.
    absent: Vec<bool>,
    /// Servers that have a directory of no topic.
    unnamed: BTreeSet<usize>,
    /// Who is cut off until when.
    cut_off: Vec<(u64, String)>,
    /// When each server is to be started.
    start_at: Vec<Option<u64>>,
    /// When there is space on each disk again.
    space_at: Vec<Option<u64>>,
    /// What else happens when the power of each server goes as it is to.
    failing: Vec<Option<Failing>>,
    look_at: u64,
    random: Random,
    trace: Trace,
    now: u64,
    summary: ClusterSummary,
}

impl ClusterWorld {
    /// The world of a plan, at its beginning.
    pub fn new(plan: ClusterPlan, trace: Trace) -> Self {
        trace.say(0, || format!("{plan:?}"));
        let mut random = Random::new(plan.seed ^ 0xc105);
        let net = SimNet::new(random.number(), plan.faults.clone());
        let founding = Founding::of(plan.voters);
        let strangers_at = plan.machines.len() - plan.strangers;
        let sites = plan.machines.iter().enumerate().map(|(place, machine)| {
            let founding = match place < strangers_at {
                true => founding.clone(),
                false => founding.again(strangers_at),
            };
            let place = (place, &founding);
            Site::new(place, &net, machine.clone(), random.fork(), trace.clone())
        });
        let sites: Vec<_> = sites.collect();
        let entrance = |place| Entrance::new(&net, &address_of(place), directory_of(place));
        let producers = plan.producers.iter().enumerate().map(|(index, client)| {
            let name = format!("producer-{index}");
            let (plan, random) = (client.plan.clone(), random.fork());
            let is =
                ProducerActor::new(entrance(client.entrance), name, plan, random, trace.clone());
            let topic = client.topic;
            Actor { topic, is }
        });
        let producers = producers.collect();
        let consumers = plan.consumers.iter().map(|client| {
            let (plan, random) = (client.plan.clone(), random.fork());
            let entrance = entrance(client.entrance);
            let is = ConsumerActor::new(entrance, plan, Start::Cursor, random, trace.clone());
            let topic = client.topic;
            Actor { topic, is }
        });
        let consumers = consumers.collect();
        let topics = plan.topics.iter().map(|topic| {
            let retention = topic.topic.definition.retention() != Retention::default();
            let levels = topic.topic.levels.iter();
            Topic {
                made_with: topic.topic.made_with(),
                model: Model::new(levels.map(|level| (*level, retention)).collect()),
                plan: topic.clone(),
                machines: BTreeSet::new(),
            }
        });
        Self {
            topics: topics.collect(),
            producers,
            consumers,
            wires: Wires::new(sites.len(), random.fork()),
            start_at: plan.starts_at.clone(),
            space_at: vec![None; sites.len()],
            failing: vec![None; sites.len()],
            sites,
            judge: Judge::default(),
            movers: Vec::new(),
            chores: Vec::new(),
            errand_count: 0,
            unnamed: BTreeSet::new(),
            absent: plan.starts_at.iter().map(Option::is_none).collect(),
            cut_off: Vec::new(),
            look_at: 0,
            random,
            trace,
            now: 0,
            summary: ClusterSummary::default(),
            net,
            plan,
        }
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Result<ClusterSummary, Violation> {
        for (at, mishap) in std::mem::take(&mut self.plan.mishaps) {
            self.run_to(at)?;
            self.mishap(mishap);
        }
        let heals_at = self.plan.heals_at;
        self.run_to(heals_at)?;
        self.heal();
        self.run_until("the servers", Self::unserving)?;
        self.run_until("the producers", |world| {
            let mut producers = world.producers.iter();
            producers.find_map(|producer| producer.is.unfinished())
        })?;
        self.run_until("the movers", |world| {
            world.movers.iter().find_map(Errand::unfinished)
        })?;
        self.run_until("the administrators", |world| {
            let mut chores = world.chores.iter();
            chores.find_map(|(_, errand)| errand.unfinished())
        })?;
        self.run_until("the servers that have joined", Self::unserving)?;
        self.read_all("scan")?;
        self.last_crash();
        self.run_until("the servers, after a last crash", Self::unserving)?;
        self.read_all("scan-again")?;
        self.check_unnamed()?;
        for topic in &self.topics {
            self.summary.pushed += topic.model.events.len() as u64;
            self.summary.acked += topic.model.acked_count;
            self.summary.delivered += topic.model.delivered_count;
        }
        self.summary.leaders = self.judge.leaders();
        self.summary.ns = self.now;
        Ok(self.summary)
    }

    /// Reads every topic from its beginning, and waits until its consumers have come to its end.
    fn read_all(&mut self, name: &str) -> Result<(), Violation> {
        let mut ends = Vec::new();
        for topic in 0..self.topics.len() {
            ends.push(self.scan(topic, name)?);
        }
        self.run_until("the consumers", |world| {
            let mut consumers = world.consumers.iter();
            consumers.find_map(|consumer| consumer.is.unfinished(&ends[consumer.topic]))
        })
    }

    /// Does everything that is due now.
    fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..TURNS_MAX {
            self.settle_machines();
            let mut moved = self.settle_wires();
            for site in &mut self.sites {
                moved |= site.turn(self.now)?;
            }
            let now = self.now;
            for producer in &mut self.producers {
                let topic = &mut self.topics[producer.topic];
                let producer = &mut producer.is;
                moved |= producer.program.turn(now);
                producer.observe(now, &mut topic.model)?;
                if producer.wake_at <= now && !producer.program.is_stopped(now) {
                    moved = true;
                    let (definition, partitions) = &topic.made_with;
                    producer.act(now, &mut topic.model, (definition, partitions))?;
                }
            }
            for consumer in &mut self.consumers {
                let topic = &mut self.topics[consumer.topic];
                let consumer = &mut consumer.is;
                moved |= consumer.program.turn(now);
                consumer.observe(now, &mut topic.model)?;
                if consumer.wake_at <= now {
                    moved = true;
                    consumer.act(now, &mut topic.model)?;
                }
            }
            moved |= self.settle_movers();
            moved |= self.settle_chores();
            if !moved {
                return self.judge.look(&mut self.sites);
            }
        }
        Violation::because(format!("{TURNS_MAX} turns, and the time stands still"))
    }

    fn settle_movers(&mut self) -> bool {
        let mut moved = false;
        for mover in &mut self.movers {
            moved |= mover.turn(self.now);
        }
        let over = self.movers.extract_if(.., |mover| mover.has_ended());
        for mover in over.collect::<Vec<_>>() {
            self.summary.moved += u64::from(mover.end(self.now).is_some());
        }
        moved
    }

    fn settle_chores(&mut self) -> bool {
        let mut moved = false;
        for (_, errand) in &mut self.chores {
            moved |= errand.turn(self.now);
        }
        let over = self.chores.extract_if(.., |(_, errand)| errand.has_ended());
        for (chore, errand) in over.collect::<Vec<_>>() {
            match errand.end(self.now) {
                Some(Done::Removed(place)) => {
                    self.summary.removed += 1;
                    // Another machine takes its place.
                    self.join(place + 1);
                }
                Some(Done::Stays(place)) => self.join(place),
                Some(Done::Added | Done::Moved) => self.summary.added += 1,
                None => self.begin(chore),
            }
        }
        moved
    }

    fn settle_machines(&mut self) {
        for place in 0..self.sites.len() {
            if self.start_at[place].is_some_and(|at| at <= self.now) {
                self.start(place);
            }
            if self.space_at[place].is_some_and(|at| at <= self.now) {
                self.space_at[place] = None;
                self.sites[place].machine.disk.set_space(None);
            }
        }
        self.settle_failing();
        if self.look_at <= self.now {
            self.look_at = self.now + LOOK_NS;
            for place in 0..self.sites.len() {
                if let Some(failure) = self.sites[place].failure() {
                    self.trace.say(self.now, || {
                        format!("-- somebody sees of machine-{place} that {failure}")
                    });
                    self.crash(place, None, SECOND / 10);
                }
            }
        }
        let now = self.now;
        let over = self.cut_off.extract_if(.., |(until, _)| *until <= now);
        for (_, name) in over.collect::<Vec<_>>() {
            self.net.reconnect(&name);
        }
    }

    /// Servers whose power goes while their voters write.
    fn settle_failing(&mut self) {
        for place in 0..self.sites.len() {
            if self.failing[place].is_none() || !self.sites[place].fails(self.now) {
                continue;
            }
            let failing = self.failing[place].take();
            let Failing { other, down, away } = failing.expect("looked at above");
            self.trace.say(self.now, || {
                format!("-- machine-{place} loses its power as its voter writes, and machine-{other} is killed")
            });
            self.crash(place, Some(Survival::Nothing), down);
            self.crash(other, None, away);
        }
    }

    fn settle_wires(&mut self) -> bool {
        let mut moved = false;
        while let Some((place, of, heard)) = self.wires.poll(self.now) {
            moved = true;
            self.sites[place].hear(of, heard);
        }
        for from in 0..self.sites.len() {
            while let Some((to, bytes)) = self.sites[from].poll_send() {
                moved = true;
                self.wires.send(self.now, from, to, bytes);
            }
        }
        moved
    }

    fn next_event(&self) -> u64 {
        let producers = self.producers.iter().map(|producer| &producer.is);
        let consumers = self.consumers.iter().map(|consumer| &consumer.is);
        let programs = producers
            .clone()
            .filter_map(|producer| producer.program.next_event())
            .chain(consumers.clone().filter_map(|one| one.program.next_event()));
        let awake = producers.filter(|producer| !producer.program.is_stopped(self.now));
        let wakes = awake
            .map(|producer| producer.wake_at)
            .chain(consumers.map(|consumer| consumer.wake_at));
        let sites = self.sites.iter();
        let sites = sites.filter_map(|site| site.next_event(self.now));
        let own = self
            .start_at
            .iter()
            .chain(&self.space_at)
            .flatten()
            .copied();
        let own = own.chain(self.cut_off.iter().map(|(until, _)| *until));
        let others = [self.net.next_event(), self.wires.next_event()];
        let all = own
            .chain(others.into_iter().flatten())
            .chain([self.look_at]);
        let chores = self.chores.iter().map(|(_, errand)| errand);
        let errands = self.movers.iter().chain(chores);
        let errands = errands.filter_map(Errand::next_event);
        all.chain(sites)
            .chain(errands)
            .chain(programs)
            .chain(wakes)
            .min()
            .unwrap_or(u64::MAX)
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

    /// The servers that are part of the cluster now, each with its place.
    fn present(&self) -> impl Iterator<Item = (usize, &Site)> {
        let sites = self.sites.iter().enumerate();
        sites.filter(|(place, _)| !self.absent[*place])
    }

    /// A server is part of the cluster from now on.
    fn join(&mut self, place: usize) {
        if place < self.sites.len() {
            self.absent[place] = false;
            self.start_at[place] = Some(self.now);
        }
    }

    /// Which server does not serve.
    fn unserving(&self) -> Option<String> {
        let mut sites = self.present();
        sites.find_map(|(place, site)| Some(format!("machine-{place} {}", site.unserving()?)))
    }

    fn start(&mut self, place: usize) {
        self.start_at[place] = None;
        let site = &mut self.sites[place];
        if site.runs() {
            return;
        }
        if site.start(self.now) {
            self.wires.started(place);
        } else {
            // The disk failed it; the next try has another disk.
            site.kill(self.now);
            self.start_at[place] = Some(self.now + SECOND / 2);
        }
    }

    fn crash(&mut self, place: usize, power: Option<Survival>, down_ns: u64) {
        if self.absent[place] {
            return;
        }
        self.summary.restarts += 1;
        self.find_topics();
        let site = &mut self.sites[place];
        match power {
            None => site.kill(self.now),
            Some(survival) => site.lose_power(self.now, survival),
        }
        self.wires.ended(self.now, place, power.is_some());
        for topic in &mut self.topics {
            let machines = &topic.machines;
            // Of one that is about to be made it is not known where.
            let is_placed = |partition| machines.iter().any(|(of, _)| *of == partition);
            let has = |partition| machines.contains(&(partition, place)) || !is_placed(partition);
            topic.model.crashed_with(power.is_some(), has);
        }
        self.start_at[place] = Some(self.now + down_ns);
    }

    /// Where each topic is, as the tables say.
    fn find_topics(&mut self) {
        for site in &self.sites {
            let nodes = site.machine.node().map(|node| node.inspect().table());
            let tables = nodes
                .into_iter()
                .chain(site.voter().map(|voter| voter.table()));
            for table in tables {
                for (id, entry) in table.topics() {
                    let name = spread_name(&entry.record.name);
                    let is_it = |it: &&mut Topic| it.plan.name == name;
                    let Some(topic) = self.topics.iter_mut().find(is_it) else {
                        continue;
                    };
                    let nodes = [Some(entry.home()), table.moving(*id)];
                    let is_there = |place: &usize| {
                        let node = self.sites[*place].node;
                        node.is_some() && nodes.contains(&node)
                    };
                    for place in (0..self.sites.len()).filter(is_there) {
                        let partitions = entry.partitions.keys();
                        let there = partitions.map(|partition| (partition.0, place));
                        topic.machines.extend(there);
                    }
                }
            }
        }
    }

    fn mishap(&mut self, mishap: ClusterMishap) {
        self.trace.say(self.now, || format!("-- {mishap:?}"));
        let now = self.now;
        match mishap {
            ClusterMishap::Kill(place, down) => self.crash(place, None, down),
            ClusterMishap::PowerLoss(place, survival, down) => {
                self.crash(place, Some(survival), down);
            }
            ClusterMishap::Blackout(survival) => {
                for place in 0..self.sites.len() {
                    let down = self.random.within(SECOND / 100..2 * SECOND);
                    self.crash(place, Some(survival), down);
                }
            }
            ClusterMishap::Stop(place, time) => {
                if self.sites[place].runs() {
                    self.sites[place].stop(now + time);
                    self.wires.stopped(now, place, now + time);
                }
            }
            ClusterMishap::DiskFull(place, time) => {
                self.sites[place].machine.disk.set_space(Some(0));
                self.space_at[place] = Some(now + time);
            }
            ClusterMishap::DiskError(place, after) => {
                let disk = &self.sites[place].machine.disk;
                disk.fail_at(disk.operation_count() + after, Fault::Error);
            }
            ClusterMishap::Cut(one, other) => self.wires.cut(now, one, other),
            ClusterMishap::Apart(one, other, time) => {
                self.wires.shut(now, one, other, now + time);
                self.wires.shut(now, other, one, now + time);
            }
            ClusterMishap::OneWay(from, to, time) => self.wires.shut(now, from, to, now + time),
            ClusterMishap::Alone(place, time) => {
                for other in (0..self.sites.len()).filter(|other| *other != place) {
                    self.wires.shut(now, place, other, now + time);
                    self.wires.shut(now, other, place, now + time);
                }
            }
            ClusterMishap::Slow(one, other, slow, time) => {
                self.wires.slow_down(one, other, slow, now + time);
            }
            ClusterMishap::CutClients => self.net.cut_all(),
            ClusterMishap::SilenceClients => self.net.silence_all(),
            ClusterMishap::ProducerCutOff(who, time) => {
                let name = self.producers[who].is.program.name.clone();
                self.net.cut_off(&name);
                self.cut_off.push((now + time, name));
            }
            ClusterMishap::ConsumerCutOff(who, time) => {
                let name = self.consumers[who].is.program.name.clone();
                self.net.cut_off(&name);
                self.cut_off.push((now + time, name));
            }
            ClusterMishap::ProducerLags(who, rate) => {
                let name = &self.producers[who].is.program.name;
                self.net.slow_down(name, rate);
            }
            ClusterMishap::ConsumerLags(who, rate) => {
                let name = &self.consumers[who].is.program.name;
                self.net.slow_down(name, rate);
            }
            ClusterMishap::ProducerDies(who) => self.producers[who].is.die(now),
            ClusterMishap::ProducerFenced(who) => {
                let Actor { topic, is } = &mut self.producers[who];
                let topic = *topic;
                let successor = is.successor();
                let successor = successor.map(|is| Actor { topic, is });
                self.producers.extend(successor);
            }
            ClusterMishap::ConsumerDies(who) => {
                let Actor { topic, is } = &mut self.consumers[who];
                is.die(now, &mut self.topics[*topic].model);
            }
            ClusterMishap::Move {
                topic,
                partition,
                to,
                entrance,
                is_early,
            } => self.start_to_move((topic, partition), (to, entrance), is_early),
            ClusterMishap::MoversDie => {
                for mover in std::mem::take(&mut self.movers) {
                    self.summary.moved += u64::from(mover.end(now).is_some());
                }
            }
            ClusterMishap::ProducerSleeps(who, time) => self.producers[who].is.sleep(now + time),
            ClusterMishap::Unnamed(place, down) => self.put_unnamed(place, down),
            ClusterMishap::Grow(topic) => self.grow(topic),
            ClusterMishap::Fails(place, at, failing) => {
                self.sites[place].fail(at);
                self.failing[place] = Some(failing);
            }
            ClusterMishap::Joins(place) => self.join(place),
            ClusterMishap::EndsForGood(place) => self.end_for_good(place),
            ClusterMishap::Seek(who) => {
                let Actor { topic, is } = &mut self.consumers[who];
                is.seek(now, &mut self.topics[*topic].model);
            }
        }
    }

    fn start_to_move(
        &mut self,
        (topic, partition): (usize, usize),
        (to, entrance): (usize, usize),
        is_early: bool,
    ) {
        let Some(node) = self.sites[to].node else {
            return;
        };
        let topic = &self.topics[topic].plan;
        let name = match topic.topic.is_spread {
            true => part_name(&topic.name, partition as u32),
            false => topic.name.clone(),
        };
        let what = format!("moves {name} to node {node}");
        let mover =
            self.errand(
                (what, &["source", "target"]),
                entrance,
                move |drivers| match is_early {
                    false => move_to(drivers, &name, node),
                    true => move_early(drivers, &name, node),
                },
            );
        self.movers.push(mover);
    }

    /// Starts a program that comes in at a server.
    fn errand(
        &mut self,
        (what, drivers): (String, &[&str]),
        entrance: usize,
        run: impl FnOnce(&[Driver]) -> Outcome + Send + 'static,
    ) -> Errand {
        self.errand_count += 1;
        let name = format!("errand-{}", self.errand_count);
        self.trace.say(self.now, || format!("{name}: {what}"));
        let entrance = Entrance::new(&self.net, &address_of(entrance), directory_of(entrance));
        let trace = self.trace.clone();
        Errand::start((name, drivers), &entrance, &mut self.random, trace, run)
    }

    /// Somebody begins to do something, until it is done.
    fn begin(&mut self, chore: Chore) {
        let entrance = self.random.below(self.plan.servers as u64) as usize;
        let what = (format!("{chore:?}"), &["admin"][..]);
        let errand = match chore {
            Chore::Add(topic, count) => {
                let plan = &self.topics[topic].plan;
                let storage = plan.topic.partitions[0].clone();
                let name = plan.name.clone();
                self.errand(what, entrance, move |drivers| {
                    admin::add_partition(&drivers[0], &name, &storage, count)
                })
            }
            Chore::Remove(place) => {
                let node = self.sites[place].node;
                let node = node.expect("one that has no node ends without that");
                self.errand(what, entrance, move |drivers| {
                    admin::remove(&drivers[0], node, place)
                })
            }
        };
        self.chores.push((chore, errand));
    }

    /// A topic is to have one partition more, as its first one is.
    fn grow(&mut self, topic: usize) {
        let Topic { plan, model, .. } = &mut self.topics[topic];
        if plan.topic.is_spread {
            return;
        }
        model.grow();
        let count = model.partitions.len();
        self.begin(Chore::Add(topic, count));
    }

    /// A server is killed, and has a directory of no topic when it is back.
    fn put_unnamed(&mut self, place: usize, down: u64) {
        self.crash(place, None, down);
        let machine = &mut self.sites[place].machine;
        machine.accepts_loss = true;
        // A disk that is full or fails takes a part.
        if unnamed::put(&machine.disk).is_ok() {
            self.unnamed.insert(place);
        }
    }

    /// What no topic has is where it was, or was set aside.
    fn check_unnamed(&self) -> Result<(), Violation> {
        let mut places = self.unnamed.iter();
        let is_lost = |place: &&usize| !unnamed::is_there(&self.sites[**place].machine.disk);
        match places.find(is_lost) {
            None => Ok(()),
            Some(place) => Violation::because(format!(
                "machine-{place} has removed a directory that no topic has"
            )),
        }
    }

    /// A server ends, and does not come back: its node is removed, unless it has topics.
    fn end_for_good(&mut self, place: usize) {
        self.crash(place, None, 0);
        // Nobody knows a node that has not registered.
        if self.sites[place].node.is_some() {
            self.start_at[place] = None;
            self.absent[place] = true;
            self.begin(Chore::Remove(place));
        }
    }

    /// Nothing goes wrong from now on.
    fn heal(&mut self) {
        self.trace.say(self.now, || "-- all is well".to_owned());
        self.net.set_faults(SimFaults::none());
        self.net.heal();
        self.cut_off.clear();
        self.wires.heal();
        self.space_at.fill(None);
        self.failing.fill(None);
        for site in &mut self.sites {
            site.machine.disk.set_space(None);
            // A fault that has not come yet does not come any more.
            site.machine.disk.clear_faults();
            site.stop(self.now);
        }
    }

    /// The power goes once more, at some machines or all; who consumes begins anew, at its cursors.
    fn last_crash(&mut self) {
        self.trace.say(self.now, || "-- a last crash".to_owned());
        let is_everywhere = self.random.one_in(2);
        for place in 0..self.sites.len() {
            if !is_everywhere && self.random.one_in(2) {
                continue;
            }
            let survival = match self.random.below(3) {
                0 => Survival::Nothing,
                1 => Survival::All,
                _ => Survival::Some(self.random.number()),
            };
            self.crash(place, Some(survival), SECOND / 10);
        }
        self.net.heal();
        for Actor { topic, is } in &mut self.consumers {
            is.die(self.now, &mut self.topics[*topic].model);
        }
    }

    /// Reads a topic from its beginning, and compares it with what must be there. Returns where its partitions end.
    fn scan(&mut self, topic: usize, name: &str) -> Result<Vec<Position>, Violation> {
        let plan = ConsumerPlan {
            topic: self.topics[topic].plan.name.clone(),
            name: name.to_owned(),
            credit_bytes: 1 << 20,
            selects: false,
            disk_fails: false,
            pause_ns: 1..5_000_000,
            looks_one_in: 0,
        };
        let place = self.random.below(self.plan.servers as u64) as usize;
        let entrance = Entrance::new(&self.net, &address_of(place), directory_of(place));
        let (random, trace) = (self.random.fork(), self.trace.clone());
        let is = ConsumerActor::new(entrance, plan, Start::Beginning, random, trace);
        let driver = is.program.driver.clone();
        self.consumers.push(Actor { topic, is });
        let ends = self.ends(topic, &driver)?;
        let last = self.consumers.len() - 1;
        let what = format!("{name} of {}", self.topics[topic].plan.name);
        self.run_until(&what, |world| world.consumers[last].is.unfinished(&ends))?;
        let mut scanner = self.consumers.pop().expect("pushed above").is;
        scanner.program.kill(self.now);
        self.topics[topic]
            .model
            .check_scan(&scanner.reader, &ends)?;
        Ok(ends)
    }

    /// Where a topic's partitions end.
    fn ends(&mut self, topic: usize, driver: &Driver) -> Result<Vec<Position>, Violation> {
        let deadline = self.now + DRAIN_NS_MAX;
        let name = self.topics[topic].plan.name.clone();
        let is_well = |description: &TopicDescription| {
            let mut partitions = description.partitions.iter();
            partitions.all(|partition| partition.failure.is_empty())
        };
        let is_served = |world: &Self| {
            let mut sites = world.present();
            sites.all(|(_, site)| site.unserving().is_none() && site.failure().is_none())
        };
        let description = 'described: loop {
            let mut pending = driver.begin_describe_topic(&name);
            let scanner = self.consumers.last_mut().expect("pushed by the caller");
            scanner.is.program.wake();
            loop {
                match pending.try_get() {
                    Some(Ok(description)) if is_well(&description) && is_served(self) => {
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
                    return Violation::because(format!("topic {name} is not described"));
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
