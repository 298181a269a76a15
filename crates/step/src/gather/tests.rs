//! Random steps, put, merged, planned, read and put together: the same as a model that looks at
//! each element by itself.

use super::*;
use crate::dtype::DType;
use crate::faults::{Fault, plant};
use crate::selection::{Along, Range, Selection};
use crate::staging::{Place, Put, Staging};
use bytes::Bytes;
use wire::step::{
    Blocks, Part, PartPlace, RecordKind, STEP_VERSION, ShapeKind, StepTable, TableEntry, merge,
};
use wire::view::{Repeat, Segment, StridedSegment};
use wire::{Codec, Incarnation, Offset, PartitionIndex, Rank, Run, Step};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    fn one_in(&mut self, chance: u64) -> bool {
        self.below(chance) == 0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.number() as u8).collect()
    }
}

/// A block as the model has it.
struct Put1 {
    rank: u32,
    start: Vec<u64>,
    count: Vec<u64>,
    data: Vec<u8>,
}

/// A step with one variable (among others that are in the way): what was put, and its parts.
struct Case {
    kind: ShapeKind,
    item_bytes: usize,
    shape: Vec<u64>,
    puts: Vec<Put1>,
    /// So many puts has a rank at most; now and then so many that they are indexed.
    puts_max: u64,
    parts: Vec<Vec<u8>>,
    table: StepTable,
}

const DTYPES: [&str; 9] = [
    "|u1",
    "<i2",
    ">i4",
    "<f8",
    ">f8",
    "<c16",
    "|S3",
    "|V24",
    "[[\"x\",\"<f4\"],[\"n\",\">i2\",[3]]]",
];

impl Case {
    fn new(random: &mut Random) -> Self {
        let kind = match random.below(8) {
            0 => ShapeKind::LocalArray,
            1 => ShapeKind::Joined,
            2 => ShapeKind::LocalValue,
            3 if random.one_in(3) => ShapeKind::Value,
            _ => ShapeKind::Array,
        };
        let dtype = DType::parse(DTYPES[random.below(DTYPES.len() as u64) as usize]).unwrap();
        let mut dimensions = random.below(5) as usize;
        if kind == ShapeKind::Joined {
            dimensions = dimensions.max(1);
        }
        // Few dimensions have long rows, so that pieces are of both kinds.
        let length = [0, 200, 40, 12, 7][dimensions];
        let mut shape: Vec<u64> = (0..dimensions).map(|_| 1 + random.below(length)).collect();
        if random.one_in(30) && dimensions > 0 {
            shape[0] = 0;
        }
        let joined = random.below(dimensions as u64) as u32;
        let ranks = 1 + random.below(5) as u32;
        let mut case = Self {
            kind,
            item_bytes: dtype.item_bytes() as usize,
            shape: shape.clone(),
            puts: Vec::new(),
            puts_max: if random.one_in(60) { 200 } else { 3 },
            parts: Vec::new(),
            table: empty_table(ranks),
        };
        let mut parts = Vec::new();
        for rank in 0..ranks {
            let mut staging = Staging::new();
            let in_the_way = DType::parse("|u1").unwrap();
            for (index, name) in ["before", "behind"].into_iter().enumerate() {
                if index == 1 {
                    case.put(random, &mut staging, &dtype, (rank, ranks, joined));
                }
                let put = Put {
                    name,
                    dtype: &in_the_way,
                    place: Place::Local,
                    count: &[random.below(100)],
                    with_extremes: true,
                };
                let data = random.bytes(put.count[0] as usize);
                staging.put(&put, data.into()).unwrap();
            }
            let (part, pieces) = staging.into_part(Run(3), Step(7), Rank(rank)).unwrap();
            case.parts.push(pieces.concat());
            let data_bytes = case.parts[rank as usize].len() as u64;
            assert_eq!(Part::read(&part.to_bytes(), data_bytes).as_ref(), Ok(&part));
            parts.push(part);
        }
        let (variables, columns) = merge(&parts).unwrap();
        case.table.variables = variables;
        case.table.columns = columns;
        let places = case.parts.iter().enumerate().map(|(rank, data)| PartPlace {
            partition: PartitionIndex(1 + rank as u32),
            incarnation: Incarnation(1),
            offset: Offset(40),
            bytes: data.len() as u64,
        });
        case.table.parts = places.collect();
        case.table = StepTable::read(&case.table.to_bytes()).unwrap();
        case.settle(joined as usize);
        case
    }

    /// A rank's puts of the variable.
    fn put(
        &mut self,
        random: &mut Random,
        staging: &mut Staging,
        dtype: &DType,
        (rank, ranks, joined): (u32, u32, u32),
    ) {
        if matches!(self.kind, ShapeKind::Value | ShapeKind::LocalValue) {
            if random.one_in(4) {
                return;
            }
            let data = random.bytes(self.item_bytes);
            let value = Bytes::from(data.clone());
            staging.put_value("it", self.kind, dtype, value).unwrap();
            self.puts.push(Put1 {
                rank,
                start: Vec::new(),
                count: Vec::new(),
                data,
            });
            return;
        }
        // Ranks share the first dimension, or put where they like.
        let is_regular = self.kind == ShapeKind::Array && !self.shape.is_empty() && rank > 0;
        for _ in 0..random.below(self.puts_max + 1) {
            let mut start = vec![0; self.shape.len()];
            let mut count = self.shape.clone();
            for dimension in 0..self.shape.len() {
                let length = self.shape[dimension];
                if self.kind == ShapeKind::Joined {
                    if dimension == joined as usize {
                        count[dimension] = random.below(6);
                    }
                } else if is_regular && random.one_in(3) {
                    let rows = length / u64::from(ranks);
                    if dimension == 0 {
                        start[0] = rows * u64::from(rank);
                        count[0] = rows;
                    }
                } else if !random.one_in(3) {
                    start[dimension] = random.below(length + 1);
                    count[dimension] = random.below(length - start[dimension] + 1);
                }
            }
            let place = match self.kind {
                ShapeKind::Array => Place::Array {
                    shape: &self.shape,
                    start: &start,
                },
                ShapeKind::Joined => Place::Joined(joined),
                _ => Place::Local,
            };
            let put = Put {
                name: "it",
                dtype,
                place,
                count: &count,
                with_extremes: true,
            };
            let elements = count.iter().product::<u64>() as usize;
            let data = random.bytes(elements * self.item_bytes);
            match random.one_in(2) {
                true => staging.put(&put, data.clone().into()).unwrap(),
                false => {
                    let span = staging.span(&put).unwrap();
                    assert_eq!(span.position % 64, 0);
                    staging.fill(&span, data.clone().into()).unwrap();
                }
            }
            self.puts.push(Put1 {
                rank,
                start,
                count,
                data,
            });
        }
    }

    /// What the whole is, now that all was put.
    fn settle(&mut self, joined: usize) {
        match self.kind {
            ShapeKind::Joined => {
                let mut at = 0;
                for put in &mut self.puts {
                    put.start = vec![0; put.count.len()];
                    put.start[joined] = at;
                    at += put.count[joined];
                }
                self.shape[joined] = at;
            }
            ShapeKind::LocalValue => {
                for (index, put) in self.puts.iter_mut().enumerate() {
                    (put.start, put.count) = (vec![index as u64], vec![1]);
                }
                self.shape = vec![self.puts.len() as u64];
            }
            ShapeKind::Value => self.shape = Vec::new(),
            ShapeKind::Array | ShapeKind::LocalArray => {}
        }
    }

    fn entry(&self) -> Option<&TableEntry> {
        self.table.variables.iter().find(|entry| entry.name == "it")
    }

    /// A selection, and the shape that it is of.
    fn selection(&self, random: &mut Random) -> (Selection, Vec<u64>) {
        let is_local = self.kind == ShapeKind::LocalArray;
        let block = (is_local || random.one_in(6)).then(|| random.below(self.puts.len() as u64));
        let is_value = matches!(self.kind, ShapeKind::Value | ShapeKind::LocalValue);
        let shape = match block {
            Some(_) if is_value => Vec::new(),
            Some(block) => self.puts[block as usize].count.clone(),
            None => self.shape.clone(),
        };
        if random.one_in(4) {
            let selection = block.map_or(Selection::Whole, Selection::Block);
            return (selection, shape);
        }
        let along = shape.iter().map(|length| {
            if random.one_in(3) {
                return Along::Whole;
            }
            let step = if random.one_in(2) {
                1
            } else {
                1 + random.below(9)
            };
            let start = random.below(length + 1);
            let count = random.below((length - start).div_ceil(step) + 1);
            Along::Range(Range { start, count, step })
        });
        let along = along.collect();
        let selection = match block {
            Some(block) => Selection::BlockBox { block, along },
            None => Selection::Box(along),
        };
        (selection, shape)
    }

    /// What the model says: for each element the last block of the highest rank that has it.
    fn expected(&self, selection: &Selection, shape: &[u64], out: &mut [u8]) -> u64 {
        let ranges = selection.resolve("it", shape).unwrap();
        let counts: Vec<u64> = ranges.iter().map(|range| range.count).collect();
        let mut uncovered = 0;
        for (index, element) in out.chunks_mut(self.item_bytes).enumerate() {
            let mut rest = index as u64;
            let mut place = vec![0; counts.len()];
            for dimension in (0..counts.len()).rev() {
                let range = ranges[dimension];
                place[dimension] = range.start + rest % counts[dimension] * range.step;
                rest /= counts[dimension];
            }
            match self.element(selection.block(), &place) {
                Some(found) => element.copy_from_slice(found),
                None => uncovered += 1,
            }
        }
        uncovered
    }

    fn element(&self, block: Option<u64>, place: &[u64]) -> Option<&[u8]> {
        if let Some(block) = block {
            let put = &self.puts[block as usize];
            return match self.kind {
                ShapeKind::Value | ShapeKind::LocalValue => Some(&put.data),
                _ => put.element(&vec![0; place.len()], place, self.item_bytes),
            };
        }
        let find = |put: &&Put1| put.element(&put.start, place, self.item_bytes).is_some();
        let put = match self.kind {
            ShapeKind::Value => self.puts.iter().min_by_key(|put| put.rank),
            _ => {
                let found = self.puts.iter().enumerate().filter(|(_, put)| find(put));
                let last = found.max_by_key(|(index, put)| (put.rank, *index));
                last.map(|(_, put)| put)
            }
        }?;
        put.element(&put.start, place, self.item_bytes)
    }

    /// What the plan of a selection gives, and how many elements it says were not covered.
    fn gathered(&self, plan: &Plan, out: &mut [u8]) -> Coverage {
        let mut pieces = Vec::new();
        for read in plan.reads() {
            let part = &self.parts[read.rank as usize];
            let mut bytes = Vec::new();
            for Segment {
                offset,
                bytes: count,
            } in read.segments.iter().flat_map(StridedSegment::pieces)
            {
                assert!(count > 0, "no segment is empty");
                bytes.extend_from_slice(&part[offset as usize..(offset + count) as usize]);
            }
            assert_eq!(bytes.len() as u64, read.bytes);
            for pair in read.segments.windows(2) {
                let is_one = pair.iter().all(|segment| segment.repeats.is_empty());
                assert!(
                    !is_one || pair[0].end() != Some(pair[1].offset),
                    "rows are joined"
                );
            }
            match read.to {
                Destination::Result(at) => {
                    out[at as usize..][..bytes.len()].copy_from_slice(&bytes);
                    pieces.push(Vec::new());
                }
                Destination::Buffer => pieces.push(bytes),
            }
        }
        plan.execute(&pieces, out).unwrap()
    }

    /// Whether the gather does what the model does.
    fn check(&self, random: &mut Random) -> Result<Seen, String> {
        let mut seen = Seen::default();
        let Some(entry) = self.entry() else {
            assert!(self.puts.is_empty());
            return Ok(seen);
        };
        let blocks = self.table.blocks(entry).unwrap();
        let layout = Layout::new(entry, blocks, &self.table.parts).unwrap();
        assert_eq!(layout.block_count(), self.puts.len());
        assert_eq!(layout.kind(), self.kind);
        let has_whole = matches!(self.kind, ShapeKind::Array | ShapeKind::Joined);
        seen.indexed = u64::from(has_whole && self.puts.len() > super::index::SCAN_MAX);
        for _ in 0..3 {
            let (selection, shape) = self.selection(random);
            let plan = layout.plan(&selection).unwrap();
            assert_eq!(layout.shape_of(&selection).unwrap(), plan.shape());
            let before = random.bytes(plan.bytes() as usize);
            let (mut wanted, mut had) = (before.clone(), before);
            let uncovered = self.expected(&selection, &shape, &mut wanted);
            let coverage = self.gathered(&plan, &mut had);
            if had != wanted || coverage.uncovered != uncovered {
                return Err(format!(
                    "{selection:?} of {:?} {shape:?}: {} of {} bytes differ, {} uncovered for \
                     {uncovered}",
                    self.kind,
                    had.iter().zip(&wanted).filter(|(a, b)| a != b).count(),
                    had.len(),
                    coverage.uncovered
                ));
            }
            for read in plan.reads() {
                match read.to {
                    Destination::Result(_) => seen.direct += 1,
                    Destination::Buffer => seen.copied += 1,
                }
            }
            seen.elements += coverage.elements;
            seen.uncovered += uncovered;
        }
        Ok(seen)
    }
}

impl Put1 {
    fn element(&self, start: &[u64], place: &[u64], item_bytes: usize) -> Option<&[u8]> {
        let mut index = 0;
        for dimension in 0..self.count.len() {
            let inside = place[dimension].checked_sub(start[dimension])?;
            if inside >= self.count[dimension] {
                return None;
            }
            index = index * self.count[dimension] + inside;
        }
        self.data.chunks(item_bytes).nth(index as usize)
    }
}

#[derive(Debug, Default)]
struct Seen {
    indexed: u64,
    direct: u64,
    copied: u64,
    elements: u64,
    uncovered: u64,
}

fn empty_table(ranks: u32) -> StepTable {
    StepTable {
        version: STEP_VERSION,
        kind: RecordKind::Step,
        writer: "model".to_owned(),
        run: Run(3),
        step: Step(7),
        ranks,
        reason: String::new(),
        is_full: false,
        full_at: Offset(0),
        attributes: Vec::new(),
        parts: Vec::new(),
        done: Vec::new(),
        variables: Vec::new(),
        columns: Bytes::new(),
    }
}

/// The first case in which a gather is not what the model says; else what was seen.
fn against_the_model(cases: u64) -> Result<Seen, String> {
    let mut all = Seen::default();
    for seed in 0..cases {
        let mut random = Random(seed);
        let case = Case::new(&mut random);
        let seen = case
            .check(&mut random)
            .map_err(|error| format!("seed {seed}: {error}"))?;
        all.indexed += seen.indexed;
        all.direct += seen.direct;
        all.copied += seen.copied;
        all.elements += seen.elements;
        all.uncovered += seen.uncovered;
    }
    Ok(all)
}

#[test]
fn each_element_is_the_models() {
    let seen = against_the_model(3000).unwrap();
    // Of each kind there was enough.
    assert!(seen.direct > 1000 && seen.copied > 1000, "{seen:?}");
    assert!(seen.indexed > 10, "{seen:?}");
    let tenth = seen.elements / 10;
    assert!((tenth..9 * tenth).contains(&seen.uncovered), "{seen:?}");
}

#[test]
fn the_model_notices_planted_faults() {
    for fault in [
        Fault::LastRow,
        Fault::NoMask,
        Fault::ShortStride,
        Fault::WinnerByArrival,
    ] {
        plant(Some(fault));
        let found = against_the_model(300);
        plant(None);
        assert!(found.is_err(), "{fault:?} was not noticed: {found:?}");
    }
}

/// An array of doubles in blocks: starts and counts. Each rank has one.
fn layout_of(shape: &[u64], blocks: &[(&[u64], &[u64])]) -> Layout {
    let (entry, blocks, parts) = table_of(shape, blocks);
    Layout::new(&entry, blocks, &parts).unwrap()
}

fn table_of(shape: &[u64], places: &[(&[u64], &[u64])]) -> (TableEntry, Blocks, Vec<PartPlace>) {
    let mut blocks = Blocks::none();
    let mut parts = Vec::new();
    for (rank, (start, count)) in places.iter().enumerate() {
        let bytes = 8 * count.iter().product::<u64>();
        blocks.ranks.push(rank as u32);
        blocks.starts.extend_from_slice(start);
        blocks.counts.extend_from_slice(count);
        blocks.positions.push(64);
        blocks.bytes.push(bytes);
        parts.push(PartPlace {
            partition: PartitionIndex(1),
            incarnation: Incarnation(1),
            offset: Offset(rank as u64),
            bytes: 64 + bytes,
        });
    }
    let entry = TableEntry {
        name: "E".to_owned(),
        kind: ShapeKind::Array,
        dtype: "<f8".to_owned(),
        item_bytes: 8,
        joined: 0,
        shape: shape.to_vec(),
        block_count: places.len() as u32,
        at: 0,
        bytes: 0,
    };
    (entry, blocks, parts)
}

fn segments(plan: &Plan) -> Vec<Vec<(u64, u64)>> {
    let of = |read: &PartRead| {
        let each = read.segments.iter().flat_map(StridedSegment::pieces);
        each.map(|segment| (segment.offset, segment.bytes))
            .collect()
    };
    plan.reads().iter().map(of).collect()
}

#[test]
fn blocks_of_rows_go_straight_to_the_result() {
    let layout = layout_of(&[4, 100], &[(&[0, 0], &[2, 100]), (&[2, 0], &[2, 100])]);
    let plan = layout.plan(&Selection::Whole).unwrap();
    assert_eq!(segments(&plan), [[(64, 1600)], [(64, 1600)]]);
    assert_eq!(plan.reads()[0].to, Destination::Result(0));
    assert_eq!(plan.reads()[1].to, Destination::Result(1600));
    // Rows of one block that make all of the result go there row by row.
    let plan = layout.plan(&Selection::of_box(&[2, 50], &[2, 40])).unwrap();
    assert_eq!(segments(&plan), [[(64 + 400, 320), (64 + 1200, 320)]]);
    assert_eq!(plan.reads()[0].to, Destination::Result(0));
    assert_eq!(plan.reads()[0].rank, 1);
}

#[test]
fn nothing_is_asked_for_that_does_not_intersect() {
    let layout = layout_of(&[4, 100], &[(&[0, 0], &[2, 100]), (&[3, 0], &[1, 100])]);
    let plan = layout.plan(&Selection::of_box(&[2, 0], &[1, 100])).unwrap();
    assert!(plan.reads().is_empty());
    let mut out = vec![7; 800];
    let coverage = plan.execute(&[[0u8; 0]; 0], &mut out).unwrap();
    assert_eq!((coverage.elements, coverage.uncovered), (100, 100));
    assert!(out.iter().all(|byte| *byte == 7), "what was there is kept");
    // A stride that steps over a block.
    let range = |start, count, step| Along::Range(Range { start, count, step });
    let over = Selection::Box(vec![range(0, 2, 2), Along::Whole]);
    assert_eq!(layout.plan(&over).unwrap().reads().len(), 1);
}

#[test]
fn short_pieces_are_read_with_what_is_between_them() {
    let layout = layout_of(&[50, 100], &[(&[0, 0], &[50, 100])]);
    let pieces = |columns| {
        let plan = layout
            .plan(&Selection::of_box(&[0, 3], &[50, columns]))
            .unwrap();
        segments(&plan)[0].len()
    };
    // 240 bytes of 800 are more than a quarter, 160 are not; 256 bytes are long enough.
    assert_eq!(pieces(30), 1);
    assert_eq!(pieces(20), 50);
    assert_eq!(pieces(32), 50);
    let plan = layout.plan(&Selection::of_box(&[0, 3], &[50, 30])).unwrap();
    assert_eq!(segments(&plan), [[(64 + 24, 49 * 800 + 240)]]);
}

#[test]
fn rows_of_a_box_are_one_segment_whose_repeats_are_its_dimensions() {
    let layout = layout_of(&[30, 40, 50], &[(&[0, 0, 0], &[30, 40, 50])]);
    let of = |start: &[u64], count: &[u64]| {
        let plan = layout.plan(&Selection::of_box(start, count)).unwrap();
        assert_eq!(plan.reads()[0].segments.len(), 1);
        plan.reads()[0].segments[0].clone()
    };
    let rows = of(&[1, 2, 3], &[20, 30, 40]);
    let repeat = |count, stride| Repeat { count, stride };
    let sides = [repeat(20, 40 * 50 * 8), repeat(30, 50 * 8)];
    assert_eq!((rows.offset, rows.bytes), (64 + 8 * (2103), 320));
    assert_eq!(rows.repeats, sides);
    // Rows of all planes are as far from one plane to the next as within one.
    assert_eq!(of(&[0, 0, 3], &[30, 40, 40]).repeats, [repeat(1200, 400)]);
    assert_eq!(of(&[0, 4, 0], &[30, 30, 50]).repeats, [repeat(30, 16_000)]);
    assert_eq!(of(&[3, 0, 0], &[9, 40, 50]).repeats, []);
}

#[test]
fn a_selection_in_too_many_pieces_is_read_with_more_between_them() {
    let rows = 3 * PIECES_MAX as u64;
    let layout = layout_of(&[rows, 40], &[(&[0, 0], &[rows, 40])]);
    let plan = layout
        .plan(&Selection::of_box(&[0, 7], &[rows, 1]))
        .unwrap();
    assert_eq!(segments(&plan), [[(64 + 56, (rows - 1) * 320 + 8)]]);
}

#[test]
fn a_hidden_block_is_not_read_and_the_one_of_the_highest_rank_counts() {
    let layout = layout_of(
        &[10],
        &[(&[0], &[10]), (&[0], &[10]), (&[8], &[2]), (&[7], &[2])],
    );
    let plan = layout.plan(&Selection::Whole).unwrap();
    let ranks: Vec<_> = plan.reads().iter().map(|read| read.rank).collect();
    assert_eq!(ranks, [1, 2, 3]);
    let pieces: Vec<_> = [1u8, 2, 3]
        .into_iter()
        .zip(plan.reads())
        .map(|(rank, read)| vec![rank; read.bytes as usize])
        .collect();
    let mut out = vec![0; 80];
    let coverage = plan.execute(&pieces, &mut out).unwrap();
    assert_eq!(coverage.uncovered, 0);
    let firsts: Vec<_> = out.chunks(8).map(|element| element[0]).collect();
    assert_eq!(firsts, [1, 1, 1, 1, 1, 1, 1, 3, 3, 2]);
}

#[test]
fn many_blocks_are_found_by_their_index() {
    // A grid of 40 by 50 blocks of 3 by 5, and a box over some of them.
    let mut places = Vec::new();
    for row in 0..40u64 {
        for column in 0..50u64 {
            places.push([[row * 3, column * 5], [3, 5]]);
        }
    }
    let slices: Vec<_> = places
        .iter()
        .map(|[start, count]| (&start[..], &count[..]))
        .collect();
    let layout = layout_of(&[120, 250], &slices);
    let plan = layout
        .plan(&Selection::of_box(&[10, 12], &[4, 100]))
        .unwrap();
    let mut ranks: Vec<u32> = plan.reads().iter().map(|read| read.rank).collect();
    ranks.sort_unstable();
    let wanted = (3..=4).flat_map(|row| (2..=22).map(move |column| row * 50 + column));
    assert_eq!(ranks, wanted.collect::<Vec<u32>>());
    let sum: u64 = plan.reads().iter().map(|read| read.bytes).sum();
    assert!(sum >= 400 * 8, "all of it is read: {sum}");
}

#[test]
fn text_is_no_array_and_memory_has_the_plans_length() {
    let layout = layout_of(&[4], &[(&[0], &[4])]);
    let plan = layout.plan(&Selection::of_box(&[1], &[2])).unwrap();
    let told = plan
        .execute(&[[0u8; 16]], &mut [0; 15])
        .unwrap_err()
        .to_string();
    assert_eq!(
        told,
        "variable \"E\": memory of the result has 15 bytes, and needs 16"
    );
    let plan = layout_of(&[2, 2], &[(&[0, 0], &[2, 1])])
        .plan(&Selection::Whole)
        .unwrap();
    assert!(plan.execute(&[[0u8; 0]; 0], &mut [0; 32]).is_err());
    assert!(plan.execute(&[vec![0; 15]], &mut [0; 32]).is_err());

    let (mut entry, _, parts) = table_of(&[], &[(&[], &[])]);
    (entry.kind, entry.item_bytes) = (ShapeKind::Value, 0);
    let blocks = Blocks {
        ranks: vec![0],
        values: vec![Bytes::from_static(b"text")],
        ..Blocks::none()
    };
    let layout = Layout::new(&entry, blocks, &parts).unwrap();
    assert_eq!(layout.values(), [&b"text"[..]]);
    assert!(matches!(
        layout.plan(&Selection::Whole),
        Err(GatherError::Text { .. })
    ));
}

#[test]
fn what_a_variable_has_not_is_told() {
    let layout = layout_of(&[4], &[(&[0], &[4])]);
    let told = |selection| layout.plan(&selection).unwrap_err().to_string();
    assert_eq!(
        told(Selection::Block(1)),
        "variable \"E\", block 1: there are 1 blocks"
    );
    let (mut entry, blocks, parts) = table_of(&[], &[(&[0], &[4])]);
    entry.kind = ShapeKind::LocalArray;
    let local = Layout::new(&entry, blocks, &parts).unwrap();
    let told = local.plan(&Selection::Whole).unwrap_err().to_string();
    assert!(told.contains("select one by its number"), "{told}");
    let plan = local.plan(&Selection::Block(0)).unwrap();
    assert_eq!(plan.shape(), [4]);
    // More than any memory: an error, and nothing is allocated.
    let huge = layout_of(&[u64::MAX, u64::MAX], &[(&[0, 0], &[2, 2])]);
    assert!(huge.plan(&Selection::Whole).is_err());
    let some = huge.plan(&Selection::of_box(&[1, 0], &[1, 3])).unwrap();
    assert_eq!(segments(&some), [[(64 + 16, 16)]]);
}

/// Tables with numbers that nobody would write: plans or errors, never a panic.
#[test]
fn hostile_tables_give_errors() {
    let mut refused = 0;
    for seed in 0..4000 {
        let mut random = Random(seed);
        let case = Case::new(&mut random);
        let Some(entry) = case.entry() else { continue };
        let (mut entry, mut blocks) = (entry.clone(), case.table.blocks(entry).unwrap());
        let mut parts = case.table.parts.clone();
        for _ in 0..=random.below(2) {
            let number = match random.below(5) {
                0 => u64::MAX,
                1 => i64::MAX as u64,
                2 => random.number(),
                3 => 0,
                _ => random.below(100),
            };
            let column = match random.below(9) {
                0 => &mut blocks.starts,
                1 => &mut blocks.counts,
                2 => &mut blocks.positions,
                3 => &mut blocks.bytes,
                4 => &mut entry.shape,
                5 => {
                    entry.item_bytes = number as u32;
                    continue;
                }
                6 => {
                    let rank = random.below(parts.len() as u64) as usize;
                    parts[rank].bytes = number;
                    continue;
                }
                7 => {
                    if let Some(rank) = blocks.ranks.first_mut() {
                        *rank = number as u32;
                    }
                    continue;
                }
                _ => {
                    blocks.values.pop();
                    continue;
                }
            };
            let index = random.below(column.len() as u64) as usize;
            match column.get_mut(index) {
                Some(field) if !random.one_in(8) => *field = number,
                _ => column.push(number),
            }
        }
        let layout = match Layout::new(&entry, blocks, &parts) {
            Ok(layout) => layout,
            Err(_) => {
                refused += 1;
                continue;
            }
        };
        for block in 0..layout.block_count() {
            let _ = layout.block(block);
        }
        for _ in 0..3 {
            let (selection, _) = case.selection(&mut random);
            let _ = layout.plan(&selection);
        }
        let _ = layout.plan(&Selection::Whole);
    }
    assert!(refused > 1000, "{refused}");
}
