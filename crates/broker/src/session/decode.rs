//! Requests of Thalweg's own protocol: what a frame's head and payload ask for.

use crate::refusal::{Refused, malformed, refuse};
use crate::request::{CoordinatorRequest, PartitionRequest, QueueRequest, Request, Target};
use memory::Buffer;
use wire::codec::Reader;
use wire::message::*;
use wire::{Codec, DecodeError, ErrorCode, MemberId};

/// What a request's head begins with. `from` goes on behind it.
pub(crate) fn request_head(from: &mut Reader<'_>) -> Result<RequestHead, HeadError> {
    let code = from.clone().u16().map_err(HeadError::Malformed)?;
    if !Method::ALL.iter().any(|method| *method as u16 == code) {
        let error = format!("method {code} is not known");
        return Err(HeadError::Unknown(refuse(ErrorCode::Unsupported, error)));
    }
    RequestHead::decode(from).map_err(HeadError::Malformed)
}

/// Why a request's head says nothing.
pub(crate) enum HeadError {
    /// Its connection ends.
    Malformed(DecodeError),
    /// A later version asks for what this one does not know: it is refused.
    Unknown(Refused),
}

/// What is asked for. An error of the code `Malformed` ends the connection.
pub(crate) fn request(
    head: &RequestHead,
    from: &mut Reader<'_>,
    payload: Buffer,
) -> Result<Request, Refused> {
    body(head, from, payload).map_err(malformed)
}

fn body(
    head: &RequestHead,
    from: &mut Reader<'_>,
    payload: Buffer,
) -> Result<Request, DecodeError> {
    use CoordinatorRequest as Coordinator;
    let topic = head.topic;
    let target = Target {
        topic,
        leader_epoch: head.leader_epoch,
    };
    let partition = |request| Request::Partition(target, request);
    Ok(match head.method {
        Method::Produce => partition(PartitionRequest::Produce(Codec::decode(from)?, payload)),
        Method::Subscribe => partition(PartitionRequest::Subscribe(SubscribeScoped {
            member: MemberId(0),
            key: None,
            subscribe: Codec::decode(from)?,
        })),
        Method::SubscribeScoped => partition(PartitionRequest::Subscribe(Codec::decode(from)?)),
        Method::Unsubscribe => partition(PartitionRequest::Unsubscribe(Codec::decode(from)?)),
        Method::Fetch => partition(PartitionRequest::Fetch(Codec::decode(from)?)),
        Method::ReadData => partition(PartitionRequest::ReadData(Codec::decode(from)?)),
        Method::Settle => Request::Queue(topic, QueueRequest::Settle(Codec::decode(from)?)),
        Method::ExtendLeases => {
            Request::Queue(topic, QueueRequest::ExtendLeases(Codec::decode(from)?))
        }
        Method::Status => Request::Status,
        Method::Shutdown => Request::Shutdown,
        Method::CreateTopic => Coordinator::CreateTopic(Codec::decode(from)?).into(),
        Method::DeleteTopic => Coordinator::DeleteTopic(Codec::decode(from)?).into(),
        Method::ListTopics => Coordinator::ListTopics.into(),
        Method::DescribeTopic => Coordinator::DescribeTopic(Codec::decode(from)?).into(),
        Method::ListGaps => Coordinator::ListGaps(Codec::decode(from)?).into(),
        Method::AddPartitions => Coordinator::AddPartitions(topic, Codec::decode(from)?).into(),
        Method::AlterTopic => Coordinator::AlterTopic(topic, Codec::decode(from)?).into(),
        Method::OpenProducer => Coordinator::OpenProducer(topic, Codec::decode(from)?).into(),
        Method::MoveCursors => Coordinator::MoveCursors(topic, Codec::decode(from)?).into(),
        Method::MoveMemberCursors => {
            Coordinator::MoveMemberCursors(topic, Codec::decode(from)?).into()
        }
        Method::ReadCursors => Coordinator::ReadCursors(topic, Codec::decode(from)?).into(),
        Method::DeleteConsumer => Coordinator::DeleteConsumer(topic, Codec::decode(from)?).into(),
        Method::DescribeConsumers => {
            Coordinator::DescribeConsumers(topic, Codec::decode(from)?).into()
        }
        Method::Join => Coordinator::Join(topic, Codec::decode(from)?).into(),
        Method::Leave => Coordinator::Leave(topic, Codec::decode(from)?).into(),
        Method::Release => Coordinator::Release(topic, Codec::decode(from)?).into(),
    })
}
