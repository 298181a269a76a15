//! How far a step is at its writer: open, sealed, under way.

use crate::blocks::{BlockMemory, BlockPlace, BlockSpace};
use crate::staging::{Span, Staging};
use crate::writer_options::Closed;
use bytes::Bytes;
use client::{Pending, PushFuture, TopicHandle};
use wire::Step;
use wire::message::StepDecided;
use wire::step::Part;

/// A step that is being written.
pub(crate) struct OpenStep {
    pub staging: Staging,
    pub space: BlockSpace,
    pub blocks: Vec<(Span, BlockPlace)>,
    /// Memory of others that is filled until the step is ended.
    pub filled: Vec<(Span, Bytes)>,
    pub is_pinned: bool,
}

/// A step that is ended, and its part, which is not pushed.
pub(crate) struct Sealed {
    pub part: Part,
    pub data: Vec<Bytes>,
    pub bytes: u64,
    pub is_pinned: bool,
}

/// A step whose part was pushed.
pub(crate) struct UnderWay {
    pub step: Step,
    pub bytes: u64,
    pub is_discarded: bool,
    /// `None` when it is acknowledged.
    pub push: Option<PushFuture>,
    pub decided: Decided,
}

/// What the server decided of a step, or will.
pub(crate) enum Decided {
    Asked(Pending<StepDecided>),
    Known(StepDecided),
}

impl OpenStep {
    /// Gives a span memory.
    pub fn keep(&mut self, memory: &BlockMemory, span: Span) -> BlockPlace {
        let place = self.space.reserve(memory, span.bytes as usize);
        self.blocks.push((span, place));
        place
    }
}

/// How far a rank has come with closing its run.
pub(crate) enum Closing {
    Open,
    /// The run is closed, as far as this rank can do that; readers may be behind.
    Written,
    Over(Closed),
}

/// Whether the server's memory is all that has the steps.
pub(crate) fn is_in_memory(topic: &TopicHandle) -> bool {
    let partitions = topic.partitions();
    let mut storages = partitions.iter().map(|partition| &partition.storage.kind);
    storages.any(|kind| kind == "memory")
}
