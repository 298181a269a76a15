//! Byte budgets: how much may be held, and what happens at the bound.

use crate::{Deadline, Signal};
use std::fmt;
use std::sync::{Arc, Mutex};

/// A bound in bytes, shared by its clones.
///
/// A reservation larger than the whole budget is let in when nothing else is
/// held, so that one event larger than the limit passes alone.
#[derive(Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    limit: u64,
    /// Bytes held. Guarded alone; `released` is notified after that.
    held: Mutex<u64>,
    released: Signal,
}

/// The budget is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetError {
    /// The setting that bounds the budget.
    pub name: &'static str,
    /// Its limit, bytes.
    pub limit: u64,
    /// What is held now.
    pub held: u64,
    /// What was asked for.
    pub asked: u64,
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            limit,
            held,
            asked,
        } = self;
        write!(
            f,
            "{asked} bytes asked of {name}: {held} of {limit} bytes are held"
        )
    }
}

impl std::error::Error for BudgetError {}

/// Bytes of a [`Budget`], given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    /// A budget of `limit` bytes; `name` is the setting that bounds it, for errors.
    pub fn new(name: &'static str, limit: u64) -> Self {
        let shared = Shared {
            name,
            limit,
            held: Mutex::new(0),
            released: Signal::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The bound.
    pub fn limit(&self) -> u64 {
        self.shared.limit
    }

    /// What is held now.
    pub fn held(&self) -> u64 {
        *self.shared.held.lock().expect("no holder panics here")
    }

    /// Takes `bytes`, or says that they are not there. Never blocks.
    pub fn try_reserve(&self, bytes: u64) -> Result<Reservation, BudgetError> {
        let mut held = self.shared.held.lock().expect("no holder panics here");
        if !self.fits(*held, bytes) {
            return Err(self.full(*held, bytes));
        }
        *held += bytes;
        Ok(Reservation {
            budget: self.clone(),
            bytes,
        })
    }

    /// Takes what `share` makes of what is left, be it more than that.
    pub fn take(&self, share: impl FnOnce(u64) -> u64) -> Reservation {
        let mut held = self.shared.held.lock().expect("no holder panics here");
        let bytes = share(self.shared.limit.saturating_sub(*held));
        *held += bytes;
        Reservation {
            budget: self.clone(),
            bytes,
        }
    }

    /// Takes `bytes`, waiting for them until `deadline`.
    pub fn reserve(&self, bytes: u64, deadline: Deadline) -> Result<Reservation, BudgetError> {
        let mut held = self.shared.held.lock().expect("no holder panics here");
        while !self.fits(*held, bytes) {
            held = self
                .shared
                .released
                .wait(held, deadline)
                .map_err(|held| self.full(*held, bytes))?;
        }
        *held += bytes;
        Ok(Reservation {
            budget: self.clone(),
            bytes,
        })
    }

    fn give_back(&self, bytes: u64) {
        *self.shared.held.lock().expect("no holder panics here") -= bytes;
        self.shared.released.notify();
    }

    fn fits(&self, held: u64, bytes: u64) -> bool {
        held == 0 || held.saturating_add(bytes) <= self.shared.limit
    }

    fn full(&self, held: u64, asked: u64) -> BudgetError {
        BudgetError {
            name: self.shared.name,
            limit: self.shared.limit,
            held,
            asked,
        }
    }
}

impl Reservation {
    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back what is held above `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let excess = self.bytes.saturating_sub(bytes);
        if excess > 0 {
            self.bytes -= excess;
            self.budget.give_back(excess);
        }
    }

    /// Takes another reservation of the same budget into this one.
    pub fn merge(&mut self, mut other: Reservation) {
        debug_assert!(Arc::ptr_eq(&self.budget.shared, &other.budget.shared));
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.bytes);
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Budget({}: {} of {} bytes)",
            self.shared.name,
            self.held(),
            self.limit()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_bound_holds_and_one_larger_is_let_in_alone() {
        let budget = Budget::new("test_bytes_max", 100);
        let first = budget.try_reserve(60).unwrap();
        let error = budget.try_reserve(60).unwrap_err();
        assert_eq!(
            error.to_string(),
            "60 bytes asked of test_bytes_max: 60 of 100 bytes are held"
        );
        drop(first);
        let large = budget.try_reserve(1000).unwrap();
        assert!(budget.try_reserve(1).is_err());
        drop(large);
        assert_eq!(budget.held(), 0);
        let mut shrunk = budget.try_reserve(90).unwrap();
        shrunk.shrink_to(30);
        assert_eq!((shrunk.bytes(), budget.held()), (30, 30));
        shrunk.shrink_to(50);
        assert_eq!(budget.held(), 30);
        drop(shrunk);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn what_is_taken_may_be_more_than_is_left() {
        let budget = Budget::new("test_bytes_max", 100);
        let quarter_or_ten = |left: u64| 10.max(left / 4);
        let held: Vec<_> = std::iter::repeat_with(|| budget.take(quarter_or_ten))
            .take(12)
            .collect();
        let bytes: Vec<u64> = held.iter().map(Reservation::bytes).collect();
        assert_eq!(bytes[..4], [25, 18, 14, 10]);
        assert!(budget.held() > budget.limit());
        assert!(budget.try_reserve(1).is_err());
        drop(held);
        assert_eq!(budget.take(quarter_or_ten).bytes(), 25);
    }

    #[test]
    fn a_waiter_gets_what_is_released() {
        let budget = Budget::new("test_bytes_max", 100);
        let held = budget.try_reserve(100).unwrap();
        let waiter = {
            let budget = budget.clone();
            std::thread::spawn(move || budget.reserve(50, Deadline::NEVER).map(|r| r.bytes()))
        };
        drop(held);
        assert_eq!(waiter.join().unwrap(), Ok(50));
        let _held = budget.try_reserve(100).unwrap();
        assert!(budget.reserve(1, Deadline::after(Duration::ZERO)).is_err());
    }
}
