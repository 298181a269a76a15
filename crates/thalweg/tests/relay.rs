//! Two sites by the command: an offer, who joins it, and a server behind them.

use crate::rig;

use rig::{Rig, WATCHDOG};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc;

/// A relay that runs, and the lines of JSON that it prints.
struct Relay {
    child: Child,
    lines: mpsc::Receiver<Value>,
}

impl Relay {
    fn start(rig: &Rig, args: &[&str], input: &str) -> Self {
        let mut child = rig
            .thalweg(&[&["relay"], args, &["--json"]].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut stdin = child.stdin.take().expect("it was asked for");
        stdin.write_all(input.as_bytes()).expect("it is read");
        drop(stdin);
        Self::of(child)
    }

    fn of(mut child: Child) -> Self {
        let stdout: ChildStdout = child.stdout.take().expect("it was asked for");
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).expect("lines are JSON");
                // A test that is over reads no more.
                let _ = send.send(value);
            }
        });
        Self { child, lines }
    }

    /// The next line about `event`.
    fn event(&self, event: &str) -> Value {
        loop {
            let line = self.lines.recv_timeout(WATCHDOG).expect("a line comes");
            if line["event"] == event {
                return line;
            }
        }
    }

    /// Ends it as Ctrl-C does. What it said on standard error.
    fn interrupt(&self) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
    }

    fn ends(self) -> (i32, String) {
        let output = self.child.wait_with_output().expect("it is our child");
        let said = String::from_utf8(output.stderr).expect("errors are text");
        (output.status.code().unwrap_or(-1), said)
    }
}

#[test]
fn as_many_files_are_open_as_the_system_allows() {
    let rig = Rig::default();
    let listen = [
        "relay",
        "offer",
        "here=127.0.0.1:1",
        "--listen",
        "127.0.0.1:0",
    ];
    let offer = rig.thalweg(&[&listen[..], &["--name", "127.0.0.1", "--json"]].concat());
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "ulimit -Sn 100; exec \"$0\" \"$@\""])
        .arg(offer.get_program())
        .args(offer.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let relay = Relay::of(command.spawn().expect("there is a shell"));
    relay.event("offered");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", relay.child.id()));
    let limits = limits.expect("it runs");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let files: Vec<&str> = files.expect("a line").split_whitespace().collect();
    assert_eq!(files[3], files[4], "the limit is as high as it may be");
    relay.interrupt();
    assert_eq!(relay.ends().0, 0);
}

fn address_of(event: &Value) -> String {
    event["address"].as_str().expect("an address").to_owned()
}

#[test]
fn a_server_is_reached_at_the_other_site() {
    let (here, there) = (Rig::default(), Rig::default());
    let server = there.serve(&["--listen", "tcp://127.0.0.1:0"]);
    let endpoints = server.endpoints();
    let target = endpoints.iter().find_map(|one| one.strip_prefix("tcp://"));
    let target = format!("events={}", target.expect("it listens"));
    let offer = [
        "offer",
        &target,
        "--listen",
        "127.0.0.1:0",
        "--name",
        "127.0.0.1",
        "--rate",
        "1Gbit",
    ];
    let offer = Relay::start(&there, &offer, "");
    let code = offer.event("offered")["join"]
        .as_str()
        .expect("a line")
        .to_owned();
    let join = Relay::start(
        &here,
        &["join", "-", "--rate", "2Gbit"],
        &format!("{code}\n"),
    );
    let joined = join.event("joined");
    assert_eq!(joined["rate_up"], 125_000_000);
    assert_eq!(joined["rate_down"], 125_000_000);
    let address = format!("tcp://{}", address_of(&join.event("bound")));
    let token = there.path("data/token");
    let connection = [
        "--address",
        &address,
        "--token-file",
        token.to_str().expect("text"),
    ];
    fn joined_with<'a>(args: &[&'a str], connection: &[&'a str]) -> Vec<&'a str> {
        [args, connection].concat()
    }
    let with = |args: &[&'static str]| joined_with(args, &connection);
    here.run(&with(&["topic", "create", "far"])).ok();
    let line = format!("{{\"text\": \"{}\"}}\n", "x".repeat(3000));
    here.run_with(&with(&["produce", "far"]), line.repeat(500))
        .ok();
    let read = here
        .run(&with(&["consume", "far", "--name", "reader"]))
        .json();
    assert_eq!(read.len(), 500);
    // Its code was good once.
    let late = Relay::start(&here, &["join", "-"], &format!("{code}\n"));
    let (status, said) = late.ends();
    assert_eq!(status, 1);
    assert!(said.contains("the code was used before"), "{said}");
    let secret = code.split('@').next().expect("a code");
    assert!(!said.contains(secret), "{said}");
    join.interrupt();
    let last = loop {
        let account = join.event("account");
        if account["last"] == true {
            break account;
        }
    };
    assert!(last["bytes_out"].as_u64() > Some(1_500_000), "{last}");
    assert!(last["streams"].as_u64() >= Some(3), "{last}");
    let (status, said) = join.ends();
    assert_eq!((status, said.contains(secret)), (0, false), "{said}");
    let (status, said) = offer.ends();
    assert_eq!((status, said.contains(secret)), (0, false), "{said}");
}

#[test]
fn what_cannot_be_right_is_told() {
    let rig = Rig::default();
    let refused = |args: &[&str], why: &str| {
        let ran = rig.run(&[&["relay"], args].concat()).exits(2);
        assert!(ran.stderr.contains(why), "{args:?}: {}", ran.stderr);
        ran.stderr
    };
    refused(
        &["offer", "--listen", "127.0.0.1:0"],
        "there is nothing to offer",
    );
    refused(&["offer", "5672"], "is no target, which is as");
    refused(&["offer", "a b=host:1"], "is no name of a target");
    refused(&["offer", "t=host:1", "--rate", "fast"], "is no rate");
    refused(&["join", "olive"], "it takes what the offer printed");
    let said = refused(&["join", "7-olive-harbor@host"], "a code has 7 words");
    assert!(!said.contains("olive"), "{said}");
    let nobody = "0-abandon-abandon-abandon-abandon-abandon-abandon-abandon@127.0.0.1:1";
    let ran = rig.run(&["relay", "join", nobody]).exits(5);
    assert!(!ran.stderr.contains("abandon"), "{}", ran.stderr);
}
