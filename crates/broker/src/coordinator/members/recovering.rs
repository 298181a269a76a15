//! What a group or queue waits for after the server was started: members of
//! before, who may still hold what looks free. Members are told of it, so that
//! nobody takes the silence for an end.

use crate::coordinator::members::shared::Presence;
use crate::ids::RequestId;
use crate::ids::SharedId;
use crate::node::Node;
use std::time::Duration;
use wire::MemberId;

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
        let now = self.ctx.now.monotonic;
        let members = awaited.iter().filter_map(|one| shared.members.get(one));
        let left = members.map(|member| match member.presence {
            Presence::Away { until } => until.saturating_sub(now),
            // It comes back now; if that fails, it has its time once more.
            _ => member.session_timeout(),
        });
        let millis = |left: Duration| left.as_millis().clamp(1, u128::from(u32::MAX)) as u32;
        left.max().map_or(0, millis)
    }

    /// What the answer to a member that joins says; a queue's is notified of the end, too.
    pub(super) fn tell_recovering(
        &mut self,
        id: SharedId,
        member: MemberId,
        caller: RequestId,
    ) -> u32 {
        let recovering_ms = self.recovering_ms(id);
        if recovering_ms > 0
            && let Some(queue) = self.queues.get_mut(&id)
        {
            queue.told_recovering.insert(member, caller);
        }
        recovering_ms
    }
}
