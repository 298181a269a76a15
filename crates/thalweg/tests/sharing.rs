//! `thalweg group` and `thalweg queue`: what an operator sees of consumers
//! that share, and what becomes of dead letters.

use crate::rig;

use client::*;
use rig::Rig;
use std::time::Duration;

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);

fn connect(rig: &Rig) -> Driver {
    let endpoint = Endpoint::GroupFile(rig.group_file());
    Driver::connect(endpoint, DriverOptions::default()).unwrap()
}

#[test]
fn dead_letters_are_shown_and_go_back() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    let lines = r#"{"metadata":1,"key":"k","data_text":"some data"}
{"metadata":2}
{"metadata":3}"#;
    rig.run_with(&["produce", "t", "--input", "events"], lines)
        .ok();
    let driver = connect(&rig);
    let topic = driver.open_topic("t").unwrap();
    let queue = topic
        .queue("farm", QueueConsumerOptions::default())
        .unwrap();
    let mut events = Vec::new();
    while events.len() < 3 {
        events.extend(queue.pull(Some(WATCHDOG)).unwrap());
    }
    events[0]
        .reject("no such file")
        .wait(Some(WATCHDOG))
        .unwrap();
    events[1].acknowledge().wait(Some(WATCHDOG)).unwrap();
    let listed = rig.run(&["queue", "list", "t", "--json"]).json();
    assert_eq!(listed[0]["name"], "farm");
    assert_eq!(listed[0]["members"][0]["leased_events"], 1);
    assert_eq!(listed[0]["partitions"][0]["lag"], 1);
    assert!(rig.run(&["queue", "list", "t"]).ok().contains("1 of 1"));
    let text = rig.run(&["queue", "describe", "t", "-n", "farm"]).ok();
    assert!(
        text.contains("lease_ms") && text.contains("present"),
        "{text}"
    );
    let refused = rig.run(&["queue", "delete", "t", "-n", "farm"]).exits(1);
    assert!(refused.stderr.contains("member"), "{}", refused.stderr);
    let wrong = rig.run(&["group", "describe", "t", "-n", "farm"]).exits(2);
    assert!(wrong.stderr.contains("kind queue"), "{}", wrong.stderr);
    events[2].acknowledge().wait(Some(WATCHDOG)).unwrap();
    drop(events);
    let dead = rig.run(&["queue", "dead", "t", "-n", "farm"]).ok();
    assert!(
        dead.contains("no such file") && dead.contains("0/0"),
        "{dead}"
    );
    let dead = rig
        .run(&["queue", "dead", "t", "-n", "farm", "--json"])
        .json();
    assert_eq!((dead.len(), &dead[0]["metadata"]), (1, &1.into()));
    let redrive = ["queue", "redrive", "t", "-n", "farm", "--json"];
    assert_eq!(rig.run(&redrive).json()[0]["redriven"], 1);
    assert_eq!(rig.run(&redrive).json()[0]["redriven"], 0);
    let mut again = queue.pull(Some(WATCHDOG)).unwrap().expect("it is back");
    assert_eq!(
        (again.metadata(), again.key()),
        (&b"1"[..], Some(&b"k"[..]))
    );
    assert!(again.headers().is_empty() && again.deliveries() == 1);
    assert_eq!(again.take_data().as_ref(), b"some data");
    again.acknowledge().wait(Some(WATCHDOG)).unwrap();
    drop(again);
    queue.close().unwrap();
    rig.run(&["queue", "delete", "t", "-n", "farm"]).ok();
    assert_eq!(rig.run(&["queue", "list", "t", "--json"]).ok(), "");
}

#[test]
fn topics_whose_dead_letters_are_together_get_back_their_own() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let driver = connect(&rig);
    for name in ["one", "two"] {
        rig.run(&["topic", "create", name]).ok();
        rig.run_with(&["produce", name], "1\n").ok();
        let options = QueueConsumerOptions {
            queue: QueueOptions {
                dead_letter_topic: "graves".into(),
                ..QueueOptions::default()
            },
            ..QueueConsumerOptions::default()
        };
        let topic = driver.open_topic(name).unwrap();
        let queue = topic.queue("farm", options).unwrap();
        let event = queue.pull(Some(WATCHDOG)).unwrap().expect("an event");
        event.reject("no use").wait(Some(WATCHDOG)).unwrap();
        drop(event);
        queue.close().unwrap();
    }
    let graves = driver.open_topic("graves").unwrap();
    let reader = graves
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    for _ in 0..2 {
        reader.pull(Some(WATCHDOG)).unwrap().expect("a letter");
    }
    for name in ["one", "two"] {
        let dead = ["queue", "dead", name, "-n", "farm", "--json"];
        assert_eq!(rig.run(&dead).json().len(), 1);
        let redrive = ["queue", "redrive", name, "-n", "farm", "--json"];
        assert_eq!(rig.run(&redrive).json()[0]["redriven"], 1, "{name}");
    }
    let absurd = ["consume", "one", "--start=-2562047788015h"];
    let refused = rig.run(&absurd).exits(2);
    assert!(refused.stderr.contains("--start"), "{}", refused.stderr);
}

#[test]
fn a_group_shows_who_owns_what() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t", "--partitions", "2"]).ok();
    rig.run_with(&["produce", "t"], "1\n2\n3\n4\n").ok();
    let driver = connect(&rig);
    let topic = driver.open_topic("t").unwrap();
    let options = ConsumerOptions::default();
    let group = topic
        .group("share", GroupMember::default(), options)
        .unwrap();
    let mut events = Vec::new();
    while events.len() < 4 {
        events.extend(group.pull(Some(WATCHDOG)).unwrap());
    }
    let described = rig
        .run(&["group", "describe", "t", "-n", "share", "--json"])
        .json();
    assert_eq!(
        described[0]["members"][0]["partitions"],
        serde_json::json!([0, 1])
    );
    assert_eq!(described[0]["partitions"][1]["lag"], 2);
    assert!(rig.run(&["group", "list", "t"]).ok().contains("share"));
    assert_eq!(rig.run(&["queue", "list", "t", "--json"]).ok(), "");
    group.close().unwrap();
    rig.run(&["group", "delete", "t", "-n", "share"]).ok();
}

#[test]
fn a_queue_is_drained_when_nothing_is_left_to_anybody() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    // It is there: nothing fails, by either name of the flag.
    for flag in ["--if-missing", "--exist-ok"] {
        rig.run(&["topic", "create", "t", flag]).ok();
    }
    let lines = r#"{"metadata":1,"data_text":"some data"}
{"metadata":2}
{"metadata":3}"#;
    rig.run_with(&["produce", "t", "--input", "events"], lines)
        .ok();
    let driver = connect(&rig);
    let topic = driver.open_topic("t").unwrap();
    let options = QueueConsumerOptions {
        prefetch_events: 1,
        ..QueueConsumerOptions::default()
    };
    let queue = topic.queue("farm", options).unwrap();
    let held = queue.pull(Some(WATCHDOG)).unwrap().expect("an event");
    let unsettled = || {
        let found = topic.describe_consumers("farm").unwrap();
        let partition = &found[0].partitions[0];
        partition.end.0 - partition.position.offset.0 - partition.settled
    };
    let drain = ["queue", "drain", "t", "-n", "farm", "--idle", "0.1"];
    let drain = [&drain[..], &["--data-base64"]].concat();
    let drained = std::thread::scope(|scope| {
        let drain = scope.spawn(|| rig.run(&drain).json());
        while unsettled() > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // It does not end while another member has an event.
        std::thread::sleep(Duration::from_millis(500));
        assert!(!drain.is_finished(), "an event is still leased");
        queue.wind_down(WATCHDOG);
        held.return_to_queue(Duration::ZERO);
        drain.join().unwrap()
    });
    let numbers: Vec<_> = drained
        .iter()
        .map(|line| line["metadata"].as_u64())
        .collect();
    assert_eq!(numbers, [Some(2), Some(3), Some(1)]);
    assert_eq!(drained[2]["data_base64"], "c29tZSBkYXRh");
    assert_eq!(unsettled(), 0);
    let again = [
        "queue", "drain", "t", "-n", "farm", "--idle", "0", "--plain",
    ];
    assert_eq!(rig.run(&again).ok(), "");
    rig.run_with(&["produce", "t"], "4\n5\n6\n").ok();
    let some = rig.run(&[&again[..], &["--max", "2"]].concat()).ok();
    assert_eq!(some, "4\n5\n");
    assert_eq!(rig.run(&again).ok(), "6\n");
}
