//! Finding the server, losing it, and not mistaking another one for it.

use crate::world;

use bytes::Bytes;
use client::*;
use std::time::Duration;
use wire::message::Method;
use wire::{DirectoryId, ErrorCode, ErrorReply};
use world::{World, options};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// How the first connection of `world` goes, which ends by its deadline.
fn connect(world: &mut World) -> Result<(), ClientError> {
    let mut outcome = None;
    world.run_until(11 * SECOND, |world| {
        outcome = world.connected.try_get();
        outcome.is_some()
    });
    outcome.expect("the connect timeout is ten seconds")
}

#[test]
fn nobody_there_is_an_error_at_the_deadline_that_names_the_address() {
    let mut world = World::at(Endpoint::address("sim://nobody"), options());
    let error = connect(&mut world).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("sim://nobody"), "{error}");
    assert!(world.now() >= 10 * SECOND);
    assert!(world.ended);
}

#[test]
fn a_silent_server_is_an_error_at_the_deadline() {
    let mut world = World::new();
    world.server.is_silent = true;
    let error = connect(&mut world).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}

#[test]
fn what_cannot_be_there_is_an_error_at_once() {
    let connect = |endpoint| {
        Driver::connect(endpoint, options())
            .map(|_| ())
            .unwrap_err()
    };
    for address in [
        "tcp://localhost",
        "tcp://:9",
        "localhost:9",
        "telnet://there:1",
    ] {
        let error = connect(Endpoint::address(address));
        assert!(matches!(error, ClientError::Invalid(_)), "{error}");
        assert!(error.to_string().contains(address), "{error}");
    }
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("absent.json");
    let error = connect(Endpoint::GroupFile(absent));
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    for part in ["absent.json: No such file", "connect_timeout"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let error = connect(Endpoint::GroupFile("tcp://there:1".into()));
    assert!(matches!(error, ClientError::Invalid(_)), "{error}");
}

fn expecting(directory: Option<DirectoryId>, token: Option<&'static [u8]>) -> Endpoint {
    Endpoint::Address {
        address: "sim://server".into(),
        token: token.map(Bytes::from_static),
        directory,
    }
}

fn is_not_allowed(error: &ClientError) -> bool {
    error.code() == Some(ErrorCode::NotAuthenticated) && error.to_string().contains("sim://server")
}

#[test]
fn another_server_is_refused_by_name() {
    let mut world = World::at(expecting(Some(DirectoryId(0xbad)), None), options());
    let error = connect(&mut world).unwrap_err();
    assert!(matches!(error, ClientError::WrongServer { .. }), "{error}");
    assert!(error.to_string().contains("sim://server"), "{error}");
}

#[test]
fn a_missing_or_wrong_token_is_not_allowed_and_tried_no_more() {
    for token in [None, Some(&b"wrong"[..])] {
        let mut world = World::at(expecting(None, token), options());
        world.server.token = Some(Bytes::from_static(b"right"));
        let error = connect(&mut world).unwrap_err();
        assert!(is_not_allowed(&error), "{error}");
        assert!(!error.to_string().contains("directory"), "{error}");
        assert!(world.now() < SECOND);
    }
    let mut world = World::at(expecting(None, Some(b"right")), options());
    world.server.token = Some(Bytes::from_static(b"right"));
    connect(&mut world).unwrap();
}

#[test]
fn a_token_that_is_valid_no_more_ends_pulls_at_once() {
    let mut world = World::at(expecting(None, Some(b"right")), options());
    world.server.token = Some(Bytes::from_static(b"right"));
    let topic = world.topic(1);
    let consumer = topic.begin_consumer("reader", ConsumerOptions::default());
    let consumer = world.wait(consumer).unwrap();
    let begun = world.now();
    world.server.token = Some(Bytes::from_static(b"another"));
    world.server.cut();
    assert!(world.run_until(MINUTE, |world| world.ended));
    assert!(world.now() - begun <= SECOND);
    let look = consumer.pull_look(1, &Patience::within(None), Duration::ZERO);
    let error = look.unwrap_err();
    assert!(is_not_allowed(&error), "{error}");
}

#[test]
fn a_server_that_comes_late_is_found_within_the_deadline() {
    let mut world = World::new();
    world.server.is_silent = true;
    world.run_until(3 * SECOND, |_| false);
    world.server.is_silent = false;
    connect(&mut world).unwrap();
}

#[test]
fn a_foreign_server_in_the_old_ones_place_ends_the_driver() {
    let mut world = World::new();
    let topic = world.topic(1);
    let producer = topic.begin_producer(ProducerOptions::default());
    let producer = world.wait(producer).unwrap();
    let own = world.server.directory;
    world.server.directory = DirectoryId(0xf0);
    world.server.cut();
    let future = producer.push_metadata(b"x").unwrap();
    assert!(world.run_until(MINUTE, |_| future.try_get().is_some()));
    let error = future.try_get().unwrap().unwrap_err();
    let ClientError::WrongServer {
        address, expected, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((address.as_str(), *expected), ("sim://server", own));
    assert!(world.ended);
    assert!(producer.push_metadata(b"y").is_err());
    let call = world.driver.begin_describe_topic("events");
    assert!(matches!(
        world.wait(call),
        Err(ClientError::WrongServer { .. })
    ));
}

#[test]
fn a_dead_peer_is_noticed_by_its_silence() {
    let mut world = World::new();
    connect(&mut world).unwrap();
    let established = |world: &World| {
        let counters = world.driver.counters();
        counters
            .connections
            .load(std::sync::atomic::Ordering::Relaxed)
    };
    world.run_until(5 * MINUTE, |_| false);
    assert_eq!(established(&world), 1);
    world.server.is_silent = true;
    world.run_until(25 * SECOND, |_| false);
    world.server.is_silent = false;
    assert!(world.run_until(MINUTE, |world| established(world) == 2));
}

#[test]
fn calls_wait_for_a_connection_and_are_asked_again_where_that_is_harmless() {
    let mut world = World::new();
    let topic = world.topic(1);
    assert_eq!(topic.name(), "events");
    world.server.cut();
    let call = world.driver.begin_describe_topic("events");
    world.server.cut_behind.insert(world.server.messages + 2);
    world.wait(call).unwrap();
    assert!(world.server.requests(Method::DescribeTopic) >= 2);
    // What must not be done twice is not: the outcome is not known.
    world.server.cut_behind.insert(world.server.messages + 1);
    let definition = topic.definition().clone();
    let call = world.driver.begin_create_topic("other", &definition, &[]);
    let error = world.wait(call).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("is not known"), "{error}");
    assert!(world.server.topics.contains_key("other"));
}

#[test]
fn a_call_without_an_answer_says_what_it_waited_for() {
    let mut options = options();
    options.request_timeout = 3 * SECOND;
    let mut world = World::with(options);
    world.topic(1);
    world.server.is_silent = true;
    let call = world.driver.begin_describe_topic("events");
    let error = world.wait(call).unwrap_err();
    assert!(error.is_timeout());
    let text = error.to_string();
    for part in ["topic events", "3.0 s", "sim://server", "last sign of life"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_refusal_that_may_pass_is_tried_again_until_the_deadline() {
    let mut options = options();
    options.request_timeout = 3 * SECOND;
    let mut world = World::with(options);
    world.topic(1);
    let busy = ErrorReply::retryable(ErrorCode::LimitExceeded, 500, "busy");
    world.server.refuse(Method::DescribeTopic, busy.clone());
    let call = world.driver.begin_describe_topic("events");
    world.wait(call).unwrap();
    for _ in 0..10 {
        world.server.refuse(Method::DescribeTopic, busy.clone());
    }
    let call = world.driver.begin_describe_topic("events");
    let error = world.wait(call).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::LimitExceeded));
}
