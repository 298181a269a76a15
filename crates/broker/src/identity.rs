//! Who a client is, and what it may.

use crate::coordinator::served_topic::Topics;
use crate::ids::Now;
use crate::refusal::{Refused, refuse};
use crate::request::{
    CoordinatorRequest, DescribeRequest, PartitionRequest, QueueRequest, Request, StepsRequest,
};
use access::{Decision, Name, UnixTime, Verb, decide};
use wire::message::{AccessChecked, CheckAccess};
use wire::{ErrorCode, SessionId, TopicId};

/// Who a client is, as it has proved to the listener that it came by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// How it has proved that it is to be let in.
    pub proof: Proof,
    /// Who that makes it, within which limits.
    pub access: access::Identity,
    /// The namespace of all names that it uses, and the only one whose topics there are to it.
    pub namespace: String,
    /// A name for people.
    pub client_name: String,
    /// The same on all connections of a client; 0 is none.
    pub session: SessionId,
}

/// What a client has proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It is this very process.
    InProcess,
    /// It is a process of the server's user, the kernel says.
    Owner,
    /// It knows the server's token.
    Token,
    /// It has the token of a project.
    AccessToken,
    /// It has the key of a certificate.
    Certificate,
    /// It has what another issuer has made.
    Issued,
}

/// What a request needs to be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need<'a> {
    /// Nothing: what the answer has depends on who asks.
    Nothing,
    /// One of the verbs of a topic: who may do something with it may know what it is.
    Any(Name<'a>),
    /// That verb.
    One(Verb, Name<'a>),
}

/// Verbs of which one lets a client know of a topic.
const KNOWING: [Verb; 3] = [Verb::Read, Verb::Write, Verb::Manage];

impl Identity {
    /// When it is for the credential: a connection goes on for a while behind its end, and is
    /// ended by its session.
    fn time(&self, now: Now) -> UnixTime {
        let expires = self.access.expires();
        let last = expires.map_or(u64::MAX, |expires| expires.0.saturating_sub(1));
        UnixTime(now.unix_ns.min(last))
    }

    fn decide(&self, verb: Verb, name: Name<'_>, now: Now) -> Result<(), Refused> {
        match decide(&self.access, verb, name, self.time(now)) {
            Decision::Allow => Ok(()),
            Decision::Deny(denied) => Err(refuse(ErrorCode::NotAuthorized, denied.to_string())),
        }
    }

    fn decide_any(&self, name: Name<'_>, now: Now) -> Result<(), Refused> {
        let [first, others @ ..] = KNOWING;
        let refused = self.decide(first, name, now);
        match others
            .iter()
            .any(|verb| self.decide(*verb, name, now).is_ok())
        {
            true => Ok(()),
            false => refused,
        }
    }

    fn name<'a>(&'a self, topic: &'a str) -> Name<'a> {
        Name::Topic {
            project: &self.namespace,
            // A partition of a spread topic is for those who may use that.
            topic: topic::spread_name(topic),
        }
    }

    /// The project that it is held to the quota of: the owner is to none.
    pub(crate) fn project(&self) -> Option<&str> {
        match &self.access.subject {
            access::Subject::Member(project) => Some(project),
            access::Subject::Owner => None,
        }
    }

    /// Whether it may know that there is a topic of this name in its namespace.
    pub(crate) fn may_know(&self, topic: &str, now: Now) -> bool {
        self.access.is_owner() || self.decide_any(self.name(topic), now).is_ok()
    }

    /// Whether it might do something, and why not.
    pub(crate) fn check_access(
        &self,
        check: &CheckAccess,
        now: Now,
    ) -> Result<AccessChecked, Refused> {
        let verb = check.verb.parse::<Verb>();
        let verb = verb.map_err(|why| refuse(ErrorCode::Unsupported, why))?;
        let name = match check.topic.as_str() {
            "" => Name::Server,
            full if full.contains('/') => Name::topic(full),
            topic => self.name(topic),
        };
        Ok(
            match decide(&self.access, verb, name, UnixTime(now.unix_ns)) {
                Decision::Allow => AccessChecked {
                    allowed: true,
                    reason: format!("{} may {verb} {name}", self.access),
                },
                Decision::Deny(denied) => AccessChecked {
                    allowed: false,
                    reason: denied.to_string(),
                },
            },
        )
    }

    /// A topic of the client's namespace; any other one is unknown to it.
    fn topic<'a>(&'a self, topics: &'a Topics, id: TopicId) -> Result<Name<'a>, Refused> {
        let topic = topics.of(&self.namespace, id)?;
        Ok(self.name(&topic.name))
    }

    /// What a request needs.
    ///
    /// # Errors
    /// If it is about a topic that there is not, for this client.
    fn need<'a>(&'a self, request: &'a Request, topics: &'a Topics) -> Result<Need<'a>, Refused> {
        use CoordinatorRequest as Coordinator;
        let of = |verb, id| Ok(Need::One(verb, self.topic(topics, id)?));
        match request {
            Request::Partition(target, request) => match request {
                PartitionRequest::Produce(..) | PartitionRequest::AppendMirrored(..) => {
                    of(Verb::Write, target.topic)
                }
                // Who opens it is its only writer, and says what has been lost.
                PartitionRequest::OpenMirror(_) => of(Verb::Manage, target.topic),
                PartitionRequest::Subscribe(_)
                | PartitionRequest::Unsubscribe(_)
                | PartitionRequest::Fetch(_)
                | PartitionRequest::ReadData(_) => of(Verb::Read, target.topic),
            },
            Request::Queue(topic, QueueRequest::Settle(_) | QueueRequest::ExtendLeases(_)) => {
                of(Verb::Read, *topic)
            }
            Request::Steps(topic, request) => match request {
                StepsRequest::OpenRun(_)
                | StepsRequest::AttendRun(_)
                | StepsRequest::AdmitStep(_)
                | StepsRequest::AwaitStep(_)
                | StepsRequest::CloseRun(_)
                | StepsRequest::HoldParts(_)
                | StepsRequest::AwaitReaders(_) => of(Verb::Write, *topic),
                StepsRequest::JoinReaders(_)
                | StepsRequest::AttendReaders(_)
                | StepsRequest::NextStep(_)
                | StepsRequest::ReleaseStep(_)
                | StepsRequest::LeaveReaders(_) => of(Verb::Read, *topic),
            },
            Request::Describe(request) => Ok(match request {
                DescribeRequest::ListTopics(_) | DescribeRequest::CheckAccess(_) => Need::Nothing,
                DescribeRequest::ListNodes(_) => Need::One(Verb::Admin, Name::Server),
                DescribeRequest::DescribeTopic(topic) | DescribeRequest::ListGaps(topic) => {
                    Need::Any(self.name(&topic.name))
                }
                DescribeRequest::DescribeConsumers(topic, _) => {
                    Need::Any(self.topic(topics, *topic)?)
                }
            }),
            Request::Status(_)
            | Request::Shutdown
            | Request::OfferPairing(_)
            | Request::Move(..) => Ok(Need::One(Verb::Admin, Name::Server)),
            Request::Coordinator(request) => match request {
                Coordinator::CreateTopic(_, create) => {
                    Ok(Need::One(Verb::Manage, self.name(&create.name)))
                }
                Coordinator::DeleteTopic(_, topic) => {
                    Ok(Need::One(Verb::Manage, self.name(&topic.name)))
                }
                Coordinator::AddPartitions(topic, _)
                | Coordinator::AddPlacedPartitions(topic, _)
                | Coordinator::AlterTopic(topic, _)
                | Coordinator::DeleteConsumer(topic, _) => of(Verb::Manage, *topic),
                Coordinator::OpenProducer(topic, _) => of(Verb::Write, *topic),
                Coordinator::MoveCursors(topic, _)
                | Coordinator::MoveMemberCursors(topic, _)
                | Coordinator::Join(topic, _)
                | Coordinator::Leave(topic, _)
                | Coordinator::Release(topic, _) => of(Verb::Read, *topic),
                Coordinator::ReadCursors(topic, _) => Ok(Need::Any(self.topic(topics, *topic)?)),
                Coordinator::SetNode(_) => Ok(Need::One(Verb::Admin, Name::Server)),
            },
        }
    }
}

/// Whether a client may have this done: the one place that says so, asked for every request of
/// every protocol before it is routed. What a request finds when it is done (a member that has
/// left, an epoch that has ended) is checked by the object that does it.
pub(crate) fn authorize(
    identity: &Identity,
    request: &Request,
    topics: &Topics,
    now: Now,
) -> Result<(), Refused> {
    // The owner has every grant, and no limit: what that comes to is known, and events pass here.
    if identity.access.is_owner() {
        return Ok(());
    }
    match identity.need(request, topics)? {
        Need::Nothing => Ok(()),
        Need::Any(name) => identity.decide_any(name, now),
        Need::One(verb, name) => identity.decide(verb, name, now),
    }
}
