//! Full topics against the real server: what producers and consumers see of
//! each policy.

use client::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use topic::{Overflow, Retention};
use wire::ErrorCode;

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);
const KEPT: u64 = 50;

struct Rig {
    _directory: tempfile::TempDir,
    _server: server::Server,
    driver: Driver,
    topic: TopicHandle,
}

/// A topic that keeps [`KEPT`] events until `slow` has acknowledged them.
fn rig(overflow: Overflow) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let endpoint = Endpoint::GroupFile(directory.path().join("group.json"));
    let driver = Driver::connect(endpoint, DriverOptions::default()).unwrap();
    let definition = Definition::builder()
        .serializer(topic::SerializerKind::Raw)
        .retention(Retention {
            count: Some(KEPT),
            ..Retention::default()
        })
        .keep_until_acknowledged(vec!["slow".into()])
        .overflow(overflow)
        .build()
        .unwrap();
    let memory = PartitionStorage {
        kind: "memory".into(),
        config: String::new(),
    };
    let topic = driver.create_topic("events", &definition, &[memory]);
    Rig {
        topic: topic.unwrap(),
        _directory: directory,
        _server: server,
        driver,
    }
}

fn start(directory: &Path) -> server::Server {
    let config = server::Config {
        directory: directory.join("data"),
        group_file: Some(directory.join("group.json")),
        ..server::Config::default()
    };
    server::Server::start(config, Arc::new(|_: &str| {})).unwrap()
}

/// One event a batch, so that each is decided by itself.
fn producer(topic: &TopicHandle) -> Producer {
    let options = ProducerOptions {
        batch: BatchPolicy {
            count_max: Some(1),
            ..BatchPolicy::default()
        },
        ..ProducerOptions::default()
    };
    topic.producer(options).unwrap()
}

fn push(producer: &Producer, events: std::ops::Range<u64>) -> Vec<PushFuture> {
    let push = |event: u64| producer.push_metadata(&event.to_le_bytes()).unwrap();
    events.map(push).collect()
}

fn outcomes(futures: &[PushFuture]) -> Vec<Result<u64, ErrorReply>> {
    let outcome = |future: &PushFuture| match future.wait(Some(WATCHDOG)) {
        Ok(id) => Ok(id.offset.0),
        Err(ClientError::Server(reply)) => Err(reply),
        Err(error) => panic!("{error}"),
    };
    futures.iter().map(outcome).collect()
}

use wire::ErrorReply;

fn slow(rig: &Rig) -> Consumer {
    rig.topic
        .consumer("slow", ConsumerOptions::default())
        .unwrap()
}

fn number(event: &ConsumedEvent) -> u64 {
    u64::from_le_bytes(event.metadata().try_into().unwrap())
}

/// Takes and acknowledges so many events; returns them.
fn take(consumer: &Consumer, count: usize) -> Vec<u64> {
    let mut taken = Vec::new();
    for _ in 0..count {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
        taken.push(number(&event));
        consumer.acknowledge(event.id()).unwrap();
    }
    consumer.flush_acknowledgements(WATCHDOG).unwrap();
    taken
}

#[test]
fn growing_takes_everything() {
    let rig = rig(Overflow::Grow);
    let producer = producer(&rig.topic);
    let outcomes = outcomes(&push(&producer, 0..3 * KEPT));
    assert!(outcomes.iter().all(Result::is_ok));
    producer.flush(WATCHDOG).unwrap();
    assert_eq!(take(&slow(&rig), 150), (0..150).collect::<Vec<_>>());
}

#[test]
fn blocked_producers_wait_for_their_consumers_and_nothing_is_lost() {
    let rig = rig(Overflow::Block);
    let producer = producer(&rig.topic);
    let futures = push(&producer, 0..3 * KEPT);
    futures[KEPT as usize - 1].wait(Some(WATCHDOG)).unwrap();
    // Nobody reads: the rest is not stored, and has not failed.
    let waits = futures[KEPT as usize].wait(Some(Duration::from_millis(300)));
    assert!(
        matches!(waits, Err(ClientError::Timeout { .. })),
        "{waits:?}"
    );
    let consumer = slow(&rig);
    let taken: Vec<u64> = (0..15).flat_map(|_| take(&consumer, 10)).collect();
    assert_eq!(taken, (0..3 * KEPT).collect::<Vec<_>>());
    assert!(outcomes(&futures).iter().all(Result::is_ok));
}

#[test]
fn a_producer_survives_refused_events_and_hears_when_to_come_again() {
    let rig = rig(Overflow::Reject { retry_after_ms: 70 });
    let producer = producer(&rig.topic);
    let all = outcomes(&push(&producer, 0..KEPT + 20));
    assert!(all[..KEPT as usize].iter().all(Result::is_ok));
    for refused in &all[KEPT as usize..] {
        let reply = refused.as_ref().unwrap_err();
        assert_eq!(
            (reply.code, reply.retry_after_ms),
            (ErrorCode::TopicFull, 70)
        );
        let text = reply.to_string();
        assert!(text.ends_with("; try again after 70 ms"), "{text}");
    }
    // A flush tells once of what was refused since the last one.
    let error = producer.flush(WATCHDOG).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::TopicFull));
    assert!(
        error.to_string().contains("20 events were refused"),
        "{error}"
    );
    producer.flush(WATCHDOG).unwrap();
    let consumer = slow(&rig);
    take(&consumer, 30);
    let later = outcomes(&push(&producer, 100..130));
    assert_eq!(later, (KEPT..KEPT + 30).map(Ok).collect::<Vec<_>>());
    producer.close(WATCHDOG).unwrap();
    let rest = take(&consumer, 50);
    assert_eq!(rest, (30..50).chain(100..130).collect::<Vec<_>>());
}

#[test]
fn a_gap_tells_consumers_of_discarded_events() {
    let rig = rig(Overflow::DropOldest);
    let consumer = slow(&rig);
    take_none(&consumer);
    drop(consumer);
    let producer = producer(&rig.topic);
    let all = outcomes(&push(&producer, 0..10 * KEPT));
    assert!(all.iter().all(Result::is_ok), "the newest are always taken");
    let consumer = slow(&rig);
    let first = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
    let gaps = consumer.take_gaps();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    let gap = gaps[0].1;
    assert_eq!(gap.reason, GapReason::Discarded);
    assert_eq!((gap.first, gap.end), (Offset(0), first.id().offset));
    assert!(gap.end.0 >= 10 * KEPT - 2 * KEPT, "{gap:?}");
    let status = rig.driver.status().unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let topics = status["topics"].as_array().unwrap();
    let topic = topics.iter().find(|topic| topic["name"] == "events");
    let overflow = &topic.unwrap()["partitions"][0]["overflow"];
    assert_eq!(overflow["policy"], "drop_oldest");
    assert_eq!(overflow["discarded_events"], gap.end.0);
}

/// Makes the name known.
fn take_none(consumer: &Consumer) {
    assert!(consumer.pull(Some(Duration::ZERO)).unwrap().is_none());
}

#[test]
fn whose_newest_events_are_dropped_is_told_and_goes_on() {
    let rig = rig(Overflow::DropNewest);
    let producer = producer(&rig.topic);
    let all = outcomes(&push(&producer, 0..2 * KEPT));
    let dropped = |outcome: &Result<u64, ErrorReply>| matches!(outcome, Err(reply) if reply.code == ErrorCode::EventDropped && !reply.retryable);
    assert!(all[..KEPT as usize].iter().all(Result::is_ok));
    assert!(all[KEPT as usize..].iter().all(dropped));
    // It is what the topic asks for: no failure of the flush.
    producer.flush(WATCHDOG).unwrap();
    let consumer = slow(&rig);
    assert_eq!(take(&consumer, 50), (0..KEPT).collect::<Vec<_>>());
    assert_eq!(outcomes(&push(&producer, 7..8)), [Ok(KEPT)]);
    assert_eq!(take(&consumer, 1), [7]);
}

#[test]
fn a_sample_of_what_is_too_much_is_kept() {
    let one_in = std::num::NonZeroU32::new(10).unwrap();
    let rig = rig(Overflow::Sample { one_in });
    let producer = producer(&rig.topic);
    let all = outcomes(&push(&producer, 0..KEPT + 1000));
    let taken = all.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(taken as u64, KEPT + 100);
    producer.close(WATCHDOG).unwrap();
}
