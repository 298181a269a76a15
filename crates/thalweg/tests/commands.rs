//! What the commands do, as somebody at a shell sees it.

use crate::rig;

use rig::{Rig, json_lines, signal, wait};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// A server with an empty topic `t`.
fn with_topic(rig: &Rig) -> rig::ServerProcess {
    let server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    server
}

fn numbers(lines: &[Value]) -> Vec<u64> {
    lines
        .iter()
        .map(|line| line["metadata"].as_u64().unwrap())
        .collect()
}

#[test]
fn parts_of_a_definition_are_options() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let range = r#"{"type": "field_range", "field": "energy", "boundaries": [0, 10, 20]}"#;
    let create = |name: &str, validator: &str| {
        rig.run(&[
            "topic",
            "create",
            name,
            "-p",
            "2",
            "--validator",
            validator,
            "--serializer",
            "msgpack",
            "--partition-selector",
            range,
        ])
    };
    create("t", "json").ok();
    let events = (0..20).map(|energy| format!("{}\n", json!({"metadata": {"energy": energy}})));
    rig.run_with(
        &["produce", "t", "--input", "events"],
        events.collect::<String>(),
    )
    .ok();
    let lines = rig.run(&["consume", "t", "-n", "c", "--no-ack"]).json();
    assert_eq!(lines.len(), 20);
    for line in &lines {
        let energy = line["metadata"]["energy"].as_u64().unwrap();
        assert_eq!(line["partition"], energy / 10, "{line}");
    }
    let refused = create("u", "xml");
    refused.exits(2);
}

#[test]
fn topics_come_and_go() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let args = [
        "topic",
        "create",
        "frames",
        "--partitions",
        "3",
        "--durability",
        "written",
    ];
    let text = rig.run(&args).ok();
    assert!(
        text.contains("frames") && text.contains("written"),
        "{text}"
    );
    rig.run(&args).exits(1);
    rig.run(&[&args[..], &["--if-missing"]].concat()).ok();
    rig.run(&[
        "topic",
        "add-partitions",
        "frames",
        "--storage",
        "disk",
        "--partitions",
        "2",
    ])
    .ok();
    let topics = rig.run(&["topic", "list", "--json"]).json();
    assert_eq!(topics.len(), 1);
    let partitions = topics[0]["partitions"].as_array().unwrap();
    assert_eq!(partitions.len(), 5);
    assert_eq!(partitions[4]["partition"], 4);
    assert_eq!(partitions[4]["storage"]["kind"], "disk");
    assert_eq!(topics[0]["definition"]["durability"], "written");
    assert_eq!(rig.run(&["topic", "list"]).ok(), "frames\n");
    assert_eq!(
        rig.run(&["topic", "describe", "frames", "--json"]).json(),
        topics
    );
    assert_eq!(
        rig.run(&["topic", "delete", "frames", "--yes"]).ok(),
        "deleted frames\n"
    );
    assert_eq!(rig.run(&["topic", "list"]).ok(), "");
}

#[test]
fn lines_become_events_and_go_on_at_the_cursor() {
    let rig = Rig::default();
    let _server = with_topic(&rig);
    assert_eq!(
        rig.run_with(&["produce", "t"], "1\n2\n3").ok(),
        "3 events acknowledged\n"
    );
    let first = rig.run(&["consume", "t", "-n", "c", "--max", "2"]).json();
    assert_eq!(numbers(&first), [1, 2]);
    let rest = rig.run(&["consume", "t", "-n", "c", "--no-ack"]).json();
    assert_eq!(numbers(&rest), [3]);
    let again = rig.run(&["consume", "t", "-n", "c", "--plain"]).ok();
    assert_eq!(again, "3\n");
    assert_eq!(rig.run(&["consume", "t", "-n", "c"]).ok(), "");
    // Another name begins at the beginning, or where it is told to.
    assert_eq!(
        numbers(&rig.run(&["consume", "t", "-n", "d", "--start", "1"]).json()),
        [2, 3]
    );
    assert_eq!(
        rig.run(&["consume", "t", "-n", "e", "--start", "latest"])
            .ok(),
        ""
    );
    assert_eq!(rig.run(&["consume", "t", "-n", "f"]).json().len(), 3);
    for (name, start, count) in [
        ("g", "2026-01-31T14:00:00Z", 3),
        ("h", "-24h", 3),
        ("i", "2200-01-01T00:00:00+01:00", 0),
        ("j", "-0s", 0),
    ] {
        let lines = rig.run(&["consume", "t", "-n", name, "--start", start]);
        assert_eq!(lines.json().len(), count, "{start}");
    }
    let wrong = rig
        .run(&["consume", "t", "-n", "k", "--start", "yesterday"])
        .exits(2);
    assert!(wrong.stderr.contains("yesterday"));
}

#[test]
fn a_topic_is_altered_while_it_is_in_use() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t", "--storage", "memory"])
        .ok();
    rig.run_with(&["produce", "t"], "1\n2\n3\n4\n").ok();
    let alter = ["topic", "alter", "t", "--retention", r#"{"count":1}"#];
    let kept = rig.run(&[&alter[..], &["--keep-until-acknowledged", "c", "--json"]].concat());
    assert_eq!(kept.json()[0]["partitions"][0]["first"], 0);
    rig.run(&["consume", "t", "-n", "c", "--max", "2"]).ok();
    let described = rig.run(&["topic", "describe", "t", "--json"]).json();
    assert!(described[0]["partitions"][0]["first"].as_u64() <= Some(2));
    let all = rig.run(&["topic", "alter", "t", "--keep-until-acknowledged", ""]);
    assert!(!all.ok().contains("keep_until"));
    let wrong = rig
        .run(&["topic", "alter", "t", "--retention", "1"])
        .exits(1);
    assert!(wrong.stderr.contains("retention"), "{}", wrong.stderr);
}

#[test]
fn what_a_topic_keeps_is_told_in_words() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let kept = |args: &[&str]| {
        let topic = rig.run(&[args, &["--json"]].concat()).json().remove(0);
        topic["definition"]["retention"].clone()
    };
    let create = ["topic", "create", "t", "--partitions", "4", "--retention"];
    assert_eq!(
        kept(&[&create[..], &["40GB,7d"]].concat()),
        serde_json::json!({"total_bytes": 40_000_000_000u64, "age_ms": 604_800_000})
    );
    let alter = ["topic", "alter", "t", "--retention"];
    assert_eq!(
        kept(&[&alter[..], &[r#"{"bytes":"512MiB","age":"90s"}"#]].concat()),
        serde_json::json!({"bytes": 512 << 20, "age_ms": 90_000})
    );
    let wrong = rig.run(&[&alter[..], &["40 gigs"]].concat()).exits(1);
    assert!(wrong.stderr.contains("40GB,7d"), "{}", wrong.stderr);
    let create = ["topic", "create", "u", "--retention", "7 weeks"];
    let wrong = rig.run(&create).exits(2);
    assert!(wrong.stderr.contains("--retention"), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("40GB,7d"), "{}", wrong.stderr);
}

#[test]
fn events_of_every_shape_round_trip_as_lines() {
    let rig = Rig::default();
    let _server = with_topic(&rig);
    rig.run(&["topic", "create", "copy"]).ok();
    let lines = [
        json!({"metadata": {"angle": 1.5, "shape": [2, 3]}, "key": "k", "producer_time": 7,
            "headers": [["name", "value"], ["raw", {"base64": "/w=="}]], "data_text": "some data"}),
        json!({"metadata_text": "no JSON", "key": "", "tombstone": true}),
        json!({"metadata_base64": "gA==", "key_base64": "gA==", "data_base64": "AAEC"}),
        json!({"metadata": null}),
        json!({}),
    ];
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    rig.run_with(&["produce", "t", "--input", "events"], input)
        .ok();
    let consume = ["consume", "t", "-n", "c", "--data-base64", "--no-ack"];
    let text = rig.run(&consume).ok();
    let events = json_lines(&text);
    assert_eq!(events.len(), 5);
    assert_eq!(
        events[0]["metadata"],
        json!({"angle": 1.5, "shape": [2, 3]})
    );
    assert_eq!(events[0]["headers"], lines[0]["headers"]);
    assert_eq!(
        (&events[0]["key"], &events[0]["producer_time"]),
        (&json!("k"), &json!(7))
    );
    assert_eq!(
        (&events[0]["data_bytes"], &events[0]["data_base64"]),
        (&json!(9), &json!("c29tZSBkYXRh"))
    );
    assert_eq!(
        (&events[1]["metadata_text"], &events[1]["key"]),
        (&json!("no JSON"), &json!(""))
    );
    assert_eq!(events[1]["tombstone"], true);
    assert_eq!(
        (&events[2]["metadata_base64"], &events[2]["key_base64"]),
        (&json!("gA=="), &json!("gA=="))
    );
    assert_eq!(events[3]["metadata"], Value::Null);
    assert_eq!(events[4].get("key"), None);
    // What consume prints, produce reads: the copy differs in nothing but when it was made.
    rig.run_with(&["produce", "copy", "--input", "events"], text)
        .ok();
    let copies = rig
        .run(&["consume", "copy", "-n", "c", "--data-base64"])
        .json();
    for (mut event, mut copy) in events.into_iter().zip(copies) {
        for line in [&mut event, &mut copy] {
            line.as_object_mut().unwrap().remove("append_time").unwrap();
        }
        assert_eq!(copy, event);
    }
}

#[test]
fn a_bad_line_is_named_and_what_came_before_it_is_kept() {
    let rig = Rig::default();
    let _server = with_topic(&rig);
    let ran = rig.run_with(
        &["produce", "t", "--input", "events"],
        "{\"metadata\":1}\n{\"metdata\":2}\n",
    );
    let ran = ran.exits(2);
    assert!(
        ran.stderr.contains("line 2 of standard input"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("metdata"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "1 events acknowledged\n");
    assert_eq!(numbers(&rig.run(&["consume", "t", "-n", "c"]).json()), [1]);
}

#[test]
fn files_travel_as_data_and_parts_of_them_come_back() {
    let rig = Rig::default();
    let _server = with_topic(&rig);
    let small: Vec<u8> = (0..1000u32).map(|n| n as u8).collect();
    let large: Vec<u8> = (0..50_000_000u32).map(|n| (n / 7) as u8).collect();
    std::fs::write(rig.path("small"), &small).unwrap();
    std::fs::write(rig.path("large"), &large).unwrap();
    rig.run(&["produce", "t", "--data", "small", "large", "--key", "k"])
        .ok();
    rig.run_with(
        &["produce", "t", "--data", "-", "--metadata", "\"piped\""],
        "from a pipe",
    )
    .ok();

    let lines = rig
        .run(&["consume", "t", "-n", "c", "--data-dir", "out"])
        .json();
    assert_eq!(
        lines[0]["metadata"],
        json!({"file": "small", "bytes": 1000})
    );
    assert_eq!(
        (&lines[1]["data_bytes"], &lines[1]["key"]),
        (&json!(50_000_000), &json!("k"))
    );
    assert_eq!(lines[2]["metadata"], "piped");
    let read = |line: &Value| std::fs::read(rig.path(line["data_file"].as_str().unwrap())).unwrap();
    assert!(read(&lines[0]) == small && read(&lines[1]) == large);
    assert_eq!(read(&lines[2]), b"from a pipe");
    assert_eq!(lines[1]["data_file"], "out/0-1-1.data");

    let most = ["--data-dir", "most", "--data-range", "900:20000000"];
    let lines = rig
        .run(&[&["consume", "t", "-n", "e"], &most[..]].concat())
        .json();
    assert!(read(&lines[0]) == small[900..] && read(&lines[1]) == large[900..20_000_900]);
    let part = ["--data-dir", "part", "--data-range", "900:500"];
    let lines = rig
        .run(&[&["consume", "t", "-n", "d"], &part[..]].concat())
        .json();
    assert!(read(&lines[0]) == small[900..] && read(&lines[1]) == large[900..1400]);
    assert_eq!(read(&lines[2]), b"");
}

#[test]
fn a_whole_input_is_one_event_of_any_bytes() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "raw"]).ok();
    rig.run_with(&["produce", "raw", "--input", "whole"], [0, 10, 255, 10])
        .ok();
    let lines = rig.run(&["consume", "raw", "-n", "c"]).json();
    assert_eq!(lines[0]["metadata_base64"], "AAr/Cg==");
}

#[test]
fn ids_and_summaries_say_where_events_went() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t", "--partitions", "2"]).ok();
    let args = [
        "produce",
        "t",
        "--ids",
        "--json",
        "--partition",
        "1",
        "--batch-count",
        "2",
    ];
    let mut lines = rig.run_with(&args, "1\n2\n3\n").json();
    let summary = lines.pop().unwrap();
    let expected: Vec<Value> = (0..3)
        .map(|offset| json!({"type": "acknowledged", "partition": 1, "incarnation": 1, "offset": offset}))
        .collect();
    assert_eq!(lines, expected);
    assert_eq!(
        summary,
        json!({"type": "summary", "topic": "t", "acknowledged": 3, "partitions":
            [{"partition": 1, "incarnation": 1, "count": 3, "first": 0, "last": 2}]})
    );
}

#[test]
fn a_named_producer_fences_its_predecessor() {
    let rig = Rig::default();
    let _server = with_topic(&rig);
    let mut first = rig
        .thalweg(&["produce", "t", "--name", "detector", "--ids"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It holds the name once the server has taken something of it.
    let mut stdin = first.stdin.take().unwrap();
    use std::io::Write;
    writeln!(stdin, "1").unwrap();
    stdin.flush().unwrap();
    let mut consumer = rig
        .thalweg(&["consume", "t", "-n", "c", "--follow", "--max", "1"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(wait(&mut consumer).success());
    rig.run_with(&["produce", "t", "--name", "detector"], "2\n")
        .ok();
    writeln!(stdin, "3").unwrap();
    drop(stdin);
    let output = first.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("fenced"), "{errors}");
    assert_eq!(
        numbers(&rig.run(&["consume", "t", "-n", "d"]).json()),
        [1, 2]
    );
}

#[test]
fn cursors_are_listed_moved_and_forgotten() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t", "--partitions", "2"]).ok();
    for partition in ["0", "1"] {
        rig.run_with(&["produce", "t", "--partition", partition], "1\n2\n3\n")
            .ok();
    }
    rig.run(&["consume", "t", "-n", "c"]).ok();
    let cursors = rig.run(&["cursor", "list", "t", "--json"]).json();
    let cursor = |partition: u32, offset: u32, behind: u32| json!({"consumer": "c", "partition": partition, "incarnation": 1, "offset": offset, "behind": behind});
    assert_eq!(cursors, [cursor(0, 3, 0), cursor(1, 3, 0)]);
    rig.run(&[
        "cursor",
        "seek",
        "t",
        "-n",
        "c",
        "--to",
        "1",
        "--partition",
        "1",
    ])
    .ok();
    let cursors = rig
        .run(&["cursor", "list", "t", "--name", "c", "--json"])
        .json();
    assert_eq!(cursors, [cursor(0, 3, 0), cursor(1, 1, 2)]);
    assert_eq!(
        numbers(&rig.run(&["consume", "t", "-n", "c", "--no-ack"]).json()),
        [2, 3]
    );
    rig.run(&["cursor", "seek", "t", "-n", "c", "--to", "beginning"])
        .ok();
    assert_eq!(
        rig.run(&["consume", "t", "-n", "c", "--no-ack"])
            .json()
            .len(),
        6
    );
    rig.run(&["cursor", "seek", "t", "-n", "c", "--to", "latest"])
        .ok();
    assert_eq!(rig.run(&["consume", "t", "-n", "c"]).ok(), "");
    rig.run(&["cursor", "delete", "t", "-n", "c"]).ok();
    assert_eq!(rig.run(&["cursor", "list", "t", "--json"]).ok(), "");
    assert_eq!(rig.run(&["consume", "t", "-n", "c"]).json().len(), 6);
    let ran = rig
        .run(&["cursor", "seek", "t", "-n", "c", "--to", "yesterday"])
        .exits(2);
    assert!(ran.stderr.contains("yesterday"), "{}", ran.stderr);
}

#[test]
fn a_follower_ends_cleanly_with_its_cursor_kept() {
    let rig = Rig::default();
    let server = with_topic(&rig);
    let mut follower = rig
        .thalweg(&["consume", "t", "-n", "c", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    rig.run_with(&["produce", "t"], "1\n").ok();
    lines.next().unwrap().unwrap();
    // A restart of the server is not its end.
    server.kill();
    let _server = rig.serve(&[]);
    rig.run_with(&["produce", "t"], "2\n").ok();
    let second: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(second["metadata"], 2);
    signal(follower.id(), Signal::INT);
    assert!(wait(&mut follower).success());
    let cursors = rig.run(&["cursor", "list", "t", "--json"]).json();
    assert_eq!(cursors[0]["offset"], 2);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let rig = Rig::default();
    let _server = with_topic(&rig);
    let lines: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    rig.run_with(&["produce", "t"], lines).ok();
    let mut consumer = rig
        .thalweg(&["consume", "t", "-n", "c"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(consumer.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    let status = wait(&mut consumer);
    let errors = std::io::read_to_string(consumer.stderr.take().unwrap()).unwrap();
    assert!(status.success(), "{errors}");
    assert_eq!(errors, "");
}

#[test]
fn status_tells_what_the_server_holds() {
    let rig = Rig::default();
    let server = with_topic(&rig);
    let status = rig.run(&["status", "--json"]).json();
    assert_eq!(status[0]["instance"], server.instance());
    assert_eq!(status[0]["topics"][0]["name"], "t");
    let all = rig.run(&["status", "--verbose"]).ok();
    assert!(all.contains(server.instance()), "{all}");
    let short = rig.run(&["status"]).ok();
    assert!(
        short.contains("1 topic, ") && !short.contains(server.instance()),
        "{short}"
    );
    assert!(short.lines().count() < 12, "{short}");
}

#[test]
fn what_a_full_topic_refused_is_shown() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let definition = r#"{"retention":{"count":2},"keep_until_acknowledged":["slow"],"overflow":{"type":"drop_newest"}}"#;
    rig.run(&["topic", "create", "t", "--definition", definition])
        .ok();
    for number in 0..5 {
        let produced = rig.run_with(&["produce", "t"], format!("{number}\n"));
        match number < 2 {
            true => drop(produced.ok()),
            false => {
                let refused = produced.exits(1).stderr;
                assert!(
                    refused.contains("events dropped: t/0: 2 events"),
                    "{refused}"
                );
            }
        }
    }
    let described = rig.run(&["topic", "describe", "t", "--json"]).json();
    let overflow = &described[0]["partitions"][0]["overflow"];
    assert_eq!(overflow["dropped_events"], 3, "{overflow}");
    let text = rig.run(&["topic", "describe", "t"]).ok();
    assert!(text.contains("discarded"), "{text}");
    rig.run(&["topic", "alter", "t", "--overflow", "grow"]).ok();
    rig.run_with(&["produce", "t"], "5\n").ok();
    let text = rig.run(&["topic", "describe", "t"]).ok();
    assert!(!text.contains("discarded"), "{text}");
}

#[test]
fn status_tells_what_moves_and_who_is_behind() {
    let rig = Rig::default();
    let _server = with_topic(&rig);
    rig.run_with(&["produce", "t"], "1\n2\n3\n4\n").ok();
    rig.run(&["consume", "t", "-n", "reader", "--max", "1"])
        .ok();
    let still = rig.run(&["status", "--json"]).json();
    assert!(
        still[0]["topics"][0].get("in_per_s").is_none(),
        "{}",
        still[0]
    );
    // Events that come while it looks.
    let mut looking = rig
        .thalweg(&["status", "--json", "--interval", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut written = 0;
    while looking.try_wait().unwrap().is_none() {
        rig.run_with(&["produce", "t"], "5\n").ok();
        written += 1;
    }
    let text = std::io::read_to_string(looking.stdout.take().unwrap()).unwrap();
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    let topic = &status["topics"][0];
    let rate = topic["in_per_s"].as_f64().unwrap();
    assert!(
        (0.0..=f64::from(written)).contains(&rate),
        "{rate} of {written}"
    );
    let reader = &topic["consumers"][0];
    assert_eq!(
        (&reader["name"], &reader["out_per_s"]),
        (&"reader".into(), &0.0.into())
    );
    assert!(reader["lag"].as_u64().unwrap() >= 3);
    assert!(reader["oldest_unacknowledged_ms"].is_number(), "{reader}");
    let text = rig.run(&["status", "--interval", "0"]).ok();
    let line = text.lines().find(|line| line.contains("reader")).unwrap();
    assert!(
        line.contains("independent") && line.ends_with(" s"),
        "{line}"
    );
}

#[test]
fn a_server_is_found_by_address_alone_by_its_own_user() {
    let rig = Rig::default();
    let server = with_topic(&rig);
    let address = server.endpoints()[0].clone();
    assert!(address.starts_with("unix://"), "{address}");
    std::fs::remove_file(rig.group_file()).unwrap();
    assert_eq!(
        rig.run(&["topic", "list", "--address", &address]).ok(),
        "t\n"
    );
}

#[test]
fn settings_come_from_the_environment_too() {
    let rig = Rig::default();
    let mut child = rig
        .thalweg(&["serve", "data"])
        .env("THALWEG_LISTEN", "tcp://127.0.0.1:0,tcp://[::1]:0")
        .env("THALWEG_GROUP_FILE", "elsewhere.json")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(
        line.starts_with("ready at tcp://127.0.0.1:") && line.contains(" tcp://[::1]:"),
        "{line}"
    );
    let ran = rig
        .thalweg(&["topic", "list"])
        .env("THALWEG_GROUP_FILE", "elsewhere.json")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    signal(child.id(), Signal::INT);
    assert!(wait(&mut child).success());
    assert!(!rig.path("elsewhere.json").exists());
}

#[test]
fn completions_and_manual_pages_are_made() {
    let rig = Rig::default();
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            rig.run(&["completions", shell])
                .ok()
                .contains("add-partitions"),
            "{shell}"
        );
    }
    rig.run(&["man", "man"]).ok();
    let page = std::fs::read_to_string(rig.path("man/thalweg-consume.1")).unwrap();
    assert!(page.contains("data\\-range"), "{page}");
}

#[test]
fn threads_of_a_server_run_where_it_is_told() {
    let own = std::fs::read_to_string("/proc/self/status").expect("proc is there");
    let allowed = |status: &str| {
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        list.expect("each thread has one").trim().to_owned()
    };
    let list = allowed(&own);
    let first = list.split([',', '-']).next().expect("there is one");
    let rig = Rig::default();
    let server = rig.serve(&["--cores", first, "--disk-cores", &list]);
    // A thread gives itself its name, a moment after it was started.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut placed = Vec::new();
    while placed.len() < 1 + 4 && std::time::Instant::now() < deadline {
        placed.clear();
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
        for task in tasks {
            let task = task.expect("threads of a server stay").path();
            let name = std::fs::read_to_string(task.join("comm")).expect("as above");
            let status = std::fs::read_to_string(task.join("status")).expect("as above");
            match name.trim() {
                "thalweg-node" => placed.push((allowed(&status), first.to_owned())),
                disk if disk.starts_with("thalweg-disk") => {
                    placed.push((allowed(&status), list.clone()));
                }
                _ => {}
            }
        }
    }
    assert_eq!(placed.len(), 1 + 4, "{placed:?}");
    assert!(
        placed.iter().all(|(is, is_to_be)| is == is_to_be),
        "{placed:?}"
    );
}
