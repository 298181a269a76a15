//! Faults that tests plant into a link, to see that they are noticed.

/// A planted fault. Exists in tests alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Acknowledge at the source what was sent, and is not stored.
    AcknowledgeSent,
    /// Say nothing of what the source has lost.
    NoGap,
    /// Go on in a later life of the source, whatever that one has lost.
    AnyLife,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault into what this thread does, or takes it away.
#[cfg(test)]
pub(crate) fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Whether a fault is planted.
#[cfg(test)]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Never, outside of tests.
#[cfg(not(test))]
pub(crate) fn planted(_: Fault) -> bool {
    false
}
