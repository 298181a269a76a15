//! AMQP 0-9-1 clients, as clients of the node.
//!
//! Plain state between links of bytes and the node: bytes of clients go in, requests to the node come out, and the other
//! way round. What a connection, a channel and a virtual host are is in the crates `amqp` and `vhost`; a queue is a topic,
//! and all that is asked of topics are the typed requests that any listener makes.
//!
//! A client has a session with the node, by which it is let in, publishes, and is asked for whether something is allowed.
//! A virtual host has one too, which is the server's own: it makes the topics, appends the records, and is the member of each
//! queue's consumer whose messages go to consumers of AMQP.

mod acts;
mod answers;
mod batch;
mod calls;
mod client;
mod drive;
mod faults;
mod host;
mod letters;
mod login;
mod message;
mod publish;
mod publishing;
mod queue;
mod requests;
mod serving;
mod shares;
mod start;
mod state;
#[cfg(test)]
mod tests;

pub use calls::{Out, SESSIONS_FROM};
pub use state::{AmqpListener, Options};
