//! A few threads for what waits: disk operations and jobs.

use broker::node::{Job, JobId, JobResult, StorageId};
use log::{Disk, DiskError, Operation, OperationToken, Outcome};
use memory::thread::JoinHandle;
use net::Waker;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Tasks that wait for each thread. Beyond that whoever brings more waits:
/// disks that are this far behind are the bottleneck anyway.
const WAITING_PER_THREAD: usize = 1024;

/// Something that waits.
pub enum Task {
    /// A disk operation.
    Operation {
        /// For which storage.
        storage: StorageId,
        /// Which.
        token: OperationToken,
        /// What.
        operation: Operation,
    },
    /// A job.
    Job {
        /// Which.
        job: JobId,
        /// What.
        work: Job,
    },
}

/// What came of a [`Task`].
pub enum Done {
    /// Of an operation.
    Operation {
        /// For which storage.
        storage: StorageId,
        /// Which.
        token: OperationToken,
        /// How it went.
        result: Result<Outcome, DiskError>,
    },
    /// Of a job.
    Job {
        /// Which.
        job: JobId,
        /// How it went.
        result: JobResult,
    },
}

/// The threads. Dropping them lets each end the task that it is at, and
/// forgets those that wait.
pub struct DiskThreads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    waiting_max: usize,
}

struct Shared {
    disk: Arc<dyn Disk>,
    waker: Waker,
    /// Guards the tasks that wait and those that are done; held for a push
    /// or a pop only.
    queues: Mutex<Queues>,
    /// Signalled when a task or the end has come.
    work: Condvar,
    /// Signalled when a task was taken from a full queue.
    room: Condvar,
}

#[derive(Default)]
struct Queues {
    waiting: VecDeque<Task>,
    /// Chunks of large data that wait. They and what others wait for have
    /// turns: a sync does not stand behind all the data of another partition.
    bulk: VecDeque<Task>,
    bulk_next: bool,
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

    fn count(&self) -> usize {
        self.waiting.len() + self.bulk.len()
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
                if let Some(task) = queues.pop() {
                    break task;
                }
                queues = self.work.wait(queues).expect("no holder panics here");
            };
            drop(queues);
            self.room.notify_one();
            let done = match task {
                Task::Operation {
                    storage,
                    token,
                    operation,
                } => Done::Operation {
                    storage,
                    token,
                    result: self.disk.execute(operation),
                },
                Task::Job { job, work } => Done::Job {
                    job,
                    result: work.run(),
                },
            };
            self.queues().done.push(done);
            self.waker.wake();
        }
    }
}

impl DiskThreads {
    /// Starts `count` threads; `waker` is rung when something is done.
    pub fn start(disk: Arc<dyn Disk>, waker: Waker, count: u32) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            disk,
            waker,
            queues: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
        });
        let waiting_max = count as usize * WAITING_PER_THREAD;
        let mut threads = Self {
            shared,
            threads: Vec::new(),
            waiting_max,
        };
        for index in 0..count {
            let shared = threads.shared.clone();
            let name = format!("thalweg-disk-{index}");
            let thread = memory::thread::spawn(&name, move || shared.run())?;
            threads.threads.push(thread);
        }
        Ok(threads)
    }

    /// Brings a task. Waits while too many wait.
    pub fn submit(&self, task: Task) {
        let mut queues = self.shared.queues();
        while queues.count() >= self.waiting_max {
            queues = self
                .shared
                .room
                .wait(queues)
                .expect("no holder panics here");
        }
        queues.push(task);
        drop(queues);
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
            // which whoever waits for it notices.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::FileId;

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
        assert_eq!(queues.count(), 5);
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
