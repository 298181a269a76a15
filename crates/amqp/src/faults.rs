//! Faults that tests plant, to see that they are noticed.

faults::faults! {
    /// Give every bit an octet of its own.
    BitsApart,
    /// Take a frame whatever its last octet is.
    AnyEnd,
    /// Take frames of any size.
    AnySize,
    /// Take tables of any depth.
    AnyDepth,
    /// Take a method between the frames of a content.
    Interrupted,
    /// Publish a body before the end of its last frame was seen.
    EarlyPublish,
    /// Let the contents of all channels together be of any size.
    AnyContent,
    /// Act on what comes on a channel that is closing.
    Undead,
    /// Leave the close of a client unanswered when an earlier request of the channel fails.
    Unanswered,
    /// Close the connection where an error is the channel's.
    SoftIsHard,
    /// Send answers to an earlier channel of the same number.
    StaleAnswer,
    /// Send no heartbeats.
    Mute,
    /// Keep a client that is silent.
    Patient,
    /// Read on while nobody takes the output.
    Endless,
}
