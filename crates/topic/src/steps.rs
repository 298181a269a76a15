//! How much work a validator may make of one event's metadata.
//!
//! A few hundred bytes of a schema can ask for any amount of work. So work is
//! counted in steps, which depend on the schema and the metadata alone and on
//! no clock: the client and the server say the same.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What every event may take, ...
const BASE: u64 = 250_000;
/// ... and besides for each byte of its metadata. Schemas that are written for
/// people take about one, and half of one more is for reading it.
const PER_BYTE: u64 = 3;
/// What all events of a batch may take together, unless it is a single event.
const BATCH: u64 = 750_000;
/// Of what its events took by its own count, a producer puts no more in one
/// batch, unless it is a single event. The server may count a little more: its JSON is
/// what a serializer made of the producer's.
pub const BATCH_STEPS_MAX: u64 = BATCH / 2;
// So an event that a producer may push always fits in the batch that it closes.
const _: () = assert!(BATCH_STEPS_MAX + BASE < BATCH);

/// A budget of steps. What runs within it takes of it, and ends where it is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    max: u64,
    left: u64,
    of: Of,
}

/// Whose budget it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Event,
    Batch,
}

impl Steps {
    /// So many.
    pub fn new(max: u64) -> Self {
        Self {
            max,
            left: max,
            of: Of::Event,
        }
    }

    /// What one event with so much metadata may take.
    pub fn of_event(metadata_bytes: usize) -> Self {
        Self::new(
            (metadata_bytes as u64)
                .saturating_mul(PER_BYTE)
                .saturating_add(BASE),
        )
    }

    /// What all events of a batch may take, however many they are and however large.
    pub fn of_batch() -> Self {
        Self {
            of: Of::Batch,
            ..Self::new(BATCH)
        }
    }

    /// How many were taken.
    pub fn taken(&self) -> u64 {
        self.max - self.left
    }

    /// Takes off a batch's budget what an event took of its own. The first event
    /// may use up more than all of it, within its own budget.
    ///
    /// # Errors
    /// [`OutOfSteps`] if it took more than are left.
    pub fn spend(&mut self, event: &Self) -> Result<(), OutOfSteps> {
        let is_first = self.left == self.max;
        let left = self.left.checked_sub(event.taken());
        self.left = left.unwrap_or(0);
        match left.is_some() || is_first {
            true => Ok(()),
            false => Err(self.used_up()),
        }
    }

    fn used_up(&self) -> OutOfSteps {
        OutOfSteps {
            max: self.max,
            of: self.of,
        }
    }

    /// Runs `work`, which takes steps.
    ///
    /// # Errors
    /// [`OutOfSteps`] if it takes more than are left. It was ended in its midst.
    pub(crate) fn run<R>(&mut self, work: impl FnOnce() -> R) -> Result<R, OutOfSteps> {
        let outer = LEFT.replace(self.left);
        // What is left behind by an end in the midst is not looked at again:
        // validators change nothing.
        let result = catch_unwind(AssertUnwindSafe(work));
        self.left = LEFT.replace(outer);
        result.map_err(|panic| match panic.downcast::<Unwound>() {
            Ok(_) => {
                self.left = 0;
                self.used_up()
            }
            Err(bug) => resume_unwind(bug),
        })
    }
}

/// A budget is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfSteps {
    max: u64,
    of: Of,
}

impl fmt::Display for OutOfSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = self.max;
        match self.of {
            Of::Event => write!(
                f,
                "judging it takes more than {max} steps, which is the validation budget of an \
                 event ({BASE} and {PER_BYTE} for each byte of metadata)"
            ),
            Of::Batch => write!(
                f,
                "judging it and those before it takes more than {max} steps, which is the \
                 validation budget of a batch of several events"
            ),
        }
    }
}

/// What unwinds the stack of work that is out of steps.
struct Unwound;

thread_local! {
    /// Steps that the work that runs on this thread may still take.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Takes steps; does not return if there are not so many left. Outside of
/// [`Steps::run`] there always are.
pub(crate) fn take(count: u64) {
    let left = LEFT.get();
    match left.checked_sub(count) {
        Some(left) => LEFT.set(left),
        // An unwinding without a message: nothing is wrong in the program.
        None => resume_unwind(Box::new(Unwound)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_where_its_budget_does() {
        let mut steps = Steps::new(10);
        assert_eq!(steps.run(|| take(4)), Ok(()));
        assert_eq!(steps.taken(), 4);
        let endless = || -> () {
            loop {
                take(1);
            }
        };
        let of = Of::Event;
        assert_eq!(steps.run(endless), Err(OutOfSteps { max: 10, of }));
        assert_eq!(steps.run(|| take(1)), Err(OutOfSteps { max: 10, of }));
        // Outside nothing is counted.
        take(u64::MAX / 2);
        take(u64::MAX / 2);
    }

    #[test]
    fn budgets_grow_with_the_metadata() {
        assert_eq!(Steps::of_event(0).max, BASE);
        assert_eq!(Steps::of_event(100).max, BASE + 300);
    }

    #[test]
    fn a_batch_has_one_budget_for_all_its_events() {
        let mut batch = Steps::of_batch();
        let mut event = Steps::of_event(100);
        event.run(|| take(BASE)).unwrap();
        for _ in 0..3 {
            batch.spend(&event).unwrap();
        }
        assert_eq!(batch.taken(), BATCH);
        let error = batch.spend(&event).unwrap_err().to_string();
        assert!(error.contains("750000 steps"), "{error}");
        assert!(error.contains("validation budget of a batch"), "{error}");
    }

    /// What a producer may push alone, the server takes alone, and nothing behind it.
    #[test]
    fn a_large_event_is_a_batch_of_its_own() {
        let mut batch = Steps::of_batch();
        let mut large = Steps::of_event(1 << 20);
        large.run(|| take(2 * BATCH)).unwrap();
        batch.spend(&large).unwrap();
        let mut small = Steps::of_event(2);
        small.run(|| take(1)).unwrap();
        batch.spend(&small).unwrap_err();
    }
}
