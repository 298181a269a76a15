//! A consumer of any kind in the process that opened it: how a program pulls.

use crate::data_reader::DataReader;
use crate::error::ClientError;
use crate::exclusive::{Exclusive, Having, Refused};
use crate::feed::{Delivery, Feed, OnReady};
use crate::following::{Following, Follows, release};
use crate::mailbox::Mailbox;
use crate::options::{DataAllocator, DataMode, GapCallback};
use crate::promise::Pending;
use crate::puller::{Arrivals, Puller};
use crate::standing::{Look, Patience, Pulled};
use crate::topic_handle::TopicHandle;
use memory::fork::ForkSlot;
use memory::{Deadline, Signal};
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Duration;
use wire::PartitionIndex;
use wire::record::Gap;

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

/// An event, and the handle that it came by.
type Found<D> = (Arc<Handle<D>>, <D as Pull>::Event);
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
        trace::passes!("taken if it is there, or waited for");
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
        trace::passes!("taken if it is there, or waited for");
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
        self.take(deadline)
    }

    /// The next event, if it is there, for a program of which it was said that it came.
    pub fn take(&self, deadline: Deadline) -> Result<Option<D::Event>, ClientError> {
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
    pub fn fill(&self, first: D::Event, max: usize) -> Vec<D::Event> {
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

/// A consumer's handles in the process that opened it: one, or one for each partition of a spread topic that it reads, in the order of
/// those, from which a program pulls as from one.
pub(crate) struct Many<D: Pull> {
    handles: Handles<D>,
    arrived: Arc<Arrived>,
    /// The handle that is looked at first next time, for fairness.
    turn: AtomicUsize,
}

enum Handles<D: Pull> {
    Only(Handle<D>),
    Each(Box<Each<D>>),
}

/// Those of a spread topic's partitions.
struct Each<D: Pull> {
    list: RwLock<List<D>>,
    callbacks: Mutex<Callbacks>,
    /// How it gets partitions that are added; `None` of one that reads certain partitions alone.
    growth: Option<Growth<D>>,
}

/// Handles are added, and never taken away.
struct List<D: Pull> {
    handles: Arc<Vec<Arc<Handle<D>>>>,
    /// Whether none is added any more.
    is_closed: bool,
}

struct Growth<D: Pull> {
    following: Following,
    begin: BeginAdded<D>,
}

/// Opens what there is of partitions that are added.
pub(crate) type BeginAdded<D> =
    Box<dyn Fn(&TopicHandle, &[TopicHandle]) -> Pending<Vec<Handle<D>>> + Send + Sync>;

/// The program's, for handles that are added too.
#[derive(Default, Clone)]
struct Callbacks {
    on_ready: Option<OnReady>,
    on_gap: Option<Arc<GapCallback>>,
    /// Counts up with each change.
    changes: u32,
}

/// All handles that there are, in the order of their partitions.
pub(crate) enum All<'a, D: Pull> {
    Only(&'a Handle<D>),
    Each(Arc<Vec<Arc<Handle<D>>>>),
}

impl<D: Pull> All<'_, D> {
    pub fn iter(&self) -> impl Iterator<Item = &Handle<D>> {
        let (only, each) = match self {
            Self::Only(one) => (Some(*one), &[][..]),
            Self::Each(each) => (None, &each[..]),
        };
        only.into_iter().chain(each.iter().map(|one| &**one))
    }
}

/// One of several, that is held for as long as it is used.
pub(crate) enum Of<'a, T> {
    /// There is no other.
    Only(&'a T),
    /// Others may be added meanwhile.
    Shared(Arc<T>),
}

impl<T> Deref for Of<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Only(one) => one,
            Self::Shared(one) => one,
        }
    }
}

/// What has come for any of several handles.
struct Arrived {
    mailbox: Arc<Mailbox>,
    /// Counts up with all that a waiting thread should look at. Held for a look or a step.
    news: Mutex<u64>,
    /// Notified whenever the count has changed.
    signal: Signal,
    /// Of the client's own: called where the news came to be, at once.
    on_arrival: OnceLock<OnReady>,
}

impl Arrived {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.news.lock().expect("no holder panics here")
    }

    fn notify(&self) {
        *self.lock() += 1;
        self.signal.notify();
        self.mailbox.notify();
        if let Some(on_arrival) = self.on_arrival.get() {
            on_arrival();
        }
    }

    fn new(mailbox: Arc<Mailbox>) -> Arc<Self> {
        Arc::new(Self {
            mailbox,
            news: Mutex::new(0),
            signal: Signal::new(),
            on_arrival: OnceLock::new(),
        })
    }

    /// What arrives for this handle is news here.
    fn listen_to<D: Pull>(self: &Arc<Self>, handle: &Handle<D>) {
        let arrived = self.clone();
        let notify = Arc::new(move || arrived.notify());
        handle.feed.set_on_arrival(notify);
    }
}

impl<D: Pull> Follows for Many<D>
where
    Handle<D>: Send + Sync,
{
    fn following(&self) -> Option<&Following> {
        match &self.handles {
            Handles::Only(_) => None,
            Handles::Each(each) => each.growth.as_ref().map(|growth| &growth.following),
        }
    }

    fn known(&self) -> usize {
        self.all().iter().count()
    }

    fn add(this: &Arc<Self>, parts: &[TopicHandle]) -> Pending<()> {
        let growth = match &this.handles {
            Handles::Each(each) if !parts.is_empty() => each.growth.as_ref(),
            _ => None,
        };
        let Some(growth) = growth else {
            return Pending::ready(());
        };
        let many = Arc::downgrade(this);
        let begun = (growth.begin)(&growth.following.topic, parts);
        begun.then(move |handles| {
            match many.upgrade() {
                Some(many) => {
                    many.take_in(handles);
                    release(many);
                }
                None => handles.into_iter().map(Arc::new).for_each(release),
            }
            Ok(())
        })
    }
}

impl<D: Pull> Many<D>
where
    Handle<D>: Send + Sync,
{
    /// Of the only one.
    pub fn only_one(handle: Handle<D>) -> Self {
        Self {
            arrived: Arrived::new(handle.feed.mailbox.clone()),
            handles: Handles::Only(handle),
            turn: AtomicUsize::new(0),
        }
    }

    /// Of the handles that are begun, for `what`, at the partitions of a spread topic. With `added` it gets those of partitions that
    /// are added, once it is put in its place ([`Many::put`]).
    pub fn begin(
        topic: &TopicHandle,
        begun: Vec<Pending<Handle<D>>>,
        added: Option<BeginAdded<D>>,
        what: String,
    ) -> Result<Pending<Self>, ClientError> {
        let session = topic.driver.session()?;
        let timeout = topic.driver.request_timeout();
        let mailbox = session.mailbox.clone();
        let growth = added.map(|begin| Growth {
            following: Following::new(topic.clone()),
            begin,
        });
        let all = Pending::all(begun, &mailbox, what, timeout);
        Ok(all.then(move |handles| {
            let arrived = Arrived::new(mailbox);
            let handles = handles.into_iter().map(Arc::new).collect::<Vec<_>>();
            for handle in &handles {
                arrived.listen_to(handle);
            }
            Ok(Self {
                handles: Handles::Each(Box::new(Each {
                    list: RwLock::new(List {
                        handles: Arc::new(handles),
                        is_closed: false,
                    }),
                    callbacks: Mutex::default(),
                    growth,
                })),
                arrived,
                turn: AtomicUsize::new(0),
            })
        }))
    }

    /// Puts it in its place, in this process; from now on it follows its topic.
    pub fn put(
        slot: &ForkSlot<Self>,
        make: impl FnOnce() -> Result<Self, ClientError>,
    ) -> Result<Arc<Self>, ClientError> {
        let many = slot.get_or_make(make)?;
        Following::start(&many);
        Ok(many)
    }

    /// These are of partitions that were added, behind all others.
    fn take_in(&self, handles: Vec<Handle<D>>) {
        let Handles::Each(each) = &self.handles else {
            return;
        };
        let handles = handles.into_iter().map(Arc::new).collect::<Vec<_>>();
        let mut list = each.list.write().expect("no holder panics here");
        if list.is_closed {
            drop(list);
            return handles.into_iter().for_each(release);
        }
        let all = list.handles.iter().chain(&handles);
        list.handles = Arc::new(all.cloned().collect());
        drop(list);
        for handle in &handles {
            self.arrived.listen_to(handle);
        }
        let mut seen = None;
        loop {
            let callbacks = each
                .callbacks
                .lock()
                .expect("no holder panics here")
                .clone();
            if seen.replace(callbacks.changes) == Some(callbacks.changes) {
                break;
            }
            for Handle { feed, .. } in handles.iter().map(|one| &**one) {
                feed.set_on_ready(callbacks.on_ready.clone());
                if let Some(on_gap) = &callbacks.on_gap {
                    feed.set_on_gap(on_gap.clone());
                }
            }
        }
        // Of some there are events already.
        handles.iter().for_each(|one| one.feed.notify());
    }

    /// All handles.
    pub fn all(&self) -> All<'_, D> {
        match &self.handles {
            Handles::Only(one) => All::Only(one),
            Handles::Each(each) => {
                let list = each.list.read().expect("no holder panics here");
                All::Each(list.handles.clone())
            }
        }
    }

    /// All handles, to which none is added any more.
    pub fn closed(&self) -> All<'_, D> {
        if let Handles::Each(each) = &self.handles {
            each.list.write().expect("no holder panics here").is_closed = true;
        }
        self.all()
    }

    /// The only handle, if there is one only.
    #[inline]
    fn only(&self) -> Option<&Handle<D>> {
        match &self.handles {
            Handles::Only(one) => Some(one),
            Handles::Each(_) => None,
        }
    }

    /// The first handle, for what all have in common; there is none of a topic that has no partition yet.
    pub fn first(&self) -> Option<Of<'_, Handle<D>>> {
        match self.all() {
            All::Only(one) => Some(Of::Only(one)),
            All::Each(each) => each.first().cloned().map(Of::Shared),
        }
    }

    /// What commands go to.
    pub fn mailbox(&self) -> &Arc<Mailbox> {
        &self.arrived.mailbox
    }

    /// The handle that a partition is read by, if there is one: the only one, or that of the partition's own topic.
    pub fn of(&self, partition: PartitionIndex) -> Option<Of<'_, Handle<D>>> {
        if let Some(one) = self.only() {
            return Some(Of::Only(one));
        }
        let All::Each(each) = self.all() else {
            return None;
        };
        let has = |one: &&Arc<Handle<D>>| one.feed.topic.first == partition.0;
        each.iter().find(has).cloned().map(Of::Shared)
    }

    /// As [`Handle::pull`].
    pub fn pull(&self, timeout: Option<Duration>) -> Result<Option<D::Event>, ClientError> {
        if let Some(one) = self.only() {
            return one.pull(timeout);
        }
        let patience = Patience::within(timeout);
        let next = self.next(&patience, Deadline::NEVER)?.event();
        Ok(next.map(|(_, event)| event))
    }

    /// As [`Handle::pull_batch`]: the events are of one partition.
    pub fn pull_batch(
        &self,
        max: usize,
        timeout: Option<Duration>,
    ) -> Result<Vec<D::Event>, ClientError> {
        if let Some(one) = self.only() {
            return one.pull_batch(max, timeout);
        }
        let patience = Patience::within(timeout);
        Ok(match self.next(&patience, Deadline::NEVER)?.event() {
            Some((handle, event)) => handle.fill(event, max),
            None => Vec::new(),
        })
    }

    /// As [`Handle::pull_look`].
    pub fn pull_look(
        &self,
        max: usize,
        patience: &Patience,
        look: Duration,
    ) -> Result<Pulled<D::Event>, ClientError> {
        if let Some(one) = self.only() {
            return one.pull_look(max, patience, look);
        }
        let look = Deadline::after(look).earlier(patience.deadline());
        Ok(match self.next(patience, look)? {
            Look::Event((handle, event)) => Pulled::Events(handle.fill(event, max)),
            Look::Nothing => Pulled::Nothing,
            Look::NotYet => Pulled::NotYet,
        })
    }

    /// The next event, if it is there.
    pub fn try_pull(&self, deadline: Deadline) -> Result<Option<D::Event>, ClientError> {
        match self.only() {
            Some(one) => one.try_pull(deadline),
            None => Ok(self.try_all(deadline)?.map(|(_, event)| event)),
        }
    }

    /// The next event of the handle whose turn it is, with that handle. An error of one is said at once, for some are said
    /// once only; the next pull begins behind it.
    fn try_all(&self, deadline: Deadline) -> Result<Option<Found<D>>, ClientError> {
        let handles = match self.all() {
            All::Each(handles) => handles,
            All::Only(_) => return Ok(None),
        };
        // The program is here for all of them, whatever one has to say.
        let came = handles.iter().map(|one| D::came(one));
        came.fold(Ok(()), Result::and)?;
        let count = handles.len();
        let first = self.turn.load(Ordering::Relaxed);
        for place in (first..first + count).map(|place| place % count) {
            let taken = handles[place].take(deadline).transpose();
            if let Some(taken) = taken {
                // A hint: two threads may begin at the same one.
                self.turn.store(place + 1, Ordering::Relaxed);
                return taken.map(|event| Some((handles[place].clone(), event)));
            }
        }
        Ok(None)
    }

    /// As [`Handle::pull`] waits, for all handles: none has anything before a pull says so.
    fn next(&self, patience: &Patience, look: Deadline) -> Result<Look<Found<D>>, ClientError> {
        loop {
            let seen = self.news();
            if let Some(found) = self.try_all(look.earlier(patience.deadline()))? {
                return Ok(Look::Event(found));
            }
            if self.is_stopped() {
                return Ok(Look::Nothing);
            }
            self.health()?;
            if self.wait(seen, self.wait_until(patience, look)) {
                continue;
            }
            if patience.has_passed() {
                for Handle { feed, .. } in self.all().iter() {
                    let node = feed.topic.liveness(self.mailbox());
                    feed.standing.verdict(&node)?;
                }
                // What a partition has that could not be opened is not known.
                let failure = self.following().and_then(Following::failure);
                return failure.map_or(Ok(Look::Nothing), Err);
            }
            if look.has_passed() {
                return Ok(Look::NotYet);
            }
        }
    }

    /// Until when a pull waits for news in one go. What it waits for is reported, if it is time.
    pub fn wait_until(&self, patience: &Patience, look: Deadline) -> Deadline {
        let (all, mailbox) = (self.all(), self.mailbox());
        let until = all.iter().map(|Handle { feed, .. }| {
            let node = feed.topic.liveness(mailbox);
            feed.standing.wait_until(patience, look, (mailbox, &node))
        });
        until.fold(look.earlier(patience.deadline()), Deadline::earlier)
    }

    /// Whether nothing more is handed out, for the program is about to end.
    pub fn is_stopped(&self) -> bool {
        let (mut count, all) = (0, self.all());
        let mut stopped = all.iter().inspect(|_| count += 1);
        stopped.all(|one| one.feed.is_stopped()) && count > 0
    }

    /// The count of news, to be given to [`Many::wait`].
    pub fn news(&self) -> u64 {
        match self.only() {
            Some(one) => one.feed.news(),
            None => *self.arrived.lock(),
        }
    }

    /// Waits for news after `seen`; false when `deadline` has passed.
    pub fn wait(&self, seen: u64, deadline: Deadline) -> bool {
        match self.only() {
            Some(one) => one.feed.wait(seen, deadline),
            None => {
                let all = self.all();
                stay(&mut all.iter(), &mut || self.wait_here(seen, deadline))
            }
        }
    }

    fn wait_here(&self, seen: u64, deadline: Deadline) -> bool {
        let arrived = &self.arrived;
        let driven = arrived.mailbox.drive(deadline, || self.has_news(seen));
        let _passive = match driven {
            Ok(done) => return done,
            Err(passive) => passive,
        };
        self.has_news(seen);
        let mut news = arrived.lock();
        while *news == seen {
            news = match arrived.signal.wait(news, deadline) {
                Ok(news) => news,
                Err(_) => return false,
            };
        }
        true
    }

    fn has_news(&self, seen: u64) -> bool {
        let has_news = *self.arrived.lock() != seen;
        if !has_news {
            for handle in self.all().iter() {
                D::about_to_wait(&handle.feed);
            }
        }
        has_news
    }

    /// Fails if nothing will come any more of one of them, however long it is waited for.
    pub fn health(&self) -> Result<(), ClientError> {
        self.all().iter().try_for_each(|one| one.feed.health())
    }

    /// Calls `callback` where and when something arrives for any of them: it must neither wait nor call anything of the user's.
    pub fn set_on_arrival(&self, callback: OnReady) {
        match self.only() {
            Some(one) => one.feed.set_on_arrival(callback),
            // There is one.
            None => drop(self.arrived.on_arrival.set(callback)),
        }
    }

    /// Calls `callback` whenever a pull may have something new to say.
    pub fn set_on_ready(&self, callback: &OnReady) {
        self.remember(|callbacks| callbacks.on_ready = Some(callback.clone()));
        for handle in self.all().iter() {
            handle.feed.set_on_ready(Some(callback.clone()));
        }
    }

    /// Calls `callback` for each gap from now on, on the thread that pulls past it.
    pub fn set_on_gap(&self, callback: &Arc<GapCallback>) {
        self.remember(|callbacks| callbacks.on_gap = Some(callback.clone()));
        for handle in self.all().iter() {
            handle.feed.set_on_gap(callback.clone());
        }
    }

    /// Handles that are added get it too.
    fn remember(&self, change: impl FnOnce(&mut Callbacks)) {
        if let Handles::Each(each) = &self.handles {
            let mut callbacks = each.callbacks.lock().expect("no holder panics here");
            let before = callbacks.clone();
            change(&mut callbacks);
            callbacks.changes += 1;
            drop(callbacks);
            // Not under the lock: its end may call something of the user's.
            drop(before);
        }
    }

    /// Takes the gaps that were met so far.
    pub fn take_gaps(&self) -> Vec<(PartitionIndex, Gap)> {
        let all = self.all();
        all.iter().flat_map(|one| one.feed.take_gaps()).collect()
    }
}

/// The program stays at all of these for as long as `wait` takes.
fn stay<D: Pull>(
    handles: &mut dyn Iterator<Item = &Handle<D>>,
    wait: &mut dyn FnMut() -> bool,
) -> bool {
    match handles.next() {
        None => wait(),
        Some(one) => one.feed.processing.stay(|| stay(handles, wait)),
    }
}
