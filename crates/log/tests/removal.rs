//! Retention removes what somebody is just reading: a gap, not a failure.

use log::testing::{Driven, EventSpec, FaultyDisk, open_partition, origin};
use log::*;
use std::sync::Arc;
use wire::record::GapReason;
use wire::*;

fn open(disk: &Arc<FaultyDisk>, create: bool) -> Driven {
    let config = r#"{"segment_bytes": 4000, "open_segments_max": 1}"#;
    let open = open_partition(Durability::Written, config, create);
    let (storage, _) = DiskKind::seeded(disk.clone(), 5).open(open).unwrap();
    Driven::new(storage, Some(disk.clone()))
}

/// A partition of forty events, whose files were all closed.
fn partition(disk: &Arc<FaultyDisk>) -> Driven {
    let mut driven = open(disk, true);
    for number in 0..40 {
        let event = EventSpec {
            data: vec![number as u8; 500],
            ..EventSpec::default()
        };
        driven
            .append(origin(number), &[event], Durability::Synced, number)
            .unwrap();
    }
    driven.storage.close();
    driven.settle();
    let mut driven = open(disk, false);
    driven.settle();
    driven
}

/// Begins something, does so many of its operations, holds the next one until
/// all before event 20 is removed, and gives what comes of it.
fn amid_a_removal(begin: impl FnOnce(&mut dyn Storage), done: usize) -> Vec<StorageEvent> {
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = partition(&disk);
    drop(driven.take_events());
    begin(&mut *driven.storage);
    for _ in 0..done {
        if let Some((token, operation)) = driven.poll_operation() {
            let result = disk.execute(operation);
            driven.storage.complete(token, result);
        }
    }
    let held = driven.poll_operation();
    driven
        .storage
        .remove_before(Offset(20), GapReason::Retention);
    driven.settle();
    assert!(driven.storage.state().first > Offset(10));
    if let Some((token, operation)) = held {
        let result = disk.execute(operation);
        driven.storage.complete(token, result);
    }
    driven.take_events()
}

#[test]
fn who_reads_what_is_removed_meanwhile_is_told_of_a_gap() {
    let mut gaps = 0;
    for done in 0..6 {
        let read = ReadBatches {
            from: Offset(2),
            end: Offset(u64::MAX),
            bytes_max: 1000,
            inline_data: true,
        };
        let events = amid_a_removal(|storage| storage.read(ReadToken(1), read), done);
        let found = events.into_iter().find_map(|event| match event {
            StorageEvent::Read { found, .. } => Some(found),
            _ => None,
        });
        match found.expect("every reading is answered") {
            Ok(Found::Gap(gap)) => {
                assert_eq!((gap.first, gap.reason), (Offset(2), GapReason::Retention));
                gaps += 1;
            }
            // It came in time.
            Ok(Found::Batches { next, .. }) => assert!(next > Offset(2)),
            other => panic!("after {done} operations: {other:?}"),
        }
    }
    assert!(gaps > 0);
}

#[test]
fn an_event_that_is_removed_while_it_is_opened_is_out_of_range() {
    let mut gone = 0;
    for done in 0..6 {
        let events = amid_a_removal(|storage| storage.open_event(ReadToken(1), Offset(2)), done);
        let opened = events.into_iter().find_map(|event| match event {
            StorageEvent::EventOpened { data, .. } => Some(data),
            _ => None,
        });
        match opened.expect("every opening is answered") {
            Ok(data) => assert_eq!(data.bytes, 500),
            Err(StorageError::OutOfRange { offset, .. }) => {
                assert_eq!(offset, Offset(2));
                gone += 1;
            }
            Err(other) => panic!("after {done} operations: {other:?}"),
        }
    }
    assert!(gone > 0);
}
