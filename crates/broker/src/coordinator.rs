//! What a node decides of its topics as a whole: the table, topics, cursors, named producers,
//! groups and queues.

mod alter;
pub(crate) mod behind;
pub(crate) mod commands;
pub mod controller;
mod cursors;
pub(crate) mod gaps;
pub(crate) mod keep;
pub(crate) mod lent;
pub(crate) mod members;
pub(crate) mod moves;
mod node_states;
mod overlay;
pub(crate) mod producers;
pub(crate) mod served_topic;
pub mod table;
pub(crate) mod topic_file;
pub(crate) mod topics;

use crate::answer::Answer;
use crate::ctx::Ctx;
use crate::effects::{Effect, QueueNotice};
use crate::elsewhere::About;
use crate::ids::{LinkId, PartitionKey, RequestId, StorageId};
use crate::refusal::Refused;
use crate::request::{CoordinatorRequest, MoveRequest, Request};
use crate::timers::Timer;
use behind::Behind;
use commands::{Commands, Decided, Outcome};
use controller::{ControlError, undecided};
use gaps::GapRecords;
use keep::{consumer_moved, keep_topic};
use lent::{Around, Lent};
use log::{DiskError, Recovery, Storage, StorageError};
use members::Members;
use moves::{Arrived, Moves};
use overlay::Key;
use producers::Producers;
use served_topic::Topics;
use std::time::Duration;
use topic_file::TopicFiles;
use topics::TopicChanges;
use wire::record::{Gap, Record};
use wire::{Durability, PartitionIndex, TopicId};

/// After this time what a start has found is submitted again, if it was refused.
const FOUND_RETRY_AFTER: Duration = Duration::from_secs(1);

/// See the module. Each part owns its state. Connections and partitions are lent to be looked
/// at ([`Around`]); what is asked of them, and of queues, is an [`Effect`].
pub(crate) struct Coordinator {
    /// The table, and changes of it that are under way.
    pub commands: Commands,
    /// The topics that serve.
    pub topics: Topics,
    /// Topics that are being made.
    changes: TopicChanges,
    /// Groups and queues.
    pub members: Members,
    producers: Producers,
    gap_records: GapRecords,
    topic_files: TopicFiles,
    /// What the start has found, and could not be recorded yet.
    found: Vec<Vec<Record>>,
    /// Requests that wait until the table is not behind any more.
    behind: Behind,
    /// Topics on their way to other nodes, and to this one.
    pub moves: Moves,
    /// Whether there ever was one: before that nobody has to look.
    pub has_moves: bool,
}

impl Coordinator {
    pub fn new(commands: Commands) -> Self {
        Self {
            commands,
            topics: Topics::default(),
            changes: TopicChanges::default(),
            members: Members::default(),
            producers: Producers::default(),
            gap_records: GapRecords::default(),
            topic_files: TopicFiles::default(),
            found: Vec::new(),
            behind: Behind::default(),
            moves: Moves::default(),
            has_moves: false,
        }
    }

    /// A request is asked again when the table here has all that was decided before now.
    pub fn wait_for_table(
        &mut self,
        caller: RequestId,
        request: Request,
        refused: Option<Refused>,
        ctx: &mut Ctx,
    ) {
        self.behind
            .wait(caller, request, refused, &mut self.commands, ctx);
    }

    /// Nobody waits for the answer to a request any more.
    pub fn forget_waiting(&mut self, caller: RequestId) {
        self.behind.forget(caller);
    }

    /// How many topics are being made, or get partitions.
    pub fn change_count(&self) -> usize {
        self.changes.len()
    }

    /// The groups and queues, and what they are lent.
    pub fn members<'a>(&'a mut self, around: &'a mut Around<'_>) -> (&'a mut Members, Lent<'a>) {
        let lent = around.lend(&mut self.commands, &self.topics);
        (&mut self.members, lent)
    }

    /// Does what a client asks for, or has it recorded; the answer comes then.
    pub fn ask(
        &mut self,
        caller: RequestId,
        request: CoordinatorRequest,
        around: &mut Around<'_>,
    ) -> Result<(), Refused> {
        use CoordinatorRequest as Request;
        let lent = &mut around.lend(&mut self.commands, &self.topics);
        let (changes, members) = (&mut self.changes, &mut self.members);
        match request {
            Request::CreateTopic(beside, create) => changes.create(caller, beside, create, lent),
            Request::DeleteTopic(id, topic) => topics::delete(caller, id, &topic.name, lent),
            Request::AddPartitions(topic, add) => {
                self.moves.end_if_left(topic, lent);
                changes.add_partitions(caller, topic, add, lent)
            }
            Request::AddPlacedPartitions(topic, add) => alter::grow(caller, topic, &add, lent),
            Request::AlterTopic(topic, alter) => alter::alter(caller, topic, &alter, lent),
            Request::OpenProducer(topic, open) => self.producers.open(caller, topic, open, lent),
            Request::MoveCursors(topic, moves) => {
                cursors::move_cursors(caller, topic, moves, members, lent)
            }
            Request::MoveMemberCursors(topic, moves) => {
                cursors::move_member_cursors(caller, topic, moves, members, lent)
            }
            Request::ReadCursors(topic, read) => cursors::read(caller, topic, &read, lent),
            Request::DeleteConsumer(topic, name) => {
                cursors::delete_consumer(caller, topic, name, members, lent)
            }
            Request::Join(topic, join) => members.join(caller, topic, join, lent),
            Request::Leave(topic, leave) => members.leave(caller, topic, &leave, lent),
            Request::Release(topic, release) => members.release(caller, topic, &release, lent),
            Request::SetNode(set) => node_states::set(caller, set, lent),
        }
    }

    /// The storage of a partition of a topic in the making was opened, or could not be.
    pub fn partition_opened(
        &mut self,
        making: u64,
        storage: StorageId,
        result: Result<(Box<dyn Storage>, Recovery), StorageError>,
        around: &mut Around<'_>,
    ) {
        let mut lent = around.lend(&mut self.commands, &self.topics);
        match self.moves.makes(making) {
            true => self.moves.opened(making, storage, result, &mut lent),
            false => self.changes.opened(making, storage, result, &mut lent),
        }
    }

    /// Whether a request is done while its topic may be on its way to another node.
    pub fn allow(
        &self,
        caller: RequestId,
        about: &About,
        request: &Request,
    ) -> Result<(), Refused> {
        self.moves
            .allow(caller, about, request, self.commands.table())
    }

    /// Does what the mover of a topic asks for.
    pub fn ask_to_move(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        request: MoveRequest,
        around: &mut Around<'_>,
    ) -> Result<(), Refused> {
        self.has_moves = true;
        let lent = &mut around.lend(&mut self.commands, &self.topics);
        let members = &mut self.members;
        self.moves.ask(caller, topic, request, (members, lent))
    }

    /// A connection is gone, which may have been a mover's.
    pub fn link_down(&mut self, link: LinkId, around: &mut Around<'_>) {
        let lent = &mut around.lend(&mut self.commands, &self.topics);
        self.moves.link_down(link, &mut self.members, lent);
    }

    /// Goes by what the table says now of topics that come to this node.
    pub fn table_changed(&mut self, around: &mut Around<'_>) {
        let lent = &mut around.lend(&mut self.commands, &self.topics);
        for Arrived { id, topic } in self.moves.look(lent) {
            let record = self.commands.table().topic(id).map(|entry| &entry.record);
            let topic = match record {
                Some(record) => topic.into_recorded(record),
                None => topic,
            };
            self.topics.insert(id, topic);
            let (members, mut lent) = self.members(around);
            moves::lead(id, &mut lent);
            members.open_topic(id, &mut lent);
            let table = self.commands.table();
            self.topic_files.keep(id, table, around.ctx);
        }
    }

    /// Records what a partition has lost.
    pub fn record_gap(&mut self, lost: PartitionKey, gap: Gap, around: &mut Around<'_>) {
        self.gap_records
            .record(lost, gap, &mut self.commands, around.ctx);
    }

    /// A consumer of a topic has moved, or is gone, in these partitions.
    pub fn consumer_moved(
        &mut self,
        topic: TopicId,
        consumer: &str,
        partitions: impl IntoIterator<Item = PartitionIndex>,
        around: &mut Around<'_>,
    ) {
        let (topics, table) = (&self.topics, self.commands.table());
        consumer_moved(topic, consumer, partitions, topics, table, around.ctx);
    }

    /// Has recorded what the start of a node that follows has found of its partitions. They serve
    /// meanwhile: a start that finds it not recorded finds it again.
    pub fn record_found(&mut self, ctx: &mut Ctx) {
        for records in std::mem::take(&mut self.found) {
            let decided = Decided::FoundRecorded(records.clone());
            self.commands.submit(records, decided, ctx);
        }
    }

    /// What the start has found, of the table.
    pub fn found(&mut self, records: Vec<Record>) {
        self.found.push(records);
    }

    /// A topic's file was written.
    pub fn topic_file_kept(
        &mut self,
        topic: TopicId,
        result: Result<(), DiskError>,
        around: &mut Around<'_>,
    ) {
        let table = self.commands.table();
        self.topic_files.kept(topic, result, table, around.ctx);
    }

    /// A command is durable, or was refused: what follows.
    pub fn decided(&mut self, outcome: Outcome, around: &mut Around<'_>) {
        let Outcome {
            decided,
            result,
            ended,
        } = outcome;
        let (members, mut lent) = self.members(around);
        if let Err(error) = &result {
            members.return_to_table(&ended, error, &mut lent);
        }
        for key in &ended {
            if let Key::Cursor((topic, consumer, partition)) = key {
                let (topics, table) = (lent.topics, lent.commands.table());
                consumer_moved(*topic, consumer, [*partition], topics, table, lent.ctx);
            }
        }
        match decided {
            Decided::Made(making) => self.topic_made(making, result, around),
            Decided::TopicAltered(altering) => {
                let (caller, topic) = (altering.caller, altering.topic);
                let altered = result.map(|()| alter::altered(altering, &mut self.topics));
                if is_done(caller, altered, around) {
                    let table = self.commands.table();
                    keep_topic(topic, &self.topics, table, around.ctx);
                    self.topic_files.keep(topic, table, around.ctx);
                    let describe = Effect::Describe(caller, topic);
                    around.ctx.effects.push_back(describe);
                }
            }
            Decided::TopicDeleted(caller, topic) => {
                // It may be asked again.
                if is_done(caller, result, around) {
                    self.members.forget(topic, around.ctx);
                    let table = self.commands.table();
                    self.topic_files.keep(topic, table, around.ctx);
                    if let Some(topic) = self.topics.remove(topic) {
                        topics::deleted(topic, around.ctx);
                    }
                    around.ctx.answer(caller, Answer::Done);
                }
            }
            Decided::Answered(caller) => {
                if is_done(caller, result, around) {
                    around.ctx.answer(caller, Answer::Done);
                }
            }
            Decided::ProducerOpened(caller, record) => {
                if is_done(caller, result, around) {
                    producers::opened(caller, &record, &self.topics, around.ctx);
                }
            }
            Decided::MemberJoined(under_way) => {
                let (members, mut lent) = self.members(around);
                members.joined(under_way, result, &mut lent);
            }
            Decided::MoveBegun(caller, topic) => {
                self.commands.ahead.end(&Key::Topic(topic));
                if is_done(caller, result, around) {
                    around.ctx.answer(caller, Answer::Done);
                }
            }
            // Who is to change the topic asks again.
            Decided::MoveEnded(topic) => self.commands.ahead.end(&Key::Topic(topic)),
            Decided::Yielded(topic, caller) => {
                let lent = &mut around.lend(&mut self.commands, &self.topics);
                let members = &mut self.members;
                self.moves.recorded(topic, caller, result, members, lent);
            }
            Decided::Adopts(caller, topic, records) => {
                if is_done(caller, result, around) {
                    let (table, own) = (self.commands.table(), around.ctx.node());
                    if let Err(error) = self.moves.still_arrives(caller, topic, table, own) {
                        around.ctx.refuse(caller, error);
                        return;
                    }
                    let decided = Decided::Answered(caller);
                    let commands = &mut self.commands;
                    commands.record(Durability::Synced, records, decided, around.ctx);
                }
            }
            Decided::HandedOver(topic) => {
                let lent = &mut around.lend(&mut self.commands, &self.topics);
                let members = &mut self.members;
                if self.moves.handed_over(topic, result, members, lent) {
                    self.topics.remove(topic);
                    self.topic_files.forget(topic, around.ctx);
                }
            }
            Decided::SharedChanged => {}
            Decided::CaughtUp => {
                self.behind
                    .caught_up(&result, &mut self.commands, around.ctx);
            }
            Decided::QueueRecorded(id) => {
                let recorded = QueueNotice::Recorded(result);
                around.ctx.effects.push_back(Effect::Queue(id, recorded));
            }
            Decided::ConsumerDeleted(caller, id) => {
                if is_done(caller, result, around) {
                    if let Some(record) = self.members.deleted(id, around.ctx) {
                        let all = 0..around.ctx.options.limits.partitions_max as u32;
                        let all = all.map(PartitionIndex);
                        self.consumer_moved(record.topic, &record.consumer, all, around);
                    }
                    around.ctx.answer(caller, Answer::Done);
                }
            }
            Decided::Granted(id, grant) => {
                let (members, mut lent) = self.members(around);
                members.granted(id, grant, result.is_ok(), &mut lent);
            }
            Decided::FoundRecorded(records) => {
                if result.is_err() && !around.drain.is_begun() {
                    let at = around.ctx.now.monotonic + FOUND_RETRY_AFTER;
                    around.ctx.timers.insert(at, Timer::Found);
                    self.found.push(records);
                }
            }
            Decided::GapsRecorded(lost) => {
                let commands = &mut self.commands;
                self.gap_records
                    .recorded(lost, result, commands, around.ctx);
            }
        }
    }

    /// A topic exists, or has more partitions, or its records were refused.
    fn topic_made(
        &mut self,
        making: u64,
        result: Result<(), ControlError>,
        around: &mut Around<'_>,
    ) {
        let (topics, commands) = (&mut self.topics, &mut self.commands);
        let made = self
            .changes
            .made(making, result, topics, commands, around.ctx);
        let Some((caller, topic)) = made else {
            return;
        };
        let (members, mut lent) = self.members(around);
        members.share_partitions(topic, &mut lent);
        // Partitions that share a total have less each.
        let served = lent.topics.get(topic);
        if served.is_some_and(|topic| topic.definition.retention().total_bytes.is_some()) {
            keep_topic(topic, lent.topics, lent.commands.table(), lent.ctx);
        }
        let table = self.commands.table();
        self.topic_files.keep(topic, table, around.ctx);
        let describe = Effect::Describe(caller, topic);
        around.ctx.effects.push_back(describe);
    }
}

/// Whether a command was carried out. If not, its caller is refused.
fn is_done(caller: RequestId, result: Result<(), ControlError>, around: &mut Around<'_>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            around.ctx.refuse(caller, undecided(&error));
            false
        }
    }
}
