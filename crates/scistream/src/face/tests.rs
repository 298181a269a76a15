//! Two sites in one process: calls as clients make them, and bytes that pass.

use super::*;
use crate::calls::{Call, Calls};
use crate::options::Inbound;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener as Server, TcpStream as Client};
use std::sync::mpsc;

/// Appends a text as a field of protobuf.
fn put(out: &mut Vec<u8>, number: u8, text: &str) {
    out.push(number << 3 | 2);
    let length = u8::try_from(text.len()).expect("texts of these tests are short");
    if length >= 0x80 {
        out.extend([length, 1]);
    } else {
        out.push(length);
    }
    out.extend_from_slice(text.as_bytes());
}

/// The texts of a field, of an answer.
fn texts(mut bytes: &[u8], number: u8) -> Vec<String> {
    let mut all = Vec::new();
    while let [key, length, rest @ ..] = bytes {
        let (length, rest) = match *length {
            length @ 0x80.. => (usize::from(length), &rest[1..]),
            length => (usize::from(length), rest),
        };
        if key >> 3 == number {
            all.push(String::from_utf8(rest[..length].to_vec()).unwrap());
        }
        bytes = &rest[length..];
    }
    all
}

/// A site: its face, and what it has reported.
struct Site {
    it: Option<Scistream>,
    lines: Arc<Mutex<Vec<String>>>,
}

type Answer = Result<Vec<u8>, Failed>;

impl Site {
    fn start(set: impl FnOnce(&mut Options)) -> Self {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let told = lines.clone();
        let mut options = Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            certificate: None,
            trust: None,
            site: None,
            inbound: Some(Inbound {
                listen: "127.0.0.1:0".to_owned(),
                host: "127.0.0.1".to_owned(),
                port: None,
            }),
            listener_ip: "127.0.0.1".parse().unwrap(),
            ports: 0..=0,
            allowed: vec!["127.0.0.1:*".parse().unwrap()],
            rate: None,
            plain: false,
            report: Arc::new(move |line: &str| told.lock().unwrap().push(line.to_owned())),
        };
        set(&mut options);
        Self {
            it: Some(Scistream::start(options).unwrap()),
            lines,
        }
    }

    fn it(&self) -> &Scistream {
        self.it.as_ref().expect("it runs")
    }

    fn call(&self, name: &str, message: Vec<u8>) -> Answer {
        self.call_with(None, name, message)
    }

    fn call_with(&self, token: Option<&str>, name: &str, message: Vec<u8>) -> Answer {
        let peer = "127.0.0.1".parse().unwrap();
        let caller = Caller::new(self.it().face.clone(), peer);
        let call = Call {
            path: format!("/scistream.Control/{name}"),
            authorization: token.map(str::to_owned),
            message: message.into(),
        };
        let runtime = self.it().runtime.as_ref().expect("it runs");
        runtime.block_on(caller.call(call))
    }

    fn req(&self, uid: &str, role: &str, count: u8, rate: u8) -> Answer {
        let mut message = Vec::new();
        put(&mut message, 1, uid);
        put(&mut message, 2, role);
        message.extend([0x18, count, 0x20, rate]);
        self.call("req", message)
    }

    fn places(&self, call: &str, uid: &str, places: &[String], role: &str) -> Answer {
        let mut message = Vec::new();
        put(&mut message, 1, uid);
        places.iter().for_each(|place| put(&mut message, 2, place));
        put(&mut message, 3, role);
        self.call(call, message)
    }

    /// `req` and `hello`, which a client makes at once: where its listeners are.
    fn ask(&self, uid: &str, role: &str, count: u8, rate: u8, places: &[String]) -> Vec<String> {
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| self.req(uid, role, count, rate));
            // The session is there a moment later.
            let said = until(|| self.places("hello", uid, places, "PROD").ok());
            let answer = asked.join().unwrap().unwrap();
            assert_eq!(texts(&answer, 2), places);
            assert_eq!(texts(&said, 2), texts(&answer, 1));
            texts(&answer, 1)
        })
    }

    fn release(&self, uid: &str) -> Answer {
        let mut message = Vec::new();
        put(&mut message, 1, uid);
        self.call("release", message)
    }

    fn until_said(&self, text: &str) {
        until(|| {
            let lines = self.lines.lock().unwrap();
            lines.iter().any(|line| line.contains(text)).then_some(())
        });
    }
}

fn until<T>(ask: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::yield_now();
    }
}

/// A server that sends its letter, and what it gets; how many it has served.
fn server(letter: u8) -> (String, mpsc::Receiver<usize>) {
    let listener = Server::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (send, served) = mpsc::channel();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let mut all = Vec::new();
            if socket.write_all(&[letter]).is_ok() && socket.read_to_end(&mut all).is_ok() {
                let _ = socket.write_all(&all);
                let _ = send.send(all.len());
            }
        }
    });
    (address, served)
}

fn there_and_back(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut socket = Client::connect(address).unwrap();
    socket.write_all(bytes).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    socket.read_to_end(&mut back).unwrap();
    back
}

fn code_of<T>(answer: Result<T, Failed>) -> Option<Status> {
    answer.err().map(|failed| failed.0)
}

#[test]
fn what_comes_to_an_outbound_session_reaches_the_servers_of_the_inbound_one() {
    let (inbound, outbound) = (Site::start(|_| {}), Site::start(|_| {}));
    let servers = [server(b'a'), server(b'b')];
    let targets: Vec<String> = servers.iter().map(|(address, _)| address.clone()).collect();
    let offered = inbound.ask("u", "PROD", 3, 0, &targets);
    assert_eq!(offered.len(), 3);
    assert!(offered.iter().all(|one| one == &offered[0]));
    let again = ["other:1".to_owned()];
    let listeners = outbound.ask("u", "CONS", 3, 0, &again);
    // Nobody can join before the inbound side was told where to lead.
    let early = outbound.places("update", "u", &offered, "CONS");
    assert_eq!(code_of(early), Some(Status::Unavailable));
    inbound.places("update", "u", &targets, "PROD").unwrap();
    // A program may be there before the way is.
    let waits = std::thread::spawn({
        let address = listeners[1].clone();
        move || there_and_back(&address, b"early")
    });
    let answer = outbound.places("update", "u", &offered, "CONS").unwrap();
    assert_eq!(texts(&answer, 1), listeners);
    outbound.places("update", "u", &offered, "CONS").unwrap();
    assert_eq!(waits.join().unwrap(), b"bearly");
    let many = vec![b'x'; 3_000_000];
    for (address, letter) in listeners.iter().zip(b"aba") {
        let back = there_and_back(address, &many);
        assert_eq!((back[0], back.len()), (*letter, many.len() + 1));
        assert!(back[1..] == many);
    }
    assert_eq!(servers[0].1.recv(), Ok(many.len()));
    // The other side's end ends it here, and its ports are free.
    inbound.release("u").unwrap();
    outbound.until_said("is over: the other side has ended it");
    assert_eq!(code_of(outbound.release("u")), Some(Status::NotFound));
    let free: Result<Vec<_>, _> = listeners.iter().map(Server::bind).collect();
    assert!(free.is_ok());
    let code = offered[0].split('@').next().unwrap().to_owned();
    for site in [&inbound, &outbound] {
        let lines = site.lines.lock().unwrap().join("\n");
        assert!(!lines.contains(&code), "{lines}");
    }
}

#[test]
fn nothing_is_dialled_that_is_not_allowed() {
    let (address, served) = server(b'a');
    let site = Site::start(|options| {
        options.allowed = vec!["127.0.0.1:1".parse().unwrap()];
        options.plain = true;
    });
    let places = [address];
    for role in ["PROD", "CONS"] {
        site.ask(role, role, 1, 0, &places);
        let denied = site.places("update", role, &places, role);
        assert_eq!(code_of(denied), Some(Status::PermissionDenied));
        let offer =
            ["7-abandon-abandon-abandon-abandon-abandon-abandon-abandon@127.0.0.1:9".to_owned()];
        let denied = site.places("update", role, &offer, role);
        assert!(matches!(
            code_of(denied),
            Some(Status::PermissionDenied | Status::InvalidArgument)
        ));
        site.release(role).unwrap();
    }
    assert!(served.try_recv().is_err());
}

#[test]
fn what_is_no_relay_is_led_to_only_where_that_is_allowed() {
    let (address, _served) = server(b'a');
    let places = [address];
    let site = Site::start(|_| {});
    site.ask("u", "CONS", 1, 0, &places);
    let refused = site.places("update", "u", &places, "CONS");
    assert_eq!(code_of(refused), Some(Status::FailedPrecondition));
    let plain = Site::start(|options| options.plain = true);
    let listeners = plain.ask("u", "CONS", 2, 0, &places);
    plain.places("update", "u", &places, "CONS").unwrap();
    plain.until_said("without encryption");
    for address in &listeners {
        assert_eq!(there_and_back(address, b"plain"), b"aplain");
    }
    plain.release("u").unwrap();
    // Somebody else on this host may have the port by now, and say nothing.
    let mut came = Vec::new();
    if let Ok(mut socket) = Client::connect(&listeners[0]) {
        let patience = Some(Duration::from_secs(2));
        socket.set_read_timeout(patience).unwrap();
        let _ = socket.read_to_end(&mut came);
    }
    assert!(!came.starts_with(b"a"), "the server was reached");
}

#[test]
fn a_rate_is_kept_in_a_tunnel_and_without_one() {
    // 100 kB/s and a burst of 64 KiB: what is more than that takes a second.
    let bytes = vec![b'x'; 65_536 + 100_000];
    let least = Duration::from_millis(900);
    let (address, _served) = server(b'a');
    let places = [address];
    let (inbound, outbound) = (
        Site::start(|_| {}),
        Site::start(|options| options.plain = true),
    );
    let offered = inbound.ask("u", "PROD", 1, 100, &places);
    inbound.places("update", "u", &places, "PROD").unwrap();
    let tunnel = outbound.ask("u", "CONS", 1, 0, &places);
    outbound.places("update", "u", &offered, "CONS").unwrap();
    let plain = outbound.ask("v", "CONS", 1, 100, &places);
    outbound.places("update", "v", &places, "CONS").unwrap();
    for address in [&tunnel[0], &plain[0]] {
        let start = Instant::now();
        assert_eq!(there_and_back(address, &bytes).len(), bytes.len() + 1);
        assert!(start.elapsed() >= least, "{:?}", start.elapsed());
    }
}

#[test]
fn calls_that_cannot_be_are_refused_and_change_nothing() {
    let site = Site::start(|options| options.inbound = None);
    assert_eq!(
        code_of(site.req("u", "PROD", 1, 0)),
        Some(Status::FailedPrecondition)
    );
    assert_eq!(
        code_of(site.req("u", "X", 1, 0)),
        Some(Status::InvalidArgument)
    );
    assert_eq!(
        code_of(site.req("u", "CONS", 17, 0)),
        Some(Status::InvalidArgument)
    );
    let nobody = site.places("update", "u", &["127.0.0.1:1".to_owned()], "CONS");
    assert_eq!(code_of(nobody), Some(Status::NotFound));
    assert_eq!(
        code_of(site.places("hello", "u", &[], "PROD")),
        Some(Status::NotFound)
    );
    assert_eq!(code_of(site.release("u")), Some(Status::NotFound));
    assert_eq!(
        code_of(site.call("other", Vec::new())),
        Some(Status::Unimplemented)
    );
    assert_eq!(
        code_of(site.call("req", vec![0xff; 64])),
        Some(Status::InvalidArgument)
    );
    assert!(site.lines.lock().unwrap().is_empty());
}

#[test]
fn a_call_that_gives_up_or_is_released_leaves_nothing() {
    let site = Site::start(|_| {});
    // The client goes away before hello has come.
    let runtime = site.it().runtime.as_ref().unwrap();
    let face = site.it().face.clone();
    let waits = runtime.spawn(async move {
        let request = Request {
            uid: "u".to_owned(),
            role: "CONS".to_owned(),
            num_conn: 1,
            rate: 0,
        };
        face.req(&request, "").await
    });
    site.until_said("CONS, 1 connections");
    waits.abort();
    site.until_said("is over: no hello came");
    assert_eq!(code_of(site.release("u")), Some(Status::NotFound));
    // Somebody releases it while its client waits.
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| site.req("v", "CONS", 1, 0));
        until(|| site.release("v").ok());
        assert_eq!(code_of(asked.join().unwrap()), Some(Status::NotFound));
    });
}

#[test]
fn an_end_in_order_ends_the_other_side_too() {
    let (mut inbound, outbound) = (Site::start(|_| {}), Site::start(|_| {}));
    let (address, _served) = server(b'a');
    let places = [address];
    let offered = inbound.ask("u", "PROD", 1, 0, &places);
    inbound.places("update", "u", &places, "PROD").unwrap();
    outbound.ask("u", "CONS", 1, 0, &places);
    outbound.places("update", "u", &offered, "CONS").unwrap();
    inbound.it.take().unwrap().stop();
    outbound.until_said("is over: the other side has ended it");
}

#[test]
fn beyond_the_host_calls_need_tls_and_a_token() {
    let mut options = (*Site::start(|_| {}).it().face).options().clone();
    options.listen = "0.0.0.0:0".parse().unwrap();
    let why = options.check().unwrap_err().to_string();
    assert!(why.contains("TLS"), "{why}");
    options.certificate = Some(("cert.pem".into(), "key.pem".into()));
    let why = options.check().unwrap_err().to_string();
    assert!(why.contains("token"), "{why}");
    options.trust = Some(Arc::new(Arc::default));
    options.check().unwrap();
    options.allowed.clear();
    assert!(options.check().is_err());
}

#[test]
fn tokens_of_the_site_are_what_the_site_says() {
    let site = Site::start(|options| {
        options.site = Some(Arc::new(|token: String| {
            let projects = [
                ("globus", "stf008"),
                ("odd", "no project/"),
                ("other", "phy"),
            ];
            let found = projects.iter().find(|(known, _)| *known == token);
            let project = found.map(|(_, project)| (*project).to_owned());
            Box::pin(async move { project })
        }));
    });
    let call = |token: Option<&str>| {
        let mut message = Vec::new();
        put(&mut message, 1, "u");
        code_of(site.call_with(token, "release", message))
    };
    assert_eq!(call(Some("globus")), Some(Status::NotFound));
    for unknown in [
        None,
        Some(""),
        Some("INVALID_TOKEN"),
        Some("odd"),
        Some("thalweg-token-1:x"),
    ] {
        assert_eq!(call(unknown), Some(Status::Unauthenticated), "{unknown:?}");
    }
    std::thread::scope(|scope| {
        let mut message = Vec::new();
        put(&mut message, 1, "u");
        put(&mut message, 2, "CONS");
        message.extend([0x18, 1]);
        let waits = scope.spawn(|| site.call_with(Some("globus"), "req", message));
        site.until_said("for project stf008");
        assert_eq!(call(Some("other")), Some(Status::NotFound));
        assert_eq!(call(Some("globus")), None);
        assert_eq!(code_of(waits.join().unwrap()), Some(Status::NotFound));
    });
}

#[test]
fn who_makes_no_call_that_counts_is_not_kept() {
    let site = Site::start(|options| {
        options.site = Some(Arc::new(|token: String| {
            let project = (token == "globus").then(|| "stf008".to_owned());
            Box::pin(async move { project })
        }));
    });
    let stays = |token: &str| {
        let peer = "127.0.0.1".parse().unwrap();
        let caller = Caller::new(site.it().face.clone(), peer);
        let call = Call {
            path: "/scistream.Control/release".to_owned(),
            authorization: Some(token.to_owned()),
            message: Default::default(),
        };
        let runtime = site.it().runtime.as_ref().unwrap();
        runtime.block_on(async {
            assert!(caller.call(call).await.is_err());
            match token {
                // It comes, however long that takes.
                "globus" => {
                    caller.is_known().await;
                    true
                }
                _ => {
                    let known = timeout(Duration::from_millis(50), caller.is_known());
                    known.await.is_ok()
                }
            }
        })
    };
    assert!(stays("globus"));
    assert!(!stays("INVALID_TOKEN"));
}

#[test]
fn who_says_nothing_goes_where_more_come_and_who_is_known_stays() {
    let site = Site::start(|_| {});
    let face = site.it().face.clone();
    let runtime = site.it().runtime.as_ref().unwrap();
    let strangers = Strangers::new(2);
    let callers = Semaphore::new(1);
    let peer = "127.0.0.1".parse().unwrap();
    let caller = || Caller::new(face.clone(), peer);
    runtime.block_on(async {
        let known = caller();
        let call = || Call {
            path: "/scistream.Control/release".to_owned(),
            authorization: None,
            message: Default::default(),
        };
        assert!(known.call(call()).await.is_err());
        let (silent, other) = (caller(), caller());
        let (first, second) = (strangers.enter(), strangers.enter());
        let stays = has_no_place(&known, first, &callers);
        tokio::pin!(stays);
        // It stands among the strangers no more, so that the next one sends nobody away.
        assert!(
            timeout(Duration::from_millis(20), &mut stays)
                .await
                .is_err()
        );
        assert_eq!(strangers.count(), 1);
        let goes = has_no_place(&silent, second, &callers);
        let _more = [strangers.enter(), strangers.enter()];
        goes.await;
        assert!(timeout(Duration::from_millis(20), stays).await.is_err());
        // Of those who are known there is one too many.
        let known = has_no_place(&other, strangers.enter(), &callers);
        assert!(other.call(call()).await.is_err());
        known.await;
    });
}
