//! Faults that tests plant into this crate, to see that they are noticed.

faults::faults! {
    /// Take a chunk of a connection whatever its number.
    OutOfTurn,
    /// Lose what a connection did not take of a chunk.
    HoldDropped,
    /// Wait for the connection whose turn it is, though others have space.
    OneBlocksAll,
    /// Take chunks of one connection in any order.
    AnyNumber,
    /// Take a cut connection for the end of the stream.
    CutIsEnd,
}
