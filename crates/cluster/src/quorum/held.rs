//! Messages that wait for the disk.

use super::wal::Part;
use crate::faults::{Fault, planted};
use raft::eraftpb::{Message, MessageType};
use std::collections::VecDeque;

/// Messages that may leave once a part of the log is durable.
///
/// What a follower or candidate sends says that something is so for good: that it has voted, that
/// it has entries. What a leader sends does not depend on its own entries, as it counts itself
/// only once they are durable; but it does on its term and vote.
#[derive(Debug, Default)]
pub(crate) struct Held {
    messages: VecDeque<(Part, Message)>,
}

impl Held {
    /// Keeps messages until all parts up to `part` are durable. Gives those that a planted fault
    /// lets go.
    pub(crate) fn keep(&mut self, part: Part, messages: Vec<Message>) -> Vec<Message> {
        let (early, late) = messages.into_iter().partition(is_early);
        let late: Vec<Message> = late;
        self.messages
            .extend(late.into_iter().map(|message| (part, message)));
        early
    }

    /// Those that may leave when all parts up to `durable` are.
    pub(crate) fn release(&mut self, durable: Part) -> Vec<Message> {
        let count = self
            .messages
            .iter()
            .take_while(|(part, _)| *part <= durable)
            .count();
        let released = self.messages.drain(..count);
        released.map(|(_, message)| message).collect()
    }
}

fn is_early(message: &Message) -> bool {
    match message.get_msg_type() {
        MessageType::MsgAppendResponse => planted(Fault::AckBeforeSync),
        MessageType::MsgRequestVoteResponse => planted(Fault::VoteNotSynced),
        _ => false,
    }
}
