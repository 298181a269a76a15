//! Files of a data directory that another version wrote: the start is refused, and no file changes.

use super::harness::*;
use super::losses::{below, files, fill, internal_logs, overwrite, stop};
use std::path::{Path, PathBuf};
use wire::batch::{Batch, HEADER_BYTES, Header, SHARED_STAMP_BYTES, STAMP_BYTES, Verify};
use wire::checksum::crc32c;

/// The first line with its checksum, as of a file of two lines.
fn two_lines(line: &str) -> Vec<u8> {
    format!("{line}\n{:08x}\n", crc32c(line.as_bytes())).into_bytes()
}

fn assert_refused(ground: &mut Ground, what: &str, by: &str) {
    let before = files(ground);
    for accept_loss in [false, true] {
        ground.accept_loss = accept_loss;
        let error = match ground.try_start() {
            Ok(_) => panic!("{what}: started"),
            Err(error) => error.to_string(),
        };
        assert!(
            error.contains(&format!("written by {by} version of Thalweg")),
            "{what}: {error}"
        );
        assert!(before == files(ground), "{what}: files were changed");
    }
    ground.accept_loss = false;
}

#[test]
fn a_file_of_two_lines_of_a_later_version_is_refused() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    fill(&mut world);
    stop(world, &mut ground, true);
    let mut paths = below(&ground, "/data/topics");
    paths.push(PathBuf::from("/data/start.json"));
    paths.push(PathBuf::from("/data/used-tokens.json"));
    assert_eq!(paths.len(), 5);
    for path in paths {
        let whole = ground.disk.content(&path).unwrap();
        let text = String::from_utf8(whole.clone()).unwrap();
        let line = text.lines().next().unwrap();
        assert!(line.contains("\"format\":1"));
        for format in ["2", "0", "\"1\"", "null"] {
            let line = line.replace("\"format\":1", &format!("\"format\":{format}"));
            replace(&ground, &path, &two_lines(&line));
            assert_refused(
                &mut ground,
                &format!("{} of format {format}", path.display()),
                "a newer",
            );
        }
        // A form that has nothing in common but its format.
        replace(&ground, &path, &two_lines("{\"format\":3}"));
        assert_refused(&mut ground, &path.display().to_string(), "a newer");
        replace(&ground, &path, &whole);
    }
    stop(ground.start(), &mut ground, true);
}

fn replace(ground: &Ground, path: &Path, bytes: &[u8]) {
    super::losses::truncate(ground, path, 0);
    overwrite(ground, path, 0, bytes);
}

#[test]
fn an_internal_record_of_a_later_version_is_refused() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    fill(&mut world);
    stop(world, &mut ground, true);
    let log = internal_logs(&ground)[0].clone();
    let whole = ground.disk.content(&log).unwrap();
    let mut tried = 0;
    for (start, record) in records(&whole) {
        for (at, value, by) in [
            (0, 200u16, "a newer"),
            (0, 0, "a newer"),
            (2, 0, "an older"),
            (2, 2, "a newer"),
            (2, 0xffff, "a newer"),
        ] {
            let mut bytes = whole.clone();
            put(&mut bytes, record + at, &value.to_le_bytes());
            seal(&mut bytes[start..]);
            replace(&ground, &log, &bytes);
            assert_refused(
                &mut ground,
                &format!("record at {record}, byte {at} is {value}"),
                by,
            );
            tried += 1;
        }
    }
    assert_eq!(tried, 3 * 5, "each topic has a batch of records");
    replace(&ground, &log, &whole);
    stop(ground.start(), &mut ground, true);
}

/// Where the batches of events of a log begin, and where in the log their first record does.
fn records(log: &[u8]) -> Vec<(usize, usize)> {
    let (mut found, mut at) = (Vec::new(), 128);
    while let Ok(batch) = Batch::read(log.get(at..).unwrap_or_default(), Verify::Headers) {
        let sections = STAMP_BYTES + HEADER_BYTES;
        if batch.header.kind == wire::batch::BatchKind::Events {
            found.push((at, at + sections + batch.header.columns_bytes as usize));
        }
        at += batch.header.batch_bytes() as usize;
    }
    found
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Makes the checksums of the batch at the start of `bytes` right again.
fn seal(bytes: &mut [u8]) {
    let (header, _) = Header::read(&bytes[STAMP_BYTES..]).unwrap();
    let metadata = STAMP_BYTES + HEADER_BYTES + header.columns_bytes as usize;
    let crc = crc32c(&bytes[metadata..metadata + header.metadata_bytes as usize]);
    put(bytes, STAMP_BYTES + 112, &crc.to_le_bytes());
    let crc = crc32c(&bytes[STAMP_BYTES + 8..STAMP_BYTES + HEADER_BYTES]);
    put(bytes, STAMP_BYTES + 4, &crc.to_le_bytes());
    put(bytes, 68, &crc.to_le_bytes());
    let crc = crc32c(&bytes[8..SHARED_STAMP_BYTES]);
    put(bytes, 4, &crc.to_le_bytes());
    put(bytes, SHARED_STAMP_BYTES + 4, &crc.to_le_bytes());
    let crc = crc32c(&bytes[SHARED_STAMP_BYTES + 4..STAMP_BYTES]);
    put(bytes, SHARED_STAMP_BYTES, &crc.to_le_bytes());
}
