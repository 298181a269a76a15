//! Who drives the core, as seen by a thread that waits for something of it.

use memory::Deadline;
use std::sync::Arc;
use std::time::Duration;

/// What a caller's thread may send by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InlineSend {
    /// What this producer has gathered, and whether nobody hurries for its answer.
    Events { producer: u64, is_quiet: bool },
    /// The settlements of this queue's consumer.
    Settlements(u64),
}

impl InlineSend {
    /// Whether nobody hurries for what comes of it, unless he waits himself.
    pub fn is_quiet(self) -> bool {
        match self {
            Self::Events { is_quiet, .. } => is_quiet,
            Self::Settlements(_) => true,
        }
    }
}

/// What drives the core: a thread of the client's and a thread that waits in its
/// place, or callers alone.
pub(crate) trait Driving: Send + Sync {
    /// Whether callers alone drive, and there is no thread of the client's.
    fn is_by_callers(&self) -> bool;

    /// Whether the calling thread may wait for the core: not in a callback that
    /// runs where the core is driven.
    fn can_wait(&self) -> bool;

    /// Drives until `done`; false when `deadline` has passed before. An error if
    /// another thread drives, which reports what is waited for.
    fn drive(
        self: Arc<Self>,
        deadline: Deadline,
        done: &mut dyn FnMut() -> bool,
    ) -> Result<bool, PassiveWaiter>;

    /// Sends what was gathered on this thread; false if it is to be asked for
    /// by a command.
    fn send_inline(self: Arc<Self>, what: InlineSend) -> bool;

    /// There is something to do: should nobody drive, somebody is woken.
    fn wake(&self);

    /// A [`PassiveWaiter`] waits no longer.
    fn leave(&self);
}

/// One who waits for what another thread brings: while there is one, the thread that
/// drives in the thread's place leaves nothing behind.
pub(crate) struct PassiveWaiter(Option<Arc<dyn Driving>>);

impl PassiveWaiter {
    /// One that was counted, until it is dropped.
    pub fn counted(driving: Arc<dyn Driving>) -> Self {
        Self(Some(driving))
    }

    /// One that nobody has to know of.
    pub fn uncounted() -> Self {
        Self(None)
    }
}

impl Drop for PassiveWaiter {
    fn drop(&mut self) {
        if let Some(driving) = &self.0 {
            driving.leave();
        }
    }
}

/// What a simulation does for a thread of its own that waits, while it runs the core by itself.
pub trait SimulatedWait: Send + Sync {
    /// Lets the simulation go on, until something may have changed or so much time has passed. False where
    /// nobody may wait: on the simulation's own thread, and when the program is killed.
    fn go_on(&self, at_most: Duration) -> bool;
}

/// Waits in a simulation.
pub(crate) struct Simulated(pub Arc<dyn SimulatedWait>);

impl Driving for Simulated {
    fn is_by_callers(&self) -> bool {
        true
    }

    fn can_wait(&self) -> bool {
        true
    }

    fn drive(
        self: Arc<Self>,
        deadline: Deadline,
        done: &mut dyn FnMut() -> bool,
    ) -> Result<bool, PassiveWaiter> {
        while !done() {
            if deadline.has_passed() {
                return Ok(false);
            }
            if !self.0.go_on(deadline.left()) {
                return Ok(done());
            }
        }
        Ok(true)
    }

    fn send_inline(self: Arc<Self>, _what: InlineSend) -> bool {
        false
    }

    fn wake(&self) {}

    fn leave(&self) {}
}
