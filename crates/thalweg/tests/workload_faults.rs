//! What is done to runs on purpose, and what they say of it: each pattern, each kind of member, each fault, by both
//! protocols.

use crate::rig;

use rig::{Ran, Rig};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs that are under way at once: they wait for most of their time.
const AT_ONCE: usize = 6;

const PATTERNS: [(&str, bool, bool); 4] = [
    ("work sharing", false, false),
    ("work sharing with feedback", false, true),
    ("broadcast", true, false),
    ("broadcast and gather", true, true),
];

/// A scenario of few small messages, and two consumers if it does not say another number.
struct Small<'a> {
    pattern: &'a str,
    backend: &'a str,
    messages: u64,
    /// Messages a second. 0 is no bound.
    rate: u64,
    idle_seconds: u64,
    settings: &'a str,
}

const USUAL: &str = "confirms = { batch = 16 }\nacks = { every = 16 }\nprefetch = 16";

impl Small<'_> {
    /// Runs it with a server of its own.
    fn run(&self, rig: &Rig, faults: &[&str]) -> Ran {
        self.write(rig);
        rig.run(&[&RUN[..], faults].concat())
    }

    #[cfg(debug_assertions)]
    fn command(&self, rig: &Rig, faults: &[&str]) -> std::process::Command {
        self.write(rig);
        rig.thalweg(&[&RUN[..], faults].concat())
    }

    fn write(&self, rig: &Rig) {
        let Self {
            pattern,
            backend,
            messages,
            rate,
            idle_seconds,
            settings,
        } = self;
        let (rate, bytes) = match rate {
            0 => ("unlimited", 1),
            rate => ("enforced", rate * 1000),
        };
        let text = format!(
            "name = \"small\"\nbackend = \"{backend}\"\npattern = \"{pattern}\"\nconsumers = 2\nrepeat = 1\n\
             workload = {{ message_bytes = 1000, rate_bytes_per_second = {bytes} }}\nrate = \"{rate}\"\n\
             messages = {messages}\nidle_seconds = {idle_seconds}\n[settings]\nqueues = 1\n{settings}\n"
        );
        std::fs::write(rig.path("small.toml"), text).unwrap();
    }
}

const RUN: [&str; 6] = [
    "workload",
    "run",
    "small.toml",
    "--serve",
    "--json",
    "out.json",
];

fn first_run(rig: &Rig) -> Value {
    let text = std::fs::read_to_string(rig.path("out.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    all["runs"][0].clone()
}

fn number(run: &Value, path: &str) -> u64 {
    let found = run.pointer(path).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("{path} in {run:#}"))
}

fn notes(run: &Value) -> Vec<String> {
    let notes = run["notes"].as_array().unwrap().iter();
    notes
        .map(|note| note.as_str().unwrap().to_owned())
        .collect()
}

/// One place of the table.
#[derive(Debug, Clone, Copy)]
struct Case {
    backend: &'static str,
    pattern: &'static str,
    is_broadcast: bool,
    has_replies: bool,
    /// `consumer` or `producer`.
    member: &'static str,
    /// `kill`, `stop` or `slow`.
    act: &'static str,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (pattern, is_broadcast, has_replies) in PATTERNS {
        for backend in ["thalweg", "amqp"] {
            for member in ["consumer", "producer"] {
                for act in ["kill", "stop", "slow"] {
                    cases.push(Case {
                        backend,
                        pattern,
                        is_broadcast,
                        has_replies,
                        member,
                        act,
                    });
                }
            }
        }
    }
    // Those that wait for longest first: the others fill what is left.
    cases.sort_by_key(|case| (case.act != "kill", case.act != "stop"));
    cases
}

impl Case {
    fn check(&self) {
        // At a rate at which they take two seconds, so that a fault at 20 % meets its member at work.
        const MESSAGES: u64 = 4000;
        let rig = Rig::default();
        let small = Small {
            pattern: self.pattern,
            backend: self.backend,
            messages: MESSAGES,
            rate: 2000,
            idle_seconds: 8,
            settings: USUAL,
        };
        let Self { member, act, .. } = self;
        let (fault, said) = match *act {
            "kill" => (format!("{member}@20%"), format!("kill {member} 0@20%")),
            act => (
                format!("{member}@20%:300ms"),
                format!("{act} {member} 0@20% for 300ms"),
            ),
        };
        let ran = small.run(&rig, &[&format!("--{act}"), &fault]);
        let run = first_run(&rig);
        let what = format!("{self:?}\n{}{}{run:#}", ran.stdout, ran.stderr);
        assert_eq!(ran.status.code(), Some(0), "{what}");
        assert_eq!(run["findings"], json!([]), "{what}");
        let result = &run["result"];
        // It was done, and that is said.
        assert_eq!(result["done"][0]["fault"], said, "{what}");
        let notes = notes(&run);
        let is_noted = |text: &str| notes.iter().any(|note| note.contains(text));
        assert!(is_noted(&format!("{said}: done after ")), "{what}");
        // Who is missing is named, with the reason, and nobody else.
        let missing = match *act {
            "kill" => json!([format!("{member} 0: {said}")]),
            _ => json!([]),
        };
        assert_eq!(result["missing"], missing, "{what}");
        // Nothing that was taken is lost.
        let confirmed = number(result, "/confirmed");
        let copies = match self.is_broadcast {
            true => 2,
            false => 1,
        };
        let distinct = number(result, "/received/distinct");
        let unaccounted = number(result, "/received/unaccounted");
        assert_eq!(number(result, "/received/lost"), 0, "{what}");
        assert_eq!(
            number(result, "/received/refused"),
            match *member {
                // What it had sent, and nobody had taken.
                "producer" if *act == "kill" => number(result, "/received/refused"),
                _ => 0,
            }
        );
        assert!(distinct + unaccounted >= confirmed * copies, "{what}");
        match (*act, *member) {
            ("kill", "producer") => {}
            ("kill", _) if self.is_broadcast => {
                // What the dead one of them would have had is nobody else's.
                assert_eq!(confirmed, MESSAGES, "{what}");
            }
            _ => {
                assert_eq!(confirmed, MESSAGES, "{what}");
                assert_eq!(distinct, MESSAGES * copies, "{what}");
                assert!(is_noted("messages that were taken is lost"), "{what}");
            }
        }
        // Each member that is there has answered.
        if self.has_replies && *act != "kill" {
            assert_eq!(number(result, "/replies"), MESSAGES * copies, "{what}");
            assert_eq!(number(result, "/unanswered"), 0, "{what}");
        }
        if (*act, *member) == ("stop", "consumer") {
            assert!(number(result, "/silence_ns") >= 250_000_000, "{what}");
        }
    }
}

#[test]
fn each_pattern_stands_each_fault_of_each_kind_of_member() {
    let cases = cases();
    assert_eq!(cases.len(), 48);
    let next = AtomicUsize::new(0);
    let failed: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let mut failed = Vec::new();
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                // All are tried: one table shows what holds and what does not.
                if std::panic::catch_unwind(|| case.check()).is_err() {
                    failed.push(format!("{case:?}"));
                }
            }
            failed
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.flatten().collect()
    });
    assert!(failed.is_empty(), "{failed:#?}");
}

/// A producer that nobody makes space for hears of it: its consumers stand still, and their queue has a bound.
#[test]
fn a_producer_hears_that_its_queue_is_full() {
    for (backend, says) in [("thalweg", "topic is full"), ("amqp", "its queue is full")] {
        let rig = Rig::default();
        let small = Small {
            pattern: "work sharing",
            backend,
            messages: 4000,
            rate: 0,
            idle_seconds: 8,
            settings: "confirms = { batch = 16 }\nacks = \"each\"\nprefetch = 16\nqueue_messages_max = 64",
        };
        let both = ["--stop", "consumer@5%:1s", "--stop", "consumer 1@5%:1s"];
        let ran = small.run(&rig, &both);
        let run = first_run(&rig);
        let what = format!("{backend}\n{}{}{run:#}", ran.stdout, ran.stderr);
        assert_eq!(ran.status.code(), Some(3), "{what}");
        let result = &run["result"];
        let refusals = result["refusals"].as_array().unwrap();
        assert!(!refusals.is_empty(), "{what}");
        for refusal in refusals {
            let refusal = refusal.as_str().unwrap();
            assert!(refusal.starts_with("producer "), "{what}");
            assert!(refusal.contains(says), "{what}");
        }
        assert!(ran.stdout.contains(says), "{what}");
        // What was refused is not lost, and all the rest came.
        let refused = number(result, "/received/refused");
        assert!(refused > 0, "{what}");
        assert_eq!(number(result, "/received/lost"), 0, "{what}");
        assert_eq!(number(result, "/confirmed") + refused, 4000, "{what}");
        assert_eq!(result["missing"], json!([]), "{what}");
    }
}

#[test]
fn a_server_that_stood_still_or_was_started_again_has_lost_nothing() {
    const DURABLE: &str = "confirms = { batch = 16 }\nacks = { every = 16 }\nprefetch = 16\n\
                           durable_messages = \"yes\"\ndurable_queues = \"yes\"";
    for (pattern, is_broadcast, has_replies) in PATTERNS {
        for (backend, fault) in [
            ("thalweg", ["--kill", "server@20%"]),
            ("thalweg", ["--stop", "server@20%:300ms"]),
            ("amqp", ["--stop", "server@20%:300ms"]),
        ] {
            let rig = Rig::default();
            let small = Small {
                pattern,
                backend,
                messages: 2000,
                rate: 2000,
                idle_seconds: 8,
                settings: DURABLE,
            };
            let ran = small.run(&rig, &fault);
            let run = first_run(&rig);
            let what = format!(
                "{pattern} {backend} {fault:?}\n{}{}{run:#}",
                ran.stdout, ran.stderr
            );
            assert_eq!(ran.status.code(), Some(0), "{what}");
            let result = &run["result"];
            let copies = match is_broadcast {
                true => 2,
                false => 1,
            };
            assert_eq!(result["missing"], json!([]), "{what}");
            assert_eq!(number(result, "/confirmed"), 2000, "{what}");
            assert_eq!(
                number(result, "/received/distinct"),
                2000 * copies,
                "{what}"
            );
            assert_eq!(number(result, "/received/lost"), 0, "{what}");
            if has_replies {
                assert_eq!(number(result, "/unanswered"), 0, "{what}");
            }
        }
    }
}

#[test]
fn what_is_cut_goes_on() {
    for (pattern, is_broadcast, has_replies) in PATTERNS {
        for backend in ["thalweg", "amqp"] {
            let rig = Rig::default();
            let small = Small {
                pattern,
                backend,
                messages: 2000,
                rate: 2000,
                idle_seconds: 8,
                settings: USUAL,
            };
            let ran = small.run(&rig, &["--cut", "20%:400ms"]);
            let run = first_run(&rig);
            let what = format!("{pattern} {backend}\n{}{}{run:#}", ran.stdout, ran.stderr);
            assert_eq!(ran.status.code(), Some(0), "{what}");
            let result = &run["result"];
            let copies = match is_broadcast {
                true => 2,
                false => 1,
            };
            assert_eq!(result["missing"], json!([]), "{what}");
            assert_eq!(
                number(result, "/received/distinct"),
                2000 * copies,
                "{what}"
            );
            assert_eq!(number(result, "/received/lost"), 0, "{what}");
            assert!(number(result, "/silence_ns") >= 100_000_000, "{what}");
            if has_replies {
                assert_eq!(number(result, "/unanswered"), 0, "{what}");
            }
        }
    }
}

/// What a fault brings about hides nothing else: a consumer that is slow leaves one message out, as a test has planted.
#[cfg(debug_assertions)]
#[test]
fn a_loss_is_found_whatever_is_done_on_purpose() {
    for backend in ["thalweg", "amqp"] {
        let rig = Rig::default();
        let small = Small {
            pattern: "work sharing",
            backend,
            messages: 500,
            rate: 0,
            idle_seconds: 8,
            settings: USUAL,
        };
        let fault = ["--slow", "consumer@0%:200ms"];
        let mut command = small.command(&rig, &fault);
        command.env("THALWEG_WORKLOAD_FAULT", "skip consumer 0");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(
            text.contains("1 messages were taken and did not come"),
            "{text}"
        );
        assert_eq!(number(&first_run(&rig), "/result/received/lost"), 1);
    }
}

/// A member that is slow all the time waits 20 ms before each of 128 messages, but for those that it has before it
/// hears of that.
#[test]
fn a_slow_member_waits_before_each_message() {
    for backend in ["thalweg", "amqp"] {
        for member in ["consumer", "producer"] {
            let rig = Rig::default();
            let small = Small {
                pattern: "work sharing",
                backend,
                messages: 128,
                rate: 0,
                idle_seconds: 8,
                settings: USUAL,
            };
            let slow = format!("{member}@0%:60s");
            let ran = small.run(&rig, &["--slow", &slow, "--consumers", "1"]);
            let run = first_run(&rig);
            assert_eq!(ran.status.code(), Some(0), "{}{}", ran.stdout, ran.stderr);
            assert_eq!(number(&run, "/result/received/distinct"), 128);
            let wall = number(&run, "/result/wall_ns");
            assert!(wall >= 32 * 20_000_000, "{backend} {member}: {run:#}");
        }
    }
}

/// What clients reach first stands still and goes on, behind which nothing is lost either.
#[test]
fn what_stands_between_may_stand_still() {
    for backend in ["thalweg", "amqp"] {
        let rig = Rig::default();
        let small = Small {
            pattern: "work sharing",
            backend,
            messages: 2000,
            rate: 2000,
            idle_seconds: 8,
            settings: USUAL,
        };
        let fault = ["--arch", "proxied", "--stop", "proxy@20%:300ms"];
        let ran = small.run(&rig, &fault);
        let run = first_run(&rig);
        assert_eq!(
            ran.status.code(),
            Some(0),
            "{}{}{run:#}",
            ran.stdout,
            ran.stderr
        );
        assert_eq!(
            run["result"]["done"][0]["fault"],
            "stop proxy@20% for 300ms"
        );
        assert_eq!(number(&run, "/result/received/distinct"), 2000, "{run:#}");
    }
}

/// Clients whose token expires get another one late, and nothing is lost.
#[test]
fn a_token_that_is_renewed_late_loses_nothing() {
    for (pattern, is_broadcast, has_replies) in PATTERNS {
        let rig = Rig::default();
        let small = Small {
            pattern,
            backend: "thalweg",
            messages: 3000,
            rate: 1000,
            idle_seconds: 8,
            settings: USUAL,
        };
        let ran = small.run(&rig, &["--expire-token", "1500ms:1s"]);
        let run = first_run(&rig);
        let what = format!("{pattern}\n{}{}{run:#}", ran.stdout, ran.stderr);
        assert_eq!(ran.status.code(), Some(0), "{what}");
        let result = &run["result"];
        let copies = match is_broadcast {
            true => 2,
            false => 1,
        };
        assert_eq!(result["missing"], json!([]), "{what}");
        assert_eq!(number(result, "/confirmed"), 3000, "{what}");
        assert_eq!(
            number(result, "/received/distinct"),
            3000 * copies,
            "{what}"
        );
        assert_eq!(number(result, "/received/lost"), 0, "{what}");
        if has_replies {
            assert_eq!(number(result, "/unanswered"), 0, "{what}");
        }
    }
}

/// Those who have no other token are named, and say what they lack.
#[test]
fn a_token_that_is_not_renewed_is_what_is_said() {
    let rig = Rig::default();
    let small = Small {
        pattern: "work sharing",
        backend: "thalweg",
        messages: 100_000,
        rate: 1000,
        idle_seconds: 4,
        settings: USUAL,
    };
    let ran = small.run(&rig, &["--expire-token", "1500ms"]);
    let run = first_run(&rig);
    let what = format!("{}{}{run:#}", ran.stdout, ran.stderr);
    assert_eq!(ran.status.code(), Some(3), "{what}");
    let missing = run["result"]["missing"].as_array().unwrap();
    for member in [
        "producer 0: ",
        "producer 1: ",
        "consumer 0: ",
        "consumer 1: ",
    ] {
        let is_named = missing
            .iter()
            .filter_map(Value::as_str)
            .any(|why| why.starts_with(member) && why.contains("credential expired"));
        assert!(is_named, "{what}");
    }
    // With their figures until then.
    let (confirmed, sent) = (
        number(&run, "/result/confirmed"),
        number(&run, "/result/sent"),
    );
    assert!(confirmed > 0 && confirmed < sent, "{what}");
}
