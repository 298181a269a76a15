//! The functions as C calls them, with a server in this process.

mod arguments;
mod calls;
mod events;
mod sharing;
mod steps;
mod topics;
