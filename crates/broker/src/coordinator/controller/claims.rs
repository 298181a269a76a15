//! What commands under way are about, as far as others may want the same.

use wire::record::Record;
use wire::{ErrorCode, ErrorReply};

/// What a command makes or changes that another node may want to make or change as well: names of topics, and
/// nodes. Who wants the same has to wait.
#[derive(Default)]
pub(super) struct Claims(Vec<Record>);

impl Claims {
    /// Those of a command's records.
    pub fn of(records: &[Record]) -> Self {
        let is_claim = |record: &&Record| matches!(record, Record::Topic(_) | Record::Node(_));
        Self(records.iter().filter(is_claim).cloned().collect())
    }

    /// Whether a node is among them.
    pub fn have_node(&self) -> bool {
        self.0.iter().any(|it| matches!(it, Record::Node(_)))
    }

    /// Refuses other records because of these: whether they can be applied is known when they are asked for again.
    pub fn refuse(&self, records: &[Record]) -> Result<(), ErrorReply> {
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
                _ => continue,
            };
            return Err(ErrorReply::retryable(code, 20, message));
        }
        Ok(())
    }
}
