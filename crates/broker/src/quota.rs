//! What projects and the holders of tokens use of their quotas, and what is refused for them.

use crate::coordinator::commands::Commands;
use crate::coordinator::served_topic::{Slot, Topics};
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::RequestId;
use crate::pace::{Charge, Direction, Whose};
use crate::partition::Partitions;
use crate::refusal::Refused;
use crate::request::{CoordinatorRequest, PartitionRequest, Request};
use access::{AtBound, Bound, Quota};
use wire::message::Region;
use wire::{ErrorCode, ErrorReply};

/// When to come again at a bound that only others can lift, by deleting or leaving.
const RETRY_MS: u32 = 1000;

/// What there is of topics and their partitions.
#[derive(Clone, Copy)]
pub(crate) struct InUse<'a> {
    pub topics: &'a Topics,
    /// What is being made.
    pub commands: &'a Commands,
    pub partitions: &'a Partitions,
}

impl<'a> InUse<'a> {
    pub fn new(topics: &'a Topics, commands: &'a Commands, partitions: &'a Partitions) -> Self {
        Self {
            topics,
            commands,
            partitions,
        }
    }

    /// Bytes that the partitions of a project's topics hold.
    fn stored_bytes(self, project: &str) -> u64 {
        let topics = self
            .topics
            .values()
            .filter(|topic| topic.namespace == project);
        let slots = topics.flat_map(|topic| &topic.partitions);
        let bytes = slots.map(|slot| match slot {
            Slot::Open(id) => {
                let partition = self.partitions.get(id);
                partition.map_or(0, |partition| partition.store.state().bytes)
            }
            Slot::Failed(_) => 0,
        });
        bytes.sum()
    }

    /// Topics of a project, on whichever nodes, with those that are being made here.
    fn topic_count(self, project: &str) -> u64 {
        let there = self.commands.table().namespace(project).count();
        (there + self.commands.ahead.made_in(project)) as u64
    }

    /// Whether a partition has what is to be appended already: it comes a second time, as the first
    /// answer was lost.
    fn has_already(self, request: &Request) -> bool {
        let Request::Partition(target, PartitionRequest::Produce(produce, batch)) = request else {
            return false;
        };
        let topic = self.topics.get(target.topic);
        let storage = topic.and_then(|topic| topic.storage_of(produce.partition).ok());
        let partition = storage.and_then(|storage| self.partitions.get(&storage));
        partition.is_some_and(|partition| partition.has_already(&batch.batch.header))
    }
}

/// Says that somebody is at a bound, and what helps.
pub(crate) fn at_bound(whose: &Whose, quota: &Quota, bound: Bound) -> Refused {
    let most = quota.most(bound).unwrap_or_default();
    let remedy = match bound {
        Bound::StoredBytes => "delete a topic, or let retention do its work",
        Bound::Connections => "close one",
        Bound::Topics => "delete one",
        Bound::UnsettledBytes => "settle some",
        Bound::BytesInPerSecond | Bound::BytesOutPerSecond => "wait",
    };
    ErrorReply {
        retryable: quota.at_bound == AtBound::Wait,
        retry_after_ms: RETRY_MS,
        ..ErrorReply::fatal(
            ErrorCode::LimitExceeded,
            format!(
                "{whose}: {bound} is {most}, and that is used up: {remedy}, or have the operator raise \
                 it (access/rules.json)"
            ),
        )
    }
}

fn of_project(project: &str) -> Whose {
    Whose::Project(project.to_owned())
}

/// Charges a request to those who pay for it, once. Returns when it is to be answered, if not at once.
///
/// `unpaid_bytes` of events wait in answers of its connection already.
///
/// # Errors
/// If the client's project, or its token, is at a bound.
pub(crate) fn charge(
    caller: RequestId,
    request: &Request,
    (project, unpaid_bytes): (Option<&str>, u64),
    in_use: InUse<'_>,
    ctx: &mut Ctx,
) -> Result<Option<Charge>, Refused> {
    if ctx.planted(Fault::NoQuota) {
        return Ok(None);
    }
    let Ctx {
        rules,
        paces,
        stored,
        now,
        ..
    } = ctx;
    let now = now.monotonic;
    let quota = project.map(|project| (project, rules.quotas.of(project)));
    let creates = matches!(
        request,
        Request::Coordinator(CoordinatorRequest::CreateTopic(..))
    );
    if let Some((project, quota)) = quota.filter(|_| creates)
        && let Some(most) = quota.most(Bound::Topics)
        && in_use.topic_count(project) >= most
    {
        return Err(at_bound(&of_project(project), quota, Bound::Topics));
    }
    let Some((direction, bytes)) = moved(request) else {
        return Ok(None);
    };
    let unpaid = match direction {
        Direction::In => 0,
        Direction::Out => unpaid_bytes,
    };
    // What is there already is paid for again, but never refused: that would say it is not there.
    if let Some((rate, wait)) = paces.over(caller.link, direction, unpaid, now)
        && !in_use.has_already(request)
    {
        return Err(rate.refused(wait));
    }
    if let (Some((project, quota)), Direction::In) = (quota, direction)
        && let Some(most) = quota.most(Bound::StoredBytes)
        && !in_use.has_already(request)
        && !stored.take(project, bytes, most, now, || in_use.stored_bytes(project))
    {
        return Err(at_bound(&of_project(project), quota, Bound::StoredBytes));
    }
    let is_bound = paces.binds(caller.link);
    Ok(is_bound.then(|| Charge {
        direction,
        bytes,
        paid_at: paces.charge(caller.link, direction, bytes, now),
    }))
}

/// Bytes of regions, whose lengths are a client's word.
fn all(regions: &[Region]) -> u64 {
    let bytes = regions.iter().map(|region| region.bytes);
    bytes.fold(0, u64::saturating_add)
}

/// Bytes of events that a request moves by itself, and which way.
fn moved(request: &Request) -> Option<(Direction, u64)> {
    match request {
        Request::Partition(_, PartitionRequest::Produce(produce, batch)) => Some((
            Direction::In,
            all(&produce.regions).saturating_add(batch.bytes()),
        )),
        Request::Partition(_, PartitionRequest::AppendMirrored(append, batch)) => Some((
            Direction::In,
            all(&append.regions).saturating_add(batch.bytes()),
        )),
        Request::Partition(_, PartitionRequest::ReadData(read)) => {
            Some((Direction::Out, all(&read.into)))
        }
        // What is fetched is paid for when it is known.
        Request::Partition(_, PartitionRequest::Fetch(_)) => Some((Direction::Out, 0)),
        _ => None,
    }
}
