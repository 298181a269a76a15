//! Connections on which nothing is delivered for now, and why.

use crate::ids::LinkId;
use std::collections::BTreeSet;

/// Why nothing is delivered on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pause {
    /// So much waits to be sent already.
    Queued,
    /// What its client was sent is not paid for.
    Rate,
    /// The credential of its client is over, and another one may come.
    Expired,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Paused(BTreeSet<(LinkId, Pause)>);

impl Paused {
    pub fn begin(&mut self, link: LinkId, why: Pause) {
        self.0.insert((link, why));
    }

    /// Ends a pause. Returns whether the connection takes deliveries again by that.
    pub fn end(&mut self, link: LinkId, why: Pause) -> bool {
        self.0.remove(&(link, why)) && !self.contains(link)
    }

    /// Whether nothing is delivered on a connection.
    pub fn contains(&self, link: LinkId) -> bool {
        let (first, last) = ((link, Pause::Queued), (link, Pause::Expired));
        !self.0.is_empty() && self.0.range(first..=last).next().is_some()
    }

    /// Whether this is a reason for it.
    pub fn is_for(&self, link: LinkId, why: Pause) -> bool {
        self.0.contains(&(link, why))
    }

    pub fn forget(&mut self, link: LinkId) {
        self.0.retain(|(other, _)| *other != link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_go_on_when_no_reason_is_left() {
        let (one, other) = (LinkId(1), LinkId(2));
        let mut paused = Paused::default();
        paused.begin(one, Pause::Queued);
        paused.begin(one, Pause::Expired);
        assert!(paused.contains(one) && !paused.contains(other));
        assert!(!paused.end(one, Pause::Queued));
        assert!(!paused.end(one, Pause::Queued));
        assert!(paused.contains(one));
        assert!(paused.end(one, Pause::Expired));
        paused.begin(one, Pause::Expired);
        paused.forget(one);
        assert!(!paused.contains(one) && !paused.is_for(one, Pause::Expired));
    }
}
