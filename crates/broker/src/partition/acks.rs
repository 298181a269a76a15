//! Answers that wait for durability.

use crate::ids::RequestId;
use log::StorageState;
use std::collections::VecDeque;
use wire::record::Gap;
use wire::{Durability, Offset};

/// An answer that waits for durability.
#[derive(Debug, Clone)]
pub(crate) struct Ack {
    pub caller: RequestId,
    /// The batch's offsets.
    pub base_offset: Offset,
    pub end: Offset,
    pub append_time: u64,
    pub duplicate: bool,
    /// What was lost at a mirror's source, if the batch stands for that.
    pub gap: Option<Box<Gap>>,
}

/// Answers that wait, by the durability that was asked for, in the order of
/// their offsets.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    levels: [VecDeque<Ack>; 3],
}

const LEVELS: [Durability; 3] = [Durability::Memory, Durability::Written, Durability::Synced];

impl Acks {
    pub fn push(&mut self, level: Durability, ack: Ack) {
        self.levels[level as usize].push_back(ack);
    }

    /// The next answer that may be given.
    pub fn pop_reached(&mut self, state: &StorageState) -> Option<Ack> {
        for (queue, level) in self.levels.iter_mut().zip(LEVELS) {
            if queue
                .front()
                .is_some_and(|ack| ack.end <= state.reached(level))
            {
                return queue.pop_front();
            }
        }
        None
    }

    /// What waits for offsets from `from` on: the storage undid it.
    pub fn take_from(&mut self, from: Offset) -> Vec<Ack> {
        let mut taken = Vec::new();
        for queue in &mut self.levels {
            let (undone, kept) = std::mem::take(queue)
                .into_iter()
                .partition(|ack| ack.end > from);
            *queue = kept;
            taken.extend::<VecDeque<Ack>>(undone);
        }
        taken
    }

    /// Everything that waits, which is given up.
    pub fn take_all(&mut self) -> Vec<Ack> {
        self.levels.iter_mut().flat_map(std::mem::take).collect()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.levels.iter().map(VecDeque::len).sum()
    }
}
