//! Metadata of Python as bytes, and back.

use crate::error;
use pyo3::exceptions::{PyRecursionError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple,
};

/// The functions of `thalweg._json`, looked up once.
struct Functions {
    dumps: Py<PyAny>,
    dumps_anything: Py<PyAny>,
    refuse_data: Py<PyAny>,
    non_finite: Py<PyAny>,
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
            refuse_data: function("refuse_data")?,
            non_finite: function("non_finite")?,
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
    /// a str of JSON, bytes, or None. What is data (an array, a table, a buffer)
    /// is refused: it was meant for the other argument.
    pub fn new(object: Option<&'a Bound<'py, PyAny>>) -> PyResult<Self> {
        let Some(object) = object else {
            return Ok(Self::None);
        };
        if object.is_exact_instance_of::<PyDict>() {
            return dumps(object, "metadata").map(Self::Made);
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Self::Text(text));
        }
        let is_plain = object.is_exact_instance_of::<PyList>()
            || object.is_exact_instance_of::<PyTuple>()
            || object.is_exact_instance_of::<PyFloat>()
            || object.is_exact_instance_of::<PyInt>();
        if !is_plain {
            let py = object.py();
            functions(py)?.refuse_data.bind(py).call1((object,))?;
        }
        if object.is_instance_of::<PyByteArray>() || object.is_instance_of::<PyMemoryView>() {
            let bytes = object.py().get_type::<PyBytes>().call1((object,))?;
            return Ok(Self::Made(bytes.cast_into::<PyBytes>()?));
        }
        dumps(object, "metadata").map(Self::Made)
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

/// The JSON of an object, which `what` is in errors.
fn dumps<'py>(object: &Bound<'py, PyAny>, what: &str) -> PyResult<Bound<'py, PyBytes>> {
    let py = object.py();
    let functions = functions(py)?;
    let made = functions
        .dumps
        .bind(py)
        .call1((object,))
        .or_else(|_| functions.dumps_anything.bind(py).call1((object, what)))?;
    let made = made.cast_into::<PyBytes>()?;
    // What is not finite was written so, and only that is looked for then.
    let may_have_null =
        std::str::from_utf8(made.as_bytes()).is_ok_and(|text| text.contains("null"));
    if may_have_null && let Some((path, value)) = non_finite(object)? {
        let message = format!(
            "{what}{path} is {value}, and JSON has no such number: give None or a str in its place, \
             such as {:?}",
            value.to_string()
        );
        return Err(error::new(py, "InvalidEvent", message));
    }
    Ok(made)
}

/// Where in an object a number is that is not finite, if there is one, and which.
fn non_finite<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<(String, Bound<'py, PyAny>)>> {
    let py = object.py();
    let within = |step: String, inner: &Bound<'py, PyAny>| {
        let found = non_finite(inner)?;
        Ok::<_, PyErr>(found.map(|(path, value)| (step + &path, value)))
    };
    if let Ok(number) = object.cast_exact::<PyFloat>() {
        let is_finite = number.value().is_finite();
        return Ok((!is_finite).then(|| (String::new(), object.clone())));
    }
    if let Ok(dict) = object.cast_exact::<PyDict>() {
        for (key, value) in dict {
            if let Some(found) = within(format!("[{}]", key.repr()?), &value)? {
                return Ok(Some(found));
            }
        }
        return Ok(None);
    }
    if object.is_exact_instance_of::<PyList>() || object.is_exact_instance_of::<PyTuple>() {
        for (index, value) in object.try_iter()?.enumerate() {
            if let Some(found) = within(format!("[{index}]"), &value?)? {
                return Ok(Some(found));
            }
        }
        return Ok(None);
    }
    let is_plain = object.is_none()
        || object.is_exact_instance_of::<PyString>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyBool>();
    if is_plain {
        return Ok(None);
    }
    // A number or an array of another library, a dataclass.
    let found = functions(py)?.non_finite.bind(py).call1((object,))?;
    found.extract()
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
            // What is nested too deep is never understood, either; anything else, as a lack of
            // memory or Ctrl-C, says nothing of the bytes.
            let is_of_bytes = reason.is_instance_of::<PyValueError>(py)
                || reason.is_instance_of::<PyRecursionError>(py);
            if !is_of_bytes {
                return reason;
            }
            let message = format!("{} is not JSON: {}", what(), reason.value(py));
            let refusal = error::new(py, "InvalidArgument", message);
            refusal.set_cause(py, Some(reason));
            refusal
        })
}

/// The JSON of an object, as text; what has none is refused by `class`, as `what`.
pub fn text(object: &Bound<'_, PyAny>, what: &str, class: &str) -> PyResult<String> {
    let py = object.py();
    let bytes = dumps(object, what).map_err(|reason| {
        let refusal = error::new(py, class, reason.value(py).to_string());
        refusal.set_cause(py, Some(reason));
        refusal
    })?;
    Ok(String::from_utf8_lossy(bytes.as_bytes()).into_owned())
}
