//! Leases: joined into ranges, and looked up by single events.

use wire::message::Lease;
use wire::{EventId, LeaseId};

/// Events under leases. A look-up takes no longer with many of them: a request
/// of settlements may have as many as are prefetched, and each is looked up.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeaseSet(Vec<Lease>);

impl FromIterator<Lease> for LeaseSet {
    fn from_iter<T: IntoIterator<Item = Lease>>(leases: T) -> Self {
        let mut leases: Vec<Lease> = leases.into_iter().collect();
        let place = |one: &Lease| (one.lease, one.partition, one.incarnation, one.first);
        leases.sort_unstable_by_key(place);
        leases.dedup_by(|next, last| {
            let joins = (last.lease, last.partition, last.incarnation)
                == (next.lease, next.partition, next.incarnation)
                && next.first <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        Self(leases)
    }
}

impl LeaseSet {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an event under this lease is among them.
    pub fn contains(&self, lease: LeaseId, id: EventId) -> bool {
        let wanted = (lease, id.partition, id.incarnation, id.offset);
        let place = |one: &Lease| (one.lease, one.partition, one.incarnation, one.first);
        let behind = self.0.partition_point(|one| place(one) <= wanted);
        let found = behind.checked_sub(1).map(|at| &self.0[at]);
        found.is_some_and(|one| {
            (one.lease, one.partition, one.incarnation) == (lease, id.partition, id.incarnation)
                && id.offset < one.end
        })
    }
}

/// Adds a lease to others; to the last one, if it goes on where that ends.
pub(super) fn push_joined(leases: &mut Vec<Lease>, lease: Lease) {
    match leases.last_mut() {
        Some(last) if is_next(last, &lease) => last.end = lease.end,
        _ => leases.push(lease),
    }
}

/// Whether a lease goes on where another ends.
pub(super) fn is_next(last: &Lease, next: &Lease) -> bool {
    last.end == next.first
        && Lease {
            first: last.first,
            end: last.end,
            ..*next
        } == *last
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Incarnation, Offset, PartitionIndex};

    #[test]
    fn an_event_is_found_under_its_own_lease_alone() {
        let lease = |lease, first, end| Lease {
            partition: PartitionIndex(0),
            incarnation: Incarnation(1),
            first: Offset(first),
            end: Offset(end),
            lease: LeaseId(lease),
            deliveries: 1,
        };
        // Out of order, overlapping, and one event under two leases.
        let leases = [
            lease(2, 3, 4),
            lease(1, 6, 9),
            lease(1, 0, 5),
            lease(1, 4, 6),
        ];
        let set: LeaseSet = leases.into_iter().collect();
        let id = |offset, partition| EventId {
            partition: PartitionIndex(partition),
            incarnation: Incarnation(1),
            offset: Offset(offset),
        };
        for offset in 0..12 {
            let is_there = |number| set.contains(LeaseId(number), id(offset, 0));
            assert_eq!(is_there(1), offset < 9, "{offset}");
            assert_eq!(is_there(2), offset == 3, "{offset}");
            assert!(!is_there(3) && !set.contains(LeaseId(1), id(offset, 1)));
        }
    }
}
