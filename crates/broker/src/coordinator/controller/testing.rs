//! Controllers on simulated disks, for tests here and of other crates.

use super::{Controller, Following, Home, RecordLog, Single};
use crate::blocking::{Blocking, make_directory};
use crate::faults::Planted;
use log::testing::FaultyDisk;
use log::{DiskKind, OpenPartition, StorageKind};
use std::sync::Arc;
use std::time::Duration;
use wire::record::GapReason;
use wire::{Durability, Incarnation, NodeId, PartitionIndex};

/// A disk with an empty data directory, `/data`.
///
/// # Panics
/// Never: it is simulated.
pub fn new_disk() -> Arc<FaultyDisk> {
    let disk = Arc::new(FaultyDisk::new());
    make_directory(disk.as_ref(), "/".as_ref(), "data").expect("an empty disk takes a directory");
    disk
}

/// The controller of a node that follows, with what is on this disk of its logs, or with new ones. A change waits so long
/// for a leader.
///
/// # Panics
/// If there are no logs and none are to be made, or they are damaged.
pub fn following(
    disk: &Arc<FaultyDisk>,
    create: bool,
    node: NodeId,
    patience: Duration,
) -> Box<dyn Controller> {
    let single = open(disk, create);
    Box::new(Following::new(single, node, patience, Planted::default()))
}

fn open_log(home: Home, disk: &Arc<FaultyDisk>, create: bool) -> RecordLog {
    let open = OpenPartition {
        directory: std::path::Path::new("/data").join(home.directory()),
        topic: home.topic(),
        partition: PartitionIndex(0),
        incarnation: Incarnation(1),
        durability: Durability::Synced,
        config: r#"{"segment_bytes":4096}"#.into(),
        retention: log::Retention::default(),
        boot_id: "boot".into(),
        unix_ns: 1,
        create,
    };
    let opened = DiskKind::seeded(disk.clone(), 1).open(open.clone());
    let (log, damage) = RecordLog::opened(home, opened, &open, 16 * 1024).unwrap();
    // What a snapshot replaced is no damage.
    assert!(damage.iter().all(|gap| gap.reason == GapReason::Retention));
    log
}

pub(crate) fn open(disk: &Arc<FaultyDisk>, create: bool) -> Single {
    make_directory(disk.as_ref(), "/data".as_ref(), "ledgers").unwrap();
    let blocking = Blocking {
        disk: disk.as_ref(),
    };
    let [internal, ledger] = Home::ALL.map(|home| open_log(home, disk, create));
    let mut damage = Vec::new();
    let mut single = Single::opened(internal, ledger, &mut damage, &blocking).unwrap();
    single.replay_ledger(&mut damage, &blocking).unwrap();
    assert!(damage.is_empty());
    single
}
