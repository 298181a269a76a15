//! What a link says to the server that keeps the copy of a mirrored topic.

use super::Region;
use crate::codec::record;
use crate::{Durability, Offset, PartitionIndex, TopicId};

record! {
    /// A link begins to write a mirror, or goes on.
    pub struct OpenMirror {
        /// The name of the link, as the mirror's definition has it.
        pub link: String,
        /// The source topic, as its server names it.
        pub source: TopicId,
        /// The link's number for what it sends from now on, another one for each session.
        pub opening: u64,
    }
}

record! {
    /// How far each partition of a mirror has come.
    pub struct MirrorOpened {
        /// In the order of the partitions.
        pub partitions: Vec<MirrorPosition>,
    }
}

record! {
    /// How far a partition of a mirror has come.
    pub struct MirrorPosition {
        pub partition: PartitionIndex,
        /// The offset that is expected next.
        pub next: Offset,
        /// Below this, all is as durable as the topic promises.
        pub durable: Offset,
    }
}

record! {
    /// Appends a batch of the source as it is, under the offset that its stamp says.
    pub struct AppendMirrored {
        pub partition: PartitionIndex,
        /// That of the last OpenMirror on this connection.
        pub opening: u64,
        /// What the ack must mean; at least the topic's own.
        pub durability: Durability,
        /// Where the external data of each event lies, in the order of the events.
        pub regions: Vec<Region>,
    }
}
