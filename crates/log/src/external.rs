//! External data: blocks in a data file, and the table of their checksums
//! behind them.

use crate::blocking::Blocking;
use crate::disk::{DiskError, DiskErrorKind, FileId};
use crate::look::DiskStamp;
use crate::segment::SegmentFile;
use std::collections::BTreeMap;
use std::path::PathBuf;
use wire::Offset;
use wire::batch::ExternalLayout;
use wire::checksum::crc32c;

/// Bytes of data that are verified at once; a multiple of every block length
/// up to it.
const PIECE_BYTES: u64 = 1 << 20;

/// Block checksums as they are stored.
pub(crate) fn table_to_bytes(checksums: &[u32]) -> Vec<u8> {
    checksums.iter().flat_map(|crc| crc.to_le_bytes()).collect()
}

/// Block checksums from their stored form.
pub(crate) fn table_from_bytes(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect()
}

/// Verifies external data on the calling thread, for recovery.
pub(crate) struct ExternalReader<'a> {
    disk: Blocking<'a>,
    directory: PathBuf,
    /// Data files that were looked at, by base offset; `None` is missing.
    files: BTreeMap<Offset, Option<FileId>>,
}

impl<'a> ExternalReader<'a> {
    pub(crate) fn new(disk: Blocking<'a>, directory: PathBuf) -> Self {
        Self {
            disk,
            directory,
            files: BTreeMap::new(),
        }
    }

    fn file(&mut self, base: Offset) -> Result<Option<FileId>, DiskError> {
        if let Some(known) = self.files.get(&base) {
            return Ok(*known);
        }
        let path = SegmentFile::Data.path(&self.directory, base);
        let file = match self.disk.open(path) {
            Ok(file) => Some(file),
            Err(error) if error.kind == DiskErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        self.files.insert(base, file);
        Ok(file)
    }

    /// Whether the data of a batch of this stamp is all there.
    pub(crate) fn verify(
        &mut self,
        stamp: &DiskStamp,
        layout: &ExternalLayout,
        block_bytes: u32,
    ) -> Result<bool, DiskError> {
        let Some(file) = self.file(stamp.local.data_segment)? else {
            return Ok(false);
        };
        if layout.total_bytes != stamp.shared.data_bytes {
            return Ok(false);
        }
        let start = stamp.local.data_position;
        let table_bytes = layout.block_count * 4;
        let table_at = start.saturating_add(layout.table_position);
        let length = self.disk.length(file)?;
        if table_at.saturating_add(table_bytes) > length {
            return Ok(false);
        }
        let table = self.disk.read(file, table_at, table_bytes as usize)?;
        if crc32c(&table) != stamp.shared.data_crc {
            return Ok(false);
        }
        let table = table_from_bytes(&table);
        let mut expected = table.iter();
        let piece_bytes = PIECE_BYTES.max(u64::from(block_bytes));
        for (_, event_position, event_bytes) in &layout.events {
            let mut done = 0;
            while done < *event_bytes {
                let bytes = piece_bytes.min(event_bytes - done);
                let at = start + event_position + done;
                let piece = self.disk.read(file, at, bytes as usize)?;
                let blocks = wire::checksum::block_checksums(&piece, block_bytes);
                let mut matching = blocks.map(|crc| expected.next() == Some(&crc));
                if piece.len() as u64 != bytes || !matching.all(|same| same) {
                    return Ok(false);
                }
                done += bytes;
            }
        }
        Ok(true)
    }

    /// Makes the data files that were looked at durable, and closes them.
    pub(crate) fn sync_all(&mut self) -> Result<(), DiskError> {
        for file in std::mem::take(&mut self.files).into_values().flatten() {
            self.disk.sync(file)?;
            self.disk.close(file)?;
        }
        Ok(())
    }
}
