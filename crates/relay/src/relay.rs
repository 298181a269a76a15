//! A relay that runs: its thread pool, what it reports, and how it is ended.

use crate::account::Account;
use crate::error::RelayError;
use crate::frame::{NAME_BYTES_MAX, Reason, TARGETS_MAX, Terms, is_name};
use crate::tunnel::{Targets, Tunnel};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;

/// Reports that wait to be read; further ones are dropped, but for the last.
const EVENTS_MAX: usize = 1024;
/// Threads that carry bytes.
const THREADS_MAX: usize = 4;

/// What a relay reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The sites know each other, and this was agreed.
    Joined {
        /// Where the other side is.
        peer: String,
        /// The rates and connections that count.
        terms: Terms,
        /// For how long the offer lasts.
        lasts: Duration,
    },
    /// A target of the other side can be reached here.
    Bound {
        /// Its name.
        name: String,
        /// Where.
        address: SocketAddr,
    },
    /// The other side has no target for an address of `--bind`.
    Unbound(String),
    /// The first connection between the sites stands, once more perhaps.
    Connected,
    /// The last one is gone, and why.
    Cut(String),
    /// A stream has failed.
    Failed(Reason),
    /// A stream could not reach its target, and why.
    Refused(String),
    /// Somebody who came in does not belong here, or the way to the other side is shut; in words.
    Note(String),
    /// It is over. The last event.
    Ended(Result<(), RelayError>),
}

/// Where reports go.
#[derive(Clone)]
pub(crate) struct Events(SyncSender<Event>);

impl Events {
    pub(crate) fn send(&self, event: Event) {
        // Who does not read them in time does without.
        let _ = self.0.try_send(event);
    }
}

/// A target of this side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name, which the other side knows.
    pub name: String,
    /// Where it leads from here, which it does not.
    pub address: String,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is no target, which is as amqp=10.1.1.100:5672"))?;
        check_name(name)?;
        check_address(address)?;
        Ok(Self {
            name: name.to_owned(),
            address: address.to_owned(),
        })
    }
}

/// Where a target of the other side is opened here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// Its name; `None` is the only one that there is.
    pub name: Option<String>,
    /// The address here.
    pub address: String,
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = match text.split_once('=') {
            Some((name, address)) => (Some(name), address),
            None => (None, text),
        };
        name.map(check_name).transpose()?;
        check_address(address)?;
        Ok(Self {
            name: name.map(str::to_owned),
            address: address.to_owned(),
        })
    }
}

fn check_name(name: &str) -> Result<(), String> {
    match is_name(name) {
        true => Ok(()),
        false => Err(format!(
            "{name:?} is no name of a target: letters, digits, `.`, `_` and `-`, at most {NAME_BYTES_MAX}"
        )),
    }
}

fn check_address(address: &str) -> Result<(), String> {
    let is_address = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    match is_address {
        true => Ok(()),
        false => Err(format!(
            "{address:?} is no address, which is as 10.1.1.100:5672"
        )),
    }
}

/// The targets by name.
pub(crate) fn by_name(targets: &[Target]) -> Result<Targets, RelayError> {
    let mut all = Targets::new();
    for target in targets {
        if all
            .insert(target.name.clone(), target.address.clone())
            .is_some()
        {
            return Err(RelayError::Usage(format!(
                "the target {:?} is there twice",
                target.name
            )));
        }
    }
    match all.len() > TARGETS_MAX {
        true => Err(RelayError::Usage(format!(
            "{TARGETS_MAX} targets are the most"
        ))),
        false => Ok(all),
    }
}

/// The listeners of `--bind`, before anybody connects. What is opened there is plain TCP, so that it
/// is for programs of this host, unless the operator says otherwise.
pub(crate) async fn bind_all(
    binds: &[Bind],
    insecure_listen: bool,
) -> Result<Vec<(Option<String>, TcpListener)>, RelayError> {
    if !insecure_listen {
        for bind in binds {
            refuse_beyond_the_host(&bind.address).await?;
        }
    }
    let mut all = Vec::new();
    for bind in binds {
        all.push((bind.name.clone(), listen_at(&bind.address).await?));
    }
    Ok(all)
}

/// Refuses an address that other hosts reach.
async fn refuse_beyond_the_host(address: &str) -> Result<(), RelayError> {
    let found = tokio::net::lookup_host(address).await;
    let mut found =
        found.map_err(|error| RelayError::System(format!("looking up {address}: {error}")))?;
    match found.find(|found| !found.ip().to_canonical().is_loopback()) {
        None => Ok(()),
        Some(beyond) => Err(RelayError::Usage(format!(
            "--bind {address}: other hosts reach {beyond}, and nothing is encrypted there: bind at \
             127.0.0.1; --insecure-listen allows it"
        ))),
    }
}

/// Listens.
pub(crate) async fn listen_at(address: &str) -> Result<TcpListener, RelayError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| RelayError::System(format!("listening at {address}: {error}")))
}

/// Opens listeners to targets of the other side.
pub(crate) fn open(
    tunnel: &Arc<Tunnel>,
    listeners: Vec<(Option<String>, TcpListener)>,
    targets: &[String],
    events: &Events,
) {
    for (name, listener) in listeners {
        let only = match targets {
            [only] => Some(only.clone()),
            _ => None,
        };
        let address = listener.local_addr();
        let name = name.or(only).filter(|name| targets.contains(name));
        match (name, address) {
            (Some(name), Ok(address)) => {
                events.send(Event::Bound {
                    name: name.clone(),
                    address,
                });
                tokio::spawn(tunnel.clone().listen(name, listener));
            }
            (_, Ok(address)) => events.send(Event::Unbound(address.to_string())),
            (_, Err(error)) => events.send(Event::Unbound(error.to_string())),
        }
    }
}

/// What a relay and its tasks share.
pub(crate) struct Shared {
    /// Set when the sites know each other.
    pub tunnel: OnceLock<Arc<Tunnel>>,
    /// Asks for an end.
    pub stop: Notify,
    pub events: Events,
}

/// Whose threads run it.
enum Threads {
    /// Its own, until it is dropped.
    Own(Option<Runtime>),
    /// Those of who began it.
    Lent(Handle),
}

/// A relay that runs. Dropping it ends it: without a word to the other side if it is on threads of its own.
pub struct Relay {
    shared: Arc<Shared>,
    events: Receiver<Event>,
    threads: Threads,
}

/// Ends a relay in order, from any thread.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Tells the other side, and ends.
    pub fn stop(&self) {
        self.0.stop.notify_one();
    }
}

impl Relay {
    /// Threads for one, and what it shares.
    pub(crate) fn new() -> Result<(Self, Arc<Shared>), RelayError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.min(THREADS_MAX))
            .thread_name("relay")
            .enable_all()
            .build()
            .map_err(|error| RelayError::System(format!("threads: {error}")))?;
        Ok(Self::on(Threads::Own(Some(runtime))))
    }

    /// One on the threads of the runtime that this is called in, and what it shares.
    pub(crate) fn lent() -> (Self, Arc<Shared>) {
        Self::on(Threads::Lent(Handle::current()))
    }

    fn on(threads: Threads) -> (Self, Arc<Shared>) {
        let (sender, events) = sync_channel(EVENTS_MAX);
        let shared = Arc::new(Shared {
            tunnel: OnceLock::new(),
            stop: Notify::new(),
            events: Events(sender),
        });
        let relay = Self {
            shared: shared.clone(),
            events,
            threads,
        };
        (relay, shared)
    }

    fn tasks(&self) -> &Handle {
        match &self.threads {
            Threads::Own(runtime) => runtime
                .as_ref()
                .expect("it is there until it is dropped")
                .handle(),
            Threads::Lent(handle) => handle,
        }
    }

    /// Waits for something of the beginning.
    pub(crate) fn block_on<T>(&self, begins: impl Future<Output = T>) -> T {
        self.tasks().block_on(begins)
    }

    /// Runs it to its end, of which it reports.
    pub(crate) fn run(&self, runs: impl Future<Output = Result<(), RelayError>> + Send + 'static) {
        let shared = self.shared.clone();
        self.tasks().spawn(async move {
            let ended = runs.await;
            // The last word may wait until there is room for it.
            let _ = tokio::task::spawn_blocking(move || shared.events.0.send(Event::Ended(ended)))
                .await;
        });
    }

    /// The next report; `None` if none comes in that time.
    pub fn event(&self, within: Duration) -> Option<Event> {
        match self.events.recv_timeout(within) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let why = "its threads have ended".to_owned();
                Some(Event::Ended(Err(RelayError::System(why))))
            }
        }
    }

    /// What has passed so far.
    pub fn account(&self) -> Account {
        let tunnel = self.shared.tunnel.get();
        tunnel.map(|tunnel| tunnel.account()).unwrap_or_default()
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        match &mut self.threads {
            Threads::Own(runtime) => {
                if let Some(runtime) = runtime.take() {
                    runtime.shutdown_background();
                }
            }
            Threads::Lent(_) => self.shared.stop.notify_one(),
        }
    }
}
