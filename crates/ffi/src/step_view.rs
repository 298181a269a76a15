//! `thalweg_step`: a step, as it is read.

use crate::boundary::*;
use crate::driver::Connection;
use crate::error::Failure;
use crate::loan::Loan;
use crate::step_attributes::{NONE, StepAttributes};
use crate::strided::Strided;
use client::Target;
use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use step::{Along, GetTarget, Layout, Range, Selection, ShapeKind, VariableInfo};

/// `thalweg_step`.
pub struct StepView {
    view: Arc<step::StepView>,
    variables: Vec<Variable>,
    writer: CString,
    /// The process whose connection it is read by.
    generation: u64,
    connection: Arc<Connection>,
}

struct Variable {
    info: VariableInfo,
    joined: u32,
    name: CString,
    dtype: CString,
    /// Made when blocks are looked at first; it stays, for the caller has pointers into it.
    layout: OnceLock<Arc<Layout>>,
}

/// `thalweg_step_info`.
#[repr(C)]
pub struct ThalwegStepInfo {
    pub run: u64,
    pub number: u64,
    pub skipped: u64,
    pub lost: u64,
    pub bytes: u64,
    pub time_ns: u64,
    pub position: ThalwegEventId,
    pub writer: *const c_char,
    pub writer_ranks: u32,
    pub reserved32: u32,
    pub variable_count: usize,
    pub reserved: [u64; 4],
}

/// `thalweg_step_variable`.
#[repr(C)]
pub struct ThalwegStepVariable {
    pub name: *const c_char,
    pub dtype: *const c_char,
    pub shape: *const u64,
    pub ndim: u32,
    pub kind: i32,
    pub item_bytes: u32,
    pub joined: u32,
    pub block_count: usize,
    pub reserved: [u64; 4],
}

/// `thalweg_step_block_info`.
#[repr(C)]
pub struct ThalwegStepBlockInfo {
    pub rank: u32,
    pub ndim: u32,
    pub start: *const u64,
    pub count: *const u64,
    pub min: *const c_void,
    pub max: *const c_void,
    pub reserved: [u64; 2],
}

/// `thalweg_step_get`.
#[repr(C)]
pub struct ThalwegStepGet {
    pub name: *const c_char,
    pub block: u64,
    pub ndim: u32,
    pub reserved32: u32,
    pub start: *const u64,
    pub count: *const u64,
    pub step: *const u64,
    pub into: *mut c_void,
    pub size: usize,
    pub strides: *const i64,
    pub uncovered: u64,
    pub reserved: [u64; 4],
}

impl StepView {
    pub fn new(view: Arc<step::StepView>, connection: Arc<Connection>) -> Result<Self, Failure> {
        let entries = &view.table().variables;
        let known = view.variables()?.into_iter().zip(entries);
        let variables = known.map(|(info, entry)| Variable {
            name: c_text(&info.name),
            dtype: c_text(info.dtype.as_str()),
            joined: entry.joined,
            info,
            layout: OnceLock::new(),
        });
        Ok(Self {
            variables: variables.collect(),
            writer: c_text(view.writer()),
            view,
            generation: ::memory::fork::generation(),
            connection,
        })
    }

    fn variable(&self, index: usize) -> Result<&Variable, Failure> {
        let variable = self.variables.get(index);
        variable.ok_or_else(|| none(index, "variables", self.variables.len()))
    }

    fn layout(&self, index: usize) -> Result<&Layout, Failure> {
        let variable = self.variable(index)?;
        if let Some(layout) = variable.layout.get() {
            return Ok(layout);
        }
        let layout = self.view.layout(&variable.info.name)?;
        Ok(variable.layout.get_or_init(|| layout))
    }

    fn find(&self, name: &str) -> Option<usize> {
        let mut variables = self.variables.iter();
        variables.position(|variable| variable.info.name == name)
    }

    fn check_process(&self) -> Result<(), Failure> {
        match self.generation == ::memory::fork::generation() {
            true => Ok(()),
            false => Err(client::ClientError::Forked.into()),
        }
    }
}

/// What there is to know.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_info_of(
    step: Option<&StepView>,
    info: Out<'_, ThalwegStepInfo>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let step = given("step", step)?;
        let (view, position) = (&step.view, step.view.position());
        given("info", info)?.write(ThalwegStepInfo {
            run: view.run().0,
            number: view.number().0,
            skipped: view.skipped(),
            lost: view.lost(),
            bytes: view.bytes(),
            time_ns: view.time(),
            position: ThalwegEventId {
                partition: 0,
                reserved: 0,
                incarnation: position.incarnation.0,
                offset: position.offset.0,
            },
            writer: step.writer.as_ptr(),
            writer_ranks: view.writer_ranks(),
            reserved32: 0,
            variable_count: step.variables.len(),
            reserved: [0; 4],
        });
        Ok(())
    })
}

/// A variable.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_variable_at(
    step: Option<&StepView>,
    index: usize,
    variable: Out<'_, ThalwegStepVariable>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let known = given("step", step)?.variable(index)?;
        given("variable", variable)?.write(ThalwegStepVariable {
            name: known.name.as_ptr(),
            dtype: known.dtype.as_ptr(),
            shape: known.info.shape.as_ptr(),
            ndim: known.info.shape.len() as u32,
            kind: known.info.kind as i32,
            item_bytes: known.info.dtype.item_bytes(),
            joined: known.joined,
            block_count: known.info.block_count,
            reserved: [0; 4],
        });
        Ok(())
    })
}

/// The index of a variable.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_find(step: Option<&StepView>, name: *const c_char) -> usize {
    match (step, text("name", name)) {
        (Some(step), Ok(name)) => step.find(name).unwrap_or(NONE),
        _ => NONE,
    }
}

/// A block.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_block_at(
    step: Option<&StepView>,
    variable: usize,
    block: usize,
    info: Out<'_, ThalwegStepBlockInfo>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let layout = given("step", step)?.layout(variable)?;
        let found = layout.block(block);
        let found = found.ok_or_else(|| {
            let blocks = match layout.kind() {
                ShapeKind::Value | ShapeKind::LocalValue => 0,
                _ => layout.block_count(),
            };
            none(block, "blocks", blocks)
        })?;
        let (min, max) = match found.extremes {
            Some((min, max)) => (min.as_ptr().cast(), max.as_ptr().cast()),
            None => (std::ptr::null(), std::ptr::null()),
        };
        given("info", info)?.write(ThalwegStepBlockInfo {
            rank: found.rank,
            ndim: found.count.len() as u32,
            start: found.start.as_ptr(),
            count: found.count.as_ptr(),
            min,
            max,
            reserved: [0; 2],
        });
        Ok(())
    })
}

/// Least and greatest element of a variable.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_extremes(
    step: Option<&StepView>,
    variable: usize,
    min: *mut c_void,
    max: *mut c_void,
    size: usize,
    known: Out<'_, i32>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let step = given("step", step)?;
        let info = &step.variable(variable)?.info;
        let known = given("known", known)?;
        let item_bytes = info.dtype.item_bytes() as usize;
        if size != item_bytes || min.is_null() || max.is_null() {
            return Err(Failure::invalid(format!(
                "min and max are of {size} bytes, and an element has {item_bytes}"
            )));
        }
        let extremes = match info.kind {
            ShapeKind::Value | ShapeKind::LocalValue => None,
            _ => step.view.extremes(&info.name)?,
        };
        if let Some(extremes) = &extremes {
            for (from, to) in [(&extremes.min, min), (&extremes.max, max)] {
                assert_eq!(from.len(), size, "an element each");
                // SAFETY: the header asks for `size` bytes at each.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.cast(), size) };
            }
        }
        known.write(i32::from(extremes.is_some()));
        Ok(())
    })
}

/// A value.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_value(
    step: Option<&StepView>,
    variable: usize,
    index: usize,
    value: Out<'_, ThalwegBytes>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let step = given("step", step)?;
        let (layout, info) = (step.layout(variable)?, &step.variable(variable)?.info);
        if !matches!(info.kind, ShapeKind::Value | ShapeKind::LocalValue) {
            let name = &info.name;
            return Err(Failure::invalid(format!(
                "variable {name:?} is an array, no value"
            )));
        }
        let values = layout.values();
        let found = values.get(index);
        let found = found.ok_or_else(|| none(index, "values", values.len()))?;
        given("value", value)?.write(ThalwegBytes::of(found));
        Ok(())
    })
}

/// The attributes.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_attributes_of(
    step: Option<&StepView>,
    attributes: Out<'_, *mut StepAttributes>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let all = StepAttributes::new(given("step", step)?.view.attributes());
        given("attributes", attributes)?.write(give(all));
        Ok(())
    })
}

/// Reads selections into the caller's memory.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_read(
    step: Option<&StepView>,
    gets: *mut ThalwegStepGet,
    count: usize,
    timeout_ms: i64,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let step = given("step", step)?;
        step.check_process()?;
        // SAFETY: the header asks for `count` of them, which are the caller's alone.
        let gets = unsafe { array_mut("gets", gets, count) }?;
        step.read(gets, limit(timeout_ms))
    })
}

impl StepView {
    fn read(&self, gets: &mut [ThalwegStepGet], timeout: Option<Duration>) -> Result<(), Failure> {
        let mut wanted = Vec::with_capacity(gets.len());
        let mut counts = Vec::with_capacity(gets.len());
        for get in gets.iter() {
            let (name, selection) = self.selected(get)?;
            let layout = self.layout(self.find(&name).unwrap_or(NONE))?;
            let shape = layout.shape_of(&selection).map_err(step::StepError::from)?;
            counts.push((shape, layout.item_bytes() as usize));
            wanted.push((name, selection));
        }
        let mut targets = Vec::with_capacity(gets.len());
        let mut spread = Vec::with_capacity(gets.len());
        let mut loans = Vec::with_capacity(gets.len());
        for ((get, (name, selection)), (count, item)) in gets.iter().zip(wanted).zip(&counts) {
            let into = if get.strides.is_null() {
                spread.push(None);
                let loan = Loan::new(None);
                // SAFETY: the header asks for `size` bytes that nobody else uses during the call,
                // at whose end the loan is over.
                let target = Target::new(unsafe { loan.writable(get.into, get.size) }?);
                loans.push(loan);
                target
            } else {
                // SAFETY: the header asks for a stride each dimension, and for the elements that
                // they say.
                let array = unsafe { Strided::given(&name, get.into, count, get.strides, *item) }?;
                if array.bytes() != get.size {
                    return Err(Failure::invalid(format!(
                        "variable {name:?}: memory of {} bytes for a selection of {} bytes",
                        get.size,
                        array.bytes()
                    )));
                }
                // What nobody has put keeps what was there.
                let mut dense = vec![0; array.bytes()];
                array.gather(&mut dense);
                spread.push(Some(array));
                Target::new(dense)
            };
            targets.push(GetTarget {
                name,
                selection,
                into,
            });
        }
        let read = self.view.get_targets_within(targets, timeout);
        let outcome = read.map(|read| {
            for ((get, spread), (target, coverage)) in gets.iter_mut().zip(&spread).zip(read) {
                get.uncovered = coverage.uncovered;
                if let Some(array) = spread {
                    array.scatter(&target.into_owner::<Vec<u8>>());
                }
            }
        });
        // Memory of a read that was given up is let go of a moment later.
        for loan in &loans {
            loan.wait_to_end(&self.connection);
        }
        Ok(outcome?)
    }

    /// The variable, and what is wanted of it.
    fn selected(&self, get: &ThalwegStepGet) -> Result<(String, Selection), Failure> {
        let name = text("the name of a get", get.name)?;
        let index = self.find(name).ok_or_else(|| {
            // Its message names those that there are.
            let unknown = self.view.variable(name).map(drop);
            unknown
                .map_err(Failure::from)
                .err()
                .unwrap_or_else(|| Failure::invalid(format!("there is no variable {name:?}")))
        })?;
        let along = match get.ndim {
            0 => None,
            dimensions => Some(self.along(get, index, dimensions as usize)?),
        };
        Ok((name.to_owned(), selection(get, along)))
    }

    fn along(
        &self,
        get: &ThalwegStepGet,
        variable: usize,
        dimensions: usize,
    ) -> Result<Vec<Along>, Failure> {
        let [start, count, step] = numbers(get)?;
        if start.is_none() && count.is_none() && step.is_none() {
            return Ok(vec![Along::Whole; dimensions]);
        }
        let layout = self.layout(variable)?;
        let block = get.block.checked_sub(1).map(|block| {
            let index = usize::try_from(block).unwrap_or(NONE);
            let block = layout.block(index);
            block.map_or(&[][..], |block| block.count)
        });
        let lengths = block.unwrap_or_else(|| layout.shape());
        let ranges = (0..dimensions).map(|dimension| {
            let start = start.map_or(0, |start| start[dimension]);
            let step = step.map_or(1, |step| step[dimension]);
            // A dimension that there is not is refused when the selection is resolved.
            let length = lengths.get(dimension).copied().unwrap_or_default();
            let rest = length.saturating_sub(start).div_ceil(step.max(1));
            let count = count.map_or(rest, |count| count[dimension]);
            Along::Range(Range { start, count, step })
        });
        Ok(ranges.collect())
    }
}

fn selection(get: &ThalwegStepGet, along: Option<Vec<Along>>) -> Selection {
    match (get.block.checked_sub(1), along) {
        (None, None) => Selection::Whole,
        (None, Some(along)) => Selection::Box(along),
        (Some(block), None) => Selection::Block(block),
        (Some(block), Some(along)) => Selection::BlockBox { block, along },
    }
}

/// Start, count and step along each dimension, where they are given.
fn numbers(get: &ThalwegStepGet) -> Result<[Option<&[u64]>; 3], Failure> {
    let numbers = |what, base: *const u64| match base.is_null() {
        true => Ok(None),
        // SAFETY: the header asks for NULL or a number each dimension.
        false => unsafe { array(what, base, get.ndim as usize) }.map(Some),
    };
    Ok([
        numbers("start", get.start)?,
        numbers("count", get.count)?,
        numbers("step", get.step)?,
    ])
}

/// What is wanted of a variable in each step, whatever its shape is then.
pub fn standing(get: &ThalwegStepGet) -> Result<(String, Selection), Failure> {
    let name = text("the name of what is read ahead", get.name)?;
    let [start, count, step] = numbers(get)?;
    let ranges = (0..get.ndim as usize).map(|dimension| {
        let of = |numbers: Option<&[u64]>, otherwise| {
            numbers.map_or(otherwise, |numbers| numbers[dimension])
        };
        // It ends with the array.
        Along::Range(Range {
            start: of(start, 0),
            count: of(count, u64::MAX),
            step: of(step, 1),
        })
    });
    let along = (get.ndim > 0).then(|| ranges.collect());
    Ok((name.to_owned(), selection(get, along)))
}

/// Frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_free(step: Option<Box<StepView>>) {
    quietly(|| {
        let Some(step) = step else {
            return;
        };
        if step.check_process().is_err() {
            // What it has of the connection is its parent's.
            std::mem::forget(step);
        }
    });
}
