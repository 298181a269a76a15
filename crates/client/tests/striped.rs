//! Sessions of several connections, over a real server and a proxy in between that cuts and stalls them.

use crate::live::{WATCHDOG, number};

use client::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const DATA_BYTES: usize = 200_000;

/// A connection that passes the proxy.
struct Passing {
    client: TcpStream,
    server: TcpStream,
    /// Whether nothing is passed on any more.
    stalls: Arc<(Mutex<bool>, Condvar)>,
}

/// Forwards connections to a server, each until it is cut or stalled.
struct Proxy {
    port: u16,
    passing: Arc<Mutex<Vec<Passing>>>,
    ends: Arc<AtomicBool>,
}

impl Proxy {
    fn new(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let passing = Arc::new(Mutex::new(Vec::new()));
        let ends = Arc::new(AtomicBool::new(false));
        let (all, over) = (passing.clone(), ends.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let client = client.unwrap();
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                    continue;
                };
                let stalls = Arc::new((Mutex::new(false), Condvar::new()));
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let stalls = stalls.clone();
                    std::thread::spawn(move || forward(from, to, &stalls));
                }
                all.lock().unwrap().push(Passing {
                    client,
                    server,
                    stalls,
                });
            }
        });
        Self {
            port,
            passing,
            ends,
        }
    }

    fn count(&self) -> usize {
        self.passing.lock().unwrap().len()
    }

    /// Cuts the connection that came as this one.
    fn cut(&self, index: usize) {
        let passing = self.passing.lock().unwrap();
        let _ = passing[index].client.shutdown(Shutdown::Both);
        let _ = passing[index].server.shutdown(Shutdown::Both);
    }

    fn stall(&self, index: usize) {
        *self.passing.lock().unwrap()[index].stalls.0.lock().unwrap() = true;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        for (index, passing) in self.passing.lock().unwrap().iter().enumerate() {
            let _ = index;
            *passing.stalls.0.lock().unwrap() = false;
            passing.stalls.1.notify_all();
            let _ = passing.client.shutdown(Shutdown::Both);
            let _ = passing.server.shutdown(Shutdown::Both);
        }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, stalls: &(Mutex<bool>, Condvar)) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut bytes).unwrap_or(0);
        let mut stalled = stalls.0.lock().unwrap();
        while *stalled {
            stalled = stalls.1.wait(stalled).unwrap();
        }
        drop(stalled);
        if read == 0 || to.write_all(&bytes[..read]).is_err() {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
    }
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WATCHDOG, "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

fn start(directory: &Path, scheme: &str, heartbeat_ms: u32) -> server::Server {
    let config = server::Config {
        directory: directory.join("data"),
        group_file: Some(directory.join("group.json")),
        listen: vec![format!("{scheme}://127.0.0.1:0")],
        no_unix_socket: true,
        heartbeat_ms,
        ..server::Config::default()
    };
    server::Server::start(config, Arc::new(|_: &str| {})).unwrap()
}

/// What the group file says behind a word: a port, a hash.
fn said(directory: &Path, behind: &str, is_of: impl Fn(char) -> bool) -> String {
    let text = std::fs::read_to_string(directory.join("group.json")).unwrap();
    let at = text.find(behind).unwrap() + behind.len();
    let rest = text[at..].trim_start_matches(|one| !is_of(one));
    rest.chars().take_while(|one| is_of(*one)).collect()
}

fn port(directory: &Path) -> u16 {
    let port = said(directory, "://127.0.0.1", |one| one.is_ascii_digit());
    port.parse().unwrap()
}

/// A driver of up to so many connections, which are opened at once, through a proxy.
fn connect(directory: &Path, scheme: &str, proxy: &Proxy, stripes: u8) -> Driver {
    let mut address = format!("{scheme}://127.0.0.1:{}?stripes={stripes}", proxy.port);
    if scheme == "tls" {
        let hash = said(directory, "certificates", |one| one.is_ascii_hexdigit());
        address.push_str(&format!("&sha256={hash}"));
    }
    let endpoint = Endpoint::Address {
        address,
        token: Some(token(directory).into()),
        directory: None,
    };
    let options = DriverOptions {
        stripes_at_once: true,
        ..DriverOptions::default()
    };
    Driver::connect(endpoint, options).unwrap()
}

fn token(directory: &Path) -> Vec<u8> {
    let text = std::fs::read_to_string(directory.join("data/token")).unwrap();
    let digits = text.trim().as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

fn topic(driver: &Driver) -> TopicHandle {
    let definition = Definition::builder()
        .validator(topic::ValidatorKind::None)
        .build()
        .unwrap();
    let partition = PartitionStorage {
        kind: "memory".into(),
        config: String::new(),
    };
    driver.create_topic("t", &definition, &[partition]).unwrap()
}

fn data(index: u64) -> Vec<u8> {
    let mut bytes = vec![index as u8; DATA_BYTES];
    bytes[..8].copy_from_slice(&index.to_le_bytes());
    bytes
}

fn push(producer: &Producer, range: std::ops::Range<u64>) {
    for index in range {
        let number = index.to_le_bytes();
        producer
            .push(Event::new(&number).with_data(data(index)))
            .unwrap();
    }
}

fn pull(consumer: &Consumer, range: std::ops::Range<u64>) {
    for index in range {
        let mut event = consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
        assert_eq!(number(&event), index);
        assert!(event.take_data() == data(index), "data of event {index}");
    }
}

/// Many bytes both ways, each event once and in order, though a connection is cut in the middle.
fn a_cut_costs_nothing(scheme: &str) {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let server = start(directory, scheme, 10_000);
    let proxy = Proxy::new(port(directory));
    let driver = connect(directory, scheme, &proxy, 4);
    let topic = topic(&driver);
    until("four connections", || driver.stripes() == 4);
    assert_eq!(proxy.count(), 4);
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let consumer = topic.consumer("c", ConsumerOptions::default()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| push(&producer, 0..300));
        pull(&consumer, 0..100);
        proxy.cut(2);
        pull(&consumer, 100..300);
    });
    producer.flush(WATCHDOG).unwrap();
    until("four connections again", || driver.stripes() == 4);
    let connections = driver.counters().connections.load(Ordering::Relaxed);
    assert_eq!(connections, 2, "a cut connection ends the session's link");
    // What was opened anew carries its share.
    std::thread::scope(|scope| {
        scope.spawn(|| push(&producer, 300..400));
        pull(&consumer, 300..400);
    });
    drop((producer, consumer, topic, driver));
    server.kill();
}

#[test]
fn tcp() {
    a_cut_costs_nothing("tcp");
}

#[test]
fn tls() {
    a_cut_costs_nothing("tls");
}

#[test]
fn a_connection_that_stalls_is_noticed_by_the_signs_of_life_of_all() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let server = start(directory, "tcp", 300);
    let proxy = Proxy::new(port(directory));
    let driver = connect(directory, "tcp", &proxy, 3);
    let topic = topic(&driver);
    until("three connections", || driver.stripes() == 3);
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let consumer = topic.consumer("c", ConsumerOptions::default()).unwrap();
    push(&producer, 0..10);
    pull(&consumer, 0..10);
    // Neither side hears of an end: what was on its way by this one keeps all that is behind it.
    proxy.stall(1);
    push(&producer, 10..40);
    pull(&consumer, 10..40);
    producer.flush(WATCHDOG).unwrap();
    assert!(driver.counters().connections.load(Ordering::Relaxed) >= 2);
    drop((producer, consumer, topic, driver));
    server.kill();
}
