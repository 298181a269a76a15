//! Destinations of one key.

use crate::faults::{Fault, planted};
use crate::id::Destination;
use std::collections::BTreeMap;

/// Destinations, and how many bindings lead to each: two that differ in their arguments alone are two.
#[derive(Debug, Clone, Default)]
pub(crate) struct Targets(BTreeMap<Destination, u32>);

impl Targets {
    pub fn insert(&mut self, destination: Destination) {
        *self.0.entry(destination).or_default() += 1;
    }

    pub fn remove(&mut self, destination: Destination) {
        let Some(count) = self.0.get_mut(&destination) else {
            return;
        };
        *count -= 1;
        if *count == 0 || planted(Fault::CountedOnce) {
            self.0.remove(&destination);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn destinations(&self) -> impl Iterator<Item = Destination> {
        self.0.keys().copied()
    }
}
