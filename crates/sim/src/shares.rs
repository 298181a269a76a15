//! Who owns which partition of a group, and where the group stands, as
//! whoever listens to the server can know.

use crate::trace::Violation;
use std::collections::BTreeMap;
use wire::record::Position;
use wire::{Incarnation, MemberId, Offset, PartitionIndex};

/// Where a group begins that nobody has acknowledged for.
const BEGINNING: Position = Position {
    incarnation: Incarnation(1),
    offset: Offset(0),
};

/// One partition of one group.
#[derive(Debug, Clone, Default)]
struct Share {
    /// Who was told last that it is his.
    owner: Option<MemberId>,
    /// When he was told to finish.
    revoked_at: Option<u64>,
    /// He may have lost it, or not.
    is_loose: bool,
    /// An acknowledgement of this position was confirmed.
    low: Option<Position>,
    /// The largest that was asked for.
    high: Option<Position>,
    /// Everything before was given to a member that owned the partition.
    handled: u64,
}

/// The groups' shares.
#[derive(Debug, Default)]
pub struct Shares {
    shares: BTreeMap<(String, PartitionIndex), Share>,
    revoke_ns: u64,
    /// Partitions that changed hands.
    pub moved_count: u64,
    /// Acknowledgements that were refused.
    pub refused_count: u64,
}

/// Whether an acknowledgement may count, by partition.
pub type Allowed = BTreeMap<PartitionIndex, bool>;

impl Shares {
    pub fn new(revoke_ns: u64) -> Self {
        Self {
            revoke_ns,
            ..Self::default()
        }
    }

    fn share(&mut self, group: &str, partition: PartitionIndex) -> &mut Share {
        self.shares
            .entry((group.to_owned(), partition))
            .or_default()
    }

    /// A member is told what it owns, and what of that it is to finish.
    pub fn assigned(
        &mut self,
        group: &str,
        member: MemberId,
        told: (&[PartitionIndex], &[PartitionIndex]),
        now: u64,
        is_gone: impl Fn(MemberId) -> bool,
    ) -> Result<(), Violation> {
        let (owned, revoking) = told;
        let revoke_ns = self.revoke_ns;
        for ((name, partition), share) in &mut self.shares {
            if name == group && share.owner == Some(member) && !owned.contains(partition) {
                share.owner = None;
                share.revoked_at = None;
            }
        }
        for partition in owned {
            let share = self.share(group, *partition);
            match share.owner {
                Some(owner) if owner == member => {}
                Some(owner) => {
                    let is_late = share.revoked_at.is_some_and(|at| now >= at + revoke_ns);
                    if !is_late && !share.is_loose && !is_gone(owner) {
                        return Violation::because(format!(
                            "{group} grants partition {partition} to {member}, and {owner} owns it"
                        ));
                    }
                    share.revoked_at = None;
                }
                None => share.revoked_at = None,
            }
            let is_new = share.owner != Some(member);
            share.owner = Some(member);
            share.is_loose = false;
            if revoking.contains(partition) {
                share.revoked_at.get_or_insert(now);
            } else {
                share.revoked_at = None;
            }
            self.moved_count += u64::from(is_new);
        }
        Ok(())
    }

    /// A member gives partitions back.
    pub fn released(&mut self, group: &str, member: MemberId, partitions: &[PartitionIndex]) {
        for partition in partitions {
            let share = self.share(group, *partition);
            if share.owner == Some(member) {
                // Whether it counts is told by who is told next.
                share.is_loose = true;
            }
        }
    }

    /// A member may own nothing any more.
    pub fn loosen(&mut self, group: &str, member: MemberId) {
        for ((name, _), share) in &mut self.shares {
            if name == group && share.owner == Some(member) {
                share.is_loose = true;
            }
        }
    }

    /// An acknowledgement has arrived: in which partitions it may count.
    pub fn acknowledges(
        &mut self,
        group: &str,
        member: MemberId,
        positions: &[(PartitionIndex, Position)],
    ) -> Allowed {
        let mut allowed = Allowed::new();
        for (partition, position) in positions {
            let share = self.share(group, *partition);
            allowed.insert(*partition, share.owner == Some(member));
            share.high = share.high.max(Some(*position));
        }
        allowed
    }

    /// An acknowledgement was accepted, durably.
    pub fn acknowledged(
        &mut self,
        group: &str,
        member: MemberId,
        positions: &[(PartitionIndex, Position)],
        allowed: &Allowed,
    ) -> Result<(), Violation> {
        for (partition, position) in positions {
            if allowed.get(partition) != Some(&true) {
                return Violation::because(format!(
                    "{group} accepts an acknowledgement of partition {partition} by {member}, \
                     who does not own it"
                ));
            }
            let share = self.share(group, *partition);
            share.low = share.low.max(Some(*position));
        }
        Ok(())
    }

    /// The group stands there in a partition.
    pub fn stands(
        &mut self,
        group: &str,
        partition: PartitionIndex,
        position: Position,
    ) -> Result<(), Violation> {
        let share = self.share(group, partition);
        let what = format!("{group} stands at {position:?} of partition {partition}");
        if share.low.is_some_and(|low| position < low) {
            let low = share.low;
            return Violation::because(format!("{what}: it moved back, {low:?} was confirmed"));
        }
        if position > share.high.unwrap_or(BEGINNING) {
            let high = share.high;
            return Violation::because(format!("{what}: nobody acknowledged beyond {high:?}"));
        }
        Ok(())
    }

    /// A member is given an event of a partition.
    pub fn handled(
        &mut self,
        group: &str,
        partition: PartitionIndex,
        offset: Offset,
    ) -> Result<(), Violation> {
        let share = self.share(group, partition);
        if offset.0 > share.handled {
            return Violation::because(format!(
                "{group}: event {offset} of partition {partition} is given to a member, and {} \
                 was to nobody",
                share.handled
            ));
        }
        share.handled = share.handled.max(offset.0 + 1);
        Ok(())
    }

    /// At the end: everything was given to a member.
    pub fn check_ends(&mut self, group: &str, ends: &[Position]) -> Result<(), Violation> {
        for (index, end) in ends.iter().enumerate() {
            let share = self.share(group, PartitionIndex(index as u32));
            if share.handled < end.offset.0 {
                return Violation::because(format!(
                    "{group} has done with partition {index}, and event {} was given to nobody",
                    share.handled
                ));
            }
        }
        Ok(())
    }
}
