//! Scenarios of ours: each key, and what is refused.

use super::{refusal, scenario};
use crate::*;

const SHORT: &str =
    "workload = 'dstream'\npattern = 'work sharing'\nconsumers = 2\nmessages = 256\n";

/// With other lines in place of those of the same keys.
fn with(lines: &str) -> String {
    let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    let (before, tables) = lines.split_once("\n[").unwrap_or((lines, ""));
    let keys: Vec<String> = before.lines().map(key).collect();
    let kept = SHORT.lines().filter(|line| !keys.contains(&key(line)));
    let mut text: String = kept.map(|line| format!("{line}\n")).collect();
    text.push_str(before);
    text.push('\n');
    if !tables.is_empty() {
        text.push_str(&format!("[{tables}\n"));
    }
    text
}

#[test]
fn what_is_left_out_is_as_published() {
    let scenario = scenario(SHORT);
    assert_eq!(scenario.shape, Shape::dstream());
    assert_eq!(scenario.name, "dstream");
    assert_eq!(scenario.settings, Settings::published(&Shape::dstream()));
    assert_eq!(scenario.settings.confirms, Confirms::Batch(64));
    assert_eq!(
        (scenario.rate, scenario.pacing),
        (Rate::Published, Loop::Open)
    );
    assert_eq!(scenario.architecture, Architecture::Direct);
    assert_eq!((scenario.repeat, scenario.pack), (3, 1));
    assert_eq!(scenario.idle_seconds, 30);
    assert_eq!(scenario.producers_of(2), 2);
}

#[test]
fn every_key_is_read() {
    let scenario = scenario(
        r#"
name = "bright field"
backend = "amqp"
url = "amqp://user:secret@host/vhost"
tls = "yes"
architecture = { proxied = "stunnel", cores_thousandths = 300, log = "unread" }
pattern = "work sharing with feedback"
workload = { name = "frames", message_bytes = 1000, events_per_message = 4, rate_bytes_per_second = 8000 }
consumers = [1, 2, 4, 64]
producers = 4
messages = [{ consumers = 2, messages = 800 }, { messages = 400 }]
rate = "enforced"
loop = "open"
faults = ["kill consumer@30%", "cut@50% for 5s"]
repeat = 2
seed = 99
pack = 8
idle_seconds = 5
[settings]
confirms = "async"
acks = { every = 7 }
prefetch = 9
queues = 1
durable_messages = "yes"
durable_queues = "yes"
queue = "quorum"
queue_messages_max = 1000
overflow = "drop-head"
"#,
    );
    let written = scenario.to_toml();
    let read = Scenario::from_toml(Text {
        file: "a.toml",
        text: &written,
    });
    assert_eq!(read.as_ref(), Ok(&scenario), "{written}");
    assert_eq!(scenario.name, "bright field");
    assert_eq!(scenario.backend, Backend::Amqp);
    assert!(scenario.tls);
    assert_eq!(
        scenario.architecture,
        Architecture::Proxied {
            by: Proxy::Stunnel,
            cores_thousandths: Some(300),
            log: ProxyLog::Unread
        }
    );
    assert_eq!(scenario.pattern, Pattern::WorkSharingFeedback);
    assert_eq!(scenario.shape.name, "frames");
    assert_eq!(scenario.shape.rate_bytes_per_second, Some(8000));
    assert_eq!(scenario.messages_of(2), Some(800));
    assert_eq!(scenario.messages_of(4), Some(400));
    assert_eq!(scenario.disruptions.len(), 2);
    assert_eq!(
        scenario.settings,
        Settings {
            confirms: Confirms::Async,
            acks: Acks::Every(7),
            prefetch: 9,
            queues: 1,
            durable_messages: true,
            durable_queues: true,
            queue: QueueKind::Quorum,
            queue_messages_max: 1000,
            overflow: Overflow::DropHead,
        }
    );
    assert_eq!((scenario.repeat, scenario.seed), (2, 99));
    assert_eq!((scenario.pack, scenario.idle_seconds), (8, 5));
    let runs = scenario.runs();
    assert_eq!(runs.len(), 8);
    let second = Run {
        producers: 4,
        consumers: 1,
        repetition: 1,
    };
    assert_eq!(runs[1], second);
    assert!(!format!("{scenario:?}").contains("secret"));
}

#[test]
fn loops_and_architectures_have_their_words() {
    let of = |lines: &str| scenario(&with(lines));
    assert_eq!(of("loop = 'closed'").pacing, Loop::Closed);
    assert_eq!(of("loop = 'closed'").rate, Rate::Unlimited);
    assert_eq!(of("loop = { share = 0.5 }").pacing, Loop::Share(0.5));
    assert_eq!(of("rate = 'unlimited'").rate, Rate::Unlimited);
    let managed = Architecture::Managed {
        by: Entrance::Haproxy,
    };
    assert_eq!(
        of("architecture = { managed = 'haproxy' }").architecture,
        managed
    );
    for name in ["direct", "proxied", "managed"] {
        assert_eq!(
            of(&format!("architecture = '{name}'")).architecture.name(),
            name
        );
    }
    for (name, label) in [
        ("direct", "direct"),
        ("proxied", "proxied:relay"),
        ("proxied:nginx", "proxied:nginx"),
        ("managed", "managed:gateway"),
        ("managed:haproxy", "managed:haproxy"),
    ] {
        let architecture = of(&format!("architecture = '{name}'")).architecture;
        assert_eq!(architecture.label(), label);
        assert_eq!(Architecture::named(label), Some(architecture));
    }
    for none in [
        "direct:relay",
        "proxied:gateway",
        "managed:relay",
        "proxied:",
        "",
    ] {
        assert_eq!(Architecture::named(none), None, "{none}");
    }
    assert_eq!(
        of("pattern = 'broadcast-gather'").pattern,
        Pattern::BroadcastGather
    );
    assert_eq!(of("pattern = 'broadcast'").producers, Producers::Count(1));
    for (name, bytes) in [("lstream", 1_000_021), ("generic", 4_000_000)] {
        let scenario = of(&format!("workload = '{name}'"));
        assert_eq!(scenario.shape.message_bytes, bytes);
    }
}

#[test]
fn what_cannot_be_is_refused_by_file_and_key() {
    for (lines, said) in [
        (
            "pattern = 'star'",
            "a.toml: pattern: found \"star\", expected one of \"work sharing\"",
        ),
        (
            "workload = 'dstreams'",
            "a.toml: workload: found \"dstreams\"",
        ),
        (
            "workload = { message_bytes = 31 }",
            "workload.message_bytes: found 31, expected a whole number from 32",
        ),
        (
            "workload = { message_bytes = 99, bites = 1 }",
            "workload.bites: found 1",
        ),
        ("consumers = 0", "consumers: found 0"),
        ("consumers = []", "consumers: found []"),
        ("consumers = [2, 1]", "consumers: found [2,1]"),
        ("consumers = [1, 2000]", "consumers: found [1,2000]"),
        (
            "producers = 'few'",
            "producers: found \"few\", expected \"as consumers\"",
        ),
        ("messages = -1", "messages: found -1"),
        ("messages = []", "messages: found []"),
        (
            "messages = 100",
            "messages: found 100 messages for 2 producers, 50 for each, expected at least 64 for each",
        ),
        (
            "messages = [{ consumers = 1, messages = 9 }]",
            "messages.consumers: found it in the last entry",
        ),
        (
            "messages = [{ messages = 900 }, { messages = 900 }]",
            "messages.consumers",
        ),
        (
            "messages = [{ consumers = 4, messages = 900 }, { consumers = 4, messages = 900 }, { messages = 900 }]",
            "messages: found consumers that do not grow",
        ),
        (
            "seconds = 5",
            "messages: found 256, expected messages or seconds, not both",
        ),
        ("rate = 'fast'", "rate: found \"fast\""),
        (
            "rate = 'enforced'\nworkload = { message_bytes = 99 }",
            "workload.rate_bytes_per_second: found nothing",
        ),
        ("loop = 'round'", "loop: found \"round\""),
        ("loop = { share = 0.0 }", "loop.share: found 0.0"),
        ("loop = { share = 1.5 }", "loop.share: found 1.5"),
        ("loop = { share = 'half' }", "loop.share: found \"half\""),
        ("loop = { shore = 1 }", "loop.share: found nothing"),
        (
            "loop = 'closed'\nrate = 'enforced'",
            "rate: found \"enforced\"",
        ),
        (
            "loop = 'closed'\n[settings]\nconfirms = 'none'",
            "loop: found \"closed\" in a pattern without replies",
        ),
        (
            "faults = 'kill'",
            "faults: found \"kill\", expected a list of texts",
        ),
        (
            "faults = ['kill']",
            "faults: found \"kill\", expected ACT WHOM@WHEN",
        ),
        (
            "faults = ['kill consumer 2@1%']",
            "faults: found \"kill consumer 2@1%\" with 2 producers and 2 consumers",
        ),
        (
            "faults = ['kill proxy@1%']",
            "faults: found \"kill proxy@1%\"",
        ),
        ("architecture = 'direkt'", "architecture: found \"direkt\""),
        (
            "architecture = { proxied = 'ssh' }",
            "architecture.proxied: found \"ssh\"",
        ),
        ("architecture = { }", "architecture.proxied: found nothing"),
        (
            "architecture = { managed = 'gateway', log = 'read' }",
            "architecture.log: found \"read\"",
        ),
        (
            "producers = 2\nconsumers = 1",
            "settings.queues: found 2 for 2 producers and 1 consumers",
        ),
        ("repeat = 0", "repeat: found 0"),
        ("repaet = 1", "repaet: found 1, expected no such key here"),
        (
            "[settings]\nconfirms = { batch = 0 }",
            "settings.confirms: found {\"batch\":0}",
        ),
        (
            "[settings]\nacks = 'some'",
            "settings.acks: found \"some\", expected one of \"automatic\", \"each\"",
        ),
        (
            "[settings]\nqueue = 'long'",
            "settings.queue: found \"long\"",
        ),
        ("[settings]\nprefech = 1", "settings.prefech: found 1"),
        (
            "backend = 'amqp'\n[settings]\nprefetch = 65536",
            "settings.prefetch: found 65536, expected at most 65535 with AMQP",
        ),
        (
            "backend = 'amqp'\n[settings]\nqueue = 'stream'",
            "settings.queue: found \"stream\" with AMQP, expected \"classic\" or \"quorum\"",
        ),
        (
            "backend = 'amqp'\n[settings]\nqueue = 'quorum'",
            "settings.queue: found \"quorum\" with durable_queues = \"no\"",
        ),
        (
            "backend = 'amqp'\npattern = 'broadcast'\n[settings]\nqueue = 'quorum'\ndurable_queues = 'yes'",
            "settings.queue: found \"quorum\" in a broadcast",
        ),
    ] {
        let text = with(&format!("\n{lines}"));
        let refusal = refusal(&text);
        assert!(refusal.contains(said), "{refusal}\n  is not\n{said}");
        assert!(refusal.starts_with("a.toml: "), "{refusal}");
    }
    for key in ["workload", "pattern", "consumers", "messages"] {
        let kept: Vec<&str> = SHORT
            .lines()
            .filter(|line| !line.starts_with(key))
            .collect();
        let said = format!("a.toml: {key}: found nothing");
        assert!(refusal(&kept.join("\n")).starts_with(&said), "{key}");
    }
}

/// What AMQP cannot do is no matter of other backends.
#[test]
fn settings_are_checked_for_the_backend_that_has_them() {
    for lines in [
        "[settings]\nqueue = 'stream'\nprefetch = 16777216",
        "backend = 'amqp'\n[settings]\nqueue = 'quorum'\ndurable_queues = 'yes'\nprefetch = 65535",
        "backend = 'amqp'\npattern = 'broadcast and gather'\n[settings]\nprefetch = 0\noverflow = 'dead-letter'",
    ] {
        scenario(&with(&format!("\n{lines}")));
    }
}

/// Texts that are nearly scenarios: one of the experiments, with lines put in place of others, left out, or changed.
fn nearly(chance: &mut crate::chance::Chance) -> String {
    let more = [
        "loop = { share = 0.5 }",
        "loop = 'closed'",
        "rate = 'enforced'",
        "rate = 'unlimited'",
        "producers = 1024",
        "messages = 1099511627776",
        "consumers = 1024",
        "faults = ['kill consumer@30%', 'slow producer@1s for 1s']",
        "seconds = 86400",
        "pack = 7",
        "settings = { confirms = { batch = 16777216 } }",
        "settings = { confirms = 'none', queues = 1024 }",
    ];
    let key = |line: &str| line.split('=').next().unwrap_or_default().to_owned();
    let experiment = EXPERIMENTS[chance.below(EXPERIMENTS.len() as u64) as usize];
    let mut lines: Vec<String> = experiment.toml.lines().map(str::to_owned).collect();
    for _ in 0..chance.below(4) {
        let line = more[chance.below(more.len() as u64) as usize];
        lines.retain(|other| key(other) != key(line));
        lines.push(line.to_owned());
    }
    if chance.one_in(3) {
        lines.remove(chance.below(lines.len() as u64) as usize);
    }
    for line in &mut lines {
        if chance.one_in(10) {
            let digit = char::from(b'0' + chance.below(10) as u8);
            let other = ["", "0", "99", "-1", "'", "é"][chance.below(6) as usize];
            *line = line.replace(digit, other);
        }
    }
    lines.join("\n")
}

#[test]
fn any_text_is_a_scenario_with_plans_or_an_error() {
    let mut taken = 0;
    for seed in crate::chance::seeds(2000) {
        let text = nearly(&mut crate::chance::Chance(seed));
        let file = "a.toml";
        match Scenario::from_toml(Text { file, text: &text }) {
            Ok(scenario) => {
                taken += 1;
                let written = scenario.to_toml();
                let read = Scenario::from_toml(Text {
                    file,
                    text: &written,
                });
                assert_eq!(read.as_ref(), Ok(&scenario), "seed {seed}: {written}");
                let run = scenario.runs()[0];
                let plan = Plan::new(&scenario, run, seed, Some(1e3)).unwrap();
                assert_eq!(plan.members().count() as u64, run.producers + run.consumers);
            }
            Err(error) => assert!(error.to_string().starts_with("a.toml: "), "seed {seed}"),
        }
    }
    assert!(
        taken > 20,
        "{taken} scenarios are not enough to try plans with"
    );
}
