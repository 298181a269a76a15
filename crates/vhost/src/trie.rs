//! Keys of topic exchanges: words with dots between them, `*` for one word, `#` for any number of them.

use crate::faults::{Fault, planted};
use crate::id::Destination;
use crate::shrink::shrink;
use crate::targets::Targets;
use std::collections::HashMap;

/// One word of a key that is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    Word(&'a str),
    /// `*`
    Star,
    /// `#`
    Hash,
}

/// The words of a key. The empty key has none; two dots have an empty word between them.
fn words(key: &str) -> impl Iterator<Item = &str> {
    let words = (!key.is_empty()).then(|| key.split('.'));
    words.into_iter().flatten()
}

fn steps(key: &str) -> impl Iterator<Item = Step<'_>> {
    words(key).map(|word| match word {
        "*" => Step::Star,
        "#" => Step::Hash,
        word => Step::Word(word),
    })
}

/// A place in the table of nodes.
type Index = usize;

const ROOT: Index = 0;

#[derive(Debug, Default)]
struct Node {
    words: HashMap<Box<str>, Index>,
    star: Option<Index>,
    hash: Option<Index>,
    targets: Targets,
}

impl Node {
    fn child(&self, step: Step<'_>) -> Option<Index> {
        match step {
            Step::Word(word) => self.words.get(word).copied(),
            Step::Star => self.star,
            Step::Hash => self.hash,
        }
    }

    fn children_mut(&mut self) -> impl Iterator<Item = &mut Index> {
        let others = self.star.iter_mut().chain(&mut self.hash);
        self.words.values_mut().chain(others)
    }

    fn is_needed(&self) -> bool {
        let has_children = !self.words.is_empty() || self.star.is_some() || self.hash.is_some();
        has_children || !self.targets.is_empty()
    }
}

/// The keys that are bound, as a trie of their words. Nodes lie in one table and are used again.
#[derive(Debug)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
    free: Vec<Index>,
    /// How often nodes were looked at.
    #[cfg(test)]
    looks: std::cell::Cell<usize>,
}

impl Default for Trie {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            free: Vec::new(),
            #[cfg(test)]
            looks: std::cell::Cell::default(),
        }
    }
}

/// A node, and how many words of the key were matched on the way to it.
#[derive(Clone, Copy)]
struct Reached {
    node: Index,
    matched: usize,
    /// Behind a `#`: it may match the words that follow, too.
    behind_hash: bool,
}

impl Trie {
    pub fn insert(&mut self, key: &str, destination: Destination) {
        let mut at = ROOT;
        for step in steps(key) {
            at = match self.nodes[at].child(step) {
                Some(child) => child,
                None => self.grow(at, step),
            };
        }
        self.nodes[at].targets.insert(destination);
    }

    fn grow(&mut self, parent: Index, step: Step<'_>) -> Index {
        let child = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            self.nodes.len() - 1
        });
        let parent = &mut self.nodes[parent];
        match step {
            Step::Word(word) => {
                parent.words.insert(word.into(), child);
            }
            Step::Star => parent.star = Some(child),
            Step::Hash => parent.hash = Some(child),
        }
        child
    }

    /// How many nodes it has for keys: the root is always there.
    pub fn nodes(&self) -> usize {
        self.nodes.len() - 1 - self.free.len()
    }

    /// How many nodes more it would have with a key.
    pub fn missing(&self, key: &str) -> usize {
        let mut at = Some(ROOT);
        let is_missing = |step: &Step<'_>| {
            at = at.and_then(|at| self.nodes[at].child(*step));
            at.is_none()
        };
        steps(key).filter(is_missing).count()
    }

    pub fn remove(&mut self, key: &str, destination: Destination) {
        let mut way = Vec::new();
        let mut at = ROOT;
        for step in steps(key) {
            let Some(child) = self.nodes[at].child(step) else {
                return;
            };
            way.push((at, step));
            at = child;
        }
        self.nodes[at].targets.remove(destination);
        // From the end of the key: a node goes when no key ends in it or goes on from it.
        while let Some((parent, step)) = way.pop() {
            if self.nodes[at].is_needed() || planted(Fault::LeftNodes) {
                break;
            }
            self.nodes[at] = Node::default();
            self.free.push(at);
            match step {
                Step::Word(word) => {
                    let words = &mut self.nodes[parent].words;
                    words.remove(word);
                    shrink(words);
                }
                Step::Star => self.nodes[parent].star = None,
                Step::Hash => self.nodes[parent].hash = None,
            }
            at = parent;
        }
        if self.free.len() > 16 + 2 * self.nodes() {
            self.compact();
        }
    }

    /// Moves the nodes that are in use to the front of a new table, which has room for no others.
    fn compact(&mut self) {
        let mut nodes = Vec::with_capacity(self.nodes() + 1);
        nodes.push(std::mem::take(&mut self.nodes[ROOT]));
        let mut at = ROOT;
        while at < nodes.len() {
            let mut node = std::mem::take(&mut nodes[at]);
            for child in node.children_mut() {
                nodes.push(std::mem::take(&mut self.nodes[*child]));
                *child = nodes.len() - 1;
            }
            nodes[at] = node;
            at += 1;
        }
        self.nodes = nodes;
        self.free = Vec::new();
    }

    /// Appends where the bindings lead that match a key; one may come several times.
    ///
    /// Each pair of a node and a number of matched words is looked at once. A node that is no `#` has one parent, and is
    /// reached with n words from that with n - 1 alone. One that is a `#` can be reached with several numbers, and
    /// goes on with all greater ones each time; `begun` has the least, and what was done from there is not done again.
    pub fn route(&self, key: &str, out: &mut Vec<Destination>) {
        let words: Vec<_> = words(key).collect();
        let mut begun: HashMap<Index, usize> = HashMap::new();
        let mut waiting = vec![Reached {
            node: ROOT,
            matched: 0,
            behind_hash: false,
        }];
        while let Some(reached) = waiting.pop() {
            if !reached.behind_hash {
                self.look(reached, &words, &mut waiting, out);
                continue;
            }
            let before = begun.insert(reached.node, reached.matched);
            let end = before.unwrap_or(words.len() + 1);
            if end < reached.matched {
                begun.insert(reached.node, end);
            }
            for matched in reached.matched..end {
                self.look(Reached { matched, ..reached }, &words, &mut waiting, out);
            }
        }
    }

    /// What one node matches and leads to, after this number of words.
    fn look(
        &self,
        reached: Reached,
        words: &[&str],
        waiting: &mut Vec<Reached>,
        out: &mut Vec<Destination>,
    ) {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
        let (node, matched) = (&self.nodes[reached.node], reached.matched);
        if matched == words.len() {
            out.extend(node.targets.destinations());
        }
        let mut next = |node: Option<Index>, matched: usize, behind_hash: bool| {
            waiting.extend(node.map(|node| Reached {
                node,
                matched,
                behind_hash,
            }));
        };
        if planted(Fault::StarIsNoWord) {
            next(node.star, matched, false);
        }
        if let Some(word) = words.get(matched) {
            next(node.words.get(*word).copied(), matched + 1, false);
            next(node.star, matched + 1, false);
        }
        match planted(Fault::HashIsOneWord) {
            true if matched < words.len() => next(node.hash, matched + 1, false),
            true => {}
            false => next(node.hash, matched, true),
        }
    }

    #[cfg(test)]
    pub fn looked_at(&self) -> usize {
        self.looks.get()
    }

    /// How many nodes it has memory for.
    #[cfg(test)]
    pub fn room(&self) -> usize {
        self.nodes.capacity()
    }

    /// Whether it is as if nothing had ever been bound.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.nodes() == 0 && !self.nodes[ROOT].is_needed()
    }
}
