//! Who votes and who learns: a part of what is applied.

use super::id::{DirectoryId, VoterId, voter};
use super::settings::MEMBERS_MAX;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState};
use std::collections::BTreeMap;
use wire::codec::{Codec, DecodeError, Reader, Write};

/// What a member does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It takes the log, and counts for nothing.
    Learner,
    /// It counts.
    Voter,
}

/// One of the quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its data directory. One that lost it is another member.
    pub directory: DirectoryId,
    /// What it does.
    pub role: Role,
}

/// A change of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A learner comes. Its id must be greater than any before.
    Add {
        /// Its id.
        voter: VoterId,
        /// Its data directory.
        directory: DirectoryId,
    },
    /// A learner that has caught up votes from now on.
    Promote {
        /// Its id.
        voter: VoterId,
    },
    /// A member goes, for good.
    Remove {
        /// Its id.
        voter: VoterId,
    },
}

/// The members, as the applied entries left them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Membership {
    members: BTreeMap<VoterId, Member>,
    /// No id up to this one is given again.
    greatest: u64,
}

impl Membership {
    /// Those who found a cluster: all vote.
    pub(crate) fn founders(founders: &[(VoterId, DirectoryId)]) -> Self {
        let role = Role::Voter;
        let members = founders.iter();
        let members: BTreeMap<_, _> = members
            .map(|&(id, directory)| (id, Member { directory, role }))
            .collect();
        let greatest = members.keys().map(|id| id.0).max().unwrap_or(0);
        Self { members, greatest }
    }

    pub(crate) fn get(&self, id: VoterId) -> Option<Member> {
        self.members.get(&id).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (VoterId, Member)> + '_ {
        self.members.iter().map(|(&id, &member)| (id, member))
    }

    /// Whether the id was a member's once and is none's now.
    pub(crate) fn is_gone(&self, id: VoterId) -> bool {
        id.0 <= self.greatest && !self.members.contains_key(&id)
    }

    pub(crate) fn voters(&self) -> impl Iterator<Item = VoterId> + '_ {
        let voters = self.iter().filter(|(_, one)| one.role == Role::Voter);
        voters.map(|(id, _)| id)
    }

    /// Whether the change can be made; else why not.
    pub(crate) fn check(&self, change: &Change) -> Result<(), &'static str> {
        let role = |id: &VoterId| self.members.get(id).map(|one| one.role);
        match change {
            Change::Add { voter, .. } if voter.0 <= self.greatest => {
                Err("ids are not given twice: choose one greater than any before")
            }
            Change::Add { .. } if self.members.len() >= MEMBERS_MAX => {
                Err("there are 16 members already: remove one before")
            }
            Change::Add { .. } => Ok(()),
            Change::Promote { voter } => match role(voter) {
                Some(Role::Learner) => Ok(()),
                Some(Role::Voter) => Err("it votes already"),
                None => Err("it is no member: add it before"),
            },
            Change::Remove { voter } => match role(voter) {
                None => Err("it is no member"),
                Some(Role::Voter) if self.voters().count() == 1 => {
                    Err("it is the last voter: add another before")
                }
                Some(_) => Ok(()),
            },
        }
    }

    /// Makes a change that [`Membership::check`] allows.
    pub(crate) fn apply(&mut self, change: &Change) {
        match *change {
            Change::Add { voter, directory } => {
                let role = Role::Learner;
                self.members.insert(voter, Member { directory, role });
                self.greatest = voter.0;
            }
            Change::Promote { voter } => {
                if let Some(member) = self.members.get_mut(&voter) {
                    member.role = Role::Voter;
                }
            }
            Change::Remove { voter } => {
                self.members.remove(&voter);
            }
        }
    }

    /// As the library has it.
    pub(crate) fn conf_state(&self) -> ConfState {
        let mut state = ConfState::default();
        state.voters = self.voters().map(|id| id.0).collect();
        let learners = self.iter().filter(|(_, one)| one.role == Role::Learner);
        state.learners = learners.map(|(id, _)| id.0).collect();
        state
    }
}

impl Change {
    /// As the library has it.
    pub(crate) fn conf_change(&self) -> ConfChangeV2 {
        let (kind, voter) = match *self {
            Self::Add { voter, .. } => (ConfChangeType::AddLearnerNode, voter),
            Self::Promote { voter } => (ConfChangeType::AddNode, voter),
            Self::Remove { voter } => (ConfChangeType::RemoveNode, voter),
        };
        let mut single = ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = voter.0;
        let mut change = ConfChangeV2::default();
        change.set_changes(vec![single].into());
        change
    }
}

impl Codec for Change {
    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, voter, directory) = match *self {
            Self::Add { voter, directory } => (1, voter, directory),
            Self::Promote { voter } => (2, voter, DirectoryId(0)),
            Self::Remove { voter } => (3, voter, DirectoryId(0)),
        };
        out.put_u8(kind);
        out.put_u64(voter.0);
        out.put_u128(directory.0);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = from.u8()?;
        let voter = voter(from)?;
        let directory = DirectoryId(from.u128()?);
        match kind {
            1 => Ok(Self::Add { voter, directory }),
            2 => Ok(Self::Promote { voter }),
            3 => Ok(Self::Remove { voter }),
            other => Err(from.refuse("change", other.into())),
        }
    }
}

/// Bytes of a member in a [`Membership`].
const MEMBER_BYTES: usize = 8 + 16 + 1;

impl Codec for Membership {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.greatest);
        out.put_u32(self.members.len() as u32);
        for (id, member) in &self.members {
            out.put_u64(id.0);
            out.put_u128(member.directory.0);
            out.put_u8(match member.role {
                Role::Learner => 1,
                Role::Voter => 2,
            });
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let greatest = from.u64()?;
        let count = from.count(MEMBER_BYTES)?;
        if count > MEMBERS_MAX {
            return Err(from.refuse("members", count as u64));
        }
        let mut members = BTreeMap::new();
        for _ in 0..count {
            let id = voter(from)?;
            let directory = DirectoryId(from.u128()?);
            let role = match from.u8()? {
                1 => Role::Learner,
                2 => Role::Voter,
                other => return Err(from.refuse("role", other.into())),
            };
            let member = Member { directory, role };
            if id.0 > greatest || members.insert(id, member).is_some() {
                return Err(from.refuse("voter", id.0));
            }
        }
        Ok(Self { members, greatest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Membership {
        Membership::founders(&[1, 2, 3].map(|id| (VoterId(id), DirectoryId(id.into()))))
    }

    #[test]
    fn members_come_as_learners_and_no_id_is_given_twice() {
        let mut members = three();
        let add = |id| Change::Add {
            voter: VoterId(id),
            directory: DirectoryId(9),
        };
        assert!(members.check(&add(3)).is_err());
        members.check(&add(4)).unwrap();
        members.apply(&add(4));
        assert_eq!(members.get(VoterId(4)).unwrap().role, Role::Learner);
        assert_eq!(members.voters().count(), 3);
        let promote = Change::Promote { voter: VoterId(4) };
        members.check(&promote).unwrap();
        members.apply(&promote);
        assert!(members.check(&promote).is_err());
        let remove = Change::Remove { voter: VoterId(4) };
        members.check(&remove).unwrap();
        members.apply(&remove);
        assert!(members.is_gone(VoterId(4)));
        assert!(members.check(&remove).is_err() && members.check(&add(4)).is_err());
        assert!(!members.is_gone(VoterId(5)));
        let bytes = members.to_bytes();
        assert_eq!(Membership::from_bytes("members", &bytes).unwrap(), members);
        assert_eq!(members.conf_state().voters, [1, 2, 3]);
    }

    #[test]
    fn the_last_voter_stays() {
        let mut members = three();
        for id in [1, 2] {
            members.apply(&Change::Remove { voter: VoterId(id) });
        }
        assert!(
            members
                .check(&Change::Remove { voter: VoterId(3) })
                .is_err()
        );
    }

    #[test]
    fn a_member_twice_is_no_membership() {
        let mut bytes = three().to_bytes();
        let second = 12 + MEMBER_BYTES;
        bytes[second] = 1;
        assert!(Membership::from_bytes("members", &bytes).is_err());
    }
}
