//! Acts by chance, one after the other, against the model.

use super::model::Model;
use super::rig::Rig;
use super::{Chance, seeds};
use crate::faults::{Fault, with};
use crate::*;
use amqp::{Array, Table, Value};

/// One run: a virtual host, the model, and what clients hold.
struct Run {
    rig: Rig,
    model: Model,
    connections: Vec<ConnectionId>,
    consumers: Vec<(ConnectionId, Consumer)>,
    hint: String,
}

fn number(connection: ConnectionId) -> usize {
    connection.0 as usize
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rig = Rig::new();
        let connections = (0..3).map(|_| rig.vhost.connect()).collect();
        Self {
            rig,
            model: Model::new(),
            connections,
            consumers: Vec::new(),
            hint: format!("VHOST_SEEDS={seed}..{}", seed + 1),
        }
    }

    fn act(&mut self, chance: &mut Chance) {
        let connection = self.connections[chance.below(3)];
        let act = chance.act();
        let expected = self.model.ask(number(connection), &act);
        let found = self.rig.ask(connection, act.clone());
        let code = found
            .as_ref()
            .map(drop)
            .map_err(|failure| failure.code.number());
        assert_eq!(code, expected, "{}: {act:?}: {found:?}", self.hint);
        match found {
            Ok(Answer::Consuming(consumer)) => self.consumers.push((connection, consumer)),
            Ok(_) => {}
            Err(failure) => assert_eq!(failure.method, Some(act.method()), "{}", self.hint),
        }
    }

    fn end_consumer(&mut self, index: usize) {
        let (_, consumer) = self.consumers.swap_remove(index);
        let queue = self.rig.vhost.queue(consumer.queue()).cloned();
        self.rig.end(consumer);
        if let Some(queue) = queue {
            self.model.end_consumer(&queue.name);
        }
    }

    fn disconnect(&mut self, index: usize) {
        let connection = self.connections[index];
        while let Some(own) = self.consumers.iter().position(|(of, _)| *of == connection) {
            self.end_consumer(own);
        }
        self.rig.disconnect(connection);
        self.model.disconnect(number(connection));
        self.connections[index] = self.rig.vhost.connect();
    }

    fn restart(&mut self) {
        self.rig.vhost = self.rig.recovered();
        let vhost = &self.rig.vhost;
        self.rig
            .topics
            .retain(|queue| vhost.queue(*queue).is_some());
        self.model.restart();
        self.consumers.clear();
        for connection in &mut self.connections {
            *connection = self.rig.vhost.connect();
        }
    }

    fn check(&mut self, chance: &mut Chance) {
        let (queues, exchanges, bindings) = self.model.names();
        let vhost = &self.rig.vhost;
        let found: Vec<_> = vhost.queues().map(|queue| queue.name.to_string()).collect();
        assert_eq!(
            found.into_iter().collect::<std::collections::BTreeSet<_>>(),
            queues
        );
        let found = vhost.exchanges().map(|exchange| exchange.name.to_string());
        assert_eq!(
            found.collect::<std::collections::BTreeSet<_>>(),
            exchanges,
            "{}",
            self.hint
        );
        assert_eq!(vhost.binding_count(), bindings, "{}", self.hint);
        let topics = vhost.queues().map(|queue| queue.id).collect();
        assert_eq!(self.rig.topics, topics, "{}", self.hint);
        vhost.check();
        for _ in 0..2 {
            self.publish(chance);
        }
    }

    fn publish(&self, chance: &mut Chance) {
        let names = [
            "x0",
            "x1",
            "x2",
            "x3",
            "",
            "amq.topic",
            "amq.fanout",
            "amq.rabbitmq.trace",
        ];
        let exchange = chance.of(&names);
        let mut keys = vec![chance.key()];
        if exchange.is_empty() || chance.one_in(3) {
            keys[0] = chance.of(&["q0", "q1", "a", "b"]).to_owned();
        }
        let headers = chance.headers(false);
        let mut fields: Vec<_> = headers.fields().collect();
        for name in ["CC", "BCC"] {
            if chance.one_in(4) {
                let copies: Vec<_> = (0..chance.below(3)).map(|_| chance.pattern()).collect();
                let values = copies.iter().map(|key| Value::text(key));
                let field = amqp::ShortBytes::try_from(name.as_bytes()).unwrap();
                fields.push((field, Value::Array(Array::of(values))));
                keys.extend(copies);
            }
        }
        let fields = fields
            .iter()
            .map(|(name, value)| (name.as_str().unwrap(), value.clone()));
        let table = Table::of(fields);
        let message = Message {
            exchange,
            routing_key: &keys[0],
            headers: Some(&table),
        };
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let expected = self.model.publish(exchange, &keys, &headers);
        let found = self
            .rig
            .route(&message)
            .map_err(|failure| failure.code.number());
        assert_eq!(found, expected, "{}: {exchange} {keys:?}", self.hint);
    }
}

fn acts_end_as_in_the_model_for(count: u64) {
    for seed in seeds(count) {
        let mut chance = Chance(seed);
        let mut run = Run::new(seed);
        for _ in 0..150 {
            match chance.below(60) {
                0 => run.restart(),
                1..3 => run.disconnect(chance.below(3)),
                3..7 if !run.consumers.is_empty() => {
                    let index = chance.below(run.consumers.len());
                    run.end_consumer(index);
                }
                _ => run.act(&mut chance),
            }
            run.check(&mut chance);
        }
    }
}

#[test]
fn acts_end_as_in_the_model() {
    acts_end_as_in_the_model_for(300);
}

macro_rules! noticed {
    ($($name:ident: $fault:ident,)*) => {$(
        #[test]
        #[should_panic]
        fn $name() {
            with(Fault::$fault, || acts_end_as_in_the_model_for(300));
        }
    )*};
}

noticed! {
    a_hash_that_is_one_word_is_noticed: HashIsOneWord,
    a_star_that_is_no_word_is_noticed: StarIsNoWord,
    nodes_that_are_left_are_noticed: LeftNodes,
    all_that_is_any_is_noticed: AllIsAny,
    a_queue_that_gets_a_message_twice_is_noticed: Twice,
    an_alternate_exchange_that_gets_all_is_noticed: AlternateAlways,
    an_internal_exchange_that_is_open_is_noticed: InternalIsOpen,
    copies_that_go_nowhere_are_noticed: NoCopies,
    a_second_declaration_that_is_not_compared_is_noticed: NotCompared,
    an_exclusive_queue_that_others_use_is_noticed: Shared,
    an_auto_delete_exchange_that_stays_is_noticed: NoCascade,
    a_cascade_without_records_is_noticed: UnrecordedCascade,
    records_of_what_is_not_durable_are_noticed: RecordsAll,
    an_id_that_follows_from_a_name_is_noticed: ByName,
    ids_that_begin_again_are_noticed: IdsAgain,
}
