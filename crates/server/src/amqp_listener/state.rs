//! What the listener knows, and a client with what it is about.

use super::calls::{Calls, ClientId};
use super::client::Client;
use super::host::Host;
use amqp::{ChannelKey, Method, Settings};
use broker::node::Now;
use memory::Pool;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use vhost::QueueId;
use wire::Offset;

/// What is to be looked at when a time has come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Client(ClientId),
    Queue(Arc<str>, QueueId),
    Host(Arc<str>),
    /// Publishers may try again whether the storage has room.
    Storage,
}

/// What has changed, and is looked at before the listener returns.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    pub(super) clients: BTreeSet<ClientId>,
    pub(super) queues: BTreeSet<(Arc<str>, QueueId)>,
    pub(super) hosts: BTreeSet<Arc<str>>,
}

/// Bounds of the listener.
#[derive(Debug, Clone)]
pub struct Options {
    /// The longest payload that the node takes: a message is shorter.
    pub payload_bytes_max: u64,
    /// Where buffers come from.
    pub pool: Pool,
    /// Bits that nobody guesses.
    pub random: fn() -> u128,
    /// What the user `guest` with the password `guest` proves, if there is such a user: the server's own token.
    pub guest: Option<[u8; 32]>,
}

/// See the module.
///
/// Its owner tells it what happens to links of bytes ([`AmqpListener::connected`] and so on) and what the node says
/// ([`AmqpListener::said`], [`AmqpListener::ended`]), calls [`AmqpListener::handle_timeout`] when [`AmqpListener::timeout`] has come,
/// and takes all of [`AmqpListener::poll`] after each call.
pub struct AmqpListener {
    /// Without TLS, and with it: then a client may have a certificate.
    pub(super) settings: [Arc<Settings>; 2],
    pub(super) pool: Pool,
    pub(super) random: fn() -> u128,
    pub(super) guest: Option<[u8; 32]>,
    pub(super) now: Now,
    pub(super) calls: Calls,
    pub(super) clients: BTreeMap<ClientId, Client>,
    pub(super) hosts: BTreeMap<Arc<str>, Host>,
    pub(super) dirty: Dirty,
    pub(super) timers: BTreeSet<(Duration, Timer)>,
    /// Regions into which the node writes data of events.
    pub(super) regions: BTreeMap<u64, Vec<u8>>,
    pub(super) regions_begun: u64,
    /// Bytes of messages of all clients that have not come whole.
    pub(super) assembly_bytes: u64,
    /// Clients that were notified that the storage is full.
    pub(super) blocked: BTreeSet<ClientId>,
    /// The node is to end.
    pub(super) is_draining: bool,
    /// Which of them is for which event.
    pub(super) reading: BTreeMap<(Arc<str>, QueueId, Offset), u64>,
}

/// What is next for whatever a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It is done, or its answer comes by itself.
    Go,
    /// It is looked at again when something else is done.
    Again,
    /// Nothing more of its client is looked at before its answer is there.
    Answer,
}

/// A client and what it is about.
pub(super) struct At<'a> {
    pub(super) client: &'a mut Client,
    pub(super) host: &'a mut Host,
    pub(super) calls: &'a mut Calls,
    pub(super) dirty: &'a mut Dirty,
    pub(super) now: Now,
}

impl At<'_> {
    pub(super) fn answer(&mut self, key: ChannelKey, answer: impl Into<Method>) {
        self.client.amqp.answer(key, answer);
    }

    pub(super) fn serve(&mut self, queue: QueueId) {
        let namespace = self.client.namespace.clone();
        self.dirty.queues.insert((namespace, queue));
    }
}
