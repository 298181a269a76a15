//! A memory partition at its bound: who may try again, and who need not.

use log::testing::{Driven, EventSpec};
use log::*;
use std::path::PathBuf;
use wire::batch::Origin;
use wire::*;

/// Room for ten of these, and a little.
const EVENT_BYTES: usize = 1000;
const SETTINGS: &str = r#"{"bytes_max": 14000}"#;

fn open(retention: Retention) -> Driven {
    let open = OpenPartition {
        directory: PathBuf::from("/unused"),
        topic: TopicId(7),
        partition: PartitionIndex(0),
        incarnation: Incarnation(1),
        durability: Durability::Memory,
        config: SETTINGS.into(),
        retention,
        boot_id: "boot".into(),
        unix_ns: 1,
        create: true,
    };
    Driven::new(MemoryKind.open(open).unwrap().0, None)
}

fn append(partition: &mut Driven, sequence: u64, external: bool) -> Result<Offset, StorageError> {
    let origin = Origin {
        topic: TopicId(7),
        producer: ProducerId(5),
        epoch: ProducerEpoch(1),
        first_sequence: Sequence(sequence),
    };
    let event = EventSpec {
        data: vec![1; EVENT_BYTES],
        external,
        ..EventSpec::default()
    };
    partition.append(origin, &[event], Durability::Memory, 1 + sequence)
}

/// Appends until it is refused; how many there are then, and why.
fn fill(partition: &mut Driven) -> (u64, StorageError) {
    (0..100)
        .find_map(|sequence| Some((sequence, append(partition, sequence, false).err()?)))
        .expect("there is a bound")
}

#[test]
fn it_is_exhausted_where_nothing_makes_room() {
    let useless = [
        Retention::default(),
        // More than it may hold: nothing is ever dropped for them.
        Retention {
            bytes: Some(1 << 30),
            ..Retention::default()
        },
        Retention {
            count: Some(1000),
            ..Retention::default()
        },
    ];
    for retention in useless {
        let mut partition = open(retention);
        let (count, error) = fill(&mut partition);
        assert!(count >= 10, "{count}");
        assert!(matches!(error, StorageError::Exhausted(_)), "{error:?}");
        let text = error.to_string();
        for part in ["14000 bytes (bytes_max)", "no retention will make room"] {
            assert!(text.contains(part), "{text}");
        }
        let error = append(&mut partition, count, true).unwrap_err();
        assert!(matches!(error, StorageError::Exhausted(_)), "{error:?}");
        // What is there stays.
        assert_eq!(partition.storage.state().end, Offset(count));
        assert_eq!(partition.storage.state().first, Offset(0));
    }
}

#[test]
fn retention_makes_room_at_once() {
    for retention in [
        Retention {
            count: Some(4),
            ..Retention::default()
        },
        Retention {
            bytes: Some(5000),
            ..Retention::default()
        },
    ] {
        let mut partition = open(retention);
        // Without a tick in between.
        for sequence in 0..50 {
            append(&mut partition, sequence, false).unwrap();
        }
        assert!(partition.storage.state().first > Offset(30));
    }
}

#[test]
fn it_is_full_as_long_as_time_may_make_room() {
    let mut partition = open(Retention {
        age_ns: Some(1_000_000),
        ..Retention::default()
    });
    let (count, error) = fill(&mut partition);
    assert!(matches!(error, StorageError::Full(_)), "{error:?}");
    assert!(error.to_string().contains("(bytes_max)"), "{error}");
    partition.storage.tick(2_000_000);
    append(&mut partition, count, false).unwrap();
}

#[test]
fn it_is_full_while_data_is_on_its_way() {
    let mut partition = open(Retention::default());
    let event = EventSpec {
        data: vec![1; 13_500],
        external: true,
        ..EventSpec::default()
    };
    let place = partition
        .store_external(&[event], 512, Durability::Memory)
        .unwrap()
        .unwrap();
    let error = append(&mut partition, 0, false).unwrap_err();
    assert!(matches!(error, StorageError::Full(_)), "{error:?}");
    partition.storage.abandon(place);
    append(&mut partition, 0, false).unwrap();
}
