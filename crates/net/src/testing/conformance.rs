//! What every transport has to do, as tests that run for each of them.
//!
//! An implementation is handed in as a [`Place`]; [`check_all`] runs every
//! test. A test drives both sides of a connection in one thread.

mod bulk;
mod messages;

use crate::contract::*;
use bulk::*;
use bytes::Bytes;
use memory::{Buffer, Target};
use messages::*;
use std::path::Path;
use std::time::{Duration, Instant};
use wire::frame::{BULK_CHUNK_BYTES, FrameKind};

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
