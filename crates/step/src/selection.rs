//! What a reader wants of a variable.

use std::fmt;

/// Elements along one dimension: `count` of them, from `start` on, `step` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Index of the first one.
    pub start: u64,
    /// How many.
    pub count: u64,
    /// Distance from one to the next, 1 or more.
    pub step: u64,
}

/// What is wanted along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// Its whole length.
    Whole,
    /// Some of it.
    Range(Range),
}

/// What is wanted of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All of its array, or its value.
    Whole,
    /// A box of it: for each dimension, what is wanted along that.
    Box(Vec<Along>),
    /// A block as it was put, by its number: those of all ranks count from 0, in the order of the
    /// ranks, and within a rank in that of its puts. The only way into local arrays.
    Block(u64),
    /// A box of a block. Indices count from the block's own beginning.
    BlockBox {
        /// The block's number.
        block: u64,
        /// What is wanted along each dimension.
        along: Vec<Along>,
    },
}

/// What a variable does not have, or what can't be had of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectionError {
    /// Name of the variable.
    pub variable: String,
    /// The block that the selection is of, if it is of one.
    pub block: Option<u64>,
    /// What is wrong with it.
    pub problem: SelectionProblem,
}

/// The kinds of [`SelectionError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectionProblem {
    /// It has another number of dimensions.
    Dimensions {
        /// How many were selected along.
        selected: usize,
        /// How many there are.
        had: usize,
    },
    /// A step of 0.
    Step {
        /// Along which dimension.
        dimension: usize,
    },
    /// More than there is.
    OutOfBounds {
        /// Along which dimension.
        dimension: usize,
        /// What was selected.
        range: Range,
        /// How long the dimension is.
        length: u64,
    },
    /// There is no such block.
    NoBlock {
        /// How many there are.
        blocks: u64,
    },
    /// Its blocks make no whole: one of them is to be selected.
    IsLocal {
        /// How many there are.
        blocks: u64,
    },
    /// The result would have more bytes than memory can have.
    TooLarge {
        /// Its shape.
        shape: Vec<u64>,
        /// Length of an element.
        item_bytes: u32,
    },
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "variable {:?}", self.variable)?;
        if let Some(block) = self.block {
            write!(f, ", block {block}")?;
        }
        match &self.problem {
            SelectionProblem::Dimensions { selected, had } => {
                write!(f, ": {selected} dimensions were selected, it has {had}")
            }
            SelectionProblem::Step { dimension } => {
                write!(f, ": the step along dimension {dimension} is 0")
            }
            SelectionProblem::OutOfBounds {
                dimension,
                range: Range { start, count, step },
                length,
            } => write!(
                f,
                ": {count} elements from {start} on in steps of {step} were selected along \
                 dimension {dimension}, whose length is {length}"
            ),
            SelectionProblem::NoBlock { blocks } => write!(f, ": there are {blocks} blocks"),
            SelectionProblem::IsLocal { blocks } => write!(
                f,
                ": its {blocks} blocks are arrays by themselves; select one by its number"
            ),
            SelectionProblem::TooLarge { shape, item_bytes } => write!(
                f,
                ": {shape:?} elements of {item_bytes} bytes are more than memory can have"
            ),
        }
    }
}

impl std::error::Error for SelectionError {}

impl Selection {
    /// A box without gaps.
    pub fn of_box(start: &[u64], count: &[u64]) -> Self {
        let along = start.iter().zip(count).map(|(start, count)| {
            Along::Range(Range {
                start: *start,
                count: *count,
                step: 1,
            })
        });
        Self::Box(along.collect())
    }

    /// The block that it is of, if it is of one.
    pub fn block(&self) -> Option<u64> {
        match self {
            Self::Whole | Self::Box(_) => None,
            Self::Block(block) | Self::BlockBox { block, .. } => Some(*block),
        }
    }

    /// What it selects of an array of this shape, which is that of the block if it is of one.
    ///
    /// # Errors
    /// What the array does not have.
    pub fn resolve(&self, variable: &str, shape: &[u64]) -> Result<Vec<Range>, SelectionError> {
        let fail = |problem| SelectionError {
            variable: variable.to_owned(),
            block: self.block(),
            problem,
        };
        let along = match self {
            Self::Whole | Self::Block(_) => None,
            Self::Box(along) | Self::BlockBox { along, .. } => Some(along),
        };
        if let Some(along) = along.filter(|along| along.len() != shape.len()) {
            return Err(fail(SelectionProblem::Dimensions {
                selected: along.len(),
                had: shape.len(),
            }));
        }
        let ranges = shape.iter().enumerate().map(|(dimension, length)| {
            let range = match along.map_or(Along::Whole, |along| along[dimension]) {
                Along::Whole => Range {
                    start: 0,
                    count: *length,
                    step: 1,
                },
                Along::Range(range) => range,
            };
            if range.step == 0 {
                return Err(fail(SelectionProblem::Step { dimension }));
            }
            match range.end().is_some_and(|end| end <= *length) {
                true => Ok(range),
                false => Err(fail(SelectionProblem::OutOfBounds {
                    dimension,
                    range,
                    length: *length,
                })),
            }
        });
        ranges.collect()
    }
}

impl Range {
    /// Index behind its last element; `start` if it has none. None if no index is as high.
    pub fn end(&self) -> Option<u64> {
        match self.count {
            0 => Some(self.start),
            count => (count - 1)
                .checked_mul(self.step)?
                .checked_add(self.start)?
                .checked_add(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn along(start: u64, count: u64, step: u64) -> Along {
        Along::Range(Range { start, count, step })
    }

    #[test]
    fn what_an_array_has_is_resolved() {
        let selection = Selection::Box(vec![Along::Whole, along(1, 3, 3)]);
        let ranges = selection.resolve("E", &[5, 8]).unwrap();
        let ends: Vec<_> = ranges.iter().map(|range| range.end()).collect();
        assert_eq!(ends, [Some(5), Some(8)]);
        assert_eq!(ranges[1].count, 3);
        // Nothing may begin at the end, and a step past it is no matter.
        let nothing = Selection::Box(vec![along(5, 0, 1), along(7, 1, u64::MAX)]);
        assert!(nothing.resolve("E", &[5, 8]).is_ok());
        assert_eq!(Selection::Whole.resolve("t", &[]), Ok(vec![]));
    }

    #[test]
    fn what_it_has_not_is_told_with_name_dimension_and_lengths() {
        let told = |selection: Selection| selection.resolve("E", &[5, 8]).unwrap_err().to_string();
        assert_eq!(
            told(Selection::of_box(&[0, 6], &[5, 3])),
            "variable \"E\": 3 elements from 6 on in steps of 1 were selected along dimension 1, \
             whose length is 8"
        );
        assert_eq!(
            told(Selection::of_box(&[0], &[5])),
            "variable \"E\": 1 dimensions were selected, it has 2"
        );
        assert!(told(Selection::Box(vec![along(6, 0, 1), Along::Whole])).contains("dimension 0"));
        assert!(told(Selection::Box(vec![along(0, 2, 0), Along::Whole])).contains("step"));
        for (start, count, step) in [(u64::MAX, 2, 1), (1, u64::MAX, u64::MAX), (1, 3, u64::MAX)] {
            let along = vec![along(start, count, step), Along::Whole];
            assert!(told(Selection::Box(along)).contains("whose length is 5"));
        }
        let block = Selection::BlockBox {
            block: 3,
            along: vec![along(0, 6, 1), Along::Whole],
        };
        assert!(told(block).starts_with("variable \"E\", block 3: 6 elements"));
    }
}
