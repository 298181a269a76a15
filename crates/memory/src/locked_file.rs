//! A file that one process has locked.

use std::fs::File;
use std::ops::Deref;

/// A file that is locked for as long as this lives, and free when it is dropped.
///
/// A lock (`flock`) is of the open file, which a child shares from its fork until it becomes another program, or for good if it
/// does not. So this unlocks it in as many words, where closing the file would leave it to the child; and a child that
/// drops it leaves it to its parent.
#[derive(Debug)]
pub struct LockedFile {
    file: File,
    /// Who locked it.
    process: u32,
}

impl LockedFile {
    /// Takes a file that the caller has just locked, by [`File::try_lock`] or another of these.
    pub fn new(file: File) -> Self {
        Self {
            file,
            process: std::process::id(),
        }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // It is closed in any case; what else there is to do about it, nobody could do here.
            let _ = self.file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::testing::fork_and_run;
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A file of a test's own, which goes with it.
    struct Path(PathBuf);

    impl Path {
        fn of(test: &str) -> Self {
            let name = format!("thalweg-locked-file-{test}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn lock(&self) -> Option<LockedFile> {
            let file = File::create(&self.0).unwrap();
            file.try_lock().ok().map(|()| LockedFile::new(file))
        }
    }

    impl Drop for Path {
        fn drop(&mut self) {
            drop(std::fs::remove_file(&self.0));
        }
    }

    #[test]
    fn it_is_free_at_once_though_children_are_being_started() {
        let path = Path::of("children");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(Command::new("true").status().unwrap().success());
                }
            });
            let failed = (0..20_000).find(|_| path.lock().is_none());
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(failed, None, "the lock of the time before was still held");
        });
    }

    #[test]
    fn a_child_leaves_it_to_its_parent() {
        let path = Path::of("parent");
        let locked = path.lock().unwrap();
        let mut held = Some(locked);
        fork_and_run(|| {
            drop(held.take());
            0
        });
        assert!(path.lock().is_none(), "this process has it");
        drop(held);
        assert!(path.lock().is_some());
    }
}
