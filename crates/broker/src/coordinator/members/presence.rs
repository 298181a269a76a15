//! One member of a group or queue: present, away, or gone. The states are on the page
//! `docs/concept/sharing.md`.

use crate::ctx::Ctx;
use crate::effects::Effect;
use crate::ids::RequestId;
use std::time::Duration;
use wire::ErrorReply;
use wire::message::Join;
use wire::record::MemberRecord;

/// One member.
#[derive(Debug)]
pub(crate) struct Member {
    /// As it is recorded.
    pub record: MemberRecord,
    pub presence: Presence,
    /// What it takes at once. Of one that has not come back since the server
    /// was started, nothing.
    pub prefetch: Prefetch,
}

/// How much of a queue a member takes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Prefetch {
    pub events: u32,
    pub bytes: u64,
    /// It is given something when so much is free.
    pub step_events: u64,
    pub step_bytes: u64,
    /// Whether inline data travels with the batches.
    pub inline_data: bool,
}

/// A member is given something when this part of its prefetch is free: with
/// every settlement one event would make a frame an event.
const ROOM_SHARE: u64 = 8;

impl Prefetch {
    /// What a member asks for when it joins.
    pub fn of(join: &Join) -> Self {
        Self {
            events: join.prefetch_events,
            bytes: join.prefetch_bytes,
            step_events: u64::from(join.prefetch_events) / ROOM_SHARE,
            step_bytes: join.prefetch_bytes / ROOM_SHARE,
            inline_data: join.inline_data,
        }
    }
}

/// Whether a member is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Its record is not durable yet, or what was under way when it came back.
    Joining(RequestId),
    /// Its connection stands, and it was heard of. The caller is the membership.
    Present(RequestId),
    /// Its connection stands, but nothing was heard of it for half of its
    /// session timeout.
    Silent(RequestId),
    /// Its connection is gone.
    Away {
        /// When it is gone.
        until: Duration,
    },
}

impl Presence {
    /// The connection that it has, and its membership's id there.
    pub fn caller(self) -> Option<RequestId> {
        match self {
            Self::Joining(caller) | Self::Present(caller) | Self::Silent(caller) => Some(caller),
            Self::Away { .. } => None,
        }
    }

    /// Ends the membership on its connection, whose client is notified.
    pub fn end(self, error: &ErrorReply, ctx: &mut Ctx) {
        if let Some(caller) = self.caller() {
            let ended = Effect::MembershipEnded(caller, Some(error.clone()));
            ctx.effects.push_back(ended);
        }
    }

    /// The connection has the membership no more; nothing is sent.
    pub fn forget(self, ctx: &mut Ctx) {
        if let Some(caller) = self.caller() {
            ctx.effects.push_back(Effect::MembershipEnded(caller, None));
        }
    }
}

impl Member {
    /// A member that has until then to come back.
    pub fn away(record: MemberRecord, until: Duration) -> Self {
        Self {
            record,
            presence: Presence::Away { until },
            prefetch: Prefetch::default(),
        }
    }

    /// The membership, if the member is there to be given something.
    pub fn present(&self) -> Option<RequestId> {
        match self.presence {
            Presence::Present(caller) => Some(caller),
            _ => None,
        }
    }

    pub fn session_timeout(&self) -> Duration {
        Duration::from_millis(self.record.session_timeout_ms.into())
    }
}
