//! A few threads for what waits: disk operations and jobs.

use crate::access_files::{AccessFiles, Found};
use crate::certificates::Certificates;
use crate::file_system;
use crate::rare_line::RareLine;
use crate::server_log::ServerLog;
use broker::node::{Job, JobId, JobResult, StorageId};
use broker::{Counters, FileSystemSpace, Line};
use log::{Disk, DiskError, Operation, OperationToken, Outcome};
use memory::thread::JoinHandle;
use net::Waker;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// When an operation that found no descriptor is tried again. Others close
/// theirs meanwhile; until then its partition waits, as behind a slow disk.
const RETRY: Duration = Duration::from_millis(50);

/// Something that waits.
pub enum Task {
    /// A disk operation.
    Operation {
        storage: StorageId,
        token: OperationToken,
        operation: Operation,
    },
    /// A job.
    Job { job: JobId, work: Job },
    /// A look at a data directory: the file system that it lies on, and whose tokens are taken.
    Look { path: PathBuf, access: AccessFiles },
    /// A look at whether there is a new certificate.
    Certificates(Arc<Mutex<Certificates>>),
}

/// What came of a [`Task`].
pub enum Done {
    /// An operation was carried out, or failed.
    Operation {
        storage: StorageId,
        token: OperationToken,
        result: Result<Outcome, DiskError>,
    },
    /// A job has ended.
    Job { job: JobId, result: JobResult },
    /// What there is of bytes, if the file system says so; whose tokens are taken.
    Looked {
        space: Option<FileSystemSpace>,
        found: Box<Found>,
    },
    /// What is to be said of the certificate.
    Certificates(Result<Option<String>, String>),
}

/// The threads. Dropping them lets each end the task that it is at, and
/// forgets those that wait.
pub struct DiskThreads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    waker: Waker,
    log: ServerLog,
    counters: Arc<Counters>,
    /// The line about descriptors that lack; locked for a moment.
    no_descriptors: Mutex<RareLine>,
    started: Instant,
    /// Guards the tasks that wait and those that are done; held for a push
    /// or a pop only.
    queues: Mutex<Queues>,
    /// Signalled when a task or the end has come.
    work: Condvar,
}

#[derive(Default)]
struct Queues {
    waiting: VecDeque<Task>,
    /// Chunks of large data that wait. They and what others wait for have
    /// turns: a sync does not stand behind all the data of another partition.
    bulk: VecDeque<Task>,
    bulk_next: bool,
    /// What found no descriptor, in the order in which it is tried again.
    later: VecDeque<(Instant, Task)>,
    done: Vec<Done>,
    ended: bool,
}

impl Queues {
    fn push(&mut self, task: Task) {
        match &task {
            Task::Operation {
                operation: Operation::WriteDirect { .. },
                ..
            } => self.bulk.push_back(task),
            _ => self.waiting.push_back(task),
        }
    }

    fn pop(&mut self) -> Option<Task> {
        let bulk = match self.bulk_next {
            true => !self.bulk.is_empty(),
            false => self.waiting.is_empty(),
        };
        self.bulk_next = !bulk;
        match bulk {
            true => self.bulk.pop_front(),
            false => self.waiting.pop_front(),
        }
    }

    /// What is to be tried again by now.
    fn pop_later(&mut self, now: Instant) -> Option<Task> {
        let due = self.later.front().is_some_and(|(at, _)| *at <= now);
        due.then(|| self.later.pop_front()).flatten().map(|it| it.1)
    }
}

impl Shared {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().expect("no holder panics here")
    }

    fn run(&self) {
        loop {
            let mut queues = self.queues();
            let task = loop {
                if queues.ended {
                    return;
                }
                let now = Instant::now();
                if let Some(task) = queues.pop_later(now).or_else(|| queues.pop()) {
                    break task;
                }
                let retry = queues.later.front().map(|(at, _)| *at - now);
                queues = match retry {
                    None => self.work.wait(queues).expect("no holder panics here"),
                    Some(retry) => {
                        let waited = self.work.wait_timeout(queues, retry);
                        waited.expect("no holder panics here").0
                    }
                };
            };
            drop(queues);
            let done = match task {
                Task::Operation {
                    storage,
                    token,
                    operation,
                } => match self.execute(storage, token, operation) {
                    Some(result) => Done::Operation {
                        storage,
                        token,
                        result,
                    },
                    None => continue,
                },
                Task::Job { job, work } => Done::Job {
                    job,
                    result: work.run(),
                },
                Task::Look { path, access } => Done::Looked {
                    space: file_system::space(&path),
                    found: Box::new(access.look()),
                },
                Task::Certificates(certificates) => {
                    let mut certificates = certificates.lock().expect("no holder panics here");
                    Done::Certificates(certificates.refresh(SystemTime::now()))
                }
            };
            self.queues().done.push(done);
            self.waker.wake();
        }
    }

    /// `None` if there was no descriptor for it: then it is tried again later,
    /// as often as need be. It fails for nobody, because a partition whose file
    /// cannot be opened, or whose directory cannot be synced, is out of service
    /// until it is opened anew.
    fn execute(
        &self,
        storage: StorageId,
        token: OperationToken,
        operation: Operation,
    ) -> Option<Result<Outcome, DiskError>> {
        let again = operation.opens().then(|| operation.clone());
        let is_sync = matches!(operation, Operation::SyncData { .. });
        let began = Instant::now();
        let result = self.disk.execute(operation);
        let took = began.elapsed();
        self.counters.disk_thread.add(took);
        if is_sync {
            self.counters.sync.add(took);
        }
        let (Err(error), Some(operation)) = (&result, again) else {
            return Some(result);
        };
        if !error.lacks_descriptors() {
            return Some(result);
        }
        let now = Instant::now();
        let mut line = self.no_descriptors.lock().expect("no holder panics here");
        if let Some(count) = line.due(now - self.started) {
            self.log.write(&Line::warning(format!(
                "{error}; tried again until there are descriptors, {count} tries failed since the \
                 last such line"
            )));
        }
        drop(line);
        let task = Task::Operation {
            storage,
            token,
            operation,
        };
        self.queues().later.push_back((now + RETRY, task));
        None
    }
}

impl DiskThreads {
    /// Starts `count` threads; `waker` is woken when something is done.
    pub fn start(
        disk: Arc<dyn Disk>,
        waker: Waker,
        log: ServerLog,
        counters: Arc<Counters>,
        count: u32,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            disk,
            waker,
            log,
            counters,
            no_descriptors: Mutex::default(),
            started: Instant::now(),
            queues: Mutex::default(),
            work: Condvar::new(),
        });
        let mut threads = Self {
            shared,
            threads: Vec::new(),
        };
        for index in 0..count {
            let shared = threads.shared.clone();
            let name = format!("thalweg-disk-{index}");
            let thread = memory::thread::spawn(&name, move || shared.run())?;
            threads.threads.push(thread);
        }
        Ok(threads)
    }

    /// Brings a task, and never waits: the thread that brings it also answers every
    /// heartbeat. How many tasks can wait is bounded by what the node admits: batches
    /// within the credit of their connections, data within its budget, reads that are
    /// under way, and the few operations by which each partition keeps its files.
    pub fn submit(&self, task: Task) {
        self.shared.queues().push(task);
        self.shared.work.notify_one();
    }

    /// Takes what is done, in exchange for `empty`, whose memory is reused.
    pub fn take_done(&self, empty: &mut Vec<Done>) {
        debug_assert!(empty.is_empty());
        std::mem::swap(&mut self.shared.queues().done, empty);
    }
}

impl Drop for DiskThreads {
    fn drop(&mut self) {
        self.shared.queues().ended = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A panic was a bug in the disk; the operation's answer is missing,
            // which those who wait for it notice.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::{DiskErrorKind, FileId};
    use net::Reactor;
    use rustix::io::Errno;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A disk whose process has no descriptors for so many tries.
    struct Poor {
        left: AtomicU32,
        errno: i32,
    }

    impl Disk for Poor {
        fn execute(&self, operation: Operation) -> Result<Outcome, DiskError> {
            let lacks = |left: u32| left.checked_sub(1);
            match self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, lacks)
            {
                Err(_) => Ok(Outcome::Done),
                Ok(_) => Err(DiskError {
                    kind: DiskErrorKind::Failed,
                    attempt: operation.describe(|_| "a file".to_owned()),
                    source: io::Error::from_raw_os_error(self.errno),
                }),
            }
        }
    }

    /// What becomes of an operation, and the lines about it.
    fn carried_out(disk: Poor, operation: Operation) -> (Result<Outcome, DiskError>, Vec<String>) {
        let mut reactor = Reactor::new().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        let log = Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned()));
        let (disk, waker, counters) = (Arc::new(disk), reactor.waker(), Arc::default());
        let threads = DiskThreads::start(disk, waker, log.into(), counters, 1).unwrap();
        threads.submit(Task::Operation {
            storage: StorageId(1),
            token: OperationToken(0),
            operation,
        });
        loop {
            while reactor.next().is_some() {}
            let mut done = Vec::new();
            threads.take_done(&mut done);
            if let Some(Done::Operation { result, .. }) = done.pop() {
                let lines = lines.lock().unwrap().clone();
                return (result, lines);
            }
            reactor.wait(None).unwrap();
        }
    }

    #[test]
    fn what_finds_no_descriptor_is_tried_until_there_is_one() {
        for errno in [Errno::MFILE.raw_os_error(), Errno::NFILE.raw_os_error()] {
            for operation in [
                Operation::Create { path: "a".into() },
                Operation::Open { path: "a".into() },
                Operation::SyncDirectory { path: "a".into() },
                Operation::List { path: "a".into() },
            ] {
                let disk = Poor {
                    left: 3.into(),
                    errno,
                };
                let (result, lines) = carried_out(disk, operation);
                assert!(matches!(result, Ok(Outcome::Done)), "{result:?}");
                assert_eq!(lines.len(), 1, "{lines:?}");
                assert!(lines[0].contains("tried again until there are descriptors"));
            }
        }
    }

    #[test]
    fn another_failure_is_told_at_once() {
        let disk = Poor {
            left: 1.into(),
            errno: Errno::IO.raw_os_error(),
        };
        let (result, lines) = carried_out(disk, Operation::Open { path: "a".into() });
        assert!(result.is_err() && lines.is_empty());
    }

    /// A disk that does nothing until its lock is given up.
    struct Stalled(Arc<Mutex<()>>);

    impl Disk for Stalled {
        fn execute(&self, _: Operation) -> Result<Outcome, DiskError> {
            let _held = self.0.lock().unwrap();
            Ok(Outcome::Done)
        }
    }

    #[test]
    fn a_disk_that_stalls_holds_up_nobody_who_brings_a_task() {
        const COUNT: u64 = 10_000;
        let mut reactor = Reactor::new().unwrap();
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let disk = Arc::new(Stalled(lock.clone()));
        let log = Arc::new(|_: &str| {});
        let (waker, counters) = (reactor.waker(), Arc::default());
        let threads = DiskThreads::start(disk, waker, log.into(), counters, 1).unwrap();
        for token in 0..COUNT {
            threads.submit(Task::Operation {
                storage: StorageId(1),
                token: OperationToken(token),
                operation: Operation::SyncData { file: FileId(1) },
            });
        }
        drop(held);
        let mut tokens = Vec::new();
        while tokens.len() < COUNT as usize {
            while reactor.next().is_some() {}
            let mut done = Vec::new();
            threads.take_done(&mut done);
            tokens.extend(done.into_iter().map(|done| match done {
                Done::Operation { token, .. } => token.0,
                Done::Job { .. } | Done::Looked { .. } | Done::Certificates(_) => {
                    panic!("only operations were brought")
                }
            }));
            if tokens.len() < COUNT as usize {
                reactor.wait(None).unwrap();
            }
        }
        assert!(tokens.into_iter().eq(0..COUNT));
    }

    #[test]
    fn data_and_what_others_wait_for_have_turns() {
        let file = FileId(1);
        let task = |operation| Task::Operation {
            storage: StorageId(1),
            token: OperationToken(0),
            operation,
        };
        let mut queues = Queues::default();
        for position in 0..3 {
            let bytes = Vec::new();
            queues.push(task(Operation::WriteDirect {
                file,
                position,
                bytes,
            }));
        }
        for _ in 0..2 {
            queues.push(task(Operation::SyncData { file }));
        }
        let order = std::iter::from_fn(|| match queues.pop()? {
            Task::Operation {
                operation: Operation::WriteDirect { .. },
                ..
            } => Some("data"),
            _ => Some("sync"),
        });
        let order: Vec<_> = order.collect();
        assert_eq!(order, ["sync", "data", "sync", "data", "data"]);
    }
}
