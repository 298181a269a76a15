//! The functions as C calls them, with a server in this process.

use crate::boundary::*;
use crate::callbacks::*;
use crate::consumer::*;
use crate::driver::*;
use crate::error::{Code, ThalwegError};
use crate::event::*;
use crate::future::*;
use crate::group::*;
use crate::memory::*;
use crate::message::*;
use crate::producer::*;
use crate::queue::*;
use crate::requester::*;
use crate::topic::*;
use crate::view::*;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Against hangs only.
const WATCHDOG_MS: i64 = 60_000;

/// Calls a function that has to succeed, and gives what it wrote.
fn ok<T>(call: impl FnOnce(Out<'_, T>, ErrorOut<'_>) -> i32) -> T {
    let (mut out, mut error) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let code = call(Some(&mut out), Some(&mut error));
    // SAFETY: the error is written when the code is not 0, the result when it is.
    unsafe {
        assert_eq!(code, 0, "{}", message(error.assume_init_ref()));
        out.assume_init()
    }
}

/// The same where nothing is written.
fn done(call: impl FnOnce(ErrorOut<'_>) -> i32) {
    ok::<()>(|_, error| call(error));
}

/// Calls a function that has to fail.
fn fails(call: impl FnOnce(ErrorOut<'_>) -> i32) -> (i32, String) {
    let mut error = MaybeUninit::uninit();
    let code = call(Some(&mut error));
    assert_ne!(code, 0);
    // SAFETY: it is written when the code is not 0.
    let error = unsafe { error.assume_init() };
    assert_eq!(error.code, code);
    (code, message(&error))
}

fn message(error: &ThalwegError) -> String {
    let bytes: Vec<u8> = error.message.iter().map(|byte| *byte as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).unwrap();
    text.to_str().unwrap().to_owned()
}

/// A handle as a function takes it.
fn at<'a, T>(handle: *mut T) -> Option<&'a T> {
    // SAFETY: the tests give handles that they have not freed.
    unsafe { handle.as_ref() }
}

fn boxed<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: the tests free what they were given, once.
    Some(unsafe { Box::from_raw(handle) })
}

fn text_of(text: *mut c_char) -> String {
    // SAFETY: a string of the library's, freed once.
    let copy = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    thalweg_string_free(text);
    copy
}

struct Setup {
    driver: *mut Driver,
    topic: *mut Topic,
    _directory: tempfile::TempDir,
}

impl Setup {
    fn new(driver_options: &CStr) -> Self {
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

    fn producer(&self, options: &CStr) -> *mut Producer {
        ok(|out, error| thalweg_producer_open(at(self.topic), options.as_ptr(), out, error))
    }

    fn consumer(&self, callbacks: Option<&ThalwegDataCallbacks>) -> *mut Consumer {
        let (name, options) = (c"reader".as_ptr(), c"{\"partitions\": [0]}".as_ptr());
        ok(
            |out, error| {
                thalweg_consumer_open(at(self.topic), name, options, callbacks, out, error)
            },
        )
    }

    fn end(self) {
        done(|error| thalweg_driver_close(at(self.driver), WATCHDOG_MS, error));
        thalweg_topic_free(boxed(self.topic));
        thalweg_driver_free(boxed(self.driver));
    }
}

fn message_of(metadata: &[u8]) -> ThalwegMessage {
    // SAFETY: the header says that zeroes are an empty message.
    let empty: ThalwegMessage = unsafe { MaybeUninit::zeroed().assume_init() };
    ThalwegMessage {
        metadata: ThalwegBytes::of(metadata),
        has_partition: 1,
        ..empty
    }
}

fn push(producer: *mut Producer, message: &ThalwegMessage) -> *mut Future {
    ok(|out, error| thalweg_producer_push(at(producer), Some(message), out, error))
}

/// Pushes an event with that data, and waits until it is stored.
fn push_data(producer: *mut Producer, piece: ThalwegBytes) -> ThalwegEventId {
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

fn pull(consumer: *mut Consumer) -> (*mut Event, ThalwegEventInfo) {
    let event = ok(|out, error| thalweg_consumer_pull(at(consumer), WATCHDOG_MS, out, error));
    assert!(!event.is_null());
    let info = ok(|out, error| thalweg_event_info_of(at(event), out, error));
    (event, info)
}

fn slice<'a>(bytes: ThalwegBytes) -> &'a [u8] {
    // SAFETY: of an event that the test has not freed.
    unsafe { bytes.as_slice("bytes") }.unwrap()
}

extern "C" fn count(context: *mut c_void) {
    // SAFETY: the tests give counters that outlive the calls.
    let counter = unsafe { &*context.cast::<AtomicUsize>() };
    counter.fetch_add(1, Ordering::SeqCst);
}

fn counter(counter: &AtomicUsize) -> *mut c_void {
    std::ptr::from_ref(counter).cast_mut().cast()
}

#[test]
fn everything_of_an_event_arrives() {
    let setup = Setup::new(c"");
    let producer = setup.producer(c"{\"inline_bytes_max\": 1000}");
    let released = AtomicUsize::new(0);
    let large = vec![5u8; 70_000];
    let pieces = [ThalwegBytes::of(b"ab"), ThalwegBytes::of(&large)];
    let headers = [ThalwegHeader {
        name: ThalwegBytes::of(b"kind"),
        value: ThalwegBytes::of(&[0, 1]),
    }];
    let message = ThalwegMessage {
        key: ThalwegBytes::of(b"key"),
        data: pieces.as_ptr(),
        data_count: 2,
        headers: headers.as_ptr(),
        header_count: 1,
        producer_time_ns: 77,
        tombstone: 1,
        release: Some(count),
        release_context: counter(&released),
        ..message_of(b"{\"a\":1}")
    };
    let future = push(producer, &message);
    done(|error| thalweg_future_wait(at(future), WATCHDOG_MS, error));
    assert_eq!(released.load(Ordering::SeqCst), 1);
    let id = ok(|out, error| thalweg_future_id(at(future), out, error));
    assert_eq!((id.partition, id.offset), (0, 0));
    thalweg_future_free(boxed(future));
    let consumer = setup.consumer(None);
    let (event, info) = pull(consumer);
    assert_eq!(slice(info.metadata), b"{\"a\":1}");
    assert_eq!(slice(info.key), b"key");
    assert_eq!(slice(info.data), [b"ab", &large[..]].concat());
    assert_eq!((info.producer_time_ns, info.tombstone), (77, 1));
    assert_eq!(thalweg_event_header_count(at(event)), 1);
    let header = ok(|out, error| thalweg_event_header(at(event), 0, out, error));
    assert_eq!(slice(header.name), b"kind");
    assert_eq!(slice(header.value), [0, 1]);
    assert!(
        fails(|error| thalweg_event_header(at(event), 1, None, error))
            .1
            .contains("with 1")
    );
    done(|error| thalweg_consumer_acknowledge(at(consumer), Some(&info.id), error));
    done(|error| thalweg_consumer_flush(at(consumer), WATCHDOG_MS, error));
    // Back to it, for the handle that was pulled stays valid.
    done(|error| thalweg_consumer_seek(at(consumer), Some(&info.id), error));
    let (again, info_again) = pull(consumer);
    assert_eq!(info_again.id.offset, 0);
    let gaps = ok(|out, error| thalweg_consumer_gaps(at(consumer), out, error));
    assert_eq!(text_of(gaps), "[]");
    thalweg_event_free(boxed(again));
    thalweg_consumer_free(boxed(consumer));
    assert_eq!(slice(info.metadata), b"{\"a\":1}");
    thalweg_event_free(boxed(event));
    thalweg_producer_free(boxed(producer));
    setup.end();
}

#[test]
fn memory_of_the_drivers_is_pushed_like_any_other() {
    let setup = Setup::new(c"");
    let (producer, consumer) = (setup.producer(c""), setup.consumer(None));
    let mut base = MaybeUninit::uninit();
    let size = 100_000;
    let memory =
        ok(|out, error| thalweg_memory_new(at(setup.driver), size, out, Some(&mut base), error));
    // SAFETY: it was written, for the call has succeeded.
    let base: *mut u8 = unsafe { base.assume_init() }.cast();
    for value in [1, 2] {
        // SAFETY: there are that many bytes, and no push borrows them now.
        unsafe { base.write_bytes(value, size) };
        let piece = ThalwegBytes {
            base: base.cast(),
            size,
        };
        push_data(producer, piece);
        let (event, info) = pull(consumer);
        assert_eq!(slice(info.data), vec![value; size]);
        thalweg_event_free(boxed(event));
    }
    thalweg_memory_free(boxed(memory));
    thalweg_consumer_free(boxed(consumer));
    thalweg_producer_free(boxed(producer));
    setup.end();
}

#[test]
fn what_is_wrong_is_told_by_its_code() {
    let setup = Setup::new(c"");
    let driver = at(setup.driver);
    let open = |error: ErrorOut<'_>| {
        let mut topic = MaybeUninit::uninit();
        thalweg_topic_open(driver, c"none".as_ptr(), Some(&mut topic), error)
    };
    let (code, said) = fails(open);
    assert_eq!(code, 120);
    assert!(said.contains("none"), "{said}");
    assert_eq!(
        fails(|error| thalweg_driver_status(None, None, error)).0,
        Code::InvalidArgument as i32
    );
    let producer = |error: ErrorOut<'_>| {
        let mut producer = MaybeUninit::uninit();
        let options = c"{\"batches\": 1}".as_ptr();
        thalweg_producer_open(at(setup.topic), options, Some(&mut producer), error)
    };
    assert!(
        fails(producer)
            .1
            .contains("unknown field `batches`, expected one of `name`")
    );
    let fd = |error: ErrorOut<'_>| {
        let mut fd = MaybeUninit::uninit();
        thalweg_driver_fd(driver, Some(&mut fd), error)
    };
    assert!(fails(fd).1.contains("a thread of its own"));
    let list = ok(|out, error| thalweg_topic_list(driver, out, error));
    assert!(text_of(list).contains("\"storage\":\"memory\""));
    setup.end();
}

#[test]
fn events_of_pulls_that_are_freed_go_to_the_next_in_their_order() {
    let setup = Setup::new(c"");
    let (producer, consumer) = (setup.producer(c""), setup.consumer(None));
    let begin = || ok(|out, error| thalweg_consumer_pull_begin(at(consumer), out, error));
    let pulls: Vec<*mut Future> = (0..3).map(|_| begin()).collect();
    for _ in 0..3 {
        thalweg_future_free(boxed(push(producer, &message_of(b"{}"))));
    }
    for pull in &pulls {
        done(|error| thalweg_future_wait(at(*pull), WATCHDOG_MS, error));
    }
    let next = begin();
    let told = AtomicUsize::new(0);
    done(|error| thalweg_future_on_done(next, Some(count), counter(&told), error));
    assert_eq!(told.load(Ordering::SeqCst), 0);
    thalweg_future_free(boxed(pulls[0]));
    assert_eq!(
        told.load(Ordering::SeqCst),
        1,
        "it waits for no other event"
    );
    let event = ok(|out, error| thalweg_future_event(at(next), out, error));
    let info = ok(|out, error| thalweg_event_info_of(at(event), out, error));
    assert_eq!(info.id.offset, 0);
    thalweg_event_free(boxed(event));
    thalweg_future_free(boxed(next));
    thalweg_future_free(boxed(pulls[1]));
    thalweg_future_free(boxed(pulls[2]));
    for offset in 1..3 {
        let (event, info) = pull(consumer);
        assert_eq!(info.id.offset, offset);
        thalweg_event_free(boxed(event));
    }
    thalweg_consumer_free(boxed(consumer));
    thalweg_producer_free(boxed(producer));
    setup.end();
}

#[test]
fn pulls_that_are_begun_are_served_in_order_and_can_be_given_up() {
    let setup = Setup::new(c"");
    let (producer, consumer) = (setup.producer(c""), setup.consumer(None));
    let begin = || ok(|out, error| thalweg_consumer_pull_begin(at(consumer), out, error));
    let pulls: Vec<*mut Future> = (0..4).map(|_| begin()).collect();
    let told = AtomicUsize::new(0);
    done(|error| thalweg_future_on_done(pulls[3], Some(count), counter(&told), error));
    done(|error| thalweg_future_cancel(pulls[1], error));
    let given_up = fails(|error| thalweg_future_wait(at(pulls[1]), 0, error));
    assert_eq!(given_up.0, Code::Cancelled as i32);
    assert_eq!(
        fails(|error| thalweg_future_wait(at(pulls[0]), 0, error)).0,
        1
    );
    assert_eq!(thalweg_future_done(at(pulls[0])), 0);
    for number in 0..5 {
        let text = number.to_string();
        thalweg_future_free(boxed(push(producer, &message_of(text.as_bytes()))));
    }
    // The last of them first: its event is the third all the same.
    for (pull, expected) in [(3, b"2"), (0, b"0")] {
        done(|error| thalweg_future_wait(at(pulls[pull]), WATCHDOG_MS, error));
        let event = ok(|out, error| thalweg_future_event(at(pulls[pull]), out, error));
        let info = ok(|out, error| thalweg_event_info_of(at(event), out, error));
        assert_eq!(slice(info.metadata), expected);
        thalweg_event_free(boxed(event));
        let twice = |error: ErrorOut<'_>| {
            let mut event = MaybeUninit::uninit();
            thalweg_future_event(at(pulls[pull]), Some(&mut event), error)
        };
        assert!(fails(twice).1.contains("taken already"));
    }
    assert_eq!(told.load(Ordering::SeqCst), 1);
    // Freed with its event, which is the next pull's.
    for pull in pulls {
        thalweg_future_free(boxed(pull));
    }
    for expected in [b"1", b"3", b"4"] {
        let (event, info) = pull(consumer);
        assert_eq!(slice(info.metadata), expected);
        thalweg_event_free(boxed(event));
    }
    thalweg_consumer_free(boxed(consumer));
    thalweg_producer_free(boxed(producer));
    setup.end();
}

/// What the callbacks of a consumer have seen.
#[derive(Default)]
struct Seen {
    memory: [u8; 4],
    allocated: AtomicUsize,
    released: AtomicUsize,
    destroyed: AtomicUsize,
}

extern "C" fn select(
    _: *mut c_void,
    _: *const ThalwegEventInfo,
    view: *mut View,
    error: *mut MaybeUninit<ThalwegError>,
) -> i32 {
    // SAFETY: the library gives pointers to what is there during the call.
    let (view, error) = unsafe { (view.as_mut(), error.as_mut()) };
    thalweg_view_range(view, 2, 4, error)
}

extern "C" fn allocate(
    context: *mut c_void,
    _: *const ThalwegEventInfo,
    view: *const View,
    buffer: *mut ThalwegBuffer,
    _: *mut MaybeUninit<ThalwegError>,
) -> i32 {
    // SAFETY: as above; the context is the test's.
    let (seen, view) = unsafe { (&mut *context.cast::<Seen>(), view.as_ref()) };
    seen.allocated.fetch_add(1, Ordering::SeqCst);
    let given = ThalwegBuffer {
        base: seen.memory.as_mut_ptr().cast(),
        size: thalweg_view_bytes(view) as usize,
        owner: context,
    };
    // SAFETY: as above.
    unsafe { buffer.write(given) };
    0
}

extern "C" fn release(context: *mut c_void, owner: *mut c_void) {
    assert_eq!(context, owner);
    // SAFETY: the context is the test's.
    let seen = unsafe { &*context.cast::<Seen>() };
    seen.released.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn destroy(context: *mut c_void) {
    // SAFETY: the context is the test's.
    let seen = unsafe { &*context.cast::<Seen>() };
    seen.destroyed.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn selected_data_lands_in_the_allocators_memory_and_each_is_released_once() {
    let setup = Setup::new(c"");
    let producer = setup.producer(c"");
    let mut seen = Seen::default();
    let callbacks = ThalwegDataCallbacks {
        select: Some(select),
        allocate: Some(allocate),
        release: Some(release),
        destroy: Some(destroy),
        context: (&raw mut seen).cast(),
    };
    let consumer = setup.consumer(Some(&callbacks));
    for data in [&b"0123456789"[..], b"abc"] {
        let piece = ThalwegBytes::of(data);
        push_data(producer, piece);
    }
    let (event, info) = pull(consumer);
    assert_eq!(slice(info.data), b"2345");
    assert_eq!(info.data_bytes_total, 10);
    assert_eq!(seen.released.load(Ordering::SeqCst), 0);
    thalweg_event_free(boxed(event));
    assert_eq!(seen.released.load(Ordering::SeqCst), 1);
    // The selector leaves the bounds of the next one: the pull says so.
    let mut next = MaybeUninit::uninit();
    let (code, said) =
        fails(|error| thalweg_consumer_pull(at(consumer), WATCHDOG_MS, Some(&mut next), error));
    assert_eq!(code, Code::InvalidArgument as i32);
    assert!(
        said.contains("bytes 2 to 6 are outside a view of 3 bytes"),
        "{said}"
    );
    thalweg_consumer_free(boxed(consumer));
    thalweg_producer_free(boxed(producer));
    setup.end();
    assert_eq!(seen.allocated.load(Ordering::SeqCst), 1);
    assert_eq!(seen.released.load(Ordering::SeqCst), 1);
    assert_eq!(seen.destroyed.load(Ordering::SeqCst), 1);
}

/// A future, and how often a callback found it resolved.
struct Watched {
    future: *mut Future,
    resolved: AtomicUsize,
}

extern "C" fn look_again(context: *mut c_void) {
    // SAFETY: the test gives one that outlives the call.
    let watched = unsafe { &*context.cast::<Watched>() };
    let resolved = thalweg_future_done(at(watched.future));
    done(|error| thalweg_future_cancel(watched.future, error));
    watched
        .resolved
        .fetch_add(resolved as usize, Ordering::SeqCst);
}

/// A callback may ask after its own future: while it is waited for, while
/// another thread drives, when it is given up, and where it was resolved before.
#[test]
fn a_callback_of_a_read_may_ask_after_it() {
    for options in [c"{\"progress\": \"caller\"}", c""] {
        let setup = Setup::new(options);
        let producer = setup.producer(c"");
        let id = push_data(producer, ThalwegBytes::of(&[9; 1000]));
        for way in 0..3 {
            let mut into = [0u8; 1000];
            let all = ThalwegSegment {
                offset: 0,
                bytes: 1000,
            };
            let future = ok(|out, error| {
                let (base, all) = (into.as_mut_ptr().cast(), &raw const all);
                thalweg_topic_read_data(at(setup.topic), Some(&id), all, 1, base, 1000, out, error)
            });
            if way == 1 {
                // Answered in order, so the read is answered behind it.
                let json = ok(|out, error| thalweg_driver_status(at(setup.driver), out, error));
                thalweg_string_free(json);
            }
            let watched = Watched {
                future,
                resolved: AtomicUsize::new(0),
            };
            let context = (&raw const watched).cast_mut().cast();
            done(|error| thalweg_future_on_done(future, Some(look_again), context, error));
            if way == 2 {
                done(|error| thalweg_future_cancel(future, error));
            }
            let mut error = MaybeUninit::uninit();
            let code = thalweg_future_wait(at(future), WATCHDOG_MS, Some(&mut error));
            assert!(code == 0 || way == 2 && code == Code::Cancelled as i32);
            // The callback may come a little later, on the driver's thread.
            let until = Instant::now() + Duration::from_millis(WATCHDOG_MS as u64);
            while watched.resolved.load(Ordering::SeqCst) == 0 {
                assert!(Instant::now() < until, "the callback does not come");
                std::thread::yield_now();
            }
            thalweg_future_free(boxed(future));
            assert_eq!(watched.resolved.load(Ordering::SeqCst), 1);
        }
        thalweg_producer_free(boxed(producer));
        setup.end();
    }
}

#[test]
fn a_read_of_data_fills_the_callers_memory() {
    let setup = Setup::new(c"{\"progress\": \"caller\"}");
    let producer = setup.producer(c"");
    let large: Vec<u8> = (0..200_000u32).map(|index| index as u8).collect();
    let piece = ThalwegBytes::of(&large);
    let message = ThalwegMessage {
        data: &raw const piece,
        data_count: 1,
        ..message_of(b"{}")
    };
    let future = push(producer, &message);
    done(|error| thalweg_producer_flush(at(producer), WATCHDOG_MS, error));
    let id = ok(|out, error| thalweg_future_id(at(future), out, error));
    let segments = [(5, 3), (100_000, 4)].map(|(offset, bytes)| ThalwegSegment { offset, bytes });
    let mut into = [0u8; 7];
    let read = |into: &mut [u8]| {
        ok(|out, error| {
            let (base, size) = (into.as_mut_ptr().cast(), into.len());
            let segments = segments.as_ptr();
            thalweg_topic_read_data(
                at(setup.topic),
                Some(&id),
                segments,
                2,
                base,
                size,
                out,
                error,
            )
        })
    };
    let reading = read(&mut into);
    // Nobody has driven since: it can be given up.
    done(|error| thalweg_future_cancel(reading, error));
    let given_up = fails(|error| thalweg_future_wait(at(reading), WATCHDOG_MS, error));
    assert_eq!(given_up.0, Code::Cancelled as i32);
    thalweg_future_free(boxed(reading));
    let reading = read(&mut into);
    done(|error| thalweg_future_wait(at(reading), WATCHDOG_MS, error));
    thalweg_future_free(boxed(reading));
    assert_eq!(into[..3], large[5..8]);
    assert_eq!(into[3..], large[100_000..100_004]);
    thalweg_future_free(boxed(future));
    thalweg_producer_free(boxed(producer));
    setup.end();
}

fn waited(future: *mut Future) {
    done(|error| thalweg_future_wait(at(future), WATCHDOG_MS, error));
}

fn info(event: *mut Event) -> ThalwegEventInfo {
    ok(|out, error| thalweg_event_info_of(at(event), out, error))
}

fn metadata_of(event: *mut Event) -> Vec<u8> {
    // SAFETY: the event is not freed yet.
    unsafe { info(event).metadata.as_slice("metadata") }
        .unwrap()
        .to_vec()
}

#[test]
fn an_event_of_a_queue_is_settled_once_and_a_request_gets_its_reply() {
    let setup = Setup::new(c"");
    let name = c"work".as_ptr();
    let options = c"{\"lease_ms\": 20000, \"prefetch\": 8}".as_ptr();
    let queue =
        ok(|out, error| thalweg_queue_open(at(setup.topic), name, options, None, out, error));
    let described = text_of(ok(|out, error| {
        thalweg_queue_options(at(queue), out, error)
    }));
    assert!(described.contains("\"lease_ms\":20000"), "{described}");
    assert!(described.contains("\"events.dead\""), "{described}");
    let pull = || ok(|out, error| thalweg_queue_pull(at(queue), WATCHDOG_MS, out, error));

    // Settled once; what comes then is refused by the future.
    let producer = setup.producer(c"");
    waited(push(producer, &message_of(b"1")));
    let event = pull();
    assert_eq!(thalweg_event_deliveries(at(event)), 1);
    let future = ok(|out, error| thalweg_event_extend(at(event), Some(out.unwrap()), error));
    waited(future);
    assert_eq!(thalweg_future_done(at(future)), 1);
    thalweg_future_free(boxed(future));
    done(|error| thalweg_event_return(at(event), 0, std::ptr::null(), None, error));
    thalweg_event_free(boxed(event));
    let event = pull();
    assert_eq!(thalweg_event_deliveries(at(event)), 2);
    let first = ok(|out, error| thalweg_event_acknowledge(at(event), Some(out.unwrap()), error));
    waited(first);
    let second = ok(|out, error| {
        thalweg_event_reject(at(event), c"late".as_ptr(), Some(out.unwrap()), error)
    });
    let (code, _) = fails(|error| thalweg_future_wait(at(second), WATCHDOG_MS, error));
    let expired = crate::error::SERVER_CODES + i32::from(wire::ErrorCode::LeaseExpired as u16);
    assert_eq!(code, expired);
    let (code, _) =
        fails(|error| thalweg_event_reply(at(event), Some(&message_of(b"")), None, error));
    assert_eq!(code, Code::InvalidArgument as i32);
    thalweg_event_free(boxed(event));

    // A request: its data is borrowed, the reply has metadata and data alone.
    let requester =
        ok(|out, error| thalweg_requester_open(at(setup.topic), std::ptr::null(), out, error));
    let numbers = [7u8; 100_000];
    let piece = ThalwegBytes::of(&numbers);
    let request = ThalwegMessage {
        data: &raw const piece,
        data_count: 1,
        ..message_of(b"ask")
    };
    let asked = ok(|out, error| {
        thalweg_requester_request(at(requester), Some(&request), WATCHDOG_MS, out, error)
    });
    assert_eq!(thalweg_future_done(at(asked)), 0);
    let event = pull();
    assert_eq!(info(event).data.size, numbers.len());
    let reply = ThalwegMessage {
        has_partition: 0,
        ..message_of(b"answer")
    };
    let labelled = ThalwegMessage {
        key: ThalwegBytes::of(b"key"),
        ..message_of(b"answer")
    };
    let (code, said) = fails(|error| thalweg_event_reply(at(event), Some(&labelled), None, error));
    assert_eq!(code, Code::InvalidArgument as i32, "{said}");
    let replied =
        ok(|out, error| thalweg_event_reply(at(event), Some(&reply), Some(out.unwrap()), error));
    waited(replied);
    waited(asked);
    let id = ok(|out, error| thalweg_future_id(at(replied), out, error));
    let answer = ok(|out, error| thalweg_future_event(at(asked), out, error));
    assert_eq!(metadata_of(answer), b"answer");
    assert_eq!(info(answer).id.offset, id.offset);
    let (code, _) = fails(|error| {
        let mut again = MaybeUninit::uninit();
        thalweg_future_event(at(asked), Some(&mut again), error)
    });
    assert_eq!(code, Code::InvalidArgument as i32);
    assert_eq!(thalweg_event_deliveries(at(answer)), 0);
    let (code, _) = fails(|error| thalweg_event_acknowledge(at(answer), None, error));
    assert_eq!(code, Code::InvalidArgument as i32);

    // Nobody answers: the deadline does.
    let short =
        ok(|out, error| thalweg_requester_request(at(requester), Some(&request), 50, out, error));
    let (code, _) = fails(|error| thalweg_future_wait(at(short), WATCHDOG_MS, error));
    assert_eq!(code, Code::Timeout as i32);
    assert_eq!(thalweg_future_done(at(short)), 1);

    for event in [event, answer] {
        thalweg_event_free(boxed(event));
    }
    for future in [first, second, asked, replied, short] {
        thalweg_future_free(boxed(future));
    }

    // The job ends: nothing new comes, though there is something and for ever is long.
    waited(push(producer, &message_of(b"2")));
    assert_eq!(thalweg_queue_winding_down(at(queue)), 0);
    done(|error| thalweg_queue_wind_down(at(queue), 60_000, error));
    assert_eq!(thalweg_queue_winding_down(at(queue)), 1);
    let nothing = ok(|out, error| thalweg_queue_pull(at(queue), -1, out, error));
    assert!(nothing.is_null());
    done(|error| thalweg_queue_close(at(queue), WATCHDOG_MS, error));
    done(|error| thalweg_requester_close(at(requester), WATCHDOG_MS, error));
    let (code, _) = fails(|error| {
        let mut future = MaybeUninit::uninit();
        thalweg_requester_request(
            at(requester),
            Some(&request),
            WATCHDOG_MS,
            Some(&mut future),
            error,
        )
    });
    assert_eq!(code, Code::Closed as i32);
    thalweg_requester_free(boxed(requester));
    thalweg_producer_free(boxed(producer));
    thalweg_queue_free(boxed(queue));
    setup.end();
}

#[test]
fn a_group_hears_of_its_partitions_and_a_broadcast_says_who_is_missing() {
    extern "C" fn count(context: *mut c_void, partitions: *const u32, count: usize) {
        assert!(!partitions.is_null());
        // SAFETY: the test's counter outlives the consumer.
        let counter = unsafe { &*context.cast::<AtomicUsize>() };
        counter.fetch_add(count, Ordering::Relaxed);
    }
    extern "C" fn destroy(context: *mut c_void) {
        // SAFETY: as above.
        let counter = unsafe { &*context.cast::<AtomicUsize>() };
        counter.fetch_add(100, Ordering::Relaxed);
    }
    let told = AtomicUsize::new(0);
    let setup = Setup::new(c"");
    let listener = ThalwegGroupCallbacks {
        assigned: Some(count),
        revoking: None,
        lost: None,
        destroy: Some(destroy),
        context: std::ptr::from_ref(&told).cast_mut().cast(),
    };
    let name = c"analysis".as_ptr();
    let member = ok(|out, error| {
        let options = std::ptr::null();
        thalweg_group_join(
            at(setup.topic),
            name,
            options,
            None,
            Some(&listener),
            out,
            error,
        )
    });
    let mut partitions = [9u32; 4];
    let until = Instant::now() + Duration::from_millis(WATCHDOG_MS as u64);
    loop {
        assert!(Instant::now() < until, "nothing is assigned");
        let event = ok(|out, error| thalweg_consumer_pull(at(member), 10, out, error));
        assert!(event.is_null());
        let count = ok(|out, error| {
            thalweg_consumer_partitions(at(member), partitions.as_mut_ptr(), 4, out, error)
        });
        if count == 2 {
            break;
        }
    }
    assert_eq!(partitions, [0, 1, 9, 9]);
    assert_eq!(told.load(Ordering::Relaxed), 2);
    let requester =
        ok(|out, error| thalweg_requester_open(at(setup.topic), std::ptr::null(), out, error));
    let silent = setup.consumer(None);
    let question = message_of(b"who");
    let asked = ok(|out, error| {
        thalweg_requester_broadcast(at(requester), Some(&question), 1, WATCHDOG_MS, out, error)
    });
    let event = ok(|out, error| thalweg_consumer_pull(at(member), WATCHDOG_MS, out, error));
    let reply = ThalwegMessage {
        has_partition: 0,
        ..message_of(b"me")
    };
    let replied = ok(|out, error| {
        thalweg_consumer_reply(
            at(member),
            at(event),
            Some(&reply),
            Some(out.unwrap()),
            error,
        )
    });
    waited(replied);
    waited(asked);
    let missing = |index| ok(|out, error| thalweg_future_missing(at(asked), index, out, error));
    assert!(text_of(missing(0)).starts_with("reader/"));
    assert!(missing(1).is_null());
    let answer = ok(|out, error| thalweg_future_event(at(asked), out, error));
    assert_eq!(metadata_of(answer), b"me");
    assert!(ok(|out, error| thalweg_future_event(at(asked), out, error)).is_null());
    for event in [event, answer] {
        thalweg_event_free(boxed(event));
    }
    for future in [asked, replied] {
        thalweg_future_free(boxed(future));
    }
    thalweg_requester_free(boxed(requester));
    thalweg_consumer_free(boxed(silent));
    thalweg_consumer_free(boxed(member));
    setup.end();
    // Nobody is left who could call.
    assert_eq!(told.load(Ordering::Relaxed), 102);
}
