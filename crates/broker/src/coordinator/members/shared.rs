//! Groups and queues, and their members: present, away, or gone. The
//! states are on the page `docs/concept/sharing.md`.

use crate::coordinator::members::group::Group;
use crate::ids::{RequestId, SharedId};
use crate::refusal::{Refused, refuse};
use std::collections::BTreeMap;
use std::time::Duration;
use topic::{GroupOptions, QueueOptions};
use wire::record::{AssignmentRecord, ConsumerKind, ConsumerRecord, MemberRecord, Record};
use wire::{ErrorCode, MemberId, PartitionIndex, TopicId};

/// All groups and queues.
#[derive(Debug, Default)]
pub(crate) struct SharedConsumers {
    pub all: BTreeMap<SharedId, Shared>,
    names: BTreeMap<TopicId, BTreeMap<String, SharedId>>,
}

/// A group or queue.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Its name, topic, kind and options.
    pub record: ConsumerRecord,
    /// Who is present or away.
    pub members: BTreeMap<MemberId, Member>,
    /// What it shares out.
    pub kind: SharedKind,
    /// Whether its end is being recorded.
    pub deleting: bool,
    /// When a command may be tried again, after one was refused.
    pub retry_at: Option<Duration>,
    /// The timer that is armed.
    pub timer_at: Option<Duration>,
    /// Whether nobody was judged the last time, for the server itself had not run.
    pub spared: bool,
}

/// What a group or queue is, besides its members. What became of a queue's
/// events is with the queue itself.
#[derive(Debug)]
pub(crate) enum SharedKind {
    Group(Group),
    Queue(QueueOptions),
}

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
    /// Whether inline data travels with the batches.
    pub inline_data: bool,
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
}

impl Member {
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

impl SharedConsumers {
    pub fn get(&self, id: SharedId) -> Option<&Shared> {
        self.all.get(&id)
    }

    pub fn get_mut(&mut self, id: SharedId) -> Option<&mut Shared> {
        self.all.get_mut(&id)
    }

    pub fn member(&self, id: SharedId, member: MemberId) -> Option<&Member> {
        self.all.get(&id)?.members.get(&member)
    }

    pub fn member_mut(&mut self, id: SharedId, member: MemberId) -> Option<&mut Member> {
        self.all.get_mut(&id)?.members.get_mut(&member)
    }

    /// The group or queue of this name.
    pub fn named(&self, topic: TopicId, consumer: &str) -> Option<SharedId> {
        self.names.get(&topic)?.get(consumer).copied()
    }

    /// The groups and queues of a topic, in the order of their names.
    pub fn of(&self, topic: TopicId) -> impl Iterator<Item = SharedId> + '_ {
        let names = self.names.get(&topic);
        names.into_iter().flat_map(|names| names.values().copied())
    }

    pub fn group(&self, id: SharedId) -> Option<&Group> {
        self.all.get(&id)?.group()
    }

    pub fn group_mut(&mut self, id: SharedId) -> Option<&mut Group> {
        self.all.get_mut(&id)?.group_mut()
    }

    /// Refuses whoever is no member, or none any more.
    pub fn check_member(&self, id: SharedId, member: MemberId) -> Result<(), Refused> {
        match self.member(id, member) {
            Some(_) => Ok(()),
            None => Err(self.fenced(id, member)),
        }
    }

    /// What is said to somebody who is no member.
    pub fn fenced(&self, id: SharedId, member: MemberId) -> Refused {
        let record = self.get(id).map(|shared| &shared.record);
        let (kind, consumer) = record.map_or((ConsumerKind::Group, ""), |record| {
            (record.kind, record.consumer.as_str())
        });
        refuse(
            ErrorCode::MemberFenced,
            format!("{member} is no member of {kind} {consumer:?} any more"),
        )
    }

    /// Refuses whoever does not own a partition of a group.
    pub fn check_owner(
        &self,
        id: SharedId,
        member: MemberId,
        partition: PartitionIndex,
    ) -> Result<(), Refused> {
        let group = self.group(id);
        if group.is_some_and(|group| group.owns(member, partition)) {
            return Ok(());
        }
        let consumer = self.get(id).map(|shared| shared.record.consumer.as_str());
        Err(refuse(
            ErrorCode::MemberFenced,
            format!(
                "{member} does not own partition {partition} in group {:?}",
                consumer.unwrap_or_default()
            ),
        ))
    }

    /// The records of partitions that have a new owner.
    pub fn record_owners(
        &self,
        id: SharedId,
        partitions: Vec<PartitionIndex>,
        owner: MemberId,
        records: &mut Vec<Record>,
    ) {
        let Some(shared) = self.get(id) else {
            return;
        };
        let record = |partition| {
            Record::Assignment(AssignmentRecord {
                topic: shared.record.topic,
                consumer: shared.record.consumer.clone(),
                partition,
                owner,
            })
        };
        records.extend(partitions.into_iter().map(record));
    }

    pub fn insert(&mut self, id: SharedId, shared: Shared) {
        let names = self.names.entry(shared.record.topic).or_default();
        names.insert(shared.record.consumer.clone(), id);
        self.all.insert(id, shared);
    }

    pub fn remove(&mut self, id: SharedId) -> Option<Shared> {
        let shared = self.all.remove(&id)?;
        if let Some(names) = self.names.get_mut(&shared.record.topic) {
            names.remove(&shared.record.consumer);
            if names.is_empty() {
                self.names.remove(&shared.record.topic);
            }
        }
        Some(shared)
    }
}

impl Shared {
    /// A group or queue without members. Options that this version does not
    /// know are taken for the default ones: what is recorded is served.
    pub fn new(record: ConsumerRecord) -> Self {
        let kind = match record.kind {
            ConsumerKind::Queue => {
                SharedKind::Queue(QueueOptions::from_json(&record.options).unwrap_or_default())
            }
            ConsumerKind::Group | ConsumerKind::Independent => SharedKind::Group(Group::new(
                GroupOptions::from_json(&record.options).unwrap_or_default(),
            )),
        };
        Self {
            record,
            members: BTreeMap::new(),
            kind,
            deleting: false,
            retry_at: None,
            timer_at: None,
            spared: false,
        }
    }

    pub fn is_queue(&self) -> bool {
        matches!(self.kind, SharedKind::Queue(_))
    }

    pub fn group(&self) -> Option<&Group> {
        match &self.kind {
            SharedKind::Group(group) => Some(group),
            SharedKind::Queue(_) => None,
        }
    }

    pub fn group_mut(&mut self) -> Option<&mut Group> {
        match &mut self.kind {
            SharedKind::Group(group) => Some(group),
            SharedKind::Queue(_) => None,
        }
    }
}
