//! A gateway whose instances are scripts, with real sockets.

#![allow(dead_code, reason = "not every test uses all of it")]

use access::Verb;
use gateway::{Gateway, Launch, Limits, Mode, Options, Report};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// After this long what was waited for is taken to hang.
pub const WATCHDOG: Duration = Duration::from_secs(60);
pub const API: &str = "api.site.org";
pub const DOMAIN: &str = "stream.site.org";
pub const STREAMING: &str = "/olcf/open/v1alpha/streaming/rabbitmq";

/// Has this process open as many files as the system allows: the usual limit of a user is 1,024.
pub fn allow_connections() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, wanted).expect("a limit may be raised to its maximum");
}

/// A server that says who it is for, then sends back what comes.
pub struct Echo {
    pub address: SocketAddr,
}

impl Echo {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut reader = stream.try_clone().unwrap();
                    let _ = std::io::copy(&mut reader, &mut stream);
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                });
            }
        });
        Self { address }
    }
}

pub struct Rig {
    pub directory: tempfile::TempDir,
    pub lines: Arc<Mutex<Vec<String>>>,
    pub options: Options,
}

impl Rig {
    /// Instances are reached at `server`, wherever that is.
    pub fn new(server: SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("serve");
        let text = format!(
            "#!/bin/sh\nset -e\nmkdir -p $1/access\necho x >> $1/starts\n\
             [ -e $1/access/issuer ] || head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > $1/access/issuer\n\
             echo '{{\"endpoints\": [\"unix:///x\", \"tls://{server}\", \"tcp://{server}\"], \"certificates\": \
             [\"{}\"]}}' > $4\n\
             echo '{{\"ready\": true}}'\nexec sleep 600\n",
            "ab".repeat(32)
        );
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o700)).unwrap();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let written = lines.clone();
        let report = Report::new(move |line| written.lock().unwrap().push(line.to_owned()));
        let options = Options {
            directory: directory.path().join("gateway"),
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            api: API.to_owned(),
            domain: DOMAIN.to_owned(),
            dialled: None,
            mode: Mode::Pass,
            meetings: None,
            certificate: None,
            launch: Launch {
                program: vec![script.display().to_string()],
                launcher: Vec::new(),
                inside: "127.0.0.1".to_owned(),
                plain: false,
            },
            introspect: None,
            on_ready: None,
            leave_instances: false,
            limits: Limits {
                look: Duration::from_millis(20),
                ..Limits::default()
            },
            report,
        };
        Self {
            directory,
            lines,
            options,
        }
    }

    pub fn start(&self) -> Running<'_> {
        let gateway = Gateway::start(self.options.clone()).unwrap();
        let limits = access::Limits {
            project: Some("stf008".to_owned()),
            verbs: Some([Verb::Manage].into_iter().collect()),
            ..access::Limits::default()
        };
        let token = gateway.keys().issue(&limits).unwrap().to_text();
        Running {
            rig: self,
            gateway,
            token,
        }
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        self.options.directory.join("instances/stf008").join(name)
    }

    pub fn record(&self, name: &str) -> Value {
        let text = std::fs::read_to_string(self.folder(name).join("record.json"));
        serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default()
    }

    pub fn pid(&self, name: &str) -> Option<u64> {
        self.record(name)["process"]["pid"].as_u64()
    }

    pub fn starts(&self, name: &str) -> usize {
        let text = std::fs::read_to_string(self.folder(name).join("data/starts"));
        text.unwrap_or_default().lines().count()
    }

    pub fn lines(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    fn authority(&self) -> PathBuf {
        self.options.directory.join("tls/authority.pem")
    }
}

/// A gateway that runs.
pub struct Running<'a> {
    pub rig: &'a Rig,
    pub gateway: Gateway,
    pub token: String,
}

impl Running<'_> {
    pub fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        stream
    }

    /// A connection that has asked for a name, as a client of TLS does; and what it has sent.
    pub fn greet(&self, name: &str) -> (TcpStream, Vec<u8>) {
        let hello = hello(name);
        let mut stream = self.connect();
        stream.write_all(&hello).unwrap();
        (stream, hello)
    }

    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let roots = trust(&self.rig.authority());
        let stream = client(API, roots, self.connect());
        request(
            stream,
            &self.token,
            method,
            &format!("{STREAMING}/{path}"),
            body,
        )
    }

    pub fn provision(&self, name: &str) -> Value {
        let body = format!(
            "{{\"kind\": \"general\", \"name\": \"{name}\", \"resourceSettings\": {{\"cpus\": 2}}}}"
        );
        let (status, made) = self.ask("POST", "provision_cluster", &body);
        assert_eq!(status, 200, "{made} {}", self.rig.lines());
        made
    }

    pub fn state(&self, name: &str) -> String {
        let (_, info) = self.ask("GET", &format!("cluster/{name}"), "");
        info["state"].as_str().unwrap_or("none").to_owned()
    }
}

/// The first bytes of a client that asks for a name.
pub fn hello(name: &str) -> Vec<u8> {
    let mut client = connection(name, rustls::RootCertStore::empty());
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

pub fn trust(path: &Path) -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(path).unwrap())
        .unwrap();
    roots
}

fn connection(name: &str, roots: rustls::RootCertStore) -> rustls::ClientConnection {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    rustls::ClientConnection::new(Arc::new(config), name).unwrap()
}

pub type Client = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

pub fn client(name: &str, roots: rustls::RootCertStore, stream: TcpStream) -> Client {
    rustls::StreamOwned::new(connection(name, roots), stream)
}

pub fn request(
    mut stream: Client,
    token: &str,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, Value) {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {API}\r\nAuthorization: {token}\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = Vec::new();
    // The end of the connection may come without that of TLS.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("there is an answer");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

/// Looks again and again until it is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WATCHDOG, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn is_alive(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// All that comes until the end of a connection.
pub fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A connection that is reset has ended, too.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}
