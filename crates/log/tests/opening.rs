//! Events of one batch that are opened together cost what one of them does; those of
//! several batches do not wait for each other.

use log::testing::{Driven, EventSpec, FaultyDisk, open_partition, origin};
use log::*;
use std::path::PathBuf;
use std::sync::Arc;
use wire::*;

const CONFIG: &str = r#"{"segment_bytes": 4000000, "tail_bytes_max": 0}"#;
const BATCHES: u64 = 4;
const EVENTS: u64 = 50;
/// More than is read while a batch is looked for.
const LONG_BYTES: u64 = 100_000;

fn data_of(number: u64) -> Vec<u8> {
    vec![number as u8; 1000]
}

fn open(disk: &Arc<FaultyDisk>, create: bool) -> Driven {
    let mut open = open_partition(Durability::Written, CONFIG, create);
    open.directory = PathBuf::from("/p");
    let (storage, _) = DiskKind::seeded(disk.clone(), 3).open(open).unwrap();
    Driven::new(storage, Some(disk.clone()))
}

/// A partition of batches of so many events each, inline or external. It was opened
/// again, so that it has nothing at hand.
fn stored(disk: &Arc<FaultyDisk>, counts: &[u64], external: bool) -> Driven {
    let mut driven = open(disk, true);
    let mut first = 0;
    for (batch, count) in counts.iter().enumerate() {
        let events = (first..first + count).map(|number| EventSpec {
            metadata: b"{}".to_vec(),
            data: data_of(number),
            external,
        });
        let events: Vec<EventSpec> = events.collect();
        driven
            .append(origin(first), &events, Durability::Written, batch as u64)
            .unwrap();
        first += count;
    }
    driven.storage.close();
    driven.settle();
    open(disk, false)
}

/// Opens so many events at once, and says how often the disk was read for it.
fn open_all(disk: &Arc<FaultyDisk>, driven: &mut Driven, offsets: &[u64]) -> usize {
    let from = disk.trace().len();
    for offset in offsets {
        driven
            .storage
            .open_event(ReadToken(*offset), Offset(*offset));
    }
    let mut opened = Vec::new();
    for event in driven.take_events() {
        if let StorageEvent::EventOpened { token, data } = event {
            opened.push((token.0, data.expect("it is there")));
        }
    }
    opened.sort_by_key(|(offset, _)| *offset);
    let reads = disk.trace().split_off(from);
    let reads = reads
        .iter()
        .filter(|traced| traced.what.starts_with("read"));
    let reads = reads.count();
    let mut wanted = offsets.to_vec();
    wanted.sort_unstable();
    let found: Vec<u64> = opened.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(found, wanted, "each is answered once");
    for (offset, data) in opened {
        let whole = wire::view::Segment {
            offset: 0,
            bytes: data.bytes,
        };
        let pieces = driven.read_parts(&data, vec![whole]).unwrap();
        assert_eq!(pieces.concat(), data_of(offset));
    }
    reads
}

#[test]
fn a_batch_is_read_once_for_all_its_events() {
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = stored(&disk, &[EVENTS; BATCHES as usize], false);
    let all: Vec<u64> = (0..BATCHES * EVENTS).collect();
    let reads = open_all(&disk, &mut driven, &all);
    assert!(reads <= 2 * BATCHES as usize, "{reads} reads");
    // Whatever their order.
    let mut driven = open(&disk, false);
    let mixed: Vec<u64> = all.iter().map(|n| n * 77 % (BATCHES * EVENTS)).collect();
    open_all(&disk, &mut driven, &mixed);
}

#[test]
fn a_batch_is_read_once_also_where_others_are_shorter() {
    let disk = Arc::new(FaultyDisk::new());
    let counts = [1, 1, 200, 1, 3, 200];
    let mut driven = stored(&disk, &counts, false);
    let from = disk.trace().len();
    let all: Vec<u64> = (0..counts.iter().sum()).collect();
    open_all(&disk, &mut driven, &all);
    let reads = disk.trace().split_off(from);
    let whole = |traced: &&log::testing::Traced| {
        traced.what.starts_with("read") && traced.bytes > LONG_BYTES
    };
    assert_eq!(reads.iter().filter(whole).count(), 2);
}

#[test]
fn events_of_several_batches_are_opened_at_the_same_time() {
    const ONE_BY_ONE: u64 = 64;
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = stored(&disk, &[1; ONE_BY_ONE as usize], true);
    for offset in 0..ONE_BY_ONE {
        driven.storage.open_event(ReadToken(offset), Offset(offset));
    }
    // A disk that is slow: all that is asked for is under way before any of it is done.
    let mut most = 0;
    loop {
        let operations: Vec<_> = std::iter::from_fn(|| driven.poll_operation()).collect();
        if operations.is_empty() {
            break;
        }
        most = most.max(operations.len());
        for (token, operation) in operations {
            driven.storage.complete(token, disk.execute(operation));
        }
    }
    assert!(most >= 4, "{most} operations at once");
    let events = driven.take_events();
    let opened = events.iter().filter(|event| {
        matches!(event, StorageEvent::EventOpened { data: Ok(data), .. } if data.bytes == 1000)
    });
    assert_eq!(opened.count(), ONE_BY_ONE as usize);
}
