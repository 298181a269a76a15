//! Groups: a topic's partitions are shared out among members. The states of
//! an assignment are on the page `docs/concept/sharing.md`.

use crate::ids::RequestId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use topic::GroupOptions;
use wire::codec::Appended;
use wire::message::Assigned;
use wire::{MemberId, PartitionIndex};

/// Owns what is free.
pub(super) const NOBODY: MemberId = MemberId(0);

/// What a group shares out. A partition that is not named here is free.
#[derive(Debug)]
pub(crate) struct Group {
    pub options: GroupOptions,
    owned: BTreeMap<PartitionIndex, Assignment>,
    /// What each member was told last, since it joined.
    told: BTreeMap<MemberId, Assigned>,
    /// Owners of before the server's start that have not come back yet.
    awaited: BTreeSet<MemberId>,
}

/// A partition that has an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Assignment {
    owner: MemberId,
    state: AssignmentState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AssignmentState {
    /// The grant of this number is not durable yet: the owner does not know of it.
    Granting(u64),
    Granted,
    /// The owner is to release it.
    Revoking {
        /// When it loses it.
        until: Duration,
    },
}

impl Group {
    pub fn new(options: GroupOptions) -> Self {
        Self {
            options,
            owned: BTreeMap::new(),
            told: BTreeMap::new(),
            awaited: BTreeSet::new(),
        }
    }

    /// The server was started: every owner has to come back.
    pub fn await_owners(&mut self) {
        let owners = self.owned.values().map(|assignment| assignment.owner);
        self.awaited = owners.collect();
    }

    /// Owners of before the start that have not come back, and are not gone.
    pub fn awaited(&self) -> &BTreeSet<MemberId> {
        &self.awaited
    }

    /// Owners as they are recorded.
    pub fn restore(&mut self, owners: &BTreeMap<PartitionIndex, MemberId>) {
        let granted = |owner: &MemberId| Assignment {
            owner: *owner,
            state: AssignmentState::Granted,
        };
        let owned = owners.iter();
        self.owned = owned
            .map(|(partition, owner)| (*partition, granted(owner)))
            .collect();
    }

    /// Owners as they are recorded, after changes of which nobody knows whether
    /// they are: a restart may find that what was to change hands is another's.
    /// Until then it is nobody's.
    pub fn restore_certain(&mut self, owners: &BTreeMap<PartitionIndex, MemberId>) {
        let mut certain = owners.clone();
        certain.retain(|partition, owner| self.owns(*owner, *partition));
        self.restore(&certain);
    }

    /// Whether the member owns the partition, and knows it.
    pub fn owns(&self, member: MemberId, partition: PartitionIndex) -> bool {
        self.owned.get(&partition).is_some_and(|assignment| {
            assignment.owner == member && !matches!(assignment.state, AssignmentState::Granting(_))
        })
    }

    /// What the grant of this number named is its owners'.
    pub fn grant_is_durable(&mut self, grant: u64) {
        for assignment in self.owned.values_mut() {
            if assignment.state == AssignmentState::Granting(grant) {
                assignment.state = AssignmentState::Granted;
            }
        }
    }

    /// A member is gone: what it owned is free, and returned.
    pub fn disown(&mut self, member: MemberId) -> Vec<PartitionIndex> {
        self.told.remove(&member);
        self.awaited.remove(&member);
        let owned = self.owned.iter();
        let freed = owned.filter(|(_, assignment)| assignment.owner == member);
        let freed: Vec<_> = freed.map(|(partition, _)| *partition).collect();
        freed.iter().for_each(|partition| {
            self.owned.remove(partition);
        });
        freed
    }

    /// What `old` owned is granted to `new`, by the grant of this number, and returned.
    pub fn inherit(&mut self, old: MemberId, new: MemberId, grant: u64) -> Vec<PartitionIndex> {
        self.told.remove(&old);
        self.awaited.remove(&old);
        let mut inherited = Vec::new();
        for (partition, assignment) in &mut self.owned {
            if assignment.owner == old {
                *assignment = Assignment {
                    owner: new,
                    state: AssignmentState::Granting(grant),
                };
                inherited.push(*partition);
            }
        }
        inherited
    }

    /// What each owner owns and knows of.
    pub fn assigned(&self) -> BTreeMap<MemberId, Assigned> {
        let mut all: BTreeMap<MemberId, Assigned> = BTreeMap::new();
        for (partition, assignment) in &self.owned {
            if matches!(assignment.state, AssignmentState::Granting(_)) {
                continue;
            }
            let assigned = all.entry(assignment.owner).or_insert_with(nothing);
            assigned.partitions.push(*partition);
            if let AssignmentState::Revoking { .. } = assignment.state {
                assigned.revoking.push(*partition);
            }
        }
        all
    }

    /// Who owns a partition, or will when that is durable.
    pub fn owner(&self, partition: PartitionIndex) -> Option<MemberId> {
        self.owned
            .get(&partition)
            .map(|assignment| assignment.owner)
    }

    /// A partition is free. Returns who owned it.
    pub fn free(&mut self, partition: PartitionIndex) -> Option<MemberId> {
        let assignment = self.owned.remove(&partition)?;
        Some(assignment.owner)
    }

    /// A member is there: what it owns is reported to it, whether anything is new or not.
    pub fn member_present(&mut self, member: MemberId) {
        self.told.remove(&member);
        self.awaited.remove(&member);
    }

    /// Shares the partitions out anew among the members, of whom those take that are present:
    /// what is to be elsewhere is to be released until the revoke timeout has passed, and what
    /// is free is granted, by the grant of this number, and returned. `twice` is a planted fault.
    pub fn share_out(
        &mut self,
        members: &BTreeMap<MemberId, bool>,
        partitions: Portion,
        grant: u64,
        now: Duration,
        twice: bool,
    ) -> Vec<(PartitionIndex, MemberId)> {
        // What is being revoked goes to a member that needs it when it is free.
        let owners = self.owned.iter().filter(|(_, assignment)| {
            !matches!(assignment.state, AssignmentState::Revoking { .. })
        });
        let owners = owners
            .map(|(partition, assignment)| (*partition, assignment.owner))
            .collect();
        let target = match partitions {
            Portion::All(count) => balance(members, count, &owners),
            Portion::OneOfMany(partition) => in_turn(members, partition, &owners),
        };
        let until = now + Duration::from_millis(self.options.revoke_timeout_ms);
        let mut granted = Vec::new();
        for (partition, member) in target {
            match self.owned.get_mut(&partition) {
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
                    self.owned.insert(partition, assignment);
                    granted.push((partition, member));
                }
            }
        }
        granted
    }

    /// What was not released in time.
    pub fn overdue(&self, now: Duration) -> Vec<PartitionIndex> {
        let overdue = |assignment: &Assignment| matches!(assignment.state, AssignmentState::Revoking { until } if until <= now);
        let owned = self.owned.iter();
        owned
            .filter(|(_, assignment)| overdue(assignment))
            .map(|(partition, _)| *partition)
            .collect()
    }

    /// Of these members, those to whom what they own is news, and what is reported to each. `twice` is
    /// a planted fault.
    pub fn news(
        &mut self,
        members: impl Iterator<Item = (MemberId, RequestId)>,
        recovering_ms: u32,
        twice: bool,
    ) -> Vec<(RequestId, Assigned)> {
        let mut all = self.assigned();
        let mut news = Vec::new();
        for (member, caller) in members {
            let mut assigned = all.remove(&member).unwrap_or_else(nothing);
            // That the time passes is no news.
            assigned.recovering_ms = Appended(recovering_ms.min(1));
            let count = |told: &Assigned| told.partitions.len();
            if twice && self.told.get(&member).map_or(0, count) > count(&assigned) {
                continue;
            }
            if self.told.get(&member) != Some(&assigned) {
                let now = Assigned {
                    recovering_ms: Appended(recovering_ms),
                    ..assigned.clone()
                };
                self.told.insert(member, assigned);
                news.push((caller, now));
            }
        }
        news
    }

    /// When the next revoked partition is lost.
    pub fn next_revoked(&self) -> Option<Duration> {
        let owned = self.owned.values();
        owned
            .filter_map(|assignment| match assignment.state {
                AssignmentState::Revoking { until } => Some(until),
                _ => None,
            })
            .min()
    }
}

/// What is reported to a member that owns nothing.
fn nothing() -> Assigned {
    Assigned {
        partitions: Vec::new(),
        revoking: Vec::new(),
        recovering_ms: Appended(0),
    }
}

/// Which partitions a group shares out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Portion {
    /// So many, from the first on.
    All(u32),
    /// This one of a spread topic.
    OneOfMany(PartitionIndex),
}

/// Who is to own what: as even as one partition among those who take, with as
/// few moves as that allows. Who does not take (`false`: it is away) keeps
/// what it has and gets no more. If nobody takes, nothing moves.
pub(crate) fn balance(
    members: &BTreeMap<MemberId, bool>,
    partition_count: u32,
    owners: &BTreeMap<PartitionIndex, MemberId>,
) -> BTreeMap<PartitionIndex, MemberId> {
    let mut kept: BTreeMap<MemberId, Vec<PartitionIndex>> =
        members.keys().map(|member| (*member, Vec::new())).collect();
    for (partition, owner) in owners.range(..PartitionIndex(partition_count)) {
        if let Some(own) = kept.get_mut(owner) {
            own.push(*partition);
        }
    }
    let takes = |member: &MemberId| members.get(member).copied().unwrap_or(false);
    let unmoved = kept.iter().filter(|(member, _)| !takes(member));
    let unmoved: usize = unmoved.map(|(_, own)| own.len()).sum();
    // Who has most is the first to have one more than the others.
    let mut takers: Vec<MemberId> = members.keys().copied().filter(takes).collect();
    takers.sort_by_key(|member| (std::cmp::Reverse(kept[member].len()), *member));
    let share = partition_count as usize - unmoved;
    let count = takers.len().max(1);
    let quota = |place: usize| share / count + usize::from(place < share % count);
    for (place, member) in takers.iter().enumerate() {
        if let Some(own) = kept.get_mut(member) {
            own.truncate(quota(place));
        }
    }
    let placed: BTreeSet<PartitionIndex> = kept.values().flatten().copied().collect();
    let mut free = (0..partition_count)
        .map(PartitionIndex)
        .filter(|partition| !placed.contains(partition));
    for (place, member) in takers.iter().enumerate() {
        if let Some(own) = kept.get_mut(member) {
            let missing = quota(place).saturating_sub(own.len());
            own.extend(free.by_ref().take(missing));
        }
    }
    kept.into_iter()
        .flat_map(|(member, own)| own.into_iter().map(move |partition| (partition, member)))
        .collect()
}

/// Who is to own one partition of a spread topic, whose other partitions are shared out by other nodes, among the same
/// members: they take the partitions in turn, in the order of their ids, so that their shares are even without a word between the nodes.
/// An owner that is away keeps it, and if nobody takes, nothing moves.
fn in_turn(
    members: &BTreeMap<MemberId, bool>,
    partition: PartitionIndex,
    owners: &BTreeMap<PartitionIndex, MemberId>,
) -> BTreeMap<PartitionIndex, MemberId> {
    let owner = owners.get(&partition);
    let takers = || members.iter().filter(|(_, takes)| **takes);
    let turn = partition.0 as usize % takers().count().max(1);
    let away = owner.filter(|owner| members.get(owner) == Some(&false));
    let next = away.or_else(|| takers().nth(turn).map(|(member, _)| member));
    next.map(|member| (partition, *member))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn counts(
        target: &BTreeMap<PartitionIndex, MemberId>,
        members: &BTreeMap<MemberId, bool>,
    ) -> Vec<usize> {
        let taking = members.iter().filter(|(_, takes)| **takes);
        taking
            .map(|(member, _)| target.values().filter(|owner| *owner == member).count())
            .collect()
    }

    /// The fewest moves that evenness allows: partitions that stay are those
    /// of each taker up to its quota, with the greater quotas given to those
    /// who have most.
    fn stay_most(
        members: &BTreeMap<MemberId, bool>,
        partition_count: u32,
        owners: &BTreeMap<PartitionIndex, MemberId>,
    ) -> usize {
        let own = |member: &MemberId| owners.values().filter(|owner| *owner == member).count();
        let (takers, others): (Vec<_>, Vec<_>) = members.iter().partition(|(_, takes)| **takes);
        let unmoved: usize = others.iter().map(|(member, _)| own(member)).sum();
        if takers.is_empty() {
            return unmoved;
        }
        let share = partition_count as usize - unmoved;
        let (least, extra) = (share / takers.len(), share % takers.len());
        let stay = takers.iter().map(|(member, _)| own(member).min(least));
        let above = takers.iter().filter(|(member, _)| own(member) > least);
        unmoved + stay.sum::<usize>() + above.count().min(extra)
    }

    #[test]
    fn partitions_that_are_shared_out_one_by_one_are_shared_evenly() {
        let (none, six) = (BTreeMap::new(), 0..6);
        for count in 1..=8_u128 {
            let members: BTreeMap<MemberId, bool> =
                (1..=count).map(|id| (MemberId(id), true)).collect();
            let partitions = six.clone().map(PartitionIndex);
            let target: BTreeMap<_, _> = partitions
                .flat_map(|partition| in_turn(&members, partition, &none))
                .collect();
            assert_eq!(target.len(), 6);
            let shares = counts(&target, &members);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
        let one = PartitionIndex(1);
        let members = BTreeMap::from([(MemberId(1), true), (MemberId(2), false)]);
        let owned = |member: u128| BTreeMap::from([(one, MemberId(member))]);
        assert_eq!(in_turn(&members, one, &owned(2)), owned(2));
        assert_eq!(in_turn(&members, one, &owned(3)), owned(1));
        assert_eq!(in_turn(&BTreeMap::new(), one, &owned(1)), none);
    }

    #[test]
    fn shares_are_even_sticky_and_complete_for_any_members() {
        for seed in 0..2000u128 {
            let mut random = Random::new(seed);
            let mut pick = |below: u64| (random.id() as u64) % below;
            let partition_count = pick(40) as u32;
            let member_count = pick(12);
            let mut members: BTreeMap<MemberId, bool> = BTreeMap::new();
            for _ in 0..member_count {
                let takes = pick(4) > 0;
                members.insert(MemberId(u128::from(pick(1000)) + 1), takes);
            }
            let ids: Vec<MemberId> = members.keys().copied().collect();
            let mut owners = BTreeMap::new();
            for partition in 0..partition_count {
                // Some are free, and some of somebody who is gone.
                let owner = match pick(4) {
                    0 => continue,
                    1 => MemberId(5000),
                    _ if ids.is_empty() => continue,
                    _ => ids[pick(ids.len() as u64) as usize],
                };
                owners.insert(PartitionIndex(partition), owner);
            }
            let target = balance(&members, partition_count, &owners);
            let is_known = |owner: &MemberId| members.contains_key(owner);
            assert!(target.values().all(is_known), "seed {seed}");
            let stayed = |(partition, owner): &(&PartitionIndex, &MemberId)| {
                owners.get(partition) == Some(owner)
            };
            let stay = target.iter().filter(stayed).count();
            let most = stay_most(&members, partition_count, &owners);
            assert_eq!(stay, most, "seed {seed}: more moves than needed");
            let shares = counts(&target, &members);
            if let (Some(least), Some(most)) = (shares.iter().min(), shares.iter().max()) {
                assert!(most - least <= 1, "seed {seed}: {shares:?}");
                assert_eq!(target.len(), partition_count as usize, "seed {seed}");
            }
            for (partition, owner) in &owners {
                if members.get(owner) == Some(&false) {
                    assert_eq!(target.get(partition), Some(owner), "seed {seed}");
                }
            }
            // Nothing moves once it is as wanted, nor on the way there.
            assert_eq!(balance(&members, partition_count, &target), target);
            let on_the_way: BTreeMap<_, _> = target
                .iter()
                .filter(stayed)
                .map(|(partition, owner)| (*partition, *owner))
                .collect();
            let later = balance(&members, partition_count, &on_the_way);
            for (partition, owner) in &on_the_way {
                assert_eq!(later.get(partition), Some(owner), "seed {seed}");
            }
        }
    }
}
