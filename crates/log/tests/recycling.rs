//! What retention removes is written again: logs and data files alike, and no
//! reader and no recovery takes old bytes for new ones.

use log::testing::{Driven, EventSpec, FaultyDisk, Survival, open_partition, origin};
use log::*;
use std::path::Path;
use std::sync::Arc;
use wire::*;

const EVENTS: u64 = 60;

fn open(disk: &Arc<FaultyDisk>, create: bool) -> Driven {
    let config = r#"{"segment_bytes": 40000, "direct_bytes_min": 10000,
        "allocate_bytes_min": 256, "allocate_bytes_max": 512}"#;
    let mut open = open_partition(Durability::Synced, config, create);
    open.retention.bytes = Some(60_000);
    let (storage, _) = DiskKind::seeded(disk.clone(), 5).open(open).unwrap();
    Driven::new(storage, Some(disk.clone()))
}

fn event(number: u64) -> EventSpec {
    EventSpec {
        metadata: format!("event {number}").into_bytes(),
        // Of different lengths: places lie elsewhere in a file's second life.
        data: vec![number as u8; 3000 + 700 * (number % 5) as usize],
        external: true,
    }
}

fn is_data(path: &Path) -> bool {
    path.extension().is_some_and(|name| name == "data")
}

/// An event in a batch of its own.
fn append(driven: &mut Driven, number: u64, level: Durability) {
    let offset = driven.append(origin(number), &[event(number)], level, number);
    assert_eq!(offset.unwrap(), Offset(number));
}

/// How often this was done to a data file.
fn data_count(disk: &FaultyDisk, what: &str) -> usize {
    let trace = disk.trace();
    let traced = trace.iter().filter(|traced| traced.what == what);
    traced.filter(|traced| is_data(&traced.path)).count()
}

fn assert_kept(driven: &mut Driven) {
    let first = driven.storage.state().first;
    let contents = driven.read_all(Offset(EVENTS), 10_000).unwrap();
    let expected: Vec<_> = (first.0..EVENTS).map(|i| (Offset(i), event(i))).collect();
    assert!(contents.damaged.is_empty(), "{:?}", contents.damaged);
    assert!(contents.events == expected, "from {first} on");
}

#[test]
fn data_files_are_written_again_and_old_data_is_never_taken_for_new() {
    let disk = Arc::new(FaultyDisk::new());
    let mut driven = open(&disk, true);
    for number in 0..EVENTS {
        append(&mut driven, number, Durability::Synced);
    }
    assert!(driven.storage.state().first.0 > EVENTS / 2);
    let (created, renamed) = (data_count(&disk, "create"), data_count(&disk, "rename"));
    assert!(
        created <= 3 && renamed > created,
        "{created} made, {renamed} renamed"
    );
    assert_kept(&mut driven);
    for survival in [
        Survival::Nothing,
        Survival::All,
        Survival::Some(1),
        Survival::Some(2),
    ] {
        let fork = Arc::new(disk.fork());
        fork.power_loss(survival);
        assert_kept(&mut open(&fork, false));
    }
}

/// A partition of a `written` topic that keeps what is not acknowledged, and no more.
fn open_unfinished(disk: &Arc<FaultyDisk>, create: bool) -> Driven {
    let config =
        r#"{"segment_bytes": 40000, "allocate_bytes_min": 256, "allocate_bytes_max": 512}"#;
    let open = open_partition(Durability::Written, config, create);
    let (storage, _) = DiskKind::seeded(disk.clone(), 5).open(open).unwrap();
    Driven::new(storage, Some(disk.clone()))
}

fn new_unfinished() -> (Arc<FaultyDisk>, Driven) {
    let disk = Arc::new(FaultyDisk::new());
    let driven = open_unfinished(&disk, true);
    (disk, driven)
}

/// Everything before `offset` is acknowledged.
fn acknowledge(driven: &mut Driven, offset: u64) {
    let offset = Offset(offset);
    driven.storage.set_retention(Retention::default(), offset);
    driven
        .storage
        .remove_before(offset, wire::record::GapReason::Retention);
    driven.settle();
}

#[test]
fn what_is_done_with_is_written_again_without_having_been_synced() {
    let (disk, mut driven) = new_unfinished();
    for number in 0..EVENTS {
        append(&mut driven, number, Durability::Written);
        acknowledge(&mut driven, number.saturating_sub(3));
        // The process may die at any time: what is not acknowledged is there.
        let fork = Arc::new(disk.fork());
        fork.kill();
        let first = driven.storage.state().first.0;
        assert!(first <= number.saturating_sub(3));
        let mut again = open_unfinished(&fork, false);
        let contents = again.read_all(Offset(number + 1), 10_000).unwrap();
        assert!(contents.damaged.is_empty(), "{:?}", contents.damaged);
        let found = again.storage.state().first.0;
        let expected: Vec<_> = (found..=number).map(|i| (Offset(i), event(i))).collect();
        assert!(
            found <= first && contents.events == expected,
            "{found} to {number}"
        );
    }
    assert!(driven.storage.state().first.0 > EVENTS * 3 / 4);
    assert!(
        data_count(&disk, "create") <= 4,
        "{} data files were made",
        data_count(&disk, "create")
    );
    assert!(
        data_count(&disk, "rename") >= 4,
        "{} were written again",
        data_count(&disk, "rename")
    );
    assert_eq!(data_count(&disk, "sync data"), 0);
}

#[test]
fn after_a_power_loss_nothing_that_was_done_with_is_missed() {
    for number in 20..EVENTS {
        let (disk, mut driven) = new_unfinished();
        for number in 0..number {
            append(&mut driven, number, Durability::Written);
            acknowledge(&mut driven, number.saturating_sub(3));
        }
        for survival in [Survival::Nothing, Survival::All, Survival::Some(number)] {
            let fork = Arc::new(disk.fork());
            fork.power_loss(survival);
            let (storage, report) = DiskKind::seeded(fork.clone(), 5)
                .open(open_partition(
                    Durability::Written,
                    r#"{"segment_bytes": 40000}"#,
                    false,
                ))
                .unwrap();
            let damage = report
                .gaps
                .iter()
                .find(|gap| gap.reason == wire::record::GapReason::Damaged);
            assert!(
                damage.is_none(),
                "{number} events, {survival:?}: {damage:?}"
            );
            // What survived is whole.
            let mut again = Driven::new(storage, Some(fork));
            let state = again.storage.state();
            let contents = again.read_all(state.end, 10_000).unwrap();
            assert!(contents.damaged.is_empty(), "{:?}", contents.damaged);
            let expected: Vec<_> = (state.first.0..state.end.0)
                .map(|i| (Offset(i), event(i)))
                .collect();
            assert!(
                contents.events == expected,
                "{} to {}",
                state.first,
                state.end
            );
        }
    }
}

#[test]
fn a_synced_event_is_synced_although_those_before_it_are_gone() {
    let (disk, mut driven) = new_unfinished();
    for number in 0..EVENTS {
        let level = match number % 20 {
            19 => Durability::Synced,
            _ => Durability::Written,
        };
        append(&mut driven, number, level);
        let synced = driven.storage.state().synced;
        assert!(
            level < Durability::Synced || synced > Offset(number),
            "{number}: {synced}"
        );
        acknowledge(&mut driven, number);
        if level == Durability::Synced {
            let fork = Arc::new(disk.fork());
            fork.power_loss(Survival::Nothing);
            let mut again = open_unfinished(&fork, false);
            assert_eq!(again.storage.state().end, Offset(number + 1));
            let data = again.read_data(Offset(number)).unwrap();
            assert!(data == event(number).data);
        }
    }
    driven.storage.close();
    driven.settle();
    assert!(
        driven
            .take_events()
            .iter()
            .any(|event| matches!(event, StorageEvent::Closed))
    );
}

#[test]
fn data_that_was_just_written_is_not_read_back() {
    let (disk, mut driven) = new_unfinished();
    for number in 0..EVENTS {
        append(&mut driven, number, Durability::Written);
        let from = disk.operation_count() as usize;
        let data = driven.open_event(Offset(number)).unwrap();
        let half = data.bytes / 2;
        let parts = [(0, half), (half, data.bytes - half)];
        let parts = parts.map(|(offset, bytes)| wire::view::Segment { offset, bytes });
        let pieces = driven.read_parts_to_compare(&data, parts.to_vec()).unwrap();
        assert!(pieces.concat() == event(number).data, "event {number}");
        let reads = disk.trace().split_off(from);
        let reads = reads.iter().filter(|traced| traced.what == "read");
        let reads = reads.filter(|traced| is_data(&traced.path)).count();
        // Until somebody has read along nothing is kept for him.
        assert!(reads == 0 || number == 0, "event {number}: {reads} reads");
        // Who does not compare gets what lies on the disk, verified.
        assert!(driven.read_data(Offset(number)).unwrap() == event(number).data);
        acknowledge(&mut driven, number);
    }
}
