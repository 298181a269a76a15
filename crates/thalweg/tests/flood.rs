//! Connections that say nothing: they cost others neither the server nor its disk.

use crate::rig;

use rig::Rig;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use wire::frame::{FrameHeader, FrameKind};

/// Opens connections without end and says nothing on them, as who has no token does.
struct Flood {
    over: Arc<AtomicBool>,
    opened: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// So many stand at a time, of which the server may have dropped some.
const STANDING: usize = 400;

impl Flood {
    fn at(address: &str) -> Self {
        let (over, opened) = (
            Arc::new(AtomicBool::new(false)),
            Arc::<AtomicU64>::default(),
        );
        let address = address.strip_prefix("tcp://").unwrap().to_owned();
        let (ends, counts) = (over.clone(), opened.clone());
        let thread = std::thread::spawn(move || {
            let mut standing = std::collections::VecDeque::new();
            while !ends.load(Ordering::Relaxed) {
                // One that is refused is another try.
                let Ok(stream) = TcpStream::connect(&address) else {
                    continue;
                };
                standing.push_back(stream);
                counts.fetch_add(1, Ordering::Relaxed);
                if standing.len() > STANDING {
                    standing.pop_front();
                }
            }
        });
        let flood = Self {
            over,
            opened,
            thread: Some(thread),
        };
        flood.wait_for_more();
        flood
    }

    /// Until as many have come again as stand at a time.
    fn wait_for_more(&self) {
        let wanted = self.opened() + STANDING as u64;
        while self.opened() < wanted {
            std::thread::yield_now();
        }
    }

    fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is joined once");
        // Its panic would be a panic amid the test's own.
        let _ = thread.join();
    }
}

#[test]
fn a_flood_without_hello_leaves_clients_and_the_disk_alone() {
    let rig = Rig::default();
    let socket = format!("unix://{}", rig.path("s").display());
    // With so few descriptors the flood is at their end at once, and so are
    // partitions whose segments hold one batch each.
    let listen = ["--listen", "tcp://127.0.0.1:0", "--listen", &socket];
    let server = rig.serve_with_files(128, &listen);
    let tcp = server.endpoints()[0].clone();
    let create = ["topic", "create", "t", "--partitions", "2"];
    let storage = ["--storage-config", r#"{"segment_bytes": 1024}"#];
    rig.run(&[&create[..], &storage].concat()).ok();
    let line = format!("\"{}\"\n", "x".repeat(300));

    let flood = Flood::at(&tcp);
    let mut events = 0;
    for _ in 0..4 {
        flood.wait_for_more();
        for address in [&socket, &tcp] {
            let to = ["--address", address, "--token-file", "data/token"];
            let produce = ["produce", "t", "--batch-bytes", "1000"];
            rig.run_with(&[&produce[..], &to].concat(), line.repeat(20))
                .ok();
            events += 20;
        }
    }
    drop(flood);

    // The disk was not without, and nobody has to start the server anew.
    let partitions = rig.run(&["topic", "describe", "t", "--json"]).json();
    assert!(
        !partitions[0].to_string().contains("Too many"),
        "{partitions:?}"
    );
    let consumed = rig.run(&["consume", "t", "-n", "c"]).json();
    assert_eq!(consumed.len(), events, "{}", server.log());
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    // What needed a descriptor and found none was tried again, and says so.
    let mut lines = log.lines().filter(|line| !line.contains("tried again"));
    assert!(!lines.any(|line| line.contains("failed")), "{log}");
    // One line stands for many, however many there were.
    let dropped = log
        .matches("connections without a Hello were dropped")
        .count();
    assert!((1..100).contains(&dropped), "{log}");
}

#[test]
fn of_too_many_at_one_address_the_oldest_is_dropped() {
    let rig = Rig::default();
    let listen = [
        "--listen",
        "tcp://127.0.0.1:0",
        "--pending-connections-max",
        "2",
    ];
    let server = rig.serve(&listen);
    let address = server.endpoints()[0]
        .strip_prefix("tcp://")
        .unwrap()
        .to_owned();
    let mut oldest = TcpStream::connect(&address).unwrap();
    let mut others = [
        TcpStream::connect(&address).unwrap(),
        TcpStream::connect(&address).unwrap(),
    ];
    // Its end is seen, whether as an end or as a reset.
    assert!(!oldest.read(&mut [0; 1]).is_ok_and(|count| count > 0));
    for other in &mut others {
        other.set_nonblocking(true).unwrap();
        let error = other.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
    // Who says a Hello is none of them.
    for _ in 0..3 {
        rig.run(&["topic", "list"]).ok();
    }
    server.wait_for_log("pending_connections_max");
}

#[test]
fn the_limit_of_open_files_is_raised() {
    let rig = Rig::default();
    let server = rig.serve_with_soft_files(100, &[]);
    assert!(
        server
            .log()
            .contains("the limit of open files was raised from 100 to"),
        "{}",
        server.log()
    );
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let numbers: Vec<&str> = files.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers[0], numbers[1], "{files}");
}

/// A frame that should be a Hello, with a head of so many bytes.
fn bad_hello(head_bytes: usize) -> Vec<u8> {
    let head = vec![0xff; head_bytes];
    let header = FrameHeader {
        kind: FrameKind::Hello,
        flags: 0,
        head_bytes: head_bytes as u32,
        payload_bytes: 0,
        id: 1,
    };
    [&header.to_bytes(&head)[..], &head].concat()
}

/// Sends all and reads to the end. The server reads while it is sent, or it would
/// never be sent whole: less fits between the two.
fn exchange(mut stream: impl Read + Write, bytes: &[u8]) -> String {
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // It may be cut off behind the answer.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_bad_hello_of_any_length_is_answered_over_each_transport() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    for head_bytes in [10, 1000, 70_000, 300_000, 1 << 20] {
        let hello = bad_hello(head_bytes);
        for endpoint in server.endpoints() {
            let answer = match endpoint.split_once("://").unwrap() {
                ("tcp", address) => exchange(TcpStream::connect(address).unwrap(), &hello),
                (_, path) => exchange(UnixStream::connect(path).unwrap(), &hello),
            };
            assert!(
                answer.contains("hello"),
                "{head_bytes} bytes over {endpoint}: {answer:?}; {}",
                server.log()
            );
        }
    }
}
