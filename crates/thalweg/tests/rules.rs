//! Rules of a server that runs, and what its audit trail has, as processes.

use crate::rig;

use rig::{Rig, WATCHDOG};
use serde_json::Value;
use std::time::{Duration, Instant};

fn token(rig: &Rig, name: &str, args: &[&str]) -> String {
    let file = rig.path(name).display().to_string();
    let to = ["token", "new", "--directory", "data", "--output", &file];
    let of = ["--project", "stf", "--can", "read,write"];
    rig.run(&[&to[..], &of, args].concat()).ok();
    file
}

fn rules(rig: &Rig, text: &str) {
    let new = rig.path("rules.new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, rig.path("data/access/rules.json")).unwrap();
}

/// Calls `once` until it says that it is done: a server reads its rules every few seconds.
fn until(what: &str, mut once: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !once() {
        assert!(begun.elapsed() < WATCHDOG, "{what}");
    }
}

/// The audit trail.
fn trail(rig: &Rig) -> (String, Vec<Value>) {
    let mut text = String::new();
    for file in std::fs::read_dir(rig.path("data/audit")).unwrap() {
        text += &std::fs::read_to_string(file.unwrap().path()).unwrap();
    }
    let lines = text.lines().filter(|line| !line.is_empty());
    let records = lines.map(|line| serde_json::from_str(line).unwrap());
    let records = records.collect();
    (text, records)
}

#[test]
fn a_server_that_runs_takes_new_rules_and_keeps_a_trail() {
    let rig = Rig::default();
    let server = rig.serve(&["--listen", "tcp://127.0.0.1:0"]);
    rig.run(&["topic", "create", "frames", "--namespace", "stf"])
        .ok();
    let file = token(&rig, "token", &[]);
    let line = format!("{{\"secret\":\"{}\"}}\n", "x".repeat(30_000));
    let produce = ["produce", "frames", "--credential", &file];
    rig.run_with(&produce, line.clone()).ok();
    rules(
        &rig,
        r#"{"quotas": {"stf": {"stored_bytes": 20000, "at_bound": "refuse"}}}"#,
    );
    until("no quota holds", || {
        let ran = rig.run_with(&produce, line.clone());
        ran.stderr
            .contains("the quota of project stf: stored_bytes is 20000")
    });
    // The owner is held to nothing.
    let owner = ["produce", "frames", "--namespace", "stf"];
    rig.run_with(&owner, line.clone()).ok();
    rules(&rig, "{}");
    until("a quota holds that is gone", || {
        rig.run_with(&produce, line.clone()).status.success()
    });
    rig.run(&["status", "--credential", &file]).exits(1);
    rig.run(&["token", "revoke", &file, "--directory", "data"])
        .ok();
    until("a token is taken that was revoked", || {
        !rig.run_with(&produce, line.clone()).status.success()
    });
    server.terminate();
    let (text, records) = trail(&rig);
    let has = |what: &str, field: &str, part: &str| {
        let found = records.iter().any(|record| {
            let value = record[field].as_str().unwrap_or_default();
            record["what"] == what && value.contains(part)
        });
        assert!(found, "no {what} whose {field} has {part}: {text}");
    };
    has("connect", "who", "a member of project stf");
    has("connect", "how", "token of a project");
    has("connect", "who", "the owner of the server");
    has("act", "asked", "CreateTopic");
    has("act", "topic", "stf/frames");
    has("refuse", "asked", "Status");
    has("refuse", "reason", "was revoked");
    // A connection that was ended for it has one of its own.
    let of = |what| {
        let records = records.iter().filter(|record| record["what"] == what);
        records.filter(|record| record["who"].is_null()).count()
    };
    assert_eq!((of("rules"), of("revoke")), (2, 1), "{text}");
    assert!(!text.contains("xxxx"), "an event is in the trail");
    let token = std::fs::read_to_string(&file).unwrap();
    let token = token.trim();
    assert!(
        !text.contains(&token[token.len() - 24..]),
        "a token is in the trail"
    );
}

#[test]
fn a_token_of_a_rate_is_held_to_it_and_others_are_not() {
    let rig = Rig::default();
    let _server = rig.serve(&["--listen", "tcp://127.0.0.1:0"]);
    rig.run(&["topic", "create", "frames", "--namespace", "stf"])
        .ok();
    let slow = token(&rig, "slow", &["--rate", "100KB"]);
    let line = format!("\"{}\"\n", "x".repeat(10_000));
    let begun = Instant::now();
    let fast = token(&rig, "fast", &[]);
    let produce = |file: &str, count| {
        let args = ["produce", "frames", "--credential", file];
        rig.run_with(&args, line.repeat(count)).ok();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| produce(&slow, 50));
        // Twice as much of somebody else, meanwhile.
        produce(&fast, 100);
    });
    // 500 KB, of which a second's may come at once.
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(3500), "{took:?}");
    let read = ["consume", "frames", "-n", "c", "--namespace", "stf"];
    assert_eq!(rig.run(&read).json().len(), 150);
}
