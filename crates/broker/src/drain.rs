//! The end of a node: what was taken is finished, the rest refused.

use crate::coordinator::Coordinator;
use crate::ctx::Ctx;
use crate::drain_stage::Drain;
use crate::ids::SharedId;
use crate::io::Output;
use crate::partition::Partitions;
use crate::partition::appends::Appends;
use crate::queue::Queue;
use crate::read_data::Reads;
use crate::refusal::draining;
use crate::session::Sessions;
use crate::start::Remembered;
use crate::timers::Timer;
use std::collections::BTreeMap;
use wire::message::Method;

/// A node that is to end, and all that ends with it. Effects are routed by the caller.
pub(crate) struct Draining<'a> {
    pub stage: &'a mut Drain,
    pub ctx: &'a mut Ctx,
    pub sessions: &'a mut Sessions,
    pub coordinator: &'a mut Coordinator,
    pub queues: &'a mut BTreeMap<SharedId, Queue>,
    pub partitions: &'a mut Partitions,
    pub reads: &'a mut Reads,
    pub start: &'a mut Remembered,
    /// What had failed and so was not closed cleanly.
    pub unclean: &'a mut Option<String>,
}

impl Draining<'_> {
    pub fn begin(self) {
        if self.stage.is_begun() {
            return;
        }
        *self.stage = Drain::Finishing;
        self.ctx.outputs.push_back(Output::Draining);
        self.coordinator.commands.controller().drain();
        self.ctx.dirty.controller = true;
        let at = self.ctx.now.monotonic + self.ctx.options.limits.drain_timeout;
        self.ctx.timers.insert(at, Timer::Drain);
        self.sessions.drain(self.ctx);
        for partition in self.partitions.values_mut() {
            partition.end_waiting(&draining(), self.ctx);
        }
        // What waited for more has waited long enough.
        for queue in self.queues.values_mut() {
            queue.hurry(self.ctx);
        }
    }

    /// Goes on when what the drain waits for has come. Says whether it did: then what is dirty
    /// now is advanced, and this is called again.
    pub fn further(self) -> bool {
        match *self.stage {
            Drain::Finishing if self.is_finished() => {
                self.close_partitions();
                true
            }
            Drain::ClosingPartitions
                if self.partitions.is_empty()
                    && !self.ctx.has_jobs()
                    && self.coordinator.commands.log().is_idle() =>
            {
                *self.stage = Drain::ClosingInternal;
                self.coordinator.commands.controller().close();
                self.ctx.dirty.controller = true;
                true
            }
            // Noted when it is closed: before that a power loss may take what was only written.
            Drain::ClosingInternal
                if self.coordinator.commands.log().is_closed()
                    && !self.ctx.has_jobs()
                    && !self.start.keep(self.coordinator.commands.log(), self.ctx) =>
            {
                *self.stage = Drain::Done;
                let failure = self.coordinator.commands.failure();
                *self.unclean = failure.or(self.unclean.take());
                self.sessions.close_all(self.ctx);
                self.ctx.outputs.push_back(Output::Drained);
                true
            }
            _ => false,
        }
    }

    pub fn close_partitions(self) {
        *self.stage = Drain::ClosingPartitions;
        for partition in self.partitions.values_mut() {
            partition.leave(false, self.ctx);
        }
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
            (self.coordinator.change_count(), "topics being made"),
            (transfers, "transfers of data"),
            (
                usize::from(!self.coordinator.commands.log().is_idle()),
                "command of the controller",
            ),
            (acks, "batches to acknowledge"),
            (asked, "requests to answer"),
        ]
    }

    /// What is not finished by now is given up: its callers are refused. The partitions close
    /// behind that, when this has been routed and [`Draining::close_partitions`] is called.
    pub fn give_up(self) {
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
        for partition in self.partitions.values_mut() {
            partition.fail(&draining(), self.ctx);
        }
        self.reads.cancel_all(self.partitions, self.ctx);
    }
}

/// Whether a drain waits until a request of this method is answered: one that changes what is durable, or reads data
/// that is under way. Others end with their connections.
fn is_awaited(method: Method) -> bool {
    match method {
        Method::Produce
        | Method::AppendMirrored
        | Method::MoveCursors
        | Method::DeleteConsumer
        | Method::Join
        | Method::Leave
        | Method::Release
        | Method::MoveMemberCursors
        | Method::Settle
        | Method::CreateTopic
        | Method::AddPartitions
        | Method::AddPlacedPartitions
        | Method::AlterTopic
        | Method::DeleteTopic
        | Method::OpenProducer
        | Method::SetNode
        | Method::ReadData => true,
        // These wait for others, or for events; or they can be asked again.
        Method::Subscribe
        | Method::SubscribeScoped
        | Method::Unsubscribe
        | Method::Fetch
        | Method::ReadCursors
        | Method::ExtendLeases
        | Method::OpenMirror
        | Method::ListTopics
        | Method::DescribeTopic
        | Method::DescribeConsumers
        | Method::ListGaps
        | Method::ListNodes
        | Method::CheckAccess
        | Method::OfferPairing
        | Method::Status
        | Method::Shutdown
        | Method::OpenRun
        | Method::AttendRun
        | Method::AdmitStep
        | Method::AwaitStep
        | Method::HoldParts
        | Method::CloseRun
        | Method::AwaitReaders
        | Method::JoinReaders
        | Method::AttendReaders
        | Method::NextStep
        | Method::ReleaseStep
        | Method::LeaveReaders
        | Method::MoveTopic
        | Method::ReceiveTopic
        | Method::YieldTopic
        | Method::AdoptLedger
        | Method::HandOverTopic => false,
    }
}
