//! A server that is reached over TLS, and what it may be reached by besides.

use crate::rig;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rig::{Rig, ServerProcess};
use std::io::{Read, Write};
use std::net::TcpStream;

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
