//! Programs that want things done, once each.

use super::judge::Op;
use super::machine::payload_of;
use crate::faults::{Fault, planted};
use crate::quorum::{Refused, RequestId, VoterId};
use crate::random::Random;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Requests that a client has under way at most.
const OPEN_MAX: usize = 8;
/// How long it waits for an answer until it asks another voter.
const PATIENCE_US: u64 = 2_000_000;

/// A client. It tries each request until it is answered or given up.
pub(super) struct Client {
    pub(super) number: u64,
    open: BTreeMap<RequestId, Open>,
    /// Who leads, as far as it knows.
    guess: VoterId,
    random: Random,
    made: u64,
    give_up_us: u64,
    pub(super) given_up: u64,
}

struct Open {
    op: Op,
    payload: Bytes,
    began: u64,
    tries: u64,
}

/// A request on its way to a voter.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) to: VoterId,
    pub(super) request: RequestId,
    pub(super) payload: Bytes,
    /// Which try it is: if none is answered, the next comes later.
    pub(super) tries: u64,
}

/// What a client does about an answer.
pub(super) enum Reaction {
    /// It is done: this op is at this index.
    Done(Op, u64),
    /// It asks again so many microseconds later.
    Again(u64),
    Nothing,
}

impl Client {
    /// `retry_us`: for how long a request may be tried.
    pub(super) fn new(number: u64, random: Random, retry_us: u64) -> Self {
        Self {
            number,
            open: BTreeMap::new(),
            guess: VoterId(1),
            random,
            made: 0,
            // The last try may take a while to arrive, and meet a voter that is paused.
            give_up_us: retry_us - 7_000_000,
            given_up: 0,
        }
    }

    /// Makes another request, if there are not too many.
    pub(super) fn begin(&mut self, now: u64) -> Option<Attempt> {
        if self.open.len() >= OPEN_MAX {
            return None;
        }
        self.made += 1;
        let op = (self.number << 32) | self.made;
        let padding = match self.random.one_in(30) {
            true => self.random.below(200_000),
            false => self.random.below(400),
        };
        let request = self.id();
        let open = Open {
            op,
            payload: payload_of(op, padding as usize),
            began: now,
            tries: 0,
        };
        self.open.insert(request, open);
        self.attempt(request, now, &[])
    }

    fn id(&mut self) -> RequestId {
        let low = u128::from(self.random.number());
        RequestId((u128::from(self.number) << 96) | low)
    }

    /// Tries a request again, unless it has been answered; gives it up at its end.
    pub(super) fn attempt(
        &mut self,
        request: RequestId,
        now: u64,
        voters: &[VoterId],
    ) -> Option<Attempt> {
        let open = self.open.get(&request)?;
        if now > open.began + self.give_up_us {
            self.open.remove(&request);
            self.given_up += 1;
            return None;
        }
        let mut request = request;
        if open.tries > 0 && planted(Fault::RetryNewId) {
            let open = self.open.remove(&request)?;
            request = self.id();
            self.open.insert(request, open);
        }
        if self.random.one_in(4) {
            self.guess = self.random.pick(voters).unwrap_or(self.guess);
        }
        let open = self.open.get_mut(&request)?;
        open.tries += 1;
        Some(Attempt {
            to: self.guess,
            request,
            payload: open.payload.clone(),
            tries: open.tries,
        })
    }

    /// No answer came to a try: another voter is asked.
    pub(super) fn unanswered(
        &mut self,
        request: RequestId,
        tries: u64,
        voters: &[VoterId],
    ) -> bool {
        let waits = self
            .open
            .get(&request)
            .is_some_and(|open| open.tries == tries);
        if waits {
            self.guess = self.random.pick(voters).unwrap_or(self.guess);
        }
        waits
    }

    /// How long it waits for an answer.
    pub(super) fn patience(&mut self) -> u64 {
        self.random.within(PATIENCE_US / 4, PATIENCE_US)
    }

    pub(super) fn answered(
        &mut self,
        from: VoterId,
        request: RequestId,
        result: &Result<u64, Refused>,
        voters: &[VoterId],
    ) -> Reaction {
        let Some(open) = self.open.get(&request) else {
            return Reaction::Nothing;
        };
        match result {
            Ok(index) => {
                let op = open.op;
                self.guess = from;
                self.open.remove(&request);
                Reaction::Done(op, *index)
            }
            Err(Refused::NotLeader { hint }) => {
                let other = self.random.pick(voters).unwrap_or(self.guess);
                self.guess = hint.unwrap_or(other);
                Reaction::Again(self.random.within(5_000, 200_000))
            }
            Err(Refused::Unknown) => Reaction::Again(self.random.within(1_000, 100_000)),
            Err(Refused::Full) => Reaction::Again(self.random.within(100_000, 1_000_000)),
            Err(refused) => unreachable!("no client asks for this: {refused}"),
        }
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    pub(super) fn made(&self) -> u64 {
        self.made
    }
}
