//! What drives the core, on a thread or on callers': a reactor, a clock, the
//! group file.

use crate::core::{ClientCore, Input, Output};
use crate::error::ClientError;
use crate::group_file::{GroupFile, Host};
use crate::mailbox::Mailbox;
use crate::options::DriverOptions;
use memory::fork::ClosedInChild;
use net::{LinkEvent, LinkId, NetError, Reactor, ReactorEvent, Transports};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many events a caller's turn takes before it ends.
const EVENTS_PER_TURN: u32 = 256;

/// How long a connection that was told to end may take to send what it holds.
const FAREWELL_TURNS_MAX: u32 = 64;

/// Drives a [`ClientCore`] until it ends.
pub(crate) struct Runtime {
    /// What a forked child closes: the connection is its parent's. Dropped
    /// before the reactor closes the descriptors.
    closed_in_child: BTreeMap<i32, ClosedInChild>,
    core: ClientCore,
    mailbox: Arc<Mailbox>,
    transports: Arc<Transports>,
    reactor: Reactor,
    epoch: Instant,
    /// Links and the attempts that they are of.
    links: BTreeMap<LinkId, u64>,
    /// The present attempt's link.
    present: Option<LinkId>,
    /// Where callers drive: whether one has, and when the reactor's alarm is set for.
    has_begun: bool,
    alarm: Option<Duration>,
}

impl Runtime {
    /// Drives `core`, once it is told to.
    pub fn new(
        core: ClientCore,
        mailbox: &Arc<Mailbox>,
        options: &DriverOptions,
        epoch: Instant,
    ) -> Result<Self, ClientError> {
        let mut reactor = Reactor::new().map_err(|error| {
            let error = std::io::Error::other(error);
            ClientError::io("starting the client's reactor", error)
        })?;
        reactor.set_spin(options.spin);
        let waker = reactor.waker();
        mailbox.set_bell(Arc::new(move || waker.wake()));
        let mut runtime = Self {
            core,
            mailbox: mailbox.clone(),
            transports: options.transports.clone(),
            reactor,
            epoch,
            links: BTreeMap::new(),
            present: None,
            closed_in_child: BTreeMap::new(),
            has_begun: false,
            alarm: None,
        };
        runtime.register_descriptors();
        Ok(runtime)
    }

    /// Starts a thread that drives until the end.
    pub fn start(mut self) -> Result<JoinHandle<()>, ClientError> {
        std::thread::Builder::new()
            .name("thalweg-client".to_owned())
            .spawn(move || {
                self.guarded(Self::run);
            })
            .map_err(|error| ClientError::io("starting the client's thread", error))
    }

    /// What is readable when a caller's turn has something to do.
    pub fn descriptor(&self) -> RawFd {
        self.reactor.as_raw_fd()
    }

    /// Runs a part of the driving. Whatever waits is to be told, should there
    /// be a bug; `None` then.
    fn guarded<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(self)));
        if outcome.is_err() {
            let error = ClientError::io(
                "the client's network has ended",
                std::io::Error::other("what drives it panicked, which is a bug of the client's"),
            );
            let end = AssertUnwindSafe(|| self.core.abandon(error));
            let _ = catch_unwind(end);
        }
        outcome.ok()
    }

    /// A caller's turn: does what there is to do; if there was nothing, waits
    /// up to `wait` for it first. True when the core has ended.
    pub fn turn(&mut self, wait: Duration) -> bool {
        self.guarded(|runtime| runtime.drive(wait)).unwrap_or(true)
    }

    fn drive(&mut self, wait: Duration) -> bool {
        self.mailbox.wake_up();
        if !std::mem::replace(&mut self.has_begun, true) {
            self.handle(Input::Kick);
        }
        let mut wait = Some(wait);
        let mut has_looked = false;
        for _ in 0..EVENTS_PER_TURN {
            if self.carry_out() {
                return true;
            }
            if let Some(event) = self.reactor.next() {
                self.event(event);
                (wait, has_looked) = (None, false);
                continue;
            }
            let now = self.epoch.elapsed();
            let timer = self.core.next_timer();
            if timer.is_some_and(|at| at <= now) || !self.mailbox.fall_asleep() {
                self.handle(Input::Kick);
                (wait, has_looked) = (None, false);
                continue;
            }
            if has_looked {
                // From here on whoever has something for us makes the
                // descriptor readable.
                return self.set_alarm(timer, now);
            }
            // Also if there is no time: what the system told of is taken from it.
            let until_timer = timer.map_or(Duration::MAX, |at| at - now);
            let waited = self
                .reactor
                .wait(Some(wait.take().unwrap_or_default().min(until_timer)));
            self.mailbox.wake_up();
            if let Err(error) = waited {
                return self.give_up(error);
            }
            has_looked = true;
        }
        // There is more: the descriptor is to be readable at once.
        self.set_alarm(Some(Duration::ZERO), Duration::ZERO)
    }

    fn set_alarm(&mut self, at: Option<Duration>, now: Duration) -> bool {
        if self.alarm == at {
            return false;
        }
        self.alarm = at;
        match self.reactor.set_alarm(at.map(|at| at.saturating_sub(now))) {
            Ok(()) => {
                self.register_descriptors();
                false
            }
            Err(error) => self.give_up(error),
        }
    }

    /// Without a reactor there is no way on; everybody is told.
    fn give_up(&mut self, error: NetError) -> bool {
        let what = "waiting for the network";
        self.core
            .abandon(ClientError::io(what, std::io::Error::other(error)));
        true
    }

    fn run(&mut self) {
        self.mailbox.set_thread();
        self.handle(Input::Kick);
        loop {
            if self.carry_out() {
                return;
            }
            if let Some(event) = self.reactor.next() {
                self.event(event);
                continue;
            }
            let now = self.epoch.elapsed();
            let timer = self.core.next_timer();
            if timer.is_some_and(|at| at <= now) || !self.mailbox.fall_asleep() {
                self.handle(Input::Kick);
                continue;
            }
            let result = self.reactor.wait(timer.map(|at| at - now));
            self.mailbox.wake_up();
            if let Err(error) = result {
                self.give_up(error);
                return;
            }
            self.handle(Input::Kick);
        }
    }

    fn handle(&mut self, input: Input) {
        let now = self.epoch.elapsed();
        let link = self.present.and_then(|id| self.reactor.link(id));
        self.core.handle(now, input, link);
    }

    fn event(&mut self, event: ReactorEvent) {
        let ReactorEvent::Link { link, event } = event else {
            // Woken: the commands are looked at before the next sleep.
            return;
        };
        let attempt = self.links.get(&link).copied().unwrap_or(0);
        match event {
            LinkEvent::Up => self.handle(Input::LinkUp { attempt }),
            LinkEvent::Message(message) => self.handle(Input::Message { attempt, message }),
            LinkEvent::Down(reason) => {
                if self.present == Some(link) {
                    self.handle(Input::LinkDown { attempt, reason });
                    self.present = None;
                }
                self.links.remove(&link);
                self.reactor.remove_link(link);
                self.forget_descriptors();
            }
            // The client never reads or writes memory of the server's.
            LinkEvent::ReadDone { .. } | LinkEvent::WriteDone { .. } => {}
        }
    }

    /// Does what the core wants done. True when it has ended.
    fn carry_out(&mut self) -> bool {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::ReadGroupFile(path) => {
                    let input = Input::GroupFile(read_group_file(&path));
                    self.handle(input);
                }
                Output::Connect { attempt, address } => self.connect(attempt, &address),
                Output::Disconnect { attempt, reason } => self.disconnect(attempt, &reason),
                Output::Ended => {
                    self.say_farewell();
                    return true;
                }
            }
        }
        false
    }

    fn connect(&mut self, attempt: u64, address: &str) {
        self.present = None;
        let link = self.transports.connect(address);
        match link.and_then(|link| self.reactor.add_link(link)) {
            Ok(link) => {
                self.links.insert(link, attempt);
                self.present = Some(link);
                self.register_descriptors();
            }
            Err(reason) => self.handle(Input::LinkDown { attempt, reason }),
        }
    }

    /// Children close what is open now.
    fn register_descriptors(&mut self) {
        for descriptor in self.reactor.descriptors() {
            let register = || ClosedInChild::new(descriptor);
            self.closed_in_child
                .entry(descriptor)
                .or_insert_with(register);
        }
    }

    /// Children leave alone what is not the reactor's any more: a link that is
    /// down has closed its descriptors, and their numbers may be others' by now.
    fn forget_descriptors(&mut self) {
        let open = self.reactor.descriptors();
        self.closed_in_child
            .retain(|descriptor, _| open.contains(descriptor));
    }

    fn disconnect(&mut self, attempt: u64, reason: &str) {
        let link = self.links.iter().find(|(_, other)| **other == attempt);
        let Some(link) = link.map(|(link, _)| *link) else {
            return;
        };
        if let Some(link) = self.reactor.link(link) {
            link.close(reason);
        }
        if self.present == Some(link) {
            self.present = None;
        }
    }

    /// Lets links that were closed send what they hold.
    fn say_farewell(&mut self) {
        for _ in 0..FAREWELL_TURNS_MAX {
            let Some(event) = self.reactor.next() else {
                return;
            };
            if let ReactorEvent::Link {
                link,
                event: LinkEvent::Down(NetError::Closed(_)),
            } = event
            {
                self.reactor.remove_link(link);
                self.forget_descriptors();
            }
        }
    }
}

fn read_group_file(path: &Path) -> Result<(GroupFile, Vec<String>), String> {
    let file = GroupFile::read(path)?;
    let endpoints = file.endpoints_from(&Host::this())?;
    Ok((file, endpoints))
}
