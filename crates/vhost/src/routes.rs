//! Where the bindings of one exchange lead.

use crate::binding::Binding;
use crate::exchange::ExchangeKind;
use crate::headers::{Headers, Pattern};
use crate::id::Destination;
use crate::shrink::shrink;
use crate::targets::Targets;
use crate::trie::Trie;
use amqp::Table;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The bindings of an exchange, as its kind finds those that match.
#[derive(Debug)]
pub(crate) enum Routes {
    /// By the whole key.
    Direct(HashMap<Arc<str>, Targets>),
    /// All of them.
    Fanout(Targets),
    /// By the words of the key.
    Topic(Trie),
    /// One after the other.
    Headers(BTreeMap<Arc<Binding>, Pattern>),
}

impl Routes {
    pub fn new(kind: ExchangeKind) -> Self {
        match kind {
            ExchangeKind::Direct => Self::Direct(HashMap::new()),
            ExchangeKind::Fanout => Self::Fanout(Targets::default()),
            ExchangeKind::Topic => Self::Topic(Trie::default()),
            ExchangeKind::Headers => Self::Headers(BTreeMap::new()),
        }
    }

    /// Adds a binding, or says why it can match nothing.
    pub fn insert(&mut self, binding: &Arc<Binding>) -> Result<(), String> {
        match self {
            Self::Direct(keys) => {
                let targets = keys.entry(binding.key.clone()).or_default();
                targets.insert(binding.destination);
            }
            Self::Fanout(targets) => targets.insert(binding.destination),
            Self::Topic(trie) => trie.insert(&binding.key, binding.destination),
            Self::Headers(patterns) => {
                let pattern = Pattern::parse(&binding.arguments)?;
                patterns.insert(binding.clone(), pattern);
            }
        }
        Ok(())
    }

    pub fn remove(&mut self, binding: &Binding) {
        match self {
            Self::Direct(keys) => {
                let Some(targets) = keys.get_mut(&binding.key) else {
                    return;
                };
                targets.remove(binding.destination);
                if targets.is_empty() {
                    keys.remove(&binding.key);
                    shrink(keys);
                }
            }
            Self::Fanout(targets) => targets.remove(binding.destination),
            Self::Topic(trie) => trie.remove(&binding.key, binding.destination),
            Self::Headers(patterns) => {
                patterns.remove(binding);
            }
        }
    }

    /// Nodes that keys of a topic exchange have.
    pub fn nodes(&self) -> usize {
        match self {
            Self::Topic(trie) => trie.nodes(),
            _ => 0,
        }
    }

    /// Nodes that it would have more with a key.
    pub fn missing(&self, key: &str) -> usize {
        match self {
            Self::Topic(trie) => trie.missing(key),
            _ => 0,
        }
    }

    /// Appends where a message goes; a destination may come several times.
    pub fn route(&self, keys: &[&str], headers: Option<&Table>, out: &mut Vec<Destination>) {
        match self {
            Self::Direct(bound) => {
                let matching = keys.iter().filter_map(|key| bound.get(*key));
                out.extend(matching.flat_map(Targets::destinations));
            }
            Self::Fanout(targets) => out.extend(targets.destinations()),
            Self::Topic(trie) => by_topic(trie, keys, out),
            Self::Headers(patterns) if patterns.is_empty() => {}
            Self::Headers(patterns) => {
                let headers = Headers::of(headers);
                let matching = patterns.iter().filter(|(_, one)| one.matches(&headers));
                out.extend(matching.map(|(binding, _)| binding.destination));
            }
        }
    }

    /// Whether nothing is kept for bindings that are gone.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Direct(keys) => keys.is_empty(),
            Self::Fanout(targets) => targets.is_empty(),
            Self::Topic(trie) => trie.is_empty(),
            Self::Headers(patterns) => patterns.is_empty(),
        }
    }
}

/// Many keys may lead to the same destinations: those that are gathered are never more than a few times those that there are.
fn by_topic(trie: &Trie, keys: &[&str], out: &mut Vec<Destination>) {
    let mut several = 64;
    for key in keys {
        trie.route(key, out);
        if out.len() > several {
            out.sort_unstable();
            out.dedup();
            several = 2 * out.len().max(32);
        }
    }
}
