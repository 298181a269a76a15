//! The simulated network: that its faults happen, that they cost no more
//! than they should, and that a seed is a run.

use bytes::Bytes;
use net::testing::counted::{Counted, Counters, Direction};
use net::testing::sim::{Sim, SimFaults, SimNet, SimStats};
use net::*;
use std::collections::BTreeMap;
use wire::frame::FrameKind;

/// A client that sends numbered messages, and connects again when it is cut
/// off; a server that takes them. Both polled by hand.
struct Run {
    net: SimNet,
    transport: Sim,
    listener: Box<dyn Listener>,
    client: Option<Box<dyn Link>>,
    client_up: bool,
    next_id: u64,
    accepted: Vec<(Box<dyn Link>, u64)>,
    /// Everything that happened, to compare runs.
    trace: Vec<String>,
    received: BTreeMap<u64, u64>,
    downs: u64,
}

impl Run {
    fn new(seed: u64, faults: SimFaults) -> Self {
        let net = SimNet::new(seed, faults);
        let transport = net.transport(LinkOptions::default());
        let listener = transport.listen("sim://server").unwrap();
        Self {
            net,
            transport,
            listener,
            client: None,
            client_up: false,
            next_id: 0,
            accepted: Vec::new(),
            trace: Vec::new(),
            received: BTreeMap::new(),
            downs: 0,
        }
    }

    fn step(&mut self) {
        let client = self.client.get_or_insert_with(|| {
            self.client_up = false;
            self.transport.connect("sim://server").unwrap()
        });
        while let Some(event) = client.poll() {
            match event {
                LinkEvent::Up => self.client_up = true,
                LinkEvent::Down(error) => {
                    self.trace
                        .push(format!("{} client: {error}", self.net.now()));
                    self.client = None;
                    self.downs += 1;
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        if let Some(client) = &mut self.client
            && client.queued_bytes() < 100_000
        {
            self.next_id += 1;
            let id = self.next_id;
            client.send(Message {
                payload: vec![Bytes::from(vec![id as u8; (id * 997 % 20_000) as usize])],
                lane: Lane::Bulk,
                ..Message::control(FrameKind::Request, id, id.to_le_bytes().to_vec())
            });
            assert!(client.poll().is_none() || self.client_up);
        }
        while let Some(link) = self.listener.accept().unwrap() {
            self.accepted.push((link, 0));
        }
        let (trace, received, net) = (&mut self.trace, &mut self.received, &self.net);
        self.accepted.retain_mut(|(link, last_id)| {
            while let Some(event) = link.poll() {
                match event {
                    LinkEvent::Up => {}
                    LinkEvent::Message(message) => {
                        assert!(message.id > *last_id, "order, each at most once");
                        *last_id = message.id;
                        assert_eq!(message.head[..], message.id.to_le_bytes());
                        let bytes = (message.id * 997 % 20_000) as usize;
                        assert_eq!(message.payload.len(), bytes);
                        assert!(message.payload.iter().all(|b| *b == message.id as u8));
                        *received.entry(message.id).or_default() += 1;
                        trace.push(format!("{} {}", net.now(), message.id));
                    }
                    LinkEvent::Down(error) => {
                        trace.push(format!("{} server: {error}", net.now()));
                        return false;
                    }
                    other => panic!("{other:?}"),
                }
            }
            true
        });
        // A moment, or until something happens, if that is sooner.
        let moment = self.net.now() + 10_000_000;
        let next = self.net.next_event().map_or(moment, |at| at.min(moment));
        self.net.advance(next);
    }
}

#[test]
fn every_fault_happens_and_a_healed_network_works() {
    let mut sum = SimStats::default();
    for seed in 0..60 {
        eprintln!("seed {seed}");
        let mut run = Run::new(seed, SimFaults::chaos());
        for _ in 0..300 {
            run.step();
        }
        run.net.heal();
        let sent_before = run.next_id;
        let mut steps = 0;
        while run
            .received
            .keys()
            .last()
            .is_none_or(|id| *id <= sent_before)
        {
            run.step();
            steps += 1;
            assert!(steps < 2000, "seed {seed}: nothing arrives any more");
        }
        assert!(run.received.values().all(|count| *count == 1));
        let stats = run.net.stats();
        assert_eq!(stats.cut > 0, run.downs > stats.refused, "{stats:?}");
        sum.connected += stats.connected;
        sum.refused += stats.refused;
        sum.cut += stats.cut;
        sum.silenced += stats.silenced;
        sum.bytes += stats.bytes;
    }
    assert!(sum.connected > 80 && sum.refused > 10, "{sum:?}");
    assert!(sum.cut > 20 && sum.silenced > 20, "{sum:?}");
}

#[test]
fn a_seed_is_a_run() {
    let run = |seed| {
        let mut run = Run::new(seed, SimFaults::chaos());
        for _ in 0..500 {
            run.step();
        }
        run.trace
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn silence_is_noticed_by_nobody_and_ends_when_healed() {
    let mut run = Run::new(1, SimFaults::none());
    while run.received.len() < 3 {
        run.step();
    }
    run.net.silence_all();
    for _ in 0..50 {
        run.step();
    }
    let held = run.received.len();
    for _ in 0..50 {
        run.step();
    }
    assert_eq!(run.received.len(), held, "nothing arrives");
    assert_eq!(run.downs, 0, "and nobody is notified");
    run.net.heal();
    for _ in 0..50 {
        run.step();
    }
    assert!(run.received.len() > held);
    let ids: Vec<_> = run.received.keys().copied().collect();
    assert!(ids.iter().copied().eq(1..=ids.len() as u64), "none is lost");
    run.net.cut_all();
    run.step();
    assert_eq!(run.downs, 1);
}

#[test]
fn what_follows_lost_bytes_never_arrives_though_the_network_is_healed() {
    let slow = SimFaults {
        cut_one_in: 1,
        cut_after_bytes: 50_000..150_000,
        slow_one_in: 1,
        slow_bytes_per_second: 200_000,
        silent_one_in: 0,
        ..SimFaults::chaos()
    };
    let mut cut = 0;
    for seed in 0..20 {
        eprintln!("seed {seed}");
        let mut run = Run::new(seed, slow.clone());
        // The way back, where little is said, may be the one that is to be cut.
        for _ in 0..300 {
            run.step();
            if run.net.stats().cut > 0 {
                break;
            }
        }
        // Bytes are lost, and nobody has seen it yet.
        cut += run.net.stats().cut;
        run.net.heal();
        for _ in 0..300 {
            run.step();
        }
        assert!(run.trace.iter().all(|line| !line.contains("no frame")));
    }
    assert!(cut >= 5, "{cut} cuts");
}

#[test]
fn counted_frames() {
    let net = SimNet::new(1, SimFaults::none());
    let counters = Counters::default();
    let counted = Counted::new(net.transport(LinkOptions::default()), counters.clone());
    let mut listener = net
        .transport(LinkOptions::default())
        .listen("sim://a")
        .unwrap();
    let mut client = counted.connect("sim://a").unwrap();
    while client.poll().is_none() {
        net.advance(net.next_event().unwrap());
    }
    let mut server = listener.accept().unwrap().unwrap();
    client.send(Message::control(FrameKind::Credit, 1, &b"12345678"[..]));
    client.poll();
    server.send(Message {
        payload: vec![Bytes::from_static(b"payload")],
        ..Message::control(FrameKind::Deliver, 1, &b"head"[..])
    });
    while let Some(at) = net.next_event() {
        net.advance(at);
        while server.poll().is_some() {}
        while client.poll().is_some() {}
    }
    let sent = counters.of(Direction::Sent, FrameKind::Credit);
    assert_eq!((sent.frames, sent.bytes), (1, 8));
    assert_eq!(counters.all(Direction::Sent), sent);
    let received = counters.all(Direction::Received);
    assert_eq!((received.frames, received.bytes), (1, 11));
    counters.reset();
    assert_eq!(counters.all(Direction::Received).frames, 0);
}
