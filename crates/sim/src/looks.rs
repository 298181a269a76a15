//! A program that looks at its topic now and then: it learns of partitions that were added, and what it knows of a partition's leader never
//! goes back.

use crate::random::Random;
use crate::trace::Violation;
use client::{Pending, TopicDescription, TopicHandle};
use std::collections::BTreeMap;

/// Answers that are waited for at a time.
const PENDING_MAX: usize = 3;

/// What a program knows of its topic by its handle.
pub struct Looks {
    /// It looks once in so many times that it acts; never if that is 0.
    one_in: u64,
    /// It looks before it does anything else, and waits for the answer.
    is_due: bool,
    pending: Vec<Pending<TopicDescription>>,
    /// The epoch of each partition's leader.
    epochs: BTreeMap<u32, u32>,
    random: Random,
}

impl Looks {
    /// A program that knows nothing yet.
    pub fn new(one_in: u64, seed: u64) -> Self {
        Self {
            one_in,
            is_due: false,
            pending: Vec::new(),
            epochs: BTreeMap::new(),
            random: Random::new(seed),
        }
    }

    /// The program opens its topic anew.
    pub fn forget(&mut self) {
        self.pending.clear();
        self.epochs.clear();
    }

    /// It is to look before it does anything else.
    pub fn is_to_look(&mut self) {
        self.is_due = self.one_in > 0;
    }

    /// The program acts. True if it waits for an answer first.
    pub fn act(&mut self, who: &str, topic: &TopicHandle) -> Result<bool, Violation> {
        if self.one_in == 0 {
            return Ok(false);
        }
        self.compare(who, topic)?;
        let has_room = self.pending.len() < PENDING_MAX;
        let waits = self.is_due && self.pending.is_empty();
        if waits || (has_room && self.random.one_in(self.one_in)) {
            self.pending.push(topic.begin_refresh());
        }
        Ok(self.is_due)
    }

    /// Takes the answers that have come.
    pub fn observe(&mut self, who: &str, topic: &TopicHandle) -> Result<(), Violation> {
        let asked = self.pending.len();
        self.pending
            .retain_mut(|pending| pending.try_get().is_none());
        if self.pending.len() == asked {
            return Ok(());
        }
        self.is_due = false;
        self.compare(who, topic)
    }

    /// What is known of the topic, with what was known before.
    fn compare(&mut self, who: &str, topic: &TopicHandle) -> Result<(), Violation> {
        for partition in topic.partitions() {
            let (index, epoch) = (partition.partition.0, partition.leader_epoch);
            let before = self.epochs.insert(index, epoch).unwrap_or(0);
            if epoch < before {
                return Violation::because(format!(
                    "{who} goes back to leader epoch {epoch} of partition {index}, and knew {before}"
                ));
            }
        }
        Ok(())
    }
}
