//! The processes that are killed: a rank each.

use crate::content::{self, Block, COLUMNS, RANKS};
use crate::journal::{Content, Entry, Role, Said, Who, now};
use crate::rig::WATCHDOG;
use client::{ClientError, Driver, DriverOptions, Endpoint};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use step::{
    Along, DType, Next, Place, Put, Range, Reader, ReaderOptions, Selection, ShapeKind, StepError,
    StepStart, StepView, Stream, Wait, Writer, WriterOptions,
};

pub const STREAM: &str = "fields";
/// How many ranks a group of readers has.
pub const READERS: u32 = 2;
/// Long enough for a process to be started anew, most times.
const SESSION_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one call may take; it is made again.
const CALL: Duration = Duration::from_secs(20);

/// Which process this is, and where the server is found.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Part {
    pub who: Who,
    pub group_file: PathBuf,
}

/// A process's share of the test, until it is told to stop.
struct Process {
    who: Who,
    stream: Stream,
    /// The run behind which it ends; set by a line of standard input.
    last_run: Arc<AtomicU64>,
}

/// Does what a part says.
pub fn play(part: &Part) {
    let process = Process {
        who: part.who,
        stream: Stream::open(&connect(part.group_file.clone()), STREAM).unwrap(),
        last_run: listen(),
    };
    match part.who.role {
        Role::Write => process.write(),
        Role::Read | Role::Live => process.read(),
        Role::Audit => unreachable!("the test reads by itself"),
    }
}

pub fn connect(group_file: PathBuf) -> Driver {
    let options = DriverOptions {
        connect_timeout: Some(WATCHDOG),
        ..DriverOptions::default()
    };
    Driver::connect(Endpoint::GroupFile(group_file), options).unwrap()
}

/// The last run, once it is said. A test that is gone takes its processes with it.
fn listen() -> Arc<AtomicU64> {
    let last_run = Arc::new(AtomicU64::new(u64::MAX));
    let said = last_run.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let number = line.unwrap().parse().expect("a run's number");
            // Relaxed: nothing else is ordered by it.
            said.store(number, Ordering::Relaxed);
        }
        std::process::exit(1);
    });
    last_run
}

impl Process {
    /// Written at once, so that it is told though the next instruction is never carried out.
    fn say(&self, said: Said) {
        let line = format!("{}\n", Entry::now(self.who, said));
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }

    fn last_run(&self) -> u64 {
        self.last_run.load(Ordering::Relaxed)
    }

    /// Writes runs, each with as many steps as it is to have.
    fn write(&self) {
        loop {
            let options = || WriterOptions {
                name: "simulation".to_owned(),
                rank: self.who.rank,
                ranks: RANKS,
                session_timeout: SESSION_TIMEOUT,
                open_timeout: CALL,
                timeout: CALL,
                ..WriterOptions::default()
            };
            let mut writer = patiently(|| self.stream.writer(options())).unwrap();
            let (run, next) = (writer.run().0, writer.step().0);
            self.say(Said::Opened { run, next });
            if run > self.last_run() {
                return;
            }
            match self.write_run(&mut writer) {
                Ok(()) => self.say(Said::Closed { run }),
                Err(StepError::RunEnded { reason: why, .. }) => self.say(Said::Ended { run, why }),
                Err(error) => panic!("{writer:?}: {error}"),
            }
            if run >= self.last_run() {
                return;
            }
        }
    }

    fn write_run(&self, writer: &mut Writer) -> Result<(), StepError> {
        let run = writer.run().0;
        while writer.step().0 < content::steps_of(run) {
            let step = writer.begin_step()?.0;
            self.put(writer)?;
            self.say(Said::Ending { run, step });
            let wait = match content::mix(run ^ step << 20 ^ u64::from(self.who.rank) << 40) % 3 {
                0 => Wait::Begun,
                1 => Wait::Accepted,
                _ => Wait::Committed,
            };
            let ended = patiently(|| match writer.is_ending() || writer.step().0 == step {
                true => writer.end_step(wait),
                false => writer.wait(wait, CALL),
            })?;
            assert_eq!((ended.step.0, &ended.discarded), (step, &None));
            match (wait, ended.record) {
                (Wait::Begun, _) => {}
                (Wait::Accepted, _) => self.say(Said::Accepted { run, step }),
                (Wait::Committed, record) => {
                    let offset = record.expect("it was waited for").offset.0;
                    self.say(Said::Committed { run, step, offset });
                }
            }
        }
        patiently(|| writer.close_run(CALL))
    }

    fn put(&self, writer: &mut Writer) -> Result<(), StepError> {
        let (step, rank) = (writer.step().0, self.who.rank);
        let block = Block {
            run: writer.run().0,
            step,
            rank,
            life: self.who.life,
        };
        let (field, list) = block.words();
        let dtype = words_type();
        let put = Put {
            name: "field",
            dtype: &dtype,
            place: Place::Array {
                shape: &[content::rows_before(step, RANKS), COLUMNS],
                start: &[content::rows_before(step, rank), 0],
            },
            count: &[content::rows(step, rank), COLUMNS],
            with_extremes: true,
        };
        writer.put(&put, &bytes_of(&field))?;
        let put = Put {
            name: "list",
            dtype: &dtype,
            place: Place::Joined(0),
            count: &[list.len() as u64],
            with_extremes: false,
        };
        writer.put(&put, &bytes_of(&list))?;
        let life = self.who.life.to_le_bytes();
        writer.put_value("life", ShapeKind::LocalValue, &dtype, &life)?;
        if rank == 0 && content::sets_attribute(step) {
            writer.set_attribute("last", step as i64)?;
        }
        Ok(())
    }

    fn read(&self) {
        loop {
            let options = || ReaderOptions {
                name: format!("{:?}", self.who.role),
                rank: self.who.rank,
                ranks: READERS,
                start: StepStart::Cursor,
                latest: self.who.role == Role::Live,
                session_timeout: SESSION_TIMEOUT,
                open_timeout: CALL,
                ..ReaderOptions::default()
            };
            let mut reader = patiently(|| self.stream.reader(options())).unwrap();
            self.say(Said::Attached);
            match self.read_on(&mut reader) {
                Ok(()) => return,
                Err(StepError::Replaced(why) | StepError::Incomplete(why)) => {
                    self.say(Said::Replaced { why });
                }
                Err(error) => panic!("{reader:?}: {error}"),
            }
        }
    }

    /// Reads until the end of the last run.
    fn read_on(&self, reader: &mut Reader) -> Result<(), StepError> {
        let mut turns = 0;
        loop {
            let asked = now();
            let next = patiently(|| reader.next(CALL))?;
            let at = reader.position();
            let offset = || at.expect("it was given a record").offset.0;
            match next {
                Next::NotReady(_) => {}
                Next::End { run, broken } => {
                    let (run, offset) = (run.0, offset());
                    let broken = broken.is_some();
                    self.say(Said::RunOver {
                        run,
                        broken,
                        offset,
                    });
                    if run >= self.last_run() {
                        return Ok(());
                    }
                }
                Next::Step(view) => {
                    let (run, step, offset) = (view.run().0, view.number().0, offset());
                    assert_eq!(view.position().offset.0, offset);
                    self.say(Said::Given {
                        asked,
                        run,
                        step,
                        offset,
                    });
                    let content = patiently(|| look(&view))?;
                    self.say(Said::Seen {
                        run,
                        step,
                        offset,
                        content,
                    });
                    self.say(Said::Releasing { offset });
                    turns += 1;
                    // Else it is released by the next call.
                    if turns % 3 > 0 {
                        let began = now();
                        match reader.release(CALL) {
                            Ok(()) => self.say(Said::Released { began, offset }),
                            Err(StepError::Client(error)) if may_come(&error) => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
        }
    }
}

/// Makes a call until something comes of it but that it is to be made again.
pub fn patiently<T>(mut call: impl FnMut() -> Result<T, StepError>) -> Result<T, StepError> {
    let began = Instant::now();
    loop {
        match call() {
            Err(StepError::Client(error)) if may_come(&error) && began.elapsed() < WATCHDOG => {}
            outcome => return outcome,
        }
    }
}

fn may_come(error: &ClientError) -> bool {
    error.is_timeout() || error.is_retryable()
}

fn words_type() -> DType {
    DType::parse("<u8").unwrap()
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks_exact(8);
    words
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect()
}

/// Reads all of a step: in one piece, or each rank's blocks by themselves.
pub fn look(view: &StepView) -> Result<Content, StepError> {
    let step = view.number().0;
    let cut = |before: fn(u64, u32) -> u64, row: u64| {
        (0..RANKS).map(move |rank| {
            let from = before(step, rank) * row;
            from as usize..(before(step, rank + 1) * row) as usize
        })
    };
    let rows = cut(content::rows_before, COLUMNS);
    let parts = cut(content::list_before, 1);
    let mut pieces = Vec::new();
    if step.is_multiple_of(2) {
        let whole = Selection::Whole;
        let arrays = view.get_arrays(&[("field", &whole), ("list", &whole)])?;
        let [field, list] = [0, 1].map(|index| words_of(&arrays[index].data));
        let is_whole = arrays.iter().all(|array| array.coverage.uncovered == 0);
        for (rows, part) in rows.zip(parts) {
            let both = field.get(rows).zip(list.get(part));
            pieces.push(
                both.filter(|_| is_whole)
                    .map(|(field, list)| (field.to_vec(), list.to_vec())),
            );
        }
    } else {
        let range = |start: u64, end: u64| {
            let count = end - start;
            let step = 1;
            Along::Range(Range { start, count, step })
        };
        let selections: Vec<_> = (0..RANKS)
            .map(|rank| {
                let rows = range(
                    content::rows_before(step, rank),
                    content::rows_before(step, rank + 1),
                );
                let part = range(
                    content::list_before(step, rank),
                    content::list_before(step, rank + 1),
                );
                (
                    Selection::Box(vec![rows, Along::Whole]),
                    Selection::Box(vec![part]),
                )
            })
            .collect();
        let wanted: Vec<_> = selections
            .iter()
            .flat_map(|(field, list)| [("field", field), ("list", list)])
            .collect();
        let arrays = view.get_arrays(&wanted)?;
        for pair in arrays.chunks(2) {
            let is_whole = pair.iter().all(|array| array.coverage.uncovered == 0);
            let words = (words_of(&pair[0].data), words_of(&pair[1].data));
            pieces.push(Some(words).filter(|_| is_whole));
        }
    }
    // 0 is no block's digest, as far as anybody knows.
    let digests = pieces.iter().map(|piece| {
        piece
            .as_ref()
            .map_or(0, |(field, list)| content::digest(field, list))
    });
    let lives = view.values("life")?;
    Ok(Content {
        lives: lives.iter().flat_map(|life| words_of(life)).collect(),
        digests: digests.collect(),
        last: view
            .attributes()
            .get("last")
            .and_then(|value| value.as_integers())
            .map_or(-1, |last| last[0]),
    })
}
