//! The journal of what was acknowledged, outside of the server: one record a
//! batch. The layout is `docs/format/journal.md`.

use crate::error::ClientError;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use wire::checksum::crc32c;
use wire::{Incarnation, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TopicId};

/// Bytes of one record.
pub const JOURNAL_RECORD_BYTES: usize = 96;
const MAGIC: [u8; 4] = *b"TWjr";
const VERSION: u16 = 1;

/// A batch that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalRecord {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The partition's life.
    pub incarnation: Incarnation,
    /// The offset of the batch's first event; the others follow it.
    pub first: Offset,
    /// How many events.
    pub count: u32,
    /// CRC32C of the batch's section of metadata, then its section of inline
    /// data, then the external data of its events in order.
    pub checksum: u32,
    /// Who produced it.
    pub producer: ProducerId,
    /// In which life.
    pub epoch: ProducerEpoch,
    /// The producer's sequence number of the first event.
    pub first_sequence: Sequence,
    /// When the broker took it, nanoseconds since 1970.
    pub append_time: u64,
    /// Whether the ack answered a retry.
    pub duplicate: bool,
}

impl JournalRecord {
    /// The record's bytes.
    pub fn to_bytes(&self) -> [u8; JOURNAL_RECORD_BYTES] {
        let mut out = [0; JOURNAL_RECORD_BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[10] = u8::from(self.duplicate);
        out[12..16].copy_from_slice(&self.partition.0.to_le_bytes());
        out[16..32].copy_from_slice(&self.topic.0.to_le_bytes());
        out[32..48].copy_from_slice(&self.producer.0.to_le_bytes());
        out[48..52].copy_from_slice(&self.epoch.0.to_le_bytes());
        out[52..56].copy_from_slice(&self.count.to_le_bytes());
        out[56..64].copy_from_slice(&self.incarnation.0.to_le_bytes());
        out[64..72].copy_from_slice(&self.first.0.to_le_bytes());
        out[72..80].copy_from_slice(&self.first_sequence.0.to_le_bytes());
        out[80..88].copy_from_slice(&self.append_time.to_le_bytes());
        out[88..92].copy_from_slice(&self.checksum.to_le_bytes());
        let crc = crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a record; says why it is none.
    pub fn from_bytes(bytes: &[u8; JOURNAL_RECORD_BYTES]) -> Result<Self, String> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let u128_at =
            |at: usize| u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen"));
        if bytes[..4] != MAGIC {
            return Err(format!("magic is {:08x}", u32_at(0)));
        }
        let (computed, stored) = (crc32c(&bytes[8..]), u32_at(4));
        if computed != stored {
            return Err(format!("crc {computed:08x}, stored {stored:08x}"));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(format!("version is {version}"));
        }
        if bytes[10] > 1 || bytes[11] != 0 || u32_at(92) != 0 {
            return Err("a reserved byte is not zero".to_owned());
        }
        Ok(Self {
            topic: TopicId(u128_at(16)),
            partition: PartitionIndex(u32_at(12)),
            incarnation: Incarnation(u64_at(56)),
            first: Offset(u64_at(64)),
            count: u32_at(52),
            checksum: u32_at(88),
            producer: ProducerId(u128_at(32)),
            epoch: ProducerEpoch(u32_at(48)),
            first_sequence: Sequence(u64_at(72)),
            append_time: u64_at(80),
            duplicate: bytes[10] == 1,
        })
    }
}

/// A journal that was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalContent {
    /// The records, in the order in which the acks came.
    pub records: Vec<JournalRecord>,
    /// Bytes of a record at the end that was not written completely.
    pub torn_bytes: usize,
}

/// Reads the journal at `path`.
///
/// # Errors
/// [`ClientError::Damaged`] at a record that is not the torn last one.
pub fn read_journal(path: &Path) -> Result<JournalContent, ClientError> {
    let failed = |error| ClientError::io(format!("reading journal {}", path.display()), error);
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(failed)?;
    let mut content = JournalContent::default();
    let mut records = bytes.chunks_exact(JOURNAL_RECORD_BYTES);
    for (index, record) in records.by_ref().enumerate() {
        let record: &[u8; JOURNAL_RECORD_BYTES] = record.try_into().expect("an exact chunk");
        let record = JournalRecord::from_bytes(record).map_err(|reason| ClientError::Damaged {
            what: format!(
                "record at byte {} of journal {}: {reason}",
                index * JOURNAL_RECORD_BYTES,
                path.display()
            ),
        })?;
        content.records.push(record);
    }
    content.torn_bytes = records.remainder().len();
    Ok(content)
}

/// A journal that is being written.
pub(crate) struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

impl Journal {
    /// Opens the journal to append to it; a torn record at its end is cut off.
    pub fn open(path: &Path) -> Result<Self, ClientError> {
        let failed = |error| ClientError::io(format!("opening journal {}", path.display()), error);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let whole = bytes - bytes % JOURNAL_RECORD_BYTES as u64;
        if whole != bytes {
            file.set_len(whole).map_err(failed)?;
        }
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(file),
        })
    }

    /// Appends a record with one write.
    pub fn append(&self, record: &JournalRecord) -> Result<(), ClientError> {
        self.file
            .lock()
            .expect("no holder panics here")
            .write_all(&record.to_bytes())
            .map_err(|error| {
                ClientError::io(
                    format!("appending to journal {}", self.path.display()),
                    error,
                )
            })
    }

    /// Makes what was appended survive a power loss. Blocks.
    pub fn sync(&self) -> Result<(), ClientError> {
        // Cloned, so that no ack waits behind the sync.
        let file = self.file.lock().expect("no holder panics here").try_clone();
        file.and_then(|file| file.sync_data()).map_err(|error| {
            ClientError::io(format!("syncing journal {}", self.path.display()), error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(first: u64) -> JournalRecord {
        JournalRecord {
            topic: TopicId(1),
            partition: PartitionIndex(2),
            incarnation: Incarnation(3),
            first: Offset(first),
            count: 5,
            checksum: 6,
            producer: ProducerId(7),
            epoch: ProducerEpoch(8),
            first_sequence: Sequence(9),
            append_time: 10,
            duplicate: true,
        }
    }

    #[test]
    fn a_journal_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        drop(Journal::open(&path).unwrap());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_record_round_trips_and_every_flipped_bit_is_seen() {
        let bytes = record(4).to_bytes();
        assert_eq!(JournalRecord::from_bytes(&bytes), Ok(record(4)));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(JournalRecord::from_bytes(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_torn_tail_is_told_and_cut_off_when_the_journal_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        for first in 0..3 {
            Journal::open(&path)
                .unwrap()
                .append(&record(first))
                .unwrap();
        }
        let bytes = std::fs::read(&path).unwrap();
        for cut in 1..JOURNAL_RECORD_BYTES {
            std::fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
            let content = read_journal(&path).unwrap();
            assert_eq!(content.records, [record(0), record(1)]);
            assert_eq!(content.torn_bytes, JOURNAL_RECORD_BYTES - cut);
        }
        let journal = Journal::open(&path).unwrap();
        journal.append(&record(7)).unwrap();
        journal.sync().unwrap();
        let content = read_journal(&path).unwrap();
        assert_eq!(content.records, [record(0), record(1), record(7)]);
        assert_eq!(content.torn_bytes, 0);
    }

    #[test]
    fn damage_in_the_middle_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut bytes = [record(0).to_bytes(), record(1).to_bytes()].concat();
        bytes[60] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let error = read_journal(&path).unwrap_err().to_string();
        assert!(error.contains("record at byte 0"), "{error}");
    }
}
