//! Metadata of Python as bytes, and back.

use crate::error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMemoryView, PyString};

/// The functions of `thalweg._json`, looked up once.
struct Functions {
    dumps: Py<PyAny>,
    dumps_anything: Py<PyAny>,
    loads: Py<PyAny>,
}

fn functions(py: Python<'_>) -> PyResult<&'static Functions> {
    static FUNCTIONS: PyOnceLock<Functions> = PyOnceLock::new();
    FUNCTIONS.get_or_try_init(py, || {
        let module = py.import("thalweg._json")?;
        let function = |name| module.getattr(name).map(Bound::unbind);
        Ok(Functions {
            dumps: function("dumps")?,
            dumps_anything: function("dumps_anything")?,
            loads: function("loads")?,
        })
    })
}

/// Has what metadata needs imported now: whoever connects waits anyway, and the
/// first event is to cost no more than others.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    functions(py).map(drop)
}

/// Metadata as given to `push`, with the object that holds its bytes.
pub enum Metadata<'a, 'py> {
    /// There is none.
    None,
    /// Text of the caller.
    Text(&'a Bound<'py, PyString>),
    /// Bytes of the caller.
    Bytes(&'a Bound<'py, PyBytes>),
    /// Bytes that we made: JSON, or a copy of other memory of the caller.
    Made(Bound<'py, PyBytes>),
}

impl<'a, 'py> Metadata<'a, 'py> {
    /// Takes what `push` takes: a dict or anything else that has a JSON form,
    /// a str of JSON, bytes, or None.
    pub fn new(object: Option<&'a Bound<'py, PyAny>>) -> PyResult<Self> {
        let Some(object) = object else {
            return Ok(Self::None);
        };
        if object.is_exact_instance_of::<PyDict>() {
            return dumps(object).map(Self::Made);
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Self::Text(text));
        }
        if object.is_instance_of::<PyByteArray>() || object.is_instance_of::<PyMemoryView>() {
            let bytes = object.py().get_type::<PyBytes>().call1((object,))?;
            return Ok(Self::Made(bytes.cast_into::<PyBytes>()?));
        }
        dumps(object).map(Self::Made)
    }

    /// Its bytes.
    pub fn bytes(&self) -> PyResult<&[u8]> {
        Ok(match self {
            Self::None => &[],
            Self::Text(text) => text.to_str()?.as_bytes(),
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Made(bytes) => bytes.as_bytes(),
        })
    }
}

fn dumps<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = object.py();
    let functions = functions(py)?;
    let made = functions
        .dumps
        .bind(py)
        .call1((object,))
        .or_else(|_| functions.dumps_anything.bind(py).call1((object,)))?;
    Ok(made.cast_into::<PyBytes>()?)
}

/// The object that JSON stands for; `what` is named in the error.
pub fn loads<'py>(
    py: Python<'py>,
    bytes: &[u8],
    what: impl FnOnce() -> String,
) -> PyResult<Bound<'py, PyAny>> {
    let functions = functions(py)?;
    functions
        .loads
        .bind(py)
        .call1((PyBytes::new(py, bytes),))
        .map_err(|reason| {
            let message = format!("{} is not JSON: {}", what(), reason.value(py));
            let refusal = error::new(py, "InvalidArgument", message);
            refusal.set_cause(py, Some(reason));
            refusal
        })
}

/// The JSON of an object, as text.
pub fn text(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let bytes = dumps(object)?;
    Ok(String::from_utf8_lossy(bytes.as_bytes()).into_owned())
}
