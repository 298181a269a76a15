//! The internal partition is opened, and replayed.

use crate::blocking::Blocking;
use crate::coordinator::controller::Single;
use crate::ids::Now;
use crate::options::{NodeError, NodeOptions};
use log::{Disk, StorageError, StorageKind};
use wire::record::Gap;
use wire::{Durability, Incarnation};

pub(super) fn open_internal(
    options: &NodeOptions,
    kind: &dyn StorageKind,
    disk: &dyn Disk,
    now: Now,
) -> Result<(Single, Vec<Gap>), NodeError> {
    let bytes_max = options.limits.internal_bytes_max;
    let mut open = log::OpenPartition {
        directory: options.directory.join("internal"),
        topic: crate::coordinator::controller::INTERNAL_TOPIC,
        partition: wire::PartitionIndex(0),
        incarnation: Incarnation(1),
        durability: Durability::Synced,
        config: match options.internal_config.as_str() {
            // Whole segments are dropped: several make up the bound.
            "" => format!(r#"{{"segment_bytes":{}}}"#, (bytes_max / 4).max(4096)),
            config => config.to_owned(),
        },
        retention: log::Retention::default(),
        boot_id: options.boot_id.clone(),
        unix_ns: now.unix_ns,
        create: true,
    };
    let blocking = Blocking { disk };
    // One whose making a crash cut short is there, but not complete: only the
    // storage can tell, so it is asked to make one first.
    match kind.open(open.clone()) {
        Err(StorageError::Invalid(_)) => open.create = false,
        made => return Single::opened(made, &open, &blocking, bytes_max),
    }
    Single::opened(kind.open(open.clone()), &open, &blocking, bytes_max)
}
