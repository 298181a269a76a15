//! What every transport has to do, as tests that run for each of them.
//!
//! An implementation is handed in as a [`Place`]; [`check_all`] runs every
//! test. A test drives both sides of a connection in one thread.

use crate::contract::*;
use bytes::Bytes;
use memory::{Buffer, Target};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::checksum::block_checksums;
use wire::frame::{BULK_CHUNK_BYTES, FrameKind, HEAD_BYTES_MAX};
use wire::message::Region;

/// Where a transport is tested.
pub trait Place {
    /// The transport. Its links should take payloads of no less than 4 MiB
    /// and not much more: one test sends a payload above the limit.
    fn transport(&self) -> &dyn Transport;

    /// An address at which nobody listens, another one every time.
    fn fresh_address(&mut self) -> String;

    /// Lets time pass, when nothing more can be done without: a moment for
    /// real transports, until the next thing happens for simulated ones.
    fn idle(&mut self);
}

/// A transport of the operating system, where time passes by itself.
pub struct Real<T> {
    /// The transport.
    pub transport: T,
    /// Gives addresses at which nobody listens, another one every time.
    pub addresses: Box<dyn FnMut() -> String>,
}

impl<T: Transport> Real<T> {
    /// At sockets in `directory`, which stays the caller's.
    pub fn in_directory(transport: T, directory: &Path) -> Self {
        let prefix = format!("{}://{}", transport.scheme(), directory.display());
        let mut count = 0;
        let addresses = Box::new(move || {
            count += 1;
            format!("{prefix}/{count}.sock")
        });
        Self {
            transport,
            addresses,
        }
    }

    /// At names of this process's, which begin with `prefix`.
    pub fn named(transport: T, prefix: &'static str) -> Self {
        let mut count = 0;
        let addresses = Box::new(move || {
            count += 1;
            format!("inproc://{prefix}-{count}")
        });
        Self {
            transport,
            addresses,
        }
    }
}

impl<T: Transport> Place for Real<T> {
    fn transport(&self) -> &dyn Transport {
        &self.transport
    }

    fn fresh_address(&mut self) -> String {
        (self.addresses)()
    }

    fn idle(&mut self) {
        std::thread::yield_now();
    }
}

/// Runs every test of this suite at `place`.
pub fn check_all(place: &mut dyn Place) {
    type Check = fn(&mut dyn Place);
    let checks: [(&str, Check); 16] = [
        ("up_comes_first", up_comes_first),
        ("messages_arrive_whole", messages_arrive_whole),
        ("a_flood_of_small_messages", a_flood_of_small_messages),
        (
            "a_flush_sends_and_takes_nothing_in",
            a_flush_sends_and_takes_nothing_in,
        ),
        ("control_overtakes_bulk", control_overtakes_bulk),
        (
            "reads_bring_bytes_and_checksums",
            reads_bring_bytes_and_checksums,
        ),
        ("bad_reads_are_answered", bad_reads_are_answered),
        ("many_reads_at_once", many_reads_at_once),
        (
            "writes_come_before_what_follows",
            writes_come_before_what_follows,
        ),
        ("writes_to_reclaimed_memory", writes_to_reclaimed_memory),
        ("cancelled_operations", cancelled_operations),
        ("closing_says_why", closing_says_why),
        ("a_dropped_link_is_noticed", a_dropped_link_is_noticed),
        ("a_dead_link_answers", a_dead_link_answers),
        ("nobody_there", nobody_there),
        ("payloads_above_the_limit", payloads_above_the_limit),
    ];
    for (name, check) in checks {
        eprintln!("{}: {name}", place.transport().scheme());
        check(place);
    }
}

/// One side of a connection, and what came of it.
pub(super) struct Side {
    pub(super) link: Box<dyn Link>,
    pub(super) events: Vec<LinkEvent>,
}

impl Side {
    pub(super) fn new(link: Box<dyn Link>) -> Self {
        let events = Vec::new();
        Self { link, events }
    }

    /// Polls until nothing more can be done. Whether anything came of it.
    pub(super) fn pump(&mut self) -> bool {
        let before = self.events.len();
        self.link.source_ready(SourceReady::ALL);
        loop {
            match self.link.poll() {
                Some(event) => self.events.push(event),
                None if self.link.is_due() => {}
                None => return self.events.len() > before,
            }
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.events.first(), Some(LinkEvent::Up))
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(self.events.last(), Some(LinkEvent::Down(_)))
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = &Received> {
        self.events.iter().filter_map(|event| match event {
            LinkEvent::Message(received) => Some(received),
            _ => None,
        })
    }

    /// Answers to reads and writes, in order: token and error, if any.
    pub(super) fn answers(&self) -> Vec<(u64, Option<NetError>)> {
        let answers = self.events.iter().filter_map(|event| match event {
            LinkEvent::ReadDone { token, result } => Some((token.0, result.as_ref().err())),
            LinkEvent::WriteDone { token, result } => Some((token.0, result.as_ref().err())),
            _ => None,
        });
        answers
            .map(|(token, error)| (token, error.cloned()))
            .collect()
    }

    pub(super) fn assert_down_is_last(&self) {
        let downs = self
            .events
            .iter()
            .filter(|event| matches!(event, LinkEvent::Down(_)));
        assert_eq!(downs.count(), 1, "one end");
        assert!(self.is_down(), "the end comes last: {:?}", self.events);
    }
}

/// Both sides of a connection: [0] connected, [1] accepted.
pub(super) struct Pair {
    pub(super) sides: [Side; 2],
    _listener: Box<dyn Listener>,
}

/// Long enough for anything that works at all.
pub(super) const WATCHDOG: Duration = Duration::from_secs(60);

fn until(
    place: &mut dyn Place,
    what: &str,
    mut progress: impl FnMut() -> bool,
    mut done: impl FnMut() -> bool,
) {
    let began = Instant::now();
    while !done() {
        if !progress() {
            place.idle();
        }
        assert!(began.elapsed() < WATCHDOG, "waited in vain: {what}");
    }
}

impl Pair {
    pub(super) fn connect(place: &mut dyn Place) -> Self {
        let mut pair = Self::begin(place);
        pair.until(place, "both sides up", |sides| {
            sides.iter().all(Side::is_up)
        });
        for side in &mut pair.sides {
            assert_eq!(side.events.len(), 1, "nothing but up: {:?}", side.events);
            side.events.clear();
        }
        pair
    }

    fn begin(place: &mut dyn Place) -> Self {
        let address = place.fresh_address();
        let mut listener = place.transport().listen(&address).expect("listening");
        let client = place.transport().connect(&listener.address());
        let mut client = Side::new(client.expect("connecting"));
        let mut accepted = None;
        let began = Instant::now();
        while accepted.is_none() {
            accepted = listener.accept().expect("accepting");
            if !client.pump() && accepted.is_none() {
                place.idle();
            }
            assert!(began.elapsed() < WATCHDOG, "waited in vain to accept");
        }
        let server = Side::new(accepted.expect("waited for it"));
        Self {
            sides: [client, server],
            _listener: listener,
        }
    }

    pub(super) fn until(
        &mut self,
        place: &mut dyn Place,
        what: &str,
        done: impl Fn(&[Side; 2]) -> bool,
    ) {
        let began = Instant::now();
        while !done(&self.sides) {
            let [a, b] = &mut self.sides;
            let (a, b) = (a.pump(), b.pump());
            if !a && !b && !done(&self.sides) {
                place.idle();
            }
            assert!(
                began.elapsed() < WATCHDOG,
                "waited in vain: {what}; {:?} {:?}",
                self.sides[0].events.last(),
                self.sides[1].events.last()
            );
        }
    }
}

pub(super) fn pattern(seed: u64, bytes: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out.into()
}

fn message(id: u64, lane: Lane, payload: Vec<Bytes>) -> Message {
    Message {
        kind: FrameKind::Request,
        flags: id as u8,
        id,
        head: pattern(id, (id % 50) as usize),
        payload,
        lane,
    }
}

fn up_comes_first(place: &mut dyn Place) {
    let pair = Pair::connect(place);
    for side in &pair.sides {
        assert!(!side.link.peer().address.is_empty());
        let capabilities = side.link.capabilities();
        assert!(capabilities.payload_bytes_max > 0);
        assert!(capabilities.memory_kinds.contains(&0), "host memory");
    }
    let address = pair._listener.address();
    assert!(address.starts_with(&format!("{}://", place.transport().scheme())));
    assert!(!address.ends_with(":0"), "{address} names the port");
    let taken = place.transport().listen(&address).err();
    assert!(matches!(taken, Some(NetError::Address(_))), "{taken:?}");
}

fn messages_arrive_whole(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let sizes = [
        0,
        1,
        31,
        4096,
        65_535,
        65_536,
        65_537,
        1 << 20,
        3 << 20,
        7,
        0,
    ];
    let mut expected = Vec::new();
    for (index, bytes) in sizes.into_iter().enumerate() {
        let id = index as u64;
        let payload = pattern(id, bytes);
        // In many pieces, some of them empty.
        let mut pieces: Vec<_> = payload
            .chunks(bytes / 100 + 1)
            .map(|piece| payload.slice_ref(piece))
            .collect();
        pieces.insert(pieces.len() / 2, Bytes::new());
        for side in &mut pair.sides {
            side.link.send(message(id, Lane::Bulk, pieces.clone()));
        }
        expected.push((id, payload));
    }
    let long_head = pattern(77, HEAD_BYTES_MAX as usize);
    for side in &mut pair.sides {
        let head = long_head.clone();
        side.link.send(Message {
            lane: Lane::Bulk,
            ..Message::control(FrameKind::Deliver, 77, head)
        });
    }
    let count = expected.len() + 1;
    pair.until(place, "all messages", |sides| {
        sides.iter().all(|side| side.events.len() == count)
    });
    for side in &pair.sides {
        let mut received = side.messages();
        for (id, payload) in &expected {
            let received = received.next().expect("as many as were sent");
            assert_eq!(received.id, *id);
            assert_eq!(received.flags, *id as u8);
            assert_eq!(received.kind, FrameKind::Request);
            assert_eq!(received.head, pattern(*id, (*id % 50) as usize));
            assert!(received.payload[..] == payload[..], "payload of {id}");
        }
        let last = received.next().expect("the one with the long head");
        assert_eq!((last.id, last.kind), (77, FrameKind::Deliver));
        assert!(last.head == long_head && last.payload.is_empty());
        assert_eq!(side.link.queued_bytes(), 0);
    }
}

fn a_flood_of_small_messages(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    const COUNT: u64 = 5000;
    for id in 0..COUNT {
        for side in &mut pair.sides {
            let payload = vec![pattern(id, (id % 700) as usize)];
            side.link.send(message(id, Lane::Control, payload));
        }
    }
    pair.until(place, "all messages", |sides| {
        sides.iter().all(|side| side.events.len() as u64 == COUNT)
    });
    for side in &pair.sides {
        for (id, received) in side.messages().enumerate() {
            assert_eq!(received.id, id as u64);
            assert!(received.payload[..] == pattern(received.id, id % 700)[..]);
        }
    }
}

fn a_flush_sends_and_takes_nothing_in(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    for id in 0..100 {
        let [client, server] = &mut pair.sides;
        server.link.send(message(id, Lane::Control, Vec::new()));
        server.pump();
        client.link.source_ready(SourceReady::ALL);
        client
            .link
            .send(message(id, Lane::Bulk, vec![pattern(id, 300)]));
        if !client.link.flush() {
            // It does not do that, or not all of it.
            client.pump();
        }
        let began = Instant::now();
        while pair.sides[1].events.len() as u64 <= id {
            if !pair.sides[1].pump() {
                place.idle();
            }
            assert!(began.elapsed() < WATCHDOG, "what was flushed did not come");
        }
    }
    pair.until(place, "all messages", |sides| {
        sides.iter().all(|side| side.events.len() == 100)
    });
    for side in &pair.sides {
        assert!((0..100).eq(side.messages().map(|received| received.id)));
    }
}

fn control_overtakes_bulk(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let [client, server] = &mut pair.sides;
    let chunk = pattern(1, BULK_CHUNK_BYTES);
    const COUNT: u64 = 64;
    for id in 0..COUNT {
        client
            .link
            .send(message(id, Lane::Bulk, vec![chunk.clone()]));
    }
    // As far as it goes while the other side does nothing.
    client.pump();
    let queued = client.link.queued_bytes();
    client
        .link
        .send(Message::control(FrameKind::Heartbeat, 1000, Bytes::new()));
    assert!(server.events.is_empty());
    pair.until(place, "all messages", |sides| {
        sides[1].events.len() as u64 == COUNT + 1
    });
    let after: u64 = pair.sides[1]
        .messages()
        .skip_while(|received| received.id != 1000)
        .map(|received| received.payload.len() as u64)
        .sum();
    // What is queued counts headers and heads too.
    let fronts = COUNT * 100;
    assert!(
        after + fronts + BULK_CHUNK_BYTES as u64 >= queued,
        "{after} of {queued} queued bytes came after the control message"
    );
    let order: Vec<_> = pair.sides[1]
        .messages()
        .map(|received| received.id)
        .filter(|id| *id != 1000)
        .collect();
    assert!(order.is_sorted(), "bulk messages keep their order");
}

fn reads_bring_bytes_and_checksums(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let [client, server] = &mut pair.sides;
    let data = pattern(5, 3 * BULK_CHUNK_BYTES + 123);
    let region = client.link.expose(data.clone());
    assert_eq!(region.bytes, data.len() as u64);
    assert!(region.key.len() <= 256);
    let wanted = [
        (0, BULK_CHUNK_BYTES, 4096),
        (BULK_CHUNK_BYTES, BULK_CHUNK_BYTES, 65_536),
        (data.len() - 1, 1, 512),
        (12_345, 100_000, 0),
        (data.len(), 0, 4096),
        (3 * BULK_CHUNK_BYTES, 123, 4096),
    ];
    for (token, (offset, bytes, block_bytes)) in wanted.into_iter().enumerate() {
        let read = RegionRead {
            region: region.clone(),
            offset: offset as u64,
            into: Buffer::zeroed(bytes),
            block_bytes,
        };
        server.link.read(BulkToken(token as u64), read);
    }
    // A part of a region is a region too.
    let part = Region {
        base: 1000,
        bytes: 50,
        ..region.clone()
    };
    let read = RegionRead {
        region: part,
        offset: 10,
        into: Buffer::zeroed(40),
        block_bytes: 0,
    };
    server.link.read(BulkToken(99), read);
    pair.until(place, "all reads", |sides| {
        sides[1].events.len() == wanted.len() + 1
    });
    for event in &pair.sides[1].events {
        let LinkEvent::ReadDone { token, result } = event else {
            panic!("{event:?}");
        };
        let (buffer, checksums) = result.as_ref().expect("the region is there");
        if token.0 == 99 {
            assert!(buffer[..] == data[1010..1050] && checksums.is_empty());
            continue;
        }
        let (offset, bytes, block_bytes) = wanted[token.0 as usize];
        assert!(buffer[..] == data[offset..offset + bytes]);
        let expected: Vec<_> = match block_bytes {
            0 => Vec::new(),
            block_bytes => block_checksums(buffer, block_bytes).collect(),
        };
        assert_eq!(checksums, &expected);
    }
}

fn bad_reads_are_answered(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let [client, server] = &mut pair.sides;
    let region = client.link.expose(pattern(1, 1000));
    let gone = client.link.expose(pattern(2, 1000));
    client.link.withdraw(&gone);
    let longer = Region {
        bytes: 2000,
        ..region.clone()
    };
    let never = Region {
        key: Bytes::from_static(b"no such key"),
        ..region.clone()
    };
    let bad = [
        (gone, 0, 10),
        (region.clone(), 991, 10),
        (region.clone(), u64::MAX, 10),
        (longer, 1500, 10),
        (never, 0, 10),
        (region.clone(), 0, BULK_CHUNK_BYTES + 1),
    ];
    let count = bad.len();
    for (token, (region, offset, bytes)) in bad.into_iter().enumerate() {
        let read = RegionRead {
            region,
            offset,
            into: Buffer::zeroed(bytes),
            block_bytes: 0,
        };
        server.link.read(BulkToken(token as u64), read);
    }
    pair.until(place, "all answers", |sides| sides[1].events.len() == count);
    let mut answers = pair.sides[1].answers();
    answers.sort_by_key(|(token, _)| *token);
    for (index, (token, error)) in answers.into_iter().enumerate() {
        assert_eq!(token, index as u64);
        assert!(matches!(error, Some(NetError::Region(_))), "{error:?}");
    }
    // And the link goes on.
    let read = RegionRead {
        region,
        offset: 0,
        into: Buffer::zeroed(1000),
        block_bytes: 0,
    };
    pair.sides[1].events.clear();
    pair.sides[1].link.read(BulkToken(7), read);
    pair.until(place, "the good read", |sides| !sides[1].events.is_empty());
    assert_eq!(pair.sides[1].answers(), [(7, None)]);
}

fn many_reads_at_once(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let [client, server] = &mut pair.sides;
    let data = pattern(8, 10_000);
    let region = client.link.expose(data.clone());
    const COUNT: usize = 3000;
    for token in 0..COUNT {
        let read = RegionRead {
            region: region.clone(),
            offset: token as u64,
            into: Buffer::zeroed(100),
            block_bytes: 512,
        };
        server.link.read(BulkToken(token as u64), read);
    }
    pair.until(place, "all reads", |sides| sides[1].events.len() == COUNT);
    for event in &pair.sides[1].events {
        let LinkEvent::ReadDone { token, result } = event else {
            panic!("{event:?}");
        };
        let (buffer, _) = result.as_ref().expect("the region is there");
        let at = token.0 as usize;
        assert!(buffer[..] == data[at..at + 100]);
    }
}

fn writes_come_before_what_follows(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let [client, server] = &mut pair.sides;
    let bytes = 5 * BULK_CHUNK_BYTES + 77;
    let data = pattern(3, bytes);
    let told = Arc::new(Mutex::new(vec![0u8; bytes + 10]));
    let tell = told.clone();
    let target = Target::new(vec![0u8; bytes + 10]).with_on_landed(move |at, landed| {
        tell.lock().unwrap()[at..at + landed.len()].copy_from_slice(landed);
    });
    let region = client.link.lend(target);
    for (token, chunk) in data.chunks(BULK_CHUNK_BYTES).enumerate() {
        let chunk = data.slice_ref(chunk);
        let middle = chunk.len() / 3;
        let write = RegionWrite {
            region: region.clone(),
            offset: 5 + (token * BULK_CHUNK_BYTES) as u64,
            pieces: vec![chunk.slice(..middle), Bytes::new(), chunk.slice(middle..)],
        };
        server.link.write(BulkToken(token as u64), write);
    }
    let ordered = server.link.capabilities().ordered;
    assert!(ordered, "no transport of today lacks order");
    server.link.send(message(9, Lane::Bulk, Vec::new()));
    // Looked at as soon as the message is there, before the sender does more.
    let began = Instant::now();
    while !client.pump() {
        if !server.pump() {
            place.idle();
        }
        assert!(began.elapsed() < WATCHDOG, "waited in vain for the message");
    }
    let target = client.link.reclaim(&region).expect("was lent");
    let memory = target.into_owner::<Vec<u8>>();
    assert!(
        memory[5..5 + bytes] == data[..],
        "written before the message"
    );
    assert!(memory[..5] == [0; 5] && memory[5 + bytes..] == [0; 5]);
    // In one process the other side writes, and tells of nothing.
    if !pair.sides[0].link.peer().in_process {
        assert!(told.lock().unwrap()[..] == memory[..], "told of all of it");
    }
    assert!(pair.sides[0].link.reclaim(&region).is_none(), "only once");
    pair.until(place, "all writes answered", |sides| {
        sides[1].events.len() == 6
    });
    let expected: Vec<_> = (0..6).map(|token| (token, None)).collect();
    assert_eq!(pair.sides[1].answers(), expected);
}

fn writes_to_reclaimed_memory(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let [client, server] = &mut pair.sides;
    let region = client.link.lend(Target::new(vec![0u8; 100_000]));
    let write = |offset| RegionWrite {
        region: region.clone(),
        offset,
        pieces: vec![pattern(1, 100_000)],
    };
    // Outside of the region: known here, and answered.
    server.link.write(BulkToken(1), write(1));
    let target = client.link.reclaim(&region).expect("was lent");
    server.link.write(BulkToken(2), write(0));
    server.link.send(message(9, Lane::Bulk, Vec::new()));
    pair.until(place, "the message", |sides| {
        !sides[0].events.is_empty() && sides[1].events.len() == 2
    });
    assert!(target.into_owner::<Vec<u8>>().iter().all(|byte| *byte == 0));
    let mut answers = pair.sides[1].answers();
    answers.sort_by_key(|(token, _)| *token);
    assert!(matches!(answers[0], (1, Some(NetError::Region(_)))));
    assert_eq!(answers[1], (2, None), "lost, and nobody is to blame");
}

fn cancelled_operations(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let [client, server] = &mut pair.sides;
    let region = client.link.expose(pattern(1, 1000));
    let lent = client.link.lend(Target::new(vec![0u8; 1000]));
    for token in 0..4 {
        let read = RegionRead {
            region: region.clone(),
            offset: 0,
            into: Buffer::zeroed(1000),
            block_bytes: 0,
        };
        server.link.read(BulkToken(token), read);
        let write = RegionWrite {
            region: lent.clone(),
            offset: 0,
            pieces: vec![pattern(2, 1000)],
        };
        server.link.write(BulkToken(10 + token), write);
    }
    for token in [1, 11] {
        server.link.cancel(BulkToken(token));
        server.link.cancel(BulkToken(token));
    }
    // One more when it is under way, perhaps.
    server.pump();
    server.link.cancel(BulkToken(2));
    server.link.cancel(BulkToken(12));
    pair.until(place, "all answers", |sides| sides[1].events.len() >= 8);
    pair.sides[0].link.send(message(9, Lane::Bulk, Vec::new()));
    pair.until(place, "the message", |sides| {
        sides[1].messages().next().is_some()
    });
    let mut answers = pair.sides[1].answers();
    answers.sort_by_key(|(token, _)| *token);
    let tokens: Vec<_> = answers.iter().map(|(token, _)| *token).collect();
    assert_eq!(tokens, [0, 1, 2, 3, 10, 11, 12, 13], "one answer each");
    for (token, error) in answers {
        let cancelled = [1, 2, 11, 12].contains(&token);
        assert!(
            error.is_none() || (cancelled && error == Some(NetError::Cancelled)),
            "{token}: {error:?}"
        );
    }
}

fn closing_says_why(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let [client, server] = &mut pair.sides;
    server
        .link
        .send(Message::control(FrameKind::GoAway, 3, &b"why"[..]));
    // Sent before it is read, which must not make what is said to it vanish.
    client.link.send(message(1, Lane::Control, Vec::new()));
    client.pump();
    server.link.close("had enough");
    pair.until(place, "both sides down", |sides| {
        sides.iter().all(Side::is_down)
    });
    for side in &pair.sides {
        side.assert_down_is_last();
    }
    let [client, server] = &pair.sides;
    let last = client.messages().last().expect("what was said before");
    assert_eq!(
        (last.kind, &last.head[..]),
        (FrameKind::GoAway, &b"why"[..])
    );
    match server.events.last() {
        Some(LinkEvent::Down(NetError::Closed(reason))) => assert_eq!(reason, "had enough"),
        other => panic!("{other:?}"),
    }
}

fn a_dropped_link_is_noticed(place: &mut dyn Place) {
    let pair = Pair::connect(place);
    let [mut client, server] = pair.sides;
    drop(server);
    let down = std::cell::Cell::new(false);
    until(
        place,
        "the end",
        || {
            let moved = client.pump();
            down.set(client.is_down());
            moved
        },
        || down.get(),
    );
    client.assert_down_is_last();
    let end = client.events.last();
    assert!(
        matches!(end, Some(LinkEvent::Down(NetError::Closed(_)))),
        "{end:?}"
    );
}

fn a_dead_link_answers(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let [client, server] = &mut pair.sides;
    let exposed = client.link.expose(pattern(1, 1000));
    let lent = client.link.lend(Target::new(vec![0u8; 1000]));
    let read = || RegionRead {
        region: exposed.clone(),
        offset: 0,
        into: Buffer::zeroed(1000),
        block_bytes: 0,
    };
    let write = || RegionWrite {
        region: lent.clone(),
        offset: 0,
        pieces: vec![pattern(2, 1000)],
    };
    for token in 0..3 {
        server.link.read(BulkToken(token), read());
        server.link.write(BulkToken(10 + token), write());
    }
    server.link.close("the end");
    server.link.read(BulkToken(3), read());
    server.link.write(BulkToken(13), write());
    server.link.send(message(1, Lane::Control, Vec::new()));
    server.pump();
    server.assert_down_is_last();
    let mut answers = server.answers();
    answers.sort_by_key(|(token, _)| *token);
    let tokens: Vec<_> = answers.iter().map(|(token, _)| *token).collect();
    assert_eq!(tokens, [0, 1, 2, 3, 10, 11, 12, 13], "one answer each");
    server.link.read(BulkToken(4), read());
    server.pump();
    assert!(
        matches!(
            server.answers().last(),
            Some((4, Some(NetError::Closed(_))))
        ),
        "{:?}",
        server.events.last()
    );
    assert!(client.link.reclaim(&lent).is_some());
    assert_eq!(server.link.queued_bytes(), 0);
}

fn nobody_there(place: &mut dyn Place) {
    let address = place.fresh_address();
    let listener = place.transport().listen(&address).expect("listening");
    let address = listener.address();
    drop(listener);
    let error = match place.transport().connect(&address) {
        Err(error) => error,
        Ok(link) => {
            let mut side = Side::new(link);
            let down = std::cell::Cell::new(false);
            until(
                place,
                "an answer",
                || {
                    let moved = side.pump();
                    down.set(side.is_down());
                    moved
                },
                || down.get(),
            );
            match side.events.remove(0) {
                LinkEvent::Down(error) => error,
                other => panic!("{other:?}"),
            }
        }
    };
    assert!(matches!(error, NetError::Refused(_)), "{error:?}");
    for address in ["", "nonsense", "other://place"] {
        let error = place.transport().connect(address).err();
        assert!(matches!(error, Some(NetError::Address(_))), "{error:?}");
    }
}

fn payloads_above_the_limit(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let limit = pair.sides[1].link.capabilities().payload_bytes_max;
    assert!(limit <= 64 << 20, "the place was to have a smaller limit");
    let piece = pattern(1, 1 << 20);
    let mut payload = vec![piece.clone(); (limit >> 20) as usize];
    payload.push(piece.slice(..(limit % (1 << 20)) as usize));
    let [client, _] = &mut pair.sides;
    client.link.send(message(1, Lane::Bulk, payload.clone()));
    payload.push(piece.slice(..1));
    client.link.send(message(2, Lane::Bulk, payload));
    pair.until(place, "both sides down", |sides| {
        sides.iter().all(Side::is_down)
    });
    let [client, server] = &pair.sides;
    let ids: Vec<_> = server.messages().map(|received| received.id).collect();
    assert_eq!(ids, [1], "the limit itself is allowed");
    match server.events.last() {
        Some(LinkEvent::Down(NetError::Protocol(text))) => {
            assert!(text.contains(&(limit + 1).to_string()), "{text}");
            assert!(text.contains(&limit.to_string()), "{text}");
        }
        other => panic!("{other:?}"),
    }
    client.assert_down_is_last();
}
