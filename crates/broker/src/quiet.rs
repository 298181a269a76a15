//! Answers that nobody hurries for: they travel with whatever comes next on
//! their connection, or by themselves after a while. Writing one by itself
//! wakes a program that waits for something else.

use crate::node::{LinkId, Node, Output};
use crate::timers::Timer;
use net::Message;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long such an answer waits for company.
const WAIT: Duration = Duration::from_millis(1);
/// So many of a connection wait at most.
const HELD_MAX: usize = 64;

/// What waits, by connection.
#[derive(Debug, Default)]
pub(crate) struct Quiet(BTreeMap<LinkId, Held>);

#[derive(Debug)]
struct Held {
    messages: Vec<Message>,
    until: Duration,
}

impl Node {
    /// Sends a message, behind what waits for company on its connection.
    pub(crate) fn send(&mut self, link: LinkId, message: Message) {
        if !self.quiet.0.is_empty() {
            self.send_held(link);
        }
        self.outputs.push_back(Output::Send { link, message });
    }

    /// Sends a message with the next one, or after a while.
    pub(crate) fn send_quietly(&mut self, link: LinkId, message: Message) {
        // At the end there may be no next one, and no while.
        if self.drain.is_begun() {
            return self.send(link, message);
        }
        let until = self.now.monotonic + WAIT;
        let held = self.quiet.0.entry(link).or_insert_with(|| {
            self.timers.insert(until, Timer::Quiet(link));
            Held {
                messages: Vec::new(),
                until,
            }
        });
        held.messages.push(message);
        if held.messages.len() >= HELD_MAX {
            self.send_held(link);
        }
    }

    /// Sends what waits for company on a connection.
    pub(crate) fn send_held(&mut self, link: LinkId) {
        let Some(held) = self.quiet.0.remove(&link) else {
            return;
        };
        self.timers.remove(held.until, Timer::Quiet(link));
        let sends = held.messages.into_iter();
        let sends = sends.map(|message| Output::Send { link, message });
        self.outputs.extend(sends);
    }

    /// Nobody is there any more.
    pub(crate) fn drop_held(&mut self, link: LinkId) {
        if let Some(held) = self.quiet.0.remove(&link) {
            self.timers.remove(held.until, Timer::Quiet(link));
        }
    }
}
