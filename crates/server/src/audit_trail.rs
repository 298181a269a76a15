//! The audit trail: a file a day of the data directory, kept for 90 days. Its page is
//! `docs/operations/audit.md`.
//!
//! Records are brought to a thread of its own, within a bound, and nobody waits for it: behind a disk
//! that is slow or full the server goes on, records that find no room are lost, and how many those
//! were is counted, said in the server's log, and written when there is room again.

use crate::rare_line::RareLine;
use crate::server_log::ServerLog;
use access::UnixTime;
use broker::{AuditRecord, Counters, Line};
use memory::thread::JoinHandle;
use serde_json::json;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

const DIRECTORY: &str = "audit";
const SUFFIX: &str = ".jsonl";
/// How long a file is kept, beyond its day.
const KEPT: Duration = Duration::from_secs(90 * 86_400);
/// The most that is kept of a day: clients that cause records have so much of the disk, and no more.
const DAY_BYTES_MAX: u64 = 64 << 20;
/// Records that wait to be written.
const WAITING_MAX: usize = 4096;
/// Records that are written at once.
const BATCH_MAX: usize = 256;
/// How often what was written is synced, at most.
const SYNC: Duration = Duration::from_secs(1);

/// See the module. Dropped, it writes what has come.
pub struct AuditTrail {
    records: Option<SyncSender<AuditRecord>>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
}

impl AuditTrail {
    /// Keeps the trail of a data directory.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub fn start(data: &Path, log: ServerLog, counters: Arc<Counters>) -> io::Result<Self> {
        let (records, come) = sync_channel(WAITING_MAX);
        let writer = Writer {
            trail: Trail::new(data.join(DIRECTORY)),
            log,
            counters: counters.clone(),
            lost: 0,
            failed: RareLine::default(),
            started: Instant::now(),
        };
        let thread = memory::thread::spawn("thalweg-audit", move || writer.run(&come))?;
        Ok(Self {
            records: Some(records),
            thread: Some(thread),
            counters,
        })
    }

    /// Brings a record, and never waits.
    pub fn bring(&self, record: AuditRecord) {
        let brought = self.records.as_ref().map(|to| to.try_send(record));
        match brought {
            Some(Ok(())) => {}
            _ => self.counters.audit_records_lost.add(1),
        }
    }
}

impl Drop for AuditTrail {
    fn drop(&mut self) {
        self.records = None;
        if let Some(thread) = self.thread.take() {
            // A panic was a bug in it; what it had is lost.
            let _ = thread.join();
        }
    }
}

/// The thread that writes.
struct Writer {
    trail: Trail,
    log: ServerLog,
    counters: Arc<Counters>,
    /// How many lost records the trail knows of.
    lost: u64,
    failed: RareLine,
    started: Instant,
}

impl Writer {
    fn run(mut self, come: &Receiver<AuditRecord>) {
        let mut unsynced = false;
        let mut sync_at = Instant::now();
        loop {
            let left = sync_at.saturating_duration_since(Instant::now());
            let first = match unsynced {
                true => come.recv_timeout(left),
                false => come.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let is_over = first == Err(RecvTimeoutError::Disconnected);
            if let Ok(first) = first {
                let more = come.try_iter().take(BATCH_MAX - 1);
                let records: Vec<_> = std::iter::once(first).chain(more).collect();
                self.write(&records);
                if !unsynced {
                    sync_at = Instant::now() + SYNC;
                }
                unsynced = true;
            }
            if unsynced && (is_over || Instant::now() >= sync_at) {
                unsynced = false;
                let synced = self.trail.sync();
                self.report(synced);
            }
            if is_over {
                return;
            }
        }
    }

    fn write(&mut self, records: &[AuditRecord]) {
        let lost = self.counters.audit_records_lost.get();
        let mut text = String::new();
        let Some(last) = records.last() else {
            return;
        };
        if lost > self.lost {
            let time = UnixTime(last.unix_ns).to_string();
            let line = json!({"what": "lost", "records": lost - self.lost, "time": time});
            text.push_str(&format!("{line}\n"));
        }
        for record in records {
            text.push_str(&record.to_line());
            text.push('\n');
        }
        let written = self.trail.append(UnixTime(last.unix_ns), text.as_bytes());
        match &written {
            Ok(()) => {
                self.lost = lost;
                self.counters.audit_records.add(records.len() as u64);
            }
            Err(_) => self.counters.audit_records_lost.add(records.len() as u64),
        }
        self.report(written);
    }

    fn report(&mut self, done: io::Result<()>) {
        let Err(error) = done else {
            return;
        };
        if let Some(count) = self.failed.due(self.started.elapsed()) {
            let directory = self.trail.directory.display();
            self.log.write(&Line::warning(format!(
                "the audit trail in {directory} is not written, and the server goes on without: \
                 {error} ({count} failures since the last such line)"
            )));
        }
    }
}

/// The files.
struct Trail {
    directory: PathBuf,
    /// That of a day, and how long its whole lines are.
    open: Option<(String, File, u64)>,
}

impl Trail {
    fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            open: None,
        }
    }

    /// Appends lines to the file of a day: all of them, or none.
    fn append(&mut self, now: UnixTime, lines: &[u8]) -> io::Result<()> {
        let day = day(now);
        if self.open.as_ref().is_none_or(|(open, ..)| *open != day) {
            self.open = None;
            let (file, bytes) = self.open(&day)?;
            self.open = Some((day.clone(), file, bytes));
            self.remove_old(now);
        }
        let Some((_, file, bytes)) = &mut self.open else {
            return Ok(());
        };
        if *bytes + lines.len() as u64 > DAY_BYTES_MAX {
            let why =
                format!("the file of {day} has {bytes} bytes, and {DAY_BYTES_MAX} are the most");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
        }
        match file.write_all(lines) {
            Ok(()) => {
                *bytes += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Half a line would spoil the next one. Where not even that can be taken back, a file
                // that is opened anew begins with the end of a line.
                if file.set_len(*bytes).is_err() {
                    self.open = None;
                }
                Err(error)
            }
        }
    }

    fn open(&self, day: &str) -> io::Result<(File, u64)> {
        let made = DirBuilder::new().mode(0o700).create(&self.directory);
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let path = self.directory.join(format!("{day}{SUFFIX}"));
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let mut bytes = file.metadata()?.len();
        if bytes > 0 {
            // A server that was killed may have left half a line.
            file.write_all(b"\n")?;
            bytes += 1;
        }
        Ok((file, bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        match &self.open {
            Some((_, file, _)) => file.sync_data(),
            None => Ok(()),
        }
    }

    /// Removes files of days that are over for long. What cannot be removed is tried again tomorrow.
    fn remove_old(&self, now: UnixTime) {
        let kept_ns = KEPT.as_nanos() as u64;
        let first = day(UnixTime(now.0.saturating_sub(kept_ns)));
        let Ok(entries) = std::fs::read_dir(&self.directory) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_old = name.strip_suffix(SUFFIX).is_some_and(|day| {
                day.len() == first.len()
                    && day
                        .bytes()
                        .all(|byte| byte.is_ascii_digit() || byte == b'-')
                    && day < first.as_str()
            });
            if is_old {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// A day, as in `2026-12-01`.
fn day(time: UnixTime) -> String {
    let mut text = time.to_string();
    text.truncate("2026-12-01".len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::Audited;
    use serde_json::{Map, Value};
    use std::sync::Mutex;

    const DAY_NS: u64 = 86_400 * 1_000_000_000;
    /// 2026-12-01T08:00:00Z.
    const NOW: u64 = 1_796_112_000 * 1_000_000_000;

    fn record(unix_ns: u64) -> AuditRecord {
        AuditRecord {
            unix_ns,
            what: Audited::Connect,
            fields: Map::new(),
        }
    }

    fn log() -> (ServerLog, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        let write = Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned()));
        (ServerLog::from(write), lines)
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn records_are_in_the_file_of_their_day_and_old_days_go() {
        let data = tempfile::tempdir().unwrap();
        let directory = data.path().join(DIRECTORY);
        std::fs::create_dir(&directory).unwrap();
        for name in [
            "2026-09-01.jsonl",
            "2026-09-02.jsonl",
            "notes.jsonl",
            "2026-09-01.txt",
        ] {
            std::fs::write(directory.join(name), "").unwrap();
        }
        // A server that was killed in the middle of a line.
        std::fs::write(directory.join("2026-12-01.jsonl"), "{}\n{\"what\"").unwrap();
        let counters = Arc::<Counters>::default();
        let (log, said) = log();
        let trail = AuditTrail::start(data.path(), log, counters.clone()).unwrap();
        trail.bring(record(NOW));
        drop(trail);
        let text = std::fs::read_to_string(directory.join("2026-12-01.jsonl")).unwrap();
        let last = text.lines().last().unwrap();
        assert!(last.contains("\"what\":\"connect\""), "{text}");
        let mut trail = Trail::new(directory.clone());
        trail.append(UnixTime(NOW + DAY_NS), b"{}\n").unwrap();
        let mut names: Vec<_> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "2026-09-01.txt",
                "2026-12-01.jsonl",
                "2026-12-02.jsonl",
                "notes.jsonl"
            ]
        );
        assert_eq!(counters.audit_records.get(), 1);
        assert_eq!(counters.audit_records_lost.get(), 0);
        assert!(said.lock().unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_told_and_nobody_waits() {
        let data = tempfile::tempdir().unwrap();
        // No directory can be made there.
        let directory = data.path().join(DIRECTORY);
        std::fs::write(&directory, "").unwrap();
        let counters = Arc::<Counters>::default();
        let (log, said) = log();
        let mut writer = Writer {
            trail: Trail::new(directory.clone()),
            log,
            counters: counters.clone(),
            lost: 0,
            failed: RareLine::default(),
            started: Instant::now(),
        };
        writer.write(&[record(NOW), record(NOW)]);
        assert_eq!(counters.audit_records_lost.get(), 2);
        let line = said.lock().unwrap().concat();
        assert!(line.contains("the server goes on without"), "{line}");
        // When there is room again, the trail says what it lacks.
        std::fs::remove_file(&directory).unwrap();
        writer.write(&[record(NOW)]);
        let written = lines(&directory.join("2026-12-01.jsonl"));
        assert_eq!(written[0]["what"], "lost");
        assert_eq!(written[0]["records"], 2);
        assert_eq!(written[1]["what"], "connect");
    }

    #[test]
    fn a_trail_that_stalls_holds_up_nobody() {
        let counters = Arc::<Counters>::default();
        let (records, come) = sync_channel(1);
        let trail = AuditTrail {
            records: Some(records),
            thread: None,
            counters: counters.clone(),
        };
        for _ in 0..5 {
            trail.bring(record(NOW));
        }
        assert_eq!(counters.audit_records_lost.get(), 4);
        drop(come);
    }
}
