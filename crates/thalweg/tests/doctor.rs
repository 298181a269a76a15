//! What `thalweg doctor` says of this host and of servers.

use crate::rig;

use rig::{Rig, json_lines};
use serde_json::Value;

fn doctor(rig: &Rig, arguments: &[&str]) -> Value {
    doctor_exits(rig, 0, arguments)
}

fn doctor_exits(rig: &Rig, code: i32, arguments: &[&str]) -> Value {
    let mut all = vec!["doctor", "--json", "--no-measure"];
    all.extend(arguments);
    json_lines(&rig.run(&all).exits(code).stdout).remove(0)
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
    let found = doctor_exits(
        &rig,
        3,
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

#[test]
fn a_url_is_followed_step_by_step_and_its_token_is_not_shown() {
    let rig = Rig::default();
    let server = rig.serve(&["--listen", "tls://127.0.0.1:0", "--no-unix-socket"]);
    let endpoint = server.endpoints()[0].clone();
    let (place, _) = endpoint
        .strip_prefix("tls://")
        .map(|rest| rest.split_once('?').unwrap_or((rest, "")))
        .expect("it is TLS");
    let group = std::fs::read_to_string(rig.group_file()).expect("the server wrote it");
    let group: Value = serde_json::from_str(&group).expect("it is JSON");
    let hash = group["certificates"][0].as_str().expect("a hash");
    let token = |more: &[&str]| {
        let new = ["token", "new", "--directory", "data", "--project", "stf008"];
        let said = rig.run(&[&new, more].concat()).ok();
        let text = said.trim().split_once(':').expect("a token").1;
        text.to_owned()
    };
    let check = |token: &str, hash: &str| {
        let url = format!("thalweg://{token}@{place}/stf008?sha256={hash}");
        std::fs::write(rig.path("here.url"), format!("# for a test\n{url}\n")).expect("a file");
        let ran = rig.run(&["doctor", "--json", "--no-measure", "here.url"]);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!said.contains(token), "{said}");
        let found = json_lines(&ran.stdout).remove(0)["urls"][0].clone();
        ran.exits(if found["good"] == true { 0 } else { 3 });
        found
    };
    let steps = |found: &Value| -> Vec<(String, String)> {
        let steps = found["steps"].as_array().expect("a list").iter();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        steps
            .map(|step| (text(&step["name"]), text(&step["outcome"])))
            .collect()
    };
    let all = |names: &[(&str, &str)]| -> Vec<(String, String)> {
        let pair = |(name, outcome): &(&str, &str)| (String::from(*name), String::from(*outcome));
        names.iter().map(pair).collect()
    };
    let begin = [("credential", "good"), ("name", "good"), ("tls", "good")];
    let good = token(&["--topics", "run*", "--can", "read,write"]);
    let found = check(&good, hash);
    assert_eq!(found["good"], true, "{found}");
    let may = [
        ("session", "good"),
        ("may", "good"),
        ("may", "good"),
        ("may not", "note"),
    ];
    assert_eq!(steps(&found), all(&[&begin[..], &may].concat()), "{found}");
    assert_eq!(found["steps"][4]["text"], "read stf008/runx");
    // Somebody else's certificate, and a token that this server did not make.
    let found = check(&good, &"0".repeat(64));
    assert_eq!(
        steps(&found),
        all(&[begin[0], begin[1], ("tls", "bad")]),
        "{found}"
    );
    let damaged = format!("{}{}", &good[..good.len() - 2], "AA");
    let found = check(&damaged, hash);
    assert_eq!(found["good"], false, "{found}");
    // One for one session is still good for that.
    let once = token(&["--once"]);
    for _ in 0..2 {
        let found = check(&once, hash);
        assert_eq!(
            steps(&found),
            all(&[&begin[..], &[("session", "note")]].concat()),
            "{found}"
        );
    }
    // Text of people, by the variable.
    let url = format!("thalweg://{good}@{place}/stf008?sha256={hash}");
    let ran = rig
        .thalweg(&["doctor", "--no-measure"])
        .env("THALWEG_URL", &url)
        .output()
        .expect("the binary runs");
    let said = String::from_utf8(ran.stdout).expect("text");
    assert!(
        said.contains("THALWEG_URL:") && said.contains("gets through"),
        "{said}"
    );
    assert!(!said.contains(&good), "{said}");
}
