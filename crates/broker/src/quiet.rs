//! Answers that nobody hurries for: they travel with whatever comes next on
//! their connection, or by themselves after a while. Writing one by itself
//! wakes a program that waits for something else. And settlements that nobody
//! hurries for: they take effect when nothing else is to be done, or after that while.

use crate::ids::LinkId;
use crate::io::Output;
use crate::node::Node;
use crate::timers::Timer;
use net::{Lane, Message, Received};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::frame::{FrameKind, REQUEST_QUIET};
use wire::message::Method;

/// How long such an answer waits for company.
const WAIT: Duration = Duration::from_millis(1);
/// So many of a connection wait at most.
const HELD_MAX: usize = 64;

/// So many settlements are put off at most, and none whose head is longer.
const PUT_OFF_MAX: usize = 64;
const PUT_OFF_HEAD_BYTES_MAX: usize = 4 << 10;

/// What waits.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    held: BTreeMap<LinkId, Held>,
    /// Settlements that have come and have no effect yet.
    put_off: VecDeque<PutOff>,
}

#[derive(Debug)]
struct PutOff {
    link: LinkId,
    message: Received,
    /// When it takes effect, whatever else there is to be done.
    until: Duration,
}

#[derive(Debug)]
struct Held {
    messages: Vec<Message>,
    until: Duration,
}

/// The method of a request.
fn method_of(message: &Received) -> Option<u16> {
    let code = message.head.first_chunk::<2>();
    code.filter(|_| message.kind == FrameKind::Request)
        .map(|code| u16::from_le_bytes(*code))
}

impl Node {
    /// A message has come to an open session. It is given back unless it is
    /// one that can wait: what else has arrived may be waited for. Events may be
    /// ahead of what was put off; nothing else is.
    pub(crate) fn put_off(&mut self, link: LinkId, message: Received) -> Option<Received> {
        let method = method_of(&message);
        if method == Some(Method::Settle as u16)
            && message.flags & REQUEST_QUIET != 0
            && self.quiet.put_off.len() < PUT_OFF_MAX
            && message.head.len() <= PUT_OFF_HEAD_BYTES_MAX
            && !self.drain.is_begun()
        {
            let until = self.ctx.now.monotonic + WAIT;
            self.quiet.put_off.push_back(PutOff {
                link,
                message,
                until,
            });
            return None;
        }
        if method != Some(Method::Produce as u16) {
            self.catch_up();
        }
        Some(message)
    }

    /// Does what was put off.
    pub(crate) fn catch_up(&mut self) {
        while let Some(PutOff { link, message, .. }) = self.quiet.put_off.pop_front() {
            let id = message.id;
            if self.takes_requests(link)
                && let Err(error) = self.request(link, message)
            {
                self.end_session(link, id, error);
            }
        }
    }

    /// Does what was put off, if it was for long enough.
    pub(crate) fn catch_up_in_time(&mut self) {
        let first = self.quiet.put_off.front();
        if first.is_some_and(|first| first.until <= self.ctx.now.monotonic) {
            self.catch_up();
        }
    }

    /// Whether something was put off: the node is to be handed
    /// [`crate::node::Input::Timer`] when nothing else is to be done.
    pub fn is_behind(&self) -> bool {
        !self.quiet.put_off.is_empty()
    }

    /// Sends a message, behind what waits for company on its connection; events
    /// are ahead of it, for somebody waits for them.
    pub(crate) fn send(&mut self, link: LinkId, message: Message) {
        let is_events = matches!(message.kind, FrameKind::Deliver | FrameKind::Leased);
        if self.quiet.held.is_empty() {
            self.ctx.outputs.push_back(Output::Send { link, message });
        } else if is_events {
            let lane = message.lane;
            self.ctx.outputs.push_back(Output::Send { link, message });
            self.send_held_in(link, lane);
        } else {
            self.send_held(link);
            self.ctx.outputs.push_back(Output::Send { link, message });
        }
    }

    /// Sends a message with the next one, or after a while.
    pub(crate) fn send_quietly(&mut self, link: LinkId, message: Message) {
        // At the end there may be no next one, and no while.
        if self.drain.is_begun() {
            return self.send(link, message);
        }
        let until = self.ctx.now.monotonic + WAIT;
        let held = self.quiet.held.entry(link).or_insert_with(|| {
            self.ctx.timers.insert(until, Timer::Quiet(link));
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
        self.send_held_in(link, Lane::Control);
    }

    fn send_held_in(&mut self, link: LinkId, lane: Lane) {
        let Some(held) = self.quiet.held.remove(&link) else {
            return;
        };
        self.ctx.timers.remove(held.until, Timer::Quiet(link));
        let sends = held.messages.into_iter();
        let sends = sends.map(|message| Message { lane, ..message });
        let sends = sends.map(|message| Output::Send { link, message });
        self.ctx.outputs.extend(sends);
    }

    /// Nobody is there any more.
    pub(crate) fn drop_held(&mut self, link: LinkId) {
        if let Some(held) = self.quiet.held.remove(&link) {
            self.ctx.timers.remove(held.until, Timer::Quiet(link));
        }
    }
}
