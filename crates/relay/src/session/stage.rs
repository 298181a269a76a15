//! How far a session is.

use crate::frame::Reason;

/// Whether a session goes on, and who has ended it.
///
/// ```text
///   Open ──leave──► Left
///     └──Goodbye──► Ended
/// ```
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    Open,
    /// This side has ended it, and tells the other one, of which it takes nothing more.
    Left(Reason),
    /// The other side has.
    Ended(Reason),
}

impl Stage {
    /// Why it is over, if it is.
    pub fn over(self) -> Option<Reason> {
        match self {
            Self::Open => None,
            Self::Left(reason) | Self::Ended(reason) => Some(reason),
        }
    }
}
