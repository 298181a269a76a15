//! A partition's open storage: what it is called, how durable it is, and how far readers see.

use crate::ctx::Ctx;
use crate::effects::ReadFor;
use crate::faults::Fault;
use crate::ids::{PartitionKey, RequestId, StorageId};
use crate::io::Output;
use crate::refusal::{Refused, refuse};
use log::{EventData, ReadBatches, ReadToken, Storage, StorageError, StorageState};
use std::collections::BTreeMap;
use wire::message::{Start, Watermarks};
use wire::record::{Gap, GapReason, Position};
use wire::view::Segment;
use wire::{Durability, ErrorCode, ErrorReply, Incarnation, Offset};

/// See the module. The parts of a partition share it; each is lent it for an act.
pub(crate) struct Store {
    pub id: StorageId,
    pub key: PartitionKey,
    /// For people: topic and index.
    pub name: String,
    pub storage: Box<dyn Storage>,
    /// What an ack means, at least.
    pub durability: Durability,
    /// What makes an event visible: `durability`, unless a test planted a fault.
    pub visible_at: Durability,
    /// The visible end, as readers were last told.
    pub visible: Offset,
    /// Of this server's leadership, as the table has it.
    pub leader_epoch: u32,
    /// Lives that ended, oldest first, and where each ended.
    pub ended: Vec<(Incarnation, Offset)>,
    /// What is recorded as lost at the ends of lives.
    pub ends: BTreeMap<Incarnation, Gap>,
    /// Why the storage takes nothing more, once that was noticed.
    pub failure: Option<String>,
    /// What was asked of the storage, and who for.
    pub readings: BTreeMap<ReadToken, Reading>,
    /// Operations that the disk has not carried out yet.
    pub operations_under_way: usize,
}

impl Store {
    pub fn state(&self) -> StorageState {
        self.storage.state()
    }

    /// Has the partition advanced when the act is over: its storage was called.
    pub fn touch(&self, ctx: &mut Ctx) {
        ctx.dirty.partitions.insert(self.id);
    }

    /// Has the disk do what the storage asks for now. Says whether it asked for anything.
    pub fn hand_out(&mut self, ctx: &mut Ctx) -> bool {
        let before = self.operations_under_way;
        while let Some((token, operation)) = self.storage.poll_operation() {
            self.operations_under_way += 1;
            ctx.outputs.push_back(Output::Disk {
                storage: self.id,
                token,
                operation,
            });
        }
        self.operations_under_way > before
    }

    pub fn watermarks(&self) -> Watermarks {
        let state = self.storage.state();
        Watermarks {
            end: state.end,
            durable: state.reached(self.durability),
            committed: self.visible,
        }
    }

    pub fn read_batches(&mut self, reading: Reading, read: ReadBatches, ctx: &mut Ctx) {
        let token = self.begin_reading(reading, ctx);
        self.storage.read(token, read);
    }

    /// Looks up where the data of the event at `offset` is.
    pub fn open_event(&mut self, reading: Reading, offset: Offset, ctx: &mut Ctx) {
        let token = self.begin_reading(reading, ctx);
        self.storage.open_event(token, offset);
    }

    pub fn read_data(
        &mut self,
        reading: Reading,
        data: &EventData,
        segments: Vec<Segment>,
        ctx: &mut Ctx,
    ) {
        let token = self.begin_reading(reading, ctx);
        self.storage.read_data(token, data, segments);
    }

    /// Reads all of an event's data for a reader who gets the checksum of the whole with it.
    pub fn read_data_to_compare(
        &mut self,
        reading: Reading,
        data: &EventData,
        segments: Vec<Segment>,
        ctx: &mut Ctx,
    ) {
        let token = self.begin_reading(reading, ctx);
        self.storage.read_data_to_compare(token, data, segments);
    }

    fn begin_reading(&mut self, reading: Reading, ctx: &mut Ctx) -> ReadToken {
        let token = ReadToken(ctx.next_id());
        self.readings.insert(token, reading);
        self.touch(ctx);
        token
    }

    /// What the storage's refusal of a batch is to its producer: with the
    /// partition's name, which the storage does not know.
    pub fn refusal(&self, error: &StorageError) -> ErrorReply {
        let reply = storage_error(error);
        ErrorReply {
            message: format!("{}: {}", self.name, reply.message),
            ..reply
        }
    }

    /// Refuses a caller that asks another leader than this one. `known` is the epoch that it was
    /// told with the topic's description, 0 if it was told none.
    pub fn check_leader_epoch(&self, known: u32, ctx: &Ctx) -> Result<(), Refused> {
        let own = self.leader_epoch;
        if known == 0 || known == own || ctx.planted(Fault::StaleLeaderEpoch) {
            return Ok(());
        }
        let order = match known < own {
            true => "is over",
            false => "is not known here yet",
        };
        Err(ErrorReply::retryable(
            ErrorCode::NotLeader,
            0,
            format!(
                "{}: leader epoch {known} {order}, the present one is {own}; look the topic up again",
                self.name
            ),
        ))
    }

    /// Where a position of an earlier life goes on in the present one: events
    /// that survived a life's end keep their offsets, the rest are gone.
    pub fn translate(&self, position: Position, present: Incarnation) -> Position {
        let ends = self
            .ended
            .iter()
            .filter(|(life, _)| *life >= position.incarnation);
        let offset = ends.fold(position.offset, |offset, (_, end)| offset.min(*end));
        Position {
            incarnation: present,
            offset,
        }
    }

    /// A position that a client named, if there is such a place.
    pub fn check_position(&self, position: Position) -> Result<Position, Refused> {
        let state = self.storage.state();
        let present = state.incarnation;
        if position.incarnation > present {
            return Err(refuse(
                ErrorCode::WrongIncarnation,
                format!(
                    "incarnation {} is not known, {present} is the present one",
                    position.incarnation
                ),
            ));
        }
        let own = position.incarnation == Incarnation(0) || position.incarnation == present;
        if own && position.offset > self.visible {
            return Err(refuse(
                ErrorCode::OffsetOutOfRange,
                format!(
                    "offset {} is beyond the visible end {}",
                    position.offset, self.visible
                ),
            ));
        }
        Ok(Position {
            incarnation: if own { present } else { position.incarnation },
            ..position
        })
    }

    /// Refuses to read the data of an event that is not there, or not visible.
    pub fn check_event(&self, position: Position) -> Result<(), Refused> {
        let present = self.storage.state().incarnation;
        let Position {
            incarnation,
            offset,
        } = position;
        // Events that survived the end of their life are there under the same offset.
        let survived = incarnation < present
            && self.ended.iter().any(|(life, _)| *life == incarnation)
            && self
                .ended
                .iter()
                .all(|(life, end)| *life < incarnation || offset < *end);
        if incarnation != present && !survived {
            return Err(refuse(
                ErrorCode::WrongIncarnation,
                format!(
                    "event {offset} is of incarnation {incarnation}, {present} is the present one"
                ),
            ));
        }
        if self.translate(position, present).offset >= self.visible {
            return Err(refuse(
                ErrorCode::OffsetOutOfRange,
                format!("event {offset} is beyond the visible end {}", self.visible),
            ));
        }
        Ok(())
    }

    /// Where a subscription begins, but for a time, which is looked for from there.
    /// `cursor` is its consumer's, `beginning` where a partition begins whose first event is given.
    pub fn start_position(
        &self,
        start: Start,
        cursor: Option<Position>,
        beginning: impl FnOnce(Offset) -> Offset,
    ) -> Result<Position, Refused> {
        let state = self.state();
        let present = |offset| Position {
            incarnation: state.incarnation,
            offset,
        };
        match (start, cursor) {
            // Only a disk that lied can have lost what a cursor has passed.
            (Start::Cursor | Start::CursorOrLatest, Some(cursor))
                if cursor.incarnation == state.incarnation =>
            {
                Ok(present(cursor.offset.min(self.visible)))
            }
            (Start::Cursor | Start::CursorOrLatest, Some(cursor)) => Ok(cursor),
            // A new name begins at the very first event: what of it is lost
            // comes as gaps.
            (Start::Cursor, None) => Ok(Position {
                incarnation: self
                    .ended
                    .first()
                    .map_or(state.incarnation, |(life, _)| *life),
                offset: Offset(0),
            }),
            (Start::Beginning, _) => Ok(present(beginning(state.first))),
            // The search for it begins there.
            (Start::Time(_), _) => Ok(present(state.first)),
            (Start::Latest, _) | (Start::CursorOrLatest, None) => Ok(present(self.visible)),
            (Start::At(position), _) => self.check_position(position),
        }
    }

    /// What a position of an ended life lost, and where it goes on.
    pub fn lost_with_life(&self, position: Position) -> (Gap, Position) {
        let present = self.storage.state().incarnation;
        let later = self
            .ended
            .iter()
            .find(|(life, _)| *life > position.incarnation);
        let ended = self
            .ended
            .iter()
            .find(|(life, _)| *life == position.incarnation);
        let next = Position {
            incarnation: later.map_or(present, |(life, _)| *life),
            offset: ended.map_or(Offset(0), |(_, end)| position.offset.min(*end)),
        };
        let recorded = self.ends.get(&position.incarnation).copied();
        let mut gap = recorded.unwrap_or(Gap {
            incarnation: position.incarnation,
            first: position.offset,
            end: position.offset,
            reason: match self.durability {
                Durability::Memory => GapReason::MemoryLost,
                _ => GapReason::Damaged,
            },
            time: 0,
        });
        // After a power loss or damage its beginning says how much the next life kept,
        // also to a reader that has read beyond it; otherwise nothing was.
        if !gap.keeps_what_came_before() {
            gap.first = gap.first.max(position.offset);
            gap.end = gap.end.max(gap.first);
        }
        (gap, next)
    }
}

/// Who a reading of the storage is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reading {
    /// A subscription; with the visible end that the reading was given.
    Subscription(RequestId, Offset),
    /// A fetch, likewise.
    Fetch(RequestId, Offset),
    /// Another object.
    For(ReadFor),
}

/// What a storage's error is to the reader or producer that met it.
pub(crate) fn storage_error(error: &StorageError) -> ErrorReply {
    let message = error.to_string();
    match error {
        StorageError::Full(_) => ErrorReply::retryable(ErrorCode::StorageFull, 1000, message),
        StorageError::Exhausted(_) => refuse(ErrorCode::StorageFull, message),
        StorageError::Failed(_) | StorageError::Refused(_) => {
            refuse(ErrorCode::StorageFailed, message)
        }
        StorageError::OutOfRange { .. } => refuse(ErrorCode::OffsetOutOfRange, message),
        StorageError::Damaged(_) => refuse(ErrorCode::Damaged, message),
        StorageError::Invalid(_) => refuse(ErrorCode::Internal, message),
    }
}
