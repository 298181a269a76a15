//! Copies of partitions that are appended to while they are copied: between any two operations of the
//! copy the partition goes on.

use log::testing::{Driven, EventSpec, FaultyDisk, open_partition, origin};
use log::*;
use std::path::Path;
use std::sync::{Arc, Mutex};
use wire::*;

/// A disk on which something happens before each operation.
struct Interrupted {
    disk: Arc<FaultyDisk>,
    meanwhile: Mutex<Box<dyn FnMut() + Send>>,
}

impl Disk for Interrupted {
    fn execute(&self, operation: Operation) -> Result<Outcome, DiskError> {
        (self.meanwhile.lock().unwrap())();
        self.disk.execute(operation)
    }
}

fn event(number: u64) -> EventSpec {
    EventSpec {
        metadata: format!("event {number}").into_bytes(),
        data: vec![number as u8; 3000 + 700 * (number % 5) as usize],
        external: !number.is_multiple_of(3),
    }
}

fn append(driven: &mut Driven, number: u64, level: Durability) {
    let offset = driven.append(origin(number), &[event(number)], level, number);
    assert_eq!(offset.unwrap(), Offset(number));
}

struct Ground {
    disk: Arc<FaultyDisk>,
    level: Durability,
    retention_bytes: Option<u64>,
}

impl Ground {
    fn options(&self, directory: &Path, create: bool) -> OpenPartition {
        let config = r#"{"segment_bytes": 40000, "direct_bytes_min": 10000,
            "allocate_bytes_min": 256, "allocate_bytes_max": 512}"#;
        let mut open = open_partition(self.level, config, create);
        open.retention.bytes = self.retention_bytes;
        if !create {
            open.directory = directory.to_owned();
        }
        open
    }

    fn open(&self, directory: &Path, create: bool) -> (Driven, Recovery) {
        let open = self.options(directory, create);
        let kind = DiskKind::seeded(self.disk.clone(), 5);
        let (storage, recovery) = kind.open(open).unwrap();
        (Driven::new(storage, Some(self.disk.clone())), recovery)
    }

    /// Copies while the partition takes an event every `pace` operations, and looks at the copy.
    fn copy_and_check(&self, name: &str, before: u64, pace: u64, another: bool) {
        let (mut driven, _) = self.open(Path::new(""), true);
        for number in 0..before {
            append(&mut driven, number, self.level);
        }
        let from = self.options(Path::new(""), true).directory;
        let to = from.with_file_name(name);
        let first_before = driven.storage.state().first;
        let disk: &dyn Disk = self.disk.as_ref();
        let removed_since = removed_from(disk, &from).unwrap().unwrap();
        let copy_for = match another {
            true => CopyFor::AnotherHistory { removed_since },
            false => CopyFor::SameHistory,
        };
        let incarnation = driven.storage.state().incarnation;
        let level = self.level;
        let (mut next, mut operations) = (before, 0);
        let shared = Arc::new(Mutex::new((driven, 0)));
        let inner = shared.clone();
        let disk = Interrupted {
            disk: self.disk.clone(),
            meanwhile: Mutex::new(Box::new(move || {
                operations += 1;
                if u64::is_multiple_of(operations, pace) {
                    let mut inner = inner.lock().unwrap();
                    append(&mut inner.0, next, level);
                    next += 1;
                    inner.1 = next;
                }
            })),
        };
        let copied = copy_live(&disk, &from, &to, copy_for).unwrap();
        assert!(copied > Some(0));
        let end = shared.lock().unwrap().1;
        assert!(end > before, "nothing was appended meanwhile");

        let (mut copy, recovery) = self.open(&to, false);
        let state = copy.storage.state();
        let gaps: Vec<_> = recovery
            .gaps
            .iter()
            .filter(|gap| gap.end > gap.first)
            .collect();
        let lost = gaps
            .iter()
            .any(|gap| gap.reason == wire::record::GapReason::Damaged);
        assert!(!lost, "{gaps:?}");
        assert!(state.end.0 >= before && state.end.0 <= end, "{state:?}");
        assert!(state.first >= first_before);
        if self.retention_bytes.is_none() {
            assert_eq!(state.first, Offset(0));
        }
        let contents = copy.read_all(state.end, 10_000).unwrap();
        assert!(contents.damaged.is_empty(), "{:?}", contents.damaged);
        let expected: Vec<_> = (state.first.0..state.end.0)
            .map(|number| (Offset(number), event(number)))
            .collect();
        assert!(
            contents.events == expected,
            "from {} to {}",
            state.first,
            state.end
        );
        match copy_for {
            CopyFor::AnotherHistory { .. } => {
                // All that was removed since has its gap.
                let removed = recovery.gaps.iter().find(|gap| gap.end == state.first);
                let is_told = removed.is_some_and(|gap| gap.first <= removed_since);
                assert!(is_told || state.first == Offset(0), "{:?}", recovery.gaps);
                assert_eq!(state.incarnation.0, incarnation.0 + 1);
                assert_eq!(recovery.ended, Some((incarnation, state.end)));
            }
            CopyFor::SameHistory => assert_eq!(state.incarnation, incarnation),
        }
        // It goes on by itself, and the partition that was copied as if nothing had been.
        append(&mut copy, state.end.0, level);
        let driven = &mut shared.lock().unwrap().0;
        append(driven, end, level);
    }
}

fn ground(level: Durability, retention_bytes: Option<u64>) -> Ground {
    Ground {
        disk: Arc::new(FaultyDisk::new()),
        level,
        retention_bytes,
    }
}

#[test]
fn a_partition_that_takes_events_is_copied_whole() {
    for level in [Durability::Written, Durability::Synced] {
        for pace in [1, 2, 3, 7, 20] {
            for another in [true, false] {
                ground(level, None).copy_and_check("copy", 40, pace, another);
            }
        }
    }
}

#[test]
fn segments_that_retention_removes_meanwhile_and_writes_again_are_no_damage() {
    for level in [Durability::Written, Durability::Synced] {
        // Faster, nothing of what a pass copies would be left at its end.
        for pace in [8, 10, 13, 20, 30] {
            let ground = ground(level, Some(60_000));
            ground.copy_and_check("copy", 60, pace, true);
        }
    }
}

#[test]
fn segments_that_are_removed_faster_than_they_are_copied_are_an_error_and_no_wait() {
    let ground = ground(Durability::Synced, Some(60_000));
    let (driven, _) = ground.open(Path::new(""), true);
    let from = ground.options(Path::new(""), true).directory;
    let to = from.with_file_name("copy");
    let shared = Mutex::new((driven, 0));
    let disk = Interrupted {
        disk: ground.disk.clone(),
        meanwhile: Mutex::new(Box::new(move || {
            let mut shared = shared.lock().unwrap();
            // A segment's worth, each time.
            for _ in 0..15 {
                let number = shared.1;
                append(&mut shared.0, number, Durability::Synced);
                shared.1 += 1;
            }
        })),
    };
    let refused = copy_live(&disk, &from, &to, CopyFor::SameHistory).unwrap_err();
    assert!(
        refused.to_string().contains("faster than they are copied"),
        "{refused}"
    );
}

#[test]
fn where_no_partition_is_there_is_no_copy() {
    let ground = ground(Durability::Synced, None);
    let to = Path::new("/copy");
    let disk: &dyn Disk = ground.disk.as_ref();
    let copied = copy_live(disk, Path::new("/nowhere"), to, CopyFor::SameHistory).unwrap();
    assert_eq!(copied, None);
}
