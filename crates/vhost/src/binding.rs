//! Bindings of a virtual host, found by both of their ends.

use crate::arguments::Arguments;
use crate::id::{Destination, ExchangeId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// What a field takes that a headers exchange looks for, beside its bytes.
const FIELD_BYTES: usize = 64;

/// A binding. Two of the same exchange, destination, key and arguments are one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names of the fields say it")]
pub struct Binding {
    pub source: ExchangeId,
    pub destination: Destination,
    pub key: Arc<str>,
    pub arguments: Arguments,
}

impl Binding {
    /// Bytes of what a client chose of it, and what a headers exchange makes of them.
    pub(crate) fn bytes(&self) -> usize {
        let fields = self.arguments.table().fields().count();
        self.key.len() + self.arguments.as_bytes().len() + fields * FIELD_BYTES
    }
}

type Ends<K> = HashMap<K, BTreeSet<Arc<Binding>>>;

/// All bindings of a virtual host.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    by_source: Ends<ExchangeId>,
    by_destination: Ends<Destination>,
    count: usize,
    bytes: usize,
}

impl Bindings {
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub const fn count(&self) -> usize {
        self.count
    }

    pub fn has(&self, binding: &Binding) -> bool {
        let from = self.by_source.get(&binding.source);
        from.is_some_and(|from| from.contains(binding))
    }

    /// How many an exchange has as their source.
    pub fn count_from(&self, source: ExchangeId) -> usize {
        self.by_source.get(&source).map_or(0, BTreeSet::len)
    }

    pub fn of_source(&self, source: ExchangeId) -> impl Iterator<Item = &Arc<Binding>> {
        self.by_source.get(&source).into_iter().flatten()
    }

    pub fn of_destination(&self, destination: Destination) -> impl Iterator<Item = &Arc<Binding>> {
        self.by_destination.get(&destination).into_iter().flatten()
    }

    /// Adds one; `false` if it is there.
    pub fn insert(&mut self, binding: &Arc<Binding>) -> bool {
        let from = self.by_source.entry(binding.source).or_default();
        if !from.insert(binding.clone()) {
            return false;
        }
        let into = self.by_destination.entry(binding.destination).or_default();
        into.insert(binding.clone());
        self.count += 1;
        self.bytes += binding.bytes();
        true
    }

    /// Takes one away; `false` if it is not there.
    pub fn remove(&mut self, binding: &Binding) -> bool {
        if !take(&mut self.by_source, &binding.source, binding) {
            return false;
        }
        take(&mut self.by_destination, &binding.destination, binding);
        self.count -= 1;
        self.bytes -= binding.bytes();
        true
    }
}

/// Takes a binding away from one of its ends, which is forgotten when it has no other.
fn take<K: std::hash::Hash + Eq>(ends: &mut Ends<K>, end: &K, binding: &Binding) -> bool {
    let Some(bindings) = ends.get_mut(end) else {
        return false;
    };
    let was_there = bindings.remove(binding);
    if bindings.is_empty() {
        ends.remove(end);
    }
    was_there
}
