//! What a simulation of several nodes looks at in each of them.

use crate::coordinator::Coordinator;
use crate::table::Table;
use wire::TopicId;

/// A look at a node.
#[derive(Clone, Copy)]
pub struct Inspected<'a>(pub(crate) &'a Coordinator);

impl<'a> Inspected<'a> {
    /// The table, as far as the node knows it.
    pub fn table(self) -> &'a Table {
        self.0.commands.table()
    }

    /// The topics that the node serves: what it has yielded to a mover it does not.
    pub fn topics_served(self) -> Vec<TopicId> {
        let ids = self.0.topics.ids();
        ids.filter(|id| !self.0.moves.has_yielded(*id)).collect()
    }
}
