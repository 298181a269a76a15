//! A step, as it is read.

use crate::attributes::Attributes;
use crate::dtype::{DType, Extremes};
use crate::error::StepError;
use crate::gather::{Coverage, Destination, GatherError, Layout, Plan};
use crate::preload::{Layouts, Preloaded, Ready};
use crate::reading::{Reading, put_together, shared};
use crate::records::gone;
use crate::selection::Selection;
use crate::together::{Piece, Together};
use crate::turn::Turn;
use bytes::Bytes;
use client::{ClientError, Position, StridedWanted, Target, TopicHandle};
use memory::{Buffer, Deadline, Pool};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wire::step::{ShapeKind, StepTable, TableEntry};
use wire::{Run, Step};

/// A step that is committed: what its ranks have put. Any box of any variable may be read, from
/// several threads.
///
/// Of a reader it is held until it is released, or dropped, or the reader asks for the next one:
/// until then it counts in the queue of writers. Retention does not spare it: what it takes of a step
/// that is held is an error of the next get ([`StepError::Gone`]).
pub struct StepView {
    topic: TopicHandle,
    table: Arc<StepTable>,
    position: Position,
    time: u64,
    attributes: Arc<Attributes>,
    skipped: u64,
    lost: u64,
    pool: Pool,
    /// Made when a variable is looked at first.
    layouts: Mutex<Layouts>,
    preloaded: Option<Arc<Preloaded>>,
    turn: Option<Turn>,
}

/// What a view is made of.
pub(crate) struct ViewParts {
    pub topic: TopicHandle,
    pub table: Arc<StepTable>,
    pub position: Position,
    pub time: u64,
    pub attributes: Arc<Attributes>,
    pub skipped: u64,
    pub lost: u64,
    pub pool: Pool,
    /// Those that are made.
    pub layouts: Layouts,
    pub preloaded: Option<Arc<Preloaded>>,
    pub turn: Option<Turn>,
}

/// A variable of a step.
#[derive(Debug, Clone)]
pub struct VariableInfo {
    /// Its name.
    pub name: String,
    /// How its blocks make a whole.
    pub kind: ShapeKind,
    /// Type of its elements.
    pub dtype: DType,
    /// Lengths of the whole: of values and of local arrays empty, of values of ranks one length.
    pub shape: Vec<u64>,
    /// How many blocks it has, or values.
    pub block_count: usize,
}

/// A selection to be read, and the caller's memory for it.
#[derive(Debug)]
pub struct GetInto<'a> {
    /// Name of the variable.
    pub name: &'a str,
    /// What is wanted of it.
    pub selection: &'a Selection,
    /// As long as the selection; elements that are in no block keep what was there.
    pub out: &'a mut [u8],
}

/// A selection to be read, and memory that is lent for it: bytes come straight there, where the
/// selection's rows are contiguous.
#[derive(Debug)]
pub struct GetTarget {
    /// Name of the variable.
    pub name: String,
    /// What is wanted of it.
    pub selection: Selection,
    /// As long as the selection; elements that are in no block keep what was there.
    pub into: Target,
}

/// A selection that was read, in row-major (C) order.
#[derive(Debug)]
pub struct Array {
    /// Type of its elements.
    pub dtype: DType,
    /// Lengths.
    pub shape: Vec<u64>,
    /// The elements; those that are in no block are 0.
    pub data: Buffer,
    /// How much of it there was.
    pub coverage: Coverage,
}

impl StepView {
    pub(crate) fn new(parts: ViewParts) -> Self {
        Self {
            topic: parts.topic,
            table: parts.table,
            position: parts.position,
            time: parts.time,
            attributes: parts.attributes,
            skipped: parts.skipped,
            lost: parts.lost,
            pool: parts.pool,
            layouts: Mutex::new(parts.layouts),
            preloaded: parts.preloaded,
            turn: parts.turn,
        }
    }

    /// The run that it is of.
    pub fn run(&self) -> Run {
        self.table.run
    }

    /// Its number in the run.
    pub fn number(&self) -> Step {
        self.table.step
    }

    /// Name of the writing program.
    pub fn writer(&self) -> &str {
        &self.table.writer
    }

    /// How many ranks have written it.
    pub fn writer_ranks(&self) -> u32 {
        self.table.ranks
    }

    /// Where its record is, in partition 0.
    pub fn position(&self) -> Position {
        self.position
    }

    /// When it was committed, nanoseconds since 1970.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Steps that were passed over since the one before, because only the newest is wanted.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Records since the one before that retention has taken unread.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes of all of its parts.
    pub fn bytes(&self) -> u64 {
        self.table.parts.iter().map(|part| part.bytes).sum()
    }

    /// All attributes of the run, as they are at this step.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// What the record says.
    pub fn table(&self) -> &StepTable {
        &self.table
    }

    /// The variables, in the order in which they were put first.
    ///
    /// # Errors
    /// [`StepError::Damaged`]: a type that this version does not know.
    pub fn variables(&self) -> Result<Vec<VariableInfo>, StepError> {
        self.table.variables.iter().map(info).collect()
    }

    /// Names of the variables, in the order in which they were put first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.table.variables.iter().map(|entry| entry.name.as_str())
    }

    /// A variable.
    ///
    /// # Errors
    /// [`StepError::Invalid`] if the step has none of that name.
    pub fn variable(&self, name: &str) -> Result<VariableInfo, StepError> {
        info(&self.table.variables[self.index(name)?])
    }

    fn index(&self, name: &str) -> Result<usize, StepError> {
        let index = self
            .table
            .variables
            .iter()
            .position(|entry| entry.name == name);
        index.ok_or_else(|| {
            let known: Vec<_> = self.names().take(8).collect();
            StepError::Invalid(format!(
                "{} has no variable {name:?}; it has {}: {}",
                self.title(),
                self.table.variables.len(),
                known.join(", ")
            ))
        })
    }

    /// The blocks of a variable, checked and indexed.
    ///
    /// # Errors
    /// As [`Self::variable`]; [`StepError::Damaged`].
    pub fn layout(&self, name: &str) -> Result<Arc<Layout>, StepError> {
        let index = self.index(name)?;
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layout) = layouts.get(&index) {
            return Ok(layout.clone());
        }
        let entry = &self.table.variables[index];
        let blocks = self.table.blocks(entry).map_err(StepError::damaged)?;
        let layout = Layout::new(entry, blocks, &self.table.parts).map_err(StepError::damaged)?;
        let layout = Arc::new(layout);
        layouts.insert(index, layout.clone());
        Ok(layout)
    }

    /// Least and greatest element of a variable; `None` if they are not known. Nothing travels.
    ///
    /// # Errors
    /// As [`Self::layout`].
    pub fn extremes(&self, name: &str) -> Result<Option<Extremes>, StepError> {
        let (info, layout) = (self.variable(name)?, self.layout(name)?);
        let (mut mins, mut maxs) = (Vec::new(), Vec::new());
        for index in 0..layout.block_count() {
            let Some(block) = layout.block(index) else {
                return Ok(None);
            };
            match block.extremes {
                Some((min, max)) => {
                    mins.extend_from_slice(min);
                    maxs.extend_from_slice(max);
                }
                None if block.count.contains(&0) => {}
                None => return Ok(None),
            }
        }
        let least = info.dtype.extremes(&mins);
        let greatest = info.dtype.extremes(&maxs);
        Ok(least.zip(greatest).map(|(least, greatest)| Extremes {
            min: least.min,
            max: greatest.max,
        }))
    }

    /// The value of a variable that is one, or those of the ranks, in their order: an element each,
    /// or UTF-8 text. Nothing travels.
    ///
    /// # Errors
    /// [`StepError::Invalid`]: the variable is an array.
    pub fn values(&self, name: &str) -> Result<Vec<Bytes>, StepError> {
        let layout = self.layout(name)?;
        match layout.kind() {
            ShapeKind::Value | ShapeKind::LocalValue => Ok(layout.values().to_vec()),
            _ => Err(StepError::Invalid(format!(
                "variable {name:?} is an array, no value"
            ))),
        }
    }

    /// Reads a selection into new memory. Where nobody put an element, it is 0.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    pub fn get(&self, name: &str, selection: &Selection) -> Result<Array, StepError> {
        let mut arrays = self.get_arrays(&[(name, selection)])?;
        Ok(arrays.pop().expect("one was asked for"))
    }

    /// Reads several selections into new memory, with one request.
    ///
    /// # Errors
    /// As [`Self::get_many`].
    pub fn get_arrays(&self, wanted: &[(&str, &Selection)]) -> Result<Vec<Array>, StepError> {
        let mut gets = Vec::new();
        // Of what is to be asked for, the data come later.
        let mut arrays = Vec::with_capacity(wanted.len());
        for (name, selection) in wanted {
            let layout = self.layout(name)?;
            let dtype = self.variable(name)?.dtype;
            if let Some(ready) = self.ready(&layout, selection, None)? {
                let bytes = usize::try_from(ready.bytes()).map_err(StepError::invalid)?;
                let mut data = self.pool.take(bytes);
                ready.copy_to(&mut data);
                arrays.push((dtype, ready.shape(), Some((data, ready.coverage()))));
                continue;
            }
            let plan = layout.plan(selection)?;
            let bytes = usize::try_from(plan.bytes()).map_err(StepError::invalid)?;
            let mut buffer = self.pool.take(bytes);
            let is_direct = |read: &&crate::gather::PartRead| read.to != Destination::Buffer;
            let direct: u64 = plan
                .reads()
                .iter()
                .filter(is_direct)
                .map(|read| read.bytes)
                .sum();
            if direct < plan.bytes() {
                buffer.fill(0);
            }
            arrays.push((dtype, plan.shape().to_vec(), None));
            gets.push((plan, Target::from(buffer)));
        }
        let mut read = self.read(gets, None)?.into_iter();
        let arrays = arrays.into_iter().map(|(dtype, shape, ready)| {
            let (data, coverage) = ready.unwrap_or_else(|| {
                let (target, coverage) = read.next().expect("it was asked for");
                (target.into_owner(), coverage)
            });
            Array {
                dtype,
                shape,
                data,
                coverage,
            }
        });
        Ok(arrays.collect())
    }

    /// A selection that was read ahead, if it was.
    fn ready(
        &self,
        layout: &Layout,
        selection: &Selection,
        timeout: Option<Duration>,
    ) -> Result<Option<Ready>, StepError> {
        match &self.preloaded {
            Some(preloaded) => preloaded.look(layout, selection, timeout),
            None => Ok(None),
        }
    }

    /// Reads several selections into the caller's memory, with one request. Gives how much of each
    /// there was.
    ///
    /// # Errors
    /// [`StepError::Invalid`]: no such variable, or it does not have what is selected, or memory
    /// of another length. [`StepError::Gone`]: retention has taken the step meanwhile.
    /// [`StepError::Client`]. What the memory holds then is undefined.
    pub fn get_many(&self, gets: &mut [GetInto<'_>]) -> Result<Vec<Coverage>, StepError> {
        let mut plans = Vec::new();
        let mut ready = Vec::with_capacity(gets.len());
        for get in gets.iter() {
            let layout = self.layout(get.name)?;
            let here = self.ready(&layout, get.selection, None)?;
            let here = here.filter(|here| here.bytes() == get.out.len() as u64);
            if here.is_none() {
                let plan = layout.plan(get.selection)?;
                check_length(get.name, &plan, get.out.len())?;
                plans.push(plan);
            }
            ready.push(here);
        }
        // Lent memory must outlive this call, so all is read into memory of ours.
        let together = Together::of(&plans, &self.table.parts);
        let (pieces, comes) = together.memory(&plans, false);
        let into = pieces.iter().map(|piece| match piece {
            Piece::Shared(bytes) => shared(&self.pool, *bytes),
            Piece::Alone(..) => Ok(Target::from(Buffer::empty())),
        });
        let read = self.read_data(&together.wanted, into.collect::<Result<_, _>>()?, None)?;
        let shared: Vec<Buffer> = read.into_iter().map(Target::into_owner).collect();
        let mut coverages = Vec::with_capacity(gets.len());
        let mut planned = plans.iter().zip(&comes);
        for (get, here) in gets.iter_mut().zip(ready) {
            coverages.push(match here {
                Some(here) => {
                    here.copy_to(get.out);
                    here.coverage()
                }
                None => {
                    let (plan, comes) = planned.next().expect("it was planned");
                    put_together(plan, comes, &shared, get.out)?
                }
            });
        }
        Ok(coverages)
    }

    /// Reads several selections into memory that is lent, with one request, and gives it back
    /// with how much of each there was.
    ///
    /// # Errors
    /// As [`Self::get_many`]; the memory is lost to the caller then.
    pub fn get_targets(&self, gets: Vec<GetTarget>) -> Result<Vec<(Target, Coverage)>, StepError> {
        self.get_targets_within(gets, None)
    }

    /// [`StepView::get_targets`], which takes `timeout` at most; `None`: as long as a request may.
    /// The memory may be in use a moment longer than the call.
    ///
    /// # Errors
    /// As that, and a deadline.
    pub fn get_targets_within(
        &self,
        gets: Vec<GetTarget>,
        timeout: Option<Duration>,
    ) -> Result<Vec<(Target, Coverage)>, StepError> {
        let deadline = Deadline::within(timeout);
        let mut planned = Vec::new();
        let mut results = Vec::with_capacity(gets.len());
        for mut get in gets {
            let layout = self.layout(&get.name)?;
            let left = timeout.map(|_| deadline.left());
            let ready = self.ready(&layout, &get.selection, left)?;
            if let Some(ready) = ready.filter(|ready| ready.bytes() == get.into.len() as u64) {
                ready.copy_to(get.into.as_mut());
                results.push(Some((get.into, ready.coverage())));
                continue;
            }
            let plan = layout.plan(&get.selection)?;
            check_length(&get.name, &plan, get.into.len())?;
            planned.push((plan, get.into));
            results.push(None);
        }
        let mut read = self
            .read(planned, timeout.map(|_| deadline.left()))?
            .into_iter();
        let results = results.into_iter();
        Ok(results
            .map(|ready| ready.unwrap_or_else(|| read.next().expect("it was asked for")))
            .collect())
    }

    /// Reads what plans say, where they allow it straight into the memory of the results.
    fn read(
        &self,
        gets: Vec<(Plan, Target)>,
        timeout: Option<Duration>,
    ) -> Result<Vec<(Target, Coverage)>, StepError> {
        let (reading, asked) = Reading::new(gets, &self.table.parts, &self.pool)?;
        let read = self.read_data(&asked.wanted, asked.into, timeout)?;
        reading.finish(read)
    }

    fn read_data(
        &self,
        wanted: &[StridedWanted],
        into: Vec<Target>,
        timeout: Option<Duration>,
    ) -> Result<Vec<Target>, StepError> {
        if wanted.is_empty() {
            return Ok(into);
        }
        let mut reading = self.topic.begin_read_strided(wanted, into);
        let read = reading.wait_for(timeout).unwrap_or_else(|| {
            reading.cancel();
            Err(ClientError::Timeout {
                what: format!("data of {}", self.title()),
            })
        });
        read.map_err(|error| gone(error, || self.title()))
    }

    fn title(&self) -> String {
        let (step, run, name) = (self.table.step, self.table.run, self.topic.name());
        format!("step {step} of run {run} of {name}")
    }

    /// Leaves it unread: when it is dropped, or its reader asks for the next one, that is not said.
    /// To be called by a reader that leaves: its program is given the step again.
    pub fn leave_unread(&self) {
        if let Some(turn) = &self.turn {
            turn.leave();
        }
    }

    /// Says that it is read, and waits for nothing; it may still be read. What comes of that the
    /// reader finds out with its next step.
    pub fn release_now(&self) {
        if let Some(turn) = &self.turn {
            turn.release();
        }
    }

    /// Says that it is read, and waits until that is noted: when all ranks of the reader have
    /// said so, its position behind this step is durable. A step that was opened by its number is
    /// held by nobody.
    ///
    /// # Errors
    /// [`StepError::Client`], as after a restart of the server, of which the reader learns with
    /// its next step; a deadline.
    pub fn release(mut self, timeout: Duration) -> Result<(), StepError> {
        match self.turn.take() {
            Some(turn) => turn.release_and_wait(timeout),
            None => Ok(()),
        }
    }
}

/// The turn is released with the view.
impl Drop for StepView {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            turn.release();
        }
    }
}

fn info(entry: &TableEntry) -> Result<VariableInfo, StepError> {
    Ok(VariableInfo {
        name: entry.name.clone(),
        kind: entry.kind,
        dtype: DType::of_items(&entry.dtype, entry.item_bytes).map_err(StepError::damaged)?,
        shape: entry.shape.clone(),
        block_count: entry.block_count as usize,
    })
}

fn check_length(name: &str, plan: &Plan, had: usize) -> Result<(), StepError> {
    match plan.bytes() == had as u64 {
        true => Ok(()),
        false => Err(StepError::Invalid(format!(
            "variable {name:?}: memory of {had} bytes for a selection of {} bytes, {:?} elements",
            plan.bytes(),
            plan.shape()
        ))),
    }
}

impl From<GatherError> for StepError {
    fn from(error: GatherError) -> Self {
        match error {
            GatherError::Table { .. } => Self::damaged(error),
            GatherError::Selection(_) | GatherError::Text { .. } | GatherError::Length { .. } => {
                Self::invalid(error)
            }
        }
    }
}

impl fmt::Debug for StepView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables = self.table.variables.len();
        write!(f, "StepView({}, {variables} variables)", self.title())
    }
}
