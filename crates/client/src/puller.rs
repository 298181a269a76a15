//! The callers' side of a consumer: what has arrived becomes verified events, and the data of the
//! batches behind the one that is handed out is read ahead.

use crate::data_reader::{DataReader, Reading, Ready};
use crate::error::ClientError;
use crate::event::{ConsumedEvent, DeliveredBatch};
use crate::faults::{Fault, planted};
use crate::feed::Wanted;
use std::collections::VecDeque;
use std::sync::Arc;
use wire::record::Gap;
use wire::{ErrorCode, Offset, PartitionIndex};

/// Batches whose data is read ahead of the one that is handed out.
const READ_AHEAD: usize = 2;

/// Bytes of data that may lie here before anybody has asked for an event.
const READ_EARLY_BYTES_MAX: u64 = 64 << 20;

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

/// A batch that is to be begun.
pub(crate) struct Waiting {
    pub batch: Arc<DeliveredBatch>,
    /// Events before it are of no interest.
    pub floor: Offset,
    /// Whether each event's data is read alone: some of it is damaged, and it
    /// is to be found out which.
    one_by_one: bool,
}

impl Waiting {
    pub fn new(batch: DeliveredBatch, floor: Offset) -> Self {
        Self {
            batch: Arc::new(batch),
            floor,
            one_by_one: false,
        }
    }
}

/// A batch that was begun.
struct Begun {
    ready: Ready,
    /// Data that is on its way.
    reading: Option<Reading>,
    one_by_one: bool,
}

/// What comes next.
pub(crate) enum Next {
    /// An event, with its data.
    Event(ConsumedEvent),
    /// Nothing yet.
    Nothing,
    /// The data of these events is gone since they were delivered.
    Gone(Ready),
    /// The data of this one event is damaged where it is stored.
    Damaged(Ready),
}

/// What is handed out next. One thread at a time uses it.
pub(crate) struct ReadAhead {
    reader: DataReader,
    current: Option<Ready>,
    begun: VecDeque<Begun>,
    /// Taken, and to be begun before what is taken next: failed to be begun
    /// or read, or the rest of a batch whose events are read one by one.
    again: VecDeque<Waiting>,
}

impl ReadAhead {
    pub fn new(reader: DataReader) -> Self {
        Self {
            reader,
            current: None,
            begun: VecDeque::new(),
            again: VecDeque::new(),
        }
    }

    /// The next event of the batch that is handed out, without a look at others.
    #[inline]
    pub fn ready(&mut self) -> Option<ConsumedEvent> {
        self.current.as_mut()?.next()
    }

    /// Begins what has arrived though nobody has asked for it, as far as that
    /// takes nobody else and little memory. `take` as for [`ReadAhead::next`].
    pub fn begin_early(
        &mut self,
        mut take: impl FnMut(Wanted) -> Result<Option<Waiting>, ClientError>,
    ) -> Result<(), ClientError> {
        if !self.reader.reads_by_itself() || !self.again.is_empty() {
            return Ok(());
        }
        self.read_ahead(&mut take, READ_EARLY_BYTES_MAX)
    }

    /// What comes next. `take` gives the next batch that has arrived, if it is
    /// what is wanted.
    pub fn next(
        &mut self,
        mut take: impl FnMut(Wanted) -> Result<Option<Waiting>, ClientError>,
    ) -> Result<Next, ClientError> {
        loop {
            if let Some(ready) = &mut self.current {
                if let Some(event) = ready.next() {
                    return Ok(Next::Event(event));
                }
                self.current = None;
            }
            self.read_ahead(&mut take, u64::MAX)?;
            let Some(first) = self.begun.front_mut() else {
                return Ok(Next::Nothing);
            };
            let outcome = match &mut first.reading {
                None => Ok(()),
                Some(reading) => match reading.try_finish(&mut first.ready) {
                    None => return Ok(Next::Nothing),
                    Some(outcome) => outcome,
                },
            };
            let begun = self.begun.pop_front().expect("looked at above");
            match outcome {
                Ok(()) => self.current = Some(begun.ready),
                Err(error) => {
                    if let Some(next) = self.not_read(begun, error)? {
                        return Ok(next);
                    }
                }
            }
        }
    }

    /// The data of a batch could not be read. What another try cannot help is
    /// reported: a consumer does not stand still before it.
    fn not_read(&mut self, failed: Begun, error: ClientError) -> Result<Option<Next>, ClientError> {
        // What was begun behind it keeps its place behind it. Several of these may be single events of one
        // batch, whose rest waits already: each is joined to that rest, or its events would come twice.
        for begun in std::mem::take(&mut self.begun).into_iter().rev() {
            match planted(Fault::TwiceBehindDamage) {
                true => self.again.push_front(begun.into_waiting()),
                false => self.put_back(begun.into_waiting()),
            }
        }
        match error.code() {
            Some(ErrorCode::WrongIncarnation | ErrorCode::OffsetOutOfRange) => {
                Ok(Some(Next::Gone(failed.ready)))
            }
            Some(ErrorCode::Damaged) if failed.one_by_one => Ok(Some(Next::Damaged(failed.ready))),
            Some(ErrorCode::Damaged) => {
                self.put_back(Waiting {
                    one_by_one: true,
                    ..failed.into_waiting()
                });
                Ok(None)
            }
            _ => {
                self.put_back(failed.into_waiting());
                Err(error)
            }
        }
    }

    /// Puts a batch that was begun in front of what waits. If the rest of that batch is what waits first, the rest
    /// begins earlier now.
    fn put_back(&mut self, waiting: Waiting) {
        match self.again.front_mut() {
            Some(rest) if Arc::ptr_eq(&rest.batch, &waiting.batch) => *rest = waiting,
            _ => self.again.push_front(waiting),
        }
    }

    fn read_ahead(
        &mut self,
        take: &mut impl FnMut(Wanted) -> Result<Option<Waiting>, ClientError>,
        bytes_max: u64,
    ) -> Result<(), ClientError> {
        while self.begun.len() < READ_AHEAD {
            let readings = self.begun.iter().flat_map(|begun| &begun.reading);
            let bytes: u64 = readings.map(Reading::bytes).sum();
            let wanted = Wanted {
                // It is reported when all before it was handed out.
                gap: self.current.is_none() && self.begun.is_empty(),
                data_bytes_max: bytes_max.saturating_sub(bytes),
            };
            let waiting = match self.again.pop_front() {
                Some(again) => again,
                None => match take(wanted)? {
                    Some(taken) => taken,
                    None => return Ok(()),
                },
            };
            match self.begin(&waiting) {
                Ok((begun, rest)) => {
                    self.begun.push_back(begun);
                    if let Some(floor) = rest {
                        self.again.push_front(Waiting { floor, ..waiting });
                    }
                }
                Err(error) => {
                    self.again.push_front(waiting);
                    // What was begun before it comes first.
                    return if self.begun.is_empty() {
                        Err(error)
                    } else {
                        Ok(())
                    };
                }
            }
        }
        Ok(())
    }

    /// Begins a batch, or its first event alone; then it returns where the rest begins.
    fn begin(&self, waiting: &Waiting) -> Result<(Begun, Option<Offset>), ClientError> {
        trace::passes!("its batch is begun, and its data read");
        let count = waiting.batch.columns.events.len() as u32;
        let mut ready = Ready {
            batch: waiting.batch.clone(),
            next: 0,
            end: count,
            floor: waiting.floor,
            data: None,
        };
        let mut rest = None;
        if waiting.one_by_one {
            ready.next = ready.skip().unwrap_or(count);
            ready.end = (ready.next + 1).min(count);
            rest = (ready.end < count).then(|| ready.batch.id(ready.end).offset);
        }
        let reading = self.reader.begin(&mut ready)?;
        let begun = Begun {
            ready,
            reading,
            one_by_one: waiting.one_by_one,
        };
        Ok((begun, rest))
    }

    /// Batches that were taken, in order, each with the first event of it that
    /// was not handed out; `None` if all were.
    pub fn taken(&self) -> impl Iterator<Item = (&DeliveredBatch, Option<Offset>)> {
        let begun = self.begun.iter().map(|begun| &begun.ready);
        let ready = self.current.iter().chain(begun).map(|ready| {
            let next = ready.position().map(|position| position.offset);
            (&*ready.batch, next)
        });
        let again = self.again.iter().map(|again| {
            let next = again.batch.base_offset.max(again.floor);
            (&*again.batch, Some(next))
        });
        ready.chain(again)
    }

    /// Forgets the batches for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&DeliveredBatch) -> bool) {
        if !self.current.as_ref().is_none_or(|one| keep(&one.batch)) {
            self.current = None;
        }
        self.begun.retain(|begun| keep(&begun.ready.batch));
        self.again.retain(|again| keep(&again.batch));
    }
}

impl Begun {
    /// The batch again, from the first event that was not handed out.
    fn into_waiting(self) -> Waiting {
        let next = self.ready.position().map(|position| position.offset);
        Waiting {
            floor: next.unwrap_or(self.ready.floor),
            batch: self.ready.batch,
            one_by_one: self.one_by_one,
        }
    }
}
