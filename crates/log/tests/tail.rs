//! Who reads along is given what was appended, and it is what lies on the disk.

use log::testing::{
    Driven, EventSpec, FaultyDisk, Traced, append_of, make_batch, open_partition, origin,
};
use log::*;
use memory::{Buffer, Pool};
use std::path::PathBuf;
use std::sync::Arc;
use wire::batch::STAMP_BYTES;
use wire::record::GapReason;
use wire::*;

const CONFIG: &str = r#"{"segment_bytes": 40000, "tail_bytes_max": 65536}"#;

struct World {
    disk: Arc<FaultyDisk>,
    kind: DiskKind,
    pool: Pool,
}

impl World {
    fn new() -> Self {
        let disk = Arc::new(FaultyDisk::new());
        Self {
            kind: DiskKind::seeded(disk.clone(), 3),
            disk,
            pool: Pool::new(1 << 20),
        }
    }

    fn open(&self, directory: &str, config: &str, create: bool) -> Driven {
        let mut open = open_partition(Durability::Written, config, create);
        open.directory = PathBuf::from(directory);
        let (storage, _) = self.kind.open(open).unwrap();
        Driven::new(storage, Some(self.disk.clone()))
    }

    /// Appends an event of so many bytes, in memory of the pool.
    fn append(
        &self,
        driven: &mut Driven,
        number: u64,
        bytes: usize,
    ) -> Result<Offset, StorageError> {
        let made = batch_of(number, bytes);
        let mut batch = self.pool.take(made.len());
        batch.copy_from_slice(&made);
        let append = append_of(batch, Durability::Written, number);
        let offset = driven.storage.append(append);
        driven.settle();
        offset
    }

    /// What was read of the disk since operation `from`.
    fn reads(&self, from: u64) -> Vec<Traced> {
        let mut trace = self.disk.trace().split_off(from as usize);
        trace.retain(|traced| traced.what.starts_with("read"));
        trace
    }
}

fn batch_of(number: u64, bytes: usize) -> Vec<u8> {
    make_batch(origin(number), &[event(number, bytes)], 512)
}

fn event(number: u64, bytes: usize) -> EventSpec {
    EventSpec {
        metadata: format!("event {number}").into_bytes(),
        data: (0..bytes).map(|i| (i as u64 + number) as u8).collect(),
        external: false,
    }
}

fn from(offset: u64) -> ReadBatches {
    ReadBatches {
        from: Offset(offset),
        end: Offset(u64::MAX),
        bytes_max: 1 << 20,
        inline_data: true,
    }
}

#[test]
fn what_is_read_along_is_what_would_be_read_back() {
    let world = World::new();
    let mut driven = world.open("/p", CONFIG, true);
    for inline_data in [true, false] {
        for bytes_max in [1, 1000, 1 << 20] {
            let first = driven.storage.state().end.0;
            world.append(&mut driven, first, 300).unwrap();
            drop(driven.read(from(first)).unwrap());
            let operations = world.disk.operation_count();
            for number in first + 1..first + 9 {
                world.append(&mut driven, number, 300).unwrap();
            }
            let read = |offset: u64| ReadBatches {
                bytes_max,
                inline_data,
                ..from(offset)
            };
            let offsets = first + 1..first + 9;
            let along: Vec<_> = offsets
                .clone()
                .map(|offset| driven.read(read(offset)).unwrap())
                .collect();
            let data = driven.read_data(Offset(first + 5)).unwrap();
            assert_eq!(data, event(first + 5, 300).data);
            assert!(world.reads(operations).is_empty());
            assert_eq!(driven.read(read(first + 9)), Ok(Found::Nothing));
            // A second without an append is over.
            driven.storage.tick(driven.storage.next_tick().unwrap());
            for (offset, along) in offsets.zip(along) {
                let back = driven.read(read(offset)).unwrap();
                assert!(back == along, "{offset}, {bytes_max}, data: {inline_data}");
            }
            assert!(!world.reads(operations).is_empty());
        }
    }
    let contents = driven.read_all(Offset(54), 5000).unwrap();
    let expected: Vec<_> = (0..54).map(|at| (Offset(at), event(at, 300))).collect();
    assert!(contents.events == expected);
}

#[test]
fn only_for_who_reads_along_memory_is_held_and_little_of_it() {
    let world = World::new();
    let mut driven = world.open("/p", CONFIG, true);
    let mut number = 0;
    let mut append = |driven: &mut Driven| {
        world.append(driven, number, 500).unwrap();
        number += 1;
        (number, world.pool.used_bytes())
    };
    for _ in 0..30 {
        assert_eq!(append(&mut driven).1, 0, "nobody reads");
    }
    let read = ReadBatches {
        bytes_max: 1000,
        ..from(0)
    };
    drop(driven.read(read).unwrap());
    assert_eq!(append(&mut driven).1, 0, "not up to the end");
    let mut most = 0;
    for _ in 0..30 {
        let (end, held) = append(&mut driven);
        most = most.max(held);
        drop(driven.read(from(end - 1)).unwrap());
    }
    assert_eq!(most, 65536);
    // Who lags behind is not waited for.
    let held: Vec<usize> = (0..120).map(|_| append(&mut driven).1).collect();
    assert!(held.iter().all(|held| *held <= 65536));
    assert_eq!((held[0], held[119]), (65536, 0));
    // A batch that is larger than all that may be held is not.
    drop(driven.read(from(180)).unwrap());
    world.append(&mut driven, 181, 70_000).unwrap();
    assert_eq!(world.pool.used_bytes(), 0);
    drop(driven.read(from(181)).unwrap());
    // Nor is what has lain for a second, or in a partition that is closed.
    world.append(&mut driven, 182, 500).unwrap();
    assert!(world.pool.used_bytes() > 0);
    let tick = driven.storage.next_tick().unwrap();
    driven.storage.tick(tick);
    assert_eq!(world.pool.used_bytes(), 0);
    // What is next are the open files, and they are given a minute.
    let next = driven.storage.next_tick();
    assert!(next.is_some_and(|next| next >= tick + 60_000_000_000));
    drop(driven.read(from(182)).unwrap());
    world.append(&mut driven, 183, 500).unwrap();
    assert!(world.pool.used_bytes() > 0);
    driven.storage.close();
    assert!(matches!(
        driven.take_events()[..],
        [.., StorageEvent::Closed]
    ));
    assert_eq!(world.pool.used_bytes(), 0);
}

#[test]
fn all_partitions_together_hold_so_much_and_each_gets_its_turn() {
    let world = World::new();
    let config = r#"{"tail_bytes_max": 30000000}"#;
    let mut partitions: Vec<Driven> = (0..4)
        .map(|index| world.open(&format!("/{index}"), config, true))
        .collect();
    let bytes = 3_000_000;
    for number in 0..20 {
        for driven in &mut partitions {
            world.append(driven, number, bytes).unwrap();
            assert!(world.pool.used_bytes() <= 64 << 20);
            let operations = world.disk.operation_count();
            drop(driven.read(from(number)).unwrap());
            let has_read = !world.reads(operations).is_empty();
            assert_eq!(has_read, number == 0);
        }
    }
    assert!(world.pool.used_bytes() > 50 << 20);
    drop(partitions);
    assert_eq!(world.pool.used_bytes(), 0);
}

#[test]
fn what_is_not_written_is_not_given_out_nor_what_was_refused() {
    let world = World::new();
    let mut driven = world.open("/p", CONFIG, true);
    world.append(&mut driven, 0, 500).unwrap();
    drop(driven.read(from(0)).unwrap());
    // The write is under way.
    let batch = Buffer::copy_of(&batch_of(1, 500));
    driven
        .storage
        .append(append_of(batch, Durability::Written, 1))
        .unwrap();
    driven.storage.read(ReadToken(u64::MAX), from(1));
    let found = match driven.storage.poll_event() {
        Some(StorageEvent::Read { found, .. }) => found,
        other => panic!("{other:?}"),
    };
    assert_eq!(found, Ok(Found::Nothing));
    driven.settle();
    assert!(matches!(driven.read(from(1)), Ok(Found::Batches { .. })));
    // There is no space for these two; one that comes later takes their place.
    world.disk.set_space(Some(0));
    for number in [2, 3] {
        let _ = world.append(&mut driven, number, 50_000);
        assert_eq!(driven.read(from(2)), Ok(Found::Nothing));
    }
    world.disk.set_space(None);
    while world.append(&mut driven, 2, 77).is_err() {}
    let operations = world.disk.operation_count();
    let Ok(Found::Batches { batches, next }) = driven.read(from(2)) else {
        panic!("event 2 is not there");
    };
    assert_eq!((batches.len(), next), (1, Offset(3)));
    let made = batch_of(2, 77);
    assert_eq!(batches[0][STAMP_BYTES..], made[STAMP_BYTES..]);
    assert!(world.reads(operations).is_empty());
}

#[test]
fn what_was_removed_is_not_given_out_though_it_is_here() {
    let world = World::new();
    let config =
        r#"{"segment_bytes": 4000, "tail_bytes_max": 1000000, "background_sync_bytes": 1}"#;
    let mut driven = world.open("/p", config, true);
    for number in 0..40 {
        world.append(&mut driven, number, 500).unwrap();
        drop(driven.read(from(number)).unwrap());
    }
    let held = world.pool.used_bytes();
    driven
        .storage
        .remove_before(Offset(20), GapReason::Retention);
    driven.settle();
    let first = driven.storage.state().first;
    assert!(first.0 > 10);
    assert!(world.pool.used_bytes() < held);
    let Ok(Found::Gap(gap)) = driven.read(from(10)) else {
        panic!("event 10 is still there");
    };
    assert_eq!((gap.end, gap.reason), (first, GapReason::Retention));
    assert!(driven.open_event(Offset(10)).is_err());
    let operations = world.disk.operation_count();
    assert!(driven.read(from(first.0)).is_ok());
    assert!(world.reads(operations).is_empty());
}
