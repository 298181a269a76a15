//! Topics in use are looked at now and then: partitions may be added to them.
//!
//! While the connection is idle this takes the place of a heartbeat, so that
//! no frame more is sent.

use super::elsewhere::What;
use super::retry;
use super::wire_session::{Request, Route, Timer, Wire};
use crate::promise::Reply;
use crate::topic_state::TopicState;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use wire::codec::Codec;
use wire::message::{Method, TopicDescription, TopicName};
use wire::{ErrorReply, TopicId};

/// How often, while there is traffic.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// How often, where somebody has reason to believe that one was altered.
const SUSPICION_INTERVAL: Duration = Duration::from_millis(100);

/// How often, where a leader was refused that was the last one known: the answer to the question
/// before may be on its way.
const STALE_INTERVAL: Duration = Duration::from_millis(10);

/// The states of a topic that moves to another node.
pub(super) struct Watched(Vec<Weak<TopicState>>);

/// What producers and consumers know of their topics.
#[derive(Default)]
pub(super) struct Topics {
    /// A topic that was opened several times has several states.
    states: BTreeMap<TopicId, Vec<Weak<TopicState>>>,
    is_armed: bool,
    asked_at: Duration,
}

impl Topics {
    /// A producer or a consumer uses `topic` from now on.
    pub fn add(&mut self, wire: &mut Wire<'_>, topic: &Arc<TopicState>) {
        let states = self.states.entry(topic.id).or_default();
        states.retain(|state| state.strong_count() > 0);
        if !states
            .iter()
            .any(|state| std::ptr::eq(state.as_ptr(), Arc::as_ptr(topic)))
        {
            states.push(Arc::downgrade(topic));
        }
        self.watch(wire);
    }

    /// A topic is at another node from now on.
    pub fn leave(&mut self, topic: TopicId) -> Watched {
        Watched(self.states.remove(&topic).unwrap_or_default())
    }

    /// A topic is at this node from now on.
    pub fn adopt(&mut self, wire: &mut Wire<'_>, topic: TopicId, Watched(states): Watched) {
        if !states.is_empty() {
            if wire.is_up() {
                describe_one_of(wire, topic, &states);
            }
            self.states.entry(topic).or_default().extend(states);
            self.watch(wire);
        }
    }

    fn watch(&mut self, wire: &mut Wire<'_>) {
        if !std::mem::replace(&mut self.is_armed, true) {
            let at = wire.now() + REFRESH_INTERVAL;
            wire.context.arm(at, Timer::Refresh);
        }
    }

    /// Time to look, unless the connection is idle: then it is done in place
    /// of the next heartbeat.
    pub fn refresh(&mut self, wire: &mut Wire<'_>) {
        let is_due = wire.now() >= self.asked_at + REFRESH_INTERVAL;
        if is_due && !wire.is_idle() {
            self.ask(wire);
        }
        self.is_armed = !self.states.is_empty();
        if self.is_armed {
            let at = match is_due {
                true => wire.now(),
                false => self.asked_at,
            };
            wire.context.arm(at + REFRESH_INTERVAL, Timer::Refresh);
        }
    }

    /// One of them may have been altered.
    pub fn suspect(&mut self, wire: &mut Wire<'_>) {
        for state in self.states.values().flatten().filter_map(Weak::upgrade) {
            state.looked_at();
        }
        if wire.now() >= self.asked_at + SUSPICION_INTERVAL {
            self.ask(wire);
        }
    }

    /// One of them has another leader than is known.
    pub fn look_up(&mut self, wire: &mut Wire<'_>) {
        if wire.now() >= self.asked_at + STALE_INTERVAL {
            self.ask(wire);
        }
    }

    /// Asks how the topics in use are now. False if there is none to ask about.
    pub fn ask(&mut self, wire: &mut Wire<'_>) -> bool {
        self.states.retain(|_, states| {
            states.retain(|state| state.strong_count() > 0);
            !states.is_empty()
        });
        if !wire.is_up() {
            return false;
        }
        self.asked_at = wire.now();
        let mut asked = false;
        for (topic, states) in &self.states {
            asked |= describe_one_of(wire, *topic, states);
        }
        asked
    }

    /// How a topic is now. True if it has more partitions than were known.
    /// That it is gone will be seen when it is used.
    pub fn answer(
        &mut self,
        wire: &mut Wire<'_>,
        topic: TopicId,
        outcome: Result<Reply, ErrorReply>,
    ) -> bool {
        let reply = match outcome {
            Ok(reply) => reply,
            Err(error) => {
                wire.is_elsewhere(What::Topic(topic), &error);
                return false;
            }
        };
        let description = TopicDescription::from_bytes("topic description", &reply.head);
        let Ok(description) = description else {
            return false;
        };
        let Some(states) = self.states.get(&topic) else {
            // It was asked for what is at another node.
            wire.context.described.push(description.topic);
            return false;
        };
        let mut grew = false;
        for state in states.iter().filter_map(Weak::upgrade) {
            let known = state.partition_count();
            state.update(description.clone());
            grew |= state.partition_count() > known;
        }
        grew
    }
}

/// Asks how a topic is now, if something uses it. False if nothing does.
fn describe_one_of(wire: &mut Wire<'_>, topic: TopicId, states: &[Weak<TopicState>]) -> bool {
    let state = states.iter().find_map(Weak::upgrade);
    if let Some(state) = &state {
        describe(wire, topic, &state.name);
    }
    state.is_some()
}

/// Asks how a topic is now, or where.
pub(super) fn describe(wire: &mut Wire<'_>, topic: TopicId, name: &str) {
    let name = TopicName {
        name: name.to_owned(),
    };
    let request = Request {
        method: Method::DescribeTopic,
        topic: TopicId(0),
        leader_epoch: 0,
        remaining: retry::REQUEST_TIMEOUT,
        body: &name.to_bytes(),
        payload: Vec::new(),
        is_quiet: false,
    };
    wire.request(Route::Topic { topic }, request);
}
