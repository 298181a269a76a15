//! Calls from C that have to succeed or to fail, and a server to call.

pub use crate::boundary::*;
pub use crate::callbacks::*;
pub use crate::consumer::*;
pub use crate::drain::*;
pub use crate::driver::*;
pub use crate::error::{Code, ThalwegError};
pub use crate::event::*;
pub use crate::future::*;
pub use crate::group::*;
pub use crate::memory::*;
pub use crate::message::*;
pub use crate::producer::*;
pub use crate::queue::*;
pub use crate::reader::*;
pub use crate::requester::*;
pub use crate::step_attributes::*;
pub use crate::step_reader::*;
pub use crate::step_stream::*;
pub use crate::step_view::*;
pub use crate::step_writer::*;
pub use crate::topic::*;
pub use crate::view::*;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Against hangs only.
pub const WATCHDOG_MS: i64 = 60_000;

/// Calls a function that has to succeed, and gives what it wrote.
pub fn ok<T>(call: impl FnOnce(Out<'_, T>, ErrorOut<'_>) -> i32) -> T {
    let (mut out, mut error) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let code = call(Some(&mut out), Some(&mut error));
    // SAFETY: the error is written when the code is not 0, the result when it is.
    unsafe {
        assert_eq!(code, 0, "{}", message(error.assume_init_ref()));
        out.assume_init()
    }
}

/// The same where nothing is written.
pub fn done(call: impl FnOnce(ErrorOut<'_>) -> i32) {
    ok::<()>(|_, error| call(error));
}

/// Calls a function that has to fail.
pub fn fails(call: impl FnOnce(ErrorOut<'_>) -> i32) -> (i32, String) {
    let mut error = MaybeUninit::uninit();
    let code = call(Some(&mut error));
    assert_ne!(code, 0);
    // SAFETY: it is written when the code is not 0.
    let error = unsafe { error.assume_init() };
    assert_eq!(error.code, code);
    (code, message(&error))
}

pub fn message(error: &ThalwegError) -> String {
    let bytes: Vec<u8> = error.message.iter().map(|byte| *byte as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).unwrap();
    text.to_str().unwrap().to_owned()
}

/// A handle as a function takes it.
pub fn at<'a, T>(handle: *mut T) -> Option<&'a T> {
    // SAFETY: the tests give handles that they have not freed.
    unsafe { handle.as_ref() }
}

pub fn boxed<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: the tests free what they were given, once.
    Some(unsafe { Box::from_raw(handle) })
}

pub fn text_of(text: *mut c_char) -> String {
    // SAFETY: a string of the library's, freed once.
    let copy = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    thalweg_string_free(text);
    copy
}

pub struct Setup {
    pub driver: *mut Driver,
    pub topic: *mut Topic,
    _directory: tempfile::TempDir,
}

impl Setup {
    pub fn new(driver_options: &CStr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = CString::new(directory.path().to_str().unwrap()).unwrap();
        let options = driver_options.as_ptr();
        let driver = ok(|out, error| thalweg_driver_embedded(path.as_ptr(), options, out, error));
        let options = c"{\"storage\": \"memory\", \"partitions\": 2}".as_ptr();
        let topic = ok(|out, error| {
            thalweg_topic_create(at(driver), c"events".as_ptr(), options, out, error)
        });
        Self {
            driver,
            topic,
            _directory: directory,
        }
    }

    pub fn producer(&self, options: &CStr) -> *mut Producer {
        ok(|out, error| thalweg_producer_open(at(self.topic), options.as_ptr(), out, error))
    }

    pub fn consumer(&self, callbacks: Option<&ThalwegDataCallbacks>) -> *mut Consumer {
        let (name, options) = (c"reader".as_ptr(), c"{\"partitions\": [0]}".as_ptr());
        ok(
            |out, error| {
                thalweg_consumer_open(at(self.topic), name, options, callbacks, out, error)
            },
        )
    }

    pub fn end(self) {
        done(|error| thalweg_driver_close(at(self.driver), WATCHDOG_MS, error));
        thalweg_topic_free(boxed(self.topic));
        thalweg_driver_free(boxed(self.driver));
    }
}

pub fn message_of(metadata: &[u8]) -> ThalwegMessage {
    // SAFETY: the header says that zeroes are an empty message.
    let empty: ThalwegMessage = unsafe { MaybeUninit::zeroed().assume_init() };
    ThalwegMessage {
        metadata: ThalwegBytes::of(metadata),
        has_partition: 1,
        ..empty
    }
}

pub fn push(producer: *mut Producer, message: &ThalwegMessage) -> *mut Future {
    ok(|out, error| thalweg_producer_push(at(producer), Some(message), out, error))
}

/// Pushes an event with that data, and waits until it is stored.
pub fn push_data(producer: *mut Producer, piece: ThalwegBytes) -> ThalwegEventId {
    let message = ThalwegMessage {
        data: &raw const piece,
        data_count: 1,
        ..message_of(b"{}")
    };
    let future = push(producer, &message);
    done(|error| thalweg_future_wait(at(future), WATCHDOG_MS, error));
    let id = ok(|out, error| thalweg_future_id(at(future), out, error));
    thalweg_future_free(boxed(future));
    id
}

pub fn pull(consumer: *mut Consumer) -> (*mut Event, ThalwegEventInfo) {
    let event = ok(|out, error| thalweg_consumer_pull(at(consumer), WATCHDOG_MS, out, error));
    assert!(!event.is_null());
    let info = ok(|out, error| thalweg_event_info_of(at(event), out, error));
    (event, info)
}

pub fn slice<'a>(bytes: ThalwegBytes) -> &'a [u8] {
    // SAFETY: of an event that the test has not freed.
    unsafe { bytes.as_slice("bytes") }.unwrap()
}

pub extern "C" fn count(context: *mut c_void) {
    // SAFETY: the tests give counters that outlive the calls.
    let counter = unsafe { &*context.cast::<AtomicUsize>() };
    counter.fetch_add(1, Ordering::SeqCst);
}

pub fn counter(counter: &AtomicUsize) -> *mut c_void {
    std::ptr::from_ref(counter).cast_mut().cast()
}
