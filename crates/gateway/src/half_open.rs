//! Connections that have not said whom they mean: so many, and the oldest goes where one more comes.
//!
//! Anybody who reaches the port can open connections and say nothing. A client says whom it means at once.

use crate::faults::{Fault, planted};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// The bound.
#[derive(Debug)]
pub struct HalfOpen {
    count_max: usize,
    /// Whom to tell that it has to go, by when it came. Locked for a look.
    present: Mutex<(u64, BTreeMap<u64, oneshot::Sender<()>>)>,
}

/// The place of one connection among them, until it is dropped.
#[derive(Debug)]
pub struct Place {
    all: Arc<HalfOpen>,
    number: u64,
    /// Resolves when it has to go.
    evicted: oneshot::Receiver<()>,
}

impl HalfOpen {
    /// So many at most.
    pub fn new(count_max: usize) -> Arc<Self> {
        Arc::new(Self {
            count_max,
            present: Mutex::default(),
        })
    }

    /// One more.
    pub fn enter(self: &Arc<Self>) -> Place {
        let (tell, evicted) = oneshot::channel();
        let mut present = self.present.lock().expect("no holder panics");
        present.0 += 1;
        let number = present.0;
        if present.1.len() >= self.count_max
            && !planted(Fault::UnboundedHalfOpen)
            && let Some((_, oldest)) = present.1.pop_first()
        {
            // It may have gone by itself.
            let _ = oldest.send(());
        }
        present.1.insert(number, tell);
        Place {
            all: self.clone(),
            number,
            evicted,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.present.lock().expect("no holder panics").1.len()
    }
}

impl Place {
    /// Resolves when it has to go.
    pub async fn evicted(&mut self) {
        let _ = (&mut self.evicted).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut present = self.all.present.lock().expect("no holder panics");
        present.1.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;

    #[test]
    fn the_oldest_goes_where_one_more_comes() {
        let all = HalfOpen::new(2);
        let mut first = all.enter();
        let second = all.enter();
        assert_eq!(all.count(), 2);
        let _third = all.enter();
        assert_eq!(all.count(), 2);
        assert!(first.evicted.try_recv().is_ok());
        drop((first, second));
        assert_eq!(all.count(), 1);
        let too_many = || {
            let all = HalfOpen::new(2);
            let _all: Vec<Place> = (0..5).map(|_| all.enter()).collect();
            all.count() > 2
        };
        assert!(!too_many());
        assert!(faults::with(Fault::UnboundedHalfOpen, too_many));
    }
}
