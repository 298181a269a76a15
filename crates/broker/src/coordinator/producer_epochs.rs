//! Producers whose epochs are on their way into the table, and those that have no name there.

use std::collections::{BTreeMap, VecDeque};
use wire::record::ProducerRecord;
use wire::{ProducerId, SessionId, TopicId};

/// Named producers whose new life is on its way into the table.
pub(crate) type EpochProposals = BTreeMap<(TopicId, String), (ProducerRecord, usize)>;

/// So many producers without a name are known by their sessions; of more, the latest.
const NAMELESS_MAX: usize = 65_536;

/// Which session each producer without a name is of, since the server was started.
#[derive(Debug, Default)]
pub(crate) struct NamelessProducers {
    sessions: BTreeMap<ProducerId, SessionId>,
    /// In the order in which they were first seen.
    order: VecDeque<ProducerId>,
}

impl NamelessProducers {
    /// Whether a producer is known as another session's.
    pub fn is_of_another(&self, producer: ProducerId, session: SessionId) -> bool {
        let known = self.sessions.get(&producer);
        known.is_some_and(|known| *known != session)
    }

    pub fn note(&mut self, producer: ProducerId, session: SessionId) {
        if self.sessions.insert(producer, session).is_some() {
            return;
        }
        self.order.push_back(producer);
        if self.order.len() > NAMELESS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.sessions.remove(&oldest);
        }
    }
}
