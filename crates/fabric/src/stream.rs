//! One side of a connection: first a unix socket, and rings in shared memory
//! when both sides have seen that they work.

use crate::handshake::{self, Greeting, MAGIC, MESSAGE_BYTES, Nonce};
use crate::pool::{Pool, SEGMENTS_MAX};
use crate::remote;
use crate::ring::{Reader, Reference, Writer, insane, place};
use crate::segment::{self, Mapping};
use crate::shm::ShmOptions;
use mio::net::UnixStream;
use net::{ByteStream, KEPT_BYTES_MIN, Notify, Readiness, SourceReady};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The largest segment that is taken from the other side.
const SEGMENT_BYTES_MAX: usize = 256 << 20;

/// Bytes of the other side's pool that are mapped at most: addresses, not memory.
const POOL_BYTES_MAX: usize = 64 << 30;

/// What wakes the other side: a byte on the socket. Each send to a socket can be one that does
/// not wait; whether an event descriptor waits is up to both sides.
const WAKE: u8 = 1;

/// A byte with which comes a descriptor: the next segment of the pool.
const SEGMENT: u8 = 2;

/// Heard at once at most: who wakes without end keeps nobody from others.
const HEARD_BYTES_MAX: usize = 16 << 10;

/// Asleep, in the word that says so; the bits above count.
const ASLEEP: u64 = 1;
/// Asleep, and waiting for space to write as well.
const WANTS_TO_WRITE: u64 = 2;
const DOZE_STEP: u64 = 4;

/// One side of a connection.
pub(crate) struct ShmBytes {
    socket: UnixStream,
    /// The other side's process, if the kernel knows it.
    peer_pid: Option<u32>,
    phase: Phase,
    options: Arc<ShmOptions>,
    /// What came over the socket and was not used yet.
    incoming: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    /// Memory that the connecting side sends from; empty at the accepting one.
    pool: Arc<Pool>,
    /// Something may have come over the socket.
    stirs: bool,
    /// The other side has closed its end.
    gone: bool,
}

enum Phase {
    /// The connecting side has offered its segment, and waits for the other's.
    Offered(Offer),
    /// The accepting side waits for an offer, or for a frame.
    Accepting,
    /// The accepting side has answered with its segment.
    Answered { offer: Offer, theirs: Arc<Mapping> },
    /// Shared memory is used.
    Rings(Box<Rings>),
    /// It is not: bytes go over the socket.
    Plain,
}

/// What a handshake has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Something has to come first.
    Pending,
    /// Shared memory is used; whether the other side reads our memory too.
    Rings { refers: bool },
    /// The socket is used.
    Plain,
}

/// Our segment, and what the other side is to find in it.
struct Offer {
    ours: Arc<Mapping>,
    nonce: Nonce,
    /// A nonce in ordinary memory of ours, by which reading it is proven.
    probe: Box<Nonce>,
}

struct Rings {
    ours: Arc<Mapping>,
    theirs: Arc<Mapping>,
    reader: Reader,
    writer: Writer,
    /// The word by which we say whether we sleep, as it was last written.
    doze: u64,
    /// The other side's such word for which it was woken.
    woken_for: u64,
    /// Whether the other side has proven that it reads our memory.
    refers: bool,
    /// Segments of our pool that the other side has.
    handed_over: u32,
    /// Segments of the other side's pool that we have.
    segments: Vec<Mapping>,
}

impl Offer {
    fn make(options: &ShmOptions) -> io::Result<(Self, OwnedFd)> {
        let bytes = place::RING + options.ring_bytes;
        let (ours, memory) = segment::make("thalweg-ring", bytes)?;
        let offer = Self {
            ours: Arc::new(ours),
            nonce: handshake::nonce()?,
            probe: Box::new(handshake::nonce()?),
        };
        offer.ours.copy_in(&offer.nonce, place::NONCE);
        Ok((offer, memory))
    }

    fn probe_address(&self) -> u64 {
        self.probe.as_ptr().expose_provenance() as u64
    }

    fn rings(self, theirs: Arc<Mapping>, refers: bool) -> Phase {
        Phase::Rings(Box::new(Rings {
            reader: Reader::new(self.ours.clone(), theirs.clone()),
            writer: Writer::new(self.ours.clone(), theirs.clone()),
            ours: self.ours,
            theirs,
            doze: 0,
            woken_for: 0,
            refers,
            handed_over: 0,
            segments: Vec::new(),
        }))
    }
}

/// Maps the other side's segment and reads the nonce in it.
fn look_into(memory: Option<OwnedFd>) -> io::Result<(Arc<Mapping>, Nonce)> {
    let memory = memory.ok_or_else(|| io::Error::other("no descriptor of memory came"))?;
    let theirs = segment::map(&memory, SEGMENT_BYTES_MAX)?;
    let ring_bytes = theirs.bytes().saturating_sub(place::RING);
    if ring_bytes < 4096 || !ring_bytes.is_multiple_of(4096) {
        return Err(io::Error::other(format!(
            "a segment of {} bytes has no ring",
            theirs.bytes()
        )));
    }
    let mut nonce = [0; 16];
    theirs.copy_out(place::NONCE, &mut nonce);
    Ok((Arc::new(theirs), nonce))
}

impl ShmBytes {
    /// The side that connects.
    pub(crate) fn connecting(
        socket: UnixStream,
        peer_pid: Option<u32>,
        options: Arc<ShmOptions>,
        pool: &Arc<Pool>,
    ) -> Self {
        let mut stream = Self::new(socket, peer_pid, options);
        stream.pool = pool.clone();
        let offered = Offer::make(&stream.options).and_then(|(offer, memory)| {
            let greeting = Greeting {
                probe_address: offer.probe_address(),
                ..Greeting::default()
            };
            handshake::send(&stream.socket, &greeting.to_bytes(), &[memory.as_fd()])?;
            Ok(offer)
        });
        match offered {
            Ok(offer) => stream.phase = Phase::Offered(offer),
            Err(error) => stream.fall_back(&error.to_string()),
        }
        stream
    }

    /// How the handshake has gone so far.
    pub(crate) fn outcome(&mut self) -> io::Result<Outcome> {
        self.shake_hands()?;
        Ok(match &self.phase {
            Phase::Rings(rings) => Outcome::Rings {
                refers: rings.refers,
            },
            Phase::Plain => Outcome::Plain,
            _ => Outcome::Pending,
        })
    }

    /// Whether the other side has closed its end.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    /// The socket, to wait for.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The side that accepts.
    pub(crate) fn accepting(
        socket: UnixStream,
        peer_pid: Option<u32>,
        options: Arc<ShmOptions>,
    ) -> Self {
        Self::new(socket, peer_pid, options)
    }

    fn new(socket: UnixStream, peer_pid: Option<u32>, options: Arc<ShmOptions>) -> Self {
        Self {
            socket,
            peer_pid,
            phase: Phase::Accepting,
            options,
            incoming: Vec::new(),
            descriptors: VecDeque::new(),
            pool: Arc::new(Pool::new(0)),
            stirs: true,
            gone: false,
        }
    }

    /// Bytes go over the socket from now on.
    fn fall_back(&mut self, reason: &str) {
        (self.options.report)(&format!(
            "shared memory is not used, the unix socket is: {reason}"
        ));
        self.phase = Phase::Plain;
        self.descriptors.clear();
    }

    /// Goes on with the handshake as far as that is possible now. False if
    /// something has to come first.
    fn shake_hands(&mut self) -> io::Result<bool> {
        while !matches!(self.phase, Phase::Rings(_) | Phase::Plain) {
            let foreign = matches!(self.phase, Phase::Accepting)
                && self.incoming.first().is_some_and(|byte| *byte != MAGIC[0]);
            if foreign {
                // A client that knows nothing of this begins with a frame.
                self.phase = Phase::Plain;
                break;
            }
            let Some(message) = self.incoming.first_chunk::<MESSAGE_BYTES>() else {
                if !self.receive_greeting()? {
                    return Ok(false);
                }
                continue;
            };
            let greeting = Greeting::from_bytes(message)
                .map_err(|problem| insane(format!("sent a greeting that {problem}")))?;
            self.incoming.drain(..MESSAGE_BYTES);
            self.take_greeting(&greeting)?;
        }
        Ok(true)
    }

    fn receive_greeting(&mut self) -> io::Result<bool> {
        if self.gone {
            return Ok(false);
        }
        let mut bytes = [0; MESSAGE_BYTES];
        let missing = MESSAGE_BYTES - self.incoming.len();
        let into = &mut bytes[..missing];
        match handshake::receive(&self.socket, into, &mut self.descriptors) {
            Ok(0) => {
                self.gone = true;
                Ok(false)
            }
            Ok(count) => {
                self.incoming.extend_from_slice(&bytes[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn take_greeting(&mut self, greeting: &Greeting) -> io::Result<()> {
        let memory = self.descriptors.pop_front();
        match std::mem::replace(&mut self.phase, Phase::Plain) {
            Phase::Accepting => self.answer(greeting, memory),
            Phase::Offered(offer) => self.confirm(offer, greeting, memory),
            Phase::Answered { offer, theirs } => {
                if !greeting.reason.is_empty() {
                    self.fall_back(&greeting.reason);
                } else if greeting.segment_echo != offer.nonce {
                    return Err(insane("has not found the nonce in our memory".to_owned()));
                } else {
                    // Our memory is never referred to: what clients may see
                    // of the server is copied into the ring.
                    self.phase = offer.rings(theirs, false);
                }
                Ok(())
            }
            Phase::Rings(_) | Phase::Plain => unreachable!("the handshake is over then"),
        }
    }

    /// The accepting side: takes the offer if what was offered works.
    fn answer(&mut self, greeting: &Greeting, memory: Option<OwnedFd>) -> io::Result<()> {
        if !self.options.is_on {
            let refusal = Greeting::refusal("the other side has it switched off");
            return handshake::send(&self.socket, &refusal.to_bytes(), &[]);
        }
        let looked = look_into(memory)
            .and_then(|(theirs, echo)| Ok((theirs, echo, Offer::make(&self.options)?)));
        let (theirs, segment_echo, (offer, memory)) = match looked {
            Ok(made) => made,
            Err(error) => {
                let reason = error.to_string();
                let refusal = Greeting::refusal(&format!("the other side says: {reason}"));
                self.fall_back(&reason);
                return handshake::send(&self.socket, &refusal.to_bytes(), &[]);
            }
        };
        let mut probe_echo = [0; 16];
        if let Some(pid) = self.peer_pid {
            // Not being allowed to is no reason for anything but not doing it.
            let _ = remote::read(pid, greeting.probe_address, &mut probe_echo);
        }
        let answer = Greeting {
            segment_echo,
            probe_echo,
            ..Greeting::default()
        };
        handshake::send(&self.socket, &answer.to_bytes(), &[memory.as_fd()])?;
        self.phase = Phase::Answered { offer, theirs };
        Ok(())
    }

    /// The connecting side: takes the answer if both directions work.
    fn confirm(
        &mut self,
        offer: Offer,
        answer: &Greeting,
        memory: Option<OwnedFd>,
    ) -> io::Result<()> {
        if !answer.reason.is_empty() {
            self.fall_back(&answer.reason);
            return Ok(());
        }
        let looked = look_into(memory).and_then(|looked| {
            if answer.segment_echo != offer.nonce {
                return Err(io::Error::other(
                    "the other side has not found the nonce in our memory",
                ));
            }
            Ok(looked)
        });
        let (theirs, segment_echo) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                let reason = error.to_string();
                let refusal = Greeting::refusal(&format!("the other side says: {reason}"));
                self.fall_back(&reason);
                return handshake::send(&self.socket, &refusal.to_bytes(), &[]);
            }
        };
        let confirmation = Greeting {
            segment_echo,
            ..Greeting::default()
        };
        handshake::send(&self.socket, &confirmation.to_bytes(), &[])?;
        let refers = answer.probe_echo == *offer.probe;
        self.phase = offer.rings(theirs, refers);
        Ok(())
    }
}

/// How far [`hear`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// Everything that is there.
    All,
    /// As much as may be taken at once.
    Enough,
    /// The end.
    End,
}

/// Takes what came over the socket while the rings are used: wake-ups, segments
/// of the other side's pool, and the end.
fn hear(
    socket: &UnixStream,
    descriptors: &mut VecDeque<OwnedFd>,
    segments: &mut Vec<Mapping>,
) -> io::Result<Heard> {
    let mut bytes = [0; 256];
    for _ in 0..HEARD_BYTES_MAX / bytes.len() {
        let count = match handshake::receive(socket, &mut bytes, descriptors) {
            Ok(0) => return Ok(Heard::End),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Heard::All),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A reset is an end like others.
            Err(_) => return Ok(Heard::End),
        };
        for byte in &bytes[..count] {
            match *byte {
                WAKE => {}
                SEGMENT => segments.push(take_segment(descriptors.pop_front(), segments)?),
                other => return Err(insane(format!("rang with {other:#04x}"))),
            }
        }
        descriptors.clear();
    }
    Ok(Heard::Enough)
}

fn take_segment(memory: Option<OwnedFd>, had: &[Mapping]) -> io::Result<Mapping> {
    let memory = memory.ok_or_else(|| insane("sent a segment without memory".to_owned()))?;
    if had.len() == SEGMENTS_MAX {
        return Err(insane(format!("sent more than {SEGMENTS_MAX} segments")));
    }
    let bytes: usize = had.iter().map(Mapping::bytes).sum();
    let left = POOL_BYTES_MAX - bytes.min(POOL_BYTES_MAX);
    segment::map_cold(&memory, left)
        .map_err(|error| insane(format!("sent a segment that is none: {error}")))
}

impl Rings {
    /// Says that we are awake, if we had said that we sleep.
    fn wake(&mut self) {
        if self.doze & ASLEEP != 0 {
            self.doze = (self.doze & !(ASLEEP | WANTS_TO_WRITE)) + DOZE_STEP;
            self.publish_doze();
        }
    }

    fn publish_doze(&self) {
        self.ours
            .word(place::DOZE)
            .store(self.doze, Ordering::SeqCst);
    }

    fn stirs(&mut self, wants_to_write: bool) -> bool {
        // What is wrong with their head, the next write says.
        self.reader.has_some() || (wants_to_write && self.writer.has_much_space().unwrap_or(true))
    }

    /// Whether the other side sleeps and is to be woken: for bytes that were
    /// written, or because there is space again.
    fn has_to_wake(&mut self, written: bool) -> bool {
        // Between what we have published and the look at their word. They
        // write their word and look at ours, with a fence between as well: so
        // one of us sees the other's.
        fence(Ordering::SeqCst);
        let doze = self.theirs.word(place::DOZE).load(Ordering::Relaxed);
        if doze & ASLEEP == 0 || doze == self.woken_for {
            return false;
        }
        if !written && (doze & WANTS_TO_WRITE == 0 || !self.reader.gives_much_space()) {
            return false;
        }
        self.woken_for = doze;
        true
    }
}

/// Sees to it that the other side has a segment of our pool. False if it
/// cannot be sent now.
fn hand_over(pool: &Pool, segment: u32, handed_over: &mut u32, socket: &UnixStream) -> bool {
    while *handed_over <= segment {
        let Some(next) = pool.segment(*handed_over) else {
            return false;
        };
        if handshake::send(socket, &[SEGMENT], &[next.descriptor()]).is_err() {
            return false;
        }
        *handed_over += 1;
    }
    true
}

fn send_wake(socket: &UnixStream) {
    // If it cannot be sent, either many wake-ups wait to be read or nobody is
    // there to hear them.
    let _ = handshake::send(socket, &[WAKE], &[]);
}

impl ByteStream for ShmBytes {
    fn is_connected(&mut self) -> io::Result<bool> {
        // The socket is, whatever becomes of the handshake.
        Ok(true)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if !self.shake_hands()? {
            return match self.gone {
                true => Ok(0),
                false => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        self.hear_if_rings()?;
        let rings = match &mut self.phase {
            Phase::Rings(rings) => rings,
            _ => return read_plain(&mut self.socket, &mut self.incoming, into),
        };
        rings.wake();
        let (pid, socket, descriptors) = (self.peer_pid, &self.socket, &mut self.descriptors);
        let (segments, gone, stirs) = (&mut rings.segments, &mut self.gone, &mut self.stirs);
        let read = rings
            .reader
            .read(into, |reference, from, into| match reference {
                Reference::Foreign { address } => follow_foreign(pid, address, from, into),
                Reference::Pooled { segment, offset } => {
                    if segment as usize >= segments.len() && !*gone {
                        // It was sent before the record was written.
                        let heard = hear(socket, descriptors, segments)?;
                        *gone = heard == Heard::End;
                        *stirs |= heard == Heard::Enough;
                    }
                    follow_pooled(segments.get(segment as usize), offset, from, into)
                }
            })?;
        if read > 0 {
            if rings.has_to_wake(false) {
                send_wake(&self.socket);
            }
            return Ok(read);
        }
        match self.gone {
            true => Ok(0),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.shake_hands()? {
            return match self.gone {
                true => Err(io::ErrorKind::BrokenPipe.into()),
                false => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        self.hear_if_rings()?;
        let Phase::Rings(rings) = &mut self.phase else {
            return net::write_to_socket(&self.socket, from);
        };
        if self.gone {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        rings.wake();
        let least = match rings.refers {
            true => self.options.refer_bytes_min,
            false => usize::MAX,
        };
        let (pool, socket, handed_over) = (&self.pool, &self.socket, &mut rings.handed_over);
        let written = rings.writer.write(from, |bytes| {
            if bytes.len() < KEPT_BYTES_MIN {
                return None;
            }
            if let Some((segment, offset)) = pool.find(bytes)
                && hand_over(pool, segment, handed_over, socket)
            {
                return Some(Reference::Pooled { segment, offset });
            }
            (bytes.len() >= least).then(|| Reference::Foreign {
                address: bytes.as_ptr().expose_provenance() as u64,
            })
        })?;
        if written == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if rings.has_to_wake(true) {
            send_wake(&self.socket);
        }
        Ok(written)
    }

    fn settled_bytes(&mut self) -> Option<u64> {
        match &mut self.phase {
            Phase::Rings(rings) if rings.refers || rings.handed_over > 0 => {
                Some(rings.writer.settled())
            }
            _ => None,
        }
    }

    fn finish(&mut self) {
        match &mut self.phase {
            Phase::Rings(rings) => rings.writer.revoke(),
            Phase::Plain => {
                let mut scratch = [0; 16 * 1024];
                // Bytes that were not read would reset the connection, and
                // with it what was just written.
                for _ in 0..64 {
                    if !matches!(self.socket.read(&mut scratch), Ok(1..)) {
                        break;
                    }
                }
            }
            _ => {}
        }
        // A connection that is gone already needs no end.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Source(&mut self.socket)
    }

    fn attach(&mut self, _notify: Notify) {}

    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.socket.as_raw_fd()]
    }

    fn source_ready(&mut self, ready: SourceReady) -> SourceReady {
        if matches!(self.phase, Phase::Plain) {
            return ready;
        }
        self.stirs |= ready.readable || ready.read_closed;
        SourceReady {
            readable: true,
            writable: true,
            read_closed: false,
        }
    }

    fn reports_writable(&self) -> bool {
        !matches!(self.phase, Phase::Plain)
    }

    fn look(&mut self, wants_to_write: bool) -> Option<bool> {
        match &mut self.phase {
            Phase::Rings(rings) => Some(self.stirs || rings.stirs(wants_to_write)),
            _ => None,
        }
    }

    fn rest(&mut self, wants_to_write: bool) -> bool {
        let Phase::Rings(rings) = &mut self.phase else {
            return true;
        };
        if self.stirs || rings.stirs(wants_to_write) {
            return false;
        }
        let space = if wants_to_write { WANTS_TO_WRITE } else { 0 };
        let step = (rings.doze & !(ASLEEP | WANTS_TO_WRITE)) + DOZE_STEP;
        rings.doze = step | ASLEEP | space;
        rings.publish_doze();
        fence(Ordering::SeqCst);
        if rings.stirs(wants_to_write) {
            rings.wake();
            return false;
        }
        true
    }
}

impl ShmBytes {
    fn hear_if_rings(&mut self) -> io::Result<()> {
        if let Phase::Rings(rings) = &mut self.phase
            && std::mem::take(&mut self.stirs)
            && !self.gone
        {
            let heard = hear(&self.socket, &mut self.descriptors, &mut rings.segments)?;
            self.gone = heard == Heard::End;
            self.stirs = heard == Heard::Enough;
        }
        Ok(())
    }
}

impl Drop for ShmBytes {
    fn drop(&mut self) {
        if let Phase::Rings(rings) = &mut self.phase {
            rings.writer.revoke();
        }
    }
}

/// Reads from the socket, after what the handshake has read too much.
///
/// Both at once: a receiver that gets less than there was space for takes the socket for empty, and
/// waits for what comes next, which nobody sends who waits for this to be read.
fn read_plain(
    socket: &mut UnixStream,
    incoming: &mut Vec<u8>,
    mut into: &mut [IoSliceMut<'_>],
) -> io::Result<usize> {
    if incoming.is_empty() {
        return socket.read_vectored(into);
    }
    let mut first = &incoming[..];
    let read = first.read_vectored(into)?;
    incoming.drain(..read);
    IoSliceMut::advance_slices(&mut into, read);
    if into.is_empty() {
        return Ok(read);
    }
    // An error comes again with the next read; so does the end.
    Ok(read + socket.read_vectored(into).unwrap_or(0))
}

/// Brings what the other process has at an address.
fn follow_foreign(pid: Option<u32>, address: u64, from: u64, into: &mut [u8]) -> io::Result<()> {
    let pid = pid.ok_or_else(|| insane("referred to memory we cannot read".to_owned()))?;
    let address = address.saturating_add(from);
    remote::read(pid, address, into).map_err(|error| match error.raw_os_error() {
        Some(libc::EFAULT | libc::EPERM | libc::EINVAL) => {
            insane(format!("referred to memory that cannot be read: {error}"))
        }
        _ => error,
    })
}

/// Brings what the other side's pool has.
fn follow_pooled(
    segment: Option<&Mapping>,
    offset: u64,
    from: u64,
    into: &mut [u8],
) -> io::Result<()> {
    let segment =
        segment.ok_or_else(|| insane("referred to a segment that never came".to_owned()))?;
    let at = offset.saturating_add(from);
    let end = at.saturating_add(into.len() as u64);
    if end > segment.bytes() as u64 {
        return Err(insane(format!(
            "referred to {} bytes at {at} of a segment of {}",
            into.len(),
            segment.bytes()
        )));
    }
    segment.copy_out(at as usize, into);
    Ok(())
}

#[cfg(test)]
mod tests;
