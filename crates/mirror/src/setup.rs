//! The topics of a link: found at the source, made or recognized at the copy.

use crate::link::{MirroredTopic, Side};
use crate::trouble::{LinkError, Trouble, trouble};
use client::{
    ClientError, Cursor, Driver, FetchRequest, MirrorOf, MirrorPosition, Offset,
    PartitionDescription, PartitionIndex, PartitionStorage, Position, TopicDescription,
    TopicHandle,
};
use std::time::Duration;
use wire::batch::{Batch, Header, Verify};
use wire::{ErrorCode, TopicId};

/// A topic and its copy.
pub(crate) struct Pair {
    pub source: TopicHandle,
    pub copy: TopicHandle,
    /// What each of them said of itself when the session began.
    pub described: TopicDescription,
    pub copy_described: TopicDescription,
}

/// The consumer at the source whose cursor says how far a link is.
pub(crate) fn consumer(link: &str) -> String {
    format!("link/{link}")
}

/// Opens a topic at the source and its mirror, which is made if it is not there.
pub(crate) fn open(
    (source, copy): (&Driver, &Driver),
    topic: &MirroredTopic,
    link: &str,
) -> Result<Pair, Trouble> {
    let what = format!("topic {} at the source", topic.source);
    let source = source.open_topic(&topic.source);
    let source = source.map_err(|error| trouble(&what, error))?;
    let described = source.refresh().map_err(|error| trouble(&what, error))?;
    let of = MirrorOf {
        topic: topic.source.clone(),
        id: source.id().to_string(),
        link: link.to_owned(),
    };
    let storages: Vec<PartitionStorage> = described
        .partitions
        .iter()
        .map(|partition| partition.storage.clone())
        .collect();
    let what = format!("topic {} at the copy", topic.copy);
    let known = match copy.open_topic(&topic.copy) {
        Ok(known) => Ok(known),
        Err(error) if error.code() == Some(ErrorCode::UnknownTopic) => {
            check_no_other_copy(&source, link, &what)?;
            let definition = source.definition_now().mirrored(of.clone());
            let definition = definition.map_err(|error| {
                Trouble::refused(format!("topic {} at the source: {error}", topic.source))
            })?;
            copy.create_topic(&topic.copy, &definition, &storages)
        }
        Err(error) => Err(error),
    };
    let known = match known {
        // Somebody made it meanwhile: what it is, is looked at again.
        Err(error) if error.code() == Some(ErrorCode::TopicExists) => {
            return Err(Trouble::Again(format!("{what}: {error}")));
        }
        known => known.map_err(|error| trouble(&what, error))?,
    };
    check(&known, &of, &what)?;
    let mut has = known.refresh().map_err(|error| trouble(&what, error))?;
    match storages.get(has.partitions.len()..) {
        Some([]) => {}
        Some(more) => {
            let added = copy.add_partitions(&topic.copy, more);
            added.map_err(|error| trouble(&what, error))?;
            has = known.refresh().map_err(|error| trouble(&what, error))?;
        }
        None => {
            return Err(Trouble::refused(format!(
                "{what} has {} partitions, the source {}: delete it, or promote it (thalweg relay promote) and name another",
                has.partitions.len(),
                storages.len()
            )));
        }
    }
    Ok(Pair {
        source,
        copy: known,
        described,
        copy_described: has,
    })
}

/// Refuses to make a copy if the source was told of another one by the same name: one cursor cannot say of
/// two copies what they have.
fn check_no_other_copy(source: &TopicHandle, link: &str, what: &str) -> Result<(), Trouble> {
    let cursors = cursors(source, link)?;
    match cursors
        .iter()
        .find(|cursor| cursor.position.offset > Offset(0))
    {
        None => Ok(()),
        Some(cursor) => Err(other_copy(what, link, cursor.position.offset)),
    }
}

/// What is said where the source was told of another copy.
pub(crate) fn other_copy(what: &str, link: &str, end: Offset) -> Trouble {
    let name = consumer(link);
    Trouble::refused(format!(
        "{what} is new, and the source was told by {name:?} of a copy with all before {end}: give the link of another copy another name (--name)"
    ))
}

/// Refuses what is there under the name of the copy, and is not it.
fn check(copy: &TopicHandle, of: &MirrorOf, what: &str) -> Result<(), Trouble> {
    let refuse = |text: String| Err(Trouble::refused(format!("{what} {text}")));
    match copy.definition_now().mirror_of() {
        None => refuse(
            "exists and is no mirror, or was promoted: delete it, or name another one (TOPIC=NAME)"
                .to_owned(),
        ),
        Some(known) if known.id != of.id => refuse(format!(
            "is the mirror of another topic {:?} ({}), the one of that name at the source is {} now: delete the copy, or promote it and name another one (TOPIC=NAME)",
            known.topic, known.id, of.id
        )),
        Some(known) if known.link != of.link => refuse(format!(
            "is written by the link {:?}, this one is {:?} (--name)",
            known.link, of.link
        )),
        Some(_) => Ok(()),
    }
}

/// The cursors of a link at the source, and the life in which it read each partition last.
pub(crate) fn cursors(source: &TopicHandle, link: &str) -> Result<Vec<Cursor>, Trouble> {
    let cursors = source.driver().cursors(source, &consumer(link));
    match cursors {
        Ok(cursors) => Ok(cursors),
        Err(error) if error.code() == Some(ErrorCode::UnknownConsumer) => Ok(Vec::new()),
        Err(error) => {
            let what = format!("topic {} at the source", source.name());
            Err(trouble(&what, error))
        }
    }
}

/// Whether the last batch of the copy is what the source has there. `None`: one of them has no events
/// there any more.
pub(crate) fn is_same(pair: &Pair, at: &MirrorPosition) -> Result<Option<bool>, Trouble> {
    let Some(last) = at.next.0.checked_sub(1).map(Offset) else {
        return Ok(None);
    };
    let at_end = |handle: &TopicHandle, described: &TopicDescription, what: String| {
        let partitions = &described.partitions;
        let Some(known) = partitions.iter().find(|one| one.partition == at.partition) else {
            return Ok(None);
        };
        // It may have begun anew since, which the next session sees.
        if known.watermarks.end <= last && known.watermarks.committed <= last {
            return Ok(None);
        }
        let fetched = handle.begin_fetch_stored(FetchRequest {
            partition: at.partition,
            from: present(known, last),
            bytes_max: 1,
            wait_max: Duration::ZERO,
            inline_data: false,
        });
        let fetched = match fetched.wait() {
            Err(error) if error.code() == Some(ErrorCode::OffsetOutOfRange) => return Ok(None),
            fetched => fetched.map_err(|error| trouble(&what, error))?,
        };
        Ok(fetched.batches().first().and_then(|batch| identity(batch)))
    };
    let source = at_end(&pair.source, &pair.described, at_source(pair))?;
    let copy = at_end(&pair.copy, &pair.copy_described, at_copy(pair))?;
    Ok(source.zip(copy).map(|(source, copy)| source == copy))
}

/// What two copies of a batch have in common, and no other batch has.
fn identity(batch: &[u8]) -> Option<(Offset, u64, u32, Header)> {
    let batch = Batch::read(batch, Verify::Headers).ok()?;
    let stamp = batch.stamp?;
    let header = Header {
        topic: TopicId(0),
        ..batch.header
    };
    Some((stamp.base_offset, stamp.append_time, stamp.data_crc, header))
}

/// Where a partition is that nobody has read for the link yet: so the source knows of it from now on.
pub(crate) fn announce(
    pair: &Pair,
    link: &str,
    positions: &[(PartitionIndex, Position)],
) -> Result<(), Trouble> {
    if positions.is_empty() {
        return Ok(());
    }
    let driver = pair.source.driver();
    let sought = driver.seek(&pair.source, &consumer(link), positions);
    sought.map_err(|error| trouble(&at_source(pair), error))
}

/// What errors say of calls about a source.
pub(crate) fn at_source(pair: &Pair) -> String {
    format!("topic {} at the source", pair.source.name())
}

/// What errors say of calls about a copy.
pub(crate) fn at_copy(pair: &Pair) -> String {
    format!("topic {} at the copy", pair.copy.name())
}

/// The first place that a partition's cursor can have.
pub(crate) fn present(described: &PartitionDescription, offset: Offset) -> Position {
    Position {
        incarnation: described.incarnation,
        offset,
    }
}

/// Makes a mirror a topic like any other: all who have the right write it from now on, and its link
/// is refused.
///
/// # Errors
/// A topic that is no mirror; as any call.
pub fn promote(driver: &Driver, name: &str) -> Result<MirrorOf, LinkError> {
    let failed = |error: ClientError| LinkError::Client(format!("topic {name}"), error);
    let topic = driver.open_topic(name).map_err(failed)?;
    let Some(of) = topic.definition_now().mirror_of().cloned() else {
        return Err(LinkError::Refused(format!("topic {name} is no mirror")));
    };
    let done = driver.alter_topic(name, r#"{"mirror_of":null}"#);
    done.map_err(failed)?;
    Ok(of)
}

/// Connects to one side.
pub(crate) fn connect(side: &Side) -> Result<Driver, Trouble> {
    let driver = Driver::connect(side.endpoint.clone(), side.options.clone());
    driver.map_err(|error| trouble(&side.name, error))
}
