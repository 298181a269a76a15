//! Steps of arrays: what `thalweg.steps` is made of. Element types and selections come as text and
//! numbers, arrays as buffers of bytes; what is numpy's is done in Python.

mod memory;
mod options;
mod reader;
mod slot;
mod stream;
mod view;
mod writer;

pub use reader::StepReader;
pub use stream::StepStream;
pub use view::StepView;
pub use writer::StepWriter;

use crate::{error, over};
use pyo3::prelude::*;
use step::StepError;

/// The exception that says the same.
fn raise(py: Python<'_>, failed: StepError) -> PyErr {
    let class = match &failed {
        StepError::Client(reason) => {
            over::park_if_over(py, reason);
            return error::raise(py, reason.clone());
        }
        StepError::RunEnded { .. } => "RunBroken",
        StepError::Replaced(_) => "MemberFenced",
        StepError::Incomplete(_) => "GroupIncomplete",
        StepError::Invalid(_) => "InvalidArgument",
        StepError::Gone(_) => "OutOfRange",
        StepError::Damaged(_) => "Damaged",
    };
    let message = failed.to_string();
    match failed {
        StepError::RunEnded { run, .. } => run_broken(py, message, run.0),
        _ => error::new(py, class, message),
    }
}

/// `RunBroken` of this run.
fn run_broken(py: Python<'_>, message: String, run: u64) -> PyErr {
    let raised = error::new(py, "RunBroken", message);
    match raised.value(py).setattr("run", run) {
        Ok(()) => raised,
        Err(failed) => failed,
    }
}

fn invalid(reason: impl std::fmt::Display) -> StepError {
    StepError::Invalid(reason.to_string())
}
