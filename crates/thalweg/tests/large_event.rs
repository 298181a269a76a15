//! An event of 5 GiB goes through a real server and back, within budgets.

mod rig;

use bytes::Bytes;
use client::{
    ConsumerOptions, Driver, DriverOptions, Endpoint, Event, EventDataRef, ProducerOptions,
};
use memory::Target;
use rig::{Rig, WATCHDOG};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use topic::Definition;
use wire::message::PartitionStorage;

const PIECES: usize = 80;
const PIECE_BYTES: usize = 64 << 20;
const EVENT_BYTES: u64 = PIECES as u64 * PIECE_BYTES as u64;
/// What server and client may hold beyond the callers' buffers: their
/// budgets' defaults are above it, what a transfer needs is far below.
const OWN_BYTES_MAX: u64 = 256 << 20;

/// The bytes of all pieces: each piece begins at another place in them.
fn pattern() -> Bytes {
    let mut state = 1u64;
    let words = (PIECE_BYTES + (1 << 20)) / 8;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        // The multiplier of Knuth's MMIX generator.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()
    })
    .take(words)
    .flatten()
    .collect();
    bytes.into()
}

fn piece(pattern: &Bytes, index: usize) -> Bytes {
    let start = index * 4099;
    pattern.slice(start..start + PIECE_BYTES)
}

/// Anonymous memory of a process, bytes.
fn anonymous_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The greatest anonymous memory of some processes while work goes on.
fn peaks(pids: [u32; 2], work: impl FnOnce()) -> [u64; 2] {
    let done = Arc::new(AtomicBool::new(false));
    let peaks = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let sampler = std::thread::spawn({
        let (done, peaks) = (done.clone(), peaks.clone());
        move || {
            while !done.load(Ordering::Relaxed) {
                for (pid, peak) in pids.iter().zip(peaks.iter()) {
                    peak.fetch_max(anonymous_bytes(*pid), Ordering::Relaxed);
                }
                // A sample now and then; nothing is waited for.
                std::thread::park_timeout(Duration::from_millis(20));
            }
        }
    });
    work();
    done.store(true, Ordering::Relaxed);
    sampler.thread().unpark();
    sampler.join().unwrap();
    [0, 1].map(|index| peaks[index].load(Ordering::Relaxed))
}

#[test]
fn an_event_of_five_gibibytes_goes_through_and_back_within_budgets() {
    let rig = Rig::default();
    let free = rustix::fs::statvfs(rig.path("")).unwrap();
    if free.f_bavail * free.f_frsize < EVENT_BYTES + (1 << 30) {
        eprintln!("skipped: the disk has no room for an event of {EVENT_BYTES} bytes");
        return;
    }
    let server = rig.serve(&[]);
    let pids = [server.pid(), std::process::id()];
    let driver = Driver::connect(
        Endpoint::GroupFile(rig.group_file()),
        DriverOptions::default(),
    );
    let driver = driver.unwrap();
    let storage = PartitionStorage {
        kind: "disk".to_owned(),
        config: String::new(),
    };
    let topic = driver
        .create_topic("large", &Definition::default(), &[storage])
        .unwrap();
    let pattern = pattern();

    let before = anonymous_bytes(pids[1]);
    let producing = peaks(pids, || {
        let producer = topic.producer(ProducerOptions::default()).unwrap();
        let data: Vec<Bytes> = (0..PIECES).map(|index| piece(&pattern, index)).collect();
        let event = Event {
            data,
            ..Event::new(b"{\"size\":\"5 GiB\"}")
        };
        producer.push(event).unwrap().wait(Some(WATCHDOG)).unwrap();
    });
    assert!(
        producing[0] < OWN_BYTES_MAX,
        "the server held {} bytes",
        producing[0]
    );
    assert!(
        producing[1] - before < OWN_BYTES_MAX,
        "the producer held {} bytes",
        producing[1] - before
    );

    let before = anonymous_bytes(pids[1]);
    let consuming = peaks(pids, || {
        let allocator = |_: &client::EventInfo<'_>, view: &wire::view::DataView| {
            Ok(Target::new(vec![0u8; view.bytes() as usize]))
        };
        let options = ConsumerOptions {
            allocator: Some(Arc::new(allocator)),
            ..Default::default()
        };
        let consumer = topic.consumer("reader", options).unwrap();
        let mut event = consumer
            .pull(Some(WATCHDOG))
            .unwrap()
            .expect("the event comes");
        assert_eq!(event.data_bytes_total(), EVENT_BYTES);
        assert!(matches!(event.data(), EventDataRef::Allocated(_)));
        let data: Vec<u8> = event.take_target().unwrap().into_owner();
        assert_eq!(data.len() as u64, EVENT_BYTES);
        for (index, bytes) in data.chunks(PIECE_BYTES).enumerate() {
            assert!(
                bytes == &piece(&pattern, index)[..],
                "piece {index} came back changed"
            );
        }
        consumer.acknowledge(event.id()).unwrap();
        consumer.close().unwrap();
    });
    assert!(
        consuming[0] < OWN_BYTES_MAX,
        "the server held {} bytes",
        consuming[0]
    );
    let held = consuming[1] - before - EVENT_BYTES.min(consuming[1] - before);
    assert!(
        held < OWN_BYTES_MAX,
        "the consumer held {held} bytes beside its buffer"
    );
    driver.close(WATCHDOG).unwrap();
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
}
