//! Settlements that nobody hurries for: they take effect when nothing else is to be done, or
//! after a while. What else has arrived is done first; events may be ahead of them, nothing
//! else is.

use crate::ctx::Ctx;
use crate::ids::LinkId;
use net::Received;
use std::collections::VecDeque;
use std::time::Duration;
use wire::frame::{FrameKind, REQUEST_QUIET};
use wire::message::Method;

/// How long a settlement waits at most.
const WAIT: Duration = Duration::from_millis(1);
/// So many settlements wait at most, and none whose head is longer.
const COUNT_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 4 << 10;

/// Settlements that have come and have no effect yet.
#[derive(Debug, Default)]
pub(crate) struct Deferred(VecDeque<Settlement>);

#[derive(Debug)]
struct Settlement {
    link: LinkId,
    message: Received,
    /// When it takes effect, whatever else there is to be done.
    until: Duration,
}

/// The method of a request.
fn method_of(message: &Received) -> Option<u16> {
    let code = message.head.first_chunk::<2>();
    code.filter(|_| message.kind == FrameKind::Request)
        .map(|code| u16::from_le_bytes(*code))
}

impl Deferred {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a message may wait.
    pub fn takes(&self, message: &Received) -> bool {
        method_of(message) == Some(Method::Settle as u16)
            && message.flags & REQUEST_QUIET != 0
            && self.0.len() < COUNT_MAX
            && message.head.len() <= HEAD_BYTES_MAX
    }

    pub fn push(&mut self, link: LinkId, message: Received, ctx: &Ctx) {
        let until = ctx.now.monotonic + WAIT;
        self.0.push_back(Settlement {
            link,
            message,
            until,
        });
    }

    /// Whether a message may be ahead of those that wait.
    pub fn may_be_overtaken_by(message: &Received) -> bool {
        method_of(message) == Some(Method::Produce as u16)
    }

    /// Whether the first has waited for long enough.
    pub fn is_due(&self, ctx: &Ctx) -> bool {
        let first = self.0.front();
        first.is_some_and(|first| first.until <= ctx.now.monotonic)
    }

    pub fn pop(&mut self) -> Option<(LinkId, Received)> {
        let Settlement { link, message, .. } = self.0.pop_front()?;
        Some((link, message))
    }
}
