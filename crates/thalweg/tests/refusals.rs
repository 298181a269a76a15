//! What cannot be right is refused, with an error that says what and where.

use crate::rig;

use rig::{Ran, Rig};

#[track_caller]
fn refused(ran: Ran, code: i32, words: &[&str]) {
    let ran = ran.exits(code);
    assert!(ran.stderr.starts_with("thalweg: "), "{}", ran.stderr);
    for word in words {
        assert!(
            ran.stderr.contains(word),
            "{word:?} is missing in: {}",
            ran.stderr
        );
    }
}

#[test]
fn metadata_over_the_limit() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&[
        "topic",
        "create",
        "t",
        "--definition",
        r#"{"metadata_bytes_max": 100}"#,
    ])
    .ok();
    rig.run_with(&["produce", "t"], format!("\"{}\"\n", "x".repeat(98)))
        .ok();
    let ran = rig.run_with(&["produce", "t"], format!("\"{}\"\n", "x".repeat(99)));
    refused(ran, 2, &["line 1", "metadata of 101 bytes", "100"]);
    assert_eq!(rig.run(&["consume", "t", "-n", "c"]).json().len(), 1);
}

#[test]
fn an_unknown_setting() {
    let rig = Rig::default();
    std::fs::write(rig.path("settings.toml"), "disk_thread = 4\n").unwrap();
    let ran = rig.run(&["serve", "data", "--config", "settings.toml"]);
    refused(
        ran,
        2,
        &[
            "settings.toml",
            "unknown key `disk_thread`",
            "`disk_threads`",
        ],
    );
    assert!(!rig.path("data").exists());
    let ran = rig.run(&["serve", "data", "--disk-thread", "4"]).exits(2);
    assert!(ran.stderr.contains("--disk-threads"), "{}", ran.stderr);
}

#[test]
fn an_address_beyond_the_host() {
    let rig = Rig::default();
    let ran = rig.run(&["serve", "data", "--listen", "tcp://0.0.0.0:0"]);
    refused(ran, 2, &["tcp://0.0.0.0:0", "--insecure-listen"]);
}

#[test]
fn a_partition_out_of_range() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t", "--partitions", "2"]).ok();
    refused(
        rig.run_with(&["produce", "t", "--partition", "7"], "1\n"),
        2,
        &["7", "2"],
    );
    refused(
        rig.run(&["consume", "t", "-n", "c", "--partition", "7"]),
        2,
        &["7", "2"],
    );
    assert_eq!(rig.run(&["consume", "t", "-n", "c"]).ok(), "");
}

#[test]
fn an_unknown_storage_kind_leaves_nothing_behind() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    refused(
        rig.run(&["topic", "create", "t", "--storage", "tape"]),
        1,
        &["t: ", "tape"],
    );
    assert_eq!(rig.run(&["topic", "list"]).ok(), "");
    rig.run(&["topic", "create", "t"]).ok();
    refused(
        rig.run(&["topic", "add-partitions", "t", "--storage", "tape"]),
        1,
        &["tape"],
    );
    let topic = rig.run(&["topic", "describe", "t", "--json"]).json();
    assert_eq!(topic[0]["partitions"].as_array().unwrap().len(), 1);
}

#[test]
fn numbers_that_cannot_be() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    for many in ["4097", "20000000", "2147483648", "4294967295"] {
        for command in ["create", "add-partitions"] {
            refused(
                rig.run(&["topic", command, "t", "--partitions", many]),
                2,
                &["--partitions: ", many, "4096 at most"],
            );
        }
    }
    rig.run(&["topic", "create", "t"]).ok();
    let long = "9".repeat(100_000);
    let numbers: &[(&[&str], &str)] = &[
        (&["topic", "create", "u"], "--partitions"),
        (&["produce", "t"], "--linger-ms"),
        (&["produce", "t"], "--batch-count"),
        (&["produce", "t"], "--batch-bytes"),
        (&["produce", "t"], "--partition"),
        (&["consume", "t"], "--max"),
        (&["consume", "t"], "--partition"),
        (&["consume", "t"], "--timeout"),
        (&["status"], "--interval"),
        (&["status"], "--connect-timeout"),
    ];
    for (command, option) in numbers {
        for wrong in ["-1", "nan", "18446744073709551616.5", &long] {
            let given = format!("{option}={wrong}");
            let ended = rig.run(&[command, &[&given[..]][..]].concat());
            assert!(
                !ended.stderr.contains("panicked"),
                "{given:.40}: {}",
                ended.stderr
            );
        }
    }
    rig.run(&["topic", "list"]).ok();
}

#[test]
fn a_durability_that_storage_cannot_give() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let ran = rig.run(&[
        "topic",
        "create",
        "t",
        "--storage",
        "memory",
        "--durability",
        "synced",
    ]);
    refused(ran, 1, &["synced", "memory"]);
    assert_eq!(rig.run(&["topic", "list"]).ok(), "");
}

#[test]
fn a_bad_definition() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let ran = rig.run(&[
        "topic",
        "create",
        "t",
        "--definition",
        r#"{"validatr": "json"}"#,
    ]);
    refused(ran, 2, &["validatr"]);
    let ran = rig.run(&["topic", "create", "t", "--durability", "eternal"]);
    refused(ran, 2, &["eternal"]);
}

#[test]
fn a_topic_that_is_not_there() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    for args in [
        &["topic", "describe", "t"][..],
        &["topic", "delete", "t", "--yes"],
        &["produce", "t"],
        &["consume", "t", "-n", "c"],
        &["cursor", "list", "t"],
    ] {
        refused(rig.run(args), 1, &["t: ", "unknown topic"]);
    }
}

#[test]
fn a_timeout_that_is_no_number_of_seconds() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    for wrong in ["-1", "nan", "soon"] {
        let ran = rig.run(&["topic", "list", &format!("--timeout={wrong}")]);
        let ran = ran.exits(2);
        let reason = "must be a number of seconds from 0 on";
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    }
    // One that no clock can tell is for ever.
    for ever in ["inf", "1e300"] {
        let timeouts = [
            format!("--timeout={ever}"),
            format!("--connect-timeout={ever}"),
        ];
        rig.run(&["topic", "list", &timeouts[0], &timeouts[1]]).ok();
    }
}

#[test]
fn a_stale_group_file() {
    let rig = Rig::default();
    let server = rig.serve(&["--listen", "tcp://127.0.0.1:0", "--no-unix-socket"]);
    let address = server.endpoints()[0].clone();
    server.kill();
    assert!(
        rig.group_file().exists(),
        "a killed server cannot remove it"
    );
    let ran = rig.run(&["topic", "list", "--connect-timeout", "0.5"]);
    refused(ran, 5, &["thalweg.json", &address]);
    let ran = rig.run(&[
        "topic",
        "list",
        "-g",
        "nowhere.json",
        "--connect-timeout",
        "0.5",
    ]);
    refused(ran, 5, &["nowhere.json"]);
}

#[test]
fn a_foreign_group_file() {
    let rig = Rig::default();
    let server = rig.serve(&["--listen", "tcp://127.0.0.1:0", "--no-unix-socket"]);
    let address = server.endpoints()[0].clone();
    let text = std::fs::read_to_string(rig.group_file()).unwrap();
    let mut group: serde_json::Value = serde_json::from_str(&text).unwrap();
    // The token is right, so that it is the directory that is refused.
    group["directory"] = "0123456789abcdef0123456789abcdef".into();
    std::fs::write(rig.path("foreign.json"), group.to_string()).unwrap();
    let ran = rig.run(&[
        "topic",
        "list",
        "-g",
        "foreign.json",
        "--connect-timeout",
        "0.5",
    ]);
    refused(ran, 5, &[&address, "0123456789abcdef0123456789abcdef"]);
}

#[test]
fn a_server_that_cannot_be_there() {
    let rig = Rig::default();
    // Neither is waited for.
    let ran = rig.run(&["topic", "list", "-g", "absent.json"]);
    refused(ran, 5, &["absent.json: No such file", "connect_timeout"]);
    let ran = rig.run(&["topic", "list", "--address", "tcp://localhost"]);
    refused(ran, 2, &["tcp://localhost is no address of TCP"]);
    let ran = rig.run(&["topic", "list", "-g", "tcp://localhost:1"]);
    refused(ran, 2, &["give it as the address"]);
}

#[test]
fn a_wrong_token() {
    let rig = Rig::default();
    let server = rig.serve(&["--listen", "tcp://127.0.0.1:0"]);
    std::fs::write(rig.path("token"), "00".repeat(32)).unwrap();
    let args = [
        "topic",
        "list",
        "--token-file",
        "token",
        "--address",
        &server.endpoints()[0],
    ];
    let ran = rig.run(&args);
    assert_eq!(ran.status.code(), Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("not authenticated"), "{}", ran.stderr);
    let ran = rig.run(&["topic", "list", "--address", &server.endpoints()[0]]);
    assert_eq!(ran.status.code(), Some(1), "{}", ran.stderr);
    let asks = "not authenticated: the server asks for a token: ";
    assert!(ran.stderr.contains(asks), "{}", ran.stderr);
    assert!(!ran.stderr.contains("directory"), "{}", ran.stderr);
    std::fs::copy(rig.path("data/token"), rig.path("token")).unwrap();
    rig.run(&args).ok();
}

#[test]
fn a_second_server_on_the_same_directory() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    let ran = rig.run(&["serve", "data"]);
    refused(
        ran,
        6,
        &[
            "data",
            &format!("process {}", server.pid()),
            server.instance(),
        ],
    );
    // The first one does not notice.
    rig.run(&["topic", "list"]).ok();
    server.kill();
    rig.serve(&[]);
}

#[test]
fn a_corrupt_segment_is_served_up_to_the_damage_and_the_damage_is_named() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    let journal = rig.path("journal");
    let journal = journal.to_str().unwrap();
    // Batches of one event: damage to one leaves the others whole.
    let lines: String = (0..100)
        .map(|n| format!("{{\"n\":{n},\"pad\":\"{}\"}}\n", "x".repeat(200)))
        .collect();
    rig.run_with(
        &["produce", "t", "--batch-count", "1", "--journal", journal],
        lines,
    )
    .ok();
    rig.run(&["audit", "--journal", journal]).exits(0);
    assert!(server.terminate().0.success());

    let needle = br#"{"n":50,"#;
    let mut damaged = 0;
    for path in rig::files(&rig.path("data")) {
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes
            .windows(needle.len())
            .position(|window| window == needle)
        {
            bytes[at + 20] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1, "the event lies in one file");

    let _server = rig.serve(&[]);
    let consumed = rig.run(&["consume", "t", "-n", "c"]).json();
    let numbers: Vec<u64> = consumed
        .iter()
        .filter_map(|line| line["metadata"]["n"].as_u64())
        .collect();
    let expected: Vec<u64> = (0..100).filter(|n| *n != 50).collect();
    assert_eq!(numbers, expected);
    let gaps: Vec<_> = consumed
        .iter()
        .filter(|line| line["type"] == "gap")
        .collect();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(
        (&gaps[0]["first"], &gaps[0]["end"]),
        (&50.into(), &51.into())
    );
    assert_eq!(gaps[0]["reason"], "damaged");

    let audit = rig.run(&["audit", "--journal", journal, "--json"]).exits(3);
    let findings: Vec<_> = rig::json_lines(&audit.stdout)
        .into_iter()
        .filter(|line| line["type"] == "finding")
        .collect();
    assert!(!findings.is_empty());
    for finding in findings {
        assert_eq!(
            (&finding["kind"], &finding["first"]),
            (&"lost".into(), &50.into()),
            "{finding}"
        );
    }
}

#[test]
fn corrupt_data_of_one_event_is_left_out_and_named() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    // Beyond what travels inside of a batch, in one batch of three events.
    for name in ["a", "b", "c"] {
        std::fs::write(rig.path(name), name.repeat(200_000)).unwrap();
    }
    let produce = [
        "produce",
        "t",
        "--linger-ms",
        "60000",
        "--data",
        "a",
        "b",
        "c",
    ];
    rig.run(&produce).ok();
    assert!(server.terminate().0.success());

    let mut damaged = 0;
    for path in rig::files(&rig.path("data")) {
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes
            .windows(1000)
            .position(|window| window == [b'b'; 1000])
        {
            bytes[at + 100_000] = b'x';
            std::fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1, "the data lies in one file");

    let _server = rig.serve(&[]);
    let consumed = rig
        .run(&["consume", "t", "-n", "c", "--data-dir", "out"])
        .json();
    let files: Vec<_> = consumed
        .iter()
        .filter_map(|line| line["metadata"]["file"].as_str())
        .collect();
    assert_eq!(files, ["a", "c"], "{consumed:?}");
    for line in consumed.iter().filter(|line| line["type"] == "event") {
        let data = std::fs::read(rig.path(line["data_file"].as_str().unwrap())).unwrap();
        assert!(
            data == std::fs::read(rig.path(line["metadata"]["file"].as_str().unwrap())).unwrap()
        );
    }
    let gap = consumed
        .iter()
        .find(|line| line["type"] == "gap")
        .expect("the damage is named");
    assert_eq!((&gap["first"], &gap["end"]), (&1.into(), &2.into()));
    assert_eq!(gap["reason"], "damaged");
    // A part of it that no damaged block touches can be read.
    let part = [
        "consume",
        "t",
        "-n",
        "d",
        "--data-base64",
        "--data-range",
        "0:4",
    ];
    let consumed = rig.run(&part).json();
    assert_eq!(consumed[1]["data_base64"], "YmJiYg==", "{consumed:?}");
    let ran = rig.run(&["audit", "--json"]).exits(3);
    let finding = &rig::json_lines(&ran.stdout)[0];
    assert_eq!(
        (&finding["kind"], &finding["first"]),
        (&"lost".into(), &0.into())
    );
}

#[test]
fn a_deleted_or_shortened_segment_is_found() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    for topic in ["deleted", "shortened"] {
        rig.run(&["topic", "create", topic]).ok();
        let lines: String = (0..100).map(|n| format!("[\"{topic}\",{n}]\n")).collect();
        rig.run_with(
            &[
                "produce",
                topic,
                "--batch-count",
                "1",
                "--journal",
                "journal",
            ],
            lines,
        )
        .ok();
    }
    assert!(server.terminate().0.success());
    let holding = |text: &str| {
        let holds = |path: &std::path::PathBuf| {
            let bytes = std::fs::read(path).unwrap();
            bytes
                .windows(text.len())
                .any(|window| window == text.as_bytes())
        };
        let mut paths = rig::files(&rig.path("data/partitions"))
            .into_iter()
            .filter(holds);
        (paths.next().expect("a file holds it"), paths.next())
    };
    let (deleted, other) = holding("[\"deleted\",50]");
    assert_eq!(other, None);
    std::fs::remove_file(deleted).unwrap();
    let (shortened, other) = holding("[\"shortened\",50]");
    assert_eq!(other, None);
    let bytes = std::fs::read(&shortened).unwrap();
    let needle = b"[\"shortened\",50]";
    let at = bytes
        .windows(needle.len())
        .position(|window| window == needle)
        .unwrap();
    std::fs::write(&shortened, &bytes[..at]).unwrap();

    let _server = rig.serve(&[]);
    let ran = rig
        .run(&["audit", "--journal", "journal", "--json"])
        .exits(3);
    let findings: Vec<_> = rig::json_lines(&ran.stdout)
        .into_iter()
        .filter(|line| line["type"] == "finding")
        .collect();
    for (topic, first) in [("deleted", 0), ("shortened", 50)] {
        let lost: u64 = findings
            .iter()
            .filter(|finding| finding["topic"] == topic && finding["kind"] == "lost")
            .map(|finding| finding["first"].as_u64().unwrap())
            .min()
            .unwrap_or_else(|| panic!("{topic}: {findings:?}"));
        assert_eq!(lost, first, "{topic}: {findings:?}");
        // What is there is served all the same.
        let consumed = rig.run(&["consume", topic, "-n", "c"]).json();
        let events = consumed
            .iter()
            .filter(|line| line["type"] == "event")
            .count() as u64;
        assert_eq!(events, first, "{topic}: {consumed:?}");
    }
}

#[test]
fn a_processor_that_is_not_there() {
    let rig = Rig::default();
    for flag in ["--cores", "--disk-cores"] {
        let ran = rig.run(&["serve", "data", flag, "1023"]);
        refused(ran, 2, &["processor 1023", "may use"]);
        let ran = rig.run(&["serve", "data", flag, "3-1"]);
        refused(ran, 2, &["3-1", "ends before it begins"]);
        assert!(!rig.path("data").exists());
    }
}
