//! What a pull that finds nothing says, against a scripted server under a
//! virtual clock: there was nothing, or the server was away, or it recovers.

use crate::fake;
use crate::reading;
use crate::world;

use client::*;
use fake::FakeQueue;
use reading::{MINUTE, SECOND, fill, open, pull_all};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use world::World;

const NOW: Option<Duration> = Some(Duration::ZERO);

fn join(world: &mut World, topic: &TopicHandle) -> QueueConsumer {
    let pending = topic.begin_queue("work", QueueConsumerOptions::default());
    world.wait(pending).unwrap()
}

fn queue(world: &mut World) -> &mut FakeQueue {
    world.server.topics.get_mut("events").unwrap().queue("work")
}

fn is_unreachable<T>(pulled: &Result<T, ClientError>) -> bool {
    matches!(pulled, Err(error @ ClientError::Unreachable { .. }) if error.is_retryable())
}

#[test]
fn a_consumer_whose_server_is_away_does_not_say_that_there_is_nothing() {
    let mut world = World::new();
    let topic = world.topic(2);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    assert!(consumer.pull(NOW).unwrap().is_none());
    assert!(consumer.pull_batch(10, NOW).unwrap().is_empty());
    // It is lost, and back, and has not answered.
    world.server.cut();
    world.server.is_silent = true;
    world.settle();
    assert!(is_unreachable(&consumer.pull(NOW)));
    assert!(is_unreachable(&consumer.pull_batch(10, NOW)));
    // As long as that takes: an hour ends nothing.
    world.run_until(60 * MINUTE, |_| false);
    assert!(is_unreachable(&consumer.pull(NOW)));
    let patience = Patience::within(None);
    let look = consumer.pull_look(1, &patience, Duration::ZERO);
    assert!(matches!(look, Ok(Pulled::NotYet)), "{look:?}");
    world.server.is_silent = false;
    let is_back = |_: &mut World| matches!(consumer.pull(NOW), Ok(None));
    assert!(world.run_until(MINUTE, is_back));
    fill(&mut world, &topic, 0..3, 1, 0);
    assert_eq!(pull_all(&mut world, &consumer, 3), [0, 1, 2]);
}

#[test]
fn a_queue_that_recovers_does_not_say_that_there_is_nothing() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..1, 1, 0);
    let consumer = join(&mut world, &topic);
    assert!(world.run_until(MINUTE, |_| matches!(consumer.pull(NOW), Ok(Some(_)))));
    // The server was started anew, and waits for somebody else.
    queue(&mut world).recovering_ms = 8000;
    queue(&mut world).expire();
    world.server.cut();
    world.settle();
    assert!(is_unreachable(&consumer.pull(NOW)), "it is not back");
    let has_heard =
        |_: &mut World| matches!(consumer.pull(NOW), Err(ClientError::Recovering { .. }));
    assert!(world.run_until(MINUTE, has_heard));
    let error = consumer.pull_batch(10, NOW).unwrap_err();
    let ClientError::Recovering { left, .. } = &error else {
        panic!("{error}");
    };
    assert!(*left <= 8 * SECOND && *left > 7 * SECOND, "{left:?}");
    assert!(error.is_retryable());
    let text = error.to_string();
    assert!(
        text.starts_with("consumer work of events recovers"),
        "{text}"
    );
    // It waits on for as long as the server says nothing else.
    world.run_until(MINUTE, |_| false);
    assert!(consumer.pull(NOW).is_err());
    queue(&mut world).recover();
    let is_over = |_: &mut World| consumer.pull(NOW).is_ok();
    assert!(world.run_until(MINUTE, is_over));
}

#[test]
fn a_driver_that_does_not_wait_for_ever_says_so_after_its_time_and_goes_on_later() {
    let mut world = World::with(DriverOptions {
        reconnect_timeout: Some(3 * SECOND),
        ..world::options()
    });
    let topic = world.topic(1);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    let news = Arc::new(Mutex::new(0));
    let counts = news.clone();
    consumer.on_ready(Box::new(move || *counts.lock().unwrap() += 1));
    world.server.cut();
    world.server.is_silent = true;
    let patience = Patience::within(None);
    let look = || consumer.pull_look(1, &patience, Duration::ZERO);
    let before = world.now();
    assert!(world.run_until(MINUTE, |_| look().is_err()));
    assert!(world.now() - before >= 3 * SECOND);
    assert!(is_unreachable(&look()));
    assert!(
        *news.lock().unwrap() > 0,
        "a wait without a look is reported"
    );
    world.server.is_silent = false;
    assert!(world.run_until(MINUTE, |_| look().is_ok()));
    fill(&mut world, &topic, 0..1, 1, 0);
    assert_eq!(pull_all(&mut world, &consumer, 1), [0]);
}

#[test]
fn drains_and_reads_wait_for_the_reconnect_timeout_and_go_on_later() {
    let mut world = World::with(DriverOptions {
        reconnect_timeout: Some(3 * SECOND),
        ..world::options()
    });
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..2, 1, 0);
    let reading = topic.begin_read(ReadOptions::default());
    let reader = world.wait(reading).unwrap();
    let consumer = join(&mut world, &topic);
    let mut drain = Drain::new(SECOND);
    let mut drained = || drain.next(&consumer, NOW);
    // What was on its way is taken.
    world.run_until(SECOND, |_| false);
    for _ in 0..2 {
        assert!(matches!(reader.next_batch(1, NOW), Ok(Read::Events(_))));
        assert!(matches!(drained(), Ok(Drained::Event(_))));
    }
    world.server.cut();
    world.server.is_silent = true;
    let before = world.now();
    assert!(world.run_until(MINUTE, |_| drained().is_err()));
    assert!(world.now() - before >= 3 * SECOND);
    assert!(is_unreachable(&drained()));
    world.server.is_silent = false;
    assert!(world.run_until(MINUTE, |_| drained().is_ok()));
    // A read that has come to its end has no server to wait for.
    assert!(matches!(reader.next_batch(1, NOW), Ok(Read::End)));
    let reading = topic.begin_read(ReadOptions::default());
    let reader = world.wait(reading).unwrap();
    world.server.cut();
    world.server.is_silent = true;
    let before = world.now();
    let read = || loop {
        match reader.next_batch(1, NOW) {
            Ok(Read::Events(_)) => {}
            other => return other,
        }
    };
    assert!(world.run_until(MINUTE, |_| !matches!(read(), Ok(Read::Waiting))));
    assert!(is_unreachable(&read()), "{:?}", read());
    assert!(world.now() - before >= 3 * SECOND);
}

/// Pulls for as long as a queue recovers: whether one of them said that there
/// was nothing.
fn says_nothing_while_it_recovers() -> bool {
    let mut world = World::new();
    let topic = world.topic(1);
    let consumer = join(&mut world, &topic);
    queue(&mut world).recovering_ms = 8000;
    world.server.cut();
    world.settle();
    let said = world.run_until(8 * SECOND, |_| matches!(consumer.pull(NOW), Ok(None)));
    queue(&mut world).recover();
    said
}

#[test]
fn no_pull_says_nothing_while_a_queue_recovers() {
    assert!(!says_nothing_while_it_recovers());
}

/// With the fault the test above fails: it can.
#[cfg(feature = "testing")]
#[test]
fn a_client_that_takes_recovering_for_nothing_is_found() {
    client::plant(Some(Fault::RecoveringIsNothing));
    let said = says_nothing_while_it_recovers();
    client::plant(None);
    assert!(said);
}
