//! Topics that go from one node to another, at both ends. A client, the *mover*, has it done: what a node does for it ends with
//! its connection, but for what is on its way into the table.
//!
//! ```text
//!  the node that has it                                    the node that it goes to
//!
//!  Served ──MoveTopic: "moving", in the table──► Served    ReceiveTopic ──► Opening ──► Receiving: batches come, as to a mirror
//!     │   ▲                                                                                │
//!  YieldTopic │ mover gone                                                             AdoptLedger: the ledger of here
//!     ▼   │                                                                                │
//!  Yielded ──HandOverTopic──► HandingOver                                                  ▼
//!                                  └── the table says that it is placed there ──► gone │ Served
//! ```
//!
//! What a node has yielded it neither changes nor serves, but for its mover, who reads the rest. The table places a topic elsewhere
//! only if it says that it is moving there, and says so no more when one of the two nodes begins anew: so none of them has to
//! remember anything over its end, and what it had proposed before moves nothing. Nor does it when the topic is to get partitions and
//! the mover is gone: another mover, or the same on another connection, goes on as long as nobody asks for that.

use super::commands::Decided;
use super::controller::{ControlError, Home, undecided};
use super::keep::keep_topic;
use super::lent::Lent;
use super::members::Members;
use super::overlay::Key;
use super::served_topic::{Slot, Topic, durability_of};
use super::table::{Table, TopicEntry};
use super::topics::{open_partition, placed_at, refuse_busy};
use crate::answer::Answer;
use crate::ctx::Ctx;
use crate::effects::{Effect, NewPartition, PartitionAct};
use crate::elsewhere::{About, at_node};
use crate::faults::Fault;
use crate::ids::{LinkId, Opening, PartitionKey, Purpose, RequestId, StorageId};
use crate::io::Job;
use crate::refusal::{Refused, refuse, unknown_topic};
use crate::request::{MoveRequest, PartitionRequest, Request};
use log::{Recovery, Storage, StorageError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use topic::{Definition, TopicKind};
use wire::message::{
    AdoptLedger, MirrorOpened, MirrorPosition, MoveTopic, ReceiveTopic, TopicYielded, YieldTopic,
};
use wire::record::{MovingRecord, PartitionRecord, Record};
use wire::{Codec, Durability, ErrorCode, ErrorReply, NodeId, TopicId};

/// After so long something that will be is to be asked for again, milliseconds.
const ASK_AGAIN_MS: u32 = 20;

/// See the module.
#[derive(Default)]
pub(crate) struct Moves {
    /// By which connection, of those that stand, the move of a topic was begun here.
    begun: BTreeMap<TopicId, LinkId>,
    yielded: BTreeMap<TopicId, Yielded>,
    arriving: BTreeMap<TopicId, Arriving>,
    /// Partitions whose files are being removed: they do not come back meanwhile.
    removing: BTreeSet<PartitionKey>,
}

/// A topic that this node has, and does not serve.
struct Yielded {
    mover: LinkId,
    to: NodeId,
    stage: Stage,
    /// What became of it, if it is to be served again when all is decided.
    given_up: Option<Refused>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// What was submitted to the table and to the ledger is being decided, and this caller waits for it: for so many of the two.
    Recording(RequestId, u8),
    /// The mover has all that there is.
    Yielded,
    /// On its way into the table, and this caller waits for it.
    HandingOver(RequestId),
}

/// A topic that comes to this node.
struct Arriving {
    mover: LinkId,
    topic: Topic,
    /// By their indices.
    records: Vec<PartitionRecord>,
    stage: Arrival,
}

enum Arrival {
    /// Its storages are being made.
    Opening(Making),
    /// It takes copies of batches.
    Receiving,
}

/// What is known of storages that are being made.
struct Making {
    /// As jobs name it.
    id: u64,
    caller: RequestId,
    opening: u64,
    waiting: usize,
    positions: Vec<MirrorPosition>,
    failure: Option<Refused>,
}

/// A topic that has come to this node, and is to be served.
pub(crate) struct Arrived {
    pub id: TopicId,
    pub topic: Topic,
}

fn unsupported<T>(why: impl Into<String>) -> Result<T, Refused> {
    Err(refuse(ErrorCode::Unsupported, why))
}

fn later<T>(why: impl Into<String>) -> Result<T, Refused> {
    Err(ErrorReply::retryable(
        ErrorCode::NotLeader,
        ASK_AGAIN_MS,
        why,
    ))
}

fn comes_no_more(topic: &Topic) -> Refused {
    let why = format!("topic {:?} comes here no more", topic.name);
    refuse(ErrorCode::UnknownTopic, why)
}

/// What all others hear of a topic that was yielded.
fn leaves(name: &str, to: NodeId) -> Refused {
    ErrorReply::retryable(
        ErrorCode::NotLeader,
        ASK_AGAIN_MS,
        format!("topic {name:?} goes to node {to}"),
    )
}

impl Moves {
    /// Whether a topic of this node was yielded to a mover.
    #[cfg(feature = "testing")]
    pub fn has_yielded(&self, id: TopicId) -> bool {
        self.yielded.contains_key(&id)
    }

    /// Whether a request is done while its topic is on its way.
    pub fn allow(
        &self,
        caller: RequestId,
        about: &About,
        request: &Request,
        table: &Table,
    ) -> Result<(), Refused> {
        let About::Topic(id) = about else {
            return Ok(());
        };
        let Some(yielded) = self.yielded.get(id) else {
            return Ok(());
        };
        let is_movers = matches!(
            request,
            Request::Move(..)
                | Request::Partition(
                    _,
                    PartitionRequest::Fetch(_) | PartitionRequest::ReadData(_)
                )
        );
        match is_movers && caller.link == yielded.mover {
            true => Ok(()),
            false => {
                let name = table.topic(*id).map(|entry| entry.record.name.as_str());
                Err(leaves(name.unwrap_or_default(), yielded.to))
            }
        }
    }

    /// Does what a mover asks for.
    pub fn ask(
        &mut self,
        caller: RequestId,
        id: TopicId,
        request: MoveRequest,
        (members, lent): (&mut Members, &mut Lent<'_>),
    ) -> Result<(), Refused> {
        lent.drain.refuse_begun()?;
        if !lent.ctx.options.nodes.are_of_table() {
            return unsupported(
                "this server is no part of a cluster: its topics stay where they are",
            );
        }
        match request {
            MoveRequest::Begin(begin) => self.begin(caller, id, begin, lent),
            MoveRequest::Receive(receive) => self.receive(caller, id, receive, lent),
            MoveRequest::Yield(to) => self.yield_topic(caller, id, to, (members, lent)),
            MoveRequest::Adopt(adopt) => self.adopt(caller, id, adopt, lent),
            MoveRequest::HandOver => self.hand_over(caller, id, lent),
        }
    }

    // ---- the node that has the topic

    fn begin(
        &mut self,
        caller: RequestId,
        id: TopicId,
        MoveTopic { to }: MoveTopic,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let own = lent.ctx.node();
        let stays = to == own;
        let namespace = lent.sessions.namespace(caller.link);
        let topic = lent.topics.of(namespace, id)?;
        refuse_busy(id, lent.commands)?;
        let moving = lent.commands.table().moving(id);
        let is_done = match stays {
            true => moving.is_none(),
            false => moving == Some(to),
        };
        if is_done {
            if !stays {
                self.begun.insert(id, caller.link);
            }
            lent.ctx.answer(caller, Answer::Done);
            return Ok(());
        }
        let records = if stays {
            placed_at(own, id, true, std::iter::empty())
        } else if topic.definition.kind() == TopicKind::Steps {
            let name = &topic.name;
            return unsupported(format!(
                "{name:?} is a topic of steps, which stays where it is"
            ));
        } else if !lent.ctx.options.nodes.takes_topics(to) {
            return unsupported(format!(
                "node {to} takes no topics: there is none of this number, or it is draining or away"
            ));
        } else if !lives_are_recorded(id, lent) {
            let name = &topic.name;
            return later(format!(
                "that a life of {name:?} has ended is being recorded"
            ));
        } else {
            vec![Record::Moving(MovingRecord { topic: id, to })]
        };
        match stays {
            true => self.begun.remove(&id),
            false => self.begun.insert(id, caller.link),
        };
        lent.commands.ahead.claim(Key::Topic(id));
        let decided = Decided::MoveBegun(caller, id);
        lent.commands.submit(records, decided, lent.ctx);
        Ok(())
    }

    /// Ends the move of a topic of this node whose mover is gone: it would be on its way until one of the two nodes begins
    /// anew. For who is to change the topic, and has to ask again.
    pub fn end_if_left(&mut self, id: TopicId, lent: &mut Lent<'_>) {
        let is_followed = self.begun.contains_key(&id);
        let is_here = lent.topics.get(id).is_some() && !self.yielded.contains_key(&id);
        let moves = lent.commands.table().moving(id).is_some();
        if is_followed || !is_here || !moves || refuse_busy(id, lent.commands).is_err() {
            return;
        }
        let records = placed_at(lent.ctx.node(), id, true, std::iter::empty());
        lent.commands.ahead.claim(Key::Topic(id));
        lent.commands
            .submit(records, Decided::MoveEnded(id), lent.ctx);
    }

    fn yield_topic(
        &mut self,
        caller: RequestId,
        id: TopicId,
        YieldTopic { to }: YieldTopic,
        (members, lent): (&mut Members, &mut Lent<'_>),
    ) -> Result<(), Refused> {
        let namespace = lent.sessions.namespace(caller.link);
        let name = lent.topics.of(namespace, id)?.name.clone();
        if let Some(yielded) = self.yielded.get(&id) {
            if yielded.mover != caller.link || yielded.stage != Stage::Yielded {
                return later(format!("topic {name:?} is being moved already"));
            }
            let answer = Answer::TopicYielded(told_of(id, lent));
            lent.ctx.answer(caller, answer);
            return Ok(());
        }
        refuse_busy(id, lent.commands)?;
        if lent.commands.table().moving(id) != Some(to) {
            return unsupported(format!("topic {name:?} is not on its way to node {to}"));
        }
        self.yielded.insert(
            id,
            Yielded {
                mover: caller.link,
                to,
                stage: Stage::Recording(caller, 2),
                given_up: None,
            },
        );
        let error = leaves(&name, to);
        if !lent.ctx.planted(Fault::YieldedServes) {
            for (_, storage) in lent.topics.storages(id) {
                let act = PartitionAct::Yield(error.clone());
                lent.ctx.effects.push_back(Effect::Partition(storage, act));
            }
            members.leave_topic(id, &error, lent.ctx);
        }
        lent.commands.ahead.claim(Key::Topic(id));
        // Each is behind all that was submitted before.
        let decided = || Decided::Yielded(id, caller);
        lent.commands
            .record(Durability::Synced, Vec::new(), decided(), lent.ctx);
        lent.commands.catch_up(decided(), lent.ctx);
        Ok(())
    }

    /// All that was submitted to the table, or to the ledger, is decided that this caller waits for; or is not known to be.
    pub fn recorded(
        &mut self,
        id: TopicId,
        caller: RequestId,
        result: Result<(), ControlError>,
        members: &mut Members,
        lent: &mut Lent<'_>,
    ) {
        let Some(yielded) = self.yielded.get_mut(&id) else {
            return;
        };
        let Stage::Recording(waits, left) = yielded.stage else {
            return;
        };
        // A connection that is gone had one under way as well.
        if waits != caller {
            return;
        }
        if let Err(error) = result {
            yielded.given_up.get_or_insert(undecided(&error));
        }
        if left > 1 {
            yielded.stage = Stage::Recording(caller, left - 1);
        } else if let Some(error) = yielded.given_up.take() {
            lent.ctx.refuse(caller, error);
            self.serve_again(id, members, lent);
        } else {
            yielded.stage = Stage::Yielded;
            let answer = Answer::TopicYielded(told_of(id, lent));
            lent.ctx.answer(caller, answer);
        }
    }

    fn hand_over(
        &mut self,
        caller: RequestId,
        id: TopicId,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        if lent.ctx.planted(Fault::MovesEarly)
            && let Some(to) = lent.commands.table().moving(id)
        {
            let early = Yielded {
                mover: caller.link,
                to,
                stage: Stage::Yielded,
                given_up: None,
            };
            self.yielded.entry(id).or_insert(early);
        }
        let yielded = self.yielded.get_mut(&id);
        let yielded = yielded.filter(|it| it.mover == caller.link && it.stage == Stage::Yielded);
        let Some(yielded) = yielded else {
            // One that is elsewhere is looked for there.
            let namespace = lent.sessions.namespace(caller.link);
            let name = &lent.topics.of(namespace, id)?.name;
            return unsupported(format!("topic {name:?} was not yielded to this connection"));
        };
        let node = yielded.to;
        let Some(entry) = lent.commands.table().topic(id) else {
            return Err(unknown_topic(id));
        };
        let mut records = placed_at(node, id, true, entry.partitions.values());
        records.extend(entry.partitions.values().map(|record| {
            Record::Partition(PartitionRecord {
                leader_epoch: record.leader_epoch.saturating_add(1),
                ..record.clone()
            })
        }));
        yielded.stage = Stage::HandingOver(caller);
        let decided = Decided::HandedOver(id);
        lent.commands.submit(records, decided, lent.ctx);
        Ok(())
    }

    /// The table has a topic elsewhere, or not. In the first case it is to be forgotten here: returned.
    pub fn handed_over(
        &mut self,
        id: TopicId,
        result: Result<(), ControlError>,
        members: &mut Members,
        lent: &mut Lent<'_>,
    ) -> bool {
        let Some(yielded) = self.yielded.get(&id) else {
            return false;
        };
        let (to, stage) = (yielded.to, yielded.stage);
        let caller = match stage {
            Stage::HandingOver(caller) => Some(caller),
            Stage::Recording(..) | Stage::Yielded => None,
        };
        match result {
            Ok(()) => {
                self.yielded.remove(&id);
                self.begun.remove(&id);
                lent.commands.ahead.end(&Key::Topic(id));
                let name = lent.topics.get(id).map_or("", |topic| topic.name.as_str());
                let error = leaves(name, to);
                for (partition, storage) in lent.topics.storages(id) {
                    self.remove(
                        PartitionKey {
                            topic: id,
                            partition,
                        },
                        storage,
                        &error,
                        lent.ctx,
                    );
                }
                if let Some(caller) = caller {
                    lent.ctx.answer(caller, Answer::Done);
                }
                true
            }
            Err(error) => {
                if let Some(caller) = caller {
                    lent.ctx.refuse(caller, undecided(&error));
                }
                // What may be in the table yet is not served before that is known: the next start knows.
                if !matches!(error, ControlError::Unknown(_) | ControlError::Failed(..)) {
                    self.serve_again(id, members, lent);
                }
                false
            }
        }
    }

    /// A topic stays here after all.
    fn serve_again(&mut self, id: TopicId, members: &mut Members, lent: &mut Lent<'_>) {
        if self.yielded.remove(&id).is_none() {
            return;
        }
        lent.commands.ahead.end(&Key::Topic(id));
        lead(id, lent);
        members.open_topic(id, lent);
    }

    // ---- the node that it goes to

    fn receive(
        &mut self,
        caller: RequestId,
        id: TopicId,
        ReceiveTopic { opening }: ReceiveTopic,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let (own, table) = (lent.ctx.node(), lent.commands.table());
        let Some(entry) = table.topic(id) else {
            return later(format!("there is no topic {id} here yet"));
        };
        let name = entry.record.name.clone();
        match table.moving(id) {
            Some(to) if to == own => {}
            Some(to) => {
                let what = format!("topic {name:?} goes to node {to}");
                return Err(at_node(to, what, caller, lent.sessions, lent.ctx));
            }
            None if entry.home() == own => {
                return unsupported(format!("topic {name:?} is on this node"));
            }
            None => return later(format!("topic {name:?} is not on its way here")),
        }
        if self.removing.iter().any(|key| key.topic == id) {
            return later(format!("what was here of topic {name:?} is being removed"));
        }
        if let Some(arriving) = self.arriving.get_mut(&id) {
            let is_gone = lent.sessions.identity(arriving.mover).is_none();
            if arriving.mover != caller.link && !is_gone {
                return later(format!(
                    "topic {name:?} is being moved by another connection"
                ));
            }
            if !matches!(arriving.stage, Arrival::Receiving) {
                return later(format!("the storages of topic {name:?} are being made"));
            }
            arriving.mover = caller.link;
            let answer = arriving.reopen(caller, opening, lent);
            lent.ctx.answer(caller, Answer::MirrorOpened(answer));
            return Ok(());
        }
        let arriving = make(caller, opening, entry, lent.commands.table(), lent.ctx)?;
        self.arriving.insert(id, arriving);
        Ok(())
    }

    /// Whether these storages are being made for a topic that arrives.
    pub fn makes(&self, making: u64) -> bool {
        self.arriving.values().any(|arriving| arriving.is(making))
    }

    /// A storage was made, or could not be.
    pub fn opened(
        &mut self,
        making: u64,
        storage: StorageId,
        result: Result<(Box<dyn Storage>, Recovery), StorageError>,
        lent: &mut Lent<'_>,
    ) {
        let mut all = self.arriving.iter_mut();
        let Some((id, arriving)) = all.find(|(_, arriving)| arriving.is(making)) else {
            return;
        };
        let id = *id;
        let ctx = &mut *lent.ctx;
        let Some((caller, failure)) = arriving.opened(id, storage, result, ctx) else {
            return;
        };
        match failure {
            Some(error) => {
                self.give_up(id, ctx);
                ctx.refuse(caller, error);
            }
            None => {
                if let Arrival::Opening(made) =
                    std::mem::replace(&mut arriving.stage, Arrival::Receiving)
                {
                    let partitions = made.positions;
                    ctx.answer(caller, Answer::MirrorOpened(MirrorOpened { partitions }));
                }
            }
        }
    }

    /// The topic that comes here by a connection, if one does.
    pub fn arriving(&self, id: TopicId, link: LinkId) -> Option<&Topic> {
        let arriving = self.arriving.get(&id)?;
        (arriving.mover == link).then_some(&arriving.topic)
    }

    fn adopt(
        &mut self,
        caller: RequestId,
        id: TopicId,
        adopt: AdoptLedger,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let AdoptLedger {
            is_first,
            records,
            producers,
        } = adopt;
        let Some(topic) = self.arriving(id, caller.link) else {
            return unsupported(format!("topic {id} does not come here by this connection"));
        };
        for (partition, states) in producers {
            let storage = topic.storage_of(partition)?;
            let act = PartitionAct::Adopt(states);
            lent.ctx.effects.push_back(Effect::Partition(storage, act));
        }
        let mut adopted = Vec::with_capacity(records.len() + 1);
        if is_first {
            adopted.push(Record::Adopted(id));
        }
        for bytes in records {
            let record = Record::from_bytes("record of a ledger", &bytes);
            let record = record.map_err(|error| refuse(ErrorCode::Malformed, error.to_string()))?;
            if topic_of(&record) != Some(id) {
                let why = "a record that is no ledger's, or about another topic";
                return Err(refuse(ErrorCode::Malformed, why));
            }
            adopted.push(record);
        }
        // What the table says of its groups and queues comes first: else they would not be known.
        let decided = Decided::Adopts(caller, id, adopted);
        lent.commands.catch_up(decided, lent.ctx);
        Ok(())
    }

    /// Whether a topic comes here by a caller's connection, by a table that has all that was decided when this was asked. A node that was
    /// behind may have taken copies of what goes to another one.
    ///
    /// # Errors
    /// If it does not.
    pub fn still_arrives(
        &self,
        caller: RequestId,
        id: TopicId,
        table: &Table,
        own: NodeId,
    ) -> Result<(), Refused> {
        match self.arriving(id, caller.link) {
            Some(topic) if table.moving(id) != Some(own) => Err(comes_no_more(topic)),
            Some(_) => Ok(()),
            None => unsupported(format!("topic {id} does not come here by this connection")),
        }
    }

    /// The table may have changed: topics that have come here are returned, to be served, and those that come no more are
    /// removed.
    pub fn look(&mut self, lent: &mut Lent<'_>) -> Vec<Arrived> {
        let own = lent.ctx.node();
        let (mut arrived, mut over) = (Vec::new(), Vec::new());
        for (id, arriving) in &mut self.arriving {
            let table = lent.commands.table();
            let home = table.topic(*id).map(TopicEntry::home);
            if home == Some(own) {
                arrived.push(*id);
            } else if home.is_none() || table.moving(*id) != Some(own) {
                match &mut arriving.stage {
                    Arrival::Receiving => over.push(*id),
                    // What is being made is there first.
                    Arrival::Opening(made) => {
                        let error = comes_no_more(&arriving.topic);
                        made.failure.get_or_insert(error);
                    }
                }
            }
        }
        for id in over {
            self.give_up(id, lent.ctx);
        }
        let topics = arrived.into_iter().filter_map(|id| {
            let topic = self.arriving.remove(&id)?.topic;
            Some(Arrived { id, topic })
        });
        topics.collect()
    }

    fn give_up(&mut self, id: TopicId, ctx: &mut Ctx) {
        let Some(arriving) = self.arriving.remove(&id) else {
            return;
        };
        let error = comes_no_more(&arriving.topic);
        for (partition, slot) in arriving.topic.slots() {
            if let Slot::Open(storage) = slot {
                self.remove(
                    PartitionKey {
                        topic: id,
                        partition,
                    },
                    *storage,
                    &error,
                    ctx,
                );
            }
        }
    }

    // ---- both

    fn remove(&mut self, key: PartitionKey, storage: StorageId, error: &Refused, ctx: &mut Ctx) {
        self.removing.insert(key);
        let act = PartitionAct::Remove(Some(error.clone()));
        ctx.effects.push_back(Effect::Partition(storage, act));
    }

    /// A partition's files are gone, or cannot be removed.
    pub fn removed(&mut self, key: PartitionKey) {
        self.removing.remove(&key);
    }

    /// A mover's connection is gone.
    pub fn link_down(&mut self, link: LinkId, members: &mut Members, lent: &mut Lent<'_>) {
        self.begun.retain(|_, mover| *mover != link);
        let mut left = Vec::new();
        for (id, yielded) in &mut self.yielded {
            match yielded.stage {
                _ if yielded.mover != link => {}
                Stage::Yielded => left.push(*id),
                // What is on its way into the table is awaited.
                Stage::Recording(..) => {
                    let why = "the connection is gone";
                    yielded.given_up = Some(refuse(ErrorCode::Cancelled, why));
                }
                Stage::HandingOver(_) => {}
            }
        }
        for id in left {
            self.serve_again(id, members, lent);
        }
    }
}

impl Arriving {
    fn is(&self, making: u64) -> bool {
        matches!(&self.stage, Arrival::Opening(made) if made.id == making)
    }

    /// One of its storages was made, or could not be. When it is the last one: who waits for them, and what failed.
    fn opened(
        &mut self,
        id: TopicId,
        storage: StorageId,
        result: Result<(Box<dyn Storage>, Recovery), StorageError>,
        ctx: &mut Ctx,
    ) -> Option<(RequestId, Option<Refused>)> {
        let Arrival::Opening(made) = &mut self.stage else {
            return None;
        };
        made.waiting -= 1;
        let is_it = |slot: &Slot| slot.open() == Some(storage);
        let index = self.topic.partitions.iter().position(is_it)?;
        let record = self.records.get(index)?;
        match result {
            Ok((opened, _)) => {
                let state = opened.state();
                let partition = record.partition;
                made.positions.push(MirrorPosition {
                    partition,
                    next: state.end,
                    durable: state.end,
                });
                let new = NewPartition {
                    topic_name: self.topic.name.clone(),
                    definition: self.topic.definition.clone(),
                    storage: opened,
                    record: record.clone(),
                };
                let install = Effect::Install(storage, Box::new(new));
                ctx.effects.push_back(install);
                open_for(made.caller.link, made.opening, storage, ctx);
            }
            Err(error) => {
                let message = format!("making partition {index} of topic {id}: {error}");
                let error = ErrorReply::retryable(ErrorCode::StorageFailed, 1000, message);
                made.failure.get_or_insert(error);
                if let Some(slot) = self.topic.partitions.get_mut(index) {
                    *slot = Slot::Failed("it could not be made".to_owned());
                }
            }
        }
        if made.waiting > 0 {
            return None;
        }
        made.positions.sort_by_key(|at| at.partition);
        Some((made.caller, made.failure.take()))
    }

    /// Goes on by another session of a mover: what an earlier one has under way is given up.
    fn reopen(&self, caller: RequestId, opening: u64, lent: &mut Lent<'_>) -> MirrorOpened {
        let mut partitions = Vec::new();
        for (record, slot) in self.records.iter().zip(&self.topic.partitions) {
            let Slot::Open(storage) = slot else { continue };
            if let Some(partition) = lent.partitions.get(storage) {
                let store = &partition.store;
                let state = store.state();
                partitions.push(MirrorPosition {
                    partition: record.partition,
                    next: state.end,
                    durable: state.reached(store.storage.durability_max()),
                });
            }
            open_for(caller.link, opening, *storage, lent.ctx);
        }
        MirrorOpened { partitions }
    }
}

/// Whether the table says in which life each partition of a topic is: the node that it goes to goes by that.
fn lives_are_recorded(id: TopicId, lent: &Lent<'_>) -> bool {
    let Some(entry) = lent.commands.table().topic(id) else {
        return false;
    };
    lent.topics.storages(id).all(|(index, storage)| {
        let present = lent.partitions.get(&storage);
        let present = present.map(|partition| partition.store.state().incarnation);
        present
            == entry
                .partitions
                .get(&index)
                .map(|record| record.incarnation)
    })
}

/// Begins to make the storages of a topic that is to come here.
fn make(
    caller: RequestId,
    opening: u64,
    entry: &TopicEntry,
    table: &Table,
    ctx: &mut Ctx,
) -> Result<Arriving, Refused> {
    let record = &entry.record;
    let definition = Definition::from_json(&record.definition)
        .map_err(|error| refuse(ErrorCode::InvalidTopic, error.to_string()))?;
    let definition = Arc::new(definition);
    let mut opens = Vec::new();
    for partition in entry.partitions.values() {
        let Some(kind) = ctx.kind(&partition.storage) else {
            let why = format!("storage {:?} is not known here", partition.storage);
            return Err(refuse(ErrorCode::InvalidStorage, why));
        };
        let durability = durability_of(&definition, kind.as_ref())?;
        let mut open = open_partition(partition, &definition, durability, table, ctx);
        // What its node keeps comes here, whatever that is.
        open.retention = log::Retention::default();
        open.create = true;
        opens.push((kind, open));
    }
    let mut topic = Topic::new(record, definition);
    let id = ctx.next_id();
    let waiting = opens.len();
    for (kind, open) in opens {
        let storage = StorageId(ctx.next_id());
        topic.partitions.push(Slot::Open(storage));
        let work = Job::OpenAnew { kind, open };
        ctx.start_job(Purpose::Open(id, storage), work);
    }
    let stage = match waiting {
        0 => {
            let partitions = Vec::new();
            ctx.answer(caller, Answer::MirrorOpened(MirrorOpened { partitions }));
            Arrival::Receiving
        }
        waiting => Arrival::Opening(Making {
            id,
            caller,
            opening,
            waiting,
            positions: Vec::new(),
            failure: None,
        }),
    };
    Ok(Arriving {
        mover: caller.link,
        topic,
        records: entry.partitions.values().cloned().collect(),
        stage,
    })
}

fn open_for(link: LinkId, number: u64, storage: StorageId, ctx: &mut Ctx) {
    let act = PartitionAct::OpenForLink(Opening { link, number });
    ctx.effects.push_back(Effect::Partition(storage, act));
}

/// The partitions of a topic are led here from now on, as the table has them.
pub(super) fn lead(id: TopicId, lent: &mut Lent<'_>) {
    let table = lent.commands.table();
    let (Some(entry), Some(topic)) = (table.topic(id), lent.topics.get(id)) else {
        return;
    };
    for (partition, storage) in lent.topics.storages(id) {
        let Some(record) = entry.partitions.get(&partition) else {
            continue;
        };
        let act = PartitionAct::Lead {
            definition: topic.definition.clone(),
            leader_epoch: record.leader_epoch,
            ended: record.ended.clone(),
            ends: entry.ends_of_lives(partition),
        };
        lent.ctx.effects.push_back(Effect::Partition(storage, act));
    }
    keep_topic(id, lent.topics, table, lent.ctx);
}

/// What a mover hears of a topic that is served no more.
fn told_of(id: TopicId, lent: &Lent<'_>) -> TopicYielded {
    let ends = lent.topics.storages(id).filter_map(|(index, storage)| {
        let partition = lent.partitions.get(&storage)?;
        Some((index, partition.store.state().end))
    });
    let producers = lent.topics.storages(id).filter_map(|(index, storage)| {
        let partition = lent.partitions.get(&storage)?;
        Some((index, partition.store.storage.producers()))
    });
    let records = lent.commands.table().records_of(id);
    let records = records.filter(|record| Home::of(record) == Home::Ledger);
    TopicYielded {
        ends: ends.collect(),
        producers: producers.collect(),
        ledger: records.map(|record| record.to_bytes().into()).collect(),
    }
}

/// The topic that a ledger's record is about.
fn topic_of(record: &Record) -> Option<TopicId> {
    match record {
        Record::Cursor(record) => Some(record.topic),
        Record::Gap(record) => Some(record.topic),
        Record::Settled(record) => Some(record.topic),
        Record::Returned(record) => Some(record.topic),
        Record::Rejected(record) => Some(record.topic),
        _ => None,
    }
}
