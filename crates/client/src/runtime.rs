//! The thread that drives the core: a reactor, a clock, the group file.

use crate::core::{ClientCore, Input, Output};
use crate::error::ClientError;
use crate::group_file::{GroupFile, Host};
use crate::mailbox::Mailbox;
use memory::fork::ClosedInChild;
use net::{LinkEvent, LinkId, NetError, Reactor, ReactorEvent, Transports};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

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
}

impl Runtime {
    /// Starts the thread.
    pub fn start(
        core: ClientCore,
        mailbox: &Arc<Mailbox>,
        transports: &Arc<Transports>,
        epoch: Instant,
    ) -> Result<JoinHandle<()>, ClientError> {
        let failed = |what: &str, error: std::io::Error| ClientError::io(what, error);
        let reactor = Reactor::new().map_err(|error| {
            failed(
                "starting the client's reactor",
                std::io::Error::other(error),
            )
        })?;
        let waker = reactor.waker();
        mailbox.set_bell(Arc::new(move || waker.wake()));
        let mut runtime = Self {
            core,
            mailbox: mailbox.clone(),
            transports: transports.clone(),
            reactor,
            epoch,
            links: BTreeMap::new(),
            present: None,
            closed_in_child: BTreeMap::new(),
        };
        runtime.register_descriptors();
        std::thread::Builder::new()
            .name("thalweg-client".to_owned())
            .spawn(move || {
                // Whatever waits is to be told, should there be a bug.
                let run = AssertUnwindSafe(|| runtime.run());
                if catch_unwind(run).is_err() {
                    let error = ClientError::io(
                        "the client's thread has ended",
                        std::io::Error::other("it panicked, which is a bug of the client's"),
                    );
                    let end = AssertUnwindSafe(|| runtime.core.abandon(error));
                    let _ = catch_unwind(end);
                }
            })
            .map_err(|error| failed("starting the client's thread", error))
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
                // Without a reactor there is no way on; everybody is told.
                let what = "waiting for the network";
                let error = ClientError::io(what, std::io::Error::other(error));
                return self.core.abandon(error);
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
