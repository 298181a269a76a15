//! Faults that tests plant, to see that they are noticed.

faults::faults! {
    /// Take a message of any length.
    Unbounded,
    /// Take memory for a length that is announced.
    BelievesLength,
    /// Forget a message whose connection was lost while it was written.
    LostWithLink,
    /// Count a message as sent when it is given.
    SentTooEarly,
    /// Give messages to the connection that was free last.
    LastIsFirst,
    /// Take messages without a bound while one connection does not take its own.
    AheadOfAll,
    /// Take a peer that pushes for one that pulls.
    AnyPeer,
    /// Let a handshake take as long as it likes.
    EndlessHandshake,
}
