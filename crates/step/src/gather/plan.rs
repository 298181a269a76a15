//! What is read for a selection, and how it becomes an array.

use super::copy::{Copy, Side};
use super::error::GatherError;
use super::index::Boxes;
use super::layout::{Layout, Wanted};
use crate::faults::{Fault, planted};
use crate::selection::Selection;
use bytes::Bytes;
use std::ops::ControlFlow;
use wire::step::{Blocks, PartPlace, ShapeKind, TableEntry};
use wire::view::{Repeat, SEGMENTS_MAX, StridedSegment};

/// A plan with more pieces than this reads more of what lies between them.
pub const PIECES_MAX: usize = SEGMENTS_MAX;
/// Pieces of this length and more are read as they are.
const PIECE_BYTES_MIN: u64 = 256;
/// Shorter ones are read with what is between them, if more than one byte in so many is wanted.
const FILL: u64 = 4;
/// Among so many others that overlap a block it is looked for one that hides it.
const HIDERS_MAX: usize = 64;

/// Where bytes that were read go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// One behind the other to the result array's memory, from this byte on. What is copied later
    /// leaves them alone.
    Result(u64),
    /// One behind the other to memory of the caller's, which [`Plan::execute`] copies from.
    Buffer,
}

/// What is read of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRead {
    /// Whose part: an index into the table's parts.
    pub rank: u32,
    /// Which bytes of its data. None of them is empty.
    pub segments: Vec<StridedSegment>,
    /// How many that are.
    pub bytes: u64,
    /// Where they go.
    pub to: Destination,
}

/// How much of a result there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coverage {
    /// Elements of the result.
    pub elements: u64,
    /// Those that are in no block: they keep what was there.
    pub uncovered: u64,
}

/// How a selection of a variable becomes a dense array in row-major (C) order.
///
/// Read [`Self::reads`], each to its [`Destination`], then call [`Self::execute`].
#[derive(Debug, Clone)]
pub struct Plan {
    variable: String,
    shape: Vec<u64>,
    item_bytes: u64,
    elements: u64,
    reads: Vec<PartRead>,
    copies: Vec<Paste>,
    /// Values, and where they go.
    values: Vec<(u64, Bytes)>,
    /// Elements of boxes that overlap no other.
    covered: u64,
    /// Boxes that overlap others: indices in the result.
    overlapping: Vec<(Vec<u64>, Vec<u64>)>,
}

/// A box from what was read to where it belongs.
#[derive(Debug, Clone)]
struct Paste {
    read: usize,
    /// Where it begins in what was read.
    from: u64,
    /// Where it begins in the result.
    to: u64,
    copy: Copy,
}

/// A box that a block and a selection have in common.
struct Hit {
    block: usize,
    /// First byte of it in its part's data.
    from: u64,
    /// First byte of it in the result.
    to: u64,
    /// Dimensions with more than one step, the outermost first; `from` counts in the block.
    sides: Vec<Side>,
    /// So many of the outer sides are read piece by piece, the others within a piece.
    outer: usize,
    /// Length of a piece.
    piece: u64,
    /// Whether it lies in one piece in the result and overlaps no other.
    is_direct: bool,
}

impl Plan {
    /// The plan of a selection, for who makes one only: see [`Layout::plan`].
    ///
    /// # Errors
    /// As those of [`Layout::new`] and [`Layout::plan`].
    pub fn new(
        entry: &TableEntry,
        blocks: &Blocks,
        parts: &[PartPlace],
        selection: &Selection,
    ) -> Result<Self, GatherError> {
        Layout::new(entry, blocks.clone(), parts)?.plan(selection)
    }

    /// Shape of the result.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Length of the result in bytes.
    pub fn bytes(&self) -> u64 {
        self.elements * self.item_bytes
    }

    /// What is to be read: nothing that no block has in common with the selection. Parts come in
    /// the order of their ranks; a part may come several times.
    pub fn reads(&self) -> &[PartRead] {
        &self.reads
    }

    /// Puts together what was read: `pieces` has one item for each of [`Self::reads`], in their
    /// order; of what went straight to the result it is not looked at. `out` is the result's
    /// memory.
    ///
    /// Where blocks overlap, the one of the highest rank counts; of one rank, the one that was put
    /// last.
    ///
    /// # Errors
    /// [`GatherError::Length`]: memory that is too short or too long. Nothing was copied.
    pub fn execute(
        &self,
        pieces: &[impl AsRef<[u8]>],
        out: &mut [u8],
    ) -> Result<Coverage, GatherError> {
        let check = |what, needed: u64, had: usize| match needed == had as u64 {
            true => Ok(()),
            false => Err(GatherError::Length {
                variable: self.variable.clone(),
                what,
                needed,
                had: had as u64,
            }),
        };
        check("memory of the result", self.bytes(), out.len())?;
        for (index, read) in self.reads.iter().enumerate() {
            if read.to == Destination::Buffer {
                let had = pieces.get(index).map_or(0, |piece| piece.as_ref().len());
                check("what was read of a part", read.bytes, had)?;
            }
        }
        for (at, value) in &self.values {
            out[*at as usize..][..value.len()].copy_from_slice(value);
        }
        for paste in &self.copies {
            let from = &pieces[paste.read].as_ref()[paste.from as usize..];
            paste.copy.execute(from, &mut out[paste.to as usize..]);
        }
        Ok(Coverage {
            elements: self.elements,
            uncovered: self.elements - self.covered - self.overlapped(),
        })
    }

    /// Elements of the boxes that overlap others, each counted once.
    fn overlapped(&self) -> u64 {
        if self.overlapping.is_empty() {
            return 0;
        }
        // A bit for each element of a result that is there: an eighth of it at most.
        let mut bits = vec![0u64; self.elements.div_ceil(64) as usize];
        for (low, high) in &self.overlapping {
            mark(&mut bits, &self.shape, low, high, 0);
        }
        bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// Sets the bits of a box of an array of this shape, whose first element has the bit `base`.
fn mark(bits: &mut [u64], shape: &[u64], low: &[u64], high: &[u64], base: u64) {
    let [length, inner @ ..] = shape else {
        bits[(base / 64) as usize] |= 1 << (base % 64);
        return;
    };
    let stride: u64 = inner.iter().product();
    if !inner.is_empty() {
        debug_assert!(high[0] <= *length);
        for index in low[0]..high[0] {
            mark(bits, inner, &low[1..], &high[1..], base + index * stride);
        }
        return;
    }
    let (mut at, end) = (base + low[0], base + high[0]);
    while at < end {
        let count = (64 - at % 64).min(end - at);
        bits[(at / 64) as usize] |= (u64::MAX >> (64 - count)) << (at % 64);
        at += count;
    }
}

impl Layout {
    /// Which bytes of which parts a selection is, and how they become its array.
    ///
    /// Rows that touch are joined. Pieces of less than 256 bytes are read with what is between
    /// them, if more than a quarter of that is wanted, or if there were more than [`PIECES_MAX`]
    /// otherwise. A block that is hidden by another one is not read.
    ///
    /// # Errors
    /// What the variable does not have, and text: see [`Self::values`].
    pub fn plan(&self, selection: &Selection) -> Result<Plan, GatherError> {
        let wanted = self.wanted(selection)?;
        if self.item_bytes() == 0 {
            return Err(GatherError::Text {
                variable: self.name().to_owned(),
            });
        }
        let mut plan = Plan {
            variable: self.name().to_owned(),
            shape: wanted.ranges.iter().map(|range| range.count).collect(),
            item_bytes: self.item_bytes(),
            elements: wanted.elements,
            reads: Vec::new(),
            copies: Vec::new(),
            values: Vec::new(),
            covered: 0,
            overlapping: Vec::new(),
        };
        if wanted.elements == 0 {
            return Ok(plan);
        }
        match self.kind() {
            ShapeKind::Value | ShapeKind::LocalValue => self.plan_values(&wanted, &mut plan),
            ShapeKind::Array | ShapeKind::Joined | ShapeKind::LocalArray => {
                let (blocks, boxes) = self.intersect(&wanted);
                let hits = self.hits(&wanted, &blocks, &boxes, &mut plan);
                plan.read(hits, self.blocks());
            }
        }
        Ok(plan)
    }

    fn plan_values(&self, wanted: &Wanted, plan: &mut Plan) {
        let values = &self.blocks().values;
        let index = wanted.block.or_else(|| self.value_index());
        plan.values = match (self.kind(), wanted.block, index) {
            (ShapeKind::LocalValue, None, _) => {
                let range = wanted.ranges[0];
                let places = (0..range.count).map(|index| {
                    let value = &values[(range.start + index * range.step) as usize];
                    (index * self.item_bytes(), value.clone())
                });
                places.collect()
            }
            (_, _, Some(index)) => vec![(0, values[index].clone())],
            (_, _, None) => Vec::new(),
        };
        plan.covered = plan.values.len() as u64;
    }

    /// The blocks that have elements of the selection, in the order in which they are copied, and
    /// the boxes of the result that they are.
    fn intersect(&self, wanted: &Wanted) -> (Vec<usize>, Boxes) {
        let dimensions = wanted.ranges.len();
        let mut blocks = Vec::new();
        match wanted.block {
            Some(block) => blocks.push(block),
            None => {
                let low: Vec<_> = wanted.ranges.iter().map(|range| range.start).collect();
                let end = |range: &crate::selection::Range| range.end().unwrap_or(u64::MAX);
                let high: Vec<_> = wanted.ranges.iter().map(end).collect();
                self.boxes().search(&low, &high, |block| {
                    blocks.push(block);
                    ControlFlow::Continue(())
                });
                let ranks = &self.blocks().ranks;
                blocks.sort_unstable_by_key(|block| (ranks[*block], *block));
                if planted(Fault::WinnerByArrival) {
                    blocks.reverse();
                }
            }
        }
        let (mut lows, mut highs) = (Vec::new(), Vec::new());
        blocks.retain(|block| {
            let had = lows.len();
            for (dimension, range) in wanted.ranges.iter().enumerate() {
                let (start, end) = match wanted.block {
                    Some(_) => (0, u64::MAX),
                    None => {
                        let (low, high) = (self.boxes().low(*block), self.boxes().high(*block));
                        (low[dimension], high[dimension])
                    }
                };
                let low = start.saturating_sub(range.start).div_ceil(range.step);
                let high = match end.checked_sub(range.start) {
                    None | Some(0) => 0,
                    Some(reach) => ((reach - 1) / range.step + 1).min(range.count),
                };
                if low >= high {
                    lows.truncate(had);
                    highs.truncate(had);
                    return false;
                }
                lows.push(low);
                highs.push(high);
            }
            true
        });
        let boxes = Boxes::new(dimensions, blocks.len(), lows, highs);
        (blocks, boxes)
    }

    /// How each of the boxes lies in its block and in the result. Those that another hides are
    /// left out.
    fn hits(&self, wanted: &Wanted, blocks: &[usize], boxes: &Boxes, plan: &mut Plan) -> Vec<Hit> {
        let result = distances(&plan.shape, plan.item_bytes);
        let mut hits = Vec::with_capacity(blocks.len());
        for (index, block) in blocks.iter().enumerate() {
            let (low, high) = (boxes.low(index), boxes.high(index));
            let place = place_among(boxes, index);
            if place == Place::Hidden {
                continue;
            }
            let counts = low.iter().zip(high).map(|(low, high)| high - low);
            match place {
                Place::Alone => plan.covered += counts.clone().product::<u64>(),
                _ => plan.overlapping.push((low.to_vec(), high.to_vec())),
            }
            let its = self.block(*block).expect("arrays have blocks");
            let inside = distances(its.count, plan.item_bytes);
            let (mut from, mut to) = (self.blocks().positions[*block], 0);
            let mut sides = Vec::with_capacity(low.len());
            for (dimension, (count, range)) in counts.zip(&wanted.ranges).enumerate() {
                let start = match wanted.block {
                    Some(_) => 0,
                    None => its.start[dimension],
                };
                let first = range.start + low[dimension] * range.step - start;
                from += first * inside[dimension];
                to += low[dimension] * result[dimension];
                if count > 1 {
                    sides.push(Side {
                        count,
                        from: range.step * inside[dimension],
                        to: result[dimension],
                    });
                }
            }
            hits.push(Hit::new(*block, (from, to), sides, plan.item_bytes, place));
        }
        let pieces: u64 = hits
            .iter()
            .fold(0, |sum, hit| hit.pieces().saturating_add(sum));
        if pieces > PIECES_MAX as u64 {
            let allowance = (PIECES_MAX / hits.len()).max(1) as u64;
            for hit in &mut hits {
                while hit.pieces() > allowance {
                    hit.cover();
                }
            }
        }
        hits
    }
}

/// How a box lies among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It has no element in common with another.
    Alone,
    Overlapping,
    /// One that is copied later has all of its elements.
    Hidden,
}

fn place_among(boxes: &Boxes, index: usize) -> Place {
    let (low, high) = (boxes.low(index), boxes.high(index));
    let mut place = Place::Alone;
    let mut looked = 0;
    boxes.search(low, high, |other| {
        if other == index {
            return ControlFlow::Continue(());
        }
        place = Place::Overlapping;
        looked += 1;
        let mut lows = boxes.low(other).iter().zip(low);
        let mut highs = boxes.high(other).iter().zip(high);
        let holds = lows.all(|(other, own)| other <= own) && highs.all(|(other, own)| other >= own);
        if holds && other > index {
            place = Place::Hidden;
            return ControlFlow::Break(());
        }
        match looked < HIDERS_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    place
}

/// Bytes from one element to the next along each dimension of a dense array that has elements.
fn distances(shape: &[u64], item_bytes: u64) -> Vec<u64> {
    let mut distances = vec![item_bytes; shape.len()];
    for dimension in (1..shape.len()).rev() {
        distances[dimension - 1] = distances[dimension] * shape[dimension];
    }
    distances
}

impl Hit {
    fn new(
        block: usize,
        (from, to): (u64, u64),
        sides: Vec<Side>,
        item_bytes: u64,
        place: Place,
    ) -> Self {
        let mut dense = item_bytes;
        let is_dense = sides.iter().rev().all(|side| {
            let is_next = side.to == dense;
            dense *= side.count;
            is_next
        });
        let mut hit = Self {
            block,
            from,
            to,
            outer: sides.len(),
            sides,
            piece: item_bytes,
            is_direct: is_dense && place == Place::Alone,
        };
        // Rows that touch are one piece.
        while let Some(side) = hit.next_side()
            && side.from == hit.piece
        {
            hit.piece *= side.count;
            hit.outer -= 1;
        }
        let mut useful = hit.piece;
        while let Some(side) = hit.next_side() {
            let cover = (side.count - 1) * side.from + hit.piece;
            let is_full = cover / FILL < useful.saturating_mul(side.count);
            if hit.piece >= PIECE_BYTES_MIN || !is_full {
                break;
            }
            useful *= side.count;
            hit.cover();
        }
        hit
    }

    /// The innermost side that is read piece by piece.
    fn next_side(&self) -> Option<Side> {
        self.outer.checked_sub(1).map(|index| self.sides[index])
    }

    /// Makes one piece of those along the innermost side, with what is between them.
    fn cover(&mut self) {
        let Some(side) = self.next_side() else {
            return;
        };
        let is_touching = side.from == self.piece;
        self.piece += (side.count - 1) * side.from;
        self.outer -= 1;
        self.is_direct &= is_touching;
    }

    fn pieces(&self) -> u64 {
        let outer = self.sides[..self.outer].iter();
        outer.fold(1, |pieces, side| pieces.saturating_mul(side.count))
    }

    /// Its pieces, in the order in which they are read.
    fn segment(&self) -> StridedSegment {
        let mut segment = StridedSegment {
            offset: self.from,
            bytes: self.piece,
            repeats: Vec::with_capacity(self.outer),
        };
        let short = u64::from(planted(Fault::ShortStride));
        // From the inside: sides that follow each other as their elements do are one.
        for side in self.sides[..self.outer].iter().rev() {
            match segment.repeats.last_mut() {
                Some(inner) if inner.stride.checked_mul(inner.count) == Some(side.from) => {
                    inner.count *= side.count;
                }
                _ => segment.repeats.push(Repeat {
                    count: side.count,
                    stride: side.from - short,
                }),
            }
        }
        segment.repeats.reverse();
        segment
    }

    /// How it is copied from where its pieces lie one behind the other.
    fn copy(&self, item_bytes: u64) -> Copy {
        let mut sides = self.sides.clone();
        let mut distance = self.piece;
        for side in sides[..self.outer].iter_mut().rev() {
            side.from = distance;
            distance *= side.count;
        }
        if planted(Fault::NoMask) {
            let mut distance = item_bytes;
            for side in sides.iter_mut().rev() {
                side.from = distance;
                distance *= side.count;
            }
        }
        Copy::new(sides.into_iter(), item_bytes)
    }
}

impl Plan {
    /// What is read for the boxes, and how they are copied, the later ones over the former.
    fn read(&mut self, hits: Vec<Hit>, blocks: &Blocks) {
        // By rank: the read of each that goes to a buffer.
        let mut buffers = std::collections::BTreeMap::new();
        for hit in &hits {
            let rank = blocks.ranks[hit.block];
            let fresh = |to| PartRead {
                rank,
                segments: Vec::new(),
                bytes: 0,
                to,
            };
            let index = match hit.is_direct {
                true => {
                    self.reads.push(fresh(Destination::Result(hit.to)));
                    self.reads.len() - 1
                }
                false => *buffers.entry(rank).or_insert_with(|| {
                    self.reads.push(fresh(Destination::Buffer));
                    self.reads.len() - 1
                }),
            };
            let read = &mut self.reads[index];
            if !hit.is_direct {
                self.copies.push(Paste {
                    read: index,
                    from: read.bytes,
                    to: hit.to,
                    copy: hit.copy(self.item_bytes),
                });
            }
            let segment = hit.segment();
            let bytes = segment.total_bytes().unwrap_or(u64::MAX);
            read.bytes = read.bytes.saturating_add(bytes);
            push(&mut read.segments, segment);
        }
    }
}

/// Adds a segment behind others; one that touches the one before it makes it longer.
pub(crate) fn push(segments: &mut Vec<StridedSegment>, segment: StridedSegment) {
    match segments.last_mut() {
        Some(last)
            if last.repeats.is_empty()
                && segment.repeats.is_empty()
                && last.offset + last.bytes == segment.offset =>
        {
            last.bytes += segment.bytes;
        }
        _ => segments.push(segment),
    }
}
