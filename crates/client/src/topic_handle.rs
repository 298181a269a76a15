//! A topic, as a client holds it.

use crate::check;
use crate::driver::{Driver, description};
use crate::error::ClientError;
use crate::fetched::{FetchedBatches, Metadata};
use crate::mailbox::Command;
use crate::part::Part;
use crate::promise::Pending;
use crate::received_checksums::ReadBack;
use crate::spread::{definition_of, joined, known_to_some, one_of_each};
use crate::strided::StridedWanted;
use crate::topic_state::TopicState;
use memory::Target;
use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use topic::{Definition, Placement, Spread, part_name};
use wire::codec::Codec;
use wire::message::{
    AddPartitions, AddPlacedPartitions, ConsumerDescription, ConsumerList, ConsumerName,
    CreateTopic, Cursor, CursorList, CursorMove, DataWanted, Fetch, Fetched, Method, MoveCursors,
    PartitionDescription, PartitionStorage, ReadCursors, TopicDescription, TopicName,
};
use wire::record::Position;
use wire::{PartitionIndex, TopicId};

/// The partitions of a spread topic, in the order of their indices. Only ever added.
#[derive(Default)]
pub(crate) struct Parts(RwLock<Arc<Vec<TopicHandle>>>);

impl Parts {
    fn known(&self) -> Arc<Vec<TopicHandle>> {
        self.0.read().expect("no holder panics here").clone()
    }

    /// Those behind the ones that are known.
    fn add(&self, parts: Vec<TopicHandle>) {
        let mut known = self.0.write().expect("no holder panics here");
        let count = known.len() as u32;
        let new = parts.into_iter().filter(|part| part.state.first >= count);
        let all = known.iter().cloned().chain(new);
        *known = Arc::new(all.collect());
    }
}

/// A topic that exists, or did when it was opened. Cheap to clone.
#[derive(Clone)]
pub struct TopicHandle {
    pub(crate) driver: Driver,
    pub(crate) state: Arc<TopicState>,
    /// Of a spread topic: its partitions, as far as they are known.
    pub(crate) parts: Option<Arc<Parts>>,
}

impl Driver {
    /// Makes a topic with its first partitions, which may be none. They are on one node; those of a topic whose definition says how
    /// they are spread ([`Definition::spread`]) are each on a node of its own, and are none of `partitions`.
    ///
    /// # Errors
    /// [`ClientError::Server`] with [`ErrorCode::TopicExists`](wire::ErrorCode::TopicExists),
    /// [`ErrorCode::InvalidTopic`](wire::ErrorCode::InvalidTopic) or [`ErrorCode::InvalidStorage`](wire::ErrorCode::InvalidStorage); nothing
    /// is left behind then.
    pub fn create_topic(
        &self,
        name: &str,
        definition: &Definition,
        partitions: &[PartitionStorage],
    ) -> Result<TopicHandle, ClientError> {
        self.begin_create_topic(name, definition, partitions).wait()
    }

    /// [`Driver::create_topic`], not waited for.
    pub fn begin_create_topic(
        &self,
        name: &str,
        definition: &Definition,
        partitions: &[PartitionStorage],
    ) -> Pending<TopicHandle> {
        self.begin_create_topic_at(TopicId(0), name, definition, partitions)
    }

    /// [`Driver::create_topic`] with partitions that are spread over the nodes: each is a topic by itself, `NAME/INDEX`, that is made on a node
    /// in turn and moves by itself. Programs see one topic.
    ///
    /// # Errors
    /// As [`Driver::create_topic`]; what cannot be spread: steps and mirrors. If it fails after the topic itself was made, the next
    /// [`Driver::open_topic`] makes what is missing.
    pub fn create_spread_topic(
        &self,
        name: &str,
        definition: &Definition,
        partitions: &[PartitionStorage],
    ) -> Result<TopicHandle, ClientError> {
        let mut spread = Spread::default();
        for storage in partitions {
            let pushed = spread.push(&storage.kind, &storage.config, &Placement::default(), 1);
            pushed.map_err(ClientError::Invalid)?;
        }
        let definition = definition.with_spread(spread);
        self.create_topic(name, &definition.map_err(ClientError::invalid)?, &[])
    }

    /// [`Driver::create_topic`] on the node that has `beside`, as a queue's topic and that of its dead letters
    /// have to be. Other topics are spread over the nodes by their names.
    ///
    /// # Errors
    /// As [`Driver::create_topic`]; [`ErrorCode::UnknownTopic`](wire::ErrorCode::UnknownTopic) if `beside` is gone.
    pub fn create_topic_beside(
        &self,
        beside: &TopicHandle,
        name: &str,
        definition: &Definition,
        partitions: &[PartitionStorage],
    ) -> Result<TopicHandle, ClientError> {
        self.begin_create_topic_at(beside.id(), name, definition, partitions)
            .wait()
    }

    pub(crate) fn begin_create_topic_at(
        &self,
        beside: TopicId,
        name: &str,
        definition: &Definition,
        partitions: &[PartitionStorage],
    ) -> Pending<TopicHandle> {
        if let Err(error) = topic::check_topic_name(name) {
            return Pending::failed(ClientError::invalid(error));
        }
        if let Err(error) = check::partition_count(partitions.len()) {
            return Pending::failed(error);
        }
        let (driver, session) = match self.session() {
            Ok(session) => (self.clone(), session),
            Err(error) => return Pending::failed(error),
        };
        let made = self.begin_create(beside, name, definition, partitions);
        let made = made.then(move |made| TopicHandle::new(driver, made));
        match definition.spread() {
            None => made,
            Some(_) => made.and_then(&session.mailbox, self.request_timeout(), |made| {
                made.map_or_else(Pending::failed, TopicHandle::with_parts)
            }),
        }
    }

    /// Makes a topic by itself, without the partitions of a spread one, on the node that has `beside`.
    pub(crate) fn begin_create(
        &self,
        beside: TopicId,
        name: &str,
        definition: &Definition,
        partitions: &[PartitionStorage],
    ) -> Pending<TopicDescription> {
        let body = CreateTopic {
            name: name.to_owned(),
            definition: definition.to_json(),
            partitions: partitions.to_vec(),
        };
        let what = format!("topic {name} to be made");
        self.begin_call(Method::CreateTopic, beside, &body, what, |reply| {
            description(&reply)
        })
    }

    /// Makes a topic by itself, without the partitions of a spread one.
    pub(crate) fn begin_create_itself(
        &self,
        name: &str,
        definition: &Definition,
    ) -> Pending<TopicDescription> {
        self.begin_create(TopicId(0), name, definition, &[])
    }

    /// Adds partitions to a live topic. Handles learn of them by
    /// [`crate::TopicHandle::refresh`].
    ///
    /// # Errors
    /// [`ClientError::Server`] with [`ErrorCode::InvalidStorage`](wire::ErrorCode::InvalidStorage); nothing is
    /// added then.
    pub fn add_partitions(
        &self,
        name: &str,
        partitions: &[PartitionStorage],
    ) -> Result<TopicDescription, ClientError> {
        self.add_placed_partitions(name, partitions, &Placement::default())
    }

    /// [`Driver::add_partitions`] to a spread topic, on nodes with these labels.
    ///
    /// # Errors
    /// As [`Driver::add_partitions`]; [`ClientError::Invalid`] if the topic is not spread and `placement` names labels. If no node has
    /// the labels, [`ErrorCode::InvalidTopic`](wire::ErrorCode::InvalidTopic), and nothing is added.
    pub fn add_placed_partitions(
        &self,
        name: &str,
        partitions: &[PartitionStorage],
        placement: &Placement,
    ) -> Result<TopicDescription, ClientError> {
        check::partition_count(partitions.len())?;
        let described = self.begin_describe_itself(name).wait()?;
        let is_spread = definition_of(&described)?.spread().is_some();
        if !is_spread && !placement.is_anywhere() {
            return Err(ClientError::Invalid(format!(
                "all partitions of {name} are on one node, so that none can be added at {placement}; a spread topic has each where it is to be"
            )));
        }
        let topic = described.topic;
        let what = format!("{} partitions to be added to {name}", partitions.len());
        let partitions = partitions.to_vec();
        let count = partitions.len() as u32;
        if is_spread {
            let placement = placement.to_string();
            let body = AddPlacedPartitions {
                partitions,
                placement,
            };
            let method = Method::AddPlacedPartitions;
            let added = self.begin_call(method, topic, &body, what, |reply| description(&reply));
            return self.add_parts(added.wait()?, count);
        }
        let body = AddPartitions { partitions };
        self.begin_call(Method::AddPartitions, topic, &body, what, |reply| {
            description(&reply)
        })
        .wait()
    }

    /// Changes the definition of a live topic: `changes` is a JSON object of
    /// `validator`, `retention`, `keep_until_acknowledged` and
    /// `metadata_bytes_max`, each with its new value or null for its default.
    /// Durable when it returns; what it says holds for everybody on the server
    /// at once, for producers that are opened later.
    ///
    /// # Errors
    /// [`ClientError::Server`] with [`ErrorCode::InvalidTopic`](wire::ErrorCode::InvalidTopic); nothing is
    /// changed then.
    pub fn alter_topic(&self, name: &str, changes: &str) -> Result<TopicDescription, ClientError> {
        let topic = self.begin_describe_itself(name).wait()?.topic;
        let altered = self.alter_itself(topic, name, changes)?;
        self.alter_parts(altered)
    }

    /// A spread topic was altered: its partitions are, and those that were added are made. Blocks.
    fn alter_parts(&self, altered: TopicDescription) -> Result<TopicDescription, ClientError> {
        let definition = definition_of(&altered)?;
        if definition.spread().is_none() {
            return Ok(altered);
        }
        let topic = TopicHandle::new(self.clone(), altered)?
            .with_parts()
            .wait()?;
        for part in topic.parts().unwrap_or_default().iter() {
            let changes = definition.changes_to_part(topic.id(), part.state.first);
            self.alter_itself(part.id(), part.name(), &changes)?;
        }
        topic.refresh()
    }

    /// A spread topic got so many partitions more: they are made. One of the others whose node does not answer is left out, and keeps its
    /// share of the topic's limits. Blocks.
    fn add_parts(
        &self,
        altered: TopicDescription,
        added: u32,
    ) -> Result<TopicDescription, ClientError> {
        let definition = definition_of(&altered)?;
        let count = definition.spread().map_or(0, Spread::count);
        let known = count.saturating_sub(added);
        let topic = TopicHandle::new(self.clone(), altered.clone())?;
        let mut opened = topic.begin_parts(&definition, 0);
        let mut parts = Vec::with_capacity(opened.len());
        for part in opened.split_off(known as usize) {
            parts.push(part.wait()?);
        }
        let answered = |part: Result<TopicDescription, ClientError>| match part {
            Err(error) if error.code().is_none() && error.is_retryable() => Ok(None),
            other => other.map(Some),
        };
        // A limit of the whole topic is divided among its partitions; nothing else of theirs has changed.
        let is_divided = definition.retention().total_bytes.is_some();
        let mut changed = Vec::new();
        for (index, part) in (0..).zip(opened) {
            let Some(part) = answered(part.wait())? else {
                continue;
            };
            if is_divided {
                let changes = definition.changes_to_part(topic.id(), index);
                changed.push(self.begin_alter_itself(part.topic, &part.name, &changes));
            }
            parts.push(part);
        }
        for part in changed {
            answered(part.wait())?;
        }
        Ok(joined(altered, parts))
    }

    /// Opens a topic that exists.
    ///
    /// # Errors
    /// [`ClientError::Server`] with [`ErrorCode::UnknownTopic`](wire::ErrorCode::UnknownTopic).
    pub fn open_topic(&self, name: &str) -> Result<TopicHandle, ClientError> {
        self.begin_open_topic(name).wait()
    }

    /// Opens a topic by itself: a spread one without its partitions, for somebody who moves it.
    ///
    /// # Errors
    /// As [`Driver::open_topic`].
    pub fn open_topic_itself(&self, name: &str) -> Result<TopicHandle, ClientError> {
        let described = self.begin_describe_itself(name).wait()?;
        Ok(TopicHandle {
            parts: None,
            ..TopicHandle::new(self.clone(), described)?
        })
    }

    /// [`Driver::open_topic`], not waited for.
    pub fn begin_open_topic(&self, name: &str) -> Pending<TopicHandle> {
        let session = match self.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let driver = self.clone();
        let described = self.begin_describe_itself(name);
        described.and_then(&session.mailbox, self.request_timeout(), move |described| {
            let opened = described.and_then(|described| TopicHandle::new(driver, described));
            opened.map_or_else(Pending::failed, TopicHandle::with_parts)
        })
    }

    /// Cursors of a consumer of a topic; of all of them, if the name is empty.
    ///
    /// # Errors
    /// As any call.
    pub fn cursors(&self, topic: &TopicHandle, consumer: &str) -> Result<Vec<Cursor>, ClientError> {
        if let Some(parts) = topic.parts() {
            let known = parts.iter().map(|part| self.cursors(part, consumer));
            return Ok(known.collect::<Result<Vec<_>, _>>()?.concat());
        }
        let body = ReadCursors {
            consumer: consumer.to_owned(),
        };
        let what = format!("cursors of {}", topic.name());
        self.begin_call(Method::ReadCursors, topic.id(), &body, what, |reply| {
            let list = CursorList::from_bytes("cursor list", &reply.head);
            Ok(list.map_err(ClientError::damaged)?.cursors)
        })
        .wait()
    }

    /// Moves a consumer's cursors, be it backwards. A consumer that is open
    /// does not notice; see [`crate::Consumer::seek`].
    ///
    /// # Errors
    /// As any call.
    pub fn seek(
        &self,
        topic: &TopicHandle,
        consumer: &str,
        positions: &[(PartitionIndex, Position)],
    ) -> Result<(), ClientError> {
        self.begin_seek(topic, consumer, positions).wait()
    }

    /// [`Driver::seek`], not waited for.
    pub fn begin_seek(
        &self,
        topic: &TopicHandle,
        consumer: &str,
        positions: &[(PartitionIndex, Position)],
    ) -> Pending<()> {
        self.begin_move_cursors(topic, consumer, CursorMove::Seek, positions)
    }

    /// Acknowledges for a consumer whose program keeps its own place: all before these positions.
    /// Never moves a cursor back.
    ///
    /// # Errors
    /// As any call; [`ErrorCode::CursorBackwards`](wire::ErrorCode::CursorBackwards).
    pub fn begin_acknowledge(
        &self,
        topic: &TopicHandle,
        consumer: &str,
        positions: &[(PartitionIndex, Position)],
    ) -> Pending<()> {
        self.begin_move_cursors(topic, consumer, CursorMove::Acknowledge, positions)
    }

    fn begin_move_cursors(
        &self,
        topic: &TopicHandle,
        consumer: &str,
        how: CursorMove,
        positions: &[(PartitionIndex, Position)],
    ) -> Pending<()> {
        if let Some(parts) = topic.parts() {
            let moves = |part: &TopicHandle| {
                let own = positions.iter().filter(|(at, _)| at.0 == part.state.first);
                let own: Vec<_> = own.copied().collect();
                (!own.is_empty()).then(|| self.begin_move_cursors(part, consumer, how, &own))
            };
            let moves = parts.iter().filter_map(moves).collect();
            return topic.all_done(moves, "cursors to be moved");
        }
        let body = MoveCursors {
            consumer: consumer.to_owned(),
            how,
            positions: positions.to_vec(),
        };
        let what = format!("cursors of consumer {consumer} of {}", topic.name());
        self.begin_call(Method::MoveCursors, topic.id(), &body, what, |_| Ok(()))
    }

    /// Forgets all cursors of a consumer.
    ///
    /// # Errors
    /// [`ClientError::Server`] with [`ErrorCode::UnknownConsumer`](wire::ErrorCode::UnknownConsumer).
    pub fn delete_consumer(&self, topic: &TopicHandle, consumer: &str) -> Result<(), ClientError> {
        if let Some(parts) = topic.parts() {
            let deleted = parts
                .iter()
                .map(|part| self.delete_consumer(part, consumer));
            return known_to_some(deleted).map(drop);
        }
        let body = ConsumerName {
            consumer: consumer.to_owned(),
        };
        let what = format!("consumer {consumer} of {} to be deleted", topic.name());
        self.begin_call(Method::DeleteConsumer, topic.id(), &body, what, |_| Ok(()))
            .wait()
    }
}

impl TopicHandle {
    pub(crate) fn new(driver: Driver, description: TopicDescription) -> Result<Self, ClientError> {
        let plugins = driver.options().plugins.clone();
        let state = Arc::new(TopicState::new(description, plugins)?);
        let parts = state.definition.spread().map(|_| Arc::default());
        Ok(Self {
            driver,
            state,
            parts,
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The topic, for as long as it exists.
    pub fn id(&self) -> TopicId {
        self.state.id
    }

    /// Its id, behind those of its partitions if it is spread: whose events are this topic's.
    pub fn ids(&self) -> Vec<TopicId> {
        let parts = self.parts().unwrap_or_default();
        let parts = parts.iter().map(TopicHandle::id);
        parts.chain([self.id()]).collect()
    }

    /// What it was opened with.
    pub fn definition(&self) -> &Definition {
        &self.state.definition
    }

    /// As [`TopicHandle::definition`], with what has been altered since, as
    /// far as it is known; see [`TopicHandle::partitions`].
    pub fn definition_now(&self) -> Definition {
        match self.state.altered() {
            Some(altered) => (*altered).clone(),
            None => self.state.definition.clone(),
        }
    }

    /// Its partitions, as last known. While a producer or a consumer is open
    /// that is looked at now and then; [`TopicHandle::refresh`] asks at once.
    pub fn partitions(&self) -> Vec<PartitionDescription> {
        match self.parts() {
            None => self.state.partitions(),
            Some(parts) => {
                let all = parts.iter().flat_map(|part| part.state.partitions());
                all.collect()
            }
        }
    }

    /// How many partitions are known.
    pub(crate) fn partition_count(&self) -> u32 {
        match self.parts() {
            None => self.state.partition_count(),
            Some(parts) => parts.len() as u32,
        }
    }

    /// The driver that it belongs to.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Asks the server how the topic is now.
    ///
    /// # Errors
    /// As any call; [`ClientError::Invalid`] if the name belongs to another topic now.
    pub fn refresh(&self) -> Result<TopicDescription, ClientError> {
        self.begin_refresh().wait()
    }

    /// [`TopicHandle::refresh`], not waited for.
    pub fn begin_refresh(&self) -> Pending<TopicDescription> {
        match &self.parts {
            None => self.begin_refresh_itself(),
            Some(_) => self.begin_refresh_parts(),
        }
    }

    /// The same of the topic by itself, without the partitions of a spread one.
    pub(crate) fn begin_refresh_itself(&self) -> Pending<TopicDescription> {
        let body = TopicName {
            name: self.name().to_owned(),
        };
        let what = format!("the description of topic {}", self.name());
        let state = self.state.clone();
        let session = self.driver.session().ok();
        self.driver.begin_call(
            Method::DescribeTopic,
            TopicId(0),
            &body,
            what,
            move |reply| {
                let description = TopicDescription::from_bytes("topic description", &reply.head)
                    .map_err(ClientError::damaged)?;
                if !state.update(description.clone()) {
                    return Err(ClientError::Invalid(format!(
                        "topic {} was deleted and made anew; open it again",
                        state.name
                    )));
                }
                if let Some(session) = session {
                    session.mailbox.send(Command::TopicGrew(state.id));
                }
                Ok(description)
            },
        )
    }

    /// Consumers of the topic, who they are and where they stand; all of
    /// them, if the name is empty.
    ///
    /// # Errors
    /// As any call; [`ErrorCode::UnknownConsumer`](wire::ErrorCode::UnknownConsumer) if there is none of that name.
    pub fn describe_consumers(&self, name: &str) -> Result<Vec<ConsumerDescription>, ClientError> {
        self.begin_describe_consumers(name).wait()
    }

    /// [`TopicHandle::describe_consumers`], not waited for.
    pub fn begin_describe_consumers(&self, name: &str) -> Pending<Vec<ConsumerDescription>> {
        if let Some(parts) = self.parts() {
            return self.begin_describe_consumers_of(&parts, name);
        }
        let body = ConsumerName {
            consumer: name.to_owned(),
        };
        let what = format!("the consumers of topic {}", self.name());
        let method = Method::DescribeConsumers;
        self.driver
            .begin_call(method, self.id(), &body, what, |reply| {
                let list = ConsumerList::from_bytes("consumer list", &reply.head);
                Ok(list.map_err(ClientError::damaged)?.consumers)
            })
    }

    /// Reads batches from a position on, without a subscription.
    ///
    /// Waits up to `wait_max` for the first event. At most `bytes_max` come,
    /// unless the first batch is larger.
    ///
    /// # Errors
    /// As any call; [`ClientError::Damaged`] if what came fails its checksum.
    pub fn fetch(
        &self,
        partition: PartitionIndex,
        from: Position,
        bytes_max: u64,
        wait_max: Duration,
        inline_data: bool,
    ) -> Result<FetchedBatches, ClientError> {
        let request = FetchRequest {
            partition,
            from,
            bytes_max,
            wait_max,
            inline_data,
        };
        self.begin_fetch(request).wait()
    }

    /// [`TopicHandle::fetch`], not waited for.
    pub fn begin_fetch(&self, fetch: FetchRequest) -> Pending<FetchedBatches> {
        self.begin_fetch_of(fetch, Metadata::Deserialized)
    }

    /// [`TopicHandle::begin_fetch`] for who passes batches on ([`FetchedBatches::batches`]): the
    /// topic's serializer is not needed, and the metadata of the events is what it has made.
    pub fn begin_fetch_stored(&self, fetch: FetchRequest) -> Pending<FetchedBatches> {
        self.begin_fetch_of(fetch, Metadata::Stored)
    }

    fn begin_fetch_of(&self, fetch: FetchRequest, metadata: Metadata) -> Pending<FetchedBatches> {
        if self.parts.is_some() {
            return match self.part(fetch.partition) {
                Ok(part) => part.begin_fetch_of(fetch, metadata),
                Err(error) => Pending::failed(error),
            };
        }
        let body = Fetch {
            partition: fetch.partition,
            from: fetch.from,
            bytes_max: fetch.bytes_max,
            wait_max_ms: fetch.wait_max.as_millis().min(u128::from(u32::MAX)) as u32,
            inline_data: fetch.inline_data,
        };
        let what = format!(
            "events of {}/{} from offset {}",
            self.name(),
            fetch.partition,
            fetch.from.offset
        );
        let partition = fetch.partition;
        let state = self.state.clone();
        self.driver.begin_call_for(
            fetch.wait_max,
            Method::Fetch,
            self.id(),
            body.to_bytes(),
            what,
            move |reply| {
                let fetched =
                    Fetched::from_bytes("fetched", &reply.head).map_err(ClientError::damaged)?;
                FetchedBatches::new(&state, partition, fetched, reply.payload, metadata)
            },
        )
    }

    /// Reads selected data of events straight into `into`, whose lengths
    /// together are those of all selections; gives the memory back.
    ///
    /// # Errors
    /// As any call; [`ClientError::Damaged`] if the bytes fail their checksum.
    /// The memory is lost to the caller then.
    pub fn read_data(
        &self,
        wanted: &[DataWanted],
        into: Vec<Target>,
    ) -> Result<Vec<Target>, ClientError> {
        self.begin_read_data(wanted, into).wait()
    }

    /// [`TopicHandle::read_data`], not waited for.
    pub fn begin_read_data(
        &self,
        wanted: &[DataWanted],
        into: Vec<Target>,
    ) -> Pending<Vec<Target>> {
        if self.parts.is_some() {
            let of = wanted.first().map(|one| one.partition);
            if wanted.iter().any(|one| Some(one.partition) != of) {
                let why = "events of one partition of a spread topic are read at once";
                return Pending::failed(ClientError::Invalid(why.to_owned()));
            }
            return match self.part(of.unwrap_or(PartitionIndex(0))) {
                Ok(part) => part.begin_read_data(wanted, into),
                Err(error) => Pending::failed(error),
            };
        }
        let lengths: Vec<u64> = wanted
            .iter()
            .map(|one| one.segments.iter().map(|segment| segment.bytes).sum())
            .collect();
        let space: u64 = into.iter().map(|target| target.len() as u64).sum();
        if space != lengths.iter().sum::<u64>() {
            return Pending::failed(ClientError::Invalid(format!(
                "{} bytes are selected, and there is memory for {space}",
                lengths.iter().sum::<u64>()
            )));
        }
        let read = self
            .driver
            .begin_read_data(&self.state, wanted.to_vec(), into);
        self.verified(read)
    }

    /// [`TopicHandle::begin_read_data`] of pieces at distances that repeat: a request for rows of
    /// a box is as short as one for one row. (A server that does not know that is asked for each;
    /// where such a one takes the place of another during the call, it refuses the selection.)
    pub fn begin_read_strided(
        &self,
        wanted: &[StridedWanted],
        into: Vec<Target>,
    ) -> Pending<Vec<Target>> {
        let selected = wanted.iter().try_fold(0u64, |sum, one| {
            let bytes = one.bytes()?;
            Ok(sum.saturating_add(bytes))
        });
        let selected = match selected {
            Ok(selected) => selected,
            Err(error) => return Pending::failed(error),
        };
        let space: u64 = into.iter().map(|target| target.len() as u64).sum();
        if space != selected {
            return Pending::failed(ClientError::Invalid(format!(
                "{selected} bytes are selected, and there is memory for {space}"
            )));
        }
        let read = self.driver.begin_read_strided(&self.state, wanted, into);
        self.verified(read)
    }

    fn verified(&self, read: Pending<ReadBack>) -> Pending<Vec<Target>> {
        let name = self.state.name.clone();
        read.then(move |mut read| {
            read.verify().map_err(|wrong| ClientError::Damaged {
                what: format!("selection {} of {name}: {wrong}", wrong.selection),
            })?;
            Ok(read.targets)
        })
    }
}

impl TopicHandle {
    /// The partitions of a spread topic, each as a topic; `None` of any other.
    pub(crate) fn parts(&self) -> Option<Arc<Vec<TopicHandle>>> {
        self.parts.as_ref().map(|parts| parts.known())
    }

    /// One partition of a spread topic.
    pub(crate) fn part(&self, partition: PartitionIndex) -> Result<TopicHandle, ClientError> {
        let parts = self.parts().unwrap_or_default();
        let part = parts.get(partition.0 as usize).cloned();
        part.ok_or_else(|| {
            ClientError::UnknownPartition(format!(
                "partition {partition} is out of range: {} has {}, counted from 0",
                self.name(),
                parts.len()
            ))
        })
    }

    /// The topic with the partitions that its definition names, which are made if they are missing.
    pub(crate) fn with_parts(self) -> Pending<Self> {
        let definition = self.definition_now();
        let (Some(_), Some(parts)) = (definition.spread(), self.parts.clone()) else {
            return Pending::ready(self);
        };
        let missing = self.begin_parts(&definition, parts.known().len());
        let opened = self.opened(missing, "partitions to be opened");
        opened.then(move |opened| {
            let opened = opened.into_iter();
            let opened = opened.map(|part| Self::new(self.driver.clone(), part));
            parts.add(opened.collect::<Result<_, _>>()?);
            Ok(self)
        })
    }

    /// Begins to open all partitions of a spread topic from this one on, and to make those that are missing.
    fn begin_parts(&self, definition: &Definition, from: usize) -> Vec<Pending<TopicDescription>> {
        let makings = definition.spread().into_iter().flat_map(Spread::makings);
        let wanted = makings.enumerate().skip(from);
        let begun = wanted.map(|(index, making)| {
            let storage = PartitionStorage {
                kind: making.storage.to_owned(),
                config: making.config.to_owned(),
            };
            let index = index as u32;
            let part = Part {
                driver: self.driver.clone(),
                name: part_name(self.name(), index),
                definition: definition.of_part(self.id(), index),
                beside: TopicId(0),
                storage,
            };
            part.open()
        });
        begun.collect()
    }

    /// All of several things that are asked for of this topic's partitions.
    pub(crate) fn opened<T: Send + 'static>(
        &self,
        all: Vec<Pending<T>>,
        what: &str,
    ) -> Pending<Vec<T>> {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let what = format!("{what}, of {}", self.name());
        Pending::all(all, &session.mailbox, what, self.driver.request_timeout())
    }

    pub(crate) fn all_done(&self, all: Vec<Pending<()>>, what: &str) -> Pending<()> {
        self.opened(all, what).then(|_| Ok(()))
    }

    /// Asks how the topic is now, and each of its partitions; opens those that were added.
    pub(crate) fn begin_refresh_parts(&self) -> Pending<TopicDescription> {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let (mailbox, timeout) = (session.mailbox.clone(), self.driver.request_timeout());
        let topic = self.clone();
        let grown = self
            .begin_refresh_itself()
            .and_then(&mailbox, timeout, move |itself| {
                itself.map_or_else(Pending::failed, |itself| {
                    topic.with_parts().then(|topic| Ok((topic, itself)))
                })
            });
        // What is open of the topic has its new partitions when this is answered.
        let grown = grown.and_then(&mailbox, timeout, |grown| match grown {
            Err(error) => Pending::failed(error),
            Ok((topic, itself)) => {
                let followed = topic.state.call_followers();
                let followed = topic.all_done(followed, "partitions that were added");
                followed.then(|()| Ok((topic, itself)))
            }
        });
        grown.and_then(&mailbox, timeout, |grown| {
            let (topic, itself) = match grown {
                Ok(grown) => grown,
                Err(error) => return Pending::failed(error),
            };
            let parts = topic.parts().unwrap_or_default();
            let parts = parts
                .iter()
                .map(TopicHandle::begin_refresh_itself)
                .collect();
            let described = topic.opened(parts, "the description of all partitions");
            described.then(|parts| Ok(joined(itself, parts)))
        })
    }

    /// Consumers of all partitions, each once.
    pub(crate) fn begin_describe_consumers_of(
        &self,
        parts: &[Self],
        name: &str,
    ) -> Pending<Vec<ConsumerDescription>> {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let (mailbox, timeout) = (session.mailbox.clone(), self.driver.request_timeout());
        let asked = parts.iter().map(|part| {
            let answer = part.begin_describe_consumers(name);
            answer.and_then(&mailbox, timeout, Pending::ready)
        });
        let asked = asked.collect();
        let answers = self.opened(asked, "the consumers of all partitions");
        answers.then(|answers| Ok(one_of_each(known_to_some(answers.into_iter())?)))
    }
}

/// What [`TopicHandle::fetch`] is to read.
#[derive(Debug, Clone)]
pub struct FetchRequest {
    /// The partition.
    pub partition: PartitionIndex,
    /// Where to begin; incarnation 0 is the present one.
    pub from: Position,
    /// The most bytes of batches.
    pub bytes_max: u64,
    /// How long to wait for the first event.
    pub wait_max: Duration,
    /// Whether inline data comes along.
    pub inline_data: bool,
}

impl fmt::Debug for TopicHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicHandle({} {})", self.state.name, self.state.id)
    }
}
