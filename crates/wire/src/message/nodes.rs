//! What operators see of the nodes of a cluster, and change.

use crate::codec::record;
use crate::record::{Endpoints, Labels, NodeState};
use crate::{DirectoryId, NodeId};

record! {
    /// A node of the table that is not removed.
    pub struct NodeDescription {
        pub node: NodeId,
        /// Its data directory.
        pub directory: DirectoryId,
        /// How often it has registered: at each of its starts.
        pub epoch: u64,
        /// Which shard of its server it is.
        pub shard: u32,
        pub state: NodeState,
        pub endpoints: Endpoints,
        pub labels: Labels,
        /// How many topics are on it.
        pub topics: u64,
    }
}

record! {
    /// Asks which nodes there are.
    #[derive(Copy)]
    pub struct ListNodes {
        /// Whose topics are to be listed; 0 is none's.
        pub topics_of: NodeId,
    }
}

record! {
    /// The nodes of a table, in the order of their ids. None, where a server is alone.
    pub struct NodeList {
        pub nodes: Vec<NodeDescription>,
        /// The topics of the node that was asked about: (namespace, name), ascending.
        pub topics: Vec<(String, String)>,
    }
}

record! {
    /// A node is to have another state.
    #[derive(Copy)]
    pub struct SetNode {
        pub node: NodeId,
        /// `away` is no state to be set: the table says that by itself.
        pub state: NodeState,
        /// Whether a node that is removed may take topics with it, which are deleted then.
        pub accept_loss: bool,
    }
}
