//! A rank that writes steps.

use crate::attributes::{AttributeValue, Attributes};
use crate::blocks::{BlockMemory, BlockSpace};
use crate::dtype::DType;
use crate::error::StepError;
use crate::faults::{Fault, planted};
use crate::held::{Held, Holder};
use crate::staging::{Put, Staging};
use crate::step_states::{Closing, Decided, OpenStep, Sealed, UnderWay, is_in_memory};
use crate::waiting::{left, milliseconds, words};
use crate::writer_options::{Closed, Keep, StepEnded, Wait, WriterOptions};
use bytes::Bytes;
use client::{
    BatchPolicy, ClientError, Event, Pending, Producer, ProducerOptions, PushFuture,
    STANDING_TIMEOUT, TopicHandle,
};
use memory::{Allocation, Deadline};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use topic::TopicKind;
use wire::message::{
    AdmitStep, AttendRun, AwaitReaders, AwaitStep, CloseRun, OpenRun, RunEnded, StepDecided,
    WhenFull,
};
use wire::step::{Attribute, PartData, ShapeKind};
use wire::{Codec, ErrorCode, Rank, Run, Step};

/// So many steps may be under way: a rank that has ended one more waits for the first of them.
pub const STEPS_UNDER_WAY_MAX: usize = 2;
/// How long a rank that leaves may take at least to send what it held.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server has to be told that a rank keeps nothing more.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// After so many steps memory that is idle is given back.
const IDLE_STEPS: u64 = 64;

/// Memory of a step that is being written: see [`Writer::span`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanId {
    step: Step,
    index: usize,
}

/// One rank of a program that writes steps. For one thread at a time.
///
/// `begin_step`, then any number of `put`, `put_value`, `span` and `set_attribute`, then
/// `end_step`; at the end `close`. Ranks need not know of one another: a step is committed when
/// all have ended it. A writer that is dropped without `close`, as with a program that ends,
/// leaves the run open; it is broken after the session timeout, unless the rank comes back under
/// the same names before: then it goes on behind the last step that has a record.
///
/// A run that is over (broken because another rank is gone, or taken over by another life of this
/// one) is [`StepError::RunEnded`] from the next call on.
pub struct Writer {
    topic: TopicHandle,
    producer: Arc<Producer>,
    /// What it keeps of its parts, if it does.
    held: Option<Held>,
    options: WriterOptions,
    /// Where its parts go.
    partition: u32,
    /// Where parts of steps go that are pinned; `None` if the stream has no place for them.
    pinned_partition: Option<u32>,
    run: Run,
    before: Run,
    /// The step that is being written, or the next one.
    next: Step,
    attendance: Pending<RunEnded>,
    attributes: Attributes,
    /// Those that the next part brings.
    changed: BTreeMap<String, Attribute>,
    memory: BlockMemory,
    open: Option<OpenStep>,
    /// A step that is ended and not pushed, because a wait came to its deadline.
    sealed: Option<Sealed>,
    under_way: VecDeque<UnderWay>,
    /// A step that was let in before it was written.
    admitted: Option<(Step, bool)>,
    lost: Option<StepError>,
    closing: Closing,
}

impl Writer {
    /// Opens a run of the stream `topic`, or joins the one that its program has open.
    ///
    /// # Errors
    /// [`StepError::Invalid`] of a topic that is no stream, and of a rank that there is not;
    /// [`StepError::Client`]: a server that refuses, as while another program's run is open, or a
    /// deadline, which says what was waited for.
    pub fn open(topic: &TopicHandle, options: WriterOptions) -> Result<Self, StepError> {
        let partitions = topic.partitions().len() as u32;
        let (definition, first) = (topic.definition(), topic.definition().first_parts());
        if definition.kind() != TopicKind::Steps || partitions <= first {
            let name = topic.name();
            return Err(StepError::Invalid(format!("topic {name} has no steps")));
        }
        if options.rank >= options.ranks {
            return Err(StepError::Invalid(format!(
                "rank {} of {}: ranks count from 0",
                options.rank, options.ranks
            )));
        }
        let is_held = matches!(options.keep, Keep::Writer { .. });
        if is_held && !is_in_memory(topic) {
            let name = topic.name();
            return Err(StepError::Invalid(format!(
                "topic {name} is not in memory: what it acknowledges is to survive its writer, which so \
                 cannot keep it"
            )));
        }
        let deadline = Deadline::after(options.open_timeout);
        let producer = topic.producer(ProducerOptions {
            name: Some(format!("{}/{}", options.name, options.rank)),
            // A batch goes out with its one event.
            batch: BatchPolicy {
                count_max: Some(1),
                ..BatchPolicy::default()
            },
            // The steps under way bound what is held; their memory is there already.
            budget_bytes: 4 << 30,
            at_budget: client::AtBudget::Block(options.timeout),
            durability: options.durability,
            // Each wait has its own deadline, behind which one may wait again: a part is not given up.
            ack_timeout: STANDING_TIMEOUT,
            ..ProducerOptions::default()
        })?;
        let open = OpenRun {
            writer: options.name.clone(),
            ranks: options.ranks,
            rank: Rank(options.rank),
            producer: producer.id()?,
            epoch: producer.epoch()?,
            session_timeout_ms: milliseconds(options.session_timeout),
            readers_min: options.readers_min,
            queue_steps: options.queue_steps,
            queue_bytes: options.queue_bytes,
            when_full: options.when_full,
            distribution: options.distribution,
        };
        let opened = topic.open_run(&open, left(deadline))?;
        let producer = Arc::new(producer);
        let partition = first + options.rank % (partitions - first);
        let held = match options.keep {
            Keep::Server => None,
            Keep::Writer { bytes_max } => Some(Held::begin(Holder {
                topic: topic.clone(),
                producer: producer.clone(),
                partition,
                run: opened.run,
                rank: open.rank,
                bytes_max,
                session_timeout: options.session_timeout,
            })?),
        };
        let attend = AttendRun {
            run: opened.run,
            rank: open.rank,
            producer: open.producer,
            epoch: open.epoch,
        };
        let mut attributes = Attributes::default();
        attributes.apply(&opened.attributes, true)?;
        let mut writer = Self {
            memory: BlockMemory::new(topic.driver(), options.kept_bytes_max),
            partition,
            pinned_partition: definition.pins().then_some(topic::PINNED_PARTS),
            held,
            run: opened.run,
            before: opened.before,
            next: opened.next,
            attendance: topic.attend_run(&attend),
            attributes,
            changed: BTreeMap::new(),
            open: None,
            sealed: None,
            under_way: VecDeque::new(),
            admitted: None,
            lost: None,
            closing: Closing::Open,
            topic: topic.clone(),
            producer,
            options,
        };
        if writer.options.readers_min > 0 && writer.next == Step(0) {
            let is_discarded = writer.admit(Step(0), left(deadline))?;
            writer.admitted = Some((Step(0), is_discarded));
        }
        Ok(writer)
    }

    /// The run that it writes.
    pub fn run(&self) -> Run {
        self.run
    }

    /// The run of the stream before this one; 0 if this is the first.
    pub fn run_before(&self) -> Run {
        self.before
    }

    /// The step that is being written, or else the next one. A rank that has come back begins
    /// behind the last step that has a record.
    pub fn step(&self) -> Step {
        self.next
    }

    /// Where it writes to.
    pub fn topic(&self) -> &TopicHandle {
        &self.topic
    }

    /// What was chosen.
    pub fn options(&self) -> &WriterOptions {
        &self.options
    }

    /// Attributes of the run as they are now: what was set, by any rank's life before and by this one.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Begins the next step. Nothing travels.
    ///
    /// # Errors
    /// [`StepError::Invalid`] if a step is begun and not ended; [`StepError::RunEnded`].
    pub fn begin_step(&mut self) -> Result<Step, StepError> {
        self.check()?;
        if self.open.is_some() || self.sealed.is_some() {
            let step = self.next;
            return Err(StepError::Invalid(format!("step {step} is not ended yet")));
        }
        self.open = Some(OpenStep {
            staging: Staging::new(),
            space: BlockSpace::default(),
            blocks: Vec::new(),
            filled: Vec::new(),
            is_pinned: false,
        });
        Ok(self.next)
    }

    /// Pins the step that is begun: it stays when retention takes the steps around it, and late
    /// readers are given it before those that are kept. All ranks pin a step, or none; otherwise
    /// it is dropped, and its record says who did.
    ///
    /// # Errors
    /// [`StepError::Invalid`]: outside of a step; a stream that was made without a place for pinned
    /// steps.
    pub fn pin_step(&mut self) -> Result<(), StepError> {
        let (_, open) = Self::in_step(&self.memory, &mut self.open)?;
        if self.pinned_partition.is_none() {
            let name = self.topic.name();
            return Err(StepError::Invalid(format!(
                "stream {name} was made without a place for pinned steps"
            )));
        }
        open.is_pinned = true;
        Ok(())
    }

    /// Gives up the step that is begun: nothing of it is sent, and the next one has its number.
    /// Attributes that were set stay. Does nothing if no step is begun.
    ///
    /// # Errors
    /// [`StepError::Invalid`]: the step is ended, and waits for room.
    pub fn drop_step(&mut self) -> Result<(), StepError> {
        if self.sealed.is_some() {
            let step = self.next;
            return Err(StepError::Invalid(format!("step {step} is being ended")));
        }
        self.open = None;
        Ok(())
    }

    /// Puts a block, which is copied before this returns. Several puts of a variable are several
    /// blocks of it.
    ///
    /// # Errors
    /// [`StepError::Invalid`]: outside of a step; a variable that was put with another type, kind or shape in this
    /// step; a block outside of its array; data of another length than the block's. The step is
    /// as it was before.
    pub fn put(&mut self, put: &Put<'_>, data: &[u8]) -> Result<(), StepError> {
        let (memory, open) = Self::in_step(&self.memory, &mut self.open)?;
        let (needed, had) = (put.bytes()?, data.len());
        if had as u64 != needed {
            let name = put.name;
            return Err(StepError::Invalid(format!(
                "variable {name:?}: a block of {needed} bytes, and {had} were given"
            )));
        }
        let span = open.staging.span(put)?;
        let place = open.keep(memory, span);
        memory::copies::copy(data, open.space.block(place));
        Ok(())
    }

    /// Puts a block that is sent from where it lies: it must not change until the step is accepted.
    /// With [`Keep::Writer`] it is copied.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn put_owned(&mut self, put: &Put<'_>, data: Bytes) -> Result<(), StepError> {
        if self.held.is_some() {
            return self.put(put, &data);
        }
        let (_, open) = Self::in_step(&self.memory, &mut self.open)?;
        Ok(open.staging.put(put, data)?)
    }

    /// Puts a block that is sent from where it lies, and is filled until the step is ended: as
    /// [`Writer::put_owned`], but its least and greatest element are looked for then.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn put_filled_later(&mut self, put: &Put<'_>, data: Bytes) -> Result<(), StepError> {
        let (_, open) = Self::in_step(&self.memory, &mut self.open)?;
        let (needed, had) = (put.bytes()?, data.len());
        if had as u64 != needed {
            let name = put.name;
            return Err(StepError::Invalid(format!(
                "variable {name:?}: a block of {needed} bytes, and {had} were given"
            )));
        }
        let span = open.staging.span(put)?;
        open.filled.push((span, data));
        Ok(())
    }

    /// Puts a value: one for all ranks ([`ShapeKind::Value`]; the lowest rank's counts), or one of
    /// this rank ([`ShapeKind::LocalValue`]). `value` is an element of the type, or UTF-8 text.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn put_value(
        &mut self,
        name: &str,
        kind: ShapeKind,
        dtype: &DType,
        value: &[u8],
    ) -> Result<(), StepError> {
        if !matches!(kind, ShapeKind::Value | ShapeKind::LocalValue) {
            let reason = format!("variable {name:?}: a value is of kind Value or LocalValue");
            return Err(StepError::Invalid(reason));
        }
        let (_, open) = Self::in_step(&self.memory, &mut self.open)?;
        let value = Bytes::copy_from_slice(value);
        Ok(open.staging.put_value(name, kind, dtype, value)?)
    }

    /// Memory for a block that is made outside of the writer and then put by
    /// [`Writer::put_owned`] or [`Writer::put_filled_later`]; over shared memory the server reads it
    /// where it is. It is used again for later steps when nobody has it any more. Its content is
    /// undefined.
    pub fn allocate(&self, bytes: usize) -> Allocation {
        self.memory.take(bytes)
    }

    /// Memory for a block, to be filled by [`Writer::span_mut`] until the step is ended: over
    /// shared memory the server reads it where it is. Aligned to 64 bytes; its content is
    /// undefined.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn span(&mut self, put: &Put<'_>) -> Result<SpanId, StepError> {
        let (memory, open) = Self::in_step(&self.memory, &mut self.open)?;
        let span = open.staging.span(put)?;
        open.keep(memory, span);
        Ok(SpanId {
            step: self.next,
            index: open.blocks.len() - 1,
        })
    }

    /// The memory of a span. It keeps its place until the step is ended.
    ///
    /// # Errors
    /// [`StepError::Invalid`]: its step is ended.
    pub fn span_mut(&mut self, span: SpanId) -> Result<&mut [u8], StepError> {
        let (_, open) = Self::in_step(&self.memory, &mut self.open)?;
        match open.blocks.get(span.index) {
            Some((_, place)) if span.step == self.next => Ok(open.space.block(*place)),
            _ => {
                let step = span.step;
                Err(StepError::Invalid(format!(
                    "the span is of step {step}, which is ended"
                )))
            }
        }
    }

    /// Sets an attribute of the run from this step on, or from the next one, if none is begun.
    /// Of several ranks' in one step the lowest one's counts.
    ///
    /// # Errors
    /// [`StepError::Invalid`]: a name that cannot be.
    pub fn set_attribute(
        &mut self,
        name: &str,
        value: impl Into<AttributeValue>,
    ) -> Result<(), StepError> {
        let value = value.into();
        let attribute = value.to_attribute(name);
        // What it is by what others have set, only the server knows.
        if self.attributes.set(name, value)? || self.options.ranks > 1 {
            self.changed.insert(name.to_owned(), attribute);
        }
        Ok(())
    }

    /// Makes room for a part that is kept here. Says whether there is.
    fn make_room(&mut self, bytes: u64, deadline: Deadline) -> Result<bool, StepError> {
        let Some(held) = &self.held else {
            return Ok(true);
        };
        let room = match self.options.when_full {
            WhenFull::Discard => held.has_room(bytes),
            WhenFull::Block => held.make_room(bytes, deadline).map(|()| true),
        };
        let Some(lost) = held.lost() else {
            return room;
        };
        // A rank that goes on without being able to give anything would hold up the others.
        self.sealed = None;
        self.attendance.cancel();
        Err(self.lost.get_or_insert(lost).clone())
    }

    /// Gives up the step that is sealed if its part is longer than all that may be kept here: it is
    /// as if it had not been begun, but for the attributes that were set.
    fn check_length(&mut self, bytes: u64) -> Result<(), StepError> {
        let Some(held) = &self.held else {
            return Ok(());
        };
        held.check_length(bytes).inspect_err(|_| {
            let attributes = self.sealed.take().map(|sealed| sealed.part.attributes);
            for one in attributes.into_iter().flatten() {
                // What was set since then is newer.
                self.changed.entry(one.name.clone()).or_insert(one);
            }
        })
    }

    /// Ends the step: it is sent, and waited for as `wait` says, after [`STEPS_UNDER_WAY_MAX`]
    /// steps before it are committed and, with a queue, there is room.
    ///
    /// # Errors
    /// [`StepError::Invalid`]: no step is begun. A deadline ([`StepError::is_timeout`]), which
    /// says who is behind: the step is not lost, and `end_step` again goes on with it, or
    /// [`Writer::wait`] if it was sent. [`ErrorCode::LimitExceeded`]: too much is pinned to pin it,
    /// too; `end_step` again sends it as a step that is not pinned. [`StepError::RunEnded`]: it will
    /// never be committed, if it was not before.
    pub fn end_step(&mut self, wait: Wait) -> Result<StepEnded, StepError> {
        self.end_step_within(wait, None)
    }

    /// [`Writer::end_step`], all of whose waits together take `timeout` at most; `None`: each may
    /// take [`WriterOptions::timeout`].
    ///
    /// # Errors
    /// As that.
    pub fn end_step_within(
        &mut self,
        wait: Wait,
        timeout: Option<Duration>,
    ) -> Result<StepEnded, StepError> {
        let all = timeout.map(Deadline::after);
        let each = self.options.timeout;
        let deadline = || all.unwrap_or_else(|| Deadline::after(each));
        self.check()?;
        if let Some(open) = self.open.take() {
            self.sealed = Some(self.seal(open)?);
        }
        let sealed = self.sealed.as_ref();
        let Some((bytes, is_pinned)) = sealed.map(|one| (one.bytes, one.is_pinned)) else {
            return Err(StepError::invalid("no step is begun"));
        };
        if !is_pinned {
            self.check_length(bytes)?;
        }
        let step = self.next;
        while self.under_way.len() >= STEPS_UNDER_WAY_MAX {
            self.commit_first(deadline())?;
        }
        let is_discarded = match self.admitted {
            // What was let in before it was written was not let in as a pinned one.
            Some((admitted, is_discarded)) if admitted == step && !is_pinned => is_discarded,
            _ if self.has_admission() => self.admit_sealed(step, left(deadline()))?,
            _ => false,
        };
        self.admitted = Some((step, is_discarded));
        let has_room = is_pinned || is_discarded || self.make_room(bytes, deadline())?;
        let is_discarded = is_discarded || !has_room;
        self.admitted = Some((step, is_discarded));
        // A push that finds no room leaves the step as it was: it is ended by the next call.
        let push = self.push_sealed(is_discarded);
        let push = push.map_err(|error| self.fail(error))?;
        self.sealed = None;
        let wanted = AwaitStep {
            run: self.run,
            step,
        };
        let rank = Rank(self.options.rank);
        let timeout = self.options.timeout;
        let decided = self.topic.begin_await_step(&wanted, rank, timeout);
        self.under_way.push_back(UnderWay {
            step,
            bytes,
            is_discarded,
            push: Some(push),
            decided: Decided::Asked(decided),
        });
        self.next = Step(step.0 + 1);
        if self.next.0.is_multiple_of(IDLE_STEPS) {
            self.memory.give_back_idle();
        }
        self.wait(wait, left(deadline()))
    }

    /// Waits for the last step that was ended, up to `timeout`.
    ///
    /// # Errors
    /// As [`Writer::end_step`].
    pub fn wait(&mut self, wait: Wait, timeout: Duration) -> Result<StepEnded, StepError> {
        let deadline = Deadline::after(timeout);
        let Some(last) = self.under_way.back() else {
            return Err(StepError::invalid("no step was ended"));
        };
        let (step, is_discarded) = (last.step, last.is_discarded);
        match wait {
            Wait::Begun => {}
            Wait::Accepted => self.accept_all(deadline)?,
            Wait::Committed => {
                self.accept_all(deadline)?;
                while self.under_way.len() > 1 {
                    self.commit_first(deadline)?;
                }
                let decided = self.decide_first(deadline)?;
                return Ok(StepEnded {
                    step,
                    discarded: Some(decided.discarded).filter(|why| !why.is_empty()),
                    record: Some(decided.position),
                });
            }
        }
        Ok(StepEnded {
            step,
            discarded: is_discarded.then(|| "the queue is full".to_owned()),
            record: None,
        })
    }

    /// Says that this rank has written its last step, and waits until that is committed. When all
    /// ranks have, the run is closed. Of a stream in memory it waits for readers then, up to
    /// [`WriterOptions::close_timeout`], and says whether they have come to the end.
    ///
    /// # Errors
    /// As [`Writer::close_run`], and a lost topic.
    pub fn close(&mut self, timeout: Duration) -> Result<Closed, StepError> {
        self.close_run(timeout)?;
        let timeout = match planted(Fault::CloseWithoutDeadline) {
            true => STANDING_TIMEOUT,
            false => self.options.close_timeout,
        };
        match self.await_readers(timeout) {
            Err(StepError::Client(ClientError::Timeout { what })) => Ok(self.leave_readers(what)),
            outcome => outcome,
        }
    }

    /// [`Writer::close`] without the wait for readers.
    ///
    /// # Errors
    /// [`StepError::Invalid`] if a step is begun and not ended; else as [`Writer::end_step`]. After
    /// a deadline it may be called again.
    pub fn close_run(&mut self, timeout: Duration) -> Result<(), StepError> {
        if self.is_closed() {
            return Ok(());
        }
        self.check()?;
        if self.open.is_some() || self.sealed.is_some() {
            let step = self.next;
            return Err(StepError::Invalid(format!("step {step} is not ended yet")));
        }
        let deadline = Deadline::after(timeout);
        self.accept_all(deadline)?;
        let close = CloseRun {
            run: self.run,
            rank: Rank(self.options.rank),
            producer: self.producer.id()?,
            epoch: self.producer.epoch()?,
            steps: self.next.0,
        };
        let closed = self.topic.close_run(&close, left(deadline));
        closed.map_err(|error| self.fail(error))?;
        while !self.under_way.is_empty() {
            self.commit_first(deadline)?;
        }
        self.closing = Closing::Written;
        self.attendance.cancel();
        Ok(())
    }

    /// Waits up to `timeout` until readers have released the steps of the run, of a stream in memory, once the run is
    /// closed: those that are attached, with all of their ranks.
    ///
    /// # Errors
    /// A deadline ([`StepError::is_timeout`]), which says who is behind: it may be called again.
    /// [`StepError::Invalid`]: the run is not closed yet.
    pub fn await_readers(&mut self, timeout: Duration) -> Result<Closed, StepError> {
        match &self.closing {
            Closing::Open => return Err(StepError::invalid("the run is not closed yet")),
            Closing::Over(closed) => return Ok(closed.clone()),
            Closing::Written => {}
        }
        let is_kept = !is_in_memory(&self.topic) && !planted(Fault::CloseForReaders);
        let closed = match is_kept {
            true => Closed::Kept,
            false => self.ask_for_readers(timeout)?,
        };
        if let Some(held) = &self.held {
            held.leave(LEAVE_TIMEOUT);
        }
        self.closing = Closing::Over(closed.clone());
        Ok(closed)
    }

    /// Waits for readers no more, who are behind as `why` says.
    ///
    /// What is held of steps that they may want yet is sent to the server before.
    pub fn leave_readers(&mut self, mut why: String) -> Closed {
        let timeout = self.options.close_timeout.max(SEND_TIMEOUT);
        if let Some(held) = self.held.take() {
            let sent = held.send_left(Deadline::after(timeout));
            why = match sent.as_deref() {
                Ok([]) => why,
                Ok([first, .., last]) => {
                    format!("{why}; steps {first} to {last} were sent to the server")
                }
                Ok([step]) => format!("{why}; step {step} was sent to the server"),
                Err(error) => format!("{why}; what was held is lost: {error}"),
            };
            if sent.is_ok() {
                held.leave(LEAVE_TIMEOUT);
            }
            // Else what was not sent is lost with this rank, and what was stays for readers: of one
            // that leaves, all would go.
        }
        let closed = Closed::Behind(why);
        self.closing = Closing::Over(closed.clone());
        closed
    }

    fn ask_for_readers(&self, timeout: Duration) -> Result<Closed, StepError> {
        let wait = AwaitReaders {
            run: self.run,
            step: self.next,
        };
        // To the server, no time is for ever.
        let timeout = timeout.clamp(Duration::from_millis(1), STANDING_TIMEOUT);
        match self.topic.await_readers(&wait, timeout) {
            Ok(()) => Ok(Closed::Released),
            // A server of an earlier version knows nothing of it.
            Err(error) if error.code() == Some(ErrorCode::Unsupported) => Ok(Closed::Kept),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a step is ended that has come to no room yet: [`Writer::end_step`] goes on with it.
    pub fn is_ending(&self) -> bool {
        self.sealed.is_some()
    }

    /// Whether the run is closed, as far as this rank can do that.
    pub fn is_closed(&self) -> bool {
        !matches!(self.closing, Closing::Open)
    }

    fn in_step<'a>(
        memory: &'a BlockMemory,
        open: &'a mut Option<OpenStep>,
    ) -> Result<(&'a BlockMemory, &'a mut OpenStep), StepError> {
        let open = open.as_mut();
        let open = open.ok_or_else(|| StepError::invalid("no step is begun"))?;
        Ok((memory, open))
    }

    /// Fails if the run is over for this rank.
    fn check(&mut self) -> Result<(), StepError> {
        if self.is_closed() {
            let (run, name) = (self.run, self.topic.name());
            return Err(StepError::Invalid(format!(
                "the writer of run {run} of {name} is closed"
            )));
        }
        if self.lost.is_none()
            && let Some(answer) = self.attendance.try_get()
        {
            self.attended(answer)?;
        }
        match &self.lost {
            Some(lost) => Err(lost.clone()),
            None => Ok(()),
        }
    }

    /// The run is over for this rank, or its attendance is to be said again.
    fn attended(&mut self, answer: Result<RunEnded, ClientError>) -> Result<(), StepError> {
        match answer {
            Ok(ended) => {
                self.lost = Some(StepError::RunEnded {
                    run: self.run,
                    reason: ended.reason,
                });
            }
            Err(error) if error.is_retryable() => {
                let attend = AttendRun {
                    run: self.run,
                    rank: Rank(self.options.rank),
                    producer: self.producer.id()?,
                    epoch: self.producer.epoch()?,
                };
                self.attendance = self.topic.attend_run(&attend);
            }
            Err(error) => {
                self.fail(error);
            }
        }
        Ok(())
    }

    /// What a call has failed with. If the run is over by it, that is said from now on.
    fn fail(&mut self, error: ClientError) -> StepError {
        let run = self.run;
        let lost = match error.code() {
            Some(ErrorCode::RunEnded) => match self.attendance.try_get() {
                // It says why without saying of what.
                Some(Ok(ended)) if !ended.reason.is_empty() => StepError::RunEnded {
                    run,
                    reason: ended.reason,
                },
                _ => StepError::RunEnded {
                    run,
                    reason: words(&error),
                },
            },
            Some(ErrorCode::ProducerFenced) => StepError::RunEnded {
                run,
                reason: format!(
                    "another life of rank {} of writer {:?} has taken this one's place",
                    self.options.rank, self.options.name
                ),
            },
            _ if error.is_retryable() => return error.into(),
            _ => error.into(),
        };
        self.lost.get_or_insert(lost).clone()
    }

    fn has_admission(&self) -> bool {
        let options = &self.options;
        let is_pinned = self.sealed.as_ref().is_some_and(|sealed| sealed.is_pinned);
        is_pinned
            || options.queue_steps > 0
            || options.queue_bytes > 0
            || options.when_full == WhenFull::Discard
            || (options.readers_min > 0 && self.next == Step(0))
    }

    /// Waits until the step that is sealed is let in. Where too much is pinned it is so no more.
    fn admit_sealed(&mut self, step: Step, timeout: Duration) -> Result<bool, StepError> {
        let admitted = self.admit(step, timeout);
        if let (Err(StepError::Client(error)), Some(sealed)) = (&admitted, &mut self.sealed)
            && error.code() == Some(ErrorCode::LimitExceeded)
        {
            sealed.is_pinned = false;
        }
        admitted
    }

    /// Waits until a step is let in; says whether it is dropped.
    fn admit(&mut self, step: Step, timeout: Duration) -> Result<bool, StepError> {
        let admit = AdmitStep {
            run: self.run,
            rank: Rank(self.options.rank),
            step,
            pinned: self.sealed.as_ref().is_some_and(|sealed| sealed.is_pinned),
        };
        match self.topic.admit_step(&admit, timeout) {
            Ok(admitted) => Ok(admitted.discarded),
            // It may be written yet, though not pinned.
            Err(error) if error.code() == Some(ErrorCode::LimitExceeded) => Err(error.into()),
            Err(error) => Err(self.fail(error)),
        }
    }

    fn seal(&mut self, open: OpenStep) -> Result<Sealed, StepError> {
        let OpenStep {
            mut staging,
            space,
            blocks,
            filled,
            is_pinned,
        } = open;
        let space = space.freeze();
        for (span, place) in &blocks {
            staging.fill(span, space.block(*place))?;
        }
        for (span, data) in filled {
            let data = match &self.held {
                None => data,
                Some(_) => self.own(&data),
            };
            staging.fill(&span, data)?;
        }
        let bytes = staging.bytes();
        let (mut part, data) = staging.into_part(self.run, self.next, Rank(self.options.rank))?;
        part.attributes = std::mem::take(&mut self.changed).into_values().collect();
        Ok(Sealed {
            part,
            data,
            bytes,
            is_pinned,
        })
    }

    /// A copy, in memory of the writer's.
    fn own(&self, data: &[u8]) -> Bytes {
        let mut own = self.memory.take(data.len());
        memory::copies::copy(data, &mut own[..data.len()]);
        own.freeze().slice(..data.len())
    }

    fn push_sealed(&mut self, is_discarded: bool) -> Result<PushFuture, ClientError> {
        let sealed = self.sealed.as_ref().expect("who calls has looked");
        let (mut part, mut data) = (sealed.part.clone(), sealed.data.clone());
        if is_discarded {
            part.data = PartData::Dropped;
            part.variables.clear();
            data.clear();
        }
        let held = self.held.as_ref();
        let held = held.filter(|_| !is_discarded && !sealed.is_pinned && sealed.bytes > 0);
        if let Some(held) = held {
            part.data = PartData::Held(sealed.bytes);
            held.keep(part.step, std::mem::take(&mut data), sealed.bytes);
        }
        let metadata = part.to_bytes();
        let event = Event {
            metadata: &metadata,
            data,
            partition: Some(match self.pinned_partition {
                Some(pinned) if sealed.is_pinned => pinned,
                _ => self.partition,
            }),
            ..Event::default()
        };
        let pushed = self.producer.push(event);
        if let (Some(held), Err(_)) = (held, &pushed) {
            held.forget(part.step);
        }
        pushed
    }

    /// Waits until all parts are acknowledged.
    fn accept_all(&mut self, deadline: Deadline) -> Result<(), StepError> {
        for index in 0..self.under_way.len() {
            let one = &self.under_way[index];
            let Some(push) = &one.push else {
                continue;
            };
            match push.wait(Some(left(deadline))) {
                Ok(_) => self.under_way[index].push = None,
                Err(ClientError::Timeout { what }) => {
                    let what = format!(
                        "rank {}'s step {} of run {} of {}, {} bytes, to be accepted: {what}",
                        self.options.rank,
                        one.step,
                        self.run,
                        self.topic.name(),
                        one.bytes
                    );
                    return Err(ClientError::Timeout { what }.into());
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
        Ok(())
    }

    /// Waits until the first step under way is committed, which is so no more then.
    fn commit_first(&mut self, deadline: Deadline) -> Result<(), StepError> {
        let decided = self.decide_first(deadline)?;
        if let (Some(held), Some(first)) = (&self.held, self.under_way.front())
            && !decided.discarded.is_empty()
        {
            held.forget(first.step);
        }
        // A record has parts that are acknowledged, or will be: those of its own rank too.
        if self
            .under_way
            .front()
            .is_some_and(|first| first.push.is_some())
        {
            self.accept_first(deadline)?;
        }
        self.under_way.pop_front();
        Ok(())
    }

    fn accept_first(&mut self, deadline: Deadline) -> Result<(), StepError> {
        let rest = self.under_way.split_off(1);
        let accepted = self.accept_all(deadline);
        self.under_way.extend(rest);
        accepted
    }

    fn decide_first(&mut self, deadline: Deadline) -> Result<StepDecided, StepError> {
        let first = self.under_way.front_mut().expect("the caller has looked");
        let asked = match &mut first.decided {
            Decided::Known(decided) => return Ok(decided.clone()),
            Decided::Asked(asked) => asked,
        };
        let (step, bytes, rank) = (first.step, first.bytes, Rank(self.options.rank));
        let wanted = AwaitStep {
            run: self.run,
            step,
        };
        let answer = loop {
            match asked.wait_for(Some(left(deadline))) {
                Some(Ok(decided)) => break Ok(decided),
                Some(Err(error)) if !error.is_timeout() => break Err(error),
                timed_out => {
                    if timed_out.is_some() {
                        // It was asked for at an earlier time, with an earlier deadline.
                        let timeout = left(deadline).max(self.options.timeout);
                        *asked = self.topic.begin_await_step(&wanted, rank, timeout);
                    }
                    if !deadline.has_passed() {
                        continue;
                    }
                    let why = match self.topic.why_undecided(&wanted) {
                        Ok(decided) => break Ok(decided),
                        Err(why) => why,
                    };
                    let name = self.topic.name();
                    break Err(ClientError::Timeout {
                        what: format!(
                            "rank {rank}'s step {step} of run {} of {name}, {bytes} bytes, to be \
                             committed: {why}",
                            self.run
                        ),
                    });
                }
            }
        };
        match answer {
            Ok(decided) => {
                first.decided = Decided::Known(decided.clone());
                Ok(decided)
            }
            Err(error) => {
                if !error.is_timeout() {
                    *asked = self
                        .topic
                        .begin_await_step(&wanted, rank, self.options.timeout);
                }
                Err(self.fail(error))
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The server notes at once that the rank is away.
        self.attendance.cancel();
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Writer(rank {} of {} of {:?}, step {} of run {} of {})",
            self.options.rank,
            self.options.ranks,
            self.options.name,
            self.next,
            self.run,
            self.topic.name()
        )
    }
}
