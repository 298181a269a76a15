//! How many instructions an event costs: pushed, sealed, verified, stored,
//! delivered, verified again and iterated over; and a request with its reply,
//! one at a time. In one thread, under valgrind, which counts. Skipped where
//! there is no valgrind.
//!
//! Held against `instructions.txt` beside this file. The compiler has a say,
//! so that the file names its version; under another one only a large growth
//! fails. To write it anew:
//!
//! ```sh
//! UPDATE_BUDGETS=1 cargo test -p thalweg-sim --test instructions
//! ```

use sim::{Asking, Costs};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Hash tables of the standard library differ from run to run.
const TOLERANCE: f64 = 1.05;
const TOLERANCE_OTHER_COMPILER: f64 = 1.5;
const VARIABLE: &str = "THALWEG_COUNTED_EVENTS";
/// The difference of two runs is free of what a run costs without events.
const EVENTS: [u64; 2] = [2_000, 12_000];
const REQUESTS: [u64; 2] = [100, 300];
/// What is counted: events in batches, or requests one at a time.
const PUSH: &str = "push";
const ASK: &str = "ask";

#[test]
#[ignore = "what is counted; started by the test beside it"]
fn counted() {
    let Ok(text) = std::env::var(VARIABLE) else {
        return;
    };
    let words: Vec<&str> = text.split(' ').collect();
    let number = |at: usize| words[at].parse().expect("a number");
    let (events, metadata_bytes) = (number(1), number(2) as usize);
    match words[0] {
        ASK => {
            let requests = events;
            Asking {
                requests,
                metadata_bytes,
            }
            .run();
        }
        _ => {
            let costs = Costs {
                events,
                metadata_bytes,
                data_bytes: 0,
            };
            costs.run();
        }
    }
}

/// Instructions of a run with so many events; none without valgrind.
fn instructions(what: &str, events: u64, metadata_bytes: usize) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("a test has a path"))
        .args(["--ignored", "--exact", "counted", "--test-threads=1"])
        .env(VARIABLE, format!("{what} {events} {metadata_bytes}"))
        // A copy by `rep movsb` counts each byte, and from which size on it is
        // taken depends on the processor.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-ERMS,-FSRM")
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        output => output.expect("valgrind can be started"),
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .expect("valgrind says how many it collected");
    Some(collected.1.trim().parse().expect("a number"))
}

fn compiler() -> String {
    let output = Command::new(std::env::var("RUSTC").unwrap_or("rustc".into()))
        .arg("--version")
        .output();
    output.map_or("unknown".to_owned(), |output| {
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    })
}

#[test]
fn an_event_costs_no_more_instructions_than_is_recorded() {
    let mut counts = BTreeMap::new();
    let cases = [
        ("100 B", PUSH, EVENTS, 100),
        ("1000 B", PUSH, EVENTS, 1000),
        ("a request and its reply of 128 B", ASK, REQUESTS, 128),
    ];
    for (name, what, events, metadata_bytes) in cases {
        let [few, many] = events.map(|events| instructions(what, events, metadata_bytes));
        let (Some(few), Some(many)) = (few, many) else {
            eprintln!("skipped: there is no valgrind");
            return;
        };
        let each = (many - few) / (events[1] - events[0]) as f64;
        counts.insert(name.to_owned(), each);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instructions.txt");
    if std::env::var_os("UPDATE_BUDGETS").is_some() {
        let mut text = format!("compiler = {}\n", compiler());
        for (name, count) in &counts {
            writeln!(text, "{name} = {count:.1}").unwrap();
        }
        std::fs::write(&path, text).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap();
    let recorded: BTreeMap<&str, &str> = recorded
        .lines()
        .map(|line| line.split_once(" = ").expect("a line is NAME = VALUE"))
        .collect();
    let tolerance = match recorded["compiler"] == compiler() {
        true => TOLERANCE,
        false => TOLERANCE_OTHER_COMPILER,
    };
    for (name, count) in counts {
        let budget: f64 = recorded[name.as_str()].parse().expect("a number");
        println!("{name}: {count:.1} instructions an event, recorded {budget:.1}");
        assert!(
            count <= budget * tolerance,
            "an event of {name} costs {count:.1} instructions, recorded are {budget:.1}; if that \
             is wanted, see {}",
            file!()
        );
    }
}
