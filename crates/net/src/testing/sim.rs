//! A network in one thread, with faults, a seed and a virtual clock.
//!
//! It carries the very stream links that tcp and unix carry, over simulated
//! streams of bytes: so frames are cut at any byte, as on a real network.
//! Nothing happens unless it is polled and the clock is advanced, and the
//! same seed and calls give the same run.

mod world;

use crate::address;
use crate::byte_stream::ByteStream;
use crate::contract::*;
use crate::options::LinkOptions;
use crate::stream::StreamLink;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};
use world::{Arriving, Listening, World};

const SCHEME: &str = "sim";

/// How the simulated network behaves. Faults are chosen when a connection is
/// made: a chance of `n` means one in `n`, 0 never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimFaults {
    /// How long a piece of a stream is on its way, nanoseconds.
    pub delay_ns: Range<u64>,
    /// How fast each direction is; 0 is infinitely.
    pub bytes_per_second: u64,
    /// How many bytes may be written and not yet read, each way.
    pub window_bytes: usize,
    /// The longest piece that travels in one; pieces have random lengths up to it.
    pub piece_bytes_max: usize,
    /// Chance that a connection is refused.
    pub refuse_one_in: u64,
    /// Chance that a connection is cut, both ways at once, ...
    pub cut_one_in: u64,
    /// ... after so many bytes one way.
    pub cut_after_bytes: Range<u64>,
    /// Chance that one direction of a connection, or both, falls silent: what
    /// is written is not lost, it arrives when the network is healed.
    pub silent_one_in: u64,
    /// ... after so many bytes one way.
    pub silent_after_bytes: Range<u64>,
    /// Chance that a connection is slow both ways.
    pub slow_one_in: u64,
    /// How slow that is.
    pub slow_bytes_per_second: u64,
}

impl SimFaults {
    /// No faults: a fast local network.
    pub fn none() -> Self {
        Self {
            delay_ns: 20_000..60_000,
            bytes_per_second: 1_000_000_000,
            window_bytes: 1 << 20,
            piece_bytes_max: 64 << 10,
            refuse_one_in: 0,
            cut_one_in: 0,
            cut_after_bytes: 0..1,
            silent_one_in: 0,
            silent_after_bytes: 0..1,
            slow_one_in: 0,
            slow_bytes_per_second: 1,
        }
    }

    /// Everything goes wrong now and then.
    pub fn chaos() -> Self {
        Self {
            delay_ns: 20_000..20_000_000,
            bytes_per_second: 100_000_000,
            window_bytes: 64 << 10,
            piece_bytes_max: 5_000,
            refuse_one_in: 5,
            cut_one_in: 2,
            cut_after_bytes: 0..200_000,
            silent_one_in: 6,
            silent_after_bytes: 0..100_000,
            slow_one_in: 8,
            slow_bytes_per_second: 200_000,
        }
    }
}

/// What has happened on a simulated network so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SimStats {
    /// Connections that were made.
    pub connected: u64,
    /// Connections that were refused, for whatever reason.
    pub refused: u64,
    /// Connections that were cut.
    pub cut: u64,
    /// Directions of connections that fell silent.
    pub silenced: u64,
    /// Bytes that arrived.
    pub bytes: u64,
}

/// A simulated network. Cloning shares it.
#[derive(Clone)]
pub struct SimNet {
    world: Arc<Mutex<World>>,
}

impl SimNet {
    /// A network of its own.
    pub fn new(seed: u64, faults: SimFaults) -> Self {
        Self {
            world: Arc::new(Mutex::new(World {
                now: 0,
                random: seed,
                faults,
                stats: SimStats::default(),
                last_id: 0,
                listeners: BTreeMap::new(),
                connections: BTreeMap::new(),
                cut_off: BTreeSet::new(),
                to_notify: Vec::new(),
            })),
        }
    }

    /// The transport of this network. Addresses are `sim://name`.
    pub fn transport(&self, options: LinkOptions) -> Sim {
        self.transport_of(String::new(), options)
    }

    /// The transport of somebody who can be cut off by his name.
    pub fn transport_of(&self, name: String, options: LinkOptions) -> Sim {
        Sim {
            net: self.clone(),
            name,
            options,
        }
    }

    /// The virtual time, nanoseconds.
    pub fn now(&self) -> u64 {
        self.lock().now
    }

    /// When the next thing happens by itself; `None` if nothing will.
    pub fn next_event(&self) -> Option<u64> {
        let world = self.lock();
        world.times().filter(|at| *at > world.now).min()
    }

    /// Moves the virtual time on; never back.
    pub fn advance(&self, to: u64) {
        self.change(|world| world.advance(to));
    }

    /// What happens to connections from now on. Those that stand keep the
    /// faults that were chosen for them.
    pub fn set_faults(&self, faults: SimFaults) {
        self.change(|world| world.faults = faults);
    }

    /// No faults any more, for standing connections neither: planned cuts are
    /// dropped, and what silence held back is on its way.
    pub fn heal(&self) {
        self.change(|world| {
            world.faults = SimFaults::none();
            world.cut_off.clear();
            let ids: Vec<_> = world.connections.keys().copied().collect();
            for (id, side) in ids.into_iter().flat_map(|id| [(id, 0), (id, 1)]) {
                world.heal_pipe(id, side);
            }
        });
    }

    /// Cuts every connection that stands, now.
    pub fn cut_all(&self) {
        self.change(|world| {
            for connection in world.connections.values_mut() {
                if connection.cut_at.is_none() {
                    world.stats.cut += 1;
                    connection.cut_at = Some(world.now);
                }
                world
                    .to_notify
                    .extend(connection.notifies.iter().flatten().cloned());
            }
        });
    }

    /// Every connection that stands falls silent both ways, now, until healed.
    pub fn silence_all(&self) {
        self.change(|world| {
            for connection in world.connections.values_mut() {
                for pipe in &mut connection.pipes {
                    if !pipe.is_silent() {
                        pipe.silent_after = Some(pipe.written_bytes);
                        world.stats.silenced += 1;
                    }
                }
            }
        });
    }

    /// Interrupts the way of who has this name: what he connected falls silent
    /// both ways, and he can't connect anew, until [`SimNet::reconnect`].
    pub fn cut_off(&self, name: &str) {
        self.change(|world| {
            world.cut_off.insert(name.to_owned());
            for connection in world.connections.values_mut() {
                if connection.by == name {
                    for pipe in &mut connection.pipes {
                        pipe.silent_after = Some(pipe.written_bytes);
                    }
                }
            }
        });
    }

    /// The way is there again: what was held back arrives, unless the other
    /// side has given the connection up meanwhile.
    pub fn reconnect(&self, name: &str) {
        self.change(|world| {
            world.cut_off.remove(name);
            let connections = world.connections.iter();
            let its = connections.filter(|(_, connection)| connection.by == name);
            let ids: Vec<u64> = its.map(|(id, _)| *id).collect();
            for (id, side) in ids.into_iter().flat_map(|id| [(id, 0), (id, 1)]) {
                world.heal_pipe(id, side);
            }
        });
    }

    /// Slows down the connections that stand of who has this name, until healed.
    pub fn slow_down(&self, name: &str, bytes_per_second: u64) {
        self.change(|world| {
            let connections = world.connections.values_mut();
            for connection in connections.filter(|connection| connection.by == name) {
                connection.bytes_per_second = bytes_per_second;
            }
        });
    }

    /// What has happened so far.
    pub fn stats(&self) -> SimStats {
        self.lock().stats
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no holder panics here")
    }

    fn change<R>(&self, change: impl FnOnce(&mut World) -> R) -> R {
        let mut world = self.lock();
        let result = change(&mut world);
        let to_notify = std::mem::take(&mut world.to_notify);
        drop(world);
        for notify in to_notify {
            notify();
        }
        result
    }
}

/// The transport of a [`SimNet`].
pub struct Sim {
    net: SimNet,
    name: String,
    options: LinkOptions,
}

impl Transport for Sim {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Listener>, NetError> {
        let name = address::rest(SCHEME, address)?.to_owned();
        let id = self.net.change(|world| {
            if world.listeners.contains_key(&name) {
                return None;
            }
            world.last_id += 1;
            let id = world.last_id;
            let listening = Listening {
                id,
                ..Listening::default()
            };
            world.listeners.insert(name.clone(), listening);
            Some(id)
        });
        let Some(id) = id else {
            let text = format!("listening at {address}: somebody does already");
            return Err(NetError::Address(text));
        };
        Ok(Box::new(SimListener {
            net: self.net.clone(),
            name,
            id,
            options: self.options.clone(),
        }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        let name = address::rest(SCHEME, address)?;
        let connection = self.net.change(|world| {
            let (there, back) = (world.delay(), world.delay());
            let refused = world.one_in(world.faults.refuse_one_in);
            let refused = refused || world.cut_off.contains(&self.name);
            let id = world.new_connection(&self.name, world.now + there + back);
            match world.listeners.get_mut(name) {
                Some(listening) if !refused => {
                    let arriving = Arriving { connection: id };
                    listening.waiting.push_back((world.now + there, arriving));
                    world.stats.connected += 1;
                }
                _ => {
                    let connection = world.connections.get_mut(&id).expect("made above");
                    connection.held[1] = false;
                    world.stats.refused += 1;
                }
            }
            id
        });
        Ok(self.net.link(connection, 0, address, &self.options))
    }
}

impl SimNet {
    fn link(&self, id: u64, side: usize, address: &str, options: &LinkOptions) -> Box<dyn Link> {
        let stream = SimStream {
            net: self.clone(),
            id,
            side,
        };
        let peer = Peer {
            address: address.to_owned(),
            ..Peer::default()
        };
        Box::new(StreamLink::new(stream, peer, options.clone()))
    }
}

struct SimListener {
    net: SimNet,
    name: String,
    id: u64,
    options: LinkOptions,
}

impl Listener for SimListener {
    fn address(&self) -> String {
        format!("{SCHEME}://{}", self.name)
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        let mut world = self.net.lock();
        let now = world.now;
        let waiting = world
            .listeners
            .get_mut(&self.name)
            .map(|listening| &mut listening.waiting);
        let arrived = waiting.and_then(|waiting| {
            let at = waiting.iter().position(|(at, _)| *at <= now)?;
            waiting.remove(at)
        });
        drop(world);
        Ok(arrived.map(|(_, arriving)| {
            let address = format!("{SCHEME}://{} ({})", self.name, arriving.connection);
            self.net
                .link(arriving.connection, 1, &address, &self.options)
        }))
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Notify
    }

    fn attach(&mut self, notify: Notify) {
        self.net.change(|world| {
            if let Some(listening) = world.listeners.get_mut(&self.name) {
                listening.notify = Some(notify.clone());
                world.to_notify.push(notify);
            }
        });
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.net.change(|world| {
            if world
                .listeners
                .get(&self.name)
                .is_none_or(|listening| listening.id != self.id)
            {
                return;
            }
            let listening = world.listeners.remove(&self.name).expect("looked at above");
            // Who waited to be accepted is cut off.
            for (_, arriving) in listening.waiting {
                if let Some(connection) = world.connections.get_mut(&arriving.connection) {
                    connection.cut_at = Some(world.now);
                    connection.held[1] = false;
                    let notifies = connection.notifies.iter().flatten().cloned();
                    world.to_notify.extend(notifies);
                }
            }
        });
    }
}

/// One end of a simulated connection.
struct SimStream {
    net: SimNet,
    id: u64,
    side: usize,
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl ByteStream for SimStream {
    fn is_connected(&mut self) -> io::Result<bool> {
        let world = self.net.lock();
        let connection = world.connections.get(&self.id).ok_or_else(reset)?;
        if self.side == 1 {
            return Ok(true);
        }
        if connection.connected_at > world.now {
            return Ok(false);
        }
        if !connection.held[1] && connection.pipes[1].finish_arrives.is_none() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(true)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.net.change(|world| {
            let now = world.now;
            let connection = world.connections.get_mut(&self.id).ok_or_else(reset)?;
            let is_cut = connection.is_cut(now);
            let pipe = &mut connection.pipes[1 - self.side];
            let mut read = 0;
            'slices: for slice in into {
                let mut at = 0;
                while at < slice.len() {
                    let Some((_, piece)) = pipe.pieces.front_mut().filter(|(due, _)| *due <= now)
                    else {
                        break 'slices;
                    };
                    let left = &piece.bytes[piece.read..];
                    let step = left.len().min(slice.len() - at);
                    slice[at..at + step].copy_from_slice(&left[..step]);
                    piece.read += step;
                    if piece.read == piece.bytes.len() {
                        pipe.pieces.pop_front();
                    }
                    at += step;
                    read += step;
                }
            }
            if read > 0 {
                pipe.unread_bytes -= read;
                world.stats.bytes += read as u64;
                if std::mem::take(&mut pipe.wants_to_write) {
                    world
                        .to_notify
                        .extend(connection.notifies[1 - self.side].clone());
                }
                return Ok(read);
            }
            if is_cut {
                return Err(reset());
            }
            match pipe.finish_arrives {
                Some(at) if at <= now && pipe.pieces.is_empty() => Ok(0),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            }
        })
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.net.change(|world| {
            let now = world.now;
            let window = world.faults.window_bytes;
            let connection = world.connections.get_mut(&self.id).ok_or_else(reset)?;
            let gone = connection.pipes[1 - self.side].finish_arrives;
            let gone = !connection.held[1 - self.side] && gone.is_some_and(|at| at <= now);
            if connection.is_cut(now) || gone {
                return Err(reset());
            }
            let pipe = &mut connection.pipes[self.side];
            let mut space = window.saturating_sub(pipe.unread_bytes);
            let mut written = 0;
            for slice in from {
                let step = space.min(slice.len());
                if step > 0 {
                    world.depart(self.id, self.side, &slice[..step]);
                }
                written += step;
                space -= step;
            }
            if written == 0 {
                let connection = world
                    .connections
                    .get_mut(&self.id)
                    .expect("looked at above");
                connection.pipes[self.side].wants_to_write = true;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(written)
        })
    }

    fn finish(&mut self) {
        self.net.change(|world| world.finish(self.id, self.side));
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Notify
    }

    fn attach(&mut self, notify: Notify) {
        self.net.change(|world| {
            if let Some(connection) = world.connections.get_mut(&self.id) {
                connection.notifies[self.side] = Some(notify.clone());
            }
            world.to_notify.push(notify);
        });
    }

    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.net.change(|world| {
            world.finish(self.id, self.side);
            let Some(connection) = world.connections.get_mut(&self.id) else {
                return;
            };
            connection.held[self.side] = false;
            connection.notifies[self.side] = None;
            // Who is left may be waiting for space that nobody makes any more.
            world
                .to_notify
                .extend(connection.notifies[1 - self.side].clone());
            if connection.held == [false, false] {
                world.connections.remove(&self.id);
            }
        });
    }
}
