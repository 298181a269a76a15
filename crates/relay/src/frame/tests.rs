use super::*;

/// The bytes of every kind of frame, as the page has them.
const GOLDEN: &str = include_str!("../../tests/golden/frames-1.txt");

fn samples() -> Vec<(&'static str, Frame)> {
    let stream = StreamId(6);
    let terms = Terms {
        rate_up: 125_000_000,
        rate_down: 0,
        stripes: 8,
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    vec![
        (
            "Hello",
            Frame::Hello(Hello {
                purpose: Purpose::Join,
                session: [0; 16],
                proof: [0x11; 32],
                terms,
                targets: names(&["back"]),
            }),
        ),
        (
            "Welcome",
            Frame::Welcome(Welcome {
                session: [0x22; 16],
                proof: [0x33; 32],
                secret: [0x44; 32],
                terms,
                lasts_seconds: 28_800,
                targets: names(&["amqp", "web"]),
            }),
        ),
        ("Refused", Frame::Refused(Refusal::Used)),
        (
            "Open",
            Frame::Open {
                stream,
                name: "amqp".to_owned(),
            },
        ),
        (
            "Data",
            Frame::Data {
                stream,
                offset: 70_000,
                bytes: Bytes::from_static(b"bytes"),
            },
        ),
        (
            "Credit",
            Frame::Credit {
                stream,
                received: 70_005,
                limit: 332_149,
            },
        ),
        (
            "Close",
            Frame::Close {
                stream,
                offset: 70_005,
            },
        ),
        (
            "Reset",
            Frame::Reset {
                stream,
                reason: Reason::Unreachable,
            },
        ),
        ("Ping", Frame::Ping(123_456)),
        ("Pong", Frame::Pong(123_456)),
        ("Rate", Frame::Rate(25_000_000)),
        ("Goodbye", Frame::Goodbye(Reason::Leaves)),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encoded(frame: &Frame) -> BytesMut {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes);
    bytes
}

#[test]
fn the_bytes_are_those_of_the_page() {
    let mut all = String::new();
    for (name, frame) in samples() {
        all += &format!("{name} {}\n", hex(&encoded(&frame)));
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/frames-1.txt");
        std::fs::write(path, &all).unwrap();
    }
    assert_eq!(all, GOLDEN, "UPDATE_GOLDEN=1 writes it, for a new version");
}

#[test]
fn every_frame_is_read_as_it_was_written() {
    let mut together = BytesMut::new();
    for (_, frame) in samples() {
        frame.encode(&mut together);
        let mut bytes = encoded(&frame);
        let whole = bytes.clone();
        for length in 0..whole.len() {
            let mut part = BytesMut::from(&whole[..length]);
            assert_eq!(
                Frame::decode(&mut part, PAYLOAD_BYTES_MAX),
                Ok(None),
                "{frame:?}"
            );
            assert_eq!(part.len(), length, "nothing is taken of a part");
        }
        assert_eq!(
            Frame::decode(&mut bytes, PAYLOAD_BYTES_MAX),
            Ok(Some(frame))
        );
        assert!(bytes.is_empty());
    }
    for (_, frame) in samples() {
        assert_eq!(
            Frame::decode(&mut together, PAYLOAD_BYTES_MAX),
            Ok(Some(frame))
        );
    }
}

fn header(bytes: u32, kind: u8, stream: u32) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u32_le(bytes);
    out.put_u8(kind);
    out.put_bytes(0, 3);
    out.put_u32_le(stream);
    out
}

#[test]
fn what_is_too_long_is_refused_by_its_header() {
    let decode = |mut bytes: BytesMut, max| Frame::decode(&mut bytes, max);
    let long = decode(header(u32::MAX, DATA, 2), PAYLOAD_BYTES_MAX);
    assert_eq!(
        long,
        Err(FrameError::TooLong {
            kind: DATA,
            bytes: u32::MAX,
            max: PAYLOAD_BYTES_MAX
        })
    );
    let early = decode(header(60_000, DATA, 2), HELLO_BYTES_MAX);
    assert_eq!(
        early,
        Err(FrameError::TooLong {
            kind: DATA,
            bytes: 60_000,
            max: HELLO_BYTES_MAX
        })
    );
    assert!(matches!(
        decode(header(9, PING, 0), PAYLOAD_BYTES_MAX),
        Err(FrameError::TooLong { .. })
    ));
    assert_eq!(
        decode(header(0, 99, 0), PAYLOAD_BYTES_MAX),
        Err(FrameError::Kind(99))
    );
}

#[test]
fn what_is_malformed_is_named() {
    let what = |mut bytes: BytesMut| match Frame::decode(&mut bytes, PAYLOAD_BYTES_MAX) {
        Err(FrameError::Malformed { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    let with = |kind, stream, payload: &[u8]| {
        let mut bytes = header(payload.len() as u32, kind, stream);
        bytes.put_slice(payload);
        bytes
    };
    let mut reserved = header(8, PING, 0);
    reserved[5] = 1;
    assert_eq!(what(reserved), "a reserved byte is not 0");
    assert_eq!(what(with(PING, 3, &[0; 8])), "it names a stream");
    assert_eq!(what(with(PING, 0, &[0; 7])), "it is too short");
    assert_eq!(what(with(DATA, 2, &[0; 8])), "it has no bytes");
    assert_eq!(what(with(DATA, 2, &[0xff; 9])), "its offset is too great");
    assert_eq!(
        what(with(CREDIT, 2, &[0xff; 16])),
        "its offset is too great"
    );
    assert_eq!(
        what(with(OPEN, 2, b"10.0.0.1:22")),
        "it has no name of a target"
    );
    assert_eq!(what(with(OPEN, 2, b"")), "it has no name of a target");
    assert_eq!(what(with(RESET, 2, &[0, 0])), "its reason is not known");
    assert_eq!(what(with(REFUSED, 0, &[0, 9])), "its code is not known");
    let mut hello = encoded(&samples()[0].1);
    hello[HEADER_BYTES] = 2;
    assert_eq!(what(hello), "it is of another version");
}

#[test]
fn secrets_are_in_no_debug() {
    for (_, frame) in samples() {
        let text = format!("{frame:?}");
        for secret in ["17", "51", "68", "0x11", "0x33", "0x44"] {
            let list = format!("{secret}, {secret}");
            assert!(!text.contains(&list), "{text}");
        }
    }
}

/// Random numbers of a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// `RELAY_SEEDS=81000..82000` for a longer run.
pub(crate) fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("RELAY_SEEDS") else {
        return usual;
    };
    let (from, to) = text.split_once("..").expect("RELAY_SEEDS is as 0..1000");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn any_bytes_are_frames_or_an_error() {
    for seed in seeds(1..2000) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut bytes = BytesMut::new();
        for _ in 0..random.below(6) {
            let all = samples();
            all[random.below(all.len())].1.encode(&mut bytes);
        }
        for _ in 0..random.below(5) {
            match random.below(3) {
                0 if !bytes.is_empty() => {
                    let at = random.below(bytes.len());
                    bytes[at] = random.next() as u8;
                }
                1 => {
                    let length = random.below(bytes.len() + 1);
                    bytes.truncate(length);
                }
                _ => bytes.put_u32_le(random.next() as u32),
            }
        }
        let before = bytes.len();
        let mut taken = 0;
        while let Ok(Some(frame)) = Frame::decode(&mut bytes, PAYLOAD_BYTES_MAX) {
            // What was read is written as it was: a frame has one form.
            taken += encoded(&frame).len();
            assert_eq!(taken + bytes.len(), before, "seed {seed}");
        }
    }
}
