//! Consumers of queues against a scripted server, in one thread, under a
//! virtual clock: leases, settlements, reconnects, expulsion.

use crate::fake;
use crate::reading;
use crate::world;

use client::*;
use fake::{FakeQueue, Fate};
use reading::{MINUTE, SECOND, fill, number};
use std::sync::Arc;
use std::time::Duration;
use wire::ErrorCode;
use wire::message::{Method, SettleAs};
use world::World;

fn join(world: &mut World, topic: &TopicHandle, options: QueueConsumerOptions) -> QueueConsumer {
    let pending = topic.begin_queue("work", options);
    world.wait(pending).unwrap()
}

fn queue(world: &mut World) -> &mut FakeQueue {
    world.server.topics.get_mut("events").unwrap().queue("work")
}

fn pull(world: &mut World, consumer: &QueueConsumer) -> Result<Option<QueueEvent>, ClientError> {
    let mut outcome = Ok(None);
    let patience = Patience::within(None);
    world.run_until(MINUTE, |_| {
        outcome = match consumer.pull_look(1, &patience, Duration::ZERO) {
            Ok(Pulled::Events(mut events)) => Ok(events.pop()),
            Ok(Pulled::Nothing | Pulled::NotYet) => Ok(None),
            Err(error) => Err(error),
        };
        !matches!(outcome, Ok(None))
    });
    outcome
}

fn settled(world: &mut World, future: &SettleFuture) -> Result<(), ClientError> {
    assert!(world.run_until(MINUTE, |_| future.try_get().is_some()));
    future.try_get().unwrap()
}

fn close(world: &mut World, consumer: QueueConsumer) {
    let pending = consumer.begin_close();
    world.wait(pending).unwrap();
}

fn is_expired(result: &Result<(), ClientError>) -> bool {
    matches!(result, Err(error) if error.code() == Some(ErrorCode::LeaseExpired))
}

#[test]
fn a_connection_lost_at_any_message_neither_loses_nor_doubles_a_settlement() {
    const EVENTS: usize = 30;
    for cut_at in 1..=14 {
        for behind in [false, true] {
            for restart in [false, true] {
                let mut world = World::new();
                let topic = world.topic(2);
                fill(&mut world, &topic, 0..EVENTS, 4, 0);
                let from = world.server.messages + cut_at;
                let cuts = match behind {
                    true => &mut world.server.cut_behind,
                    false => &mut world.server.cut_before,
                };
                cuts.insert(from);
                cuts.insert(from + 3);
                cuts.insert(from + 5);
                let options = QueueConsumerOptions {
                    prefetch_events: 7,
                    ..QueueConsumerOptions::default()
                };
                let consumer = join(&mut world, &topic, options);
                let mut seen = Vec::new();
                let mut futures = Vec::new();
                while seen.len() < EVENTS {
                    let event = pull(&mut world, &consumer).unwrap().expect("an event");
                    assert_eq!(event.deliveries(), 1, "cut at {cut_at}, behind: {behind}");
                    seen.push(number(&event));
                    futures.push(event.acknowledge());
                    if restart {
                        queue(&mut world).restart();
                    }
                }
                seen.sort_unstable();
                assert_eq!(seen, (0..EVENTS).collect::<Vec<_>>());
                for future in &futures {
                    settled(&mut world, future).unwrap();
                }
                assert_eq!(
                    queue(&mut world).count(|fate| fate == Fate::Settled),
                    EVENTS
                );
                close(&mut world, consumer);
                assert!(queue(&mut world).members.is_empty());
            }
        }
    }
}

#[test]
fn events_are_acknowledged_returned_rejected_and_given_back() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 10, 5);
    let consumer = join(&mut world, &topic, QueueConsumerOptions::default());
    let events: Vec<QueueEvent> = (0..5)
        .map(|_| pull(&mut world, &consumer).unwrap().expect("an event"))
        .collect();
    let [first, second, third, fourth, fifth] = <[QueueEvent; 5]>::try_from(events).unwrap();
    assert!(!first.is_settled());
    let futures = [
        first.acknowledge(),
        second.return_because(SECOND, "too early"),
        third.reject("no such file"),
    ];
    assert!(first.is_settled());
    for future in &futures {
        settled(&mut world, future).unwrap();
    }
    // A settled event is not the consumer's any more.
    let again = first.acknowledge();
    assert!(is_expired(&settled(&mut world, &again)));
    // Dropped without: returned, counted.
    drop((fourth, fifth, first));
    world.run_until(SECOND, |_| false);
    let queue = queue(&mut world);
    assert_eq!(queue.fate(0), Fate::Settled);
    assert_eq!(queue.events[&(0, 1)].delay_ms, 1000);
    assert_eq!(queue.events[&(0, 1)].reason, "too early");
    assert_eq!(queue.fate(2), Fate::Dead);
    assert_eq!(queue.events[&(0, 2)].reason, "no such file");
    assert_eq!(queue.events[&(0, 3)].deliveries, 2);
    assert_eq!(queue.events[&(0, 4)].deliveries, 2);
    // What was not looked at goes back uncounted, and the consumer leaves.
    close(&mut world, consumer);
    let queue = self::queue(&mut world);
    assert_eq!(queue.events[&(0, 9)].fate, Fate::Waiting);
    assert_eq!(queue.events[&(0, 9)].deliveries, 0);
    assert!(queue.members.is_empty());
    assert!(world.server.topics.contains_key("events.dead"));
}

#[test]
fn settlements_travel_together_as_ranges() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..200, 50, 0);
    let consumer = join(&mut world, &topic, QueueConsumerOptions::default());
    world.run_until(SECOND, |_| false);
    let events = consumer.pull_batch(1000, Some(Duration::ZERO)).unwrap();
    assert_eq!(events.len(), 200);
    let futures: Vec<SettleFuture> = events.iter().rev().map(QueueEvent::acknowledge).collect();
    for future in &futures {
        settled(&mut world, future).unwrap();
    }
    assert_eq!(world.server.requests(Method::Settle), 1);
}

#[test]
fn settlements_go_a_portion_at_a_time_when_somebody_waits_or_within_a_millisecond() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..200, 50, 0);
    let options = QueueConsumerOptions {
        prefetch_events: 200,
        ..QueueConsumerOptions::default()
    };
    let consumer = join(&mut world, &topic, options);
    world.run_until(SECOND, |_| false);
    let mut events = consumer
        .pull_batch(200, Some(Duration::ZERO))
        .unwrap()
        .into_iter();
    let mut acknowledge = |count: usize| -> Vec<SettleFuture> {
        let settled = events.by_ref().take(count);
        settled.map(|event| event.acknowledge()).collect()
    };
    let sent_within = |world: &mut World, us: u64| {
        world.run_until(Duration::from_micros(us), |_| false);
        world.server.requests(Method::Settle)
    };
    acknowledge(10);
    assert_eq!(sent_within(&mut world, 900), 0);
    assert_eq!(sent_within(&mut world, 200), 1);
    // A quarter of the prefetch: the server is to have something to do.
    acknowledge(60);
    assert_eq!(sent_within(&mut world, 200), 2);
    // As long as there is something it is looked at, by one timer.
    acknowledge(10);
    assert_eq!(sent_within(&mut world, 1100), 3);
    let waited_for = acknowledge(1).remove(0);
    waited_for.on_done(Box::new(|| ()));
    assert_eq!(sent_within(&mut world, 200), 4);
    acknowledge(1);
    assert!(consumer.pull(Some(Duration::ZERO)).unwrap().is_none());
    assert_eq!(sent_within(&mut world, 200), 5);
}

#[test]
fn at_most_eight_requests_are_unanswered_and_what_comes_meanwhile_is_gathered() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..50, 50, 0);
    let consumer = join(&mut world, &topic, QueueConsumerOptions::default());
    world.run_until(SECOND, |_| false);
    let events = consumer.pull_batch(50, Some(Duration::ZERO)).unwrap();
    world.server.is_silent = true;
    let before = world.server.messages;
    let mut futures = Vec::new();
    for event in &events {
        futures.push(event.acknowledge());
        world.run_until(Duration::from_millis(1), |_| false);
    }
    assert_eq!(world.server.messages - before, 8);
    assert!(futures.iter().all(|future| future.try_get().is_none()));
    world.server.is_silent = false;
    world.server.cut();
    for future in &futures {
        settled(&mut world, future).unwrap();
    }
    assert_eq!(queue(&mut world).settles.len(), 9);
    assert_eq!(queue(&mut world).count(|fate| fate == Fate::Settled), 50);
}

#[test]
fn a_member_that_was_expelled_joins_afresh_and_its_settlements_fail() {
    for cut in [false, true] {
        let mut world = World::new();
        let topic = world.topic(1);
        fill(&mut world, &topic, 0..4, 4, 0);
        let consumer = join(&mut world, &topic, QueueConsumerOptions::default());
        let held = pull(&mut world, &consumer).unwrap().expect("an event");
        let id = *queue(&mut world).members.first_key_value().unwrap().0;
        if cut {
            world.server.cut();
        }
        queue(&mut world).expel();
        world.run_until(SECOND, |_| false);
        let late = held.acknowledge();
        assert!(is_expired(&settled(&mut world, &late)), "cut: {cut}");
        let mut seen = Vec::new();
        for _ in 0..4 {
            let event = pull(&mut world, &consumer).unwrap().expect("an event");
            assert_eq!(event.deliveries(), 2, "an expulsion counts");
            let done = event.acknowledge();
            settled(&mut world, &done).unwrap();
            seen.push(number(&event));
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
        if !cut {
            let members = &queue(&mut world).members;
            assert!(members.len() == 1 && !members.contains_key(&id));
        }
        drop(held);
        close(&mut world, consumer);
    }
}

#[test]
fn a_member_that_comes_back_keeps_twenty_thousand_ranges_of_events() {
    const KEPT: usize = 20_000;
    const EVENTS: usize = KEPT + 100;
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..EVENTS, 1000, 0);
    let options = QueueConsumerOptions {
        prefetch_events: EVENTS as u32,
        ..QueueConsumerOptions::default()
    };
    let consumer = join(&mut world, &topic, options);
    let mut events = Vec::new();
    // Here each event has a lease of its own, so that it is a range by itself.
    world.run_until(MINUTE, |_| {
        events.extend(consumer.pull_batch(EVENTS, Some(Duration::ZERO)).unwrap());
        events.len() == EVENTS
    });
    world.server.cut();
    queue(&mut world).restart();
    world.run_until(SECOND, |_| false);
    let is_kept = |event: &QueueEvent| number(event) < KEPT;
    let futures: Vec<_> = events
        .iter()
        .map(|one| (is_kept(one), one.acknowledge()))
        .collect();
    for (is_kept, future) in &futures {
        let result = settled(&mut world, future);
        assert_eq!(is_expired(&result), !is_kept, "{result:?}");
    }
    assert_eq!(queue(&mut world).count(|fate| fate == Fate::Settled), KEPT);
    // Nothing is lost: the others come again, and nothing was counted.
    for at in KEPT..EVENTS {
        let event = pull(&mut world, &consumer).unwrap().expect("an event");
        assert_eq!((number(&event), event.deliveries()), (at, 1));
        let done = event.acknowledge();
        settled(&mut world, &done).unwrap();
    }
    close(&mut world, consumer);
}

#[test]
fn a_static_member_whose_successor_came_is_fenced_for_good() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..4, 4, 0);
    let options = QueueConsumerOptions {
        instance: Some("node-1".into()),
        ..QueueConsumerOptions::default()
    };
    let first = join(&mut world, &topic, options.clone());
    let second = join(&mut world, &topic, options);
    let error = pull(&mut world, &first).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::MemberFenced));
    assert_eq!(queue(&mut world).members.len(), 1);
    // The successor itself comes back, expelled or not.
    let id = *queue(&mut world).members.first_key_value().unwrap().0;
    world.server.cut();
    world.run_until(SECOND, |_| false);
    assert!(queue(&mut world).members.contains_key(&id));
    queue(&mut world).expel();
    world.run_until(SECOND, |_| false);
    let members = &queue(&mut world).members;
    assert!(members.len() == 1 && !members.contains_key(&id));
    pull(&mut world, &second).unwrap().expect("an event");
    drop((first, second));
}

#[test]
fn what_is_settled_behind_a_close_that_was_cut_off_is_refused() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..1, 1, 0);
    let consumer = join(&mut world, &topic, QueueConsumerOptions::default());
    let held = pull(&mut world, &consumer).unwrap().expect("an event");
    world.server.is_silent = true;
    let closing = consumer.begin_close();
    world.run_until(SECOND, |_| false);
    world.server.is_silent = false;
    world.server.cut();
    world.wait(closing).unwrap();
    let late = held.acknowledge();
    assert!(is_expired(&settled(&mut world, &late)));
}

#[test]
fn every_caller_that_closes_a_consumer_waits_until_it_has_left() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..1, 1, 0);
    let consumer = join(&mut world, &topic, QueueConsumerOptions::default());
    world.server.is_silent = true;
    let first = consumer.begin_close();
    world.run_until(SECOND, |_| false);
    let second = consumer.begin_close();
    world.run_until(SECOND, |_| false);
    world.server.is_silent = false;
    world.server.cut();
    world.wait(first).unwrap();
    world.wait(second).unwrap();
}

#[test]
fn extensions_are_not_gathered_while_nobody_answers() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..1, 1, 0);
    let options = QueueConsumerOptions {
        renew: true,
        ..QueueConsumerOptions::default()
    };
    let consumer = join(&mut world, &topic, options);
    let event = pull(&mut world, &consumer).unwrap().expect("an event");
    world.run_until(Duration::from_secs(25), |_| false);
    let before = world.server.requests(Method::ExtendLeases);
    assert!(before > 0);
    world.server.is_silent = true;
    world.run_until(Duration::from_secs(600), |_| false);
    world.server.is_silent = false;
    world.server.cut();
    world.run_until(Duration::from_secs(5), |_| false);
    let more = world.server.requests(Method::ExtendLeases) - before;
    assert!((1..=3).contains(&more), "{more}");
    let done = event.acknowledge();
    settled(&mut world, &done).unwrap();
}

#[test]
fn what_is_not_looked_at_is_given_back_before_its_lease_ends() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..6, 3, 0);
    let options = QueueConsumerOptions {
        renew: true,
        prefetch_events: 3,
        ..QueueConsumerOptions::default()
    };
    let consumer = join(&mut world, &topic, options);
    let event = pull(&mut world, &consumer).unwrap().expect("an event");
    world.run_until(Duration::from_secs(29), |_| false);
    // The one that is handled is extended, the others go back, uncounted,
    // and are as good as new when they come again.
    let queue = queue(&mut world);
    assert!(
        queue
            .extended
            .iter()
            .all(|lease| lease.lease == event.lease())
    );
    assert!(!queue.extended.is_empty());
    let given_back = queue.settles.iter().flat_map(|one| &one.settlements);
    let given_back: Vec<_> = given_back
        .map(|one| (one.how, one.lease.first.0, one.lease.end.0))
        .collect();
    assert_eq!(given_back[0], (SettleAs::GiveBack, 1, 2));
    for expected in 1..6 {
        let done = event.lease();
        let next = pull(&mut world, &consumer).unwrap().expect("an event");
        assert_eq!((number(&next), next.deliveries()), (expected, 1));
        assert_ne!(next.lease(), done);
        let done = next.acknowledge();
        settled(&mut world, &done).unwrap();
    }
    let done = event.acknowledge();
    settled(&mut world, &done).unwrap();
}

#[test]
fn a_lease_is_extended_on_request_or_found_to_have_expired() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..2, 2, 0);
    let consumer = join(&mut world, &topic, QueueConsumerOptions::default());
    let event = pull(&mut world, &consumer).unwrap().expect("an event");
    let extended = event.extend();
    world.wait(extended).unwrap();
    assert_eq!(queue(&mut world).extended.len(), 1);
    queue(&mut world).expire();
    let late = event.acknowledge();
    assert!(is_expired(&settled(&mut world, &late)));
    let error = world.wait(event.extend()).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::LeaseExpired));
}

#[test]
fn a_program_that_stays_away_is_told_and_joins_again() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..3, 3, 0);
    let options = QueueConsumerOptions {
        processing_timeout: Some(Duration::from_secs(8)),
        ..QueueConsumerOptions::default()
    };
    let consumer = join(&mut world, &topic, options);
    let event = pull(&mut world, &consumer).unwrap().expect("an event");
    world.run_until(Duration::from_secs(7), |_| false);
    assert_eq!(queue(&mut world).members.len(), 1);
    world.run_until(Duration::from_secs(5), |_| false);
    assert!(queue(&mut world).members.is_empty());
    let late = event.acknowledge();
    assert!(is_expired(&settled(&mut world, &late)));
    let error = consumer.pull(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::MemberFenced));
    assert!(error.to_string().contains("processing timeout"), "{error}");
    let event = pull(&mut world, &consumer).unwrap().expect("an event");
    assert_eq!(number(&event), 0);
}

#[test]
fn a_silent_server_hears_of_its_members_within_their_session_timeout() {
    let mut world = World::new();
    let topic = world.topic(1);
    let options = QueueConsumerOptions {
        session_timeout: Duration::from_secs(2),
        ..QueueConsumerOptions::default()
    };
    let _consumer = join(&mut world, &topic, options);
    let before = world.server.heartbeats;
    world.run_until(Duration::from_secs(10), |_| false);
    assert!(world.server.heartbeats - before >= 10);
}

#[test]
fn data_is_selected_and_read_as_for_any_consumer() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..6, 3, 1000);
    let options = QueueConsumerOptions {
        data: DataMode::Select(Arc::new(|info| {
            let bytes = 5 + u64::from(info.id().offset.0 == 2);
            let view = DataView::whole(info.data_bytes_total());
            view.range(10, bytes).map_err(|error| error.to_string())
        })),
        ..QueueConsumerOptions::default()
    };
    let consumer = join(&mut world, &topic, options);
    for index in 0..6 {
        let mut event = pull(&mut world, &consumer).unwrap().expect("an event");
        let data = event.take_data();
        assert_eq!(data, vec![index as u8; 5 + usize::from(index == 2)]);
        event.acknowledge();
    }
    close(&mut world, consumer);
    assert_eq!(queue(&mut world).count(|fate| fate == Fate::Settled), 6);
}

#[test]
fn callbacks_end_where_the_consumer_is_dropped_and_not_in_the_core() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..4, 2, 10);
    let held = Arc::new(());
    let (by_selector, by_news) = (held.clone(), held.clone());
    let options = QueueConsumerOptions {
        data: DataMode::Select(Arc::new(move |info| {
            let _ = &by_selector;
            Ok(DataView::whole(info.data_bytes_total()))
        })),
        ..QueueConsumerOptions::default()
    };
    let consumer = join(&mut world, &topic, options);
    consumer.on_ready(Box::new(move || {
        let _ = &by_news;
    }));
    let event = pull(&mut world, &consumer).unwrap().expect("an event");
    drop(consumer);
    // The core has not run since.
    assert_eq!(Arc::strong_count(&held), 1);
    drop(event);
}

#[test]
fn refusals_that_pass_are_waited_out() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..3, 3, 0);
    let later = || wire::ErrorReply::retryable(ErrorCode::StorageFull, 100, "later");
    world.server.refuse(Method::Join, later());
    world.server.refuse(Method::Settle, later());
    world.server.refuse(Method::Settle, later());
    let consumer = join(&mut world, &topic, QueueConsumerOptions::default());
    let event = pull(&mut world, &consumer).unwrap().expect("an event");
    let done = event.acknowledge();
    settled(&mut world, &done).unwrap();
    let fatal = wire::ErrorReply::fatal(ErrorCode::InvalidConsumer, "a group");
    world.server.refuse(Method::Join, fatal);
    world.server.cut();
    let error = loop {
        match pull(&mut world, &consumer) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ends"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), Some(ErrorCode::InvalidConsumer));
}
