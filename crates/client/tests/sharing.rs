//! Groups against the real server: shares move, and nothing is lost or
//! acknowledged twice over, also when the server is killed.

use crate::live;

use client::*;
use live::{WATCHDOG, connect, number, push, start};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(20);

fn topic(driver: &Driver, partitions: usize) -> TopicHandle {
    let definition = Definition::builder()
        .validator(topic::ValidatorKind::None)
        .durability(Durability::Written)
        .build()
        .unwrap();
    let disk = PartitionStorage {
        kind: "disk".into(),
        config: String::new(),
    };
    driver
        .create_topic("events", &definition, &vec![disk; partitions])
        .unwrap()
}

/// Pulls from all in turn until `done`.
fn turns<T>(members: &[T], mut pull: impl FnMut(&T), mut done: impl FnMut(&[T]) -> bool) {
    let until = Instant::now() + WATCHDOG;
    while !done(members) {
        assert!(Instant::now() < until, "nothing comes of it");
        members.iter().for_each(&mut pull);
    }
}

#[test]
fn partitions_move_to_a_second_member_and_back_and_every_event_is_handled() {
    const EVENTS: u64 = 4000;
    let directory = tempfile::tempdir().unwrap();
    let mut server = Some(start(directory.path()));
    let drivers = [connect(directory.path()), connect(directory.path())];
    let first = topic(&drivers[0], 4);
    let second = drivers[1].open_topic("events").unwrap();
    let join = |topic: &TopicHandle| {
        topic
            .group("share", GroupMember::default(), ConsumerOptions::default())
            .unwrap()
    };
    let mut seen = BTreeSet::new();
    let mut handle = |consumer: &Consumer| {
        loop {
            let event = match consumer.pull(Some(STEP)) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                // The server was killed, and may wait for the other one.
                Err(error) if error.is_retryable() => break,
                Err(error) => panic!("{error}"),
            };
            // What went meanwhile is another one's to acknowledge.
            if consumer.acknowledge(event.id()).is_ok() {
                seen.insert(number(&event));
            }
        }
    };
    let shares = |members: &[Consumer]| -> Vec<usize> {
        members.iter().map(|one| one.partitions().len()).collect()
    };
    let mut members = vec![join(&first)];
    push(&first, 0..EVENTS / 2);
    turns(&members, &mut handle, |members| shares(members) == [4]);
    members.push(join(&second));
    turns(&members, &mut handle, |members| shares(members) == [2, 2]);
    push(&first, EVENTS / 2..EVENTS);
    // The members keep what they have through a restart.
    server.take().unwrap().kill();
    server = Some(start(directory.path()));
    turns(&members, &mut handle, |members| shares(members) == [2, 2]);
    members.pop().unwrap().close().unwrap();
    turns(&members, &mut handle, |members| shares(members) == [4]);
    let until = Instant::now() + WATCHDOG;
    let end = loop {
        handle(&members[0]);
        members[0].flush_acknowledgements(WATCHDOG).unwrap();
        let cursors = drivers[0].cursors(&first, "share").unwrap();
        let end: u64 = cursors.iter().map(|one| one.position.offset.0).sum();
        if end == EVENTS || Instant::now() > until {
            break end;
        }
    };
    assert_eq!(end, EVENTS);
    assert_eq!(seen, (0..EVENTS).collect());
    drop((members, server));
}

#[test]
fn a_member_whose_successor_took_over_closes_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let drivers = [connect(directory.path()), connect(directory.path())];
    let topics = [
        topic(&drivers[0], 1),
        drivers[1].open_topic("events").unwrap(),
    ];
    let join = |topic: &TopicHandle| {
        let member = GroupMember {
            instance: Some("node-7".into()),
            ..GroupMember::default()
        };
        let options = ConsumerOptions::default();
        topic.group("share", member, options).unwrap()
    };
    push(&topics[0], 0..1);
    let first = join(&topics[0]);
    let event = first.pull(Some(WATCHDOG)).unwrap().expect("it is there");
    let second = join(&topics[1]);
    let until = Instant::now() + WATCHDOG;
    let fenced = |error: &ClientError| error.code() == Some(wire::ErrorCode::MemberFenced);
    loop {
        match first.pull(Some(STEP)) {
            Err(error) if fenced(&error) => break,
            other => drop(other.unwrap()),
        }
        assert!(Instant::now() < until, "nobody tells it");
    }
    // What it has not acknowledged is its successor's.
    let _ = first.acknowledge(event.id());
    let error = first.close().expect_err("it is no member any more");
    assert!(fenced(&error), "{error}");
    let again = second
        .pull(Some(WATCHDOG))
        .unwrap()
        .expect("it comes again");
    assert_eq!(again.id(), event.id());
    second.acknowledge(again.id()).unwrap();
    second.close().unwrap();
}

fn queue(topic: &TopicHandle, options: QueueConsumerOptions) -> QueueConsumer {
    topic.queue("work", options).unwrap()
}

#[test]
fn a_queue_gives_each_event_to_one_member_and_a_killed_server_loses_no_settlement() {
    const EVENTS: u64 = 3000;
    let directory = tempfile::tempdir().unwrap();
    let mut server = Some(start(directory.path()));
    let drivers = [connect(directory.path()), connect(directory.path())];
    let first = topic(&drivers[0], 2);
    let second = drivers[1].open_topic("events").unwrap();
    push(&first, 0..EVENTS);
    let options = QueueConsumerOptions {
        prefetch_events: 50,
        ..QueueConsumerOptions::default()
    };
    let members = [queue(&first, options.clone()), queue(&second, options)];
    let mut shares = [0, 0];
    let mut seen = BTreeSet::new();
    let mut futures = Vec::new();
    let mut killed = false;
    let until = Instant::now() + WATCHDOG;
    while seen.len() < EVENTS as usize {
        assert!(Instant::now() < until, "{} events came", seen.len());
        for (member, share) in members.iter().zip(&mut shares) {
            let events = match member.pull_batch(20, Some(STEP)) {
                // The server is away, or waits for the other one.
                Err(error) if error.is_retryable() && killed => Vec::new(),
                events => events.unwrap(),
            };
            for event in events {
                *share += 1;
                assert!(seen.insert(number(&event)), "under two leases");
                futures.push(event.acknowledge());
            }
        }
        if seen.len() > EVENTS as usize / 2 && !killed {
            killed = true;
            server.take().unwrap().kill();
            server = Some(start(directory.path()));
        }
    }
    for future in &futures {
        future.wait(Some(WATCHDOG)).unwrap();
    }
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    for member in members {
        member.close().unwrap();
    }
    // Nothing is left for whoever comes next.
    let next = queue(&first, QueueConsumerOptions::default());
    assert!(next.pull(Some(STEP)).unwrap().is_none());
    drop(server);
}

#[test]
fn events_come_back_counted_and_end_as_dead_letters() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let driver = connect(directory.path());
    let topic = topic(&driver, 1);
    push(&topic, 0..3);
    let options = QueueConsumerOptions {
        queue: QueueOptions {
            deliveries_max: 2,
            ..QueueOptions::default()
        },
        ..QueueConsumerOptions::default()
    };
    let consumer = queue(&topic, options);
    assert_eq!(consumer.queue_options().unwrap().deliveries_max, 2);
    let pull = || consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
    let rejected = pull();
    assert_eq!((number(&rejected), rejected.deliveries()), (0, 1));
    rejected
        .reject("no such file")
        .wait(Some(WATCHDOG))
        .unwrap();
    for deliveries in 1..=2 {
        let event = pull();
        assert_eq!((number(&event), event.deliveries()), (1, deliveries));
        // Dropped: it comes back at once.
        drop(event);
        if deliveries == 1 {
            let last = pull();
            match number(&last) {
                2 => drop(last.acknowledge()),
                _ => panic!("event {} is not expected", number(&last)),
            }
        }
    }
    let dead = driver.open_topic("events.dead").unwrap();
    let reader = dead.consumer("reader", ConsumerOptions::default()).unwrap();
    let mut letters = Vec::new();
    for _ in 0..2 {
        let letter = reader.pull(Some(WATCHDOG)).unwrap().expect("a letter");
        let headers: std::collections::BTreeMap<_, _> = letter.headers().into_iter().collect();
        let text = |name: &str| String::from_utf8(headers[name].to_vec()).unwrap();
        assert_eq!(text("thalweg.topic"), "events");
        assert_eq!(text("thalweg.queue"), "work");
        letters.push((
            number(&letter),
            text("thalweg.deliveries"),
            text("thalweg.reason"),
        ));
    }
    letters.sort();
    assert_eq!(letters[0], (0, "1".to_owned(), "no such file".to_owned()));
    assert_eq!((letters[1].0, letters[1].1.as_str()), (1, "2"));
    consumer.close().unwrap();
}

#[test]
fn requests_are_answered_to_whoever_asked_and_end_at_their_deadline() {
    const REQUESTS: u64 = 200;
    let directory = tempfile::tempdir().unwrap();
    let mut server = Some(start(directory.path()));
    let drivers = [connect(directory.path()), connect(directory.path())];
    let asked = topic(&drivers[0], 1);
    let worked = drivers[1].open_topic("events").unwrap();
    let requesters = [
        asked.requester(RequesterOptions::default()).unwrap(),
        worked.requester(RequesterOptions::default()).unwrap(),
    ];
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let worker = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let consumer = queue(&worked, QueueConsumerOptions::default());
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let Ok(Some(mut event)) = consumer.pull(Some(STEP)) else {
                    continue;
                };
                match event.metadata() {
                    b"no answer" => drop(event.acknowledge()),
                    _ => {
                        let metadata = event.metadata().to_vec();
                        let data = event.take_data();
                        drop(event.reply(&metadata, vec![data]).unwrap());
                    }
                }
            }
            consumer.close().unwrap();
        }
    });
    let large = bytes::Bytes::from(vec![7; 200_000]);
    let request = |number: u64| {
        let text = number.to_string();
        let mut event = Event::new(text.as_bytes());
        if number.is_multiple_of(50) {
            event = event.with_data(large.clone());
        }
        let requester = &requesters[number as usize % 2];
        requester.request(event, WATCHDOG).unwrap()
    };
    let pending: Vec<_> = (0..REQUESTS).map(request).collect();
    // Whoever asked finds the replies again.
    server.take().unwrap().kill();
    server = Some(start(directory.path()));
    for (number, pending) in pending.into_iter().enumerate() {
        let mut reply = pending.wait().unwrap();
        assert_eq!(reply.metadata(), number.to_string().as_bytes());
        let expected = if number.is_multiple_of(50) {
            large.len()
        } else {
            0
        };
        assert_eq!(reply.take_data().len(), expected);
    }
    let unanswered = Event::new(b"no answer");
    let timeout = Duration::from_millis(200);
    let pending = requesters[0].request(unanswered, timeout).unwrap();
    let error = pending.wait().err().unwrap();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(requesters[0].waiting(), 0);
    // Who still waits when the client ends is told.
    let pending = requesters[0]
        .request(Event::new(b"no answer"), WATCHDOG)
        .unwrap();
    drivers[0].close(WATCHDOG).unwrap();
    let error = pending.wait().err().unwrap();
    assert!(matches!(error, ClientError::Closed), "{error}");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    worker.join().unwrap();
    drop(server);
}

#[test]
fn a_broadcast_gathers_replies_and_says_who_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let drivers = [connect(directory.path()), connect(directory.path())];
    let asked = topic(&drivers[0], 1);
    let requester = asked.requester(RequesterOptions::default()).unwrap();
    let none = requester.broadcast(Event::new(b"0"), Gather::All, WATCHDOG);
    let none = none.unwrap().wait().unwrap();
    assert!(none.replies.is_empty() && none.missing.is_empty());
    let options = ConsumerOptions {
        start: Start::Latest.into(),
        ..ConsumerOptions::default()
    };
    let other = drivers[1].open_topic("events").unwrap();
    let viewers = [
        asked.consumer("viewer", options.clone()).unwrap(),
        other.consumer("viewer", options).unwrap(),
    ];
    let silent = queue(&other, QueueConsumerOptions::default());
    let answer = |viewer: &Consumer| {
        let event = viewer.pull(Some(WATCHDOG)).unwrap().expect("a request");
        let reply = viewer.reply(&event, b"here", Vec::new()).unwrap();
        reply.wait(Some(WATCHDOG)).unwrap();
    };
    let two = requester.broadcast(Event::new(b"1"), Gather::AtLeast(2), WATCHDOG);
    let two = two.unwrap();
    viewers.iter().for_each(answer);
    let two = two.wait().unwrap();
    assert_eq!(two.replies.len(), 2);
    assert_eq!(two.missing, ["work"]);
    assert_ne!(two.replies[0].0, two.replies[1].0);
    assert_eq!(two.replies[0].1.metadata(), b"here");
    let short = Duration::from_millis(300);
    let all = requester.broadcast(Event::new(b"2"), Gather::All, short);
    let all = all.unwrap();
    answer(&viewers[0]);
    let all = all.wait().unwrap();
    assert_eq!((all.replies.len(), all.missing.len()), (1, 2));
    drop(silent);
}

/// What the requester was to send is the affair of those who asked: their answer
/// says that the requester was closed.
#[test]
fn a_driver_closes_without_failure_after_a_handle_that_its_owner_gave_up() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let driver = connect(directory.path());
    let mut options = RequesterOptions::default();
    options.producer.batch.count_max = Some(1);
    options.producer.batches_in_flight_max = 1;
    let requester = topic(&driver, 1).requester(options).unwrap();
    server.kill();
    while !driver.liveness().contains("not connected") {
        std::thread::yield_now();
    }
    // The second waits for the first, which waits for the server.
    let ask = |text| requester.request(Event::new(text), WATCHDOG).unwrap();
    let answers = [ask(b"1"), ask(b"2")];
    let given_up = requester.close(Duration::from_millis(10));
    assert!(matches!(given_up, Err(ClientError::Timeout { .. })));
    for answer in answers {
        assert!(matches!(answer.wait(), Err(ClientError::Closed)));
    }
    driver.close(WATCHDOG).unwrap();
}

#[test]
fn a_client_without_a_thread_consumes_a_queue_and_asks() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let options = DriverOptions {
        progress: Progress::Caller,
        ..DriverOptions::default()
    };
    let endpoint = Endpoint::GroupFile(directory.path().join("group.json"));
    let driver = Driver::connect(endpoint, options).unwrap();
    let topic = topic(&driver, 1);
    let consumer = queue(&topic, QueueConsumerOptions::default());
    let requester = topic.requester(RequesterOptions::default()).unwrap();
    let pending = requester.request(Event::new(b"ask"), WATCHDOG).unwrap();
    let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
    let replied = event.reply(b"answer", Vec::new()).unwrap();
    assert_eq!(pending.wait().unwrap().metadata(), b"answer");
    replied.wait().unwrap();
    consumer.close().unwrap();
}

#[test]
fn closing_waits_for_replies_that_are_under_way() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let drivers = [connect(directory.path()), connect(directory.path())];
    let asked = topic(&drivers[0], 1);
    let requester = asked.requester(RequesterOptions::default()).unwrap();
    let worked = drivers[1].open_topic("events").unwrap();
    for _ in 0..20 {
        let pending: Vec<_> = (0..20)
            .map(|_| requester.request(Event::new(b"ask"), WATCHDOG).unwrap())
            .collect();
        let consumer = queue(&worked, QueueConsumerOptions::default());
        for _ in &pending {
            let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("a request");
            // A request that was answered before would come again here.
            assert_eq!(event.deliveries(), 1);
            drop(event.reply(b"answer", Vec::new()).unwrap());
        }
        consumer.close().unwrap();
        for pending in pending {
            assert_eq!(pending.wait().unwrap().metadata(), b"answer");
        }
    }
    // With the driver ends whatever is under way.
    let left = requester.request(Event::new(b"ask"), WATCHDOG).unwrap();
    drivers[0].close(WATCHDOG).unwrap();
    let error = left.wait().expect_err("nobody answers");
    assert!(matches!(error, ClientError::Closed), "{error}");
    assert_eq!(requester.waiting(), 0);
}

#[test]
fn what_nobody_hurries_for_is_settled_by_itself_and_for_good() {
    const REQUESTS: u64 = 100;
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let drivers = [connect(directory.path()), connect(directory.path())];
    let asked = topic(&drivers[0], 1);
    let requester = asked.requester(RequesterOptions::default()).unwrap();
    let worked = drivers[1].open_topic("events").unwrap();
    let worker = std::thread::spawn(move || {
        let consumer = queue(&worked, QueueConsumerOptions::default());
        let next = || {
            let event = consumer.pull(Some(WATCHDOG)).unwrap();
            event.expect("a request")
        };
        // It waits for no reply to be stored: each hears of it with the next
        // request, the last one with nothing.
        let reply = |event: QueueEvent| {
            assert_eq!(event.deliveries(), 1);
            event.reply(event.metadata(), Vec::new()).unwrap()
        };
        let stored: Vec<_> = (0..REQUESTS).map(|_| reply(next())).collect();
        (consumer, stored)
    });
    for number in 0..REQUESTS {
        let request = number.to_le_bytes();
        let pending = requester.request(Event::new(&request), WATCHDOG).unwrap();
        assert_eq!(number.to_le_bytes(), pending.wait().unwrap().metadata());
    }
    // Nobody sends anything any more, and all are confirmed all the same.
    let (consumer, stored) = worker.join().unwrap();
    for (number, stored) in stored.into_iter().enumerate() {
        assert_eq!(stored.wait().unwrap().offset, Offset(number as u64));
    }
    // What is confirmed is not delivered again.
    server.kill();
    let _server = start(directory.path());
    let pending = requester.request(Event::new(b"last"), WATCHDOG).unwrap();
    let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("a request");
    assert_eq!(event.metadata(), b"last");
    event.reply(b"", Vec::new()).unwrap().wait().unwrap();
    pending.wait().unwrap();
    consumer.close().unwrap();
}

#[test]
fn an_event_that_outlives_its_consumer_has_no_reply() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let driver = connect(directory.path());
    let topic = topic(&driver, 1);
    let requester = topic.requester(RequesterOptions::default()).unwrap();
    let pending = requester.request(Event::new(b"ask"), WATCHDOG).unwrap();
    let consumer = queue(&topic, QueueConsumerOptions::default());
    let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
    consumer.close().unwrap();
    let refused = event.reply(b"late", Vec::new()).err();
    assert!(matches!(refused, Some(ClientError::Closed)), "{refused:?}");
    drop((event, pending));
}

#[test]
fn a_first_reply_in_a_callback_is_refused_and_does_not_hang() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let driver = connect(directory.path());
    let topic = topic(&driver, 1);
    let requester = topic.requester(RequesterOptions::default()).unwrap();
    let consumer = Arc::new(queue(&topic, QueueConsumerOptions::default()));
    let (told, answers) = std::sync::mpsc::channel();
    let pulling = Arc::downgrade(&consumer);
    consumer.on_ready(Box::new(move || {
        let Some(consumer) = pulling.upgrade() else {
            return;
        };
        if let Ok(Some(event)) = consumer.pull(Some(Duration::ZERO)) {
            let _ = told.send(event.reply(b"here", Vec::new()).err());
        }
    }));
    let pending = requester.request(Event::new(b"ask"), WATCHDOG).unwrap();
    let refused = answers.recv_timeout(WATCHDOG).expect("an event comes");
    assert!(
        matches!(refused, Some(ClientError::Invalid(_))),
        "{refused:?}"
    );
    drop(pending);
}

#[test]
fn closing_the_driver_waits_for_what_was_settled() {
    const EVENTS: u64 = 500;
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path());
    let drivers = [connect(directory.path()), connect(directory.path())];
    let first = topic(&drivers[0], 1);
    push(&first, 0..EVENTS);
    let consumer = queue(&first, QueueConsumerOptions::default());
    let settled: Vec<_> = (0..EVENTS)
        .map(|_| {
            let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
            event.acknowledge()
        })
        .collect();
    drivers[0].close(WATCHDOG).unwrap();
    for future in settled {
        // What is not there now never comes.
        future.try_get().expect("it was waited for").unwrap();
    }
    let second = drivers[1].open_topic("events").unwrap();
    let other = queue(&second, QueueConsumerOptions::default());
    assert!(other.pull(Some(STEP)).unwrap().is_none());
}
