//! A client with a thread: whoever waits drives in its place, and nobody
//! notices but by the time it takes. A program of its own: it counts the
//! threads of clients in the process.

use client::*;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);

fn start(directory: &Path, listen: &str) -> server::Server {
    let config = server::Config {
        directory: directory.join("data"),
        listen: vec![listen.to_owned()],
        no_unix_socket: true,
        group_file: Some(directory.join("group.json")),
        ..server::Config::default()
    };
    server::Server::start(config, Arc::new(|_: &str| {})).unwrap()
}

fn connect(directory: &Path) -> Driver {
    let endpoint = Endpoint::GroupFile(directory.join("group.json"));
    Driver::connect(endpoint, DriverOptions::default()).unwrap()
}

fn topic(driver: &Driver, name: &str) -> TopicHandle {
    let definition = Definition::builder()
        .validator(topic::ValidatorKind::None)
        .build()
        .unwrap();
    let storage = PartitionStorage {
        kind: "memory".into(),
        config: String::new(),
    };
    driver.create_topic(name, &definition, &[storage]).unwrap()
}

fn with_driver(test: impl FnOnce(&Driver)) {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path(), "tcp://127.0.0.1:0");
    test(&connect(directory.path()));
}

fn producer(topic: &TopicHandle) -> Producer {
    topic.producer(ProducerOptions::default()).unwrap()
}

fn consumer(topic: &TopicHandle, name: &str) -> Consumer {
    topic.consumer(name, ConsumerOptions::default()).unwrap()
}

/// As the system has it: the standard library does not know the client's threads.
fn thread_name() -> String {
    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
    name.trim_end().to_owned()
}

/// How often the threads of this process's clients have gone to sleep.
fn sleeps_of_client_threads() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
        .filter(|status| status.starts_with("Name:\tthalweg-client\n"))
        .filter_map(|status| {
            let count = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            count.trim().parse::<u64>().ok()
        })
        .sum()
}

/// All tests of this file are one, because sleeps of all clients are counted.
#[test]
fn standing_in() {
    let tests: [(&str, fn()); 11] = [
        ("round trips", round_trips_leave_the_thread_asleep),
        ("callbacks", callbacks_come_on_the_clients_thread_in_order),
        ("a lock", a_lock_may_be_held_that_callbacks_take),
        ("an end", an_end_may_take_a_lock_that_is_held_around_calls),
        ("reads", reads_of_data_end_a_pull),
        ("others tell", what_other_threads_tell_is_heard),
        ("timers", timers_of_what_was_posted_are_kept),
        ("many", many_wait_at_once),
        ("closing", a_driver_is_closed_while_somebody_stands_in),
        ("nobody waits", what_nobody_waits_for_is_driven_as_well),
        ("after many", after_many_on_end_nobody_is_forgotten),
    ];
    for (name, test) in tests {
        eprintln!("{name}");
        test();
    }
}

fn round_trips_leave_the_thread_asleep() {
    with_driver(|driver| {
        let topic = topic(driver, "events");
        let (producer, consumer) = (producer(&topic), consumer(&topic, "reader"));
        const ROUNDS: u64 = 50;
        let rounds = |stretch: u64| {
            let before = sleeps_of_client_threads();
            for round in stretch * ROUNDS..(stretch + 1) * ROUNDS {
                let future = producer.push_metadata(&round.to_le_bytes()).unwrap();
                assert_eq!(future.wait(Some(WATCHDOG)).unwrap().offset, Offset(round));
                let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
                assert_eq!(event.metadata(), round.to_le_bytes());
            }
            sleeps_of_client_threads() - before
        };
        // The thread goes to sleep two to three times a round if it does all
        // that. On a busy machine it does some of it, whenever this thread is
        // put aside between two waits: one quiet stretch is what must be found.
        let sleeps: Vec<u64> = (0..200).map(rounds).collect();
        let fewest = *sleeps.iter().min().expect("there were stretches");
        assert!(
            fewest < ROUNDS * 3 / 4,
            "{sleeps:?} in {ROUNDS} rounds each"
        );
    });
}

fn callbacks_come_on_the_clients_thread_in_order() {
    with_driver(|driver| {
        let topic = topic(driver, "events");
        let silent = self::topic(driver, "silent");
        let (producer, consumer) = (producer(&topic), consumer(&silent, "reader"));
        let (told, heard) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            // Stands in for as long as it goes on.
            scope.spawn(move || {
                while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    let event = consumer.pull(Some(Duration::from_millis(50))).unwrap();
                    assert!(event.is_none());
                }
            });
            for index in 0..1000 {
                let told = told.clone();
                let future = producer.push_metadata(b"{}").unwrap();
                future.on_done(Box::new(move || {
                    let _ = told.send((index, thread_name()));
                }));
                if index % 3 == 0 {
                    future.wait(Some(WATCHDOG)).unwrap();
                }
            }
            // At once, on this thread, where there was a result already.
            let here = thread_name();
            let mut last = None;
            for _ in 0..1000 {
                let (index, name) = heard.recv_timeout(WATCHDOG).unwrap();
                if name != here {
                    assert_eq!(name, "thalweg-client");
                    assert!(last < Some(index), "{index} after {last:?}");
                    last = Some(index);
                }
            }
            drop(stop);
        });
    });
}

fn a_lock_may_be_held_that_callbacks_take() {
    with_driver(|driver| {
        let topic = topic(driver, "events");
        let producer = producer(&topic);
        let count = Arc::new(Mutex::new(0));
        for _ in 0..100 {
            let held = count.lock().unwrap();
            let before = *held;
            let future = producer.push_metadata(b"{}").unwrap();
            let (counts, done) = (count.clone(), future.clone());
            // Not on this thread: it is set before there can be a result, or
            // there is one and then nobody else calls it.
            if future.try_get().is_none() {
                std::thread::spawn(move || {
                    done.on_done(Box::new(move || *counts.lock().unwrap() += 1));
                });
            } else {
                std::thread::spawn(move || *counts.lock().unwrap() += 1);
            }
            future.wait(Some(WATCHDOG)).unwrap();
            drop(held);
            let began = Instant::now();
            while *count.lock().unwrap() == before {
                assert!(began.elapsed() < WATCHDOG);
                std::thread::yield_now();
            }
        }
    });
}

fn an_end_may_take_a_lock_that_is_held_around_calls() {
    with_driver(|driver| {
        let events = topic(driver, "events");
        let producer = producer(&events);
        let interpreter = Arc::new(Mutex::new(()));
        let (told, ended) = mpsc::channel();
        let here = thread_name();
        let mut others = (0..).map(|number| format!("others-{number}"));
        let (come_upon_on, ended_on) = loop {
            let held = interpreter.lock().unwrap();
            let (taken, told) = (interpreter.clone(), told.clone());
            let future = producer.push_metadata(b"an event").unwrap();
            let holder = here.clone();
            future.on_done(Box::new(move || {
                let come_upon_on = thread_name();
                if come_upon_on == holder {
                    // There was a result before this was asked for: once more.
                    return told.send((holder.clone(), holder)).unwrap();
                }
                deferred_drop(move || {
                    drop(taken.lock().unwrap());
                    told.send((come_upon_on, thread_name())).unwrap();
                });
            }));
            future.wait(Some(WATCHDOG)).unwrap();
            topic(driver, &others.next().expect("without end"));
            drop(held);
            let (come_upon_on, ended_on) = ended.recv_timeout(WATCHDOG).unwrap();
            if come_upon_on != here {
                break (come_upon_on, ended_on);
            }
        };
        assert_eq!(come_upon_on, "thalweg-client");
        assert_ne!(ended_on, "thalweg-client");
        // Elsewhere it ends at once, where it is.
        let (told, ended) = mpsc::channel();
        deferred_drop(move || told.send(thread_name()).unwrap());
        assert_eq!(ended.try_recv().unwrap(), thread_name());
    });
}

fn reads_of_data_end_a_pull() {
    with_driver(|driver| {
        let topic = topic(driver, "events");
        let producer = producer(&topic);
        let options = ConsumerOptions {
            data: DataMode::Select(Arc::new(|_| Ok(DataView::whole(1000)))),
            ..ConsumerOptions::default()
        };
        let consumer = topic.consumer("reader", options).unwrap();
        let began = Instant::now();
        for round in 0..200u8 {
            let event = Event::new(b"{}").with_data(vec![round; 1000]);
            producer.push(event).unwrap();
            let mut event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
            assert_eq!(event.take_data(), vec![round; 1000]);
        }
        // A pull that misses the answer waits for the next sign of life.
        assert!(began.elapsed() < WATCHDOG);
    });
}

fn what_other_threads_tell_is_heard() {
    with_driver(|driver| {
        let topic = topic(driver, "events");
        let options = ProducerOptions {
            threads: 2,
            ..ProducerOptions::default()
        };
        let threaded = topic.producer(options).unwrap();
        let options = ProducerOptions {
            batch: BatchPolicy {
                linger: Linger::UntilFull,
                ..BatchPolicy::default()
            },
            ..ProducerOptions::default()
        };
        let lingering = topic.producer(options).unwrap();
        let began = Instant::now();
        for round in 0..200u64 {
            let future = threaded.push_metadata(&round.to_le_bytes()).unwrap();
            future.wait(Some(WATCHDOG)).unwrap();
            threaded.push_metadata(b"{}").unwrap();
            threaded.flush(WATCHDOG).unwrap();
            let refused = Event {
                partition: Some(7),
                ..Event::new(b"{}")
            };
            let refused = threaded.push(refused).unwrap();
            assert!(refused.wait(Some(WATCHDOG)).is_err());
            let taken_back = lingering.push_metadata(b"{}").unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| assert!(lingering.cancel(&taken_back)));
                let outcome = taken_back.wait(Some(WATCHDOG));
                assert!(matches!(outcome, Err(ClientError::Cancelled)));
            });
        }
        assert!(began.elapsed() < WATCHDOG);
    });
}

fn timers_of_what_was_posted_are_kept() {
    with_driver(|driver| {
        let topic = topic(driver, "events");
        let linger = Duration::from_millis(20);
        let options = ProducerOptions {
            batch: BatchPolicy {
                linger: Linger::Wait(linger),
                ..BatchPolicy::default()
            },
            ..ProducerOptions::default()
        };
        let producer = topic.producer(options).unwrap();
        for _ in 0..3 {
            let pushed = Instant::now();
            let (told, heard) = mpsc::channel();
            let future = producer.push_metadata(b"{}").unwrap();
            future.on_done(Box::new(move || {
                let _ = told.send(());
            }));
            heard.recv_timeout(WATCHDOG).unwrap();
            assert!(pushed.elapsed() >= linger);
        }
    });
}

fn many_wait_at_once() {
    with_driver(|driver| {
        let topic = topic(driver, "events");
        const THREADS: usize = 6;
        const EVENTS: usize = 200;
        let pulled = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (topic, pulled) = (&topic, &pulled);
                scope.spawn(move || {
                    let producer = producer(topic);
                    for index in 0..EVENTS {
                        let future = producer.push_metadata(b"{}").unwrap();
                        match index % 3 {
                            0 => drop(future.wait(Some(WATCHDOG)).unwrap()),
                            1 => producer.flush(WATCHDOG).unwrap(),
                            _ => assert!(driver.topic_exists("events").unwrap()),
                        }
                    }
                });
                scope.spawn(move || {
                    let consumer = consumer(topic, &format!("reader-{thread}"));
                    for offset in 0..THREADS * EVENTS {
                        let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
                        assert_eq!(event.id().offset, Offset(offset as u64));
                        consumer.acknowledge(event.id()).unwrap();
                        pulled.fetch_add(1, Ordering::Relaxed);
                    }
                    consumer.close().unwrap();
                });
            }
        });
        assert_eq!(pulled.into_inner(), THREADS * THREADS * EVENTS);
    });
}

fn a_driver_is_closed_while_somebody_stands_in() {
    for _ in 0..20 {
        with_driver(|driver| {
            let topic = topic(driver, "events");
            let consumer = consumer(&topic, "reader");
            let (told, heard) = mpsc::channel();
            let waiting = std::thread::spawn(move || {
                told.send(()).unwrap();
                consumer.pull(Some(WATCHDOG))
            });
            heard.recv().unwrap();
            driver.close(WATCHDOG).unwrap();
            let outcome = waiting.join().unwrap();
            assert!(
                matches!(outcome, Err(ClientError::Closed)),
                "{:?}",
                outcome.map(|event| event.is_some())
            );
        });
    }
}

fn what_nobody_waits_for_is_driven_as_well() {
    with_driver(|driver| {
        let topic = topic(driver, "events");
        let (producer, consumer) = (producer(&topic), consumer(&topic, "reader"));
        for round in 0..200u64 {
            // Somebody waits, and then nobody does.
            let future = producer.push_metadata(b"{}").unwrap();
            future.wait(Some(WATCHDOG)).unwrap();
            let futures = [(); 3].map(|()| producer.push_metadata(b"{}").unwrap());
            let began = Instant::now();
            while futures.iter().any(|future| future.try_get().is_none()) {
                assert!(began.elapsed() < WATCHDOG, "round {round}");
                std::thread::yield_now();
            }
            let mut pulled = 0;
            while pulled < 4 {
                let event = consumer.pull(Some(Duration::ZERO)).unwrap();
                pulled += usize::from(event.is_some());
                assert!(began.elapsed() < WATCHDOG, "round {round}");
                std::thread::yield_now();
            }
        }
    });
}

fn after_many_on_end_nobody_is_forgotten() {
    with_driver(|driver| {
        let topic = topic(driver, "events");
        let (producer, consumer) = (producer(&topic), consumer(&topic, "reader"));
        let mut pulled = 0;
        let mut pull = |until: u64| {
            while pulled < until {
                let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
                assert_eq!(event.id().offset, Offset(pulled));
                pulled += 1;
            }
        };
        for round in 0..50 {
            // Enough for the thread to be attentive, unless the machine is busy.
            for index in 0..40 {
                let future = producer.push_metadata(b"{}").unwrap();
                future.wait(Some(WATCHDOG)).unwrap();
                pull(round * 42 + index + 1);
            }
            // And then nobody waits by standing in.
            let (told, heard) = mpsc::channel();
            let pushed = producer.push_metadata(b"{}").unwrap();
            let also_told = told.clone();
            pushed.on_done(Box::new(move || also_told.send("pushed").unwrap()));
            assert_eq!(heard.recv_timeout(WATCHDOG), Ok("pushed"));
            let asked = driver.begin_open_topic("events");
            asked.on_done(Box::new(move || told.send("asked").unwrap()));
            assert_eq!(heard.recv_timeout(WATCHDOG), Ok("asked"));
            asked.wait().unwrap();
            // What one waits for while another one stands in for something else.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let future = producer.push_metadata(b"{}").unwrap();
                    future.wait(Some(WATCHDOG)).unwrap();
                });
                pull(round * 42 + 42);
            });
        }
    });
    // A client that is left alone comes to rest.
    with_driver(|driver| {
        let topic = topic(driver, "events");
        let producer = producer(&topic);
        for _ in 0..100 {
            let future = producer.push_metadata(b"{}").unwrap();
            future.wait(Some(WATCHDOG)).unwrap();
        }
        let began = Instant::now();
        let mut since = (began, sleeps_of_client_threads());
        while since.0.elapsed() < Duration::from_millis(50) {
            assert!(began.elapsed() < WATCHDOG, "the thread does not rest");
            let sleeps = sleeps_of_client_threads();
            if sleeps != since.1 {
                since = (Instant::now(), sleeps);
            }
        }
    });
}
