//! Peers that shake hands badly, and peers that write what they like into
//! their memory while it is read.

use super::*;
use bytes::Bytes;
use net::{Lane, Link, LinkEvent, LinkOptions, Message, NetError, Peer, StreamLink};
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::{Barrier, Mutex};
use wire::frame::FrameKind;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn options() -> Arc<ShmOptions> {
    Arc::new(ShmOptions {
        links: LinkOptions {
            payload_bytes_max: 1 << 20,
            ..LinkOptions::default()
        },
        ring_bytes: 16384,
        ..ShmOptions::default()
    })
}

fn pool() -> Arc<Pool> {
    Arc::new(Pool::new(64 << 20))
}

fn link(stream: ShmBytes) -> StreamLink<ShmBytes> {
    let peer = Peer {
        address: "shm://test".to_owned(),
        ..Peer::default()
    };
    StreamLink::new(stream, peer, options().links.clone())
}

/// Both ends of a connection whose handshake is over.
fn shaken() -> (ShmBytes, ShmBytes) {
    let (a, b) = UnixStream::pair().unwrap();
    let pid = Some(std::process::id());
    let mut connecting = ShmBytes::connecting(a, pid, options(), &pool());
    let mut accepting = ShmBytes::accepting(b, pid, options());
    assert!(!accepting.shake_hands().unwrap());
    assert!(connecting.shake_hands().unwrap());
    assert!(accepting.shake_hands().unwrap());
    (connecting, accepting)
}

fn rings(stream: &ShmBytes) -> &Rings {
    match &stream.phase {
        Phase::Rings(rings) => rings,
        _ => panic!("shared memory is used"),
    }
}

fn poll_all(link: &mut impl Link) -> Vec<LinkEvent> {
    link.source_ready(SourceReady::ALL);
    let mut events = Vec::new();
    loop {
        match link.poll() {
            Some(event) => events.push(event),
            None if link.is_due() => {}
            None => return events,
        }
    }
}

/// Writes at random into everything that the peer may write, until asked to stop.
fn scribble(memory: &Mapping, seed: u64, stop: &AtomicBool) {
    let mut random = Random(seed);
    let ring_bytes = (memory.bytes() - place::RING) as u64;
    // Some seeds leave the words alone, so that more is read of the ring.
    let words_one_in = [3, 50, 100_000][random.below(3) as usize];
    while !stop.load(Ordering::Relaxed) {
        if random.below(words_one_in) == 0 {
            let places = [place::TAIL, place::HEAD, place::DOZE, place::CLOSING];
            let at = places[random.below(4) as usize];
            let now = memory.word(at).load(Ordering::Relaxed);
            let value = match random.below(4) {
                0 => now.wrapping_add(random.below(64) * 8),
                1 => now.wrapping_sub(random.below(64) * 8),
                2 => random.below(ring_bytes),
                _ => random.next(),
            };
            memory.word(at).store(value, Ordering::Relaxed);
            continue;
        }
        let at = place::RING as u64 + random.below(ring_bytes / 8) * 8;
        let word = match random.below(4) {
            // A record of any kind and length, also such as can be followed.
            0 => random.below(5) << 32 | random.below(70_000),
            1 => (1 << 32) | random.below(200),
            2 => std::ptr::from_ref(memory).expose_provenance() as u64,
            _ => random.next(),
        };
        memory.copy_in(&word.to_le_bytes(), at as usize);
    }
}

/// How one victim fared: messages that came, and how it ended.
fn scribbled_over(seed: u64) -> (usize, Option<NetError>) {
    let (attacker, victim) = shaken();
    let memory = rings(&attacker).ours.clone();
    let last_word = memory.clone();
    let mut attacker = link(attacker);
    let mut victim = link(victim);
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Arc::new(Barrier::new(2));
    let scribbler = {
        let (stop, begun) = (stop.clone(), begun.clone());
        std::thread::spawn(move || {
            begun.wait();
            scribble(&memory, seed, &stop);
        })
    };
    begun.wait();
    let mut messages = 0;
    let mut end = None;
    for round in 0..300 {
        // Among the scribbles, bytes that mean something: by reference too.
        attacker.send(Message {
            payload: vec![Bytes::from(vec![round as u8; 3000]); 60],
            lane: Lane::Bulk,
            ..Message::control(FrameKind::Request, round, Bytes::new())
        });
        victim.send(Message {
            payload: vec![Bytes::from(vec![1; 5000])],
            ..Message::control(FrameKind::Reply, round, Bytes::new())
        });
        poll_all(&mut attacker);
        for event in poll_all(&mut victim) {
            match event {
                LinkEvent::Message(_) => messages += 1,
                LinkEvent::Down(error) => end = Some(error),
                _ => {}
            }
        }
        victim.look();
        victim.rest();
        if end.is_some() {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    scribbler.join().unwrap();
    if end.is_none() {
        // Whatever the chances were: this no link survives.
        let tail = last_word.word(place::TAIL);
        tail.store(u64::MAX - 7, Ordering::Relaxed);
        end = poll_all(&mut victim)
            .into_iter()
            .find_map(|event| match event {
                LinkEvent::Down(error) => Some(error),
                _ => None,
            });
    }
    (messages, end)
}

#[test]
fn a_peer_that_scribbles_ends_its_link_and_nothing_else() {
    let mut ended_by_protocol = 0;
    for seed in 0..150 {
        let (_, end) = scribbled_over(seed);
        match end {
            Some(NetError::Protocol(_)) => ended_by_protocol += 1,
            // It may also have said that it closes.
            Some(NetError::Closed(_)) => {}
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    // Otherwise the scribbles were not read at all.
    assert!(ended_by_protocol > 0);
}

/// What a peer says in place of each of its greetings, and how the other side ends.
#[test]
fn a_bad_handshake_falls_back_or_ends_the_connection() {
    // No descriptor with the offer: refused, and the socket serves.
    let (a, b) = UnixStream::pair().unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let options = Arc::new(ShmOptions {
        report: Arc::new(move |line| kept.lock().unwrap().push(line.to_owned())),
        ..ShmOptions::default()
    });
    let mut accepting = ShmBytes::accepting(b, None, options.clone());
    handshake::send(&a, &Greeting::default().to_bytes(), &[]).unwrap();
    assert!(accepting.shake_hands().unwrap());
    assert!(matches!(accepting.phase, Phase::Plain));
    assert!(lines.lock().unwrap()[0].contains("no descriptor of memory came"));

    // A client that never proves that it read our memory.
    let (a, b) = UnixStream::pair().unwrap();
    let mut accepting = ShmBytes::accepting(b, None, options.clone());
    let (_, memory) = Offer::make(&options).unwrap();
    handshake::send(&a, &Greeting::default().to_bytes(), &[memory.as_fd()]).unwrap();
    assert!(!accepting.shake_hands().unwrap());
    handshake::send(&a, &Greeting::default().to_bytes(), &[]).unwrap();
    let error = accepting.shake_hands().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);

    // A server that has not read ours: the client does without.
    let (a, b) = UnixStream::pair().unwrap();
    let mut connecting = ShmBytes::connecting(a, None, options.clone(), &pool());
    handshake::send(&b, &Greeting::default().to_bytes(), &[memory.as_fd()]).unwrap();
    assert!(connecting.shake_hands().unwrap());
    assert!(matches!(connecting.phase, Phase::Plain));
    let last = lines.lock().unwrap().last().unwrap().clone();
    assert!(last.contains("not found the nonce"), "{last}");

    // Half a greeting, and then nothing more.
    let (a, b) = UnixStream::pair().unwrap();
    let mut accepting = ShmBytes::accepting(b, None, options);
    handshake::send(&a, &Greeting::default().to_bytes()[..100], &[]).unwrap();
    assert!(!accepting.shake_hands().unwrap());
    drop(a);
    let mut into = [0; 10];
    let slices = &mut [IoSliceMut::new(&mut into)];
    accepting.stirs = true;
    let mut read = || accepting.read_vectored(slices);
    assert!(matches!(read(), Ok(0)), "the end of the connection");
}

#[test]
fn who_sleeps_is_woken_and_who_is_awake_is_left_alone() {
    let (mut a, mut b) = shaken();
    let heard = |socket: &UnixStream| {
        let mut bytes = [0; 16];
        let mut descriptors = VecDeque::new();
        handshake::receive(socket, &mut bytes, &mut descriptors).unwrap_or(0)
    };
    let write = |stream: &mut ShmBytes, bytes: usize| {
        let bytes = vec![7; bytes];
        stream.write_vectored(&[IoSlice::new(&bytes)])
    };
    write(&mut a, 100).unwrap();
    assert_eq!(heard(&b.socket), 0, "it is awake");
    assert!(!b.rest(false), "there is something to read");
    let mut into = [0; 20_000];
    assert_eq!(
        b.read_vectored(&mut [IoSliceMut::new(&mut into)]).unwrap(),
        100
    );
    assert!(b.rest(false));
    for _ in 0..3 {
        write(&mut a, 100).unwrap();
    }
    assert_eq!(heard(&b.socket), 1, "one wake-up for one sleep");
    // A full ring: the writer sleeps until half of it is free.
    while write(&mut a, 1000).is_ok() {}
    assert!(a.rest(true));
    b.read_vectored(&mut [IoSliceMut::new(&mut into[..100])])
        .unwrap();
    assert_eq!(heard(&a.socket), 0, "too little for a wake-up");
    b.read_vectored(&mut [IoSliceMut::new(&mut into)]).unwrap();
    assert_eq!(heard(&a.socket), 1);
    assert_eq!(a.look(true), Some(true));
}

#[test]
fn what_lies_in_the_pool_is_not_copied_into_the_ring() {
    let (mut a, mut b) = shaken();
    let mut buffer = a.pool.take(1 << 20).unwrap();
    buffer.fill(6);
    let buffer = buffer.freeze();
    let written = a.write_vectored(&[IoSlice::new(&buffer)]).unwrap();
    assert_eq!(written, 1 << 20);
    assert_eq!(rings(&a).handed_over, 1);
    let tail = rings(&a).ours.word(place::TAIL).load(Ordering::Relaxed);
    assert_eq!(tail, 24, "one record that refers to it");
    assert_eq!(a.settled_bytes(), Some(0));
    let mut into = vec![0; 1 << 20];
    b.stirs = true;
    let read = b.read_vectored(&mut [IoSliceMut::new(&mut into)]).unwrap();
    assert!(read == 1 << 20 && into == buffer);
    assert_eq!(rings(&b).segments.len(), 1);
    assert_eq!(a.settled_bytes(), Some(1 << 20));
    // A reference beyond the segment, and one to none, end the connection.
    for (segment, offset) in [(0, (16u64 << 20) - 10), (1, 0), (0, u64::MAX - 5)] {
        let (mut a, mut b) = shaken();
        let buffer = a.pool.take(4096).unwrap().freeze();
        a.write_vectored(&[IoSlice::new(&buffer)]).unwrap();
        let Phase::Rings(rings) = &mut a.phase else {
            panic!("shared memory is used");
        };
        let bad = Reference::Pooled { segment, offset };
        rings
            .writer
            .write(&[IoSlice::new(&[0; 100])], |_| Some(bad))
            .unwrap();
        let mut into = [0; 5000];
        b.stirs = true;
        let error = b
            .read_vectored(&mut [IoSliceMut::new(&mut into)])
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}

#[test]
fn a_write_is_told_of_when_its_memory_is_free_though_nothing_follows() {
    let (connecting, accepting) = shaken();
    let mut writer = link(connecting);
    let mut owner = link(accepting);
    let lent = owner.lend(memory::Target::new(vec![0u8; 200_000]));
    let write = |offset| net::RegionWrite {
        region: lent.clone(),
        offset,
        // Long enough to be referred to.
        pieces: vec![Bytes::from(vec![3; 140_000])],
    };
    poll_all(&mut writer);
    writer.write(net::BulkToken(1), write(0));
    let reported = |events: Vec<LinkEvent>| {
        let is_told = |event: &&LinkEvent| matches!(event, LinkEvent::WriteDone { .. });
        events.iter().filter(is_told).count()
    };
    assert_eq!(reported(poll_all(&mut writer)), 0, "it is not read yet");
    poll_all(&mut owner);
    assert_eq!(reported(poll_all(&mut writer)), 1);
    // And where the end of the connection is all that follows.
    writer.write(net::BulkToken(2), write(1000));
    assert_eq!(reported(poll_all(&mut writer)), 0);
    poll_all(&mut owner);
    drop(owner);
    let events = poll_all(&mut writer);
    assert!(matches!(events.last(), Some(LinkEvent::Down(_))));
    assert_eq!(reported(events), 1);
}

#[test]
fn a_flood_of_wake_ups_takes_no_more_than_a_turn() {
    let (a, mut b) = shaken();
    let mut read = || {
        let mut into = [0; 100];
        let read = b.read_vectored(&mut [IoSliceMut::new(&mut into)]);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let mut waiting = [0; 1];
        let peeked = rustix::net::recv(b.socket(), &mut waiting, rustix::net::RecvFlags::PEEK);
        (peeked.is_ok(), b.look(false), b.rest(false))
    };
    let flood = vec![WAKE; 3 * HEARD_BYTES_MAX];
    assert_eq!((&a.socket).write(&flood).unwrap(), flood.len());
    for _ in 0..2 {
        assert_eq!(read(), (true, Some(true), false), "there is more to hear");
    }
    read();
    assert_eq!(read(), (false, Some(false), true));
}

/// A client without shared memory has sent as much as fits before the server looks, and
/// waits for space. A read that fills less than it may is taken for the last one.
#[test]
fn a_read_behind_the_handshake_takes_what_there_is() {
    let (mut client, server) = UnixStream::pair().unwrap();
    while client.write(&[0x89; 4096]).is_ok() {}
    let mut stream = ShmBytes::accepting(server, None, Arc::new(ShmOptions::default()));
    let mut buffer = [0; 3 * MESSAGE_BYTES];
    let (head, tail) = buffer.split_at_mut(MESSAGE_BYTES / 2);
    let mut into = [IoSliceMut::new(head), IoSliceMut::new(tail)];
    assert_eq!(stream.read_vectored(&mut into).unwrap(), 3 * MESSAGE_BYTES);
    assert_eq!(buffer, [0x89; 3 * MESSAGE_BYTES]);
}
