//! The ranks of the run that is open: who is there, away, or has closed.

use crate::ids::RequestId;
use std::collections::BTreeSet;
use std::time::Duration;
use wire::{ProducerEpoch, Rank};

/// Where a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It has not opened the run yet.
    Never,
    /// It attends by this request.
    Present(RequestId),
    /// Since then nothing is known of it.
    Away(Duration),
}

/// A rank of the run's writers.
#[derive(Debug, Clone, Copy)]
struct WriterRank {
    presence: Presence,
    /// Of the producer by which it opened the run last; 0 is not known.
    epoch: ProducerEpoch,
    /// How many steps it has written, once it has closed.
    closed: Option<u64>,
}

/// All ranks of the run's writers, and what is often asked of them together.
#[derive(Debug)]
pub(super) struct WriterRanks {
    all: Vec<WriterRank>,
    /// Of those that have not closed, how many attend, ...
    present: usize,
    /// ... and since when the others that were there are away.
    away: BTreeSet<(Duration, u32)>,
    closed: usize,
}

impl WriterRanks {
    pub fn new(count: u32) -> Self {
        let rank = WriterRank {
            presence: Presence::Never,
            epoch: ProducerEpoch(0),
            closed: None,
        };
        Self {
            all: vec![rank; count as usize],
            present: 0,
            away: BTreeSet::new(),
            closed: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Lets a rank change, and counts it anew.
    fn change(&mut self, rank: Rank, change: impl FnOnce(&mut WriterRank)) {
        let Some(state) = self.all.get_mut(rank.0 as usize) else {
            return;
        };
        let before = *state;
        change(state);
        let after = *state;
        for (state, is_added) in [(before, false), (after, true)] {
            match (state.closed, state.presence) {
                (Some(_), _) if is_added => self.closed += 1,
                (Some(_), _) => self.closed -= 1,
                (None, Presence::Present(_)) if is_added => self.present += 1,
                (None, Presence::Present(_)) => self.present -= 1,
                (None, Presence::Away(since)) if is_added => {
                    self.away.insert((since, rank.0));
                }
                (None, Presence::Away(since)) => {
                    self.away.remove(&(since, rank.0));
                }
                (None, Presence::Never) => {}
            }
        }
    }

    pub fn set_presence(&mut self, rank: Rank, presence: Presence) {
        self.change(rank, |state| state.presence = presence);
    }

    pub fn set_epoch(&mut self, rank: Rank, epoch: ProducerEpoch) {
        self.change(rank, |state| state.epoch = epoch);
    }

    pub fn set_closed(&mut self, rank: Rank, steps: Option<u64>) {
        self.change(rank, |state| state.closed = steps);
    }

    /// Where a rank is, and by which life of its producer; `None` if there is no such rank.
    pub fn get(&self, rank: Rank) -> Option<(Presence, ProducerEpoch)> {
        let state = self.all.get(rank.0 as usize)?;
        Some((state.presence, state.epoch))
    }

    pub fn has_closed(&self, rank: Rank) -> bool {
        let state = self.all.get(rank.0 as usize);
        state.is_some_and(|state| state.closed.is_some())
    }

    /// Whether every rank has closed.
    pub fn are_closed(&self) -> bool {
        self.closed == self.all.len()
    }

    /// Ranks that were there and have not closed, longest away first.
    pub fn away(&self) -> impl Iterator<Item = (Duration, Rank)> {
        self.away.iter().map(|(since, rank)| (*since, Rank(*rank)))
    }

    /// Whether none is there, or was and may come back: others never came, or all have closed.
    pub fn are_left(&self) -> bool {
        self.present == 0 && self.away.is_empty()
    }

    /// Whether nobody is there who writes: another program may take their place.
    pub fn are_deserted(&self) -> bool {
        self.callers().next().is_none()
    }

    /// Those that have closed, and how many steps each has written.
    pub fn closed(&self) -> impl Iterator<Item = (u64, Rank)> {
        let ranks = self.all.iter().zip(0..);
        ranks.filter_map(|(state, rank)| Some((state.closed?, Rank(rank))))
    }

    /// Those that have not, and where they are.
    pub fn open(&self) -> impl Iterator<Item = (Rank, Presence)> {
        let ranks = self.all.iter().zip(0..);
        let open = ranks.filter(|(state, _)| state.closed.is_none());
        open.map(|(state, rank)| (Rank(rank), state.presence))
    }

    /// The rank that attends by this request.
    pub fn attended_by(&self, caller: RequestId) -> Option<Rank> {
        let attends = |state: &WriterRank| state.presence == Presence::Present(caller);
        let rank = self.all.iter().position(attends)?;
        Some(Rank(rank as u32))
    }

    /// The requests by which ranks attend.
    pub fn callers(&self) -> impl Iterator<Item = RequestId> {
        self.all.iter().filter_map(|state| match state.presence {
            Presence::Present(caller) => Some(caller),
            _ => None,
        })
    }
}
