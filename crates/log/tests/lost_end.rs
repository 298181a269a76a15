//! Durable bytes are gone up to the end of a log that was not closed: nothing tells how many events were lost, so
//! the life ends, and no offset ever names two events.

use log::testing::{Driven, EventSpec, FaultyDisk, open_partition, origin};
use log::*;
use std::path::PathBuf;
use std::sync::Arc;
use wire::record::GapReason;
use wire::*;

const EVENTS: u64 = 6;

fn open(disk: &Arc<FaultyDisk>, topic: u128, create: bool) -> (Driven, Recovery) {
    let mut open = open_partition(Durability::Synced, "", create);
    open.directory = PathBuf::from(format!("/p{topic}"));
    let (storage, report) = DiskKind::seeded(disk.clone(), topic as u64)
        .open(open)
        .unwrap();
    (Driven::new(storage, Some(disk.clone())), report)
}

fn filled(disk: &Arc<FaultyDisk>, topic: u128, events: u64) -> Driven {
    let (mut driven, _) = open(disk, topic, true);
    for number in 0..events {
        let event = EventSpec {
            metadata: b"{}".to_vec(),
            data: vec![number as u8; 100],
            external: false,
        };
        let stored = driven.append(origin(number), &[event], Durability::Synced, 1);
        assert_eq!(stored, Ok(Offset(number)));
    }
    driven
}

#[test]
fn a_life_ends_where_the_only_segment_is_lost() {
    for emptied in [false, true] {
        let disk = Arc::new(FaultyDisk::new());
        drop(filled(&disk, 1, EVENTS));
        disk.kill();
        let path = PathBuf::from("/p1/00000000000000000000.log");
        if emptied {
            let Ok(Outcome::File(file)) = disk.execute(Operation::Open { path }) else {
                panic!("it is there");
            };
            disk.execute(Operation::SetLength { file, bytes: 0 })
                .unwrap();
        } else {
            disk.execute(Operation::Remove { path }).unwrap();
        }
        let (mut driven, report) = open(&disk, 1, false);
        assert_eq!(report.ended, Some((Incarnation(1), Offset(0))));
        let gap = report.gaps.last().expect("the loss is named");
        assert_eq!(
            (gap.first, gap.end),
            (Offset(0), Offset(0)),
            "how much is not known"
        );
        assert_eq!(
            (gap.incarnation, gap.reason),
            (Incarnation(1), GapReason::Damaged)
        );
        assert_eq!(driven.storage.state().incarnation, Incarnation(2));
        assert!(
            driven
                .read_all(Offset(EVENTS), 1 << 20)
                .unwrap()
                .events
                .is_empty()
        );
    }
}

#[test]
fn after_a_clean_close_it_is_known_how_many_are_lost_and_the_life_goes_on() {
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = filled(&disk, 1, EVENTS);
    driven.storage.close();
    driven.settle();
    drop(driven);
    let path = PathBuf::from("/p1/00000000000000000000.log");
    disk.execute(Operation::Remove { path }).unwrap();
    let (driven, report) = open(&disk, 1, false);
    assert_eq!(report.ended, None);
    let gaps: Vec<_> = report.gaps.iter().map(|gap| (gap.first, gap.end)).collect();
    assert_eq!(gaps, [(Offset(0), Offset(EVENTS))]);
    assert_eq!(driven.storage.state().incarnation, Incarnation(1));
}

#[test]
fn the_checkpoint_of_another_partition_costs_nothing() {
    let disk = Arc::new(FaultyDisk::new());
    for (topic, events) in [(1, EVENTS), (2, 2)] {
        let mut driven = filled(&disk, topic, events);
        driven.storage.close();
        driven.settle();
    }
    for (from, to) in [("/p1", "/x"), ("/p2", "/p1"), ("/x", "/p2")] {
        let path = |directory: &str| match directory {
            "/x" => PathBuf::from("/p1/x"),
            _ => PathBuf::from(format!("{directory}/checkpoint")),
        };
        let (from, to) = (path(from), path(to));
        disk.execute(Operation::Rename { from, to }).unwrap();
    }
    for (topic, events) in [(1, EVENTS), (2, 2)] {
        let (mut driven, report) = open(&disk, topic, false);
        assert_eq!(report.gaps, []);
        let contents = driven.read_all(Offset(EVENTS), 1 << 20).unwrap();
        assert_eq!(contents.events.len() as u64, events);
    }
}
