use super::*;
use crate::faults;
use crate::frame::tests::seeds;

/// Two sessions, and connections between them that are cut, under one seed and a clock of its own.
struct World {
    sides: [Session; 2],
    /// Connections: where each side has them, and what is on its way from each side.
    wires: Vec<Wire>,
    now: Instant,
    random: u64,
    /// Streams whose writers were woken, by side.
    writable: BTreeSet<(usize, StreamId)>,
}

struct Wire {
    stripes: [Stripe; 2],
    flows: [VecDeque<Frame>; 2],
}

const JOINED: usize = 0;
const OFFERED: usize = 1;

impl World {
    fn new(seed: u64, rates: Rates) -> Self {
        Self::within(seed, rates, &Memory::of(2 << 30))
    }

    /// Both sides share that memory.
    fn within(seed: u64, rates: Rates, memory: &Memory) -> Self {
        let now = Instant::now();
        let theirs = Rates {
            sends: rates.takes,
            takes: rates.sends,
        };
        Self {
            sides: [
                Session::new(Side::Joined, rates, memory, now),
                Session::new(Side::Offered, theirs, memory, now),
            ],
            wires: Vec::new(),
            writable: BTreeSet::new(),
            now,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 11) % bound as u64) as usize
    }

    fn connect(&mut self) {
        let now = self.now;
        let stripes = [0, 1].map(|side| self.sides[side].attach(now).unwrap());
        self.wires.push(Wire {
            stripes,
            flows: Default::default(),
        });
    }

    /// What is on its way is lost, of some frames that were sent.
    fn cut(&mut self, wire: usize) {
        let wire = self.wires.swap_remove(wire);
        for side in [0, 1] {
            self.sides[side].lost(wire.stripes[side]);
        }
    }

    /// One connection sends one frame, or one arrives. `false` if this one had nothing to do.
    fn step(&mut self) -> bool {
        if self.wires.is_empty() {
            return false;
        }
        let at = self.below(self.wires.len());
        let side = self.below(2);
        let now = self.now;
        let wire = &mut self.wires[at];
        match self.random % 2 {
            0 => match self.sides[side].next(now, wire.stripes[side]) {
                Next::Frame(frame) => {
                    wire.flows[side].push_back(frame);
                    true
                }
                Next::At(_) | Next::Idle => false,
            },
            _ => match wire.flows[1 - side].pop_front() {
                Some(frame) => {
                    self.sides[side]
                        .receive(now, wire.stripes[side], frame)
                        .unwrap();
                    true
                }
                None => false,
            },
        }
    }

    /// Goes on until nothing more happens at this time.
    fn settle(&mut self) {
        let mut idle = 0;
        while idle < 64 * (1 + self.wires.len()) {
            idle = if self.step() { 0 } else { idle + 1 };
        }
    }

    fn opened(&mut self, side: usize) -> Vec<(StreamId, String)> {
        let mut opened = Vec::new();
        for wake in self.sides[side].wakes() {
            match wake {
                Wake::Opened(id, name) => opened.push((id, name)),
                Wake::Writable(id) => drop(self.writable.insert((side, id))),
                _ => {}
            }
        }
        opened
    }
}

fn byte_at(id: StreamId, side: usize, offset: usize) -> u8 {
    (offset as u64)
        .wrapping_mul(2_654_435_761)
        .wrapping_add(u64::from(id.0) * 31 + side as u64) as u8
}

/// One direction of a stream, as the test plays its programs.
struct Flow {
    id: StreamId,
    from: usize,
    sent: usize,
    length: usize,
    is_finished: bool,
    read: usize,
    is_ended: bool,
    /// Its reader knows the stream.
    is_there: bool,
    /// It found no room, and waits to be woken.
    waits: bool,
}

impl Flow {
    fn new(id: StreamId, from: usize, length: usize) -> Self {
        Self {
            id,
            from,
            sent: 0,
            length,
            is_finished: false,
            read: 0,
            is_ended: false,
            is_there: false,
            waits: false,
        }
    }

    fn write(&mut self, world: &mut World) {
        self.waits &= !world.writable.remove(&(self.from, self.id));
        if self.waits {
            return;
        }
        let room = world.sides[self.from].room(self.id).unwrap_or_default();
        let most = room.min(self.length - self.sent);
        self.waits = room == 0;
        if most > 0 {
            let bytes = 1 + world.below(most.min(90_000));
            let block = (self.sent..self.sent + bytes).map(|at| byte_at(self.id, self.from, at));
            let block: Vec<u8> = block.collect();
            world.sides[self.from].write(self.id, block.into());
            self.sent += bytes;
        }
        if self.sent == self.length && !self.is_finished {
            world.sides[self.from].finish(self.id);
            self.is_finished = true;
        }
    }

    fn read(&mut self, world: &mut World) {
        if self.is_ended || !self.is_there {
            return;
        }
        match world.sides[1 - self.from].read(self.id) {
            Read::Bytes(bytes) => {
                for byte in &bytes {
                    assert_eq!(
                        *byte,
                        byte_at(self.id, self.from, self.read),
                        "{:?} at {}",
                        self.id,
                        self.read
                    );
                    self.read += 1;
                }
            }
            Read::Nothing => {}
            Read::End => {
                assert_eq!(self.read, self.length, "{:?} ended early", self.id);
                self.is_ended = true;
            }
            Read::Reset(reason) => panic!("{:?} was reset: {reason}", self.id),
        }
    }
}

/// Streams of both sides over connections that are cut and come again. Whether all arrived.
fn play(seed: u64, memory: &Memory) -> bool {
    let mut world = World::within(seed, Rates::default(), memory);
    for _ in 0..1 + world.below(6) {
        world.connect();
    }
    let mut flows: Vec<Flow> = Vec::new();
    let mut unopened = 2 + world.below(12);
    let mut calm = 0;
    for _ in 0..10_000_000 {
        match world.below(400) {
            0..20 if unopened > 0 => {
                unopened -= 1;
                let side = world.below(2);
                let now = world.now;
                let id = world.sides[side].open(now, "t").unwrap();
                let most = [10, 5000, 1_500_000][world.below(3)];
                let length = world.below(most);
                flows.push(Flow::new(id, side, length));
            }
            20 if !world.wires.is_empty() && calm == 0 => {
                let wire = world.below(world.wires.len());
                world.cut(wire);
            }
            21..25 if world.wires.len() < 6 => world.connect(),
            25 => {
                world.now += Duration::from_millis(20);
                let now = world.now;
                world.sides.iter_mut().for_each(|side| side.tick(now));
            }
            26..200 if !flows.is_empty() => {
                let at = world.below(flows.len());
                flows[at].write(&mut world);
                flows[at].read(&mut world);
            }
            _ => drop(world.step()),
        }
        for side in [JOINED, OFFERED] {
            for (id, _) in world.opened(side) {
                assert!(
                    !flows.iter().any(|flow| flow.id == id && flow.from == side),
                    "{id:?} was opened twice"
                );
                for flow in flows.iter_mut().filter(|flow| flow.id == id) {
                    flow.is_there = true;
                }
                let most = [1, 3000, 700_000][world.below(3)];
                let length = world.below(most);
                flows.push(Flow {
                    is_there: true,
                    ..Flow::new(id, side, length)
                });
            }
        }
        let all = flows.iter().all(|flow| flow.is_ended && flow.is_finished);
        if unopened == 0 && all && flows.len().is_multiple_of(2) {
            calm += 1;
            // Both sides forget what has ended, after some more calm.
            if calm > 400 && world.sides.iter().all(|side| side.streams.is_empty()) {
                let shares = world.sides.iter().flat_map(|side| {
                    let Shares {
                        streams,
                        windows,
                        sends,
                    } = &side.shares;
                    [streams.own(), windows.own(), sends.own()]
                });
                assert_eq!(shares.sum::<u64>(), 0, "memory is given back");
                let queued: usize = world.sides.iter().map(|side| side.queued).sum();
                assert_eq!(queued, 0, "nothing waits of nobody");
                return true;
            }
        }
    }
    false
}

#[test]
fn every_byte_arrives_once_and_in_order_whatever_is_cut() {
    for seed in seeds(1..40) {
        // With enough memory, and with less than the floors of all streams.
        for memory in [Memory::of(2 << 30), Memory::short(100_000)] {
            assert!(
                play(seed, &memory),
                "RELAY_SEEDS={seed}..{}: not all has arrived",
                seed + 1
            );
        }
    }
}

/// Memory is short while the window of a stream is large: its sender holds what has arrived until it is said.
fn a_short_stream_moves_on() -> bool {
    let memory = Memory::short(8 << 20);
    let mut world = World::within(3, Rates::default(), &memory);
    world.connect();
    let now = world.now;
    let id = world.sides[JOINED].open(now, "t").unwrap();
    world.settle();
    let read_all = |world: &mut World| {
        world.settle();
        while let Read::Bytes(_) = world.sides[OFFERED].read(id) {}
        world.settle();
    };
    while world.sides[OFFERED].streams[&id].receiving.grown() < 1 << 20 {
        world.now += Duration::from_micros(10);
        fill(&mut world.sides[JOINED], id);
        read_all(&mut world);
    }
    // Others take all, but for what comes back to this one.
    let mut others = memory.shares().sends;
    others.hold(8 << 20);
    while fill(&mut world.sides[JOINED], id) > 0 {
        read_all(&mut world);
    }
    let begun = world.sides[JOINED].account().bytes_out;
    world.sides[JOINED].wakes();
    for _ in 0..20 {
        world.now += ASK_EVERY;
        world.settle();
        world.opened(JOINED);
        if world.writable.remove(&(JOINED, id)) {
            fill(&mut world.sides[JOINED], id);
            read_all(&mut world);
        }
    }
    world.sides[JOINED].account().bytes_out - begun >= 10 * SHARE_BYTES as u64
}

#[test]
fn a_stream_moves_on_however_short_memory_is() {
    assert!(a_short_stream_moves_on());
    assert!(
        !faults::with(Fault::Unasked, a_short_stream_moves_on),
        "it is not missed"
    );
}

#[test]
fn what_is_not_sent_again_is_missed() {
    let misses = |fault| {
        (1..40).any(|seed| {
            let played = faults::with(fault, || {
                std::panic::catch_unwind(|| play(seed, &Memory::of(2 << 30)))
            });
            faults::with(fault, || ());
            !played.unwrap_or(false)
        })
    };
    assert!(misses(Fault::NothingAgain));
}

#[test]
fn a_stream_that_is_opened_once_more_is_the_same() {
    let twice = |world: &mut World| {
        let now = world.now;
        let open = Frame::Open {
            stream: StreamId(2),
            name: "t".to_owned(),
        };
        let stripe = world.wires[0].stripes[OFFERED];
        world.sides[OFFERED]
            .receive(now, stripe, open.clone())
            .unwrap();
        world.sides[OFFERED].reset(StreamId(2), Reason::NoTarget);
        world.sides[OFFERED].receive(now, stripe, open).unwrap();
        world.opened(OFFERED).len()
    };
    let fresh = || {
        let mut world = World::new(1, Rates::default());
        world.connect();
        world
    };
    assert_eq!(twice(&mut fresh()), 1);
    assert_eq!(faults::with(Fault::OpenedTwice, || twice(&mut fresh())), 2);
}

/// Two sides with a connection each, and a stream that both know.
fn opened() -> (World, StreamId) {
    let mut world = World::new(3, Rates::default());
    world.connect();
    let now = world.now;
    let id = world.sides[JOINED].open(now, "t").unwrap();
    world.settle();
    assert_eq!(world.opened(OFFERED), [(id, "t".to_owned())]);
    (world, id)
}

#[test]
fn who_does_not_keep_to_the_protocol_is_told_so() {
    let broken = |frame: Frame| {
        let (mut world, _) = opened();
        let now = world.now;
        let stripe = world.wires[0].stripes[OFFERED];
        world.sides[OFFERED].receive(now, stripe, frame)
    };
    let stream = StreamId(2);
    let data = |offset, bytes: usize| Frame::Data {
        stream,
        offset,
        bytes: vec![0; bytes].into(),
    };
    assert_eq!(broken(data(0, 60_000)), Ok(()));
    assert_eq!(broken(data(WINDOW_BYTES - 10, 10)), Ok(()));
    let over = data(WINDOW_BYTES - 10, 11);
    assert!(broken(over.clone()).is_err());
    assert_eq!(faults::with(Fault::IgnoredCredit, || broken(over)), Ok(()));
    assert!(
        broken(Frame::Credit {
            stream,
            received: 1,
            limit: 2
        })
        .is_err()
    );
    assert!(
        broken(Frame::Close {
            stream,
            offset: WINDOW_BYTES + 1
        })
        .is_err()
    );
    assert!(
        broken(Frame::Open {
            stream: StreamId(3),
            name: "t".to_owned()
        })
        .is_err()
    );
    assert!(
        broken(Frame::Open {
            stream: StreamId(0),
            name: "t".to_owned()
        })
        .is_err()
    );
    assert!(broken(Frame::Refused(crate::frame::Refusal::Wrong)).is_err());
    // What is not known is no harm: it may have ended.
    assert_eq!(
        broken(Frame::Data {
            stream: StreamId(8),
            offset: 0,
            bytes: vec![0].into()
        }),
        Ok(())
    );
    assert_eq!(
        broken(Frame::Reset {
            stream: StreamId(8),
            reason: Reason::Gone
        }),
        Ok(())
    );
}

#[test]
fn a_side_that_is_silent_is_dropped_and_its_streams_end() {
    let (mut world, id) = opened();
    world.sides[JOINED].wakes();
    let mut dropped = false;
    for _ in 0..21 {
        world.now += Duration::from_secs(1);
        let now = world.now;
        world.sides[JOINED].tick(now);
        dropped |= world.sides[JOINED]
            .wakes()
            .iter()
            .any(|wake| matches!(wake, Wake::Drop(_)));
    }
    assert!(dropped);
    assert_eq!(world.sides[JOINED].read(id), Read::Reset(Reason::Cut));
}

#[test]
fn two_sides_that_say_nothing_hear_each_other() {
    let (mut world, id) = opened();
    for _ in 0..100 {
        world.now += Duration::from_secs(1);
        let now = world.now;
        world.sides.iter_mut().for_each(|side| side.tick(now));
        world.settle();
    }
    assert_eq!(world.sides[JOINED].read(id), Read::Nothing);
    assert_eq!(world.sides[JOINED].stripes(), 1);
    assert!(world.sides[JOINED].account().rtt.is_some());
}

#[test]
fn the_end_is_heard_and_ends_all() {
    let (mut world, id) = opened();
    world.sides[JOINED].leave(Reason::Leaves);
    world.settle();
    assert_eq!(world.sides[OFFERED].over(), Some(Reason::Leaves));
    assert_eq!(world.sides[OFFERED].read(id), Read::Reset(Reason::Leaves));
    let now = world.now;
    assert_eq!(world.sides[OFFERED].open(now, "t"), Err(Reason::Leaves));
}

#[test]
fn who_comes_when_it_is_over_is_told_and_counts_for_nothing_more() {
    let (mut world, id) = opened();
    let now = world.now;
    let left = &mut world.sides[JOINED];
    left.leave(Reason::Leaves);
    let late = left.attach(now).unwrap();
    assert_eq!(
        left.next(now, late),
        Next::Frame(Frame::Goodbye(Reason::Leaves))
    );
    left.receive(now, late, Frame::Ping(1)).unwrap();
    left.receive(now, late, Frame::Goodbye(Reason::Over))
        .unwrap();
    assert_eq!(left.next(now, late), Next::Idle);
    assert_eq!(left.over(), Some(Reason::Leaves));
    assert_eq!(left.read(id), Read::Reset(Reason::Leaves));
}

/// Bytes of each of `streams` that pass in `seconds` of the clock, with a sender that never has too little.
fn pass(rate: u64, streams: usize, seconds: u64) -> Vec<usize> {
    let mut world = World::new(
        5,
        Rates {
            sends: Some(rate),
            takes: None,
        },
    );
    world.connect();
    world.connect();
    let now = world.now;
    let ids: Vec<StreamId> = (0..streams)
        .map(|_| world.sides[JOINED].open(now, "t").unwrap())
        .collect();
    let mut passed = vec![0; streams];
    let end = now + Duration::from_secs(seconds);
    while world.now < end {
        world.now += Duration::from_millis(1);
        for (id, passed) in ids.iter().zip(&mut passed) {
            let room = world.sides[JOINED].room(*id).unwrap();
            if room > 100_000 {
                world.sides[JOINED].write(*id, vec![0; 100_000].into());
            }
            while let Read::Bytes(bytes) = world.sides[OFFERED].read(*id) {
                *passed += bytes.len();
            }
        }
        world.settle();
    }
    passed
}

#[test]
fn the_rate_is_kept_and_shared_fairly() {
    let rate = 2_000_000;
    let passed = pass(rate, 8, 5);
    let all: usize = passed.iter().sum();
    let asked = rate as f64 * 5.0;
    assert!(
        (all as f64 / asked - 1.0).abs() < 0.05,
        "{}",
        all as f64 / asked
    );
    for one in &passed {
        let share = *one as f64 * 8.0 / all as f64;
        assert!((share - 1.0).abs() < 0.15, "{passed:?}");
    }
    let free = faults::with(Fault::FreeData, || pass(rate, 8, 1));
    assert!(
        free.iter().sum::<usize>() as f64 > rate as f64 * 1.05,
        "the fault is not planted"
    );
}

#[test]
fn a_fat_stream_goes_by_every_connection() {
    let mut world = World::new(9, Rates::default());
    for _ in 0..4 {
        world.connect();
    }
    let now = world.now;
    let id = world.sides[JOINED].open(now, "t").unwrap();
    world.settle();
    world.sides[JOINED].write(id, vec![0; 500_000].into());
    let mut by = BTreeSet::new();
    for _ in 0..8 {
        for wire in 0..4 {
            let stripe = world.wires[wire].stripes[JOINED];
            if let Next::Frame(Frame::Data { .. }) = world.sides[JOINED].next(now, stripe) {
                by.insert(wire);
            }
        }
    }
    assert!(by.len() > 1, "{by:?}");
}

/// Writes what a stream takes. Gives how much that was.
fn fill(side: &mut Session, id: StreamId) -> usize {
    let mut given = 0;
    while let Some(room @ 1..) = side.room(id) {
        side.write(id, Bytes::from(vec![0; room.min(SHARE_BYTES)]));
        given += room.min(SHARE_BYTES);
    }
    given
}

#[test]
fn streams_that_nobody_reads_leave_a_fat_one_every_connection() {
    let connections = || {
        let mut world = World::new(9, Rates::default());
        for _ in 0..4 {
            world.connect();
        }
        let now = world.now;
        for _ in 0..8 {
            let id = world.sides[JOINED].open(now, "t").unwrap();
            // What the other side takes without a reader, and what waits here then.
            while fill(&mut world.sides[JOINED], id) > 0 {
                world.settle();
            }
        }
        let id = world.sides[JOINED].open(now, "t").unwrap();
        world.settle();
        fill(&mut world.sides[JOINED], id);
        let mut by = BTreeSet::new();
        for _ in 0..8 {
            for wire in 0..4 {
                let stripe = world.wires[wire].stripes[JOINED];
                if let Next::Frame(Frame::Data { .. }) = world.sides[JOINED].next(now, stripe) {
                    by.insert(wire);
                }
            }
        }
        by.len()
    };
    assert!(connections() > 1);
    assert_eq!(
        faults::with(Fault::CountsBlocked, connections),
        1,
        "it is not missed"
    );
}

/// Sessions that share a memory, with streams that send all that they may to readers that stop. Gives what they hold at the
/// end by what each stream says, and whether each session has got somewhere.
fn hoard(memory: &Memory, sessions: usize) -> (u64, bool) {
    let mut worlds: Vec<World> = (0..sessions as u64)
        .map(|seed| World::within(seed + 1, Rates::default(), memory))
        .collect();
    let mut has_moved = true;
    let mut stalls = BTreeMap::new();
    let mut ids = Vec::new();
    for world in &mut worlds {
        world.connect();
        let now = world.now;
        let opened = (0..STREAMS_ALWAYS).map(|_| world.sides[JOINED].open(now, "t").unwrap());
        ids.push(opened.collect::<Vec<_>>());
        world.settle();
    }
    for turn in 0..12 {
        for (at, (world, ids)) in worlds.iter_mut().zip(&ids).enumerate() {
            world.now += Duration::from_micros(10);
            for id in ids {
                let given = fill(&mut world.sides[JOINED], *id);
                // One that finds no memory asks, and has some in the next turn.
                let stalled = stalls.entry((at, *id)).or_insert(0);
                *stalled = if given > 0 { 0 } else { *stalled + 1 };
                has_moved &= *stalled < 2 || turn > 8;
            }
            world.settle();
            // Read so fast windows grow.
            for id in ids.iter().filter(|_| turn < 8) {
                while let Read::Bytes(_) = world.sides[OFFERED].read(*id) {}
            }
            world.settle();
            world.now += ASK_EVERY;
            world.settle();
        }
    }
    let held = |side: &Session| {
        let of = |stream: &Stream| stream.sending.held() + WINDOW_BYTES + stream.receiving.grown();
        side.streams.values().map(of).sum::<u64>()
    };
    let all = worlds.iter().flat_map(|world| &world.sides).map(held);
    (all.sum(), has_moved)
}

#[test]
fn what_all_sessions_of_a_process_hold_is_bounded() {
    let bytes = 64 << 20;
    let memory = Memory::of(bytes);
    // Each stream may hold a share of what it sends, however little is left.
    let most = bytes + (12 * 2 * STREAMS_ALWAYS * SHARE_BYTES) as u64;
    let (alone, _) = hoard(&memory, 1);
    let (all, has_moved) = hoard(&memory, 12);
    assert!(has_moved, "one gets nowhere");
    assert!(alone < bytes && all <= most, "{alone} and {all} of {bytes}");
    assert_eq!(memory.used(), [0; 3]);
    let unbounded = faults::with(Fault::OwnMemory, || hoard(&Memory::of(bytes), 12).0);
    assert!(unbounded > most, "{unbounded}: it is not missed");
}

#[test]
fn streams_of_all_sessions_are_bounded_together() {
    let counts = || {
        let memory = Memory::of(512 * WINDOW_BYTES);
        let mut all = Vec::new();
        for _ in 0..8 {
            let now = Instant::now();
            let mut side = Session::new(Side::Joined, Rates::default(), &memory, now);
            while side.open(now, "t").is_ok() {}
            assert_eq!(side.open(now, "t"), Err(Reason::Full));
            assert_eq!(side.account().refused, 2);
            all.push(side);
        }
        let counts: Vec<_> = all.iter().map(|side| side.streams.len()).collect();
        drop(all);
        assert_eq!(memory.used(), [0; 3]);
        counts
    };
    let some = counts();
    assert_eq!(some[0], 128, "half");
    assert!(
        some.iter().all(|count| *count >= STREAMS_ALWAYS),
        "{some:?}"
    );
    assert!(
        some.iter().sum::<usize>() <= 256 + 8 * STREAMS_ALWAYS,
        "{some:?}"
    );
    let many: usize = faults::with(Fault::OwnMemory, counts).iter().sum();
    assert!(many > 256 + 8 * STREAMS_ALWAYS, "{many}: it is not missed");
}

#[test]
fn streams_are_bounded() {
    let (mut world, _) = opened();
    let now = world.now;
    for _ in 1..STREAMS_MAX {
        world.sides[JOINED].open(now, "t").unwrap();
    }
    assert_eq!(world.sides[JOINED].open(now, "t"), Err(Reason::Full));
    assert_eq!(world.sides[JOINED].account().refused, 1);
    let stripe = world.wires[0].stripes[OFFERED];
    for number in 2..STREAMS_MAX as u32 + 10 {
        let open = Frame::Open {
            stream: StreamId(number * 2),
            name: "t".to_owned(),
        };
        world.sides[OFFERED].receive(now, stripe, open).unwrap();
    }
    assert_eq!(world.sides[OFFERED].account().open, STREAMS_MAX as u64);
    // Who asks for more and reads no answer is not answered for ever.
    let refused = (0..3 * STREAMS_MAX as u32).find_map(|number| {
        let open = Frame::Open {
            stream: StreamId((2 * STREAMS_MAX as u32 + number) * 2),
            name: "t".to_owned(),
        };
        world.sides[OFFERED].receive(now, stripe, open).err()
    });
    assert!(refused.is_some(), "the answers grow without a bound");
}

#[test]
fn what_waits_of_many_streams_together_is_bounded_and_each_has_a_share() {
    let waiting = || {
        let mut world = World::new(1, Rates::default());
        let (now, side) = (world.now, &mut world.sides[JOINED]);
        let ids: Vec<_> = (0..100).map(|_| side.open(now, "t").unwrap()).collect();
        for id in ids {
            assert!(fill(side, id) >= SHARE_BYTES);
        }
        side.queued
    };
    let most = ALL_QUEUED_BYTES + 100 * SHARE_BYTES;
    assert!(waiting() <= most);
    assert!(faults::with(Fault::OwnQueues, waiting) > most);
}
