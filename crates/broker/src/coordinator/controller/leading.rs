//! The controller of the node that leads a table which others follow.

use super::{
    Command, CommandToken, ControlError, Controller, Home, LEADER, Single, TableLeader, TableLog,
};
use crate::coordinator::table::Table;
use crate::faults::Planted;
use crate::ids::{LinkId, Now, StorageId};
use log::{DiskError, Operation, OperationToken, Outcome};
use wire::record::Record;
use wire::table::{Entry, Register, Registered, TableMessage};
use wire::{Durability, ErrorReply, NodeId, Offset, TableId};

/// [`Single`], and those who follow.
pub(crate) struct Leading {
    single: Single,
    leader: TableLeader,
}

impl Leading {
    /// Leads a table that was replayed. One that has no id gets this one.
    pub fn new(mut single: Single, id: TableId, planted: Planted) -> Self {
        let mut leader = TableLeader::new(single.end(Home::Table).0, planted);
        single.internal.keep_entries(planted);
        single.ledger.keep_to(LEADER);
        leader.identify(&mut single, id);
        Self { single, leader }
    }
}

/// The table's log in this node's own directory.
impl TableLog for Single {
    fn table(&self) -> &Table {
        &self.table
    }

    fn submit(&mut self, records: Vec<Record>) {
        // Others hold what is decided, so all of it survives a power loss.
        let command = Command {
            home: Home::Table,
            records,
            durability: Durability::Synced,
        };
        // The log's completions are matched by their order.
        self.internal.submit(CommandToken(0), command);
    }

    fn poll_completion(&mut self) -> Option<Result<(), ControlError>> {
        let (_, result) = self.internal.poll_completion()?;
        Some(result)
    }

    fn poll_entry(&mut self) -> Option<Entry> {
        self.internal.poll_entry()
    }

    fn failure(&self) -> Option<String> {
        self.internal.failure()
    }
}

impl Controller for Leading {
    fn table(&self) -> &Table {
        &self.single.table
    }

    fn set_time(&mut self, now: Now) {
        self.single.set_time(now);
    }

    fn submit(&mut self, token: CommandToken, command: Command) {
        match command.home {
            Home::Table => {
                let leader = &mut self.leader;
                leader.submit_own(&mut self.single, token, command.records);
            }
            Home::Ledger => Controller::submit(&mut self.single, token, command),
        }
    }

    fn poll_completion(&mut self) -> Option<(CommandToken, Result<(), ControlError>)> {
        let decided = self.leader.poll_own(&mut self.single);
        decided.or_else(|| self.single.ledger.poll_completion())
    }

    fn advance(&mut self) {
        self.leader.submit_nodes(&mut self.single);
        Controller::advance(&mut self.single);
        // What is gathered goes out behind what is polled: of followers that is done here.
        while self.leader.advance(&mut self.single) {
            Controller::advance(&mut self.single);
        }
    }

    fn poll_operation(&mut self) -> Option<(StorageId, OperationToken, Operation)> {
        self.single.poll_operation()
    }

    fn complete(
        &mut self,
        storage: StorageId,
        token: OperationToken,
        result: Result<Outcome, DiskError>,
    ) {
        self.single.complete(storage, token, result);
    }

    fn end(&self, home: Home) -> Offset {
        self.single.end(home)
    }

    fn failure(&self, home: Home) -> Option<String> {
        Controller::failure(&self.single, home)
    }

    fn is_idle(&self) -> bool {
        self.single.is_idle()
    }

    fn close(&mut self) {
        self.single.close();
    }

    fn is_closed(&self) -> bool {
        self.single.is_closed()
    }

    fn linked(&mut self, peer: NodeId, is_up: bool) {
        let _ = is_up;
        self.leader.linked(peer);
    }

    fn take_message(&mut self, from: NodeId, message: TableMessage) {
        self.leader.take_message(&mut self.single, from, message);
    }

    fn register(&mut self, link: LinkId, register: Register) -> Result<(), ErrorReply> {
        self.leader.register(link, register);
        Ok(())
    }

    fn poll_registered(&mut self) -> Option<(LinkId, Result<Registered, ErrorReply>)> {
        self.leader.poll_registered()
    }

    fn poll_message(&mut self) -> Option<(NodeId, TableMessage)> {
        self.leader.poll_message(&self.single)
    }
}

#[cfg(test)]
impl Leading {
    /// How many copies of the table are kept for followers.
    pub fn copies(&self) -> usize {
        self.leader.copies()
    }
}
