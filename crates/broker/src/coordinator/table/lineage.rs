//! Which table it is, how far a copy of it has come, and what of the nodes' proposals is decided.

use std::collections::BTreeMap;
use wire::record::{FollowedRecord, ProposedRecord, Record};
use wire::{NodeId, TableId};

/// What a table that several nodes have says of itself. That of a node that is alone says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Lineage {
    /// 0 is none.
    pub id: TableId,
    /// Of a copy: whose it is, and the index that the table had at its leader.
    pub followed: Option<FollowedRecord>,
    /// The last proposal of each node that was carried out.
    pub proposed: BTreeMap<NodeId, u64>,
}

impl Lineage {
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let id = (self.id != TableId(0)).then_some(Record::Table(self.id));
        let proposed = self.proposed.iter();
        let proposed = proposed.map(|(node, number)| {
            Record::Proposed(ProposedRecord {
                node: *node,
                number: *number,
            })
        });
        let followed = self.followed.map(Record::Followed);
        id.into_iter().chain(proposed).chain(followed)
    }
}
