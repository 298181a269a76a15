//! A rank's blocks of a step, on their way into its part.

use crate::dtype::{DType, Extremes};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use wire::step::{
    BLOCK_ALIGNMENT, Blocks, DIMENSIONS_MAX, Part, PartData, STEP_NAME_BYTES_MAX, STEP_VERSION,
    ShapeKind, Variable,
};
use wire::{Rank, Run, Step};

/// The longest value, text too: values travel with the table.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// A part's data is in no more pieces of memory, so that one event can have it.
const PIECES_MAX: usize = 512;

/// How a block that is put belongs to its variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// At this place of an array that all ranks make.
    Array {
        /// Lengths of the whole.
        shape: &'a [u64],
        /// Where the block begins in it.
        start: &'a [u64],
    },
    /// Behind the blocks that were put before, along this dimension: of the ranks before, and of
    /// this one.
    Joined(u32),
    /// It is an array by itself.
    Local,
}

/// A block that is put. Elements stand in row-major (C) order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put<'a> {
    /// Name of the variable.
    pub name: &'a str,
    /// Type of its elements; not text.
    pub dtype: &'a DType,
    /// Where it belongs.
    pub place: Place<'a>,
    /// How many elements it has along each dimension. 0 is allowed.
    pub count: &'a [u64],
    /// Whether readers are told its least and greatest element. They are told for all of the
    /// variable's blocks, or for none.
    pub with_extremes: bool,
}

/// What can't be put: of which variable, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutError {
    /// Name of the variable.
    pub variable: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "variable {:?}: {}", self.variable, self.reason)
    }
}

impl std::error::Error for PutError {}

/// A place in the part that is kept for a block whose memory is given later.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a span that is not filled keeps the step from its end"]
pub struct Span {
    variable: usize,
    block: usize,
    /// Where the block begins in the part's data.
    pub position: u64,
    /// How long it is.
    pub bytes: u64,
}

/// What a rank has put in a step so far. A put that is refused leaves it as it was.
#[derive(Debug, Default)]
pub struct Staging {
    variables: Vec<Staged>,
    known: BTreeMap<String, usize>,
    /// Length of the data so far.
    bytes: u64,
    /// Blocks that have bytes, in the order of their positions.
    placed: Vec<(usize, usize)>,
}

#[derive(Debug)]
struct Staged {
    name: String,
    kind: ShapeKind,
    dtype: DType,
    joined: u32,
    shape: Vec<u64>,
    dimensions: usize,
    starts: Vec<u64>,
    counts: Vec<u64>,
    blocks: Vec<StagedBlock>,
    value: Option<Bytes>,
}

#[derive(Debug)]
struct StagedBlock {
    position: u64,
    bytes: u64,
    data: Option<Bytes>,
    with_extremes: bool,
    extremes: Option<Extremes>,
}

impl Staging {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the part's data is so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing was put.
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }

    /// Puts a block. `data` is the memory that is sent: a copy, or the caller's own, which then
    /// must not change until the part is out. Several puts of a variable are several blocks.
    ///
    /// # Errors
    /// A variable that was put with another type, kind or shape in this step; a block outside of
    /// its array; data of another length than the block's.
    pub fn put(&mut self, put: &Put<'_>, data: Bytes) -> Result<(), PutError> {
        let (fresh, bytes) = self.check(put)?;
        if data.len() as u64 != bytes {
            return Err(put.refuse(format!(
                "a block of {:?} elements of {} has {bytes} bytes, and {} were given",
                put.count,
                put.dtype,
                data.len()
            )));
        }
        let (variable, block) = self.reserve(put, fresh, bytes)?;
        self.give(variable, block, data);
        Ok(())
    }

    /// Keeps a place for a block whose memory is given later by [`Self::fill`].
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn span(&mut self, put: &Put<'_>) -> Result<Span, PutError> {
        let (fresh, bytes) = self.check(put)?;
        let (variable, block) = self.reserve(put, fresh, bytes)?;
        Ok(Span {
            variable,
            block,
            position: self.variables[variable].blocks[block].position,
            bytes,
        })
    }

    /// Gives a span its memory. A span that has some already gets other memory.
    ///
    /// # Errors
    /// Data of another length, and a span of another step.
    pub fn fill(&mut self, span: &Span, data: Bytes) -> Result<(), PutError> {
        let variable = self.variables.get(span.variable);
        let block = variable.and_then(|variable| variable.blocks.get(span.block));
        let name = || variable.map_or("", |variable| &variable.name).to_owned();
        match block {
            Some(block) if block.position == span.position && block.bytes == span.bytes => {}
            _ => {
                return Err(PutError {
                    variable: name(),
                    reason: "the span is of another step".to_owned(),
                });
            }
        }
        if data.len() as u64 != span.bytes {
            let (needed, had) = (span.bytes, data.len());
            return Err(PutError {
                variable: name(),
                reason: format!("its span has {needed} bytes, and {had} were given"),
            });
        }
        self.give(span.variable, span.block, data);
        Ok(())
    }

    /// Puts a value: one for all ([`ShapeKind::Value`]), or one of this rank
    /// ([`ShapeKind::LocalValue`]). One that was put before in this step is replaced.
    ///
    /// # Errors
    /// A variable that was put with another type or kind in this step, a value of another length
    /// than its type's, text that is not UTF-8, more than [`VALUE_BYTES_MAX`].
    ///
    /// # Panics
    /// If `kind` is one of arrays.
    pub fn put_value(
        &mut self,
        name: &str,
        kind: ShapeKind,
        dtype: &DType,
        value: Bytes,
    ) -> Result<(), PutError> {
        assert!(
            matches!(kind, ShapeKind::Value | ShapeKind::LocalValue),
            "arrays are put as blocks"
        );
        let refuse = |reason: String| {
            Err(PutError {
                variable: name.to_owned(),
                reason,
            })
        };
        let had = value.len();
        if had > VALUE_BYTES_MAX {
            return refuse(format!(
                "a value of {had} bytes; the limit is {VALUE_BYTES_MAX}: put it as an array"
            ));
        }
        if dtype.is_text() && std::str::from_utf8(&value).is_err() {
            return refuse("text that is not UTF-8".to_owned());
        }
        if !dtype.is_text() && had != dtype.item_bytes() as usize {
            let needed = dtype.item_bytes();
            return refuse(format!(
                "a value of {dtype} has {needed} bytes, and {had} were given"
            ));
        }
        let fresh = Staged::new(name, kind, dtype, 0, Vec::new(), 0)?;
        if let Some(index) = self.known.get(name) {
            self.variables[*index].agree(&fresh)?;
        }
        let index = self.variable(fresh);
        self.variables[index].value = Some(value);
        Ok(())
    }

    /// The part's metadata, and its data: memory that is sent piece by piece, padding between.
    /// Attributes are the caller's to add.
    ///
    /// # Errors
    /// A span that was not filled.
    pub fn into_part(
        self,
        run: Run,
        step: Step,
        rank: Rank,
    ) -> Result<(Part, Vec<Bytes>), PutError> {
        static PADDING: [u8; BLOCK_ALIGNMENT as usize] = [0; BLOCK_ALIGNMENT as usize];
        for variable in &self.variables {
            if let Some(index) = variable
                .blocks
                .iter()
                .position(|block| block.data.is_none())
            {
                return Err(PutError {
                    variable: variable.name.clone(),
                    reason: format!("the span of its block {index} was not filled"),
                });
            }
        }
        let mut pieces = Vec::with_capacity(2 * self.placed.len());
        let mut at = 0;
        for (variable, block) in &self.placed {
            let block = &self.variables[*variable].blocks[*block];
            if at < block.position {
                pieces.push(Bytes::from_static(&PADDING).slice(..(block.position - at) as usize));
            }
            at = block.position + block.bytes;
            pieces.push(block.data.clone().expect("all spans are filled"));
        }
        let part = Part {
            version: STEP_VERSION,
            run,
            step,
            rank,
            data: PartData::Here,
            attributes: Vec::new(),
            variables: self.variables.into_iter().map(Staged::finish).collect(),
        };
        Ok((part, join_short(pieces, self.bytes)))
    }

    /// What a block's variable is and how long its data, if it may be put.
    fn check(&self, put: &Put<'_>) -> Result<(Staged, u64), PutError> {
        let fresh = put.variable()?;
        if let Some(index) = self.known.get(put.name) {
            self.variables[*index].agree(&fresh)?;
        }
        Ok((fresh, put.bytes()?))
    }

    /// Adds a block, which has no memory yet.
    fn reserve(
        &mut self,
        put: &Put<'_>,
        fresh: Staged,
        bytes: u64,
    ) -> Result<(usize, usize), PutError> {
        let position = match bytes {
            0 => 0,
            _ => self.bytes.next_multiple_of(BLOCK_ALIGNMENT),
        };
        // The sum of what is put stays far below where the next multiple would be too much.
        let end = position
            .checked_add(bytes)
            .filter(|end| *end <= i64::MAX as u64);
        let Some(end) = end else {
            return Err(put.refuse("the part has more bytes than can be addressed".to_owned()));
        };
        let index = self.variable(fresh);
        let variable = &mut self.variables[index];
        match put.place {
            Place::Array { start, .. } => variable.starts.extend_from_slice(start),
            _ => variable.starts.extend(put.count.iter().map(|_| 0)),
        }
        variable.counts.extend_from_slice(put.count);
        variable.blocks.push(StagedBlock {
            position,
            bytes,
            data: None,
            with_extremes: put.with_extremes,
            extremes: None,
        });
        let block = variable.blocks.len() - 1;
        if bytes > 0 {
            self.bytes = end;
            self.placed.push((index, block));
        }
        Ok((index, block))
    }

    fn give(&mut self, variable: usize, block: usize, data: Bytes) {
        let variable = &mut self.variables[variable];
        let block = &mut variable.blocks[block];
        if block.with_extremes {
            block.extremes = variable.dtype.extremes(&data);
        }
        block.data = Some(data);
    }

    /// The variable of this one's name, or this one.
    fn variable(&mut self, fresh: Staged) -> usize {
        if let Some(index) = self.known.get(&fresh.name) {
            return *index;
        }
        self.known.insert(fresh.name.clone(), self.variables.len());
        self.variables.push(fresh);
        self.variables.len() - 1
    }
}

impl Put<'_> {
    fn refuse(&self, reason: String) -> PutError {
        PutError {
            variable: self.name.to_owned(),
            reason,
        }
    }

    /// How long its data is.
    pub(crate) fn bytes(&self) -> Result<u64, PutError> {
        let item_bytes = u64::from(self.dtype.item_bytes());
        let bytes = match self.count.contains(&0) {
            true => Some(0),
            false => self
                .count
                .iter()
                .try_fold(item_bytes, |bytes, count| bytes.checked_mul(*count)),
        };
        let bytes = bytes.filter(|bytes| *bytes <= i64::MAX as u64);
        bytes.ok_or_else(|| {
            let count = self.count;
            self.refuse(format!(
                "{count:?} elements have more bytes than can be addressed"
            ))
        })
    }

    /// What its variable is.
    fn variable(&self) -> Result<Staged, PutError> {
        if self.dtype.is_text() {
            return Err(self.refuse("text is put as a value, not as an array".to_owned()));
        }
        let dimensions = self.count.len();
        if dimensions > DIMENSIONS_MAX {
            return Err(self.refuse(format!(
                "{dimensions} dimensions; the limit is {DIMENSIONS_MAX}"
            )));
        }
        let (kind, joined, shape) = match self.place {
            Place::Array { shape, start } => {
                let had = [shape.len(), start.len()];
                if had != [dimensions; 2] {
                    return Err(self.refuse(format!(
                        "shape {shape:?}, start {start:?} and count {:?} have other numbers of \
                         dimensions",
                        self.count
                    )));
                }
                for (dimension, length) in shape.iter().enumerate() {
                    let (start, count) = (start[dimension], self.count[dimension]);
                    if start.checked_add(count).is_none_or(|end| end > *length) {
                        return Err(self.refuse(format!(
                            "{count} elements from {start} on along dimension {dimension}, whose \
                             length is {length}"
                        )));
                    }
                }
                (ShapeKind::Array, 0, shape.to_vec())
            }
            Place::Joined(along) => {
                if along as usize >= dimensions {
                    return Err(
                        self.refuse(format!("joined along dimension {along} of {dimensions}"))
                    );
                }
                let mut shape = self.count.to_vec();
                shape[along as usize] = 0;
                (ShapeKind::Joined, along, shape)
            }
            Place::Local => (ShapeKind::LocalArray, 0, Vec::new()),
        };
        Staged::new(self.name, kind, self.dtype, joined, shape, dimensions)
    }
}

/// The same bytes in [`PIECES_MAX`] pieces at most: short ones are copied together with those beside
/// them.
fn join_short(pieces: Vec<Bytes>, bytes: u64) -> Vec<Bytes> {
    if pieces.len() <= PIECES_MAX {
        return pieces;
    }
    // A quarter of the limit at most are so long, joined ones among them; shorter joined ones are before
    // one of those, or the last.
    let least = bytes.div_ceil(PIECES_MAX as u64 / 4) as usize;
    let mut joined = Vec::with_capacity(PIECES_MAX);
    let mut short = Vec::new();
    for piece in pieces {
        if piece.len() < least {
            short.extend_from_slice(&piece);
        }
        if short.len() >= least || (piece.len() >= least && !short.is_empty()) {
            joined.push(Bytes::from(std::mem::take(&mut short)));
        }
        if piece.len() >= least {
            joined.push(piece);
        }
    }
    if !short.is_empty() {
        joined.push(Bytes::from(short));
    }
    joined
}

impl Staged {
    fn new(
        name: &str,
        kind: ShapeKind,
        dtype: &DType,
        joined: u32,
        shape: Vec<u64>,
        dimensions: usize,
    ) -> Result<Self, PutError> {
        let bytes = name.len();
        if bytes == 0 || bytes > STEP_NAME_BYTES_MAX {
            return Err(PutError {
                // A long name is not said twice.
                variable: name.chars().take(100).collect(),
                reason: format!("a name of {bytes} bytes; 1 to {STEP_NAME_BYTES_MAX} are allowed"),
            });
        }
        Ok(Self {
            name: name.to_owned(),
            kind,
            dtype: dtype.clone(),
            joined,
            shape,
            dimensions,
            starts: Vec::new(),
            counts: Vec::new(),
            blocks: Vec::new(),
            value: None,
        })
    }

    /// Refuses another opinion of what the variable is in this step.
    fn agree(&self, other: &Self) -> Result<(), PutError> {
        let differ = |what: &str, before: String, now: String| {
            Err(PutError {
                variable: self.name.clone(),
                reason: format!("it was put with {what} {before} in this step, now with {now}"),
            })
        };
        if self.dtype != other.dtype {
            return differ("type", self.dtype.to_string(), other.dtype.to_string());
        }
        if self.kind != other.kind {
            let [before, now] = [self.kind, other.kind].map(|kind| format!("{kind:?}"));
            return differ("kind", before, now);
        }
        if self.joined != other.joined {
            let (before, now) = (self.joined, other.joined);
            return differ("joined dimension", before.to_string(), now.to_string());
        }
        if self.dimensions != other.dimensions {
            let (before, now) = (self.dimensions, other.dimensions);
            return differ("dimensions", before.to_string(), now.to_string());
        }
        if self.shape != other.shape {
            let [before, now] = [&self.shape, &other.shape].map(|shape| format!("{shape:?}"));
            return differ("shape", before, now);
        }
        Ok(())
    }

    fn finish(self) -> Variable {
        let item_bytes = self.dtype.item_bytes();
        // A block without elements has none that is least: zeros stand in its place.
        let is_known = |block: &StagedBlock| block.extremes.is_some() || block.bytes == 0;
        let are_known =
            self.blocks.iter().all(is_known) && self.blocks.iter().any(|block| block.with_extremes);
        let extremes = |of: fn(&Extremes) -> &Vec<u8>| {
            let mut all = Vec::new();
            for block in self.blocks.iter().filter(|_| are_known) {
                match &block.extremes {
                    Some(extremes) => all.extend_from_slice(of(extremes)),
                    None => all.resize(all.len() + item_bytes as usize, 0),
                }
            }
            Bytes::from(all)
        };
        let (mins, maxs) = (extremes(|both| &both.min), extremes(|both| &both.max));
        Variable {
            name: self.name,
            kind: self.kind,
            dtype: self.dtype.as_str().to_owned(),
            item_bytes,
            joined: self.joined,
            shape: self.shape,
            blocks: Blocks {
                ranks: Vec::new(),
                starts: self.starts,
                counts: self.counts,
                positions: self.blocks.iter().map(|block| block.position).collect(),
                bytes: self.blocks.iter().map(|block| block.bytes).collect(),
                values: self.value.into_iter().collect(),
                mins,
                maxs,
            },
        }
    }
}

#[cfg(test)]
mod tests;
