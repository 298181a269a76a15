//! The backend of Redis: streams with groups of consumers, on any server of Redis 6.2 or later, or one that speaks as it does.
//!
//! ```text
//!  work sharing  producer ──► workload-RUN-queue-I, one group ──► its consumers
//!  broadcast     producer ──► workload-RUN-all, a group of each consumer ──► consumer C
//!  reply         consumer ──► workload-RUN-replies-P ──► producer P
//! ```
//!
//! The crate `redis` is not used: where a wait for an answer ends it drops that answer, it cannot look without a wait, and
//! its connection has one half, so that a window of commands on their way would need a thread for each member.

mod connection;
mod resp;
mod sink;
mod source;
pub mod url;

use super::backend::{Backend, Outgoing, Source};
use crate::failure::Failure;
use connection::Connection;
use resp::Value;
use sink::{Added, Trimming};
use source::{Answers, Incoming};
use std::sync::atomic::{AtomicBool, Ordering};
use url::RedisUrl;
use workload::{Acks, Common, Confirms, Member, Overflow, Pace, Replies, Task};

/// The group under which consumers share.
const GROUP: &str = "workload";
/// Messages that are taken at once, and about how many bytes of them.
const BATCH_MAX: u64 = 256;
const BATCH_BYTES: u64 = 16 << 20;
/// Streams that are removed by one command.
const REMOVED_AT_ONCE: usize = 256;

/// A server. Each member has a connection of its own, as published, and a producer another one for replies.
pub struct Redis {
    url: RedisUrl,
    common: Common,
    /// Whether anything may have been made: where no server is, nothing is to be removed. Relaxed: it guards nothing.
    is_reached: AtomicBool,
}

/// A stream, and the groups that read it.
struct Stream {
    key: String,
    groups: Vec<String>,
}

impl Redis {
    pub fn new(common: &Common) -> Result<Self, Failure> {
        let Some(url) = &common.url else {
            return Err(Failure::usage("url", "there is none"));
        };
        let url = RedisUrl::parse(&url.0).map_err(|why| Failure::usage("url", why))?;
        Ok(Self {
            url,
            common: common.clone(),
            is_reached: AtomicBool::new(false),
        })
    }

    fn key(&self, what: &str) -> String {
        format!("workload-{:016x}-{what}", self.common.run)
    }

    /// The stream of a task's messages.
    fn key_of(&self, task: &Task) -> String {
        match task.queue {
            Some(queue) => self.key(&format!("queue-{queue}")),
            None => self.key("all"),
        }
    }

    /// The stream of a producer's replies.
    fn reply_key(&self, producer: u64) -> String {
        self.key(&format!("replies-{producer}"))
    }

    fn streams(&self) -> Vec<Stream> {
        let common = &self.common;
        let mut streams: Vec<Stream> = match common.pattern.is_broadcast() {
            true => vec![Stream {
                key: self.key("all"),
                groups: (0..common.consumers).map(consumer_name).collect(),
            }],
            false => (0..common.settings.queues)
                .map(|queue| Stream {
                    key: self.key(&format!("queue-{queue}")),
                    groups: vec![GROUP.to_owned()],
                })
                .collect(),
        };
        if common.pattern.has_replies() {
            let replies = (0..common.producers).map(|producer| Stream {
                key: self.reply_key(producer),
                // Read without a group. A stream that is empty is made with one alone.
                groups: vec![GROUP.to_owned()],
            });
            streams.extend(replies);
        }
        streams
    }

    fn open(&self) -> Result<Connection, Failure> {
        Connection::connect(&self.url, self.common.message_bytes)
    }

    /// Messages that are asked for at once.
    fn batch(&self) -> u64 {
        (BATCH_BYTES / self.common.message_bytes.max(1)).clamp(1, BATCH_MAX)
    }

    /// A server that keeps nothing cannot keep messages.
    fn check_durable(&self, connection: &mut Connection) -> Result<(), Failure> {
        let info = connection.call(&[b"INFO", b"persistence"])?;
        let info = info.bytes().map(|bytes| String::from_utf8_lossy(bytes));
        let Some(info) = info else {
            return Err(connection.unexpected("INFO"));
        };
        if info.lines().any(|line| line.trim() == "aof_enabled:1") {
            return Ok(());
        }
        let what = format!(
            "\"yes\", and the server {} keeps no file of what is added: start it with appendonly yes, or run with \"no\"",
            connection.name()
        );
        Err(Failure::usage("settings.durable_messages", what))
    }

    /// How a message is added to a stream: the command without the message.
    fn add(&self, key: &str, is_data: bool) -> Vec<u8> {
        let settings = &self.common.settings;
        let most = settings.queue_messages_max.to_string();
        // Nothing is made again that a run has removed.
        let mut parts: Vec<&[u8]> = vec![b"XADD", key.as_bytes(), b"NOMKSTREAM"];
        if is_data && settings.overflow == Overflow::DropHead {
            parts.extend([&b"MAXLEN"[..], b"=", most.as_bytes()]);
        }
        parts.extend([&b"*"[..], b"m"]);
        let mut command = Vec::new();
        resp::head(&mut command, parts.len() + 1, &parts);
        command
    }

    /// How replies to each producer are added.
    fn answers(&self, replies: Replies) -> Vec<Vec<u8>> {
        if replies == Replies::None {
            return Vec::new();
        }
        let producers = 0..self.common.producers;
        producers
            .map(|producer| self.add(&self.reply_key(producer), false))
            .collect()
    }
}

fn consumer_name(index: u64) -> String {
    format!("consumer-{index}")
}

impl Backend for Redis {
    fn prepare(&self) -> Result<(), Failure> {
        let mut connection = self.open()?;
        if self.common.settings.durable_messages {
            self.check_durable(&mut connection)?;
        }
        self.is_reached.store(true, Ordering::Relaxed);
        for Stream { key, groups } in self.streams() {
            for group in groups {
                let (key, group) = (key.as_bytes(), group.as_bytes());
                connection.call(&[b"XGROUP", b"CREATE", key, group, b"0", b"MKSTREAM"])?;
            }
        }
        Ok(())
    }

    fn remove(&self) -> Result<(), Failure> {
        if !self.is_reached.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut connection = self.open()?;
        for streams in self.streams().chunks(REMOVED_AT_ONCE) {
            let mut parts: Vec<&[u8]> = vec![b"UNLINK"];
            parts.extend(streams.iter().map(|stream| stream.key.as_bytes()));
            connection.call(&parts)?;
        }
        Ok(())
    }

    fn transport(&self) -> String {
        "redis".to_owned()
    }

    fn source(&self, task: &Task) -> Result<Box<dyn Source>, Failure> {
        let Member::Consumer(index) = task.member else {
            unreachable!("producers have sinks");
        };
        let settings = &self.common.settings;
        let is_shared = !self.common.pattern.is_broadcast();
        Ok(Box::new(Incoming::new(
            self.open()?,
            source::Reading {
                key: self.key_of(task),
                group: match is_shared {
                    true => GROUP.to_owned(),
                    false => consumer_name(index),
                },
                consumer: consumer_name(index),
                is_shared,
                is_automatic: settings.acks == Acks::Automatic,
                prefetch: settings.prefetch,
                batch: self.batch(),
            },
            self.answers(task.replies),
        )))
    }

    fn sink(&self, task: &Task) -> Result<Outgoing, Failure> {
        let Member::Producer(index) = task.member else {
            unreachable!("consumers have sources");
        };
        let key = self.key_of(task);
        let replies: Option<Box<dyn Source>> = match task.replies {
            Replies::None => None,
            Replies::Own | Replies::Shared => Some(Box::new(Answers::new(
                self.open()?,
                self.reply_key(index),
                self.batch(),
            ))),
        };
        let sink = Added::new(
            self.open()?,
            sink::Adding {
                command: self.add(&key, true),
                is_confirmed: self.common.settings.confirms != Confirms::None,
                // These wait for answers when they may send no more, which writes what is kept.
                is_gathered: matches!(task.pace, Some(Pace::Window(_) | Pace::Batches(_))),
                trimming: (self.common.pattern.is_broadcast())
                    .then(|| Trimming::new(key, self.batch())),
            },
        );
        Ok(Outgoing {
            sink: Box::new(sink),
            replies,
        })
    }
}

/// An entry of a stream.
struct Entry {
    id: bytes::Bytes,
    message: bytes::Bytes,
}

/// Entries, each with one message. One that is there no more has none, and is left out.
fn entries(values: Vec<Value>) -> Option<Vec<Entry>> {
    let mut entries = Vec::with_capacity(values.len());
    for entry in values {
        // What Redis 6.2 has of one that was removed and is another consumer's.
        if entry == Value::Nil {
            continue;
        }
        let [id, fields] = <[Value; 2]>::try_from(entry.values()?).ok()?;
        let fields = fields.values()?;
        if fields.is_empty() {
            continue;
        }
        let [_, message] = <[Value; 2]>::try_from(fields).ok()?;
        let (Value::Bytes(id), Value::Bytes(message)) = (id, message) else {
            return None;
        };
        entries.push(Entry { id, message });
    }
    Some(entries)
}

/// Entries of the one stream that was read.
fn read_entries(answer: Value) -> Option<Vec<Entry>> {
    match <[Value; 1]>::try_from(answer.values()?) {
        Ok([stream]) => {
            let [_, found] = <[Value; 2]>::try_from(stream.values()?).ok()?;
            entries(found.values()?)
        }
        Err(streams) if streams.is_empty() => Some(Vec::new()),
        Err(_) => None,
    }
}
