//! What the server says of topics, as objects of `thalweg.descriptions`.

use crate::json;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use wire::message;
use wire::record;

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static DESCRIPTIONS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    DESCRIPTIONS
        .get_or_try_init(py, || {
            py.import("thalweg.descriptions")
                .map(|module| module.unbind())
        })?
        .bind(py)
        .getattr(name)
}

fn object<'py>(py: Python<'py>, text: &str, what: &str) -> PyResult<Bound<'py, PyAny>> {
    if text.is_empty() {
        return Ok(PyDict::new(py).into_any());
    }
    json::loads(py, text.as_bytes(), || what.to_owned())
}

/// A `Gap`.
pub fn gap<'py>(
    py: Python<'py>,
    partition: wire::PartitionIndex,
    gap: record::Gap,
) -> PyResult<Bound<'py, PyAny>> {
    class(py, "Gap")?.call1((
        partition.0,
        gap.incarnation.0,
        gap.first.0,
        gap.end.0,
        gap.reason.name(),
        gap.time,
    ))
}

/// Warns of a `Gap` of a topic, on behalf of the code that called.
pub fn warn_of(py: Python<'_>, topic: &str, gap: &Bound<'_, PyAny>) -> PyResult<()> {
    let text = format!("topic {topic}, {}", gap.str()?);
    let category = py.import("thalweg.exceptions")?.getattr("GapWarning")?;
    let warnings = py.import("warnings")?;
    warnings.call_method1("warn", (text, category, 1)).map(drop)
}

/// A `Lag`.
pub fn lag<'py>(py: Python<'py>, lag: &client::Lag) -> PyResult<Bound<'py, PyAny>> {
    let partitions = PyDict::new(py);
    for (partition, events) in &lag.partitions {
        partitions.set_item(partition.0, events)?;
    }
    class(py, "Lag")?.call1((
        &lag.name,
        lag.kind.name(),
        lag.members,
        lag.events,
        partitions,
    ))
}

/// A `NodeDescription`.
pub fn node<'py>(py: Python<'py>, node: &message::NodeDescription) -> PyResult<Bound<'py, PyAny>> {
    class(py, "NodeDescription")?.call1((
        node.node.0,
        node.state.name(),
        node.labels.0.clone(),
        node.shard,
        node.topics,
        PyTuple::new(py, &node.endpoints.0)?,
        node.directory.to_string(),
    ))
}

/// A `Cursor`.
pub fn cursor(py: Python<'_>, cursor: message::Cursor) -> PyResult<Bound<'_, PyAny>> {
    class(py, "Cursor")?.call1((
        cursor.consumer,
        cursor.partition.0,
        cursor.position.incarnation.0,
        cursor.position.offset.0,
    ))
}

/// A `PartitionDescription`.
pub fn partition<'py>(
    py: Python<'py>,
    partition: &message::PartitionDescription,
) -> PyResult<Bound<'py, PyAny>> {
    let fields = PyDict::new(py);
    fields.set_item("index", partition.partition.0)?;
    fields.set_item("storage", &partition.storage.kind)?;
    let config = object(py, &partition.storage.config, "the storage's configuration")?;
    fields.set_item("storage_config", config)?;
    fields.set_item("durability", partition.durability.to_string())?;
    fields.set_item("incarnation", partition.incarnation.0)?;
    fields.set_item("first", partition.first.0)?;
    fields.set_item("end", partition.watermarks.end.0)?;
    fields.set_item("durable", partition.watermarks.durable.0)?;
    fields.set_item("committed", partition.watermarks.committed.0)?;
    fields.set_item("bytes", partition.bytes)?;
    fields.set_item("failure", &partition.failure)?;
    class(py, "PartitionDescription")?.call((), Some(&fields))
}

/// The same of several, as a tuple.
pub fn partitions<'py>(
    py: Python<'py>,
    partitions: &[message::PartitionDescription],
) -> PyResult<Bound<'py, PyTuple>> {
    let described: Vec<_> = partitions
        .iter()
        .map(|description| partition(py, description))
        .collect::<PyResult<_>>()?;
    PyTuple::new(py, described)
}

/// A `TopicDescription`.
pub fn topic(py: Python<'_>, topic: message::TopicDescription) -> PyResult<Bound<'_, PyAny>> {
    class(py, "TopicDescription")?.call1((
        topic.name,
        topic.topic.to_string(),
        object(py, &topic.definition, "the topic's definition")?,
        partitions(py, &topic.partitions)?,
    ))
}
