//! Two sites that nobody reaches: both dial a gateway, and meet there.

#![forbid(unsafe_code)]

mod rig;

use gateway::{Gateway, Launch, Limits, Meetings, Mode, Options, Report};
use relay::{Code, Destination, Offer, Refusal, RelayError, Way};
use rig::{
    ConnectProxy, CuttingProxy, Echo, Side, Site, connect, noise, place, there_and_back, until,
};
use rustls::{ServerConnection, StreamOwned};
use std::io::{self, Cursor, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

/// What a gateway says to an offer that waits.
const WAITS: [u8; 6] = [20, 3, 3, 0, 1, 1];
const UNRECOGNIZED_NAME: u8 = 112;

struct Place {
    gateway: Gateway,
    _directory: tempfile::TempDir,
}

impl Place {
    fn new(meetings: Option<Meetings>, limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let gateway = Gateway::start(Options {
            directory: directory.path().join("gateway"),
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            api: "api.site.org".to_owned(),
            domain: "stream.site.org".to_owned(),
            dialled: None,
            mode: Mode::Pass,
            meetings,
            certificate: None,
            launch: Launch {
                program: vec!["true".to_owned()],
                launcher: Vec::new(),
                inside: "127.0.0.1".to_owned(),
                plain: false,
            },
            introspect: None,
            on_ready: None,
            leave_instances: false,
            limits,
            report: Report::new(|_| {}),
        });
        Self {
            gateway: gateway.unwrap(),
            _directory: directory,
        }
    }

    fn open() -> Self {
        Self::new(Some(Meetings::OfAnybody), Limits::default())
    }

    fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    fn port(&self) -> u16 {
        self.address().port()
    }

    fn met(&self) -> u64 {
        self.gateway.counters().met.load(Ordering::Relaxed)
    }
}

fn try_offer(echo: &Echo, place: Destination) -> Result<Offer, RelayError> {
    rig::try_offer(&[("echo", &echo.address)], |options| {
        options.way = Way::Meets(place);
    })
}

/// Both sides, by different ways to one place.
fn meet(echo: &Echo, offers_at: u16, joins_at: u16) -> Site {
    let offered = try_offer(echo, place(offers_at)).unwrap();
    assert_eq!(offered.address, None);
    Site::join(offered, joins_at, |_| {})
}

#[test]
fn two_that_dial_meet_and_all_of_their_connections_do() {
    let echo = Echo::start();
    let gateway = Place::open();
    let site = meet(&echo, gateway.port(), gateway.port());
    for bytes in [0, 1, 70_000, 20_000_000] {
        let sent = noise(bytes as u64, bytes);
        let back = there_and_back(connect(site.at("echo")), &sent);
        assert!(back == sent, "{bytes} bytes: {} came back", back.len());
    }
    until(|| (site.joined.account().stripes == 4).then_some(()));
    assert!(gateway.met() >= 4);
    assert_eq!(site.joined.account().cuts, 0);
    assert!(gateway.gateway.counters().bytes.load(Ordering::Relaxed) > 40_000_000);
    // Several links at one place: each by its own code.
    let other = Echo::start();
    let second = meet(&other, gateway.port(), gateway.port());
    assert!(there_and_back(connect(second.at("echo")), b"second") == b"second");
    site.joined.stop();
    assert_eq!(site.offered.ended(), Ok(()));
    assert!(there_and_back(connect(second.at("echo")), b"still") == b"still");
}

#[test]
fn streams_live_through_cuts_on_either_way_to_the_place() {
    let echo = Echo::start();
    let gateway = Place::open();
    let ways = [0, 1].map(|_| CuttingProxy::to(&gateway.address().to_string()));
    let [offers_at, joins_at] = ways.each_ref().map(|way| way.address.port());
    let site = meet(&echo, offers_at, joins_at);
    let mut socket = connect(site.at("echo"));
    let sent = noise(3, 8_000_000);
    let mut writer = socket.try_clone().unwrap();
    std::thread::scope(|scope| {
        let sent = &sent;
        scope.spawn(move || writer.write_all(sent).unwrap());
        let mut back = vec![0; sent.len()];
        let mut at = 0;
        for cut in 0..6 {
            let end = sent.len() * (cut + 1) / 6;
            socket.read_exact(&mut back[at..end]).unwrap();
            at = end;
            ways[cut % 2].cut();
        }
        assert!(&back == sent, "other bytes came back");
    });
    until(|| (site.joined.account().stripes == 4).then_some(()));
    assert!(site.joined.account().cuts > 0);
    assert!(there_and_back(connect(site.at("echo")), b"later") == b"later");
}

#[test]
fn an_offer_waits_on_when_its_turn_is_over() {
    let echo = Echo::start();
    let limits = Limits {
        meeting_wait: Duration::from_secs(1),
        ..Limits::default()
    };
    let gateway = Place::new(Some(Meetings::OfAnybody), limits);
    let accepted = || gateway.gateway.counters().accepted.load(Ordering::Relaxed);
    let offered = try_offer(&echo, place(gateway.port())).unwrap();
    until(|| (accepted() >= 6).then_some(()));
    let site = Site::join(offered, gateway.port(), |_| {});
    assert!(there_and_back(connect(site.at("echo")), b"late") == b"late");
    // No more wait than two of one offer.
    assert!(gateway.gateway.waiting() <= 2 + 4);
}

#[test]
fn a_gateway_that_was_not_told_to_lets_nobody_meet() {
    let echo = Echo::start();
    let closed = Place::new(None, Limits::default());
    let refused = try_offer(&echo, place(closed.port()))
        .map(drop)
        .unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("no gateway that lets relays meet"), "{said}");
    let elsewhere = Meetings::Of(vec!["10.0.0.0/8".parse().unwrap()]);
    let narrow = Place::new(Some(elsewhere), Limits::default());
    let refused = try_offer(&echo, place(narrow.port()))
        .map(drop)
        .unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("none wait that comes from here"), "{said}");
    for gateway in [&closed, &narrow] {
        assert_eq!(gateway.gateway.waiting(), 0);
    }
    // What is no gateway at all.
    let refused = try_offer(&echo, place(echo_port(&echo)))
        .map(drop)
        .unwrap_err();
    assert!(refused.to_string().contains("is no gateway"), "{refused}");
    // A relay that listens is none either, and lives on.
    let listens = rig::offer(&[("echo", &echo.address)], |_| {});
    let refused = try_offer(&echo, place(rig::port_of(&listens))).map(drop);
    assert!(refused.unwrap_err().to_string().contains("is no gateway"));
    let port = rig::port_of(&listens);
    let site = Site::join(listens, port, |_| {});
    assert!(there_and_back(connect(site.at("echo")), b"direct") == b"direct");
}

fn echo_port(echo: &Echo) -> u16 {
    echo.address.parse::<SocketAddr>().unwrap().port()
}

#[test]
fn a_code_that_nobody_offers_finds_nobody_and_a_used_one_is_refused() {
    let echo = Echo::start();
    let limits = Limits {
        meeting_wait: Duration::from_secs(2),
        ..Limits::default()
    };
    let gateway = Place::new(Some(Meetings::OfAnybody), limits);
    let offered = try_offer(&echo, place(gateway.port())).unwrap();
    let right = offered.code.clone();
    let refused = rig::try_join(Code::new([9; 10]), gateway.port(), |_| {}).map(drop);
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("nobody waits at 127.0.0.1"), "{said}");
    let site = Site::join(offered, gateway.port(), |_| {});
    let refused = rig::try_join(right, gateway.port(), |_| {}).map(drop);
    assert_eq!(refused, Err(RelayError::Refused(Refusal::Used)));
    assert!(there_and_back(connect(site.at("echo")), b"still") == b"still");
}

#[test]
fn proxies_lead_both_there() {
    let echo = Echo::start();
    let gateway = Place::open();
    let proxies = [0, 1].map(|_| ConnectProxy::start(gateway.port()));
    let [offers, joins] = proxies.each_ref().map(|proxy| Destination {
        host: "gate.elsewhere".to_owned(),
        port: 443,
        proxies: net::Proxies::new(format!("http://jo:secret@{}", proxy.address), ""),
    });
    let offered = try_offer(&echo, offers).unwrap();
    let site = Site::join(offered, 443, |options| options.place = joins);
    assert!(there_and_back(connect(site.at("echo")), b"out") == b"out");
    for proxy in &proxies {
        let asked = proxy.asked();
        assert!(
            asked.starts_with("CONNECT gate.elsewhere:443 HTTP/1.1\r\n"),
            "{asked}"
        );
    }
}

/// A connection to a gateway from an address of its own, that has said something.
fn stranger(to: SocketAddr, says: &[u8]) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0));
    socket.bind(&from.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let mut socket = TcpStream::from(socket);
    socket.write_all(says).unwrap();
    socket
}

#[test]
fn strangers_who_wait_keep_nobody_out() {
    rig::allow_connections();
    let echo = Echo::start();
    let gateway = Place::open();
    let site = meet(&echo, gateway.port(), gateway.port());
    let pending = try_offer(&echo, place(gateway.port())).unwrap();
    let bound = Limits::default().meeting_waiting_max;
    let strangers: Vec<TcpStream> = (0..2 * bound as u32 + 50)
        .map(|count| {
            let side = ["offers", "joins"][count as usize % 2];
            let says = rig::hello_that_speaks(&format!("thalweg-relay-{side}/{count:032x}"));
            stranger(gateway.address(), &says)
        })
        .collect();
    // Of each side so many.
    until(|| {
        let waiting = gateway.gateway.waiting();
        assert!(waiting <= 2 * bound);
        (waiting == 2 * bound).then_some(())
    });
    let second = Site::join(pending, gateway.port(), |_| {});
    assert!(there_and_back(connect(second.at("echo")), b"mine") == b"mine");
    assert!(there_and_back(connect(site.at("echo")), b"too") == b"too");
    // Who waits and goes is forgotten.
    drop(strangers);
    until(|| (gateway.gateway.waiting() <= 8).then_some(()));
}

#[test]
fn who_joins_and_says_nothing_more_wears_nobody_out() {
    let echo = Echo::start();
    let way = Recorder::to(Place::open());
    let offered = try_offer(&echo, place(way.address.port())).unwrap();
    let id = way.rendezvous();
    assert!(!offered.code.to_text().contains(&id));
    let joins = rig::hello_that_speaks(&format!("thalweg-relay-joins/{id}"));
    let mut silent: Vec<TcpStream> = (0..20)
        .map(|_| stranger(way.place.address(), &joins))
        .collect();
    let site = Site::join(offered, way.place.port(), |_| {});
    assert!(there_and_back(connect(site.at("echo")), b"mine") == b"mine");
    for stranger in &mut silent {
        stranger
            .set_read_timeout(Some(Duration::from_secs(120)))
            .unwrap();
        // Each is closed at the deadline of the greeting.
        let mut bytes = [0; 4096];
        while matches!(stranger.read(&mut bytes), Ok(1..)) {}
    }
}

/// What leads to a gateway, and keeps the first bytes that pass.
struct Recorder {
    place: Place,
    address: SocketAddr,
    first: mpsc::Receiver<Vec<u8>>,
}

impl Recorder {
    fn to(place: Place) -> Self {
        let (listener, address) = rig::listener();
        let to = place.address();
        let (keep, first) = mpsc::channel();
        std::thread::spawn(move || {
            for mut socket in listener.incoming().map_while(Result::ok) {
                let mut bytes = vec![0; 4096];
                let read = socket.read(&mut bytes).unwrap_or_default();
                bytes.truncate(read);
                let Ok(mut there) = TcpStream::connect(to) else {
                    return;
                };
                let _ = there.write_all(&bytes);
                let _ = keep.send(bytes);
                rig::splice(socket, there);
            }
        });
        Self {
            place,
            address,
            first,
        }
    }

    /// What anybody on the way reads of an offer.
    fn rendezvous(&self) -> String {
        let first = self.first.recv().unwrap();
        let word = b"thalweg-relay-offers/";
        let at = first.windows(word.len()).position(|part| part == word);
        let id = &first[at.expect("it says so") + word.len()..][..32];
        String::from_utf8(id.to_vec()).unwrap()
    }
}

/// A stream of which something was read already.
struct Again(Cursor<Vec<u8>>, TcpStream);

impl Read for Again {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 => self.1.read(into),
            read => Ok(read),
        }
    }
}

impl Write for Again {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.1.flush()
    }
}

/// A meeting place that ends the TLS of both sides and passes what it reads.
fn place_in_the_middle() -> u16 {
    let (listener, address) = rig::listener();
    let config = rig::server_config();
    std::thread::spawn(move || {
        let mut waiting = Vec::new();
        for mut socket in listener.incoming().map_while(Result::ok) {
            let mut hello = vec![0; 4096];
            let read = socket.read(&mut hello).unwrap();
            hello.truncate(read);
            if hello.windows(8).any(|part| part == b"-offers/") {
                socket.write_all(&WAITS).unwrap();
                waiting.push(socket);
                continue;
            }
            let Some(offer) = waiting.pop() else {
                socket
                    .write_all(&[21, 3, 3, 0, 2, 2, UNRECOGNIZED_NAME])
                    .unwrap();
                continue;
            };
            let session = ServerConnection::new(config.clone()).unwrap();
            let mut joins = StreamOwned::new(session, Again(Cursor::new(hello), socket));
            let mut offers = rig::tls_on(offer);
            let mut bytes = vec![0; 4096];
            let Ok(read) = joins.read(&mut bytes) else {
                continue;
            };
            offers.write_all(&bytes[..read]).unwrap();
            offers.flush().unwrap();
            let read = offers.read(&mut bytes).unwrap();
            joins.write_all(&bytes[..read]).unwrap();
            joins.flush().unwrap();
            let _ = joins.read(&mut bytes);
        }
    });
    address.port()
}

#[test]
fn a_meeting_place_that_ends_tls_is_refused() {
    let echo = Echo::start();
    let port = place_in_the_middle();
    let offered = try_offer(&echo, place(port)).unwrap();
    let refused = rig::try_join(offered.code.clone(), port, |_| {}).map(drop);
    assert_eq!(refused, Err(RelayError::Refused(Refusal::Wrong)));
    let side = Side::new(offered.relay);
    side.until(|event| match event {
        relay::Event::Note(text) => text.contains("came with a wrong code").then_some(()),
        _ => None,
    });
}
