//! Events from the producer to the consumer.

use super::calls::*;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

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
    assert_eq!(seen.destroyed.load(Ordering::SeqCst), 0);
    thalweg_consumer_free(boxed(consumer));
    // By this thread, or by the driver's, which may be in the consumer's `on_ready`.
    while seen.destroyed.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(seen.destroyed.load(Ordering::SeqCst), 1);
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

/// Pushes `sizes` one after the other out of one buffer, which is written over
/// before anything is sent; what of it arrives for each.
fn arrives_of_a_reused_buffer(sizes: &[usize], borrow: i32) -> Vec<Vec<u8>> {
    let setup = Setup::new(c"");
    let producer = setup.producer(c"{\"batch\": 1000}");
    let mut buffer = vec![0u8; sizes.iter().copied().max().unwrap_or(0)];
    let base = buffer.as_mut_ptr();
    let write = |byte: u8, size: usize| {
        // SAFETY: it lies in the buffer, which nobody else writes to.
        unsafe { base.write_bytes(byte, size) };
    };
    for (index, size) in sizes.iter().enumerate() {
        write(index as u8 + 1, *size);
        let piece = ThalwegBytes {
            base: base.cast(),
            size: *size,
        };
        let message = ThalwegMessage {
            data: &raw const piece,
            data_count: 1,
            borrow,
            ..message_of(b"{}")
        };
        thalweg_future_free(boxed(push(producer, &message)));
    }
    write(99, buffer.len());
    done(|error| thalweg_producer_flush(at(producer), WATCHDOG_MS, error));
    let consumer = setup.consumer(None);
    let arrived = sizes.iter().map(|_| {
        let (event, info) = pull(consumer);
        let data = slice(info.data).to_vec();
        thalweg_event_free(boxed(event));
        data
    });
    let arrived = arrived.collect();
    thalweg_consumer_free(boxed(consumer));
    thalweg_producer_free(boxed(producer));
    setup.end();
    arrived
}

#[test]
fn data_is_the_callers_again_when_the_push_returns_unless_it_is_borrowed() {
    let sizes = [1 << 20, 10, 128 << 10, 1 << 20];
    let pushed: Vec<Vec<u8>> = sizes
        .iter()
        .enumerate()
        .map(|(index, size)| vec![index as u8 + 1; *size])
        .collect();
    assert!(arrives_of_a_reused_buffer(&sizes, 0) == pushed);
    let borrowed = arrives_of_a_reused_buffer(&sizes, 1);
    assert!(borrowed[1] == pushed[1], "short data is copied in any case");
    assert!(
        [0, 2, 3]
            .iter()
            .all(|at| borrowed[*at].iter().all(|byte| *byte == 99))
    );
}

/// Lends a buffer to a producer that checks it, and writes over it before it
/// is sent, or not; the code and the message of the future.
fn becomes_of_a_lent_buffer(changes: bool) -> (i32, String) {
    let setup = Setup::new(c"");
    let producer = setup.producer(c"{\"batch\": 1000, \"check_borrowed\": true}");
    let mut buffer = vec![1u8; 3 << 20];
    let base = buffer.as_mut_ptr();
    let piece = ThalwegBytes {
        base: base.cast(),
        size: buffer.len(),
    };
    let message = ThalwegMessage {
        data: &raw const piece,
        data_count: 1,
        borrow: 1,
        ..message_of(b"{\"frame\": 7}")
    };
    let future = push(producer, &message);
    if changes {
        // SAFETY: it lies in the buffer. That it is lent is what the test is about.
        unsafe { base.add(1000).write(2) };
    }
    let mut error = MaybeUninit::uninit();
    let outcome = match thalweg_future_wait(at(future), WATCHDOG_MS, Some(&mut error)) {
        0 => (0, String::new()),
        // SAFETY: it is written when the code is not 0.
        code => (
            code,
            super::calls::message(unsafe { error.assume_init_ref() }),
        ),
    };
    thalweg_future_free(boxed(future));
    // Of a producer that is there and has failed, closing the driver says so once more.
    let closed = thalweg_driver_close(at(setup.driver), WATCHDOG_MS, None);
    assert_eq!(closed, outcome.0);
    thalweg_producer_free(boxed(producer));
    thalweg_topic_free(boxed(setup.topic));
    thalweg_driver_free(boxed(setup.driver));
    outcome
}

#[test]
fn a_lent_buffer_that_changes_is_noticed() {
    assert_eq!(becomes_of_a_lent_buffer(false).0, Code::Ok as i32);
    let (code, message) = becomes_of_a_lent_buffer(true);
    assert_eq!(code, Code::DataChanged as i32, "{message}");
    assert!(message.contains("{\"frame\": 7}"), "{message}");
    assert!(message.contains("3145728 bytes"), "{message}");
    // Whoever does not look stores what is there when it is sent.
    client::plant(Some(client::Fault::NoSeal));
    let (code, message) = becomes_of_a_lent_buffer(true);
    client::plant(None);
    assert_eq!(code, Code::Ok as i32, "{message}");
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

/// The offsets that a read with these options gives until its end.
fn read(setup: &Setup, options: &CStr) -> Vec<u64> {
    let reader =
        ok(|out, error| thalweg_reader_open(at(setup.topic), options.as_ptr(), None, out, error));
    let mut offsets = Vec::new();
    loop {
        let mut ended = MaybeUninit::uninit();
        let event =
            ok(|out, error| thalweg_reader_next(at(reader), -1, out, Some(&mut ended), error));
        if event.is_null() {
            // SAFETY: the call has succeeded.
            assert_eq!(unsafe { ended.assume_init() }, 1);
            break;
        }
        let info = ok(|out, error| thalweg_event_info_of(at(event), out, error));
        offsets.push(info.id.offset);
        thalweg_event_free(boxed(event));
    }
    let gaps = text_of(ok(|out, error| thalweg_reader_gaps(at(reader), out, error)));
    assert_eq!(gaps, "[]");
    thalweg_reader_free(boxed(reader));
    offsets
}

#[test]
fn a_read_ends_behind_what_is_there_or_sooner() {
    let setup = Setup::new(c"");
    assert!(read(&setup, c"").is_empty());
    let producer = setup.producer(c"");
    for metadata in [b"1", b"2", b"3", b"4"] {
        let future = push(producer, &message_of(metadata));
        done(|error| thalweg_future_wait(at(future), WATCHDOG_MS, error));
        thalweg_future_free(boxed(future));
    }
    assert_eq!(read(&setup, c""), [0, 1, 2, 3]);
    assert_eq!(read(&setup, c"{\"end\": \"now\", \"start\": 2}"), [2, 3]);
    assert_eq!(
        read(&setup, c"{\"end\": 3, \"partitions\": [0]}"),
        [0, 1, 2]
    );
    assert!(read(&setup, c"{\"end\": {\"time_ns\": 1}}").is_empty());
    let ends = c"{\"end\": [{\"partition\": 0, \"offset\": 1}]}";
    assert_eq!(read(&setup, ends), [0]);
    for (options, code, text) in [
        (
            c"{\"end\": \"soon\"}",
            Code::InvalidArgument as i32,
            "not \"soon\"",
        ),
        (
            c"{\"start\": \"cursor\"}",
            Code::InvalidArgument as i32,
            "no cursor",
        ),
        (
            c"{\"partitions\": [7]}",
            crate::error::SERVER_CODES + i32::from(wire::ErrorCode::UnknownPartition as u16),
            "partition 7",
        ),
    ] {
        let (failed, said) = fails(|error| {
            let mut out = MaybeUninit::uninit();
            thalweg_reader_open(
                at(setup.topic),
                options.as_ptr(),
                None,
                Some(&mut out),
                error,
            )
        });
        assert_eq!(failed, code, "{said}");
        assert!(said.contains(text), "{said}");
    }
    thalweg_producer_free(boxed(producer));
}
