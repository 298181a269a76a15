//! Where consumers stand: moved, read, forgotten.

use crate::answer::Answer;
use crate::coordinator::commands::{CursorKey, Decided, Moved};
use crate::coordinator::controller::ControlError;
use crate::coordinator::controller::undecided;
use crate::faults::Fault;
use crate::ids::RequestId;
use crate::node::Node;
use crate::partition::durability_about;
use crate::refusal::{Refused, refuse};
use wire::message::*;
use wire::record::{ConsumerKind, CursorRecord, Position, Record};
use wire::{Durability, ErrorCode, TopicId};

impl Node {
    pub(crate) fn move_cursors(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        request: MoveCursors,
    ) -> Result<(), Refused> {
        self.drain.refuse_closing()?;
        topic::check_consumer_name(&request.consumer)
            .map_err(|error| refuse(ErrorCode::UnknownConsumer, error.to_string()))?;
        self.topics
            .of(self.sessions.namespace(caller.link), topic)?;
        self.refuse_shared(topic, &request)?;
        let limit = self.ctx.options.limits.consumers_max;
        let entry = self.commands.table().topic(topic);
        if entry.is_some_and(|entry| {
            !entry.cursors.contains_key(&request.consumer)
                && entry.shared(&request.consumer).is_none()
                && entry.consumer_count() >= limit
        }) {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!("the topic has {limit} consumers (consumers_max)"),
            ));
        }
        self.move_checked(caller, topic, request)
    }

    /// Moves cursors of a group for the owner of its partitions.
    pub(crate) fn move_member_cursors(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        MoveMemberCursors { member, moves }: MoveMemberCursors,
    ) -> Result<(), Refused> {
        self.drain.refuse_closing()?;
        let id = self.shared_named(caller, topic, &moves.consumer, ConsumerKind::Group)?;
        if !self.ctx.planted(Fault::FencedAck) {
            self.shared.check_member(id, member)?;
            for (partition, _) in &moves.positions {
                self.shared.check_owner(id, member, *partition)?;
            }
        }
        self.move_checked(caller, topic, moves)
    }

    /// Moves cursors for somebody who may.
    fn move_checked(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        request: MoveCursors,
    ) -> Result<(), Refused> {
        let served = self
            .topics
            .of(self.sessions.namespace(caller.link), topic)?;
        let namespace = served.namespace.clone();
        let mut records = Vec::new();
        let mut storages = Vec::new();
        // Checked as a whole before anything is proposed.
        for (index, position) in &request.positions {
            let storage = served.storage_of(*index)?;
            let Some(partition) = self.partitions.get(&storage) else {
                return Err(served.closed(*index));
            };
            let position = partition.store.check_position(*position)?;
            storages.push(storage);
            let key = (topic, request.consumer.clone(), *index);
            let now = self.cursor(&key);
            let backwards = now.is_some_and(|now| position <= now);
            if request.how == CursorMove::Acknowledge
                && backwards
                && !self.ctx.planted(Fault::CursorBack)
            {
                continue;
            }
            for consumer in self.others_moved(topic, &request.consumer) {
                let key = (topic, consumer.clone(), *index);
                if self.cursor(&key) >= Some(position) {
                    continue;
                }
                records.push(Record::Cursor(CursorRecord {
                    namespace: namespace.clone(),
                    consumer,
                    topic,
                    partition: *index,
                    position: Some(position),
                }));
            }
            records.push(Record::Cursor(CursorRecord {
                namespace: namespace.clone(),
                consumer: request.consumer.clone(),
                topic,
                partition: *index,
                position: Some(position),
            }));
        }
        let durability = match request.how {
            CursorMove::Acknowledge => durability_about(&self.partitions, &storages),
            // Somebody decided it, and may not do so again.
            CursorMove::Seek => Durability::Synced,
        };
        self.propose_cursors(caller, durability, records);
        Ok(())
    }

    /// Other groups whose positions are moved as well: none but under a
    /// planted fault.
    fn others_moved(&self, topic: TopicId, consumer: &str) -> Vec<String> {
        if !self.ctx.planted(Fault::MoveOthers) {
            return Vec::new();
        }
        let shared = self.shared.of(topic).filter_map(|id| self.shared.get(id));
        let groups = shared.filter(|one| one.record.kind == ConsumerKind::Group);
        let names = groups.map(|one| one.record.consumer.clone());
        names.filter(|name| name != consumer).collect()
    }

    /// Cursors of a group are its members' to move; of one without members,
    /// anybody may move them elsewhere. A queue has none.
    fn refuse_shared(&self, topic: TopicId, moves: &MoveCursors) -> Result<(), Refused> {
        let id = self.shared.named(topic, &moves.consumer);
        let Some(shared) = id.and_then(|id| self.shared.get(id)) else {
            return Ok(());
        };
        let (kind, consumer) = (shared.record.kind, &moves.consumer);
        let message = match (kind, moves.how) {
            (ConsumerKind::Group, CursorMove::Seek)
                if shared.members.is_empty() && !shared.deleting =>
            {
                return Ok(());
            }
            (ConsumerKind::Group, CursorMove::Seek) => format!(
                "group {consumer:?} has {} members: only they move its cursors",
                shared.members.len()
            ),
            _ => format!("consumer {consumer:?} is a {kind}: its members alone acknowledge"),
        };
        Err(refuse(ErrorCode::InvalidConsumer, message))
    }

    /// Where a consumer stands, or will when what is under way is done.
    pub(crate) fn cursor(&self, key: &CursorKey) -> Option<Position> {
        self.cursor_proposals.position(key, self.commands.table())
    }

    fn propose_cursors(&mut self, caller: RequestId, durability: Durability, records: Vec<Record>) {
        if records.is_empty() && self.cursor_proposals.is_empty() {
            self.answer(caller, Answer::Done);
            return;
        }
        if self.ctx.planted(Fault::CursorEarly) {
            self.answer(caller, Answer::Done);
        }
        let mut keys = Vec::new();
        for record in &records {
            if let Record::Cursor(record) = record {
                let key = (record.topic, record.consumer.clone(), record.partition);
                self.cursor_proposals.begin(key.clone(), record.position);
                keys.push(key);
            }
        }
        // Even if nothing moves, the answer comes after what is under way:
        // it says that the position is durable.
        let decided = Decided::CursorsMoved(caller, Moved(keys));
        self.commands
            .submit_at(durability, records, decided, &mut self.ctx);
    }

    pub(crate) fn cursors_moved(
        &mut self,
        caller: RequestId,
        moved: Moved,
        result: Result<(), ControlError>,
    ) {
        self.cursor_proposals.end(&moved);
        if let Some((topic, consumer, _)) = moved.0.first() {
            let partitions = moved.0.iter().map(|(_, _, partition)| *partition);
            self.consumer_moved(*topic, consumer, partitions);
        }
        match result {
            Ok(()) => self.answer(caller, Answer::Done),
            Err(error) => self.refuse_request(caller, undecided(&error)),
        }
    }

    pub(crate) fn read_cursors(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        ReadCursors { consumer }: ReadCursors,
    ) -> Result<(), Refused> {
        self.topics
            .of(self.sessions.namespace(caller.link), topic)?;
        let entry = self.commands.table().topic(topic);
        let cursors = entry
            .into_iter()
            .flat_map(|entry| &entry.cursors)
            .filter(|(name, _)| consumer.is_empty() || **name == consumer)
            .flat_map(|(name, cursors)| {
                cursors.iter().map(|(partition, position)| Cursor {
                    consumer: name.clone(),
                    partition: *partition,
                    position: *position,
                })
            });
        let list = CursorList {
            cursors: cursors.collect(),
        };
        self.answer(caller, Answer::Cursors(list));
        Ok(())
    }

    pub(crate) fn delete_consumer(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        ConsumerName { consumer }: ConsumerName,
    ) -> Result<(), Refused> {
        self.drain.refuse_closing()?;
        let namespace = self
            .topics
            .of(self.sessions.namespace(caller.link), topic)?
            .namespace
            .clone();
        if let Some(id) = self.shared.named(topic, &consumer) {
            return self.delete_shared(caller, id);
        }
        let entry = self.commands.table().topic(topic);
        let cursors = entry.and_then(|entry| entry.cursors.get(&consumer));
        let known = cursors
            .into_iter()
            .flat_map(|cursors| cursors.keys().copied());
        let proposed = self.cursor_proposals.partitions(topic, &consumer);
        let mut partitions: Vec<_> = known.chain(proposed).collect();
        partitions.sort_unstable();
        partitions.dedup();
        if partitions.is_empty() {
            return Err(refuse(
                ErrorCode::UnknownConsumer,
                format!("consumer {consumer:?} has no cursor in the topic"),
            ));
        }
        let records = partitions.into_iter().map(|partition| {
            Record::Cursor(CursorRecord {
                namespace: namespace.clone(),
                consumer: consumer.clone(),
                topic,
                partition,
                position: None,
            })
        });
        let records = records.collect();
        self.propose_cursors(caller, Durability::Synced, records);
        Ok(())
    }
}
