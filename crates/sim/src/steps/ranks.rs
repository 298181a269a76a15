//! The programs: ranks that write and ranks that read, by the calls that any program makes.

use super::ledger::{Ledger, Role, Said, Who};
use super::plan::StepsPlan;
use super::script::{Found, Kind, Place, Variable, mix};
use crate::fiber;
use crate::random::Random;
use client::{ClientError, Driver, Durability};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use step::{
    DType, Next, Preload, Put, Reader, ReaderOptions, ShapeKind, StepError, StepStart, StepView,
    Stream, StreamOptions, Wait, Writer, WriterOptions,
};

const STREAM: &str = "fields";
/// How long a program that was refused thinks before it tries again.
const RETRY_NS: u64 = 50_000_000;
/// How long a call may take; it is made again.
const CALL: Duration = Duration::from_secs(8);
/// Doubles of an attribute that not every record repeats.
const MESH: usize = 600;

/// A program's share of a run.
pub struct Process {
    pub who: Who,
    pub plan: Arc<StepsPlan>,
    pub driver: Driver,
    pub ledger: Ledger,
    /// The run behind which it ends.
    pub last_run: Arc<AtomicU64>,
    pub random: Random,
}

/// How many steps a run has that nothing breaks.
pub fn steps_of(seed: u64, run: u64) -> u64 {
    1 + mix(seed ^ run << 32) % 9
}

/// What the attribute is in a step, that rank 0 sets in every third one.
fn last_of(step: u64) -> i64 {
    (step - step % 3) as i64
}

impl Process {
    /// Does all that it has to, until it is killed or its client gives up.
    pub fn run(mut self) {
        step::plant(self.plan.planted.and_then(crate::Planted::step));
        let outcome = match self.who.role {
            Role::Write => self.write(),
            Role::Read(group) => self.read(group),
            Role::Replay => self.replay(),
        };
        match outcome {
            Ok(()) => self.say(Said::Done),
            // It is started anew.
            Err(StepError::Client(ClientError::Closed | ClientError::Unreachable { .. })) => {}
            Err(error) => self.say(Said::Wrong(error.to_string())),
        }
    }

    fn say(&self, said: Said) {
        self.ledger.say(self.who, said);
    }

    /// Does nothing for a while; an error if it is killed.
    fn think(&mut self) -> Result<(), StepError> {
        let ns = self.random.within(self.plan.pause_ns.clone());
        match fiber::sleep(ns) {
            true => Ok(()),
            false => Err(ClientError::Closed.into()),
        }
    }

    /// The stream, which the first to come makes.
    fn stream(&self) -> Result<Stream, StepError> {
        let options = StreamOptions {
            parts: self.plan.parts,
            storage_config: self.plan.storage_config.clone(),
            durability: Some(match self.plan.has_power_losses {
                true => Durability::Synced,
                false => Durability::Written,
            }),
            ..StreamOptions::default()
        };
        loop {
            match patiently(|| Stream::open(&self.driver, STREAM)) {
                Err(StepError::Client(ClientError::Server(_))) => {}
                opened => return opened,
            }
            match patiently(|| Stream::create(&self.driver, STREAM, &options)) {
                Err(StepError::Client(ClientError::Server(_))) => {
                    fiber::sleep(RETRY_NS);
                }
                made => return made,
            }
        }
    }

    fn write(&mut self) -> Result<(), StepError> {
        let stream = self.stream()?;
        loop {
            let options = || WriterOptions {
                name: "simulation".to_owned(),
                rank: self.who.rank,
                ranks: self.plan.ranks,
                queue_steps: self.plan.queue_steps,
                queue_bytes: self.plan.queue_bytes,
                when_full: self.plan.when_full,
                readers_min: self.plan.readers_min,
                session_timeout: self.plan.session_timeout,
                open_timeout: CALL,
                timeout: CALL,
                durability: None,
                close_timeout: CALL,
                kept_bytes_max: 1 << 20,
                ..WriterOptions::default()
            };
            let mut writer = match patiently(|| stream.writer(options())) {
                // It was away, or others were, while it waited for readers.
                Err(StepError::RunEnded { .. }) => {
                    self.think()?;
                    continue;
                }
                opened => opened?,
            };
            let (run, next) = (writer.run().0, writer.step().0);
            self.say(Said::Opened { run, next });
            match self.write_run(&mut writer) {
                Ok(()) => self.say(Said::Closed { run }),
                Err(StepError::RunEnded { reason: why, .. }) => self.say(Said::Ended { run, why }),
                Err(error) => return Err(error),
            }
            // Relaxed: one thread runs at a time.
            if run >= self.last_run.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }

    fn write_run(&mut self, writer: &mut Writer) -> Result<(), StepError> {
        let run = writer.run().0;
        while writer.step().0 < steps_of(self.plan.seed, run) {
            self.think()?;
            let step = writer.begin_step()?.0;
            if self.plan.pins_step(run, step) {
                writer.pin_step()?;
            }
            self.put(writer)?;
            if self.random.one_in(20) {
                // Nothing of it is seen, and it is written again.
                writer.drop_step()?;
                continue;
            }
            self.say(Said::Ending { run, step });
            let wait = self
                .random
                .pick(&[Wait::Begun, Wait::Accepted, Wait::Committed]);
            let ended = patiently(|| match writer.step().0 == step {
                true => writer.end_step(wait),
                false => writer.wait(wait, CALL),
            })?;
            let discarded = ended.discarded.is_some();
            match (wait, ended.record) {
                (Wait::Begun, _) => {}
                (Wait::Accepted, _) => self.say(Said::Accepted {
                    run,
                    step,
                    discarded,
                }),
                (Wait::Committed, record) => {
                    let offset = record.expect("it was waited for").offset.0;
                    self.say(Said::Committed {
                        run,
                        step,
                        discarded,
                        offset,
                    });
                }
            }
        }
        patiently(|| writer.close_run(CALL))
    }

    fn put(&mut self, writer: &mut Writer) -> Result<(), StepError> {
        let place = self.place(writer.run().0, writer.step().0);
        let (rank, life) = (self.who.rank, self.who.life);
        for variable in place.variables() {
            let own = |(_, block): &(usize, &super::script::Block)| block.rank == rank;
            for (index, block) in variable.blocks.iter().enumerate().filter(own) {
                let data = variable.data(place, index, life);
                let kind = match variable.kind {
                    Kind::Value => Some(ShapeKind::Value),
                    Kind::LocalValue => Some(ShapeKind::LocalValue),
                    _ => None,
                };
                if let Some(kind) = kind {
                    writer.put_value(&variable.name, kind, &variable.dtype, &data)?;
                    continue;
                }
                let put = Put {
                    name: &variable.name,
                    dtype: &variable.dtype,
                    place: match variable.kind {
                        Kind::Joined(along) => step::Place::Joined(along as u32),
                        Kind::Local => step::Place::Local,
                        _ => step::Place::Array {
                            shape: &variable.shape,
                            start: &block.start,
                        },
                    },
                    count: &block.count,
                    with_extremes: true,
                };
                match self.random.below(3) {
                    0 => writer.put(&put, &data)?,
                    1 => writer.put_owned(&put, data.into())?,
                    _ => {
                        let span = writer.span(&put)?;
                        writer.span_mut(span)?.copy_from_slice(&data);
                    }
                }
            }
        }
        let dtype = DType::parse("<u8").expect("it is one");
        writer.put_value("life", ShapeKind::LocalValue, &dtype, &life.to_le_bytes())?;
        if rank == 0 && place.step.is_multiple_of(3) {
            writer.set_attribute("last", place.step as i64)?;
        }
        if rank == 0 && place.step == 0 && self.has_mesh(place.run) {
            writer.set_attribute("mesh", vec![place.run as f64; MESH])?;
        }
        Ok(())
    }

    /// How many ranks its group has.
    fn ranks(&self) -> u32 {
        match self.who.role {
            Role::Read(group) => self.plan.groups[group].ranks,
            _ => 1,
        }
    }

    /// Roles of groups that share steps.
    fn sharers(&self) -> impl Fn(Role) -> bool {
        let shares: Vec<bool> = self
            .plan
            .groups
            .iter()
            .map(|group| group.shares.is_some())
            .collect();
        move |role| matches!(role, Role::Read(group) if shares[group])
    }

    fn place(&self, run: u64, step: u64) -> Place {
        Place {
            seed: self.plan.seed,
            ranks: self.plan.ranks,
            run,
            step,
        }
    }

    fn has_mesh(&self, run: u64) -> bool {
        mix(self.plan.seed ^ run).is_multiple_of(2)
    }

    fn read(&mut self, group: usize) -> Result<(), StepError> {
        let stream = self.stream()?;
        let plan = self.plan.groups[group].clone();
        loop {
            let options = || ReaderOptions {
                name: match plan.shares {
                    None => format!("group-{group}"),
                    Some(_) => "shared".to_owned(),
                },
                distribution: plan.shares.unwrap_or_default(),
                group: plan.shares.map(|_| format!("group-{group}")),
                rank: self.who.rank,
                ranks: plan.ranks,
                start: StepStart::Cursor,
                latest: plan.latest,
                session_timeout: self.plan.session_timeout,
                open_timeout: CALL,
                preload: match mix(self.plan.seed ^ 0xa4ead ^ group as u64) % 2 {
                    0 => Preload::All,
                    _ => Preload::Nothing,
                },
                ..ReaderOptions::default()
            };
            self.say(Said::Attaching);
            let mut reader = patiently(|| stream.reader(options()))?;
            self.say(Said::Attached);
            match self.read_on(&mut reader) {
                // A rank whose group is no more begins anew, as its program does.
                Err(StepError::Replaced(_) | StepError::Incomplete(_)) => self.say(Said::Replaced),
                outcome => return outcome,
            }
        }
    }

    /// All that is stored, by a group of its own.
    fn replay(&mut self) -> Result<(), StepError> {
        let stream = self.stream()?;
        let options = ReaderOptions {
            name: format!("replay-{}", self.who.life),
            start: StepStart::Oldest,
            open_timeout: CALL,
            ..ReaderOptions::default()
        };
        let mut reader = patiently(|| stream.reader(options.clone()))?;
        self.read_on(&mut reader)?;
        Ok(())
    }

    fn read_on(&mut self, reader: &mut Reader) -> Result<(), StepError> {
        let mut is_over = false;
        let shares = self.sharers()(self.who.role);
        loop {
            // A rank that leaves for longer than its session lasts ends the group of those that are behind.
            if is_over && self.ledger.is_over(self.who.role, self.ranks()) {
                return Ok(());
            }
            // One that came behind the end of the last run is not told of it.
            if let Role::Read(group) = self.who.role
                && self.plan.groups[group].shares.is_some()
                && self
                    .ledger
                    .has_ended(self.sharers(), self.last_run.load(Ordering::Relaxed))
            {
                is_over = true;
            }
            self.think()?;
            let asked = self.ledger.len();
            let patience = if is_over { CALL / 40 } else { CALL };
            let next = patiently(|| reader.next(patience))?;
            let at = reader.position();
            let offset = || at.expect("it was given a record").offset.0;
            match next {
                Next::NotReady(why) => {
                    self.say(Said::NotReady(why));
                    if is_over && shares {
                        return Ok(());
                    }
                }
                Next::End { run, broken } => {
                    let (run, broken, offset) = (run.0, broken.is_some(), offset());
                    self.say(Said::RunOver {
                        run,
                        broken,
                        offset,
                    });
                    is_over |= run >= self.last_run.load(Ordering::Relaxed);
                }
                Next::Step(view) => {
                    let (run, step, offset) = (view.run().0, view.number().0, offset());
                    self.say(Said::Given {
                        asked,
                        run,
                        step,
                        offset,
                        skipped: view.skipped(),
                    });
                    let lives = self.look(&view)?;
                    self.say(Said::Seen {
                        run,
                        step,
                        offset,
                        lives,
                    });
                    self.think()?;
                    self.say(Said::Releasing { offset });
                    if self.random.one_in(2) {
                        let began = self.ledger.len();
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

    /// Compares what is in a step with what was written. Gives which lives have.
    fn look(&mut self, view: &StepView) -> Result<Vec<u64>, StepError> {
        let place = self.place(view.run().0, view.number().0);
        let lives: Vec<u64> = match view.values("life") {
            Ok(lives) => lives
                .iter()
                .filter_map(|life| Some(u64::from_le_bytes(life[..].try_into().ok()?)))
                .collect(),
            Err(_) => Vec::new(),
        };
        if lives.len() != self.plan.ranks as usize {
            let ranks = self.plan.ranks;
            self.say(Said::Wrong(format!(
                "{view:?} has parts of {lives:?}, and {ranks} ranks write"
            )));
            return Ok(lives);
        }
        let variables = place.variables();
        let is_there = |variable: &&Variable| !variable.blocks.is_empty();
        let mut wanted: Vec<&str> = variables
            .iter()
            .filter(is_there)
            .map(|one| one.name.as_str())
            .collect();
        let mut names: Vec<&str> = view.names().filter(|name| *name != "life").collect();
        wanted.sort_unstable();
        names.sort_unstable();
        if wanted != names {
            self.say(Said::Wrong(format!(
                "{view:?} has {names:?} instead of {wanted:?}"
            )));
            return Ok(lives);
        }
        self.look_at_attributes(view, place);
        let mut selections = Vec::new();
        for variable in variables.iter().filter(is_there) {
            let whole = step::Selection::Whole;
            match variable.kind {
                Kind::Value | Kind::LocalValue => {
                    let mut values = variable.find_values(place, &lives);
                    if variable.kind == Kind::Value {
                        values.truncate(1);
                    }
                    if view.values(&variable.name)? != values {
                        let name = &variable.name;
                        self.say(Said::Wrong(format!("{view:?}: {name} has other values")));
                    }
                }
                Kind::Local => {
                    selections.push((variable, variable.select(&mut self.random)));
                }
                _ => {
                    selections.push((variable, whole));
                    selections.push((variable, variable.select(&mut self.random)));
                }
            }
        }
        let asked: Vec<_> = selections
            .iter()
            .map(|(variable, selection)| (variable.name.as_str(), selection))
            .collect();
        let arrays = patiently(|| view.get_arrays(&asked))?;
        for ((variable, selection), array) in selections.iter().zip(arrays) {
            let found = Found {
                shape: array.shape,
                bytes: array.data.to_vec(),
                uncovered: array.coverage.uncovered,
            };
            let expected = variable.find(place, selection, &lives);
            if found != expected {
                self.say(Said::Wrong(format!(
                    "{view:?} of {lives:?}: {selection:?} of {variable:?} is {found:?}, and {expected:?} was written"
                )));
            }
        }
        Ok(lives)
    }

    fn look_at_attributes(&self, view: &StepView, place: Place) {
        let attributes = view.attributes();
        let last = attributes.get("last").and_then(|last| last.as_integers());
        let mesh = attributes.get("mesh").and_then(|mesh| mesh.as_floats());
        let wanted = self
            .has_mesh(place.run)
            .then(|| vec![place.run as f64; MESH]);
        if last != Some(vec![last_of(place.step)]) || mesh != wanted {
            let mesh = mesh.map(|mesh| mesh.len());
            self.say(Said::Wrong(format!(
                "{view:?}: its attributes are of another step: {last:?}, {mesh:?}"
            )));
        }
    }
}

/// Makes a call until something comes of it but that it is to be made again.
fn patiently<T>(mut call: impl FnMut() -> Result<T, StepError>) -> Result<T, StepError> {
    loop {
        match call() {
            Err(StepError::Client(error)) if may_come(&error) => {
                if !fiber::sleep(RETRY_NS) {
                    return Err(ClientError::Closed.into());
                }
            }
            outcome => return outcome,
        }
    }
}

fn may_come(error: &ClientError) -> bool {
    error.is_timeout() || error.is_retryable()
}
