//! A credential that ends while events flow, in every pattern: renewed in time, renewed in the grace,
//! or not at all. The table is in `docs/concept/security.md`.

use super::farm::*;
use super::harness::*;
use super::members::group;
use super::steps_harness::plain;
use crate::Fault;
use crate::node::LinkId;
use access::{Limits, Seed, Token, UnixTime, Verbs};
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::*;
use wire::*;

type Pattern = fn(Ground) -> Result<(), String>;

/// For how long the first credential of a test is good.
const LIFE: Duration = Duration::from_secs(100);

/// A token of the default project, for all that its members may do.
fn token(world: &World, life: Duration) -> Token {
    let limits = Limits {
        project: Some(String::new()),
        verbs: Some(Verbs::MEMBER),
        expires: Some(UnixTime(world.now.unix_ns + life.as_nanos() as u64)),
        ..Limits::default()
    };
    Token::issue(&issuer(), &limits, Seed([9; 32])).unwrap()
}

/// The clients of the test have a token that is good for [`LIFE`]; the owner has none.
fn start(ground: &mut Ground) -> (World, LinkId) {
    let mut world = ground.start();
    let owner = world.connect();
    world.token = Some(token(&world, LIFE));
    (world, owner)
}

/// Presents another token, on the connection that stands.
fn renew(world: &mut World, link: LinkId) {
    let asked = Authenticate {
        mechanism: ACCESS_TOKEN.into(),
        proof: token(world, LIFE).to_text().into(),
    };
    world.message(link, FrameKind::Authenticate, 0, asked.to_bytes(), &[]);
    assert!(world.links[&link].closed.is_none());
}

/// What is refused for now since the credential is over.
fn is_put_off(world: &World, link: LinkId, id: u64) -> Result<(), String> {
    match world.answer(link, id) {
        Some(Err(error)) if error.code == ErrorCode::CredentialExpired && error.retryable => {
            let helps = error.message.contains("thalweg token new");
            assert!(helps, "the error does not say what to do: {error}");
            Ok(())
        }
        other => Err(format!("{other:?}")),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{found:?} is not {expected:?}")),
    }
}

/// What was acknowledged is there once, and the rest is refused until another token is there; who
/// reads gets nothing meanwhile, and then everything.
fn producer_and_consumer(mut ground: Ground) -> Result<(), String> {
    let (mut world, owner) = start(&mut ground);
    let topic = world.topic(owner);
    let link = world.connect();
    let read = world.subscribe(link, topic, "c", Start::Beginning);
    world.stored(link, topic, (5, 0), &["a"]);
    world.live(&[owner, link], LIFE + SECOND);
    let refused = world.produce(link, topic, &batch(topic, 5, 0, 1, &["b"]));
    is_put_off(&world, link, refused)?;
    world.stored(owner, topic, (6, 0), &["x"]);
    same(world.texts(link, read), vec!["a".to_owned()])?;
    let late = world.request(link, Method::Fetch, topic, &fetch(at(1, 0), 0), &[]);
    is_put_off(&world, link, late)?;
    // What it has been given it may acknowledge.
    let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
    assert!(matches!(world.answer(link, moved), Some(Ok(_))));
    let sought = world.move_cursor(link, topic, CursorMove::Seek, at(1, 0));
    is_put_off(&world, link, sought)?;
    renew(&mut world, link);
    world.stored(link, topic, (5, 1), &["b"]);
    let texts = ["a", "x", "b"].map(str::to_owned);
    same(world.texts(link, read), texts.to_vec())?;
    world.live(&[owner, link], LIFE - SECOND);
    world.stored(link, topic, (5, 2), &["c"]);
    assert_eq!(world.texts(link, read).len(), 4);
    Ok(())
}

/// A member keeps its partitions and may acknowledge; once its connection was ended it has its
/// session timeout to come back.
fn member_of_a_group(mut ground: Ground) -> Result<(), String> {
    let (mut world, owner) = start(&mut ground);
    let topic = world.topic_of(owner, 2);
    let (first, second) = (world.connect(), world.connect());
    let all = [owner, first, second];
    let membership = world.joined(first, topic, &group(1));
    world.stored_in(owner, topic, 0, &["a"]);
    assert_eq!(world.assigned(first, membership).0, [0, 1]);
    world.live(&all, LIFE + SECOND);
    let join = world.request(second, Method::Join, topic, &group(2), &[]);
    is_put_off(&world, second, join)?;
    world.acknowledges(first, topic, 1, (0, 1)).unwrap();
    same(world.members(owner, topic), vec![(1, true)])?;
    renew(&mut world, first);
    assert_eq!(world.assigned(first, membership), (vec![0, 1], vec![]));
    world.live(&all, LIFE + SECOND * 60);
    // Without another token the connection ends, and the member is away for a while.
    assert!(world.links[&first].closed.is_some());
    same(world.members(owner, topic), vec![(1, false)])?;
    world.token = Some(token(&world, LIFE));
    let back = world.connect();
    let membership = world.joined(back, topic, &group(1));
    assert_eq!(world.assigned(back, membership).0, [0, 1]);
    assert_eq!(world.cursors(owner, topic), [(0, 1)]);
    Ok(())
}

/// A member settles and extends what it has; it is given nothing more until another token is there,
/// nor is what it has given to another.
fn member_of_a_queue(mut ground: Ground) -> Result<(), String> {
    let (mut world, owner) = start(&mut ground);
    let topic = world.farm(owner);
    let link = world.connect();
    world.live(&[owner, link], LIFE - SECOND);
    let id = world.joined(link, topic, &member(1));
    world.fill(owner, topic, 0, 2, 1);
    world.live(&[owner, link], SECOND * 2);
    world.fill(owner, topic, 2, 3, 1);
    same(world.numbers(link, id), vec![0, 1])?;
    let given = world.given(link, id);
    let extend = ExtendLeases {
        consumer: "q".into(),
        member: MemberId(1),
        leases: vec![given[1].lease],
    };
    let extended: Result<LeasesExtended, _> =
        world.call(link, Method::ExtendLeases, topic, &extend);
    assert_eq!(extended.unwrap().expired, []);
    let settled = world.settled(link, topic, (1, 1), vec![done(given[0].lease)]);
    assert!(settled.is_empty());
    world.live(&[owner, link], SECOND * 10);
    same(world.numbers(link, id), vec![0, 1])?;
    renew(&mut world, link);
    assert_eq!(world.numbers(link, id), [0, 1, 2]);
    let settled = world.settled(link, topic, (1, 2), vec![done(given[1].lease)]);
    assert!(settled.is_empty());
    // Not renewed: its connection ends, it is a member still, and comes back with what it holds.
    let last = world.given(link, id)[2].lease;
    world.live(&[owner, link], LIFE + SECOND * 61);
    assert!(world.links[&link].closed.is_some());
    world.token = Some(token(&world, LIFE));
    let back = world.connect();
    let held = Join {
        held: vec![last],
        ..member(1)
    };
    let id = world.joined(back, topic, &held);
    // Its lease is over meanwhile, or is its own still: the event is settled once all the same.
    let again = world.given(back, id);
    let lease = again.first().map_or(last, |again| again.lease);
    world.settled(back, topic, (1, 3), vec![done(lease)]);
    let queue = world.queue(owner, topic);
    assert_eq!((queue.position.offset, queue.leased), (Offset(3), 0));
    Ok(())
}

/// A rank that writes and one that reads stay where they are: no step is taken or given meanwhile,
/// and each is there once.
fn steps(mut ground: Ground) -> Result<(), String> {
    let (mut world, owner) = {
        let mut world = ground.start();
        let owner = world.connect();
        (world, owner)
    };
    let topic = plain(&mut world);
    world.token = Some(token(&world, LIFE));
    let mut writer = world.writer(topic, 0, 1);
    let mut reader = world.reader(topic, "r", 0, 1);
    world.step(topic, &mut writer, 0);
    let all = [owner, writer.link, reader.link];
    world.live(&all, LIFE + SECOND);
    let part = world.part(topic, &mut writer, 1, |_| {});
    is_put_off(&world, writer.link, part)?;
    let admitted = world.admit(topic, &writer, 1);
    is_put_off(&world, writer.link, admitted)?;
    let next = world.ask(topic, &reader);
    is_put_off(&world, reader.link, next)?;
    world.live(&all, SECOND * 30);
    assert!(
        world.answer(writer.link, writer.attends).is_none(),
        "it attends"
    );
    renew(&mut world, writer.link);
    renew(&mut world, reader.link);
    // The same batch again, as it was.
    writer.sequence -= 1;
    world.step(topic, &mut writer, 1);
    let turns = [0, 1].map(|_| world.next_turn(topic, &mut reader).map(|turn| turn.2));
    same(turns, [Some(0), Some(1)])?;
    // Not renewed: the ranks are gone in the end, and what was acknowledged is there.
    world.live(&all, LIFE + SECOND * 61);
    assert!(world.links[&writer.link].closed.is_some());
    world.token = Some(token(&world, LIFE));
    let mut reader = world.reader_at(topic, "late", (0, 1), StepStart::Oldest, false);
    let turns = [0, 1].map(|_| world.next_turn(topic, &mut reader).map(|turn| turn.2));
    same(turns, [Some(0), Some(1)])
}

#[test]
fn a_credential_ends_in_every_pattern_and_nothing_is_lost() {
    let patterns: [(&str, Pattern); 4] = [
        ("producer and consumer", producer_and_consumer),
        ("group", member_of_a_group),
        ("queue", member_of_a_queue),
        ("steps", steps),
    ];
    for (name, pattern) in patterns {
        assert_eq!(pattern(Ground::new()), Ok(()), "{name}");
        let caught = pattern(Ground::with_fault(Fault::GraceServes));
        assert!(
            caught.is_err(),
            "{name}: a grace that serves is not noticed"
        );
    }
}
