//! Faults that tests plant into gathers, reading ahead and closing, to see that they are noticed.

/// A planted fault. Exists in tests alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Take the last row of a box from the row before it.
    LastRow,
    /// Copy a covering range as if all of it had been asked for.
    NoMask,
    /// Ask for rows that are a byte too near to each other.
    ShortStride,
    /// Of blocks that overlap, let the one count that was found last.
    WinnerByArrival,
    /// Take what was read ahead for a selection of the same shape.
    OlderSelection,
    /// Wait for readers of a stream that keeps its steps, too.
    CloseForReaders,
    /// Wait for readers for as long as they like.
    CloseWithoutDeadline,
    /// Give up parts that a writer holds before readers have released them.
    FreeUnreleased,
    /// Send nothing of what a writer that leaves still holds: its time is up at once.
    SendNothingLeft,
}

#[cfg(any(test, feature = "testing"))]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault into all that this thread runs, or takes it out again.
#[cfg(any(test, feature = "testing"))]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Whether this fault was planted. Never outside of tests.
#[inline]
pub(crate) fn planted(fault: Fault) -> bool {
    #[cfg(any(test, feature = "testing"))]
    return PLANTED.get() == Some(fault);
    #[cfg(not(any(test, feature = "testing")))]
    {
        let _ = fault;
        false
    }
}
