//! `thalweg_queue`: events under leases, and what is said of each.

use crate::boundary::*;
use crate::callbacks::{Callbacks, ThalwegDataCallbacks};
use crate::driver::Connection;
use crate::error::{Code, Failure};
use crate::event::Event;
use crate::future::Future;
use crate::gaps;
use crate::message::{Outgoing, ThalwegMessage};
use crate::options;
use crate::topic::Topic;
use client::{QueueConsumer, QueueEvent};
use serde_json::json;
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

/// How long leaving a queue may take, when no time is given.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(120);

/// `thalweg_queue`.
pub struct Queue {
    client: Arc<QueueConsumer>,
    connection: Arc<Connection>,
}

impl Queue {
    pub fn consumer(&self) -> &Arc<QueueConsumer> {
        &self.client
    }

    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    fn event(&self, event: QueueEvent) -> *mut Event {
        give(Event::leased(event, self.connection.clone()))
    }
}

/// Joins a queue.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_queue_open(
    topic: Option<&Topic>,
    name: *const c_char,
    options: *const c_char,
    callbacks: Option<&ThalwegDataCallbacks>,
    queue: Out<'_, *mut Queue>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let topic = given("topic", topic)?;
        let name = text("name", name)?;
        let options: options::Queue = options::read("options of a queue", options)?;
        let mut options = options.to_client()?;
        let queue = given("queue", queue)?;
        // From here on `destroy` is called, also if joining fails.
        if let Some(callbacks) = callbacks.map(Callbacks::new) {
            (options.data, options.allocator) = callbacks.choose(options.data)?;
        }
        let client = Arc::new(topic.handle.queue(name, options)?);
        topic.connection.remember_queue(&client);
        queue.write(give(Queue {
            client,
            connection: topic.connection.clone(),
        }));
        Ok(())
    })
}

/// The next event.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_queue_pull(
    queue: Option<&Queue>,
    timeout_ms: i64,
    event: Out<'_, *mut Event>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let queue = given("queue", queue)?;
        let event = given("event", event)?;
        event.write(std::ptr::null_mut());
        if let Some(pulled) = queue.client.pull(limit(timeout_ms))? {
            event.write(queue.event(pulled));
        }
        Ok(())
    })
}

/// Events that are there.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_queue_pull_batch(
    queue: Option<&Queue>,
    timeout_ms: i64,
    events: *mut *mut Event,
    max: usize,
    count: Out<'_, usize>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let queue = given("queue", queue)?;
        // SAFETY: the header asks for space for `max` pointers.
        let array = unsafe { Array::given(events, max, count) }?;
        let pulled = queue.client.pull_batch(max, limit(timeout_ms))?;
        array.fill(pulled.into_iter().map(|event| queue.event(event)));
        Ok(())
    })
}

/// Has a function called when a pull may give something.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_queue_on_ready(
    queue: Option<&Queue>,
    callback: Option<extern "C" fn(*mut c_void)>,
    context: *mut c_void,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let queue = given("queue", queue)?;
        let context = UserPointer(context);
        queue.client.on_ready(Box::new(move || {
            // The whole of it, so that it is `Send`.
            let context = context;
            if let Some(callback) = callback {
                callback(context.0);
            }
        }));
        Ok(())
    })
}

/// The queue's options as they are, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_queue_options(
    queue: Option<&Queue>,
    json: Out<'_, *mut c_char>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let client = &given("queue", queue)?.client;
        let options = client.queue_options()?;
        let described = json!({
            "lease_ms": options.lease_ms,
            "deliveries_max": options.deliveries_max,
            "dead_letter_topic": options.dead_letter_topic_of(client.topic().name()),
            "ordered_by_key": options.ordered_by_key,
        });
        give_text(json, described.to_string())
    })
}

/// The gaps that were met since the last call, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_queue_gaps(
    queue: Option<&Queue>,
    json: Out<'_, *mut c_char>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let gaps = given("queue", queue)?.client.take_gaps();
        give_text(json, gaps::describe(&gaps))
    })
}

/// The program is about to end.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_queue_wind_down(
    queue: Option<&Queue>,
    within_ms: u64,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let client = &given("queue", queue)?.client;
        client.wind_down(Duration::from_millis(within_ms));
        Ok(())
    })
}

/// Whether nothing new is handed out any more.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_queue_winding_down(queue: Option<&Queue>) -> i32 {
    i32::from(queue.is_some_and(|queue| queue.client.is_winding_down()))
}

/// Leaves the queue.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_queue_close(
    queue: Option<&Queue>,
    timeout_ms: i64,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let mut leaving = given("queue", queue)?.client.begin_close();
        let left = leaving.wait_for(Some(limit(timeout_ms).unwrap_or(CLOSE_TIMEOUT)));
        let timed_out = || Failure::new(Code::Timeout, "timed out leaving a queue");
        Ok(left.ok_or_else(timed_out)??)
    })
}

/// Leaves the queue and frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_queue_free(queue: Option<Box<Queue>>) {
    quietly(|| drop(queue));
}

/// How often an event of a queue was delivered.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_event_deliveries(event: Option<&Event>) -> u32 {
    let leased = event.and_then(Event::lease);
    leased.map_or(0, |(event, _)| event.deliveries())
}

/// What a function says of an event of a queue, and the future of it.
fn say(
    event: Option<&Event>,
    future: Out<'_, *mut Future>,
    say: impl FnOnce(&QueueEvent, Arc<Connection>) -> Result<Future, Failure>,
) -> Result<(), Failure> {
    let leased = given("event", event)?.lease();
    let (event, connection) =
        leased.ok_or_else(|| Failure::invalid("the event is not of a queue"))?;
    let said = say(event, connection.clone())?;
    if let Some(future) = future {
        future.write(give(said));
    }
    Ok(())
}

/// The event is handled.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_event_acknowledge(
    event: Option<&Event>,
    future: Out<'_, *mut Future>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        say(event, future, |event, connection| {
            Ok(Future::settlement(event.acknowledge(), connection))
        })
    })
}

/// The event is to be delivered again.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_event_return(
    event: Option<&Event>,
    delay_ms: u64,
    reason: *const c_char,
    future: Out<'_, *mut Future>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let reason = optional_text("reason", reason)?.unwrap_or_default();
        say(event, future, |event, connection| {
            let returned = event.return_because(Duration::from_millis(delay_ms), reason);
            Ok(Future::settlement(returned, connection))
        })
    })
}

/// The event cannot be handled.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_event_reject(
    event: Option<&Event>,
    reason: *const c_char,
    future: Out<'_, *mut Future>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let reason = text("reason", reason)?;
        say(event, future, |event, connection| {
            Ok(Future::settlement(event.reject(reason), connection))
        })
    })
}

/// The event's lease is to last longer.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_event_extend(
    event: Option<&Event>,
    future: Out<'_, *mut Future>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        say(event, future, |event, connection| {
            Ok(Future::extension(event.extend(), connection))
        })
    })
}

/// Replies to a request, and acknowledges it.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_event_reply(
    event: Option<&Event>,
    message: Option<&ThalwegMessage>,
    future: Out<'_, *mut Future>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let reply = Outgoing::reply(given("message", message)?)?;
        say(event, future, |event, connection| {
            let (pending, loan) = reply.send(|reply| event.reply(reply.metadata, reply))?;
            Ok(Future::reply(pending, loan, connection))
        })
    })
}
