//! A client's process: a driver whose core is executed here, over the
//! simulated network. It can die at any moment.

use crate::machine::{ADDRESS, DIRECTORY, TOKEN};
use crate::trace::Trace;
use crate::wired::Wired;
use bytes::Bytes;
use client::core::{ClientCore, FIRST_NODE, Input, Output};
use client::{Driver, DriverOptions, Endpoint, SimulatedWait};
use net::testing::counted::{Counted, Counters};
use net::testing::sim::SimNet;
use net::{LinkEvent, LinkOptions, Transports};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The process.
pub struct Program {
    pub driver: Driver,
    pub name: String,
    core: ClientCore,
    transports: Arc<Transports>,
    trace: Trace,
    links: BTreeMap<u64, Wired>,
    present: Option<u64>,
    is_woken: bool,
    /// The process is stopped until then.
    stopped_until: u64,
    /// Whether the core has ended: a driver that gave up.
    pub ended: bool,
}

impl Program {
    /// Starts the process; it connects by itself.
    pub fn start(net: &SimNet, name: String, session: u128, trace: Trace) -> Self {
        Self::counted(net, name, session, trace, Counters::default())
    }

    /// [`Program::start`], with its frames counted.
    pub fn counted(
        net: &SimNet,
        name: String,
        session: u128,
        trace: Trace,
        counters: Counters,
    ) -> Self {
        let transport = net.transport_of(name.clone(), LinkOptions::default());
        let transport = Counted::new(transport, counters);
        let transports = Arc::new(Transports::new().with(transport));
        let endpoint = Endpoint::Address {
            address: ADDRESS.to_owned(),
            token: Some(Bytes::copy_from_slice(&TOKEN)),
            directory: Some(DIRECTORY),
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
            links: BTreeMap::new(),
            present: None,
            is_woken: true,
            stopped_until: 0,
            ended: false,
        }
    }

    /// [`Program::start`], for a program whose thread waits by `wait`.
    pub fn waiting(
        net: &SimNet,
        name: String,
        session: u128,
        trace: Trace,
        wait: Arc<dyn SimulatedWait>,
    ) -> Self {
        let program = Self::start(net, name, session, trace);
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
        self.present = None;
        self.links.clear();
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
            self.handle(now, Input::Wake);
        }
        let notified: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, wired)| wired.is_notified())
            .map(|(attempt, _)| *attempt)
            .collect();
        for attempt in notified {
            moved = true;
            self.poll(now, attempt);
        }
        // Callbacks of ours use the API as well.
        self.is_woken |= self.core.has_commands();
        moved |= self.is_woken;
        moved
    }

    fn handle(&mut self, now: u64, input: Input) {
        let present = self.present;
        let wired = present.and_then(|attempt| self.links.get_mut(&attempt));
        let mut link = wired.map(Wired::ask);
        let at = Duration::from_nanos(now);
        self.core.handle(at, FIRST_NODE, input, &mut link);
        while let Some((_, output)) = self.core.poll_output() {
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
                    self.present = None;
                    match self.transports.connect(&address) {
                        Ok(link) => {
                            self.links.insert(attempt, Wired::new(link));
                            self.present = Some(attempt);
                        }
                        Err(reason) => self.handle(now, Input::LinkDown { attempt, reason }),
                    }
                }
                Output::Disconnect { attempt, reason } => {
                    self.trace
                        .say(now, || format!("{}: disconnects: {reason}", self.name));
                    if let Some(wired) = self.links.get_mut(&attempt) {
                        wired.ask().close(&reason);
                    }
                    if self.present == Some(attempt) {
                        self.present = None;
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

    fn poll(&mut self, now: u64, attempt: u64) {
        loop {
            let Some(wired) = self.links.get_mut(&attempt) else {
                return;
            };
            let Some(event) = wired.link.poll() else {
                return;
            };
            match event {
                LinkEvent::Up => self.handle(now, Input::LinkUp { attempt }),
                LinkEvent::Message(message) => {
                    self.handle(now, Input::Message { attempt, message });
                }
                LinkEvent::Down(reason) => {
                    self.trace.say(now, || {
                        format!("{}: link {attempt} is down: {reason}", self.name)
                    });
                    if self.present == Some(attempt) {
                        self.handle(now, Input::LinkDown { attempt, reason });
                        if self.present == Some(attempt) {
                            self.present = None;
                        }
                    }
                    self.links.remove(&attempt);
                }
                LinkEvent::ReadDone { .. } | LinkEvent::WriteDone { .. } => {}
            }
        }
    }
}
