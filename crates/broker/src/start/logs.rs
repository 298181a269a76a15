//! The table's log and the ledger are opened, and the former is replayed.

use crate::blocking::{Blocking, make_directory};
use crate::coordinator::controller::{Damage, Home, RecordLog, Single};
use crate::ids::Now;
use crate::options::{NodeError, NodeOptions};
use log::{Disk, StorageError, StorageKind};
use wire::{Durability, Incarnation};

/// What was opened, and what of each log is damaged, in the order of [`Home::ALL`].
pub(super) type Logs = (Single, [Damage; 2]);

/// Opens both and replays the table's; the ledger is for the caller to replay. Blocks.
pub(super) fn open_logs(
    options: &NodeOptions,
    kind: &dyn StorageKind,
    disk: &dyn Disk,
    now: Now,
) -> Result<Logs, NodeError> {
    make_directory(disk, &options.directory, "ledgers")?;
    let (internal, mut lost) = open_log(Home::Table, options, kind, now)?;
    let (ledger, lost_of_ledger) = open_log(Home::Ledger, options, kind, now)?;
    let blocking = Blocking { disk };
    let single = Single::opened(internal, ledger, &mut lost, &blocking)?;
    Ok((single, [lost, lost_of_ledger]))
}

fn open_log(
    home: Home,
    options: &NodeOptions,
    kind: &dyn StorageKind,
    now: Now,
) -> Result<(RecordLog, Damage), NodeError> {
    let bytes_max = options.limits.internal_bytes_max;
    let mut open = log::OpenPartition {
        directory: options.directory.join(home.directory()),
        topic: home.topic(),
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
    // One whose making a crash cut short is there, but not complete: only the
    // storage can tell, so it is asked to make one first.
    match kind.open(open.clone()) {
        Err(StorageError::Invalid(_)) => open.create = false,
        made => return RecordLog::opened(home, made, &open, bytes_max),
    }
    RecordLog::opened(home, kind.open(open.clone()), &open, bytes_max)
}
