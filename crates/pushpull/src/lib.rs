//! ZeroMQ's PUSH and PULL, and those of nanomsg, over TCP.
//!
//! [`Puller`] takes messages of all that are connected to it, [`Pusher`] shares messages out among
//! those that are. Both bind or connect, and connect again. What is held is bounded in bytes, and
//! where the bound is reached nothing more is read: the senders stop.
//!
//! The protocols are ZMTP 3.1 with the mechanism NULL, and the TCP mapping of SP. Neither encrypts
//! nor asks who somebody is.

#![forbid(unsafe_code)]

mod budget;
mod endpoint;
mod faults;
mod link;
mod places;
mod puller;
mod pusher;
mod reports;
mod sp;
mod stream;
#[cfg(test)]
mod tests;
mod zmtp;

pub use endpoint::{Endpoint, Protocol, Side};
pub use link::{Message, PARTS_MAX};
pub use places::{Place, SocketOptions};
pub use puller::Puller;
pub use pusher::{Pusher, Ticket};
pub use reports::Reports;
