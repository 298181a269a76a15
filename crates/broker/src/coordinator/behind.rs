//! Requests that wait until this node has all that was decided before they came: its copy of the table is behind the one
//! that leads, and what a client has made by another node a moment ago is there for it by any.
//!
//! ```text
//!   a list, a name that is not known, or one that is taken ──► waiting ──► (a proposal of nothing is decided, and recorded here) ──► asked again
//! ```
//!
//! A proposal of nothing is decided behind all that was decided before it was submitted. One is under way at a time; what
//! comes meanwhile waits for the next.

use super::commands::{Commands, Decided};
use super::controller::ControlError;
use crate::ctx::Ctx;
use crate::effects::Effect;
use crate::ids::RequestId;
use crate::refusal::Refused;
use crate::request::{CoordinatorRequest, DescribeRequest, Request};
use wire::{ErrorCode, ErrorReply, TopicId};

/// After so long a client asks again whether there is a topic, milliseconds.
const ASK_AGAIN_MS: u32 = 500;

/// See the module.
#[derive(Default)]
pub(crate) struct Behind {
    waiting: Vec<Waiting>,
    /// How many of them the proposal under way is for, if one is: the first ones.
    asking: Option<usize>,
}

struct Waiting {
    caller: RequestId,
    request: Request,
    /// What it is refused with as far as this node knows. A list is answered.
    refused: Option<Refused>,
}

impl Behind {
    /// Whether a request is to wait before it is looked at: a list, or what goes by one.
    pub fn is_list(request: &Request) -> bool {
        matches!(
            request,
            Request::Describe(
                DescribeRequest::ListTopics(TopicId(0)) | DescribeRequest::ListNodes(_)
            ) | Request::Coordinator(CoordinatorRequest::SetNode(_))
        )
    }

    /// The request once more, if it is about a topic by its name, or may be about a node that has joined.
    pub fn copy_of(request: &Request) -> Option<Request> {
        Some(match request {
            Request::Describe(DescribeRequest::DescribeTopic(name)) => {
                DescribeRequest::DescribeTopic(name.clone()).into()
            }
            Request::Describe(DescribeRequest::ListGaps(name)) => {
                DescribeRequest::ListGaps(name.clone()).into()
            }
            Request::Coordinator(CoordinatorRequest::DeleteTopic(id, name)) => {
                CoordinatorRequest::DeleteTopic(*id, name.clone()).into()
            }
            Request::Coordinator(CoordinatorRequest::CreateTopic(beside, create)) => {
                CoordinatorRequest::CreateTopic(*beside, create.clone()).into()
            }
            Request::Coordinator(CoordinatorRequest::AlterTopic(topic, alter)) => {
                CoordinatorRequest::AlterTopic(*topic, alter.clone()).into()
            }
            Request::Coordinator(CoordinatorRequest::AddPlacedPartitions(topic, add)) => {
                CoordinatorRequest::AddPlacedPartitions(*topic, add.clone()).into()
            }
            _ => return None,
        })
    }

    /// Whether a refusal may be wrong because this node is behind: a topic that it does not know may have been made, and one
    /// that it knows deleted. A placement may be that of a node that has joined.
    pub fn may_be_wrong(refused: &Refused) -> bool {
        matches!(
            refused.code,
            ErrorCode::UnknownTopic | ErrorCode::TopicExists | ErrorCode::InvalidTopic
        )
    }

    /// A request is asked again when this node has all that was decided before now; it is refused with this as far as is
    /// known here.
    pub fn wait(
        &mut self,
        caller: RequestId,
        request: Request,
        refused: Option<Refused>,
        commands: &mut Commands,
        ctx: &mut Ctx,
    ) {
        self.waiting.push(Waiting {
            caller,
            request,
            refused,
        });
        self.go_on(commands, ctx);
    }

    /// Nobody waits for its answer any more.
    pub fn forget(&mut self, caller: RequestId) {
        if let Some(place) = self.waiting.iter().position(|it| it.caller == caller) {
            self.waiting.remove(place);
            if let Some(asking) = self.asking.as_mut().filter(|asking| place < **asking) {
                *asking -= 1;
            }
        }
    }

    fn go_on(&mut self, commands: &mut Commands, ctx: &mut Ctx) {
        if self.asking.is_none() && !self.waiting.is_empty() {
            self.asking = Some(self.waiting.len());
            commands.catch_up(Decided::CaughtUp, ctx);
        }
    }

    /// The proposal of nothing was decided, or could not be.
    pub fn caught_up(
        &mut self,
        result: &Result<(), ControlError>,
        commands: &mut Commands,
        ctx: &mut Ctx,
    ) {
        let count = self.asking.take().unwrap_or(0);
        for Waiting {
            caller,
            request,
            refused,
        } in self.waiting.drain(..count)
        {
            match (result, refused) {
                // That goes on without a majority: programs make their topics, if those are not there.
                (Err(_), Some(refused)) if refused.code == ErrorCode::TopicExists => {
                    ctx.effects.push_back(Effect::Refuse(caller, refused));
                }
                (Err(error), Some(refused)) => {
                    let message = format!(
                        "{}, as far as this server knows; the others cannot be asked: {error}",
                        refused.message
                    );
                    let error = ErrorReply::retryable(ErrorCode::NotLeader, ASK_AGAIN_MS, message);
                    ctx.effects.push_back(Effect::Refuse(caller, error));
                }
                _ => ctx
                    .effects
                    .push_back(Effect::Ask(caller, Box::new(request))),
            }
        }
        self.go_on(commands, ctx);
    }
}
