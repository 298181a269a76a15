//! The thread that calls back into Python.
//!
//! The client completes pushes on its runtime thread, which must never wait
//! for the GIL: it serves every producer and consumer of the process. So it
//! only puts a job into a queue, and this thread does the jobs, as many as
//! lie ready for each time that it takes the GIL.

use memory::fork::ForkSlot;
use memory::thread::JoinHandle;
use pyo3::prelude::*;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Something to do in Python.
pub type Job = Box<dyn FnOnce(Python<'_>) + Send>;

struct Caller {
    jobs: Sender<Option<Job>>,
    /// Taken by [`stop`]. Locked with the GIL held only, so never during a fork.
    thread: Mutex<Option<JoinHandle<()>>>,
}

static CALLER: ForkSlot<Caller> = ForkSlot::new();

/// A way to put jobs into the queue, for threads without the GIL. Starts the
/// thread if this process has none yet.
#[derive(Clone)]
pub struct Callbacks(Sender<Option<Job>>);

impl Callbacks {
    /// # Errors
    /// If the system gives no thread.
    pub fn get(_: Python<'_>) -> PyResult<Self> {
        let caller = CALLER.get_or_make(|| -> std::io::Result<Caller> {
            let (jobs, queue) = channel();
            let thread = memory::thread::spawn("thalweg-callback", move || run(&queue))?;
            Ok(Caller {
                jobs,
                thread: Mutex::new(Some(thread)),
            })
        })?;
        Ok(Self(caller.jobs.clone()))
    }

    /// Has `job` done soon. After [`stop`] it is dropped: nobody waits then.
    pub fn call(&self, job: Job) {
        drop(self.0.send(Some(job)));
    }
}

fn run(queue: &Receiver<Option<Job>>) {
    while let Ok(Some(job)) = queue.recv() {
        let goes_on = Python::try_attach(|py| {
            job(py);
            while let Ok(next) = queue.try_recv() {
                match next {
                    Some(job) => job(py),
                    None => return false,
                }
            }
            true
        });
        // Not attached means that the interpreter ends: jobs are no use then.
        if goes_on != Some(true) {
            return;
        }
    }
}

/// Ends the thread once it has done what is in the queue.
pub fn stop(py: Python<'_>) {
    let Some(caller) = CALLER.get() else {
        return;
    };
    drop(caller.jobs.send(None));
    let thread = caller.thread.lock().map(|mut thread| thread.take());
    if let Ok(Some(thread)) = thread {
        // It says nothing when it ends.
        py.detach(|| drop(thread.join()));
    }
}

/// Calls `function`, and reports what it raises as Python does with errors
/// that have no caller.
pub fn call_reporting(py: Python<'_>, function: &Py<PyAny>, argument: impl FnOnce() -> Py<PyAny>) {
    if let Err(error) = function.bind(py).call1((argument(),)) {
        error.write_unraisable(py, Some(function.bind(py)));
    }
}
