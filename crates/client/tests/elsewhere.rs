//! Topics that are at other servers than the one that the endpoint names: found by what is said of them, and followed.

use crate::fake::FakeServer;
use crate::reading::{MINUTE, P0, SECOND, fill, number, open, pull, pull_all};
use crate::world::{World, options};

use bytes::Bytes;
use client::*;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::message::Method;
use wire::{ErrorCode, ErrorReply};

/// The topic `events`, of the second server, at which it was made.
fn topic_of_another(partitions: usize) -> (World, TopicHandle) {
    let mut world = World::new();
    let other = world.another("second");
    let topic = world.topic(partitions);
    world.move_away("events", other, "second");
    (world, topic)
}

fn numbers(server: &mut FakeServer) -> Vec<usize> {
    let events = &server.partition("events", 0).events;
    let texts = events
        .iter()
        .map(|event| std::str::from_utf8(&event.metadata).unwrap());
    texts.map(|text| text.parse().unwrap()).collect()
}

#[test]
fn a_topic_that_another_server_has_is_opened_written_and_read_there() {
    let (mut world, topic) = topic_of_another(1);
    drop(topic);
    let opened = world.driver.begin_open_topic("events");
    let topic = world.wait(opened).unwrap();
    let before = world.server.messages;
    fill(&mut world, &topic, 0..10, 3, 0);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    assert_eq!(
        pull_all(&mut world, &consumer, 10),
        (0..10).collect::<Vec<_>>()
    );
    consumer
        .acknowledge(EventId {
            partition: P0,
            incarnation: Incarnation(1),
            offset: Offset(9),
        })
        .unwrap();
    let flush = consumer.begin_flush_acknowledgements(SECOND);
    world.wait(flush).unwrap();
    let cursors = &world.others[0].topics["events"].cursors;
    assert_eq!(cursors[&("reader".into(), 0)].offset.0, 10);
    assert_eq!(world.server.messages, before, "the first one is not asked");
    assert_eq!(world.core.node_count(), 2);
}

#[test]
fn what_was_opened_before_a_topic_moved_goes_on_at_its_new_place_in_order_and_once() {
    for moved_at in [1, 7, 20, 39] {
        let mut world = World::new();
        let other = world.another("second");
        let topic = world.topic(1);
        let consumer = open(&mut world, &topic, ConsumerOptions::default());
        let batch = BatchPolicy {
            count_max: Some(3),
            ..BatchPolicy::default()
        };
        let producer = topic.begin_producer(ProducerOptions {
            batch,
            ..ProducerOptions::default()
        });
        let producer = world.wait(producer).unwrap();
        let mut futures = Vec::new();
        for index in 0..40 {
            if index == moved_at {
                world.move_away("events", other, "second");
            }
            futures.push(
                producer
                    .push_metadata(index.to_string().as_bytes())
                    .unwrap(),
            );
            // Batches are under way when the topic moves.
            if index % 5 == 0 {
                world.settle();
            }
        }
        let flush = producer.flush_future();
        assert!(world.run_until(MINUTE, |_| flush.try_get().is_some()));
        flush.try_get().unwrap().unwrap();
        let expected: Vec<usize> = (0..40).collect();
        assert_eq!(
            numbers(&mut world.others[other]),
            expected,
            "moved at {moved_at}"
        );
        assert_eq!(
            pull_all(&mut world, &consumer, 40),
            expected,
            "moved at {moved_at}"
        );
        for (index, future) in futures.iter().enumerate() {
            let id = future.try_get().unwrap().unwrap();
            assert_eq!(id.offset.0, index as u64, "moved at {moved_at}");
        }
    }
}

/// A run whose topic moves while batches are under way. Gives what the new place has.
fn moved_while_pushed() -> Vec<usize> {
    let mut world = World::new();
    let other = world.another("second");
    let topic = world.topic(1);
    // What it reads ends first, so that it hears of the move before the batch is answered.
    let _consumer = open(&mut world, &topic, ConsumerOptions::default());
    let producer = topic.begin_producer(ProducerOptions::default());
    let producer = world.wait(producer).unwrap();
    producer.push_metadata(b"0").unwrap();
    world.settle();
    world.server.is_late = true;
    producer.push_metadata(b"1").unwrap();
    world.settle();
    world.move_away("events", other, "second");
    world.settle();
    world.server.is_late = false;
    producer.push_metadata(b"2").unwrap();
    let flush = producer.flush_future();
    world.run_until(MINUTE, |_| flush.try_get().is_some());
    numbers(&mut world.others[other])
}

#[test]
fn what_is_under_way_when_a_topic_moves_is_stored_at_its_new_place() {
    assert_eq!(moved_while_pushed(), [0, 1, 2]);
}

#[cfg(feature = "testing")]
#[test]
fn a_client_that_leaves_behind_what_it_sent_is_noticed() {
    plant(Some(Fault::LeavesBehind));
    let lost = moved_while_pushed();
    plant(None);
    assert_ne!(lost, [0, 1, 2]);
}

#[test]
fn a_topic_that_comes_back_is_followed_back() {
    let (mut world, topic) = topic_of_another(1);
    fill(&mut world, &topic, 0..5, 2, 0);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    assert_eq!(pull_all(&mut world, &consumer, 5), [0, 1, 2, 3, 4]);
    world.others[0].move_topic("events", &mut world.server, "sim://server");
    fill(&mut world, &topic, 5..9, 2, 0);
    assert_eq!(pull_all(&mut world, &consumer, 4), [5, 6, 7, 8]);
    assert_eq!(numbers(&mut world.server), (0..9).collect::<Vec<_>>());
    assert_eq!(world.core.node_count(), 2);
}

/// Its members join where it is; what is settled is settled there.
#[test]
fn a_queue_is_worked_on_where_its_topic_is() {
    let (mut world, topic) = topic_of_another(2);
    fill(&mut world, &topic, 0..6, 2, 0);
    // Its dead letters lie beside it.
    let second = world.others[0].hint("sim://second");
    let dead = ("events.dead".to_owned(), (TopicId(0xdead), second));
    world.server.elsewhere.extend([dead]);
    let joined = topic.begin_queue("work", QueueConsumerOptions::default());
    let queue = world.wait(joined).unwrap();
    let mut seen = Vec::new();
    for _ in 0..6 {
        let mut event = None;
        let patience = Patience::within(None);
        assert!(world.run_until(MINUTE, |_| {
            if let Ok(Pulled::Events(mut events)) = queue.pull_look(1, &patience, Duration::ZERO) {
                event = events.pop();
            }
            event.is_some()
        }));
        let event = event.unwrap();
        seen.push(std::str::from_utf8(event.metadata()).unwrap().to_owned());
        let settled = event.acknowledge();
        assert!(world.run_until(MINUTE, |_| settled.try_get().is_some()));
        settled.try_get().unwrap().unwrap();
    }
    seen.sort();
    assert_eq!(seen, ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(world.server.requests(Method::Settle), 0);
}

#[test]
fn a_server_that_is_lost_is_of_no_matter_to_the_topics_of_others() {
    let mut world = World::new();
    let other = world.another("second");
    let away = world.topic(1);
    world.move_away("events", other, "second");
    fill(&mut world, &away, 0..1, 1, 0);
    let definition = Definition::default();
    let storage = PartitionStorage {
        kind: "memory".into(),
        config: String::new(),
    };
    let here = world
        .driver
        .begin_create_topic("here", &definition, &[storage]);
    let here = world.wait(here).unwrap();
    let connections = world.core.attempt();
    world.others[other].is_silent = true;
    let late = away.begin_producer(ProducerOptions {
        ack_timeout: MINUTE,
        ..ProducerOptions::default()
    });
    fill(&mut world, &here, 0..20, 4, 0);
    assert_eq!(world.server.partition("here", 0).events.len(), 20);
    // Until the silence of the other is noticed, and for a while longer.
    world.run_until(MINUTE, |_| false);
    fill(&mut world, &here, 20..40, 4, 0);
    assert_eq!(world.core.attempt(), connections, "its connection stands");
    drop(late);
    world.others[other].is_silent = false;
    fill(&mut world, &away, 1..3, 1, 0);
    assert_eq!(numbers(&mut world.others[other]), [0, 1, 2]);
}

/// Each says that the other has it: who asks is not kept busy, and hears of it at the deadline.
#[test]
fn servers_that_each_name_the_other_are_asked_a_few_times_a_second() {
    let rate = asked_a_second();
    assert!(rate < 200, "{rate} requests a second");
}

#[cfg(feature = "testing")]
#[test]
fn a_client_that_goes_from_one_to_the_other_without_end_is_noticed() {
    plant(Some(Fault::EndlessHops));
    let rate = asked_a_second();
    plant(None);
    assert!(rate > 200, "{rate} requests a second");
}

/// How often the first of two such servers is asked.
fn asked_a_second() -> u64 {
    let mut world = World::new();
    let other = world.another("second");
    let topic = world.topic(1);
    world.move_away("events", other, "second");
    let id = world.others[other].topics["events"].id;
    let back = world.server.hint("sim://server");
    world.others[other]
        .elsewhere
        .insert("events".to_owned(), (id, back));
    let start = world.now();
    let opened = world.driver.begin_open_topic("events");
    assert!(world.wait(opened).is_err(), "nobody has it");
    let producer = topic.begin_producer(ProducerOptions {
        ack_timeout: Duration::from_secs(10),
        ..ProducerOptions::default()
    });
    assert!(world.wait(producer).is_err());
    let seconds = (world.now() - start).as_secs();
    let asked =
        world.server.requests(Method::DescribeTopic) + world.server.requests(Method::OpenProducer);
    asked / (seconds + 1)
}

#[test]
fn what_no_hint_names_is_asked_again_where_it_was_asked() {
    let mut world = World::new();
    let topic = world.topic(1);
    for hint in ["", "#", "nonsense", "sim://second"] {
        let error = ErrorReply {
            leader_hint: hint.to_owned(),
            ..ErrorReply::retryable(ErrorCode::NotLeader, 0, "it is being moved")
        };
        world.server.refuse(Method::OpenProducer, error);
        fill(&mut world, &topic, 0..1, 1, 0);
    }
    assert_eq!(world.core.node_count(), 1);
    assert_eq!(world.server.partition("events", 0).events.len(), 4);
}

/// What is presented to the first server is presented to those that it names, and what was not encrypted on the way to
/// it by nothing else.
#[test]
fn another_server_is_shown_the_same_token() {
    let token = Bytes::from_static(b"0123456789abcdef0123456789abcdef");
    let endpoint = Endpoint::Address {
        address: "sim://server".into(),
        token: Some(token.clone()),
        directory: None,
    };
    let mut world = World::at(endpoint, options());
    let other = world.another("second");
    let topic = world.topic(1);
    world.others[other].token = Some(token);
    world.move_away("events", other, "second");
    fill(&mut world, &topic, 0..1, 1, 0);
    assert_eq!(numbers(&mut world.others[other]), [0]);
}

/// A topic whose server leads from TLS to one without it, at `tcp://second`.
fn led_out_of_tls() -> (World, TopicHandle) {
    let mut world = World::at(Endpoint::address("tls://server?sha256=ab"), options());
    let other = world.another("second");
    let topic = world.topic(1);
    world
        .server
        .move_topic("events", &mut world.others[other], "tcp://second");
    let producer = topic.begin_producer(ProducerOptions::default());
    world.run_until(MINUTE, |world| world.core.node_count() > 1);
    drop(producer);
    (world, topic)
}

#[test]
fn a_hint_that_leaves_encryption_is_not_followed() {
    let (mut world, topic) = led_out_of_tls();
    assert_eq!(world.core.node_count(), 1);
    assert!(world.others[0].presented.is_empty());
    let encrypted = world.others[0].hint("tls://second");
    world
        .server
        .elsewhere
        .insert("events".into(), (topic.id(), encrypted));
    fill(&mut world, &topic, 0..1, 1, 0);
    assert_eq!(world.core.node_count(), 2);
}

#[cfg(feature = "testing")]
#[test]
fn a_client_that_follows_any_hint_is_noticed() {
    plant(Some(Fault::AnyHint));
    let (world, _topic) = led_out_of_tls();
    plant(None);
    assert_eq!(world.core.node_count(), 2);
}

#[test]
fn closing_ends_what_waits_at_all_servers() {
    let (mut world, topic) = topic_of_another(1);
    fill(&mut world, &topic, 0..1, 1, 0);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    assert_eq!(number(&pull(&mut world, &consumer).unwrap().unwrap()), 0);
    world.others[0].is_silent = true;
    let call = topic.begin_refresh();
    world.settle();
    let _ = world.driver.close(Duration::ZERO);
    world.settle();
    assert!(world.ended);
    assert!(matches!(world.wait(call), Err(ClientError::Closed)));
    world.run_until(SECOND, |_| false);
    assert!(!world.others[0].has_connections());
}

/// What the program asks for in one go is asked for, though the last of it is that the client ends.
#[test]
fn what_was_asked_for_before_the_end_is_sent_before_it() {
    let (mut world, topic) = topic_of_another(1);
    fill(&mut world, &topic, 0..1, 1, 0);
    let counters = world.driver.counters();
    let sent = || counters.frames_sent.load(Ordering::Relaxed);
    let before = sent();
    let here = world.driver.begin_describe_topic("here");
    let there = topic.begin_describe_consumers("reader");
    let _ = world.driver.close(Duration::ZERO);
    let late = world.driver.begin_describe_topic("late");
    world.settle();
    assert!(world.ended);
    assert_eq!(sent() - before, 2, "one to each server");
    assert!(matches!(world.wait(here), Err(ClientError::Closed)));
    assert!(matches!(world.wait(there), Err(ClientError::Closed)));
    assert!(matches!(world.wait(late), Err(ClientError::Closed)));
}

#[test]
fn several_producers_that_are_opened_at_once_are_all_where_their_topic_is() {
    let (mut world, topic) = topic_of_another(1);
    fill(&mut world, &topic, 0..1, 1, 0);
    let opened: Vec<_> = (0..3)
        .map(|_| topic.begin_producer(ProducerOptions::default()))
        .collect();
    let producers: Vec<_> = opened
        .into_iter()
        .map(|opened| world.wait(opened).unwrap())
        .collect();
    for (index, producer) in producers.iter().enumerate() {
        let text = (index + 1).to_string();
        producer.push_metadata(text.as_bytes()).unwrap();
        let flush = producer.flush_future();
        world.run_until(MINUTE, |_| flush.try_get().is_some());
        flush.try_get().expect("it was sent").unwrap();
    }
    assert_eq!(numbers(&mut world.others[0]), [0, 1, 2, 3]);
}

#[test]
fn a_server_that_lets_nobody_in_is_named_with_the_reason() {
    let mut world = World::new();
    let other = world.another("second");
    let topic = world.topic(1);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    world.others[other].token = Some(Bytes::from_static(b"another one's"));
    world.move_away("events", other, "second");
    let error = pull(&mut world, &consumer).unwrap_err().to_string();
    assert!(error.contains("not this one (at sim://second)"), "{error}");
    let producer = topic.begin_producer(ProducerOptions::default());
    let error = world.wait(producer).unwrap_err().to_string();
    assert!(error.contains("not this one (at sim://second)"), "{error}");
    // It is tried on.
    world.others[other].token = None;
    world.run_until(MINUTE, |_| false);
    fill(&mut world, &topic, 0..1, 1, 0);
    assert_eq!(pull_all(&mut world, &consumer, 1), [0]);
    // Once it has let the client in, that it is lost is no reason to give up.
    world.others[other].is_silent = true;
    world.others[other].cut();
    assert!(pull(&mut world, &consumer).unwrap().is_none());
}

/// Of a topic that moves, the others at its new place are not asked about.
#[test]
fn a_topic_that_moves_is_looked_up_and_no_other_one() {
    let mut world = World::new();
    let other = world.another("second");
    let definition = Definition::default();
    let mut open_topics = Vec::new();
    for name in ["a", "b", "c", "events"] {
        let storage = PartitionStorage {
            kind: "memory".into(),
            config: String::new(),
        };
        let made = world
            .driver
            .begin_create_topic(name, &definition, &[storage]);
        let topic = world.wait(made).unwrap();
        let producer = topic.begin_producer(ProducerOptions::default());
        open_topics.push((world.wait(producer).unwrap(), topic));
    }
    let mut asked = 0;
    for (name, (producer, _)) in ["a", "b", "c", "events"].iter().zip(&open_topics) {
        world.move_away(name, other, "second");
        asked = world.others[other].requests(Method::DescribeTopic);
        producer.push_metadata(b"0").unwrap();
        let flush = producer.flush_future();
        assert!(world.run_until(SECOND, |_| flush.try_get().is_some()));
        flush.try_get().unwrap().unwrap();
    }
    assert_eq!(
        world.others[other].requests(Method::DescribeTopic),
        asked + 1
    );
}

/// A topic goes away and comes back while what was asked before is not answered: the answer is of before.
#[test]
fn what_is_answered_late_is_no_answer_to_what_was_asked_since() {
    let mut world = World::new();
    let other = world.another("second");
    let topic = world.topic(1);
    // What it reads ends when the topic moves: by that the client hears of it.
    let _consumer = open(&mut world, &topic, ConsumerOptions::default());
    world.server.is_late = true;
    let before = ErrorReply::fatal(ErrorCode::NotAuthorized, "it was so");
    world.server.refuse(Method::OpenProducer, before);
    let producer = topic.begin_producer(ProducerOptions::default());
    world.settle();
    world.move_away("events", other, "second");
    world.others[other].move_topic("events", &mut world.server, "sim://server");
    world.run_until(SECOND, |_| false);
    assert_eq!(world.core.node_count(), 2, "it was there");
    world.server.is_late = false;
    let producer = world.wait(producer).unwrap();
    assert_eq!(world.server.requests(Method::OpenProducer), 2);
    drop(producer);
}

#[test]
fn a_call_that_was_sent_on_and_not_answered_says_what_it_was_refused_with() {
    let mut world = World::new();
    let other = world.another("second");
    let topic = world.topic(1);
    world.move_away("events", other, "second");
    drop(topic);
    world.others[other].is_silent = true;
    let opened = world.driver.begin_open_topic("events");
    let error = world.wait(opened).unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    assert!(
        error.to_string().contains("another server has it"),
        "{error}"
    );
}

/// A topic of the second server's, which dies and whose topic a third one takes over.
fn taken_over() -> (World, TopicHandle, Producer, Consumer) {
    let mut world = World::new();
    let second = world.another("second");
    world.another("third");
    let topic = world.topic(1);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    let producer = topic.begin_producer(ProducerOptions {
        ack_timeout: 10 * MINUTE,
        ..ProducerOptions::default()
    });
    let producer = world.wait(producer).unwrap();
    world.move_away("events", second, "second");
    for number in 0..3 {
        let flush = push(&mut world, &producer, number);
        assert!(world.run_until(MINUTE, |_| flush.try_get().is_some()));
        flush.try_get().unwrap().unwrap();
    }
    assert_eq!(pull_all(&mut world, &consumer, 3), [0, 1, 2]);
    world.others[second].is_silent = true;
    world.others[second].cut();
    (world, topic, producer, consumer)
}

fn push(world: &mut World, producer: &Producer, number: usize) -> FlushFuture {
    producer
        .push_metadata(number.to_string().as_bytes())
        .unwrap();
    world.settle();
    producer.flush_future()
}

/// The third server takes over the topic, as the first one knows.
fn to_third(world: &mut World, topic: &TopicHandle) {
    let (second, third) = world.others.split_at_mut(1);
    second[0].move_topic("events", &mut third[0], "sim://third");
    let hint = third[0].hint("sim://third");
    world
        .server
        .elsewhere
        .insert("events".into(), (topic.id(), hint));
}

#[test]
fn a_topic_of_a_server_that_died_is_found_where_it_is_now() {
    let (mut world, topic, producer, consumer) = taken_over();
    let flush = push(&mut world, &producer, 3);
    let refreshed = topic.begin_refresh();
    let opened = world.driver.begin_open_topic("events");
    // The calls are led to the server that has died.
    world.run_until(SECOND, |_| false);
    to_third(&mut world, &topic);
    assert!(world.run_until(MINUTE, |_| flush.try_get().is_some()));
    flush.try_get().unwrap().unwrap();
    world.wait(refreshed).unwrap();
    world.wait(opened).unwrap();
    assert_eq!(numbers(&mut world.others[1]), [0, 1, 2, 3]);
    assert_eq!(pull_all(&mut world, &consumer, 1), [3]);
    let asked = world.server.requests(Method::OpenProducer);
    world.run_until(5 * MINUTE, |_| false);
    assert_eq!(world.server.requests(Method::OpenProducer), asked, "once");
}

/// Its server may have ended a moment later, before the client had heard of it.
#[test]
fn a_topic_that_has_moved_is_found_soon_after_its_server_has_ended() {
    let (mut world, topic, producer, consumer) = taken_over();
    to_third(&mut world, &topic);
    let flush = push(&mut world, &producer, 3);
    // Long before the connect timeout, of ten seconds.
    assert!(world.run_until(3 * SECOND, |_| flush.try_get().is_some()));
    flush.try_get().unwrap().unwrap();
    assert_eq!(numbers(&mut world.others[1]), [0, 1, 2, 3]);
    assert_eq!(pull_all(&mut world, &consumer, 1), [3]);
}

/// Or to the server that is asked.
#[test]
fn a_topic_that_has_moved_to_the_first_server_is_found_there() {
    let (mut world, _topic, producer, consumer) = taken_over();
    let World { server, others, .. } = &mut world;
    server.elsewhere.clear();
    others[0].move_topic("events", server, "sim://server");
    let flush = push(&mut world, &producer, 3);
    assert!(world.run_until(3 * SECOND, |_| flush.try_get().is_some()));
    flush.try_get().unwrap().unwrap();
    assert_eq!(numbers(&mut world.server), [0, 1, 2, 3]);
    assert_eq!(pull_all(&mut world, &consumer, 1), [3]);
}

/// As long as the first server knows of no other place, what is there waits, and the first one is left in peace.
#[test]
fn a_server_that_died_and_comes_back_is_asked_about_now_and_then() {
    let (mut world, _topic, producer, consumer) = taken_over();
    let count = |world: &World| {
        let of = |method| world.server.requests(method);
        (of(Method::OpenProducer), of(Method::DescribeTopic))
    };
    let before = count(&world);
    let flush = push(&mut world, &producer, 3);
    world.run_until(5 * MINUTE, |_| false);
    let (opened, described) = count(&world);
    // It stays where it is.
    assert_eq!(opened, before.0);
    // Once in the connect timeout, of ten seconds, and a few times before.
    let described = described - before.1;
    assert!((1..=35).contains(&described), "{described} times");
    world.others[0].is_silent = false;
    assert!(world.run_until(MINUTE, |_| flush.try_get().is_some()));
    flush.try_get().unwrap().unwrap();
    assert_eq!(numbers(&mut world.others[0]), [0, 1, 2, 3]);
    assert_eq!(pull_all(&mut world, &consumer, 1), [3]);
}

/// While the first server is away as well, nothing is looked for: the one that comes back is the one that goes on.
#[test]
fn a_server_that_comes_back_before_the_first_one_goes_on_with_its_topics() {
    let (mut world, _topic, producer, consumer) = taken_over();
    world.server.is_silent = true;
    world.server.cut();
    world.settle();
    let flush = push(&mut world, &producer, 3);
    world.run_until(2 * MINUTE, |_| false);
    world.others[0].is_silent = false;
    assert!(world.run_until(MINUTE, |_| flush.try_get().is_some()));
    flush.try_get().unwrap().unwrap();
    assert_eq!(numbers(&mut world.others[0]), [0, 1, 2, 3]);
    assert_eq!(pull_all(&mut world, &consumer, 1), [3]);
}
