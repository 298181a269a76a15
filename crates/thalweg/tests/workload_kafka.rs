//! The published experiments over Kafka: with the feature `kafka`, on the broker that `THALWEG_TEST_KAFKA` names, as
//! `kafka://127.0.0.1:9092`.

use crate::rig;

use rig::Rig;

/// A scenario of few small messages.
fn scenario(rig: &Rig, pattern: &str, more: &str, settings: &str) {
    let text = format!(
        "name = \"small\"\nbackend = \"kafka\"\nworkload = {{ message_bytes = 1000 }}\npattern = \"{pattern}\"\n\
         consumers = [2]\nrepeat = 1\nrate = \"unlimited\"\nidle_seconds = 5\n{more}\n[settings]\nqueues = 1\n\
         {settings}\n"
    );
    std::fs::write(rig.path("small.toml"), text).unwrap();
}

const USUAL: &str = "confirms = { batch = 16 }\nacks = { every = 16 }\nprefetch = 16";
const RUN: [&str; 5] = ["workload", "run", "small.toml", "--json", "out.json"];

#[cfg(not(feature = "kafka"))]
#[test]
fn a_program_without_kafka_says_how_to_get_it() {
    let rig = Rig::default();
    scenario(&rig, "work sharing", "messages = 64", USUAL);
    let ran = rig.run(&[&RUN[..], &["--url", "kafka://127.0.0.1:1"]].concat());
    let ran = ran.exits(2);
    assert!(ran.stderr.contains("--features kafka"), "{}", ran.stderr);
}

#[test]
fn a_url_of_kafka_needs_its_backend() {
    let rig = Rig::default();
    scenario(&rig, "work sharing", "messages = 64", USUAL);
    let more = ["--backend", "thalweg", "--url", "kafka://127.0.0.1:1"];
    let ran = rig.run(&[&RUN[..], &more].concat()).exits(2);
    assert!(ran.stderr.contains("--backend kafka"), "{}", ran.stderr);
}

#[cfg(feature = "kafka")]
mod with_kafka {
    use super::*;
    use serde_json::Value;
    use std::net::TcpListener;

    fn number(value: &Value, path: &str) -> u64 {
        value.pointer(path).and_then(Value::as_u64).unwrap()
    }

    /// The broker, or why there is none.
    fn url() -> Option<String> {
        let url = std::env::var("THALWEG_TEST_KAFKA").ok();
        if url.is_none() {
            eprintln!("skipped: THALWEG_TEST_KAFKA names no broker");
        }
        url
    }

    /// Runs the scenario. All has to be well.
    #[track_caller]
    fn run(rig: &Rig, url: &str, more: &[&str]) -> Value {
        let ran = rig.run(&[&RUN[..], &["--url", url], more].concat());
        assert_eq!(ran.status.code(), Some(0), "{}{}", ran.stdout, ran.stderr);
        let text = std::fs::read_to_string(rig.path("out.json")).unwrap();
        let results: Value = serde_json::from_str(&text).unwrap();
        let result = results["runs"][0]["result"].clone();
        assert_eq!(result["transport"], "kafka");
        result
    }

    #[test]
    fn each_pattern_brings_every_message_once() {
        let Some(url) = url() else { return };
        for (pattern, messages, copies, has_replies) in [
            ("work sharing", 500, 1, false),
            ("work sharing with feedback", 500, 1, true),
            ("broadcast", 200, 2, false),
            ("broadcast and gather", 200, 2, true),
        ] {
            for (bytes, pack) in [(1000, "2"), (3_000_000, "1")] {
                let messages = match bytes {
                    1000 => messages,
                    _ => 32,
                };
                let rig = Rig::default();
                scenario(&rig, pattern, &format!("messages = {messages}"), USUAL);
                let text = std::fs::read_to_string(rig.path("small.toml")).unwrap();
                let text = text.replace("= 1000 }", &format!("= {bytes} }}"));
                std::fs::write(rig.path("small.toml"), text).unwrap();
                let result = run(&rig, &url, &["--pack", pack]);
                let what = format!("{pattern}, {bytes} bytes");
                assert_eq!(number(&result, "/confirmed"), messages, "{what}");
                let came = number(&result, "/received/distinct");
                assert_eq!(came, messages * copies, "{what}");
                assert_eq!(number(&result, "/received/duplicates"), 0, "{what}");
                assert_eq!(number(&result, "/received/flagged"), 0, "{what}");
                assert_eq!(number(&result, "/unanswered"), 0, "{what}");
                match has_replies {
                    false => assert!(result["rtt"].is_null(), "{what}"),
                    true => assert_eq!(number(&result, "/rtt/count"), messages * copies, "{what}"),
                }
            }
        }
    }

    #[test]
    fn all_settings_have_their_effect() {
        let Some(url) = url() else { return };
        for settings in [
            "confirms = \"none\"\nacks = \"automatic\"\nprefetch = 0",
            "confirms = \"each\"\nacks = \"each\"\nprefetch = 1",
            "confirms = \"async\"\nacks = { every = 7 }\nprefetch = 20",
            "confirms = { batch = 8 }\nacks = { every = 16 }\nprefetch = 3",
        ] {
            let rig = Rig::default();
            scenario(&rig, "work sharing", "messages = 300", settings);
            let result = run(&rig, &url, &[]);
            assert_eq!(number(&result, "/received/distinct"), 300, "{settings}");
            assert_eq!(number(&result, "/received/duplicates"), 0, "{settings}");
        }
    }

    /// Partitions of a killed consumer go to the other one, with all that was not committed.
    #[test]
    fn faults_meet_members() {
        let Some(url) = url() else { return };
        let rig = Rig::default();
        scenario(&rig, "work sharing", "messages = 20000", USUAL);
        let result = run(&rig, &url, &["--kill", "consumer@30%"]);
        assert_eq!(
            result["missing"],
            serde_json::json!(["consumer 0: kill consumer 0@30%"])
        );
        assert_eq!(number(&result, "/confirmed"), 20_000);
        assert_eq!(number(&result, "/received/distinct"), 20_000);
        assert_eq!(number(&result, "/received/lost"), 0);
        let flagged = number(&result, "/received/flagged");
        let again = number(&result, "/received/redelivered");
        assert!(flagged >= again, "{result:#}");
        let result = run(&rig, &url, &["--stop", "consumer@20%:300ms"]);
        assert_eq!(result["missing"], serde_json::json!([]));
        assert_eq!(number(&result, "/received/distinct"), 20_000);
    }

    #[test]
    fn a_broker_that_cannot_be_reached_is_named() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = gone.local_addr().unwrap();
        drop(gone);
        let rig = Rig::default();
        scenario(&rig, "work sharing", "messages = 64", USUAL);
        let url = format!("kafka://{address}");
        let ran = rig.run(&[&RUN[..], &["--url", &url]].concat()).exits(5);
        assert!(
            ran.stderr.contains(&format!("{url}: no server")),
            "{}",
            ran.stderr
        );
    }
}
