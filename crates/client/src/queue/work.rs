//! How long a program has had events of its queue in hand: the server gives it
//! more at once the faster it is.

use std::time::Duration;

/// How long the program has had events in hand, and what it did between them
/// while there were more: from the first one that it was handed until it found
/// no more and has settled all.
///
/// The clock is looked at where that begins and ends, not with each event.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Events that were handed out and are held.
    in_hand: usize,
    /// Whether the program came for more and found none.
    found_none: bool,
    /// Since when it works, as far as that was not reported.
    since: Option<Duration>,
    /// What was not reported.
    worked: Duration,
}

impl Work {
    /// The program is handed an event.
    pub fn take_in_hand(&mut self, clock: impl Fn() -> Duration) {
        self.in_hand += 1;
        self.found_none = false;
        self.since.get_or_insert_with(clock);
    }

    /// It has so many events no more.
    pub fn settled(&mut self, events: usize, clock: impl Fn() -> Duration) {
        self.in_hand -= events;
        self.end_if_idle(clock);
    }

    /// It came for an event, and there was none.
    pub fn find_none(&mut self, clock: impl Fn() -> Duration) {
        self.found_none = true;
        self.end_if_idle(clock);
    }

    fn end_if_idle(&mut self, clock: impl Fn() -> Duration) {
        if self.in_hand == 0
            && self.found_none
            && let Some(since) = self.since.take()
        {
            self.worked += clock().saturating_sub(since);
        }
    }

    /// Returns it, in microseconds, and begins anew.
    pub fn take(&mut self, now: Duration) -> u32 {
        let mut worked = std::mem::take(&mut self.worked);
        if let Some(since) = self.since {
            worked += now.saturating_sub(since);
            // With nothing in hand it may never come for more.
            self.since = (self.in_hand > 0).then_some(since.max(now));
        }
        u32::try_from(worked.as_micros()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A clock that counts how often it is looked at.
    #[derive(Default)]
    struct Clock {
        now_us: Cell<u64>,
        looks: Cell<u32>,
    }

    impl Clock {
        fn look(&self) -> Duration {
            self.looks.set(self.looks.get() + 1);
            self.now()
        }

        fn now(&self) -> Duration {
            Duration::from_micros(self.now_us.get())
        }

        fn pass(&self, us: u64) {
            self.now_us.set(self.now_us.get() + us);
        }
    }

    #[test]
    fn events_one_behind_the_other_take_one_look_at_the_clock() {
        let (clock, mut work) = (Clock::default(), Work::default());
        for _ in 0..100 {
            work.take_in_hand(|| clock.look());
            clock.pass(3);
            work.settled(1, || clock.look());
            clock.pass(2);
        }
        assert_eq!((work.take(clock.now()), clock.looks.get()), (500, 1));
        // Nobody waited, and nobody came for more.
        clock.pass(1000);
        assert_eq!(work.take(clock.now()), 0);
    }

    #[test]
    fn waiting_is_no_work() {
        let (clock, mut work) = (Clock::default(), Work::default());
        for is_settled_late in [false, true] {
            work.take_in_hand(|| clock.look());
            work.take_in_hand(|| clock.look());
            work.settled(1, || clock.look());
            clock.pass(70);
            if is_settled_late {
                // As a request is, when its reply is stored.
                work.find_none(|| clock.look());
                clock.pass(30);
                work.settled(1, || clock.look());
            } else {
                work.settled(1, || clock.look());
                clock.pass(30);
                work.find_none(|| clock.look());
            }
            clock.pass(5000);
            work.find_none(|| clock.look());
            assert_eq!(work.take(clock.now()), 100, "{is_settled_late}");
            clock.pass(5000);
        }
        assert_eq!(clock.looks.get(), 4);
    }

    #[test]
    fn what_is_in_hand_is_told_as_far_as_it_has_come() {
        let (clock, mut work) = (Clock::default(), Work::default());
        work.take_in_hand(|| clock.look());
        clock.pass(400);
        assert_eq!(work.take(clock.now()), 400);
        clock.pass(50);
        work.find_none(|| clock.look());
        work.settled(1, || clock.look());
        assert_eq!(work.take(clock.now()), 50);
    }
}
