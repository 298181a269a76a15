//! Where a socket is: it binds, or connects, and connects again.

use crate::endpoint::{Protocol, Side};
use crate::faults::{Fault, planted};
use crate::link;
use crate::reports::Reports;
use crate::stream::Stream;
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long what a protocol answers by itself may wait to be sent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an address may take to answer.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;
/// How long it takes until an address that does not answer is tried again: at first, and at most.
const RETRY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// After so long a connection is one of those that go well.
const STOOD: Duration = Duration::from_secs(5);
/// How long those that pull may take to read what was sent, when a socket that pushes ends.
const FINAL_FLUSH: Duration = Duration::from_secs(30);
/// How often a thread that waits looks whether it is to end.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// Connections beyond the bound, while a stranger goes to make space for one.
const CHANGING_MAX: usize = 16;

/// Where a socket is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It listens at the first of these that can be bound.
    Bind(Vec<SocketAddr>),
    /// It connects.
    Connect {
        /// `HOST:PORT`, looked up each time.
        authority: String,
        /// Whether other hosts are dialled. What a name stands for may change.
        beyond_the_host: bool,
    },
}

/// What can be chosen of a socket.
#[derive(Debug, Clone)]
pub struct SocketOptions {
    /// What is spoken.
    pub protocol: Protocol,
    /// Where it is.
    pub place: Place,
    /// The longest message that is taken.
    pub message_bytes_max: u64,
    /// Bytes of messages that are held; one message goes beyond, if it is the only one that does.
    pub held_bytes_max: u64,
    /// Connections at once, of a socket that binds.
    pub connections_max: usize,
    /// How long a handshake may take, all of it.
    pub handshake_timeout: Duration,
    /// Hears what becomes of connections.
    pub reports: Arc<Reports>,
}

impl SocketOptions {
    /// Of a socket at `place`, with the usual bounds.
    pub fn new(protocol: Protocol, place: Place) -> Self {
        Self {
            protocol,
            place,
            message_bytes_max: 256 << 20,
            held_bytes_max: 64 << 20,
            connections_max: 256,
            handshake_timeout: Duration::from_secs(10),
            reports: Arc::new(Reports::new(|_| {})),
        }
    }
}

/// What a connection does, once its handshake is done, until it ends.
pub(crate) type Serve = dyn Fn(u64, &mut Stream) -> io::Result<()> + Send + Sync;

/// The connections of a socket, each on a thread.
pub(crate) struct Places {
    shared: Arc<Shared>,
    address: Option<SocketAddr>,
    keeper: Option<JoinHandle<()>>,
}

struct Shared {
    options: SocketOptions,
    side: Side,
    serve: Box<Serve>,
    ends: AtomicBool,
    /// When the final flush is over.
    until: OnceLock<Instant>,
    /// Connections that had not read everything by then.
    unfinished: AtomicUsize,
    /// Connections whose handshake is done.
    count: AtomicUsize,
    last: AtomicU64,
    /// Guards the connections that stand, to be shut; held for an insertion or a look.
    open: Mutex<BTreeMap<u64, Open>>,
}

/// A connection that stands.
struct Open {
    socket: TcpStream,
    /// Whether its handshake is not done.
    is_stranger: bool,
}

/// How a connection ended.
struct Ended {
    /// Whether its handshake was done, and it stood for some time.
    went_well: bool,
    /// Why, in words.
    why: Option<String>,
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.open.lock().expect("no holder panics here")
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    fn report(&self, text: &str) {
        self.options.reports.line(text);
    }

    /// Serves a connection until it ends.
    fn run(&self, socket: TcpStream, peer: &str) -> Ended {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (mut was_met, began) = (false, Instant::now());
        let outcome = self.serve(id, socket, peer, &mut was_met);
        self.open().remove(&id);
        let why = outcome.err().filter(|_| !self.ends());
        let why = why.map(|error| match (error.kind(), was_met) {
            (io::ErrorKind::UnexpectedEof, true) => format!("{peer} has gone"),
            (io::ErrorKind::UnexpectedEof, false) => {
                format!("{peer} has gone before its handshake was done")
            }
            _ => format!("{peer} is let go: {error}"),
        });
        Ended {
            went_well: was_met && began.elapsed() >= STOOD,
            why,
        }
    }

    fn serve(&self, id: u64, socket: TcpStream, peer: &str, was_met: &mut bool) -> io::Result<()> {
        let open = Open {
            socket: socket.try_clone()?,
            is_stranger: true,
        };
        self.open().insert(id, open);
        if self.ends() {
            return Ok(());
        }
        socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let buffer_bytes = match self.side {
            Side::Pull => 64 << 10,
            Side::Push => 8 << 10,
        };
        let mut stream = Stream::new(socket, buffer_bytes)?;
        let until = Instant::now() + self.options.handshake_timeout;
        link::shake_hands(&mut stream, self.options.protocol, self.side, until)?;
        if self.side == Side::Push {
            // Who does not read is waited for.
            stream.socket().set_write_timeout(None)?;
        }
        if let Some(open) = self.open().get_mut(&id) {
            open.is_stranger = false;
        }
        *was_met = true;
        self.count.fetch_add(1, Ordering::AcqRel);
        let served = (self.serve)(id, &mut stream);
        self.count.fetch_sub(1, Ordering::AcqRel);
        if self.side == Side::Push && (served.is_ok() || self.ends()) {
            let until = *(self.until).get_or_init(|| Instant::now() + FINAL_FLUSH);
            if !stream.final_flush(|| Instant::now() < until) {
                self.unfinished.fetch_add(1, Ordering::AcqRel);
                self.report(&format!(
                    "{peer} has not read all that was sent to it, which may be lost"
                ));
            }
        }
        served
    }

    /// Ends the connection that has been a stranger for longest. False if there is none.
    fn let_a_stranger_go(&self) -> bool {
        let mut open = self.open();
        let Some(oldest) = open.values_mut().find(|open| open.is_stranger) else {
            return false;
        };
        oldest.is_stranger = false;
        // One that is gone needs no end.
        let _ = oldest.socket.shutdown(Shutdown::Both);
        true
    }

    fn shut_all(&self) {
        for open in self.open().values() {
            // What was given to a peer that pulls still gets there.
            let what = match self.side == Side::Push && !open.is_stranger {
                true => Shutdown::Write,
                false => Shutdown::Both,
            };
            let _ = open.socket.shutdown(what);
        }
    }
}

impl Places {
    /// Begins. An address to bind at is bound when it returns.
    pub fn open(options: SocketOptions, side: Side, serve: Box<Serve>) -> io::Result<Self> {
        let mut options = options;
        if planted(Fault::EndlessHandshake) {
            options.handshake_timeout = Duration::from_secs(3600);
        }
        let place = options.place.clone();
        let shared = Arc::new(Shared {
            options,
            side,
            serve,
            ends: AtomicBool::new(false),
            until: OnceLock::new(),
            unfinished: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            open: Mutex::default(),
        });
        let keeps = shared.clone();
        let (address, run): (_, Box<dyn FnOnce() + Send>) = match place {
            Place::Bind(addresses) => {
                let listener = TcpListener::bind(&addresses[..])?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                (Some(address), Box::new(move || accept(&keeps, &listener)))
            }
            Place::Connect {
                authority,
                beyond_the_host,
            } => {
                let run = move || connect(&keeps, &authority, beyond_the_host);
                (None, Box::new(run))
            }
        };
        let keeper = thread::Builder::new()
            .name("pushpull".to_owned())
            .spawn(run)?;
        Ok(Self {
            shared,
            address,
            keeper: Some(keeper),
        })
    }

    /// Where it listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// How many connections stand.
    pub fn count(&self) -> usize {
        self.shared.count.load(Ordering::Acquire)
    }

    /// How many connections had not read everything when this was closed.
    pub fn unfinished(&self) -> usize {
        self.shared.unfinished.load(Ordering::Acquire)
    }

    /// Has all connections end, and waits for none.
    pub fn begin_close(&self) {
        self.shared
            .until
            .get_or_init(|| Instant::now() + FINAL_FLUSH);
        self.shared.ends.store(true, Ordering::Release);
        self.shared.shut_all();
    }

    /// Whether all have ended.
    pub fn is_closed(&self) -> bool {
        (self.keeper.as_ref()).is_none_or(|keeper| keeper.is_finished())
    }

    /// Ends all connections, and waits for their threads.
    pub fn close(&mut self) {
        self.begin_close();
        if let Some(keeper) = self.keeper.take() {
            // A panic of its was reported by itself.
            let _ = keeper.join();
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.close();
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !shared.ends() {
        threads.retain(|thread| !thread.is_finished());
        let (socket, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    shared.report(&format!("a connection could not be taken: {error}"));
                }
                thread::sleep(LOOK);
                continue;
            }
        };
        let most = shared.options.connections_max;
        let is_full = threads.len() >= most;
        if is_full && !(threads.len() < most + CHANGING_MAX && shared.let_a_stranger_go()) {
            shared.report(&format!("{peer} is refused: {most} connections stand"));
            continue;
        }
        let serving = shared.clone();
        let run = move || {
            if socket.set_nonblocking(false).is_ok() {
                let ended = serving.run(socket, &peer.to_string());
                if let Some(why) = ended.why {
                    serving.report(&why);
                }
            }
        };
        match thread::Builder::new()
            .name("pushpull".to_owned())
            .spawn(run)
        {
            Ok(thread) => threads.push(thread),
            Err(error) => shared.report(&format!("no thread for {peer}: {error}")),
        }
    }
    // One may have begun when the others were shut: it sees the end itself.
    for thread in threads {
        let _ = thread.join();
    }
}

fn connect(shared: &Arc<Shared>, authority: &str, beyond_the_host: bool) {
    let mut wait = RETRY[0];
    let mut told = None;
    while !shared.ends() {
        let why = match dial_aside(shared, authority, beyond_the_host) {
            Ok(None) => break,
            Ok(Some(socket)) => {
                let ended = shared.run(socket, authority);
                if ended.went_well {
                    (wait, told) = (RETRY[0], None);
                }
                ended.why
            }
            Err(error) => Some(format!("{authority} is not reached yet: {error}")),
        };
        // What stays the same is said once.
        if let Some(why) = why.filter(|_| !shared.ends())
            && told.as_ref() != Some(&why)
        {
            shared.report(&why);
            told = Some(why);
        }
        let until = Instant::now() + wait;
        while !shared.ends()
            && let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            thread::sleep(left.min(LOOK));
        }
        wait = (wait * 2).min(RETRY[1]);
    }
}

/// Dials on a thread that is left to itself where nobody waits for it any more: to look up a name has no end of
/// its own. `None` then.
fn dial_aside(
    shared: &Arc<Shared>,
    authority: &str,
    beyond_the_host: bool,
) -> io::Result<Option<TcpStream>> {
    let (sender, dialled) = sync_channel(1);
    let (dials, to) = (shared.clone(), authority.to_owned());
    thread::Builder::new()
        .name("pushpull-dial".to_owned())
        .spawn(move || {
            // Nobody may be there any more.
            let _ = sender.send(dial(&dials, &to, beyond_the_host));
        })?;
    while !shared.ends() {
        match dialled.recv_timeout(LOOK) {
            Ok(dialled) => return dialled.map(Some),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the thread that dials has gone"));
            }
        }
    }
    Ok(None)
}

fn dial(shared: &Shared, authority: &str, beyond_the_host: bool) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in authority.to_socket_addrs()?.take(ADDRESSES_MAX) {
        if shared.ends() {
            break;
        }
        if !beyond_the_host && !address.ip().to_canonical().is_loopback() {
            let text = format!("{address} is another host's, which is not allowed here");
            last = io::Error::new(io::ErrorKind::PermissionDenied, text);
            continue;
        }
        match TcpStream::connect_timeout(&address, DIAL_TIMEOUT) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
