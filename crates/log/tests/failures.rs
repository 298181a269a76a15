//! A full disk stops production and loses nothing; a failed sync stops it for
//! good; what is only written is synced in the background.

use log::testing::{
    Driven, EventSpec, Fault, FaultyDisk, Survival, append_of, make_batch, open_partition, origin,
};
use log::*;
use memory::Buffer;
use std::path::Path;
use std::sync::Arc;
use wire::*;

fn partition(durability: Durability, create: bool) -> OpenPartition {
    let config = r#"{"segment_bytes": 4096, "background_sync_bytes": 3000,
        "allocate_bytes_min": 256, "allocate_bytes_max": 512}"#;
    open_partition(durability, config, create)
}

fn open(disk: &Arc<FaultyDisk>, durability: Durability, create: bool) -> Driven {
    let kind = DiskKind::seeded(disk.clone(), 5);
    let (storage, _) = kind.open(partition(durability, create)).unwrap();
    Driven::new(storage, Some(disk.clone()))
}

fn event(number: u64) -> EventSpec {
    EventSpec {
        metadata: format!("event {number}").into_bytes(),
        data: vec![number as u8; 300],
        external: number % 7 == 6,
    }
}

fn submit(driven: &mut Driven, number: u64) -> Result<Offset, StorageError> {
    let batch = make_batch(origin(number), &[event(number)], 512);
    let append = append_of(Buffer::copy_of(&batch), Durability::Synced, number);
    driven.storage.append(append)
}

fn assert_holds(driven: &mut Driven, count: u64) {
    let contents = driven.read_all(Offset(count), 10_000).unwrap();
    let expected: Vec<_> = (0..count).map(|i| (Offset(i), event(i))).collect();
    assert!(
        contents.events == expected,
        "{} events of {count}",
        contents.events.len()
    );
}

#[test]
fn a_full_disk_stops_production_loses_nothing_and_goes_on_when_there_is_space() {
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = open(&disk, Durability::Synced, true);
    let mut number = 0;
    let mut refusals = 0;
    for space in (20_000u64..200_000).step_by(7_001) {
        disk.set_space(Some(space));
        let mut tries = 0;
        while tries < 4 {
            let end = driven.storage.state().end;
            assert_eq!(end, Offset(number));
            let offset =
                driven.append(origin(number), &[event(number)], Durability::Synced, number);
            let refused = driven.take_events().into_iter().any(|event| match event {
                StorageEvent::Refused { from, error } => {
                    assert_eq!(from, end);
                    assert!(matches!(error, StorageError::Full(_)), "{error}");
                    true
                }
                _ => false,
            });
            let state = driven.storage.state();
            assert_eq!(state.failure, None, "a full disk is no failure");
            match offset {
                Ok(offset) if !refused => {
                    assert_eq!(offset, Offset(number));
                    assert_eq!(state.synced, Offset(number + 1));
                    number += 1;
                    tries = 0;
                }
                Ok(_) => tries += 1,
                Err(StorageError::Full(_)) => tries += 1,
                Err(error) => panic!("{error}"),
            }
            refusals += u64::from(refused);
        }
        assert_holds(&mut driven, number);
        // Not even the power's loss takes what was acknowledged.
        let fork = Arc::new(disk.fork());
        fork.power_loss(Survival::Nothing);
        fork.set_space(None);
        assert_holds(&mut open(&fork, Durability::Synced, false), number);
    }
    assert!(
        number > 60 && refusals > 5,
        "{number} events, {refusals} refusals"
    );
}

#[test]
fn many_appends_that_find_no_space_are_undone_together() {
    // However far the first lies before the last, across segments too.
    for first_refused in 0..20 {
        let disk = Arc::new(FaultyDisk::new());
        let mut driven = open(&disk, Durability::Synced, true);
        for number in 0..3 {
            submit(&mut driven, number).unwrap();
        }
        driven.settle();
        for number in 3..24 {
            submit(&mut driven, number).unwrap();
        }
        let mut writes = 0;
        while let Some((token, operation)) = driven.poll_operation() {
            let full = matches!(operation, Operation::Write { .. }) && {
                writes += 1;
                writes > first_refused
            };
            if full {
                disk.fail_at(disk.operation_count(), Fault::Full(100));
            }
            let result = disk.execute(operation);
            driven.storage.complete(token, result);
            if driven.storage.state().end < Offset(24) {
                break;
            }
        }
        driven.settle();
        let state = driven.storage.state();
        assert_eq!((state.failure.as_ref(), state.written), (None, state.end));
        assert!(
            state.end >= Offset(3) && state.end < Offset(24),
            "{state:?}"
        );
        let mut number = state.end.0;
        while number < 40 {
            // The first one asks for space, and is refused.
            if submit(&mut driven, number).is_ok() {
                number += 1;
            }
            driven.settle();
        }
        let count = 40;
        let state = driven.storage.state();
        assert_eq!(state.synced, Offset(count));
        let fork = Arc::new(disk.fork());
        fork.power_loss(Survival::Nothing);
        let reopened = open(&fork, Durability::Synced, false);
        assert_eq!(reopened.storage.state().end, Offset(count));
    }
}

#[test]
fn a_segment_stays_until_the_next_one_is_there_for_sure() {
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = open(&disk, Durability::Synced, true);
    // All that is not in the last segment may go.
    let retention = Retention {
        count: Some(1),
        ..Retention::default()
    };
    driven.storage.set_retention(retention, Offset(u64::MAX));
    // Writes to the second segment wait, the first one is synced whole.
    let second = |operation: &Operation| match operation {
        Operation::Write { file, .. } => {
            let path = disk.path_of(*file).unwrap_or_default();
            path.extension().is_some_and(|end| end == "log")
                && !path.ends_with(format!("{:020}.log", 0))
        }
        _ => false,
    };
    let mut held = Vec::new();
    let mut number = 0;
    while held.is_empty() {
        submit(&mut driven, number).unwrap();
        number += 1;
        while let Some((token, operation)) = driven.poll_operation() {
            if second(&operation) {
                held.push((token, operation));
                continue;
            }
            let result = disk.execute(operation);
            driven.storage.complete(token, result);
        }
    }
    let state = driven.storage.state();
    assert_eq!(state.synced, Offset(number - 1), "the first one's end");
    for (token, operation) in held {
        disk.fail_at(disk.operation_count(), Fault::Full(0));
        let result = disk.execute(operation);
        driven.storage.complete(token, result);
    }
    driven.settle();
    let state = driven.storage.state();
    assert_eq!((state.failure, state.first), (None, Offset(0)));
    assert_eq!(state.end, Offset(number - 1));
    assert_holds(&mut driven, number - 1);
    // With space again it goes on, and what need not be kept goes.
    let mut number = state.end.0;
    while number < 40 {
        // The first one asks for space, and is refused.
        number += u64::from(submit(&mut driven, number).is_ok());
        driven.settle();
    }
    let state = driven.storage.state();
    assert_eq!((state.failure, state.synced), (None, Offset(40)));
    assert!(state.first > Offset(20), "{}", state.first);
}

#[test]
fn a_failed_sync_is_never_retried_into_an_ack() {
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = open(&disk, Durability::Synced, true);
    submit(&mut driven, 0).unwrap();
    driven.settle();
    submit(&mut driven, 1).unwrap();
    while let Some((token, operation)) = driven.poll_operation() {
        if matches!(operation, Operation::SyncData { .. }) {
            disk.fail_at(disk.operation_count(), Fault::Error);
        }
        let result = disk.execute(operation);
        driven.storage.complete(token, result);
    }
    let state = driven.storage.state();
    assert_eq!(state.synced, Offset(1));
    assert!(
        state.failure.as_ref().unwrap().contains("syncing"),
        "{state:?}"
    );
    assert!(matches!(
        submit(&mut driven, 2),
        Err(StorageError::Failed(_))
    ));
    driven.storage.tick(1 << 60);
    driven.storage.close();
    driven.settle();
    assert_eq!(driven.storage.state().synced, Offset(1));
    // Opened again it goes on, and what is then called synced is.
    disk.kill();
    let mut driven = open(&disk, Durability::Synced, false);
    assert_eq!(driven.storage.state().synced, Offset(2));
    disk.power_loss(Survival::Nothing);
    let end = driven.storage.state().end;
    driven = open(&disk, Durability::Synced, false);
    assert_eq!(driven.storage.state().end, end);
}

#[test]
fn what_is_only_written_is_synced_by_bytes_in_the_background() {
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = open(&disk, Durability::Written, true);
    for number in 0..40 {
        let offset = driven.append(
            origin(number),
            &[event(number)],
            Durability::Written,
            number,
        );
        assert_eq!(offset, Ok(Offset(number)));
        let state = driven.storage.state();
        assert_eq!(state.written, Offset(number + 1));
        assert!(state.end.0 - state.synced.0 <= 8, "{state:?}");
    }
    let state = driven.storage.state();
    assert!(
        state.synced > Offset(20) && state.synced < Offset(40),
        "{state:?}"
    );
    drop(driven);
    disk.power_loss(Survival::Nothing);
    let kind = DiskKind::seeded(disk.clone(), 6);
    let mut again = partition(Durability::Written, false);
    again.boot_id = "another boot".into();
    let (storage, report) = kind.open(again).unwrap();
    let reopened = storage.state();
    assert_eq!(reopened.incarnation, Incarnation(2));
    assert!(reopened.end >= state.synced);
    assert_eq!(report.ended, Some((Incarnation(1), reopened.end)));
    // The old life's events stay at their offsets, the new life goes on behind them.
    let mut driven = Driven::new(storage, Some(disk));
    assert_holds(&mut driven, reopened.end.0);
}

#[test]
fn damage_in_an_old_segment_is_a_gap_and_reading_goes_on_behind_it() {
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = open(&disk, Durability::Synced, true);
    for number in 0..40 {
        driven
            .append(origin(number), &[event(number)], Durability::Synced, number)
            .unwrap();
    }
    driven.storage.close();
    driven.settle();
    let mut paths = disk.paths();
    paths.retain(|path| path.extension() == Some(Path::new("log").as_os_str()));
    assert!(paths.len() > 4);
    let log = disk.content(&paths[1]).unwrap();
    // In a stamp, in a header, in metadata: somewhere in the middle of the segment.
    for byte in (log.len() / 2..log.len() / 2 + 600).step_by(13) {
        let fork = Arc::new(disk.fork());
        fork.flip_bit(&paths[1], byte as u64 * 8);
        let mut driven = open(&fork, Durability::Synced, false);
        let contents = driven.read_all(Offset(40), 10_000).unwrap();
        assert_eq!(
            (contents.events.len(), contents.gaps.len()),
            (39, 1),
            "byte {byte}"
        );
        let (first, end) = contents.gaps[0];
        assert_eq!(end, first.plus(1));
        assert!(
            contents
                .events
                .iter()
                .all(|(offset, found)| *found == event(offset.0))
        );
        let lost = driven.take_events();
        let lost = lost
            .iter()
            .filter(|event| matches!(event, StorageEvent::Lost(gap) if gap.first == first));
        assert_eq!(lost.count(), 1, "it is told once");
        let refused = driven.open_event(first);
        assert!(
            matches!(refused, Err(StorageError::Damaged(_))),
            "{refused:?}"
        );
    }
}

#[test]
fn what_is_given_up_is_counted_no_more_in_an_older_segment_either() {
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = open(&disk, Durability::Synced, true);
    let large = EventSpec {
        data: vec![1; 50_000],
        external: true,
        ..EventSpec::default()
    };
    let place = driven.store_external(&[large], 512, Durability::Synced);
    let place = place.unwrap().unwrap();
    let reserved = driven.storage.state().bytes;
    // Beyond the segment in whose data file the place is.
    for number in 0..20 {
        let small = EventSpec {
            external: false,
            ..event(number)
        };
        let appended = driven.append(origin(number), &[small], Durability::Synced, number);
        appended.unwrap();
    }
    let held = driven.storage.state().bytes;
    assert!(held > reserved + 4096);
    driven.storage.abandon(place);
    driven.settle();
    assert!(driven.storage.state().bytes <= held - 50_000);
}
