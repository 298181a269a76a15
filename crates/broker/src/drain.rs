//! The end of a node: what was taken is finished, the rest refused.

use crate::drain_stage::Drain;
use crate::ids::StorageId;
use crate::io::Output;
use crate::node::Node;
use crate::partition::appends::Appends;
use crate::refusal::draining;
use crate::timers::Timer;
use std::time::Duration;
use wire::message::Method;

impl Node {
    pub(crate) fn drain(&mut self) {
        if self.drain.is_begun() {
            return;
        }
        self.drain = Drain::Finishing;
        let at = self.ctx.now.monotonic + self.ctx.options.limits.drain_timeout;
        self.ctx.timers.insert(at, Timer::Drain);
        self.sessions.drain(&mut self.ctx);
        let storages: Vec<StorageId> = self.partitions.keys().copied().collect();
        for storage in storages {
            self.at(storage, |partition, ctx| {
                partition.end_waiting(&draining(), ctx);
            });
        }
        // What waited for more has waited long enough.
        for (id, queue) in &mut self.queues {
            queue.quiet_until = Duration::ZERO;
            self.ctx.dirty.queues.insert(*id);
        }
    }

    /// Goes on with the drain when what it waits for has come.
    pub(crate) fn drain_further(&mut self) {
        if self.drain == Drain::Finishing && self.is_finished() {
            self.drain = Drain::ClosingPartitions;
            for partition in self.partitions.values_mut() {
                partition.leave(false, &mut self.ctx);
            }
            self.advance_dirty();
        }
        if self.drain == Drain::ClosingPartitions
            && self.partitions.is_empty()
            && self.ctx.jobs.is_empty()
            && self.commands.controller.is_idle()
            && !self.start.keep(&self.commands.controller, &mut self.ctx)
        {
            self.drain = Drain::ClosingInternal;
            self.commands.controller.storage().close();
            self.ctx.dirty.controller = true;
            self.advance_dirty();
        }
        if self.drain == Drain::ClosingInternal && self.commands.controller.is_closed() {
            self.drain = Drain::Done;
            let failure = self.commands.controller.failure();
            let failure = failure.map(|why| format!("the internal partition failed: {why}"));
            self.unclean = failure.or(self.unclean.take());
            self.sessions.close_all(&mut self.ctx);
            self.ctx.outputs.push_back(Output::Drained);
        }
    }

    /// What had failed and so was not closed cleanly, once the node is drained: the internal
    /// partition, or else the first partition.
    pub fn unclean(&self) -> Option<&str> {
        self.unclean.as_deref()
    }

    /// Whether everything that was taken has been answered.
    fn is_finished(&self) -> bool {
        self.unfinished().iter().all(|(count, _)| *count == 0)
    }

    /// How much of what was taken is not answered yet.
    fn unfinished(&self) -> [(usize, &'static str); 5] {
        let appends = || self.partitions.values().map(|it| &it.appends);
        let acks = appends().map(Appends::unacknowledged).sum();
        let transfers = appends().map(Appends::transfer_count).sum();
        let requests = self.sessions.iter().flat_map(|(_, it)| it.requests.iter());
        let asked = requests.filter(|(_, it)| is_awaited(it.method)).count();
        [
            (self.topics.pending.len(), "topics being made"),
            (transfers, "transfers of data"),
            (
                usize::from(!self.commands.controller.is_idle()),
                "command of the controller",
            ),
            (acks, "batches to acknowledge"),
            (asked, "requests to answer"),
        ]
    }

    /// What is not finished by now is given up.
    pub(crate) fn drain_impatiently(&mut self) {
        if self.drain != Drain::Finishing {
            return;
        }
        let left = self
            .unfinished()
            .into_iter()
            .filter(|(count, _)| *count > 0);
        let left: Vec<String> = left
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        self.ctx.report(format!(
            "draining took too long: what is not finished is given up: {}",
            left.join(", ")
        ));
        let partitions: Vec<_> = self.partitions.keys().copied().collect();
        for id in partitions {
            self.at(id, |partition, ctx| partition.fail(&draining(), ctx));
        }
        self.reads.cancel_all(&mut self.partitions, &mut self.ctx);
        self.route();
        self.drain = Drain::ClosingPartitions;
        for partition in self.partitions.values_mut() {
            partition.leave(false, &mut self.ctx);
        }
    }
}

/// Whether a drain waits until a request of this method is answered.
fn is_awaited(method: Method) -> bool {
    matches!(
        method,
        Method::Produce
            | Method::MoveCursors
            | Method::DeleteConsumer
            | Method::Join
            | Method::Leave
            | Method::Release
            | Method::MoveMemberCursors
            | Method::Settle
            | Method::CreateTopic
            | Method::AddPartitions
            | Method::DeleteTopic
            | Method::OpenProducer
            | Method::ReadData
    )
}
