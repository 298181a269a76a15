//! Changes of the table: submitted in order, and what follows when each is decided.

use crate::coordinator::controller::{Command, CommandToken, ControlError, Controller, Single};
use crate::coordinator::table::Table;
use crate::ctx::Ctx;
use crate::ids::{INTERNAL_STORAGE, PartitionKey, RequestId, SharedId};
use crate::io::Output;
use std::collections::BTreeMap;
use std::sync::Arc;
use topic::Definition;
use wire::message::Lease;
use wire::record::{ProducerRecord, Record};
use wire::{Durability, MemberId, PartitionIndex, TopicId};

/// What to do when the controller has decided.
pub(crate) enum Decided {
    /// A topic exists, or has more partitions.
    Made(u64),
    /// A topic's definition has changed.
    TopicAltered(Altering),
    /// A topic is gone.
    TopicDeleted(RequestId, TopicId),
    /// Cursors have moved.
    CursorsMoved(RequestId, Moved),
    /// A named producer has a new life.
    ProducerOpened(RequestId, ProducerRecord),
    /// Somebody is a member.
    MemberJoined(JoinUnderWay),
    /// A group or queue has changed, and somebody waits for it.
    SharedAnswer(RequestId, SharedId),
    /// A group or queue has changed.
    SharedChanged(SharedId),
    /// What became of a queue's events is recorded.
    QueueRecorded(SharedId),
    /// A group or queue is gone.
    ConsumerDeleted(RequestId, SharedId),
    /// Partitions of a group have new owners, by the grant of this number.
    Granted(SharedId, u64),
    /// Losses of a partition are recorded.
    GapsRecorded(PartitionKey),
}

/// A change of a definition that is on its way into the table.
pub(crate) struct Altering {
    pub caller: RequestId,
    pub topic: TopicId,
    pub definition: Arc<Definition>,
}

/// A consumer's cursor in a partition.
pub(crate) type CursorKey = (TopicId, String, PartitionIndex);

/// The cursors that a command moves.
pub(crate) struct Moved(pub Vec<CursorKey>);

/// A member whose records are on their way.
pub(crate) struct JoinUnderWay {
    pub caller: RequestId,
    pub id: SharedId,
    pub member: MemberId,
    pub held: Vec<Lease>,
    /// The grant of what it inherits.
    pub grant: u64,
}

/// The table, and the commands on their way into it.
pub(crate) struct Commands {
    pub controller: Single,
    under_way: BTreeMap<CommandToken, Decided>,
    /// Whether the operator was told that the internal partition failed.
    is_failure_reported: bool,
}

impl Commands {
    pub fn new(controller: Single) -> Self {
        Self {
            controller,
            under_way: BTreeMap::new(),
            is_failure_reported: false,
        }
    }

    /// The table, as the commands left it that are decided.
    pub fn table(&self) -> &Table {
        self.controller.table()
    }

    /// Submits a command that is to survive a power loss; `decided` says what follows.
    pub fn submit(&mut self, records: Vec<Record>, decided: Decided, ctx: &mut Ctx) {
        self.submit_at(Durability::Synced, records, decided, ctx);
    }

    /// Submits what has to survive no more than that.
    pub fn submit_at(
        &mut self,
        durability: Durability,
        records: Vec<Record>,
        decided: Decided,
        ctx: &mut Ctx,
    ) {
        let token = CommandToken(ctx.next_id());
        self.under_way.insert(token, decided);
        let command = Command {
            records,
            durability,
        };
        self.controller.submit(token, command);
        ctx.dirty.controller = true;
    }

    /// Lets take effect what was submitted or stored.
    pub fn advance(&mut self, ctx: &mut Ctx) {
        self.controller.advance();
        while let Some((token, operation)) = self.controller.storage().poll_operation() {
            ctx.outputs.push_back(Output::Disk {
                storage: INTERNAL_STORAGE,
                token,
                operation,
            });
        }
        if !self.is_failure_reported
            && let Some(reason) = self.controller.storage().state().failure
        {
            self.is_failure_reported = true;
            ctx.report(format!(
                "the internal partition failed: no topic, cursor or named producer changes any more \
                 until the server is started again: {reason}"
            ));
        }
    }

    /// The next command that is decided, and how.
    pub fn poll_decided(&mut self, ctx: &mut Ctx) -> Option<(Decided, Result<(), ControlError>)> {
        loop {
            let (token, result) = self.controller.poll_completion()?;
            // More may be gathered and waiting for this one.
            ctx.dirty.controller = true;
            if let Some(decided) = self.under_way.remove(&token) {
                return Some((decided, result));
            }
        }
    }
}
