//! Faults that tests plant, to see that they are noticed.

/// A planted fault. Exists in tests alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Take a code that was used.
    UsedCode,
    /// Take a code whose 10 minutes are over.
    ExpiredCode,
    /// Leave what a proof is bound to out of it, so that it passes on another connection.
    UnboundProof,
    /// Take more bytes of a stream than were granted.
    IgnoredCredit,
    /// Send nothing again of what a cut connection had.
    NothingAgain,
    /// Let data pass without tokens.
    FreeData,
    /// Open a stream once more whose opening came twice.
    OpenedTwice,
    /// Let as much wait of each stream as if it were the only one.
    OwnQueues,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Whether a test has planted this fault on this thread.
#[cfg(test)]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Nothing is planted outside of tests.
#[cfg(not(test))]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}

/// Runs `act` with a fault planted.
#[cfg(test)]
pub(crate) fn with<T>(fault: Fault, act: impl FnOnce() -> T) -> T {
    PLANTED.set(Some(fault));
    let done = act();
    PLANTED.set(None);
    done
}
