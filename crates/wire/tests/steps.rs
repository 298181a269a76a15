//! Parts, tables and their merge, `docs/format/steps.md`: the bytes of version 1, what can be
//! wrong with them, and a merge against a model that looks at one block after the other.
//!
//! `UPDATE_GOLDEN=1 cargo test -p thalweg-wire --test steps` writes the bytes that have none yet.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::PathBuf;
use wire::codec::Problem;
use wire::step::*;
use wire::*;

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
}

fn attribute() -> Attribute {
    Attribute {
        name: "time".to_owned(),
        dtype: "<f8".to_owned(),
        is_list: false,
        value: Bytes::copy_from_slice(&0.5f64.to_le_bytes()),
    }
}

/// Rank 1 of a step: rows 2 and 3 of an array, a joined block, text.
fn part() -> Part {
    let array = Variable {
        name: "E".to_owned(),
        kind: ShapeKind::Array,
        dtype: "<i2".to_owned(),
        item_bytes: 2,
        joined: 0,
        shape: vec![4, 3],
        blocks: Blocks {
            starts: vec![2, 0],
            counts: vec![2, 3],
            positions: vec![0],
            bytes: vec![12],
            mins: Bytes::from_static(&[1, 0]),
            maxs: Bytes::from_static(&[6, 0]),
            ..Blocks::none()
        },
    };
    let joined = Variable {
        name: "x".to_owned(),
        kind: ShapeKind::Joined,
        dtype: "|u1".to_owned(),
        item_bytes: 1,
        joined: 0,
        shape: vec![0],
        blocks: Blocks {
            starts: vec![0],
            counts: vec![5],
            positions: vec![64],
            bytes: vec![5],
            ..Blocks::none()
        },
    };
    let note = Variable {
        name: "note".to_owned(),
        kind: ShapeKind::Value,
        dtype: "str".to_owned(),
        item_bytes: 0,
        joined: 0,
        shape: vec![],
        blocks: Blocks {
            values: vec![Bytes::from_static("später".as_bytes())],
            ..Blocks::none()
        },
    };
    Part {
        version: STEP_VERSION,
        run: Run(7),
        step: Step(42),
        rank: Rank(1),
        data: PartData::Here,
        attributes: vec![attribute()],
        variables: vec![array, joined, note],
    }
}

const PART_BYTES: u64 = 69;

fn table_of(parts: &[Part], bytes: &[u64]) -> StepTable {
    let (variables, columns) = merge(parts).unwrap();
    StepTable {
        version: STEP_VERSION,
        kind: RecordKind::Step,
        writer: "simulation".to_owned(),
        run: Run(7),
        step: Step(42),
        ranks: parts.len() as u32,
        reason: String::new(),
        is_full: false,
        full_at: Offset(3),
        attributes: vec![attribute()],
        parts: bytes
            .iter()
            .enumerate()
            .map(|(rank, bytes)| PartPlace {
                partition: PartitionIndex(1 + rank as u32),
                incarnation: Incarnation(1),
                offset: Offset(9),
                bytes: *bytes,
            })
            .collect(),
        done: vec![
            (PartitionIndex(1), Offset(10)),
            (PartitionIndex(2), Offset(10)),
        ],
        variables,
        columns,
    }
}

/// Ranks 0 and 1: rank 0 has the array's other rows and a joined block of 2.
fn table() -> StepTable {
    let mut first = part();
    first.rank = Rank(0);
    first.variables.pop();
    first.variables[0].blocks.starts = vec![0, 0];
    first.variables[1].blocks.counts = vec![2];
    first.variables[1].blocks.bytes = vec![2];
    table_of(&[first, part()], &[PART_BYTES, PART_BYTES])
}

#[test]
fn the_bytes_of_version_1_are_what_they_were() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/steps-1.txt");
    let examples = [("part", part().to_bytes()), ("table", table().to_bytes())];
    let text: String = examples
        .iter()
        .map(|(name, bytes)| {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{name}: {hex}\n")
        })
        .collect();
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    if golden.is_empty() && std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    assert_eq!(text, golden, "a new version, or a mistake");
    assert_eq!(Part::read(&part().to_bytes(), PART_BYTES), Ok(part()));
    assert_eq!(StepTable::read(&table().to_bytes()), Ok(table()));
}

const PAGE: &str = include_str!("../../../docs/format/steps.md");

/// Each struct's section on the page has its fields, in their order, with their types.
#[test]
fn every_field_is_on_the_page() {
    let source = include_str!("../src/step.rs");
    let mut seen = 0;
    for body in source.split("\nrecord! {").skip(1) {
        let body = &body[..body.find("\n}\n").expect("a record ends")];
        let name = body.split("pub struct ").nth(1).unwrap();
        let name = &name[..name.find(' ').unwrap()];
        let fields = body
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub "));
        let fields: Vec<_> = fields.filter_map(|line| line.split_once(": ")).collect();
        let title = match name {
            "StepTable" => "Table",
            name => name,
        };
        let start = PAGE
            .find(&format!("# {title}\n"))
            .expect("it has a section");
        let section = &PAGE[start..];
        let section = &section[..section.find("\n#").unwrap_or(section.len())];
        let rows: Vec<Vec<&str>> = section
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let has = |row: &[&str], field: &str, kind: &str| {
            let at = row.iter().position(|cell| *cell == field);
            at.is_some_and(|at| at > 0 && row[at - 1] == kind)
        };
        let mut rows = rows.iter();
        for (field, kind) in fields {
            let kind = match kind.trim_end_matches(',') {
                "String" => "text".to_owned(),
                "Bytes" => "bytes".to_owned(),
                "ShapeKind" | "RecordKind" => "u8".to_owned(),
                kind => match kind
                    .strip_prefix("Vec<")
                    .and_then(|kind| kind.strip_suffix('>'))
                {
                    Some("Bytes") => "list of bytes".to_owned(),
                    Some(item) => format!("list of {item}"),
                    None => kind.to_owned(),
                },
            };
            let found = rows.any(|row| has(row, field, &kind));
            assert!(
                found,
                "steps.md, {title}: no row of {kind} {field} in its place"
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "the source was understood: {seen}");
}

/// The page's example, from its rows.
#[test]
fn the_pages_example_is_a_part() {
    let section = PAGE.split("\n## Example\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut bytes = Vec::new();
    for line in section
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
    {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let at: usize = cells[1].parse().unwrap();
        assert_eq!(bytes.len(), at, "{line}");
        // Numbers in code are bytes, others are written as u64.
        for (index, run) in cells[2].split('`').enumerate() {
            for word in run.split([' ', ',']) {
                match (index % 2, word.parse::<u64>()) {
                    (1, _) => bytes.push(u8::from_str_radix(word, 16).unwrap()),
                    (_, Ok(number)) => bytes.extend(number.to_le_bytes()),
                    (_, Err(_)) => {}
                }
            }
        }
    }
    let mut wanted = part();
    wanted.attributes.clear();
    wanted.variables.truncate(1);
    assert_eq!(Part::read(&bytes, 12), Ok(wanted.clone()));
    assert_eq!(bytes, wanted.to_bytes());
}

#[test]
fn fields_stand_where_the_page_says() {
    let bytes = part().to_bytes();
    assert_eq!(bytes[..2], 1u16.to_le_bytes());
    assert_eq!(bytes[2..10], 7u64.to_le_bytes());
    assert_eq!(bytes[10..18], 42u64.to_le_bytes());
    assert_eq!(bytes[18..22], 1u32.to_le_bytes());
    assert_eq!(bytes[22], 0);
    assert_eq!(bytes[23..27], 1u32.to_le_bytes());
    let bytes = table().to_bytes();
    assert_eq!(bytes[..3], [1, 0, 1]);
    assert_eq!(bytes[3..7], 10u32.to_le_bytes());
    assert_eq!(&bytes[7..17], b"simulation");
}

#[test]
fn what_was_cut_or_is_of_another_version_is_no_part_and_no_table() {
    let (part, table) = (part().to_bytes(), table().to_bytes());
    for end in 0..part.len() {
        assert!(
            Part::read(&part[..end], PART_BYTES).is_err(),
            "part cut at {end}"
        );
    }
    for end in 0..table.len() {
        assert!(
            StepTable::read(&table[..end]).is_err(),
            "table cut at {end}"
        );
    }
    for (version, is_newer) in [(0u8, false), (2, true)] {
        for read in [
            &|bytes: &[u8]| Part::read(bytes, PART_BYTES).map(drop) as Result<(), _>,
            &|bytes: &[u8]| StepTable::read(bytes).map(drop),
        ] as [&dyn Fn(&[u8]) -> Result<(), DecodeError>; 2]
        {
            let bytes = [&[version, 0][..], b"whatever"].concat();
            let error = read(&bytes).unwrap_err();
            assert!(error.is_of_another_version());
            assert_eq!(matches!(error.problem, Problem::Newer { .. }), is_newer);
        }
    }
}

#[test]
fn parts_that_say_what_cannot_be_are_refused() {
    let refused = |change: &dyn Fn(&mut Part)| {
        let mut bad = part();
        change(&mut bad);
        let read = Part::read(&bad.to_bytes(), PART_BYTES);
        assert!(read.is_err(), "{bad:?}");
    };
    refused(&|part| part.variables[0].name.clear());
    refused(&|part| part.variables[0].name = "x".repeat(STEP_NAME_BYTES_MAX + 1));
    refused(&|part| part.attributes[0].name.clear());
    refused(&|part| part.variables[0].shape = vec![1; DIMENSIONS_MAX + 1]);
    refused(&|part| part.variables[0].shape = vec![3, 3]);
    refused(&|part| part.variables[0].item_bytes = 4);
    refused(&|part| part.variables[0].item_bytes = 0);
    refused(&|part| part.variables[0].blocks.starts[0] = u64::MAX);
    refused(&|part| part.variables[0].blocks.counts[0] = u64::MAX);
    refused(&|part| part.variables[0].blocks.counts.push(1));
    refused(&|part| part.variables[0].blocks.ranks.push(1));
    refused(&|part| part.variables[0].blocks.values.push(Bytes::new()));
    refused(&|part| part.variables[0].blocks.mins = Bytes::from_static(&[1]));
    refused(&|part| part.variables[0].blocks.positions[0] = u64::MAX);
    refused(&|part| part.variables[1].blocks.positions[0] = 65);
    refused(&|part| part.variables[1].joined = 1);
    refused(&|part| part.variables[1].kind = ShapeKind::Value);
    refused(&|part| part.variables[2].item_bytes = 4);
    refused(&|part| part.variables[2].shape = vec![1]);
    // The end of the last block is the end of the data.
    assert!(Part::read(&part().to_bytes(), PART_BYTES - 1).is_err());
}

#[test]
fn columns_that_fit_neither_array_nor_parts_are_refused() {
    let whole = table();
    for entry in &whole.variables {
        whole.blocks(entry).unwrap();
    }
    let mut short = whole.clone();
    short.parts[1].bytes = 68;
    assert!(short.blocks(&short.variables[0]).is_ok());
    assert!(short.blocks(&short.variables[1]).is_err());
    short.parts.pop();
    assert!(short.blocks(&short.variables[0]).is_err());
    let refused = |index: usize, change: &dyn Fn(&mut TableEntry)| {
        let mut entry = whole.variables[index].clone();
        change(&mut entry);
        assert!(whole.blocks(&entry).is_err(), "{entry:?}");
    };
    refused(0, &|entry| entry.shape = vec![3, 3]);
    refused(0, &|entry| entry.shape = vec![4, 3, 1]);
    refused(0, &|entry| entry.block_count = 1);
    refused(0, &|entry| entry.item_bytes = 3);
    refused(0, &|entry| entry.at += 1);
    refused(0, &|entry| entry.bytes = u32::MAX);
    refused(0, &|entry| entry.kind = ShapeKind::Value);
    refused(1, &|entry| entry.shape = vec![6]);
    let mut far = whole.clone();
    far.variables[2].at = u32::MAX;
    assert!(StepTable::read(&far.to_bytes()).is_err());
}

/// Bytes that are nearly right, and bytes that are nothing: a value or an error.
#[test]
fn any_bytes_give_a_value_or_an_error() {
    let (part, table) = (part().to_bytes(), table().to_bytes());
    let mut random = Random(11);
    let (mut parts, mut tables) = (0, 0);
    for round in 0..60_000 {
        let whole = if round % 2 == 0 { &part } else { &table };
        let mut bytes = whole.clone();
        if random.one_in(20) {
            bytes = (0..random.below(200))
                .map(|_| random.number() as u8)
                .collect();
            bytes.splice(..bytes.len().min(2), [1, 0]);
        }
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            match (random.below(6), bytes.get_mut(at)) {
                (0, Some(byte)) => *byte = 0xff,
                (1, Some(byte)) => *byte = byte.wrapping_add(1),
                (2, Some(byte)) => *byte ^= 1 << random.below(8),
                (3, Some(_)) => drop(bytes.remove(at)),
                (4, Some(_)) => bytes.insert(at, random.number() as u8),
                _ => bytes.truncate(at.max(2)),
            }
        }
        if let Ok(part) = Part::read(&bytes, random.below(200)) {
            parts += 1;
            // What is read may be merged.
            let (variables, columns) = match merge(&[part.clone(), part.clone()]) {
                Ok(merged) => merged,
                Err(_) => continue,
            };
            let table = StepTable {
                variables,
                columns,
                ..self::table()
            };
            let table = StepTable::read(&table.to_bytes()).unwrap();
            for entry in &table.variables {
                let _ = table.blocks(entry);
            }
        }
        if let Ok(table) = StepTable::read(&bytes) {
            tables += 1;
            for entry in &table.variables {
                let _ = table.blocks(entry);
            }
        }
    }
    assert!(
        parts > 1000 && tables > 1000,
        "{parts} parts and {tables} tables"
    );
}

/// A block as the model has it: rank, start, count, position, bytes, value, min, max.
type Row = (
    u32,
    Vec<u64>,
    Vec<u64>,
    Option<u64>,
    Option<u64>,
    Option<Bytes>,
    Vec<u8>,
    Vec<u8>,
);

fn rows(
    blocks: &Blocks,
    rank: Option<u32>,
    count: usize,
    dimensions: usize,
    item: usize,
) -> Vec<Row> {
    let some = |column: &[u64], block: usize| {
        column
            .get(block * dimensions..(block + 1) * dimensions)
            .unwrap_or(&[])
            .to_vec()
    };
    let end = |column: &Bytes, block: usize| {
        column
            .get(block * item..(block + 1) * item)
            .unwrap_or(&[])
            .to_vec()
    };
    let row = |block| {
        (
            rank.unwrap_or_else(|| blocks.ranks[block]),
            some(&blocks.starts, block),
            some(&blocks.counts, block),
            blocks.positions.get(block).copied(),
            blocks.bytes.get(block).copied(),
            blocks.values.get(block).cloned(),
            end(&blocks.mins, block),
            end(&blocks.maxs, block),
        )
    };
    (0..count).map(row).collect()
}

/// A part with some of the model's variables.
fn random_part(random: &mut Random, rank: u32) -> Part {
    let mut variables = Vec::new();
    let mut position = 0;
    for (index, kind) in [
        ShapeKind::Value,
        ShapeKind::Array,
        ShapeKind::Joined,
        ShapeKind::LocalValue,
        ShapeKind::LocalArray,
    ]
    .into_iter()
    .enumerate()
    {
        if random.one_in(4) {
            continue;
        }
        let mut blocks = Blocks::none();
        let knows = !random.one_in(4);
        let count = random.below(4);
        let (mut mins, mut maxs) = (Vec::new(), Vec::new());
        for _ in 0..count {
            if matches!(kind, ShapeKind::Value | ShapeKind::LocalValue) {
                blocks
                    .values
                    .push(vec![rank as u8, random.number() as u8].into());
                continue;
            }
            let counts = match kind {
                ShapeKind::Joined => [5, random.below(4)],
                _ => [random.below(4), random.below(4)],
            };
            let bytes = counts[0] * counts[1] * 2;
            blocks.starts.extend(match kind {
                ShapeKind::Array => [random.below(4), random.below(4)],
                _ => [0, 0],
            });
            blocks.counts.extend(counts);
            blocks.positions.push(position);
            blocks.bytes.push(bytes);
            position += bytes;
            mins.extend([rank as u8, random.number() as u8]);
            maxs.extend([rank as u8, random.number() as u8]);
        }
        if knows {
            (blocks.mins, blocks.maxs) = (mins.into(), maxs.into());
        }
        variables.push(Variable {
            name: format!("v{index}"),
            kind,
            dtype: "<u2".to_owned(),
            item_bytes: 2,
            joined: u32::from(kind == ShapeKind::Joined),
            shape: match kind {
                ShapeKind::Array => vec![8, 8],
                ShapeKind::Joined => vec![5, 0],
                _ => vec![],
            },
            blocks,
        });
    }
    if random.one_in(2) {
        variables.reverse();
    }
    Part {
        rank: Rank(rank),
        attributes: Vec::new(),
        variables,
        ..part()
    }
}

#[test]
fn a_merge_is_all_blocks_in_the_order_of_ranks() {
    for seed in 0..2000 {
        let mut random = Random(seed);
        let ranks = 1 + random.below(6) as u32;
        let parts: Vec<_> = (0..ranks)
            .map(|rank| random_part(&mut random, rank))
            .collect();
        for part in &parts {
            assert_eq!(Part::read(&part.to_bytes(), 1 << 20).as_ref(), Ok(part));
        }
        let mut order = Vec::new();
        let mut model: BTreeMap<&str, Vec<Row>> = BTreeMap::new();
        let mut unknown = Vec::new();
        for part in &parts {
            for variable in &part.variables {
                let name = variable.name.as_str();
                if !model.contains_key(name) {
                    order.push(name);
                }
                let (count, rank) = (variable.block_count(), part.rank.0);
                model.entry(name).or_default().extend(rows(
                    &variable.blocks,
                    Some(rank),
                    count,
                    2,
                    2,
                ));
                if count > 0 && variable.blocks.mins.is_empty() {
                    unknown.push(name);
                }
            }
        }
        let table = table_of(&parts, &vec![1 << 20; ranks as usize]);
        let table = StepTable::read(&table.to_bytes()).unwrap();
        let names: Vec<_> = table
            .variables
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        assert_eq!(names, order, "in the order in which they were put first");
        for entry in &table.variables {
            let mut wanted = model[entry.name.as_str()].clone();
            let mut at = 0;
            for row in &mut wanted {
                if entry.kind == ShapeKind::Joined {
                    row.1[1] = at;
                    at += row.2[1];
                }
                if unknown.contains(&entry.name.as_str()) {
                    (row.6, row.7) = (Vec::new(), Vec::new());
                }
            }
            let blocks = table.blocks(entry).unwrap();
            assert_eq!(
                rows(&blocks, None, wanted.len(), 2, 2),
                wanted,
                "seed {seed}"
            );
            let shape = match entry.kind {
                ShapeKind::Array => vec![8, 8],
                ShapeKind::Joined => vec![5, at],
                ShapeKind::LocalValue => vec![wanted.len() as u64],
                ShapeKind::Value | ShapeKind::LocalArray => vec![],
            };
            assert_eq!(entry.shape, shape);
            assert_eq!(entry.block_count as usize, wanted.len());
        }
    }
}

#[test]
fn ranks_that_do_not_agree_are_named() {
    let told = |change: &dyn Fn(&mut Part)| {
        let mut other = part();
        other.rank = Rank(4);
        change(&mut other);
        match merge(&[part(), other]) {
            Err(MergeError(reason)) => reason,
            Ok(_) => panic!("merged what does not agree"),
        }
    };
    assert_eq!(
        told(&|part| part.variables[0].dtype = "<u2".to_owned()),
        "variable \"E\" has type <i2 on rank 1 and <u2 on rank 4"
    );
    assert!(told(&|part| part.variables[0].item_bytes = 4).contains("bytes 2 on rank 1 and 4"));
    assert!(told(&|part| part.variables[0].shape = vec![4, 4]).contains("shape [4, 3]"));
    assert!(told(&|part| part.variables[0].kind = ShapeKind::LocalArray).contains("kind Array"));
    assert!(told(&|part| part.variables[1].joined = 1).contains("joined dimension"));
}

#[test]
fn data_that_is_elsewhere_is_bounded_by_what_is_said_of_it() {
    let ends = part().variables.into_iter().flat_map(|variable| {
        let Blocks {
            positions, bytes, ..
        } = variable.blocks;
        positions.into_iter().zip(bytes)
    });
    let bytes = ends.map(|(position, bytes)| position + bytes).max();
    let bytes = bytes.expect("it has blocks");
    let held = Part {
        data: PartData::Held(bytes),
        ..part()
    };
    let encoded = held.to_bytes();
    assert_eq!(Part::read(&encoded, 0), Ok(held));
    // It is in one place.
    assert!(Part::read(&encoded, bytes).is_err());
    let short = Part {
        data: PartData::Held(bytes - 1),
        ..part()
    };
    assert!(Part::read(&short.to_bytes(), 0).is_err());
    let endless = Part {
        data: PartData::Held(HELD_BYTES_MAX + 1),
        ..part()
    };
    assert!(Part::read(&endless.to_bytes(), 0).is_err());
    // What is sent later says nothing else.
    let sent = Part {
        data: PartData::Sent,
        ..part()
    };
    assert!(Part::read(&sent.to_bytes(), 12).is_err());
    let sent = Part {
        attributes: Vec::new(),
        variables: Vec::new(),
        ..sent
    };
    assert_eq!(Part::read(&sent.to_bytes(), 12), Ok(sent));
    for (data, of_event) in [
        (PartData::Here, 5),
        (PartData::Held(7), 7),
        (PartData::Sent, 5),
    ] {
        assert_eq!(data.bytes(5), of_event);
        assert_eq!(PartData::from_bytes("data", &data.to_bytes()), Ok(data));
    }
    assert!(PartData::from_bytes("data", &[4]).is_err());
}
