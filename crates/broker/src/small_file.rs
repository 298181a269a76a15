//! Small files that are there whole or not at all, and whose damage shows.
//!
//! One line of JSON, and one with the CRC32C of the first in eight hexadecimal digits. The page
//! is `docs/format/directory.md`.

use crate::options::NodeError;
use log::{Disk, DiskError, DiskErrorKind, Operation, Outcome};
use serde_json::Value;
use std::path::Path;
use wire::checksum::crc32c;

/// The longest that is read: a definition is at most 1 MiB.
const BYTES_MAX: usize = 8 << 20;

/// The bytes of a file that holds `document`.
pub(crate) fn to_bytes(document: &Value) -> Vec<u8> {
    let line = document.to_string();
    let crc = crc32c(line.as_bytes());
    format!("{line}\n{crc:08x}\n").into_bytes()
}

/// What a file's bytes hold; `None` if they are damaged.
pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (line, crc) = text.split_once('\n')?;
    let matches = crc == format!("{:08x}", crc32c(line.as_bytes()));
    matches.then(|| serde_json::from_str(line).ok())?
}

/// What a file of this format holds; `None` if there is none, and `Some(None)` if it is damaged. Blocks.
///
/// # Errors
/// If a later version wrote it.
pub(crate) fn read_format(
    disk: &dyn Disk,
    path: &Path,
    format: u64,
) -> Result<Option<Option<Value>>, NodeError> {
    let Some(bytes) = read(disk, path)? else {
        return Ok(None);
    };
    let document = from_bytes(&bytes);
    if let Some(document) = &document
        && document["format"] != format
    {
        return Err(NodeError::Invalid(format!(
            "{}: its format is {}, this version knows format {format}: it was written by a \
             newer version of Thalweg",
            path.display(),
            document["format"]
        )));
    }
    Ok(Some(document))
}

/// All bytes of a file; `None` if there is none. Blocks.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, DiskError> {
    let file = match disk.execute(Operation::Open {
        path: path.to_owned(),
    }) {
        Ok(Outcome::File(file)) => file,
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(other) => unreachable!("opening gives a file, not {other:?}"),
    };
    let (position, bytes) = (0, BYTES_MAX);
    let length = disk.execute(Operation::Length { file })?;
    let bytes = match length {
        Outcome::Length(length) => bytes.min(length as usize),
        other => unreachable!("asking the length gives it, not {other:?}"),
    };
    let read = disk.execute(Operation::Read {
        file,
        position,
        bytes,
    })?;
    disk.execute(Operation::Close { file })?;
    match read {
        Outcome::Bytes(read) => Ok(Some(read.to_vec())),
        other => unreachable!("reading gives bytes, not {other:?}"),
    }
}

/// Makes the file at `path` hold `bytes`, or removes it. Survives a power loss. Blocks.
pub(crate) fn keep(disk: &dyn Disk, path: &Path, bytes: Option<Vec<u8>>) -> Result<(), DiskError> {
    match bytes {
        Some(bytes) => {
            write(disk, path, bytes, true)?;
        }
        None => remove(disk, path)?,
    }
    match path.parent() {
        Some(parent) => sync_directory(disk, parent),
        None => Ok(()),
    }
}

/// Makes the file at `path` hold `bytes`: another name first, then that one. Without `synced` a
/// power loss may leave a file that is damaged, and known to be. Blocks.
pub(crate) fn write(
    disk: &dyn Disk,
    path: &Path,
    bytes: Vec<u8>,
    synced: bool,
) -> Result<(), DiskError> {
    let temporary = path.with_extension("tmp");
    remove(disk, &temporary)?;
    let path_of_temporary = temporary.clone();
    let Outcome::File(file) = disk.execute(Operation::Create {
        path: path_of_temporary,
    })?
    else {
        unreachable!("creating gives a file");
    };
    let written = disk
        .execute(Operation::Write {
            file,
            position: 0,
            bytes: vec![bytes.into()],
        })
        .and_then(|done| match synced {
            true => disk.execute(Operation::SyncData { file }),
            false => Ok(done),
        });
    disk.execute(Operation::Close { file })?;
    if let Err(error) = written {
        // It would only take room; the error that matters is the first one.
        let _ = remove(disk, &temporary);
        return Err(error);
    }
    let (from, to) = (temporary, path.to_owned());
    disk.execute(Operation::Rename { from, to }).map(|_| ())
}

/// Removes a file; that it is not there is no error. Blocks.
pub(crate) fn remove(disk: &dyn Disk, path: &Path) -> Result<(), DiskError> {
    let path = path.to_owned();
    match disk.execute(Operation::Remove { path }) {
        Err(error) if error.kind == DiskErrorKind::NotFound => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Makes the names in a directory survive a power loss. Blocks.
pub(crate) fn sync_directory(disk: &dyn Disk, path: &Path) -> Result<(), DiskError> {
    let path = path.to_owned();
    disk.execute(Operation::SyncDirectory { path }).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_is_read_back_and_every_change_of_a_bit_is_noticed() {
        let document = json!({"name": "t", "number": 7});
        let bytes = to_bytes(&document);
        assert_eq!(from_bytes(&bytes), Some(document));
        for length in 0..bytes.len() {
            assert_eq!(from_bytes(&bytes[..length]), None, "{length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(from_bytes(&bytes), None, "bit {bit}");
        }
    }
}
