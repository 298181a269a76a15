//! A directory on a file system that several hosts share, as servers that are started together use it.

use super::faults::{Fault, planted};
use crate::durable_file::{self, make_private, sync_parent};
use crate::error::ServerError;
use crate::host::Host;
use crate::interruption::Interruption;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The directory, and the clock by which its files are waited for.
///
/// What others write is seen late: a reader may see an older version of a file for a while, or none although there
/// is one. An implementation has these obligations:
/// - a file is seen whole, as one call has written it;
/// - a reader sees of a name that it has itself written no version from before that;
/// - of all calls of `publish` for a name, on any host, one makes the file.
pub trait Shared {
    /// Where a file of this name is, for messages.
    fn path(&self, name: &str) -> PathBuf;

    /// What a file has, or `None` if it is not there. The file is opened by its name; no directory is listed.
    ///
    /// # Errors
    /// [`ServerError::File`] with the path.
    fn read(&mut self, name: &str) -> Result<Option<String>, ServerError>;

    /// Writes a file or replaces it. It is durable when this returns.
    ///
    /// # Errors
    /// As [`Shared::read`].
    fn replace(&mut self, name: &str, text: &str) -> Result<(), ServerError>;

    /// Makes a file that nobody has made, with all that is in it. It is durable then.
    ///
    /// # Errors
    /// As [`Shared::read`]. Whether it was made is not known then.
    fn publish(&mut self, name: &str, text: &str) -> Result<Published, ServerError>;

    /// The time since some moment before.
    fn now(&mut self) -> Duration;

    /// Returns after this time; earlier when the waiting is to end. Gives whether it may go on.
    #[must_use]
    fn wait(&mut self, time: Duration) -> bool;
}

/// What came of a file that was to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// It is there, as it was given.
    Made,
    /// Another one was there before. It may still be seen late.
    Exists,
    /// A process is making it, or has died while it did. Only where there are no hard links.
    Begun {
        /// To be removed if that process is dead.
        marker: PathBuf,
        /// Which process it is.
        by: String,
    },
}

/// [`Shared`] on the operating system.
#[derive(Debug)]
pub struct SharedDirectory {
    path: PathBuf,
    /// Host and process: what makes names of temporary files this process's own.
    own: String,
    began: Instant,
    has_links: bool,
    /// Ends what waits for others.
    interruption: Interruption,
}

impl SharedDirectory {
    /// Opens it, or makes it for its owner alone.
    ///
    /// # Errors
    /// [`ServerError::Directory`] if others can read it or write to it, for it has the private key of the
    /// cluster's authority. The message says how to mend it.
    pub fn open(path: &Path, host: &Host) -> Result<Self, ServerError> {
        make_private(path)?;
        let attempt = || format!("looking at {}", path.display());
        let path = path.canonicalize().map_err(ServerError::file(attempt()))?;
        let found = std::fs::metadata(&path).map_err(ServerError::file(attempt()))?;
        let refuse = |why: String| {
            let directory = path.clone();
            Err(ServerError::Directory { directory, why })
        };
        let user = rustix::process::geteuid().as_raw();
        if found.uid() != user {
            return refuse(format!(
                "it belongs to user {}, and this server runs as user {user}: give --cluster a directory of that user's own",
                found.uid()
            ));
        }
        let mode = found.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return refuse(format!(
                "others can use it (its mode is {mode:o}), and it has the private key of the cluster: chmod go= {}",
                path.display()
            ));
        }
        // A host's name is no path, but it is not ours to say what is in it.
        let own = format!("{}.{}", host.name.replace('/', "_"), std::process::id());
        Ok(Self {
            path,
            own,
            began: Instant::now(),
            has_links: true,
            interruption: Interruption::default(),
        })
    }

    /// Waits no longer when this is asked for.
    pub(crate) fn until(self, interruption: &Interruption) -> Self {
        let interruption = interruption.clone();
        Self {
            interruption,
            ..self
        }
    }

    /// A name that no other call uses, on any host.
    fn temporary(&self, name: &str) -> PathBuf {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        self.path.join(format!(".{name}.{}.{count}.tmp", self.own))
    }

    /// Writes `text` under another name, has `take` give it the right one, and leaves nothing under the other.
    fn write<T>(
        &self,
        name: &str,
        text: &str,
        take: impl FnOnce(&Path, &Path) -> std::io::Result<T>,
    ) -> Result<T, ServerError> {
        let (temporary, path) = (self.temporary(name), self.path.join(name));
        let taken = durable_file::write_new(&temporary, text.as_bytes())
            .and_then(|()| take(&temporary, &path));
        // After a rename it is not there.
        let _ = std::fs::remove_file(&temporary);
        taken
            .and_then(|taken| sync_parent(&path).map(|()| taken))
            .map_err(ServerError::file(format!("writing {}", path.display())))
    }

    /// Publishes without links: the file is made by the process whose marker is there first.
    fn publish_by_marker(&self, temporary: &Path, path: &Path) -> std::io::Result<Published> {
        if std::fs::symlink_metadata(path).is_ok() {
            return Ok(Published::Exists);
        }
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".made");
        let marker = path.with_file_name(name);
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&marker);
        match made {
            Ok(mut made) => {
                made.write_all(self.own.as_bytes())?;
                made.sync_all()?;
                std::fs::rename(temporary, path)?;
                Ok(Published::Made)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if std::fs::symlink_metadata(path).is_ok() {
                    return Ok(Published::Exists);
                }
                let by = std::fs::read_to_string(&marker).unwrap_or_default();
                Ok(Published::Begun { marker, by })
            }
            Err(error) => Err(error),
        }
    }
}

impl Shared for SharedDirectory {
    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn read(&mut self, name: &str) -> Result<Option<String>, ServerError> {
        match durable_file::read_if_there(&self.path.join(name)) {
            // NFS: another host has replaced it since it was opened.
            Err(ServerError::File { source, .. })
                if Errno::from_io_error(&source) == Some(Errno::STALE) =>
            {
                Ok(None)
            }
            read => read,
        }
    }

    fn replace(&mut self, name: &str, text: &str) -> Result<(), ServerError> {
        self.write(name, text, |temporary, path| {
            std::fs::rename(temporary, path)
        })
    }

    fn publish(&mut self, name: &str, text: &str) -> Result<Published, ServerError> {
        self.write(name, text, |temporary, path| {
            if planted(Fault::PublishedTwice) {
                return std::fs::rename(temporary, path).map(|()| Published::Made);
            }
            let linked = match self.has_links {
                true => std::fs::hard_link(temporary, path),
                false => Err(Errno::OPNOTSUPP.into()),
            };
            match linked {
                Ok(()) => Ok(Published::Made),
                // It is this process's own perhaps, where an answer of NFS was lost: the reader sees.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Published::Exists),
                Err(error) if has_no_links(&error) => self.publish_by_marker(temporary, path),
                Err(error) => Err(error),
            }
        })
    }

    fn now(&mut self) -> Duration {
        self.began.elapsed()
    }

    fn wait(&mut self, time: Duration) -> bool {
        !self.interruption.wait(time)
    }
}

/// As link(2) has it: EPERM says that the file system has no hard links.
fn has_no_links(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::OPNOTSUPP, Errno::PERM, Errno::NOSYS].contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::faults::with;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Barrier;

    fn open(path: &Path, has_links: bool) -> SharedDirectory {
        let shared = SharedDirectory::open(path, &Host::this()).unwrap();
        SharedDirectory {
            has_links,
            ..shared
        }
    }

    /// What eight threads get that publish the same name at once, and the text that is there then.
    fn publish_at_once(path: &Path, has_links: bool, fault: Option<Fault>) -> (usize, String) {
        let together = Barrier::new(8);
        let made: Vec<bool> = std::thread::scope(|scope| {
            let publish = |at: u32| {
                let mut shared = open(path, has_links);
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    let text = at.to_string().repeat(100);
                    let mut publish = || shared.publish("one", &text).unwrap();
                    let published = match fault {
                        Some(fault) => with(fault, publish),
                        None => publish(),
                    };
                    published == Published::Made
                })
            };
            let threads: Vec<_> = (0..8).map(publish).collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let text = std::fs::read_to_string(path.join("one")).unwrap();
        let winner = made.iter().position(|made| *made).unwrap();
        assert!(
            fault.is_some() || text == winner.to_string().repeat(100),
            "{text} is not of {winner}"
        );
        (made.iter().filter(|made| **made).count(), text)
    }

    #[test]
    fn one_of_many_publishes_with_and_without_links_and_nothing_else_stays() {
        for (has_links, files) in [(true, 1), (false, 2)] {
            let parent = tempfile::tempdir().unwrap();
            let path = parent.path().join("shared");
            let (made, text) = publish_at_once(&path, has_links, None);
            assert_eq!(made, 1, "links: {has_links}");
            assert_eq!(std::fs::read_dir(&path).unwrap().count(), files);
            let mode = std::fs::metadata(path.join("one")).unwrap().permissions();
            assert_eq!(mode.mode() & 0o777, 0o600);
            // And never again.
            let mut shared = open(&path, has_links);
            assert_eq!(shared.publish("one", "later").unwrap(), Published::Exists);
            assert_eq!(shared.read("one").unwrap(), Some(text));
        }
    }

    #[test]
    fn a_file_that_is_published_twice_is_noticed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("shared");
        let (made, _) = publish_at_once(&path, true, Some(Fault::PublishedTwice));
        assert!(made > 1);
    }

    #[test]
    fn who_died_while_it_published_without_links_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("shared");
        let mut shared = open(&path, false);
        let marker = shared.path("one.made");
        std::fs::write(&marker, "node7.12").unwrap();
        let by = "node7.12".to_owned();
        let begun = Published::Begun { marker, by };
        assert_eq!(shared.publish("one", "text").unwrap(), begun);
        assert_eq!(shared.read("one").unwrap(), None);
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_stays() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/shared");
        let mut shared = open(&path, true);
        assert_eq!(shared.read("one").unwrap(), None);
        for text in ["a long text", "short"] {
            shared.replace("one", text).unwrap();
            assert_eq!(shared.read("one").unwrap().as_deref(), Some(text));
        }
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
        std::fs::create_dir(shared.path("two")).unwrap();
        let said = shared.replace("two", "text").unwrap_err().to_string();
        assert!(said.contains("shared/two"), "{said}");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 2);
    }

    #[test]
    fn a_directory_that_others_can_use_is_refused_with_what_mends_it() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("shared");
        open(&path, true);
        for mode in [0o701, 0o710, 0o720, 0o770] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = SharedDirectory::open(&path, &Host::this()).unwrap_err();
            let said = error.to_string();
            assert!(said.contains("chmod go= "), "{said}");
            assert!(said.contains(&format!("{mode:o}")), "{said}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o2700)).unwrap();
        open(&path, true);
    }
}
