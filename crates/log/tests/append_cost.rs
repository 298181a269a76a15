//! What an append costs: counted always, timed when asked.

use log::testing::{EventSpec, FaultyDisk, append_of, make_batch, open_partition, origin};
use log::*;
use memory::{Buffer, Pool};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::*;

fn open(config: &str) -> (Arc<FaultyDisk>, Box<dyn Storage>) {
    let disk = Arc::new(FaultyDisk::new());
    let open = open_partition(Durability::Written, config, true);
    let (storage, _) = DiskKind::seeded(disk.clone(), 1).open(open).unwrap();
    (disk, storage)
}

fn batch(first: u64, metadata_bytes: usize) -> Vec<u8> {
    let event = EventSpec {
        metadata: vec![b'x'; metadata_bytes],
        ..EventSpec::default()
    };
    make_batch(origin(first), &[event], 4096)
}

fn append(storage: &mut dyn Storage, batch: Buffer, number: u64) {
    let append = append_of(batch, Durability::Written, number);
    storage.append(append).unwrap();
}

#[test]
fn an_append_is_one_write_of_the_memory_that_it_was_given() {
    let (_, mut storage) = open("");
    let mut others = 0;
    for number in 0..200 {
        let bytes = Buffer::copy_of(&batch(number, 10_000));
        let place = bytes.as_ptr();
        append(storage.as_mut(), bytes, number);
        while let Some((token, operation)) = storage.poll_operation() {
            match &operation {
                Operation::Write { bytes, .. } => {
                    assert_eq!(bytes.len(), 1);
                    assert_eq!(bytes[0].as_ptr(), place, "the batch is not copied");
                }
                Operation::Allocate { .. } | Operation::Open { .. } => others += 1,
                other => panic!("{other:?}"),
            }
            let outcome = match operation {
                Operation::Open { .. } => Outcome::File(FileId(9)),
                _ => Outcome::Done,
            };
            storage.complete(token, Ok(outcome));
        }
        while storage.poll_event().is_some() {}
    }
    assert!(others < 20, "{others} operations besides the writes");
    assert_eq!(storage.state().written, Offset(200));
}

/// `cargo test --release -p thalweg-log --test append_cost -- --ignored --nocapture`
#[test]
#[ignore = "prints a time; nothing depends on it"]
fn the_time_of_an_append() {
    let (_, mut storage) = open(r#"{"segment_bytes": 1073741824}"#);
    let pool = Pool::new(64 << 20);
    let mut spent = Duration::ZERO;
    let made = batch(0, 1 << 20);
    let count = 900;
    for number in 0..count {
        let mut bytes = pool.take(made.len());
        bytes.copy_from_slice(&made);
        let mut append = append_of(bytes, Durability::Written, number);
        append.header.first_sequence = Sequence(number);
        let start = Instant::now();
        storage.append(append).unwrap();
        while let Some((token, operation)) = storage.poll_operation() {
            let outcome = match &operation {
                Operation::Open { .. } => Outcome::File(FileId(9)),
                _ => Outcome::Done,
            };
            storage.complete(token, Ok(outcome));
            // Giving the buffer back is the executor's time.
            spent += start.elapsed();
            drop(operation);
        }
        while storage.poll_event().is_some() {}
    }
    println!(
        "{} ns an append of 1 MiB, its write apart",
        spent.as_nanos() / u128::from(count)
    );
}

/// As above; the time of opening a partition whose server was killed.
#[test]
#[ignore = "prints a time; nothing depends on it"]
fn the_time_of_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
    let mut open = open_partition(Durability::Written, "", true);
    open.directory = directory.path().join("p");
    let kind = DiskKind::new(disk.clone());
    let (storage, _) = kind.open(open.clone()).unwrap();
    let mut driven = log::testing::Driven::new(storage, Some(disk));
    for number in 0..1000 {
        let bytes = Buffer::copy_of(&batch(number, 1 << 20));
        append(driven.storage.as_mut(), bytes, number);
        driven.settle();
    }
    drop(driven);
    open.create = false;
    let start = Instant::now();
    let (storage, report) = kind.open(open).unwrap();
    println!(
        "{:?} to open {} MiB after a kill, of which {} MiB were verified",
        start.elapsed(),
        storage.state().bytes >> 20,
        report.verified_bytes >> 20
    );
    assert_eq!(report.event_count, 1000);
}
