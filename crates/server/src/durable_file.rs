//! Small files that are there whole or not at all, also after a power loss.

use crate::error::ServerError;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes `bytes` to `path`, readable by its owner alone: to another name
/// first, synced, then renamed, and the directory synced.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), ServerError> {
    let attempt = || format!("writing {}", path.display());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let written = check_place(path)
        .and_then(|()| write_new(&temporary, bytes))
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

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
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
