//! The way out of a site that has a proxy: `CONNECT`, as HTTP clients ask for it.

use crate::contract::NetError;
use crate::socket::{Socket, write_to_socket};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mio::event::Source;
use mio::{Interest, Registry, Token};
use percent_encoding::percent_decode_str;
use std::fmt;
use std::io::{self, IoSlice, Read};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// The most that an answer of a proxy may have, and the lines in it.
const ANSWER_BYTES_MAX: usize = 8 << 10;
const ANSWER_HEADERS_MAX: usize = 64;

/// Which proxy leads to which host, as the environment variables `HTTPS_PROXY` and `NO_PROXY` say.
#[derive(Clone, Default)]
pub struct Proxies {
    /// `http://USER:PASSWORD@HOST:PORT`; empty is none. Checked when it is used.
    proxy: String,
    /// Hosts that are reached without it, divided by commas.
    exempt: String,
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may hold a password.
        f.debug_struct("Proxies").finish_non_exhaustive()
    }
}

impl Proxies {
    /// The proxy `http://HOST:PORT` or `http://USER:PASSWORD@HOST:PORT`, for all hosts but those of
    /// `exempt`: names, endings of names, addresses and networks, divided by commas; `*` is all.
    /// This host itself is never reached by a proxy.
    pub fn new(proxy: impl Into<String>, exempt: impl Into<String>) -> Self {
        Self {
            proxy: proxy.into(),
            exempt: exempt.into(),
        }
    }

    /// As the environment says: `https_proxy` or `HTTPS_PROXY`, and `no_proxy` or `NO_PROXY`.
    pub fn from_environment() -> Self {
        let either = |names: [&str; 2]| {
            let said = names
                .into_iter()
                .filter_map(|name| std::env::var(name).ok());
            said.into_iter().find(|text| !text.is_empty())
        };
        Self {
            proxy: either(["https_proxy", "HTTPS_PROXY"]).unwrap_or_default(),
            exempt: either(["no_proxy", "NO_PROXY"]).unwrap_or_default(),
        }
    }

    /// The proxy that leads to `host`, if one does.
    ///
    /// # Errors
    /// [`NetError::Address`] if what names it is no address of a proxy.
    pub fn to(&self, host: &str, port: &str) -> Result<Option<Proxy>, NetError> {
        if self.proxy.is_empty() || is_this_host(host) || self.exempts(host, port) {
            return Ok(None);
        }
        Proxy::parse(&self.proxy).map(Some)
    }

    fn exempts(&self, host: &str, port: &str) -> bool {
        let entries = self.exempt.split(',').map(str::trim);
        entries
            .filter(|entry| !entry.is_empty())
            .any(|entry| exempts(entry, host, port))
    }
}

fn is_this_host(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Whether an entry of `NO_PROXY` is for the host.
fn exempts(entry: &str, host: &str, port: &str) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some((network, bits)) = entry.split_once('/')
        && let (Ok(network), Ok(bits), Ok(address)) = (network.parse(), bits.parse(), host.parse())
    {
        return is_within(address, network, bits);
    }
    let (name, of_port) = match entry.rsplit_once(':') {
        Some((name, digits)) if !name.contains(':') => (name, Some(digits)),
        _ => (entry, None),
    };
    let name = name.trim_start_matches('*').trim_start_matches('.');
    let (name, host) = (name.to_ascii_lowercase(), host.to_ascii_lowercase());
    let is_named = match host.strip_suffix(&name) {
        Some(rest) => !name.is_empty() && (rest.is_empty() || rest.ends_with('.')),
        None => false,
    };
    is_named && of_port.is_none_or(|of_port| of_port == port)
}

fn is_within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let (address, network, length) = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => (
            u128::from(address.to_bits()),
            u128::from(network.to_bits()),
            32,
        ),
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits(), network.to_bits(), 128),
        _ => return false,
    };
    let free = length - bits.min(length);
    free == 128 || address >> free == network >> free
}

/// A proxy: where it is, and who one is for it.
#[derive(Clone)]
pub struct Proxy {
    /// Host and port.
    pub authority: String,
    /// `USER:PASSWORD` in base64; empty is none.
    credentials: String,
}

impl Proxy {
    fn parse(text: &str) -> Result<Self, NetError> {
        let refuse = || {
            let text = text.rsplit_once('@').map_or(text, |(_, host)| host);
            NetError::Address(format!(
                "HTTPS_PROXY: {text:?} is no address of a proxy, which is as http://HOST:3128"
            ))
        };
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return Err(refuse()),
            None => text,
        };
        let rest = rest.trim_end_matches('/');
        let (user, authority) = match rest.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, rest),
        };
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(refuse());
        }
        let credentials =
            user.map(|user| STANDARD.encode(percent_decode_str(user).collect::<Vec<u8>>()));
        Ok(Self {
            authority: authority.to_owned(),
            credentials: credentials.unwrap_or_default(),
        })
    }

    /// What it is asked, to lead to `target`, a host and its port.
    pub fn request(&self, target: &str) -> Vec<u8> {
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if !self.credentials.is_empty() {
            request += &format!("Proxy-Authorization: Basic {}\r\n", self.credentials);
        }
        request += "\r\n";
        request.into_bytes()
    }

    /// Reads what has come of its answer. `false` is that there is more to come; nothing may come behind it.
    ///
    /// # Errors
    /// In words, what it answers instead of leading there.
    pub fn read_answer(&self, answer: &[u8]) -> Result<bool, String> {
        let said = |text: String| Err(format!("the proxy {} (HTTPS_PROXY) {text}", self.authority));
        let mut headers = [httparse::EMPTY_HEADER; ANSWER_HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(answer) {
            Ok(httparse::Status::Partial) if answer.len() < ANSWER_BYTES_MAX => return Ok(false),
            Ok(httparse::Status::Partial) => {
                return said("answers at too great a length".to_owned());
            }
            Ok(httparse::Status::Complete(length)) => length,
            Err(error) => return said(format!("answers with what is no HTTP: {error}")),
        };
        match response.code {
            // The server of TLS speaks second: nothing of its can have come.
            Some(200..=299) if length == answer.len() => Ok(true),
            Some(200..=299) => said("sends more than its answer".to_owned()),
            code => {
                let reason = response.reason.unwrap_or_default();
                said(format!("refuses: {} {reason}", code.unwrap_or_default()))
            }
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may hold a password.
        f.debug_struct("Proxy").finish_non_exhaustive()
    }
}

/// How far the way through a proxy is.
enum Way {
    /// The socket connects to the proxy.
    Connecting,
    /// It is being asked: so many bytes of the request were sent.
    Asking(usize),
    /// It was asked; what has come of its answer.
    Asked(Vec<u8>),
    /// Bytes are the target's.
    Through,
}

/// A socket that reaches its target through a proxy, or none.
pub(super) struct Proxied<S> {
    socket: S,
    way: Way,
    /// What leads to the target, and what it is asked; none, if nothing does.
    proxy: Option<Proxy>,
    request: Vec<u8>,
}

impl<S: Socket> Proxied<S> {
    /// `socket` connects to the target itself.
    pub(super) fn directly(socket: S) -> Self {
        Self {
            socket,
            way: Way::Through,
            proxy: None,
            request: Vec::new(),
        }
    }

    /// `socket` connects to `proxy`, which is asked for `target`, host and port.
    pub(super) fn through(socket: S, proxy: &Proxy, target: &str) -> Self {
        Self {
            socket,
            way: Way::Connecting,
            proxy: Some(proxy.clone()),
            request: proxy.request(target),
        }
    }

    fn ask(&mut self, mut sent: usize) -> io::Result<()> {
        while sent < self.request.len() {
            self.way = Way::Asking(sent);
            sent += write_to_socket(&self.socket, &[IoSlice::new(&self.request[sent..])])?;
        }
        self.way = Way::Asked(Vec::new());
        Ok(())
    }

    /// Reads of the answer what has come, until the way is open.
    fn hear(&mut self) -> io::Result<()> {
        let Way::Asked(answer) = &mut self.way else {
            return Ok(());
        };
        let proxy = self.proxy.as_ref().expect("it was asked");
        let refuse = |text: String| io::Error::new(io::ErrorKind::ConnectionRefused, text);
        loop {
            let before = answer.len();
            answer.resize(ANSWER_BYTES_MAX, 0);
            let read = self.socket.read(&mut answer[before..]);
            answer.truncate(before + *read.as_ref().unwrap_or(&0));
            if read? == 0 {
                let text = format!(
                    "the proxy {} (HTTPS_PROXY) ended the connection",
                    proxy.authority
                );
                return Err(refuse(text));
            }
            if proxy.read_answer(answer).map_err(refuse)? {
                return Ok(());
            }
        }
    }
}

impl<S: Socket> Proxied<S> {
    /// Goes one step on the way. True when it could.
    fn go_on(&mut self) -> io::Result<bool> {
        match self.way {
            Way::Connecting => {
                if !self.socket.is_connected()? {
                    return Ok(false);
                }
                self.way = Way::Asking(0);
            }
            Way::Asking(sent) => self.ask(sent)?,
            Way::Asked(_) => {
                self.hear()?;
                self.way = Way::Through;
            }
            Way::Through => {}
        }
        Ok(true)
    }
}

impl<S: Socket> Socket for Proxied<S> {
    fn is_connected(&mut self) -> io::Result<bool> {
        while !matches!(self.way, Way::Through) {
            match self.go_on() {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.socket.is_connected()
    }

    fn shut(&self) -> io::Result<()> {
        self.socket.shut()
    }

    fn stripes(&self) -> Option<[&'static str; 2]> {
        self.socket.stripes()
    }

    fn bundled(&self) {
        self.socket.bundled();
    }

    fn unbundled(&self) {
        self.socket.unbundled();
    }
}

impl<S: Read> Read for Proxied<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.read(into)
    }

    fn read_vectored(&mut self, into: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        self.socket.read_vectored(into)
    }
}

impl<S: AsFd> AsFd for Proxied<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<S: AsRawFd> AsRawFd for Proxied<S> {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl<S: Source> Source for Proxied<S> {
    fn register(&mut self, to: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.socket.register(to, token, interests)
    }

    fn reregister(&mut self, to: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.socket.reregister(to, token, interests)
    }

    fn deregister(&mut self, from: &Registry) -> io::Result<()> {
        self.socket.deregister(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_exempt_by_name_by_ending_by_address_and_by_network() {
        let exempt =
            "node7, .cluster.local,*.site.org,10.0.0.0/8,fd00::/8,relay.org:8443,192.168.0.1";
        let proxies = Proxies::new("http://proxy:3128", exempt);
        let leads = |host: &str| proxies.to(host, "443").unwrap().is_some();
        for host in [
            "node7",
            "NODE7",
            "a.cluster.local",
            "cluster.local",
            "x.site.org",
            "10.1.2.3",
            "fd00::1",
            "192.168.0.1",
            "localhost",
            "127.0.0.1",
            "::1",
        ] {
            assert!(!leads(host), "{host}");
        }
        for host in [
            "node77",
            "acluster.local",
            "11.0.0.1",
            "relay.org",
            "fe80::1",
            "192.168.0.11",
        ] {
            assert!(leads(host), "{host}");
        }
        assert!(proxies.to("relay.org", "8443").unwrap().is_none());
        assert!(Proxies::default().to("node8", "443").unwrap().is_none());
        assert!(
            Proxies::new("proxy:1", "*")
                .to("node8", "443")
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_proxy_has_an_address_and_perhaps_a_user_whose_password_nobody_sees() {
        let to = |text: &str| Proxies::new(text, "").to("relay.org", "443");
        let proxy = to("http://jo:p%40ss@proxy.site:3128/").unwrap().unwrap();
        assert_eq!(proxy.authority, "proxy.site:3128");
        let request = String::from_utf8(proxy.request("relay.org:443")).unwrap();
        assert_eq!(
            request,
            "CONNECT relay.org:443 HTTP/1.1\r\nHost: relay.org:443\r\n\
             Proxy-Authorization: Basic am86cEBzcw==\r\n\r\n"
        );
        assert_eq!(to("proxy:3128").unwrap().unwrap().authority, "proxy:3128");
        for text in [
            "socks5://proxy:1",
            "http://jo:secret@proxy",
            "https://proxy:1",
            "http://:1",
        ] {
            let error = to(text).err().unwrap().to_string();
            assert!(error.contains("is no address of a proxy"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(!format!("{:?}", Proxies::new("http://jo:secret@proxy:1", "")).contains("secret"));
    }
}
