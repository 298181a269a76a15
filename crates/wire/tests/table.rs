//! What the nodes of a table tell each other: its bytes, which never change, and its page.

use std::collections::BTreeMap;
use wire::record::{FollowedRecord, PlacedRecord, ProposedRecord, Record};
use wire::table::*;
use wire::*;

const GOLDEN: &str = include_str!("golden/table-1.txt");
const PAGE: &str = include_str!("../../../docs/format/table.md");
const LOG_PAGE: &str = include_str!("../../../docs/format/log.md");
const SOURCE: &str = include_str!("../src/table.rs");

/// The file: a line for each example, its name and its bytes in hexadecimal.
fn golden() -> BTreeMap<&'static str, Vec<u8>> {
    let lines = GOLDEN.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, hex) = line.split_once(": ").expect("a name and bytes");
            let digits: Vec<_> = hex.chars().map(|c| c.to_digit(16).expect("hex")).collect();
            let bytes = digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8);
            (name, bytes.collect())
        })
        .collect()
}

fn table() -> TableId {
    TableId(0x0123_4567_89ab_cdef_0011_2233_4455_6677)
}

fn records() -> Vec<Record> {
    vec![
        Record::Table(table()),
        Record::Followed(FollowedRecord {
            node: NodeId(3),
            index: 7,
        }),
        Record::Proposed(ProposedRecord {
            node: NodeId(3),
            number: 9,
        }),
        Record::TopicDeleted(TopicId(5)),
    ]
}

fn placed() -> Record {
    Record::Placed(PlacedRecord {
        topic: TopicId(5),
        partition: PartitionIndex(2),
        node: NodeId(3),
    })
}

fn messages() -> Vec<(&'static str, TableMessage)> {
    let error = ErrorReply {
        code: ErrorCode::StorageFull,
        retryable: true,
        retry_after_ms: 1000,
        leader_hint: String::new(),
        message: "no space".into(),
    };
    let entry = |index, records| Entry { index, records };
    vec![
        (
            "Follow",
            TableMessage::Follow(Follow {
                node: NodeId(3),
                table: table(),
                index: 300,
                refusals: 2,
            }),
        ),
        (
            "Propose",
            TableMessage::Propose(Propose {
                number: 9,
                refusals: 2,
                records: records(),
            }),
        ),
        ("Took", TableMessage::Took(Took { count: 4 })),
        (
            "Leads",
            TableMessage::Leads(Leads {
                table: table(),
                index: 301,
                proposed: 8,
            }),
        ),
        (
            "Unled",
            TableMessage::Unled(Unled {
                reason: "its log failed".into(),
            }),
        ),
        (
            "Piece",
            TableMessage::Piece(Piece {
                index: 301,
                is_last: true,
                records: records(),
            }),
        ),
        (
            "Entries",
            TableMessage::Entries(Entries {
                after: 300,
                entries: vec![
                    entry(301, vec![Record::TopicDeleted(TopicId(5))]),
                    entry(303, records()),
                ],
            }),
        ),
        (
            "Refused",
            TableMessage::Refused(Refused { number: 9, error }),
        ),
    ]
}

#[test]
fn messages_are_written_as_they_were() {
    let golden = golden();
    let messages = messages();
    assert_eq!(golden.len(), messages.len() + records().len() + 1);
    for (name, message) in messages {
        let bytes = message.to_bytes();
        assert_eq!(bytes, golden[name], "the bytes of {name} have changed");
        assert_eq!(TableMessage::read(&bytes).as_ref(), Ok(&message), "{name}");
        for end in 0..bytes.len() {
            assert!(
                TableMessage::read(&bytes[..end]).is_err(),
                "{name} cut at {end}"
            );
        }
        let longer = [&bytes[..], b"more"].concat();
        assert!(TableMessage::read(&longer).is_err(), "{name} and more");
    }
}

#[test]
fn records_are_written_as_they_were() {
    let golden = golden();
    for record in records().into_iter().chain([placed()]) {
        let name = match &record {
            Record::Table(_) => "record Table",
            Record::Followed(_) => "record Followed",
            Record::Proposed(_) => "record Proposed",
            Record::Placed(_) => "record Placed",
            _ => "record TopicDeleted",
        };
        let bytes = record.to_bytes();
        assert_eq!(bytes, golden[name], "the bytes of {name} have changed");
        assert_eq!(Record::from_bytes("golden", &bytes), Ok(record));
    }
}

#[test]
fn any_bytes_are_a_message_or_an_error() {
    for (_, message) in messages() {
        let bytes = message.to_bytes();
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut wrong = bytes.clone();
                wrong[at] ^= flip;
                // Whatever it is read as has these bytes.
                if let Ok(read) = TableMessage::read(&wrong) {
                    assert_eq!(read.to_bytes().len(), wrong.len());
                }
            }
        }
    }
    let mut later = messages()[0].1.to_bytes();
    later[2] = 2;
    let error = TableMessage::read(&later).unwrap_err();
    assert!(error.is_of_another_version(), "{error}");
}

#[test]
fn every_message_and_field_is_on_the_page() {
    let mut seen = 0;
    let mut rest = SOURCE;
    while let Some(at) = rest.find("\nrecord! {") {
        rest = &rest[at + 1..];
        let body = &rest[..rest.find("\n}\n").expect("a record ends")];
        let name = body.split("pub struct ").nth(1).expect("it has a name");
        let name = name.split(' ').next().expect("it has a name");
        let at = PAGE.find(&format!("| {name} |"));
        let at = at.unwrap_or_else(|| panic!("table.md has no row for {name}"));
        let row = PAGE[at..].lines().next().expect("a row");
        let mut from = 0;
        for line in body.lines().map(str::trim) {
            let Some((field, _)) = line.strip_prefix("pub ").and_then(|it| it.split_once(": "))
            else {
                continue;
            };
            let place = row[from..].find(&format!("{field} "));
            from += place.unwrap_or_else(|| panic!("{field} of {name} is not in its place: {row}"));
        }
        seen += 1;
    }
    assert_eq!(seen, 9, "the source was understood");
    let rows = [
        "| 14 | table |",
        "| 15 | followed |",
        "| 16 | proposed |",
        "| 17 | placed |",
    ];
    for row in rows {
        assert!(LOG_PAGE.contains(row), "log.md has no {row}");
    }
    for (text, bytes) in [("1 MiB", PIECE_BYTES_MAX), ("128 MiB", MESSAGE_BYTES_MAX)] {
        let number: usize = text.trim_end_matches(" MiB").parse().expect("a number");
        assert_eq!(number << 20, bytes);
        assert!(PAGE.contains(text), "table.md does not say {text}");
    }
}
