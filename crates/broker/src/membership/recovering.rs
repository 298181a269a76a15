//! What a group or queue waits for after the server was started: members of
//! before, who may still hold what looks free. Members are told of it, so that
//! nobody takes the silence for an end.

use super::{Presence, SharedId};
use crate::node::{Asker, Node};
use net::{Lane, Message};
use std::time::Duration;
use wire::codec::Appended;
use wire::frame::FrameKind;
use wire::message::Leased;
use wire::{Codec, MemberId};

impl Node {
    /// How long members of before the start are awaited at most; 0 if none are.
    pub(crate) fn recovering_ms(&self, id: SharedId) -> u32 {
        let Some(shared) = self.shared.get(id) else {
            return 0;
        };
        let awaited = match (shared.group(), self.queues.get(&id)) {
            (Some(group), _) => group.awaited(),
            (None, Some(queue)) => &queue.awaited,
            (None, None) => return 0,
        };
        let now = self.now.monotonic;
        let members = awaited.iter().filter_map(|one| shared.members.get(one));
        let left = members.map(|member| match member.presence {
            Presence::Away { until } => until.saturating_sub(now),
            // It comes back now; if that fails, it has its time once more.
            _ => member.session_timeout(),
        });
        let millis = |left: Duration| left.as_millis().clamp(1, u128::from(u32::MAX)) as u32;
        left.max().map_or(0, millis)
    }

    /// What a member that joins is told; a queue's is told of the end, too.
    pub(super) fn tell_recovering(&mut self, id: SharedId, member: MemberId, asker: Asker) -> u32 {
        let recovering_ms = self.recovering_ms(id);
        if recovering_ms > 0
            && let Some(queue) = self.queues.get_mut(&id)
        {
            queue.told_recovering.insert(member, asker);
        }
        recovering_ms
    }

    /// A queue gives out events again: members that were told otherwise hear it.
    pub(crate) fn tell_recovered(&mut self, id: SharedId) {
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        if !queue.awaited.is_empty() || queue.told_recovering.is_empty() {
            return;
        }
        let told = std::mem::take(&mut queue.told_recovering);
        let leased = Leased {
            batch_bytes: Vec::new(),
            leases: Vec::new(),
            lease_ms: u32::try_from(queue.options.lease_ms).unwrap_or(u32::MAX),
            gaps: Appended::default(),
        };
        let head = leased.to_bytes();
        for (member, asker) in told {
            let state = self.shared.member(id, member);
            // One that has joined anew since was told with its answer.
            if state.is_some_and(|state| state.presence.asker() == Some(asker)) {
                let message = Message {
                    lane: Lane::Bulk,
                    ..Message::control(FrameKind::Leased, asker.id, head.clone())
                };
                self.send(asker.link, message);
            }
        }
    }
}
