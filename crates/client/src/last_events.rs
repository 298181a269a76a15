//! The last event of each of some partitions.

use crate::error::ClientError;
use crate::event::ConsumedEvent;
use crate::topic_handle::{FetchRequest, TopicHandle};
use std::time::Duration;
use wire::message::PartitionDescription;
use wire::record::Position;
use wire::{Offset, PartitionIndex};

/// Of so many partitions the last event is asked for at once.
const FETCHES_AT_ONCE: usize = 64;

/// Where the last visible event of a partition lies; `None` if there is none any more.
pub fn last_position(partition: &PartitionDescription) -> Option<Position> {
    let offset = Offset(partition.watermarks.committed.0.checked_sub(1)?);
    (offset >= partition.first).then_some(Position {
        incarnation: partition.incarnation,
        offset,
    })
}

impl TopicHandle {
    /// The events at these positions, as [`last_position`] gives them, in their order; `None` for
    /// one that is gone by now. Of each partition the batch that it is in is read, without
    /// data. Blocks.
    ///
    /// # Errors
    /// Of each partition, as any call.
    pub fn last_events(
        &self,
        positions: &[(PartitionIndex, Position)],
    ) -> Vec<Result<Option<ConsumedEvent>, ClientError>> {
        let mut events = Vec::with_capacity(positions.len());
        for some in positions.chunks(FETCHES_AT_ONCE) {
            let fetches = some.iter().map(|(partition, position)| {
                self.begin_fetch(FetchRequest {
                    partition: *partition,
                    from: *position,
                    // The batch that the event is in comes, whatever its length.
                    bytes_max: 1,
                    wait_max: Duration::ZERO,
                    inline_data: false,
                })
            });
            let fetches: Vec<_> = fetches.collect();
            for ((_, position), fetch) in some.iter().zip(fetches) {
                events.push(fetch.wait().map(|fetched| {
                    let mut events = fetched.events();
                    events.find(|event| event.id().offset == position.offset)
                }));
            }
        }
        events
    }
}
