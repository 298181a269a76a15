//! Topics that go from one server of a cluster to another while they are written, read and worked off.

use crate::cluster::start;
use crate::rig;

use client::*;
use rig::{Rig, WATCHDOG};
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Events that wait for their acknowledgement.
const WINDOW: usize = 64;
/// How often it is looked whether all was seen.
const LOOK: Duration = Duration::from_millis(50);

fn connect(rig: &Rig) -> Driver {
    let endpoint = Endpoint::GroupFile(rig.group_file());
    Driver::connect(endpoint, DriverOptions::default()).unwrap()
}

/// The nodes, and how many topics each has.
fn nodes(rig: &Rig) -> Vec<Value> {
    rig.run(&["nodes", "list", "--json"]).json()
}

fn home_of(rig: &Rig, name: &str) -> u64 {
    let driver = connect(rig);
    let nodes = driver.list_nodes().unwrap();
    let mut nodes = nodes.iter().map(|node| node.node);
    let has = |node: &NodeId| {
        let topics = driver.topics_of_node(*node).unwrap();
        topics.iter().any(|(_, topic)| topic == name)
    };
    nodes.find(has).unwrap().0.into()
}

/// Pushes numbers until it is to stop; returns how many were acknowledged, which are all.
fn push(topic: &TopicHandle, stop: &AtomicBool) -> u64 {
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let mut pending = VecDeque::new();
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let text = number.to_string();
        pending.push_back(producer.push_metadata(text.as_bytes()).unwrap());
        number += 1;
        if pending.len() >= WINDOW {
            let first: PushFuture = pending.pop_front().unwrap();
            first.wait(Some(WATCHDOG)).unwrap();
        }
    }
    for future in pending {
        future.wait(Some(WATCHDOG)).unwrap();
    }
    producer.close(WATCHDOG).unwrap();
    number
}

fn number(metadata: &[u8]) -> u64 {
    std::str::from_utf8(metadata).unwrap().parse().unwrap()
}

/// Reads, and acknowledges, until all of `end` events were seen, each once and in order.
fn read(topic: &TopicHandle, end: &AtomicBool, count: &AtomicU64) -> u64 {
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    let mut seen = 0;
    while !(end.load(Ordering::Acquire) && seen >= count.load(Ordering::Acquire)) {
        let patience = Patience::within(None);
        let Pulled::Events(events) = consumer.pull_look(100, &patience, LOOK).unwrap() else {
            continue;
        };
        let mut last = None;
        for event in events {
            assert_eq!(number(event.metadata()), seen);
            seen += 1;
            last = Some(event.id());
        }
        consumer.acknowledge(last.unwrap()).unwrap();
    }
    assert!(consumer.take_gaps().is_empty());
    consumer.close().unwrap();
    seen
}

/// Works the queue off until all events were settled once at least.
fn work(topic: &TopicHandle, end: &AtomicBool, count: &AtomicU64) -> usize {
    let queue = topic
        .queue("farm", QueueConsumerOptions::default())
        .unwrap();
    let mut settled = BTreeSet::new();
    while !(end.load(Ordering::Acquire) && settled.len() as u64 >= count.load(Ordering::Acquire)) {
        let event = match queue.pull(Some(LOOK)) {
            Ok(Some(event)) => event,
            Ok(None) => continue,
            // It is on its way: whether there is something is not known for a moment.
            Err(error) if error.is_retryable() => continue,
            Err(error) => panic!("{error}"),
        };
        settled.insert(number(event.metadata()));
        drop(event.acknowledge());
    }
    queue.close().unwrap();
    settled.len()
}

#[test]
fn a_topic_moves_while_it_is_written_and_read_and_worked_off() {
    let rig = Rig::default();
    let servers = start(&rig);
    rig.run(&["topic", "create", "run"]).ok();
    let (stop, end) = (AtomicBool::new(false), AtomicBool::new(false));
    let count = AtomicU64::new(0);
    let driver = connect(&rig);
    let topic = driver.open_topic("run").unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&topic, &end, &count));
        let worker = scope.spawn(|| work(&topic, &end, &count));
        let producer = scope.spawn(|| push(&topic, &stop));
        for round in 0..6 {
            let to = 1 + (home_of(&rig, "run") + round % 2) % 3;
            let to = to.to_string();
            let moved = rig.run(&["topic", "place", "run", "--node", &to, "--json"]);
            let moved = moved.json();
            assert_eq!(moved[0]["node"].to_string(), to);
            assert_eq!(home_of(&rig, "run").to_string(), to);
        }
        stop.store(true, Ordering::Relaxed);
        count.store(producer.join().unwrap(), Ordering::Release);
        end.store(true, Ordering::Release);
        let count = count.load(Ordering::Relaxed);
        assert!(count > 0);
        assert_eq!(reader.join().unwrap(), count);
        assert_eq!(worker.join().unwrap() as u64, count);
    });
    rig.run(&["audit"]).exits(0);
    // Who knows nothing of that finds it.
    let again = rig.run(&["consume", "run", "--name", "late"]).ok();
    assert_eq!(again.lines().count() as u64, count.load(Ordering::Relaxed));
    drop(driver);
    for server in servers {
        let (status, log) = server.terminate();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

#[test]
fn a_node_is_drained_and_removed_and_nothing_is_lost() {
    let rig = Rig::default();
    let mut servers = start(&rig);
    for number in 0..9 {
        let name = format!("run.{number}");
        rig.run(&["topic", "create", &name]).ok();
        rig.run_with(&["produce", &name], "1\n2\n3\n").ok();
        rig.run(&["consume", &name, "--name", "one", "--max", "2"])
            .ok();
    }
    let text = rig.run(&["nodes", "list"]).ok();
    assert_eq!(text.matches("serving").count(), 3, "{text}");
    let refused = rig.run(&["nodes", "remove", "1"]).exits(1);
    assert!(
        refused.stderr.contains("which would be lost"),
        "{}",
        refused.stderr
    );
    // The one that the last server registered, whichever that is.
    let last = nodes(&rig)
        .into_iter()
        .find(|node| node["labels"]["rank"] == "2");
    let number = last.unwrap()["node"].as_u64().unwrap();
    let node = number.to_string();
    let drained = rig.run(&["nodes", "drain", &node]).ok();
    assert!(drained.contains("gets no new topics"), "{drained}");
    let of_it = |rig: &Rig| {
        let nodes = nodes(rig);
        let mut it = nodes.into_iter().filter(|it| it["node"] == number);
        it.next()
    };
    let now = of_it(&rig).unwrap();
    assert_eq!(
        (now["state"].as_str(), now["topics"].as_u64()),
        (Some("draining"), Some(0))
    );
    let refused = rig.run(&["nodes", "remove", &node]).exits(1);
    assert!(
        refused.stderr.contains("end its server"),
        "{}",
        refused.stderr
    );
    let (status, log) = servers.pop().unwrap().terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    // That it has ended is known to the others a moment later.
    let until = Instant::now() + WATCHDOG;
    while of_it(&rig).is_some() {
        let asked = rig.run(&["nodes", "remove", &node]);
        assert!(Instant::now() < until, "{}", asked.stderr);
    }
    for number in 0..9 {
        let name = format!("run.{number}");
        let left = rig.run(&["consume", &name, "--name", "one"]).ok();
        assert_eq!(left.lines().count(), 1, "{left}");
    }
    rig.run(&["audit"]).exits(0);
    let back = rig.run(&["nodes", "resume", &node]).exits(1);
    assert!(
        back.stderr.contains("does not come back"),
        "{}",
        back.stderr
    );
    drop(servers);
}
