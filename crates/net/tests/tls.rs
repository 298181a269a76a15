//! What TLS is there for: who is taken for the server, what is refused, and what it may cost.

use bytes::Bytes;
use certificates::Authority;
use net::*;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use wire::codec::Codec;
use wire::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use wire::{ErrorCode, ErrorReply};

mod certificates;

/// A listener, and what drives it and both ends of connections to it.
struct World {
    reactor: Reactor,
    address: String,
}

impl World {
    fn new(transport: &dyn Transport, address: &str) -> Self {
        Self::of(transport.listen(address).unwrap())
    }

    fn of(listener: Box<dyn Listener>) -> Self {
        let address = listener.address();
        let mut reactor = Reactor::new().unwrap();
        reactor.add_listener(listener).unwrap();
        Self { reactor, address }
    }

    fn tls(identity: Identity) -> Self {
        let tls = Tls::default().listening_as(Identities::new(identity));
        Self::new(&tls, "tls://127.0.0.1:0")
    }

    /// Where it listens, for sockets.
    fn authority(&self) -> &str {
        self.address.split_once("://").unwrap().1
    }

    fn next(&mut self) -> (LinkId, LinkEvent) {
        loop {
            match self.reactor.next() {
                Some(ReactorEvent::Link { link, event }) => return (link, event),
                Some(_) => {}
                None => self.reactor.wait(None).unwrap(),
            }
        }
    }

    fn connect(&mut self, tls: &Tls, address: &str) -> LinkId {
        let link = tls.connect(address).unwrap();
        self.reactor.add_link(link).unwrap()
    }

    /// How the connection of this end ends, which never stands.
    fn refusal(&mut self, tls: &Tls, address: &str) -> String {
        let client = self.connect(tls, address);
        loop {
            match self.next() {
                (link, LinkEvent::Down(error)) if link == client => return error.to_string(),
                (link, LinkEvent::Up) => panic!("{link:?} is up"),
                _ => {}
            }
        }
    }

    /// Connects, and gives both ends: the client's first.
    fn connected(&mut self, tls: &Tls, address: &str) -> [LinkId; 2] {
        let client = self.connect(tls, address);
        let mut server = None;
        let mut up = 0;
        while up < 2 {
            match self.next() {
                (link, LinkEvent::Up) => {
                    up += 1;
                    server = server.or((link != client).then_some(link));
                }
                (link, other) => panic!("{link:?}: {other:?}"),
            }
        }
        [client, server.unwrap()]
    }

    /// How the one connection that is accepted ends.
    fn end_of_accepted(&mut self) -> NetError {
        loop {
            if let (_, LinkEvent::Down(error)) = self.next() {
                return error;
            }
        }
    }

    fn pass(&mut self, from: LinkId, payload: Bytes) -> Received {
        let message = Message {
            payload: vec![payload],
            lane: Lane::Bulk,
            ..Message::control(FrameKind::Request, 1, Bytes::new())
        };
        self.reactor.link(from).unwrap().send(message);
        match self.next() {
            (_, LinkEvent::Message(received)) => received,
            other => panic!("{other:?}"),
        }
    }
}

fn pinned(tls: &Authority) -> Tls {
    Tls::default().trusting(Trust::Certificates(vec![tls.fingerprint()]))
}

#[test]
fn a_hash_names_the_server_or_its_authority_and_no_other() {
    let (ours, other) = (Authority::new("ours"), Authority::new("ours"));
    // The name does not matter: the hash is the server's.
    let identity = ours.identity(&["elsewhere"], (2020, 2200));
    let hashes = identity.fingerprints();
    let mut world = World::tls(identity);
    for hash in hashes {
        let address = format!("{}?sha256={hash}", world.address);
        world.connected(&Tls::default(), &address);
    }
    let address = world.address.clone();
    let refusal = world.refusal(&pinned(&other), &address);
    assert!(
        refusal.contains("not the one that is expected"),
        "{refusal}"
    );
    assert!(refusal.contains(&address), "{refusal}");
}

#[test]
fn an_authority_vouches_for_names_and_times() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    let tls = Tls::default().trusting(Trust::Authorities(ours.write(directory.path())));
    let mut world = World::tls(ours.of_this_host());
    let address = world.address.clone();
    world.connected(&tls, &address);
    let refused = [
        (
            ours.identity(&["node7"], (2020, 2200)),
            "not for 127.0.0.1, but for",
        ),
        (
            ours.identity(&["127.0.0.1"], (2020, 2021)),
            "certificate expired",
        ),
        (ours.identity(&["127.0.0.1"], (2199, 2200)), "not valid yet"),
        (Authority::new("other").of_this_host(), "no authority in"),
    ];
    for (identity, reason) in refused {
        let mut world = World::tls(identity);
        let address = world.address.clone();
        let refusal = world.refusal(&tls, &address);
        assert!(refusal.contains(reason), "{reason}: {refusal}");
    }
    let mut world = World::tls(ours.identity(&["node7"], (2020, 2200)));
    let named = format!("{}?name=node7", world.address);
    world.connected(&tls, &named);
}

#[test]
fn nobody_is_trusted_in_silence() {
    for (address, reason) in [
        (
            "tls://127.0.0.1:9",
            "nothing says which certificate to trust",
        ),
        ("tls://127.0.0.1:9?ca=/does/not/exist", "/does/not/exist"),
        (
            "tls://127.0.0.1:9?ca=/dev/null",
            "there is no certificate in it",
        ),
        ("tls://a b:9?sha256=00", "64 hexadecimal digits"),
    ] {
        let error = Tls::default().check(address).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        let error = Tls::default().connect(address).err().unwrap().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let listening = Tls::default().listen("tls://127.0.0.1:0").err().unwrap();
    assert!(listening.to_string().contains("there is no certificate"));
}

#[test]
fn a_new_certificate_counts_for_the_next_connection() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let identities = Identities::new(old.of_this_host());
    let tls = Tls::default().listening_as(identities.clone());
    let mut world = World::new(&tls, "tls://127.0.0.1:0");
    let address = world.address.clone();
    let [client, _] = world.connected(&pinned(&old), &address);
    identities.replace(new.of_this_host());
    world.connected(&pinned(&new), &address);
    // Who is there stays.
    let received = world.pass(client, Bytes::from(vec![7; 100_000]));
    assert!(received.payload.iter().all(|byte| *byte == 7));
    let refusal = world.refusal(&pinned(&old), &address);
    assert!(refusal.contains("not the one"), "{refusal}");
}

#[test]
fn megabytes_pass_both_ways() {
    let authority = Authority::new("ours");
    let mut world = World::tls(authority.of_this_host());
    let address = world.address.clone();
    let ends = world.connected(&pinned(&authority), &address);
    for (from, length) in [(0, 1), (1, 70_000_001), (0, 33_333_333), (1, 16 << 10)] {
        let payload: Vec<u8> = (0..length).map(|at: u32| ((at * 7) >> 3) as u8).collect();
        let payload = Bytes::from(payload);
        let received = world.pass(ends[from], payload.clone());
        assert!(received.payload[..] == payload[..], "{length} bytes");
    }
}

/// What comes of a client that says Hello without TLS at `world`: what it is told, and why the
/// server's end is down.
///
/// # Errors
/// That it is served.
fn without_tls(world: &mut World) -> Result<(ErrorReply, String), String> {
    let tcp = world.address.replace("tls://", "tcp://");
    let client = Tcp::default().connect(&tcp).unwrap();
    let client = world.reactor.add_link(client).unwrap();
    let hello = Message::control(FrameKind::Hello, 0, Bytes::new());
    world.reactor.link(client).unwrap().send(hello);
    let (mut told, mut reason) = (None, None);
    let mut is_down = false;
    while reason.is_none() || !is_down {
        match world.next() {
            (link, LinkEvent::Down(_)) if link == client => is_down = true,
            (link, LinkEvent::Up) if link == client => {}
            (link, LinkEvent::Message(message)) if link == client => {
                told = Some(ErrorReply::from_bytes("reply", &message.head).unwrap());
            }
            (_, LinkEvent::Down(error)) => reason = Some(error.to_string()),
            (_, event) => return Err(format!("the server's end: {event:?}")),
        }
    }
    Ok((
        told.ok_or("no answer that says why")?,
        reason.unwrap_or_default(),
    ))
}

#[test]
fn who_speaks_without_tls_is_told_so_and_not_served() {
    let mut world = World::tls(Authority::new("ours").of_this_host());
    let (told, reason) = without_tls(&mut world).unwrap();
    assert_eq!(told.code, ErrorCode::Unsupported);
    assert!(told.message.contains("tls://"), "{told}");
    assert!(reason.contains("it speaks without TLS"), "{reason}");
}

/// A planted fault: a port of TLS that takes whose first byte is that of a frame.
struct TakesPlaintext(Box<dyn Listener>);

impl Listener for TakesPlaintext {
    fn address(&self) -> String {
        self.0.address().replace("tcp://", "tls://")
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        self.0.accept()
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.0.readiness()
    }

    fn attach(&mut self, notify: Notify) {
        self.0.attach(notify);
    }
}

#[test]
fn a_port_of_tls_that_takes_plaintext_is_found() {
    let listener = Tcp::default().listen("tcp://127.0.0.1:0").unwrap();
    let mut world = World::of(Box::new(TakesPlaintext(listener)));
    let found = without_tls(&mut world).unwrap_err();
    assert!(found.contains("the server's end"), "{found}");
}

#[test]
fn tls_where_there_is_none_is_an_error_on_both_sides() {
    let mut world = World::new(&Tcp::default(), "tcp://127.0.0.1:0");
    let address = world.address.replace("tcp://", "tls://");
    let tls = pinned(&Authority::new("ours"));
    let client = world.connect(&tls, &address);
    let mut reasons = Vec::new();
    while reasons.len() < 2 {
        if let (link, LinkEvent::Down(error)) = world.next() {
            reasons.push((link == client, error.to_string()));
        }
    }
    for (is_client, reason) in reasons {
        let expected = match is_client {
            true => "it may speak without TLS there",
            false => "it is a handshake of TLS, and this address is without",
        };
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn a_server_that_answers_without_tls_is_named_as_that() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tls://{}", listener.local_addr().unwrap());
    for (answer, reason) in [
        (&b"\x89 a frame"[..], "it speaks without TLS there"),
        (&b"HTTP/1.1 400"[..], "its first byte is 0x48"),
        (&b""[..], "it ended the connection before TLS was agreed on"),
        (&[0x16, 3, 1, 0, 4, 9, 9, 9, 9], "what TLS does not take"),
        (&[0x15, 3, 3, 0, 2, 2, 40], "the alert HandshakeFailure"),
    ] {
        let mut reactor = Reactor::new().unwrap();
        let link = pinned(&Authority::new("ours")).connect(&address).unwrap();
        reactor.add_link(link).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(answer).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let error = loop {
            match reactor.next() {
                Some(ReactorEvent::Link { event, .. }) => match event {
                    LinkEvent::Down(error) => break error.to_string(),
                    other => panic!("{other:?}"),
                },
                Some(_) => {}
                None => reactor.wait(None).unwrap(),
            }
        };
        assert!(error.contains(reason), "{reason}: {error}");
    }
}

#[test]
fn garbage_ends_a_handshake_and_costs_no_more_than_its_bound() {
    let mut world = World::tls(Authority::new("ours").of_this_host());
    // A handshake message of 16 MiB that never ends, in records of 16 KiB.
    let mut endless = vec![0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
    endless.resize(5 + (16 << 10), 0);
    for (bytes, times) in [(&b"GET / HTTP/1.1\r\n\r\n"[..], 1), (&endless[..], 64)] {
        let mut peer = TcpStream::connect(world.authority()).unwrap();
        let bytes = bytes.repeat(times);
        // The other side ends it before all is written.
        let writer = std::thread::spawn(move || {
            let _ = peer.write_all(&bytes);
            let mut rest = Vec::new();
            let _ = peer.read_to_end(&mut rest);
        });
        let error = world.end_of_accepted();
        assert!(matches!(error, NetError::Refused(_)), "{error:?}");
        writer.join().unwrap();
    }
}

#[test]
fn those_who_do_not_finish_their_handshake_take_no_turn_of_others() {
    let authority = Authority::new("ours");
    let mut world = World::tls(authority.of_this_host());
    let address = world.address.clone();
    let mut silent: Vec<TcpStream> = Vec::new();
    for begins in 0..200 {
        let mut peer = TcpStream::connect(world.authority()).unwrap();
        // Some say nothing, some begin.
        peer.write_all(&[0x16, 3, 1, 2, 0][..begins % 6]).unwrap();
        silent.push(peer);
        while world.reactor.links().count() < silent.len() {
            if world.reactor.next().is_none() {
                world.reactor.wait(None).unwrap();
            }
        }
    }
    let [client, _] = world.connected(&pinned(&authority), &address);
    for _ in 0..10 {
        world.pass(client, Bytes::from(vec![1; 1 << 20]));
    }
    assert_eq!(world.reactor.links().count(), 202);
    assert!(world.reactor.next().is_none(), "nobody has anything to do");
}

/// A client made of `rustls` alone, blocking.
struct Foreign {
    session: ClientConnection,
    socket: TcpStream,
}

impl Foreign {
    fn connect(world: &World, authority: &Authority, protocols: &[&[u8]]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let text = std::fs::read(authority.write(directory.path())).unwrap();
        let mut roots = RootCertStore::empty();
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        roots
            .add(CertificateDer::from_pem_slice(&text).unwrap())
            .unwrap();
        let provider = crypto_provider();
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let name = ServerName::try_from("localhost").unwrap();
        Self {
            session: ClientConnection::new(Arc::new(config), name).unwrap(),
            socket: TcpStream::connect(world.authority()).unwrap(),
        }
    }

    fn stream(&mut self) -> rustls::Stream<'_, ClientConnection, TcpStream> {
        rustls::Stream::new(&mut self.session, &mut self.socket)
    }
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        kind: FrameKind::Request,
        flags: 0,
        head_bytes: 0,
        payload_bytes: payload.len() as u64,
        id: 5,
    };
    let header: [u8; FRAME_HEADER_BYTES] = header.to_bytes(&[]);
    [&header[..], payload].concat()
}

/// What comes of the one accepted link while a foreign client does something.
fn played(
    protocols: &'static [&'static [u8]],
    client: impl FnOnce(Foreign) + Send + 'static,
) -> Vec<LinkEvent> {
    let authority = Authority::new("ours");
    let mut world = World::tls(authority.of_this_host());
    let foreign = Foreign::connect(&world, &authority, protocols);
    let thread = std::thread::spawn(move || client(foreign));
    let mut events = Vec::new();
    while !matches!(events.last(), Some(LinkEvent::Down(_))) {
        events.push(world.next().1);
    }
    thread.join().unwrap();
    events
}

#[test]
fn the_end_of_tls_is_told_from_a_cut() {
    let ours: &[&[u8]] = &[b"thalweg/1"];
    let closed = played(ours, |mut client| {
        client.stream().write_all(&frame(b"last words")).unwrap();
        client.session.send_close_notify();
        client.session.complete_io(&mut client.socket).unwrap();
        // The writing half stays open: close_notify alone is the end.
        let mut rest = Vec::new();
        let _ = client.stream().read_to_end(&mut rest);
    });
    let cut = played(ours, |mut client| {
        client.stream().write_all(&frame(b"last words")).unwrap();
    });
    for (events, expected) in [(&closed, "closed the connection"), (&cut, "was cut")] {
        let [
            LinkEvent::Up,
            LinkEvent::Message(words),
            LinkEvent::Down(error),
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!(&words.payload[..], b"last words");
        assert!(matches!(error, NetError::Closed(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_record_that_was_changed_ends_the_connection_after_what_came_before() {
    let events = played(&[b"thalweg/1"], |mut client| {
        client.stream().write_all(&frame(b"before")).unwrap();
        client.socket.write_all(&[0x17, 3, 3, 0, 40]).unwrap();
        client.socket.write_all(&[9; 40]).unwrap();
        let mut rest = Vec::new();
        let _ = client.stream().read_to_end(&mut rest);
    });
    let [
        LinkEvent::Up,
        LinkEvent::Message(words),
        LinkEvent::Down(error),
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(&words.payload[..], b"before");
    assert!(matches!(error, NetError::Protocol(_)), "{error:?}");
    assert!(
        error.to_string().contains("what TLS does not take"),
        "{error}"
    );
}

#[test]
fn other_protocols_in_tls_are_refused_and_none_is_served() {
    let refused = played(&[b"h2"], |mut client| {
        let error = client.stream().write_all(b"PRI").unwrap_err().to_string();
        assert!(error.contains("NoApplicationProtocol"), "{error}");
    });
    assert!(matches!(&refused[..], [LinkEvent::Down(_)]), "{refused:?}");
    let unnamed = played(&[], |mut client| {
        client.stream().write_all(&frame(b"ours")).unwrap();
    });
    assert!(matches!(
        &unnamed[..],
        [LinkEvent::Up, LinkEvent::Message(_), _]
    ));
    let foreign = played(&[], |mut client| {
        // It may be ended while it is written.
        let _ = client.stream().write_all(b"GET / HTTP/1.1");
        let mut rest = Vec::new();
        let _ = client.stream().read_to_end(&mut rest);
    });
    let [LinkEvent::Up, LinkEvent::Down(error)] = &foreign[..] else {
        panic!("{foreign:?}");
    };
    assert!(error.to_string().contains("first byte is 0x47"), "{error}");
}

#[test]
fn new_keys_are_taken_in_the_middle() {
    let events = played(&[b"thalweg/1"], |mut client| {
        for _ in 0..3 {
            client.stream().write_all(&frame(&[3; 50_000])).unwrap();
            client.session.refresh_traffic_keys().unwrap();
        }
        client.session.send_close_notify();
        while client.session.wants_write() {
            client.session.write_tls(&mut client.socket).unwrap();
        }
        let mut rest = Vec::new();
        let _ = client.stream().read_to_end(&mut rest);
    });
    let is_whole = |event: &LinkEvent| match event {
        LinkEvent::Message(received) => received.payload[..] == [3; 50_000],
        _ => false,
    };
    assert_eq!(events.iter().filter(|event| is_whole(event)).count(), 3);
    assert!(matches!(
        events.last(),
        Some(LinkEvent::Down(NetError::Closed(_)))
    ));
}

/// A proxy for one connection: what it was asked, with `answer` given, and bytes carried to
/// `target` both ways where the answer says so.
fn proxy(answer: &'static str, target: String) -> (String, std::thread::JoinHandle<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://jo:secret@{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            asked.push(byte[0]);
        }
        // In pieces, as networks like it.
        for piece in answer.as_bytes().chunks(7) {
            client.write_all(piece).unwrap();
        }
        if answer.contains(" 200 ") {
            let mut server = TcpStream::connect(target).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let back = std::thread::spawn(move || std::io::copy(&mut server, &mut client));
            std::io::copy(&mut from, &mut to).unwrap();
            to.shutdown(std::net::Shutdown::Write).unwrap();
            back.join().unwrap().unwrap();
        }
        String::from_utf8(asked).unwrap()
    });
    (address, thread)
}

#[test]
fn a_proxy_leads_out_of_a_site() {
    let ours = Authority::new("ours");
    let mut world = World::tls(ours.of_this_host());
    let (address, asked) = proxy(
        "HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n",
        world.authority().to_owned(),
    );
    let tls = pinned(&ours).through(Proxies::new(address, "cluster.local"));
    // Only the proxy knows where that is.
    let [client, server] = world.connected(&tls, "tls://relay.invalid:443");
    let payload = Bytes::from(vec![7; 300_000]);
    assert_eq!(world.pass(client, payload.clone()).payload[..], payload[..]);
    assert_eq!(world.pass(server, payload.clone()).payload[..], payload[..]);
    drop(world);
    let asked = asked.join().unwrap();
    assert!(
        asked.starts_with("CONNECT relay.invalid:443 HTTP/1.1\r\n"),
        "{asked}"
    );
    assert!(
        asked.contains("Proxy-Authorization: Basic am86c2VjcmV0\r\n"),
        "{asked}"
    );
}

#[test]
fn what_a_proxy_refuses_is_said_in_its_words() {
    let ours = Authority::new("ours");
    let long: &'static str = format!("HTTP/1.1 404 No\r\nX: {}", "x".repeat(9000)).leak();
    for (answer, reason) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "refuses: 407 Proxy Auth",
        ),
        (
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
            "refuses: 403 Forbidden",
        ),
        ("SSH-2.0-OpenSSH_9\r\n", "no HTTP"),
        ("HTTP/1.1 200", "ended the connection"),
        ("HTTP/1.1 201 Created\r\n\r\nmore", "more than its answer"),
        (long, "too great a length"),
    ] {
        let mut world = World::tls(ours.of_this_host());
        // A target is reached only where the answer is " 200 " and whole.
        let (address, asked) = proxy(answer, "127.0.0.1:1".to_owned());
        let tls = pinned(&ours).through(Proxies::new(address, ""));
        let refusal = world.refusal(&tls, "tls://relay.invalid:443");
        assert!(refusal.contains(reason), "{answer}: {refusal}");
        assert!(!refusal.contains("secret"), "{refusal}");
        drop(world);
        drop(asked);
    }
}
