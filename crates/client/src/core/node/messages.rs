//! What arrives from the server: which part of the core it is for.

use super::NodeCore;
use crate::core::consumer::ConsumerCore;
use crate::core::elsewhere::What;
use crate::core::producer::ProducerCore;
use crate::core::queue::QueueCore;
use crate::core::wire_session::{Route, Wire, error_of};
use crate::mailbox::Counters;
use crate::promise::Reply;
use net::{Link, Received};
use wire::frame::FrameKind;
use wire::message::Authenticated;
use wire::{Codec, ErrorCode, ErrorReply, TopicId};

impl NodeCore {
    pub(super) fn message(&mut self, message: Received, link: &mut Option<&mut dyn Link>) {
        trace::passes!("an answer or a delivery, routed to who asked");
        let Some(link) = link.as_deref_mut() else {
            return;
        };
        Counters::add(&self.context.mailbox.counters.frames_received);
        self.context.liveness.heard(self.context.now);
        if self.context.session.is_none() {
            let welcomed = self
                .connection
                .greeting(&mut self.context, message, &mut self.outputs);
            if welcomed {
                self.connected(link);
            }
            return;
        }
        let mut wire = Wire::new(&mut self.context, Some(link));
        wire.heard();
        let id = message.id;
        let outcome = match message.kind {
            FrameKind::Reply => Ok(Reply::of(message)),
            FrameKind::ErrorReply if id == 0 => {
                // About the connection as a whole: it is closed now.
                let reason = error_of(&message.head).to_string();
                return self.lose(reason, &mut Some(link));
            }
            FrameKind::ErrorReply => Err(error_of(&message.head)),
            FrameKind::Deliver | FrameKind::Leased | FrameKind::Assigned => {
                if let Err(reason) = self.unasked(message, link) {
                    self.disconnect(reason, &mut Some(link));
                }
                return;
            }
            FrameKind::Authenticate => return self.authenticated(&message.head, link),
            FrameKind::Ended => return self.route_ended(id, error_of(&message.head), link),
            FrameKind::Heartbeat => return wire.heartbeat(message.flags),
            // It closes soon; what it still answers is welcome.
            FrameKind::GoAway => {
                wire.goes_away();
                for consumer in self.consumers.values() {
                    consumer.note(&wire);
                }
                for queue in self.queues.values() {
                    queue.note(&wire);
                }
                return;
            }
            other => {
                let reason = format!("a {other:?} frame is not expected of a server");
                return self.disconnect(reason, &mut Some(link));
            }
        };
        self.answer(id, outcome, link);
    }

    /// The server says how long the credential is good. One that does not do for the connection
    /// that stands is presented on another one.
    fn authenticated(&mut self, head: &[u8], link: &mut dyn Link) {
        let said = Authenticated::from_bytes("authenticated", head);
        let (context, outputs) = (&mut self.context, &mut self.outputs);
        let reason = match said {
            Ok(said) if self.connection.authenticated(context, &said, outputs) => said.refused,
            Ok(_) => return,
            Err(error) => error.to_string(),
        };
        self.disconnect(reason, &mut Some(link));
    }

    /// What comes of a subscription or membership. An error ends the connection.
    fn unasked(&mut self, message: Received, link: &mut dyn Link) -> Result<(), String> {
        let mut wire = Wire::new(&mut self.context, Some(link));
        let (kind, id) = (message.kind, message.id);
        match wire.route(id) {
            Some(Route::Subscription {
                consumer,
                partition,
            }) if kind == FrameKind::Deliver => match self.consumers.get_mut(&consumer) {
                Some(core) => core.deliver(&mut wire, partition, message),
                None => Ok(()),
            },
            Some(Route::Membership { consumer }) if kind == FrameKind::Leased => {
                match self.queues.get_mut(&consumer) {
                    Some(core) => core.leased(&mut wire, message),
                    None => Ok(()),
                }
            }
            Some(Route::Membership { consumer }) if kind == FrameKind::Assigned => {
                match self.consumers.get_mut(&consumer) {
                    Some(core) => core.assigned(&mut wire, id, &message.head),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// A subscription or membership is over.
    fn route_ended(&mut self, id: u64, error: ErrorReply, link: &mut dyn Link) {
        let route = Wire::new(&mut self.context, None).end_route(id);
        self.may_be_elsewhere(route, &error);
        let mut wire = Wire::new(&mut self.context, Some(link));
        match route {
            Some(Route::Subscription {
                consumer,
                partition,
            }) => {
                if let Some(core) = self.consumers.get_mut(&consumer) {
                    core.ended(&mut wire, partition, error);
                }
            }
            Some(Route::Membership { consumer }) => {
                if let Some(core) = self.queues.get_mut(&consumer) {
                    core.ended(&mut wire, id, error);
                } else if let Some(core) = self.consumers.get_mut(&consumer) {
                    core.expelled(&mut wire, id, error);
                }
            }
            _ => {}
        }
    }

    /// What was asked for something that was opened: which topic it is of.
    fn topic_of(&self, route: Route) -> Option<TopicId> {
        let key = route.key()?;
        let topic = self.producers.get(&key).map(ProducerCore::topic);
        let topic = topic.or_else(|| self.consumers.get(&key).map(ConsumerCore::topic));
        let topic = topic.or_else(|| self.queues.get(&key).map(QueueCore::topic));
        topic.map(|topic| topic.id)
    }

    /// Something was refused that was opened: its topic may be at another node.
    fn may_be_elsewhere(&mut self, route: Option<Route>, error: &ErrorReply) {
        if error.code == ErrorCode::NotLeader
            && let Some(topic) = route.and_then(|route| self.topic_of(route))
        {
            Wire::new(&mut self.context, None).is_elsewhere(What::Topic(topic), error);
        }
    }

    fn answer(&mut self, id: u64, outcome: Result<Reply, ErrorReply>, link: &mut dyn Link) {
        let route = Wire::new(&mut self.context, None).route(id);
        if let Err(error) = &outcome {
            self.may_be_elsewhere(route, error);
        }
        let mut wire = Wire::new(&mut self.context, Some(link));
        match route {
            None => {}
            Some(Route::Call) => {
                wire.end_route(id);
                if let Some(seek) = self.calls.answer(&mut wire, id, outcome) {
                    self.sought(seek, &mut Some(link));
                }
            }
            Some(Route::OpenProducer { producer }) => {
                wire.end_route(id);
                if let Some(core) = self.producers.get_mut(&producer) {
                    core.opened(&mut wire, outcome);
                    self.awake.insert(producer);
                }
            }
            Some(Route::Produce {
                producer,
                partition,
            }) => {
                wire.end_route(id);
                if let Some(core) = self.producers.get_mut(&producer) {
                    core.produced(&mut wire, partition, id, outcome);
                    self.awake.insert(producer);
                }
            }
            Some(Route::Subscription {
                consumer,
                partition,
            }) => {
                if outcome.is_err() {
                    wire.end_route(id);
                }
                if let Some(core) = self.consumers.get_mut(&consumer) {
                    core.subscribed(&mut wire, partition, outcome);
                }
            }
            Some(Route::Cursors { consumer }) => {
                wire.end_route(id);
                if let Some(core) = self.consumers.get_mut(&consumer) {
                    core.moved(&mut wire, outcome);
                }
            }
            Some(Route::Membership { consumer }) => {
                if outcome.is_err() {
                    wire.end_route(id);
                }
                if let Some(core) = self.queues.get_mut(&consumer) {
                    core.joined(&mut wire, id, outcome);
                } else if let Some(core) = self.consumers.get_mut(&consumer) {
                    core.joined(&mut wire, id, outcome);
                }
            }
            Some(Route::Settle { queue, sequence }) => {
                wire.end_route(id);
                if let Some(core) = self.queues.get_mut(&queue) {
                    core.settled(&mut wire, sequence, outcome);
                }
            }
            Some(Route::Extend { queue }) => {
                wire.end_route(id);
                if let Some(core) = self.queues.get_mut(&queue) {
                    core.extended(id, outcome);
                }
            }
            Some(Route::Left { queue }) => {
                wire.end_route(id);
                if let Some(core) = self.queues.get_mut(&queue) {
                    core.left(&mut wire);
                }
            }
            Some(Route::Topic { topic }) => {
                wire.end_route(id);
                if self.topics.answer(&mut wire, topic, outcome) {
                    self.grow(topic, &mut Some(link));
                }
            }
            Some(Route::Ignored) => {
                wire.end_route(id);
            }
        }
    }
}
