//! Dead letters: why a message is one, and where it goes.

use super::batch::{Batch, Done};
use super::faults::{Fault, planted};
use super::host::Letter;
use super::message::{Message, without};
use super::queue::{Held, Reason};
use super::state::AmqpListener;
use amqp::{Array, ShortString, Table, Value};
use std::sync::Arc;
use vhost::QueueId;
use wire::message::SettleAs;
use wire::{ErrorCode, ErrorReply, TopicId};

/// Deaths of one message that are remembered.
const DEATHS_MAX: usize = 64;

impl AmqpListener {
    /// A message of a queue is dead. It is settled when its letter is stored, or if it has none.
    pub(super) fn bury(&mut self, namespace: &Arc<str>, id: QueueId, held: Held, reason: Reason) {
        let message = held.message.clone();
        if let Some(message) = message {
            return self.send_letter(namespace, (id, Some(held)), message, reason);
        }
        if let Some(engine) = self.engine(namespace, id) {
            match engine.queue.options.dead_letter_exchange {
                Some(_) if !planted(Fault::Unread) => engine.condemn(&held, reason),
                _ => engine.settle(&held, SettleAs::Acknowledge),
            }
        }
    }

    /// Sends a dead letter where its queue says.
    pub(super) fn send_letter(
        &mut self,
        namespace: &Arc<str>,
        (id, held): (QueueId, Option<Held>),
        message: Arc<Message>,
        reason: Reason,
    ) {
        let unix_ns = self.now.unix_ns;
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let headers = message.headers();
        let routed = host.vhost.dead_letter(
            id,
            &vhost::Message {
                exchange: &message.exchange,
                routing_key: &message.routing_key,
                headers: headers.as_ref(),
            },
        );
        let queue = host.vhost.queue(id).cloned();
        let mut targets = Vec::new();
        let mut letter = None;
        if let (Some(routed), Some(queue)) = (routed, queue) {
            let dead = dead(&message, &queue, reason, unix_ns);
            let deaths = dead.headers().map(|headers| deaths(&headers));
            for target in routed.queues {
                let Some(engine) = host.queues.get_mut(&target) else {
                    continue;
                };
                // A letter that goes round without anybody's rejection would do so for ever.
                let is_circle = deaths
                    .as_ref()
                    .is_some_and(|deaths| is_circle(deaths, &engine.queue.name));
                if !is_circle {
                    engine.coming += 1;
                    targets.push((engine.topic, target));
                }
            }
            letter = Some(dead);
        }
        let Some(letter) = letter.filter(|_| !targets.is_empty()) else {
            if let (Some(held), Some(engine)) = (held, host.queues.get_mut(&id)) {
                engine.settle(&held, SettleAs::Acknowledge);
                self.dirty.queues.insert((namespace.clone(), id));
            }
            return;
        };
        host.letters_begun += 1;
        let number = host.letters_begun;
        let from = held.map(|held| (id, held));
        let left = targets.len();
        let letter_on_its_way = Letter {
            from,
            left,
            is_refused: false,
        };
        host.letters.insert(number, letter_on_its_way);
        let event = letter.encode();
        for target in targets {
            let done = Done::Letter(number);
            host.publisher.push(target, &event, done, &mut self.calls);
        }
        self.dirty.hosts.insert(namespace.clone());
    }

    /// A batch of the virtual host's own is stored, or is not.
    pub(super) fn own_produced(
        &mut self,
        namespace: &Arc<str>,
        topic: TopicId,
        batch: Batch,
        result: Result<(), ErrorReply>,
    ) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let batches = host.publisher.answered(topic, batch, result.is_ok());
        self.dirty.hosts.insert(namespace.clone());
        for batch in batches {
            self.own_stored(namespace, batch, &result);
        }
    }

    fn own_stored(&mut self, namespace: &Arc<str>, batch: Batch, result: &Result<(), ErrorReply>) {
        let count = batch.done.len() as u64;
        if let Some(id) = batch.queue
            && let Some(engine) = self.engine(namespace, id)
        {
            engine.arrived(count, result.is_ok());
            self.dirty.queues.insert((namespace.clone(), id));
        }
        for done in batch.done {
            match (done, result) {
                (Done::Letter(number), result) => {
                    // A queue that is gone counts as having kept it.
                    let is_refused = result
                        .as_ref()
                        .is_err_and(|error| error.code != ErrorCode::UnknownTopic);
                    self.letter_answered(namespace, number, is_refused);
                }
                (Done::Records(act), Ok(())) => {
                    self.settle_act(namespace, act, vhost::Outcome::Done);
                }
                // Whether they are in the log is not known: what is there is found anew.
                (Done::Records(_), Err(error)) => {
                    let why = format!("its records cannot be appended: {}", error.message);
                    return self.host_failed(namespace, &why);
                }
                (Done::Published(..), _) => {}
            }
        }
    }

    /// A queue has taken a letter, or cannot.
    fn letter_answered(&mut self, namespace: &Arc<str>, number: u64, is_refused: bool) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let Some(letter) = host.letters.get_mut(&number) else {
            return;
        };
        letter.left -= 1;
        letter.is_refused |= is_refused;
        if letter.left > 0 {
            return;
        }
        let Some(letter) = host.letters.remove(&number) else {
            return;
        };
        if let Some((id, held)) = letter.from
            && let Some(engine) = host.queues.get_mut(&id)
        {
            match letter.is_refused && !planted(Fault::LostLetter) {
                true => engine.put_off(&held),
                false => engine.settle(&held, SettleAs::Acknowledge),
            }
            self.dirty.queues.insert((namespace.clone(), id));
        }
    }

    /// A topic cannot be written to by the virtual host.
    pub(super) fn own_not_opened(
        &mut self,
        namespace: &Arc<str>,
        topic: TopicId,
        error: &ErrorReply,
    ) {
        let Some(host) = self.hosts.get_mut(namespace) else {
            return;
        };
        let result = Err(error.clone());
        for batch in host.publisher.refused(topic) {
            self.own_stored(namespace, batch, &result);
        }
    }
}

/// One death, as `x-death` has it.
struct Death {
    queue: String,
    reason: String,
    table: Table,
}

fn deaths(headers: &Table) -> Vec<Death> {
    let Some(Value::Array(array)) = headers.get("x-death") else {
        return Vec::new();
    };
    let death = |value: Value| {
        let Value::Table(table) = value else {
            return None;
        };
        let text = |name: &str| table.get(name)?.as_str().map(str::to_owned);
        Some(Death {
            queue: text("queue")?,
            reason: text("reason")?,
            table,
        })
    };
    array.values().filter_map(death).take(DEATHS_MAX).collect()
}

/// Whether a message comes to a queue again in which it died, and nobody has rejected it since.
fn is_circle(deaths: &[Death], queue: &str) -> bool {
    let Some(at) = deaths.iter().position(|death| death.queue == queue) else {
        return false;
    };
    deaths[..=at].iter().all(|death| death.reason != "rejected")
}

/// The letter of a message.
fn dead(message: &Message, queue: &vhost::Queue, reason: Reason, unix_ns: u64) -> Message {
    let mut fields = message.content.properties.fields();
    let headers = fields.headers.clone().unwrap_or_default();
    let mut deaths = deaths(&headers);
    let same = deaths
        .iter()
        .position(|death| death.queue == *queue.name && death.reason == reason.name());
    let before = same.map(|at| deaths.remove(at));
    let count = before.as_ref().and_then(|death| {
        let count = death.table.get("count")?;
        count.as_integer()
    });
    let table = match &before {
        Some(death) => {
            let kept = without(&death.table, "count");
            let fields: Vec<_> = kept.fields().collect();
            let fields = fields
                .iter()
                .filter_map(|(name, value)| Some((name.as_str()?, value.clone())));
            let count = ("count", Value::I64(count.unwrap_or(0) + 1));
            Table::of([count].into_iter().chain(fields).collect::<Vec<_>>())
        }
        None => {
            let key = Value::text(&message.routing_key);
            let mut said = vec![
                ("count", Value::I64(1)),
                ("reason", Value::text(reason.name())),
                ("queue", Value::text(&queue.name)),
                ("time", Value::Timestamp(unix_ns / 1_000_000_000)),
                ("exchange", Value::text(&message.exchange)),
                ("routing-keys", Value::Array(Array::of([key]))),
            ];
            if let Some(expiration) = &fields.expiration {
                let text = Value::String(bytes::Bytes::copy_from_slice(expiration));
                said.push(("original-expiration", text));
            }
            Table::of(said)
        }
    };
    let all = std::iter::once(table).chain(deaths.into_iter().map(|death| death.table));
    let all = Array::of(all.map(Value::Table));
    let known: Vec<_> = without(&headers, "x-death").fields().collect();
    let mut said: Vec<_> = known
        .iter()
        .filter_map(|(name, value)| Some((name.as_str()?, value.clone())))
        .filter(|(name, _)| !name.starts_with("x-last-death-"))
        // Copies of a message that goes on under another key are not its letters.
        .filter(|(name, _)| *name != "CC" || queue.options.dead_letter_routing_key.is_none())
        .collect();
    said.push(("x-death", Value::Array(all)));
    let place = [
        ("reason", reason.name()),
        ("queue", &queue.name),
        ("exchange", &message.exchange),
    ];
    let first = place.map(|(what, text)| (format!("x-first-death-{what}"), text));
    let last = place.map(|(what, text)| (format!("x-last-death-{what}"), text));
    let is_first = headers.get("x-first-death-reason").is_none();
    let first = first.iter().filter(|_| is_first);
    for (name, text) in first.chain(&last) {
        said.push((name, Value::text(text)));
    }
    fields.headers = Some(Table::of(said));
    fields.expiration = None;
    let exchange = queue.options.dead_letter_exchange.as_deref();
    let key = queue.options.dead_letter_routing_key.as_deref();
    Message {
        exchange: ShortString::truncated(exchange.unwrap_or_default()),
        routing_key: ShortString::truncated(key.unwrap_or(&message.routing_key)),
        content: amqp::Content {
            properties: fields.encode(),
            body: message.content.body.clone(),
        },
    }
}
