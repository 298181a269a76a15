//! The client as a plain state machine: inputs with the time go in, messages
//! go to the link that is handed in, and the rest comes out as [`Output`]s.
//!
//! What drives it (the runtime's thread, or a simulation) does this: on
//! every input call [`ClientCore::handle`] with the present link, then carry
//! out [`ClientCore::poll_output`] until there is none, and call again no
//! later than [`ClientCore::next_timer`]. After calls of the API it is to be
//! handed [`Input::Wake`]. It has no clock, thread, socket or randomness of
//! its own and keeps everything in ordered maps, so that the same inputs give
//! the same outputs.
//!
//! What goes on with one node is a core of its own, which knows of no other; a client has one for each node that it has to
//! do with.
//!
//! - `client`: which node is asked for what, and what goes from one to another.
//! - `node`: all that goes on with one of them.
//! - `elsewhere`: what a node says of where something is.
//! - `connection`: which server, how to reach it, when it is lost.
//! - `address`: what an address says of the way there.
//! - `credential`: what is presented of who one is, and presented anew.
//! - `calls`: requests of the API and their answers.
//! - `node/commands`, `node/messages`: from the API and from the server, to the part concerned.
//! - `producer`: batches taken from the queues, sent, kept until acknowledged.
//! - `consumer`: subscriptions, credit.
//! - `cursors`: acknowledgements of a consumer, sent and held.
//! - `group`: what a group's member owns.
//! - `membership`: one membership of a group or queue, kept through lost connections.
//! - `queue`: events under leases, settlements.
//! - `retry`: when what was refused for now is tried again.
//! - `stripes`: when a session opens one more connection.
//! - `topics`: partitions that are added to topics in use.

mod address;
mod calls;
mod client;
mod connection;
mod consumer;
mod credential;
mod cursors;
mod elsewhere;
mod group;
mod io;
mod membership;
mod node;
mod opening;
mod producer;
mod queue;
mod retry;
mod stripes;
mod topics;
mod wire_session;

pub use client::{ClientCore, FIRST_NODE, Links, NodeIndex};
pub use io::{Input, Output, RenewedCredential, StripeDial};
pub(crate) use opening::Opening;
