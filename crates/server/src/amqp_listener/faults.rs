//! Faults that tests plant, to see that they are noticed.

faults::faults! {
    /// Confirm a message when it is on its way.
    Early,
    /// Bind, and declare where dead letters go, without asking for a right on the exchange.
    Unasked,
    /// Requeue a message as if it had not been delivered.
    Unmarked,
    /// Leave what a channel has with it when it ends.
    Leaked,
    /// Put a requeued message behind the others.
    Behind,
    /// Take a queue's topic for gone, whatever keeps it from joining.
    Gone,
    /// Go on with the records that there are.
    PartOfRecords,
    /// Settle a message whose dead letter was refused.
    LostLetter,
    /// Settle a message as dead that is not here.
    Unread,
    /// Forget settlements that were not recorded.
    Unsettled,
    /// Deliver an event whose data cannot be read without it.
    NoData,
    /// Hold a client up that takes nothing.
    Patient,
    /// Count what a client had on its way when it went for ever.
    StaysComing,
    /// Ask for a window of bytes, whatever is at the head.
    Narrow,
    /// Wait for a purge to drop what it counted first.
    CountedOnce,
    /// Let contents under way on all connections grow.
    Unbounded,
}
