//! Faults that tests plant, to see that they are noticed.

faults::faults! {
    /// Take any text for a name.
    AnyName,
    /// Lead a name that nobody has to an instance.
    AnyRoute,
    /// Let any number of connections say nothing.
    UnboundedHalfOpen,
    /// Let any number of relays wait for another one.
    UnboundedMeeting,
    /// Let relays meet that do not wait for each other.
    AnyMeeting,
    /// Let a member of one project act in another.
    WrongProject,
    /// Leave an instance whose time is over.
    NeverExpires,
    /// Remove the files of an instance at once.
    RemoveAtOnce,
    /// Say in the log what a client presented.
    SecretInLog,
}
