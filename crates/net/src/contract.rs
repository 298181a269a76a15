//! The transport contract: messages, and regions of memory.
//!
//! A [`Link`] is one connection. It carries messages both ways, and lets
//! either side read or write memory that the other has exposed or lent. It is
//! a plain state machine: calls queue, [`Link::poll`] moves bytes and returns
//! what came of it, and nothing blocks.

use crate::byte_stream::Carrier;
use crate::seal::Seal;
use crate::stripes::{Striped, StripesFrom};
use bytes::Bytes;
use memory::{Allocation, Buffer, Target};
use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;

use wire::frame::{FrameKind, HEAD_BYTES_MAX};
use wire::message::Region;

pub use crate::readiness::{Notify, Readiness, SourceReady};

/// What a transport can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The longest payload of one message.
    pub payload_bytes_max: u64,
    /// Whether reads and writes of regions need no help of the other side's processor.
    pub one_sided: bool,
    /// Whether a message of [`Lane::Bulk`] arrives after the region writes
    /// that were queued before it.
    pub ordered: bool,
    /// Kinds of memory that regions may be in; 0 is host memory.
    pub memory_kinds: Vec<u16>,
    /// The scheme of the connections that can carry bytes of one another ([`Link::striped`]), if this is one
    /// of those: `tcp` or `tls`.
    pub stripes: Option<&'static str>,
    /// Whether it carries bytes of a protocol of others in place of frames ([`crate::Carries`]).
    pub bytes_alone: bool,
}

/// Which queue a message waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Overtakes bulk transfers and large payloads that have not begun.
    Control,
    /// Keeps its place among region writes and other messages of this lane.
    Bulk,
}

/// A message to be sent.
#[derive(Debug, Clone)]
pub struct Message {
    /// What it is for.
    pub kind: FrameKind,
    /// Bits that depend on the kind.
    pub flags: u8,
    /// Which call or subscription.
    pub id: u64,
    /// The structured part, up to [`wire::frame::HEAD_BYTES_MAX`].
    pub head: Bytes,
    /// The rest, as pieces that are sent one behind the other, uncopied.
    pub payload: Vec<Bytes>,
    /// Which queue it waits in.
    pub lane: Lane,
}

impl Message {
    /// Panics for a message that [`Link::send`] does not take: a bug of its user's.
    pub(crate) fn check(&self) {
        assert!(
            self.head.len() <= HEAD_BYTES_MAX as usize,
            "a head of {} bytes: longer things are payload",
            self.head.len()
        );
        assert!(
            (self.kind as u8) < FrameKind::BulkRead as u8,
            "{:?} is not for users of a link",
            self.kind
        );
    }

    /// A message without payload in the control lane.
    pub fn control(kind: FrameKind, id: u64, head: impl Into<Bytes>) -> Self {
        Self {
            kind,
            flags: 0,
            id,
            head: head.into(),
            payload: Vec::new(),
            lane: Lane::Control,
        }
    }

    /// Bytes for a link that carries nothing else ([`crate::Carries::Bytes`]).
    pub fn bytes(payload: Vec<Bytes>) -> Self {
        Self {
            payload,
            ..Self::control(FrameKind::Request, 0, Bytes::new())
        }
    }

    /// Length of the payload.
    pub fn payload_bytes(&self) -> u64 {
        self.payload.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// A message that has arrived.
#[derive(Debug)]
pub struct Received {
    /// What it is for.
    pub kind: FrameKind,
    /// Bits that depend on the kind.
    pub flags: u8,
    /// Which call or subscription.
    pub id: u64,
    /// The structured part.
    pub head: Bytes,
    /// The rest, in one piece that the receiver may write into.
    pub payload: Buffer,
}

/// Names a bulk operation of one link; chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BulkToken(pub u64);

/// What came of a link.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "each variant has its line; the names of its fields say the rest"
)]
pub enum LinkEvent {
    /// The connection stands; comes first, on both sides.
    Up,
    /// A message arrived.
    Message(Received),
    /// A [`Link::read`] is done.
    ReadDone {
        token: BulkToken,
        /// The memory, filled, with the checksums that its owner made of its
        /// blocks while sending; the receiver still has to check them.
        result: Result<(Buffer, Vec<u32>), NetError>,
    },
    /// A [`Link::write`] was handed to the network: its memory is free again.
    WriteDone {
        token: BulkToken,
        result: Result<(), NetError>,
    },
    /// The link is dead. Comes last; every queued operation has been answered
    /// with an error before. (What is asked of a dead link is answered too.)
    Down(NetError),
}

/// Why a transport fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetError {
    /// The address cannot be understood, or is not allowed.
    Address(String),
    /// Nobody answers there.
    Refused(String),
    /// The connection ended: by the other side, or by us.
    Closed(String),
    /// The other side sent what no sane one sends, or more than was allowed.
    Protocol(String),
    /// The region is not exposed (any more), or the range is outside.
    Region(String),
    /// Cancelled by the caller.
    Cancelled,
    /// The operating system says no.
    System(String),
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(text)
            | Self::Refused(text)
            | Self::Closed(text)
            | Self::Protocol(text)
            | Self::Region(text)
            | Self::System(text) => f.write_str(text),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for NetError {}

/// Who is at the other end, as far as the transport itself knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Peer {
    /// An address for people.
    pub address: String,
    /// The user id, if the kernel vouches for it.
    pub uid: Option<u32>,
    /// The process id, likewise.
    pub pid: Option<u32>,
    /// Whether the other end is this very process.
    pub in_process: bool,
    /// The certificates that it has shown in TLS, in DER: its own, whose key it has, then those of
    /// who signed it. Of a server they are verified; of a client they are for
    /// [`Authorities::verify`](crate::Authorities::verify).
    pub certificates: Vec<Bytes>,
}

/// A read of the other side's memory.
#[derive(Debug)]
pub struct RegionRead {
    /// What the other side exposed.
    pub region: Region,
    /// Where to begin within it.
    pub offset: u64,
    /// Where the bytes go; its length is how many, at most
    /// [`wire::frame::BULK_CHUNK_BYTES`].
    pub into: Buffer,
    /// Bytes that one checksum covers; 0 wants none.
    pub block_bytes: u32,
}

/// A write into the other side's memory.
#[derive(Debug, Clone)]
pub struct RegionWrite {
    /// What the other side lent.
    pub region: Region,
    /// Where to begin within it.
    pub offset: u64,
    /// The bytes, at most [`wire::frame::BULK_CHUNK_BYTES`] together.
    pub pieces: Vec<Bytes>,
}

/// One connection.
///
/// Obligations of an implementation:
/// - messages of one lane arrive in the order in which they were sent;
/// - a control message waits for at most [`wire::frame::BULK_CHUNK_BYTES`] of
///   other bytes that were queued but not begun;
/// - memory given to `send`, `write` and `expose` is sent from where it lies;
///   memory given to `read` and `lend` is written where it lies;
/// - no memory is touched after the event that gives it back;
/// - nothing is allocated for a payload above `payload_bytes_max`: that ends the link.
pub trait Link: Send {
    /// What the transport can do.
    fn capabilities(&self) -> &Capabilities;

    /// Who is at the other end.
    fn peer(&self) -> &Peer;

    /// Queues a message.
    fn send(&mut self, message: Message);

    /// Lets the other side read `bytes` until they are withdrawn.
    fn expose(&mut self, bytes: Bytes) -> Region;

    /// [`Link::expose`] of memory that may have been changed since it had `seal`,
    /// by its owner: if it was, its last bytes are not sent, the other side's read
    /// of them fails, and [`Seal::is_broken`]. Costs nothing where the other side
    /// wants checksums. A link that cannot do this exposes it.
    fn expose_sealed(&mut self, bytes: Bytes, seal: Arc<Seal>) -> Region {
        let _ = seal;
        self.expose(bytes)
    }

    /// Ends what `expose` began. The memory is kept until a transfer of it
    /// that is under way has ended.
    fn withdraw(&mut self, region: &Region);

    /// Lets the other side write into `target` until it is reclaimed. The
    /// target is notified of what is received ([`Target::received`]) by a link through whose
    /// hands the bytes go.
    fn lend(&mut self, target: Target) -> Region;

    /// Ends what `lend` began and gives the memory back. `None` if it was
    /// never lent. A write that is under way loses the rest of its bytes.
    fn reclaim(&mut self, region: &Region) -> Option<Target>;

    /// Reads memory that the other side exposed. Answered by `ReadDone`.
    fn read(&mut self, token: BulkToken, read: RegionRead);

    /// Writes into memory that the other side lent. Answered by `WriteDone`.
    fn write(&mut self, token: BulkToken, write: RegionWrite);

    /// Gives up a `read` or `write` that was not answered yet; it still is
    /// answered, perhaps with [`NetError::Cancelled`].
    fn cancel(&mut self, token: BulkToken);

    /// Bytes that were queued and not yet handed to the network.
    fn queued_bytes(&self) -> u64;

    /// Takes nothing in while it is held, of a link of bytes ([`crate::Carries::Bytes`]): its other side is to wait. Other
    /// links have credits for that, and do nothing here.
    fn hold(&mut self, held: bool) {
        let _ = held;
    }

    /// Moves bytes as far as that goes without waiting, and returns the next
    /// thing that came of it. To be called until `None`: after calls that
    /// queue, when readiness says so, and, after others had their turn, while
    /// [`Link::is_due`].
    fn poll(&mut self) -> Option<LinkEvent>;

    /// Moves bytes that were queued as far as that goes without waiting, and
    /// takes nothing in. False if the link is to be polled for what is left,
    /// or for what came of it; a link that cannot do this says so always.
    fn flush(&mut self) -> bool {
        false
    }

    /// Whether the last `None` of [`Link::poll`] came only because the link
    /// had moved its share of bytes: it is to be polled again, and no
    /// readiness will report.
    fn is_due(&self) -> bool {
        false
    }

    /// Reports to a link whose readiness is [`Readiness::Source`] what the system
    /// said, before it is polled for that. A link that is polled without
    /// makes no system call that is known to move nothing.
    fn source_ready(&mut self, ready: SourceReady) {
        let _ = ready;
    }

    /// Bytes that have arrived here and that [`Link::poll`] has not reported.
    /// `None` if there may be any number, or the link can't say.
    fn untaken_bytes(&self) -> Option<usize> {
        None
    }

    /// Whether the system refused bytes, so that the driver has to listen for
    /// space to write; while it is false nobody need be woken for that.
    fn wants_to_write(&self) -> bool {
        false
    }

    /// Looks, without a system call, whether [`Link::poll`] would find
    /// something that no readiness reports while the driver is awake. `None`
    /// if readiness reports everything: looking is of no use then.
    fn look(&mut self) -> Option<bool> {
        None
    }

    /// To be called on every link that was polled, before its driver waits
    /// for readiness: only then does the other side notify. False if something
    /// has come meanwhile, so that the link is to be polled first.
    fn rest(&mut self) -> bool {
        true
    }

    /// The descriptors behind the link, which a forked child has to close.
    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    /// How to learn when to poll.
    fn readiness(&mut self) -> Readiness<'_>;

    /// Calls `notify` from now on whenever the link is to be polled, if its
    /// readiness is [`Readiness::Notify`]; at once if it is due already.
    fn attach(&mut self, notify: Notify);

    /// Ends the connection after what the control lane holds was handed to
    /// the network, as far as that goes without waiting.
    fn close(&mut self, reason: &str);

    /// The same connection as a link of frames, if this one has heard that it carries them
    /// ([`crate::Carries::BytesThatBeginWith`]); this one is of no use any more. It has said that it is up, and the other
    /// one does not say so again. `None`: this one goes on.
    fn framed(&mut self) -> Option<Box<dyn Link>> {
        None
    }

    /// The same connection, whose bytes travel in chunks from here on, so that others can carry some of them
    /// ([`Link::join`]); this one is of no use any more. `None` if that cannot be: the link goes on, or it is
    /// down and says why, where the other side has sent what it must not. The transport tells by
    /// [`Capabilities::stripes`] whether it can.
    fn striped(&mut self, from: StripesFrom) -> Option<Box<dyn Link>> {
        let _ = from;
        None
    }

    /// Gives up the connection, which carries chunks of another link from here on. `None` as for [`Link::striped`].
    fn carrier(&mut self, from: StripesFrom) -> Option<Carrier> {
        let _ = from;
        None
    }

    /// Has `carrier` carry chunks of this link, which is [`Link::striped`]. False, and the carrier is closed, if it
    /// is none, or has [`wire::message::STRIPES_MAX`] connections.
    fn join(&mut self, carrier: Carrier) -> bool {
        drop(carrier);
        false
    }

    /// How a link that is [`Link::striped`] fares, since this was last asked.
    fn stripes(&mut self) -> Option<Striped> {
        None
    }
}

/// Takes connections.
pub trait Listener: Send {
    /// The address, complete: with the port that the system chose for port 0.
    fn address(&self) -> String;

    /// The next connection, if one waits.
    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError>;

    /// How to learn when to accept.
    fn readiness(&mut self) -> Readiness<'_>;

    /// As [`Link::attach`].
    fn attach(&mut self, notify: Notify);

    /// The descriptor behind the listener, which a forked child has to close.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

/// Makes links, by addresses of its own scheme: `tcp://127.0.0.1:0`,
/// `unix:///run/user/0/thalweg.sock`, `inproc://name`.
pub trait Transport: Send + Sync {
    /// The scheme of its addresses, without `://`.
    fn scheme(&self) -> &'static str;

    /// Waits for connections at `address`.
    fn listen(&self, address: &str) -> Result<Box<dyn Listener>, NetError>;

    /// Whether `address`, of this scheme, has the form that it must have. Asks
    /// nobody whether it exists.
    ///
    /// # Errors
    /// [`NetError::Address`], which says what is wrong.
    fn check(&self, address: &str) -> Result<(), NetError> {
        let _ = address;
        Ok(())
    }

    /// Memory from which this transport sends with fewer copies than from
    /// elsewhere, if it has such.
    fn allocate(&self, bytes: usize) -> Option<Allocation> {
        let _ = bytes;
        None
    }

    /// Begins a connection to `address`; [`LinkEvent::Up`] or
    /// [`LinkEvent::Down`] reports how it went. Never waits.
    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError>;

    /// As [`Transport::connect`], and shows a certificate where the server asks for one: the chain and
    /// its key, in PEM. Transports without certificates leave it out.
    fn connect_as(
        &self,
        address: &str,
        certificate: Option<&[u8]>,
    ) -> Result<Box<dyn Link>, NetError> {
        let _ = certificate;
        self.connect(address)
    }
}
