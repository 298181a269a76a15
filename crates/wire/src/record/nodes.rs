//! Records of a table that several nodes have.

use crate::codec::record;
use crate::id::*;

record! {
    /// How far a copy of the table has come: in the log of a node that follows, behind what it has copied.
    #[derive(Copy)]
    pub struct FollowedRecord {
        /// The node that has the copy, and in its ledger the cursors of its own topics.
        pub node: NodeId,
        /// The index that the table had at its leader.
        pub index: u64,
    }
}

record! {
    /// What a node has proposed was decided: in the same batch as the records that it proposed.
    #[derive(Copy)]
    pub struct ProposedRecord {
        /// Who has proposed it.
        pub node: NodeId,
        /// That node's count of its proposals. Those before it are decided too.
        pub number: u64,
    }
}

record! {
    /// On which node a partition is. One without is on the node that leads; that of partition 0 is
    /// there before the partition, and says where the topic is served.
    #[derive(Copy)]
    pub struct PlacedRecord {
        pub topic: TopicId,
        pub partition: PartitionIndex,
        pub node: NodeId,
    }
}
