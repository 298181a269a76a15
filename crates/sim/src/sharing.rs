//! The part of a run that is about queues and groups: its programs are driven,
//! get into trouble, and are asked at the end what became of every event.

use crate::leases::{Letter, Turns};
use crate::plan::{Plan, TOPIC, Trouble, Who};
use crate::program::Program;
use crate::trace::{Trace, Violation};
use crate::witness::Witness;
use crate::world::{DRAIN_NS_MAX, SECOND, World};
use client::{ConsumedEvent, Consumer, ConsumerOptions, Pending, Position, Start};
use std::collections::BTreeSet;
use std::time::Duration;
use wire::message::{ConsumerDescription, ConsumerPartition};
use wire::record::ConsumerKind;
use wire::{ErrorCode, EventId, Incarnation, Offset, PartitionIndex};

const MILLISECOND: u64 = 1_000_000;
/// How often the observer looks whether everything is settled.
const LOOK_NS: u64 = SECOND / 5;
/// Metadata in the last segment of a partition, at most: a segment, and a
/// batch that is larger.
const KEPT_BYTES_MAX: u64 = 6_000;
/// How slow a slow connection is.
const SLOW_BYTES_PER_SECOND: u64 = 20_000;

impl Plan {
    /// Who listens to the server, if consumers share.
    pub(crate) fn witness(&self, trace: &Trace) -> Option<Witness> {
        let workers = self.workers.iter().map(|one| (&one.queue, &one.options));
        // Requests are work of a queue as well.
        let answerers = self.answerers.iter().filter_map(|one| one.queue.as_ref());
        let answerers = answerers.map(|queue| (&queue.name, &queue.options));
        let mut workers = workers.chain(answerers).peekable();
        let (_, first) = workers.peek()?;
        let deliveries_max = first.queue.deliveries_max;
        let ordered = workers.filter(|(_, options)| options.queue.ordered_by_key);
        let turns = Turns::of(ordered.map(|(queue, _)| queue.clone()).collect());
        let revoke_ms = self.members.first().map(|one| &one.member.group);
        let revoke_ms = revoke_ms.map_or(0, |group| group.revoke_timeout_ms);
        Some(Witness::new(
            deliveries_max,
            turns,
            revoke_ms * MILLISECOND,
            trace.clone(),
        ))
    }

    /// Whether all that there is is to be shared out.
    fn shares(&self) -> bool {
        !self.workers.is_empty()
    }

    fn queues(&self) -> BTreeSet<&str> {
        let queues = self.workers.iter().map(|worker| worker.queue.as_str());
        queues.collect()
    }

    fn groups(&self) -> BTreeSet<&str> {
        let groups = self.members.iter().map(|member| member.group.as_str());
        groups.collect()
    }
}

impl World {
    /// Does what is due now. True if there was something.
    pub(crate) fn settle_sharing(&mut self) -> Result<bool, Violation> {
        let now = self.now;
        let mut moved = false;
        if let Some(observer) = &mut self.observer {
            moved |= observer.turn(now);
        }
        let due = |(at, _): &mut (u64, String)| *at <= now;
        for (_, name) in self.cut_off.extract_if(.., due) {
            moved = true;
            self.net.reconnect(&name);
        }
        let witness = self.machine.witness.clone();
        let mut witness = witness.borrow_mut();
        let Some(witness) = &mut *witness else {
            return Ok(moved);
        };
        for worker in &mut self.workers {
            moved |= worker.program.turn(now);
            worker.observe(now, witness)?;
            if worker.wake_at <= now && !worker.program.is_stopped(now) {
                moved = true;
                worker.act(now, &mut self.model)?;
            }
        }
        for member in &mut self.members {
            moved |= member.program.turn(now);
            member.observe(now);
            if member.wake_at <= now && !member.program.is_stopped(now) {
                moved = true;
                member.act(now, &mut self.model, witness)?;
            }
        }
        Ok(moved)
    }

    /// When something is due.
    pub(crate) fn next_sharing(&self) -> Option<u64> {
        let now = self.now;
        let workers = self.workers.iter().map(|one| (&one.program, one.wake_at));
        let members = self.members.iter().map(|one| (&one.program, one.wake_at));
        let programs = workers.chain(members);
        let times = programs.flat_map(|(program, wake_at)| {
            let wake_at = (!program.is_stopped(now)).then_some(wake_at);
            program.next_event().into_iter().chain(wake_at)
        });
        let observer = self.observer.as_ref().and_then(Program::next_event);
        let reconnects = self.cut_off.iter().map(|(at, _)| *at);
        times.chain(observer).chain(reconnects).min()
    }

    /// Something happens to one program.
    pub(crate) fn trouble(&mut self, who: Who, trouble: Trouble) {
        let now = self.now;
        let program = match who {
            Who::Producer(index) => &mut self.producers[index].program,
            Who::Worker(index) => &mut self.workers[index].program,
            Who::Member(index) => &mut self.members[index].program,
            Who::Requester(index) => &mut self.requesters[index].program,
            Who::Answerer(index) => &mut self.answerers[index].program,
        };
        match trouble {
            Trouble::Stops(time) => program.stop(now + time),
            Trouble::CutOff(time) => {
                self.net.cut_off(&program.name);
                self.cut_off.push((now + time, program.name.clone()));
            }
            Trouble::Slow => self.net.slow_down(&program.name, SLOW_BYTES_PER_SECOND),
            Trouble::Dies => match who {
                Who::Producer(index) => self.producers[index].die(now),
                Who::Worker(index) => self.workers[index].die(now),
                Who::Member(index) => self.members[index].die(now),
                Who::Requester(index) => self.trouble_requester(index, trouble),
                Who::Answerer(index) => self.trouble_answerer(index, trouble),
            },
            Trouble::Leaves => match who {
                Who::Producer(_) => {}
                Who::Worker(index) => self.workers[index].leave(),
                Who::Member(index) => self.members[index].leave(now),
                Who::Requester(_) => {}
                Who::Answerer(index) => self.trouble_answerer(index, trouble),
            },
            Trouble::Replaced => match who {
                Who::Producer(index) => {
                    let successor = self.producers[index].successor();
                    self.producers.extend(successor);
                }
                Who::Worker(index) => {
                    let successor = self.workers[index].successor();
                    self.workers.extend(successor);
                }
                Who::Member(index) => {
                    let successor = self.members[index].successor();
                    self.members.extend(successor);
                }
                Who::Requester(_) | Who::Answerer(_) => {}
            },
        }
    }

    /// Nothing goes wrong any more, and the programs do what they should.
    pub(crate) fn heal_sharing(&mut self) {
        let now = self.now;
        self.cut_off.clear();
        for worker in &mut self.workers {
            worker.is_to_be_diligent();
            worker.program.stop(now);
        }
        for member in &mut self.members {
            member.is_to_be_diligent();
            member.program.stop(now);
        }
        for producer in &mut self.producers {
            producer.program.stop(now);
        }
        if !self.plan.kept_for.is_empty() {
            for consumer in &mut self.consumers {
                consumer.is_to_be_diligent();
            }
        }
    }

    /// At the end, when all have acknowledged everything: a topic that keeps
    /// things for them alone keeps no more than a segment of a partition.
    pub(crate) fn check_dropped(&mut self, ends: &[Position]) -> Result<(), Violation> {
        let keeps_all = self.plan.definition.retention().keeps_all();
        if self.plan.kept_for.is_empty() || !keeps_all {
            return Ok(());
        }
        self.observe("retention");
        let what = "what all have acknowledged to be dropped";
        let deadline = self.now + DRAIN_NS_MAX;
        loop {
            let ask = |driver: &client::Driver| driver.begin_describe_topic(TOPIC);
            let description = self.good_answer(what, ask, deadline + DRAIN_NS_MAX)?;
            let mut partitions = description.partitions.iter().zip(ends);
            let too_much = partitions.find_map(|(partition, end)| {
                let kept = self
                    .model
                    .log_bytes(partition.partition.0, partition.first, *end);
                (kept > KEPT_BYTES_MAX).then_some((partition.clone(), kept))
            });
            let Some((partition, kept)) = too_much else {
                self.end_observer();
                return Ok(());
            };
            if self.now >= deadline {
                return Violation::because(format!(
                    "all have acknowledged everything, and {kept} bytes of metadata are kept: \
                     {partition:?}"
                ));
            }
            let next = (self.now + LOOK_NS).min(deadline);
            while self.step(next)? {}
        }
    }

    /// Runs until every queue and group has done with everything.
    pub(crate) fn share_out(&mut self, ends: &[Position]) -> Result<(), Violation> {
        if !self.plan.shares() {
            return Ok(());
        }
        self.observe("observer");
        let deadline = self.now + DRAIN_NS_MAX;
        let mut waits = String::new();
        loop {
            let described = self.describe_consumers(deadline);
            let found = match &described {
                Ok(found) => found,
                Err(violation) => {
                    return Violation::because(format!(
                        "{}; before: {waits}{}",
                        violation.0,
                        self.describe_sharers()
                    ));
                }
            };
            match self.unshared(found, ends) {
                None => break,
                Some(what) => waits = what,
            }
            let next = (self.now + LOOK_NS).min(deadline);
            while self.step(next)? {}
        }
        self.end_observer();
        Ok(())
    }

    fn describe_sharers(&self) -> String {
        let workers = self.workers.iter().map(|worker| worker.describe());
        let members = self.members.iter().map(|member| member.describe());
        let all: Vec<String> = workers.chain(members).collect();
        format!("\n{}", all.join("\n"))
    }

    /// What a queue or group has not done with.
    fn unshared(&self, found: &[ConsumerDescription], ends: &[Position]) -> Option<String> {
        let queues = self.plan.queues();
        let groups = self.plan.groups();
        let kinds = queues.into_iter().map(|name| (name, ConsumerKind::Queue));
        let groups = groups.into_iter().map(|name| (name, ConsumerKind::Group));
        for (name, kind) in kinds.chain(groups) {
            let one = found.iter().find(|one| one.consumer == name);
            let Some(one) = one.filter(|one| one.kind == kind) else {
                return Some(format!("{kind} {name} is not there"));
            };
            for (index, end) in ends.iter().enumerate() {
                let is_it = |one: &&ConsumerPartition| one.partition.0 as usize == index;
                let stands = one.partitions.iter().find(is_it);
                let busy =
                    |stands: &ConsumerPartition| stands.leased + stands.delayed + stands.dead;
                let is_done = |stands: &ConsumerPartition| {
                    stands.position.offset == end.offset && busy(stands) == 0
                };
                // A group stands nowhere where nothing ever was.
                let is_empty = end.offset == Offset(0);
                if !stands.map_or(is_empty, is_done) {
                    return Some(format!("{name} stands at {stands:?} of {end:?}"));
                }
            }
        }
        None
    }

    fn observe(&mut self, name: &str) {
        let session = u128::from(self.random.number());
        let observer = Program::start(&self.net, name.to_owned(), session, self.trace.clone());
        self.observer = Some(observer);
    }

    fn end_observer(&mut self) {
        if let Some(mut observer) = self.observer.take() {
            observer.kill(self.now);
        }
    }

    fn driver(&self) -> client::Driver {
        let observer = self.observer.as_ref().expect("there is one now");
        observer.driver.clone()
    }

    /// Runs until the observer has an answer. `None` if that is an error.
    fn answer<T>(
        &mut self,
        what: &str,
        mut pending: Pending<T>,
        deadline: u64,
    ) -> Result<Result<T, client::ClientError>, Violation> {
        if let Some(observer) = &mut self.observer {
            observer.wake();
        }
        loop {
            if let Some(answer) = pending.try_get() {
                return Ok(answer);
            }
            if !self.step(deadline)? {
                let seconds = DRAIN_NS_MAX / SECOND;
                return Violation::because(format!(
                    "{what} have not ended {seconds} s after everything was well"
                ));
            }
        }
    }

    /// As [`World::answer`], until the answer is a good one.
    fn good_answer<T>(
        &mut self,
        what: &str,
        mut ask: impl FnMut(&client::Driver) -> Pending<T>,
        deadline: u64,
    ) -> Result<T, Violation> {
        loop {
            let pending = ask(&self.driver());
            match self.answer(what, pending, deadline)? {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    self.trace.say(self.now, || format!("{what}: {error}"));
                    let next = (self.now + LOOK_NS).min(deadline);
                    while self.step(next)? {}
                    if self.now >= deadline {
                        return Violation::because(format!("{what} have not ended: {error}"));
                    }
                }
            }
        }
    }

    fn describe_consumers(&mut self, deadline: u64) -> Result<Vec<ConsumerDescription>, Violation> {
        let what = "queues and groups";
        let open = |driver: &client::Driver| driver.begin_open_topic(TOPIC);
        let topic = self.good_answer(what, open, deadline)?;
        if self.now >= deadline {
            return Violation::because(format!("{what} have not ended"));
        }
        self.good_answer(what, |_| topic.begin_describe_consumers(""), deadline)
    }

    /// At the end: what became of every event.
    pub(crate) fn check_sharing(&mut self, ends: &[Position]) -> Result<(), Violation> {
        if !self.plan.shares() {
            return Ok(());
        }
        let letters = self.read_letters()?;
        let all = ends.iter().enumerate().flat_map(|(partition, end)| {
            (0..end.offset.0).map(move |offset| EventId {
                partition: PartitionIndex(partition as u32),
                incarnation: end.incarnation,
                offset: Offset(offset),
            })
        });
        let all: Vec<EventId> = all.collect();
        let witness = self.machine.witness.clone();
        let mut witness = witness.borrow_mut();
        let Some(witness) = &mut *witness else {
            return Ok(());
        };
        for queue in self.plan.queues() {
            witness.leases.check_ends(queue, &all, &letters)?;
        }
        for group in self.plan.groups() {
            witness.shares.check_ends(group, ends)?;
        }
        self.summary.leased = witness.leases.given_count;
        self.summary.leased_again = witness.leases.again_count;
        self.summary.refused = witness.leases.refused_count + witness.shares.refused_count;
        self.summary.moved = witness.shares.moved_count;
        self.summary.dead = letters.len() as u64;
        Ok(())
    }

    /// Reads the dead-letter topic.
    fn read_letters(&mut self) -> Result<Vec<Letter>, Violation> {
        self.observe("letters");
        let what = "dead letters";
        let deadline = self.now + DRAIN_NS_MAX;
        let name = format!("{TOPIC}.dead");
        let open = |driver: &client::Driver| driver.begin_open_topic(&name);
        let topic = self.good_answer(what, open, deadline)?;
        let options = ConsumerOptions {
            start: Start::Beginning.into(),
            ..ConsumerOptions::default()
        };
        let open = |_: &client::Driver| topic.begin_consumer("letters", options.clone());
        let consumer: Consumer = self.good_answer(what, open, deadline)?;
        let described = topic.partitions();
        let end: u64 = described.iter().map(|one| one.watermarks.committed.0).sum();
        let mut letters = Vec::new();
        while (letters.len() as u64) < end {
            match consumer.pull(Some(Duration::ZERO)) {
                Ok(Some(event)) => letters.push(self.letter(&event)?),
                Ok(None) => {
                    if let Some(observer) = &mut self.observer {
                        observer.wake();
                    }
                    if !self.step(deadline)? {
                        return Violation::because("dead letters are not read");
                    }
                }
                Err(error) if error.code() == Some(ErrorCode::StorageFailed) => {}
                Err(error) => {
                    return Violation::because(format!("dead letters cannot be read: {error}"));
                }
            }
        }
        self.end_observer();
        Ok(letters)
    }

    /// A dead letter, which is to be the event that it says it was.
    fn letter(&mut self, event: &ConsumedEvent) -> Result<Letter, Violation> {
        let what = format!("dead letter {}", event.id());
        let number = self.model.content(&what, event, |_| None)?;
        let headers = event.headers();
        let header = |name: &str| {
            let mut found = headers.iter().filter(|(other, _)| other == name);
            let (Some((_, value)), None) = (found.next(), found.next()) else {
                return Violation::because(format!("{what} has not one header {name}"));
            };
            Ok(String::from_utf8_lossy(value).into_owned())
        };
        let count = |name: &str| {
            let text = header(name)?;
            let count = text.parse::<u64>();
            count.map_err(|_| Violation(format!("{what}: {name} is {text:?}")))
        };
        let origin = EventId {
            partition: PartitionIndex(count("thalweg.partition")? as u32),
            incarnation: Incarnation(count("thalweg.incarnation")?),
            offset: Offset(count("thalweg.offset")?),
        };
        let says = format!("{what} is event {number}, and says that it was {origin}");
        self.model.is_from(&says, number, origin)?;
        if header("thalweg.topic")? != TOPIC {
            return Violation::because(format!("{what} is of another topic"));
        }
        Ok(Letter {
            queue: header("thalweg.queue")?,
            origin,
            deliveries: count("thalweg.deliveries")? as u32,
            reason: header("thalweg.reason")?,
        })
    }
}
