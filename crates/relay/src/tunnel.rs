//! A session that tasks carry: one for each connection between the sites, one for each stream.

use crate::account::Account;
use crate::error::RelayError;
use crate::faults::{Fault, planted};
use crate::frame::{Frame, PAYLOAD_BYTES_MAX, Reason, StreamId};
use crate::relay::{Event, Events};
use crate::session::{Next, Read, STRIPES_MAX, Session, Stripe, Wake};
use crate::tcp_info::retransmits;
use bytes::{BufMut, BytesMut};
use socket2::SockRef;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, sleep_until, timeout};

/// Bytes that are read or written at once.
const BLOCK_BYTES: usize = 64 << 10;
/// What TLS gives at once.
const RECORD_BYTES: usize = 16 << 10;
/// How long a target may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the other side may take to close, once the session is over.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// After a listener that could not accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A target of this side: its name, and where it leads.
pub(crate) type Targets = HashMap<String, String>;

/// A session, and what wakes its tasks.
pub(crate) struct Tunnel {
    /// Held for a moment, by whichever task has something for the session or of it. Never across an `await`.
    state: Mutex<State>,
    /// Wakes the task that writes to a connection.
    stripes: [Notify; STRIPES_MAX],
    /// Ends the tasks of a connection.
    drops: [Notify; STRIPES_MAX],
    /// Why the session is over, once it is.
    over: watch::Sender<Option<Reason>>,
    /// What TCP sent again. Locked for a look at each connection.
    retransmits: Mutex<Retransmits>,
    targets: Targets,
    events: Events,
    tasks: Handle,
}

/// Both ends of a connection of TCP, this one first.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// What TCP sent again.
#[derive(Default)]
struct Retransmits {
    /// Of connections that are open: where each is, and what was counted of it.
    open: [Option<(Ends, u32)>; STRIPES_MAX],
    /// Of those that are gone.
    gone: u64,
}

impl Retransmits {
    fn look(&mut self) {
        for ((own, peer), count) in self.open.iter_mut().flatten() {
            *count = retransmits(*own, *peer).unwrap_or(*count);
        }
    }

    fn begin(&mut self, stripe: Stripe, ends: Option<Ends>) {
        self.open[usize::from(stripe.0)] = ends.map(|ends| (ends, 0));
    }

    fn end(&mut self, stripe: Stripe) {
        let ended = self.open[usize::from(stripe.0)].take();
        self.gone += ended.map_or(0, |(_, count)| u64::from(count));
    }

    fn all(&self) -> u64 {
        let open = self.open.iter().flatten();
        self.gone + open.map(|(_, count)| u64::from(*count)).sum::<u64>()
    }
}

/// The ends of a connection.
pub(crate) fn ends(socket: &TcpStream) -> Option<Ends> {
    Some((socket.local_addr().ok()?, socket.peer_addr().ok()?))
}

struct State {
    session: Session,
    /// Connections that are welcomed, and do not carry it yet.
    coming: usize,
    streams: HashMap<StreamId, Arc<Signals>>,
}

/// What wakes the task of a stream.
#[derive(Default)]
struct Signals {
    readable: Notify,
    writable: Notify,
    failed: Notify,
}

/// A connection that is welcomed, and does not carry the session yet. If the session ends meanwhile, that is said there.
pub(crate) struct Coming(Arc<Tunnel>);

impl Coming {
    /// Carries the session over a connection until that is gone. `rest` is what has come of it, `ends` where it is.
    pub(crate) async fn carry<S>(
        self,
        stream: S,
        rest: BytesMut,
        ends: Option<Ends>,
    ) -> Result<(), RelayError>
    where
        S: AsyncRead + AsyncWrite,
    {
        let tunnel = self.0.clone();
        let (stripe, is_first) = tunnel.with(|session| {
            let is_first = session.stripes() == 0;
            (session.attach(Instant::now()), is_first)
        });
        drop(self);
        let Some(stripe) = stripe else {
            return Err(RelayError::Refused(crate::frame::Refusal::Full));
        };
        if is_first {
            tunnel.events.send(Event::Connected);
        }
        tunnel.retransmits().begin(stripe, ends);
        let ended = tunnel.carry_as(stripe, stream, rest).await;
        tunnel.retransmits().end(stripe);
        let is_cut = tunnel.with(|session| {
            session.lost(stripe);
            session.stripes() == 0 && session.over().is_none()
        });
        if is_cut {
            let why = ended
                .as_ref()
                .err()
                .map(ToString::to_string)
                .unwrap_or_default();
            tunnel.events.send(Event::Cut(why));
        }
        ended
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.state().coming -= 1;
    }
}

/// How the task of a stream ends before both directions have.
enum Ended {
    /// The session says so; it knows.
    There,
    /// The program here has gone.
    Here,
}

impl Tunnel {
    pub(crate) fn new(session: Session, targets: Targets, events: Events) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                session,
                coming: 0,
                streams: HashMap::new(),
            }),
            stripes: Default::default(),
            drops: Default::default(),
            over: watch::Sender::new(None),
            retransmits: Mutex::default(),
            targets,
            events,
            tasks: Handle::current(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Whether there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        self.state().session.stripes() > 0
    }

    /// Says that a connection is being welcomed.
    pub(crate) fn coming(self: &Arc<Self>) -> Coming {
        self.state().coming += 1;
        Coming(self.clone())
    }

    /// Does something with the session, and wakes who has something to do then.
    fn with<T>(self: &Arc<Self>, act: impl FnOnce(&mut Session) -> T) -> T {
        let mut state = self.state();
        let done = act(&mut state.session);
        self.wake(&mut state);
        done
    }

    fn wake(self: &Arc<Self>, state: &mut State) {
        for wake in state.session.wakes() {
            match wake {
                Wake::Stripe(stripe) => self.stripes[usize::from(stripe.0)].notify_one(),
                Wake::Drop(stripe) => self.drops[usize::from(stripe.0)].notify_one(),
                Wake::Readable(id) => {
                    if let Some(signals) = state.streams.get(&id) {
                        signals.readable.notify_one();
                    }
                }
                Wake::Writable(id) => {
                    if let Some(signals) = state.streams.get(&id) {
                        signals.writable.notify_one();
                    }
                }
                Wake::Opened(id, name) => {
                    let signals = Arc::<Signals>::default();
                    state.streams.insert(id, signals.clone());
                    self.tasks.spawn(self.clone().serve(id, name, signals));
                }
                Wake::Failed(id, reason) => match state.streams.get(&id) {
                    Some(signals) => {
                        self.events.send(Event::Failed(reason));
                        signals.failed.notify_one();
                    }
                    // Its task has ended in order; nobody else reads why it failed.
                    None => drop(state.session.read(id)),
                },
                Wake::Over(reason) => {
                    self.over.send_replace(Some(reason));
                }
            }
        }
    }

    /// What has passed.
    pub(crate) fn account(&self) -> Account {
        let mut retransmits = self.retransmits();
        retransmits.look();
        Account {
            retransmits: retransmits.all(),
            ..self.state().session.account()
        }
    }

    fn retransmits(&self) -> MutexGuard<'_, Retransmits> {
        self.retransmits.lock().expect("no holder panics")
    }

    /// Looks after what time brings.
    pub(crate) fn tick(self: &Arc<Self>) {
        self.retransmits().look();
        self.with(|session| session.tick(Instant::now()));
    }

    /// Ends the session, and waits until the other side was told, or does not listen.
    pub(crate) async fn leave(self: &Arc<Self>, reason: Reason) {
        self.with(|session| session.leave(reason));
        let deadline = tokio::time::Instant::now() + LEAVE_TIMEOUT * 2;
        let is_told = || {
            let state = self.state();
            let comes = state.coming > 0 && !planted(Fault::ForgetsComing);
            state.session.stripes() == 0 && !comes
        };
        while !is_told() && tokio::time::Instant::now() < deadline {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the session is over.
    pub(crate) async fn over(&self) -> Reason {
        let mut over = self.over.subscribe();
        let reason = over.wait_for(Option::is_some).await;
        reason
            .ok()
            .and_then(|reason| *reason)
            .unwrap_or(Reason::Leaves)
    }

    /// Ends the session without a word: the other side does not know it any more.
    pub(crate) fn end(self: &Arc<Self>, reason: Reason) {
        self.with(|session| session.leave(reason));
    }

    async fn carry_as<S>(
        self: &Arc<Self>,
        stripe: Stripe,
        stream: S,
        rest: BytesMut,
    ) -> Result<(), RelayError>
    where
        S: AsyncRead + AsyncWrite,
    {
        let (reader, writer) = tokio::io::split(stream);
        let read = self.read(stripe, reader, rest);
        tokio::pin!(read);
        tokio::select! {
            ended = &mut read => ended,
            ended = self.write(stripe, writer) => {
                ended?;
                // All is said. Until the other side closes, its bytes are read: unread ones would make the kernel
                // take back what was said.
                timeout(LEAVE_TIMEOUT, read).await.unwrap_or(Ok(()))
            }
            () = self.drops[usize::from(stripe.0)].notified() => {
                Err(RelayError::Unreachable("nothing was heard of the other side for 20 s".to_owned()))
            }
        }
    }

    async fn read<R>(
        self: &Arc<Self>,
        stripe: Stripe,
        mut reader: R,
        mut input: BytesMut,
    ) -> Result<(), RelayError>
    where
        R: AsyncRead + Unpin,
    {
        let mut frames = Vec::new();
        loop {
            let decoded = loop {
                match Frame::decode(&mut input, PAYLOAD_BYTES_MAX) {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(RelayError::Protocol(error.to_string())),
                }
            };
            let now = Instant::now();
            let over = self.with(|session| {
                for frame in frames.drain(..) {
                    session.receive(now, stripe, frame)?;
                }
                // Until all is said the connection is there, whatever comes on it.
                let speaks = session.has_left() && !planted(Fault::DropsTheWord);
                Ok(session.over().filter(|_| !speaks))
            });
            decoded?;
            match over {
                Ok(None) => {}
                Ok(Some(reason)) => return Err(RelayError::Over(reason)),
                Err(broken) => {
                    let broken: crate::session::Broken = broken;
                    self.with(|session| session.leave(Reason::Protocol));
                    return Err(RelayError::Protocol(broken.to_string()));
                }
            }
            // A piece that is kept keeps its block: blocks are filled.
            if input.capacity() - input.len() < RECORD_BYTES {
                input.reserve(BLOCK_BYTES);
            }
            match reader.read_buf(&mut input).await {
                Ok(0) => {
                    return Err(RelayError::Unreachable(
                        "the connection was closed".to_owned(),
                    ));
                }
                Ok(_) => {}
                Err(error) => return Err(RelayError::Unreachable(error.to_string())),
            }
        }
    }

    async fn write<W>(self: &Arc<Self>, stripe: Stripe, mut writer: W) -> Result<(), RelayError>
    where
        W: AsyncWrite + Unpin,
    {
        let unreachable = |error: std::io::Error| RelayError::Unreachable(error.to_string());
        let woken = &self.stripes[usize::from(stripe.0)];
        let mut out = BytesMut::with_capacity(2 * BLOCK_BYTES);
        loop {
            let mut frames = Vec::new();
            let (wait, is_over) = self.with(|session| {
                let mut bytes = 0;
                let now = Instant::now();
                while bytes < BLOCK_BYTES {
                    match session.next(now, stripe) {
                        Next::Frame(frame) => {
                            if let Frame::Data { bytes: data, .. } = &frame {
                                bytes += data.len();
                            }
                            bytes += crate::frame::HEADER_BYTES;
                            frames.push(frame);
                        }
                        other => return (Some(other), session.over().is_some()),
                    }
                }
                (None, false)
            });
            for frame in &frames {
                frame.encode(&mut out);
            }
            if !out.is_empty() {
                writer.write_all(&out).await.map_err(unreachable)?;
                writer.flush().await.map_err(unreachable)?;
                out.clear();
                continue;
            }
            if is_over {
                // It may be gone already.
                let _ = writer.shutdown().await;
                return Ok(());
            }
            match wait {
                Some(Next::At(at)) => {
                    tokio::select! {
                        () = woken.notified() => {}
                        () = sleep_until(at.into()) => {}
                    }
                }
                _ => woken.notified().await,
            }
        }
    }

    /// Accepts connections to a target of the other side, until the session is over.
    pub(crate) async fn listen(self: Arc<Self>, name: String, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = self.over() => return,
            };
            match accepted {
                Ok((socket, _)) => self.accept(&name, socket),
                // Of descriptors there are none, perhaps: those that are there may go on.
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    fn accept(self: &Arc<Self>, name: &str, socket: TcpStream) {
        let mut state = self.state();
        match state.session.open(Instant::now(), name) {
            Ok(id) => {
                let signals = Arc::<Signals>::default();
                state.streams.insert(id, signals.clone());
                self.wake(&mut state);
                self.tasks.spawn(self.clone().pump(id, socket, signals));
            }
            Err(reason) => {
                drop(state);
                self.events.send(Event::Failed(reason));
                abort(socket);
            }
        }
    }

    /// Connects a stream of the other side to the target that it names.
    async fn serve(self: Arc<Self>, id: StreamId, name: String, signals: Arc<Signals>) {
        let Some(address) = self.targets.get(&name) else {
            return self.refuse(
                id,
                Reason::NoTarget,
                format!("{name}: there is no such target"),
            );
        };
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => self.pump(id, socket, signals).await,
            Ok(Err(error)) => self.refuse(
                id,
                Reason::Unreachable,
                format!("{name}={address}: {error}"),
            ),
            Err(_) => self.refuse(
                id,
                Reason::Unreachable,
                format!("{name}={address}: does not answer"),
            ),
        }
    }

    fn refuse(self: &Arc<Self>, id: StreamId, reason: Reason, why: String) {
        self.events.send(Event::Refused(why));
        self.with(|session| session.reset(id, reason));
        self.state().streams.remove(&id);
    }

    /// Carries a stream from and to its program.
    async fn pump(self: Arc<Self>, id: StreamId, mut socket: TcpStream, signals: Arc<Signals>) {
        // It is for speed alone.
        let _ = socket.set_nodelay(true);
        let (from, to) = socket.split();
        let ended = tokio::select! {
            ended = async { tokio::try_join!(self.up(id, from, &signals), self.down(id, to, &signals)) } => ended.map(drop),
            () = signals.failed.notified() => Err(Ended::There),
        };
        self.state().streams.remove(&id);
        match ended {
            Ok(()) => {}
            Err(Ended::There) => {
                // It is forgotten by that.
                self.with(|session| drop(session.read(id)));
                abort(socket);
            }
            Err(Ended::Here) => self.with(|session| session.reset(id, Reason::Program)),
        }
    }

    async fn up(
        self: &Arc<Self>,
        id: StreamId,
        mut from: impl AsyncRead + Unpin,
        signals: &Signals,
    ) -> Result<(), Ended> {
        let mut buffer = BytesMut::new();
        loop {
            let room = match self.with(|session| session.room(id)) {
                Some(room) => room.min(BLOCK_BYTES),
                None => return Err(Ended::There),
            };
            if room == 0 {
                signals.writable.notified().await;
                continue;
            }
            if buffer.capacity() < BLOCK_BYTES / 16 {
                buffer.reserve(BLOCK_BYTES);
            }
            match from.read_buf(&mut (&mut buffer).limit(room)).await {
                Ok(0) => {
                    self.with(|session| session.finish(id));
                    return Ok(());
                }
                Ok(_) => self.with(|session| session.write(id, buffer.split().freeze())),
                Err(_) => return Err(Ended::Here),
            }
        }
    }

    async fn down(
        self: &Arc<Self>,
        id: StreamId,
        mut to: impl AsyncWrite + Unpin,
        signals: &Signals,
    ) -> Result<(), Ended> {
        loop {
            match self.with(|session| session.read(id)) {
                Read::Bytes(bytes) => {
                    to.write_all(&bytes).await.map_err(|_| Ended::Here)?;
                    let opens = self.with(|session| session.takes(Instant::now(), bytes.len()));
                    if let Some(at) = opens {
                        sleep_until(at.into()).await;
                    }
                }
                Read::Nothing => signals.readable.notified().await,
                Read::End => {
                    // The program may have gone, which its other direction finds.
                    let _ = to.shutdown().await;
                    return Ok(());
                }
                Read::Reset(_) => return Err(Ended::There),
            }
        }
    }
}

/// Ends a connection so that its program sees that it has failed.
fn abort(socket: TcpStream) {
    // Without it the program sees an end in order.
    let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;
    use crate::memory::Memory;
    use crate::rates::Rates;
    use crate::relay::Relay;
    use crate::session::Side;
    use tokio::io::{DuplexStream, duplex};

    /// Repeats of what goes one way or the other by chance.
    const TIMES: usize = 32;

    fn tunnel() -> Arc<Tunnel> {
        let session = Session::new(
            Side::Offered,
            Rates::default(),
            &Memory::of(1 << 30),
            Instant::now(),
        );
        let (_relay, shared) = Relay::lent();
        Tunnel::new(session, Targets::new(), shared.events.clone())
    }

    /// In this thread, where faults are planted.
    fn run<T>(act: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(act)
    }

    /// Reads until the end. Whether that was announced.
    async fn is_told(mut far: DuplexStream) -> bool {
        let mut input = BytesMut::new();
        let mut told = false;
        while far.read_buf(&mut input).await.is_ok_and(|count| count > 0) {
            while let Ok(Some(frame)) = Frame::decode(&mut input, PAYLOAD_BYTES_MAX) {
                told |= frame == Frame::Goodbye(Reason::Leaves);
            }
            if told {
                return true;
            }
        }
        told
    }

    #[test]
    fn the_word_is_said_whatever_comes_meanwhile() {
        let says = || {
            run(async {
                let (tunnel, (near, mut far)) = (tunnel(), duplex(1 << 16));
                let carry = tokio::spawn({
                    let coming = tunnel.coming();
                    coming.carry(near, BytesMut::new(), None)
                });
                // Its first ping: then it waits for more.
                let mut first = BytesMut::new();
                while !matches!(Frame::decode(&mut first, PAYLOAD_BYTES_MAX), Ok(Some(_))) {
                    far.read_buf(&mut first).await.unwrap();
                }
                let mut out = BytesMut::new();
                Frame::Ping(1).encode(&mut out);
                far.write_all(&out).await.unwrap();
                let (told, ()) = tokio::join!(is_told(far), tunnel.leave(Reason::Leaves));
                let _ = carry.await;
                told
            })
        };
        assert!((0..TIMES).all(|_| says()));
        let fault = || (0..TIMES).all(|_| says());
        assert!(!faults::with(faults::Fault::DropsTheWord, fault));
    }

    #[test]
    fn who_is_being_welcomed_when_it_ends_is_told_before_that_is_over() {
        let says = || {
            run(async {
                let (tunnel, (near, far)) = (tunnel(), duplex(1 << 16));
                let coming = tunnel.coming();
                let told = std::cell::Cell::new(false);
                let leaves = async {
                    tunnel.leave(Reason::Leaves).await;
                    told.get()
                };
                let comes = async {
                    tokio::task::yield_now().await;
                    let _ = coming.carry(near, BytesMut::new(), None).await;
                };
                let hears = async { told.set(is_told(far).await) };
                tokio::join!(leaves, comes, hears).0
            })
        };
        assert!((0..TIMES).all(|_| says()));
        assert!(!faults::with(faults::Fault::ForgetsComing, says));
    }
}
