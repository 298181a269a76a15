//! The published experiments over AMQP 0-9-1: Thalweg's own listener, and RabbitMQ where it is installed.

use crate::rig;

use rig::Rig;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A scenario of few small messages.
fn scenario(rig: &Rig, pattern: &str, more: &str, settings: &str) {
    let text = format!(
        "name = \"small\"\nbackend = \"amqp\"\nworkload = {{ message_bytes = 1000 }}\npattern = \"{pattern}\"\n\
         consumers = [2]\nrepeat = 1\nrate = \"unlimited\"\nidle_seconds = 3\n{more}\n[settings]\nqueues = 1\n\
         {settings}\n"
    );
    std::fs::write(rig.path("small.toml"), text).unwrap();
}

const USUAL: &str = "confirms = { batch = 16 }\nacks = { every = 16 }\nprefetch = 16";

fn results(rig: &Rig) -> Value {
    let text = std::fs::read_to_string(rig.path("out.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap()
}

const SERVE: &[&str] = &["--serve"];

/// Runs the scenario; `server` says where. All has to be well.
#[track_caller]
fn run(rig: &Rig, server: &[&str], more: &[&str]) -> Value {
    let run = ["workload", "run", "small.toml", "--json", "out.json"];
    let ran = rig.run(&[&run[..], server, more].concat());
    assert_eq!(ran.status.code(), Some(0), "{}{}", ran.stdout, ran.stderr);
    let run = results(rig)["runs"][0].clone();
    assert_eq!(run["result"]["transport"], "amqp");
    assert_eq!(run["result"]["backend"], "amqp");
    run
}

/// Each pattern, with messages that are longer than a frame too.
fn all_patterns(server: &[&str]) {
    for (pattern, messages, copies, has_replies) in [
        ("work sharing", 500, 1, false),
        ("work sharing with feedback", 500, 1, true),
        ("broadcast", 200, 2, false),
        ("broadcast and gather", 200, 2, true),
    ] {
        for bytes in [1000, 300_000] {
            let messages = match bytes {
                1000 => messages,
                _ => 32,
            };
            let rig = Rig::default();
            scenario(&rig, pattern, &format!("messages = {messages}"), USUAL);
            let text = std::fs::read_to_string(rig.path("small.toml")).unwrap();
            let text = text.replace("= 1000 }", &format!("= {bytes} }}"));
            std::fs::write(rig.path("small.toml"), text).unwrap();
            let result = run(&rig, server, &[])["result"].clone();
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

/// Each way to confirm and to acknowledge, durable or not.
fn all_settings(server: &[&str]) {
    for settings in [
        "confirms = \"none\"\nacks = \"automatic\"\nprefetch = 0",
        "confirms = \"each\"\nacks = \"each\"\nprefetch = 1",
        "confirms = \"async\"\nacks = { every = 7 }\nprefetch = 20\noverflow = \"drop-head\"",
        "confirms = { batch = 8 }\nacks = { every = 16 }\nprefetch = 3\noverflow = \"dead-letter\"",
        "confirms = \"each\"\nacks = \"each\"\nprefetch = 8\ndurable_queues = \"yes\"\ndurable_messages = \"yes\"",
        "confirms = \"async\"\nacks = \"each\"\nprefetch = 8\ndurable_queues = \"yes\"\nqueue = \"quorum\"",
    ] {
        let rig = Rig::default();
        scenario(&rig, "work sharing", "messages = 300", settings);
        let result = run(&rig, server, &[])["result"].clone();
        assert_eq!(number(&result, "/received/distinct"), 300, "{settings}");
        assert_eq!(number(&result, "/received/duplicates"), 0, "{settings}");
    }
}

/// A queue that is full refuses or drops, and that is found: a producer with a window outruns a consumer that gets one
/// message at a time.
fn a_full_queue(server: &[&str]) {
    for (overflow, found) in [
        ("reject-publish", "messages were not taken and did not come"),
        ("drop-head", "messages were taken and did not come"),
        ("dead-letter", "messages were taken and did not come"),
    ] {
        let rig = Rig::default();
        let settings = format!(
            "confirms = \"async\"\nacks = \"each\"\nprefetch = 1\nqueue_messages_max = 1\noverflow = \"{overflow}\""
        );
        scenario(&rig, "work sharing", "messages = 20000", &settings);
        let args = ["workload", "run", "small.toml", "--json", "out.json"];
        let ran = rig.run(&[&args[..], server, &["--consumers", "1"]].concat());
        let ran = ran.exits(3);
        assert!(ran.stdout.contains(found), "{overflow}: {}", ran.stdout);
        let result = &results(&rig)["runs"][0]["result"];
        let came = number(result, "/received/distinct");
        let refused = number(result, "/received/refused");
        let lost = number(result, "/received/lost");
        assert_eq!(came + refused + lost, 20_000, "{overflow}");
        match overflow {
            "reject-publish" => assert_eq!(lost, 0),
            _ => assert_eq!(refused, 0, "{overflow}"),
        }
    }
}

/// What a killed consumer had comes to the other one, and AMQP says that it was delivered before.
fn a_killed_consumer(server: &[&str]) {
    let rig = Rig::default();
    scenario(&rig, "work sharing", "messages = 20000", USUAL);
    let run = run(&rig, server, &["--kill", "consumer@30%"]);
    let result = &run["result"];
    assert_eq!(
        result["missing"],
        serde_json::json!(["consumer 0: kill consumer 0@30%"])
    );
    assert_eq!(number(result, "/confirmed"), 20_000);
    assert_eq!(number(result, "/received/distinct"), 20_000);
    assert_eq!(number(result, "/received/lost"), 0);
    // What came twice is marked. What nobody had seen before its second delivery is too.
    let (flagged, again) = (
        number(result, "/received/flagged"),
        number(result, "/received/redelivered"),
    );
    assert!(flagged >= again, "{result:#}");
}

fn a_stopped_member(server: &[&str]) {
    for who in ["consumer@20%:300ms", "producer@20%:300ms"] {
        let rig = Rig::default();
        scenario(&rig, "work sharing", "messages = 20000", USUAL);
        let run = run(&rig, server, &["--stop", who]);
        let result = &run["result"];
        assert_eq!(result["missing"], serde_json::json!([]));
        assert_eq!(number(result, "/received/distinct"), 20_000);
        assert!(number(result, "/wall_ns") >= 300_000_000, "{result:#}");
    }
}

#[test]
fn each_pattern_brings_every_message_once() {
    all_patterns(SERVE);
}

#[test]
fn all_settings_have_their_effect() {
    all_settings(SERVE);
}

#[test]
fn a_queue_that_is_full_refuses_or_drops() {
    a_full_queue(SERVE);
}

#[test]
fn faults_meet_members() {
    a_killed_consumer(SERVE);
    a_stopped_member(SERVE);
}

/// Nothing of a run is left on a server that goes on.
#[test]
fn a_run_leaves_nothing_behind() {
    let rig = Rig::default();
    let server = rig.serve(&[
        "--listen",
        "tcp://127.0.0.1:0",
        "--group-file",
        "thalweg.json",
        "--amqp",
        "tcp://127.0.0.1:0",
        "--amqp-guest",
    ]);
    let address = server.amqp_endpoints().remove(0);
    let address = address.strip_prefix("tcp://").unwrap();
    let url = format!("amqp://guest:guest@{address}/");
    for pattern in [
        "work sharing",
        "work sharing with feedback",
        "broadcast",
        "broadcast and gather",
    ] {
        scenario(&rig, pattern, "messages = 64", USUAL);
        run(&rig, &["--url", &url], &["--pack", "2"]);
    }
    // A queue of one connection goes when that ends, and its topic a moment later.
    let until = Instant::now() + rig::WATCHDOG;
    loop {
        let topics = rig.run(&["topic", "list"]).ok();
        if !topics.contains("workload") {
            break;
        }
        assert!(Instant::now() < until, "{topics}");
    }
    // The same from a file, and from the environment, where nobody else sees it.
    std::fs::write(rig.path("url"), format!("# at home\n{url}\n")).unwrap();
    run(&rig, &["--url", "url"], &[]);
    let mut command = rig.thalweg(&["workload", "run", "small.toml"]);
    command.env("THALWEG_AMQP_URL", &url);
    assert!(command.output().unwrap().status.success());
}

#[test]
fn a_server_that_cannot_be_used_is_named_and_no_password_is_said() {
    let rig = Rig::default();
    scenario(&rig, "work sharing", "messages = 64", USUAL);
    let refused = |url: &str, code: i32, says: &str| {
        std::fs::write(rig.path("url"), url).unwrap();
        let args = ["workload", "run", "small.toml", "--url", "url"];
        let ran = rig.run(&args).exits(code);
        assert!(ran.stderr.contains(says), "{url}: {}", ran.stderr);
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    };
    // Nobody listens where somebody just did.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    let url = format!("amqp://lab:secret@{address}/");
    refused(&url, 5, &format!("amqp://{address}: no server"));
    // Something else that speaks first, and something that ends.
    for said in ["HTTP/1.1 400 Bad Request\r\n\r\n", ""] {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut socket, _) = other.accept().unwrap();
            let mut header = [0; 8];
            socket.read_exact(&mut header).unwrap();
            socket.write_all(said.as_bytes()).unwrap();
        });
        let says = match said {
            "" => "without a word",
            _ => "no AMQP 0-9-1",
        };
        refused(&format!("amqp://lab:secret@{address}/"), 1, says);
        answering.join().unwrap();
    }
    let server = rig.serve(&[
        "--listen",
        "tcp://127.0.0.1:0",
        "--amqp",
        "tcp://127.0.0.1:0",
        "--amqp-guest",
    ]);
    let address = server.amqp_endpoints().remove(0);
    let address = address.strip_prefix("tcp://").unwrap();
    refused(&format!("amqp://lab:secret@{address}/"), 1, "403");
    refused("amqps://lab:secret@host/?verify=verify_none", 2, "options");
    // Nor does the other protocol show one.
    let text = std::fs::read_to_string(rig.path("small.toml")).unwrap();
    std::fs::write(
        rig.path("native.toml"),
        text.replace("\"amqp\"", "\"thalweg\""),
    )
    .unwrap();
    let args = [
        "workload",
        "run",
        "native.toml",
        "--url",
        "amqp://lab:secret@host/",
    ];
    let ran = rig.run(&args).exits(2);
    assert!(ran.stderr.contains("--backend amqp"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    // A password that others do not know does not belong on a command line.
    let url = format!("amqp://lab:secret@{address}/");
    let ran = rig
        .run(&["workload", "run", "small.toml", "--url", &url])
        .exits(2);
    assert!(ran.stderr.contains("THALWEG_AMQP_URL"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
}

/// Debian's RabbitMQ, on ports and in directories of its own; ended with all that it started.
struct Rabbit {
    processes: Vec<Child>,
    url: String,
    /// Last: processes write into it.
    _directory: tempfile::TempDir,
}

const RABBIT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Rabbit {
    /// None where it is not installed, which is said.
    fn start() -> Option<Self> {
        let is_there = Path::new(RABBIT).exists();
        let epmd = ["/usr/bin/epmd", "/usr/local/bin/epmd"];
        let epmd = epmd.into_iter().find(|path| Path::new(path).exists());
        let Some(epmd) = epmd.filter(|_| is_there) else {
            eprintln!("skipped: {RABBIT} or Erlang's epmd is not installed");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("plugins"), "[].\n").unwrap();
        std::fs::create_dir(path("home")).unwrap();
        let (port, distribution, names) = (free_port(), free_port(), free_port());
        let start = |program: &str, args: &[&str]| {
            let log = std::fs::File::create(path("log.txt")).unwrap();
            Command::new(program)
                .args(args)
                .env("HOME", path("home"))
                .env("RABBITMQ_MNESIA_BASE", path("mnesia"))
                .env("RABBITMQ_LOG_BASE", path("log"))
                .env("RABBITMQ_NODENAME", format!("thalweg-{port}@localhost"))
                .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
                .env("RABBITMQ_NODE_PORT", port.to_string())
                .env("RABBITMQ_DIST_PORT", distribution.to_string())
                .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"))
                .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
                .env("ERL_EPMD_ADDRESS", "127.0.0.1")
                .env("ERL_EPMD_PORT", names.to_string())
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                // A group of its own: the script starts others.
                .process_group(0)
                .spawn()
                .unwrap()
        };
        let mut rabbit = Self {
            processes: vec![
                start(epmd, &["-port", &names.to_string()]),
                start(RABBIT, &[]),
            ],
            url: format!("amqp://guest:guest@127.0.0.1:{port}/"),
            _directory: directory,
        };
        let deadline = std::time::Instant::now() + rig::WATCHDOG;
        while !speaks_amqp(port) {
            let ended = rabbit.processes[1].try_wait().unwrap();
            assert!(ended.is_none(), "RabbitMQ ended: {ended:?}");
            assert!(std::time::Instant::now() < deadline, "RabbitMQ hangs");
            std::thread::yield_now();
        }
        Some(rabbit)
    }
}

/// Whether there is a server that says what it speaks.
fn speaks_amqp(port: u16) -> bool {
    let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let mut first = [0];
    socket.write_all(b"AMQP\x00\x00\x09\x01").is_ok() && socket.read_exact(&mut first).is_ok()
}

impl Drop for Rabbit {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let group = rustix::process::Pid::from_child(process);
            // What has ended by itself is none the worse for it.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = process.wait();
        }
    }
}

/// All that was asserted of Thalweg's listener. One server for all of it: it starts slowly.
#[test]
fn rabbitmq_is_driven_as_well() {
    let Some(rabbit) = Rabbit::start() else {
        return;
    };
    let server: &[&str] = &["--url", &rabbit.url];
    all_patterns(server);
    all_settings(server);
    a_full_queue(server);
    a_killed_consumer(server);
    a_stopped_member(server);
    through_proxies(server);
}

/// What stands between carries AMQP of any server; where one ends TLS, the client speaks it.
fn through_proxies(server: &[&str]) {
    let has_haproxy = ["/usr/sbin/haproxy", "/usr/bin/haproxy"];
    let has_haproxy = has_haproxy.iter().any(|path| Path::new(path).exists());
    for (architecture, transport) in [("proxied:relay", "amqp"), ("managed:haproxy", "amqps")] {
        if architecture == "managed:haproxy" && !has_haproxy {
            eprintln!("skipped: {architecture} needs haproxy, which is not installed");
            continue;
        }
        let rig = Rig::default();
        scenario(&rig, "work sharing", "messages = 500", USUAL);
        let args = ["workload", "run", "small.toml", "--json", "out.json"];
        rig.run(&[&args[..], server, &["--arch", architecture]].concat())
            .ok();
        let result = &results(&rig)["runs"][0]["result"];
        assert_eq!(result["transport"], transport, "{architecture}");
        assert_eq!(number(result, "/received/distinct"), 500, "{architecture}");
    }
}
