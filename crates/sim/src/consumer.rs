//! A consumer's program: pulls, acknowledges, goes back, dies, comes back.

use crate::looks::Looks;
use crate::model::{Model, Reader};
use crate::plan::ConsumerPlan;
use crate::program::{Entrance, Program};
use crate::random::Random;
use crate::trace::{Trace, Violation};
use client::{
    Consumer, ConsumerOptions, DataMode, DataView, Pending, Position, Start, Stride, TopicHandle,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use wire::{ErrorCode, Offset, PartitionIndex};

/// How long a program that was refused thinks before it tries again.
const RETRY_NS: u64 = 200_000_000;
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);
/// Seeks that are not waited for at a time.
const SEEKS_MAX: usize = 3;

enum Stage {
    Begin,
    Finding(Pending<TopicHandle>),
    Opening(Pending<Consumer>),
    Open(Box<Consumer>),
}

/// Acknowledgements that are to become durable.
struct Flush {
    pending: Pending<()>,
    /// Partition, position, and how many seeks there had been.
    covers: Vec<(u32, Position, u64)>,
}

/// The program and what it remembers.
pub struct ConsumerActor {
    pub program: Program,
    pub reader: Reader,
    plan: ConsumerPlan,
    start: Start,
    stage: Stage,
    random: Random,
    trace: Trace,
    entrance: Entrance,
    /// When it does something by itself.
    pub wake_at: u64,
    acknowledged: BTreeMap<u32, Position>,
    flush: Option<Flush>,
    /// Asked for and not answered, in order.
    seeks: VecDeque<(u32, Position, Pending<()>)>,
    lives: u64,
    looks: Looks,
    /// It acknowledges all that it is given.
    is_diligent: bool,
    /// What it acknowledged is perhaps not durable.
    is_unflushed: bool,
}

/// The part of an event's data that a selecting consumer wants: all but the
/// first byte, and of long data forty blocks with holes between them.
pub fn selection(bytes: u64) -> DataView {
    const BLOCKS: u64 = 40;
    let whole = DataView::whole(bytes);
    if bytes < 2 {
        return whole;
    }
    let part = whole.range(1, bytes - 1).expect("it is inside");
    let step = (bytes - 1) / BLOCKS;
    if step < 4 {
        return part;
    }
    let stride = Stride {
        offset: 0,
        count: BLOCKS,
        block_bytes: step * 3 / 4,
        gap_bytes: step - step * 3 / 4,
    };
    part.stride(stride).expect("it is inside")
}

impl ConsumerActor {
    /// Starts the program.
    pub fn new(
        entrance: impl Into<Entrance>,
        plan: ConsumerPlan,
        start: Start,
        mut random: Random,
        trace: Trace,
    ) -> Self {
        let session = u128::from(random.number());
        let entrance = entrance.into();
        Self {
            program: Program::start(&entrance, plan.name.clone(), session, trace.clone()),
            reader: Reader::new(&plan.name, plan.name.clone()),
            looks: Looks::new(plan.looks_one_in, session as u64),
            plan,
            start,
            stage: Stage::Begin,
            random,
            trace,
            entrance,
            wake_at: 0,
            acknowledged: BTreeMap::new(),
            flush: None,
            seeks: VecDeque::new(),
            lives: 0,
            is_diligent: false,
            is_unflushed: false,
        }
    }

    /// What it waits for before it has read up to `ends`, if it has not.
    pub fn unfinished(&self, ends: &[Position]) -> Option<String> {
        let behind = ends.iter().enumerate().find(|(partition, end)| {
            let next = self.reader.stands(*partition as u32, end.incarnation);
            next.is_none_or(|next| next < **end)
        });
        let what = match (&self.stage, behind) {
            (Stage::Begin, _) => "about to find its topic".to_owned(),
            (Stage::Finding(_), _) => "finding its topic".to_owned(),
            (Stage::Opening(_), _) => "opening its consumer".to_owned(),
            (Stage::Open(_), Some((partition, end))) => format!(
                "at {:?} of partition {partition}, which ends at {end:?}",
                self.reader.next(partition as u32)
            ),
            (Stage::Open(_), None)
                if self.flush.is_some()
                    || !self.seeks.is_empty()
                    || (self.is_diligent && self.is_unflushed) =>
            {
                "waiting for its cursors".to_owned()
            }
            (Stage::Open(_), None) => return None,
        };
        Some(format!(
            "{} is {what}; {}",
            self.program.name,
            self.program.driver.liveness()
        ))
    }

    /// From now on it acknowledges all that it is given.
    pub fn is_to_be_diligent(&mut self) {
        self.is_diligent = true;
    }

    /// The process is killed and comes back.
    pub fn die(&mut self, now: u64, model: &mut Model) {
        self.restart(now, model);
    }

    fn restart(&mut self, now: u64, model: &mut Model) {
        if !self.program.ended {
            self.program.kill(now);
        }
        self.stage = Stage::Begin;
        self.flush = None;
        self.is_unflushed = false;
        self.looks.forget();
        self.acknowledged.clear();
        for (partition, _, _) in self.seeks.drain(..) {
            model.sought(&self.plan.name, partition, None);
        }
        self.lives += 1;
        let name = format!("{} (life {})", self.plan.name, self.lives);
        self.reader = Reader::new(&self.plan.name, name);
        let session = u128::from(self.random.number());
        let name = self.program.name.clone();
        self.program = Program::start(&self.entrance, name, session, self.trace.clone());
        self.wake_at = now + self.random.below(RETRY_NS);
    }

    /// Looks at what was answered.
    pub fn observe(&mut self, now: u64, model: &mut Model) -> Result<(), Violation> {
        if self.program.ended {
            self.restart(now, model);
            return Ok(());
        }
        // Seeks first: what was acknowledged behind one is durable after it.
        while let Some((partition, position, pending)) = self.seeks.front_mut()
            && let Some(result) = pending.try_get()
        {
            let (partition, position) = (*partition, *position);
            self.seeks.pop_front();
            let name = &self.program.name;
            self.trace
                .say(now, || format!("{name}: has sought: {result:?}"));
            let durable = result.is_ok().then_some(position);
            model.sought(&self.plan.name, partition, durable);
        }
        if let Some(flush) = &mut self.flush
            && let Some(result) = flush.pending.try_get()
        {
            let flush = self.flush.take().expect("looked at above");
            self.is_unflushed |= result.is_err();
            if result.is_ok() {
                for (partition, position, seeks) in flush.covers {
                    model.acknowledged(&self.plan.name, partition, position, seeks);
                }
            }
            let name = &self.program.name;
            self.trace.say(now, || {
                format!("{name}: acknowledgements flushed: {result:?}")
            });
        }
        if let Stage::Open(consumer) = &self.stage {
            self.looks.observe(&self.program.name, consumer.topic())?;
        }
        self.advance(now, model)
    }

    fn advance(&mut self, now: u64, model: &mut Model) -> Result<(), Violation> {
        match &mut self.stage {
            Stage::Finding(pending) => match pending.try_get() {
                Some(Ok(topic)) => {
                    let mut options = ConsumerOptions {
                        start: self.start.into(),
                        credit_bytes: self.plan.credit_bytes,
                        ..ConsumerOptions::default()
                    };
                    if self.plan.selects {
                        options.data = DataMode::Select(Arc::new(|event| {
                            Ok(selection(event.data_bytes_total()))
                        }));
                    }
                    self.stage = Stage::Opening(topic.begin_consumer(&self.plan.name, options));
                    self.program.wake();
                }
                Some(Err(error)) => {
                    let name = &self.program.name;
                    self.trace
                        .say(now, || format!("{name}: finding the topic: {error}"));
                    self.stage = Stage::Begin;
                    self.wake_at = now + RETRY_NS;
                }
                None => {}
            },
            Stage::Opening(pending) => match pending.try_get() {
                Some(Ok(consumer)) => {
                    for partition in consumer.partitions() {
                        model.reaches(partition);
                        let Some(position) = consumer.position(PartitionIndex(partition)) else {
                            return Violation::because(format!(
                                "{} is open and stands nowhere in partition {partition}",
                                self.reader.name
                            ));
                        };
                        let name = &self.reader.name;
                        self.trace.say(now, || {
                            format!("{name}: stands at {position:?} of {partition}")
                        });
                        if self.start == Start::Cursor {
                            model.opened(&self.plan.name, partition, position)?;
                        }
                        self.reader.goes_to(partition, position);
                    }
                    self.stage = Stage::Open(Box::new(consumer));
                    self.wake_at = now;
                }
                Some(Err(error)) => {
                    let name = &self.program.name;
                    self.trace
                        .say(now, || format!("{name}: not opened: {error}"));
                    self.stage = Stage::Begin;
                    self.wake_at = now + RETRY_NS;
                }
                None => {}
            },
            Stage::Begin | Stage::Open(_) => {}
        }
        Ok(())
    }

    /// Does something by itself.
    pub fn act(&mut self, now: u64, model: &mut Model) -> Result<(), Violation> {
        self.wake_at = now + self.random.within(self.plan.pause_ns.clone());
        self.program.wake();
        match &self.stage {
            Stage::Begin => {
                self.stage = Stage::Finding(self.program.driver.begin_open_topic(&self.plan.topic));
                return Ok(());
            }
            Stage::Open(consumer) => {
                self.looks.act(&self.program.name, consumer.topic())?;
                // Partitions that were added since it was opened.
                for partition in consumer.partitions() {
                    model.reaches(partition);
                    let position = consumer.position(PartitionIndex(partition));
                    if let (None, Some(position)) = (self.reader.next(partition), position) {
                        self.reader.goes_to(partition, position);
                    }
                }
            }
            Stage::Finding(_) | Stage::Opening(_) => return Ok(()),
        }
        for _ in 0..self.random.within(1..30) {
            if !self.pull(now, model)? {
                break;
            }
        }
        let rests = self.is_diligent && self.is_unflushed;
        if (rests || self.random.one_in(6)) && self.flush.is_none() {
            self.flush(model);
        }
        Ok(())
    }

    /// Takes one event. False if there was none.
    fn pull(&mut self, now: u64, model: &mut Model) -> Result<bool, Violation> {
        let Stage::Open(consumer) = &self.stage else {
            return Ok(false);
        };
        let pulled = consumer.pull(Some(Duration::ZERO));
        for (partition, gap) in consumer.take_gaps() {
            let name = &self.reader.name;
            self.trace
                .say(now, || format!("{name}: is told of {gap:?} in {partition}"));
            model.gap(&mut self.reader, partition, gap)?;
        }
        let event = match pulled {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(false),
            Err(error) if error.is_retryable() => return Ok(false),
            Err(error) => {
                let failed = error.code() == Some(ErrorCode::StorageFailed);
                if !(failed && self.plan.disk_fails) {
                    return Violation::because(format!(
                        "{} cannot pull: {error}",
                        self.reader.name
                    ));
                }
                let name = &self.program.name;
                self.trace.say(now, || format!("{name}: gives up: {error}"));
                self.restart(now, model);
                return Ok(false);
            }
        };
        let id = event.id();
        let selects = self.plan.selects;
        let view = |bytes: u64| selects.then(|| selection(bytes));
        let number = model.delivered(&mut self.reader, &event, view)?;
        let name = &self.reader.name;
        self.trace
            .say(now, || format!("{name}: is given event {number} as {id}"));
        let mut id = id;
        if self.random.one_in(8) && !self.is_diligent {
            // Somebody is late with an event that was done long ago.
            id.offset = Offset(self.random.below(id.offset.0 + 1));
        }
        if self.is_diligent || self.random.one_in(3) {
            let position = Position {
                incarnation: id.incarnation,
                offset: id.offset.plus(1),
            };
            if let Err(error) = consumer.acknowledge(id) {
                let name = &self.reader.name;
                self.trace
                    .say(now, || format!("{name}: acknowledging: {error}"));
                return Ok(true);
            }
            let name = &self.reader.name;
            self.trace.say(now, || format!("{name}: acknowledges {id}"));
            self.is_unflushed = true;
            model.acknowledges(&self.plan.name, id.partition.0, position);
            let newest = self.acknowledged.entry(id.partition.0).or_insert(position);
            *newest = (*newest).max(position);
        }
        Ok(true)
    }

    fn flush(&mut self, model: &mut Model) {
        let Stage::Open(consumer) = &self.stage else {
            return;
        };
        let covers = self.acknowledged.iter().map(|(partition, position)| {
            let seeks = model.seek_count(&self.plan.name, *partition);
            (*partition, *position, seeks)
        });
        let covers = covers.collect();
        self.is_unflushed = false;
        let pending = consumer.begin_flush_acknowledgements(FLUSH_TIMEOUT);
        self.program.wake();
        self.flush = Some(Flush { pending, covers });
    }

    /// Goes back, to anywhere it has been in this life of the partition.
    pub fn seek(&mut self, now: u64, model: &mut Model) {
        let Stage::Open(consumer) = &self.stage else {
            return;
        };
        let partitions = consumer.partitions();
        if self.seeks.len() == SEEKS_MAX || partitions.is_empty() {
            return;
        }
        let partition = self.random.pick(&partitions);
        let Some(next) = self.reader.next(partition) else {
            return;
        };
        let position = Position {
            incarnation: next.incarnation,
            offset: Offset(self.random.below(next.offset.0 + 1)),
        };
        let name = &self.reader.name;
        self.trace
            .say(now, || format!("{name}: seeks {position:?} of {partition}"));
        if let Ok(pending) = consumer.begin_seek(PartitionIndex(partition), position) {
            model.seeks(&self.plan.name, partition, position);
            self.reader.goes_to(partition, position);
            self.acknowledged.remove(&partition);
            self.seeks.push_back((partition, position, pending));
            self.program.wake();
        }
    }
}
