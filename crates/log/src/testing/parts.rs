//! What tests of a storage mostly want the same: how a partition is opened,
//! and where a batch comes from.

use crate::storage::*;
use memory::Buffer;
use std::path::PathBuf;
use wire::batch::{Header, Origin, STAMP_BYTES};
use wire::{Durability, Incarnation, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TopicId};

/// Partition 0 of topic 7, in `/p`, which keeps everything.
pub fn open_partition(durability: Durability, config: &str, create: bool) -> OpenPartition {
    OpenPartition {
        directory: PathBuf::from("/p"),
        topic: TopicId(7),
        partition: PartitionIndex(0),
        incarnation: Incarnation(1),
        durability,
        config: config.into(),
        retention: Retention::default(),
        boot_id: "boot".into(),
        unix_ns: 1,
        create,
    }
}

/// Producer 1 of that topic, whose batch begins with this event.
pub fn origin(first: u64) -> Origin {
    Origin {
        topic: TopicId(7),
        producer: ProducerId(1),
        epoch: ProducerEpoch(0),
        first_sequence: Sequence(first),
    }
}

/// What appends a batch that is whole and has no data outside.
pub fn append_of(batch: Buffer, durability: Durability, append_time: u64) -> Append {
    let (header, header_crc) =
        Header::read(&batch[STAMP_BYTES..]).expect("a test's batch has a header");
    Append {
        batch,
        header,
        header_crc,
        place: None,
        durability,
        append_time,
        now: append_time,
        leader_epoch: 0,
    }
}
