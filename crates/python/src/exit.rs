//! What is done when the interpreter ends.

use crate::{connection, error, over, wait};
use pyo3::prelude::*;

/// Closes every driver that is open, waiting up to `timeout` seconds in all. What
/// went wrong and was not seen by the program is returned in words, else None.
#[pyfunction]
#[pyo3(signature = (timeout, /))]
pub fn _close_all(py: Python<'_>, timeout: f64) -> PyResult<Option<String>> {
    let timeout = wait::number("timeout", timeout)?;
    let (open, draining) = (connection::take_open(), connection::take_draining());
    if open.is_empty() && draining.is_empty() {
        return Ok(None);
    }
    over::begin();
    let close = move || Ok(connection::close_all(open, draining, timeout));
    let failure = wait::interruptible(py, close)?.err();
    let unseen = failure.filter(|error| !over::was_told(py, error));
    Ok(unseen.map(|error| error::raise(py, error).value(py).to_string()))
}
