//! `thalweg._thalweg`, the native half of the Python package. What users see
//! is in `python/thalweg`.
//!
//! Three rules keep Python and the client apart. Whatever waits or copies much
//! does it without the GIL, in slices between which Ctrl-C is seen ([`wait`]).
//! No lock of ours is held while the GIL is let go, so that a fork finds all
//! of them free. The client's own threads never wait for the GIL: they leave
//! calls to a thread of their own ([`callbacks`]) and lent memory on a stack
//! without a lock ([`lend`]).

mod ahead;
mod callbacks;
mod connection;
mod consumer;
mod coroutines;
mod describe;
mod digits;
mod drain;
mod driver;
mod error;
mod event;
mod exit;
mod future;
mod gaps;
mod json;
mod labels;
mod lend;
mod options;
mod over;
mod plugins;
mod producer;
mod queue;
mod reader;
mod ready;
mod recipe;
mod reply;
mod requester;
mod select;
mod steps;
mod topic;
mod view;
mod wait;

use pyo3::prelude::*;

/// Ends the thread that calls back into Python; the interpreter ends.
#[pyfunction]
fn _stop_callbacks(py: Python<'_>) {
    lend::end();
    callbacks::stop(py);
}

/// Adds to the module what Python code imports from it.
#[pymodule(gil_used = false)]
fn _thalweg(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<driver::Driver>()?;
    module.add_class::<topic::Topic>()?;
    module.add_class::<producer::Producer>()?;
    module.add_class::<future::Future>()?;
    module.add_class::<future::EventId>()?;
    module.add_class::<consumer::Consumer>()?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<event::Event>()?;
    module.add_class::<queue::QueueConsumer>()?;
    module.add_class::<queue::QueueEvent>()?;
    module.add_class::<drain::Drain>()?;
    module.add_class::<requester::Requester>()?;
    module.add_class::<view::DataView>()?;
    module.add_class::<steps::StepWriter>()?;
    module.add_class::<steps::StepReader>()?;
    module.add_class::<steps::StepView>()?;
    module.add_class::<steps::StepStream>()?;
    module.add_function(wrap_pyfunction!(digits::_unhex, module)?)?;
    module.add_function(wrap_pyfunction!(exit::_close_all, module)?)?;
    module.add_function(wrap_pyfunction!(_stop_callbacks, module)?)
}
