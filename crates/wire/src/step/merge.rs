//! Parts as one table. A step of many ranks and variables has many blocks: none of them is taken out
//! of the bytes that it came in before it is written to the table.

use super::{Part, ShapeKind, TableEntry};
use crate::codec::{Codec, DecodeError, Reader, Write};
use crate::id::Rank;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Why parts make no step: a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeError(pub String);

/// A part that was read and checked. Its variables stay as they are encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPart {
    /// What it says, without its variables.
    pub head: Part,
    /// The list of its variables, encoded.
    variables: Bytes,
}

impl CheckedPart {
    /// Reads a part, as [`Part::read`] does.
    ///
    /// # Errors
    /// As that.
    pub fn read(bytes: &[u8], data_bytes: u64) -> Result<Self, DecodeError> {
        let mut head = Part::read(bytes, data_bytes)?;
        head.variables.clear();
        // Its list of variables ends it, and is a number now.
        let start = head.to_bytes().len() - size_of::<u32>();
        Ok(Self {
            head,
            // Not a slice: the batch that it came in is not kept for it.
            variables: Bytes::copy_from_slice(&bytes[start..]),
        })
    }
}

impl From<&Part> for CheckedPart {
    /// A part whose columns fit one another.
    fn from(part: &Part) -> Self {
        Self {
            head: Part {
                variables: Vec::new(),
                attributes: part.attributes.clone(),
                ..*part
            },
            variables: part.variables.to_bytes().into(),
        }
    }
}

/// The variables of a step's parts as one table: entries and columns. Parts are in the order of
/// their ranks.
///
/// # Errors
/// Parts that do not agree on what a variable is: a sentence that names it and the ranks.
pub fn merge(parts: &[Part]) -> Result<(Vec<TableEntry>, Bytes), MergeError> {
    let parts: Vec<CheckedPart> = parts.iter().map(CheckedPart::from).collect();
    merge_checked(&parts)
}

/// [`merge`], of parts as they came.
///
/// # Errors
/// As that.
pub fn merge_checked(parts: &[CheckedPart]) -> Result<(Vec<TableEntry>, Bytes), MergeError> {
    let mut wholes: Vec<Whole<'_>> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for (index_of_part, part) in parts.iter().enumerate() {
        let rank = part.head.rank;
        let mut variables = Reader::new("part of a step", &part.variables);
        // Ranks put the same variables in the same order, most likely.
        let mut likely = 0;
        for _ in 0..variables.u32()? {
            let description = Description::read(&mut variables)?;
            let place = (index_of_part as u32, variables.position() as u32);
            let columns = Columns::read(&mut variables)?;
            let found = match wholes.get(likely) {
                Some(whole) if whole.description.name == description.name => Some(likely),
                _ => known.get(description.name).copied(),
            };
            let index = found.unwrap_or(wholes.len());
            likely = index + 1;
            if found.is_none() {
                known.insert(description.name, index);
                wholes.push(Whole {
                    first: rank,
                    description,
                    local_dimensions: None,
                    blocks: Vec::new(),
                });
            }
            let whole = &mut wholes[index];
            whole.agree(&description, &columns, rank)?;
            whole.blocks.push(place);
        }
    }
    let bytes = parts.iter().map(|part| part.variables.len()).sum();
    let mut columns = Vec::with_capacity(bytes);
    let mut of_ranks = Vec::with_capacity(parts.len());
    let entries = wholes.into_iter().map(|whole| {
        of_ranks.clear();
        for (part, place) in whole.blocks {
            let part = &parts[part as usize];
            let columns = &part.variables[place as usize..];
            let columns = Columns::read(&mut Reader::new("blocks", columns))?;
            of_ranks.push((part.head.rank, columns));
        }
        whole.description.entry(&of_ranks, &mut columns)
    });
    let entries = entries.collect::<Result<_, MergeError>>()?;
    Ok((entries, columns.into()))
}

/// A number of things as a table has it.
fn length(count: usize) -> Result<u32, MergeError> {
    let reason = || MergeError("the table of the step has 4 GiB or more".to_owned());
    u32::try_from(count).map_err(|_| reason())
}

impl From<DecodeError> for MergeError {
    /// A part that was checked can be read: this is for what cannot be.
    fn from(error: DecodeError) -> Self {
        Self(error.to_string())
    }
}

/// What a part says of a variable, but for its blocks.
#[derive(Debug, Clone, Copy)]
struct Description<'a> {
    name: &'a str,
    kind: ShapeKind,
    dtype: &'a str,
    item_bytes: u32,
    joined: u32,
    /// Numbers of 8 bytes.
    shape: &'a [u8],
}

/// The blocks of a variable, encoded: columns of numbers of 8 bytes, one behind the other.
#[derive(Debug, Clone, Copy)]
struct Columns<'a> {
    starts: &'a [u8],
    counts: &'a [u8],
    positions: &'a [u8],
    bytes: &'a [u8],
    value_count: usize,
    /// Each behind its length.
    values: &'a [u8],
    mins: &'a [u8],
    maxs: &'a [u8],
}

/// A variable of all parts.
struct Whole<'a> {
    /// The first rank that has it.
    first: Rank,
    description: Description<'a>,
    /// Of local arrays, once there is a block.
    local_dimensions: Option<usize>,
    /// Which parts have it, and where in their variables its blocks are. (A part is the metadata of
    /// an event, which is far shorter than 4 GiB.)
    blocks: Vec<(u32, u32)>,
}

/// A list of numbers of 8 bytes, as it is encoded.
fn numbers<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let count = from.count(8)?;
    from.bytes(8 * count)
}

fn decoded(numbers: &[u8]) -> impl Iterator<Item = u64> {
    let chunks = numbers.as_chunks::<8>().0.iter();
    chunks.map(|bytes| u64::from_le_bytes(*bytes))
}

impl<'a> Description<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            name: from.text()?,
            kind: ShapeKind::decode(from)?,
            dtype: from.text()?,
            item_bytes: from.u32()?,
            joined: from.u32()?,
            shape: numbers(from)?,
        })
    }

    /// Writes the blocks of all parts to the columns of a table.
    fn entry(
        self,
        of_ranks: &[(Rank, Columns<'_>)],
        columns: &mut Vec<u8>,
    ) -> Result<TableEntry, MergeError> {
        let at = columns.len();
        let count_of = |of: &Columns<'_>| of.block_count(self.kind);
        let block_count = of_ranks.iter().map(|(_, of)| count_of(of)).sum();
        columns.put_u32(length(block_count)?);
        for (rank, of) in of_ranks {
            for _ in 0..count_of(of) {
                columns.put_u32(rank.0);
            }
        }
        let mut shape: Vec<u64> = decoded(self.shape).collect();
        let columns_of: [for<'b> fn(&Columns<'b>) -> &'b [u8]; 3] =
            [|of| of.counts, |of| of.positions, |of| of.bytes];
        let all = |of: for<'b> fn(&Columns<'b>) -> &'b [u8], columns: &mut Vec<u8>| {
            let bytes: usize = of_ranks.iter().map(|(_, its)| of(its).len()).sum();
            columns.put_u32(length(bytes / 8)?);
            for (_, its) in of_ranks {
                columns.put(of(its));
            }
            Ok::<_, MergeError>(())
        };
        let starts_at = columns.len() + size_of::<u32>();
        all(|of| of.starts, columns)?;
        if self.kind == ShapeKind::Joined {
            shape[self.joined as usize] = self.join(of_ranks, &mut columns[starts_at..]);
        }
        for of in columns_of {
            all(of, columns)?;
        }
        let values: usize = of_ranks.iter().map(|(_, of)| of.value_count).sum();
        columns.put_u32(length(values)?);
        of_ranks.iter().for_each(|(_, of)| columns.put(of.values));
        let extremes: [for<'b> fn(&Columns<'b>) -> &'b [u8]; 2] = [|of| of.mins, |of| of.maxs];
        for of in extremes {
            // They are known of all blocks, or of none.
            let is_known =
                |(_, its): &(Rank, Columns<'_>)| count_of(its) == 0 || !of(its).is_empty();
            let known = match of_ranks.iter().all(is_known) {
                true => of_ranks,
                false => &[],
            };
            let bytes: usize = known.iter().map(|(_, its)| of(its).len()).sum();
            columns.put_u32(length(bytes)?);
            known.iter().for_each(|(_, its)| columns.put(of(its)));
        }
        Ok(TableEntry {
            shape: match self.kind {
                ShapeKind::LocalValue => vec![block_count as u64],
                _ => shape,
            },
            name: self.name.to_owned(),
            kind: self.kind,
            dtype: self.dtype.to_owned(),
            item_bytes: self.item_bytes,
            joined: self.joined,
            block_count: length(block_count)?,
            at: length(at)?,
            bytes: length(columns.len() - at)?,
        })
    }

    /// Gives joined blocks their places, in `starts`; gives the length of the whole.
    fn join(&self, of_ranks: &[(Rank, Columns<'_>)], starts: &mut [u8]) -> u64 {
        let (dimensions, joined) = (self.shape.len() / 8, self.joined as usize);
        let counts = of_ranks.iter().flat_map(|(_, of)| decoded(of.counts));
        let counts = counts.skip(joined).step_by(dimensions);
        let mut at = 0u64;
        for (start, count) in starts.chunks_mut(8 * dimensions).zip(counts) {
            start[8 * joined..][..8].copy_from_slice(&at.to_le_bytes());
            at = at.saturating_add(count);
        }
        at
    }
}

impl<'a> Columns<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        // Which ranks: a part does not say that.
        let ranks = from.count(4)?;
        from.bytes(4 * ranks)?;
        let (starts, counts) = (numbers(from)?, numbers(from)?);
        let (positions, bytes) = (numbers(from)?, numbers(from)?);
        let value_count = from.count(4)?;
        let before = from.rest();
        for _ in 0..value_count {
            from.sized()?;
        }
        let values = &before[..before.len() - from.rest().len()];
        Ok(Self {
            starts,
            counts,
            positions,
            bytes,
            value_count,
            values,
            mins: from.sized()?,
            maxs: from.sized()?,
        })
    }

    fn block_count(&self, kind: ShapeKind) -> usize {
        match kind {
            ShapeKind::Value | ShapeKind::LocalValue => self.value_count,
            ShapeKind::Array | ShapeKind::Joined | ShapeKind::LocalArray => self.bytes.len() / 8,
        }
    }
}

impl Whole<'_> {
    /// Refuses another opinion of what the variable is.
    fn agree(
        &mut self,
        other: &Description<'_>,
        columns: &Columns<'_>,
        rank: Rank,
    ) -> Result<(), MergeError> {
        let (whole, name, first) = (&self.description, other.name, self.first);
        let differ = |what: &str, a: String, b: String| {
            Err(MergeError(format!(
                "variable {name:?} has {what} {a} on rank {first} and {b} on rank {rank}"
            )))
        };
        if whole.dtype != other.dtype {
            return differ("type", whole.dtype.to_owned(), other.dtype.to_owned());
        }
        if whole.item_bytes != other.item_bytes {
            let (a, b) = (whole.item_bytes, other.item_bytes);
            return differ("elements of bytes", a.to_string(), b.to_string());
        }
        if whole.kind != other.kind {
            let [a, b] = [whole.kind, other.kind].map(|kind| format!("{kind:?}"));
            return differ("kind", a, b);
        }
        if whole.kind == ShapeKind::Joined && whole.joined != other.joined {
            let (a, b) = (whole.joined, other.joined);
            return differ("joined dimension", a.to_string(), b.to_string());
        }
        let blocks = columns.block_count(whole.kind);
        if whole.kind == ShapeKind::LocalArray && blocks > 0 {
            let dimensions = columns.counts.len() / columns.bytes.len();
            let known = *self.local_dimensions.get_or_insert(dimensions);
            if known != dimensions {
                return differ("dimensions", known.to_string(), dimensions.to_string());
            }
        }
        let is_local = whole.kind == ShapeKind::LocalArray;
        if !is_local && whole.shape != other.shape {
            let shape_of = |of: &Description<'_>| {
                let mut shape: Vec<u64> = decoded(of.shape).collect();
                if of.kind == ShapeKind::Joined
                    && let Some(length) = shape.get_mut(of.joined as usize)
                {
                    *length = 0;
                }
                shape
            };
            let [a, b] = [whole, other].map(shape_of);
            if a != b {
                return differ("shape", format!("{a:?}"), format!("{b:?}"));
            }
        }
        Ok(())
    }
}
