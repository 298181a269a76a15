//! Bugs that are planted, to see that the harness finds them.

use super::*;
use log::testing::Contents;
use log::{Recovery, StorageState};
use std::path::{Path, PathBuf};
use wire::batch::{Batch, Header, LocalStamp, STAMP_BYTES, Stamp, Verify};
use wire::checksum::crc32c;
use wire::record::{Gap, GapReason};
use wire::*;

fn caught(plan: Plan, sabotage: Sabotage, word: &str) {
    let error = crash_everywhere(plan, sabotage).unwrap_err();
    assert!(error.contains(word), "{sabotage:?} was noticed as: {error}");
}

#[test]
fn a_skipped_sync_is_caught() {
    caught(SERIAL, Sabotage::SkipSync, "");
    caught(CONCURRENT, Sabotage::SkipSync, "");
}

#[test]
fn a_batch_that_is_durable_before_its_data_is_caught() {
    caught(SERIAL, Sabotage::LogBeforeData, "missing");
    caught(CONCURRENT, Sabotage::LogBeforeData, "missing");
}

#[test]
fn a_skipped_sync_of_the_directory_is_caught() {
    caught(SERIAL, Sabotage::SkipDirectorySync, "");
    caught(CONCURRENT, Sabotage::SkipDirectorySync, "");
}

#[test]
fn an_early_acknowledgement_is_caught() {
    caught(SERIAL, Sabotage::AckEarly, "missing");
    caught(WRITTEN, Sabotage::AckEarly, "missing");
}

#[test]
fn a_doubled_batch_is_caught() {
    let error = {
        let rig = Rig::new(FaultyDisk::new(), Sabotage::DoubleBatch);
        World::new(rig, SERIAL).run().unwrap_err()
    };
    assert!(error.contains("follows event"), "{error}");
}

/// A partition that was used and closed: its disk, its model.
fn used() -> (FaultyDisk, Model) {
    let rig = run(Plan {
        steps: 80,
        ..SERIAL
    });
    (rig.disk.fork(), rig.model.lock().unwrap().clone())
}

fn reopen(disk: FaultyDisk, model: &Model) -> (StorageState, Recovery, Contents) {
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let (driven, report, contents) =
        open_and_read(&disk, SERIAL, model, model.boot, u64::MAX).unwrap();
    (driven.storage.state(), report, contents)
}

/// The batches of a segment's log: where each begins, and its headers.
fn batches(log: &[u8]) -> Vec<(usize, Stamp, Header)> {
    let mut found = Vec::new();
    let mut at = 128;
    while let Some(bytes) = log.get(at..)
        && let Ok(batch) = Batch::read(bytes, Verify::Headers)
        && let Some(stamp) = batch.stamp
    {
        found.push((at, stamp, batch.header));
        at += stamp.batch_bytes as usize;
    }
    found
}

fn logs(disk: &FaultyDisk) -> Vec<PathBuf> {
    let mut paths = disk.paths();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    paths
}

fn write(disk: &FaultyDisk, path: &Path, position: u64, bytes: &[u8]) {
    let path = path.to_owned();
    let Ok(Outcome::File(file)) = disk.execute(Operation::Open { path }) else {
        panic!("the file is there");
    };
    let bytes = vec![bytes::Bytes::copy_from_slice(bytes)];
    let write = Operation::Write {
        file,
        position,
        bytes,
    };
    disk.execute(write).unwrap();
    disk.execute(Operation::SyncData { file }).unwrap();
}

#[test]
fn changed_bytes_that_no_checksum_betrays_are_caught() {
    let (disk, model) = used();
    let path = logs(&disk).remove(0);
    let log = disk.content(&path).unwrap();
    let (at, mut stamp, mut header) = batches(&log)[1];
    let metadata = STAMP_BYTES + 128 + header.columns_bytes as usize;
    let range = at + metadata..at + metadata + header.metadata_bytes as usize;
    let mut section = log[range.clone()].to_vec();
    *section.last_mut().unwrap() ^= 1;
    header.metadata_crc = crc32c(&section);
    let mut headers = vec![0; STAMP_BYTES + 128];
    header.write(&mut headers[STAMP_BYTES..]);
    (_, stamp.header_crc) = Header::read(&headers[STAMP_BYTES..]).unwrap();
    let local = LocalStamp::read(&log[at..]).unwrap().unwrap();
    stamp.write(&mut headers);
    local.write(&mut headers);
    write(&disk, &path, at as u64, &headers);
    write(&disk, &path, range.start as u64, &section);
    let (state, report, contents) = reopen(disk, &model);
    for allow in [Allow::Nothing, Allow::Flip, Allow::Lie] {
        let checked = model.check(Crash::Closed, allow, (&state, &report), &contents);
        assert!(checked.unwrap_err().contains("other bytes"));
    }
}

#[test]
fn a_deleted_segment_is_named_by_recovery_and_caught() {
    let (disk, model) = used();
    let paths = logs(&disk);
    assert!(paths.len() > 3, "{paths:?}");
    let path = paths[1].clone();
    disk.execute(Operation::Remove { path }).unwrap();
    let (state, report, contents) = reopen(disk, &model);
    assert!(
        !report.gaps.is_empty(),
        "recovery names the missing segment"
    );
    let check = |allow, report: &Recovery, contents: &Contents| {
        model.check(Crash::Closed, allow, (&state, report), contents)
    };
    assert!(check(Allow::Nothing, &report, &contents).is_err());
    check(Allow::Lie, &report, &contents).unwrap();
    // A recovery and a reader that say nothing of it.
    let silent = Contents {
        gaps: Vec::new(),
        ..contents
    };
    assert!(check(Allow::Lie, &Recovery::default(), &silent).is_err());
}

#[test]
fn a_forged_gap_is_caught() {
    let (disk, model) = used();
    let (state, mut report, contents) = reopen(disk, &model);
    let check =
        |allow, report: &Recovery| model.check(Crash::Closed, allow, (&state, report), &contents);
    check(Allow::Nothing, &report).unwrap();
    report.gaps.push(Gap {
        incarnation: Incarnation(1),
        first: state.first,
        end: state.first.plus(1),
        reason: GapReason::Damaged,
        time: 0,
    });
    for allow in [Allow::Nothing, Allow::Flip, Allow::Lie] {
        assert!(
            check(allow, &report)
                .unwrap_err()
                .contains("named as lost, and there")
        );
    }
}

#[test]
fn bits_flipped_anywhere_cost_one_batch_at_most_and_are_named() {
    let (disk, model) = used();
    let mut lost = 0;
    for path in disk.paths() {
        let bits = disk.content(&path).unwrap().len() as u64 * 8;
        let step = (bits / 150).max(1);
        for bit in (0..150).map(|i| i * step + i % 8) {
            if bit >= bits {
                continue;
            }
            let fork = disk.fork();
            fork.flip_bit(&path, bit);
            let (state, report, contents) = reopen(fork, &model);
            let checked = model.check(Crash::Closed, Allow::Flip, (&state, &report), &contents);
            let found =
                checked.unwrap_or_else(|error| panic!("bit {bit} of {}: {error}", path.display()));
            lost += usize::from(
                found.iter().filter(|key| key.is_none()).count() > state.first.0 as usize,
            );
        }
    }
    assert!(lost > 50, "only {lost} of the flipped bits were in events");
}
