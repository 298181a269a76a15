//! What a simulation of several nodes looks at in each of them.

use crate::node::Node;
use crate::table::Table;
use wire::TopicId;

impl Node {
    /// The table, as far as this node knows it.
    pub fn table(&self) -> &Table {
        self.coordinator.commands.table()
    }

    /// The topics that this node serves: what it has yielded to a mover it does not.
    pub fn topics_served(&self) -> Vec<TopicId> {
        let moves = &self.coordinator.moves;
        let ids = self.coordinator.topics.ids();
        ids.filter(|id| !moves.has_yielded(*id)).collect()
    }
}
