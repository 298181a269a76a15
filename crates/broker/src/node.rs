//! The node itself: what it holds, and where each input goes.
//!
//! A node is a plain state machine. An executor (the server's, or the
//! simulator's) feeds it [`Input`]s with the time, then takes [`Output`]s
//! until there is none, and calls again no later than [`Now::monotonic`]
//! reaches [`Node::next_timer`].

pub use crate::ids::{JobId, LinkId, Now, StorageId};
pub use crate::io::{Input, Job, JobResult, LINK_QUEUED_BYTES_HIGH, LINK_QUEUED_BYTES_LOW, Output};

use crate::controller::{CommandToken, ControlError, Controller, Single};
use crate::ctx::Ctx;
use crate::cursors::CursorProposals;
use crate::drain::Drain;
use crate::effects::{Copied, Effect, ReadFor, WasRead};
use crate::ids::{Asker, Bulk, INTERNAL_STORAGE, SharedId};
use crate::membership::{JoinUnderWay, SharedConsumers};
use crate::partition::{Partition, Partitions};
use crate::producers::{EpochProposals, NamelessProducers};
use crate::read_data::Reads;
use crate::served_topic::Topic;
use crate::session::{Deferred, Sessions};
use crate::timers::Timer;
use crate::topics::Making;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::frame::BULK_CHUNK_BYTES;
use wire::{Durability, TopicId};

/// One server's topics, partitions, consumers and producers, as a plain state
/// machine. See [`crate::node`] for how it is driven.
pub struct Node {
    pub(crate) ctx: Ctx,
    pub(crate) sessions: Sessions,
    /// Settlements that have come and have no effect yet.
    pub(crate) deferred: Deferred,
    pub(crate) controller: Single,
    pub(crate) commands: BTreeMap<CommandToken, Decided>,
    pub(crate) topics: BTreeMap<TopicId, Topic>,
    /// Groups and queues.
    pub(crate) shared: SharedConsumers,
    /// What became of the events of each queue.
    pub(crate) queues: BTreeMap<SharedId, crate::queue::Queue>,
    /// Dead letters on their way, by the ids of their appends.
    pub(crate) letters: BTreeMap<u64, (SharedId, wire::PartitionIndex)>,
    /// Those of them whose data is being copied first.
    pub(crate) letter_data: BTreeMap<u64, crate::queue::LetterData>,
    /// The lease that was given last; 0 is none yet.
    pub(crate) last_lease: u64,
    /// Topics that are being made or get more partitions.
    pub(crate) makings: BTreeMap<u64, Making>,
    pub(crate) partitions: Partitions,
    pub(crate) jobs: BTreeMap<JobId, Purpose>,
    pub(crate) reads: Reads,
    pub(crate) cursor_proposals: CursorProposals,
    pub(crate) epoch_proposals: EpochProposals,
    pub(crate) nameless: NamelessProducers,
    pub(crate) gap_records: crate::gaps::GapRecords,
    pub(crate) drain: Drain,
    /// Topics whose files are being written, and whether they have changed meanwhile.
    pub(crate) topic_files: BTreeMap<TopicId, bool>,
    /// What starts remember.
    pub(crate) start: crate::start::Remembered,
    /// What lay in `lost+found` when the node was opened. Only a start puts something there.
    pub(crate) set_aside: Vec<String>,
    /// The first storage that had failed when the drain was to close it.
    pub(crate) unclean: Option<String>,
    /// What the data directory lies on, as far as the executor told.
    pub(crate) below: crate::space::Below,
    /// Whether the operator was told that the internal partition failed.
    pub(crate) controller_failed: bool,
}

/// What to do when the controller has decided.
pub(crate) enum Decided {
    /// A topic exists, or has more partitions.
    Made(u64),
    /// A topic's definition has changed.
    TopicAltered(crate::alter::Altering),
    /// A topic is gone.
    TopicDeleted(Asker, TopicId),
    /// Cursors have moved.
    CursorsMoved(Asker, crate::cursors::Moved),
    /// A named producer has a new life.
    ProducerOpened(Asker, wire::record::ProducerRecord),
    /// Somebody is a member.
    MemberJoined(JoinUnderWay),
    /// A group or queue has changed, and somebody waits for it.
    SharedAnswer(Asker, SharedId),
    /// A group or queue has changed.
    SharedChanged(SharedId),
    /// What became of a queue's events is recorded.
    QueueRecorded(SharedId),
    /// A group or queue is gone.
    ConsumerDeleted(Asker, SharedId),
    /// Partitions of a group have new owners, by the grant of this number.
    Granted(SharedId, u64),
    /// Losses of a partition are recorded.
    GapsRecorded(crate::gaps::Lost),
}

/// What a blocking job is for.
pub(crate) enum Purpose {
    /// A partition of a topic in the making.
    Open(u64, StorageId),
    /// The end of a partition; told to the operator if it fails.
    Remove(String),
    /// A topic's file is as the table is.
    KeepTopic(TopicId),
    /// How far the internal partition came.
    KeepStart,
}

impl Node {
    /// Takes one input. Outputs are to be taken afterwards.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.ctx.now = now;
        self.controller.set_time(now.unix_ns);
        match input {
            Input::LinkUp { link, peer, .. } => self.sessions.link_up(link, peer, &mut self.ctx),
            Input::LinkDown { link, .. } => {
                self.catch_up();
                self.link_down(link);
            }
            Input::LinkQueued { link, bytes } => self.link_queued(link, bytes),
            Input::Message { link, message } => self.message(link, message),
            Input::ReadDone { token, result, .. } => match self.ctx.bulk.remove(&token) {
                Some(Bulk::Transfer(storage, transfer)) => {
                    self.at(storage, |partition, ctx| {
                        partition.chunk_arrived(transfer, token, result, ctx);
                    });
                }
                // The transfer was given up meanwhile.
                Some(Bulk::ReadData(_)) | None => {}
            },
            Input::WriteDone { token, result, .. } => {
                if let Some(Bulk::ReadData(call)) = self.ctx.bulk.remove(&token) {
                    let (partitions, ctx) = (&mut self.partitions, &mut self.ctx);
                    self.reads
                        .chunk_written(call, token, result, partitions, ctx);
                    self.route();
                }
            }
            Input::DiskDone {
                storage,
                token,
                result,
            } => {
                if storage == INTERNAL_STORAGE {
                    self.controller.storage().complete(token, result);
                    self.ctx.dirty.controller = true;
                } else {
                    self.at(storage, |partition, ctx| {
                        partition.operation_done(token, result, ctx);
                    });
                }
            }
            Input::JobDone { job, result } => self.job_done(job, result),
            Input::FileSystem(space) => {
                if let Some(line) = self.below.seen(space) {
                    self.ctx.report(line);
                }
            }
            Input::Timer => self.catch_up(),
            Input::Drain => {
                self.catch_up();
                self.drain();
            }
        }
        if self.deferred.is_due(&self.ctx) {
            self.catch_up();
        }
        while let Some(timer) = self.ctx.timers.pop(now.monotonic) {
            self.timer(timer);
        }
        self.settle();
    }

    /// The next thing to do for the executor.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.ctx.outputs.pop_front()
    }

    /// When [`Node::handle`] is to be called at the latest, on the monotonic clock.
    pub fn next_timer(&self) -> Option<Duration> {
        match self.is_behind() {
            true => Some(self.ctx.now.monotonic),
            false => self.ctx.timers.next(),
        }
    }

    /// Whether settlements were deferred: the node is to be handed [`Input::Timer`] when
    /// nothing else is to be done.
    pub fn is_behind(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Whether the client of a connection has said who it is, and was let in.
    pub fn knows_client(&self, link: LinkId) -> bool {
        self.sessions.takes_requests(link)
    }

    fn timer(&mut self, timer: Timer) {
        match timer {
            Timer::Session(link) => self.sessions.timer_came(link, &mut self.ctx),
            Timer::Requests(link) => self.look_at_deadlines(link),
            Timer::Delayed(link) => self.sessions.send_delayed(link, &mut self.ctx),
            Timer::Fetch(storage, asker) => {
                self.at(storage, |partition, ctx| {
                    partition.advance_fetch(asker, ctx);
                });
            }
            Timer::Storage(storage) => {
                self.at(storage, Partition::tick);
            }
            Timer::Waiting(storage) => {
                self.at(storage, Partition::report_waiting);
            }
            Timer::Shared(id) => self.shared_timer(id),
            Timer::Queue(id) => self.queue_timer(id),
            Timer::Drain => self.drain_impatiently(),
        }
    }

    fn job_done(&mut self, job: JobId, result: JobResult) {
        match (self.jobs.remove(&job), result) {
            (Some(Purpose::Open(making, storage)), JobResult::Opened(result)) => {
                self.partition_opened(making, storage, result);
            }
            (Some(Purpose::Remove(what)), JobResult::Removed(Err(error))) => {
                self.ctx.report(format!("removing {what}: {error}"));
            }
            (Some(Purpose::KeepTopic(topic)), JobResult::Kept(result)) => {
                self.topic_kept(topic, result);
            }
            (Some(Purpose::KeepStart), JobResult::Kept(Err(error))) => {
                self.ctx
                    .report(format!("what the next start compares is not kept: {error}"));
            }
            _ => {}
        }
    }

    /// Lets what was touched take effect, until nothing moves any more.
    fn settle(&mut self) {
        self.settle_again();
        self.drain_further();
    }

    pub(crate) fn settle_again(&mut self) {
        loop {
            if let Some(storage) = self.ctx.dirty.partitions.pop_first() {
                self.settle_partition(storage);
            } else if std::mem::take(&mut self.ctx.dirty.controller) {
                self.settle_controller();
            } else if let Some(id) = self.ctx.dirty.queues.pop_first() {
                self.settle_queue(id);
            } else if !self.feed_starved_transfers() && !self.advance_waiting_reads() {
                break;
            }
        }
    }

    /// Routes what the last act asked of other objects, in order.
    pub(crate) fn route(&mut self) {
        while let Some(effect) = self.ctx.effects.pop_front() {
            match effect {
                Effect::Reply(asker, message) => {
                    self.sessions.reply(asker, message, &mut self.ctx);
                }
                Effect::Refuse(asker, error) => {
                    self.sessions.refuse(asker, &error, &mut self.ctx);
                }
                Effect::Send(link, message) => self.sessions.send(link, message, &mut self.ctx),
                Effect::SubscriptionEnded(Asker { link, id }) => {
                    if let Some(session) = self.sessions.get_mut(link) {
                        session.subscriptions.remove(&id);
                    }
                }
                Effect::OwnAppend(append, Ok(())) => self.own_append_stored(append),
                Effect::OwnAppend(append, Err(error)) => self.own_append_refused(append, &error),
                Effect::Visible(topic) => self.touch_queues(topic),
                Effect::Lost(key, present, gap) => {
                    self.lost_of_queues(key, present, gap);
                    self.record_gap(key, gap);
                }
                Effect::Read(reader, found) => self.was_read(reader, found),
                Effect::Copy(storage, place, Copied::Written) => {
                    self.letter_chunk_written(storage, place);
                }
                Effect::Copy(storage, place, Copied::Ready) => {
                    self.letter_data_ready(storage, place);
                }
                Effect::Copy(storage, place, Copied::Failed(error)) => {
                    self.letter_data_failed(storage, place, &error);
                }
                Effect::Failed(storage, error) => self.fail_letters(storage, &error),
            }
        }
    }

    /// What another object has read of a partition has come.
    fn was_read(&mut self, reader: ReadFor, found: WasRead) {
        match (reader, found) {
            (
                ReadFor::Queue {
                    id,
                    partition,
                    from,
                    end,
                },
                WasRead::Batches(found),
            ) => self.queue_read(id, partition, (from, end), found),
            (ReadFor::DeadLetter { id, partition }, WasRead::Batches(found)) => {
                self.dead_letter_read(id, partition, found);
            }
            (ReadFor::LetterOpen { append }, WasRead::Event(data)) => {
                self.letter_opened(append, data);
            }
            (ReadFor::LetterData { append }, WasRead::Data(pieces)) => {
                self.letter_read(append, pieces);
            }
            (ReadFor::Open { call, event }, WasRead::Event(data)) => {
                let (partitions, ctx) = (&mut self.partitions, &mut self.ctx);
                self.reads.event_opened(call, event, data, partitions, ctx);
            }
            (ReadFor::Data { call, chunk, part }, WasRead::Data(pieces)) => {
                let (partitions, ctx) = (&mut self.partitions, &mut self.ctx);
                self.reads
                    .part_read(call, chunk, part, pieces, partitions, ctx);
            }
            // A storage gives what it was asked for.
            _ => {}
        }
    }

    /// Lets a partition settle; one that has closed is forgotten.
    fn settle_partition(&mut self, storage: StorageId) {
        let settled = self.at(storage, |partition, ctx| {
            partition.settle(ctx);
            partition.ended()
        });
        let Some(ended) = settled.flatten() else {
            return;
        };
        self.partitions.remove(&storage);
        if let Some(failure) = ended.unclean {
            self.unclean.get_or_insert(failure);
        }
        if let Some((work, what)) = ended.remove {
            let job = JobId(self.ctx.next_id());
            self.jobs.insert(job, Purpose::Remove(what));
            self.ctx.outputs.push_back(Output::Job { job, work });
        }
    }

    /// Lets `ReadData` calls go on that waited for others, in turn. Says whether any did.
    fn advance_waiting_reads(&mut self) -> bool {
        let (partitions, ctx) = (&mut self.partitions, &mut self.ctx);
        let advanced = self.reads.advance_waiting(partitions, ctx);
        self.route();
        advanced
    }

    /// Lets transfers go on that waited for the budget, in turn. Says
    /// whether any did.
    fn feed_starved_transfers(&mut self) -> bool {
        let most = BULK_CHUNK_BYTES as u64;
        while self.ctx.data.may_fetch(most) {
            let Some((transfer, storage)) = self.ctx.incoming.next(most) else {
                return false;
            };
            // Otherwise it has nothing more to ask for.
            let fed = self.at(storage, |partition, ctx| {
                partition.feed_transfer(transfer, ctx)
            });
            if fed == Some(true) {
                return true;
            }
        }
        false
    }

    fn settle_controller(&mut self) {
        self.controller.advance();
        while let Some((token, operation)) = self.controller.storage().poll_operation() {
            self.ctx.outputs.push_back(Output::Disk {
                storage: INTERNAL_STORAGE,
                token,
                operation,
            });
        }
        if !self.controller_failed
            && let Some(reason) = self.controller.storage().state().failure
        {
            self.controller_failed = true;
            self.ctx.report(format!(
                "the internal partition failed: no topic, cursor or named producer changes any more \
                 until the server is started again: {reason}"
            ));
        }
        while let Some((token, result)) = self.controller.poll_completion() {
            // More may be gathered and waiting for this one.
            self.ctx.dirty.controller = true;
            let Some(decided) = self.commands.remove(&token) else {
                continue;
            };
            self.decided(decided, result);
        }
    }

    fn decided(&mut self, decided: Decided, result: Result<(), ControlError>) {
        match decided {
            Decided::Made(making) => self.made(making, result),
            Decided::TopicAltered(altering) => self.topic_altered(altering, result),
            Decided::TopicDeleted(asker, topic) => self.topic_deleted(asker, topic, result),
            Decided::CursorsMoved(asker, moved) => self.cursors_moved(asker, moved, result),
            Decided::ProducerOpened(asker, record) => self.producer_opened(asker, record, result),
            Decided::MemberJoined(under_way) => self.member_joined(under_way, result),
            Decided::SharedAnswer(asker, id) => self.shared_answer(asker, id, result),
            Decided::SharedChanged(id) => self.shared_changed(id, result),
            Decided::QueueRecorded(id) => self.queue_recorded(id, result),
            Decided::ConsumerDeleted(asker, id) => self.consumer_deleted(asker, id, result),
            Decided::Granted(id, grant) => self.granted(id, grant, result),
            Decided::GapsRecorded(lost) => self.gaps_recorded(lost, result),
        }
    }

    /// Submits a command; `decided` says what follows.
    pub(crate) fn submit(&mut self, records: Vec<wire::record::Record>, decided: Decided) {
        self.submit_at(Durability::Synced, records, decided);
    }

    /// Submits what has to survive no more than that.
    pub(crate) fn submit_at(
        &mut self,
        durability: Durability,
        records: Vec<wire::record::Record>,
        decided: Decided,
    ) {
        let token = CommandToken(self.ctx.next_id());
        self.commands.insert(token, decided);
        let command = crate::controller::Command {
            records,
            durability,
        };
        self.controller.submit(token, command);
        self.ctx.dirty.controller = true;
    }

    /// What a record of what was done with events is to survive: what the
    /// events do, for without these it means nothing.
    pub(crate) fn durability_about(&self, storages: &[StorageId]) -> Durability {
        let partitions = storages.iter().map(|id| self.partitions.get(id));
        let levels =
            partitions.map(|one| one.map_or(Durability::Synced, |one| one.store.durability));
        // The log of records is on disk: less than written there is not.
        levels.fold(Durability::Written, Durability::max)
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("sessions", &self.sessions.len())
            .field("topics", &self.topics.len())
            .field("partitions", &self.partitions.len())
            .finish_non_exhaustive()
    }
}
