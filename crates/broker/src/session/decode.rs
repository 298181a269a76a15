//! Requests of Thalweg's own protocol: what a frame's head and payload ask for.

use crate::refusal::{Refused, malformed, refuse};
use crate::request::{
    CoordinatorRequest, DescribeRequest, MoveRequest, PartitionRequest, QueueRequest, Request,
    StepsRequest, Target,
};
use crate::verified::{Verified, VerifiedCopy};
use memory::Buffer;
use wire::batch::Verify;
use wire::codec::Reader;
use wire::message::*;
use wire::{Codec, DirectoryId, ErrorCode, MemberId};

/// What a request begins with. `from` goes on behind it. An error of the code `Unsupported` is
/// an answer to a later version's request, any other one ends the connection.
pub(super) fn request_head(from: &mut Reader<'_>) -> Result<RequestHead, Refused> {
    let code = from.clone().u16().map_err(malformed)?;
    if !Method::ALL.iter().any(|method| *method as u16 == code) {
        return Err(refuse(
            ErrorCode::Unsupported,
            format!("method {code} is not known"),
        ));
    }
    read(from)
}

fn read<T: Codec>(from: &mut Reader<'_>) -> Result<T, Refused> {
    T::decode(from).map_err(malformed)
}

/// What is asked for. An error of the code `Malformed` ends the connection, any other one is the
/// answer.
pub(super) fn request(
    head: &RequestHead,
    from: &mut Reader<'_>,
    payload: Buffer,
    verify: Verify,
) -> Result<Request, Refused> {
    trace::passes!("decoded");
    use CoordinatorRequest as Coordinator;
    let topic = head.topic;
    let target = Target {
        topic,
        leader_epoch: head.leader_epoch,
    };
    let partition = |request| Request::Partition(target, request);
    let steps = |request| Request::Steps(topic, request);
    Ok(match head.method {
        Method::Produce => {
            let produce = read(from)?;
            let batch = Verified::read_as(payload, verify)?;
            partition(PartitionRequest::Produce(produce, batch))
        }
        Method::OpenMirror => partition(PartitionRequest::OpenMirror(read(from)?)),
        Method::AppendMirrored => {
            let append = read(from)?;
            let batch = VerifiedCopy::read_as(payload, verify)?;
            partition(PartitionRequest::AppendMirrored(append, batch))
        }
        Method::Subscribe => partition(PartitionRequest::Subscribe(SubscribeScoped {
            member: MemberId(0),
            key: None,
            subscribe: read(from)?,
        })),
        Method::SubscribeScoped => partition(PartitionRequest::Subscribe(read(from)?)),
        Method::Unsubscribe => partition(PartitionRequest::Unsubscribe(read(from)?)),
        Method::Fetch => partition(PartitionRequest::Fetch(read(from)?)),
        Method::ReadData => partition(PartitionRequest::ReadData(read(from)?)),
        Method::Settle => Request::Queue(topic, QueueRequest::Settle(read(from)?)),
        Method::ExtendLeases => Request::Queue(topic, QueueRequest::ExtendLeases(read(from)?)),
        Method::OpenRun => steps(StepsRequest::OpenRun(read(from)?)),
        Method::AttendRun => steps(StepsRequest::AttendRun(read(from)?)),
        Method::AdmitStep => steps(StepsRequest::AdmitStep(read(from)?)),
        Method::AwaitStep => steps(StepsRequest::AwaitStep(read(from)?)),
        Method::CloseRun => steps(StepsRequest::CloseRun(read(from)?)),
        Method::JoinReaders => steps(StepsRequest::JoinReaders(read(from)?)),
        Method::AttendReaders => steps(StepsRequest::AttendReaders(read(from)?)),
        Method::NextStep => steps(StepsRequest::NextStep(read(from)?)),
        Method::ReleaseStep => steps(StepsRequest::ReleaseStep(read(from)?)),
        Method::AwaitReaders => steps(StepsRequest::AwaitReaders(read(from)?)),
        Method::LeaveReaders => steps(StepsRequest::LeaveReaders(read(from)?)),
        Method::HoldParts => steps(StepsRequest::HoldParts(read(from)?)),
        Method::Status => Request::Status(DirectoryId(topic.0)),
        Method::Shutdown => Request::Shutdown,
        Method::OfferPairing => Request::OfferPairing(read(from)?),
        Method::MoveTopic => Request::Move(topic, MoveRequest::Begin(read(from)?)),
        Method::ReceiveTopic => Request::Move(topic, MoveRequest::Receive(read(from)?)),
        Method::YieldTopic => Request::Move(topic, MoveRequest::Yield(read(from)?)),
        Method::AdoptLedger => Request::Move(topic, MoveRequest::Adopt(read(from)?)),
        Method::HandOverTopic => Request::Move(topic, MoveRequest::HandOver),
        Method::ListNodes => DescribeRequest::ListNodes(read(from)?).into(),
        Method::SetNode => Coordinator::SetNode(read(from)?).into(),
        Method::CheckAccess => DescribeRequest::CheckAccess(read(from)?).into(),
        Method::CreateTopic => Coordinator::CreateTopic(topic, read(from)?).into(),
        Method::DeleteTopic => Coordinator::DeleteTopic(topic, read(from)?).into(),
        Method::ListTopics => DescribeRequest::ListTopics(topic).into(),
        Method::DescribeTopic => DescribeRequest::DescribeTopic(read(from)?).into(),
        Method::ListGaps => DescribeRequest::ListGaps(read(from)?).into(),
        Method::AddPartitions => Coordinator::AddPartitions(topic, read(from)?).into(),
        Method::AddPlacedPartitions => Coordinator::AddPlacedPartitions(topic, read(from)?).into(),
        Method::AlterTopic => Coordinator::AlterTopic(topic, read(from)?).into(),
        Method::OpenProducer => Coordinator::OpenProducer(topic, read(from)?).into(),
        Method::MoveCursors => Coordinator::MoveCursors(topic, read(from)?).into(),
        Method::MoveMemberCursors => Coordinator::MoveMemberCursors(topic, read(from)?).into(),
        Method::ReadCursors => Coordinator::ReadCursors(topic, read(from)?).into(),
        Method::DeleteConsumer => Coordinator::DeleteConsumer(topic, read(from)?).into(),
        Method::DescribeConsumers => DescribeRequest::DescribeConsumers(topic, read(from)?).into(),
        Method::Join => Coordinator::Join(topic, read(from)?).into(),
        Method::Leave => Coordinator::Leave(topic, read(from)?).into(),
        Method::Release => Coordinator::Release(topic, read(from)?).into(),
    })
}
