//! Connections whose clients have not said who they are.
//!
//! Anybody who reaches a port can open connections and say nothing. Their number is
//! bounded for each listener, so that a flood at one leaves the others alone.
//! Of too many the oldest goes: a client that means well says its Hello at once.

use net::{LinkId, ListenerId};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
pub struct Strangers {
    /// So many may be at one listener.
    max: usize,
    /// Ids count up, so that the first of a set is the oldest.
    by_listener: BTreeMap<ListenerId, BTreeSet<LinkId>>,
    listeners: BTreeMap<LinkId, ListenerId>,
}

impl Strangers {
    /// At most `max` at each listener.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            by_listener: BTreeMap::new(),
            listeners: BTreeMap::new(),
        }
    }

    /// One more has come. Returns the one that has to go for it.
    pub fn came(&mut self, listener: ListenerId, link: LinkId) -> Option<LinkId> {
        self.listeners.insert(link, listener);
        let there = self.by_listener.entry(listener).or_default();
        there.insert(link);
        (there.len() > self.max).then(|| there.first().copied())?
    }

    /// One has said who it is, or is gone.
    pub fn left(&mut self, link: LinkId) {
        if let Some(listener) = self.listeners.remove(&link)
            && let Some(there) = self.by_listener.get_mut(&listener)
        {
            there.remove(&link);
        }
    }

    /// Whether nothing is known of this one.
    pub fn contains(&self, link: LinkId) -> bool {
        !self.listeners.is_empty() && self.listeners.contains_key(&link)
    }

    /// Who goes where descriptors are short: the oldest at the listener that has
    /// most, and not `newest`, if there is another.
    pub fn most_dispensable(&self, newest: Option<LinkId>) -> Option<LinkId> {
        let fullest = self.by_listener.values().max_by_key(|there| there.len())?;
        let mut others = fullest.iter().filter(|link| Some(**link) != newest);
        others.next().or_else(|| fullest.first()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_at_a_full_listener_goes() {
        let mut strangers = Strangers::new(2);
        let (tcp, unix) = (ListenerId(1), ListenerId(2));
        assert_eq!(strangers.came(tcp, LinkId(3)), None);
        assert_eq!(strangers.came(tcp, LinkId(4)), None);
        assert_eq!(strangers.came(unix, LinkId(5)), None);
        assert_eq!(strangers.came(tcp, LinkId(6)), Some(LinkId(3)));
        strangers.left(LinkId(3));
        // One that has said who it is makes space.
        strangers.left(LinkId(4));
        assert!(!strangers.contains(LinkId(4)));
        assert_eq!(strangers.came(tcp, LinkId(7)), None);
        assert_eq!(strangers.came(tcp, LinkId(8)), Some(LinkId(6)));
        assert!(strangers.contains(LinkId(5)));
    }

    #[test]
    fn descriptors_are_freed_where_most_are_held() {
        let mut strangers = Strangers::new(9);
        assert_eq!(strangers.most_dispensable(None), None);
        strangers.came(ListenerId(1), LinkId(3));
        assert_eq!(strangers.most_dispensable(Some(LinkId(3))), Some(LinkId(3)));
        strangers.came(ListenerId(2), LinkId(4));
        strangers.came(ListenerId(2), LinkId(5));
        assert_eq!(strangers.most_dispensable(Some(LinkId(5))), Some(LinkId(4)));
    }
}
