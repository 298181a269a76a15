//! A partition on the real disk: appended, rolled, closed, killed, reopened.

use log::testing::{Driven, EventSpec, open_partition, origin};
use log::*;
use std::path::Path;
use std::sync::Arc;
use wire::*;

fn partition(directory: &Path, create: bool) -> OpenPartition {
    let config = r#"{"segment_bytes": 65536, "allocate_bytes_min": 4096}"#;
    let mut open = open_partition(Durability::Synced, config, create);
    open.directory = directory.join("p0");
    open
}

fn event(number: u64) -> EventSpec {
    let kind = number % 5;
    EventSpec {
        metadata: format!("{{\"number\": {number}}}").into_bytes(),
        data: match kind {
            0 => Vec::new(),
            4 => (0..10_000 + number).map(|i| (i * number) as u8).collect(),
            _ => vec![number as u8; number as usize * 3],
        },
        external: kind == 4,
    }
}

fn open(directory: &Path, create: bool) -> (Driven, Recovery) {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
    let kind = DiskKind::new(disk.clone());
    let (storage, report) = kind.open(partition(directory, create)).unwrap();
    (Driven::new(storage, Some(disk)), report)
}

#[test]
fn what_was_appended_is_there_after_a_close_and_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(directory.path(), true);
    let mut number = 0;
    for round in 0..4 {
        for _ in 0..30 {
            let events: Vec<_> = (number..number + 3).map(event).collect();
            let offset = log.append(origin(number), &events, Durability::Synced, number + 1);
            assert_eq!(offset, Ok(Offset(number)));
            number += 3;
        }
        assert_eq!(log.storage.state().synced, Offset(number));
        if round % 2 == 0 {
            log.storage.close();
            let events = log.take_events();
            assert!(matches!(events.last(), Some(StorageEvent::Closed)));
        }
        let (reopened, report) = open(directory.path(), false);
        log = reopened;
        assert_eq!(report.event_count, number);
        assert_eq!(
            (report.cut_bytes, report.gaps, report.ended),
            (0, vec![], None)
        );
        let contents = log.read_all(Offset(number), 10_000).unwrap();
        let expected: Vec<_> = (0..number).map(|i| (Offset(i), event(i))).collect();
        assert!(contents.events == expected);
    }
    let segments = std::fs::read_dir(directory.path().join("p0")).unwrap();
    assert!(segments.count() > 6, "the log has rolled");
}

#[test]
fn a_partition_is_made_once_and_removed_whole() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path(), true));
    let kind = DiskKind::new(Arc::new(OsDisk::new()));
    let again = kind.open(partition(directory.path(), true));
    assert!(matches!(again, Err(StorageError::Invalid(_))));
    let path = directory.path().join("p0");
    kind.remove(&path).unwrap();
    kind.remove(&path).unwrap();
    assert!(!path.exists());
}

#[test]
fn what_it_makes_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path(), true));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let partition = directory.path().join("p0");
    assert_eq!(mode(&partition), 0o700);
    for entry in std::fs::read_dir(&partition).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}
