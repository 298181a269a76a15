//! A client's connection, as the listener knows it.

use super::publish::Publisher;
use super::queue::Held;
use amqp::{ChannelKey, Connection, Publish, Request, Settings, ShortString};
use broker::node::LinkId;
use bytes::BytesMut;
use net::Peer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use vhost::{Channel, ConnectionId, QueueId};
use wire::message::Hello;

/// Bytes that wait to be sent to a client above which it is delivered nothing, and is read no further.
pub(super) const QUEUED_BYTES_MAX: u64 = 2 << 20;

/// What a client waits for; nothing that it sends is looked at meanwhile.
#[derive(Debug)]
pub(super) enum Blocked {
    /// The node lets it in, or not.
    Login,
    /// Its virtual host is looked up.
    Open(ShortString),
    /// Something is done before a request is looked at once more.
    Request(ChannelKey, Box<Request>),
    /// Likewise for a message.
    Publish(Box<Publish>),
    /// What it has published is stored before a request is looked at.
    Stored(ChannelKey, Box<Request>),
    /// Likewise before its connection is closed.
    Leaving,
    /// Its request is being done.
    Answer,
    /// Another credential is looked at.
    Secret,
}

/// Whether something is allowed, as the node says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    pub verb: &'static str,
    pub topic: String,
}

/// One channel.
#[derive(Debug)]
pub(super) struct Open {
    pub channel: Channel<Held>,
    /// The address of its consumer of direct replies, once there is one.
    pub replies: Option<Arc<str>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Client {
    pub peer: Peer,
    pub amqp: Connection,
    /// What has come and was not taken.
    pub input: BytesMut,
    pub blocked: Option<Blocked>,
    pub session: Option<LinkId>,
    /// What it presents, until its virtual host is open.
    pub hello: Option<Hello>,
    pub user: String,
    /// Whether the node has let it in.
    pub is_known: bool,
    pub namespace: Arc<str>,
    /// Its virtual host is open.
    pub connection: Option<ConnectionId>,
    pub channels: BTreeMap<ChannelKey, Open>,
    pub publisher: Option<Publisher>,
    pub checking: Option<Check>,
    /// Answers of the node for the request that is looked at: why not, if not.
    pub checked: Vec<(Check, Result<(), String>)>,
    /// Its consumers, and the queue of each.
    pub consuming: BTreeSet<(ChannelKey, ShortString, QueueId)>,
    /// The queue of the `basic.get` that waits.
    pub getting: Option<QueueId>,
    /// Channels that have something to confirm.
    pub confirming: BTreeSet<ChannelKey>,
    /// Bytes of its messages that have not come whole, as they count for all clients.
    pub assembly_bytes: u64,
    /// Bytes that wait in its link.
    pub queued: u64,
    pub held: bool,
    pub timer_at: Option<Duration>,
}

impl Client {
    pub fn new(peer: Peer, settings: Arc<Settings>, now: Duration) -> Self {
        Self {
            peer,
            amqp: Connection::new(now, settings),
            input: BytesMut::new(),
            blocked: None,
            session: None,
            hello: None,
            user: String::new(),
            is_known: false,
            namespace: "".into(),
            connection: None,
            channels: BTreeMap::new(),
            publisher: None,
            checking: None,
            checked: Vec::new(),
            consuming: BTreeSet::new(),
            getting: None,
            confirming: BTreeSet::new(),
            assembly_bytes: 0,
            queued: 0,
            held: false,
            timer_at: None,
        }
    }

    /// Whether so much waits to be sent that nothing is delivered.
    pub fn is_congested(&self) -> bool {
        self.queued + self.amqp.output_bytes() as u64 > QUEUED_BYTES_MAX
    }

    /// Whether so much of what it publishes is on its way that it is read no further.
    pub fn is_full(&self) -> bool {
        let is_full = |open: &Open| open.channel.is_full();
        self.publisher.as_ref().is_some_and(Publisher::is_full)
            || self.channels.values().any(is_full)
    }

    /// Whether it waits until what it has published is stored, and it is.
    pub fn has_stored(&self) -> bool {
        let is_waiting = matches!(self.blocked, Some(Blocked::Stored(..) | Blocked::Leaving));
        is_waiting && !self.is_storing()
    }

    /// Whether something that it has published is on its way.
    pub fn is_storing(&self) -> bool {
        let publisher = self.publisher.as_ref();
        publisher.is_some_and(|publisher| !publisher.is_idle())
    }

    /// How many messages more a consumer of a channel may have.
    pub fn has_room(&self, channel: ChannelKey, tag: &ShortString) -> bool {
        let open = self.channels.get(&channel);
        !self.is_congested() && open.is_some_and(|open| open.channel.capacity(tag) > 0)
    }

    /// The queues of a channel's consumers.
    pub fn queues_of(&self, channel: ChannelKey) -> impl Iterator<Item = QueueId> {
        let first = (channel, ShortString::default(), QueueId(0));
        let of_channel = self.consuming.range(first..);
        let of_channel = of_channel.take_while(move |(key, ..)| *key == channel);
        of_channel.map(|(_, _, queue)| *queue)
    }

    /// Whether nothing that it sends is looked at for now.
    pub fn takes_nothing(&self) -> bool {
        self.blocked.is_some() || self.is_full() || self.is_congested()
    }
}
