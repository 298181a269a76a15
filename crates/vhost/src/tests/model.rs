//! A virtual host by the book: lists that are looked through, one act at a time.

use crate::Act;
use amqp::{Table, Value, exchange as xc, queue as qu};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq)]
struct Exchange {
    name: String,
    kind: String,
    flags: [bool; 3],
    alternate: Option<String>,
}

#[derive(Debug, Clone)]
struct Queue {
    name: String,
    owner: Option<usize>,
    durable: bool,
    auto_delete: bool,
    length_max: Option<i64>,
    consumers: Vec<bool>,
}

#[derive(Debug, Clone, PartialEq)]
struct Binding {
    from: String,
    to_queue: bool,
    to: String,
    key: String,
    fields: BTreeMap<String, String>,
}

/// What is in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    exchanges: Vec<Exchange>,
    queues: Vec<Queue>,
    bindings: Vec<Binding>,
}

fn is_match(pattern: &[&str], words: &[&str]) -> bool {
    match pattern {
        [] => words.is_empty(),
        ["#", rest @ ..] => (0..=words.len()).any(|count| is_match(rest, &words[count..])),
        ["*", rest @ ..] => !words.is_empty() && is_match(rest, &words[1..]),
        [word, rest @ ..] => words.first() == Some(word) && is_match(rest, &words[1..]),
    }
}

fn words(key: &str) -> Vec<&str> {
    match key {
        "" => Vec::new(),
        key => key.split('.').collect(),
    }
}

/// A value without the width of its integer.
fn text(value: &Value) -> String {
    match value.as_integer() {
        Some(number) => format!("number {number}"),
        None => format!("{value:?}"),
    }
}

fn fields(table: &Table) -> BTreeMap<String, String> {
    let fields = table.fields();
    let fields = fields.map(|(name, value)| (name.as_str().unwrap().to_owned(), text(&value)));
    fields.collect()
}

/// By the types that bindings differ in.
fn exact(table: &Table) -> BTreeMap<String, String> {
    let fields = table.fields();
    fields
        .map(|(name, value)| (name.as_str().unwrap().to_owned(), format!("{value:?}")))
        .collect()
}

fn has_headers(asked: &BTreeMap<String, String>, headers: &BTreeMap<String, String>) -> bool {
    let how = asked.get("x-match").map(String::as_str).unwrap_or_default();
    let (any, with_x) = (how.contains("any"), how.contains("with-x"));
    let mut results = Vec::new();
    for (name, wanted) in asked {
        if name == "x-match" || (name.starts_with("x-") && !with_x) {
            continue;
        }
        let found = headers.get(name);
        results.push(match wanted.as_str() {
            "Void" => found.is_some(),
            wanted => found.is_some_and(|found| found == wanted),
        });
    }
    match any {
        true => results.contains(&true),
        false => !results.contains(&false),
    }
}

impl Model {
    pub fn new() -> Self {
        let mut model = Self::default();
        let predeclared = [
            ("", "direct"),
            ("amq.direct", "direct"),
            ("amq.fanout", "fanout"),
            ("amq.topic", "topic"),
            ("amq.headers", "headers"),
            ("amq.match", "headers"),
            ("amq.rabbitmq.trace", "topic"),
        ];
        for (name, kind) in predeclared {
            model.exchanges.push(Exchange {
                name: name.to_owned(),
                kind: kind.to_owned(),
                flags: [true, false, name == "amq.rabbitmq.trace"],
                alternate: None,
            });
        }
        model
    }

    fn exchange(&self, name: &str) -> Option<&Exchange> {
        self.exchanges.iter().find(|exchange| exchange.name == name)
    }

    fn queue(&self, name: &str) -> Option<&Queue> {
        self.queues.iter().find(|queue| queue.name == name)
    }

    pub fn names(&self) -> (BTreeSet<String>, BTreeSet<String>, usize) {
        let queues = self.queues.iter().map(|queue| queue.name.clone()).collect();
        let exchanges = self
            .exchanges
            .iter()
            .map(|exchange| exchange.name.clone())
            .collect();
        (queues, exchanges, self.bindings.len())
    }

    /// The code of the refusal, if it is one.
    pub fn ask(&mut self, connection: usize, act: &Act) -> Result<(), u16> {
        match act {
            Act::DeclareExchange(declare) => self.declare_exchange(declare),
            Act::DeleteExchange(delete) => self.delete_exchange(delete),
            Act::DeclareQueue { declare, .. } => self.declare_queue(connection, declare),
            Act::DeleteQueue(delete) => self.delete_queue(connection, delete),
            Act::BindExchange(bind) => self.bind(
                connection,
                &bind.source,
                false,
                &bind.destination,
                |binding| {
                    binding.key = bind.routing_key.to_string();
                    binding.fields = exact(&bind.arguments);
                },
            ),
            Act::BindQueue(bind) => {
                self.bind(connection, &bind.exchange, true, &bind.queue, |binding| {
                    binding.key = bind.routing_key.to_string();
                    binding.fields = exact(&bind.arguments);
                })
            }
            Act::UnbindExchange(unbind) => {
                let (from, to) = (&unbind.source, &unbind.destination);
                let (key, arguments) = (&unbind.routing_key, &unbind.arguments);
                self.unbind(connection, from, (false, to), key, arguments)
            }
            Act::UnbindQueue(unbind) => {
                let (from, to) = (&unbind.exchange, &unbind.queue);
                let (key, arguments) = (&unbind.routing_key, &unbind.arguments);
                self.unbind(connection, from, (true, to), key, arguments)
            }
            Act::Consume(consume) => self.consume(connection, &consume.queue, consume.exclusive),
        }
    }

    fn declare_exchange(&mut self, declare: &xc::Declare) -> Result<(), u16> {
        let kinds = ["direct", "fanout", "topic", "headers"];
        if !declare.passive && !kinds.contains(&&*declare.kind) {
            return Err(406);
        }
        if declare.exchange.is_empty() {
            return Err(403);
        }
        let alternate = declare.arguments.get("alternate-exchange");
        let wanted = Exchange {
            name: declare.exchange.to_string(),
            kind: declare.kind.to_string(),
            flags: [declare.durable, declare.auto_delete, declare.internal],
            alternate: alternate.map(|value| value.as_str().unwrap().to_owned()),
        };
        match self.exchange(&declare.exchange) {
            Some(_) if declare.passive => Ok(()),
            None if declare.passive => Err(404),
            Some(found) if *found == wanted => Ok(()),
            Some(_) => Err(406),
            None if declare.exchange.starts_with("amq.") => Err(403),
            None => {
                self.exchanges.push(wanted);
                Ok(())
            }
        }
    }

    fn delete_exchange(&mut self, delete: &xc::Delete) -> Result<(), u16> {
        let name = delete.exchange.to_string();
        if name.is_empty() || name.starts_with("amq.") {
            return Err(403);
        }
        if self.exchange(&name).is_none() {
            return Ok(());
        }
        if delete.if_unused && self.bindings.iter().any(|binding| binding.from == name) {
            return Err(406);
        }
        self.remove_exchange(&name);
        Ok(())
    }

    fn remove_exchange(&mut self, name: &str) {
        self.exchanges.retain(|exchange| exchange.name != name);
        self.bindings.retain(|binding| binding.from != name);
        self.remove_bindings(|binding| !binding.to_queue && binding.to == name);
    }

    /// Removes bindings, and the auto-delete exchanges that lose their last one.
    fn remove_bindings(&mut self, which: impl Fn(&Binding) -> bool) {
        let sources = self.bindings.iter().filter(|binding| which(binding));
        let sources: Vec<_> = sources.map(|binding| binding.from.clone()).collect();
        self.bindings.retain(|binding| !which(binding));
        for source in sources {
            let is_left = self.bindings.iter().any(|binding| binding.from == source);
            let is_auto = self
                .exchange(&source)
                .is_some_and(|exchange| exchange.flags[1]);
            if is_auto && !is_left {
                self.remove_exchange(&source);
            }
        }
    }

    fn declare_queue(&mut self, connection: usize, declare: &qu::Declare) -> Result<(), u16> {
        let name = declare.queue.to_string();
        let found = self.queue(&name);
        if declare.passive {
            let found = found.ok_or(404u16)?;
            return self.check_access(found, connection);
        }
        if name.starts_with("amq.") {
            return Err(403);
        }
        let owner = declare.exclusive.then_some(connection);
        let durable = declare.durable && !declare.exclusive;
        let length_max = declare.arguments.get("x-max-length");
        let length_max = length_max.map(|value| value.as_integer().unwrap());
        if let Some(found) = found {
            if found.owner != owner {
                return Err(405);
            }
            let is_same = found.durable == durable
                && found.auto_delete == declare.auto_delete
                && found.length_max == length_max
                && declare.arguments.get("x-overflow").is_none();
            return if is_same { Ok(()) } else { Err(406) };
        }
        if declare.arguments.get("x-overflow").is_some() {
            return Err(406);
        }
        self.queues.push(Queue {
            name,
            owner,
            durable,
            auto_delete: declare.auto_delete,
            length_max,
            consumers: Vec::new(),
        });
        Ok(())
    }

    fn check_access(&self, queue: &Queue, connection: usize) -> Result<(), u16> {
        match queue.owner {
            Some(owner) if owner != connection => Err(405),
            _ => Ok(()),
        }
    }

    fn delete_queue(&mut self, connection: usize, delete: &qu::Delete) -> Result<(), u16> {
        let Some(found) = self.queue(&delete.queue) else {
            return Ok(());
        };
        self.check_access(found, connection)?;
        if delete.if_unused && !found.consumers.is_empty() {
            return Err(406);
        }
        self.remove_queue(&delete.queue);
        Ok(())
    }

    fn remove_queue(&mut self, name: &str) {
        self.queues.retain(|queue| queue.name != name);
        self.remove_bindings(|binding| binding.to_queue && binding.to == name);
    }

    fn bind(
        &mut self,
        connection: usize,
        from: &str,
        to_queue: bool,
        to: &str,
        fill: impl Fn(&mut Binding),
    ) -> Result<(), u16> {
        if from.is_empty() || (!to_queue && to.is_empty()) {
            return Err(403);
        }
        let kind = self.exchange(from).ok_or(404u16)?.kind.clone();
        match to_queue {
            true if self.queue(to).is_none() => return Err(404),
            false if self.exchange(to).is_none() => return Err(404),
            _ => {}
        }
        let mut binding = Binding {
            from: from.to_owned(),
            to_queue,
            to: to.to_owned(),
            key: String::new(),
            fields: BTreeMap::new(),
        };
        fill(&mut binding);
        let how = binding.fields.get("x-match");
        if kind == "headers" && how.is_some_and(|how| how.contains("some")) {
            return Err(406);
        }
        if to_queue {
            self.check_access(self.queue(to).unwrap(), connection)?;
        }
        if !self.bindings.contains(&binding) {
            self.bindings.push(binding);
        }
        Ok(())
    }

    fn unbind(
        &mut self,
        connection: usize,
        from: &str,
        (to_queue, to): (bool, &str),
        key: &str,
        arguments: &Table,
    ) -> Result<(), u16> {
        if from.is_empty() || (!to_queue && to.is_empty()) {
            return Err(403);
        }
        if self.exchange(from).is_none() {
            return Ok(());
        }
        if to_queue && let Some(queue) = self.queue(to) {
            self.check_access(queue, connection)?;
        }
        let gone = Binding {
            from: from.to_owned(),
            to_queue,
            to: to.to_owned(),
            key: key.to_owned(),
            fields: exact(arguments),
        };
        self.remove_bindings(|binding| *binding == gone);
        Ok(())
    }

    fn consume(&mut self, connection: usize, name: &str, exclusive: bool) -> Result<(), u16> {
        let found = self.queue(name).ok_or(404u16)?;
        self.check_access(found, connection)?;
        if found.consumers.contains(&true) || (exclusive && !found.consumers.is_empty()) {
            return Err(403);
        }
        let mut queues = self.queues.iter_mut();
        let found = queues.find(|queue| queue.name == name).unwrap();
        found.consumers.push(exclusive);
        Ok(())
    }

    /// A consumer ends, of a queue that is there.
    pub fn end_consumer(&mut self, name: &str) {
        let mut queues = self.queues.iter_mut();
        let found = queues.find(|queue| queue.name == name).unwrap();
        found.consumers.pop();
        if found.consumers.is_empty() && found.auto_delete {
            self.remove_queue(name);
        }
    }

    pub fn disconnect(&mut self, connection: usize) {
        let owned = self
            .queues
            .iter()
            .filter(|queue| queue.owner == Some(connection));
        let owned: Vec<_> = owned.map(|queue| queue.name.clone()).collect();
        owned.iter().for_each(|name| self.remove_queue(name));
    }

    pub fn restart(&mut self) {
        self.queues.retain(|queue| queue.durable);
        self.queues
            .iter_mut()
            .for_each(|queue| queue.consumers.clear());
        self.exchanges.retain(|exchange| exchange.flags[0]);
        let mut bindings = std::mem::take(&mut self.bindings);
        bindings.retain(|binding| {
            let is_there = match binding.to_queue {
                true => self.queue(&binding.to).is_some(),
                false => self.exchange(&binding.to).is_some(),
            };
            is_there && self.exchange(&binding.from).is_some()
        });
        self.bindings = bindings;
    }

    /// Where a message goes that a client publishes.
    pub fn publish(
        &self,
        exchange: &str,
        keys: &[&str],
        headers: &Table,
    ) -> Result<Vec<String>, u16> {
        let found = self.exchange(exchange).ok_or(404u16)?;
        if found.flags[2] {
            return Err(403);
        }
        let (mut seen, mut queues) = (vec![exchange.to_owned()], BTreeSet::new());
        self.follow(exchange, keys, &fields(headers), &mut seen, &mut queues);
        Ok(queues.into_iter().collect())
    }

    fn follow(
        &self,
        exchange: &str,
        keys: &[&str],
        headers: &BTreeMap<String, String>,
        seen: &mut Vec<String>,
        queues: &mut BTreeSet<String>,
    ) {
        if exchange.is_empty() {
            let named = keys.iter().filter(|key| self.queue(key).is_some());
            queues.extend(named.map(ToString::to_string));
            return;
        }
        let found = self.exchange(exchange).unwrap();
        let matches = |binding: &&Binding| {
            binding.from == exchange
                && match found.kind.as_str() {
                    "direct" => keys.contains(&binding.key.as_str()),
                    "fanout" => true,
                    "topic" => {
                        let pattern = words(&binding.key);
                        keys.iter().any(|key| is_match(&pattern, &words(key)))
                    }
                    _ => has_headers(&without_widths(&binding.fields), headers),
                }
        };
        let matching: Vec<_> = self.bindings.iter().filter(matches).collect();
        let mut next = Vec::new();
        for binding in &matching {
            match binding.to_queue {
                true => drop(queues.insert(binding.to.clone())),
                false => next.push(binding.to.clone()),
            }
        }
        if matching.is_empty()
            && let Some(alternate) = &found.alternate
            && self.exchange(alternate).is_some()
        {
            next.push(alternate.clone());
        }
        for name in next {
            if !seen.contains(&name) {
                seen.push(name.clone());
                self.follow(&name, keys, headers, seen, queues);
            }
        }
    }
}

fn without_widths(fields: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let plain = |value: &String| {
        let number = value.strip_prefix("I64(").or(value.strip_prefix("U8("));
        match number {
            Some(number) => format!("number {}", number.trim_end_matches(')')),
            None => value.clone(),
        }
    };
    fields
        .iter()
        .map(|(name, value)| (name.clone(), plain(value)))
        .collect()
}
