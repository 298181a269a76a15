//! Faults that tests plant, to see that they are noticed.

faults::faults! {
    /// Let `#` stand for one word exactly.
    HashIsOneWord,
    /// Let `*` stand for no word, too.
    StarIsNoWord,
    /// Leave the nodes of a key that is unbound in the trie.
    LeftNodes,
    /// Forget a destination when one of its two bindings of a key goes.
    CountedOnce,
    /// Let one header that matches do for `all`.
    AllIsAny,
    /// Give a queue twice that is reached twice.
    Twice,
    /// Follow the alternate exchange also where a binding matched.
    AlternateAlways,
    /// Let clients publish to internal exchanges.
    InternalIsOpen,
    /// Route by the routing key alone.
    NoCopies,
    /// Route a dead letter by its own key, whatever its queue says.
    OwnKey,
    /// Take a second declaration as it comes.
    NotCompared,
    /// Let any connection use an exclusive queue.
    Shared,
    /// Claim a name that another act has claimed.
    TwoAtOnce,
    /// Answer from what is about to change.
    Early,
    /// Let bindings be made while an act waits to have their exchange alone.
    Overtaken,
    /// Keep the names of an act that failed.
    StaysClaimed,
    /// Make the change although it failed.
    FailedIsDone,
    /// Make the exclusive queue of a connection that has ended meanwhile.
    Orphan,
    /// Let the id of a queue follow from its name.
    ByName,
    /// Remove an auto-delete queue although it has a consumer again.
    InUse,
    /// Keep auto-delete exchanges when the last queue of theirs is deleted.
    NoCascade,
    /// Leave acts that are under way out of the count.
    Uncounted,
    /// Begin with small ids after a restart.
    IdsAgain,
    /// Write no records of what a deletion takes along.
    UnrecordedCascade,
    /// Record what is not durable.
    RecordsAll,
    /// Write the bindings of a snapshot before what they bind.
    BindingsFirst,
    /// Take a record of any version.
    AnyVersion,
    /// Settle one delivery, whatever `multiple` says.
    MultipleIsOne,
    /// Deliver without regard to prefetch counts.
    NoPrefetch,
    /// Count what is fetched with what is delivered.
    FetchedCounts,
    /// Confirm a message when the first of its queues has it.
    FirstQueueConfirms,
    /// Confirm a message that a queue refused.
    RefusedIsKept,
    /// Confirm several in one although one between them is not decided.
    MultipleOverAll,
}
