//! The controller of a node that is alone: its log is the internal partition.

use super::{Command, CommandToken, ControlError, Controller};
use crate::blocking::Blocking;
use crate::coordinator::table::Table;
use crate::options::NodeError;
use log::{
    Append, DiskError, Found, OpenPartition, Operation, OperationToken, Outcome, ReadBatches,
    ReadToken, Recovery, Storage, StorageError, StorageEvent,
};
use memory::Buffer;
use std::collections::VecDeque;
use wire::batch::{Batch, BatchBuilder, EventParts, Origin, Verify};
use wire::record::{Gap, GapReason, Record};
use wire::{Codec, Durability, Offset, ProducerEpoch, ProducerId, Sequence, TopicId};

/// The topic of the internal partition. Never that of a user: ids are random.
pub(crate) const INTERNAL_TOPIC: TopicId = TopicId(1);
/// Who writes the internal partition.
const INTERNAL_PRODUCER: ProducerId = ProducerId(1);
/// Records are gathered into batches of about this length.
const BATCH_BYTES: usize = 1 << 20;

/// Commands in the internal partition. One batch is under way at a time;
/// what is submitted meanwhile is gathered into the next.
pub(crate) struct Single {
    storage: Box<dyn Storage>,
    table: Table,
    gathered: VecDeque<(CommandToken, Command)>,
    in_flight: Vec<(CommandToken, Command)>,
    /// The end of the log with all that is in flight.
    end: Offset,
    done: VecDeque<(CommandToken, Result<(), ControlError>)>,
    compaction: Compaction,
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

/// What replaying the internal partition found missing.
pub(crate) type Damage = Vec<Gap>;

impl Single {
    /// Replays the internal partition, which was opened with `open`. Blocks.
    pub fn opened(
        opened: Result<(Box<dyn Storage>, Recovery), StorageError>,
        open: &OpenPartition,
        blocking: &Blocking<'_>,
        bytes_max: u64,
    ) -> Result<(Self, Damage), NodeError> {
        let (mut storage, recovery) = opened.map_err(|source| NodeError::Internal {
            attempt: format!(
                "opening the internal partition in {}",
                open.directory.display()
            ),
            source,
        })?;
        let mut damage = recovery.gaps;
        // No record has the lives of this partition: one that began is reported at each
        // opening. What is synced loses nothing to a power loss.
        damage.retain(|gap| gap.reason != GapReason::PowerLoss);
        let table = replay(storage.as_mut(), blocking, &mut damage)?;
        let end = storage.state().end;
        let single = Self {
            table,
            end,
            gathered: VecDeque::new(),
            in_flight: Vec::new(),
            done: VecDeque::new(),
            compaction: Compaction {
                due_bytes: bytes_max.max(storage.state().bytes * 2),
                bytes_max,
                snapshot: None,
            },
            storage,
            unix_ns: open.unix_ns,
            closed: false,
        };
        Ok((single, damage))
    }

    /// Applies what has become as durable as it is to be.
    fn complete_durable(&mut self) {
        if self.storage.state().reached(self.level()) >= self.end {
            for (token, command) in self.in_flight.drain(..) {
                command
                    .records
                    .into_iter()
                    .for_each(|record| self.table.apply(record));
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

    fn append_gathered(&mut self, bytes: u64) {
        if bytes > self.compaction.due_bytes {
            let start = self.end;
            let records: Vec<Record> = self.table.records().collect();
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
            topic: INTERNAL_TOPIC,
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
            // Who decides is the term of consensus, when there is one: no partition's leader.
            leader_epoch: 0,
        };
        let offset = self.storage.append(append).map_err(|error| match error {
            StorageError::Full(reason) => ControlError::Full(reason),
            error => ControlError::Failed(error.to_string()),
        })?;
        self.end = offset.plus(count);
        Ok(())
    }

    /// Nothing more can be decided: what is synced is unknown.
    fn fail(&mut self, reason: &str) {
        self.refuse(&ControlError::Failed(reason.to_owned()));
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

impl Controller for Single {
    fn table(&self) -> &Table {
        &self.table
    }

    fn set_time(&mut self, unix_ns: u64) {
        self.unix_ns = unix_ns;
    }

    fn submit(&mut self, token: CommandToken, command: Command) {
        self.gathered.push_back((token, command));
    }

    fn poll_completion(&mut self) -> Option<(CommandToken, Result<(), ControlError>)> {
        self.done.pop_front()
    }

    fn advance(&mut self) {
        while let Some(event) = self.storage.poll_event() {
            match event {
                StorageEvent::Closed => self.closed = true,
                StorageEvent::Refused { from, error } => {
                    self.end = from;
                    self.refuse(&ControlError::Full(error.to_string()));
                }
                // Progress is seen below; what the snapshot replaced is no loss.
                _ => {}
            }
        }
        self.complete_durable();
        let state = self.storage.state();
        if let Some(reason) = state.failure {
            self.fail(&reason);
            return;
        }
        // Whoever waits for what is done may submit more, built on what is
        // gathered: should that be refused, it is refused with it.
        if !self.done.is_empty() {
            return;
        }
        if self.in_flight.is_empty() && self.compaction.snapshot.is_none() {
            self.append_gathered(state.bytes);
            // Commands without a record wait for nothing but those before them.
            self.complete_durable();
        }
    }

    fn poll_operation(&mut self) -> Option<(OperationToken, Operation)> {
        self.storage.poll_operation()
    }

    fn complete(&mut self, token: OperationToken, result: Result<Outcome, DiskError>) {
        self.storage.complete(token, result);
    }

    fn end(&self) -> Offset {
        self.end
    }

    fn failure(&self) -> Option<String> {
        self.storage.state().failure
    }

    fn is_idle(&self) -> bool {
        self.gathered.is_empty() && self.in_flight.is_empty() && self.compaction.snapshot.is_none()
    }

    fn close(&mut self) {
        self.storage.close();
    }

    fn is_closed(&self) -> bool {
        self.closed
    }
}

fn push(builder: &mut BatchBuilder, record: &Record) {
    builder.push(EventParts {
        metadata: &record.to_bytes(),
        ..EventParts::default()
    });
}

/// Reads the whole log into a table.
fn replay(
    storage: &mut dyn Storage,
    blocking: &Blocking<'_>,
    damage: &mut Damage,
) -> Result<Table, NodeError> {
    let mut table = Table::default();
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
            attempt: format!("replaying the internal partition from record {from}"),
            source,
        })?;
        match found {
            Found::Batches { batches, next } => {
                for batch in &batches {
                    apply_batch(&mut table, batch, from)?;
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
    Ok(table)
}

fn apply_batch(table: &mut Table, bytes: &bytes::Bytes, from: Offset) -> Result<(), NodeError> {
    let refuse = |error: wire::DecodeError| {
        NodeError::Record(format!(
            "replaying the internal partition from record {from}: {error}"
        ))
    };
    let batch = Batch::read(bytes.as_ref(), Verify::Headers).map_err(refuse)?;
    let columns = batch.columns().map_err(refuse)?;
    let metadata = batch.metadata_section();
    for event in &columns.events {
        let start = event.metadata_start as usize;
        let bytes = &metadata[start..start + event.metadata_bytes as usize];
        table.apply(Record::from_bytes("internal record", bytes).map_err(refuse)?);
    }
    Ok(())
}
