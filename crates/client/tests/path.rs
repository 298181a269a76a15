//! Which files of ours one small event passes: pushed, sealed, sent, verified, stored,
//! acknowledged, delivered, pulled and acknowledged again, between a client and a server in one
//! process, by TCP. Nothing in the product says it: valgrind writes down where the processor
//! was, and the symbols say in which file. Skipped where there are no valgrind and binutils.
//!
//! ```sh
//! cargo test -p thalweg-client --test all path -- --nocapture
//! ```
//!
//! prints each file in the order in which it is entered first, and how often it is entered: a
//! function of it is called, and the call before was of a function of another file. What is
//! compiled into its caller has no call of its own, and is left out. A file that is entered once
//! or twice is a station; one that is entered more often is a tool or a dispatcher, or a detour.

use client::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const VARIABLE: &str = "THALWEG_TRACED_EVENT";
/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(300);

/// The most files that an event may pass from the push to the acknowledgement by the consumer.
const FILES_MAX: usize = 111;
/// Fewer than half of what it was are no shorter path, but a trace that says nothing.
const FILES_MIN: usize = 48;
/// Traces, of which the shortest counts: beside a load an event waits for the processor, and what is done from time to
/// time falls into its trace.
const TRIES: usize = 3;

/// Called at the beginning of each part; never compiled into its caller.
#[inline(never)]
fn part(name: &str) {
    black_box(name);
}

#[test]
#[ignore = "what is traced; started by the test beside it"]
fn traced() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let mapped = maps.lines().find(|line| line.ends_with(program)).unwrap();
    let base = mapped.split('-').next().unwrap();
    let at = part as fn(&str) as usize;
    println!("\nmapped {base} part {at:x}");

    let directory = tempfile::tempdir().unwrap();
    let config = server::Config {
        directory: directory.path().join("data"),
        listen: vec!["tcp://127.0.0.1:0".to_owned()],
        no_unix_socket: true,
        group_file: Some(directory.path().join("group.json")),
        ..server::Config::default()
    };
    let server = server::Server::start(config, Arc::new(|_: &str| {})).unwrap();
    let endpoint = Endpoint::GroupFile(directory.path().join("group.json"));
    let driver = Driver::connect(endpoint, DriverOptions::default()).unwrap();
    let definition = Definition::builder()
        .validator(topic::ValidatorKind::None)
        .durability(Durability::Written)
        .build()
        .unwrap();
    let disk = PartitionStorage {
        kind: "disk".into(),
        config: String::new(),
    };
    let topic = driver.create_topic("path", &definition, &[disk]).unwrap();
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let consumer = topic.consumer("c", ConsumerOptions::default()).unwrap();
    // What is done once, for the first events.
    for _ in 0..3 {
        let future = producer.push_metadata(b"event").unwrap();
        let id = future.wait(Some(WATCHDOG)).unwrap();
        consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
        consumer.acknowledge(id).unwrap();
        consumer.flush_acknowledgements(WATCHDOG).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    part("push");
    let future = producer.push_metadata(b"event").unwrap();
    let id = future.wait(Some(WATCHDOG)).unwrap();
    part("pull");
    consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
    part("acknowledge");
    consumer.acknowledge(id).unwrap();
    consumer.flush_acknowledgements(WATCHDOG).unwrap();
    part("");
    driver.close(WATCHDOG).unwrap();
    server.drain(WATCHDOG).unwrap();
}

/// Where the processor was, in order: addresses of blocks of code, from the first part on.
/// `None` without valgrind.
fn blocks() -> Option<Vec<Vec<u64>>> {
    let output = Command::new("valgrind")
        .args([
            "--tool=lackey",
            "--basic-counts=no",
            "--trace-superblocks=yes",
            "--vex-guest-chase=no",
        ])
        .arg("--log-file=/dev/stderr")
        .arg(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "path::traced",
            "--test-threads=1",
            "--nocapture",
        ])
        .env(VARIABLE, "1")
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        output => output.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let line = said
        .lines()
        .find(|line| line.starts_with("mapped "))
        .unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let (base, part) = (number(words[1]), number(words[3]));
    let mut parts: Vec<Vec<u64>> = Vec::new();
    for line in output.stderr.split(|byte| *byte == b'\n') {
        let Some(address) = line.strip_prefix(b"SB ") else {
            continue;
        };
        let address = number(std::str::from_utf8(address).unwrap().trim());
        if address == part {
            parts.push(Vec::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(address.wrapping_sub(base));
        }
    }
    // Behind the last one the program ends.
    parts.pop();
    Some(parts)
}

/// What a tool of binutils writes, asked for this program and handed `input`.
fn tool(name: &str, arguments: &[&str], input: &str) -> Option<String> {
    let mut child = Command::new(name)
        .args(arguments)
        .arg(std::env::current_exe().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writes = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writes.join().unwrap().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The files of ours, by the addresses at which their functions begin.
fn files(addresses: &BTreeSet<u64>) -> Option<BTreeMap<u64, String>> {
    let symbols = tool("nm", &["--defined-only"], "")?;
    let begins: BTreeSet<u64> = symbols
        .lines()
        .filter_map(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok())
        .collect();
    let called: Vec<u64> = addresses.intersection(&begins).copied().collect();
    let mut input = String::new();
    for address in &called {
        writeln!(input, "0x{address:x}").unwrap();
    }
    let lines = tool("addr2line", &["-e"], &input)?;
    let files = called
        .iter()
        .zip(lines.lines())
        .filter_map(|(address, line)| {
            let (path, _) = line.rsplit_once(':')?;
            let at = path.find("crates/")?;
            let file = &path[at + "crates/".len()..];
            let is_ours = file.contains("/src/") && !file.starts_with("client/tests");
            is_ours.then(|| (*address, file.to_owned()))
        });
    Some(files.collect())
}

/// Traces an event, prints which files it passed, and gives how many these are.
fn files_passed() -> Option<usize> {
    let Some(parts) = blocks() else {
        eprintln!("skipped: there is no valgrind");
        return None;
    };
    let addresses: BTreeSet<u64> = parts.iter().flatten().copied().collect();
    let Some(files) = files(&addresses) else {
        eprintln!("skipped: there are no binutils");
        return None;
    };
    let mut all = BTreeMap::new();
    for (name, blocks) in ["push", "pull", "acknowledge"].into_iter().zip(&parts) {
        let mut order: Vec<&str> = Vec::new();
        let mut entered: BTreeMap<&str, usize> = BTreeMap::new();
        let mut before = "";
        let mut steps = String::new();
        for file in blocks.iter().filter_map(|address| files.get(address)) {
            if file != before {
                if !entered.contains_key(file.as_str()) {
                    order.push(file);
                }
                *entered.entry(file).or_default() += 1;
                writeln!(steps, "    {file}").unwrap();
                before = file;
            }
        }
        println!("{name}: {} files", order.len());
        for file in order {
            println!("{:5}  {file}", entered[file]);
            *all.entry(file.to_owned()).or_insert(0) += entered[file];
        }
        if std::env::var_os("THALWEG_STEPS").is_some() {
            println!("  step by step:\n{steps}");
        }
    }
    println!("{} files in all", all.len());
    assert_eq!(parts.len(), 3, "push, pull and acknowledge were traced");
    Some(all.len())
}

#[test]
fn a_small_event_passes_no_more_files_than_is_said() {
    let mut fewest = usize::MAX;
    for _ in 0..TRIES {
        let Some(count) = files_passed() else {
            return;
        };
        fewest = fewest.min(count);
        if fewest <= FILES_MAX {
            break;
        }
    }
    assert!(fewest <= FILES_MAX);
    assert!(
        fewest >= FILES_MIN,
        "the trace is cut off, or names no files"
    );
}
