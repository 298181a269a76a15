//! The callers' side of a consumer: what has arrived becomes verified events.

use crate::data_reader::{DataReader, Ready};
use crate::error::ClientError;
use crate::event::ConsumedEvent;
use crate::feed::Wanted;
use crate::read_ahead::{Next, ReadAhead, Waiting};
use wire::PartitionIndex;
use wire::record::Gap;

/// What has arrived for one kind of consumer, as the puller takes it.
pub(crate) trait Arrivals: Send {
    /// An event, with what the kind knows of it.
    type Taken;

    /// The next batch that has arrived, verified, if it is what is wanted.
    fn take(&mut self, wanted: Wanted) -> Result<Option<Waiting>, ClientError>;

    /// An event is about to be handed out. `None` if it is not to be.
    fn grant(&mut self, event: ConsumedEvent) -> Option<Self::Taken>;

    /// Hands out events of the batch that is begun, at most so many.
    fn grant_ready(&mut self, ahead: &mut ReadAhead, max: usize, hand_out: impl FnMut(Self::Taken));

    /// The program came, and there is nothing to be handed out.
    fn found_none(&mut self) {}

    /// The data of these events is gone since they were delivered.
    fn gone(&mut self, ready: &Ready, ahead: &mut ReadAhead);

    /// The data of this one event is damaged where it is stored.
    fn damaged(&mut self, ready: &Ready);

    /// Takes the gaps that were met on the way.
    fn take_gaps(&mut self) -> Vec<(PartitionIndex, Gap)> {
        Vec::new()
    }
}

/// What a consumer hands out next. One thread at a time uses it.
pub(crate) struct Puller<A> {
    pub arrivals: A,
    pub ahead: ReadAhead,
    /// What went wrong when nobody had asked.
    failure: Option<ClientError>,
}

impl<A: Arrivals> Puller<A> {
    pub fn new(arrivals: A, reader: DataReader) -> Self {
        Self {
            arrivals,
            ahead: ReadAhead::new(reader),
            failure: None,
        }
    }

    /// Data that did not come along has arrived: begins to read it. For
    /// the thread that takes in what arrives; nothing of the user's is called.
    pub fn begin_early(&mut self) {
        if self.failure.is_none() {
            let arrivals = &mut self.arrivals;
            let begun = self.ahead.begin_early(|wanted| arrivals.take(wanted));
            self.failure = begun.err();
        }
    }

    /// Hands out events of the batch that is begun, at most so many: all at
    /// once, as far as the core may be kept waiting.
    pub fn ready(&mut self, max: usize, hand_out: impl FnMut(A::Taken)) {
        self.arrivals.grant_ready(&mut self.ahead, max, hand_out);
    }

    /// The next event, if it is there.
    pub fn next(&mut self) -> Result<Option<A::Taken>, ClientError> {
        while let Some(event) = self.ahead.ready() {
            if let Some(taken) = self.arrivals.grant(event) {
                return Ok(Some(taken));
            }
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        loop {
            let arrivals = &mut self.arrivals;
            match self.ahead.next(|wanted| arrivals.take(wanted))? {
                Next::Event(event) => {
                    if let Some(taken) = self.arrivals.grant(event) {
                        return Ok(Some(taken));
                    }
                }
                Next::Nothing => {
                    self.arrivals.found_none();
                    return Ok(None);
                }
                Next::Gone(ready) => self.arrivals.gone(&ready, &mut self.ahead),
                Next::Damaged(ready) => self.arrivals.damaged(&ready),
            }
        }
    }
}
