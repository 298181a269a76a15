//! A link with a bell on it: whether it is to be polled.

use net::{Link, Readiness};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rung by the network when there is something to look at.
#[derive(Clone)]
pub struct Rung(Arc<AtomicBool>);

impl Rung {
    pub fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    pub fn bell(&self) -> net::Bell {
        let flag = self.0.clone();
        // One thread: nothing is ordered by it.
        Arc::new(move || flag.store(true, Ordering::Relaxed))
    }

    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    pub fn ring(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One end of a simulated connection.
pub struct Wired {
    pub link: Box<dyn Link>,
    rung: Rung,
}

impl Wired {
    pub fn new(mut link: Box<dyn Link>) -> Self {
        let rung = Rung::new();
        assert!(
            matches!(link.readiness(), Readiness::Bell),
            "links of the simulated network have bells"
        );
        link.attach(rung.bell());
        Self { link, rung }
    }

    /// The link, to ask things of it: it is polled after that.
    pub fn ask(&mut self) -> &mut dyn Link {
        self.rung.ring();
        &mut *self.link
    }

    /// Whether the link is to be polled now.
    pub fn is_rung(&self) -> bool {
        self.rung.take() || self.link.is_due()
    }
}
