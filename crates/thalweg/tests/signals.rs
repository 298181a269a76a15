//! What signals do to a server.

use crate::rig;

use rig::{Rig, WATCHDOG, signal, wait};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Stdio;

/// Each start is another chance for a signal to come at a bad moment.
const ROUNDS: u32 = 50;

#[test]
fn a_server_that_is_ready_drains_on_the_first_signal() {
    let rig = Rig::default();
    for round in 0..ROUNDS {
        let server = rig.serve(&[]);
        let (status, log) = server.terminate();
        assert_eq!(status.code(), Some(0), "round {round}: {status}: {log}");
        assert!(!rig.group_file().exists(), "round {round}: {log}");
    }
}

#[test]
fn a_signal_amid_the_start_drains_as_well() {
    let rig = Rig::default();
    for round in 0..ROUNDS {
        let server = rig.serve_unready(&[]);
        server.wait_for_a_sign();
        let (status, log) = server.terminate();
        assert_eq!(status.code(), Some(0), "round {round}: {status}: {log}");
        assert!(!rig.group_file().exists(), "round {round}: {log}");
    }
}

#[test]
fn a_terminal_that_goes_away_does_not_end_a_server() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    for (number, name) in [
        (Signal::HUP, "SIGHUP"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
    ] {
        signal(server.pid(), number);
        server.wait_for_log(&format!("{name} is ignored"));
    }
    rig.run(&["topic", "create", "t"]).ok();
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// A line for the operator that nobody takes must not end the server: the
/// line about SIGHUP comes just when standard error is gone.
#[test]
fn a_server_outlives_its_standard_error() {
    let rig = Rig::default();
    let server = rig.serve_without_log(&[]);
    signal(server.pid(), Signal::HUP);
    signal(server.pid(), Signal::USR1);
    rig.run(&["topic", "create", "t"]).ok();
    let (status, _) = server.terminate();
    assert_eq!(status.code(), Some(0));
}

/// What a server tells a service manager until it has ended, drained by a signal after it said
/// that it is ready.
fn told(rig: &Rig, socket: &UnixDatagram, name: &str) -> Vec<String> {
    socket.set_read_timeout(Some(WATCHDOG)).unwrap();
    let mut server = rig
        .thalweg(&["serve", "data"])
        .env("NOTIFY_SOCKET", name)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut messages = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let bytes = socket.recv(&mut buffer).expect("the server says something");
        let message = String::from_utf8(buffer[..bytes].to_vec()).unwrap();
        let (ready, stopping) = (
            message.starts_with("READY=1\n"),
            message.starts_with("STOPPING=1\n"),
        );
        messages.push(message);
        if ready {
            assert!(rig.group_file().exists());
            rig.run(&["topic", "list"]).ok();
            signal(server.id(), Signal::TERM);
        }
        if stopping {
            break;
        }
    }
    assert!(wait(&mut server).success());
    messages
}

#[test]
fn a_service_manager_is_told_when_a_server_serves_and_when_it_drains() {
    let rig = Rig::default();
    let path = rig.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let messages = told(&rig, &socket, path.to_str().unwrap());
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert_eq!(messages[0], "STATUS=opening data");
    assert!(
        messages[1].contains("\nSTATUS=serving data at unix://"),
        "{messages:?}"
    );
    assert_eq!(
        messages[2],
        "STOPPING=1\nSTATUS=draining, for at most 30 s\nEXTEND_TIMEOUT_USEC=45000000"
    );
    // An abstract socket, as in containers; the name is of this test alone.
    let name = path.to_str().unwrap().as_bytes();
    let socket = SocketAddr::from_abstract_name(name).unwrap();
    let socket = UnixDatagram::bind_addr(&socket).unwrap();
    let messages = told(&rig, &socket, &format!("@{}", path.display()));
    assert!(
        messages
            .iter()
            .any(|message| message.starts_with("READY=1\n"))
    );
}

/// What a server says that is started, used once, and ended. An empty `notify` names no socket.
fn log_of_a_run(rig: &Rig, notify: &str) -> String {
    let mut server = rig
        .thalweg(&["serve", "data"])
        .env("NOTIFY_SOCKET", notify)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let list = ["topic", "list", "--connect-timeout", "100"];
    rig.run(&list).ok();
    signal(server.id(), Signal::TERM);
    assert!(wait(&mut server).success());
    let mut log = String::new();
    std::io::Read::read_to_string(&mut server.stderr.take().unwrap(), &mut log).unwrap();
    log
}

#[test]
fn a_service_manager_that_is_gone_does_not_keep_a_server_from_serving() {
    for name in ["/nowhere/notify", "relative", "@nobody-listens-here"] {
        let rig = Rig::default();
        let log = log_of_a_run(&rig, name);
        assert!(log.contains("NOTIFY_SOCKET"), "{log}");
    }
}

#[test]
fn the_log_says_when_a_drain_begins_and_ends() {
    let rig = Rig::default();
    let log = log_of_a_run(&rig, "");
    let lines: Vec<&str> = log.lines().collect();
    let at = |words: &str| lines.iter().position(|line| line.contains(words));
    let (begins, ends) = (at("drain: nothing new is taken"), at("drained in"));
    assert!(begins.is_some() && begins < ends, "{log}");
}

/// The system sends the death signal once for each thread of who has died.
#[test]
fn a_death_signal_that_comes_again_ends_nothing_at_once() {
    let me = std::process::id().to_string();
    let program = env!("CARGO_BIN_EXE_thalweg");
    let names = ["--name", "api.localhost", "--domain", "stream.localhost"];
    let gateway = [
        &["workload", "launch", "--end-with", &me, "--"][..],
        &[program, "gateway", "g", "--listen", "127.0.0.1:0"],
        &names,
    ];
    for words in [&["serve", "data", "--end-with", &me][..], &gateway.concat()] {
        let rig = Rig::default();
        let mut child = rig
            .thalweg(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let said = child.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("ready at"), "{words:?}: {ready}");
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            signal(child.id(), Signal::TERM);
            std::thread::yield_now();
        };
        assert_eq!(status.code(), Some(0), "{words:?}: {status}");
    }
}
