//! Small files that are there whole or not at all, also after a power loss.

use crate::error::ServerError;
use crate::host::random_u128;
use rustix::fs::OFlags;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Writes `bytes` to `path`, readable by its owner alone: to another name
/// first, synced, then renamed, and the directory synced.
///
/// Where a full disk has no space for that, the file that is there takes them: it gets the other
/// name, its bytes are written over, and it is renamed back. A crash in between leaves no file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), ServerError> {
    let attempt = || format!("writing {}", path.display());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Several may write it at once: servers of a cluster, in containers that have one name and one id of a process.
    let temporary = path.with_file_name(format!(".{name}.{:032x}.tmp", random_u128()));
    let written = check_place(path)
        .and_then(|()| match write_new(&temporary, bytes) {
            Err(full) if full.kind() == std::io::ErrorKind::StorageFull => {
                std::fs::rename(path, &temporary).map_err(|_| full)?;
                write_over(&temporary, bytes)
            }
            written => written,
        })
        .and_then(|()| std::fs::rename(&temporary, path))
        .and_then(|()| sync_parent(path));
    if written.is_err() {
        // It may not be there; the error that matters is the first one.
        let _ = std::fs::remove_file(&temporary);
    }
    written.map_err(ServerError::file(attempt()))
}

/// What is no file stays: a device or a socket would be gone for others too.
fn check_place(path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(std::io::Error::new(
            std::io::ErrorKind::AlreadyExists,
            "what is there is no file, and would be replaced",
        )),
        _ => Ok(()),
    }
}

pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes over what a file holds, without giving its space back in between.
fn write_over(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()
}

/// Makes the names in `path`'s directory survive a power loss.
pub fn sync_parent(path: &Path) -> std::io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

/// Makes a directory for its owner alone, with what leads to it.
pub(crate) fn make_private(path: &Path) -> Result<(), ServerError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(ServerError::file(format!("making {}", path.display())))
}

/// The text of a regular file, if it is there. Waits for no pipe.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>, ServerError> {
    match read_regular(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ServerError::file(format!("reading {}", path.display()))(
            error,
        )),
    }
}

fn read_regular(path: &Path) -> std::io::Result<String> {
    // Opening a pipe waits for a writer, for ever perhaps.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_over_is_whole_and_private_whatever_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for before in ["", "longer than what comes", "x"] {
            std::fs::write(&path, before).unwrap();
            write_over(&path, b"new").unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"new");
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_holds_up_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, 0o600.into(), 0).unwrap();
        for path in [pipe.as_path(), directory.path(), Path::new("/dev/null")] {
            let said = read_if_there(path).unwrap_err().to_string();
            assert!(said.contains("no regular file"), "{said}");
        }
        let absent = directory.path().join("absent");
        assert_eq!(read_if_there(&absent).unwrap(), None);
        std::fs::write(&absent, "text").unwrap();
        assert_eq!(read_if_there(&absent).unwrap().as_deref(), Some("text"));
    }
}
