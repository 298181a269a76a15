//! `thalweg_step_stream`: making and opening streams, and what is stored of them.

use crate::boundary::*;
use crate::driver::{Connection, Driver};
use crate::error::Failure;
use crate::options;
use crate::step_options;
use crate::step_view::StepView;
use memory::Deadline;
use std::ffi::{CString, c_char};
use std::sync::Arc;
use std::time::Duration;
use step::{Distribution, Run, RunInfo, RunState, Step, StepError, Stream, StreamOptions};
use wire::ErrorCode;

/// How often it is looked for a stream that is not there.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// `thalweg_step_stream`.
pub struct StepStream {
    stream: Stream,
    connection: Arc<Connection>,
}

/// `thalweg_step_runs`: a list, with the texts that its entries point to.
pub struct StepRuns(Vec<StoredRun>);

struct StoredRun {
    info: RunInfo,
    writer: CString,
    reason: CString,
}

/// `thalweg_step_run_info`.
#[repr(C)]
pub struct ThalwegStepRunInfo {
    pub run: u64,
    pub writer: *const c_char,
    pub reason: *const c_char,
    pub first: u64,
    pub last: u64,
    pub step_count: u64,
    pub discarded: u64,
    pub bytes: u64,
    pub first_time_ns: u64,
    pub last_time_ns: u64,
    pub ranks: u32,
    pub state: i32,
    pub distribution: i32,
    pub reserved32: i32,
    pub reserved: [u64; 3],
}

/// `THALWEG_RUN_...`.
fn state_of(state: &RunState) -> i32 {
    match state {
        RunState::Open => 0,
        RunState::Closed => 1,
        RunState::Broken(_) => 2,
    }
}

/// `THALWEG_GIVEN_...`.
fn distribution_of(distribution: Distribution) -> i32 {
    match distribution {
        Distribution::All => 0,
        Distribution::RoundRobin => 1,
        Distribution::OnDemand => 2,
    }
}

fn is(error: &StepError, code: ErrorCode) -> bool {
    error.code() == Some(code)
}

/// Opens a stream, and makes it if it is not there.
pub fn open_or_create(
    driver: &client::Driver,
    name: &str,
    options: &StreamOptions,
) -> Result<Stream, StepError> {
    match Stream::open(driver, name) {
        Err(error) if is(&error, ErrorCode::UnknownTopic) => {
            match Stream::create(driver, name, options) {
                // Another rank was first.
                Err(error) if is(&error, ErrorCode::TopicExists) => Stream::open(driver, name),
                made => made,
            }
        }
        opened => opened,
    }
}

/// Opens a stream, and waits for it if it is not there.
pub fn open_when_there(
    driver: &client::Driver,
    name: &str,
    timeout: Duration,
) -> Result<Stream, StepError> {
    let deadline = Deadline::after(timeout);
    loop {
        match Stream::open(driver, name) {
            Err(error) if is(&error, ErrorCode::UnknownTopic) && !deadline.has_passed() => {
                std::thread::sleep(deadline.left().min(LOOK_EVERY));
            }
            opened => return opened,
        }
    }
}

impl StepStream {
    fn give(
        out: Out<'_, *mut Self>,
        stream: Stream,
        connection: Arc<Connection>,
    ) -> Result<(), Failure> {
        given("stream", out)?.write(give(Self { stream, connection }));
        Ok(())
    }

    /// The run of that number, or the last one.
    fn run(&self, run: u64) -> Result<Run, Failure> {
        if run != 0 {
            return Ok(Run(run));
        }
        let last = self.stream.runs()?.pop().map(|info| info.run);
        let name = self.stream.name();
        last.ok_or_else(|| {
            Failure::server(
                ErrorCode::OffsetOutOfRange,
                format!("{name} has no runs that are stored"),
            )
        })
    }
}

/// Makes a stream.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_stream_create(
    driver: Option<&Driver>,
    name: *const c_char,
    options: *const c_char,
    stream: Out<'_, *mut StepStream>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let connection = &given("driver", driver)?.connection;
        let name = text("name", name)?;
        let create: step_options::Create = options::read("options of a stream", options)?;
        let options = create.to_stream()?;
        let made = match create.exist_ok {
            true => open_or_create(&connection.client, name, &options)?,
            false => Stream::create(&connection.client, name, &options)?,
        };
        match stream {
            Some(stream) => StepStream::give(Some(stream), made, connection.clone()),
            None => Ok(()),
        }
    })
}

/// Opens a stream that is there.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_stream_open(
    driver: Option<&Driver>,
    name: *const c_char,
    stream: Out<'_, *mut StepStream>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let connection = &given("driver", driver)?.connection;
        let opened = Stream::open(&connection.client, text("name", name)?)?;
        StepStream::give(stream, opened, connection.clone())
    })
}

/// Frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_stream_free(stream: Option<Box<StepStream>>) {
    quietly(|| drop(stream));
}

/// The runs that are stored.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_stream_runs(
    stream: Option<&StepStream>,
    runs: Out<'_, *mut StepRuns>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let stream = given("stream", stream)?;
        let runs = given("runs", runs)?;
        let stored = stream.stream.runs()?.into_iter().map(|info| StoredRun {
            writer: c_text(&info.writer),
            reason: match &info.state {
                RunState::Broken(reason) => c_text(reason),
                RunState::Open | RunState::Closed => CString::default(),
            },
            info,
        });
        runs.write(give(StepRuns(stored.collect())));
        Ok(())
    })
}

/// How many there are.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_runs_count(runs: Option<&StepRuns>) -> usize {
    runs.map_or(0, |runs| runs.0.len())
}

/// One of them.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_runs_at(
    runs: Option<&StepRuns>,
    index: usize,
    info: Out<'_, ThalwegStepRunInfo>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let runs = &given("runs", runs)?.0;
        let run = runs
            .get(index)
            .ok_or_else(|| none(index, "runs", runs.len()))?;
        let (first, last) = run.info.steps.unwrap_or((Step(0), Step(0)));
        given("info", info)?.write(ThalwegStepRunInfo {
            run: run.info.run.0,
            writer: run.writer.as_ptr(),
            reason: run.reason.as_ptr(),
            first: first.0,
            last: last.0,
            step_count: run.info.step_count,
            discarded: run.info.discarded,
            bytes: run.info.bytes,
            first_time_ns: run.info.first_time,
            last_time_ns: run.info.last_time,
            ranks: run.info.ranks,
            state: state_of(&run.info.state),
            distribution: distribution_of(run.info.distribution),
            reserved32: 0,
            reserved: [0; 3],
        });
        Ok(())
    })
}

/// Frees the list.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_runs_free(runs: Option<Box<StepRuns>>) {
    quietly(|| drop(runs));
}

/// The numbers of a run's steps.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_stream_steps(
    stream: Option<&StepStream>,
    run: u64,
    numbers: *mut u64,
    max: usize,
    count: Out<'_, usize>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let stream = given("stream", stream)?;
        let count = given("count", count)?;
        if numbers.is_null() && max > 0 {
            return Err(Failure::invalid("numbers is NULL"));
        }
        let steps = stream.stream.steps(stream.run(run)?)?;
        for (index, info) in steps.iter().enumerate().take(max) {
            // SAFETY: the header asks for space for `max` numbers.
            unsafe { numbers.add(index).write(info.step.0) };
        }
        count.write(steps.len());
        Ok(())
    })
}

/// A stored step.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_stream_step(
    stream: Option<&StepStream>,
    run: u64,
    number: u64,
    step: Out<'_, *mut StepView>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let stream = given("stream", stream)?;
        let step = given("step", step)?;
        let view = stream.stream.step(stream.run(run)?, Step(number))?;
        let view = StepView::new(Arc::new(view), stream.connection.clone())?;
        step.write(give(view));
        Ok(())
    })
}
