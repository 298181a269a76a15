//! Clients for whom another issuer vouches: what they present is looked at elsewhere, and nobody waits for that but
//! them.

use super::farm::SECOND;
use super::harness::*;
use crate::node::{Input, LinkId};
use crate::{AccessChange, Examiner, Fault, IssuersChange, Presented};
use access::{Issued, Limits, TokenId, Trust, UnixTime, Verb, Verbs, Verified};
use net::Peer;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::*;
use wire::*;

const MINUTE: Duration = Duration::from_secs(60);
const SECRET: &str = "a-secret-that-nobody-prints";

/// Believes what it is told to: who presents `alice` or `bob` is that; what it says is what a test has set.
#[derive(Default)]
struct Oracle(Mutex<Said>);

#[derive(Clone)]
struct Said {
    verbs: Verbs,
    life: Duration,
    error: Option<ErrorReply>,
    asked: usize,
}

impl Default for Said {
    fn default() -> Self {
        Self {
            verbs: Verbs::from_iter([Verb::Read, Verb::Write]),
            life: 10 * MINUTE,
            error: None,
            asked: 0,
        }
    }
}

fn issued(subject: &str) -> Issued {
    Issued {
        issuer: "issuer".into(),
        subject: subject.into(),
    }
}

impl Examiner for Oracle {
    fn takes_long(&self, presented: &Presented) -> bool {
        presented.proof.as_ref() == b"long"
    }

    fn examine(&self, presented: &Presented) -> Result<Verified, ErrorReply> {
        let mut said = self.0.lock().unwrap();
        said.asked += 1;
        if let Some(error) = &said.error {
            return Err(error.clone());
        }
        let subject = std::str::from_utf8(&presented.proof).unwrap();
        let limits = Limits {
            project: Some("p".into()),
            topics: Some(vec!["**".parse().unwrap()]),
            verbs: Some(said.verbs),
            expires: Some(UnixTime(presented.now.0 + said.life.as_nanos() as u64)),
            ..Limits::default()
        };
        let presented = presented.proof.as_ref();
        Ok(Verified::of_issuer(issued(subject), limits, presented).unwrap())
    }
}

struct Scene {
    ground: Ground,
    oracle: Arc<Oracle>,
}

impl Scene {
    fn new() -> Self {
        let oracle = Arc::<Oracle>::default();
        let mut ground = Ground::new();
        ground.examiner = oracle.clone();
        Self { ground, oracle }
    }

    fn with(fault: Fault) -> Self {
        let mut scene = Self::new();
        scene.ground.fault = Some(fault);
        scene
    }

    fn say(&self, change: impl FnOnce(&mut Said)) {
        change(&mut self.oracle.0.lock().unwrap());
    }

    fn fail(&self, error: Option<ErrorReply>) {
        self.say(|said| said.error = error);
    }
}

fn by(proof: &'static str) -> Hello {
    Hello {
        mechanism: ISSUED.into(),
        proof: proof.into(),
        ..hello()
    }
}

fn come(world: &mut World, proof: &'static str) -> LinkId {
    world.connect_as(Peer::default(), by(proof))
}

fn come_from(world: &mut World, address: &str, proof: &'static str) -> LinkId {
    let peer = Peer {
        address: address.to_owned(),
        ..Peer::default()
    };
    world.connect_as(peer, by(proof))
}

/// Clients of as many addresses.
fn come_from_many(world: &mut World, count: usize, proof: &'static str) -> Vec<LinkId> {
    let addresses = (0..count).map(|number| format!("tcp://10.0.0.{number}:1"));
    addresses
        .map(|address| come_from(world, &address, proof))
        .collect()
}

fn is_full(world: &World, link: LinkId) -> bool {
    let error = world.error(link, 0);
    error.is_some_and(|error| error.code == ErrorCode::LimitExceeded && error.retryable)
}

fn is_in(world: &World, link: LinkId) -> bool {
    let first = world.links[&link].inbox.first();
    first.is_some_and(|first| first.kind == FrameKind::Welcome)
        && world.links[&link].closed.is_none()
}

fn present(world: &mut World, link: LinkId, proof: &'static str) {
    let asked = Authenticate {
        mechanism: ISSUED.into(),
        proof: proof.into(),
    };
    world.message(link, FrameKind::Authenticate, 0, asked.to_bytes(), &[]);
}

/// What was said last of the credential of a connection.
fn said(world: &World, link: LinkId) -> Authenticated {
    let mut inbox = world.links[&link].inbox.iter().rev();
    let last = inbox.find(|message| message.kind == FrameKind::Authenticate);
    Authenticated::from_bytes("said", &last.expect("something was said").head).unwrap()
}

fn count(world: &World, what: &str) -> usize {
    let records = world.audited.iter();
    records.filter(|record| record.what.name() == what).count()
}

fn unknown() -> Option<ErrorReply> {
    let code = ErrorCode::NotAuthenticated;
    Some(ErrorReply::retryable(
        code,
        1000,
        "the site does not answer",
    ))
}

fn changed(names: &[&str]) -> Input {
    Input::Access(AccessChange::Issuers(IssuersChange {
        known: vec!["issuer".into()],
        changed: names.iter().map(|name| (*name).to_owned()).collect(),
    }))
}

#[test]
fn somebody_is_let_in_when_it_was_looked_at_and_nobody_else_waits() {
    let mut scene = Scene::new();
    let mut world = scene.ground.start();
    world.hold_jobs = true;
    let alice = come(&mut world, "alice");
    assert!(!is_in(&world, alice) && world.links[&alice].inbox.is_empty());
    let owner = world.connect();
    assert!(is_in(&world, owner), "others are served meanwhile");
    world.release_jobs();
    assert!(is_in(&world, alice));
    assert_eq!(said(&world, alice).expires_in_ms, 600_000);
    let owner = alice_may_not_make(&mut world, alice);
    let topic = world.topic(owner);
    world.stored(alice, topic, (5, 0), &["a"]);
    let line = world.audited.iter().map(crate::AuditRecord::to_line);
    let line = line
        .filter(|line| line.contains("\"issuer\":\"issuer\""))
        .collect::<String>();
    assert!(line.contains("\"subject\":\"alice\""), "{line}");
    assert!(line.contains("credential of another issuer"), "{line}");
}

/// Asserts that the issuer's member may not manage; returns who may, in its namespace.
fn alice_may_not_make(world: &mut World, alice: LinkId) -> LinkId {
    let check = CheckAccess {
        verb: "manage".into(),
        topic: "t".into(),
    };
    let checked = world.call(alice, Method::CheckAccess, TopicId(0), &check);
    let checked: AccessChecked = checked.unwrap();
    assert!(!checked.allowed);
    assert!(
        checked.reason.contains("\"alice\" of \"issuer\""),
        "{}",
        checked.reason
    );
    world.connect_as(
        Peer::default(),
        Hello {
            namespace: "p".into(),
            ..hello()
        },
    )
}

#[test]
fn who_is_refused_hears_why_and_no_secret_is_said() {
    let mut scene = Scene::new();
    let mut world = scene.ground.start();
    let expired = ErrorReply::retryable(ErrorCode::CredentialExpired, 1000, "expired at noon");
    let wrong = ErrorReply::fatal(ErrorCode::NotAuthenticated, "not active");
    for error in [wrong, expired, unknown().unwrap()] {
        scene.fail(Some(error.clone()));
        let link = come(&mut world, SECRET);
        assert!(world.links[&link].closed.is_some());
        assert_eq!(world.error(link, 0), Some(error));
    }
    assert_eq!(count(&world, "refuse"), 3);
    scene.fail(None);
    let elsewhere = Hello {
        namespace: "q".into(),
        ..by("alice")
    };
    let link = world.connect_as(Peer::default(), elsewhere);
    assert_eq!(world.error(link, 0).unwrap().code, ErrorCode::NotAuthorized);
    let lines = world.audited.iter().map(crate::AuditRecord::to_line);
    let all = lines.chain(world.lines.iter().cloned()).collect::<String>();
    assert!(!all.contains(SECRET), "{all}");
    let presented = Presented {
        proof: SECRET.into(),
        namespace: String::new(),
        now: UnixTime(1),
    };
    assert!(!format!("{presented:?}").contains(SECRET));
}

#[test]
fn a_server_that_takes_nothing_of_others_says_so() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = come(&mut world, "alice");
    let error = world.error(link, 0).unwrap();
    assert!(error.message.contains("takes none of others"), "{error}");
}

#[test]
fn who_waits_says_nothing_more_is_forgotten_when_gone_and_waits_for_a_bounded_time() {
    let mut scene = Scene::new();
    let mut world = scene.ground.start();
    world.hold_jobs = true;
    let eager = come(&mut world, "alice");
    world.message(eager, FrameKind::Heartbeat, 0, Vec::new(), &[]);
    assert!(world.links[&eager].closed.is_some());
    let gone = come(&mut world, "alice");
    world.disconnect(gone);
    let late = come(&mut world, "alice");
    world.pass(Duration::from_secs(11));
    let error = world.error(late, 0).unwrap();
    assert!(
        error.retryable && error.message.contains("could not be looked at in time"),
        "{error}"
    );
    world.release_jobs();
    assert!([eager, gone, late].iter().all(|link| !is_in(&world, *link)));
    let alice = come(&mut world, "alice");
    assert!(is_in(&world, alice));
}

/// Returns whether who goes leaves its place to others.
fn so_many(mut scene: Scene) -> bool {
    let mut world = scene.ground.start();
    world.hold_jobs = true;
    let waiting = come_from_many(&mut world, 64, "alice");
    let more = come(&mut world, "alice");
    assert!(is_full(&world, more));
    // Those that take long have a bound of their own.
    let long = come_from_many(&mut world, 64, "long");
    let longer = come(&mut world, "long");
    assert!(is_full(&world, longer));
    world.disconnect(waiting[0]);
    let next = come(&mut world, "alice");
    let has_place = !is_full(&world, next);
    let awaited = world.awaited_looks();
    world.release_jobs();
    let left = waiting[1..].iter().chain(&long);
    assert!(left.clone().all(|link| is_in(&world, *link)));
    assert_eq!(is_in(&world, next), has_place);
    assert_eq!(awaited, left.count() + usize::from(has_place));
    let alice = come(&mut world, "alice");
    assert!(is_in(&world, alice));
    has_place
}

#[test]
fn so_many_are_looked_at_at_once_and_no_more() {
    assert!(so_many(Scene::new()));
    assert!(!so_many(Scene::with(Fault::GoneKeepPlaces)));
}

/// Returns whether somebody finds a place while one address has taken all that it can.
fn is_shared(mut scene: Scene) -> bool {
    let mut world = scene.ground.start();
    world.hold_jobs = true;
    // The addresses of one IPv6 network are one host's.
    let greedy: Vec<LinkId> = (0..64)
        .map(|number| {
            come_from(
                &mut world,
                &format!("tcp://[2001:db8::{number}]:1"),
                "alice",
            )
        })
        .collect();
    let other = come_from(&mut world, "tcp://[2001:db8:0:1::1]:1", "alice");
    let has_place = !is_full(&world, other);
    let held = greedy.iter().filter(|link| !is_full(&world, **link));
    assert_eq!(held.count(), if has_place { 16 } else { 64 });
    has_place
}

#[test]
fn one_address_has_not_all_places() {
    assert!(is_shared(Scene::new()));
    assert!(!is_shared(Scene::with(Fault::OneTakesAll)));
}

/// Returns whether a client whose renewal finds no place goes on by what it has.
fn goes_on_without_place(mut scene: Scene) -> bool {
    let mut world = scene.ground.start();
    let clients: Vec<LinkId> = (0..65)
        .map(|number| {
            let person: &'static str = Box::leak(format!("p{number}").into_boxed_str());
            come_from(&mut world, &format!("tcp://10.0.1.{number}:1"), person)
        })
        .collect();
    assert!(clients.iter().all(|link| is_in(&world, *link)));
    world.hold_jobs = true;
    // Strangers take no place of who is in.
    come_from_many(&mut world, 64, "alice");
    for (number, link) in clients.iter().enumerate() {
        let person: &'static str = Box::leak(format!("p{number}").into_boxed_str());
        present(&mut world, *link, person);
    }
    let last = clients[64];
    let goes_on = said(&world, last).refused.is_empty();
    assert_eq!(said(&world, last).expires_in_ms, 600_000);
    let answers = |world: &World, link: LinkId| {
        let inbox = world.links[&link].inbox.iter();
        let of_credential = inbox.filter(|message| message.kind == FrameKind::Authenticate);
        of_credential.count()
    };
    assert_eq!(answers(&world, last), answers(&world, clients[0]) + 1);
    world.release_jobs();
    assert!(clients.iter().all(|link| is_in(&world, *link)));
    assert_eq!(answers(&world, last), answers(&world, clients[0]));
    goes_on
}

#[test]
fn a_renewal_for_which_there_is_no_place_is_no_refusal() {
    assert!(goes_on_without_place(Scene::new()));
    assert!(!goes_on_without_place(Scene::with(Fault::LaterIsRefused)));
}

/// One person does not have all places of those who are in, and who is in by something else has none.
#[test]
fn who_is_in_has_some_of_the_places() {
    let mut scene = Scene::new();
    let mut world = scene.ground.start();
    let clients = come_from_many(&mut world, 20, "alice");
    let owner = world.connect();
    world.hold_jobs = true;
    for link in &clients {
        present(&mut world, *link, "alice");
    }
    assert_eq!(world.awaited_looks(), 16);
    present(&mut world, owner, "alice");
    assert_eq!(world.awaited_looks(), 16);
    assert!(said(&world, owner).refused.contains("connect anew"));
}

/// A node that ends waits for nobody who is looked at, and lets nobody be.
#[test]
fn a_look_keeps_no_node_from_its_end() {
    let mut scene = Scene::new();
    let mut world = scene.ground.start();
    let alice = come(&mut world, "alice");
    world.hold_jobs = true;
    come(&mut world, "bob");
    present(&mut world, alice, "alice");
    assert_eq!(world.awaited_looks(), 2);
    world.input(Input::Drain);
    let late = come(&mut world, "bob");
    let error = world.error(late, 0);
    assert!(error.is_none_or(|error| error.code == ErrorCode::Draining && error.retryable));
    assert!(world.awaited_looks() <= 2);
    world.release_all_but_looks();
    assert!(world.drained, "it waits for a look");
}

/// Who is vouched for as somebody else has neither their connection nor their session.
#[test]
fn nobody_becomes_another_person() {
    let mut scene = Scene::new();
    let mut world = scene.ground.start();
    let alice = come(&mut world, "alice");
    present(&mut world, alice, "bob");
    assert!(said(&world, alice).refused.contains("connect anew"));
    let hello = |proof| Hello {
        session: SessionId(7),
        ..by(proof)
    };
    let alice = world.connect_as(Peer::default(), hello("alice"));
    let bob = world.connect_as(Peer::default(), hello("bob"));
    assert!(
        world
            .error(bob, 0)
            .unwrap()
            .message
            .contains("is another's")
    );
    assert!(is_in(&world, alice));
    let again = world.connect_as(Peer::default(), hello("alice"));
    assert!(is_in(&world, again) && !is_in(&world, alice));
}

#[test]
fn a_person_or_one_credential_of_theirs_is_revoked() {
    let mut scene = Scene::new();
    let mut world = scene.ground.start();
    let revoke = |world: &mut World, ids: &[TokenId]| {
        let trust = Trust {
            keys: vec![issuer().public()],
            revoked: ids.iter().copied().collect(),
        };
        world.input(Input::Access(AccessChange::Trust(Arc::new(trust))));
    };
    let alice = come(&mut world, "alice");
    let bob = come(&mut world, "bob");
    let ids = issued("alice").ids(b"alice");
    revoke(&mut world, &ids[1..]);
    assert!(!is_in(&world, alice) && is_in(&world, bob));
    let again = come(&mut world, "alice");
    let error = world.error(again, 0).unwrap();
    assert!(error.message.contains("was revoked"), "{error}");
    revoke(&mut world, &[]);
    let alice = come(&mut world, "alice");
    assert!(is_in(&world, alice));
    // Also while it is looked at, and on a connection that stands.
    world.hold_jobs = true;
    let late = come(&mut world, "alice");
    revoke(&mut world, &ids[..1]);
    world.release_jobs();
    assert!(!is_in(&world, alice) && !is_in(&world, late));
}

/// Returns whether somebody is let in by what an issuer said that is not believed any more.
fn outdated(mut scene: Scene) -> bool {
    let mut world = scene.ground.start();
    let stands = come(&mut world, "alice");
    let owner = world.connect();
    world.hold_jobs = true;
    let waits = come(&mut world, "alice");
    world.input(changed(&[]));
    assert!(is_in(&world, stands), "an issuer more changes nothing");
    world.input(changed(&["another"]));
    assert!(is_in(&world, stands));
    world.input(changed(&["issuer"]));
    assert!(!is_in(&world, stands) && is_in(&world, owner));
    let error = world.error(stands, 0).unwrap();
    assert!(error.retryable, "{error}");
    let asked = scene.oracle.0.lock().unwrap().asked;
    world.release_jobs();
    assert!(is_in(&world, waits));
    // It was looked at once more, by who is believed now.
    scene.oracle.0.lock().unwrap().asked == asked + 1
}

#[test]
fn who_was_let_in_by_an_issuer_that_has_changed_comes_anew() {
    assert!(!outdated(Scene::new()));
    assert!(
        outdated(Scene::with(Fault::OutdatedIssuers)),
        "the fault is noticed"
    );
}

#[test]
fn what_was_issued_is_renewed_on_the_connection_that_stands() {
    let mut scene = Scene::new();
    let mut world = scene.ground.start();
    let alice = come(&mut world, "alice");
    world.live(&[alice], 5 * MINUTE);
    present(&mut world, alice, "alice");
    assert_eq!(said(&world, alice).expires_in_ms, 600_000);
    assert_eq!(count(&world, "renew"), 1);
    // The same, for as long, is nothing new.
    present(&mut world, alice, "alice");
    assert_eq!(count(&world, "renew"), 1);
    // While one is looked at, another one is not, and that is no refusal.
    world.hold_jobs = true;
    let asked = scene.oracle.0.lock().unwrap().asked;
    present(&mut world, alice, "alice");
    present(&mut world, alice, "alice");
    let left = said(&world, alice);
    assert_eq!((left.refused.as_str(), left.expires_in_ms), ("", 600_000));
    world.release_jobs();
    assert_eq!(said(&world, alice).refused, "");
    assert_eq!(scene.oracle.0.lock().unwrap().asked, asked + 1);
    // What cannot be looked at leaves what there is.
    scene.fail(unknown());
    present(&mut world, alice, "alice");
    let left = said(&world, alice);
    assert_eq!((left.refused.as_str(), left.expires_in_ms), ("", 600_000));
    // What counts no more is refused, and so is what allows something else.
    let wrong = ErrorReply::fatal(ErrorCode::NotAuthenticated, "not active");
    scene.fail(Some(wrong));
    present(&mut world, alice, "alice");
    assert_eq!(said(&world, alice).refused, "not active");
    scene.fail(None);
    scene.say(|said| said.verbs = Verbs::from_iter([Verb::Read]));
    present(&mut world, alice, "alice");
    assert!(said(&world, alice).refused.contains("connect anew"));
    assert!(world.links[&alice].closed.is_none());
}

#[test]
fn one_that_is_over_is_renewed_in_the_grace_or_the_connection_ends() {
    let mut scene = Scene::new();
    let mut world = scene.ground.start();
    scene.say(|said| said.life = MINUTE);
    let (alice, bob) = (come(&mut world, "alice"), come(&mut world, "bob"));
    world.live(&[alice, bob], MINUTE + SECOND);
    assert_eq!(said(&world, alice).expires_in_ms, 0);
    // The old one once more changes nothing.
    let expired = ErrorReply::retryable(ErrorCode::CredentialExpired, 1000, "expired at noon");
    scene.fail(Some(expired));
    present(&mut world, alice, "alice");
    assert_eq!(said(&world, alice).refused, "");
    scene.fail(None);
    present(&mut world, alice, "alice");
    assert_eq!(said(&world, alice).expires_in_ms, 60_000);
    world.live(&[alice, bob], MINUTE - SECOND / 2);
    assert!(is_in(&world, alice) && !is_in(&world, bob));
    let error = world.error(bob, 0).unwrap();
    assert_eq!(error.code, ErrorCode::CredentialExpired);
    assert!(error.message.contains("put a newer one"), "{error}");
}
