//! What a driver, its topics, producers and consumers share; and closing it
//! when nobody else does.

use client::{ClientError, Consumer, Driver, Endpoint, QueueConsumer};
use memory::Deadline;
use memory::thread::JoinHandle;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use server::{Config, Server, ServerLog};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// How long a driver that nobody closed may take to drain.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

/// A connected driver, with the server that runs in this process for it.
///
/// The locks here and below are taken with the GIL held and for no longer
/// than a look, so that no fork finds one taken.
pub struct Connection {
    driver: Driver,
    closed: AtomicBool,
    /// The arguments of `thalweg.Driver`; `None` for an embedded server, which
    /// other processes can't reach.
    pub arguments: Option<Py<PyDict>>,
    /// The process that made it: the only one in which the embedded server runs.
    generation: u64,
    server: Mutex<Option<Embedded>>,
    /// Whose acknowledgements are to be sent before the end.
    consumers: Mutex<Vec<Weak<Consumer>>>,
    /// Who is to leave its queue before the end.
    queues: Mutex<Vec<Weak<QueueConsumer>>>,
}

/// What a connection was made from.
pub enum From {
    /// The arguments of `thalweg.Driver`.
    Arguments(Py<PyDict>),
    Embedded(Embedded),
}

/// All that were made and are still in use, for the end of the interpreter.
static OPEN: Mutex<Vec<Weak<Connection>>> = Mutex::new(Vec::new());

/// Threads that drain what nobody closed, each with its process.
static DRAINING: Mutex<Vec<(u64, JoinHandle<()>)>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics here")
}

impl Connection {
    pub fn new(driver: Driver, from: From) -> Arc<Self> {
        let (arguments, server) = match from {
            From::Arguments(arguments) => (Some(arguments), None),
            From::Embedded(server) => (None, Some(server)),
        };
        let connection = Arc::new(Self {
            driver,
            arguments,
            closed: AtomicBool::new(false),
            generation: memory::fork::generation(),
            server: Mutex::new(server),
            consumers: Mutex::default(),
            queues: Mutex::default(),
        });
        let mut open = lock(&OPEN);
        open.retain(|known| known.strong_count() > 0);
        open.push(Arc::downgrade(&connection));
        connection
    }

    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Has the consumer's acknowledgements sent when the driver is closed.
    pub fn remember(&self, consumer: &Arc<Consumer>) {
        let mut consumers = lock(&self.consumers);
        consumers.retain(|known| known.strong_count() > 0);
        consumers.push(Arc::downgrade(consumer));
    }

    /// Has the consumer leave its queue when the driver is closed.
    pub fn remember_queue(&self, consumer: &Arc<QueueConsumer>) {
        let mut queues = lock(&self.queues);
        queues.retain(|known| known.strong_count() > 0);
        queues.push(Arc::downgrade(consumer));
    }

    /// Marks it closed; what is left to do is returned the first time.
    pub fn begin_close(&self) -> Option<Closing> {
        if self.closed.swap(true, Ordering::Relaxed) {
            return None;
        }
        let mut server = lock(&self.server).take();
        if self.generation != memory::fork::generation() {
            // Its threads are the parent's; there is nothing to end here.
            std::mem::forget(server.take());
        }
        Some(Closing {
            driver: self.driver.clone(),
            consumers: std::mem::take(&mut *lock(&self.consumers)),
            queues: std::mem::take(&mut *lock(&self.queues)),
            server,
        })
    }
}

/// A connection that is to be drained; done without the GIL.
pub struct Closing {
    driver: Driver,
    consumers: Vec<Weak<Consumer>>,
    queues: Vec<Weak<QueueConsumer>>,
    server: Option<Embedded>,
}

impl Closing {
    /// Sends all acknowledgements and settlements, drains every producer, then
    /// ends the embedded server, if there is one. All of it is tried.
    pub fn finish(self, timeout: Duration) -> Result<(), ClientError> {
        let deadline = Deadline::after(timeout);
        let left = || deadline.left();
        let mut outcome = Ok(());
        let queues: Vec<_> = self.queues.iter().filter_map(Weak::upgrade).collect();
        let leaving: Vec<_> = queues.iter().map(|queue| queue.begin_close()).collect();
        for consumer in self.consumers.iter().filter_map(Weak::upgrade) {
            outcome = outcome.and(consumer.flush_acknowledgements(left()));
        }
        for mut leaving in leaving {
            let left = leaving.wait_for(Some(left())).unwrap_or_else(|| {
                let what = "consumers of the driver to leave their queues".to_owned();
                Err(ClientError::Timeout { what })
            });
            outcome = outcome.and(left);
        }
        outcome = self.driver.close(left()).and(outcome);
        if let Some(server) = self.server {
            outcome = outcome.and(server.close(left()));
        }
        outcome
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(closing) = self.begin_close() else {
            return;
        };
        // Dropped without being closed, wherever that happens: drain elsewhere.
        // Nobody is left who could be told how it went.
        let drain = move || drop(closing.finish(DRAIN_TIMEOUT));
        let thread = memory::thread::spawn("thalweg-drain", drain);
        if let Ok(thread) = thread {
            let mut draining = lock(&DRAINING);
            draining.retain(|(_, thread)| !thread.is_finished());
            draining.push((memory::fork::generation(), thread));
        }
    }
}

/// What is left to do for the connections that nobody has closed.
pub fn take_open() -> Vec<Closing> {
    let open = std::mem::take(&mut *lock(&OPEN));
    let open = open.iter().filter_map(Weak::upgrade);
    open.filter_map(|connection| connection.begin_close())
        .collect()
}

/// The threads that are draining in this process.
pub fn take_draining() -> Vec<JoinHandle<()>> {
    let draining = std::mem::take(&mut *lock(&DRAINING));
    let (ours, parents): (Vec<_>, Vec<_>) = draining
        .into_iter()
        .partition(|(generation, _)| *generation == memory::fork::generation());
    // The parent's threads don't run here.
    std::mem::forget(parents);
    ours.into_iter().map(|(_, thread)| thread).collect()
}

/// Closes all of `open`, and waits for `draining`, until `timeout` has passed.
pub fn close_all(
    open: Vec<Closing>,
    draining: Vec<JoinHandle<()>>,
    timeout: Duration,
) -> Result<(), ClientError> {
    let deadline = Deadline::after(timeout);
    let mut outcome = Ok(());
    for closing in open {
        outcome = outcome.and(closing.finish(deadline.left()));
    }
    for thread in draining {
        while !thread.is_finished() && !deadline.has_passed() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    outcome
}

/// A server in this process.
pub struct Embedded(Server);

impl Embedded {
    /// Starts a server on a data directory; `settings` are those of
    /// `docs/reference/configuration.md`, as text.
    pub fn start(
        directory: PathBuf,
        settings: &[(String, Vec<String>)],
        log: ServerLog,
    ) -> Result<Self, String> {
        let mut config = Config {
            directory,
            ..Config::default()
        };
        for (key, texts) in settings {
            config
                .set(key, texts)
                .map_err(|reason| reason.to_string())?;
        }
        match Server::embedded(config, log) {
            Ok(server) => Ok(Self(server)),
            Err(reason) => Err(reason.to_string()),
        }
    }

    /// Where a client of this process reaches it.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Address {
            address: self.0.endpoints()[0].clone(),
            token: None,
            directory: Some(self.0.directory()),
        }
    }

    fn close(self, timeout: Duration) -> Result<(), ClientError> {
        self.0.drain(timeout).map_err(|reason| ClientError::Io {
            what: "ending the embedded server".into(),
            source: Arc::new(std::io::Error::other(reason)),
        })
    }
}
