//! A topic, as a client holds it.

use crate::check;
use crate::driver::{Driver, description};
use crate::error::ClientError;
use crate::fetched::{FetchedBatches, Metadata};
use crate::mailbox::Command;
use crate::promise::Pending;
use crate::received_checksums::ReadBack;
use crate::strided::StridedWanted;
use crate::topic_state::TopicState;
use memory::Target;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use topic::Definition;
use wire::codec::Codec;
use wire::message::{
    ConsumerDescription, ConsumerList, ConsumerName, CreateTopic, Cursor, CursorList, CursorMove,
    DataWanted, Fetch, Fetched, Method, MoveCursors, PartitionDescription, PartitionStorage,
    ReadCursors, TopicDescription, TopicName,
};
use wire::record::Position;
use wire::{ErrorCode, PartitionIndex, TopicId};

/// How often a topic that goes with another one is tried to be made, when
/// connections are lost over it.
const COMPANION_TRIES: u32 = 3;

/// A topic that exists, or did when it was opened. Cheap to clone.
#[derive(Clone)]
pub struct TopicHandle {
    pub(crate) driver: Driver,
    pub(crate) state: Arc<TopicState>,
}

impl Driver {
    /// Makes a topic with its first partitions, which may be none.
    ///
    /// # Errors
    /// [`ClientError::Server`] with [`ErrorCode::TopicExists`],
    /// [`ErrorCode::InvalidTopic`] or [`ErrorCode::InvalidStorage`]; nothing
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

    /// [`Driver::create_topic`] on the node that has `beside`, as a queue's topic and that of its dead letters
    /// have to be. Other topics are spread over the nodes by their names.
    ///
    /// # Errors
    /// As [`Driver::create_topic`]; [`ErrorCode::UnknownTopic`] if `beside` is gone.
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

    fn begin_create_topic_at(
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
        let body = CreateTopic {
            name: name.to_owned(),
            definition: definition.to_json(),
            partitions: partitions.to_vec(),
        };
        let driver = self.clone();
        let what = format!("topic {name} to be made");
        self.begin_call(Method::CreateTopic, beside, &body, what, move |reply| {
            TopicHandle::new(driver, description(&reply)?)
        })
    }

    /// Opens a topic that exists.
    ///
    /// # Errors
    /// [`ClientError::Server`] with [`ErrorCode::UnknownTopic`].
    pub fn open_topic(&self, name: &str) -> Result<TopicHandle, ClientError> {
        self.begin_open_topic(name).wait()
    }

    /// [`Driver::open_topic`], not waited for.
    pub fn begin_open_topic(&self, name: &str) -> Pending<TopicHandle> {
        let driver = self.clone();
        self.begin_describe_topic(name)
            .then(move |description| TopicHandle::new(driver, description))
    }

    /// Cursors of a consumer of a topic; of all of them, if the name is empty.
    ///
    /// # Errors
    /// As any call.
    pub fn cursors(&self, topic: &TopicHandle, consumer: &str) -> Result<Vec<Cursor>, ClientError> {
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
    /// As any call; [`ErrorCode::CursorBackwards`].
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
    /// [`ClientError::Server`] with [`ErrorCode::UnknownConsumer`].
    pub fn delete_consumer(&self, topic: &TopicHandle, consumer: &str) -> Result<(), ClientError> {
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
        Ok(Self { driver, state })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The topic, for as long as it exists.
    pub fn id(&self) -> TopicId {
        self.state.id
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
        self.state.partitions()
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
    /// As any call; [`ErrorCode::UnknownConsumer`] if there is none of that name.
    pub fn describe_consumers(&self, name: &str) -> Result<Vec<ConsumerDescription>, ClientError> {
        self.begin_describe_consumers(name).wait()
    }

    /// [`TopicHandle::describe_consumers`], not waited for.
    pub fn begin_describe_consumers(&self, name: &str) -> Pending<Vec<ConsumerDescription>> {
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

    /// Makes the topic `name`, if there is none, beside this one and with one partition that is
    /// stored like this topic's first.
    pub(crate) fn begin_companion(&self, name: &str, definition: &Definition) -> Pending<()> {
        self.try_companion(name, definition, COMPANION_TRIES)
    }

    fn try_companion(&self, name: &str, definition: &Definition, tries: u32) -> Pending<()> {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let Some(first) = self.partitions().into_iter().next() else {
            let text = format!(
                "topic {} has no partition yet, after whose storage that of {name} is made",
                self.name()
            );
            return Pending::failed(ClientError::UnknownPartition(text));
        };
        let (driver, definition) = (self.driver.clone(), definition.clone());
        let timeout = self.driver.request_timeout();
        let mailbox = session.mailbox.clone();
        let known = self.driver.begin_describe_topic(name);
        let name = name.to_owned();
        let beside = self.id();
        let made = known.and_then(&mailbox, timeout, {
            let (name, definition) = (name.clone(), definition.clone());
            move |known| match known {
                Ok(_) => Pending::ready(()),
                Err(error) if error.code() == Some(ErrorCode::UnknownTopic) => driver
                    .begin_create_topic_at(beside, &name, &definition, &[first.storage])
                    .then(|_| Ok(())),
                Err(error) => Pending::failed(error),
            }
        });
        let topic = self.clone();
        made.and_then(&mailbox, timeout, move |made| match made {
            Ok(()) => Pending::ready(()),
            // Somebody else was faster.
            Err(error) if error.code() == Some(ErrorCode::TopicExists) => Pending::ready(()),
            // The connection was lost: whether it was made is to be asked.
            Err(ClientError::Unreachable { .. }) if tries > 1 => {
                topic.try_companion(&name, &definition, tries - 1)
            }
            Err(error) => Pending::failed(error),
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
