//! A client that has no thread: callers drive it, by calls that wait and by a
//! loop of their own over its descriptor. A program of its own: it counts the
//! threads of clients in the process.

use bytes::Bytes;
use client::*;
use mio::unix::SourceFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
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
    let options = DriverOptions {
        progress: Progress::Caller,
        ..DriverOptions::default()
    };
    Driver::connect(endpoint, options).unwrap()
}

fn topic(driver: &Driver) -> TopicHandle {
    let definition = Definition::builder()
        .validator(topic::ValidatorKind::None)
        .build()
        .unwrap();
    let storage = PartitionStorage {
        kind: "memory".into(),
        config: String::new(),
    };
    driver
        .create_topic("events", &definition, &[storage])
        .unwrap()
}

/// A client, a topic in memory, and the server that has it.
struct Ground {
    topic: TopicHandle,
    driver: Driver,
    _server: server::Server,
    _directory: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = start(directory.path(), "tcp://127.0.0.1:0");
        let driver = connect(directory.path());
        Self {
            topic: topic(&driver),
            driver,
            _server: server,
            _directory: directory,
        }
    }
}

/// Waits, by nothing but the descriptor, until a turn has something to do.
/// False if it is not readable within `timeout`.
fn readable(driver: &Driver, timeout: Duration) -> bool {
    let mut poll = mio::Poll::new().unwrap();
    let descriptor = driver.descriptor().unwrap();
    poll.registry()
        .register(
            &mut SourceFd(&descriptor),
            mio::Token(0),
            mio::Interest::READABLE,
        )
        .unwrap();
    let mut events = mio::Events::with_capacity(1);
    poll.poll(&mut events, Some(timeout)).unwrap();
    !events.is_empty()
}

/// A loop as others have one: it never waits but for the descriptor.
fn run(driver: &Driver, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + WATCHDOG;
    while !done() {
        assert!(Instant::now() < until, "nothing comes of it");
        readable(driver, WATCHDOG);
        driver.progress(Duration::ZERO).unwrap();
    }
}

/// Until the descriptor says that there is nothing to do.
fn settle(driver: &Driver) {
    let until = Instant::now() + WATCHDOG;
    while readable(driver, Duration::from_millis(20)) {
        assert!(Instant::now() < until, "the descriptor stays readable");
        driver.progress(Duration::ZERO).unwrap();
    }
}

fn threads_of_clients() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.trim() == "thalweg-client")
        .count()
}

fn exercise(listen: impl Fn(&Path) -> String) {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path(), &listen(directory.path()));
    let driver = connect(directory.path());
    let topic = topic(&driver);
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let large = Bytes::from(vec![7; 1 << 20]);
    let futures: Vec<_> = (0..1000u32)
        .map(|index| {
            let text = index.to_string();
            let event = match index % 100 {
                0 => Event::new(text.as_bytes()).with_data(large.clone()),
                _ => Event::new(text.as_bytes()),
            };
            producer.push(event).unwrap()
        })
        .collect();
    producer.flush(WATCHDOG).unwrap();
    for (index, future) in futures.iter().enumerate() {
        let id = future.try_get().expect("it was flushed").unwrap();
        assert_eq!(id.offset, Offset(index as u64));
    }
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    for index in 0..1000u32 {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
        assert_eq!(event.metadata(), index.to_string().as_bytes());
        consumer.acknowledge(event.id()).unwrap();
    }
    assert!(consumer.pull(Some(Duration::ZERO)).unwrap().is_none());
    consumer.flush_acknowledgements(WATCHDOG).unwrap();
    // The others of this file have none, either.
    assert_eq!(threads_of_clients(), 0);
    driver.close(WATCHDOG).unwrap();
    let refused = driver.progress(Duration::ZERO);
    assert!(matches!(refused, Err(ClientError::Closed)), "{refused:?}");
}

#[test]
fn calls_that_wait_drive_over_tcp() {
    exercise(|_| "tcp://127.0.0.1:0".to_owned());
}

#[test]
fn calls_that_wait_drive_over_a_unix_socket() {
    exercise(|directory| format!("unix://{}/socket", directory.display()));
}

#[test]
fn a_loop_over_the_descriptor_drives_and_sleeps_when_there_is_nothing() {
    let ground = Ground::new();
    let (driver, topic) = (&ground.driver, &ground.topic);
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    settle(driver);
    // A push is something to do, although nobody has told the kernel yet.
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let done = done.clone();
        let future = producer.push_metadata(b"{}").unwrap();
        future.on_done(Box::new(move || {
            done.fetch_add(1, Ordering::Relaxed);
        }));
    }
    assert!(readable(driver, Duration::ZERO));
    run(driver, || done.load(Ordering::Relaxed) == 3);
    // Events come by the descriptor, too.
    let mut pulled = 0;
    run(driver, || {
        while consumer.pull(Some(Duration::ZERO)).unwrap().is_some() {
            pulled += 1;
        }
        pulled == 3
    });
    settle(driver);
}

#[test]
fn timers_make_the_descriptor_readable() {
    let ground = Ground::new();
    let (driver, topic) = (&ground.driver, &ground.topic);
    let options = ProducerOptions {
        batch: BatchPolicy {
            linger: Linger::Wait(Duration::from_millis(30)),
            ..BatchPolicy::default()
        },
        ..ProducerOptions::default()
    };
    let producer = topic.producer(options).unwrap();
    let pushed = Instant::now();
    let future = producer.push_metadata(b"{}").unwrap();
    run(driver, || future.try_get().is_some());
    assert!(pushed.elapsed() >= Duration::from_millis(30));
}

#[test]
fn other_threads_wake_the_loop_and_wait_for_it() {
    let ground = Ground::new();
    let (driver, topic) = (&ground.driver, &ground.topic);
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    std::thread::scope(|scope| {
        // All wait at once: one drives for them, and when it is done another.
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let future = producer.push_metadata(b"{}").unwrap();
                    future.wait(Some(WATCHDOG)).unwrap();
                }
            });
        }
    });
    settle(driver);
    let future = std::thread::scope(|scope| {
        let push = scope.spawn(|| producer.push_metadata(b"{}").unwrap());
        push.join().unwrap()
    });
    assert!(readable(driver, WATCHDOG), "the other thread's push");
    run(driver, || future.try_get().is_some());
    assert_eq!(
        future.try_get().unwrap().unwrap().offset,
        Offset(4 * 50),
        "each was stored once"
    );
}

#[test]
fn a_full_budget_is_waited_for_by_driving() {
    let ground = Ground::new();
    let topic = &ground.topic;
    let options = ProducerOptions {
        budget_bytes: 100_000,
        ..ProducerOptions::default()
    };
    let producer = topic.producer(options).unwrap();
    for _ in 0..200 {
        producer.push_metadata(&[b'1'; 10_000]).unwrap();
    }
    producer.flush(WATCHDOG).unwrap();
}

#[test]
fn a_callback_that_waits_is_refused_and_does_not_hang() {
    let ground = Ground::new();
    let (driver, topic) = (&ground.driver, &ground.topic);
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let said = Arc::new(Mutex::new(None));
    let future = producer.push_metadata(b"{}").unwrap();
    let (heard, inside) = (said.clone(), driver.clone());
    future.on_done(Box::new(move || {
        let refused = inside.progress(WATCHDOG);
        let timed_out = inside.list_topics();
        *heard.lock().unwrap() = Some((refused, timed_out));
    }));
    future.wait(Some(WATCHDOG)).unwrap();
    let (refused, timed_out) = said.lock().unwrap().take().expect("it was called");
    assert!(matches!(refused, Err(ClientError::Invalid(_))));
    assert!(timed_out.is_err_and(|error| error.is_timeout()));
}

#[test]
fn a_server_that_is_not_there_is_told_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let _server = start(directory.path(), "tcp://127.0.0.1:0");
    let endpoint = Endpoint::address("inproc://nowhere");
    let options = DriverOptions {
        connect_timeout: Some(Duration::from_millis(50)),
        progress: Progress::Caller,
        ..DriverOptions::default()
    };
    let unreachable = Driver::connect(endpoint, options);
    assert!(
        matches!(unreachable, Err(ClientError::Unreachable { .. })),
        "{unreachable:?}"
    );
}

#[test]
fn a_call_that_is_given_up_ends_at_once_and_gives_its_memory_back() {
    let ground = Ground::new();
    let (driver, topic) = (&ground.driver, &ground.topic);
    // The server waits for an event that does not come.
    let fetch = topic.begin_fetch(FetchRequest {
        partition: PartitionIndex(0),
        from: Position {
            incarnation: Incarnation(0),
            offset: Offset(0),
        },
        bytes_max: 1000,
        wait_max: Duration::from_secs(3600),
        inline_data: false,
    });
    settle(driver);
    fetch.cancel();
    let outcome = fetch.wait();
    assert!(
        matches!(outcome, Err(ClientError::Cancelled)),
        "{:?}",
        outcome.err()
    );
    // The driver is as it was.
    assert!(driver.topic_exists("events").unwrap());
}

/// Counts the buffers that are lent.
struct Lent(Vec<u8>, Arc<AtomicUsize>);

impl Lent {
    fn bytes(lent: &Arc<AtomicUsize>) -> Bytes {
        lent.fetch_add(1, Ordering::Relaxed);
        Bytes::from_owner(Self(vec![3; 1 << 20], lent.clone()))
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn an_event_that_is_not_sent_can_be_taken_back() {
    let ground = Ground::new();
    let topic = &ground.topic;
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let lent = Arc::new(AtomicUsize::new(0));
    let told = Arc::new(Mutex::new(Vec::new()));
    // Nobody drives, so nothing is sent.
    let futures: Vec<PushFuture> = (0..6u32)
        .map(|index| {
            let text = index.to_string();
            let mut event = Event::new(text.as_bytes());
            event.key = Some(text.as_bytes());
            if index % 2 == 1 {
                event = event.with_data(Lent::bytes(&lent));
            }
            let future = producer.push(event).unwrap();
            let told = told.clone();
            future.on_done(Box::new(move || told.lock().unwrap().push(index)));
            future
        })
        .collect();
    assert_eq!(lent.load(Ordering::Relaxed), 3);
    let held = producer.held_bytes();
    assert!(producer.cancel(&futures[3]));
    assert_eq!(
        lent.load(Ordering::Relaxed),
        2,
        "its memory is free at once"
    );
    assert!(producer.cancel(&futures[0]));
    assert!(!producer.cancel(&futures[0]), "once");
    for index in [0, 3] {
        let outcome = futures[index].wait(Some(Duration::ZERO));
        assert!(matches!(outcome, Err(ClientError::Cancelled)));
    }
    assert_eq!(*told.lock().unwrap(), [3, 0]);
    assert!(futures[1].try_get().is_none());
    let after = producer.push_metadata(b"6").unwrap();
    producer.flush(WATCHDOG).unwrap();
    assert!(held > 0 && producer.held_bytes() == 0);
    assert_eq!(lent.load(Ordering::Relaxed), 0);
    assert_eq!(*told.lock().unwrap(), [3, 0, 1, 2, 4, 5]);
    let stored = [(1, 0), (2, 1), (4, 2), (5, 3)];
    for (index, offset) in stored {
        let id = futures[index].try_get().unwrap().unwrap();
        assert_eq!(id.offset, Offset(offset), "event {index}");
    }
    assert_eq!(after.try_get().unwrap().unwrap().offset, Offset(4));
    assert!(!producer.cancel(&futures[1]), "it is stored");
    assert!(futures[1].try_get().unwrap().is_ok());
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    for index in [1, 2, 4, 5, 6] {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
        let text = index.to_string();
        assert_eq!(event.metadata(), text.as_bytes());
        assert_eq!(event.key(), (index != 6).then_some(text.as_bytes()));
        assert_eq!(
            event.data_bytes_total(),
            if [1, 5].contains(&index) { 1 << 20 } else { 0 }
        );
    }
    assert!(consumer.pull(Some(Duration::ZERO)).unwrap().is_none());
}

#[test]
fn a_flush_waits_for_what_is_before_an_event_that_was_taken_back() {
    let ground = Ground::new();
    let (driver, topic) = (&ground.driver, &ground.topic);
    let options = ProducerOptions {
        batch: BatchPolicy {
            count_max: Some(1),
            linger: Linger::UntilFull,
            ..BatchPolicy::default()
        },
        batches_in_flight_max: 1,
        ..ProducerOptions::default()
    };
    let producer = topic.producer(options).unwrap();
    let first = producer.push_metadata(b"first").unwrap();
    // It is on its way, and its answer is not looked at.
    driver.progress(Duration::ZERO).unwrap();
    let second = producer.push_metadata(b"second").unwrap();
    let third = producer.push_metadata(b"third").unwrap();
    assert!(!producer.cancel(&first));
    let flush = producer.flush_future();
    assert!(producer.cancel(&third));
    assert!(producer.cancel(&second));
    if first.try_get().is_none() {
        assert!(flush.try_get().is_none(), "the first is not acknowledged");
    }
    run(driver, || flush.try_get().is_some());
    flush.try_get().unwrap().unwrap();
    assert_eq!(first.try_get().unwrap().unwrap().offset, Offset(0));
    let last = producer.push_metadata(b"last").unwrap();
    assert_eq!(last.wait(Some(WATCHDOG)).unwrap().offset, Offset(1));
}

/// Memory of a user's, who has something to push when it comes back.
struct Tells {
    bytes: Vec<u8>,
    producer: std::sync::Weak<Producer>,
    told: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Tells {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Tells {
    fn drop(&mut self) {
        let producer = self.producer.upgrade().expect("the test has it");
        assert!(producer.push_metadata(b"{}").is_err(), "it has failed");
        self.told.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn memory_of_what_fails_comes_back_where_its_owner_may_push() {
    let ground = Ground::new();
    let options = ProducerOptions {
        batches_in_flight_max: 1,
        ..ProducerOptions::default()
    };
    let producer = Arc::new(ground.topic.producer(options).unwrap());
    let told = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let tells = Tells {
            bytes: vec![1; 17 << 20],
            producer: Arc::downgrade(&producer),
            told: told.clone(),
        };
        // Each of them a batch; one is under way at most when all fail.
        let event = Event::new(b"{}").with_data(bytes::Bytes::from_owner(tells));
        producer.push(event).unwrap();
    }
    assert!(ground.driver.close(Duration::ZERO).is_err());
    assert_eq!(told.load(Ordering::SeqCst), 3);
}

#[test]
fn an_answer_that_is_there_at_once_is_told_where_a_callback_may_pull() {
    let ground = Ground::new();
    let driver = &ground.driver;
    let producer = ground.topic.producer(ProducerOptions::default()).unwrap();
    // With an allocator data is read when somebody pulls, not before.
    let options = ConsumerOptions {
        allocator: Some(Arc::new(|_, view| {
            Ok(Target::new(vec![0u8; view.bytes() as usize]))
        })),
        ..ConsumerOptions::default()
    };
    let consumer = ground.topic.consumer("reader", options);
    let consumer = Arc::new(consumer.unwrap());
    let (weak, news) = (Arc::downgrade(&consumer), Arc::new(AtomicUsize::new(0)));
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (told, over) = (news.clone(), is_over.clone());
    consumer.on_ready(Box::new(move || {
        told.fetch_add(1, Ordering::SeqCst);
        if let Some(consumer) = weak.upgrade()
            && over.load(Ordering::SeqCst)
        {
            let _ = consumer.pull(Some(Duration::ZERO));
        }
    }));
    let event = Event::new(b"{}").with_data(vec![1; 1 << 20]);
    producer.push(event).unwrap();
    producer.flush(WATCHDOG).unwrap();
    // The batch arrives, and nobody has looked at it yet.
    run(driver, || news.load(Ordering::SeqCst) > 0);
    settle(driver);
    driver.close(WATCHDOG).unwrap();
    is_over.store(true, Ordering::SeqCst);
    // Its data can't be read any more, which is known at once.
    assert!(consumer.pull(Some(Duration::ZERO)).is_err());
}
