//! Reads of memory that the other side exposed, and writes to memory that it lent.

use super::*;
use std::sync::{Arc, Mutex};
use wire::checksum::block_checksums;
use wire::message::Region;

pub(super) fn reads_bring_bytes_and_checksums(place: &mut dyn Place) {
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

pub(super) fn bad_reads_are_answered(place: &mut dyn Place) {
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

pub(super) fn many_reads_at_once(place: &mut dyn Place) {
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

pub(super) fn writes_come_before_what_follows(place: &mut dyn Place) {
    let mut pair = Pair::connect(place);
    let [client, server] = &mut pair.sides;
    let bytes = 5 * BULK_CHUNK_BYTES + 77;
    let data = pattern(3, bytes);
    let seen = Arc::new(Mutex::new(vec![0u8; bytes + 10]));
    let kept = seen.clone();
    let target = Target::new(vec![0u8; bytes + 10]).with_on_received(move |at, received| {
        kept.lock().unwrap()[at..at + received.len()].copy_from_slice(received);
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
    // In one process the other side writes, and reports nothing.
    if !pair.sides[0].link.peer().in_process {
        assert!(
            seen.lock().unwrap()[..] == memory[..],
            "all of it is reported"
        );
    }
    assert!(pair.sides[0].link.reclaim(&region).is_none(), "only once");
    pair.until(place, "all writes answered", |sides| {
        sides[1].events.len() == 6
    });
    let expected: Vec<_> = (0..6).map(|token| (token, None)).collect();
    assert_eq!(pair.sides[1].answers(), expected);
}

pub(super) fn writes_to_reclaimed_memory(place: &mut dyn Place) {
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

pub(super) fn cancelled_operations(place: &mut dyn Place) {
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
