//! Where consumers stand: moved, read, forgotten. The positions themselves are the table's, and
//! on their way into it the overlay's.

use super::commands::Decided;
use super::lent::Lent;
use super::members::Members;
use super::overlay::CursorKey;
use super::table::Table;
use crate::answer::Answer;
use crate::faults::Fault;
use crate::ids::RequestId;
use crate::partition::durability_about;
use crate::refusal::{Refused, refuse};
use wire::message::{
    ConsumerName, Cursor, CursorList, CursorMove, MoveCursors, MoveMemberCursors, ReadCursors,
};
use wire::record::{ConsumerKind, CursorRecord, Record};
use wire::{ConsumerId, Durability, ErrorCode, ErrorReply, TopicId};

/// Moves cursors of an independent consumer. Answered when that is durable.
pub(super) fn move_cursors(
    caller: RequestId,
    topic: TopicId,
    request: MoveCursors,
    members: &Members,
    lent: &mut Lent<'_>,
) -> Result<(), Refused> {
    lent.drain.refuse_closing()?;
    topic::check_consumer_name(&request.consumer)
        .map_err(|error| refuse(ErrorCode::UnknownConsumer, error.to_string()))?;
    lent.topics
        .of(lent.sessions.namespace(caller.link), topic)?;
    refuse_shared(topic, &request, members, lent.commands.table())?;
    let limit = lent.ctx.options.limits.consumers_max;
    let entry = lent.commands.table().topic(topic);
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
    move_checked(caller, topic, request, members, lent)
}

/// Moves cursors of a group for the owner of its partitions.
pub(super) fn move_member_cursors(
    caller: RequestId,
    topic: TopicId,
    request: MoveMemberCursors,
    members: &Members,
    lent: &mut Lent<'_>,
) -> Result<(), Refused> {
    let MoveMemberCursors { member, moves } = request;
    lent.drain.refuse_closing()?;
    let namespace = lent.sessions.namespace(caller.link);
    let (consumer, kind) = (&moves.consumer, ConsumerKind::Group);
    let group = members.of_kind(lent.topics, namespace, topic, consumer, kind)?;
    if !lent.ctx.planted(Fault::FencedAck) {
        group.check_member(member)?;
        for (partition, _) in &moves.positions {
            group.check_owner(member, *partition)?;
        }
    }
    move_checked(caller, topic, moves, members, lent)
}

/// Moves cursors for a caller that may.
fn move_checked(
    caller: RequestId,
    topic: TopicId,
    mut request: MoveCursors,
    members: &Members,
    lent: &mut Lent<'_>,
) -> Result<(), Refused> {
    let namespace = lent.sessions.namespace(caller.link);
    let served = lent.topics.of(namespace, topic)?;
    let namespace = &served.namespace;
    let mut records = Vec::new();
    let mut storages = Vec::new();
    // A request may name a partition twice: what is compared is what was before all of it.
    if request.how == CursorMove::Acknowledge {
        request.positions.sort_unstable();
    }
    // Checked as a whole before anything is proposed.
    for (index, position) in &request.positions {
        let storage = served.storage_of(*index)?;
        let Some(partition) = lent.partitions.get(&storage) else {
            return Err(served.closed(*index));
        };
        let position = partition.store.check_position(*position)?;
        storages.push(storage);
        let record = |consumer: String| {
            Record::Cursor(CursorRecord {
                namespace: namespace.clone(),
                consumer_id: members.id_of(topic, &consumer),
                consumer,
                topic,
                partition: *index,
                position: Some(position),
            })
        };
        let key: CursorKey = (topic, request.consumer.clone(), *index);
        let now = lent.commands.cursor(&key);
        let backwards = now.is_some_and(|now| position <= now);
        if request.how == CursorMove::Acknowledge
            && backwards
            && !lent.ctx.planted(Fault::CursorBack)
        {
            continue;
        }
        for consumer in others_moved(topic, &request.consumer, members, lent) {
            let key = (topic, consumer, *index);
            if lent.commands.cursor(&key) < Some(position) {
                records.push(record(key.1));
            }
        }
        records.push(record(key.1));
    }
    let durability = match request.how {
        CursorMove::Acknowledge => durability_about(lent.partitions, &storages),
        // Somebody decided it, and may not do so again.
        CursorMove::Seek => Durability::Synced,
    };
    submit(caller, durability, records, lent);
    Ok(())
}

/// Other groups whose positions are moved as well: none but under a
/// planted fault.
fn others_moved(topic: TopicId, consumer: &str, members: &Members, lent: &Lent<'_>) -> Vec<String> {
    if !lent.ctx.planted(Fault::MoveOthers) {
        return Vec::new();
    }
    let shared = members.of(topic).filter_map(|id| members.get(id));
    let groups = shared.filter(|one| one.record.kind == ConsumerKind::Group);
    let names = groups.map(|one| one.record.consumer.clone());
    names.filter(|name| name != consumer).collect()
}

/// Cursors of a group are its members' to move; of one without members,
/// anybody may move them elsewhere. A queue has none.
fn refuse_shared(
    topic: TopicId,
    moves: &MoveCursors,
    members: &Members,
    table: &Table,
) -> Result<(), Refused> {
    let id = members.named(topic, &moves.consumer);
    let Some(shared) = id.and_then(|id| members.get(id)) else {
        return Ok(());
    };
    let (kind, consumer) = (shared.record.kind, &moves.consumer);
    let known = table.topic(topic).and_then(|entry| entry.shared(consumer));
    if known.is_none_or(|entry| entry.record.id != shared.record.id) {
        // The ledger does not wait for the table: a cursor of what the table does not know yet
        // would be dropped.
        return Err(ErrorReply::retryable(
            ErrorCode::InvalidConsumer,
            50,
            format!("{kind} {consumer:?} is being made"),
        ));
    }
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

fn submit(caller: RequestId, durability: Durability, records: Vec<Record>, lent: &mut Lent<'_>) {
    if records.is_empty() && !lent.commands.ahead.has_cursors() {
        lent.ctx.answer(caller, Answer::Done);
        return;
    }
    if lent.ctx.planted(Fault::CursorEarly) {
        lent.ctx.answer(caller, Answer::Done);
    }
    // Even if nothing moves, the answer comes after what is under way:
    // it says that the position is durable.
    let decided = Decided::Answered(caller);
    lent.commands.record(durability, records, decided, lent.ctx);
}

pub(super) fn read(
    caller: RequestId,
    topic: TopicId,
    request: &ReadCursors,
    lent: &mut Lent<'_>,
) -> Result<(), Refused> {
    let consumer = &request.consumer;
    lent.topics
        .of(lent.sessions.namespace(caller.link), topic)?;
    let entry = lent.commands.table().topic(topic);
    let cursors = entry
        .into_iter()
        .flat_map(|entry| &entry.cursors)
        .filter(|(name, _)| consumer.is_empty() || *name == consumer)
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
    lent.ctx.answer(caller, Answer::Cursors(list));
    Ok(())
}

/// Forgets a consumer: an independent one, or a group or queue without members.
pub(super) fn delete_consumer(
    caller: RequestId,
    topic: TopicId,
    request: ConsumerName,
    members: &mut Members,
    lent: &mut Lent<'_>,
) -> Result<(), Refused> {
    let ConsumerName { consumer } = request;
    lent.drain.refuse_closing()?;
    let namespace = lent.sessions.namespace(caller.link);
    lent.topics.of(namespace, topic)?;
    if let Some(id) = members.named(topic, &consumer) {
        return members.delete(caller, id, lent);
    }
    let entry = lent.commands.table().topic(topic);
    let cursors = entry.and_then(|entry| entry.cursors.get(&consumer));
    let known = cursors
        .into_iter()
        .flat_map(|cursors| cursors.keys().copied());
    let proposed = lent.commands.ahead.cursor_partitions(topic, &consumer);
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
            namespace: namespace.to_owned(),
            consumer: consumer.clone(),
            topic,
            partition,
            position: None,
            consumer_id: ConsumerId(0),
        })
    });
    let records = records.collect();
    submit(caller, Durability::Synced, records, lent);
    Ok(())
}
