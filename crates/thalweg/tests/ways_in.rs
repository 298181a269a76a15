//! Whatever a program of ours listens at, and every way to start one: nothing is reached from other
//! hosts without TLS, unless the operator says so in as many words.
//!
//! What Python and C start is in `python/tests/test_listeners.py`.

use crate::rig;

use rig::{Rig, WATCHDOG};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use wire::codec::Codec;
use wire::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use wire::message::{Hello, PROTOCOL_VERSION, Role};
use wire::{DirectoryId, ErrorReply, SessionId};

/// The ports at which a process listens for other hosts, as the kernel has them.
fn ports_beyond_the_host(pid: u32) -> BTreeSet<u16> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let open: BTreeSet<String> = open.map(|to| to.to_string_lossy().into_owned()).collect();
    let mut ports = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (address, port) = words[1].split_once(':').unwrap();
            let listens = words[3] == "0A" && open.contains(&format!("socket:[{}]", words[9]));
            let is_loopback = address.ends_with("7F") && address.len() == 8
                || address == "00000000000000000000000001000000";
            if listens && !is_loopback {
                ports.insert(u16::from_str_radix(port, 16).unwrap());
            }
        }
    }
    ports
}

/// A Hello with this token.
fn hello(token: &str) -> Vec<u8> {
    let digits = token.trim().as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let proof: Vec<u8> = digits.map(byte).collect();
    let hello = Hello {
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        features_required: 0,
        features_optional: 0,
        namespace: String::new(),
        mechanism: "token".to_owned(),
        proof: proof.into(),
        session: SessionId(7),
        role: Role::Control,
        directory: DirectoryId::default(),
        trace: 0,
        client_name: "plain".to_owned(),
        stripes: Default::default(),
    };
    let head = hello.to_bytes();
    let header = FrameHeader {
        kind: FrameKind::Hello,
        flags: 0,
        head_bytes: head.len() as u32,
        payload_bytes: 0,
        id: 0,
    };
    [&header.to_bytes(&head)[..], &head].concat()
}

/// What a server says to a Hello with the right token and without TLS.
fn plaintext_answer(rig: &Rig, port: u16) -> (FrameKind, Vec<u8>) {
    let token = std::fs::read_to_string(rig.path("data/token")).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(&hello(&token)).unwrap();
    let mut header = [0; FRAME_HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let header = FrameHeader::read(&header).unwrap();
    let mut head = vec![0; header.head_bytes as usize];
    stream.read_exact(&mut head).unwrap();
    (header.kind, head)
}

#[test]
fn nothing_listens_beyond_the_host_without_tls() {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let by_name = format!("tcp://{host}:0");
    let plain = [
        "tcp://0.0.0.0:0",
        "tcp://[::]:0",
        &by_name,
        "tcp://192.0.2.1:0",
    ];
    let rig = Rig::default();
    // Every way in which an address gets into the settings.
    let start = |way: &str, address: &str| {
        let mut command = match way {
            "flag" => rig.thalweg(&["serve", "data", "--listen", address]),
            "file" => {
                let text = format!("listen = [\"tls://127.0.0.1:0\", \"{address}\"]\n");
                std::fs::write(rig.path("settings.toml"), text).unwrap();
                rig.thalweg(&["serve", "data", "--config", "settings.toml"])
            }
            "check" => rig.thalweg(&["serve", "data", "--check", "--listen", address]),
            "amqp" => rig.thalweg(&["serve", "data", "--amqp", address]),
            _ => rig.thalweg(&["serve", "data"]),
        };
        match way {
            "environment" => drop(command.env("THALWEG_LISTEN", address)),
            "amqp environment" => drop(command.env("THALWEG_AMQP", address)),
            _ => {}
        }
        command.output().unwrap()
    };
    for address in plain {
        for way in [
            "flag",
            "file",
            "environment",
            "check",
            "amqp",
            "amqp environment",
        ] {
            let ran = start(way, address);
            let text = String::from_utf8_lossy(&ran.stderr);
            let text = text + String::from_utf8_lossy(&ran.stdout);
            assert_eq!(ran.status.code(), Some(2), "{way} {address}: {text}");
            assert!(text.contains("nothing is encrypted there"), "{way}: {text}");
        }
    }
    assert!(!rig.path("data").exists());
    // A server with all kinds of listeners: what others reach is encrypted.
    let socket = format!("unix://{}", rig.path("s").display());
    let kinds = [
        "tls://0.0.0.0:0",
        "tls://[::]:0",
        "tcp://127.0.0.1:0",
        "tls://127.0.0.1:0",
    ];
    let kinds = kinds.into_iter().chain([&*socket]);
    let listen = kinds.flat_map(|address| ["--listen", address]);
    let amqp = ["--amqp", "tls://0.0.0.0:0", "--amqp", "tcp://127.0.0.1:0"];
    let listen: Vec<&str> = listen.chain(amqp).collect();
    let server = rig.serve(&listen);
    let ports = ports_beyond_the_host(server.pid());
    assert_eq!(ports.len(), 3, "{ports:?} of {:?}", server.endpoints());
    for port in ports {
        let (kind, head) = plaintext_answer(&rig, port);
        assert_eq!(
            kind,
            FrameKind::ErrorReply,
            "port {port} serves without TLS"
        );
        let told = ErrorReply::from_bytes("answer", &head).unwrap();
        assert!(told.message.contains("this address is encrypted"), "{told}");
    }
    // The same walk finds one that does: it is welcomed.
    drop(server);
    let server = rig.serve(&["--listen", "tcp://0.0.0.0:0", "--insecure-listen"]);
    let ports = ports_beyond_the_host(server.pid());
    let answers = ports.iter().map(|port| plaintext_answer(&rig, *port).0);
    assert_eq!(answers.collect::<Vec<_>>(), [FrameKind::Welcome]);
}

/// A command that runs until it is dropped, and the lines that it has printed up to one that says it is
/// ready.
struct Running(Child);

impl Running {
    fn start(mut command: Command, is_ready: impl Fn(&Value) -> bool) -> (Self, Vec<Value>) {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut read = Vec::new();
        for line in lines.by_ref() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let ready = is_ready(&line);
            read.push(line);
            if ready {
                break;
            }
        }
        assert!(
            read.last().is_some_and(is_ready),
            "it is not ready: {read:?}"
        );
        // What nobody reads would end it.
        std::thread::spawn(move || lines.for_each(drop));
        (Self(child), read)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether somebody at a port answers what is not encrypted, by anything but an alert of TLS or an
/// error that says so.
fn serves_plaintext(port: u16, said: &[u8]) -> bool {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(WATCHDOG)).unwrap();
    // It may be closed before all was said, and reset.
    let _ = stream.write_all(said);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    // An alert is a record of kind 21.
    !answer.is_empty() && answer[0] != 21
}

fn assert_encrypted(what: &str, pid: u32, count: usize) {
    let ports = ports_beyond_the_host(pid);
    assert_eq!(ports.len(), count, "{what}: {ports:?}");
    for port in ports {
        for said in [
            &hello(&"07".repeat(32))[..],
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            assert!(!serves_plaintext(port, said), "{what}: port {port}");
        }
    }
}

#[test]
fn a_gateway_is_reached_by_tls_alone() {
    for more in [&[][..], &["--end-tls"]] {
        let rig = Rig::default();
        let names = ["--name", "api.localhost", "--domain", "stream.localhost"];
        let listen = ["--listen", "0.0.0.0:0", "--listen", "[::]:0", "--json"];
        let command = rig.thalweg(&[&["gateway", "g"], &names[..], &listen, more].concat());
        let (gateway, _) = Running::start(command, |_| true);
        assert_encrypted("gateway", gateway.0.id(), 2);
    }
}

#[test]
fn a_relay_opens_targets_for_this_host_alone() {
    let rig = Rig::default();
    let server = rig.serve(&["--listen", "tcp://127.0.0.1:0"]);
    let endpoints = server.endpoints();
    let target = endpoints.iter().find_map(|one| one.strip_prefix("tcp://"));
    let target = format!("events={}", target.unwrap());
    let offer = ["relay", "offer", &target, "--listen", "0.0.0.0:0"];
    let name = ["--name", "127.0.0.1", "--json"];
    // What an offer listens at for the other site is encrypted.
    let begun = || {
        let command = rig.thalweg(&[&offer[..], &name].concat());
        Running::start(command, |line| line["event"] == "offered")
    };
    let (offered, lines) = begun();
    assert_encrypted("offer", offered.0.id(), 1);
    let code = lines.last().unwrap()["join"].as_str().unwrap().to_owned();
    // What is opened here is not, and is for this host.
    for bind in ["0.0.0.0:0", "events=0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = [
            [&["relay", "join", &code, "--bind", bind][..]].concat(),
            [&offer[..], &name, &["--bind", bind]].concat(),
        ];
        for args in refused {
            let refused = rig.run(&args).exits(2);
            let told = &refused.stderr;
            assert!(
                told.contains("--insecure-listen allows it"),
                "{args:?}: {told}"
            );
        }
    }
    // Nor are the listeners of SciStream's sessions.
    let scistream = ["relay", "scistream", "--allow", "127.0.0.1:1"];
    for more in [&["--listener-ip", "0.0.0.0"][..], &["--listener-ip", "::"]] {
        let refused = rig.run(&[&scistream[..], more].concat()).exits(2);
        let told = &refused.stderr;
        assert!(
            told.contains("--insecure-listen allows it"),
            "{more:?}: {told}"
        );
    }
    let refused = rig.run(&[&scistream[..], &["--listen", "0.0.0.0:0"]].concat());
    refused.exits(2);
    let join = |code: &str, more: &[&str]| {
        let command = rig.thalweg(&[&["relay", "join", code, "--json"], more].concat());
        Running::start(command, |line| line["event"] == "bound")
    };
    let (joined, _) = join(&code, &[]);
    assert_encrypted("join", joined.0.id(), 0);
    drop(joined);
    drop(offered);
    // The same walk finds one that the operator has allowed.
    let (_offered, lines) = begun();
    let code = lines.last().unwrap()["join"].as_str().unwrap();
    let (joined, _) = join(code, &["--bind", "0.0.0.0:0", "--insecure-listen"]);
    let ports = ports_beyond_the_host(joined.0.id());
    assert_eq!(ports.len(), 1);
}

#[test]
fn sources_and_sinks_are_for_this_host_alone() {
    let rig = Rig::default();
    let _server = rig.serve(&["--listen", "tcp://127.0.0.1:0"]);
    rig.run(&["topic", "create", "frames"]).exits(0);
    let group_file = rig.group_file().display().to_string();
    let ends = [
        ("source", "zmq-pull", "--to"),
        ("source", "sp-pull", "--to"),
        ("sink", "zmq-push", "--from"),
        ("sink", "sp-push", "--from"),
    ];
    for (way, scheme, server) in ends {
        let args = |place: &str, more: &[&str]| -> Vec<String> {
            let address = format!("{scheme}://{place}");
            let args = ["relay", way, &address, "frames", server, &group_file];
            let name: &[&str] = if way == "sink" {
                &["--name", "out"]
            } else {
                &[]
            };
            let args = args.iter().chain(name).chain(more);
            args.map(|argument| (*argument).to_owned()).collect()
        };
        let refused = |place: &str, more: &[&str], option: &str| {
            let args = args(place, more);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let refused = rig.run(&args).exits(2);
            let told = &refused.stderr;
            assert!(told.contains(option), "{args:?}: {told}");
        };
        // Nothing is bound for others, nor dialled at others.
        for place in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            refused(place, &["--bind"], "--insecure-listen allows it");
        }
        refused("192.0.2.1:9", &[], "--insecure-connect allows it");
        let ports = |place: &str, more: &[&str]| {
            let args = args(place, &[&["--json", "--bind"], more].concat());
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let (running, _) = Running::start(rig.thalweg(&args), |line| line["event"] == "begun");
            ports_beyond_the_host(running.0.id())
        };
        assert!(ports("127.0.0.1:0", &[]).is_empty());
        // The same walk finds one that the operator has allowed.
        assert_eq!(ports("0.0.0.0:0", &["--insecure-listen"]).len(), 1);
    }
}
