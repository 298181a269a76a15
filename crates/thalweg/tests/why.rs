//! `thalweg why`: each situation in which a consumer gets nothing is made, and the sentence
//! names it; and the other questions about a topic.

use crate::rig;

use crate::startup::Tmpfs;
use client::*;
use rig::Rig;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);

fn connect(rig: &Rig) -> Driver {
    let endpoint = Endpoint::GroupFile(rig.group_file());
    Driver::connect(endpoint, DriverOptions::default()).unwrap()
}

fn fill(rig: &Rig, topic: &str, count: usize) {
    let lines: String = (0..count).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    rig.run_with(&["produce", topic], lines).ok();
}

/// What `why` says, in which all of `words` stand, and the command that it names runs.
fn why(rig: &Rig, args: &[&str], words: &[&str]) {
    let said = rig.run(&[&["why"], args].concat()).ok();
    check(rig, args, words, &said);
}

/// The same of a topic that is not there, for which the command fails.
fn why_unknown(rig: &Rig, args: &[&str], words: &[&str]) {
    let said = rig.run(&[&["why"], args].concat()).exits(1);
    assert_eq!(said.stdout, "");
    check(rig, args, words, &said.stderr);
}

fn check(rig: &Rig, args: &[&str], words: &[&str], said: &str) {
    for word in words {
        assert!(said.contains(word), "{args:?}: {word:?} is not in {said}");
    }
    let (sentence, next) = said.trim_end().split_once("\nnext: ").unwrap();
    assert!(
        !sentence.contains('\n') && sentence.ends_with('.'),
        "{said}"
    );
    // The command is one that there is, with all of its options.
    let next = next.strip_prefix("thalweg ").unwrap();
    let words = next.split_whitespace().map(|word| word.trim_matches('\''));
    let next: Vec<&str> = words.chain(["--help"]).collect();
    rig.run(&next).ok();
}

#[test]
fn of_a_topic_and_those_who_read_it() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    why_unknown(&rig, &["t"], &["no topic t", "has none", "topic list"]);
    rig.run(&["topic", "create", "t"]).ok();
    why_unknown(&rig, &["tt"], &["no topic tt", "there are t."]);
    let elsewhere = ["--namespace", "beam", "t"];
    why_unknown(
        &rig,
        &elsewhere,
        &[
            "namespace \"beam\"",
            "one in the default namespace",
            "thalweg why --namespace '' t",
        ],
    );
    why(&rig, &["t"], &["nothing was produced", "thalweg produce t"]);
    fill(&rig, "t", 10);
    why(&rig, &["t"], &["10 events", "s ago", "thalweg lag t"]);

    why(
        &rig,
        &["t", "new"],
        &["Nobody reads t under the name new", "10 events there"],
    );
    rig.run(&["consume", "t", "-n", "viewer", "--max", "4"])
        .ok();
    why(
        &rig,
        &["t", "viewer"],
        &["6 events behind", "no program reads under that name"],
    );
    rig.run(&["consume", "t", "-n", "viewer"]).ok();
    why(
        &rig,
        &["t", "viewer"],
        &["has read and acknowledged all of t", "cursor seek t"],
    );
    fill(&rig, "t", 1);
    let driver = connect(&rig);
    let topic = driver.open_topic("t").unwrap();
    let open = topic
        .consumer("viewer", ConsumerOptions::default())
        .unwrap();
    let event = open.pull(Some(WATCHDOG)).unwrap().unwrap();
    why(
        &rig,
        &["t", "viewer"],
        &["1 event behind", "has not acknowledged them yet"],
    );
    open.acknowledge(event.id()).unwrap();
    open.flush_acknowledgements(WATCHDOG).unwrap();
    why(&rig, &["t", "viewer"], &["has read and acknowledged all"]);
    // From now on, and nothing comes.
    let lag = rig.run(&["lag", "t", "--json"]).json();
    assert_eq!((lag.len(), &lag[0]["lag"]), (1, &0.into()), "{lag:?}");
    let latest = ConsumerOptions {
        start: Start::Latest.into(),
        ..ConsumerOptions::default()
    };
    let _waiting = topic.consumer("late", latest).unwrap();
    why(
        &rig,
        &["t", "late"],
        &[
            "has not acknowledged an event yet",
            "only what comes later",
            "thalweg cursor seek t --name late --to beginning",
        ],
    );

    // What it has not acknowledged is behind, although it has no cursor.
    let lag = rig.run(&["lag", "t", "--json"]).json();
    assert_eq!(
        (&lag[0]["name"], &lag[0]["lag"]),
        (&"late".into(), &11.into())
    );
    let json = rig.run(&["why", "t", "late", "--json"]).json();
    assert!(json[0]["sentence"].is_string() && json[0]["next"].is_string());
}

#[test]
fn of_a_group_with_more_members_than_partitions() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    fill(&rig, "t", 3);
    let member = |name: &str| {
        let endpoint = Endpoint::GroupFile(rig.group_file());
        let options = DriverOptions {
            client_name: name.to_owned(),
            ..DriverOptions::default()
        };
        let driver = Driver::connect(endpoint, options).unwrap();
        let topic = driver.open_topic("t").unwrap();
        topic
            .group("share", GroupMember::default(), ConsumerOptions::default())
            .unwrap()
    };
    let first = member("first");
    assert!(first.pull(Some(WATCHDOG)).unwrap().is_some());
    let _second = member("second");
    why(
        &rig,
        &["t", "share"],
        &[
            "2 members for 1 partitions",
            "second has none",
            "add-partitions",
        ],
    );
}

#[test]
fn of_a_queue_whose_events_are_with_others_or_that_recovers() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    fill(&rig, "t", 3);
    // By its address: the server that comes next has another, where it is not found.
    let digits = std::fs::read_to_string(rig.path("data/token")).unwrap();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    let token: Vec<u8> = (0..digits.trim().len()).step_by(2).map(byte).collect();
    let endpoint = Endpoint::Address {
        address: server.endpoints()[0].clone(),
        token: Some(token.into()),
        directory: None,
    };
    let driver = Driver::connect(endpoint, DriverOptions::default()).unwrap();
    let topic = driver.open_topic("t").unwrap();
    let options = || QueueConsumerOptions {
        // Longer than the test: nobody is taken for gone.
        session_timeout: Duration::from_secs(600),
        ..QueueConsumerOptions::default()
    };
    let queue = topic.queue("farm", options()).unwrap();
    let first = queue.pull(Some(WATCHDOG)).unwrap().unwrap();
    // It has them all: pulled, or fetched ahead.
    let mut held = vec![first];
    while held.len() < 3 {
        held.extend(queue.pull(Some(WATCHDOG)).unwrap());
    }
    why(
        &rig,
        &["t", "farm"],
        &[
            "Nothing of the queue farm",
            "3 events",
            "prefetch",
            " has 3",
            "thalweg queue describe t --name farm",
        ],
    );
    for event in held {
        event.acknowledge().wait(Some(WATCHDOG)).unwrap();
    }
    why(&rig, &["t", "farm"], &["Every event of t is settled"]);
    fill(&rig, "t", 2);
    let event = queue.pull(Some(WATCHDOG)).unwrap().unwrap();
    event
        .return_to_queue(Duration::from_secs(3600))
        .wait(Some(WATCHDOG))
        .unwrap();
    let event = queue.pull(Some(WATCHDOG)).unwrap().unwrap();
    event.acknowledge().wait(Some(WATCHDOG)).unwrap();
    why(&rig, &["t", "farm"], &["1 event wait for their delay"]);
    fill(&rig, "t", 2);
    let held = queue.pull(Some(WATCHDOG)).unwrap().unwrap();

    // The member is not there when the server comes again.
    server.kill();
    std::mem::forget((queue, held, topic, driver));
    let elsewhere = format!("unix://{}", rig.path("another").display());
    let _server = rig.serve(&["--listen", &elsewhere]);
    why(
        &rig,
        &["t", "farm"],
        &[
            "The server was started again",
            "gives out nothing for up to",
            "thalweg queue describe t --name farm",
        ],
    );
}

#[test]
fn of_a_queue_that_nobody_works_off() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    fill(&rig, "t", 2);
    rig.run(&["queue", "drain", "t", "-n", "farm", "--max", "1"])
        .ok();
    why(
        &rig,
        &["t", "farm"],
        &["ready", "no member", "no worker asks", "queue describe t"],
    );
}

/// The command that is named moves no cursor: a user who follows it takes nothing from the
/// consumer that the question is about.
#[test]
fn the_command_that_is_named_takes_nothing() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    fill(&rig, "t", 3);
    rig.run(&["consume", "t", "-n", "away", "--max", "1"]).ok();
    for name in ["new", "away"] {
        let said = rig.run(&["why", "t", name]).ok();
        let (_, next) = said.trim_end().split_once("\nnext: thalweg ").unwrap();
        rig.run(&next.split(' ').collect::<Vec<_>>()).ok();
    }
    let lag = rig.run(&["lag", "t", "--json"]).json();
    assert_eq!(lag.len(), 1, "{lag:?}");
    assert_eq!(
        (&lag[0]["name"], &lag[0]["lag"]),
        (&"away".into(), &2.into())
    );
}

#[test]
fn of_producers_that_are_refused_because_somebody_is_behind() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let definition = r#"{"retention":{"count":2},"keep_until_acknowledged":["slow"],"overflow":{"type":"reject"}}"#;
    rig.run(&["topic", "create", "t", "--definition", definition])
        .ok();
    fill(&rig, "t", 2);
    rig.run_with(&["produce", "t"], "3\n").exits(1);
    why(
        &rig,
        &["t"],
        &["refused 1 event", "keeps the 2 events", "thalweg lag t"],
    );
}

#[test]
fn of_events_that_went_before_they_were_read() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let keep = ["topic", "create", "t", "--retention", r#"{"count":64}"#];
    rig.run(&keep).ok();
    fill(&rig, "t", 10);
    rig.run(&["consume", "t", "-n", "viewer", "--max", "4"])
        .ok();
    // Only whole segments go, and a segment holds a batch at least.
    for _ in 0..5 {
        fill(&rig, "t", 100);
    }
    // What is there can be read, if somebody does; what is gone is not waited for.
    let lag = rig.run(&["lag", "t", "--json"]).json();
    let behind = lag[0]["lag"].as_u64().unwrap();
    assert!(behind > 0 && behind < 506, "{lag:?}");
    let behind = format!("is {behind} events behind in t, and no program reads");
    why(&rig, &["t", "viewer"], &[&behind, "thalweg consume t"]);
    let driver = connect(&rig);
    let topic = driver.open_topic("t").unwrap();
    let open = topic
        .consumer("viewer", ConsumerOptions::default())
        .unwrap();
    assert!(open.pull(Some(WATCHDOG)).unwrap().is_some());
    why(
        &rig,
        &["t", "viewer"],
        &[
            "are gone (retention)",
            "before the consumer viewer read them",
            "thalweg gaps t",
        ],
    );
    let gaps = rig.run(&["gaps", "t", "--json"]).json();
    assert_eq!(gaps[0]["reason"], "retention");
    assert_eq!(gaps[0]["first"], 0);
    assert!(rig.run(&["gaps", "t"]).ok().contains("retention"));
}

/// That events are lost is graver than that a selector chose nothing of the others.
#[test]
fn of_events_that_went_before_a_selector_chose_nothing() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let keep = ["topic", "create", "t", "--retention", r#"{"count":64}"#];
    rig.run(&keep).ok();
    fill(&rig, "t", 10);
    rig.run(&["consume", "t", "-n", "viewer", "--max", "4"])
        .ok();
    let driver = connect(&rig);
    let topic = driver.open_topic("t").unwrap();
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    for _ in 0..5 {
        for _ in 0..100 {
            producer
                .push(Event::new(b"{}").with_data(b"pixels".to_vec()))
                .unwrap();
        }
        producer.flush(WATCHDOG).unwrap();
    }
    let nothing = ConsumerOptions {
        data: DataMode::Select(Arc::new(|_| Ok(wire::view::DataView::whole(0)))),
        ..ConsumerOptions::default()
    };
    let open = topic.consumer("viewer", nothing).unwrap();
    assert!(open.pull(Some(WATCHDOG)).unwrap().is_some());
    let explained = open.explain().unwrap();
    assert!(
        explained.sentence.contains("are gone (retention)"),
        "{explained}"
    );
}

#[test]
fn without_a_server_it_says_so_at_once() {
    let rig = Rig::default();
    let ran = rig.run(&["why", "t"]).exits(5);
    assert!(ran.stderr.contains("thalweg.json"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("next: thalweg doctor "),
        "{}",
        ran.stderr
    );
    let server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    server.kill();
    let away = rig.run(&["why", "t", "--connect-timeout", "0.5"]);
    let away = away.exits(5);
    assert!(
        away.stderr.contains("next: thalweg doctor "),
        "{}",
        away.stderr
    );
}

#[test]
fn of_a_selector_that_chooses_nothing() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    let driver = connect(&rig);
    rig.run(&["topic", "create", "t"]).ok();
    let topic = driver.open_topic("t").unwrap();
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    for _ in 0..3 {
        let mut event = Event::new(b"{}");
        event.data = vec![bytes::Bytes::from_static(b"pixels")];
        producer.push(event).unwrap();
    }
    producer.flush(WATCHDOG).unwrap();
    let nothing = ConsumerOptions {
        data: DataMode::Select(Arc::new(|_| Ok(wire::view::DataView::whole(0)))),
        ..ConsumerOptions::default()
    };
    let open = topic.consumer("viewer", nothing).unwrap();
    for _ in 0..3 {
        let event = open.pull(Some(WATCHDOG)).unwrap().unwrap();
        assert!(matches!(event.data(), EventDataRef::None));
    }
    let explained = open.explain().unwrap();
    assert!(
        explained.sentence.contains(
            "3 events of t came to the consumer viewer, and its data selector chose nothing"
        ),
        "{explained}"
    );
    assert_eq!(explained.next, "thalweg tail t -n 1 --data-base64");
    let shown = rig.run(&["tail", "t", "-n", "1", "--data-base64"]).ok();
    assert!(shown.contains("cGl4ZWxz"), "{shown}");
    // One that chooses something now and then has its data.
    let some = ConsumerOptions {
        data: DataMode::Select(Arc::new(|event: &EventInfo<'_>| {
            let wanted = if event.id().offset.0 == 0 { 2 } else { 0 };
            Ok(wire::view::DataView::whole(wanted))
        })),
        ..ConsumerOptions::default()
    };
    let open = topic.consumer("other", some).unwrap();
    let event = open.pull(Some(WATCHDOG)).unwrap().unwrap();
    assert!(matches!(event.data(), EventDataRef::Inline(_)));
    let explained = open.explain().unwrap();
    assert!(!explained.sentence.contains("selector"), "{explained}");
}

#[test]
fn of_a_disk_that_is_full() {
    let rig = Rig::default();
    let Some(disk) = Tmpfs::over(&rig, "16m") else {
        return;
    };
    let _server = rig.serve(&[]);
    let line = format!("\"{}\"\n", "x".repeat(1000));
    rig.run(&["topic", "create", "t"]).ok();
    rig.run_with(&["produce", "t"], line.repeat(100)).ok();
    rig.run(&["consume", "t", "-n", "viewer"]).ok();
    disk.fill();
    let produce = ["produce", "t", "--timeout", "3"];
    let ran = rig.run_with(&produce, line.repeat(17_000));
    assert!(!ran.status.success());
    for args in [&["t"][..], &["t", "viewer"]] {
        why(
            &rig,
            args,
            &[
                "Storage of partition 0 of t is full",
                "producers are refused and nothing new comes",
                "thalweg topic alter t --retention",
            ],
        );
    }
}

/// Of several partitions, the last event is the one that came last, not that of the longest.
#[test]
fn of_the_time_at_which_the_last_event_came() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t", "--partitions", "2"]).ok();
    let driver = connect(&rig);
    let topic = driver.open_topic("t").unwrap();
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let push = |partition| {
        let mut event = Event::new(b"{}");
        event.partition = Some(partition);
        producer.push(event).unwrap().wait(Some(WATCHDOG)).unwrap();
    };
    (0..5).for_each(|_| push(0));
    let idle = || {
        let said = rig.run(&["why", "t"]).ok();
        let (before, _) = said.split_once(" s ago").expect("so many seconds");
        let seconds: u64 = before.rsplit(' ').next().unwrap().parse().unwrap();
        seconds
    };
    while idle() < 3 {
        std::thread::yield_now();
    }
    let begin = Instant::now();
    push(1);
    let idle = idle();
    assert!(idle <= begin.elapsed().as_secs() + 1, "{idle} s");
}

#[test]
fn the_end_of_a_topic_its_lag_and_its_losses() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t", "--retention", "1GB", "--keep", "7d"])
        .ok();
    let shown = rig.run(&["topic", "show", "t", "--json"]).json();
    let kept = &shown[0]["definition"]["retention"];
    assert!(
        kept["total_bytes"].is_u64() && kept["age_ms"] == 604_800_000_u64,
        "{kept}"
    );
    // An age alone leaves the size as it is.
    rig.run(&["topic", "alter", "t", "--keep", "14d"]).ok();
    let shown = rig.run(&["topic", "show", "t", "--json"]).json();
    let altered = &shown[0]["definition"]["retention"];
    assert_eq!(altered["total_bytes"], kept["total_bytes"], "{altered}");
    assert_eq!(altered["age_ms"], 1_209_600_000_u64, "{altered}");
    assert_eq!(rig.run(&["gaps", "t"]).ok(), "t: nothing was lost\n");
    fill(&rig, "t", 20);
    let last = rig.run(&["tail", "t", "-n", "3", "--plain"]).ok();
    assert_eq!(last, "{\"n\":17}\n{\"n\":18}\n{\"n\":19}\n");
    assert_eq!(rig.run(&["tail", "t", "--plain"]).ok().lines().count(), 10);
    rig.run(&["consume", "t", "-n", "viewer", "--max", "5"])
        .ok();
    let lag = rig.run(&["lag", "t", "--json"]).json();
    assert_eq!(lag.len(), 1, "a look at the end leaves no trace: {lag:?}");
    assert_eq!(
        (&lag[0]["name"], &lag[0]["lag"]),
        (&"viewer".into(), &15.into())
    );
    assert!(rig.run(&["lag", "t"]).ok().contains("15"));

    rig.run(&["cursor", "seek", "t", "-n", "viewer", "--to", "-5m"])
        .ok();
    assert_eq!(rig.run(&["lag", "t", "--json"]).json()[0]["lag"], 20);
    rig.run(&["cursor", "seek", "t", "-n", "viewer", "--to", "-2"])
        .ok();
    assert_eq!(rig.run(&["lag", "t", "--json"]).json()[0]["lag"], 2);
}

#[test]
fn topics_that_come_with_others_are_listed_when_all_are() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    for name in ["t", "walking.dead"] {
        rig.run(&["topic", "create", name]).ok();
    }
    let driver = connect(&rig);
    let topic = driver.open_topic("t").unwrap();
    let _queue = topic
        .queue("farm", QueueConsumerOptions::default())
        .unwrap();
    let _requester = topic.requester(RequesterOptions::default()).unwrap();
    let names = |args: &[&str]| -> Vec<String> {
        let json = rig.run(&[args, &["--json"]].concat()).json();
        let name = |topic: &serde_json::Value| topic["name"].as_str().unwrap().to_owned();
        let listed: Vec<_> = json.iter().map(name).collect();
        let text = rig.run(args).ok();
        assert_eq!(text.lines().collect::<Vec<_>>(), listed);
        listed
    };
    assert_eq!(names(&["topic", "list"]), ["t", "walking.dead"]);
    let all = ["t", "t.dead", "t.replies", "walking.dead"];
    assert_eq!(names(&["topic", "ls", "--all"]), all);
    // What is left of a topic that is deleted is found.
    rig.run(&["topic", "delete", "t", "--yes"]).ok();
    let left = ["t.dead", "t.replies", "walking.dead"];
    assert_eq!(names(&["topic", "ls"]), left);
}

#[test]
fn nothing_is_deleted_without_a_yes() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    fill(&rig, "t", 20);
    let refused = rig.run_with(&["topic", "rm", "t"], "y\n").exits(2);
    assert!(refused.stderr.contains("20 events") && refused.stderr.contains("--yes"));
    assert_eq!(rig.run(&["topic", "ls"]).ok(), "t\n");
    rig.run(&["topic", "rm", "t", "--yes"]).ok();
    assert_eq!(rig.run(&["topic", "ls"]).ok(), "");
}
