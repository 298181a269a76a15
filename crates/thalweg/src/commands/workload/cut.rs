//! A way from clients to their server that can be cut: nothing passes for some time, and connections stay, as where a
//! network loses all packets.
//!
//! ```text
//!            ┌────────── gate ──────────┐
//!  client ───┤ read ──► pass ──► write  ├──► server      a connection: a thread for each direction
//!            └──────────────────────────┘
//!  gate:  Open ──shut──► Shut ──open──► Open; Ended when the run is over
//! ```
//!
//! What is on its way while the gate is shut waits in front of it, and goes on afterwards. A connection that comes
//! meanwhile is taken, and the server hears of it afterwards. It is there only in a run with a cut.

use super::route::Upstream;
use crate::failure::{About, Failure};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;
use workload::{Backend, MEMBERS_MAX, Url};

const SUBJECT: &str = "the way to the server";
/// Connections at once: two of each member, and some.
const CONNECTIONS_MAX: u64 = 5 * MEMBERS_MAX;
/// Bytes that are carried at once.
const CARRIED_BYTES: usize = 64 << 10;
/// A thread's stack: what is carried is not on it.
const STACK_BYTES: usize = 128 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Shut,
    Ended,
}

/// What all threads wait at.
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.changed.notify_all();
    }

    /// Waits until something may pass; whether it may.
    fn pass(&self) -> bool {
        let is_shut = |state: &mut State| *state == State::Shut;
        let waited = self.changed.wait_while(self.lock(), is_shut);
        *waited.unwrap_or_else(PoisonError::into_inner) == State::Open
    }
}

/// The way. Ends with all of its connections when it is dropped.
pub struct CutWay {
    gate: Arc<Gate>,
    address: SocketAddr,
    /// Where clients find it.
    url: Url,
    transport: &'static str,
    /// Of a group file of its own.
    _scratch: tempfile::TempDir,
}

impl CutWay {
    /// One to the server at `url`.
    pub fn to(backend: Backend, url: &Url) -> Result<Self, Failure> {
        check(&url.0)?;
        let scratch = tempfile::tempdir().about("a temporary directory")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).about(SUBJECT)?;
        let address = listener.local_addr().about(SUBJECT)?;
        let upstream = Upstream::new(backend, url)?;
        let server = resolve(upstream.authority())?;
        let url = upstream.through(address.port(), scratch.path())?;
        let transport = match (backend, upstream.is_encrypted()) {
            (Backend::Amqp, true) => "amqps",
            (Backend::Amqp, false) => "amqp",
            (_, true) => "tls",
            (_, false) => "tcp",
        };
        let gate = Arc::new(Gate {
            state: Mutex::new(State::Open),
            changed: Condvar::new(),
        });
        let way = Self {
            gate: gate.clone(),
            address,
            url,
            transport,
            _scratch: scratch,
        };
        let accepting = Builder::new().name("cut".to_owned());
        let accepting = accepting.spawn(move || accept(&listener, server, &gate));
        accepting.about("a thread")?;
        Ok(way)
    }

    /// Where clients find it.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// How clients reach the server by it: the scheme of its address.
    pub const fn transport(&self) -> &'static str {
        self.transport
    }

    /// Lets nothing pass.
    pub fn shut(&self) {
        self.gate.set(State::Shut);
    }

    /// Lets all pass again.
    pub fn open(&self) {
        self.gate.set(State::Open);
    }
}

impl Drop for CutWay {
    fn drop(&mut self) {
        self.gate.set(State::Ended);
        // So that the listener looks up. If it cannot be reached it has ended already.
        let _ = TcpStream::connect(self.address);
    }
}

/// How long nobody is taken after a connection could not be.
const REST: Duration = Duration::from_millis(10);

/// Where nothing can stand in the middle.
fn check(url: &str) -> Result<(), Failure> {
    let schemes = ["unix://", "shm://", "inproc://"];
    match schemes.iter().any(|scheme| url.starts_with(scheme)) {
        false => Ok(()),
        true => {
            let what = format!(
                "\"cut\" cannot be done at {url}: a Unix socket and shared memory have no line that could be cut; \
                 reach the server at tcp:// or tls://"
            );
            Err(Failure::usage("faults", what))
        }
    }
}

fn resolve(place: impl ToSocketAddrs) -> Result<SocketAddr, Failure> {
    let mut found = place.to_socket_addrs().about(SUBJECT)?;
    let none = || Failure::usage("url", "the server's name has no address");
    found.next().ok_or_else(none)
}

/// Takes connections until the run is over.
fn accept(listener: &TcpListener, server: SocketAddr, gate: &Arc<Gate>) {
    let open = Arc::new(());
    loop {
        let taken = listener.accept();
        if *gate.lock() == State::Ended {
            return;
        }
        // Each connection has one in both of its threads. Beyond the bound it is closed, which its client sees.
        let is_full = Arc::strong_count(&open) as u64 > 2 * CONNECTIONS_MAX;
        let Ok((client, _)) = taken else {
            // There are no descriptors, say: others end meanwhile.
            std::thread::sleep(REST);
            continue;
        };
        if is_full {
            continue;
        }
        let (gate, open) = (gate.clone(), open.clone());
        let carrying = Builder::new()
            .name("cut".to_owned())
            .stack_size(STACK_BYTES);
        // Without a thread the connection is closed, which its client sees.
        let _ = carrying.spawn(move || carry(client, server, &gate, &open));
    }
}

/// Carries what one connection has, both ways. However it ends, both ends see it.
fn carry(client: TcpStream, server: SocketAddr, gate: &Arc<Gate>, open: &Arc<()>) {
    let connect = || -> io::Result<_> {
        let server = TcpStream::connect(server)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        Ok((client.try_clone()?, server.try_clone()?, server))
    };
    if !gate.pass() {
        return;
    }
    let Ok((to_client, from_server, to_server)) = connect() else {
        return;
    };
    let back = {
        let (gate, open) = (gate.clone(), open.clone());
        let carrying = Builder::new()
            .name("cut".to_owned())
            .stack_size(STACK_BYTES);
        carrying.spawn(move || {
            one_way(from_server, to_client, &gate);
            drop(open);
        })
    };
    match back {
        Ok(back) => {
            one_way(client, to_server, gate);
            // It ends when both ends have said that they have no more to say, or one is gone.
            let _ = back.join();
        }
        Err(_) => drop(client),
    }
}

/// Carries what comes, one way, until there is no more.
fn one_way(mut from: TcpStream, mut to: TcpStream, gate: &Gate) {
    let mut carried = vec![0; CARRIED_BYTES];
    let failed = loop {
        let read = match from.read(&mut carried) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break true,
        };
        if !gate.pass() {
            break true;
        }
        if read == 0 {
            break false;
        }
        if to.write_all(&carried[..read]).is_err() {
            break true;
        }
    };
    // One that is gone already is none the worse for it.
    let _ = match failed {
        true => from
            .shutdown(Shutdown::Both)
            .and(to.shutdown(Shutdown::Both)),
        false => to.shutdown(Shutdown::Write),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A way to a server that gives back what comes.
    fn echo() -> (CutWay, TcpStream) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = Url(format!("tcp://{}", server.local_addr().unwrap()));
        std::thread::spawn(move || {
            let (mut socket, _) = server.accept().unwrap();
            let mut back = socket.try_clone().unwrap();
            let _ = io::copy(&mut socket, &mut back);
            let _ = back.shutdown(Shutdown::Write);
        });
        let way = CutWay::to(Backend::Thalweg, &url).unwrap();
        let place = way.url().0.strip_prefix("tcp://").unwrap().to_owned();
        let client = TcpStream::connect(place).unwrap();
        (way, client)
    }

    fn says(client: &mut TcpStream, byte: u8) {
        let mut back = [0];
        client.read_exact(&mut back).unwrap();
        assert_eq!(back, [byte]);
    }

    #[test]
    fn bytes_stand_still_and_go_on() {
        let (way, mut client) = echo();
        client.write_all(&[1]).unwrap();
        says(&mut client, 1);
        way.shut();
        client.write_all(&[2]).unwrap();
        let wait = Duration::from_millis(100);
        client.set_read_timeout(Some(wait)).unwrap();
        let nothing = client.read(&mut [0]).unwrap_err();
        assert!(
            matches!(
                nothing.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ),
            "{nothing}"
        );
        client.set_read_timeout(None).unwrap();
        way.open();
        says(&mut client, 2);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn its_end_is_that_of_its_connections() {
        let (way, mut client) = echo();
        client.write_all(&[1]).unwrap();
        says(&mut client, 1);
        way.shut();
        client.write_all(&[2]).unwrap();
        drop(way);
        // Nothing that stood still passes any more.
        assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    }

    #[test]
    fn what_has_no_line_is_refused() {
        for url in ["unix:///run/thalweg.sock", "shm://a"] {
            let Err(why) = CutWay::to(Backend::Thalweg, &Url(url.to_owned())) else {
                panic!("{url}");
            };
            assert!(why.to_string().contains("tcp:// or tls://"), "{why}");
        }
    }
}
