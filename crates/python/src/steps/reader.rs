//! `thalweg._thalweg._StepReader`: a rank that reads.

use super::options::{Source, distribution, preload, start};
use super::run_broken;
use super::slot::{Slot, interruptible};
use super::view::StepView;
use crate::connection::Connection;
use crate::{error, wait};
use client::Position;
use memory::Deadline;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use step::{Next, Reader, ReaderOptions, StepError};

/// So long one request for the next step may wait.
const SLICE: Duration = Duration::from_secs(1);

/// A rank that reads steps, below `thalweg.steps.Reader`.
#[pyclass(frozen, weakref, module = "thalweg._thalweg", name = "_StepReader")]
pub struct StepReader {
    reader: Slot<Held>,
    /// Keeps the connection while the reader is in use.
    _connection: Arc<Connection>,
    stream: String,
}

struct Held {
    reader: Reader,
    /// The step that was given last: kept, so that it is not released because the program has let
    /// go of it.
    current: Option<Arc<step::StepView>>,
    /// What came for a call that was interrupted.
    came: Option<Came>,
}

enum Came {
    Step(Arc<step::StepView>),
    NotReady(String),
    End { run: u64, broken: Option<String> },
}

#[pymethods]
impl StepReader {
    #[new]
    #[pyo3(signature = (source, stream, /, *, name, distribution, group, rank, ranks, start, latest,
                        session_timeout, open_timeout, preload, preload_bytes_max))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        stream: Option<String>,
        name: String,
        distribution: &str,
        group: Option<String>,
        rank: u32,
        ranks: u32,
        start: &Bound<'_, PyAny>,
        latest: bool,
        session_timeout: f64,
        open_timeout: f64,
        preload: &Bound<'_, PyAny>,
        preload_bytes_max: u64,
    ) -> PyResult<Self> {
        let source = Source::new(source, stream)?;
        source.check_open(py)?;
        let options = ReaderOptions {
            name,
            distribution: self::distribution(py, distribution)?,
            group,
            rank,
            ranks,
            start: self::start(start)?,
            latest,
            session_timeout: wait::number("session_timeout", session_timeout)?,
            open_timeout: wait::number("open_timeout", open_timeout)?,
            preload: self::preload(preload)?,
            preload_bytes_max,
        };
        let connection = Arc::clone(&source.connection);
        let (reader, stream) = interruptible(py, move || {
            let stream = source.open(None)?;
            Ok((stream.reader(options)?, stream.name().to_owned()))
        })?;
        let held = Held {
            reader,
            current: None,
            came: None,
        };
        Ok(Self {
            reader: Slot::new(held),
            _connection: connection,
            stream,
        })
    }

    /// The name of the stream.
    #[getter]
    fn stream(&self) -> &str {
        &self.stream
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.reader.is_closed()
    }

    /// The next step, or the number of the run that has ended. Raises `Timeout`, `RunBroken`.
    #[pyo3(signature = (timeout, /))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let timeout = wait::seconds("timeout", timeout)?;
        let deadline = Deadline::within(timeout);
        let came = self.reader.call(py, move |held, is_stopped| {
            if held.came.is_none() {
                loop {
                    let next = held.reader.next(deadline.left().min(SLICE))?;
                    let waits = matches!(next, Next::NotReady(_));
                    if waits && !deadline.has_passed() && !is_stopped.load(Ordering::Relaxed) {
                        continue;
                    }
                    held.came = match next {
                        Next::Step(view) => Some(Came::Step(Arc::new(view))),
                        Next::End { run, broken } => Some(Came::End { run: run.0, broken }),
                        Next::NotReady(what) if is_stopped.load(Ordering::Relaxed) => {
                            drop(what);
                            None
                        }
                        Next::NotReady(what) => return Ok(Some(Came::NotReady(what))),
                    };
                    break;
                }
            }
            if is_stopped.load(Ordering::Relaxed) {
                // It stays for the next call.
                return Ok(None);
            }
            let came = held.came.take();
            // The reader has released it.
            held.current = match &came {
                Some(Came::Step(view)) => Some(Arc::clone(view)),
                _ => None,
            };
            Ok(came)
        })?;
        match came {
            None => Err(error::new(py, "Closed", "it was closed meanwhile".into())),
            Some(Came::Step(view)) => Ok(Bound::new(py, StepView::new(view))?.into_any()),
            Some(Came::NotReady(what)) => {
                let message = format!("no step of {} within that time: {what}", self.stream);
                Err(error::new(py, "Timeout", message))
            }
            Some(Came::End { run, broken: None }) => Ok(run.into_pyobject(py)?.into_any()),
            Some(Came::End {
                run,
                broken: Some(reason),
            }) => {
                let message = format!("run {run} of {} is broken: {reason}", self.stream);
                Err(run_broken(py, message, run))
            }
        }
    }

    /// Releases a step, if it is the one that was given last, and waits until that is noted.
    #[pyo3(signature = (step, timeout, /))]
    fn release(&self, py: Python<'_>, step: &StepView, timeout: Option<f64>) -> PyResult<()> {
        let timeout = wait::seconds("timeout", timeout)?.unwrap_or(wait::FOREVER);
        let step = step.shared();
        self.reader.call(py, move |held, _| match &held.current {
            Some(current) if Arc::ptr_eq(current, &step) => held.release(timeout),
            _ => Ok(()),
        })
    }

    /// What is read ahead, from the next step on.
    #[pyo3(signature = (wanted, /))]
    fn preload(&self, py: Python<'_>, wanted: &Bound<'_, PyAny>) -> PyResult<()> {
        let wanted = self::preload(wanted)?;
        self.reader.with(py, |held| {
            held.reader.preload(wanted);
            Ok(())
        })
    }

    /// Incarnation and offset of the last record, or an empty list.
    fn position(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let position = self.reader.with(py, |held| Ok(held.reader.position()))?;
        let numbers = |at: Position| vec![at.incarnation.0, at.offset.0];
        Ok(position.map(numbers).unwrap_or_default())
    }

    /// Leaves. The step that was given last is released up to the timeout, or, without one, is
    /// given again.
    #[pyo3(signature = (timeout, /))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = wait::seconds("timeout", timeout)?;
        // While a call waits for the next step, the one before is released already.
        let Some(mut held) = self.reader.close() else {
            return Ok(());
        };
        interruptible(py, move || match timeout {
            Some(timeout) => held.release(timeout),
            None => Ok(()),
        })
    }
}

impl Held {
    /// Releases the step that was given last, if the program has seen it.
    fn release(&mut self, timeout: Duration) -> Result<(), StepError> {
        if self.came.is_none() {
            self.reader.release(timeout)?;
        }
        self.current = None;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let came = match &self.came {
            Some(Came::Step(view)) => Some(view),
            _ => None,
        };
        for view in self.current.iter().chain(came) {
            view.leave_unread();
        }
    }
}

impl Drop for StepReader {
    fn drop(&mut self) {
        let held = self.reader.close();
        if held.is_some() {
            Python::attach(|py| py.detach(|| drop(held)));
        }
    }
}
