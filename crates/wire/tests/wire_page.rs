//! The page `docs/format/wire.md` against the code: every frame kind, method
//! and error code is on it, and every message with every field, in order.

use std::collections::BTreeMap;
use wire::frame::{
    BULK_CHUNK_BYTES, FRAME_HEADER_BYTES, FRAME_MAGIC, FRAME_VERSION, FrameKind, HEAD_BYTES_MAX,
};
use wire::message::Method;
use wire::{Codec, ErrorCode};

const PAGE: &str = concat!(
    include_str!("../../../docs/format/wire.md"),
    include_str!("../../../docs/format/wire-steps.md"),
    include_str!("../../../docs/format/wire-access.md"),
    include_str!("../../../docs/format/wire-mirror.md"),
    include_str!("../../../docs/format/wire-state.md"),
);
const SOURCES: [&str; 10] = [
    include_str!("../src/message.rs"),
    include_str!("../src/error.rs"),
    include_str!("../src/record.rs"),
    include_str!("../src/view.rs"),
    include_str!("../src/message/sharing.rs"),
    include_str!("../src/message/steps.rs"),
    include_str!("../src/message/access.rs"),
    include_str!("../src/message/mirror.rs"),
    include_str!("../src/message/nodes.rs"),
    include_str!("../src/message/moves.rs"),
];

/// The cells of the page's tables, a row each.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter_map(|line| {
        let inner = line.strip_prefix('|')?.strip_suffix('|')?;
        Some(inner.split('|').map(str::trim).collect())
    })
}

fn assert_listed(code: String, name: String) {
    let listed = rows(PAGE).any(|row| row[0] == code && row[1] == name);
    assert!(listed, "wire.md has no row | {code} | {name} | …");
}

#[test]
fn every_number_is_on_the_page() {
    for kind in FrameKind::ALL {
        assert_listed((*kind as u8).to_string(), format!("{kind:?}"));
    }
    for method in Method::ALL {
        assert_listed((method as u16).to_string(), format!("{method:?}"));
    }
    for code in ErrorCode::ALL {
        assert_listed((*code as u16).to_string(), format!("{code:?}"));
        let name = code.name();
        let words = rows(PAGE).any(|row| row[1] == format!("{code:?}") && row[2] == name);
        assert!(words, "wire.md calls {code:?} something else than {name:?}");
    }
}

#[test]
fn every_number_on_the_page_is_in_the_code() {
    let section = |title: &str| {
        let start = PAGE.find(title).expect("the section is there");
        let rest = &PAGE[start + title.len()..];
        rest[..rest.find("\n## ").unwrap_or(rest.len())].to_owned()
    };
    let codes = |text: &str| -> Vec<u16> {
        let codes = rows(text).filter_map(|row| row[0].parse().ok());
        codes.collect()
    };
    let kinds = codes(&section("## Kinds of frames"));
    assert_eq!(kinds.len(), FrameKind::ALL.len());
    assert!(
        kinds
            .iter()
            .all(|code| FrameKind::from_u8(*code as u8).is_some())
    );
    assert_eq!(codes(&section("## Methods")).len(), Method::ALL.len());
    let errors = codes(&section("## Error codes"));
    assert_eq!(errors.len(), ErrorCode::ALL.len());
    assert!(
        errors
            .iter()
            .all(|code| ErrorCode::from_u16(*code).is_some())
    );
}

#[test]
fn the_limits_on_the_page_are_those_of_the_code() {
    assert_eq!(
        (FRAME_HEADER_BYTES, FRAME_MAGIC, FRAME_VERSION),
        (32, 0x89, 1)
    );
    assert_eq!((HEAD_BYTES_MAX, BULK_CHUNK_BYTES), (1 << 20, 512 << 10));
    for text in [
        "header of 32 bytes",
        "0x89",
        "at most 1 MiB",
        "at most 512 KiB",
    ] {
        assert!(PAGE.contains(text), "wire.md does not say {text:?}");
    }
}

/// Structs of the source that have a binary form: name, and (field, type) in order.
fn structs() -> BTreeMap<String, Vec<(String, String)>> {
    let mut structs = BTreeMap::new();
    for source in SOURCES {
        let mut rest = source;
        while let Some(at) = rest.find("\nrecord! {") {
            rest = &rest[at + 1..];
            let body = &rest[..rest.find("\n}\n").expect("a record ends")];
            let (name, fields) = parse(body);
            structs.insert(name, fields);
        }
    }
    // The one that is written out by hand.
    let view = SOURCES[3];
    let at = view.find("pub struct Segment").expect("it is there");
    let body = &view[at..at + view[at..].find('}').expect("it ends")];
    let (name, fields) = parse(body);
    structs.insert(name, fields);
    structs
}

fn parse(body: &str) -> (String, Vec<(String, String)>) {
    let mut name = String::new();
    let mut fields = Vec::new();
    for line in body.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            name = rest.trim_end_matches([' ', '{']).to_owned();
        } else if let Some(field) = line.strip_prefix("pub ") {
            let (field, kind) = field.split_once(": ").expect("a field has a type");
            fields.push((field.to_owned(), kind.trim_end_matches(',').to_owned()));
        }
    }
    (name, fields)
}

/// How the page writes a type, and how it writes its size.
fn described(kind: &str, structs: &BTreeMap<String, Vec<(String, String)>>) -> (String, String) {
    let inner = |prefix: &str| kind.strip_prefix(prefix)?.strip_suffix('>');
    let fixed = |bytes: usize| (kind.to_owned(), bytes.to_string());
    match kind {
        "String" => return ("text".into(), "4 + n".into()),
        "Bytes" | "Secret" => return ("bytes".into(), "4 + n".into()),
        "u8" | "bool" | "Role" | "Durability" | "CursorMove" | "GapReason" | "ConsumerKind"
        | "SettleAs" | "WhenFull" | "Distribution" | "NodeState" => return fixed(1),
        "u16" | "Method" | "ErrorCode" => return fixed(2),
        "u32" | "PartitionIndex" | "ProducerEpoch" | "Rank" | "NodeId" => return fixed(4),
        "u64" | "Incarnation" | "Offset" | "Sequence" | "LeaseId" | "Run" | "Step" => {
            return fixed(8);
        }
        "u128" | "TopicId" | "ProducerId" | "GroupId" | "DirectoryId" | "ServerInstance"
        | "SessionId" | "MemberId" => return fixed(16),
        "Start" | "StepStart" => return (kind.into(), "1, 9 or 17".into()),
        "Endpoints" => return ("list of text".into(), "4 + items".into()),
        "Labels" => return ("list of (text, text)".into(), "4 + items".into()),
        // It is on the page of steps.
        "Attribute" => return (kind.into(), "varies".into()),
        _ => {}
    }
    if let Some(item) = inner("Appended<") {
        let (item, bytes) = described(item, structs);
        return (format!("{item}, appended"), bytes);
    }
    if let Some(item) = inner("Vec<") {
        let (item, _) = described(item, structs);
        return (format!("list of {item}"), "4 + items".into());
    }
    if let Some(item) = inner("Option<") {
        let (item, _) = described(item, structs);
        return (format!("option of {item}"), "1 or more".into());
    }
    let parts: Vec<String> = match kind.strip_prefix('(') {
        Some(pair) => pair
            .trim_end_matches(')')
            .split(", ")
            .map(str::to_owned)
            .collect(),
        None => {
            let fields = structs.get(kind).unwrap_or_else(|| panic!("type {kind}?"));
            fields.iter().map(|(_, kind)| kind.clone()).collect()
        }
    };
    let parts: Vec<_> = parts.iter().map(|part| described(part, structs)).collect();
    let bytes: Option<usize> = parts
        .iter()
        .map(|(_, size)| size.parse::<usize>().ok())
        .sum();
    let size = bytes.map_or("varies".into(), |bytes| bytes.to_string());
    match kind.starts_with('(') {
        true => {
            let names: Vec<_> = parts.into_iter().map(|(name, _)| name).collect();
            (format!("({})", names.join(", ")), size)
        }
        false => (kind.to_owned(), size),
    }
}

#[test]
fn every_message_is_on_the_page_field_by_field() {
    let structs = structs();
    assert!(structs.len() > 40, "the source was understood");
    // What else is a record belongs to the log's page.
    let messages = SOURCES[0].matches("\nrecord! {").count();
    let mut seen = 0;
    for (name, fields) in &structs {
        let Some(at) = PAGE.find(&format!("\n### {name}\n")) else {
            let elsewhere = SOURCES[2].contains(&format!("pub struct {name} "));
            assert!(elsewhere, "wire.md has no section ### {name}");
            continue;
        };
        seen += 1;
        let rest = &PAGE[at + 1..];
        let section = &rest[..rest.find("\n##").unwrap_or(rest.len())];
        let table = &section[..section.find("|\n\n").map_or(section.len(), |end| end + 1)];
        let found: Vec<_> = rows(table).skip(2).collect();
        let expected: Vec<_> = fields
            .iter()
            .map(|(field, kind)| {
                let (kind, size) = described(kind, &structs);
                (field.clone(), size, kind)
            })
            .collect();
        let found: Vec<_> = found
            .iter()
            .map(|row| (row[0].to_owned(), row[1].to_owned(), row[2].to_owned()))
            .collect();
        assert_eq!(
            found, expected,
            "fields of {name} in wire.md, and in the code"
        );
    }
    assert!(seen > messages, "all messages and what they are made of");
}

#[test]
fn sizes_on_the_page_are_sizes_of_bytes() {
    // The test above takes sizes from types; here are the types themselves.
    let position = wire::record::Position {
        incarnation: wire::Incarnation(1),
        offset: wire::Offset(2),
    };
    let start = wire::message::Start::At(position);
    assert_eq!(start.to_bytes().len(), 17);
    assert_eq!(wire::message::Start::Latest.to_bytes().len(), 1);
    assert_eq!(position.to_bytes().len(), 16);
    assert_eq!(Method::Produce.to_bytes().len(), 2);
    assert_eq!(ErrorCode::Internal.to_bytes().len(), 2);
    assert_eq!(wire::Durability::Synced.to_bytes().len(), 1);
    assert_eq!(wire::record::GapReason::Damaged.to_bytes().len(), 1);
    assert_eq!(wire::TopicId(1).to_bytes().len(), 16);
    assert_eq!("abc".to_owned().to_bytes().len(), 4 + 3);
    assert_eq!(Some(7u64).to_bytes().len(), 1 + 8);
    assert_eq!(vec![7u64, 8].to_bytes().len(), 4 + 16);
}
