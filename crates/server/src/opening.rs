//! The partitions of a start, opened side by side.

use broker::OpenedPartition;
use log::{OpenPartition, StorageKind};
use memory::thread::{self, JoinHandle};
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard};

/// Threads that open partitions. An open waits for the disk, to have its checkpoint
/// synced, much longer than it computes; verifying what a crash left keeps the
/// processors busy, however many there are.
const THREADS: usize = 16;

/// As [`broker::OpenPartitions`], on some threads.
pub fn open_side_by_side(partitions: Vec<ToOpen>) -> Vec<OpenedPartition> {
    let threads = THREADS.min(partitions.len());
    let work = Arc::new(Mutex::new(Work {
        opened: partitions.iter().map(|_| None).collect(),
        waiting: partitions.into_iter().enumerate().collect(),
    }));
    // This thread is one of them. One that the system does not give is done without.
    let others: Vec<JoinHandle<()>> = (1..threads)
        .map_while(|index| {
            let work = work.clone();
            thread::spawn(&format!("thalweg-open-{index}"), move || open_some(&work)).ok()
        })
        .collect();
    open_some(&work);
    for other in others {
        if let Err(panic) = other.join() {
            resume_unwind(panic);
        }
    }
    let opened = std::mem::take(&mut lock(&work).opened);
    let opened = opened.into_iter();
    opened
        .map(|one| one.expect("each partition was opened"))
        .collect()
}

type ToOpen = (Arc<dyn StorageKind>, OpenPartition);

struct Work {
    /// Each with its place.
    waiting: VecDeque<(usize, ToOpen)>,
    /// What came of each, at its place.
    opened: Vec<Option<OpenedPartition>>,
}

fn lock(work: &Mutex<Work>) -> MutexGuard<'_, Work> {
    work.lock().expect("no holder panics here")
}

fn open_some(work: &Mutex<Work>) {
    loop {
        let Some((index, (kind, open))) = lock(work).waiting.pop_front() else {
            return;
        };
        let opened = kind.open(open);
        lock(work).opened[index] = Some(opened);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::{Recovery, Retention, Storage, StorageError};
    use std::path::Path;
    use std::sync::Barrier;
    use wire::{Durability, Incarnation, PartitionIndex, TopicId};

    /// Opens nothing, and that only when two partitions are being opened at once.
    struct Pairs(Barrier);

    impl StorageKind for Pairs {
        fn name(&self) -> &'static str {
            "pairs"
        }

        fn check(&self, _: &str) -> Result<(), String> {
            Ok(())
        }

        fn durability_max(&self) -> Durability {
            Durability::Synced
        }

        fn open(&self, open: OpenPartition) -> Result<(Box<dyn Storage>, Recovery), StorageError> {
            self.0.wait();
            Err(StorageError::Invalid(format!("number {}", open.partition)))
        }

        fn remove(&self, _: &Path) -> Result<(), StorageError> {
            Ok(())
        }
    }

    #[test]
    fn partitions_are_opened_side_by_side_and_their_outcomes_keep_their_order() {
        let kind: Arc<dyn StorageKind> = Arc::new(Pairs(Barrier::new(2)));
        let open = |index| OpenPartition {
            directory: format!("/{index}").into(),
            topic: TopicId(1),
            partition: PartitionIndex(index),
            incarnation: Incarnation(1),
            durability: Durability::Synced,
            config: String::new(),
            retention: Retention::default(),
            boot_id: String::new(),
            unix_ns: 0,
            create: false,
        };
        // An even number, so that each open finds another one.
        let partitions = (0..100).map(|index| (kind.clone(), open(index))).collect();
        let outcomes = open_side_by_side(partitions).into_iter();
        let errors = outcomes.map(|outcome| outcome.err().map(|error| error.to_string()));
        let expected = (0..100).map(|index| {
            let error = StorageError::Invalid(format!("number {index}"));
            Some(error.to_string())
        });
        assert!(errors.eq(expected));
        assert!(open_side_by_side(Vec::new()).is_empty());
    }
}
