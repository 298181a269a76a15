//! Who may do what: every request asks, tokens are held to what they say, and end when they do.

use super::harness::*;
use crate::AccessChange;
use crate::Fault;
use crate::node::{Input, LinkId};
use access::{Limits, Seed, Token, TokenId, Trust, UnixTime, Verb, Verbs};
use log::testing::Survival;
use net::Peer;
use std::sync::Arc;
use std::time::Duration;
use wire::codec::{Codec, DecodeError, Reader};
use wire::frame::FrameKind;
use wire::message::*;
use wire::*;

const HOUR: u64 = 3_600_000_000_000;
const MINUTE: Duration = Duration::from_secs(60);

/// A token of project `p`, of which these limits say more.
fn token(limits: Limits) -> Token {
    let limits = Limits {
        project: Some("p".to_owned()),
        ..limits
    };
    Token::issue(&issuer(), &limits, Seed([9; 32])).unwrap()
}

fn topics(patterns: &[&str]) -> Limits {
    let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap());
    Limits {
        topics: Some(patterns.collect()),
        ..Limits::default()
    }
}

fn verbs(verbs: &[Verb]) -> Limits {
    Limits {
        verbs: Some(verbs.iter().copied().collect::<Verbs>()),
        ..Limits::default()
    }
}

/// Until so long after the harness's clock began.
fn until(world: &World, after: Duration) -> Limits {
    Limits {
        expires: Some(UnixTime(world.now.unix_ns + after.as_nanos() as u64)),
        ..Limits::default()
    }
}

fn with_token(token: &Token) -> Hello {
    Hello {
        mechanism: ACCESS_TOKEN.into(),
        proof: token.to_text().into(),
        ..hello()
    }
}

/// Of the owner, in namespace `p`.
fn owner() -> Hello {
    Hello {
        namespace: "p".into(),
        ..hello()
    }
}

fn connect(world: &mut World, token: &Token) -> LinkId {
    let link = world.connect_as(Peer::default(), with_token(token));
    let first = &world.links[&link].inbox[0];
    assert_eq!(first.kind, FrameKind::Welcome, "{:?}", world.error(link, 0));
    link
}

/// Why a client is not let in.
fn refused(world: &mut World, hello: Hello) -> ErrorReply {
    let link = world.connect_as(Peer::default(), hello);
    assert!(world.links[&link].closed.is_some());
    world.error(link, 0).expect("it is refused")
}

/// What was said of the credential of a connection, in order.
fn said(world: &World, link: LinkId) -> Vec<Authenticated> {
    let inbox = world.links[&link].inbox.iter();
    let said = inbox.filter(|message| message.kind == FrameKind::Authenticate);
    said.map(|message| Authenticated::from_bytes("said", &message.head).unwrap())
        .collect()
}

fn present(world: &mut World, link: LinkId, token: &Token) {
    let asked = Authenticate {
        mechanism: ACCESS_TOKEN.into(),
        proof: token.to_text().into(),
    };
    world.message(link, FrameKind::Authenticate, 0, asked.to_bytes(), &[]);
}

/// The body of any request, in which all is nothing.
struct Nothing;

impl Codec for Nothing {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend([0; 256]);
    }
    fn decode(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        unreachable!("it is sent alone")
    }
}

/// The verbs of which one is needed of the topic that a request is about. None: nobody who has a
/// token may have it done. Names in the body are empty, and those requests need it of all topics.
fn needed(method: Method) -> &'static [Verb] {
    use Method as M;
    match method {
        M::Produce
        | M::AppendMirrored
        | M::OpenProducer
        | M::OpenRun
        | M::AttendRun
        | M::AdmitStep
        | M::AwaitStep
        | M::CloseRun
        | M::AwaitReaders
        | M::HoldParts => &[Verb::Write],
        M::Subscribe
        | M::SubscribeScoped
        | M::Unsubscribe
        | M::Fetch
        | M::ReadData
        | M::MoveCursors
        | M::MoveMemberCursors
        | M::Join
        | M::Leave
        | M::Release
        | M::Settle
        | M::ExtendLeases
        | M::JoinReaders
        | M::AttendReaders
        | M::NextStep
        | M::ReleaseStep
        | M::LeaveReaders => &[Verb::Read],
        M::CreateTopic
        | M::DeleteTopic
        | M::AddPartitions
        | M::AddPlacedPartitions
        | M::AlterTopic
        | M::DeleteConsumer
        | M::OpenMirror => &[Verb::Manage],
        M::DescribeTopic | M::ListGaps | M::DescribeConsumers | M::ReadCursors => {
            &[Verb::Read, Verb::Write, Verb::Manage]
        }
        M::ListTopics | M::CheckAccess => &Verb::ALL,
        M::Status
        | M::Shutdown
        | M::OfferPairing
        | M::ListNodes
        | M::SetNode
        | M::MoveTopic
        | M::ReceiveTopic
        | M::YieldTopic
        | M::AdoptLedger
        | M::HandOverTopic => &[],
    }
}

/// Whether a request of this kind is refused to who has a token.
fn is_refused(world: &mut World, topic: TopicId, method: Method, token: &Token) -> bool {
    let link = connect(world, token);
    let batch = batch(topic, 5, 0, 0, &["a"]);
    let stamped = super::mirrors::stamped(&batch, 0);
    let payload: &[u8] = match method {
        Method::Produce => &batch,
        Method::AppendMirrored => &stamped,
        _ => &[],
    };
    let set = SetNode {
        node: NodeId(1),
        state: wire::record::NodeState::Draining,
        accept_loss: false,
    };
    let id = match method {
        // No zero is a state.
        Method::SetNode => world.request(link, method, topic, &set, payload),
        _ => world.request(link, method, topic, &Nothing, payload),
    };
    let error = world.answer(link, id).and_then(Result::err);
    world.disconnect(link);
    error.is_some_and(|error| error.code == ErrorCode::NotAuthorized)
}

/// Every request that asks for a verb is refused to who lacks it, and to nobody else.
fn every_request_asks(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect_as(Peer::default(), owner());
    let topic = world.topic(link);
    let elsewhere = token(topics(&["other"]));
    for method in Method::ALL {
        let needed = needed(method);
        for verb in [Verb::Read, Verb::Write, Verb::Manage] {
            let has = token(verbs(&[verb]));
            let refused = is_refused(&mut world, topic, method, &has);
            if refused == needed.contains(&verb) {
                return Err(format!("{method:?} with {verb}: refused is {refused}"));
            }
        }
        let refused = is_refused(&mut world, topic, method, &elsewhere);
        if refused != (needed.len() < Verb::ALL.len()) {
            return Err(format!("{method:?} elsewhere: refused is {refused}"));
        }
    }
    Ok(())
}

#[test]
fn every_request_asks_whether_it_is_allowed() {
    assert_eq!(every_request_asks(Ground::new()), Ok(()));
    let caught = every_request_asks(Ground::with_fault(Fault::Unauthorized));
    assert!(caught.is_err(), "a missing question is not noticed");
}

#[test]
fn a_token_opens_its_project_and_no_other() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let owner = world.connect_as(Peer::default(), owner());
    let topic = world.topic(owner);
    world.create(owner, "hidden", "{}", &["disk"]).unwrap();
    let elsewhere = world.connect();
    let other = world.topic(elsewhere);
    let token = token(Limits {
        topics: topics(&["t*"]).topics,
        ..verbs(&[Verb::Read, Verb::Write])
    });
    let link = connect(&mut world, &token);
    world.stored(link, topic, (5, 0), &["a"]);
    let read = world.subscribe(link, topic, "c", Start::Beginning);
    assert_eq!(world.texts(link, read), ["a"]);
    // Of what it may do nothing with, it hears nothing.
    let list: TopicList = world
        .call(link, Method::ListTopics, TopicId(0), &Empty)
        .unwrap();
    let names: Vec<&str> = list
        .topics
        .iter()
        .map(|topic| topic.name.as_str())
        .collect();
    assert_eq!(names, ["t"]);
    let error = world.describe(link, "hidden").unwrap_err();
    assert_eq!(error.code, ErrorCode::NotAuthorized);
    assert!(
        error.message.contains("the token is for topics t*"),
        "{error}"
    );
    let id = world.subscribe(link, other, "c", Start::Beginning);
    assert_eq!(world.error(link, id).unwrap().code, ErrorCode::UnknownTopic);
    let error = world.create(link, "t2", "{}", &["disk"]).unwrap_err();
    assert!(
        error.message.contains("a member of project p with token "),
        "{error}"
    );
    assert!(error.message.contains("may not manage p/t2"), "{error}");
}

#[test]
fn who_asks_whether_something_is_allowed_is_told_why_not() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let mut check = |link: Option<&Token>, verb: &str, topic: &str| {
        let link = match link {
            Some(token) => connect(&mut world, token),
            None => world.connect(),
        };
        let check = CheckAccess {
            verb: verb.into(),
            topic: topic.into(),
        };
        world.call::<AccessChecked>(link, Method::CheckAccess, TopicId(0), &check)
    };
    let token = token(verbs(&[Verb::Read]));
    let allowed = check(Some(&token), "read", "x").unwrap();
    assert!(allowed.allowed && allowed.reason.contains("a member of project p"));
    let denied = check(Some(&token), "write", "p/x").unwrap();
    assert!(!denied.allowed && denied.reason.contains("the token is for read"));
    assert!(!check(Some(&token), "read", "q/x").unwrap().allowed);
    assert!(!check(Some(&token), "admin", "").unwrap().allowed);
    assert!(check(None, "admin", "").unwrap().allowed);
    assert_eq!(
        check(None, "fly", "").unwrap_err().code,
        ErrorCode::Unsupported
    );
}

#[test]
fn what_is_wrong_with_a_token_is_told_when_it_is_presented() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let code = |world: &mut World, hello| refused(world, hello).code;
    let garbage = Hello {
        proof: bytes::Bytes::from_static(b"\xff\xfe"),
        ..with_token(&token(Limits::default()))
    };
    assert_eq!(code(&mut world, garbage), ErrorCode::NotAuthenticated);
    let other = access::IssuerKey::new(Seed([8; 32]));
    let limits = Limits {
        project: Some("p".into()),
        ..Limits::default()
    };
    let foreign = Token::issue(&other, &limits, Seed([9; 32])).unwrap();
    let error = refused(&mut world, with_token(&foreign));
    assert_eq!(error.code, ErrorCode::NotAuthenticated);
    assert!(error.message.contains("for another server"), "{error}");
    let astray = Hello {
        namespace: "q".into(),
        ..with_token(&token(Limits::default()))
    };
    assert_eq!(code(&mut world, astray), ErrorCode::NotAuthorized);
    let over = token(until(&world, Duration::ZERO));
    let error = refused(&mut world, with_token(&over));
    assert_eq!(error.code, ErrorCode::CredentialExpired);
    assert!(error.retryable && error.message.contains("expired at 2023-11-14T22:13:20Z"));
    let later = token(Limits {
        not_before: Some(UnixTime(world.now.unix_ns + HOUR)),
        ..Limits::default()
    });
    assert_eq!(
        code(&mut world, with_token(&later)),
        ErrorCode::NotAuthenticated
    );
    let near = token(Limits {
        networks: Some(vec!["10.1.0.0/16".parse().unwrap()]),
        ..Limits::default()
    });
    for (address, lets_in) in [
        ("10.1.0.7:99", true),
        ("tcp://10.1.0.7:99", true),
        ("10.2.0.7:99", false),
    ] {
        let peer = Peer {
            address: address.into(),
            ..Peer::default()
        };
        let link = world.connect_as(peer, with_token(&near));
        assert_eq!(world.links[&link].closed.is_none(), lets_in, "{address}");
    }
    // Who shows a token is who it says, also in the owner's own process.
    let own = Peer {
        in_process: true,
        uid: Some(1000),
        ..Peer::default()
    };
    let link = world.connect_as(own, with_token(&token(Limits::default())));
    let status = world.call::<StatusReply>(link, Method::Status, TopicId(0), &Empty);
    assert_eq!(status.unwrap_err().code, ErrorCode::NotAuthorized);
}

/// A client is warned, has a minute of grace, and then is ended with an error that may be retried:
/// with another token it goes on, and what was acknowledged is there once.
fn a_credential_ends(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let owner = world.connect_as(Peer::default(), owner());
    let topic = world.topic(owner);
    let short = token(until(&world, 10 * MINUTE));
    let link = connect(&mut world, &short);
    let heartbeats = |world: &mut World, link, seconds| {
        for _ in 0..seconds / 5 {
            world.pass(Duration::from_secs(5));
            world.message(link, FrameKind::Heartbeat, 0, vec![], &[]);
            world.message(owner, FrameKind::Heartbeat, 0, vec![], &[]);
        }
    };
    assert_eq!(said(&world, link).last().unwrap().expires_in_ms, 600_000);
    let read = world.subscribe(link, topic, "c", Start::Beginning);
    world.stored(link, topic, (5, 0), &["a"]);
    heartbeats(&mut world, link, 535);
    assert_eq!(said(&world, link).len(), 1);
    heartbeats(&mut world, link, 10);
    let warned = said(&world, link);
    assert_eq!(warned.len(), 2);
    assert!(warned[1].expires_in_ms <= 60_000 && warned[1].message.contains("expires at"));
    heartbeats(&mut world, link, 60);
    assert_eq!(said(&world, link).last().unwrap().expires_in_ms, 0);
    // It stands for a while; what it has had it may acknowledge.
    assert_eq!(world.texts(link, read), ["a"]);
    assert_eq!(
        refused(&mut world, with_token(&short)).code,
        ErrorCode::CredentialExpired
    );
    heartbeats(&mut world, link, 60);
    let Some(error) = world.error(link, 0) else {
        return Err("the connection goes on".into());
    };
    assert_eq!(error.code, ErrorCode::CredentialExpired);
    assert!(error.retryable);
    for part in [
        "a member of project p with token ",
        "expired at 20",
        "thalweg token new",
    ] {
        assert!(error.message.contains(part), "{error}");
    }
    world.disconnect(link);
    // Another token, and what had no answer is sent again.
    let fresh = token(until(&world, 10 * MINUTE));
    let link = connect(&mut world, &fresh);
    world.stored(link, topic, (5, 1), &["b"]);
    world.stored(link, topic, (5, 2), &["c"]);
    let read = world.subscribe(link, topic, "d", Start::Beginning);
    assert_eq!(world.texts(link, read), ["a", "b", "c"]);
    Ok(())
}

#[test]
fn a_credential_ends_with_a_warning_and_loses_nothing() {
    assert_eq!(a_credential_ends(Ground::new()), Ok(()));
    let caught = a_credential_ends(Ground::with_fault(Fault::NeverExpires));
    assert!(
        caught.is_err(),
        "a connection without an end is not noticed"
    );
}

#[test]
fn another_token_takes_the_place_of_one_on_an_open_connection() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let owner = world.connect_as(Peer::default(), owner());
    let topic = world.topic(owner);
    let first = token(until(&world, 2 * MINUTE));
    let link = connect(&mut world, &first);
    let read = world.subscribe(link, topic, "c", Start::Beginning);
    let pass = |world: &mut World, seconds| {
        for _ in 0..seconds / 5 {
            world.pass(Duration::from_secs(5));
            world.message(link, FrameKind::Heartbeat, 0, vec![], &[]);
            world.message(owner, FrameKind::Heartbeat, 0, vec![], &[]);
        }
    };
    pass(&mut world, 90);
    // One that allows something else does not take the place of it, nor does one that is none.
    let other = token(Limits {
        verbs: Some(Verbs::MEMBER),
        ..until(&world, HOUR_LONG)
    });
    present(&mut world, link, &other);
    assert!(
        said(&world, link)
            .last()
            .unwrap()
            .refused
            .contains("connect anew")
    );
    let over = token(until(&world, Duration::ZERO));
    present(&mut world, link, &over);
    let last = said(&world, link).pop().unwrap();
    assert!(last.refused.contains("expired") && last.expires_in_ms == 30_000);
    let fresh = token(until(&world, HOUR_LONG));
    present(&mut world, link, &fresh);
    let last = said(&world, link).pop().unwrap();
    assert_eq!((last.refused.as_str(), last.expires_in_ms), ("", 3_600_000));
    pass(&mut world, 600);
    world.stored(link, topic, (5, 0), &["a"]);
    assert_eq!(world.texts(link, read), ["a"]);
    // The owner's connection has no credential to renew.
    present(&mut world, owner, &fresh);
    assert!(
        said(&world, owner)
            .last()
            .unwrap()
            .refused
            .contains("connect anew")
    );
}

const HOUR_LONG: Duration = Duration::from_secs(3600);

#[test]
fn revoking_ends_the_connections_of_a_token_and_of_those_made_from_it() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let parent = token(Limits::default());
    let child = parent.restrict(&Limits::default(), Seed([4; 32])).unwrap();
    let other = Token::issue(
        &issuer(),
        &Limits {
            project: Some("p".into()),
            note: Some("another".into()),
            ..Limits::default()
        },
        Seed([5; 32]),
    );
    let links = [&parent, &child, &other.unwrap()].map(|token| connect(&mut world, token));
    let revoke = |world: &mut World, ids: &[TokenId]| {
        let trust = Trust {
            keys: vec![issuer().public()],
            revoked: ids.iter().copied().collect(),
        };
        world.input(Input::Access(AccessChange::Trust(Arc::new(trust))));
    };
    let is_open = |world: &World| links.map(|link| world.links[&link].closed.is_none());
    revoke(&mut world, &[]);
    assert_eq!(is_open(&world), [true, true, true]);
    revoke(&mut world, &child.ids()[1..]);
    assert_eq!(is_open(&world), [true, false, true]);
    revoke(&mut world, &parent.ids());
    assert_eq!(is_open(&world), [false, false, true]);
    let error = world.error(links[0], 0).unwrap();
    assert_eq!(error.code, ErrorCode::NotAuthenticated);
    assert!(error.message.contains("was revoked"), "{error}");
    assert_eq!(
        refused(&mut world, with_token(&child)).code,
        ErrorCode::NotAuthenticated
    );
}

#[test]
fn a_token_for_one_session_is_for_who_comes_first() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let once = |not_before| {
        token(Limits {
            once: true,
            not_before,
            ..Limits::default()
        })
    };
    let of = |token: &Token, session| Hello {
        session: SessionId(session),
        ..with_token(token)
    };
    let now = UnixTime(world.now.unix_ns);
    let good = once(Some(now));
    let narrow = good.restrict(&Limits::default(), Seed([4; 32])).unwrap();
    let lets_in = |world: &mut World, hello| {
        let link = world.connect_as(Peer::default(), hello);
        world.links[&link].closed.is_none()
    };
    assert!(lets_in(&mut world, of(&good, 7)));
    assert!(
        lets_in(&mut world, of(&good, 7)),
        "the session connects again"
    );
    for hello in [of(&good, 8), of(&narrow, 8), of(&good, 0)] {
        let error = refused(&mut world, hello);
        assert!(error.message.contains("another one has used it"), "{error}");
    }
    assert!(!lets_in(&mut world, of(&once(None), 9)));
    // One that was made before there was a list of those that were used.
    let early = once(Some(UnixTime(now.0 - 1)));
    let error = refused(&mut world, of(&early, 7));
    assert!(error.message.contains("make another one"), "{error}");
    // Its holder cannot make it younger.
    let younger = Limits {
        not_before: Some(now),
        ..Limits::default()
    };
    let younger = early.restrict(&younger, Seed([4; 32])).unwrap();
    let error = refused(&mut world, of(&younger, 7));
    assert!(error.message.contains("make another one"), "{error}");
    // It stays used, and its session's, over a restart; one that nobody has used is good still.
    let unused = once(Some(UnixTime(now.0 + 1)));
    drop(world);
    ground.power_loss(Survival::Nothing);
    let mut world = ground.start();
    world.pass(MINUTE);
    let error = refused(&mut world, of(&good, 8));
    assert!(error.message.contains("another one has used it"), "{error}");
    assert!(lets_in(&mut world, of(&good, 7)));
    assert!(lets_in(&mut world, of(&unused, 9)));
    let error = refused(&mut world, of(&unused, 8));
    assert!(error.message.contains("another one has used it"), "{error}");
    // Not in the place of another token: the session is to begin with it.
    let third = once(Some(UnixTime(now.0 + 2)));
    let link = connect(&mut world, &token(Limits::default()));
    present(&mut world, link, &third);
    let said = said(&world, link).pop().unwrap();
    assert!(said.refused.contains("connect anew"), "{}", said.refused);
}

/// Nobody is let in by a token for one session before it is durable that it was used.
fn a_use_is_durable_before_it_counts(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let good = token(Limits {
        once: true,
        not_before: Some(UnixTime(world.now.unix_ns)),
        ..Limits::default()
    });
    let of = |session| Hello {
        session: SessionId(session),
        ..with_token(&good)
    };
    world.hold_jobs = true;
    let link = world.connect_as(Peer::default(), of(7));
    if !world.links[&link].inbox.is_empty() {
        return Err("it is welcomed early".into());
    }
    let error = refused(&mut world, of(8));
    assert!(error.message.contains("another one has used it"), "{error}");
    world.release_jobs();
    assert_eq!(world.links[&link].inbox[0].kind, FrameKind::Welcome);
    drop(world);
    ground.power_loss(Survival::Nothing);
    let mut world = ground.start();
    refused(&mut world, of(8));
    Ok(())
}

#[test]
fn nobody_comes_in_before_the_use_of_a_token_is_durable() {
    assert_eq!(a_use_is_durable_before_it_counts(Ground::new()), Ok(()));
    let caught = a_use_is_durable_before_it_counts(Ground::with_fault(Fault::UsedForgotten));
    assert!(caught.is_err(), "a use that is forgotten is not noticed");
}

#[test]
fn who_waits_for_a_use_to_be_durable_is_let_in_once() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let good = token(Limits {
        once: true,
        not_before: Some(UnixTime(world.now.unix_ns)),
        ..Limits::default()
    });
    let hello = Hello {
        session: SessionId(7),
        ..with_token(&good)
    };
    world.hold_jobs = true;
    let first = world.connect_as(Peer::default(), hello.clone());
    let again = world.connect_as(Peer::default(), hello.clone());
    assert!(world.links[&again].inbox.is_empty(), "it is not durable");
    // Nobody says hello twice: it would be let in twice, or by another token than the one that waits.
    let plain = Hello {
        session: SessionId(8),
        ..with_token(&token(Limits::default()))
    };
    world.message(first, FrameKind::Hello, 0, plain.to_bytes(), &[]);
    assert!(world.links[&first].closed.is_some());
    world.release_jobs();
    let welcomes = |world: &World, link| {
        let inbox = &world.links[&link].inbox;
        let welcomes = inbox.iter().filter(|one| one.kind == FrameKind::Welcome);
        welcomes.count()
    };
    assert_eq!((welcomes(&world, first), welcomes(&world, again)), (0, 1));
}

/// The holder of a token can make many of it that are for one session: they leave room for others.
#[test]
fn the_tokens_for_one_session_of_one_holder_have_a_bound() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let now = UnixTime(world.now.unix_ns);
    let expires = Some(UnixTime(now.0 + MINUTE.as_nanos() as u64));
    let once = |of: &Token, number: u32| {
        let limits = Limits {
            once: true,
            not_before: Some(now),
            expires,
            note: Some(number.to_string()),
            ..Limits::default()
        };
        of.restrict(&limits, Seed([4; 32])).unwrap()
    };
    let of = |token: &Token| Hello {
        session: SessionId(7),
        ..with_token(token)
    };
    let whole = token(Limits::default());
    for number in 0..1000 {
        let link = world.connect_as(Peer::default(), of(&once(&whole, number)));
        assert!(world.links[&link].closed.is_none(), "{number}");
        world.disconnect(link);
    }
    let error = refused(&mut world, of(&once(&whole, 1000)));
    assert!(
        error.retryable && error.message.contains("of the same token"),
        "{error}"
    );
    let other = token(Limits {
        note: Some("another".into()),
        ..Limits::default()
    });
    let link = world.connect_as(Peer::default(), of(&once(&other, 0)));
    assert!(world.links[&link].closed.is_none(), "others have room");
    // What has expired is remembered no longer.
    world.pass(2 * MINUTE);
    let fresh = Limits {
        once: true,
        not_before: Some(now),
        ..Limits::default()
    };
    let fresh = whole.restrict(&fresh, Seed([4; 32])).unwrap();
    let link = world.connect_as(Peer::default(), of(&fresh));
    assert!(world.links[&link].closed.is_none());
}

fn a_session_is_its_holders(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let session = SessionId(7);
    let with_session = |hello: Hello| Hello { session, ..hello };
    let theirs = token(Limits::default());
    let other = Limits {
        project: Some("q".to_owned()),
        ..Limits::default()
    };
    let other = Token::issue(&issuer(), &other, Seed([8; 32])).unwrap();
    let first = world.connect_as(Peer::default(), with_session(with_token(&theirs)));
    // Who answers a request of theirs knows the session's id.
    let stranger = world.connect_as(Peer::default(), with_session(with_token(&other)));
    if world.links[&first].closed.is_some() {
        return Err("a stranger has ended a connection".into());
    }
    let error = world.error(stranger, 0).expect("the stranger is refused");
    assert_eq!(error.code, ErrorCode::NotAuthorized);
    assert!(error.retryable && world.links[&stranger].closed.is_some());
    // They themselves may, by whichever token of their project.
    let narrower = theirs.restrict(&verbs(&[Verb::Read]), Seed([7; 32]));
    let again = world.connect_as(
        Peer::default(),
        with_session(with_token(&narrower.unwrap())),
    );
    assert_eq!(world.links[&again].inbox[0].kind, FrameKind::Welcome);
    assert!(world.links[&first].closed.is_some());
    Ok(())
}

#[test]
fn a_session_is_taken_over_by_its_holder_alone() {
    assert_eq!(a_session_is_its_holders(Ground::new()), Ok(()));
    assert!(a_session_is_its_holders(Ground::with_fault(Fault::SessionTaken)).is_err());
}

#[test]
fn rights_that_are_taken_away_are_lost_by_who_is_connected() {
    let mut world = Ground::new().start();
    let owner = world.connect_as(Peer::default(), owner());
    let link = connect(&mut world, &token(Limits::default()));
    let topic = world.create(link, "t", "{}", &["disk"]).unwrap().topic;
    world.subscribe(link, topic, "c", Start::Beginning);
    let none = access::Rules {
        grants: Arc::new(access::Grants(Vec::new())),
        ..access::Rules::default()
    };
    world.input(Input::Access(AccessChange::Rules(Arc::new(
        access::Rules::default(),
    ))));
    assert!(world.links[&link].closed.is_none(), "nothing has changed");
    world.input(Input::Access(AccessChange::Rules(Arc::new(none))));
    assert!(world.links[&link].closed.is_some(), "it reads on");
    assert!(world.links[&owner].closed.is_none());
    let link = connect(&mut world, &token(Limits::default()));
    let subscribe = Subscribe {
        consumer: "c".into(),
        partition: PartitionIndex(0),
        start: Start::Beginning,
        credit: 1 << 20,
        inline_data: true,
        latest: wire::codec::Appended(false),
    };
    let id = world.request(link, Method::Subscribe, topic, &subscribe, &[]);
    let error = world.answer(link, id).and_then(Result::err).unwrap();
    assert_eq!(error.code, ErrorCode::NotAuthorized);
}
