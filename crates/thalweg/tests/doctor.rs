//! What `thalweg doctor` says of this host and of servers.

use crate::rig;

use rig::Rig;
use serde_json::Value;

fn doctor(rig: &Rig, arguments: &[&str]) -> Value {
    let mut all = vec!["doctor", "--json", "--no-measure"];
    all.extend(arguments);
    rig.run(&all).json().remove(0)
}

#[test]
fn a_server_of_this_host_is_reached_as_a_client_would() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let group: Value = serde_json::from_str(
        &std::fs::read_to_string(rig.path("thalweg.json")).expect("the server wrote it"),
    )
    .expect("it is JSON");
    let shm = group["endpoints"][1]
        .as_str()
        .expect("the second is shared memory");
    let found = doctor(
        &rig,
        &["thalweg.json", shm, "tcp://127.0.0.1:1", "nothing.json"],
    );
    assert_eq!(found["shared_memory"]["sealed_memory"], true);
    assert!(found["host"]["cores"].as_u64().expect("a count") >= 1);
    let [by_file, by_memory, nobody, nothing] = &found["endpoints"].as_array().expect("a list")[..]
    else {
        panic!("{found}");
    };
    assert_eq!(by_file["chosen"], "unix", "{by_file}");
    assert_eq!(by_file["tried"][1]["transport"], "shm", "{by_file}");
    assert_eq!(by_memory["chosen"], "shm", "{by_memory}");
    let why = by_memory["tried"][0]["why"].as_str().expect("a reason");
    assert!(why.contains("read back"), "{why}");
    assert_eq!(nobody["chosen"], Value::Null);
    assert_eq!(nobody["tried"][0]["answers"], false);
    assert!(nothing["problem"].is_string(), "{nothing}");
}

#[test]
fn a_server_without_shared_memory_says_so() {
    let rig = Rig::default();
    let _server = rig.serve(&["--no-shared-memory"]);
    let found = doctor(&rig, &["thalweg.json"]);
    assert_eq!(found["endpoints"][0]["chosen"], "unix");
    assert_eq!(
        found["endpoints"][0]["tried"].as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn a_data_directory_is_looked_at() {
    let rig = Rig::default();
    std::fs::create_dir(rig.path("place")).expect("a new directory");
    let found = doctor(&rig, &["--data-dir", "place"]);
    assert!(
        found["data_directory"]["file_system"].is_string(),
        "{found}"
    );
    rig.run(&["doctor", "--no-measure", "--data-dir", "nowhere"])
        .exits(1);
}
