//! What the tests have in common: a server in a directory of its own, streams, and fields whose
//! elements say where they are from.

use client::{Driver, DriverOptions, Endpoint};
use server::{Config, Server};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use step::*;

/// Against hangs only.
pub const WATCHDOG: Duration = Duration::from_secs(60);
/// For calls that must not be answered.
pub const IN_VAIN: Duration = Duration::from_millis(100);

pub const NAME: &str = "fields";
/// The field that all ranks write: a row of so many elements each.
pub const ROW: u64 = 40;

pub struct Rig {
    directory: tempfile::TempDir,
    server: Option<Server>,
}

impl Rig {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Some(serve(directory.path()));
        Self { directory, server }
    }

    /// Ends the server and starts another one over the same directory.
    pub fn restart(&mut self) {
        self.server.take().unwrap().drain(WATCHDOG).unwrap();
        self.server = Some(serve(self.directory.path()));
    }

    /// Ends the server as a signal that nobody can catch does, and starts another one.
    pub fn kill(&mut self) {
        self.kill_for_now();
        self.start();
    }

    /// The same, without another one.
    pub fn kill_for_now(&mut self) {
        self.server.take().unwrap().kill();
    }

    /// Starts a server where there is none.
    pub fn start(&mut self) {
        self.server = Some(serve(self.directory.path()));
    }

    pub fn driver(&self) -> Driver {
        self.driver_with(DriverOptions::default())
    }

    pub fn driver_with(&self, options: DriverOptions) -> Driver {
        let endpoint = Endpoint::GroupFile(self.directory.path().join("group.json"));
        Driver::connect(endpoint, options).unwrap()
    }

    pub fn stream(&self) -> Stream {
        self.stream_with(&StreamOptions::default())
    }

    pub fn stream_with(&self, options: &StreamOptions) -> Stream {
        Stream::create(&self.driver(), NAME, options).unwrap()
    }

    /// A stream in memory that keeps so many bytes.
    pub fn stream_of_bytes(&self, bytes: u64) -> Stream {
        self.stream_with(&StreamOptions {
            storage: "memory".to_owned(),
            retention: Retention {
                bytes: Some(bytes),
                ..Retention::default()
            },
            ..StreamOptions::default()
        })
    }

    /// The stream by a connection of its own.
    pub fn open(&self) -> Stream {
        Stream::open(&self.driver(), NAME).unwrap()
    }
}

fn serve(directory: &Path) -> Server {
    let config = Config {
        directory: directory.join("data"),
        group_file: Some(directory.join("group.json")),
        ..Config::default()
    };
    Server::start(config, Arc::new(|_: &str| {})).unwrap()
}

/// A rank of a program that is soon noticed to be gone.
pub fn writing(rank: u32, ranks: u32) -> WriterOptions {
    WriterOptions {
        name: "sim".to_owned(),
        rank,
        ranks,
        session_timeout: Duration::from_millis(500),
        open_timeout: WATCHDOG,
        timeout: WATCHDOG,
        ..WriterOptions::default()
    }
}

pub fn reading(name: &str) -> ReaderOptions {
    ReaderOptions {
        name: name.to_owned(),
        session_timeout: Duration::from_millis(500),
        open_timeout: WATCHDOG,
        ..ReaderOptions::default()
    }
}

pub fn double() -> DType {
    DType::parse("<f8").unwrap()
}

pub fn bytes_of(values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

pub fn floats_of(bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks_exact(8)
        .map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

/// The element of the field at a row and column, in a step.
pub fn element(step: u64, row: u64, column: u64) -> f64 {
    (step * 10_000 + row * 100 + column) as f64
}

pub fn row(step: u64, row: u64) -> Vec<f64> {
    (0..ROW).map(|column| element(step, row, column)).collect()
}

/// Writes this rank's row of the next step.
pub fn write_step(writer: &mut Writer, wait: Wait) -> Result<StepEnded, StepError> {
    let step = writer.begin_step()?.0;
    put_row(writer, step);
    writer.end_step(wait)
}

pub fn put_row(writer: &mut Writer, step: u64) {
    let (rank, ranks) = (writer.options().rank, writer.options().ranks);
    let dtype = double();
    let put = Put {
        name: "E",
        dtype: &dtype,
        place: Place::Array {
            shape: &[ranks.into(), ROW],
            start: &[rank.into(), 0],
        },
        count: &[1, ROW],
        with_extremes: true,
    };
    writer
        .put(&put, &bytes_of(&row(step, rank.into())))
        .unwrap();
}

/// Reads the whole field and looks that it is that of the step.
pub fn check_step(view: &StepView, step: u64) {
    assert_eq!(view.number(), Step(step));
    let array = view.get("E", &Selection::Whole).unwrap();
    let rows = u64::from(view.writer_ranks());
    assert_eq!(array.shape, [rows, ROW]);
    assert_eq!(array.coverage.uncovered, 0);
    let expected: Vec<f64> = (0..rows).flat_map(|one| row(step, one)).collect();
    assert_eq!(floats_of(&array.data), expected);
}

/// The next step; a panic if something else comes.
pub fn next_step(reader: &mut Reader) -> StepView {
    match reader.next(WATCHDOG).unwrap() {
        Next::Step(step) => step,
        other => panic!("not a step: {other:?}"),
    }
}

/// The end of the run, and why; a panic if something else comes.
pub fn next_end(reader: &mut Reader) -> (Run, Option<String>) {
    match reader.next(WATCHDOG).unwrap() {
        Next::End { run, broken } => (run, broken),
        other => panic!("not the end of a run: {other:?}"),
    }
}

pub fn is_not_ready(reader: &mut Reader) -> bool {
    matches!(reader.next(IN_VAIN).unwrap(), Next::NotReady(_))
}

/// Makes a call that must not be answered, until its deadline's error says `part`: a machine under
/// load may not come to say so in time.
pub fn told<T>(part: &str, mut call: impl FnMut() -> Result<T, StepError>) -> StepError {
    let began = std::time::Instant::now();
    loop {
        let error = call().err().expect("nothing is to come of the call");
        assert!(error.is_timeout(), "{error}");
        if error.to_string().contains(part) {
            return error;
        }
        assert!(began.elapsed() < WATCHDOG, "{error}");
    }
}
