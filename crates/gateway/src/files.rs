//! Small files that are there whole or not at all, also after a power loss; for their owner alone.

use crate::error::GatewayError;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Writes `bytes` to `path`: to another name first, synced, then renamed, and the folder synced.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), GatewayError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.tmp"));
    let put = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        sync_parent(path)
    };
    put().map_err(GatewayError::file(format!("writing {}", path.display())))
}

/// Makes the names in `path`'s folder survive a power loss.
pub fn sync_parent(path: &Path) -> std::io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Makes a folder for its owner alone, with what leads to it.
pub fn make_private(path: &Path) -> Result<(), GatewayError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(GatewayError::file(format!("making {}", path.display())))
}

/// The text of a file of at most `bytes_max`, if it is there.
pub fn read_if_there(path: &Path, bytes_max: u64) -> Result<Option<String>, GatewayError> {
    let read = || -> std::io::Result<String> {
        let mut text = String::new();
        let read = File::open(path)?
            .take(bytes_max + 1)
            .read_to_string(&mut text)?;
        match read as u64 > bytes_max {
            true => Err(std::io::Error::other(format!(
                "it has more than {bytes_max} bytes"
            ))),
            false => Ok(text),
        }
    };
    match read() {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(GatewayError::file(format!("reading {}", path.display()))(
            error,
        )),
    }
}
