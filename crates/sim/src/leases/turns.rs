//! Turns of keys: in a queue that is ordered by key, nothing of a key is given
//! out while an earlier event of it is anybody's, or waits.

use super::{Given, Key, Known, Leases, MILLISECOND, State};
use crate::handed::Handed;
use crate::trace::Violation;
use std::collections::{BTreeMap, BTreeSet};
use wire::{EventId, MemberId};

/// A key in a queue.
type KeyOf = (String, Vec<u8>);

/// What was given out of each key.
#[derive(Debug, Default)]
pub struct Turns {
    queues: BTreeSet<String>,
    given: BTreeMap<KeyOf, BTreeSet<EventId>>,
}

impl Turns {
    /// For these queues.
    pub fn of(queues: BTreeSet<String>) -> Self {
        Self {
            queues,
            given: BTreeMap::new(),
        }
    }
}

impl Known {
    /// Whether it may be that nobody is to get the event any more.
    fn may_be_done(&self, deliveries_max: u32) -> bool {
        self.may_be_done || (deliveries_max > 0 && self.deliveries >= deliveries_max)
    }
}

impl Leases {
    /// An event is about to be given out: it is its turn.
    pub(super) fn has_turn(
        &mut self,
        given: Given<'_>,
        handed: &Handed,
        is_gone: &impl Fn(MemberId) -> bool,
    ) -> Result<(), Violation> {
        let Given { queue, now, .. } = given;
        let Some(key) = &handed.key else {
            return Ok(());
        };
        if !self.turns.queues.contains(queue) {
            return Ok(());
        }
        let id = handed.id;
        let what = || {
            format!(
                "{queue} gives event {id}, key {:?}",
                String::from_utf8_lossy(key)
            )
        };
        let same = self.turns.given.entry((queue.to_owned(), key.clone()));
        let same = same.or_default();
        let elsewhere = |other: &EventId| {
            (other.partition, other.incarnation) != (id.partition, id.incarnation)
        };
        let is_new = same.insert(id);
        for other in same
            .iter()
            .filter(|other| **other != id && !elsewhere(other))
        {
            if *other > id {
                if is_new {
                    return Violation::because(format!(
                        "{}: {other} of that key was given out before",
                        what()
                    ));
                }
                continue;
            }
            let place: Key = (queue.to_owned(), *other);
            let Some(known) = self.events.get(&place).filter(|known| !known.is_settled) else {
                continue;
            };
            if let State::Held { until, .. } = known.state
                && now < until
                && !is_gone(known.member)
            {
                return Violation::because(format!(
                    "{}: {} has {other} of that key, for {} ms more",
                    what(),
                    known.member,
                    (until - now) / MILLISECOND
                ));
            }
            if !known.may_be_done(self.deliveries_max) {
                return Violation::because(format!(
                    "{}: {other} of that key is not settled: {known:?}",
                    what()
                ));
            }
        }
        Ok(())
    }
}
