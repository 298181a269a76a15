//! A client's core, a fake server and a simulated network in one thread,
//! under a virtual clock.

#![allow(dead_code)]

use super::fake::FakeServer;
use client::core::{ClientCore, Input, Output};
use client::{Driver, DriverOptions, Endpoint, Pending, TopicHandle};
use net::testing::sim::{SimFaults, SimNet};
use net::{Link, LinkEvent, LinkOptions, Transport};
use std::time::Duration;

pub struct World {
    pub net: SimNet,
    pub server: FakeServer,
    pub driver: Driver,
    pub core: ClientCore,
    pub connected: Pending<()>,
    link: Option<(u64, Box<dyn Link>)>,
    /// What the file of the credential holds.
    pub credential: Option<bytes::Bytes>,
    /// Credentials that MUNGE was to make.
    pub made: u64,
    /// What the client was told of its end.
    pub credential_ends: Vec<client::CredentialEnds>,
    /// What its file was to hold instead.
    pub renewed: Vec<bytes::Bytes>,
    pub ended: bool,
}

pub fn options() -> DriverOptions {
    DriverOptions {
        client_name: "test".into(),
        ..DriverOptions::default()
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(options())
    }

    pub fn with(options: DriverOptions) -> Self {
        Self::at(Endpoint::address("sim://server"), options)
    }

    pub fn at(endpoint: Endpoint, options: DriverOptions) -> Self {
        let net = SimNet::new(1, SimFaults::none());
        let transport = net.transport(LinkOptions::default());
        let mut server = FakeServer::new(transport.listen("sim://server").unwrap());
        let cut = net.clone();
        server.cutter = Some(Box::new(move || cut.cut_all()));
        let (driver, core, connected) = Driver::simulated(endpoint, options, 7);
        Self {
            net,
            server,
            driver,
            core,
            connected,
            link: None,
            credential: None,
            made: 0,
            credential_ends: Vec::new(),
            renewed: Vec::new(),
            ended: false,
        }
    }

    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.net.now())
    }

    fn handle(&mut self, input: Input) {
        let now = self.now();
        let link = self
            .link
            .as_mut()
            .map(|(_, link)| &mut **link as &mut dyn Link);
        self.core.handle(now, input, link);
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::RenewCredential(renewed) => {
                    self.renewed.push(renewed.after);
                }
                Output::Connect {
                    attempt, address, ..
                } => {
                    // Whatever the scheme, the network is this one.
                    let (_, rest) = address.split_once("://").unwrap();
                    let address = format!("sim://{rest}");
                    let transport = self.net.transport(LinkOptions::default());
                    self.link = Some((attempt, transport.connect(&address).unwrap()));
                }
                Output::Disconnect { attempt, reason } => {
                    if let Some((present, link)) = &mut self.link
                        && *present == attempt
                    {
                        link.close(&reason);
                        while link.poll().is_some() {}
                        self.link = None;
                    }
                }
                Output::Stripe { .. } | Output::OpenStripe { .. } | Output::DropStripe => {
                    unreachable!("the fake server gives a session one connection")
                }
                Output::ReadGroupFile(_) => unreachable!("no test here uses a group file"),
                Output::ReadCredential(_) => {
                    let text = self.credential.clone().ok_or("no such file".to_owned());
                    self.handle(Input::Credential(text));
                }
                Output::MakeCredential { .. } => {
                    self.made += 1;
                    let text = self.credential.clone().ok_or("munged is away".to_owned());
                    let text = text.map(|text| {
                        let text = String::from_utf8(text.into()).unwrap();
                        bytes::Bytes::from(format!("MUNGE:{text}{}:", self.made))
                    });
                    self.handle(Input::Credential(text));
                }
                Output::CredentialEnds(ends) => self.credential_ends.push(ends),
                Output::Ended => self.ended = true,
            }
        }
    }

    /// Does everything that can be done without time passing.
    pub fn settle(&mut self) {
        self.handle(Input::Wake);
        loop {
            let mut busy = self.server.turn(None);
            while let Some((attempt, link)) = &mut self.link {
                let attempt = *attempt;
                let Some(event) = link.poll() else { break };
                busy = true;
                match event {
                    LinkEvent::Up => self.handle(Input::LinkUp { attempt }),
                    LinkEvent::Message(message) => self.handle(Input::Message { attempt, message }),
                    LinkEvent::Down(reason) => {
                        self.handle(Input::LinkDown { attempt, reason });
                        if self
                            .link
                            .as_ref()
                            .is_some_and(|(present, _)| *present == attempt)
                        {
                            self.link = None;
                        }
                    }
                    LinkEvent::ReadDone { .. } | LinkEvent::WriteDone { .. } => {}
                }
            }
            if self.core.next_timer().is_some_and(|at| at <= self.now()) {
                self.handle(Input::Wake);
                busy = true;
            }
            if !busy {
                return;
            }
        }
    }

    /// Lets the time pass until `done`, at most for `limit` of virtual time.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let until = self.now() + limit;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            let timer = self.core.next_timer().map(|at| at.as_nanos() as u64);
            let next = [timer, self.net.next_event()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until.as_nanos() as u64) else {
                self.net.advance(until.as_nanos() as u64);
                self.settle();
                return done(self);
            };
            self.net.advance(next);
        }
    }

    /// The answer to a call, which must come within its deadline.
    pub fn wait<T>(&mut self, mut pending: Pending<T>) -> Result<T, client::ClientError> {
        let mut outcome = None;
        self.run_until(Duration::from_secs(600), |_| {
            outcome = pending.try_get();
            outcome.is_some()
        });
        outcome.expect("every call is answered within its deadline")
    }

    pub fn topic(&mut self, partitions: usize) -> TopicHandle {
        let definition = client::Definition::builder()
            .validator(topic::ValidatorKind::None)
            .build()
            .unwrap();
        let storage = client::PartitionStorage {
            kind: "memory".into(),
            config: String::new(),
        };
        let pending =
            self.driver
                .begin_create_topic("events", &definition, &vec![storage; partitions]);
        self.wait(pending).unwrap()
    }
}
