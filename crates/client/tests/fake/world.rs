//! A client's core, a fake server and a simulated network in one thread,
//! under a virtual clock.

#![allow(dead_code)]

use super::fake::FakeServer;
use client::core::{ClientCore, FIRST_NODE, Input, Links, NodeIndex, Output};
use client::{Driver, DriverOptions, Endpoint, Pending, TopicHandle};
use net::testing::sim::{SimFaults, SimNet};
use net::{Link, LinkEvent, LinkOptions, Transport};
use std::collections::BTreeMap;
use std::time::Duration;

pub struct World {
    pub net: SimNet,
    pub server: FakeServer,
    pub driver: Driver,
    pub core: ClientCore,
    pub connected: Pending<()>,
    /// Further servers, where the first one's topics may be.
    pub others: Vec<FakeServer>,
    /// The present link to each node, and the attempt that it is of.
    links: Present,
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

#[derive(Default)]
struct Present(BTreeMap<NodeIndex, (u64, Box<dyn Link>)>);

impl Links for Present {
    fn link(&mut self, node: NodeIndex) -> Option<&mut dyn Link> {
        let (_, link) = self.0.get_mut(&node)?;
        Some(&mut **link)
    }
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
            others: Vec::new(),
            links: Present::default(),
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

    /// One more server, at `sim://NAME`.
    pub fn another(&mut self, name: &str) -> usize {
        let transport = self.net.transport(LinkOptions::default());
        let mut server = FakeServer::new(transport.listen(&format!("sim://{name}")).unwrap());
        server.directory = wire::DirectoryId(0xd2 + self.others.len() as u128);
        self.others.push(server);
        self.others.len() - 1
    }

    /// Gives a topic of the first server's to another one, at `sim://NAME`.
    pub fn move_away(&mut self, topic: &str, other: usize, name: &str) {
        let address = format!("sim://{name}");
        self.server
            .move_topic(topic, &mut self.others[other], &address);
    }

    fn handle(&mut self, node: NodeIndex, input: Input) {
        let now = self.now();
        self.core.handle(now, node, input, &mut self.links);
        while let Some((node, output)) = self.core.poll_output() {
            match output {
                Output::RenewCredential(renewed) => {
                    self.renewed.push(renewed.after);
                }
                Output::Connect {
                    attempt, address, ..
                } => {
                    // Whatever the scheme, the network is this one.
                    let (_, rest) = address.split_once("://").unwrap();
                    let host = rest.split('?').next().unwrap();
                    let address = format!("sim://{host}");
                    let transport = self.net.transport(LinkOptions::default());
                    let link = transport.connect(&address).unwrap();
                    self.links.0.insert(node, (attempt, link));
                }
                Output::Disconnect { attempt, reason } => {
                    if let Some((present, link)) = self.links.0.get_mut(&node)
                        && *present == attempt
                    {
                        link.close(&reason);
                        while link.poll().is_some() {}
                        self.links.0.remove(&node);
                    }
                }
                Output::Stripe { .. } | Output::OpenStripe { .. } | Output::DropStripe => {
                    unreachable!("the fake server gives a session one connection")
                }
                Output::ReadGroupFile(_) => unreachable!("no test here uses a group file"),
                Output::ReadCredential(_) => {
                    let text = self.credential.clone().ok_or("no such file".to_owned());
                    self.handle(node, Input::Credential(text));
                }
                Output::MakeCredential { .. } => {
                    self.made += 1;
                    let text = self.credential.clone().ok_or("munged is away".to_owned());
                    let text = text.map(|text| {
                        let text = String::from_utf8(text.into()).unwrap();
                        bytes::Bytes::from(format!("MUNGE:{text}{}:", self.made))
                    });
                    self.handle(node, Input::Credential(text));
                }
                Output::CredentialEnds(ends) => self.credential_ends.push(ends),
                Output::Ended => self.ended = true,
            }
        }
    }

    /// The next thing that has happened on a link.
    fn poll_links(&mut self) -> Option<(NodeIndex, u64, LinkEvent)> {
        let mut links = self.links.0.iter_mut();
        links.find_map(|(node, (attempt, link))| Some((*node, *attempt, link.poll()?)))
    }

    /// Does everything that can be done without time passing.
    pub fn settle(&mut self) {
        self.handle(FIRST_NODE, Input::Wake);
        loop {
            let mut busy = self.server.turn(None);
            for other in &mut self.others {
                busy |= other.turn(None);
            }
            while let Some((node, attempt, event)) = self.poll_links() {
                busy = true;
                match event {
                    LinkEvent::Up => self.handle(node, Input::LinkUp { attempt }),
                    LinkEvent::Message(message) => {
                        self.handle(node, Input::Message { attempt, message });
                    }
                    LinkEvent::Down(reason) => {
                        self.handle(node, Input::LinkDown { attempt, reason });
                        if self
                            .links
                            .0
                            .get(&node)
                            .is_some_and(|(present, _)| *present == attempt)
                        {
                            self.links.0.remove(&node);
                        }
                    }
                    LinkEvent::ReadDone { .. } | LinkEvent::WriteDone { .. } => {}
                }
            }
            if self.core.next_timer().is_some_and(|at| at <= self.now()) {
                self.handle(FIRST_NODE, Input::Wake);
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
