//! What the owner sends on channels: answers, deliveries, confirms.

use super::channel::{Channel, ChannelState};
use super::{Connection, State};
use crate::content::Content;
use crate::error::Failure;
use crate::faults::{Fault, planted};
use crate::field::ShortString;
use crate::id::{ChannelKey, MethodId};
use crate::method::{Method, basic, channel, exchange};
use std::time::Duration;

impl Connection {
    /// Answers the oldest request of a channel that has no answer. A request with `no_wait` is answered as any other
    /// one; the client is not told.
    ///
    /// # Panics
    /// If this is no answer of that request, or none waits: the owner has mixed them up.
    pub fn answer(&mut self, key: ChannelKey, answer: impl Into<Method>) {
        let answer = answer.into();
        if self.take_pending(key, answer.id()) {
            self.output.method(key.number, &answer);
        }
        if answer.id() == channel::CloseOk::ID {
            self.remove(key);
        }
    }

    /// Answers a `basic.get` with a message.
    ///
    /// # Panics
    /// As [`Connection::answer`].
    pub fn answer_get(&mut self, key: ChannelKey, got: basic::GetOk, content: &Content) {
        if self.take_pending(key, basic::GetOk::ID) {
            self.content(key.number, &got.into(), content);
        }
    }

    /// Sends a message to a consumer.
    pub fn deliver(&mut self, key: ChannelKey, deliver: basic::Deliver, content: &Content) {
        if self.working(key).is_some() {
            self.content(key.number, &deliver.into(), content);
        }
    }

    /// Sends a message back that has no way to go. Its confirm comes after.
    pub fn send_back(&mut self, key: ChannelKey, back: basic::Return, content: &Content) {
        if self.working(key).is_some() {
            self.content(key.number, &back.into(), content);
        }
    }

    /// Confirms messages of a channel with confirms.
    pub fn confirm(&mut self, key: ChannelKey, ack: basic::Ack) {
        self.send(key, &ack.into());
    }

    /// Tells that messages of a channel with confirms are not kept.
    pub fn reject(&mut self, key: ChannelKey, nack: basic::Nack) {
        self.send(key, &nack.into());
    }

    /// Tells a client that knows of it that its consumer has ended, for the queue has gone.
    pub fn cancel_consumer(&mut self, key: ChannelKey, consumer_tag: ShortString) {
        if self.client_can("consumer_cancel_notify") {
            let no_wait = true;
            let cancel = basic::Cancel {
                consumer_tag,
                no_wait,
            };
            self.send(key, &cancel.into());
        }
    }

    /// Fails a channel, or the connection if the code is a hard one. A failure without a method is that of the oldest
    /// request without an answer.
    pub fn fail(&mut self, now: Duration, key: ChannelKey, failure: Failure) {
        let Some(channel) = self.working(key) else {
            return;
        };
        let oldest = channel.pending.front().map(|pending| pending.id);
        let failure = Failure {
            method: failure.method.or(oldest),
            ..failure
        };
        self.fail_on(now, key.number, failure);
    }

    fn send(&mut self, key: ChannelKey, method: &Method) {
        if self.working(key).is_some() {
            self.output.method(key.number, method);
        }
    }

    fn content(&mut self, number: u16, method: &Method, content: &Content) {
        let frame_max = self.tuned.frame_max;
        self.output.content(number, method, content, frame_max);
    }

    /// Takes the oldest request off, and says whether its answer is sent.
    fn take_pending(&mut self, key: ChannelKey, answer: MethodId) -> bool {
        let is_planted = planted(Fault::StaleAnswer);
        let Some(channel) = self.working(key) else {
            return false;
        };
        let Some(pending) = channel.pending.pop_front() else {
            assert!(is_planted, "{key} has no request without an answer");
            return true;
        };
        assert!(
            is_planted || is_answer(pending.id, answer),
            "{answer:?} on {key} answers no {:?}",
            pending.id
        );
        pending.is_sent
    }

    /// The channel, if it is the one that is meant and has not failed.
    fn working(&mut self, key: ChannelKey) -> Option<&mut Channel> {
        if !matches!(self.state, State::Running) {
            return None;
        }
        let channel = self.channels.get_mut(&key.number)?;
        let is_meant = channel.incarnation == key.incarnation || planted(Fault::StaleAnswer);
        (is_meant && channel.state != ChannelState::Closing).then_some(channel)
    }

    fn remove(&mut self, key: ChannelKey) {
        if self.working(key).is_some() {
            self.channels.remove(&key.number);
        }
    }
}

/// Whether a method is answered by another. The id of an answer is the next one, but for two.
fn is_answer(request: MethodId, answer: MethodId) -> bool {
    let next = MethodId {
        method: request.method + 1,
        ..request
    };
    match request {
        exchange::Unbind::ID => answer == exchange::UnbindOk::ID,
        basic::Get::ID => answer == basic::GetOk::ID || answer == basic::GetEmpty::ID,
        _ => answer == next,
    }
}
