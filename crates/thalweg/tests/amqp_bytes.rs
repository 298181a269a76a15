//! Bytes that clients of AMQP 0-9-1 send and should not, and clients that stop, at `thalweg serve --amqp`: each has the
//! protocol's own error, costs little, and takes nothing from the others. What programs rely on is in
//! `python/tests/test_amqp.py`.

use crate::rig;

use amqp::{Method, ShortString, Table, basic, connection_methods as connection};
use bytes::{Bytes, BytesMut};
use rig::{Rig, ServerProcess, WATCHDOG};
use std::io::{Read, Write};
use std::net::TcpStream;

const HEADER: &[u8; 8] = b"AMQP\0\0\x09\x01";

fn name(text: &str) -> ShortString {
    ShortString::truncated(text)
}

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend(channel.to_be_bytes());
    out.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
    out.extend(payload);
    out.push(0xce);
    out
}

fn method(channel: u16, method: impl Into<Method>) -> Vec<u8> {
    let mut payload = BytesMut::new();
    method.into().encode(&mut payload);
    frame(1, channel, &payload)
}

/// The frames of a message without properties.
fn message(channel: u16, queue: &str, body: &[u8]) -> Vec<u8> {
    let publish = basic::Publish {
        routing_key: name(queue),
        ..Default::default()
    };
    let mut header = vec![0, 60, 0, 0];
    header.extend((body.len() as u64).to_be_bytes());
    header.extend([0, 0]);
    let mut out = [method(channel, publish), frame(2, channel, &header)].concat();
    for piece in body.chunks(100_000) {
        out.extend(frame(3, channel, piece));
    }
    out
}

/// One end of a connection, byte by byte.
struct Peer(TcpStream);

impl Peer {
    fn connect(server: &Amqp) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        stream.set_write_timeout(Some(WATCHDOG)).unwrap();
        Self(stream)
    }

    /// One whose virtual host is open.
    fn open(server: &Amqp, heartbeat: u16) -> Self {
        let mut peer = Self::log_in(server, &server.token);
        assert!(matches!(peer.next(), (0, Method::ConnectionTune(_))));
        let tune_ok = connection::TuneOk {
            heartbeat,
            ..Default::default()
        };
        peer.send(&method(0, tune_ok));
        let open = connection::Open {
            virtual_host: name("/"),
        };
        peer.send(&method(0, open));
        assert!(matches!(peer.next(), (0, Method::ConnectionOpenOk(_))));
        peer
    }

    /// One that has presented a password.
    fn log_in(server: &Amqp, password: &str) -> Self {
        let mut peer = Self::connect(server);
        peer.send(HEADER);
        assert!(matches!(peer.next(), (0, Method::ConnectionStart(_))));
        let start_ok = connection::StartOk {
            client_properties: Table::default(),
            mechanism: name("PLAIN"),
            response: Bytes::from(format!("\0anybody\0{password}")),
            locale: name("en_US"),
        };
        peer.send(&method(0, start_ok));
        peer
    }

    /// As [`Peer::open`], with channel 1.
    fn with_channel(server: &Amqp, heartbeat: u16) -> Self {
        let mut peer = Self::open(server, heartbeat);
        peer.open_channel(1);
        peer
    }

    fn open_channel(&mut self, channel: u16) {
        self.send(&method(channel, amqp::channel::Open {}));
        let opened = self.next();
        assert!(
            matches!(opened, (_, Method::ChannelOpenOk(_))),
            "{opened:?}"
        );
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn ask(&mut self, channel: u16, asked: impl Into<Method>) -> Method {
        self.send(&method(channel, asked));
        self.next().1
    }

    fn declare(&mut self, queue: &str) {
        let declare = amqp::queue::Declare {
            queue: name(queue),
            durable: true,
            ..Default::default()
        };
        let declared = self.ask(1, declare);
        assert!(
            matches!(declared, Method::QueueDeclareOk(_)),
            "{declared:?}"
        );
    }

    /// Publishes, and waits until it is confirmed.
    fn store(&mut self, queue: &str, bodies: &[&[u8]]) {
        self.ask(1, amqp::confirm::Select::default());
        for body in bodies {
            self.send(&message(1, queue, body));
            let answer = self.next();
            assert!(matches!(answer, (1, Method::BasicAck(_))), "{answer:?}");
        }
    }

    fn consume(&mut self, channel: u16, queue: &str) {
        let consume = basic::Consume {
            queue: name(queue),
            ..Default::default()
        };
        let answer = self.ask(channel, consume);
        assert!(matches!(answer, Method::BasicConsumeOk(_)), "{answer:?}");
    }

    /// The next frame: its kind, channel and payload. Heartbeats are passed over.
    fn frame(&mut self) -> Option<(u8, u16, Vec<u8>)> {
        loop {
            let mut head = [0; 7];
            self.0.read_exact(&mut head).ok()?;
            let [kind, high, low, size @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes(size) as usize + 1];
            self.0.read_exact(&mut payload).ok()?;
            assert_eq!(payload.pop(), Some(0xce));
            if kind != 8 {
                return Some((kind, u16::from_be_bytes([high, low]), payload));
            }
        }
    }

    /// The next method. Contents are passed over.
    #[track_caller]
    fn next(&mut self) -> (u16, Method) {
        loop {
            let Some((kind, channel, payload)) = self.frame() else {
                panic!("the connection is over");
            };
            if kind == 1 {
                return (channel, Method::decode(payload.into()).unwrap());
            }
        }
    }

    /// The server ends the connection by this code. Gives the text.
    #[track_caller]
    fn is_closed_with(&mut self, code: u16, of: (u16, u16)) -> String {
        loop {
            if let (0, Method::ConnectionClose(close)) = self.next() {
                let said = (close.reply_code, (close.class_id, close.method_id));
                assert_eq!(said, (code, of), "{}", &*close.reply_text);
                self.send(&method(0, connection::CloseOk {}));
                assert!(self.frame().is_none());
                return close.reply_text.to_string();
            }
        }
    }

    /// The server ends the channel by this code. Gives the text.
    #[track_caller]
    fn channel_is_closed_with(&mut self, code: u16, of: (u16, u16)) -> String {
        let (channel, said) = self.next();
        let Method::ChannelClose(close) = said else {
            panic!("{said:?}");
        };
        let ids = (close.class_id, close.method_id);
        assert_eq!(
            (close.reply_code, ids),
            (code, of),
            "{}",
            &*close.reply_text
        );
        self.send(&method(channel, amqp::channel::CloseOk {}));
        close.reply_text.to_string()
    }

    /// The next delivery: its tag, whether it came before, and its body.
    #[track_caller]
    fn delivery(&mut self) -> (u64, bool, Vec<u8>) {
        let (_, said) = self.next();
        let (tag, redelivered) = match said {
            Method::BasicDeliver(deliver) => (deliver.delivery_tag, deliver.redelivered),
            Method::BasicGetOk(got) => (got.delivery_tag, got.redelivered),
            other => panic!("{other:?} is no delivery"),
        };
        let (_, _, header) = self.frame().unwrap();
        let bytes = u64::from_be_bytes(*header[4..].first_chunk().unwrap());
        let mut body = Vec::new();
        while (body.len() as u64) < bytes {
            body.extend(self.frame().unwrap().2);
        }
        (tag, redelivered, body)
    }

    fn get(&mut self, queue: &str) -> (u64, bool, Vec<u8>) {
        let get = basic::Get {
            queue: name(queue),
            no_ack: false,
        };
        self.send(&method(1, get));
        self.delivery()
    }
}

/// A server that listens for AMQP.
struct Amqp {
    rig: Rig,
    server: ServerProcess,
    port: u16,
    token: String,
}

impl Amqp {
    fn start() -> Self {
        Self::on(Rig::default())
    }

    fn on(rig: Rig) -> Self {
        let server = rig.serve(&["--amqp", "tcp://127.0.0.1:0"]);
        let address = server.amqp_endpoints().remove(0);
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        let token = std::fs::read_to_string(rig.path("data/token")).unwrap();
        Self {
            rig,
            server,
            port,
            token: token.trim().to_owned(),
        }
    }

    /// Bytes of memory that the server has.
    fn memory(&self) -> u64 {
        let status = format!("/proc/{}/status", self.server.pid());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let digits = line.unwrap().split_whitespace().nth(1).unwrap();
        digits.parse::<u64>().unwrap() << 10
    }

    /// A client that means well is served.
    fn serves(&self) {
        let mut peer = Peer::with_channel(self, 0);
        peer.declare("well");
        peer.store("well", &[b"m"]);
        let (tag, _, body) = peer.get("well");
        assert_eq!(body, b"m");
        let ack = basic::Ack {
            delivery_tag: tag,
            multiple: false,
        };
        peer.send(&method(1, ack));
    }
}

#[test]
fn what_is_no_frame_has_the_protocols_error() {
    let server = Amqp::start();
    let before = server.memory();
    let close = |head: [u8; 7], rest: &[u8], code: u16| {
        let mut peer = Peer::with_channel(&server, 0);
        peer.send(&head);
        peer.send(rest);
        peer.is_closed_with(code, (0, 0))
    };
    // 4 GiB, of each kind of frame, of which nothing follows.
    for kind in 1..4 {
        let text = close([kind, 0, 1, 0xff, 0xff, 0xff, 0xff], b"", 501);
        assert!(text.starts_with("FRAME_ERROR"), "{text}");
    }
    // A kind that there is not, a last octet that is none, a heartbeat with something in it.
    close([9, 0, 1, 0, 0, 0, 0], b"\xce", 501);
    close([1, 0, 1, 0, 0, 0, 4], b"\0\x3c\0\x46\0", 501);
    close([8, 0, 0, 0, 0, 0, 1], b"\0\xce", 501);
    // A method that there is not, and one that is cut off.
    let mut peer = Peer::with_channel(&server, 0);
    peer.send(&frame(1, 1, &[0, 60, 0, 200]));
    peer.is_closed_with(540, (60, 200));
    let mut peer = Peer::with_channel(&server, 0);
    peer.send(&frame(1, 1, &[0, 60, 0, 40, 0]));
    peer.is_closed_with(502, (60, 40));
    // Contents where none is due, and a method where one is.
    let mut peer = Peer::with_channel(&server, 0);
    peer.send(&frame(3, 1, b"body"));
    peer.is_closed_with(505, (60, 40));
    let mut peer = Peer::with_channel(&server, 0);
    peer.send(&method(1, basic::Publish::default()));
    peer.send(&method(1, basic::Qos::default()));
    peer.is_closed_with(505, (60, 10));
    // A body of 4 EiB is announced.
    let mut peer = Peer::with_channel(&server, 0);
    peer.send(&method(1, basic::Publish::default()));
    peer.send(&frame(
        2,
        1,
        &[0, 60, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ));
    let (_, said) = peer.next();
    assert!(
        matches!(said, Method::ChannelClose(_) | Method::ConnectionClose(_)),
        "{said:?}"
    );
    // A channel that is not open.
    let mut peer = Peer::with_channel(&server, 0);
    peer.send(&method(7, basic::Qos::default()));
    peer.is_closed_with(504, (60, 10));
    server.serves();
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
}

#[test]
fn strangers_who_say_half_of_something_keep_nobody_out() {
    let server = Amqp::start();
    let halves: [&[u8]; 4] = [b"AMQ", HEADER, b"AMQP\0\0\x09\x01\x01\0\0\0\0\x1f", b""];
    let strangers: Vec<_> = (0..400)
        .map(|number| {
            let mut peer = Peer::connect(&server);
            peer.send(halves[number % 4]);
            peer
        })
        .collect();
    server.serves();
    drop(strangers);
    // A frame of 4 GiB before anything is agreed on, and one that is no longer allowed then.
    for size in [u32::MAX, 8193] {
        let mut peer = Peer::connect(&server);
        peer.send(HEADER);
        peer.next();
        peer.send(&[1, 0, 0]);
        peer.send(&size.to_be_bytes());
        peer.is_closed_with(501, (0, 0));
    }
    // A password that is none.
    let mut peer = Peer::log_in(&server, "secret-that-is-none");
    assert!(peer.frame().is_none());
    let log = server.server.log();
    assert!(!log.contains("secret-that-is-none"), "{log}");
    assert!(!log.contains(&server.token), "{log}");
}

#[test]
fn ten_thousand_channels_cost_little_and_one_too_many_has_its_error() {
    let server = Amqp::start();
    let before = server.memory();
    let mut peers: Vec<_> = (0..5).map(|_| Peer::open(&server, 0)).collect();
    for peer in &mut peers {
        let opens = (1..=2047).flat_map(|number| method(number, amqp::channel::Open {}));
        peer.send(&opens.collect::<Vec<_>>());
        for _ in 0..2047 {
            assert!(matches!(peer.next(), (_, Method::ChannelOpenOk(_))));
        }
    }
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 128 << 20, "{grown} bytes");
    server.serves();
    let peer = &mut peers[0];
    peer.send(&method(2048, amqp::channel::Open {}));
    let (_, said) = peer.next();
    let Method::ConnectionClose(close) = said else {
        panic!("{said:?}");
    };
    assert!([504, 530].contains(&close.reply_code), "{close:?}");
    // One that is open is not opened again.
    peers[1].send(&method(1, amqp::channel::Open {}));
    peers[1].is_closed_with(504, (20, 10));
}

#[test]
fn who_never_reads_is_bounded_and_loses_what_it_holds() {
    let server = Amqp::start();
    let mut producer = Peer::with_channel(&server, 0);
    producer.declare("large");
    let body = vec![7; 1 << 20];
    producer.store("large", &[&body[..]; 48]);
    let before = server.memory();
    // It has a heartbeat of a second, and says nothing more either.
    let mut silent = Peer::with_channel(&server, 1);
    silent.consume(1, "large");
    // What it was sent and could not be, is others' in the end.
    let mut other = Peer::with_channel(&server, 0);
    other.consume(1, "large");
    let mut came = 0;
    while came < 48 {
        let (_, _, found) = other.delivery();
        assert!(found == body);
        came += 1;
    }
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes");
    server.serves();
}

#[test]
fn a_large_message_is_delivered_though_others_are_not_settled() {
    let server = Amqp::start();
    let mut peer = Peer::with_channel(&server, 0);
    peer.declare("q");
    let large = vec![1; 20 << 20];
    peer.store("q", &[b"small", &large, b"last"]);
    peer.consume(1, "q");
    let bodies = [peer.delivery().2, peer.delivery().2, peer.delivery().2];
    assert_eq!(bodies[0], b"small");
    assert!(bodies[1] == large);
    assert_eq!(bodies[2], b"last");
}

#[test]
fn deliveries_are_settled_on_their_channel_and_come_back_in_order() {
    let server = Amqp::start();
    let mut peer = Peer::with_channel(&server, 0);
    peer.declare("q");
    peer.store("q", &[b"1", b"2", b"3"]);
    let mut reader = Peer::with_channel(&server, 0);
    reader.open_channel(2);
    reader.consume(2, "q");
    for number in 1..4 {
        let (tag, redelivered, _) = reader.delivery();
        assert_eq!((tag, redelivered), (number, false));
    }
    // Another channel of the same connection has no such delivery.
    let ack = basic::Ack {
        delivery_tag: 1,
        multiple: false,
    };
    reader.send(&method(1, ack.clone()));
    let text = reader.channel_is_closed_with(406, (60, 80));
    assert_eq!(text, "PRECONDITION_FAILED - unknown delivery tag 1");
    // The second is acknowledged, twice: the channel ends, and the others go back to the head.
    let ack = basic::Ack {
        delivery_tag: 2,
        ..ack
    };
    reader.send(&method(2, ack.clone()));
    reader.send(&method(2, ack));
    reader.channel_is_closed_with(406, (60, 80));
    peer.store("q", &[b"4"]);
    let got: Vec<_> = (0..3).map(|_| peer.get("q")).collect();
    let got: Vec<_> = got
        .iter()
        .map(|(_, again, body)| (*again, &body[..]))
        .collect();
    assert_eq!(got, [(true, &b"1"[..]), (true, b"3"), (false, b"4")]);
    // A connection that breaks gives back as well.
    drop(peer);
    let mut peer = Peer::with_channel(&server, 0);
    peer.consume(1, "q");
    let again: Vec<_> = (0..3).map(|_| peer.delivery()).collect();
    assert!(again.iter().all(|(_, again, _)| *again));
    assert_eq!(again[0].2, b"1");
}

#[test]
fn a_credential_that_is_revoked_ends_its_connection() {
    let server = Amqp::start();
    let data = ["--directory", "data"];
    let new = ["token", "new", "--output", "token", "--project", "p"];
    let rights = ["--can", "read,write,manage", "--for", "1h"];
    server.rig.run(&[&new[..], &rights, &data].concat()).ok();
    let token = std::fs::read_to_string(server.rig.path("token")).unwrap();
    let token = token.trim();
    // Who signs tokens, the server finds by itself, a little later.
    let mut peer = loop {
        let mut peer = Peer::log_in(&server, token);
        if peer.frame().is_some() {
            break peer;
        }
    };
    peer.send(&method(0, connection::TuneOk::default()));
    let open = connection::Open {
        virtual_host: name("/"),
    };
    peer.send(&method(0, open));
    assert!(matches!(peer.next(), (0, Method::ConnectionOpenOk(_))));
    peer.open_channel(1);
    peer.declare("q");
    let revoke = [&["token", "revoke", "token"][..], &data].concat();
    server.rig.run(&revoke).ok();
    let text = peer.is_closed_with(320, (0, 0));
    assert!(text.starts_with("CONNECTION_FORCED"), "{text}");
    assert!(text.contains("revoked"), "{text}");
    let log = server.server.log();
    assert!(!log.contains(token), "{log}");
}

#[test]
fn a_server_that_ends_says_so_and_keeps_what_it_confirmed() {
    let server = Amqp::start();
    let mut peer = Peer::with_channel(&server, 0);
    peer.declare("q");
    peer.store("q", &[b"1", b"2"]);
    let mut reader = Peer::with_channel(&server, 0);
    reader.consume(1, "q");
    reader.delivery();
    let Amqp { rig, server, .. } = server;
    let ended = std::thread::spawn(move || server.terminate().0);
    peer.is_closed_with(320, (0, 0));
    reader.is_closed_with(320, (0, 0));
    assert!(ended.join().unwrap().success());
    let again = Amqp::on(rig);
    let mut peer = Peer::with_channel(&again, 0);
    assert_eq!(peer.get("q").2, b"1");
    assert_eq!(peer.get("q").2, b"2");
    again.server.terminate();
}
