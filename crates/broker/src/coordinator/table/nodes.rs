//! The nodes of a table of several servers, as the table has them.

use crate::ids::LEADER;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::record::{NodeRecord, NodeState, Record};
use wire::{DirectoryId, ErrorCode, ErrorReply, NodeId};

/// Nodes of a table that are not removed.
pub const NODES_MAX: usize = 4096;
/// Ids of nodes that were ever given: those of removed nodes are kept, so that none is given again.
pub const NODE_IDS_MAX: usize = 65_536;

/// The latest record of each node, by its id. A copy is the same memory until one of the two changes,
/// so that it is cheap to go by what the table said last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableNodes(Arc<BTreeMap<NodeId, Arc<NodeRecord>>>);

impl TableNodes {
    /// The node of this id, removed or not.
    pub fn get(&self, node: NodeId) -> Option<&NodeRecord> {
        self.0.get(&node).map(Arc::as_ref)
    }

    /// Each node that there ever was, in the order of ids.
    pub fn all(&self) -> impl Iterator<Item = &NodeRecord> {
        self.0.values().map(Arc::as_ref)
    }

    /// Each node that is not removed, in the order of ids.
    pub fn present(&self) -> impl Iterator<Item = &NodeRecord> {
        self.all().filter(|it| it.state != NodeState::Removed)
    }

    /// The node that has this data directory, or had it last.
    pub fn of_directory(&self, directory: DirectoryId) -> Option<&NodeRecord> {
        let had = self.all().filter(|it| it.directory == directory);
        // Among those that had it, at most one is not removed.
        had.max_by_key(|it| (it.state != NodeState::Removed, it.node))
    }

    /// The id that a new node gets: behind all that were ever given, and never that of the one that leads.
    pub fn next_id(&self) -> NodeId {
        let last = self.0.last_key_value().map_or(LEADER, |(node, _)| *node);
        // Bounded by `NODE_IDS_MAX`.
        NodeId(last.0.saturating_add(1))
    }

    /// Whether nothing has changed since one became a copy of the other.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Takes what a record says of its node.
    pub(crate) fn apply(&mut self, record: NodeRecord) {
        Arc::make_mut(&mut self.0).insert(record.node, Arc::new(record));
    }

    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.all().cloned().map(Record::Node)
    }

    /// Whether a record may be applied behind all these.
    ///
    /// # Errors
    /// What the node is refused with that has submitted it.
    pub(crate) fn admits(&self, new: &NodeRecord) -> Result<(), ErrorReply> {
        let wrong = |text| Err(ErrorReply::fatal(ErrorCode::WrongServer, text));
        let full = |text| Err(ErrorReply::fatal(ErrorCode::LimitExceeded, text));
        let NodeRecord {
            node,
            directory,
            epoch,
            ..
        } = *new;
        if let Some(excess) = new.excess() {
            return full(excess.to_string());
        }
        let other = self.of_directory(directory);
        let other = other.filter(|it| it.node != node && it.state != NodeState::Removed);
        if let Some(other) = other {
            return wrong(format!(
                "data directory {directory} is node {}, and cannot be node {node} as well",
                other.node
            ));
        }
        match self.get(node) {
            None if node != self.next_id() || epoch != 1 => wrong(format!(
                "a new node is node {}, of epoch 1, and not node {node} of epoch {epoch}",
                self.next_id()
            )),
            None if self.present().count() >= NODES_MAX => {
                full(format!("the table has {NODES_MAX} nodes"))
            }
            None if node.0 as usize > NODE_IDS_MAX => full(format!(
                "the table has had {NODE_IDS_MAX} nodes, and no id is given again"
            )),
            None => Ok(()),
            Some(known) if known.directory != directory => wrong(format!(
                "node {node} is data directory {}, and never another one",
                known.directory
            )),
            Some(known) if known.state == NodeState::Removed => {
                wrong(format!("node {node} was removed, and does not come back"))
            }
            Some(known) if epoch > known.epoch || is_change_of_state(known, new) => Ok(()),
            Some(known) => wrong(format!(
                "node {node} has been registered since: its epoch is {}, and not {epoch}",
                known.epoch
            )),
        }
    }
}

/// Whether a record says another state of the same registration, and nothing else.
fn is_change_of_state(known: &NodeRecord, new: &NodeRecord) -> bool {
    let NodeRecord { state, .. } = *known;
    let same = NodeRecord {
        state,
        ..new.clone()
    };
    *known == same
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::table::Table;
    use wire::record::{ENDPOINTS_MAX, Endpoints, Labels, NODE_TEXT_BYTES_MAX};

    pub fn record(node: u32, directory: u128, epoch: u64) -> NodeRecord {
        NodeRecord {
            node: NodeId(node),
            directory: DirectoryId(directory),
            epoch,
            shard: 0,
            endpoints: Endpoints(vec![format!("tcp://h{directory}:{epoch}")]),
            labels: Labels::default(),
            state: NodeState::Serving,
        }
    }

    fn in_state(record: NodeRecord, state: NodeState) -> NodeRecord {
        NodeRecord { state, ..record }
    }

    fn table(records: &[NodeRecord]) -> Table {
        let mut table = Table::default();
        for record in records {
            table.apply(Record::Node(record.clone()));
        }
        table
    }

    /// Why a record is refused.
    fn refused(table: &Table, record: NodeRecord) -> Option<String> {
        let admitted = table.admits(&[Record::Node(record)]);
        admitted.err().map(|error| error.message)
    }

    #[track_caller]
    fn assert_refused(table: &Table, record: NodeRecord, why: &str) {
        let message = refused(table, record.clone());
        let message = message.unwrap_or_else(|| panic!("{record:?} was admitted"));
        assert!(message.contains(why), "{message}");
    }

    #[test]
    fn a_node_is_one_directory_and_a_directory_one_node() {
        let removed = in_state(record(2, 0xd2, 1), NodeState::Removed);
        let table = table(&[record(1, 0xd1, 3), removed.clone()]);
        // The next one is new, comes back, or has another state.
        assert_eq!(refused(&table, record(3, 0xd3, 1)), None);
        assert_eq!(refused(&table, record(1, 0xd1, 4)), None);
        for state in [NodeState::Draining, NodeState::Removed] {
            let changed = in_state(record(1, 0xd1, 3), state);
            assert_eq!(refused(&table, changed), None);
        }
        // Another directory of an id that was given, also of one that was removed.
        assert_refused(&table, record(1, 0xd9, 4), "never another one");
        assert_refused(&table, record(2, 0xd9, 9), "never another one");
        assert_refused(&table, record(2, 0xd2, 2), "does not come back");
        // Another id of a directory.
        assert_refused(&table, record(3, 0xd1, 1), "as well");
        // One whose node was removed has none.
        assert_eq!(refused(&table, record(3, 0xd2, 1)), None);
        // Ids that are not the next one, and that of the one that leads.
        for node in [0, 4, u32::MAX] {
            assert_refused(&table, record(node, 0xd3, 1), "a new node is node 3");
        }
        assert_refused(&table, record(3, 0xd3, 2), "of epoch 1");
    }

    #[test]
    fn an_epoch_grows_unless_the_state_alone_is_another() {
        let table = table(&[record(1, 0xd1, 3)]);
        let draining = |epoch| in_state(record(1, 0xd1, epoch), NodeState::Draining);
        assert_refused(&table, record(1, 0xd1, 2), "epoch is 3");
        assert_refused(&table, draining(2), "epoch is 3");
        let moved = NodeRecord {
            endpoints: Endpoints::default(),
            ..record(1, 0xd1, 3)
        };
        assert_refused(&table, moved, "epoch is 3");
        assert_eq!(refused(&table, draining(3)), None);
    }

    #[test]
    fn what_is_beyond_a_bound_is_refused_before_it_is_written() {
        let long = "x".repeat(NODE_TEXT_BYTES_MAX + 1);
        for endpoints in [vec![String::new(); ENDPOINTS_MAX + 1], vec![long]] {
            let excess = NodeRecord {
                endpoints: Endpoints(endpoints),
                ..record(1, 0xd1, 1)
            };
            assert_refused(&Table::default(), excess, "are allowed");
        }
        let count = NODES_MAX as u32;
        let records: Vec<_> = (1..=count).map(|id| record(id, id.into(), 1)).collect();
        let mut full = table(&records);
        let next = record(count + 1, 0xffff_ffff, 1);
        assert_refused(&full, next.clone(), "the table has 4096 nodes");
        // One that is removed makes a place, and leaves its id.
        let removed = in_state(record(7, 7, 1), NodeState::Removed);
        full.apply(Record::Node(removed));
        assert_eq!(refused(&full, next), None);
        assert_refused(&full, record(7, 0xffff_ffff, 2), "never another one");
        let gone = |id: u32| in_state(record(id, id.into(), 1), NodeState::Removed);
        let ids = NODE_IDS_MAX as u32;
        let table = table(&[gone(ids)]);
        assert_refused(&table, record(ids + 1, 0xd1, 1), "no id is given again");
    }

    /// All records of a command are admitted or none: each behind those before it.
    #[test]
    fn a_command_is_admitted_as_a_whole() {
        let admits = |records: [NodeRecord; 2]| {
            let records = records.map(Record::Node);
            Table::default().admits(&records).is_ok()
        };
        assert!(admits([record(1, 0xd1, 1), record(2, 0xd2, 1)]));
        assert!(!admits([record(1, 0xd1, 1), record(1, 0xd2, 1)]));
        assert!(!admits([record(1, 0xd1, 1), record(2, 0xd1, 1)]));
        assert!(!admits([record(1, 0xd1, 1), record(3, 0xd3, 1)]));
    }

    #[test]
    fn the_records_of_a_table_make_its_nodes_again() {
        let removed = in_state(record(2, 0xd2, 1), NodeState::Removed);
        let table = table(&[
            record(1, 0xd1, 1),
            record(2, 0xd2, 1),
            record(1, 0xd1, 2),
            removed.clone(),
        ]);
        let mut again = Table::default();
        table.records().for_each(|it| again.apply(it));
        assert_eq!(again, table);
        let nodes = again.nodes();
        assert_eq!(nodes.get(NodeId(1)), Some(&record(1, 0xd1, 2)));
        assert_eq!(nodes.of_directory(DirectoryId(0xd2)), Some(&removed));
        assert_eq!(nodes.present().count(), 1);
        assert_eq!(nodes.next_id(), NodeId(3));
        assert_eq!(Table::default().nodes().next_id(), NodeId(1));
    }
}
