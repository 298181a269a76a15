//! Backups of data directories, and starts on them.

use crate::rig;

use rig::{Rig, json_lines, signal, wait};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Lines of numbers, as metadata.
fn numbers(range: std::ops::Range<u64>) -> String {
    range.map(|number| format!("{number}\n")).collect()
}

/// The metadata of each event that a consumer gets now. A gap that it meets is where a life has
/// ended, and has lost nothing.
fn consume(rig: &Rig, topic: &str, name: &str) -> Vec<u64> {
    let mut numbers = Vec::new();
    for line in rig.run(&["consume", topic, "-n", name]).json() {
        match line["metadata"].as_u64() {
            Some(number) => numbers.push(number),
            None => assert!(
                line["type"] == "gap" && line["first"] == line["end"],
                "{line}"
            ),
        }
    }
    numbers
}

/// Ends a load, however its test ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_backup_beside_a_load_has_all_that_was_acknowledged_and_goes_on() {
    const BEFORE: u64 = 5000;
    const MEANWHILE: u64 = 2000;
    let rig = Rig::default();
    let server = rig.serve(&[]);
    let small = ["--storage-config", r#"{"segment_bytes": 30000}"#];
    for (topic, durability) in [("w", "written"), ("s", "synced"), ("short", "written")] {
        let definition = format!(r#"{{"durability": "{durability}"}}"#);
        let create = ["topic", "create", topic, "--definition", &definition];
        rig.run(&[&create[..], &small].concat()).ok();
        rig.run_with(&["produce", topic], numbers(0..BEFORE)).ok();
    }
    rig.run(&["topic", "alter", "short", "--retention", "100KiB"])
        .ok();
    assert_eq!(consume(&rig, "w", "done").len() as u64, BEFORE);
    rig.run(&["consume", "s", "-n", "half", "--max", "2500"])
        .ok();

    let over = AtomicBool::new(false);
    let copies: Vec<Rig> = std::thread::scope(|scope| {
        let (rig, over) = (&rig, &over);
        for topic in ["w", "s", "short"] {
            scope.spawn(move || {
                let mut next = BEFORE;
                while !over.load(Ordering::Relaxed) {
                    let lines = numbers(next..next + MEANWHILE);
                    // Each time in another epoch of the same producer.
                    let name = ["produce", topic, "--name", "load"];
                    rig.run_with(&name, lines).ok();
                    next += MEANWHILE;
                }
            });
        }
        let _ends = Ends(over);
        // Its cursor moves on all the while, also beyond what a backup has of the topic.
        let mut follower = rig
            .thalweg(&[
                "consume",
                "w",
                "-n",
                "done",
                "--follow",
                "--reconnect-timeout",
                "5",
            ])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let copies = (0..5).map(|round| {
            let copy = Rig::default();
            let to = copy.path("data");
            let lines = rig
                .run(&["backup", "data", to.to_str().unwrap(), "--json"])
                .json();
            let whole = lines.last().unwrap();
            assert_eq!(whole["topics"], 3, "round {round}: {lines:?}");
            let of = |topic: &str| lines.iter().find(|line| line["topic"] == topic).unwrap();
            for topic in ["w", "s"] {
                assert!(of(topic)["events"].as_u64() >= Some(BEFORE), "{lines:?}");
            }
            copy
        });
        let copies = copies.collect();
        over.store(true, Ordering::Relaxed);
        signal(follower.id(), Signal::INT);
        assert!(wait(&mut follower).success());
        copies
    });

    for copy in &copies {
        // The original still has its server: the copy is another directory.
        let restored = copy.serve(&[]);
        for topic in ["w", "s"] {
            let found = consume(copy, topic, "fresh");
            let expected: Vec<u64> = (0..found.len() as u64).collect();
            assert!(
                found == expected && found.len() as u64 >= BEFORE,
                "{topic}: {}",
                found.len()
            );
        }
        // What is pushed to the copy reaches consumers that were ahead of it.
        let rest = consume(copy, "w", "done");
        copy.run_with(&["produce", "w"], numbers(1_000_000..1_000_100))
            .ok();
        let new: Vec<u64> = (1_000_000..1_000_100).collect();
        assert_eq!(
            consume(copy, "w", "done"),
            new,
            "after {} events",
            rest.len()
        );
        assert_eq!(consume(copy, "s", "half").first(), Some(&2500));
        // The producer's next epoch is new to the partition as well: nothing of it is taken for known.
        let load = ["produce", "s", "--name", "load"];
        copy.run_with(&load, numbers(2_000_000..2_000_100)).ok();
        let new: Vec<u64> = (2_000_000..2_000_100).collect();
        assert_eq!(consume(copy, "s", "half"), new);
        copy.run(&["audit"]).exits(0);
        let (status, log) = restored.terminate();
        assert!(status.success(), "{log}");
        // And again, without a word about losses.
        let restored = copy.serve(&[]);
        copy.run_with(&["produce", "s"], "7\n").ok();
        let (status, log) = restored.terminate();
        assert!(status.success() && !log.contains("lost"), "{log}");
    }
    rig.run(&["audit"]).exits(0);
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
}

#[test]
fn a_backup_of_a_directory_at_rest_has_an_id_and_a_token_of_its_own() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    rig.run(&["topic", "create", "t", "--partitions", "3"]).ok();
    rig.run(&["topic", "create", "m", "--storage", "memory"])
        .ok();
    rig.run_with(&["produce", "t"], numbers(0..100)).ok();
    server.terminate();
    let copy = Rig::default();
    let to = copy.path("data");
    let text = rig.run(&["backup", "data", to.to_str().unwrap()]).ok();
    assert!(
        text.contains("2 topics, 4 partitions, 100 events"),
        "{text}"
    );
    for name in ["directory.json", "token"] {
        let of = |rig: &Rig| std::fs::read(rig.path("data").join(name)).unwrap();
        assert_ne!(of(&rig), of(&copy), "{name}");
    }
    // A second one needs another place.
    let refused = rig.run(&["backup", "data", to.to_str().unwrap()]).exits(1);
    assert!(
        refused.stderr.contains("is not empty"),
        "{}",
        refused.stderr
    );
    let _both = (rig.serve(&[]), copy.serve(&[]));
    assert_eq!(consume(&copy, "t", "c").len(), 100);
}

/// The log of the partition that `rig` has, and its bytes.
fn log_with_events(rig: &Rig) -> (PathBuf, Vec<u8>) {
    let mut logs = rig::files(&rig.path("data").join("partitions"));
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    let logs = logs.into_iter().map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        (path, bytes)
    });
    logs.max_by_key(|(_, bytes)| bytes.len()).unwrap()
}

#[test]
fn an_audit_finds_damage_in_a_backup_as_in_its_original() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    rig.run_with(&["produce", "t", "--batch-count", "10"], numbers(0..3000))
        .ok();
    server.terminate();
    for truncate in [true, false] {
        let copy = Rig::default();
        let to = copy.path("data");
        rig.run(&["backup", "data", to.to_str().unwrap()]).ok();
        let (log, mut bytes) = log_with_events(&copy);
        let middle = bytes.len() / 2;
        match truncate {
            true => bytes.truncate(middle),
            false => bytes[middle..middle + 4]
                .iter_mut()
                .for_each(|b| *b ^= 0xff),
        }
        std::fs::write(log, bytes).unwrap();

        let _server = copy.serve(&[]);
        // The first reader gets an error, and so the gap is recorded.
        let read = copy.run(&["consume", "t", "-n", "c"]).json();
        let told = read.iter().filter(|line| line["reason"] == "damaged");
        let told: Vec<_> = told.map(|gap| (&gap["first"], &gap["end"])).collect();
        assert_eq!(told.len(), 1, "truncated: {truncate}: {told:?}");
        wait_for_gap(&copy);
        let lines = json_lines(&copy.run(&["audit", "--json"]).exits(3).stdout);
        let found = lines.iter().filter(|line| line["type"] == "finding");
        let found: Vec<_> = found.collect();
        assert_eq!(found.len(), 1, "truncated: {truncate}: {found:?}");
        let [finding] = found[..] else { unreachable!() };
        assert_eq!(
            (&finding["kind"], (&finding["first"], &finding["end"])),
            (&"lost".into(), told[0]),
            "truncated: {truncate}: {finding}"
        );
        let gaps = copy.run(&["gaps", "t", "--json"]).json();
        let gap = gaps.iter().find(|gap| gap["reason"] == "damaged").unwrap();
        assert_eq!(finding["incarnation"], gap["incarnation"], "{finding}");
    }
}

#[test]
fn a_backup_of_a_damaged_partition_says_what_it_lacks() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    let small = ["--storage-config", r#"{"segment_bytes": 30000}"#];
    rig.run(&[&["topic", "create", "t"][..], &small].concat())
        .ok();
    rig.run_with(&["produce", "t", "--batch-count", "10"], numbers(0..3000))
        .ok();
    server.terminate();
    let mut logs = rig::files(&rig.path("data").join("partitions"));
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    assert!(logs.len() > 3, "{logs:?}");
    std::fs::remove_file(&logs[1]).unwrap();
    let copy = Rig::default();
    let to = copy.path("data");
    let backup = ["backup", "data", to.to_str().unwrap(), "--json"];
    let told = rig.run(&backup).exits(3);
    assert!(
        told.stderr.contains("events are missing: t/0: ") && told.stderr.contains("(damaged)"),
        "{}",
        told.stderr
    );
    let events = json_lines(&told.stdout)[0]["events"].as_u64().unwrap();
    let _server = copy.serve(&[]);
    let read = copy.run(&["consume", "t", "-n", "c"]).json();
    let read = read.iter().filter(|line| line["metadata"].is_u64()).count();
    assert_eq!(events, read as u64);

    // One in which the events end.
    let log = logs.last().unwrap();
    std::fs::remove_file(log).unwrap();
    let away = copy.path("away");
    let refused = rig
        .run(&["backup", "data", away.to_str().unwrap()])
        .exits(1);
    let words = format!("{} is missing", log.file_name().unwrap().to_str().unwrap());
    assert!(refused.stderr.contains(&words), "{}", refused.stderr);
    assert!(!away.join("directory.json").exists());
}

/// The directories of partitions that a backup has, and what it says that it has not.
fn back_up(rig: &Rig, meanwhile: impl Fn()) -> Result<(Vec<PathBuf>, Vec<String>), String> {
    let copy = tempfile::tempdir().unwrap();
    let to = copy.path().join("data");
    let backup = server::back_up(&rig.path("data"), &to, |partitions, _| {
        if partitions == 1 {
            meanwhile();
        }
    });
    let backup = backup.map_err(|error| error.to_string())?;
    let partitions = std::fs::read_dir(to.join("partitions")).unwrap();
    let partitions = partitions.map(|entry| entry.unwrap().path()).collect();
    Ok((partitions, backup.left_out))
}

#[test]
fn a_topic_that_is_deleted_during_a_backup_is_left_out_with_a_line() {
    const TOPICS: [&str; 3] = ["a", "b", "c"];
    let rig = Rig::default();
    let server = rig.serve(&[]);
    for topic in TOPICS {
        rig.run(&["topic", "create", topic]).ok();
        rig.run_with(&["produce", topic], numbers(0..100)).ok();
    }
    let deleting = || {
        for topic in TOPICS {
            rig.run(&["topic", "delete", topic, "--yes"]).ok();
        }
        // A topic is gone before its files are.
        let files = rig.path("data/partitions");
        while std::fs::read_dir(&files).unwrap().next().is_some() {
            std::thread::yield_now();
        }
    };
    let (partitions, left_out) = back_up(&rig, deleting).unwrap();
    // Which one came first depends on their ids.
    assert_eq!((partitions.len(), left_out.len()), (1, 2), "{left_out:?}");
    for line in left_out {
        let is_told = |topic: &&str| line.contains(&format!("topic {topic} was deleted"));
        assert!(TOPICS.iter().any(is_told), "{line}");
    }
    drop(server);
}

/// Files of partitions go one by one.
#[test]
fn a_topic_whose_deletion_is_under_way_is_left_out_too() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    for topic in ["a", "b"] {
        rig.run(&["topic", "create", topic]).ok();
        rig.run_with(&["produce", topic], numbers(0..100)).ok();
    }
    server.terminate();
    let deleting = || {
        let data = rig.path("data");
        for path in rig::files(&data.join("partitions")) {
            if path.extension().is_some_and(|extension| extension == "log") {
                std::fs::remove_file(path).unwrap();
            }
        }
        for path in rig::files(&data.join("topics")) {
            std::fs::remove_file(path).unwrap();
        }
    };
    let (partitions, left_out) = back_up(&rig, deleting).unwrap();
    assert_eq!((partitions.len(), left_out.len()), (1, 1), "{left_out:?}");
    assert!(
        left_out[0].contains("was deleted meanwhile"),
        "{left_out:?}"
    );
}

#[test]
fn a_server_that_starts_during_a_backup_ends_it_though_it_is_gone_again() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    for topic in ["a", "b"] {
        rig.run(&["topic", "create", topic]).ok();
    }
    // One that was there may end.
    let server = std::cell::Cell::new(Some(server));
    let ending = || drop(server.take().unwrap().terminate());
    let (partitions, _) = back_up(&rig, ending).unwrap();
    assert_eq!(partitions.len(), 2);
    let starting = || drop(rig.serve(&[]).terminate());
    let refused = back_up(&rig, starting).unwrap_err();
    assert!(refused.contains("a server started on it"), "{refused}");
}

/// Waits until a gap of damage is recorded, which the reader that met it does not wait for.
fn wait_for_gap(rig: &Rig) {
    let is_there = || {
        let gaps = rig.run(&["gaps", "t", "--json"]).json();
        gaps.iter().any(|gap| gap["reason"] == "damaged")
    };
    let deadline = Instant::now() + rig::WATCHDOG;
    while !is_there() {
        assert!(Instant::now() < deadline, "no gap is recorded");
    }
}

#[test]
fn what_is_no_data_directory_is_not_copied_and_a_backup_lies_outside() {
    let rig = Rig::default();
    std::fs::create_dir(rig.path("thesis")).unwrap();
    let refused = rig.run(&["backup", "thesis", "copy"]).exits(1);
    assert!(
        refused.stderr.contains("it is no data directory"),
        "{}",
        refused.stderr
    );
    assert!(!rig.path("copy").exists());
    rig.serve(&[]).terminate();
    let refused = rig.run(&["backup", "data", "data/copy"]).exits(1);
    assert!(
        refused.stderr.contains("lies in the directory"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_copy_by_hand_does_not_start_beside_its_original() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([rig.path("data"), rig.path("copy")])
        .status()
        .unwrap();
    assert!(copied.success());
    let refused = rig.run(&["serve", "copy"]).exits(1);
    for words in [
        "it is a copy of",
        "thalweg backup",
        &format!("process {}", server.pid()),
    ] {
        assert!(
            refused.stderr.contains(words),
            "{words}: {}",
            refused.stderr
        );
    }
    let checked = rig.run(&["serve", "copy", "--check"]).exits(1);
    assert!(
        checked.stdout.contains("it is a copy of"),
        "{}",
        checked.stdout
    );
    // Where no server has the original a start goes on, and says so; so does the check.
    server.terminate();
    let checked = rig.run(&["serve", "copy", "--check"]).ok();
    let caution = |line: &&str| line.starts_with("warning  directory: ");
    let cautions: Vec<_> = checked.lines().filter(caution).collect();
    assert!(
        cautions.iter().any(|line| line.contains("it is a copy of")),
        "{checked}"
    );
}
