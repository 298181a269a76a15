//! A virtual host with an owner who carries out what it says, for tests.

use crate::*;
use amqp::{Failure, ShortString, Table, basic, exchange as xc, queue as qu};
use std::collections::BTreeSet;

pub(crate) fn short(text: &str) -> ShortString {
    ShortString::try_from(text).unwrap()
}

pub(crate) fn declare(queue: &str) -> qu::Declare {
    qu::Declare {
        queue: short(queue),
        ..qu::Declare::default()
    }
}

pub(crate) fn delete(queue: &str) -> qu::Delete {
    qu::Delete {
        queue: short(queue),
        ..qu::Delete::default()
    }
}

pub(crate) fn exchange(name: &str, kind: &str) -> xc::Declare {
    xc::Declare {
        exchange: short(name),
        kind: short(kind),
        ..xc::Declare::default()
    }
}

pub(crate) fn delete_exchange(name: &str) -> xc::Delete {
    xc::Delete {
        exchange: short(name),
        ..xc::Delete::default()
    }
}

pub(crate) fn bind(queue: &str, exchange: &str, key: &str, arguments: Table) -> qu::Bind {
    qu::Bind {
        queue: short(queue),
        exchange: short(exchange),
        routing_key: short(key),
        no_wait: false,
        arguments,
    }
}

pub(crate) fn unbind(queue: &str, exchange: &str, key: &str, arguments: Table) -> qu::Unbind {
    qu::Unbind {
        queue: short(queue),
        exchange: short(exchange),
        routing_key: short(key),
        arguments,
    }
}

pub(crate) fn bind_exchange(to: &str, from: &str, key: &str, arguments: Table) -> xc::Bind {
    xc::Bind {
        destination: short(to),
        source: short(from),
        routing_key: short(key),
        no_wait: false,
        arguments,
    }
}

pub(crate) fn unbind_exchange(to: &str, from: &str, key: &str, arguments: Table) -> xc::Unbind {
    xc::Unbind {
        destination: short(to),
        source: short(from),
        routing_key: short(key),
        no_wait: false,
        arguments,
    }
}

pub(crate) fn consume(queue: &str) -> basic::Consume {
    basic::Consume {
        queue: short(queue),
        ..basic::Consume::default()
    }
}

macro_rules! acts {
    ($($variant:ident: $type:ty),*) => {$(
        impl From<$type> for Act {
            fn from(method: $type) -> Self {
                Self::$variant(method)
            }
        }
    )*};
}

acts!(
    DeclareExchange: xc::Declare, DeleteExchange: xc::Delete, BindExchange: xc::Bind, UnbindExchange: xc::Unbind,
    DeleteQueue: qu::Delete, BindQueue: qu::Bind, UnbindQueue: qu::Unbind, Consume: basic::Consume
);

impl From<qu::Declare> for Act {
    fn from(declare: qu::Declare) -> Self {
        let chance = 7;
        Self::DeclareQueue { declare, chance }
    }
}

/// A virtual host, the topics of its queues, and its log.
pub(crate) struct Rig {
    pub vhost: Vhost,
    pub topics: BTreeSet<QueueId>,
    /// Ids that some queue has had.
    pub ids: BTreeSet<QueueId>,
    pub log: Vec<Vec<u8>>,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Self {
        Self {
            vhost: Vhost::new("/", limits),
            topics: BTreeSet::new(),
            ids: BTreeSet::new(),
            log: Vec::new(),
        }
    }

    /// Asks for something that nothing is in the way of, carries it out, and what follows from it.
    pub fn ask(
        &mut self,
        connection: ConnectionId,
        act: impl Into<Act>,
    ) -> Result<Answer, Failure> {
        match self.vhost.claim(connection, &act.into())? {
            Claimed::Done(answer) => Ok(answer),
            Claimed::Begun(plan) => {
                self.make(&plan);
                self.append(&plan);
                self.settle(&plan, Outcome::Done)
            }
            Claimed::Wait(act) => panic!("waits for {act}"),
        }
    }

    pub fn make(&mut self, plan: &Plan) {
        if let Some(queue) = &plan.create {
            assert!(self.ids.insert(queue.id), "{} is used again", queue.id);
            self.topics.insert(queue.id);
        }
    }

    pub fn append(&mut self, plan: &Plan) {
        self.log.extend(plan.records.iter().map(Record::encode));
    }

    pub fn settle(&mut self, plan: &Plan, outcome: Outcome) -> Result<Answer, Failure> {
        let settled = self.vhost.settle(plan.act, outcome);
        self.carry_out(settled.effects);
        settled.answer
    }

    /// Carries out effects, and those that follow from them.
    pub fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::DeleteTopic(queue) => {
                    assert!(self.topics.remove(&queue), "{queue} has no topic");
                }
                Effect::CancelConsumers(_) => {}
                Effect::RemoveQueue(queue, removal) => {
                    match self.vhost.remove_queue(queue, removal) {
                        Claimed::Begun(plan) => {
                            self.append(&plan);
                            self.settle(&plan, Outcome::Done).unwrap();
                        }
                        Claimed::Done(_) => {}
                        Claimed::Wait(act) => panic!("waits for {act}"),
                    }
                }
            }
        }
    }

    pub fn disconnect(&mut self, connection: ConnectionId) {
        let effects = self.vhost.disconnect(connection);
        self.carry_out(effects);
    }

    pub fn end(&mut self, consumer: Consumer) {
        let effect = self.vhost.end_consumer(consumer);
        self.carry_out(effect.into_iter().collect());
    }

    /// What the log makes.
    pub fn recovered(&self) -> Vhost {
        let records = self.log.iter().map(|bytes| Record::decode(bytes).unwrap());
        Vhost::recover("/", Limits::default(), records).unwrap()
    }

    /// The names of the queues that a message goes to.
    pub fn route(&self, message: &Message<'_>) -> Result<Vec<String>, Failure> {
        Ok(self.names(&self.vhost.route(message)?))
    }

    pub fn names(&self, routed: &Routed) -> Vec<String> {
        let names = routed
            .queues
            .iter()
            .map(|id| self.vhost.queue(*id).unwrap().name.to_string());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// The same for a message without headers.
    pub fn to(&self, exchange: &str, routing_key: &str) -> Vec<String> {
        let message = Message {
            exchange,
            routing_key,
            headers: None,
        };
        self.route(&message).unwrap()
    }
}
