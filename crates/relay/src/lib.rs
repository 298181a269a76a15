//! Tunnels between two sites: one outgoing TLS connection, targets by name, a one-time code.
//!
//! The README has the states of a session and what holds in it; the frames are
//! `docs/format/relay.md`.

#![forbid(unsafe_code)]
