//! How an object was opened, so that another process can open its like.

use crate::topic::Topic;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

/// Remembers the arguments of the method of `Topic` that opens something:
/// `recipe!(py, "producer", name, batch)`.
macro_rules! recipe {
    ($py:expr, $method:literal, $($argument:ident),+ $(,)?) => {{
        let arguments = pyo3::types::PyDict::new($py);
        $(arguments.set_item(stringify!($argument), &$argument)?;)+
        $crate::recipe::Recipe::new($method, arguments)
    }};
}
pub(crate) use recipe;

/// A method of `Topic` and its arguments.
pub struct Recipe {
    method: &'static str,
    arguments: Py<PyDict>,
    /// Names the object to other processes, each of which opens its like once.
    id: PyOnceLock<Py<PyAny>>,
}

impl Recipe {
    pub fn new(method: &'static str, arguments: Bound<'_, PyDict>) -> Self {
        Self {
            method,
            arguments: arguments.unbind(),
            id: PyOnceLock::new(),
        }
    }

    /// For Python's collector, which empties the arguments by itself if need be.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.arguments)
    }

    /// What `__reduce__` returns for an object of `topic`. `alone` are arguments
    /// that only one process can have been given.
    pub fn reduce<'py>(
        &self,
        py: Python<'py>,
        topic: &Py<Topic>,
        alone: &[(&str, &str)],
    ) -> PyResult<Bound<'py, PyTuple>> {
        let arguments = self.arguments.bind(py);
        for (argument, why) in alone {
            if arguments
                .get_item(argument)?
                .is_some_and(|given| !given.is_none())
            {
                let (method, argument) = (self.method, *argument);
                return Err(PyTypeError::new_err(format!(
                    "a {method} with {argument}= can't be pickled: {why}"
                )));
            }
        }
        let id = self.id.get_or_try_init(py, || {
            let id = py.import("uuid")?.call_method0("uuid4")?;
            PyResult::Ok(id.getattr("hex")?.unbind())
        })?;
        let open = py.import("thalweg._pickled")?.getattr("open_again")?;
        let given = (topic, self.method, arguments, id);
        (open, given).into_pyobject(py)
    }
}
