//! Which backend carries the messages of a run.

use super::amqp::Amqp;
use super::backend::Backend;
use super::native::Native;
use crate::failure::Failure;
use workload::Common;

/// Connects.
pub fn connect(common: &Common) -> Result<Box<dyn Backend>, Failure> {
    match common.backend {
        workload::Backend::Thalweg => Ok(Box::new(Native::connect(common)?)),
        workload::Backend::Amqp => Ok(Box::new(Amqp::new(common)?)),
        other => Err(refused(other)),
    }
}

/// Of a backend that cannot be driven.
pub fn refused(backend: workload::Backend) -> Failure {
    let name = format!("{backend:?}").to_lowercase();
    let what =
        format!("\"{name}\" cannot be driven by this command; there are \"thalweg\" and \"amqp\"");
    Failure::usage("backend", what)
}
