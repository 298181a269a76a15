//! What a caller gives that cannot be right is refused by the call, which ends
//! at once, and whoever else uses the driver notices nothing.

use bytes::Bytes;
use client::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);

struct Rig {
    driver: Driver,
    _server: server::Server,
    _directory: tempfile::TempDir,
}

fn rig() -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let config = server::Config {
        directory: directory.path().join("data"),
        ..server::Config::default()
    };
    let server = server::Server::embedded(config, Arc::new(|_: &str| {})).unwrap();
    let driver = Driver::connect(
        Endpoint::address(&server.endpoints()[0]),
        DriverOptions::default(),
    )
    .unwrap();
    Rig {
        driver,
        _server: server,
        _directory: directory,
    }
}

fn memory() -> PartitionStorage {
    PartitionStorage {
        kind: "memory".into(),
        config: String::new(),
    }
}

fn open(rig: &Rig, name: &str, partitions: usize) -> TopicHandle {
    let definition = Definition::builder()
        .validator(topic::ValidatorKind::None)
        .build()
        .unwrap();
    rig.driver
        .create_topic(name, &definition, &vec![memory(); partitions])
        .unwrap()
}

/// The words of a refusal.
fn refused<T>(what: &str, outcome: Result<T, ClientError>) -> String {
    match outcome {
        Err(ClientError::Invalid(reason) | ClientError::UnknownPartition(reason)) => reason,
        Err(other) => panic!("{what}: {other:?} is not what the caller did"),
        Ok(_) => panic!("{what}: it is taken"),
    }
}

/// Times that no wait can have.
const NO_TIME: [Duration; 2] = [Duration::ZERO, Duration::from_nanos(1)];

#[test]
fn a_drivers_options_are_checked_before_anybody_is_asked() {
    let with = |change: fn(&mut DriverOptions)| {
        let mut options = DriverOptions::default();
        change(&mut options);
        // Nobody is there: whatever connects would wait for the connect timeout.
        Driver::connect(Endpoint::address("inproc://nobody"), options)
    };
    for (said, change) in [
        (
            "connect_timeout is 0",
            (|o| o.connect_timeout = Some(Duration::ZERO)) as fn(&mut DriverOptions),
        ),
        ("request_timeout is 0", |o| {
            o.request_timeout = Duration::ZERO
        }),
        ("memory_bytes_max is 0", |o| o.memory_bytes_max = 0),
        ("spin is", |o| o.spin = Duration::MAX),
        ("namespace is 10485760 bytes", |o| {
            o.namespace = "x".repeat(10 << 20)
        }),
        ("namespace \"a\\0b\"", |o| o.namespace = "a\0b".into()),
        ("namespace \"a/b\"", |o| o.namespace = "a/b".into()),
        ("client name is 10485760 bytes", |o| {
            o.client_name = "x".repeat(10 << 20)
        }),
        ("client name \"a\\0b\"", |o| o.client_name = "a\0b".into()),
    ] {
        let reason = refused(said, with(change));
        assert!(reason.contains(said), "{reason}");
    }
}

#[test]
fn a_host_and_a_port_are_no_group_file() {
    for (given, is_meant) in [
        ("127.0.0.1:7000", true),
        ("node-7:7000", true),
        ("thalweg.json", false),
        ("run/a:7000", false),
    ] {
        let options = DriverOptions {
            connect_timeout: None,
            ..DriverOptions::default()
        };
        let error = Driver::connect(Endpoint::GroupFile(given.into()), options).unwrap_err();
        let text = error.to_string();
        assert_eq!(text.contains(&format!("tcp://{given}")), is_meant, "{text}");
        assert_eq!(matches!(error, ClientError::Invalid(_)), is_meant, "{text}");
    }
}

#[test]
fn a_producers_options_are_checked() {
    let rig = rig();
    let topic = open(&rig, "events", 1);
    let with = |change: fn(&mut ProducerOptions)| {
        let mut options = ProducerOptions::default();
        change(&mut options);
        topic.producer(options)
    };
    for (said, change) in [
        (
            "ack_timeout is 0",
            (|o| o.ack_timeout = Duration::ZERO) as fn(&mut ProducerOptions),
        ),
        ("budget_bytes is 0", |o| o.budget_bytes = 0),
        ("batches_in_flight_max is 0", |o| {
            o.batches_in_flight_max = 0
        }),
        ("batches_in_flight_max is", |o| {
            o.batches_in_flight_max = 1 << 33
        }),
        ("batch of 0", |o| o.batch.count_max = Some(0)),
        ("batch of 0", |o| o.batch.bytes_max = 0),
        ("threads", |o| o.threads = usize::MAX),
    ] {
        let reason = refused(said, with(change));
        assert!(reason.contains(said), "{reason}");
    }
    let taken: [fn(&mut ProducerOptions); 4] = [
        |o| o.ack_timeout = Duration::MAX,
        |o| o.budget_bytes = u64::MAX,
        |o| o.batch.linger = Linger::Wait(Duration::MAX),
        |o| o.at_budget = AtBudget::Block(Duration::MAX),
    ];
    for change in taken {
        let producer = with(change).unwrap();
        let pushed = producer.push_metadata(b"{}").unwrap();
        producer.flush(WATCHDOG).unwrap();
        pushed.wait(Some(WATCHDOG)).unwrap();
    }
    let none = RequesterOptions {
        producer: ProducerOptions {
            budget_bytes: 0,
            ..ProducerOptions::default()
        },
        ..RequesterOptions::default()
    };
    refused("a requester", topic.requester(none));
    assert!(!rig.driver.topic_exists("events.replies").unwrap());
}

#[test]
fn members_options_are_checked() {
    let rig = rig();
    let topic = open(&rig, "events", 2);
    let queue = |change: &dyn Fn(&mut QueueConsumerOptions)| {
        let mut options = QueueConsumerOptions::default();
        change(&mut options);
        topic.queue("workers", options)
    };
    let group = |change: &dyn Fn(&mut GroupMember)| {
        let mut member = GroupMember::default();
        change(&mut member);
        topic.group("readers", member, ConsumerOptions::default())
    };
    for time in [
        NO_TIME[0],
        NO_TIME[1],
        Duration::from_millis(50),
        Duration::MAX,
    ] {
        let said = refused("session", queue(&|o| o.session_timeout = time));
        assert!(said.contains("session_timeout is"), "{said}");
        refused("session", group(&|o| o.session_timeout = time));
    }
    for time in NO_TIME {
        let said = refused("processing", queue(&|o| o.processing_timeout = Some(time)));
        assert!(said.contains("processing_timeout is"), "{said}");
        refused("processing", group(&|o| o.processing_timeout = Some(time)));
    }
    for millis in [0, 1, u64::MAX] {
        let said = refused("lease", queue(&|o| o.queue.lease_ms = millis));
        assert!(said.contains("lease_ms is"), "{said}");
        refused("revoke", group(&|o| o.group.revoke_timeout_ms = millis));
    }
    refused("prefetch", queue(&|o| o.prefetch_events = 0));
    refused("prefetch", queue(&|o| o.prefetch_bytes = 0));
    for name in [String::new(), "a\0b".to_owned(), "x".repeat(10 << 20)] {
        let said = refused("instance", queue(&|o| o.instance = Some(name.clone())));
        assert!(said.contains("instance name"), "{said}");
        refused("instance", group(&|o| o.instance = Some(name.clone())));
    }
    // Nothing was made, and the driver serves others.
    assert!(!rig.driver.topic_exists("events.dead").unwrap());
    let at_most = queue(&|o| {
        o.processing_timeout = Some(Duration::MAX);
        (o.prefetch_events, o.prefetch_bytes) = (u32::MAX, u64::MAX);
    });
    let worker = at_most.unwrap();
    topic
        .producer(ProducerOptions::default())
        .unwrap()
        .push_metadata(b"{}")
        .unwrap();
    worker
        .pull(Some(WATCHDOG))
        .unwrap()
        .expect("an event")
        .acknowledge()
        .wait(Some(WATCHDOG))
        .unwrap();
}

#[test]
fn a_consumers_options_and_partitions_are_checked() {
    let rig = rig();
    let topic = open(&rig, "events", 2);
    let with = |change: fn(&mut ConsumerOptions)| {
        let mut options = ConsumerOptions::default();
        change(&mut options);
        topic.consumer("reader", options)
    };
    for (said, change) in [
        (
            "credit_bytes is 0",
            (|o| o.credit_bytes = 0) as fn(&mut ConsumerOptions),
        ),
        ("partitions names 1 twice", |o| {
            o.partitions = Some(vec![0, 1, 1])
        }),
        ("partition 2 is out of range", |o| {
            o.partitions = Some(vec![2])
        }),
        ("latest and key do not go together: the newest event", |o| {
            (o.latest, o.key) = (true, Some(Bytes::from_static(b"camera")));
        }),
        (
            "latest and merge_wait do not go together: merge_wait",
            |o| {
                (o.latest, o.merge_wait) = (true, Some(Duration::ZERO));
            },
        ),
        ("a group's member has no latest: the group", |o| {
            (o.latest, o.group) = (true, Some(GroupMember::default()));
        }),
    ] {
        let reason = refused(said, with(change));
        assert!(reason.contains(said), "{reason}");
    }
    let taken: [fn(&mut ConsumerOptions); 4] = [
        |o| o.credit_bytes = u64::MAX,
        |o| o.credit_bytes = 1,
        |o| o.merge_wait = Some(Duration::MAX),
        |o| o.acknowledge_interval = Duration::MAX,
    ];
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    for partition in [0, 1] {
        let event = Event {
            partition: Some(partition),
            ..Event::new(b"{}")
        };
        producer.push(event).unwrap().wait(Some(WATCHDOG)).unwrap();
    }
    for change in taken {
        let mut options = ConsumerOptions {
            start: Start::Beginning.into(),
            ..ConsumerOptions::default()
        };
        change(&mut options);
        let reader = topic.consumer("reader", options).unwrap();
        let id = reader.pull(Some(WATCHDOG)).unwrap().expect("an event").id();
        reader.acknowledge(id).unwrap();
        reader.close().unwrap();
    }
}

#[test]
fn more_partitions_than_a_topic_can_have_are_refused_here() {
    let rig = rig();
    let definition = Definition::builder().build().unwrap();
    let many = vec![memory(); 4097];
    let said = refused(
        "create",
        rig.driver.create_topic("many", &definition, &many),
    );
    assert!(
        said.contains("4097 partitions") && said.contains("4096"),
        "{said}"
    );
    open(&rig, "few", 1);
    refused("add", rig.driver.add_partitions("few", &many));
}

#[test]
fn a_name_without_end_ends_no_driver() {
    let rig = rig();
    let topic = open(&rig, "events", 1);
    let name = "x".repeat(10 << 20);
    let driver = &rig.driver;
    for said in [
        refused("describe", driver.describe_topic(&name)),
        refused("open", driver.open_topic(&name)),
        refused("exists", driver.topic_exists(&name)),
        refused("delete", driver.delete_topic(&name)),
        refused("gaps", driver.gaps(&name)),
        refused("alter", driver.alter_topic("events", &name)),
        refused("cursors", driver.cursors(&topic, &name)),
        refused("delete", driver.delete_consumer(&topic, &name)),
        refused("consumers", topic.describe_consumers(&name)),
        refused("seek", driver.seek(&topic, &name, &[])),
    ] {
        assert!(said.contains("bytes") && said.len() < 1000, "{said}");
    }
    let options = ConsumerOptions {
        key: Some(Bytes::from(name.into_bytes())),
        ..ConsumerOptions::default()
    };
    let said = refused("key", topic.consumer("reader", options));
    assert!(said.contains("key has 10485760 bytes"), "{said}");
    driver.status().unwrap();
}

fn push_data(topic: &TopicHandle, count: usize, data: &Bytes) {
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    for _ in 0..count {
        let event = Event {
            data: vec![data.clone()],
            ..Event::new(b"{}")
        };
        producer.push(event).unwrap();
    }
    producer.flush(WATCHDOG).unwrap();
}

/// Every other byte of so many.
fn every_other(bytes: u64) -> DataView {
    let stride = Stride {
        offset: 1,
        count: bytes / 2,
        block_bytes: 1,
        gap_bytes: 1,
    };
    DataView::whole(bytes).stride(stride).unwrap()
}

#[test]
fn selections_of_any_number_of_pieces_are_read() {
    let rig = rig();
    let topic = open(&rig, "frames", 1);
    let length = 700_001u64;
    let data: Bytes = (0..length)
        .map(|at| (at * 7 + at / 251) as u8)
        .collect::<Vec<u8>>()
        .into();
    let expected: Vec<u8> = data.iter().skip(1).step_by(2).copied().collect();
    push_data(&topic, 3, &data);
    // By a selector, into memory of the client's: 350 000 pieces an event.
    let select = move |_: &EventInfo<'_>| Ok(every_other(length));
    let options = ConsumerOptions {
        data: DataMode::Select(Arc::new(select)),
        ..Default::default()
    };
    let reader = topic.consumer("selected", options.clone()).unwrap();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let mut event = reader.pull(Some(WATCHDOG)).unwrap().expect("an event");
        assert!(event.take_data() == expected);
        ids.push(event.id());
    }
    // Into the program's.
    let allocate =
        |_: &EventInfo<'_>, view: &DataView| Ok(Target::new(vec![0u8; view.bytes() as usize]));
    let options = ConsumerOptions {
        allocator: Some(Arc::new(allocate)),
        ..options
    };
    let reader = topic.consumer("allocated", options).unwrap();
    for _ in 0..3 {
        let mut event = reader.pull(Some(WATCHDOG)).unwrap().expect("an event");
        let target = event.take_target().expect("the program gave memory");
        assert!(target.into_owner::<Vec<u8>>() == expected);
    }
    // Of several events at once, into memory whose bounds are not theirs.
    let wanted: Vec<DataWanted> = ids
        .iter()
        .map(|id| DataWanted {
            partition: id.partition,
            incarnation: id.incarnation,
            offset: id.offset,
            segments: every_other(length).segments().to_vec(),
        })
        .collect();
    let whole = expected.len() * 3;
    let spaces = [
        1,
        200_000,
        0,
        expected.len(),
        whole - expected.len() - 200_001,
    ];
    let into = spaces
        .iter()
        .map(|space| Target::new(vec![0u8; *space]))
        .collect();
    let read = topic.read_data(&wanted, into).unwrap();
    let lengths: Vec<usize> = read.iter().map(Target::len).collect();
    assert_eq!(lengths, spaces);
    let read: Vec<u8> = read
        .into_iter()
        .flat_map(Target::into_owner::<Vec<u8>>)
        .collect();
    assert!(read == expected.repeat(3));
}

#[test]
fn selections_of_any_number_of_events_are_read() {
    let rig = rig();
    let topic = open(&rig, "small", 1);
    let count = 40_000;
    push_data(&topic, count, &Bytes::from_static(b"data"));
    let select = |_: &EventInfo<'_>| Ok(DataView::whole(4).range(1, 2).unwrap());
    let options = ConsumerOptions {
        data: DataMode::Select(Arc::new(select)),
        ..Default::default()
    };
    let reader = topic.consumer("selected", options).unwrap();
    let mut offsets = BTreeSet::new();
    while offsets.len() < count {
        let mut event = reader.pull(Some(WATCHDOG)).unwrap().expect("an event");
        assert_eq!(event.take_data(), &b"at"[..]);
        offsets.insert(event.id().offset);
    }
}

/// A handle that callbacks get after they were given away.
type Later<T> = Arc<std::sync::OnceLock<T>>;

#[test]
fn a_consumer_is_refused_to_its_own_selector_and_allocator() {
    let rig = rig();
    let topic = open(&rig, "events", 1);
    push_data(&topic, 1, &Bytes::from(vec![7; 100_000]));
    let own: Later<Consumer> = Arc::default();
    let calls = Arc::new(AtomicUsize::new(0));
    let within = {
        let (own, calls) = (own.clone(), calls.clone());
        move || {
            let reader = own.get().expect("set before it pulls");
            let said = refused("a pull", reader.pull(None));
            assert!(said.contains("within its own selector"), "{said}");
            refused("a batch", reader.pull_batch(2, None));
            let start = Position {
                incarnation: Incarnation(1),
                offset: Offset(0),
            };
            refused("a seek", reader.seek(PartitionIndex(0), start));
            refused("a seek", reader.begin_seek(PartitionIndex(0), start));
            assert_eq!(reader.position(PartitionIndex(0)), None);
            assert!(reader.is_pulling_here());
            calls.fetch_add(1, Ordering::Relaxed);
        }
    };
    let (select, allocate) = (within.clone(), within);
    let options = ConsumerOptions {
        data: DataMode::Select(Arc::new(move |info: &EventInfo<'_>| {
            select();
            Ok(DataView::whole(info.data_bytes_total()))
        })),
        allocator: Some(Arc::new(move |_: &EventInfo<'_>, view: &DataView| {
            allocate();
            Ok(Target::new(vec![0u8; view.bytes() as usize]))
        })),
        ..ConsumerOptions::default()
    };
    assert!(own.set(topic.consumer("reader", options).unwrap()).is_ok());
    let reader = own.get().unwrap();
    assert!(reader.pull(Some(WATCHDOG)).unwrap().is_some());
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert!(!reader.is_pulling_here());
}

#[test]
fn a_queues_consumer_is_refused_to_its_own_selector() {
    let rig = rig();
    let topic = open(&rig, "events", 1);
    push_data(&topic, 1, &Bytes::from(vec![7; 100_000]));
    let own: Later<QueueConsumer> = Arc::default();
    let inner = own.clone();
    let options = QueueConsumerOptions {
        data: DataMode::Select(Arc::new(move |info: &EventInfo<'_>| {
            let worker = inner.get().expect("set before it pulls");
            refused("a pull", worker.pull(None));
            refused("a batch", worker.pull_batch(2, None));
            Ok(DataView::whole(info.data_bytes_total()))
        })),
        ..QueueConsumerOptions::default()
    };
    assert!(own.set(topic.queue("workers", options).unwrap()).is_ok());
    let worker = own.get().unwrap();
    assert!(worker.pull(Some(WATCHDOG)).unwrap().is_some());
}

#[test]
fn a_pull_keeps_its_deadline_while_another_thread_is_in_a_selector() {
    let rig = rig();
    let topic = open(&rig, "events", 1);
    push_data(&topic, 1, &Bytes::from(vec![7; 100_000]));
    let own: Later<Consumer> = Arc::default();
    let inner = own.clone();
    let options = ConsumerOptions {
        data: DataMode::Select(Arc::new(move |info: &EventInfo<'_>| {
            let reader = inner.clone();
            let other = std::thread::spawn(move || {
                let reader = reader.get().expect("set before it pulls");
                reader.pull(Some(Duration::from_millis(50)))
            });
            // The selector waits for it: it is not to wait for the selector.
            assert!(other.join().unwrap().unwrap().is_none());
            Ok(DataView::whole(info.data_bytes_total()))
        })),
        ..ConsumerOptions::default()
    };
    assert!(own.set(topic.consumer("reader", options).unwrap()).is_ok());
    assert!(own.get().unwrap().pull(Some(WATCHDOG)).unwrap().is_some());
}
