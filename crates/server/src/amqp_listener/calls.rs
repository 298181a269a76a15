//! Sessions of the listener with the node, and what is to be done with answers.

use super::batch::Batch;
use super::shares::Shares;
use amqp::{ChannelKey, Request as Asked};
use broker::node::{Input, LinkId};
use broker::request::{Call, ClientInput};
use broker::{Identity, Line, Proof, Request};
use bytes::Bytes;
use net::{NetError, Peer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use vhost::{ActId, QueueId};
use wire::message::Hello;
use wire::{Offset, SessionId, TopicId};

/// The node's names of the listener's sessions count from here; those of connections count from 1.
pub const SESSIONS_FROM: u64 = 1 << 62;

/// A client's connection, by its link in the reactor.
pub(super) type ClientId = net::LinkId;

/// Something to do for the executor.
#[allow(missing_docs, reason = "the names of the fields say it")]
#[allow(
    clippy::large_enum_variant,
    reason = "an input goes by value to the node, and most of what is put out are inputs"
)]
pub enum Out {
    /// To be handed to the node.
    Node(Input),
    /// Bytes for a client.
    Send { client: net::LinkId, bytes: Bytes },
    /// A client is to be read no further, or again.
    Hold { client: net::LinkId, held: bool },
    /// A client has proved who it is.
    Known { client: net::LinkId },
    /// A connection is to be ended, after what was sent.
    Close { client: net::LinkId, reason: String },
    /// A line for the operator.
    Report(Line),
}

/// Whose a session is.
#[derive(Debug, Clone)]
pub(super) enum Whose {
    Client(ClientId),
    /// Of the virtual host of a namespace.
    Host(Arc<str>),
}

/// For what the messages of a queue are counted.
#[derive(Debug)]
pub(super) enum Counted {
    /// A queue was declared that there is; so many consumers it has.
    Declared(ClientId, ChannelKey, u32),
    /// A queue is to be deleted.
    Deleting(ClientId, ChannelKey, Box<Asked>),
    /// An act is done only if there are none.
    IfEmpty(ActId),
    /// Ready ones are to be dropped.
    Purge(ClientId, ChannelKey),
    /// `basic.get` waits, and has found nothing here.
    Get,
    /// What is known is looked at again.
    Again,
}

/// What is to be done with the answer to a call.
#[derive(Debug)]
pub(super) enum Then {
    /// Of a client's own session: a producer's identity, a batch, whether something is allowed.
    ProducerOpened(TopicId),
    Produced(TopicId, Batch),
    Checked,
    /// Of a virtual host: what there is at the start.
    Topics,
    Records(Offset),
    RecordsTopic,
    /// Of an act.
    TopicMade(ActId),
    /// Of a queue.
    Joined(QueueId),
    Settled(QueueId),
    Extended,
    /// With the messages that go back to the queue, and of which the node is not told yet.
    Counted(QueueId, Counted, u64),
    /// Data of an event that is not in its batch.
    DataRead(QueueId, Offset),
    TopicDeleted,
}

#[derive(Debug)]
struct Session {
    whose: Whose,
    last_call: u64,
    waiting: BTreeMap<u64, Then>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Calls {
    pub out: VecDeque<Out>,
    /// Memory of all queues.
    pub shares: Shares,
    sessions: BTreeMap<LinkId, Session>,
    opened: u64,
}

impl Calls {
    fn open(&mut self, whose: Whose) -> LinkId {
        let link = LinkId(SESSIONS_FROM + self.opened);
        self.opened += 1;
        let session = Session {
            whose,
            last_call: 0,
            waiting: BTreeMap::new(),
        };
        self.sessions.insert(link, session);
        link
    }

    /// A client's session, which the node lets in or not.
    pub fn introduce(&mut self, client: ClientId, peer: Peer, hello: Hello) -> LinkId {
        let link = self.open(Whose::Client(client));
        let hello = Box::new(hello);
        self.input(Input::ClientHello { link, peer, hello });
        link
    }

    /// The session of a virtual host, which is the server itself.
    pub fn host(&mut self, namespace: &Arc<str>) -> LinkId {
        let link = self.open(Whose::Host(namespace.clone()));
        self.input(Input::ClientUp {
            link,
            peer: Peer {
                address: "the AMQP listener".to_owned(),
                in_process: true,
                ..Peer::default()
            },
            identity: Identity {
                proof: Proof::InProcess,
                access: access::Identity::owner(Default::default(), Default::default()),
                namespace: namespace.to_string(),
                client_name: "AMQP listener".to_owned(),
                session: SessionId(0),
            },
        });
        link
    }

    /// Ends a session. Gives what was asked and is not answered: it has no answer any more.
    pub fn close(&mut self, link: LinkId) -> Vec<Then> {
        let Some(session) = self.sessions.remove(&link) else {
            return Vec::new();
        };
        let reason = NetError::Closed("the client has left".to_owned());
        self.input(Input::LinkDown { link, reason });
        session.waiting.into_values().collect()
    }

    /// Asks the node for something. Returns the call's id.
    pub fn call(&mut self, link: LinkId, request: impl Into<Request>, then: Then) -> u64 {
        let Some(session) = self.sessions.get_mut(&link) else {
            return 0;
        };
        session.last_call += 1;
        let id = session.last_call;
        session.waiting.insert(id, then);
        let call = Box::new(Call {
            id,
            request: request.into(),
            patience: None,
            is_quiet: false,
        });
        self.say(link, ClientInput::Call(call));
        id
    }

    pub fn say(&mut self, link: LinkId, input: ClientInput) {
        self.input(Input::Client { link, input });
    }

    pub fn input(&mut self, input: Input) {
        self.out.push_back(Out::Node(input));
    }

    pub fn whose(&self, link: LinkId) -> Option<&Whose> {
        self.sessions.get(&link).map(|session| &session.whose)
    }

    /// What the answer to a call is waited for.
    pub fn answered(&mut self, link: LinkId, id: u64) -> Option<Then> {
        self.sessions.get_mut(&link)?.waiting.remove(&id)
    }
}
