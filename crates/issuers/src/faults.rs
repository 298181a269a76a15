//! Faults that tests plant, to see that they are noticed.

faults::faults! {
    /// Take what MUNGE has made for another server.
    AnyCertificate,
    /// Keep unseen whether a signature is right.
    AnySignature,
    /// Take the algorithm that a JWT names, whatever its issuer is configured for.
    AnyAlgorithm,
    /// Take a JWT that is meant for somebody else.
    AnyAudience,
    /// Take a JWT whose time is over.
    NeverOver,
    /// Take the only key that fits where a JWT names another one.
    AnyKey,
    /// Let whoever maps to nothing have what the last map says.
    MapsByDefault,
    /// Take what a command printed before it failed.
    FailedAnswer,
    /// Keep the keys of a set that has none any more.
    EmptySetKept,
    /// Keep keys for ever that cannot be read.
    UnreadForEver,
    /// Have the command look at what was a JWT before it was damaged.
    DamagedAsked,
    /// Look past an answer's outer `active`.
    InnerActive,
    /// Take an answer that does not say that a token is active for one that does.
    ActiveUnsaid,
    /// Ask the next map where it cannot be known which project the one that fits is to.
    NextMap,
    /// Let what a command has started live.
    LeftBehind,
}
