//! Drives links and listeners of one thread, by one wait for all of them.

use crate::contract::*;
use crate::spin::Spin;
use crate::stripes::StripesFrom;
use mio::unix::SourceFd;
use mio::{Events, Interest, Token};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The waker's place among the ids, which count up from 1.
const WAKER: u64 = 0;

/// The alarm's place: no id counts up to it.
const ALARM: usize = usize::MAX;

/// How many turns are given before the system is asked who else is ready.
const TURNS_PER_LOOK: u32 = 32;

/// How often links are looked at before the system is asked who else is ready.
const SPINS_PER_LOOK: u32 = 64;

/// How often the system is asked before others are let have the processor.
const LOOKS_PER_YIELD: u32 = 4;

/// Who lets others have the processor and is without it for longer has met one
/// who wants it. With nobody there it takes a tenth of this.
const AWAY_MAX: Duration = Duration::from_micros(5);

/// When a listener that failed to take a connection tries again, at the latest.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// How many descriptors the system reports at once.
const EVENTS_MAX: usize = 256;

/// Names a link of one reactor. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Names a listener of one reactor. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u64);

/// Something happened to what a reactor drives.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "each variant has its line; the names of its fields say the rest"
)]
pub enum ReactorEvent {
    /// Somebody connected: a new link, which is driven from now on.
    Accepted { listener: ListenerId, link: LinkId },
    /// Taking a connection failed. The listener goes on when a link was
    /// removed, which frees what the system may have lacked, or in a second.
    AcceptFailed {
        listener: ListenerId,
        error: NetError,
    },
    /// Something came of a link. A link that is down stays until it is removed.
    Link { link: LinkId, event: LinkEvent },
    /// Somebody called [`Waker::wake`], once or more often.
    Woken,
}

/// Wakes a reactor from any thread.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

/// Drives links and listeners.
///
/// Use it so: call [`Reactor::next`] until `None`, do what is to be done
/// (queues may have emptied: see [`Link::queued_bytes`]), and if that gave
/// links nothing new to do, [`Reactor::wait`]. Links take turns, and within a turn each moves a
/// bounded number of bytes, so that none starves the others. It does nothing
/// by itself: no timer, no thread.
pub struct Reactor {
    poll: mio::Poll,
    events: Events,
    shared: Arc<Shared>,
    entries: BTreeMap<u64, Entry>,
    last_id: u64,
    /// Who is to have a turn, in order, each at most once.
    ready: VecDeque<u64>,
    turns_until_look: u32,
    /// Listeners that wait for the system to have space.
    stalled: Vec<u64>,
    /// When they try again.
    retry_at: Option<Instant>,
    /// Links that had a turn since this reactor last waited: their other
    /// sides do not notify, so they have to be looked at.
    awake: Vec<u64>,
    spin: Spin,
    /// Made when it is first set.
    alarm: Option<OwnedFd>,
}

struct Entry {
    what: Driven,
    is_ready: bool,
    /// Whether the system is to report when there is space to write.
    listens_for_writable: bool,
    /// Whether it is among those that are awake.
    is_awake: bool,
}

enum Driven {
    Link(Box<dyn Link>),
    Listener(Box<dyn Listener>),
}

/// What other threads touch.
struct Shared {
    /// Guards what was notified; held for a push only.
    notified: Mutex<Notified>,
    descriptor: OwnedFd,
}

#[derive(Default)]
struct Notified {
    ids: Vec<u64>,
    woken: bool,
    /// Whether the reactor found nothing to do: only then has the descriptor
    /// to be written, and only once.
    asleep: bool,
}

impl Shared {
    fn notified(&self) -> MutexGuard<'_, Notified> {
        self.notified.lock().expect("no holder panics here")
    }

    fn notify(&self, note: impl FnOnce(&mut Notified)) {
        let mut notified = self.notified();
        note(&mut notified);
        let asleep = std::mem::take(&mut notified.asleep);
        drop(notified);
        if asleep {
            // Fails only when 2^64 - 2 wake-ups were not read, and then one is.
            let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes());
        }
    }
}

impl Waker {
    /// Makes the reactor's `next` return [`ReactorEvent::Woken`], waking it if
    /// it waits. Cheap when it does not.
    pub fn wake(&self) {
        self.shared.notify(|notified| notified.woken = true);
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

/// A descriptor for threads to wake one another by.
pub(crate) fn event_descriptor() -> Result<OwnedFd, NetError> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(io::Error::from)
        .map_err(system("making an event descriptor"))
}

pub(crate) fn system(doing: &str) -> impl FnOnce(io::Error) -> NetError + '_ {
    move |error| NetError::System(format!("{doing}: {error}"))
}

impl Reactor {
    /// A reactor that drives nothing yet.
    ///
    /// # Errors
    /// [`NetError::System`] if the system has no descriptors left.
    pub fn new() -> Result<Self, NetError> {
        let descriptor = event_descriptor()?;
        let poll = mio::Poll::new().map_err(system("making an epoll"))?;
        poll.registry()
            .register(
                &mut SourceFd(&descriptor.as_raw_fd()),
                Token(WAKER as usize),
                Interest::READABLE,
            )
            .map_err(system("watching the waker"))?;
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            shared: Arc::new(Shared {
                notified: Mutex::default(),
                descriptor,
            }),
            entries: BTreeMap::new(),
            last_id: WAKER,
            ready: VecDeque::new(),
            turns_until_look: TURNS_PER_LOOK,
            stalled: Vec::new(),
            retry_at: None,
            awake: Vec::new(),
            spin: Spin::default(),
            alarm: None,
        })
    }

    /// How long [`Reactor::wait`] looks, on its processor, before it sleeps;
    /// zero, the default, is not at all. Links that can be looked at
    /// ([`Link::look`]) are, and of others the system is asked, which saves
    /// them a sleep and a wake-up. It pays only where a processor is free for it:
    /// while looking finds nothing, it is tried more and more rarely.
    pub fn set_spin(&mut self, most: Duration) {
        self.spin = Spin::new(most);
    }

    /// Makes the descriptor readable when this time has passed as well, in
    /// place of what was set before; `None`: never. For a program that waits for the
    /// descriptor elsewhere and has timers: the next [`Reactor::wait`] then
    /// does not wait, and reports nothing.
    ///
    /// # Errors
    /// [`NetError::System`] if the system has no descriptors left.
    pub fn set_alarm(&mut self, after: Option<Duration>) -> Result<(), NetError> {
        let descriptor = match &self.alarm {
            Some(descriptor) => descriptor,
            None => {
                let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
                let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)
                    .map_err(io::Error::from)
                    .map_err(system("making a timer"))?;
                self.poll
                    .registry()
                    .register(
                        &mut SourceFd(&descriptor.as_raw_fd()),
                        Token(ALARM),
                        Interest::READABLE,
                    )
                    .map_err(system("watching the timer"))?;
                self.alarm.insert(descriptor)
            }
        };
        // Zero would be never.
        let after = after.map_or(Duration::ZERO, |after| after.max(Duration::from_nanos(1)));
        let never = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = Itimerspec {
            it_interval: never,
            it_value: Timespec {
                tv_sec: after.as_secs().min(i64::MAX as u64) as i64,
                tv_nsec: after.subsec_nanos().into(),
            },
        };
        timerfd_settime(descriptor, TimerfdTimerFlags::empty(), &value)
            .map(drop)
            .map_err(io::Error::from)
            .map_err(system("setting the timer"))
    }

    /// What wakes this reactor.
    pub fn waker(&self) -> Waker {
        Waker {
            shared: self.shared.clone(),
        }
    }

    /// Drives `link` from now on.
    ///
    /// # Errors
    /// [`NetError::System`] if the system cannot watch it.
    pub fn add_link(&mut self, mut link: Box<dyn Link>) -> Result<LinkId, NetError> {
        let id = self.last_id + 1;
        let listens_for_writable = link.wants_to_write();
        match link.readiness() {
            Readiness::Source(source) => self
                .poll
                .registry()
                .register(source, Token(id as usize), interest(listens_for_writable))
                .map_err(system("watching a link"))?,
            Readiness::Notify => link.attach(self.notify_of(id)),
        }
        self.insert(id, Driven::Link(link), listens_for_writable);
        Ok(LinkId(id))
    }

    /// Accepts at `listener` from now on.
    ///
    /// # Errors
    /// As [`Reactor::add_link`].
    pub fn add_listener(
        &mut self,
        mut listener: Box<dyn Listener>,
    ) -> Result<ListenerId, NetError> {
        let id = self.last_id + 1;
        match listener.readiness() {
            Readiness::Source(source) => self
                .poll
                .registry()
                .register(source, Token(id as usize), Interest::READABLE)
                .map_err(system("watching a listener"))?,
            Readiness::Notify => listener.attach(self.notify_of(id)),
        }
        self.insert(id, Driven::Listener(listener), false);
        Ok(ListenerId(id))
    }

    fn notify_of(&self, id: u64) -> Notify {
        let shared = self.shared.clone();
        Arc::new(move || shared.notify(|notified| notified.ids.push(id)))
    }

    fn insert(&mut self, id: u64, what: Driven, listens_for_writable: bool) {
        self.last_id = id;
        let entry = Entry {
            what,
            is_ready: false,
            listens_for_writable,
            is_awake: false,
        };
        self.entries.insert(id, entry);
        self.make_ready(id);
    }

    /// A link, to ask things of it; it has a turn after that. `None` if it
    /// was removed.
    pub fn link(&mut self, id: LinkId) -> Option<&mut dyn Link> {
        self.make_ready(id.0);
        match &mut self.entries.get_mut(&id.0)?.what {
            Driven::Link(link) => Some(&mut **link),
            Driven::Listener(_) => None,
        }
    }

    /// Asks things of a link that are to leave at once, and nothing else of
    /// it: what has arrived stays where it is. For a thread that has no time
    /// for that, while the reactor is settled ([`Reactor::settle`]); if the
    /// link has more to do, it is not any more. `None` if it was removed.
    pub fn post<R>(&mut self, id: LinkId, ask: impl FnOnce(&mut dyn Link) -> R) -> Option<R> {
        let entry = self.entries.get_mut(&id.0)?;
        let Driven::Link(link) = &mut entry.what else {
            return None;
        };
        let answer = ask(&mut **link);
        if !link.flush() {
            self.make_ready(id.0);
        } else if !std::mem::replace(&mut entry.is_awake, true) {
            self.awake.push(id.0);
        }
        Some(answer)
    }

    /// Whether all is done, so that from here on a thread that has something for
    /// this reactor makes its descriptor readable, wherever that is waited
    /// for. To be called when [`Reactor::next`] says `None`; if it is false,
    /// that has more to say. Looks for up to `timeout` first if that is of use
    /// ([`Reactor::set_spin`]).
    ///
    /// # Errors
    /// [`NetError::System`] if the system cannot be asked.
    pub fn settle(&mut self, timeout: Option<Duration>) -> Result<bool, NetError> {
        if !self.ready.is_empty() {
            return Ok(false);
        }
        if self.spin.is_on() {
            let found = self.spin(timeout);
            if found.map_err(system("looking at the network"))? {
                return Ok(false);
            }
        }
        Ok(self.rest() && !self.hear(true))
    }

    /// Has the bytes of a link travel in chunks from here on ([`Link::striped`]). A link that cannot is left as it is, or is
    /// down and says why.
    pub fn stripe(&mut self, id: LinkId, from: StripesFrom) {
        self.replace(id, |link| link.striped(from));
    }

    /// Goes on with frames if a link has heard that it carries them ([`Link::framed`]). Any other link is left as it is.
    pub fn frame(&mut self, id: LinkId) {
        let framed = match self.entries.get_mut(&id.0).map(|entry| &mut entry.what) {
            Some(Driven::Link(link)) => link.framed(),
            Some(Driven::Listener(_)) | None => None,
        };
        let Some(mut framed) = framed else {
            return;
        };
        // It has the stream now: that is watched anew, as another link's.
        if let Readiness::Source(source) = framed.readiness() {
            let _ = self.poll.registry().deregister(source);
        }
        self.replace(id, |_| Some(framed));
    }

    /// Drives what becomes of a link in its place, if something does.
    fn replace(
        &mut self,
        id: LinkId,
        become_of: impl FnOnce(&mut dyn Link) -> Option<Box<dyn Link>>,
    ) {
        let Some(Driven::Link(link)) = self.entries.get_mut(&id.0).map(|entry| &mut entry.what)
        else {
            return;
        };
        let registry = self.poll.registry();
        if let Readiness::Source(source) = link.readiness() {
            // A descriptor that the system does not watch needs no end of that.
            let _ = registry.deregister(source);
        }
        if let Some(other) = become_of(&mut **link) {
            *link = other;
        }
        let listens_for_writable = link.wants_to_write();
        let watched = match link.readiness() {
            Readiness::Source(source) => {
                let token = Token(id.0 as usize);
                registry.register(source, token, interest(listens_for_writable))
            }
            Readiness::Notify => Ok(()),
        };
        if let Err(error) = watched {
            link.close(&format!("watching the link anew: {error}"));
        }
        if let Some(entry) = self.entries.get_mut(&id.0) {
            entry.listens_for_writable = listens_for_writable;
        }
        self.make_ready(id.0);
    }

    /// Takes a link out, and has it carry chunks of another one ([`Link::carrier`], [`Link::join`]). False if one of them
    /// cannot; the other one goes on.
    pub fn join(&mut self, id: LinkId, stripe: LinkId, from: StripesFrom) -> bool {
        let Some(mut stripe) = self.remove_link(stripe) else {
            return false;
        };
        match (stripe.carrier(from), self.link(id)) {
            (Some(carrier), Some(link)) => link.join(carrier),
            _ => false,
        }
    }

    /// A link, to look at it.
    pub fn peek(&self, id: LinkId) -> Option<&dyn Link> {
        match &self.entries.get(&id.0)?.what {
            Driven::Link(link) => Some(&**link),
            Driven::Listener(_) => None,
        }
    }

    /// Drives the link no more, and gives it back.
    pub fn remove_link(&mut self, id: LinkId) -> Option<Box<dyn Link>> {
        self.peek(id)?;
        let Some(Driven::Link(mut link)) = self.entries.remove(&id.0).map(|entry| entry.what)
        else {
            return None;
        };
        if let Readiness::Source(source) = link.readiness() {
            // A descriptor that the system does not watch needs no end of that.
            let _ = self.poll.registry().deregister(source);
        }
        self.retry_stalled();
        Some(link)
    }

    /// Listeners that failed to take a connection try again.
    fn retry_stalled(&mut self) {
        self.retry_at = None;
        for id in std::mem::take(&mut self.stalled) {
            self.make_ready(id);
        }
    }

    /// Accepts at the listener no more, and gives it back.
    pub fn remove_listener(&mut self, id: ListenerId) -> Option<Box<dyn Listener>> {
        match &self.entries.get(&id.0)?.what {
            Driven::Listener(_) => {}
            Driven::Link(_) => return None,
        }
        let Some(Driven::Listener(mut listener)) =
            self.entries.remove(&id.0).map(|entry| entry.what)
        else {
            return None;
        };
        if let Readiness::Source(source) = listener.readiness() {
            // As for a link.
            let _ = self.poll.registry().deregister(source);
        }
        Some(listener)
    }

    /// The links that are driven, those that are down included.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.entries
            .iter()
            .filter(|(_, entry)| matches!(entry.what, Driven::Link(_)))
            .map(|(id, _)| LinkId(*id))
    }

    /// Gives one link or listener its turn.
    fn turn(&mut self, id: u64) -> Option<ReactorEvent> {
        // Removed since it became ready.
        let entry = self.entries.get_mut(&id)?;
        entry.is_ready = false;
        match &mut entry.what {
            Driven::Link(link) => {
                let event = link.poll();
                if !std::mem::replace(&mut entry.is_awake, true) {
                    self.awake.push(id);
                }
                if event.is_some() || link.is_due() {
                    self.make_ready(id);
                } else if link.wants_to_write() && !entry.listens_for_writable {
                    Self::listen_for_writable(&self.poll, id, entry, true);
                }
                let link = LinkId(id);
                event.map(|event| ReactorEvent::Link { link, event })
            }
            Driven::Listener(listener) => {
                let accepted = match listener.accept() {
                    Ok(None) => return None,
                    Ok(Some(link)) => {
                        self.make_ready(id);
                        self.add_link(link)
                    }
                    Err(error) => {
                        self.stalled.push(id);
                        self.retry_at
                            .get_or_insert_with(|| Instant::now() + ACCEPT_RETRY);
                        Err(error)
                    }
                };
                let listener = ListenerId(id);
                Some(match accepted {
                    Ok(link) => ReactorEvent::Accepted { listener, link },
                    Err(error) => ReactorEvent::AcceptFailed { listener, error },
                })
            }
        }
    }

    /// Begins or ends listening for space to write at one link. Rare: begun
    /// when the system refused bytes, ended when it reported space in vain.
    fn listen_for_writable(poll: &mio::Poll, id: u64, entry: &mut Entry, listens: bool) {
        let Driven::Link(link) = &mut entry.what else {
            return;
        };
        if let Readiness::Source(source) = link.readiness() {
            let token = Token(id as usize);
            // It was registered and is open, so this does not fail; if it
            // did, space would be noticed with the next message received.
            let done = poll.registry().reregister(source, token, interest(listens));
            entry.listens_for_writable = listens && done.is_ok();
        }
    }

    fn make_ready(&mut self, id: u64) {
        if let Some(entry) = self.entries.get_mut(&id)
            && !std::mem::replace(&mut entry.is_ready, true)
        {
            self.ready.push_back(id);
        }
    }

    /// Takes what was notified by now. False, and asleep if `sleep`, if there was nothing.
    fn hear(&mut self, sleep: bool) -> bool {
        let mut notified = self.shared.notified();
        let ids = std::mem::take(&mut notified.ids);
        let woken = std::mem::take(&mut notified.woken);
        let heard = woken || !ids.is_empty();
        notified.asleep = sleep && !heard;
        drop(notified);
        if woken {
            self.ready.push_back(WAKER);
        }
        for id in ids {
            self.make_ready(id);
        }
        heard
    }

    /// Finds out which links that are awake have something. Whether any has.
    fn look_at_awake(&mut self) -> bool {
        let mut found = false;
        for index in 0..self.awake.len() {
            let id = self.awake[index];
            if let Some(entry) = self.entries.get_mut(&id)
                && let Driven::Link(link) = &mut entry.what
                && link.look() == Some(true)
            {
                found = true;
                self.make_ready(id);
            }
        }
        found
    }

    /// Whether looking at any link that is awake is of use.
    fn can_spin(&mut self) -> bool {
        let entries = &mut self.entries;
        self.awake.iter().any(
            |id| match entries.get_mut(id).map(|entry| &mut entry.what) {
                Some(Driven::Link(link)) => link.look().is_some(),
                _ => false,
            },
        )
    }

    /// Looks for a while before sleeping. Whether there is something to do.
    fn spin(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let Some(most) = self.spin.begin(timeout) else {
            return Ok(false);
        };
        // Of others the system is asked, again and again.
        let looks = match self.can_spin() {
            true => SPINS_PER_LOOK,
            false => 0,
        };
        let began = Instant::now();
        let (mut found, mut now) = (false, began);
        let (mut turns, mut away) = (0, Duration::ZERO);
        while !found && now - began < most && away <= AWAY_MAX {
            for _ in 0..looks {
                found = self.look_at_awake() || self.hear(false);
                if found {
                    break;
                }
                std::hint::spin_loop();
            }
            turns += 1;
            if !found && turns % LOOKS_PER_YIELD == 0 {
                // The thread that wants this processor may be the one who is waited for.
                let before = Instant::now();
                std::thread::yield_now();
                now = Instant::now();
                away = now - before;
            }
            // Others may be ready by what the system says.
            self.look(Some(Duration::ZERO))?;
            found |= !self.ready.is_empty();
        }
        match away > AWAY_MAX {
            true => self.spin.note_oversubscribed(),
            false => self.spin.note(found),
        }
        Ok(found)
    }

    /// Lets every link that is awake rest. False if one has something to do.
    fn rest(&mut self) -> bool {
        let mut rests = true;
        for id in std::mem::take(&mut self.awake) {
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            entry.is_awake = false;
            if let Driven::Link(link) = &mut entry.what
                && !link.rest()
            {
                rests = false;
                self.make_ready(id);
            }
        }
        rests
    }

    /// Waits until something is to be done, at most for `timeout`. Returns at
    /// once if [`Reactor::next`] has not returned everything yet.
    ///
    /// # Errors
    /// [`NetError::System`] if the system cannot wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), NetError> {
        let Some(retry_at) = self.retry_at else {
            return self.wait_for_any(timeout);
        };
        let left = retry_at.saturating_duration_since(Instant::now());
        self.wait_for_any(Some(timeout.map_or(left, |timeout| timeout.min(left))))?;
        if Instant::now() >= retry_at {
            self.retry_stalled();
        }
        Ok(())
    }

    fn wait_for_any(&mut self, timeout: Option<Duration>) -> Result<(), NetError> {
        if self.ready.is_empty() && self.look_at_awake() {
            return Ok(());
        }
        if self.ready.is_empty() && self.spin.is_on() {
            let found = self.spin(timeout);
            if found.map_err(system("looking at the network"))? {
                return Ok(());
            }
        }
        let busy = !self.ready.is_empty() || !self.rest() || self.hear(true);
        let timeout = if busy { Some(Duration::ZERO) } else { timeout };
        self.look(timeout)
            .map_err(system("waiting for the network"))
    }

    /// Asks the system who is ready.
    fn look(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.turns_until_look = TURNS_PER_LOOK;
        match self.poll.poll(&mut self.events, timeout) {
            // A signal: nobody is ready by what the system says.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            polled => polled?,
        }
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            self.note(event);
        }
        self.events = events;
        self.hear(false);
        self.look_at_awake();
        Ok(())
    }

    fn note(&mut self, event: &mio::event::Event) {
        let id = event.token().0 as u64;
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if let Driven::Link(link) = &mut entry.what {
            let ready = SourceReady {
                readable: event.is_readable() || event.is_error(),
                writable: event.is_writable() || event.is_error(),
                read_closed: event.is_read_closed() || event.is_error(),
            };
            if !ready.readable && !ready.read_closed && !link.wants_to_write() {
                // Woken for space that nobody wants.
                Self::listen_for_writable(&self.poll, id, entry, false);
                return;
            }
            link.source_ready(ready);
        }
        self.make_ready(id);
    }

    /// The descriptors that are open for this reactor and what it drives, so
    /// that a forked child can close them by number.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let driven = self.entries.values().flat_map(|entry| match &entry.what {
            Driven::Link(link) => link.descriptors(),
            Driven::Listener(listener) => listener.descriptor().into_iter().collect(),
        });
        let own = [self.poll.as_raw_fd(), self.shared.descriptor.as_raw_fd()];
        let alarm = self.alarm.as_ref().map(AsRawFd::as_raw_fd);
        own.into_iter().chain(alarm).chain(driven).collect()
    }
}

fn interest(space: bool) -> Interest {
    match space {
        true => Interest::READABLE | Interest::WRITABLE,
        false => Interest::READABLE,
    }
}

/// Yields what came of what is driven, until there is nothing more to do
/// without waiting; then, after [`Reactor::wait`], again.
impl Iterator for Reactor {
    type Item = ReactorEvent;

    /// The next thing that came of anything; `None` when there is nothing
    /// more to do without waiting. While some link has always more to move,
    /// there is no `None`: a caller with timers looks at them between events.
    fn next(&mut self) -> Option<ReactorEvent> {
        loop {
            if self.turns_until_look == 0 {
                // If it fails, `wait` will fail as well, and says so.
                let _ = self.look(Some(Duration::ZERO));
            }
            self.turns_until_look -= 1;
            if self.ready.is_empty() && !self.hear(true) {
                return None;
            }
            let Some(id) = self.ready.pop_front() else {
                // What was notified has been removed since.
                continue;
            };
            if id == WAKER {
                return Some(ReactorEvent::Woken);
            }
            if let Some(event) = self.turn(id) {
                return Some(event);
            }
        }
    }
}

/// The one descriptor to wait for, readable when [`Reactor::wait`] would not
/// wait, once [`Reactor::next`] has said `None` after a [`Reactor::wait`] with
/// no time.
impl AsRawFd for Reactor {
    fn as_raw_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reactor({} driven)", self.entries.len())
    }
}
