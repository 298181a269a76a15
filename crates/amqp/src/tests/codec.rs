//! Frames, methods and tables: what is written is read, and nothing else is.

use super::{Chance, seeds};
use crate::faults::{self, Fault};
use crate::reader::{FrameReader, Part};
use crate::table::{Array, TABLE_BYTES_MAX, TABLE_DEPTH_MAX, Table, Value};
use crate::*;
use bytes::{BufMut, Bytes, BytesMut};

const GOLDEN: &str = include_str!("../../tests/golden/frames.txt");

fn encoded(frame: &Frame) -> BytesMut {
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn short(text: &str) -> ShortString {
    ShortString::try_from(text).unwrap()
}

fn method(channel: u16, method: impl Into<Method>) -> Frame {
    Frame::Method {
        channel,
        method: method.into(),
    }
}

#[track_caller]
fn is_written_as(frame: &Frame, bytes: &[u8]) {
    assert_eq!(hex(&encoded(frame)), hex(bytes));
    let mut input = BytesMut::from(bytes);
    assert_eq!(
        Frame::decode(&mut input, 8192).unwrap().as_ref(),
        Some(frame)
    );
    assert!(input.is_empty());
}

fn round_trip(seed: u64) {
    let mut chance = Chance(seed);
    let frame = chance.frame();
    let mut bytes = encoded(&frame);
    let found = Frame::decode(&mut bytes, 1 << 20).unwrap();
    assert_eq!(found, Some(frame), "AMQP_SEEDS={seed}..{}", seed + 1);
    assert!(bytes.is_empty());
}

#[test]
fn generated_frames_come_back() {
    seeds(2000).for_each(round_trip);
}

#[test]
fn every_method_comes_back() {
    for index in 0..Method::ALL.len() {
        for seed in 0..20 {
            let frame = method(3, Method::generate(index, &mut Chance(seed)));
            let found = Frame::decode(&mut encoded(&frame), 1 << 20).unwrap();
            assert_eq!(found, Some(frame));
        }
    }
}

/// The frames of the golden file: each method with fields of one seed, and what else there is.
fn samples() -> Vec<(String, Frame)> {
    let mut samples: Vec<_> = (0..Method::ALL.len())
        .map(|index| {
            let name = Method::ALL[index].1.to_owned();
            (name, method(1, Method::generate(index, &mut Chance(7))))
        })
        .collect();
    let header = Frame::Header {
        channel: 1,
        header: ContentHeader {
            class: 60,
            body_bytes: 4_000_000,
            properties: Chance(11).properties().encode(),
        },
    };
    let bytes = Bytes::from_static(b"body");
    samples.push(("header".to_owned(), header));
    samples.push(("body".to_owned(), Frame::Body { channel: 1, bytes }));
    samples.push(("heartbeat".to_owned(), Frame::Heartbeat));
    samples
}

#[test]
fn the_golden_bytes_are_the_same() {
    let lines = samples()
        .iter()
        .map(|(name, frame)| format!("{name} {}\n", hex(&encoded(frame))))
        .collect::<String>();
    assert!(
        lines == GOLDEN,
        "tests/golden/frames.txt has other bytes; if that is meant, they are now\n{lines}"
    );
}

#[test]
fn frames_are_as_the_standard_has_them() {
    is_written_as(&Frame::Heartbeat, &[8, 0, 0, 0, 0, 0, 0, 0xce]);
    let bytes = Bytes::from_static(b"abc");
    is_written_as(
        &Frame::Body {
            channel: 258,
            bytes,
        },
        &[3, 1, 2, 0, 0, 0, 3, b'a', b'b', b'c', 0xce],
    );
    let tune = connection_methods::Tune {
        channel_max: 2047,
        frame_max: 131_072,
        heartbeat: 60,
    };
    is_written_as(
        &method(0, tune),
        &[
            1, 0, 0, 0, 0, 0, 12, 0, 10, 0, 30, 7, 0xff, 0, 2, 0, 0, 0, 60, 0xce,
        ],
    );
    // Five bits share an octet: passive is the lowest, no_wait the highest.
    let declare = queue::Declare {
        queue: short("q"),
        durable: true,
        no_wait: true,
        ..queue::Declare::default()
    };
    is_written_as(
        &method(1, declare),
        &[
            1, 0, 1, 0, 0, 0, 13, 0, 50, 0, 10, 0, 0, 1, b'q', 0b1_0010, 0, 0, 0, 0, 0xce,
        ],
    );
    let properties = Properties {
        content_type: Some(ShortBytes::try_from(&b"a"[..]).unwrap()),
        delivery_mode: Some(2),
        cluster_id: Some(ShortBytes::default()),
        ..Properties::default()
    };
    let header = ContentHeader {
        class: 60,
        body_bytes: 5,
        properties: properties.encode(),
    };
    is_written_as(
        &Frame::Header { channel: 1, header },
        &[
            2, 0, 1, 0, 0, 0, 18, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0x90, 0x04, 1, b'a', 2, 0,
            0xce,
        ],
    );
}

#[test]
#[should_panic(expected = "left")]
fn a_bit_in_an_octet_of_its_own_is_noticed() {
    faults::with(Fault::BitsApart, frames_are_as_the_standard_has_them);
}

#[test]
fn half_a_frame_waits_and_half_a_payload_is_an_error() {
    for (name, frame) in samples() {
        let whole = encoded(&frame);
        for end in 0..whole.len() {
            let mut half = BytesMut::from(&whole[..end]);
            assert_eq!(Frame::decode(&mut half, 1 << 20), Ok(None), "{name}");
            assert_eq!(half.len(), end, "nothing is taken of half a frame");
        }
        if let Frame::Method { method, .. } = frame {
            let mut payload = BytesMut::new();
            method.encode(&mut payload);
            for end in 0..payload.len() {
                let half = Bytes::copy_from_slice(&payload[..end]);
                let error = Method::decode(half).unwrap_err();
                assert!(
                    matches!(error, DecodeError::Short { .. }),
                    "{name}: {error}"
                );
            }
            payload.put_u8(0);
            let error = Method::decode(payload.freeze()).unwrap_err();
            assert!(matches!(error, DecodeError::Extra { had: 1, .. }), "{name}");
        }
    }
}

fn refused(bytes: &[u8]) -> DecodeError {
    Frame::decode(&mut BytesMut::from(bytes), 8192).unwrap_err()
}

fn frames_that_are_none_are_refused() {
    assert_eq!(refused(&[9, 0, 0, 0, 0, 0, 0]), DecodeError::Kind(9));
    // A frame of 4 GiB is refused by its head.
    assert_eq!(
        refused(&[3, 0, 1, 0xff, 0xff, 0xff, 0xff]),
        DecodeError::FrameTooLong {
            bytes: (1 << 32) + 7,
            max: 8192
        }
    );
    // frame_max counts the 8 bytes beside the payload.
    let mut body = BytesMut::from(&[3, 0, 1, 0, 0, 0x1f, 0xf8][..]);
    body.put_bytes(1, 8184);
    body.put_u8(0xce);
    assert_eq!(body.len(), 8192);
    assert!(Frame::decode(&mut body, 8192).unwrap().is_some());
    assert!(matches!(
        refused(&[3, 0, 1, 0, 0, 0x1f, 0xf9]),
        DecodeError::FrameTooLong { bytes: 8193, .. }
    ));
    assert_eq!(
        refused(&[3, 0, 1, 0, 0, 0, 0, 0xcd]),
        DecodeError::End(0xcd)
    );
    assert_eq!(
        refused(&[8, 0, 1, 0, 0, 0, 0, 0xce]),
        DecodeError::Heartbeat {
            channel: 1,
            bytes: 0
        }
    );
    assert_eq!(
        refused(&[1, 0, 1, 0, 0, 0, 4, 0, 30, 0, 10, 0xce]),
        DecodeError::Method(MethodId::new(30, 10))
    );
    // Not UTF-8.
    let open = [1, 0, 0, 0, 0, 0, 7, 0, 10, 0, 40, 1, 0xff, 0, 0xce];
    assert_eq!(refused(&open), DecodeError::Text { at: 4 });
    let header = |weight: u8, flags: u8| {
        [
            2, 0, 1, 0, 0, 0, 14, 0, 60, 0, weight, 0, 0, 0, 0, 0, 0, 0, 5, 0, flags, 0xce,
        ]
    };
    assert_eq!(refused(&header(1, 0)), DecodeError::Weight(1));
    // More flags are said to follow.
    assert_eq!(refused(&header(0, 1)), DecodeError::PropertyFlags(1));
}

#[test]
fn what_is_no_frame_is_refused() {
    frames_that_are_none_are_refused();
}

#[test]
#[should_panic(expected = "called `Result::unwrap_err()`")]
fn a_frame_of_any_size_is_noticed() {
    faults::with(Fault::AnySize, frames_that_are_none_are_refused);
}

#[test]
#[should_panic(expected = "called `Result::unwrap_err()`")]
fn a_frame_with_any_end_is_noticed() {
    faults::with(Fault::AnyEnd, frames_that_are_none_are_refused);
}

/// A table of tables, `depth` of them.
fn nested(depth: usize) -> Bytes {
    let mut table = Table::default();
    for _ in 1..depth {
        table = Table::of([("", Value::Table(table))]);
    }
    table.as_bytes().clone()
}

fn deep_tables_are_refused() {
    assert!(Table::decode(nested(TABLE_DEPTH_MAX)).is_ok());
    let error = Table::decode(nested(TABLE_DEPTH_MAX + 1)).unwrap_err();
    assert!(matches!(error, DecodeError::Depth { .. }), "{error}");
}

#[test]
fn a_table_is_deep_to_a_bound() {
    deep_tables_are_refused();
}

#[test]
#[should_panic(expected = "called `Result::unwrap_err()`")]
fn a_table_of_any_depth_is_noticed() {
    faults::with(Fault::AnyDepth, deep_tables_are_refused);
}

#[test]
fn every_type_of_rabbitmq_is_read() {
    let all = [
        (&b"t\x01"[..], Value::Bool(true)),
        (b"b\xff", Value::I8(-1)),
        (b"B\xff", Value::U8(255)),
        (b"s\xff\xfe", Value::I16(-2)),
        (b"u\xff\xfe", Value::U16(65534)),
        (b"I\xff\xff\xff\xff", Value::I32(-1)),
        (b"i\xff\xff\xff\xff", Value::U32(u32::MAX)),
        (b"l\xff\xff\xff\xff\xff\xff\xff\xff", Value::I64(-1)),
        (b"f\x3f\x80\0\0", Value::F32(1.0)),
        (b"d\x3f\xf0\0\0\0\0\0\0", Value::F64(1.0)),
        (
            b"D\x02\0\0\x01\x3a",
            Value::Decimal {
                scale: 2,
                digits: 314,
            },
        ),
        (b"S\0\0\0\x02hi", Value::text("hi")),
        (
            b"A\0\0\0\x03t\0V",
            Value::Array(Array::of([Value::Bool(false), Value::Void])),
        ),
        (b"T\0\0\0\0\0\0\0\x09", Value::Timestamp(9)),
        (
            b"F\0\0\0\x04\x01kb\x05",
            Value::Table(Table::of([("k", Value::I8(5))])),
        ),
        (b"V", Value::Void),
        (b"x\0\0\0\x01\0", Value::Bytes(Bytes::from_static(b"\0"))),
    ];
    for (bytes, value) in all {
        let mut table = BytesMut::from(&b"\x03key"[..]);
        table.put_slice(bytes);
        let table = Table::decode(table.freeze()).unwrap();
        assert_eq!(table.get("key"), Some(value.clone()));
        assert_eq!(table, Table::of([("key", value)]));
    }
    let long = Table::decode(Bytes::from_static(b"\x01kL\0\0\0\0\0\0\0\x01")).unwrap();
    assert_eq!(long.get("k").unwrap().as_integer(), Some(1));
}

#[test]
fn what_is_no_table_is_refused() {
    let error = |bytes: &'static [u8]| Table::decode(Bytes::from_static(bytes)).unwrap_err();
    let short = |at, needed, had| DecodeError::Short { at, needed, had };
    assert_eq!(error(b"\x05key"), short(1, 5, 3));
    assert_eq!(error(b"\x01k"), short(2, 1, 0));
    assert_eq!(error(b"\x01kI\0\0"), short(3, 4, 2));
    // A length of 4 GiB is no more than a number.
    assert_eq!(
        error(b"\x01kS\xff\xff\xff\xff"),
        short(7, u32::MAX as usize, 0)
    );
    // A table inside says more than it has, and the offset is that of the whole.
    assert_eq!(error(b"\x01kF\0\0\0\x03\x01kI"), short(10, 4, 0));
    assert_eq!(
        error(b"\x01kU\0\0"),
        DecodeError::FieldType { at: 2, kind: b'U' }
    );
    let long = Bytes::from(vec![0; TABLE_BYTES_MAX + 1]);
    let error = Table::decode(long).unwrap_err();
    assert!(matches!(error, DecodeError::TableTooLong { .. }));
}

#[test]
fn a_name_that_comes_twice_is_found_once() {
    let table = Table::of([("a", Value::I8(1)), ("a", Value::I8(2))]);
    assert_eq!(table.get("a"), Some(Value::I8(1)));
    assert_eq!(table.fields().count(), 2);
}

#[test]
fn a_long_text_is_cut_at_a_character() {
    let text = "ü".repeat(200);
    assert_eq!(ShortString::truncated(&text).len(), 254);
    assert_eq!(
        ShortString::try_from(text.as_str()),
        Err(TooLong { bytes: 400 })
    );
}

/// The frames of a stream that comes in pieces of these lengths, as `reader` has them.
fn read_in_pieces(stream: &[u8], mut length: impl FnMut() -> usize) -> Vec<String> {
    let mut reader = FrameReader::new(1 << 20);
    let mut parts = Vec::new();
    let mut body = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        let end = (at + length()).min(stream.len());
        let mut piece = &stream[at..end];
        at = end;
        while let Some(part) = reader.next(&mut piece).unwrap() {
            match part {
                Part::Payload(head, payload) => parts.push(format!("{head:?} {}", hex(&payload))),
                Part::BodyStart(_) => body.clear(),
                Part::Body { bytes, .. } => body.extend_from_slice(bytes),
                Part::BodyEnd { channel } => parts.push(format!("{channel} {}", hex(&body))),
                Part::Heartbeat => parts.push("heartbeat".to_owned()),
            }
        }
        assert!(piece.is_empty());
        assert!(reader.held() <= 2 * at + 64, "room for more than has come");
    }
    parts
}

#[test]
fn a_stream_is_the_same_however_it_is_cut() {
    for seed in seeds(200) {
        let mut chance = Chance(seed);
        let mut stream = BytesMut::new();
        for _ in 0..6 {
            chance.frame().encode(&mut stream);
        }
        let whole = read_in_pieces(&stream, || usize::MAX / 2);
        assert_eq!(whole.len(), 6);
        assert_eq!(read_in_pieces(&stream, || 1), whole);
        let cut = read_in_pieces(&stream, || 1 + chance.below(30));
        assert_eq!(cut, whole, "AMQP_SEEDS={seed}..{}", seed + 1);
    }
}

#[test]
fn codes_are_those_of_the_standard() {
    let hard: Vec<_> = ReplyCode::ALL
        .iter()
        .filter(|code| code.is_hard())
        .map(|code| code.number())
        .collect();
    assert_eq!(
        hard,
        [200, 320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541]
    );
}
