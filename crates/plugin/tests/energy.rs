//! The worked example of `examples/plugins`, in C and in C++, through a server
//! that has none of it.

mod cc;

use cc::{loader, named};
use client::*;
use plugin::Loader;
use std::sync::Arc;
use std::time::Duration;
use topic::{Plugins, SelectorKind, SerializerKind, ValidatorKind};

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);
const OPTIONS: &str = r#"{"energy_max": 100.0}"#;

fn definition() -> Definition {
    let validator = named("energy_validator:libenergy.so", OPTIONS);
    let selector = named("energy_selector:libenergy.so", OPTIONS);
    let serializer = named("energy_serializer:libenergy.so", "{}");
    Definition::builder()
        .validator(ValidatorKind::Plugin(validator))
        .partition_selector(SelectorKind::Plugin(selector))
        .serializer(SerializerKind::Plugin(serializer))
        .build()
        .unwrap()
}

fn through_a_server(loader: Loader) {
    let directory = tempfile::tempdir().unwrap();
    let group_file = directory.path().join("group.json");
    let config = server::Config {
        directory: directory.path().join("data"),
        group_file: Some(group_file.clone()),
        ..server::Config::default()
    };
    let _server = server::Server::start(config, Arc::new(|_: &str| {})).unwrap();
    let connect = |plugins: Arc<dyn Plugins>| {
        let options = DriverOptions {
            plugins,
            ..DriverOptions::default()
        };
        Driver::connect(Endpoint::GroupFile(group_file.clone()), options).unwrap()
    };
    // The maker of the topic needs no plugin.
    let memory = PartitionStorage {
        kind: "memory".into(),
        config: String::new(),
    };
    let bare = connect(Arc::new(topic::NoPlugins));
    let partitions = vec![memory; 4];
    let topic = bare.create_topic("events", &definition(), &partitions);
    let error = topic
        .unwrap()
        .producer(ProducerOptions::default())
        .unwrap_err();
    assert!(matches!(error, ClientError::Plugin(_)), "{error}");

    let driver = connect(Arc::new(loader));
    let topic = driver.open_topic("events").unwrap();
    let producer = topic
        .producer(ProducerOptions {
            batch: BatchPolicy {
                linger: Linger::UntilFull,
                ..BatchPolicy::default()
            },
            ..ProducerOptions::default()
        })
        .unwrap();
    for (metadata, why) in [
        (r#"{"energy": 100.5}"#, "energy 100.5 is not from 0 to 100"),
        (r#"{"energy": -1}"#, "energy -1 is not from 0 to 100"),
        (r#"{"energy": "7"}"#, "expected {\"energy\": a number}"),
        (
            r#"{"energy": 7, "b": 1}"#,
            "expected {\"energy\": a number}",
        ),
        (r#"{"energy": 0x7}"#, "expected {\"energy\": a number}"),
        (r#"{"energy": inf}"#, "expected {\"energy\": a number}"),
        (r#"{"energy": 1e999}"#, "expected {\"energy\": a number}"),
        ("", "expected {\"energy\": a number}"),
    ] {
        let error = producer.push_metadata(metadata.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), format!("metadata is refused: {why}"));
    }
    let energies: Vec<f64> = (0..1000).map(|index| f64::from(index) / 10.0).collect();
    let futures: Vec<_> = energies
        .iter()
        .map(|energy| {
            let metadata = format!("{{ \"energy\" : {energy} }}");
            producer.push_metadata(metadata.as_bytes()).unwrap()
        })
        .collect();
    producer.flush(WATCHDOG).unwrap();
    let mut expected = [const { Vec::new() }; 4];
    for (energy, future) in energies.iter().zip(&futures) {
        let partition = future.wait(Some(WATCHDOG)).unwrap().partition.0;
        assert_eq!(partition, (energy / 25.0) as u32, "{energy}");
        expected[partition as usize].push(*energy);
    }

    // What is stored is the double and nothing else: 8 bytes an event.
    for partition in topic.partitions() {
        let from = Position {
            incarnation: partition.incarnation,
            offset: Offset(0),
        };
        let fetched = topic
            .fetch(partition.partition, from, 1 << 20, WATCHDOG, false)
            .unwrap();
        let mut stored = Vec::new();
        let mut events = 0;
        for batch in fetched.batches() {
            let batch =
                wire::batch::Batch::read(batch.clone(), wire::batch::Verify::Sections).unwrap();
            stored.extend_from_slice(batch.metadata_section());
            events += batch.header.event_count;
        }
        assert_eq!(events, 250);
        assert_eq!(stored.len(), 8 * 250);
        let doubles: Vec<f64> = stored
            .chunks(8)
            .map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        assert_eq!(doubles, expected[partition.partition.0 as usize]);
    }

    // And at the consumer it is JSON again.
    let consumer = topic.consumer("reader", ConsumerOptions::default());
    let consumer = consumer.unwrap();
    let mut got = [const { Vec::new() }; 4];
    for _ in &energies {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
        let metadata: serde_json::Value = serde_json::from_slice(event.metadata()).unwrap();
        got[event.id().partition.0 as usize].push(metadata["energy"].as_f64().unwrap());
    }
    assert_eq!(got, expected);
}

#[test]
fn in_c() {
    let (_directory, loader) = loader("examples/plugins/energy.c", "libenergy.so");
    through_a_server(loader);
}

#[test]
fn in_cpp() {
    let (_directory, loader) = loader("examples/plugins/energy.cpp", "libenergy.so");
    through_a_server(loader);
}

#[test]
fn both_refuse_options_and_bytes_that_they_do_not_know() {
    for source in ["examples/plugins/energy.c", "examples/plugins/energy.cpp"] {
        let (_directory, loader) = loader(source, "libenergy.so");
        for options in ["{}", r#"{"energy_max": 0}"#, r#"{"energy_max": "a"}"#] {
            let plugin = named("energy_validator:libenergy.so", options);
            let error = loader.validator(&plugin).err().expect("bad options");
            let text = error.to_string();
            let ends = "are refused: expected {\"energy_max\": a number above 0}";
            assert!(text.ends_with(ends), "{text}");
        }
        let plugin = named("energy_serializer:libenergy.so", "{}");
        let serializer = loader.serializer(&plugin).unwrap();
        for bytes in [&b"7 bytes"[..], &f64::NAN.to_le_bytes()] {
            assert!(serializer.deserialize(bytes).is_err(), "{bytes:?}");
        }
        let mut out = Vec::new();
        serializer
            .serialize(br#"{"energy": 1e-7}"#, &mut out)
            .unwrap();
        let back = serializer.deserialize(&out).unwrap();
        let back: serde_json::Value = serde_json::from_slice(&back).unwrap();
        assert_eq!(back, serde_json::json!({"energy": 1e-7}));
    }
}
