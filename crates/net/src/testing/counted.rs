//! A transport that counts what its users send and receive.

use crate::Seal;
use crate::contract::*;
use bytes::Bytes;
use memory::Target;
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};
use wire::frame::FrameKind;
use wire::message::Region;

/// Which way a frame went, as seen by the user of the counted transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// It was sent by the user.
    Sent,
    /// It was received by the user.
    Received,
}

/// How many frames, and bytes of head and payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Frames.
    pub frames: u64,
    /// Bytes of their heads and payloads.
    pub bytes: u64,
}

/// Counts of all links of a [`Counted`] transport. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Guards the counts; held for one addition or one look.
    table: Arc<Mutex<Table>>,
}

type Table = BTreeMap<(Direction, u8), Count>;

impl Counters {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder panics here")
    }

    fn add(&self, direction: Direction, kind: FrameKind, bytes: u64) {
        let mut table = self.table();
        let count = table.entry((direction, kind as u8)).or_default();
        count.frames += 1;
        count.bytes += bytes;
    }

    /// The frames of one kind.
    pub fn of(&self, direction: Direction, kind: FrameKind) -> Count {
        let table = self.table();
        table
            .get(&(direction, kind as u8))
            .copied()
            .unwrap_or_default()
    }

    /// The frames of all kinds.
    pub fn all(&self, direction: Direction) -> Count {
        let table = self.table();
        let counts = table
            .iter()
            .filter(|((other, _), _)| *other == direction)
            .map(|(_, count)| count);
        counts.fold(Count::default(), |sum, count| Count {
            frames: sum.frames + count.frames,
            bytes: sum.bytes + count.bytes,
        })
    }

    /// Forgets what was counted.
    pub fn reset(&self) {
        self.table().clear();
    }
}

/// Another transport, with its frames counted.
///
/// A read of a region counts as the frame that asks (sent) and the one that
/// brings the bytes (received), a write as one (sent), also where the
/// transport needs no frames for them. The side whose memory is read or
/// written has no part in it and counts nothing.
pub struct Counted<T> {
    inner: T,
    counters: Counters,
}

impl<T: Transport> Counted<T> {
    /// Counts what the links of `inner` send and receive.
    pub fn new(inner: T, counters: Counters) -> Self {
        Self { inner, counters }
    }
}

impl<T: Transport> Transport for Counted<T> {
    fn scheme(&self) -> &'static str {
        self.inner.scheme()
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Listener>, NetError> {
        let inner = self.inner.listen(address)?;
        let counters = self.counters.clone();
        Ok(Box::new(CountedListener { inner, counters }))
    }

    fn allocate(&self, bytes: usize) -> Option<memory::Allocation> {
        self.inner.allocate(bytes)
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        let inner = self.inner.connect(address)?;
        let counters = self.counters.clone();
        Ok(Box::new(CountedLink { inner, counters }))
    }
}

struct CountedListener {
    inner: Box<dyn Listener>,
    counters: Counters,
}

impl Listener for CountedListener {
    fn address(&self) -> String {
        self.inner.address()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        let inner = self.inner.accept()?;
        let counters = &self.counters;
        Ok(inner.map(|inner| {
            let counters = counters.clone();
            Box::new(CountedLink { inner, counters }) as Box<dyn Link>
        }))
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.inner.readiness()
    }

    fn attach(&mut self, notify: Notify) {
        self.inner.attach(notify);
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.inner.descriptor()
    }
}

struct CountedLink {
    inner: Box<dyn Link>,
    counters: Counters,
}

impl Link for CountedLink {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn peer(&self) -> &Peer {
        self.inner.peer()
    }

    fn send(&mut self, message: Message) {
        let bytes = message.head.len() as u64 + message.payload_bytes();
        self.counters.add(Direction::Sent, message.kind, bytes);
        self.inner.send(message);
    }

    fn expose(&mut self, bytes: Bytes) -> Region {
        self.inner.expose(bytes)
    }

    fn expose_sealed(&mut self, bytes: Bytes, seal: Arc<Seal>) -> Region {
        self.inner.expose_sealed(bytes, seal)
    }

    fn withdraw(&mut self, region: &Region) {
        self.inner.withdraw(region);
    }

    fn lend(&mut self, target: Target) -> Region {
        self.inner.lend(target)
    }

    fn reclaim(&mut self, region: &Region) -> Option<Target> {
        self.inner.reclaim(region)
    }

    fn read(&mut self, token: BulkToken, read: RegionRead) {
        self.counters.add(Direction::Sent, FrameKind::BulkRead, 0);
        self.inner.read(token, read);
    }

    fn write(&mut self, token: BulkToken, write: RegionWrite) {
        let bytes = write.pieces.iter().map(|piece| piece.len() as u64).sum();
        self.counters
            .add(Direction::Sent, FrameKind::BulkWrite, bytes);
        self.inner.write(token, write);
    }

    fn cancel(&mut self, token: BulkToken) {
        self.inner.cancel(token);
    }

    fn queued_bytes(&self) -> u64 {
        self.inner.queued_bytes()
    }

    fn poll(&mut self) -> Option<LinkEvent> {
        let event = self.inner.poll();
        match &event {
            Some(LinkEvent::Message(received)) => {
                let bytes = received.head.len() + received.payload.len();
                self.counters
                    .add(Direction::Received, received.kind, bytes as u64);
            }
            Some(LinkEvent::ReadDone {
                result: Ok((buffer, _)),
                ..
            }) => self.counters.add(
                Direction::Received,
                FrameKind::BulkData,
                buffer.len() as u64,
            ),
            _ => {}
        }
        event
    }

    fn flush(&mut self) -> bool {
        self.inner.flush()
    }

    fn is_due(&self) -> bool {
        self.inner.is_due()
    }

    fn wants_to_write(&self) -> bool {
        self.inner.wants_to_write()
    }

    fn source_ready(&mut self, ready: SourceReady) {
        self.inner.source_ready(ready);
    }

    fn look(&mut self) -> Option<bool> {
        self.inner.look()
    }

    fn rest(&mut self) -> bool {
        self.inner.rest()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.inner.descriptors()
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.inner.readiness()
    }

    fn attach(&mut self, notify: Notify) {
        self.inner.attach(notify);
    }

    fn close(&mut self, reason: &str) {
        self.inner.close(reason);
    }
}
