//! How long to look before sleeping, by whether looking has been of use.

use std::time::Duration;

/// After this many spins in vain on end, the next waits are without.
const VAIN_MAX: u32 = 4;
/// The most waits on end that are without.
const WITHOUT_MAX: u32 = 1024;

/// Decides before each wait whether to spin.
///
/// Where more threads want to run than there are processors, the thread that
/// is waited for is often the one whose processor the spin takes: it finds
/// nothing then, or meets one who wants the processor. That is what is
/// measured here, and not the machine.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    most: Duration,
    /// Spins in vain on end.
    vain: u32,
    /// Waits without a spin that are still to come, and how many the next time.
    without: u32,
    without_next: u32,
}

impl Spin {
    pub(crate) fn new(most: Duration) -> Self {
        Self {
            most,
            without_next: 1,
            ..Self::default()
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.most.is_zero()
    }

    /// How long to spin before a wait of at most `timeout`, if at all.
    pub(crate) fn begin(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return None;
        }
        if self.without > 0 {
            self.without -= 1;
            return None;
        }
        Some(timeout.map_or(self.most, |timeout| timeout.min(self.most)))
    }

    /// Whether the spin has found something.
    pub(crate) fn note(&mut self, found: bool) {
        if found {
            self.vain = 0;
            self.without_next = 1;
            return;
        }
        self.vain += 1;
        if self.vain >= VAIN_MAX {
            self.pause();
        }
    }

    /// Others want the processor: whatever was found, it is theirs for a while.
    pub(crate) fn note_oversubscribed(&mut self) {
        self.vain = VAIN_MAX;
        self.pause();
    }

    fn pause(&mut self) {
        self.without = self.without_next;
        self.without_next = (self.without_next * 2).min(WITHOUT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits_without(spin: &mut Spin) -> u32 {
        (0..).take_while(|_| spin.begin(None).is_none()).count() as u32
    }

    #[test]
    fn spins_in_vain_become_rare_and_come_back_when_one_is_of_use() {
        let mut spin = Spin::new(Duration::from_micros(50));
        for _ in 0..VAIN_MAX {
            assert_eq!(waits_without(&mut spin), 0);
            spin.note(false);
        }
        let mut before = 0;
        for _ in 0..20 {
            let without = waits_without(&mut spin);
            assert!((before..=WITHOUT_MAX).contains(&without), "{without}");
            before = without;
            spin.note(false);
        }
        assert_eq!(before, WITHOUT_MAX);
        waits_without(&mut spin);
        spin.note(true);
        assert_eq!(waits_without(&mut spin), 0);
    }

    #[test]
    fn who_meets_others_spins_more_rarely_at_once() {
        let mut spin = Spin::new(Duration::from_micros(50));
        for without in [1, 2, 4, 8] {
            spin.note_oversubscribed();
            assert_eq!(waits_without(&mut spin), without);
        }
        spin.note(true);
        spin.note(false);
        assert_eq!(waits_without(&mut spin), 0);
    }

    #[test]
    fn a_wait_without_time_is_without_a_spin() {
        let mut spin = Spin::new(Duration::from_micros(50));
        assert_eq!(spin.begin(Some(Duration::ZERO)), None);
        let short = Duration::from_micros(7);
        assert_eq!(spin.begin(Some(short)), Some(short));
    }
}
