//! What a transport that has no messages and regions of its own is made of.

use crate::readiness::{Notify, Readiness, SourceReady};
use crate::stripes::Striped;
use bytes::Bytes;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::RawFd;

/// A connected pair of byte streams that never wait.
pub trait ByteStream: Send {
    /// Whether the connection stands by now; an error if it never will.
    fn is_connected(&mut self) -> io::Result<bool>;

    /// The certificates that the other side has shown, once the connection stands.
    fn certificates(&self) -> Vec<Bytes> {
        Vec::new()
    }

    /// As [`io::Read::read_vectored`]. An error of kind `InvalidData` says
    /// that the other side sent what no sane one sends.
    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// As [`io::Write::write_vectored`]; errors as for reading.
    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Says that no more will be written; what was written still arrives.
    fn finish(&mut self);

    /// As [`crate::Link::readiness`].
    fn readiness(&mut self) -> Readiness<'_>;

    /// As [`crate::Link::attach`].
    fn attach(&mut self, notify: Notify);

    /// As [`crate::Link::descriptors`].
    fn descriptors(&self) -> Vec<RawFd>;

    /// How many of the bytes written so far need their memory no more. `None`
    /// if none does once it is written, because writing copies. Pieces that
    /// are shorter than [`crate::KEPT_BYTES_MIN`] are to be copied in any case.
    fn settled_bytes(&mut self) -> Option<u64> {
        None
    }

    /// Bytes that writes have taken and the system has not. While there are
    /// any, a write of nothing moves them; it is an error of kind `WouldBlock`
    /// while some are left.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Whether a read would give an end or an error that no readiness reports.
    fn has_more(&self) -> bool {
        false
    }

    /// What reads have cost beside the bytes that they gave, since this was last asked: in bytes that
    /// could have been read meanwhile.
    fn cost_bytes(&mut self) -> u64 {
        0
    }

    /// What `ready`, reported by the system, means for reading and writing here.
    fn source_ready(&mut self, ready: SourceReady) -> SourceReady {
        ready
    }

    /// Whether space to write is reported as if there were something to read.
    fn reports_writable(&self) -> bool {
        false
    }

    /// As [`crate::Link::look`]; `wants_to_write` says that a write was refused bytes.
    fn look(&mut self, wants_to_write: bool) -> Option<bool> {
        let _ = wants_to_write;
        None
    }

    /// The scheme of the streams that can carry chunks of one another, if this is one of those.
    fn stripes(&self) -> Option<&'static str> {
        None
    }

    /// It carries chunks from here on, and others carry what it has no space for: little is to wait in the system.
    fn bundled(&mut self) {}

    /// It is about to end: the system may keep what is left.
    fn unbundled(&mut self) {}

    /// Has `carrier` carry chunks of this stream; gives it back if this is none of chunks, or cannot have more.
    fn join(&mut self, carrier: Carrier) -> Result<(), Carrier> {
        Err(carrier)
    }

    /// As [`crate::Link::stripes`].
    fn striped(&mut self) -> Option<Striped> {
        None
    }

    /// As [`crate::Link::rest`]; `wants_to_write` says that a write was refused bytes.
    fn rest(&mut self, wants_to_write: bool) -> bool {
        let _ = wants_to_write;
        true
    }
}

/// A connection that carries chunks of another one's link. See [`crate::Link::carrier`].
pub struct Carrier {
    pub(crate) stream: Box<dyn ByteStream>,
    /// What leaves by it before the first chunk.
    pub(crate) held: Vec<u8>,
    /// What has come of its first chunks.
    pub(crate) ahead: Vec<u8>,
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier")
            .field("held_bytes", &self.held.len())
            .field("ahead_bytes", &self.ahead.len())
            .finish_non_exhaustive()
    }
}
