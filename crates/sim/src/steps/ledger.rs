//! What programs have done and were told, in the order in which it happened.

use crate::fiber;
use crate::trace::Trace;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// What a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    Write,
    /// A rank of this group of readers.
    Read(usize),
    /// Reads all at the end.
    Replay,
}

/// A life of a program: they are counted over all programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Who {
    pub role: Role,
    pub rank: u32,
    pub life: u64,
}

/// One entry. Offsets are those of records in partition 0; places are those of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Opened {
        run: u64,
        next: u64,
    },
    Ending {
        run: u64,
        step: u64,
    },
    Accepted {
        run: u64,
        step: u64,
        discarded: bool,
    },
    Committed {
        run: u64,
        step: u64,
        discarded: bool,
        offset: u64,
    },
    Closed {
        run: u64,
    },
    Ended {
        run: u64,
        why: String,
    },
    Attaching,
    NotReady(String),
    Attached,
    Given {
        asked: usize,
        run: u64,
        step: u64,
        offset: u64,
        skipped: u64,
    },
    Seen {
        run: u64,
        step: u64,
        offset: u64,
        lives: Vec<u64>,
    },
    Releasing {
        offset: u64,
    },
    Released {
        began: usize,
        offset: u64,
    },
    RunOver {
        run: u64,
        broken: bool,
        offset: u64,
    },
    Replaced,
    /// What it was given is not what was written.
    Wrong(String),
    /// It has come to its end.
    Done,
    ServerKilled,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub at: u64,
    pub who: Who,
    pub said: Said,
}

/// Shared by all programs, of which one runs at a time.
#[derive(Clone, Default)]
pub struct Ledger {
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Ledger {
    /// Said by a program, unless it is killed.
    pub fn say(&self, who: Who, said: Said) {
        if let Some(at) = fiber::now() {
            self.note(at, who, said);
        }
    }

    pub fn note(&self, at: u64, who: Who, said: Said) {
        let mut entries = self.entries.lock().expect("no holder panics");
        entries.push(Entry { at, who, said });
    }

    pub fn len(&self) -> usize {
        self.entries.lock().expect("no holder panics").len()
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.entries.lock().expect("no holder panics").clone()
    }

    /// Whether all ranks of a group were told of the end of the last run that one of them was told of.
    pub fn is_over(&self, role: Role, ranks: u32) -> bool {
        let entries = self.entries.lock().expect("no holder panics");
        let mut over: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.who.role == role) {
            if let Said::RunOver { run, .. } = entry.said {
                over.entry(run).or_default().insert(entry.who.rank);
            }
        }
        over.last_entry()
            .is_some_and(|last| last.get().len() == ranks as usize)
    }

    /// Whether one of these was told of the end of a run.
    pub fn has_ended(&self, of: impl Fn(Role) -> bool, last: u64) -> bool {
        let entries = self.entries.lock().expect("no holder panics");
        entries.iter().any(|entry| {
            of(entry.who.role) && matches!(entry.said, Said::RunOver { run, .. } if run >= last)
        })
    }

    /// Traces what was said since `from`. Gives what is wrong in it, if something is.
    pub fn trace(&self, from: usize, trace: &Trace) -> Option<String> {
        let entries = self.entries.lock().expect("no holder panics");
        let mut wrong = None;
        for Entry { at, who, said } in &entries[from..] {
            trace.say(*at, || format!("{who:?}: {said:?}"));
            if let Said::Wrong(what) = said {
                wrong.get_or_insert_with(|| format!("{who:?}: {what}"));
            }
        }
        wrong
    }
}
