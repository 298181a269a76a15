//! `thalweg bench` runs by itself and says what it measured.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a benchmark prints as JSON.
fn bench(words: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .arg("bench")
        .args(words)
        .args(["--repetitions", "2", "--json"])
        .output()
        .unwrap();
    lines(output, words)
}

fn lines(output: std::process::Output, words: &[&str]) -> Vec<Value> {
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Checks a spread over repetitions; returns its median.
fn median(spread: &Value) -> f64 {
    let [min, median, max] = ["min", "median", "max"].map(|which| {
        spread[which]
            .as_f64()
            .unwrap_or_else(|| panic!("{which} of {spread}"))
    });
    assert!(0.0 <= min && min <= median && median <= max, "{spread}");
    median
}

fn assert_measured(case: &Value) {
    assert_eq!(case["repetitions"], 2);
    for figure in ["seconds", "events_per_s", "bytes_per_s"] {
        assert!(median(&case[figure]) > 0.0, "{figure} of {case}");
    }
    assert!(median(&case["clients_per_event"]["cpu_ns"]) > 0.0);
    // What is consumed may all have been sent ahead.
    let frames = median(&case["clients_per_event"]["frames"]);
    assert!(frames > 0.0 || case["work"] == "consume", "{case}");
}

#[test]
fn the_floors_are_measured_beside_their_limits() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let cases = bench(&["floors", "--events", "5000", "--directory", data]);
    let works: Vec<(&str, &str, bool)> = cases
        .iter()
        .map(|case| {
            let text = |name: &str| case[name].as_str().unwrap();
            let is_steady = case["retention_bytes"].is_number();
            (text("work"), text("durability"), is_steady)
        })
        .collect();
    assert_eq!(
        works,
        [
            ("produce", "memory", true),
            ("produce", "memory", false),
            ("produce", "written", true),
            ("produce", "written", false),
            ("consume", "written", false),
        ]
    );
    for case in &cases {
        assert_measured(case);
        assert!(median(&case["server_per_event"]["cpu_ns"]) > 0.0);
        for limit in ["stream_hot_bytes_per_s", "stream_cold_bytes_per_s"] {
            assert!(median(&case["limits"][limit]) > 0.0, "{limit} of {case}");
            assert!(median(&case["shares"][limit]) > 0.0, "{limit} of {case}");
        }
    }
    assert!(median(&cases[3]["limits"]["page_cache_fallocated_bytes_per_s"]) > 0.0);
}

#[test]
fn several_clients_move_every_event_of_several_topics_and_partitions() {
    let words = [
        "--events",
        "3000",
        "--clients",
        "3",
        "--topics",
        "2",
        "--partitions",
        "2",
        "--batch-count",
        "10",
        "--flush-every",
        "100",
        "--warmup",
        "50",
        "--storage",
        "memory",
        "--transport",
        "unix",
        "--no-limits",
    ];
    for work in ["produce", "consume", "pipeline"] {
        let cases = bench(&[&[work], &words[..]].concat());
        assert_measured(&cases[0]);
        assert_eq!(cases[0]["clients"], 3);
        assert_eq!(cases[0]["limits"], serde_json::json!({}));
        assert_eq!(cases[0]["delay_ns"].is_object(), work == "pipeline");
    }
}

#[test]
fn documents_are_checked_beside_the_validator_alone() {
    let words = [
        "produce",
        "--events",
        "2000",
        "--document",
        "numbers",
        "--check",
    ];
    let cases = bench(&[&words[..], &["--storage", "memory"]].concat());
    assert_measured(&cases[0]);
    assert_eq!(cases[0]["document"], "numbers");
    assert!(median(&cases[0]["limits"]["validator_bytes_per_s"]) > 0.0);
    // Nobody counted them.
    assert!(cases[0]["clients_per_event"]["instructions"].is_null());
}

#[test]
fn instructions_are_counted_where_there_is_perf() {
    let counts = Command::new("perf")
        .args(["stat", "-x", ",", "-e", "instructions:u", "true"])
        .output();
    let can_count = counts.is_ok_and(|output| {
        let report = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success() && !report.contains("<not")
    });
    if !can_count {
        eprintln!("skipped: no perf, or it counts no instructions here");
        return;
    }
    let words = [
        "produce",
        "--events",
        "20000",
        "--storage",
        "memory",
        "--no-limits",
    ];
    let cases = bench(&[&words[..], &["--instructions"]].concat());
    for side in ["clients_per_event", "server_per_event"] {
        assert!(median(&cases[0][side]["instructions"]) > 1.0, "{side}");
    }
}

#[test]
fn what_is_kept_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    // Space for one repetition: all topics go before each.
    let cases = bench(&[
        "produce",
        "--events",
        "2000",
        "--keep-bytes",
        "3000000",
        "--no-limits",
        "--directory",
        data,
    ]);
    assert_measured(&cases[0]);
}

#[test]
fn parts_of_data_are_selected_and_arrive_whole() {
    let words = [
        "consume",
        "--events",
        "8",
        "--metadata-bytes",
        "100",
        "--data-bytes",
        "1000000",
        "--piece-bytes",
        "4096",
        "--piece-every",
        "100000",
        "--no-limits",
    ];
    let cases = bench(&words);
    assert_measured(&cases[0]);
    let rate = |name: &str| median(&cases[0][name]);
    let each = rate("bytes_per_s") / rate("events_per_s");
    assert!((each - 41_060.0).abs() < 1000.0, "{each} bytes an event");
}

#[test]
fn latency_has_percentiles() {
    let cases = bench(&["latency", "--events", "200", "--metadata-bytes", "128"]);
    assert_measured(&cases[0]);
    let of = |name: &str| median(&cases[0]["delay_ns"][name]);
    assert!(0.0 < of("min") && of("min") <= of("p50"));
    assert!(of("p50") <= of("p99") && of("p99") <= of("max"));
}

#[test]
fn a_server_in_the_same_process_is_measured_too() {
    let words = ["--events", "2000", "--transport", "inproc"];
    for work in ["produce", "consume", "pipeline"] {
        let cases = bench(&[&[work], &words[..]].concat());
        assert_measured(&cases[0]);
        assert!(cases[0]["server_per_event"].is_null());
    }
}

#[test]
fn calls_are_measured_over_every_transport() {
    for way in ["tcp", "unix", "inproc"] {
        let cases = bench(&["rpc", "--calls", "2000", "--transport", way]);
        assert!(median(&cases[0]["calls_per_s"]) > 0.0);
        assert!(median(&cases[0]["delay_ns"]["p50"]) > 0.0);
    }
}

#[test]
fn the_limits_are_those_of_memory_streams_and_files() {
    let cases = bench(&["limits", "--bytes", "4000000"]);
    let limits = cases[0]["limits"].as_object().unwrap();
    for name in [
        "memcpy_hot",
        "memcpy_cold",
        "copy_and_crc_cold",
        "tcp_hot",
        "tcp_cold",
        "unix_cold",
        "page_cache_fallocated",
        "page_cache_read",
    ] {
        let limit = &limits[&format!("{name}_bytes_per_s")];
        assert!(median(limit) > 0.0, "{name}");
    }
}

#[test]
fn the_preset_of_the_paper_has_its_cases() {
    let cases = bench(&[
        "produce",
        "--preset",
        "mofka-paper",
        "--scale",
        "0.001",
        "--storage",
        "memory",
        "--no-limits",
    ]);
    let sizes: Vec<(u64, u64)> = cases
        .iter()
        .map(|case| {
            let bytes = |name: &str| case[name].as_u64().unwrap();
            (bytes("metadata_bytes"), bytes("data_bytes"))
        })
        .collect();
    assert_eq!(
        sizes,
        [
            (256, 0),
            (512, 0),
            (1024, 0),
            (2048, 0),
            (4096, 0),
            (1024, 10_000_000)
        ]
    );
    for case in &cases {
        assert_measured(case);
        assert_eq!(case["flush_every"], 10_000);
    }
}

/// A process that a launcher started, by the variables that `mpiexec` sets.
fn launched(group_file: &Path, rank: usize, size: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command
        .args(["bench", "produce", "--events", "3000", "--no-limits"])
        .args(["--storage", "memory", "--partitions", "3"])
        .args(["--repetitions", "2", "--json", "--group-file"])
        .arg(group_file)
        .env("PMI_RANK", rank.to_string())
        .env("PMI_SIZE", size.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn clients_that_were_launched_together_find_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let group_file = directory.path().join("thalweg.json");
    let mut server = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .arg("serve")
        .arg(directory.path().join("data"))
        .arg("--group-file")
        .arg(&group_file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let stdout = server.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut ready).unwrap();
    let others: Vec<_> = [1, 2]
        .map(|rank| launched(&group_file, rank, 3).spawn().unwrap())
        .into_iter()
        .collect();
    let output = launched(&group_file, 0, 3).output().unwrap();
    for other in others {
        assert!(other.wait_with_output().unwrap().status.success());
    }
    server.kill().unwrap();
    server.wait().unwrap();
    let cases = lines(output, &["launched"]);
    assert_measured(&cases[0]);
    assert_eq!(cases[0]["clients"], 3);
}

#[test]
fn launched_clients_without_a_server_are_told_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["bench", "produce"])
        .envs([("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("--group-file"), "{error}");
}

#[test]
fn members_of_a_queue_settle_every_event_once() {
    let words = "--events 2000 --clients 3 --prefetch 64 --storage memory --no-limits";
    let words: Vec<&str> = words.split(' ').collect();
    let live = ["--live", "--data-bytes", "20000"];
    // Producers that wait for the members, behind events of both that are not counted.
    let steady = [&live[..], &["--warmup", "300", "--backlog-bytes", "400000"]].concat();
    for more in [&[][..], &live, &steady] {
        let cases = bench(&[&["queue"], &words[..], more].concat());
        assert_measured(&cases[0]);
        assert_eq!(cases[0]["live"], !more.is_empty());
        // No event is given to two, and none is left out.
        let each = if more.is_empty() { 1000.0 } else { 21_000.0 };
        let bytes = median(&cases[0]["bytes_per_s"]) / median(&cases[0]["events_per_s"]);
        assert!((bytes - each).abs() < 0.5, "{bytes} bytes an event");
        assert!(cases[0]["delay_ns"].is_null());
    }
}

#[test]
fn requests_are_timed_to_their_replies() {
    for transport in ["tcp", "shm", "inproc"] {
        let words =
            "request --events 200 --warmup 20 --clients 2 --in-flight 8 --metadata-bytes 16";
        let words: Vec<&str> = words.split(' ').collect();
        let cases = bench(
            &[
                &words[..],
                &["--data-bytes", "100", "--transport", transport],
            ]
            .concat(),
        );
        assert_eq!(cases[0]["in_flight"], 8);
        assert!(median(&cases[0]["delay_ns"]["p50"]) > 0.0);
        assert!(median(&cases[0]["events_per_s"]) > 0.0);
    }
}

#[test]
fn a_broadcast_is_measured_at_all_who_hear_it() {
    let words = "broadcast --events 5 --clients 4 --in-flight 2 --metadata-bytes 16 --data-bytes 300000 --storage memory";
    let cases = bench(&words.split(' ').collect::<Vec<_>>());
    let case = &cases[0];
    assert!(median(&case["delay_ns"]["p50"]) > 0.0);
    assert!(median(&case["shares"]["stream_hot_bytes_per_s"]) > 0.0);
    // Each repetition has a rate and a time of its own: 20 events lie between the extremes.
    let heard = |which: &str| {
        let [rate, time] = ["events_per_s", "seconds"].map(|name| case[name][which].as_f64());
        rate.unwrap() * time.unwrap()
    };
    let (least, most) = (heard("min"), heard("max"));
    assert!(
        least < 20.5 && most > 19.5,
        "{least} to {most} events were heard"
    );
}

#[test]
fn what_cannot_be_shared_is_refused() {
    for words in [
        "produce --live",
        "queue --topics 2",
        "queue --prefetch 0",
        "broadcast --partitions 2",
        "broadcast --warmup 1",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .arg("bench")
            .args(words.split(' '))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}");
    }
}

#[test]
fn steps_are_measured_phase_by_phase() {
    for (transport, storage) in [("tcp", "memory"), ("shm", "disk")] {
        let words = format!(
            "steps --bytes 8000,80000 --writers 2 --readers 3 --reader-processes 2 --variables 2 --batch 1 \
             --steps 6 --warmup 2 --wait committed --storage {storage} --transport {transport}"
        );
        let lines = bench(&words.split(' ').collect::<Vec<_>>());
        let [small, large, line] = &lines[..] else {
            panic!("{lines:?}");
        };
        for (case, bytes) in [(small, 8000.0), (large, 80000.0)] {
            assert_eq!(case["bytes"], bytes as u64);
            assert_eq!(case["selected_bytes"], bytes as u64);
            // Nothing is asked for that is not wanted.
            assert_eq!(median(&case["asked_bytes"]), bytes);
            assert!(median(&case["bytes_per_s"]) > 0.0);
            let phases = case["phases_ns"].as_object().unwrap();
            assert_eq!(phases.len(), 9);
            for (name, times) in phases {
                let of = ["lower_quartile", "median", "max"].map(|of| median(&times[of]));
                // Two repetitions: the median of three figures need not be in order, the least ones are.
                assert!(of[2] > 0.0 || name == "commit", "{name}: {times}");
            }
            let stall = median(&case["stall"]);
            assert!(stall >= 1.0, "{stall}");
            // Of each step and writer at least its part and what came of it.
            assert!(median(&case["writers_per_step"]["frames"]) >= 4.0);
            assert!(median(&case["server_per_step"]["cpu_ns"]) > 0.0);
        }
        assert_eq!(line["work"], "steps-line");
        assert_eq!(line["bytes"], serde_json::json!([8000, 80000]));
        let gets = &line["lines"]["gets"]["lower_quartile"];
        assert_eq!(gets["residuals_ns"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_box_of_steps_asks_for_what_it_has_and_no_more() {
    let words = "steps --shape 20,20,1024 --box 0.1,0.2,0.5 --steps 2 --warmup 1 --put span --queue 0 --storage memory";
    let cases = bench(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(cases.len(), 1);
    assert_eq!(cases[0]["selected_bytes"], 2 * 4 * 512 * 8);
    assert_eq!(median(&cases[0]["asked_bytes"]), f64::from(2 * 4 * 512 * 8));
    assert!(cases[0]["phases_ns"]["commit"].is_null());
}

#[test]
fn steps_that_cannot_be_are_refused() {
    for words in [
        "steps --steps 1",
        "steps --writers 0",
        "steps --box 0.5,0.5",
        "steps --box 1.5",
        "steps --bytes 8 --readers 2",
        "steps --readers 2 --reader-processes 3",
        "steps --transport inproc",
        "steps --keep 2",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .arg("bench")
            .args(words.split(' '))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}");
    }
}
