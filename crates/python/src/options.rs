//! Options of `Topic`'s methods, as Python gives them.

use crate::future::EventId;
use crate::{error, wait};
use client::{BatchPolicy, JobEnd, Linger, ReadEnd, When};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString};
use std::time::{Duration, SystemTime};
use wire::message::Start;
use wire::record::Position;
use wire::{Durability, Incarnation, Offset, PartitionIndex};

/// Where an independent consumer begins, or a read.
pub fn start(start: &Bound<'_, PyAny>) -> PyResult<When> {
    if let Ok(text) = start.cast::<PyString>() {
        let parsed = When::parse(text.to_str()?);
        return parsed.map_err(|reason| invalid(start.py(), format!("start: {reason}")));
    }
    let position = if let Ok(id) = start.cast::<EventId>() {
        Position {
            incarnation: id.get().0.incarnation,
            offset: id.get().0.offset,
        }
    } else if let Ok(offset) = start.extract() {
        // Of the incarnation that each partition is in.
        Position {
            incarnation: Incarnation(0),
            offset: Offset(offset),
        }
    } else if start.is_instance_of::<PyInt>() {
        let count: Option<i64> = start.extract().ok();
        return match count.filter(|count| *count < 0) {
            Some(count) => Ok(When::Last(count.unsigned_abs())),
            None => {
                let message = format!(
                    "start as a number is the offset of an event, from 0 to 2**64 - 1, or, negative, \
                     how many events before the end, not {start}"
                );
                Err(invalid(start.py(), message))
            }
        };
    } else {
        return Ok(Start::Time(point_in_time(start)?).into());
    };
    Ok(Start::At(position).into())
}

/// Nanoseconds since 1970: of a datetime, a datetime64, or a timedelta ago.
fn point_in_time(time: &Bound<'_, PyAny>) -> PyResult<u64> {
    let converter = time.py().import("thalweg._time")?;
    converter.call_method1("point", (time,))?.extract()
}

/// Where a bounded read ends.
pub enum End {
    Client(ReadEnd),
    /// Before this offset in each partition.
    Offset(Offset),
}

/// `end` of `Topic.read`.
pub fn end(end: &Bound<'_, PyAny>) -> PyResult<End> {
    let py = end.py();
    let ends = if let Ok(text) = end.cast::<PyString>() {
        return match text.to_str()? {
            "now" => Ok(End::Client(ReadEnd::Now)),
            text => match When::parse(text) {
                Ok(When::Start(Start::Time(time))) => Ok(End::Client(ReadEnd::Time(time))),
                Ok(When::Start(Start::At(position))) => Ok(End::Offset(position.offset)),
                _ => Err(invalid(
                    py,
                    format!(
                        "end is now, an offset, an EventId, a time (-15m, 2026-11-23, \
                         \"2026-11-23 04:00\", a datetime, a timedelta ago) or a dict of offsets \
                         and EventIds by partition, not {text:?}"
                    ),
                )),
            },
        };
    } else if let Ok(ends) = end.cast::<PyDict>() {
        let ends = ends.iter().map(|(partition, end)| {
            let partition = PartitionIndex(partition.extract()?);
            if let Ok(id) = end.cast::<EventId>() {
                let id = id.get().0;
                if id.partition != partition {
                    let message = format!("event {id} is not in partition {partition}");
                    return Err(invalid(py, message));
                }
                return Ok(before(id));
            }
            let position = Position {
                incarnation: Incarnation(0),
                offset: Offset(end.extract()?),
            };
            Ok((partition, position))
        });
        ends.collect::<PyResult<_>>()?
    } else if let Ok(id) = end.cast::<EventId>() {
        vec![before(id.get().0)]
    } else if let Ok(offset) = end.extract() {
        return Ok(End::Offset(Offset(offset)));
    } else if end.is_instance_of::<PyInt>() {
        let message =
            format!("end as a number is the offset of an event, from 0 to 2**64 - 1, not {end}");
        return Err(invalid(py, message));
    } else {
        return Ok(End::Client(ReadEnd::Time(point_in_time(end)?)));
    };
    Ok(End::Client(ReadEnd::Before(ends)))
}

fn before(id: wire::EventId) -> (PartitionIndex, Position) {
    let position = Position {
        incarnation: id.incarnation,
        offset: id.offset,
    };
    (id.partition, position)
}

pub fn invalid(py: Python<'_>, message: String) -> PyErr {
    error::new(py, "InvalidArgument", message)
}

pub fn durability(py: Python<'_>, name: Option<&str>) -> PyResult<Option<Durability>> {
    name.map(str::parse)
        .transpose()
        .map_err(|reason| invalid(py, reason))
}

/// `job_end` of `Topic.queue`.
pub fn job_end(given: Option<&Bound<'_, PyAny>>, wind_down: Duration) -> PyResult<Option<JobEnd>> {
    let end = match given {
        None => JobEnd::from_environment(),
        Some(given) if given.cast::<PyBool>().is_ok_and(|yes| !yes.is_true()) => None,
        Some(given) => {
            let since = match given.extract::<f64>() {
                Ok(seconds) => wait::number("job_end", seconds)?,
                Err(_) => {
                    let time = given.py().import("thalweg._time")?;
                    let time = time.call_method1("nanoseconds", (given,))?;
                    Duration::from_nanos(time.extract()?)
                }
            };
            let at = SystemTime::UNIX_EPOCH.checked_add(since);
            let at = at.ok_or_else(|| invalid(given.py(), "job_end is beyond all time".into()))?;
            Some(JobEnd::at(at))
        }
    };
    Ok(end.map(|end| JobEnd { wind_down, ..end }))
}

/// Where a new group or queue begins.
pub fn start_of_new(py: Python<'_>, start: &str) -> PyResult<Start> {
    match start {
        "beginning" => Ok(Start::Beginning),
        "latest" => Ok(Start::Latest),
        other => {
            let message = format!("start is beginning or latest, not {other:?}");
            Err(invalid(py, message))
        }
    }
}

/// A time for the server, which refuses one that is too long.
pub fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `batch` and `linger_ms` of `Topic.producer`.
pub fn batch_policy(
    batch: Option<&Bound<'_, PyAny>>,
    batch_bytes: Option<u32>,
    linger: Option<Duration>,
) -> PyResult<BatchPolicy> {
    let mut policy = BatchPolicy::default();
    policy.bytes_max = batch_bytes.unwrap_or(policy.bytes_max);
    policy.linger = linger.map_or(Linger::Adaptive, Linger::Wait);
    let Some(batch) = batch else {
        return Ok(policy);
    };
    let refuse = || {
        let message = format!("batch is \"adaptive\" or a number of events from 1, not {batch}");
        Err(invalid(batch.py(), message))
    };
    if let Ok(name) = batch.cast::<PyString>() {
        return if name.to_str()? == "adaptive" {
            Ok(policy)
        } else {
            refuse()
        };
    }
    match batch.extract::<u32>() {
        Ok(count) if count > 0 && !batch.is_instance_of::<PyBool>() => {
            policy.count_max = Some(count);
            policy.linger = linger.map_or(Linger::UntilFull, Linger::Wait);
            Ok(policy)
        }
        _ => refuse(),
    }
}
