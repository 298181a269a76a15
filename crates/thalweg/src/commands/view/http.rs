//! HTTP/1.1 on loopback, as much as one page needs: GET, one request a connection, a deadline on
//! each side of it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// So many connections are answered at once; further ones are refused, to be tried again.
const CONNECTIONS_MAX: usize = 16;
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// The most headers of a request.
const HEADERS_MAX: usize = 64;
/// How long a request may take to arrive. A browser opens connections that it may never use.
const REQUEST_WAIT: Duration = Duration::from_secs(5);
/// How long an answer may take to be taken.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// So much of an answer is written before the time is looked at.
const PIECE_BYTES: usize = 64 << 10;
/// How long accepting rests after it failed, as it does without a free descriptor.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A request, as far as anything depends on it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    method: String,
    /// The path, without the query.
    pub path: String,
    query: Vec<(String, String)>,
    /// Of each `Host` header.
    hosts: Vec<String>,
}

impl Request {
    /// A value of the query, as it stands there; empty if there is none.
    pub fn value(&self, name: &str) -> &str {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Whether it names this host by a name that is nobody else's.
    pub fn is_for_loopback(&self) -> bool {
        let [host] = self.hosts.as_slice() else {
            return false;
        };
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port),
            _ => (host.as_str(), ""),
        };
        // A tunnel may have another port.
        port.bytes().all(|digit| digit.is_ascii_digit())
            && ["127.0.0.1", "localhost", "[::1]"].contains(&name.to_ascii_lowercase().as_str())
    }

    /// Of the bytes that have come; `None` if there are to be more.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, httparse::Error> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut headers);
        if parsed.parse(bytes)?.is_partial() {
            return Ok(None);
        }
        let target = parsed.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name.to_owned(), value.to_owned())
        });
        let hosts = parsed.headers.iter();
        let hosts = hosts.filter(|header| header.name.eq_ignore_ascii_case("host"));
        Ok(Some(Self {
            method: parsed.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: pairs.collect(),
            hosts: hosts
                .map(|header| String::from_utf8_lossy(header.value).trim().to_owned())
                .collect(),
        }))
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    status: u16,
    kind: &'static str,
    /// Its Content-Security-Policy, if it is a page.
    policy: Option<String>,
    body: Vec<u8>,
}

impl Answer {
    /// A status without content.
    pub fn empty(status: u16) -> Self {
        Self::text(status, String::new())
    }

    /// A status with a sentence.
    pub fn text(status: u16, sentence: String) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            policy: None,
            body: sentence.into_bytes(),
        }
    }

    /// A page, and what it may do.
    pub fn page(page: String, policy: String) -> Self {
        Self {
            kind: "text/html; charset=utf-8",
            policy: Some(policy),
            ..Self::text(200, page)
        }
    }

    /// Bytes.
    pub fn bytes(body: Vec<u8>) -> Self {
        Self {
            status: 200,
            kind: "application/octet-stream",
            policy: None,
            body,
        }
    }

    fn head(&self) -> String {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let policy = match &self.policy {
            Some(policy) => format!("Content-Security-Policy: {policy}\r\n"),
            None => String::new(),
        };
        // Nothing of it is kept by the browser, and the token goes nowhere else.
        format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             {policy}Connection: close\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        )
    }
}

type Handler = dyn Fn(&Request) -> Answer + Send + Sync;

/// Answers requests on a thread of its own, and each connection on one of its, until the process
/// ends.
pub fn serve(listener: TcpListener, handler: Arc<Handler>) -> io::Result<()> {
    let accepting = thread::Builder::new().name("view".to_owned());
    // How many connections are being answered. It orders nothing else.
    let open = Arc::new(AtomicUsize::new(0));
    let accept = move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => take(stream, &open, &handler),
                Err(_) => thread::sleep(ACCEPT_REST),
            }
        }
    };
    accepting.spawn(accept).map(drop)
}

fn take(stream: TcpStream, open: &Arc<AtomicUsize>, handler: &Arc<Handler>) {
    // One thread adds.
    if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
        // It fits into the socket's buffer.
        drop(write(&stream, &Answer::empty(503)));
        return;
    }
    open.fetch_add(1, Ordering::Relaxed);
    let place = Place(open.clone());
    let handler = handler.clone();
    let answer = move || {
        // What goes wrong with a connection is over with it: the page asks again.
        drop(converse(&stream, &*handler));
        drop(place);
    };
    // Without a thread the connection is closed, and its place given back.
    drop(thread::Builder::new().name("page".to_owned()).spawn(answer));
}

/// One of the connections that are answered.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn converse(stream: &TcpStream, handler: &Handler) -> io::Result<()> {
    let answer = match read(stream)? {
        Ok(request) if request.method == "GET" => handler(&request),
        Ok(_) => Answer::empty(405),
        Err(status) => Answer::empty(status),
    };
    write(stream, &answer)
}

/// The request, or with what status it is refused. An error if there is none.
fn read(mut stream: &TcpStream) -> io::Result<Result<Request, u16>> {
    let deadline = Instant::now() + REQUEST_WAIT;
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let Some(left) = left(deadline) else {
            return Ok(Err(408));
        };
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        bytes.extend_from_slice(&piece[..count]);
        match Request::parse(&bytes) {
            Ok(Some(request)) => return Ok(Ok(request)),
            Ok(None) if bytes.len() < HEAD_BYTES_MAX => {}
            Ok(None) => return Ok(Err(431)),
            Err(httparse::Error::TooManyHeaders) => return Ok(Err(431)),
            Err(_) => return Ok(Err(400)),
        }
    }
}

fn write(mut stream: &TcpStream, answer: &Answer) -> io::Result<()> {
    let deadline = Instant::now() + ANSWER_WAIT;
    let head = answer.head();
    let pieces = std::iter::once(head.as_bytes()).chain(answer.body.chunks(PIECE_BYTES));
    for piece in pieces {
        let left = left(deadline).ok_or(io::ErrorKind::TimedOut)?;
        stream.set_write_timeout(Some(left))?;
        stream.write_all(piece)?;
    }
    stream.shutdown(Shutdown::Write)
}

/// How long it is until then; `None` if that has passed.
fn left(deadline: Instant) -> Option<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Request {
        Request::parse(text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn a_request_is_taken_apart() {
        let request = parsed("GET /frame?token=ab&after=0-1-7&log HTTP/1.1\r\nHoSt: a\r\n\r\n");
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("GET", "/frame")
        );
        assert_eq!(request.value("token"), "ab");
        assert_eq!(request.value("after"), "0-1-7");
        assert_eq!((request.value("log"), request.value("low")), ("", ""));
        assert_eq!(request.hosts, ["a"]);
    }

    #[test]
    fn what_is_not_all_there_is_waited_for_and_what_is_none_refused() {
        assert_eq!(Request::parse(b"GET / HTTP/1.1\r\nHost: a\r\n"), Ok(None));
        assert!(Request::parse(b"\x16\x03\x01\x02\x00").is_err());
    }

    #[test]
    fn only_names_of_loopback_are_this_host() {
        let is_for_loopback = |hosts: &[&str]| {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            Request {
                hosts,
                ..Request::default()
            }
            .is_for_loopback()
        };
        for host in [
            "127.0.0.1:80",
            "127.0.0.1",
            "localhost:4711",
            "LOCALHOST",
            "[::1]:9",
            "[::1]",
        ] {
            assert!(is_for_loopback(&[host]), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "localhost.evil:80",
            "localhost:80@evil",
            "127.0.0.2",
            "::1",
            "0.0.0.0",
        ] {
            assert!(!is_for_loopback(&[host]), "{host}");
        }
        assert!(!is_for_loopback(&[]), "none");
        assert!(!is_for_loopback(&["localhost", "evil.example"]), "two");
    }
}
