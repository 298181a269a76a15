//! Faults that tests plant into a node, to see that they are noticed.

/// A planted fault. Exists in tests alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Ask of one request nobody whether its client may have it done.
    Unauthorized,
    /// Let a client in by a certificate that no authority of the server's has signed.
    ForeignCertificate,
    /// Let a client in by a certificate whose time is over.
    ExpiredCertificate,
    /// Take a code for pairing that was used.
    CodeAgain,
    /// Take a certificate of another key than its connection has shown.
    OtherKey,
    /// Let a connection go on whose credential is over.
    NeverExpires,
    /// Let a client in before it is durable that it has used its token.
    UsedForgotten,
    /// Let anybody who knows a session's id take it over.
    SessionTaken,
    /// Let a further connection join a session without its key.
    StripeUnproved,
    /// Let a further connection join a session by the key of any other one.
    StripeOfAny,
    /// Give a member nothing before a part of its prefetch is free.
    NoTopUp,
    /// Let in whom issuers vouched for that are not believed any more.
    OutdatedIssuers,
    /// Let looks at credentials keep their places when their clients are gone.
    GoneKeepPlaces,
    /// Let strangers from one address have all places of looks.
    OneTakesAll,
    /// Refuse for good a renewal that could not be looked at.
    LaterIsRefused,
    /// Hold nobody to a quota.
    NoQuota,
    /// Let a batch that is stored hold memory that others need while its answer waits for a rate.
    PacedHolds,
    /// Serve a connection whose credential is over as before.
    GraceServes,
    /// Serve a topic that was yielded as before.
    YieldedServes,
    /// Hand a topic over that was not yielded.
    MovesEarly,
    /// Acknowledge a batch as soon as it was taken.
    AckEarly,
    /// Show events before they are as durable as the topic promises.
    VisibleEarly,
    /// Count parts of a step that are not as durable yet as their topic promises.
    StepsEarly,
    /// Take a step for complete when the part of one rank has not come.
    StepsShort,
    /// Forget at a start which steps have records.
    StepsForgotten,
    /// Let a run go on after a power loss that took parts of its ranks.
    LostParts,
    /// Answer a rank that closes before a start could know of it.
    CloseUnrecorded,
    /// Forget at a start which steps are pinned.
    PinsForgotten,
    /// Let parts of a pinned step go with those around it.
    PinnedParts,
    /// Let a pinned step's record go before there is a copy of it.
    PinUncopied,
    /// Count parts of a rank's life that has ended.
    FencedPart,
    /// Let reads wait for data that a writer kept that is gone.
    HeldForgotten,
    /// Drop the attributes of a step that is discarded.
    DiscardAttributes,
    /// Move the cursor of a group of readers when the first rank has done.
    CursorAtFirstRelease,
    /// Forget that a rank which asks for a step has released the one before.
    ForgetReleaseWithNext,
    /// Let an acknowledgement move a cursor back.
    CursorBack,
    /// Answer a cursor's move before it is durable.
    CursorEarly,
    /// Append a retry again.
    NoDeduplication,
    /// Let anybody write a mirror.
    MirrorWritable,
    /// Let a second link write a mirror beside the first.
    TwoLinks,
    /// Keep what came of a mirror's external data unseen whether it is what the source had.
    MirroredUnchecked,
    /// Let a fenced producer go on.
    NoFencing,
    /// Let a fenced producer go on where its successor has written nothing: on a partition that was added since.
    FenceForgotten,
    /// Take requests of a leader epoch that is over.
    StaleLeaderEpoch,
    /// Skip the check of received bytes.
    NoChecksum,
    /// Take the last piece of selected data from where the one before it lies.
    LastPiece,
    /// Judge the metadata of a batch however much work it is.
    NoBatchBudget,
    /// Say nothing of offsets that were lost.
    NoGap,
    /// Remove the directory of a partition that no topic names.
    DeleteUnnamed,
    /// Open a lost memory partition in its old life.
    SameIncarnation,
    /// Let somebody acknowledge what he does not own.
    FencedAck,
    /// Grant a partition before its owner has released it.
    GrantTwice,
    /// Give events out while somebody has them.
    LeaseTwice,
    /// Give events to a member whose leases expire and of which nothing is heard.
    ServeSuspended,
    /// Say nothing to a queue's members of events that were lost.
    NoQueueGap,
    /// Try for ever to write a dead letter with data that cannot be read.
    LetterNeedsData,
    /// Take a settlement under a lease that is over.
    ExpiredLease,
    /// Give out events of a queue that are not as durable yet as their topic promises.
    PastVisibleEnd,
    /// Settle a dead letter that was not written.
    DropDeadLetter,
    /// Give out events of a key whoever has an earlier one.
    KeysOutOfTurn,
    /// Give out at once what was returned for later.
    NoDelay,
    /// Give a member more than it asked for.
    NoPrefetch,
    /// Drop what consumers need that the topic names.
    DropUnacknowledged,
    /// Tick no storage: limits of retention and space are looked at when something is appended.
    NoRetentionTimer,
    /// Let each partition keep what all together may.
    TotalForEach,
    /// Keep what all have acknowledged.
    KeepAcknowledged,
    /// Let an acknowledgement move the positions of other groups as well.
    MoveOthers,
    /// Leave the answers of a refused command in the overlay of the table.
    NoRollback,
    /// Write what belongs in the ledger to the table's log.
    WrongLedger,
    /// Leave what nothing refers to where it is at the start.
    KeepLeftovers,
    /// Follow a table, and leave out what one of its entries says.
    EntrySkipped,
    /// Give followers an entry of the table that is not durable at its leader yet.
    EntryEarly,
    /// Carry out a proposal that was asked again although it was decided.
    ProposedTwice,
    /// Carry out what was proposed on top of what was refused.
    BuiltOnRefused,
    /// Refuse a proposal while those before it are not decided.
    RefusedAtOnce,
    /// Follow a leader of another table.
    ForeignLeader,
    /// Have those who follow wait for places of the log of which nothing is sent.
    PlacesCounted,
    /// Let two nodes make a topic of one name.
    NameTwice,
    /// Give the id of a node that was removed to another one.
    NodeIdAgain,
    /// Say to a server which node it is before that is decided.
    RegisteredEarly,
    /// Say to anybody on which node a topic is.
    TopicBetrayed,
    /// Serve topics of all nodes.
    ServesAny,
}

/// The fault that a test has planted into what is lent no options. Never one outside of tests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Planted {
    #[cfg(any(test, feature = "testing"))]
    fault: Option<Fault>,
}

impl Planted {
    /// This one, or none.
    #[cfg(any(test, feature = "testing"))]
    pub fn of(fault: Option<Fault>) -> Self {
        Self { fault }
    }

    /// This one.
    #[cfg(test)]
    pub fn one(fault: Fault) -> Self {
        Self { fault: Some(fault) }
    }

    /// Whether it is this one.
    pub fn is(self, fault: Fault) -> bool {
        #[cfg(any(test, feature = "testing"))]
        return self.fault == Some(fault);
        #[cfg(not(any(test, feature = "testing")))]
        {
            let _ = fault;
            false
        }
    }
}
