//! Everything under one clock.

use super::admin::{ADMIN, Admin};
use super::client::{Attempt, Client, Reaction};
use super::judge::{Judge, Op};
use super::links::Links;
use super::machine::{Clock, Machine, StateMachine, op_of, payload_of};
use super::plan::{Mishap, Plan};
use super::trace::{Trace, Violation};
use crate::quorum::{
    Change, ClusterId, DirectoryId, Envelope, Identity, Input, Output, Quorum, RecoveryError,
    Refused, RequestId, Role, VoterId, found, join, recover,
};
use crate::random::Random;
use bytes::Bytes;
use log::testing::{Fault as DiskFault, Survival};
use log::{Disk, DiskErrorKind, Operation};
use std::collections::BTreeMap;
use std::path::Path;

/// Something that is due.
#[derive(Debug, Clone)]
enum Event {
    Message {
        from: VoterId,
        to: VoterId,
        bytes: Bytes,
    },
    Disk {
        of: VoterId,
        life: u64,
        token: u64,
    },
    Timer {
        of: VoterId,
        life: u64,
    },
    Snapshot {
        of: VoterId,
        life: u64,
        index: u64,
        bytes: Bytes,
    },
    Start {
        of: VoterId,
    },
    Space {
        of: VoterId,
    },
    Begin {
        client: usize,
    },
    Again {
        client: usize,
        request: RequestId,
    },
    Unanswered {
        client: usize,
        request: RequestId,
        tries: u64,
    },
    Propose {
        attempt: Attempt,
    },
    Answer {
        from: VoterId,
        request: RequestId,
        result: Result<u64, Refused>,
    },
    Admin,
    Change {
        to: VoterId,
        request: RequestId,
        change: Change,
    },
    Mishap,
}

/// What happened in a run, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) made: u64,
    pub(super) acknowledged: u64,
    pub(super) applied: u64,
    pub(super) given_up: u64,
    pub(super) power_losses: u64,
    pub(super) deaths: u64,
    pub(super) sync_failures: u64,
    pub(super) full: u64,
    pub(super) cuts: u64,
    pub(super) changes: u64,
    pub(super) leaders: u64,
    pub(super) restored: u64,
    pub(super) messages: u64,
    pub(super) hash: u64,
}

pub(super) struct World {
    plan: Plan,
    pub(super) now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    events: u64,
    random: Random,
    pub(super) machines: BTreeMap<VoterId, Machine>,
    pub(super) links: Links,
    clients: Vec<Client>,
    admin: Admin,
    pub(super) judge: Judge,
    pub(super) trace: Trace,
    pub(super) counts: Counts,
    /// Nothing goes wrong any more.
    quiet: bool,
    next_id: u64,
    cluster: ClusterId,
}

const DIRECTORY: &str = "/quorum";
/// How long it may take until all is well once nothing goes wrong any more.
const QUIET_US: u64 = 60_000_000;

impl World {
    pub(super) fn new(plan: Plan, trace: Trace) -> Result<Self, Violation> {
        let mut random = Random::new(plan.seed ^ 0x5eed);
        let cluster = ClusterId(u128::from(random.number()));
        let links = Links::new(&plan, Random::new(random.number()));
        let retry_us = plan.settings.retry_deadline.as_micros() as u64;
        let clients = (0..plan.clients)
            .map(|number| Client::new(number, Random::new(random.number()), retry_us));
        let clients: Vec<_> = clients.collect();
        let admin = Admin::new(Random::new(random.number()));
        let mut world = Self {
            next_id: plan.voters + 1,
            plan,
            now: 0,
            queue: BTreeMap::new(),
            events: 0,
            random,
            machines: BTreeMap::new(),
            links,
            clients,
            admin,
            judge: Judge::default(),
            trace,
            counts: Counts::default(),
            quiet: false,
            cluster,
        };
        let founders: Vec<_> = (1..=world.plan.voters)
            .map(|id| (VoterId(id), DirectoryId(u128::from(1000 + id))))
            .collect();
        for &(voter, directory) in &founders {
            world.found(world.cluster, voter, directory, &founders)?;
        }
        for client in 0..world.clients.len() {
            world.at(1000, Event::Begin { client });
        }
        world.at(50_000, Event::Admin);
        if world.plan.chaos_us > 0 {
            let first = world.random.below(world.plan.mishap_us);
            world.at(500_000 + first, Event::Mishap);
        }
        Ok(world)
    }

    /// A machine of a founder, which starts at once.
    pub(super) fn found(
        &mut self,
        cluster: ClusterId,
        voter: VoterId,
        directory: DirectoryId,
        founders: &[(VoterId, DirectoryId)],
    ) -> Result<(), Violation> {
        let machine = self.machine(cluster, voter, directory);
        let salt = machine.identity.directory.0 as u64;
        let path = Path::new(DIRECTORY);
        let done = found(&machine.disk, path, machine.identity, founders, salt);
        done.map_err(|error| Violation(format!("founding {voter}: {error}")))?;
        self.machines.insert(voter, machine);
        self.start(voter)
    }

    fn machine(&mut self, cluster: ClusterId, voter: VoterId, directory: DirectoryId) -> Machine {
        let identity = Identity {
            cluster,
            voter,
            directory,
        };
        let rate = match self.plan.clocks_differ {
            true => self.random.within(900, 1100),
            false => 1000,
        };
        let began_us = self.random.below(1 << 40);
        let machine = Machine::new(identity, Clock { began_us, rate });
        let path = DIRECTORY.into();
        let made = machine.disk.execute(Operation::CreateDirectory { path });
        made.expect("an empty disk takes a directory");
        let path = "/".into();
        let synced = machine.disk.execute(Operation::SyncDirectory { path });
        synced.expect("it is there");
        machine
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events += 1;
        self.queue.insert((time.max(self.now), self.events), event);
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    /// Runs the seed's plan to its end.
    pub(super) fn run(&mut self) -> Result<Counts, Violation> {
        self.run_until(self.plan.chaos_us)?;
        self.settle()?;
        Ok(self.counts())
    }

    pub(super) fn counts(&mut self) -> Counts {
        let mut counts = self.counts;
        counts.made = self.clients.iter().map(Client::made).sum();
        counts.given_up = self.clients.iter().map(|client| client.given_up).sum();
        (counts.applied, counts.acknowledged) = self.judge.counts();
        counts.changes = self.admin.done;
        counts.hash = self.trace.hash();
        counts
    }

    /// All that is due until then.
    pub(super) fn run_until(&mut self, end: u64) -> Result<(), Violation> {
        while let Some((&(time, number), _)) = self.queue.first_key_value()
            && time <= end
        {
            self.now = time;
            let event = self.queue.remove(&(time, number)).expect("it is the first");
            self.happen(event)?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Everything heals; then all must be done, and all the same.
    fn settle(&mut self) -> Result<(), Violation> {
        self.quiet = true;
        self.links.calm();
        self.trace.say(self.now, || "everything heals".to_owned());
        let ids: Vec<_> = self.machines.keys().copied().collect();
        for id in ids {
            let machine = self.machines.get_mut(&id).expect("it is one of them");
            machine.disk.set_space(None);
            machine.disk.clear_faults();
            machine.sync_fails = false;
            machine.paused_until = 0;
            if machine.quorum.is_none() {
                self.at(self.now, Event::Start { of: id });
            }
        }
        let end = self.now + QUIET_US;
        while self.now < end {
            self.run_until(self.now + 500_000)?;
            if self.unfinished().is_none() {
                return Ok(());
            }
        }
        let why = self.unfinished().unwrap_or_default();
        Err(Violation(format!(
            "60 s after everything has healed: {why}"
        )))
    }

    /// What is not as it is to be at the end.
    fn unfinished(&self) -> Option<String> {
        let open: usize = self.clients.iter().map(Client::open).sum();
        if open > 0 {
            return Some(format!("{open} requests are not answered"));
        }
        if !self.admin.is_idle() {
            return Some("a change of members is not made".to_owned());
        }
        for (id, machine) in &self.machines {
            if let Some(request) = machine.asked.keys().next() {
                return Some(format!("{id} has not answered {request}"));
            }
        }
        let leaders: Vec<_> = self.leaders().collect();
        let [leader] = leaders[..] else {
            return Some(format!("{leaders:?} lead"));
        };
        let quorum = self.machines[&leader].quorum.as_ref()?;
        let end = self.judge.end();
        for (id, _) in quorum.members() {
            if self.judge.applied_by(id) < end {
                let applied = self.judge.applied_by(id);
                return Some(format!("{id} has applied {applied} of {end}"));
            }
        }
        None
    }

    /// Those that say that they lead.
    pub(super) fn leaders(&self) -> impl Iterator<Item = VoterId> + '_ {
        self.machines
            .iter()
            .filter(|(_, machine)| machine.quorum.as_ref().is_some_and(Quorum::leads))
            .map(|(id, _)| *id)
    }

    /// The voters that there are, as far as anybody who runs knows.
    fn voters(&self) -> Vec<VoterId> {
        let ours = |one: &Machine| !one.retired && one.identity.cluster == self.cluster;
        let machines = self.machines.iter().filter(|(_, one)| ours(one));
        machines.map(|(id, _)| *id).collect()
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        if let Some(until) = self.paused(&event) {
            self.at(until, event);
            return Ok(());
        }
        match event {
            Event::Message { from, to, bytes } => {
                self.counts.messages += 1;
                self.input(to, None, Input::Message { from, bytes })
            }
            Event::Disk { of, life, token } => self.disk(of, life, token),
            Event::Timer { of, life } => {
                if let Some(machine) = self.machines.get_mut(&of)
                    && machine.life == life
                    && machine.timer_at.is_some_and(|planned| planned <= self.now)
                {
                    machine.timer_at = None;
                }
                self.input(of, Some(life), Input::Timer)
            }
            Event::Snapshot {
                of,
                life,
                index,
                bytes,
            } => self.input(of, Some(life), Input::Snapshot { index, bytes }),
            Event::Start { of } => self.start(of),
            Event::Space { of } => {
                if let Some(machine) = self.machines.get_mut(&of) {
                    machine.disk.set_space(None);
                }
                Ok(())
            }
            Event::Begin { client } => {
                let next = self.random.within(1000, self.plan.request_us);
                self.begin(client);
                if !self.quiet {
                    self.after(next, Event::Begin { client });
                }
                Ok(())
            }
            Event::Again { client, request } => {
                let voters = self.voters();
                let attempt = self.clients[client].attempt(request, self.now, &voters);
                self.send_attempt(client, attempt);
                Ok(())
            }
            Event::Unanswered {
                client,
                request,
                tries,
            } => {
                let voters = self.voters();
                if self.clients[client].unanswered(request, tries, &voters) {
                    self.after(0, Event::Again { client, request });
                }
                Ok(())
            }
            Event::Propose { attempt } => {
                let (request, payload) = (attempt.request, attempt.payload);
                self.input(attempt.to, None, Input::Propose { request, payload })
            }
            Event::Answer {
                from,
                request,
                result,
            } => self.answer(from, request, &result),
            Event::Admin => {
                self.admin();
                Ok(())
            }
            Event::Change {
                to,
                request,
                change,
            } => self.input(to, None, Input::ChangeVoters { request, change }),
            Event::Mishap => self.mishap(),
        }
    }

    /// Until when the event's machine handles nothing.
    fn paused(&self, event: &Event) -> Option<u64> {
        let of = match event {
            Event::Message { to, .. } | Event::Change { to, .. } => to,
            Event::Propose { attempt } => &attempt.to,
            Event::Disk { of, .. } | Event::Timer { of, .. } | Event::Snapshot { of, .. } => of,
            _ => return None,
        };
        let until = self.machines.get(of)?.paused_until;
        (until > self.now).then_some(until)
    }

    // ---- machines

    /// Something for a voter, of this life of it.
    pub(super) fn input(
        &mut self,
        to: VoterId,
        life: Option<u64>,
        input: Input,
    ) -> Result<(), Violation> {
        let Some(machine) = self.machines.get_mut(&to) else {
            return Ok(());
        };
        if life.is_some_and(|life| life != machine.life) {
            return Ok(());
        }
        let Some(quorum) = &mut machine.quorum else {
            return Ok(());
        };
        if let Input::Propose { request, .. } | Input::ChangeVoters { request, .. } = &input {
            *machine.asked.entry(*request).or_default() += 1;
        }
        quorum.handle(machine.clock.shows(self.now), input);
        self.outputs(to)
    }

    fn outputs(&mut self, of: VoterId) -> Result<(), Violation> {
        self.look_at(of)?;
        while let Some(machine) = self.machines.get_mut(&of)
            && let Some(quorum) = &mut machine.quorum
            && let Some(output) = quorum.poll_output()
        {
            self.output(of, output)?;
        }
        let Some(machine) = self.machines.get_mut(&of) else {
            return Ok(());
        };
        let Some(quorum) = &machine.quorum else {
            return Ok(());
        };
        let life = machine.life;
        let timer = quorum.next_timer().map(|shown| machine.clock.when(shown));
        if let Some(time) = timer
            && machine.timer_at.is_none_or(|planned| planned > time)
        {
            machine.timer_at = Some(time.max(self.now));
            self.at(time, Event::Timer { of, life });
        }
        Ok(())
    }

    /// Who votes, and who leads, as a voter that has handled something has it.
    fn look_at(&mut self, of: VoterId) -> Result<(), Violation> {
        let Some(machine) = self.machines.get(&of) else {
            return Ok(());
        };
        let Some(quorum) = &machine.quorum else {
            return Ok(());
        };
        if machine.identity.cluster == self.cluster {
            let (term, leads) = (quorum.leader().0, quorum.leads());
            let voters = quorum.members().filter(|(_, one)| one.role == Role::Voter);
            let voters: Vec<_> = voters.map(|(id, _)| id).collect();
            let index = quorum.applied();
            self.judge.configured(index, voters.into_iter());
            if leads {
                self.judge.leads(of, term)?;
            }
        }
        Ok(())
    }

    fn output(&mut self, of: VoterId, output: Output) -> Result<(), Violation> {
        let now = self.now;
        let machine = self.machines.get_mut(&of).expect("it has an output");
        let life = machine.life;
        let judged = machine.identity.cluster == self.cluster;
        match output {
            Output::Send { to, bytes } => {
                let crc = wire::checksum::crc32c(&bytes);
                self.trace.note(&[now, 1, of.0, to.0, crc.into()]);
                self.trace.say(now, || {
                    let envelope = Envelope::from_bytes(&bytes);
                    format!(
                        "{of} to {to}: {}",
                        envelope.map_or(String::new(), |one| one.outline())
                    )
                });
                if judged {
                    self.judge.sent(&bytes)?;
                }
                for delay in self.links.carry(of, to) {
                    let bytes = bytes.clone();
                    let message = Event::Message {
                        from: of,
                        to,
                        bytes,
                    };
                    self.after(delay, message);
                }
            }
            Output::Disk { token, operation } => {
                machine.operation = Some(operation);
                let (least, greatest) = self.plan.disk_us;
                let delay = self.random.within(least, greatest);
                self.after(delay, Event::Disk { of, life, token });
            }
            Output::Apply {
                index,
                term,
                payload,
            } => {
                let op = op_of(&payload);
                self.trace.note(&[now, 2, of.0, index, op]);
                self.trace.say(now, || {
                    format!("{of} applies {op:x} at {index}, term {term}")
                });
                machine.state.applied.push((index, op));
                if judged {
                    self.judge.applied(of, index, term, op)?;
                }
            }
            Output::Restore { index, bytes } => {
                self.trace.note(&[now, 3, of.0, index]);
                self.trace
                    .say(now, || format!("{of} is restored at {index}"));
                machine.state = StateMachine::of_bytes(&bytes);
                self.counts.restored += 1;
                if judged {
                    self.judge.restored(of, index, &machine.state.applied)?;
                }
            }
            Output::TakeSnapshot { upto } => {
                let bytes = machine.state.to_bytes();
                let delay = self.random.within(100, 300_000);
                let answer = Event::Snapshot {
                    of,
                    life,
                    index: upto,
                    bytes,
                };
                self.after(delay, answer);
            }
            Output::Answer { request, result } => {
                let asked = machine.asked.entry(request).or_default();
                if *asked == 0 {
                    return Err(Violation(format!("{of} answers {request} once too often")));
                }
                *asked -= 1;
                if *asked == 0 {
                    machine.asked.remove(&request);
                }
                let delay = self.links.delay();
                let answer = Event::Answer {
                    from: of,
                    request,
                    result,
                };
                self.after(delay, answer);
            }
            Output::Leader { term, leader } => {
                self.trace.note(&[now, 4, of.0, term]);
                self.trace
                    .say(now, || format!("{of}: term {term}, {leader:?} leads"));
                if leader == Some(of) {
                    self.counts.leaders += 1;
                }
            }
            Output::LeaderReady { term } => {
                self.trace
                    .say(now, || format!("{of} is ready to lead in term {term}"));
                if judged {
                    self.judge.is_ready(of, term)?;
                }
            }
            Output::Removed => {
                self.trace.say(now, || format!("{of} was removed"));
                machine.retired = true;
            }
            Output::Failed(reason) => {
                self.trace.say(now, || format!("{of} failed: {reason}"));
                if !std::mem::take(&mut machine.may_fail) && !machine.stranger {
                    return Err(Violation(format!("{of} failed: {reason}")));
                }
                // Somebody starts it again.
                let delay = self.random.within(200_000, 3_000_000);
                self.stop(of, false);
                self.after(delay, Event::Start { of });
            }
        }
        Ok(())
    }

    /// A disk has done what it was at.
    fn disk(&mut self, of: VoterId, life: u64, token: u64) -> Result<(), Violation> {
        let Some(machine) = self.machines.get_mut(&of) else {
            return Ok(());
        };
        if machine.life != life || machine.quorum.is_none() {
            return Ok(());
        }
        let Some(operation) = machine.operation.take() else {
            return Ok(());
        };
        let is_sync = matches!(operation, Operation::SyncData { .. });
        let next = machine.disk.operation_count();
        if is_sync && machine.sync_fails {
            machine.sync_fails = false;
            machine.may_fail = true;
            self.counts.sync_failures += 1;
            machine.disk.fail_at(next, DiskFault::Error);
        } else if is_sync && self.plan.disks_lie && self.random.one_in(30) {
            machine.disk.fail_at(next, DiskFault::Lie);
        }
        let result = machine.disk.execute(operation.clone());
        self.trace
            .note(&[self.now, 5, of.0, u64::from(result.is_ok())]);
        self.trace.say(self.now, || {
            let file = |file: &log::FileId| format!("file {}", file.0);
            format!("{of}: {}: {}", operation.describe(file), result.is_ok())
        });
        match &result {
            Ok(outcome) if machine.identity.cluster == self.cluster => {
                self.judge.disk(of).done(&operation, outcome);
            }
            Ok(_) => {}
            Err(error) => self.trace.say(self.now, || format!("{of}: {error}")),
        }
        self.input(of, Some(life), Input::DiskDone { token, result })
    }

    /// The process ends, and with `power` the machine. What the disk was at may be done in part.
    pub(super) fn stop(&mut self, of: VoterId, power: bool) {
        let survival = match self.random.below(4) {
            0 => Survival::Nothing,
            1 => Survival::All,
            _ => Survival::Some(self.random.number()),
        };
        let part = match self.random.below(3) {
            0 => 0,
            1 => u64::MAX,
            _ => self.random.below(3000),
        };
        let Some(machine) = self.machines.get_mut(&of) else {
            return;
        };
        if machine.quorum.take().is_none() && !power {
            return;
        }
        machine.life += 1;
        machine.timer_at = None;
        machine.sync_fails = false;
        machine.asked.clear();
        if let Some(operation) = machine.operation.take() {
            machine.disk.execute_in_part(&operation, part);
            let judged = machine.identity.cluster == self.cluster;
            if judged && matches!(operation, Operation::Write { .. }) {
                self.judge.disk(of).done(&operation, &log::Outcome::Done);
            }
        }
        match power {
            true => machine.disk.power_loss(survival),
            false => machine.disk.kill(),
        }
        self.trace.note(&[self.now, 6, of.0, power.into()]);
        self.trace.say(self.now, || match power {
            true => format!("{of} loses power, {survival:?} survives"),
            false => format!("{of} dies"),
        });
    }

    fn start(&mut self, of: VoterId) -> Result<(), Violation> {
        let machine = self.machines.get_mut(&of).expect("it was made");
        if machine.quorum.is_some() || machine.retired {
            return Ok(());
        }
        let recovered = match recover(&machine.disk, Path::new(DIRECTORY), machine.identity) {
            Ok(recovered) => recovered,
            Err(RecoveryError::Disk(error)) if error.kind == DiskErrorKind::Full => {
                self.after(1_000_000, Event::Start { of });
                return Ok(());
            }
            Err(error) => return Err(Violation(format!("{of} does not start: {error}"))),
        };
        if machine.identity.cluster == self.cluster {
            self.judge.opened(of, &recovered)?;
        }
        machine.life += 1;
        machine.operation = None;
        machine.may_fail = false;
        machine.state = StateMachine::default();
        let seed = self.random.number();
        let settings = self.plan.settings.clone();
        let shown = machine.clock.shows(self.now);
        let quorum = Quorum::open(settings, seed, shown, recovered);
        machine.quorum = Some(quorum.map_err(Violation)?);
        self.trace.say(self.now, || format!("{of} starts"));
        self.outputs(of)
    }

    // ---- clients

    fn begin(&mut self, client: usize) {
        let attempt = self.clients[client].begin(self.now);
        self.send_attempt(client, attempt);
    }

    fn send_attempt(&mut self, client: usize, attempt: Option<Attempt>) {
        let Some(attempt) = attempt else {
            return;
        };
        let (request, tries) = (attempt.request, attempt.tries);
        let delay = self.links.delay();
        let patience = self.clients[client].patience();
        self.after(delay, Event::Propose { attempt });
        let unanswered = Event::Unanswered {
            client,
            request,
            tries,
        };
        self.after(patience, unanswered);
    }

    fn answer(
        &mut self,
        from: VoterId,
        request: RequestId,
        result: &Result<u64, Refused>,
    ) -> Result<(), Violation> {
        let number = (request.0 >> 96) as u64;
        if number == ADMIN {
            if self.admin.answered(from, request, result) {
                // The one that is to go leads: another is to.
                let to = self.random.pick(&self.voters()).unwrap_or(from);
                return self.input(from, None, Input::TransferLeader { to });
            }
            return Ok(());
        }
        let voters = self.voters();
        let client = number as usize;
        match self.clients[client].answered(from, request, result, &voters) {
            Reaction::Done(op, index) => {
                self.trace.note(&[self.now, 7, op, index]);
                self.judge.acknowledged(op, index)
            }
            Reaction::Again(delay) => {
                self.after(delay, Event::Again { client, request });
                Ok(())
            }
            Reaction::Nothing => Ok(()),
        }
    }

    /// A proposal outside of any client, to this voter.
    pub(super) fn propose(&mut self, to: VoterId, op: Op) -> Result<(), Violation> {
        let request = RequestId((u128::from(ADMIN) << 96) | (1 << 80) | u128::from(op));
        let payload = payload_of(op, 100);
        self.input(to, None, Input::Propose { request, payload })
    }

    fn admin(&mut self) {
        self.after(300_000, Event::Admin);
        let voters = self.voters();
        let Some((to, request, change)) = self.admin.attempt(&voters) else {
            return;
        };
        let delay = self.links.delay();
        let ask = Event::Change {
            to,
            request,
            change,
        };
        self.after(delay, ask);
    }

    // ---- mishaps

    fn mishap(&mut self) -> Result<(), Violation> {
        if self.quiet {
            return Ok(());
        }
        let next = self.random.within(10_000, self.plan.mishap_us);
        self.after(next, Event::Mishap);
        let Some(mishap) = self.random.pick(&self.plan.mishaps) else {
            return Ok(());
        };
        let voters = self.voters();
        let Some(one) = self.random.pick(&voters) else {
            return Ok(());
        };
        let leader = self.leaders().last();
        // Those that lead are hit more often than others.
        let one = match self.random.one_in(2) {
            true => leader.unwrap_or(one),
            false => one,
        };
        self.trace
            .say(self.now, || format!("mishap: {mishap:?}, {one}"));
        match mishap {
            Mishap::PowerLoss => {
                let all = self.random.one_in(3);
                let count = self.random.within(1, voters.len() as u64) as usize;
                for _ in 0..count {
                    let one = self.random.pick(&voters).unwrap_or(one);
                    self.lose_power(one);
                }
                if all {
                    voters.iter().for_each(|one| self.lose_power(*one));
                }
            }
            Mishap::Death => {
                self.counts.deaths += 1;
                self.stop(one, false);
                let delay = self.random.within(10_000, 3_000_000);
                self.after(delay, Event::Start { of: one });
            }
            Mishap::Pause => {
                let until = self.now + self.random.within(100_000, 4_000_000);
                if let Some(machine) = self.machines.get_mut(&one) {
                    machine.paused_until = until;
                }
            }
            Mishap::Split => {
                self.counts.cuts += 1;
                let group = self.random.number();
                let group = voters.iter().filter(|id| (group >> (id.0 % 64)) & 1 == 1);
                let group: Vec<_> = group.copied().collect();
                self.links.split(&voters, &group);
            }
            Mishap::OneWay => {
                self.counts.cuts += 1;
                let other = self.random.pick(&voters).unwrap_or(one);
                match self.random.one_in(2) {
                    true => self.links.cut(one, other),
                    false => self.links.cut(other, one),
                }
            }
            Mishap::Isolate => {
                self.counts.cuts += 1;
                self.links.split(&voters, &[one]);
            }
            Mishap::Heal => self.links.heal(),
            Mishap::Full => {
                self.counts.full += 1;
                let left = self.random.below(3000);
                let lasts = self.random.within(500_000, 6_000_000);
                if let Some(machine) = self.machines.get_mut(&one) {
                    machine.disk.set_space(Some(machine.used() + left));
                }
                self.after(lasts, Event::Space { of: one });
            }
            Mishap::SyncFails => {
                if let Some(machine) = self.machines.get_mut(&one) {
                    machine.sync_fails = true;
                }
            }
            Mishap::Transfer => {
                if let Some(leader) = leader {
                    return self.input(leader, None, Input::TransferLeader { to: one });
                }
            }
            Mishap::Members => self.change_members(one)?,
        }
        Ok(())
    }

    fn lose_power(&mut self, of: VoterId) {
        self.counts.power_losses += 1;
        self.stop(of, true);
        let delay = self.random.within(10_000, 3_000_000);
        self.after(delay, Event::Start { of });
    }

    /// A member comes, or goes, or is replaced because it lost its directory. One at a time.
    fn change_members(&mut self, one: VoterId) -> Result<(), Violation> {
        let Some(leader) = self.leaders().last().filter(|_| self.admin.is_idle()) else {
            return Ok(());
        };
        let members = self.machines[&leader]
            .quorum
            .iter()
            .flat_map(Quorum::members);
        let members = members.filter(|(_, member)| member.role == Role::Voter);
        let members: Vec<_> = members.map(|(id, _)| id).collect();
        if !members.contains(&one) {
            return Ok(());
        }
        let voters = members.len();
        match self.random.below(3) {
            0 if voters > 3 => self.admin.remove(one),
            1 if voters < 7 => {
                let (voter, directory) = self.newcomer()?;
                self.admin.add(voter, directory);
            }
            _ if voters >= 3 => {
                let (voter, directory) = self.newcomer()?;
                self.admin.add(voter, directory);
                self.admin.remove(one);
                let comes_back = self.random.one_in(2);
                self.lose_directory(one, comes_back)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A voter's machine is lost for good. Somebody may start another under its id, with an empty
    /// directory: the others must not take it for the one that it was.
    pub(super) fn lose_directory(
        &mut self,
        one: VoterId,
        comes_back: bool,
    ) -> Result<(), Violation> {
        self.stop(one, true);
        let Some(old) = self.machines.get(&one) else {
            return Ok(());
        };
        let (cluster, life) = (old.identity.cluster, old.life);
        if !comes_back {
            if let Some(machine) = self.machines.get_mut(&one) {
                machine.retired = true;
            }
            return Ok(());
        }
        let directory = DirectoryId(self.random.number().into());
        let mut machine = self.machine(cluster, one, directory);
        machine.life = life;
        machine.stranger = true;
        let path = Path::new(DIRECTORY);
        let begun = join(&machine.disk, path, machine.identity, directory.0 as u64);
        begun.map_err(|error| Violation(format!("{one} joins again: {error}")))?;
        self.judge.wiped(one);
        self.trace
            .say(self.now, || format!("{one} has lost its directory"));
        self.machines.insert(one, machine);
        self.after(100_000, Event::Start { of: one });
        Ok(())
    }

    fn newcomer(&mut self) -> Result<(VoterId, DirectoryId), Violation> {
        let voter = VoterId(self.next_id);
        self.next_id += 1;
        let directory = DirectoryId(u128::from(1000 + voter.0));
        let machine = self.machine(self.cluster, voter, directory);
        let path = Path::new(DIRECTORY);
        let begun = join(&machine.disk, path, machine.identity, voter.0);
        begun.map_err(|error| Violation(format!("{voter} joins: {error}")))?;
        self.machines.insert(voter, machine);
        self.start(voter)?;
        Ok((voter, directory))
    }
}
