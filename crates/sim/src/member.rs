//! A group's member: reads what it is assigned, acknowledges, leaves, dies,
//! comes back.

use crate::model::Model;
use crate::plan::{MemberPlan, TOPIC};
use crate::program::Program;
use crate::random::Random;
use crate::trace::{Trace, Violation};
use crate::witness::Witness;
use client::{
    ClientError, Consumer, ConsumerOptions, GroupMember, PartitionsCallback, Pending, TopicHandle,
};
use net::testing::sim::SimNet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::{ErrorCode, EventId, Offset, PartitionIndex};

/// How long a program that was refused thinks before it tries again.
const RETRY_NS: u64 = 200_000_000;
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);

enum Stage {
    Begin,
    Finding(Pending<TopicHandle>),
    Opening(Pending<Consumer>),
    Open(Box<Consumer>),
    /// Its successor goes on in its place.
    Over,
}

/// What the callbacks said.
#[derive(Default)]
struct Told {
    owned: BTreeSet<PartitionIndex>,
    /// What came or went since this was looked at.
    changed: Vec<PartitionIndex>,
}

/// One thread has it, so nobody waits for it.
type Owned = Arc<Mutex<Told>>;

/// The program and what it remembers.
pub struct MemberActor {
    pub program: Program,
    plan: MemberPlan,
    stage: Stage,
    random: Random,
    trace: Trace,
    net: SimNet,
    /// When it does something by itself.
    pub wake_at: u64,
    owned: Owned,
    /// The last event that it was given of each partition since it owns it.
    last: BTreeMap<PartitionIndex, EventId>,
    /// What it has not acknowledged yet.
    pending: BTreeMap<PartitionIndex, EventId>,
    flush: Option<Pending<()>>,
    may_be_fenced: bool,
    is_diligent: bool,
}

impl MemberActor {
    /// Starts the program.
    pub fn new(net: &SimNet, plan: MemberPlan, mut random: Random, trace: Trace) -> Self {
        let session = u128::from(random.number());
        Self {
            program: Program::start(net, plan.name.clone(), session, trace.clone()),
            plan,
            stage: Stage::Begin,
            random,
            trace,
            net: net.clone(),
            wake_at: 0,
            owned: Owned::default(),
            last: BTreeMap::new(),
            pending: BTreeMap::new(),
            flush: None,
            may_be_fenced: false,
            is_diligent: false,
        }
    }

    /// What it is at.
    pub fn describe(&self) -> String {
        let what = match &self.stage {
            Stage::Begin => "about to find its topic",
            Stage::Finding(_) => "finding its topic",
            Stage::Opening(_) => "joining its group",
            Stage::Open(_) => "open",
            Stage::Over => "over",
        };
        let told = self.owned.lock().expect("no holder panics here");
        let owned = &told.owned;
        format!(
            "{} is {what}, owns {owned:?}, has read up to {:?}; {}",
            self.program.name,
            self.last,
            self.program.driver.liveness()
        )
    }

    /// A process of the same instance name, which takes over; this one goes on.
    pub fn successor(&mut self) -> Option<Self> {
        self.plan.member.instance.as_ref()?;
        // Whoever joins last goes on.
        if self.may_be_fenced || !matches!(self.stage, Stage::Open(_)) {
            return None;
        }
        self.may_be_fenced = true;
        let plan = MemberPlan {
            name: format!("{}'", self.plan.name),
            ..self.plan.clone()
        };
        let random = self.random.fork();
        Some(Self::new(&self.net, plan, random, self.trace.clone()))
    }

    /// From now on it does not go away, and acknowledges what it has read.
    pub fn is_to_be_diligent(&mut self) {
        self.is_diligent = true;
    }

    /// It leaves as it should, and begins anew.
    pub fn leave(&mut self, now: u64) {
        if matches!(self.stage, Stage::Open(_)) {
            self.begin_anew(now);
            self.program.wake();
        }
    }

    fn begin_anew(&mut self, now: u64) {
        self.stage = Stage::Begin;
        self.owned = Owned::default();
        self.last.clear();
        self.pending.clear();
        self.flush = None;
        self.wake_at = now + self.random.below(RETRY_NS);
    }

    /// The process is killed and comes back.
    pub fn die(&mut self, now: u64) {
        if !self.program.ended {
            self.program.kill(now);
        }
        self.begin_anew(now);
        if self.may_be_fenced {
            self.stage = Stage::Over;
            self.wake_at = u64::MAX;
            return;
        }
        let session = u128::from(self.random.number());
        let name = self.program.name.clone();
        self.program = Program::start(&self.net, name, session, self.trace.clone());
    }

    /// Looks at what was answered.
    pub fn observe(&mut self, now: u64) {
        if self.program.is_stopped(now) {
            return;
        }
        if self.program.ended {
            if !matches!(self.stage, Stage::Over) {
                self.die(now);
            }
            return;
        }
        let name = &self.program.name;
        if let Some(result) = self.flush.as_mut().and_then(Pending::try_get) {
            self.trace.say(now, || {
                format!("{name}: acknowledgements flushed: {result:?}")
            });
            self.flush = None;
        }
        match &mut self.stage {
            Stage::Finding(pending) => match pending.try_get() {
                Some(Ok(topic)) => {
                    let options = self.options();
                    self.stage = Stage::Opening(topic.begin_consumer(&self.plan.group, options));
                    self.program.wake();
                }
                Some(Err(error)) => self.failed(now, "finding the topic", &error),
                None => {}
            },
            Stage::Opening(pending) => match pending.try_get() {
                Some(Ok(consumer)) => {
                    self.stage = Stage::Open(Box::new(consumer));
                    self.wake_at = now;
                }
                Some(Err(error)) => self.failed(now, "joining the group", &error),
                None => {}
            },
            Stage::Begin | Stage::Open(_) | Stage::Over => {}
        }
    }

    fn options(&self) -> ConsumerOptions {
        let change = |apply: fn(&mut BTreeSet<PartitionIndex>, PartitionIndex)| {
            let owned = self.owned.clone();
            let callback: Arc<PartitionsCallback> = Arc::new(move |partitions| {
                let mut told = owned.lock().expect("no holder panics here");
                told.changed.extend(partitions);
                partitions
                    .iter()
                    .for_each(|one| apply(&mut told.owned, *one));
            });
            Some(callback)
        };
        let take = |owned: &mut BTreeSet<PartitionIndex>, one: PartitionIndex| {
            owned.remove(&one);
        };
        ConsumerOptions {
            credit_bytes: self.plan.credit_bytes,
            group: Some(GroupMember {
                on_assigned: change(|owned, one| {
                    owned.insert(one);
                }),
                on_revoking: change(take),
                on_lost: change(take),
                ..self.plan.member.clone()
            }),
            ..ConsumerOptions::default()
        }
    }

    fn failed(&mut self, now: u64, what: &str, error: &ClientError) {
        let name = &self.program.name;
        self.trace.say(now, || format!("{name}: {what}: {error}"));
        self.stage = Stage::Begin;
        self.wake_at = now + RETRY_NS;
    }

    /// Does something by itself.
    pub fn act(
        &mut self,
        now: u64,
        model: &mut Model,
        witness: &mut Witness,
    ) -> Result<(), Violation> {
        self.wake_at = now + self.random.within(self.plan.pause_ns.clone());
        self.program.wake();
        match &self.stage {
            Stage::Begin => {
                self.stage = Stage::Finding(self.program.driver.begin_open_topic(TOPIC));
                return Ok(());
            }
            Stage::Open(_) => {}
            Stage::Over => {
                self.wake_at = u64::MAX;
                return Ok(());
            }
            Stage::Finding(_) | Stage::Opening(_) => return Ok(()),
        }
        let mut came = false;
        for _ in 0..self.random.within(1..20) {
            if !self.pull(now, model, witness)? {
                break;
            }
            came = true;
        }
        let rests = self.is_diligent && !came;
        if rests || self.random.one_in(3) {
            // One that is refused says what was against those before.
            let pending = std::mem::take(&mut self.pending).into_iter();
            self.pending = pending
                .filter(|(_, id)| !self.acknowledge(now, *id))
                .collect();
        } else if self.random.one_in(8)
            && let Some(id) = self.last.values().next().copied()
        {
            // Somebody is late with an event that was done long ago.
            let offset = Offset(self.random.below(id.offset.0 + 1));
            self.acknowledge(now, EventId { offset, ..id });
        }
        if self.random.one_in(4)
            && self.flush.is_none()
            && let Stage::Open(consumer) = &self.stage
        {
            self.flush = Some(consumer.begin_flush_acknowledgements(FLUSH_TIMEOUT));
        }
        Ok(())
    }

    fn acknowledge(&self, now: u64, id: EventId) -> bool {
        let Stage::Open(consumer) = &self.stage else {
            return false;
        };
        let result = consumer.acknowledge(id);
        let name = &self.program.name;
        self.trace
            .say(now, || format!("{name}: acknowledges {id}: {result:?}"));
        result.is_ok()
    }

    /// Takes one event. False if there was none.
    fn pull(
        &mut self,
        now: u64,
        model: &mut Model,
        witness: &mut Witness,
    ) -> Result<bool, Violation> {
        let Stage::Open(consumer) = &self.stage else {
            return Ok(false);
        };
        let pulled = consumer.pull(Some(Duration::ZERO));
        let mut told = self.owned.lock().expect("no holder panics here");
        for partition in std::mem::take(&mut told.changed) {
            self.last.remove(&partition);
            self.pending.remove(&partition);
        }
        let owned = told.owned.clone();
        drop(told);
        let name = &self.program.name;
        let event = match pulled {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(false),
            Err(error) if error.is_retryable() => return Ok(false),
            Err(error) => {
                let code = error.code();
                let fenced = code == Some(ErrorCode::MemberFenced);
                let is_static = self.plan.member.instance.is_some();
                let fenced = fenced && (is_static || self.plan.member.processing_timeout.is_some());
                let failed = code == Some(ErrorCode::StorageFailed) && self.plan.disk_fails;
                if !fenced && !failed {
                    return Violation::because(format!("{name} cannot pull: {error}"));
                }
                self.trace.say(now, || format!("{name}: {error}"));
                if is_static || failed {
                    self.die(now);
                }
                return Ok(false);
            }
        };
        let id = event.id();
        let number = model.recognised(name, &event, |_| None)?;
        self.trace
            .say(now, || format!("{name}: is given event {number} as {id}"));
        if !owned.contains(&id.partition) {
            return Violation::because(format!(
                "{name} is given {id}, and was not told that the partition is its own"
            ));
        }
        let before = self.last.insert(id.partition, id);
        if before.is_some_and(|before| before.offset.plus(1) != id.offset) {
            return Violation::because(format!("{name} is given {id} after {before:?}"));
        }
        let shares = &mut witness.shares;
        shares.handled(&self.plan.group, id.partition, id.offset)?;
        self.pending.insert(id.partition, id);
        Ok(true)
    }
}
