//! The links between the servers of a cluster: messages in order, or lost with their link. A link is cut, one way too, is slow,
//! and comes back.
//!
//! ```text
//!            both run, both ways are open                a server ends; a way is shut for long
//!   Down ──────────────────────────────────► Standing ─────────────────────────────────────────► Broken
//!    ▲                                                                                              │
//!    └──────────────────── both ends have heard that it is gone, each in its own time ◄─────────────┘
//! ```

use crate::random::Random;
use bytes::Bytes;
use std::collections::BTreeMap;

const MILLISECOND: u64 = 1_000_000;
/// How long a message is on its way.
const DELAY_NS: std::ops::Range<u64> = 50_000..3 * MILLISECOND;
/// A way that is shut for so long has its link given up.
const SILENCE_NS: u64 = 3000 * MILLISECOND;
/// How often a link is tried that does not stand.
const DIAL_NS: u64 = 100 * MILLISECOND;

/// What a server hears of its link to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It stands, new.
    Up,
    /// It is gone.
    Down,
    /// A message came by it.
    Message(Bytes),
}

#[derive(Debug)]
enum Event {
    Dial,
    /// Given up, if it is the link of this epoch.
    Break(u64),
    /// One end hears that the link of this epoch is gone.
    Hear(usize, u64),
    /// For this end, by the link of this epoch.
    Message(usize, u64, Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Down,
    Standing,
    Broken,
}

/// The link of two servers; its ends are 0 and 1, of the one with the smaller number and of the other.
struct Pair {
    servers: [usize; 2],
    epoch: u64,
    state: State,
    /// Whether an end has heard that it stands, and not yet that it is gone.
    is_up: [bool; 2],
    /// From that end nothing arrives until then.
    shut_until: [u64; 2],
    /// Until when it is slow, and how slow.
    slow: (u64, u64),
    /// When the last message from that end arrives.
    last: [u64; 2],
}

/// See the module.
pub struct Wires {
    pairs: Vec<Pair>,
    running: Vec<bool>,
    stopped_until: Vec<u64>,
    events: BTreeMap<(u64, u64), (usize, Event)>,
    count: u64,
    random: Random,
}

impl Wires {
    /// The links of so many servers, of which none runs.
    pub fn new(servers: usize, random: Random) -> Self {
        let all = (0..servers).flat_map(|one| (one + 1..servers).map(move |other| [one, other]));
        let pairs = all.map(|servers| Pair {
            servers,
            epoch: 0,
            state: State::Down,
            is_up: [false; 2],
            shut_until: [0; 2],
            slow: (0, 0),
            last: [0; 2],
        });
        let mut wires = Self {
            pairs: pairs.collect(),
            running: vec![false; servers],
            stopped_until: vec![0; servers],
            events: BTreeMap::new(),
            count: 0,
            random,
        };
        for pair in 0..wires.pairs.len() {
            wires.at(0, pair, Event::Dial);
        }
        wires
    }

    fn at(&mut self, time: u64, pair: usize, event: Event) {
        self.count += 1;
        self.events.insert((time, self.count), (pair, event));
    }

    /// The place of a link, and the end of it that is the first of the two.
    fn place(&self, one: usize, other: usize) -> (usize, usize) {
        let servers = [one.min(other), one.max(other)];
        let place = self.pairs.iter().position(|pair| pair.servers == servers);
        let place = place.expect("two servers have a link");
        (place, usize::from(one > other))
    }

    /// When the next thing happens.
    pub fn next_event(&self) -> Option<u64> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// A server's process has started.
    pub fn started(&mut self, server: usize) {
        self.running[server] = true;
    }

    /// It has ended; others hear that at once, or, with the power, after a silence.
    pub fn ended(&mut self, now: u64, server: usize, with_power: bool) {
        self.running[server] = false;
        self.stopped_until[server] = 0;
        for place in 0..self.pairs.len() {
            let pair = &mut self.pairs[place];
            let Some(end) = pair.servers.iter().position(|one| *one == server) else {
                continue;
            };
            pair.is_up[end] = false;
            if pair.state == State::Down {
                continue;
            }
            pair.state = State::Broken;
            let after = match with_power {
                true => SILENCE_NS,
                false => MILLISECOND,
            };
            let epoch = pair.epoch;
            self.at(now + after, place, Event::Hear(1 - end, epoch));
            self.at(now, place, Event::Dial);
        }
    }

    /// A server sends a message to another one. It is lost if the link does not stand.
    pub fn send(&mut self, now: u64, from: usize, to: usize, bytes: Bytes) {
        let (place, end) = self.place(from, to);
        let mut delay = self.random.within(DELAY_NS);
        let pair = &mut self.pairs[place];
        if pair.state != State::Standing || !pair.is_up[end] {
            return;
        }
        let (until, slow) = pair.slow;
        if now < until {
            delay += slow;
        }
        let at = (now + delay).max(pair.shut_until[end]).max(pair.last[end]);
        pair.last[end] = at;
        let event = Event::Message(1 - end, pair.epoch, bytes);
        self.at(at, place, event);
    }

    /// Nothing gets from one server to the other until then.
    pub fn shut(&mut self, now: u64, from: usize, to: usize, until: u64) {
        let (place, end) = self.place(from, to);
        let pair = &mut self.pairs[place];
        pair.shut_until[end] = pair.shut_until[end].max(until);
        if until - now >= SILENCE_NS {
            let event = Event::Break(pair.epoch);
            self.at(now + SILENCE_NS, place, event);
        }
    }

    /// A server's process is stopped until then: others take it for silent.
    pub fn stopped(&mut self, now: u64, server: usize, until: u64) {
        self.stopped_until[server] = until;
        if until - now < SILENCE_NS {
            return;
        }
        for place in 0..self.pairs.len() {
            let pair = &self.pairs[place];
            if pair.servers.contains(&server) {
                let event = Event::Break(pair.epoch);
                self.at(now + SILENCE_NS, place, event);
            }
        }
    }

    /// Messages of two servers take so much longer until then.
    pub fn slow_down(&mut self, one: usize, other: usize, slow: u64, until: u64) {
        let (place, _) = self.place(one, other);
        self.pairs[place].slow = (until, slow);
    }

    /// The link of two servers is gone, and comes again.
    pub fn cut(&mut self, now: u64, one: usize, other: usize) {
        let (place, _) = self.place(one, other);
        let event = Event::Break(self.pairs[place].epoch);
        self.at(now, place, event);
    }

    /// Nothing is shut or slow any more.
    pub fn heal(&mut self) {
        for pair in &mut self.pairs {
            pair.shut_until = [0; 2];
            pair.slow = (0, 0);
        }
    }

    /// The next thing that a server hears by now, and of which other one.
    pub fn poll(&mut self, now: u64) -> Option<(usize, usize, Heard)> {
        loop {
            let ((at, _), _) = self.events.first_key_value()?;
            if *at > now {
                return None;
            }
            let (_, (place, event)) = self.events.pop_first().expect("it is the first");
            let heard = self.happen(now, place, event);
            if let Some((end, heard)) = heard {
                let servers = self.pairs[place].servers;
                return Some((servers[end], servers[1 - end], heard));
            }
        }
    }

    fn happen(&mut self, now: u64, place: usize, event: Event) -> Option<(usize, Heard)> {
        let pair = &mut self.pairs[place];
        match event {
            Event::Dial => {
                let answers = |one: &usize| self.running[*one] && self.stopped_until[*one] <= now;
                let is_open = pair.shut_until.iter().all(|until| *until <= now);
                let is_open = is_open && pair.servers.iter().all(answers);
                if pair.state == State::Broken && pair.is_up == [false; 2] {
                    pair.state = State::Down;
                }
                match pair.state {
                    State::Standing => {}
                    State::Down if is_open => {
                        pair.epoch += 1;
                        pair.state = State::Standing;
                        // The second end hears it behind the first, in the same moment.
                        pair.is_up = [true; 2];
                        pair.last = [now; 2];
                        let epoch = pair.epoch;
                        self.at(now, place, Event::Message(1, epoch, Bytes::new()));
                        return Some((0, Heard::Up));
                    }
                    // An end that hears of a new connection knows that the one before is gone.
                    State::Broken if is_open => {
                        let epoch = pair.epoch;
                        (0..2).for_each(|end| self.at(now, place, Event::Hear(end, epoch)));
                        self.at(now, place, Event::Dial);
                    }
                    State::Down | State::Broken => self.at(now + DIAL_NS, place, Event::Dial),
                }
                None
            }
            Event::Break(epoch) => {
                if pair.state != State::Standing || pair.epoch != epoch {
                    return None;
                }
                pair.state = State::Broken;
                for end in 0..2 {
                    let later = self.random.within(0..1000 * MILLISECOND);
                    self.at(now + later, place, Event::Hear(end, epoch));
                }
                self.at(now, place, Event::Dial);
                None
            }
            Event::Hear(end, epoch) => {
                let is_news = pair.epoch == epoch && std::mem::take(&mut pair.is_up[end]);
                is_news.then_some((end, Heard::Down))
            }
            Event::Message(end, epoch, bytes) => {
                let stands = pair.state == State::Standing && pair.epoch == epoch;
                let heard = match bytes.is_empty() {
                    true => Heard::Up,
                    false => Heard::Message(bytes),
                };
                (stands && pair.is_up[end]).then_some((end, heard))
            }
        }
    }
}
