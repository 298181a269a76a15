//! The data budget: bytes on their way to storage.

/// Bytes on their way to storage, and how many there may be.
///
/// Payloads of produce calls are bounded by the credit that each connection
/// was granted, which is taken from half of the budget; external data is
/// fetched by the node and takes what is left. Control calls take nothing.
#[derive(Debug)]
pub(crate) struct DataBudget {
    limit: u64,
    held: u64,
    /// The part of `held` that is external data.
    fetched: u64,
    granted: u64,
}

/// Least produce credit: a batch of the usual length.
const CREDIT_BYTES_MIN: u64 = 1 << 20;

impl DataBudget {
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            held: 0,
            fetched: 0,
            granted: 0,
        }
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn held(&self) -> u64 {
        self.held
    }

    /// Credit for one more connection: the more there are, the less each gets.
    pub fn grant(&mut self, bytes_max: u64) -> u64 {
        let left = (self.limit / 2).saturating_sub(self.granted);
        let credit = (left / 4)
            .min(bytes_max)
            .max(CREDIT_BYTES_MIN.min(bytes_max));
        self.granted += credit;
        credit
    }

    /// Takes back what [`DataBudget::grant`] gave.
    pub fn revoke(&mut self, credit: u64) {
        self.granted -= credit;
    }

    /// Whether [`DataBudget::try_fetch`] would take so many.
    pub fn may_fetch(&self, bytes: u64) -> bool {
        self.fetched == 0 || self.held + bytes <= self.limit
    }

    /// Takes bytes of external data if they are there. One chunk passes in any
    /// case: payloads wait for external data, so it must not wait for them.
    pub fn try_fetch(&mut self, bytes: u64) -> bool {
        let fits = self.may_fetch(bytes);
        if fits {
            self.held += bytes;
            self.fetched += bytes;
        }
        fits
    }

    /// External data was stored, or given up.
    pub fn give_back_fetched(&mut self, bytes: u64) {
        self.fetched -= bytes;
        self.held -= bytes;
    }

    /// Takes bytes that are here already, whatever the limit.
    pub fn take(&mut self, bytes: u64) {
        self.held += bytes;
    }

    pub fn give_back(&mut self, bytes: u64) {
        self.held -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_shrinks_with_the_number_of_connections() {
        let mut budget = DataBudget::new(64 << 20);
        let grants: Vec<u64> = (0..100).map(|_| budget.grant(16 << 20)).collect();
        assert_eq!(grants[0], 8 << 20);
        assert!(grants.windows(2).all(|pair| pair[1] <= pair[0]));
        assert_eq!(grants[99], 1 << 20);
        grants.into_iter().for_each(|credit| budget.revoke(credit));
        assert_eq!(budget.grant(16 << 20), 8 << 20);
    }

    #[test]
    fn the_limit_holds_and_one_larger_passes_alone() {
        let mut budget = DataBudget::new(100);
        assert!(budget.try_fetch(60));
        assert!(!budget.try_fetch(60));
        budget.give_back_fetched(60);
        assert!(budget.try_fetch(1000));
        assert!(!budget.try_fetch(1));
        budget.give_back_fetched(1000);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn external_data_does_not_wait_for_the_payloads_that_wait_for_it() {
        let mut budget = DataBudget::new(100);
        budget.take(90);
        assert!(budget.try_fetch(60));
        assert!(!budget.try_fetch(1));
        budget.give_back_fetched(60);
        assert!(budget.try_fetch(10));
        assert_eq!(budget.held(), 100);
    }
}
