//! What can be judged of a request to join before a group or queue is asked, and the records of
//! a new one.

use crate::coordinator::gaps::beginning;
use crate::coordinator::lent::Lent;
use crate::coordinator::table::TopicEntry;
use crate::ids::RequestId;
use crate::refusal::{Refused, refuse, unknown_topic};
use topic::{GroupOptions, QueueOptions, SESSION_TIMEOUT_MS};
use wire::message::{Join, Start};
use wire::record::{ConsumerKind, ConsumerRecord, Position, Record};
use wire::{ConsumerId, ErrorCode, MemberId, PartitionIndex, TopicId};

/// What of a request to join can be judged by itself.
pub(super) fn check(join: &Join) -> Result<(), Refused> {
    let invalid = |message: String| refuse(ErrorCode::InvalidConsumer, message);
    topic::check_consumer_name(&join.consumer).map_err(|error| invalid(error.to_string()))?;
    if !join.instance.is_empty() {
        topic::check_consumer_name(&join.instance)
            .map_err(|error| invalid(format!("instance name: {error}")))?;
    }
    if join.kind == ConsumerKind::Independent {
        let consumer = &join.consumer;
        return Err(invalid(format!(
            "consumer {consumer:?}: an independent consumer has no members to join"
        )));
    }
    if join.member == MemberId(0) {
        return Err(invalid("a member's id is not 0".into()));
    }
    if !SESSION_TIMEOUT_MS.contains(&join.session_timeout_ms) {
        return Err(invalid(format!(
            "session_timeout_ms is {}, not between {} and {}",
            join.session_timeout_ms,
            SESSION_TIMEOUT_MS.start(),
            SESSION_TIMEOUT_MS.end()
        )));
    }
    Ok(())
}

/// A group or queue of a new name, and the records that make it.
pub(super) fn new_consumer(
    caller: RequestId,
    topic: TopicId,
    join: &Join,
    lent: &mut Lent<'_>,
) -> Result<(ConsumerRecord, Vec<Record>), Refused> {
    let consumer = &join.consumer;
    if is_independent(topic, consumer, lent) {
        return Err(refuse(
            ErrorCode::InvalidConsumer,
            format!(
                "consumer {consumer:?} is an independent one, not a {}",
                join.kind
            ),
        ));
    }
    let table = lent.commands.table();
    let Some(entry) = table.topic(topic) else {
        return Err(unknown_topic(topic));
    };
    let limit = lent.ctx.options.limits.consumers_max;
    if entry.consumer_count() >= limit {
        return Err(refuse(
            ErrorCode::LimitExceeded,
            format!("the topic has {limit} consumers (consumers_max)"),
        ));
    }
    let namespace = &entry.record.namespace;
    let options = match join.kind {
        ConsumerKind::Queue => {
            let options = QueueOptions::from_json(&join.options)?;
            let dead = options.dead_letter_topic_of(&entry.record.name);
            if dead == entry.record.name {
                return Err(refuse(
                    ErrorCode::InvalidConsumer,
                    format!(
                        "queue {consumer:?}: dead letters in its own topic, {dead:?}, \
                         would come again for ever"
                    ),
                ));
            }
            let target = table.named(namespace, &dead);
            if options.deliveries_max > 0
                && let Some(home) = target.map(TopicEntry::home)
                && home != entry.home()
            {
                return Err(refuse(
                    ErrorCode::InvalidConsumer,
                    format!(
                        "queue {consumer:?} of a topic of node {} cannot write its dead letters to \
                         {dead:?}, which is on node {home}: make both on one node",
                        entry.home()
                    ),
                ));
            }
            if options.deliveries_max > 0 && target.is_none() {
                return Err(refuse(
                    ErrorCode::InvalidConsumer,
                    format!(
                        "queue {consumer:?} needs its dead-letter topic {dead:?}, which there is not"
                    ),
                ));
            }
            options.to_json()
        }
        _ => GroupOptions::from_json(&join.options)?.to_json(),
    };
    let record = ConsumerRecord {
        namespace: lent.sessions.namespace(caller.link).to_owned(),
        consumer: consumer.clone(),
        topic,
        kind: join.kind,
        options,
        id: ConsumerId(lent.ctx.random.id() as u64 | 1),
        starts: starts(topic, join, lent)?,
    };
    Ok((record.clone(), vec![Record::Consumer(record)]))
}

/// Whether the name, which is no group's or queue's, is that of an independent consumer: it has
/// a cursor, will have one, or reads now.
fn is_independent(topic: TopicId, consumer: &str, lent: &Lent<'_>) -> bool {
    let entry = lent.commands.table().topic(topic);
    let reads = || {
        let storages = lent.topics.storages(topic);
        let mut partitions = storages.filter_map(|(_, storage)| lent.partitions.get(&storage));
        partitions.any(|partition| {
            let mut subscriptions = partition.subscriptions.iter();
            subscriptions.any(|(_, subscription)| subscription.consumer == consumer)
        })
    };
    entry.is_some_and(|entry| entry.cursors.contains_key(consumer))
        || !lent
            .commands
            .ahead
            .cursor_partitions(topic, consumer)
            .is_empty()
        || reads()
}

/// Where a new group or queue begins in each partition. One that begins with the first event that
/// ever was needs no position.
fn starts(
    topic: TopicId,
    join: &Join,
    lent: &Lent<'_>,
) -> Result<Vec<(PartitionIndex, Position)>, Refused> {
    if matches!(join.start, Start::At(_) | Start::Time(_)) {
        return Err(refuse(
            ErrorCode::InvalidConsumer,
            format!(
                "{} {:?} cannot begin at a position or time: it begins with the first event, \
                 or with what comes from now on",
                join.kind, join.consumer
            ),
        ));
    }
    let mut starts = Vec::new();
    for (partition, storage) in lent.topics.storages(topic) {
        let Some(open) = lent.partitions.get(&storage) else {
            continue;
        };
        let state = open.store.state();
        let offset = match join.start {
            Start::Cursor | Start::At(_) | Start::Time(_) => continue,
            Start::Beginning => beginning(open.store.key, state.first, lent.commands.table()),
            Start::Latest | Start::CursorOrLatest => open.store.visible,
        };
        let position = Position {
            incarnation: state.incarnation,
            offset,
        };
        starts.push((partition, position));
    }
    Ok(starts)
}
