//! Topics whose partitions are on several servers.

use super::*;
use client::{
    ConsumerOptions, Definition, Drained, Fault, GroupMember, Offset, PartitionIndex,
    PartitionStorage, Position, QueueConsumerOptions, QueueOptions, ReadOptions, Start,
};
use std::collections::BTreeMap;
use std::time::Duration;
use support::disk;
use topic::SelectorKind;

const PARTITIONS: u32 = 6;

pub fn disks(count: u32) -> Vec<PartitionStorage> {
    disk().into_iter().cycle().take(count as usize).collect()
}

fn three() -> (Cluster, Driver, TopicHandle) {
    let mut cluster = Cluster::new(3);
    cluster.start_all();
    cluster.wait_for_others(0, 2);
    let driver = cluster.connect(0);
    let topic = driver
        .create_spread_topic("events", &Definition::default(), &disks(PARTITIONS))
        .unwrap();
    (cluster, driver, topic)
}

/// The topics on each node that has some, by the node's number.
pub fn places(driver: &Driver) -> BTreeMap<u32, Vec<String>> {
    let nodes = driver.list_nodes().unwrap().into_iter();
    let places = nodes.map(|node| {
        let topics = driver.topics_of_node(node.node).unwrap().into_iter();
        (node.node.0, topics.map(|(_, name)| name).collect())
    });
    places
        .filter(|(_, topics): &(u32, Vec<String>)| !topics.is_empty())
        .collect()
}

/// So many events round robin: event `N` is in partition `N % PARTITIONS`.
fn produce(topic: &TopicHandle, numbers: std::ops::Range<u32>) {
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let mut futures = Vec::new();
    for number in numbers {
        let event = format!(r#"{{"n":{number}}}"#);
        futures.push(producer.push(Event::new(event.as_bytes())).unwrap());
    }
    producer.flush(WATCHDOG).unwrap();
    let mut ids: Vec<_> = futures
        .iter()
        .map(|future| future.try_get().unwrap().unwrap())
        .map(|id| (id.partition, id.incarnation, id.offset))
        .collect();
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "each event has an id of its own");
    producer.close(WATCHDOG).unwrap();
}

pub fn number(metadata: &[u8]) -> u32 {
    let value: serde_json::Value = serde_json::from_slice(metadata).unwrap();
    value["n"].as_u64().unwrap() as u32
}

pub fn from_beginning() -> ConsumerOptions {
    ConsumerOptions {
        start: Start::Beginning.into(),
        ..ConsumerOptions::default()
    }
}

#[test]
fn one_topic_is_on_all_servers_and_programs_see_one() {
    let (cluster, driver, topic) = three();
    let places = places(&driver);
    assert_eq!(places.len(), 3, "{places:?}");
    for topics in places.values() {
        let parts = topics.iter().filter(|name| name.starts_with("events/"));
        assert_eq!(parts.count(), 2, "{places:?}");
    }
    produce(&topic, 0..600);
    // Whichever server is asked first.
    for rank in 0..3 {
        let driver = cluster.connect(rank);
        assert_eq!(names(&driver), ["events"]);
        let described = driver.describe_topic("events").unwrap();
        let indices: Vec<u32> = described
            .partitions
            .iter()
            .map(|one| one.partition.0)
            .collect();
        assert_eq!(indices, (0..PARTITIONS).collect::<Vec<_>>());
        let counts = described
            .partitions
            .iter()
            .map(|one| one.watermarks.committed);
        assert!(
            counts.into_iter().all(|count| count == Offset(100)),
            "{described:?}"
        );
        let topic = driver.open_topic("events").unwrap();
        let consumer = topic
            .consumer(&format!("reader-{rank}"), from_beginning())
            .unwrap();
        let mut next = [0; PARTITIONS as usize];
        let mut seen = BTreeSet::new();
        for _ in 0..600 {
            let event = consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
            let (id, number) = (event.id(), number(event.metadata()));
            let next = &mut next[id.partition.0 as usize];
            assert_eq!(id.offset, Offset(*next), "each partition in its order");
            *next += 1;
            seen.insert(number);
            consumer.acknowledge(id).unwrap();
        }
        assert_eq!(seen.len(), 600);
        assert!(
            consumer
                .pull(Some(Duration::from_millis(1)))
                .unwrap()
                .is_none()
        );
        consumer.close().unwrap();
        let cursors = driver.cursors(&topic, &format!("reader-{rank}")).unwrap();
        assert_eq!(cursors.len(), PARTITIONS as usize);
        assert!(
            cursors
                .iter()
                .all(|cursor| cursor.position.offset == Offset(100))
        );
        let lag = topic.lag().unwrap();
        assert!(
            lag.iter()
                .all(|lag| lag.partitions.len() == PARTITIONS as usize)
        );
        assert_eq!(
            topic.read(ReadOptions::default()).unwrap().events().count(),
            600
        );
    }
}

#[test]
fn a_consumer_goes_on_where_it_was_and_seeks_in_one_partition() {
    let (cluster, driver, topic) = three();
    produce(&topic, 0..60);
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    for _ in 0..25 {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
        consumer.acknowledge(event.id()).unwrap();
    }
    consumer.close().unwrap();
    let other = cluster.connect(2);
    let topic = open(&other, "events");
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    for _ in 0..35 {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
        consumer.acknowledge(event.id()).unwrap();
    }
    let partition = PartitionIndex(4);
    let incarnation = topic.partitions()[4].incarnation;
    let position = Position {
        incarnation,
        offset: Offset(7),
    };
    consumer.seek(partition, position).unwrap();
    for offset in 7..10 {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
        assert_eq!(
            (event.id().partition, event.id().offset),
            (partition, Offset(offset))
        );
    }
    // One that is to read some partitions reads those.
    let options = ConsumerOptions {
        partitions: Some(vec![1, 5]),
        ..from_beginning()
    };
    let some = topic.consumer("some", options).unwrap();
    for _ in 0..20 {
        let event = some.pull(Some(WATCHDOG)).unwrap().unwrap();
        assert!([1, 5].contains(&event.id().partition.0));
    }
    assert!(some.pull(Some(Duration::ZERO)).unwrap().is_none());
    driver
        .seek(&topic, "some", &[(partition, position)])
        .unwrap();
    let out_of_range = ConsumerOptions {
        partitions: Some(vec![6]),
        ..from_beginning()
    };
    assert!(topic.consumer("none", out_of_range).is_err());
}

#[test]
fn a_producer_of_the_same_name_fences_the_one_before_on_all_servers() {
    let (_cluster, _driver, topic) = three();
    let named = || ProducerOptions {
        name: Some("writer".to_owned()),
        ..ProducerOptions::default()
    };
    let first = topic.producer(named()).unwrap();
    for _ in 0..PARTITIONS {
        first.push(Event::new(b"{}")).unwrap();
    }
    first.flush(WATCHDOG).unwrap();
    let second = topic.producer(named()).unwrap();
    for _ in 0..PARTITIONS {
        let refused = match first.push(Event::new(b"{}")) {
            Ok(future) => future.wait(Some(WATCHDOG)).is_err(),
            Err(_) => true,
        };
        assert!(refused);
        second.push(Event::new(b"{}")).unwrap();
    }
    second.flush(WATCHDOG).unwrap();
    let described = topic.refresh().unwrap();
    assert!(
        described
            .partitions
            .iter()
            .all(|one| one.watermarks.committed == Offset(2))
    );
}

#[test]
fn members_of_a_group_share_the_partitions_evenly_without_a_word_between_servers() {
    let (cluster, _driver, topic) = three();
    let drivers: Vec<Driver> = (0..3).map(|rank| cluster.connect(rank)).collect();
    let join = |driver: &Driver| {
        let member = GroupMember::default();
        open(driver, "events")
            .group("readers", member, from_beginning())
            .unwrap()
    };
    let mut members: Vec<_> = drivers.iter().map(join).collect();
    let until = Instant::now() + WATCHDOG;
    let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
    // Each looks for events, as it has to, until all have their share.
    let share_out = |members: &[client::Consumer], seen: &mut BTreeMap<u32, u32>| {
        let share = PARTITIONS as usize / members.len();
        loop {
            for member in members {
                while let Some(event) = member.pull(Some(Duration::ZERO)).unwrap_or(None) {
                    *seen.entry(number(event.metadata())).or_default() += 1;
                    let _ = member.acknowledge(event.id());
                }
            }
            if members
                .iter()
                .all(|member| member.partitions().len() == share)
            {
                break;
            }
            assert!(
                Instant::now() < until,
                "{:?}",
                members
                    .iter()
                    .map(client::Consumer::partitions)
                    .collect::<Vec<_>>()
            );
        }
    };
    share_out(&members, &mut seen);
    produce(&topic, 0..60);
    members.remove(1).close().unwrap();
    share_out(&members, &mut seen);
    while seen.len() < 60 {
        share_out(&members, &mut seen);
        assert!(Instant::now() < until, "{seen:?}");
    }
    let known = topic.describe_consumers("readers").unwrap();
    assert_eq!((known.len(), known[0].members.len()), (1, 2), "{known:?}");
    assert_eq!(known[0].partitions.len(), PARTITIONS as usize);
}

#[test]
fn a_queue_hands_out_each_event_once_and_what_nobody_can_do_goes_to_dead_letters_beside_it() {
    let (cluster, driver, topic) = three();
    produce(&topic, 0..120);
    let options = || QueueConsumerOptions {
        queue: QueueOptions {
            deliveries_max: 2,
            ..QueueOptions::default()
        },
        ..QueueConsumerOptions::default()
    };
    let drivers = [cluster.connect(1), cluster.connect(2)];
    let workers: Vec<_> = drivers
        .iter()
        .map(|driver| open(driver, "events").queue("farm", options()).unwrap())
        .collect();
    let mut done = BTreeSet::new();
    let mut bad = 0;
    let until = Instant::now() + WATCHDOG;
    while done.len() < 110 || bad < 20 {
        for worker in &workers {
            let Some(event) = worker.pull(Some(Duration::from_millis(1))).unwrap() else {
                continue;
            };
            let number = number(event.metadata());
            match number % 12 {
                // Ten of them are no good, each time.
                0 => {
                    bad += 1;
                    drop(event.return_to_queue(Duration::ZERO));
                }
                _ => {
                    assert!(done.insert(number), "{number} twice");
                    drop(event.acknowledge());
                }
            }
        }
        assert!(Instant::now() < until, "{} done, {bad} bad", done.len());
    }
    let mut workers = workers.into_iter();
    let last = workers.next().unwrap();
    for worker in workers {
        worker.close().unwrap();
    }
    let mut drain = client::Drain::new(Duration::from_millis(10));
    assert!(matches!(
        drain.next(&last, Some(WATCHDOG)).unwrap(),
        Drained::Done
    ));
    let dead = open(&driver, "events.dead");
    assert_eq!(dead.partitions().len(), PARTITIONS as usize);
    let letters: u64 = dead
        .partitions()
        .iter()
        .map(|one| one.watermarks.committed.0)
        .sum();
    assert_eq!(letters, 10);
    for topics in places(&driver).values() {
        let of = |prefix: &str| {
            let with = topics.iter().filter_map(|name| name.strip_prefix(prefix));
            with.map(str::to_owned).collect::<BTreeSet<String>>()
        };
        assert_eq!(of("events/"), of("events.dead/"), "each beside its own");
    }
}

#[test]
fn the_partitions_of_a_server_that_is_away_wait_and_the_others_go_on() {
    let mut cluster = Cluster::new(3);
    cluster.start_all();
    cluster.wait_for_others(0, 2);
    let driver = cluster.connect(0);
    let definition = Definition::builder().partition_selector(SelectorKind::Explicit);
    let definition = definition.build().unwrap();
    let topic = driver
        .create_spread_topic("events", &definition, &disks(PARTITIONS))
        .unwrap();
    let node_of = |index: u32| {
        let places = places(&driver).into_iter();
        let mut places = places.filter(|(_, all)| all.contains(&format!("events/{index}")));
        places.next().unwrap().0
    };
    // Nodes are counted from 1 in the order of their registration: rank 1 is known by its files.
    let on_rank_1 = |index: u32| {
        let id = topic_id(&driver, &format!("events/{index}"));
        let files = std::fs::read_dir(cluster.path("data-1/partitions")).unwrap();
        let mut names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.any(|name| name.starts_with(&id))
    };
    let (away, there): (Vec<u32>, Vec<u32>) = (0..PARTITIONS).partition(|index| on_rank_1(*index));
    assert_eq!(away.len(), 2);
    assert_eq!(node_of(away[0]), node_of(away[1]));
    let consumer = topic.consumer("reader", from_beginning()).unwrap();
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let push = |partition: u32, number: u32| {
        let event = format!(r#"{{"n":{number}}}"#);
        let event = Event::new(event.as_bytes());
        producer
            .push(Event {
                partition: Some(partition),
                ..event
            })
            .unwrap()
    };
    let first = push(away[0], 0);
    first.wait(Some(WATCHDOG)).unwrap();
    assert_eq!(
        number(consumer.pull(Some(WATCHDOG)).unwrap().unwrap().metadata()),
        0
    );
    cluster.server(1).kill();
    let waits = push(away[0], 1);
    for (place, partition) in there.iter().enumerate() {
        let number_of = place as u32 + 2;
        push(*partition, number_of).wait(Some(WATCHDOG)).unwrap();
        let event = consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
        assert_eq!(
            (event.id().partition.0, number(event.metadata())),
            (*partition, number_of)
        );
    }
    assert!(waits.try_get().is_none());
    // That nothing is there is not said while a server is away.
    assert!(consumer.pull(Some(Duration::from_millis(1))).is_err());
    cluster.start(&[1]);
    waits.wait(Some(WATCHDOG)).unwrap();
    let until = Instant::now() + WATCHDOG;
    let event = loop {
        if let Ok(Some(event)) = consumer.pull(Some(Duration::from_secs(1))) {
            break event;
        }
        assert!(Instant::now() < until);
    };
    assert_eq!(number(event.metadata()), 1);
}

fn topic_id(driver: &Driver, name: &str) -> String {
    driver.describe_topic(name).unwrap().topic.to_string()
}

#[test]
fn a_spread_topic_is_altered_gets_more_partitions_and_goes_whole() {
    let (cluster, driver, topic) = three();
    let altered = driver
        .alter_topic("events", r#"{"metadata_bytes_max": 4000}"#)
        .unwrap();
    assert_eq!(altered.partitions.len(), PARTITIONS as usize);
    let other = cluster.connect(1);
    let long = format!(r#"{{"n":"{}"}}"#, "x".repeat(5000));
    let producer = open(&other, "events")
        .producer(ProducerOptions::default())
        .unwrap();
    assert!(producer.push(Event::new(long.as_bytes())).is_err());
    let grown = driver.add_partitions("events", &disks(2)).unwrap();
    assert_eq!(grown.partitions.len(), PARTITIONS as usize + 2);
    assert_eq!(
        topic.refresh().unwrap().partitions.len(),
        PARTITIONS as usize + 2
    );
    produce(&open(&other, "events"), 0..80);
    assert_eq!(
        topic.read(ReadOptions::default()).unwrap().events().count(),
        80
    );
    // A partition that is missing, as when its maker died, is made by those who open the topic.
    driver.delete_topic("events/3").unwrap();
    assert_eq!(
        open(&other, "events").partitions().len(),
        PARTITIONS as usize + 2
    );
    driver.delete_topic("events").unwrap();
    assert!(names(&other).is_empty());
    assert!(places(&driver).is_empty());
    // One of the same name is another, with nothing of the first.
    let anew = driver
        .create_spread_topic("events", &Definition::default(), &disks(2))
        .unwrap();
    assert_eq!(
        anew.read(ReadOptions::default()).unwrap().events().count(),
        0
    );
}

/// What a new topic of a name finds of an earlier one, whose deletion was interrupted.
fn found_of_an_earlier_topic(fault: Option<Fault>) -> usize {
    let mut cluster = Cluster::new(3);
    cluster.start_all();
    cluster.wait_for_others(0, 2);
    // Driven by this thread, so that the fault is its own.
    let options = DriverOptions {
        progress: client::Progress::Caller,
        ..DriverOptions::default()
    };
    let file = Endpoint::GroupFile(cluster.path("group-0.json"));
    let driver = Driver::connect(file, options).unwrap();
    let create = || {
        driver
            .create_spread_topic("events", &Definition::default(), &disks(3))
            .unwrap()
    };
    produce(&create(), 0..30);
    driver.delete_topic_itself("events").unwrap();
    client::plant(fault);
    let topic = create();
    client::plant(None);
    topic.read(ReadOptions::default()).unwrap().events().count()
}

#[test]
fn partitions_of_an_earlier_topic_of_the_name_are_none_of_a_new_one() {
    assert_eq!(found_of_an_earlier_topic(None), 0);
}

#[test]
fn a_client_that_takes_them_for_its_own_is_found() {
    assert_eq!(found_of_an_earlier_topic(Some(Fault::EarlierPart)), 30);
}
