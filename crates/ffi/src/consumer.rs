//! `thalweg_consumer`: pulling, acknowledging, and the callbacks that choose data.

use crate::boundary::*;
use crate::driver::Connection;
use crate::error::{Code, Failure, MESSAGE_BYTES, ThalwegError};
use crate::event::{Event, ThalwegEventInfo};
use crate::future::Future;
use crate::options;
use crate::pull::Pulls;
use crate::topic::Topic;
use crate::view::View;
use client::{
    DataAllocator, DataMode, DataSelector, EventInfo, Incarnation, Offset, PartitionIndex,
    Position, Target,
};
use serde_json::json;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a pull of many looks for the first, when no time is given.
const FOR_EVER: Option<Duration> = None;
/// How long acknowledgements may take to be durable, when no time is given.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(120);

/// `thalweg_buffer`.
#[repr(C)]
pub struct ThalwegBuffer {
    pub base: *mut c_void,
    pub size: usize,
    pub owner: *mut c_void,
}

type Select = extern "C" fn(
    *mut c_void,
    *const ThalwegEventInfo,
    *mut View,
    *mut MaybeUninit<ThalwegError>,
) -> i32;
type Allocate = extern "C" fn(
    *mut c_void,
    *const ThalwegEventInfo,
    *const View,
    *mut ThalwegBuffer,
    *mut MaybeUninit<ThalwegError>,
) -> i32;

/// `thalweg_data_callbacks`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThalwegDataCallbacks {
    pub select: Option<Select>,
    pub allocate: Option<Allocate>,
    pub release: Option<extern "C" fn(*mut c_void, *mut c_void)>,
    pub destroy: Option<extern "C" fn(*mut c_void)>,
    pub context: *mut c_void,
}

/// The callbacks of one consumer; the last who holds them tells the user.
struct Callbacks {
    given: ThalwegDataCallbacks,
    context: UserPointer,
}

// SAFETY: the header says that the functions are called on any thread; the
// context is handed to them alone.
unsafe impl Send for Callbacks {}
// SAFETY: as above.
unsafe impl Sync for Callbacks {}

impl Drop for Callbacks {
    fn drop(&mut self) {
        if let Some(destroy) = self.given.destroy {
            destroy(self.context.0);
        }
    }
}

/// Memory of the user's allocator.
pub struct Landing {
    buffer: ThalwegBuffer,
    callbacks: Arc<Callbacks>,
}

// SAFETY: plain memory, of which the allocator's contract says that nobody
// else uses it until it is released.
unsafe impl Send for Landing {}
// SAFETY: shared use reads the address and the length alone.
unsafe impl Sync for Landing {}

impl Landing {
    pub fn bytes(&self) -> ThalwegBytes {
        ThalwegBytes {
            base: self.buffer.base,
            size: self.buffer.size,
        }
    }

    pub fn owner(&self) -> *mut c_void {
        self.buffer.owner
    }
}

impl AsMut<[u8]> for Landing {
    fn as_mut(&mut self) -> &mut [u8] {
        if self.buffer.size == 0 {
            return &mut [];
        }
        // SAFETY: the allocator gave memory of that size, which is nobody
        // else's until it is released.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.base.cast(), self.buffer.size) }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if let Some(release) = self.callbacks.given.release {
            release(self.callbacks.context.0, self.buffer.owner);
        }
    }
}

/// Calls a callback, and turns what it refuses into words.
fn ask(call: impl FnOnce(*mut MaybeUninit<ThalwegError>) -> i32) -> Result<(), String> {
    let mut error = MaybeUninit::<ThalwegError>::zeroed();
    let code = call(&raw mut error);
    if code == Code::Ok as i32 {
        return Ok(());
    }
    // SAFETY: all zeroes are an error without a message, and whatever the
    // callback wrote over them is plain numbers.
    let mut error = unsafe { error.assume_init() };
    error.message[MESSAGE_BYTES - 1] = 0;
    // SAFETY: the last byte is a zero.
    let message = unsafe { CStr::from_ptr(error.message.as_ptr()) };
    Err(match message.to_string_lossy() {
        text if text.is_empty() => format!("the callback returned {code}"),
        text => text.into_owned(),
    })
}

impl Callbacks {
    fn selector(self: &Arc<Self>, select: Select) -> Arc<DataSelector> {
        let callbacks = self.clone();
        Arc::new(move |info: &EventInfo<'_>| {
            let info = ThalwegEventInfo::of(info);
            let mut view = View(client::DataView::whole(info.data_bytes_total));
            ask(|error| select(callbacks.context.0, &raw const info, &raw mut view, error))?;
            Ok(view.0)
        })
    }

    fn allocator(self: &Arc<Self>, allocate: Allocate) -> Arc<DataAllocator> {
        let callbacks = self.clone();
        Arc::new(move |info: &EventInfo<'_>, view: &client::DataView| {
            let info = ThalwegEventInfo::of(info);
            let view = View(view.clone());
            let mut buffer = ThalwegBuffer {
                base: std::ptr::null_mut(),
                size: 0,
                owner: std::ptr::null_mut(),
            };
            ask(|error| {
                let (info, view) = (&raw const info, &raw const view);
                allocate(callbacks.context.0, info, view, &raw mut buffer, error)
            })?;
            let landing = Landing {
                buffer,
                callbacks: callbacks.clone(),
            };
            if landing.buffer.base.is_null() && landing.buffer.size > 0 {
                return Err(format!("it gave {} bytes at NULL", landing.buffer.size));
            }
            Ok(Target::new(landing))
        })
    }
}

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
                Ok(None)
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
        let callbacks = callbacks.map(|given| {
            Arc::new(Callbacks {
                given: *given,
                context: UserPointer(given.context),
            })
        });
        if let Some(callbacks) = &callbacks {
            if let Some(select) = callbacks.given.select {
                if matches!(options.data, DataMode::None) {
                    return Err(Failure::invalid("data is none, and there is a selector"));
                }
                options.data = DataMode::Select(callbacks.selector(select));
            }
            options.allocator = callbacks
                .given
                .allocate
                .map(|allocate| callbacks.allocator(allocate));
        }
        let client = Arc::new(topic.handle.consumer(name, options)?);
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
        consumer.write(give(Consumer {
            client,
            pulls,
            connection: topic.connection.clone(),
            on_ready,
        }));
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
        let count = given("count", count)?;
        count.write(0);
        if events.is_null() {
            return Err(Failure::invalid("events is NULL"));
        }
        let pulled = consumer.pull_many(max, limit(timeout_ms).or(FOR_EVER))?;
        count.write(pulled.len());
        for (index, event) in pulled.into_iter().enumerate() {
            // SAFETY: the header asks for room for `max` pointers, and at most
            // that many were pulled.
            unsafe { events.add(index).write(give(event)) };
        }
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

/// The gaps that were met since the last call, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_gaps(
    consumer: Option<&Consumer>,
    json: Out<'_, *mut c_char>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let gaps = given("consumer", consumer)?.client.take_gaps();
        let gaps: Vec<_> = gaps
            .iter()
            .map(|(partition, gap)| {
                json!({
                    "partition": partition.0,
                    "incarnation": gap.incarnation.0,
                    "first": gap.first.0,
                    "end": gap.end.0,
                    "reason": gap.reason.name(),
                    "time_ns": gap.time,
                })
            })
            .collect();
        give_text(json, serde_json::Value::from(gaps).to_string())
    })
}

/// Ends the subscriptions and frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_consumer_free(consumer: Option<Box<Consumer>>) {
    quietly(|| drop(consumer));
}
