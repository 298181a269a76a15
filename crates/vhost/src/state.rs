//! What is in a virtual host, and how a change changes it.

use crate::binding::{Binding, Bindings};
use crate::change::Change;
use crate::exchange::{DEFAULT, Exchange};
use crate::faults::{Fault, planted};
use crate::id::{Destination, ExchangeId, QueueId};
use crate::queue::{Consumers, Queue};
use crate::record::Record;
use crate::routes::Routes;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// What a word takes that one key of a topic exchange has for itself: a node of its trie.
const NODE_BYTES: usize = 256;

/// An exchange, and where it leads.
#[derive(Debug)]
struct ExchangeEntry {
    exchange: Arc<Exchange>,
    /// Where what matches no binding goes, if anywhere.
    alternate: Option<Arc<str>>,
    routes: Routes,
}

impl ExchangeEntry {
    fn new(exchange: Arc<Exchange>) -> Self {
        Self {
            alternate: exchange.alternate(),
            routes: Routes::new(exchange.kind),
            exchange,
        }
    }
}

/// A queue, and who consumes it.
#[derive(Debug)]
struct QueueEntry {
    queue: Arc<Queue>,
    consumers: Consumers,
}

/// A change that does not fit what is there: a log that is not this virtual host's, or not in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfit(String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn unfit<T>(text: String) -> Result<T, Unfit> {
    Err(Unfit(text))
}

/// All exchanges, queues and bindings.
#[derive(Debug)]
pub(crate) struct State {
    exchanges: HashMap<ExchangeId, ExchangeEntry>,
    queues: HashMap<QueueId, QueueEntry>,
    exchange_names: HashMap<Arc<str>, ExchangeId>,
    queue_names: HashMap<Arc<str>, QueueId>,
    bindings: Bindings,
    /// Of the names and arguments of exchanges and queues.
    bytes: usize,
    /// Of the tries of all topic exchanges.
    nodes: usize,
}

impl Default for State {
    fn default() -> Self {
        let mut state = Self {
            exchanges: HashMap::new(),
            queues: HashMap::new(),
            exchange_names: HashMap::new(),
            queue_names: HashMap::new(),
            bindings: Bindings::default(),
            bytes: 0,
            nodes: 0,
        };
        for exchange in Exchange::predeclared() {
            state.add_exchange(Arc::new(exchange));
        }
        state
    }
}

impl State {
    pub fn exchange(&self, id: ExchangeId) -> Option<&Arc<Exchange>> {
        self.exchanges.get(&id).map(|entry| &entry.exchange)
    }

    pub fn exchange_named(&self, name: &str) -> Option<&Arc<Exchange>> {
        self.exchange(*self.exchange_names.get(name)?)
    }

    pub fn queue(&self, id: QueueId) -> Option<&Arc<Queue>> {
        self.queues.get(&id).map(|entry| &entry.queue)
    }

    pub fn queue_named(&self, name: &str) -> Option<&Arc<Queue>> {
        self.queue(*self.queue_names.get(name)?)
    }

    pub fn queue_id(&self, name: &str) -> Option<QueueId> {
        self.queue_names.get(name).copied()
    }

    pub fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.queues.values().map(|entry| &entry.queue)
    }

    pub fn exchanges(&self) -> impl Iterator<Item = &Arc<Exchange>> {
        self.exchanges.values().map(|entry| &entry.exchange)
    }

    pub const fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Of all names, keys and arguments, and of what is made of them.
    pub fn bytes(&self) -> usize {
        self.bytes + self.bindings.bytes() + self.nodes * NODE_BYTES
    }

    /// How much more that is with a binding.
    pub fn cost(&self, binding: &Binding) -> usize {
        let source = self.exchanges.get(&binding.source);
        let nodes = source.map_or(0, |entry| entry.routes.missing(&binding.key));
        binding.bytes() + nodes * NODE_BYTES
    }

    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// Exchanges but for those that are always there.
    pub fn exchange_count(&self) -> usize {
        self.exchanges.len() - crate::exchange::PREDECLARED.len()
    }

    /// Where the bindings of an exchange lead, and its alternate exchange.
    pub fn routes(&self, id: ExchangeId) -> Option<(&Routes, Option<&Arc<str>>)> {
        let entry = self.exchanges.get(&id)?;
        Some((&entry.routes, entry.alternate.as_ref()))
    }

    pub fn consumers(&self, id: QueueId) -> Option<&Consumers> {
        self.queues.get(&id).map(|entry| &entry.consumers)
    }

    pub fn set_consumers(&mut self, id: QueueId, consumers: Consumers) {
        if let Some(entry) = self.queues.get_mut(&id) {
            entry.consumers = consumers;
        }
    }

    /// Whether a change is of what comes back after a restart.
    pub fn is_durable(&self, change: &Change) -> bool {
        let has_durable = |destination| match destination {
            Destination::Queue(id) => self.queue(id).is_some_and(|queue| queue.durable),
            Destination::Exchange(id) => self.exchange(id).is_some_and(|found| found.durable),
        };
        if planted(Fault::RecordsAll) {
            return true;
        }
        match change {
            Change::IdsReserved { .. } => true,
            Change::ExchangeDeclared(exchange) => exchange.durable,
            Change::ExchangeDeleted(id) => has_durable(Destination::Exchange(*id)),
            Change::QueueDeclared(queue) => queue.durable,
            Change::QueueDeleted(id) => has_durable(Destination::Queue(*id)),
            Change::Bound(binding) | Change::Unbound(binding) => {
                has_durable(Destination::Exchange(binding.source))
                    && has_durable(binding.destination)
            }
        }
    }

    /// Makes a change.
    pub fn apply(&mut self, change: &Change) -> Result<(), Unfit> {
        match change {
            Change::IdsReserved { .. } => Ok(()),
            Change::ExchangeDeclared(exchange) => {
                let name = &exchange.name;
                if self.exchange_names.contains_key(name) || self.exchange(exchange.id).is_some() {
                    return unfit(format!(
                        "{} '{name}' is declared, and is there",
                        exchange.id
                    ));
                }
                self.add_exchange(exchange.clone());
                Ok(())
            }
            Change::ExchangeDeleted(id) => self.delete_exchange(*id),
            Change::QueueDeclared(queue) => {
                let name = &queue.name;
                if self.queue_names.contains_key(name) || self.queue(queue.id).is_some() {
                    return unfit(format!("{} '{name}' is declared, and is there", queue.id));
                }
                self.add_queue(queue.clone());
                Ok(())
            }
            Change::QueueDeleted(id) => self.delete_queue(*id),
            Change::Bound(binding) => self.bind(binding),
            Change::Unbound(binding) => match self.unbind(binding) {
                true => Ok(()),
                false => unfit(format!(
                    "{} is unbound, and is not bound",
                    describe(binding)
                )),
            },
        }
    }

    fn add_exchange(&mut self, exchange: Arc<Exchange>) {
        self.bytes += exchange.bytes();
        self.exchange_names
            .insert(exchange.name.clone(), exchange.id);
        self.exchanges
            .insert(exchange.id, ExchangeEntry::new(exchange));
    }

    fn add_queue(&mut self, queue: Arc<Queue>) {
        self.bytes += queue.bytes();
        self.queue_names.insert(queue.name.clone(), queue.id);
        let consumers = Consumers::default();
        self.queues
            .insert(queue.id, QueueEntry { queue, consumers });
    }

    fn delete_exchange(&mut self, id: ExchangeId) -> Result<(), Unfit> {
        let Some(entry) = self
            .exchanges
            .get(&id)
            .filter(|entry| !entry.exchange.is_predeclared())
        else {
            return unfit(format!("{id} is deleted, and is not there"));
        };
        let name = entry.exchange.name.clone();
        let from: Vec<_> = self.bindings.of_source(id).cloned().collect();
        for binding in from {
            self.unbind(&binding);
        }
        self.unbind_from_all(Destination::Exchange(id));
        let entry = self.exchanges.remove(&id).expect("it was there");
        self.exchange_names.remove(&name);
        self.bytes -= entry.exchange.bytes();
        Ok(())
    }

    fn delete_queue(&mut self, id: QueueId) -> Result<(), Unfit> {
        if !self.queues.contains_key(&id) {
            return unfit(format!("{id} is deleted, and is not there"));
        }
        self.unbind_from_all(Destination::Queue(id));
        let entry = self.queues.remove(&id).expect("it was there");
        self.queue_names.remove(&entry.queue.name);
        self.bytes -= entry.queue.bytes();
        Ok(())
    }

    fn bind(&mut self, binding: &Arc<Binding>) -> Result<(), Unfit> {
        let is_there = match binding.destination {
            Destination::Queue(id) => self.queues.contains_key(&id),
            Destination::Exchange(id) => id != DEFAULT && self.exchanges.contains_key(&id),
        };
        let source = self.exchanges.get_mut(&binding.source);
        let Some(source) = source.filter(|_| is_there && binding.source != DEFAULT) else {
            return unfit(format!(
                "{} has an end that is not there",
                describe(binding)
            ));
        };
        if self.bindings.has(binding) {
            return unfit(format!("{} is bound, and is there", describe(binding)));
        }
        self.nodes -= source.routes.nodes();
        let inserted = source.routes.insert(binding);
        self.nodes += source.routes.nodes();
        inserted.map_err(Unfit)?;
        self.bindings.insert(binding);
        Ok(())
    }

    /// `false` if it is not there.
    fn unbind(&mut self, binding: &Binding) -> bool {
        if !self.bindings.remove(binding) {
            return false;
        }
        if let Some(source) = self.exchanges.get_mut(&binding.source) {
            self.nodes -= source.routes.nodes();
            source.routes.remove(binding);
            self.nodes += source.routes.nodes();
        }
        true
    }

    fn unbind_from_all(&mut self, destination: Destination) {
        let into: Vec<_> = self.bindings.of_destination(destination).cloned().collect();
        for binding in into {
            self.unbind(&binding);
        }
    }

    /// The exchanges that go with the last of their bindings when these destinations and bindings go, each after what it
    /// went with.
    pub fn cascade(&self, gone: &[Destination], unbound: Option<&Binding>) -> Vec<ExchangeId> {
        if planted(Fault::NoCascade) {
            return Vec::new();
        }
        let mut cascade = Cascade::new(self);
        for destination in gone {
            cascade.doomed.insert(*destination);
            cascade.waiting.push(*destination);
        }
        if let Some(binding) = unbound {
            cascade.lose(binding.source);
        }
        cascade.run()
    }

    /// What is durable, as records that make it anew.
    pub fn records(&self) -> Vec<Record> {
        let mut exchanges: Vec<_> = self
            .exchanges()
            .filter(|one| !one.is_predeclared())
            .collect();
        exchanges.sort_by_key(|exchange| exchange.id);
        let mut queues: Vec<_> = self.queues().collect();
        queues.sort_by_key(|queue| queue.id);
        let mut bindings: Vec<_> = self
            .exchanges
            .keys()
            .flat_map(|id| self.bindings.of_source(*id))
            .collect();
        bindings.sort();
        let exchanges = exchanges.into_iter().cloned().map(Change::ExchangeDeclared);
        let queues = queues.into_iter().cloned().map(Change::QueueDeclared);
        let bindings = bindings.into_iter().cloned().map(Change::Bound);
        let all: Vec<_> = match planted(Fault::BindingsFirst) {
            true => bindings.chain(exchanges).chain(queues).collect(),
            false => exchanges.chain(queues).chain(bindings).collect(),
        };
        let durable = all.into_iter().filter(|change| self.is_durable(change));
        durable.map(Record::of).collect()
    }

    /// Whether everything that is kept is kept for something.
    #[cfg(test)]
    pub fn check(&self) {
        assert_eq!(self.queues.len(), self.queue_names.len());
        assert_eq!(self.exchanges.len(), self.exchange_names.len());
        let mut count = 0;
        for (id, entry) in &self.exchanges {
            let from = self.bindings.count_from(*id);
            count += from;
            assert_eq!(from == 0, entry.routes.is_empty(), "{:?}", entry.exchange);
            for binding in self.bindings.of_source(*id) {
                let into: Vec<_> = self.bindings.of_destination(binding.destination).collect();
                assert!(into.contains(&binding));
                match binding.destination {
                    Destination::Queue(id) => assert!(self.queues.contains_key(&id)),
                    Destination::Exchange(id) => assert!(self.exchanges.contains_key(&id)),
                }
            }
        }
        assert_eq!(count, self.bindings.count());
        let of_bindings = self
            .exchanges
            .keys()
            .flat_map(|id| self.bindings.of_source(*id));
        let of_exchanges: usize = self.exchanges().map(|exchange| exchange.bytes()).sum();
        let of_queues: usize = self.queues().map(|queue| queue.bytes()).sum();
        let of_bindings: usize = of_bindings.map(|binding| binding.bytes()).sum();
        let nodes: usize = self.exchanges.values().map(|one| one.routes.nodes()).sum();
        assert_eq!(
            of_exchanges + of_queues + of_bindings + nodes * NODE_BYTES,
            self.bytes()
        );
    }
}

fn describe(binding: &Binding) -> String {
    let (source, key) = (binding.source, &binding.key);
    format!(
        "the binding of {source} to {:?} by '{key}'",
        binding.destination
    )
}

/// Finds what goes with the last of its bindings.
struct Cascade<'a> {
    state: &'a State,
    doomed: BTreeSet<Destination>,
    /// How many bindings each exchange loses as their source.
    lost: HashMap<ExchangeId, usize>,
    /// What goes, and whose bindings were not looked at.
    waiting: Vec<Destination>,
    found: Vec<ExchangeId>,
}

impl<'a> Cascade<'a> {
    fn new(state: &'a State) -> Self {
        Self {
            state,
            doomed: BTreeSet::new(),
            lost: HashMap::new(),
            waiting: Vec::new(),
            found: Vec::new(),
        }
    }

    fn lose(&mut self, source: ExchangeId) {
        let lost = self.lost.entry(source).or_default();
        *lost += 1;
        let is_last = *lost == self.state.bindings.count_from(source);
        let is_auto = self
            .state
            .exchange(source)
            .is_some_and(|exchange| exchange.auto_delete);
        let destination = Destination::Exchange(source);
        if is_last && is_auto && self.doomed.insert(destination) {
            self.found.push(source);
            self.waiting.push(destination);
        }
    }

    fn run(mut self) -> Vec<ExchangeId> {
        while let Some(destination) = self.waiting.pop() {
            for binding in self.state.bindings.of_destination(destination) {
                self.lose(binding.source);
            }
        }
        self.found
    }
}
