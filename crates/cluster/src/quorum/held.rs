//! Messages that wait for the disk.

use super::settings::{HELD_BYTES_MAX, HELD_MAX};
use super::wal::Part;
use crate::faults::{Fault, planted};
use raft::eraftpb::{Message, MessageType};
use std::collections::VecDeque;

/// Messages that may leave once a part of the log is durable.
///
/// What a follower or candidate sends says that something is so for good: that it has voted, that
/// it has entries. What a leader sends does not depend on its own entries, as it counts itself
/// only once they are durable; but it does on its term and vote.
///
/// A disk that is full for long would have them grow without a bound, as voters answer each other at
/// every tick. Beyond [`HELD_MAX`] or [`HELD_BYTES_MAX`] the oldest is dropped, as a network may do:
/// votes, appends, heartbeats and their answers are sent again. A snapshot is not, before its
/// receiver or a deadline says so; there is one for each member at most, and it stays.
#[derive(Debug, Default)]
pub(crate) struct Held {
    messages: VecDeque<(Part, Message)>,
    /// Of all messages, nearly.
    bytes: usize,
}

impl Held {
    /// Keeps messages until all parts up to `part` are durable. Gives those that a planted fault
    /// lets go.
    pub(crate) fn keep(&mut self, part: Part, messages: Vec<Message>) -> Vec<Message> {
        let (early, late) = messages.into_iter().partition(is_early);
        let late: Vec<Message> = late;
        for message in late {
            self.bytes += bytes_of(&message);
            self.messages.push_back((part, message));
        }
        while self.messages.len() > HELD_MAX || self.bytes > HELD_BYTES_MAX {
            let mut kinds = self.messages.iter().map(|(_, message)| message);
            let Some(oldest) = kinds.position(is_repeated) else {
                break;
            };
            self.remove(oldest);
        }
        early
    }

    fn remove(&mut self, place: usize) {
        if let Some((_, message)) = self.messages.remove(place) {
            self.bytes -= bytes_of(&message);
        }
    }

    /// Those that may leave when all parts up to `durable` are.
    pub(crate) fn release(&mut self, durable: Part) -> Vec<Message> {
        let count = self
            .messages
            .iter()
            .take_while(|(part, _)| *part <= durable)
            .count();
        let released = self.messages.drain(..count).map(|(_, message)| message);
        let released: Vec<Message> = released.collect();
        self.bytes -= released.iter().map(bytes_of).sum::<usize>();
        released
    }
}

/// What a message takes in memory, nearly.
fn bytes_of(message: &Message) -> usize {
    let entries = message.entries.iter();
    let entries = entries.map(|one| one.data.len() + one.context.len() + 64);
    let snapshot = message.get_snapshot().data.len();
    entries.sum::<usize>() + snapshot + message.context.len() + 256
}

/// Whether the library sends it again if it does not arrive.
fn is_repeated(message: &Message) -> bool {
    message.get_msg_type() != MessageType::MsgSnapshot
}

fn is_early(message: &Message) -> bool {
    match message.get_msg_type() {
        MessageType::MsgAppendResponse => planted(Fault::AckBeforeSync),
        MessageType::MsgRequestVoteResponse => planted(Fault::VoteNotSynced),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raft::eraftpb::Entry;

    fn message(kind: MessageType, index: u64, bytes: usize) -> Message {
        let mut entry = Entry::default();
        entry.data = vec![0; bytes].into();
        let mut message = Message::default();
        message.set_msg_type(kind);
        message.index = index;
        message.set_entries(vec![entry].into());
        message
    }

    fn held(count: u64, bytes: usize) -> Held {
        let mut held = Held::default();
        held.keep(1, vec![message(MessageType::MsgSnapshot, 0, bytes)]);
        for index in 1..=count {
            let answer = message(MessageType::MsgHeartbeatResponse, index, bytes);
            assert!(held.keep(index, vec![answer]).is_empty());
        }
        held
    }

    #[test]
    fn what_waits_for_a_full_disk_has_a_bound() {
        for (count, bytes) in [(3 * HELD_MAX as u64, 0), (100, HELD_BYTES_MAX / 20)] {
            let mut held = held(count, bytes);
            assert!(held.messages.len() <= HELD_MAX);
            assert!(held.bytes <= HELD_BYTES_MAX);
            // A snapshot is sent once; of the others the latest stay, in their order.
            let released = held.release(count);
            assert_eq!(released[0].get_msg_type(), MessageType::MsgSnapshot);
            let indices: Vec<u64> = released[1..].iter().map(|one| one.index).collect();
            let first = indices[0];
            assert!(first > 1, "{count} messages of {bytes}");
            assert_eq!(indices, (first..=count).collect::<Vec<_>>());
            assert_eq!((held.messages.len(), held.bytes), (0, 0));
        }
    }

    #[test]
    fn what_is_durable_leaves_in_its_order_and_the_rest_waits() {
        let mut held = held(10, 100);
        let released = held.release(4);
        let indices: Vec<u64> = released.iter().map(|one| one.index).collect();
        assert_eq!(indices, [0, 1, 2, 3, 4]);
        assert_eq!(held.messages.len(), 6);
        assert!(held.release(4).is_empty());
        assert_eq!(held.release(10).len(), 6);
        assert_eq!(held.bytes, 0);
    }
}
