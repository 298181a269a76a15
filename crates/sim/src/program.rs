//! A client's process: a driver whose core is executed here, over the
//! simulated network, with a link to each node that it has to do with. It can
//! die at any moment.

use crate::machine::{ADDRESS, DIRECTORY, TOKEN};
use crate::trace::Trace;
use crate::wired::Wired;
use bytes::Bytes;
use client::core::{ClientCore, FIRST_NODE, Input, Links, NodeIndex, Output};
use client::{Driver, DriverOptions, Endpoint, SimulatedWait};
use net::testing::counted::{Counted, Counters};
use net::testing::sim::SimNet;
use net::{Link, LinkEvent, LinkOptions, Transports};
use std::sync::Arc;
use std::time::Duration;
use wire::DirectoryId;

/// Where a program comes in: a server's address, and which server that is.
#[derive(Clone)]
pub struct Entrance {
    net: SimNet,
    address: String,
    directory: DirectoryId,
}

impl Entrance {
    /// The entrance of the server that listens at this address of the network.
    pub fn new(net: &SimNet, address: &str, directory: DirectoryId) -> Self {
        Self {
            net: net.clone(),
            address: address.to_owned(),
            directory,
        }
    }
}

/// Of a network with one server.
impl From<&SimNet> for Entrance {
    fn from(net: &SimNet) -> Self {
        Self::new(net, ADDRESS, DIRECTORY)
    }
}

impl From<&Entrance> for Entrance {
    fn from(entrance: &Entrance) -> Self {
        entrance.clone()
    }
}

/// A connection to a node.
struct Line {
    node: NodeIndex,
    attempt: u64,
    wired: Wired,
}

/// A program's connections, by node and attempt: they are few, and looked at in each turn.
#[derive(Default)]
struct Wiring {
    lines: Vec<Line>,
    /// The attempt of the present one to each node.
    present: Vec<Option<u64>>,
}

impl Wiring {
    fn place(&self, node: NodeIndex, attempt: u64) -> Result<usize, usize> {
        let key = |line: &Line| (line.node, line.attempt);
        self.lines.binary_search_by_key(&(node, attempt), key)
    }

    fn wired(&mut self, node: NodeIndex, attempt: u64) -> Option<&mut Wired> {
        let place = self.place(node, attempt).ok()?;
        Some(&mut self.lines[place].wired)
    }

    fn insert(&mut self, node: NodeIndex, attempt: u64, wired: Wired) {
        let (Ok(place) | Err(place)) = self.place(node, attempt);
        let line = Line {
            node,
            attempt,
            wired,
        };
        self.lines.insert(place, line);
        *self.present(node) = Some(attempt);
    }

    fn remove(&mut self, node: NodeIndex, attempt: u64) {
        if let Ok(place) = self.place(node, attempt) {
            self.lines.remove(place);
        }
    }

    fn present(&mut self, node: NodeIndex) -> &mut Option<u64> {
        let count = self.present.len().max(node.0 + 1);
        self.present.resize(count, None);
        &mut self.present[node.0]
    }

    fn is_present(&self, node: NodeIndex, attempt: u64) -> bool {
        self.present.get(node.0) == Some(&Some(attempt))
    }

    /// It is the present one no more, if it was.
    fn is_over(&mut self, node: NodeIndex, attempt: u64) {
        if self.is_present(node, attempt) {
            *self.present(node) = None;
        }
    }
}

impl Links for Wiring {
    fn link(&mut self, node: NodeIndex) -> Option<&mut dyn Link> {
        let attempt = self.present.get(node.0).copied().flatten()?;
        Some(self.wired(node, attempt)?.ask())
    }
}

/// The process.
pub struct Program {
    pub driver: Driver,
    pub name: String,
    core: ClientCore,
    transports: Arc<Transports>,
    trace: Trace,
    wiring: Wiring,
    is_woken: bool,
    /// The process is stopped until then.
    stopped_until: u64,
    /// Whether the core has ended: a driver that gave up.
    pub ended: bool,
}

impl Program {
    /// Starts the process; it connects by itself.
    pub fn start(entrance: impl Into<Entrance>, name: String, session: u128, trace: Trace) -> Self {
        Self::counted(entrance, name, session, trace, Counters::default())
    }

    /// [`Program::start`], with its frames counted.
    pub fn counted(
        entrance: impl Into<Entrance>,
        name: String,
        session: u128,
        trace: Trace,
        counters: Counters,
    ) -> Self {
        let Entrance {
            net,
            address,
            directory,
        } = entrance.into();
        let transport = net.transport_of(name.clone(), LinkOptions::default());
        let transport = Counted::new(transport, counters);
        let transports = Arc::new(Transports::new().with(transport));
        let endpoint = Endpoint::Address {
            address,
            token: Some(Bytes::copy_from_slice(&TOKEN)),
            directory: Some(directory),
        };
        let options = DriverOptions {
            client_name: name.clone(),
            connect_timeout: Some(Duration::from_secs(20)),
            request_timeout: Duration::from_secs(30),
            transports: transports.clone(),
            ..DriverOptions::default()
        };
        let (driver, core, _) = Driver::simulated(endpoint, options, session);
        Self {
            driver,
            name,
            core,
            transports,
            trace,
            wiring: Wiring::default(),
            is_woken: true,
            stopped_until: 0,
            ended: false,
        }
    }

    /// [`Program::start`], for a program whose thread waits by `wait`.
    pub fn waiting(
        entrance: impl Into<Entrance>,
        name: String,
        session: u128,
        trace: Trace,
        wait: Arc<dyn SimulatedWait>,
    ) -> Self {
        let program = Self::start(entrance, name, session, trace);
        let waits = program.driver.waits_by(wait);
        waits.expect("the driver was only just made");
        program
    }

    /// The API was used, or not: a thread of its own has run.
    pub fn may_have_called(&mut self) {
        self.is_woken |= self.core.has_commands();
    }

    /// The API was used.
    pub fn wake(&mut self) {
        self.is_woken = true;
    }

    /// The process is stopped until then, as by SIGSTOP.
    pub fn stop(&mut self, until: u64) {
        self.stopped_until = until;
    }

    /// Whether the process is stopped.
    pub fn is_stopped(&self, now: u64) -> bool {
        now < self.stopped_until
    }

    /// When the core wants to be called.
    pub fn next_event(&self) -> Option<u64> {
        if self.ended {
            return None;
        }
        if self.stopped_until > 0 {
            return Some(self.stopped_until);
        }
        let at = self.core.next_timer()?;
        Some(at.as_nanos().min(u128::from(u64::MAX)) as u64)
    }

    /// The process is killed: its connections end, and what its handles still
    /// wait for fails, so that dropping them waits for nothing.
    pub fn kill(&mut self, now: u64) {
        self.trace.say(now, || format!("{}: killed", self.name));
        self.wiring = Wiring::default();
        // It has no thread that could be waited for, and drains nothing now.
        let _ = self.driver.close(Duration::ZERO);
        self.core.handle(
            Duration::from_nanos(now),
            FIRST_NODE,
            Input::Wake,
            &mut None,
        );
        while self.core.poll_output().is_some() {}
        self.ended = true;
    }

    /// Does what is due. True if there was something.
    pub fn turn(&mut self, now: u64) -> bool {
        let mut moved = false;
        if self.ended || now < self.stopped_until {
            return false;
        }
        self.stopped_until = 0;
        self.core.set_time(Duration::from_nanos(now));
        let due = self.next_event().is_some_and(|at| at <= now);
        if std::mem::take(&mut self.is_woken) || due {
            moved = true;
            self.handle(now, FIRST_NODE, Input::Wake);
        }
        let notified = self.wiring.lines.iter();
        let notified = notified.filter(|line| line.wired.is_notified());
        let notified: Vec<_> = notified.map(|line| (line.node, line.attempt)).collect();
        for (node, attempt) in notified {
            moved = true;
            self.poll(now, node, attempt);
        }
        // Callbacks of ours use the API as well.
        self.is_woken |= self.core.has_commands();
        moved |= self.is_woken;
        moved
    }

    fn handle(&mut self, now: u64, node: NodeIndex, input: Input) {
        let at = Duration::from_nanos(now);
        self.core.handle(at, node, input, &mut self.wiring);
        while let Some((node, output)) = self.core.poll_output() {
            match output {
                Output::ReadGroupFile(_) => unreachable!("the endpoint is an address"),
                Output::ReadCredential(_)
                | Output::MakeCredential { .. }
                | Output::CredentialEnds(_) => {
                    unreachable!("it has none")
                }
                Output::RenewCredential(_) => {}
                Output::Stripe { .. } | Output::OpenStripe { .. } | Output::DropStripe => {
                    unreachable!("a link of the simulation has one connection")
                }
                Output::Connect {
                    attempt, address, ..
                } => {
                    *self.wiring.present(node) = None;
                    match self.transports.connect(&address) {
                        Ok(link) => self.wiring.insert(node, attempt, Wired::new(link)),
                        Err(reason) => {
                            self.handle(now, node, Input::LinkDown { attempt, reason });
                        }
                    }
                }
                Output::Disconnect { attempt, reason } => {
                    self.trace
                        .say(now, || format!("{}: disconnects: {reason}", self.name));
                    if let Some(wired) = self.wiring.wired(node, attempt) {
                        wired.ask().close(&reason);
                    }
                    self.wiring.is_over(node, attempt);
                }
                Output::Ended => {
                    self.trace
                        .say(now, || format!("{}: its driver has ended", self.name));
                    self.ended = true;
                }
            }
        }
    }

    fn poll(&mut self, now: u64, node: NodeIndex, attempt: u64) {
        loop {
            let Some(wired) = self.wiring.wired(node, attempt) else {
                return;
            };
            let Some(event) = wired.link.poll() else {
                return;
            };
            match event {
                LinkEvent::Up => self.handle(now, node, Input::LinkUp { attempt }),
                LinkEvent::Message(message) => {
                    self.handle(now, node, Input::Message { attempt, message });
                }
                LinkEvent::Down(reason) => {
                    self.trace.say(now, || {
                        let of = if node == FIRST_NODE {
                            String::new()
                        } else {
                            format!(" of its node {}", node.0)
                        };
                        format!("{}: link {attempt}{of} is down: {reason}", self.name)
                    });
                    if self.wiring.is_present(node, attempt) {
                        self.handle(now, node, Input::LinkDown { attempt, reason });
                        self.wiring.is_over(node, attempt);
                    }
                    self.wiring.remove(node, attempt);
                }
                LinkEvent::ReadDone { .. } | LinkEvent::WriteDone { .. } => {}
            }
        }
    }
}
