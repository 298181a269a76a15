//! What the ranks put in a step, and what a reader has to find: arrays as a model, element by element.

use crate::random::Random;
use step::{Along, DType, Range, Selection};

/// How many variables a step has at most, and how long a dimension is.
const VARIABLES_MAX: u64 = 4;
const LENGTH_MAX: u64 = 6;
const DTYPES: [&str; 6] = ["<f8", "<i4", ">i2", "|u1", "<u8", ">f4"];

/// How blocks make a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Array,
    Joined(usize),
    Local,
    Value,
    LocalValue,
}

/// A block, of all that are put; of a value, the value of a rank.
#[derive(Debug, Clone)]
pub struct Block {
    pub rank: u32,
    pub start: Vec<u64>,
    pub count: Vec<u64>,
}

/// A variable, with the blocks of all ranks in their order.
#[derive(Debug, Clone)]
pub struct Variable {
    pub name: String,
    pub kind: Kind,
    pub dtype: DType,
    pub shape: Vec<u64>,
    pub blocks: Vec<Block>,
}

/// Which step, of whom.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub seed: u64,
    pub ranks: u32,
    pub run: u64,
    pub step: u64,
}

/// What was found of a selection.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub shape: Vec<u64>,
    pub bytes: Vec<u8>,
    pub uncovered: u64,
}

pub fn mix(number: u64) -> u64 {
    Random::new(number).number()
}

impl Place {
    /// A step's variables: its ranks have the same, and need not talk of it.
    pub fn variables(self) -> Vec<Variable> {
        let numbers = [self.seed, self.run, self.step];
        let seed = numbers
            .into_iter()
            .fold(7, |seed, number| mix(seed ^ number));
        let random = &mut Random::new(seed);
        let count = random.below(VARIABLES_MAX + 1);
        (0..count)
            .map(|index| self.variable(index, random))
            .collect()
    }

    fn variable(self, index: u64, random: &mut Random) -> Variable {
        let dimensions = random.below(5) as usize;
        let kind = match random.below(6) {
            _ if dimensions == 0 && random.one_in(2) => Kind::Value,
            _ if dimensions == 0 => Kind::LocalValue,
            0..=2 => Kind::Array,
            3 | 4 => Kind::Joined(random.below(dimensions as u64) as usize),
            _ => Kind::Local,
        };
        let mut shape: Vec<u64> = (0..dimensions)
            .map(|_| random.within(1..LENGTH_MAX + 1))
            .collect();
        let mut blocks = Vec::new();
        let mut joined = 0;
        for rank in 0..self.ranks {
            let own = match kind {
                Kind::Value | Kind::LocalValue => 1,
                _ => random.below(3),
            };
            for _ in 0..own {
                let mut count = shape.clone();
                let mut start = vec![0; dimensions];
                for (at, length) in shape.iter().enumerate() {
                    match kind {
                        Kind::Array => {
                            start[at] = random.below(length + 1);
                            count[at] = random.below(length - start[at] + 1);
                        }
                        Kind::Joined(along) if along == at => {
                            count[at] = random.below(LENGTH_MAX);
                            start[at] = joined;
                            joined += count[at];
                        }
                        Kind::Local => count[at] = random.below(LENGTH_MAX),
                        _ => {}
                    }
                }
                blocks.push(Block { rank, start, count });
            }
        }
        if let Kind::Joined(along) = kind {
            shape[along] = joined;
        }
        Variable {
            name: format!("v{index}"),
            kind,
            dtype: DType::parse(random.pick(&DTYPES)).expect("it is one"),
            shape,
            blocks,
        }
    }
}

impl Variable {
    /// An element of a block, as a life of its rank puts it. Small whole numbers, so that floats have an order.
    fn element(&self, place: Place, block: usize, index: u64, life: u64) -> Vec<u8> {
        let numbers = [place.run, place.step, block as u64, index, life];
        let seed = numbers
            .into_iter()
            .chain(self.name.bytes().map(u64::from))
            .fold(3, |seed, number| mix(seed ^ number));
        let small = (seed % 200) as u8;
        match self.dtype.as_str() {
            "<f8" => f64::from(small).to_le_bytes().to_vec(),
            ">f4" => f32::from(small).to_be_bytes().to_vec(),
            "<i4" => (seed as i32).to_le_bytes().to_vec(),
            ">i2" => (seed as i16).to_be_bytes().to_vec(),
            "<u8" => seed.to_le_bytes().to_vec(),
            _ => vec![small],
        }
    }

    /// A block's elements in row-major order.
    pub fn data(&self, place: Place, block: usize, life: u64) -> Vec<u8> {
        let count: u64 = self.blocks[block].count.iter().product();
        (0..count)
            .flat_map(|index| self.element(place, block, index, life))
            .collect()
    }

    /// A value of each rank.
    pub fn find_values(&self, place: Place, lives: &[u64]) -> Vec<Vec<u8>> {
        let values = self.blocks.iter().enumerate();
        let values =
            values.map(|(index, block)| self.element(place, index, 0, lives[block.rank as usize]));
        values.collect()
    }

    /// Something that a reader may want of it.
    pub fn select(&self, random: &mut Random) -> Selection {
        let along = |lengths: &[u64], random: &mut Random| -> Vec<Along> {
            let ranges = lengths.iter().map(|length| {
                let step = random.within(1..4);
                let start = random.below(length + 1);
                let most = (length - start).div_ceil(step);
                let count = random.below(most + 1);
                match random.below(4) {
                    0 => Along::Whole,
                    _ => Along::Range(Range { start, count, step }),
                }
            });
            ranges.collect()
        };
        let block = random.below(self.blocks.len() as u64);
        match random.below(4) {
            0 if self.kind != Kind::Local => Selection::Whole,
            1 | 2 if self.kind != Kind::Local => Selection::Box(along(&self.shape, random)),
            3 => Selection::Block(block),
            _ => Selection::BlockBox {
                block,
                along: along(&self.blocks[block as usize].count, random),
            },
        }
    }

    /// What is there of a selection, of the lives that have written: found one by one, the last block that has an
    /// element first.
    pub fn find(&self, place: Place, selection: &Selection, lives: &[u64]) -> Found {
        let (among, lengths, origin, along) = match selection {
            Selection::Whole => (None, &self.shape, None, None),
            Selection::Box(along) => (None, &self.shape, None, Some(along)),
            Selection::Block(block) | Selection::BlockBox { block, .. } => {
                let own = &self.blocks[*block as usize];
                let along = match selection {
                    Selection::BlockBox { along, .. } => Some(along),
                    _ => None,
                };
                (Some(*block as usize), &own.count, Some(&own.start), along)
            }
        };
        let ranges: Vec<Range> = lengths
            .iter()
            .enumerate()
            .map(|(at, length)| match along.map(|along| along[at]) {
                Some(Along::Range(range)) => range,
                _ => Range {
                    start: 0,
                    count: *length,
                    step: 1,
                },
            })
            .collect();
        let shape: Vec<u64> = ranges.iter().map(|range| range.count).collect();
        let total: u64 = shape.iter().product();
        let mut found = Found {
            bytes: Vec::new(),
            uncovered: 0,
            shape,
        };
        for number in 0..total {
            let mut rest = number;
            let mut index = vec![0; ranges.len()];
            for (at, range) in ranges.iter().enumerate().rev() {
                index[at] = range.start + rest % range.count * range.step;
                index[at] += origin.map_or(0, |origin| origin[at]);
                rest /= range.count;
            }
            let has = |block: &usize| self.blocks[*block].place(&index).is_some();
            let owner = match among {
                Some(block) => Some(block),
                None => (0..self.blocks.len()).rev().find(has),
            };
            match owner {
                Some(block) => {
                    let own = &self.blocks[block];
                    let at = own.place(&index).expect("it has it");
                    let life = lives[own.rank as usize];
                    found.bytes.extend(self.element(place, block, at, life));
                }
                None => {
                    found.uncovered += 1;
                    let item = self.dtype.item_bytes() as usize;
                    found.bytes.extend(std::iter::repeat_n(0, item));
                }
            }
        }
        found
    }
}

impl Block {
    /// Which of its elements is at an index of the whole.
    fn place(&self, index: &[u64]) -> Option<u64> {
        let mut place = 0;
        for ((index, start), count) in index.iter().zip(&self.start).zip(&self.count) {
            let own = index.checked_sub(*start).filter(|own| own < count)?;
            place = place * count + own;
        }
        Some(place)
    }
}
