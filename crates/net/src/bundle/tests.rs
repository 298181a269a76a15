//! Bundles of pipes that take and give what chance says, against one stream of bytes.

use super::*;
use crate::chance::{Chance, inputs};
use crate::faults::with;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use wire::chunk::CHUNK_HEADER_BYTES;

/// No conversation takes so many turns.
const TURNS_MAX: usize = 200_000;

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    /// How many of them have arrived.
    arrived: usize,
    /// How many there may be.
    capacity: usize,
    is_ended: bool,
}

type Shared = Arc<Mutex<Pipe>>;

/// One side of a connection.
struct Wire {
    incoming: Shared,
    outgoing: Shared,
}

fn lock(pipe: &Shared) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap()
}

impl ByteStream for Wire {
    fn is_connected(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut pipe = lock(&self.incoming);
        if pipe.is_ended && pipe.bytes.is_empty() {
            return Ok(0);
        }
        let mut taken = 0;
        for slice in into {
            for byte in slice.iter_mut() {
                if pipe.arrived == 0 {
                    break;
                }
                *byte = pipe.bytes.pop_front().unwrap();
                pipe.arrived -= 1;
                taken += 1;
            }
        }
        match taken {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut pipe = lock(&self.outgoing);
        if pipe.is_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let offered: usize = from.iter().map(|slice| slice.len()).sum();
        let space = pipe.capacity.saturating_sub(pipe.bytes.len());
        let bytes = from.iter().flat_map(|slice| slice.iter().copied());
        pipe.bytes.extend(bytes.take(space));
        match offered.min(space) {
            0 if offered > 0 => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    fn finish(&mut self) {
        lock(&self.outgoing).is_ended = true;
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Notify
    }

    fn attach(&mut self, _notify: Notify) {}

    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }
}

fn carrier(stream: impl ByteStream + 'static) -> Carrier {
    Carrier {
        stream: Box::new(stream),
        held: Vec::new(),
        ahead: Vec::new(),
    }
}

/// Two bundles over so many connections, and the pipes from the first to the second, and back.
struct Pair {
    writer: Bundle,
    reader: Bundle,
    pipes: Vec<Shared>,
}

impl Pair {
    fn new(count: usize, capacity: usize) -> Self {
        let mut pipes = Vec::new();
        let mut sides = Vec::new();
        for _ in 0..count {
            let pipe = || {
                Arc::new(Mutex::new(Pipe {
                    capacity,
                    ..Pipe::default()
                }))
            };
            let (there, back) = (pipe(), pipe());
            pipes.push(there.clone());
            let here = carrier(Wire {
                incoming: back.clone(),
                outgoing: there.clone(),
            });
            let far = carrier(Wire {
                incoming: there,
                outgoing: back,
            });
            sides.push((here, far));
        }
        let mut sides = sides.into_iter();
        let (here, far) = sides.next().unwrap();
        let mut pair = Self {
            writer: Bundle::new(here).unwrap(),
            reader: Bundle::new(far).unwrap(),
            pipes,
        };
        for (here, far) in sides {
            pair.writer.join(here).unwrap();
            pair.reader.join(far).unwrap();
        }
        pair
    }

    /// So much of what is in the pipes arrives.
    fn arrive(&self, mut most: impl FnMut(usize) -> usize) {
        for pipe in &self.pipes {
            let mut pipe = lock(pipe);
            let left = pipe.bytes.len() - pipe.arrived;
            pipe.arrived += most(left).min(left);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write_vectored(&[IoSlice::new(bytes)])
    }

    fn read(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut space = vec![0; most];
        let read = self
            .reader
            .read_vectored(&mut [IoSliceMut::new(&mut space)])?;
        space.truncate(read);
        Ok(space)
    }
}

fn is_blocked<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

fn words(chance: &mut Chance, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| chance.byte()).collect()
}

/// A stream arrives as it was sent, whatever the connections take and give in a turn.
fn arrives_in_order(chance: &mut Chance) {
    let count = 1 + chance.below(6);
    let capacity = 1 + chance.below(90_000);
    let mut pair = Pair::new(count, capacity);
    let total = chance.below(400_000);
    let words = words(chance, total);
    let (mut sent, mut received) = (0, Vec::new());
    let mut has_finished = false;
    for _ in 0..TURNS_MAX {
        // Some stand still in this turn, and each gives another part of what it has.
        pair.arrive(|left| match chance.below(3) {
            0 => 0,
            1 => chance.below(left + 1),
            _ => left,
        });
        if chance.below(3) > 0 {
            let most = 1 + chance.below(300_000);
            let step = &words[sent..(sent + most).min(words.len())];
            let (first, second) = step.split_at(chance.below(step.len() + 1));
            match pair
                .writer
                .write_vectored(&[IoSlice::new(first), IoSlice::new(second)])
            {
                Ok(bytes) => sent += bytes,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert!(pair.writer.held_bytes() <= count * (CHUNK_BYTES_MAX + CHUNK_HEADER_BYTES));
        if sent == words.len() && pair.writer.held_bytes() == 0 && !has_finished {
            for pipe in &pair.pipes {
                lock(pipe).capacity += CHUNK_HEADER_BYTES;
            }
            pair.writer.finish();
            has_finished = true;
        }
        if chance.below(3) > 0 {
            match pair.read(1 + chance.below(200_000)) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => received.extend(bytes),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
            }
        }
        assert!(received.len() <= words.len());
        assert!(words.starts_with(&received), "at {}", received.len());
    }
    assert!(has_finished, "{sent} of {} bytes were taken", words.len());
    assert_eq!(received.len(), words.len());
    assert_eq!(received, words);
}

#[test]
fn what_is_sent_arrives_in_order_whatever_each_connection_takes() {
    inputs(0..150, arrives_in_order);
}

/// One connection takes a few bytes and no more: the others take what they have space for.
fn one_stands_still() {
    let mut pair = Pair::new(3, 1 << 20);
    lock(&pair.pipes[1]).capacity = 100;
    let words: Vec<u8> = (0..3 << 20).map(|at: u32| (at / 7) as u8).collect();
    let mut sent = 0;
    for _ in 0..100 {
        sent += pair.write(&words[sent..]).unwrap_or(0);
    }
    // Of two connections all space, of the third one chunk.
    assert!(sent > (2 << 20) - (1 << 10), "{sent} bytes were taken");
    pair.arrive(|left| left);
    let mut received = Vec::new();
    while let Ok(bytes) = pair.read(1 << 20) {
        received.extend(bytes);
    }
    assert!(received.len() < 2 * CHUNK_BYTES_MAX, "{}", received.len());
    let seen = pair.writer.striped().unwrap();
    assert!(seen.is_limited && seen.connections == 3);
    // It goes on: so does all.
    lock(&pair.pipes[1]).capacity = 1 << 20;
    for _ in 0..1000 {
        sent += pair.write(&words[sent..]).unwrap_or(0);
        pair.arrive(|left| left);
        while let Ok(bytes) = pair.read(1 << 20) {
            received.extend(bytes);
        }
    }
    assert!(received == words, "{} of {}", received.len(), words.len());
    // The other side hears that more would have been of use.
    assert!(pair.reader.striped().unwrap().is_limited);
}

#[test]
fn one_that_stands_still_does_not_keep_the_others_from_taking() {
    one_stands_still();
}

/// A connection ends that was to go on: that is an error, and no end.
fn one_is_cut() {
    let mut pair = Pair::new(3, 1 << 20);
    for step in [b"some", b"more", b"even"] {
        assert_eq!(pair.write(step).unwrap(), 4);
    }
    pair.arrive(|left| left);
    lock(&pair.pipes[2]).is_ended = true;
    assert_eq!(pair.read(100).unwrap(), b"somemoreeven");
    let error = pair.read(100).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("connection 3 of 3"), "{error}");
    let mut pair = Pair::new(2, 100);
    let _ = pair.write(&[7; 300]);
    pair.arrive(|left| left);
    lock(&pair.pipes[1]).is_ended = true;
    let taken = pair.read(1000).unwrap();
    assert!(taken.len() < 300);
    let error = pair.read(1000).unwrap_err().to_string();
    assert!(error.contains("cut within a chunk"), "{error}");
    // Nothing is written any more, and it is said why.
    let error = (0..3).find_map(|_| {
        pair.write(&[7; 300])
            .err()
            .filter(|e| e.kind() != io::ErrorKind::WouldBlock)
    });
    assert!(error.unwrap().to_string().contains("connection 2 of 2"));
}

#[test]
fn a_connection_that_is_cut_ends_all_and_is_named() {
    one_is_cut();
}

#[test]
fn the_end_comes_behind_all_bytes_whichever_connection_ends_first() {
    let mut pair = Pair::new(2, 1 << 20);
    assert_eq!(pair.write(b"first").unwrap(), 5);
    assert_eq!(pair.write(b"last").unwrap(), 4);
    pair.writer.finish();
    // Which chunk is where is the writer's business: one connection arrives, the other one later.
    for first in [0, 1] {
        let mut pipe = lock(&pair.pipes[first]);
        pipe.arrived = pipe.bytes.len();
        drop(pipe);
        match pair.read(100) {
            Ok(bytes) => assert!(!bytes.is_empty(), "no end before the other one is read"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        if first == 1 {
            break;
        }
    }
    while !pair.read(100).unwrap().is_empty() {}
}

/// Chunks as bytes, on connections of the test's choice.
fn put(pair: &Pair, stripe: usize, header: ChunkHeader, bytes: &[u8]) {
    let mut pipe = lock(&pair.pipes[stripe]);
    pipe.bytes.extend(header.to_bytes());
    pipe.bytes.extend(bytes);
    pipe.arrived = pipe.bytes.len();
}

fn chunk(sequence: u64, bytes: u32) -> ChunkHeader {
    ChunkHeader {
        sequence,
        bytes,
        flags: 0,
    }
}

/// Numbers that no sane side gives its chunks.
fn numbers_are_checked() {
    let far = wire::chunk::CHUNKS_AHEAD_MAX + 1;
    for numbers in [
        &[0, 0][..],
        &[1, 0],
        &[5, 4],
        &[far],
        &[u64::MAX],
        &[0, 1, 1],
    ] {
        let mut pair = Pair::new(2, 1 << 20);
        for number in numbers {
            put(&pair, 1, chunk(*number, 1), b"x");
        }
        // What was wrong is behind a chunk that waits: with that it comes to light.
        if numbers[0] == 1 {
            put(&pair, 0, chunk(0, 1), b"y");
        }
        if numbers[0] == 5 {
            (0..5).for_each(|number| put(&pair, 0, chunk(number, 1), b"y"));
        }
        let end = (0..4).find_map(|_| pair.read(10).err()).unwrap();
        assert_eq!(end.kind(), io::ErrorKind::InvalidData, "{numbers:?}: {end}");
        assert!(end.to_string().contains("it sent chunk"), "{end}");
    }
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    numbers_are_checked();
    // An end before what there was.
    let mut pair = Pair::new(2, 1 << 20);
    let end = ChunkHeader {
        sequence: 1,
        bytes: 0,
        flags: CHUNK_END,
    };
    put(&pair, 0, chunk(0, 1), b"x");
    put(&pair, 1, chunk(1, 1), b"y");
    assert_eq!(pair.read(10).unwrap(), b"xy");
    put(&pair, 0, end, b"");
    assert!(pair.read(10).is_err());
}

#[test]
fn what_came_before_it_was_a_stripe_is_read_first_and_what_waited_leaves_first() {
    let pipe = || {
        Arc::new(Mutex::new(Pipe {
            capacity: 1 << 20,
            ..Pipe::default()
        }))
    };
    let (incoming, outgoing) = (pipe(), pipe());
    let whole: Vec<u8> = [
        &chunk(0, 4).to_bytes()[..],
        b"abcd",
        &chunk(1, 2).to_bytes(),
        b"ef",
    ]
    .concat();
    for cut in 0..=whole.len() {
        {
            let mut pipe = lock(&incoming);
            pipe.bytes = whole[cut..].iter().copied().collect();
            pipe.arrived = pipe.bytes.len();
            lock(&outgoing).bytes.clear();
        }
        let mut bundle = Bundle::new(Carrier {
            stream: Box::new(Wire {
                incoming: incoming.clone(),
                outgoing: outgoing.clone(),
            }),
            held: b"welcome".to_vec(),
            ahead: whole[..cut].to_vec(),
        })
        .unwrap();
        let mut space = [0; 100];
        let read = bundle
            .read_vectored(&mut [IoSliceMut::new(&mut space)])
            .unwrap();
        assert_eq!(&space[..read], b"abcdef", "cut at {cut}");
        assert_eq!(bundle.write_vectored(&[IoSlice::new(b"z")]).unwrap(), 1);
        let written: Vec<u8> = lock(&outgoing).bytes.iter().copied().collect();
        let expected = [&b"welcome"[..], &chunk(0, 1).to_bytes(), b"z"].concat();
        assert_eq!(written, expected);
    }
}

/// Whatever bytes come, reading gives bytes, an error, an end, or waits.
#[test]
fn any_bytes_are_chunks_or_an_error() {
    inputs(0..2000, |chance| {
        let count = 1 + chance.below(4);
        let mut pair = Pair::new(count, 1 << 20);
        let mut numbers = 0;
        let mut offered = 0;
        for _ in 0..chance.below(20) {
            let bytes = chance.below(40);
            let header = ChunkHeader {
                sequence: numbers,
                bytes: bytes as u32,
                flags: if bytes == 0 {
                    CHUNK_END
                } else {
                    chance.below(2) as u8
                },
            };
            let body = words(chance, bytes);
            put(&pair, chance.below(count), header, &body);
            numbers += u64::from(chance.below(8) > 0);
            offered += bytes;
        }
        for pipe in &pair.pipes {
            let mut pipe = lock(pipe);
            for _ in 0..chance.below(3) {
                let at = chance.below(pipe.bytes.len());
                match chance.below(3) {
                    0 if !pipe.bytes.is_empty() => pipe.bytes[at] ^= 1 << chance.below(8),
                    1 => pipe.bytes.truncate(at),
                    _ => pipe.bytes.push_back(chance.byte()),
                }
                offered += 1;
            }
            pipe.arrived = pipe.bytes.len();
            pipe.is_ended = chance.below(2) == 0;
        }
        let mut received = 0;
        loop {
            match pair.read(1 + chance.below(100)) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => received += bytes.len(),
                Err(_) => break,
            }
        }
        assert!(received <= offered + 3 * count);
        let _ = pair.reader.write_vectored(&[IoSlice::new(b"answer")]);
        pair.reader.finish();
    });
}

#[test]
fn a_bundle_has_so_many_connections_and_no_more() {
    let mut pair = Pair::new(STRIPES_MAX as usize, 100);
    let pipe = || Arc::new(Mutex::new(Pipe::default()));
    let more = carrier(Wire {
        incoming: pipe(),
        outgoing: pipe(),
    });
    assert!(pair.writer.join(more).is_err());
    assert!(is_blocked(&pair.read(1)));
}

#[test]
fn faults_are_noticed() {
    let fails = |fault: Fault, test: &dyn Fn()| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let ran = catch_unwind(AssertUnwindSafe(|| with(fault, test)));
        std::panic::set_hook(hook);
        // A test that fails leaves the fault planted.
        with(fault, || {});
        assert!(ran.is_err(), "{fault:?} goes unnoticed");
    };
    let in_order = || inputs(0..30, arrives_in_order);
    fails(Fault::OutOfTurn, &in_order);
    fails(Fault::HoldDropped, &in_order);
    fails(Fault::OneBlocksAll, &one_stands_still);
    fails(Fault::AnyNumber, &numbers_are_checked);
    fails(Fault::CutIsEnd, &one_is_cut);
}

/// What has arrived is read, whichever of the connections is cut.
#[test]
fn a_cut_takes_nothing_that_has_arrived_on_the_others() {
    for cut in 0..3 {
        let mut pair = Pair::new(3, 1 << 20);
        for step in [b"some", b"more"] {
            assert_eq!(pair.write(step).unwrap(), 4);
        }
        pair.arrive(|left| left);
        lock(&pair.pipes[cut]).is_ended = true;
        assert_eq!(pair.read(100).unwrap(), b"somemore", "{cut}");
        let error = pair.read(100).unwrap_err().to_string();
        assert!(
            error.contains(&format!("connection {} of 3", cut + 1)),
            "{error}"
        );
    }
}

#[test]
fn short_chunks_cost_their_sender_its_turn() {
    let mut pair = Pair::new(2, 1 << 20);
    for sequence in 0..1000 {
        let header = ChunkHeader {
            sequence,
            bytes: 1,
            flags: 0,
        };
        put(&pair, sequence as usize % 2, header, b"x");
    }
    pair.arrive(|left| left);
    let mut reads = 0;
    let mut read = 0;
    while read < 1000 {
        read += pair.read(1 << 20).unwrap().len();
        reads += 1;
        assert!(pair.reader.cost_bytes() > 0);
        assert!(pair.reader.has_more() || read == 1000);
    }
    assert_eq!(reads, 1000_u64.div_ceil(CHUNKS_MAX));
}

#[test]
fn what_would_never_come_to_an_end_is_an_error() {
    let chunk = |sequence| ChunkHeader {
        sequence,
        bytes: 1,
        flags: 0,
    };
    let end = |sequence| ChunkHeader {
        sequence,
        bytes: 0,
        flags: CHUNK_END,
    };
    let both = |first: ChunkHeader, second: ChunkHeader| {
        let mut pair = Pair::new(2, 1 << 20);
        for (stripe, header) in [first, second].into_iter().enumerate() {
            let bytes = vec![0; header.bytes as usize];
            put(&pair, stripe, header, &bytes);
        }
        pair.arrive(|left| left);
        let error = pair.read(100).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        error.to_string()
    };
    assert!(both(chunk(3), chunk(3)).contains("chunk 3 twice"));
    assert!(both(end(5), end(5)).contains("all have ended"));
    assert!(both(end(2), chunk(4)).contains("behind the end"));
}

#[test]
fn the_end_sends_what_was_held_if_there_is_space_by_then() {
    let mut pair = Pair::new(2, 100);
    let words = vec![7; 1000];
    assert_eq!(pair.write(&words).unwrap(), 1000);
    assert!(pair.writer.held_bytes() > 0);
    for pipe in &pair.pipes {
        lock(pipe).capacity = 1 << 20;
    }
    pair.writer.finish();
    pair.arrive(|left| left);
    assert_eq!(pair.read(2000).unwrap(), words);
    assert_eq!(pair.read(2000).unwrap(), b"");
}
