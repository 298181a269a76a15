//! What retention removes is written again: logs and data files alike, and no
//! reader and no recovery takes old bytes for new ones.

use log::testing::{Driven, EventSpec, FaultyDisk, Survival, open_partition, origin};
use log::*;
use std::path::PathBuf;
use std::sync::Arc;
use wire::*;

const EVENTS: u64 = 60;

fn open(disk: &Arc<FaultyDisk>, create: bool) -> Driven {
    let config = r#"{"segment_bytes": 40000, "direct_bytes_min": 10000,
        "allocate_bytes_min": 256, "allocate_bytes_max": 512}"#;
    let mut open = open_partition(Durability::Synced, config, create);
    open.retention.bytes = Some(60_000);
    let (storage, _) = DiskKind::seeded(disk.clone(), 5).open(open).unwrap();
    Driven::new(storage, Some(disk.clone()))
}

fn event(number: u64) -> EventSpec {
    EventSpec {
        metadata: format!("event {number}").into_bytes(),
        // Of different lengths: places lie elsewhere in a file's second life.
        data: vec![number as u8; 3000 + 700 * (number % 5) as usize],
        external: true,
    }
}

fn assert_kept(driven: &mut Driven) {
    let first = driven.storage.state().first;
    let contents = driven.read_all(Offset(EVENTS), 10_000).unwrap();
    let expected: Vec<_> = (first.0..EVENTS).map(|i| (Offset(i), event(i))).collect();
    assert!(contents.damaged.is_empty(), "{:?}", contents.damaged);
    assert!(contents.events == expected, "from {first} on");
}

#[test]
fn data_files_are_written_again_and_old_data_is_never_taken_for_new() {
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = open(&disk, true);
    for number in 0..EVENTS {
        let offset = driven.append(origin(number), &[event(number)], Durability::Synced, number);
        assert_eq!(offset.unwrap(), Offset(number));
    }
    assert!(driven.storage.state().first.0 > EVENTS / 2);
    let is_data = |path: &PathBuf| path.extension().is_some_and(|name| name == "data");
    let trace = disk.trace();
    let count = |what: &str| {
        let traced = trace.iter().filter(|traced| traced.what == what);
        traced.filter(|traced| is_data(&traced.path)).count()
    };
    let (created, renamed) = (count("create"), count("rename"));
    assert!(
        created <= 3 && renamed > created,
        "{created} made, {renamed} renamed"
    );
    assert_kept(&mut driven);
    for survival in [
        Survival::Nothing,
        Survival::All,
        Survival::Some(1),
        Survival::Some(2),
    ] {
        let fork = Arc::new(disk.fork());
        fork.power_loss(survival);
        assert_kept(&mut open(&fork, false));
    }
}
