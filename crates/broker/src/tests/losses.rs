//! Starts on data directories of which something is lost, damaged, older or newer.

use super::harness::*;
use crate::node::Input;
use crate::{Fault, NodeError};
use bytes::Bytes;
use log::{Disk, FileId, Operation, Outcome};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wire::message::*;
use wire::record::GapReason;
use wire::*;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Every file, with its bytes.
pub(super) fn files(ground: &Ground) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = ground.disk.paths().into_iter();
    paths
        .map(|path| (path.clone(), ground.disk.content(&path).unwrap()))
        .collect()
}

pub(super) fn below(ground: &Ground, directory: &str) -> Vec<PathBuf> {
    let paths = ground.disk.paths().into_iter();
    paths.filter(|path| path.starts_with(directory)).collect()
}

fn open(ground: &Ground, path: &Path) -> FileId {
    let path = path.to_owned();
    match ground.disk.execute(Operation::Open { path }).unwrap() {
        Outcome::File(file) => file,
        _ => panic!(),
    }
}

fn remove(ground: &Ground, path: &Path) {
    let path = path.to_owned();
    ground.disk.execute(Operation::Remove { path }).unwrap();
}

pub(super) fn remove_all(ground: &Ground, directory: &str) {
    for path in below(ground, directory) {
        remove(ground, &path);
    }
    let path = directory.into();
    ground
        .disk
        .execute(Operation::RemoveDirectory { path })
        .unwrap();
}

pub(super) fn truncate(ground: &Ground, path: &Path, bytes: u64) {
    let file = open(ground, path);
    ground
        .disk
        .execute(Operation::SetLength { file, bytes })
        .unwrap();
    ground.disk.execute(Operation::Close { file }).unwrap();
}

pub(super) fn overwrite(ground: &Ground, path: &Path, position: u64, bytes: &[u8]) {
    let file = open(ground, path);
    let bytes = vec![Bytes::copy_from_slice(bytes)];
    ground
        .disk
        .execute(Operation::Write {
            file,
            position,
            bytes,
        })
        .unwrap();
    ground.disk.execute(Operation::Close { file }).unwrap();
}

/// Makes a directory hold these files and no others.
pub(super) fn restore(ground: &Ground, directory: &str, content: &BTreeMap<PathBuf, Vec<u8>>) {
    for path in below(ground, directory) {
        remove(ground, &path);
    }
    for (path, bytes) in content {
        let path = path.clone();
        let made = ground
            .disk
            .execute(Operation::Create { path: path.clone() })
            .unwrap();
        assert!(matches!(made, Outcome::File(_)));
        overwrite(ground, &path, 0, bytes);
    }
}

fn logs_in(ground: &Ground, directory: &str) -> Vec<PathBuf> {
    let paths = below(ground, directory).into_iter();
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .collect()
}

pub(super) fn internal_logs(ground: &Ground) -> Vec<PathBuf> {
    logs_in(ground, "/data/internal")
}

pub(super) fn fill(world: &mut World) {
    let link = world.connect();
    for (index, name) in NAMES.into_iter().enumerate() {
        let topic = world.create(link, name, "{}", &["disk"]).unwrap().topic;
        world.stored(link, topic, (5 + index as u128, 0), &[name, "more"]);
    }
}

pub(super) fn stop(mut world: World, ground: &mut Ground, cleanly: bool) {
    if cleanly {
        world.input(Input::Drain);
        assert!(world.drained);
    }
    drop(world);
    ground.kill();
}

/// All that the topics hold.
fn assert_whole(world: &mut World) {
    let link = world.connect();
    for name in NAMES {
        let description = world.describe(link, name).unwrap();
        assert_eq!(description.partitions[0].failure, "", "{name}");
        let subscription = world.subscribe(link, description.topic, "r", Start::Beginning);
        assert_eq!(world.texts(link, subscription), [name, "more"], "{name}");
    }
}

/// However often it is tried, the start is refused for a loss, in these words, and changes nothing.
fn assert_refused(ground: &mut Ground, words: &str, what: &str) {
    let before = files(ground);
    for start in 1..=3 {
        let error = ground.try_start().err();
        assert!(
            matches!(&error, Some(NodeError::Loss(text)) if text.contains(words)),
            "{what}, start {start}: {error:?}"
        );
        assert!(before == files(ground), "{what}: start {start} changed it");
        ground.kill();
    }
}

type Damage = fn(&Ground, &BTreeMap<PathBuf, Vec<u8>>);

/// What is done to `internal`; each is given what it held before the topics were made.
const DAMAGES: [(&str, Damage); 6] = [
    ("removed", |ground, _| remove_all(ground, "/data/internal")),
    ("an older copy", |ground, older| {
        restore(ground, "/data/internal", older);
    }),
    ("its logs deleted", |ground, _| {
        for path in internal_logs(ground) {
            remove(ground, &path);
        }
    }),
    ("truncated to nothing", |ground, _| {
        for path in internal_logs(ground) {
            truncate(ground, &path, 0);
        }
    }),
    ("truncated to its header", |ground, _| {
        for path in internal_logs(ground) {
            truncate(ground, &path, 128);
        }
    }),
    ("a byte flipped in the first topic's record", |ground, _| {
        let log = &internal_logs(ground)[0];
        let content = ground.disk.content(log).unwrap();
        let name = b"\x01\x00\x00\x00a";
        let at = content.windows(5).position(|bytes| bytes == name).unwrap();
        overwrite(ground, log, at as u64 + 4, b"x");
    }),
];

fn damaged(damage: Damage, cleanly: bool) -> Ground {
    let mut ground = Ground::new();
    stop(ground.start(), &mut ground, true);
    let older = files(&ground)
        .into_iter()
        .filter(|(path, _)| path.starts_with("/data/internal"))
        .collect();
    let mut world = ground.start();
    fill(&mut world);
    stop(world, &mut ground, cleanly);
    damage(&ground, &older);
    ground
}

#[test]
fn a_lost_or_older_internal_partition_is_refused_and_its_topics_can_be_rebuilt() {
    for (what, damage) in DAMAGES {
        for cleanly in [true, false] {
            let mut ground = damaged(damage, cleanly);
            assert_refused(&mut ground, "--accept-loss", what);
            ground.accept_loss = true;
            let mut world = ground.start();
            assert_whole(&mut world);
            let losses = world.node.status()["losses"].clone();
            assert_eq!(losses["damage"].as_array().unwrap().len(), 0, "{what}");
            stop(world, &mut ground, cleanly);
            ground.accept_loss = false;
            for _ in 0..2 {
                let mut world = ground.start();
                assert_eq!(world.report.lines, Vec::<String>::new(), "{what}");
                assert_whole(&mut world);
                stop(world, &mut ground, cleanly);
            }
        }
    }
}

/// Directories of earlier versions have no files of topics: nothing can be rebuilt, nothing goes.
#[test]
fn what_cannot_be_rebuilt_is_set_aside_whole() {
    for (what, damage) in DAMAGES {
        let mut ground = damaged(damage, true);
        remove_all(&ground, "/data/topics");
        remove(&ground, Path::new("/data/start.json"));
        let error = ground.try_start().err();
        assert!(matches!(error, Some(NodeError::Loss(_))), "{what}");
        ground.kill();
        let before = files(&ground);
        ground.accept_loss = true;
        let world = ground.start();
        let aside = world.node.status()["losses"]["lost_and_found"].clone();
        let aside = aside.as_array().unwrap().len();
        assert!(aside > 0, "{what}");
        stop(world, &mut ground, true);
        let after: Vec<Vec<u8>> = files(&ground).into_values().collect();
        for (path, bytes) in before {
            let is_event = path.starts_with("/data/partitions") && path.ends_with(".log");
            assert!(
                !is_event || after.contains(&bytes),
                "{what}: {path:?} is gone"
            );
        }
        // It stays until the operator removes it.
        ground.accept_loss = false;
        let world = ground.start();
        // The node serves everybody: it asks no file system what to say of it.
        let before = ground.disk.operation_count();
        let still = world.node.status()["losses"]["lost_and_found"].clone();
        assert_eq!(ground.disk.operation_count(), before, "{what}");
        assert_eq!(still.as_array().unwrap().len(), aside, "{what}");
    }
}

/// A planted deletion must be caught here.
pub(super) fn what_no_topic_names_stays(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    fill(&mut world);
    stop(world, &mut ground, true);
    remove_all(&ground, "/data/internal");
    remove_all(&ground, "/data/topics");
    let logs = |ground: &Ground| {
        let files = files(ground).into_iter();
        let logs = files.filter(|(path, _)| path.extension().is_some_and(|end| end == "log"));
        logs.map(|(_, bytes)| bytes).collect::<Vec<_>>()
    };
    let before = logs(&ground);
    ground.accept_loss = true;
    drop(ground.start());
    let after = logs(&ground);
    match before.iter().all(|log| after.contains(log)) {
        true => Ok(()),
        false => Err("events are deleted that no topic names".to_owned()),
    }
}

#[test]
fn a_loss_is_remembered_until_it_is_accepted() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a", "b"]);
    let cursor = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
    assert_eq!(world.error(link, cursor), None);
    let cursor = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 2));
    assert_eq!(world.error(link, cursor), None);
    stop(world, &mut ground, true);
    // Only a cursor is lost.
    let log = &logs_in(&ground, "/data/ledgers")[0];
    let content = ground.disk.content(log).unwrap();
    let last = content
        .windows(4)
        .rposition(|bytes| bytes == b"TWbh")
        .unwrap();
    overwrite(&ground, log, last as u64 + 130, b"\xff\xff\xff\xff");
    let losses = |world: &World| {
        let losses = world.node.status()["losses"].clone();
        losses["damage"].as_array().unwrap().len()
    };
    for _ in 0..3 {
        let world = ground.start();
        assert_eq!(losses(&world), 1);
        assert!(
            world
                .report
                .lines
                .iter()
                .any(|line| line.contains("lost records"))
        );
        stop(world, &mut ground, true);
    }
    ground.accept_loss = true;
    let world = ground.start();
    assert_eq!(losses(&world), 0);
    stop(world, &mut ground, true);
    ground.accept_loss = false;
    assert_eq!(losses(&ground.start()), 0);
}

#[test]
fn what_a_deleted_topic_left_is_removed_even_after_compaction() {
    let mut ground = Ground::new();
    ground.limits.internal_bytes_max = 16 * 1024;
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a"]);
    let left = files(&ground);
    let left: BTreeMap<_, _> = left
        .into_iter()
        .filter(|(path, _)| path.starts_with("/data/partitions"))
        .collect();
    let directory = left.keys().next().unwrap().parent().unwrap().to_owned();
    let name = TopicName { name: "t".into() };
    let deleted = world.request(link, Method::DeleteTopic, TopicId(0), &name, &[]);
    assert_eq!(world.error(link, deleted), None);
    // Until the record of the deletion is known by a snapshot alone.
    let kept = world.create(link, "kept", "{}", &["disk"]).unwrap().topic;
    world.stored(link, kept, (6, 0), &vec!["e"; 400]);
    for offset in 1..=400 {
        let moved = world.move_cursor(link, kept, CursorMove::Acknowledge, at(1, offset));
        assert_eq!(world.error(link, moved), None);
    }
    stop(world, &mut ground, false);
    let path = directory.clone();
    ground
        .disk
        .execute(Operation::CreateDirectory { path })
        .unwrap();
    restore(&ground, directory.to_str().unwrap(), &left);
    let world = ground.start();
    assert!(below(&ground, directory.to_str().unwrap()).is_empty());
    assert_eq!(
        world.node.status()["losses"]["deleted_topics"],
        serde_json::json!([topic.to_string()])
    );
}

#[test]
fn a_lost_first_segment_is_a_gap_for_whoever_begins_at_the_beginning() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.create_segmented(link, "t");
    for number in 0..40 {
        let text = format!("{number:0300}");
        world.stored(link, topic, (5, number), &[&text]);
    }
    stop(world, &mut ground, true);
    let mut logs = below(&ground, "/data/partitions");
    logs.retain(|path| path.extension().is_some_and(|end| end == "log"));
    assert!(logs.len() > 3);
    remove(&ground, &logs[0]);
    let base: u64 = logs[1]
        .file_stem()
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    for start in 0..3 {
        let mut world = ground.start();
        let link = world.connect();
        let consumer = format!("c{start}");
        let subscription = world.subscribe(link, topic, &consumer, Start::Beginning);
        let delivered = world.delivered(link, subscription);
        let Delivered::Gap(gap) = &delivered[0] else {
            panic!("start {start}: {:?}", delivered[0]);
        };
        assert_eq!(gap.reason, GapReason::Damaged, "start {start}");
        assert_eq!((gap.first.0, gap.end.0), (0, base), "start {start}");
        let texts = world.texts(link, subscription);
        assert_eq!(texts.len() as u64, 40 - base);
        stop(world, &mut ground, start != 1);
    }
}

#[test]
fn a_storage_of_another_topic_is_refused_and_stays_as_it_is() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    fill(&mut world);
    stop(world, &mut ground, true);
    let names = ground.directories();
    let path = |name: &str| PathBuf::from(format!("/data/partitions/{name}"));
    for (from, to) in [
        (&names[0], "x"),
        (&names[1], &names[0]),
        (&"x".into(), &names[1]),
    ] {
        let (from, to) = (path(from), path(to));
        ground.disk.execute(Operation::Rename { from, to }).unwrap();
    }
    let before = files(&ground);
    let mut world = ground.start();
    assert_eq!(world.report.failed.len(), 2);
    assert!(world.report.failed[0].contains("files of two partitions were exchanged"));
    let link = world.connect();
    let mut served = 0;
    for name in NAMES {
        let description = world.describe(link, name).unwrap();
        let produce = Produce {
            partition: PartitionIndex(0),
            durability: Durability::Synced,
            regions: Vec::new(),
        };
        let bytes = batch(description.topic, 9, 0, 0, &["n"]);
        let id = world.request(link, Method::Produce, description.topic, &produce, &bytes);
        match world.error(link, id) {
            None => served += 1,
            Some(error) => assert_eq!(error.code, ErrorCode::StorageFailed),
        }
    }
    assert_eq!(served, 1);
    stop(world, &mut ground, true);
    let after = files(&ground);
    for name in &names[..2] {
        let of = |files: &BTreeMap<PathBuf, Vec<u8>>| {
            let files = files
                .iter()
                .filter(|(file, _)| file.starts_with(path(name)));
            files
                .map(|(path, bytes)| (path.clone(), bytes.clone()))
                .collect::<Vec<_>>()
        };
        assert!(of(&before) == of(&after), "{name} was changed");
    }
}

#[test]
fn the_promise_of_this_file_has_a_fault_that_breaks_it() {
    assert_eq!(what_no_topic_names_stays(Ground::new()), Ok(()));
    let fault = Ground::with_fault(Fault::DeleteUnnamed);
    assert!(what_no_topic_names_stays(fault).is_err());
}

/// A ledger that is lost or older is refused as well; accepted, its topics and their events serve.
#[test]
fn a_lost_or_older_ledger_is_refused_and_the_topics_stay() {
    for (what, is_removed) in [("removed", true), ("an older copy", false)] {
        let mut ground = Ground::new();
        stop(ground.start(), &mut ground, true);
        let older = files(&ground)
            .into_iter()
            .filter(|(path, _)| path.starts_with("/data/ledgers"))
            .collect();
        let mut world = ground.start();
        fill(&mut world);
        let link = world.connect();
        let topic = world.describe(link, "a").unwrap().topic;
        let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 2));
        assert_eq!(world.error(link, moved), None);
        stop(world, &mut ground, true);
        match is_removed {
            true => remove_all(&ground, "/data/ledgers/0"),
            false => restore(&ground, "/data/ledgers/0", &older),
        }
        assert_refused(&mut ground, "`ledgers/0` is", what);
        ground.accept_loss = true;
        let mut world = ground.start();
        assert_whole(&mut world);
        let link = world.connect();
        assert_eq!(world.cursor(link, topic), None, "{what}");
        stop(world, &mut ground, true);
        ground.accept_loss = false;
        assert_eq!(ground.start().report.lines, Vec::<String>::new(), "{what}");
    }
}

/// The table is lost, and made again from the files of its topics: cursors of independent
/// consumers are in the ledger, and count.
#[test]
fn cursors_outlive_the_table() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    fill(&mut world);
    let link = world.connect();
    let topic = world.describe(link, "a").unwrap().topic;
    let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 2));
    assert_eq!(world.error(link, moved), None);
    stop(world, &mut ground, true);
    remove_all(&ground, "/data/internal");
    ground.accept_loss = true;
    let mut world = ground.start();
    assert_whole(&mut world);
    let link = world.connect();
    assert_eq!(world.cursor(link, topic), Some(at(1, 2)));
}

/// The power goes at any moment of a drain: what it has noted of how far the logs came is there
/// at the start, also where what was recorded had to survive a kill only.
#[test]
fn a_power_loss_amid_a_drain_is_no_lost_ledger() {
    let written = r#"{"durability":"written"}"#;
    let drained = |stop: Option<u64>| {
        let mut ground = Ground::new();
        let mut world = ground.start();
        let link = world.connect();
        let topic = world.create(link, "t", written, &["disk"]).unwrap().topic;
        world.stored(link, topic, (5, 0), &["a", "b"]);
        let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
        assert_eq!(world.error(link, moved), None);
        let first = ground.disk.operation_count();
        if let Some(stop) = stop {
            let fault = log::testing::Fault::Stop(0);
            ground.disk.fail_at(first + stop, fault);
        }
        world.input(Input::Drain);
        let count = ground.disk.operation_count() - first;
        drop(world);
        ground.power_loss(log::testing::Survival::Nothing);
        (count, ground)
    };
    let (count, _) = drained(None);
    for stop in 0..count {
        let (_, mut ground) = drained(Some(stop));
        let error = ground.try_start().err();
        assert!(error.is_none(), "stop {stop} of {count}: {error:?}");
    }
}
