//! Several connections as one stream of bytes. Drawn in the crate's README; chunks are in `docs/format/wire-stripes.md`.

mod stripe;

use crate::byte_stream::{ByteStream, Carrier};
use crate::faults::{Fault, planted};
use crate::readiness::{Notify, Readiness, SourceReady};
use crate::stripes::Striped;
use bytes::Bytes;
use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Events, Interest, Registry, Token};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use stripe::{At, Began, Came, Stripe};
use wire::chunk::{CHUNK_BYTES_MAX, CHUNK_END, CHUNK_LIMITED, ChunkHeader};
use wire::message::STRIPES_MAX;

/// Chunks that one read takes before others have their turn, however short they are.
const CHUNKS_MAX: u64 = 64;
/// What a chunk costs beside its bytes, in bytes that could have been read meanwhile.
const CHUNK_COST_BYTES: u64 = 4096;

/// The epoll of a bundle's sockets, as one source for a reactor.
struct Sockets(mio::Poll);

impl Source for Sockets {
    fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        SourceFd(&self.0.as_raw_fd()).register(registry, token, interests)
    }

    fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        interests: Interest,
    ) -> io::Result<()> {
        SourceFd(&self.0.as_raw_fd()).reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        SourceFd(&self.0.as_raw_fd()).deregister(registry)
    }
}

/// See the module.
pub(crate) struct Bundle {
    sockets: Sockets,
    events: Events,
    stripes: Vec<Stripe>,
    /// The number of the chunk that is read next.
    due: u64,
    /// The stripe that was read last.
    reads: usize,
    /// The number of the chunk that is written next.
    next: u64,
    /// The stripe that was written to last.
    writes: usize,
    /// Whether bytes were refused since the last chunk that says so.
    limited: bool,
    /// What is reported of that, since it was last asked.
    was_limited: bool,
    moved_bytes: u64,
    /// Chunks of the last read, and whether it left some that have come.
    chunks: u64,
    has_rest: bool,
    /// See [`ByteStream::cost_bytes`].
    cost_bytes: u64,
    /// Why a connection is gone: nothing is read behind what has arrived on the others.
    gone: Option<(io::ErrorKind, String)>,
    /// Why nothing more is read, behind what was.
    broken: Option<(io::ErrorKind, String)>,
    /// Why nothing more is written.
    unwritable: Option<(io::ErrorKind, String)>,
}

impl Bundle {
    /// One whose first stripe is `first`.
    pub(crate) fn new(first: Carrier) -> io::Result<Self> {
        let mut bundle = Self {
            sockets: Sockets(mio::Poll::new()?),
            events: Events::with_capacity(STRIPES_MAX as usize),
            stripes: Vec::new(),
            due: 0,
            reads: 0,
            next: 0,
            writes: 0,
            limited: false,
            was_limited: false,
            moved_bytes: 0,
            chunks: 0,
            has_rest: false,
            cost_bytes: 0,
            gone: None,
            broken: None,
            unwritable: None,
        };
        bundle.add(first)?;
        Ok(bundle)
    }

    fn add(&mut self, carrier: Carrier) -> io::Result<()> {
        let mut stripe = Stripe::new(carrier);
        if let Readiness::Source(source) = stripe.readiness() {
            let token = Token(self.stripes.len());
            let registry = self.sockets.0.registry();
            registry.register(source, token, Interest::READABLE | Interest::WRITABLE)?;
        }
        self.stripes.push(stripe);
        Ok(())
    }

    /// An error of a stripe, which ends the bundle.
    fn error_of(&self, index: usize, error: &io::Error) -> io::Error {
        let (number, count) = (index + 1, self.stripes.len());
        io::Error::new(
            error.kind(),
            format!("connection {number} of {count}: {error}"),
        )
    }

    /// Looks where the chunk is that is due.
    fn find_due(&mut self) -> io::Result<Due> {
        let count = self.stripes.len();
        let order = |last: usize| (0..count).map(move |step| (last + step) % count);
        let is_due = |stripe: &Stripe, due| match planted(Fault::OutOfTurn) {
            true => stripe.pending_sequence().is_some(),
            false => stripe.pending_sequence() == Some(due),
        };
        for index in order(self.reads) {
            if is_due(&self.stripes[index], self.due) {
                return Ok(Due::On(index));
            }
        }
        for index in order(self.reads) {
            match self.stripes[index].read_header(self.due) {
                Ok(Came::Nothing | Came::Chunk) => {}
                Ok(Came::Limited) => self.was_limited = true,
                Ok(Came::Cut) if planted(Fault::CutIsEnd) => return Ok(Due::End),
                Ok(Came::Cut) => {
                    let error = io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "it was cut; the other side ends all of them and says so before",
                    );
                    self.gone(index, &error);
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(self.error_of(index, &error));
                }
                Err(error) => self.gone(index, &error),
            }
            if is_due(&self.stripes[index], self.due) {
                return Ok(Due::On(index));
            }
        }
        let ends = self.stripes.iter().filter_map(|stripe| stripe.ends_at());
        if let Some(end) = ends.min() {
            if end == self.due {
                return Ok(Due::End);
            }
            if let Some(index) = self.stripes.iter().position(|s| s.ends_before(self.due)) {
                let error = io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("the end at chunk {end}, behind which there were others"),
                );
                return Err(self.error_of(index, &error));
            }
        }
        self.check_ends()?;
        // Its bytes are not read, so that nothing else says that it is gone.
        if let Some(index) = self.stripes.iter().position(Stripe::is_lost) {
            let error = io::Error::new(io::ErrorKind::ConnectionReset, "it was reset");
            self.gone(index, &error);
        }
        // What had arrived on the others was read before.
        match &self.gone {
            Some(gone) => Err(again(gone)),
            None => Ok(Due::Nowhere),
        }
    }

    /// A connection is gone. What has arrived on the others is still read.
    fn gone(&mut self, index: usize, error: &io::Error) {
        self.stripes[index].give_up();
        let error = self.error_of(index, error);
        let gone = (error.kind(), error.to_string());
        self.gone.get_or_insert(gone);
    }

    /// Refuses what no honest side sends: it would never come to an end.
    fn check_ends(&self) -> io::Result<()> {
        let nonsense = |index: usize, text: String| {
            let error = io::Error::new(io::ErrorKind::InvalidData, text);
            Err(self.error_of(index, &error))
        };
        let ends = || self.stripes.iter().filter_map(|stripe| stripe.ends_at());
        for (index, stripe) in self.stripes.iter().enumerate() {
            let Some(sequence) = stripe.pending_sequence() else {
                continue;
            };
            if let Some(end) = ends().find(|end| *end <= sequence) {
                return nonsense(index, format!("chunk {sequence}, behind the end at {end}"));
            }
            let others = self.stripes.iter().take(index);
            if others
                .map(Stripe::pending_sequence)
                .any(|one| one == Some(sequence))
                || sequence < self.due
            {
                return nonsense(index, format!("chunk {sequence} twice"));
            }
        }
        match ends().count() == self.stripes.len() {
            true => nonsense(
                0,
                format!("all have ended, and chunk {} has not come", self.due),
            ),
            false => Ok(()),
        }
    }

    /// Reads what is due until `into` is full or nothing more has come. The bytes read are counted in `taken`.
    fn read_due(&mut self, into: &mut [IoSliceMut<'_>], taken: &mut usize) -> io::Result<()> {
        let asked: usize = into.iter().map(|slice| slice.len()).sum();
        let mut at = At::default();
        while *taken < asked {
            if *taken > 0 && self.chunks >= CHUNKS_MAX {
                self.has_rest = true;
                return Ok(());
            }
            let index = match self.find_due()? {
                Due::On(index) => index,
                Due::Nowhere => return Err(io::ErrorKind::WouldBlock.into()),
                Due::End => return Ok(()),
            };
            let read = self.stripes[index].read_chunk(into, at);
            let read = read.map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => error,
                _ => self.error_of(index, &error),
            })?;
            self.reads = index;
            self.due += u64::from(read.is_whole);
            self.chunks += u64::from(read.is_whole);
            *taken += read.bytes;
            at.advance(read.bytes, |index| into.get(index).map(|slice| slice.len()));
        }
        Ok(())
    }

    /// Has the stripes take what they hold.
    fn send_held(&mut self) -> io::Result<()> {
        for index in 0..self.stripes.len() {
            let sent = self.stripes[index].send_held();
            sent.map_err(|error| self.error_of(index, &error))?;
        }
        Ok(())
    }

    /// The next stripe that takes a chunk.
    fn free(&self) -> Option<usize> {
        let count = self.stripes.len();
        let mut turns = (1..=count).map(|step| (self.writes + step) % count);
        match planted(Fault::OneBlocksAll) {
            true => turns.next().filter(|index| self.stripes[*index].is_free()),
            false => turns.find(|index| self.stripes[*index].is_free()),
        }
    }

    /// Writes chunks of `from` until all is taken or no stripe takes more.
    fn write_chunks(&mut self, from: &[IoSlice<'_>], offered: usize) -> io::Result<usize> {
        let mut taken = 0;
        let mut at = At::default();
        while taken < offered {
            let Some(index) = self.free() else {
                (self.limited, self.was_limited) = (true, true);
                break;
            };
            let step = (offered - taken).min(CHUNK_BYTES_MAX);
            let header = ChunkHeader {
                sequence: self.next,
                bytes: u32::try_from(step).expect("at most CHUNK_BYTES_MAX"),
                flags: if self.limited { CHUNK_LIMITED } else { 0 },
            };
            match self.stripes[index].begin_chunk(&header, (from, at)) {
                Ok(Began::Refused) => {}
                Ok(Began::Taken) => {
                    self.writes = index;
                    self.next += 1;
                    self.limited = false;
                    taken += step;
                    at.advance(step, |index| from.get(index).map(|slice| slice.len()));
                }
                Err(error) => {
                    let error = self.error_of(index, &error);
                    if taken == 0 {
                        return Err(error);
                    }
                    self.unwritable = Some((error.kind(), error.to_string()));
                    break;
                }
            }
        }
        match taken {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }
}

/// Where the chunk is that is due.
enum Due {
    /// On this stripe.
    On(usize),
    /// It has not come.
    Nowhere,
    /// The stream has ended before it, as the other side said.
    End,
}

fn again((kind, text): &(io::ErrorKind, String)) -> io::Error {
    io::Error::new(*kind, text.clone())
}

impl ByteStream for Bundle {
    fn is_connected(&mut self) -> io::Result<bool> {
        for index in 0..self.stripes.len() {
            let connected = self.stripes[index].is_connected();
            if !connected.map_err(|error| self.error_of(index, &error))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn certificates(&self) -> Vec<Bytes> {
        self.stripes[0].certificates()
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if let Some(broken) = &self.broken {
            return Err(again(broken));
        }
        self.stripes.iter_mut().for_each(Stripe::look_again);
        (self.has_rest, self.chunks) = (false, 0);
        let mut taken = 0;
        let read = self.read_due(into, &mut taken);
        self.moved_bytes += taken as u64;
        self.cost_bytes += self.chunks * CHUNK_COST_BYTES;
        match read {
            Ok(()) => Ok(taken),
            Err(error) if taken == 0 => Err(error),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(taken),
            // What came before is used first; `has_more` says that there is this to be seen.
            Err(error) => {
                self.broken = Some((error.kind(), error.to_string()));
                Ok(taken)
            }
        }
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(unwritable) = &self.unwritable {
            return Err(again(unwritable));
        }
        self.stripes.iter_mut().for_each(Stripe::look_again);
        self.send_held()?;
        let offered = from.iter().map(|slice| slice.len()).sum();
        if offered == 0 {
            // What is held waits for its own connection; others take what comes next.
            return match self.held_bytes() > 0 && self.free().is_none() {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => Ok(0),
            };
        }
        let taken = self.write_chunks(from, offered)?;
        self.moved_bytes += taken as u64;
        Ok(taken)
    }

    /// The end is said on each stripe, so that one that was cut is no end.
    fn finish(&mut self) {
        let header = ChunkHeader {
            sequence: self.next,
            bytes: 0,
            flags: CHUNK_END,
        };
        for stripe in &mut self.stripes {
            stripe.finish(&header);
        }
    }

    fn readiness(&mut self) -> Readiness<'_> {
        match self.stripes[0].is_polled() {
            true => Readiness::Notify,
            false => Readiness::Source(&mut self.sockets),
        }
    }

    fn attach(&mut self, notify: Notify) {
        for stripe in &mut self.stripes {
            stripe.attach(notify.clone());
        }
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let stripes = self.stripes.iter().flat_map(Stripe::descriptors);
        [self.sockets.0.as_raw_fd()]
            .into_iter()
            .chain(stripes)
            .collect()
    }

    fn held_bytes(&self) -> usize {
        self.stripes.iter().map(Stripe::held_bytes).sum()
    }

    fn has_more(&self) -> bool {
        self.has_rest || self.broken.is_some() || self.stripes.iter().any(Stripe::has_end)
    }

    fn cost_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.cost_bytes)
    }

    /// The epoll of the sockets has something: which, it says now.
    fn source_ready(&mut self, _ready: SourceReady) -> SourceReady {
        let mut ready = SourceReady {
            readable: false,
            writable: false,
            read_closed: false,
        };
        match self.sockets.0.poll(&mut self.events, Some(Duration::ZERO)) {
            Ok(()) => {}
            // Nothing is known: everything is looked at.
            Err(_) => {
                self.stripes.iter_mut().for_each(Stripe::note_all);
                return SourceReady {
                    read_closed: false,
                    ..SourceReady::ALL
                };
            }
        }
        for event in &self.events {
            let Some(stripe) = self.stripes.get_mut(event.token().0) else {
                continue;
            };
            let found = SourceReady {
                readable: event.is_readable() || event.is_error(),
                writable: event.is_writable() || event.is_error(),
                read_closed: event.is_read_closed() || event.is_error(),
            };
            stripe.note(found, event.is_error());
            ready.readable |= found.readable || found.read_closed;
            ready.writable |= found.writable;
        }
        ready
    }

    fn reports_writable(&self) -> bool {
        true
    }

    fn join(&mut self, carrier: Carrier) -> Result<(), Carrier> {
        if self.stripes.len() >= STRIPES_MAX as usize {
            return Err(carrier);
        }
        match self.add(carrier) {
            Ok(()) => Ok(()),
            // Without it the bundle goes on; the other side sees that it is closed, and ends all.
            Err(error) => {
                self.unwritable = Some((error.kind(), format!("adding a connection: {error}")));
                Ok(())
            }
        }
    }

    fn striped(&mut self) -> Option<Striped> {
        Some(Striped {
            connections: self.stripes.len(),
            is_limited: std::mem::take(&mut self.was_limited),
            moved_bytes: self.moved_bytes,
        })
    }
}

#[cfg(test)]
mod tests;
