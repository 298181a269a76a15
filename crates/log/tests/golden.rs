//! Files of version 2, kept: this code still writes them byte for byte, and
//! still reads them. A change that breaks this breaks what users have stored.
//!
//! To write them anew, deliberately: `THALWEG_GOLDEN=write cargo test -p
//! thalweg-log --test golden`, then look at what changed and say why in the
//! commit, and in docs/format/log.md.

use log::testing::{Driven, EventSpec, FaultyDisk};
use log::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::batch::{
    Batch, BatchBuilder, EventParts, Headers, Origin, Verify, gap_batch, skipped_batch,
};
use wire::record::*;
use wire::*;

const TOPIC: TopicId = TopicId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/v2")
        .join(name)
}

/// Compares with what is kept, or keeps it if that is wished.
fn compare(name: &str, bytes: &[u8]) {
    let path = golden(name);
    if std::env::var("THALWEG_GOLDEN").as_deref() == Ok("write") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    let kept = std::fs::read(&path).unwrap();
    let at = kept.iter().zip(bytes).position(|(kept, new)| kept != new);
    assert!(
        kept == bytes,
        "{name} differs from version 2 at {at:?}, lengths {} and {}",
        kept.len(),
        bytes.len()
    );
}

fn partition(directory: &Path, create: bool) -> OpenPartition {
    OpenPartition {
        directory: directory.to_owned(),
        topic: TOPIC,
        partition: PartitionIndex(3),
        incarnation: Incarnation(5),
        durability: Durability::Synced,
        config: r#"{"segment_bytes": 2000, "allocate_bytes_min": 0, "allocate_bytes_max": 0, "index_bytes": 300}"#.into(),
        retention: Retention::default(),
        boot_id: "00000000-0000-4000-8000-000000000001".into(),
        unix_ns: 1_700_000_000_000_000_000,
        create,
    }
}

fn event(number: u64) -> EventSpec {
    EventSpec {
        metadata: format!("{{\"angle\":{number}}}").into_bytes(),
        data: (0..number * 100).map(|i| (i + number) as u8).collect(),
        external: number % 4 == 3,
    }
}

fn origin(first: u64) -> Origin {
    Origin {
        topic: TOPIC,
        producer: ProducerId(0xfeed_0000_0000_0000_0000_0000_0000_0001),
        epoch: ProducerEpoch(2),
        first_sequence: Sequence(first),
    }
}

const EVENTS: u64 = 8;

#[test]
fn a_partition_is_written_as_it_was() {
    let faulty = Arc::new(FaultyDisk::new());
    let disk: Arc<dyn Disk> = faulty.clone();
    let kind = DiskKind::seeded(disk.clone(), 1);
    let (storage, _) = kind.open(partition(Path::new("/p"), true)).unwrap();
    let mut driven = Driven::new(storage, Some(disk));
    for number in (0..EVENTS).step_by(2) {
        let events = [event(number), event(number + 1)];
        let time = 1_700_000_000_000_000_000 + number;
        let offset = driven.append(origin(number), &events, Durability::Synced, time);
        assert_eq!(offset, Ok(Offset(number)));
    }
    driven.storage.close();
    driven.settle();
    let mut names = Vec::new();
    for path in faulty.paths() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        compare(
            &format!("partition/{name}"),
            &faulty.content(&path).unwrap(),
        );
        names.push(name);
    }
    let kept = std::fs::read_dir(golden("partition")).unwrap();
    assert_eq!(kept.count(), names.len(), "{names:?}");
    for suffix in [".log", ".data", ".index"] {
        assert!(names.iter().any(|name| name.ends_with(suffix)), "{names:?}");
    }
}

#[test]
fn a_partition_of_then_is_read_now() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("p");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(golden("partition")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
    let (storage, report) = DiskKind::new(disk.clone())
        .open(partition(&copy, false))
        .unwrap();
    assert_eq!((report.event_count, report.cut_bytes), (EVENTS, 0));
    assert_eq!(report.gaps, []);
    let mut driven = Driven::new(storage, Some(disk));
    let contents = driven.read_all(Offset(EVENTS), 1 << 20).unwrap();
    let expected: Vec<_> = (0..EVENTS)
        .map(|number| (Offset(number), event(number)))
        .collect();
    assert_eq!(contents.events, expected);
    assert_eq!(driven.storage.state().incarnation, Incarnation(5));
    let offset = driven.append(origin(EVENTS), &[event(0)], Durability::Synced, 1);
    assert_eq!(offset, Ok(Offset(EVENTS)), "and goes on");
}

#[test]
fn a_partition_of_version_1_is_refused_with_what_to_do_and_left_alone() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1/partition");
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("p");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(&kept).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    // A crash may have left the segments without a checkpoint.
    for checkpoint in [true, false] {
        if !checkpoint {
            std::fs::remove_file(copy.join("checkpoint")).unwrap();
        }
        let opened = DiskKind::new(Arc::new(OsDisk::new())).open(partition(&copy, false));
        let error = opened.map(|_| ()).unwrap_err().to_string();
        assert!(
            error.contains(
                "version is 0x1: written by an older version of Thalweg, whose format this one \
                 does not read: read the events out with that version, and push them to a server \
                 of this one with an empty data directory"
            ),
            "{error}"
        );
    }
    for entry in std::fs::read_dir(&copy).unwrap() {
        let entry = entry.unwrap();
        let before = std::fs::read(kept.join(entry.file_name())).unwrap();
        assert!(
            before == std::fs::read(entry.path()).unwrap(),
            "{entry:?} was changed"
        );
    }
}

fn gap() -> Gap {
    Gap {
        incarnation: Incarnation(5),
        first: Offset(10),
        end: Offset(20),
        reason: GapReason::Damaged,
        time: 1_700_000_000_000_000_000,
    }
}

#[test]
fn batches_with_every_column_are_as_they_were() {
    let headers = Headers(vec![("unit".into(), bytes::Bytes::from_static(b"mm"))]).to_bytes();
    let mut builder = BatchBuilder::default();
    builder.push(EventParts {
        metadata: b"{}",
        ..EventParts::default()
    });
    builder.push(EventParts {
        metadata: b"{\"a\":1}",
        inline: &[b"in", b"line"],
        key: Some(b"key"),
        headers: Some(&headers),
        producer_time: 1_700_000_000_000_000_001,
        ..EventParts::default()
    });
    builder.push(EventParts {
        metadata: b"",
        external_bytes: Some(5 << 30),
        key: Some(b""),
        tombstone: true,
        ..EventParts::default()
    });
    let bytes = builder.seal(origin(7), 4096).to_vec();
    compare("batch.bin", &bytes);
    let batch = Batch::read(bytes.as_slice(), Verify::Sections).unwrap();
    let columns = batch.columns().unwrap();
    let keys: Vec<_> = columns
        .events
        .iter()
        .map(|event| event.key.map(|key| key.1))
        .collect();
    assert_eq!(keys, [None, Some(3), Some(0)], "null differs from empty");
    assert!(columns.events[2].external && columns.events[2].tombstone);
    compare("gap-batch.bin", &gap_batch(TOPIC, &gap()).to_vec());
    compare("skipped-batch.bin", &skipped_batch(TOPIC, &gap()).to_vec());
}

#[test]
fn internal_records_are_as_they_were() {
    let position = Position {
        incarnation: Incarnation(5),
        offset: Offset(42),
    };
    let records = [
        Record::Topic(TopicRecord {
            namespace: "beamline".into(),
            name: "frames".into(),
            topic: TOPIC,
            definition: "{}".into(),
        }),
        Record::TopicDeleted(TOPIC),
        Record::Partition(PartitionRecord {
            topic: TOPIC,
            partition: PartitionIndex(3),
            storage: "disk".into(),
            config: String::new(),
            incarnation: Incarnation(5),
            leader_epoch: 6,
            ended: vec![(Incarnation(4), Offset(17))],
        }),
        Record::Cursor(CursorRecord {
            namespace: String::new(),
            consumer: "viewer".into(),
            topic: TOPIC,
            partition: PartitionIndex(3),
            position: Some(position),
            consumer_id: ConsumerId(0),
        }),
        Record::Producer(ProducerRecord {
            namespace: String::new(),
            name: "detector".into(),
            topic: TOPIC,
            producer: ProducerId(9),
            epoch: ProducerEpoch(2),
        }),
        Record::Gap(GapRecord {
            topic: TOPIC,
            partition: PartitionIndex(3),
            gap: gap(),
        }),
    ];
    let mut names = BTreeMap::new();
    for record in records {
        let bytes = record.to_bytes();
        assert_eq!(Record::from_bytes("record", &bytes), Ok(record));
        let name = format!("record-{}.bin", bytes[0]);
        compare(&name, &bytes);
        assert!(names.insert(name, ()).is_none());
    }
}
