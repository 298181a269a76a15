//! Messages: whole, in order, and in their lanes.

use super::*;
use wire::frame::HEAD_BYTES_MAX;

pub(super) fn messages_arrive_whole(place: &mut dyn Place) {
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

pub(super) fn a_flood_of_small_messages(place: &mut dyn Place) {
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

pub(super) fn a_flush_sends_and_takes_nothing_in(place: &mut dyn Place) {
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

pub(super) fn control_overtakes_bulk(place: &mut dyn Place) {
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

pub(super) fn payloads_above_the_limit(place: &mut dyn Place) {
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
