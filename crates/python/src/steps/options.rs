//! Options, as `thalweg.steps` gives them.

use super::{invalid, raise};
use crate::connection::Connection;
use crate::driver::Driver;
use crate::error;
use crate::options::durability;
use crate::topic::Topic;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::sync::Arc;
use step::{
    Along, DType, Distribution, Preload, Range, Run, Selection, StepError, StepStart, Stream,
    StreamOptions,
};
use topic::Definition;
use wire::{Durability, ErrorCode, Incarnation, Offset};

/// A stream that is to be opened, of a driver or by its topic.
pub struct Source {
    pub connection: Arc<Connection>,
    stream: Named,
}

enum Named {
    Topic(client::TopicHandle),
    Name(String),
}

impl Source {
    /// Of a driver and a name, or a topic and no name.
    pub fn new(source: &Bound<'_, PyAny>, name: Option<String>) -> PyResult<Self> {
        let py = source.py();
        let refuse = |reason: &str| Err(error::new(py, "InvalidArgument", reason.to_owned()));
        if let Ok(topic) = source.cast::<Topic>() {
            if name.is_some() {
                return refuse("a topic is a stream by itself: no name is given beside it");
            }
            let topic = topic.get();
            return Ok(Self {
                connection: Arc::clone(topic.connection()),
                stream: Named::Topic(topic.handle().clone()),
            });
        }
        let Ok(driver) = source.cast::<Driver>() else {
            return refuse("a stream is of a thalweg.Driver and its name, or a thalweg.Topic");
        };
        match name {
            None => refuse("the name of the stream is missing"),
            Some(name) => Ok(Self {
                connection: Arc::clone(driver.get().connection()),
                stream: Named::Name(name),
            }),
        }
    }

    pub fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        match self.connection.is_closed() {
            true => Err(error::new(py, "Closed", "the driver is closed".into())),
            false => Ok(()),
        }
    }

    /// Opens the stream, and makes it if it is not there and `options` say how.
    pub fn open(&self, options: Option<&StreamOptions>) -> Result<Stream, StepError> {
        let name = match &self.stream {
            Named::Topic(topic) => return Stream::of(topic.clone()),
            Named::Name(name) => name,
        };
        let driver = self.connection.driver();
        match (Stream::open(driver, name), options) {
            (Err(error), Some(options)) if error.code() == Some(ErrorCode::UnknownTopic) => {
                match Stream::create(driver, name, options) {
                    // Another rank was first.
                    Err(error) if error.code() == Some(ErrorCode::TopicExists) => {
                        Stream::open(driver, name)
                    }
                    made => made,
                }
            }
            (opened, _) => opened,
        }
    }
}

/// How a stream is made. `retention` is the JSON of a definition that has it.
pub fn stream_options(
    py: Python<'_>,
    partitions: u32,
    storage: String,
    durability_name: Option<&str>,
    retention: Option<&str>,
) -> PyResult<StreamOptions> {
    let mut options = StreamOptions {
        parts: partitions,
        storage,
        durability: level(py, durability_name)?,
        ..StreamOptions::default()
    };
    if let Some(retention) = retention {
        let definition = Definition::from_json(retention)
            .map_err(|reason| error::new(py, "InvalidTopic", reason.to_string()))?;
        options.retention = definition.retention();
    }
    Ok(options)
}

pub fn level(py: Python<'_>, name: Option<&str>) -> PyResult<Option<Durability>> {
    durability(py, name)
}

/// Where a reader begins.
pub fn start(start: &Bound<'_, PyAny>) -> PyResult<StepStart> {
    let py = start.py();
    if let Ok(text) = start.cast::<PyString>() {
        let known = match text.to_str()? {
            "cursor" => Some(StepStart::Cursor),
            "oldest" => Some(StepStart::Oldest),
            "newest" => Some(StepStart::Newest),
            "next" => Some(StepStart::Next),
            "open" => Some(StepStart::OpenRun),
            _ => None,
        };
        if let Some(known) = known {
            return Ok(known);
        }
    }
    if let Ok(pair) = start.cast::<PyTuple>() {
        if let Ok((kind, run)) = pair.extract::<(String, u64)>()
            && kind == "run"
        {
            return Ok(StepStart::Run(Run(run)));
        }
        if let Ok((kind, incarnation, offset)) = pair.extract::<(String, u64, u64)>()
            && kind == "at"
        {
            return Ok(StepStart::At(client::Position {
                incarnation: Incarnation(incarnation),
                offset: Offset(offset),
            }));
        }
    }
    let message = format!(
        "start is \"cursor\", \"oldest\", \"newest\", \"next\", \"open\", (\"run\", number) or a \
         reader's position, not {start}"
    );
    Err(error::new(py, "InvalidArgument", message))
}

/// A selection: the block, or None for the whole; and start, count and step along each dimension,
/// or None for all.
pub type Wanted = (Option<u64>, Option<Vec<(u64, u64, u64)>>);

pub fn selection((block, along): Wanted) -> Selection {
    let along = along.map(|along| {
        let ranges = along.into_iter();
        let ranges = ranges.map(|(start, count, step)| Along::Range(Range { start, count, step }));
        ranges.collect::<Vec<_>>()
    });
    match (block, along) {
        (None, None) => Selection::Whole,
        (None, Some(along)) => Selection::Box(along),
        (Some(block), None) => Selection::Block(block),
        (Some(block), Some(along)) => Selection::BlockBox { block, along },
    }
}

/// What is read ahead: None, "all", or a list of names and selections.
pub fn preload(wanted: &Bound<'_, PyAny>) -> PyResult<Preload> {
    if wanted.is_none() {
        return Ok(Preload::Nothing);
    }
    if wanted.cast::<PyString>().is_ok() {
        return Ok(Preload::All);
    }
    let wanted = wanted.extract::<Vec<(String, Wanted)>>()?.into_iter();
    let selected = wanted.map(|(name, wanted)| (name, selection(wanted)));
    Ok(Preload::Selected(selected.collect()))
}

pub fn dtype(py: Python<'_>, text: &str) -> PyResult<DType> {
    DType::parse(text).map_err(|reason| raise(py, invalid(reason)))
}

/// Which groups of readers are given a step.
pub fn distribution(py: Python<'_>, name: &str) -> PyResult<Distribution> {
    match name {
        "all" => Ok(Distribution::All),
        "round_robin" => Ok(Distribution::RoundRobin),
        "on_demand" => Ok(Distribution::OnDemand),
        other => Err(error::new(
            py,
            "InvalidArgument",
            format!("distribution is \"all\", \"round_robin\" or \"on_demand\", not {other:?}"),
        )),
    }
}
