//! A virtual host: what is in it, and the acts that change it.

use crate::act::{Act, Answer, Claimed, Consumer, Effect, Outcome, Plan, Removal, Settled};
use crate::change::Change;
use crate::exchange::{Exchange, FIRST_ID};
use crate::faults::{Fault, planted};
use crate::id::{ActId, ConnectionId, ExchangeId, Ids, QueueId};
use crate::limits::Limits;
use crate::name::{Name, stripped};
use crate::planner::{Additions, Bind, Consumption, Decision, Ends, Intent, Planner, Stop};
use crate::queue::Queue;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::reservation::{Names, Reservations};
use crate::route::{Keys, Message, Routed, route};
use crate::state::State;
use amqp::{Failure, MethodId, ReplyCode, basic, queue};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// An act between its claim and its settlement.
#[derive(Debug)]
struct Pending {
    /// Whose it is; the server's own acts are nobody's.
    owner: Option<ConnectionId>,
    method: MethodId,
    names: Names,
    changes: Vec<Change>,
    answer: Answer,
    create: Option<Arc<Queue>>,
    only_if_empty: Option<Arc<Queue>>,
    /// The removal of a queue, by the server itself.
    removal: Option<Effect>,
    /// What the limits count while it is under way.
    additions: Additions,
    has_records: bool,
}

/// A connection, as far as the virtual host has to know of it.
#[derive(Debug)]
enum Client {
    /// It may claim acts.
    Open {
        acts: usize,
        /// Its exclusive queues.
        queues: BTreeSet<QueueId>,
    },
    /// It has ended, and acts of it are under way.
    Ended { acts: usize },
}

/// A record that does not follow from those before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoverError {
    /// Which one, counted from 0.
    pub index: usize,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, why) = (self.index, &self.why);
        write!(
            f,
            "record {index} of a virtual host does not follow from those before it: {why}"
        )
    }
}

impl std::error::Error for RecoverError {}

/// A virtual host.
///
/// Its owner calls it in one order: [`Vhost::connect`] for a connection; for each of its requests [`Vhost::claim`] and,
/// where that gives a [`Plan`], the plan and [`Vhost::settle`]; [`Vhost::disconnect`] at last. The [`Effect`]s of all
/// calls are carried out at once, before the next claim.
#[derive(Debug)]
pub struct Vhost {
    name: Arc<str>,
    limits: Limits,
    state: State,
    ids: Ids,
    reservations: Reservations,
    acts: BTreeMap<ActId, Pending>,
    acts_claimed: u64,
    additions: Additions,
    clients: HashMap<ConnectionId, Client>,
    clients_connected: u64,
}

impl Vhost {
    /// An empty one: the exchanges that are always there, and nothing else.
    pub fn new(name: &str, limits: Limits) -> Self {
        Self {
            name: name.into(),
            limits,
            state: State::default(),
            ids: Ids::from(FIRST_ID),
            reservations: Reservations::default(),
            acts: BTreeMap::new(),
            acts_claimed: 0,
            additions: Additions::default(),
            clients: HashMap::new(),
            clients_connected: 0,
        }
    }

    /// What these records made.
    ///
    /// # Errors
    /// If one does not follow from those before it: then they are not all, or not in their order.
    pub fn recover(
        name: &str,
        limits: Limits,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<Self, RecoverError> {
        let mut vhost = Self::new(name, limits);
        for (index, record) in records.into_iter().enumerate() {
            let unfit = |why| RecoverError { index, why };
            let change = record.change();
            if let Some(id) = change.new_id()
                && !vhost.ids.has(id)
            {
                return Err(unfit(format!(
                    "{id} is an id that no record before reserves"
                )));
            }
            let done = vhost.apply(change);
            done.map_err(|error| unfit(error.to_string()))?;
        }
        vhost.ids.skip_reserved();
        Ok(vhost)
    }

    /// All that is durable, as records that can stand for those that were appended until now. Nothing while acts with
    /// records are under way: those may be in the log or not.
    pub fn snapshot(&self) -> Option<Vec<Record>> {
        if self.acts.values().any(|act| act.has_records) {
            return None;
        }
        let below = self.ids.below();
        let mut records = vec![Record::of(Change::IdsReserved { below })];
        records.extend(self.state.records());
        Some(records)
    }

    fn apply(&mut self, change: &Change) -> Result<(), crate::state::Unfit> {
        if let Change::IdsReserved { below } = change {
            self.ids.reserve(*below);
        }
        self.state.apply(change)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A queue, while it is there.
    pub fn queue(&self, id: QueueId) -> Option<&Arc<Queue>> {
        self.state.queue(id)
    }

    /// All queues, in no order. After a restart they are those whose topics stay.
    pub fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.state.queues()
    }

    /// An exchange, while it is there.
    pub fn exchange(&self, id: ExchangeId) -> Option<&Arc<Exchange>> {
        self.state.exchange(id)
    }

    /// All exchanges, in no order.
    pub fn exchanges(&self) -> impl Iterator<Item = &Arc<Exchange>> {
        self.state.exchanges()
    }

    /// How many bindings there are.
    pub fn binding_count(&self) -> usize {
        self.state.bindings().count()
    }

    /// Whether no act is under way.
    pub fn is_quiet(&self) -> bool {
        self.acts.is_empty()
    }

    /// A connection begins.
    pub fn connect(&mut self) -> ConnectionId {
        let id = ConnectionId(self.clients_connected);
        self.clients_connected += 1;
        let client = Client::Open {
            acts: 0,
            queues: BTreeSet::new(),
        };
        self.clients.insert(id, client);
        id
    }

    /// A connection ends. Its consumers are given back by [`Vhost::end_consumer`], before or after; acts of it that are
    /// under way are settled as any others, and what it has not claimed yet because it waits is not claimed any more.
    ///
    /// # Panics
    /// If the connection is not open.
    #[must_use = "its exclusive queues are to be removed"]
    pub fn disconnect(&mut self, connection: ConnectionId) -> Vec<Effect> {
        let client = self.clients.remove(&connection);
        let Some(Client::Open { acts, queues }) = client else {
            panic!("{connection} ends, and is not open");
        };
        if acts > 0 {
            self.clients.insert(connection, Client::Ended { acts });
        }
        let remove = |id| Effect::RemoveQueue(id, Removal::Disconnected);
        queues.into_iter().map(remove).collect()
    }

    fn refusal(&self, method: MethodId) -> Refusal<'_> {
        Refusal {
            vhost: &self.name,
            method,
        }
    }

    fn planner(&mut self, method: MethodId) -> Planner<'_> {
        Planner {
            state: &self.state,
            ids: &mut self.ids,
            reservations: &self.reservations,
            limits: &self.limits,
            additions: match planted(Fault::Uncounted) {
                true => Additions::default(),
                false => self.additions,
            },
            refusal: Refusal {
                vhost: &self.name,
                method,
            },
        }
    }

    /// A connection asks for something.
    ///
    /// # Errors
    /// If it cannot have it; nothing has changed then.
    ///
    /// # Panics
    /// If the connection is not open.
    pub fn claim(&mut self, connection: ConnectionId, act: &Act) -> Result<Claimed, Failure> {
        assert!(
            matches!(self.clients.get(&connection), Some(Client::Open { .. })),
            "{connection} claims, and is not open"
        );
        let planner = self.planner(act.method());
        let decided = match act {
            Act::DeclareExchange(declare) => planner.declare_exchange(declare),
            Act::DeleteExchange(delete) => planner.delete_exchange(delete),
            Act::DeclareQueue { declare, chance } => {
                planner.declare_queue(connection, declare, *chance)
            }
            Act::DeleteQueue(delete) => planner.delete_queue(connection, delete),
            Act::BindExchange(bind) => {
                let ends = Ends {
                    source: &bind.source,
                    destination: Name::Exchange(stripped(&bind.destination)),
                    key: &bind.routing_key,
                    arguments: &bind.arguments,
                };
                planner.bind(connection, Bind::Bound, &ends)
            }
            Act::UnbindExchange(unbind) => {
                let ends = Ends {
                    source: &unbind.source,
                    destination: Name::Exchange(stripped(&unbind.destination)),
                    key: &unbind.routing_key,
                    arguments: &unbind.arguments,
                };
                planner.bind(connection, Bind::Unbound, &ends)
            }
            Act::BindQueue(bind) => {
                let ends = Ends {
                    source: &bind.exchange,
                    destination: Name::Queue(stripped(&bind.queue)),
                    key: &bind.routing_key,
                    arguments: &bind.arguments,
                };
                planner.bind(connection, Bind::Bound, &ends)
            }
            Act::UnbindQueue(unbind) => {
                let ends = Ends {
                    source: &unbind.exchange,
                    destination: Name::Queue(stripped(&unbind.queue)),
                    key: &unbind.routing_key,
                    arguments: &unbind.arguments,
                };
                planner.bind(connection, Bind::Unbound, &ends)
            }
            Act::Consume(consume) => return self.consume(connection, consume),
        };
        self.begin(Some(connection), act.method(), decided)
    }

    fn consume(
        &mut self,
        connection: ConnectionId,
        consume: &basic::Consume,
    ) -> Result<Claimed, Failure> {
        let consumption = self
            .planner(basic::Consume::ID)
            .consume(connection, consume);
        match consumption {
            Ok(Consumption::Queue(queue, consumers)) => {
                self.state.set_consumers(queue, consumers);
                Ok(Claimed::Done(Answer::Consuming(Consumer { queue })))
            }
            Ok(Consumption::DirectReply(reply)) => Ok(Claimed::Done(Answer::DirectReply(reply))),
            Err(Stop::Wait(act)) => Ok(Claimed::Wait(act)),
            Err(Stop::Refused(failure)) => Err(failure),
        }
    }

    /// The server removes a queue, as an effect asks. That the queue is not there, or is in use again, is no error.
    pub fn remove_queue(&mut self, queue: QueueId, removal: Removal) -> Claimed {
        let method = queue::Delete::ID;
        let decided = self.planner(method).remove_queue(queue, removal);
        let begun = self.begin(None, method, decided);
        let begun = begun.expect("the server may remove any queue");
        if let Claimed::Begun(plan) = &begun
            && let Some(pending) = self.acts.get_mut(&plan.act)
        {
            pending.removal = Some(Effect::RemoveQueue(queue, removal));
        }
        begun
    }

    fn begin(
        &mut self,
        owner: Option<ConnectionId>,
        method: MethodId,
        decided: Result<Decision, Stop>,
    ) -> Result<Claimed, Failure> {
        let intent = match decided {
            Err(Stop::Wait(act)) => return Ok(Claimed::Wait(act)),
            Err(Stop::Refused(failure)) => return Err(failure),
            Ok(Decision::Done(answer)) => return Ok(Claimed::Done(answer)),
            Ok(Decision::Change(intent)) => intent,
        };
        if let Some(first) = self.acts.keys().next().copied()
            && self.acts.len() >= self.limits.acts_max
        {
            return Ok(Claimed::Wait(first));
        }
        if let Some(act) = self.reservations.any_in_the_way(&intent.names) {
            self.reservations.close(&intent.names);
            return Ok(Claimed::Wait(act));
        }
        Ok(Claimed::Begun(self.hold(owner, method, intent)))
    }

    /// Gives an act its names until it is settled.
    fn hold(&mut self, owner: Option<ConnectionId>, method: MethodId, intent: Intent) -> Plan {
        let act = ActId(self.acts_claimed);
        self.acts_claimed += 1;
        self.reservations.take(act, &intent.names);
        let mut additions = Additions::default();
        for change in &intent.changes {
            match change {
                Change::QueueDeclared(queue) => {
                    additions.queues += 1;
                    additions.bytes += queue.bytes();
                }
                Change::ExchangeDeclared(exchange) => {
                    additions.exchanges += 1;
                    additions.bytes += exchange.bytes();
                }
                Change::Bound(binding) => {
                    additions.bindings += 1;
                    additions.bytes += self.state.cost(binding);
                }
                _ => {}
            }
        }
        self.additions = self.additions.with(additions);
        if let Some(Client::Open { acts, .. } | Client::Ended { acts }) =
            owner.and_then(|owner| self.clients.get_mut(&owner))
        {
            *acts += 1;
        }
        let records = self.records(&intent.changes);
        let plan = Plan {
            act,
            create: intent.create.clone(),
            only_if_empty: intent.only_if_empty.as_ref().map(|queue| queue.id),
            records,
        };
        let pending = Pending {
            owner,
            method,
            names: intent.names,
            changes: intent.changes,
            answer: intent.answer,
            create: intent.create,
            only_if_empty: intent.only_if_empty,
            removal: None,
            additions,
            has_records: !plan.records.is_empty(),
        };
        self.acts.insert(act, pending);
        plan
    }

    /// The durable ones of some changes.
    fn records(&self, changes: &[Change]) -> Vec<Record> {
        let durable = changes
            .iter()
            .filter(|change| self.state.is_durable(change));
        let durable = durable.enumerate().filter(|(index, change)| {
            let is_cascade = *index > 0 && matches!(change, Change::ExchangeDeleted(_));
            !(is_cascade && planted(Fault::UnrecordedCascade))
        });
        durable
            .map(|(_, change)| Record::of(change.clone()))
            .collect()
    }

    /// An act was carried out, or was not.
    ///
    /// # Panics
    /// If the act is not under way: each is settled once.
    pub fn settle(&mut self, act: ActId, outcome: Outcome) -> Settled {
        let pending = self.acts.remove(&act);
        let pending = pending.unwrap_or_else(|| panic!("{act} is settled, and is not under way"));
        if outcome == Outcome::Done || !planted(Fault::StaysClaimed) {
            self.reservations.release(act, &pending.names);
        }
        self.additions = self.additions.without(pending.additions);
        let has_ended = self.end_act_of(pending.owner);
        let refusal = self.refusal(pending.method);
        let failure = match outcome {
            Outcome::Done => return self.finish(pending, has_ended),
            Outcome::Failed(text) => refusal.with(ReplyCode::InternalError, text),
            Outcome::NotEmpty => {
                let queue = pending.only_if_empty.as_ref().map(|queue| queue.as_name());
                let named = queue.map_or("queue".to_owned(), |name| refusal.named(&name));
                refusal.precondition(format!("{named} not empty"))
            }
        };
        if planted(Fault::FailedIsDone) {
            let _ = self.finish(pending, has_ended);
            return Settled {
                answer: Err(failure),
                effects: Vec::new(),
            };
        }
        let made = pending.create.map(|queue| Effect::DeleteTopic(queue.id));
        Settled {
            answer: Err(failure),
            // What the server has to remove is to be removed all the same.
            effects: made.into_iter().chain(pending.removal).collect(),
        }
    }

    /// Counts an act of a connection off. Whether that has ended.
    fn end_act_of(&mut self, owner: Option<ConnectionId>) -> bool {
        let Some(owner) = owner else {
            return false;
        };
        match self.clients.get_mut(&owner) {
            Some(Client::Open { acts, .. }) => {
                *acts -= 1;
                false
            }
            Some(Client::Ended { acts }) => {
                *acts -= 1;
                if *acts == 0 {
                    self.clients.remove(&owner);
                }
                true
            }
            None => panic!("{owner} has an act, and is not known"),
        }
    }

    /// Makes the changes of an act.
    fn finish(&mut self, pending: Pending, has_ended: bool) -> Settled {
        let created = pending.create.as_ref();
        let orphan = created.filter(|queue| has_ended && queue.owner.is_some());
        let orphan = orphan
            .filter(|_| !planted(Fault::Orphan))
            .map(|queue| queue.id);
        let mut effects = Vec::new();
        for change in &pending.changes {
            if let (Change::QueueDeclared(_), Some(orphan)) = (change, orphan) {
                // Its connection has ended, and nobody else may use it: it was never there. It has no record.
                effects.push(Effect::DeleteTopic(orphan));
                continue;
            }
            if let Change::QueueDeleted(id) = change {
                self.queue_goes(*id, &mut effects);
            }
            let applied = self.apply(change);
            applied.unwrap_or_else(|unfit| panic!("the names of an act are held, and {unfit}"));
            if let Change::QueueDeclared(queue) = change {
                self.queue_comes(queue);
            }
        }
        let answer = match orphan {
            Some(_) => {
                let refusal = self.refusal(pending.method);
                Err(refusal.with(ReplyCode::ChannelError, "the connection has ended"))
            }
            None => Ok(pending.answer),
        };
        Settled { answer, effects }
    }

    fn owned_queues(&mut self, queue: &Queue) -> Option<&mut BTreeSet<QueueId>> {
        match self.clients.get_mut(&queue.owner?) {
            Some(Client::Open { queues, .. }) => Some(queues),
            _ => None,
        }
    }

    fn queue_comes(&mut self, queue: &Queue) {
        if let Some(queues) = self.owned_queues(queue) {
            queues.insert(queue.id);
        }
    }

    fn queue_goes(&mut self, id: QueueId, effects: &mut Vec<Effect>) {
        let consumers = self
            .state
            .consumers(id)
            .map_or(0, |consumers| consumers.count());
        if consumers > 0 {
            effects.push(Effect::CancelConsumers(id));
        }
        effects.push(Effect::DeleteTopic(id));
        let queue = self.state.queue(id).cloned();
        if let Some(queues) = queue.and_then(|queue| self.owned_queues(&queue)) {
            queues.remove(&id);
        }
    }

    /// A consumer ends. The queue may be gone.
    #[must_use = "its queue may have to be removed"]
    pub fn end_consumer(&mut self, consumer: Consumer) -> Option<Effect> {
        let id = consumer.queue;
        let consumers = self.state.consumers(id)?.without();
        let is_last = consumers.count() == 0;
        self.state.set_consumers(id, consumers);
        let is_auto = self.state.queue(id)?.auto_delete;
        (is_last && is_auto).then_some(Effect::RemoveQueue(id, Removal::Unused))
    }

    /// The queue that a connection means, for what does not change the virtual host: `basic.get`, `queue.purge`.
    ///
    /// # Errors
    /// If there is none, or it is another connection's.
    pub fn find_queue(
        &self,
        connection: ConnectionId,
        queue: &str,
        method: MethodId,
    ) -> Result<&Arc<Queue>, Failure> {
        let refusal = self.refusal(method);
        let name = stripped(queue);
        let Some(found) = self.state.queue_named(&name) else {
            return Err(refusal.not_found(&Name::Queue(name)));
        };
        found.check_access(connection, refusal)?;
        Ok(found)
    }

    /// Where a message goes that a client publishes.
    ///
    /// # Errors
    /// If there is no such exchange, if it is internal, or if CC or BCC are no list of keys.
    pub fn route(&self, message: &Message<'_>) -> Result<Routed, Failure> {
        let refusal = self.refusal(basic::Publish::ID);
        let Some(exchange) = self.state.exchange_named(message.exchange) else {
            return Err(refusal.not_found(&Name::Exchange(message.exchange.into())));
        };
        if exchange.internal && !planted(Fault::InternalIsOpen) {
            let named = refusal.named(&exchange.as_name());
            let text = format!("cannot publish to internal {named}");
            return Err(refusal.with(ReplyCode::AccessRefused, text));
        }
        let keys = Keys::of_message(message, self.limits.routing_keys_max)
            .map_err(|bad| refusal.precondition(bad.0))?;
        Ok(route(&self.state, exchange.id, &keys, message.headers))
    }

    /// Where a dead letter of a queue goes: `message` is as it was published. Nothing if the queue has no dead-letter
    /// exchange, or that is not there: then the letter is dropped.
    ///
    /// That a letter does not go round for ever is its caller's to see, by `x-death`.
    pub fn dead_letter(&self, queue: QueueId, message: &Message<'_>) -> Option<Routed> {
        let options = &self.state.queue(queue)?.options;
        let exchange = self
            .state
            .exchange_named(options.dead_letter_exchange.as_ref()?)?;
        let keys = match &options.dead_letter_routing_key {
            Some(key) if !planted(Fault::OwnKey) => Keys::of(key),
            _ => Keys::of_message(message, self.limits.routing_keys_max).ok()?,
        };
        Some(route(&self.state, exchange.id, &keys, message.headers))
    }

    /// Checks what always holds.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.state.check();
        let owned = |client: &Client| match client {
            Client::Open { queues, .. } => queues.clone(),
            Client::Ended { .. } => BTreeSet::new(),
        };
        let owned: BTreeSet<_> = self.clients.values().flat_map(owned).collect();
        let with_owner = |queue: &&Arc<Queue>| {
            let owner = queue.owner.and_then(|owner| self.clients.get(&owner));
            matches!(owner, Some(Client::Open { .. }))
        };
        let there: BTreeSet<_> = self
            .queues()
            .filter(with_owner)
            .map(|queue| queue.id)
            .collect();
        assert_eq!(owned, there, "exclusive queues are their connections'");
        if self.is_quiet() {
            assert!(self.reservations.is_empty(), "{:?}", self.reservations);
            assert_eq!(self.additions, Additions::default());
            let is_open = |client: &Client| matches!(client, Client::Open { acts: 0, .. });
            assert!(self.clients.values().all(is_open));
        }
    }

    /// What a restart would find.
    #[cfg(test)]
    pub(crate) fn durable(&self) -> Vec<Record> {
        self.state.records()
    }
}
