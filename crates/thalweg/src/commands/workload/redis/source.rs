//! What comes to a consumer, and the replies that come to a producer.

use super::super::backend::{Delivery, Source};
use super::connection::{Connection, SILENCE};
use super::resp::Value;
use super::{Entry, entries, read_entries};
use crate::failure::Failure;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use workload::{STAMP_BYTES, Stamp};

/// After so long without an acknowledgement a message is taken from the consumer that has it: that may be gone. A run with
/// faults waits for longer.
const TAKEN_AFTER: Duration = Duration::from_secs(5);
/// How often it is looked for such.
const LOOKED_FOR: Duration = Duration::from_secs(1);
/// Entries that one command acknowledges.
const AT_ONCE: usize = 1024;

/// What a consumer reads.
pub struct Reading {
    pub key: String,
    pub group: String,
    pub consumer: String,
    /// Whether others have the same group.
    pub is_shared: bool,
    /// Whether what was received is acknowledged by that.
    pub is_automatic: bool,
    /// The most that it has unacknowledged. 0 is no bound.
    pub prefetch: u64,
    /// The most that it asks for at once.
    pub batch: u64,
}

/// Answers that are due, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// To an acknowledgement.
    Acknowledged,
    /// To a reply that was added.
    Added,
}

/// A consumer of a group.
pub struct Incoming {
    connection: Connection,
    reading: Reading,
    /// How replies are added, by producer.
    answers: Vec<Vec<u8>>,
    /// What came and is not acknowledged, in order.
    handled: VecDeque<Bytes>,
    due: VecDeque<Due>,
    /// When it looks for what others have had for too long, and from where.
    looks_at: Instant,
    cursor: Bytes,
    has_told: bool,
}

impl Incoming {
    pub fn new(connection: Connection, reading: Reading, answers: Vec<Vec<u8>>) -> Self {
        Self {
            connection,
            reading,
            answers,
            handled: VecDeque::new(),
            due: VecDeque::new(),
            looks_at: Instant::now() + LOOKED_FOR,
            cursor: BEGIN,
            has_told: false,
        }
    }

    /// How many more it may have.
    fn room(&self) -> u64 {
        let Reading {
            prefetch, batch, ..
        } = self.reading;
        match prefetch {
            0 => batch,
            most => most.saturating_sub(self.handled.len() as u64).min(batch),
        }
    }

    /// Takes the answers that are due, all of which have been asked for.
    fn settle(&mut self) -> Result<(), Failure> {
        while let Some(due) = self.due.pop_front() {
            let answer = self.connection.due("XADD, XACK or XDEL", SILENCE)?;
            match (due, answer) {
                (Due::Acknowledged, Value::Error(why)) => {
                    return Err(self.connection.refused("an acknowledgement", &why));
                }
                (Due::Acknowledged, _) | (Due::Added, Value::Bytes(_)) => {}
                (Due::Added, answer) => self.tell(&answer),
            }
        }
        Ok(())
    }

    /// Says once that a reply was not taken. It is missed where it does not come.
    fn tell(&mut self, answer: &Value) {
        if !std::mem::replace(&mut self.has_told, true) {
            let name = self.connection.name();
            let why = why_not(answer);
            eprintln!("note: {name}: the server does not take a reply: {why}");
        }
    }

    /// Takes over what others have had for too long.
    fn take_over(&mut self, room: u64) -> Result<Vec<Delivery>, Failure> {
        let reading = &self.reading;
        let after = TAKEN_AFTER.as_millis().to_string();
        let count = room.to_string();
        self.connection.put(&[
            b"XAUTOCLAIM",
            reading.key.as_bytes(),
            reading.group.as_bytes(),
            reading.consumer.as_bytes(),
            after.as_bytes(),
            &self.cursor,
            b"COUNT",
            count.as_bytes(),
        ]);
        let answer = self.ask("XAUTOCLAIM")?;
        let parts = answer.values().unwrap_or_default();
        let mut parts = parts.into_iter();
        let (Some(Value::Bytes(cursor)), Some(found)) = (parts.next(), parts.next()) else {
            return Err(self.connection.unexpected("XAUTOCLAIM"));
        };
        let Some(found) = found.values().and_then(entries) else {
            return Err(self.connection.unexpected("XAUTOCLAIM"));
        };
        if cursor == BEGIN {
            self.looks_at = Instant::now() + LOOKED_FOR;
        }
        self.cursor = cursor;
        // One that stood still may find its own.
        let is_new = |entry: &Entry| !self.handled.contains(&entry.id);
        let found: Vec<Entry> = found.into_iter().filter(is_new).collect();
        Ok(self.deliver(found, true))
    }

    /// Writes a command that was put, and waits for its answer, behind those that are due.
    fn ask(&mut self, what: &str) -> Result<Value, Failure> {
        self.connection.flush()?;
        self.settle()?;
        match self.connection.due(what, SILENCE)? {
            Value::Error(why) => Err(self.connection.refused(what, &why)),
            answer => Ok(answer),
        }
    }

    fn deliver(&mut self, entries: Vec<Entry>, is_flagged: bool) -> Vec<Delivery> {
        let deliver = |Entry { id, message }| {
            self.handled.push_back(id);
            Delivery {
                message,
                is_flagged,
            }
        };
        entries.into_iter().map(deliver).collect()
    }
}

/// Where to begin, and where there is no more.
const BEGIN: Bytes = Bytes::from_static(b"0-0");

/// Why something was not added.
pub fn why_not(answer: &Value) -> &str {
    match answer {
        Value::Error(why) => why,
        _ => "its stream is gone",
    }
}

/// How long a server may wait for messages, in milliseconds: 0 would be for ever.
fn block(wait: Duration) -> String {
    wait.as_millis().max(1).to_string()
}

impl Source for Incoming {
    fn receive(&mut self, wait: Duration) -> Result<Vec<Delivery>, Failure> {
        let room = self.room();
        if room == 0 {
            // Nothing comes before something is acknowledged.
            std::thread::sleep(wait);
            return Ok(Vec::new());
        }
        let reading = &self.reading;
        if reading.is_shared && !reading.is_automatic && Instant::now() >= self.looks_at {
            let taken = self.take_over(room)?;
            if !taken.is_empty() {
                return Ok(taken);
            }
        }
        let reading = &self.reading;
        let (count, block) = (room.to_string(), block(wait));
        let mut parts: Vec<&[u8]> = vec![
            b"XREADGROUP",
            b"GROUP",
            reading.group.as_bytes(),
            reading.consumer.as_bytes(),
            b"COUNT",
            count.as_bytes(),
            b"BLOCK",
            block.as_bytes(),
        ];
        if reading.is_automatic {
            parts.push(b"NOACK");
        }
        parts.extend([&b"STREAMS"[..], reading.key.as_bytes(), b">"]);
        self.connection.put(&parts);
        let answer = self.ask("XREADGROUP")?;
        match read_entries(answer) {
            Some(entries) => Ok(self.deliver(entries, false)),
            None => Err(self.connection.unexpected("XREADGROUP")),
        }
    }

    fn reply(&mut self, stamp: Stamp, message: Bytes) -> Result<(), Failure> {
        let Some(head) = self.answers.get(stamp.producer as usize) else {
            return Ok(());
        };
        let pieces: [&[u8]; 3] = [&stamp.to_bytes(), &message[STAMP_BYTES..], &[]];
        self.connection.put_message(head, pieces)?;
        self.due.push_back(Due::Added);
        self.connection.flush()
    }

    fn acknowledge(&mut self, count: usize) -> Result<(), Failure> {
        let count = count.min(self.handled.len());
        let ids: Vec<Bytes> = self.handled.drain(..count).collect();
        let reading = &self.reading;
        let (key, group) = (reading.key.as_bytes(), reading.group.as_bytes());
        for ids in ids.chunks(AT_ONCE) {
            let ids = ids.iter().map(|id| &**id);
            if !reading.is_automatic {
                let mut parts: Vec<&[u8]> = vec![b"XACK", key, group];
                parts.extend(ids.clone());
                self.connection.put(&parts);
                self.due.push_back(Due::Acknowledged);
            }
            // An entry that is acknowledged stays. Here nobody else wants it.
            if reading.is_shared {
                let mut parts: Vec<&[u8]> = vec![b"XDEL", key];
                parts.extend(ids);
                self.connection.put(&parts);
                self.due.push_back(Due::Acknowledged);
            }
        }
        self.connection.flush()
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.acknowledge(usize::MAX)?;
        self.settle()
    }
}

/// The replies to a producer.
pub struct Answers {
    connection: Connection,
    key: String,
    batch: String,
    /// The last that came.
    last: Bytes,
    /// Answers that are due: to commands that remove what came.
    due: usize,
}

impl Answers {
    pub fn new(connection: Connection, key: String, batch: u64) -> Self {
        Self {
            connection,
            key,
            batch: batch.to_string(),
            last: BEGIN,
            due: 0,
        }
    }
}

impl Source for Answers {
    fn receive(&mut self, wait: Duration) -> Result<Vec<Delivery>, Failure> {
        let (key, last) = (self.key.as_bytes(), self.last.clone());
        let (count, block) = (self.batch.as_bytes(), block(wait));
        self.connection.put(&[
            b"XREAD",
            b"COUNT",
            count,
            b"BLOCK",
            block.as_bytes(),
            b"STREAMS",
            key,
            &last,
        ]);
        self.connection.flush()?;
        for what in std::iter::repeat_n("XTRIM", self.due).chain(["XREAD"]) {
            match self.connection.due(what, SILENCE)? {
                Value::Error(why) => return Err(self.connection.refused(what, &why)),
                _ if what == "XTRIM" => {}
                answer => {
                    self.due = 0;
                    let Some(entries) = read_entries(answer) else {
                        return Err(self.connection.unexpected(what));
                    };
                    if let Some(entry) = entries.last() {
                        self.last = entry.id.clone();
                    }
                    let deliver = |Entry { message, .. }| Delivery {
                        message,
                        is_flagged: false,
                    };
                    return Ok(entries.into_iter().map(deliver).collect());
                }
            }
        }
        unreachable!("the last answer is that to XREAD")
    }

    fn reply(&mut self, _: Stamp, _: Bytes) -> Result<(), Failure> {
        Ok(())
    }

    /// Removes all that came before the last one.
    fn acknowledge(&mut self, count: usize) -> Result<(), Failure> {
        if count == 0 {
            return Ok(());
        }
        let key = self.key.as_bytes();
        self.connection.put(&[b"XTRIM", key, b"MINID", &self.last]);
        self.due += 1;
        self.connection.flush()
    }

    fn finish(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}
