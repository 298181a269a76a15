//! The operator: changes the members, one at a time.

use crate::quorum::{Change, DirectoryId, Refused, RequestId, VoterId};
use crate::random::Random;
use std::collections::VecDeque;

/// The operator, and what is still to be done.
pub(super) struct Admin {
    steps: VecDeque<Change>,
    request: RequestId,
    guess: VoterId,
    random: Random,
    pub(super) done: u64,
}

/// The client number of the operator's requests.
pub(super) const ADMIN: u64 = 999;

impl Admin {
    pub(super) fn new(random: Random) -> Self {
        let mut admin = Self {
            steps: VecDeque::new(),
            request: RequestId(0),
            guess: VoterId(1),
            random,
            done: 0,
        };
        admin.next_id();
        admin
    }

    fn next_id(&mut self) {
        let low = u128::from(self.random.number());
        self.request = RequestId((u128::from(ADMIN) << 96) | low);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.steps.is_empty()
    }

    /// A new voter comes.
    pub(super) fn add(&mut self, voter: VoterId, directory: DirectoryId) {
        self.steps.push_back(Change::Add { voter, directory });
        self.steps.push_back(Change::Promote { voter });
    }

    pub(super) fn remove(&mut self, voter: VoterId) {
        self.steps.push_back(Change::Remove { voter });
    }

    /// What is asked now, and of whom.
    pub(super) fn attempt(&mut self, voters: &[VoterId]) -> Option<(VoterId, RequestId, Change)> {
        let change = *self.steps.front()?;
        if self.random.one_in(3) {
            self.guess = self.random.pick(voters).unwrap_or(self.guess);
        }
        Some((self.guess, self.request, change))
    }

    /// Whether the voter that leads is to go: then another is to lead before.
    pub(super) fn answered(
        &mut self,
        from: VoterId,
        request: RequestId,
        result: &Result<u64, Refused>,
    ) -> bool {
        if request != self.request {
            return false;
        }
        match result {
            Ok(_) => {
                self.guess = from;
                self.finish();
            }
            Err(Refused::NotLeader { hint }) => self.guess = hint.unwrap_or(self.guess),
            Err(Refused::Change(why)) => {
                self.guess = from;
                if why.starts_with("it leads") {
                    return true;
                }
                let over = [
                    "it votes already",
                    "ids are not",
                    "it is no member",
                    "it is the last",
                ];
                if over.iter().any(|one| why.starts_with(one)) {
                    self.finish();
                }
            }
            Err(_) => {}
        }
        false
    }

    fn finish(&mut self) {
        self.done += 1;
        self.steps.pop_front();
        self.next_id();
    }
}
