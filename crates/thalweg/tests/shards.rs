//! The command on a server with several shards.

use crate::rig;

use rig::Rig;
use serde_json::Value;
use std::collections::BTreeSet;

fn names() -> Vec<String> {
    (0..12).map(|number| format!("run.{number:02}")).collect()
}

/// The shards of the topics, as the status has them.
fn used(status: &Value) -> BTreeSet<u64> {
    let topics = status["topics"].as_array().unwrap();
    topics
        .iter()
        .map(|topic| topic["node"].as_u64().unwrap_or(0))
        .collect()
}

#[test]
fn all_commands_find_the_topics_of_all_shards() {
    let rig = Rig::default();
    let server = rig.serve(&["--shards", "3"]);
    for name in names() {
        rig.run(&["topic", "create", &name]).ok();
        rig.run_with(&["produce", &name], "1\n2\n3\n").ok();
    }
    let listed = rig.run(&["topic", "list", "--json"]).json();
    assert_eq!(listed.len(), names().len());
    let status = rig.run(&["status", "--json"]).json().remove(0);
    assert_eq!(used(&status), BTreeSet::from([0, 1, 2]));
    assert_eq!(status["nodes"].as_array().unwrap().len(), 2);
    let text = rig.run(&["status"]).ok();
    assert!(text.contains("3 shards, 12 topics"), "{text}");
    for name in names() {
        let read = rig.run(&["consume", &name, "--name", "one"]).ok();
        assert_eq!(read.lines().count(), 3, "{name}: {read}");
        let shown = rig.run(&["topic", "show", &name]).ok();
        assert!(shown.contains(&name), "{shown}");
    }
    rig.run(&["audit"]).exits(0);
    // A copy of the first shard alone would be none.
    let refused = rig.run(&["backup", "data", "copy"]).exits(1);
    assert!(
        refused.stderr.contains("several shards"),
        "{}",
        refused.stderr
    );
    // It dies, and all is there.
    server.kill();
    let fewer = rig.run(&["serve", "data", "--shards", "2"]).exits(2);
    assert!(fewer.stderr.contains("has 3 shards"), "{}", fewer.stderr);
    let server = rig.serve(&[]);
    for name in names() {
        let read = rig.run(&["consume", &name, "--name", "two"]);
        assert_eq!(read.ok().lines().count(), 3, "{name}");
    }
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
}
