//! The reactor over every transport: what its drivers rely on.

use bytes::Bytes;
use memory::Buffer;
use net::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use wire::frame::{FrameHeader, FrameKind};

/// Long enough for anything that works at all.
const WATCHDOG: Duration = Duration::from_secs(60);

fn transports() -> Transports {
    Transports::new()
        .with(Tcp::default())
        .with(Unix::default())
        .with(Inproc::default())
}

fn next(reactor: &mut Reactor) -> ReactorEvent {
    let began = Instant::now();
    loop {
        if let Some(event) = reactor.next() {
            return event;
        }
        assert!(began.elapsed() < WATCHDOG, "waited in vain");
        reactor.wait(Some(WATCHDOG)).unwrap();
    }
}

fn ask(id: u64, payload: usize) -> Message {
    Message {
        payload: vec![Bytes::from(vec![7; payload])],
        lane: Lane::Bulk,
        ..Message::control(FrameKind::Request, id, Bytes::new())
    }
}

/// Runs `test` with a fresh address of every scheme.
fn everywhere(name: &str, test: impl Fn(&str)) {
    let directory = tempfile::tempdir().unwrap();
    test("tcp://127.0.0.1:0");
    test(&format!("unix://{}/socket", directory.path().display()));
    test(&format!("inproc://{name}"));
}

/// Answers every request with a reply of the same id and payload, until woken.
fn echo(mut reactor: Reactor) {
    loop {
        match next(&mut reactor) {
            ReactorEvent::Woken => return,
            ReactorEvent::Link {
                link,
                event: LinkEvent::Up,
            } => reactor.frame(link),
            ReactorEvent::Link {
                link,
                event: LinkEvent::Message(received),
            } => {
                let link = reactor.link(link).unwrap();
                link.send(Message {
                    payload: vec![received.payload.freeze()],
                    lane: Lane::Bulk,
                    ..Message::control(FrameKind::Reply, received.id, received.head)
                });
            }
            ReactorEvent::Link {
                link,
                event: LinkEvent::Down(_),
            } => drop(reactor.remove_link(link)),
            _ => {}
        }
    }
}

fn with_echo(address: &str, test: impl FnOnce(&str)) {
    with_spinning_echo(address, Duration::ZERO, test);
}

fn with_spinning_echo(address: &str, spin: Duration, test: impl FnOnce(&str)) {
    let listener = transports().listen(address).unwrap();
    let address = listener.address();
    let mut reactor = Reactor::new().unwrap();
    reactor.set_spin(spin);
    reactor.add_listener(listener).unwrap();
    let waker = reactor.waker();
    let server = std::thread::spawn(move || echo(reactor));
    test(&address);
    waker.wake();
    server.join().unwrap();
}

#[test]
fn calls_between_two_threads() {
    everywhere("calls", |address| {
        with_echo(address, |address| {
            let mut reactor = Reactor::new().unwrap();
            let links: Vec<_> = (0..4)
                .map(|_| {
                    let link = transports().connect(address).unwrap();
                    reactor.add_link(link).unwrap()
                })
                .collect();
            for (index, link) in links.iter().enumerate() {
                for id in 0..20 {
                    let message = ask(id, index * 300_000 + id as usize);
                    reactor.link(*link).unwrap().send(message);
                }
            }
            let mut replies = vec![0; links.len()];
            while replies.iter().any(|count| *count < 20) {
                let ReactorEvent::Link { link, event } = next(&mut reactor) else {
                    panic!("nobody else is here");
                };
                let index = links.iter().position(|other| *other == link).unwrap();
                match event {
                    LinkEvent::Message(received) => {
                        assert_eq!(received.id, replies[index], "in order");
                        let bytes = index * 300_000 + received.id as usize;
                        assert_eq!(received.payload.len(), bytes);
                        assert!(received.payload.iter().all(|byte| *byte == 7));
                        replies[index] += 1;
                    }
                    LinkEvent::Up => assert_eq!(replies[index], 0),
                    other => panic!("{other:?}"),
                }
            }
            for link in links {
                let mut link = reactor.remove_link(link).unwrap();
                link.close("done");
            }
            assert!(reactor.next().is_none());
        });
    });
}

#[test]
fn who_spins_hears_everybody() {
    // Some of the waits are slept through, others not.
    let spin = Duration::from_micros(50);
    everywhere("spins", |address| {
        with_spinning_echo(address, spin, |address| {
            let mut reactor = Reactor::new().unwrap();
            reactor.set_spin(spin);
            let link = transports().connect(address).unwrap();
            let link = reactor.add_link(link).unwrap();
            for id in 0..500 {
                reactor.link(link).unwrap().send(ask(id, id as usize));
                let received = loop {
                    match next(&mut reactor) {
                        ReactorEvent::Link {
                            event: LinkEvent::Message(received),
                            ..
                        } => break received,
                        ReactorEvent::Link {
                            event: LinkEvent::Up,
                            ..
                        } => {}
                        other => panic!("{other:?}"),
                    }
                };
                assert_eq!((received.id, received.payload.len()), (id, id as usize));
            }
            // Nothing comes: it does not look for ever.
            reactor.wait(Some(Duration::from_millis(1))).unwrap();
            assert!(reactor.next().is_none());
        });
    });
}

#[test]
fn no_wake_up_is_lost_when_every_write_comes_short() {
    // Buffers of the least size that the system has: a message takes dozens
    // of writes and reads, both ways at once.
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix://{}/socket", directory.path().display());
    let tiny = || {
        Unix::new(LinkOptions {
            socket_buffer_bytes: 1,
            ..LinkOptions::default()
        })
    };
    let mut reactor = Reactor::new().unwrap();
    reactor
        .add_listener(tiny().listen(&address).unwrap())
        .unwrap();
    let waker = reactor.waker();
    let server = std::thread::spawn(move || echo(reactor));
    let mut reactor = Reactor::new().unwrap();
    let links: Vec<_> = (0..3)
        .map(|_| reactor.add_link(tiny().connect(&address).unwrap()).unwrap())
        .collect();
    const COUNT: u64 = 60;
    for (index, link) in links.iter().enumerate() {
        for id in 0..COUNT {
            let bytes = (id as usize * 7919 + index) % 100_000;
            reactor.link(*link).unwrap().send(ask(id, bytes));
        }
    }
    let mut replies = 0;
    while replies < COUNT * links.len() as u64 {
        if let ReactorEvent::Link {
            event: LinkEvent::Message(_),
            ..
        } = next(&mut reactor)
        {
            replies += 1;
        }
    }
    waker.wake();
    server.join().unwrap();
}

#[test]
fn one_that_floods_does_not_starve_another() {
    everywhere("flood", |address| {
        let mut reactor = Reactor::new().unwrap();
        let listener = transports().listen(address).unwrap();
        let address = listener.address();
        reactor.add_listener(listener).unwrap();
        let flood = reactor
            .add_link(transports().connect(&address).unwrap())
            .unwrap();
        let quiet = reactor
            .add_link(transports().connect(&address).unwrap())
            .unwrap();
        const COUNT: u64 = 200;
        for id in 0..COUNT {
            reactor.link(flood).unwrap().send(ask(id, 1 << 20));
        }
        reactor.link(quiet).unwrap().send(ask(1000, 1));
        let mut flooded = 0;
        let mut before_quiet = None;
        while flooded < COUNT || before_quiet.is_none() {
            if let ReactorEvent::Link {
                event: LinkEvent::Message(received),
                ..
            } = next(&mut reactor)
            {
                match received.id {
                    1000 => before_quiet = Some(flooded),
                    _ => flooded += 1,
                }
            }
        }
        let before = before_quiet.unwrap();
        assert!(before < COUNT / 4, "{before} large messages came first");
    });
}

#[test]
fn nothing_to_do_is_nothing_done() {
    everywhere("quiet", |address| {
        with_echo(address, |address| {
            let mut reactor = Reactor::new().unwrap();
            let link = transports().connect(address).unwrap();
            let link = reactor.add_link(link).unwrap();
            for id in 0..3 {
                reactor.link(link).unwrap().send(ask(id, 100_000));
                while !matches!(
                    next(&mut reactor),
                    ReactorEvent::Link {
                        event: LinkEvent::Message(_),
                        ..
                    }
                ) {}
            }
            // The last reply may be followed by one notice of space to write.
            assert!(reactor.next().is_none());
            reactor.wait(Some(Duration::from_millis(1))).unwrap();
            assert!(reactor.next().is_none());
            let began = Instant::now();
            let quiet = Duration::from_millis(60);
            reactor.wait(Some(quiet)).unwrap();
            assert!(began.elapsed() >= quiet, "woken for nothing");
            assert!(reactor.next().is_none());
        });
    });
}

#[test]
fn a_waker_is_heard_wherever_it_calls() {
    let mut reactor = Reactor::new().unwrap();
    let waker = reactor.waker();
    // Before the wait, twice: reported once.
    waker.wake();
    waker.wake();
    assert!(matches!(next(&mut reactor), ReactorEvent::Woken));
    assert!(reactor.next().is_none());
    // During the wait.
    let other = std::thread::spawn({
        let waker = waker.clone();
        move || waker.wake()
    });
    assert!(matches!(next(&mut reactor), ReactorEvent::Woken));
    other.join().unwrap();
    // In another's wait for our descriptor, which is registered there.
    assert!(reactor.next().is_none());
    let mut outer = mio::Poll::new().unwrap();
    outer
        .registry()
        .register(
            &mut mio::unix::SourceFd(&reactor.as_raw_fd()),
            mio::Token(1),
            mio::Interest::READABLE,
        )
        .unwrap();
    waker.wake();
    let mut events = mio::Events::with_capacity(4);
    outer.poll(&mut events, Some(WATCHDOG)).unwrap();
    assert_eq!(events.iter().count(), 1);
    reactor.wait(Some(Duration::ZERO)).unwrap();
    assert!(matches!(reactor.next(), Some(ReactorEvent::Woken)));
}

#[test]
fn all_descriptors_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut reactor = Reactor::new().unwrap();
    assert_eq!(reactor.descriptors().len(), 2, "epoll and waker");
    let listener = transports().listen("tcp://127.0.0.1:0").unwrap();
    let tcp = listener.address();
    reactor.add_listener(listener).unwrap();
    let unix = format!("unix://{}/socket", directory.path().display());
    let listener = transports().listen(&unix).unwrap();
    reactor.add_listener(listener).unwrap();
    for address in [&tcp, &unix] {
        let link = transports().connect(address).unwrap();
        reactor.add_link(link).unwrap();
    }
    for _ in 0..6 {
        next(&mut reactor);
    }
    assert!(reactor.next().is_none(), "two accepted, four up");
    let mut descriptors = reactor.descriptors();
    descriptors.sort();
    descriptors.dedup();
    assert_eq!(descriptors.len(), 2 + 2 + 4);
    for descriptor in descriptors {
        assert!(std::path::Path::new(&format!("/proc/self/fd/{descriptor}")).exists());
    }
}

#[test]
fn unknown_schemes_name_the_known_ones() {
    let error = transports().connect("carrier://pigeon").err().unwrap();
    assert_eq!(
        error.to_string(),
        "carrier://pigeon: no transport for carrier://, known are tcp://, unix://, inproc://"
    );
    assert!(transports().listen("no scheme").is_err());
}

#[test]
fn a_dead_servers_socket_is_replaced_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let address = format!("unix://{}", path.display());
    // A server that died without a word leaves its socket.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listener = transports().listen(&address).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "its user's alone");
    // One that lives keeps it.
    let error = transports().listen(&address).err().unwrap();
    assert!(
        error.to_string().contains("a server answers there"),
        "{error}"
    );
    // One whose socket was replaced takes it for another's.
    std::fs::remove_file(&path).unwrap();
    let other = transports().listen(&address).unwrap();
    drop(listener);
    assert!(path.exists());
    drop(other);
    assert!(!path.exists());
    // A file that is no socket stays.
    std::fs::write(&path, "precious").unwrap();
    assert!(transports().listen(&address).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    // Of many servers that find a dead one's socket, one replaces it.
    std::fs::remove_file(&path).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let starting: Vec<_> = (0..8)
        .map(|_| {
            let address = address.clone();
            std::thread::spawn(move || transports().listen(&address).ok())
        })
        .collect();
    let listening: Vec<_> = starting
        .into_iter()
        .filter_map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(listening.len(), 1);
    assert!(transports().connect(&address).is_ok());
    drop(listening);
    let long = format!("unix://{}/{}", directory.path().display(), "x".repeat(200));
    assert!(transports().listen(&long).is_err());
}

#[test]
fn a_peer_on_a_unix_socket_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix://{}/socket", directory.path().display());
    let mut listener = transports().listen(&address).unwrap();
    let link = transports().connect(&address).unwrap();
    let accepted = listener.accept().unwrap().unwrap();
    for link in [link, accepted] {
        assert_eq!(link.peer().pid, Some(std::process::id()));
        assert!(link.peer().uid.is_some());
        assert!(link.peer().in_process);
    }
}

#[test]
fn regions_between_two_threads() {
    everywhere("regions", |address| {
        let listener = transports().listen(address).unwrap();
        let address = listener.address();
        let data = Bytes::from((0..2_000_000u32).map(|i| i as u8).collect::<Vec<_>>());
        let owner = std::thread::spawn({
            let data = data.clone();
            move || {
                let mut reactor = Reactor::new().unwrap();
                let link = transports().connect(&address).unwrap();
                let id = reactor.add_link(link).unwrap();
                let link = reactor.link(id).unwrap();
                let region = link.expose(data);
                let head = wire::Codec::to_bytes(&region);
                link.send(Message::control(FrameKind::Request, 1, head));
                while !matches!(
                    next(&mut reactor),
                    ReactorEvent::Link {
                        event: LinkEvent::Down(_),
                        ..
                    }
                ) {}
            }
        });
        let mut reactor = Reactor::new().unwrap();
        reactor.add_listener(listener).unwrap();
        let chunks = data.len().div_ceil(512 * 1024);
        let mut left = chunks;
        while left > 0 {
            let ReactorEvent::Link { link, event } = next(&mut reactor) else {
                continue;
            };
            match event {
                LinkEvent::Message(received) => {
                    let region = wire::Codec::from_bytes("region", &received.head);
                    let region: wire::message::Region = region.unwrap();
                    for chunk in 0..chunks {
                        let offset = chunk * 512 * 1024;
                        let read = RegionRead {
                            region: region.clone(),
                            offset: offset as u64,
                            into: Buffer::zeroed((data.len() - offset).min(512 * 1024)),
                            block_bytes: 4096,
                        };
                        let link = reactor.link(link).unwrap();
                        link.read(BulkToken(offset as u64), read);
                    }
                }
                LinkEvent::ReadDone { token, result } => {
                    let (buffer, _) = result.unwrap();
                    let at = token.0 as usize;
                    assert!(buffer[..] == data[at..at + buffer.len()]);
                    left -= 1;
                }
                _ => {}
            }
        }
        drop(reactor);
        owner.join().unwrap();
    });
}

/// A listener that cannot take what waits for it, for a while.
struct Poor {
    inner: Box<dyn Listener>,
    failures: u32,
}

impl Listener for Poor {
    fn address(&self) -> String {
        self.inner.address()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        if self.failures > 0 {
            self.failures -= 1;
            return Err(NetError::System("too many open files".to_owned()));
        }
        self.inner.accept()
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.inner.readiness()
    }

    fn attach(&mut self, notify: Notify) {
        self.inner.attach(notify);
    }

    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        self.inner.descriptor()
    }
}

#[test]
fn a_listener_that_failed_tries_again_though_no_link_goes() {
    let inner = transports().listen("tcp://127.0.0.1:0").unwrap();
    let address = inner.address();
    let mut reactor = Reactor::new().unwrap();
    let poor = Poor { inner, failures: 2 };
    reactor.add_listener(Box::new(poor)).unwrap();
    // It waits before anybody looks: nothing new will be reported of it.
    let _client = transports().connect(&address).unwrap();
    for _ in 0..2 {
        let failed = next(&mut reactor);
        assert!(
            matches!(failed, ReactorEvent::AcceptFailed { .. }),
            "{failed:?}"
        );
    }
    let accepted = next(&mut reactor);
    assert!(
        matches!(accepted, ReactorEvent::Accepted { .. }),
        "{accepted:?}"
    );
}

/// A message may be cut anywhere, at its first byte too, and one may be longer than what is read at once.
#[test]
fn frames_and_bytes_come_to_one_port() {
    let shared = Transports::new().with(Tcp::new(LinkOptions {
        carries: Carries::BytesThatBeginWith(b'A'),
        ..LinkOptions::default()
    }));
    let listener = shared.listen("tcp://127.0.0.1:0").unwrap();
    let address = listener.address();
    let authority = address.strip_prefix("tcp://").unwrap();
    let mut reactor = Reactor::new().unwrap();
    reactor.add_listener(listener).unwrap();
    let waker = reactor.waker();
    let server = std::thread::spawn(move || echo(reactor));

    // Nobody is waited for who says nothing.
    let silent = TcpStream::connect(authority).unwrap();
    let mut others = TcpStream::connect(authority).unwrap();
    others.set_read_timeout(Some(WATCHDOG)).unwrap();
    let said: Vec<u8> = b"A".iter().chain(&[9; 200_000]).copied().collect();
    let mut answer = vec![0; said.len()];
    for part in [0..1, 1..4, 4..said.len()] {
        others.write_all(&said[part.clone()]).unwrap();
        others.read_exact(&mut answer[part]).unwrap();
    }
    assert_eq!(answer, said);

    let mut reactor = Reactor::new().unwrap();
    let links = [0, 1, 65_000, 300_000].map(|bytes| {
        let link = Tcp::default().connect(&address).unwrap();
        let link = reactor.add_link(link).unwrap();
        for id in 0..3 {
            reactor.link(link).unwrap().send(ask(id, bytes));
        }
        (link, bytes)
    });
    // A frame that comes in pieces, as any transport may cut it: its first byte alone.
    let mut pieces = TcpStream::connect(authority).unwrap();
    pieces.set_nodelay(true).unwrap();
    let header = FrameHeader {
        kind: FrameKind::Request,
        flags: 0,
        head_bytes: 3,
        payload_bytes: 5,
        id: 7,
    };
    let frame = [&header.to_bytes(b"abc")[..], b"abc", b"hello"].concat();
    for byte in frame {
        pieces.write_all(&[byte]).unwrap();
    }
    pieces.set_read_timeout(Some(WATCHDOG)).unwrap();
    let mut reply = [0; 40];
    pieces.read_exact(&mut reply).unwrap();
    assert_eq!(&reply[32..], b"abchello");
    let mut replies = [0; 4];
    while replies.iter().any(|count| *count < 3) {
        let ReactorEvent::Link { link, event } = next(&mut reactor) else {
            panic!("nobody else is here");
        };
        let index = links.iter().position(|other| other.0 == link).unwrap();
        match event {
            LinkEvent::Message(received) => {
                assert_eq!(received.id, replies[index]);
                assert_eq!(received.payload.len(), links[index].1);
                replies[index] += 1;
            }
            LinkEvent::Up => {}
            other => panic!("{other:?}"),
        }
    }
    drop((silent, others));
    waker.wake();
    server.join().unwrap();
}

/// What is neither is refused as on any other port: the link says that it was up, and why it is down.
#[test]
fn what_is_neither_frames_nor_bytes_is_named() {
    let shared = Transports::new().with(Tcp::new(LinkOptions {
        carries: Carries::BytesThatBeginWith(b'A'),
        ..LinkOptions::default()
    }));
    let listener = shared.listen("tcp://127.0.0.1:0").unwrap();
    let address = listener.address();
    let mut reactor = Reactor::new().unwrap();
    reactor.add_listener(listener).unwrap();
    let mut stranger = TcpStream::connect(address.strip_prefix("tcp://").unwrap()).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut events = Vec::new();
    let error = loop {
        match next(&mut reactor) {
            ReactorEvent::Link {
                link,
                event: LinkEvent::Up,
            } => {
                assert!(!reactor.peek(link).unwrap().capabilities().bytes_alone);
                events.push("up");
                reactor.frame(link);
            }
            ReactorEvent::Link {
                event: LinkEvent::Down(error),
                ..
            } => break error.to_string(),
            ReactorEvent::Accepted { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(events, ["up"]);
    assert!(error.contains("first byte is 0x47"), "{error}");
}
