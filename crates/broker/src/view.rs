//! A node as it is described: everything can be seen, and nothing changed.

mod answers;
mod consumers;
mod status;
mod topics;

pub(crate) use consumers::{Readers, cursor_status};
pub(crate) use status::{producer_status, topic_status};

use crate::coordinator::commands::Commands;
use crate::coordinator::members::Members;
use crate::coordinator::served_topic::Topics;
use crate::ctx::Ctx;
use crate::ids::SharedId;
use crate::partition::Partitions;
use crate::queue::Queue;
use crate::session::Sessions;
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub ctx: &'a Ctx,
    pub sessions: &'a Sessions,
    pub commands: &'a Commands,
    pub topics: &'a Topics,
    pub members: &'a Members,
    pub queues: &'a BTreeMap<SharedId, Queue>,
    pub partitions: &'a Partitions,
}
