//! Dead letters: written once, with all that the event had.

use super::farm::{back, done, member, reject};
use super::harness::*;
use super::produce::{expose, external, pattern, produce_external, read_whole};
use std::time::Duration;
use wire::message::*;
use wire::*;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

#[test]
fn what_is_rejected_or_delivered_too_often_is_a_dead_letter() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let join = Join {
        options: r#"{"deliveries_max":2}"#.into(),
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    world.fill(link, topic, 0, 3, 3);
    let given = world.given(link, id);
    let settlements = vec![
        reject(given[0].lease, "no such detector"),
        back(given[1].lease, 0),
        done(given[2].lease),
    ];
    assert!(world.settled(link, topic, (1, 1), settlements).is_empty());
    let again = world.given(link, id).pop().unwrap();
    assert_eq!((again.text.as_str(), again.lease.deliveries), ("1", 2));
    world.live(&[link], LEASE + SECOND);
    let letters = world.dead_letters(link);
    let texts: Vec<_> = letters.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(texts, ["0", "1"]);
    let headers = &letters[0].1;
    assert_eq!(headers["thalweg.topic"], "t");
    assert_eq!(headers["thalweg.queue"], "q");
    assert_eq!(headers["thalweg.partition"], "0");
    assert_eq!(headers["thalweg.incarnation"], "1");
    assert_eq!(headers["thalweg.offset"], "0");
    assert_eq!(headers["thalweg.deliveries"], "1");
    assert_eq!(headers["thalweg.reason"], "no such detector");
    let headers = &letters[1].1;
    assert_eq!(headers["thalweg.deliveries"], "2");
    assert!(headers["thalweg.reason"].contains("expired"));
    let queue = world.queue(link, topic);
    assert_eq!((queue.position.offset, queue.dead), (Offset(3), 0));
}

#[test]
fn dead_letters_wait_for_their_topic() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let id = world.joined(link, topic, &member(1));
    world.fill(link, topic, 0, 2, 2);
    let given = world.given(link, id);
    let name = TopicName {
        name: "t.dead".into(),
    };
    world
        .call::<Empty>(link, Method::DeleteTopic, TopicId(0), &name)
        .unwrap();
    let both = given.iter().map(|given| reject(given.lease, "bad"));
    let both = both.collect();
    assert!(world.settled(link, topic, (1, 1), both).is_empty());
    world.pass(SECOND * 5);
    assert_eq!(world.queue(link, topic).dead, 2);
    let said = world
        .lines
        .iter()
        .filter(|line| line.contains("dead letters"));
    assert_eq!(said.count(), 1, "{:?}", world.lines);
    world.create(link, "t.dead", "{}", &["disk"]).unwrap();
    world.pass(SECOND * 2);
    assert_eq!(world.dead_letters(link).len(), 2);
    assert_eq!(world.queue(link, topic).position.offset, Offset(2));
}

/// A queue that was deleted and made anew counts its dead letters from the beginning: they are no
/// duplicates of those of its predecessor.
#[test]
fn dead_letters_of_a_queue_made_anew_are_no_duplicates() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    for (round, text) in ["0", "1"].into_iter().enumerate() {
        let join = Join {
            start: Start::Latest,
            ..member(1)
        };
        let id = world.joined(link, topic, &join);
        world.fill(link, topic, round as u64, round as u64 + 1, 1);
        let given = world.given(link, id);
        assert_eq!(given[0].text, text);
        let settlement = vec![reject(given[0].lease, "bad")];
        assert!(world.settled(link, topic, (1, 1), settlement).is_empty());
        let letters = world.dead_letters(link);
        assert_eq!(letters.len(), round + 1);
        assert_eq!(letters[round].0, text);
        world.end_queue(link, topic, 1);
    }
}

/// The server is killed at every disk operation on the way of a dead letter.
#[test]
fn a_dead_letter_is_written_once_across_a_crash() {
    dead_letters_across_a_crash(false);
    dead_letters_across_a_crash(true);
}

fn dead_letters_across_a_crash(large: bool) {
    let data = pattern(wire::frame::BULK_CHUNK_BYTES + 777, 3);
    for operations in 0.. {
        let mut ground = Ground::new();
        let mut world = ground.start();
        let link = world.connect();
        let topic = world.farm(link);
        let id = world.joined(
            link,
            topic,
            &Join {
                prefetch_bytes: 1 << 30,
                ..member(1)
            },
        );
        if large {
            let region = expose(&mut world, link, "r", data.clone());
            let events = [external("0", &data)];
            produce_external(&mut world, link, topic, 0, &events, vec![region]);
        } else {
            world.fill(link, topic, 0, 1, 1);
        }
        world.fill(link, topic, 1, 2, 1);
        let given = world.given(link, id);
        world.hold_disk = true;
        let both = given.iter().map(|given| reject(given.lease, "bad"));
        let settle = world.send_settle(link, topic, (1, 1), both.collect());
        let mut carried_out = 0;
        while carried_out < operations && world.held_operation_count() > 0 {
            world.release_operation(0);
            carried_out += 1;
        }
        let confirmed = world.answer(link, settle).is_some();
        let idle = world.held_operation_count() == 0;
        ground.kill();
        let mut world = ground.start();
        let link = world.connect();
        world.pass(SECOND * 2);
        let letters = world.dead_letters(link);
        if confirmed || !letters.is_empty() {
            assert_eq!(letters.len(), 2, "after {operations} operations");
            assert_eq!(world.queue(link, topic).position.offset, Offset(2));
            if large {
                let dead = world.describe(link, "t.dead").unwrap().topic;
                let (read, _) = read_whole(&mut world, link, dead, 0, data.len() as u64);
                assert!(read == data, "after {operations} operations");
            }
        }
        if idle {
            assert!(confirmed && operations > 3);
            break;
        }
    }
}

#[test]
fn a_dead_letter_takes_its_data_along() {
    for kind in ["disk", "memory"] {
        let mut ground = Ground::new();
        let mut world = ground.start();
        let link = world.connect();
        // Blocks of another length than those of the topic.
        let definition = r#"{"data_block_bytes":512}"#;
        let dead = world.create(link, "t.dead", definition, &[kind]).unwrap();
        let topic = world.topic(link);
        let id = world.joined(
            link,
            topic,
            &Join {
                prefetch_bytes: 1 << 30,
                ..member(1)
            },
        );
        let data = pattern(3 * wire::frame::BULK_CHUNK_BYTES + 777, 3);
        let region = expose(&mut world, link, "r", data.clone());
        let events = [external("0", &data)];
        let produced = produce_external(&mut world, link, topic, 0, &events, vec![region]);
        world.answered::<Produced>(link, produced).unwrap();
        let lease = world.given(link, id)[0].lease;
        let refused = world.settled(link, topic, (1, 1), vec![reject(lease, "bad")]);
        assert!(refused.is_empty());
        assert_eq!(world.queue(link, topic).position.offset, Offset(1));
        assert_eq!(world.dead_letters(link).len(), 1);
        let (read, _) = read_whole(&mut world, link, dead.topic, 0, data.len() as u64);
        assert!(read == data, "{kind}");
    }
}
