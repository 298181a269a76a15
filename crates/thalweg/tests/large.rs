//! An event larger than all memory that anybody is given for it. Its process has no other test, whose memory would count.

mod rig;

use client::{DataWanted, Definition, Driver, DriverOptions, Durability, Endpoint, Event};
use client::{PartitionStorage, ProducerOptions, Target};
use memory::Buffer;
use rig::Rig;
use std::time::Duration;
use wire::view::DataView;

/// Five gibibytes may take a slow disk that long.
const PATIENCE: Duration = Duration::from_secs(600);
const PIECE_BYTES: u64 = 64 << 20;
const PIECES: u64 = 80;
const DATA_BYTES: u64 = PIECE_BYTES * PIECES;
/// Each piece begins this much further in the pattern.
const STEP: u64 = 4096 * 7 + 1;
/// What else is written meanwhile.
const SPARE_BYTES: u64 = 1 << 30;
const SERVER_MEMORY: &str = "256MiB";
const SERVER_MEMORY_BYTES: u64 = 256 << 20;
/// The program itself, its threads' stacks and allocators.
const PROCESS_BYTES: u64 = 64 << 20;

const _: () = assert!(DATA_BYTES == 5 << 30);

#[test]
fn five_gibibytes_go_through_and_back_within_the_budgets() {
    let rig = Rig::default();
    // Without space the producer waits for some, as long as it has patience.
    let space = rustix::fs::statvfs(rig.path("")).unwrap();
    let free = space.f_bavail * space.f_frsize;
    assert!(
        free > DATA_BYTES + SPARE_BYTES,
        "five gibibytes and one more have to be free in {}, and {free} bytes are",
        rig.path("").display()
    );
    let server = rig.serve(&["--memory-bytes-max", SERVER_MEMORY]);
    let options = DriverOptions {
        request_timeout: PATIENCE,
        ..DriverOptions::default()
    };
    let driver = Driver::connect(Endpoint::GroupFile(rig.group_file()), options).unwrap();
    let definition = Definition::builder()
        .durability(Durability::Written)
        .build()
        .unwrap();
    let storage = PartitionStorage {
        kind: "disk".to_owned(),
        config: String::new(),
    };
    let topic = driver
        .create_topic("large", &definition, &[storage])
        .unwrap();

    let pattern: bytes::Bytes = (0..PIECE_BYTES + STEP * PIECES)
        .map(|at| ((at * at) >> 11) as u8)
        .collect::<Vec<_>>()
        .into();
    let piece =
        |index: u64| pattern.slice((index * STEP) as usize..(index * STEP + PIECE_BYTES) as usize);
    let before = anonymous_bytes_most(std::process::id());
    let producer = topic
        .producer(ProducerOptions {
            ack_timeout: PATIENCE,
            ..ProducerOptions::default()
        })
        .unwrap();
    let event = Event {
        data: (0..PIECES).map(piece).collect(),
        ..Event::new(b"{}")
    };
    let id = producer.push(event).unwrap().wait(Some(PATIENCE)).unwrap();
    producer.close(PATIENCE).unwrap();

    let fetched = topic
        .fetch(
            id.partition,
            client::Position {
                incarnation: id.incarnation,
                offset: id.offset,
            },
            1 << 20,
            PATIENCE,
            true,
        )
        .unwrap();
    assert_eq!(
        fetched.events().next().unwrap().data_bytes_total(),
        DATA_BYTES
    );
    let mut target = Target::from(Buffer::zeroed(PIECE_BYTES as usize));
    for index in 0..PIECES {
        let part = DataView::whole(DATA_BYTES)
            .range(index * PIECE_BYTES, PIECE_BYTES)
            .unwrap();
        let wanted = DataWanted {
            partition: id.partition,
            incarnation: id.incarnation,
            offset: id.offset,
            segments: part.segments().to_vec(),
        };
        let mut read = topic.read_data(&[wanted], vec![target]).unwrap();
        target = read.pop().unwrap();
        assert!(
            target.as_mut()[..] == piece(index)[..],
            "piece {index} differs"
        );
    }
    let grown = anonymous_bytes_most(std::process::id()) - before;
    assert!(
        grown < PIECE_BYTES * 2 + PROCESS_BYTES,
        "the client grew by {grown} bytes"
    );
    let held = anonymous_bytes_most(server.pid());
    assert!(
        held < SERVER_MEMORY_BYTES + PROCESS_BYTES,
        "the server held {held} bytes"
    );
    driver.close(PATIENCE).unwrap();
}

/// The most memory that a process has held; no files are mapped that matter.
fn anonymous_bytes_most(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}
