//! Faults that tests plant, to see that they are noticed.

/// A planted fault. Exists in tests alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Keep the ports of a session that is over.
    PortsKept,
    /// Find a session for who is of another project.
    AnotherProject,
    /// Let an update that was under way count for a later session of the same uid.
    LateUpdate,
    /// Take any place for one that may be dialled.
    AnyPlace,
    /// Let a session live that nobody uses.
    NeverIdle,
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
