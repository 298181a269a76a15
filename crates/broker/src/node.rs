//! The node itself: what it holds, and where each input goes.
//!
//! A node is a plain state machine. An executor (the server's, or the
//! simulator's) feeds it [`Input`]s with the time, then takes [`Output`]s
//! until there is none, and calls again no later than [`Now::monotonic`]
//! reaches [`Node::next_timer`].

pub use crate::ids::{JobId, LinkId, Now, StorageId};
pub use crate::io::{Input, Job, JobResult, LINK_QUEUED_BYTES_HIGH, LINK_QUEUED_BYTES_LOW, Output};

use crate::coordinator::commands::{Commands, Decided};
use crate::coordinator::controller::ControlError;
use crate::coordinator::cursor_proposals::CursorProposals;
use crate::coordinator::members::shared::SharedConsumers;
use crate::coordinator::producer_epochs::{EpochProposals, NamelessProducers};
use crate::coordinator::served_topic::Topics;
use crate::coordinator::topic_file::TopicFiles;
use crate::ctx::Ctx;
use crate::drain_stage::Drain;
use crate::effects::{Effect, ReadFor, WasRead};
use crate::ids::{Bulk, INTERNAL_STORAGE, Purpose, RequestId, SharedId};
use crate::partition::{Partition, Partitions};
use crate::queue::{Leases, Letters, Queue};
use crate::read_data::Reads;
use crate::session::Sessions;
use crate::status::StatusAnswers;
use crate::timers::Timer;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::ErrorReply;
use wire::frame::BULK_CHUNK_BYTES;

/// One server's topics, partitions, consumers and producers, as a plain state
/// machine. See [`crate::node`] for how it is driven.
pub struct Node {
    pub(crate) ctx: Ctx,
    pub(crate) sessions: Sessions,
    /// The table, and changes of it that are under way.
    pub(crate) commands: Commands,
    pub(crate) topics: Topics,
    /// Groups and queues.
    pub(crate) shared: SharedConsumers,
    /// What became of the events of each queue.
    pub(crate) queues: BTreeMap<SharedId, Queue>,
    pub(crate) leases: Leases,
    pub(crate) letters: Letters,
    pub(crate) partitions: Partitions,
    pub(crate) reads: Reads,
    pub(crate) cursor_proposals: CursorProposals,
    pub(crate) epoch_proposals: EpochProposals,
    pub(crate) nameless: NamelessProducers,
    pub(crate) gap_records: crate::coordinator::gaps::GapRecords,
    pub(crate) drain: Drain,
    pub(crate) topic_files: TopicFiles,
    pub(crate) statuses: StatusAnswers,
    /// What starts remember.
    pub(crate) start: crate::start::Remembered,
    /// What lay in `lost+found` when the node was opened. Only a start puts something there.
    pub(crate) set_aside: Vec<String>,
    /// The first storage that had failed when the drain was to close it.
    pub(crate) unclean: Option<String>,
    /// What the data directory lies on, as far as the executor told.
    pub(crate) below: crate::space::Below,
}

impl Node {
    /// Takes one input. Outputs are to be taken afterwards.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.ctx.now = now;
        self.commands.controller.set_time(now.unix_ns);
        match input {
            Input::LinkUp { link, peer, .. } => self.sessions.link_up(link, peer, &mut self.ctx),
            Input::LinkDown { link, .. } => {
                self.catch_up();
                self.link_down(link);
            }
            Input::LinkQueued { link, bytes } => self.link_queued(link, bytes),
            Input::Message { link, message } => self.message(link, message),
            Input::ClientUp {
                link,
                peer,
                identity,
            } => self.sessions.client_up(link, peer, identity, &mut self.ctx),
            Input::Client { link, input } => self.client(link, input),
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
                    self.commands.controller.storage().complete(token, result);
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
            Input::Timer => {
                self.catch_up();
                self.advance_status();
                self.route();
            }
            Input::Drain => {
                self.catch_up();
                self.drain();
            }
        }
        if self.sessions.is_late(&self.ctx) {
            self.catch_up();
        }
        while let Some(timer) = self.ctx.timers.pop(now.monotonic) {
            self.timer(timer);
        }
        self.run_to_fixpoint();
    }

    /// The next thing to do for the executor.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.ctx.outputs.pop_front()
    }

    /// When [`Node::handle`] is to be called at the latest, on the monotonic clock: at once with
    /// [`Input::Timer`] while a status is being made.
    pub fn next_timer(&self) -> Option<Duration> {
        match self.is_behind() || self.statuses.is_under_way() {
            true => Some(self.ctx.now.monotonic),
            false => self.ctx.timers.next(),
        }
    }

    /// Whether settlements were deferred: the node is to be handed [`Input::Timer`] when
    /// nothing else is to be done.
    pub fn is_behind(&self) -> bool {
        self.sessions.is_behind()
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
            Timer::Fetch(storage, caller) => {
                self.at(storage, |partition, ctx| {
                    partition.advance_fetch(caller, ctx);
                });
            }
            Timer::Storage(storage) => {
                self.at(storage, Partition::tick);
            }
            Timer::Waiting(storage) => {
                self.at(storage, Partition::report_waiting);
            }
            Timer::Shared(id) => self.shared_timer(id),
            Timer::Queue(id) => {
                self.at_queue(id, |queue, lent| queue.timer_came(lent.ctx));
            }
            Timer::Drain => self.drain_impatiently(),
        }
    }

    fn job_done(&mut self, job: JobId, result: JobResult) {
        match (self.ctx.jobs.remove(&job), result) {
            (Some(Purpose::Open(making, storage)), JobResult::Opened(result)) => {
                self.partition_opened(making, storage, result);
            }
            (Some(Purpose::Remove(what)), JobResult::Removed(Err(error))) => {
                self.ctx.report(format!("removing {what}: {error}"));
            }
            (Some(Purpose::KeepTopic(topic)), JobResult::Kept(result)) => {
                let table = self.commands.table();
                self.topic_files.kept(topic, result, table, &mut self.ctx);
            }
            (Some(Purpose::KeepStart), JobResult::Kept(Err(error))) => {
                self.ctx
                    .report(format!("what the next start compares is not kept: {error}"));
            }
            _ => {}
        }
    }

    /// Lets what was touched take effect, until nothing moves any more.
    fn run_to_fixpoint(&mut self) {
        self.advance_dirty();
        self.drain_further();
    }

    pub(crate) fn advance_dirty(&mut self) {
        loop {
            if let Some(storage) = self.ctx.dirty.partitions.pop_first() {
                self.advance_partition(storage);
            } else if std::mem::take(&mut self.ctx.dirty.controller) {
                self.advance_commands();
            } else if let Some(id) = self.ctx.dirty.queues.pop_first() {
                self.advance_queue(id);
            } else if !self.feed_starved_transfers() && !self.advance_waiting_reads() {
                break;
            }
        }
    }

    /// Routes what the last act asked of other objects, in order.
    pub(crate) fn route(&mut self) {
        while let Some(effect) = self.ctx.effects.pop_front() {
            match effect {
                Effect::Answer(caller, answer) => {
                    self.sessions.answer(caller, answer, &mut self.ctx);
                }
                Effect::Reply(caller, message) => {
                    self.sessions.reply(caller, message, &mut self.ctx);
                }
                Effect::Refuse(caller, error) => {
                    self.sessions.refuse(caller, error, &mut self.ctx);
                }
                Effect::Deliver(caller, delivery) => {
                    self.sessions.deliver(caller, delivery, &mut self.ctx);
                }
                Effect::Send(link, message) => self.sessions.send(link, message, &mut self.ctx),
                Effect::SubscriptionEnded(RequestId { link, id }) => {
                    if let Some(session) = self.sessions.get_mut(link) {
                        session.subscriptions.remove(&id);
                    }
                }
                Effect::OwnAppend(append, result) => self.own_append_done(append, &result),
                Effect::LetterDataLost(append, why) => {
                    if let Some((id, index)) = self.letters.end(append) {
                        self.at_queue(id, |queue, lent| {
                            queue.letter_data_lost(index, &why, lent.ctx);
                        });
                    }
                }
                Effect::Visible(topic) => self.touch_queues(topic),
                Effect::Lost(key, present, gap) => {
                    for id in self.queues_of(key.topic) {
                        self.at_queue(id, |queue, lent| {
                            queue.lose(key.partition, present, gap, lent.ctx);
                        });
                    }
                    let (commands, ctx) = (&mut self.commands, &mut self.ctx);
                    self.gap_records.record(key, gap, commands, ctx);
                }
                Effect::Read(reader, found) => self.was_read(reader, found),
                Effect::Copy(storage, place, how) => {
                    let (partitions, ctx) = (&mut self.partitions, &mut self.ctx);
                    self.letters.copied(storage, place, how, partitions, ctx);
                }
                Effect::Failed(storage, error) => {
                    let (partitions, ctx) = (&mut self.partitions, &mut self.ctx);
                    self.letters.fail(storage, &error, partitions, ctx);
                }
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
            ) => {
                self.at_queue(id, |queue, lent| {
                    queue.was_read(partition, (from, end), found, lent.ctx);
                });
            }
            (ReadFor::DeadLetter { id, partition }, WasRead::Batches(found)) => {
                self.at_queue(id, |queue, lent| queue.letter_read(partition, found, lent));
            }
            (ReadFor::LetterOpen { append }, WasRead::Event(data)) => {
                let (partitions, ctx) = (&mut self.partitions, &mut self.ctx);
                self.letters.data_opened(append, data, partitions, ctx);
            }
            (ReadFor::LetterData { append }, WasRead::Data(pieces)) => {
                let (partitions, ctx) = (&mut self.partitions, &mut self.ctx);
                self.letters.data_read(append, pieces, partitions, ctx);
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

    /// An append of the server itself, a dead letter, is stored or was refused.
    fn own_append_done(&mut self, append: u64, result: &Result<(), ErrorReply>) {
        let Some((id, index)) = self.letters.end(append) else {
            return;
        };
        self.at_queue(id, |queue, lent| match result {
            Ok(()) => queue.letter_stored(index, append, lent.ctx),
            Err(error) => queue.letter_failed(index, &error.message, lent.ctx),
        });
    }

    /// Advances a partition; one that has closed is forgotten.
    fn advance_partition(&mut self, storage: StorageId) {
        let ended = self.at(storage, |partition, ctx| {
            partition.advance(ctx);
            partition.ended()
        });
        let Some(ended) = ended.flatten() else {
            return;
        };
        self.partitions.remove(&storage);
        if let Some(failure) = ended.unclean {
            self.unclean.get_or_insert(failure);
        }
        if let Some((work, what)) = ended.remove {
            self.ctx.start_job(Purpose::Remove(what), work);
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

    fn advance_commands(&mut self) {
        self.commands.advance(&mut self.ctx);
        while let Some((decided, result)) = self.commands.poll_decided(&mut self.ctx) {
            self.decided(decided, result);
        }
    }

    fn decided(&mut self, decided: Decided, result: Result<(), ControlError>) {
        match decided {
            Decided::Made(making) => self.made(making, result),
            Decided::TopicAltered(altering) => self.topic_altered(altering, result),
            Decided::TopicDeleted(caller, topic) => self.topic_deleted(caller, topic, result),
            Decided::CursorsMoved(caller, moved) => self.cursors_moved(caller, moved, result),
            Decided::ProducerOpened(caller, record) => self.producer_opened(caller, record, result),
            Decided::MemberJoined(under_way) => self.member_joined(under_way, result),
            Decided::SharedAnswer(caller, id) => self.shared_answer(caller, id, result),
            Decided::SharedChanged(id) => self.shared_changed(id, result),
            Decided::QueueRecorded(id) => self.queue_recorded(id, result),
            Decided::ConsumerDeleted(caller, id) => self.consumer_deleted(caller, id, result),
            Decided::Granted(id, grant) => self.granted(id, grant, result),
            Decided::GapsRecorded(lost) => {
                let (commands, ctx) = (&mut self.commands, &mut self.ctx);
                self.gap_records.recorded(lost, result, commands, ctx);
            }
        }
    }

    /// Submits a command; `decided` says what follows.
    pub(crate) fn submit(&mut self, records: Vec<wire::record::Record>, decided: Decided) {
        self.commands.submit(records, decided, &mut self.ctx);
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
