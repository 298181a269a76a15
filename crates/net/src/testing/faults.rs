//! What every transport has to do when its other side is killed, stopped,
//! slow, or comes and goes a thousand times.
//!
//! The other side is a real process where the transport crosses processes: a
//! test runs itself once more and calls [`play`] there.

use super::conformance::{Pair, Place, Side, WATCHDOG, pattern};
use crate::contract::*;
use bytes::Bytes;
use memory::{Buffer, Target};
use rustix::process::{Pid, Signal, WaitOptions};
use std::process::Child;
use std::time::Instant;
use wire::codec::Codec;
use wire::frame::{BULK_CHUNK_BYTES, FrameKind};
use wire::message::Region;

/// What the other process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Sends messages without end.
    Talk,
    /// Exposes memory, announces it, and lets it be read.
    Expose,
    /// Takes messages, one in a while, and counts them.
    Slow,
}

impl Part {
    /// For a command line or the environment.
    pub fn name(self) -> &'static str {
        match self {
            Self::Talk => "talk",
            Self::Expose => "expose",
            Self::Slow => "slow",
        }
    }

    /// The part of that name.
    pub fn named(name: &str) -> Option<Self> {
        let parts = [Self::Talk, Self::Expose, Self::Slow];
        parts.into_iter().find(|part| part.name() == name)
    }
}

/// Starts a process that plays a part to who listens at an address.
pub type Start<'a> = &'a dyn Fn(Part, &str) -> Child;

const TALK_BYTES: usize = 600_000;
const EXPOSED_BYTES: usize = 8 << 20;
const SLOW_COUNT: u64 = 40;
const SLOW_BYTES: usize = 300_000;
/// More than any transport takes at once.
const STILL_COUNT: usize = 12;
/// What the slow one does between two looks.
const SLOW_YIELDS: u32 = 200;

/// Plays `part`, until the other side ends the connection.
pub fn play(transport: &dyn Transport, part: Part, address: &str) {
    let mut side = Side::new(transport.connect(address).expect("connecting"));
    let mut next = 0;
    let mut counted = 0;
    let exposed = pattern(7, EXPOSED_BYTES);
    let region = side.link.expose(exposed);
    if part == Part::Expose {
        let head = region.to_bytes();
        side.link
            .send(Message::control(FrameKind::Request, 1, head));
    }
    while !side.is_down() {
        if part == Part::Talk && side.link.queued_bytes() < 4 * TALK_BYTES as u64 {
            side.link.send(talk(next));
            next += 1;
        }
        if part == Part::Slow {
            for _ in 0..SLOW_YIELDS {
                std::thread::yield_now();
            }
        }
        if !side.pump() {
            std::thread::yield_now();
        }
        for event in side
            .events
            .extract_if(.., |event| matches!(event, LinkEvent::Message(_)))
        {
            let LinkEvent::Message(received) = event else {
                continue;
            };
            assert!(received.payload[..] == pattern(received.id, SLOW_BYTES)[..]);
            counted += 1;
            if counted == SLOW_COUNT {
                let answer = Message::control(FrameKind::Reply, counted, Bytes::new());
                side.link.send(answer);
            }
        }
    }
}

fn talk(id: u64) -> Message {
    let payload = pattern(id, TALK_BYTES);
    Message {
        lane: Lane::Bulk,
        payload: vec![payload],
        ..Message::control(FrameKind::Request, id, Bytes::new())
    }
}

/// Runs every test of this suite at `place`; those with another process if
/// one can be started.
pub fn check_faults(place: &mut dyn Place, start: Option<Start<'_>>) {
    let scheme = place.transport().scheme();
    eprintln!("{scheme}: cancelled_at_every_stage");
    cancelled_at_every_stage(place);
    eprintln!("{scheme}: a_thousand_come_and_go");
    a_thousand_come_and_go(place);
    eprintln!("{scheme}: one_that_does_nothing_for_a_while");
    one_that_does_nothing_for_a_while(place);
    eprintln!("{scheme}: one_that_takes_a_step_at_a_time");
    one_that_takes_a_step_at_a_time(place);
    if let Some(start) = start {
        eprintln!("{scheme}: killed_while_it_sends");
        killed_while_it_sends(place, start);
        eprintln!("{scheme}: killed_while_it_is_read");
        killed_while_it_is_read(place, start);
        eprintln!("{scheme}: stopped_and_continued");
        stopped_and_continued(place, start);
        eprintln!("{scheme}: a_slow_one_gets_everything");
        a_slow_one_gets_everything(place, start);
    }
}

/// The other process and our side of the connection to it. Killed at the end.
struct Other {
    process: Child,
    side: Side,
    _listener: Box<dyn Listener>,
}

impl Other {
    fn start(place: &mut dyn Place, start: Start<'_>, part: Part) -> Self {
        let address = place.fresh_address();
        let mut listener = place.transport().listen(&address).expect("listening");
        let process = start(part, &listener.address());
        let began = Instant::now();
        let link = loop {
            match listener.accept().expect("accepting") {
                Some(link) => break link,
                None => place.idle(),
            }
            assert!(began.elapsed() < WATCHDOG, "waited in vain to accept");
        };
        let mut other = Self {
            process,
            side: Side::new(link),
            _listener: listener,
        };
        other.until(place, "up", Side::is_up);
        other.side.events.remove(0);
        other
    }

    fn until(&mut self, place: &mut dyn Place, what: &str, done: impl Fn(&Side) -> bool) {
        let began = Instant::now();
        while !done(&self.side) {
            if !self.side.pump() {
                place.idle();
            }
            let last = self.side.events.last();
            assert!(
                began.elapsed() < WATCHDOG,
                "waited in vain: {what}: {last:?}"
            );
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).expect("it is our child");
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.process.wait().expect("it is our child");
    }

    /// Whole messages in order, then the end.
    fn assert_whole_until_closed(&self) {
        self.side.assert_down_is_last();
        self.side.assert_whole();
        let end = self.side.events.last();
        assert!(
            matches!(end, Some(LinkEvent::Down(NetError::Closed(_)))),
            "{end:?}"
        );
    }
}

impl Side {
    /// What [`talk`] sends came whole and in order.
    fn assert_whole(&self) {
        for (expected, received) in self.messages().enumerate() {
            assert_eq!(received.id, expected as u64);
            let whole = pattern(received.id, TALK_BYTES);
            assert!(
                received.payload[..] == whole[..],
                "message {expected} is torn"
            );
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // Also when a test fails; who is gone already needs no end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn killed_while_it_sends(place: &mut dyn Place, start: Start<'_>) {
    for count in [0, 1, 2, 7] {
        let mut other = Other::start(place, start, Part::Talk);
        other.until(place, "messages", |side| side.messages().count() >= count);
        other.kill();
        other.until(place, "the end", Side::is_down);
        other.assert_whole_until_closed();
    }
}

fn killed_while_it_is_read(place: &mut dyn Place, start: Start<'_>) {
    const COUNT: usize = 40;
    for killed_after in [0, 1, 9] {
        let mut other = Other::start(place, start, Part::Expose);
        other.until(place, "the region", |side| side.messages().next().is_some());
        let head = other
            .side
            .messages()
            .next()
            .expect("waited for it")
            .head
            .clone();
        let region = Region::from_bytes("region", &head).expect("a region");
        other.side.events.clear();
        for token in 0..COUNT {
            let read = RegionRead {
                region: region.clone(),
                offset: (token * 100_000) as u64,
                into: Buffer::zeroed(BULK_CHUNK_BYTES),
                block_bytes: 4096,
            };
            other.side.link.read(BulkToken(token as u64), read);
        }
        other.until(place, "reads", |side| side.answers().len() >= killed_after);
        other.kill();
        other.until(place, "the end", Side::is_down);
        other.side.assert_down_is_last();
        let whole = pattern(7, EXPOSED_BYTES);
        let mut answered = Vec::new();
        for event in &other.side.events {
            if let LinkEvent::ReadDone { token, result } = event {
                answered.push(token.0);
                let at = token.0 as usize * 100_000;
                match result {
                    Ok((buffer, _)) => {
                        assert!(buffer[..] == whole[at..at + BULK_CHUNK_BYTES], "{token:?}");
                    }
                    Err(error) => assert!(matches!(error, NetError::Closed(_)), "{error:?}"),
                }
            }
        }
        answered.sort_unstable();
        assert_eq!(
            answered,
            (0..COUNT as u64).collect::<Vec<_>>(),
            "one answer each"
        );
    }
}

fn stopped_and_continued(place: &mut dyn Place, start: Start<'_>) {
    let mut other = Other::start(place, start, Part::Talk);
    other.until(place, "messages", |side| side.messages().count() >= 3);
    other.signal(Signal::STOP);
    let pid = Pid::from_child(&other.process);
    rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED).expect("it stops");
    // What it had sent still comes, and then nothing: nobody waits in a call.
    let mut silent = 0;
    while silent < 200 {
        place.idle();
        silent = if other.side.pump() { 0 } else { silent + 1 };
    }
    assert!(!other.side.is_down(), "silence is not the end");
    let before = other.side.messages().count();
    other.signal(Signal::CONT);
    let more = before + 5;
    other.until(place, "more messages", |side| {
        side.messages().count() >= more
    });
    other.kill();
    other.until(place, "the end", Side::is_down);
    other.assert_whole_until_closed();
}

fn a_slow_one_gets_everything(place: &mut dyn Place, start: Start<'_>) {
    let mut other = Other::start(place, start, Part::Slow);
    for id in 0..SLOW_COUNT {
        let payload = pattern(id, SLOW_BYTES);
        let pieces = payload
            .chunks(100_000)
            .map(|piece| payload.slice_ref(piece));
        other.side.link.send(Message {
            payload: pieces.collect(),
            ..talk(id)
        });
    }
    other.until(place, "its answer", |side| side.messages().next().is_some());
    assert_eq!(
        other.side.messages().map(|answer| answer.id).next(),
        Some(SLOW_COUNT)
    );
    assert_eq!(other.side.link.queued_bytes(), 0);
}

/// Polls once. Whether anything came of it.
fn step(side: &mut Side) -> bool {
    side.link.source_ready(SourceReady::ALL);
    let event = side.link.poll();
    let came = event.is_some();
    side.events.extend(event);
    came
}

/// A side that is not driven is what a stopped process is, also where there
/// is no process of its own.
fn one_that_does_nothing_for_a_while(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let [sender, stopped] = &mut pair.sides;
    for id in 0..STILL_COUNT as u64 {
        sender.link.send(talk(id));
    }
    let mut silent = 0;
    while silent < 200 {
        place.idle();
        silent = if sender.pump() { 0 } else { silent + 1 };
    }
    assert!(!sender.is_down(), "silence is not the end");
    assert!(stopped.events.is_empty(), "nobody has driven it");
    pair.until(place, "everything, once it is driven", |sides| {
        sides[1].messages().count() == STILL_COUNT
    });
    pair.sides[1].assert_whole();
}

fn one_that_takes_a_step_at_a_time(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    for id in 0..STILL_COUNT as u64 {
        pair.sides[0].link.send(talk(id));
    }
    let began = Instant::now();
    while pair.sides[1].messages().count() < STILL_COUNT {
        let moved = pair.sides[0].pump();
        if !step(&mut pair.sides[1]) && !moved {
            place.idle();
        }
        assert!(began.elapsed() < WATCHDOG, "waited in vain");
    }
    pair.sides[1].assert_whole();
    assert_eq!(pair.sides[0].link.queued_bytes(), 0);
}

fn cancelled_at_every_stage(place: &mut dyn Place) {
    let data = pattern(4, BULK_CHUNK_BYTES);
    for stage in 0..24 {
        let mut pair = Pair::connect(place);
        let [owner, reader] = &mut pair.sides;
        let exposed = owner.link.expose(data.clone());
        let lent = owner.link.lend(Target::new(vec![0u8; BULK_CHUNK_BYTES]));
        let read = RegionRead {
            region: exposed,
            offset: 0,
            into: Buffer::zeroed(BULK_CHUNK_BYTES),
            block_bytes: 4096,
        };
        reader.link.read(BulkToken(1), read);
        let write = RegionWrite {
            region: lent.clone(),
            offset: 0,
            pieces: vec![data.clone()],
        };
        reader.link.write(BulkToken(2), write);
        for turn in 0..stage {
            step(if turn % 2 == 0 { reader } else { owner });
        }
        reader.link.cancel(BulkToken(1));
        reader.link.cancel(BulkToken(2));
        // The lent memory is the owner's again at once, whatever is under way.
        let target = owner.link.reclaim(&lent).expect("was lent");
        assert_eq!(target.len(), BULK_CHUNK_BYTES);
        owner.link.send(talk(3));
        pair.until(place, "answers and the message behind them", |sides| {
            sides[1].answers().len() == 2 && sides[1].messages().next().is_some()
        });
        let mut answers = pair.sides[1].answers();
        answers.sort_by_key(|(token, _)| *token);
        for (token, error) in &answers {
            assert!(
                matches!(error, None | Some(NetError::Cancelled)),
                "stage {stage}: {token}: {error:?}"
            );
        }
        for event in &pair.sides[1].events {
            if let LinkEvent::ReadDone {
                result: Ok((buffer, _)),
                ..
            } = event
            {
                assert!(buffer[..] == data[..], "stage {stage}");
            }
        }
    }
}

/// Open descriptors, mappings of memory files, and resident bytes of this process.
fn held() -> (usize, usize, u64) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let shared = maps.lines().filter(|line| line.contains("/memfd:")).count();
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    (
        descriptors,
        shared,
        pages.expect("a number of pages") * 4096,
    )
}

/// Resident memory may grow by this much: what allocators keep, and tests
/// that run beside this one.
const RESIDENT_BYTES_MAX: u64 = 64 << 20;

fn a_thousand_come_and_go(place: &mut dyn Place) {
    let address = place.fresh_address();
    let mut listener = place.transport().listen(&address).expect("listening");
    let address = listener.address();
    let mut before = None;
    for round in 0..1000u64 {
        // The first ones make what stays: threads' caches, pools.
        if round == 20 {
            before = Some(held());
        }
        let mut client = Side::new(place.transport().connect(&address).expect("connecting"));
        let began = Instant::now();
        let accepted = loop {
            client.pump();
            match listener.accept().expect("accepting") {
                Some(link) => break link,
                None => place.idle(),
            }
            assert!(began.elapsed() < WATCHDOG, "waited in vain to accept");
        };
        let mut server = Side::new(accepted);
        client.link.send(Message {
            payload: vec![pattern(round, 20_000)],
            ..talk(round)
        });
        let began = Instant::now();
        while server.messages().next().is_none() {
            let (a, b) = (client.pump(), server.pump());
            if !a && !b {
                place.idle();
            }
            assert!(began.elapsed() < WATCHDOG, "waited in vain for a message");
        }
        // Either side goes first, with or without a word.
        let (first, mut second) = match round % 2 {
            0 => (client, server),
            _ => (server, client),
        };
        let mut first = first;
        if round % 4 < 2 {
            first.link.close("it has been long enough");
        }
        drop(first);
        let began = Instant::now();
        while !second.is_down() {
            if !second.pump() {
                place.idle();
            }
            assert!(began.elapsed() < WATCHDOG, "waited in vain for the end");
        }
    }
    let (descriptors, shared, resident) = before.expect("there were more rounds");
    let after = held();
    assert!(
        after.0 <= descriptors,
        "{} descriptors, {descriptors} before",
        after.0
    );
    assert!(
        after.1 <= shared,
        "{} shared mappings, {shared} before",
        after.1
    );
    assert!(
        after.2 <= resident + RESIDENT_BYTES_MAX,
        "{} bytes resident, {resident} before",
        after.2
    );
}
