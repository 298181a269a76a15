//! Topics that go from one server of a cluster to another while they are written, read and worked off.

use crate::cluster::{join, start};
use crate::rig;

use client::*;
use rig::{Rig, WATCHDOG};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::process::Stdio;
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

/// How many servers a group file names besides the first.
fn others_in(file: &Path) -> usize {
    let text = std::fs::read_to_string(file).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    found["others"].as_array().map_or(0, Vec::len)
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

/// Has a topic written, read and worked off while `moves` moves it, and looks in the end whether all is there.
fn used_while(
    create: &[&str],
    read: fn(&TopicHandle, &AtomicBool, &AtomicU64) -> u64,
    moves: impl FnOnce(&Rig),
) {
    let rig = Rig::default();
    let servers = start(&rig);
    rig.run(&[&["topic", "create", "run"], create].concat())
        .ok();
    let (stop, end) = (AtomicBool::new(false), AtomicBool::new(false));
    let count = AtomicU64::new(0);
    let driver = connect(&rig);
    let topic = driver.open_topic("run").unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&topic, &end, &count));
        let worker = scope.spawn(|| work(&topic, &end, &count));
        let producer = scope.spawn(|| push(&topic, &stop));
        moves(&rig);
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
fn a_topic_moves_while_it_is_written_and_read_and_worked_off() {
    used_while(&[], read, |rig| {
        for round in 0..6 {
            let to = 1 + (home_of(rig, "run") + round % 2) % 3;
            let to = to.to_string();
            let moved = rig.run(&["topic", "place", "run", "--node", &to, "--json"]);
            let moved = moved.json();
            assert_eq!(moved[0]["node"].to_string(), to);
            assert_eq!(home_of(rig, "run").to_string(), to);
        }
    });
}

/// Reads a spread topic, and acknowledges, until all of `end` events were seen, each once and each partition in its order.
fn read_spread(topic: &TopicHandle, end: &AtomicBool, count: &AtomicU64) -> u64 {
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    let mut seen = 0;
    let mut last: BTreeMap<PartitionIndex, u64> = BTreeMap::new();
    while !(end.load(Ordering::Acquire) && seen >= count.load(Ordering::Acquire)) {
        let patience = Patience::within(None);
        let Pulled::Events(events) = consumer.pull_look(100, &patience, LOOK).unwrap() else {
            continue;
        };
        for event in events {
            let (partition, number) = (event.id().partition, number(event.metadata()));
            let before = last.insert(partition, number);
            assert!(
                before < Some(number),
                "{partition}: {number} behind {before:?}"
            );
            consumer.acknowledge(event.id()).unwrap();
            seen += 1;
        }
    }
    assert!(consumer.take_gaps().is_empty());
    consumer.close().unwrap();
    seen
}

#[test]
fn partitions_of_a_spread_topic_move_each_by_itself_while_the_topic_is_used() {
    used_while(&["--partitions", "3", "--spread"], read_spread, |rig| {
        let homes = || [0, 1, 2].map(|index| home_of(rig, &format!("run/{index}")));
        let mut apart = homes();
        apart.sort_unstable();
        assert_eq!(apart, [1, 2, 3]);
        // The topic itself has nothing to move.
        rig.run(&["topic", "place", "run", "--node", "1"]).exits(2);
        for index in [0, 1, 2, 0] {
            let name = format!("run/{index}");
            let to = (1 + home_of(rig, &name) % 3).to_string();
            let moved = rig.run(&["topic", "place", &name, "--node", &to, "--json"]);
            // What its queue needs comes along.
            let moved: Vec<Value> = moved.json();
            assert_eq!(moved.len(), 2, "{moved:?}");
            assert_eq!(home_of(rig, &name).to_string(), to);
            assert_eq!(home_of(rig, &format!("run.dead/{index}")).to_string(), to);
        }
        // And all that is on a node, whatever it is.
        rig.run(&["nodes", "drain", "1"]).ok();
        assert!(homes().iter().all(|home| *home != 1));
    });
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
    // Where the file names a server that has ended, it is to name others that are asked in its place.
    let until = Instant::now() + WATCHDOG;
    while others_in(&rig.group_file()) < 2 {
        assert!(Instant::now() < until);
        thread::yield_now();
    }
    let (status, log) = servers.pop().unwrap().terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    // That it has ended is known to the others a moment later, which is waited for.
    let removed = rig.run(&["nodes", "remove", &node]).ok();
    assert_eq!(removed, format!("node {node} is removed\n"));
    assert_eq!(of_it(&rig), None);
    let again = rig.run(&["nodes", "remove", &node]).ok();
    assert_eq!(again, format!("node {node} had been removed before\n"));
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

#[test]
fn topics_are_spread_evenly_after_a_server_has_joined() {
    let rig = Rig::default();
    let mut servers = start(&rig);
    for number in 0..8 {
        let name = format!("run.{number}");
        rig.run(&["topic", "create", &name]).ok();
        rig.run_with(&["produce", &name], "1\n2\n").ok();
    }
    // Those that belong together are brought together.
    rig.run(&["topic", "create", "run.0.dead"]).ok();
    let home = home_of(&rig, "run.0").to_string();
    rig.run(&["topic", "place", "run.0", "--node", &home]).ok();
    servers.push(join(&rig, 3));
    let before = nodes(&rig);
    let planned = rig.run(&["nodes", "balance", "--dry-run", "--json"]).json();
    assert_eq!(nodes(&rig), before);
    let moved = rig.run(&["nodes", "balance", "--json"]).json();
    let places = |steps: &[Value]| -> Vec<(Value, Value)> {
        let steps = steps.iter();
        steps
            .map(|it| (it["topic"].clone(), it["node"].clone()))
            .collect()
    };
    assert_eq!(places(&planned), places(&moved));
    let counts = nodes(&rig);
    let counts: Vec<_> = counts
        .iter()
        .map(|it| it["topics"].as_u64().unwrap())
        .collect();
    assert_eq!(
        (counts.len(), counts.iter().sum::<u64>()),
        (4, 9),
        "{counts:?}"
    );
    // Of topics that stay together there are two at most.
    assert!(
        counts.iter().all(|count| (1..=3).contains(count)),
        "{counts:?}"
    );
    assert_eq!(home_of(&rig, "run.0"), home_of(&rig, "run.0.dead"));
    for number in 0..8 {
        let name = format!("run.{number}");
        let found = rig.run(&["consume", &name, "--name", "one"]).ok();
        assert_eq!(found.lines().count(), 2, "{found}");
    }
    let again = rig.run(&["nodes", "balance"]).ok();
    assert!(again.contains("no two nodes differ"), "{again}");
    drop(servers);
}

/// A topic and its dead letters do not stay apart because something stood in the way for a moment.
#[test]
fn dead_letters_follow_a_topic_also_when_they_cannot_at_once() {
    let rig = Rig::default();
    let servers = start(&rig);
    rig.run(&["topic", "create", "run"]).ok();
    let home = home_of(&rig, "run");
    let driver = connect(&rig);
    let topic = driver.open_topic("run").unwrap();
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let pushed = producer.push_metadata(&b"1"[..]).unwrap();
    pushed.wait(Some(WATCHDOG)).unwrap();
    let queue = topic
        .queue("farm", QueueConsumerOptions::default())
        .unwrap();
    assert_eq!(home_of(&rig, "run.dead"), home);
    // Another mover has them meanwhile.
    let to = NodeId(if home == 1 { 2 } else { 1 });
    let (source, target) = (connect(&rig), connect(&rig));
    let dead = source.open_topic_itself("run.dead").unwrap();
    dead.begin_move(to).wait().unwrap();
    let copy = target.topic_as_described(dead.refresh().unwrap()).unwrap();
    copy.begin_receive(1).wait().unwrap();
    let node = to.to_string();
    let mut place = rig.thalweg(&["topic", "place", "run", "--node", &node, "--timeout", "1"]);
    let mut place = place.stderr(Stdio::piped()).spawn().unwrap();
    let said = rig::collect(place.stderr.take().unwrap());
    said.until("run.dead is tried again");
    assert_eq!(home_of(&rig, "run"), u64::from(to.0));
    assert_eq!(home_of(&rig, "run.dead"), home);
    let event = queue.pull(Some(WATCHDOG)).unwrap().unwrap();
    event.reject("no use").wait(Some(WATCHDOG)).unwrap();
    let says = format!("thalweg topic place run.dead --node {to}");
    let until = Instant::now() + WATCHDOG;
    while !servers.iter().any(|server| server.log().contains(&says)) {
        assert!(Instant::now() < until, "nobody says {says:?}");
        thread::yield_now();
    }
    drop((copy, target, dead, source));
    assert_eq!(rig::wait(&mut place).code(), Some(0), "{}", said.whole());
    assert_eq!(home_of(&rig, "run.dead"), u64::from(to.0));
    let letters = rig.run(&[
        "consume", "run.dead", "--name", "one", "--max", "1", "--follow",
    ]);
    assert_eq!(letters.ok().lines().count(), 1);
    queue.close().unwrap();
    drop(servers);
}
