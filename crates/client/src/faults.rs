//! Faults that tests plant into clients, to see that they are noticed.

/// A planted fault. Exists in tests alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Send a batch again under new sequence numbers.
    NewSequence,
    /// Take events whatever the budget says.
    NoBudget,
    /// Hand out events of a batch that lie before the position that was asked for.
    NoFloor,
    /// Neither send a batch again after a reconnect, nor watch its deadline.
    NoEnd,
    /// Behind an event whose data is damaged, read the rest of its batch twice.
    TwiceBehindDamage,
    /// Send acknowledgements while a seek of their partition is not answered.
    NoHold,
    /// Keep what was acknowledged to itself, and say that it is durable.
    NoAcknowledgement,
    /// Read on at the end, when a connection was lost.
    SkipMissed,
    /// Take any reply for that to the first request that waits.
    AnyReply,
    /// Watch no deadline of requests.
    NoDeadline,
    /// Say that nobody is missing.
    NobodyMissing,
    /// Take several replies of one who was asked.
    ReplyTwice,
    /// Settle a request before its reply is stored.
    SettleEarly,
    /// Send memory that was lent as it is when it is sent, and notice no change.
    NoSeal,
    /// Take a queue from which nothing came for a moment for drained.
    NoneIsDrained,
    /// Keep a bounded read from following its end into a later incarnation.
    LostEnd,
    /// Say that a queue has nothing while it recovers.
    RecoveringIsNothing,
    /// Leave at a node what it was sent of a topic that is at another one now.
    LeavesBehind,
    /// Follow a hint wherever it leads.
    AnyHint,
    /// Go from node to node as fast as they answer.
    EndlessHops,
    /// Take a partition of an earlier topic of the name for one of this spread topic.
    EarlierPart,
    /// Go back to the earlier leader of a partition that a description names.
    LowerEpoch,
}

#[cfg(feature = "testing")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault into all clients that this thread runs, or takes it out again.
#[cfg(feature = "testing")]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

#[cfg(feature = "testing")]
static PANICS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Has the thread that drives a client of this process panic over the next call of its API,
/// once: on whichever thread that is.
#[cfg(feature = "testing")]
pub fn plant_panic() {
    PANICS.store(true, std::sync::atomic::Ordering::SeqCst);
}

/// Panics if that was planted. Never outside of tests.
#[inline]
pub(crate) fn panic_if_planted() {
    #[cfg(feature = "testing")]
    if PANICS.swap(false, std::sync::atomic::Ordering::SeqCst) {
        panic!("a planted panic");
    }
}

/// Whether this fault was planted. Never outside of tests.
#[inline]
pub(crate) fn planted(fault: Fault) -> bool {
    #[cfg(feature = "testing")]
    return PLANTED.get() == Some(fault);
    #[cfg(not(feature = "testing"))]
    {
        let _ = fault;
        false
    }
}
