//! `thalweg_consumer`: pulling, acknowledging, replying.

use crate::boundary::*;
use crate::callbacks::{Callbacks, ThalwegDataCallbacks};
use crate::driver::Connection;
use crate::error::{Code, Failure};
use crate::event::Event;
use crate::future::Future;
use crate::gaps;
use crate::message::{Outgoing, ThalwegMessage};
use crate::options;
use crate::pull::Pulls;
use crate::topic::Topic;
use client::{Incarnation, Offset, PartitionIndex, Position};
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a pull of many looks for the first, when no time is given.
const FOR_EVER: Option<Duration> = None;
/// How long acknowledgements may take to be durable, when no time is given.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(120);

/// `thalweg_consumer`.
pub struct Consumer {
    client: Arc<client::Consumer>,
    pulls: Arc<Pulls>,
    connection: Arc<Connection>,
    on_ready: Arc<Mutex<Option<OnReady>>>,
}

/// A function of the user's that hears of news.
#[derive(Clone, Copy)]
struct OnReady {
    call: extern "C" fn(*mut c_void),
    context: UserPointer,
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.pulls.end();
    }
}

impl Consumer {
    pub fn new(client: client::Consumer, topic: &Topic) -> Self {
        let client = Arc::new(client);
        topic.connection.remember(&client);
        let pulls = Pulls::new(client.clone(), topic.connection.clone());
        let on_ready: Arc<Mutex<Option<OnReady>>> = Arc::default();
        let (weak, told) = (Arc::downgrade(&pulls), on_ready.clone());
        client.on_ready(Box::new(move || {
            if let Some(pulls) = weak.upgrade() {
                pulls.news();
            }
            let told = *told.lock().expect("no holder panics here");
            if let Some(told) = told {
                (told.call)(told.context.0);
            }
        }));
        Self {
            client,
            pulls,
            connection: topic.connection.clone(),
            on_ready,
        }
    }

    fn pull(&self, timeout: Option<Duration>) -> Result<Option<Event>, Failure> {
        if self.pulls.is_idle() {
            return Ok(self.client.pull(timeout)?.map(Event::new));
        }
        // Behind those that were begun before.
        let pull = self.pulls.begin();
        let outcome = pull.wait(timeout.map(|timeout| Instant::now() + timeout));
        match outcome {
            Err(failure) if failure.code == Code::Timeout as i32 => {
                pull.abandon();
                // Whether that means that there was nothing, the consumer knows.
                Ok(self.client.pull(Some(Duration::ZERO))?.map(Event::new))
            }
            outcome => outcome.map(|()| pull.take().map(Event::new)),
        }
    }

    fn pull_many(&self, max: usize, timeout: Option<Duration>) -> Result<Vec<Event>, Failure> {
        if self.pulls.is_idle() {
            let events = self.client.pull_batch(max, timeout)?;
            return Ok(events.into_iter().map(Event::new).collect());
        }
        let spare = self.pulls.take_spare(max);
        if !spare.is_empty() || max == 0 {
            return Ok(spare.into_iter().map(Event::new).collect());
        }
        Ok(self.pull(timeout)?.into_iter().collect())
    }
}

/// Opens a consumer.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_open(
    topic: Option<&Topic>,
    name: *const c_char,
    options: *const c_char,
    callbacks: Option<&ThalwegDataCallbacks>,
    consumer: Out<'_, *mut Consumer>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let topic = given("topic", topic)?;
        let name = text("name", name)?;
        let options: options::Consumer = options::read("options of a consumer", options)?;
        let mut options = options.to_client()?;
        let consumer = given("consumer", consumer)?;
        // From here on `destroy` is called, also if opening fails.
        if let Some(callbacks) = callbacks.map(Callbacks::new) {
            (options.data, options.allocator) = callbacks.choose(options.data)?;
        }
        let client = topic.handle.consumer(name, options)?;
        consumer.write(give(Consumer::new(client, topic)));
        Ok(())
    })
}

/// The next event.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_pull(
    consumer: Option<&Consumer>,
    timeout_ms: i64,
    event: Out<'_, *mut Event>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let consumer = given("consumer", consumer)?;
        let event = given("event", event)?;
        event.write(std::ptr::null_mut());
        if let Some(pulled) = consumer.pull(limit(timeout_ms))? {
            event.write(give(pulled));
        }
        Ok(())
    })
}

/// Events that are there.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_pull_batch(
    consumer: Option<&Consumer>,
    timeout_ms: i64,
    events: *mut *mut Event,
    max: usize,
    count: Out<'_, usize>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let consumer = given("consumer", consumer)?;
        // SAFETY: the header asks for space for `max` pointers.
        let array = unsafe { Array::given(events, max, count) }?;
        let pulled = consumer.pull_many(max, limit(timeout_ms).or(FOR_EVER))?;
        array.fill(pulled.into_iter().map(give));
        Ok(())
    })
}

/// Begins a pull.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_pull_begin(
    consumer: Option<&Consumer>,
    future: Out<'_, *mut Future>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let consumer = given("consumer", consumer)?;
        let future = given("future", future)?;
        let pull = consumer.pulls.begin();
        future.write(give(Future::pull(pull, consumer.connection.clone())));
        Ok(())
    })
}

/// Has a function called when a pull may give something.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_on_ready(
    consumer: Option<&Consumer>,
    callback: Option<extern "C" fn(*mut c_void)>,
    context: *mut c_void,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let consumer = given("consumer", consumer)?;
        let told = callback.map(|call| OnReady {
            call,
            context: UserPointer(context),
        });
        *consumer.on_ready.lock().expect("no holder panics here") = told;
        Ok(())
    })
}

/// Events up to this one are done with.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_acknowledge(
    consumer: Option<&Consumer>,
    id: Option<&ThalwegEventId>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let id = *given("id", id)?;
        Ok(given("consumer", consumer)?.client.acknowledge(id.into())?)
    })
}

/// Waits until what was acknowledged is durable.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_flush(
    consumer: Option<&Consumer>,
    timeout_ms: i64,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let client = &given("consumer", consumer)?.client;
        Ok(client.flush_acknowledgements(limit(timeout_ms).unwrap_or(FLUSH_TIMEOUT))?)
    })
}

/// Goes elsewhere.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_seek(
    consumer: Option<&Consumer>,
    to: Option<&ThalwegEventId>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let to = *given("to", to)?;
        let position = Position {
            incarnation: Incarnation(to.incarnation),
            offset: Offset(to.offset),
        };
        let client = &given("consumer", consumer)?.client;
        Ok(client.seek(PartitionIndex(to.partition), position)?)
    })
}

/// The partitions that it reads now.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_partitions(
    consumer: Option<&Consumer>,
    partitions: *mut u32,
    max: usize,
    count: Out<'_, usize>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let mut indices = given("consumer", consumer)?.client.partitions();
        indices.sort_unstable();
        if partitions.is_null() && max > 0 {
            return Err(Failure::invalid("partitions is NULL"));
        }
        given("count", count)?.write(indices.len());
        for (at, index) in indices.into_iter().take(max).enumerate() {
            // SAFETY: the header asks for space for `max` numbers.
            unsafe { partitions.add(at).write(index) };
        }
        Ok(())
    })
}

/// Replies to a request that the consumer got.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_reply(
    consumer: Option<&Consumer>,
    event: Option<&Event>,
    message: Option<&ThalwegMessage>,
    future: Out<'_, *mut Future>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let consumer = given("consumer", consumer)?;
        let event = given("event", event)?;
        let reply = Outgoing::reply(given("message", message)?)?;
        let client = &consumer.client;
        let (pushed, loan) =
            reply.send(|reply| client.reply(event.consumed(), reply.metadata, reply))?;
        if let Some(future) = future {
            let connection = consumer.connection.clone();
            future.write(give(Future::stored(pushed, loan, connection)));
        }
        Ok(())
    })
}

/// The gaps that were met since the last call, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_gaps(
    consumer: Option<&Consumer>,
    json: Out<'_, *mut c_char>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let gaps = given("consumer", consumer)?.client.take_gaps();
        give_text(json, gaps::describe(&gaps))
    })
}

/// How many events were passed over.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_skipped(
    consumer: Option<&Consumer>,
    count: Out<'_, u64>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let skipped = given("consumer", consumer)?.client.skipped();
        given("count", count)?.write(skipped);
        Ok(())
    })
}

/// Ends the subscriptions and frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_free(consumer: Option<Box<Consumer>>) {
    quietly(|| drop(consumer));
}
