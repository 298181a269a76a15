//! Partitions are granted, revoked and released.

use super::{Assignment, AssignmentState, balance};
use crate::coordinator::commands::Decided;
use crate::coordinator::controller::ControlError;
use crate::coordinator::members::shared::Presence;
use crate::faults::Fault;
use crate::ids::{LinkId, RequestId, SharedId, StorageId};
use crate::node::Node;
use crate::refusal::{Refused, refuse};
use net::Message;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::codec::Appended;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::{ConsumerKind, Record};
use wire::{Codec, ErrorCode, ErrorReply, MemberId, PartitionIndex, TopicId};

const NOBODY: MemberId = MemberId(0);

impl Node {
    pub(crate) fn release(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        release: Release,
    ) -> Result<(), Refused> {
        self.drain.refuse_closing()?;
        let id = self.shared_named(caller, topic, &release.consumer, ConsumerKind::Group)?;
        self.shared.check_member(id, release.member)?;
        let mut records = Vec::new();
        for partition in &release.partitions {
            // One that it does not own is released already: it asks again.
            let owns = self.shared.group(id).is_some_and(|group| {
                let assignment = group.owned.get(partition);
                assignment.is_some_and(|assignment| assignment.owner == release.member)
            });
            if owns {
                self.take_away(id, *partition, "the partition was released", &mut records);
            }
        }
        self.submit(records, Decided::SharedAnswer(caller, id));
        self.balance_group(id);
        self.arm_shared(id);
        Ok(())
    }

    /// A partition is free; who owned it reads it no more.
    fn take_away(
        &mut self,
        id: SharedId,
        partition: PartitionIndex,
        why: &str,
        records: &mut Vec<Record>,
    ) {
        let Some(group) = self.shared.group_mut(id) else {
            return;
        };
        let Some(assignment) = group.owned.remove(&partition) else {
            return;
        };
        self.shared
            .record_owners(id, vec![partition], NOBODY, records);
        let member = self.shared.member(id, assignment.owner);
        if let Some(link) = member
            .and_then(|member| member.presence.caller())
            .map(|a| a.link)
        {
            let error = refuse(ErrorCode::MemberFenced, why);
            self.end_scoped(link, (id, assignment.owner), Some(partition), &error);
        }
    }

    /// Ends what a member reads on a connection: all, or one partition.
    pub(crate) fn end_scoped(
        &mut self,
        link: LinkId,
        member: (SharedId, MemberId),
        partition: Option<PartitionIndex>,
        error: &ErrorReply,
    ) {
        let Some(session) = self.sessions.get(link) else {
            return;
        };
        let is_ended = |caller: RequestId, storage: StorageId| {
            let open = self.partitions.get(&storage)?;
            let subscription = open.subscriptions.get(caller)?;
            let wanted = partition.is_none_or(|partition| open.store.key.partition == partition);
            (wanted && subscription.scope.member == Some(member)).then_some((caller, storage))
        };
        let subscriptions = session.subscriptions.iter();
        let ended: Vec<_> = subscriptions
            .filter_map(|(id, storage)| is_ended(RequestId { link, id: *id }, *storage))
            .collect();
        for (caller, storage) in ended {
            self.at(storage, |partition, ctx| {
                partition.subscriptions.end(caller, error.clone(), ctx);
            });
        }
    }

    /// A member is gone: what it owned is free.
    pub(crate) fn disown(&mut self, id: SharedId, member: MemberId, records: &mut Vec<Record>) {
        if let Some(group) = self.shared.group_mut(id) {
            let freed = group.disown(member);
            self.shared.record_owners(id, freed, NOBODY, records);
        }
    }

    /// What the first owned is granted to the second, by the grant of this number.
    pub(crate) fn inherit(
        &mut self,
        id: SharedId,
        (old, new): (MemberId, MemberId),
        grant: u64,
        records: &mut Vec<Record>,
    ) {
        if let Some(group) = self.shared.group_mut(id) {
            let inherited = group.inherit(old, new, grant);
            self.shared.record_owners(id, inherited, new, records);
        }
    }

    /// A member is there: it is told what it owns, whether anything is new or not.
    pub(crate) fn group_member_present(&mut self, id: SharedId, member: MemberId) {
        if let Some(group) = self.shared.group_mut(id) {
            group.told.remove(&member);
            group.awaited.remove(&member);
        }
        self.balance_group(id);
    }

    /// Shares out anew: free partitions are granted, those that are to be
    /// elsewhere are revoked, those that were not released in time are lost.
    pub(crate) fn balance_group(&mut self, id: SharedId) {
        if self.drain.refuse_closing().is_err() {
            return;
        }
        let mut records = self.lose_overdue(id);
        let grant = self.ctx.next_id();
        let twice = self.ctx.planted(Fault::GrantTwice);
        let now = self.ctx.now.monotonic;
        let Some(shared) = self.shared.get_mut(id) else {
            return;
        };
        let topic = self.topics.get(shared.record.topic);
        let partition_count = topic.map_or(0, |topic| topic.partitions.len() as u32);
        let members: BTreeMap<MemberId, bool> = shared
            .members
            .iter()
            .map(|(member, state)| (*member, state.present().is_some()))
            .collect();
        let Some(group) = shared.group_mut() else {
            return;
        };
        // What is being revoked goes to whoever needs it when it is free.
        let owners = group.owned.iter().filter(|(_, assignment)| {
            !matches!(assignment.state, AssignmentState::Revoking { .. })
        });
        let owners = owners
            .map(|(partition, assignment)| (*partition, assignment.owner))
            .collect();
        let target = balance(&members, partition_count, &owners);
        let until = now + Duration::from_millis(group.options.revoke_timeout_ms);
        let mut granted = Vec::new();
        for (partition, member) in target {
            match group.owned.get_mut(&partition) {
                Some(assignment)
                    if assignment.state == AssignmentState::Granted
                        && assignment.owner != member
                        && !twice =>
                {
                    assignment.state = AssignmentState::Revoking { until };
                }
                Some(assignment) if assignment.owner == member || !twice => {}
                _ => {
                    let assignment = Assignment {
                        owner: member,
                        state: AssignmentState::Granting(grant),
                    };
                    group.owned.insert(partition, assignment);
                    granted.push((partition, member));
                }
            }
        }
        let is_granted = !granted.is_empty();
        for (partition, member) in granted {
            self.shared
                .record_owners(id, vec![partition], member, &mut records);
        }
        if is_granted {
            self.submit(records, Decided::Granted(id, grant));
        } else {
            self.submit_shared(id, records);
        }
        self.tell_assigned(id);
        self.arm_shared(id);
    }

    /// Takes away what was not released in time.
    fn lose_overdue(&mut self, id: SharedId) -> Vec<Record> {
        let now = self.ctx.now.monotonic;
        let Some(group) = self.shared.group(id) else {
            return Vec::new();
        };
        let overdue = |assignment: &Assignment| matches!(assignment.state, AssignmentState::Revoking { until } if until <= now);
        let timeout = group.options.revoke_timeout_ms;
        let owned = group.owned.iter();
        let lost: Vec<PartitionIndex> = owned
            .filter(|(_, assignment)| overdue(assignment))
            .map(|(partition, _)| *partition)
            .collect();
        let mut records = Vec::new();
        let why =
            format!("the partition was not released within the revoke timeout ({timeout} ms)");
        for partition in lost {
            self.take_away(id, partition, &why, &mut records);
        }
        records
    }

    /// A grant is durable, or was refused.
    pub(crate) fn granted(&mut self, id: SharedId, grant: u64, result: Result<(), ControlError>) {
        if result.is_err() {
            self.shared_changed(id, result);
            return;
        }
        if let Some(group) = self.shared.group_mut(id) {
            group.grant_is_durable(grant);
        }
        // Who joined meanwhile may be meant to have some of it.
        self.balance_group(id);
    }

    /// Tells each member whose connection stands what it owns, if that has changed.
    pub(crate) fn tell_assigned(&mut self, id: SharedId) {
        let twice = self.ctx.planted(Fault::GrantTwice);
        let recovering_ms = self.recovering_ms(id);
        let Some(shared) = self.shared.get_mut(id) else {
            return;
        };
        let members: Vec<(MemberId, RequestId)> = shared
            .members
            .iter()
            .filter_map(|(member, state)| match state.presence {
                Presence::Present(caller) | Presence::Silent(caller) => Some((*member, caller)),
                Presence::Joining(_) | Presence::Away { .. } => None,
            })
            .collect();
        let Some(group) = shared.group_mut() else {
            return;
        };
        let mut all = group.assigned();
        let mut messages = Vec::new();
        for (member, caller) in members {
            let mut assigned = all.remove(&member).unwrap_or_else(super::nothing);
            // That the time passes is no news.
            assigned.recovering_ms = Appended(recovering_ms.min(1));
            let count = |told: &Assigned| told.partitions.len();
            if twice && group.told.get(&member).map_or(0, count) > count(&assigned) {
                continue;
            }
            if group.told.get(&member) != Some(&assigned) {
                let now = Assigned {
                    recovering_ms: Appended(recovering_ms),
                    ..assigned.clone()
                };
                let message = Message::control(FrameKind::Assigned, caller.id, now.to_bytes());
                group.told.insert(member, assigned);
                messages.push((caller.link, message));
            }
        }
        for (link, message) in messages {
            self.send(link, message);
        }
    }
}
