//! Steps as bytes: what a rank has written of a step (a part), and what all have (the table of a
//! record). The page is `docs/format/steps.md`.
//!
//! A part is an event: its metadata is a [`Part`], its data the blocks, one behind the other. A
//! record is an event of partition 0: its metadata is JSON for people and filters, its data a
//! [`StepTable`].

use crate::codec::{Codec, DecodeError, Reader, Write, record};
use crate::id::*;
use bytes::Bytes;

mod merge;

pub use merge::{CheckedPart, MergeError, merge, merge_checked};

/// The version of parts and tables that this code reads and writes.
pub const STEP_VERSION: u16 = 1;
/// Blocks begin at multiples of this in a part's data.
pub const BLOCK_ALIGNMENT: u64 = 64;
/// The most dimensions of an array.
pub const DIMENSIONS_MAX: usize = 32;
/// The longest name of a variable or attribute, bytes.
pub const STEP_NAME_BYTES_MAX: usize = 1024;
/// The most bytes that a rank holds of one part: nobody has so much memory. It is a length that
/// nothing else shows to be true, and sums over ranks and steps are made of it.
pub const HELD_BYTES_MAX: u64 = 1 << 40;
/// The longest text of a type, bytes.
pub const DTYPE_BYTES_MAX: usize = 64 * 1024;

/// How the blocks of a variable make a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ShapeKind {
    /// One value for all; of several ranks' the lowest one's counts.
    Value = 0,
    /// Blocks of one array, each at its place.
    Array = 1,
    /// Blocks that follow one another along one dimension, in the order of ranks.
    Joined = 2,
    /// A value of each rank: an array of one dimension.
    LocalValue = 3,
    /// Blocks that are arrays by themselves.
    LocalArray = 4,
}

impl Codec for ShapeKind {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(*self as u8);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            0 => Self::Value,
            1 => Self::Array,
            2 => Self::Joined,
            3 => Self::LocalValue,
            4 => Self::LocalArray,
            other => return Err(from.refuse("shape kind", u64::from(other))),
        })
    }
}

record! {
    /// An attribute of a run: what describes it and all of its steps from here on.
    pub struct Attribute {
        pub name: String,
        /// Type of its elements, as NumPy writes it (`<f8`), or `str`.
        pub dtype: String,
        /// Whether it is a list, of any length; else a single value.
        pub is_list: bool,
        /// Its elements, one behind the other; of `str` each behind its length, a `u32`.
        pub value: Bytes,
    }
}

record! {
    /// Blocks of a variable, by columns: each has as many items as there are blocks, or that times
    /// the number of dimensions.
    pub struct Blocks {
        /// Which rank wrote each; empty in a part.
        pub ranks: Vec<u32>,
        /// Where each begins in the whole, a number each dimension.
        pub starts: Vec<u64>,
        /// How many elements each has, a number each dimension.
        pub counts: Vec<u64>,
        /// Where each begins in its part's data.
        pub positions: Vec<u64>,
        /// How long each is there.
        pub bytes: Vec<u64>,
        /// Values of [`ShapeKind::Value`] and [`ShapeKind::LocalValue`], which are in no data.
        pub values: Vec<Bytes>,
        /// Least element of each, one behind the other; empty if not known.
        pub mins: Bytes,
        /// Greatest element of each.
        pub maxs: Bytes,
    }
}

record! {
    /// A variable of one step.
    pub struct Variable {
        pub name: String,
        pub kind: ShapeKind,
        /// Type of its elements, as NumPy writes it: `<f8`, `<c16`, `|V24`; `str` is text, a JSON list is a structure.
        pub dtype: String,
        /// Length of an element; 0 of text.
        pub item_bytes: u32,
        /// The dimension along which blocks of [`ShapeKind::Joined`] follow one another.
        pub joined: u32,
        /// Lengths of the whole; of [`ShapeKind::LocalArray`] empty, of a joined dimension in a part 0.
        pub shape: Vec<u64>,
        pub blocks: Blocks,
    }
}

record! {
    /// What a rank has written of a step: the metadata of the part's event.
    pub struct Part {
        pub version: u16,
        pub run: Run,
        pub step: Step,
        pub rank: Rank,
        /// Where its data is.
        pub data: PartData,
        /// Those that are new, or have changed.
        pub attributes: Vec<Attribute>,
        /// In the order in which they were put.
        pub variables: Vec<Variable>,
    }
}

/// Where the data of a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartData {
    /// In the part's event.
    Here,
    /// Nowhere: the step was dropped, there are attributes alone.
    Dropped,
    /// At its writer, which keeps so many bytes of it until they are asked for. The event has none.
    Held(u64),
    /// In this event: data of the part of its run, step and rank that was held. It has neither
    /// attributes nor variables, and belongs to no step by itself.
    Sent,
}

impl PartData {
    /// Length of the data of a part whose event has so many bytes.
    pub fn bytes(self, of_event: u64) -> u64 {
        match self {
            Self::Held(bytes) => bytes,
            Self::Here | Self::Dropped | Self::Sent => of_event,
        }
    }
}

impl Codec for PartData {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Here => out.put_u8(0),
            Self::Dropped => out.put_u8(1),
            Self::Held(bytes) => {
                out.put_u8(2);
                out.put_u64(*bytes);
            }
            Self::Sent => out.put_u8(3),
        }
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            0 => Self::Here,
            1 => Self::Dropped,
            2 => Self::Held(from.u64()?),
            3 => Self::Sent,
            other => return Err(from.refuse("place of a part's data", u64::from(other))),
        })
    }
}

record! {
    /// Where a part is.
    pub struct PartPlace {
        pub partition: PartitionIndex,
        pub incarnation: Incarnation,
        pub offset: Offset,
        /// Length of its data.
        pub bytes: u64,
    }
}

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A run has begun.
    Opened = 0,
    /// A step is complete.
    Step = 1,
    /// A step was dropped.
    Discarded = 2,
    /// A run was closed by all of its ranks.
    Closed = 3,
    /// A run has ended without being closed.
    Broken = 4,
    /// Ranks have closed the run, and others have not yet.
    Closing = 5,
}

impl RecordKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Opened,
        Self::Step,
        Self::Discarded,
        Self::Closed,
        Self::Broken,
        Self::Closing,
    ];

    /// The kind that a record's metadata names.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it says what has become of a step.
    pub fn is_of_step(self) -> bool {
        matches!(self, Self::Step | Self::Discarded)
    }

    /// Whether it is the last one of its run.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Closed | Self::Broken)
    }

    /// The word for it in a record's metadata.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opened => "run opened",
            Self::Step => "step",
            Self::Discarded => "discarded",
            Self::Closed => "run closed",
            Self::Broken => "run broken",
            Self::Closing => "ranks closed",
        }
    }
}

impl Codec for RecordKind {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(*self as u8);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            0 => Self::Opened,
            1 => Self::Step,
            2 => Self::Discarded,
            3 => Self::Closed,
            4 => Self::Broken,
            5 => Self::Closing,
            other => return Err(from.refuse("kind of record", u64::from(other))),
        })
    }
}

record! {
    /// A variable in a table: its columns are read when they are wanted.
    pub struct TableEntry {
        pub name: String,
        pub kind: ShapeKind,
        pub dtype: String,
        pub item_bytes: u32,
        pub joined: u32,
        /// Lengths of the whole, of a joined dimension too.
        pub shape: Vec<u64>,
        pub block_count: u32,
        /// Where its [`Blocks`] are in [`StepTable::columns`].
        pub at: u32,
        pub bytes: u32,
    }
}

record! {
    /// What a record says: the data of its event.
    pub struct StepTable {
        pub version: u16,
        pub kind: RecordKind,
        /// Name of the writing program.
        pub writer: String,
        pub run: Run,
        /// The step; of a run's beginning and end, the step that would be next.
        pub step: Step,
        /// How many ranks write.
        pub ranks: u32,
        /// Why a step was dropped or a run broke; empty otherwise.
        pub reason: String,
        /// Whether `attributes` are all of the run, not only those that changed.
        pub is_full: bool,
        /// Offset of the latest record before this one that has all attributes, or this one's own.
        pub full_at: Offset,
        pub attributes: Vec<Attribute>,
        /// The part of each rank, in their order.
        pub parts: Vec<PartPlace>,
        /// For each partition of parts: before this, every part is in a record or of no use.
        pub done: Vec<(PartitionIndex, Offset)>,
        /// In the order in which they were put first.
        pub variables: Vec<TableEntry>,
        /// The [`Blocks`] of all variables.
        pub columns: Bytes,
    }
}

impl Part {
    /// Reads a part and checks that its columns are as long as they have to be, and its blocks
    /// within data of `data_bytes`, or as many as its writer holds.
    ///
    /// # Errors
    /// Bytes that are no part of this version, or name what cannot be.
    pub fn read(bytes: &[u8], data_bytes: u64) -> Result<Self, DecodeError> {
        let what = "part of a step";
        let version = Reader::new(what, bytes).u16()?;
        if version != STEP_VERSION {
            let (found, own) = (u64::from(version), u64::from(STEP_VERSION));
            return Err(DecodeError::version(what, 0, "version", found, own));
        }
        let part = Self::from_bytes(what, bytes)?;
        let refuse = |field, found| Err(DecodeError::value(what, 0, field, found));
        if matches!(part.data, PartData::Held(_)) && data_bytes > 0 {
            return refuse("data of a part that is held", data_bytes);
        }
        let is_bare = part.variables.is_empty() && part.attributes.is_empty();
        if part.data == PartData::Sent && !is_bare {
            return refuse(
                "variables of data that was held",
                part.variables.len() as u64,
            );
        }
        let data_bytes = part.data.bytes(data_bytes);
        if matches!(part.data, PartData::Held(_)) && data_bytes > HELD_BYTES_MAX {
            return refuse("length of data that is held", data_bytes);
        }
        for variable in &part.variables {
            if variable.name.is_empty() || variable.name.len() > STEP_NAME_BYTES_MAX {
                return refuse("length of a variable's name", variable.name.len() as u64);
            }
            if variable.dtype.len() > DTYPE_BYTES_MAX {
                return refuse("length of a type's text", variable.dtype.len() as u64);
            }
            let dimensions = variable.dimensions();
            if dimensions > DIMENSIONS_MAX {
                return refuse("dimensions", dimensions as u64);
            }
            let has_shape = matches!(variable.kind, ShapeKind::Array | ShapeKind::Joined);
            if !has_shape && !variable.shape.is_empty() {
                return refuse("shape of what has none", variable.shape.len() as u64);
            }
            if variable.kind == ShapeKind::Joined && variable.joined as usize >= dimensions {
                return refuse("joined dimension", u64::from(variable.joined));
            }
            variable.check_columns(dimensions, false)?;
            let ends = variable.blocks.positions.iter().zip(&variable.blocks.bytes);
            for (position, bytes) in ends {
                if position
                    .checked_add(*bytes)
                    .is_none_or(|end| end > data_bytes)
                {
                    return refuse("end of a block", position.saturating_add(*bytes));
                }
            }
        }
        for attribute in &part.attributes {
            if attribute.name.is_empty() || attribute.name.len() > STEP_NAME_BYTES_MAX {
                return refuse("length of an attribute's name", attribute.name.len() as u64);
            }
            if attribute.dtype.len() > DTYPE_BYTES_MAX {
                return refuse("length of a type's text", attribute.dtype.len() as u64);
            }
        }
        Ok(part)
    }
}

impl Variable {
    /// How many dimensions its blocks have.
    pub fn dimensions(&self) -> usize {
        match self.kind {
            ShapeKind::Value | ShapeKind::LocalValue => 0,
            ShapeKind::Array | ShapeKind::Joined => self.shape.len(),
            ShapeKind::LocalArray => match self.blocks.bytes.len() {
                0 => 0,
                blocks => self.blocks.counts.len() / blocks,
            },
        }
    }

    /// How many blocks it has.
    pub fn block_count(&self) -> usize {
        match self.kind {
            ShapeKind::Value | ShapeKind::LocalValue => self.blocks.values.len(),
            ShapeKind::Array | ShapeKind::Joined | ShapeKind::LocalArray => self.blocks.bytes.len(),
        }
    }

    fn check_columns(&self, dimensions: usize, in_table: bool) -> Result<(), DecodeError> {
        self.blocks.check(
            self.kind,
            self.block_count(),
            dimensions,
            self.item_bytes,
            in_table,
        )?;
        // Joined blocks have their places in a table only.
        let places = match self.kind {
            ShapeKind::Array => &self.shape[..],
            ShapeKind::Joined if in_table => &self.shape[..],
            _ => &[],
        };
        if places.is_empty() {
            return Ok(());
        }
        let blocks = self
            .blocks
            .starts
            .chunks(dimensions)
            .zip(self.blocks.counts.chunks(dimensions));
        for (starts, counts) in blocks {
            for ((start, count), length) in starts.iter().zip(counts).zip(places) {
                if start.checked_add(*count).is_none_or(|end| end > *length) {
                    let found = start.saturating_add(*count);
                    return Err(DecodeError::value("blocks", 0, "end in the whole", found));
                }
            }
        }
        Ok(())
    }
}

impl Blocks {
    /// No blocks.
    pub fn none() -> Self {
        Self {
            ranks: Vec::new(),
            starts: Vec::new(),
            counts: Vec::new(),
            positions: Vec::new(),
            bytes: Vec::new(),
            values: Vec::new(),
            mins: Bytes::new(),
            maxs: Bytes::new(),
        }
    }

    /// Refuses columns that do not fit one another.
    fn check(
        &self,
        kind: ShapeKind,
        count: usize,
        dimensions: usize,
        item_bytes: u32,
        in_table: bool,
    ) -> Result<(), DecodeError> {
        let is_value = matches!(kind, ShapeKind::Value | ShapeKind::LocalValue);
        let in_data = if is_value { 0 } else { count };
        let ends = count * item_bytes as usize;
        let lengths = [
            ("ranks", self.ranks.len(), if in_table { count } else { 0 }),
            (
                "values",
                self.values.len(),
                if is_value { count } else { 0 },
            ),
            ("positions", self.positions.len(), in_data),
            ("lengths", self.bytes.len(), in_data),
            ("starts", self.starts.len(), in_data * dimensions),
            ("counts", self.counts.len(), in_data * dimensions),
            (
                "mins",
                self.mins.len(),
                if self.mins.is_empty() { 0 } else { ends },
            ),
            (
                "maxs",
                self.maxs.len(),
                if self.maxs.is_empty() { 0 } else { ends },
            ),
        ];
        for (field, found, wanted) in lengths {
            if found != wanted {
                return Err(DecodeError::value("blocks", 0, field, found as u64));
            }
        }
        // Text has any length, and is in no array.
        let other = |value: &&Bytes| item_bytes != 0 && value.len() != item_bytes as usize;
        if let Some(value) = self.values.iter().find(other) {
            let found = value.len() as u64;
            return Err(DecodeError::value("blocks", 0, "length of a value", found));
        }
        if in_data == 0 {
            return Ok(());
        }
        if item_bytes == 0 {
            return Err(DecodeError::value("blocks", 0, "length of an element", 0));
        }
        for (block, bytes) in self.bytes.iter().enumerate() {
            let counts = &self.counts[block * dimensions..(block + 1) * dimensions];
            let elements = counts
                .iter()
                .try_fold(1u64, |product, count| product.checked_mul(*count));
            let wanted = elements.and_then(|elements| elements.checked_mul(u64::from(item_bytes)));
            if wanted != Some(*bytes) {
                return Err(DecodeError::value("blocks", 0, "length of a block", *bytes));
            }
        }
        Ok(())
    }
}

impl StepTable {
    /// Reads a table.
    ///
    /// # Errors
    /// Bytes that are no table of this version.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "table of a step";
        let version = Reader::new(what, bytes).u16()?;
        if version != STEP_VERSION {
            let (found, own) = (u64::from(version), u64::from(STEP_VERSION));
            return Err(DecodeError::version(what, 0, "version", found, own));
        }
        let table = Self::from_bytes(what, bytes)?;
        for entry in &table.variables {
            let end = u64::from(entry.at) + u64::from(entry.bytes);
            if end > table.columns.len() as u64 || entry.shape.len() > DIMENSIONS_MAX {
                return Err(DecodeError::value(what, 0, "end of columns", end));
            }
        }
        Ok(table)
    }

    /// The blocks of a variable.
    ///
    /// # Errors
    /// Columns that do not fit one another, or the parts.
    pub fn blocks(&self, entry: &TableEntry) -> Result<Blocks, DecodeError> {
        let (at, end) = (
            u64::from(entry.at),
            u64::from(entry.at) + u64::from(entry.bytes),
        );
        let Some(columns) = self.columns.get(at as usize..end as usize) else {
            return Err(DecodeError::value("blocks", 0, "end of columns", end));
        };
        let blocks = Blocks::from_bytes("blocks", columns)?;
        let variable = Variable {
            name: entry.name.clone(),
            kind: entry.kind,
            dtype: entry.dtype.clone(),
            item_bytes: entry.item_bytes,
            joined: entry.joined,
            shape: match entry.kind {
                ShapeKind::Array | ShapeKind::Joined => entry.shape.clone(),
                _ => Vec::new(),
            },
            blocks,
        };
        if variable.block_count() != entry.block_count as usize {
            let found = variable.block_count() as u64;
            return Err(DecodeError::value("blocks", 0, "number of blocks", found));
        }
        variable.check_columns(variable.dimensions(), true)?;
        let blocks = variable.blocks;
        for (block, rank) in blocks.ranks.iter().enumerate() {
            let part = self.parts.get(*rank as usize);
            let end = match blocks.bytes.is_empty() {
                true => 0,
                false => blocks.positions[block].saturating_add(blocks.bytes[block]),
            };
            if part.is_none_or(|part| end > part.bytes) {
                return Err(DecodeError::value("blocks", 0, "end in its part", end));
            }
        }
        Ok(blocks)
    }
}
