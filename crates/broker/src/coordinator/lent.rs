//! What a part of the coordinator is lent for an act.

use super::commands::Commands;
use super::served_topic::Topics;
use crate::ctx::Ctx;
use crate::drain_stage::Drain;
use crate::partition::Partitions;
use crate::session::Sessions;

/// What the coordinator is lent of the node for an act.
pub(crate) struct Around<'a> {
    pub ctx: &'a mut Ctx,
    pub sessions: &'a Sessions,
    pub partitions: &'a Partitions,
    pub drain: Drain,
}

impl Around<'_> {
    /// The same for a part, with what the parts have in common.
    pub fn lend<'a>(&'a mut self, commands: &'a mut Commands, topics: &'a Topics) -> Lent<'a> {
        Lent {
            ctx: self.ctx,
            commands,
            topics,
            sessions: self.sessions,
            partitions: self.partitions,
            drain: self.drain,
        }
    }
}

/// See the module. Connections and partitions are only looked at: what is asked of them is noted
/// in the context as an effect.
pub(crate) struct Lent<'a> {
    pub ctx: &'a mut Ctx,
    /// The table, and the way into it.
    pub commands: &'a mut Commands,
    pub topics: &'a Topics,
    pub sessions: &'a Sessions,
    pub partitions: &'a Partitions,
    pub drain: Drain,
}
