//! `thalweg token`: made where the data directory is, narrowed, shown and checked anywhere.

use crate::rig;

use rig::Rig;
use std::os::unix::fs::PermissionsExt;

/// A data directory on which a server was.
fn rig() -> Rig {
    let rig = Rig::default();
    drop(rig.serve(&[]));
    rig
}

fn new(rig: &Rig, args: &[&str]) -> String {
    let data = rig.path("data").display().to_string();
    let args = [&["token", "new", "--directory", &data], args].concat();
    rig.run(&args).ok()
}

fn restrict(rig: &Rig, token: &str, args: &[&str]) -> String {
    rig.run_with(&[&["token", "restrict"], args].concat(), token)
        .ok()
}

#[test]
fn a_token_is_made_narrowed_and_shown_in_sentences() {
    let rig = rig();
    let data = rig.path("data").display().to_string();
    let args = [
        "--project",
        "stf008",
        "--topics",
        "run42,raw-*",
        "--can",
        "read,write",
    ];
    let token = new(&rig, &[&args[..], &["--note", "beamline 7"]].concat());
    assert!(token.starts_with("thalweg-token-1:") && token.lines().count() == 1);
    let narrow = restrict(&rig, &token, &["--can", "read", "--for", "1h"]);
    let show = ["token", "show", "--directory", &data];
    let said = rig.run_with(&show, &narrow).ok();
    for sentence in [
        "(\"beamline 7\"):",
        "  for project stf008\n",
        "  for topics run42, raw-*\n",
        "  may read and write\n",
        "narrowed, besides as ",
        "  may read\n",
        "verified: this server issued it",
    ] {
        assert!(said.contains(sentence), "{sentence:?} is not in {said}");
    }
    assert!(!said.contains("thalweg-token-1:"), "{said}");
    let json = rig.run_with(&["token", "show", "--json"], &narrow).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["project"], "stf008");
    assert_eq!(json["verified"], serde_json::Value::Null);
    assert_eq!(json["blocks"][0]["topics"][1], "raw-*");
    assert_eq!(json["blocks"][1]["can"][0], "read");
    // A character of the key at its end.
    let mut damaged: Vec<char> = narrow.trim_end().chars().collect();
    let at = damaged.len() - 5;
    damaged[at] = if damaged[at] == 'A' { 'B' } else { 'A' };
    let damaged: String = damaged.into_iter().collect();
    rig.run_with(&show, &damaged).exits(1);
    rig.run_with(&show, "0123").exits(2);
}

#[test]
fn a_file_of_a_token_is_the_owners_alone_and_never_written_over() {
    let rig = rig();
    let file = rig.path("token").display().to_string();
    assert_eq!(new(&rig, &["--output", &file]), "");
    let found = std::fs::metadata(&file).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    let data = rig.path("data").display().to_string();
    let again = ["token", "new", "--directory", &data, "--output", &file];
    rig.run(&again).exits(1);
    let check = rig.run(&["token", "check", "frames", "--file", &file]).ok();
    assert!(
        check.contains("the default project") && check.contains("may read frames"),
        "{check}"
    );
}

#[test]
fn a_token_is_checked_before_a_job_is_queued() {
    let rig = rig();
    let token = new(
        &rig,
        &["--project", "a", "--can", "read,write", "--for", "2d"],
    );
    let check = |args: &[&str], code| {
        let ran = rig
            .run_with(&[&["token", "check"], args].concat(), &token)
            .exits(code);
        ran.stdout + &ran.stderr
    };
    let until = ["--until", "+1d", "--can", "write"];
    check(&[&["x"], &until[..]].concat(), 0);
    check(&[&["a/x"], &until[..]].concat(), 0);
    let late = check(&["x", "--until", "+3d"], 1);
    assert!(late.contains("the token expired at"), "{late}");
    assert!(late.contains("thalweg token new"), "{late}");
    let more = check(&["x", "--can", "manage"], 1);
    assert!(more.contains("the token is for read and write"), "{more}");
    let json = check(&["x", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["good"], true);
    check(&["x", "--until", "tomorrow"], 2);
    // One that begins later is good for a job that begins then.
    let later = new(&rig, &["--from", "+3d", "--for", "8h"]);
    rig.run_with(&["token", "check", "x", "--until", "+75h"], &later)
        .ok();
    rig.run_with(&["token", "check", "x"], &later).exits(1);
}

#[test]
fn what_cannot_be_right_is_refused() {
    let rig = rig();
    let data = rig.path("data").display().to_string();
    for (args, word) in [
        (["--can", "admin"], "only its owner has it"),
        (["--can", "fly"], "no verb"),
        (["--for", "8d"], "7 days at most"),
        (["--for", "0s"], "no length of time"),
        (["--topics", "a//b"], "a level of it is empty"),
        (["--project", "a/b"], "is no project"),
        (["--network", "10.0.0.0/40"], "no network"),
    ] {
        let args = [&["token", "new", "--directory", &data], &args[..]].concat();
        let said = rig.run(&args).exits(2).stderr;
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
    let said = rig
        .run(&["token", "new", "--directory", "nowhere"])
        .exits(1)
        .stderr;
    assert!(said.contains("start a server on it first"), "{said}");
}

#[test]
fn revoking_a_token_ends_those_that_were_made_from_it() {
    let rig = rig();
    let data = rig.path("data").display().to_string();
    let file = rig.path("token").display().to_string();
    new(&rig, &["--output", &file]);
    let token = std::fs::read_to_string(&file).unwrap();
    let narrow = restrict(&rig, &token, &["--for", "1h"]);
    let verify = ["token", "check", "--directory", &data];
    rig.run_with(&verify, &narrow).ok();
    rig.run(&[
        "token",
        "revoke",
        &file,
        "--directory",
        &data,
        "--note",
        "lost",
    ])
    .ok();
    for gone in [&token, &narrow] {
        let said = rig.run_with(&verify, gone).exits(1).stderr;
        assert!(said.contains("was revoked"), "{said}");
    }
    let other = new(&rig, &[]);
    rig.run_with(&verify, &other).ok();
    rig.run(&["token", "revoke", "no-such-file", "--directory", &data])
        .exits(1);
}
