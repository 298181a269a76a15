//! Where the blocks of a variable are, checked and indexed once a step.

use super::error::GatherError;
use super::index::Boxes;
use crate::selection::{Range, Selection, SelectionError, SelectionProblem};
use bytes::Bytes;
use wire::step::{Blocks, DIMENSIONS_MAX, PartPlace, ShapeKind, TableEntry};

/// A variable of one step: its blocks, and an index of them if they are many. Made once, it serves
/// any number of plans.
#[derive(Debug, Clone)]
pub struct Layout {
    name: String,
    kind: ShapeKind,
    item_bytes: u64,
    shape: Vec<u64>,
    dimensions: usize,
    blocks: Blocks,
    boxes: Boxes,
}

/// A block as it was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'a> {
    /// Which rank put it.
    pub rank: u32,
    /// Where it begins in the whole, a number each dimension; of a local array zeros.
    pub start: &'a [u64],
    /// How many elements it has, a number each dimension; its shape.
    pub count: &'a [u64],
    /// Its least and greatest element, if they are known and it has any.
    pub extremes: Option<(&'a [u8], &'a [u8])>,
}

/// What a plan is made of: a shape, what is wanted of it, and the blocks it may be in.
pub(super) struct Wanted {
    pub ranges: Vec<Range>,
    /// Only this one, which lies at 0.
    pub block: Option<usize>,
    /// Elements of the result.
    pub elements: u64,
}

impl Layout {
    /// Checks the blocks of a variable (`StepTable::blocks`) against its entry and the parts.
    ///
    /// # Errors
    /// [`GatherError::Table`]: columns that do not fit one another, blocks that leave the array,
    /// their part, or what can be addressed.
    pub fn new(
        entry: &TableEntry,
        blocks: Blocks,
        parts: &[PartPlace],
    ) -> Result<Self, GatherError> {
        let fail = |reason, block| {
            Err(GatherError::Table {
                variable: entry.name.clone(),
                reason,
                block,
            })
        };
        let count = blocks.ranks.len();
        let is_value = matches!(entry.kind, ShapeKind::Value | ShapeKind::LocalValue);
        let in_data = if is_value { 0 } else { count };
        let dimensions = match entry.kind {
            ShapeKind::Value | ShapeKind::LocalValue => 0,
            ShapeKind::Array | ShapeKind::Joined => entry.shape.len(),
            ShapeKind::LocalArray => blocks.counts.len() / count.max(1),
        };
        if dimensions > DIMENSIONS_MAX {
            return fail("more dimensions than an array may have", None);
        }
        let lengths = [
            (blocks.values.len(), if is_value { count } else { 0 }),
            (blocks.positions.len(), in_data),
            (blocks.bytes.len(), in_data),
            (blocks.starts.len(), in_data * dimensions),
            (blocks.counts.len(), in_data * dimensions),
        ];
        if lengths.iter().any(|(had, needed)| had != needed) {
            return fail("its columns have other lengths than one another", None);
        }
        let item_bytes = u64::from(entry.item_bytes);
        for ends in [&blocks.mins, &blocks.maxs] {
            if !ends.is_empty() && ends.len() as u64 != in_data as u64 * item_bytes {
                return fail("its extremes are not one a block", None);
            }
        }
        if item_bytes == 0 && !is_value {
            return fail("its elements have no bytes", None);
        }
        for (block, rank) in blocks.ranks.iter().enumerate() {
            let Some(part) = parts.get(*rank as usize) else {
                return fail("there is no part of its rank", Some(block));
            };
            if is_value {
                // Text has any length.
                if item_bytes != 0 && blocks.values[block].len() as u64 != item_bytes {
                    return fail("its value has another length than its type", Some(block));
                }
                continue;
            }
            let at = block * dimensions;
            let counts = &blocks.counts[at..at + dimensions];
            let elements = counts
                .iter()
                .try_fold(item_bytes, |bytes, count| bytes.checked_mul(*count));
            if elements != Some(blocks.bytes[block]) {
                return fail("its length is not that of its elements", Some(block));
            }
            // What is below this may be added to itself without a check.
            let bytes_max = part.bytes.min(i64::MAX as u64);
            let end = blocks.positions[block].checked_add(blocks.bytes[block]);
            if end.is_none_or(|end| end > bytes_max) {
                return fail("it ends behind the end of its part", Some(block));
            }
            if entry.kind == ShapeKind::LocalArray {
                continue;
            }
            let places = blocks.starts[at..at + dimensions].iter().zip(counts);
            for ((start, count), length) in places.zip(&entry.shape) {
                if start.checked_add(*count).is_none_or(|end| end > *length) {
                    return fail("it ends outside of the array", Some(block));
                }
            }
        }
        let has_whole = matches!(entry.kind, ShapeKind::Array | ShapeKind::Joined);
        let boxes = match has_whole {
            true => {
                let ends = blocks.starts.iter().zip(&blocks.counts);
                let highs = ends.map(|(start, count)| start + count).collect();
                Boxes::new(dimensions, count, blocks.starts.clone(), highs)
            }
            false => Boxes::new(0, 0, Vec::new(), Vec::new()),
        };
        Ok(Self {
            name: entry.name.clone(),
            kind: entry.kind,
            item_bytes,
            shape: match entry.kind {
                ShapeKind::Array | ShapeKind::Joined => entry.shape.clone(),
                ShapeKind::LocalValue => vec![count as u64],
                ShapeKind::Value | ShapeKind::LocalArray => Vec::new(),
            },
            dimensions,
            blocks,
            boxes,
        })
    }

    /// Name of the variable.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its blocks make a whole.
    pub fn kind(&self) -> ShapeKind {
        self.kind
    }

    /// Length of an element; 0 of text.
    pub fn item_bytes(&self) -> u64 {
        self.item_bytes
    }

    /// Shape of the whole: of a value and of a local array empty, of values of ranks one length.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// How many blocks there are, or values.
    pub fn block_count(&self) -> usize {
        self.blocks.ranks.len()
    }

    /// A block by its number; none of values.
    pub fn block(&self, index: usize) -> Option<Block<'_>> {
        self.blocks.positions.get(index)?;
        let at = index * self.dimensions;
        let count = &self.blocks.counts[at..at + self.dimensions];
        let (from, to) = (
            index * self.item_bytes as usize,
            (index + 1) * self.item_bytes as usize,
        );
        let is_known =
            !count.contains(&0) && !self.blocks.mins.is_empty() && !self.blocks.maxs.is_empty();
        Some(Block {
            rank: self.blocks.ranks[index],
            start: &self.blocks.starts[at..at + self.dimensions],
            count,
            extremes: is_known.then(|| (&self.blocks.mins[from..to], &self.blocks.maxs[from..to])),
        })
    }

    /// The values of ranks in the order of the ranks, or the one of a value; of text UTF-8. Empty
    /// of arrays.
    pub fn values(&self) -> &[Bytes] {
        match self.kind {
            ShapeKind::Value => {
                let index = self.value_index();
                index.map_or(&[], |index| &self.blocks.values[index..=index])
            }
            _ => &self.blocks.values,
        }
    }

    /// Shape of what is selected.
    ///
    /// # Errors
    /// What the variable does not have, and a result that no memory could hold. Whether there is
    /// that much memory is the caller's to find out: an array may be far larger than its blocks.
    pub fn shape_of(&self, selection: &Selection) -> Result<Vec<u64>, GatherError> {
        let wanted = self.wanted(selection)?;
        Ok(wanted.ranges.iter().map(|range| range.count).collect())
    }

    /// What is selected along each dimension.
    pub(crate) fn ranges_of(&self, selection: &Selection) -> Result<Vec<Range>, GatherError> {
        Ok(self.wanted(selection)?.ranges)
    }

    /// The block whose value counts: of the lowest rank.
    pub(super) fn value_index(&self) -> Option<usize> {
        let ranks = self.blocks.ranks.iter().enumerate();
        ranks.min_by_key(|(_, rank)| **rank).map(|(index, _)| index)
    }

    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    pub(super) fn boxes(&self) -> &Boxes {
        &self.boxes
    }

    pub(super) fn wanted(&self, selection: &Selection) -> Result<Wanted, GatherError> {
        let fail = |problem| SelectionError {
            variable: self.name.clone(),
            block: selection.block(),
            problem,
        };
        let blocks = self.block_count() as u64;
        let block = match selection.block() {
            Some(block) if block >= blocks => {
                return Err(fail(SelectionProblem::NoBlock { blocks }).into());
            }
            Some(block) => Some(block as usize),
            None if self.kind == ShapeKind::LocalArray => {
                return Err(fail(SelectionProblem::IsLocal { blocks }).into());
            }
            None => None,
        };
        let shape = match block {
            Some(block) => self.block(block).map_or(&[][..], |block| block.count),
            None => &self.shape,
        };
        let ranges = selection.resolve(&self.name, shape)?;
        let counts = || ranges.iter().map(|range| range.count);
        let elements = match counts().any(|count| count == 0) {
            true => Some(0),
            false => counts().try_fold(1u64, u64::checked_mul),
        };
        let bytes = elements.and_then(|elements| elements.checked_mul(self.item_bytes));
        match (elements, bytes) {
            (Some(elements), Some(bytes)) if bytes <= i64::MAX as u64 => Ok(Wanted {
                ranges,
                block,
                elements,
            }),
            _ => Err(fail(SelectionProblem::TooLarge {
                shape: counts().collect(),
                item_bytes: self.item_bytes as u32,
            })
            .into()),
        }
    }
}
