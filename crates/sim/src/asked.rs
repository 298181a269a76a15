//! What must be true of requests: a reply is to its request, comes once and
//! not after the deadline; a gather says who is missing, and nobody else.

use crate::model::data_of;
use crate::trace::Violation;
use bytes::Bytes;
use client::{ConsumedEvent, EventDataRef, Gather, Gathered};
use std::collections::{BTreeMap, BTreeSet};

/// What one request asks for, and what came of it.
#[derive(Debug, Clone)]
struct Ask {
    is_broadcast: bool,
    data_bytes: usize,
    /// Who has pushed a reply.
    repliers: BTreeSet<String>,
    /// Its queue was told that it is settled, durably.
    is_settled: bool,
}

/// A request, as whoever gets it reads it.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    pub number: usize,
    pub is_broadcast: bool,
}

/// The model of requests.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    asks: Vec<Ask>,
    /// Who listens now, as repliers name themselves, and whether he replies.
    pub live: BTreeMap<String, bool>,
    /// Who ever did.
    ever: BTreeSet<String>,
    /// Whether nothing goes wrong.
    pub is_calm: bool,
    pub replied_count: u64,
    pub late_count: u64,
    pub gathered_count: u64,
    pub missing_count: u64,
}

/// When an answer is looked at.
#[derive(Debug, Clone, Copy)]
pub struct When {
    pub now: u64,
    pub deadline: u64,
}

/// What a reply is made of.
pub fn reply_to(number: usize) -> (Vec<u8>, Bytes) {
    let metadata = format!("reply {number}").into_bytes();
    let bytes = (number * 37) % 3000;
    (metadata, Bytes::from(data_of(number + 1_000_000, bytes)))
}

fn data(event: &ConsumedEvent) -> Bytes {
    match event.data() {
        EventDataRef::None => Bytes::new(),
        EventDataRef::Inline(bytes) => bytes,
        EventDataRef::Allocated(_) => unreachable!("nobody gives memory for it"),
    }
}

impl Asked {
    /// A request that is about to be sent: its number, metadata and data.
    pub fn draft(&self, is_broadcast: bool, data_bytes: usize) -> (usize, Vec<u8>, Bytes) {
        let number = self.asks.len();
        let kind = if is_broadcast { "broadcast" } else { "request" };
        let metadata = format!("{kind} {number} {data_bytes}").into_bytes();
        (number, metadata, Bytes::from(data_of(number, data_bytes)))
    }

    /// It is sent.
    pub fn sent(&mut self, is_broadcast: bool, data_bytes: usize) {
        self.asks.push(Ask {
            is_broadcast,
            data_bytes,
            repliers: BTreeSet::new(),
            is_settled: false,
        });
    }

    /// Somebody is about to listen.
    pub fn will_listen(&mut self, name: &str) {
        self.ever.insert(name.to_owned());
    }

    /// Somebody listens, or does no more.
    pub fn listens(&mut self, name: &str, replies: Option<bool>) {
        match replies {
            Some(replies) => {
                self.live.insert(name.to_owned(), replies);
            }
            None => drop(self.live.remove(name)),
        }
    }

    /// Somebody is given an event: it is a request that was sent.
    pub fn read(&self, who: &str, event: &ConsumedEvent) -> Result<Read, Violation> {
        let text = String::from_utf8_lossy(event.metadata()).into_owned();
        let what = || format!("{who} is given {}, {text:?}", event.id());
        let mut words = text.split(' ');
        let is_broadcast = match words.next() {
            Some("broadcast") => true,
            Some("request") => false,
            _ => return Violation::because(format!("{}: nobody asks that", what())),
        };
        let number = words.next().and_then(|word| word.parse::<usize>().ok());
        let ask = number.and_then(|number| Some((number, self.asks.get(number)?)));
        let Some((number, ask)) = ask.filter(|(_, ask)| ask.is_broadcast == is_broadcast) else {
            return Violation::because(format!("{}: nobody has asked that", what()));
        };
        if data(event) != data_of(number, ask.data_bytes) {
            return Violation::because(format!("{}: its data is another's", what()));
        }
        Ok(Read {
            number,
            is_broadcast,
        })
    }

    /// A member of the queue is given a request.
    pub fn given(&self, who: &str, number: usize) -> Result<(), Violation> {
        // Who was stopped may have one that is over, until he asks for it.
        match self.asks[number].is_settled && self.is_calm {
            false => Ok(()),
            true => Violation::because(format!(
                "{who} is given request {number}, whose reply is stored and which is settled"
            )),
        }
    }

    /// A reply was pushed.
    pub fn replies(&mut self, number: usize, who: &str) {
        self.asks[number].repliers.insert(who.to_owned());
    }

    /// A member was told that its reply is stored and the request settled.
    pub fn settled(&mut self, number: usize) {
        self.asks[number].is_settled = true;
    }

    fn check_reply(
        &self,
        what: &str,
        number: usize,
        reply: &ConsumedEvent,
    ) -> Result<(), Violation> {
        let (metadata, expected) = reply_to(number);
        if reply.metadata() == metadata && data(reply) == expected {
            return Ok(());
        }
        let text = String::from_utf8_lossy(reply.metadata()).into_owned();
        Violation::because(format!("{what} gets another's reply, {text:?}"))
    }

    /// A request has its reply.
    pub fn replied(
        &mut self,
        number: usize,
        reply: &ConsumedEvent,
        when: When,
    ) -> Result<(), Violation> {
        let what = format!("request {number}");
        self.check_reply(&what, number, reply)?;
        if self.asks[number].repliers.is_empty() {
            return Violation::because(format!("{what} has a reply that nobody wrote"));
        }
        if when.now > when.deadline {
            return Violation::because(format!(
                "{what} has its reply {} ns after its deadline",
                when.now - when.deadline
            ));
        }
        self.replied_count += 1;
        Ok(())
    }

    /// A broadcast has its answer.
    pub fn gathered(
        &mut self,
        number: usize,
        gather: Gather,
        gathered: &Gathered,
        when: When,
    ) -> Result<(), Violation> {
        self.gathered_count += 1;
        self.missing_count += gathered.missing.len() as u64;
        let names = gathered.replies.iter().map(|(name, _)| name.as_str());
        let what = format!(
            "broadcast {number} ({gather:?}) with replies of {:?}, missing {:?}",
            names.clone().collect::<Vec<_>>(),
            gathered.missing
        );
        for (name, reply) in &gathered.replies {
            self.check_reply(&what, number, reply)?;
            if !self.asks[number].repliers.contains(name) {
                return Violation::because(format!("{what}: {name} has written none"));
            }
        }
        let all: Vec<&str> = names
            .chain(gathered.missing.iter().map(String::as_str))
            .collect();
        let asked: BTreeSet<&str> = all.iter().copied().collect();
        if asked.len() < all.len() {
            return Violation::because(format!("{what}: somebody is there twice"));
        }
        if let Some(name) = asked.iter().find(|name| !self.ever.contains(**name)) {
            return Violation::because(format!("{what}: {name} never listened"));
        }
        let is_enough = match gather {
            Gather::All => false,
            Gather::AtLeast(count) => gathered.replies.len() >= count,
        };
        let is_complete = is_enough || gathered.missing.is_empty();
        if when.now < when.deadline && !is_complete {
            return Violation::because(format!("{what}: it is over before its deadline"));
        }
        if when.now > when.deadline {
            return Violation::because(format!("{what}: it is over after its deadline"));
        }
        if !self.is_calm {
            return Ok(());
        }
        // Nobody comes or goes.
        let live: BTreeSet<&str> = self.live.keys().map(String::as_str).collect();
        if asked != live {
            return Violation::because(format!("{what}: those who listen are {live:?}"));
        }
        let silent = self.live.iter().filter(|(_, replies)| !**replies);
        let silent: BTreeSet<&str> = silent.map(|(name, _)| name.as_str()).collect();
        let missing: BTreeSet<&str> = gathered.missing.iter().map(String::as_str).collect();
        let is_exact = match is_enough {
            true => silent.is_subset(&missing),
            false => silent == missing,
        };
        match is_exact {
            true => Ok(()),
            false => Violation::because(format!("{what}: those who are silent are {silent:?}")),
        }
    }
}
