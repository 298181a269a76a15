//! Quotas of projects and rates of tokens, by a virtual clock.

use super::farm::*;
use super::harness::*;
use crate::AccessChange;
use crate::Fault;
use crate::node::{Input, LinkId};
use access::{AtBound, Bound, Limits, Quota, Quotas, Rules, Seed, Token, Verbs};
use net::Peer;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use wire::codec::Codec;
use wire::frame::FrameKind;
use wire::message::*;
use wire::*;

/// Bytes a second, of which a batch of these tests is a tenth, and a window ten.
const RATE: u64 = 100_000;
const STEP: Duration = Duration::from_millis(100);
const MINUTE: Duration = Duration::from_secs(60);

fn token(limits: Limits) -> Token {
    let limits = Limits {
        project: Some(String::new()),
        verbs: Some(Verbs::MEMBER),
        ..limits
    };
    Token::issue(&issuer(), &limits, Seed([9; 32])).unwrap()
}

fn rated() -> Token {
    token(Limits {
        bytes_per_second: Some(RATE),
        ..Limits::default()
    })
}

fn rules(quota: Quota) -> Arc<Rules> {
    let quotas = Quotas {
        others: quota,
        ..Quotas::default()
    };
    Arc::new(Rules {
        quotas,
        ..Rules::default()
    })
}

/// A server with a topic, whose clients have the token from now on.
fn start(ground: &mut Ground, token: Token) -> (World, LinkId, TopicId) {
    let mut world = ground.start();
    let owner = world.connect();
    let topic = world.topic(owner);
    world.token = Some(token);
    (world, owner, topic)
}

fn large(topic: TopicId, producer: u128, sequence: u64) -> Vec<u8> {
    let text = "x".repeat(RATE as usize / 10 - 300);
    batch(topic, producer, 0, sequence, &[&text])
}

fn credit(world: &World, link: LinkId) -> u64 {
    let welcome = &world.links[&link].inbox[0];
    Welcome::from_bytes("welcome", &welcome.head)
        .unwrap()
        .produce_credit
}

/// A producer that has as much unanswered as it may.
struct Sender {
    link: LinkId,
    id: u128,
    sequence: u64,
    credit: u64,
    unanswered: VecDeque<(u64, u64)>,
    acknowledged: u64,
}

impl Sender {
    fn new(world: &mut World, id: u128) -> Self {
        let link = world.connect();
        Self {
            link,
            id,
            sequence: 0,
            credit: credit(world, link),
            unanswered: VecDeque::new(),
            acknowledged: 0,
        }
    }

    fn step(&mut self, world: &mut World, topic: TopicId) {
        while let Some((id, bytes)) = self.unanswered.front().copied() {
            match world.answer(self.link, id) {
                None => break,
                Some(Ok(_)) => self.acknowledged += bytes,
                Some(Err(error)) => panic!("{error}"),
            }
            self.unanswered.pop_front();
        }
        // Answers that were counted are looked through no more.
        let waiting: Vec<u64> = self.unanswered.iter().map(|one| one.0).collect();
        let inbox = &mut world.links.get_mut(&self.link).unwrap().inbox;
        inbox.retain(|message| waiting.contains(&message.id));
        // Without a bound there would be no end.
        for _ in 0..12 {
            let bytes = large(topic, self.id, self.sequence);
            let unanswered: u64 = self.unanswered.iter().map(|one| one.1).sum();
            if unanswered > 0 && unanswered + bytes.len() as u64 > self.credit {
                return;
            }
            let id = world.produce(self.link, topic, &bytes);
            self.unanswered.push_back((id, bytes.len() as u64));
            self.sequence += 1;
        }
    }
}

fn is_near(found: u64, expected: u64) -> Result<(), String> {
    match (found as f64 / expected as f64 - 1.0).abs() < 0.05 {
        true => Ok(()),
        false => Err(format!("{found} bytes, {expected} are expected")),
    }
}

/// All connections by a token, and by those that were made from it, share its rate.
fn what_comes_keeps_to_the_rate(mut ground: Ground) -> Result<(), String> {
    let (mut world, _, topic) = start(&mut ground, rated());
    let mut senders = vec![Sender::new(&mut world, 5)];
    let narrow = rated().restrict(&Limits::default(), Seed([4; 32])).unwrap();
    world.token = Some(narrow);
    senders.push(Sender::new(&mut world, 6));
    let until = world.now.monotonic + MINUTE;
    let mut rounds = 0;
    while world.now.monotonic < until {
        for sender in &mut senders {
            sender.step(&mut world, topic);
        }
        if senders
            .iter()
            .any(|sender| sender.acknowledged > 2 * RATE * 60)
        {
            break;
        }
        rounds += 1;
        if rounds % 30 == 0 {
            let link = senders[0].link;
            // Whatever is no event is answered at once.
            let before = world.now;
            world.describe(link, "t").unwrap();
            assert_eq!(world.now, before);
        }
        world.pass(STEP);
    }
    let bytes = senders.iter().map(|sender| sender.acknowledged).sum();
    is_near(bytes, RATE * MINUTE.as_secs())
}

/// Stores what takes more than a minute at [`RATE`].
fn more_than_a_minute(world: &mut World, owner: LinkId, topic: TopicId) {
    for sequence in 0..11 * MINUTE.as_secs() {
        let id = world.produce(owner, topic, &large(topic, 7, sequence));
        assert!(matches!(world.answer(owner, id), Some(Ok(_))));
        world.links.get_mut(&owner).unwrap().inbox.clear();
    }
}

/// From the beginning, as fast as it may be.
fn everything() -> Subscribe {
    Subscribe {
        consumer: "c".into(),
        partition: PartitionIndex(0),
        start: Start::Beginning,
        credit: 1 << 30,
        inline_data: true,
        latest: wire::codec::Appended(false),
    }
}

/// A consumer of a project with a quota.
fn what_goes_out_keeps_to_the_rate(mut ground: Ground) -> Result<(), String> {
    ground.rules = rules(Quota::default().with(Bound::BytesOutPerSecond, RATE));
    let (mut world, owner, topic) = start(&mut ground, token(Limits::default()));
    more_than_a_minute(&mut world, owner, topic);
    let link = world.connect();
    let subscribe = everything();
    let read = world.request(link, Method::Subscribe, topic, &subscribe, &[]);
    let until = world.now.monotonic + MINUTE;
    let mut bytes = 0;
    while world.now.monotonic < until {
        world.pass(STEP);
        world.breathe(link);
        world.breathe(owner);
        let inbox = std::mem::take(&mut world.links.get_mut(&link).unwrap().inbox);
        let delivered = inbox
            .iter()
            .filter(|one| one.id == read && one.kind == FrameKind::Deliver);
        bytes += delivered.map(|one| one.payload_bytes()).sum::<u64>();
    }
    is_near(bytes, RATE * MINUTE.as_secs())?;
    // What is fetched is paid for as well: the answer comes when it is.
    let id = world.request(link, Method::Fetch, topic, &fetch(at(1, 0), 0), &[]);
    assert!(world.answer(link, id).is_none());
    Ok(())
}

/// Who leaves and comes again owes what was owed, also for what is in memory.
fn who_comes_again_owes_what_was_owed(mut ground: Ground) -> Result<(), String> {
    ground.rules = rules(Quota::default().with(Bound::BytesOutPerSecond, RATE));
    let (mut world, owner, _) = start(&mut ground, token(Limits::default()));
    let topic = world.create(owner, "m", "{}", &["memory"]).unwrap().topic;
    more_than_a_minute(&mut world, owner, topic);
    let subscribe = everything();
    let until = world.now.monotonic + MINUTE;
    let mut bytes = 0;
    while world.now.monotonic < until {
        let link = world.connect();
        world.request(link, Method::Subscribe, topic, &subscribe, &[]);
        world.pass(STEP);
        let inbox = std::mem::take(&mut world.links.get_mut(&link).unwrap().inbox);
        let delivered = inbox.iter().filter(|one| one.kind == FrameKind::Deliver);
        bytes += delivered.map(|one| one.payload_bytes()).sum::<u64>();
        world.disconnect(link);
        world.breathe(owner);
    }
    is_near(bytes, RATE * MINUTE.as_secs())
}

/// Who asks for what there is not, and a lot of it, costs its project nothing.
#[test]
fn what_is_refused_is_not_paid_for() {
    let mut ground = Ground::new();
    let quota = Quota::default()
        .with(Bound::BytesOutPerSecond, RATE)
        .with(Bound::BytesInPerSecond, RATE)
        .with(Bound::StoredBytes, 1 << 40);
    ground.rules = rules(quota);
    let (mut world, owner, topic) = start(&mut ground, token(Limits::default()));
    let id = world.produce(owner, topic, &large(topic, 7, 0));
    assert!(matches!(world.answer(owner, id), Some(Ok(_))));
    let link = world.connect();
    let huge = Region {
        key: vec![1; 8].into(),
        base: 0,
        bytes: u64::MAX / 2,
        memory_kind: 0,
        rails: 0,
    };
    let read = ReadData {
        events: Vec::new(),
        into: vec![huge.clone(), huge.clone(), huge.clone()],
        strided: wire::codec::Appended(Vec::new()),
    };
    let id = world.request(link, Method::ReadData, topic, &read, &[]);
    assert!(matches!(world.answer(link, id), Some(Err(_))));
    let id = world.request(link, Method::Fetch, topic, &fetch(at(1, 0), 0), &[]);
    world.pass(2 * STEP);
    assert!(
        matches!(world.answer(link, id), Some(Ok(_))),
        "it is paid for"
    );
    let produce = Produce {
        partition: PartitionIndex(0),
        durability: Durability::Memory,
        regions: vec![huge],
    };
    let batch = batch(topic, 8, 0, 0, &["a"]);
    let id = world.request(link, Method::Produce, topic, &produce, &batch);
    assert!(matches!(world.answer(link, id), Some(Err(_))));
    let id = world.produce(link, topic, &batch);
    world.pass(STEP);
    assert!(
        matches!(world.answer(link, id), Some(Ok(_))),
        "it is paid for"
    );
}

/// The error at a bound, and whether it may be tried again.
fn refused(world: &World, link: LinkId, id: u64, part: &str) -> Result<ErrorReply, String> {
    match world.answer(link, id) {
        Some(Err(error)) if error.code == ErrorCode::LimitExceeded => {
            assert!(
                error.message.contains(part) && error.retry_after_ms > 0,
                "{error}"
            );
            Ok(error)
        }
        other => Err(format!("{other:?}")),
    }
}

fn bounds_of_a_project(mut ground: Ground) -> Result<(), String> {
    let quota = Quota::default()
        .with(Bound::Connections, 2)
        .with(Bound::Topics, 2)
        .with(Bound::StoredBytes, 35_000);
    ground.rules = rules(quota);
    let (mut world, owner, topic) = start(&mut ground, token(Limits::default()));
    let link = world.connect();
    let create = |name: &str| CreateTopic {
        name: name.into(),
        definition: "{}".into(),
        partitions: vec![storage("disk")],
    };
    let made = world.request(link, Method::CreateTopic, TopicId(0), &create("u"), &[]);
    assert!(matches!(world.answer(link, made), Some(Ok(_))));
    let made = world.request(link, Method::CreateTopic, TopicId(0), &create("v"), &[]);
    let error = refused(
        &world,
        link,
        made,
        "the quota of the default project: topics is 2",
    )?;
    assert!(error.retryable);
    for sequence in 0..3 {
        let id = world.produce(link, topic, &large(topic, 5, sequence));
        assert!(matches!(world.answer(link, id), Some(Ok(_))));
    }
    let id = world.produce(link, topic, &large(topic, 5, 3));
    refused(&world, link, id, "stored_bytes is 35000")?;
    // The owner is held to nothing, and makes room.
    let id = world.produce(owner, topic, &large(topic, 6, 0));
    assert!(matches!(world.answer(owner, id), Some(Ok(_))));
    let name = TopicName { name: "t".into() };
    let deleted: Result<Empty, _> = world.call(owner, Method::DeleteTopic, TopicId(0), &name);
    deleted.unwrap();
    let other = world.describe(link, "u").unwrap().topic;
    world.pass(Duration::from_secs(1));
    let id = world.produce(link, other, &large(other, 5, 0));
    assert!(
        matches!(world.answer(link, id), Some(Ok(_))),
        "there is room again"
    );
    let second = world.connect();
    let token = world.token.clone().unwrap();
    let hello = || Hello {
        mechanism: ACCESS_TOKEN.into(),
        proof: token.to_text().into(),
        ..hello()
    };
    let third = world.connect_as(Peer::default(), hello());
    refused(&world, third, 0, "connections is 2")?;
    world.disconnect(second);
    world.connect();
    // Said anew, it counts at once.
    world.input(Input::Access(AccessChange::Rules(rules(Quota::default()))));
    world.connect();
    Ok(())
}

fn a_program_may_want_to_be_refused(mut ground: Ground) -> Result<(), String> {
    let mut quota = Quota::default().with(Bound::BytesInPerSecond, RATE);
    quota.at_bound = AtBound::Refuse;
    ground.rules = rules(quota);
    let (mut world, _, topic) = start(&mut ground, token(Limits::default()));
    let link = world.connect();
    let mut ids = Vec::new();
    for sequence in 0..12 {
        ids.push(world.produce(link, topic, &large(topic, 5, sequence)));
        world.pass(Duration::from_millis(1));
        world
            .links
            .get_mut(&link)
            .unwrap()
            .inbox
            .retain(|one| one.kind == FrameKind::ErrorReply);
    }
    let error = refused(&world, link, ids[11], "bytes_in_per_second is 100000")?;
    assert!(!error.retryable && error.retry_after_ms <= 1000);
    // What was appended is said to be, however much is owed: its answer was lost.
    let again = world.produce(link, topic, &large(topic, 5, 10));
    assert!(matches!(world.answer(link, again), Some(Ok(_))));
    let new = world.produce(link, topic, &large(topic, 5, 11));
    refused(&world, link, new, "bytes_in_per_second is 100000")?;
    Ok(())
}

/// Topics that are being made are as good as there.
fn topics_on_their_way_count(mut ground: Ground) -> Result<(), String> {
    ground.rules = rules(Quota::default().with(Bound::Topics, 2));
    let (mut world, _, _) = start(&mut ground, token(Limits::default()));
    let link = world.connect();
    (world.hold_disk, world.hold_jobs) = (true, true);
    let asked = ["u", "v", "w"].map(|name| {
        let create = CreateTopic {
            name: name.into(),
            definition: "{}".into(),
            partitions: vec![storage("disk")],
        };
        world.request(link, Method::CreateTopic, TopicId(0), &create, &[])
    });
    world.release_jobs();
    world.release_disk();
    world.release_jobs();
    assert!(matches!(world.answer(link, asked[0]), Some(Ok(_))));
    refused(&world, link, asked[1], "topics is 2")?;
    refused(&world, link, asked[2], "topics is 2").map(|_| ())
}

/// Members of a queue have so many bytes unsettled together.
fn what_is_unsettled_is_bounded(mut ground: Ground) -> Result<(), String> {
    ground.rules = rules(Quota::default().with(Bound::UnsettledBytes, 25_000));
    let (mut world, owner, topic) = start(&mut ground, token(Limits::default()));
    world.create(owner, "t.dead", "{}", &["disk"]).unwrap();
    let links = [world.connect(), world.connect()];
    for sequence in 0..6 {
        world.produce(owner, topic, &large(topic, 7, sequence));
    }
    let ids = [1, 2].map(|who| world.joined(links[who as usize - 1], topic, &member(who)));
    let given = |world: &World| -> Vec<Given> {
        let given = [0, 1].map(|at| world.given(links[at], ids[at]));
        given.concat()
    };
    let most = given(&world).len();
    if !(2..=4).contains(&most) {
        return Err(format!("{most} events are given"));
    }
    // What one member settles is room for all of them.
    let mut settled = [0; 2];
    while given(&world).len() < 6 {
        let before = given(&world).len();
        for (at, done_before) in settled.iter_mut().enumerate() {
            let all = world.given(links[at], ids[at]);
            let new: Vec<_> = all[*done_before..]
                .iter()
                .map(|one| done(one.lease))
                .collect();
            *done_before += new.len();
            world.settled(links[at], topic, (at as u128 + 1, *done_before as u64), new);
        }
        assert!(given(&world).len() > before, "nobody is given more");
    }
    Ok(())
}

/// Who has used up its rate waits alone: others are answered at once, nothing that they need is held,
/// and what is sent again after a cut is stored once.
fn a_paced_producer_holds_up_nobody(mut ground: Ground) -> Result<(), String> {
    let (mut world, owner, topic) = start(&mut ground, rated());
    let batches: Vec<_> = (0..10).map(|at| large(topic, 5, at)).collect();
    let link = world.connect();
    let send = |world: &mut World, link| -> Vec<u64> {
        let sent = batches
            .iter()
            .map(|batch| world.produce(link, topic, batch));
        sent.collect()
    };
    let ids = send(&mut world, link);
    if world.answer(link, ids[9]).is_some() {
        return Err("it is answered early".into());
    }
    match world.node.data_bytes().0 {
        0 => {}
        held => return Err(format!("{held} bytes are held")),
    }
    let id = world.produce(owner, topic, &large(topic, 6, 0));
    assert!(matches!(world.answer(owner, id), Some(Ok(_))));
    world.disconnect(link);
    let link = world.connect();
    // A client asks what is stored, and sends what is behind that; here it has not heard of the last.
    for batch in &batches[7..] {
        let id = world.produce(link, topic, batch);
        world.pass(Duration::from_secs(2));
        let answer = world.answer(link, id);
        assert!(matches!(answer, Some(Ok(_))), "{answer:?}");
    }
    let read = world.subscribe(owner, topic, "all", Start::Beginning);
    assert_eq!(world.delivered(owner, read).len(), 11);
    assert_eq!(world.node.data_bytes().0, 0);
    Ok(())
}

/// A token has a quota by what the operator says of it, with all that were made of it.
fn the_holders_of_a_token_have_a_quota(mut ground: Ground) -> Result<(), String> {
    let whole = token(Limits::default());
    let id = whole.ids()[0];
    let quota = Quota::default()
        .with(Bound::Connections, 1)
        .with(Bound::BytesInPerSecond, RATE);
    let quotas = Quotas {
        tokens: [(id, quota)].into(),
        ..Quotas::default()
    };
    let rules = Rules {
        quotas,
        ..Rules::default()
    };
    ground.rules = Arc::new(rules);
    let (mut world, _, topic) = start(&mut ground, whole.clone());
    let link = world.connect();
    let made = whole.restrict(&Limits::default(), Seed([4; 32])).unwrap();
    let hello = Hello {
        mechanism: ACCESS_TOKEN.into(),
        proof: made.to_text().into(),
        ..hello()
    };
    let second = world.connect_as(Peer::default(), hello);
    let part = format!("the quota of token {id}: connections is 1");
    refused(&world, second, 0, &part)?;
    let ids: Vec<_> = (0..10)
        .map(|at| world.produce(link, topic, &large(topic, 5, at)))
        .collect();
    assert!(world.answer(link, ids[9]).is_none(), "it is answered early");
    // Another token of the same project is held to nothing.
    let other = Limits {
        note: Some("other".into()),
        ..Limits::default()
    };
    world.token = Some(token(other));
    let other = world.connect();
    let id = world.produce(other, topic, &large(topic, 6, 0));
    assert!(matches!(world.answer(other, id), Some(Ok(_))));
    Ok(())
}

#[test]
fn a_paced_producer_that_holds_memory_is_noticed() {
    let caught = a_paced_producer_holds_up_nobody(Ground::with_fault(Fault::PacedHolds));
    assert!(caught.is_err_and(|why| why.contains("are held")));
}

type Check = fn(Ground) -> Result<(), String>;

#[test]
fn projects_and_tokens_are_held_to_their_quotas() {
    let checks: [(&str, Check); 9] = [
        ("alone", a_paced_producer_holds_up_nobody),
        ("token", the_holders_of_a_token_have_a_quota),
        ("in", what_comes_keeps_to_the_rate),
        ("out", what_goes_out_keeps_to_the_rate),
        ("again", who_comes_again_owes_what_was_owed),
        ("bounds", bounds_of_a_project),
        ("topics", topics_on_their_way_count),
        ("unsettled", what_is_unsettled_is_bounded),
        ("refuse", a_program_may_want_to_be_refused),
    ];
    for (name, check) in checks {
        assert_eq!(check(Ground::new()), Ok(()), "{name}");
        let caught = check(Ground::with_fault(Fault::NoQuota));
        assert!(caught.is_err(), "{name}: a missing quota is not noticed");
    }
}
