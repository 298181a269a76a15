//! Requests to one partition: what they name is found, then the partition is asked.

use crate::answer::Answer;
use crate::coordinator::Coordinator;
use crate::coordinator::gaps::beginning;
use crate::coordinator::producers::check_epoch;
use crate::ctx::Ctx;
use crate::drain_stage::Drain;
use crate::faults::Fault;
use crate::ids::{LinkId, Opening, PartitionKey, RequestId, SharedId};
use crate::partition::appends::Writer;
use crate::partition::incoming::{ProduceCall, ValidBatch};
use crate::partition::scope::Scope;
use crate::partition::{Partition, Partitions};
use crate::read_data::Reads;
use crate::refusal::{Refused, refuse};
use crate::request::{PartitionRequest, Target};
use crate::selection::SelectedEvent;
use crate::session::{Sessions, Work};
use crate::steps::Streams;
use crate::verified::{Verified, VerifiedCopy};
use wire::message::*;
use wire::record::{ConsumerKind, Position};
use wire::{ErrorCode, ErrorReply, MemberId, PartitionIndex, SessionId, TopicId};

/// What a request to a partition is lent of the node.
pub(crate) struct PartitionRequests<'a> {
    pub ctx: &'a mut Ctx,
    /// Keeps a note of what a partition does for a request.
    pub sessions: &'a mut Sessions,
    /// Says what a topic's partitions are, and where a consumer stands.
    pub coordinator: &'a Coordinator,
    pub partitions: &'a mut Partitions,
    pub reads: &'a mut Reads,
    /// Say where data is that the writers of steps keep.
    pub streams: &'a mut Streams,
    pub drain: Drain,
}

impl PartitionRequests<'_> {
    /// Has a request done by the partition that it names.
    pub fn ask(
        &mut self,
        caller: RequestId,
        target: Target,
        request: PartitionRequest,
    ) -> Result<(), Refused> {
        trace::passes!("its topic and partition are looked up");
        match request {
            PartitionRequest::Produce(produce, batch) => {
                self.produce(caller, target, produce, batch)
            }
            PartitionRequest::OpenMirror(open) => self.open_mirror(caller, target, &open),
            PartitionRequest::AppendMirrored(append, batch) => {
                self.append_mirrored(caller, target, append, batch)
            }
            PartitionRequest::Subscribe(subscribe) => self.subscribe(caller, target, subscribe),
            PartitionRequest::Unsubscribe(unsubscribe) => {
                self.unsubscribe(caller, unsubscribe);
                Ok(())
            }
            PartitionRequest::Fetch(fetch) => self.fetch(caller, target, &fetch),
            PartitionRequest::ReadData(read) => self.read_data(caller, target, read),
        }
    }

    fn produce(
        &mut self,
        caller: RequestId,
        target: Target,
        produce: Produce,
        batch: Verified,
    ) -> Result<(), Refused> {
        self.drain.refuse_begun()?;
        let (id, index) = (target.topic, produce.partition);
        let namespace = self.sessions.namespace(caller.link);
        let (topic, storage) = self.coordinator.topics.partition(namespace, id, index)?;
        topic.check_takes_events(index)?;
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return Err(topic.closed(index));
        };
        let store = &partition.store;
        store.check_leader_epoch(target.leader_epoch, self.ctx)?;
        let (batch, wanted) = ValidBatch::check(id, topic, store, produce, batch, self.ctx)?;
        check_epoch(&batch.header, self.coordinator.commands.table(), self.ctx)?;
        let session = self.sessions.get_mut(caller.link);
        let work = Work::Produce(storage, batch.header.producer);
        let credit = session.map_or(0, |session| session.begin_work(caller.id, work));
        let call = ProduceCall {
            caller,
            credit,
            batch,
            wanted,
        };
        partition.produce(call, self.ctx)
    }

    /// A link begins to write a mirror: on this connection alone from now on.
    fn open_mirror(
        &mut self,
        caller: RequestId,
        target: Target,
        open: &OpenMirror,
    ) -> Result<(), Refused> {
        self.drain.refuse_begun()?;
        let namespace = self.sessions.namespace(caller.link);
        let topic = self.coordinator.topics.of(namespace, target.topic)?;
        let (of, source) = topic.mirror_of()?;
        if of.link != open.link || source != open.source {
            return Err(refuse(
                ErrorCode::InvalidTopic,
                format!(
                    "{:?} is the mirror of topic {:?} ({}) by the link {:?}, not of {} by {:?}",
                    topic.name, of.topic, of.id, of.link, open.source, open.link
                ),
            ));
        }
        let mut storages = Vec::new();
        for (index, _) in topic.slots() {
            let storage = topic.storage_of(index)?;
            let partition = self.partitions.get(&storage);
            let partition = partition.ok_or_else(|| topic.closed(index))?;
            if let Some(why) = &partition.store.failure {
                return Err(ErrorReply::retryable(
                    ErrorCode::StorageFailed,
                    1000,
                    format!("{}: {why}", partition.store.name),
                ));
            }
            if let Writer::Link(Some(other)) = partition.appends.writer {
                self.refuse_second_link(caller, other.link, &of.link)?;
            }
            storages.push((index, storage));
        }
        let opening = Opening {
            link: caller.link,
            number: open.opening,
        };
        let mut opened = MirrorOpened {
            partitions: Vec::new(),
        };
        for (index, storage) in storages {
            let Some(partition) = self.partitions.get_mut(&storage) else {
                continue;
            };
            partition.open_for_link(opening, self.ctx);
            let state = partition.store.state();
            opened.partitions.push(MirrorPosition {
                partition: index,
                next: state.end,
                durable: state.reached(partition.store.durability),
            });
        }
        self.ctx.answer(caller, Answer::MirrorOpened(opened));
        Ok(())
    }

    /// A link that is at work on another connection goes on alone, until that connection is gone.
    fn refuse_second_link(
        &self,
        caller: RequestId,
        other: LinkId,
        name: &str,
    ) -> Result<(), Refused> {
        let id = self.sessions.id(caller.link);
        let is_own = id != SessionId(0) && self.sessions.id(other) == id;
        if other == caller.link
            || is_own
            || self.sessions.identity(other).is_none()
            || self.ctx.planted(Fault::TwoLinks)
        {
            return Ok(());
        }
        Err(ErrorReply::retryable(
            ErrorCode::ProducerFenced,
            1000,
            format!(
                "the link {name:?} is at work already, by {:?}",
                self.sessions.client_name(other)
            ),
        ))
    }

    fn append_mirrored(
        &mut self,
        caller: RequestId,
        target: Target,
        mut append: AppendMirrored,
        batch: VerifiedCopy,
    ) -> Result<(), Refused> {
        self.drain.refuse_begun()?;
        let (id, index) = (target.topic, append.partition);
        let namespace = self.sessions.namespace(caller.link);
        let arriving = self.coordinator.moves.arriving(id, caller.link);
        let (topic, storage, source) = match arriving {
            // A topic that comes from another node is its own source.
            Some(topic) => (topic, topic.storage_of(index)?, id),
            None => {
                let topics = &self.coordinator.topics;
                let (topic, storage) = topics.partition(namespace, id, index)?;
                (topic, storage, topic.mirror_of()?.1)
            }
        };
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return Err(topic.closed(index));
        };
        if arriving.is_some() {
            // What its node has synced by now, and perhaps acknowledged so, goes with that node's files.
            append.durability = partition.store.storage.durability_max();
        }
        let opening = Opening {
            link: caller.link,
            number: append.opening,
        };
        let is_open = partition.appends.writer == Writer::Link(Some(opening));
        if !is_open && !self.ctx.planted(Fault::TwoLinks) {
            return Err(ErrorReply::retryable(
                ErrorCode::ProducerFenced,
                0,
                format!(
                    "the link to {:?} is not open on this connection, or has been opened anew",
                    topic.name
                ),
            ));
        }
        let (batch, wanted) =
            ValidBatch::copy((id, source), topic, &partition.store, append, batch)?;
        let session = self.sessions.get_mut(caller.link);
        let work = Work::Produce(storage, batch.header.producer);
        let credit = session.map_or(0, |session| session.begin_work(caller.id, work));
        let call = ProduceCall {
            caller,
            credit,
            batch,
            wanted,
        };
        partition.produce(call, self.ctx)
    }

    fn subscribe(
        &mut self,
        caller: RequestId,
        target: Target,
        request: SubscribeScoped,
    ) -> Result<(), Refused> {
        let SubscribeScoped {
            member,
            key,
            mut subscribe,
        } = request;
        if subscribe.latest.0 && (member != MemberId(0) || key.is_some()) {
            return Err(refuse(
                ErrorCode::InvalidConsumer,
                "only the newest events, and those of a group's member or of a key, do not go together: a \
                 member is to see each event, and the newest event may be of another key"
                    .to_owned(),
            ));
        }
        let mut scope = Scope { member: None, key };
        if member != MemberId(0) {
            let consumer = &subscribe.consumer;
            let namespace = self.sessions.namespace(caller.link);
            let (members, kind) = (&self.coordinator.members, ConsumerKind::Group);
            let group = members.of_kind(
                &self.coordinator.topics,
                namespace,
                target.topic,
                consumer,
                kind,
            )?;
            group.check_member(member)?;
            group.check_owner(member, subscribe.partition)?;
            let id = group.id;
            self.check_membership(caller, id, member)?;
            // A group goes on where it is, whoever reads. A member that has
            // lost its connection knows better what it has seen.
            if !matches!(subscribe.start, Start::At(_)) {
                subscribe.start = Start::Cursor;
            }
            scope.member = Some((id, member));
        }
        self.open_subscription(caller, target, subscribe, scope)
    }

    /// Refuses a member that has not joined on this connection: nobody would
    /// notice here when it is gone.
    fn check_membership(
        &self,
        caller: RequestId,
        id: SharedId,
        member: MemberId,
    ) -> Result<(), Refused> {
        let state = self.coordinator.members.member(id, member);
        let own = state.and_then(|state| state.presence.caller());
        if own.is_some_and(|own| own.link == caller.link) {
            return Ok(());
        }
        Err(refuse(
            ErrorCode::MemberFenced,
            format!("{member} has not joined on this connection"),
        ))
    }

    fn open_subscription(
        &mut self,
        caller: RequestId,
        Target {
            topic,
            leader_epoch,
        }: Target,
        subscribe: Subscribe,
        scope: Scope,
    ) -> Result<(), Refused> {
        self.drain.refuse_closing()?;
        let index = subscribe.partition;
        let namespace = self.sessions.namespace(caller.link);
        let (served, storage) = self.coordinator.topics.partition(namespace, topic, index)?;
        served.check_gives_events(index)?;
        if !subscribe.consumer.is_empty() {
            topic::check_consumer_name(&subscribe.consumer)
                .map_err(|error| refuse(ErrorCode::LimitExceeded, error.to_string()))?;
        }
        if scope.member.is_none() {
            self.refuse_shared_name(topic, &subscribe.consumer)?;
        }
        self.sessions.refuse_too_many(caller, self.ctx)?;
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return Err(served.closed(index));
        };
        let store = &partition.store;
        store.check_leader_epoch(leader_epoch, self.ctx)?;
        // What is acknowledged and on its way to the disk counts: whoever opens
        // the name again behind it is not to get those events once more.
        let cursor = self
            .coordinator
            .commands
            .cursor(&(topic, subscribe.consumer.clone(), index));
        let key = PartitionKey {
            topic,
            partition: index,
        };
        let beginning = |first| beginning(key, first, self.coordinator.commands.table());
        let position = store.start_position(subscribe.start, cursor, beginning)?;
        if let Some(session) = self.sessions.get_mut(caller.link) {
            session.begin_work(caller.id, Work::Subscribe(storage));
            session.subscriptions.insert(caller.id, storage);
        }
        partition.subscribe(caller, (subscribe, scope), position, self.ctx);
        Ok(())
    }

    /// A group's or queue's name is for its members.
    fn refuse_shared_name(&self, topic: TopicId, consumer: &str) -> Result<(), Refused> {
        let shared = self.coordinator.members.named(topic, consumer);
        let Some(shared) = shared.and_then(|id| self.coordinator.members.get(id)) else {
            return Ok(());
        };
        let kind = shared.record.kind;
        Err(refuse(
            ErrorCode::InvalidConsumer,
            format!("consumer {consumer:?} is a {kind}: its members alone read"),
        ))
    }

    fn unsubscribe(&mut self, caller: RequestId, Unsubscribe { subscription }: Unsubscribe) {
        let ended = RequestId {
            link: caller.link,
            id: subscription,
        };
        let session = self.sessions.get_mut(caller.link);
        let storage = session.and_then(|session| session.subscriptions.remove(&subscription));
        if let Some(partition) = storage.and_then(|storage| self.partitions.get_mut(&storage)) {
            partition.subscriptions.forget(ended);
        }
        // Behind the deliveries that were sent before.
        self.ctx.answer(caller, Answer::Unsubscribed);
    }

    fn read_data(
        &mut self,
        caller: RequestId,
        target: Target,
        read: ReadData,
    ) -> Result<(), Refused> {
        self.drain.refuse_closing()?;
        let namespace = self.sessions.namespace(caller.link);
        let topic = self.coordinator.topics.of(namespace, target.topic)?;
        let found = self
            .streams
            .look_up((caller, target), read, self.sessions, self.ctx)?;
        let Some(read) = found else {
            return Ok(());
        };
        let mut events: Vec<SelectedEvent> = Vec::with_capacity(read.events.len());
        for wanted in read.events {
            let storage = topic.storage_of(wanted.partition)?;
            let Some(partition) = self.partitions.get(&storage) else {
                return Err(topic.closed(wanted.partition));
            };
            partition.store.check_event(Position {
                incarnation: wanted.incarnation,
                offset: wanted.offset,
            })?;
            events.push(SelectedEvent {
                wanted,
                strided: Vec::new(),
                storage,
                data: None,
                is_whole: false,
                parts: Vec::new(),
            });
        }
        for StridedSelection { event, segments } in read.strided.0 {
            let selected = events.get_mut(event as usize);
            let unsaid = |event: &&mut SelectedEvent| {
                event.strided.is_empty() && event.wanted.segments.is_empty()
            };
            let Some(selected) = selected.filter(unsaid) else {
                return Err(refuse(
                    ErrorCode::InvalidSelection,
                    format!("event {event} of the request has two selections, or there is none"),
                ));
            };
            selected.strided = segments;
        }
        let (partitions, ctx) = (&mut *self.partitions, &mut *self.ctx);
        self.reads.begin(caller, events, read.into, partitions, ctx)
    }

    fn fetch(&mut self, caller: RequestId, target: Target, fetch: &Fetch) -> Result<(), Refused> {
        self.drain.refuse_closing()?;
        let index = fetch.partition;
        let namespace = self.sessions.namespace(caller.link);
        let (topic, storage) = self
            .coordinator
            .topics
            .partition(namespace, target.topic, index)?;
        topic.check_gives_events(index)?;
        let Some(partition) = self.partitions.get_mut(&storage) else {
            return Err(topic.closed(index));
        };
        let store = &partition.store;
        store.check_leader_epoch(target.leader_epoch, self.ctx)?;
        if let Some(session) = self.sessions.get_mut(caller.link) {
            session.begin_work(caller.id, Work::Fetch(storage));
        }
        partition.fetch(caller, fetch, self.ctx)
    }
}

/// What a partition has forgotten of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forgotten {
    /// A subscription whose beginning was being looked for.
    Subscription,
    Other,
}

/// A partition forgets what it keeps of a request: nobody waits for the answer any more.
pub(crate) fn forget(
    work: Work,
    caller: RequestId,
    partition: &mut Partition,
    ctx: &mut Ctx,
) -> Forgotten {
    match work {
        Work::Produce(_, producer) => partition.forget_produce(caller, producer, ctx),
        Work::Fetch(_) => partition.forget_fetch(caller, ctx),
        Work::Subscribe(_) if partition.subscriptions.forget_search(caller) => {
            return Forgotten::Subscription;
        }
        Work::Subscribe(_) | Work::Steps(_) => {}
    }
    Forgotten::Other
}

/// Ends what a member reads on a connection: all, or one partition. Effects are routed by the caller.
pub(crate) fn end_reading(
    (sessions, partitions): (&Sessions, &mut Partitions),
    link: LinkId,
    (member, partition): ((SharedId, MemberId), Option<PartitionIndex>),
    error: &ErrorReply,
    ctx: &mut Ctx,
) {
    let Some(session) = sessions.get(link) else {
        return;
    };
    for (id, storage) in &session.subscriptions {
        let caller = RequestId { link, id: *id };
        let Some(open) = partitions.get_mut(storage) else {
            continue;
        };
        let is_wanted = partition.is_none_or(|partition| open.store.key.partition == partition);
        let subscription = open.subscriptions.get(caller);
        if is_wanted && subscription.is_some_and(|one| one.scope.member == Some(member)) {
            open.subscriptions.end(caller, error.clone(), ctx);
        }
    }
}
