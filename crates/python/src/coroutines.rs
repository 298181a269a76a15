//! The way to `thalweg._asyncio`: what coroutines run is Python.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// A function that calls one of the same name there with an object of ours.
macro_rules! bridge {
    ($(#[$docs:meta])* $name:ident) => {
        $(#[$docs])*
        pub fn $name<'py, T>(object: &Bound<'py, T>) -> PyResult<Bound<'py, PyAny>> {
            static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            let function = FUNCTION.import(object.py(), "thalweg._asyncio", stringify!($name))?;
            function.call1((object.as_any(),))
        }
    };
}

bridge!(
    /// What `await future` iterates over.
    await_outcome
);
bridge!(
    /// A coroutine that gives a consumer's next event.
    next_event
);
bridge!(
    /// A coroutine that gives the next event of what comes to an end by itself.
    next_of_bounded
);
bridge!(
    /// A coroutine that gives the object: `async with` begins.
    enter
);
bridge!(
    /// A coroutine that closes the object without blocking: `async with` ends.
    leave
);
