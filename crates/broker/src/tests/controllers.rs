//! The controller suite, on the controller of a node that is alone.

use super::harness::Ground;
use crate::coordinator::controller::suite::{self, Driven};
use crate::coordinator::controller::testing::open;
use crate::coordinator::controller::{Command, CommandToken, Controller, Home, Single};
use crate::coordinator::table::Table;
use log::Disk;
use log::testing::FaultyDisk;
use std::sync::Arc;
use wire::record::{Record, TopicRecord};
use wire::{Durability, TopicId};

struct Alone {
    disk: Arc<FaultyDisk>,
    single: Single,
}

impl Driven for Alone {
    fn controller(&mut self) -> &mut dyn Controller {
        &mut self.single
    }

    fn step(&mut self) -> bool {
        self.single.advance();
        let operation = self.single.poll_operation();
        let Some((storage, token, operation)) = operation else {
            return false;
        };
        let result = self.disk.execute(operation);
        self.single.complete(storage, token, result);
        self.single.advance();
        true
    }

    fn successor(&mut self) -> Table {
        let disk = Arc::new(self.disk.fork());
        disk.power_loss(log::testing::Survival::Nothing);
        open(&disk, false).table().clone()
    }
}

#[test]
fn the_controller_of_one_node() {
    suite::run(|| {
        let disk = Ground::new().disk;
        let single = open(&disk, true);
        Box::new(Alone { disk, single })
    });
}

/// Otherwise what is gathered could be refused between the end of a command
/// and what its caller submits then, which would be built on what is not there.
#[test]
fn what_is_gathered_goes_out_behind_what_is_told() {
    let disk = Ground::new().disk;
    let single = open(&disk, true);
    let mut alone = Alone { disk, single };
    for token in 0..2 {
        let record = TopicRecord {
            namespace: String::new(),
            name: format!("topic {token}"),
            topic: TopicId(u128::from(token) + 2),
            definition: "{}".into(),
        };
        let records = vec![Record::Topic(record)];
        let single = &mut alone.single;
        let durability = Durability::Synced;
        single.submit(
            CommandToken(token),
            Command {
                home: Home::Table,
                records,
                durability,
            },
        );
        single.advance();
    }
    while alone.single.table().topic_count() == 0 {
        assert!(alone.step(), "the first command is kept");
    }
    assert!(alone.single.poll_operation().is_none());
    let told = alone.single.poll_completion();
    assert_eq!(told, Some((CommandToken(0), Ok(()))));
    assert!(alone.single.poll_completion().is_none());
    while alone.step() {}
    assert_eq!(alone.single.table().topic_count(), 2);
}
