//! What a group's member owns: granted, being revoked, being released. The
//! states are on the page `docs/concept/sharing.md`.

use super::membership::{Membership, Terms};
use super::wire_session::{Route, Timer, Wire};
use crate::consumer::{Change, ConsumerFeed};
use crate::options::GroupMember;
use crate::standing::Hindrance;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::codec::Codec;
use wire::message::{Assigned, Method, Release, Start};
use wire::record::ConsumerKind;
use wire::{MemberId, PartitionIndex};

/// How far a partition that the member owns is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owned {
    Granted,
    /// The program is notified, and finishes.
    Revoking,
    /// It has finished: once its acknowledgements are durable, the partition
    /// is released.
    Finished,
}

/// What of an assignment is new.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// To be read now.
    pub granted: Vec<u32>,
    /// To be read no more.
    pub ended: Vec<u32>,
    /// Those of them that are not its own any more.
    pub lost: Vec<u32>,
}

pub(super) struct Group {
    pub membership: Membership,
    feed: Arc<ConsumerFeed>,
    owned: BTreeMap<u32, Owned>,
    /// Whether the server has said what it owns since it joined last.
    is_told: bool,
    /// Until when partitions are kept for members of before the server's
    /// start, at most.
    recovers_until: Option<Duration>,
}

impl Group {
    pub fn new(
        wire: &mut Wire<'_>,
        feed: Arc<ConsumerFeed>,
        member: &GroupMember,
        start: Start,
        seed: u128,
    ) -> Self {
        let terms = Terms {
            topic: feed.topic.id,
            consumer: feed.name.clone(),
            kind: ConsumerKind::Group,
            options: member.group.to_json(),
            start,
            instance: member.instance.clone().unwrap_or_default(),
            session_timeout: member.session_timeout,
            processing_timeout: member.processing_timeout,
            prefetch_events: 0,
            prefetch_bytes: 0,
            inline_data: false,
            seed,
        };
        let (key, timer) = (feed.key, Timer::Consumer(feed.key));
        Self {
            membership: Membership::new(wire, terms, key, timer),
            feed,
            owned: BTreeMap::new(),
            is_told: false,
            recovers_until: None,
        }
    }

    /// What keeps events from the member, besides its subscriptions.
    pub fn hindrance(&self, wire: &Wire<'_>) -> Option<Hindrance> {
        self.membership
            .hindrance(wire)
            .or_else(|| (!self.is_told).then_some(Hindrance::Unanswered))
            .or_else(|| {
                let recovers = self.recovers_until;
                recovers.map(|until| Hindrance::Recovering { until })
            })
    }

    /// It is to be notified anew of what it owns.
    pub fn untold(&mut self) {
        self.is_told = false;
        self.recovers_until = None;
    }

    /// Who acknowledges, if the server knows him now.
    pub fn member(&self) -> Option<MemberId> {
        self.membership
            .is_present()
            .then_some(self.membership.member)
    }

    /// Partitions that are to be read.
    pub fn granted(&self) -> Vec<u32> {
        let owned = self.owned.iter();
        let granted = owned.filter(|(_, state)| **state == Owned::Granted);
        granted.map(|(partition, _)| *partition).collect()
    }

    /// The server says what the member owns.
    pub fn assigned(&mut self, now: Duration, assigned: &Assigned) -> News {
        self.is_told = true;
        let recovering = Duration::from_millis(assigned.recovering_ms.0.into());
        self.recovers_until = (!recovering.is_zero()).then(|| now + recovering);
        let mut news = News::default();
        let (owned, lost): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.owned)
            .into_iter()
            .partition(|(one, _)| assigned.partitions.contains(&PartitionIndex(*one)));
        self.owned = owned;
        let (released, lost): (Vec<_>, Vec<_>) = lost
            .into_iter()
            .partition(|(_, state)| *state == Owned::Finished);
        self.feed
            .disown(released.into_iter().map(|(partition, _)| partition));
        let mut revoking = Vec::new();
        for PartitionIndex(partition) in assigned.partitions.iter().copied() {
            let is_revoking = assigned.revoking.contains(&PartitionIndex(partition));
            match (self.owned.get(&partition), is_revoking) {
                (None, false) => {
                    self.owned.insert(partition, Owned::Granted);
                    news.granted.push(partition);
                }
                // It was never begun.
                (None, true) => {
                    self.owned.insert(partition, Owned::Finished);
                }
                (Some(Owned::Granted), true) => {
                    self.owned.insert(partition, Owned::Revoking);
                    revoking.push(partition);
                }
                // What is on its way is finished, whatever is wanted now.
                _ => {}
            }
        }
        news.lost = lost.into_iter().map(|(partition, _)| partition).collect();
        self.notify(Change::Lost, &news.lost);
        self.notify(Change::Revoking, &revoking);
        self.notify(Change::Assigned, &news.granted);
        news.ended.extend(&news.lost);
        news.ended.extend(revoking);
        news
    }

    fn notify(&self, change: fn(Vec<PartitionIndex>) -> Change, partitions: &[u32]) {
        if !partitions.is_empty() {
            let partitions = partitions.iter().copied().map(PartitionIndex);
            self.feed.change(change(partitions.collect()));
        }
    }

    /// The member is none any more: nothing is its own. Says what was.
    pub fn lose_all(&mut self) -> Vec<u32> {
        let lost: Vec<u32> = std::mem::take(&mut self.owned).into_keys().collect();
        self.notify(Change::Lost, &lost);
        lost
    }

    /// The program has finished with these.
    pub fn finished(&mut self, partitions: &[PartitionIndex]) {
        for partition in partitions {
            if let Some(state) = self.owned.get_mut(&partition.0) {
                *state = Owned::Finished;
            }
        }
    }

    /// Releases what is finished and has no acknowledgement under way.
    pub fn release(&self, wire: &mut Wire<'_>, is_under_way: impl Fn(u32) -> bool) {
        let owned = self.owned.iter();
        let partitions: Vec<PartitionIndex> = owned
            .filter(|(partition, state)| **state == Owned::Finished && !is_under_way(**partition))
            .map(|(partition, _)| PartitionIndex(*partition))
            .collect();
        if partitions.is_empty() || !self.membership.is_present() || !wire.is_up() {
            return;
        }
        let release = Release {
            consumer: self.feed.name.clone(),
            member: self.membership.member,
            partitions,
        };
        let body = release.to_bytes();
        self.membership
            .request(wire, Route::Ignored, Method::Release, &body);
    }
}
