//! Answers and deliveries: as frames of Thalweg's own protocol, and when they are sent.
//!
//! Some answers nobody hurries for: they travel with whatever comes next on their connection, or by
//! themselves after a while. Writing one by itself wakes a program that waits for something else.

use crate::answer::{Answer, Batches, Delivery};
use crate::ctx::Ctx;
use crate::ids::LinkId;
use crate::io::Output;
use crate::timers::Timer;
use bytes::Bytes;
use net::{Lane, Message};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::codec::Write;
use wire::frame::{FrameKind, HEAD_BYTES_MAX};
use wire::message::{Deliver, Fetched};
use wire::{Codec, ErrorReply};

/// How long the text of an error may be.
const ERROR_BYTES_MAX: usize = 4096;

/// How long such an answer waits for company.
const WAIT: Duration = Duration::from_millis(1);
/// So many of a connection wait at most.
const HELD_MAX: usize = 64;

/// The answer to the request of this id.
pub(super) fn answer(id: u64, answer: Answer) -> Message {
    trace::passes!("an answer, as a message");
    match answer {
        Answer::Done => reply(id, Vec::new()),
        Answer::Produced(produced) => reply(id, produced.to_bytes()),
        Answer::Subscribed(subscribed) => reply(id, subscribed.to_bytes()),
        Answer::ProducerOpened(opened) => reply(id, opened.to_bytes()),
        Answer::Unsubscribed => in_bulk(reply(id, Vec::new())),
        Answer::DataRead(read) => in_bulk(reply(id, read.to_bytes())),
        Answer::Fetched(Batches {
            incarnation,
            batches,
            watermarks,
        }) => {
            let head = Fetched {
                incarnation,
                batch_bytes: batches.iter().map(|batch| batch.len() as u64).collect(),
                watermarks,
            };
            Message {
                payload: batches,
                ..in_bulk(reply(id, head.to_bytes()))
            }
        }
        Answer::Topic(topic) => long(id, &topic),
        Answer::Topics(topics) => long(id, &topics),
        Answer::Nodes(nodes) => long(id, &nodes),
        Answer::TopicYielded(yielded) => long(id, &yielded),
        Answer::Gaps(gaps) => long(id, &gaps),
        Answer::Cursors(cursors) => long(id, &cursors),
        Answer::Consumers(consumers) => long(id, &consumers),
        Answer::Joined(joined) => long(id, &joined),
        Answer::Settled(settled) => long(id, &settled),
        Answer::LeasesExtended(extended) => long(id, &extended),
        Answer::RunOpened(opened) => long(id, &opened),
        Answer::RunEnded(ended) => reply(id, ended.to_bytes()),
        Answer::StepAdmitted(admitted) => reply(id, admitted.to_bytes()),
        Answer::StepDecided(decided) => reply(id, decided.to_bytes()),
        Answer::PartsWanted(wanted) => reply(id, wanted.to_bytes()),
        Answer::ReadersJoined(joined) => reply(id, joined.to_bytes()),
        Answer::StepGiven(given, batches) => Message {
            payload: batches,
            ..in_bulk(reply(id, given.to_bytes()))
        },
        Answer::MirrorOpened(opened) => reply(id, opened.to_bytes()),
        Answer::AccessChecked(checked) => reply(id, checked.to_bytes()),
        Answer::PairingOffered(offered) => reply(id, offered.to_bytes()),
        Answer::Status(json) => status(id, json),
    }
}

/// An error as a message. Its text may quote what the client sent: a name of
/// any length would not fit a head.
pub(super) fn error(id: u64, error: &ErrorReply) -> Message {
    let mut error = error.clone();
    if error.message.len() > ERROR_BYTES_MAX {
        let whole = (0..=ERROR_BYTES_MAX).rev();
        let end = whole
            .into_iter()
            .find(|end| error.message.is_char_boundary(*end));
        error.message.truncate(end.unwrap_or(0));
        error.message.push('…');
    }
    Message::control(FrameKind::ErrorReply, id, error.to_bytes())
}

/// What comes to the subscription or membership of this id.
pub(super) fn delivery(id: u64, delivery: Delivery) -> Message {
    trace::passes!("a delivery, as a message");
    match delivery {
        Delivery::Events(Batches {
            incarnation,
            batches,
            watermarks,
        }) => {
            let head = Deliver {
                incarnation,
                batch_bytes: batches.iter().map(|batch| batch.len() as u64).collect(),
                watermarks,
            };
            Message {
                payload: batches,
                ..in_bulk(Message::control(FrameKind::Deliver, id, head.to_bytes()))
            }
        }
        Delivery::Leased(leased, payload) => Message {
            payload,
            ..in_bulk(Message::control(FrameKind::Leased, id, leased.to_bytes()))
        },
        Delivery::Assigned(assigned) => {
            Message::control(FrameKind::Assigned, id, assigned.to_bytes())
        }
        Delivery::Ended(error) => in_bulk(Message::control(FrameKind::Ended, id, error.to_bytes())),
    }
}

fn reply(id: u64, head: Vec<u8>) -> Message {
    Message::control(FrameKind::Reply, id, head)
}

/// A message that stays behind whatever was sent in the bulk lane before.
fn in_bulk(message: Message) -> Message {
    Message {
        lane: Lane::Bulk,
        ..message
    }
}

/// A `StatusReply`. The text of a large node is not copied for each who asked.
fn status(id: u64, json: Bytes) -> Message {
    let mut length = Vec::new();
    length.put_u32(u32::try_from(json.len()).expect("a status is below 4 GiB"));
    if length.len() + json.len() <= HEAD_BYTES_MAX as usize {
        length.put(&json);
        return reply(id, length);
    }
    Message {
        payload: vec![length.into(), json],
        ..in_bulk(reply(id, Vec::new()))
    }
}

/// An answer as a head; if that is too long for one, as a payload.
fn long(id: u64, answer: &impl Codec) -> Message {
    let head = answer.to_bytes();
    if head.len() <= HEAD_BYTES_MAX as usize {
        return reply(id, head);
    }
    Message {
        payload: vec![head.into()],
        ..in_bulk(reply(id, Vec::new()))
    }
}

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
        trace::passes!("sent, with what waited for company");
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
