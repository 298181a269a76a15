//! Topics that another node of the table serves.

use crate::coordinator::table::Table;
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::RequestId;
use crate::options::TableRole;
use crate::refusal::{Refused, refuse};
use crate::request::{CoordinatorRequest, DescribeRequest, Request};
use crate::session::Sessions;
use wire::{DirectoryId, ErrorCode, ErrorReply, NodeId, TopicId};

/// A refusal that says which other node does what was asked for.
pub(crate) fn at_node(
    home: NodeId,
    what: String,
    caller: RequestId,
    sessions: &Sessions,
    ctx: &Ctx,
) -> Refused {
    let session = sessions.get(caller.link);
    let peer = session.map_or("", |session| session.peer.address.as_str());
    ErrorReply {
        leader_hint: ctx.options.nodes.hint(home, ctx.node(), peer),
        ..ErrorReply::retryable(ErrorCode::NotLeader, 0, what)
    }
}

/// Refuses a question for the status of another node.
pub(crate) fn status_is_here(
    of: DirectoryId,
    caller: RequestId,
    sessions: &Sessions,
    ctx: &Ctx,
) -> Result<(), Refused> {
    if of == DirectoryId(0) || of == ctx.options.directory_id {
        return Ok(());
    }
    Err(match ctx.options.nodes.node_of(of) {
        Some(node) => {
            let what = format!("that is node {node}");
            at_node(node, what, caller, sessions, ctx)
        }
        None => refuse(
            ErrorCode::UnknownTopic,
            format!("there is no node with the data directory {of}"),
        ),
    })
}

/// The topic that a request is about, as far as it matters when it is refused because this node
/// does not serve that.
pub(crate) enum About {
    Nothing,
    Topic(TopicId),
    Named(String),
}

impl About {
    /// What a request is about. A node that is alone does not ask.
    #[inline]
    pub fn of(request: &Request, ctx: &Ctx) -> Self {
        match ctx.options.role {
            TableRole::Alone => Self::Nothing,
            TableRole::Leads | TableRole::Follows(_) => Self::of_one(request),
        }
    }

    fn of_one(request: &Request) -> Self {
        use CoordinatorRequest as Coordinator;
        match request {
            Request::Partition(target, _) => Self::Topic(target.topic),
            Request::Queue(topic, _) | Request::Steps(topic, _) | Request::Move(topic, _) => {
                Self::Topic(*topic)
            }
            Request::Describe(request) => match request {
                DescribeRequest::DescribeTopic(topic) | DescribeRequest::ListGaps(topic) => {
                    Self::Named(topic.name.clone())
                }
                DescribeRequest::DescribeConsumers(topic, _) => Self::Topic(*topic),
                DescribeRequest::ListTopics(TopicId(0))
                | DescribeRequest::CheckAccess(_)
                | DescribeRequest::ListNodes(_) => Self::Nothing,
                DescribeRequest::ListTopics(topic) => Self::Topic(*topic),
            },
            Request::Coordinator(request) => match request {
                Coordinator::CreateTopic(TopicId(0), _) | Coordinator::SetNode(_) => Self::Nothing,
                Coordinator::CreateTopic(beside, _) => Self::Topic(*beside),
                Coordinator::DeleteTopic(_, topic) => Self::Named(topic.name.clone()),
                Coordinator::AddPartitions(topic, _)
                | Coordinator::AddPlacedPartitions(topic, _)
                | Coordinator::AlterTopic(topic, _)
                | Coordinator::OpenProducer(topic, _)
                | Coordinator::MoveCursors(topic, _)
                | Coordinator::MoveMemberCursors(topic, _)
                | Coordinator::ReadCursors(topic, _)
                | Coordinator::DeleteConsumer(topic, _)
                | Coordinator::Join(topic, _)
                | Coordinator::Leave(topic, _)
                | Coordinator::Release(topic, _) => Self::Topic(*topic),
            },
            Request::Status(_) | Request::Shutdown | Request::OfferPairing(_) => Self::Nothing,
        }
    }

    /// What a client is refused with: where the topic is, if another node serves it and the client
    /// may know that there is one; else as before.
    pub fn elsewhere(
        &self,
        error: Refused,
        caller: RequestId,
        (sessions, table): (&Sessions, &Table),
        ctx: &Ctx,
    ) -> Refused {
        if error.code != ErrorCode::UnknownTopic {
            return error;
        }
        let Some(identity) = sessions.identity(caller.link) else {
            return error;
        };
        let entry = match self {
            Self::Nothing => None,
            Self::Topic(topic) => table.topic(*topic),
            Self::Named(name) => table.named(&identity.namespace, name),
        };
        let entry = entry.filter(|entry| entry.home() != ctx.node());
        let known = entry.filter(|entry| {
            let record = &entry.record;
            let is_of_client = record.namespace == identity.namespace;
            is_of_client && identity.may_know(&record.name, ctx.now)
                || ctx.planted(Fault::TopicBetrayed)
        });
        match known {
            None => error,
            Some(entry) => {
                let (name, home) = (&entry.record.name, entry.home());
                let what = format!("topic {name:?} is served by node {home}");
                at_node(home, what, caller, sessions, ctx)
            }
        }
    }
}
