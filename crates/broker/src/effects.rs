//! What an act of one object asks of the others. The object notes it in the context; the node
//! routes it right behind the act, in the order in which it was noted.

use crate::answer::{Answer, Delivery};
use crate::ids::{LinkId, PartitionKey, RequestId, SharedId, StorageId};
use bytes::Bytes;
use log::{DataPlace, EventData, Found, StorageError};
use net::Message;
use wire::record::Gap;
use wire::{ErrorReply, Incarnation, Offset, PartitionIndex, TopicId};

/// See the module.
pub(crate) enum Effect {
    /// A request is answered.
    Answer(RequestId, Answer),
    Reply(RequestId, Message),
    Refuse(RequestId, ErrorReply),
    /// Something comes to a subscription or a membership, which this request began.
    Deliver(RequestId, Delivery),
    Send(LinkId, Message),
    /// A subscription has ended by itself: its session forgets it.
    SubscriptionEnded(RequestId),
    /// An append of the server itself is stored, or was refused.
    OwnAppend(u64, Result<(), ErrorReply>),
    /// The visible end of a partition of this topic has moved.
    Visible(TopicId),
    /// A partition, now in this incarnation, has lost events.
    Lost(PartitionKey, Incarnation, Gap),
    /// The data of a dead letter is damaged where it is stored: the letter goes without it.
    LetterDataLost(u64, String),
    /// Something was read for another object.
    Read(ReadFor, WasRead),
    /// External data that another object writes has come so far.
    Copy(StorageId, DataPlace, Copied),
    /// A partition takes nothing more, or is gone.
    Failed(StorageId, ErrorReply),
}

/// Who outside of a partition reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReadFor {
    /// A queue, from where on and up to where.
    Queue {
        id: SharedId,
        partition: PartitionIndex,
        from: Offset,
        end: Offset,
    },
    /// The event of a queue's dead letter.
    DeadLetter {
        id: SharedId,
        partition: PartitionIndex,
    },
    /// Where the data of a dead letter is.
    LetterOpen { append: u64 },
    /// A chunk of a dead letter's data.
    LetterData { append: u64 },
    /// Where the data of an event of a `ReadData` call is.
    Open { call: u64, event: usize },
    /// A part of a chunk of a `ReadData` call.
    Data {
        call: u64,
        chunk: usize,
        part: usize,
    },
}

/// What a reading found.
pub(crate) enum WasRead {
    Batches(Result<Found, StorageError>),
    Event(Result<EventData, StorageError>),
    Data(Result<Vec<Bytes>, StorageError>),
}

/// How far external data has come that is written for another object.
pub(crate) enum Copied {
    /// A chunk is written.
    Written,
    /// All of it is stored.
    Ready,
    Failed(ErrorReply),
}
