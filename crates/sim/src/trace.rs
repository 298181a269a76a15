//! What happened in a run, line by line, if somebody wants to know.

use std::cell::RefCell;
use std::rc::Rc;

/// A share of a run's trace.
#[derive(Clone, Default)]
pub struct Trace {
    /// None if nobody wants to know: nothing is even formatted then.
    lines: Option<Rc<RefCell<Vec<String>>>>,
}

impl Trace {
    /// A trace that keeps what it is told.
    pub fn kept() -> Self {
        Self {
            lines: Some(Rc::default()),
        }
    }

    /// Says something that happened at `now`, nanoseconds.
    pub fn say(&self, now: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.lines {
            let (seconds, rest) = (now / 1_000_000_000, now % 1_000_000_000);
            let line = format!("{seconds:4}.{:06} {}", rest / 1000, line());
            lines.borrow_mut().push(line);
        }
    }

    /// The lines so far.
    pub fn lines(&self) -> Vec<String> {
        match &self.lines {
            Some(lines) => lines.borrow().clone(),
            None => Vec::new(),
        }
    }
}

/// Something that must never happen, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

impl Violation {
    pub(crate) fn because<T>(text: impl Into<String>) -> Result<T, Self> {
        Err(Self(text.into()))
    }
}
