//! `thalweg._thalweg`, the native half of the Python package. What users see
//! is in `python/thalweg`.

use pyo3::prelude::*;

/// Adds to the module what Python code imports from it.
#[pymodule(gil_used = false)]
fn _thalweg(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
