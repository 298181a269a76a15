//! How far behind those are who read a topic.

use crate::error::ClientError;
use crate::topic_handle::TopicHandle;
use wire::PartitionIndex;
use wire::message::{ConsumerDescription, PartitionDescription};
use wire::record::ConsumerKind;

/// A consumer, group or queue, and how many events of its topic it has still to finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lag {
    /// The consumer's, group's or queue's name.
    pub name: String,
    /// Whether it reads for itself, or shares partitions or single events among members.
    pub kind: ConsumerKind,
    /// Members that are connected now; of a consumer, programs that read under its name.
    pub members: usize,
    /// Events that are there and that it has not acknowledged, or not settled.
    pub events: u64,
    /// The same of each partition of the topic.
    pub partitions: Vec<(PartitionIndex, u64)>,
}

impl Lag {
    /// Of a consumer of a topic with these partitions. In a partition without a cursor it would
    /// begin with the first event, so that it is behind by all; and nowhere by more than is there:
    /// what retention took before it was read is lost, not to be read.
    pub fn of(consumer: &ConsumerDescription, partitions: &[PartitionDescription]) -> Self {
        let partitions: Vec<_> = partitions
            .iter()
            .map(|partition| {
                let there = partition.watermarks.committed.0;
                let there = there.saturating_sub(partition.first.0);
                let mut cursors = consumer.partitions.iter();
                let cursor = cursors.find(|cursor| cursor.partition == partition.partition);
                let lag = cursor.map_or(there, |cursor| cursor.lag().min(there));
                (partition.partition, lag)
            })
            .collect();
        Self {
            name: consumer.consumer.clone(),
            kind: consumer.kind,
            members: consumer.members.iter().filter(|one| one.present).count(),
            events: partitions.iter().map(|(_, lag)| lag).sum(),
            partitions,
        }
    }
}

impl TopicHandle {
    /// How far each consumer, group and queue of the topic is behind. Asks the server twice.
    ///
    /// # Errors
    /// As any call.
    pub fn lag(&self) -> Result<Vec<Lag>, ClientError> {
        let consumers = self.describe_consumers("")?;
        let partitions = self.refresh()?.partitions;
        let lags = consumers.iter().map(|one| Lag::of(one, &partitions));
        Ok(lags.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::message::{ConsumerPartition, PartitionStorage, Watermarks};
    use wire::record::Position;
    use wire::{Durability, Incarnation, Offset};

    fn partition(index: u32, first: u64, committed: u64) -> PartitionDescription {
        PartitionDescription {
            partition: PartitionIndex(index),
            storage: PartitionStorage {
                kind: "disk".into(),
                config: String::new(),
            },
            durability: Durability::Written,
            incarnation: Incarnation(1),
            leader_epoch: 1,
            ended: Vec::new(),
            first: Offset(first),
            watermarks: Watermarks {
                end: Offset(committed),
                durable: Offset(committed),
                committed: Offset(committed),
            },
            bytes: 0,
            failure: String::new(),
        }
    }

    fn cursor(index: u32, offset: u64, end: u64, settled: u64) -> ConsumerPartition {
        ConsumerPartition {
            partition: PartitionIndex(index),
            position: Position {
                incarnation: Incarnation(1),
                offset: Offset(offset),
            },
            end: Offset(end),
            settled,
            leased: 0,
            returned: 0,
            delayed: 0,
            dead: 0,
        }
    }

    #[test]
    fn it_is_what_is_there_and_not_finished() {
        let consumer = ConsumerDescription {
            consumer: "farm".into(),
            kind: ConsumerKind::Queue,
            options: String::new(),
            members: Vec::new(),
            partitions: vec![
                cursor(0, 10, 30, 5),
                // The cursor is before the first event that is left.
                cursor(1, 0, 100, 0),
                cursor(2, 7, 7, 0),
            ],
        };
        let partitions = [
            partition(0, 0, 30),
            partition(1, 90, 100),
            partition(2, 0, 7),
            // No cursor: it would begin with the first.
            partition(3, 2, 6),
        ];
        let lag = Lag::of(&consumer, &partitions);
        let counts: Vec<u64> = lag.partitions.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [15, 10, 0, 4]);
        assert_eq!((lag.events, lag.members), (29, 0));
    }
}
