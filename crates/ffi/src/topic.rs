//! `thalweg_topic`: making, opening, describing, point reads.

use crate::boundary::*;
use crate::driver::{Connection, Driver};
use crate::error::Failure;
use crate::event::Event;
use crate::future::Future;
use crate::loan::Loan;
use crate::options::{self, Partitions};
use crate::view::ThalwegSegment;
use client::{
    ClientError, DataWanted, Definition, FetchRequest, Incarnation, Offset, PartitionDescription,
    PartitionIndex, Position, Segment, Target, TopicDescription, TopicHandle,
};
use serde_json::{Map, Value, json};
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

/// The longest that a fetch waits at the server.
const FETCH_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// `thalweg_topic`.
pub struct Topic {
    pub handle: TopicHandle,
    pub connection: Arc<Connection>,
}

impl Topic {
    fn give(out: Out<'_, *mut Self>, handle: TopicHandle, driver: &Driver) -> Result<(), Failure> {
        given("topic", out)?.write(give(Self {
            handle,
            connection: driver.connection.clone(),
        }));
        Ok(())
    }
}

/// Makes a topic, or with `exist_ok` takes the one that is there; opens it if `topic` is given.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_topic_create(
    driver: Option<&Driver>,
    name: *const c_char,
    options: *const c_char,
    topic: Out<'_, *mut Topic>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let driver = given("driver", driver)?;
        let name = text("name", name)?;
        let mut options: Map<String, Value> = options::read("options of a topic", options)?;
        let exist_ok = options::exist_ok(&mut options)?;
        let storage = Partitions::taken_from(&mut options)?.to_client()?;
        let definition = Definition::from_json(&Value::Object(options).to_string())
            .map_err(|error| Failure::invalid(error.to_string()))?;
        let client = &driver.connection.client;
        let handle = match client.create_topic(name, &definition, &storage) {
            Err(ClientError::Server(reply))
                if exist_ok && reply.code == wire::ErrorCode::TopicExists =>
            {
                client.open_topic(name)?
            }
            made => made?,
        };
        match topic {
            Some(topic) => Topic::give(Some(topic), handle, driver),
            None => Ok(()),
        }
    })
}

/// Opens a topic.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_topic_open(
    driver: Option<&Driver>,
    name: *const c_char,
    topic: Out<'_, *mut Topic>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let driver = given("driver", driver)?;
        let handle = driver.connection.client.open_topic(text("name", name)?)?;
        Topic::give(topic, handle, driver)
    })
}

/// Deletes a topic with all that is in it.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_topic_delete(
    driver: Option<&Driver>,
    name: *const c_char,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let client = &given("driver", driver)?.connection.client;
        Ok(client.delete_topic(text("name", name)?)?)
    })
}

/// Adds partitions to a live topic.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_topic_add_partitions(
    driver: Option<&Driver>,
    name: *const c_char,
    options: *const c_char,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let client = &given("driver", driver)?.connection.client;
        let partitions: Partitions = options::read("options of partitions", options)?;
        client.add_partitions(text("name", name)?, &partitions.to_client()?)?;
        Ok(())
    })
}

/// Changes the definition of a live topic.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_topic_alter(
    driver: Option<&Driver>,
    name: *const c_char,
    changes: *const c_char,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let client = &given("driver", driver)?.connection.client;
        client.alter_topic(text("name", name)?, text("changes", changes)?)?;
        Ok(())
    })
}

/// All topics, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_topic_list(
    driver: Option<&Driver>,
    json: Out<'_, *mut c_char>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let topics = given("driver", driver)?.connection.client.list_topics()?;
        let topics: Vec<Value> = topics.iter().map(describe).collect();
        give_text(json, Value::Array(topics).to_string())
    })
}

/// The topic as it is now, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_topic_describe(
    topic: Option<&Topic>,
    json: Out<'_, *mut c_char>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let description = given("topic", topic)?.handle.refresh()?;
        give_text(json, describe(&description).to_string())
    })
}

fn describe(topic: &TopicDescription) -> Value {
    let definition: Value =
        serde_json::from_str(&topic.definition).unwrap_or_else(|_| topic.definition.clone().into());
    json!({
        "name": topic.name,
        "id": topic.topic.to_string(),
        "definition": definition,
        "partitions": topic.partitions.iter().map(describe_partition).collect::<Vec<_>>(),
    })
}

fn describe_partition(partition: &PartitionDescription) -> Value {
    json!({
        "partition": partition.partition.0,
        "storage": partition.storage.kind,
        "config": partition.storage.config,
        "durability": partition.durability.to_string(),
        "incarnation": partition.incarnation.0,
        "first": partition.first.0,
        "end": partition.watermarks.end.0,
        "durable": partition.watermarks.durable.0,
        "committed": partition.watermarks.committed.0,
        "bytes": partition.bytes,
        "failure": partition.failure,
    })
}

/// How many partitions the topic has, as last known.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_topic_partition_count(topic: Option<&Topic>) -> usize {
    topic.map_or(0, |topic| topic.handle.partitions().len())
}

/// Reads events from a position on, without a subscription.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub extern "C" fn thalweg_topic_fetch(
    topic: Option<&Topic>,
    from: Option<&ThalwegEventId>,
    bytes_max: u64,
    wait_ms: i64,
    events: *mut *mut Event,
    max: usize,
    count: Out<'_, usize>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let topic = given("topic", topic)?;
        let from = *given("from", from)?;
        let count = given("count", count)?;
        count.write(0);
        if events.is_null() {
            return Err(Failure::invalid("events is NULL"));
        }
        let found = topic.handle.begin_fetch(FetchRequest {
            partition: PartitionIndex(from.partition),
            from: Position {
                incarnation: Incarnation(from.incarnation),
                offset: Offset(from.offset),
            },
            bytes_max,
            wait_max: limit(wait_ms).map_or(FETCH_TIMEOUT_MAX, |wait| wait.min(FETCH_TIMEOUT_MAX)),
            inline_data: true,
        });
        let found = found.wait()?.starting_at(Offset(from.offset));
        let mut given = 0;
        for event in found.events().take(max) {
            // SAFETY: the header asks for space for `max` pointers, and `given` is less.
            unsafe { events.add(given).write(give(Event::new(event))) };
            given += 1;
        }
        count.write(given);
        Ok(())
    })
}

/// Begins to read parts of an event's data into memory of the caller's.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub extern "C" fn thalweg_topic_read_data(
    topic: Option<&Topic>,
    id: Option<&ThalwegEventId>,
    segments: *const ThalwegSegment,
    segment_count: usize,
    into: *mut c_void,
    size: usize,
    future: Out<'_, *mut Future>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let topic = given("topic", topic)?;
        let id = *given("id", id)?;
        let future = given("future", future)?;
        // SAFETY: the header asks for that many segments.
        let segments = unsafe { array("segments", segments, segment_count) }?;
        let wanted = DataWanted {
            partition: PartitionIndex(id.partition),
            incarnation: Incarnation(id.incarnation),
            offset: Offset(id.offset),
            segments: segments.iter().map(Segment::from).collect(),
        };
        let loan = Loan::new(None);
        // SAFETY: the header asks for `size` bytes that the caller leaves
        // alone until the future has resolved, which is when the loan ends.
        let target = unsafe { loan.writable(into, size) }?;
        let pending = topic
            .handle
            .begin_read_data(&[wanted], vec![Target::new(target)]);
        loan.arm();
        future.write(give(Future::read(pending, loan, topic.connection.clone())));
        Ok(())
    })
}

/// Frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_topic_free(topic: Option<Box<Topic>>) {
    quietly(|| drop(topic));
}
