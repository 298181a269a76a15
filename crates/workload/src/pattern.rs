//! Who gets which message, and whether somebody answers.

use serde::{Deserialize, Serialize};

/// A messaging pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pattern {
    /// Each message goes to one consumer.
    #[serde(rename = "work sharing")]
    WorkSharing,
    /// Each message goes to one consumer, which sends it back to its producer.
    #[serde(rename = "work sharing with feedback")]
    WorkSharingFeedback,
    /// Each message goes to all consumers.
    #[serde(rename = "broadcast")]
    Broadcast,
    /// Each message goes to all consumers, each of which sends it back.
    #[serde(rename = "broadcast and gather")]
    BroadcastGather,
}

impl Pattern {
    /// Their names, those of the published simulator too.
    pub(crate) const WORDS: [(&'static str, Self); 7] = [
        ("work sharing", Self::WorkSharing),
        ("work sharing with feedback", Self::WorkSharingFeedback),
        ("broadcast", Self::Broadcast),
        ("broadcast and gather", Self::BroadcastGather),
        ("work-sharing", Self::WorkSharing),
        ("work-sharing-fb", Self::WorkSharingFeedback),
        ("broadcast-gather", Self::BroadcastGather),
    ];

    /// Whether a message goes to all consumers.
    pub fn is_broadcast(self) -> bool {
        matches!(self, Self::Broadcast | Self::BroadcastGather)
    }

    /// Whether consumers send messages back.
    pub fn has_replies(self) -> bool {
        matches!(self, Self::WorkSharingFeedback | Self::BroadcastGather)
    }

    /// How many consumers get each message.
    pub fn copies(self, consumers: u64) -> u64 {
        if self.is_broadcast() { consumers } else { 1 }
    }
}
