//! What producers may rely on, besides the promises.

use super::harness::*;
use crate::faults::Fault;
use crate::node::LinkId;
use bytes::Bytes;
use log::testing::{EventSpec, make_batch};
use std::time::Duration;
use wire::codec::Appended;
use wire::frame::{BULK_CHUNK_BYTES, FrameKind};
use wire::message::*;
use wire::view::{REPEATS_MAX, Repeat, SEGMENTS_MAX, Segment, StridedSegment};
use wire::*;

pub fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 / 7) as u8 ^ seed).collect()
}

/// Exposes memory of a client and describes it.
pub fn expose(world: &mut World, link: LinkId, key: &'static str, bytes: Vec<u8>) -> Region {
    let region = Region {
        key: Bytes::from_static(key.as_bytes()),
        base: 0,
        bytes: bytes.len() as u64,
        memory_kind: 0,
        rails: 0,
    };
    let end = world.links.get_mut(&link).unwrap();
    end.exposed.insert(region.key.clone(), bytes.into());
    region
}

pub fn external(metadata: &str, data: &[u8]) -> EventSpec {
    EventSpec {
        metadata: metadata.into(),
        data: data.to_vec(),
        external: true,
    }
}

pub fn produce_external(
    world: &mut World,
    link: LinkId,
    topic: TopicId,
    sequence: u64,
    events: &[EventSpec],
    regions: Vec<Region>,
) -> u64 {
    let batch = make_batch(origin(topic, 5, 0, sequence), events, 4096);
    let produce = Produce {
        partition: PartitionIndex(0),
        durability: Durability::Memory,
        regions,
    };
    world.request(link, Method::Produce, topic, &produce, &batch)
}

/// One event with this data, whose metadata is its sequence number.
fn produce_large(
    world: &mut World,
    link: LinkId,
    topic: TopicId,
    sequence: u64,
    data: &[u8],
) -> u64 {
    let region = expose(world, link, "r", data.to_vec());
    let event = external(&sequence.to_string(), data);
    produce_external(world, link, topic, sequence, &[event], vec![region])
}

pub fn read_whole(
    world: &mut World,
    link: LinkId,
    topic: TopicId,
    offset: u64,
    bytes: u64,
) -> (Vec<u8>, u32) {
    let wanted = DataWanted {
        partition: PartitionIndex(0),
        incarnation: Incarnation(1),
        offset: Offset(offset),
        segments: vec![Segment { offset: 0, bytes }],
    };
    let (data, checksums) = read_data(world, link, topic, vec![wanted], bytes).unwrap();
    (data, checksums[0])
}

fn read_data(
    world: &mut World,
    link: LinkId,
    topic: TopicId,
    events: Vec<DataWanted>,
    bytes: u64,
) -> Result<(Vec<u8>, Vec<u32>), ErrorReply> {
    read_strided(world, link, topic, (events, Vec::new()), bytes)
}

fn read_strided(
    world: &mut World,
    link: LinkId,
    topic: TopicId,
    (events, strided): (Vec<DataWanted>, Vec<StridedSelection>),
    bytes: u64,
) -> Result<(Vec<u8>, Vec<u32>), ErrorReply> {
    // Two regions, so that the boundary falls somewhere.
    let first = bytes / 3;
    let mut into = Vec::new();
    for (key, bytes) in [("into 1", first), ("into 2", bytes - first)] {
        let key = Bytes::from_static(key.as_bytes());
        let end = world.links.get_mut(&link).unwrap();
        end.lent.insert(key.clone(), vec![0; bytes as usize]);
        into.push(Region {
            key,
            base: 0,
            bytes,
            memory_kind: 0,
            rails: 0,
        });
    }
    let read = ReadData {
        events,
        into,
        strided: Appended(strided),
    };
    let id = world.request(link, Method::ReadData, topic, &read, &[]);
    let answer = world.answer(link, id).expect("answered")?;
    let read = DataRead::from_bytes("data read", &answer.head).unwrap();
    let lent = &world.links[&link].lent;
    let data = [
        lent[b"into 1".as_slice()].clone(),
        lent[b"into 2".as_slice()].clone(),
    ];
    Ok((data.concat(), read.checksums))
}

/// Data of any shape goes in, as any number of regions, and comes out; also
/// behind a restart.
#[test]
fn external_data_goes_in_and_comes_out() {
    for kind in ["disk", "memory"] {
        let mut ground = Ground::new();
        let mut world = ground.start();
        let link = world.connect();
        let topic = world.create(link, "t", "{}", &[kind]).unwrap().topic;
        let large = pattern(3 * BULK_CHUNK_BYTES + 777, 1);
        let small = pattern(5000, 2);
        let events = [
            external("large", &large),
            external("none", b""),
            external("small", &small),
            external("last", b"x"),
        ];
        // The large one is cut inside of blocks.
        let cuts = [0, 1, 4097, 100_000, 2 * BULK_CHUNK_BYTES + 5, large.len()];
        let keys = ["r0", "r1", "r2", "r3", "r4"];
        let mut regions: Vec<Region> = cuts
            .windows(2)
            .zip(keys)
            .map(|(cut, key)| expose(&mut world, link, key, large[cut[0]..cut[1]].to_vec()))
            .collect();
        regions.push(expose(&mut world, link, "small", small.clone()));
        regions.push(expose(&mut world, link, "last", b"x".to_vec()));
        let id = produce_external(&mut world, link, topic, 0, &events, regions);
        let produced: Produced = world.answered(link, id).unwrap();
        assert_eq!(produced.base_offset, Offset(0));
        for (offset, data) in [
            (0, &large),
            (1, &Vec::new()),
            (2, &small),
            (3, &b"x".to_vec()),
        ] {
            let (read, crc) = read_whole(&mut world, link, topic, offset, data.len() as u64);
            assert!(read == **data, "event {offset} of {kind}");
            assert_eq!(crc, wire::checksum::crc32c(data));
        }
        assert_eq!(world.node.status()["data_budget"]["held_bytes"], 0);
    }
}

#[test]
fn selections_are_gathered_in_the_order_asked_for() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let data = pattern(2 * BULK_CHUNK_BYTES, 3);
    let region = expose(&mut world, link, "r", data.clone());
    let inline = pattern(300, 4);
    let events = [
        external("e", &data),
        EventSpec {
            metadata: b"i".to_vec(),
            data: inline.clone(),
            external: false,
        },
    ];
    let id = produce_external(&mut world, link, topic, 0, &events, vec![region]);
    world.answered::<Produced>(link, id).unwrap();
    let segments = |list: &[(u64, u64)]| -> Vec<Segment> {
        list.iter()
            .map(|(offset, bytes)| Segment {
                offset: *offset,
                bytes: *bytes,
            })
            .collect()
    };
    let strided: Vec<(u64, u64)> = (0..500).map(|i| (999_000 - i * 1500, 700)).collect();
    for list in [
        vec![(5, 10), (0, 5)],
        vec![(4095, 2), (4096, 4096), (0, 1)],
        strided,
        vec![(3, 900_000), (1, 2), (500_000, 300_000)],
        vec![],
    ] {
        let wanted = |offset, list: &[(u64, u64)]| DataWanted {
            partition: PartitionIndex(0),
            incarnation: Incarnation(1),
            offset: Offset(offset),
            segments: segments(list),
        };
        let cut = |data: &[u8], list: &[(u64, u64)]| -> Vec<u8> {
            let pieces = list.iter().map(|(offset, bytes)| {
                data[*offset as usize..(*offset + *bytes) as usize].to_vec()
            });
            pieces.collect::<Vec<_>>().concat()
        };
        let (first, second) = (cut(&data, &list), cut(&inline, &[(100, 50)]));
        let all = [first.clone(), second.clone()].concat();
        let events = vec![wanted(0, &list), wanted(1, &[(100, 50)])];
        let (read, checksums) =
            read_data(&mut world, link, topic, events, all.len() as u64).unwrap();
        assert!(read == all, "{list:?}");
        assert_eq!(
            checksums,
            [first, second].map(|part| wire::checksum::crc32c(&part))
        );
    }
    let outside = DataWanted {
        partition: PartitionIndex(0),
        incarnation: Incarnation(1),
        offset: Offset(1),
        segments: segments(&[(299, 2)]),
    };
    let error = read_data(&mut world, link, topic, vec![outside.clone()], 2).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidSelection);
    let beyond = DataWanted {
        offset: Offset(2),
        ..outside
    };
    let error = read_data(&mut world, link, topic, vec![beyond], 2).unwrap_err();
    assert_eq!(error.code, ErrorCode::OffsetOutOfRange);
}

/// What strided segments select, piece by piece.
fn pieces_of(data: &[u8], segments: &[StridedSegment]) -> Vec<u8> {
    let pieces = segments.iter().flat_map(StridedSegment::pieces);
    let bytes = |piece: Segment| &data[piece.offset as usize..][..piece.bytes as usize];
    pieces.flat_map(bytes).copied().collect()
}

/// Whether strided selections of two events, with a list between them, are what their pieces are.
fn strided_is_right(ground: &mut Ground, kind: &str) -> bool {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.create(link, "t", "{}", &[kind]).unwrap().topic;
    let data = pattern(2 * BULK_CHUNK_BYTES, 3);
    let region = expose(&mut world, link, "r", data.clone());
    let inline = pattern(300, 4);
    let events = [
        external("e", &data),
        EventSpec {
            metadata: b"i".to_vec(),
            data: inline.clone(),
            external: false,
        },
    ];
    let id = produce_external(&mut world, link, topic, 0, &events, vec![region]);
    world.answered::<Produced>(link, id).unwrap();
    let rows = |offset, bytes, repeats: &[(u64, u64)]| StridedSegment {
        offset,
        bytes,
        repeats: repeats
            .iter()
            .map(|(count, stride)| Repeat {
                count: *count,
                stride: *stride,
            })
            .collect(),
    };
    let wanted = |offset, segments: Vec<Segment>| DataWanted {
        partition: PartitionIndex(0),
        incarnation: Incarnation(1),
        offset: Offset(offset),
        segments,
    };
    [
        vec![rows(7, 700, &[(500, 1500)])],
        // More pieces than a chunk has; rows longer than one.
        vec![rows(3, 1, &[(40, 25_000), (9, 40), (100, 4)])],
        vec![rows(1, 300_000, &[(3, 350_000)]), rows(5, 9, &[])],
        // One that is nowhere, rows that overlap, and one row again and again.
        vec![
            rows(1, 9, &[(3, 7), (0, 1)]),
            rows(100, 0, &[(9, 9)]),
            rows(2, 40_000, &[(9, 30_000)]),
        ],
        vec![rows(11, 3, &[(1, 1 << 60), (20_000, 0)])],
    ]
    .into_iter()
    .all(|segments| {
        let (first, second) = (pieces_of(&data, &segments), &inline[100..150]);
        let last = pieces_of(&inline, &[rows(0, 2, &[(10, 30)])]);
        let all = [first.clone(), second.to_vec(), last.clone()].concat();
        let list = vec![Segment {
            offset: 100,
            bytes: 50,
        }];
        let events = vec![wanted(0, vec![]), wanted(1, list), wanted(1, vec![])];
        let strided = |event, segments| StridedSelection { event, segments };
        let strided = vec![
            strided(2, vec![rows(0, 2, &[(10, 30)])]),
            strided(0, segments),
        ];
        let bytes = all.len() as u64;
        let (read, checksums) =
            read_strided(&mut world, link, topic, (events, strided), bytes).unwrap();
        let sums = [&first, second, &last].map(wire::checksum::crc32c);
        read == all && checksums == sums
    })
}

#[test]
fn strided_selections_are_their_pieces() {
    for kind in ["disk", "memory"] {
        assert!(strided_is_right(&mut Ground::new(), kind), "{kind}");
        let mut ground = Ground::new();
        ground.fault = Some(Fault::LastPiece);
        assert!(!strided_is_right(&mut ground, kind), "a fault is noticed");
    }
}

#[test]
fn strided_selections_that_cannot_be_are_refused() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let data = pattern(9000, 3);
    let region = expose(&mut world, link, "r", data.clone());
    let id = produce_external(
        &mut world,
        link,
        topic,
        0,
        &[external("e", &data)],
        vec![region],
    );
    world.answered::<Produced>(link, id).unwrap();
    let wanted = |segments| DataWanted {
        partition: PartitionIndex(0),
        incarnation: Incarnation(1),
        offset: Offset(0),
        segments,
    };
    let repeat = |count, stride| Repeat { count, stride };
    let rows = |repeats| StridedSegment {
        offset: 8,
        bytes: 10,
        repeats,
    };
    let of = |event, repeats| StridedSelection {
        event,
        segments: vec![rows(repeats)],
    };
    let none = || vec![wanted(Vec::new())];
    let listed = vec![wanted(vec![Segment {
        offset: 0,
        bytes: 4,
    }])];
    for (events, strided, bytes, words) in [
        (
            none(),
            vec![of(0, vec![repeat(3, 4492)])],
            30,
            "leaves its 9000",
        ),
        (
            none(),
            vec![of(0, vec![repeat(3, u64::MAX)])],
            30,
            "leaves its 9000",
        ),
        (
            none(),
            vec![of(0, vec![repeat(u64::MAX, 0); 2])],
            30,
            "leaves its",
        ),
        (
            none(),
            vec![of(0, vec![repeat(3, 100)])],
            31,
            "3 segments of 30 bytes",
        ),
        (none(), vec![of(1, vec![])], 10, "or there is none"),
        (
            none(),
            vec![of(0, vec![]), of(0, vec![])],
            20,
            "two selections",
        ),
        (listed, vec![of(0, vec![])], 14, "two selections"),
        (
            none(),
            vec![of(0, vec![repeat(1, 0); REPEATS_MAX + 1])],
            10,
            "33 repeats; 32",
        ),
        (
            none(),
            vec![of(0, vec![repeat(SEGMENTS_MAX as u64 + 1, 0)])],
            10 * (SEGMENTS_MAX as u64 + 1),
            "1048577 segments",
        ),
    ] {
        let error = read_strided(&mut world, link, topic, (events, strided), bytes).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidSelection);
        assert!(error.message.contains(words), "{error}");
    }
    assert_eq!(world.node.status()["data_budget"]["held_bytes"], 0);
}

/// Batches that come behind one whose data is on its way wait for it, and
/// are stored in order.
#[test]
fn early_batches_wait_for_the_large_one_before_them() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let data = pattern(100_000, 1);
    let region = expose(&mut world, link, "r", data.clone());
    world.hold_reads = true;
    let large = produce_external(
        &mut world,
        link,
        topic,
        0,
        &[external("0", &data)],
        vec![region.clone()],
    );
    let second = batch(topic, 5, 0, 1, &["1", "2"]);
    let second = world.produce(link, topic, &second);
    let third = batch(topic, 5, 0, 3, &["3"]);
    let third = world.produce(link, topic, &third);
    // Another producer does not wait.
    world.stored(link, topic, (6, 0), &["other"]);
    // One that leaves a hole is refused.
    let hole = batch(topic, 5, 0, 9, &["9"]);
    let hole = world.produce(link, topic, &hole);
    assert_eq!(
        world.error(link, hole).unwrap().code,
        ErrorCode::OutOfSequence
    );
    assert!(
        [large, second, third]
            .iter()
            .all(|id| world.answer(link, *id).is_none())
    );
    world.release_reads();
    let offsets = [large, second, third]
        .map(|id| world.answered::<Produced>(link, id).unwrap().base_offset.0);
    assert_eq!(offsets, [1, 2, 4]);
}

#[test]
fn a_client_that_dies_amid_a_transfer_leaves_no_trace() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let data = pattern(5 * BULK_CHUNK_BYTES, 1);
    world.hold_reads = true;
    produce_large(&mut world, link, topic, 0, &data);
    let behind = batch(topic, 5, 0, 1, &["1"]);
    world.produce(link, topic, &behind);
    assert!(world.node.status()["data_budget"]["held_bytes"].as_u64() > Some(0));
    world.disconnect(link);
    assert_eq!(world.node.status()["data_budget"]["held_bytes"], 0);
    assert_eq!(world.node.status()["data_budget"]["transfers"], 0);
    // Its successor sends the same again, and is not taken for a retry.
    world.hold_reads = false;
    let link = world.connect();
    let id = produce_large(&mut world, link, topic, 0, &data);
    let produced: Produced = world.answered(link, id).unwrap();
    assert!(!produced.duplicate);
    assert_eq!(produced.base_offset, Offset(0));
}

#[test]
fn a_batch_that_is_sent_again_while_its_data_comes_takes_its_own_place() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let old = world.connect();
    let topic = world.topic(old);
    let data = pattern(100_000, 1);
    world.hold_reads = true;
    let first = produce_large(&mut world, old, topic, 0, &data);
    let link = world.connect();
    let again = produce_large(&mut world, link, topic, 0, &data);
    assert_eq!(world.error(old, first).unwrap().code, ErrorCode::Cancelled);
    world.release_reads();
    let produced: Produced = world.answered(link, again).unwrap();
    assert_eq!(produced.base_offset, Offset(0));
}

#[test]
fn external_data_that_fails_its_owners_checksums_is_refused() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let data = pattern(100_000, 1);
    let region = expose(&mut world, link, "r", data.clone());
    world.links.get_mut(&link).unwrap().lies = true;
    let events = [external("0", &data)];
    let id = produce_external(&mut world, link, topic, 0, &events, vec![region.clone()]);
    assert_eq!(
        world.error(link, id).unwrap().code,
        ErrorCode::ChecksumMismatch
    );
    world.links.get_mut(&link).unwrap().lies = false;
    let id = produce_external(&mut world, link, topic, 0, &events, vec![region]);
    assert_eq!(
        world.answered::<Produced>(link, id).unwrap().base_offset,
        Offset(0)
    );
}

/// The data budget bounds what is fetched; calls, acknowledgements and
/// cursors go on while it is used up.
#[test]
fn control_goes_on_while_the_data_budget_is_full() {
    let mut ground = Ground::new();
    ground.limits.data_bytes_max = 4 * BULK_CHUNK_BYTES as u64;
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (6, 0), &["a", "b"]);
    let data = pattern(20 * BULK_CHUNK_BYTES, 1);
    world.hold_reads = true;
    let mut calls = Vec::new();
    for (index, key) in ["r0", "r1", "r2"].into_iter().enumerate() {
        let region = expose(&mut world, link, key, data.clone());
        calls.push(produce_external(
            &mut world,
            link,
            topic,
            index as u64,
            &[external("e", &data)],
            vec![region],
        ));
    }
    assert_eq!(
        world.held_read_count(),
        3,
        "the fourth chunk's place is taken by payloads"
    );
    let budget = &world.node.status()["data_budget"];
    assert!(budget["held_bytes"].as_u64() <= budget["limit_bytes"].as_u64());
    let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
    assert_eq!(world.error(link, moved), None);
    assert_eq!(world.cursor(link, topic), Some(at(1, 1)));
    world.create(link, "u", "{}", &["disk"]).unwrap();
    let subscription = world.subscribe(link, topic, "c", Start::Cursor);
    // The batch that the cursor is in comes whole.
    assert_eq!(world.texts(link, subscription), ["a", "b"]);
    world.stored(link, topic, (6, 2), &["c"]);
    world.release_reads();
    for (index, id) in calls.into_iter().enumerate() {
        assert_eq!(
            world.answered::<Produced>(link, id).unwrap().base_offset.0,
            3 + index as u64
        );
    }
    assert_eq!(world.node.status()["data_budget"]["held_bytes"], 0);
}

/// What is under way of all connections is bounded, each way, but for one chunk
/// of each connection: who has stopped keeps nobody from it.
#[test]
fn data_under_way_is_bounded_and_nobody_waits_for_who_has_stopped() {
    let chunk = BULK_CHUNK_BYTES;
    let mut ground = Ground::new();
    ground.limits.flow_bytes_max = 6 * chunk as u64;
    let mut world = ground.start();
    let (stopped, other) = (world.connect(), world.connect());
    let topic = world.topic(other);
    let data = pattern(5 * chunk, 1);
    world.stopped = Some(stopped);
    for sequence in 0..4 {
        produce_large(&mut world, stopped, topic, sequence, &data);
    }
    assert_eq!(world.unread_bytes, 6 * chunk);
    for offset in 0..3 {
        let region = expose(&mut world, other, "r", data.clone());
        let batch = make_batch(origin(topic, 6, 0, offset), &[external("e", &data)], 4096);
        let produce = Produce {
            partition: PartitionIndex(0),
            durability: Durability::Memory,
            regions: vec![region],
        };
        let id = world.request(other, Method::Produce, topic, &produce, &batch);
        let produced = world.answered::<Produced>(other, id).unwrap();
        assert_eq!(produced.base_offset, Offset(offset));
    }
    // Out it goes likewise.
    let bytes = data.len() as u64;
    for offset in 0..3 {
        let wanted = DataWanted {
            partition: PartitionIndex(0),
            incarnation: Incarnation(1),
            offset: Offset(offset),
            segments: vec![Segment { offset: 0, bytes }],
        };
        let region = Region {
            key: Bytes::from_static(b"into"),
            base: 0,
            bytes,
            memory_kind: 0,
            rails: 0,
        };
        let read = ReadData {
            strided: Appended::default(),
            events: vec![wanted],
            into: vec![region],
        };
        world.request(stopped, Method::ReadData, topic, &read, &[]);
    }
    assert_eq!(world.unwritten_bytes, 6 * chunk);
    let (read, _) = read_whole(&mut world, other, topic, 2, bytes);
    assert!(read == data);
    // Its end gives everything back.
    world.disconnect(stopped);
    let status = world.node.status();
    assert_eq!(status["data_budget"]["held_bytes"], 0);
    assert_eq!(status["data_budget"]["transfers_waiting"], 0);
}

#[test]
fn limits_are_named_when_they_are_exceeded() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let definition = r#"{"metadata_bytes_max":10}"#;
    let topic = world
        .create(link, "t", definition, &["disk"])
        .unwrap()
        .topic;
    let long = batch(topic, 5, 0, 0, &["short", "this is long"]);
    let id = world.produce(link, topic, &long);
    let error = world.error(link, id).unwrap();
    assert_eq!(error.code, ErrorCode::LimitExceeded);
    assert!(
        error.message.contains("metadata_bytes_max is 10"),
        "{error}"
    );
    let produce = Produce {
        partition: PartitionIndex(7),
        durability: Durability::Synced,
        regions: Vec::new(),
    };
    let short = batch(topic, 5, 0, 0, &["short"]);
    let id = world.request(link, Method::Produce, topic, &produce, &short);
    assert_eq!(
        world.error(link, id).unwrap().code,
        ErrorCode::UnknownPartition
    );
    let memory = world.create(link, "m", "{}", &["memory"]).unwrap().topic;
    let produce = Produce {
        partition: PartitionIndex(0),
        ..produce
    };
    let short = batch(memory, 5, 0, 0, &["short"]);
    let id = world.request(link, Method::Produce, memory, &produce, &short);
    assert_eq!(
        world.error(link, id).unwrap().code,
        ErrorCode::InvalidDurability
    );
    let id = world.produce(link, topic, &short);
    let error = world.error(link, id).unwrap();
    assert_eq!(error.code, ErrorCode::InvalidEvent, "{error}");
}

#[test]
fn the_server_validates_if_the_topic_says_so() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let definition = r#"{"validator":{"type":"json"},"validate_on_server":true}"#;
    let topic = world
        .create(link, "t", definition, &["disk"])
        .unwrap()
        .topic;
    let bad = batch(topic, 5, 0, 0, &["{}", "{"]);
    let id = world.produce(link, topic, &bad);
    let error = world.error(link, id).unwrap();
    assert_eq!(error.code, ErrorCode::InvalidEvent);
    assert!(error.message.contains("event 1"), "{error}");
    world.stored(link, topic, (5, 0), &["{}", "[1]"]);
}

#[test]
fn the_server_validates_what_the_serializer_stands_for() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let definition = r#"{"validator":{"type":"schema","schema":{"type":"array"}},
        "serializer":{"type":"msgpack"},"validate_on_server":true}"#;
    let topic = world
        .create(link, "t", definition, &["disk"])
        .unwrap()
        .topic;
    // The number 1, then a number with more behind it.
    for (bad, what) in [("\u{1}", "\"array\""), ("[1]", "MessagePack")] {
        let id = world.produce(link, topic, &batch(topic, 5, 0, 0, &[bad]));
        let error = world.error(link, id).unwrap();
        assert_eq!(error.code, ErrorCode::InvalidEvent);
        assert!(error.message.contains("event "), "{error}");
        assert!(error.message.contains(what), "{error}");
    }
}

#[test]
fn a_deadline_ends_the_wait_and_a_retry_finds_what_was_stored() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.hold_disk = true;
    let first = batch(topic, 5, 0, 0, &["a"]);
    let produce = Produce {
        partition: PartitionIndex(0),
        durability: Durability::Synced,
        regions: Vec::new(),
    };
    let id = world.request_within(link, Method::Produce, topic, &produce, &first, 50);
    world.pass(Duration::from_millis(49));
    assert!(world.answer(link, id).is_none());
    world.pass(Duration::from_millis(1));
    let error = world.error(link, id).unwrap();
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::DeadlinePassed, true)
    );
    world.release_disk();
    let again = world.produce(link, topic, &first);
    let produced: Produced = world.answered(link, again).unwrap();
    assert!(produced.duplicate);
}

/// A sync that fails is never retried into an acknowledgement.
#[test]
fn a_failed_sync_fails_the_partition_until_it_is_opened_again() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a"]);
    world.hold_disk = true;
    let second = batch(topic, 5, 0, 1, &["b"]);
    let id = world.produce(link, topic, &second);
    // The write comes first, then the sync.
    let count = ground.disk.operation_count();
    ground.disk.fail_at(count + 1, log::testing::Fault::Error);
    world.release_disk();
    assert_eq!(
        world.error(link, id).unwrap().code,
        ErrorCode::StorageFailed
    );
    assert!(!world.lines.is_empty(), "the operator is told");
    let again = world.produce(link, topic, &second);
    assert_eq!(
        world.error(link, again).unwrap().code,
        ErrorCode::StorageFailed
    );
    let description = world.describe(link, "t").unwrap();
    assert!(!description.partitions[0].failure.is_empty());
    // What was durable before is served; other topics go on.
    let subscription = world.subscribe(link, topic, "c", Start::Beginning);
    assert_eq!(world.texts(link, subscription), ["a"]);
    let other = world.create(link, "u", "{}", &["disk"]).unwrap().topic;
    world.stored(link, other, (5, 0), &["x"]);
    drop(world);
    ground.power_loss(log::testing::Survival::Nothing);
    let mut world = ground.start();
    let link = world.connect();
    let id = world.produce(link, topic, &second);
    assert!(!world.answered::<Produced>(link, id).unwrap().duplicate);
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a"]);
    ground.disk.set_space(Some(0));
    let text = "x".repeat(500_000);
    let second = batch(topic, 5, 0, 1, &[&text]);
    let id = world.produce(link, topic, &second);
    let error = world.error(link, id).unwrap();
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::StorageFull, true)
    );
    let subscription = world.subscribe(link, topic, "c", Start::Beginning);
    assert_eq!(world.texts(link, subscription), ["a"]);
    ground.disk.set_space(None);
    // The storage looks for space when it is asked, and takes the next.
    world.produce(link, topic, &second);
    let id = world.produce(link, topic, &second);
    assert_eq!(
        world.answered::<Produced>(link, id).unwrap().base_offset,
        Offset(1)
    );
    assert_eq!(world.texts(link, subscription).len(), 2);
}

/// The log says when a partition is full, and when it goes on: in the log, and
/// in the status as long as it lasts. Space is found although nothing is appended.
#[test]
fn a_full_disk_is_told_to_the_operator_until_there_is_room() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a"]);
    let full = |world: &World| world.node.status()["topics"][0]["partitions"][0]["full"].clone();
    let told = |world: &World, text: &str| {
        let lines = world.lines.iter().filter(|line| line.contains(text));
        lines.count()
    };
    assert_eq!(full(&world), serde_json::Value::Null);
    ground.disk.set_space(Some(0));
    let text = "x".repeat(500_000);
    let second = batch(topic, 5, 0, 1, &[&text]);
    let mut since = None;
    for _ in 0..5 {
        let id = world.produce(link, topic, &second);
        assert!(world.error(link, id).is_some());
        world.pass(Duration::from_secs(1));
        let status = full(&world);
        let reason = status["reason"].as_str().unwrap();
        assert!(reason.contains("no space left"), "{reason}");
        assert!(status["since_ms"].as_u64() > Some(0));
        assert_eq!(
            &status["since_ms"],
            since.get_or_insert(status["since_ms"].clone())
        );
    }
    assert_eq!(told(&world, "t/0: storage is full"), 1);
    assert_eq!(told(&world, "t/0: storage has room again"), 0);
    ground.disk.set_space(None);
    for _ in 0..3 {
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(full(&world), serde_json::Value::Null);
    assert_eq!(told(&world, "t/0: storage has room again"), 1);
    world.stored(link, topic, (5, 1), &["b"]);
}

#[test]
fn a_file_system_that_is_nearly_full_is_told_to_the_operator() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    assert_eq!(world.node.status()["file_system"], serde_json::Value::Null);
    let mut see = |free_bytes| {
        world.input(crate::node::Input::FileSystem(crate::FileSystemSpace {
            free_bytes,
            total_bytes: 1000,
        }));
        assert_eq!(world.node.status()["file_system"]["free_bytes"], free_bytes);
        world
            .lines
            .iter()
            .filter(|line| line.contains("% full"))
            .count()
    };
    assert_eq!((see(500), see(99), see(50), see(500)), (0, 1, 1, 1));
}

#[test]
fn a_full_memory_partition_says_so_for_good_and_names_its_bound() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let create = CreateTopic {
        name: "small".into(),
        definition: "{}".into(),
        partitions: vec![PartitionStorage {
            kind: "memory".into(),
            config: r#"{"bytes_max": 100000}"#.into(),
        }],
    };
    let described: TopicDescription = world
        .call(link, Method::CreateTopic, TopicId(0), &create)
        .unwrap();
    let topic = described.topic;
    world.stored(link, topic, (5, 0), &["a"]);
    let text = "x".repeat(100_000);
    let inline = batch(topic, 5, 0, 1, &[&text]);
    let inline = world.produce(link, topic, &inline);
    let data = pattern(100_000, 1);
    let large = produce_large(&mut world, link, topic, 1, &data);
    for id in [inline, large] {
        let error = world.error(link, id).unwrap();
        assert_eq!(
            (error.code, error.retryable),
            (ErrorCode::StorageFull, false)
        );
        for part in ["small/0: ", "of 100000 bytes (bytes_max)", "no retention"] {
            assert!(error.message.contains(part), "{}", error.message);
        }
    }
    // Less than that still fits.
    world.stored(link, topic, (5, 1), &["b"]);
}

/// What waits for its data behind a batch that is not stored after all does
/// not keep that batch from its place when it is sent again.
#[test]
fn a_batch_that_a_full_disk_refused_finds_its_place_again() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a"]);
    ground.disk.set_space(Some(0));
    world.hold_disk = true;
    world.hold_reads = true;
    let text = "x".repeat(500_000);
    let second = batch(topic, 5, 0, 1, &[&text]);
    let refused = world.produce(link, topic, &second);
    let data = pattern(100_000, 1);
    let region = expose(&mut world, link, "r", data.clone());
    let third = &[external("2", &data)];
    let behind = produce_external(&mut world, link, topic, 2, third, vec![region.clone()]);
    assert!(world.answer(link, behind).is_none());
    world.release_disk();
    let error = world.error(link, refused).unwrap();
    assert_eq!(error.code, ErrorCode::StorageFull);
    let error = world.error(link, behind).unwrap();
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::OutOfSequence, true)
    );
    ground.disk.set_space(None);
    let again = |world: &mut World| {
        let id = world.produce(link, topic, &second);
        world.answered::<Produced>(link, id)
    };
    // The storage looks for space when it is asked, and takes the next.
    let first_try = again(&mut world);
    let produced = first_try.or_else(|_| again(&mut world)).unwrap();
    assert_eq!(produced.base_offset, Offset(1));
    world.release_reads();
    let id = produce_external(&mut world, link, topic, 2, third, vec![region]);
    let produced: Produced = world.answered(link, id).unwrap();
    assert_eq!(produced.base_offset, Offset(2));
}

#[test]
fn a_batch_costs_one_answer() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let before = world.links[&link].inbox.len();
    let events = vec!["event"; 1000];
    world.stored(link, topic, (5, 0), &events);
    let sent = &world.links[&link].inbox[before..];
    assert_eq!(
        sent.iter().map(|m| m.kind).collect::<Vec<_>>(),
        [FrameKind::Reply]
    );
}
