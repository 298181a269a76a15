//! A server and the holders of tokens, as processes.

use crate::rig;

use rig::{Rig, WATCHDOG};
use std::time::Instant;

/// A token in a file, and the file's path.
fn token(rig: &Rig, name: &str, args: &[&str]) -> String {
    let data = rig.path("data").display().to_string();
    let file = rig.path(name).display().to_string();
    let args = [
        &["token", "new", "--directory", &data, "--output", &file],
        args,
    ]
    .concat();
    rig.run(&args).ok();
    file
}

#[test]
fn the_holder_of_a_token_does_what_it_allows() {
    let rig = Rig::default();
    let _server = rig.serve(&["--listen", "tcp://127.0.0.1:0"]);
    let token = token(
        &rig,
        "token",
        &["--project", "stf", "--topics", "f*", "--can", "read,write"],
    );
    let owner = ["--namespace", "stf"];
    rig.run(&[&["topic", "create", "frames"], &owner[..]].concat())
        .ok();
    rig.run(&[&["topic", "create", "other"], &owner[..]].concat())
        .ok();
    let holder = ["--credential", token.as_str()];
    fn as_<'a>(holder: [&'a str; 2], args: &[&'a str]) -> Vec<&'a str> {
        [args, &holder].concat()
    }
    rig.run_with(&as_(holder, &["produce", "frames"]), "{\"n\":1}\n")
        .ok();
    let read = rig
        .run(&as_(holder, &["consume", "frames", "-n", "c"]))
        .ok();
    assert!(read.contains("\"n\":1"), "{read}");
    let list = rig.run(&as_(holder, &["topic", "list"])).ok();
    assert!(list.contains("frames") && !list.contains("other"), "{list}");
    for (args, why) in [
        (
            &["consume", "other", "-n", "c"][..],
            "the token is for topics f*",
        ),
        (
            &["topic", "create", "f2"],
            "the token is for read and write",
        ),
        (&["status"], "may not admin the server"),
    ] {
        let said = rig.run(&as_(holder, args)).exits(1).stderr;
        assert!(
            said.contains("a member of project stf with token ") && said.contains(why),
            "{said}"
        );
    }
    let said = rig
        .run(&as_(
            holder,
            &["consume", "frames", "-n", "c", "--namespace", "other"],
        ))
        .exits(1)
        .stderr;
    assert!(said.contains("no names of namespace"), "{said}");
    // The same, asked.
    let why_not = |args: &[&str], code| rig.run(&[&["why-not"], args].concat()).exits(code).stdout;
    assert!(why_not(&["write", "frames", "--as", &token], 0).contains("may write stf/frames"));
    let said = why_not(&["manage", "stf/frames", "--as", &token], 1);
    assert!(said.contains("the token is for read and write"), "{said}");
    assert!(why_not(&["admin"], 0).contains("the owner of the server may admin"));
}

#[test]
fn a_revoked_token_is_none_within_seconds() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    let wide = token(&rig, "wide", &["--for", "1h"]);
    let narrow = rig.path("narrow").display().to_string();
    rig.run(&[
        "token", "restrict", &wide, "--can", "read", "--output", &narrow,
    ])
    .ok();
    let list = ["topic", "list", "--credential", &narrow];
    rig.run(&list).ok();
    let data = rig.path("data").display().to_string();
    rig.run(&["token", "revoke", &wide, "--directory", &data])
        .ok();
    // The server looks at the list every few seconds.
    let began = Instant::now();
    let said = loop {
        let ran = rig.run(&list);
        if !ran.status.success() {
            break ran.stderr;
        }
        assert!(began.elapsed() < WATCHDOG, "the token is still good");
    };
    assert!(
        said.contains("not authenticated") && said.contains("was revoked"),
        "{said}"
    );
}

#[test]
fn an_expired_token_says_when_and_what_to_do() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let short = token(&rig, "short", &["--for", "1ms"]);
    let said = rig
        .run(&["topic", "list", "--credential", &short])
        .exits(1)
        .stderr;
    for part in ["credential expired", "expired at 20", "thalweg token new"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    let said = rig
        .run(&["topic", "list", "--credential", "absent"])
        .exits(2)
        .stderr;
    assert!(
        said.contains("absent: the credential cannot be read"),
        "{said}"
    );
}
