//! The bytes of a log file: its header, and a frame for each write. The format is
//! docs/format/quorum.md.

use super::entry::Entry;
use super::id::Identity;
use super::snapshot::Snapshot;
use wire::checksum::{crc32c, crc32c_append};
use wire::codec::{Codec, DecodeError, Reader, Write};

/// Bytes of a file's header.
pub(crate) const FILE_HEADER_BYTES: usize = 80;
/// Bytes of a frame's header.
pub(crate) const FRAME_HEADER_BYTES: usize = 32;
/// Bytes before a record's body.
const RECORD_HEADER_BYTES: usize = 8;

const FILE_MAGIC: u32 = u32::from_le_bytes(*b"TWqu");
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"TWqf");
const VERSION: u16 = 1;

const _: () = assert!(FILE_HEADER_BYTES == 4 + 4 + 2 + 6 + 40 + 8 + 8 + 8);
const _: () = assert!(FRAME_HEADER_BYTES == 4 + 4 + 8 + 4 + 4 + 4 + 4);

/// What begins a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) identity: Identity,
    /// The N of `quorum-N.log`.
    pub(crate) number: u64,
    /// Goes into the checksum of each frame's header, so that no payload looks like one.
    pub(crate) salt: u64,
}

impl FileHeader {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(FILE_MAGIC);
        out.put_u32(0);
        out.put_u16(VERSION);
        out.put(&[0; 6]);
        self.identity.encode(out);
        out.put_u64(self.number);
        out.put_u64(self.salt);
        out.put_u64(0);
        let crc = crc32c(&out[start + 8..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "header of a quorum's log";
        let mut from = Reader::new(WHAT, bytes);
        let header = from.bytes(FILE_HEADER_BYTES)?;
        let mut from = Reader::new(WHAT, header);
        let magic = from.u32()?;
        if magic != FILE_MAGIC {
            return Err(DecodeError::value(WHAT, 0, "magic", magic.into()));
        }
        let (stored, computed) = (from.u32()?, crc32c(&header[8..]));
        if stored != computed {
            return Err(DecodeError::checksum(WHAT, 4, computed, stored));
        }
        let version = from.u16()?;
        if version != VERSION {
            let (found, own) = (version.into(), VERSION.into());
            return Err(DecodeError::version(WHAT, 8, "version", found, own));
        }
        if from.bytes(6)? != [0; 6] {
            return Err(DecodeError::newer(WHAT, 10, "reserved", 1));
        }
        let identity = Identity::decode(&mut from)?;
        let number = from.u64()?;
        let salt = from.u64()?;
        match from.u64()? {
            0 => Ok(Self {
                identity,
                number,
                salt,
            }),
            found => Err(DecodeError::newer(WHAT, 72, "reserved", found)),
        }
    }
}

/// Term, vote and commit index, as the library has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HardState {
    pub(crate) term: u64,
    /// 0: none.
    pub(crate) vote: u64,
    pub(crate) commit: u64,
}

impl Codec for HardState {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.term);
        out.put_u64(self.vote);
        out.put_u64(self.commit);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            term: from.u64()?,
            vote: from.u64()?,
            commit: from.u64()?,
        })
    }
}

/// What a frame holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// Replaces what is at its index and behind it.
    Entry(Entry),
    /// Replaces the one before.
    HardState(HardState),
    /// Replaces all entries.
    Snapshot(Snapshot),
}

/// Records on their way into a frame.
#[derive(Debug, Default)]
pub(crate) struct Records {
    bytes: Vec<u8>,
    count: u32,
    /// The least index of their entries.
    first: Option<u64>,
    /// The last of their hard states.
    state: Option<HardState>,
}

impl Records {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The least index of their entries.
    pub(crate) fn first(&self) -> Option<u64> {
        self.first
    }

    /// The last of their hard states.
    pub(crate) fn state(&self) -> Option<HardState> {
        self.state
    }

    pub(crate) fn entry(&mut self, entry: &Entry) {
        self.first = least(self.first, Some(entry.index));
        self.push(1, |out| entry.encode(out));
    }

    pub(crate) fn hard_state(&mut self, state: &HardState) {
        self.state = Some(*state);
        self.push(2, |out| state.encode(out));
    }

    /// A snapshot in its binary form.
    pub(crate) fn snapshot(&mut self, snapshot: &[u8]) {
        self.push(3, |out| out.put(snapshot));
    }

    fn push(&mut self, kind: u8, encode: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.put_u8(kind);
        self.bytes.put(&[0; 3]);
        let at = self.bytes.len();
        self.bytes.put_u32(0);
        encode(&mut self.bytes);
        let length = (self.bytes.len() - at - 4) as u32;
        self.bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        self.count += 1;
    }

    /// Those of `self`, then those of `other`.
    pub(crate) fn append(&mut self, other: &Self) {
        self.bytes.put(&other.bytes);
        self.count += other.count;
        self.first = least(self.first, other.first);
        self.state = other.state.or(self.state);
    }

    /// Appends the frame of this number to `out`.
    pub(crate) fn frame(&self, salt: u64, number: u64, out: &mut Vec<u8>) {
        out.reserve(FRAME_HEADER_BYTES + self.bytes.len());
        let start = out.len();
        out.put_u32(FRAME_MAGIC);
        out.put_u32(0);
        out.put_u64(number);
        out.put_u32(self.bytes.len() as u32);
        out.put_u32(crc32c(&self.bytes));
        out.put_u32(self.count);
        out.put_u32(0);
        let crc = header_crc(salt, &out[start..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        out.put(&self.bytes);
    }
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

fn header_crc(salt: u64, header: &[u8]) -> u32 {
    crc32c_append(crc32c(&salt.to_le_bytes()), &header[8..FRAME_HEADER_BYTES])
}

/// The header of a frame whose checksum holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) number: u64,
    pub(crate) body_bytes: usize,
    body_crc: u32,
    count: u32,
}

impl FrameHeader {
    /// Reads the header at the start of `bytes`.
    pub(crate) fn decode(salt: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "frame of a quorum's log";
        let header = Reader::new(WHAT, bytes).bytes(FRAME_HEADER_BYTES)?;
        let mut from = Reader::new(WHAT, header);
        let magic = from.u32()?;
        if magic != FRAME_MAGIC {
            return Err(DecodeError::value(WHAT, 0, "magic", magic.into()));
        }
        let (stored, computed) = (from.u32()?, header_crc(salt, header));
        if stored != computed {
            return Err(DecodeError::checksum(WHAT, 4, computed, stored));
        }
        let number = from.u64()?;
        let body_bytes = from.u32()? as usize;
        let body_crc = from.u32()?;
        let count = from.u32()?;
        match from.u32()? {
            0 => Ok(Self {
                number,
                body_bytes,
                body_crc,
                count,
            }),
            found => Err(DecodeError::newer(WHAT, 28, "reserved", found.into())),
        }
    }

    /// The frame's body, from the bytes behind its header.
    pub(crate) fn body<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        const WHAT: &str = "records of a quorum's log";
        let body = Reader::new(WHAT, bytes).bytes(self.body_bytes)?;
        match crc32c(body) {
            computed if computed == self.body_crc => Ok(body),
            computed => Err(DecodeError::checksum(WHAT, 0, computed, self.body_crc)),
        }
    }

    /// The records of a body.
    pub(crate) fn records(&self, body: &[u8]) -> Result<Vec<Record>, DecodeError> {
        let (records, error) = self.records_until_error(body);
        match error {
            None => Ok(records),
            Some(error) => Err(error),
        }
    }

    /// The records of a body up to the first that is none, and why.
    pub(crate) fn records_until_error(&self, body: &[u8]) -> (Vec<Record>, Option<DecodeError>) {
        let mut from = Reader::new("records of a quorum's log", body);
        let mut records = Vec::new();
        for _ in 0..self.count {
            match record(&mut from) {
                Ok(record) => records.push(record),
                Err(error) => return (records, Some(error)),
            }
        }
        let left = from.rest().len() as u64;
        let error = (left > 0).then(|| from.refuse("bytes behind the records", left));
        (records, error)
    }
}

fn record(from: &mut Reader<'_>) -> Result<Record, DecodeError> {
    let offset = from.position();
    let kind = from.u8()?;
    if from.bytes(3)? != [0; 3] {
        return Err(from.refuse("reserved", 1));
    }
    let body = from.sized()?;
    let mut inside = Reader::new("record of a quorum's log", body);
    let record = match kind {
        1 => Entry::decode(&mut inside).map(Record::Entry),
        2 => HardState::decode(&mut inside).map(Record::HardState),
        3 => Snapshot::decode(&mut inside).map(Record::Snapshot),
        other => return Err(from.refuse("record kind", other.into())),
    };
    let record = record.map_err(|mut error| {
        error.offset += offset + RECORD_HEADER_BYTES;
        error
    })?;
    match inside.rest().len() {
        0 => Ok(record),
        left => Err(from.refuse("bytes behind a record", left as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::entry::{Command, Content};
    use crate::quorum::id::{ClusterId, DirectoryId, RequestId, VoterId};
    use crate::quorum::membership::{Change, Membership};
    use crate::quorum::requests::{Memory, Requests};
    use bytes::Bytes;
    use std::time::Duration;

    const SALT: u64 = 0x5a17;

    fn identity() -> Identity {
        Identity {
            cluster: ClusterId(0xc1),
            voter: VoterId(2),
            directory: DirectoryId(0xd2),
        }
    }

    fn some() -> (Vec<Record>, Records) {
        let mut requests = Requests::default();
        let memory = Memory {
            requests_max: 10,
            deadline: Duration::from_secs(1),
        };
        requests.record(RequestId(7), 900, 3, memory);
        let snapshot = Snapshot {
            index: 4,
            term: 2,
            members: Membership::founders(&[(VoterId(2), DirectoryId(0xd2))]),
            requests,
            state: Bytes::from_static(b"state"),
        };
        let state = HardState {
            term: 3,
            vote: 2,
            commit: 4,
        };
        let request = RequestId(8);
        let change = Change::Promote { voter: VoterId(2) };
        let contents = [
            Content::Blank,
            Content::Command(Command {
                request,
                taken: 1000,
                payload: Bytes::from_static(b"payload"),
            }),
            Content::Change { request, change },
        ];
        let mut records = Records::default();
        let mut all = vec![Record::Snapshot(snapshot.clone()), Record::HardState(state)];
        records.snapshot(&snapshot.to_bytes());
        records.hard_state(&state);
        for (index, content) in (5..).zip(contents) {
            let entry = Entry {
                index,
                term: 3,
                content,
            };
            records.entry(&entry);
            all.push(Record::Entry(entry));
        }
        (all, records)
    }

    fn file() -> Vec<u8> {
        let mut bytes = Vec::new();
        let header = FileHeader {
            identity: identity(),
            number: 3,
            salt: SALT,
        };
        header.encode(&mut bytes);
        some().1.frame(SALT, 1, &mut bytes);
        bytes
    }

    #[test]
    fn a_file_reads_as_it_was_written() {
        let bytes = file();
        let header = FileHeader::decode(&bytes).unwrap();
        assert_eq!((header.identity, header.number), (identity(), 3));
        let frame = FrameHeader::decode(SALT, &bytes[FILE_HEADER_BYTES..]).unwrap();
        let body = &bytes[FILE_HEADER_BYTES + FRAME_HEADER_BYTES..];
        let body = frame.body(body).unwrap();
        assert_eq!(frame.records(body).unwrap(), some().0);
        assert!(FrameHeader::decode(SALT + 1, &bytes[FILE_HEADER_BYTES..]).is_err());
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let bytes = file();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let whole = || {
                FileHeader::decode(&bytes)?;
                let frame = FrameHeader::decode(SALT, &bytes[FILE_HEADER_BYTES..])?;
                frame.body(&bytes[FILE_HEADER_BYTES + FRAME_HEADER_BYTES..])?;
                Ok::<_, DecodeError>(())
            };
            assert!(whole().is_err(), "bit {bit}");
        }
    }

    /// Bodies whose checksum is right are read by total decoders all the same.
    #[test]
    fn any_records_give_a_value_or_an_error() {
        let (_, records) = some();
        let header = FrameHeader {
            number: 1,
            body_bytes: 0,
            body_crc: 0,
            count: 9,
        };
        let mut random = crate::random::Random::new(1);
        for _ in 0..20_000 {
            let mut body = records.bytes.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(body.len() as u64) as usize;
                body[at] = random.number() as u8;
            }
            body.truncate(random.below(body.len() as u64 + 1) as usize);
            let _ = header.records(&body);
        }
    }

    /// The bytes of docs/format/quorum.md, version 1: they may never change.
    #[test]
    fn golden_bytes() {
        let mut hex = String::new();
        for byte in file() {
            hex += &format!("{byte:02x}");
        }
        assert_eq!(hex, include_str!("golden/file-1.hex").trim());
    }
}
