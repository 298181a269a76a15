//! A controller that leads and one that follows, each on a disk of its own, in one thread: what they
//! say to each other waits in queues, and what is to happen next is up to a seed.

use super::harness::Ground;
use crate::Fault;
use crate::coordinator::controller::suite::Driven;
use crate::coordinator::controller::testing::open;
use crate::coordinator::controller::{
    Command, CommandToken, ControlError, Controller, Following, Home, LEADER, Leading,
};
use crate::coordinator::table::Table;
use crate::faults::Planted;
use crate::node::{Now, StorageId};
use log::testing::{FaultyDisk, Survival};
use log::{Disk, Operation, OperationToken};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use wire::record::{Record, TopicRecord};
use wire::table::TableMessage;
use wire::{Codec, Durability, NodeId, TableId, TopicId};

/// How long a change waits for a leader.
pub const PATIENCE: Duration = Duration::from_secs(5);
pub const FOLLOWER: NodeId = NodeId(1);
pub const TABLE: TableId = TableId(0x7ab1e);

/// One of the two, on its disk.
pub struct Site<C> {
    pub disk: Arc<FaultyDisk>,
    pub controller: C,
    operations: VecDeque<(StorageId, OperationToken, Operation)>,
    /// What was completed, and how, in its order.
    pub done: Vec<(u64, Result<(), ControlError>)>,
}

impl<C: Controller> Site<C> {
    fn new(disk: Arc<FaultyDisk>, controller: C) -> Self {
        Self {
            disk,
            controller,
            operations: VecDeque::new(),
            done: Vec::new(),
        }
    }

    pub fn submit(&mut self, token: u64, records: Vec<Record>) {
        let home = records.first().map_or(Home::Table, Home::of);
        let command = Command {
            home,
            records,
            durability: Durability::Synced,
        };
        self.controller.submit(CommandToken(token), command);
    }

    fn advance(&mut self) {
        self.controller.advance();
        while let Some(operation) = self.controller.poll_operation() {
            self.operations.push_back(operation);
        }
    }

    /// Carries out the next operation of its disk, if there is one.
    pub fn execute(&mut self) -> bool {
        let Some((storage, token, operation)) = self.operations.pop_front() else {
            return false;
        };
        let result = self.disk.execute(operation);
        self.controller.complete(storage, token, result);
        true
    }

    /// Goes on by itself, until its disk has nothing left to do.
    pub fn run(&mut self) {
        self.advance();
        while self.execute() {
            self.advance();
        }
        self.poll();
    }

    /// Notes what is completed.
    pub fn poll(&mut self) {
        while let Some((token, result)) = self.controller.poll_completion() {
            self.done.push((token.0, result));
        }
    }

    /// The numbers of what was carried out.
    pub fn carried_out(&self) -> Vec<u64> {
        let done = self.done.iter().filter(|(_, result)| result.is_ok());
        done.map(|(token, _)| *token).collect()
    }

    /// What a start finds if the power is lost now.
    pub fn found(&self) -> Table {
        let disk = Arc::new(self.disk.fork());
        disk.power_loss(Survival::Nothing);
        open(&disk, false).table().clone()
    }
}

/// See the module.
pub struct Pair {
    pub leader: Site<Leading>,
    pub follower: Site<Following>,
    pub is_linked: bool,
    to_leader: VecDeque<Vec<u8>>,
    to_follower: VecDeque<Vec<u8>>,
    pub now: Duration,
    seed: u64,
    fault: Option<Fault>,
}

fn planted(fault: Option<Fault>) -> Planted {
    fault.map_or_else(Planted::default, Planted::one)
}

pub fn lead(disk: &Arc<FaultyDisk>, create: bool, id: TableId, fault: Option<Fault>) -> Leading {
    Leading::new(open(disk, create), id, planted(fault))
}

pub fn follow(disk: &Arc<FaultyDisk>, create: bool, fault: Option<Fault>) -> Following {
    Following::new(open(disk, create), FOLLOWER, PATIENCE, planted(fault))
}

impl Pair {
    pub fn new(seed: u64, fault: Option<Fault>) -> Self {
        let disks = [Ground::new().disk, Ground::new().disk];
        let [leads, follows] = disks;
        let mut pair = Self {
            leader: Site::new(leads.clone(), lead(&leads, true, TABLE, fault)),
            follower: Site::new(follows.clone(), follow(&follows, true, fault)),
            is_linked: false,
            to_leader: VecDeque::new(),
            to_follower: VecDeque::new(),
            now: Duration::from_secs(1),
            seed,
            fault,
        };
        pair.set_time(Duration::from_secs(1));
        pair.link();
        pair
    }

    pub fn set_time(&mut self, monotonic: Duration) {
        self.now = monotonic;
        let unix_ns = 1_700_000_000_000_000_000;
        let now = Now { monotonic, unix_ns };
        self.leader.controller.set_time(now);
        self.follower.controller.set_time(now);
    }

    /// A number below `count`, by the seed.
    pub fn choose(&mut self, count: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % count
    }

    pub fn link(&mut self) {
        self.cut();
        self.is_linked = true;
        self.leader.controller.linked(FOLLOWER, true);
        self.follower.controller.linked(LEADER, true);
    }

    /// The link is gone, and all that was on its way.
    pub fn cut(&mut self) {
        self.is_linked = false;
        self.to_leader.clear();
        self.to_follower.clear();
        self.leader.controller.linked(FOLLOWER, false);
        self.follower.controller.linked(LEADER, false);
    }

    /// How many messages are on their way to the leader.
    pub fn asked(&self) -> usize {
        self.to_leader.len()
    }

    /// The node that leads loses its power, and starts again.
    pub fn restart_leader(&mut self) {
        self.cut();
        self.leader.disk.power_loss(Survival::Nothing);
        let leading = lead(&self.leader.disk, false, TABLE, self.fault);
        self.leader.controller = leading;
        self.leader.operations.clear();
        self.set_time(self.now);
    }

    /// The node that follows loses its power, and starts again.
    pub fn restart_follower(&mut self) {
        self.cut();
        self.follower.disk.power_loss(Survival::Nothing);
        self.follower.controller = follow(&self.follower.disk, false, self.fault);
        self.follower.operations.clear();
        self.set_time(self.now);
    }

    /// Both go on, and what they have to say is on its way.
    pub fn talk(&mut self) {
        self.leader.advance();
        self.follower.advance();
        // As many as a link takes at once.
        while let Some((to, message)) = self.leader.controller.poll_message() {
            assert_eq!(to, FOLLOWER);
            self.to_follower.push_back(message.to_bytes());
        }
        while let Some((to, message)) = self.follower.controller.poll_message() {
            assert_eq!(to, LEADER);
            self.to_leader.push_back(message.to_bytes());
        }
        if !self.is_linked {
            self.to_leader.clear();
            self.to_follower.clear();
        }
    }

    /// One thing happens, if anything is left to happen.
    pub fn step(&mut self) -> bool {
        self.talk();
        let first = self.choose(4);
        let happened = (first..first + 4).any(|what| match what % 4 {
            0 => self.leader.execute(),
            1 => self.follower.execute(),
            2 => self.hear_at_leader(),
            _ => self.hear_at_follower(),
        });
        self.talk();
        happened
    }

    pub fn hear_at_leader(&mut self) -> bool {
        let Some(bytes) = self.to_leader.pop_front() else {
            return false;
        };
        let message = TableMessage::read(&bytes).unwrap();
        self.leader.controller.take_message(FOLLOWER, message);
        true
    }

    pub fn hear_at_follower(&mut self) -> bool {
        let Some(bytes) = self.to_follower.pop_front() else {
            return false;
        };
        let message = TableMessage::read(&bytes).unwrap();
        self.follower.controller.take_message(LEADER, message);
        true
    }

    pub fn poll(&mut self) {
        self.leader.poll();
        self.follower.poll();
    }

    /// Until nothing is left.
    pub fn finish(&mut self) {
        loop {
            let stepped = self.step();
            let before = self.leader.done.len() + self.follower.done.len();
            self.poll();
            if !stepped && self.leader.done.len() + self.follower.done.len() == before {
                return;
            }
        }
    }
}

/// A topic, whose definition says which number it was made by.
pub fn topic(id: u128, number: u64) -> Record {
    Record::Topic(TopicRecord {
        namespace: String::new(),
        name: format!("topic {id}"),
        topic: TopicId(id),
        definition: number.to_string(),
    })
}

/// A topic whose record takes more space than is left.
pub fn long_topic(id: u128) -> Record {
    match topic(id, 0) {
        Record::Topic(record) => Record::Topic(TopicRecord {
            definition: "x".repeat(100 << 10),
            ..record
        }),
        other => other,
    }
}

/// What a table says, without how far a copy of it has come.
pub fn content(table: &Table) -> Vec<Record> {
    let records = table.records();
    let records = records.filter(|it| !matches!(it, Record::Followed(_)));
    records
        .filter(|record| Home::of(record) == Home::Table)
        .collect()
}

/// The pair, driven as one of them.
pub struct At<const LEADS: bool>(pub Pair);

impl<const LEADS: bool> Driven for At<LEADS> {
    fn controller(&mut self) -> &mut dyn Controller {
        match LEADS {
            true => &mut self.0.leader.controller,
            false => &mut self.0.follower.controller,
        }
    }

    fn step(&mut self) -> bool {
        self.0.step()
    }

    fn successor(&mut self) -> Table {
        match LEADS {
            true => self.0.leader.found(),
            false => self.0.follower.found(),
        }
    }
}
