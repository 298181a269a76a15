//! A consumer of any kind in the process that opened it: how a program pulls.

use crate::data_reader::DataReader;
use crate::error::ClientError;
use crate::exclusive::{Exclusive, Having, Refused};
use crate::feed::{Delivery, Feed};
use crate::options::{DataAllocator, DataMode};
use crate::puller::{Arrivals, Puller};
use crate::standing::{Look, Patience, Pulled};
use crate::topic_handle::TopicHandle;
use memory::Deadline;
use std::sync::Arc;
use std::time::Duration;

/// One kind of consumer, as a program pulls from it.
pub(crate) trait Pull: Delivery {
    type Arrivals: Arrivals;

    /// What the program is given.
    type Event;

    /// What a handle has besides.
    type Own;

    /// The program came for events: what is to be done, or said, before.
    fn came(handle: &Handle<Self>) -> Result<(), ClientError>;

    fn event(handle: &Handle<Self>, taken: Taken<Self>) -> Self::Event;

    /// The handle ends: the core is to know.
    fn end(handle: &Handle<Self>);
}

type Taken<D> = <<D as Pull>::Arrivals as Arrivals>::Taken;
type PullerOf<D> = Puller<<D as Pull>::Arrivals>;

/// A consumer in the process that opened it.
pub(crate) struct Handle<D: Pull> {
    pub feed: Arc<Feed<D>>,
    /// The thread that pulls has it, never while waiting for the network; and one that
    /// takes in what arrives, if nobody pulls.
    pub puller: Arc<Exclusive<PullerOf<D>>>,
    pub own: D::Own,
}

impl<D: Pull> Drop for Handle<D> {
    fn drop(&mut self) {
        D::end(self);
        // Callbacks end on this thread, for the core may outlive this.
        self.feed.set_on_ready(None);
        // It may hold the last handle of the driver, which the driving thread must not drop.
        self.puller.end();
    }
}

impl<D: Pull> Handle<D> {
    pub fn new(
        topic: &TopicHandle,
        feed: Arc<Feed<D>>,
        (data, allocator): (DataMode, Option<Arc<DataAllocator>>),
        arrivals: D::Arrivals,
        own: D::Own,
    ) -> Self {
        let reads = Arc::downgrade(&feed);
        let on_read = Arc::new(move || {
            if let Some(feed) = reads.upgrade() {
                feed.notify();
            }
        });
        let reader = DataReader::new(topic, data, allocator, on_read);
        let calls_user = reader.calls_user();
        let puller = Puller::new(arrivals, reader);
        Self {
            feed,
            puller: Arc::new(Exclusive::new(puller, calls_user)),
            own,
        }
    }

    /// The next event, within `timeout` (`None`: for ever).
    pub fn pull(&self, timeout: Option<Duration>) -> Result<Option<D::Event>, ClientError> {
        let patience = Patience::within(timeout);
        if let Some(event) = self.try_pull(patience.deadline())? {
            return Ok(Some(event));
        }
        Ok(self.next(&patience, Deadline::NEVER)?.event())
    }

    /// Events that are there, at most `max`; waits for the first.
    pub fn pull_batch(
        &self,
        max: usize,
        timeout: Option<Duration>,
    ) -> Result<Vec<D::Event>, ClientError> {
        Ok(match self.pull(timeout)? {
            Some(event) => self.fill(event, max),
            None => Vec::new(),
        })
    }

    /// One look of a [`Handle::pull_batch`], which waits for `look` at most.
    pub fn pull_look(
        &self,
        max: usize,
        patience: &Patience,
        look: Duration,
    ) -> Result<Pulled<D::Event>, ClientError> {
        let look = Deadline::after(look).earlier(patience.deadline());
        let next = match self.try_pull(look)? {
            Some(event) => Look::Event(event),
            None => self.next(patience, look)?,
        };
        Ok(match next {
            Look::Event(event) => Pulled::Events(self.fill(event, max)),
            Look::Nothing => Pulled::Nothing,
            Look::NotYet => Pulled::NotYet,
        })
    }

    /// The puller, for a pull: `None` if another thread has it all the time.
    pub fn puller(
        &self,
        deadline: Deadline,
    ) -> Result<Option<Having<'_, PullerOf<D>>>, ClientError> {
        match self.puller.have(deadline) {
            Ok(puller) => Ok(Some(puller)),
            Err(Refused::Timeout) => Ok(None),
            Err(refused) => Err(refused.error("a pull", &self.feed.name)),
        }
    }

    /// The next event, if it is there.
    pub fn try_pull(&self, deadline: Deadline) -> Result<Option<D::Event>, ClientError> {
        D::came(self)?;
        let Some(mut puller) = self.puller(deadline)? else {
            return Ok(None);
        };
        let taken = puller.next();
        let gaps = puller.arrivals.take_gaps();
        drop(puller);
        self.feed.report_gaps(gaps);
        Ok(taken?.map(|taken| D::event(self, taken)))
    }

    /// Waits for the next event, for one look that ends by `look`.
    fn next(&self, patience: &Patience, look: Deadline) -> Result<Look<D::Event>, ClientError> {
        let (feed, mailbox) = (&self.feed, &self.feed.mailbox);
        loop {
            let seen = feed.news();
            if let Some(event) = self.try_pull(look.earlier(patience.deadline()))? {
                return Ok(Look::Event(event));
            }
            if feed.is_stopped() {
                return Ok(Look::Nothing);
            }
            feed.health()?;
            let node = feed.topic.liveness(mailbox);
            let until = feed.standing.wait_until(patience, look, (mailbox, &node));
            if feed.wait(seen, until) {
                continue;
            }
            if patience.has_passed() {
                feed.standing.verdict(&node)?;
                return Ok(Look::Nothing);
            }
            if look.has_passed() {
                return Ok(Look::NotYet);
            }
        }
    }

    /// The event and those that lie behind it, `max` at most.
    fn fill(&self, first: D::Event, max: usize) -> Vec<D::Event> {
        let mut events = Vec::with_capacity(max.min(4));
        events.push(first);
        // What another thread pulls meanwhile is that one's.
        let Ok(Some(mut puller)) = self.puller(Deadline::after(Duration::ZERO)) else {
            return events;
        };
        while events.len() < max {
            puller.ready(max - events.len(), |taken| {
                events.push(D::event(self, taken));
            });
            if events.len() == max {
                break;
            }
            match puller.next() {
                Ok(Some(taken)) => events.push(D::event(self, taken)),
                // An error comes again with the next pull.
                Ok(None) | Err(_) => break,
            }
        }
        let gaps = puller.arrivals.take_gaps();
        drop(puller);
        self.feed.report_gaps(gaps);
        events
    }
}
