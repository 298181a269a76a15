//! Faults that tests plant, to see that they are noticed.

faults::faults! {
    /// Take a code that was used.
    UsedCode,
    /// Take a code whose 10 minutes are over.
    ExpiredCode,
    /// Leave what a proof is bound to out of it, so that it passes on another connection.
    UnboundProof,
    /// Take more bytes of a stream than were granted.
    IgnoredCredit,
    /// Send nothing again of what a cut connection had.
    NothingAgain,
    /// Let data pass without tokens.
    FreeData,
    /// Open a stream once more whose opening came twice.
    OpenedTwice,
    /// Let as much wait of each stream as if it were the only one.
    OwnQueues,
    /// Let any number of connections say nothing.
    AnyStrangers,
    /// Hold as much as if no other session held anything.
    OwnMemory,
    /// Say what has arrived when a quarter of a window has, also when asked.
    Unasked,
    /// Count what waits of streams that nobody reads, as if it could be sent.
    CountsBlocked,
    /// End a session without a word to whom is being welcomed.
    ForgetsComing,
    /// Close a connection at the first frame that comes when the session is over, before all is said.
    DropsTheWord,
}
