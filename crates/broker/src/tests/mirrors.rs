//! Mirrors: what its source has, under the same offsets, written by its link alone.

use super::harness::*;
use super::produce::{expose, external, pattern, read_whole};
use crate::faults::Fault;
use crate::node::LinkId;
use log::testing::make_batch;
use wire::batch::{Header, STAMP_BYTES, Stamp, skipped_batch};
use wire::checksum::{block_checksums, crc32c_append};
use wire::message::*;
use wire::record::{Gap, GapReason};
use wire::*;

/// The source topic, of another server.
const SOURCE: TopicId = TopicId(0xabc);

/// A batch as its source has it, its first event at `base`, taken at time 5000.
pub fn stamped(batch: &[u8], base: u64) -> Vec<u8> {
    stamped_with_data(batch, base, 0)
}

fn stamped_with_data(batch: &[u8], base: u64, data_crc: u32) -> Vec<u8> {
    let mut batch = batch.to_vec();
    let (_, header_crc) = Header::read(&batch[STAMP_BYTES..]).unwrap();
    let stamp = Stamp {
        batch_bytes: batch.len() as u64,
        base_offset: Offset(base),
        append_time: 5000,
        leader_epoch: 9,
        header_crc,
        data_crc,
        ..Stamp::default()
    };
    stamp.write(&mut batch);
    batch
}

fn events(base: u64, events: &[&str]) -> Vec<u8> {
    stamped(&batch(SOURCE, 5, 0, base, events), base)
}

fn lost(first: u64, end: u64) -> Vec<u8> {
    let gap = Gap {
        incarnation: Incarnation(4),
        first: Offset(first),
        end: Offset(end),
        reason: GapReason::Retention,
        time: 3,
    };
    stamped(&skipped_batch(SOURCE, &gap).to_vec(), first)
}

fn mirror(world: &mut World, link: LinkId) -> TopicId {
    let definition = format!(r#"{{"mirror_of":{{"topic":"frames","id":"{SOURCE}","link":"b"}}}}"#);
    let created = world.create(link, "copy", &definition, &["disk"]);
    created.unwrap().topic
}

fn open(world: &mut World, link: LinkId, topic: TopicId) -> Result<u64, ErrorReply> {
    let open = OpenMirror {
        link: "b".into(),
        source: SOURCE,
        opening: 1,
    };
    let opened: MirrorOpened = world.call(link, Method::OpenMirror, topic, &open)?;
    assert_eq!(opened.partitions.len(), 1);
    assert_eq!(opened.partitions[0].durable, opened.partitions[0].next);
    Ok(opened.partitions[0].next.0)
}

fn append_with(
    world: &mut World,
    link: LinkId,
    topic: TopicId,
    batch: &[u8],
    regions: Vec<Region>,
) -> Result<Produced, ErrorReply> {
    let append = AppendMirrored {
        partition: PartitionIndex(0),
        opening: 1,
        durability: Durability::Memory,
        regions,
    };
    let id = world.request(link, Method::AppendMirrored, topic, &append, batch);
    world.answered(link, id)
}

fn append(
    world: &mut World,
    link: LinkId,
    topic: TopicId,
    batch: &[u8],
) -> Result<Produced, ErrorReply> {
    append_with(world, link, topic, batch, Vec::new())
}

fn code<T: std::fmt::Debug>(result: Result<T, ErrorReply>) -> ErrorCode {
    result.unwrap_err().code
}

/// What the partition has, as it is stored.
fn stored(world: &mut World, link: LinkId, topic: TopicId) -> Vec<Vec<u8>> {
    let fetch = Fetch {
        partition: PartitionIndex(0),
        from: at(0, 0),
        bytes_max: 1 << 20,
        wait_max_ms: 0,
        inline_data: true,
    };
    let id = world.request(link, Method::Fetch, topic, &fetch, &[]);
    let message = world.answer(link, id).unwrap().unwrap();
    let head = Fetched::from_bytes("fetched", &message.head).unwrap();
    let payload = message.payload.concat();
    let mut at = 0;
    let cut = head.batch_bytes.iter().map(|length| {
        at += *length as usize;
        payload[at - *length as usize..at].to_vec()
    });
    cut.collect()
}

#[test]
fn a_copy_has_the_batches_of_its_source() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = mirror(&mut world, link);
    assert_eq!(open(&mut world, link, topic), Ok(0));
    let batches = [events(0, &["0", "1"]), events(2, &["2"])];
    for (batch, base) in batches.iter().zip([0, 2]) {
        let produced = append(&mut world, link, topic, batch).unwrap();
        assert_eq!((produced.base_offset.0, produced.append_time), (base, 5000));
    }
    for (copy, batch) in stored(&mut world, link, topic).iter().zip(&batches) {
        let (stamp, source) = (Stamp::read(copy).unwrap(), Stamp::read(batch).unwrap());
        let header_crc = source.header_crc;
        assert_eq!(
            Stamp {
                header_crc,
                ..stamp
            },
            source,
            "all of the shared stamp"
        );
        let header = |batch: &[u8]| Header::read(&batch[STAMP_BYTES..]).unwrap().0;
        assert_eq!(header(copy).topic, topic);
        let with_source = Header {
            topic: SOURCE,
            ..header(copy)
        };
        assert_eq!(
            with_source,
            header(batch),
            "and of the header, but for the topic"
        );
        let sections = STAMP_BYTES + 128..;
        assert_eq!(
            copy[sections.clone()],
            batch[sections],
            "and every byte behind it"
        );
    }
    // A kill, and the link asks where it is.
    drop(world);
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    assert_eq!(open(&mut world, link, topic), Ok(3));
}

#[test]
fn what_is_there_is_a_duplicate_and_what_leaves_a_hole_is_refused() {
    let mut world = Ground::new().start();
    let link = world.connect();
    let topic = mirror(&mut world, link);
    let first = events(0, &["0", "1"]);
    let refused = append(&mut world, link, topic, &first);
    assert_eq!(
        code(refused),
        ErrorCode::ProducerFenced,
        "it was not opened"
    );
    open(&mut world, link, topic).unwrap();
    append(&mut world, link, topic, &first).unwrap();
    let again = append(&mut world, link, topic, &first).unwrap();
    assert!(again.duplicate && again.base_offset == Offset(0));
    let hole = append(&mut world, link, topic, &events(3, &["3"]));
    assert_eq!(code(hole), ErrorCode::OutOfSequence);
    let overlap = append(&mut world, link, topic, &events(1, &["1", "2"]));
    assert_eq!(code(overlap), ErrorCode::OutOfSequence);
    let other = stamped(&batch(TopicId(1), 5, 0, 2, &["2"]), 2);
    let other = append(&mut world, link, topic, &other);
    assert_eq!(
        code(other),
        ErrorCode::InvalidTopic,
        "the source was made anew"
    );
    append(&mut world, link, topic, &events(2, &["2"])).unwrap();
    let id = world.subscribe(link, topic, "c", Start::Beginning);
    assert_eq!(world.texts(link, id), ["0", "1", "2"]);
}

#[test]
fn what_no_source_can_have_stamped_is_refused() {
    let mut world = Ground::new().start();
    let link = world.connect();
    let topic = mirror(&mut world, link);
    open(&mut world, link, topic).unwrap();
    for base in [u64::MAX, u64::MAX - 1, 1 << 62] {
        let refused = append(&mut world, link, topic, &events(base, &["far", "away"]));
        assert_eq!(code(refused), ErrorCode::InvalidEvent, "{base}");
    }
    let plain = append(&mut world, link, topic, &batch(SOURCE, 5, 0, 0, &["0"]));
    assert_eq!(code(plain), ErrorCode::InvalidEvent, "without a stamp");
    append(&mut world, link, topic, &events(0, &["0"])).unwrap();
}

/// What an earlier session of the link has sent does not come between, however late it arrives.
#[test]
fn opening_it_anew_ends_what_was_sent_before() {
    let mut world = Ground::new().start();
    let link = world.connect();
    let topic = mirror(&mut world, link);
    open(&mut world, link, topic).unwrap();
    append(&mut world, link, topic, &events(0, &["0"])).unwrap();
    let anew = OpenMirror {
        link: "b".into(),
        source: SOURCE,
        opening: 2,
    };
    let opened: MirrorOpened = world.call(link, Method::OpenMirror, topic, &anew).unwrap();
    assert_eq!(opened.partitions[0].next, Offset(1));
    let late = append(&mut world, link, topic, &events(1, &["late"]));
    assert_eq!(code(late), ErrorCode::ProducerFenced);
    open(&mut world, link, topic).unwrap();
    append(&mut world, link, topic, &events(1, &["new"])).unwrap();
    let id = world.subscribe(link, topic, "c", Start::Beginning);
    assert_eq!(world.texts(link, id), ["0", "new"]);
}

#[test]
fn what_the_source_has_lost_is_a_gap_of_the_copy() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = mirror(&mut world, link);
    open(&mut world, link, topic).unwrap();
    append(&mut world, link, topic, &lost(0, 7)).unwrap();
    append(&mut world, link, topic, &events(7, &["7"])).unwrap();
    append(&mut world, link, topic, &lost(8, 10)).unwrap();
    append(&mut world, link, topic, &events(10, &["10"])).unwrap();
    drop(world);
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    assert_eq!(open(&mut world, link, topic), Ok(11));
    let id = world.subscribe(link, topic, "c", Start::Cursor);
    let seen: Vec<_> = world.delivered(link, id).into_iter().collect();
    let gaps = seen.iter().filter_map(|seen| match seen {
        Delivered::Gap(gap) => Some((gap.first.0, gap.end.0, gap.reason)),
        Delivered::Event(..) => None,
    });
    let reason = GapReason::Retention;
    assert_eq!(gaps.collect::<Vec<_>>(), [(0, 7, reason), (8, 10, reason)]);
    let kept = seen.iter().filter_map(|seen| match seen {
        Delivered::Event(position, text) => Some((position.offset.0, text.as_str())),
        Delivered::Gap(_) => None,
    });
    assert_eq!(kept.collect::<Vec<_>>(), [(7, "7"), (10, "10")]);
    let name = TopicName {
        name: "copy".into(),
    };
    let gaps: GapList = world
        .call(link, Method::ListGaps, TopicId(0), &name)
        .unwrap();
    assert_eq!(gaps.gaps.len(), 2, "and they are recorded");
}

/// Somebody else writes a mirror: with its own batches, or as a second link.
fn others_are_refused(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = mirror(&mut world, link);
    open(&mut world, link, topic).unwrap();
    append(&mut world, link, topic, &events(0, &["0"])).unwrap();
    let id = world.produce(link, topic, &batch(topic, 6, 0, 0, &["mine"]));
    match world.answered::<Produced>(link, id) {
        Err(error) if error.code == ErrorCode::InvalidTopic => {
            assert!(error.message.contains("is a mirror"), "{error}");
        }
        other => return Err(format!("a producer is answered {other:?}")),
    }
    let hello = Hello {
        session: SessionId(99),
        ..hello()
    };
    let second = world.connect_as(net::Peer::default(), hello);
    match open(&mut world, second, topic) {
        Err(error) if error.code == ErrorCode::ProducerFenced && error.retryable => {}
        other => return Err(format!("a second link is answered {other:?}")),
    }
    let refused = append(&mut world, second, topic, &events(1, &["1"]));
    assert_eq!(code(refused), ErrorCode::ProducerFenced);
    // The first one is gone: the second goes on where that was.
    world.disconnect(link);
    assert_eq!(open(&mut world, second, topic), Ok(1));
    append(&mut world, second, topic, &events(1, &["1"])).unwrap();
    Ok(())
}

#[test]
fn its_link_alone_writes_a_mirror() {
    assert_eq!(others_are_refused(Ground::new()), Ok(()));
    for fault in [Fault::MirrorWritable, Fault::TwoLinks] {
        let caught = others_are_refused(Ground::with_fault(fault));
        assert!(caught.is_err(), "{fault:?} is not noticed");
    }
}

#[test]
fn a_promoted_copy_is_a_topic_like_any_other() {
    let mut world = Ground::new().start();
    let link = world.connect();
    let topic = mirror(&mut world, link);
    let wrong = OpenMirror {
        link: "c".into(),
        source: SOURCE,
        opening: 1,
    };
    let wrong = world.call::<MirrorOpened>(link, Method::OpenMirror, topic, &wrong);
    assert_eq!(code(wrong), ErrorCode::InvalidTopic);
    open(&mut world, link, topic).unwrap();
    append(&mut world, link, topic, &events(0, &["0"])).unwrap();
    let promote = AlterTopic {
        changes: r#"{"mirror_of":null}"#.into(),
    };
    let done: TopicDescription = world
        .call(link, Method::AlterTopic, topic, &promote)
        .unwrap();
    assert!(!done.definition.contains("mirror_of"));
    let late = append(&mut world, link, topic, &events(1, &["late"]));
    assert_eq!(code(late), ErrorCode::InvalidTopic);
    assert_eq!(code(open(&mut world, link, topic)), ErrorCode::InvalidTopic);
    let produced = world.stored(link, topic, (6, 0), &["mine"]);
    assert_eq!(produced.base_offset, Offset(1));
    let back = AlterTopic {
        changes: format!(r#"{{"mirror_of":{{"topic":"t","id":"{SOURCE}","link":"b"}}}}"#),
    };
    let back = world.call::<TopicDescription>(link, Method::AlterTopic, topic, &back);
    assert_eq!(
        code(back),
        ErrorCode::InvalidTopic,
        "no topic becomes a mirror"
    );
}

/// Data that is not what the source had, though its bytes came over well, is not stored.
fn other_data_is_refused(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = mirror(&mut world, link);
    open(&mut world, link, topic).unwrap();
    let data = pattern(1_300_000, 1);
    let table = block_checksums(&data, 4096);
    let crc = table.fold(0, |crc, block| crc32c_append(crc, &block.to_le_bytes()));
    let spec = [external("0", &data)];
    let batch = make_batch(origin(SOURCE, 5, 0, 0), &spec, 4096);
    let batch = stamped_with_data(&batch, 0, crc);
    let mut other = data.clone();
    other[700_000] ^= 1;
    let region = expose(&mut world, link, "other", other);
    match append_with(&mut world, link, topic, &batch, vec![region]) {
        Err(error) if error.code == ErrorCode::ChecksumMismatch => {}
        answer => return Err(format!("other data is answered {answer:?}")),
    }
    let region = expose(&mut world, link, "same", data.clone());
    append_with(&mut world, link, topic, &batch, vec![region]).unwrap();
    let (read, _) = read_whole(&mut world, link, topic, 0, data.len() as u64);
    assert!(read == data, "the data came over");
    let copy = &stored(&mut world, link, topic)[0];
    assert_eq!(Stamp::read(copy).unwrap().data_crc, crc);
    Ok(())
}

#[test]
fn large_data_is_what_the_source_has_stamped() {
    assert_eq!(other_data_is_refused(Ground::new()), Ok(()));
    let caught = other_data_is_refused(Ground::with_fault(Fault::MirroredUnchecked));
    assert!(caught.is_err(), "other data is not noticed");
}
