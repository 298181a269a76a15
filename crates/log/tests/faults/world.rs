//! A partition on a faulty disk, a script that uses it, and the model beside it.

use super::model::*;
use bytes::Bytes;
use log::producers::Verdict;
use log::testing::{Contents, Driven, Fault, FaultyDisk};
use log::*;
use memory::Buffer;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use wire::batch::{Batch, ExternalLayout, Verify};
use wire::checksum::block_checksums;
use wire::record::GapReason;
use wire::*;

pub const DIRECTORY: &str = "/p";
const DIRECT: usize = log::disk::DIRECT_ALIGNMENT as usize;
/// Files that were not used for so long are closed.
const LONG_NS: u64 = 200_000_000_000;
type Hook = dyn FnMut(&Operation, &Model) -> Result<(), String> + Send;

/// How the partition is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub steps: u64,
    pub durability: Durability,
    /// Operations are carried out in any order, while more is asked.
    pub concurrent: bool,
}

/// Bugs that are planted to see that they are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// No file is ever synced.
    SkipSync,
    /// External data is not synced, the batch that names it is.
    LogBeforeData,
    /// No directory is ever synced.
    SkipDirectorySync,
    /// What was only written is taken for synced.
    AckEarly,
    /// A retry is appended although it is known.
    DoubleBatch,
}

/// The disk as the partition gets it.
pub struct Rig {
    pub disk: Arc<FaultyDisk>,
    pub sabotage: Sabotage,
    pub model: Arc<Mutex<Model>>,
    hook: Mutex<Option<Box<Hook>>>,
    error: Mutex<Option<String>>,
}

impl Rig {
    pub fn new(disk: FaultyDisk, sabotage: Sabotage) -> Arc<Self> {
        Arc::new(Self {
            disk: Arc::new(disk),
            sabotage,
            model: Arc::default(),
            hook: Mutex::default(),
            error: Mutex::default(),
        })
    }

    /// Called before each operation.
    pub fn set_hook(
        &self,
        hook: impl FnMut(&Operation, &Model) -> Result<(), String> + Send + 'static,
    ) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }
}

impl Disk for Rig {
    fn execute(&self, operation: Operation) -> Result<Outcome, DiskError> {
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            let model = self.model.lock().unwrap().clone();
            let result = hook(&operation, &model);
            *self.hook.lock().unwrap() = Some(hook);
            if let Err(error) = result {
                let number = self.disk.operation_count();
                let what = operation.describe(|file| format!("file {}", file.0));
                let error = format!("at operation {number}, {what}: {error}");
                self.error.lock().unwrap().get_or_insert(error);
            }
        }
        let skipped = match (&operation, self.sabotage) {
            (Operation::SyncData { .. }, Sabotage::SkipSync) => true,
            (Operation::SyncDirectory { .. }, Sabotage::SkipDirectorySync) => true,
            (Operation::SyncData { file }, Sabotage::LogBeforeData) => {
                // Its path shows in the trace of an operation on it.
                let file = *file;
                let _ = self.disk.execute(Operation::Length { file });
                let trace = self.disk.trace();
                trace
                    .last()
                    .is_some_and(|last| last.path.extension().is_some_and(|e| e == "data"))
            }
            _ => false,
        };
        match skipped {
            true => Ok(Outcome::Done),
            false => self.disk.execute(operation),
        }
    }
}

pub fn open_partition(plan: Plan, create: bool, boot: u64, incarnation: u64) -> OpenPartition {
    OpenPartition {
        directory: PathBuf::from(DIRECTORY),
        topic: TOPIC,
        partition: PartitionIndex(0),
        incarnation: Incarnation(incarnation),
        durability: plan.durability,
        config: r#"{"segment_bytes": 9000, "background_sync_bytes": 6000, "checkpoint_bytes": 5000,
            "direct_bytes_min": 6000, "index_bytes": 700, "allocate_bytes_min": 512, "allocate_bytes_max": 2048,
            "open_segments_max": 4}"#
            .into(),
        retention: Retention::default(),
        boot_id: format!("boot {boot}"),
        unix_ns: 1 + boot,
        create,
    }
}

/// Opens the partition on `disk`, as often as it takes, and reads it all.
pub fn open_and_read(
    disk: &Arc<dyn Disk>,
    plan: Plan,
    model: &Model,
    boot: u64,
    data_count: u64,
) -> Result<(Driven, Recovery, Contents), String> {
    let kind = DiskKind::seeded(
        disk.clone(),
        plan.seed ^ boot.wrapping_mul(977) ^ model.log.len() as u64,
    );
    let mut open = kind.open(open_partition(
        plan,
        !model.created,
        boot,
        model.incarnation,
    ));
    if let (Err(StorageError::Invalid(_)), false) = (&open, model.created) {
        open = kind.open(open_partition(plan, false, boot, model.incarnation));
    }
    let (storage, report) = open.map_err(|error| format!("opening: {error}"))?;
    let mut driven = Driven::new(storage, Some(disk.clone()));
    let end = driven.storage.state().end;
    let data_from = Offset(end.0.saturating_sub(data_count));
    let contents = driven
        .read_most(end, 20_000, data_from)
        .map_err(|error| format!("reading: {error}"))?;
    Ok((driven, report, contents))
}

/// A partition in use.
pub struct World {
    pub rig: Arc<Rig>,
    plan: Plan,
    storage: Option<Box<dyn Storage>>,
    pool: Vec<(OperationToken, Operation)>,
    /// Batches whose data is on the way: place and first event.
    filling: Vec<(DataPlace, Key)>,
    closing: bool,
    closed: bool,
    boot: u64,
    random: u64,
    next_read: u64,
    now: u64,
    pub allow: Allow,
    /// Whether a fault was planned, so that calls may fail.
    pub faulty: bool,
    pub gaps_told: Vec<wire::record::Gap>,
}

/// Other scripts than the usual ones, by `THALWEG_FAULTS_SEED`.
fn other_seed() -> u64 {
    let seed = std::env::var("THALWEG_FAULTS_SEED").ok();
    seed.and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

impl World {
    pub fn new(rig: Arc<Rig>, plan: Plan) -> Self {
        rig.model.lock().unwrap().written_only = plan.durability < Durability::Synced;
        rig.model.lock().unwrap().incarnation = 1;
        rig.model.lock().unwrap().boot = 1;
        Self {
            rig,
            plan,
            storage: None,
            pool: Vec::new(),
            filling: Vec::new(),
            closing: false,
            closed: false,
            boot: 1,
            random: plan.seed.wrapping_add(other_seed()),
            next_read: 0,
            now: 1000,
            allow: Allow::Nothing,
            faulty: false,
            gaps_told: Vec::new(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.random >> 33) % bound
    }

    fn model(&self) -> std::sync::MutexGuard<'_, Model> {
        self.rig.model.lock().unwrap()
    }

    fn disk(&self) -> Arc<dyn Disk> {
        self.rig.clone()
    }

    /// Runs the whole script, then closes.
    pub fn run(&mut self) -> Result<(), String> {
        self.open(Crash::Closed)?;
        for step in 0..self.plan.steps {
            self.step(step)
                .map_err(|error| format!("step {step}: {error}"))?;
            if let Some(error) = self.rig.error.lock().unwrap().take() {
                return Err(format!("step {step}: {error}"));
            }
        }
        self.close()?;
        match self.rig.error.lock().unwrap().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn open(&mut self, crash: Crash) -> Result<(), String> {
        self.pool.clear();
        self.filling.clear();
        let disk = self.disk();
        let model = self.model().clone();
        let fresh = !model.created;
        let mut tries = 0;
        let opened = loop {
            let opened = match fresh && tries == 0 {
                true => {
                    let kind = DiskKind::seeded(disk.clone(), self.plan.seed);
                    let open = kind.open(open_partition(self.plan, true, self.boot, 1));
                    let open = open.map_err(|error| format!("making: {error}"));
                    open.map(|(storage, report)| {
                        (
                            Driven::new(storage, Some(disk.clone())),
                            report,
                            Contents::default(),
                        )
                    })
                }
                false => open_and_read(&disk, self.plan, &model, self.boot, 6),
            };
            match opened {
                // Its directory's name was not synced: nothing is left of it.
                Err(error) if self.allow == Allow::Lie && self.is_gone() => return Err(error),
                Err(error) if !self.faulty || tries > 3 => return Err(error),
                Err(_) => {
                    // A fault hit recovery; it is there once.
                    tries += 1;
                    self.rig.disk.kill();
                }
                Ok(opened) => break opened,
            }
        };
        let (driven, report, contents) = opened;
        let state = driven.storage.state();
        if !fresh {
            let found = model.check(crash, self.allow, (&state, &report), &contents)?;
            self.model().adopt(found, &state);
        }
        self.model().created = true;
        self.storage = Some(driven.storage);
        self.closing = false;
        self.model().closing = false;
        self.closed = false;
        Ok(())
    }

    /// Whether the whole directory is missing.
    pub fn is_gone(&self) -> bool {
        let path = PathBuf::from(DIRECTORY);
        self.rig.disk.execute(Operation::List { path }).is_err()
    }

    /// What a script consists of, chosen by chance; some steps come for sure.
    fn step(&mut self, step: u64) -> Result<(), String> {
        self.now += 10;
        match step % 90 {
            // The process is killed, the power fails, the partition is closed.
            23 => self.crash(Crash::Killed)?,
            57 => self.crash(Crash::PowerLoss)?,
            // Nobody uses it for a long time.
            40 => self.idle(true)?,
            70 => self.idle(false)?,
            82 => {
                self.close()?;
                self.open(Crash::Closed)?;
            }
            _ => match self.below(20) {
                0 | 5 => self.remove_some(),
                1 | 2 => self.read_some(),
                3 => self.abandon_some(),
                4 => self.storage().tick(step * 1000),
                _ => self.append_some()?,
            },
        }
        let count = match self.plan.concurrent {
            true => self.below(7),
            false => u64::MAX,
        };
        self.pump(count)
    }

    /// So much time passes that files are closed, while operations are carried out: all, or
    /// some of them.
    fn idle(&mut self, whole: bool) -> Result<(), String> {
        for _ in 0..3 {
            let count = match self.plan.concurrent && !whole {
                true => self.below(7),
                false => u64::MAX,
            };
            self.pump(count)?;
            self.now += LONG_NS;
            let now = self.now;
            self.storage().tick(now);
        }
        if self.faulty || !whole {
            return Ok(());
        }
        self.pump(u64::MAX)?;
        let open = self.rig.disk.open_paths();
        match open.is_empty() {
            true => Ok(()),
            false => Err(format!("idle, and these are open: {open:?}")),
        }
    }

    fn storage(&mut self) -> &mut Box<dyn Storage> {
        self.storage.as_mut().expect("the script opens first")
    }

    fn append_some(&mut self) -> Result<(), String> {
        let producer = self.below(u64::from(PRODUCERS)) as u8;
        if self.filling.iter().any(|(_, key)| key.producer == producer) {
            return Ok(());
        }
        let sequence = self.model().next.get(&producer).copied().unwrap_or(0);
        let key = Key { producer, sequence };
        let events = key.batch_events();
        let external = events
            .iter()
            .enumerate()
            .filter(|(_, event)| event.external);
        let lengths = external.map(|(index, event)| (index as u32, event.data.len() as u64));
        let layout = ExternalLayout::new(lengths, BLOCK_BYTES).unwrap();
        if layout.events.is_empty() {
            return self.append(key, None);
        }
        let durability = self.plan.durability;
        let place = match self.storage().reserve(&layout) {
            Ok(place) => place,
            Err(error) => return self.refused(&error),
        };
        let mut checksums = Vec::new();
        for (index, position, _) in &layout.events {
            let data = &events[*index as usize].data;
            checksums.extend(block_checksums(data, BLOCK_BYTES));
            // Some are cut where a direct write can begin.
            let third = match sequence.is_multiple_of(2) {
                true => data.len() / 3,
                false => data.len() / 3 / DIRECT * DIRECT,
            };
            let parts = [(0, &data[..third]), (third, &data[third..])];
            for (start, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
                let part = Bytes::copy_from_slice(part);
                self.storage()
                    .write_data(place, position + start as u64, part);
            }
        }
        self.storage().seal_data(place, checksums, durability);
        self.filling.push((place, key));
        Ok(())
    }

    fn refused(&mut self, error: &StorageError) -> Result<(), String> {
        match error {
            _ if self.closing => Ok(()),
            _ if !self.faulty => Err(format!("refused without reason: {error}")),
            StorageError::Full(_) | StorageError::Failed(_) => Ok(()),
            other => Err(format!("refused for a wrong reason: {other}")),
        }
    }

    fn append(&mut self, key: Key, place: Option<DataPlace>) -> Result<(), String> {
        if self.model().next.get(&key.producer).copied().unwrap_or(0) != key.sequence {
            // Batches before it were refused meanwhile: they come first.
            if let Some(place) = place {
                self.storage().abandon(place);
            }
            return Ok(());
        }
        let (bytes, header, header_crc) = key.batch_bytes();
        let nothing_left = !self
            .model()
            .log
            .iter()
            .flatten()
            .any(|other| other.producer == key.producer);
        match self.storage().check(&header) {
            Verdict::New => {}
            Verdict::Duplicate { .. } | Verdict::OutOfSequence { .. } | Verdict::Unknown { .. }
                if self.allow != Allow::Nothing || nothing_left =>
            {
                // What was lost and named is not sent again: on with the next.
                self.skip_lost(key, &header);
                if let Some(place) = place {
                    self.storage().abandon(place);
                }
                return Ok(());
            }
            other => return Err(format!("{key:?} is not new: {other:?}")),
        }
        let now = self.now;
        let durability = self.plan.durability;
        let append = Append {
            batch: Buffer::copy_of(&bytes),
            header,
            header_crc,
            place,
            durability,
            append_time: now,
            now,
            leader_epoch: 7,
        };
        match self.storage().append(append) {
            Ok(offset) => self.model().appended(key, offset),
            Err(error) => return self.refused(&error),
        }
        let again = self.storage().check(&header);
        if key.producer != RECORDS && !matches!(again, Verdict::Duplicate { .. }) {
            return Err(format!("{key:?} sent again is {again:?}"));
        }
        if self.rig.sabotage == Sabotage::DoubleBatch
            && self.now.is_multiple_of(370)
            && place.is_none()
        {
            let append = Append {
                batch: Buffer::copy_of(&bytes),
                header,
                header_crc,
                place: None,
                durability,
                append_time: now,
                now,
                leader_epoch: 7,
            };
            if let Ok(offset) = self.storage().append(append) {
                self.model().appended(key, offset);
            }
        }
        Ok(())
    }

    fn skip_lost(&mut self, key: Key, header: &wire::batch::Header) {
        let next = match self.storage().check(header) {
            Verdict::OutOfSequence { expected } | Verdict::Unknown { expected } => expected.0,
            _ => key.sequence + key.batch().len() as u64,
        };
        self.model().next.insert(key.producer, next);
    }

    fn abandon_some(&mut self) {
        let layout = ExternalLayout::new([(0, 700)].into_iter(), BLOCK_BYTES).unwrap();
        if let Ok(place) = self.storage().reserve(&layout) {
            let bytes = Bytes::from(vec![0xee; 700]);
            self.storage().write_data(place, 0, bytes);
            self.storage().abandon(place);
        }
    }

    fn remove_some(&mut self) {
        let state = self.storage().state();
        let offset = state.first.0 + (state.end.0 - state.first.0) * 2 / 3;
        self.model().removed_max = self.model_removed(offset);
        self.storage()
            .remove_before(Offset(offset), GapReason::Retention);
    }

    fn model_removed(&self, offset: u64) -> u64 {
        self.rig.model.lock().unwrap().removed_max.max(offset)
    }

    fn read_some(&mut self) {
        let state = self.storage().state();
        let from = state.first.0
            + self.below(state.written.0.max(1)) % (state.written.0 - state.first.0).max(1);
        self.next_read += 1;
        let read = ReadBatches {
            from: Offset(from),
            end: state.written,
            bytes_max: 2500,
            inline_data: true,
        };
        let token = ReadToken(self.next_read);
        self.storage().read(token, read);
    }

    /// Carries out up to `count` operations, in order or not.
    pub fn pump(&mut self, count: u64) -> Result<(), String> {
        let mut left = count;
        loop {
            self.take_events()?;
            if self.storage().state().failure.is_some() {
                if !self.faulty {
                    return Err(format!("failed: {:?}", self.storage().state().failure));
                }
                // Whoever runs it opens it again.
                self.rig.disk.kill();
                self.storage = None;
                return self.open(Crash::Killed);
            }
            while let Some(next) = self.storage().poll_operation() {
                self.pool.push(next);
            }
            if self.pool.is_empty() || left == 0 {
                return Ok(());
            }
            left -= 1;
            let at = match self.plan.concurrent {
                true => self.below(self.pool.len() as u64) as usize,
                false => 0,
            };
            let (token, operation) = self.pool.remove(at);
            let result = self.rig.execute(operation);
            self.storage().complete(token, result);
        }
    }

    fn take_events(&mut self) -> Result<(), String> {
        while let Some(event) = self.storage().poll_event() {
            match event {
                StorageEvent::Refused { from, .. } => self.model().refused(from)?,
                StorageEvent::DataReady { place } => {
                    if let Some(at) = self.filling.iter().position(|(filled, _)| *filled == place) {
                        let (_, key) = self.filling.remove(at);
                        self.append(key, Some(place))?;
                    }
                }
                StorageEvent::DataFailed { place, error } => {
                    self.filling.retain(|(failed, _)| *failed != place);
                    if !self.faulty && !self.closing {
                        return Err(format!("data failed: {error}"));
                    }
                }
                StorageEvent::Read { found, .. } => self.check_read(found)?,
                StorageEvent::Lost(gap) => self.gaps_told.push(gap),
                StorageEvent::Closed => self.closed = true,
                _ => {}
            }
        }
        let mut state = self.storage().state();
        if self.rig.sabotage == Sabotage::AckEarly {
            state.synced = state.written;
        }
        self.model().progressed(&state)
    }

    fn check_read(&mut self, found: Result<Found, StorageError>) -> Result<(), String> {
        let batches = match found {
            Ok(Found::Batches { batches, .. }) => batches,
            Ok(Found::Gap(gap)) if gap.end.0 <= self.model().removed_max => return Ok(()),
            Ok(Found::Gap(gap)) if self.allow == Allow::Nothing => {
                return Err(format!("read: {gap:?}"));
            }
            Ok(_) => return Ok(()),
            Err(_) if self.faulty => return Ok(()),
            Err(error) => return Err(format!("read: {error}")),
        };
        for bytes in batches {
            let batch = Batch::read(bytes, Verify::Sections).map_err(|error| error.to_string())?;
            let offset = batch.stamp.ok_or("no stamp")?.base_offset;
            let key = self.model().log.get(offset.0 as usize).copied().flatten();
            if key.is_none() && self.allow != Allow::Nothing {
                // Its data is damaged, which recovery named; its metadata is not.
                continue;
            }
            let expected = key.map(|key| key.event().metadata.clone());
            let length = expected.as_ref().map_or(0, Vec::len);
            if expected.as_deref() != batch.metadata_section().get(..length) {
                return Err(format!("read at {offset}: not {key:?}"));
            }
        }
        Ok(())
    }

    fn crash(&mut self, crash: Crash) -> Result<(), String> {
        self.storage = None;
        match crash {
            Crash::PowerLoss => {
                let seed = self.below(1 << 30);
                self.rig.disk.power_loss(log::testing::Survival::Some(seed));
                self.boot += 1;
                let mut model = self.model();
                model.boot += 1;
                model.power_losses += 1;
                // What was only written has met its fate.
                model.written = model.synced;
            }
            _ => self.rig.disk.kill(),
        }
        self.open(crash)
    }

    pub fn close(&mut self) -> Result<(), String> {
        let mut tries = 0;
        loop {
            self.closing = true;
            self.model().closing = true;
            self.storage().close();
            self.pump(u64::MAX)?;
            if self.closed {
                self.storage = None;
                self.rig.disk.kill();
                return Ok(());
            }
            tries += 1;
            if tries > 3 {
                return Err(format!("does not close: {:?}", self.storage().state()));
            }
        }
    }
}

/// What becomes of the disk, and what is then expected.
pub fn crash_and_check(
    disk: Arc<dyn Disk>,
    plan: Plan,
    model: &Model,
    crash: Crash,
    allow: Allow,
    thorough: bool,
) -> Result<(), String> {
    let boot = model.boot + u64::from(crash == Crash::PowerLoss);
    let (mut driven, report, contents) = open_and_read(
        &disk,
        plan,
        model,
        boot,
        if thorough { u64::MAX } else { 6 },
    )?;
    let state = driven.storage.state();
    let found = model.check(crash, allow, (&state, &report), &contents)?;
    if !thorough {
        return Ok(());
    }
    let mut model = model.clone();
    model.created = true;
    model.closing = false;
    model.adopt(found, &state);
    go_on(&mut driven, &mut model, allow)?;
    drop(driven);
    let (mut driven, report, contents) = open_and_read(&disk, plan, &model, boot, u64::MAX)?;
    let state = driven.storage.state();
    let found = model.check(Crash::Killed, allow, (&state, &report), &contents)?;
    model.adopt(found, &state);
    driven.storage.close();
    driven.settle();
    drop(driven);
    let (driven, report, contents) = open_and_read(&disk, plan, &model, boot, u64::MAX)?;
    let state = driven.storage.state();
    model.check(Crash::Closed, allow, (&state, &report), &contents)?;
    if report.cut_bytes > 0 {
        return Err(format!(
            "{} bytes were cut after a clean close",
            report.cut_bytes
        ));
    }
    Ok(())
}

/// Producers go on where the log ends; what they send is promised to stay.
fn go_on(driven: &mut Driven, model: &mut Model, allow: Allow) -> Result<(), String> {
    for round in 0..2 {
        for producer in 0..PRODUCERS {
            let mut sequence = model.next.get(&producer).copied().unwrap_or(0);
            let mut key = Key { producer, sequence };
            let (_, header, _) = key.batch_bytes();
            let mut verdict = driven.storage.check(&header);
            if allow != Allow::Nothing
                && let Verdict::OutOfSequence { expected } | Verdict::Unknown { expected } = verdict
            {
                sequence = expected.0;
                key = Key { producer, sequence };
                verdict = driven.storage.check(&key.batch_bytes().1);
            }
            let in_log = model
                .log
                .iter()
                .flatten()
                .any(|key| key.producer == producer);
            match verdict {
                Verdict::New => {}
                // What became of its events, removed or lost, nobody can say.
                _ if !in_log || allow != Allow::Nothing => continue,
                other => return Err(format!("after recovery {key:?} is {other:?}, not new")),
            }
            let (bytes, header, header_crc) = key.batch_bytes();
            let place = driven.store_external(&key.batch_events(), BLOCK_BYTES, Durability::Synced);
            let append = Append {
                batch: Buffer::copy_of(&bytes),
                header,
                header_crc,
                place: place.map_err(|error| format!("storing data: {error}"))?,
                durability: Durability::Synced,
                append_time: 5000 + round,
                now: 5000 + round,
                leader_epoch: 8,
            };
            let offset = driven.storage.append(append);
            let offset = offset.map_err(|error| format!("going on: {error}"))?;
            model.appended(key, offset);
            driven.settle();
            let state = driven.storage.state();
            if state.synced != state.end {
                return Err(format!("not synced: {state:?}"));
            }
            model.progressed(&state)?;
        }
    }
    Ok(())
}

pub fn faults_of(operation: &log::testing::Traced, number: u64) -> Vec<Fault> {
    let bytes = operation.bytes;
    match operation.what {
        "write" | "write direct" => vec![
            Fault::Error,
            Fault::Short(bytes / 2),
            Fault::Short(bytes - bytes.min(1)),
            Fault::Short(bytes),
            Fault::Full(0),
            Fault::Full(bytes / 2),
            Fault::Full(bytes),
            Fault::Flip(number.wrapping_mul(7919)),
            Fault::Flip(number.wrapping_mul(104_729) + 5),
        ],
        "sync data" => vec![
            Fault::Error,
            Fault::Lie,
            Fault::Flip(number.wrapping_mul(7919)),
        ],
        "sync directory" => vec![Fault::Error, Fault::Lie],
        "read" => vec![Fault::Error, Fault::Flip(number.wrapping_mul(7919))],
        "close" | "length" | "list" => vec![Fault::Error],
        _ => vec![Fault::Error, Fault::Full(0)],
    }
}
