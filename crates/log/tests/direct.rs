//! Large data goes past the page cache where nobody reads along, and is there.

use log::testing::{Driven, EventSpec, FaultyDisk, Survival, open_partition, origin};
use log::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::*;

fn open(disk: &Arc<impl Disk + 'static>, at: &Path, durability: Durability) -> Driven {
    let create = !at.exists() && disk.execute(Operation::List { path: at.into() }).is_err();
    let config = r#"{"segment_bytes": 400000, "direct_bytes_min": 20000}"#;
    let mut open = open_partition(durability, config, create);
    open.directory = at.to_owned();
    let (storage, _) = DiskKind::new(disk.clone()).open(open).unwrap();
    Driven::new(storage, Some(disk.clone()))
}

fn event(number: u64, bytes: usize) -> EventSpec {
    EventSpec {
        metadata: format!("event {number}").into_bytes(),
        data: (0..bytes)
            .map(|i| (i as u64 * (number + 3)) as u8)
            .collect(),
        external: true,
    }
}

fn append(driven: &mut Driven, number: u64, events: &[EventSpec]) {
    let offset = driven.append(origin(number), events, Durability::Synced, number);
    assert_eq!(offset.unwrap(), Offset(number));
}

/// The writes to data files since operation `from`: how many went past the
/// page cache, and how many did not.
fn writes(disk: &FaultyDisk, from: u64) -> (usize, usize) {
    let is_data = |path: &PathBuf| path.extension().is_some_and(|name| name == "data");
    let trace = disk.trace().split_off(from as usize);
    let data: Vec<_> = trace
        .iter()
        .filter(|traced| is_data(&traced.path))
        .collect();
    let direct = data.iter().filter(|traced| traced.what == "write direct");
    for traced in direct.clone() {
        let aligned = (traced.position | traced.bytes).is_multiple_of(log::disk::DIRECT_ALIGNMENT);
        assert!(aligned && traced.bytes > 0, "{traced:?}");
    }
    let through = data.iter().filter(|traced| traced.what == "write");
    (direct.count(), through.count())
}

#[test]
fn only_large_data_that_is_to_survive_a_power_loss_is_written_directly() {
    for (durability, bytes, expected) in [
        (Durability::Synced, 30_001, (5, 0)),
        (Durability::Synced, 5_000, (0, 5)),
        (Durability::Written, 30_001, (0, 5)),
    ] {
        let disk = Arc::new(FaultyDisk::new());
        let mut driven = open(&disk, Path::new("/p"), durability);
        let from = disk.operation_count();
        append(&mut driven, 0, &[event(0, bytes), event(1, bytes / 2)]);
        assert_eq!(writes(&disk, from), expected, "{durability} {bytes}");
        let fork = Arc::new(disk.fork());
        fork.power_loss(Survival::Nothing);
        let contents = open(&fork, Path::new("/p"), durability).read_all(Offset(2), 10_000);
        let expected = vec![
            (Offset(0), event(0, bytes)),
            (Offset(1), event(1, bytes / 2)),
        ];
        assert!(contents.unwrap().events == expected);
    }
}

#[test]
fn who_reads_along_finds_data_in_the_page_cache() {
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = open(&disk, Path::new("/p"), Durability::Synced);
    let mut number = 0;
    let mut written = |driven: &mut Driven| {
        let from = disk.operation_count();
        append(driven, number, &[event(number, 100_000)]);
        number += 1;
        writes(&disk, from)
    };
    assert_eq!(written(&mut driven), (3, 0));
    drop(driven.read_all(Offset(1), 1_000_000).unwrap());
    // Until about a segment has come that nobody has looked at.
    for _ in 0..3 {
        assert_eq!(written(&mut driven), (0, 3));
    }
    assert_eq!(written(&mut driven), (0, 3));
    assert_eq!(written(&mut driven), (3, 0));
    // What lies far behind is read by others.
    for _ in 0..12 {
        written(&mut driven);
    }
    drop(driven.read_all(Offset(1), 1_000_000).unwrap());
    assert_eq!(written(&mut driven), (3, 0));
}

#[test]
fn what_is_written_directly_is_there_on_the_real_disk() {
    for directory in [tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")] {
        // A file system in memory is not everywhere to be had.
        let Ok(directory) = directory else {
            continue;
        };
        let path = directory.path().join("p");
        let disk = Arc::new(OsDisk::new());
        let mut driven = open(&disk, &path, Durability::Synced);
        for number in 0..12 {
            append(
                &mut driven,
                number,
                &[event(number, 150_000 + number as usize)],
            );
        }
        let expected: Vec<_> = (0..12)
            .map(|number| (Offset(number), event(number, 150_000 + number as usize)))
            .collect();
        let contents = driven.read_all(Offset(12), 10_000_000).unwrap();
        assert!(contents.events == expected);
        let again = open(&disk, &path, Durability::Synced).read_all(Offset(12), 10_000_000);
        assert!(again.unwrap().events == expected);
    }
}
