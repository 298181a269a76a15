//! A link with a flag: whether it is to be polled.

use net::{Link, Readiness};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Notified by the network when there is something to look at.
#[derive(Clone)]
pub struct Notified(Arc<AtomicBool>);

impl Notified {
    pub fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    pub fn notify(&self) -> net::Notify {
        let flag = self.0.clone();
        // One thread: nothing is ordered by it.
        Arc::new(move || flag.store(true, Ordering::Relaxed))
    }

    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One end of a simulated connection.
pub struct Wired {
    pub link: Box<dyn Link>,
    notified: Notified,
}

impl Wired {
    pub fn new(mut link: Box<dyn Link>) -> Self {
        let notified = Notified::new();
        assert!(
            matches!(link.readiness(), Readiness::Notify),
            "links of the simulated network notify"
        );
        link.attach(notified.notify());
        Self { link, notified }
    }

    /// The link, to ask things of it: it is polled after that.
    pub fn ask(&mut self) -> &mut dyn Link {
        self.notified.set();
        &mut *self.link
    }

    /// Whether the link is to be polled now.
    pub fn is_notified(&self) -> bool {
        self.notified.take() || self.link.is_due()
    }
}
