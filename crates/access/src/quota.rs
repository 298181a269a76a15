//! How much projects, and the holders of tokens, may use.

use crate::grant::Grants;
use crate::token::TokenId;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What becomes of somebody who is at a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtBound {
    /// Waits, up to a deadline: answers come late, and what waits for too long is to be tried again.
    #[default]
    Wait,
    /// Is told so at once, with a time after which it may go.
    Refuse,
}

impl FromStr for AtBound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "wait" => Ok(Self::Wait),
            "refuse" => Ok(Self::Refuse),
            other => Err(format!(
                "{other:?} is nothing to be done at a bound; wait and refuse are"
            )),
        }
    }
}

/// A bound of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// Bytes of events that come, a second.
    BytesInPerSecond,
    /// Bytes of events that go out, a second.
    BytesOutPerSecond,
    /// Bytes that all partitions of its topics hold.
    StoredBytes,
    /// Connections of its members.
    Connections,
    /// Topics.
    Topics,
    /// Bytes of events that members of its queues have and did not settle.
    UnsettledBytes,
}

impl Bound {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::BytesInPerSecond,
        Self::BytesOutPerSecond,
        Self::StoredBytes,
        Self::Connections,
        Self::Topics,
        Self::UnsettledBytes,
    ];

    /// Those that the holders of a token can be held to: of what is stored it is not known by whom.
    pub const OF_TOKENS: [Self; 3] = [
        Self::BytesInPerSecond,
        Self::BytesOutPerSecond,
        Self::Connections,
    ];

    /// Its key in the file of rules.
    pub fn key(self) -> &'static str {
        match self {
            Self::BytesInPerSecond => "bytes_in_per_second",
            Self::BytesOutPerSecond => "bytes_out_per_second",
            Self::StoredBytes => "stored_bytes",
            Self::Connections => "connections",
            Self::Topics => "topics",
            Self::UnsettledBytes => "unsettled_bytes",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// What the members of a project, or the holders of a token, may use together. What has no bound is not limited.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quota {
    bounds: BTreeMap<Bound, u64>,
    /// What is done at each.
    pub at_bound: AtBound,
}

impl Quota {
    /// With a bound more, or another one in place of it.
    #[must_use]
    pub fn with(mut self, bound: Bound, most: u64) -> Self {
        self.bounds.insert(bound, most);
        self
    }

    /// The most of something, if there is a bound.
    pub fn most(&self, bound: Bound) -> Option<u64> {
        self.bounds.get(&bound).copied()
    }
}

/// The quotas of projects and of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quotas {
    /// Of some projects.
    pub projects: BTreeMap<String, Quota>,
    /// Of each of the other projects.
    pub others: Quota,
    /// Of all who have a token, or one that was made of it.
    pub tokens: BTreeMap<TokenId, Quota>,
}

impl Quotas {
    /// That of a project.
    pub fn of(&self, project: &str) -> &Quota {
        self.projects.get(project).unwrap_or(&self.others)
    }
}

/// What a server's operator has said: who may do what, and how much.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// Who may do what.
    pub grants: Arc<Grants>,
    /// How much.
    pub quotas: Quotas,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_without_a_quota_of_its_own_has_that_of_the_others() {
        let quotas = Quotas {
            projects: BTreeMap::from([("p".to_owned(), Quota::default().with(Bound::Topics, 3))]),
            others: Quota::default().with(Bound::Connections, 7),
            ..Quotas::default()
        };
        assert_eq!(quotas.of("p").most(Bound::Topics), Some(3));
        assert_eq!(quotas.of("p").most(Bound::Connections), None);
        assert_eq!(quotas.of("q").most(Bound::Connections), Some(7));
    }
}
