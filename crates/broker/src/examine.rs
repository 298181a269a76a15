//! Credentials that a node cannot judge by itself: somebody else looks at them, off its thread.

use access::{UnixTime, Verified};
use bytes::Bytes;
use std::fmt;
use std::sync::{Arc, Weak};
use wire::{ErrorCode, ErrorReply};

/// What a client presents. Its proof is a secret, and is in no `Debug`.
#[derive(Clone)]
pub struct Presented {
    /// What the client presents.
    pub proof: Bytes,
    /// The namespace that it names; empty if it leaves that open.
    pub namespace: String,
    /// The time of day.
    pub now: UnixTime,
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented")
            .field("proof_bytes", &self.proof.len())
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// What is looked at. Each has places of its own, and threads, so that no kind waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// What a stranger presents, by arithmetic.
    Short,
    /// What a stranger presents, by asking somebody.
    Long,
    /// What is presented on a connection that stands, by arithmetic.
    ShortRenewal,
    /// What is presented on a connection that stands, by asking somebody.
    LongRenewal,
}

impl Look {
    /// All kinds.
    pub const ALL: [Self; 4] = [
        Self::Short,
        Self::Long,
        Self::ShortRenewal,
        Self::LongRenewal,
    ];

    /// Whether it is a stranger who waits for it.
    pub(crate) fn is_of_stranger(self) -> bool {
        matches!(self, Self::Short | Self::Long)
    }

    /// As a look that may take its time, or not.
    pub(crate) fn taking(self, long: bool) -> Self {
        match (self.is_of_stranger(), long) {
            (true, false) => Self::Short,
            (true, true) => Self::Long,
            (false, false) => Self::ShortRenewal,
            (false, true) => Self::LongRenewal,
        }
    }
}

/// Whether somebody still waits for a look.
#[derive(Debug, Clone)]
pub struct Awaited(Weak<()>);

impl Awaited {
    /// By who holds that.
    pub fn by(holder: &Arc<()>) -> Self {
        Self(Arc::downgrade(holder))
    }

    /// Whether it is so now.
    pub fn is_so(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Looks at credentials of others. It may block, for a bounded time; the executor sees to it that this holds up
/// nobody else, and that only so many are looked at at once.
pub trait Examiner: Send + Sync {
    /// Whether a look takes its time: it waits for others. Does not block.
    fn takes_long(&self, presented: &Presented) -> bool;

    /// Who a client is that presents something.
    ///
    /// # Errors
    /// Why it does not count, without a part of it; one that may be retried says that it could not be found out.
    fn examine(&self, presented: &Presented) -> Result<Verified, ErrorReply>;
}

/// Takes credentials of nobody else.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoOthers;

impl Examiner for NoOthers {
    fn takes_long(&self, _: &Presented) -> bool {
        false
    }

    fn examine(&self, _: &Presented) -> Result<Verified, ErrorReply> {
        Err(ErrorReply::fatal(
            ErrorCode::NotAuthenticated,
            "the credential is no token of this server, and it takes none of others",
        ))
    }
}
