//! How a server starts where something is not as it was: full disks, moved directories.

use crate::rig;

use rig::Rig;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// A small file system in memory over a rig's directory, as long as it lives.
pub struct Tmpfs(PathBuf);

impl Tmpfs {
    /// `None` where this process may not mount.
    pub fn over(rig: &Rig, size: &str) -> Option<Self> {
        let path = rig.path("");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(&path)
            .output();
        if mount.is_ok_and(|ran| ran.status.success()) {
            return Some(Self(path));
        }
        eprintln!("skipped: a file system cannot be mounted here");
        None
    }

    /// Takes what space there is, to the last byte.
    pub fn fill(&self) {
        let mut file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.0.join("filler"))
            .unwrap();
        for piece in [64 << 10, 4096, 1] {
            while file.write_all(&vec![1; piece]).is_ok() {}
        }
    }

    /// Gives back a little of what was taken.
    fn shrink(&self) {
        let file = std::fs::File::options()
            .write(true)
            .open(self.0.join("filler"))
            .unwrap();
        let bytes = file.metadata().unwrap().len();
        file.set_len(bytes - (64 << 10)).unwrap();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Its processes may still be ending.
        let umount = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(umount.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
fn a_start_needs_no_free_byte() {
    let rig = Rig::default();
    let Some(disk) = Tmpfs::over(&rig, "16m") else {
        return;
    };
    let server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    rig.run_with(&["produce", "t"], "1\n2\n3\n").ok();
    server.kill();
    // Once after a death, where files were left behind, and once more.
    for name in ["first", "second"] {
        disk.fill();
        let server = rig.serve(&[]);
        server.wait_for_log("what a sync takes is not known");
        // A new consumer's cursor needs space, where what was read needs none.
        let summary = rig.run(&["audit", "--json"]).json().pop().unwrap();
        assert_eq!(summary["events"], 3, "{name}");
        server.kill();
    }
    // What makes space is done by Thalweg.
    disk.fill();
    let server = rig.serve(&[]);
    rig.run(&["topic", "delete", "t", "--yes"]).ok();
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
}

/// On a real file system that others have filled: producers, operators and the log say
/// so, and production goes on without a restart once a topic is deleted.
#[test]
fn a_full_disk_is_named_and_goes_on_when_a_topic_is_deleted() {
    let rig = Rig::default();
    let Some(disk) = Tmpfs::over(&rig, "16m") else {
        return;
    };
    let server = rig.serve(&[]);
    let line = format!("\"{}\"\n", "x".repeat(1000));
    for topic in ["old", "t"] {
        rig.run(&["topic", "create", topic]).ok();
        rig.run_with(&["produce", topic], line.repeat(3000)).ok();
    }
    disk.fill();
    let produce = ["produce", "t", "--timeout", "3"];
    let ran = rig.run_with(&produce, line.repeat(17_000));
    assert!(!ran.status.success());
    assert!(
        ran.stderr.contains("storage is full: t/0: "),
        "{}",
        ran.stderr
    );
    server.wait_for_log("t/0: storage is full");
    let status = rig.run(&["status", "--json"]).json().pop().unwrap();
    let topics = status["topics"].as_array().unwrap();
    let topic = topics.iter().find(|topic| topic["name"] == "t").unwrap();
    assert!(
        topic["partitions"][0]["full"]["since_ms"].as_u64() > Some(0),
        "{topic}"
    );
    assert!(status["file_system"]["total_bytes"].as_u64() >= Some(15 << 20));
    let text = rig.run(&["status"]).ok();
    assert!(text.contains("STORAGE IS FULL: t/0 for "), "{text}");
    rig.run(&["topic", "delete", "old", "--yes"]).ok();
    server.wait_for_log("t/0: storage has room again");
    rig.run_with(&produce, line.repeat(1000)).ok();
    // It is looked at now and then; here for as long as that takes.
    disk.fill();
    server.wait_for_log("the file system of the data directory is ");
    std::fs::remove_file(disk.0.join("filler")).unwrap();
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
}

/// The topic that filled the disk makes the space itself: what it has lies in one segment.
/// `log`'s tests of a lowered limit on a full disk cover the storage write by write.
#[test]
fn a_full_disk_goes_on_when_a_topic_is_to_keep_less() {
    let rig = Rig::default();
    let Some(disk) = Tmpfs::over(&rig, "16m") else {
        return;
    };
    let server = rig.serve(&[]);
    let line = format!("\"{}\"\n", "x".repeat(1000));
    rig.run(&["topic", "create", "t"]).ok();
    rig.run_with(&["produce", "t"], line.repeat(3000)).ok();
    disk.fill();
    let produce = ["produce", "t", "--timeout", "3"];
    let ran = rig.run_with(&produce, line.repeat(17_000));
    assert!(
        ran.stderr.contains("storage is full: t/0: "),
        "{}",
        ran.stderr
    );
    rig.run(&["topic", "alter", "t", "--retention", "1MB"]).ok();
    // There may not be one page for the next segment, without which nothing is dropped.
    disk.shrink();
    server.wait_for_log("t/0: storage has room again");
    rig.run_with(&produce, line.repeat(1000)).ok();
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
}

#[test]
fn a_directory_that_was_renamed_under_a_server_is_no_clean_end() {
    let rig = Rig::default();
    let server = rig.serve(&["--listen", "tcp://127.0.0.1:0"]);
    rig.run(&["topic", "create", "t"]).ok();
    rig.run_with(&["produce", "t"], "1\n2\n3\n").ok();
    std::fs::rename(rig.path("data"), rig.path("moved")).unwrap();
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("not everything was closed cleanly"), "{log}");
    std::fs::rename(rig.path("moved"), rig.path("data")).unwrap();
    let _server = rig.serve(&[]);
    assert_eq!(rig.run(&["consume", "t", "-n", "c"]).json().len(), 3);
}

#[test]
fn topics_that_vanished_are_findings_and_a_lost_table_is_refused_with_a_way_out() {
    let rig = Rig::default();
    let journal = |topic: &str| {
        rig.run_with(&["produce", topic, "--journal", "journal"], "1\n2\n3\n")
            .ok();
    };
    let audit = || rig.run(&["audit", "--journal", "journal", "--json"]);
    let server = rig.serve(&[]);
    for topic in ["kept", "deleted"] {
        rig.run(&["topic", "create", topic]).ok();
        journal(topic);
    }
    rig.run(&["topic", "delete", "deleted", "--yes"]).ok();
    let ran = audit().exits(0);
    assert!(
        ran.stderr.contains("topics that were deleted"),
        "{}",
        ran.stderr
    );
    server.terminate();

    std::fs::rename(rig.path("data/internal"), rig.path("internal")).unwrap();
    let ran = rig.run(&["serve", "data"]).exits(1);
    for words in [
        "nothing was changed",
        "`internal` is missing",
        "\"kept\"",
        "--accept-loss",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
    std::fs::rename(rig.path("data/topics"), rig.path("topics")).unwrap();
    let server = rig.serve(&["--accept-loss"]);
    let status = rig.run(&["status", "--interval", "0"]).ok();
    assert!(status.contains("SET ASIDE: lost+found/"), "{status}");
    let ran = audit().exits(3);
    assert!(
        ran.stdout.contains("no record says that it was deleted"),
        "{}",
        ran.stdout
    );
    server.terminate();

    // Put back, it is all there.
    std::fs::remove_dir_all(rig.path("data/internal")).unwrap();
    std::fs::rename(rig.path("internal"), rig.path("data/internal")).unwrap();
    for entry in std::fs::read_dir(rig.path("data/lost+found")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let (name, _) = name.rsplit_once('-').unwrap();
        std::fs::rename(&path, rig.path("data/partitions").join(name)).unwrap();
    }
    let _server = rig.serve(&[]);
    audit().exits(0);
}
