//! A server that is reached over TLS, and what it may be reached by besides.

use crate::rig;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rig::{Rig, ServerProcess};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use wire::codec::Codec;
use wire::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use wire::message::{Hello, PROTOCOL_VERSION, Role};
use wire::{DirectoryId, ErrorReply, SessionId};

/// A server that others reach, by TLS alone.
const ENCRYPTED: [&str; 3] = ["--listen", "tls://0.0.0.0:0", "--no-unix-socket"];

fn port(server: &ServerProcess) -> String {
    let endpoint = server.endpoints()[0].clone();
    assert!(endpoint.starts_with("tls://"), "{endpoint}");
    assert!(!endpoint.contains("0.0.0.0"), "{endpoint}");
    endpoint.rsplit_once(':').unwrap().1.to_owned()
}

fn certificates(rig: &Rig) -> Vec<String> {
    let text = std::fs::read_to_string(rig.group_file()).unwrap();
    let group: serde_json::Value = serde_json::from_str(&text).unwrap();
    let hashes = group["certificates"].as_array().expect("hashes");
    hashes
        .iter()
        .map(|hash| hash.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_group_file_is_all_that_a_client_needs() {
    let rig = Rig::default();
    let listen = ["--listen", "tls://127.0.0.1:0", "--no-unix-socket"];
    let server = rig.serve(&listen);
    rig.run(&["topic", "create", "t"]).ok();
    let line = format!("\"{}\"\n", "x".repeat(3000));
    rig.run_with(&["produce", "t"], line.repeat(1000)).ok();
    assert_eq!(rig.run(&["consume", "t", "-n", "c"]).json().len(), 1000);
    let hashes = certificates(&rig);
    // The authority stays: a client may have noted its hash.
    server.terminate();
    let _server = rig.serve(&listen);
    assert_eq!(certificates(&rig), hashes);
    assert!(
        rig.run(&["doctor", "thalweg.json", "--no-measure"])
            .ok()
            .contains("tls")
    );
}

#[test]
fn an_address_needs_to_be_told_whom_to_trust() {
    let rig = Rig::default();
    let server = rig.serve(&ENCRYPTED);
    let address = format!("tls://127.0.0.1:{}", port(&server));
    let list = |address: &str, more: &[&str]| {
        let args = [
            "topic",
            "list",
            "--address",
            address,
            "--token-file",
            "data/token",
        ];
        rig.run(&[&args[..], &["--connect-timeout", "1"], more].concat())
    };
    list(&address, &["--tls-ca", "data/tls/authority.pem"]).ok();
    list(&format!("{address}?ca=data/tls/authority.pem"), &[]).ok();
    let hash = certificates(&rig).remove(0);
    list(&format!("{address}?sha256={hash}"), &[]).ok();
    let refused = list(&address, &[]).exits(2);
    assert!(
        refused.stderr.contains("which certificate to trust"),
        "{}",
        refused.stderr
    );
    let other = format!("{address}?sha256={}", "00".repeat(32));
    let refused = list(&other, &[]).exits(5);
    assert!(
        refused.stderr.contains("not the one that is expected"),
        "{}",
        refused.stderr
    );
    let plain = address.replace("tls://", "tcp://");
    let refused = list(&plain, &[]);
    assert!(!refused.status.success());
    assert!(
        refused.stderr.contains("this address is encrypted"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_sites_certificate_is_read_again_without_a_restart() {
    let rig = Rig::default();
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(params, authority_key);
    let write = |name: &str, text: &str| {
        std::fs::write(rig.path("new"), text).unwrap();
        std::fs::rename(rig.path("new"), rig.path(name)).unwrap();
    };
    write("site-ca.pem", &authority);
    let renew = || {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        write("site.pem", &certificate.pem());
        write("site.key", &key.serialize_pem());
    };
    renew();
    let files = ["--tls-cert", "site.pem", "--tls-key", "site.key"];
    let listen = ["--listen", "tls://localhost:0", "--no-unix-socket"];
    let server = rig.serve(&[&listen[..], &files].concat());
    assert!(!rig.path("data/tls").exists());
    let address = server.endpoints()[0].replace("127.0.0.1", "localhost");
    let to = ["--address", &address, "--token-file", "data/token"];
    let by_site = [&["topic", "list"][..], &to, &["--tls-ca", "site-ca.pem"]].concat();
    rig.run(&by_site).ok();
    rig.run(&["topic", "list"]).ok();
    let before = certificates(&rig);
    renew();
    server.wait_for_log("the certificate was read again");
    assert_ne!(certificates(&rig), before);
    rig.run(&by_site).ok();
    rig.run(&["topic", "list"]).ok();
}

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

/// What a server says to a Hello with the right token and without TLS.
fn plaintext_answer(rig: &Rig, port: u16) -> (FrameKind, Vec<u8>) {
    let token = std::fs::read_to_string(rig.path("data/token")).unwrap();
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
    };
    let head = hello.to_bytes();
    let header = FrameHeader {
        kind: FrameKind::Hello,
        flags: 0,
        head_bytes: head.len() as u32,
        payload_bytes: 0,
        id: 0,
    };
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(&header.to_bytes(&head)).unwrap();
    stream.write_all(&head).unwrap();
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
            _ => rig.thalweg(&["serve", "data"]),
        };
        if way == "environment" {
            command.env("THALWEG_LISTEN", address);
        }
        command.output().unwrap()
    };
    for address in plain {
        for way in ["flag", "file", "environment", "check"] {
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
    let listen: Vec<&str> = kinds.flat_map(|address| ["--listen", address]).collect();
    let server = rig.serve(&listen);
    let ports = ports_beyond_the_host(server.pid());
    assert_eq!(ports.len(), 2, "{ports:?} of {:?}", server.endpoints());
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

#[test]
fn a_handshake_that_does_not_end_is_dropped() {
    let rig = Rig::default();
    let server = rig.serve(&ENCRYPTED);
    let port: u16 = port(&server).parse().unwrap();
    // One says nothing, one begins, and both wait for the server's patience to end.
    let mut silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut begun = TcpStream::connect(("127.0.0.1", port)).unwrap();
    begun.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    rig.run(&["topic", "create", "t"]).ok();
    for stream in [&mut silent, &mut begun] {
        // It may be reset, for what it said was not read to its end.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    server.wait_for_log("the handshake of TLS did not end in time");
    rig.run(&["topic", "list"]).ok();
}

/// Memory of a process that is in use, bytes.
fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

#[test]
fn a_thousand_handshakes_that_never_end_cost_little_and_nobody_elses_connection() {
    let rig = Rig::default();
    let pending_max = 64;
    let limit = pending_max.to_string();
    let server = rig.serve(&[&ENCRYPTED[..], &["--pending-connections-max", &limit]].concat());
    let port: u16 = port(&server).parse().unwrap();
    rig.run(&["topic", "create", "t"]).ok();
    let before = resident_bytes(server.pid());
    // Two records of a ClientHello of 60,000 bytes, which is never whole.
    let mut begun = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xea, 0x60, 3, 3];
    begun.resize(5 + 0x4000, 7);
    let again = [&[0x16, 3, 1, 0x40, 0][..], &vec![7; 0x4000]].concat();
    begun.extend(again);
    let mut strangers = Vec::new();
    for count in 0..1000 {
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // The oldest are dropped meanwhile, this one not yet.
        stranger.write_all(&begun).unwrap();
        strangers.push(stranger);
        if count % 250 == 0 {
            let line = format!("{{\"n\":{count}}}\n");
            rig.run_with(&["produce", "t"], line).ok();
        }
    }
    let grown = resident_bytes(server.pid()).saturating_sub(before);
    assert_eq!(rig.run(&["consume", "t", "-n", "c"]).json().len(), 4);
    // 64 KiB each, of those that may wait; and what the allocator and four clients took.
    assert!(
        grown < ((pending_max * 64) << 10) + (24 << 20),
        "{grown} bytes"
    );
    server.wait_for_log("pending_connections_max");
}
