//! Consumers that share: queues, requests, groups, broadcasts.

use super::calls::*;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

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

#[test]
fn a_drain_ends_when_nothing_of_the_queue_is_left() {
    let setup = Setup::new(c"");
    let producer = setup.producer(c"");
    for metadata in [b"1", b"2", b"3"] {
        waited(push(producer, &message_of(metadata)));
    }
    let name = c"work".as_ptr();
    let queue = ok(|out, error| {
        thalweg_queue_open(at(setup.topic), name, std::ptr::null(), None, out, error)
    });
    let drain = ok(|out, error| thalweg_drain_open(at(queue), 100, out, error));
    let next = |timeout_ms| {
        let mut ended = MaybeUninit::uninit();
        let event = ok(|out, error| {
            thalweg_drain_next(at(drain), timeout_ms, out, Some(&mut ended), error)
        });
        // SAFETY: the call has succeeded.
        (event, unsafe { ended.assume_init() })
    };
    let mut seen = Vec::new();
    let (held, ended) = next(WATCHDOG_MS);
    assert_eq!(ended, 0);
    seen.push(metadata_of(held));
    while seen.len() < 3 {
        let (event, ended) = next(WATCHDOG_MS);
        assert_eq!(ended, 0);
        seen.push(metadata_of(event));
        done(|error| thalweg_event_acknowledge(at(event), None, error));
        thalweg_event_free(boxed(event));
    }
    assert_eq!(seen, [b"1", b"2", b"3"]);
    // One event is leased, to the member that drains: that is no end.
    let (event, ended) = next(500);
    assert!(event.is_null());
    assert_eq!(ended, 0);
    done(|error| thalweg_event_acknowledge(at(held), None, error));
    thalweg_event_free(boxed(held));
    for _ in 0..2 {
        let (event, ended) = next(-1);
        assert!(event.is_null());
        assert_eq!(ended, 1);
    }
    thalweg_drain_free(boxed(drain));
    thalweg_queue_free(boxed(queue));
    thalweg_producer_free(boxed(producer));
}
