//! What is read of a step before the program asks for it: standing selections.

use crate::blocks::{BlockMemory, KeptBlock};
use crate::error::StepError;
use crate::faults::{Fault, planted};
use crate::gather::{Coverage, Layout, cut};
use crate::reading::Reading;
use crate::selection::{Along, Range, Selection};
use client::{ClientError, Pending, Target, TopicHandle};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::step::{ShapeKind, StepTable};

/// What is read of each step before the program asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Preload {
    /// Nothing.
    #[default]
    Nothing,
    /// All arrays.
    All,
    /// Selections of the variables that have these names; the same name may come several times.
    /// What a step does not have of them is left out, and so is a variable that it does not have:
    /// a box ends with the array, at the latest, and is of all of the dimensions that it does not
    /// name. Of local arrays [`Selection::Whole`] is each of their blocks.
    Selected(Vec<(String, Selection)>),
}

/// Standing selections, and how much may be read for them.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    pub wanted: Preload,
    /// Most bytes of a step. What exceeds them is not read before it is asked for.
    pub bytes_max: u64,
}

/// The layouts of a step's variables, by the variable's index.
pub(crate) type Layouts = BTreeMap<usize, Arc<Layout>>;

/// Arrays of a step that are read before the program asks.
pub(crate) struct Preloaded {
    /// By name, which of the boxes are of a variable.
    of_variable: BTreeMap<String, Vec<usize>>,
    boxes: Vec<Box>,
    arrays: Mutex<Arrays>,
}

/// What is read ahead as one array.
struct Box {
    /// The block that it is of, if it is of one.
    block: Option<u64>,
    ranges: Vec<Range>,
    item_bytes: u64,
}

/// Those that were read, one for each of the boxes.
type ReadArrays = Arc<Vec<(KeptBlock, Coverage)>>;

enum Arrays {
    Coming(Pending<Vec<Target>>, Reading),
    Here(ReadArrays),
    /// They could not be read, or are let go of. Who asks for them reads them.
    Gone,
}

/// A selection that was read ahead.
pub(crate) struct Ready {
    arrays: ReadArrays,
    index: usize,
    /// Lengths of the array that it is cut from.
    shape: Vec<u64>,
    /// Which part of that array.
    ranges: Vec<Range>,
    item_bytes: u64,
}

impl Preloaded {
    /// Begins to read what stands; `None` if that is nothing. `layouts` are those that it made.
    pub fn begin(
        topic: &TopicHandle,
        table: &StepTable,
        standing: &Standing,
        memory: &BlockMemory,
        layouts: &mut Layouts,
    ) -> Option<Self> {
        let mut chosen = Chosen {
            table,
            bytes_left: standing.bytes_max,
            layouts,
            boxes: Vec::new(),
            plans: Vec::new(),
            of_variable: BTreeMap::new(),
        };
        match &standing.wanted {
            Preload::Nothing => return None,
            Preload::All => {
                for index in 0..table.variables.len() {
                    chosen.add(index, &Selection::Whole);
                }
            }
            Preload::Selected(wanted) => {
                let names = table.variables.iter().enumerate();
                let names = names.map(|(index, entry)| (entry.name.as_str(), index));
                let names: BTreeMap<&str, usize> = names.collect();
                for (name, selection) in wanted {
                    if let Some(index) = names.get(name.as_str()) {
                        chosen.add(*index, selection);
                    }
                }
            }
        }
        let Chosen {
            boxes,
            plans,
            of_variable,
            ..
        } = chosen;
        if boxes.is_empty() {
            return None;
        }
        let gets = plans.into_iter().map(|plan| {
            let memory = memory.take_kept(plan.bytes() as usize);
            (plan, Target::new(memory))
        });
        let (reading, asked) = Reading::new(gets.collect(), &table.parts, memory.pool()).ok()?;
        let coming = topic.begin_read_strided(&asked.wanted, asked.into);
        Some(Self {
            of_variable,
            boxes,
            arrays: Mutex::new(Arrays::Coming(coming, reading)),
        })
    }

    /// A selection of this step, if it is among what was read ahead, which is waited for. `None`:
    /// it is to be asked for.
    ///
    /// # Errors
    /// That `timeout` has passed, where it is given.
    pub fn look(
        &self,
        layout: &Layout,
        selection: &Selection,
        timeout: Option<Duration>,
    ) -> Result<Option<Ready>, StepError> {
        let Some(boxes) = self.of_variable.get(layout.name()) else {
            return Ok(None);
        };
        let Ok(wanted) = layout.ranges_of(selection) else {
            return Ok(None);
        };
        let found = boxes.iter().find_map(|index| {
            let known = &self.boxes[*index];
            let is_of_it = known.block == selection.block();
            let ranges = is_of_it.then(|| within(&known.ranges, &wanted)).flatten()?;
            Some((*index, ranges))
        });
        let Some((index, ranges)) = found else {
            return Ok(None);
        };
        let Some(arrays) = self.arrays(layout.name(), timeout)? else {
            return Ok(None);
        };
        // What nobody put keeps what is in the caller's memory, which is not known here.
        if arrays[index].1.uncovered > 0 {
            return Ok(None);
        }
        let known = &self.boxes[index];
        Ok(Some(Ready {
            arrays,
            index,
            shape: known.ranges.iter().map(|range| range.count).collect(),
            ranges,
            item_bytes: known.item_bytes,
        }))
    }

    /// Lets go of the arrays. Who waits for them at this moment reads them as if nothing stood.
    pub fn forget(&self) {
        let mut arrays = self.lock();
        if let Arrays::Coming(pending, _) = &*arrays {
            pending.cancel();
        }
        *arrays = Arrays::Gone;
    }

    fn lock(&self) -> MutexGuard<'_, Arrays> {
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrays(
        &self,
        variable: &str,
        timeout: Option<Duration>,
    ) -> Result<Option<ReadArrays>, StepError> {
        // Not held while it waits: others have deadlines of their own, or want it no more.
        let coming = match &*self.lock() {
            Arrays::Coming(pending, _) => Some(pending.answered()),
            Arrays::Here(_) | Arrays::Gone => None,
        };
        let timeout = timeout.unwrap_or(Duration::MAX);
        if coming.is_some_and(|coming| !coming.wait(timeout)) {
            let what = format!("variable {variable:?}, which is read ahead");
            return Err(ClientError::Timeout { what }.into());
        }
        let mut arrays = self.lock();
        if let Arrays::Coming(pending, _) = &mut *arrays {
            let Some(read) = pending.try_get() else {
                return Ok(None);
            };
            let Arrays::Coming(_, reading) = std::mem::replace(&mut *arrays, Arrays::Gone) else {
                return Ok(None);
            };
            if let Ok(read) = read
                .map_err(StepError::from)
                .and_then(|read| reading.finish(read))
            {
                let buffer =
                    |(target, coverage): (Target, Coverage)| (target.into_owner(), coverage);
                *arrays = Arrays::Here(Arc::new(read.into_iter().map(buffer).collect()));
            }
        }
        Ok(match &*arrays {
            Arrays::Here(arrays) => Some(arrays.clone()),
            Arrays::Coming(..) | Arrays::Gone => None,
        })
    }
}

/// What nobody will take need not come.
impl Drop for Preloaded {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Ready {
    /// Lengths of the selection.
    pub fn shape(&self) -> Vec<u64> {
        self.ranges.iter().map(|range| range.count).collect()
    }

    fn elements(&self) -> u64 {
        self.ranges.iter().map(|range| range.count).product()
    }

    pub fn bytes(&self) -> u64 {
        self.elements() * self.item_bytes
    }

    pub fn coverage(&self) -> Coverage {
        Coverage {
            elements: self.elements(),
            uncovered: 0,
        }
    }

    /// Copies it; the memory is as long as it is.
    pub fn copy_to(&self, out: &mut [u8]) {
        let from = self.arrays[self.index].0.as_ref();
        cut((from, &self.shape), &self.ranges, self.item_bytes, out);
    }
}

/// Which arrays of a step are read ahead.
struct Chosen<'a> {
    table: &'a StepTable,
    bytes_left: u64,
    layouts: &'a mut Layouts,
    boxes: Vec<Box>,
    plans: Vec<crate::gather::Plan>,
    of_variable: BTreeMap<String, Vec<usize>>,
}

impl Chosen<'_> {
    /// Adds a selection of a variable, if it has that and there is space for it. What is wrong with
    /// it is told to who asks for it.
    fn add(&mut self, index: usize, selection: &Selection) {
        let Some(layout) = self.layout(index) else {
            return;
        };
        let is_local = layout.kind() == ShapeKind::LocalArray;
        if is_local && *selection == Selection::Whole {
            for block in 0..layout.block_count() as u64 {
                self.add_box(&layout, &Selection::Block(block));
            }
        } else if let Some(selection) = clipped(selection, &layout) {
            self.add_box(&layout, &selection);
        }
    }

    fn layout(&mut self, index: usize) -> Option<Arc<Layout>> {
        if let Some(layout) = self.layouts.get(&index) {
            return Some(layout.clone());
        }
        let entry = &self.table.variables[index];
        let blocks = self.table.blocks(entry).ok()?;
        let layout = Arc::new(Layout::new(entry, blocks, &self.table.parts).ok()?);
        self.layouts.insert(index, layout.clone());
        Some(layout)
    }

    fn add_box(&mut self, layout: &Layout, selection: &Selection) {
        let (Ok(plan), Ok(ranges)) = (layout.plan(selection), layout.ranges_of(selection)) else {
            return;
        };
        // Values are in the record. A box may be larger than what lies in it.
        if plan.reads().is_empty() || plan.bytes() > self.bytes_left {
            return;
        }
        self.bytes_left -= plan.bytes();
        let of_it = self.of_variable.entry(layout.name().to_owned());
        of_it.or_default().push(self.boxes.len());
        self.boxes.push(Box {
            block: selection.block(),
            ranges,
            item_bytes: layout.item_bytes(),
        });
        self.plans.push(plan);
    }
}

/// A selection, as far as the variable has it in this step. `None` if it has nothing of it.
fn clipped(selection: &Selection, layout: &Layout) -> Option<Selection> {
    let along_block = |block: u64| layout.block(usize::try_from(block).ok()?);
    Some(match selection {
        Selection::Whole => Selection::Whole,
        Selection::Box(along) => Selection::Box(clip(along, layout.shape())?),
        Selection::Block(block) => {
            along_block(*block)?;
            Selection::Block(*block)
        }
        Selection::BlockBox { block, along } => Selection::BlockBox {
            block: *block,
            along: clip(along, along_block(*block)?.count)?,
        },
    })
}

fn clip(along: &[Along], shape: &[u64]) -> Option<Vec<Along>> {
    if along.len() > shape.len() {
        return None;
    }
    let along = along.iter().chain(std::iter::repeat(&Along::Whole));
    let clipped = along.zip(shape).map(|(along, length)| match along {
        Along::Whole => Some(Along::Whole),
        Along::Range(range) => {
            let behind = length.checked_sub(range.start)?.checked_sub(1)?;
            let had = behind.checked_div(range.step)? + 1;
            let count = range.count.min(had);
            (count > 0).then_some(Along::Range(Range { count, ..*range }))
        }
    });
    clipped.collect()
}

/// Where in an array of the elements `known` those are that are `wanted`; `None` if not all of them
/// are in it, or none is wanted.
fn within(known: &[Range], wanted: &[Range]) -> Option<Vec<Range>> {
    let ranges = known.iter().zip(wanted).map(|(known, wanted)| {
        if planted(Fault::OlderSelection) && known.count == wanted.count {
            return Some(Range {
                start: 0,
                count: known.count,
                step: 1,
            });
        }
        let before = wanted.start.checked_sub(known.start)?;
        let is_between = before % known.step != 0
            || (wanted.count > 1 && !wanted.step.is_multiple_of(known.step));
        let start = before / known.step;
        // Of one element the step says nothing, and may be any.
        let step = match wanted.count {
            1 => 1,
            _ => wanted.step / known.step,
        };
        let last = wanted
            .count
            .checked_sub(1)?
            .checked_mul(step)?
            .checked_add(start)?;
        (!is_between && last < known.count).then_some(Range {
            start,
            count: wanted.count,
            step,
        })
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, count: u64, step: u64) -> Range {
        Range { start, count, step }
    }

    /// Against lists of all indices.
    #[test]
    fn what_lies_within_what_was_read_is_found_where_it_is() {
        let mut found = 0;
        let all = || {
            let starts = (0..6).flat_map(|start| (0..5).map(move |count| (start, count)));
            starts.flat_map(|(start, count)| (1..5).map(move |step| range(start, count, step)))
        };
        let indices = |range: Range| (0..range.count).map(move |n| range.start + n * range.step);
        for known in all() {
            for wanted in all().filter(|wanted| wanted.count > 0) {
                let places: Option<Vec<usize>> = indices(wanted)
                    .map(|index| indices(known).position(|had| had == index))
                    .collect();
                let places = places.map(|all| all.iter().map(|at| *at as u64).collect::<Vec<_>>());
                let told = within(&[known], &[wanted]).map(|ranges| indices(ranges[0]).collect());
                assert_eq!(told, places, "{wanted:?} in {known:?}");
                found += usize::from(told.is_some());
            }
        }
        assert!(found > 500, "{found}");
        assert_eq!(within(&[range(0, 4, 1)], &[range(1, 0, 1)]), None);
    }

    #[test]
    fn a_box_ends_with_its_array() {
        let clip = |along: Range, length| clip(&[Along::Range(along)], &[length]);
        let cut = |start, count, step| Some(vec![Along::Range(range(start, count, step))]);
        assert_eq!(clip(range(2, 5, 1), 10), cut(2, 5, 1));
        assert_eq!(clip(range(2, u64::MAX, 1), 10), cut(2, 8, 1));
        assert_eq!(clip(range(2, 9, 3), 10), cut(2, 3, 3));
        assert_eq!(clip(range(9, 9, u64::MAX), 10), cut(9, 1, u64::MAX));
        for nothing in [
            range(10, 1, 1),
            range(0, 0, 1),
            range(0, 3, 0),
            range(11, 1, 1),
        ] {
            assert_eq!(clip(nothing, 10), None, "{nothing:?}");
        }
        assert_eq!(clip(range(0, 3, 1), 0), None);
        let row = [Along::Range(range(1, 1, 1))];
        let whole = super::clip(&row, &[4, 5]);
        assert_eq!(whole, Some(vec![row[0], Along::Whole]));
        assert_eq!(super::clip(&row, &[]), None);
    }
}
