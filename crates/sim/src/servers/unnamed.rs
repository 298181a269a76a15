//! A partition's directory that no topic has: somebody has put it back, of a copy of another cluster's. No start removes it.

use log::testing::FaultyDisk;
use log::{Disk, DiskError, Operation, Outcome};
use std::path::Path;
use wire::TopicId;

const PARTITIONS: &str = "/data/partitions";
/// What is in it.
const EVENTS: &[u8] = b"events of a topic that no table has";

/// Puts it there, durably.
pub fn put(disk: &FaultyDisk) -> Result<(), DiskError> {
    let directory = Path::new(PARTITIONS).join(format!("{}-0-disk", TopicId(0xfeed)));
    let path = directory.join("events");
    for directory in [Path::new(PARTITIONS), &directory] {
        let path = directory.into();
        disk.execute(Operation::CreateDirectory { path })?;
    }
    let created = disk.execute(Operation::Create { path })?;
    let Outcome::File(file) = created else {
        unreachable!("a file was made");
    };
    for operation in [
        Operation::Write {
            file,
            position: 0,
            bytes: vec![EVENTS.into()],
        },
        Operation::SyncData { file },
        Operation::Close { file },
        Operation::SyncDirectory { path: directory },
        Operation::SyncDirectory {
            path: PARTITIONS.into(),
        },
        Operation::SyncDirectory {
            path: "/data".into(),
        },
    ] {
        disk.execute(operation)?;
    }
    Ok(())
}

/// Whether what is in it is still there, wherever.
pub fn is_there(disk: &FaultyDisk) -> bool {
    let contents = disk.paths().into_iter();
    let mut contents = contents.filter_map(|path| disk.content(&path));
    contents.any(|content| content == EVENTS)
}
