//! Faults that tests plant, to see that they are noticed.

/// A planted fault. Exists in tests alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Take any text for a name.
    AnyName,
    /// Lead a name that nobody has to an instance.
    AnyRoute,
    /// Let any number of connections say nothing.
    UnboundedHalfOpen,
    /// Let a member of one project act in another.
    WrongProject,
    /// Leave an instance whose time is over.
    NeverExpires,
    /// Remove the files of an instance at once.
    RemoveAtOnce,
    /// Say in the log what a client presented.
    SecretInLog,
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
