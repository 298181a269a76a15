//! Topics whose definition changes while they are in use.

use super::commands::{Altering, Decided};
use super::lent::Lent;
use super::served_topic::Topics;
use super::topics::{check_spread, refuse_busy};
use crate::ids::RequestId;
use crate::metadata_check::MetadataCheck;
use crate::refusal::{Refused, refuse};
use std::sync::Arc;
use topic::Placement;
use wire::message::{AddPlacedPartitions, AlterTopic};
use wire::record::{Record, TopicRecord};
use wire::{ErrorCode, TopicId};

/// Changes a topic's definition. The caller is answered when that is durable.
pub(super) fn alter(
    caller: RequestId,
    id: TopicId,
    request: &AlterTopic,
    lent: &mut Lent<'_>,
) -> Result<(), Refused> {
    lent.drain.refuse_begun()?;
    let topic = lent.topics.of(lent.sessions.namespace(caller.link), id)?;
    refuse_busy(id, lent.commands)?;
    let definition = topic
        .definition
        .altered(&request.changes)
        .and_then(
            |new| match new.validator() == topic.definition.validator() {
                true => Ok(new),
                false => new.validator().check_work().map(|()| new),
            },
        )
        .map_err(|error| refuse(ErrorCode::InvalidTopic, error.to_string()))?;
    let limit = lent.ctx.options.limits.partitions_max;
    let count = definition.spread().map_or(0, |spread| spread.count());
    if count as usize > limit {
        let why = format!("{count} partitions, at most {limit} (partitions_max)");
        return Err(refuse(ErrorCode::LimitExceeded, why));
    }
    if definition.spread().is_some() {
        let suits = definition.check_partition_count(0);
        suits.map_err(|error| refuse(error.code(), error.to_string()))?;
        let known = topic.definition.spread().map_or(0, |spread| spread.count());
        check_spread(&topic.name, &definition, known, lent.ctx)?;
    }
    let record = TopicRecord {
        namespace: topic.namespace.clone(),
        name: topic.name.clone(),
        topic: id,
        definition: definition.to_json(),
    };
    let altering = Altering {
        caller,
        topic: id,
        definition: Arc::new(definition),
    };
    let records = vec![Record::Topic(record)];
    let decided = Decided::TopicAltered(altering);
    lent.commands.submit(records, decided, lent.ctx);
    Ok(())
}

/// Gives a spread topic more partitions, behind those that it has by now: their own topics are made by who uses them.
pub(super) fn grow(
    caller: RequestId,
    id: TopicId,
    add: &AddPlacedPartitions,
    lent: &mut Lent<'_>,
) -> Result<(), Refused> {
    let invalid = |why: String| refuse(ErrorCode::InvalidTopic, why);
    let placement = match add.placement.as_str() {
        "" => Placement::default(),
        labels => labels.parse().map_err(invalid)?,
    };
    refuse_busy(id, lent.commands)?;
    let topic = lent.topics.of(lent.sessions.namespace(caller.link), id)?;
    let Some(mut spread) = topic.definition.spread().cloned() else {
        return Err(invalid(format!(
            "all partitions of topic {:?} are on one node",
            topic.name
        )));
    };
    for storage in &add.partitions {
        let pushed = spread.push(&storage.kind, &storage.config, &placement, 1);
        pushed.map_err(invalid)?;
    }
    let changes = serde_json::json!({ "spread": spread }).to_string();
    alter(caller, id, &AlterTopic { changes }, lent)
}

/// The new definition is durable: it holds from now on.
pub(super) fn altered(altering: Altering, topics: &mut Topics) {
    if let Some(topic) = topics.get_mut(altering.topic) {
        topic.metadata_check = MetadataCheck::of(&altering.definition);
        topic.definition = altering.definition;
    }
}
