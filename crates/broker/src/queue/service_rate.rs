//! How fast a member works, as its client says: how much it is given at once.

use std::time::Duration;
use wire::message::{Settle, SettleAs};

/// What an event takes a member, on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServiceRate {
    event_ns: u64,
}

impl ServiceRate {
    /// Of what is settled here; `None` if that says nothing.
    pub fn of(settle: &Settle) -> Option<Self> {
        let handled = settle.settlements.iter();
        let handled = handled.filter(|one| one.how != SettleAs::GiveBack);
        let events = handled.fold(0u64, |sum, one| {
            let count = one.lease.end.0.saturating_sub(one.lease.first.0);
            sum.saturating_add(count)
        });
        let worked_ns = u64::from(settle.worked_us.max(1)) * 1000;
        Some(Self {
            event_ns: worked_ns.checked_div(events)?.max(1),
        })
    }

    /// The same with what is known from before. That a member works more
    /// slowly is taken for true at once, that it works faster by and by.
    pub fn after(self, before: Option<Self>) -> Self {
        match before {
            Some(before) if self.event_ns < before.event_ns => Self {
                event_ns: before.event_ns - (before.event_ns - self.event_ns) / 4,
            },
            _ => self,
        }
    }

    /// How many events are worked off within this time.
    pub fn events_within(self, time: Duration) -> u64 {
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / self.event_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::message::{Lease, Settlement};
    use wire::{Incarnation, LeaseId, MemberId, Offset, PartitionIndex};

    fn settle(worked_us: u32, ranges: &[(u64, u64, SettleAs)]) -> Settle {
        let settlement = |(first, end, how): &(u64, u64, SettleAs)| Settlement {
            lease: Lease {
                partition: PartitionIndex(0),
                incarnation: Incarnation(1),
                first: Offset(*first),
                end: Offset(*end),
                lease: LeaseId(1),
                deliveries: 1,
            },
            how: *how,
            delay_ms: 0,
            reason: String::new(),
        };
        Settle {
            consumer: "farm".into(),
            member: MemberId(1),
            sequence: 1,
            worked_us,
            settlements: ranges.iter().map(settlement).collect(),
        }
    }

    #[test]
    fn what_was_handled_counts_and_nothing_else() {
        use SettleAs::*;
        let millisecond = Duration::from_millis(1);
        let within = |worked_us, ranges: &[_]| {
            let service_rate = ServiceRate::of(&settle(worked_us, ranges));
            service_rate.map(|service_rate| service_rate.events_within(millisecond))
        };
        assert_eq!(within(500, &[(0, 50, Acknowledge)]), Some(100));
        let two = [(0, 30, Reject), (30, 50, Return), (50, 90, GiveBack)];
        assert_eq!(within(500, &two), Some(100));
        assert_eq!(within(30_000_000, &[(7, 8, Acknowledge)]), Some(0));
        assert_eq!(within(500, &[(0, 9, GiveBack)]), None);
        // Whatever a client says.
        assert_eq!(within(0, &[(0, u64::MAX, Acknowledge)]), Some(1_000_000));
        assert_eq!(within(0, &[(9, 3, Acknowledge)]), None);
    }

    #[test]
    fn a_slow_event_counts_at_once_and_fast_ones_by_and_by() {
        let slow = ServiceRate { event_ns: 1000 };
        let fast = ServiceRate { event_ns: 200 };
        assert_eq!(slow.after(Some(fast)), slow);
        assert_eq!(fast.after(Some(slow)), ServiceRate { event_ns: 800 });
        assert_eq!(fast.after(None), fast);
    }
}
