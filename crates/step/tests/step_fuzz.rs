//! Parts and tables that are nearly right: whatever the bytes, reading them ends with a value or an
//! error, takes memory in proportion to the bytes, and what was read is written as it was. What is
//! made of them, a merge, a layout, a plan, ends so too. A process of its own, which counts memory.
//!
//! Inputs are values that are made at random, of which a field, a column or some bytes are changed,
//! or that are put together from two. `THALWEG_FUZZ_SECONDS=600` goes on for so long, and
//! `THALWEG_SEED` says where to begin; a failure says which seed it was.

use ::step::{AttributeValue, DType, Layout, Selection};
use bytes::Bytes;
use memory::testing::{CountingAllocator, allocations};
use std::time::{Duration, Instant};
use wire::codec::DecodeError;
use wire::step::*;
use wire::*;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// So many inputs are tried where no time is said.
const INPUTS: u64 = 150_000;
/// Reading may ask for so many bytes of memory for each byte of input: an empty value of a list is 4
/// bytes there, and 32 here, in a list that may be half empty. ...
const MEMORY_A_BYTE: u64 = 32;
/// ... and for so many more, of which the first items of each list and an error are.
const MEMORY: u64 = 16 << 10;

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

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    /// A number that somewhere is the first, the last, or too much.
    fn telling(&mut self) -> u64 {
        let near = self.below(4);
        match self.below(8) {
            0 => near,
            1 => u64::from(u32::MAX) - near,
            2 => u64::from(u32::MAX) + near,
            3 => u64::MAX - near,
            4 => (i64::MAX as u64).wrapping_add(near),
            5 => 1 << self.below(64),
            6 => (1 << self.below(63)) - near.min(1),
            _ => self.below(300),
        }
    }

    fn bytes(&mut self, most: u64) -> Bytes {
        let count = self.below(most + 1);
        (0..count).map(|_| self.number() as u8).collect()
    }

    fn text(&mut self) -> String {
        let texts = ["E", "x", "particles/e/x", "", "später", "step", "<f8"];
        match self.below(40) {
            0 => "x".repeat(self.below(3 * STEP_NAME_BYTES_MAX as u64) as usize),
            _ => self.of(&texts).to_owned(),
        }
    }
}

fn attribute(random: &mut Random) -> Attribute {
    Attribute {
        name: random.text(),
        dtype: random.of(&["<f8", "str", "[]", ""]).to_owned(),
        is_list: random.one_in(2),
        value: random.bytes(16),
    }
}

const KINDS: [ShapeKind; 5] = [
    ShapeKind::Value,
    ShapeKind::Array,
    ShapeKind::Joined,
    ShapeKind::LocalValue,
    ShapeKind::LocalArray,
];

/// A variable that a rank may have put, whose blocks lie from `position` on.
fn variable(random: &mut Random, name: &str, position: &mut u64) -> Variable {
    let kind = random.of(&KINDS);
    let item_bytes = random.of(&[1u32, 2, 8, 16]);
    let is_value = matches!(kind, ShapeKind::Value | ShapeKind::LocalValue);
    let least = u64::from(kind == ShapeKind::Joined);
    let dimensions = match is_value {
        true => 0,
        false if random.one_in(50) => DIMENSIONS_MAX as u64,
        false => least + random.below(4),
    };
    let joined = random.below(dimensions);
    let lengths: Vec<u64> = (0..dimensions).map(|_| random.below(6)).collect();
    let mut blocks = Blocks::none();
    let (mut mins, mut maxs) = (Vec::new(), Vec::new());
    for _ in 0..random.below(4) {
        if is_value {
            let value = (0..item_bytes).map(|_| random.number() as u8);
            blocks.values.push(value.collect());
            continue;
        }
        let (mut bytes, mut starts) = (u64::from(item_bytes), Vec::new());
        for (dimension, length) in (0..).zip(&lengths) {
            let is_free = kind == ShapeKind::Joined && dimension == joined;
            let count = match kind {
                ShapeKind::Joined if !is_free => *length,
                _ => random.below(*length + 1),
            };
            blocks.counts.push(count);
            starts.push(match kind {
                ShapeKind::Array => random.below(length - count + 1),
                _ => 0,
            });
            bytes *= count;
        }
        blocks.starts.extend(starts);
        blocks.positions.push(*position);
        blocks.bytes.push(bytes);
        *position += bytes;
        mins.extend((0..item_bytes).map(|_| random.number() as u8));
        maxs.extend((0..item_bytes).map(|_| random.number() as u8));
    }
    if random.one_in(2) {
        (blocks.mins, blocks.maxs) = (mins.into(), maxs.into());
    }
    let mut shape = match kind {
        ShapeKind::Array | ShapeKind::Joined => lengths,
        _ => Vec::new(),
    };
    if kind == ShapeKind::Joined {
        shape[joined as usize] = 0;
    }
    Variable {
        name: name.to_owned(),
        kind,
        dtype: random.of(&["<i2", "|u1", "<f8", "<c16"]).to_owned(),
        item_bytes,
        joined: if kind == ShapeKind::Joined {
            joined as u32
        } else {
            0
        },
        shape,
        blocks,
    }
}

/// A part that is right, and how long its data is.
fn part(random: &mut Random) -> (Part, u64) {
    let mut position = 0;
    let variables = (0..random.below(5))
        .map(|index| variable(random, &format!("v{index}"), &mut position))
        .collect();
    let attributes = (0..random.below(3))
        .map(|_| Attribute {
            name: "time".to_owned(),
            ..attribute(random)
        })
        .collect();
    let part = Part {
        version: STEP_VERSION,
        run: Run(random.below(9)),
        step: Step(random.below(9)),
        rank: Rank(0),
        data: match random.below(9) {
            0 => PartData::Dropped,
            _ => PartData::Here,
        },
        attributes,
        variables,
    };
    (part, position)
}

/// A table that is right: of ranks that have put the same variables.
fn table(random: &mut Random) -> StepTable {
    let (part, bytes) = part(random);
    let parts: Vec<Part> = (0..1 + random.below(4))
        .map(|rank| Part {
            rank: Rank(rank as u32),
            ..part.clone()
        })
        .collect();
    let (variables, columns) = merge(&parts).expect("parts that agree");
    let places = parts
        .iter()
        .map(|part| PartPlace {
            partition: PartitionIndex(1 + part.rank.0),
            incarnation: Incarnation(1),
            offset: Offset(random.below(99)),
            bytes,
        })
        .collect();
    StepTable {
        version: STEP_VERSION,
        kind: random.of(&RecordKind::ALL),
        writer: "writer".to_owned(),
        run: part.run,
        step: part.step,
        ranks: parts.len() as u32,
        reason: random.text(),
        is_full: random.one_in(2),
        full_at: Offset(random.below(9)),
        attributes: part.attributes,
        parts: places,
        done: vec![(PartitionIndex(1), Offset(9))],
        variables,
        columns,
    }
}

/// Has one number of a column be another, one more, or one less.
fn disturb<T>(random: &mut Random, column: &mut Vec<T>, other: impl Fn(u64) -> T) {
    let at = random.below(column.len() as u64 + 1) as usize;
    let number = random.telling();
    match (random.below(3), column.get_mut(at)) {
        (0, Some(_)) => drop(column.remove(at)),
        (1, Some(known)) => *known = other(number),
        _ => column.insert(at, other(number)),
    }
}

fn disturb_blocks(random: &mut Random, blocks: &mut Blocks) {
    match random.below(8) {
        0 => disturb(random, &mut blocks.ranks, |number| number as u32),
        1 => disturb(random, &mut blocks.starts, |number| number),
        2 => disturb(random, &mut blocks.counts, |number| number),
        3 => disturb(random, &mut blocks.positions, |number| number),
        4 => disturb(random, &mut blocks.bytes, |number| number),
        5 => disturb(random, &mut blocks.values, |number| {
            Bytes::copy_from_slice(&number.to_le_bytes())
        }),
        6 => blocks.mins = random.bytes(40),
        _ => blocks.maxs = random.bytes(40),
    }
}

/// Changes one field of a part.
fn disturb_part(random: &mut Random, part: &mut Part) {
    let count = part.variables.len() as u64;
    if count == 0 || random.one_in(9) {
        let added = attribute(random);
        part.attributes.push(added);
        return;
    }
    let index = random.below(count) as usize;
    let variable = &mut part.variables[index];
    match random.below(9) {
        0 => variable.name = random.text(),
        1 => variable.kind = random.of(&KINDS),
        2 => variable.item_bytes = random.telling() as u32,
        3 => variable.joined = random.telling() as u32,
        4 => disturb(random, &mut variable.shape, |number| number),
        _ => disturb_blocks(random, &mut variable.blocks),
    }
}

/// Changes one field of a table, in its columns too.
fn disturb_table(random: &mut Random, table: &mut StepTable) {
    let count = table.variables.len() as u64;
    if count == 0 || random.one_in(5) {
        let place = table.parts.first().cloned();
        return match (random.below(3), place) {
            (0, _) => disturb(random, &mut table.parts, |number| PartPlace {
                partition: PartitionIndex(number as u32),
                incarnation: Incarnation(number),
                offset: Offset(number),
                bytes: number,
            }),
            (1, _) => disturb(random, &mut table.done, |number| {
                (PartitionIndex(number as u32), Offset(number))
            }),
            _ => table.columns = random.bytes(200),
        };
    }
    let index = random.below(count) as usize;
    let blocks = table.blocks(&table.variables[index]);
    let changed = &mut table.variables[index];
    match random.below(9) {
        0 => changed.kind = random.of(&KINDS),
        1 => changed.item_bytes = random.telling() as u32,
        2 => changed.joined = random.telling() as u32,
        3 => changed.block_count = random.telling() as u32,
        4 => changed.at = random.telling() as u32,
        5 => changed.bytes = random.telling() as u32,
        6 => disturb(random, &mut changed.shape, |number| number),
        _ => {
            let Ok(mut blocks) = blocks else {
                return;
            };
            disturb_blocks(random, &mut blocks);
            let bytes = blocks.to_bytes();
            changed.at = table.columns.len() as u32;
            changed.bytes = bytes.len() as u32;
            table.columns = [&table.columns[..], &bytes].concat().into();
        }
    }
}

/// Changes bytes without knowing what they are.
fn disturb_bytes(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = random.below(bytes.len() as u64 + 1) as usize;
    let number = random.telling().to_le_bytes();
    match random.below(7) {
        0 => bytes.truncate(at),
        1 => {
            let width = random.of(&[1usize, 2, 4, 8]);
            let end = bytes.len().min(at + width);
            bytes.splice(at..end, number[..width].iter().copied());
        }
        2 => {
            let from = random.below(other.len() as u64 + 1) as usize;
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        3 => {
            let end = at + random.below((bytes.len() - at) as u64 + 1) as usize;
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        4 => bytes.insert(at, random.number() as u8),
        _ => match bytes.get_mut(at) {
            Some(byte) => *byte ^= 1 << random.below(8),
            None => bytes.push(0),
        },
    }
}

/// Runs a decoder, and holds what it takes against the length of its input.
fn bounded<T>(input: &[u8], read: impl FnOnce() -> T) -> T {
    let (_, before) = allocations();
    let value = read();
    let taken = allocations().1 - before;
    let most = MEMORY + MEMORY_A_BYTE * input.len() as u64;
    assert!(
        taken <= most,
        "{taken} bytes of memory for {} of input",
        input.len()
    );
    value
}

/// What was read is written as it was.
fn same<T: Codec + PartialEq + std::fmt::Debug>(
    read: Result<T, DecodeError>,
    input: &[u8],
) -> Option<T> {
    let value = read.ok()?;
    let written = value.to_bytes();
    assert_eq!(Some(&written[..]), input.get(..written.len()), "{value:?}");
    assert_eq!(T::from_bytes("again", &written).as_ref(), Ok(&value));
    Some(value)
}

#[derive(Debug, Default)]
struct Tried {
    parts: u64,
    merged: u64,
    tables: u64,
    blocks: u64,
    planned: u64,
    refused: u64,
}

impl Tried {
    fn part(&mut self, input: &[u8], data_bytes: u64) {
        let read = bounded(input, || Part::read(input, data_bytes));
        let Some(part) = same(read, input) else {
            self.refused += 1;
            return;
        };
        self.parts += 1;
        let other = Part {
            rank: Rank(part.rank.0.wrapping_add(1)),
            ..part.clone()
        };
        let Ok((variables, columns)) = bounded(input, || merge(&[part.clone(), other])) else {
            return;
        };
        self.merged += 1;
        // What the server would write is read by everybody.
        let places = vec![
            PartPlace {
                partition: PartitionIndex(1),
                incarnation: Incarnation(1),
                offset: Offset(0),
                bytes: data_bytes,
            };
            2
        ];
        let table = StepTable {
            version: STEP_VERSION,
            kind: RecordKind::Step,
            writer: String::new(),
            run: part.run,
            step: part.step,
            ranks: 2,
            reason: String::new(),
            is_full: false,
            full_at: Offset(0),
            attributes: part.attributes,
            parts: places,
            done: Vec::new(),
            variables,
            columns,
        };
        let written = table.to_bytes();
        assert_eq!(StepTable::read(&written), Ok(table.clone()));
        self.blocks(&table, &written);
    }

    fn table(&mut self, input: &[u8]) {
        let read = bounded(input, || StepTable::read(input));
        match same(read, input) {
            Some(table) => {
                self.tables += 1;
                self.blocks(&table, input);
            }
            None => self.refused += 1,
        }
    }

    fn blocks(&mut self, table: &StepTable, input: &[u8]) {
        for entry in &table.variables {
            let Ok(blocks) = bounded(input, || table.blocks(entry)) else {
                continue;
            };
            self.blocks += 1;
            let at = entry.at as usize;
            let columns = &table.columns[at..at + entry.bytes as usize];
            let Some(blocks) = same(Ok(blocks), columns) else {
                continue;
            };
            let Ok(layout) = Layout::new(entry, blocks, &table.parts) else {
                continue;
            };
            let (first, count) = (vec![0; entry.shape.len()], vec![1; entry.shape.len()]);
            for selection in [Selection::Whole, Selection::of_box(&first, &count)] {
                self.planned += u64::from(layout.plan(&selection).is_ok());
            }
            let _ = bounded(input, || DType::parse(&entry.dtype));
        }
        for attribute in &table.attributes {
            let Ok(dtype) = DType::parse(&attribute.dtype) else {
                continue;
            };
            let (is_list, value) = (attribute.is_list, attribute.value.clone());
            if let Ok(value) = bounded(input, || AttributeValue::raw(dtype, is_list, value)) {
                assert!(value.is_list() || value.count() == 1);
            }
        }
    }

    /// Tries one input.
    fn input(&mut self, seed: u64) {
        let random = &mut Random(seed);
        let changes = 1 + random.below(3);
        if random.one_in(2) {
            let (mut value, data_bytes) = part(random);
            assert_eq!(
                Part::read(&value.to_bytes(), data_bytes).as_ref(),
                Ok(&value)
            );
            let other = value.to_bytes();
            let by_field = random.one_in(2);
            for _ in 0..if by_field { changes } else { 0 } {
                disturb_part(random, &mut value);
            }
            let mut bytes = value.to_bytes();
            for _ in 0..if by_field { random.below(2) } else { changes } {
                disturb_bytes(random, &mut bytes, &other);
            }
            let data_bytes = match random.below(4) {
                0 => random.telling(),
                _ => data_bytes,
            };
            self.part(&bytes, data_bytes);
        } else {
            let mut value = table(random);
            let other = value.to_bytes();
            assert_eq!(StepTable::read(&other).as_ref(), Ok(&value));
            let by_field = random.one_in(2);
            for _ in 0..if by_field { changes } else { 0 } {
                disturb_table(random, &mut value);
            }
            let mut bytes = value.to_bytes();
            for _ in 0..if by_field { random.below(2) } else { changes } {
                disturb_bytes(random, &mut bytes, &other);
            }
            self.table(&bytes);
        }
    }
}

#[test]
fn whatever_the_bytes_they_are_read_or_refused() {
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().expect("a number"));
    let seconds = number("THALWEG_FUZZ_SECONDS").map(Duration::from_secs);
    let (first, began) = (number("THALWEG_SEED").unwrap_or(0), Instant::now());
    let mut tried = Tried::default();
    let mut seed = first;
    loop {
        let is_over = match seconds {
            Some(seconds) => seed % 1024 == 0 && began.elapsed() >= seconds,
            None => seed - first >= INPUTS,
        };
        if is_over {
            break;
        }
        let mut one = std::panic::AssertUnwindSafe(&mut tried);
        if let Err(panic) = std::panic::catch_unwind(move || one.input(seed)) {
            eprintln!("again with THALWEG_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
        seed += 1;
    }
    println!("{} inputs: {tried:?}", seed - first);
    let counts = [
        (tried.parts, tried.merged),
        (tried.tables, tried.blocks),
        (tried.planned, tried.refused),
    ];
    let least = counts.into_iter().map(|(one, other)| one.min(other)).min();
    assert!(
        seed - first < INPUTS || least > Some(INPUTS / 100),
        "{tried:?}"
    );
}
