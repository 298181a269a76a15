//! Sockets of ours with one another, and with peers that say what no sane one says.

use crate::faults::{Fault, with};
use crate::link::{self, AHEAD_BYTES, Charge, Wait, Wire};
use crate::zmtp::COMMAND_BYTES_MAX;
use crate::*;
use bytes::Bytes;
use std::io::{self, Cursor, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything here takes; nothing depends on it but a test that fails.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

fn here(protocol: Protocol) -> SocketOptions {
    SocketOptions::new(protocol, Place::Bind(vec![([127, 0, 0, 1], 0).into()]))
}

fn to(protocol: Protocol, address: SocketAddr) -> SocketOptions {
    let place = Place::Connect {
        authority: address.to_string(),
        beyond_the_host: false,
    };
    SocketOptions::new(protocol, place)
}

fn push(pusher: &Pusher, message: Message) -> Ticket {
    let mut message = message;
    loop {
        message = match pusher.push(message) {
            Ok(ticket) => return ticket,
            Err(message) => message,
        };
        pusher.wait(pusher.sent_to(), SHORT);
    }
}

/// A part of so many bytes.
fn many(byte: u8, bytes: usize) -> Bytes {
    vec![byte; bytes].into()
}

fn parts(number: usize, count: usize) -> Message {
    let part = |at: usize| many(number as u8, [0, 3, 255, 256, 70_000][(number + at) % 5]);
    (0..count).map(part).collect()
}

#[test]
fn messages_arrive_whole_and_in_order() {
    for (protocol, count) in [(Protocol::Zmtp, 3), (Protocol::Sp, 1)] {
        for puller_binds in [true, false] {
            let (mut puller, pusher) = match puller_binds {
                true => {
                    let puller = Puller::open(here(protocol)).expect("it listens");
                    let address = puller.address().expect("it listens");
                    (
                        puller,
                        Pusher::open(to(protocol, address)).expect("it opens"),
                    )
                }
                false => {
                    let pusher = Pusher::open(here(protocol)).expect("it listens");
                    let address = pusher.address().expect("it listens");
                    (
                        Puller::open(to(protocol, address)).expect("it opens"),
                        pusher,
                    )
                }
            };
            for number in 0..200 {
                push(&pusher, parts(number, count));
            }
            for number in 0..200 {
                let message = puller.pull(LONG).expect("it arrives");
                assert!(
                    message == parts(number, count),
                    "message {number} is another"
                );
            }
            assert_eq!(pusher.wait(199, LONG), 200);
            assert_eq!(puller.held_bytes(), 0);
        }
    }
}

#[test]
fn who_does_not_pull_stops_who_pushes() {
    let mut options = here(Protocol::Zmtp);
    options.held_bytes_max = 1 << 20;
    let mut puller = Puller::open(options).expect("it listens");
    let mut options = to(Protocol::Zmtp, puller.address().expect("it listens"));
    options.held_bytes_max = 1 << 20;
    let pusher = Pusher::open(options).expect("it opens");
    let (mut given, mut quiet) = (0_u64, 0);
    // Buffers of the system fill up, and then nothing more is taken.
    while quiet < 20 {
        match pusher.push(vec![many(7, 200_000)]) {
            Ok(_) => (given, quiet) = (given + 1, 0),
            Err(_) => {
                pusher.wait(pusher.sent_to(), SHORT);
                quiet += 1;
            }
        }
        assert!(given < 1000, "it takes everything");
        assert!(puller.held_bytes() <= (1 << 20) + 200_100);
    }
    for _ in 0..given {
        puller.pull(LONG).expect("none is lost");
    }
}

/// How many messages were given, how many were counted as sent when a connection was lost that read
/// nothing, and how many came by the next one.
fn lost_with_a_connection() -> (u64, u64, u64) {
    let pusher = Pusher::open(here(Protocol::Zmtp)).expect("it listens");
    let address = pusher.address().expect("it listens");
    let mut deaf = TcpStream::connect(address).expect("it listens");
    zmtp_hello(&mut deaf, "PULL");
    let mut given = 0;
    // Until the system takes no more: one is being written then.
    while given == pusher.sent_to() {
        given = push(&pusher, vec![many(0, 1 << 20)]);
        pusher.wait(given - 1, SHORT * 10);
    }
    let sent = pusher.sent_to();
    let last = push(&pusher, vec![many(31, 10)]);
    drop(deaf);
    let mut puller = Puller::open(to(Protocol::Zmtp, address)).expect("it opens");
    let mut got = 0;
    loop {
        let message = puller.pull(LONG).expect("the last one arrives");
        got += 1;
        if message == [many(31, 10)] {
            return (last, sent, got);
        }
    }
}

#[test]
fn what_was_being_written_goes_to_another() {
    let (given, sent, got) = lost_with_a_connection();
    assert_eq!(given, sent + got);
    let (given, sent, got) = with(Fault::LostWithLink, lost_with_a_connection);
    assert_ne!(given, sent + got, "a message that is lost is not noticed");
}

/// Says hello as a peer of this type, by hand.
fn zmtp_hello(stream: &mut TcpStream, kind: &str) {
    let mut greeting = vec![0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    greeting.extend([4, 0, 5]);
    greeting.extend(b"READY\x0bSocket-Type");
    greeting.extend((kind.len() as u32).to_be_bytes());
    greeting.extend(kind.as_bytes());
    greeting[65] = (greeting.len() - 66) as u8;
    stream.write_all(&greeting).expect("it is taken");
}

/// Whether a socket that pulls takes a peer that says this.
fn is_taken(protocol: Protocol, said: &[u8]) -> bool {
    let mut puller = Puller::open(here(protocol)).expect("it listens");
    let mut peer = TcpStream::connect(puller.address().expect("it listens")).expect("it listens");
    peer.write_all(said).expect("it is taken");
    peer.set_read_timeout(Some(LONG)).expect("it has one");
    // It is let go, or a message of it arrives.
    let mut answer = Vec::new();
    match puller.pull(SHORT * 20) {
        Some(message) => message == ["hi"],
        None => {
            // A reset is an end as well.
            let _ = peer.read_to_end(&mut answer);
            false
        }
    }
}

fn sp(kind: u16) -> Vec<u8> {
    let mut hello = vec![0, b'S', b'P', 0];
    hello.extend(kind.to_be_bytes());
    hello.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    hello.extend(b"hi");
    hello
}

fn zmtp(kind: &str) -> Vec<u8> {
    let mut said = vec![0; 64];
    (said[0], said[9], said[10]) = (0xff, 0x7f, 3);
    said[12..16].copy_from_slice(b"NULL");
    let mut ready = b"\x05READY\x0bSocket-Type".to_vec();
    ready.extend((kind.len() as u32).to_be_bytes());
    ready.extend(kind.as_bytes());
    said.extend([4, ready.len() as u8]);
    said.extend(ready);
    said.extend(b"\x00\x02hi");
    said
}

#[test]
fn only_who_pushes_is_pulled_from() {
    assert!(is_taken(Protocol::Sp, &sp(80)));
    assert!(is_taken(Protocol::Zmtp, &zmtp("PUSH")));
    assert!(!is_taken(Protocol::Sp, &sp(81)));
    assert!(!is_taken(
        Protocol::Sp,
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    ));
    assert!(!is_taken(Protocol::Zmtp, &zmtp("PUB")));
    let mut curve = zmtp("PUSH");
    curve[12..17].copy_from_slice(b"CURVE");
    assert!(!is_taken(Protocol::Zmtp, &curve));
    let mut old = zmtp("PUSH");
    old[10] = 1;
    assert!(!is_taken(Protocol::Zmtp, &old));
    assert!(!is_taken(Protocol::Zmtp, &sp(80)));
}

/// Nothing is held back.
struct Free;

impl Charge for Free {
    fn take(&mut self, _: u64) -> bool {
        true
    }
}

/// Bytes of a peer, and what is answered.
struct Peer(Cursor<Vec<u8>>, Vec<u8>);

impl Read for Peer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Peer {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.1.extend_from_slice(from);
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire for Peer {
    fn waits(&mut self, _: Wait) {}
}

fn read(protocol: Protocol, bytes: &[u8]) -> (io::Result<Option<Message>>, Vec<u8>) {
    let mut peer = Peer(Cursor::new(bytes.to_vec()), Vec::new());
    let read = link::read(&mut peer, protocol, 1000, &mut Free);
    (read, peer.1)
}

#[test]
fn what_is_announced_is_not_believed() {
    let huge = u64::MAX.to_be_bytes();
    let announced = [
        (Protocol::Sp, huge.to_vec()),
        (Protocol::Zmtp, [&[2][..], &huge].concat()),
        // A command, a flag that is none, and parts without end.
        (Protocol::Zmtp, [&[6][..], &huge].concat()),
        (Protocol::Zmtp, vec![8, 1, 0]),
        (Protocol::Zmtp, [1, 0].repeat(2000)),
        // Each part fits, and all together do not.
        (
            Protocol::Zmtp,
            [&[1, 200][..], &[0; 200]].concat().repeat(6),
        ),
    ];
    for (protocol, bytes) in &announced {
        let (read, _) = read(*protocol, bytes);
        let error = read.expect_err("it is too much");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
    // With a length that is believed it waits for bytes that never come.
    with(Fault::Unbounded, || {
        let (read, _) = read(Protocol::Sp, &huge);
        let error = read.expect_err("they do not come");
        assert!(error.to_string().contains("has gone"), "{error}");
    });
}

/// What a reader takes, and what has come.
#[derive(Default)]
struct Counted {
    taken: u64,
}

impl Charge for Counted {
    fn take(&mut self, bytes: u64) -> bool {
        self.taken += bytes;
        true
    }
}

/// How much is taken for a message of which `came` bytes have come and which announces 60 MiB.
fn taken_for(came: usize) -> u64 {
    let mut bytes = (60_u64 << 20).to_be_bytes().to_vec();
    bytes.resize(8 + came, 1);
    let mut counted = Counted::default();
    let mut peer = Peer(Cursor::new(bytes), Vec::new());
    let read = link::read(&mut peer, Protocol::Sp, 64 << 20, &mut counted);
    read.expect_err("it has not come whole");
    counted.taken
}

#[test]
fn memory_grows_as_bytes_come() {
    for came in [0, 1, AHEAD_BYTES, 1 << 20, 5 << 20, 40 << 20] {
        let most = (2 * came + 2 * AHEAD_BYTES) as u64;
        assert!(taken_for(came) <= most, "{} for {came}", taken_for(came));
        let believed = with(Fault::BelievesLength, || taken_for(came));
        assert!(came > AHEAD_BYTES || believed > most);
    }
}

/// A generator of numbers by chance.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = (self.0)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// `PUSHPULL_SEEDS=81000..82000` for a longer run.
fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("PUSHPULL_SEEDS") else {
        return usual;
    };
    let (from, to) = text.split_once("..").expect("PUSHPULL_SEEDS is as 0..1000");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Bytes of messages, and of a few other things, by chance: also cut off and changed.
fn by_chance(random: &mut Random, protocol: Protocol) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(5) {
        let parts = match protocol {
            Protocol::Zmtp => 1 + random.below(4),
            Protocol::Sp => 1,
        };
        let message: Message = (0..parts)
            .map(|_| many(random.below(256) as u8, random.below(300)))
            .collect();
        link::write(&mut bytes, protocol, &message).expect("memory takes all");
        if protocol == Protocol::Zmtp && random.below(3) == 0 {
            bytes.extend(b"\x04\x0a\x04PING\x00\x0aabc");
        }
    }
    for _ in 0..random.below(5) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(3) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes.truncate(at),
            _ => bytes.insert(at, random.below(9) as u8),
        }
    }
    bytes
}

#[test]
fn any_bytes_are_messages_or_an_error() {
    for seed in seeds(1..4000) {
        let mut random = Random(seed);
        let protocol = [Protocol::Sp, Protocol::Zmtp][random.below(2)];
        let bytes = by_chance(&mut random, protocol);
        let count = bytes.len();
        let mut peer = Peer(Cursor::new(bytes.clone()), Vec::new());
        let mut counted = Counted::default();
        let mut got = 0;
        while let Ok(Some(message)) = link::read(&mut peer, protocol, 2000, &mut counted) {
            got += message.iter().map(Bytes::len).sum::<usize>();
        }
        assert!(
            got <= count,
            "PUSHPULL_SEEDS={seed}..{}: {got} bytes of {count}",
            seed + 1
        );
        // A header announces 2000 bytes at most, and a part costs more than its bytes.
        let most = (count * (size_of::<Bytes>() + 1) + 2100) as u64;
        assert!(counted.taken <= most, "PUSHPULL_SEEDS={seed}..{}", seed + 1);
        let mut peer = Peer(Cursor::new(bytes.clone()), Vec::new());
        let _ = link::shake_hands(&mut peer, protocol, Side::Pull, Instant::now());
        let mut said = &bytes[..];
        while let Ok(Some((taken, _))) = zmtp::heard(said) {
            assert!(taken > 0 && taken <= said.len());
            said = &said[taken..];
        }
    }
}

#[test]
fn what_is_written_is_read() {
    for seed in seeds(1..1000) {
        let mut random = Random(seed);
        let protocol = [Protocol::Sp, Protocol::Zmtp][random.below(2)];
        let mut messages = Vec::new();
        let mut bytes = Vec::new();
        for _ in 0..random.below(6) {
            let parts = if protocol == Protocol::Sp {
                1
            } else {
                1 + random.below(9)
            };
            let message: Message = (0..parts)
                .map(|_| many(random.below(256) as u8, random.below(600)))
                .collect();
            link::write(&mut bytes, protocol, &message).expect("memory takes all");
            messages.push(message);
        }
        let mut peer = Peer(Cursor::new(bytes), Vec::new());
        for message in &messages {
            let read = link::read(&mut peer, protocol, 1 << 20, &mut Free);
            let read = read.expect("it was written").expect("nobody has gone");
            assert!(read == *message, "PUSHPULL_SEEDS={seed}..{}", seed + 1);
        }
        let end = link::read(&mut peer, protocol, 1 << 20, &mut Free);
        let end = end.expect_err("there is no more");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn what_a_puller_says_is_heard_when_it_is_whole() {
    let ping = b"\x04\x0a\x04PING\x00\x0aabc";
    let pong = b"\x04\x08\x04PONGabc".to_vec();
    for cut in 0..ping.len() {
        assert_eq!(zmtp::heard(&ping[..cut]).expect("it may come"), None);
    }
    let heard = zmtp::heard(&[&ping[..], &ping[..]].concat()).expect("it is a PING");
    assert_eq!(heard, Some((ping.len(), Some(pong))));
    zmtp::heard(b"\x00\x02hi").expect_err("a socket that pulls sends no messages");
    let long = [&[6][..], &(COMMAND_BYTES_MAX + 1).to_be_bytes()].concat();
    zmtp::heard(&long).expect_err("it is too long");
}

/// Whether a handshake that goes on and on is ended: a byte each time somebody asks.
fn slow_stranger_is_let_go() -> bool {
    let mut options = here(Protocol::Zmtp);
    options.handshake_timeout = SHORT * 5;
    let puller = Puller::open(options).expect("it listens");
    let mut peer = TcpStream::connect(puller.address().expect("it listens")).expect("it listens");
    peer.set_read_timeout(Some(SHORT)).expect("it has one");
    let hello = zmtp("PUSH");
    let mut answer = [0; 64];
    // 64 bytes of greeting are a while of ten times the handshake's.
    for byte in &hello[..60] {
        if peer.write_all(&[*byte]).is_err() {
            return true;
        }
        match peer.read(&mut answer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return true,
        }
    }
    false
}

#[test]
fn a_handshake_has_an_end() {
    assert!(slow_stranger_is_let_go());
    assert!(!with(Fault::EndlessHandshake, slow_stranger_is_let_go));
}

/// How far a sender says it is that nobody is connected to.
fn sent_to_nobody() -> Ticket {
    let pusher = Pusher::open(here(Protocol::Sp)).expect("it listens");
    push(&pusher, vec![many(1, 10)]);
    pusher.wait(0, SHORT);
    pusher.sent_to()
}

#[test]
fn nothing_is_sent_before_somebody_has_it() {
    assert_eq!(sent_to_nobody(), 0);
    assert_eq!(with(Fault::SentTooEarly, sent_to_nobody), 1);
}

/// How many messages are taken while one of two connections has one that it does not read.
fn taken_beyond_one_that_does_not_read() -> u64 {
    let mut options = here(Protocol::Zmtp);
    options.held_bytes_max = 100 << 20;
    let pusher = Pusher::open(options).expect("it listens");
    let address = pusher.address().expect("it listens");
    let mut deaf = TcpStream::connect(address).expect("it listens");
    zmtp_hello(&mut deaf, "PULL");
    // Longer than what its buffers take.
    push(&pusher, vec![many(0, 64 << 20)]);
    while pusher.connections() < 1 {
        std::thread::yield_now();
    }
    let mut puller = Puller::open(to(Protocol::Zmtp, address)).expect("it opens");
    while pusher.connections() < 2 {
        std::thread::yield_now();
    }
    let mut taken = 1;
    let mut quiet = 0;
    while quiet < 20 && taken < 70_000 {
        match pusher.push(vec![many(1, 1)]) {
            Ok(ticket) => (taken, quiet) = (ticket, 0),
            Err(_) => {
                pusher.wait(pusher.sent_to(), SHORT);
                quiet += 1;
            }
        }
        while puller.pull(Duration::ZERO).is_some() {}
    }
    assert_eq!(pusher.sent_to(), 0);
    taken
}

#[test]
fn one_that_does_not_read_bounds_what_passes_it() {
    assert_eq!(taken_beyond_one_that_does_not_read(), 65_536);
    let taken = with(Fault::AheadOfAll, taken_beyond_one_that_does_not_read);
    assert_eq!(taken, 70_000);
}

/// Says a PING, as one that pulls may at any time.
fn ping(peer: &mut TcpStream) {
    // It may have been closed, which the caller sees.
    let _ = peer.write_all(b"\x04\x0a\x04PING\x00\x0aabc");
}

#[test]
fn what_was_sent_arrives_though_the_socket_ends() {
    let mut pusher = Pusher::open(here(Protocol::Zmtp)).expect("it listens");
    let mut slow = TcpStream::connect(pusher.address().expect("it listens")).expect("it listens");
    zmtp_hello(&mut slow, "PULL");
    let mut given = 0;
    // Until the system takes no more.
    while given == pusher.sent_to() {
        given = push(&pusher, vec![many(0, 1 << 20)]);
        pusher.wait(given - 1, SHORT * 10);
    }
    let sent = pusher.sent_to() as usize;
    let (ended, ends) = std::sync::mpsc::channel();
    let stops = std::thread::spawn(move || ended.send(pusher.stop()));
    slow.set_read_timeout(Some(LONG)).expect("it has one");
    let (mut came, mut piece) = (0, vec![0; 100_000]);
    loop {
        ping(&mut slow);
        match slow.read(&mut piece).expect("it is not reset") {
            0 => break,
            count => came += count,
        }
    }
    assert!(came >= sent << 20, "{came} bytes of {sent} MiB");
    drop(slow);
    assert_eq!(ends.recv_timeout(LONG).expect("it ends"), 0);
    stops.join().expect("it ends").expect("it is heard");
}

/// How many of 300 messages, each given when all of three peers wait for one, each of them got.
fn shares() -> Vec<u64> {
    let pusher = Pusher::open(here(Protocol::Zmtp)).expect("it listens");
    let address = pusher.address().expect("it listens");
    let mut pullers: Vec<Puller> = (0..3)
        .map(|_| Puller::open(to(Protocol::Zmtp, address)).expect("it opens"))
        .collect();
    for number in 0..300 {
        while pusher.free() < 3 {
            std::thread::yield_now();
        }
        push(&pusher, vec![many(1, 100)]);
        assert_eq!(pusher.wait(number, LONG), number + 1);
    }
    let mut shares = vec![0; 3];
    while shares.iter().sum::<u64>() < 300 {
        for (puller, share) in pullers.iter_mut().zip(&mut shares) {
            while puller.pull(SHORT).is_some() {
                *share += 1;
            }
        }
    }
    shares
}

#[test]
fn peers_take_turns() {
    assert_eq!(shares(), [100; 3]);
    let shares = with(Fault::LastIsFirst, shares);
    assert_eq!(shares.iter().max(), Some(&300), "{shares:?}");
}

#[test]
fn many_that_stop_in_the_middle_hold_up_nobody() {
    let mut options = here(Protocol::Sp);
    options.held_bytes_max = 8 << 20;
    let mut puller = Puller::open(options).expect("it listens");
    let address = puller.address().expect("it listens");
    let mut said = sp(80)[..8].to_vec();
    said.extend((200_u64 << 20).to_be_bytes());
    said.extend(vec![0; 1000]);
    let stopped: Vec<TcpStream> = (0..64)
        .map(|_| {
            let mut stopped = TcpStream::connect(address).expect("it listens");
            stopped.write_all(&said).expect("it is taken");
            stopped
        })
        .collect();
    while puller.connections() < 64 {
        std::thread::yield_now();
    }
    let pusher = Pusher::open(to(Protocol::Sp, address)).expect("it opens");
    for _ in 0..100 {
        push(&pusher, vec![many(1, 100_000)]);
        assert!(puller.pull(LONG).is_some());
    }
    assert!(puller.held_bytes() <= 64 * (AHEAD_BYTES as u64 + 100));
    drop(stopped);
}

#[test]
fn a_stranger_makes_space_for_another() {
    let mut options = here(Protocol::Sp);
    options.connections_max = 2;
    let mut puller = Puller::open(options).expect("it listens");
    let address = puller.address().expect("it listens");
    let strangers: Vec<TcpStream> = (0..2)
        .map(|_| TcpStream::connect(address).expect("it listens"))
        .collect();
    let pusher = Pusher::open(to(Protocol::Sp, address)).expect("it opens");
    push(&pusher, vec![many(9, 9)]);
    assert_eq!(puller.pull(LONG), Some(vec![many(9, 9)]));
    drop(strangers);
}

#[test]
fn reports_are_bounded() {
    static LINES: AtomicU64 = AtomicU64::new(0);
    let reports = Reports::new(|_| {
        LINES.fetch_add(1, Ordering::Relaxed);
    });
    let began = Instant::now();
    for _ in 0..1000 {
        reports.line_at(began, "the same again");
    }
    assert_eq!(LINES.load(Ordering::Relaxed), 20);
    // A while later it goes on, and says how many it had left out.
    reports.line_at(began + LONG, "another");
    assert_eq!(LINES.load(Ordering::Relaxed), 22);
}

#[test]
fn a_ping_is_answered() {
    let mut bytes = b"\x04\x0a\x04PING\x00\x0aabc".to_vec();
    bytes.extend(b"\x00\x02hi");
    let (read, answered) = read(Protocol::Zmtp, &bytes);
    assert_eq!(
        read.expect("it is a message"),
        Some(vec![Bytes::from("hi")])
    );
    assert_eq!(answered, b"\x04\x08\x04PONGabc");
}

#[test]
fn a_puller_that_stops_gives_what_had_come() {
    let mut puller = Puller::open(here(Protocol::Sp)).expect("it listens");
    let address = puller.address().expect("it listens");
    let pusher = Pusher::open(to(Protocol::Sp, address)).expect("it opens");
    // More than wait in between, so that one waits to be handed on.
    for _ in 0..1100 {
        push(&pusher, vec![many(1, 10)]);
    }
    let first = puller.pull(LONG).expect("it arrives");
    assert_eq!(first, [many(1, 10)]);
    let held = 1025 * (10 + size_of::<Bytes>() as u64);
    while puller.held_bytes() < held {
        std::thread::yield_now();
    }
    puller.stop();
    let mut got = 1;
    while puller.pull(Duration::ZERO).is_some() {
        got += 1;
    }
    assert!(got > 1025, "{got} of what had come");
    assert_eq!(puller.held_bytes(), 0);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn another_host_is_not_dialled_unless_that_is_allowed() {
    static SAID: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());
    let mut options = to(Protocol::Sp, ([192, 0, 2, 1], 9).into());
    options.reports =
        Reports::new(|line| SAID.lock().expect("nobody panics").push_str(line)).into();
    let _puller = Puller::open(options).expect("it opens");
    while SAID.lock().expect("nobody panics").is_empty() {
        std::thread::yield_now();
    }
    let said = SAID.lock().expect("nobody panics").clone();
    assert!(said.contains("not allowed"), "{said}");
}

#[test]
fn planted_faults_are_noticed() {
    with(Fault::AnyPeer, || {
        // Threads of a socket have no fault of their own: its handshake is done here.
        let said = zmtp("PUB");
        let mut peer = Peer(Cursor::new(said), Vec::new());
        link::shake_hands(&mut peer, Protocol::Zmtp, Side::Pull, Instant::now())
            .expect("it is taken");
        let mut peer = Peer(Cursor::new(sp(81)), Vec::new());
        link::shake_hands(&mut peer, Protocol::Sp, Side::Pull, Instant::now())
            .expect("it is taken");
    });
}

#[test]
fn addresses() {
    let address: Endpoint = "sp-push://[::1]:5555".parse().expect("it is one");
    assert_eq!((address.protocol, address.side), (Protocol::Sp, Side::Push));
    assert_eq!(address.to_string(), "sp-push://[::1]:5555");
    for wrong in [
        "tcp://a:1",
        "zmq-pull://a",
        "zmq-pull://:1",
        "zmq-push://a:b",
        "x",
    ] {
        assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
    }
}
