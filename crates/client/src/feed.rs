//! Between the core and a thread that pulls, for every kind of consumer: what
//! has arrived, who waits for it, and why nothing more comes.
//!
//! The core puts what arrives into the state of the kind ([`Delivery::State`])
//! and notifies. A thread that pulls looks, and waits for news if there is nothing.

use crate::callbacks::call_back;
use crate::error::ClientError;
use crate::mailbox::{Command, Mailbox};
use crate::options::GapCallback;
use crate::processing_limit::ProcessingLimit;
use crate::standing::{Hindrance, Standing};
use crate::topic_state::TopicState;
use memory::{Deadline, Reservation, Signal};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use wire::PartitionIndex;
use wire::record::Gap;

/// One kind of consumer: what it keeps in a [`Feed`]. Also where the kind has
/// what is used without the feed's lock.
pub(crate) trait Delivery: Sized + Send + Sync + 'static {
    /// The consumer's options, without callbacks of the program's.
    type Options: Send + Sync;

    /// What has arrived, guarded by the feed's lock.
    type State: Send;

    /// What joins a member again that was away for too long.
    fn rejoin(key: u64) -> Command;

    /// A thread finds no news, and is about to wait.
    fn about_to_wait(_feed: &Feed<Self>) {}

    /// Why a part of what is delivered gives nothing more.
    fn failure_of_part(_state: &Self::State) -> Option<ClientError> {
        None
    }

    /// Whether nothing more is handed out, though nothing failed.
    fn is_stopped(_state: &Self::State) -> bool {
        false
    }
}

pub(crate) type OnReady = Arc<dyn Fn() + Send + Sync>;

/// What a consumer's handle and the core share.
pub(crate) struct Feed<D: Delivery> {
    /// Names it to the core.
    pub key: u64,
    pub name: String,
    /// The consumer and its topic, for errors.
    pub title: Arc<str>,
    pub topic: Arc<TopicState>,
    pub options: D::Options,
    /// Whether batches bring their inline data along.
    pub wants_inline_data: bool,
    pub mailbox: Arc<Mailbox>,
    /// A part of the driver's memory, held for as long as the consumer lives.
    pub share: Reservation,
    /// Held for a push or a pop. `arrived` is notified whenever the count of
    /// news has changed.
    guarded: Mutex<Guarded<D::State>>,
    arrived: Signal,
    on_ready: Mutex<Option<OnReady>>,
    /// Of the client's own: called where the news came to be, at once.
    on_arrival: OnceLock<OnReady>,
    /// Gaps that were met and not yet asked for.
    gaps: Mutex<Vec<(PartitionIndex, Gap)>>,
    on_gap: Mutex<Option<Arc<GapCallback>>>,
    pub processing: ProcessingLimit,
    pub standing: Standing,
    /// What the kind has besides.
    pub delivery: D,
}

/// What the puller takes next.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Whether it is to be given a gap now.
    pub gap: bool,
    /// A batch of more data is left for later.
    pub data_bytes_max: u64,
}

/// What the lock of a [`Feed`] guards.
pub(crate) struct Guarded<S> {
    /// Counts up with everything that a waiting thread should look at.
    news: u64,
    /// Nothing more will come.
    failure: Option<ClientError>,
    state: S,
}

impl<S> Guarded<S> {
    /// Nothing more will come; the first reason counts.
    pub fn fail(&mut self, error: ClientError) {
        self.failure.get_or_insert(error);
    }
}

impl<S> Deref for Guarded<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S> DerefMut for Guarded<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

/// What a [`Feed`] is made of, besides what it is for.
pub(crate) struct Origin<'a> {
    pub name: &'a str,
    pub topic: Arc<TopicState>,
    pub mailbox: Arc<Mailbox>,
    pub share: Reservation,
    pub wants_inline_data: bool,
}

impl<D: Delivery> Feed<D> {
    pub fn new(origin: Origin<'_>, options: D::Options, state: D::State, delivery: D) -> Self {
        let Origin { name, topic, .. } = origin;
        let title = format!("consumer {name} of {}", topic.name);
        Self {
            key: origin.mailbox.next_key(),
            standing: Standing::new(title.clone()),
            title: title.into(),
            name: name.to_owned(),
            topic,
            options,
            wants_inline_data: origin.wants_inline_data,
            mailbox: origin.mailbox,
            share: origin.share,
            guarded: Mutex::new(Guarded {
                news: 0,
                failure: None,
                state,
            }),
            arrived: Signal::new(),
            on_ready: Mutex::default(),
            on_arrival: OnceLock::new(),
            gaps: Mutex::default(),
            on_gap: Mutex::default(),
            processing: ProcessingLimit::default(),
            delivery,
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Guarded<D::State>> {
        self.guarded.lock().expect("no holder panics here")
    }

    /// Wakes who waits: there is something to look at.
    pub fn notify(&self) {
        self.lock().news += 1;
        self.arrived.notify();
        self.mailbox.notify();
        if let Some(on_arrival) = self.on_arrival.get() {
            on_arrival();
        }
        let on_ready = self.on_ready.lock().expect("no holder panics here").clone();
        if let Some(on_ready) = on_ready {
            call_back(move || on_ready());
        }
    }

    /// For the core: what keeps events from the consumer now, if something does.
    pub fn note(&self, now: Duration, hindrance: Option<Hindrance>) {
        if self.standing.note(now, hindrance) {
            self.notify();
        }
    }

    /// What is called must neither wait nor call anything of the user's.
    pub fn set_on_arrival(&self, on_arrival: OnReady) {
        // There is one.
        let _ = self.on_arrival.set(on_arrival);
    }

    pub fn set_on_ready(&self, on_ready: Option<OnReady>) {
        let mut held = self.on_ready.lock().expect("no holder panics here");
        let before = std::mem::replace(&mut *held, on_ready);
        drop(held);
        // Not under the lock: its end may call something of the user's.
        drop(before);
    }

    /// The count of news, to be given to [`Feed::wait`].
    pub fn news(&self) -> u64 {
        self.lock().news
    }

    /// Waits for news after `seen`; false when `deadline` has passed.
    pub fn wait(&self, seen: u64, deadline: Deadline) -> bool {
        self.processing.stay(|| self.wait_here(seen, deadline))
    }

    fn wait_here(&self, seen: u64, deadline: Deadline) -> bool {
        let driven = self.mailbox.drive(deadline, || self.has_news(seen));
        let _passive = match driven {
            Ok(done) => return done,
            Err(passive) => passive,
        };
        self.has_news(seen);
        let mut guarded = self.lock();
        while guarded.news == seen {
            guarded = match self.arrived.wait(guarded, deadline) {
                Ok(guarded) => guarded,
                Err(_) => return false,
            };
        }
        true
    }

    fn has_news(&self, seen: u64) -> bool {
        let has_news = self.lock().news != seen;
        if !has_news {
            D::about_to_wait(self);
        }
        has_news
    }

    /// The program came for events. Fails once after it was away for too long.
    pub fn visit(&self) -> Result<(), ClientError> {
        let Some(absence) = self.processing.visit() else {
            return Ok(());
        };
        self.mailbox.send(D::rejoin(self.key));
        Err(absence)
    }

    /// For the core: the program was away for too long, and the next pull says so.
    pub fn absent(&self, error: ClientError) {
        self.processing.miss(error);
        self.notify();
    }

    /// Nothing more will come.
    pub fn fail(&self, error: ClientError) {
        self.lock().fail(error);
        self.notify();
    }

    /// Why nothing more comes, of all or of a part.
    pub fn failure(&self) -> Option<ClientError> {
        let guarded = self.lock();
        D::failure_of_part(&guarded.state).or_else(|| guarded.failure.clone())
    }

    /// Whether waiting makes sense.
    pub fn health(&self) -> Result<(), ClientError> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        if let Some(lost) = self.topic.liveness(&self.mailbox).lost() {
            return Err(lost);
        }
        match self.mailbox.ended() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Whether nothing more is handed out, for the program is about to end.
    pub fn is_stopped(&self) -> bool {
        D::is_stopped(&self.lock().state)
    }

    /// Calls `callback` for each gap from now on, on the thread that pulls past it.
    pub fn set_on_gap(&self, callback: Arc<GapCallback>) {
        *self.on_gap.lock().expect("no holder panics here") = Some(callback);
    }

    /// A pull has met gaps.
    pub fn report_gaps(&self, gaps: Vec<(PartitionIndex, Gap)>) {
        if gaps.is_empty() {
            return;
        }
        let on_gap = self.on_gap.lock().expect("no holder panics here").clone();
        if let Some(on_gap) = on_gap {
            for (partition, gap) in &gaps {
                on_gap(*partition, gap);
            }
        }
        self.gaps().extend(gaps);
    }

    /// For the core: gaps of what nobody has pulled yet. A program that asks
    /// rarely has one of what went on.
    pub fn join_gaps(&self, gaps: Vec<(PartitionIndex, Gap)>) {
        if gaps.is_empty() {
            return;
        }
        let mut known = self.gaps();
        for (partition, gap) in gaps {
            let last = known.iter_mut().rev().find(|(of, _)| *of == partition);
            if !last.is_some_and(|(_, last)| last.join(&gap)) {
                known.push((partition, gap));
            }
        }
    }

    pub fn take_gaps(&self) -> Vec<(PartitionIndex, Gap)> {
        std::mem::take(&mut *self.gaps())
    }

    fn gaps(&self) -> MutexGuard<'_, Vec<(PartitionIndex, Gap)>> {
        self.gaps.lock().expect("no holder panics here")
    }
}
