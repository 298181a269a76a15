//! Faults that tests plant, to see that they are noticed.

faults::faults! {
    /// Take a sequence number that came before for a new one.
    RepeatIsNew,
    /// Join two intervals although one number between them is missing.
    JoinAcrossGap,
    /// Add up what consumers of a shared stream have, as if no two had the same message.
    SumOverConsumers,
    /// Begin the wall time at the first receipt.
    WallFromReceipt,
    /// Count an open loop's time from when the message was sent, not from when it was due.
    OmissionIgnored,
    /// Take a reply that came before for one that is missing.
    RepeatedReplyIsNew,
    /// Count as lost what a consumer that nobody has heard of may have had.
    SilentHadNothing,
    /// Do not wait for what is delivered again.
    RepeatsAreNews,
    /// Give each message of a producer the same bytes.
    SameBytes,
    /// Go when consumers are ready, whatever producers are.
    GoEarly,
    /// Wait for the report of a member that was killed.
    WaitForKilled,
    /// Let one message more than a window be unconfirmed.
    WindowTooLarge,
    /// Send what is left below a confirm batch although the published program does not.
    SendRemainder,
}
