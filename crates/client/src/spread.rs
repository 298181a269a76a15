//! What is said of a spread topic and of its partitions, put together: programs see one topic.

use crate::error::ClientError;
use std::collections::BTreeMap;
use topic::{Definition, part_name, part_of_name};
use wire::message::{ConsumerDescription, TopicDescription};
use wire::{ErrorCode, TopicId};

pub(crate) fn definition_of(description: &TopicDescription) -> Result<Definition, ClientError> {
    Definition::from_json(&description.definition).map_err(ClientError::invalid)
}

/// The names of the partitions of a spread topic as topics; of any other none.
pub(crate) fn names_of_parts(description: &TopicDescription) -> Vec<String> {
    let definition = Definition::from_json(&description.definition).ok();
    let count = definition.and_then(|definition| Some(definition.spread()?.count()));
    let indices = 0..count.unwrap_or(0);
    indices
        .map(|index| part_name(&description.name, index))
        .collect()
}

/// A spread topic's description with those of its partitions.
pub(crate) fn joined(itself: TopicDescription, parts: Vec<TopicDescription>) -> TopicDescription {
    let mut partitions = parts
        .into_iter()
        .flat_map(|part| part.partitions)
        .collect::<Vec<_>>();
    partitions.sort_by_key(|one| one.partition);
    TopicDescription {
        partitions,
        ..itself
    }
}

/// Topics in the order of their names, those of partitions of a spread topic as its partitions. What is left of one that was deleted
/// stays by itself.
pub(crate) fn with_partitions(topics: Vec<TopicDescription>) -> Vec<TopicDescription> {
    let ids: BTreeMap<String, TopicId> = topics
        .iter()
        .map(|topic| (topic.name.clone(), topic.topic))
        .collect();
    let whole = |part: &TopicDescription| {
        let (name, _) = part_of_name(&part.name)?;
        let id = ids.get(name)?;
        let definition = Definition::from_json(&part.definition).ok()?;
        (definition.part_of()?.topic == id.to_string()).then_some(*id)
    };
    let mut parts: BTreeMap<TopicId, Vec<TopicDescription>> = BTreeMap::new();
    let mut others = Vec::new();
    for topic in topics {
        match whole(&topic) {
            Some(id) => parts.entry(id).or_default().push(topic),
            None => others.push(topic),
        }
    }
    let others = others.into_iter();
    others
        .map(|topic| match parts.remove(&topic.topic) {
            Some(parts) => joined(topic, parts),
            None => topic,
        })
        .collect()
}

/// What is known of a consumer by those partitions that know it. One that joined at some only, as another client is about to, is
/// unknown to the others.
///
/// # Errors
/// As the first one that failed otherwise; that it is unknown, if it is to all.
pub(crate) fn known_to_some<T>(
    answers: impl Iterator<Item = Result<T, ClientError>>,
) -> Result<Vec<T>, ClientError> {
    let mut unknown = None;
    let mut known = Vec::new();
    for answer in answers {
        match answer {
            Ok(answer) => known.push(answer),
            Err(error) if error.code() == Some(ErrorCode::UnknownConsumer) => unknown = Some(error),
            Err(error) => return Err(error),
        }
    }
    match (known.is_empty(), unknown) {
        (true, Some(unknown)) => Err(unknown),
        _ => Ok(known),
    }
}

/// Consumers as several partitions have them: each once, with the partitions of all.
pub(crate) fn one_of_each(found: Vec<Vec<ConsumerDescription>>) -> Vec<ConsumerDescription> {
    let mut all: BTreeMap<String, ConsumerDescription> = BTreeMap::new();
    for one in found.into_iter().flatten() {
        let Some(known) = all.get_mut(&one.consumer) else {
            all.insert(one.consumer.clone(), one);
            continue;
        };
        known.partitions.extend(one.partitions);
        for member in one.members {
            let same = known
                .members
                .iter_mut()
                .find(|it| it.member == member.member);
            let Some(same) = same else {
                known.members.push(member);
                continue;
            };
            same.present |= member.present;
            same.silent_ms = same.silent_ms.min(member.silent_ms);
            same.partitions.extend(member.partitions);
            same.leased_events += member.leased_events;
            same.leased_bytes += member.leased_bytes;
        }
    }
    all.into_values().collect()
}
