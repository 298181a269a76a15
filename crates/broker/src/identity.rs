//! Who a client is, and what it may.

use crate::refusal::{Refused, refuse};
use crate::request::{CoordinatorRequest, PartitionRequest, QueueRequest, Request, StepsRequest};
use wire::{ErrorCode, SessionId};

/// Who a client is, as it has proved to the listener that it came by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// How it has proved that it is to be let in.
    pub proof: Proof,
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
}

/// What a request does with what it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Says what there is.
    Describe,
    /// Appends events.
    Write,
    /// Reads events, and moves the cursors and members of consumers, or settles their events.
    Read,
    /// Makes, changes and deletes topics and consumers.
    Manage,
    /// Is about the server itself.
    Operate,
}

impl Verb {
    pub fn of(request: &Request) -> Self {
        use CoordinatorRequest as Coordinator;
        match request {
            Request::Partition(_, PartitionRequest::Produce(..))
            | Request::Steps(
                _,
                StepsRequest::OpenRun(_)
                | StepsRequest::AttendRun(_)
                | StepsRequest::AdmitStep(_)
                | StepsRequest::AwaitStep(_)
                | StepsRequest::CloseRun(_)
                | StepsRequest::AwaitReaders(_),
            ) => Self::Write,
            Request::Steps(
                _,
                StepsRequest::JoinReaders(_)
                | StepsRequest::AttendReaders(_)
                | StepsRequest::NextStep(_)
                | StepsRequest::ReleaseStep(_),
            ) => Self::Read,
            Request::Partition(
                _,
                PartitionRequest::Subscribe(_)
                | PartitionRequest::Unsubscribe(_)
                | PartitionRequest::Fetch(_)
                | PartitionRequest::ReadData(_),
            )
            | Request::Queue(_, QueueRequest::Settle(_) | QueueRequest::ExtendLeases(_)) => {
                Self::Read
            }
            Request::Describe(_) => Self::Describe,
            Request::Status | Request::Shutdown => Self::Operate,
            Request::Coordinator(request) => match request {
                Coordinator::ReadCursors(..) => Self::Describe,
                Coordinator::OpenProducer(..) => Self::Write,
                Coordinator::MoveCursors(..)
                | Coordinator::MoveMemberCursors(..)
                | Coordinator::Join(..)
                | Coordinator::Leave(..)
                | Coordinator::Release(..) => Self::Read,
                Coordinator::CreateTopic(_)
                | Coordinator::DeleteTopic(_)
                | Coordinator::AddPartitions(..)
                | Coordinator::AlterTopic(..)
                | Coordinator::DeleteConsumer(..) => Self::Manage,
            },
        }
    }
}

impl Identity {
    fn may(&self, verb: Verb) -> bool {
        match (self.proof, verb) {
            // A client that was let in may do everything: there are no grants yet.
            (
                Proof::InProcess | Proof::Owner | Proof::Token,
                Verb::Describe | Verb::Write | Verb::Read | Verb::Manage | Verb::Operate,
            ) => true,
        }
    }
}

/// Whether a client may have this done: the one place that says so, asked for every request of
/// every protocol before it is routed. What a request finds when it is done (a member that has
/// left, an epoch that has ended) is checked by the object that does it.
pub(crate) fn authorize(identity: &Identity, request: &Request) -> Result<(), Refused> {
    let verb = Verb::of(request);
    match identity.may(verb) {
        true => Ok(()),
        false => Err(refuse(
            ErrorCode::NotAuthorized,
            format!("{} may not {verb:?} here", identity.client_name),
        )),
    }
}
