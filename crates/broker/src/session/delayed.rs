//! Answers that nobody hurries for: they travel with whatever comes next on
//! their connection, or by themselves after a while. Writing one by itself
//! wakes a program that waits for something else.

use crate::ctx::Ctx;
use crate::ids::LinkId;
use crate::io::Output;
use crate::timers::Timer;
use net::{Lane, Message};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::frame::FrameKind;

/// How long such an answer waits for company.
const WAIT: Duration = Duration::from_millis(1);
/// So many of a connection wait at most.
const HELD_MAX: usize = 64;

/// The answers that wait, by connection.
#[derive(Debug, Default)]
pub(super) struct Delayed(BTreeMap<LinkId, Held>);

#[derive(Debug)]
struct Held {
    messages: Vec<Message>,
    until: Duration,
}

impl Delayed {
    /// Sends a message behind what waits on its connection; events are ahead of it.
    pub fn send(&mut self, link: LinkId, message: Message, ctx: &mut Ctx) {
        let is_events = matches!(message.kind, FrameKind::Deliver | FrameKind::Leased);
        if self.0.is_empty() {
            ctx.outputs.push_back(Output::Send { link, message });
        } else if is_events {
            let lane = message.lane;
            ctx.outputs.push_back(Output::Send { link, message });
            self.release_in(link, lane, ctx);
        } else {
            self.release(link, ctx);
            ctx.outputs.push_back(Output::Send { link, message });
        }
    }

    /// Sends a message with the next one, or after a while.
    pub fn hold(&mut self, link: LinkId, message: Message, ctx: &mut Ctx) {
        let until = ctx.now.monotonic + WAIT;
        let held = self.0.entry(link).or_insert_with(|| {
            ctx.timers.insert(until, Timer::Delayed(link));
            Held {
                messages: Vec::new(),
                until,
            }
        });
        held.messages.push(message);
        if held.messages.len() >= HELD_MAX {
            self.release(link, ctx);
        }
    }

    /// Sends what waits on a connection.
    pub fn release(&mut self, link: LinkId, ctx: &mut Ctx) {
        self.release_in(link, Lane::Control, ctx);
    }

    fn release_in(&mut self, link: LinkId, lane: Lane, ctx: &mut Ctx) {
        let Some(held) = self.0.remove(&link) else {
            return;
        };
        ctx.timers.remove(held.until, Timer::Delayed(link));
        let sends = held.messages.into_iter();
        let sends = sends.map(|message| Message { lane, ..message });
        let sends = sends.map(|message| Output::Send { link, message });
        ctx.outputs.extend(sends);
    }

    /// A connection is gone.
    pub fn forget(&mut self, link: LinkId, ctx: &mut Ctx) {
        if let Some(held) = self.0.remove(&link) {
            ctx.timers.remove(held.until, Timer::Delayed(link));
        }
    }
}
