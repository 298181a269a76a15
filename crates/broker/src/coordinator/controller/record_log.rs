//! A log of commands: the table's, or a ledger.

use super::{Command, CommandToken, ControlError, Home};
use crate::blocking::Blocking;
use crate::coordinator::table::Table;
use crate::faults::{Fault, Planted};
use crate::options::NodeError;
use log::{
    Append, DiskError, Found, OpenPartition, Operation, OperationToken, Outcome, ReadBatches,
    ReadToken, Recovery, Storage, StorageError, StorageEvent,
};
use memory::Buffer;
use std::collections::VecDeque;
use wire::batch::{Batch, BatchBuilder, EventParts, Origin, Verify};
use wire::record::{Gap, GapReason, Record};
use wire::table::Entry;
use wire::{Codec, Durability, NodeId, Offset, ProducerEpoch, ProducerId, Sequence};

/// Who writes it.
const INTERNAL_PRODUCER: ProducerId = ProducerId(1);
/// Records are gathered into batches of about this length.
const BATCH_BYTES: usize = 1 << 20;

/// Commands in a partition of records. One batch is under way at a time; what is submitted
/// meanwhile is gathered into the next, so that however many wait, they wait for two syncs at
/// most.
pub(crate) struct RecordLog {
    home: Home,
    storage: Box<dyn Storage>,
    gathered: VecDeque<(CommandToken, Command)>,
    in_flight: Vec<(CommandToken, Command)>,
    /// The end of the log with all that is in flight.
    end: Offset,
    done: VecDeque<(CommandToken, Result<(), ControlError>)>,
    compaction: Compaction,
    /// Of a ledger: the node whose topics it is about, if there are others.
    node: Option<NodeId>,
    /// What was decided, for those who follow; kept only if somebody may.
    entries: Option<VecDeque<Entry>>,
    planted: Planted,
    unix_ns: u64,
    closed: bool,
}

/// Where the writing of a snapshot stands.
struct Compaction {
    /// The log's length at which the next begins.
    due_bytes: u64,
    /// The bound below which it never does.
    bytes_max: u64,
    /// A snapshot's first offset, until everything before may be dropped.
    snapshot: Option<Offset>,
}

/// What of a log was found missing when it was opened and replayed.
pub(crate) type Damage = Vec<Gap>;

impl RecordLog {
    /// Takes a log that was opened with `open`, and is to be replayed.
    pub fn opened(
        home: Home,
        opened: Result<(Box<dyn Storage>, Recovery), StorageError>,
        open: &OpenPartition,
        bytes_max: u64,
    ) -> Result<(Self, Damage), NodeError> {
        let (storage, recovery) = opened.map_err(|source| NodeError::Internal {
            attempt: format!("opening {home} in {}", open.directory.display()),
            source,
        })?;
        let mut damage = recovery.gaps;
        // No record has the lives of this partition: one that began is reported at each
        // opening. What is synced loses nothing to a power loss.
        damage.retain(|gap| gap.reason != GapReason::PowerLoss);
        let log = Self {
            home,
            end: storage.state().end,
            gathered: VecDeque::new(),
            in_flight: Vec::new(),
            done: VecDeque::new(),
            compaction: Compaction {
                due_bytes: bytes_max.max(storage.state().bytes * 2),
                bytes_max,
                snapshot: None,
            },
            storage,
            node: None,
            entries: None,
            planted: Planted::default(),
            unix_ns: open.unix_ns,
            closed: false,
        };
        Ok((log, damage))
    }

    /// Applies all of it to the table. Blocks.
    pub fn replay(
        &mut self,
        table: &mut Table,
        damage: &mut Damage,
        blocking: &Blocking<'_>,
    ) -> Result<(), NodeError> {
        let (home, storage) = (self.home, self.storage.as_mut());
        let state = storage.state();
        let mut from = state.first;
        while from < state.end {
            let read = ReadBatches {
                from,
                end: state.end,
                bytes_max: BATCH_BYTES as u64,
                inline_data: true,
            };
            storage.read(ReadToken(0), read);
            let found = blocking.wait(storage, |event| match event {
                StorageEvent::Read { found, .. } => Some(found),
                _ => None,
            });
            let found = found.unwrap_or_else(|| {
                Err(StorageError::Failed(
                    "the reading was never answered".into(),
                ))
            });
            let found = found.map_err(|source| NodeError::Internal {
                attempt: format!("replaying {home} from record {from}"),
                source,
            })?;
            match found {
                Found::Batches { batches, next } => {
                    for batch in &batches {
                        apply_batch(home, table, batch, from)?;
                    }
                    from = next;
                }
                Found::Gap(gap) => {
                    damage.push(gap);
                    from = gap.end;
                }
                Found::Nothing => break,
            }
        }
        // What lies before the first record was replaced by a snapshot.
        damage.retain(|gap| gap.reason != GapReason::Retention);
        Ok(())
    }

    /// Applies what has become as durable as it is to be.
    fn complete_durable(&mut self, table: &mut Table) {
        let is_durable = self.storage.state().reached(self.level()) >= self.end;
        if is_durable || self.planted.is(Fault::EntryEarly) {
            let records = self.in_flight.iter();
            let records = records.map(|(_, command)| command.records.len() as u64);
            // They are one batch, the last of the log.
            let mut index = self.end.0 - records.sum::<u64>();
            for (token, command) in self.in_flight.drain(..) {
                index += command.records.len() as u64;
                if let Some(entries) = &mut self.entries
                    && !command.records.is_empty()
                {
                    entries.push_back(Entry {
                        index,
                        records: command.records.clone(),
                    });
                }
                command
                    .records
                    .into_iter()
                    .for_each(|record| table.apply(record));
                self.done.push_back((token, Ok(())));
            }
            if let Some(start) = self.compaction.snapshot.take() {
                self.storage.remove_before(start, GapReason::Retention);
                let bytes = self.storage.state().bytes;
                self.compaction.due_bytes = self.compaction.bytes_max.max(bytes * 2);
            }
        }
    }

    /// How far the log has to have come for what is in flight to take effect.
    fn level(&self) -> Durability {
        // What a snapshot replaces is removed: it has to be there for good.
        if self.compaction.snapshot.is_some() {
            return Durability::Synced;
        }
        let commands = self.in_flight.iter().map(|(_, command)| command);
        let recorded = commands.filter(|command| !command.records.is_empty());
        let asked = recorded.map(|command| command.durability).max();
        asked.unwrap_or(Durability::Memory)
    }

    fn append_gathered(&mut self, table: &Table, bytes: u64) {
        if bytes > self.compaction.due_bytes {
            let start = self.end;
            let of_home = |record: &Record| Home::of(record) == self.home;
            let records: Vec<Record> = match self.node {
                None => table.records().filter(of_home).collect(),
                Some(node) => table.records_at(node).filter(of_home).collect(),
            };
            if let Err(error) = self.append(records.iter()) {
                self.refuse(&error);
                return;
            }
            self.compaction.snapshot = Some(start);
        }
        let mut sum = 0;
        while sum < BATCH_BYTES
            && let Some((token, command)) = self.gathered.pop_front()
        {
            // An estimate will do: records are short, apart from definitions.
            sum += command
                .records
                .iter()
                .map(|record| match record {
                    Record::Topic(topic) => topic.definition.len() + 512,
                    _ => 512,
                })
                .sum::<usize>();
            self.in_flight.push((token, command));
        }
        if self.in_flight.is_empty() {
            return;
        }
        let level = self.level();
        let in_flight = std::mem::take(&mut self.in_flight);
        let records = in_flight.iter().flat_map(|(_, command)| &command.records);
        let appended = self.append_whole(records, level);
        self.in_flight = in_flight;
        if let Err(error) = appended {
            self.refuse(&error);
        }
    }

    /// Appends records as batches of a convenient length, to be synced.
    fn append<'a>(
        &mut self,
        records: impl Iterator<Item = &'a Record>,
    ) -> Result<(), ControlError> {
        let mut builder = BatchBuilder::default();
        for record in records {
            push(&mut builder, record);
            if builder.bytes() >= BATCH_BYTES {
                self.append_batch(std::mem::take(&mut builder), Durability::Synced)?;
            }
        }
        self.append_batch(builder, Durability::Synced)
    }

    /// Appends records as one batch: all of them are kept or none.
    fn append_whole<'a>(
        &mut self,
        records: impl Iterator<Item = &'a Record>,
        durability: Durability,
    ) -> Result<(), ControlError> {
        let mut builder = BatchBuilder::default();
        records.for_each(|record| push(&mut builder, record));
        self.append_batch(builder, durability)
    }

    fn append_batch(
        &mut self,
        builder: BatchBuilder,
        durability: Durability,
    ) -> Result<(), ControlError> {
        if builder.event_count() == 0 {
            return Ok(());
        }
        let origin = Origin {
            topic: self.home.topic(),
            producer: INTERNAL_PRODUCER,
            epoch: ProducerEpoch(0),
            // The one writer's count of events is the log's own.
            first_sequence: Sequence(self.end.0),
        };
        let sealed = builder.seal(origin, wire::batch::BLOCK_BYTES_DEFAULT);
        let count = u64::from(sealed.event_count);
        let bytes = Buffer::copy_of(&sealed.to_vec());
        let batch = Batch::read(bytes, Verify::Headers).expect("it was sealed just now");
        let append = Append {
            header: batch.header,
            header_crc: batch.header_crc,
            batch: batch.into_bytes(),
            place: None,
            durability,
            append_time: self.unix_ns,
            now: self.unix_ns,
            // Who decides is the term of consensus, when there is one: no partition's leader.
            leader_epoch: 0,
        };
        let offset = self.storage.append(append).map_err(|error| match error {
            StorageError::Full(reason) => ControlError::Full(self.home, reason),
            error => ControlError::Failed(self.home, error.to_string()),
        })?;
        self.end = offset.plus(count);
        Ok(())
    }

    /// Nothing more can be decided: what is synced is unknown.
    fn fail(&mut self, reason: &str) {
        self.refuse(&ControlError::Failed(self.home, reason.to_owned()));
    }

    /// Ends all commands that are under way.
    fn refuse(&mut self, error: &ControlError) {
        let lost = self.in_flight.drain(..).chain(self.gathered.drain(..));
        self.done
            .extend(lost.map(|(token, _)| (token, Err(error.clone()))));
        if self.compaction.snapshot.take().is_some() {
            // The next try comes when the log has grown as much again.
            self.compaction.due_bytes += self.compaction.bytes_max;
        }
    }
}

/// What the controller asks of it.
impl RecordLog {
    /// Has it keep from now on what was decided: [`RecordLog::poll_entry`]. A command's index is the
    /// number of the record behind its last one, so that it survives what the command survives.
    pub fn keep_entries(&mut self, planted: Planted) {
        self.entries = Some(VecDeque::new());
        self.planted = planted;
    }

    /// Has snapshots say nothing of topics of other nodes than this one.
    pub fn keep_to(&mut self, node: NodeId) {
        self.node = Some(node);
    }

    /// The next command with a record that was carried out.
    pub fn poll_entry(&mut self) -> Option<Entry> {
        self.entries.as_mut()?.pop_front()
    }

    /// What is written from now on is written at this time, nanoseconds since 1970.
    pub fn set_time(&mut self, unix_ns: u64) {
        self.unix_ns = unix_ns;
    }

    /// Takes a command.
    pub fn submit(&mut self, token: CommandToken, command: Command) {
        self.gathered.push_back((token, command));
    }

    /// What became of a command.
    pub fn poll_completion(&mut self) -> Option<(CommandToken, Result<(), ControlError>)> {
        self.done.pop_front()
    }

    /// Goes on after anything that may have changed how far it has come.
    pub fn advance(&mut self, table: &mut Table) {
        while let Some(event) = self.storage.poll_event() {
            match event {
                StorageEvent::Closed => self.closed = true,
                StorageEvent::Refused { from, error } => {
                    self.end = from;
                    self.refuse(&ControlError::Full(self.home, error.to_string()));
                }
                // Progress is seen below; what the snapshot replaced is no loss.
                _ => {}
            }
        }
        self.complete_durable(table);
        let state = self.storage.state();
        if let Some(reason) = state.failure {
            self.fail(&reason);
            return;
        }
        // A caller that waits for what is done may submit more, built on what is
        // gathered: should that be refused, it is refused with it.
        if !self.done.is_empty() {
            return;
        }
        if self.in_flight.is_empty() && self.compaction.snapshot.is_none() {
            self.append_gathered(table, state.bytes);
            // Commands without a record wait for nothing but those before them.
            self.complete_durable(table);
        }
    }

    /// The next operation on the disk that it needs.
    pub fn poll_operation(&mut self) -> Option<(OperationToken, Operation)> {
        self.storage.poll_operation()
    }

    /// An operation was carried out.
    pub fn complete(&mut self, token: OperationToken, result: Result<Outcome, DiskError>) {
        self.storage.complete(token, result);
    }

    /// The number of the next record.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// Why commands are not carried out any more, if so.
    pub fn failure(&self) -> Option<String> {
        self.storage.state().failure
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.gathered.is_empty() && self.in_flight.is_empty() && self.compaction.snapshot.is_none()
    }

    /// Closes it, behind all that is under way.
    pub fn close(&mut self) {
        self.storage.close();
    }

    /// Whether it has closed cleanly.
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

fn push(builder: &mut BatchBuilder, record: &Record) {
    builder.push(EventParts {
        metadata: &record.to_bytes(),
        ..EventParts::default()
    });
}

fn apply_batch(
    home: Home,
    table: &mut Table,
    bytes: &bytes::Bytes,
    from: Offset,
) -> Result<(), NodeError> {
    let refuse =
        |error: String| NodeError::Record(format!("replaying {home} from record {from}: {error}"));
    let of_wire = |error: wire::DecodeError| refuse(error.to_string());
    let batch = Batch::read(bytes.as_ref(), Verify::Headers).map_err(of_wire)?;
    let columns = batch.columns().map_err(of_wire)?;
    let metadata = batch.metadata_section();
    for event in &columns.events {
        let start = event.metadata_start as usize;
        let bytes = &metadata[start..start + event.metadata_bytes as usize];
        let record = Record::from_bytes("internal record", bytes).map_err(of_wire)?;
        let own = Home::of(&record);
        if own != home {
            return Err(refuse(format!("it has a record that belongs in {own}")));
        }
        table.apply(record);
    }
    Ok(())
}
