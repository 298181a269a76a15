//! `thalweg steps`: streams of steps at the command line, with writers of their own.

use crate::rig;

use client::{Driver, DriverOptions, Endpoint};
use rig::{Log, Ran, Rig, ServerProcess, WATCHDOG, signal, wait};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use step::{
    DType, Next, Place, Put, ReaderOptions, Run, Selection, ShapeKind, Step, Stream, Wait, Writer,
    WriterOptions,
};

/// A field that two ranks write: a row each.
const ROW: u64 = 6;

struct Streams {
    rig: Rig,
    _server: ServerProcess,
}

impl Streams {
    fn new() -> Self {
        let rig = Rig::default();
        let server = rig.serve(&[]);
        rig.run(&["steps", "create", "fields", "--parts", "2"]).ok();
        Self {
            rig,
            _server: server,
        }
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.rig.run(&[&["steps"], args].concat())
    }

    fn stream(&self, name: &str) -> Stream {
        let endpoint = Endpoint::GroupFile(self.rig.group_file());
        let driver = Driver::connect(endpoint, DriverOptions::default()).unwrap();
        Stream::open(&driver, name).unwrap()
    }

    fn writers(&self, session_timeout: Duration) -> Vec<Writer> {
        let stream = self.stream("fields");
        let open = |rank| {
            let options = WriterOptions {
                name: "sim".to_owned(),
                rank,
                ranks: 2,
                session_timeout,
                open_timeout: WATCHDOG,
                timeout: WATCHDOG,
                ..WriterOptions::default()
            };
            stream.writer(options).unwrap()
        };
        vec![open(0), open(1)]
    }

    /// A follower, and what it prints.
    fn spawn_tail(&self, more: &[&str]) -> (Child, Log) {
        let mut command = self.rig.thalweg(&["steps", "tail", "fields"]);
        let command = command.args(more).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        (child, rig::collect(stdout))
    }

    /// A run of `steps` steps, closed.
    fn write_run(&self, steps: u64) {
        let mut writers = self.writers(WATCHDOG);
        for _ in 0..steps {
            write_step(&mut writers);
        }
        close(&mut writers);
    }
}

fn element(step: u64, row: u64, column: u64) -> f64 {
    (step * 100 + row * 10 + column) as f64
}

fn write_step(writers: &mut [Writer]) {
    let double = DType::parse("<f8").unwrap();
    let short = DType::parse(">i2").unwrap();
    for (rank, writer) in (0..).zip(writers.iter_mut()) {
        let step = writer.begin_step().unwrap().0;
        let row = (0..ROW).flat_map(|column| element(step, rank, column).to_le_bytes());
        let row: Vec<u8> = row.collect();
        let field = Put {
            name: "E",
            dtype: &double,
            place: Place::Array {
                shape: &[3, ROW],
                start: &[rank, 0],
            },
            count: &[1, ROW],
            with_extremes: true,
        };
        writer.put(&field, &row).unwrap();
        let own = Put {
            name: "own",
            dtype: &short,
            place: Place::Local,
            count: &[2 + rank],
            with_extremes: false,
        };
        let bytes: Vec<u8> = (0..2 + rank as i16)
            .flat_map(|n| (-n).to_be_bytes())
            .collect();
        writer.put(&own, &bytes).unwrap();
        let joined = Put {
            name: "joined",
            place: Place::Joined(0),
            ..own
        };
        writer.put(&joined, &bytes).unwrap();
        let load = (step as f64 + rank as f64 / 2.0).to_le_bytes();
        writer
            .put_value("load", ShapeKind::LocalValue, &double, &load)
            .unwrap();
        if rank == 0 {
            let cube = Put {
                name: "cube",
                place: Place::Array {
                    shape: &[2, 1, 2],
                    start: &[0, 0, 0],
                },
                count: &[2, 1, 2],
                ..own
            };
            let bytes: Vec<u8> = (0..4i16).flat_map(i16::to_be_bytes).collect();
            writer.put(&cube, &bytes).unwrap();
            let (text, note) = (DType::text(), format!("step {step}"));
            writer
                .put_value("note", ShapeKind::Value, &text, note.as_bytes())
                .unwrap();
            writer.set_attribute("mesh", vec![1i64, 2, 3]).unwrap();
            writer.set_attribute("last", step as i64).unwrap();
        }
    }
    for writer in writers.iter_mut() {
        writer.end_step(Wait::Begun).unwrap();
    }
    for writer in writers {
        writer.wait(Wait::Committed, WATCHDOG).unwrap();
    }
}

fn close(writers: &mut [Writer]) {
    std::thread::scope(|scope| {
        for writer in writers {
            scope.spawn(|| writer.close_run(WATCHDOG).unwrap());
        }
    });
}

#[test]
fn a_stream_is_made_and_shown_as_what_it_is() {
    let streams = Streams::new();
    let args = [
        "create",
        "kept",
        "--parts",
        "3",
        "--storage",
        "memory",
        "--retention",
        "1GB",
        "--keep",
        "7d",
        "--json",
    ];
    let made = &streams.run(&args).json()[0];
    assert_eq!(made["partitions"].as_array().unwrap().len(), 6);
    assert_eq!(made["definition"]["kind"], "steps");
    assert_eq!(made["partitions"][0]["durability"], "memory");
    assert_eq!(
        made["definition"]["retention"]["total_bytes"],
        1_000_000_000
    );
    assert_eq!(
        made["definition"]["retention"]["age_ms"],
        7 * 24 * 3_600_000
    );
    let shown = streams.rig.run(&["topic", "show", "kept"]).ok();
    assert!(shown.contains("kind        steps"), "{shown}");
    streams.run(&["create", "kept"]).exits(1);
    streams.run(&["create", "kept", "--if-missing"]).ok();
    streams.run(&["create", "none", "--parts", "0"]).exits(2);
    let refused = streams
        .run(&["create", "bad", "--retention", "much"])
        .exits(2);
    assert!(refused.stderr.contains("retention"), "{}", refused.stderr);
    streams.rig.run(&["topic", "create", "events"]).ok();
    streams.run(&["create", "events", "--if-missing"]).exits(2);
}

#[test]
fn runs_are_listed_with_how_they_are() {
    let streams = Streams::new();
    assert_eq!(streams.run(&["ls", "fields"]).ok(), "fields: no runs yet\n");
    assert!(streams.run(&["ls", "fields", "--json"]).json().is_empty());
    streams.write_run(3);
    let mut writers = streams.writers(Duration::from_millis(300));
    write_step(&mut writers);
    drop(writers);
    // It breaks when its ranks have been away for long enough.
    streams.run(&["tail", "fields", "--run", "2"]).exits(1);
    let mut writers = streams.writers(WATCHDOG);
    write_step(&mut writers);
    let runs = streams.run(&["list", "fields", "--json"]).json();
    let of = |key: &str| runs.iter().map(|run| run[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("run"), [1, 2, 3]);
    assert_eq!(of("state"), ["closed", "broken", "open"]);
    assert_eq!(of("steps"), [3, 1, 1]);
    assert_eq!(of("last_step"), [2, 0, 0]);
    assert_eq!(of("ranks"), [2, 2, 2]);
    assert_eq!(of("writer"), ["sim", "sim", "sim"]);
    assert!(
        runs[1]["reason"].as_str().unwrap().contains("rank"),
        "{runs:?}"
    );
    assert_eq!(runs[0]["reason"], Value::Null);
    assert!(runs[0]["bytes"].as_u64() > Some(3 * 2 * ROW * 8));
    let text = streams.run(&["ls", "fields"]).ok();
    assert_eq!(text.lines().count(), 4);
    assert!(text.contains("broken: "), "{text}");
}

#[test]
fn a_step_is_shown_with_its_variables_and_attributes() {
    let streams = Streams::new();
    streams.write_run(3);
    let shown = &streams.run(&["show", "fields", "--json"]).json()[0];
    assert_eq!((&shown["run"], &shown["step"]), (&json!(1), &json!(2)));
    assert_eq!(
        (&shown["writer"], &shown["ranks"]),
        (&json!("sim"), &json!(2))
    );
    let field = &shown["variables"][0];
    let expected = json!({
        "name": "E", "kind": "array", "dtype": "<f8", "shape": [3, 6], "blocks": 2,
        "min": 200.0, "max": 215.0,
    });
    assert_eq!(field, &expected);
    let named = |name: &str| {
        let variables = shown["variables"].as_array().unwrap();
        variables.iter().find(|one| one["name"] == name).unwrap()
    };
    assert_eq!(named("own")["kind"], "local array");
    assert_eq!(named("own")["min"], Value::Null);
    assert_eq!(named("joined")["shape"], json!([5]));
    assert_eq!(named("note")["value"], "step 2");
    assert_eq!(
        (&named("load")["min"], &named("load")["max"]),
        (&json!(2.0), &json!(2.5))
    );
    let attributes = json!({
        "mesh": {"dtype": "<i8", "value": [1, 2, 3]},
        "last": {"dtype": "<i8", "value": 2},
    });
    assert_eq!(shown["attributes"], attributes);
    let text = streams
        .run(&["show", "fields", "--run", "1", "--step", "0"])
        .ok();
    for part in ["step 0 of run 1", "(3, 6)", "15.0", "= step 0", "[1, 2, 3]"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn values_are_printed_as_text_json_and_bytes() {
    let streams = Streams::new();
    let mut writers = streams.writers(WATCHDOG);
    write_step(&mut writers);
    write_step(&mut writers);
    let cat = |more: &[&str]| streams.run(&[&["cat", "fields"], more].concat());
    let whole = cat(&["E", "--step", "0"]).exits(0);
    assert_eq!(
        whole.stdout,
        "0.0 1.0 2.0 3.0 4.0 5.0\n10.0 11.0 12.0 13.0 14.0 15.0\n0.0 0.0 0.0 0.0 0.0 0.0\n"
    );
    // The third row is nobody's.
    assert!(
        whole.stderr.contains("6 elements are in no block"),
        "{}",
        whole.stderr
    );
    let part = cat(&["E", "--box", "0:2,1:6:2"]).exits(0);
    assert_eq!(part.stdout, "101.0 103.0 105.0\n111.0 113.0 115.0\n");
    assert_eq!(part.stderr, "");
    assert_eq!(cat(&["E", "--box", "1,-1"]).ok(), "115.0\n");
    let json = &cat(&["E", "--box", ":,5:6", "--json"]).json()[0];
    let expected = json!({
        "run": 1, "step": 1, "variable": "E", "dtype": "<f8", "shape": [3, 1],
        "values": [[105.0], [115.0], [0.0]], "uncovered": 1,
    });
    assert_eq!(json, &expected);
    assert_eq!(cat(&["own", "--block", "1"]).ok(), "0 -1 -2\n");
    assert_eq!(cat(&["own", "--block", "1", "--box", "1:"]).ok(), "-1 -2\n");
    assert_eq!(cat(&["joined"]).ok(), "0 -1 0 -1 -2\n");
    assert_eq!(cat(&["load"]).ok(), "1.0 1.5\n");
    assert_eq!(
        cat(&["load", "--box", "1", "--json"]).json()[0]["values"],
        json!([1.5])
    );
    // Two matrices of a row each.
    assert_eq!(cat(&["cube"]).ok(), "0 1\n\n2 3\n");
    assert_eq!(
        cat(&["cube", "--json"]).json()[0]["values"],
        json!([[[0, 1]], [[2, 3]]])
    );
    assert_eq!(cat(&["cube", "--box", "0:0,:,:"]).ok(), "");
    assert_eq!(cat(&["note"]).ok(), "step 1\n");
    assert_eq!(cat(&["note", "--raw"]).ok(), "step 1");
    assert_eq!(cat(&["note", "--json"]).json()[0]["values"], "step 1");

    let args = ["steps", "cat", "fields", "E", "--raw", "--box", "1,:"];
    let output = streams.rig.thalweg(&args).output().unwrap();
    let row: Vec<u8> = (0..ROW)
        .flat_map(|column| element(1, 1, column).to_le_bytes())
        .collect();
    assert_eq!(output.stdout, row);
}

#[test]
fn what_is_not_there_is_told_with_what_is() {
    let streams = Streams::new();
    let refused = |args: &[&str], code: i32, parts: &[&str]| {
        let ran = streams.run(args).exits(code);
        for part in parts {
            assert!(ran.stderr.contains(part), "{part:?}: {}", ran.stderr);
        }
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    };
    refused(&["show", "fields"], 1, &["no runs yet"]);
    streams.write_run(2);
    streams.rig.run(&["topic", "create", "events"]).ok();
    for command in ["ls", "show", "tail"] {
        refused(&[command, "feilds"], 1, &["did you mean fields?"]);
        refused(
            &[command, "events"],
            2,
            &["topic of events", "thalweg tail events"],
        );
    }
    refused(
        &["ls", "something"],
        1,
        &["there is no topic", "streams are fields"],
    );
    refused(
        &["show", "fields", "--run", "7"],
        1,
        &["no run 7", "run 1 is stored"],
    );
    refused(
        &["show", "fields", "--step", "7"],
        1,
        &["step 7", "steps 0 to 1"],
    );
    refused(&["cat", "fields", "B"], 2, &["no variable \"B\"", "E, own"]);
    refused(
        &["cat", "fields", "E", "--box", "1"],
        2,
        &["--box", "[3, 6]"],
    );
    refused(&["cat", "fields", "E", "--box", "0:4,:"], 2, &["0:4", "3"]);
    refused(&["cat", "fields", "own"], 2, &["2 blocks", "--block"]);
    refused(&["cat", "fields", "own", "--block", "2"], 2, &["2 blocks"]);
    refused(
        &["cat", "fields", "load", "--block", "0"],
        2,
        &["no blocks"],
    );
    refused(&["replay", "fields", "events"], 2, &["topic of events"]);
    streams
        .run(&["replay", "fields", "fields", "--rate", "0x"])
        .exits(2);
}

#[test]
fn steps_are_followed_to_the_end_of_their_run() {
    let streams = Streams::new();
    streams.write_run(1);
    let mut writers = streams.writers(WATCHDOG);
    write_step(&mut writers);
    let (mut tail, log) = streams.spawn_tail(&["--json"]);
    log.until("\"step\":0");
    write_step(&mut writers);
    log.until("\"step\":1");
    close(&mut writers);
    assert!(wait(&mut tail).success());
    let lines = rig::json_lines(&log.whole());
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(
        (&lines[0]["type"], &lines[0]["run"]),
        (&json!("step"), &json!(2))
    );
    assert_eq!(lines[0]["variables"][0], "E");
    let end = json!({"type": "end", "run": 2, "state": "closed", "reason": null});
    assert_eq!(lines[2], end);
    // Nothing is left of it.
    let cursors = streams
        .rig
        .run(&["cursor", "ls", "fields", "--json"])
        .json();
    assert!(cursors.is_empty(), "{cursors:?}");

    // Under a name it goes on where it was.
    let named = ["tail", "fields", "--name", "viewer"];
    let first = streams.run(&named).ok();
    assert!(first.starts_with("run 1  step 0"), "{first}");
    assert!(first.ends_with("run 1 closed\n"), "{first}");
    let cursors = streams
        .rig
        .run(&["cursor", "ls", "fields", "--json"])
        .json();
    assert_eq!(cursors.len(), 1);
    assert_eq!(cursors[0]["consumer"], "viewer");
    let second = streams.run(&named).ok();
    assert_eq!(second.lines().count(), 3, "{second}");
    assert!(second.starts_with("run 2  step 0"), "{second}");
}

#[test]
fn a_broken_run_ends_its_follower_with_a_failure() {
    let streams = Streams::new();
    let mut writers = streams.writers(Duration::from_millis(300));
    write_step(&mut writers);
    let (mut tail, log) = streams.spawn_tail(&[]);
    log.until("step 0");
    drop(writers);
    assert_eq!(wait(&mut tail).code(), Some(1));
    assert!(log.whole().contains("run 1 broken: "), "{}", log.whole());
    let told = streams
        .run(&["tail", "fields", "--run", "1", "--json"])
        .exits(1);
    assert!(told.stderr.contains("run 1 is broken: "), "{}", told.stderr);
    let last = rig::json_lines(&told.stdout).pop().unwrap();
    assert_eq!(
        (&last["type"], &last["state"]),
        (&json!("end"), &json!("broken"))
    );
}

#[test]
fn an_interrupt_ends_a_follower_cleanly() {
    let streams = Streams::new();
    let mut writers = streams.writers(WATCHDOG);
    write_step(&mut writers);
    let (mut tail, log) = streams.spawn_tail(&[]);
    log.until("step 0");
    signal(tail.id(), rustix::process::Signal::INT);
    assert!(wait(&mut tail).success());
}

#[test]
fn a_run_is_replayed_with_the_same_blocks() {
    let streams = Streams::new();
    streams.write_run(3);
    streams.run(&["create", "copy"]).ok();
    let args = [
        "replay", "fields", "copy", "--rate", "max", "--writer", "again", "--json",
    ];
    let told = &streams.run(&args).json()[0];
    assert_eq!((&told["run"], &told["steps"]), (&json!(1), &json!(3)));
    let run = &streams.run(&["ls", "copy", "--json"]).json()[0];
    assert_eq!(
        (&run["state"], &run["writer"]),
        (&json!("closed"), &json!("again"))
    );
    let (from, into) = (streams.stream("fields"), streams.stream("copy"));
    for step in 0..3 {
        let [one, other] = [&from, &into].map(|stream| stream.step(Run(1), Step(step)).unwrap());
        assert_eq!(one.attributes(), other.attributes());
        assert_eq!(one.bytes(), other.bytes());
        for name in one.names() {
            let (a, b) = (one.layout(name).unwrap(), other.layout(name).unwrap());
            assert_eq!(a.values(), b.values(), "{name}");
            assert_eq!(a.block_count(), b.block_count());
            for index in 0..a.block_count() {
                assert_eq!(a.block(index), b.block(index));
                if a.block(index).is_some() {
                    let block = Selection::Block(index as u64);
                    let [a, b] = [&one, &other].map(|view| view.get(name, &block).unwrap());
                    assert_eq!((a.dtype, a.shape, &*a.data), (b.dtype, b.shape, &*b.data));
                }
            }
        }
    }
    // As it was written, and into the stream that it is from.
    let text = streams
        .run(&["replay", "fields", "fields", "--rate", "2x"])
        .ok();
    assert!(
        text.contains("run 1 of fields is run 2 of fields: 3 steps"),
        "{text}"
    );
}

/// A chunk of an array that was recorded.
fn chunk(out: &Path, array: &str, index: &str) -> Vec<u8> {
    std::fs::read(out.join(array).join("c").join(index)).unwrap()
}

fn metadata(out: &Path, node: &str) -> Value {
    let text = std::fs::read(out.join(node).join("zarr.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn a_run_is_recorded_as_zarr() {
    let streams = Streams::new();
    streams.write_run(3);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("fields.zarr");
    let path = out.to_str().unwrap();
    let told = &streams.run(&["record", "fields", path, "--json"]).json()[0];
    assert_eq!(
        (&told["steps"], &told["state"]),
        (&json!(3), &json!("closed"))
    );
    assert_eq!(told["left_out"], json!({}));

    let field = metadata(&out, "E");
    assert_eq!(field["shape"], json!([3, 3, ROW]));
    assert_eq!(
        (&field["data_type"], &field["fill_value"]),
        (&json!("float64"), &json!("NaN"))
    );
    let stream = streams.stream("fields");
    for number in 0..3 {
        let view = stream.step(Run(1), Step(number)).unwrap();
        for (array, index, selection) in [
            ("E", "0/0", Selection::Whole),
            ("joined", "0", Selection::Whole),
            ("cube", "0/0/0", Selection::Whole),
        ] {
            let read = view.get(array, &selection).unwrap().data;
            assert_eq!(
                chunk(&out, array, &format!("{number}/{index}")),
                &*read,
                "{array}"
            );
        }
        for block in 0..2 {
            let read = view.get("own", &Selection::Block(block)).unwrap().data;
            let recorded = chunk(&out, &format!("own/{block}"), &format!("{number}/0"));
            assert_eq!(recorded, &*read);
        }
        assert_eq!(
            chunk(&out, "load", &format!("{number}/0")),
            view.values("load").unwrap().concat()
        );
        let note = format!("step {number}");
        let text = [&[1, 0, 0, 0, note.len() as u8, 0, 0, 0], note.as_bytes()].concat();
        assert_eq!(chunk(&out, "note", &number.to_string()), text);
        assert_eq!(
            chunk(&out, "step", &number.to_string()),
            number.to_le_bytes()
        );
    }
    let codecs = &metadata(&out, "joined")["codecs"];
    assert_eq!(codecs[0]["configuration"]["endian"], "big");
    let group = metadata(&out, "");
    assert_eq!(
        (&group["attributes"]["last"], &group["attributes"]["mesh"]),
        (&json!(2), &json!([1, 2, 3]))
    );

    let told = streams.run(&["record", "fields", path]).exits(1);
    assert!(told.stderr.contains("not empty"), "{}", told.stderr);
    // A file is in the way: no step is said to be there.
    let full = directory.path().join("full");
    std::fs::write(&full, "").unwrap();
    let below = full.join("out");
    streams
        .run(&["record", "fields", below.to_str().unwrap()])
        .exits(1);
}

#[test]
fn a_run_that_is_being_written_is_recorded_up_to_an_interrupt() {
    let streams = Streams::new();
    let mut writers = streams.writers(WATCHDOG);
    write_step(&mut writers);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("live.zarr");
    let args = ["steps", "record", "fields", out.to_str().unwrap(), "--json"];
    let mut recorder = streams
        .rig
        .thalweg(&args)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let log = rig::collect(recorder.stdout.take().unwrap());
    // It is a reader: what is released is recorded.
    let mut reader = streams
        .stream("fields")
        .reader(ReaderOptions::default())
        .unwrap();
    let recorded = || out.join("step").join("c").join("1").exists();
    write_step(&mut writers);
    let began = std::time::Instant::now();
    while !recorded() && began.elapsed() < WATCHDOG {
        // Asking the server takes its time, so that this is no busy loop.
        drop(reader.next(Duration::from_millis(20)).unwrap());
    }
    signal(recorder.id(), rustix::process::Signal::INT);
    assert!(wait(&mut recorder).success());
    let told = &rig::json_lines(&log.whole())[0];
    assert_eq!(
        (&told["steps"], &told["state"]),
        (&json!(2), &json!("interrupted"))
    );
    assert_eq!(metadata(&out, "step")["shape"], json!([2]));
    assert_eq!(metadata(&out, "E")["shape"], json!([2, 3, ROW]));
    assert_eq!(
        metadata(&out, "")["attributes"]["thalweg"]["state"],
        "interrupted"
    );
    // Nobody waits for it any more, and it has left no position.
    write_step(&mut writers);
    close(&mut writers);
    let told = streams.rig.run(&["topic", "show", "fields", "--json"]).ok();
    assert!(!told.contains("record-"), "{told}");
}

#[test]
fn a_replay_goes_on_by_a_line_of_input() {
    let streams = Streams::new();
    streams.write_run(3);
    streams.run(&["create", "copy"]).ok();
    let args = ["steps", "replay", "fields", "copy", "--rate", "step"];
    let mut command = streams.rig.thalweg(&args);
    let mut replay = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = rig::collect(replay.stderr.take().unwrap());
    let mut input = replay.stdin.take().unwrap();
    let mut reader = streams
        .stream("copy")
        .reader(ReaderOptions::default())
        .unwrap();
    for number in 0..2 {
        input.write_all(b"\n").unwrap();
        let Next::Step(step) = reader.next(WATCHDOG).unwrap() else {
            panic!("a line makes a step");
        };
        assert_eq!(step.number(), Step(number));
    }
    drop(input);
    assert_eq!(wait(&mut replay).code(), Some(1));
    let told = log.whole();
    assert!(
        told.contains("ended with its input behind 2 of 3 steps"),
        "{told}"
    );
}

#[test]
fn a_replay_that_is_interrupted_leaves_its_run_unclosed() {
    let streams = Streams::new();
    streams.write_run(2);
    streams.run(&["create", "copy"]).ok();
    // The second step is due in years.
    let args = ["steps", "replay", "fields", "copy", "--rate", "1e-12x"];
    let mut replay = streams
        .rig
        .thalweg(&args)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = rig::collect(replay.stderr.take().unwrap());
    let mut reader = streams
        .stream("copy")
        .reader(ReaderOptions::default())
        .unwrap();
    let Next::Step(step) = reader.next(WATCHDOG).unwrap() else {
        panic!("the first step comes at once");
    };
    assert_eq!(step.number(), Step(0));
    signal(replay.id(), rustix::process::Signal::INT);
    assert_eq!(wait(&mut replay).code(), Some(1));
    assert!(
        log.whole().contains("behind 1 of 2 steps"),
        "{}",
        log.whole()
    );
    let run = &streams.run(&["ls", "copy", "--json"]).json()[0];
    assert_eq!((&run["state"], &run["steps"]), (&json!("open"), &json!(1)));
}

#[test]
fn a_replay_does_not_take_the_place_of_a_writer() {
    let streams = Streams::new();
    streams.write_run(1);
    let mut writers = streams.writers(WATCHDOG);
    write_step(&mut writers);
    // Another writer's run is open: the stream has one at a time.
    let ran = streams.run(&["replay", "fields", "fields", "--run", "1", "--timeout", "1"]);
    assert!(!ran.status.success(), "{}", ran.stdout);
    write_step(&mut writers);
    close(&mut writers);
}
