//! A copy of a data directory, made while a server may have it.
//!
//! The order is that of what speaks of what, which is read first: `start.json` says how many records the
//! logs had; the ledger has positions in partitions; partitions have events of the producers' epochs, which
//! the table knows; and no file of a topic comes before the record of it in the table. Partitions that were
//! made meanwhile, which the table may know, follow, and the table again. `directory.json` comes last:
//! a copy without it is none.

use crate::directory::{self, IDENTITY_FILE, LOCK_FILE};
use crate::durable_file::{self, make_private, read_if_there};
use crate::error::ServerError;
use crate::host::random_u128;
use crate::member_file::MemberFile;
use crate::shards;
use log::{CopyFor, OsDisk, copy_live, removed_from};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use wire::{DirectoryId, Offset};

/// How often partitions that were made meanwhile are looked for.
const ROUNDS_MAX: u32 = 64;
/// How long a partition that cannot be copied may be one whose topic is just being deleted.
const DELETION_TIMEOUT: Duration = Duration::from_secs(2);
const DELETION_POLL: Duration = Duration::from_millis(20);

/// What a backup has copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// The id of the copy, which is another than that of the directory it was made of.
    pub id: DirectoryId,
    /// How many partitions there are in it, of topics.
    pub partition_count: usize,
    /// How many bytes were read and written.
    pub bytes: u64,
    /// What is not in it, and why.
    pub left_out: Vec<String>,
}

/// Copies the data directory `from` into `to`, which is made, or is empty. A server may have `from`, and go
/// on: the copy holds each event that was stored before the call, and some that come during it. It has an
/// id and, once it was started, a token of its own. `progress` is told the partitions and bytes that are
/// copied. Blocks.
///
/// # Errors
/// If `from` is no data directory of this version, `to` is not empty, a server starts on `from`
/// meanwhile, or something cannot be read or written. `to` is no data directory then.
pub fn back_up(
    from: &Path,
    to: &Path,
    progress: impl FnMut(usize, u64),
) -> Result<Backup, ServerError> {
    let from = from
        .canonicalize()
        .map_err(ServerError::file(format!("resolving {}", from.display())))?;
    if directory::read_identity(&from)?.is_none() {
        return Err(ServerError::Directory {
            directory: from,
            why: format!("it has no {IDENTITY_FILE}: it is no data directory"),
        });
    }
    shards::refuse_several(&from, "a backup")?;
    if MemberFile::read(&from)?.is_some() {
        return Err(ServerError::Directory {
            directory: from,
            why: "it is a part of a cluster, whose table and votes no copy of one server has: have its topics copied by \
                  `thalweg relay mirror`"
                .to_owned(),
        });
    }
    let target = to.to_owned();
    let refuse = |why: &str| ServerError::Directory {
        directory: target.clone(),
        why: why.to_owned(),
    };
    let resolving = || ServerError::file(format!("resolving {}", to.display()));
    let there = directory::nearest(to).and_then(|there| there.canonicalize());
    let there = there.map_err(resolving())?;
    if there.starts_with(&from) {
        return Err(refuse("it lies in the directory that is to be copied"));
    }
    make_private(to)?;
    let to = to.canonicalize().map_err(resolving())?;
    if !list(&to)?.is_empty() {
        return Err(refuse(
            "it is not empty: a backup has a directory of its own",
        ));
    }
    let owner = Owner::of(&from)?;
    let mut copying = Copying {
        from,
        to,
        disk: OsDisk::new(),
        owner,
        names: BTreeMap::new(),
        partitions: BTreeSet::new(),
        passed_over: BTreeSet::new(),
        deleted: BTreeSet::new(),
        removed: BTreeMap::new(),
        bytes: 0,
        progress,
    };
    copying.copy()?;
    let id = DirectoryId(random_u128());
    directory::write_identity(&copying.to, id)?;
    Ok(Backup {
        id,
        partition_count: copying.partitions.len(),
        bytes: copying.bytes,
        left_out: copying.left_out()?,
    })
}

/// Who has the directory, and when that was written: each start of a server writes it, and each orderly end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    text: String,
    written: Option<SystemTime>,
}

impl Owner {
    fn of(directory: &Path) -> Result<Self, ServerError> {
        let path = directory.join(LOCK_FILE);
        let text = read_if_there(&path)?.unwrap_or_default();
        let written = match std::fs::metadata(&path).and_then(|found| found.modified()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => {
                Some(other.map_err(ServerError::file(format!("looking at {}", path.display())))?)
            }
        };
        Ok(Self { text, written })
    }

    fn is_nobody(&self) -> bool {
        self.text.trim().is_empty()
    }
}

struct Copying<F> {
    from: PathBuf,
    to: PathBuf,
    disk: OsDisk,
    /// Who had the directory when that was looked at last.
    owner: Owner,
    /// The names of topics, by their ids.
    names: BTreeMap<String, String>,
    /// Directories of partitions that are copied.
    partitions: BTreeSet<String>,
    /// Those that are of another kind of storage than `disk`.
    passed_over: BTreeSet<String>,
    /// Those that were there and whose topics were deleted meanwhile.
    deleted: BTreeSet<String>,
    /// Up to where the ledgers, as they are copied, know what was removed of each partition.
    removed: BTreeMap<String, Offset>,
    bytes: u64,
    progress: F,
}

impl<F: FnMut(usize, u64)> Copying<F> {
    /// What a start changes is not in the order in which this reads: no server may have started since it was
    /// looked last. One that was there may end.
    fn refuse_start(&mut self) -> Result<(), ServerError> {
        let now = Owner::of(&self.from)?;
        let has_ended = !self.owner.is_nobody() && now.is_nobody();
        if now == self.owner || has_ended {
            self.owner = now;
            return Ok(());
        }
        Err(ServerError::Directory {
            directory: self.from.clone(),
            why: "a server started on it while it was copied: begin again, with an empty directory"
                .to_owned(),
        })
    }

    fn copy(&mut self) -> Result<(), ServerError> {
        self.copy_small("start.json")?;
        self.note_names()?;
        for name in ["partitions", "topics", "ledgers"] {
            make_private(&self.to.join(name))?;
        }
        for name in list(&self.from.join("partitions"))? {
            let path = self.from.join("partitions").join(&name);
            let removed = removed_from(&self.disk, &path);
            let removed = removed.map_err(|error| ServerError::Node(error.to_string()))?;
            self.removed.extend(removed.map(|removed| (name, removed)));
        }
        self.copy_ledgers()?;
        for _ in 0..ROUNDS_MAX {
            self.copy_partitions()?;
            let topics = list(&self.from.join("topics"))?;
            for name in topics.iter().filter(|name| name.ends_with(".json")) {
                self.copy_small(&format!("topics/{name}"))?;
            }
            self.copy_partition(Path::new("internal"), CopyFor::SameHistory)?;
            // A topic that was made meanwhile may be known to what was just copied.
            if self.copy_partitions()? == 0 {
                for name in ["partitions", "topics", "ledgers"] {
                    sync(&self.to.join(name))?;
                }
                return sync(&self.to);
            }
        }
        Err(ServerError::Directory {
            directory: self.from.clone(),
            why: "topics are made faster than they are copied".to_owned(),
        })
    }

    /// Copies the partitions that are not copied yet, and says how many there were.
    fn copy_partitions(&mut self) -> Result<usize, ServerError> {
        let before = self.partitions.len();
        for name in list(&self.from.join("partitions"))? {
            if self.partitions.contains(&name) || self.deleted.contains(&name) {
                continue;
            }
            // Topic, partition, kind of storage.
            if name.splitn(3, '-').nth(2) != Some("disk") {
                self.passed_over.insert(name);
                continue;
            }
            let path = Path::new("partitions").join(&name);
            let removed = self.removed.get(&name).copied();
            let copy_for = CopyFor::AnotherHistory {
                removed_since: removed.unwrap_or(Offset(0)),
            };
            match self.copy_partition(&path, copy_for) {
                Ok(true) => {
                    self.partitions.insert(name);
                    (self.progress)(self.partitions.len(), self.bytes);
                }
                // Of a topic that was there, one that is removed; else perhaps one that is just made.
                Ok(false) => {
                    if self.names.contains_key(&topic_file(&name)) && self.is_deleted(&name) {
                        self.deleted.insert(name);
                    }
                }
                Err(_) if self.is_deleted(&name) => {
                    remove(&self.to.join(&path))?;
                    self.deleted.insert(name);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.partitions.len() - before)
    }

    fn copy_ledgers(&mut self) -> Result<(), ServerError> {
        for name in list(&self.from.join("ledgers"))? {
            self.copy_partition(&Path::new("ledgers").join(name), CopyFor::SameHistory)?;
        }
        Ok(())
    }

    /// Copies a partition anew; `false` if it is not there, or not yet, or no longer.
    fn copy_partition(&mut self, path: &Path, copy_for: CopyFor) -> Result<bool, ServerError> {
        let (from, to) = (self.from.join(path), self.to.join(path));
        remove(&to)?;
        let copied = copy_live(&self.disk, &from, &to, copy_for);
        self.refuse_start()?;
        match copied.map_err(|error| ServerError::Node(error.to_string()))? {
            Some(bytes) => {
                self.bytes += bytes;
                Ok(true)
            }
            None => {
                remove(&to)?;
                Ok(false)
            }
        }
    }

    /// Whether a partition's topic is deleted, or is within a while: files of partitions go one by one.
    fn is_deleted(&self, name: &str) -> bool {
        let topic = self.from.join("topics").join(topic_file(name));
        let partition = self.from.join("partitions").join(name);
        let deadline = Instant::now() + DELETION_TIMEOUT;
        while topic.exists() && partition.exists() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(DELETION_POLL);
        }
        true
    }

    fn note_names(&mut self) -> Result<(), ServerError> {
        for file in list(&self.from.join("topics"))? {
            let text = read_if_there(&self.from.join("topics").join(&file))?;
            let text = text.unwrap_or_default();
            let line = text.lines().next().unwrap_or_default();
            // One that is damaged has no name here; the start on the copy tells of it.
            let document: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            if let Some(name) = document["name"].as_str() {
                self.names.insert(file, name.to_owned());
            }
        }
        Ok(())
    }

    /// Copies a file that is replaced whole when it changes.
    fn copy_small(&mut self, name: &str) -> Result<(), ServerError> {
        match read_if_there(&self.from.join(name))? {
            Some(text) => durable_file::write(&self.to.join(name), text.as_bytes()),
            None => Ok(()),
        }
    }

    fn left_out(&self) -> Result<Vec<String>, ServerError> {
        let mut left_out: Vec<String> = self
            .passed_over
            .iter()
            .map(|name| format!("partitions/{name}: only the storage kind disk is copied"))
            .collect();
        left_out.extend(self.deleted.iter().map(|name| {
            let topic = self.names.get(&topic_file(name));
            let topic = topic.map_or_else(String::new, |topic| format!(" {topic}"));
            format!("partitions/{name}: its topic{topic} was deleted meanwhile")
        }));
        if !list(&self.from.join("lost+found"))?.is_empty() {
            left_out.push("lost+found: no record names what lies there".to_owned());
        }
        Ok(left_out)
    }
}

/// The name of the file of a partition's topic.
fn topic_file(partition: &str) -> String {
    let topic = partition.split('-').next().unwrap_or_default();
    format!("{topic}.json")
}

/// The names in a directory; none if it is not there.
fn list(path: &Path) -> Result<Vec<String>, ServerError> {
    let read = || -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let name = |entry: io::Result<std::fs::DirEntry>| {
            Ok(entry?.file_name().to_string_lossy().into_owned())
        };
        entries.map(name).collect()
    };
    let mut names = read().map_err(ServerError::file(format!("listing {}", path.display())))?;
    names.sort();
    Ok(names)
}

fn remove(path: &Path) -> Result<(), ServerError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(ServerError::file(format!("removing {}", path.display()))),
    }
}

fn sync(path: &Path) -> Result<(), ServerError> {
    std::fs::File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(ServerError::file(format!("syncing {}", path.display())))
}
