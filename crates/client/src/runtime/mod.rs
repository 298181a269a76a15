//! What drives the core, on a thread or on callers': a reactor, a clock, the
//! group file.

mod caller_runs;
mod driver_lock;
mod stripes;

pub(crate) use caller_runs::CallerRuns;
pub(crate) use driver_lock::DriverLock;

use crate::core::{ClientCore, FIRST_NODE, Input, Links, NodeIndex, Output, RenewedCredential};
use crate::credential_file;
use crate::driving::InlineSend;
use crate::error::ClientError;
use crate::group_file::{GroupFile, Host};
use crate::mailbox::Mailbox;
use crate::options::{CredentialEnds, DriverOptions, OnCredential};
use crate::vouched::Vouching;
use memory::Deadline;
use memory::fork::ClosedInChild;
use net::{
    Link, LinkEvent, LinkId, NetError, Poller, Reactor, ReactorEvent, StripesFrom, Transports,
};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripes::{Opened, StripeDialer};

/// How many events a caller's turn takes before it ends.
const EVENTS_PER_TURN: u32 = 256;

/// How many events a caller takes after it has got what it waited for, to
/// leave nothing behind; if there is more, the thread goes on.
const EVENTS_LEAVING: u32 = 4;

/// How many bytes that have arrived a caller may leave untaken: a few
/// answers that nobody hurries for.
const LITTLE_BYTES: usize = 512;

/// A caller that took no more than this drove for a short time.
const SHORT_BYTES: usize = 16 << 10;

/// How many turns a connection that was asked to end may take to send what it holds.
const FINAL_FLUSH_TURNS_MAX: u32 = 64;

/// What a caller that drove in place of the thread leaves behind.
pub(crate) enum Leftover {
    /// Nothing: the reactor's descriptor reports what comes next.
    Nothing,
    /// A little, for the next one: the thread, which looks up soon, at
    /// the latest.
    Little,
    /// Something: the thread goes on.
    Something,
    /// The core has ended.
    Ended,
}

/// The connections to a node.
#[derive(Default)]
struct NodeLinks {
    /// The present attempt's link.
    present: Option<LinkId>,
    /// The further connection of its session that is being opened.
    dialer: StripeDialer,
}

/// The present links of all nodes, for the core.
struct PresentLinks<'a> {
    reactor: &'a mut Reactor,
    nodes: &'a [NodeLinks],
}

impl Links for PresentLinks<'_> {
    fn link(&mut self, node: NodeIndex) -> Option<&mut dyn Link> {
        self.reactor.link(self.nodes.get(node.0)?.present?)
    }
}

/// Drives a [`ClientCore`] until it ends.
pub(crate) struct Runtime {
    /// What a forked child closes: the connection is its parent's. Dropped
    /// before the reactor closes the descriptors.
    closed_in_child: BTreeMap<i32, ClosedInChild>,
    core: ClientCore,
    mailbox: Arc<Mailbox>,
    transports: Arc<Transports>,
    on_credential: Option<Arc<OnCredential>>,
    reactor: Reactor,
    epoch: Instant,
    /// Links, and the node and the attempt that they are of.
    links: BTreeMap<LinkId, (NodeIndex, u64)>,
    /// What there is of each node.
    nodes: Vec<NodeLinks>,
    /// Makes credentials, if MUNGE does.
    vouching: Option<Vouching>,
    /// Whether anybody has driven.
    has_begun: bool,
    /// Where callers drive: when the reactor's alarm is set for.
    alarm: Option<Duration>,
    /// Payload that came since a caller began to drive, and whether little
    /// was left when he had what he waited for.
    taken_bytes: usize,
    left_little: bool,
}

impl Runtime {
    /// Drives `core`, once it is asked to.
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
        mailbox.set_waker(Arc::new(move || waker.wake()));
        let mut runtime = Self {
            core,
            mailbox: mailbox.clone(),
            transports: options.transports.clone(),
            on_credential: options.on_credential.clone(),
            reactor,
            epoch,
            links: BTreeMap::new(),
            nodes: vec![NodeLinks::default()],
            vouching: None,
            closed_in_child: BTreeMap::new(),
            has_begun: false,
            alarm: None,
            taken_bytes: 0,
            left_little: false,
        };
        runtime.register_descriptors();
        Ok(runtime)
    }

    /// What is readable when a caller's turn has something to do.
    pub fn descriptor(&self) -> RawFd {
        self.reactor.as_raw_fd()
    }

    /// Runs a part of the driving. Whatever waits is to be notified, should there
    /// be a bug; `None` then.
    fn guarded<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(self)));
        if outcome.is_err() {
            let error = ClientError::panicked();
            let end = AssertUnwindSafe(|| self.core.abandon(&error));
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
        self.begin();
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
                self.handle(FIRST_NODE, Input::Wake);
                (wait, has_looked) = (None, false);
                continue;
            }
            if has_looked {
                // From here on a thread that has something for us makes the
                // descriptor readable.
                return self.set_alarm(timer, now);
            }
            // Also if there is no time: what the system reported is taken from it.
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

    /// Without a reactor there is no way on; everybody is notified.
    fn give_up(&mut self, error: NetError) -> bool {
        let what = "waiting for the network";
        self.core
            .abandon(&ClientError::io(what, std::io::Error::other(error)));
        true
    }

    /// What the thread waits for when there is nothing to do.
    pub fn poller(&self) -> Result<Poller, NetError> {
        Poller::new(&self.reactor)
    }

    /// The time on the core's clock.
    pub fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// When somebody has to drive, whatever happens.
    pub fn next_timer(&self) -> Option<Duration> {
        self.core.next_timer()
    }

    /// The thread's turn: does what there is to do, and returns until when there
    /// is nothing, unless the reactor's descriptor says so. `None` when the
    /// core has ended. `spins` says that looking for a while may be of use.
    pub fn drive_until_idle(&mut self, spins: bool) -> Option<Option<Duration>> {
        self.guarded(|runtime| runtime.drive_all(spins))?
    }

    fn drive_all(&mut self, spins: bool) -> Option<Option<Duration>> {
        self.begin();
        let mut has_looked = false;
        loop {
            if self.carry_out() {
                return None;
            }
            if let Some(event) = self.reactor.next() {
                self.event(event);
                continue;
            }
            let now = self.epoch.elapsed();
            let timer = self.core.next_timer();
            if timer.is_some_and(|at| at <= now) || !self.mailbox.fall_asleep() {
                self.handle(FIRST_NODE, Input::Wake);
                continue;
            }
            let done = match std::mem::replace(&mut has_looked, true) {
                // Takes from the system what the descriptor was readable for.
                false => self.reactor.wait(Some(Duration::ZERO)).map(|()| false),
                true => self.settle(spins, timer.map(|at| at - now)),
            };
            match done {
                Ok(true) => return Some(timer),
                Ok(false) => self.mailbox.wake_up(),
                Err(error) => {
                    self.give_up(error);
                    return None;
                }
            }
        }
    }

    fn settle(&mut self, spins: bool, timeout: Option<Duration>) -> Result<bool, NetError> {
        match spins {
            true => self.reactor.settle(timeout),
            false => self.reactor.settle(Some(Duration::ZERO)),
        }
    }

    /// Drives in the thread's place until `done`, or `deadline` has passed.
    /// `disarm` is called before it waits. If it `may_leave_some`, it leaves
    /// with what it waited for, and a little is left for the next one.
    pub fn drive_for_caller(
        &mut self,
        deadline: Deadline,
        done: &mut dyn FnMut() -> bool,
        disarm: impl Fn(),
        may_leave_some: bool,
    ) -> Leftover {
        (self.taken_bytes, self.left_little) = (0, false);
        let run = |runtime: &mut Self| runtime.drive_until(deadline, done, disarm, may_leave_some);
        self.guarded(run).unwrap_or(Leftover::Ended)
    }

    /// Whether the caller that drove last took little, and left little behind.
    pub fn was_short(&self) -> bool {
        self.left_little && self.taken_bytes <= SHORT_BYTES
    }

    /// Whether what is left can wait a little.
    fn has_little_left(&self) -> bool {
        let mut any = false;
        let mut present = self.nodes.iter().filter_map(|node| node.present);
        let has_little = |id| {
            any = true;
            let untaken = self.reactor.peek(id).and_then(|link| link.untaken_bytes());
            untaken.is_some_and(|bytes| bytes <= LITTLE_BYTES)
        };
        present.all(has_little) && any && !self.core.has_more()
    }

    fn drive_until(
        &mut self,
        deadline: Deadline,
        done: &mut dyn FnMut() -> bool,
        disarm: impl Fn(),
        may_leave_some: bool,
    ) -> Leftover {
        self.begin();
        let mut leaving = None;
        loop {
            if self.carry_out() {
                return Leftover::Ended;
            }
            match &mut leaving {
                None if done() => {
                    self.left_little = self.has_little_left();
                    if may_leave_some && self.left_little && self.mailbox.fall_asleep() {
                        return Leftover::Little;
                    }
                    leaving = Some(EVENTS_LEAVING);
                }
                None => {}
                Some(0) => return Leftover::Something,
                Some(left) => *left -= 1,
            }
            if let Some(event) = self.reactor.next() {
                self.event(event);
                continue;
            }
            let now = self.epoch.elapsed();
            let timer = self.core.next_timer();
            if timer.is_some_and(|at| at <= now) || !self.mailbox.fall_asleep() {
                self.handle(FIRST_NODE, Input::Wake);
                continue;
            }
            // What others report from now on wakes this thread.
            if leaving.is_none() && done() {
                leaving = Some(EVENTS_LEAVING);
            }
            let left = deadline.left();
            let waited = match leaving.is_some() || left.is_zero() {
                true => match self.reactor.settle(Some(Duration::ZERO)) {
                    Ok(true) => return Leftover::Nothing,
                    Ok(false) => {
                        leaving.get_or_insert(EVENTS_LEAVING);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                false => {
                    disarm();
                    let until_timer = timer.map_or(Duration::MAX, |at| at - now);
                    let wait = left.min(until_timer);
                    self.reactor.wait((wait < Duration::MAX).then_some(wait))
                }
            };
            self.mailbox.wake_up();
            if let Err(error) = waited {
                self.give_up(error);
                return Leftover::Ended;
            }
        }
    }

    /// Sends what was gathered, and does nothing else. Whether that was all,
    /// and what is left behind.
    pub fn send_inline(&mut self, what: InlineSend) -> (bool, Leftover) {
        trace::passes!("the core is asked to send");
        let sent = self.guarded(|runtime| {
            let now = runtime.epoch.elapsed();
            let (core, reactor) = (&mut runtime.core, &mut runtime.reactor);
            let node = runtime.nodes.get(core.node_of_inline(what).0);
            let present = node.and_then(|node| node.present);
            let sent =
                present.and_then(|id| reactor.post(id, |link| core.send_inline(now, link, what)));
            // Who has commands meanwhile has called the thread.
            let settled = reactor.settle(Some(Duration::ZERO));
            let left = match settled.is_ok_and(|settled| settled) {
                true => Leftover::Nothing,
                false => Leftover::Something,
            };
            (sent.unwrap_or(false), left)
        });
        sent.unwrap_or((false, Leftover::Ended))
    }

    /// Ends the core, because nobody can drive it.
    pub fn abandon(&mut self, error: &ClientError) {
        self.core.abandon(error);
    }

    fn begin(&mut self) {
        self.mailbox.wake_up();
        if !std::mem::replace(&mut self.has_begun, true) {
            self.handle(FIRST_NODE, Input::Wake);
        }
    }

    fn handle(&mut self, node: NodeIndex, input: Input) {
        let now = self.epoch.elapsed();
        let mut links = PresentLinks {
            reactor: &mut self.reactor,
            nodes: &self.nodes,
        };
        self.core.handle(now, node, input, &mut links);
    }

    /// What there is of a node, which the core may have met just now.
    fn node(&mut self, node: NodeIndex) -> &mut NodeLinks {
        if self.nodes.len() <= node.0 {
            self.nodes.resize_with(node.0 + 1, NodeLinks::default);
        }
        &mut self.nodes[node.0]
    }

    fn event(&mut self, event: ReactorEvent) {
        trace::passes!("what arrived is handed to the core");
        let ReactorEvent::Link { link, event } = event else {
            // Woken: the commands are looked at before the next sleep.
            return;
        };
        let opening = self.nodes.iter().position(|node| node.dialer.is(link));
        if let Some(node) = opening {
            return self.stripe_event(NodeIndex(node), event);
        }
        let (node, attempt) = self.links.get(&link).copied().unwrap_or_default();
        match event {
            LinkEvent::Up => self.handle(node, Input::LinkUp { attempt }),
            LinkEvent::Message(message) => {
                self.taken_bytes += message.payload.len();
                self.handle(node, Input::Message { attempt, message });
            }
            LinkEvent::Down(reason) => {
                if self.nodes[node.0].present == Some(link) {
                    self.nodes[node.0].dialer.give_up(&mut self.reactor);
                    self.handle(node, Input::LinkDown { attempt, reason });
                    self.nodes[node.0].present = None;
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
        while let Some((node, output)) = self.core.poll_output() {
            match output {
                Output::ReadGroupFile(path) => {
                    let input = Input::GroupFile(read_group_file(&path));
                    self.handle(node, input);
                }
                Output::ReadCredential(path) => {
                    self.handle(node, Input::Credential(credential_file::read(&path)));
                }
                Output::MakeCredential { path, certificate } => {
                    let vouching = self.vouching.get_or_insert_with(|| Vouching::of(&path));
                    let made = vouching.make(&certificate);
                    self.handle(node, Input::Credential(made));
                }
                Output::CredentialEnds(ends) => {
                    if let Some(on_credential) = &self.on_credential {
                        on_credential(&ends);
                    }
                }
                Output::RenewCredential(renewed) => self.renew_credential(&renewed),
                Output::Connect {
                    attempt,
                    address,
                    certificate,
                } => self.connect(node, attempt, &address, certificate.as_deref()),
                Output::Stripe { attempt } => {
                    if let Some(link) = self.link_of(node, attempt) {
                        self.reactor.stripe(link, StripesFrom::Received);
                        self.register_descriptors();
                    }
                }
                Output::OpenStripe { attempt, dial } => {
                    if let Some(main) = self.link_of(node, attempt) {
                        let (transports, reactor) = (&self.transports, &mut self.reactor);
                        let dialer = &mut self.nodes[node.0].dialer;
                        let opened = dialer.open((attempt, main), dial, transports, reactor);
                        self.stripe_opened(node, opened);
                    }
                }
                Output::DropStripe => {
                    self.nodes[node.0].dialer.give_up(&mut self.reactor);
                    self.forget_descriptors();
                }
                Output::Disconnect { attempt, reason } => self.disconnect(node, attempt, &reason),
                Output::Ended => {
                    self.flush_finally();
                    return true;
                }
            }
        }
        false
    }

    fn stripe_event(&mut self, node: NodeIndex, event: LinkEvent) {
        let opened = self.nodes[node.0].dialer.take(event, &mut self.reactor);
        self.stripe_opened(node, opened);
    }

    /// A further connection was opened, or not, if it is known by now.
    fn stripe_opened(&mut self, node: NodeIndex, opened: Option<Opened>) {
        self.forget_descriptors();
        self.register_descriptors();
        if let Some(Opened { attempt, result }) = opened {
            self.handle(node, Input::Stripe { attempt, result });
        }
    }

    fn link_of(&self, node: NodeIndex, attempt: u64) -> Option<LinkId> {
        let mut links = self.links.iter();
        let link = links.find(|(_, other)| **other == (node, attempt));
        link.map(|(link, _)| *link)
    }

    fn connect(
        &mut self,
        node: NodeIndex,
        attempt: u64,
        address: &str,
        certificate: Option<&[u8]>,
    ) {
        self.node(node).present = None;
        let link = self.transports.connect_as(address, certificate);
        match link.and_then(|link| self.reactor.add_link(link)) {
            Ok(link) => {
                self.links.insert(link, (node, attempt));
                self.node(node).present = Some(link);
                self.register_descriptors();
            }
            Err(reason) => self.handle(node, Input::LinkDown { attempt, reason }),
        }
    }

    /// Writes a credential anew. Where that fails the connection goes on; its owner is notified, for the
    /// file is over sooner.
    fn renew_credential(&self, renewed: &RenewedCredential) {
        if let Err(error) = credential_file::renew(renewed)
            && let Some(on_credential) = &self.on_credential
        {
            on_credential(&CredentialEnds {
                path: renewed.path.clone(),
                left: renewed.left,
                message: format!(
                    "the certificate was renewed, but its file cannot be written: {error}"
                ),
            });
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

    fn disconnect(&mut self, node: NodeIndex, attempt: u64, reason: &str) {
        let Some(link) = self.link_of(node, attempt) else {
            return;
        };
        self.nodes[node.0].dialer.give_up(&mut self.reactor);
        if let Some(link) = self.reactor.link(link) {
            link.close(reason);
        }
        if self.nodes[node.0].present == Some(link) {
            self.nodes[node.0].present = None;
        }
    }

    /// Lets links that were closed send what they hold.
    fn flush_finally(&mut self) {
        for _ in 0..FINAL_FLUSH_TURNS_MAX {
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
    let (mut file, here) = (GroupFile::read(path)?, Host::this());
    file.others = file.others_from(&here);
    let endpoints = match file.endpoints_from(&here) {
        // One of the others will do.
        Err(_) if !file.others.is_empty() => Vec::new(),
        endpoints => endpoints?,
    };
    Ok((file, endpoints))
}
