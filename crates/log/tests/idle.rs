//! A partition that nobody uses keeps no file open, and asks for nothing. What uses it next finds
//! all as it was.

use log::testing::{Driven, EventSpec, Fault, FaultyDisk, Survival, open_partition, origin};
use log::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::batch::ExternalLayout;
use wire::record::GapReason;
use wire::view::Segment;
use wire::*;

const SECOND_NS: u64 = 1_000_000_000;

fn open(disk: &Arc<FaultyDisk>, durability: Durability, create: bool) -> (Driven, Recovery) {
    let config = r#"{"segment_bytes": 4096, "allocate_bytes_min": 256,
        "allocate_bytes_max": 512, "tail_bytes_max": 0, "data_tail_bytes_max": 0}"#;
    let kind = DiskKind::seeded(disk.clone(), 5);
    let open = open_partition(durability, config, create);
    let (storage, recovery) = kind.open(open).unwrap();
    (Driven::new(storage, Some(disk.clone())), recovery)
}

fn new(durability: Durability) -> (Arc<FaultyDisk>, Driven) {
    let disk = Arc::new(FaultyDisk::new());
    let (driven, _) = open(&disk, durability, true);
    (disk, driven)
}

fn event(number: u64) -> EventSpec {
    EventSpec {
        metadata: format!("event {number}").into_bytes(),
        data: vec![number as u8; 700],
        external: number.is_multiple_of(3),
    }
}

fn append(driven: &mut Driven, number: u64, level: Durability, now: u64) {
    let offset = driven.append(origin(number), &[event(number)], level, now);
    assert_eq!(offset.unwrap(), Offset(number));
}

fn assert_holds(driven: &mut Driven, from: u64, count: u64) {
    let contents = driven.read_all(Offset(count), 10_000).unwrap();
    let expected: Vec<_> = (from..count).map(|i| (Offset(i), event(i))).collect();
    assert!(
        contents.events == expected,
        "{} events of {from} to {count}",
        contents.events.len()
    );
}

/// The storage is called whenever it asks for it, so many times at most. Returns how often
/// it asked, and when it was called last.
fn call(driven: &mut Driven, now: u64, most: usize) -> (usize, u64) {
    let (mut calls, mut now) = (0, now);
    while calls < most
        && let Some(at) = driven.storage.next_tick()
    {
        now = at.max(now);
        driven.storage.tick(now);
        driven.settle();
        calls += 1;
    }
    (calls, now)
}

fn is_open(disk: &FaultyDisk, extension: &str) -> bool {
    let of = |path: &Path| path.extension().is_some_and(|it| it == extension);
    disk.open_paths().iter().any(|path| of(path))
}

/// Lets time pass until no file is open. Returns when that is.
fn rest(disk: &FaultyDisk, driven: &mut Driven, now: u64) -> u64 {
    let (calls, now) = call(driven, now, 20);
    assert_eq!(disk.open_paths(), Vec::<PathBuf>::new());
    assert_eq!(driven.storage.next_tick(), None);
    assert!(calls <= 6, "{calls} calls until all was closed");
    now
}

#[test]
fn idle_files_are_closed_and_the_next_operation_opens_them() {
    for level in [Durability::Written, Durability::Synced] {
        let (disk, mut driven) = new(level);
        let (mut count, mut first, mut now) = (0, 0, 1);
        for round in 0..12 {
            for _ in 0..4 {
                append(&mut driven, count, level, now);
                count += 1;
                now += 1;
            }
            assert!(is_open(&disk, "log") && is_open(&disk, "data"));
            driven.storage.tick(now);
            driven.settle();
            driven.storage.tick(now + 59 * SECOND_NS);
            driven.settle();
            assert!(is_open(&disk, "log") && is_open(&disk, "data"));
            now = rest(&disk, &mut driven, now);
            assert_eq!(driven.storage.state().synced, Offset(count));
            for crash in [None, Some(Survival::Nothing), Some(Survival::Some(round))] {
                let fork = Arc::new(disk.fork());
                match crash {
                    None => fork.kill(),
                    Some(survival) => fork.power_loss(survival),
                }
                let (mut again, _) = open(&fork, level, false);
                assert_holds(&mut again, first, count);
            }
            // What comes next: an append, or one of these before it.
            match round % 4 {
                0 => assert_holds(&mut driven, first, count),
                1 => {
                    let offset = count - count % 3 - 3;
                    let data = driven.read_data(Offset(offset)).unwrap();
                    assert_eq!(data, event(offset).data);
                }
                2 => {
                    let offset = Offset(count - 2);
                    driven.storage.remove_before(offset, GapReason::Retention);
                    driven.settle();
                    first = driven.storage.state().first.0;
                }
                _ => {}
            }
        }
        assert!(first > 0, "segments were removed");
        rest(&disk, &mut driven, now);
        driven.storage.close();
        driven.settle();
        assert!(disk.open_paths().is_empty());
        let (mut again, recovery) = open(&disk, level, false);
        assert_eq!((recovery.cut_bytes, recovery.gaps.len()), (0, 0));
        assert_holds(&mut again, first, count);
    }
}

/// The files below `directory` that this process has open.
fn open_below(directory: &Path) -> Vec<PathBuf> {
    let directory = directory.canonicalize().unwrap();
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    // A descriptor that another test has closed meanwhile has no target any more.
    let targets = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    targets.filter(|to| to.starts_with(&directory)).collect()
}

#[test]
fn the_process_has_no_file_open_for_partitions_that_are_idle() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
    let kind = DiskKind::new(disk.clone());
    let mut partitions: Vec<_> = (0..20)
        .map(|index| {
            let mut open = open_partition(Durability::Synced, "", true);
            open.directory = directory.path().join(index.to_string());
            Driven::new(kind.open(open).unwrap().0, Some(disk.clone()))
        })
        .collect();
    let mut now = 1;
    for round in 0..2 {
        for driven in &mut partitions {
            for number in 3 * round..3 * round + 3 {
                append(driven, number, Durability::Synced, now);
            }
        }
        let open = open_below(directory.path()).len();
        assert!(open >= 40, "{open} files are open while they are used");
        let calls = partitions.iter_mut().map(|driven| call(driven, now, 20).1);
        now = calls.max().unwrap();
        assert_eq!(open_below(directory.path()), Vec::<PathBuf>::new());
    }
    for driven in &mut partitions {
        assert_holds(driven, 0, 6);
    }
}

#[test]
fn one_that_is_read_now_and_then_has_its_files_closed_between() {
    let (disk, mut driven) = new(Durability::Synced);
    append(&mut driven, 0, Durability::Synced, 1);
    let mut now = rest(&disk, &mut driven, 1);
    for _ in 0..3 {
        now += 3600 * SECOND_NS;
        assert_holds(&mut driven, 0, 1);
        assert!(is_open(&disk, "log"));
        now = rest(&disk, &mut driven, now);
    }
}

#[test]
fn a_failed_sync_of_an_idle_partition_is_no_secret() {
    let (disk, mut driven) = new(Durability::Written);
    append(&mut driven, 0, Durability::Written, 1);
    assert_eq!(driven.storage.state().synced, Offset(0));
    let mut syncs = 0;
    while let Some(at) = driven.storage.next_tick() {
        driven.storage.tick(at);
        while let Some((token, operation)) = driven.poll_operation() {
            if matches!(operation, Operation::SyncData { .. }) {
                assert!(is_open(&disk, "log"), "closed before it was synced");
                disk.fail_at(disk.operation_count(), Fault::Error);
                syncs += 1;
            }
            let result = disk.execute(operation);
            driven.storage.complete(token, result);
        }
    }
    assert_eq!(syncs, 1);
    assert!(driven.storage.state().failure.is_some());
    // It takes nothing more, and keeps nothing open.
    assert!(disk.open_paths().is_empty());
}

#[test]
fn an_append_while_idle_files_are_synced_is_not_synced_itself() {
    let (disk, mut driven) = new(Durability::Written);
    append(&mut driven, 0, Durability::Written, 1);
    let mut now = 1;
    for _ in 0..6 {
        if driven.storage.state().synced < Offset(1) {
            now = call(&mut driven, now, 1).1;
        }
    }
    assert_eq!(driven.storage.state().synced, Offset(1));
    assert!(is_open(&disk, "log"));
    append(&mut driven, 1, Durability::Written, now);
    append(&mut driven, 2, Durability::Written, now);
    assert_eq!(driven.storage.state().synced, Offset(1));
    rest(&disk, &mut driven, now);
    assert_eq!(driven.storage.state().synced, Offset(3));
}

#[test]
fn an_opened_event_keeps_its_file_open_and_wakes_nobody_often() {
    let (disk, mut driven) = new(Durability::Synced);
    append(&mut driven, 0, Durability::Synced, 1);
    let data = driven.open_event(Offset(0)).unwrap();
    let (_, from) = call(&mut driven, 1, 4);
    let (calls, now) = call(&mut driven, from, 10);
    assert!(is_open(&disk, "data") && !is_open(&disk, "log"));
    assert_eq!(calls, 10);
    assert!(now - from >= 10 * 60 * SECOND_NS, "a call a minute at most");
    let all = Segment {
        offset: 0,
        bytes: data.bytes,
    };
    let read = driven.read_parts(&data, vec![all]).unwrap().concat();
    assert_eq!(read, event(0).data);
    drop(data);
    rest(&disk, &mut driven, now);
}

#[test]
fn data_that_comes_slowly_keeps_files_open_until_its_batch_is_there() {
    let (disk, mut driven) = new(Durability::Synced);
    append(&mut driven, 0, Durability::Synced, 1);
    let layout = ExternalLayout::new([(0, 700)].into_iter(), 512).unwrap();
    let place = driven.storage.reserve(&layout).unwrap();
    driven.storage.write_data(place, 0, vec![7; 512].into());
    driven.settle();
    let (_, now) = call(&mut driven, 1, 6);
    assert!(is_open(&disk, "data"));
    driven.storage.abandon(place);
    rest(&disk, &mut driven, now);
}

#[test]
fn an_operation_under_way_keeps_its_file_open() {
    let (disk, mut driven) = new(Durability::Synced);
    append(&mut driven, 0, Durability::Synced, 1);
    // From now on the log alone is read.
    assert_holds(&mut driven, 0, 1);
    let read = ReadBatches {
        from: Offset(0),
        end: Offset(1),
        bytes_max: 1000,
        inline_data: true,
    };
    driven.storage.read(ReadToken(1), read);
    let (token, operation) = driven.poll_operation().unwrap();
    let Operation::Read { .. } = &operation else {
        panic!("{operation:?}");
    };
    let (_, now) = call(&mut driven, 1, 6);
    let result = disk.execute(operation);
    assert!(result.is_ok(), "{result:?}");
    driven.storage.complete(token, result);
    let found = driven.take_events().into_iter().any(|event| {
        let StorageEvent::Read { found, .. } = event else {
            return false;
        };
        matches!(found, Ok(Found::Batches { next, .. }) if next == Offset(1))
    });
    assert!(found);
    rest(&disk, &mut driven, now);
}
