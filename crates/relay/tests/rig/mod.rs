//! Programs, proxies and relays, on free ports of loopback.

#![allow(dead_code, reason = "not every test uses all of it")]

use bytes::BytesMut;
use relay::{
    Account, Code, Destination, Event, Frame, Hub, HubOffer, JoinOptions, Offer, OfferOptions,
    Relay, RelayError, Terms, Way, Welcome, join,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// After this long what was waited for is taken to hang.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Has this process open as many files as the system allows: the usual limit of a user is 1,024.
pub fn allow_connections() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, wanted).expect("a limit may be raised to its maximum");
}

pub fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(WATCHDOG)).unwrap();
    socket
}

/// Asks until there is an answer.
pub fn until<T>(ask: impl Fn() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + WATCHDOG;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(std::time::Instant::now() < deadline, "it does not come");
        std::thread::yield_now();
    }
}

/// Bytes that look like any, the same for a seed.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut all = Vec::with_capacity(bytes);
    while all.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend_from_slice(&state.to_le_bytes());
    }
    all.truncate(bytes);
    all
}

/// Sends all, closes, and reads what comes back to its end.
pub fn there_and_back(mut socket: TcpStream, sent: &[u8]) -> Vec<u8> {
    let mut writer = socket.try_clone().unwrap();
    let mut back = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        socket.read_to_end(&mut back).unwrap();
    });
    back
}

/// A program that sends back what it gets, and ends when that ends.
pub struct Echo {
    pub address: String,
}

impl Echo {
    pub fn start() -> Self {
        let (listener, address) = listener();
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let mut writer = socket.try_clone().unwrap();
                    let mut reader = socket;
                    // A connection that fails has no end to send back.
                    if std::io::copy(&mut reader, &mut writer).is_ok() {
                        let _ = writer.shutdown(Shutdown::Write);
                    }
                });
            }
        });
        Self {
            address: address.to_string(),
        }
    }
}

/// A relay, and what it has reported.
pub struct Side {
    relay: Relay,
    events: Mutex<Vec<Event>>,
}

/// A listener for many offers, and the threads that it is on.
pub struct HubSite {
    pub hub: Hub,
    threads: tokio::runtime::Runtime,
}

impl HubSite {
    pub fn start() -> Self {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let hub = threads.block_on(Hub::listen("127.0.0.1:0", "localhost", None));
        Self {
            hub: hub.unwrap(),
            threads,
        }
    }

    /// Offers a program under the name `echo`.
    pub fn offer(&self, address: &str) -> (Code, Relay) {
        let code = relay::random_code().unwrap();
        let _within = self.threads.enter();
        let relay = self.hub.offer(HubOffer {
            code: code.clone(),
            code_lasts: Duration::from_secs(600),
            targets: vec![format!("echo={address}").parse().unwrap()],
            rate: None,
            stripes: 2,
            lasts: Duration::from_secs(3600),
        });
        (code, relay.unwrap())
    }
}

impl Side {
    pub fn new(relay: Relay) -> Self {
        Self {
            relay,
            events: Mutex::new(Vec::new()),
        }
    }

    pub fn account(&self) -> Account {
        self.relay.account()
    }

    pub fn stop(&self) {
        self.relay.stopper().stop();
    }

    /// The first report that `find` takes.
    pub fn until<T>(&self, find: impl Fn(&Event) -> Option<T>) -> T {
        let mut events = self.events.lock().unwrap();
        if let Some(found) = events.iter().find_map(&find) {
            return found;
        }
        loop {
            let event = self.relay.event(WATCHDOG).expect("a report comes");
            events.push(event.clone());
            if let Some(found) = find(&event) {
                return found;
            }
            assert!(!matches!(event, Event::Ended(_)), "{events:?}");
        }
    }

    pub fn bound(&self, target: &str) -> SocketAddr {
        self.until(|event| match event {
            Event::Bound { name, address } if name == target => Some(*address),
            _ => None,
        })
    }

    pub fn ended(&self) -> Result<(), RelayError> {
        self.until(|event| match event {
            Event::Ended(ended) => Some(ended.clone()),
            _ => None,
        })
    }
}

/// Two sites that are joined.
pub struct Site {
    pub offered: Side,
    pub joined: Side,
}

pub fn offer(targets: &[(&str, &str)], set: impl FnOnce(&mut OfferOptions)) -> Offer {
    try_offer(targets, set).unwrap()
}

pub fn try_offer(
    targets: &[(&str, &str)],
    set: impl FnOnce(&mut OfferOptions),
) -> Result<Offer, RelayError> {
    let targets = targets
        .iter()
        .map(|(name, address)| format!("{name}={address}").parse().unwrap());
    let mut options = OfferOptions {
        targets: targets.collect(),
        binds: Vec::new(),
        insecure_listen: false,
        way: Way::Listens("127.0.0.1:0".to_owned()),
        name: "localhost".to_owned(),
        rate: None,
        stripes: 4,
        lasts: Duration::from_secs(3600),
        certificate: None,
    };
    set(&mut options);
    Offer::start(options)
}

/// A place of this host.
pub fn place(port: u16) -> Destination {
    Destination {
        host: "127.0.0.1".to_owned(),
        port,
        proxies: net::Proxies::default(),
    }
}

/// The port that an offer listens at.
pub fn port_of(offer: &Offer) -> u16 {
    offer.address.expect("it listens").port()
}

pub fn try_join(
    code: Code,
    port: u16,
    set: impl FnOnce(&mut JoinOptions),
) -> Result<Relay, RelayError> {
    let mut options = JoinOptions {
        code,
        place: place(port),
        targets: Vec::new(),
        binds: Vec::new(),
        insecure_listen: false,
        rate: None,
        stripes: None,
        authorities: None,
    };
    set(&mut options);
    join(options)
}

impl Site {
    pub fn pair(targets: &[(&str, &str)]) -> Self {
        let offered = offer(targets, |_| {});
        let port = port_of(&offered);
        Self::join(offered, port, |_| {})
    }

    pub fn join(offered: Offer, port: u16, set: impl FnOnce(&mut JoinOptions)) -> Self {
        let joined = try_join(offered.code, port, set).unwrap();
        Self {
            offered: Side::new(offered.relay),
            joined: Side::new(joined),
        }
    }

    /// Where the joiner opened a target.
    pub fn at(&self, target: &str) -> SocketAddr {
        self.joined.bound(target)
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// Passes bytes both ways.
pub fn splice(one: TcpStream, other: TcpStream) {
    let (a, b) = (one.try_clone().unwrap(), other.try_clone().unwrap());
    std::thread::spawn(move || carry(one, other));
    std::thread::spawn(move || carry(b, a));
}

/// Passes connections on, until it cuts those that are there.
pub struct CuttingProxy {
    pub address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl CuttingProxy {
    pub fn to(target: &str) -> Self {
        let (listener, address) = listener();
        let open = Arc::new(Mutex::new(Vec::new()));
        let (kept, target) = (open.clone(), target.to_owned());
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let there = TcpStream::connect(&target).unwrap();
                let mut kept = kept.lock().unwrap();
                kept.extend([socket.try_clone().unwrap(), there.try_clone().unwrap()]);
                splice(socket, there);
            }
        });
        Self { address, open }
    }

    pub fn cut(&self) {
        for socket in self.open.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// A proxy of a site, which leads every name to one port here.
pub struct ConnectProxy {
    pub address: SocketAddr,
    asked: Arc<Mutex<String>>,
}

impl ConnectProxy {
    pub fn start(port: u16) -> Self {
        Self::new(Some(port))
    }

    pub fn that_refuses() -> Self {
        Self::new(None)
    }

    fn new(port: Option<u16>) -> Self {
        let (listener, address) = listener();
        let asked = Arc::new(Mutex::new(String::new()));
        let heard = asked.clone();
        std::thread::spawn(move || {
            for mut socket in listener.incoming().map_while(Result::ok) {
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") {
                    socket.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                *heard.lock().unwrap() = String::from_utf8(request).unwrap();
                match port {
                    Some(port) => {
                        socket
                            .write_all(b"HTTP/1.1 200 OK\r\nVia: site\r\n\r\n")
                            .unwrap();
                        splice(
                            socket,
                            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap(),
                        );
                    }
                    None => socket.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").unwrap(),
                }
            }
        });
        Self { address, asked }
    }

    pub fn asked(&self) -> String {
        self.asked.lock().unwrap().clone()
    }
}

const ALPN: &[u8] = b"thalweg-relay/1";

/// A connection of TLS to a relay, by somebody who takes any certificate.
pub fn tls_to(port: u16) -> StreamOwned<ClientConnection, TcpStream> {
    tls_on(connect((Ipv4Addr::LOCALHOST, port).into()))
}

/// The same on a connection that is there.
pub fn tls_on(socket: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(anything::Anything))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(
        ClientConnection::new(Arc::new(config), name).unwrap(),
        socket,
    )
}

/// The first bytes of a client of TLS that speaks that protocol.
pub fn hello_that_speaks(protocol: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// TLS of somebody with a certificate of their own.
pub fn server_config() -> Arc<rustls::ServerConfig> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Arc::new(config)
}

/// Somebody who ends TLS with a certificate of their own.
pub struct Middle {
    pub port: u16,
}

impl Middle {
    /// Passes greetings on to a relay, and its answers back.
    pub fn to(port: u16) -> Self {
        Self::new(move |hello| {
            let mut there = tls_to(port);
            there.write_all(hello).unwrap();
            there.flush().unwrap();
            let mut answer = vec![0; 512];
            let read = there.read(&mut answer).unwrap();
            answer.truncate(read);
            answer
        })
    }

    /// Answers every greeting.
    pub fn that_welcomes() -> Self {
        Self::new(|_| {
            let welcome = Welcome {
                session: [1; 16],
                proof: [2; 32],
                secret: [3; 32],
                terms: Terms {
                    stripes: 1,
                    ..Terms::default()
                },
                lasts_seconds: 60,
                targets: Vec::new(),
            };
            let mut bytes = BytesMut::new();
            Frame::Welcome(welcome).encode(&mut bytes);
            bytes.to_vec()
        })
    }

    fn new(answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> Self {
        let config = server_config();
        let (listener, address) = listener();
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let session = ServerConnection::new(config.clone()).unwrap();
                let mut stream = StreamOwned::new(session, socket);
                let mut hello = vec![0; 4096];
                // Who does not like the certificate says nothing.
                let Ok(read) = stream.read(&mut hello) else {
                    continue;
                };
                let _ = stream.write_all(&answer(&hello[..read]));
                let _ = stream.flush();
                let _ = stream.read(&mut hello);
            }
        });
        Self {
            port: address.port(),
        }
    }
}

mod anything {
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{DigitallySignedStruct, SignatureScheme};

    #[derive(Debug)]
    pub struct Anything;

    impl ServerCertVerifier for Anything {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            rustls::crypto::ring::default_provider()
                .signature_verification_algorithms
                .supported_schemes()
        }
    }
}
