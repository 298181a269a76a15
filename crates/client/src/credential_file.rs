//! The file of a credential: a token, a URL with one, or a certificate and its key.

use crate::core::RenewedCredential;
use crate::url;
use bytes::Bytes;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// More than any credential has.
const BYTES_MAX: u64 = 64 << 10;

/// What is to be presented of it.
pub fn read(path: &Path) -> Result<Bytes, String> {
    let content = content(path).map_err(|error| error.to_string())?;
    url::presented(content)
}

fn content(path: &Path) -> io::Result<Bytes> {
    let mut text = Vec::new();
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(text.into())
}

/// Writes it anew, for its owner alone, all at once: a reader has the one before or the new one. What somebody
/// else has put there meanwhile stays.
pub(crate) fn renew(renewed: &RenewedCredential) -> io::Result<()> {
    // Where a link leads, the link stays.
    let path = renewed.path.canonicalize()?;
    if content(&path)? != renewed.before {
        return Ok(());
    }
    write(&path, &renewed.after)
}

/// Writes such a file, for its owner alone, all at once.
///
/// # Errors
/// If it cannot be written; what was there stays.
pub fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Programs that share it, on several hosts perhaps, renew it at the same time: each has a file of its own.
    let mut own = [0; 8];
    getrandom::fill(&mut own).map_err(io::Error::other)?;
    let own = u64::from_le_bytes(own);
    let temporary = path.with_file_name(format!(".{name}.{own:016x}.tmp"));
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    let written = write();
    if written.is_err() {
        // It may not be there; the error that matters is the first one.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    #[test]
    fn a_file_is_renewed_where_it_is_what_it_was() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("credential");
        std::fs::write(&path, "old").unwrap();
        let renewed = |before: &'static str, after: &'static str| RenewedCredential {
            path: path.clone(),
            before: before.into(),
            after: after.into(),
            left: Duration::ZERO,
        };
        renew(&renewed("other", "new")).unwrap();
        assert_eq!(read(&path).unwrap(), "old");
        renew(&renewed("old", "new")).unwrap();
        assert_eq!(read(&path).unwrap(), "new");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        renew(&RenewedCredential {
            path: link.clone(),
            ..renewed("new", "newer")
        })
        .unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(read(&path).unwrap(), "newer");
        assert_eq!(
            format!("{:?}", renewed("secret", "secret")).find("secret"),
            None
        );
    }
}
