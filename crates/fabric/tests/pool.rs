//! Memory that is sent from where it lies.

use bytes::Bytes;
use fabric::{Shm, ShmOptions};
use memory::Buffer;
use net::{
    BulkToken, Lane, Link, LinkEvent, Message, Received, RegionRead, SourceReady, Transport,
};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wire::checksum::block_checksums;
use wire::frame::FrameKind;

/// Long enough for anything that works at all.
const WATCHDOG: Duration = Duration::from_secs(60);

struct Pair {
    client: Box<dyn Link>,
    server: Box<dyn Link>,
    came: Vec<LinkEvent>,
    _directory: TempDir,
}

impl Pair {
    fn connect(shm: &Shm) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("shm://{}/socket", directory.path().display());
        let mut listener = shm.listen(&address).unwrap();
        let client = shm.connect(&address).unwrap();
        let server = listener.accept().unwrap().unwrap();
        let mut pair = Self {
            client,
            server,
            came: Vec::new(),
            _directory: directory,
        };
        // The handshake takes a few turns.
        pair.until(|came| !came.is_empty());
        pair.turn();
        pair.came.clear();
        pair
    }

    /// Both sides once; what comes of the server's is kept.
    fn turn(&mut self) {
        for link in [&mut self.client, &mut self.server] {
            link.source_ready(SourceReady::ALL);
        }
        while self.client.poll().is_some() {}
        while let Some(event) = self.server.poll() {
            self.came.push(event);
        }
    }

    fn until(&mut self, done: impl Fn(&[LinkEvent]) -> bool) {
        let began = Instant::now();
        while !done(&self.came) {
            self.turn();
            assert!(
                began.elapsed() < WATCHDOG,
                "waited in vain: {:?}",
                self.came
            );
        }
    }

    fn messages(&self) -> Vec<&Received> {
        let messages = self.came.iter().filter_map(|event| match event {
            LinkEvent::Message(received) => Some(received),
            _ => None,
        });
        messages.collect()
    }
}

fn shm() -> Shm {
    Shm::new(ShmOptions {
        // Whatever comes by reference comes from the pool.
        refer_bytes_min: usize::MAX,
        report: std::sync::Arc::new(|line| panic!("{line}")),
        ..ShmOptions::default()
    })
}

/// A frozen buffer of the pool, filled with a pattern.
fn filled(shm: &Shm, bytes: usize, seed: u8) -> Bytes {
    let mut buffer = shm.allocate(bytes).expect("there is space");
    assert_eq!(buffer.len(), bytes);
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = (at as u8).wrapping_mul(31).wrapping_add(seed);
    }
    buffer.freeze()
}

fn message(id: u64, payload: Vec<Bytes>) -> Message {
    Message {
        payload,
        lane: Lane::Bulk,
        ..Message::control(FrameKind::Request, id, Bytes::new())
    }
}

#[test]
fn messages_from_the_pool_arrive_whole_and_copy_nothing_here() {
    let shm = shm();
    let mut pair = Pair::connect(&shm);
    let sizes = [4096, 100_000, 1 << 20, 20 << 20, 40 << 20];
    let sent: Vec<Bytes> = (0u8..)
        .zip(sizes)
        .map(|(seed, bytes)| filled(&shm, bytes, seed))
        .collect();
    for (id, bytes) in (0..).zip(&sent) {
        // Ordinary memory among it, and parts of buffers.
        let middle = bytes.len() / 2;
        let pieces = vec![
            Bytes::from(vec![7; 5000]),
            bytes.slice(..middle),
            bytes.slice(middle..),
        ];
        pair.client.send(message(id, pieces));
    }
    pair.until(|came| came.len() == sizes.len());
    for (received, bytes) in pair.messages().into_iter().zip(&sent) {
        assert!(received.payload[..5000] == [7; 5000]);
        assert!(received.payload[5000..] == bytes[..]);
    }
}

#[test]
fn memory_is_not_used_again_before_it_was_read() {
    let shm = shm();
    let mut pair = Pair::connect(&shm);
    const COUNT: u64 = 200;
    for id in 0..COUNT {
        // Dropped here, and taken again by the next one if it were free.
        pair.client
            .send(message(id, vec![filled(&shm, 200_000, id as u8)]));
        while pair.client.poll().is_some() {}
        if id % 7 == 0 {
            pair.turn();
        }
    }
    pair.until(|came| came.len() as u64 == COUNT);
    for received in pair.messages() {
        let expected =
            (0..200_000usize).map(|at| (at as u8).wrapping_mul(31).wrapping_add(received.id as u8));
        assert!(
            received.payload.iter().copied().eq(expected),
            "{}",
            received.id
        );
    }
}

#[test]
fn exposed_memory_of_the_pool_is_read_with_its_owners_checksums() {
    let shm = shm();
    let mut pair = Pair::connect(&shm);
    let data = filled(&shm, 3_000_000, 9);
    let region = pair.client.expose(data.clone());
    for token in 0..5usize {
        let read = RegionRead {
            region: region.clone(),
            offset: token as u64 * 500_000,
            into: Buffer::zeroed(500_000),
            block_bytes: 4096,
        };
        pair.server.read(BulkToken(token as u64), read);
    }
    pair.until(|came| came.len() == 5);
    for event in &pair.came {
        let LinkEvent::ReadDone { token, result } = event else {
            panic!("{event:?}");
        };
        let (buffer, checksums) = result.as_ref().unwrap();
        let at = token.0 as usize * 500_000;
        assert!(buffer[..] == data[at..at + 500_000]);
        assert!(block_checksums(buffer, 4096).eq(checksums.iter().copied()));
    }
}

#[test]
fn without_a_pool_there_is_ordinary_memory() {
    let shm = Shm::new(ShmOptions {
        pool_bytes_max: 0,
        ..ShmOptions::default()
    });
    assert!(shm.allocate(100).is_none());
    let transports = net::Transports::new().with(shm);
    let mut buffer = transports.allocate("shm:///anywhere", 100);
    buffer.fill(3);
    assert_eq!(buffer.freeze(), [3; 100][..]);
    assert_eq!(transports.allocate("", 7).len(), 7);
}
