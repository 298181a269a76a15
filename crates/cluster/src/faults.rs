//! The faults that tests plant into the quorum and the links between servers.

faults::faults! {
    testing:
    /// A vote is answered before it is synced.
    VoteNotSynced,
    /// A follower answers an append before it is synced.
    AckBeforeSync,
    /// An entry is applied when it is appended.
    CommittedNotChecked,
    /// A client gives a request that it tries again another id.
    RetryNewId,
    /// A request that was applied is applied again.
    NoDeduplication,
    /// A voter whose directory was lost takes part again under its id.
    ReuseVoterId,
    /// Messages of another cluster are taken.
    TwoFoundings,
    /// A suffix that was replaced is found again at recovery.
    SuffixKept,
    /// A snapshot does not have the requests that were applied.
    SnapshotForgetsRequests,
    /// What a crash left of the last write is taken as if it were whole.
    TornTailKept,
    /// A sync that failed is taken for one that did not.
    SyncFailureIgnored,
    /// What was recovered is believed to be on the medium.
    RecoveredNotSynced,
    /// A leader forgets who waits when it is none any more.
    WaitersForgotten,
    /// A new leader of the table leads before it has applied what former ones had decided.
    LedEarly,
    /// What is behind a refused change of the table is asked for all the same.
    BuiltOnRefused,
    /// A voter that does not lead any more goes on with its followers when it leads again.
    FollowersKept,
    /// A snapshot of the table does not say which proposals are in it.
    SnapshotForgetsProposals,
    /// A voter that does not lead any more says so to none that follow.
    ResignedSilently,
    /// What a node has said on its last link goes out on the new one.
    LinksMixed,
    /// A peer of another cluster has a link.
    ClusterNotChecked,
    /// A peer is who it says it is, whatever its certificate says.
    NameNotChecked,
    /// Where both ends dial, both connections become links.
    BothLinksStay,
    /// A frame is taken whatever its checksums say.
    CrcNotChecked,
}
