//! How fast links are, beside a raw stream in the same run.
//!
//! `cargo run --release -p thalweg-net --example links [ROUNDS] [MIB]`
//!
//! Two threads, one a side; each round measures every variant once, so that
//! ratios compare what ran under the same conditions. Prints the median of
//! the rounds; processor time, system calls and sleeps vary less with what
//! else runs on the machine than speed does.

#[path = "../tests/certificates/mod.rs"]
mod certificates;

use bytes::Bytes;
use certificates::Authority;
use memory::Pool;
use net::*;
use std::io::{Read, Write};
use std::sync::OnceLock;
use std::time::Instant;
use wire::frame::{BULK_CHUNK_BYTES, FrameKind};

const MIB: usize = 1 << 20;

/// What one thread cost.
#[derive(Clone, Copy, Default)]
struct Cost {
    reads: u64,
    writes: u64,
    sleeps: u64,
    cpu_us: u64,
}

impl Cost {
    fn now() -> Self {
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().last()?.parse().ok())
                .unwrap_or(0)
        };
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let io = read("/proc/thread-self/io");
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Self {
            cpu_us: cpu.tv_sec as u64 * 1_000_000 + cpu.tv_nsec as u64 / 1000,
            reads: field(&io, "syscr"),
            writes: field(&io, "syscw"),
            sleeps: field(&read("/proc/thread-self/status"), "voluntary_ctxt"),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            cpu_us: self.cpu_us - before.cpu_us,
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            sleeps: self.sleeps - before.sleeps,
        }
    }
}

struct Measured {
    mib_per_second: f64,
    sender: Cost,
    receiver: Cost,
}

/// Runs both sides; the receiver's side is timed.
fn measure(mib: usize, send: impl FnOnce() + Send + 'static, receive: impl FnOnce()) -> Measured {
    let began = Instant::now();
    let sender = std::thread::spawn(|| {
        let before = Cost::now();
        send();
        Cost::now().since(before)
    });
    let before = Cost::now();
    receive();
    let receiver = Cost::now().since(before);
    let mib_per_second = mib as f64 / began.elapsed().as_secs_f64();
    Measured {
        mib_per_second,
        sender: sender.join().unwrap(),
        receiver,
    }
}

fn raw<S: Read + Write + Send + 'static>(mib: usize, (mut a, mut b): (S, S)) -> Measured {
    let send = move || {
        let data = source();
        for index in 0..mib {
            a.write_all(slice(&data, index)).unwrap();
        }
    };
    let mut data = vec![0u8; 4 * MIB];
    data.fill(1);
    measure(mib, send, || {
        for index in 0..mib {
            let at = index % 4 * MIB;
            b.read_exact(&mut data[at..at + MIB]).unwrap();
        }
    })
}

/// More memory than a cache holds, as real data is.
fn source() -> Bytes {
    static SOURCE: OnceLock<Bytes> = OnceLock::new();
    SOURCE.get_or_init(|| vec![7u8; 64 * MIB].into()).clone()
}

fn slice(data: &[u8], index: usize) -> &[u8] {
    let at = index * MIB % data.len();
    &data[at..at + MIB]
}

/// The cipher of TLS without anything else: each side does its part of every record in place.
fn cipher(mib: usize) -> Measured {
    use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    let key = || LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).unwrap());
    let nonce = || Nonce::assume_unique_for_key([0; 12]);
    const RECORD: usize = 16 << 10;
    let run = move |step: &dyn Fn(&LessSafeKey, &mut [u8])| {
        let (key, mut record) = (key(), vec![7; RECORD + 16]);
        for _ in 0..mib * MIB / RECORD {
            step(&key, &mut record);
        }
    };
    let seal = move |key: &LessSafeKey, record: &mut [u8]| {
        let (plain, tag) = record.split_at_mut(RECORD);
        let made = key.seal_in_place_separate_tag(nonce(), Aad::empty(), plain);
        tag.copy_from_slice(made.unwrap().as_ref());
    };
    // What does not verify is decrypted all the same, which takes as long.
    let open = move |key: &LessSafeKey, record: &mut [u8]| {
        let _ = key.open_in_place(nonce(), Aad::empty(), record);
    };
    measure(mib, move || run(&seal), || run(&open))
}

fn tcp_pair() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let a = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    a.set_nodelay(true).unwrap();
    (a, listener.accept().unwrap().0)
}

fn transports() -> Transports {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    let authority = AUTHORITY.get_or_init(|| Authority::new("links"));
    Transports::new()
        .with(Tcp::default())
        .with(authority.tls(LinkOptions::default()))
        .with(Unix::default())
        .with(Inproc::default())
}

fn next(reactor: &mut Reactor) -> ReactorEvent {
    loop {
        if let Some(event) = reactor.next() {
            return event;
        }
        reactor.wait(None).unwrap();
    }
}

fn messages(mib: usize, address: &str) -> Measured {
    let listener = transports().listen(address).unwrap();
    let address = listener.address();
    let send = move || {
        let data = source();
        let mut reactor = Reactor::new().unwrap();
        let link = transports().connect(&address).unwrap();
        let id = reactor.add_link(link).unwrap();
        let mut left = mib;
        let has_space =
            |reactor: &Reactor| reactor.peek(id).unwrap().queued_bytes() < 2 * MIB as u64;
        loop {
            while left > 0 && has_space(&reactor) {
                left -= 1;
                reactor.link(id).unwrap().send(Message {
                    payload: vec![data.slice_ref(slice(&data, left))],
                    lane: Lane::Bulk,
                    ..Message::control(FrameKind::Request, left as u64, vec![1; 60])
                });
            }
            match reactor.next() {
                Some(ReactorEvent::Link {
                    event: LinkEvent::Down(_),
                    ..
                }) => return,
                Some(_) => {}
                // All that was queued is out: queue more.
                None if left > 0 && has_space(&reactor) => {}
                // In-process, space is made without a word.
                None if left > 0 && address.starts_with("inproc") => std::thread::yield_now(),
                None => reactor.wait(None).unwrap(),
            }
        }
    };
    measure(mib, send, || {
        let mut reactor = Reactor::new().unwrap();
        reactor.add_listener(listener).unwrap();
        let mut left = mib;
        while left > 0 {
            if let ReactorEvent::Link {
                event: LinkEvent::Message(received),
                ..
            } = next(&mut reactor)
            {
                assert_eq!(received.payload.len(), MIB);
                left -= 1;
            }
        }
    })
}

/// The receiver reads the sender's memory, two chunks under way.
fn region_reads(mib: usize, address: &str, block_bytes: u32) -> Measured {
    let listener = transports().listen(address).unwrap();
    let address = listener.address();
    let send = move || {
        let mut reactor = Reactor::new().unwrap();
        let link = transports().connect(&address).unwrap();
        let id = reactor.add_link(link).unwrap();
        let link = reactor.link(id).unwrap();
        let region = link.expose(source());
        let head = wire::Codec::to_bytes(&region);
        link.send(Message::control(FrameKind::Request, 1, head));
        while !matches!(
            next(&mut reactor),
            ReactorEvent::Link {
                event: LinkEvent::Down(_),
                ..
            }
        ) {}
    };
    measure(mib, send, || {
        let pool = Pool::new(64 * MIB);
        let mut reactor = Reactor::new().unwrap();
        reactor.add_listener(listener).unwrap();
        let chunks = (mib * MIB / BULK_CHUNK_BYTES) as u64;
        let mut region = None::<wire::message::Region>;
        let (mut asked, mut answered) = (0, 0);
        while answered < chunks {
            let ReactorEvent::Link { link, event } = next(&mut reactor) else {
                continue;
            };
            match event {
                LinkEvent::Message(received) => {
                    region = Some(wire::Codec::from_bytes("region", &received.head).unwrap());
                }
                LinkEvent::ReadDone { result, .. } => {
                    result.unwrap();
                    answered += 1;
                }
                _ => {}
            }
            let Some(region) = &region else { continue };
            while asked < chunks && asked < answered + 4 {
                let read = RegionRead {
                    region: region.clone(),
                    offset: asked * BULK_CHUNK_BYTES as u64 % region.bytes,
                    into: pool.take(BULK_CHUNK_BYTES),
                    block_bytes,
                };
                reactor.link(link).unwrap().read(BulkToken(asked), read);
                asked += 1;
            }
        }
    })
}

/// Microseconds of one call of 128 bytes and its answer, one at a time, and
/// what it costs the caller.
fn round_trips(count: usize, address: &str) -> (f64, Cost) {
    let listener = transports().listen(address).unwrap();
    let address = listener.address();
    let server = std::thread::spawn(move || {
        let mut reactor = Reactor::new().unwrap();
        reactor.add_listener(listener).unwrap();
        loop {
            if let ReactorEvent::Link { link, event } = next(&mut reactor) {
                match event {
                    LinkEvent::Message(received) => {
                        let reply = Message::control(FrameKind::Reply, received.id, received.head);
                        reactor.link(link).unwrap().send(reply);
                    }
                    LinkEvent::Down(_) => return,
                    _ => {}
                }
            }
        }
    });
    let mut reactor = Reactor::new().unwrap();
    let link = reactor
        .add_link(transports().connect(&address).unwrap())
        .unwrap();
    let head = Bytes::from(vec![1; 128]);
    let (mut began, mut before) = (Instant::now(), Cost::now());
    for index in 0..count + 100 {
        if index == 100 {
            (began, before) = (Instant::now(), Cost::now());
        }
        let ask = Message::control(FrameKind::Request, index as u64, head.clone());
        reactor.link(link).unwrap().send(ask);
        while !matches!(
            next(&mut reactor),
            ReactorEvent::Link {
                event: LinkEvent::Message(_),
                ..
            }
        ) {}
    }
    let (elapsed, cost) = (began.elapsed(), Cost::now().since(before));
    drop(reactor);
    server.join().unwrap();
    (elapsed.as_secs_f64() * 1e6 / count as f64, cost)
}

fn main() {
    let argument = |index, default| {
        let given = std::env::args().nth(index);
        given.map_or(default, |text| text.parse().expect("a number"))
    };
    let (rounds, mib) = (argument(1, 5), argument(2, 2048));
    let directory = tempfile::tempdir().unwrap();
    let unix = format!("unix://{}/socket", directory.path().display());
    let (tcp, tls) = ("tcp://127.0.0.1:0", "tls://127.0.0.1:0");
    type Variant<'a> = (&'a str, Box<dyn Fn() -> Measured + 'a>);
    let variants: Vec<Variant> = vec![
        ("raw tcp, 1 MiB", Box::new(|| raw(mib, tcp_pair()))),
        ("tcp messages, 1 MiB", Box::new(|| messages(mib, tcp))),
        (
            "tcp region reads, 512 KiB",
            Box::new(|| region_reads(mib, tcp, 0)),
        ),
        (
            "tcp region reads, checksums",
            Box::new(|| region_reads(mib, tcp, 4096)),
        ),
        ("cipher alone, 16 KiB", Box::new(|| cipher(mib))),
        ("tls messages, 1 MiB", Box::new(|| messages(mib, tls))),
        (
            "tls region reads, 512 KiB",
            Box::new(|| region_reads(mib, tls, 0)),
        ),
        (
            "tls region reads, checksums",
            Box::new(|| region_reads(mib, tls, 4096)),
        ),
        (
            "raw unix, 1 MiB",
            Box::new(|| raw(mib, std::os::unix::net::UnixStream::pair().unwrap())),
        ),
        ("unix messages, 1 MiB", Box::new(|| messages(mib, &unix))),
        (
            "unix region reads, 512 KiB",
            Box::new(|| region_reads(mib, &unix, 0)),
        ),
        (
            "unix region reads, checksums",
            Box::new(|| region_reads(mib, &unix, 4096)),
        ),
        (
            "inproc messages, 1 MiB",
            Box::new(|| messages(mib, "inproc://bench")),
        ),
        (
            "inproc region reads",
            Box::new(|| region_reads(mib, "inproc://bench", 4096)),
        ),
    ];
    source();
    let mut results: Vec<Vec<Measured>> = variants.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for ((_, run), results) in variants.iter().zip(&mut results) {
            results.push(run());
        }
    }
    println!(
        "{:30} {:>7} | each MiB, receiver | and sender\n{:38} | {:>7} {:>6} {:>6} | {:>7} {:>6} {:>6}",
        "", "MiB/s", "", "cpu us", "reads", "sleeps", "cpu us", "writes", "sleeps"
    );
    for ((name, _), mut results) in variants.iter().zip(results) {
        results.sort_by(|a, b| a.mib_per_second.total_cmp(&b.mib_per_second));
        let speed = results[results.len() / 2].mib_per_second;
        let median = |count: &dyn Fn(&Measured) -> u64| {
            let mut counts: Vec<u64> = results.iter().map(count).collect();
            counts.sort();
            counts[counts.len() / 2] as f64 / mib as f64
        };
        println!(
            "{name:30} {speed:7.0} | {:7.0} {:6.2} {:6.2} | {:7.0} {:6.2} {:6.2}",
            median(&|m| m.receiver.cpu_us),
            median(&|m| m.receiver.reads),
            median(&|m| m.receiver.sleeps),
            median(&|m| m.sender.cpu_us),
            median(&|m| m.sender.writes),
            median(&|m| m.sender.sleeps),
        );
    }
    println!("calls of 128 bytes, one at a time; each costs the caller");
    let ways = [
        ("tcp", tcp),
        ("tls", tls),
        ("unix", &unix),
        ("inproc", "inproc://bench"),
    ];
    for (name, address) in ways {
        const COUNT: usize = 20_000;
        let (us, cost) = round_trips(COUNT, address);
        let per = |count: u64| count as f64 / COUNT as f64;
        println!(
            "{name:30} {us:5.1} us | {:.1} us of cpu, {:.2} reads, {:.2} writes, {:.2} sleeps",
            per(cost.cpu_us),
            per(cost.reads),
            per(cost.writes),
            per(cost.sleeps)
        );
    }
}
