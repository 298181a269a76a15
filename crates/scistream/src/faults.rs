//! Faults that tests plant, to see that they are noticed.

faults::faults! {
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
