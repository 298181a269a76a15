//! The published experiments over Redis streams, where `redis-server` is installed.

use crate::rig;

use rig::{Rig, WATCHDOG, signal};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A server of one's own, ended with what it has.
struct Redis {
    process: Child,
    port: u16,
    /// Last: the process writes into it.
    _directory: tempfile::TempDir,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Redis {
    /// None where it is not installed, which is said.
    fn start(more: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let started = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--dir"])
            .arg(directory.path())
            .args(more)
            .stdin(Stdio::null())
            .stdout(log)
            .spawn();
        let Ok(process) = started else {
            eprintln!("skipped: redis-server is not installed");
            return None;
        };
        let mut redis = Self {
            process,
            port,
            _directory: directory,
        };
        let deadline = Instant::now() + WATCHDOG;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = redis.process.try_wait().unwrap();
            assert!(ended.is_none(), "redis-server ended: {ended:?}");
            assert!(Instant::now() < deadline, "redis-server hangs");
            std::thread::yield_now();
        }
        Some(redis)
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// What it answers to a command.
    fn ask(&self, command: &str) -> String {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let commands = format!("{command}\r\nQUIT\r\n");
        socket.write_all(commands.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Keys that it has.
    fn keys(&self) -> u64 {
        number_after(&self.ask("DBSIZE"), ":")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The number that a text has behind another one.
fn number_after(text: &str, before: &str) -> u64 {
    let (_, rest) = text.split_once(before).expect("it is there");
    let digits = rest.chars().take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().unwrap()
}

/// A scenario of few small messages.
fn scenario(rig: &Rig, pattern: &str, more: &str, settings: &str) {
    let text = format!(
        "name = \"small\"\nbackend = \"redis\"\nworkload = {{ message_bytes = 1000 }}\npattern = \"{pattern}\"\n\
         consumers = [2]\nrepeat = 1\nrate = \"unlimited\"\nidle_seconds = 8\n{more}\n[settings]\nqueues = 1\n\
         {settings}\n"
    );
    std::fs::write(rig.path("small.toml"), text).unwrap();
}

const USUAL: &str = "confirms = { batch = 16 }\nacks = { every = 16 }\nprefetch = 16";
const RUN: [&str; 6] = [
    "workload",
    "run",
    "small.toml",
    "--json",
    "out.json",
    "--url",
];

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap()
}

fn result(rig: &Rig) -> Value {
    let text = std::fs::read_to_string(rig.path("out.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    results["runs"][0]["result"].clone()
}

/// Runs the scenario. All has to be well, and nothing is left.
#[track_caller]
fn run(rig: &Rig, redis: &Redis, more: &[&str]) -> Value {
    let ran = rig.run(&[&RUN[..], &[&redis.url()], more].concat());
    assert_eq!(ran.status.code(), Some(0), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(redis.keys(), 0);
    let result = result(rig);
    assert_eq!(result["transport"], "redis");
    assert_eq!(result["backend"], "redis");
    result
}

#[test]
fn each_pattern_brings_every_message_once() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    for (pattern, messages, copies, has_replies) in [
        ("work sharing", 500, 1, false),
        ("work sharing with feedback", 500, 1, true),
        ("broadcast", 2000, 2, false),
        ("broadcast and gather", 200, 2, true),
    ] {
        for (bytes, pack) in [(1000, "2"), (300_000, "1")] {
            let messages = match bytes {
                1000 => messages,
                _ => 32,
            };
            let rig = Rig::default();
            scenario(&rig, pattern, &format!("messages = {messages}"), USUAL);
            let text = std::fs::read_to_string(rig.path("small.toml")).unwrap();
            let text = text.replace("= 1000 }", &format!("= {bytes} }}"));
            std::fs::write(rig.path("small.toml"), text).unwrap();
            let result = run(&rig, &redis, &["--pack", pack]);
            let what = format!("{pattern}, {bytes} bytes");
            assert_eq!(number(&result, "/sent"), messages, "{what}");
            assert_eq!(number(&result, "/confirmed"), messages, "{what}");
            let came = number(&result, "/received/distinct");
            assert_eq!(came, messages * copies, "{what}");
            assert_eq!(number(&result, "/received/duplicates"), 0, "{what}");
            assert_eq!(number(&result, "/unanswered"), 0, "{what}");
            match has_replies {
                false => assert!(result["rtt"].is_null(), "{what}"),
                true => assert_eq!(number(&result, "/rtt/count"), messages * copies, "{what}"),
            }
        }
    }
}

/// Each way to confirm and to acknowledge, durable or not, with each loop.
#[test]
fn all_settings_have_their_effect() {
    let Some(redis) = Redis::start(&["--appendonly", "yes"]) else {
        return;
    };
    for (more, settings) in [
        (
            "",
            "confirms = \"none\"\nacks = \"automatic\"\nprefetch = 0",
        ),
        ("", "confirms = \"each\"\nacks = \"each\"\nprefetch = 1"),
        (
            "",
            "confirms = \"async\"\nacks = { every = 7 }\nprefetch = 20",
        ),
        (
            "",
            "confirms = { batch = 8 }\nacks = { every = 16 }\nprefetch = 3",
        ),
        (
            "",
            "acks = \"each\"\nprefetch = 8\ndurable_messages = \"yes\"",
        ),
        ("loop = \"closed\"", USUAL),
    ] {
        for pattern in ["work sharing", "broadcast"] {
            let rig = Rig::default();
            scenario(&rig, pattern, &format!("messages = 300\n{more}"), settings);
            if !more.is_empty() {
                let text = std::fs::read_to_string(rig.path("small.toml")).unwrap();
                let text = text.replace("rate = \"unlimited\"\n", "");
                std::fs::write(rig.path("small.toml"), text).unwrap();
            }
            let copies = match pattern {
                "broadcast" => 2,
                _ => 1,
            };
            let result = run(&rig, &redis, &[]);
            let came = number(&result, "/received/distinct");
            assert_eq!(came, 300 * copies, "{pattern}, {settings}");
            assert_eq!(number(&result, "/received/duplicates"), 0, "{settings}");
        }
    }
}

/// What a full stream drops, and what a full server does not take, is found.
#[test]
fn what_is_dropped_or_refused_is_accounted_for() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    let rig = Rig::default();
    let settings = "confirms = \"async\"\nacks = \"each\"\nprefetch = 1\nqueue_messages_max = 1\noverflow = \"drop-head\"";
    scenario(&rig, "work sharing", "messages = 20000", settings);
    let more = ["--consumers", "1"];
    let ran = rig.run(&[&RUN[..], &[&redis.url()], &more].concat());
    let ran = ran.exits(3);
    let found = "messages were taken and did not come";
    assert!(ran.stdout.contains(found), "{}", ran.stdout);
    let dropped = result(&rig);
    let came = number(&dropped, "/received/distinct");
    assert_eq!(came + number(&dropped, "/received/lost"), 20_000);
    assert_eq!(number(&dropped, "/confirmed"), 20_000);

    let full = Redis::start(&["--maxmemory", "3mb"]).expect("it has just been started");
    let settings = "confirms = \"async\"\nacks = \"each\"\nprefetch = 1";
    scenario(&rig, "work sharing", "messages = 20000", settings);
    let more = ["--consumers", "1"];
    let ran = rig.run(&[&RUN[..], &[&full.url()], &more].concat());
    let ran = ran.exits(3);
    assert!(ran.stdout.contains("OOM"), "{}", ran.stdout);
    let refused = result(&rig);
    let came = number(&refused, "/received/distinct");
    let not_taken = number(&refused, "/received/refused");
    assert!(not_taken > 0, "{refused:#}");
    assert_eq!(came + not_taken, 20_000);
    assert_eq!(number(&refused, "/received/lost"), 0);
    assert_eq!(full.keys(), 0);
}

/// What a killed consumer had comes to the other one, and is marked as delivered before.
#[test]
fn faults_meet_members() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    let rig = Rig::default();
    scenario(&rig, "work sharing", "messages = 20000", USUAL);
    let result = run(&rig, &redis, &["--kill", "consumer@30%"]);
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
    for who in ["consumer@20%:300ms", "producer@20%:300ms"] {
        let result = run(&rig, &redis, &["--stop", who]);
        assert_eq!(result["missing"], serde_json::json!([]));
        assert_eq!(number(&result, "/received/distinct"), 20_000);
    }
}

/// Entries that all have are removed while a run goes on.
#[test]
fn a_broadcast_does_not_keep_what_all_have() {
    let Some(redis) = Redis::start(&["--maxmemory", "12mb"]) else {
        return;
    };
    let rig = Rig::default();
    // 30 MB in all, and each message waits for the replies to the one before.
    scenario(&rig, "broadcast and gather", "messages = 3000", USUAL);
    let text = std::fs::read_to_string(rig.path("small.toml")).unwrap();
    let text = text.replace("= 1000 }", "= 10000 }");
    let text = text.replace("rate = \"unlimited\"", "loop = \"closed\"");
    std::fs::write(rig.path("small.toml"), text).unwrap();
    let result = run(&rig, &redis, &[]);
    assert_eq!(number(&result, "/received/distinct"), 6000);
    assert_eq!(number(&result, "/received/refused"), 0);
    assert_eq!(number(&result, "/unanswered"), 0);
}

#[test]
fn a_run_that_is_interrupted_leaves_nothing_behind() {
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    let rig = Rig::default();
    scenario(
        &rig,
        "work sharing with feedback",
        "messages = 10000000",
        USUAL,
    );
    let mut command = rig.thalweg(&[&RUN[..], &[&redis.url()]].concat());
    let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + WATCHDOG;
    // Two consumers and two producers have theirs, and producers another one.
    while number_after(&redis.ask("INFO clients"), "connected_clients:") < 6 {
        assert!(Instant::now() < deadline, "nobody comes");
        std::thread::yield_now();
    }
    signal(running.id(), rustix::process::Signal::INT);
    let mut said = String::new();
    running
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(rig::wait(&mut running).code(), Some(1), "{said}");
    assert!(said.contains("ended by a signal"), "{said}");
    assert_eq!(redis.keys(), 0);
}

#[test]
fn a_password_is_shown_to_nobody() {
    let Some(redis) = Redis::start(&["--requirepass", "secret"]) else {
        return;
    };
    let rig = Rig::default();
    scenario(&rig, "work sharing with feedback", "messages = 64", USUAL);
    let refused = |url: &str, code: i32, says: &str| {
        let ran = rig.run(&[&RUN[..], &[url]].concat()).exits(code);
        assert!(ran.stderr.contains(says), "{url}: {}", ran.stderr);
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    };
    let address = format!("127.0.0.1:{}", redis.port);
    refused(&redis.url(), 1, "NOAUTH");
    refused(
        &format!("redis://:secret@{address}"),
        2,
        "THALWEG_REDIS_URL",
    );
    std::fs::write(rig.path("wrong"), format!("redis://:secrets@{address}\n")).unwrap();
    refused("wrong", 1, "WRONGPASS");
    std::fs::write(
        rig.path("right"),
        format!("# here\nredis://:secret@{address}\n"),
    )
    .unwrap();
    let ran = rig.run(&[&RUN[..], &["right"]].concat());
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{said}");
    let results = std::fs::read_to_string(rig.path("out.json")).unwrap();
    assert!(
        !said.contains("secret") && !results.contains("secret"),
        "{said}"
    );
    let mut command = rig.thalweg(&["workload", "run", "small.toml"]);
    command.env(
        "THALWEG_REDIS_URL",
        format!("redis://default:secret@{address}/3"),
    );
    assert!(command.output().unwrap().status.success());
}

#[test]
fn a_server_that_cannot_be_used_is_named() {
    let rig = Rig::default();
    scenario(&rig, "work sharing", "messages = 64", USUAL);
    let refused = |more: &[&str], code: i32, says: &str| {
        let ran = rig.run(&[&RUN[..3], more].concat()).exits(code);
        assert!(ran.stderr.contains(says), "{more:?}: {}", ran.stderr);
    };
    // Nobody listens where somebody just did.
    let url = format!("redis://127.0.0.1:{}", free_port());
    refused(&["--url", &url], 5, &format!("{url}: no server"));
    for (said, says) in [
        (
            "HTTP/1.1 400 Bad Request\r\n\r\n",
            "not the protocol of Redis",
        ),
        ("", "without a word"),
    ] {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", other.local_addr().unwrap());
        let answering = std::thread::spawn(move || {
            let (mut socket, _) = other.accept().unwrap();
            let mut header = [0; 14];
            socket.read_exact(&mut header).unwrap();
            socket.write_all(said.as_bytes()).unwrap();
        });
        refused(&["--url", &url], 1, says);
        answering.join().unwrap();
    }
    // One that is there and does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    refused(&["--url", &url], 4, "does not answer for 10 s: PING");
    refused(&["--url", "rediss://host"], 2, "does not speak TLS");
    refused(&["--serve"], 2, "THALWEG_REDIS_URL");
    refused(&[], 2, "there is no server");
    refused(
        &["--backend", "thalweg", "--url", "redis://host"],
        2,
        "--backend redis",
    );
    let text = std::fs::read_to_string(rig.path("small.toml")).unwrap();
    std::fs::write(rig.path("small.toml"), format!("tls = \"yes\"\n{text}")).unwrap();
    refused(&["--url", &url], 2, "does not speak TLS");
    let Some(redis) = Redis::start(&[]) else {
        return;
    };
    scenario(
        &rig,
        "work sharing",
        "messages = 64",
        "durable_messages = \"yes\"",
    );
    refused(&["--url", &redis.url()], 2, "appendonly");
}
