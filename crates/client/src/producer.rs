//! A producer: events pushed into batches, futures that resolve to their ids.

use crate::batch_queue::ProducerShared;
use crate::core::Opening;
use crate::error::ClientError;
use crate::event::Event;
use crate::future::{FlushFuture, PushFuture};
use crate::journal::Journal;
use crate::mailbox::Command;
use crate::options::{AtBudget, ProducerOptions};
use crate::promise::{Pending, Promise};
use crate::threads::Threads;
use crate::topic_handle::TopicHandle;
use memory::fork::ForkSlot;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wire::{ProducerEpoch, ProducerId};

/// Appends events to a topic, in the order of each thread's pushes, each
/// stored once. Can be used from several threads.
///
/// It has failed for good when the server refuses a batch in a way that
/// another try does not help, or does not acknowledge one within the
/// `ack_timeout`: then all futures that are not resolved fail with that error
/// (after a timeout it is not known whether their events were stored), and so
/// does every push from then on. So nothing is ever stored behind a batch that
/// was given up. Open another producer to go on.
///
/// In a forked child it opens anew, with another producer id; the parent's
/// futures fail with [`ClientError::Forked`] there.
pub struct Producer {
    topic: TopicHandle,
    options: ProducerOptions,
    slot: ForkSlot<Open>,
}

impl TopicHandle {
    /// Opens a producer.
    ///
    /// # Errors
    /// As any call; [`ClientError::Io`] if the journal can't be opened.
    pub fn producer(&self, options: ProducerOptions) -> Result<Producer, ClientError> {
        self.begin_producer(options).wait()
    }

    /// [`TopicHandle::producer`], not waited for.
    pub fn begin_producer(&self, options: ProducerOptions) -> Pending<Producer> {
        Producer::begin(self, options)
    }
}

/// A producer in the process that opened it.
struct Open {
    shared: Arc<ProducerShared>,
    threads: Option<Arc<Threads>>,
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(threads) = &self.threads {
            threads.close();
        }
        let producer = self.shared.key;
        self.shared.mailbox.send(Command::CloseProducer(producer));
    }
}

impl Open {
    fn begin(topic: &TopicHandle, options: &ProducerOptions) -> Result<Pending<Self>, ClientError> {
        let session = topic.driver.session()?;
        let journal = match &options.journal {
            Some(path) => Some(Arc::new(Journal::open(path)?)),
            None => None,
        };
        let share = session.share(options.budget_bytes);
        let share_bytes = share.bytes();
        let mut shared_options = options.clone();
        if options.threads > 0 {
            if session.mailbox.is_driven_by_callers() {
                let reason = "a driver that its caller drives has no producers with threads";
                return Err(ClientError::Invalid(reason.to_owned()));
            }
            // Pushing is over when a thread finds the budget full: it waits.
            shared_options.at_budget = AtBudget::Block(options.ack_timeout);
        }
        let shared = Arc::new(ProducerShared::new(
            topic.state.clone(),
            shared_options,
            session.mailbox.clone(),
            journal,
            share,
            session.seed(),
            session.copies.clone(),
        )?);
        let threads = match options.threads {
            0 => None,
            _ => Some(Threads::start(&shared, share_bytes / 4)?),
        };
        session.register(&shared, threads.as_ref());
        let promise = Promise::new(&session.mailbox);
        // A program that gives an event up after so long does not wait longer to push one.
        let timeout = topic.driver.request_timeout().min(options.ack_timeout);
        session.mailbox.send(Command::Open {
            opening: Box::new(Opening::Producer(shared.clone())),
            timeout,
            promise: promise.clone(),
        });
        let open = Self { shared, threads };
        let what = format!("a producer of {} to be opened", topic.name());
        Ok(Pending::new(promise, what, timeout, move |_| Ok(open)))
    }

    fn flush(&self) -> FlushFuture {
        match &self.threads {
            None => self.shared.flush(),
            Some(threads) => threads.flush(&self.shared),
        }
    }

    /// Whether everything that was pushed was taken and acknowledged.
    fn is_drained(&self) -> bool {
        let threads = self.threads.as_ref();
        threads.is_none_or(|threads| threads.is_drained()) && self.shared.is_drained()
    }
}

impl Producer {
    pub(crate) fn begin(topic: &TopicHandle, options: ProducerOptions) -> Pending<Self> {
        if let Err(error) = options.check(&topic.state) {
            return Pending::failed(error);
        }
        let topic = topic.clone();
        match Open::begin(&topic, &options) {
            Err(error) => Pending::failed(error),
            Ok(opened) => opened.then(move |open| {
                let slot = ForkSlot::new();
                let _ = slot.get_or_make(|| Ok::<_, ClientError>(open));
                Ok(Self {
                    topic,
                    options,
                    slot,
                })
            }),
        }
    }

    /// This process's producer.
    #[inline]
    fn open(&self) -> Result<&Open, ClientError> {
        match self.slot.get_ref() {
            Some(open) => Ok(open),
            None => self.open_anew(),
        }
    }

    #[cold]
    fn open_anew(&self) -> Result<&Open, ClientError> {
        self.slot
            .get_or_make(|| Open::begin(&self.topic, &self.options)?.wait())?;
        Ok(self.slot.get_ref().expect("the slot was just filled"))
    }

    /// Pushes an event; the future resolves when it is as durable as was asked.
    ///
    /// Never blocks below the budget. At the budget it does what
    /// [`ProducerOptions::at_budget`] says, after sending what gathers.
    ///
    /// # Errors
    /// - [`ClientError::Invalid`] when the topic's validator, limit or
    ///   partition selector refuses the event; with
    ///   [`ProducerOptions::threads`] the future has it;
    /// - [`ClientError::UnknownPartition`] when the topic has no such
    ///   partition, or none yet;
    /// - [`ClientError::Budget`] or [`ClientError::Timeout`] at the budget;
    /// - what the producer has failed with, if it has.
    pub fn push(&self, event: Event<'_>) -> Result<PushFuture, ClientError> {
        self.push_or(event, self.options.at_budget)
    }

    /// [`Producer::push`], which at the budget does what `at_budget` says. With
    /// [`AtBudget::Fail`] it never blocks.
    ///
    /// # Errors
    /// As [`Producer::push`].
    pub fn push_or(
        &self,
        event: Event<'_>,
        at_budget: AtBudget,
    ) -> Result<PushFuture, ClientError> {
        let open = self.open()?;
        match &open.threads {
            None => open.shared.push(event, at_budget),
            Some(threads) => threads.push(&open.shared, &event, at_budget),
        }
    }

    /// Pushes an event of metadata alone: the fastest way.
    ///
    /// # Errors
    /// As [`Producer::push`].
    #[inline]
    pub fn push_metadata(&self, metadata: &[u8]) -> Result<PushFuture, ClientError> {
        let open = self.open()?;
        match &open.threads {
            None => open.shared.push_metadata(metadata),
            Some(threads) => {
                let at_budget = self.options.at_budget;
                threads.push(&open.shared, &Event::new(metadata), at_budget)
            }
        }
    }

    /// Takes an event back. True if its batch was not closed and handed to
    /// the network yet: its future resolves to [`ClientError::Cancelled`], its
    /// data is not used any more, and the event is never stored. False if it
    /// was, or if the event is not of this producer: nothing changes, and the
    /// future resolves to what becomes of the event. Never blocks.
    pub fn cancel(&self, future: &PushFuture) -> bool {
        match self.slot.get() {
            Some(open) => match &open.threads {
                None => open.shared.cancel(future),
                Some(threads) => threads.cancel(&open.shared, future),
            },
            None => false,
        }
    }

    /// Waits until everything that was pushed is acknowledged, and the
    /// journal, if there is one, is synced.
    ///
    /// # Errors
    /// [`ClientError::Timeout`], after which one may wait again, or what the
    /// producer has failed with.
    pub fn flush(&self, timeout: Duration) -> Result<(), ClientError> {
        self.flush_future().wait(timeout)
    }

    /// [`Producer::flush`] as a future. What gathers is sent at once.
    pub fn flush_future(&self) -> FlushFuture {
        match self.slot.get() {
            Some(open) => open.flush(),
            None => nothing_to_flush(),
        }
    }

    /// [`Producer::flush_future`] for somebody who goes on: batches that are
    /// sent by themselves, as soon as those before them are acknowledged, are
    /// not hurried. It takes about a microsecond, and wakes nobody.
    pub fn begin_flush(&self) -> FlushFuture {
        match self.slot.get() {
            Some(open) if open.threads.is_none() => open.shared.begin_flush(),
            Some(open) => open.flush(),
            None => nothing_to_flush(),
        }
    }

    /// Flushes and ends the producer.
    ///
    /// # Errors
    /// As [`Producer::flush`]; what is not acknowledged by then has failed.
    pub fn close(self, timeout: Duration) -> Result<(), ClientError> {
        self.end(timeout)
    }

    /// Whether nobody waits for what is pushed from now on to be stored, because
    /// something else comes of it: acknowledgements may come a little later then,
    /// with other messages.
    pub(crate) fn set_quiet(&self, is_quiet: bool) {
        if let Some(open) = self.slot.get() {
            open.shared.set_quiet(is_quiet);
        }
    }

    /// [`Producer::close`], for those who cannot give it away.
    pub(crate) fn end(&self, timeout: Duration) -> Result<(), ClientError> {
        let result = self.flush(timeout);
        // Nothing is left for Drop to wait for.
        if let Some(open) = self.slot.get() {
            let error = ClientError::Closed;
            for promise in open.shared.fail(&error) {
                promise.resolve(Err(error.clone()));
            }
        }
        result
    }

    /// The name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.options.name.as_deref()
    }

    /// Its id, as the server knows it.
    ///
    /// # Errors
    /// In a forked child it may have to be opened anew.
    pub fn id(&self) -> Result<ProducerId, ClientError> {
        Ok(self.open()?.shared.identity().producer)
    }

    /// Its life: a greater one of the same name fences it.
    ///
    /// # Errors
    /// As [`Producer::id`].
    pub fn epoch(&self) -> Result<ProducerEpoch, ClientError> {
        Ok(self.open()?.shared.identity().epoch)
    }

    /// Where it appends to.
    pub fn topic(&self) -> &TopicHandle {
        &self.topic
    }

    /// Bytes held for events that are not acknowledged.
    pub fn held_bytes(&self) -> u64 {
        self.slot.get().map_or(0, |open| open.shared.budget.held())
    }
}

impl Drop for Producer {
    /// Waits, up to the `ack_timeout`, until everything that was pushed in
    /// this process is acknowledged; not in a callback of a future, which
    /// runs on the thread that would be waited for.
    fn drop(&mut self) {
        if let Some(open) = self.slot.get()
            && open.shared.mailbox.can_wait()
            // What was closed, or has failed, was given up.
            && open.shared.failure().is_none()
            && !open.is_drained()
        {
            // A program that cares for the outcome holds futures, or calls `close`.
            let _ = open.flush().wait(self.options.ack_timeout);
        }
    }
}

/// A flush where nothing was pushed in this process.
fn nothing_to_flush() -> FlushFuture {
    FlushFuture {
        last: Vec::new(),
        finish: Arc::new(|| Ok(())),
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Producer({:?} of {})", self.name(), self.topic.name())
    }
}
