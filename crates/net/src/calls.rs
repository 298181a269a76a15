//! Calls that were asked and not yet answered.

use std::collections::{BTreeMap, BTreeSet};

/// The outstanding calls of one connection: who waits for which id, and
/// until when.
///
/// Times are nanoseconds of a monotonic clock that the caller chooses. Ids
/// count up from 1 and are never used again, so that an answer that comes too
/// late finds nobody.
#[derive(Debug)]
pub struct Calls<C> {
    last_id: u64,
    calls: BTreeMap<u64, Call<C>>,
    deadlines: BTreeSet<(u64, u64)>,
}

#[derive(Debug)]
struct Call<C> {
    context: C,
    deadline: Option<u64>,
}

impl<C> Default for Calls<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> Calls<C> {
    /// No calls.
    pub fn new() -> Self {
        Self {
            last_id: 0,
            calls: BTreeMap::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Takes up a call; returns its id. Without a deadline it is never expired.
    pub fn begin(&mut self, context: C, deadline: Option<u64>) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.deadlines.extend(deadline.map(|at| (at, id)));
        self.calls.insert(id, Call { context, deadline });
        id
    }

    /// Who waits for call `id`.
    pub fn get(&self, id: u64) -> Option<&C> {
        self.calls.get(&id).map(|call| &call.context)
    }

    /// Who waits for call `id`, to be changed.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut C> {
        self.calls.get_mut(&id).map(|call| &mut call.context)
    }

    /// Ends call `id`: its answer came, or nobody wants it any more. `None`
    /// if it has ended before.
    pub fn end(&mut self, id: u64) -> Option<C> {
        let call = self.calls.remove(&id)?;
        if let Some(deadline) = call.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(call.context)
    }

    /// Ends the call whose deadline passed first, if one is not after `now`.
    pub fn expire(&mut self, now: u64) -> Option<(u64, C)> {
        let &(deadline, id) = self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        let context = self.end(id).expect("a deadline belongs to a call");
        Some((id, context))
    }

    /// When the next deadline is.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Ends all calls, in the order in which they were begun: the connection is gone.
    pub fn end_all(&mut self) -> impl Iterator<Item = (u64, C)> + use<C> {
        self.deadlines.clear();
        std::mem::take(&mut self.calls)
            .into_iter()
            .map(|(id, call)| (id, call.context))
    }

    /// All calls, in the order in which they were begun.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &C)> {
        self.calls.iter().map(|(id, call)| (*id, &call.context))
    }

    /// How many calls there are.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_end_once_by_answer_or_by_time() {
        let mut calls = Calls::new();
        let a = calls.begin("a", Some(30));
        let b = calls.begin("b", Some(10));
        let c = calls.begin("c", None);
        assert_eq!(calls.next_deadline(), Some(10));
        assert_eq!(calls.expire(9), None);
        assert_eq!(calls.expire(10), Some((b, "b")));
        assert_eq!(calls.end(b), None);
        assert_eq!(calls.end(a), Some("a"));
        assert_eq!(calls.expire(u64::MAX), None);
        assert_eq!(calls.next_deadline(), None);
        let d = calls.begin("d", Some(1));
        assert_eq!(calls.end_all().collect::<Vec<_>>(), [(c, "c"), (d, "d")]);
        assert!(calls.is_empty() && calls.expire(u64::MAX).is_none());
        assert!(calls.begin("e", None) > d);
    }
}
