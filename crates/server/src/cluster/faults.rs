//! The faults that tests plant into the rendezvous and the authority.

faults::faults! {
    /// Each founder makes up an id for itself as soon as all founders have come.
    TwoFoundings,
    /// Founders found what they have read, without a record that is made once.
    RecordIgnored,
    /// A file is believed that may be of an earlier job.
    StaleFileBelieved,
    /// A data directory that was a member and has lost its log founds again.
    LostLogIgnored,
    /// A file that is published replaces the one that is there.
    PublishedTwice,
}
