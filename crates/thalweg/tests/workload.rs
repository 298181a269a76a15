//! The published experiments at the command line, with small counts.

use crate::rig;

use rig::{Rig, signal, wait};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;

/// A scenario of few small messages.
fn scenario(rig: &Rig, pattern: &str, more: &str) -> String {
    let text = format!(
        "name = \"small\"\nworkload = {{ message_bytes = 1000 }}\npattern = \"{pattern}\"\nconsumers = [2]\n\
         repeat = 1\nrate = \"unlimited\"\nidle_seconds = 3\n{more}\n[settings]\nqueues = 1\n\
         confirms = {{ batch = 16 }}\nacks = {{ every = 16 }}\nprefetch = 16\n"
    );
    std::fs::write(rig.path("small.toml"), text).unwrap();
    "small.toml".to_owned()
}

fn results(rig: &Rig) -> Value {
    let text = std::fs::read_to_string(rig.path("out.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

const RUN: [&str; 5] = ["workload", "run", "--serve", "--json", "out.json"];

#[test]
fn each_pattern_brings_every_message_once() {
    for (pattern, messages, copies, replies) in [
        ("work sharing", 500, 1, 0),
        ("work sharing with feedback", 500, 1, 500),
        ("broadcast", 200, 2, 0),
        ("broadcast and gather", 200, 2, 400),
    ] {
        let rig = Rig::default();
        let file = scenario(&rig, pattern, &format!("messages = {messages}"));
        rig.run(&[&RUN[..], &[&file]].concat()).ok();
        let result = &results(&rig)["runs"][0]["result"];
        assert_eq!(result["pattern"], pattern);
        assert_eq!(result["sent"], messages, "{pattern}");
        assert_eq!(
            result["received"]["distinct"],
            messages * copies,
            "{pattern}"
        );
        assert_eq!(result["unanswered"], 0, "{pattern}");
        match replies {
            0 => assert!(result["rtt"].is_null(), "{pattern}"),
            count => assert_eq!(result["rtt"]["count"], count, "{pattern}"),
        }
    }
}

/// A producer that has many replies outstanding, and consumers whose prefetch is smaller than a batch of
/// acknowledgements.
#[test]
fn a_prefetch_below_a_batch_of_acknowledgements_stops_nobody() {
    let rig = Rig::default();
    let file = scenario(&rig, "work sharing with feedback", "messages = 100");
    let text = std::fs::read_to_string(rig.path(&file)).unwrap();
    std::fs::write(
        rig.path(&file),
        text.replace("prefetch = 16", "prefetch = 3"),
    )
    .unwrap();
    rig.run(&[&RUN[..], &[&file]].concat()).ok();
    assert_eq!(results(&rig)["runs"][0]["result"]["unanswered"], 0);
}

#[test]
fn members_of_a_pack_share_a_process() {
    let rig = Rig::default();
    let file = scenario(&rig, "work sharing", "messages = 300");
    let output = rig.run(&[
        "workload",
        "plan",
        &file,
        "--pack",
        "2",
        "--consumers",
        "1,4",
    ]);
    let text = output.ok();
    assert!(
        text.contains("consumer 3") && text.contains("300 deliveries"),
        "{text}"
    );
    rig.run(&[&RUN[..], &[&file, "--pack", "2", "--consumers", "1,4"]].concat())
        .ok();
    assert_eq!(results(&rig)["runs"].as_array().unwrap().len(), 2);
}

#[cfg(debug_assertions)]
#[test]
fn a_message_that_a_consumer_leaves_out_is_found() {
    let rig = Rig::default();
    let file = scenario(&rig, "broadcast", "messages = 100");
    let mut command = rig.thalweg(&[&RUN[..], &[&file]].concat());
    command.env("THALWEG_WORKLOAD_FAULT", "skip consumer 0");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("1 messages were taken and did not come"),
        "{text}"
    );
    assert_eq!(results(&rig)["runs"][0]["result"]["received"]["lost"], 1);
}

#[cfg(debug_assertions)]
#[test]
fn a_client_that_dies_before_all_are_ready_is_named() {
    for member in ["consumer 1", "producer 0"] {
        let rig = Rig::default();
        let file = scenario(&rig, "work sharing", "messages = 100");
        let mut command = rig.thalweg(&[&RUN[..], &[&file]].concat());
        command.env("THALWEG_WORKLOAD_FAULT", format!("die {member}"));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("{member} is gone")), "{text}");
        assert!(text.contains("exit status: 3"), "{text}");
    }
}

/// The processes whose temporary files are in this directory.
fn processes_of(directory: &Path) -> Vec<String> {
    let variable = format!("TMPDIR={}", directory.display());
    let all = std::fs::read_dir("/proc").unwrap();
    let paths = all.filter_map(|entry| Some(entry.ok()?.path()));
    let ours = paths.filter(|path| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|one| one == variable.as_bytes())
    });
    ours.map(|path| path.display().to_string()).collect()
}

#[test]
fn an_interrupt_leaves_no_process_and_no_directory() {
    let rig = Rig::default();
    let temporary = rig.path("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let file = scenario(&rig, "work sharing", "seconds = 600");
    let mut child = rig
        .thalweg(&["workload", "run", "--serve", &file])
        .env("TMPDIR", &temporary)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The runner, its server, two consumers, two producers.
    while processes_of(&temporary).len() < 6 {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    signal(child.id(), rustix::process::Signal::INT);
    assert_eq!(wait(&mut child).code(), Some(1));
    assert_eq!(processes_of(&temporary), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_run_is_refused_with_what_there_is() {
    for (more, subject) in [
        ("backend = \"kafka\"", "backend"),
        ("architecture = \"proxied\"", "architecture"),
        ("faults = [\"kill consumer@30%\"]", "faults"),
    ] {
        let rig = Rig::default();
        let file = scenario(&rig, "work sharing", &format!("messages = 100\n{more}"));
        let ran = rig.run(&[&RUN[..], &[&file]].concat()).exits(2);
        assert!(
            ran.stderr.starts_with(&format!("thalweg: {subject}: ")),
            "{}",
            ran.stderr
        );
    }
    let rig = Rig::default();
    let file = scenario(&rig, "work sharing", "messages = 100");
    let ran = rig.run(&["workload", "run", &file]).exits(2);
    assert!(ran.stderr.contains("--serve"), "{}", ran.stderr);
}
