//! What a connection gives to its owner.

use crate::content::Content;
use crate::error::Failure;
use crate::field::ShortString;
use crate::id::ChannelKey;
use crate::method::{basic, channel, confirm, exchange, queue, tx};
use crate::sasl::Credentials;
use crate::table::Table;
use bytes::Bytes;
use std::fmt;

/// What the owner of a connection is to know, or to answer. Credentials are not in its `Debug`.
#[derive(Clone, PartialEq)]
#[allow(missing_docs, reason = "the names of the fields say it")]
pub enum Event {
    /// A client logs in. Answered by `accept_login`, `challenge` or `refuse_login`.
    Authenticate {
        credentials: Credentials,
        client_properties: Table,
    },
    /// The response to a challenge. Answered likewise.
    Response(Bytes),
    /// The client asks for a virtual host. Answered by `accept_open`, or `fail_connection` with 530.
    OpenVirtualHost(ShortString),
    /// The client renews its credential. Answered by `accept_secret`, or `fail_connection` with 530.
    UpdateSecret { secret: Bytes, reason: ShortString },
    /// A channel is open.
    ChannelOpened(ChannelKey),
    /// A request. Those with an answer are answered in the order of their channel.
    Request {
        channel: ChannelKey,
        request: Request,
    },
    /// A message is published.
    Publish(Publish),
    /// A channel has failed and is gone: what it had not acknowledged is requeued.
    ChannelFailed {
        channel: ChannelKey,
        failure: Failure,
    },
    /// The client wants to leave. Answered by `accept_close`, when what is the connection's alone is gone.
    CloseRequested { code: u16, text: ShortString },
    /// The connection has failed: its channels are gone. The client is notified; `Ended` follows.
    Failed(Failure),
    /// The connection is over: the output that is left is sent, and the transport closed.
    Ended(Ended),
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authenticate { credentials, .. } => credentials.fmt(f),
            Self::Response(_) => f.write_str("Response"),
            Self::OpenVirtualHost(name) => write!(f, "OpenVirtualHost({name:?})"),
            Self::UpdateSecret { reason, .. } => write!(f, "UpdateSecret({reason:?})"),
            Self::ChannelOpened(channel) => write!(f, "ChannelOpened({channel:?})"),
            Self::Request { channel, request } => write!(f, "Request({channel:?}, {request:?})"),
            Self::Publish(publish) => publish.fmt(f),
            Self::ChannelFailed { channel, failure } => {
                write!(f, "ChannelFailed({channel:?}, {failure:?})")
            }
            Self::CloseRequested { code, text } => write!(f, "CloseRequested({code}, {text:?})"),
            Self::Failed(failure) => write!(f, "Failed({failure:?})"),
            Self::Ended(ended) => write!(f, "Ended({ended:?})"),
        }
    }
}

/// A message that a client publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// On which channel.
    pub channel: ChannelKey,
    /// Its number if the channel has confirms, from 1 on.
    pub number: Option<u64>,
    /// The method.
    pub publish: basic::Publish,
    /// Properties and body.
    pub content: Content,
}

/// What a client asks of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the method that it holds")]
pub enum Request {
    DeclareExchange(exchange::Declare),
    DeleteExchange(exchange::Delete),
    BindExchange(exchange::Bind),
    UnbindExchange(exchange::Unbind),
    DeclareQueue(queue::Declare),
    BindQueue(queue::Bind),
    UnbindQueue(queue::Unbind),
    PurgeQueue(queue::Purge),
    DeleteQueue(queue::Delete),
    Qos(basic::Qos),
    Consume(basic::Consume),
    Cancel(basic::Cancel),
    /// Answered by `answer` with `basic::GetEmpty`, or by `answer_get`.
    Get(basic::Get),
    /// Without an answer.
    Ack(basic::Ack),
    /// Without an answer.
    Nack(basic::Nack),
    /// Without an answer.
    Reject(basic::Reject),
    Recover(basic::Recover),
    /// `recover` without an answer.
    RecoverAsync(basic::RecoverAsync),
    SelectConfirm(confirm::Select),
    SelectTransaction(tx::Select),
    Commit(tx::Commit),
    Rollback(tx::Rollback),
    /// The client closes the channel. Answered when what it had not acknowledged is requeued.
    CloseChannel(channel::Close),
}

/// How a connection came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The client closed it.
    ByClient,
    /// It failed, or the owner closed it, and the client was told.
    Failed(Failure),
    /// The login was refused.
    Refused,
    /// What came first is no AMQP 0-9-1. The header of that was the answer.
    WrongHeader([u8; 8]),
    /// Nothing came from the client for two heartbeat intervals.
    Silent,
    /// The handshake took too long.
    Late,
}
