//! Further connections of a session: who may have them, and who joins.

use super::harness::*;
use crate::faults::Fault;
use crate::node::LinkId;
use bytes::Bytes;
use net::Peer;
use wire::codec::Appended;
use wire::frame::FrameKind;
use wire::message::*;
use wire::*;

const SESSION: SessionId = SessionId(7);

fn asking(session: SessionId, stripes: u8) -> Hello {
    Hello {
        session,
        features_optional: FEATURES,
        stripes: Appended(stripes),
        ..hello()
    }
}

fn stripe(session: SessionId, key: Bytes) -> Hello {
    Hello {
        session,
        mechanism: STRIPE.into(),
        proof: key,
        role: Role::BulkStripe,
        features_optional: FEATURES,
        ..hello()
    }
}

fn welcome(world: &World, link: LinkId) -> Welcome {
    let first = &world.links[&link].inbox[0];
    assert_eq!(first.kind, FrameKind::Welcome, "{:?}", world.error(link, 0));
    Welcome::from_bytes("welcome", &first.head).unwrap()
}

/// A session with further connections, and its key.
fn session(world: &mut World, id: SessionId, stripes: u8) -> (LinkId, Bytes) {
    let link = world.connect_as(Peer::default(), asking(id, stripes));
    let welcome = welcome(world, link);
    assert!(world.links[&link].is_striped);
    (link, welcome.stripe_key.0.0)
}

fn join(world: &mut World, hello: Hello) -> Result<LinkId, ErrorReply> {
    let link = world.connect_as(Peer::default(), hello);
    match (world.links[&link].joined, world.error(link, 0)) {
        (Some(main), None) => Ok(main),
        (None, Some(error)) => {
            assert!(world.links[&link].closed.is_some());
            Err(error)
        }
        (joined, error) => panic!("{joined:?} {error:?}"),
    }
}

#[test]
fn who_asks_for_several_connections_is_given_a_key_and_as_many_as_there_may_be() {
    let mut world = Ground::new().start();
    for (asked, granted) in [(0, 0), (1, 0), (2, 2), (16, 16), (200, 16)] {
        let id = SessionId(asked.into());
        let link = world.connect_as(Peer::default(), asking(SessionId(id.0 + 1), asked));
        let welcome = welcome(&world, link);
        assert_eq!(welcome.stripes.0, granted);
        let has = granted > 0;
        assert_eq!(welcome.features & FEATURE_STRIPES != 0, has);
        assert_eq!(welcome.stripe_key.0.0.len(), if has { 32 } else { 0 });
        assert_eq!(world.links[&link].is_striped, has);
        assert!(!format!("{welcome:?}").contains("\\x"), "{welcome:?}");
    }
    // Nor does one without a session's id, without the feature, or of another kind.
    let without = Hello {
        features_optional: FEATURE_STRIDES,
        ..asking(SESSION, 4)
    };
    for hello in [asking(SessionId(0), 4), without] {
        let link = world.connect_as(Peer::default(), hello);
        assert_eq!(welcome(&world, link).stripes.0, 0);
        assert!(!world.links[&link].is_striped);
    }
    world.carries = None;
    let link = world.connect_as(Peer::default(), asking(SESSION, 4));
    assert_eq!(welcome(&world, link).features & FEATURE_STRIPES, 0);
}

#[test]
fn each_session_has_a_key_of_its_own() {
    let mut world = Ground::new().start();
    let (_, first) = session(&mut world, SESSION, 4);
    let (_, other) = session(&mut world, SessionId(8), 4);
    // Also the one that comes again.
    let (_, again) = session(&mut world, SESSION, 4);
    assert!(first != other && first != again && other != again);
    assert!(join(&mut world, stripe(SESSION, first)).is_err());
    assert!(join(&mut world, stripe(SESSION, again)).is_ok());
}

#[test]
fn who_has_the_key_joins_and_is_no_connection_of_the_node_any_more() {
    let mut world = Ground::new().start();
    let (main, key) = session(&mut world, SESSION, 3);
    let before = format!("{:?}", world.node);
    assert_eq!(join(&mut world, stripe(SESSION, key.clone())), Ok(main));
    assert_eq!(join(&mut world, stripe(SESSION, key.clone())), Ok(main));
    assert_eq!(format!("{:?}", world.node), before);
    let error = join(&mut world, stripe(SESSION, key)).unwrap_err();
    assert_eq!(error.code, ErrorCode::LimitExceeded);
    assert!(error.message.contains("3 connections"), "{error}");
    // It is not looked at, and does not end for want of a Hello.
    let topic = world.topic(main);
    world.stored(main, topic, (5, 0), &["a"]);
    world.pass(std::time::Duration::from_secs(11));
}

/// Who does not have the key of just this session is not let in.
fn strangers_stay_out(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let (_, key) = session(&mut world, SESSION, 4);
    let (_, other) = session(&mut world, SessionId(8), 4);
    let cases = [
        ("a wrong key", stripe(SESSION, Bytes::from_static(&[1; 32]))),
        ("no key", stripe(SESSION, Bytes::new())),
        ("a part of it", stripe(SESSION, key.slice(..31))),
        ("another session's", stripe(SESSION, other)),
        ("no such session", stripe(SessionId(9), key.clone())),
        ("no session", stripe(SessionId(0), key)),
        ("zeros", stripe(SessionId(9), Bytes::from_static(&[0; 32]))),
    ];
    let count = cases.len() as u64;
    for (what, hello) in cases {
        match join(&mut world, hello) {
            Ok(_) => return Err(format!("{what} is let in")),
            Err(error) if error.code != ErrorCode::NotAuthenticated => {
                return Err(format!("{what}: {error}"));
            }
            Err(_) => {}
        }
    }
    let audited = world
        .audited
        .iter()
        .filter(|one| format!("{one:?}").contains("Refuse"));
    assert_eq!(audited.count() as u64, count);
    Ok(())
}

#[test]
fn who_does_not_have_the_key_of_just_this_session_stays_out() {
    assert_eq!(strangers_stay_out(Ground::new()), Ok(()));
    for fault in [Fault::StripeUnproved, Fault::StripeOfAny] {
        let caught = strangers_stay_out(Ground::with_fault(fault));
        assert!(caught.is_err(), "{fault:?} goes unnoticed");
    }
}

#[test]
fn a_further_connection_is_of_the_kind_of_the_first_and_of_its_server() {
    let mut world = Ground::new().start();
    let (main, key) = session(&mut world, SESSION, 4);
    let code = |joined: Result<LinkId, ErrorReply>| joined.unwrap_err().code;
    world.carries = Some("tls");
    assert_eq!(
        code(join(&mut world, stripe(SESSION, key.clone()))),
        ErrorCode::NotAuthorized
    );
    world.carries = None;
    assert_eq!(
        code(join(&mut world, stripe(SESSION, key.clone()))),
        ErrorCode::Unsupported
    );
    world.carries = Some("tcp");
    let elsewhere = Hello {
        directory: DirectoryId(0xee),
        ..stripe(SESSION, key.clone())
    };
    assert_eq!(code(join(&mut world, elsewhere)), ErrorCode::WrongServer);
    for (role, mechanism) in [(Role::Control, STRIPE), (Role::BulkStripe, "token")] {
        let hello = Hello {
            role,
            mechanism: mechanism.into(),
            ..stripe(SESSION, key.clone())
        };
        assert_eq!(code(join(&mut world, hello)), ErrorCode::Unsupported);
    }
    // A session without the feature has no key that could be guessed.
    let plain = world.connect_as(Peer::default(), asking(SessionId(8), 1));
    assert_eq!(welcome(&world, plain).stripes.0, 0);
    let zeros = stripe(SessionId(8), Bytes::from_static(&[0; 32]));
    assert_eq!(code(join(&mut world, zeros)), ErrorCode::NotAuthenticated);
    // With the session goes its key.
    world.disconnect(main);
    assert_eq!(
        code(join(&mut world, stripe(SESSION, key))),
        ErrorCode::NotAuthenticated
    );
}
