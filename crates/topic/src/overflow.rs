//! What happens to events for which there is no space, because the consumers
//! that a topic waits for are behind.

use std::num::NonZeroU32;

/// How soon a refused producer is asked to try again, unless the topic says otherwise.
pub const RETRY_AFTER_MS_DEFAULT: u32 = 1000;
/// The longest such time: a day.
pub const RETRY_AFTER_MS_MAX: u32 = 24 * 3600 * 1000;

/// What a partition does with an event that would take what the consumers of
/// `keep_until_acknowledged` have not acknowledged beyond the topic's
/// retention by bytes or count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// Takes it: the bound is for what is acknowledged alone.
    #[default]
    Grow,
    /// Lets the producer wait until there is space, up to its ack timeout.
    Block,
    /// Refuses it, and says when to try again. Later pushes of the producer go on.
    Reject {
        /// How long the producer is asked to wait, milliseconds.
        retry_after_ms: u32,
    },
    /// Takes it, and drops the oldest events for it, acknowledged or not.
    DropOldest,
    /// Drops it, and notifies the producer.
    DropNewest,
    /// Takes one batch in so many, dropping the oldest events for it, and
    /// drops the others as [`Overflow::DropNewest`] does.
    Sample {
        /// One batch in so many is taken.
        one_in: NonZeroU32,
    },
}

impl Overflow {
    /// The names, as definitions have them.
    pub const NAMES: &'static [&'static str] = &[
        "grow",
        "block",
        "reject",
        "drop_oldest",
        "drop_newest",
        "sample",
    ];

    /// The name, as definitions have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grow => "grow",
            Self::Block => "block",
            Self::Reject { .. } => "reject",
            Self::DropOldest => "drop_oldest",
            Self::DropNewest => "drop_newest",
            Self::Sample { .. } => "sample",
        }
    }

    /// Whether the oldest events go although somebody waits for them.
    pub fn drops_oldest(self) -> bool {
        matches!(self, Self::DropOldest | Self::Sample { .. })
    }
}
