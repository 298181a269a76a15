//! Both kinds of storage do what every storage must do, on both disks.

use log::testing::{FaultyDisk, Subject, check_storage};
use log::{Disk, DiskKind, MemoryKind, OsDisk};
use std::path::Path;
use std::sync::Arc;

fn check_disk(disk: Arc<dyn Disk>, directory: &Path) {
    check_storage(&Subject {
        kind: &DiskKind::new(disk.clone()),
        disk: Some(disk),
        directory: directory.to_owned(),
        config: r#"{"segment_bytes": 4096, "allocate_bytes_min": 1024}"#.into(),
    });
}

#[test]
fn disk_partitions_on_the_disk_of_the_operating_system() {
    let directory = tempfile::tempdir().unwrap();
    check_disk(Arc::new(OsDisk::new()), directory.path());
}

#[test]
fn disk_partitions_on_the_disk_of_the_tests() {
    check_disk(Arc::new(FaultyDisk::new()), Path::new("/"));
}

#[test]
fn memory_partitions() {
    check_storage(&Subject {
        kind: &MemoryKind,
        disk: None,
        directory: "/unused".into(),
        config: String::new(),
    });
}
