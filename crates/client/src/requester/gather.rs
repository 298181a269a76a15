//! What comes of a request: one reply, or of a broadcast those of many.

use crate::event::ConsumedEvent;
use crate::faults::{Fault, planted};
use std::sync::{Arc, Mutex};
use wire::message::ConsumerDescription;
use wire::record::ConsumerKind;

/// When the replies to a broadcast are complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gather {
    /// When everybody who was asked has replied.
    All,
    /// When so many have, or everybody.
    AtLeast(usize),
}

/// The replies to a broadcast.
#[derive(Debug)]
pub struct Gathered {
    /// Who replied, as [`crate::REPLIER_HEADER`] names him, and what; in the
    /// order of arrival.
    pub replies: Vec<(String, ConsumedEvent)>,
    /// Who was asked and has not replied.
    pub missing: Vec<String>,
}

/// Where what comes is kept until it is asked for.
pub(super) type Slot = Arc<Mutex<Answer>>;

/// What has come of a request.
#[derive(Default)]
pub(super) struct Answer {
    pub replies: Vec<(String, ConsumedEvent)>,
    broadcast: Option<Broadcast>,
}

/// What there is to know of a broadcast.
struct Broadcast {
    gather: Gather,
    /// Who was asked and has not replied; `None` while it is not known who was.
    missing: Option<Vec<String>>,
    is_stored: bool,
}

impl Answer {
    pub fn gathering(gather: Gather) -> Self {
        let broadcast = Broadcast {
            gather,
            missing: None,
            is_stored: false,
        };
        Self {
            replies: Vec::new(),
            broadcast: Some(broadcast),
        }
    }

    /// Takes a reply: the first of everybody who was asked.
    pub fn replied(&mut self, replier: String, reply: ConsumedEvent) {
        let missing = self.broadcast.as_mut().map(|one| &mut one.missing);
        if let Some(Some(missing)) = missing {
            let known = missing.iter().position(|one| *one == replier);
            match known {
                Some(known) => drop(missing.remove(known)),
                None if planted(Fault::ReplyTwice) => {}
                None => return,
            }
        }
        self.replies.push((replier, reply));
    }

    /// Takes who was asked. Replies may be there already.
    pub fn asked(&mut self, asked: Vec<String>) {
        let Some(broadcast) = &mut self.broadcast else {
            return;
        };
        broadcast.missing = Some(asked);
        for (replier, reply) in std::mem::take(&mut self.replies) {
            self.replied(replier, reply);
        }
    }

    pub fn stored(&mut self) {
        if let Some(broadcast) = &mut self.broadcast {
            broadcast.is_stored = true;
        }
    }

    pub fn is_complete(&self) -> bool {
        let Some(broadcast) = &self.broadcast else {
            return !self.replies.is_empty();
        };
        let Some(missing) = &broadcast.missing else {
            return false;
        };
        let is_enough = match broadcast.gather {
            Gather::All => false,
            Gather::AtLeast(count) => self.replies.len() >= count,
        };
        broadcast.is_stored && (is_enough || missing.is_empty())
    }

    /// Whether it can be said who is missing.
    pub fn is_known(&self) -> bool {
        let missing = self.broadcast.as_ref().map(|one| &one.missing);
        matches!(missing, Some(Some(_)))
    }

    pub fn into_gathered(mut self) -> Gathered {
        if planted(Fault::NobodyMissing) {
            self.broadcast = None;
        }
        Gathered {
            replies: self.replies,
            missing: self
                .broadcast
                .and_then(|one| one.missing)
                .unwrap_or_default(),
        }
    }
}

/// Who gets a broadcast and is to reply, as repliers name themselves.
pub(super) fn addressed(consumers: &[ConsumerDescription]) -> Vec<String> {
    let mut addressed = Vec::new();
    for consumer in consumers {
        let live = consumer.members.iter().filter(|member| member.present);
        let name = &consumer.consumer;
        match consumer.kind {
            ConsumerKind::Independent => {
                addressed.extend(live.map(|member| format!("{name}/{}", member.member)));
            }
            ConsumerKind::Group | ConsumerKind::Queue => {
                addressed.extend(live.take(1).map(|_| name.clone()));
            }
        }
    }
    addressed
}
