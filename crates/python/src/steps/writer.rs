//! `thalweg._thalweg._StepWriter`: a rank that writes.

use super::memory::StepMemory;
use super::options::{Source, distribution, dtype, level, stream_options};
use super::slot::{Slot, interruptible};
use super::{invalid, raise};
use crate::connection::Connection;
use crate::{error, lend, wait};
use ::memory::Deadline;
use client::ClientError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use step::{
    AttributeValue, Closed, Keep, Place, Put, ShapeKind, StepError, Wait, WhenFull, Writer,
    WriterOptions,
};

/// A wait that was interrupted goes on for so long.
const SLICE: Duration = Duration::from_secs(1);

/// A rank that writes steps, below `thalweg.steps.Writer`.
#[pyclass(frozen, weakref, module = "thalweg._thalweg", name = "_StepWriter")]
pub struct StepWriter {
    writer: Slot<Writer>,
    /// Keeps the connection while the writer is in use.
    _connection: Arc<Connection>,
    run: u64,
    stream: String,
}

/// Where a block belongs: shape and start, or the dimension along which blocks are joined. A local
/// block belongs nowhere.
#[derive(FromPyObject)]
enum Belongs {
    Array(Vec<u64>, Vec<u64>),
    #[pyo3(transparent)]
    Joined(u32),
}

fn place(belongs: Option<&Belongs>) -> Place<'_> {
    match belongs {
        Some(Belongs::Array(shape, start)) => Place::Array { shape, start },
        Some(Belongs::Joined(dimension)) => Place::Joined(*dimension),
        None => Place::Local,
    }
}

fn wait_for(py: Python<'_>, name: &str) -> PyResult<Wait> {
    match name {
        "begun" => Ok(Wait::Begun),
        "accepted" => Ok(Wait::Accepted),
        "committed" => Ok(Wait::Committed),
        other => Err(error::new(
            py,
            "InvalidArgument",
            format!("wait is \"accepted\" or \"committed\", not {other:?}"),
        )),
    }
}

/// Waits for so long, and not much longer than until it is stopped.
fn in_slices<R>(
    timeout: Duration,
    is_stopped: &AtomicBool,
    mut wait: impl FnMut(Duration) -> Result<R, StepError>,
) -> Result<R, StepError> {
    let deadline = Deadline::after(timeout);
    let mut is_first = true;
    loop {
        let slice = Deadline::after(deadline.left().min(SLICE));
        match wait(slice.left()) {
            // A server says a little before the end of a slice that there is none. Long before
            // it, what was waited for has failed by a deadline of its own.
            Err(error)
                if error.is_timeout()
                    && slice.left() < SLICE / 2
                    && deadline.left() > SLICE / 2
                    && !is_stopped.load(Ordering::Relaxed) =>
            {
                is_first = false;
            }
            // Its words know of the last slice alone.
            Err(StepError::Client(ClientError::Timeout { what })) if !is_first => {
                let what = format!("{what}; {:.1} s in all", timeout.as_secs_f64());
                return Err(ClientError::Timeout { what }.into());
            }
            outcome => return outcome,
        }
    }
}

#[pymethods]
impl StepWriter {
    #[new]
    #[pyo3(signature = (source, stream, /, *, name, rank, ranks, queue_steps, queue_bytes, when_full, distribution,
                        readers, session_timeout, open_timeout, timeout, close_timeout, keep, held_bytes,
                        partitions, storage, durability, retention))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        stream: Option<String>,
        name: String,
        rank: u32,
        ranks: u32,
        queue_steps: u32,
        queue_bytes: u64,
        when_full: &str,
        distribution: &str,
        readers: u32,
        session_timeout: f64,
        open_timeout: f64,
        timeout: f64,
        close_timeout: f64,
        keep: &str,
        held_bytes: u64,
        partitions: u32,
        storage: String,
        durability: Option<&str>,
        retention: Option<&str>,
    ) -> PyResult<Self> {
        let source = Source::new(source, stream)?;
        source.check_open(py)?;
        let made = stream_options(py, partitions, storage, durability, retention)?;
        let when_full = match when_full {
            "block" => WhenFull::Block,
            "discard" => WhenFull::Discard,
            other => {
                let reason = format!("when_full is \"block\" or \"discard\", not {other:?}");
                return Err(error::new(py, "InvalidArgument", reason));
            }
        };
        let keep = match keep {
            "server" => Keep::Server,
            "writer" => Keep::Writer {
                bytes_max: held_bytes,
            },
            other => {
                let reason = format!("keep is \"server\" or \"writer\", not {other:?}");
                return Err(error::new(py, "InvalidArgument", reason));
            }
        };
        let options = WriterOptions {
            name,
            rank,
            ranks,
            queue_steps,
            queue_bytes,
            when_full,
            distribution: self::distribution(py, distribution)?,
            readers_min: readers,
            session_timeout: wait::number("session_timeout", session_timeout)?,
            open_timeout: wait::number("open_timeout", open_timeout)?,
            timeout: wait::number("timeout", timeout)?,
            close_timeout: wait::number("close_timeout", close_timeout)?,
            durability: level(py, durability)?,
            keep,
            ..WriterOptions::default()
        };
        let connection = Arc::clone(&source.connection);
        let (writer, stream) = interruptible(py, move || {
            let stream = source.open(Some(&made))?;
            Ok((stream.writer(options)?, stream.name().to_owned()))
        })?;
        Ok(Self {
            run: writer.run().0,
            writer: Slot::new(writer),
            _connection: connection,
            stream,
        })
    }

    /// The number of its run.
    #[getter]
    fn run(&self) -> u64 {
        self.run
    }

    /// The name of the stream.
    #[getter]
    fn stream(&self) -> &str {
        &self.stream
    }

    /// Whether it is closed, or given up.
    #[getter]
    fn closed(&self) -> bool {
        self.writer.is_closed()
    }

    /// The step that is being written, or the next one.
    fn step(&self, py: Python<'_>) -> PyResult<u64> {
        self.writer.with(py, |writer| Ok(writer.step().0))
    }

    /// Begins a step, which is pinned if that is wanted: its number.
    fn begin(&self, py: Python<'_>, pin: bool) -> PyResult<u64> {
        self.writer.with(py, move |writer| {
            let step = writer.begin_step()?;
            if pin && let Err(error) = writer.pin_step() {
                writer.drop_step()?;
                return Err(error);
            }
            Ok(step.0)
        })
    }

    /// Gives up the step that is begun.
    fn drop_step(&self, py: Python<'_>) -> PyResult<()> {
        self.writer.with(py, Writer::drop_step)
    }

    /// Puts a block of bytes that lie in one piece: copied, or lent.
    #[pyo3(signature = (name, data, dtype, belongs, count, extremes, borrow, /))]
    #[allow(clippy::too_many_arguments)]
    fn put(
        &self,
        py: Python<'_>,
        name: &str,
        data: &Bound<'_, PyAny>,
        dtype: &str,
        belongs: Option<Belongs>,
        count: Vec<u64>,
        extremes: bool,
        borrow: bool,
    ) -> PyResult<()> {
        let dtype = self::dtype(py, dtype)?;
        let payload = lend::Payload::new(Some(data), borrow)?;
        let put = Put {
            name,
            dtype: &dtype,
            place: place(belongs.as_ref()),
            count: &count,
            with_extremes: extremes,
        };
        let outcome = self.writer.with(py, |writer| match &payload {
            lend::Payload::Held(held) => match held.as_slice() {
                [held] => writer.put(&put, held.as_slice()),
                _ => Err(invalid("a block is one buffer")),
            },
            lend::Payload::Lent(lent) => match lent.as_slice() {
                [lent] => writer.put_owned(&put, lent.clone()),
                _ => Err(invalid("a block is one buffer")),
            },
        });
        lend::giving_back_at_once(py, || drop(payload));
        outcome
    }

    /// Memory of so many bytes for a block, as a `memoryview`.
    fn memory<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        let memory = self.writer.with(py, |writer| Ok(writer.allocate(bytes)))?;
        lend::view_of(Bound::new(py, StepMemory::new(memory))?.as_any())
    }

    /// Puts a block that is filled until the step is ended.
    #[pyo3(signature = (name, memory, dtype, belongs, count, extremes, /))]
    #[allow(clippy::too_many_arguments)]
    fn put_memory(
        &self,
        py: Python<'_>,
        name: &str,
        memory: &Bound<'_, PyAny>,
        dtype: &str,
        belongs: Option<Belongs>,
        count: Vec<u64>,
        extremes: bool,
    ) -> PyResult<()> {
        let dtype = self::dtype(py, dtype)?;
        let put = Put {
            name,
            dtype: &dtype,
            place: place(belongs.as_ref()),
            count: &count,
            with_extremes: extremes,
        };
        let shown = memory.getattr("obj")?;
        let data = shown.cast::<StepMemory>()?.get().bytes();
        self.writer
            .with(py, |writer| writer.put_filled_later(&put, data))
    }

    /// Puts a value.
    #[pyo3(signature = (name, dtype, value, local, /))]
    fn put_value(
        &self,
        py: Python<'_>,
        name: &str,
        dtype: &str,
        value: &[u8],
        local: bool,
    ) -> PyResult<()> {
        let dtype = self::dtype(py, dtype)?;
        let kind = match local {
            true => ShapeKind::LocalValue,
            false => ShapeKind::Value,
        };
        self.writer
            .with(py, |writer| writer.put_value(name, kind, &dtype, value))
    }

    /// Sets an attribute.
    #[pyo3(signature = (name, dtype, is_list, value, /))]
    fn set_attribute(
        &self,
        py: Python<'_>,
        name: &str,
        dtype: &str,
        is_list: bool,
        value: &[u8],
    ) -> PyResult<()> {
        let dtype = self::dtype(py, dtype)?;
        let value = AttributeValue::raw(dtype, is_list, value.to_vec());
        let value = value.map_err(|failed| raise(py, failed))?;
        self.writer
            .with(py, |writer| writer.set_attribute(name, value))
    }

    /// All attributes as they are now: name, dtype, whether it is a list, and bytes.
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Vec<super::view::Attribute<'py>>> {
        let attributes = self
            .writer
            .with(py, |writer| Ok(writer.attributes().clone()))?;
        Ok(super::view::attributes(py, &attributes))
    }

    /// Ends the step: its number, and why it was dropped, or an empty text.
    fn end(&self, py: Python<'_>, wait: &str) -> PyResult<(u64, String)> {
        let wait = wait_for(py, wait)?;
        let ended = self.writer.call(py, move |writer, is_stopped| {
            let timeout = writer.options().timeout;
            let mut is_begun = false;
            in_slices(timeout, is_stopped, |slice| {
                if is_begun && !writer.is_ending() {
                    // It was sent in a slice before this one.
                    return writer.wait(wait, slice);
                }
                is_begun = true;
                writer.end_step_within(wait, Some(slice))
            })
        })?;
        Ok((ended.step.0, ended.discarded.unwrap_or_default()))
    }

    /// Waits for the step that was ended last.
    #[pyo3(signature = (wait, timeout, /))]
    fn wait(&self, py: Python<'_>, wait: &str, timeout: Option<f64>) -> PyResult<(u64, String)> {
        let wait = wait_for(py, wait)?;
        let timeout = wait::seconds("timeout", timeout)?;
        let ended = self.writer.call(py, move |writer, is_stopped| {
            if writer.is_ending() {
                let timeout = writer.options().timeout;
                in_slices(timeout, is_stopped, |slice| match writer.is_ending() {
                    true => writer.end_step_within(Wait::Begun, Some(slice)),
                    false => writer.wait(Wait::Begun, slice),
                })?;
            }
            let timeout = timeout.unwrap_or(writer.options().timeout);
            in_slices(timeout, is_stopped, |slice| writer.wait(wait, slice))
        })?;
        Ok((ended.step.0, ended.discarded.unwrap_or_default()))
    }

    /// Closes the run for this rank. Says which readers of a stream in memory are behind.
    #[pyo3(signature = (timeout, /))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        if self.writer.is_closed() {
            return Ok(None);
        }
        let timeout = wait::seconds("timeout", timeout)?;
        self.writer.call(py, move |writer, is_stopped| {
            let timeout = timeout.unwrap_or(writer.options().timeout);
            in_slices(timeout, is_stopped, |slice| writer.close_run(slice))
        })?;
        let closed = self.writer.call(py, move |writer, is_stopped| {
            let timeout = writer.options().close_timeout;
            match in_slices(timeout, is_stopped, |slice| writer.await_readers(slice)) {
                Err(StepError::Client(ClientError::Timeout { what })) => {
                    Ok(writer.leave_readers(what))
                }
                outcome => outcome,
            }
        })?;
        self.give_up(py);
        Ok(match closed {
            Closed::Kept | Closed::Released => None,
            Closed::Behind(who) => Some(who),
        })
    }

    /// Lets go of the run without closing it.
    fn give_up(&self, py: Python<'_>) {
        let writer = self.writer.close();
        py.detach(|| drop(writer));
        lend::release_returned(py);
    }
}

impl Drop for StepWriter {
    fn drop(&mut self) {
        let writer = self.writer.close();
        if writer.is_some() {
            Python::attach(|py| py.detach(|| drop(writer)));
        }
    }
}
