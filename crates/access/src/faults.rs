//! Faults that tests plant, to see that they are noticed.

/// A planted fault. Exists in tests alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Take a token from which restrictions were cut off.
    CutRestriction,
    /// Take a credential whose time is over.
    Expired,
    /// Let a grant to one project count for the names of another.
    WrongProject,
    /// Look up the last block of a token only when asked whether it is revoked.
    RevokedParent,
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
