//! What must hold at every step. The judge asks no voter what it believes of itself: it sees what
//! leaves voters, and what their disks did.

use super::disk_witness::{DiskWitness, Log};
use super::trace::Violation;
use crate::quorum::{Body, Envelope, VoterId};
use raft::eraftpb::MessageType;
use std::collections::{BTreeMap, BTreeSet};

/// One thing that a client wants done, once.
pub(super) type Op = u64;

type Judged = Result<(), Violation>;

fn broken<T>(text: String) -> Result<T, Violation> {
    Err(Violation(text))
}

/// What was decided, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Decided {
    term: u64,
    op: Op,
}

/// What must hold of one cluster.
#[derive(Default)]
pub(super) struct Judge {
    leaders: BTreeMap<u64, VoterId>,
    /// All that was applied by anybody, by index.
    decided: BTreeMap<u64, Decided>,
    index_of: BTreeMap<Op, u64>,
    voters: BTreeMap<VoterId, Seen>,
    /// The sets of voters that there were, by the least index behind which each was seen.
    configurations: BTreeMap<u64, BTreeSet<VoterId>>,
    acknowledged: u64,
}

/// What was seen of one voter, over all its lives.
#[derive(Default)]
struct Seen {
    /// The greatest term that a message of it was of.
    term: u64,
    votes: BTreeMap<u64, u64>,
    /// The last index that it applied in this life.
    applied: u64,
    disk: DiskWitness,
    /// What was on a directory that it lost: it counted until then, and its answers may be on the
    /// way still.
    lost: Option<Log>,
}

impl Judge {
    fn seen(&mut self, voter: VoterId) -> &mut Seen {
        self.voters.entry(voter).or_default()
    }

    pub(super) fn disk(&mut self, voter: VoterId) -> &mut DiskWitness {
        &mut self.seen(voter).disk
    }

    /// A voter starts anew with an empty directory: nothing is known of it any more but that it
    /// must not take part under this id.
    pub(super) fn wiped(&mut self, voter: VoterId) {
        let lost = self.disk(voter).durable().cloned();
        *self.seen(voter) = Seen {
            lost,
            ..Seen::default()
        };
    }

    /// A voter was opened.
    pub(super) fn opened(&mut self, voter: VoterId, recovered: &crate::Recovered) -> Judged {
        let log = Log::of(recovered);
        let seen = self.seen(voter);
        seen.applied = 0;
        if let Err(why) = seen.disk.recovered(recovered) {
            return broken(format!("{voter}: {why}"));
        }
        if log.term < seen.term {
            let (before, after) = (seen.term, log.term);
            return broken(format!(
                "{voter} was in term {before} and comes back in {after}"
            ));
        }
        match seen.votes.get(&log.term) {
            Some(&vote) if vote != log.vote => broken(format!(
                "{voter} voted for {vote} in term {} and comes back with a vote for {}",
                log.term, log.vote
            )),
            _ => Ok(()),
        }
    }

    /// A voter says that it leads.
    pub(super) fn leads(&mut self, voter: VoterId, term: u64) -> Judged {
        match *self.leaders.entry(term).or_insert(voter) {
            first if first == voter => Ok(()),
            first => broken(format!("term {term} has two leaders: {first} and {voter}")),
        }
    }

    /// Behind the entry of this index these are the voters.
    pub(super) fn configured(&mut self, index: u64, voters: impl Iterator<Item = VoterId> + Clone) {
        let before = self.configurations.range(..=index).next_back();
        if before.is_some_and(|(_, set)| set.iter().copied().eq(voters.clone())) {
            return;
        }
        let set: BTreeSet<_> = voters.collect();
        if set.is_empty() {
            return;
        }
        let behind = self.configurations.range(index..).next();
        if let Some((&later, same)) = behind
            && *same == set
        {
            self.configurations.remove(&later);
        }
        self.configurations.insert(index, set);
    }

    /// A message left a voter.
    pub(super) fn sent(&mut self, bytes: &[u8]) -> Judged {
        let envelope = match Envelope::from_bytes(bytes) {
            Ok(envelope) => envelope,
            Err(error) => return broken(format!("a message that nobody can read: {error}")),
        };
        let Body::Raft(message) = envelope.body else {
            return Ok(());
        };
        let voter = envelope.from.voter;
        let kind = message.get_msg_type();
        let seen = self.seen(voter);
        if matches!(
            kind,
            MessageType::MsgRequestPreVote | MessageType::MsgRequestPreVoteResponse
        ) {
            return Ok(());
        }
        if message.term < seen.term {
            let (before, after) = (seen.term, message.term);
            return broken(format!("{voter} was in term {before} and says {after}"));
        }
        seen.term = message.term;
        let vote = match kind {
            MessageType::MsgRequestVote => voter.0,
            MessageType::MsgRequestVoteResponse if !message.reject => message.to,
            MessageType::MsgAppendResponse if !message.reject => {
                return self.said_to_have(voter, message.term, message.index);
            }
            _ => return Ok(()),
        };
        let durable = seen.disk.durable().cloned().unwrap_or_default();
        if (durable.term, durable.vote) != (message.term, vote) && durable.term <= message.term {
            return broken(format!(
                "{voter} votes for {vote} in term {}, and its disk has a vote for {} in {}",
                message.term, durable.vote, durable.term
            ));
        }
        match *seen.votes.entry(message.term).or_insert(vote) {
            first if first == vote => Ok(()),
            first => broken(format!(
                "{voter} voted for {first} and {vote} in term {}",
                message.term
            )),
        }
    }

    /// A follower says that it has all entries up to an index: its disk must have as many. What it
    /// says late, when its disk has a later term already, may have been replaced with the same sync:
    /// no leader of that term had those entries, so they count for nobody.
    fn said_to_have(&mut self, voter: VoterId, term: u64, index: u64) -> Judged {
        let durable = self.seen(voter).disk.durable();
        let end = durable.map_or(0, |log| {
            let last = log.terms.last_key_value();
            last.map_or(log.base, |(last, _)| *last)
        });
        let late = durable.is_some_and(|log| log.term > term);
        match late || index <= end {
            true => Ok(()),
            false => broken(format!(
                "{voter} says that it has entries up to {index}, its disk has them up to {end}"
            )),
        }
    }

    /// A voter applied an entry.
    pub(super) fn applied(&mut self, voter: VoterId, index: u64, term: u64, op: Op) -> Judged {
        let decided = Decided { term, op };
        let before = self.seen(voter).applied;
        if index <= before {
            return broken(format!("{voter} applies {index} behind {before}"));
        }
        let between = self.decided.range(before + 1..index).next();
        if let Some((skipped, _)) = between {
            return broken(format!("{voter} applies {index} and has skipped {skipped}"));
        }
        self.seen(voter).applied = index;
        match self.decided.get(&index) {
            Some(first) if *first == decided => return Ok(()),
            Some(first) => {
                return broken(format!(
                    "{voter} applies {decided:?} at {index}, others {first:?}"
                ));
            }
            None => {}
        }
        if let Some((last, _)) = self.decided.last_key_value()
            && *last > index
        {
            return broken(format!("{voter} applies {index}, which others have not"));
        }
        if let Some(first) = self.index_of.insert(op, index) {
            return broken(format!(
                "op {op} is applied twice: at {first} and at {index}"
            ));
        }
        self.decided.insert(index, decided);
        self.is_on_a_quorum(voter, index, term)
    }

    /// An entry that is applied first must be durable on a majority of voters.
    fn is_on_a_quorum(&self, voter: VoterId, index: u64, term: u64) -> Judged {
        let has = |id: &VoterId| {
            let seen = self.voters.get(id);
            let logs = seen
                .into_iter()
                .flat_map(|seen| seen.disk.durable().into_iter().chain(&seen.lost));
            logs.into_iter().any(|log| log.has(index, term))
        };
        // Which set counted is not seen: that of the index, or one that was just before or behind it.
        let before = self.configurations.range(..=index).rev().take(2);
        let behind = self.configurations.range(index + 1..).take(2);
        let mut held = Vec::new();
        for (_, set) in before.chain(behind) {
            let count = set.iter().filter(|id| has(id)).count();
            if count * 2 > set.len() {
                return Ok(());
            }
            held.push((count, set.len()));
        }
        broken(format!(
            "{voter} applies {index} of term {term}, which is durable on no majority: {held:?}"
        ))
    }

    /// A voter says that it leads and has applied all of earlier terms.
    pub(super) fn is_ready(&mut self, voter: VoterId, term: u64) -> Judged {
        let applied = self.seen(voter).applied;
        let mut behind = self.decided.range(applied + 1..);
        match behind.find(|(_, one)| one.term < term) {
            Some((index, one)) => broken(format!(
                "{voter} is ready to lead in term {term} with all up to {applied}, and {index} of \
                 term {} was decided",
                one.term
            )),
            None => Ok(()),
        }
    }

    /// A voter's state machine was replaced by one that has applied this.
    pub(super) fn restored(&mut self, voter: VoterId, index: u64, list: &[(u64, Op)]) -> Judged {
        let before = self.seen(voter).applied;
        if index < before {
            return broken(format!("{voter} goes back from {before} to {index}"));
        }
        let decided = self.decided.range(..=index).map(|(at, one)| (*at, one.op));
        if !decided.eq(list.iter().copied()) {
            return broken(format!(
                "{voter} is restored at {index} with {} entries that are not those decided: {} \
                 up to there",
                list.len(),
                self.decided.range(..=index).count()
            ));
        }
        self.seen(voter).applied = index;
        Ok(())
    }

    /// A client was told that its op is applied at this index.
    pub(super) fn acknowledged(&mut self, op: Op, index: u64) -> Judged {
        self.acknowledged += 1;
        match self.index_of.get(&op) {
            Some(first) if *first == index => Ok(()),
            Some(first) => broken(format!(
                "op {op} is said to be at {index} and is at {first}"
            )),
            None => broken(format!(
                "op {op} is acknowledged at {index} and not applied"
            )),
        }
    }

    /// How many were applied and acknowledged.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.decided.len() as u64, self.acknowledged)
    }

    /// The greatest index at which anything was applied.
    pub(super) fn end(&self) -> u64 {
        self.decided.last_key_value().map_or(0, |(index, _)| *index)
    }

    /// The last index that a voter applied.
    pub(super) fn applied_by(&self, voter: VoterId) -> u64 {
        self.voters.get(&voter).map_or(0, |seen| seen.applied)
    }
}
