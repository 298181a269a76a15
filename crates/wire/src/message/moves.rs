//! What is asked of nodes when a topic goes from one to another.

use crate::codec::record;
use crate::record::ProducerState;
use crate::{NodeId, Offset, PartitionIndex};
use bytes::Bytes;

record! {
    /// A topic (named by the request's head) is to go to another node: asked of the one that has it.
    #[derive(Copy)]
    pub struct MoveTopic {
        /// Where to. The node that has it: it stays, after all.
        pub to: NodeId,
    }
}

record! {
    /// The node that a topic goes to is to take copies of its batches, from this connection alone.
    #[derive(Copy)]
    pub struct ReceiveTopic {
        /// A number for what is sent from now on, another one each time.
        pub opening: u64,
    }
}

record! {
    /// A topic is to be served no more by the node that has it.
    #[derive(Copy)]
    pub struct YieldTopic {
        /// Where it goes: the node that has copies of it.
        pub to: NodeId,
    }
}

record! {
    /// The node that had a topic serves it no more, until it is handed over or the connection is gone.
    pub struct TopicYielded {
        /// Where each partition ends.
        pub ends: Vec<(PartitionIndex, Offset)>,
        /// What the node's ledger says of the topic: records, in their order.
        pub ledger: Vec<Bytes>,
        /// What each partition remembers of its producers.
        pub producers: Vec<(PartitionIndex, Vec<ProducerState>)>,
    }
}

record! {
    /// What the ledger of the node that had a topic says of it.
    pub struct AdoptLedger {
        /// Whether nothing that was said before counts.
        pub is_first: bool,
        /// Records, in their order; of one that yields a topic, all of them or a part.
        pub records: Vec<Bytes>,
        /// What partitions remember of producers: of all of them or of some.
        pub producers: Vec<(PartitionIndex, Vec<ProducerState>)>,
    }
}
