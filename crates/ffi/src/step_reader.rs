//! `thalweg_step_reader`: a rank that reads.

use crate::boundary::*;
use crate::driver::{Connection, Driver};
use crate::error::{Code, Failure, MESSAGE_BYTES, cut};
use crate::options;
use crate::step_options;
use crate::step_stream::open_when_there;
use crate::step_view::{StepView, ThalwegStepGet, standing};
use memory::Deadline;
use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use step::{Next, Preload, Reader, StepError};

/// So long one request for the next step may wait, and so does who closes the reader meanwhile.
const SLICE: Duration = Duration::from_secs(1);
/// How long a release is waited for when nobody says.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(120);

/// `thalweg_step_reader`.
pub struct StepReader {
    /// One call after the other; `None` when it is closed.
    held: Mutex<Option<Held>>,
    /// Seen by a call that waits, between two requests.
    is_closing: AtomicBool,
    /// The process that it belongs to.
    generation: u64,
    connection: Arc<Connection>,
}

struct Held {
    reader: Reader,
    /// The step that was given last: kept, so that it is not released with the caller's handle.
    current: Option<Arc<step::StepView>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // A step that is not released is given again.
        if let Some(view) = &self.current {
            view.leave_unread();
        }
    }
}

/// `thalweg_step_next`.
#[repr(C)]
pub struct ThalwegStepNext {
    pub state: i32,
    pub reserved: u32,
    pub run: u64,
    pub reason: [c_char; MESSAGE_BYTES],
}

/// `THALWEG_NEXT_...`.
#[derive(Clone, Copy)]
#[repr(i32)]
enum State {
    Step = 0,
    NotReady = 1,
    End = 2,
    Broken = 3,
}

fn next_of(state: State, run: u64, reason: &str) -> ThalwegStepNext {
    ThalwegStepNext {
        state: state as i32,
        reserved: 0,
        run,
        reason: cut(reason),
    }
}

fn closed() -> Failure {
    Failure::new(Code::Closed, "the reader is closed")
}

impl StepReader {
    fn with<R>(&self, call: impl FnOnce(&mut Held) -> Result<R, Failure>) -> Result<R, Failure> {
        self.check_process()?;
        let mut held = turn(&self.held)?;
        match &mut *held {
            Some(held) => call(held),
            None => Err(closed()),
        }
    }

    fn check_process(&self) -> Result<(), Failure> {
        match self.generation == ::memory::fork::generation() {
            true => Ok(()),
            false => Err(client::ClientError::Forked.into()),
        }
    }
}

impl Held {
    fn next(&mut self, timeout: Option<Duration>, stop: &AtomicBool) -> Result<Next, Failure> {
        let deadline = Deadline::within(timeout);
        loop {
            // Relaxed: nothing else is ordered by it.
            if stop.load(Ordering::Relaxed) {
                return Err(closed());
            }
            let next = self.reader.next(deadline.left().min(SLICE))?;
            if matches!(next, Next::NotReady(_)) && !deadline.has_passed() {
                // The step before is released.
                self.current = None;
                continue;
            }
            return Ok(next);
        }
    }

    fn release(&mut self, timeout: Duration) -> Result<(), StepError> {
        self.reader.release(timeout)?;
        self.current = None;
        Ok(())
    }

    fn release_as_said(&mut self, timeout_ms: i64) -> Result<(), Failure> {
        if timeout_ms == 0 {
            // Dropping the view says so and waits for nothing; so it does while the caller still
            // reads the step.
            if let Some(view) = self.current.take() {
                view.release_now();
            }
            return Ok(());
        }
        Ok(self.release(limit(timeout_ms).unwrap_or(RELEASE_TIMEOUT))?)
    }
}

/// Opens a rank that reads.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_reader_open(
    driver: Option<&Driver>,
    stream: *const c_char,
    options: *const c_char,
    reader: Out<'_, *mut StepReader>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let connection = &given("driver", driver)?.connection;
        let name = text("stream", stream)?;
        let reader = given("reader", reader)?;
        let said: step_options::Reader = options::read("options of a reader of steps", options)?;
        let options = said.to_reader()?;
        let stream = open_when_there(&connection.client, name, said.stream_timeout())?;
        reader.write(give(StepReader {
            held: Mutex::new(Some(Held {
                reader: stream.reader(options)?,
                current: None,
            })),
            is_closing: AtomicBool::new(false),
            generation: ::memory::fork::generation(),
            connection: connection.clone(),
        }));
        Ok(())
    })
}

/// The next step.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_reader_next(
    reader: Option<&StepReader>,
    timeout_ms: i64,
    step: Out<'_, *mut StepView>,
    next: Out<'_, ThalwegStepNext>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let step = given("step", step)?;
        step.write(std::ptr::null_mut());
        let reader = given("reader", reader)?;
        let next = given("next", next)?;
        reader.with(|held| {
            let found = held.next(limit(timeout_ms), &reader.is_closing)?;
            // The reader has released it.
            held.current = None;
            next.write(match found {
                Next::Step(view) => {
                    let view = Arc::new(view);
                    held.current = Some(view.clone());
                    let run = view.run().0;
                    step.write(give(StepView::new(view, reader.connection.clone())?));
                    next_of(State::Step, run, "")
                }
                Next::NotReady(what) => next_of(State::NotReady, 0, &what),
                Next::End { run, broken: None } => next_of(State::End, run.0, ""),
                Next::End {
                    run,
                    broken: Some(reason),
                } => next_of(State::Broken, run.0, &reason),
            });
            Ok(())
        })
    })
}

/// Says that the step that was given last is read.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_reader_release(
    reader: Option<&StepReader>,
    timeout_ms: i64,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        given("reader", reader)?.with(|held| held.release_as_said(timeout_ms))
    })
}

/// What is read of each step before it is asked for.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_reader_preload(
    reader: Option<&StepReader>,
    wanted: *const ThalwegStepGet,
    count: usize,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let reader = given("reader", reader)?;
        // SAFETY: the header asks for `count` of them.
        let wanted = unsafe { array("wanted", wanted, count) }?;
        let wanted = wanted.iter().map(standing).collect::<Result<Vec<_>, _>>()?;
        reader.with(|held| {
            held.reader.preload(Preload::Selected(wanted));
            Ok(())
        })
    })
}

/// Where the last record is.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_reader_position(
    reader: Option<&StepReader>,
    position: Out<'_, ThalwegEventId>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let at = given("reader", reader)?.with(|held| Ok(held.reader.position()))?;
        given("position", position)?.write(ThalwegEventId {
            partition: 0,
            reserved: 0,
            incarnation: at.map_or(0, |at| at.incarnation.0),
            offset: at.map_or(0, |at| at.offset.0),
        });
        Ok(())
    })
}

/// Leaves.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_reader_close(
    reader: Option<&StepReader>,
    release: i32,
    timeout_ms: i64,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let reader = given("reader", reader)?;
        reader.check_process()?;
        reader.is_closing.store(true, Ordering::Relaxed);
        let Some(mut held) = turn(&reader.held)?.take() else {
            return Ok(());
        };
        match release {
            0 => Ok(()),
            _ => held.release_as_said(timeout_ms),
        }
    })
}

/// Leaves and frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_reader_free(reader: Option<Box<StepReader>>) {
    quietly(|| {
        let Some(reader) = reader else {
            return;
        };
        if reader.check_process().is_err() {
            // What it has of the connection is its parent's.
            std::mem::forget(reader);
        }
    });
}
