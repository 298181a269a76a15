//! Producers with threads, against the real server.

use client::*;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use topic::{
    PartitionSelector, PluginError, PluginRef, Plugins, SerializerError, ValidationError, Validator,
};

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Holds up metadata that begins with `slow` until it is let go, refuses
/// `bad`, and panics at `worse`.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

struct Gated(Arc<Gate>);

impl Validator for Gated {
    fn validate(&self, metadata: &[u8]) -> Result<(), ValidationError> {
        match metadata {
            b"bad" => Err(ValidationError::Refused("bad".into())),
            b"worse" => panic!("a validator that panics"),
            _ if metadata.starts_with(b"slow") => {
                let open = self.0.open.lock().unwrap();
                let wait = self
                    .0
                    .changed
                    .wait_timeout_while(open, WATCHDOG, |open| !*open);
                assert!(*wait.unwrap().0, "the gate is opened");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Doubles metadata, so that what was serialized is seen.
struct Doubling;

impl topic::Serializer for Doubling {
    fn serialize(&self, metadata: &[u8], out: &mut Vec<u8>) -> Result<(), SerializerError> {
        out.extend_from_slice(metadata);
        out.extend_from_slice(metadata);
        Ok(())
    }

    fn deserialize<'a>(
        &self,
        bytes: &'a [u8],
    ) -> Result<std::borrow::Cow<'a, [u8]>, SerializerError> {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        match first == second {
            true => Ok(first.into()),
            false => Err(SerializerError::new("not doubled")),
        }
    }
}

struct Both(Arc<Gate>);

impl Plugins for Both {
    fn validator(&self, _: &PluginRef) -> Result<Arc<dyn Validator>, PluginError> {
        Ok(Arc::new(Gated(self.0.clone())))
    }

    fn partition_selector(
        &self,
        plugin: &PluginRef,
    ) -> Result<Box<dyn PartitionSelector>, PluginError> {
        Err(PluginError::new(plugin, "is not here"))
    }

    fn serializer(&self, _: &PluginRef) -> Result<Arc<dyn topic::Serializer>, PluginError> {
        Ok(Arc::new(Doubling))
    }
}

struct World {
    gate: Arc<Gate>,
    driver: Driver,
    topic: TopicHandle,
    _server: server::Server,
    _directory: tempfile::TempDir,
}

impl World {
    fn new(partitions: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = server::Config {
            directory: directory.path().join("data"),
            ..server::Config::default()
        };
        let server = server::Server::embedded(config, Arc::new(|_: &str| {})).unwrap();
        let gate = Arc::new(Gate::default());
        let options = DriverOptions {
            plugins: Arc::new(Both(gate.clone())),
            ..DriverOptions::default()
        };
        let endpoint = Endpoint::address(server.endpoints()[0].clone());
        let driver = Driver::connect(endpoint, options).unwrap();
        let definition = r#"{"validator": {"type": "plugin", "name": "gate:own"},
            "serializer": {"type": "plugin", "name": "doubling:own"}}"#;
        let memory = PartitionStorage {
            kind: "memory".into(),
            config: String::new(),
        };
        let definition = Definition::from_json(definition).unwrap();
        let topic = driver.create_topic("events", &definition, &vec![memory; partitions]);
        Self {
            gate,
            topic: topic.unwrap(),
            driver,
            _server: server,
            _directory: directory,
        }
    }

    fn producer(&self, ordering: Ordering) -> Producer {
        let options = ProducerOptions {
            threads: 3,
            ordering,
            ..ProducerOptions::default()
        };
        self.topic.producer(options).unwrap()
    }

    /// What is stored, by partition.
    fn stored(&self, count: usize) -> HashMap<u32, Vec<String>> {
        let consumer = self.topic.consumer("reader", ConsumerOptions::default());
        let consumer = consumer.unwrap();
        let mut stored: HashMap<u32, Vec<String>> = HashMap::new();
        for _ in 0..count {
            let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
            let text = String::from_utf8(event.metadata().to_vec()).unwrap();
            stored.entry(event.id().partition.0).or_default().push(text);
        }
        assert!(consumer.pull(Some(Duration::ZERO)).unwrap().is_none());
        stored
    }
}

#[test]
fn strict_keeps_the_order_of_pushing_and_does_not_hold_up_whoever_pushes() {
    let world = World::new(2);
    let producer = world.producer(Ordering::Strict);
    // Every push returns although nothing can be stored yet: the first waits.
    let mut names = vec!["slow".to_owned()];
    names.extend((1..400).map(|number| format!("{number}")));
    let futures: Vec<_> = names
        .iter()
        .map(|name| producer.push_metadata(name.as_bytes()).unwrap())
        .collect();
    assert!(futures.iter().all(|future| future.try_get().is_none()));
    world.gate.open();
    producer.flush(WATCHDOG).unwrap();
    for (index, future) in futures.iter().enumerate() {
        let id = future.try_get().expect("flushed").unwrap();
        let expected = (index as u32 % 2, index as u64 / 2);
        assert_eq!((id.partition.0, id.offset.0), expected, "in turn");
    }
    let stored = world.stored(400);
    for partition in 0..2 {
        let expected: Vec<_> = names.iter().skip(partition).step_by(2).cloned().collect();
        assert_eq!(stored[&(partition as u32)], expected);
    }
}

#[test]
fn loose_stores_what_is_done_past_what_takes_long() {
    let world = World::new(1);
    let producer = world.producer(Ordering::Loose);
    let slow = producer.push_metadata(b"slow").unwrap();
    let quick = producer.push_metadata(b"quick").unwrap();
    let quick = quick.wait(Some(WATCHDOG)).unwrap();
    assert_eq!(quick.offset, Offset(0));
    assert!(slow.try_get().is_none());
    world.gate.open();
    assert_eq!(slow.wait(Some(WATCHDOG)).unwrap().offset, Offset(1));
    assert_eq!(world.stored(2)[&0], ["quick", "slow"]);
}

#[test]
fn a_refusal_is_the_futures_to_tell_and_holds_up_nobody() {
    for ordering in [Ordering::Strict, Ordering::Loose] {
        let world = World::new(1);
        let producer = world.producer(ordering);
        let futures = ["bad", "worse", "good"].map(|name| {
            let future = producer.push_metadata(name.as_bytes()).unwrap();
            (name, future)
        });
        let told = |future: &PushFuture| future.wait(Some(WATCHDOG)).map(|id| id.offset);
        let text = |future: &PushFuture| told(future).unwrap_err().to_string();
        assert_eq!(text(&futures[0].1), "metadata is refused: bad");
        let panicked = "the topic's validator or serializer panicked";
        assert_eq!(text(&futures[1].1), panicked);
        assert_eq!(told(&futures[2].1).unwrap(), Offset(0));
        // No flush fails for what was refused.
        producer.flush(WATCHDOG).unwrap();
    }
}

#[test]
fn events_keep_all_that_they_have() {
    let world = World::new(2);
    let producer = world.producer(Ordering::Strict);
    let data = vec![7u8; 200_000];
    let event = Event {
        metadata: b"m",
        data: vec![data.clone().into(), vec![8].into()],
        copied: &[],
        key: Some(b""),
        headers: &[("a", b"b")],
        producer_time: Some(7),
        partition: Some(1),
        tombstone: true,
    };
    let id = producer.push(event).unwrap().wait(Some(WATCHDOG)).unwrap();
    assert_eq!(id.partition, PartitionIndex(1));
    let consumer = world.topic.consumer("reader", ConsumerOptions::default());
    let mut event = consumer.unwrap().pull(Some(WATCHDOG)).unwrap().unwrap();
    assert_eq!(event.id(), id);
    assert_eq!(event.key(), Some(&b""[..]));
    assert_eq!(event.headers().len(), 1);
    assert_eq!(event.producer_time(), Some(7));
    assert!(event.tombstone());
    assert_eq!(event.take_data()[..], [data, vec![8]].concat()[..]);
}

#[test]
fn what_waits_for_threads_is_bounded() {
    let world = World::new(1);
    let options = ProducerOptions {
        threads: 1,
        budget_bytes: 1 << 20,
        at_budget: AtBudget::Fail,
        ..ProducerOptions::default()
    };
    let producer = world.topic.producer(options).unwrap();
    producer.push_metadata(b"slow").unwrap();
    let large = vec![b' '; 100_000];
    let refused = (0..10).find_map(|_| producer.push_metadata(&large).err());
    assert!(
        matches!(refused, Some(ClientError::Budget(_))),
        "{refused:?}"
    );
    world.gate.open();
    producer.flush(WATCHDOG).unwrap();
}

#[test]
fn many_times_the_budget_goes_through() {
    let world = World::new(2);
    world.gate.open();
    let options = ProducerOptions {
        threads: 3,
        budget_bytes: 256 << 10,
        ..ProducerOptions::default()
    };
    let producer = world.topic.producer(options).unwrap();
    let metadata = vec![b'x'; 10_000];
    for _ in 0..500 {
        producer.push_metadata(&metadata).unwrap();
    }
    producer.flush(WATCHDOG).unwrap();
    assert!(producer.held_bytes() <= 256 << 10);
    let count: usize = world.stored(500).values().map(Vec::len).sum();
    assert_eq!(count, 500);
}

#[test]
fn closing_and_dropping_wait_for_what_the_threads_have() {
    for close in [true, false] {
        let world = World::new(1);
        world.gate.open();
        let producer = world.producer(Ordering::Strict);
        let futures: Vec<_> = (0..1000)
            .map(|_| producer.push_metadata(b"m").unwrap())
            .collect();
        match close {
            true => producer.close(WATCHDOG).unwrap(),
            false => drop(producer),
        }
        for future in &futures {
            future.try_get().expect("it is known").unwrap();
        }
    }
    // And so does closing the driver.
    let world = World::new(1);
    world.gate.open();
    let producer = world.producer(Ordering::Loose);
    let last = (0..1000)
        .map(|_| producer.push_metadata(b"m").unwrap())
        .last();
    world.driver.close(WATCHDOG).unwrap();
    last.unwrap().try_get().expect("it is known").unwrap();
    assert!(matches!(
        producer.push_metadata(b"m"),
        Err(ClientError::Closed)
    ));
}

#[test]
fn an_event_is_taken_back_from_the_threads_and_from_its_batch() {
    for ordering in [Ordering::Strict, Ordering::Loose] {
        let world = World::new(1);
        let options = ProducerOptions {
            threads: 1,
            ordering,
            batch: BatchPolicy {
                linger: Linger::UntilFull,
                ..BatchPolicy::default()
            },
            ..ProducerOptions::default()
        };
        let producer = world.topic.producer(options).unwrap();
        let push = |name: &str| {
            let data = vec![1u8; 100_000];
            let event = Event::new(name.as_bytes()).with_data(data);
            producer.push(event).unwrap()
        };
        let (first, second, third) = (push("slow 1"), push("2"), push("slow 3"));
        // While they wait for a thread.
        assert!(producer.cancel(&second));
        assert!(!producer.cancel(&second));
        assert!(matches!(
            second.try_get(),
            Some(Err(ClientError::Cancelled))
        ));
        assert!(producer.cancel(&third));
        world.gate.open();
        let fourth = push("4");
        // At a thread, or out of its batch: nothing is sent before a flush.
        while !producer.cancel(&first) {
            assert!(first.try_get().is_none(), "{first:?}");
            std::thread::yield_now();
        }
        assert!(matches!(
            first.wait(Some(WATCHDOG)),
            Err(ClientError::Cancelled)
        ));
        producer.flush(WATCHDOG).unwrap();
        assert_eq!(fourth.try_get().unwrap().unwrap().offset, Offset(0));
        assert!(!producer.cancel(&fourth));
        assert_eq!(world.stored(1)[&0], ["4"]);
        // Another producer's event is not this one's to take back.
        let other = world.producer(ordering);
        let theirs = other.push_metadata(b"theirs").unwrap();
        assert!(!producer.cancel(&theirs));
        theirs.wait(Some(WATCHDOG)).unwrap();
    }
}
