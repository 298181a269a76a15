//! `thalweg.DataView`: which bytes of an event's data are wanted.

use crate::error;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyString};
use wire::view::{self, Segment, Stride};

/// Selected bytes of one event's data, in the order in which they were asked for.
///
/// A data selector gets the view of the whole and returns a view of what it
/// wants. `range`, `stride`, `segments` and `rows` nest in any order: each
/// counts bytes within the view that it is called on. One that leaves its
/// view's bounds raises `ValueError`. Views don't change and hold no data.
#[pyclass(frozen, eq, module = "thalweg", name = "DataView")]
#[derive(PartialEq, Clone)]
pub struct DataView(pub view::DataView);

#[pymethods]
impl DataView {
    /// A view of all of `size` bytes.
    #[new]
    #[pyo3(signature = (size, /))]
    fn new(size: u64) -> Self {
        Self(view::DataView::whole(size))
    }

    /// How many bytes are selected.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The selection as `(offset, size)` pairs, bytes of the event's whole data.
    #[getter]
    fn parts(&self) -> Vec<(u64, u64)> {
        let parts = self.0.segments().iter();
        parts
            .map(|segment| (segment.offset, segment.bytes))
            .collect()
    }

    /// The `size` bytes of this view that begin at `offset`.
    #[pyo3(signature = (offset, size))]
    fn range(&self, py: Python<'_>, offset: u64, size: u64) -> PyResult<Self> {
        self.made(py, self.0.range(offset, size))
    }

    /// `count` blocks of `block` bytes each, the first at `offset`, with `gap`
    /// bytes between the end of one and the start of the next.
    #[pyo3(signature = (*, count, block, offset = 0, gap = 0))]
    fn stride(
        &self,
        py: Python<'_>,
        count: u64,
        block: u64,
        offset: u64,
        gap: u64,
    ) -> PyResult<Self> {
        let stride = Stride {
            offset,
            count,
            block_bytes: block,
            gap_bytes: gap,
        };
        self.made(py, self.0.stride(stride))
    }

    /// The listed `(offset, size)` parts of this view, in the order of the list.
    #[pyo3(signature = (parts, /))]
    fn segments(&self, py: Python<'_>, parts: Vec<(u64, u64)>) -> PyResult<Self> {
        let parts: Vec<_> = parts
            .into_iter()
            .map(|(offset, bytes)| Segment { offset, bytes })
            .collect();
        self.made(py, self.0.unstructured(&parts))
    }

    /// Rows of an array that lies in this view in C order.
    ///
    /// `shape` is the array's shape, `(rows, …)`; `dtype` anything that numpy
    /// takes for a dtype, or the size of one element in bytes; `rows` a row's
    /// index, a slice, or a sequence of indices, along the first axis. What
    /// is selected has the shape `(len(rows), *shape[1:])`, for one index
    /// `shape[1:]`. Negative indices count from the end.
    #[pyo3(signature = (shape, dtype, rows))]
    fn rows(
        &self,
        py: Python<'_>,
        shape: Vec<u64>,
        dtype: &Bound<'_, PyAny>,
        rows: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let Some((&row_count, inner)) = shape.split_first() else {
            return Err(PyValueError::new_err("an array of shape () has no rows"));
        };
        let row_bytes = inner
            .iter()
            .try_fold(item_bytes(dtype)?, |bytes, &length| {
                bytes.checked_mul(length)
            })
            .ok_or_else(|| PyValueError::new_err("a row of this shape has 2^64 bytes or more"))?;
        if row_count
            .checked_mul(row_bytes)
            .is_none_or(|bytes| bytes > self.0.bytes())
        {
            return Err(PyValueError::new_err(format!(
                "an array of shape {shape:?} with {row_bytes} bytes a row is larger than this \
                 view of {} bytes",
                self.0.bytes()
            )));
        }
        let parts: Vec<_> = row_indices(rows, row_count)?
            .into_iter()
            .map(|row| Segment {
                offset: row * row_bytes,
                bytes: row_bytes,
            })
            .collect();
        self.made(py, self.0.unstructured(&parts))
    }

    fn __len__(&self) -> usize {
        // A view of more than 2^63 bytes is not possible on this machine.
        self.0.bytes() as usize
    }

    fn __repr__(&self) -> String {
        let parts = self.0.segments().len();
        format!("DataView({} bytes in {parts} parts)", self.0.bytes())
    }
}

impl DataView {
    fn made(
        &self,
        py: Python<'_>,
        view: Result<view::DataView, view::ViewError>,
    ) -> PyResult<Self> {
        view.map(Self)
            .map_err(|reason| error::new(py, "InvalidArgument", reason.to_string()))
    }
}

fn item_bytes(dtype: &Bound<'_, PyAny>) -> PyResult<u64> {
    // A bool is an int to Python, but as a dtype it is numpy's bool.
    if let Ok(bytes) = dtype.extract::<u64>() {
        return Ok(bytes);
    }
    let itemsize = match dtype.is_instance_of::<PyString>() {
        true => None,
        false => dtype
            .getattr_opt("itemsize")?
            .and_then(|size| size.extract::<u64>().ok()),
    };
    match itemsize {
        Some(bytes) => Ok(bytes),
        None => {
            let numpy = dtype.py().import("numpy")?;
            numpy
                .call_method1("dtype", (dtype,))?
                .getattr("itemsize")?
                .extract()
        }
    }
}

fn row_indices(rows: &Bound<'_, PyAny>, row_count: u64) -> PyResult<Vec<u64>> {
    if let Ok(slice) = rows.cast::<PySlice>() {
        let indices = slice.indices(row_count as isize)?;
        let at = |step: usize| indices.start + step as isize * indices.step;
        return Ok((0..indices.slicelength)
            .map(|step| at(step) as u64)
            .collect());
    }
    if let Ok(row) = rows.extract::<i64>() {
        return Ok(vec![row_index(row, row_count)?]);
    }
    let iterator = rows
        .try_iter()
        .map_err(|_| PyTypeError::new_err("rows is an index, a slice or a sequence of indices"))?;
    iterator
        .map(|row| row_index(row?.extract()?, row_count))
        .collect()
}

fn row_index(row: i64, row_count: u64) -> PyResult<u64> {
    let index = if row < 0 {
        row_count.checked_sub(row.unsigned_abs())
    } else {
        Some(row as u64).filter(|row| *row < row_count)
    };
    index.ok_or_else(|| {
        PyValueError::new_err(format!("row {row} is outside an array of {row_count} rows"))
    })
}
