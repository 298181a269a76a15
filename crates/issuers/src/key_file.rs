//! Files of keys of issuers: what is in one, and for how long what was in it counts.

use crate::faults::{Fault, planted};
use crate::keys::{KEYS_BYTES_MAX, Keys};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the keys of a file count that cannot be read any more.
pub const UNREAD_MAX: Duration = Duration::from_secs(3600);
/// In the mode of a file: everybody may write it.
const WRITTEN_BY_ALL: u32 = 0o002;

/// What a look at a file of keys found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeysFound {
    /// Those that it has; it may have none.
    There(Keys),
    /// It is not there.
    Gone,
    /// Why it could not be read.
    Unread(String),
}

impl KeysFound {
    /// Looks at a file. Blocks for as long as its file system does.
    pub fn at(path: &Path) -> Self {
        match read_keys(path) {
            Ok(text) => Keys::parse(&text).map_or_else(Self::Unread, Self::There),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Gone,
            Err(error) => Self::Unread(error.to_string()),
        }
    }
}

fn read_keys(path: &Path) -> io::Result<String> {
    let text = read(path)?;
    match std::fs::metadata(path)?.mode() & WRITTEN_BY_ALL {
        0 => Ok(text),
        _ => Err(io::Error::other("everybody may write it")),
    }
}

/// The text of a regular file, of 1 MiB at most. Blocks for as long as its file system
/// does, and for no pipe.
///
/// # Errors
/// If there is no such file.
pub fn read(path: &Path) -> io::Result<String> {
    // Opening a pipe waits for whoever writes it, for ever perhaps.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    file.take(KEYS_BYTES_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > KEYS_BYTES_MAX {
        false => Ok(text),
        true => Err(io::Error::other(format!(
            "it is longer than {KEYS_BYTES_MAX} bytes"
        ))),
    }
}

/// The keys of files that are looked at again and again.
#[derive(Debug, Default)]
pub struct KnownKeys(BTreeMap<PathBuf, Known>);

#[derive(Debug)]
struct Known {
    keys: Keys,
    unread_since: Option<Instant>,
}

impl KnownKeys {
    /// Takes what a look at all files found. Returns what an operator should know.
    pub fn take(&mut self, found: BTreeMap<PathBuf, KeysFound>, now: Instant) -> Vec<String> {
        self.0.retain(|path, _| found.contains_key(path));
        let mut strange = Vec::new();
        for (path, found) in found {
            let known = self.0.entry(path.clone()).or_insert(Known {
                keys: Keys::unread(),
                unread_since: None,
            });
            let said = known.take(found, now);
            strange.extend(said.map(|what| format!("{}: {what}", path.display())));
        }
        strange
    }

    /// The keys of a file, as far as they are known.
    pub fn of(&self, path: &Path) -> Keys {
        let known = self.0.get(path);
        known.map_or_else(Keys::unread, |known| known.keys.clone())
    }
}

impl Known {
    fn take(&mut self, found: KeysFound, now: Instant) -> Option<String> {
        if let KeysFound::Unread(why) = found {
            let since = *self.unread_since.get_or_insert(now);
            let minutes = UNREAD_MAX.as_secs() / 60;
            if now < since + UNREAD_MAX || planted(Fault::UnreadForEver) {
                return Some(format!(
                    "these keys cannot be read: those from before count for {minutes} minutes, and after a \
                     start there are none: {why}"
                ));
            }
            self.keys = Keys::unread();
            return Some(format!(
                "these keys could not be read for {minutes} minutes, and no JWT of theirs is taken any \
                 more: {why}"
            ));
        }
        self.unread_since = None;
        let (keys, said) = match found {
            KeysFound::There(keys) if keys.is_empty() => {
                (keys, Some("no key of it verifies signatures"))
            }
            KeysFound::There(keys) => (keys, None),
            _ => (Keys::default(), Some("there is no such file of keys")),
        };
        if !(keys.is_empty() && planted(Fault::EmptySetKept)) {
            self.keys = keys;
        }
        said.map(|what| format!("{what}: no JWT of its issuer is taken"))
    }
}
