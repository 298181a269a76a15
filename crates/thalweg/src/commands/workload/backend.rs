//! Who carries the messages of a run: what a backend has to offer, and nothing of how.

use crate::failure::Failure;
use bytes::Bytes;
use std::time::Duration;
use workload::{Stamp, Task};

/// A connection to a backend.
pub trait Backend: Send + Sync {
    /// Makes what the run needs before any member comes.
    fn prepare(&self) -> Result<(), Failure>;
    /// Removes that again, or as much of it as there is.
    fn remove(&self) -> Result<(), Failure>;
    /// How the server was reached: the scheme of its address, as in `tcp`.
    fn transport(&self) -> String;
    /// Begins to consume: what is sent from now on comes.
    fn source(&self, task: &Task) -> Result<Box<dyn Source>, Failure>;
    /// Begins to produce, and to listen for replies.
    fn sink(&self, task: &Task) -> Result<Outgoing, Failure>;
}

/// What a producer has.
pub struct Outgoing {
    /// Where its messages go.
    pub sink: Box<dyn Sink>,
    /// Where replies to them come from, in a pattern with replies.
    pub replies: Option<Box<dyn Source>>,
}

/// A message that came.
pub struct Delivery {
    /// Its bytes.
    pub message: Bytes,
    /// Whether the backend says that it was delivered before.
    pub is_flagged: bool,
}

/// Where messages come from.
pub trait Source: Send {
    /// Messages that are there; waits this long for the first.
    fn receive(&mut self, wait: Duration) -> Result<Vec<Delivery>, Failure>;
    /// Sends a message back to its producer, with this stamp in place of its own. Waits only for the backend, never for
    /// the producer.
    fn reply(&mut self, stamp: Stamp, message: Bytes) -> Result<(), Failure>;
    /// Acknowledges the next so many of those that were received.
    fn acknowledge(&mut self, count: usize) -> Result<(), Failure>;
    /// Waits until acknowledgements and replies are stored. Fails too if nothing can come at the moment, and says why.
    fn finish(&mut self) -> Result<(), Failure>;
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Which.
    pub sequence: u64,
    /// Why the backend has refused it. Without that it is taken.
    pub refused: Option<String>,
}

/// Where messages go.
pub trait Sink: Send {
    /// Sends one, in two pieces behind its stamp.
    fn send(&mut self, sequence: u64, pieces: [&[u8]; 3]) -> Result<(), Failure>;
    /// What the backend has answered since the last call; waits this long for the first answer. Where it answers nothing,
    /// what was sent.
    fn settled(&mut self, wait: Duration) -> Result<Vec<Settled>, Failure>;
    /// Why something that was sent is not answered, as far as is known.
    fn unanswered(&self) -> Failure;
}
