//! What sessions leave in the audit trail.

use super::{Session, Sessions, Stage};
use crate::audit::{self, Audited};
use crate::coordinator::served_topic::Topics;
use crate::ctx::Ctx;
use crate::identity::Identity;
use crate::ids::LinkId;
use crate::refusal::Refused;
use crate::request::{CoordinatorRequest, MoveRequest, PartitionRequest, Request};
use wire::{ErrorCode, TopicId};

impl Sessions {
    /// A client is let in.
    pub(super) fn audit_connect(&self, link: LinkId, ctx: &mut Ctx) {
        if let Some(session) = self.links.get(&link)
            && let Some(identity) = session.identity()
        {
            let who = audit::who(identity, &session.peer.address);
            ctx.audit(Audited::Connect, who);
        }
    }

    /// A client that nobody knows yet is not let in.
    pub(super) fn audit_stranger(&self, link: LinkId, error: &Refused, ctx: &mut Ctx) {
        if let Some(session) = self.links.get(&link)
            && matches!(session.stage, Stage::New)
        {
            ctx.options.counters.connections_refused.add(1);
            let from = audit::from(&session.peer.address);
            ctx.audit(Audited::Refuse, audit::with(from, "reason", &error.message));
        }
    }

    /// Something becomes of the connection of a client that was let in.
    pub(super) fn audit_of(&self, link: LinkId, what: Audited, reason: &str, ctx: &mut Ctx) {
        if let Some(session) = self.links.get(&link)
            && let Some(identity) = session.identity()
        {
            let who = audit::who(identity, &session.peer.address);
            let fields = match reason {
                "" => who,
                reason => audit::with(who, "reason", reason),
            };
            ctx.audit(what, fields);
        }
    }
}

/// A request is to be done, or is not allowed.
pub(super) fn request(
    session: &Session,
    identity: &Identity,
    request: &Request,
    (topics, allowed): (&Topics, &Result<(), Refused>),
    ctx: &mut Ctx,
) {
    let what = match allowed {
        Ok(()) if is_act(request) => Audited::Act,
        Ok(()) => return,
        Err(error) if error.code == ErrorCode::NotAuthorized => Audited::Refuse,
        // That there is no such topic is no matter of rights.
        Err(_) => return,
    };
    let mut fields = audit::who(identity, &session.peer.address);
    fields = audit::with(fields, "asked", &format!("{:?}", request.method()));
    if let Some(topic) = topic_of(request, identity, topics) {
        fields = audit::with(fields, "topic", &topic);
    }
    if let Request::Coordinator(CoordinatorRequest::DeleteConsumer(_, consumer)) = request {
        fields = audit::with(fields, "consumer", &consumer.consumer);
    }
    if let Request::Coordinator(CoordinatorRequest::SetNode(set)) = request {
        fields = audit::with(fields, "node", &set.node.to_string());
        fields = audit::with(fields, "state", set.state.name());
    }
    if let Err(error) = allowed {
        ctx.options.counters.requests_denied.add(1);
        fields = audit::with(fields, "reason", &error.message);
    }
    ctx.audit(what, fields);
}

/// Whether it needs the right to manage or to administer, and changes something.
fn is_act(request: &Request) -> bool {
    use CoordinatorRequest as Coordinator;
    match request {
        Request::Shutdown
        | Request::OfferPairing(_)
        | Request::Move(_, MoveRequest::Begin(_) | MoveRequest::HandOver)
        | Request::Partition(_, PartitionRequest::OpenMirror(_)) => true,
        Request::Coordinator(request) => match request {
            Coordinator::CreateTopic(..)
            | Coordinator::DeleteTopic(..)
            | Coordinator::AddPartitions(..)
            | Coordinator::AddPlacedPartitions(..)
            | Coordinator::AlterTopic(..)
            | Coordinator::DeleteConsumer(..)
            | Coordinator::SetNode(_) => true,
            Coordinator::OpenProducer(..)
            | Coordinator::MoveCursors(..)
            | Coordinator::MoveMemberCursors(..)
            | Coordinator::ReadCursors(..)
            | Coordinator::Join(..)
            | Coordinator::Leave(..)
            | Coordinator::Release(..) => false,
        },
        Request::Partition(..)
        | Request::Queue(..)
        | Request::Steps(..)
        | Request::Describe(_)
        | Request::Move(..)
        | Request::Status(_) => false,
    }
}

/// The topic that a request is about, by the name that its client knows.
fn topic_of(request: &Request, identity: &Identity, topics: &Topics) -> Option<String> {
    use CoordinatorRequest as Coordinator;
    let named = |id: TopicId| {
        let topic = topics.of(&identity.namespace, id).ok()?;
        Some(topic.name.clone())
    };
    let name = match request {
        Request::Partition(target, _) => named(target.topic)?,
        Request::Queue(topic, _) | Request::Steps(topic, _) | Request::Move(topic, _) => {
            named(*topic)?
        }
        Request::Coordinator(request) => match request {
            Coordinator::CreateTopic(_, create) => create.name.clone(),
            Coordinator::DeleteTopic(_, topic) => topic.name.clone(),
            Coordinator::AddPartitions(topic, _) | Coordinator::AddPlacedPartitions(topic, _) => {
                named(*topic)?
            }
            Coordinator::AlterTopic(topic, _) => named(*topic)?,
            Coordinator::OpenProducer(topic, _) => named(*topic)?,
            Coordinator::MoveCursors(topic, _) => named(*topic)?,
            Coordinator::MoveMemberCursors(topic, _) => named(*topic)?,
            Coordinator::ReadCursors(topic, _) => named(*topic)?,
            Coordinator::DeleteConsumer(topic, _) => named(*topic)?,
            Coordinator::Join(topic, _) => named(*topic)?,
            Coordinator::Leave(topic, _) => named(*topic)?,
            Coordinator::Release(topic, _) => named(*topic)?,
            Coordinator::SetNode(_) => return None,
        },
        Request::Describe(_)
        | Request::Status(_)
        | Request::Shutdown
        | Request::OfferPairing(_) => {
            return None;
        }
    };
    Some(match identity.namespace.as_str() {
        "" => name,
        project => format!("{project}/{name}"),
    })
}
