//! What is on its way in a simulated network: listeners, connections, pipes, pieces.

use super::{SimFaults, SimStats};
use crate::contract::Notify;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

pub(super) struct World {
    pub(super) now: u64,
    pub(super) random: u64,
    pub(super) faults: SimFaults,
    pub(super) stats: SimStats,
    pub(super) last_id: u64,
    pub(super) listeners: BTreeMap<String, Listening>,
    pub(super) connections: BTreeMap<u64, Connection>,
    /// Whose way is interrupted.
    pub(super) cut_off: BTreeSet<String>,
    /// To be called when the world is not locked any more.
    pub(super) to_notify: Vec<Notify>,
}

#[derive(Default)]
pub(super) struct Listening {
    /// Which listener: a later one of the same name is another.
    pub(super) id: u64,
    pub(super) waiting: VecDeque<(u64, Arriving)>,
    pub(super) notify: Option<Notify>,
}

pub(super) struct Arriving {
    pub(super) connection: u64,
}

pub(super) struct Connection {
    /// Who connected, if he has a name.
    pub(super) by: String,
    /// [0] from who connected, [1] to it.
    pub(super) pipes: [Pipe; 2],
    pub(super) notifies: [Option<Notify>; 2],
    pub(super) bytes_per_second: u64,
    /// When who connected knows that it stands.
    pub(super) connected_at: u64,
    /// When both sides see it cut.
    pub(super) cut_at: Option<u64>,
    /// Which ends are still held by somebody.
    pub(super) held: [bool; 2],
}

#[derive(Default)]
pub(super) struct Pipe {
    /// Pieces on their way or arrived: when, and the bytes.
    pub(super) pieces: VecDeque<(u64, Piece)>,
    /// Bytes that wait for the network to be healed.
    held_back: Vec<u8>,
    pub(super) unread_bytes: usize,
    pub(super) written_bytes: u64,
    busy_until: u64,
    last_arrival: u64,
    cut_after: Option<u64>,
    /// Bytes went nowhere: so does all that follows.
    is_lossy: bool,
    pub(super) silent_after: Option<u64>,
    /// The writer is done; when the reader learns it (never while silent).
    finished: bool,
    pub(super) finish_arrives: Option<u64>,
    /// The writer was refused space and waits for some.
    pub(super) wants_to_write: bool,
}

pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) read: usize,
}

impl Pipe {
    pub(super) fn is_silent(&self) -> bool {
        self.silent_after
            .is_some_and(|after| self.written_bytes >= after)
    }
}

impl World {
    fn random(&mut self, range: Range<u64>) -> u64 {
        // splitmix64: small, and good enough to choose faults by.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let width = range.end.saturating_sub(range.start).max(1);
        range.start + z % width
    }

    pub(super) fn one_in(&mut self, chance: u64) -> bool {
        chance > 0 && self.random(0..chance) == 0
    }

    pub(super) fn delay(&mut self) -> u64 {
        let range = self.faults.delay_ns.clone();
        self.random(range)
    }

    pub(super) fn new_connection(&mut self, by: &str, connected_at: u64) -> u64 {
        let faults = self.faults.clone();
        let mut connection = Connection {
            by: by.to_owned(),
            pipes: [Pipe::default(), Pipe::default()],
            notifies: [None, None],
            bytes_per_second: faults.bytes_per_second,
            connected_at,
            cut_at: None,
            held: [true, true],
        };
        if self.one_in(faults.slow_one_in) {
            connection.bytes_per_second = faults.slow_bytes_per_second;
        }
        if self.one_in(faults.cut_one_in) {
            let side = self.random(0..2) as usize;
            let after = self.random(faults.cut_after_bytes);
            connection.pipes[side].cut_after = Some(after);
        }
        if self.one_in(faults.silent_one_in) {
            let which = self.random(1..4);
            for side in 0..2 {
                if which & (1 << side) != 0 {
                    let after = self.random(faults.silent_after_bytes.clone());
                    connection.pipes[side].silent_after = Some(after);
                    self.stats.silenced += 1;
                }
            }
        }
        self.last_id += 1;
        self.connections.insert(self.last_id, connection);
        self.last_id
    }

    /// Puts bytes on their way.
    pub(super) fn depart(&mut self, id: u64, side: usize, bytes: &[u8]) {
        let piece_max = self.faults.piece_bytes_max.max(1) as u64;
        let mut taken = 0;
        while taken < bytes.len() {
            let delay = self.delay();
            let length = self.random(1..piece_max + 1) as usize;
            let now = self.now;
            let Some(connection) = self.connections.get_mut(&id) else {
                return;
            };
            let speed = connection.bytes_per_second;
            let pipe = &mut connection.pipes[side];
            let mut length = length.min(bytes.len() - taken);
            for limit in [pipe.cut_after, pipe.silent_after].into_iter().flatten() {
                if limit > pipe.written_bytes {
                    length = length.min((limit - pipe.written_bytes) as usize);
                }
            }
            if pipe.is_lossy || pipe.cut_after.is_some_and(|at| pipe.written_bytes >= at) {
                pipe.is_lossy = true;
                if connection.cut_at.is_none() {
                    connection.cut_at = Some(pipe.last_arrival.max(now));
                    self.stats.cut += 1;
                    let notifies = connection.notifies.iter().flatten();
                    self.to_notify.extend(notifies.cloned());
                }
                // What is behind the cut goes nowhere, and nobody can know.
                return;
            }
            let piece = &bytes[taken..taken + length];
            if pipe.is_silent() {
                pipe.held_back.extend_from_slice(piece);
            } else {
                let piece = Piece {
                    bytes: piece.to_vec(),
                    read: 0,
                };
                let on_wire = (length as u64)
                    .saturating_mul(1_000_000_000)
                    .checked_div(speed)
                    .unwrap_or(0);
                pipe.busy_until = pipe.busy_until.max(now) + on_wire;
                pipe.last_arrival = pipe.last_arrival.max(pipe.busy_until + delay);
                pipe.pieces.push_back((pipe.last_arrival, piece));
            }
            pipe.unread_bytes += length;
            pipe.written_bytes += length as u64;
            taken += length;
        }
    }

    pub(super) fn finish(&mut self, id: u64, side: usize) {
        let delay = self.delay();
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let pipe = &mut connection.pipes[side];
        if std::mem::replace(&mut pipe.finished, true) || pipe.is_silent() {
            return;
        }
        pipe.last_arrival = pipe.last_arrival.max(now + delay);
        pipe.finish_arrives = Some(pipe.last_arrival);
    }

    pub(super) fn heal_pipe(&mut self, id: u64, side: usize) {
        let speed = self.faults.bytes_per_second;
        let connection = self.connections.get_mut(&id).expect("just listed");
        connection.bytes_per_second = speed;
        let pipe = &mut connection.pipes[side];
        pipe.cut_after = None;
        pipe.silent_after = None;
        let held_back = std::mem::take(&mut pipe.held_back);
        // Counted again as they depart.
        pipe.unread_bytes -= held_back.len();
        pipe.written_bytes -= held_back.len() as u64;
        let finish_held_back = pipe.finish_arrives.is_none() && pipe.finished;
        pipe.finished &= !finish_held_back;
        self.depart(id, side, &held_back);
        if finish_held_back {
            self.finish(id, side);
        }
    }

    /// The times at which something is to be seen that was not before.
    pub(super) fn times(&self) -> impl Iterator<Item = u64> + '_ {
        let listeners = self
            .listeners
            .values()
            .flat_map(|listening| listening.waiting.iter().map(|(at, _)| *at));
        let connections = self.connections.values().flat_map(Connection::times);
        listeners.chain(connections)
    }

    pub(super) fn advance(&mut self, to: u64) {
        let passed = self.now + 1..to + 1;
        self.now = self.now.max(to);
        for listening in self.listeners.values() {
            if listening.waiting.iter().any(|(at, _)| passed.contains(at)) {
                self.to_notify.extend(listening.notify.clone());
            }
        }
        for connection in self.connections.values() {
            if connection.times().any(|at| passed.contains(&at)) {
                self.to_notify
                    .extend(connection.notifies.iter().flatten().cloned());
            }
        }
    }
}

impl Connection {
    fn times(&self) -> impl Iterator<Item = u64> + '_ {
        let pipes = self.pipes.iter().flat_map(|pipe| {
            let pieces = pipe.pieces.iter().map(|(at, _)| *at);
            pieces.chain(pipe.finish_arrives)
        });
        pipes.chain(self.cut_at).chain([self.connected_at])
    }

    pub(super) fn is_cut(&self, now: u64) -> bool {
        self.cut_at.is_some_and(|at| at <= now)
    }
}
