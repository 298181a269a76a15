//! The network: each pair of voters has a link each way.

use super::plan::Plan;
use crate::quorum::VoterId;
use crate::random::Random;
use std::collections::BTreeSet;

/// Which links are cut, and what becomes of a message on the others.
#[derive(Debug)]
pub(super) struct Links {
    cut: BTreeSet<(VoterId, VoterId)>,
    random: Random,
    usual_us: (u64, u64),
    late: u64,
    lost: u64,
    doubled: u64,
}

impl Links {
    pub(super) fn new(plan: &Plan, random: Random) -> Self {
        Self {
            cut: BTreeSet::new(),
            random,
            usual_us: plan.link_us,
            late: plan.late,
            lost: plan.lost,
            doubled: plan.doubled,
        }
    }

    /// After which times a message arrives: never, once, or twice.
    pub(super) fn carry(&mut self, from: VoterId, to: VoterId) -> Vec<u64> {
        if self.cut.contains(&(from, to)) || self.random.one_in(self.lost) {
            return Vec::new();
        }
        let times = 1 + usize::from(self.random.one_in(self.doubled));
        (0..times).map(|_| self.delay()).collect()
    }

    /// How long a message takes. Each for itself: a later one may come earlier.
    pub(super) fn delay(&mut self) -> u64 {
        let (least, greatest) = self.usual_us;
        match self.random.one_in(self.late) {
            true => self.random.within(greatest, 1_500_000),
            false => self.random.within(least, greatest),
        }
    }

    pub(super) fn cut(&mut self, from: VoterId, to: VoterId) {
        self.cut.insert((from, to));
    }

    /// Both ways, between those in the group and those that are not.
    pub(super) fn split(&mut self, all: &[VoterId], group: &[VoterId]) {
        for &one in all {
            for &other in all {
                if group.contains(&one) != group.contains(&other) {
                    self.cut(one, other);
                }
            }
        }
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
    }

    /// Nothing is late, lost or doubled any more.
    pub(super) fn calm(&mut self) {
        self.heal();
        (self.late, self.lost, self.doubled) = (0, 0, 0);
    }
}
