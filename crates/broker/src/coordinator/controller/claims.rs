//! What commands under way are about, as far as others may want the same.

use crate::coordinator::table::Table;
use wire::record::{NodeState, Record};
use wire::{ErrorCode, ErrorReply, TopicId};

/// What a command makes or changes that another node may want to make or change as well: names of topics, nodes, and
/// where topics are. Who wants the same has to wait.
#[derive(Default)]
pub(super) struct Claims(Vec<Record>);

impl Claims {
    /// Those of a command's records.
    pub fn of(records: &[Record]) -> Self {
        let is_claim = |record: &&Record| {
            matches!(
                record,
                Record::Topic(_) | Record::Node(_) | Record::Placed(_) | Record::Moving(_)
            )
        };
        Self(records.iter().filter(is_claim).cloned().collect())
    }

    /// Whether a node is among them.
    pub fn have_node(&self) -> bool {
        self.0.iter().any(|it| matches!(it, Record::Node(_)))
    }

    /// Refuses other records because of these: whether they can be applied is known when they are asked for again.
    ///
    /// A topic that is there is neither placed nor sent on its way while that is being decided already, or while a node begins anew, which
    /// may be one of the two: what the table says before that does not count.
    pub fn refuse(&self, records: &[Record], table: &Table) -> Result<(), ErrorReply> {
        let pairs = self
            .0
            .iter()
            .flat_map(|claim| records.iter().map(move |new| (claim, new)));
        for (claim, new) in pairs {
            let (code, message) = match (claim, new) {
                (Record::Topic(made), Record::Topic(new))
                    if made.topic != new.topic
                        && (&made.namespace, &made.name) == (&new.namespace, &new.name) =>
                {
                    let message = format!("topic {:?} is being made", new.name);
                    (ErrorCode::TopicExists, message)
                }
                // Which id is the next depends on all of them.
                (Record::Node(_), Record::Node(new)) => {
                    let message = format!("node {} cannot be changed while nodes are", new.node);
                    (ErrorCode::WrongServer, message)
                }
                (made, new)
                    if place_of(made).is_some_and(|topic| {
                        place_of(new) == Some(topic) && table.topic(topic).is_some()
                    }) =>
                {
                    let message = "it is being decided where the topic is";
                    (ErrorCode::WrongServer, message.to_owned())
                }
                (Record::Node(node), new)
                    if place_of(new).is_some_and(|topic| table.topic(topic).is_some()) =>
                {
                    let message = format!("node {} is being changed", node.node);
                    (ErrorCode::WrongServer, message)
                }
                // It would take the topic with it, unseen.
                (Record::Placed(placed), Record::Node(new))
                    if placed.node == new.node && new.state == NodeState::Removed =>
                {
                    let message = format!("a topic is being made on node {}", new.node);
                    (ErrorCode::WrongServer, message)
                }
                _ => continue,
            };
            return Err(ErrorReply::retryable(code, 20, message));
        }
        Ok(())
    }
}

/// The topic of a record that says where one is, or goes.
fn place_of(record: &Record) -> Option<TopicId> {
    match record {
        Record::Placed(record) => Some(record.topic),
        Record::Moving(record) => Some(record.topic),
        _ => None,
    }
}
