//! A memory partition at its bound: who may try again, and who need not.

use log::testing::{Driven, EventSpec, open_partition};
use log::*;
use wire::batch::Origin;
use wire::*;

/// Room for ten of these, and a little.
const EVENT_BYTES: usize = 1000;
const SETTINGS: &str = r#"{"bytes_max": 20000}"#;

fn open(retention: Retention) -> Driven {
    open_with(SETTINGS, retention)
}

fn open_with(config: &str, retention: Retention) -> Driven {
    let mut open = open_partition(Durability::Memory, config, true);
    open.retention = retention;
    Driven::new(MemoryKind.open(open).unwrap().0, None)
}

fn append(partition: &mut Driven, sequence: u64, external: bool) -> Result<Offset, StorageError> {
    append_bytes(partition, sequence, EVENT_BYTES, external)
}

fn append_bytes(
    partition: &mut Driven,
    sequence: u64,
    bytes: usize,
    external: bool,
) -> Result<Offset, StorageError> {
    let origin = Origin {
        topic: TopicId(7),
        producer: ProducerId(5),
        epoch: ProducerEpoch(1),
        first_sequence: Sequence(sequence),
    };
    let event = EventSpec {
        data: vec![1; bytes],
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

/// Large data of another producer, on its way.
fn reserve(partition: &mut Driven, bytes: usize) -> DataPlace {
    let event = EventSpec {
        data: vec![1; bytes],
        external: true,
        ..EventSpec::default()
    };
    let place = partition.store_external(&[event], 512, Durability::Memory);
    place.unwrap().unwrap()
}

fn by_bytes(bytes: u64) -> Retention {
    Retention {
        bytes: Some(bytes),
        ..Retention::default()
    }
}

fn by_count(count: u64) -> Retention {
    Retention {
        count: Some(count),
        ..Retention::default()
    }
}

#[test]
fn it_is_exhausted_where_nothing_makes_room() {
    let mut partition = open(Retention::default());
    let (count, error) = fill(&mut partition);
    assert!(count >= 10, "{count}");
    assert!(matches!(error, StorageError::Exhausted(_)), "{error:?}");
    let text = error.to_string();
    for part in ["20000 bytes (bytes_max)", "no retention will make room"] {
        assert!(text.contains(part), "{text}");
    }
    let error = append(&mut partition, count, true).unwrap_err();
    assert!(matches!(error, StorageError::Exhausted(_)), "{error:?}");
    // What is there stays.
    assert_eq!(partition.storage.state().end, Offset(count));
    assert_eq!(partition.storage.state().first, Offset(0));
}

#[test]
fn who_keeps_the_newest_is_never_blocked_for_good() {
    // More than it may hold, just below it, and with the sixteenth above it.
    for retention in [
        by_bytes(1 << 30),
        by_bytes(19_500),
        by_count(1000),
        by_count(11),
    ] {
        let mut partition = open(retention);
        for sequence in 0..100 {
            let external = sequence % 3 == 0;
            append(&mut partition, sequence, external).unwrap();
            let state = partition.storage.state();
            assert!(state.bytes <= 20_000, "{} bytes are held", state.bytes);
            let kept = state.end.0 - state.first.0;
            assert!(kept >= sequence.min(4), "{kept} are kept at {sequence}");
        }
        // One that is larger than all it may hold is let in alone.
        let end = partition.storage.state().end;
        append_bytes(&mut partition, end.0, 30_000, false).unwrap();
        assert_eq!(partition.storage.state().first, end);
    }
}

#[test]
fn what_others_reserved_costs_no_batch() {
    for retention in [by_bytes(8_000), by_count(4)] {
        let mut partition = open_with(r#"{"bytes_max": 200000}"#, retention);
        let place = reserve(&mut partition, 100_000);
        for sequence in 0..4 {
            append(&mut partition, sequence, false).unwrap();
            partition.storage.tick(10);
            assert_eq!(partition.storage.state().first, Offset(0));
        }
        partition.storage.abandon(place);
        assert_eq!(partition.storage.state().first, Offset(0));
    }
}

#[test]
fn the_newest_batch_is_kept_whatever_its_size() {
    let mut partition = open(by_bytes(500));
    for sequence in 0..5 {
        append(&mut partition, sequence, false).unwrap();
        partition.storage.tick(10);
        let state = partition.storage.state();
        assert_eq!(
            (state.first, state.end),
            (Offset(sequence), Offset(sequence + 1))
        );
    }
}

#[test]
fn large_data_beyond_the_bound_is_let_in_alone() {
    let mut partition = open(Retention::default());
    append_bytes(&mut partition, 0, 20_000, true).unwrap();
    let error = append(&mut partition, 1, false).unwrap_err();
    assert!(matches!(error, StorageError::Exhausted(_)), "{error:?}");
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
    let place = reserve(&mut partition, 19_500);
    let error = append(&mut partition, 0, false).unwrap_err();
    assert!(matches!(error, StorageError::Full(_)), "{error:?}");
    partition.storage.abandon(place);
    append(&mut partition, 0, false).unwrap();
}

#[test]
fn it_is_full_while_what_comes_will_be_dropped_in_its_turn() {
    for retention in [by_bytes(8_500), by_count(5)] {
        let mut partition = open(retention);
        for sequence in 0..5 {
            append(&mut partition, sequence, false).unwrap();
        }
        let place = reserve(&mut partition, 11_000);
        let error = append_bytes(&mut partition, 5, 9_000, false).unwrap_err();
        assert!(matches!(error, StorageError::Full(_)), "{error:?}");
        partition.storage.abandon(place);
        append_bytes(&mut partition, 5, 9_000, false).unwrap();
    }
}
