//! A file that one process has locked.

use crate::fork::{ClosedInChild, generation};
use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsRawFd;

/// A file that is locked for as long as this lives, and free when it is dropped, or when its process ends.
///
/// A lock (`flock`) is of the open file, which a child shares from its fork until it becomes another program, or for good if it
/// does not. So this unlocks it in as many words, where closing the file would leave it to the child; and a child that is forked
/// closes the file, so that the lock ends with this process whatever children it has. In a child this may be dropped, and not be used
/// otherwise.
#[derive(Debug)]
pub struct LockedFile {
    /// Until it is dropped.
    file: Option<File>,
    closed_in_child: Option<ClosedInChild>,
    /// Of the process that locked it.
    generation: u64,
}

impl LockedFile {
    /// Takes a file that the caller has just locked, by [`File::try_lock`] or another of these.
    pub fn new(file: File) -> Self {
        Self {
            closed_in_child: Some(ClosedInChild::new(file.as_raw_fd())),
            file: Some(file),
            generation: generation(),
        }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        self.file
            .as_ref()
            .expect("it is there until this is dropped")
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        drop(self.closed_in_child.take());
        let file = self.file.take().expect("it is dropped once");
        if self.generation == generation() {
            // It is closed in any case; what else there is to do about it, nobody could do here.
            let _ = file.unlock();
        } else {
            // It is closed, and its number may be another file's by now.
            std::mem::forget(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::testing::fork_and_run;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
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
    fn it_ends_with_its_process_though_a_child_lives_on() {
        let path = Path::of("orphan");
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut theirs = Some(theirs);
        let parent = fork_and_run(|| {
            let locked = path.lock().unwrap();
            // SAFETY: the child waits on a descriptor and leaves by `_exit`.
            if unsafe { libc::fork() } == 0 {
                drop(theirs.take());
                let _ = (&ours).write(&[0]);
                let _ = (&ours).read(&mut [0]);
                // SAFETY: ends the child without running the parent's destructors.
                unsafe { libc::_exit(0) };
            }
            // As in a crash nothing is dropped.
            std::mem::forget(locked);
            0
        });
        assert_eq!(parent, Some(0));
        // It is behind its fork when it has said something.
        let mut theirs = theirs.expect("the orphan dropped its own");
        theirs.read_exact(&mut [0]).unwrap();
        let locked = path.lock();
        // Lets the orphan end.
        drop(theirs);
        assert!(locked.is_some(), "the orphan has it");
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
