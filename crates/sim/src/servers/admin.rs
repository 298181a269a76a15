//! What an administrator does with a cluster that runs: adds a partition to a topic, and removes a node whose server has ended for good. A
//! program that does it tries until it is done, or its driver has ended.

use super::errand::{Done, Outcome, again};
use client::{ClientError, Driver, NodeId, NodeState, PartitionStorage};
use wire::ErrorCode;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chore {
    /// This topic has one partition more, and so many then.
    Add(usize, usize),
    /// The node of this server, which has ended for good, is removed.
    Remove(usize),
}

/// Asks until there is an answer that is one.
fn insist(mut ask: impl FnMut() -> Result<Option<Done>, ClientError>) -> Outcome {
    loop {
        match ask() {
            Ok(Some(done)) => return Ok(done),
            Err(ClientError::Closed) => return Err("its driver has ended".to_owned()),
            Ok(None) | Err(_) if again() => {}
            Ok(None) | Err(_) => return Err("it was killed".to_owned()),
        }
    }
}

/// Adds a partition to a topic, which has this many then.
pub fn add_partition(
    driver: &Driver,
    topic: &str,
    storage: &PartitionStorage,
    count: usize,
) -> Outcome {
    insist(|| {
        // One that was asked for before may have been added without an answer.
        if driver.describe_topic(topic)?.partitions.len() < count {
            driver.add_partitions(topic, std::slice::from_ref(storage))?;
        }
        Ok(Some(Done::Added))
    })
}

/// Removes a node, as soon as the table's leader does not see its server any more.
pub fn remove(driver: &Driver, node: NodeId, place: usize) -> Outcome {
    insist(|| match driver.set_node(node, NodeState::Removed, false) {
        Ok(()) => Ok(Some(Done::Removed(place))),
        Err(error) if error.code() == Some(ErrorCode::Unsupported) => {
            let has_topics = error.to_string().contains("which would be lost");
            Ok(has_topics.then_some(Done::Stays(place)))
        }
        Err(error) => Err(error),
    })
}
