//! The published simulator's files.

use crate::*;

const EXPERIMENT: &str = r#"{
  "role": "ROLE", "numPhases": [1], "concurrency": 0, "testType": "TYPE",
  "testPattern": "PATTERN", "msgCount": COUNT, "duration": 5, "testMode": "msgCount"
}"#;

const WORKLOAD: &str = r#"{
  "WorkloadName": "deleria", "PayloadSize": 2000, "PayloadFormat": "binary", "PayloadElement": "variable",
  "DataRate": 4000000, "DataPackaging": {"type": "batched", "batchMessageCount": 8},
  "Variability": "steady", "ConsumptionMode": "push", "NumConsumers": 4, "ConsumerParallelism": "dedicatedMPI",
  "ConsPayloadDistribution": "roundrobin", "NumProducers": 4, "ProducerParallelism": "nonMPI"
}"#;

const TUNABLES: &str = r#"{
  "Acknowledgements": {
    "PublisherConfirms": {"type": "batch_sync", "batchSize": 64},
    "ConsumerAcks": {"mode": "manual", "manualAckType": "multiple", "manualAckMultipleCount": 64}
  },
  "Durability": {"MessageDurability": "none", "QueueDurability": "persistent"},
  "PrefetchCount": {"PerConsumer": 64},
  "QueueProperties": {"QueueStructure": "classic", "QueueSizeMessages": 131072, "QueueOverflow": "reject-publish"},
  "BindingDurability": "fully_durable", "TotalQueues": 2,
  "StreamUseCase": {"MaxLength": 2048, "MaxSegmentSizeBytes": 4096}
}"#;

const FRAMEWORK: &str = r#"{
  "toolkit": "scistream", "tlsEncryption": "Tls", "hostname": "host", "port": 5671,
  "amqpsUrl": "amqps://user:secret@host:5671/vhost",
  "authentication": {"method": "username_password", "credentials": {"username": "user", "password": "secret"}}
}"#;

/// An experiment, with something in it replaced.
struct Case {
    test: &'static str,
    pattern: &'static str,
    count: u64,
    replaced: (&'static str, &'static str),
}

const USUAL: Case = Case {
    test: "throughput",
    pattern: "work-sharing",
    count: 32_768,
    replaced: ("", ""),
};

impl Case {
    fn read(&self) -> Result<Published, ScenarioError> {
        let replace = |text: &str| match self.replaced.0 {
            "" => text.to_owned(),
            from => text.replace(from, self.replaced.1),
        };
        let role = |role: &str| {
            let text = EXPERIMENT.replace("ROLE", role).replace("TYPE", self.test);
            let text = text.replace("PATTERN", self.pattern);
            replace(&text.replace("COUNT", &self.count.to_string()))
        };
        let texts = [
            role("producer"),
            role("consumer"),
            role("coordinator"),
            replace(WORKLOAD),
            replace(TUNABLES),
            replace(FRAMEWORK),
        ];
        let text = |index: usize, file| Text {
            file,
            text: &texts[index],
        };
        Published::read(Files {
            producer: text(0, "producer.json"),
            consumer: text(1, "consumer.json"),
            coordinator: text(2, "coordinator.json"),
            workload: text(3, "workload.json"),
            tunables: text(4, "tunables.json"),
            framework: text(5, "framework.json"),
        })
    }
}

#[test]
fn the_files_are_the_scenario_that_they_describe() {
    let published = USUAL.read().unwrap();
    let scenario = &published.scenario;
    let shape = Shape {
        name: "deleria".to_owned(),
        ..Shape::dstream()
    };
    assert_eq!(scenario.shape, shape);
    assert_eq!(scenario.pattern, Pattern::WorkSharing);
    assert_eq!(scenario.messages_of(4), Some(16_384));
    assert_eq!(
        (scenario.rate, scenario.pacing),
        (Rate::Published, Loop::Open)
    );
    let settings = Settings {
        durable_queues: true,
        ..Settings::published(&shape)
    };
    assert_eq!(scenario.settings, settings);
    assert_eq!(scenario.architecture.name(), "proxied");
    assert!(scenario.tls);
    assert_eq!(
        published.concerns,
        ["the published program does not verify the server's certificate"]
    );
}

#[test]
fn each_field_without_effect_is_named_with_the_reason() {
    let ignored = USUAL.read().unwrap().ignored;
    let keys: std::collections::BTreeSet<&str> =
        ignored.iter().map(|one| one.key.as_str()).collect();
    let expected = [
        "BindingDurability",
        "ConsPayloadDistribution",
        "ConsumerParallelism",
        "ConsumptionMode",
        "ProducerParallelism",
        "StreamUseCase",
        "Variability",
        "authentication",
        "concurrency",
        "duration",
        "hostname",
        "numPhases",
        "port",
    ];
    assert_eq!(keys.into_iter().collect::<Vec<_>>(), expected);
    assert!(
        ignored
            .iter()
            .all(|one| !one.to_string().contains("secret"))
    );
    let duration = ignored.iter().find(|one| one.key == "duration").unwrap();
    assert_eq!(
        duration.to_string(),
        "producer.json: duration = 5 is ignored: testMode is msgCount"
    );
    let unknown = Case {
        replaced: ("\"toolkit\"", "\"virtualHost\": \"/\", \"toolkit\""),
        ..USUAL
    };
    let ignored = unknown.read().unwrap().ignored;
    assert!(ignored.iter().any(|one| one.key == "virtualHost"));
}

#[test]
fn hdf5_payloads_have_their_line() {
    for (element, bytes) in [
        ("file", 2021),
        ("image", 2021),
        ("variable", 2017),
        ("other", 2000),
    ] {
        let text = format!("\"hdf5\", \"PayloadElement\": \"{element}\"");
        let case = Case {
            replaced: ("\"binary\", \"PayloadElement\": \"variable\"", text.leak()),
            ..USUAL
        };
        assert_eq!(case.read().unwrap().scenario.shape.message_bytes, bytes * 8);
    }
}

#[test]
fn a_feedback_run_that_would_hang_is_refused() {
    let case = Case {
        test: "latency",
        pattern: "work-sharing-fb",
        count: 256,
        ..USUAL
    };
    let error = case.read().unwrap_err().to_string();
    assert_eq!(
        error,
        "producer.json: msgCount: found 128 messages for 4 producers, 32 for each, expected at least 64 for each: a producer \
         sends whole batches of confirms"
    );
}

#[test]
fn remainders_and_counts_that_do_not_meet_are_said() {
    let case = Case {
        count: 8 * 100,
        ..USUAL
    };
    let concerns = case.read().unwrap().concerns;
    assert!(
        concerns[0].starts_with("800 events of a producer are 64 messages in whole batches of 64")
    );
    let case = Case {
        pattern: "broadcast",
        ..USUAL
    };
    let concerns = case.read().unwrap().concerns;
    assert!(
        concerns[0].starts_with("producers send for 65536 deliveries and consumers wait for 16384")
    );
}

#[test]
fn what_the_published_program_refuses_is_refused() {
    for (from, to, said) in [
        (
            "\"batchSize\": 64",
            "\"batchSize\": 0",
            "tunables.json: Acknowledgements.PublisherConfirms.batchSize: found 0",
        ),
        (
            "batch_sync",
            "individual_sync",
            "PublisherConfirms.batchSize: found 64, expected nothing",
        ),
        (
            "\"batched\"",
            "\"individual\"",
            "DataPackaging.batchMessageCount: found 8, expected nothing",
        ),
        (
            "\"throughput\"",
            "\"latency\"",
            "testType: found one that its testPattern has not",
        ),
        (
            "\"throughput\"",
            "\"non-test\"",
            "producer.json: testType: found \"non-test\"",
        ),
        (
            "\"role\": \"consumer\"",
            "\"role\": \"producer\"",
            "consumer.json: role: found \"producer\", expected one of \"consumer\"",
        ),
        (
            "\"NumConsumers\": 4",
            "\"NumConsumers\": 0",
            "workload.json: NumConsumers: found 0",
        ),
        (
            "\"NumConsumers\": 4",
            "\"NumConsumers\": 1",
            "tunables.json: TotalQueues: found 2 for 4 producers and 1 consumers",
        ),
        (
            "\"classic\"",
            "\"queue\"",
            "tunables.json: QueueProperties.QueueStructure: found \"queue\"",
        ),
        (
            "\"amqpsUrl\"",
            "\"amqpUrl\"",
            "framework.json: amqpsUrl: found nothing, expected a URL",
        ),
        (
            "\"PayloadSize\": 2000",
            "\"PayloadSize\": 3",
            "workload.json: PayloadSize: found 3, and messages of 24 bytes",
        ),
    ] {
        let case = Case {
            replaced: (from, to),
            ..USUAL
        };
        let error = case.read().unwrap_err().to_string();
        assert!(error.contains(said), "{error}\n  is not\n{said}");
    }
}

#[test]
fn keys_are_read_as_the_published_program_reads_them() {
    let case = Case {
        replaced: ("\"role\"", "\"Role\""),
        ..USUAL
    };
    assert!(case.read().is_ok());
}

#[test]
fn other_confirms_and_acknowledgements() {
    let individual = Case {
        replaced: ("\"batch_sync\", \"batchSize\": 64", "\"individual_async\""),
        ..USUAL
    };
    assert_eq!(
        individual.read().unwrap().scenario.settings.confirms,
        Confirms::Async
    );
    let single = Case {
        replaced: ("\"multiple\"", "\"single\""),
        ..USUAL
    };
    let published = single.read().unwrap();
    assert_eq!(published.scenario.settings.acks, Acks::Each);
    let ignored = published.ignored.iter().map(|one| one.key.as_str());
    assert!(
        ignored
            .into_iter()
            .any(|key| key.ends_with("ConsumerAcks.manualAckMultipleCount"))
    );
    let automatic = Case {
        replaced: ("\"manual\"", "\"automatic\""),
        ..USUAL
    };
    assert_eq!(
        automatic.read().unwrap().scenario.settings.acks,
        Acks::Automatic
    );
}

#[test]
fn durations_are_the_seconds_that_the_program_waits() {
    let case = Case {
        replaced: ("\"testMode\": \"msgCount\"", "\"testMode\": \"duration\""),
        ..USUAL
    };
    let published = case.read().unwrap();
    assert_eq!(published.scenario.amount, Amount::Seconds(5));
    assert!(published.ignored.iter().any(|one| one.key == "msgCount"));
}

#[test]
fn each_file_is_known_by_what_is_in_it() {
    let role = |text| {
        Role::of(Text {
            file: "a.json",
            text,
        })
    };
    let experiment = EXPERIMENT
        .replace("ROLE", "coordinator")
        .replace("COUNT", "1");
    let found = [&experiment, WORKLOAD, TUNABLES, FRAMEWORK].map(|text| role(text).unwrap());
    let expected = [
        Role::Coordinator,
        Role::Workload,
        Role::Tunables,
        Role::Framework,
    ];
    assert_eq!(found, expected);
    for (text, says) in [
        ("{}", "a.json: role: found nothing"),
        ("{\"role\": 3}", "a.json: role: found 3"),
        ("[", "a.json: "),
    ] {
        let error = role(text).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }
}

#[test]
fn a_published_scenario_is_written_and_read_again() {
    let scenario = USUAL.read().unwrap().scenario;
    let text = scenario.to_toml();
    let read = Scenario::from_toml(Text {
        file: "a.toml",
        text: &text,
    });
    assert_eq!(read, Ok(scenario), "{text}");
}
