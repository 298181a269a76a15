//! What every storage must do, as one body of tests. Run it for your own:
//!
//! ```
//! use log::testing::{Subject, check_storage};
//! check_storage(&Subject {
//!     kind: &log::MemoryKind,
//!     disk: None,
//!     directory: "/unused".into(),
//!     config: String::new(),
//! });
//! ```

use super::{Driven, EventSpec, make_batch};
use crate::disk::Disk;
use crate::producers::Verdict;
use crate::storage::*;
use bytes::Bytes;
use memory::Buffer;
use std::path::PathBuf;
use std::sync::Arc;
use wire::batch::{
    Batch, BatchKind, DATA_ALIGNMENT, ExternalLayout, Header, Origin, STAMP_BYTES, SealedBatch,
    Stamp, Verify,
};
use wire::checksum::{block_checksums, crc32c};
use wire::record::{Gap, GapReason};
use wire::view::Segment;
use wire::*;

/// A storage kind to be checked.
pub struct Subject<'a> {
    /// The kind.
    pub kind: &'a dyn StorageKind,
    /// What its operations are carried out on; `None` if it has none.
    pub disk: Option<Arc<dyn Disk>>,
    /// A directory that exists, for partitions.
    pub directory: PathBuf,
    /// Configuration. Retention is only seen if segments, if the kind has
    /// such, hold no more than about 4 KiB.
    pub config: String,
}

const TOPIC: TopicId = TopicId(77);
const BLOCK_BYTES: u32 = 512;
/// A tick that is asked for within this time is for something that is due.
const SOON_NS: u64 = 60_000_000_000;

/// Checks all that a storage promises.
///
/// # Panics
/// With what is not as it must be.
pub fn check_storage(subject: &Subject<'_>) {
    type Check = fn(&Subject<'_>, &str);
    let checks: [(&str, Check); 15] = [
        ("configuration", configuration),
        ("order", order_and_bytes),
        (
            "stamp",
            the_shared_half_of_a_stamp_says_nothing_of_the_storage,
        ),
        ("bounds", reads_stay_in_bounds),
        ("stateless", batches_without_events),
        ("skipped", skipped_offsets_are_a_gap),
        ("retries", retries_are_known),
        ("places", places_hold_whole_data),
        ("parts", parts_of_data),
        ("removal", removal_leaves_a_gap),
        ("retention", retention_by_bytes_count_and_age),
        ("fast-retention", retention_needs_no_tick),
        ("sparing", retention_spares_and_changes),
        ("closing", a_closed_storage_takes_nothing),
        ("reopening", reopening),
    ];
    for (name, check) in checks {
        let name = format!("{}-{name}", subject.kind.name());
        check(subject, &name);
    }
}

impl Subject<'_> {
    fn partition(&self, name: &str, create: bool) -> OpenPartition {
        OpenPartition {
            directory: self.directory.join(name),
            topic: TOPIC,
            partition: PartitionIndex(0),
            incarnation: Incarnation(1),
            durability: self.kind.durability_max(),
            config: self.config.clone(),
            retention: Retention::default(),
            boot_id: "boot".into(),
            unix_ns: 1,
            create,
        }
    }

    fn open(&self, partition: OpenPartition) -> (Driven, Recovery) {
        let name = partition.directory.display().to_string();
        let opened = self.kind.open(partition);
        let (storage, report) = opened.unwrap_or_else(|error| panic!("opening {name}: {error}"));
        assert_eq!(
            storage.durability_max(),
            self.kind.durability_max(),
            "{name}"
        );
        (Driven::new(storage, self.disk.clone()), report)
    }

    fn create(&self, name: &str) -> Driven {
        let (driven, report) = self.open(self.partition(name, true));
        assert_eq!(
            report,
            Recovery::default(),
            "{name}: a new partition has lost nothing"
        );
        driven
    }

    fn durability(&self) -> Durability {
        self.kind.durability_max()
    }
}

fn origin(producer: u128, first: u64) -> Origin {
    Origin {
        topic: TOPIC,
        producer: ProducerId(producer),
        epoch: ProducerEpoch(0),
        first_sequence: Sequence(first),
    }
}

/// Events of every kind: without data, with data in the batch, outside, empty outside.
fn event(number: u64) -> EventSpec {
    let data = |bytes: u64| (0..bytes).map(|i| (i * 7 + number) as u8).collect();
    EventSpec {
        metadata: format!("event {number}").into_bytes(),
        data: match number % 5 {
            0 => Vec::new(),
            1 => data(50),
            2 => data(1),
            3 => data(BLOCK_BYTES.into()),
            _ => data(1300 + number),
        },
        external: number % 5 > 2,
    }
}

fn fill(driven: &mut Driven, count: u64, durability: Durability) -> u64 {
    let mut number = driven.storage.state().end.0;
    let end = number + count;
    while number < end {
        let events: Vec<EventSpec> = (number..(number + 3).min(end)).map(event).collect();
        let offset = driven.append(origin(1, number), &events, durability, 1000 + number);
        assert_eq!(offset, Ok(Offset(number)), "offsets are dense");
        number += events.len() as u64;
    }
    end
}

fn header_of(batch: &[u8]) -> (Header, u32) {
    Header::read(&batch[STAMP_BYTES..]).expect("the batch was just made")
}

fn configuration(subject: &Subject<'_>, _: &str) {
    let kind = subject.kind;
    assert_eq!(kind.check(&subject.config), Ok(()));
    let refused = kind.check(r#"{"no_such_key": 1}"#).unwrap_err();
    assert!(
        refused.contains("no_such_key"),
        "the key is named: {refused}"
    );
    assert!(kind.check("{").is_err());
}

fn order_and_bytes(subject: &Subject<'_>, name: &str) {
    let mut driven = subject.create(name);
    let level = subject.durability();
    assert_eq!(driven.storage.state().incarnation, Incarnation(1));
    let end = fill(&mut driven, 40, level);
    let state = driven.storage.state();
    assert_eq!((state.first, state.end), (Offset(0), Offset(end)));
    assert_eq!(
        state.reached(level),
        Offset(end),
        "all is as durable as was asked"
    );
    for bytes_max in [1, 700, 100_000] {
        let contents = driven
            .read_all(Offset(end), bytes_max)
            .expect("all is there");
        let expected: Vec<_> = (0..end)
            .map(|number| (Offset(number), event(number)))
            .collect();
        assert!(
            contents.events == expected,
            "events come back in order and whole"
        );
        assert!(contents.gaps.is_empty() && contents.damaged.is_empty());
    }
    // Apart from the stamp, a batch is the bytes that were sent.
    let read = ReadBatches {
        from: Offset(0),
        end: Offset(end),
        bytes_max: 1,
        inline_data: true,
    };
    let Ok(Found::Batches { batches, .. }) = driven.read(read) else {
        panic!("the first batch is there");
    };
    let sent = make_batch(origin(1, 0), &[event(0), event(1), event(2)], BLOCK_BYTES);
    assert_eq!(batches[0][STAMP_BYTES..], sent[STAMP_BYTES..]);
    let stamp = Batch::read(&batches[0], Verify::Sections)
        .expect("it verifies")
        .stamp;
    let stamp = stamp.expect("it is stamped");
    assert_eq!((stamp.base_offset, stamp.append_time), (Offset(0), 1000));
}

/// Copies of a batch in storages of every kind have one shared half of the stamp.
fn the_shared_half_of_a_stamp_says_nothing_of_the_storage(subject: &Subject<'_>, name: &str) {
    let mut driven = subject.create(name);
    let level = subject.durability();
    let end = fill(&mut driven, 3, level);
    for (base_offset, external) in [(end, false), (end + 1, true)] {
        let events = [EventSpec {
            external,
            ..event(4)
        }];
        let batch = make_batch(origin(1, base_offset), &events, BLOCK_BYTES);
        let place = driven.store_external(&events, BLOCK_BYTES, level);
        let place = place.expect("there is room");
        append(&mut driven, &batch, place, level).expect("it is taken");
        let read = ReadBatches {
            from: Offset(base_offset),
            end: Offset(base_offset + 1),
            bytes_max: 1,
            inline_data: true,
        };
        let Ok(Found::Batches { batches, .. }) = driven.read(read) else {
            panic!("the batch is there");
        };
        let blocks = block_checksums(&events[0].data, BLOCK_BYTES);
        let table: Vec<u8> = blocks.flat_map(|block| block.to_le_bytes()).collect();
        let expected = Stamp {
            batch_bytes: batch.len() as u64,
            base_offset: Offset(base_offset),
            append_time: 5000,
            data_bytes: if external { 2 * DATA_ALIGNMENT } else { 0 },
            leader_epoch: 3,
            header_crc: header_of(&batch).1,
            data_crc: if external { crc32c(&table) } else { 0 },
            ..Stamp::default()
        };
        assert_eq!(Stamp::read(&batches[0]), Ok(expected));
    }
}

fn reads_stay_in_bounds(subject: &Subject<'_>, name: &str) {
    let mut driven = subject.create(name);
    let end = Offset(fill(&mut driven, 12, subject.durability()));
    let mut read = |from, end, bytes_max, inline_data| {
        driven.read(ReadBatches {
            from: Offset(from),
            end,
            bytes_max,
            inline_data,
        })
    };
    assert_eq!(read(12, end, 1000, true), Ok(Found::Nothing));
    assert_eq!(read(3, Offset(3), 1000, true), Ok(Found::Nothing));
    assert!(matches!(
        read(13, end, 1000, true),
        Err(StorageError::OutOfRange { .. })
    ));
    // In as many readings as it likes, up to the batch that begins below the end.
    let (mut from, mut count) = (4, 0);
    while let Ok(Found::Batches { batches, next }) = read(from, Offset(7), 100_000, true) {
        count += batches.len();
        from = next.0;
    }
    assert_eq!((count, from), (2, 9), "none begins at or above the end");
    match read(0, end, 100_000, false) {
        Ok(Found::Batches { batches, .. }) => {
            for bytes in batches {
                let batch = Batch::read(bytes, Verify::Sections).expect("it verifies");
                assert_eq!(batch.bytes().len() as u64, batch.header.prefix_bytes());
            }
        }
        other => panic!("{other:?}"),
    }
}

fn batches_without_events(subject: &Subject<'_>, name: &str) {
    let mut driven = subject.create(name);
    let level = subject.durability();
    fill(&mut driven, 3, level);
    let batch: SealedBatch = wire::batch::state_batch(BatchKind::NoOp, TOPIC, b"state");
    append(&mut driven, &batch.to_vec(), None, level).expect("it is taken");
    assert_eq!(driven.storage.state().end, Offset(3), "it takes no offset");
    let end = Offset(fill(&mut driven, 3, level));
    let contents = driven.read_all(end, 1).expect("all is there");
    assert_eq!(contents.events.len(), 6, "and is not read");
}

/// A gap that a mirror keeps in place of what its source has lost, at its beginning and between
/// events.
fn skipped_offsets_are_a_gap(subject: &Subject<'_>, name: &str) {
    let mut driven = subject.create(name);
    let level = subject.durability();
    let skip = |driven: &mut Driven, first: u64, end: u64| {
        let gap = Gap {
            incarnation: Incarnation(9),
            first: Offset(first),
            end: Offset(end),
            reason: GapReason::Discarded,
            time: 7,
        };
        let batch = wire::batch::skipped_batch(TOPIC, &gap).to_vec();
        assert_eq!(append(driven, &batch, None, level), Ok(Offset(first)));
        assert_eq!(driven.storage.state().end, Offset(end), "they are taken");
    };
    skip(&mut driven, 0, 5);
    fill(&mut driven, 3, level);
    skip(&mut driven, 8, 600);
    let end = Offset(fill(&mut driven, 3, level));
    let read = |driven: &mut Driven| {
        let contents = driven.read_all(end, 1).expect("all is there");
        let gaps = [(0, 5), (8, 600)].map(|(first, end)| (Offset(first), Offset(end)));
        assert_eq!((contents.events.len(), contents.gaps), (6, gaps.to_vec()));
        let offsets = contents.events.iter().map(|(offset, _)| offset.0);
        let kept = (5..8).chain(600..end.0);
        assert!(offsets.eq(kept), "events keep their offsets");
        match driven.read(ReadBatches {
            from: Offset(20),
            end,
            bytes_max: 1000,
            inline_data: true,
        }) {
            Ok(Found::Gap(gap)) => {
                assert_eq!((gap.reason, gap.time), (GapReason::Discarded, 7));
                assert_eq!(gap.incarnation, Incarnation(1), "it is of the copy's life");
            }
            other => panic!("{other:?}"),
        }
        assert!(driven.open_event(Offset(8)).is_err(), "it is no event");
    };
    read(&mut driven);
    if subject.durability() == Durability::Memory {
        return;
    }
    driven.storage.close();
    driven.settle();
    let (mut reopened, report) = subject.open(subject.partition(name, false));
    assert_eq!(report.gaps, [], "no damage was found");
    read(&mut reopened);
}

fn append(
    driven: &mut Driven,
    batch: &[u8],
    place: Option<DataPlace>,
    durability: Durability,
) -> Result<Offset, StorageError> {
    let (header, header_crc) = header_of(batch);
    let offset = driven.storage.append(Append {
        batch: Buffer::copy_of(batch),
        header,
        header_crc,
        place,
        durability,
        append_time: 5000,
        now: 5000,
        leader_epoch: 3,
    });
    driven.settle();
    offset
}

fn retries_are_known(subject: &Subject<'_>, name: &str) {
    let mut driven = subject.create(name);
    fill(&mut driven, 6, subject.durability());
    let check = |driven: &Driven, origin: Origin, count| {
        let events = vec![EventSpec::default(); count];
        driven
            .storage
            .check(&header_of(&make_batch(origin, &events, BLOCK_BYTES)).0)
    };
    let expected = Sequence(6);
    assert_eq!(check(&driven, origin(1, 6), 2), Verdict::New);
    let base_offset = Offset(3);
    assert_eq!(
        check(&driven, origin(1, 3), 3),
        Verdict::Duplicate { base_offset }
    );
    assert_eq!(
        check(&driven, origin(1, 7), 1),
        Verdict::OutOfSequence { expected }
    );
    assert_eq!(
        check(&driven, origin(1, 4), 1),
        Verdict::Unknown { expected }
    );
    assert_eq!(
        check(&driven, origin(2, 0), 1),
        Verdict::New,
        "another producer"
    );
    assert!(matches!(
        check(&driven, origin(2, 1), 1),
        Verdict::Unknown { .. }
    ));
    let newer = |epoch, first| Origin {
        epoch: ProducerEpoch(epoch),
        ..origin(1, first)
    };
    assert_eq!(check(&driven, newer(1, 0), 1), Verdict::New);
    let offset = driven.append(newer(1, 0), &[event(0)], subject.durability(), 9000);
    assert_eq!(offset, Ok(Offset(6)));
    let epoch = ProducerEpoch(1);
    assert_eq!(check(&driven, origin(1, 6), 1), Verdict::Fenced { epoch });
}

fn places_hold_whole_data(subject: &Subject<'_>, name: &str) {
    let mut driven = subject.create(name);
    let level = subject.durability();
    let external = EventSpec {
        external: true,
        data: vec![5; 1000],
        ..EventSpec::default()
    };
    let layout = ExternalLayout::new([(0, 1000)].into_iter(), BLOCK_BYTES).expect("it is small");
    let batch = make_batch(origin(1, 0), std::slice::from_ref(&external), BLOCK_BYTES);
    let failed = |driven: &mut Driven, place: DataPlace| {
        let events = driven.take_events();
        let failed = events.iter().any(|event| matches!(event, StorageEvent::DataFailed { place: other, .. } if *other == place));
        assert!(failed, "the place is given up: {events:?}");
    };
    let whole = Bytes::from(external.data.clone());
    // Named before it is sealed.
    let place = driven.storage.reserve(&layout).expect("there is room");
    driven.storage.write_data(place, 0, whole.clone());
    driven.settle();
    assert!(matches!(
        append(&mut driven, &batch, Some(place), level),
        Err(StorageError::Invalid(_))
    ));
    driven.storage.abandon(place);
    driven.settle();
    // Sealed before all of it was written.
    let place = driven.storage.reserve(&layout).expect("there is room");
    driven.storage.write_data(place, 0, whole.slice(..999));
    driven.storage.seal_data(place, vec![1, 2], level);
    driven.settle();
    failed(&mut driven, place);
    // With too few checksums; with more data than was reserved.
    let place = driven.storage.reserve(&layout).expect("there is room");
    driven.storage.write_data(place, 0, whole.clone());
    driven.storage.seal_data(place, vec![1], level);
    failed(&mut driven, place);
    let place = driven.storage.reserve(&layout).expect("there is room");
    driven.storage.write_data(place, u64::MAX - 10, whole);
    failed(&mut driven, place);
    // None of this has left anything.
    assert_eq!(driven.storage.state().end, Offset(0));
    assert_eq!(
        driven.append(origin(1, 0), std::slice::from_ref(&external), level, 1),
        Ok(Offset(0))
    );
    assert_eq!(
        driven.read_data(Offset(0)).as_deref(),
        Ok(external.data.as_slice())
    );
}

fn parts_of_data(subject: &Subject<'_>, name: &str) {
    let mut driven = subject.create(name);
    fill(&mut driven, 10, subject.durability());
    for number in [1, 4] {
        let whole = event(number).data;
        let data = driven.open_event(Offset(number)).expect("it is there");
        assert_eq!(data.bytes, whole.len() as u64);
        assert_eq!(data.crc, wire::checksum::crc32c(&whole));
        let length = data.bytes;
        let part = |offset, bytes| Segment { offset, bytes };
        let parts = vec![
            part(length - 1, 1),
            part(3, 17),
            part(0, length),
            part(10, 0),
            part(4, 2),
        ];
        let expected: Vec<u8> = parts
            .iter()
            .flat_map(|part| &whole[part.offset as usize..(part.offset + part.bytes) as usize])
            .copied()
            .collect();
        let pieces = driven.read_parts(&data, parts).expect("they are there");
        assert!(
            pieces.concat() == expected,
            "parts come in the order asked for"
        );
        let halves = vec![part(0, length / 2), part(length / 2, length - length / 2)];
        let pieces = driven.read_parts_to_compare(&data, halves);
        assert!(pieces.expect("they are there").concat() == whole);
        for outside in [part(length, 1), part(0, length + 1), part(u64::MAX, 2)] {
            let refused = driven.read_parts(&data, vec![outside]);
            assert!(
                matches!(refused, Err(StorageError::Invalid(_))),
                "{outside:?}"
            );
        }
        let foreign = EventData {
            handle: Arc::new(()),
            ..data
        };
        let refused = driven.read_parts(&foreign, vec![part(0, 1)]);
        assert!(matches!(refused, Err(StorageError::Invalid(_))));
    }
    assert!(matches!(
        driven.open_event(Offset(10)),
        Err(StorageError::OutOfRange { .. })
    ));
}

fn lost(driven: &mut Driven) -> Vec<(Offset, Offset, GapReason)> {
    let events = driven.take_events();
    let gaps = events.iter().filter_map(|event| match event {
        StorageEvent::Lost(gap) => Some((gap.first, gap.end, gap.reason)),
        _ => None,
    });
    gaps.collect()
}

fn removal_leaves_a_gap(subject: &Subject<'_>, name: &str) {
    let mut driven = subject.create(name);
    let end = Offset(fill(&mut driven, 60, subject.durability()));
    let held = driven.open_event(Offset(4)).expect("it is there");
    driven
        .storage
        .remove_before(Offset(30), GapReason::Discarded);
    let gaps = lost(&mut driven);
    let first = driven.storage.state().first;
    assert!(first > Offset(4) && first <= Offset(30), "{first}");
    assert_eq!(gaps.first().map(|gap| gap.0), Some(Offset(0)));
    assert_eq!(
        gaps.last().map(|gap| gap.1),
        Some(first),
        "every loss has a line"
    );
    assert!(gaps.windows(2).all(|pair| pair[0].1 == pair[1].0));
    assert!(gaps.iter().all(|gap| gap.2 == GapReason::Discarded));
    let read = ReadBatches {
        from: Offset(2),
        end,
        bytes_max: 1000,
        inline_data: true,
    };
    match driven.read(read) {
        Ok(Found::Gap(gap)) => {
            assert_eq!((gap.end, gap.reason), (first, GapReason::Discarded));
        }
        other => panic!("{other:?}"),
    }
    let contents = driven.read_all(end, 1000).expect("the rest is there");
    assert_eq!(contents.events.len() as u64, end.0 - first.0);
    assert_eq!(
        contents.events.first().map(|(offset, _)| *offset),
        Some(first)
    );
    assert!(matches!(
        driven.open_event(Offset(4)),
        Err(StorageError::OutOfRange { .. })
    ));
    // What was opened before stays readable.
    let all = Segment {
        offset: 0,
        bytes: held.bytes,
    };
    assert!(
        driven
            .read_parts(&held, vec![all])
            .expect("it is held")
            .concat()
            == event(4).data
    );
}

fn retention_by_bytes_count_and_age(subject: &Subject<'_>, name: &str) {
    for (index, retention) in [
        Retention {
            bytes: Some(40_000),
            ..Retention::default()
        },
        Retention {
            count: Some(20),
            ..Retention::default()
        },
        Retention {
            age_ns: Some(100),
            ..Retention::default()
        },
    ]
    .into_iter()
    .enumerate()
    {
        let mut partition = subject.partition(&format!("{name}-{index}"), true);
        partition.retention = retention;
        let (mut driven, _) = subject.open(partition);
        let end = fill(&mut driven, 60, subject.durability());
        // Events were appended at 1000 and later, one a nanosecond.
        driven.storage.tick(1130);
        let gaps = lost(&mut driven);
        let state = driven.storage.state();
        assert!(
            state.first > Offset(0) && !gaps.is_empty(),
            "{retention:?} removes something"
        );
        if let Some(most) = retention.bytes {
            assert!(
                state.bytes <= most + 20_000,
                "{} bytes are left",
                state.bytes
            );
        }
        if let Some(least) = retention.count {
            assert!(
                end - state.first.0 >= least,
                "{retention:?} removes no more than asked"
            );
        }
        if retention.age_ns.is_some() {
            assert!(
                state.first <= Offset(31),
                "event 30 is just old enough to stay"
            );
            let next = driven.storage.next_tick().expect("more will be too old");
            assert!(next > 1130, "{next}");
        }
    }
}

fn retention_needs_no_tick(subject: &Subject<'_>, name: &str) {
    let mut partition = subject.partition(name, true);
    partition.retention.bytes = Some(40_000);
    let (mut driven, _) = subject.open(partition);
    fill(&mut driven, 200, subject.durability());
    let (all, state) = (200 * 1000, driven.storage.state());
    assert!(!lost(&mut driven).is_empty(), "events came fast, none left");
    assert!(state.bytes < all / 2, "{} bytes are left", state.bytes);
}

fn retention_spares_and_changes(subject: &Subject<'_>, name: &str) {
    let limits = [
        Retention {
            bytes: Some(10_000),
            ..Retention::default()
        },
        Retention {
            count: Some(2),
            ..Retention::default()
        },
        Retention {
            age_ns: Some(1),
            ..Retention::default()
        },
    ];
    for (index, retention) in limits.into_iter().enumerate() {
        let (mut driven, _) = subject.open(subject.partition(&format!("{name}-{index}"), true));
        let kept = Offset(25);
        driven.storage.set_retention(retention, Offset(0));
        fill(&mut driven, 60, subject.durability());
        driven.storage.tick(2000);
        driven.settle();
        let state = driven.storage.state();
        assert_eq!(state.first, Offset(0), "{retention:?} spares everything");
        let next = driven.storage.next_tick();
        let is_soon = next.is_some_and(|next| next < 2000 + SOON_NS);
        assert!(!is_soon, "{retention:?} asks for a tick at {next:?}");
        driven.storage.set_retention(retention, kept);
        driven.settle();
        let first = driven.storage.state().first;
        assert!(first > Offset(0) && first <= kept, "{retention:?}: {first}");
        driven
            .storage
            .set_retention(Retention::default(), Offset(u64::MAX));
        driven.storage.tick(3000);
        driven.settle();
        assert_eq!(driven.storage.state().first, first, "without limits");
        // Limits that hold for what is to be kept as well, apart from its age.
        lost(&mut driven);
        let discards = Retention {
            discards: true,
            ..retention
        };
        driven.storage.set_retention(discards, kept);
        driven.settle();
        let (beyond, gaps) = (driven.storage.state().first > kept, lost(&mut driven));
        assert_eq!(beyond, retention.age_ns.is_none(), "{retention:?}");
        let last = gaps.last().map(|(_, _, reason)| *reason);
        let expected = beyond.then_some(GapReason::Discarded);
        assert_eq!(last, expected, "{retention:?}: {gaps:?}");
        driven.storage.set_retention(retention, Offset(u64::MAX));
        driven.settle();
        assert!(driven.storage.state().first > kept, "{retention:?}");
    }
}

fn a_closed_storage_takes_nothing(subject: &Subject<'_>, name: &str) {
    let mut driven = subject.create(name);
    fill(&mut driven, 3, subject.durability());
    driven.storage.close();
    driven.storage.close();
    let closed = driven.take_events();
    let count = closed
        .iter()
        .filter(|event| matches!(event, StorageEvent::Closed))
        .count();
    assert_eq!(count, 1, "{closed:?}");
    let refused = driven.append(origin(1, 3), &[event(0)], subject.durability(), 1);
    assert!(
        matches!(refused, Err(StorageError::Invalid(_))),
        "{refused:?}"
    );
}

fn reopening(subject: &Subject<'_>, name: &str) {
    let survives = subject.durability() > Durability::Memory;
    let mut driven = subject.create(name);
    let end = fill(&mut driven, 40, subject.durability());
    for clean in [false, true] {
        if clean {
            driven.storage.close();
            driven.settle();
        }
        drop(driven);
        let (reopened, report) = subject.open(subject.partition(name, false));
        driven = reopened;
        let state = driven.storage.state();
        if !survives {
            assert_eq!((state.incarnation, state.end), (Incarnation(2), Offset(0)));
            assert_eq!(report.ended.map(|ended| ended.0), Some(Incarnation(1)));
            assert_eq!(report.gaps[0].reason, GapReason::MemoryLost);
            return;
        }
        assert_eq!(
            (state.incarnation, state.end),
            (Incarnation(1), Offset(end))
        );
        assert_eq!(
            (report.event_count, report.gaps.as_slice()),
            (end, [].as_slice())
        );
        let contents = driven.read_all(Offset(end), 1000).expect("all is there");
        assert_eq!(contents.events.len() as u64, end);
        let (header, _) = header_of(&make_batch(origin(1, end), &[event(0)], BLOCK_BYTES));
        assert_eq!(
            driven.storage.check(&header),
            Verdict::New,
            "producers are remembered"
        );
        let next = driven.storage.next_sequence(header.producer, header.epoch);
        assert_eq!(next, Some(header.first_sequence), "and what comes next");
    }
    drop(driven);
    let directory = subject.directory.join(name);
    subject.kind.remove(&directory).expect("it is removed");
    subject
        .kind
        .remove(&directory)
        .expect("a missing one is no error");
    drop(subject.create(name));
}
