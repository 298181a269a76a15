//! Changes of the table: submitted in order, and what follows when each is decided.

use super::controller::{Command, CommandToken, ControlError, Controller, Home};
use super::overlay::{CursorKey, Key, Overlay};
use super::table::Table;
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::{LinkId, PartitionKey, RequestId, SharedId};
use crate::io::{Output, PeerInput};
use crate::nodes::Nodes;
use crate::options::TableRole;
use crate::timers::Timer;
use std::collections::BTreeMap;
use std::sync::Arc;
use topic::Definition;
use wire::message::Lease;
use wire::record::{Position, ProducerRecord, Record};
use wire::table::{REGISTRATION, Refused, Registered, TableMessage};
use wire::{Durability, ErrorReply, MemberId, TopicId};

/// What to do when the controller has decided.
pub(crate) enum Decided {
    /// A topic exists, or has more partitions.
    Made(u64),
    /// A topic's definition has changed.
    TopicAltered(Altering),
    /// A topic is gone.
    TopicDeleted(RequestId, TopicId),
    /// A named producer has a new life.
    ProducerOpened(RequestId, ProducerRecord),
    /// A client is a member.
    MemberJoined(JoinUnderWay),
    /// A group or queue has changed.
    SharedChanged,
    /// The table here has all that was decided before.
    CaughtUp,
    /// What became of a queue's events is recorded.
    QueueRecorded(SharedId),
    /// A group or queue is gone.
    ConsumerDeleted(RequestId, SharedId),
    /// Partitions of a group have new owners, by the grant of this number.
    Granted(SharedId, u64),
    /// The table, or the ledger, says what a caller has asked for.
    Answered(RequestId),
    /// Whether a topic is on its way, or stays.
    MoveBegun(RequestId, TopicId),
    /// A topic is on its way no more.
    MoveEnded(TopicId),
    /// All is decided of a topic that was submitted to the table, or to the ledger, before this caller had it yielded.
    Yielded(TopicId, RequestId),
    /// The table has all that the ledger of another node has spoken of a topic, which this caller has adopted.
    Adopts(RequestId, TopicId, Vec<Record>),
    /// Another node has a topic.
    HandedOver(TopicId),
    /// Losses of a partition are recorded.
    GapsRecorded(PartitionKey),
    /// What a start has found is in the table.
    FoundRecorded(Vec<Record>),
}

impl Decided {
    /// Whether a command of no records may be what was decided, on which nothing is built.
    fn is_of_nothing(&self) -> bool {
        matches!(self, Self::CaughtUp | Self::Yielded(..) | Self::Adopts(..))
    }
}

/// A change of a definition that is on its way into the table.
pub(crate) struct Altering {
    pub caller: RequestId,
    pub topic: TopicId,
    pub definition: Arc<Definition>,
}

/// A member whose records are on their way.
pub(crate) struct JoinUnderWay {
    pub caller: RequestId,
    pub topic: TopicId,
    pub id: SharedId,
    pub member: MemberId,
    pub held: Vec<Lease>,
    /// The grant of what it inherits.
    pub grant: u64,
}

/// A command that is not decided.
struct UnderWay {
    home: Home,
    decided: Decided,
    /// What the overlay says because of it.
    ahead: Vec<Key>,
}

/// A command that is decided.
pub(crate) struct Outcome {
    pub decided: Decided,
    pub result: Result<(), ControlError>,
    /// Answers of the overlay that have ended with it. If it was refused: with all of its home that
    /// were under way, of which it is the first.
    pub ended: Vec<Key>,
}

/// The table, and the commands on their way into it.
pub(crate) struct Commands {
    controller: Box<dyn Controller>,
    under_way: BTreeMap<CommandToken, UnderWay>,
    /// What those that are under way will have changed.
    pub ahead: Overlay,
    /// Of which logs the operator was told that they failed.
    reported_failures: Vec<Home>,
}

impl Commands {
    pub fn new(controller: Box<dyn Controller>) -> Self {
        Self {
            controller,
            under_way: BTreeMap::new(),
            ahead: Overlay::default(),
            reported_failures: Vec::new(),
        }
    }

    /// The table, as the commands left it that are decided.
    pub fn table(&self) -> &Table {
        self.controller.table()
    }

    /// Who decides.
    pub fn controller(&mut self) -> &mut dyn Controller {
        self.controller.as_mut()
    }

    /// How far its logs have come, and whether they have failed.
    pub fn log(&self) -> &dyn Controller {
        self.controller.as_ref()
    }

    /// Where a consumer stands, or will when what is under way is done.
    pub fn cursor(&self, key: &CursorKey) -> Option<Position> {
        if let Some(position) = self.ahead.cursor(key) {
            return position;
        }
        let (topic, consumer, partition) = key;
        let cursors = self.table().topic(*topic)?.cursors.get(consumer)?;
        cursors.get(partition).copied()
    }

    /// A named producer in its present life, or in the one that is on its way.
    pub fn producer(&self, topic: TopicId, name: &str) -> Option<&ProducerRecord> {
        let ahead = self.ahead.producer(topic, name);
        ahead.or_else(|| self.table().topic(topic)?.producers.get(name))
    }

    /// Submits a change of the table, which is to survive a power loss; `decided` says what follows.
    pub fn submit(&mut self, records: Vec<Record>, decided: Decided, ctx: &mut Ctx) {
        let command = Command {
            home: Home::Table,
            records,
            durability: Durability::Synced,
        };
        self.submit_command(command, decided, ctx);
    }

    /// Submits what the ledger is to say, and has to survive no more than that.
    pub fn record(
        &mut self,
        durability: Durability,
        records: Vec<Record>,
        decided: Decided,
        ctx: &mut Ctx,
    ) {
        let command = Command {
            home: match ctx.planted(Fault::WrongLedger) {
                true => Home::Table,
                false => Home::Ledger,
            },
            records,
            durability,
        };
        self.submit_command(command, decided, ctx);
    }

    /// `decided` follows when the table here has all that was decided before now.
    pub fn catch_up(&mut self, decided: Decided, ctx: &mut Ctx) {
        let token = CommandToken(ctx.next_id());
        let under_way = UnderWay {
            home: Home::Table,
            decided,
            ahead: Vec::new(),
        };
        self.under_way.insert(token, under_way);
        self.controller.submit_barrier(token);
        ctx.dirty.controller = true;
    }

    fn submit_command(&mut self, command: Command, decided: Decided, ctx: &mut Ctx) {
        let token = CommandToken(ctx.next_id());
        let under_way = UnderWay {
            home: command.home,
            decided,
            ahead: self.ahead.apply(&command.records),
        };
        self.under_way.insert(token, under_way);
        self.controller.submit(token, command);
        ctx.dirty.controller = true;
    }

    /// Lets take effect what was submitted or stored.
    pub fn advance(&mut self, ctx: &mut Ctx) {
        self.controller.advance();
        Nodes::follow(&mut ctx.options.nodes, self.controller.table().nodes());
        while let Some((storage, token, operation)) = self.controller.poll_operation() {
            ctx.outputs.push_back(Output::Disk {
                storage,
                token,
                operation,
            });
        }
        if ctx.options.role != TableRole::Alone {
            self.advance_peers(ctx);
        }
        for home in Home::ALL {
            if !self.reported_failures.contains(&home)
                && let Some(reason) = self.controller.failure(home)
            {
                self.reported_failures.push(home);
                ctx.report(format!(
                    "{home} failed: {} change no more until the server is started again: {reason}",
                    home.content()
                ));
            }
        }
    }

    /// What the controller has for other nodes, and when it is to be called.
    fn advance_peers(&mut self, ctx: &mut Ctx) {
        while let Some((node, message)) = self.controller.poll_message() {
            ctx.outputs.push_back(Output::Peer { node, message });
        }
        while let Some((link, answer)) = self.controller.poll_registered() {
            answer_registration(link, answer, ctx);
        }
        while let Some(notice) = self.controller.poll_notice() {
            ctx.report(notice);
        }
        if let Some(at) = self.controller.next_timer() {
            ctx.timers.insert(at, Timer::Controller);
        }
    }

    /// Something has come of another node.
    pub fn peer(&mut self, input: PeerInput, ctx: &mut Ctx) {
        match input {
            PeerInput::Up(node) => self.controller.linked(node, true),
            PeerInput::Down(node) => self.controller.linked(node, false),
            PeerInput::Message(node, message) => self.controller.take_message(node, message),
            PeerInput::Register(link, register) => {
                if let Err(error) = self.controller.register(link, register) {
                    answer_registration(link, Err(error), ctx);
                }
            }
        }
        ctx.dirty.controller = true;
    }

    /// Why commands of some log are not carried out any more, if so.
    pub fn failure(&self) -> Option<String> {
        Home::ALL.into_iter().find_map(|home| {
            let reason = self.controller.failure(home)?;
            Some(format!("{home} failed: {reason}"))
        })
    }

    /// The next command that is decided, and how.
    pub fn poll_decided(&mut self, ctx: &mut Ctx) -> Option<Outcome> {
        loop {
            let (token, result) = self.controller.poll_completion()?;
            // More may be gathered and waiting for this one.
            ctx.dirty.controller = true;
            let Some(under_way) = self.under_way.remove(&token) else {
                continue;
            };
            let UnderWay {
                home,
                decided,
                mut ahead,
            } = under_way;
            // Nothing is built on one that changes nothing.
            if result.is_err() && !decided.is_of_nothing() {
                // All of its log that are under way are refused with it, one after the other; what
                // they would have changed is not to be seen in between.
                let others = self.under_way.values_mut();
                let others = others.filter(|other| other.home == home);
                others.for_each(|other| ahead.append(&mut other.ahead));
                if ctx.planted(Fault::NoRollback) {
                    ahead.clear();
                }
            }
            ahead.iter().for_each(|key| self.ahead.end(key));
            return Some(Outcome {
                decided,
                result,
                ended: ahead,
            });
        }
    }
}

/// Says to a server that has asked which node it is.
fn answer_registration(link: LinkId, answer: Result<Registered, ErrorReply>, ctx: &mut Ctx) {
    let number = REGISTRATION;
    let message = match answer {
        Ok(registered) => TableMessage::Registered(registered),
        Err(error) => TableMessage::Refused(Refused { number, error }),
    };
    ctx.outputs.push_back(Output::Registered { link, message });
}
