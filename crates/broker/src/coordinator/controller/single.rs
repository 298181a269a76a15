//! The controller of a node that is alone: the table's log, and one ledger.

use super::{Command, CommandToken, ControlError, Controller, Damage, Home, RecordLog};
use crate::blocking::Blocking;
use crate::coordinator::table::Table;
use crate::ids::{Now, StorageId};
use crate::options::NodeError;
use log::{DiskError, Operation, OperationToken, Outcome};
use wire::Offset;

/// See the module.
pub(crate) struct Single {
    pub(super) table: Table,
    pub(super) internal: RecordLog,
    pub(super) ledger: RecordLog,
}

impl Single {
    /// Replays the table's log. Blocks. The ledger is left: [`Single::replay_ledger`].
    pub fn opened(
        internal: RecordLog,
        ledger: RecordLog,
        damage: &mut Damage,
        blocking: &Blocking<'_>,
    ) -> Result<Self, NodeError> {
        let mut single = Self {
            table: Table::default(),
            internal,
            ledger,
        };
        let internal = &mut single.internal;
        internal.replay(&mut single.table, damage, blocking)?;
        Ok(single)
    }

    /// Replays the ledger, once, when the table knows every topic that it is to know: what the
    /// ledger says of others is dropped. Blocks.
    pub fn replay_ledger(
        &mut self,
        damage: &mut Damage,
        blocking: &Blocking<'_>,
    ) -> Result<(), NodeError> {
        let ledger = &mut self.ledger;
        ledger.replay(&mut self.table, damage, blocking)
    }

    fn log(&self, home: Home) -> &RecordLog {
        match home {
            Home::Table => &self.internal,
            Home::Ledger => &self.ledger,
        }
    }

    fn log_mut(&mut self, home: Home) -> &mut RecordLog {
        match home {
            Home::Table => &mut self.internal,
            Home::Ledger => &mut self.ledger,
        }
    }
}

impl Controller for Single {
    fn table(&self) -> &Table {
        &self.table
    }

    fn set_time(&mut self, now: Now) {
        self.internal.set_time(now.unix_ns);
        self.ledger.set_time(now.unix_ns);
    }

    fn submit(&mut self, token: CommandToken, command: Command) {
        self.log_mut(command.home).submit(token, command);
    }

    fn poll_completion(&mut self) -> Option<(CommandToken, Result<(), ControlError>)> {
        let done = self.internal.poll_completion();
        done.or_else(|| self.ledger.poll_completion())
    }

    fn advance(&mut self) {
        self.internal.advance(&mut self.table);
        self.ledger.advance(&mut self.table);
    }

    fn poll_operation(&mut self) -> Option<(StorageId, OperationToken, Operation)> {
        Home::ALL.into_iter().find_map(|home| {
            let (token, operation) = self.log_mut(home).poll_operation()?;
            Some((home.storage(), token, operation))
        })
    }

    fn complete(
        &mut self,
        storage: StorageId,
        token: OperationToken,
        result: Result<Outcome, DiskError>,
    ) {
        if let Some(home) = Home::of_storage(storage) {
            self.log_mut(home).complete(token, result);
        }
    }

    fn end(&self, home: Home) -> Offset {
        self.log(home).end()
    }

    fn failure(&self, home: Home) -> Option<String> {
        self.log(home).failure()
    }

    fn is_idle(&self) -> bool {
        self.internal.is_idle() && self.ledger.is_idle()
    }

    fn close(&mut self) {
        self.internal.close();
        self.ledger.close();
    }

    fn is_closed(&self) -> bool {
        self.internal.is_closed() && self.ledger.is_closed()
    }
}
