//! `thalweg._thalweg._StepView`: a step, as it is read.

use super::options::{Wanted, selection};
use super::raise;
use super::slot::interruptible;
use crate::lend;
use client::Target;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use step::{Attributes, GetTarget, ShapeKind};

/// A step, below `thalweg.steps.Step`.
#[pyclass(frozen, weakref, module = "thalweg._thalweg", name = "_StepView")]
pub struct StepView(Arc<step::StepView>);

/// Name, dtype, whether it is a list, and bytes.
pub type Attribute<'py> = (String, String, bool, Bound<'py, PyBytes>);

/// Name, kind, dtype, shape, and how many blocks.
type Variable = (String, &'static str, String, Vec<u64>, usize);

/// Rank, start, shape; least and greatest element, or no bytes.
type Block<'py> = (
    u32,
    Vec<u64>,
    Vec<u64>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
);

pub fn attributes<'py>(py: Python<'py>, attributes: &Attributes) -> Vec<Attribute<'py>> {
    let all = attributes.iter().map(|(name, value)| {
        (
            name.to_owned(),
            value.dtype().as_str().to_owned(),
            value.is_list(),
            PyBytes::new(py, value.bytes()),
        )
    });
    all.collect()
}

impl StepView {
    pub fn new(view: Arc<step::StepView>) -> Self {
        Self(view)
    }

    pub fn shared(&self) -> Arc<step::StepView> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl StepView {
    /// The number of its run.
    #[getter]
    fn run(&self) -> u64 {
        self.0.run().0
    }

    /// Its number in the run.
    #[getter]
    fn number(&self) -> u64 {
        self.0.number().0
    }

    /// The name of the writing program.
    #[getter]
    fn writer(&self) -> &str {
        self.0.writer()
    }

    /// How many ranks have written it.
    #[getter]
    fn ranks(&self) -> u32 {
        self.0.writer_ranks()
    }

    /// When it was committed, nanoseconds since 1970.
    #[getter]
    fn time(&self) -> u64 {
        self.0.time()
    }

    /// How many steps were passed over.
    #[getter]
    fn skipped(&self) -> u64 {
        self.0.skipped()
    }

    /// How many records retention has taken unread.
    #[getter]
    fn lost(&self) -> u64 {
        self.0.lost()
    }

    /// Bytes of its parts.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.bytes()
    }

    /// All attributes.
    fn attributes<'py>(&self, py: Python<'py>) -> Vec<Attribute<'py>> {
        attributes(py, self.0.attributes())
    }

    /// The names of the variables.
    fn names(&self) -> Vec<String> {
        self.0.names().map(str::to_owned).collect()
    }

    /// A variable.
    fn variable(&self, py: Python<'_>, name: &str) -> PyResult<Variable> {
        let info = self.0.variable(name).map_err(|failed| raise(py, failed))?;
        let kind = match info.kind {
            ShapeKind::Value => "value",
            ShapeKind::Array => "array",
            ShapeKind::Joined => "joined",
            ShapeKind::LocalValue => "local value",
            ShapeKind::LocalArray => "local",
        };
        let dtype = info.dtype.as_str().to_owned();
        Ok((info.name, kind, dtype, info.shape, info.block_count))
    }

    /// The blocks of a variable.
    fn blocks<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Vec<Block<'py>>> {
        let layout = py.detach(|| self.0.layout(name));
        let layout = layout.map_err(|failed| raise(py, failed))?;
        let blocks = (0..layout.block_count()).filter_map(|index| layout.block(index));
        let blocks = blocks.map(|block| {
            let (min, max) = block.extremes.unwrap_or_default();
            (
                block.rank,
                block.start.to_vec(),
                block.count.to_vec(),
                PyBytes::new(py, min),
                PyBytes::new(py, max),
            )
        });
        Ok(blocks.collect())
    }

    /// Least and greatest element of a variable; no bytes if they are not known.
    fn extremes<'py>(
        &self,
        py: Python<'py>,
        name: &str,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let extremes = py.detach(|| self.0.extremes(name));
        let extremes = extremes.map_err(|failed| raise(py, failed))?;
        let (min, max) = extremes
            .map(|both| (both.min, both.max))
            .unwrap_or_default();
        Ok((PyBytes::new(py, &min), PyBytes::new(py, &max)))
    }

    /// The values of a variable that is one, or one of each rank.
    fn values<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let values = self.0.values(name).map_err(|failed| raise(py, failed))?;
        Ok(values.iter().map(|value| PyBytes::new(py, value)).collect())
    }

    /// Reads selections into buffers, with one request: of each, how many elements are in no block.
    fn get(
        &self,
        py: Python<'_>,
        wanted: Vec<(String, Wanted, Bound<'_, PyAny>)>,
    ) -> PyResult<Vec<u64>> {
        let mut gets = Vec::with_capacity(wanted.len());
        for (name, wanted, buffer) in wanted {
            let bytes = buffer.getattr("nbytes")?.extract()?;
            gets.push(GetTarget {
                name,
                selection: selection(wanted),
                into: Target::from(lend::ReceiveBuffer::new(&buffer, bytes)?),
            });
        }
        let view = Arc::clone(&self.0);
        interruptible(py, move || {
            let read = view.get_targets(gets)?;
            Ok(read.iter().map(|(_, covered)| covered.uncovered).collect())
        })
    }
}
