//! Clients against scripted servers and real ones: one program, so that it is linked once. Tests that need a process of their own
//! stand beside it.

mod fake;
mod live;
#[path = "fake/reading.rs"]
mod reading;
#[path = "fake/world.rs"]
mod world;

mod arguments;
mod bounded;
mod connecting;
mod consuming;
#[path = "core.rs"]
mod core_alone;
mod credential;
mod damage;
mod data;
mod definitions;
mod draining;
mod elsewhere;
mod groups;
mod job_end;
mod latest;
mod mirroring;
mod overflow;
mod path;
mod producing;
mod queues;
mod seeking;
mod server;
mod sharing;
mod standing;
mod striped;
mod threaded;
mod threads;
