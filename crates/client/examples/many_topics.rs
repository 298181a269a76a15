//! How many events a second a running server takes and delivers, with a producer and a consumer for each of several
//! topics that are spread evenly over its shards:
//! `cargo run --release --example many_topics -- GROUP_FILE [topics] [seconds] [bytes]`. Prints JSON.

use client::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a topic keeps, so that a long run needs no more memory.
const DEFINITION: &str = r#"{"durability":"memory","retention":{"bytes":67108864}}"#;
const PATIENCE: Duration = Duration::from_secs(60);
/// Before what is measured, seconds.
const WARM_UP: f64 = 1.0;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let group_file = PathBuf::from(arguments.next().expect("a group file"));
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let topics: usize = next("4").parse().expect("a count");
    let seconds: f64 = next("5").parse().expect("seconds");
    let bytes: usize = next("1000").parse().expect("a length");
    let driver = connect(&group_file);
    let (names, shards) = spread(&driver, topics);
    let (produced, consumed) = (AtomicU64::new(0), AtomicU64::new(0));
    let ends = AtomicBool::new(false);
    let rates = std::thread::scope(|scope| {
        for name in &names {
            let (file, ends) = (&group_file, &ends);
            let (produced, consumed) = (&produced, &consumed);
            scope.spawn(move || {
                let topic = connect(file).open_topic(name).expect("a topic");
                let producer = topic
                    .producer(ProducerOptions::default())
                    .expect("a producer");
                let metadata = vec![b'x'; bytes];
                while !ends.load(Ordering::Relaxed) {
                    for _ in 0..100 {
                        producer.push_metadata(&metadata).expect("a push");
                    }
                    produced.fetch_add(100, Ordering::Relaxed);
                }
            });
            scope.spawn(move || {
                let topic = connect(file).open_topic(name).expect("a topic");
                let options = ConsumerOptions {
                    start: Start::Latest.into(),
                    ..ConsumerOptions::default()
                };
                let consumer = topic.consumer("many", options).expect("a consumer");
                while !ends.load(Ordering::Relaxed) {
                    if consumer
                        .pull(Some(Duration::from_millis(100)))
                        .expect("a pull")
                        .is_some()
                    {
                        consumed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_secs_f64(WARM_UP));
        let count = || [&produced, &consumed].map(|it| it.load(Ordering::Relaxed));
        let (began, before) = (Instant::now(), count());
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let (after, took) = (count(), began.elapsed().as_secs_f64());
        ends.store(true, Ordering::Relaxed);
        [0, 1].map(|at| (after[at] - before[at]) as f64 / took)
    });
    println!(
        "{}",
        serde_json::json!({
            "shards": shards, "topics": topics, "bytes": bytes, "seconds": seconds,
            "produced_per_s": rates[0], "consumed_per_s": rates[1],
        })
    );
    for name in names {
        driver.delete_topic(&name).expect("it is there");
    }
    driver.close(PATIENCE).expect("an orderly end");
}

fn connect(group_file: &std::path::Path) -> Driver {
    let endpoint = Endpoint::GroupFile(group_file.to_owned());
    Driver::connect(endpoint, DriverOptions::default()).expect("a connection")
}

/// Makes so many topics, as many on each shard. Their names, and how many shards there are.
fn spread(driver: &Driver, count: usize) -> (Vec<String>, usize) {
    let definition = Definition::from_json(DEFINITION).expect("a definition");
    let storage = PartitionStorage {
        kind: "memory".to_owned(),
        config: String::new(),
    };
    let mut on: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut shards = 1;
    for number in 0.. {
        let name = format!("many.{number}");
        let storage = std::slice::from_ref(&storage);
        driver
            .create_topic(&name, &definition, storage)
            .expect("a topic");
        let status = driver.status().expect("a status");
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        shards = 1 + status["nodes"].as_array().map_or(0, Vec::len);
        let topics = status["topics"].as_array().expect("topics").iter();
        let made = topics.clone().find(|topic| topic["name"] == name.as_str());
        let node = made.and_then(|topic| topic["node"].as_u64()).unwrap_or(0);
        let there = on.entry(node).or_default();
        match there.len() < count.div_ceil(shards) {
            true => there.push(name),
            false => driver.delete_topic(&name).expect("it is there"),
        }
        if on.values().map(Vec::len).sum::<usize>() == count {
            break;
        }
    }
    (on.into_values().flatten().collect(), shards)
}
