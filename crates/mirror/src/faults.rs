//! Faults that tests plant into a link, to see that they are noticed.

faults::faults! {
    /// Acknowledge at the source what was sent, and is not stored.
    AcknowledgeSent,
    /// Say nothing of what the source has lost.
    NoGap,
    /// Go on in a later life of the source, whatever that one has lost.
    AnyLife,
}
