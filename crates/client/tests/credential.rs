//! A credential: presented, read again before its end, and replaced on the connection that stands.

use crate::world::{World, options};
use bytes::Bytes;
use client::*;
use std::time::Duration;
use wire::message::{ACCESS_TOKEN, ISSUED, Method};
use wire::{Codec, ErrorCode, ErrorReply};

const SECOND: Duration = Duration::from_secs(1);

/// What a file with a token, or with a certificate, holds.
fn token(text: &str) -> Bytes {
    match text.contains("-----BEGIN") {
        true => text.to_owned().into(),
        false => format!("thalweg-token-1:{text}").into(),
    }
}

fn world(text: &'static str) -> World {
    let options = DriverOptions {
        credential: Some("credential".into()),
        ..options()
    };
    let mut world = World::at(Endpoint::address("sim://server"), options);
    world.credential = Some(token(text));
    world
}

fn connect(world: &mut World) -> Result<(), ClientError> {
    let mut outcome = None;
    world.run_until(11 * SECOND, |world| {
        outcome = world.connected.try_get();
        outcome.is_some()
    });
    outcome.expect("the connect timeout is ten seconds")
}

fn presented(world: &World) -> Vec<&str> {
    let presented = world.server.presented.iter();
    presented
        .map(|(mechanism, proof)| {
            assert_eq!(mechanism, ACCESS_TOKEN);
            let text = std::str::from_utf8(proof).unwrap();
            text.strip_prefix("thalweg-token-1:").unwrap()
        })
        .collect()
}

#[test]
fn a_credential_is_replaced_on_the_connection_that_stands() {
    let mut world = world("first");
    world.server.credential_ms = Some(90_000);
    connect(&mut world).unwrap();
    assert_eq!(presented(&world), ["first"]);
    // At two thirds of its life the file is read; it is the same, and read again later.
    world.run_until(62 * SECOND, |_| false);
    assert_eq!(presented(&world), ["first"]);
    assert_eq!(world.credential_ends, []);
    world.credential = Some(token("second"));
    world.run_until(20 * SECOND, |_| false);
    assert_eq!(presented(&world), ["first", "second"]);
    assert_eq!(world.core.attempt(), 1, "the connection stands");
}

#[test]
fn one_that_the_connection_cannot_take_is_presented_on_another_one() {
    let mut world = world("first");
    world.server.credential_ms = Some(30_000);
    connect(&mut world).unwrap();
    world.credential = Some(token("wider"));
    world.server.renewal_refused = "it allows something else".to_owned();
    world.run_until(21 * SECOND, |world| world.server.presented.len() == 2);
    world.server.renewal_refused.clear();
    world.run_until(5 * SECOND, |_| false);
    assert_eq!(presented(&world), ["first", "wider", "wider"]);
    assert_eq!(world.core.attempt(), 2);
}

#[test]
fn a_program_hears_that_its_credential_ends() {
    let mut world = world("first");
    world.server.credential_ms = Some(50_000);
    connect(&mut world).unwrap();
    world.run_until(SECOND, |world| !world.credential_ends.is_empty());
    let [ends] = &world.credential_ends[..] else {
        panic!("{:?}", world.credential_ends)
    };
    assert_eq!(ends.left, 50 * SECOND);
    let said = ends.to_string();
    assert!(
        said.starts_with("credential: ") && said.contains("put a new one"),
        "{said}"
    );
}

#[test]
fn a_token_of_the_endpoint_is_presented_in_place_of_a_credential() {
    let options = DriverOptions {
        credential: Some("credential".into()),
        ..options()
    };
    let endpoint = Endpoint::Address {
        address: "sim://server".to_owned(),
        token: Some(Bytes::from_static(b"token")),
        directory: None,
    };
    let mut world = World::at(endpoint, options);
    connect(&mut world).unwrap();
    let presented = [("token".to_owned(), Bytes::from_static(b"token"))];
    assert_eq!(world.server.presented, presented);
}

#[test]
fn an_expired_credential_is_an_error_at_first_and_waited_for_later() {
    let expired = || {
        let error = ErrorReply::retryable(ErrorCode::CredentialExpired, 1000, "expired at noon");
        Some(Bytes::from(error.to_bytes()))
    };
    let mut late = world("late");
    late.server.hello_error = expired();
    let error = connect(&mut late).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::CredentialExpired), "{error}");
    assert!(late.now() < SECOND);

    let mut world = world("first");
    connect(&mut world).unwrap();
    world.server.hello_error = expired();
    world.server.cut();
    world.run_until(60 * SECOND, |_| false);
    assert!(!world.ended);
    assert!(
        world.server.presented.len() > 3,
        "it is presented again and again"
    );
    world.credential = Some(token("second"));
    world.server.hello_error = None;
    world.run_until(30 * SECOND, |_| false);
    assert_eq!(presented(&world).last(), Some(&"second"));
}

#[test]
fn a_call_waits_for_another_credential_up_to_its_deadline_however_short() {
    for (timeout, is_answered) in [(SECOND / 2, false), (3 * SECOND, true)] {
        let options = DriverOptions {
            request_timeout: timeout,
            ..options()
        };
        let mut world = World::with(options);
        world.topic(1);
        let expired = ErrorReply::retryable(ErrorCode::CredentialExpired, 1000, "expired at noon");
        world.server.refuse(Method::DescribeTopic, expired);
        let began = world.now();
        let call = world.driver.begin_describe_topic("events");
        let outcome = world.wait(call);
        if is_answered {
            outcome.unwrap();
            continue;
        }
        let error = outcome.map(|_| ()).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::CredentialExpired), "{error}");
        assert!(world.now() >= began + timeout);
    }
}

#[test]
fn a_short_life_is_read_again_in_time() {
    let mut world = world("first");
    world.server.credential_ms = Some(3000);
    connect(&mut world).unwrap();
    world.credential = Some(token("second"));
    world.run_until(2500 * SECOND / 1000, |world| {
        world.server.presented.len() == 2
    });
    assert_eq!(presented(&world), ["first", "second"]);
}

#[test]
fn a_credential_that_was_good_and_is_being_replaced_is_tried_again_for_a_while() {
    let refused = || {
        let error = ErrorReply::fatal(ErrorCode::NotAuthenticated, "half a token");
        Some(Bytes::from(error.to_bytes()))
    };
    for is_mended in [true, false] {
        let mut world = world("first");
        connect(&mut world).unwrap();
        world.server.hello_error = refused();
        world.credential = Some(token("sec"));
        world.server.cut();
        world.run_until(SECOND, |_| false);
        assert!(!world.ended);
        if is_mended {
            world.server.hello_error = None;
            world.credential = Some(token("second"));
        }
        world.run_until(5 * SECOND, |_| false);
        assert_eq!(world.ended, !is_mended);
    }
}

#[test]
fn a_credential_that_cannot_be_read_is_an_error_that_names_the_file() {
    let mut world = world("");
    world.credential = None;
    let error = connect(&mut world).unwrap_err().to_string();
    assert!(
        error.contains("credential: ") && error.contains("no such file"),
        "{error}"
    );
}

const CERTIFICATE_FILE: &str = "tls://server:1\n-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n\
    -----BEGIN CERTIFICATE-----\nb2xk\n-----END CERTIFICATE-----\n";

#[test]
fn a_certificate_is_renewed_by_the_client_and_its_file_written_anew() {
    let mut world = world(CERTIFICATE_FILE);
    world.server.credential_ms = Some(30_000);
    connect(&mut world).unwrap();
    // Who it is was shown in TLS: Hello has no proof, and the key goes nowhere.
    let hello = ("certificate".to_owned(), Bytes::new());
    assert_eq!(world.server.presented, std::slice::from_ref(&hello));
    world.server.issued = vec![Bytes::from_static(b"new"), Bytes::from_static(b"authority")];
    world.run_until(19 * SECOND, |_| false);
    assert_eq!(
        world.server.presented.len(),
        1,
        "it is renewed at two thirds of its life"
    );
    world.run_until(4 * SECOND, |world| !world.renewed.is_empty());
    let asked = ("renew-certificate".to_owned(), Bytes::new());
    assert_eq!(world.server.presented, [hello.clone(), asked]);
    let (before, _) = CERTIFICATE_FILE
        .split_once("-----BEGIN CERTIFICATE")
        .unwrap();
    let block = |text| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    let expected = format!("{before}{}{}", block("bmV3"), block("YXV0aG9yaXR5"));
    assert_eq!(world.renewed, [Bytes::from(expected)]);
    assert_eq!(world.core.attempt(), 1);
    // The next connection shows what the file has then.
    world.credential = world.renewed.pop();
    world.server.cut();
    world.run_until(5 * SECOND, |world| world.server.presented.len() == 3);
    assert_eq!(world.server.presented[2], hello);
}

#[test]
fn where_the_file_cannot_be_written_the_newer_certificate_counts() {
    let mut world = world(CERTIFICATE_FILE);
    world.server.credential_ms = Some(30_000);
    connect(&mut world).unwrap();
    // The file has what it had, whatever is to be written there.
    for count in 1..=2 {
        world.server.issued = vec![Bytes::from_static(b"new")];
        world.run_until(45 * SECOND, |world| world.renewed.len() == count);
    }
    assert_eq!(world.renewed.len(), 2, "{:?}", world.server.presented);
    assert_eq!(world.core.attempt(), 1, "the connection stands");
    let asked = world.server.presented.iter();
    let asked = asked.filter(|one| one.0 == "renew-certificate");
    assert_eq!(asked.count(), 2, "the older one is not presented");
}

#[test]
fn a_certificate_that_the_server_does_not_renew_leaves_the_connection_as_it_is() {
    let mut world = world(CERTIFICATE_FILE);
    world.server.credential_ms = Some(30_000);
    connect(&mut world).unwrap();
    world.server.renewal_refused = "an authority of the site has signed it".to_owned();
    world.run_until(29 * SECOND, |_| false);
    assert_eq!(world.core.attempt(), 1);
    let asked = world
        .server
        .presented
        .iter()
        .filter(|one| one.0 == "renew-certificate");
    assert_eq!(asked.count(), 1, "it is asked once");
    assert!(world.renewed.is_empty());
}

/// A JWT, or what the server's site knows, is presented as what it is, and again before its end: only the server
/// knows whether it is good for longer.
#[test]
fn what_others_have_issued_is_presented_as_that_and_again() {
    let mut world = world("first");
    world.credential = Some(Bytes::from_static(b"eyJh.eyJi.c"));
    world.server.credential_ms = Some(90_000);
    connect(&mut world).unwrap();
    let issued = (ISSUED.to_owned(), Bytes::from_static(b"eyJh.eyJi.c"));
    assert_eq!(world.server.presented.len(), 1);
    world.run_until(62 * SECOND, |_| false);
    assert_eq!(world.server.presented, [issued.clone(), issued]);
    assert_eq!(world.core.attempt(), 1, "the connection stands");
}

/// A look may take longer than an attempt, and than all of them: nobody has it made twice.
#[test]
fn what_others_have_issued_is_waited_for() {
    let mut world = world("first");
    world.credential = Some(Bytes::from_static(b"opaque"));
    world.server.is_silent = true;
    world.run_until(10 * SECOND + SECOND / 2, |_| false);
    assert!(!world.ended);
    assert_eq!(world.core.attempt(), 1);
    world.run_until(5 * SECOND, |_| false);
    assert!(world.ended, "but not for ever");
}

#[test]
fn one_that_could_not_be_looked_at_is_presented_again() {
    let mut world = world("first");
    world.credential = Some(Bytes::from_static(b"opaque"));
    let busy = ErrorReply::retryable(ErrorCode::NotAuthenticated, 1000, "no answer");
    world.server.hello_error = Some(Bytes::from(busy.to_bytes()));
    world.run_until(3 * SECOND, |_| false);
    assert!(!world.ended && world.server.presented.len() > 1);
    world.server.hello_error = None;
    connect(&mut world).unwrap();
}

/// Returns whether a JWT was presented at an address.
fn is_presented_at(address: &str) -> (bool, Option<String>) {
    let options = DriverOptions {
        credential: Some("credential".into()),
        ..options()
    };
    let mut world = World::at(Endpoint::address(address), options);
    world.credential = Some(Bytes::from_static(b"eyJh.eyJi.c"));
    let why = connect(&mut world).err().map(|error| error.to_string());
    (!world.server.presented.is_empty(), why)
}

#[test]
fn what_others_have_issued_is_not_sent_where_it_is_overheard() {
    assert_eq!(is_presented_at("sim://server"), (true, None));
    assert_eq!(is_presented_at("tls://server"), (true, None));
    let (is_presented, why) = is_presented_at("tcp://server");
    assert!(!is_presented);
    let why = why.unwrap();
    assert!(why.contains("use an address of tls://"), "{why}");
    // Nor on a connection that was opened by something else.
    let options = DriverOptions {
        credential: Some("credential".into()),
        ..options()
    };
    let mut world = World::at(Endpoint::address("tcp://server"), options);
    world.credential = Some(token("first"));
    world.server.credential_ms = Some(90_000);
    connect(&mut world).unwrap();
    world.credential = Some(Bytes::from_static(b"eyJh.eyJi.c"));
    world.run_until(70 * SECOND, |_| false);
    assert_eq!(presented(&world), ["first"]);
    world.server.cut();
    world.run_until(10 * SECOND, |_| false);
    assert_eq!(presented(&world), ["first"]);
}

/// What MUNGE has made, as it was presented.
fn munged(world: &World) -> Vec<&str> {
    let presented = world.server.presented.iter();
    presented
        .map(|(mechanism, proof)| {
            assert_eq!(mechanism, ISSUED);
            std::str::from_utf8(proof).unwrap()
        })
        .collect()
}

fn munge_at(address: &str) -> World {
    let options = DriverOptions {
        credential: Some("munge:".into()),
        ..options()
    };
    let mut world = World::at(Endpoint::address(address), options);
    world.credential = Some(Bytes::from_static(b"x"));
    world
}

#[test]
fn munge_makes_a_credential_for_each_connection_and_for_each_renewal() {
    let mut world = munge_at("tls://server");
    world.server.credential_ms = Some(90_000);
    connect(&mut world).unwrap();
    assert_eq!(munged(&world), ["MUNGE:x1:"]);
    // At two thirds of its life another one is made.
    world.run_until(62 * SECOND, |_| false);
    assert_eq!(munged(&world), ["MUNGE:x1:", "MUNGE:x2:"]);
    assert_eq!(world.core.attempt(), 1);
    world.server.cut();
    world.run_until(10 * SECOND, |world| world.server.presented.len() > 2);
    assert_eq!(munged(&world)[2], "MUNGE:x3:");
}

#[test]
fn munge_that_makes_none_is_an_error_and_later_an_attempt_that_failed() {
    let mut world = munge_at("tls://server");
    world.credential = None;
    let why = connect(&mut world).unwrap_err().to_string();
    assert!(why.contains("munged is away"), "{why}");
    let mut world = munge_at("tls://server");
    connect(&mut world).unwrap();
    world.credential = None;
    world.server.cut();
    world.run_until(5 * SECOND, |_| false);
    assert!(!world.ended);
    world.credential = Some(Bytes::from_static(b"y"));
    world.run_until(20 * SECOND, |world| world.server.presented.len() > 1);
    assert!(munged(&world)[1].starts_with("MUNGE:y"));
}

#[test]
fn munge_is_for_servers_with_a_certificate() {
    for address in ["tcp://server", "sim://server"] {
        let mut world = munge_at(address);
        let why = connect(&mut world).unwrap_err().to_string();
        assert!(why.contains("addresses of tls:// alone"), "{why}");
        assert_eq!((world.made, world.server.presented.len()), (0, 0));
    }
}
