//! What a topic's definition promises of metadata, against the real server.

use client::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);

/// A server with its driver, which serves until both are dropped.
struct World {
    driver: Driver,
    _server: server::Server,
    _directory: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let group_file = directory.path().join("group.json");
        let config = server::Config {
            directory: directory.path().join("data"),
            group_file: Some(group_file.clone()),
            ..server::Config::default()
        };
        let server = server::Server::start(config, Arc::new(|_: &str| {})).unwrap();
        let endpoint = Endpoint::GroupFile(group_file);
        Self {
            driver: Driver::connect(endpoint, DriverOptions::default()).unwrap(),
            _server: server,
            _directory: directory,
        }
    }

    fn topic(&self, definition: &str, partitions: usize) -> Result<TopicHandle, ClientError> {
        let definition = Definition::from_json(definition).unwrap();
        self.driver
            .create_topic("events", &definition, &vec![memory(); partitions])
    }
}

fn memory() -> PartitionStorage {
    PartitionStorage {
        kind: "memory".into(),
        config: String::new(),
    }
}

/// Pushes all, waits for them, and gives the partition of each.
fn push_all(topic: &TopicHandle, metadata: &[String]) -> Vec<u32> {
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let futures: Vec<_> = metadata
        .iter()
        .map(|text| producer.push_metadata(text.as_bytes()).unwrap())
        .collect();
    futures
        .iter()
        .map(|future| future.wait(Some(WATCHDOG)).unwrap().partition.0)
        .collect()
}

fn pull_all(topic: &TopicHandle, count: usize) -> Vec<(u32, String)> {
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    let pull = |_| {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
        let text = String::from_utf8(event.metadata().to_vec()).unwrap();
        (event.id().partition.0, text)
    };
    (0..count).map(pull).collect()
}

#[test]
fn json_travels_as_messagepack_and_arrives_as_json() {
    let world = World::new();
    // The selector sees the JSON, not what is made of it.
    let topic = world
        .topic(
            r#"{"serializer": {"type": "msgpack"}, "validator": {"type": "json"},
                "partition_selector": {"type": "field_hash", "field": "run.id"}}"#,
            3,
        )
        .unwrap();
    let metadata: Vec<String> = (0..100)
        .map(|index| {
            format!(
                r#"{{ "run": {{"id": {}}}, "value": {index}.5 }}"#,
                index % 10
            )
        })
        .collect();
    let partitions = push_all(&topic, &metadata);
    let mut of_run = HashMap::new();
    for (index, partition) in partitions.iter().enumerate() {
        let known = of_run.entry(index % 10).or_insert(*partition);
        assert_eq!(known, partition, "run {}", index % 10);
    }
    let mut got = pull_all(&topic, 100);
    got.sort();
    let mut expected: Vec<_> = partitions
        .into_iter()
        .zip(metadata.iter().map(|text| text.replace(' ', "")))
        .collect();
    expected.sort();
    assert_eq!(got, expected);
    // What is stored is MessagePack.
    let from = record_start(&topic);
    let fetched = topic
        .fetch(PartitionIndex(0), from, 1 << 20, WATCHDOG, false)
        .unwrap();
    let batch =
        wire::batch::Batch::read(fetched.batches()[0].clone(), wire::batch::Verify::Sections)
            .unwrap();
    assert!(
        batch
            .metadata_section()
            .starts_with(b"\x82\xa3run\x81\xa2id")
    );
}

fn record_start(topic: &TopicHandle) -> Position {
    Position {
        incarnation: topic.partitions()[0].incarnation,
        offset: Offset(0),
    }
}

#[test]
fn metadata_is_measured_as_it_is_serialized() {
    let world = World::new();
    let topic = world
        .topic(
            r#"{"serializer": {"type": "msgpack"}, "metadata_bytes_max": 10}"#,
            1,
        )
        .unwrap();
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let spaces = format!("[{}1]", " ".repeat(100));
    let id = producer.push_metadata(spaces.as_bytes()).unwrap();
    id.wait(Some(WATCHDOG)).unwrap();
    let error = producer.push_metadata(br#""0123456789""#).unwrap_err();
    assert_eq!(
        error.to_string(),
        "metadata of 11 bytes; the topic's metadata_bytes_max is 10"
    );
}

#[test]
fn the_server_judges_the_json_behind_messagepack() {
    let world = World::new();
    let schema = r#"{"type": "schema", "schema": {"required": ["angle"]}}"#;
    let topic = world
        .topic(
            &format!(
                r#"{{"serializer": {{"type": "msgpack"}}, "validator": {schema},
                    "validate_on_server": true}}"#
            ),
            1,
        )
        .unwrap();
    push_all(&topic, &[r#"{"angle":1}"#.to_owned()]);
    assert_eq!(pull_all(&topic, 1), [(0, r#"{"angle":1}"#.to_owned())]);
}

/// The server judges a batch within one budget, so a producer puts in one batch
/// what fits in it, however many threads it has.
#[test]
fn events_that_are_much_work_come_in_more_batches() {
    let mut schema = r#"{"type": "number"}"#.to_owned();
    for _ in 0..4 {
        schema = format!(r#"{{"anyOf": [{schema}, {schema}, {schema}]}}"#);
    }
    for serializer in ["json", "msgpack"] {
        let world = World::new();
        let topic = world
            .topic(
                &format!(
                    r#"{{"validator": {{"type": "schema", "schema": {{"items": {schema}}}}},
                    "serializer": {{"type": "{serializer}"}}, "validate_on_server": true}}"#
                ),
                1,
            )
            .unwrap();
        let options = ProducerOptions {
            batch: BatchPolicy {
                linger: Linger::UntilFull,
                ..BatchPolicy::default()
            },
            ..ProducerOptions::default()
        };
        let producer = topic.producer(options).unwrap();
        let numbers = format!("[{}]", vec!["1"; 50].join(","));
        let ids: Vec<_> = (0..2000)
            .map(|_| producer.push_metadata(numbers.as_bytes()).unwrap())
            .collect();
        producer.flush(WATCHDOG).unwrap();
        for id in ids {
            id.wait(Some(WATCHDOG)).unwrap();
        }
    }
}

#[test]
fn ranges_have_as_many_partitions_as_they_say() {
    let world = World::new();
    let definition = r#"{"partition_selector": {"type": "field_range", "field": "energy",
        "boundaries": [0, 10, 20], "outside": "clamp"}}"#;
    for partitions in [1, 3] {
        let error = world.topic(definition, partitions).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.code(), Some(wire::ErrorCode::InvalidTopic), "{text}");
        assert!(text.contains("3 boundaries are for 2 partitions"), "{text}");
    }
    // A topic may get its partitions later, all at once.
    let empty = world.topic(definition, 0).unwrap();
    let added = world.driver.add_partitions("events", &vec![memory(); 2]);
    assert_eq!(added.unwrap().partitions.len(), 2);
    let error = world.driver.add_partitions("events", &[memory()]);
    let text = error.unwrap_err().to_string();
    assert!(text.contains("the topic would have 3"), "{text}");
    empty.refresh().unwrap();
    let energies = [5.0, 10.0, 19.5, -3.0, 20.0].map(|energy| format!(r#"{{"energy":{energy}}}"#));
    assert_eq!(push_all(&empty, &energies), [0, 1, 1, 0, 1]);
    let producer = empty.producer(ProducerOptions::default()).unwrap();
    let error = producer.push_metadata(b"{}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the partition selector refuses the event: field energy is not there, or is no number"
    );
}

#[test]
fn random_partitions_differ_from_producer_to_producer() {
    let world = World::new();
    let definition = r#"{"partition_selector": {"type": "random"}}"#;
    let topic = world.topic(definition, 4).unwrap();
    let events = vec!["{}".to_owned(); 200];
    let (first, second) = (push_all(&topic, &events), push_all(&topic, &events));
    assert_ne!(first, second);
    for partition in 0..4 {
        assert!(first.contains(&partition), "{first:?}");
    }
}

#[test]
fn a_client_without_the_plugin_is_told_which() {
    let world = World::new();
    for key in ["validator", "partition_selector", "serializer"] {
        let plugin = r#"{"type": "plugin", "name": "energy:libenergy.so"}"#;
        let topic = world
            .topic(&format!(r#"{{"{key}": {plugin}}}"#), 1)
            .unwrap();
        let wanted = r#"plugin "energy:libenergy.so": this client looks nowhere for plugins"#;
        let error = topic.producer(ProducerOptions::default()).unwrap_err();
        assert!(matches!(error, ClientError::Plugin(_)), "{error:?}");
        assert_eq!(error.to_string(), wanted);
        // A consumer needs the serializer alone.
        let consumer = topic.consumer("reader", ConsumerOptions::default());
        match (key, consumer) {
            ("serializer", Err(error)) => assert_eq!(error.to_string(), wanted),
            ("serializer", Ok(_)) => panic!("a consumer without its serializer"),
            (_, consumer) => drop(consumer.unwrap()),
        }
        // Everything else does without it.
        assert_eq!(world.driver.list_topics().unwrap().len(), 1);
        world.driver.delete_topic("events").unwrap();
    }
}

/// A schema that knows these members and no others.
fn schema(members: &str) -> String {
    format!(
        r#"{{"type": "schema", "schema": {{"type": "object", "required": ["frame"],
            "additionalProperties": false, "properties": {{"frame": {{"type": "integer"}}{members}}}}}}}"#
    )
}

/// A schema grows by an optional member: producers that are open take it up,
/// and consumers that are open get it, whatever stores it.
#[test]
fn a_schema_grows_while_its_topic_is_in_use() {
    for serializer in ["json", "msgpack", "schema"] {
        let world = World::new();
        let serializer = match serializer {
            "schema" => schema(""),
            name => format!(r#"{{"type": "{name}"}}"#),
        };
        let definition = format!(
            r#"{{"validator": {}, "serializer": {serializer}}}"#,
            schema("")
        );
        let topic = world.topic(&definition, 1).unwrap();
        let producer = topic.producer(ProducerOptions::default()).unwrap();
        let consumer = topic
            .consumer("reader", ConsumerOptions::default())
            .unwrap();
        producer.push_metadata(br#"{"frame":1}"#).unwrap();
        let grown = br#"{"frame":2,"note":"dark"}"#;
        assert!(producer.push_metadata(grown).is_err());

        let changes = format!(
            r#"{{"validator": {}}}"#,
            schema(r#", "note": {"type": "string"}"#)
        );
        world.driver.alter_topic("events", &changes).unwrap();
        // Refused at first perhaps, which makes the client look at the topic.
        let deadline = std::time::Instant::now() + WATCHDOG;
        while let Err(error) = producer.push_metadata(grown) {
            assert!(std::time::Instant::now() < deadline, "{error}");
            std::thread::yield_now();
        }
        assert!(producer.push_metadata(br#"{"frame":3,"note":1}"#).is_err());
        assert!(topic.definition_now().to_json().contains("note"));
        for expected in [&br#"{"frame":1}"#[..], grown] {
            let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
            assert_eq!(event.metadata(), expected);
        }
    }
}

/// What a topic's limit of metadata is changed to holds for producers that
/// are open as soon as they have looked.
#[test]
fn a_limit_changes_while_its_topic_is_in_use() {
    let world = World::new();
    let topic = world.topic("{}", 1).unwrap();
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let text = format!("\"{}\"", "x".repeat(100));
    producer.push_metadata(text.as_bytes()).unwrap();
    world
        .driver
        .alter_topic("events", r#"{"metadata_bytes_max": 64}"#)
        .unwrap();
    topic.refresh().unwrap();
    let error = producer.push_metadata(text.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("64"), "{error}");
    assert_eq!(topic.definition().metadata_bytes_max(), 1 << 20);
    assert_eq!(topic.definition_now().metadata_bytes_max(), 64);
}
