//! What C gives that cannot be: an error that has a code, and never a panic.

use super::calls::*;
use std::ffi::CString;
use std::mem::MaybeUninit;

/// The code with which something ends that is opened with these options and,
/// if it opens, freed again.
type Opens = fn(&Setup, &CString) -> i32;

fn producer(setup: &Setup, options: &CString) -> i32 {
    let mut out = MaybeUninit::uninit();
    let code = thalweg_producer_open(at(setup.topic), options.as_ptr(), Some(&mut out), None);
    if code == 0 {
        // SAFETY: it is written when the code is 0.
        thalweg_producer_free(boxed(unsafe { out.assume_init() }));
    }
    code
}

fn consumer(setup: &Setup, options: &CString) -> i32 {
    let (mut out, name) = (MaybeUninit::uninit(), c"numbers".as_ptr());
    let (topic, options) = (at(setup.topic), options.as_ptr());
    let code = thalweg_consumer_open(topic, name, options, None, Some(&mut out), None);
    if code == 0 {
        // SAFETY: it is written when the code is 0.
        thalweg_consumer_free(boxed(unsafe { out.assume_init() }));
    }
    code
}

fn requester(setup: &Setup, options: &CString) -> i32 {
    let mut out = MaybeUninit::uninit();
    let code = thalweg_requester_open(at(setup.topic), options.as_ptr(), Some(&mut out), None);
    if code == 0 {
        // SAFETY: it is written when the code is 0.
        thalweg_requester_free(boxed(unsafe { out.assume_init() }));
    }
    code
}

fn topic(setup: &Setup, options: &CString) -> i32 {
    let (mut out, name) = (MaybeUninit::uninit(), c"numbers".as_ptr());
    let driver = at(setup.driver);
    let code = thalweg_topic_create(driver, name, options.as_ptr(), Some(&mut out), None);
    if code == 0 {
        // SAFETY: it is written when the code is 0.
        thalweg_topic_free(boxed(unsafe { out.assume_init() }));
        done(|error| thalweg_topic_delete(driver, name, error));
    }
    code
}

#[test]
fn numbers_that_cannot_be() {
    let setup = Setup::new(c"");
    let options: &[(Opens, &[&str])] = &[
        (producer, &["batch", "batch_bytes", "linger_ms", "threads"]),
        (producer, &["batches_in_flight", "budget_bytes"]),
        (producer, &["block_timeout_ms", "inline_bytes_max"]),
        (producer, &["ack_timeout_ms"]),
        (consumer, &["start", "credit_bytes", "merge_wait_ms"]),
        (consumer, &["acknowledge_interval_ms"]),
        (requester, &["budget_bytes", "block_timeout_ms"]),
        (requester, &["inline_bytes_max"]),
        (topic, &["partitions", "metadata_bytes_max"]),
    ];
    let can_be = ["0", "2147483648", "4294967296", "9223372036854775808"];
    for (open, keys) in options {
        for key in *keys {
            let code = |value: &str| {
                let json = CString::new(format!("{{\"{key}\": {value}}}")).unwrap();
                open(&setup, &json)
            };
            for value in ["-1", "NaN", "Infinity", "1e999"] {
                // The last event of each partition.
                let has_meaning = (*key, value) == ("start", "-1");
                let expected = if has_meaning {
                    0
                } else {
                    Code::InvalidArgument as i32
                };
                assert_eq!(code(value), expected, "{key}: {value}");
            }
            for value in can_be {
                // It has a meaning, or the client, or the server, says that it has
                // none: no such argument, topic or offset can be.
                let code = code(value);
                assert!([0, 3, 122, 160].contains(&code), "{key}: {value}: {code}");
            }
        }
    }
    // The driver is well.
    let list = ok(|out, error| thalweg_topic_list(at(setup.driver), out, error));
    assert!(text_of(list).contains("\"storage\":\"memory\""));
    setup.end();
}

/// A server in this process is for this process: no setting has it listen where other hosts reach it.
#[test]
fn an_embedded_server_refuses_addresses_that_other_hosts_reach() {
    let directory = tempfile::tempdir().unwrap();
    let path = CString::new(directory.path().to_str().unwrap()).unwrap();
    for address in ["tcp://0.0.0.0:0", "tcp://[::]:0"] {
        let options = format!("{{\"settings\": {{\"listen\": [\"{address}\"]}}}}");
        let options = CString::new(options).unwrap();
        let mut out = MaybeUninit::uninit();
        let (path, options) = (path.as_ptr(), options.as_ptr());
        let (_, told) =
            fails(|error| thalweg_driver_embedded(path, options, Some(&mut out), error));
        assert!(told.contains("nothing is encrypted there"), "{told}");
    }
}
