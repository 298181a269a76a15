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
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::DirectoryId;

/// Where a program comes in: a server's address, and which server that is.
#[derive(Clone)]
pub struct Door {
    net: SimNet,
    address: String,
    directory: DirectoryId,
}

impl Door {
    /// The door of the server that listens at this address of the network.
    pub fn new(net: &SimNet, address: &str, directory: DirectoryId) -> Self {
        Self {
            net: net.clone(),
            address: address.to_owned(),
            directory,
        }
    }
}

/// Of a network with one server.
impl From<&SimNet> for Door {
    fn from(net: &SimNet) -> Self {
        Self::new(net, ADDRESS, DIRECTORY)
    }
}

impl From<&Door> for Door {
    fn from(door: &Door) -> Self {
        door.clone()
    }
}

/// A program's connections to a node.
#[derive(Default)]
struct Lines {
    links: BTreeMap<u64, Wired>,
    /// The attempt of the present one.
    present: Option<u64>,
}

/// A program's connections, by node.
#[derive(Default)]
struct Wiring(BTreeMap<NodeIndex, Lines>);

impl Wiring {
    fn of(&mut self, node: NodeIndex) -> &mut Lines {
        self.0.entry(node).or_default()
    }
}

impl Links for Wiring {
    fn link(&mut self, node: NodeIndex) -> Option<&mut dyn Link> {
        let lines = self.0.get_mut(&node)?;
        let wired = lines.links.get_mut(&lines.present?)?;
        Some(wired.ask())
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
    pub fn start(door: impl Into<Door>, name: String, session: u128, trace: Trace) -> Self {
        Self::counted(door, name, session, trace, Counters::default())
    }

    /// [`Program::start`], with its frames counted.
    pub fn counted(
        door: impl Into<Door>,
        name: String,
        session: u128,
        trace: Trace,
        counters: Counters,
    ) -> Self {
        let Door {
            net,
            address,
            directory,
        } = door.into();
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
        door: impl Into<Door>,
        name: String,
        session: u128,
        trace: Trace,
        wait: Arc<dyn SimulatedWait>,
    ) -> Self {
        let program = Self::start(door, name, session, trace);
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
        let lines = self.wiring.0.iter();
        let links = lines.flat_map(|(node, lines)| {
            let links = lines.links.iter();
            links.map(move |(attempt, wired)| (*node, *attempt, wired))
        });
        let notified = links.filter(|(_, _, wired)| wired.is_notified());
        let notified: Vec<_> = notified.map(|(node, attempt, _)| (node, attempt)).collect();
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
                    let lines = self.wiring.of(node);
                    lines.present = None;
                    match self.transports.connect(&address) {
                        Ok(link) => {
                            lines.links.insert(attempt, Wired::new(link));
                            lines.present = Some(attempt);
                        }
                        Err(reason) => {
                            self.handle(now, node, Input::LinkDown { attempt, reason });
                        }
                    }
                }
                Output::Disconnect { attempt, reason } => {
                    self.trace
                        .say(now, || format!("{}: disconnects: {reason}", self.name));
                    let lines = self.wiring.of(node);
                    if let Some(wired) = lines.links.get_mut(&attempt) {
                        wired.ask().close(&reason);
                    }
                    if lines.present == Some(attempt) {
                        lines.present = None;
                    }
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
            let Some(wired) = self.wiring.of(node).links.get_mut(&attempt) else {
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
                    if self.wiring.of(node).present == Some(attempt) {
                        self.handle(now, node, Input::LinkDown { attempt, reason });
                        let lines = self.wiring.of(node);
                        if lines.present == Some(attempt) {
                            lines.present = None;
                        }
                    }
                    self.wiring.of(node).links.remove(&attempt);
                }
                LinkEvent::ReadDone { .. } | LinkEvent::WriteDone { .. } => {}
            }
        }
    }
}
