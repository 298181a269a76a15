//! Answers to settlements, given and to be given, and the command that they wait for.

use super::partition::Changes;
use crate::ids::RequestId;
use std::collections::VecDeque;
use wire::message::Lease;
use wire::{MemberId, PartitionIndex};

/// So many answers of a member are remembered, for settlements that are sent
/// again: as many as may be unanswered.
pub(super) const ANSWERS_MAX: usize = 8;

/// A member's last answers, by the sequence number of the settlement.
#[derive(Debug, Default)]
pub(crate) struct Answers(VecDeque<(u64, SettleAnswer)>);

#[derive(Debug)]
pub(super) struct SettleAnswer {
    pub expired: Vec<Lease>,
    /// Who waits for it; `None` if it was given.
    pub caller: Option<RequestId>,
}

impl Answers {
    /// Who waits for an answer.
    pub fn callers(&self) -> impl Iterator<Item = RequestId> + use<> {
        let callers = self.0.iter().filter_map(|(_, answer)| answer.caller);
        callers.collect::<Vec<_>>().into_iter()
    }

    pub(super) fn get_mut(&mut self, sequence: u64) -> Option<&mut SettleAnswer> {
        let found = self.0.iter_mut().find(|(known, _)| *known == sequence);
        found.map(|(_, answer)| answer)
    }

    /// Whether so many are unanswered that another one is too many.
    pub fn is_full(&self) -> bool {
        let unanswered = self.0.iter().filter(|(_, answer)| answer.caller.is_some());
        unanswered.count() >= ANSWERS_MAX
    }

    pub(super) fn remember(&mut self, sequence: u64, answer: SettleAnswer) {
        let oldest = self
            .0
            .iter()
            .position(|(_, answer)| answer.caller.is_none());
        if self.0.len() >= ANSWERS_MAX
            && let Some(oldest) = oldest
        {
            self.0.remove(oldest);
        }
        self.0.push_back((sequence, answer));
    }

    pub(super) fn forget(&mut self, sequence: u64) -> Option<SettleAnswer> {
        let at = self.0.iter().position(|(known, _)| *known == sequence)?;
        self.0.remove(at).map(|(_, answer)| answer)
    }
}

/// A queue's command on its way into the table.
pub(crate) struct UnderWay {
    pub changes: Vec<(PartitionIndex, Changes)>,
    /// Settlements that are answered when it is durable.
    pub settlements: Vec<(MemberId, u64)>,
    /// How many of those that are gathered are in it with a part only: they
    /// are answered with the rest, but refused with this one.
    pub begun: usize,
}
