//! Streams of steps: topics whose events are written by all ranks of a program together, and seen
//! whole.
//!
//! A rank's share of a step is an event of a part partition. When the parts of all ranks are as
//! durable as the topic promises, their record is appended to partition 0, and the step is there.
//! Nothing else is durable: a start reads the records, and the parts behind them. See
//! `docs/concept/steps.md`.

mod core;
mod event;
mod groups;
mod held;
mod intake;
mod lent;
mod pins;
mod ranks;
mod readers;
mod records;
mod releases;
mod run;
mod share;
mod stream;
mod writers;

use crate::coordinator::commands::Commands;
use crate::coordinator::served_topic::Topics;
use crate::ctx::Ctx;
use crate::drain_stage::Drain;
use crate::effects::{StepsRead, WasRead};
use crate::ids::RequestId;
use crate::partition::Partitions;
use crate::refusal::{Refused, refuse, unknown_topic};
use crate::request::{StepsRequest, Target};
use crate::session::{Sessions, Work};
use lent::Lent;
use std::collections::BTreeMap;
use std::time::Duration;
use stream::Stream;
use topic::TopicKind;
use wire::message::ReadData;
use wire::{ErrorCode, ErrorReply, TopicId};

/// What is lent by the node, which streams add their own to.
pub(crate) struct Around<'a> {
    pub ctx: &'a mut Ctx,
    /// Keeps a note of what a stream does for a request.
    pub sessions: &'a mut Sessions,
    pub partitions: &'a mut Partitions,
    pub commands: &'a Commands,
    pub topics: &'a Topics,
    pub drain: Drain,
}

/// All streams of a node that anybody has asked for, or that were there at its start.
#[derive(Default)]
pub(crate) struct Streams {
    all: BTreeMap<TopicId, Stream>,
    appends: BTreeMap<u64, TopicId>,
}

impl Streams {
    /// Calls a stream. `None` if the topic is not there, or is none of steps.
    fn at<R>(
        &mut self,
        topic: TopicId,
        around: Around<'_>,
        act: impl FnOnce(&mut Stream, &mut Lent<'_>) -> R,
    ) -> Option<R> {
        let Around {
            ctx,
            partitions,
            commands,
            topics,
            drain,
            ..
        } = around;
        let mut lent = Lent {
            ctx,
            partitions,
            commands,
            topics,
            appends: &mut self.appends,
            is_draining: drain.is_begun(),
        };
        let Some(served) = topics.get(topic) else {
            if let Some(mut stream) = self.all.remove(&topic) {
                stream.refuse_all(&unknown_topic(topic), &mut lent);
            }
            return None;
        };
        if served.definition.kind() != TopicKind::Steps {
            return None;
        }
        let stream = self
            .all
            .entry(topic)
            .or_insert_with(|| Stream::new(topic, served));
        Some(act(stream, &mut lent))
    }

    /// Takes a request of a rank.
    pub fn ask(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        request: StepsRequest,
        around: Around<'_>,
    ) -> Result<(), Refused> {
        around.drain.refuse_closing()?;
        let namespace = around.sessions.namespace(caller.link);
        let name = around.topics.of(namespace, topic)?.name.clone();
        if let Some(session) = around.sessions.get_mut(caller.link) {
            session.begin_work(caller.id, Work::Steps(topic));
        }
        let asked = self.at(topic, around, |stream, lent| {
            stream.ask(caller, request, lent)
        });
        asked.ok_or_else(|| {
            refuse(
                ErrorCode::InvalidTopic,
                format!("topic {name:?} is of events, not of steps"),
            )
        })
    }

    /// Says of a read of parts where data is that their writers kept, or has it wait for that.
    ///
    /// # Errors
    /// Data that was at a writer, and is gone.
    pub fn look_up(
        &mut self,
        (caller, target): (RequestId, Target),
        read: ReadData,
        sessions: &mut Sessions,
        ctx: &mut Ctx,
    ) -> Result<Option<ReadData>, Refused> {
        let Some(stream) = self.all.get_mut(&target.topic) else {
            return Ok(Some(read));
        };
        let found = stream.look_up((caller, target), read)?;
        if found.is_none() {
            if let Some(session) = sessions.get_mut(caller.link) {
                session.begin_work(caller.id, Work::Steps(target.topic));
            }
            ctx.dirty.streams.insert(target.topic);
        }
        Ok(found)
    }

    /// Lets everything take effect that has happened to a stream.
    pub fn advance(&mut self, topic: TopicId, around: Around<'_>) {
        // At the end nothing changes any more; the next run goes on from here.
        if around.drain.refuse_closing().is_ok() {
            self.at(topic, around, Stream::advance);
        }
    }

    /// A caller is gone, or waits no more.
    pub fn forget(&mut self, topic: TopicId, caller: RequestId, around: Around<'_>) {
        self.at(topic, around, |stream, lent| stream.forget(caller, lent));
    }

    pub fn timer_came(&mut self, topic: TopicId, around: Around<'_>) {
        self.at(topic, around, Stream::timer_came);
    }

    /// What was read for a stream has come.
    pub fn was_read(
        &mut self,
        topic: TopicId,
        what: StepsRead,
        found: WasRead,
        around: Around<'_>,
    ) {
        let WasRead::Batches(found) = found else {
            return;
        };
        self.at(topic, around, |stream, lent| match what {
            StepsRead::Records => stream.records_read(found, lent),
            StepsRead::Parts(index) => stream.parts_read(index, found, lent),
            StepsRead::Pin => stream.pin_read(found, lent),
            StepsRead::Turn {
                group,
                turn,
                is_pinned,
            } => stream.turn_read((group, turn, is_pinned), found, lent),
        });
    }

    /// A record is stored, or was refused. Says whether the append was a stream's.
    pub fn appended(
        &mut self,
        append: u64,
        result: &Result<(), ErrorReply>,
        around: Around<'_>,
    ) -> bool {
        let Some(topic) = self.appends.remove(&append) else {
            return false;
        };
        self.at(topic, around, |stream, lent| {
            stream.appended(append, result, lent)
        });
        true
    }

    /// What a request waits for, for people.
    pub fn why(&self, topic: TopicId, caller: RequestId, now: Duration) -> Option<String> {
        self.all.get(&topic)?.why(caller, now)
    }
}
