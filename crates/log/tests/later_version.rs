//! A partition that another version wrote is refused, and nothing of it is touched. Every place that docs/format/log.md
//! keeps for later versions is taken from the page itself and filled in turn, with the checksums made right again.

use log::testing::{Driven, EventSpec, open_partition, origin};
use log::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::batch::{HEADER_BYTES, Header, SHARED_STAMP_BYTES, STAMP_BYTES, Stamp};
use wire::checksum::crc32c;
use wire::*;

const PAGE: &str = include_str!("../../../docs/format/log.md");
const EVENTS: u64 = 8;
const SLOT_DISTANCE: usize = 4096;
const CONFIG: &str = r#"{"segment_bytes": 1500, "allocate_bytes_min": 0, "allocate_bytes_max": 0, "index_bytes": 300}"#;

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A row of a table of the page that is of a later version if it is not as this version writes it.
struct Kept {
    at: usize,
    bytes: usize,
    field: String,
}

/// The rows under this heading that are kept for later versions.
fn kept(heading: &str) -> Vec<Kept> {
    let section = PAGE.split(&format!("{heading}\n")).nth(1).expect(heading);
    let section = section.split("\n#").next().unwrap();
    let mut rows = Vec::new();
    for line in section.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (Ok(at), Ok(bytes)) = (cells[1].parse(), cells[2].parse()) else {
            continue;
        };
        let (field, meaning) = (cells[4], cells[5]);
        let is_kept = meaning.starts_with("reserved")
            || [
                "reserved",
                "version",
                "features",
                "features_incompatible",
                "features_compatible",
            ]
            .contains(&field)
            || ["length", "header_bytes", "kind", "columns", "codecs"].contains(&field);
        if is_kept {
            let field = match meaning.starts_with("reserved") {
                true => "reserved",
                false => field,
            };
            rows.push(Kept {
                at,
                bytes,
                field: field.into(),
            });
        }
    }
    assert!(
        rows.len() >= 3,
        "{heading}: the page's table was not understood"
    );
    rows
}

/// What this version is to do with what another one wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Read,
    RefuseNewer,
    RefuseOlder,
}

use Expect::{Read, RefuseNewer, RefuseOlder};

impl Expect {
    /// Words of the refusal; none for what is read.
    fn words(self) -> Option<&'static str> {
        match self {
            Read => None,
            RefuseNewer => Some("written by a newer version of Thalweg"),
            RefuseOlder => Some(
                "written by an older version of Thalweg, whose format this one does not read: read the events out with \
                 that version, and push them to a server of this one with an empty data directory",
            ),
        }
    }
}

/// What another version may have put there: the place, the bytes, and what this version is to do.
fn fillings(row: &Kept) -> Vec<(usize, Vec<u8>, Expect)> {
    let bits = |from: usize, expect: Expect| {
        let set = move |bit: usize| (row.at, (1u32 << bit).to_le_bytes().to_vec(), expect);
        (from..32).map(set).collect()
    };
    let values = |values: &[u8]| {
        values
            .iter()
            .map(|value| (row.at, vec![*value], RefuseNewer))
            .collect()
    };
    match row.field.as_str() {
        "reserved" => (row.at..row.at + row.bytes)
            .map(|at| (at, vec![1], RefuseNewer))
            .collect(),
        "codecs" => (row.at..row.at + 3)
            .map(|at| (at, vec![1], RefuseNewer))
            .collect(),
        "version" => [0, 1, 3, 255]
            .map(|value: u8| match value < 2 {
                true => (row.at, vec![value], RefuseOlder),
                false => (row.at, vec![value], RefuseNewer),
            })
            .to_vec(),
        "kind" => values(&[0, 3, 4, 5, 9, 255]),
        "features" | "features_incompatible" => bits(0, RefuseNewer),
        "features_compatible" => bits(0, Read),
        // The lowest bit stands in every batch.
        "columns" => (7..32)
            .map(|bit| {
                (
                    row.at,
                    (1u32 | 1 << bit).to_le_bytes().to_vec(),
                    RefuseNewer,
                )
            })
            .collect(),
        // Lengths are tried by a test of their own.
        "length" | "header_bytes" => Vec::new(),
        other => panic!("{other}"),
    }
}

fn partition(directory: &Path, create: bool) -> OpenPartition {
    let mut open = open_partition(Durability::Synced, CONFIG, create);
    open.directory = directory.to_owned();
    open
}

/// A directory with a partition of several segments. The last was stopped without a word.
fn written(directory: &Path) {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
    let open = partition(directory, true);
    let (storage, _) = DiskKind::seeded(disk.clone(), 1).open(open).unwrap();
    let mut driven = Driven::new(storage, Some(disk));
    for number in 0..EVENTS {
        let stored = driven.append(origin(number), &[event(number)], Durability::Synced, 1);
        assert_eq!(stored, Ok(Offset(number)));
    }
}

fn event(number: u64) -> EventSpec {
    EventSpec {
        metadata: format!("{{\"angle\":{number}}}").into_bytes(),
        data: vec![number as u8; 200],
        external: false,
    }
}

fn files(directory: &Path) -> Files {
    let entries = std::fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
        .collect()
}

fn restore(directory: &Path, files: &Files) {
    for entry in std::fs::read_dir(directory).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for (path, bytes) in files {
        std::fs::write(path, bytes).unwrap();
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn seal(bytes: &mut [u8]) {
    let crc = crc32c(&bytes[8..]);
    put(bytes, 4, &crc.to_le_bytes());
}

/// Makes the checksums of a batch's header and stamp right again.
fn seal_batch(batch: &mut [u8], header_bytes: usize) {
    seal(&mut batch[STAMP_BYTES..STAMP_BYTES + header_bytes]);
    let crc = batch[STAMP_BYTES + 4..STAMP_BYTES + 8].to_vec();
    put(batch, 68, &crc);
    seal(&mut batch[..SHARED_STAMP_BYTES]);
    let crc = batch[4..8].to_vec();
    put(batch, SHARED_STAMP_BYTES + 4, &crc);
    let crc = crc32c(&batch[SHARED_STAMP_BYTES + 4..STAMP_BYTES]);
    put(batch, SHARED_STAMP_BYTES, &crc.to_le_bytes());
}

/// Where the batches of a segment's log lie.
fn batches(log: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 128);
    while let Ok(stamp) = Stamp::read(log.get(at..).unwrap_or_default()) {
        found.push(at..at + stamp.batch_bytes as usize);
        at += stamp.batch_bytes as usize;
    }
    found
}

/// A partition's directory with what is tried on it.
struct Subject {
    _directory: tempfile::TempDir,
    path: PathBuf,
    whole: Files,
    last: PathBuf,
    tried: usize,
}

impl Subject {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p");
        written(&path);
        let whole = files(&path);
        let logs = whole
            .keys()
            .filter(|path| path.extension().is_some_and(|it| it == "log"));
        let last = logs.max().unwrap().clone();
        assert!(batches(&whole[&last]).len() >= 2, "a snapshot and events");
        let subject = Self {
            _directory: directory,
            path,
            whole,
            last,
            tried: 0,
        };
        assert!(subject.open().is_ok());
        restore(&subject.path, &subject.whole);
        subject
    }

    fn open(&self) -> Result<Driven, String> {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
        let opened = DiskKind::seeded(disk.clone(), 2).open(partition(&self.path, false));
        opened
            .map(|(storage, _)| Driven::new(storage, Some(disk)))
            .map_err(|error| error.to_string())
    }

    /// Opens the partition with one file changed: it is refused and untouched, or all is read.
    fn try_with(
        &mut self,
        what: &str,
        file: &Path,
        expect: Expect,
        change: impl FnOnce(&mut Vec<u8>),
    ) {
        self.tried += 1;
        let mut bytes = self.whole[file].clone();
        change(&mut bytes);
        std::fs::write(file, &bytes).unwrap();
        let before = files(&self.path);
        match self.open() {
            Ok(mut driven) => {
                assert_eq!(expect, Read, "{what}: it was opened");
                let contents = driven.read_all(Offset(EVENTS), 1 << 20).unwrap();
                assert_eq!(contents.events.len() as u64, EVENTS, "{what}");
                assert_eq!(contents.gaps, [], "{what}");
                drop(driven);
            }
            Err(error) => {
                let words = expect.words().unwrap_or("is to be read");
                assert!(error.contains(words), "{what}: {error}");
                assert!(before == files(&self.path), "{what}: files were changed");
            }
        }
        restore(&self.path, &self.whole);
    }
}

#[test]
fn a_segment_of_a_later_version_is_refused_and_left_alone() {
    let mut subject = Subject::new();
    let logs: Vec<PathBuf> = subject
        .whole
        .keys()
        .filter(|path| path.extension().is_some_and(|it| it == "log"))
        .cloned()
        .collect();
    for file in [&logs[0], &logs[1], &subject.last.clone()] {
        for row in kept("## Segment header") {
            for (at, value, expect) in fillings(&row) {
                let what = format!("segment header of {file:?}, byte {at} is {value:?}");
                subject.try_with(&what, file, expect, |log| {
                    put(log, at, &value);
                    seal(&mut log[..128]);
                });
            }
        }
        for length in [64u16, 136, 256] {
            let what = format!("segment header of {length} bytes");
            subject.try_with(&what, file, RefuseNewer, |log| {
                log.splice(128..128, vec![0; usize::from(length).saturating_sub(128)]);
                put(log, 10, &length.to_le_bytes());
                seal(&mut log[..usize::from(length)]);
            });
        }
    }
    assert!(subject.tried > 3 * 80, "{} were tried", subject.tried);
}

#[test]
fn a_batch_of_a_later_version_is_refused_and_left_alone() {
    let mut subject = Subject::new();
    let last = subject.last.clone();
    for (number, place) in batches(&subject.whole[&last]).into_iter().enumerate() {
        for (heading, start) in [("### Stamp", 0), ("### Header", STAMP_BYTES)] {
            for row in kept(heading) {
                for (at, value, expect) in fillings(&row) {
                    let what = format!("{heading} of batch {number}, byte {at} is {value:?}");
                    subject.try_with(&what, &last, expect, |log| {
                        let batch = &mut log[place.clone()];
                        put(batch, start + at, &value);
                        seal_batch(batch, HEADER_BYTES);
                    });
                }
            }
        }
        for more in [8u16, 128] {
            let what = format!("header of batch {number} longer by {more}");
            subject.try_with(&what, &last, Read, |log| lengthen(log, place.clone(), more));
        }
    }
    assert!(subject.tried > 2 * 120, "{} were tried", subject.tried);
}

/// Gives a batch the longer header of a later version, all of whose new fields may be ignored.
fn lengthen(log: &mut Vec<u8>, place: std::ops::Range<usize>, more: u16) {
    let at = place.start + STAMP_BYTES + HEADER_BYTES;
    log.splice(at..at, vec![7; usize::from(more)]);
    let batch = &mut log[place.start..place.end + usize::from(more)];
    let header_bytes = HEADER_BYTES as u16 + more;
    put(batch, STAMP_BYTES + 10, &header_bytes.to_le_bytes());
    let batch_bytes = batch.len() as u64;
    put(batch, 8, &batch_bytes.to_le_bytes());
    seal_batch(batch, usize::from(header_bytes));
}

#[test]
fn a_sealed_segment_with_a_batch_of_a_later_version_is_not_taken_for_damaged() {
    let mut subject = Subject::new();
    let first = subject
        .whole
        .keys()
        .find(|path| path.extension().is_some_and(|it| it == "log"))
        .unwrap()
        .clone();
    let place = batches(&subject.whole[&first])[1].clone();
    for (heading, start) in [("### Stamp", 0), ("### Header", STAMP_BYTES)] {
        for row in kept(heading) {
            for (at, value, expect) in fillings(&row).into_iter().step_by(5) {
                let what = format!("{heading}, byte {at} is {value:?}");
                let mut log = subject.whole[&first].clone();
                put(&mut log[place.clone()], start + at, &value);
                seal_batch(&mut log[place.clone()], HEADER_BYTES);
                std::fs::write(&first, &log).unwrap();
                subject.tried += 1;
                // What recovery need not read is found by who reads it.
                let mut driven = subject.open().unwrap();
                match driven.read_all(Offset(EVENTS), 1 << 20) {
                    Ok(contents) => {
                        assert_eq!(
                            expect, Read,
                            "{what}: {:?}, {:?}",
                            contents.gaps, contents.damaged
                        );
                        assert_eq!(contents.gaps, [], "{what}");
                    }
                    Err(error) => {
                        let error = error.to_string();
                        let words = expect.words().unwrap_or("is to be read");
                        assert!(error.contains(words), "{what}: {error}");
                    }
                }
                drop(driven);
                assert!(
                    std::fs::read(&first).unwrap() == log,
                    "{what}: the segment was changed"
                );
                restore(&subject.path, &subject.whole);
            }
        }
    }
    assert!(subject.tried > 30);
}

#[test]
fn a_snapshot_of_a_later_version_is_refused_and_left_alone() {
    let mut subject = Subject::new();
    let last = subject.last.clone();
    let place = batches(&subject.whole[&last])[0].clone();
    let (header, _) = Header::read(&subject.whole[&last][place.start + STAMP_BYTES..]).unwrap();
    let metadata = STAMP_BYTES + HEADER_BYTES + header.columns_bytes as usize;
    for (at, value, expect) in [
        (0, 2u16, RefuseNewer),
        (0, 0xffff, RefuseNewer),
        (2, 0, RefuseOlder),
        (2, 2, RefuseNewer),
        (2, 0xffff, RefuseNewer),
    ] {
        let what = format!("snapshot, byte {at} is {value}");
        subject.try_with(&what, &last, expect, |log| {
            let batch = &mut log[place.clone()];
            put(batch, metadata + at, &value.to_le_bytes());
            let crc = crc32c(&batch[metadata..metadata + header.metadata_bytes as usize]);
            put(batch, STAMP_BYTES + 112, &crc.to_le_bytes());
            seal_batch(batch, HEADER_BYTES);
        });
    }
}

#[test]
fn a_checkpoint_of_a_later_version_is_refused_and_left_alone() {
    let mut subject = Subject::new();
    let file = subject.path.join("checkpoint");
    for start in [0, SLOT_DISTANCE] {
        for row in kept("## Checkpoint") {
            for (at, value, expect) in fillings(&row) {
                let what = format!("checkpoint at {start}, byte {at} is {value:?}");
                subject.try_with(&what, &file, expect, |bytes| {
                    let slot = &mut bytes[start..start + 256];
                    put(slot, at, &value);
                    seal(slot);
                });
            }
        }
        for length in [128u16, 512, 4096] {
            let what = format!("checkpoint at {start} of {length} bytes");
            subject.try_with(&what, &file, RefuseNewer, |bytes| {
                let end = start + usize::from(length);
                bytes.resize(bytes.len().max(end), 0);
                put(bytes, start + 10, &length.to_le_bytes());
                seal(&mut bytes[start..end]);
            });
        }
    }
    assert!(subject.tried > 2 * 60, "{} were tried", subject.tried);
}

#[test]
fn an_index_of_a_later_version_is_done_without() {
    let mut subject = Subject::new();
    let file = subject
        .whole
        .keys()
        .find(|path| path.extension().is_some_and(|it| it == "index"))
        .unwrap()
        .clone();
    for row in kept("## Index") {
        for (at, value, _) in fillings(&row) {
            let what = format!("index, byte {at} is {value:?}");
            subject.try_with(&what, &file, Read, |bytes| {
                put(bytes, at, &value);
                seal(bytes);
            });
        }
    }
    assert!(subject.tried > 30, "{} were tried", subject.tried);
}
