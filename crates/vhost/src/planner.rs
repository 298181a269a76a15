//! Checks an act against what is there, and says what it changes.

use crate::act::{Answer, Removal};
use crate::arguments::Arguments;
use crate::binding::Binding;
use crate::change::Change;
use crate::exchange::{Exchange, ExchangeKind};
use crate::faults::{Fault, planted};
use crate::headers::Pattern;
use crate::id::{ActId, ConnectionId, Destination, ExchangeId, Ids, QueueId};
use crate::limits::Limits;
use crate::name::{DirectReply, Name, generated, is_reserved, stripped};
use crate::queue::{Consumers, Queue, QueueOptions};
use crate::refusal::Refusal;
use crate::reservation::{Hold, Names, Reservations};
use crate::state::State;
use amqp::{Failure, ReplyCode, Table, basic, exchange, queue};
use std::sync::Arc;

/// What acts under way add when they are done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Additions {
    pub queues: usize,
    pub exchanges: usize,
    pub bindings: usize,
    /// Of names, keys and arguments.
    pub bytes: usize,
}

impl Additions {
    pub const fn with(self, more: Self) -> Self {
        Self {
            queues: self.queues + more.queues,
            exchanges: self.exchanges + more.exchanges,
            bindings: self.bindings + more.bindings,
            bytes: self.bytes + more.bytes,
        }
    }

    pub const fn without(self, less: Self) -> Self {
        Self {
            queues: self.queues - less.queues,
            exchanges: self.exchanges - less.exchanges,
            bindings: self.bindings - less.bindings,
            bytes: self.bytes - less.bytes,
        }
    }
}

/// What an act comes to when nothing is in its way.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It changes nothing.
    Done(Answer),
    Change(Intent),
}

/// What an act changes, and what it holds meanwhile.
#[derive(Debug)]
pub(crate) struct Intent {
    pub names: Names,
    pub changes: Vec<Change>,
    pub answer: Answer,
    pub create: Option<Arc<Queue>>,
    pub only_if_empty: Option<Arc<Queue>>,
}

impl Intent {
    fn new(answer: Answer) -> Self {
        Self {
            names: Names::default(),
            changes: Vec::new(),
            answer,
            create: None,
            only_if_empty: None,
        }
    }
}

/// What a new consumer is of.
#[derive(Debug)]
pub(crate) enum Consumption {
    /// A queue, whose consumers are these now.
    Queue(QueueId, Consumers),
    DirectReply(DirectReply),
}

/// Why there is no decision.
#[derive(Debug)]
pub(crate) enum Stop {
    Wait(ActId),
    Refused(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

type Decided = Result<Decision, Stop>;

/// One look at one act.
pub(crate) struct Planner<'a> {
    pub state: &'a State,
    pub ids: &'a mut Ids,
    pub reservations: &'a Reservations,
    pub limits: &'a Limits,
    pub additions: Additions,
    pub refusal: Refusal<'a>,
}

/// The ends of a binding as a client names them, and what it says of it.
pub(crate) struct Ends<'a> {
    pub source: &'a str,
    pub destination: Name,
    pub key: &'a str,
    pub arguments: &'a Table,
}

/// What a binding becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bind {
    Bound,
    Unbound,
}

/// An id that follows from a name, for the fault that gives such.
fn by_name(name: &str) -> u64 {
    name.bytes().fold(1 << 32, |id, byte| id + u64::from(byte))
}

impl Planner<'_> {
    /// What is there may be about to change: then that is waited for.
    fn settled(&self, name: &Name) -> Result<(), Stop> {
        match self.reservations.in_the_way(name, Hold::Shared) {
            Some(act) if !planted(Fault::Early) => Err(Stop::Wait(act)),
            _ => Ok(()),
        }
    }

    fn check_arguments(&self, name: &Name, arguments: &Table) -> Result<(), Failure> {
        let (bytes, max) = (arguments.as_bytes().len(), self.limits.argument_bytes_max);
        match bytes > max {
            true => {
                let named = self.refusal.named(name);
                Err(self.refusal.arguments_too_long(&named, bytes, max))
            }
            false => Ok(()),
        }
    }

    /// Whether there is space for what has so many bytes.
    fn check_space(&self, name: &Name, bytes: usize) -> Result<(), Failure> {
        let max = self.limits.bytes_max;
        if self.state.bytes() + self.additions.bytes + bytes <= max {
            return Ok(());
        }
        let (named, vhost) = (self.refusal.named(name), self.refusal.vhost);
        let text = format!(
            "no space for {named}: names, keys and arguments in vhost '{vhost}' may have {max} bytes together"
        );
        Err(self.refusal.precondition(text))
    }

    pub fn declare_exchange(mut self, declare: &exchange::Declare) -> Decided {
        if declare.passive {
            return self.find_exchange(&declare.exchange);
        }
        let Some(kind) = ExchangeKind::of(&declare.kind) else {
            let text = format!("unknown exchange type '{}'", &*declare.kind);
            return Err(self.refusal.precondition(text).into());
        };
        let name = self.exchange_name(&declare.exchange)?;
        self.settled(&name)?;
        let mut wanted = Exchange {
            id: ExchangeId(0),
            name: name.as_str().into(),
            kind,
            durable: declare.durable,
            auto_delete: declare.auto_delete,
            internal: declare.internal,
            arguments: Arguments::default(),
        };
        self.check_arguments(&name, &declare.arguments)?;
        wanted.arguments = Arguments::of(&declare.arguments);
        if let Some(found) = self.state.exchange_named(name.as_str()) {
            if !planted(Fault::NotCompared) {
                found.check_same(&wanted, self.refusal)?;
            }
            return Ok(Decision::Done(Answer::ExchangeDeclared(found.id)));
        }
        if is_reserved(name.as_str()) {
            return Err(self.refusal.reserved(&name).into());
        }
        let checked = wanted.check();
        checked.map_err(|error| self.refusal.argument(&name, &error))?;
        let max = self.limits.exchanges_max;
        if self.state.exchange_count() + self.additions.exchanges >= max {
            let named = self.refusal.named(&name);
            let text = format!("cannot declare {named}: exchange limit of {max} is reached");
            return Err(self.refusal.precondition(text).into());
        }
        self.check_space(&name, wanted.bytes())?;
        let (id, reserve) = self.take_id();
        wanted.id = ExchangeId(id);
        let mut intent = Intent::new(Answer::ExchangeDeclared(wanted.id));
        intent.names.add(name, Hold::Exclusive);
        intent.changes.extend(reserve);
        intent
            .changes
            .push(Change::ExchangeDeclared(Arc::new(wanted)));
        Ok(Decision::Change(intent))
    }

    fn find_exchange(&self, name: &str) -> Decided {
        let name = self.exchange_name(name)?;
        self.settled(&name)?;
        match self.state.exchange_named(name.as_str()) {
            Some(found) => Ok(Decision::Done(Answer::ExchangeDeclared(found.id))),
            None => Err(self.refusal.not_found(&name).into()),
        }
    }

    /// The name of an exchange that is not the default one.
    fn exchange_name(&self, name: &str) -> Result<Name, Failure> {
        let name = stripped(name);
        match name.is_empty() {
            true => Err(self.refusal.default_exchange()),
            false => Ok(Name::Exchange(name)),
        }
    }

    fn take_id(&mut self) -> (u64, Option<Change>) {
        let (id, reserve) = self.ids.take();
        (id, reserve.map(|below| Change::IdsReserved { below }))
    }

    pub fn delete_exchange(self, delete: &exchange::Delete) -> Decided {
        let name = self.exchange_name(&delete.exchange)?;
        if is_reserved(name.as_str()) {
            let named = self.refusal.named(&name);
            let text = format!("deletion of system {named} not allowed");
            return Err(self.refusal.with(ReplyCode::AccessRefused, text).into());
        }
        self.settled(&name)?;
        let Some(found) = self.state.exchange_named(name.as_str()) else {
            return Ok(Decision::Done(Answer::ExchangeDeleted));
        };
        let mut intent = Intent::new(Answer::ExchangeDeleted);
        if delete.if_unused {
            // A binding that is being made holds the name, so that this is looked at again when it is there.
            if self.state.bindings().count_from(found.id) > 0 {
                let text = format!("{} in use", self.refusal.named(&name));
                return Err(self.refusal.precondition(text).into());
            }
        }
        self.go(&[Destination::Exchange(found.id)], None, &mut intent);
        Ok(Decision::Change(intent))
    }

    pub fn declare_queue(
        mut self,
        connection: ConnectionId,
        declare: &queue::Declare,
        chance: u128,
    ) -> Decided {
        let asked = stripped(&declare.queue);
        if let Some(reply) = DirectReply::of(&asked) {
            return Ok(Decision::Done(Answer::DirectReply(reply)));
        }
        if declare.passive {
            return self.find_queue(connection, asked);
        }
        let name = match asked.is_empty() {
            true => self.free_name(chance),
            false => Name::Queue(asked.clone()),
        };
        if !asked.is_empty() && is_reserved(&asked) {
            return Err(self.refusal.reserved(&name).into());
        }
        self.settled(&name)?;
        self.check_arguments(&name, &declare.arguments)?;
        let mut wanted = Queue {
            id: QueueId(0),
            name: name.as_str().into(),
            durable: declare.durable && !declare.exclusive,
            auto_delete: declare.auto_delete,
            owner: declare.exclusive.then_some(connection),
            arguments: Arguments::of(&declare.arguments),
            options: QueueOptions::default(),
        };
        if let Some(found) = self.state.queue_named(name.as_str()) {
            found.check_same(&wanted, self.refusal)?;
            return Ok(Decision::Done(self.declared(found)));
        }
        wanted.options = QueueOptions::parse(&wanted.arguments)
            .map_err(|error| self.refusal.argument(&name, &error))?;
        let max = self.limits.queues_max;
        if self.state.queue_count() + self.additions.queues >= max {
            let (name, vhost) = (name.as_str(), self.refusal.vhost);
            let text = format!(
                "cannot declare queue '{name}': queue limit in vhost '{vhost}' ({max}) is reached"
            );
            return Err(self.refusal.precondition(text).into());
        }
        self.check_space(&name, wanted.bytes())?;
        let (id, reserve) = self.take_id();
        wanted.id = QueueId(match planted(Fault::ByName) {
            true => by_name(name.as_str()),
            false => id,
        });
        let wanted = Arc::new(wanted);
        let mut intent = Intent::new(Answer::QueueDeclared {
            queue: wanted.clone(),
            consumers: 0,
        });
        intent.names.add(name, Hold::Exclusive);
        intent.changes.extend(reserve);
        intent.changes.push(Change::QueueDeclared(wanted.clone()));
        intent.create = Some(wanted);
        Ok(Decision::Change(intent))
    }

    /// The queue that a consumer is to have, and its consumers with it.
    pub fn consume(
        self,
        connection: ConnectionId,
        consume: &basic::Consume,
    ) -> Result<Consumption, Stop> {
        let name = stripped(&consume.queue);
        if let Some(reply) = DirectReply::of(&name) {
            return Ok(Consumption::DirectReply(reply));
        }
        let name = Name::Queue(name);
        self.settled(&name)?;
        let Some(found) = self.state.queue_named(name.as_str()) else {
            return Err(self.refusal.not_found(&name).into());
        };
        found.check_access(connection, self.refusal)?;
        let consumers = self
            .state
            .consumers(found.id)
            .expect("a queue has its consumers");
        match consumers.with(consume.exclusive) {
            Some(consumers) => Ok(Consumption::Queue(found.id, consumers)),
            None => {
                let text = format!("{} in exclusive use", self.refusal.named(&name));
                Err(self.refusal.with(ReplyCode::AccessRefused, text).into())
            }
        }
    }

    /// A name that nobody has. Chance finds one at once; what follows is for chance that is none.
    fn free_name(&self, chance: u128) -> Name {
        let is_free = |name: &Name| {
            let is_held = self
                .reservations
                .in_the_way(name, Hold::Exclusive)
                .is_some();
            !is_held && self.state.queue_named(name.as_str()).is_none()
        };
        let mut names = (0..).map(|step| Name::Queue(generated(chance.wrapping_add(step))));
        names
            .find(is_free)
            .expect("there are more names than queues")
    }

    fn declared(&self, queue: &Arc<Queue>) -> Answer {
        let consumers = self.state.consumers(queue.id);
        Answer::QueueDeclared {
            queue: queue.clone(),
            consumers: consumers.map_or(0, |consumers| consumers.count()),
        }
    }

    fn find_queue(&self, connection: ConnectionId, name: Arc<str>) -> Decided {
        let name = Name::Queue(name);
        self.settled(&name)?;
        let Some(found) = self.state.queue_named(name.as_str()) else {
            return Err(self.refusal.not_found(&name).into());
        };
        found.check_access(connection, self.refusal)?;
        Ok(Decision::Done(self.declared(found)))
    }

    pub fn delete_queue(self, connection: ConnectionId, delete: &queue::Delete) -> Decided {
        let name = Name::Queue(stripped(&delete.queue));
        self.settled(&name)?;
        let Some(found) = self.state.queue_named(name.as_str()).cloned() else {
            return Ok(Decision::Done(Answer::QueueDeleted(None)));
        };
        found.check_access(connection, self.refusal)?;
        let consumers = self.state.consumers(found.id).map_or(0, |one| one.count());
        if delete.if_unused && consumers > 0 {
            let text = format!("{} in use", self.refusal.named(&name));
            return Err(self.refusal.precondition(text).into());
        }
        let mut intent = Intent::new(Answer::QueueDeleted(Some(found.id)));
        self.go(&[Destination::Queue(found.id)], None, &mut intent);
        intent.only_if_empty = delete.if_empty.then_some(found);
        Ok(Decision::Change(intent))
    }

    /// The server removes a queue, which it knows by its id.
    pub fn remove_queue(self, id: QueueId, removal: Removal) -> Decided {
        let done = || Ok(Decision::Done(Answer::QueueDeleted(None)));
        let Some(found) = self.state.queue(id) else {
            return done();
        };
        let name = found.as_name();
        self.settled(&name)?;
        let consumers = self.state.consumers(id).map_or(0, |one| one.count());
        let is_used = consumers > 0 && removal != Removal::Disconnected;
        if is_used && !planted(Fault::InUse) {
            return done();
        }
        let mut intent = Intent::new(Answer::QueueDeleted(Some(id)));
        self.go(&[Destination::Queue(id)], None, &mut intent);
        Ok(Decision::Change(intent))
    }

    pub fn bind(self, connection: ConnectionId, bind: Bind, ends: &Ends<'_>) -> Decided {
        if let Name::Queue(queue) = &ends.destination
            && let Some(DirectReply::Address(_)) = DirectReply::of(queue)
        {
            let text = "cannot bind or unbind to a volatile (direct reply-to) queue";
            return Err(self.refusal.with(ReplyCode::AccessRefused, text).into());
        }
        if matches!(&ends.destination, Name::Exchange(name) if name.is_empty()) {
            return Err(self.refusal.default_exchange().into());
        }
        let source_name = self.exchange_name(ends.source)?;
        self.settled(&source_name)?;
        self.settled(&ends.destination)?;
        self.check_arguments(&ends.destination, ends.arguments)?;
        let source = self.state.exchange_named(source_name.as_str());
        let destination = match &ends.destination {
            Name::Queue(name) => self.state.queue_id(name).map(Destination::Queue),
            Name::Exchange(name) => {
                let found = self.state.exchange_named(name);
                found.map(|found| Destination::Exchange(found.id))
            }
        };
        let (source, destination) = match (source, destination) {
            (Some(source), Some(destination)) => (source, destination),
            // What is not there is not bound.
            _ if bind == Bind::Unbound => return Ok(Decision::Done(Answer::Unbound)),
            (None, _) => return Err(self.refusal.not_found(&source_name).into()),
            (_, None) => return Err(self.refusal.not_found(&ends.destination).into()),
        };
        let binding = Binding {
            source: source.id,
            destination,
            key: ends.key.into(),
            arguments: Arguments::of(ends.arguments),
        };
        if bind == Bind::Bound && source.kind == ExchangeKind::Headers {
            Pattern::parse(&binding.arguments).map_err(|why| self.refusal.precondition(why))?;
        }
        if let Destination::Queue(id) = destination
            && let Some(queue) = self.state.queue(id)
        {
            queue.check_access(connection, self.refusal)?;
        }
        match (bind, self.state.bindings().has(&binding)) {
            (Bind::Bound, true) => Ok(Decision::Done(Answer::Bound)),
            (Bind::Unbound, false) => Ok(Decision::Done(Answer::Unbound)),
            (Bind::Bound, false) => self.add_binding(source_name, &ends.destination, binding),
            (Bind::Unbound, true) => {
                let mut intent = Intent::new(Answer::Unbound);
                self.go(&[], Some(Arc::new(binding)), &mut intent);
                Ok(Decision::Change(intent))
            }
        }
    }

    fn add_binding(&self, source: Name, destination: &Name, binding: Binding) -> Decided {
        let max = self.limits.bindings_max;
        if self.state.bindings().count() + self.additions.bindings >= max {
            let (named, vhost) = (self.refusal.named(destination), self.refusal.vhost);
            let text =
                format!("cannot bind {named}: binding limit in vhost '{vhost}' ({max}) is reached");
            return Err(self.refusal.precondition(text).into());
        }
        self.check_space(destination, self.state.cost(&binding))?;
        let mut intent = Intent::new(Answer::Bound);
        intent.names.add(source, Hold::Shared);
        intent.names.add(destination.clone(), Hold::Exclusive);
        intent.changes.push(Change::Bound(Arc::new(binding)));
        Ok(Decision::Change(intent))
    }

    /// Destinations or a binding go, and what goes with the last of its bindings.
    ///
    /// Two acts that touch one binding are in each other's way: each holds its destination alone and its source, or its
    /// source alone. One that takes a binding from an auto-delete exchange holds that alone, so that of two acts that
    /// take the last two bindings one sees that it takes the last.
    fn go(&self, gone: &[Destination], unbound: Option<Arc<Binding>>, intent: &mut Intent) {
        let state = self.state;
        let cascade = state.cascade(gone, unbound.as_deref());
        let also = cascade.iter().map(|id| Destination::Exchange(*id));
        let all: Vec<_> = gone.iter().copied().chain(also).collect();
        let into = all
            .iter()
            .flat_map(|destination| state.bindings().of_destination(*destination));
        for binding in into.chain(&unbound) {
            let source = state
                .exchange(binding.source)
                .expect("a binding has its ends");
            let hold = match source.auto_delete {
                true => Hold::Exclusive,
                false => Hold::Shared,
            };
            intent.names.add(source.as_name(), hold);
        }
        let unbound_from = unbound.as_ref().map(|binding| binding.destination);
        for destination in all.iter().copied().chain(unbound_from) {
            let name = match destination {
                Destination::Queue(id) => state.queue(id).map(|queue| queue.as_name()),
                Destination::Exchange(id) => state.exchange(id).map(|found| found.as_name()),
            };
            let name = name.expect("what goes is there");
            intent.names.add(name, Hold::Exclusive);
        }
        intent.changes.extend(unbound.map(Change::Unbound));
        intent
            .changes
            .extend(all.into_iter().map(|destination| match destination {
                Destination::Queue(id) => Change::QueueDeleted(id),
                Destination::Exchange(id) => Change::ExchangeDeleted(id),
            }));
    }
}
