//! A result does not change unnoticed: who compares runs reads its JSON.
//!
//! `UPDATE_GOLDEN=1 cargo test -p thalweg-workload --test golden` writes it anew.

#![forbid(unsafe_code)]

use std::path::Path;
use workload::*;

const SCENARIO: &str = r#"
name = "golden"
pattern = "work sharing with feedback"
workload = "dstream"
consumers = 2
messages = 256
architecture = { proxied = "stunnel", cores_thousandths = 300 }
faults = ["kill producer 1@30%"]
"#;

const RUN: u64 = 5;

fn stamp(sequence: u64) -> Stamp {
    Stamp {
        run: RUN,
        producer: 0,
        attempt: 0,
        sequence,
        sent_ns: 1_000_000_000 + sequence * 1_000_000,
    }
}

/// Producer 0 sends 128 messages a millisecond apart. They come 2 ms later to two consumers in turn; one is lost,
/// and one comes to both. Producer 1 is killed.
fn reports() -> Vec<Report> {
    let mut producer = ProducerReport::new(0, None);
    let mut consumers = [0, 1].map(|consumer| ConsumerReport::new(consumer, Account::new(RUN, 2)));
    for sequence in 0..128 {
        let stamp = stamp(sequence);
        producer.send(stamp);
        producer.confirm(sequence);
        let came_ns = stamp.sent_ns + 2_000_000;
        if sequence == 100 {
            continue;
        }
        let consumer = (sequence % 2) as usize;
        consumers[consumer].take(came_ns, stamp, false);
        if sequence == 50 {
            consumers[1 - consumer].take(came_ns + 10, stamp, true);
        }
        producer.reply(came_ns + sequence * 1000, stamp, None);
    }
    let mut reports = vec![Report::Producer(Box::new(producer))];
    reports.extend(consumers.map(Report::Consumer));
    reports
}

#[test]
fn the_result_is_what_it_was() {
    let text = Text {
        file: "golden.toml",
        text: SCENARIO,
    };
    let scenario = Scenario::from_toml(text).unwrap();
    let missing = [Absent {
        member: Member::Producer(1),
        why: "kill producer 1@30%".to_owned(),
    }];
    let cpu = Cpu {
        server: Some(0.5),
        proxies: Some(0.25),
        clients: None,
    };
    let observed = Observed {
        number: RUN,
        transport: "tls".to_owned(),
        measured: None,
        cpu: Some(cpu),
        done: vec![Done {
            fault: "kill producer 1@30%".to_owned(),
            after_ms: 80,
            received: 77,
        }],
        refusals: vec![(Member::Producer(1), "the topic is full".to_owned())],
    };
    let result = RunResult::new(
        &scenario,
        scenario.runs()[0],
        &reports(),
        &missing,
        observed,
    );
    let json = format!("{}\n", result.to_json());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/result-1.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &json).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        json,
        golden,
        "if this is meant, UPDATE_GOLDEN=1 writes {}",
        path.display()
    );
    assert_eq!(serde_json::from_str::<RunResult>(&golden).unwrap(), result);
}
