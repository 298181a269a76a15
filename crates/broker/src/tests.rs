//! The node, driven by inputs: links that answer reads and writes of memory,
//! a disk, a clock that stands unless it is moved.

#[allow(dead_code, reason = "a harness offers what the next test needs")]
mod harness;

mod access;
mod audit;
mod certificates;
mod chaos;
mod controllers;
mod dead_letters;
mod expiry;
mod farm;
mod following;
mod group_storm;
mod groups;
mod hostile;
mod internal;
mod issued;
mod later_version;
mod latest;
mod line;
mod listener;
mod losses;
mod members;
mod mirrors;
mod moves;
mod nodes;
mod overflow;
mod pair;
mod pairing;
mod produce;
mod promises;
mod queue_limits;
mod queue_promises;
mod queue_restarts;
mod queues;
mod quiet;
mod quotas;
mod readers;
mod recovering;
mod registered;
mod registering;
mod sessions;
mod starts_led;
mod status;
mod steps;
mod steps_bounds;
mod steps_ends;
mod steps_harness;
mod steps_held;
mod steps_restarts;
mod steps_shared;
mod steps_storm;
mod stripes;
mod topics;
