//! What can go wrong in a stream of frames.

use super::*;
use crate::chance::inputs;
use memory::{Buffer, Pool};
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};
use wire::frame::{FRAME_HEADER_BYTES, FrameHeader};
use wire::message::{BulkData, BulkRead, BulkStatus};
use wire::{ErrorCode, ErrorReply};

/// A stream whose other side is a test.
#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Reel>>);

#[derive(Default)]
struct Reel {
    incoming: Vec<u8>,
    read: usize,
    /// The most bytes that one read gives; 0 is no limit.
    read_bytes_max: usize,
    /// Whether the stream ends behind what is incoming.
    ends: bool,
    outgoing: Vec<u8>,
    /// How many bytes more may be written.
    space: usize,
    reads: usize,
    writes: usize,
}

impl Tape {
    fn reel(&self) -> std::sync::MutexGuard<'_, Reel> {
        self.0.lock().unwrap()
    }

    /// Everything comes at once and everything can be written.
    fn of(incoming: &[u8]) -> Self {
        let tape = Self::default();
        tape.reel().incoming = incoming.to_vec();
        tape.reel().ends = true;
        tape.reel().space = usize::MAX;
        tape
    }

    fn open() -> Self {
        let tape = Self::of(&[]);
        tape.reel().ends = false;
        tape
    }

    /// The frames written so far: kind, id, head, length of the payload.
    fn frames(&self) -> Vec<(FrameKind, u64, Vec<u8>, usize)> {
        let reel = self.reel();
        let mut rest = &reel.outgoing[..];
        let mut frames = Vec::new();
        while let Some(header) = rest.first_chunk() {
            let parsed = FrameHeader::read(header).expect("written by us");
            let head_end = FRAME_HEADER_BYTES + parsed.head_bytes as usize;
            let head = rest[FRAME_HEADER_BYTES..head_end].to_vec();
            FrameHeader::verify(header, &head).expect("written by us");
            let payload = parsed.payload_bytes as usize;
            frames.push((parsed.kind, parsed.id, head, payload));
            rest = &rest[(head_end + payload).min(rest.len())..];
        }
        frames
    }
}

impl ByteStream for Tape {
    fn is_connected(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut reel = self.reel();
        reel.reads += 1;
        let mut left = reel.incoming.len() - reel.read;
        if left == 0 && reel.ends {
            return Ok(0);
        }
        if left == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if reel.read_bytes_max > 0 {
            left = left.min(reel.read_bytes_max);
        }
        let mut taken = 0;
        for slice in into {
            let step = slice.len().min(left);
            let at = reel.read;
            slice[..step].copy_from_slice(&reel.incoming[at..at + step]);
            reel.read += step;
            left -= step;
            taken += step;
        }
        Ok(taken)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut reel = self.reel();
        reel.writes += 1;
        let mut written = 0;
        for slice in from {
            let step = slice.len().min(reel.space);
            reel.outgoing.extend_from_slice(&slice[..step]);
            reel.space -= step;
            written += step;
        }
        match written {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            written => Ok(written),
        }
    }

    fn finish(&mut self) {}

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Notify
    }

    fn attach(&mut self, _notify: Notify) {}

    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }
}

fn options() -> LinkOptions {
    LinkOptions {
        payload_bytes_max: 100_000,
        pool: Pool::new(usize::MAX),
        ..LinkOptions::default()
    }
}

fn link(tape: &Tape, options: &LinkOptions) -> StreamLink<Tape> {
    let peer = Peer {
        address: "test://peer".to_owned(),
        ..Peer::default()
    };
    StreamLink::new(tape.clone(), peer, options.clone())
}

/// Polls until that moves nothing: a tape does not notify of its next piece.
fn poll_all(link: &mut StreamLink<Tape>) -> Vec<LinkEvent> {
    let mut events = Vec::new();
    let place = |link: &StreamLink<Tape>| link.stream.as_ref().map(|tape| tape.reel().read);
    loop {
        let before = place(link);
        while let Some(event) = link.poll() {
            events.push(event);
        }
        if place(link) == before && !link.is_due() {
            return events;
        }
    }
}

fn message(kind: FrameKind, id: u64, head: usize, payload: usize) -> Message {
    Message {
        payload: vec![vec![id as u8; payload].into()],
        lane: Lane::Bulk,
        ..Message::control(kind, id, vec![id as u8; head])
    }
}

/// What a link has open when bytes are thrown at it: reads 1 to 3, write 4,
/// and one region each exposed and lent.
fn set_up(tape: &Tape, options: &LinkOptions) -> (StreamLink<Tape>, Region, Region) {
    let mut link = link(tape, options);
    let exposed = link.expose(vec![5; 3000].into());
    let lent = link.lend(Target::new(vec![0u8; 3000]));
    for token in 1..=3 {
        let read = RegionRead {
            region: Region {
                bytes: 5000,
                ..exposed.clone()
            },
            offset: token * 10,
            into: Buffer::zeroed(2000),
            block_bytes: 512,
        };
        link.read(BulkToken(token), read);
    }
    (link, exposed, lent)
}

fn bulk_frame(kind: FrameKind, id: u64, head: Vec<u8>, payload: Vec<u8>) -> Vec<u8> {
    let header = FrameHeader {
        kind,
        flags: 0,
        head_bytes: head.len() as u32,
        payload_bytes: payload.len() as u64,
        id,
    };
    [&header.to_bytes(&head)[..], &head, &payload].concat()
}

fn bulk_read(region: &Region, bytes: u32, block_bytes: u32) -> Vec<u8> {
    let read = BulkRead {
        key: region.key.clone(),
        offset: 7,
        bytes,
        block_bytes,
    };
    bulk_frame(FrameKind::BulkRead, 1, read.to_bytes(), Vec::new())
}

fn bulk_write(region: &Region, offset: u64, bytes: usize) -> Vec<u8> {
    let write = BulkWrite {
        key: region.key.clone(),
        offset,
    };
    bulk_frame(FrameKind::BulkWrite, 0, write.to_bytes(), vec![9; bytes])
}

fn bulk_data(id: u64, checksums: usize, bytes: usize) -> Vec<u8> {
    let checksums = vec![0; checksums];
    let head = BulkData { checksums }.to_bytes();
    bulk_frame(FrameKind::BulkData, id, head, vec![6; bytes])
}

/// What a sane peer says to a link of [`set_up`].
fn conversation() -> Vec<u8> {
    let (_, exposed, lent) = set_up(&Tape::open(), &options());
    let peer = Tape::open();
    let mut speaker = link(&peer, &options());
    speaker.send(message(FrameKind::Hello, 0, 30, 0));
    speaker.send(message(FrameKind::Request, 7, 10, 900));
    poll_all(&mut speaker);
    let mut bytes = std::mem::take(&mut peer.reel().outgoing);
    bytes.extend(bulk_read(&exposed, 1000, 512));
    bytes.extend(bulk_data(1, 4, 2000));
    bytes.extend(bulk_write(&lent, 100, 700));
    let error = Some(ErrorReply::fatal(ErrorCode::InvalidSelection, "gone"));
    let status = BulkStatus { error }.to_bytes();
    bytes.extend(bulk_frame(FrameKind::BulkStatus, 2, status, Vec::new()));
    bytes.extend(bulk_frame(FrameKind::Heartbeat, 0, Vec::new(), Vec::new()));
    bytes
}

/// Whatever came in: each operation is answered once, then the link is down.
fn assert_ended(link: &mut StreamLink<Tape>, events: &[LinkEvent]) {
    let mut answered = Vec::new();
    for event in events {
        if let LinkEvent::ReadDone { token, .. } = event {
            answered.push(token.0);
        }
    }
    answered.sort();
    assert_eq!(answered, [1, 2, 3], "each read is answered once");
    let downs = events
        .iter()
        .filter(|event| matches!(event, LinkEvent::Down(_)));
    assert_eq!(downs.count(), 1);
    assert!(matches!(events.last(), Some(LinkEvent::Down(_))));
    assert!(link.poll().is_none() && !link.is_due());
    assert_eq!(link.queued_bytes(), 0);
}

fn end_of(events: &[LinkEvent]) -> &NetError {
    match events.last() {
        Some(LinkEvent::Down(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_conversation_is_understood_however_it_is_cut_into_pieces() {
    let bytes = conversation();
    for read_bytes_max in [0, 1, 7, 31, 33, 100, 1000] {
        let tape = Tape::of(&bytes);
        tape.reel().read_bytes_max = read_bytes_max;
        let (mut link, _, lent) = set_up(&tape, &options());
        let events = poll_all(&mut link);
        assert_ended(&mut link, &events);
        let messages: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                LinkEvent::Message(received) => Some((received.kind, received.payload.len())),
                _ => None,
            })
            .collect();
        let expected = [
            (FrameKind::Hello, 0),
            (FrameKind::Request, 900),
            (FrameKind::Heartbeat, 0),
        ];
        assert_eq!(messages, expected);
        let done = events.iter().any(|event| {
            matches!(event, LinkEvent::ReadDone { token: BulkToken(1), result: Ok((buffer, sums)) }
                if buffer[..] == [6; 2000] && sums.len() == 4)
        });
        assert!(done);
        let failed = events.iter().any(|event| {
            matches!(event, LinkEvent::ReadDone { token: BulkToken(2), result: Err(NetError::Region(text)) }
                if text == "gone")
        });
        assert!(failed);
        let memory = link.reclaim(&lent).unwrap().into_owner::<Vec<u8>>();
        assert!(memory[100..800].iter().all(|byte| *byte == 9));
        assert_eq!(memory.iter().filter(|byte| **byte == 9).count(), 700);
        // The read that was asked of us was answered with bytes and checksums.
        let frames = tape.frames();
        let (_, id, head, payload) = frames
            .iter()
            .find(|(kind, ..)| *kind == FrameKind::BulkData)
            .unwrap();
        let BulkData { checksums } = BulkData::from_bytes("data", head).unwrap();
        let expected: Vec<_> = wire::checksum::block_checksums(&[5; 1000], 512).collect();
        assert_eq!((*id, checksums, *payload), (1, expected, 1000));
        match end_of(&events) {
            NetError::Closed(text) => {
                let end = format!("after {} bytes, between frames", bytes.len());
                assert!(text.contains(&end), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_prefix_ends_with_everything_answered() {
    let bytes = conversation();
    for end in 0..bytes.len() {
        let tape = Tape::of(&bytes[..end]);
        tape.reel().read_bytes_max = end % 50;
        let (mut link, ..) = set_up(&tape, &options());
        let events = poll_all(&mut link);
        assert_ended(&mut link, &events);
        let error = end_of(&events);
        assert!(matches!(error, NetError::Closed(_)), "{end}: {error:?}");
    }
}

#[test]
fn a_stream_that_breaks_while_much_is_queued_answers_all_of_it() {
    for space in [0, 1, 40, 5_000, 600_000, 1_200_000] {
        let tape = Tape::of(&[]);
        tape.reel().space = space;
        tape.reel().ends = false;
        let mut link = link(&tape, &options());
        let region = Region {
            key: 1u64.to_le_bytes().to_vec().into(),
            base: 0,
            bytes: 1 << 30,
            memory_kind: 0,
            rails: 0,
        };
        for token in 0..3 {
            let pieces = vec![vec![1; 400_000].into(), vec![2; 100_000].into()];
            let write = RegionWrite {
                region: region.clone(),
                offset: 0,
                pieces,
            };
            link.write(BulkToken(token), write);
        }
        let mut events = poll_all(&mut link);
        tape.reel().ends = true;
        events.extend(poll_all(&mut link));
        let answers: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                LinkEvent::WriteDone { token, result } => Some((token.0, result.is_ok())),
                _ => None,
            })
            .collect();
        let whole = space / 500_060;
        let expected: Vec<_> = (0..3).map(|token| (token, token < whole as u64)).collect();
        assert_eq!(answers, expected, "space for {space}");
        assert!(matches!(end_of(&events), NetError::Closed(_)));
    }
}

#[test]
fn every_flipped_bit_of_a_header_ends_the_link_with_its_place() {
    let bytes = conversation();
    // Where frames begin, from the lengths in their headers.
    let mut at = 0;
    while at < bytes.len() {
        let header = FrameHeader::read(bytes[at..].first_chunk().unwrap()).unwrap();
        let front = FRAME_HEADER_BYTES + header.head_bytes as usize;
        for bit in 0..front * 8 {
            let mut flipped = bytes.clone();
            flipped[at + bit / 8] ^= 1 << (bit % 8);
            let (mut link, ..) = set_up(&Tape::of(&flipped), &options());
            let events = poll_all(&mut link);
            assert_ended(&mut link, &events);
            // A longer head may also need more bytes than there are.
            match end_of(&events) {
                NetError::Protocol(text) => {
                    assert!(text.contains("at byte"), "{text}");
                    assert!(text.contains("test://peer"), "{text}");
                }
                NetError::Closed(_) => assert!((4..8).contains(&(bit / 8)), "bit {bit}"),
                other => panic!("{other:?}"),
            }
        }
        at += front + header.payload_bytes as usize;
    }
}

/// `THALWEG_FUZZ_SECONDS=600` goes on for so long.
#[test]
fn mutated_streams_neither_panic_nor_allocate_beyond_the_limit() {
    let bytes = conversation();
    inputs(1..3000, |chance| {
        let mut mutated = bytes.clone();
        match chance.below(4) {
            0 => mutated = (0..2000).map(|_| chance.byte()).collect(),
            1 => {
                let from = chance.below(mutated.len());
                let to = from + chance.below(mutated.len() - from);
                mutated.drain(from..to);
            }
            2 => {
                let from = chance.below(mutated.len());
                let again = mutated[..from].to_vec();
                mutated.extend(again);
            }
            _ => {}
        }
        for _ in 0..chance.below(5) {
            let at = chance.below(mutated.len());
            if let Some(byte) = mutated.get_mut(at) {
                *byte = chance.byte();
            }
        }
        // Repair the checksums of some headers, so that more gets through.
        if chance.below(2) == 0 {
            repair(&mut mutated);
        }
        let tape = Tape::of(&mutated);
        tape.reel().read_bytes_max = chance.below(200);
        let options = options();
        let (mut link, ..) = set_up(&tape, &options);
        let events = poll_all(&mut link);
        assert_ended(&mut link, &events);
        drop(events);
        // At most one payload of each size class was under way at once.
        assert!(options.pool.kept_bytes() < 400_000);
    });
}

/// Makes the checksums of headers right as far as lengths lead to them.
fn repair(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let Ok(header) = FrameHeader::read(header) else {
            return;
        };
        let head_end = at + FRAME_HEADER_BYTES + header.head_bytes as usize;
        let Some(head) = bytes.get(at + FRAME_HEADER_BYTES..head_end) else {
            return;
        };
        let right = header.to_bytes(head);
        bytes[at..at + FRAME_HEADER_BYTES].copy_from_slice(&right);
        match usize::try_from(header.payload_bytes).ok() {
            Some(payload) if payload < bytes.len() => at = head_end + payload,
            _ => return,
        }
    }
}

#[test]
fn what_no_sane_peer_sends_ends_the_link() {
    let (_, exposed, lent) = set_up(&Tape::open(), &options());
    let never = Region {
        key: 77u64.to_le_bytes().to_vec().into(),
        ..lent.clone()
    };
    let odd = Region {
        key: Bytes::from_static(b"odd"),
        ..lent.clone()
    };
    let status = BulkStatus { error: None }.to_bytes();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("http", b"GET / HTTP/1.1\r\n".to_vec(), "first byte is 0x47"),
        ("data never asked for", bulk_data(9, 0, 5), "read 9"),
        (
            "data of another length",
            bulk_data(1, 4, 1999),
            "1999 bytes",
        ),
        ("too few checksums", bulk_data(1, 3, 2000), "3 checksums"),
        (
            "data twice",
            [bulk_data(1, 4, 2000), bulk_data(1, 4, 2000)].concat(),
            "read 1",
        ),
        (
            "a write outside",
            bulk_write(&lent, 2999, 2),
            "outside a region of 3000",
        ),
        (
            "a write far outside",
            bulk_write(&lent, u64::MAX, 2),
            "outside a region of 3000",
        ),
        (
            "a write to no region",
            bulk_write(&never, 0, 1),
            "no region has the key",
        ),
        (
            "a write with an odd key",
            bulk_write(&odd, 0, 1),
            "no region has the key",
        ),
        (
            "a long write",
            bulk_write(&lent, 0, 600_000),
            "600000 bytes",
        ),
        (
            "a long read",
            bulk_read(&exposed, 600_000, 0),
            "600000 bytes",
        ),
        (
            "tiny blocks",
            bulk_read(&exposed, 100, 8),
            "blocks of 8 bytes",
        ),
        (
            "a status with a payload",
            bulk_frame(FrameKind::BulkStatus, 1, status, vec![1]),
            "payload of 1 bytes",
        ),
        (
            "a head that cannot be decoded",
            bulk_frame(FrameKind::BulkRead, 1, vec![1, 2], Vec::new()),
            "bulk read",
        ),
    ];
    for (name, bytes, expected) in cases {
        let options = LinkOptions {
            payload_bytes_max: 1 << 20,
            ..options()
        };
        let (mut link, ..) = set_up(&Tape::of(&bytes), &options);
        let events = poll_all(&mut link);
        assert_ended(&mut link, &events);
        match end_of(&events) {
            NetError::Protocol(text) => assert!(text.contains(expected), "{name}: {text}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn the_first_frame_has_a_bound_of_its_own() {
    let options = LinkOptions {
        first_payload_bytes_max: 10,
        ..options()
    };
    let frame = |bytes| bulk_frame(FrameKind::Request, 1, vec![1], vec![7; bytes]);
    let received = |bytes: &[u8]| {
        let (mut link, ..) = set_up(&Tape::of(bytes), &options);
        let events = poll_all(&mut link);
        let messages = events.iter();
        let count = messages.filter(|event| matches!(event, LinkEvent::Message(_)));
        (count.count(), end_of(&events).to_string())
    };
    let (count, _) = received(&[frame(10), frame(1000)].concat());
    assert_eq!(count, 2);
    // Refused by its header, before any memory is taken for it.
    let (count, end) = received(&frame(11)[..40]);
    assert_eq!(count, 0);
    assert!(
        end.contains("a payload of 11 bytes; the limit is 10"),
        "{end}"
    );
}

#[test]
fn a_peer_that_asks_and_never_listens_is_cut_off() {
    let (_, exposed, _) = set_up(&Tape::open(), &options());
    let gone = Region {
        key: 2u64.to_le_bytes().to_vec().into(),
        ..exposed.clone()
    };
    for region in [exposed, gone] {
        let tape = Tape::open();
        tape.reel().space = 0;
        let (mut link, ..) = set_up(&tape, &options());
        let request = bulk_read(&region, 10, 0);
        for _ in 0..reads::UNANSWERED_MAX {
            tape.reel().incoming.extend(&request);
        }
        let events = poll_all(&mut link);
        assert!(!matches!(events.last(), Some(LinkEvent::Down(_))));
        tape.reel().incoming.extend(&request);
        let events = poll_all(&mut link);
        match end_of(&events) {
            NetError::Protocol(text) => assert!(text.contains("1024"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn control_waits_for_the_frame_that_was_begun_and_no_other() {
    let tape = Tape::open();
    let mut link = link(&tape, &options());
    for id in 1..=4 {
        link.send(message(FrameKind::Deliver, id, 10, 300_000));
    }
    tape.reel().space = 1000;
    poll_all(&mut link);
    link.send(Message::control(FrameKind::Heartbeat, 0, Bytes::new()));
    // A later one does not overtake an earlier one.
    link.send(Message::control(FrameKind::GoAway, 9, Bytes::new()));
    tape.reel().space = usize::MAX;
    poll_all(&mut link);
    let order: Vec<_> = tape.frames().iter().map(|(_, id, ..)| *id).collect();
    assert_eq!(order, [1, 0, 9, 2, 3, 4]);
}

#[test]
fn control_overtakes_what_was_gathered_and_not_begun() {
    // A read's answer is made ready when it is gathered; being ready it can
    // still be overtaken, and is not made twice.
    let tape = Tape::open();
    let options = options();
    let (mut link, exposed, _) = set_up(&tape, &options);
    poll_all(&mut link);
    tape.reel().outgoing.clear();
    let request = bulk_read(&exposed, 2000, 512);
    tape.reel()
        .incoming
        .extend([request.clone(), request].concat());
    tape.reel().space = 1;
    poll_all(&mut link);
    let queued = link.queued_bytes();
    link.send(Message::control(FrameKind::Heartbeat, 3, Bytes::new()));
    assert_eq!(link.queued_bytes(), queued + 32);
    tape.reel().space = usize::MAX;
    poll_all(&mut link);
    let order: Vec<_> = tape.frames().iter().map(|(kind, ..)| *kind).collect();
    let expected = [
        FrameKind::BulkData,
        FrameKind::Heartbeat,
        FrameKind::BulkData,
    ];
    assert_eq!(order, expected);
    assert_eq!(link.queued_bytes(), 0);
}

#[test]
fn few_calls_move_many_frames() {
    // Small ones go together.
    let tape = Tape::open();
    let mut small = link(&tape, &options());
    for id in 0..100 {
        small.send(message(FrameKind::Reply, id, 20, 0));
    }
    poll_all(&mut small);
    assert!(tape.reel().writes <= 2, "{} writes", tape.reel().writes);
    let bytes = std::mem::take(&mut tape.reel().outgoing);
    // And are read together: one call for them, one to see that there is no more.
    let tape = Tape::open();
    tape.reel().incoming = bytes;
    let mut reader = link(&tape, &options());
    assert_eq!(poll_all(&mut reader).len(), 101);
    assert!(tape.reel().reads <= 3, "{} reads", tape.reel().reads);

    // A frame of many pieces is one call, though nothing else is queued.
    let tape = Tape::open();
    let mut alone = link(&tape, &options());
    alone.send(Message {
        payload: (0..100).map(|piece| vec![piece; 50].into()).collect(),
        ..message(FrameKind::Deliver, 1, 20, 0)
    });
    poll_all(&mut alone);
    assert_eq!(tape.reel().writes, 1);

    // Large ones take one call each, and their bytes skip the buffer.
    let options = LinkOptions {
        payload_bytes_max: 2 << 20,
        ..options()
    };
    let tape = Tape::open();
    let mut large = link(&tape, &options);
    const COUNT: usize = 20;
    for id in 0..COUNT {
        large.send(message(FrameKind::Deliver, id as u64, 70, 1 << 20));
    }
    poll_all(&mut large);
    assert_eq!(tape.reel().writes, COUNT);
    let bytes = std::mem::take(&mut tape.reel().outgoing);
    let tape = Tape::open();
    tape.reel().incoming = bytes;
    let mut reader = link(&tape, &options);
    assert_eq!(poll_all(&mut reader).len(), COUNT + 1);
    let reads = tape.reel().reads;
    assert!(reads <= COUNT + 20, "{reads} reads");
}

#[test]
fn a_cancelled_answer_goes_nowhere() {
    let bytes = [bulk_data(1, 4, 2000), bulk_data(2, 4, 2000)].concat();
    for cut in [0, 10, 40, 500, 2100] {
        let tape = Tape::open();
        let (mut link, ..) = set_up(&tape, &options());
        tape.reel().incoming = bytes[..cut].to_vec();
        let mut events = poll_all(&mut link);
        link.cancel(BulkToken(1));
        link.cancel(BulkToken(1));
        tape.reel().incoming.extend(&bytes[cut..]);
        events.extend(poll_all(&mut link));
        let answers: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                LinkEvent::ReadDone { token, result } => Some((token.0, result.is_ok())),
                _ => None,
            })
            .collect();
        let first_done = cut >= 2100;
        assert_eq!(answers, [(1, first_done), (2, true)], "cut at {cut}");
    }
}
