//! Bytes a second that projects and the holders of tokens are held to.
//!
//! A client that moves bytes pays for them by time: each of those that are bound has a time at which all that
//! has passed is paid for. Answers wait until then, and nothing is delivered before. As a client has a
//! bounded number of bytes unanswered, that holds it to the rate, and its requests are done in order.

use crate::ids::LinkId;
use crate::refusal::Refused;
use access::{AtBound, TokenId};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use wire::{ErrorCode, ErrorReply};

/// For so long a request waits at most, where it is to wait at its bound.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// What may pass at once, in time, where it is refused at its bound.
const BURST: Duration = Duration::from_secs(1);
/// The least that a connection may have unanswered: a batch or so.
const WINDOW_BYTES_MIN: u64 = 64 << 10;
/// For so many it is known what they owe. Who has a token makes others from it, with rates of
/// their own: beyond this many, each connection pays for itself.
const DEBTORS_MAX: usize = 1 << 14;
/// Bytes of events that wait in answers of one connection; beyond, it is to ask again.
const UNPAID_BYTES_MAX: u64 = 16 << 20;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    /// From clients.
    In,
    /// To clients.
    Out,
}

/// Who has a quota.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Whose {
    /// The members of a project together.
    Project(String),
    /// All who have a token with this block.
    Token(TokenId),
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project(name) if name.is_empty() => {
                f.write_str("the quota of the default project")
            }
            Self::Project(name) => write!(f, "the quota of project {name}"),
            Self::Token(id) => write!(f, "the quota of token {id}"),
        }
    }
}

/// Who is held to a rate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Payer {
    /// Who has a quota.
    Quota(Whose),
    /// All who have a token with this block, by what it says itself.
    Token(TokenId),
}

/// What somebody is held to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rate {
    pub payer: Payer,
    pub direction: Direction,
    pub bytes_per_second: u64,
    pub at_bound: AtBound,
}

impl Rate {
    /// Why something does not pass, and when it may be tried again.
    pub fn refused(&self, wait: Duration) -> Refused {
        let rate = self.bytes_per_second;
        let way = match self.direction {
            Direction::In => "in",
            Direction::Out => "out",
        };
        let (bound, remedy) = match &self.payer {
            Payer::Quota(whose) => (
                format!("{whose}: bytes_{way}_per_second is {rate}"),
                "or have the operator raise it (access/rules.json)",
            ),
            Payer::Token(id) => (
                format!("token {id} is for {rate} bytes a second each way"),
                "or use a token with a higher rate",
            ),
        };
        let wait = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX).max(1);
        ErrorReply {
            retryable: self.at_bound == AtBound::Wait,
            retry_after_ms: wait,
            ..ErrorReply::fatal(
                ErrorCode::LimitExceeded,
                format!("{bound}, and that is used up: go on in {wait} ms, {remedy}"),
            )
        }
    }

    /// How long it takes to pay for bytes.
    fn time_of(&self, bytes: u64) -> Duration {
        let rate = u128::from(self.bytes_per_second.max(1));
        let ns = u128::from(bytes) * 1_000_000_000 / rate;
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// How much may be owed when something more comes.
    fn debt_max(&self) -> Duration {
        match self.at_bound {
            AtBound::Wait => WAIT_MAX,
            AtBound::Refuse => BURST,
        }
    }
}

/// What a request moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charge {
    pub direction: Direction,
    pub bytes: u64,
    /// When that is paid for, if later than now.
    pub paid_at: Option<Duration>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    /// When all that has passed is paid for.
    paid_at: BTreeMap<(Payer, Direction), Duration>,
    /// What each connection is held to; those that are not here to nothing.
    links: BTreeMap<LinkId, Vec<Rate>>,
}

impl Paces {
    /// Holds a connection to these, in place of those before.
    pub fn bind(&mut self, link: LinkId, rates: Vec<Rate>, now: Duration) {
        // A payer that owes nothing is as one that was never there.
        self.paid_at.retain(|_, at| *at > now);
        match rates.is_empty() {
            true => self.links.remove(&link),
            false => self.links.insert(link, rates),
        };
    }

    pub fn forget(&mut self, link: LinkId) {
        self.links.remove(&link);
    }

    /// Whether a connection is held to anything.
    pub fn binds(&self, link: LinkId) -> bool {
        self.links.contains_key(&link)
    }

    /// How many bytes a connection may have unanswered, so that what it sends at once is paid for in
    /// a second.
    pub fn window(&self, link: LinkId) -> u64 {
        let rates = self.rates(link, Direction::In);
        let rates = rates.filter(|rate| rate.at_bound == AtBound::Wait);
        let least = rates.map(|rate| rate.bytes_per_second).min();
        least.map_or(u64::MAX, |rate| rate.max(WINDOW_BYTES_MIN))
    }

    /// How many bytes a connection is delivered at once.
    pub fn portion(&self, link: LinkId) -> u64 {
        let rates = self.rates(link, Direction::Out);
        let least = rates.map(|rate| rate.bytes_per_second).min();
        least.map_or(u64::MAX, |rate| rate.max(WINDOW_BYTES_MIN))
    }

    /// Bytes pass. Returns when they are paid for, if that is later than now.
    pub fn charge(
        &mut self,
        link: LinkId,
        direction: Direction,
        bytes: u64,
        now: Duration,
    ) -> Option<Duration> {
        if bytes == 0 {
            return None;
        }
        let rates = self.links.get(&link)?;
        let rates = rates.iter().filter(|rate| rate.direction == direction);
        let mut latest = now;
        for rate in rates {
            let key = (rate.payer.clone(), direction);
            let owed_until = self.paid_at.get(&key).copied();
            let paid_at = owed_until.unwrap_or_default().max(now);
            let paid_at = paid_at.saturating_add(rate.time_of(bytes));
            if owed_until.is_some() || self.paid_at.len() < DEBTORS_MAX {
                self.paid_at.insert(key, paid_at);
            }
            // Who is to be refused at its bound does not wait before.
            if rate.at_bound == AtBound::Wait {
                latest = latest.max(paid_at);
            }
        }
        (latest > now).then_some(latest)
    }

    /// What was charged was not moved: those that paid for it have it back.
    pub fn give_back(&mut self, link: LinkId, direction: Direction, bytes: u64) {
        let rates = self.links.get(&link).into_iter().flatten();
        for rate in rates.filter(|rate| rate.direction == direction) {
            let key = (rate.payer.clone(), direction);
            if let Some(paid_at) = self.paid_at.get_mut(&key) {
                *paid_at = paid_at.saturating_sub(rate.time_of(bytes));
            }
        }
    }

    /// How many bytes a connection is delivered in one turn, before it is paused for them.
    pub fn turn(&self, link: LinkId) -> u64 {
        let rates = self.rates(link, Direction::Out);
        let rates = rates.filter(|rate| rate.at_bound == AtBound::Wait);
        let least = rates.map(|rate| rate.bytes_per_second).min();
        least.map_or(u64::MAX, |rate| rate.max(WINDOW_BYTES_MIN))
    }

    /// When what a connection's payers have moved is paid for, if that is later than now.
    pub fn paid_at(&self, link: LinkId, direction: Direction, now: Duration) -> Option<Duration> {
        let rates = self.rates(link, direction);
        let paid_at = rates.filter_map(|rate| self.paid_at_of(rate)).max();
        paid_at.filter(|at| *at > now)
    }

    /// The rate that has nothing more pass now, and for how long it will not. So many bytes wait to be
    /// sent already: with too many, what is owed counts from the first moment.
    pub fn over(
        &self,
        link: LinkId,
        direction: Direction,
        unpaid_bytes: u64,
        now: Duration,
    ) -> Option<(&Rate, Duration)> {
        self.rates(link, direction).find_map(|rate| {
            let debt = self.paid_at_of(rate)?.saturating_sub(now);
            let debt_max = match unpaid_bytes < UNPAID_BYTES_MAX {
                true => rate.debt_max(),
                false => Duration::ZERO,
            };
            let excess = debt.checked_sub(debt_max)?;
            (!excess.is_zero()).then_some((rate, excess))
        })
    }

    fn rates(&self, link: LinkId, direction: Direction) -> impl Iterator<Item = &Rate> {
        let rates = self.links.get(&link).into_iter().flatten();
        rates.filter(move |rate| rate.direction == direction)
    }

    fn paid_at_of(&self, rate: &Rate) -> Option<Duration> {
        let key = (rate.payer.clone(), rate.direction);
        self.paid_at.get(&key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkId = LinkId(1);

    fn rate(bytes_per_second: u64, at_bound: AtBound) -> Rate {
        Rate {
            payer: Payer::Quota(Whose::Project("p".to_owned())),
            direction: Direction::In,
            bytes_per_second,
            at_bound,
        }
    }

    #[test]
    fn what_passes_is_paid_for_at_the_rate_over_all_connections() {
        let mut paces = Paces::default();
        let second = Duration::from_secs(1);
        assert_eq!(paces.charge(LINK, Direction::In, 1 << 40, second), None);
        for link in [LINK, LinkId(2)] {
            paces.bind(link, vec![rate(1000, AtBound::Wait)], second);
        }
        assert_eq!(
            paces.charge(LINK, Direction::In, 500, second),
            Some(second * 3 / 2)
        );
        assert_eq!(
            paces.charge(LinkId(2), Direction::In, 500, second),
            Some(second * 2)
        );
        assert_eq!(paces.charge(LINK, Direction::Out, 500, second), None);
        assert_eq!(paces.paid_at(LINK, Direction::In, second), Some(second * 2));
        assert_eq!(paces.paid_at(LINK, Direction::In, second * 2), None);
        // A connection that comes again owes what was owed.
        paces.forget(LINK);
        paces.bind(LINK, vec![rate(1000, AtBound::Wait)], second);
        assert_eq!(paces.paid_at(LINK, Direction::In, second), Some(second * 2));
        assert_eq!(paces.window(LINK), WINDOW_BYTES_MIN);
        assert_eq!(paces.window(LinkId(3)), u64::MAX);
    }

    #[test]
    fn nothing_passes_when_too_much_is_owed() {
        for (at_bound, most) in [(AtBound::Wait, WAIT_MAX), (AtBound::Refuse, BURST)] {
            let mut paces = Paces::default();
            paces.bind(LINK, vec![rate(1000, at_bound)], Duration::ZERO);
            let bytes = 1000 * most.as_secs();
            paces.charge(LINK, Direction::In, bytes, Duration::ZERO);
            assert!(paces.over(LINK, Direction::In, 0, Duration::ZERO).is_none());
            paces.charge(LINK, Direction::In, 500, Duration::ZERO);
            let (_, wait) = paces.over(LINK, Direction::In, 0, Duration::ZERO).unwrap();
            assert_eq!(wait, Duration::from_millis(500));
            assert!(paces.over(LINK, Direction::In, 0, wait).is_none());
        }
    }

    #[test]
    fn the_debts_that_are_remembered_have_a_bound() {
        let mut paces = Paces::default();
        let link = |index: usize| LinkId(index as u64);
        for index in 0..DEBTORS_MAX + 10 {
            let payer = Payer::Token(TokenId(index as u128));
            let slow = Rate {
                payer,
                ..rate(1, AtBound::Wait)
            };
            paces.bind(link(index), vec![slow], Duration::ZERO);
            // Who is not remembered waits for what it moves all the same.
            let paid_at = paces.charge(link(index), Direction::In, 60, Duration::ZERO);
            assert_eq!(paid_at, Some(Duration::from_secs(60)));
        }
        assert_eq!(paces.paid_at.len(), DEBTORS_MAX);
    }
}
