//! What a data directory lies on, and what a sync costs there.

use crate::error::ServerError;
use broker::FileSystemSpace;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// A file system, as far as it matters for storing events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    /// Its name, for people.
    pub name: &'static str,
    /// What an operator should know of it.
    pub caution: Option<&'static str>,
}

const SHARED: Option<&str> = Some(
    "it is shared between hosts: locks and syncs depend on its servers, and a unix socket does not work on it",
);
const VOLATILE: Option<&str> =
    Some("it lies in memory: nothing survives the end of this boot, whatever the topics say");

/// By the numbers of statfs(2).
const KNOWN: [(u64, FileSystem); 17] = [
    (
        0xef53,
        FileSystem {
            name: "ext4",
            caution: None,
        },
    ),
    (
        0x5846_5342,
        FileSystem {
            name: "xfs",
            caution: None,
        },
    ),
    (
        0x9123_683e,
        FileSystem {
            name: "btrfs",
            caution: None,
        },
    ),
    (
        0x2fc1_2fc1,
        FileSystem {
            name: "zfs",
            caution: None,
        },
    ),
    (
        0xf2f5_2010,
        FileSystem {
            name: "f2fs",
            caution: None,
        },
    ),
    (
        0x794c_7630,
        FileSystem {
            name: "overlayfs",
            caution: None,
        },
    ),
    (
        0x0102_1994,
        FileSystem {
            name: "tmpfs",
            caution: VOLATILE,
        },
    ),
    (
        0x8584_58f6,
        FileSystem {
            name: "ramfs",
            caution: VOLATILE,
        },
    ),
    (
        0x6969,
        FileSystem {
            name: "nfs",
            caution: SHARED,
        },
    ),
    (
        0x0bd0_0bd0,
        FileSystem {
            name: "lustre",
            caution: SHARED,
        },
    ),
    (
        0x4750_4653,
        FileSystem {
            name: "gpfs",
            caution: SHARED,
        },
    ),
    (
        0x1983_0326,
        FileSystem {
            name: "beegfs",
            caution: SHARED,
        },
    ),
    (
        0x00c3_6400,
        FileSystem {
            name: "ceph",
            caution: SHARED,
        },
    ),
    (
        0xff53_4d42,
        FileSystem {
            name: "cifs",
            caution: SHARED,
        },
    ),
    (
        0xfe53_4d42,
        FileSystem {
            name: "smb2",
            caution: SHARED,
        },
    ),
    (
        0x0102_1997,
        FileSystem {
            name: "9p",
            caution: SHARED,
        },
    ),
    (
        0x6573_5546,
        FileSystem {
            name: "fuse",
            caution: Some("what a sync means there is up to the program behind it"),
        },
    ),
];

impl FileSystem {
    /// What `directory` lies on.
    pub fn of(directory: &Path) -> Result<Self, ServerError> {
        let attempt = || format!("asking what {} lies on", directory.display());
        let found = rustix::fs::statfs(directory)
            .map_err(std::io::Error::from)
            .map_err(ServerError::file(attempt()))?;
        // The field is signed on some machines; its 32 bits are what counts.
        Ok(Self::of_magic(found.f_type as u64 & 0xffff_ffff))
    }

    fn of_magic(magic: u64) -> Self {
        let known = KNOWN.iter().find(|(number, _)| *number == magic);
        known.map_or(
            Self {
                name: "a file system of unknown kind",
                caution: None,
            },
            |(_, file_system)| *file_system,
        )
    }

    /// What an operator should know of it.
    pub fn warning(&self) -> Option<String> {
        let caution = self.caution?;
        Some(format!("careful with {}: {caution}", self.name))
    }

    /// Whether a unix socket can be made there.
    pub fn takes_sockets(&self) -> bool {
        self.caution != SHARED
    }
}

/// What there is of bytes where `directory` lies; `None` if that is not to be had.
pub fn space(directory: &Path) -> Option<FileSystemSpace> {
    let found = rustix::fs::statvfs(directory).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    Some(FileSystemSpace {
        free_bytes: bytes(found.f_bavail),
        total_bytes: bytes(used.saturating_add(found.f_bavail)),
    })
}

/// The median of a few 4 KiB appends with fdatasync in `directory`.
pub fn measure_sync(directory: &Path) -> Result<Duration, ServerError> {
    const ROUNDS: usize = 5;
    let path = directory.join(format!(".sync-probe.{}.tmp", std::process::id()));
    let measure = || -> std::io::Result<Duration> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        let mut times = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            let start = Instant::now();
            file.write_all_at(&[0xa5; 4096], round as u64 * 4096)?;
            file.sync_data()?;
            times.push(start.elapsed());
        }
        times.sort();
        Ok(times[ROUNDS / 2])
    };
    let measured = measure();
    let _ = std::fs::remove_file(&path);
    measured.map_err(ServerError::file(format!(
        "measuring a sync in {}",
        directory.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_and_volatile_file_systems_are_cautioned_against() {
        assert_eq!(FileSystem::of_magic(0x6969).name, "nfs");
        assert!(!FileSystem::of_magic(0x0bd0_0bd0).takes_sockets());
        assert!(FileSystem::of_magic(0x0102_1994).caution.is_some());
        assert!(FileSystem::of_magic(0x0102_1994).takes_sockets());
        assert_eq!(FileSystem::of_magic(0xef53).caution, None);
        assert_eq!(FileSystem::of_magic(12345).caution, None);
    }

    #[test]
    fn a_sync_is_measured_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        FileSystem::of(directory.path()).unwrap();
        let there = space(directory.path()).unwrap();
        assert!(there.free_bytes > 0 && there.free_bytes <= there.total_bytes);
        assert_eq!(space(&directory.path().join("missing")), None);
        assert!(measure_sync(directory.path()).unwrap() > Duration::ZERO);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
