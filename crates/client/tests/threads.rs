//! The client with its own thread, against the scripted server in another
//! one, over the in-process transport.

use crate::fake;

use bytes::Bytes;
use client::*;
use fake::FakeServer;
use net::{Inproc, LinkOptions, Transport};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Against hangs only.
const WATCHDOG: Duration = Duration::from_secs(60);

/// A fake server on a thread of its own.
struct Running {
    server: Arc<Mutex<FakeServer>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    address: String,
}

impl Running {
    fn start() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let address = format!("inproc://client-threads-{count}");
        let listener = Inproc::new(LinkOptions::default())
            .listen(&address)
            .unwrap();
        let server = Arc::new(Mutex::new(FakeServer::new(listener)));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (server, stop) = (server.clone(), stop.clone());
            std::thread::spawn(move || {
                let me = std::thread::current();
                let notify: net::Notify = Arc::new(move || me.unpark());
                server.lock().unwrap().attach(&notify);
                while !stop.load(Ordering::SeqCst) {
                    if !server.lock().unwrap().turn(Some(&notify)) {
                        std::thread::park();
                    }
                }
            })
        };
        Self {
            server,
            stop,
            thread: Some(thread),
            address,
        }
    }

    fn connect(&self) -> Driver {
        Driver::connect(Endpoint::address(&self.address), DriverOptions::default()).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let thread = self.thread.take().unwrap();
        thread.thread().unpark();
        thread.join().unwrap();
    }
}

fn topic(driver: &Driver, partitions: usize) -> TopicHandle {
    let definition = Definition::builder()
        .validator(topic::ValidatorKind::None)
        .build()
        .unwrap();
    let storage = PartitionStorage {
        kind: "memory".into(),
        config: String::new(),
    };
    driver
        .create_topic("events", &definition, &vec![storage; partitions])
        .unwrap()
}

#[test]
fn many_events_from_several_threads_arrive_once_and_in_order() {
    let running = Running::start();
    let driver = running.connect();
    let topic = topic(&driver, 2);
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    const THREADS: usize = 3;
    const EVENTS: usize = 5000;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let producer = &producer;
            scope.spawn(move || {
                for index in 0..EVENTS {
                    let text = format!("{thread} {index}");
                    let event = Event {
                        metadata: text.as_bytes(),
                        partition: Some(thread as u32 % 2),
                        ..Event::default()
                    };
                    producer.push(event).unwrap();
                }
            });
        }
    });
    producer.flush(WATCHDOG).unwrap();
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    let mut next = [0; THREADS];
    for _ in 0..THREADS * EVENTS {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().expect("an event");
        let text = std::str::from_utf8(event.metadata()).unwrap();
        let (thread, index) = text.split_once(' ').unwrap();
        let (thread, index): (usize, usize) = (thread.parse().unwrap(), index.parse().unwrap());
        assert_eq!(next[thread], index);
        next[thread] += 1;
        consumer.acknowledge(event.id()).unwrap();
    }
    assert_eq!(next, [EVENTS; THREADS]);
    assert!(consumer.pull(Some(Duration::ZERO)).unwrap().is_none());
    consumer.close().unwrap();
    let cursors = driver.cursors(&topic, "reader").unwrap();
    let ends: Vec<u64> = cursors.iter().map(|one| one.position.offset.0).collect();
    assert_eq!(ends, [2 * EVENTS as u64, EVENTS as u64]);
}

#[test]
fn dropping_everything_drains_what_was_pushed() {
    let running = Running::start();
    {
        let driver = running.connect();
        let topic = topic(&driver, 1);
        let options = ProducerOptions {
            batch: BatchPolicy {
                linger: Linger::UntilFull,
                ..BatchPolicy::default()
            },
            ..ProducerOptions::default()
        };
        let producer = topic.producer(options).unwrap();
        for index in 0..100u32 {
            producer.push_metadata(&index.to_le_bytes()).unwrap();
        }
    }
    let mut server = running.server.lock().unwrap();
    assert_eq!(server.partition("events", 0).events.len(), 100);
}

#[test]
fn large_data_goes_out_from_where_it_lies_and_comes_back_selected() {
    let running = Running::start();
    let driver = running.connect();
    let topic = topic(&driver, 1);
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let data: Vec<u8> = (0..3_000_000u32).map(|index| (index / 7) as u8).collect();
    let data = Bytes::from(data);
    let event = Event {
        metadata: b"frame",
        data: vec![data.slice(..1_000_001), data.slice(1_000_001..)],
        ..Event::default()
    };
    let id = producer.push(event).unwrap().wait(Some(WATCHDOG)).unwrap();
    let selector = |info: &EventInfo<'_>| {
        let whole = DataView::whole(info.data_bytes_total());
        let stride = Stride {
            offset: 10,
            count: 1000,
            block_bytes: 100,
            gap_bytes: 2000,
        };
        whole.stride(stride).map_err(|error| error.to_string())
    };
    let options = ConsumerOptions {
        data: DataMode::Select(Arc::new(selector)),
        allocator: Some(Arc::new(|_, view| {
            Ok(Target::new(vec![0u8; view.bytes() as usize]))
        })),
        ..ConsumerOptions::default()
    };
    let consumer = topic.consumer("reader", options).unwrap();
    let mut event = consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
    assert_eq!(event.id(), id);
    assert_eq!(event.data_bytes_total(), 3_000_000);
    let rows: Vec<u8> = event.take_target().unwrap().into_owner();
    let expected: Vec<u8> = (0..1000)
        .flat_map(|row| data[10 + row * 2100..][..100].to_vec())
        .collect();
    assert_eq!(rows, expected);
    // All of it, without an allocator, by another consumer.
    let all = topic.consumer("all", ConsumerOptions::default()).unwrap();
    let mut event = all.pull(Some(WATCHDOG)).unwrap().unwrap();
    assert_eq!(event.take_data(), data);
}

#[test]
fn a_full_budget_blocks_until_there_is_space_or_the_deadline() {
    let running = Running::start();
    let driver = running.connect();
    let topic = topic(&driver, 1);
    let options = |timeout| ProducerOptions {
        budget_bytes: 200_000,
        at_budget: AtBudget::Block(timeout),
        batch: BatchPolicy {
            linger: Linger::UntilFull,
            ..BatchPolicy::default()
        },
        ..ProducerOptions::default()
    };
    // Many times the budget goes through, because what gathers is sent at the bound.
    let producer = topic.producer(options(WATCHDOG)).unwrap();
    for _ in 0..3000 {
        producer.push_metadata(&[7; 1000]).unwrap();
        assert!(producer.held_bytes() <= 200_000);
    }
    producer.close(WATCHDOG).unwrap();
    let producer = topic.producer(options(Duration::from_millis(20))).unwrap();
    running.server.lock().unwrap().is_silent = true;
    let error = (0..1000)
        .find_map(|_| producer.push_metadata(&[7; 1000]).err())
        .expect("the budget ends");
    assert!(error.is_timeout(), "{error}");
    let text = error.to_string();
    for part in [
        "budget_bytes",
        "200000",
        "events",
        "inproc://",
        "last sign of life",
    ] {
        assert!(text.contains(part), "{text}");
    }
    running.server.lock().unwrap().is_silent = false;
    driver.close(Duration::ZERO).unwrap_err();
}

#[test]
fn callbacks_and_wakers_are_told_once_for_each_event() {
    let running = Running::start();
    let driver = running.connect();
    let topic = topic(&driver, 1);
    let producer = Arc::new(topic.producer(ProducerOptions::default()).unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    for index in 0..100u32 {
        let future = producer.push_metadata(&index.to_le_bytes()).unwrap();
        let (result, tell, producer) = (future.clone(), tell.clone(), producer.clone());
        future.on_done(Box::new(move || {
            let id = result.try_get().unwrap().unwrap();
            tell.send((index, id.offset.0)).unwrap();
            // The last owner may go in a callback: nothing is waited for there.
            drop(producer);
        }));
    }
    for index in 0..100 {
        assert_eq!(
            told.recv_timeout(WATCHDOG).unwrap(),
            (index, u64::from(index))
        );
    }
    // As futures, without any executor's help.
    let future = producer.push_metadata(b"awaited").unwrap();
    let id = block_on(future).unwrap();
    assert_eq!(id.offset.0, 100);
    block_on(producer.flush_future()).unwrap();
    drop(producer);
}

/// Polls a future whenever its waker says so.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn what_was_acknowledged_is_sent_when_everything_closes() {
    let running = Running::start();
    let driver = running.connect();
    let topic = topic(&driver, 1);
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    producer.push_metadata(b"x").unwrap();
    producer.flush(WATCHDOG).unwrap();
    let options = ConsumerOptions {
        acknowledge_interval: WATCHDOG,
        ..ConsumerOptions::default()
    };
    let consumer = topic.consumer("reader", options).unwrap();
    let event = consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
    consumer.acknowledge(event.id()).unwrap();
    driver.close(WATCHDOG).unwrap();
    let again = running.connect();
    let topic = again.open_topic("events").unwrap();
    let cursors = again.cursors(&topic, "reader").unwrap();
    assert_eq!(cursors[0].position.offset.0, 1);
}

/// Every wait, with a timeout that no clock can tell.
#[test]
fn a_timeout_without_an_end_is_for_ever() {
    const EVER: Duration = Duration::MAX;
    let running = Running::start();
    let options = DriverOptions {
        connect_timeout: Some(EVER),
        request_timeout: EVER,
        ..DriverOptions::default()
    };
    let driver = Driver::connect(Endpoint::address(&running.address), options).unwrap();
    let topic = topic(&driver, 1);
    let options = ProducerOptions {
        ack_timeout: EVER,
        at_budget: AtBudget::Block(EVER),
        budget_bytes: 2_000,
        batch: BatchPolicy {
            linger: Linger::Wait(EVER),
            ..BatchPolicy::default()
        },
        ..ProducerOptions::default()
    };
    let producer = topic.producer(options).unwrap();
    // More than the budget: later ones wait for the acks of earlier ones.
    let text = [b'x'; 500];
    let futures: Vec<PushFuture> = (0..20)
        .map(|_| producer.push_metadata(&text).unwrap())
        .collect();
    producer.flush(EVER).unwrap();
    futures[0].wait(Some(EVER)).unwrap();
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    let event = consumer.pull(Some(EVER)).unwrap().unwrap();
    let from = Position {
        incarnation: event.id().incarnation,
        offset: event.id().offset,
    };
    consumer.acknowledge(event.id()).unwrap();
    consumer.flush_acknowledgements(EVER).unwrap();
    consumer.seek(PartitionIndex(0), from).unwrap();
    assert_eq!(
        consumer.pull_batch(20, Some(EVER)).unwrap()[0].id(),
        event.id()
    );
    let fetched = topic
        .fetch(PartitionIndex(0), from, 1000, EVER, true)
        .unwrap();
    assert_eq!(fetched.events().next().unwrap().id(), event.id());
    consumer.close().unwrap();
    producer.close(EVER).unwrap();
    driver.close(EVER).unwrap();
}

#[test]
fn a_callback_that_panics_harms_nobody_else() {
    let running = Running::start();
    let driver = running.connect();
    let topic = topic(&driver, 1);
    let producer = topic.producer(ProducerOptions::default()).unwrap();
    let consumer = topic
        .consumer("reader", ConsumerOptions::default())
        .unwrap();
    consumer.on_ready(Box::new(|| panic!("a mistake of the user's")));
    let future = producer.push_metadata(b"x").unwrap();
    // If it is acknowledged already, the panic is this thread's.
    let told = std::panic::AssertUnwindSafe(|| {
        future.on_done(Box::new(|| panic!("another one")));
    });
    let _ = std::panic::catch_unwind(told);
    let later = producer.push_metadata(b"y").unwrap();
    later.wait(Some(WATCHDOG)).unwrap();
    future.wait(Some(WATCHDOG)).unwrap();
    for expected in [b"x", b"y"] {
        let event = consumer.pull(Some(WATCHDOG)).unwrap().unwrap();
        assert_eq!(event.metadata(), expected);
    }
    driver.close(WATCHDOG).unwrap();
}
