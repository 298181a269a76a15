//! Confirms of the messages that a channel publishes: one for each, and several in one where that says the same.

use crate::faults::{Fault, planted};
use amqp::{Method, basic};
use std::collections::BTreeMap;

/// A message whose queues have not all answered.
#[derive(Debug)]
struct Waiting {
    /// How many queues have not.
    queues: usize,
    /// One of them did not keep it.
    refused: bool,
}

/// What is known of the messages of a channel with confirms, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Confirms {
    waiting: BTreeMap<u64, Waiting>,
    /// Those that are decided and not confirmed; whether they are kept.
    decided: BTreeMap<u64, bool>,
}

impl Confirms {
    /// A message goes to so many queues. One that goes to none is confirmed: nothing is left to do for it.
    pub fn publish(&mut self, number: u64, queues: usize) {
        match queues {
            0 => drop(self.decided.insert(number, true)),
            _ => {
                let refused = false;
                self.waiting.insert(number, Waiting { queues, refused });
            }
        }
    }

    /// One of its queues has kept it, or has not.
    pub fn answer(&mut self, number: u64, kept: bool) {
        let Some(waiting) = self.waiting.get_mut(&number) else {
            return;
        };
        waiting.queues -= 1;
        waiting.refused |= !kept;
        if waiting.queues == 0 || planted(Fault::FirstQueueConfirms) {
            let kept = !waiting.refused || planted(Fault::RefusedIsKept);
            self.waiting.remove(&number);
            self.decided.insert(number, kept);
        }
    }

    /// How many messages have no confirm.
    pub fn count(&self) -> usize {
        self.waiting.len() + self.decided.len()
    }

    /// Confirms of all that is decided. Below the first that is not, those of one kind behind each other are one with
    /// `multiple`; above it each has its own.
    pub fn take(&mut self) -> Vec<Method> {
        let first_waiting = match planted(Fault::MultipleOverAll) {
            true => u64::MAX,
            false => self.waiting.keys().next().copied().unwrap_or(u64::MAX),
        };
        let mut confirms = Vec::new();
        let mut decided = std::mem::take(&mut self.decided).into_iter().peekable();
        while let Some((mut number, kept)) = decided.next() {
            let mut multiple = false;
            while let Some((next, _)) =
                decided.next_if(|(next, also)| *also == kept && *next < first_waiting)
            {
                number = next;
                multiple = true;
            }
            confirms.push(confirm(number, kept, multiple));
        }
        confirms
    }
}

fn confirm(delivery_tag: u64, kept: bool, multiple: bool) -> Method {
    match kept {
        true => Method::BasicAck(basic::Ack {
            delivery_tag,
            multiple,
        }),
        false => Method::BasicNack(basic::Nack {
            delivery_tag,
            multiple,
            requeue: false,
        }),
    }
}
