//! The calls as they are served, and the tasks behind them.

use crate::caller::Caller;
use crate::calls::{self, Code as Status, Failed};
use crate::message::{self, Places, Request};
use crate::options::{Options, ScistreamError};
use crate::place::quoted;
use crate::plain::Plain;
use crate::session::{Asked, Refused, Role, Serial, Session, Table, Turn};
use crate::way::{Goal, Way, read_place};
use net::Proxies;
use relay::{Code, Destination, Hub, HubOffer, JoinOptions, Relay, Stranger, Strangers, Target};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener as Bound};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Connections of clients that make calls which they may make.
const CALLERS_MAX: usize = 64;
/// Connections of which no such call has come yet; where one more comes, the oldest goes.
const STRANGERS_MAX: usize = 64;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a connection may stand without a call that may be made.
const UNKNOWN: Duration = Duration::from_secs(15);
/// How long `req` waits for `hello`, as SciStream's own servers do.
const HELLO: Duration = Duration::from_secs(180);
/// How long the code of a tunnel is good: a person carries it to the other site.
const CODE_LASTS: Duration = Duration::from_secs(3600);
/// How long a tunnel lasts, however much it is used.
const TUNNEL_LASTS: Duration = Duration::from_secs(30 * 24 * 3600);
/// Connections of a tunnel at once, as `thalweg relay offer` has it.
const STRIPES: u8 = 8;
/// How often sessions are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long the ends of tunnels may take.
const ENDING: Duration = Duration::from_secs(3);
/// What its threads are.
const THREADS: usize = 4;

/// SciStream's four calls, served on threads of their own. Dropping it ends all sessions.
pub struct Scistream {
    runtime: Option<Runtime>,
    face: Arc<Face>,
    address: SocketAddr,
}

impl Scistream {
    /// Begins to take calls.
    ///
    /// # Errors
    /// Names what cannot be, or what the system refuses.
    pub fn start(options: Options) -> Result<Self, ScistreamError> {
        options.check()?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let system =
            |what: &str, error: std::io::Error| ScistreamError::System(format!("{what}: {error}"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.min(THREADS))
            .thread_name("scistream")
            .enable_all()
            .build()
            .map_err(|error| system("threads", error))?;
        let (face, listener, tls) = runtime.block_on(async {
            let files = options.certificate.as_ref();
            let files = files.map(|(chain, key)| (chain.as_path(), key.as_path()));
            let tls = files
                .map(|files| relay::serving(files, &[b"h2"]))
                .transpose()?;
            let listener = TcpListener::bind(options.listen).await;
            let at = format!("listening at {}", options.listen);
            let listener = listener.map_err(|error| system(&at, error))?;
            let hub = match &options.inbound {
                None => None,
                Some(inbound) => Some(Hub::listen(&inbound.listen, &inbound.host, files).await?),
            };
            let table = Table::new(options.ports.clone());
            let face = Arc::new(Face {
                state: Mutex::new(State {
                    table,
                    live: BTreeMap::new(),
                }),
                start: Instant::now(),
                hub,
                options,
            });
            Ok::<_, ScistreamError>((face, listener, tls.map(TlsAcceptor::from)))
        })?;
        let address = listener.local_addr();
        let address = address.map_err(|error| system("listening", error))?;
        runtime.spawn(face.clone().accept(listener, tls));
        runtime.spawn(face.clone().look_after());
        Ok(Self {
            runtime: Some(runtime),
            face,
            address,
        })
    }

    /// Where it takes calls.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where tunnels of inbound sessions come in, if they do.
    pub fn inbound(&self) -> Option<SocketAddr> {
        self.face.hub.as_ref().map(Hub::address)
    }

    /// Ends all sessions, and tells the other sides.
    pub fn stop(mut self) {
        let live = std::mem::take(&mut self.face.state().live);
        let ways = live.values().filter_map(|live| live.way.as_ref());
        ways.clone().for_each(Way::end);
        // Who ends a tunnel tells the other side, for which it has a moment.
        let deadline = Instant::now() + ENDING;
        ways.for_each(|way| way.ended(deadline));
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(ENDING);
        }
    }
}

impl Drop for Scistream {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What calls and tasks share.
pub struct Face {
    options: Options,
    hub: Option<Hub>,
    start: Instant,
    /// Locked for a look, never across an `await`.
    state: Mutex<State>,
}

struct State {
    table: Table,
    /// What sessions of the table have beside it.
    live: BTreeMap<String, Live>,
}

/// What a session has, for as long as it lives.
struct Live {
    serial: Serial,
    /// Woken by its `hello`.
    named: Arc<Notify>,
    /// What its clients are told.
    told: Vec<String>,
    /// What its other side joins with, if it is inbound.
    code: Option<Code>,
    /// Its ports, from the call that asks for them on.
    listeners: Vec<Bound>,
    way: Option<Way>,
    /// What had passed when it was looked at last.
    passed: u64,
}

impl Drop for Live {
    /// A call that waits for its `hello` waits no more.
    fn drop(&mut self) {
        self.named.notify_one();
    }
}

impl Face {
    pub fn options(&self) -> &Options {
        &self.options
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn line(&self, uid: &str, text: &str) {
        (self.options.report)(&format!("session {uid}: {text}"));
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    async fn accept(self: Arc<Self>, listener: TcpListener, tls: Option<TlsAcceptor>) {
        let callers = Arc::new(Semaphore::new(CALLERS_MAX));
        let strangers = Strangers::new(STRANGERS_MAX);
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let caller = Caller::new(self.clone(), peer.ip());
                    let places = (strangers.enter(), callers.clone());
                    tokio::spawn(serve(stream, caller, tls.clone(), places));
                }
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Looks after sessions: what they report, whether they are used, and their ends.
    async fn look_after(self: Arc<Self>) {
        let mut ticks = interval(LOOK);
        loop {
            ticks.tick().await;
            self.look();
        }
    }

    fn look(&self) {
        let now = self.now();
        let mut lines = Vec::new();
        let mut over = Vec::new();
        let mut state = self.state();
        let State { table, live } = &mut *state;
        for (uid, one) in live.iter_mut() {
            let Some(way) = &one.way else {
                continue;
            };
            let news = way.news();
            lines.extend(news.lines.into_iter().map(|line| (uid.clone(), line)));
            if news.passed != one.passed {
                one.passed = news.passed;
                table.used(uid, one.serial, now);
            }
            if news.is_over && table.end(uid, one.serial) {
                over.push((uid.clone(), "is over: the other side has ended it"));
            }
        }
        over.extend(table.end_idle(now));
        for (uid, _) in &over {
            live.remove(uid);
        }
        drop(state);
        lines.iter().for_each(|(uid, text)| self.line(uid, text));
        over.iter().for_each(|(uid, text)| self.line(uid, text));
    }

    /// Asks for listeners, and waits for who is behind them.
    pub async fn req(&self, request: &Request, project: &str) -> Result<Vec<u8>, Failed> {
        let (serial, named) = self.ask(request, project)?;
        // A call that is given up, by its client or here, leaves nothing behind.
        let mut unnamed = Unnamed {
            face: self,
            uid: &request.uid,
            serial,
            is_named: false,
        };
        if timeout(HELLO, named.notified()).await.is_err() {
            let why = format!("no hello within {} s", HELLO.as_secs());
            return Err(Failed(Status::DeadlineExceeded, why));
        }
        unnamed.is_named = true;
        let mut state = self.state();
        let said = state.table.find(&request.uid, project)?.named.clone();
        let live = state.live.get(&request.uid);
        // It may have been released meanwhile.
        let live = live.filter(|live| live.serial == serial);
        let told = &live.ok_or(Refused::NotFound)?.told;
        Ok(message::response(told, &said))
    }

    fn ask(&self, request: &Request, project: &str) -> Result<(Serial, Arc<Notify>), Failed> {
        let asked = Asked {
            uid: &request.uid,
            project,
            role: &request.role,
            count: request.num_conn,
            rate: request.rate,
        };
        let mut listeners = Vec::new();
        let bind = |port| {
            let listener = Bound::bind((self.options.listener_ip, port)).ok()?;
            listener.set_nonblocking(true).ok()?;
            let port = listener.local_addr().ok()?.port();
            listeners.push(listener);
            Some(port)
        };
        let mut state = self.state();
        if request.role == "PROD" && self.hub.is_none() {
            let why = "inbound sessions are not taken here: its operator can (--inbound)";
            return Err(Refused::NotNow(why).into());
        }
        let session = state.table.ask(&asked, self.now(), bind)?.clone();
        let (told, code) = match self.told(&session) {
            Ok(told) => told,
            Err(failed) => {
                state.table.end(&request.uid, session.serial);
                return Err(failed);
            }
        };
        let named = Arc::new(Notify::new());
        let live = Live {
            serial: session.serial,
            named: named.clone(),
            told,
            code,
            listeners,
            way: None,
            passed: 0,
        };
        state.live.insert(request.uid.clone(), live);
        drop(state);
        let (role, count) = (&request.role, session.count);
        let by = match project {
            "" => String::new(),
            project => format!(" for project {project}"),
        };
        self.line(&request.uid, &format!("{role}, {count} connections{by}"));
        Ok((session.serial, named))
    }

    /// What a session's clients are told of where its listeners are, and the code in it.
    fn told(&self, session: &Session) -> Result<(Vec<String>, Option<Code>), Failed> {
        match (session.role, &self.options.inbound, &self.hub) {
            (Role::Inbound, Some(inbound), Some(hub)) => {
                let code = relay::random_code();
                let code = code.map_err(|error| Failed(Status::Unavailable, error.to_string()))?;
                let port = inbound.port.unwrap_or(hub.address().port());
                let host = match inbound.host.contains(':') {
                    true => format!("[{}]", inbound.host),
                    false => inbound.host.clone(),
                };
                let one = format!("{}@{host}:{port}", code.to_text());
                Ok((vec![one; session.count], Some(code)))
            }
            _ => {
                let address = |port: &u16| SocketAddr::new(self.options.listener_ip, *port);
                let ports = session.ports.iter();
                Ok((ports.map(|port| address(port).to_string()).collect(), None))
            }
        }
    }

    /// Says who is behind a session's listeners.
    pub fn hello(&self, said: Places, project: &str) -> Result<Vec<u8>, Failed> {
        let mut state = self.state();
        state
            .table
            .name(&said.uid, project, said.places, self.now())?;
        let live = state.live.get(&said.uid).ok_or(Refused::NotFound)?;
        live.named.notify_one();
        Ok(message::app_response("Sending listeners...", &live.told))
    }

    /// Makes a session's listeners lead somewhere.
    pub async fn update(&self, said: Places, project: &str) -> Result<Vec<u8>, Failed> {
        let (uid, places) = (&said.uid, &said.places);
        // What may not be dialled is refused before the session has changed.
        let role = self.state().table.find(uid, project)?.role;
        let goal = match role {
            Role::Outbound => Some(self.goal(places)?),
            Role::Inbound => None,
        };
        let turn = self
            .state()
            .table
            .turn(uid, project, &said.role, places, self.now())?;
        let session = match turn {
            Turn::Leads(_) => return self.answer(uid, places),
            Turn::Lead(session) => session,
        };
        // A client that goes away meanwhile leaves the session as it was.
        let mut turning = Turning {
            face: self,
            uid,
            serial: session.serial,
            is_settled: false,
        };
        let way = match goal {
            Some(goal) => self.lead_out(uid, &session, goal).await?,
            None => self.lead_in(uid, &session, places)?,
        };
        turning.is_settled = true;
        let mut state = self.state();
        if !state
            .table
            .settle(uid, session.serial, Some(places.clone()))
        {
            return Err(Refused::NotFound.into());
        }
        if let Some(live) = state.live.get_mut(uid) {
            live.way = Some(way);
        }
        drop(state);
        self.answer(uid, places)
    }

    fn goal(&self, places: &[String]) -> Result<Goal, Failed> {
        let goal = Goal::read(places, &self.options.allowed)?;
        match goal {
            Goal::Places(_) if !self.options.plain => {
                let why = "that is no offer of a relay (CODE@HOST:PORT), so that nothing would be encrypted: the \
                           operator of this relay can allow it (--plain)";
                Err(Refused::NotNow(why).into())
            }
            goal => Ok(goal),
        }
    }

    fn answer(&self, uid: &str, places: &[String]) -> Result<Vec<u8>, Failed> {
        let state = self.state();
        let live = state.live.get(uid).ok_or(Refused::NotFound)?;
        Ok(message::response(&live.told, places))
    }

    /// What counts: the lower one of what was asked for and what the operator lets.
    fn rate(&self, session: &Session) -> Option<u64> {
        [session.rate, self.options.rate]
            .into_iter()
            .flatten()
            .min()
    }

    fn lead_in(&self, uid: &str, session: &Session, places: &[String]) -> Result<Way, Failed> {
        let mut targets = Vec::new();
        for (index, text) in places.iter().cycle().take(session.count).enumerate() {
            let address = read_place(text, &self.options.allowed)?.to_string();
            // The other side has them in the order of these names.
            let name = format!("{:02}", index + 1);
            targets.push(Target { name, address });
        }
        let code = self
            .state()
            .live
            .get(uid)
            .and_then(|live| live.code.clone());
        let (Some(code), Some(hub)) = (code, &self.hub) else {
            return Err(Refused::NotFound.into());
        };
        let to: Vec<String> = places.iter().map(|place| quoted(place)).collect();
        let relay = hub.offer(HubOffer {
            code,
            code_lasts: CODE_LASTS,
            targets,
            rate: self.rate(session),
            stripes: STRIPES,
            lasts: TUNNEL_LASTS,
        });
        let relay = relay.map_err(|error| Failed(Status::InvalidArgument, error.to_string()))?;
        self.line(
            uid,
            &format!("offers {}{}", to.join(", "), self.rate_text(session)),
        );
        Ok(Way::Tunnel(relay))
    }

    async fn lead_out(&self, uid: &str, session: &Session, goal: Goal) -> Result<Way, Failed> {
        let listeners = self.listeners(uid, session.serial)?;
        let rate = self.rate(session);
        match goal {
            Goal::Offer(code, place) => {
                let to = place.to_string();
                let relay = self
                    .join(code, place.host, place.port, rate, listeners)
                    .await?;
                self.line(uid, &format!("joins {to}{}", self.rate_text(session)));
                Ok(Way::Tunnel(relay))
            }
            Goal::Places(places) => {
                let to: Vec<String> = places.iter().map(ToString::to_string).collect();
                let to = to.join(", ");
                let rate_text = self.rate_text(session);
                self.line(uid, &format!("leads to {to} without encryption{rate_text}"));
                Ok(Way::Plain(Plain::start(listeners, &places, rate)))
            }
        }
    }

    async fn join(
        &self,
        code: Code,
        host: String,
        port: u16,
        rate: Option<u64>,
        listeners: Vec<TcpListener>,
    ) -> Result<Relay, Failed> {
        let options = JoinOptions {
            code,
            place: Destination {
                host,
                port,
                proxies: Proxies::from_environment(),
            },
            targets: Vec::new(),
            binds: Vec::new(),
            insecure_listen: false,
            rate,
            stripes: None,
            authorities: None,
        };
        let joined = relay::join_in_turn(options, listeners).await;
        joined.map_err(|error| Failed(Status::Unavailable, error.to_string()))
    }

    /// A session's listeners, for a way; they stay bound when that ends.
    fn listeners(&self, uid: &str, serial: Serial) -> Result<Vec<TcpListener>, Failed> {
        let state = self.state();
        let live = state.live.get(uid).filter(|live| live.serial == serial);
        let live = live.ok_or(Refused::NotFound)?;
        let again = |one: &Bound| one.try_clone().and_then(TcpListener::from_std);
        let listeners: Result<Vec<_>, _> = live.listeners.iter().map(again).collect();
        listeners.map_err(|error| Failed(Status::ResourceExhausted, error.to_string()))
    }

    fn rate_text(&self, session: &Session) -> String {
        match self.rate(session) {
            Some(rate) => format!(", {} kB/s each way at most", rate / 1000),
            None => String::new(),
        }
    }

    /// Ends a session.
    pub fn release(&self, uid: &str, project: &str) -> Result<Vec<u8>, Failed> {
        let mut state = self.state();
        state.table.release(uid, project)?;
        state.live.remove(uid);
        drop(state);
        self.line(uid, "released");
        Ok(message::response(&[], &[]))
    }
}

async fn serve(
    stream: TcpStream,
    caller: Caller,
    tls: Option<TlsAcceptor>,
    (stranger, callers): (Stranger, Arc<Semaphore>),
) {
    let caller = Arc::new(caller);
    // It is for speed alone.
    let _ = stream.set_nodelay(true);
    let served = async {
        match tls {
            None => calls::serve(stream, caller.clone()).await,
            Some(tls) => {
                if let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await {
                    calls::serve(stream, caller.clone()).await;
                }
            }
        }
    };
    tokio::select! {
        () = served => {}
        () = has_no_place(&caller, stranger, &callers) => {}
    }
}

/// Resolves when a connection has to go: nobody knows in time whose it is, or there are as many of those who are known as may be.
async fn has_no_place(caller: &Caller, mut stranger: Stranger, callers: &Semaphore) {
    tokio::select! {
        () = caller.is_known() => {}
        () = stranger.evicted() => return,
        () = sleep(UNKNOWN) => return,
    }
    drop(stranger);
    if let Ok(_place) = callers.try_acquire() {
        std::future::pending().await
    }
}

/// A session whose `hello` has not come: it ends with the call that waits for it.
struct Unnamed<'a> {
    face: &'a Face,
    uid: &'a str,
    serial: Serial,
    is_named: bool,
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        if self.is_named {
            return;
        }
        let mut state = self.face.state();
        if state.table.end(self.uid, self.serial) {
            state.live.remove(self.uid);
            drop(state);
            self.face.line(self.uid, "is over: no hello came");
        }
    }
}

/// An update that is under way: if it does not come to its end, the session may be led again.
struct Turning<'a> {
    face: &'a Face,
    uid: &'a str,
    serial: Serial,
    is_settled: bool,
}

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.face.state().table.settle(self.uid, self.serial, None);
        }
    }
}

#[cfg(test)]
mod tests;
