//! What a producer adds.

use super::super::backend::{Settled, Sink};
use super::connection::{Connection, SILENCE};
use super::resp::Value;
use super::source::why_not;
use crate::failure::{Code, Failure};
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes of commands that are written together.
const WRITTEN_BYTES: usize = 64 << 10;
/// A producer that waits for something else than the server looks after so long whether that has come.
const REST: Duration = Duration::from_micros(100);

/// How messages are added.
pub struct Adding {
    /// The command without its message.
    pub command: Vec<u8>,
    /// Whether what was added counts when the server has said so, and not when it was written.
    pub is_confirmed: bool,
    /// Whether commands wait for others, to be written with them.
    pub is_gathered: bool,
    pub trimming: Option<Trimming>,
}

/// An answer that is due.
enum Due {
    /// To a message.
    Message(u64),
    /// To the question where consumers are.
    Groups,
    /// To a command that removes what all have.
    Trimmed,
}

/// A producer, and what the server has not answered yet, in order.
pub struct Added {
    connection: Connection,
    adding: Adding,
    due: VecDeque<Due>,
    /// What is not written, where that is what counts.
    unwritten: Vec<Settled>,
    /// What is, likewise.
    written: Vec<Settled>,
    /// How long it has waited without an answer.
    silence: Duration,
    has_told: bool,
}

impl Added {
    pub fn new(connection: Connection, adding: Adding) -> Self {
        Self {
            connection,
            adding,
            due: VecDeque::new(),
            unwritten: Vec::new(),
            written: Vec::new(),
            silence: Duration::ZERO,
            has_told: false,
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.connection.flush()?;
        self.written.append(&mut self.unwritten);
        Ok(())
    }

    /// Takes the next answer that is due.
    fn take(&mut self, answer: &Value, settled: &mut Vec<Settled>) -> Result<(), Failure> {
        match self.due.pop_front() {
            Some(Due::Message(sequence)) => {
                let refused = answer.bytes().is_none().then(|| why_not(answer));
                if self.adding.is_confirmed {
                    let refused = refused.map(str::to_owned);
                    settled.push(Settled { sequence, refused });
                } else if let Some(why) = refused
                    && !std::mem::replace(&mut self.has_told, true)
                {
                    let name = self.connection.name();
                    eprintln!("note: {name}: the server does not take a message: {why}");
                }
                Ok(())
            }
            Some(Due::Groups) => match &mut self.adding.trimming {
                Some(trimming) => {
                    let Some(all_have) = least_delivered(answer) else {
                        return Err(self.connection.unexpected("XINFO GROUPS"));
                    };
                    let key = trimming.key.as_bytes();
                    let least = format!("{}-{}", all_have.0, all_have.1);
                    let least = least.as_bytes();
                    self.connection.put(&[b"XTRIM", key, b"MINID", b"~", least]);
                    self.due.push_back(Due::Trimmed);
                    Ok(())
                }
                None => unreachable!("it is asked for by who trims alone"),
            },
            Some(Due::Trimmed) => {
                if let Some(trimming) = &mut self.adding.trimming {
                    trimming.is_asked = false;
                }
                Ok(())
            }
            None => Err(self.connection.unexpected("nothing that was asked")),
        }
    }
}

/// Removes what all consumers of a stream have: entries stay when they are acknowledged.
pub struct Trimming {
    key: String,
    every: u64,
    /// Messages since the last time.
    since: u64,
    is_asked: bool,
}

impl Trimming {
    /// After each so many messages.
    pub fn new(key: String, every: u64) -> Self {
        Self {
            key,
            every,
            since: 0,
            is_asked: false,
        }
    }

    /// Whether it is time, after one message more.
    fn is_due(&mut self) -> bool {
        self.since += 1;
        let is_due = self.since >= self.every && !self.is_asked;
        if is_due {
            self.since = 0;
            self.is_asked = true;
        }
        is_due
    }
}

/// Up to where all groups have been given what a stream has. One that is gone keeps it where that was.
fn least_delivered(answer: &Value) -> Option<(u64, u64)> {
    let Value::Array(groups) = answer else {
        return None;
    };
    let delivered = |group: &Value| {
        let Value::Array(fields) = group else {
            return None;
        };
        let field = fields
            .chunks(2)
            .find(|field| matches!(field, [Value::Bytes(name), _] if name == "last-delivered-id"));
        let id = std::str::from_utf8(field?.last()?.bytes()?).ok()?;
        let (ms, sequence) = id.split_once('-')?;
        Some((ms.parse().ok()?, sequence.parse().ok()?))
    };
    let all: Option<Vec<(u64, u64)>> = groups.iter().map(delivered).collect();
    all?.into_iter().min()
}

impl Sink for Added {
    fn send(&mut self, sequence: u64, pieces: [&[u8]; 3]) -> Result<(), Failure> {
        self.connection.put_message(&self.adding.command, pieces)?;
        self.due.push_back(Due::Message(sequence));
        if !self.adding.is_confirmed {
            self.unwritten.push(Settled {
                sequence,
                refused: None,
            });
        }
        if let Some(trimming) = &mut self.adding.trimming
            && trimming.is_due()
        {
            let key = trimming.key.as_bytes();
            self.connection.put(&[b"XINFO", b"GROUPS", key]);
            self.due.push_back(Due::Groups);
        }
        match !self.adding.is_gathered || self.connection.unwritten() >= WRITTEN_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn settled(&mut self, wait: Duration) -> Result<Vec<Settled>, Failure> {
        if !wait.is_zero() {
            self.flush()?;
        }
        let mut settled = std::mem::take(&mut self.written);
        let mut wait = match settled.is_empty() {
            true => wait,
            false => Duration::ZERO,
        };
        if self.due.is_empty() && !wait.is_zero() {
            // A reply may be what is waited for, and comes elsewhere.
            std::thread::sleep(wait.min(REST));
        }
        while !self.due.is_empty() {
            let Some(answer) = self.connection.answer(wait)? else {
                self.silence += wait;
                if self.silence >= SILENCE {
                    return Err(self.connection.silent("XADD", SILENCE));
                }
                break;
            };
            self.silence = Duration::ZERO;
            wait = Duration::ZERO;
            self.take(&answer, &mut settled)?;
        }
        Ok(settled)
    }

    fn unanswered(&self) -> Failure {
        let is_message = |due: &&Due| matches!(due, Due::Message(_));
        let count = self.due.iter().filter(is_message).count();
        let what = format!("{count} messages are not answered");
        Failure::new(Code::Timeout, self.connection.name(), what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn group(last: &'static str) -> Value {
        let bytes = |text: &'static str| Value::Bytes(Bytes::from_static(text.as_bytes()));
        Value::Array(vec![
            bytes("name"),
            bytes("consumer-0"),
            bytes("pending"),
            Value::Integer(3),
            bytes("last-delivered-id"),
            bytes(last),
        ])
    }

    #[test]
    fn what_the_slowest_group_has_may_go() {
        let answer = Value::Array(vec![group("10-2"), group("9-30"), group("9-4")]);
        assert_eq!(least_delivered(&answer), Some((9, 4)));
        for answer in [
            Value::Nil,
            Value::Error("ERR no such key".to_owned()),
            Value::Array(vec![group("10-2"), group("10")]),
            Value::Array(Vec::new()),
        ] {
            assert_eq!(least_delivered(&answer), None, "{answer:?}");
        }
    }

    #[test]
    fn it_is_asked_once_at_a_time() {
        let mut trimming = Trimming::new("key".to_owned(), 8);
        let due: Vec<bool> = (0..20).map(|_| trimming.is_due()).collect();
        assert_eq!(due.iter().filter(|due| **due).count(), 1);
        assert!(due[7]);
        trimming.is_asked = false;
        assert!(trimming.is_due());
    }
}
