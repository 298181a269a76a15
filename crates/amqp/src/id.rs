//! What names methods and channels.

use std::fmt;

/// The ids of a class and of a method in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names of the fields say it")]
pub struct MethodId {
    pub class: u16,
    pub method: u16,
}

impl MethodId {
    /// Of these two ids.
    pub const fn new(class: u16, method: u16) -> Self {
        Self { class, method }
    }
}

/// A channel of a connection. Numbers come again when a channel was closed; the incarnation tells the channels of
/// one number apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names of the fields say it")]
pub struct ChannelKey {
    pub number: u16,
    pub incarnation: u32,
}

impl fmt::Display for ChannelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel {}", self.number)
    }
}

/// The ids that a payload begins with, if it has them: for the errors of what follows.
pub(crate) fn ids_of(payload: &[u8]) -> Option<MethodId> {
    let [class_high, class_low, method_high, method_low] = *payload.first_chunk()?;
    Some(MethodId {
        class: u16::from_be_bytes([class_high, class_low]),
        method: u16::from_be_bytes([method_high, method_low]),
    })
}
