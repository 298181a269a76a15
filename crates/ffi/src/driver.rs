//! `thalweg_driver`: a connection, and the server in this process if it has one.

use crate::boundary::*;
use crate::error::{Code, Failure};
use crate::options;
use client::{ClientError, DriverOptions, Endpoint};
use server::{Config, Server};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// How long a server in this process may take to end when nobody says.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a turn waits for something to do when nobody says.
const TURN_MAX: Duration = Duration::from_secs(3600);

/// A function of the user's that hears something, and what it is called with.
#[derive(Clone, Copy)]
struct Listener {
    call: extern "C" fn(*mut c_void, *const c_char),
    context: UserPointer,
}

/// Whom the program has named to hear of the end of its credential, and what was said last.
#[derive(Default)]
struct CredentialNews {
    listener: Option<Listener>,
    last: Option<CString>,
}

impl CredentialNews {
    /// The program hears it, without the lock: it may listen anew.
    fn say(news: &Mutex<Self>, text: CString) {
        let told = {
            let mut news = lock(news);
            news.last = Some(text.clone());
            news.listener
        };
        if let Some(told) = told {
            (told.call)(told.context.0, text.as_ptr());
        }
    }

    /// From now on this function hears, and at once what was said before it was there, as while the
    /// driver connected.
    fn listen(news: &Mutex<Self>, told: Option<Listener>) {
        let missed = {
            let mut news = lock(news);
            news.listener = told;
            news.last.clone()
        };
        if let (Some(told), Some(text)) = (told, missed) {
            (told.call)(told.context.0, text.as_ptr());
        }
    }
}

/// What all handles of a driver hold on to.
pub struct Connection {
    pub client: client::Driver,
    server: Mutex<Option<Server>>,
    /// The process in which the server runs.
    generation: u64,
    /// Whose acknowledgements are to be sent before the end.
    consumers: Mutex<Vec<Weak<client::Consumer>>>,
    /// Who is to leave its queue before the end.
    queues: Mutex<Vec<Weak<client::QueueConsumer>>>,
    on_waiting: Arc<Mutex<Option<Listener>>>,
    credential_news: Arc<Mutex<CredentialNews>>,
}

/// `thalweg_driver`.
pub struct Driver {
    pub connection: Arc<Connection>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics here")
}

impl Connection {
    /// Waits until `done`, where the caller drives; `None` where a thread does.
    pub fn drive(&self, until: Option<Instant>, mut done: impl FnMut() -> bool) -> Option<bool> {
        self.client.descriptor().ok()?;
        loop {
            if done() {
                return Some(true);
            }
            let left = until.map_or(TURN_MAX, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() || self.client.progress(left).is_err() {
                return Some(done());
            }
        }
    }

    /// Connects, and has what pulls wait for told to whom the program names.
    fn open(
        endpoint: Endpoint,
        mut options: DriverOptions,
        server: Option<Server>,
    ) -> Result<Arc<Self>, Failure> {
        let on_waiting: Arc<Mutex<Option<Listener>>> = Arc::default();
        let told = on_waiting.clone();
        options.on_waiting = Some(Arc::new(move |waiting: &client::Waiting| {
            let told = *lock(&told);
            // Names of consumers and topics have no zero in them.
            if let (Some(told), Ok(text)) = (told, CString::new(waiting.to_string())) {
                (told.call)(told.context.0, text.as_ptr());
            }
        }));
        let credential_news: Arc<Mutex<CredentialNews>> = Arc::default();
        let news = credential_news.clone();
        options.on_credential = Some(Arc::new(move |ends: &client::CredentialEnds| {
            let text = CString::new(ends.to_string().replace('\0', " "));
            CredentialNews::say(&news, text.expect("there is no zero in it"));
        }));
        let client = client::Driver::connect(endpoint, options)?;
        Ok(Arc::new(Self {
            client,
            on_waiting,
            credential_news,
            server: Mutex::new(server),
            generation: ::memory::fork::generation(),
            consumers: Mutex::default(),
            queues: Mutex::default(),
        }))
    }

    /// Has the consumer's acknowledgements sent when the driver is closed.
    pub fn remember(&self, consumer: &Arc<client::Consumer>) {
        let mut consumers = lock(&self.consumers);
        consumers.retain(|known| known.strong_count() > 0);
        consumers.push(Arc::downgrade(consumer));
    }

    /// Has the consumer leave its queue when the driver is closed.
    pub fn remember_queue(&self, consumer: &Arc<client::QueueConsumer>) {
        let mut queues = lock(&self.queues);
        queues.retain(|known| known.strong_count() > 0);
        queues.push(Arc::downgrade(consumer));
    }

    /// Sends all acknowledgements and settlements, drains every producer, ends the connection
    /// and the server in this process. All of it is tried.
    fn close(&self, timeout: Duration) -> Result<(), Failure> {
        let end = Instant::now() + timeout;
        let left = || end.saturating_duration_since(Instant::now());
        let mut outcome: Result<(), Failure> = Ok(());
        let consumers = std::mem::take(&mut *lock(&self.consumers));
        let queues = std::mem::take(&mut *lock(&self.queues));
        let queues = queues.iter().filter_map(Weak::upgrade);
        let leaving: Vec<_> = queues.map(|queue| queue.begin_close()).collect();
        for consumer in consumers.iter().filter_map(Weak::upgrade) {
            match consumer.flush_acknowledgements(left()) {
                // It was closed before.
                Err(ClientError::Closed) => {}
                flushed => outcome = outcome.and(flushed.map_err(Failure::from)),
            }
        }
        for mut leaving in leaving {
            let left = leaving.wait_for(Some(left())).unwrap_or_else(|| {
                let what = "consumers of the driver to leave their queues".to_owned();
                Err(ClientError::Timeout { what })
            });
            outcome = outcome.and(left.map_err(Failure::from));
        }
        outcome = outcome.and(self.client.close(left()).map_err(Failure::from));
        outcome.and(self.end_server(left()))
    }

    fn end_server(&self, timeout: Duration) -> Result<(), Failure> {
        let Some(server) = lock(&self.server).take() else {
            return Ok(());
        };
        if self.generation != ::memory::fork::generation() {
            // Its threads are the parent's; there is nothing to end here.
            std::mem::forget(server);
            return Ok(());
        }
        server
            .drain(timeout)
            .map_err(|error| Failure::new(Code::Io, format!("ending the server: {error}")))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Nobody is left who could be told.
        let _ = self.end_server(DRAIN_TIMEOUT);
    }
}

/// Connects by a group file's path, or to an address, which has `://` in it.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_driver_connect(
    endpoint: *const c_char,
    options: *const c_char,
    driver: Out<'_, *mut Driver>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let endpoint = text("endpoint", endpoint)?;
        let options: options::Driver = options::read("options of a driver", options)?;
        let driver = given("driver", driver)?;
        if !options.settings.is_empty() {
            return Err(Failure::invalid(
                "settings are those of a server in this process: see thalweg_driver_embedded",
            ));
        }
        let endpoint = match (endpoint.contains("://"), options.token()?) {
            (true, token) => Endpoint::Address {
                address: endpoint.to_owned(),
                token,
                directory: None,
            },
            (false, None) => Endpoint::GroupFile(endpoint.into()),
            (false, Some(_)) => {
                return Err(Failure::invalid(
                    "token belongs to an address; a group file has its own",
                ));
            }
        };
        driver.write(give(Driver {
            connection: Connection::open(endpoint, options.to_client(), None)?,
        }));
        Ok(())
    })
}

/// Runs a server in this process, on a data directory, and connects to it.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_driver_embedded(
    directory: *const c_char,
    options: *const c_char,
    driver: Out<'_, *mut Driver>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let mut config = Config {
            directory: text("directory", directory)?.into(),
            ..Config::default()
        };
        let options: options::Driver = options::read("options of a driver", options)?;
        let driver = given("driver", driver)?;
        if options.token.is_some() {
            return Err(Failure::invalid("a server in this process needs no token"));
        }
        for (key, texts) in options.settings() {
            config
                .set(&key, &texts)
                .map_err(|error| Failure::invalid(format!("settings: {error}")))?;
        }
        // What the server has to say to an operator has nowhere to go here.
        let server = Server::embedded(config, Arc::new(|_: &str| {}))
            .map_err(|error| Failure::new(Code::NotEmbedded, error.to_string()))?;
        let endpoint = Endpoint::Address {
            address: server.endpoints()[0].clone(),
            token: None,
            directory: Some(server.directory()),
        };
        // The environment may name a credential for another server.
        let client = DriverOptions {
            credential: None,
            ..options.to_client()
        };
        driver.write(give(Driver {
            connection: Connection::open(endpoint, client, Some(server))?,
        }));
        Ok(())
    })
}

/// Drains what was pushed and acknowledged, and ends the connection.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_driver_close(
    driver: Option<&Driver>,
    timeout_ms: i64,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let driver = given("driver", driver)?;
        driver
            .connection
            .close(limit(timeout_ms).unwrap_or(DRAIN_TIMEOUT))
    })
}

/// Has a function hear what pulls without a deadline wait for.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_driver_on_waiting(
    driver: Option<&Driver>,
    callback: Option<extern "C" fn(*mut c_void, *const c_char)>,
    context: *mut c_void,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let connection = &given("driver", driver)?.connection;
        *lock(&connection.on_waiting) = callback.map(|call| Listener {
            call,
            context: UserPointer(context),
        });
        Ok(())
    })
}

/// Has a function hear that the credential ends.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_driver_on_credential(
    driver: Option<&Driver>,
    callback: Option<extern "C" fn(*mut c_void, *const c_char)>,
    context: *mut c_void,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let connection = &given("driver", driver)?.connection;
        let told = callback.map(|call| Listener {
            call,
            context: UserPointer(context),
        });
        CredentialNews::listen(&connection.credential_news, told);
        Ok(())
    })
}

/// Drives the network.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_driver_progress(
    driver: Option<&Driver>,
    timeout_ms: i64,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let client = &given("driver", driver)?.connection.client;
        Ok(client.progress(limit(timeout_ms).unwrap_or(TURN_MAX))?)
    })
}

/// What is readable when there is something to do.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_driver_fd(
    driver: Option<&Driver>,
    fd: Out<'_, c_int>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let client = &given("driver", driver)?.connection.client;
        given("fd", fd)?.write(client.descriptor()?);
        Ok(())
    })
}

/// The server's state, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_driver_status(
    driver: Option<&Driver>,
    json: Out<'_, *mut c_char>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let status = given("driver", driver)?.connection.client.status()?;
        give_text(json, status)
    })
}

/// Frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_driver_free(driver: Option<Box<Driver>>) {
    quietly(|| drop(driver));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    extern "C" fn keep(context: *mut c_void, text: *const c_char) {
        // SAFETY: both are of the test below, for the call.
        let (kept, text) =
            unsafe { (&*context.cast::<Mutex<Vec<String>>>(), CStr::from_ptr(text)) };
        lock(kept).push(text.to_str().unwrap().to_owned());
    }

    #[test]
    fn who_listens_late_hears_what_was_said_before() {
        let kept = Mutex::new(Vec::<String>::new());
        let news = Mutex::<CredentialNews>::default();
        let told = || Listener {
            call: keep,
            context: UserPointer((&raw const kept).cast_mut().cast()),
        };
        CredentialNews::listen(&news, Some(told()));
        CredentialNews::listen(&news, None);
        CredentialNews::say(&news, c"soon".to_owned());
        assert!(lock(&kept).is_empty());
        CredentialNews::listen(&news, Some(told()));
        CredentialNews::say(&news, c"over".to_owned());
        assert_eq!(*lock(&kept), ["soon", "over"]);
    }
}
