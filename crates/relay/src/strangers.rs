//! Connections of which nobody knows yet whose they are: so many, and the oldest goes where one more comes.
//!
//! Anybody who reaches a port can open connections and say nothing. Who belongs there says so at once.

use crate::faults::{Fault, planted};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// The bound.
#[derive(Debug)]
pub struct Strangers {
    most: usize,
    /// Locked for a look.
    present: Mutex<Present>,
}

#[derive(Debug, Default)]
struct Present {
    count: u64,
    /// Whom to tell that it has to go, by when it came.
    all: BTreeMap<u64, oneshot::Sender<()>>,
}

/// The place of one of them, until it is dropped.
#[derive(Debug)]
pub struct Stranger {
    all: Arc<Strangers>,
    number: u64,
    evicted: oneshot::Receiver<()>,
}

impl Strangers {
    /// So many at most.
    pub fn new(most: usize) -> Arc<Self> {
        let present = Mutex::default();
        Arc::new(Self { most, present })
    }

    /// One more comes.
    pub fn enter(self: &Arc<Self>) -> Stranger {
        let (tell, evicted) = oneshot::channel();
        let mut present = self.present.lock().expect("no holder panics");
        present.count += 1;
        let number = present.count;
        if present.all.len() >= self.most
            && !planted(Fault::AnyStrangers)
            && let Some((_, oldest)) = present.all.pop_first()
        {
            // It may have gone by itself.
            let _ = oldest.send(());
        }
        present.all.insert(number, tell);
        Stranger {
            all: self.clone(),
            number,
            evicted,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.present.lock().expect("no holder panics").all.len()
    }
}

impl Stranger {
    /// Resolves when it has to go.
    pub async fn evicted(&mut self) {
        let _ = (&mut self.evicted).await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut present = self.all.present.lock().expect("no holder panics");
        present.all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;

    #[test]
    fn the_oldest_goes_where_one_more_comes() {
        let all = Strangers::new(2);
        let mut first = all.enter();
        let mut second = all.enter();
        assert!(first.evicted.try_recv().is_err());
        let _third = all.enter();
        assert!(first.evicted.try_recv().is_ok());
        assert!(second.evicted.try_recv().is_err());
        drop((first, second));
        assert_eq!(all.count(), 1);
        let too_many = || {
            let all = Strangers::new(2);
            let _all: Vec<Stranger> = (0..5).map(|_| all.enter()).collect();
            all.count() > 2
        };
        assert!(!too_many());
        assert!(
            faults::with(Fault::AnyStrangers, too_many),
            "it is not missed"
        );
    }
}
