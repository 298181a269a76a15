//! `thalweg._thalweg._StepStream`: what is stored of a stream.

use super::options::{Source, stream_options};
use super::slot::interruptible;
use super::view::StepView;
use crate::connection::Connection;
use pyo3::prelude::*;
use std::sync::Arc;
use step::{Run, RunState, Step, Stream};

/// A stream, below `thalweg.steps.runs` and `open_dataset`.
#[pyclass(frozen, weakref, module = "thalweg._thalweg", name = "_StepStream")]
pub struct StepStream {
    stream: Stream,
    /// Keeps the connection while the stream is in use.
    _connection: Arc<Connection>,
}

/// Run, writer, ranks, state, reason; first and last step, or nothing; how many, how many dropped,
/// bytes, first and last time.
type RunInfo = (
    (u64, String, u32, &'static str, String),
    Vec<u64>,
    (u64, u64, u64, u64, u64),
);

#[pymethods]
impl StepStream {
    #[new]
    #[pyo3(signature = (source, stream, /))]
    fn new(py: Python<'_>, source: &Bound<'_, PyAny>, stream: Option<String>) -> PyResult<Self> {
        let source = Source::new(source, stream)?;
        source.check_open(py)?;
        let connection = Arc::clone(&source.connection);
        let stream = interruptible(py, move || source.open(None))?;
        Ok(Self {
            stream,
            _connection: connection,
        })
    }

    /// Makes a stream that is not there.
    #[staticmethod]
    #[pyo3(signature = (driver, stream, /, *, partitions, storage, retention, durability))]
    fn create(
        py: Python<'_>,
        driver: &Bound<'_, PyAny>,
        stream: String,
        partitions: u32,
        storage: String,
        retention: Option<&str>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let source = Source::new(driver, Some(stream))?;
        source.check_open(py)?;
        let options = stream_options(py, partitions, storage, durability, retention)?;
        interruptible(py, move || source.open(Some(&options)).map(drop))
    }

    /// The runs that are stored.
    fn runs(&self, py: Python<'_>) -> PyResult<Vec<RunInfo>> {
        let stream = self.stream.clone();
        let runs = interruptible(py, move || stream.runs())?;
        let runs = runs.into_iter().map(|run| {
            let (state, reason) = match run.state {
                RunState::Open => ("open", String::new()),
                RunState::Closed => ("closed", String::new()),
                RunState::Broken(reason) => ("broken", reason),
            };
            let steps = run.steps.map(|(first, last)| vec![first.0, last.0]);
            (
                (run.run.0, run.writer, run.ranks, state, reason),
                steps.unwrap_or_default(),
                (
                    run.step_count,
                    run.discarded,
                    run.bytes,
                    run.first_time,
                    run.last_time,
                ),
            )
        });
        Ok(runs.collect())
    }

    /// The numbers of the steps of a run that are stored.
    fn steps(&self, py: Python<'_>, run: u64) -> PyResult<Vec<u64>> {
        let stream = self.stream.clone();
        let steps = interruptible(py, move || stream.steps(Run(run)))?;
        Ok(steps.iter().map(|info| info.step.0).collect())
    }

    /// A step that is stored.
    fn step(&self, py: Python<'_>, run: u64, step: u64) -> PyResult<StepView> {
        let stream = self.stream.clone();
        let view = interruptible(py, move || stream.step(Run(run), Step(step)))?;
        Ok(StepView::new(Arc::new(view)))
    }
}
