//! What the nodes of a table tell each other: its bytes, which never change, and its page.

use std::collections::BTreeMap;
use wire::record::*;
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

fn labels() -> Labels {
    let labels = [("host", "h7"), ("rank", "3")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Labels(labels.into_iter().collect())
}

fn endpoints() -> Endpoints {
    Endpoints(vec!["tcp://h7:9001".into(), "unix:///d/s".into()])
}

fn node(state: NodeState) -> NodeRecord {
    NodeRecord {
        node: NodeId(3),
        directory: DirectoryId(0xd3),
        epoch: 4,
        shard: 1,
        endpoints: endpoints(),
        labels: labels(),
        state,
    }
}

/// Records that are in no message of the golden file.
fn alone() -> [Record; 2] {
    [placed(), Record::Node(node(NodeState::Draining))]
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
        (
            "Register",
            TableMessage::Register(Register {
                directory: DirectoryId(0xd3),
                endpoints: endpoints(),
                labels: labels(),
                shard: 1,
            }),
        ),
        (
            "Registered",
            TableMessage::Registered(Registered {
                node: NodeId(3),
                epoch: 4,
            }),
        ),
    ]
}

#[test]
fn messages_are_written_as_they_were() {
    let golden = golden();
    let messages = messages();
    assert_eq!(
        golden.len(),
        messages.len() + records().len() + alone().len()
    );
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
    for record in records().into_iter().chain(alone()) {
        let name = match &record {
            Record::Table(_) => "record Table",
            Record::Followed(_) => "record Followed",
            Record::Proposed(_) => "record Proposed",
            Record::Placed(_) => "record Placed",
            Record::Node(_) => "record Node",
            _ => "record TopicDeleted",
        };
        let bytes = record.to_bytes();
        assert_eq!(bytes, golden[name], "the bytes of {name} have changed");
        assert_eq!(Record::from_bytes("golden", &bytes), Ok(record));
    }
}

/// Says whether a node and its registration are read again that have these.
fn is_read(endpoints: Endpoints, labels: Labels) -> bool {
    let record = NodeRecord {
        endpoints,
        labels,
        ..node(NodeState::Serving)
    };
    let register = TableMessage::Register(Register {
        directory: record.directory,
        endpoints: record.endpoints.clone(),
        labels: record.labels.clone(),
        shard: 0,
    });
    let is_excess = record.excess().is_some();
    let bytes = Record::Node(record.clone()).to_bytes();
    let read = Record::from_bytes("node", &bytes);
    let heard = TableMessage::read(&register.to_bytes());
    assert_eq!(read.is_ok(), heard.is_ok());
    // Who writes one finds the bound that its readers keep.
    assert_eq!(read.is_err(), is_excess);
    read.is_ok_and(|it| it == Record::Node(record))
}

#[test]
fn a_node_says_no_more_of_itself_than_the_bounds_allow() {
    let text = |bytes| "x".repeat(bytes);
    let labels = |count: usize, key: usize, value: usize| {
        let pairs = (0..count).map(|number| (format!("{number:0key$}"), text(value)));
        Labels(pairs.collect())
    };
    let max = NODE_TEXT_BYTES_MAX;
    let none = Endpoints::default;
    assert!(is_read(none(), Labels::default()));
    assert!(is_read(
        Endpoints(vec![text(max); ENDPOINTS_MAX]),
        labels(LABELS_MAX, max, max)
    ));
    assert!(!is_read(
        Endpoints(vec![text(1); ENDPOINTS_MAX + 1]),
        Labels::default()
    ));
    assert!(!is_read(Endpoints(vec![text(max + 1)]), Labels::default()));
    assert!(!is_read(none(), labels(LABELS_MAX + 1, 1, 1)));
    assert!(!is_read(none(), labels(1, max + 1, 1)));
    assert!(!is_read(none(), labels(1, 1, max + 1)));
}

/// One table has one form as bytes, whichever node has written it.
#[test]
fn labels_have_one_order_and_no_key_twice() {
    let bytes = |pairs: [(&str, &str); 2]| {
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        pairs.to_vec().to_bytes()
    };
    let read = |pairs| Labels::from_bytes("labels", &bytes(pairs));
    assert_eq!(read([("host", "h7"), ("rank", "3")]), Ok(labels()));
    assert!(read([("rank", "3"), ("host", "h7")]).is_err());
    assert!(read([("rank", "3"), ("rank", "3")]).is_err());
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
    assert_eq!(seen, 11, "the source was understood");
    let rows = [
        "| 14 | table |",
        "| 15 | followed |",
        "| 16 | proposed |",
        "| 17 | placed |",
        "| 18 | node |",
    ];
    for row in rows {
        assert!(LOG_PAGE.contains(row), "log.md has no {row}");
    }
    for (text, number) in [
        ("at most 32 endpoints", ENDPOINTS_MAX),
        ("32 labels", LABELS_MAX),
        ("256 bytes each", NODE_TEXT_BYTES_MAX),
    ] {
        assert!(text.contains(&number.to_string()), "{text}");
        assert!(LOG_PAGE.contains(text), "log.md does not say {text}");
    }
    for (text, bytes) in [("1 MiB", PIECE_BYTES_MAX), ("128 MiB", MESSAGE_BYTES_MAX)] {
        let number: usize = text.trim_end_matches(" MiB").parse().expect("a number");
        assert_eq!(number << 20, bytes);
        assert!(PAGE.contains(text), "table.md does not say {text}");
    }
}
