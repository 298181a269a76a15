//! Topics, partitions, consumers and producers as plain state machines, and
//! the [`node`] that ties them to links and disks.
//!
//! Knows no sockets, threads, clocks or files: see [`node::Input`] and
//! [`node::Output`].

#![forbid(unsafe_code)]

pub mod node;
