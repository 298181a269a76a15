//! How fast one producer and one consumer are against an embedded server:
//! `cargo run --release --example throughput -- [events] [bytes] [address] [storage]`.

use client::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let events: usize = next("2000000").parse().expect("a count");
    let bytes: usize = next("1000").parse().expect("a length");
    let address = next("tcp://127.0.0.1:0");
    let storage = next("memory");
    let directory = tempfile::tempdir().expect("a directory");
    let config = server::Config {
        directory: directory.path().join("data"),
        listen: vec![address.replace("DIR", directory.path().to_str().expect("a path"))],
        group_file: Some(directory.path().join("group.json")),
        ..server::Config::default()
    };
    let quiet = Arc::new(|_line: &str| {});
    let server = match address.as_str() {
        "inproc" => server::Server::embedded(
            server::Config {
                listen: Vec::new(),
                ..config
            },
            quiet,
        ),
        _ => server::Server::start(config, quiet),
    }
    .expect("a server");
    let endpoint = match address.as_str() {
        "inproc" => Endpoint::address(&server.endpoints()[0]),
        _ => Endpoint::GroupFile(directory.path().join("group.json")),
    };
    let driver = Driver::connect(endpoint, DriverOptions::default()).expect("a connection");
    let mut definition = Definition::builder().validator(topic::ValidatorKind::None);
    if storage == "written" {
        definition = definition.durability(Durability::Written);
    }
    let definition = definition.build().expect("a definition");
    let kind = PartitionStorage {
        kind: if storage == "memory" {
            "memory"
        } else {
            "disk"
        }
        .into(),
        config: String::new(),
    };
    let topic = driver
        .create_topic("bench", &definition, &[kind])
        .expect("a topic");
    let producer = topic
        .producer(ProducerOptions::default())
        .expect("a producer");
    let metadata = vec![b'x'; bytes];
    let started = Instant::now();
    let mut inside = Duration::ZERO;
    for _ in 0..events / 100 {
        let begun = Instant::now();
        for _ in 0..100 {
            producer.push_metadata(&metadata).expect("a push");
        }
        inside += begun.elapsed();
    }
    producer.flush(Duration::from_secs(120)).expect("a flush");
    report("produced", events, bytes, started.elapsed());
    println!(
        "  caller {:.0} ns an event, blocked included; {:?}",
        inside.as_nanos() as f64 / events as f64,
        driver.counters()
    );
    let options = ConsumerOptions {
        start: Start::Beginning.into(),
        ..ConsumerOptions::default()
    };
    let consumer = topic.consumer("bench", options).expect("a consumer");
    let started = Instant::now();
    let mut sum = 0usize;
    for _ in 0..events / 100 * 100 {
        let event = consumer.pull(None).expect("a pull").expect("an event");
        sum += event.metadata().len();
    }
    assert_eq!(sum, events / 100 * 100 * bytes);
    report("consumed", events, bytes, started.elapsed());
    println!("  {:?}", driver.counters());
}

fn report(what: &str, events: usize, bytes: usize, time: Duration) {
    let rate = events as f64 / time.as_secs_f64();
    println!(
        "{what} {events} events of {bytes} bytes in {time:.2?}: {:.2} million/s, {:.2} GB/s",
        rate / 1e6,
        rate * bytes as f64 / 1e9
    );
}
