//! What a mover asks of the two nodes between which a topic goes.

use crate::driver::{Driver, Nothing};
use crate::error::ClientError;
use crate::promise::Pending;
use crate::topic_handle::TopicHandle;
use wire::NodeId;
use wire::codec::Codec;
use wire::message::{
    AdoptLedger, Method, MirrorOpened, MoveTopic, ReceiveTopic, TopicDescription, TopicYielded,
    YieldTopic,
};

impl Driver {
    /// A topic as it was described, also where this driver's own servers would say that it is elsewhere: for who asks the node
    /// that it goes to.
    ///
    /// # Errors
    /// If the description is not understood.
    pub fn topic_as_described(
        &self,
        described: TopicDescription,
    ) -> Result<TopicHandle, ClientError> {
        TopicHandle::new(self.clone(), described)
    }
}

impl TopicHandle {
    /// Has the topic go to another node of its cluster, or stay if it has it: asked of the node that has it.
    ///
    /// # Errors
    /// [`wire::ErrorCode::Unsupported`] of a node that takes no topics, and of a topic of steps.
    pub fn begin_move(&self, to: NodeId) -> Pending<()> {
        let what = format!("topic {} to go to node {to}", self.name());
        let method = Method::MoveTopic;
        self.driver
            .begin_call(method, self.id(), &MoveTopic { to }, what, |_| Ok(()))
    }

    /// Begins to send copies of a topic's batches to the node that it goes to, on the connection that stands. Says how far each
    /// partition has come there. `opening` is another number each time, as of [`TopicHandle::begin_open_mirror`].
    ///
    /// # Errors
    /// [`wire::ErrorCode::Unsupported`] of a node that has it.
    pub fn begin_receive(&self, opening: u64) -> Pending<MirrorOpened> {
        let what = format!("topic {} to be received", self.name());
        let body = ReceiveTopic { opening };
        self.driver
            .begin_call(Method::ReceiveTopic, self.id(), &body, what, |reply| {
                let opened = MirrorOpened::from_bytes("mirror opened", &reply.head);
                opened.map_err(ClientError::damaged)
            })
    }

    /// Has the topic served no more by the node that has it, until it is handed over or this connection is gone.
    ///
    /// # Errors
    /// [`wire::ErrorCode::Unsupported`] of a topic that is not on its way.
    pub fn begin_yield(&self, to: NodeId) -> Pending<TopicYielded> {
        let what = format!("topic {} to be yielded", self.name());
        self.driver.begin_call(
            Method::YieldTopic,
            self.id(),
            &YieldTopic { to },
            what,
            |reply| {
                let yielded = TopicYielded::from_bytes("topic yielded", &reply.head);
                yielded.map_err(ClientError::damaged)
            },
        )
    }

    /// Records at the node that a topic goes to what the other one's ledger has said of it, and its partitions of producers; done when
    /// the first is durable.
    ///
    /// # Errors
    /// As any call.
    pub fn begin_adopt(&self, adopt: &AdoptLedger) -> Pending<()> {
        let what = format!("what is known of topic {} to be adopted", self.name());
        self.driver
            .begin_call(Method::AdoptLedger, self.id(), adopt, what, |_| Ok(()))
    }

    /// Hands the topic over, which was yielded: done when the other node has it.
    ///
    /// # Errors
    /// [`wire::ErrorCode::WrongServer`] if one of the nodes has begun anew meanwhile: the topic stays where it is.
    /// [`ClientError::Unreachable`] if the connection is gone first: it may be done.
    pub fn begin_hand_over(&self) -> Pending<()> {
        let what = format!("topic {} to be handed over", self.name());
        let method = Method::HandOverTopic;
        self.driver
            .begin_call(method, self.id(), &Nothing, what, |_| Ok(()))
    }
}
