//! Spread topics that get more partitions while they are used, and partitions that are made where a label says.

use super::spread::{disks, from_beginning, number, places};
use super::*;
use client::{
    BatchPolicy, ClientError, Consumer, ConsumerOptions, Definition, EventId, GroupMember, Linger,
    PartitionIndex, PartitionStorage, Producer, QueueConsumerOptions,
};
use std::collections::BTreeMap;
use tempfile::TempDir;
use topic::Placement;
use wire::ErrorCode;

/// Three servers, and a spread topic that has no partition yet.
fn three_and_none() -> (Cluster, Driver, TopicHandle) {
    let mut cluster = Cluster::new(3);
    cluster.start_all();
    cluster.wait_for_others(0, 2);
    let driver = cluster.connect(0);
    let topic = driver
        .create_spread_topic("events", &Definition::default(), &[])
        .unwrap();
    (cluster, driver, topic)
}

fn push_to(producer: &Producer, partition: Option<u32>, n: u32) -> Result<EventId, ClientError> {
    let event = format!(r#"{{"n":{n}}}"#);
    let event = Event {
        partition,
        ..Event::new(event.as_bytes())
    };
    let pushed = producer.push(event)?;
    producer.flush(WATCHDOG)?;
    pushed.try_get().unwrap()
}

/// The numbers of the next events, with the partition of each.
fn pulled(consumer: &Consumer, count: usize) -> BTreeMap<u32, PartitionIndex> {
    let events = (0..count).map(|_| {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
        consumer.acknowledge(event.id()).unwrap();
        (number(event.metadata()), event.id().partition)
    });
    events.collect()
}

fn is_without_partition(error: &ClientError) -> bool {
    matches!(error, ClientError::UnknownPartition(why) if why.contains("no partition"))
}

#[test]
fn what_is_open_of_a_topic_without_partitions_uses_the_first_ones() {
    let (cluster, _driver, topic) = three_and_none();
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let refused = push_to(&producer, None, 0).unwrap_err();
    assert!(is_without_partition(&refused), "{refused}");
    assert!(is_without_partition(&producer.id().unwrap_err()));
    let consumer = topic.consumer("all", from_beginning()).unwrap();
    let member = topic
        .group("team", GroupMember::default(), from_beginning())
        .unwrap();
    let nothing = Some(std::time::Duration::ZERO);
    assert!(consumer.pull(nothing).unwrap().is_none() && consumer.partitions().is_empty());
    let queue = topic.queue("work", QueueConsumerOptions::default());
    assert!(is_without_partition(&queue.unwrap_err()));

    let other = cluster.connect(1);
    let grown = other.add_partitions("events", &disks(3)).unwrap();
    assert_eq!(grown.partitions.len(), 3);
    // What is open has them when this returns.
    assert_eq!(topic.refresh().unwrap().partitions.len(), 3);
    for n in 0..30 {
        push_to(&producer, None, n).unwrap();
    }
    let of_all = pulled(&consumer, 30);
    assert_eq!(
        of_all.keys().copied().collect::<Vec<_>>(),
        (0..30).collect::<Vec<_>>()
    );
    assert_eq!(of_all.values().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(pulled(&member, 30).len(), 30);
    assert_eq!(consumer.partitions(), [0, 1, 2]);
}

#[test]
fn partitions_that_others_add_are_read_by_consumers_groups_and_queues_that_wait() {
    let (cluster, driver, topic) = three_and_none();
    driver.add_partitions("events", &disks(1)).unwrap();
    topic.refresh().unwrap();
    let consumer = topic.consumer("all", from_beginning()).unwrap();
    let fixed = ConsumerOptions {
        partitions: Some(vec![0]),
        ..from_beginning()
    };
    let fixed = topic.consumer("first", fixed).unwrap();
    let member = topic
        .group("team", GroupMember::default(), from_beginning())
        .unwrap();
    let queue = topic
        .queue("work", QueueConsumerOptions::default())
        .unwrap();
    let named = ProducerOptions {
        name: Some("detector".to_owned()),
        ..ProducerOptions::default()
    };
    let named = topic.producer(named).unwrap();

    let other = cluster.connect(1);
    other.add_partitions("events", &disks(3)).unwrap();
    let far = open(&other, "events");
    let producer = far.producer(ProducerOptions::default()).unwrap();
    let ids: Vec<_> = (0..4)
        .map(|n| push_to(&producer, Some(n), n).unwrap())
        .collect();
    // Nobody asks for the topic here: it is looked at.
    let expected: BTreeMap<_, _> = (0..4).map(|n| (n, PartitionIndex(n))).collect();
    assert_eq!(pulled(&consumer, 4), expected);
    assert_eq!(pulled(&member, 4), expected);
    let leased: BTreeSet<_> = (0..4)
        .map(|_| {
            let event = queue.pull(Some(WATCHDOG)).unwrap().expect("an event");
            event.acknowledge();
            event.id()
        })
        .collect();
    assert_eq!(leased, ids.into_iter().collect());
    // Its dead letters have where to go.
    let dead = driver.describe_topic("events.dead").unwrap();
    assert_eq!(dead.partitions.len(), 4);
    // Those who said which partitions, and those who may have a successor, stay at theirs.
    assert_eq!(pulled(&fixed, 1).len(), 1);
    assert_eq!(fixed.partitions(), [0]);
    assert!(push_to(&named, Some(3), 5).is_err());
    consumer.close().unwrap();
    queue.close().unwrap();
}

/// Of each server its rank, and the topics of its nodes.
fn topics_by_rank(driver: &Driver) -> BTreeMap<String, Vec<String>> {
    let places = places(driver);
    let nodes = driver.list_nodes().unwrap().into_iter();
    let ranks = nodes.filter_map(|node| {
        let topics = places.get(&node.node.0)?.clone();
        Some((node.labels.0["rank"].clone(), topics))
    });
    ranks.collect()
}

fn placed(text: &str) -> Placement {
    text.parse().unwrap()
}

#[test]
fn topics_and_partitions_are_made_on_servers_with_the_labels_that_are_asked_for() {
    let (cluster, driver, topic) = three_and_none();
    for (label, name) in [
        ("rank=1", "one"),
        ("disk=fast", "fast"),
        ("rank=2,disk=fast", "both"),
        ("nic=lo", "near"),
    ] {
        let definition = Definition::default().with_placement(placed(label));
        driver.create_topic(name, &definition, &disks(1)).unwrap();
    }
    for rank in [1, 1, 2, 0] {
        driver
            .add_placed_partitions("events", &disks(1), &Placement::rank(rank))
            .unwrap();
    }
    topic.refresh().unwrap();
    let by_rank = topics_by_rank(&driver);
    let has = |rank: &str, name: &str| by_rank[rank].iter().any(|one| one == name);
    assert!(has("1", "one") && has("2", "fast") && has("2", "both") && has("2", "near"));
    assert!(has("1", "events/0") && has("1", "events/1"));
    assert!(has("2", "events/2") && has("0", "events/3"), "{by_rank:?}");

    // What no server has is refused, and nothing of it is left.
    let refused = |error: ClientError| {
        assert_eq!(error.code(), Some(ErrorCode::InvalidTopic), "{error}");
        assert!(error.to_string().contains("no node has that"), "{error}");
    };
    let nowhere = placed("rank=7");
    refused(
        driver
            .add_placed_partitions("events", &disks(1), &nowhere)
            .unwrap_err(),
    );
    let definition = Definition::default().with_placement(nowhere.clone());
    refused(
        driver
            .create_topic("lost", &definition, &disks(1))
            .map(drop)
            .unwrap_err(),
    );
    assert_eq!(open(&cluster.connect(2), "events").partitions().len(), 4);
    // A topic that is on one node has all its partitions there.
    let one = driver.add_placed_partitions("one", &disks(1), &Placement::rank(2));
    let one = one.unwrap_err().to_string();
    assert!(one.contains("on one node"), "{one}");
    assert_eq!(driver.describe_topic("one").unwrap().partitions.len(), 1);
}

#[test]
fn a_spread_topic_of_a_storage_that_is_not_known_is_refused_and_not_made() {
    let (cluster, driver, topic) = three_and_none();
    let granite = [PartitionStorage {
        kind: "granite".to_owned(),
        config: String::new(),
    }];
    let is_not_known = |error: ClientError| {
        assert_eq!(error.code(), Some(ErrorCode::InvalidStorage), "{error}");
    };
    let refused = driver.create_spread_topic("stone", &Definition::default(), &granite);
    is_not_known(refused.map(drop).unwrap_err());
    assert!(!driver.topic_exists("stone").unwrap());
    is_not_known(driver.add_partitions("events", &granite).unwrap_err());
    assert!(topic.refresh().unwrap().partitions.is_empty());
    // It grows all the same.
    let grown = cluster
        .connect(2)
        .add_partitions("events", &disks(1))
        .unwrap();
    assert_eq!(grown.partitions.len(), 1);
}

#[test]
fn partitions_that_several_add_at_once_are_all_there() {
    let (cluster, driver, topic) = three_and_none();
    std::thread::scope(|scope| {
        for rank in 0..3 {
            let cluster = &cluster;
            scope.spawn(move || {
                let driver = cluster.connect(rank);
                let at = Placement::rank(rank);
                driver
                    .add_placed_partitions("events", &disks(1), &at)
                    .unwrap();
                driver.add_partitions("events", &disks(1)).unwrap();
            });
        }
    });
    assert_eq!(topic.refresh().unwrap().partitions.len(), 6);
    let by_rank = topics_by_rank(&driver);
    let parts = by_rank.values().flatten();
    assert_eq!(parts.filter(|name| name.contains('/')).count(), 6);
}

/// A server that is no part of a cluster, in a directory of its own, and a client of it.
fn one_that_is_alone() -> (TempDir, Server, Driver) {
    let alone = tempfile::tempdir().unwrap();
    let config = Config {
        directory: alone.path().join("data"),
        group_file: Some(alone.path().join("group.json")),
        ..Config::default()
    };
    let server = Server::start(config, Arc::new(|_: &str| {})).unwrap();
    let file = Endpoint::GroupFile(alone.path().join("group.json"));
    let driver = Driver::connect(file, DriverOptions::default()).unwrap();
    (alone, server, driver)
}

#[test]
fn a_producer_that_ends_waits_for_the_partitions_that_have_not_failed() {
    let (_alone, server, driver) = one_that_is_alone();
    let topic = driver
        .create_spread_topic("events", &Definition::default(), &disks(2))
        .unwrap();
    let gathers = ProducerOptions {
        batch: BatchPolicy {
            linger: Linger::UntilFull,
            ..BatchPolicy::default()
        },
        ..ProducerOptions::default()
    };
    let producer = topic.producer(gathers).unwrap();
    driver.delete_topic("events/1").unwrap();
    assert!(push_to(&producer, Some(1), 1).is_err());
    let event = Event {
        partition: Some(0),
        ..Event::new(br#"{"n":2}"#)
    };
    drop(producer.push(event).unwrap());
    drop(producer);
    let of_the_first = ConsumerOptions {
        partitions: Some(vec![0]),
        ..from_beginning()
    };
    let consumer = topic.consumer("all", of_the_first).unwrap();
    assert_eq!(
        pulled(&consumer, 1),
        BTreeMap::from([(2, PartitionIndex(0))])
    );
    drop(consumer);
    server.drain(WATCHDOG).unwrap();
}

#[test]
fn a_server_that_is_alone_has_no_labels() {
    let (alone, server, driver) = one_that_is_alone();
    let definition = Definition::default().with_placement(Placement::rank(0));
    let refused = driver.create_topic("events", &definition, &disks(1));
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("this server is alone"), "{refused}");
    let labelled = Config {
        cluster_labels: vec!["disk=fast".to_owned()],
        directory: alone.path().join("other"),
        ..Config::default()
    };
    let refused = Server::start(labelled, Arc::new(|_: &str| {}))
        .err()
        .unwrap();
    assert!(
        refused.to_string().contains("of no use without cluster"),
        "{refused}"
    );
    server.drain(WATCHDOG).unwrap();
}
