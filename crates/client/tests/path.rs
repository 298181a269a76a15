//! Where one small event passes: pushed, sealed, sent, verified, stored, answered, delivered, pulled and acknowledged,
//! between a producer's and a consumer's driver and a server in one process, by TCP.
//!
//! ```sh
//! cargo test -p thalweg-client --test all path -- --nocapture
//! ```
//!
//! prints two lists, and holds both against the server's README:
//! - the **stations**, by the marks of `trace::passes!`: where the event is queued, changed or decided upon, and how
//!   often each thread enters them;
//! - **every file** that the processor was in: valgrind writes down where it was, and the symbols say in which file.
//!   What is compiled into its caller has no call of its own, and is left out. What is passed each time has to be in
//!   the README. Skipped without valgrind and binutils.

use client::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use trace::tracing;

const VARIABLE: &str = "THALWEG_TRACED_EVENT";
/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(300);

/// The most stations from the push to the pull.
const STATIONS_MAX: usize = 40;
/// No thread enters a station as often as this.
const ENTRIES: usize = 3;
/// The most files that an event may pass from the push to the acknowledgement by the consumer.
const FILES_MAX: usize = 108;
/// Fewer than half of what it was are no shorter path, but a trace that says nothing.
const FILES_MIN: usize = 48;
/// Traces at most. What is in each counts: beside a load an event waits for the processor, and what is done from time to
/// time falls into its trace.
const TRIES: usize = 5;

/// A mark that was passed: by which thread, in which file, and what happens there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    thread: String,
    file: String,
    what: String,
}

/// Collects marks, in order.
#[derive(Default)]
struct Marks(Mutex<Vec<Mark>>);

impl tracing::Subscriber for &'static Marks {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == trace::TARGET
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct What(String);
        impl tracing::field::Visit for What {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut what = What(String::new());
        event.record(&mut what);
        let thread = std::thread::current();
        let file = event.metadata().file().unwrap_or_default();
        let at = file.find("crates/").map_or(0, |at| at + "crates/".len());
        self.0.lock().unwrap().push(Mark {
            thread: format!("{}{:?}", thread.name().unwrap_or_default(), thread.id()),
            file: file[at..].to_owned(),
            what: what.0,
        });
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

impl Marks {
    /// Whether a mark in this file was passed.
    fn has(&self, file: &str) -> bool {
        let marks = self.0.lock().unwrap();
        marks.iter().any(|mark| mark.file == file)
    }
}

static MARKS: Marks = Marks(Mutex::new(Vec::new()));

/// Called at the beginning of each part; never compiled into its caller.
#[inline(never)]
fn part(name: &str) {
    black_box(name);
}

#[test]
#[ignore = "what is traced; started by the tests beside it"]
fn traced() {
    let Some(how) = std::env::var_os(VARIABLE) else {
        return;
    };
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let mapped = maps.lines().find(|line| line.ends_with(program)).unwrap();
    let base = mapped.split('-').next().unwrap();
    let at = part as fn(&str) as usize;
    println!("\nmapped {base} part {at:x}");
    let mut log: server::ServerLog = Arc::new(|_: &str| {}).into();
    if how == "stations" {
        trace::turn_on();
        tracing::subscriber::set_global_default(&MARKS).unwrap();
        log = tracing::Dispatch::new(&MARKS).into();
    }

    let directory = tempfile::tempdir().unwrap();
    let config = server::Config {
        directory: directory.path().join("data"),
        listen: vec!["tcp://127.0.0.1:0".to_owned()],
        no_unix_socket: true,
        group_file: Some(directory.path().join("group.json")),
        ..server::Config::default()
    };
    let server = server::Server::start(config, log).unwrap();
    let endpoint = Endpoint::GroupFile(directory.path().join("group.json"));
    let driver = Driver::connect(endpoint.clone(), DriverOptions::default()).unwrap();
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
    // As another program would: by a driver of its own, on a thread of its own.
    let other = Driver::connect(endpoint, DriverOptions::default()).unwrap();
    let topic = other.open_topic("path").unwrap();
    let consumer = topic.consumer("c", ConsumerOptions::default()).unwrap();
    let pull = || consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
    // What is done once, for the first events.
    for _ in 0..3 {
        let future = producer.push_metadata(b"event").unwrap();
        let id = future.wait(Some(WATCHDOG)).unwrap();
        pull();
        consumer.acknowledge(id).unwrap();
        consumer.flush_acknowledgements(WATCHDOG).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    MARKS.0.lock().unwrap().clear();
    part("push");
    let future = producer.push_metadata(b"event").unwrap();
    let id = future.wait(Some(WATCHDOG)).unwrap();
    if how == "stations" {
        // The order of what the consumer's threads do is one: first it arrives, then it is pulled.
        let began = Instant::now();
        while !MARKS.has("client/src/consumer/subscriptions.rs") {
            assert!(began.elapsed() < WATCHDOG);
            std::thread::yield_now();
        }
    }
    part("pull");
    std::thread::scope(|scope| scope.spawn(pull).join().unwrap());
    for mark in std::mem::take(&mut *MARKS.0.lock().unwrap()) {
        println!("passed\t{}\t{}\t{}", mark.thread, mark.file, mark.what);
    }
    part("acknowledge");
    consumer.acknowledge(id).unwrap();
    consumer.flush_acknowledgements(WATCHDOG).unwrap();
    part("");
    driver.close(WATCHDOG).unwrap();
    other.close(WATCHDOG).unwrap();
    server.drain(WATCHDOG).unwrap();
}

/// The arguments with which a program of tests runs [`traced`] alone.
const TRACED: [&str; 5] = [
    "--ignored",
    "--exact",
    "path::traced",
    "--test-threads=1",
    "--nocapture",
];

/// The marks that an event passes from the push to the pull, in order.
fn marks() -> Vec<Mark> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(TRACED)
        .env(VARIABLE, "stations")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let passed = said
        .lines()
        .filter_map(|line| line.strip_prefix("passed\t"));
    passed
        .map(|line| {
            let mut words = line.split('\t').map(str::to_owned);
            let mut next = || words.next().unwrap();
            Mark {
                thread: next(),
                file: next(),
                what: next(),
            }
        })
        .collect()
}

/// How often each file is entered, by the thread that enters it most often: by a mark in it behind one in another file.
fn entries(marks: &[Mark]) -> BTreeMap<&str, usize> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut entered: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for mark in marks {
        if before.insert(&mark.thread, &mark.file) != Some(&mark.file) {
            *entered.entry((&mark.file, &mark.thread)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((file, _), count) in entered {
        let found: &mut usize = most.entry(file).or_default();
        *found = count.max(*found);
    }
    most
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
        .args(TRACED)
        .env(VARIABLE, "files")
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

/// Traces an event, prints which files it passed, and gives them.
fn files_passed() -> Option<BTreeSet<String>> {
    let Some(parts) = blocks() else {
        eprintln!("skipped: there is no valgrind");
        return None;
    };
    let addresses: BTreeSet<u64> = parts.iter().flatten().copied().collect();
    let Some(files) = files(&addresses) else {
        eprintln!("skipped: there are no binutils");
        return None;
    };
    let mut all = BTreeSet::new();
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
            all.insert(file.to_owned());
        }
        if std::env::var_os("THALWEG_STEPS").is_some() {
            println!("  step by step:\n{steps}");
        }
    }
    println!("{} files in all", all.len());
    assert_eq!(parts.len(), 3, "push, pull and acknowledge were traced");
    Some(all)
}

/// The part of the server's README about this.
fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/README.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, page) = page.split_once("## One event, file by file").unwrap();
    page.split("\n## ").next().unwrap().to_owned()
}

/// The files named in the rows of the page's tables whose first cell says `kind`, each with what the row says of it.
fn rows(page: &str, kind: &str) -> Vec<(String, String)> {
    let cells = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        Some((
            cells.next()?,
            cells.next()?,
            cells.next().unwrap_or_default(),
        ))
    });
    let cells = cells.filter(|(first, ..)| *first == kind);
    cells
        .flat_map(|(_, file, what)| {
            let files = file.split('`').skip(1).step_by(2);
            files.map(move |file| {
                let (crate_of, rest) = file.split_once('/').expect("CRATE/FILE");
                (format!("{crate_of}/src/{rest}.rs"), what.to_owned())
            })
        })
        .collect()
}

const PROGRAMS: [&str; 3] = ["producer", "server", "consumer"];

/// The program of which a thread that has passed these files is: by what is of no other one.
fn program(files: &BTreeSet<&str>) -> &'static str {
    let is_of = |crates: &[&str]| {
        let mut all = files.iter();
        all.any(|file| crates.iter().any(|one| file.starts_with(one)))
    };
    if is_of(&["server/", "broker/"]) {
        "server"
    } else if is_of(&[
        "client/src/consumer",
        "client/src/core/consumer",
        "client/src/puller",
    ]) {
        "consumer"
    } else {
        "producer"
    }
}

/// What each program has passed, in order.
fn by_program(marks: &[Mark]) -> BTreeMap<&'static str, Vec<(String, String)>> {
    let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for mark in marks {
        files.entry(&mark.thread).or_default().insert(&mark.file);
    }
    let mut passed: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for mark in marks {
        let program = program(&files[mark.thread.as_str()]);
        let at = passed.entry(program).or_default();
        let station = (mark.file.clone(), mark.what.clone());
        // An answer and a delivery go to two connections, one behind the other.
        if at.last() != Some(&station) {
            at.push(station);
        }
    }
    passed
}

#[test]
fn a_small_event_passes_no_more_stations_than_is_said() {
    if !cfg!(debug_assertions) {
        return eprintln!("skipped: a release build has no marks");
    }
    let page = page();
    let said = PROGRAMS.map(|program| (program, rows(&page, program)));
    let said: BTreeMap<_, _> = said.into_iter().collect();
    let mut wrong = String::new();
    for _ in 0..TRIES {
        let marks = marks();
        for mark in &marks {
            println!("{:>24}  {}: {}", mark.thread, mark.file, mark.what);
        }
        let files: BTreeSet<&String> = marks.iter().map(|mark| &mark.file).collect();
        println!("{} marks in {} stations", marks.len(), files.len());
        let passed = by_program(&marks);
        let entries = entries(&marks);
        wrong.clear();
        if passed != said {
            write!(wrong, "passed: {passed:#?}\nthe page: {said:#?}").unwrap();
        } else if files.len() > STATIONS_MAX || entries.values().any(|count| *count >= ENTRIES) {
            write!(wrong, "{} stations: {entries:#?}", files.len()).unwrap();
        } else {
            return;
        }
    }
    panic!("{wrong}");
}

#[test]
fn a_small_event_passes_no_more_files_than_is_said() {
    let page = page();
    let mut known = BTreeSet::new();
    for kind in [
        "producer",
        "server",
        "consumer",
        "part",
        "tool",
        "acknowledgement",
    ] {
        known.extend(rows(&page, kind).into_iter().map(|(file, _)| file));
    }
    // What is done from time to time, or while one waits, is in some traces alone.
    let mut always: Option<BTreeSet<String>> = None;
    for _ in 0..TRIES {
        let Some(passed) = files_passed() else {
            return;
        };
        assert!(
            passed.len() >= FILES_MIN,
            "the trace is cut off, or names no files"
        );
        let common = match &always {
            Some(before) => before.intersection(&passed).cloned().collect(),
            None => passed,
        };
        println!("{} files each time", common.len());
        let is_done = common.len() <= FILES_MAX && common.is_subset(&known);
        always = Some(common);
        if is_done {
            break;
        }
    }
    let always = always.expect("there is one now");
    let unknown: Vec<_> = always.difference(&known).collect();
    assert!(unknown.is_empty(), "the page does not name {unknown:#?}");
    assert!(
        always.len() <= FILES_MAX,
        "{} files: {always:#?}",
        always.len()
    );
    // Which functions have a call of their own is for the compiler to say, and differs from build to build.
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let is_there = |file: &&String| crates.join(file).is_file();
    let gone: Vec<_> = known.iter().filter(|file| !is_there(file)).collect();
    assert!(
        gone.is_empty(),
        "the page names what is no longer there: {gone:#?}"
    );
}
