//! Architectures of workloads: what stands between clients and server, ours and that of others where it is installed.

use crate::rig;

use rig::{Rig, WATCHDOG, signal, wait};
use rustix::process::Signal;
use serde_json::Value;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A scenario of few small messages, with a line of its own.
fn scenario(rig: &Rig, backend: &str, more: &str) {
    let text = format!(
        "name = \"small\"\nbackend = \"{backend}\"\nworkload = {{ message_bytes = 1000 }}\n\
         pattern = \"work sharing with feedback\"\nconsumers = [2]\nrepeat = 1\nrate = \"unlimited\"\n\
         idle_seconds = 20\n{more}\n[settings]\nqueues = 1\nconfirms = {{ batch = 16 }}\n\
         acks = {{ every = 16 }}\nprefetch = 16\n"
    );
    std::fs::write(rig.path("small.toml"), text).unwrap();
}

const RUN: [&str; 5] = ["workload", "run", "small.toml", "--json", "out.json"];

fn results(rig: &Rig) -> Vec<Value> {
    let text = std::fs::read_to_string(rig.path("out.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let runs = document["runs"].as_array().unwrap().iter();
    runs.map(|run| run["result"].clone()).collect()
}

/// Whether the programs of an architecture are here; that they are not is said.
fn is_installed(architecture: &str) -> bool {
    let by = architecture.split_once(':').map_or("", |(_, by)| by);
    let names: &[&str] = match by {
        "haproxy" => &["haproxy"],
        "stunnel" => &["stunnel4", "stunnel"],
        "nginx" => &["nginx"],
        _ => return true,
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let besides = ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from);
    let mut directories = std::env::split_paths(&path).chain(besides);
    let is_there = directories.any(|one| names.iter().any(|name| one.join(name).exists()));
    if !is_there {
        eprintln!("skipped: {architecture} needs {by}, which is not installed");
    }
    is_there
}

/// Runs the scenario over an architecture. All has to be well.
#[track_caller]
fn run(rig: &Rig, server: &[&str], architecture: &str) -> Value {
    let ran = rig.run(&[&RUN[..], server, &["--arch", architecture]].concat());
    let text = format!("{architecture}: {}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{text}");
    let result = results(rig).remove(0);
    assert_eq!(result["received"]["distinct"], 320, "{text}");
    assert_eq!(result["unanswered"], 0, "{text}");
    let used = &result["cpu_seconds_per_gigabyte"];
    let is_direct = architecture == "direct";
    assert_eq!(used["proxies"].is_null(), is_direct, "{text}");
    result
}

const MESSAGES: &str = "messages = 320";

#[test]
fn each_architecture_brings_every_message_once() {
    for (architecture, transport, is_encrypted) in [
        ("direct", "tcp", false),
        ("proxied", "tcp", false),
        ("proxied:haproxy", "tcp", false),
        ("proxied:stunnel", "tcp", false),
        ("proxied:nginx", "tcp", false),
        ("managed", "tls", true),
        ("managed:haproxy", "tls", true),
    ] {
        if !is_installed(architecture) {
            continue;
        }
        let rig = Rig::default();
        scenario(&rig, "thalweg", MESSAGES);
        let result = run(&rig, &["--serve"], architecture);
        assert_eq!(result["transport"], transport, "{architecture}");
        assert_eq!(result["tls"], is_encrypted, "{architecture}");
        let server = &result["cpu_seconds_per_gigabyte"]["server"];
        assert!(server.is_number(), "{architecture}: {result:#}");
    }
}

#[test]
fn each_architecture_carries_amqp_too() {
    for (architecture, transport) in [
        ("direct", "amqp"),
        ("proxied:relay", "amqp"),
        ("proxied:haproxy", "amqp"),
        ("proxied:stunnel", "amqp"),
        ("proxied:nginx", "amqp"),
        ("managed:gateway", "amqps"),
        ("managed:haproxy", "amqps"),
    ] {
        if !is_installed(architecture) {
            continue;
        }
        let rig = Rig::default();
        scenario(&rig, "amqp", MESSAGES);
        let result = run(&rig, &["--serve"], architecture);
        assert_eq!(result["transport"], transport, "{architecture}");
    }
}

/// Both backends over TLS from end to end, and TLS within the TLS of a pair.
#[test]
fn clients_speak_tls_with_the_server_of_a_run() {
    for (backend, transport) in [("thalweg", "tls"), ("amqp", "amqps")] {
        for architecture in ["direct", "proxied:relay"] {
            let rig = Rig::default();
            let more = format!("{MESSAGES}\ntls = \"yes\"");
            scenario(&rig, backend, &more);
            let result = run(&rig, &["--serve"], architecture);
            assert_eq!(result["transport"], transport, "{architecture}");
            assert_eq!(result["tls"], true, "{architecture}");
        }
    }
}

/// A server that runs already, by all forms of its address; what a run made is gone from it.
#[test]
fn a_server_that_runs_is_reached_through_proxies() {
    let rig = Rig::default();
    let server = rig.serve(&[
        "--listen",
        "tcp://127.0.0.1:0",
        "--listen",
        "tls://127.0.0.1:0",
        "--group-file",
        "thalweg.json",
        "--amqp",
        "tcp://127.0.0.1:0",
        "--amqp",
        "tls://127.0.0.1:0",
        "--amqp-guest",
    ]);
    let amqp = server.amqp_endpoints();
    let place = |scheme: &str| {
        let mut all = amqp.iter().filter_map(|one| one.strip_prefix(scheme));
        all.next().unwrap().to_owned()
    };
    let authority = rig.path("data/tls/authority.pem");
    let plain = format!("amqp://{}", place("tcp://"));
    let encrypted = format!(
        "amqps://{}/?cacertfile={}&server_name_indication=localhost",
        place("tls://"),
        authority.display()
    );
    for (backend, url, transport) in [
        ("thalweg", "thalweg.json", "tcp"),
        ("amqp", &plain, "amqp"),
        ("amqp", &encrypted, "amqps"),
    ] {
        scenario(&rig, backend, MESSAGES);
        for architecture in ["proxied:relay", "managed:haproxy"] {
            if !is_installed(architecture) {
                continue;
            }
            let result = run(&rig, &["--url", url], architecture);
            let is_managed = architecture != "proxied:relay";
            let transport = match (backend, is_managed) {
                ("thalweg", true) => "tls",
                ("amqp", true) => "amqps",
                _ => transport,
            };
            assert_eq!(result["transport"], transport, "{architecture}, {url}");
        }
    }
    let topics = rig.run(&["topic", "list"]).ok();
    assert!(!topics.contains("workload"), "{topics}");
    // Whom a client does not trust it does not speak to.
    let other = rig.path("other.pem");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&other, made.cert.pem()).unwrap();
    for (option, says) in [
        (format!("cacertfile={}", other.display()), "of no authority"),
        (
            format!(
                "cacertfile={}&server_name_indication=a.org",
                authority.display()
            ),
            "not for a.org",
        ),
        ("cacertfile=none.pem".to_owned(), "none.pem"),
    ] {
        let place = place("tls://").replace("127.0.0.1", "localhost");
        let url = format!("amqps://{place}/?{option}");
        let ran = rig.run(&[&RUN[..], &["--url", &url]].concat());
        assert_ne!(ran.status.code(), Some(0));
        assert!(ran.stderr.contains(says), "{option}: {}", ran.stderr);
    }
    // Nor where no TLS is spoken.
    let url = format!(
        "amqps://{}/?cacertfile={}",
        place("tcp://"),
        authority.display()
    );
    let ran = rig.run(&[&RUN[..], &["--url", &url]].concat());
    assert!(ran.stderr.contains("TLS"), "{}", ran.stderr);
}

#[test]
fn several_architectures_are_run_one_after_the_other_and_compared() {
    let rig = Rig::default();
    scenario(&rig, "thalweg", MESSAGES);
    let list = ["--serve", "--arch", "direct,proxied:relay", "--repeat", "2"];
    let text = rig.run(&[&RUN[..], &list].concat()).ok();
    assert!(
        text.contains("overhead") && text.contains("proxied:relay"),
        "{text}"
    );
    assert_eq!(results(&rig).len(), 4);
    let document = std::fs::read_to_string(rig.path("out.json")).unwrap();
    let document: Value = serde_json::from_str(&document).unwrap();
    let summaries = &document["summaries"];
    assert!(summaries[0]["overhead"].is_null(), "{summaries:#}");
    assert!(
        summaries[1]["overhead"].as_f64().unwrap() > 0.0,
        "{summaries:#}"
    );
    rig.run(&["workload", "page", "out.json", "--out", "page.html"])
        .ok();
    let page = std::fs::read_to_string(rig.path("page.html")).unwrap();
    for label in ["out, direct", "out, proxied:relay"] {
        assert!(page.contains(&format!("<b>{label}</b>")), "{label}");
    }
}

/// The processes whose temporary files are in this directory, or whose errors go there: nginx writes its title over its
/// environment.
fn processes_of(directory: &Path) -> Vec<PathBuf> {
    let variable = format!("TMPDIR={}", directory.display());
    let all = std::fs::read_dir("/proc").unwrap();
    let paths = all.filter_map(|entry| Some(entry.ok()?.path()));
    let ours = paths.filter(|path| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        let log = std::fs::read_link(path.join("fd/2"));
        variables.any(|one| one == variable.as_bytes())
            || log.is_ok_and(|log| log.starts_with(directory))
    });
    ours.collect()
}

/// The words of each process.
fn lines_of(temporary: &Path) -> Vec<(u32, Vec<String>)> {
    let processes = processes_of(temporary).into_iter();
    processes
        .filter_map(|path| {
            let line = std::fs::read(path.join("cmdline")).ok()?;
            let words = line.split(|byte| *byte == 0);
            let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
            let number = path.file_name()?.to_str()?.parse().ok()?;
            Some((number, words.collect()))
        })
        .collect()
}

/// Starts a run that lasts until it is ended, and waits until its producers are there.
fn lasting(rig: &Rig, temporary: &Path, architecture: &str) -> Child {
    std::fs::create_dir_all(temporary).unwrap();
    scenario(rig, "thalweg", "seconds = 600");
    let args = ["--serve", "--arch", architecture];
    let mut child = rig
        .thalweg(&[&RUN[..], &args].concat())
        .env("TMPDIR", temporary)
        // As a shell starts it: Ctrl-C reaches its group.
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    loop {
        let lines = lines_of(temporary);
        let clients = lines
            .iter()
            .filter(|(_, words)| words.iter().any(|word| word == "client"));
        if clients.count() == 4 {
            return child;
        }
        assert!(
            child.try_wait().unwrap().is_none(),
            "{}",
            errors(&mut child)
        );
        assert!(began.elapsed() < WATCHDOG, "{lines:?}");
        std::thread::sleep(LOOK);
    }
}

fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut text).unwrap();
    text
}

const WITH_PROCESSES: [&str; 6] = [
    "proxied:relay",
    "proxied:haproxy",
    "proxied:stunnel",
    "proxied:nginx",
    "managed:gateway",
    "managed:haproxy",
];

#[test]
fn an_interrupt_leaves_no_process_and_no_directory() {
    for architecture in WITH_PROCESSES {
        if !is_installed(architecture) {
            continue;
        }
        let rig = Rig::default();
        let temporary = rig.path("temporary");
        let mut child = lasting(&rig, &temporary, architecture);
        let group = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process_group(group, Signal::INT).unwrap();
        assert_eq!(wait(&mut child).code(), Some(1), "{architecture}");
        let text = errors(&mut child);
        assert!(
            text.ends_with("thalweg: the run: was ended by a signal\n"),
            "{text}"
        );
        assert_eq!(processes_of(&temporary), Vec::<PathBuf>::new());
        assert_eq!(
            std::fs::read_dir(&temporary).unwrap().count(),
            0,
            "{architecture}"
        );
    }
}

#[test]
fn a_command_that_is_killed_leaves_no_process() {
    for architecture in WITH_PROCESSES {
        if !is_installed(architecture) {
            continue;
        }
        let rig = Rig::default();
        let temporary = rig.path("temporary");
        let mut child = lasting(&rig, &temporary, architecture);
        signal(child.id(), Signal::KILL);
        wait(&mut child);
        let began = Instant::now();
        while !processes_of(&temporary).is_empty() {
            assert!(
                began.elapsed() < WATCHDOG,
                "{architecture}: {:?}",
                processes_of(&temporary)
            );
            std::thread::sleep(LOOK);
        }
    }
}

#[test]
fn a_proxy_that_dies_is_named_and_its_run_ends() {
    for (architecture, word, name) in [
        ("proxied:relay", "join", "near-relay"),
        ("proxied:relay", "offer", "far-relay"),
        ("proxied:haproxy", "far-haproxy.cfg", "far-haproxy"),
        ("managed:gateway", "gateway", "gateway"),
    ] {
        if !is_installed(architecture) {
            continue;
        }
        let rig = Rig::default();
        let temporary = rig.path("temporary");
        let mut child = lasting(&rig, &temporary, architecture);
        let lines = lines_of(&temporary);
        let file = format!("/{word}");
        let is_it = |words: &[String]| words.iter().any(|one| one == word || one.ends_with(&file));
        let found = lines.iter().find(|(_, words)| {
            is_it(words) && !words.iter().any(|one| one == "launch" || one == "serve")
        });
        let (process, _) = found.unwrap_or_else(|| panic!("{architecture}: {lines:?}"));
        signal(*process, Signal::KILL);
        assert_eq!(wait(&mut child).code(), Some(1), "{architecture}");
        let text = errors(&mut child);
        let says = format!("thalweg: {name}: process {process} has ended by itself: signal 9");
        assert!(text.contains(&says), "{architecture}: {text}");
        assert_eq!(processes_of(&temporary), Vec::<PathBuf>::new());
        assert_eq!(
            std::fs::read_dir(&temporary).unwrap().count(),
            0,
            "{architecture}"
        );
    }
}

#[test]
fn what_cannot_stand_between_is_refused() {
    let rig = Rig::default();
    for (backend, arguments, says) in [
        (
            "thalweg",
            &["--serve", "--arch", "proxied:ssh"][..],
            "\"proxied:ssh\" is none",
        ),
        (
            "thalweg",
            &["--url", "tcp://127.0.0.1:1", "--arch", "managed:gateway"],
            "it needs --serve",
        ),
        (
            "thalweg",
            &["--url", "unix:///none", "--arch", "proxied"],
            "proxies carry TCP",
        ),
    ] {
        scenario(&rig, backend, MESSAGES);
        let ran = rig.run(&[&RUN[..], arguments].concat()).exits(2);
        assert!(ran.stderr.contains(says), "{arguments:?}: {}", ran.stderr);
    }
    // A program that is not there is named with its package.
    if !["/usr/sbin/stunnel4", "/usr/sbin/stunnel"]
        .iter()
        .any(|one| Path::new(one).exists())
    {
        scenario(&rig, "thalweg", MESSAGES);
        let arguments = ["--serve", "--arch", "proxied:stunnel"];
        let mut command = rig.thalweg(&[&RUN[..], &arguments].concat());
        let output = command.env("PATH", rig.path("none")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("Debian has it as stunnel4"), "{text}");
    }
}

/// The published bound, and the published log; where no control group can be made that is said.
#[test]
fn a_pair_as_published_has_a_bound_and_a_log_that_nobody_reads() {
    if !is_installed("proxied:stunnel") {
        return;
    }
    let rig = Rig::default();
    let architecture =
        "architecture = { proxied = \"stunnel\", cores_thousandths = 300, log = \"unread\" }";
    scenario(&rig, "thalweg", &format!("{MESSAGES}\n{architecture}"));
    let ran = rig.run(&[&RUN[..], &["--serve"]].concat());
    match ran.status.code() {
        Some(0) => assert_eq!(results(&rig)[0]["received"]["distinct"], 320),
        _ => assert!(
            ran.stderr
                .contains("cores_thousandths: a bound of processor time needs a control group"),
            "{}",
            ran.stderr
        ),
    }
}
