//! What an operator does with a server besides running it: settings looked at and checked.

use crate::rig;

use rig::{Rig, files};
use serde_json::Value;

/// What `serve --check` found, by subject: the verdict and what it says.
fn findings(lines: &[Value], subject: &str) -> Vec<(String, String)> {
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    lines
        .iter()
        .filter(|line| line["subject"] == subject)
        .map(|line| (text(line, "verdict"), text(line, "what")))
        .collect()
}

#[test]
fn a_check_says_what_a_start_would_meet_and_changes_nothing() {
    let rig = Rig::default();
    let check = |more: &[&str]| rig.run(&[&["serve", "data", "--check", "--json"], more].concat());
    let lines = check(&[]).json();
    let found = &findings(&lines, "directory")[0];
    assert_eq!(found.0, "ok");
    assert!(found.1.contains("is made by the start"), "{found:?}");
    assert!(!rig.path("data").exists());

    let server = rig.serve(&["--listen", "tcp://127.0.0.1:0"]);
    let port = server.endpoints()[0].clone();
    let before = files(&rig.path(""));
    let ran = check(&[]).exits(6);
    assert!(
        ran.stdout.contains(&format!("process {} on", server.pid())),
        "{}",
        ran.stdout
    );
    assert_eq!(files(&rig.path("")), before);
    // Another directory, whose address is taken.
    let other = ["serve", "other", "--check", "--listen", &port];
    let ran = rig.run(&other).exits(1);
    assert!(ran.stdout.contains("error    listen: "), "{}", ran.stdout);
    assert!(ran.stdout.contains(&port), "{}", ran.stdout);
    // What is wrong besides that a server runs is worse than that.
    let ran = check(&["--group-file", "nowhere/thalweg.json"]).exits(1);
    assert!(
        ran.stdout.contains("nowhere/thalweg.json"),
        "{}",
        ran.stdout
    );

    // The server did not notice, and its end leaves what starts again.
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
    let before = files(&rig.path(""));
    // Its socket has the path that a start gives it, however the directory is named.
    let named = rig.run(&["serve", "./data/../data", "--check"]).ok();
    let socket = rig
        .path("data")
        .canonicalize()
        .unwrap()
        .join("thalweg.sock");
    let line = format!("unix://{} is free", socket.display());
    assert!(named.contains(&line), "{named}");
    let lines = check(&["--listen", &port]).json();
    assert!(
        findings(&lines, "listen")
            .iter()
            .all(|found| found.0 == "ok"),
        "{lines:?}"
    );
    assert_eq!(files(&rig.path("")), before);
}

#[test]
fn a_check_refuses_what_a_start_refuses_of_the_records() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    rig.run_with(&["produce", "t"], "1\n2\n").ok();
    rig.run(&["consume", "t", "-n", "c", "--max", "1"]).ok();
    server.terminate();
    let check = |more: &[&str]| rig.run(&[&["serve", "data", "--check"], more].concat());
    check(&[]).ok();
    for (name, log) in [("internal", "internal"), ("ledgers", "ledgers/0")] {
        std::fs::rename(rig.path("data").join(name), rig.path("away")).unwrap();
        let before = files(&rig.path(""));
        let ran = check(&[]).exits(1);
        let what = format!("`{log}` is missing or empty: it had ");
        assert!(ran.stdout.contains(&what), "{}", ran.stdout);
        // Where the loss is accepted, the start goes on, and so does the check.
        let accepted = check(&["--accept-loss"]).exits(0);
        assert!(accepted.stdout.contains(&what), "{}", accepted.stdout);
        assert_eq!(files(&rig.path("")), before);
        // In the words of the start, with what to do about it.
        let refused = rig.run(&["serve", "data"]).exits(1);
        let told = refused.stderr.lines();
        let told: Vec<&str> = told
            .skip_while(|line| !line.contains("is refused"))
            .collect();
        assert!(told.len() > 2, "{}", refused.stderr);
        for line in &told[1..] {
            assert!(ran.stdout.contains(line), "{line}: {}", ran.stdout);
        }
        std::fs::rename(rig.path("away"), rig.path("data").join(name)).unwrap();
    }
    check(&[]).ok();
    rig.serve(&[]).terminate();
}

#[test]
fn a_check_names_what_is_wrong() {
    let rig = Rig::default();
    std::fs::write(rig.path("thalweg.toml"), "disk_thread = 2\n").unwrap();
    let ran = rig.run(&["serve", "--check", "--config", "thalweg.toml"]);
    assert!(ran.exits(2).stderr.contains("did you mean `disk_threads`?"));
    std::fs::create_dir(rig.path("thesis")).unwrap();
    std::fs::write(rig.path("thesis/thesis.tex"), "x").unwrap();
    let ran = rig.run(&["serve", "thesis", "--check"]).exits(1);
    assert!(
        ran.stdout.contains("it is no data directory"),
        "{}",
        ran.stdout
    );
    let ran = rig.run(&["serve", "data", "--check", "--memory-bytes-max", "1000TiB"]);
    let text = ran.ok();
    assert!(text.contains("warning  memory: "), "{text}");
    let socket = format!("unix://{}", rig.path("thesis/thesis.tex").display());
    let ran = rig
        .run(&["serve", "data", "--check", "--listen", &socket])
        .exits(1);
    assert!(ran.stdout.contains("is no socket"), "{}", ran.stdout);
    // A variable that nobody reads, as its author may not know.
    let mut checked = rig.thalweg(&["serve", "data", "--check"]);
    let checked = checked.env("THALWEG_DISK_THREAD", "2").output().unwrap();
    let text = String::from_utf8(checked.stdout).unwrap();
    let meant =
        "environment: THALWEG_DISK_THREAD is no setting; did you mean THALWEG_DISK_THREADS?";
    assert!(text.contains(&format!("warning  {meant}")), "{text}");
}

#[test]
fn settings_are_shown_with_where_they_come_from() {
    let rig = Rig::default();
    std::fs::write(
        rig.path("thalweg.toml"),
        "disk_threads = 2\nheartbeat_ms = 500\n",
    )
    .unwrap();
    let shown = rig
        .thalweg(&[
            "config",
            "show",
            "--config",
            "thalweg.toml",
            "--json",
            "--spin-us",
            "5",
        ])
        .env("THALWEG_HEARTBEAT_MS", "600")
        .output()
        .unwrap();
    assert!(shown.status.success(), "{shown:?}");
    let rows = rig::json_lines(&String::from_utf8(shown.stdout).unwrap());
    let row = |key: &str| {
        let row = rows.iter().find(|row| row["key"] == key).unwrap();
        let text = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
        [text("value"), text("kind"), text("source"), text("from")]
    };
    assert_eq!(row("disk_threads"), ["2", "count", "file", "thalweg.toml"]);
    assert_eq!(
        row("heartbeat_ms"),
        ["600", "milliseconds", "environment", "THALWEG_HEARTBEAT_MS"]
    );
    assert_eq!(row("spin_us"), ["5", "microseconds", "flag", "--spin-us"]);
    assert_eq!(row("memory_bytes_max"), ["1GiB", "bytes", "default", "-"]);

    // What cannot hold together is shown, and an error.
    let ran = rig
        .run(&["config", "show", "--payload-bytes-max", "2GiB"])
        .exits(2);
    assert!(ran.stdout.contains("payload_bytes_max"), "{}", ran.stdout);
    assert!(
        ran.stderr.contains("does not fit into memory_bytes_max"),
        "{}",
        ran.stderr
    );
}

#[test]
fn the_example_is_a_file_that_a_server_takes_and_that_sets_nothing() {
    let rig = Rig::default();
    let example = rig.run(&["config", "example"]).ok();
    std::fs::write(rig.path("thalweg.toml"), &example).unwrap();
    let rows = rig
        .run(&["config", "show", "--config", "thalweg.toml", "--json"])
        .json();
    assert!(
        rows.iter().all(|row| row["source"] == "default"),
        "{rows:?}"
    );
    // A line that is taken in counts.
    let edited = example.replace("#disk_threads = 4", "disk_threads = 7");
    assert_ne!(edited, example);
    std::fs::write(rig.path("thalweg.toml"), edited).unwrap();
    let shown = rig
        .run(&["config", "show", "--config", "thalweg.toml"])
        .ok();
    let line = shown
        .lines()
        .find(|line| line.starts_with("disk_threads"))
        .unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        words,
        ["disk_threads", "7", "count", "file", "thalweg.toml"]
    );
}
